/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the parts of docs/papers/adaptra.md, which reproduces Adaptra (Wu et
 * al., arXiv:2504.19232) and the systems it is compared with. */
#ifndef ADAPTRA_H
#define ADAPTRA_H

#include "page_section.h"
#include "paper_pipeline.h"
#include "paper_score.h"

#include <longhaul/experimental/events.h>

/* Compared systems. On the direct path a device's sends share a queue of one
 * entry with its passes, and receives are posted only when the device reaches
 * them. */
typedef enum adaptra_system {
    ADAPTRA_1F1B, /* joint backward, direct path */
    ADAPTRA_ZB,   /* zb-h2, direct path */
    ADAPTRA_CPU,  /* zb-h2, passes never wait for sends */
    ADAPTRA_FULL, /* slackness adapted to the delays, same path */
    ADAPTRA_SYSTEMS
} adaptra_system;

extern const char *const adaptra_names[ADAPTRA_SYSTEMS];
extern const paper_run adaptra_runs[ADAPTRA_SYSTEMS];

/* Equal stages with F = D = W = t. */
typedef struct adaptra_setting {
    unsigned stages, microbatches;
    double t_ms;
} adaptra_setting;

enum { ADAPTRA_MOST_STAGES = 8 };

/* Builds the pipeline with the delay on each link of a set: bit i is the link
 * between stages i and i + 1. */
paper_pipeline adaptra_pipe(const adaptra_setting *s, unsigned links,
                            double delay_ms,
                            double delays[ADAPTRA_MOST_STAGES]);
/* Simulates a system and returns its makespan and bubbles. */
paper_result adaptra_result(const adaptra_setting *s, unsigned links,
                            double delay_ms, adaptra_system system);
/* Returns a system's makespan in ms. */
double adaptra_ms(const adaptra_setting *s, unsigned links, double delay_ms,
                  adaptra_system system);

/* Prints iteration times for the jobs of table 2. */
void adaptra_jobs(FILE *to, const page_options *how);
/* Prints the claims beside predictions from job files, and their counts. */
void adaptra_job_claims(FILE *to, const page_options *how);
/* Prints every published number beside the computed one, and their counts. */
void adaptra_claims(FILE *to, const page_options *how);
/* That table's lines by figure. */
void adaptra_claim_orders(score *s, FILE *to);    /* 5 and 14 */
void adaptra_claim_delays(score *s, FILE *to);    /* 15, 16 and 17 */
void adaptra_claim_placement(score *s, FILE *to); /* 3 and 18 */
void adaptra_claim_gaps(score *s, FILE *to);      /* 19 */
void adaptra_claim_unequal(score *s, FILE *to);   /* equation 1 */
/* Predictions from job files for figures 14 to 17, 20 and 21. */
void adaptra_claim_jobs(score *s, FILE *to, const char *folder);
/* Iteration times of figure 21 in seconds. */
typedef struct adaptra_rates {
    double quiet_s[ADAPTRA_SYSTEMS];   /* without delay */
    double slowest_s[ADAPTRA_SYSTEMS]; /* in the event in which ZB is slowest */
    double median_s;                   /* Adaptra's, of 1,200 iterations */
} adaptra_rates;

/* Sorts the times and returns their median. */
double adaptra_median(double *s, size_t n);
/* Prints figure 21's directions; `fitted`: the pass time was chosen for the
 * throughput. */
void adaptra_claim_rates(score *s, FILE *to, const char *run,
                         const adaptra_rates *r, bool fitted);
/* Figure 21; `folder` as for adaptra_trace(). */
void adaptra_claim_trace(score *s, FILE *to, const char *folder);

/* Figure 1: makespans in ms without delay and with 60 ms on the last link; the
 * `free` ones if passes never wait for a send. For 1F1B and ZB. */
typedef struct adaptra_causes_60 {
    double quiet_ms[2], slow_ms[2], free_quiet_ms[2], free_slow_ms[2];
} adaptra_causes_60;

/* Why a direction of ZB is fitted. */
#define ADAPTRA_LATE                                                           \
    "receives are posted late: chosen for figure 15's ratio of ZB"

/* Prints figure 1's directions with the class `as`; ZB's slowdown, which
 * depends on the chosen receive mode, is fitted unless they are variants. */
void adaptra_claim_causes(score *s, FILE *to, const char *run,
                          const adaptra_causes_60 *c, score_class as,
                          const char *why);
/* Prints a ratio that the paper gives as above 1. */
void adaptra_claim_above(score *s, FILE *to, const char *where,
                         const char *claimed, const char *run, double ratio,
                         score_class as, const char *why);
/* As adaptra_claim_above(), for iterations without a slow link: trivial, unless
 * it is fitted or does not agree. */
void adaptra_claim_quiet(score *s, FILE *to, const char *where,
                         const char *claimed, const char *run, double ratio,
                         score_class as, const char *why);

/* Prints figure 16's setting of the largest speedup: its speedup by the largest
 * of all settings, 1 if it is the largest here, too. */
void adaptra_claim_peak(score *s, FILE *to, const char *claimed,
                        const char *run, double ratio);

/* Page parts; the number is the paper's figure. */
void adaptra_causes(FILE *to, const page_options *how);    /* figure 1 */
void adaptra_orders(FILE *to, const page_options *how);    /* figures 4 and 5 */
void adaptra_slackness(FILE *to, const page_options *how); /* figure 8 */
void adaptra_example(FILE *to, const page_options *how);   /* figure 14 */
void adaptra_growth(FILE *to, const page_options *how);    /* figure 15 */
void adaptra_single(FILE *to, const page_options *how);    /* figure 16 */
void adaptra_several(FILE *to, const page_options *how);   /* figure 17 */
void adaptra_placement(FILE *to,
                       const page_options *how);        /* figures 3 and 18 */
void adaptra_optima(FILE *to, const page_options *how); /* figure 19 */
/* Figure 21; the folder contains adaptra-8-stages.yaml and adaptra-trace.yaml.
 */
void adaptra_trace(FILE *to, const page_options *how);
/* Prints figure 21 for a run that adapts online. */
void adaptra_adapting(FILE *to, const page_options *how);

/* Reads the stages from that folder, with B split (D and W) or joint. Release
 * with lh_pipeline_free(). */
lh_pipeline *adaptra_stages(const char *folder, bool joint);
/* Reads the trace from that folder. Release with lh_events_free(). */
lh_events *adaptra_events(const char *folder);

#endif
