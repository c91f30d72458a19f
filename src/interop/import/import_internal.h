/* SPDX-License-Identifier: Apache-2.0 */
/* Importing other programs' configuration as jobs. Input: Megatron-LM's
 * arguments, torchtitan's options or TOML, DeepSpeed's JSON, or the YAML of
 * NeMo and Megatron-Bridge. Output: a job's text with the same model,
 * training and layout, and notes about input that the job does not represent.
 *
 *     command_line.c          a command line as words
 *     input_value.c           values, and errors about them
 *     megatron_read.c         Megatron-LM's arguments, by their table
 *     megatron_config.c       its arguments in a model_config.yaml
 *     megatron_ignored.c      arguments without effect
 *     megatron_unmapped.c     arguments without a counterpart, and the reason
 *     megatron_vocabulary.c   the vocabulary, from the tokenizer's name
 *     megatron_model.c, megatron_stages.c, megatron_job.c   their meaning
 *     torchtitan_read.c       torchtitan's keys, by their table
 *     torchtitan_unmapped.c   keys without a counterpart, and the reason
 *     torchtitan_model.c, torchtitan_stages.c, torchtitan_job.c   their meaning
 *     chakra_trace.c          Chakra execution traces, replayed
 *     config_keys.c           keys of YAML and JSON, by rules
 *     deepspeed.c             DeepSpeed's keys and their meaning
 *     nemo.c                  keys of NeMo and Megatron-Bridge as arguments
 *     omega_value.c           references between their values
 *     layer_pattern.c         lists of layers of one kind
 *     rank_placement.c        placement and number of ranks
 *     import_notes.c          notes about input that is not in the job
 *     write_job.c             the job's text
 *     import.c                the public functions
 *
 * This header declares the interface between these files. */
#ifndef LHI_INTEROP_IMPORT_IMPORT_INTERNAL_H
#define LHI_INTEROP_IMPORT_IMPORT_INTERNAL_H

#include "base/arena.h"
#include "base/input_limits.h"
#include "base/text.h"
#include "format/job/parse.h"
#include "interop/import/input_value.h"

#include <longhaul/experimental/import.h>

/* A run of consecutive ranks in one datacenter: from the end of the previous
 * run (0 for the first) to `end`, exclusive. */
typedef struct lhi_rank_range {
    uint64_t end;
    uint32_t datacenter;
} lhi_rank_range;

/* Capacity for the origins of an imported job's values; more than it has keys.
 */
enum { LHI_MOST_IMPORT_ORIGINS = 80 };

/* The key that stands for an argument, which has no dashes. */
typedef struct lhi_argument_name {
    const char *argument, *key;
} lhi_argument_name;

/* The imported job without its cluster. Strings and lists are in `mem`. */
typedef struct lhi_imported_job {
    lhi_arena *mem;
    const char *source_name; /* "Megatron-LM's arguments" */
    const char *model_name;  /* model name from options, resolved in `model` */
    lh_model model;
    lh_training training;
    lh_framework framework; /* `preset` and the differences from it */
    lh_layout layout;       /* its sites are not filled in yet */
    lh_target target;       /* program in use today; LH_TARGET_ANY */
    lh_target plan_for;     /* another program that may run the same job */
    uint32_t instances;     /* replica groups sharing state; 0: unspecified */
    const char *instances_key; /* key that specifies them */
    uint32_t gpus;             /* GPUs in use; 0: not known yet */
    /* The ranks' placement; empty: ranks fill the datacenters in order. */
    lhi_rank_range *rank_ranges;
    uint32_t n_rank_ranges;
    /* Inputs of the job's keys, for messages; NULL-terminated. */
    lhi_doc_origin origins[LHI_MOST_IMPORT_ORIGINS + 1];
    bool origin_is_given[LHI_MOST_IMPORT_ORIGINS]; /* else a default */
    uint32_t n_origins;
    /* Names of Megatron-LM's arguments in the input, if it has others; the
     * first entry's key is the section of arguments that are not listed. */
    lhi_argument_name *names;
    uint32_t n_names, most_names;
    lhi_text ignored; /* NUL-terminated names */
    lhi_text noted;   /* NUL-terminated sentences */
    uint32_t n_ignored, n_noted;
} lhi_imported_job;

/* Records the name of a key or argument that has no effect on the job. */
void lhi_import_ignore(lhi_imported_job *in, const char *name);
/* Records a sentence on input that the job represents differently or not at
 * all, for the user. */
void lhi_import_note(lhi_imported_job *in, const char *format, ...)
    LHI_PRINTF(2, 3);

/* Records that Megatron-LM's `argument` was derived from the input's key `key`,
 * which messages name instead. A later record for the argument replaces an
 * earlier one. */
lh_status lhi_import_add_name(lhi_imported_job *in, const char *argument,
                              const char *key, lh_error *err);
/* Returns the key of the user's input from which Megatron-LM's `argument` was
 * derived, for messages; NULL: none is recorded. */
const char *lhi_import_find_name(const lhi_imported_job *in,
                                 const char *argument);
/* Copies the message `text` to `out` and replaces Megatron-LM's arguments in it
 * ("--name") by the input keys from which they were derived. */
void lhi_import_rename(const lhi_imported_job *in, const char *text, char *out,
                       size_t size);

/* Records that input `key` sets the job's key `path`; errors about the job's
 * key then give the input's file, line and name. If several inputs are
 * recorded, the first one that is given applies. */
lh_status lhi_import_add_origin(lhi_imported_job *in, const char *path,
                                lhi_input_key key, lh_error *err);

/* Parses a text into an imported job; `options` supply information that may be
 * missing in the text: the GPUs, or the model. */
typedef lh_status lhi_import_fn(const char *text, size_t len, const char *name,
                                const lh_import_options *options,
                                lhi_imported_job *in, lh_error *err);
/* Checks whether two models have the same shape: sizes, experts and kinds of
 * layers. Ignores names and other constants. */
bool lhi_has_same_shape(const lh_model *a, const lh_model *b);
/* Replaces the imported model by the first preset of the same shape for which
 * is_same(preset, model) is true, and takes its name; keeps the model if there
 * is none. `is_same` NULL: the shape suffices. */
void lhi_import_name_model(lhi_imported_job *in,
                           bool is_same(const lh_model *preset,
                                        const lh_model *model));

/* Parse Megatron-LM's arguments, torchtitan's TOML or options, DeepSpeed's
 * JSON, and the YAML of NeMo and Megatron-Bridge. */
lhi_import_fn lhi_import_megatron_text, lhi_import_torchtitan_text,
    lhi_import_deepspeed_text, lhi_import_nemo_text;

/* Returns the GPU count in the options' machines; 0 if a number of nodes is not
 * given. */
uint64_t lhi_import_count_gpus(const lh_import_options *options);
/* Reads the rank placement from an exported file's comments. Discards all with
 * a note if one is invalid or conflicts with the machines. */
lh_status lhi_import_read_placement(const char *text, size_t len,
                                    const lh_import_options *options,
                                    lhi_imported_job *in, lh_error *err);
/* Determines the GPU count: the ranks placed by comments, else the machines'
 * GPUs, else the launcher's processes (`launched`); 0 if none is specified.
 * `file`: the input's name in messages. LH_EINPUT: the numbers conflict. */
lh_status lhi_import_find_gpus(const char *file, uint32_t launched,
                               const lh_import_options *options,
                               const lhi_imported_job *in, uint64_t *gpus,
                               lh_error *err);

/* Writes an imported job's text, and adds notes about rank placements that a
 * job cannot represent. The caller frees *text with lh_text_free(). LH_EINPUT:
 * no valid job is possible. */
lh_status lhi_import_write(lhi_imported_job *in, const char *name,
                           const lh_import_options *options, char **text,
                           size_t *len, lh_error *err);

/* Returns the number of programs whose configurations can be imported. */
uint32_t lhi_n_import_sources(void);

#endif
