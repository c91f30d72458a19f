/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations of the settings that 'longhaul packets' varies. */
#ifndef CLI_PACKETS_GRID_H
#define CLI_PACKETS_GRID_H

#include "cli.h"

#include <stdint.h>

enum { PACKETS_MOST_VALUES = 64 };

/* Settings that may have several values, in the columns' order. */
typedef enum packets_axis {
    PACKETS_GBPS,
    PACKETS_LATENCY,
    PACKETS_LOSS,
    PACKETS_MESSAGE,
    PACKETS_SENDERS,
    PACKETS_QUEUE_PAIRS,
    PACKETS_PATHS,
    PACKETS_BALANCING,
    PACKETS_RECOVERY,
    PACKETS_FEC,
    PACKETS_CONTROL,
    PACKETS_FLOW_CONTROL,
    PACKETS_TRAFFIC,
    N_PACKETS_AXES
} packets_axis;

/* The values of all axes. */
typedef struct packets_grid {
    double values[N_PACKETS_AXES][PACKETS_MOST_VALUES];
    const char *texts[N_PACKETS_AXES]; /* as typed; borrowed */
    uint32_t n[N_PACKETS_AXES], n_rows;
} packets_grid;

/* Words of the options, by their values; NULL ends a list. */
extern const char *const packets_balancings[],
    *const packets_recoveries[], *const packets_flow_controls[];

/* Parses a number of bytes with an optional unit, such as 64KiB or 134MB, into
 * *out; false: invalid. */
bool packets_parse_bytes(const char *text, double *out);
/* Returns the command-line option, without dashes, that sets the axis (varied
 * link setting) `a`. */
const char *packets_get_option(packets_axis a);
/* Parses the values of all axes, comma-separated texts or NULL, into `g`, and
 * counts its rows: one for each combination of values. */
lh_status packets_parse_grid(cli *c, const char *const *texts, packets_grid *g);
/* Returns the value of axis `a` (a link setting) in table row `row`. */
double packets_get_value(const packets_grid *g, uint32_t row, packets_axis a);
/* Formats the value of axis `a` in table row `row` into `buffer`, in the form
 * in which it was typed; returns `buffer`. */
const char *packets_get_text(const packets_grid *g, uint32_t row,
                             packets_axis a, char *buffer, size_t size);

/* Prints the error of table row `row` with the settings that differ between
 * rows, and the number of rows in the results. Returns the error if no row has
 * finished, else LH_OK with exit status 1. */
lh_status packets_print_failed_row(cli *c, const packets_grid *g, uint32_t row);

#endif
