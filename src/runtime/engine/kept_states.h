/* SPDX-License-Identifier: Apache-2.0 */
/* Rules by which ranks choose the state with which they continue after a loss
 * (longhaul/experimental/restart.h). */
#ifndef LHI_RUNTIME_ENGINE_KEPT_STATES_H
#define LHI_RUNTIME_ENGINE_KEPT_STATES_H

#include <longhaul/experimental/restart.h>

/* Returns the number of steps that each of n ranks with a state has completed,
 * plus one; 0: none has a state. The state before a rank's newest belongs to
 * one step less, so every rank with states has that of the returned step. */
uint64_t lhi_kept_states_find_step(const lh_kept_states *ranks, uint32_t n);

/* Returns the rank whose state after `step` steps rank `r` of n restores:
 * itself, or the first with a state of the same part; LH_NONE: none. */
uint32_t lhi_kept_states_find_donor(const lh_kept_states *ranks, uint32_t n,
                                    uint64_t step, uint32_t r);

#endif
