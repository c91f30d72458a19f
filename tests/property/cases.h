/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line arguments CASES and FIRST: the number of random cases and the
 * first seed, so that a failed case can be run alone. */
#ifndef CASES_H
#define CASES_H

#include "sanitized.h" /* OF_CASES() */

#include <stdint.h>
#include <stdlib.h>

/* Parses CASES and FIRST; a missing argument leaves its value unchanged. */
static inline void cases_from(int argc, char **argv, uint32_t *n_cases,
                              uint32_t *first_case)
{
    if (argc > 1)
        *n_cases = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        *first_case = (uint32_t)strtoul(argv[2], NULL, 10);
}

#endif
