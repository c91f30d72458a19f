/* SPDX-License-Identifier: Apache-2.0 */
/* Parses values from the command line. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* Parses a strict decimal number; false: invalid, or outside least..most. */
bool cli_parse_count(const char *text, uint64_t least, uint64_t most,
                     uint64_t *out);
/* Parses n numbers separated by commas, "8,8,7", each at least `least`, into
 * numbers[]; *sum is their sum. Returns false if the text is invalid. */
bool cli_parse_numbers(const char *text, uint32_t least, uint32_t n,
                       uint32_t *numbers, uint64_t *sum);
/* Parses a finite, non-negative decimal number; *rest points to the text after
 * it. Returns false if there is none. */
bool cli_parse_real(const char *text, double *out, const char **rest);

/* Number up to 2^53, or time up to 2^62 ns with its unit: ns, us, ms, s, min,
 * h, d. */
typedef struct cli_number {
    double value; /* ns if it has a unit */
    bool timed;   /* has a unit */
} cli_number;
/* Parses a number with an optional time unit; *rest points to the text after
 * it. Returns false if there is none. */
bool cli_parse_number(const char *text, cli_number *out, const char **rest);
/* Parses the whole text as a time with its unit, or 0, into *out_ns. Returns
 * false if it is invalid. */
bool cli_parse_time(const char *text, int64_t *out_ns);

/* Parses the whole text as an amount of a GPU's memory above 0: a share below
 * 100 %, "5%", into *percent, or a number of GiB below 10^6 into *gib. Returns
 * false if it is invalid. */
bool cli_parse_memory_share(const char *text, double *percent, double *gib);

/* A value, or a range first:last:step. */
typedef struct cli_range {
    uint32_t n_numbers;   /* 1 or 3 */
    cli_number number[3]; /* as typed */
} cli_range;
/* Parses a value or a range "first:last:step" up to a comma or the end and
 * advances *text to it; false: invalid. */
bool cli_parse_range(const char **text, cli_range *out);
/* Counts the range's values; 0: the range is empty or endless. */
double cli_range_count(const cli_range *range);
/* Returns value number `i` of a range: first + i * step. */
double cli_range_at(const cli_range *range, double i);

#endif
