/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of libraries loaded at run time. */
#ifndef LHI_BASE_SYMBOL_H
#define LHI_BASE_SYMBOL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* Looks up a symbol and stores it in the pointer that `pointer` points to. ISO
 * C has no conversion from an object pointer to a function pointer; POSIX
 * guarantees the same representation. */
static inline bool lhi_find_symbol(void *library, const char *name,
                                   void *pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

#endif
