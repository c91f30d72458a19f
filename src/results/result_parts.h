/* SPDX-License-Identifier: Apache-2.0 */
/* JSON fragments that several outputs share. */
#ifndef LHI_RESULT_PARTS_H
#define LHI_RESULT_PARTS_H

#include <longhaul/diagnose.h>
#include <longhaul/jitter.h>
#include <longhaul/simulate.h>

#include <jansson.h>

/* Builds a number in seconds from a time. */
json_t *lhi_seconds_json(int64_t ns);
/* Builds the jitter statistics. */
json_t *lhi_jitter_json(const lh_jitter_result *result);
/* Builds a list of peak memory per device; NULL on allocation failure. */
json_t *lhi_peaks_json(const lh_timeline *timeline);
/* Builds a list of host memory per device: the part of the peak above the
 * device's limit. */
json_t *lhi_hosted_json(const lh_pipeline *pipeline, const json_t *peaks);
/* Builds the output of lh_diagnosis_format(); NULL on allocation failure. */
json_t *lhi_diagnosis_json(const lh_diagnosis *diagnosis);
/* Appends a value to a list and returns the list. Takes both references. Either
 * may be NULL, and so is the result if out of memory. */
json_t *lhi_json_append(json_t *list, json_t *value);
#endif
