/* SPDX-License-Identifier: Apache-2.0 */
/* JSON fragments that several outputs share. */
#ifndef LHI_REPORT_JSON_JSON_PARTS_H
#define LHI_REPORT_JSON_JSON_PARTS_H

#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/simulate.h>

#include <jansson.h>

/* Builds a JSON number in seconds from a time in ns. */
json_t *lhi_json_seconds(int64_t ns);
/* Builds the JSON object with the statistics of simulations under jitter:
 * number of samples, mean, least and greatest time, and percentiles, in
 * seconds. */
json_t *lhi_json_jitter(const lh_jitter_result *result);
/* Builds a JSON list with peak memory per device; NULL on allocation failure.
 */
json_t *lhi_json_peak_memory(const lh_timeline *timeline);
/* Lists host memory per device in JSON: the part of its peak memory `peaks`
 * above the device's own limit, which is offloaded to the host. */
json_t *lhi_json_host_memory(const lh_pipeline *pipeline, const json_t *peaks);
/* Builds the diagnosis as a JSON object, lh_diagnosis_format()'s output; NULL
 * on allocation failure. */
json_t *lhi_json_diagnosis(const lh_diagnosis *diagnosis);
/* Appends a value to a list and returns the list. Takes both references. Either
 * may be NULL, and so is the result if out of memory. */
json_t *lhi_json_append(json_t *list, json_t *value);
#endif
