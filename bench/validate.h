/* SPDX-License-Identifier: Apache-2.0 */
/* Measured runs that the cost model is compared with. */
#ifndef VALIDATE_H
#define VALIDATE_H

#include "table.h"

#include <longhaul/cost.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_STAGES = 64 };

/* A stage of a pipeline as a run had it: what to ask the cost model. Replicas
 * on several kinds of GPU: one job each, the slowest sets the pace. */
typedef struct stage {
    uint32_t n_jobs;
    const lh_job *jobs[4];
    lh_cost_slice slice;
} stage;

/* One measured run, or one measured collective. */
typedef struct run {
    char name[96];
    char group[64]; /* of runs of one model and batch on one cluster, laid out
                       in different ways; "": none */
    double measured_s;
    double measured_bytes; /* peak memory; 0: not known */
    bool held_out;
    const char *excluded; /* why it does not count; NULL: it does */
    /* A collective: */
    uint32_t all_reduce_gpus; /* 0: this is a training run */
    double all_reduce_bytes;
    /* A training run: */
    lh_layout layout;
    lh_cost_options options; /* but for the constants */
    uint32_t n_microbatches, n_stages;
    const lh_job *job; /* for communication */
    stage stages[MAX_STAGES];
} run;

/* The runs of one file; owns everything they point to. */
typedef struct dataset {
    const char *name, *about;
    uint32_t n_runs;
    run *runs;
    uint32_t n_owned;
    void *owned[1024];
} dataset;

bool dataset_own(dataset *set, void *memory); /* frees it on failure */
void dataset_fini(dataset *set);

/* false: a message went to stderr. */
bool load_vtrain(const char *folder, const char *file, const char *name,
                 dataset *out);
bool load_all_reduce(const char *folder, dataset *out);
/* `profiles`: "" or a prefix of the profiles' file names; NULL: none. */
bool load_sailor(const char *folder, const char *name, const char *cluster,
                 const char *profiles, dataset *out);

/* Seconds per iteration (or of the collective) by the model. *bytes (may be
 * NULL) is the largest peak of a GPU. */
bool predict(const run *r, const lh_cost_constants *constants, double *seconds,
             double *bytes);

typedef struct errors {
    uint32_t n;
    double mean, worst; /* |predicted / measured - 1| */
    char worst_name[96];
    uint32_t n_bytes;
    double mean_bytes; /* of peak memory, where that was measured */
} errors;

/* How good the layouts are that the model would choose among the measured ones
 * of a group: by how much each is slower than the fastest measured. */
typedef struct choices {
    uint32_t n_groups, n_right; /* of more than one run; fastest chosen */
    double mean, worst;
    double any; /* the mean of all layouts of a group, as if chosen at random */
    char worst_group[64], worst_run[96]; /* what was chosen there */
} choices;

/* Over the runs of both halves that are not excluded. */
bool measure_choices(const dataset *set, const lh_cost_constants *constants,
                     choices *out);
choices add_choices(const choices *a, const choices *b);

enum { FITTED = 1, HELD_OUT = 2, ALL = 3 };
/* Both together. */
errors add_errors(const errors *a, const errors *b);

/* Over the runs of the halves in `which`. */
bool measure_errors(const dataset *set, int which,
                    const lh_cost_constants *constants, errors *out);

/* Lowers the mean error of the runs that are not held out, of all sets
 * together with equal weight, in the constants named; Nelder-Mead. */
bool fit(const dataset *const *sets, uint32_t n_sets, const char *const *names,
         uint32_t n_names, uint32_t iterations, lh_cost_constants *constants);
double *constant_by_name(lh_cost_constants *constants, const char *name);

#endif
