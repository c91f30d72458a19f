/* SPDX-License-Identifier: Apache-2.0 */
/* Represents measured runs for comparison with the cost model. Each run is a
 * job text, so predictions use only job file features. */
#ifndef VALIDATE_H
#define VALIDATE_H

#include "table.h"

#include <longhaul/experimental/cost.h>

#include <stdbool.h>
#include <stdint.h>

enum { JOB_TEXT = 65536 };

/* One measured run, or one measured collective. */
typedef struct run {
    char name[96];
    char group[64]; /* run group with one model, batch and cluster but
                     * different layouts; "": none */
    double measured_s;
    double measured_bytes; /* peak memory; 0: unknown */
    bool held_out;
    const char *excluded; /* reason for exclusion (no job), or NULL */
    /* For a collective: */
    uint32_t all_reduce_gpus; /* 0: this is a training run */
    double all_reduce_bytes;
    char *text; /* the job; NULL: the previous run's */
    lh_job *job;
} run;

/* Runs of one file; owns everything that it points to. */
typedef struct dataset {
    const char *name;
    const char *about;
    uint32_t n_runs;
    run *runs;
} dataset;

/* Text buffer that grows up to JOB_TEXT bytes. */
typedef struct writer {
    char *text;
    size_t used;
} writer;

/* Appends formatted text. */
void append(writer *w, const char *format, ...);
/* Sets the run's job. Returns false after printing an error. */
bool take_job(run *r, const char *text);
/* Releases a dataset. */
void dataset_fini(dataset *set);

/* Loads runs. Returns false after printing an error. */
bool load_vtrain(const char *folder, const char *file, const char *name,
                 dataset *out);
/* Loads measured all-reduces. Returns false after printing an error. */
bool load_all_reduce(const char *folder, dataset *out);
/* Loads Sailor's runs. `profiles`: "" or a prefix of the profiles' file names;
 * NULL: none. */
bool load_sailor(const char *folder, const char *name, const char *cluster,
                 const char *profiles, dataset *out);

/* Fractions of the measured GPU-to-GPU bandwidth that Sailor's jobs assign to
 * the network: fitted. */
extern const double sailor_gh200_share, sailor_mit_share;

/* Predicts the seconds per iteration (or of the collective). *bytes (may be
 * NULL) is the largest peak memory on a GPU. */
bool predict(const run *r, const lh_cost_constants *constants, double *seconds,
             double *bytes);

/* Error statistics. */
typedef struct errors {
    uint32_t n;
    double mean, worst; /* |predicted / measured - 1| */
    char worst_name[96];
    uint32_t n_bytes;
    double mean_bytes; /* for peak memory, where measured */
} errors;

/* How good the layouts are that the model would choose within each group of
 * measured ones: slowdown against the fastest. */
typedef struct choices {
    uint32_t n_groups, n_right; /* groups with several runs; fastest chosen */
    double mean, worst;
    /* the layout closest to practice among the model's ties: */
    uint32_t n_other; /* groups in which it is another one */
    double practice, practice_worst;
    double any; /* mean over all layouts, as if chosen at random */
    char worst_group[64], worst_run[96]; /* the model's choice there */
} choices;

/* Measures the choices over the runs of both halves that are not excluded. */
bool measure_choices(const dataset *set, const lh_cost_constants *constants,
                     choices *out);
/* Merges two choice statistics. */
choices add_choices(const choices *a, const choices *b);

enum { FITTED = 1, HELD_OUT = 2, ALL = 3 };
/* Merges two error statistics. */
errors add_errors(const errors *a, const errors *b);

/* Measures errors over the runs of the halves in `which`. */
bool measure_errors(const dataset *set, int which,
                    const lh_cost_constants *constants, errors *out);

/* Fits the named constants with Nelder-Mead: minimises the mean error over the
 * runs not held out, with equal weight per set. */
bool fit(const dataset *const *sets, uint32_t n_sets, const char *const *names,
         uint32_t n_names, uint32_t iterations, lh_cost_constants *constants);
/* Returns the constant with that name; NULL: unknown. */
double *constant_by_name(lh_cost_constants *constants, const char *name);

#endif
