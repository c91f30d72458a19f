/* SPDX-License-Identifier: Apache-2.0 */
/* Reads published training runs with their layouts and builds the matching
 * jobs. */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include "table.h"

#include <longhaul/experimental/cost.h>

#include <stdio.h>

enum { MAX_PUBLISHED = 256, JOB_TEXT = 4096 };

/* Features in a run's recipe beyond its layout, as far as a job can express
 * them. */
typedef struct recipe {
    char recompute[48], graphs[8], dispatcher[12];
    bool expert_overlap, tensor_overlap, fused_experts;
    bool fp8_attention, fp8_head; /* in FP8 runs */
} recipe;

/* One published training run. */
typedef struct published {
    char release[40], model[40], system[16], precision[12];
    uint32_t gpus, batch, micro, sequence, tensor, pipeline, context, chunks;
    uint32_t expert, expert_tensor, fsdp, data;
    double measured_s;
    recipe how;
    bool held_out, moe;
    bool by_hash;        /* the half is decided by the layout's hash */
    bool data_outermost; /* replicas have consecutive ranks last */
    bool hybrid;         /* with Mamba-2 layers; has experts, too */
    const char
        *exclusion_reason; /* reason the run has no job; NULL: it has one */
} published;

/* All published runs in a folder. */
typedef struct published_set {
    uint32_t n;
    published runs[MAX_PUBLISHED];
} published_set;

/* Reads FOLDER/megatron-bridge, FOLDER/meta, FOLDER/experts and FOLDER/mlperf.
 * Returns false
 * after printing an error. published_runs.c decides which runs are held out. */
bool published_read(const char *folder, published_set *out);

/* Returns the name of the model's preset or, if it is none, of its map; NULL:
 * it has neither. */
const char *published_model(const published *run);
/* Returns the model as a job's map; NULL: it is a preset. */
const char *published_map(const published *run);

/* Constants fitted to the runs that are not held out. */
typedef struct fitted {
    /* overlapped communication's hidden fraction */
    double tensor_overlap;
    double experts, fused_experts; /* see lh_cost_constants */
    double fp8[3]; /* Hopper, B200, B300: rate relative to presets */
    double dispatch_ms, expert_ms; /* see lh_cost_constants */
} fitted;

/* Returns the constants that the library and published_job.c use. */
fitted published_fitted(void);

/* Fits the constants over the fitted half: first those of dense models to the
 * dense runs, then those of experts to the runs with experts. Minimises a
 * kind's mean error. Returns false after printing an error. */
bool published_fit(const published_set *set, uint32_t iterations, fitted *by);

/* Checks whether a run is from an issue, by a user of Megatron-LM. */
bool published_by_user(const published *run);

/* FNV-1a hash (64 bits) of a text, which decides the half of a run. */
uint64_t published_hash(const char *text);

/* Checks whether run i of n is held out: its hash is in the larger half. */
bool published_is_in_larger_half(const uint64_t *hashes, uint32_t n,
                                 uint32_t i);

/* Writes the job as text; `lifted`: with more memory than any run needs.
 * Without `by`, the job has no options of its program. */
void published_job(const published *run, const fitted *by, bool lifted,
                   char text[JOB_TEXT]);

/* Prediction from a plan of the job. */
typedef struct prediction {
    double seconds, peak_bytes, usable_bytes;
    bool
        exceeds_memory; /* exceeds the published GPUs' memory by our estimate */
} prediction;

/* Predicts time and memory by planning the run's job. Returns false after
 * printing an error. */
bool published_predict(const published *run, const fitted *by, prediction *out);
/* Predicts the time alone, in seconds; `by` as for published_job(). */
bool published_seconds(const published *run, const fitted *by, double *out);

/* A run with its prediction. */
typedef struct predicted {
    const published *run;
    prediction by_us;
    double error; /* predicted / measured - 1 */
} predicted;

/* Formats the layout: "TP 4 PP 8x4 DP 8 mb 1". */
void published_layout(const published *run, char *text, size_t room);

/* Prints the prediction errors per model, for 16-bit and 8-bit runs. */
void published_models(const predicted *rows, uint32_t n, bool markdown,
                      FILE *to);

/* Prints the layout choices: for each model, system and batch with several
 * layouts, the slowdown of the layout predicted fastest against the fastest
 * measured. Returns false after printing an error if one is more than 2 %
 * slower. */
bool published_choices(const predicted *rows, uint32_t n, bool markdown,
                       FILE *to);

/* Adds a held-out run to the errors of its kind (lh_find_validated_runs()).
 * Returns false after printing an error if its job has none. */
bool published_add_accuracy(const char *job_text, double error);

/* Mean errors of torchtitan's held-out runs. */
typedef struct titan_errors {
    double time_percent, memory_percent; /* memory: with the default reserve */
} titan_errors;

/* Reads the torchtitan runs in FOLDER/torchtitan, predicts them, prints both as
 * Markdown and fills *errors. Returns false after printing an error, also if a
 * run that ran out of memory is predicted to leave more than 3 GiB free. */
bool published_torchtitan(const char *folder, titan_errors *errors, FILE *to);

/* Reads the runs with LLM Foundry in FOLDER/llm-foundry, predicts them and
 * prints both as Markdown. Returns false after printing an error. */
bool published_foundry(const char *folder, FILE *to);

/* Reads the runs in FOLDER/reports, predicts them and prints both as Markdown.
 * Returns false after printing an error. */
bool published_reports(const char *folder, FILE *to);

/* Prints as Markdown the held-out errors beside their goals, and the groups of
 * runs that contribute to them, with causes. */
void published_goals(const predicted *rows, uint32_t n,
                     const titan_errors *titan, FILE *to);
/* Prints the job of the torchtitan run in a row, counted from 0. Returns false
 * after printing an error. */
bool published_torchtitan_job(const char *folder, long row);

#endif
