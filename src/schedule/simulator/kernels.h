/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two placements from one kernel list: data parallelism outermost
 * (DP-out) and pipeline outermost (PP-out). Each kernel has predecessors and a
 * duration in either placement; the iteration is reconstructed by longest paths
 * (ScaleAcross Explorer, 2026). Intended for iterations that were recorded or
 * modelled kernel by kernel, without a pipeline to simulate. */
#ifndef LHI_SCHEDULE_SIMULATOR_KERNELS_H
#define LHI_SCHEDULE_SIMULATOR_KERNELS_H

#include <longhaul/status.h>

#include <stdint.h>

/* Kinds of kernels. */
typedef enum lhi_kernel_kind {
    LHI_KERNEL_COMPUTE,
    LHI_KERNEL_P2P, /* between pipeline stages */
    LHI_KERNEL_DP,  /* data-parallel collectives */
    LHI_N_KERNEL_KINDS
} lhi_kernel_kind;

/* Placements: dimension that spans the datacenters. */
typedef enum lhi_kernel_placement {
    LHI_KERNEL_DP_OUT,
    LHI_KERNEL_PP_OUT,
    LHI_N_KERNEL_PLACEMENTS
} lhi_kernel_placement;

/* One kernel. Resources are unknown here, so `predecessors` must include the
 * previous kernel on the same rank, link and data-parallel stream. Otherwise
 * kernels that conflict may overlap, and the times are only lower bounds. */
typedef struct lhi_placement_kernel {
    lhi_kernel_kind kind;
    int64_t ns[LHI_N_KERNEL_PLACEMENTS]; /* duration in each placement */
    uint32_t n_predecessors;
    const uint32_t *predecessors; /* indices into the list, in any order */
} lhi_placement_kernel;

/* Iteration time in both placements and its composition. Nanoseconds. */
typedef struct lhi_reconstruction {
    int64_t ns[LHI_N_KERNEL_PLACEMENTS]; /* end of the last kernel */
    lhi_kernel_placement faster;         /* DP-out if equal */
    /* Composition of the longest path by kernel kind; each row adds up to its
     * ns[]. Among equally long paths, the one through the predecessors listed
     * first. */
    int64_t path_ns[LHI_N_KERNEL_PLACEMENTS][LHI_N_KERNEL_KINDS];
} lhi_reconstruction;

/* Computes the end of every kernel, which starts when all its predecessors have
 * ended or, without predecessors, at 0. Each kernel has two durations: one with
 * replicas across the datacenters (DP-out), one with pipelines across them
 * (PP-out). *out: for DP-out and PP-out the iteration time, and the longest
 * path's time by kind of kernel. LH_EINVAL: an index is out of range, a
 * duration is negative, the durations exceed 2^53 ns (104 days) in total, or
 * the dependencies are cyclic; `err` names one kernel. */
lh_status lhi_kernels_reconstruct(const lhi_placement_kernel *kernels,
                                  uint32_t n_kernels, lhi_reconstruction *out,
                                  lh_error *err);

#endif
