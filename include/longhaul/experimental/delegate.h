/* SPDX-License-Identifier: Apache-2.0 */
/* Data paths for messages between devices (Adaptra, arXiv:2504.19232, section
 * 5).
 *
 * On the direct path, a device's sends share a queue with its passes and wait
 * for the receive: see lh_sim_options.coupled_queue and receives. On the
 * delegated path, a message is copied to host memory, sent by dedicated host
 * threads and copied to the device at the destination. Passes never wait for a
 * send, and each message takes two copies longer.
 *
 * Times are nanoseconds. docs/theory/adapt.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_DELEGATE_H
#define LONGHAUL_EXPERIMENTAL_DELEGATE_H

#include <longhaul/pipeline.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Data paths for messages. */
typedef enum lh_data_path {
    LH_DATA_PATH_DIRECT,
    LH_DATA_PATH_DELEGATED, /* all messages */
    LH_DATA_PATH_MIXED,     /* messages on selected links */
} lh_data_path;

LH_API const char *lh_data_path_name(lh_data_path path); /* "delegated" */

/* Selects delegated links and gives the cost of the copies. */
typedef struct lh_delegation {
    size_t size; /* sizeof(lh_delegation) */
    /* Per lh_pipeline_link(): true if its messages are delegated. NULL: all
     * messages between devices. */
    const bool *links;
    /* A message's copy time at each end, for all links or, if the array is not
     * NULL, per link. Both 0 and NULL: copies take no time. */
    int64_t staging_ns;
    const int64_t *link_staging_ns;
    /* If > 0: bytes of host memory per device for offloaded activations, added
     * by lh_pipeline_with_host() unless the pipeline already has some.
     * Offloading then costs copies of lh_sim_options.host_copy_ns. */
    int64_t host_memory;
    int64_t host_copy_ns;
} lh_delegation;

/* Builds the pipeline and simulator options for delegated messages. Delegated
 * links are longer by the two copies to and from host memory. If copies take
 * time, devices without a link between them get one, appended to the links.
 *
 * `sim` describes direct messages (may be NULL). out_sim->delegated borrows
 * delegation->links. Release *out with lh_pipeline_free(). LH_EINVAL: links
 * that share a name are only partly delegated. */
LH_API lh_status lh_delegate(const lh_pipeline *pipeline,
                             const lh_sim_options *sim,
                             const lh_delegation *delegation, lh_pipeline **out,
                             lh_sim_options *out_sim, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
