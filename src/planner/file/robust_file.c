/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a plan on jitter: docs/formats/plan.md. */
#include "planner/file/plan_file.h"
#include "planner/plan_internal.h"

/* Times are whole nanoseconds, so 15 digits are exact. */
#define DRAWN(key, member)                                                     \
    {                                                                          \
        key, LHI_SECONDS(lh_jitter_result, member), .high = 9e9                \
    }

static const lhi_schema_field jitter_rows[] = {
    {"samples", LHI_INTEGER(lh_jitter_result, samples), .least = 1,
     .most = UINT32_MAX},
    DRAWN("mean_s", mean_ns),
    DRAWN("least_s", min_ns),
    DRAWN("p50_s", p50_ns),
    DRAWN("p95_s", p95_ns),
    DRAWN("p99_s", p99_ns),
    DRAWN("most_s", max_ns),
};

/* Checks that the statistics of a jitter result `it` in a plan file (minimum,
 * percentiles, maximum) do not decrease. LH_EINPUT otherwise. */
static lh_status check_drawn(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    enum { LEAST = 2 }; /* row of the least; the others follow */
    const lh_jitter_result *j = it;
    const int64_t ns[] = {j->min_ns, j->p50_ns, j->p95_ns, j->p99_ns,
                          j->max_ns};
    for (size_t i = 1; i < sizeof ns / sizeof *ns; i++)
        if (ns[i] < ns[i - 1])
            return lhi_doc_fail(
                r->doc, lhi_node_find(map, jitter_rows[LEAST + i].key), err,
                LH_EINPUT, "is below %s", jitter_rows[LEAST + i - 1].key);
    if (j->mean_ns >= (double)j->min_ns && j->mean_ns <= (double)j->max_ns)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "mean_s"), err, LH_EINPUT,
                        "must be between least_s and most_s");
}

const lhi_schema lhi_jitter_table = {
    LHI_ROWS("jitter", lh_jitter_result, jitter_rows), .check = check_drawn};

static const lhi_schema_field degraded_rows[] = {
    {"rate", LHI_REAL(lh_plan_robust, jitter.degraded_probability), .high = 1},
    {"factor", LHI_REAL(lh_plan_robust, jitter.degraded_factor), .high = 1e6},
};
static const lhi_schema degraded_table = {
    LHI_ROWS("degraded", lh_plan_robust, degraded_rows)};

static const lhi_schema_field straggler_rows[] = {
    {"rate", LHI_REAL(lh_plan_robust, jitter.straggler_probability), .high = 1},
    {"factor", LHI_REAL(lh_plan_robust, jitter.straggler_factor), .high = 1e6},
};
static const lhi_schema straggler_table = {
    LHI_ROWS("straggler", lh_plan_robust, straggler_rows)};

/* Sets the struct size in the jitter options of a plan file's entry `robust`,
 * `it`, before its keys are read. */
static void start_robust(const lhi_read_context *r, void *it)
{
    lh_plan_robust *robust = it;
    (void)r;
    robust->jitter.size = sizeof robust->jitter;
}

static const lhi_schema_field robust_rows[] = {
    {"by", LHI_ENUM(lh_plan_robust, statistic), .names = lhi_plan_by_names},
    {"latency", LHI_REAL(lh_plan_robust, jitter.latency), .high = 1000},
    {"transfer", LHI_REAL(lh_plan_robust, jitter.transfer), .high = 1000},
    {"degraded", LHI_NESTED_MAP(lh_plan_robust), .table = &degraded_table},
    {"straggler", LHI_NESTED_MAP(lh_plan_robust), .table = &straggler_table},
    {"samples", LHI_INTEGER(lh_plan_robust, jitter.samples), .least = 1,
     .most = UINT32_MAX},
    {"seed", LHI_INTEGER(lh_plan_robust, jitter.seed), .least = INT64_MIN,
     .most = INT64_MAX},
    {"layouts", LHI_INTEGER(lh_plan_robust, n_layouts), .most = UINT32_MAX},
    {"schedules", LHI_INTEGER(lh_plan_robust, n_schedules), .most = UINT32_MAX},
    {"untried", LHI_INTEGER(lh_plan_robust, n_unevaluated), .most = UINT32_MAX},
    {"complete", LHI_BOOL(lh_plan_robust, complete)},
};
const lhi_schema lhi_robust_table = {
    LHI_ROWS("robust", lh_plan_robust, robust_rows), .start = start_robust};
