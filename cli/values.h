/* SPDX-License-Identifier: Apache-2.0 */
/* Values as they are typed. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* Strict decimal number; false: it is not one, or not in least..most. */
bool cli_parse_count(const char *text, uint64_t least, uint64_t most,
                     uint64_t *out);
/* "8,8,7": n of them from `least` on, and what they are together. */
bool cli_parse_numbers(const char *text, uint32_t least, uint32_t n,
                       uint32_t *numbers, uint64_t *sum);
/* A finite, non-negative decimal number and what follows it. */
bool cli_parse_real(const char *text, double *out, const char **rest);

/* A number of at most 2^53, with or without a unit of time: ns, us, ms, s. */
typedef struct cli_number {
    double value; /* ns where it has a unit */
    bool timed;   /* it has one */
} cli_number;
bool cli_parse_number(const char *text, cli_number *out, const char **rest);
/* The whole text is a time with its unit, or 0. */
bool cli_parse_time(const char *text, int64_t *out_ns);

/* A value, or first:last:step of them. */
typedef struct cli_range {
    uint32_t n_numbers;   /* 1 or 3 */
    cli_number number[3]; /* as typed */
} cli_range;
/* Up to a comma or the end, where *text is then; false: it is none. */
bool cli_parse_range(const char **text, cli_range *out);
/* How many values it has; 0: it leads nowhere. */
double cli_range_n(const cli_range *range);
double cli_range_at(const cli_range *range, double i);

#endif
