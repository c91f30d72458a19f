/* SPDX-License-Identifier: Apache-2.0 */
/* How late each message may arrive without the iteration taking longer. */
#ifndef LHI_CRITICAL_H
#define LHI_CRITICAL_H

#include "optical/traffic_run.h"

/* The critical-path method over passes and messages, each message as fast as
 * the network can be with `slots` on the best candidate path: deadline_ns[m] is
 * the latest start, from the begin of the iteration, of the pass that needs the
 * message of task m, such that the iteration still takes no longer than
 * *ideal_ns; -1 where the message does not cross the network. LH_ENOMEM. */
lh_status lhi_deadlines(lhi_network *network, const lhi_run_job *job,
                        uint32_t slots, int64_t *deadline_ns,
                        int64_t *ideal_ns);

#endif
