/* SPDX-License-Identifier: Apache-2.0 */
/* Least GPU time of an iteration, on any number of GPUs. */
#ifndef LHI_PLANNER_SEARCH_GPU_TIME_BOUND_H
#define LHI_PLANNER_SEARCH_GPU_TIME_BOUND_H

#include <longhaul/experimental/job.h>

/* Computes in *gpu_s a lower bound on the GPU time of an iteration, in seconds
 * times GPUs: the passes of all microbatches on the fastest GPUs, for the best
 * tensor, context and expert degrees and microbatch size. It holds for every
 * layout on the job's nodes or on fewer. 0: no bound. */
lh_status lhi_compute_gpu_time_bound(const lh_job *job, double *gpu_s,
                                     lh_error *err);

#endif
