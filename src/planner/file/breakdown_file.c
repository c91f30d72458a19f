/* SPDX-License-Identifier: Apache-2.0 */
/* `account` and `runners_up` of a plan: docs/formats/plan.md. */
#include "planner/explain/breakdown.h"
#include "planner/file/plan_file.h"

#include <inttypes.h>

#define PART(key, member)                                                      \
    {                                                                          \
        key, LHI_SECONDS(lh_plan_breakdown, member), .high = 9e8               \
    }

static const lhi_schema_field account_rows[] = {
    PART("compute_s", compute_ns),
    PART("inside_s", intra_layer_ns),
    PART("imbalance_s", imbalance_ns),
    PART("bubble_s", bubble_ns),
    PART("messages_s", messages_ns),
    PART("data_parallel_s", data_ns),
    {"offload_s", LHI_SECONDS(lh_plan_breakdown, offload_ns), .high = 9e8,
     .when = LHI_OPTIONAL},
    PART("memory_s", memory_stall_ns),
    PART("optimizer_s", optimizer_ns),
    PART("overhead_s", overhead_ns),
};

/* Number of parts of the breakdown. */
enum { N_PARTS = sizeof account_rows / sizeof *account_rows };

/* Checks that the parts of the time breakdown in a plan file add up to the
 * plan's iteration time. LH_EINPUT otherwise. */
static lh_status check_sum(const lhi_read_context *r, const lhi_node *map,
                           void *it, lh_error *err)
{
    const lh_plan *plan = r->context;
    const lh_plan_breakdown *a = it;
    int64_t want = plan->best.iteration_ns;
    int64_t sum = a->compute_ns + a->intra_layer_ns + a->imbalance_ns +
                  a->bubble_ns + a->messages_ns + a->data_ns + a->offload_ns +
                  a->memory_stall_ns + a->optimizer_ns + a->overhead_ns;
    /* With fifteen digits, times of 10^15 ns or more have an error up to five
     * ns. */
    int64_t lost = want < INT64_C(1000000000000000) ? 0 : 5 * N_PARTS;
    if (sum >= want - lost && sum <= want + lost)
        return LH_OK;
    return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                        "adds up to %" PRId64 " ns, not to the iteration's "
                        "%" PRId64,
                        sum, want);
}

const lhi_schema lhi_account_table = {
    LHI_ROWS("account", lh_plan_breakdown, account_rows), .check = check_sum};

/* Checks that an alternative (`it`) in a plan file names a known layout
 * dimension. LH_EINPUT otherwise. */
static lh_status check_dimension(const lhi_read_context *r, const lhi_node *map,
                                 void *it, lh_error *err)
{
    const lh_plan_dimension_alternative *runner = it;
    if (lhi_dimension_is_known(runner->dimension))
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "dimension"), err, LH_EINPUT,
                        "unknown layout dimension '%.60s'", runner->dimension);
}

static const lhi_schema_field runner_rows[] = {
    {"dimension", LHI_STRING(lh_plan_dimension_alternative, dimension)},
    {"choice", LHI_STRUCT(lh_plan_dimension_alternative, choice),
     .table = &lhi_choice_table},
    {"least_s", LHI_SECONDS(lh_plan_dimension_alternative, bound_ns),
     .high = 9e9, .when = LHI_OPTIONAL, .absent = -1},
    {"first_sight",
     LHI_BOOL(lh_plan_dimension_alternative, is_quick_evaluation),
     .when = LHI_OPTIONAL},
};
const lhi_schema lhi_runner_table = {
    LHI_ROWS("runner-up", lh_plan_dimension_alternative, runner_rows),
    .check = check_dimension};
