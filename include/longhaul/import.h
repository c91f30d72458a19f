/* SPDX-License-Identifier: Apache-2.0 */
/* What is run by Megatron-LM or torchtitan today, as a job of longhaul: the
 * model, the training and the layout that its arguments or configuration give,
 * on machines that the caller names. docs/import.md has how each of them is
 * read. */
#ifndef LONGHAUL_IMPORT_H
#define LONGHAUL_IMPORT_H

#include <longhaul/draft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The programs there are, in the order that help shows. */
typedef enum lh_import_source {
    LH_IMPORT_MEGATRON,   /* arguments of Megatron-LM, core 0.16 */
    LH_IMPORT_TORCHTITAN, /* options of torchtitan 0.3, or TOML of 0.2 */
} lh_import_source;

LH_API uint32_t lh_n_import_sources(void);
/* "megatron"; NULL: there is no such source. */
LH_API const char *lh_import_source_name(lh_import_source source);

typedef struct lh_import_options {
    size_t size;
    /* Datacenters and the links between them; model, batch and sequence are
     * not looked at. `nodes` of a site may be 0 where the input says how many
     * GPUs there are, which are then divided evenly. NULL: one of h100-sxm. */
    const lh_draft_options *machines;
    /* The job whose cluster the new one gets, in place of `machines`' sites;
     * may be NULL. */
    const lh_job *cluster;
    /* torchtitan: the model in place of one that it has by name; NULL: that
     * one. */
    const lh_model *model;
    /* torchtitan: the method that made the order of passes, where that is in a
     * file of its own; may be NULL. */
    const char *schedule;
} lh_import_options;

/* Owns what it points to. Release with lh_import_free(). */
typedef struct lh_import {
    const char *job; /* text that lh_job_parse() has read */
    size_t job_len;
    /* Names of what says nothing of time and memory, in order: "seed". */
    uint32_t n_ignored;
    const char *const *ignored;
    /* What the job cannot say, or is costed otherwise: sentences. */
    uint32_t n_noted;
    const char *const *noted;
    /* What a plan of the same job is for, as far as it can be:
     * `layout.framework` says it only where longhaul knows that program to run
     * what runs today. */
    lh_target plan_for;
} lh_import;

/* `name` is what messages call the text. LH_EINPUT: `err` says file, line,
 * argument or key, and what is wrong: it is not known, contradicts another one,
 * or needs a shell; LH_EUNSUPPORTED: longhaul has no cost of what it asks for.
 */
LH_API lh_status lh_import_parse(lh_import_source source, const char *text,
                                 size_t len, const char *name,
                                 const lh_import_options *options,
                                 lh_import **out, lh_error *err);
LH_API void lh_import_free(lh_import *import); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
