/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json/json_parts.h"

#include "base/integer_math.h"

#include <longhaul/experimental/pipeline.h>

json_t *lhi_json_seconds(int64_t ns)
{
    return json_real((double)ns / 1e9);
}

json_t *lhi_json_jitter(const lh_jitter_result *r)
{
    return json_pack(
        "{s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "samples",
        (json_int_t)r->samples, "mean_s", r->mean_ns / 1e9, "least_s",
        lhi_json_seconds(r->min_ns), "p50_s", lhi_json_seconds(r->p50_ns),
        "p95_s", lhi_json_seconds(r->p95_ns), "p99_s",
        lhi_json_seconds(r->p99_ns), "most_s", lhi_json_seconds(r->max_ns));
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

json_t *lhi_json_host_memory(const lh_pipeline *pipeline, const json_t *peaks)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < lh_pipeline_n_devices(pipeline); d++)
        list = lhi_json_append(
            list, json_integer(lhi_max_int64(
                      json_integer_value(json_array_get(peaks, d)) -
                          lh_pipeline_device_limit(pipeline, d),
                      0)));
    return list;
}

json_t *lhi_json_peak_memory(const lh_timeline *timeline)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < lh_timeline_n_devices(timeline); d++)
        list = lhi_json_append(
            list, json_integer(lh_timeline_peak_memory(timeline, d)));
    return list;
}
