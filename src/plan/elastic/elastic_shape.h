/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans with a given number of chunks. */
#ifndef LHI_ELASTIC_SHAPE_H
#define LHI_ELASTIC_SHAPE_H

#include "plan/elastic/elastic_layout.h"

/* The fastest elastic plan of `config`, whose chunks are given, into *out if it
 * is faster than what stands there (or nothing does). `job` is one with ZeRO-1.
 * LH_EINFEASIBLE, LH_EUNSUPPORTED: there is none; `err` says why. */
lh_status lhi_elastic_shape(const lh_job *job, const lhi_config *config,
                            const lhi_elastic_freedom *freedom, lhi_arena *mem,
                            lhi_elastic_result *out, lh_error *err);

/* Whether receiving the input of a pass takes no longer than the forward of one
 * of these chunks: more chunks are none for PipeMesh's planner. */
lh_status lhi_elastic_receives_hide(const lh_job *job, const lhi_config *config,
                                    bool *out, lh_error *err);

#endif
