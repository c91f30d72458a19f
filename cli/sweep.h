/* SPDX-License-Identifier: Apache-2.0 */
/* `--sweep latency=0:2:0.25,transfer=0,1ms`: the same pipeline under other
 * delays. */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include "inputs.h"

typedef enum cli_axis_kind {
    CLI_LATENCY,
    CLI_TRANSFER,
    CLI_N_AXES
} cli_axis_kind;

enum { CLI_MOST_VALUES = 1000, CLI_MOST_POINTS = 10000 };

/* The values of one quantity, rising or as they were listed. */
typedef struct cli_axis {
    uint32_t n_values; /* 0: the quantity stays as the file has it */
    double *values;    /* ns, or multiples of the forward time */
    bool relative;     /* plain numbers: multiples of the forward time */
    bool typed;        /* a value other than 0, which needs no unit, said so */
} cli_axis;

typedef struct cli_sweep {
    cli_axis axes[CLI_N_AXES];
} cli_sweep;

/* Release with cli_sweep_fini(), also after a failure. */
lh_status cli_sweep_parse(cli *c, const char *text, cli_sweep *out);
void cli_sweep_fini(cli_sweep *sweep);
extern const char *const cli_axis_names[]; /* "latency", "transfer" */

/* The mean over devices of all forward work of one microbatch: what a plain
 * number is a multiple of. */
int64_t cli_forward_ns(const lh_pipeline *pipeline);
/* Value `i` of an axis for a pipeline with that forward time; -1 where the
 * axis has no values. */
int64_t cli_axis_ns(const cli_axis *axis, uint32_t i, int64_t forward_ns);
/* "0.25" (of the forward time) or "5 ms". */
char *cli_axis_text(const cli_axis *axis, uint32_t i, char *buffer);

/* The pipeline with other delays (-1: as they are) on the links between its
 * sites, or on all links where it has no sites. */
lh_status cli_sweep_pipeline(cli *c, const lh_pipeline *pipeline,
                             int64_t latency_ns, int64_t transfer_ns,
                             lh_pipeline **out);

#endif
