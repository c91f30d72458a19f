/* SPDX-License-Identifier: Apache-2.0 */
/* Choices: one layout under one schedule, as plans list them; and which
 * schedules a job leaves to choose from. */
#ifndef LHI_CHOICE_H
#define LHI_CHOICE_H

#include "plan/layout/layout.h"
#include "sched/sched.h"

#include <longhaul/best.h>

/* What a job's layout.schedule leaves open. */
typedef enum lhi_asked {
    LHI_ASKED_ANY,     /* nothing is given, or the best of all */
    LHI_ASKED_OPTIMAL, /* the same, but for elastic plans */
    LHI_ASKED_METHOD,  /* that one alone */
} lhi_asked;

lhi_asked lhi_schedule_asked(const lh_job *job);

/* Whether chunks may lie so for that; unless pipelines have one rank, where
 * placements are the same. */
bool lhi_schedule_suits(const lh_job *job, lh_placement placement);

/* LH_EINPUT: layout.schedule is no method, or none for the chunks that the job
 * gives a device. */
lh_status lhi_schedule_check(const lh_job *job, lh_error *err);
/* Whether layout.sharding has replicas in several datacenters to be about.
 * Plans that were made without this check can be read. */
lh_status lhi_sharding_check(const lh_job *job, lh_error *err);

/* The least ZeRO stage that any parameter of an elastic plan has. */
uint32_t lhi_elastic_zero(const lh_plan_elastic *elastic);
/* What a choice says of its layout. */
lhi_config lhi_config_of(const lh_choice *choice);

/* No schedule, so far: neither times nor memory. */
void lhi_choice_clear(lh_choice *choice);

/* The memory of the device with the least room left, the first of such. When
 * passes run does not change what a device holds: they do so in its order. */
void lhi_choice_memory(lh_choice *choice, const lh_pipeline *pipeline,
                       const lh_schedule *schedule);
/* The same with the limits of another pipeline of as many devices. */
void lhi_choice_memory_within(lh_choice *choice, const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_pipeline *limits);

/* Whether building a layout answers that it cannot be had as it is; another
 * may. Any other failure is one of the whole. */
bool lhi_layout_refused(lh_status status);

#endif
