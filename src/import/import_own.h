/* SPDX-License-Identifier: Apache-2.0 */
/* What other programs are told, as jobs. In: the arguments of Megatron-LM, the
 * options or the TOML of torchtitan. Out: the text of a job whose model,
 * training and layout are those, and what of the input is not in it.
 *
 *     argument_words.c    a command line as words
 *     given_value.c       values, and what is said of wrong ones
 *     megatron_read.c     Megatron-LM's arguments, by their table
 *     megatron_unread.c   those that are not read, and why
 *     megatron_model.c, megatron_stages.c, megatron_job.c   what they say
 *     torchtitan_read.c   torchtitan's keys, by their table
 *     torchtitan_unread.c   those that are not read, and why
 *     torchtitan_model.c, torchtitan_stages.c, torchtitan_job.c   what they say
 *     layer_pattern.c     which layers are of one kind
 *     rank_places.c       which ranks lie where, and how many there are
 *     import_notes.c      what of the input is not in the job
 *     write_job.c         the text of the job
 *     import.c            what is handed out
 *
 * This header is what these files share. */
#ifndef LHI_IMPORT_OWN_H
#define LHI_IMPORT_OWN_H

#include "base/arena.h"
#include "base/input.h"
#include "base/text.h"
#include "spec/spec.h"

#include <longhaul/import.h>

/* Ranks from the end of the run before (of the first: 0) to before `end`. */
typedef struct lhi_rank_stretch {
    uint64_t end;
    uint32_t datacenter;
} lhi_rank_stretch;

/* What was read: a job but for its cluster. Strings and lists are in `mem`. */
typedef struct lhi_imported {
    lhi_arena *mem;
    const char *from;  /* "Megatron-LM's arguments" */
    const char *named; /* of options: the model, for which `model` stands */
    lh_model model;
    lh_training training;
    lh_framework framework; /* `preset` and what differs from it */
    lh_layout layout;       /* sites are not there yet */
    lh_target target;       /* as what runs today says it; LH_TARGET_ANY */
    lh_target plan_for;     /* what else may run the same job */
    uint32_t instances; /* groups of replicas that share state; 0: not said */
    const char *instances_key; /* that says so */
    uint32_t gpus;             /* that run it; 0: not known yet */
    /* Where these lie; none: ranks are counted through the datacenters. */
    lhi_rank_stretch *rank_stretches;
    uint32_t n_rank_stretches;
    lhi_text ignored; /* names, each ended by a NUL */
    lhi_text noted;   /* sentences, likewise */
    uint32_t n_ignored, n_noted;
} lhi_imported;

/* Both name what is not in the job: of no effect, or costed otherwise. */
void lhi_import_ignore(lhi_imported *in, const char *name);
void lhi_import_note(lhi_imported *in, const char *format, ...)
    LHI_PRINTF(2, 3);

/* Reads a text into what is imported; `options` say what the text may leave
 * open: the GPUs, or the model. */
typedef lh_status lhi_import_fn(const char *text, size_t len, const char *name,
                                const lh_import_options *options,
                                lhi_imported *in, lh_error *err);
/* Whether they are of one shape; names say nothing. */
bool lhi_same_model(const lh_model *a, const lh_model *b);
/* Where the model is of a preset's shape: takes its name. */
void lhi_import_name_model(lhi_imported *in);

lhi_import_fn lhi_import_megatron_text, lhi_import_torchtitan_text;

/* GPUs of the options' machines; 0: they do not say how many nodes. */
uint64_t lhi_import_gpus(const lh_import_options *options);
/* Reads the remarks of an export that say where ranks lie. Those that do not go
 * with the machines are noted and left. */
lh_status lhi_import_places(const char *text, size_t len,
                            const lh_import_options *options, lhi_imported *in,
                            lh_error *err);
/* Ranks that are placed, else GPUs of the machines, else as many as a launcher
 * starts; 0: none is said. LH_EINPUT: they are not as many. */
lh_status lhi_import_find_gpus(const char *file, uint32_t launched,
                               const lh_import_options *options,
                               const lhi_imported *in, uint64_t *gpus,
                               lh_error *err);

/* The job, which also notes what it cannot say of where ranks lie. LH_EINPUT
 * where no such job can be. */
lh_status lhi_import_write(lhi_imported *in, const char *name,
                           const lh_import_options *options, char **text,
                           size_t *len, lh_error *err);

#endif
