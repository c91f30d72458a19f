/* SPDX-License-Identifier: Apache-2.0 */
/* Values as they are typed. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* Strict decimal number; false: it is not one, or not in least..most. */
bool cli_parse_count(const char *text, uint64_t least, uint64_t most,
                     uint64_t *out);
/* A finite, non-negative decimal number and what follows it (its unit). */
bool cli_parse_real(const char *text, double *out, const char **rest);

#endif
