/* SPDX-License-Identifier: Apache-2.0 */
/* What `longhaul compare` shows. */
#ifndef CLI_COMPARISON_VIEW_H
#define CLI_COMPARISON_VIEW_H

#include "jitter_view.h"
#include "sweep.h"
#include "view.h"

#include <longhaul/results.h>

typedef struct cli_comparison {
    lh_comparison *all;
    cli_sweep sweep;    /* no values: the pipelines as they are */
    const char *number; /* what is compared, for the table's head */
    bool first_device;  /* its end counts, and bounds are of makespans */
} cli_comparison;

bool cli_comparison_swept(const cli_comparison *x);

lh_status cli_comparison_text(cli *c, const cli_comparison *x);
/* The curves over latency at one transfer (or over transfer where latency
 * stays). Points to the comparison and to `room`; free with
 * cli_curves_fini(). */
typedef struct cli_curves {
    lh_report_sweep sweep;
    char title[80], x[64];
    double *xs;
    const char **series;
    int64_t *makespan_ns;
} cli_curves;
uint32_t cli_comparison_n_curves(const cli_comparison *x);
lh_status cli_curves_make(cli *c, const cli_comparison *x, uint32_t which,
                          cli_curves *out);
void cli_curves_fini(cli_curves *curves);

#endif
