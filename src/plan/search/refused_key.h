/* SPDX-License-Identifier: Apache-2.0 */
/* Where no layout of a job works: what the job gives that is in the way. */
#ifndef LHI_REFUSED_KEY_H
#define LHI_REFUSED_KEY_H

#include "plan/search/candidate.h"

/* Whether a glance finds anything for `job`, another than that of `s`; *at is
 * then the best. */
lh_status lhi_layout_search_any(const lhi_layout_search *s, const lh_job *job,
                                lhi_config *at, bool *found, lh_error *err);

enum { LHI_REFUSED_KEY_TEXT = 160 };

/* "; without layout.pipeline: 9 one works (tensor 1, pipeline 4, data 4)": the
 * first key of the job that alone keeps the search from all that works. Empty:
 * there is none. */
lh_status lhi_refused_key(const lhi_layout_search *s,
                          char text[LHI_REFUSED_KEY_TEXT], lh_error *err);

#endif
