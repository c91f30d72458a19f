/* SPDX-License-Identifier: Apache-2.0 */
#include "results/result_parts.h"

#include "base/whole.h"

json_t *lhi_seconds_json(int64_t ns)
{
    return json_real((double)ns / 1e9);
}

json_t *lhi_jitter_json(const lh_jitter_result *r)
{
    return json_pack(
        "{s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "samples",
        (json_int_t)r->samples, "mean_s", r->mean_ns / 1e9, "least_s",
        lhi_seconds_json(r->least_ns), "p50_s", lhi_seconds_json(r->p50_ns),
        "p95_s", lhi_seconds_json(r->p95_ns), "p99_s",
        lhi_seconds_json(r->p99_ns), "most_s", lhi_seconds_json(r->most_ns));
}

json_t *lhi_json_append(json_t *list, json_t *value)
{
    if (list && json_array_append_new(list, value) == 0)
        return list;
    if (!list)
        json_decref(value);
    json_decref(list);
    return NULL;
}

json_t *lhi_hosted_json(const lh_pipeline *pipeline, const json_t *peaks)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < lh_pipeline_n_devices(pipeline); d++)
        list = lhi_json_append(
            list,
            json_integer(lhi_most(json_integer_value(json_array_get(peaks, d)) -
                                      lh_pipeline_device_limit(pipeline, d),
                                  0)));
    return list;
}

json_t *lhi_peaks_json(const lh_timeline *timeline)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < lh_timeline_n_devices(timeline); d++)
        list = lhi_json_append(
            list, json_integer(lh_timeline_peak_memory(timeline, d)));
    return list;
}
