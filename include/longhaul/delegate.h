/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways that messages between devices can take (Adaptra, arXiv:2504.19232,
 * section 5). On the direct path a device's sends share a queue with its
 * passes and wait for the receive: lh_sim_options.coupled_queue and receives.
 * On the delegated path a message is copied to host memory, sent from there by
 * threads of their own and copied to the device at the other end: passes never
 * wait for a send, and each message takes two copies longer.
 *
 * Times are nanoseconds. docs/theory/adapt.md. */
#ifndef LONGHAUL_DELEGATE_H
#define LONGHAUL_DELEGATE_H

#include <longhaul/pipeline.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_data_path {
    LH_DATA_PATH_DIRECT,
    LH_DATA_PATH_DELEGATED, /* all messages */
    LH_DATA_PATH_MIXED,     /* those of some links */
} lh_data_path;

LH_API const char *lh_data_path_name(lh_data_path path); /* "delegated" */

typedef struct lh_delegation {
    size_t size; /* sizeof(lh_delegation) */
    /* Per lh_pipeline_link(), whether its messages are delegated; NULL: all
     * messages between devices are. */
    const bool *links;
    /* A message's copy at either end, for all links or, where the array is
     * given, per link. Both 0, NULL: copies take no time. */
    int64_t staging_ns;
    const int64_t *link_staging_ns;
    /* More than 0: with lh_pipeline_with_host(), so that activations may rest
     * in so much host memory of each device, unless the pipeline has some
     * already; what rests there costs copies of lh_sim_options.host_copy_ns. */
    int64_t host_memory;
    int64_t host_copy_ns;
} lh_delegation;

/* What a message takes at either end: bytes / rate, and a constant. The rate
 * has to be above 0. */
LH_API int64_t lh_staging_ns(uint64_t bytes, double host_bytes_per_s,
                             int64_t constant_ns);

/* How many queues one direction needs so that sends keep pace with what is
 * made: ceil(made / moved by one queue), at least 1 (Adaptra, section 5.2: 8
 * made per second, 2 moved per second and queue: 4). Rates in messages per
 * time, both finite, `moved` above 0. */
LH_API uint32_t lh_delegated_queues(double made, double moved);

/* The pipeline as it is with messages delegated, and how it is simulated then:
 * delegated links take two copies longer, those between devices that have no
 * link get one at the end of the links, if copies take time. `sim` is how
 * direct messages go (may be NULL), out_sim->delegated borrows
 * delegation->links. Of links that share a name all or none have to be
 * delegated: LH_EINVAL. Release *out with lh_pipeline_free(). */
LH_API lh_status lh_delegate(const lh_pipeline *pipeline,
                             const lh_sim_options *sim,
                             const lh_delegation *delegation, lh_pipeline **out,
                             lh_sim_options *out_sim, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
