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

/* Sets hit[i] for every link i that `name` denotes; the list may grow, up to
 * the capacity of `hit`. A name is a link's, or `a-b` for the links `a>b` and
 * `b>a`. Two devices (`0-1`, `0>1`) denote the links between them; missing ones
 * are added without name or delays. LH_EINPUT: it matches nothing, is
 * ambiguous, or no messages use that route. */
lh_status lhi_find_links_by_name(lhi_link_list *list, const char *name,
                                 bool *hit, lh_error *err);

#endif
