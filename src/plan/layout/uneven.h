/* SPDX-License-Identifier: Apache-2.0 */
/* Layers moved between the chunks of a layout, so that embedding, head and
 * slower sites get less to do. */
#ifndef LHI_UNEVEN_H
#define LHI_UNEVEN_H

#include "plan/layout/layout.h"
#include "plan/layout/tried.h"

/* Layers of the largest chunk over those of the smallest, at most. */
double lhi_uneven_ratio(const lh_plan_options *options);

/* The same of any partition that a plan of the job may have: as layers may be
 * moved, or as the job gives them. */
double lhi_uneven_most(const lh_job *job, const lh_plan_options *options);

/* Whether there is another partition than the even one: several chunks, layers
 * to move, and a ratio that allows it. */
bool lhi_uneven_possible(const lh_job *job, const lhi_config *config,
                         const lh_plan_options *options);

/* Moves layers from several starts on: those of `config` (evenly, or by speed),
 * as much work on each device, with small first or last chunks, large ones in
 * the middle, more and more or fewer and fewer of them, and `like` of as many
 * chunks (NULL: none), and where none of these works from ones that are nearer
 * to the first; or, if `steepest`, from the first of these alone, by the best
 * of all moves; by iterations under `method`, with so many passes scheduled as
 * *passes says, which is left with what remains. A faster partition than that
 * of `config`, or where its own does not fit any that does, goes to
 * config->layers, which live in `mem`, its time to *iteration_ns; else both
 * stay. `climbed`: layers of `config` were moved before, so that others are
 * gone on from first. */
lh_status lhi_uneven_search(const lh_job *job, const lh_plan_options *options,
                            lhi_tried *tried, const char *method, bool steepest,
                            bool climbed, const uint32_t *like,
                            uint64_t *passes, lhi_arena *mem,
                            lhi_config *config, int64_t *iteration_ns,
                            lh_error *err);

/* How the same goes under a method that takes long. */
typedef struct lhi_uneven_slow {
    const char *method;
    uint64_t most;               /* partitions */
    int64_t near_ns;             /* no moves if no start is below that */
    bool (*over)(void *context); /* to end with what there is; NULL: never */
    void *context;
} lhi_uneven_slow;

/* From starts with as much work on each device on, of which those with many
 * chunks have small ones in the first round and the last, layers are moved at
 * random, wherever no device then has more to do. The fastest partition of all
 * that were timed goes to config->layers, in `mem`, its time to *iteration_ns;
 * if none works both stay. */
lh_status lhi_uneven_search_slowly(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_tried *tried, const lhi_uneven_slow *how,
                                   lhi_arena *mem, lhi_config *config,
                                   int64_t *iteration_ns, lh_error *err);

/* From those of `config` on, layers moved as long as the device with the most
 * to do then has less, whatever the schedule: to config->layers, in `mem`. It
 * stays as it is where nothing is to be moved. */
lh_status lhi_uneven_even_work(const lh_job *job,
                               const lh_plan_options *options, lhi_arena *mem,
                               lhi_config *config, lh_error *err);

/* Where sites have GPUs of different speed: layers in proportion to it, to
 * config->layers. Else nothing. */
lh_status lhi_uneven_by_speed(const lh_job *job, const lh_plan_options *options,
                              lhi_arena *mem, lhi_config *config,
                              lh_error *err);

#endif
