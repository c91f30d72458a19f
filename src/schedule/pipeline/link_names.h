/* SPDX-License-Identifier: Apache-2.0 */
/* User-supplied link names in `--inject`, events and paths. */
#ifndef LHI_SCHEDULE_PIPELINE_LINK_NAMES_H
#define LHI_SCHEDULE_PIPELINE_LINK_NAMES_H

#include <longhaul/experimental/pipeline.h>

/* A pipeline's links, with capacity for two more per name looked up. */
typedef struct lhi_link_list {
    const lh_pipeline *pipeline;
    lh_link *links;
    uint32_t n_links;
} lhi_link_list;

/* Sets hit[i] for every link i that `name` denotes; `hit` has the same
 * capacity as `links`: - links with this name; - for `a-b`: links named `a>b`
 * and `b>a`; - for `0-1` or `0>1`: links between two devices; missing ones are
 * added without name or delays.
 *
 * LH_EINPUT: the name matches nothing, is ambiguous, or no messages use that
 * route; `err` lists the links. */
lh_status lhi_find_links_by_name(lhi_link_list *list, const char *name,
                                 bool *hit, lh_error *err);

#endif
