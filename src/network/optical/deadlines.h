/* SPDX-License-Identifier: Apache-2.0 */
/* Message deadlines: the latest arrivals that do not prolong the iteration. */
#ifndef LHI_NETWORK_OPTICAL_DEADLINES_H
#define LHI_NETWORK_OPTICAL_DEADLINES_H

#include "network/optical/simulation.h"

/* Computes each message's deadline by the critical-path method over passes
 * and messages; each message takes its shortest possible time with `slots`
 * slots, after its circuit's set-up. deadline_ns[m], relative to the
 * iteration's start: latest start of the pass that consumes task m's message,
 * such that the iteration takes at most *ideal_ns; -1 if the message does not
 * cross the network. LH_ENOMEM. */
lh_status lhi_deadlines_compute(lhi_network *network, int64_t setup_ns,
                                const lhi_optical_run_job *job, uint32_t slots,
                                int64_t *deadline_ns, int64_t *ideal_ns);

#endif
