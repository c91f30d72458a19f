/* SPDX-License-Identifier: Apache-2.0 */
/* What several results have in their JSON. */
#ifndef LHI_RESULT_PARTS_H
#define LHI_RESULT_PARTS_H

#include <longhaul/diagnose.h>
#include <longhaul/jitter.h>
#include <longhaul/simulate.h>

#include <jansson.h>

json_t *lhi_seconds_json(int64_t ns);
json_t *lhi_jitter_json(const lh_jitter_result *result);
/* A number per device; NULL: no memory. */
json_t *lhi_peaks_json(const lh_timeline *timeline);
/* What rests in host memory of each device that holds so much at its fullest.
 */
json_t *lhi_hosted_json(const lh_pipeline *pipeline, const json_t *peaks);
/* All that lh_diagnosis_format() prints; NULL: no memory. */
json_t *lhi_diagnosis_json(const lh_diagnosis *diagnosis);
/* Takes both references. NULL, which either may be: no memory. */
json_t *lhi_json_append(json_t *list, json_t *value);
#endif
