/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's configuration as given: the options of 0.3
 * (torchtitan/config/manager.py: --module, --config, then --section.key value),
 * or the TOML file of 0.2 (job_config.py). */
#ifndef LHI_INTEROP_IMPORT_TORCHTITAN_INTERNAL_H
#define LHI_INTEROP_IMPORT_TORCHTITAN_INTERNAL_H

#include "interop/import/import_internal.h"
#include "interop/import/input_value.h"

/* The configuration's form. */
typedef enum lhi_titan_form {
    LHI_TITAN_OPTIONS = 1, /* torchtitan 0.3 */
    LHI_TITAN_TOML = 2,    /* torchtitan 0.2 */
    LHI_TITAN_BOTH = 3,
} lhi_titan_form;

/* A value's type. */
typedef enum lhi_titan_type {
    LHI_TITAN_WORD,
    LHI_TITAN_NUMBER, /* integer or not */
    LHI_TITAN_TRUTH,
    LHI_TITAN_WORDS, /* a list; as options "a,b,c" */
    LHI_TITAN_LISTS, /* a list of lists; as options "a,b c" */
    LHI_TITAN_ANY,
} lhi_titan_type;

/* A key's treatment without a counterpart in the job. */
typedef enum lhi_titan_kind {
    LHI_TITAN_IGNORED,   /* no effect on cost */
    LHI_TITAN_NOTED,     /* accepted; `why`: how it is costed */
    LHI_TITAN_FP8_NOTED, /* the same, if products use FP8 */
    LHI_TITAN_REFUSED,   /* rejected; `why`: the reason */
} lhi_titan_kind;

/* A key without a counterpart. */
typedef struct lhi_titan_unmapped {
    const char *name; /* '*' matches anything up to the next '.' */
    lhi_titan_form form;
    lhi_titan_type type;
    lhi_titan_kind kind;
    const char *ignored_value; /* value without effect; may be NULL */
    const char *why;
} lhi_titan_unmapped;

/* Checks whether a key's name matches a pattern, in which '*' stands for one
 * part between dots. */
bool lhi_titan_matches(const char *pattern, const char *name);
/* Returns the row for a key without a counterpart in the job; NULL if
 * torchtitan has no such key in this form of input. */
const lhi_titan_unmapped *lhi_titan_find_unmapped(const char *name,
                                                  lhi_titan_form form);

/* The keys with a counterpart: name, key, type, form. */
#define LHI_TITAN_LIST(X)                                                      \
    X(AC_MODE, "activation_checkpoint.mode", WORD, BOTH)                       \
    X(AC_OPTION, "activation_checkpoint.selective_ac_option", WORD, TOML)      \
    X(ASYNC_TENSOR, "compile.enable_async_tensor_parallel", TRUTH, OPTIONS)    \
    X(ASYNC_TENSOR_TOML, "parallelism.enable_async_tensor_parallel", TRUTH,    \
      TOML)                                                                    \
    X(COMPILE, "compile.enable", TRUTH, BOTH)                                  \
    X(COMPONENTS, "compile.components", WORDS, BOTH)                           \
    X(CONFIG, "config", WORD, OPTIONS)                                         \
    X(CONTEXT, "parallelism.context_parallel_degree", NUMBER, BOTH)            \
    X(CONVERTERS, "model.converters", WORDS, TOML)                             \
    X(EXPERT, "parallelism.expert_parallel_degree", NUMBER, BOTH)              \
    X(EXPERT_BACKEND, "parallelism.expert_parallel_comm_backend", WORD, TOML)  \
    X(EXPERT_TENSOR, "parallelism.expert_tensor_parallel_degree", NUMBER,      \
      TOML)                                                                    \
    X(FIRST_LESS, "parallelism.pipeline_parallel_first_stage_less_layers",     \
      NUMBER, BOTH)                                                            \
    X(FLAVOR, "model.flavor", WORD, TOML)                                      \
    X(GLOBAL_BATCH, "training.global_batch_size", NUMBER, BOTH)                \
    X(LAST_LESS, "parallelism.pipeline_parallel_last_stage_less_layers",       \
      NUMBER, BOTH)                                                            \
    X(LAYERS_PER_STAGE, "parallelism.pipeline_parallel_layers_per_stage",      \
      NUMBER, BOTH)                                                            \
    X(LOCAL_BATCH, "training.local_batch_size", NUMBER, BOTH)                  \
    X(MICROBATCH, "parallelism.pipeline_parallel_microbatch_size", NUMBER,     \
      BOTH)                                                                    \
    X(MODEL, "model.name", WORD, TOML)                                         \
    X(MODULE, "module", WORD, OPTIONS)                                         \
    X(OPTIMIZER, "optimizer.name", WORD, TOML)                                 \
    X(OPTIMIZER_GROUP, "optimizer.param_groups.*.optimizer_name", WORD,        \
      OPTIONS)                                                                 \
    X(PIPELINE, "parallelism.pipeline_parallel_degree", NUMBER, BOTH)          \
    X(PRECISION, "training.mixed_precision_param", WORD, BOTH)                 \
    X(REPLICATE, "parallelism.data_parallel_replicate_degree", NUMBER, BOTH)   \
    X(RESHARD, "parallelism.fsdp_reshard_after_forward", WORD, BOTH)           \
    X(SCHEDULE, "parallelism.pipeline_parallel_schedule", WORD, BOTH)          \
    X(SCHEDULE_CSV, "parallelism.pipeline_parallel_schedule_csv", WORD, BOTH)  \
    X(SEQUENCE, "training.seq_len", NUMBER, BOTH)                              \
    X(SEQUENCE_PARALLEL, "parallelism.enable_sequence_parallel", TRUTH,        \
      OPTIONS)                                                                 \
    X(SHARD, "parallelism.data_parallel_shard_degree", NUMBER, BOTH)           \
    X(STAGES, "parallelism.module_fqns_per_model_part", LISTS, BOTH)           \
    X(TENSOR, "parallelism.tensor_parallel_degree", NUMBER, BOTH)

/* One key per row with a counterpart. */
typedef enum lhi_titan_key {
#define LHI_TITAN_ROW(key, name, type, form) LHI_TITAN_##key,
    LHI_TITAN_LIST(LHI_TITAN_ROW)
#undef LHI_TITAN_ROW
        LHI_N_TITAN_KEYS
} lhi_titan_key;

/* All keys as given, and the launcher's GPUs. */
typedef struct lhi_titan {
    const char *file;
    lhi_titan_form form;
    uint32_t gpus; /* started by a launcher; 0: unknown */
    lhi_input_value keys[LHI_N_TITAN_KEYS];
    const lhi_titan_unmapped *fp8_notes[16]; /* given keys with an FP8 note */
    uint32_t n_fp8_notes;
    bool uses_fp8, deepep; /* set by the config or the keys */
} lhi_titan;

/* Detects the form of the input and reads its keys and its launcher into *out.
 * Records the keys without a counterpart in the job. */
lh_status lhi_titan_read(const char *text, size_t len, const char *name,
                         lhi_imported_job *in, lhi_titan *out, lh_error *err);
/* Applies a named configuration's options as defaults, which do not replace
 * given values. */
lh_status lhi_titan_read_config(const char *options, lhi_imported_job *in,
                                lhi_titan *t, lh_error *err);

/* Records for each key of the job the torchtitan key that sets it, for
 * messages. */
lh_status lhi_titan_add_origins(const lhi_titan *t, lhi_imported_job *in,
                                lh_error *err);

/* Checks whether a key has a value, given or by the named configuration. */
bool lhi_titan_is_given(const lhi_titan *t, lhi_titan_key key);
/* Returns the first string of a key's value, or NULL without a value. */
const char *lhi_titan_get_string(const lhi_titan *t, lhi_titan_key key);
/* Fails with `code` and "file:line: key: message". */
lh_status lhi_titan_fail(const lhi_titan *t, lhi_titan_key key, lh_status code,
                         lh_error *err, const char *format, ...)
    LHI_PRINTF(5, 6);
/* Reads an integer key in least..most; *out is unchanged if it is not given.
 * LH_EINPUT: the value is not such an integer. */
lh_status lhi_titan_get_integer(const lhi_titan *t, lhi_titan_key key,
                                uint32_t least, uint32_t most, uint32_t *out,
                                lh_error *err);
/* Reads an integer key that may be -1, stored as 0, which derives it from
 * others; *out is unchanged if it is not given.
 * LH_EINPUT: the value is invalid or 0. */
lh_status lhi_titan_get_optional_integer(const lhi_titan *t, lhi_titan_key key,
                                         uint32_t *out, lh_error *err);
/* Reads a key whose value is in the NULL-terminated list `names`; *out is its
 * index, unchanged if it is not given.
 * LH_EINPUT: the value is not in the list. */
lh_status lhi_titan_get_choice(const lhi_titan *t, lhi_titan_key key,
                               const char *const *names, uint32_t *out,
                               lh_error *err);
/* Returns whether a boolean key's value is true; `usual` if the key is not
 * given. */
bool lhi_titan_get_bool(const lhi_titan *t, lhi_titan_key key, bool usual);

/* Checks whether --module names an export's module, which sets only the model.
 */
bool lhi_titan_is_exported(const lhi_titan *t);
/* Sets the job's model: that of --model, else of a TOML file's keys, else of
 * the configuration, which is applied in any case. Call it after all keys are
 * read. */
lh_status lhi_titan_build_model(lhi_titan *t, lhi_imported_job *in,
                                const lh_import_options *options,
                                lh_error *err);
/* Sets the layout's stages and schedule from the keys; with one rank, a chunk
 * per layer, because FSDP communicates by layers. */
lh_status lhi_titan_build_stages(const lhi_titan *t, lhi_imported_job *in,
                                 const lh_import_options *options,
                                 lh_error *err);

#endif
