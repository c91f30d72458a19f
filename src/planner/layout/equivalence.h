/* SPDX-License-Identifier: Apache-2.0 */
/* Equivalence tests for a plan's parts; one definition per question. */
#ifndef LHI_PLANNER_LAYOUT_EQUIVALENCE_H
#define LHI_PLANNER_LAYOUT_EQUIVALENCE_H

#include "planner/layout/layout.h"

/* Checks whether two placements have the same pipelines in the same
 * datacenters, in the same order. NULL equals only NULL. */
bool lhi_sites_are_equal(const lh_sites *a, const lh_sites *b);

/* Checks whether two layouts divide the GPUs equally: tensor, context, expert,
 * expert_tensor, pipeline, data and micro_batch. */
bool lhi_degrees_are_equal(const lh_layout *a, const lh_layout *b);

/* Checks whether two configurations are equal in all but the schedule and the
 * layer partition: degrees, chunks, placement, sharding, recomputation and
 * sites. */
bool lhi_configs_are_equal(const lhi_config *a, const lhi_config *b);
/* Checks whether two plan candidates are equal in all but the schedule and the
 * layer partition, like lhi_configs_are_equal(). */
bool lhi_choices_are_equal(const lh_choice *a, const lh_choice *b);

/* Checks whether two plan candidates differ at most in the schedule and so have
 * the same pipeline. */
bool lhi_choices_share_pipeline(const lh_choice *a, const lh_choice *b);

/* Checks whether model layers `a` and `b` have the same parts (attention, MLP,
 * experts) of the same sizes. */
bool lhi_layers_are_equivalent(const lh_model *model, uint32_t a, uint32_t b);

/* Checks whether two datacenters give equal times and memory inside: GPUs,
 * nodes, networks, and their profile. GPU counts, prices and external links may
 * differ. */
bool lhi_datacenters_are_equivalent(const lh_job *job, uint32_t a, uint32_t b);

/* Checks whether the link from a to b equals the one from x to y, in this
 * direction only, price included. */
bool lhi_wan_links_are_equal(const lh_job *job, uint32_t a, uint32_t b,
                             uint32_t x, uint32_t y);

/* Checks whether the replicas of stage `a` in `a_datacenter` and of stage `b`
 * in `b_datacenter` have the same positions on nodes. */
bool lhi_stage_nodes_are_alike(const lh_job *job, const lh_layout *layout,
                               const lhi_stage_placement *a,
                               uint32_t a_datacenter,
                               const lhi_stage_placement *b,
                               uint32_t b_datacenter);
/* Checks whether two stages have equally many replicas in the same datacenters,
 * at the same positions on nodes. */
bool lhi_stage_placements_are_alike(const lh_job *job, const lh_layout *layout,
                                    const lhi_stage_placement *a,
                                    const lhi_stage_placement *b);

#endif
