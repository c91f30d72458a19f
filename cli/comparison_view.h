/* SPDX-License-Identifier: Apache-2.0 */
/* Prints `longhaul compare` results. */
#ifndef CLI_COMPARISON_VIEW_H
#define CLI_COMPARISON_VIEW_H

#include "jitter_view.h"
#include "sweep.h"
#include "view.h"

#include <longhaul/experimental/json_output.h>

/* Comparison and its presentation settings. */
typedef struct cli_comparison {
    lh_comparison *all;
    cli_sweep sweep;    /* no values: the pipelines unchanged */
    const char *number; /* compared quantity, for the table heading */
    bool first_device;  /* compare the first device's end; bounds are for
                         * makespans */
} cli_comparison;

/* Checks whether the comparison is a sweep over link delays. */
bool cli_comparison_is_sweep(const cli_comparison *x);

/* Prints the comparison as text: a ranking, or one sheet of curves per transfer
 * time for a sweep. */
lh_status cli_comparison_text(cli *c, const cli_comparison *x);
/* Curves over latency at one transfer value (or over transfer if latency is
 * constant). Points into the comparison and to `room`; free with
 * cli_curves_fini(). */
typedef struct cli_curves {
    lh_report_sweep sweep;
    char title[80], x[64];
    double *xs;
    const char **series;
    int64_t *makespan_ns;
} cli_curves;
/* Counts the sheets (sets of curves) as which a sweep is printed: one per
 * transfer time, or one if the x axis is the transfer time. */
uint32_t cli_comparison_n_curves(const cli_comparison *x);
/* Builds the curves of sheet `which` (0 to cli_comparison_n_curves() - 1) of a
 * sweep, for plots and reports. Release with cli_curves_fini(). */
lh_status cli_curves_build(cli *c, const cli_comparison *x, uint32_t which,
                           cli_curves *out);
/* Frees a sheet's curves. */
void cli_curves_fini(cli_curves *curves);

#endif
