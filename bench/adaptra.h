/* SPDX-License-Identifier: Apache-2.0 */
/* Adaptra (Wu et al., arXiv:2504.19232): parts of docs/papers/adaptra.md, and
 * the systems that it compares. */
#ifndef ADAPTRA_H
#define ADAPTRA_H

#include "page_part.h"
#include "paper_pipe.h"

#include <longhaul/events.h>

/* The direct path: a device's sends share a queue of one entry with its
 * passes, receives are posted when the device gets there. */
typedef enum adaptra_system {
    ADAPTRA_1F1B, /* joint backward, direct path */
    ADAPTRA_ZB,   /* zb-h2, direct path */
    ADAPTRA_CPU,  /* zb-h2, passes never wait for a send */
    ADAPTRA_FULL, /* slack made for the delays, the same path */
    ADAPTRA_SYSTEMS
} adaptra_system;

extern const char *const adaptra_names[ADAPTRA_SYSTEMS];
extern const paper_run adaptra_runs[ADAPTRA_SYSTEMS];

/* Stages alike, F = D = W = t. */
typedef struct adaptra_setting {
    unsigned stages, microbatches;
    double t_ms;
} adaptra_setting;

enum { ADAPTRA_MOST_STAGES = 8 };

/* With the delay on each link of a set: bit i is the link between stages i and
 * i + 1. */
paper_pipe adaptra_pipe(const adaptra_setting *s, unsigned links,
                        double delay_ms, double delays[ADAPTRA_MOST_STAGES]);
paper_result adaptra_result(const adaptra_setting *s, unsigned links,
                            double delay_ms, adaptra_system system);
double adaptra_ms(const adaptra_setting *s, unsigned links, double delay_ms,
                  adaptra_system system);

/* Parts. */
void adaptra_causes(FILE *to, const page_how *how);    /* figure 1 */
void adaptra_orders(FILE *to, const page_how *how);    /* 4 and 5 */
void adaptra_slackness(FILE *to, const page_how *how); /* 8 */
void adaptra_example(FILE *to, const page_how *how);   /* 14 */
void adaptra_growth(FILE *to, const page_how *how);    /* 15 */
void adaptra_single(FILE *to, const page_how *how);    /* 16 */
void adaptra_several(FILE *to, const page_how *how);   /* 17 */
void adaptra_places(FILE *to, const page_how *how);    /* 3 and 18 */
void adaptra_optima(FILE *to, const page_how *how);    /* 19 */
/* 21; the folder has adaptra-8-stages.yaml and adaptra-trace.yaml. */
void adaptra_trace(FILE *to, const page_how *how);
void adaptra_adapting(FILE *to, const page_how *how);

/* What that folder has: the stages, B split or whole, and the trace. Release
 * with lh_pipeline_free() and lh_events_free(). */
lh_pipeline *adaptra_stages(const char *folder, bool joint);
lh_events *adaptra_events(const char *folder);

#endif
