/* SPDX-License-Identifier: Apache-2.0 */
/* A run's recipe: data and options that its results depend on, beside the
 * model. A checkpoint stores it. A run that resumes must have the same data and
 * global batch; replicas, microbatches and degrees may differ. It inherits the
 * options, and so continues the learning-rate schedule, except those that the
 * user overrides. */
#ifndef LHI_RUNTIME_TRAINING_RECIPE_H
#define LHI_RUNTIME_TRAINING_RECIPE_H

#include <jansson.h>
#include <longhaul/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Options that a resumed run inherits or overrides. */
typedef enum lhi_recipe_option {
    LHI_RECIPE_STEPS, /* length of the learning-rate schedule */
    LHI_RECIPE_RATE,
    LHI_RECIPE_MIN_RATE,
    LHI_RECIPE_WARMUP,
    LHI_RECIPE_WEIGHT_DECAY,
    LHI_RECIPE_CLIP,
    LHI_RECIPE_BETA1,
    LHI_RECIPE_BETA2,
    LHI_RECIPE_EPSILON,
    LHI_RECIPE_RATE_DECAY,  /* lh_rate_decay */
    LHI_RECIPE_DECAY_STEPS, /* 0: all after the warm-up */
    LHI_RECIPE_DROPOUT,     /* from here on: decided by the job */
    LHI_RECIPE_BALANCE_LOSS,
    LHI_RECIPE_BALANCE_BIAS,
    LHI_RECIPE_EXPERT_CAPACITY,
    LHI_RECIPE_BF16,
    LHI_N_RECIPE_OPTIONS
} lhi_recipe_option;

/* Capacities for a run's id and for its name, in bytes. */
enum { LHI_RUN_ID = 13, LHI_RUN_NAME = 100 };

/* Identity of a run. Runs with equal models, data and options have equal ids;
 * a resumed run keeps its id. */
typedef struct lhi_run_identity {
    char id[LHI_RUN_ID + 1]; /* hexadecimal; "": not known yet */
    char name[LHI_RUN_NAME]; /* of the model, at the first start */
} lhi_run_identity;

/* A run's recipe. */
typedef struct lhi_recipe {
    uint64_t global_batch, sequence, seed; /* sequences; tokens */
    /* The data's fingerprint; its value in checkpoints of older versions. */
    uint64_t data, sampled_data;
    double validation; /* share of the data */
    bool delayed_update;
    double options[LHI_N_RECIPE_OPTIONS];
    /* Bit sets of options: explicitly given, for which another value in the
     * checkpoint is an error; and overridden. */
    uint32_t given, overridden;
    lhi_run_identity run;
} lhi_recipe;

/* Parses a comma-separated list of recipe options (training options of a
 * resumed run), "rate,clip", into the bit set *out; NULL: none. LH_EINVAL: an
 * unknown name; `err` lists the names. */
lh_status lhi_recipe_parse_names(const char *names, uint32_t *out,
                                 lh_error *err);

/* Adds the recipe (what a resumed run must repeat) to a checkpoint's
 * description `root`, which already has the model: "data", "options" and "run".
 * Sets the run's id if it has none. false: out of memory. */
bool lhi_recipe_format(lhi_recipe *recipe, json_t *root);
/* Checks that this run has the data settings of checkpoint description `root`,
 * and adopts its training options and run identity. LH_EINPUT: other data, or
 * another value of an option given by the user, or an overridden option that is
 * not given; `err` names file, key and both values. */
lh_status lhi_recipe_adopt(lhi_recipe *recipe, const json_t *root,
                           const char *file, lh_error *err);
/* Returns the identity of the run that wrote the checkpoint description `root`;
 * empty: unknown. */
lhi_run_identity lhi_recipe_read_run(const json_t *root);

#endif
