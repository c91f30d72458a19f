/* SPDX-License-Identifier: Apache-2.0 */
/* Imports another program's configuration as a longhaul job: model,
 * training and layout come from its arguments or configuration file, machines
 * from the caller. docs/import.md describes the mapping.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_IMPORT_H
#define LONGHAUL_EXPERIMENTAL_IMPORT_H

#include <longhaul/experimental/draft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Import sources, in the help text's order. */
typedef enum lh_import_source {
    LH_IMPORT_MEGATRON,   /* Megatron-LM arguments, core 0.16 */
    LH_IMPORT_TORCHTITAN, /* torchtitan 0.3 options, or TOML of 0.2 */
    LH_IMPORT_DEEPSPEED,  /* DeepSpeed's ds_config.json; needs a model and
                             machines->sequence */
    LH_IMPORT_NEMO,       /* NeMo 1 or Megatron-Bridge YAML */
} lh_import_source;

/* Returns an import source's name, such as "megatron"; NULL: no such source.
 * Static storage. */
LH_API const char *lh_import_source_name(lh_import_source source);

/* Options for lh_import_parse(). */
typedef struct lh_import_options {
    size_t size;
    /* Datacenters and links; model and batch are ignored, and the sequence too,
     * except with DeepSpeed, whose configuration has none. A site's
     * `nodes` may be 0 if the input gives the GPU count, which are then
     * divided evenly. NULL: one site with h100-sxm. */
    const lh_draft_options *machines;
    /* Job whose cluster is used in place of `machines`' sites; may be NULL. */
    const lh_job *cluster;
    /* Replaces the model that the input names; NULL: no replacement.
     * Megatron-LM has none, DeepSpeed needs one. */
    const lh_model *model;
    /* torchtitan: name of the scheduling method, if the pass order is in a
     * separate file; may be NULL. */
    const char *schedule;
} lh_import_options;

/* An imported job. Owns its contents. Release with lh_import_free(). */
typedef struct lh_import {
    const char *job; /* job text, validated by lh_job_parse() */
    size_t job_len;
    /* Ignored inputs that affect neither time nor memory, in order: "seed". */
    uint32_t n_ignored;
    const char *const *ignored;
    /* Sentences about inputs that a job cannot express or that are estimated
     * differently. */
    uint32_t n_notes;
    const char *const *notes;
    /* Preferred target for a plan of this job. The job's `layout.framework` is
     * set only if the program is known to run the current configuration. */
    lh_target plan_target;
} lh_import;

/* Converts another program's configuration to a job; `name` appears in error
 * messages. Release *out with lh_import_free().
 *
 * LH_EINPUT: an argument or key is unknown, contradicts another one, or needs a
 * shell; `err` gives file, line and key. LH_EUNSUPPORTED: the cost model does
 * not cover a requested feature. */
LH_API lh_status lh_import_parse(lh_import_source source, const char *text,
                                 size_t len, const char *name,
                                 const lh_import_options *options,
                                 lh_import **out, lh_error *err);
/* Frees an import with all memory that it owns; NULL is a no-op. */
LH_API void lh_import_free(lh_import *import);

#ifdef __cplusplus
}
#endif
#endif
