/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic of other jobs over a link. */
#ifndef LHI_NETWORK_PACKET_OTHER_JOBS_H
#define LHI_NETWORK_PACKET_OTHER_JOBS_H

#include "network/packet/collectives.h"

/* GPUs of other jobs: host first_host + i sends to host first_host + gpus + i.
 */
typedef struct lhi_other_jobs {
    uint32_t gpus, queue_pairs, first_host;
    uint64_t bytes;   /* of a message */
    int64_t every_ns; /* mean time between a GPU's messages, a Poisson process;
                       * 0: a single message */
} lhi_other_jobs;

/* Appends the queue pairs and messages of other jobs to a set. Allocates in
 * `mem`. */
lh_status lhi_other_jobs_append(const lhi_other_jobs *jobs, lhi_arena *mem,
                                lhi_message_set *set, lh_error *err);

#endif
