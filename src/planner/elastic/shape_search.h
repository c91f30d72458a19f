/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans with a given chunk count. */
#ifndef LHI_PLANNER_ELASTIC_SHAPE_SEARCH_H
#define LHI_PLANNER_ELASTIC_SHAPE_SEARCH_H

#include "planner/elastic/layout_search.h"

/* Finds the fastest elastic plan for the chunks and layers of `config`; writes
 * it to *out if it is faster than the plan in *out, or if *out has none. `job`
 * uses ZeRO-1. LH_EINFEASIBLE, LH_EUNSUPPORTED: no plan exists; `err` has the
 * reason. */
lh_status lhi_elastic_search_shape(const lh_job *job, const lhi_config *config,
                                   const lhi_elastic_options *freedom,
                                   lhi_arena *mem, lhi_elastic_result *out,
                                   lh_error *err);

/* Checks whether receiving a pass's input takes no longer than one chunk's
 * forward. If not, PipeMesh's planner uses no more chunks. */
lh_status lhi_elastic_can_hide_receives(const lh_job *job,
                                        const lhi_config *config, bool *out,
                                        lh_error *err);

#endif
