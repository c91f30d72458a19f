/* SPDX-License-Identifier: Apache-2.0 */
/* Links by names as people give them: what `--inject`, events and paths take. */
#ifndef LHI_LINK_NAMES_H
#define LHI_LINK_NAMES_H

#include <longhaul/pipeline.h>

/* Links of a pipeline, and room for two more with each name that is looked
 * for. */
typedef struct lhi_link_list {
    const lh_pipeline *pipeline;
    lh_link *links;
    uint32_t n_links;
} lhi_link_list;

/* Marks the links that `name` stands for in `hit`, which has room as `links`
 * has: those called so; `a-b` for those called `a>b` and `b>a`; or those between
 * two devices, `0-1` or `0>1`, which are added without a name and without delays
 * where there is none. LH_EINPUT: there is nothing that it can be, or several,
 * or no messages go there; `err` says which links there are. */
lh_status lhi_links_named(lhi_link_list *list, const char *name, bool *hit,
                          lh_error *err);

#endif
