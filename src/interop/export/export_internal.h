/* SPDX-License-Identifier: Apache-2.0 */
/* Exports plans and schedules as files for other programs. Input: an lh_plan,
 * or a pipeline with a schedule. Output: text in the other program's format, or
 * the reason why the format cannot express it.
 *
 *     export.c      target list; Perfetto
 *     pytorch.c     schedules without features that PyTorch lacks
 *     pytorch_comms.c  schedules with explicit communication
 *     torchtitan.c  options; each stage's layers
 *     megatron.c    arguments; megatron_model.c: those of the model
 *     megatron_bridge.c, bridge_fields.c   the same as a recipe
 *     inexact.c     model settings that a target cannot be given
 *     rank_comments.c  parts common to torchtitan and Megatron-LM
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

/* Adds a line "--NAME VALUE". */
void lhi_export_add_option(lhi_text *out, const char *name, uint64_t value);

/* Adds the plan's origin as a comment. Names are escaped (format.h), because a
 * line break in one would start an argument. */
void lhi_export_add_origin(lhi_text *out, const lh_plan *plan);

/* Adds rank locations as comments, if the plan has it. Replicas are outermost
 * if the plan's data parallelism spans datacenters, else stages are. For a
 * single datacenter only if the plan leaves some of its GPUs unused. */
void lhi_export_add_ranks(lhi_text *out, const lh_plan *plan);

/* Copies the lines of `text` that begin with '#'. */
void lhi_export_copy_comments(lhi_text *out, const char *text);

/* Writes torchtitan's options for a plan, without checks for settings that it
 * cannot express. */
lh_status lhi_export_write_torchtitan(const lh_plan *plan, char **text,
                                      size_t *len, lh_error *err);
/* Writes Megatron-LM's arguments for a plan, without these checks. */
lh_status lhi_export_write_megatron(const lh_plan *plan, char **text,
                                    size_t *len, lh_error *err);
/* Writes Megatron-Bridge's recipe for a plan, without these checks. */
lh_status lhi_export_write_megatron_bridge(const lh_plan *plan, char **text,
                                           size_t *len, lh_error *err);
/* Writes Megatron-LM's arguments for it or for Megatron-Bridge, which can
 * express more settings. */
lh_status lhi_export_write_megatron_arguments(const lh_plan *plan,
                                              lh_export_target target,
                                              char **text, size_t *len,
                                              lh_error *err);
/* Adds the model's arguments; `tensor` is the tensor-parallel degree. */
void lhi_export_put_megatron_model(lhi_text *out, const lh_job *job,
                                   uint32_t tensor);

/* Checks whether a target, called `name` in messages, can be given the whole
 * model, unless differences are allowed. LH_EUNSUPPORTED: it cannot; `err`
 * names the settings. */
lh_status lhi_export_check_inexact(const lh_plan *plan, lh_export_target target,
                                   const char *name, bool allowed,
                                   lh_error *err);
/* Adds a comment for each setting that the target cannot be given. */
void lhi_export_put_inexact(lhi_text *out, const lh_plan *plan,
                            lh_export_target target);

/* Megatron-LM's requirement on CUDA_DEVICE_MAX_CONNECTIONS: 1 with tensor or
 * context parallelism before Blackwell; unset with sharded parameters. */
typedef enum lhi_megatron_connection_rule {
    LHI_CONNECTIONS_ANY,
    LHI_CONNECTIONS_ONE,
    LHI_CONNECTIONS_UNSET,
} lhi_megatron_connection_rule;
/* Returns the requirement for a plan. */
lhi_megatron_connection_rule lhi_megatron_connections(const lh_plan *plan);

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

/* Returns an export target's form. */
const lhi_export_form *lhi_export_form_of(lh_export_target target);

/* Returns the target's display name. */
const char *lhi_export_display_name(lh_export_target target);

/* Checks whether a target can run the plan as costed. LH_EUNSUPPORTED: it
 * cannot; `err` names the obstacle and the planner option that avoids it. */
lh_status lhi_export_check(const lh_plan *plan, lh_target target,
                           lh_error *err);

#endif
