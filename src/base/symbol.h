/* SPDX-License-Identifier: Apache-2.0 */
/* Functions and values of libraries that are loaded at run time. */
#ifndef LHI_SYMBOL_H
#define LHI_SYMBOL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* Sets the pointer that `pointer` points to. ISO C has no conversion from an
 * object's address to a function's; POSIX says that the bytes are those. */
static inline bool lhi_find_symbol(void *library, const char *name,
                                   void *pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

#endif
