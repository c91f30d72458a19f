/* SPDX-License-Identifier: Apache-2.0 */
/* Layer partitions: moves layers between a layout's chunks, so that embedding,
 * head and slower sites get less work. */
#ifndef LHI_PLANNER_LAYOUT_LAYER_PARTITION_H
#define LHI_PLANNER_LAYOUT_LAYER_PARTITION_H

#include "planner/layout/evaluation_cache.h"
#include "planner/layout/layout.h"

/* Returns the ratio between the peak rates of the fastest and the slowest GPU
 * type of the job. */
double lhi_layer_partition_speed_ratio(const lh_job *job);
/* Returns the default of lh_plan_options.max_chunk_ratio: larger for jobs with
 * several GPU types, whose chunks differ as their speeds. */
double lhi_layer_partition_default_ratio(const lh_job *job);

/* Returns the largest ratio between the layers of two chunks that the options
 * allow. */
double lhi_layer_partition_ratio(const lh_plan_options *options);

/* Returns the largest ratio between the layers of two chunks in any plan of the
 * job: the options' limit, or that of the job's own partition. */
double lhi_layer_partition_max_ratio(const lh_job *job,
                                     const lh_plan_options *options);

/* Checks whether the search may use other layer partitions than the even one,
 * which plans with two directions keep:
 * there are several chunks, layers to move, and a ratio of layers between
 * chunks that allows it. */
bool lhi_layer_partition_has_alternatives(const lh_job *job,
                                          const lhi_config *config,
                                          const lh_plan_options *options);

/* Searches for the fastest layer partition under `method` by hill climbing from
 * several starts:
 * - `config`'s partition (even, or by speed);
 * - equal work per device;
 * - small first or last chunks, large middle ones, increasing and decreasing
 *   sizes;
 * - `like`, from a layout with as many chunks (NULL: none);
 * - if none works, ones closer to the first.
 *
 * With `steepest`, only the first start, by steepest descent. *passes is the
 * budget of scheduled passes; the remainder is returned in it. A partition
 * faster than that of `config`, or any that fits if its own does not, goes to
 * config->layers, in `mem`, and its time to *iteration_ns; otherwise both stay.
 * `climbed`: `config`'s partition is already a result, so other starts go
 * first. */
lh_status
lhi_layer_partition_search(const lh_job *job, const lh_plan_options *options,
                           lhi_evaluation_cache *tried, const char *method,
                           bool steepest, bool climbed, const uint32_t *like,
                           uint64_t *passes, lhi_arena *mem, lhi_config *config,
                           int64_t *iteration_ns, lh_error *err);

/* Times a built layout under a method, in *ns with optimizer and overhead;
 * INT64_MAX: the method does not apply, or a lower bound or an ended simulation
 * shows that the time is useless_ns or more. `sub_blocks`, `tried` and `mem`:
 * as for lhi_evaluation_cache_run_method(). */
lh_status lhi_layer_partition_time_built(const lhi_built_layout *built,
                                         const char *method,
                                         uint32_t sub_blocks,
                                         lhi_evaluation_cache *tried,
                                         int64_t useless_ns, lhi_arena *mem,
                                         int64_t *ns, lh_error *err);

/* Parameters of the search under a slow method. */
typedef struct lhi_layer_partition_slow_search {
    const char *method;
    uint64_t max_partitions; /* partitions */
    int64_t start_limit_ns;  /* no moves unless a start is below this */
    bool (*should_stop)(void *context); /* stop callback; NULL: never */
    void *context;
} lhi_layer_partition_slow_search;

/* Searches layer partitions at random, for slow schedule methods. Starts from
 * partitions with equal work per device; those with many chunks have small ones
 * in the first and the last round. Then moves layers at random while no
 * device's load grows. The fastest timed partition goes to config->layers, in
 * `mem`, its time to *iteration_ns; if none works both stay. *n_timed: number
 * of partitions that were timed. */
lh_status lhi_layer_partition_search_slow_method(
    const lh_job *job, const lh_plan_options *options,
    lhi_evaluation_cache *tried, const lhi_layer_partition_slow_search *how,
    lhi_arena *mem, lhi_config *config, uint32_t *n_timed,
    int64_t *iteration_ns, lh_error *err);

/* Rebalances `config`'s partition: moves layers between devices while the
 * largest device load falls, independent of the schedule. Result in
 * config->layers, in `mem`; unchanged if no move helps. */
lh_status lhi_layer_partition_rebalance(const lh_job *job,
                                        const lh_plan_options *options,
                                        lhi_arena *mem, lhi_config *config,
                                        lh_error *err);

/* Repairs a partition that does not fit in memory: moves layers from the device
 * with the largest memory shortage to the device with the most free memory,
 * until each device fits one microbatch in each of its chunks. Result in
 * config->layers, in `mem`; unchanged if these moves find no such partition. */
lh_status lhi_layer_partition_fit_memory(const lh_job *job,
                                         const lh_plan_options *options,
                                         lhi_arena *mem, lhi_config *config,
                                         lh_error *err);

/* Sets config->layers in proportion to the GPUs' speed if datacenters have
 * different GPU types; otherwise leaves them unchanged. */
lh_status lhi_layer_partition_by_speed(const lh_job *job,
                                       const lh_plan_options *options,
                                       lhi_arena *mem, lhi_config *config,
                                       lh_error *err);

#endif
