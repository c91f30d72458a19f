/* SPDX-License-Identifier: Apache-2.0 */
/* Two placements from one list of kernels: an iteration's kernels, each with
 * what must end before it and its duration with data parallelism outermost
 * (DP-out) and with the pipeline outermost (PP-out), put together again by
 * longest paths (ScaleAcross Explorer, 2026). For iterations that were
 * recorded, or modelled kernel by kernel, where there is no pipeline to
 * simulate. */
#ifndef LONGHAUL_KERNELS_H
#define LONGHAUL_KERNELS_H

#include <longhaul/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_kernel_kind {
    LH_KERNEL_COMPUTE,
    LH_KERNEL_P2P, /* between pipeline stages */
    LH_KERNEL_DP,  /* data-parallel collectives */
    LH_N_KERNEL_KINDS
} lh_kernel_kind;

typedef enum lh_kernel_placement {
    LH_KERNEL_DP_OUT,
    LH_KERNEL_PP_OUT,
    LH_N_KERNEL_PLACEMENTS
} lh_kernel_placement;

/* Nothing here knows what runs where: `before` has to hold the kernel before it
 * on its rank, on its link and on its data-parallel stream too. Without these
 * the times are lower bounds, since kernels then overlap that cannot. */
typedef struct lh_kernel {
    lh_kernel_kind kind;
    int64_t ns[LH_N_KERNEL_PLACEMENTS]; /* its duration in either placement */
    uint32_t n_before;
    const uint32_t *before; /* indices into the list; any order */
} lh_kernel;

typedef struct lh_reconstruction {
    int64_t ns[LH_N_KERNEL_PLACEMENTS]; /* end of the last kernel */
    lh_kernel_placement faster;         /* DP-out where they are alike */
    /* What the longest path consists of; each row adds up to its ns[]. Of paths
     * of one length it is the one through the predecessors named first. */
    int64_t path_ns[LH_N_KERNEL_PLACEMENTS][LH_N_KERNEL_KINDS];
} lh_reconstruction;

/* A kernel starts when all before it have ended, at 0 where there are none.
 * LH_EINVAL: an index is out of range, a duration is negative, all durations
 * add up to more than 2^53 ns (104 days), or kernels wait for each other in a
 * circle; `err` names one. */
LH_API lh_status lh_kernels_reconstruct(const lh_kernel *kernels,
                                        uint32_t n_kernels,
                                        lh_reconstruction *out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
