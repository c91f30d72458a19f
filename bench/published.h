/* SPDX-License-Identifier: Apache-2.0 */
/* Training runs that others published with their layouts, and the jobs that
 * say them. */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include "table.h"

#include <longhaul/cost.h>

#include <stdio.h>

enum { MAX_PUBLISHED = 256, JOB_TEXT = 4096 };

/* What a run's recipe does beyond its layout, as a job can say it. */
typedef struct recipe {
    char recompute[48], graphs[8];
    bool expert_overlap, tensor_overlap, fused_experts;
} recipe;

typedef struct published {
    char release[12], model[40], system[16], precision[12];
    uint32_t gpus, batch, micro, sequence, tensor, pipeline, context, chunks;
    uint32_t expert, fsdp, data;
    double measured_s;
    recipe how;
    bool held_out, moe;
    const char *left_out; /* why no job can say it; NULL: one can */
} published;

typedef struct published_set {
    uint32_t n;
    published runs[MAX_PUBLISHED];
} published_set;

/* From FOLDER/megatron-bridge and FOLDER/meta; false: a message is on stderr.
 * What was measured is held out by model and system: published_runs.c. */
bool published_read(const char *folder, published_set *out);

/* The preset that has the model's shape; NULL: none has. */
const char *published_model(const published *run);

/* What was fitted to the runs that are not held out. */
typedef struct fitted {
    /* What is hidden of what runs beside other work. */
    double tensor_overlap, expert_overlap;
    double experts, fused_experts; /* lh_cost_constants */
    double fp8[3]; /* of Hopper, B200, B300: the rate over what presets say */
} fitted;

/* As the library, and published_job.c, have them. */
fitted published_fitted(void);

/* Lowers the sum of the mean errors of dense models and of those with experts,
 * over the fitted half. false: a message is on stderr. */
bool published_fit(const published_set *set, uint32_t iterations, fitted *by);

/* The job as text; `lifted`: with more memory than any run needs. */
void published_job(const published *run, const fitted *by, bool lifted,
                   char text[JOB_TEXT]);

/* What a plan of the job says. */
typedef struct prediction {
    double seconds, peak_bytes, usable_bytes;
    bool refused; /* the published GPUs have too little memory by our count */
} prediction;

bool published_predict(const published *run, const fitted *by, prediction *out);
/* The time alone. */
bool published_seconds(const published *run, const fitted *by, double *out);

typedef struct predicted {
    const published *run;
    prediction by_us;
    double error; /* predicted / measured - 1 */
} predicted;

/* "TP 4 PP 8x4 DP 8 mb 1" */
void published_layout(const published *run, char *text, size_t room);

/* By how much predictions are off, of each model in 16 bits and in 8. */
void published_models(const predicted *rows, uint32_t n, bool markdown,
                      FILE *to);

/* Of models, systems and batches with several layouts: by how much the one
 * that is predicted to be the fastest is slower than the fastest measured. */
void published_choices(const predicted *rows, uint32_t n, bool markdown,
                       FILE *to);

#endif
