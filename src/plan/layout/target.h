/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs that run plans can run: one table and its rules, which the
 * search, the exports and the documents read. */
#ifndef LHI_TARGET_H
#define LHI_TARGET_H

#include "plan/layout/space.h"

/* "Megatron-LM"; of LH_TARGET_ANY "longhaul's schedules". */
const char *lhi_target_shown(lh_target target);
/* What the rules were checked against: "core 0.16". */
const char *lhi_target_version(lh_target target);

/* Whether it can run what this method makes, of so many stages: frameworks run
 * one stage's microbatches one after the other. */
bool lhi_target_runs(lh_target target, uint32_t pipeline, const char *method);
/* Whether it takes any order of passes, one that was searched for, too;
 * `pipeline` 0: with more stages than one. */
bool lhi_target_takes_orders(lh_target target, uint32_t pipeline);

/* Whether it runs backward passes whole alone. PyTorch's FSDP that gives
 * weights away after a forward pass, ZeRO 3, loses the gradients of weight
 * passes of their own, without a word. */
bool lhi_target_joins_backward(lh_target target, uint32_t pipeline,
                               uint32_t zero);
/* The same of the job's own plans: what leaves its device is back for D, and W
 * has to follow at once. */
bool lhi_layout_joins_backward(const lh_job *job, uint32_t pipeline);

/* How many chunks it has where there is no pipeline, whatever is wished for; 0:
 * any number. torchtitan gathers and reduces layer by layer: with ZeRO 2 and 3
 * in the passes of one chunk, else behind those of each layer. */
uint32_t lhi_target_chunks(lh_target target, uint32_t layers, uint32_t pipeline,
                           uint32_t zero);

/* LH_EUNSUPPORTED: it can run no plan of the job; `err` says what is in the
 * way. */
lh_status lhi_target_check_job(lh_target target, const lh_job *job,
                               lh_error *err);
/* The same of what a configuration of the job decides on that level. */
lh_status lhi_target_check(lh_target target, const lh_job *job, lhi_level level,
                           const lhi_config *config, lh_error *err);
/* And of a whole plan's choice. */
lh_status lhi_target_check_choice(lh_target target, const lh_job *job,
                                  const lh_choice *choice, lh_error *err);

/* Groups of data-parallel replicas that each hold all state, where sharding is
 * hybrid: as many as there are datacenters for them, 1 without. 0: they are
 * not equally many replicas. */
uint32_t lhi_state_groups(const lh_job *job, const lh_layout *layout,
                          uint32_t zero);

#endif
