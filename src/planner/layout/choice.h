/* SPDX-License-Identifier: Apache-2.0 */
/* Choices: one layout under one schedule, as plans list them; and the schedules
 * that a job allows. */
#ifndef LHI_PLANNER_LAYOUT_CHOICE_H
#define LHI_PLANNER_LAYOUT_CHOICE_H

#include "planner/layout/layout.h"
#include "schedule/methods/sched.h"

#include <longhaul/scheduler.h>

/* Schedules that a job's layout.schedule leaves open. */
typedef enum lhi_schedule_request {
    LHI_REQUEST_ANY,     /* nothing fixed, or the best method */
    LHI_REQUEST_OPTIMAL, /* the same, without elastic plans */
    LHI_REQUEST_METHOD,  /* only the named method */
} lhi_schedule_request;

/* Returns the kind of schedule that the job requests: any (no schedule given or
 * "auto"), an optimal one, or one method. */
lhi_schedule_request lhi_schedule_requested(const lh_job *job);

/* Checks whether the job requests a schedule method that needs two directions
 * (placement BD). */
bool lhi_schedule_requires_two_directions(const lh_job *job);

/* Checks whether the job's schedule allows this chunk placement. Pipelines with
 * one rank allow any, because placements are the same. */
bool lhi_schedule_allows_placement(const lh_job *job, lh_placement placement);

/* Checks the job's key layout.schedule. LH_EINPUT: it names no method, or one
 * that the fixed chunks per device or slices do not allow. */
lh_status lhi_schedule_check(const lh_job *job, lh_error *err);
/* Checks that layout.sharding applies to the job: sharding within each
 * datacenter needs several datacenters; LH_EINPUT otherwise. Only for new
 * plans: older files may have the key. */
lh_status lhi_sharding_check(const lh_job *job, lh_error *err);

/* Returns the ZeRO stage of an elastic plan that every parameter has at least:
 * such plans shard only a share of gradients and parameters. */
uint32_t lhi_elastic_zero(const lh_plan_elastic *elastic);
/* Returns the configuration (layout, chunk placement, recomputation, ZeRO
 * stage) of a plan candidate. For an elastic plan it has no recomputation;
 * `elastic` keeps its shares and recomputed operations. */
lhi_config lhi_config_from_choice(const lh_choice *choice);

/* Resets a plan candidate to one without schedule: times unknown, memory 0. */
void lhi_choice_clear(lh_choice *choice);

/* Sets the plan candidate's peak memory and limit to those of the device with
 * the least free memory (the first such device). Start times do not affect
 * memory, only the pass order does. */
void lhi_choice_memory(lh_choice *choice, const lh_pipeline *pipeline,
                       const lh_schedule *schedule);
/* Sets the plan candidate's peak memory and limit like lhi_choice_memory(),
 * with the memory limits of another pipeline with as many devices. */
void lhi_choice_memory_within(lh_choice *choice, const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_pipeline *limits);

/* Returns the share of all devices' time, over the makespan, in which they are
 * idle. */
double lhi_choice_bubble_ratio(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               int64_t makespan_ns);

/* Checks whether an error status only means that this layout is impossible, so
 * that a search continues with others. */
bool lhi_layout_is_infeasible(lh_status status);

#endif
