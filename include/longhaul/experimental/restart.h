/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the training state with which ranks continue after the loss of one
 * (Gemini, doi:10.1145/3600006.3613145). Each rank keeps the states of its part
 * after its last two steps in memory that outlives it. A rank that has lost its
 * states, for example because its host was replaced, gets them from a rank with
 * the same part: another replica.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_RESTART_H
#define LONGHAUL_EXPERIMENTAL_RESTART_H

#include <longhaul/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The states that a rank has kept. Parts of the training state have numbers
 * above 0, chosen by the caller: ranks with the same number have equal states.
 */
typedef struct lh_kept_states {
    uint64_t needed; /* part with which the rank continues */
    uint64_t kept;   /* part of the states that it has; 0: none */
    /* Per kept state: the number of steps before it, plus one; 0: none. */
    uint64_t steps[2];
} lh_kept_states;

/* Chooses the state for all ranks: the newest that each rank with states had
 * completed. *step: the number of steps before it. donors (n_ranks, caller's):
 * the rank from which each rank gets its state: itself, or the first one with
 * the part. If no rank has a part, or none has a state, *step is 0 and all
 * donors are LH_NONE: continue from a checkpoint. LH_EINVAL: no ranks. */
LH_API lh_status lh_restart_choose(uint32_t n_ranks,
                                   const lh_kept_states *ranks, uint64_t *step,
                                   uint32_t *donors, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
