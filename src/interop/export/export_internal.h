/* SPDX-License-Identifier: Apache-2.0 */
/* Exports plans and schedules as files for other programs. Input: an lh_plan,
 * or a pipeline with a schedule. Output: text in the other program's format, or
 * the reason why the format cannot express it.
 *
 *     export.c      target list; Perfetto
 *     pytorch.c     schedules without features that PyTorch lacks
 *     pytorch_comms.c  schedules with explicit communication
 *     torchtitan.c  options; each stage's layers; torchtitan_model.c: model
 *     megatron.c    arguments; megatron_model.c: those of the model
 *     megatron_bridge.c, bridge_fields.c   the same as a recipe
 *     inexact.c     model settings that a target cannot be given
 *     rank_comments.c  parts common to torchtitan and Megatron-LM
 *     chakra.c      MLCommons Chakra execution traces
 *     bundle.c      all files that start the job: bundle.h */
#ifndef LHI_INTEROP_EXPORT_EXPORT_INTERNAL_H
#define LHI_INTEROP_EXPORT_EXPORT_INTERNAL_H

#include "base/escape.h"

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/trace.h>
#include <longhaul/export.h>

/* Writes the actions for _load_csv(..., format="compute_comms"), a row per
 * device: passes, sends, receives, waits for sends, and the collectives of
 * sharded parameters and gradients. Any two devices post their messages to each
 * other in the same order, that in the trace, so there is no circular wait. */
lh_status lhi_export_pytorch_comms(const lh_trace *trace, char **text,
                                   size_t *len, lh_error *err);

/* Adds a line "--NAME VALUE" with an integer. */
void lhi_export_add_option(lhi_text *out, const char *name, uint64_t value);

/* Adds a comment with longhaul's version and the plan's name. Escapes both
 * (format.h), because a line break would start an argument. */
void lhi_export_add_origin(lhi_text *out, const lh_plan *plan);

/* Adds comments with the datacenter of every range of ranks, if the layout
 * places them. Replicas are outermost if data parallelism spans datacenters,
 * else stages are. For a single datacenter adds them only if GPUs remain
 * unused. */
void lhi_export_add_ranks(lhi_text *out, const lh_plan *plan);

/* Appends the lines of `text` that begin with '#'. */
void lhi_export_copy_comments(lhi_text *out, const char *text);

/* Writes a plan's torchtitan options. Does not check the model with
 * lhi_export_check_inexact().
 * LH_EUNSUPPORTED: torchtitan cannot run the plan. */
lh_status lhi_export_write_torchtitan(const lh_plan *plan, char **text,
                                      size_t *len, lh_error *err);
/* Writes the model for torchtitan as a Python module. Does not check
 * the model with lhi_export_check_inexact(). */
lh_status lhi_export_write_torchtitan_model(const lh_plan *plan, char **text,
                                            size_t *len, lh_error *err);
/* torchtitan's model classes. */
typedef enum lhi_torchtitan_class {
    LHI_TORCHTITAN_LLAMA3,
    LHI_TORCHTITAN_QWEN3,
    LHI_TORCHTITAN_DEEPSEEK_V3,
    LHI_TORCHTITAN_GPT_OSS,
} lhi_torchtitan_class;
/* Returns torchtitan's model class (llama3, qwen3, deepseek_v3 or gpt_oss) that
 * is most similar to the model. */
lhi_torchtitan_class lhi_export_torchtitan_class(const lh_model *model);
/* Writes a plan's Megatron-LM arguments. Does not check the model with
 * lhi_export_check_inexact().
 * LH_EUNSUPPORTED: Megatron cannot run the plan. */
lh_status lhi_export_write_megatron(const lh_plan *plan, char **text,
                                    size_t *len, lh_error *err);
/* Writes a plan's Python recipe for Megatron-Bridge. Does not check the model
 * with lhi_export_check_inexact().
 * LH_EUNSUPPORTED: Megatron-Bridge cannot run the plan or lacks a setting. */
lh_status lhi_export_write_megatron_bridge(const lh_plan *plan, char **text,
                                           size_t *len, lh_error *err);
/* Writes a plan's Megatron-LM arguments, for Megatron-LM itself or as input of
 * the Megatron-Bridge recipe. Does not check the model with
 * lhi_export_check_inexact().
 * LH_EUNSUPPORTED: Megatron cannot run the plan. */
lh_status lhi_export_write_megatron_arguments(const lh_plan *plan,
                                              lh_export_target target,
                                              char **text, size_t *len,
                                              lh_error *err);
/* Adds the arguments that describe the job's model. `tensor` is the
 * tensor-parallel degree, on which the vocabulary's padding depends. */
void lhi_export_put_megatron_model(lhi_text *out, const lh_job *job,
                                   uint32_t tensor);

/* Checks that a target, called `name` in messages, can express the whole model,
 * unless `allowed`.
 * LH_EUNSUPPORTED: it cannot; `err` names the settings. */
lh_status lhi_export_check_inexact(const lh_plan *plan, lh_export_target target,
                                   const char *name, bool allowed,
                                   lh_error *err);
/* Adds a comment line for each model setting that the target cannot express,
 * with the reason. */
void lhi_export_put_inexact(lhi_text *out, const lh_plan *plan,
                            lh_export_target target);

/* Megatron-LM's requirement on CUDA_DEVICE_MAX_CONNECTIONS: 1 with tensor or
 * context parallelism before Blackwell; unset with sharded parameters. */
typedef enum lhi_megatron_connection_rule {
    LHI_CONNECTIONS_ANY,
    LHI_CONNECTIONS_ONE,
    LHI_CONNECTIONS_UNSET,
} lhi_megatron_connection_rule;
/* Returns how a plan restricts CUDA_DEVICE_MAX_CONNECTIONS in Megatron-LM: it
 * must be 1, must not be set, or may have any value. */
lhi_megatron_connection_rule lhi_megatron_connections(const lh_plan *plan);

/* Checks whether the Python module longhaul.megatron runs a plan's passes,
 * because Megatron-LM lacks the schedule or the chunk placement. */
bool lhi_megatron_needs_runtime(const lh_plan *plan);

/* A target program, and how a bundle starts it. */
typedef struct lhi_export_form {
    const char *name;
    /* Writes the program's arguments or recipe, for a bundle's file
     * `file_name`; NULL: it accepts schedules only. */
    lh_status (*write)(const lh_plan *plan, char **text, size_t *len,
                       lh_error *err);
    const char *file_name;
    bool has_arguments; /* passed on to the program */
    bool has_schedule;
    lh_target planner_target; /* planner target with the same rules */
    const char *display_name; /* display name; NULL: planner_target's */
    const char *program;      /* launch.sh lines; NULL: starts nothing */
    const char *inputs;       /* further inputs, for README.md */
} lhi_export_form;

/* Returns the properties of export target `target`, which must exist (names,
 * file, functions that write it); static storage. */
const lhi_export_form *lhi_export_form_of(lh_export_target target);

/* Returns an export target's name for messages and headings, such as
 * "Megatron-Bridge"; static storage. */
const char *lhi_export_display_name(lh_export_target target);

/* Checks that a target can run the plan as costed. LH_EUNSUPPORTED: it cannot;
 * `err` names the obstacle and the planner option that avoids it. */
lh_status lhi_export_check(const lh_plan *plan, lh_target target,
                           lh_error *err);
/* Checks the plan's settings like lhi_export_check(), but not its schedule,
 * chunk placement and receives, for a plan whose passes another program runs.
 * */
lh_status lhi_export_check_settings(const lh_plan *plan, lh_target target,
                                    lh_error *err);

#endif
