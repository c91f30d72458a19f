/* SPDX-License-Identifier: Apache-2.0 */
/* Which placements to try for given degrees: docs/theory/placement.md. */
#ifndef LHI_SITES_H
#define LHI_SITES_H

#include "plan/layout/layout.h"

#define LHI_MOST_SITES 64 /* placements for one set of degrees */

/* The placements that the job allows for layout's degrees (tensor, context,
 * expert, pipeline and data are given): first the most promising of each kind
 * (pipeline, data outermost, mixed) and what a layout without sites stands for,
 * then the others, in the order of what they promise; none twice that come to
 * the same by symmetry. They lie in `mem`. *n is 0 where there is none, which
 * is no failure: lhi_layout_place() without sites says what is in the way. */
lh_status lhi_sites_find(const lh_job *job, const lh_layout *layout,
                         lhi_arena *mem, const lh_sites **list, uint32_t *n,
                         lh_error *err);

#define LHI_TRIED_SITES 8

/* The first LHI_TRIED_SITES of these lists, found once for every set of
 * degrees: all that a list depends on of a layout is how many GPUs a pipeline
 * rank has, pipeline and data. They lie in `mem`, and the store itself too:
 * nothing is to be released. */
typedef struct lhi_sites_store lhi_sites_store;
lh_status lhi_sites_store_make(const lh_job *job, lhi_arena *mem,
                               lhi_sites_store **out, lh_error *err);
lh_status lhi_sites_store_find(lhi_sites_store *store, const lh_layout *layout,
                               const lh_sites **list, uint32_t *n,
                               lh_error *err);

/* What a layout with these sites has outermost. */
lh_outermost lhi_sites_outermost(const lh_sites *sites);

#endif
