/* SPDX-License-Identifier: Apache-2.0 */
/* What `longhaul compare` works out and shows. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include "jitter_view.h"
#include "sweep.h"
#include "view.h"

/* One pipeline to schedule in several ways. */
typedef struct cli_base {
    char name[64]; /* of its file, or how chunks lie */
    lh_pipeline *pipeline;
    int64_t forward_ns; /* what relative delays are multiples of */
    int64_t after_ns;   /* follows the pipeline in every iteration */
} cli_base;

/* A method on a base: a row of the table, a curve of the plot. */
typedef struct cli_contender {
    char label[96];
    const char *method;
    uint32_t base;
} cli_contender;

typedef struct cli_outcome {
    lh_status status;
    int64_t ns; /* by the objective, with what follows; -1: none */
    int64_t makespan_ns;
    int64_t bound_ns; /* no schedule of this pipeline is faster */
    double bubble_ratio;
    int64_t peak_memory; /* highest of all devices */
    json_t *peaks;       /* of each; NULL: it failed */
    bool fits;
    lh_jitter_result jitter; /* samples 0: not asked for */
    char why[200];           /* it failed */
} cli_outcome;

typedef struct cli_comparison {
    uint32_t n_bases, n_contenders;
    cli_base *bases;
    cli_contender *contenders;
    cli_sweep sweep; /* no values: the pipelines as they are */
    uint32_t n_latencies, n_transfers; /* at least 1 each */
    /* [(transfer * n_latencies + latency) * n_contenders + contender] */
    cli_outcome *outcomes;
    lh_jitter jitter;   /* size 0: none */
    bool iterations;    /* what is compared are iterations of a job */
    const char *number; /* what is compared of them, for the table's head */
} cli_comparison;

bool cli_comparison_swept(const cli_comparison *x);
const cli_outcome *cli_comparison_at(const cli_comparison *x, uint32_t latency,
                                     uint32_t transfer, uint32_t contender);
/* Contenders at one point, the fastest first, those that failed last;
 * `ranking` has room for all. */
void cli_comparison_rank(const cli_comparison *x, uint32_t latency,
                         uint32_t transfer, uint32_t *ranking);
const char *cli_outcome_word(const cli_outcome *o); /* "ok", "infeasible" */

lh_status cli_comparison_json(cli *c, const cli_comparison *x);
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
