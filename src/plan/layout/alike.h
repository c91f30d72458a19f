/* SPDX-License-Identifier: Apache-2.0 */
/* When two things of a plan are the same: one answer to each such question. */
#ifndef LHI_ALIKE_H
#define LHI_ALIKE_H

#include "plan/layout/layout.h"

/* The same pipelines in the same datacenters, in the same order. NULL is like
 * NULL only. */
bool lhi_sites_same(const lh_sites *a, const lh_sites *b);

/* How the GPUs are divided, whatever a GPU then holds and wherever it is:
 * tensor, context, expert, expert_tensor, pipeline, data and micro_batch. */
bool lhi_degrees_same(const lh_layout *a, const lh_layout *b);

/* All but the schedule and how the layers are divided: degrees, chunks, their
 * placement, sharding, recomputation, and what lies where. */
bool lhi_config_same(const lhi_config *a, const lhi_config *b);
/* The same of what choices say. */
bool lhi_choice_same(const lh_choice *a, const lh_choice *b);

/* Nothing but the schedule differs: one pipeline for both. */
bool lhi_choice_same_pipeline(const lh_choice *a, const lh_choice *b);

/* Whether two layers have the same parts of the same sizes. */
bool lhi_layers_alike(const lh_model *model, uint32_t a, uint32_t b);

/* Whether what is inside of two datacenters costs the same time and takes the
 * same memory: GPUs, nodes, networks, and what a profile measured of these. How
 * many GPUs there are, at what price, and links to others may differ. */
bool lhi_datacenter_same(const lh_job *job, uint32_t a, uint32_t b);

/* Between a and b as between x and y, there and not back, price included. */
bool lhi_wan_same(const lh_job *job, uint32_t a, uint32_t b, uint32_t x,
                  uint32_t y);

#endif
