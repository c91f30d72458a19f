/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic of other jobs as messages of their own hosts. */
#include "network/packet/other_jobs.h"

#include "base/fail.h"

#include <string.h>

lh_status lhi_other_jobs_append(const lhi_other_jobs *jobs, lhi_arena *mem,
                                lhi_message_set *set, lh_error *err)
{
    uint32_t n_pairs = set->n_pairs + jobs->gpus * jobs->queue_pairs;
    uint32_t n_messages = set->n_messages + jobs->gpus;
    lhi_queue_pair *pairs = LHI_NEW(mem, lhi_queue_pair, n_pairs);
    lhi_packet_message *messages = LHI_NEW(mem, lhi_packet_message, n_messages);
    if (!pairs || !messages)
        return lhi_fail_nomem(err);
    memcpy(pairs, set->pairs, set->n_pairs * sizeof *pairs);
    memcpy(messages, set->messages, set->n_messages * sizeof *messages);
    for (uint32_t i = 0; i < jobs->gpus; i++) {
        uint32_t first_pair = set->n_pairs + i * jobs->queue_pairs;
        uint32_t from = jobs->first_host + i;
        for (uint32_t k = 0; k < jobs->queue_pairs; k++)
            pairs[first_pair + k] = (lhi_queue_pair){from, from + jobs->gpus};
        messages[set->n_messages + i] =
            (lhi_packet_message){.bytes = jobs->bytes,
                                 .first_pair = first_pair,
                                 .queue_pairs = jobs->queue_pairs,
                                 .every_ns = jobs->every_ns};
    }
    *set = (lhi_message_set){messages, pairs, n_messages, n_pairs};
    return LH_OK;
}
