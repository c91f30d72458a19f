/* SPDX-License-Identifier: Apache-2.0 */
/* Parses `--sweep latency=0:2:0.25,transfer=0,1ms`: the same pipeline under
 * other delays. */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include "inputs.h"

#include <longhaul/experimental/compare.h>

/* Swept quantity. */
typedef enum cli_axis_kind {
    CLI_LATENCY,
    CLI_TRANSFER,
    CLI_N_AXES
} cli_axis_kind;

/* Limits of a sweep: values of one quantity, and points (combinations). */
enum { CLI_MOST_VALUES = 1000, CLI_MOST_POINTS = 10000 };

/* One quantity's values, ascending or as listed. */
typedef struct cli_axis {
    lh_compare_delays delays; /* plain numbers are relative */
    double *values;           /* owned, used by `delays` */
    bool unit_fixed;          /* a non-zero value has fixed the unit */
} cli_axis;

/* All sweep axes. */
typedef struct cli_sweep {
    cli_axis axes[CLI_N_AXES];
} cli_sweep;

/* Parses the --sweep values. Release with cli_sweep_fini(), also after a
 * failure. */
lh_status cli_sweep_parse(cli *c, const char *text, cli_sweep *out);
/* Frees a sweep's values. */
void cli_sweep_fini(cli_sweep *sweep);
extern const char *const cli_axis_names[]; /* "latency", "transfer" */

/* Formats value number `i` of a sweep axis into `buffer`, which it returns:
 * "0.25" (a multiple of the forward time) or "5 ms". */
char *cli_axis_text(const cli_axis *axis, uint32_t i, char *buffer);

#endif
