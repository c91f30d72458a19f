/* SPDX-License-Identifier: Apache-2.0 */
/* Prints tables V and VI of PipeMesh, with Figs. 11 and 12, and its claims. */
#ifndef PIPEMESH_MORE_H
#define PIPEMESH_MORE_H

#include "paper_score.h"

#include <longhaul/experimental/report.h>

/* Unit of a ratio, for which 1 means no effect. */
#define RATIO ""

/* Values from table IV for Megatron's GPT-3 58B that both tables need. */
typedef struct pipemesh_row {
    const char *cluster;
    double batch, fwd, bwd, bubble, dp, pp; /* ms */
    double tflops;
} pipemesh_row;

/* Exits with the error's message. */
void pipemesh_die(const lh_error *err);
/* Adds a curve to the report; NULL: no report. */
void pipemesh_add_sweep(lh_report *report, const char *title, const char *x,
                        uint32_t n, const double *xs, const int64_t *ns);
/* Writes the report. */
void pipemesh_write_report(lh_report *report, const char *path);
/* Stores a line of the table of claims: quantity `what` of `subject`. A unit of
 * RATIO with decimals marks a ratio. The texts but `subject` must be constant.
 */
void pipemesh_claim(const char *where, const char *subject, const char *what,
                    double value, double published, int digits,
                    const char *unit, score_class as, const char *why);
/* The same for a share in percent that the paper gives as above a limit, from
 * cells that are counted already. */
void pipemesh_claim_above(const char *where, const char *subject,
                          const char *what, double value, double limit,
                          const char *why);
/* The same for a ratio that the paper gives as below a limit. */
void pipemesh_claim_below(const char *where, const char *subject,
                          const char *what, double value, double limit,
                          const char *why);
/* Stores the claims of the text about table IV. */
void pipemesh_claim_text(void);
/* Prints the stored lines, the claims that were not run, and the counts. */
void pipemesh_print_claims(void);
/* Prints the page's title and commands. */
void pipemesh_print_start(void);
/* Prints predictions from jobs for PipeMesh's and Megatron's row of each model.
 */
void pipemesh_print_jobs(void);
/* Prints what does not match. `efficiency`: of a node's link. */
void pipemesh_print_missing(double efficiency);

/* Prints table V. */
void pipemesh_print_table5(const pipemesh_row *a100, const pipemesh_row *v100);
/* Prints table VI. `flops_per_ms`: a V100's forward throughput; `backward`:
 * ratio of backward to forward duration; `efficiency`: of a node's link. */
void pipemesh_print_table6(double flops_per_ms, double backward,
                           double efficiency);

#endif
