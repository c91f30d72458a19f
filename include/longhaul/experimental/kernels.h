/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two placements from one kernel list: data parallelism outermost
 * (DP-out) and pipeline outermost (PP-out). Each kernel has predecessors and a
 * duration in either placement; the iteration is reconstructed by longest paths
 * (ScaleAcross Explorer, 2026). Intended for iterations that were recorded or
 * modelled kernel by kernel, without a pipeline to simulate.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_KERNELS_H
#define LONGHAUL_EXPERIMENTAL_KERNELS_H

#include <longhaul/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of kernels. */
typedef enum lh_kernel_kind {
    LH_KERNEL_COMPUTE,
    LH_KERNEL_P2P, /* between pipeline stages */
    LH_KERNEL_DP,  /* data-parallel collectives */
    LH_N_KERNEL_KINDS
} lh_kernel_kind;

/* Placements: dimension that spans the datacenters. */
typedef enum lh_kernel_placement {
    LH_KERNEL_DP_OUT,
    LH_KERNEL_PP_OUT,
    LH_N_KERNEL_PLACEMENTS
} lh_kernel_placement;

/* One kernel. Resources are unknown here, so `predecessors` must include the
 * previous kernel on the same rank, link and data-parallel stream. Otherwise
 * kernels that conflict may overlap, and the times are only lower bounds. */
typedef struct lh_kernel {
    lh_kernel_kind kind;
    int64_t ns[LH_N_KERNEL_PLACEMENTS]; /* duration in each placement */
    uint32_t n_predecessors;
    const uint32_t *predecessors; /* indices into the list, in any order */
} lh_kernel;

/* Iteration time in both placements and its composition. Nanoseconds. */
typedef struct lh_reconstruction {
    int64_t ns[LH_N_KERNEL_PLACEMENTS]; /* end of the last kernel */
    lh_kernel_placement faster;         /* DP-out if equal */
    /* Composition of the longest path by kernel kind; each row adds up to its
     * ns[]. Among equally long paths, the one through the predecessors listed
     * first. */
    int64_t path_ns[LH_N_KERNEL_PLACEMENTS][LH_N_KERNEL_KINDS];
} lh_reconstruction;

/* Computes the end of every kernel: a kernel starts when all its predecessors
 * have ended, or at 0 without predecessors.
 *
 * LH_EINVAL: an index is out of range, a duration is negative, durations add up
 * to more than 2^53 ns (104 days), or the dependencies are cyclic; `err` names
 * one kernel. */
LH_API lh_status lh_kernels_reconstruct(const lh_kernel *kernels,
                                        uint32_t n_kernels,
                                        lh_reconstruction *out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
