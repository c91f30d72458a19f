/* SPDX-License-Identifier: Apache-2.0 */
/* Placements to try for given degrees: docs/theory/placement.md. */
#ifndef LHI_PLANNER_LAYOUT_SITE_SEARCH_H
#define LHI_PLANNER_LAYOUT_SITE_SEARCH_H

#include "planner/layout/layout.h"

/* Placements for one set of degrees, without those with reversed pipelines. */
#define LHI_MOST_SITES 64

/* Lists the placements that the job allows for the layout's degrees (tensor,
 * context, expert, pipeline and data are set). First come the most promising of
 * each kind (pipeline outermost, data outermost, mixed) and the default
 * placement, then the others by estimated time. Placements equal by symmetry
 * occur once. A placement whose pipelines can be reversed is followed by the
 * reversed one. They are in `mem`. *n is 0 if there is none, which is not an
 * error: lhi_layout_place() without sites reports the reason. */
lh_status lhi_placement_search(const lh_job *job, const lh_layout *layout,
                               lhi_arena *mem, const lh_sites **list,
                               uint32_t *n, lh_error *err);

/* Number of placements of a layout that the search evaluates, the first ones of
 * its list, each with the reversed one. */
#define LHI_MAX_TRIED_PLACEMENTS 8

/* Store with these lists up to LHI_MAX_TRIED_PLACEMENTS, found once per set of
 * degrees: a list depends only on the GPUs per pipeline rank, pipeline and
 * data. The lists and the store are in `mem`; nothing needs to be
 * released. */
typedef struct lhi_sites_store lhi_sites_store;
/* Creates an empty cache of placement lists for a job. */
lh_status lhi_sites_store_make(const lh_job *job, lhi_arena *mem,
                               lhi_sites_store **out, lh_error *err);
/* Placements of one set of degrees. */
typedef struct lhi_sites_list {
    const lh_sites *sites;
    const bool *reversed; /* per placement: the previous one, reversed */
    uint32_t n;
} lhi_sites_list;
/* Returns the placements for a layout's degrees, from the cache or found as by
 * lhi_placement_search(). */
lh_status lhi_sites_store_find(lhi_sites_store *store, const lh_layout *layout,
                               lhi_sites_list *out, lh_error *err);

/* Returns a placement's outermost parallelism: pipeline (one group), data (each
 * group in one datacenter), or mixed. */
lh_outermost lhi_sites_outermost(const lh_sites *sites);

#endif
