/* SPDX-License-Identifier: Apache-2.0 */
/* Measured runs that the cost model is compared with. Each is a job as a text,
 * so that nothing is predicted that a job file cannot say. */
#ifndef VALIDATE_H
#define VALIDATE_H

#include "table.h"

#include <longhaul/cost.h>

#include <stdbool.h>
#include <stdint.h>

enum { JOB_TEXT = 65536 };

/* One measured run, or one measured collective. */
typedef struct run {
    char name[96];
    char group[64]; /* of runs of one model and batch on one cluster, laid out
                       in different ways; "": none */
    double measured_s;
    double measured_bytes; /* peak memory; 0: not known */
    bool held_out;
    const char *excluded; /* why it does not count, and has no job; or NULL */
    /* A collective: */
    uint32_t all_reduce_gpus; /* 0: this is a training run */
    double all_reduce_bytes;
    char *text; /* the job; NULL: that of the run before */
    lh_job *job;
} run;

/* The runs of one file; owns everything they point to. */
typedef struct dataset {
    const char *name;
    const char *about;
    uint32_t n_runs;
    run *runs;
} dataset;

/* A text that grows up to JOB_TEXT bytes. */
typedef struct writer {
    char *text;
    size_t used;
} writer;

void append(writer *w, const char *format, ...);
/* Gives the run its job. false: a message went to stderr. */
bool take_job(run *r, const char *text);
void dataset_fini(dataset *set);

/* false: a message went to stderr. */
bool load_vtrain(const char *folder, const char *file, const char *name,
                 dataset *out);
bool load_all_reduce(const char *folder, dataset *out);
/* `profiles`: "" or a prefix of the profiles' file names; NULL: none. */
bool load_sailor(const char *folder, const char *name, const char *cluster,
                 const char *profiles, dataset *out);

/* Shares of what was measured between two GPUs of Sailor's clusters, with which
 * its jobs say their networks: fitted. */
extern const double sailor_gh200_share, sailor_mit_share;

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
