/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities of the frameworks that run plans: one table and its rules, used
 * by the search, the exporters and the documents. */
#ifndef LHI_PLANNER_LAYOUT_TARGET_H
#define LHI_PLANNER_LAYOUT_TARGET_H

#include "planner/layout/space.h"

/* Returns the display name: "Megatron-LM"; for LH_TARGET_ANY "longhaul's
 * schedules". */
const char *lhi_target_display_name(lh_target target);
/* Returns the version of the target framework against which the rules were
 * checked: "core 0.16". */
const char *lhi_target_version(lh_target target);

/* Checks whether the target framework runs a method's schedules on `pipeline`
 * stages. Frameworks run a single stage's microbatches one by one. */
bool lhi_target_supports_method(lh_target target, uint32_t pipeline,
                                const char *method);
/* Checks whether the target framework runs any pass order, including one from
 * the solver, on `pipeline` stages (0: more than one). */
bool lhi_target_accepts_any_order(lh_target target, uint32_t pipeline);

/* Checks whether the target framework runs only combined backward passes (D and
 * W together) with `pipeline` stages and ZeRO stage `zero`. PyTorch's FSDP with
 * ZeRO 3 frees weights after a forward pass and silently loses the gradients of
 * separate W passes. */
bool lhi_target_joins_backward(lh_target target, uint32_t pipeline,
                               uint32_t zero);
/* Checks whether plans of the job with `pipeline` stages have only combined
 * backward passes (D and W together). Either the target requires it, or
 * offloading: offloaded activations return for D, and W must follow at once. */
bool lhi_layout_joins_backward(const lh_job *job, uint32_t pipeline);

/* Returns the chunks per device that the target framework uses without a
 * pipeline (one stage), independent of the job's request; 0: any. torchtitan
 * gathers and reduces layer by layer: with ZeRO 2 and 3 within one chunk's
 * passes, otherwise after each layer's passes. */
uint32_t lhi_target_chunks(lh_target target, uint32_t layers, uint32_t pipeline,
                           uint32_t zero);

/* Checks whether the target can run any plan of the job. LH_EUNSUPPORTED: it
 * cannot; `err` has the reason. */
lh_status lhi_target_check_job(lh_target target, const lh_job *job,
                               lh_error *err);
/* Checks whether the target framework can run the values that a configuration
 * decides on `level`, its depth in the search tree. LH_EUNSUPPORTED: it cannot;
 * `err` has the reason. */
lh_status lhi_target_check(lh_target target, const lh_job *job, lhi_level level,
                           const lhi_config *config, lh_error *err);
/* Checks whether the target framework can run a complete plan candidate.
 * LH_EUNSUPPORTED: it cannot; `err` has the reason. */
lh_status lhi_target_check_choice(lh_target target, const lh_job *job,
                                  const lh_choice *choice, lh_error *err);
/* Checks whether the target framework can run a complete plan candidate if
 * another program runs the passes: all but schedule, chunk placement and
 * receives. LH_EUNSUPPORTED: it cannot; `err` has the reason. */
lh_status lhi_target_check_settings(lh_target target, const lh_job *job,
                                    const lh_choice *choice, lh_error *err);
/* Checks whether the target framework itself runs the schedule and a plan
 * candidate's chunk placement. */
bool lhi_target_runs_passes(lh_target target, const lh_choice *choice);

/* Counts the groups of data-parallel replicas that each hold the whole state
 * under hybrid sharding: one per datacenter; 1 with other sharding or with ZeRO
 * stage `zero` 0. 0: the groups have different replica counts. */
uint32_t lhi_state_groups(const lh_job *job, const lh_layout *layout,
                          uint32_t zero);

#endif
