/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says of delays that vary: docs/formats/plan.md. */
#include "plan/plan_own.h"

#include <math.h>

/* Times are whole nanoseconds, so 15 digits keep them. */
static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

json_t *lhi_jitter_to_json(const lh_jitter_result *r)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "samples",
                     (json_int_t)r->samples, "mean_s", round(r->mean_ns) / 1e9,
                     "least_s", seconds(r->least_ns), "p50_s",
                     seconds(r->p50_ns), "p95_s", seconds(r->p95_ns), "p99_s",
                     seconds(r->p99_ns), "most_s", seconds(r->most_ns));
}

static lh_status get_number(const lhi_doc *doc, const lhi_node *map,
                            const char *key, double least, double most,
                            double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(doc, map, key, &node, err));
    return lhi_get_number(doc, node, least, most, out, err);
}

static lh_status get_u32(const lhi_doc *doc, const lhi_node *map,
                         const char *key, uint32_t least, uint32_t *out,
                         lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(doc, map, key, &node, err));
    return lhi_get_u32(doc, node, least, UINT32_MAX, out, err);
}

lh_status lhi_jitter_from_node(const lhi_doc *doc, const lhi_node *map,
                               lhi_arena *mem, const lh_jitter_result **out,
                               lh_error *err)
{
    static const char *const keys[] = {"samples", "mean_s", "least_s", "p50_s",
                                       "p95_s",   "p99_s",  "most_s",  NULL};
    lh_jitter_result *r = LHI_NEW(mem, lh_jitter_result, 1);
    double value;
    if (!r)
        return lhi_fail_nomem(err);
    int64_t *const times[] = {&r->least_ns, &r->p50_ns, &r->p95_ns, &r->p99_ns,
                              &r->most_ns};
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(get_u32(doc, map, "samples", 1, &r->samples, err));
    LHI_TRY(get_number(doc, map, "mean_s", 0, 9e9, &value, err));
    r->mean_ns = round(value * 1e9);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        LHI_TRY(get_number(doc, map, keys[i + 2], 0, 9e9, &value, err));
        *times[i] = llround(value * 1e9);
        if (i > 0 && *times[i] < *times[i - 1])
            return lhi_doc_fail(doc, lhi_find(map, keys[i + 2]), err, LH_EINPUT,
                                "is less than %s", keys[i + 1]);
    }
    if (r->mean_ns < (double)r->least_ns || r->mean_ns > (double)r->most_ns)
        return lhi_doc_fail(doc, lhi_find(map, "mean_s"), err, LH_EINPUT,
                            "is not between least_s and most_s");
    *out = r;
    return LH_OK;
}

json_t *lhi_robust_to_json(const lh_plan_robust *r)
{
    const lh_jitter *j = &r->jitter;
    return json_pack(
        "{s:s, s:f, s:f, s:{s:f, s:f}, s:{s:f, s:f}, s:I, s:I, s:I, s:I, s:I, "
        "s:b}",
        "by", lh_plan_by_name(r->by), "latency", j->latency, "transfer",
        j->transfer, "degraded", "rate", j->degraded_rate, "factor",
        j->degraded_factor, "straggler", "rate", j->straggler_rate, "factor",
        j->straggler_factor, "samples", (json_int_t)j->samples, "seed",
        (json_int_t)j->seed, "layouts", (json_int_t)r->n_layouts, "schedules",
        (json_int_t)r->n_schedules, "untried", (json_int_t)r->n_untried,
        "complete", r->complete);
}

static lh_status read_event(const lhi_doc *doc, const lhi_node *map,
                            const char *key, double *rate, double *factor,
                            lh_error *err)
{
    static const char *const keys[] = {"rate", "factor", NULL};
    const lhi_node *event;
    LHI_TRY(lhi_need(doc, map, key, &event, err));
    LHI_TRY(lhi_known_keys(doc, event, keys, err));
    LHI_TRY(get_number(doc, event, "rate", 0, 1, rate, err));
    return get_number(doc, event, "factor", 0, 1e6, factor, err);
}

lh_status lhi_robust_from_node(const lhi_doc *doc, const lhi_node *map,
                               lhi_arena *mem, const lh_plan_robust **out,
                               lh_error *err)
{
    static const char *const keys[] = {
        "by",   "latency", "transfer",  "degraded", "straggler", "samples",
        "seed", "layouts", "schedules", "untried",  "complete",  NULL};
    lh_plan_robust *r = LHI_NEW(mem, lh_plan_robust, 1);
    const lhi_node *node;
    uint32_t by;
    int64_t seed;
    if (!r)
        return lhi_fail_nomem(err);
    lh_jitter *j = &r->jitter;
    j->size = sizeof *j;
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(lhi_need(doc, map, "by", &node, err));
    LHI_TRY(lhi_get_choice(doc, node, lhi_plan_by_names, &by, err));
    r->by = (lh_plan_by)by;
    LHI_TRY(get_number(doc, map, "latency", 0, 1000, &j->latency, err));
    LHI_TRY(get_number(doc, map, "transfer", 0, 1000, &j->transfer, err));
    LHI_TRY(read_event(doc, map, "degraded", &j->degraded_rate,
                       &j->degraded_factor, err));
    LHI_TRY(read_event(doc, map, "straggler", &j->straggler_rate,
                       &j->straggler_factor, err));
    LHI_TRY(get_u32(doc, map, "samples", 1, &j->samples, err));
    LHI_TRY(lhi_need(doc, map, "seed", &node, err));
    LHI_TRY(lhi_get_int(doc, node, INT64_MIN, INT64_MAX, &seed, err));
    j->seed = (uint64_t)seed;
    LHI_TRY(get_u32(doc, map, "layouts", 0, &r->n_layouts, err));
    LHI_TRY(get_u32(doc, map, "schedules", 0, &r->n_schedules, err));
    LHI_TRY(get_u32(doc, map, "untried", 0, &r->n_untried, err));
    LHI_TRY(lhi_need(doc, map, "complete", &node, err));
    LHI_TRY(lhi_get_bool(doc, node, &r->complete, err));
    *out = r;
    return LH_OK;
}
