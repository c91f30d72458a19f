/* SPDX-License-Identifier: Apache-2.0 */
/* What one layout with its layers in other chunks has in common with itself:
 * where its ranks are, and the chunks that are as they were. */
#ifndef LHI_REUSE_H
#define LHI_REUSE_H

#include "plan/layout/layout.h"

typedef struct lhi_known lhi_known;

lh_status lhi_known_make(lhi_known **out, lh_error *err);
void lhi_known_free(lhi_known *known); /* NULL is fine */

/* As lhi_layout_place(); *out lives as long as `known`. */
lh_status lhi_known_places(lhi_known *known, const lh_job *job,
                           const lh_layout *layout, lhi_places *out,
                           lh_error *err);

/* What chunk `chunk` with so many layers from `first` costs, if that was kept
 * and has not given way to others since. */
bool lhi_known_cost(const lhi_known *known, uint32_t chunk, uint32_t first,
                    uint32_t layers, lh_cost *out);
void lhi_known_keep(lhi_known *known, uint32_t chunk, uint32_t first,
                    uint32_t layers, const lh_cost *cost);

/* As lhi_layout_build(), where all that `known` has seen was the same layout of
 * the same job, but for config->layers; NULL: nothing was. */
lh_status lhi_layout_build_again(const lh_job *job, const lhi_config *config,
                                 lhi_known *known, lhi_built *built,
                                 lh_error *err);

#endif
