/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for a layout and a choice in the plan's file. */
#include "format/job/parse.h"
#include "planner/file/plan_file.h"
#include "planner/plan_internal.h"

#include <inttypes.h>

/* --- layout --------------------------------------------------------------- */

/* Reads the placement of replicas and stages in datacenters from a plan file
 * into the layout `owner`. */
static lh_status read_sites(const lhi_read_context *r, const lhi_node *node,
                            void *owner, lh_error *err)
{
    const lh_plan *plan = r->context;
    return lhi_sites_from_node(r->doc, node, plan->job, true, r->mem, owner,
                               err);
}

/* Returns the JSON of the placement of replicas and stages in datacenters in
 * layout `owner`, for a plan file. */
static json_t *write_sites(const void *owner, const void *context)
{
    const lh_layout *layout = owner;
    const lh_plan *plan = context;
    return lhi_sites_to_json(plan->job, layout);
}

#define DEGREE(key, member)                                                    \
    {                                                                          \
        key, LHI_INTEGER(lh_layout, member), .least = 1, .most = LH_MAX_GPUS   \
    }

static const lhi_schema_field layout_rows[] = {
    DEGREE("tensor", tensor),
    DEGREE("context", context),
    DEGREE("expert", expert),
    {"expert_tensor", LHI_INTEGER(lh_layout, expert_tensor), .least = 1,
     .most = LH_MAX_GPUS, LHI_OMIT_IF(lh_layout, expert_tensor, 0)},
    DEGREE("pipeline", pipeline),
    DEGREE("data", data),
    DEGREE("micro_batch", micro_batch),
    DEGREE("chunks_per_device", chunks_per_device),
    {"outermost", LHI_ENUM(lh_layout, outermost),
     .least = LH_OUTERMOST_PIPELINE, .names = lhi_outermost_names},
    {"rank_order", LHI_ENUM(lh_layout, rank_order),
     .least = LH_OUTERMOST_PIPELINE, .names = lhi_rank_order_names,
     .when = LHI_OPTIONAL, .absent = LH_OUTERMOST_ANY},
    {"packing", LHI_ENUM(lh_layout, packing), .least = LH_PACKING_DENSE,
     .names = lhi_packing_names, .when = LHI_OPTIONAL,
     .absent = LH_PACKING_ANY},
    {"sharding", LHI_ENUM(lh_layout, sharding), .least = LH_SHARDING_FULL,
     .names = lhi_sharding_names, .when = LHI_OPTIONAL,
     .absent = LH_SHARDING_ANY},
    {"sites", LHI_CUSTOM(lh_layout), .read = read_sites, .write = write_sites,
     LHI_OMIT_IF(lh_layout, sites, 0)},
    {"schedule", LHI_STRING(lh_layout, schedule), .when = LHI_OPTIONAL},
};
static const lhi_schema layout_table = {
    LHI_ROWS("layout", lh_layout, layout_rows)};

/* --- elastic plans -------------------------------------------------------- */

static const lhi_schema_field bucket_rows[] = {
    {"scatter", LHI_INTEGER(lh_plan_elastic, scatter_buckets),
     .most = UINT32_MAX},
    {"forward", LHI_INTEGER(lh_plan_elastic, forward_buckets),
     .most = UINT32_MAX},
    {"backward", LHI_INTEGER(lh_plan_elastic, backward_buckets),
     .most = UINT32_MAX},
};
static const lhi_schema buckets_table = {
    LHI_ROWS("buckets", lh_plan_elastic, bucket_rows)};

static const lhi_schema_field recomputed_rows[] = {
    {"operation", LHI_STRING(lh_plan_recomputed, operation)},
    {"first", LHI_REAL(lh_plan_recomputed, first), .high = 1},
    {"last", LHI_REAL(lh_plan_recomputed, last), .high = 1},
    {"layers", LHI_LIST(lh_plan_recomputed, layers, n_chunks),
     .item_type = LHI_FIELD_INTEGER, .most = LH_MAX_CHUNKS,
     .when = LHI_OPTIONAL},
};
static const lhi_schema recomputed_table = {
    LHI_ROWS("recomputed", lh_plan_recomputed, recomputed_rows)};

static const lhi_schema_field elastic_rows[] = {
    {"enqueue", LHI_LIST(lh_plan_elastic, enqueue, n_enqueue),
     .item_type = LHI_FIELD_INTEGER, .least = 1, .most = LH_MAX_MICROBATCHES,
     .min_items = 1},
    {"dequeue", LHI_LIST(lh_plan_elastic, dequeue, n_dequeue),
     .item_type = LHI_FIELD_INTEGER, .least = 1, .most = LH_MAX_MICROBATCHES,
     .min_items = 1},
    {"gradients", LHI_REAL(lh_plan_elastic, gradients), .high = 1},
    {"parameters", LHI_REAL(lh_plan_elastic, parameters), .high = 1},
    {"buckets", LHI_NESTED_MAP(lh_plan_elastic), .table = &buckets_table},
    {"recomputed", LHI_LIST(lh_plan_elastic, recomputed, n_recomputed),
     .table = &recomputed_table},
};
static const lhi_schema elastic_table = {
    LHI_ROWS("elastic", lh_plan_elastic, elastic_rows)};

/* --- choice --------------------------------------------------------------- */

static const char *const placement_names[] = {"irregular", "ud", "loop",
                                              "wave",      "bd", NULL};

static const lhi_schema_field layers_row = {.width = sizeof(uint32_t),
                                            .item_type = LHI_FIELD_INTEGER,
                                            .most = LH_MAX_CHUNKS};

/* Reads the layers per chunk of plan candidate `owner` from a plan file.
 * LH_EINPUT: not one number for each chunk. */
static lh_status read_layers(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_choice *c = owner;
    uint64_t want = (uint64_t)c->layout.pipeline * c->layout.chunks_per_device;
    const void *layers;
    uint32_t n;
    LHI_TRY(lhi_schema_read_list(r, node, &layers_row, &layers, &n, err));
    if (n != want)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "has %" PRIu32 " numbers for %" PRIu64 " chunks", n,
                            want);
    c->chunk_layers = layers;
    return LH_OK;
}

/* Returns the JSON list of the layers per chunk of plan candidate `owner`. */
static json_t *write_layers(const void *owner, const void *context)
{
    const lh_choice *c = owner;
    return lhi_schema_write_list(
        &layers_row, c->chunk_layers,
        c->layout.pipeline * c->layout.chunks_per_device, context);
}

/* Returns the iteration time of plan candidate `owner` in seconds as JSON; null
 * if it is unknown. */
static json_t *write_seconds(const void *owner, const void *context)
{
    const lh_choice *c = owner;
    (void)context;
    return c->iteration_ns < 0 ? json_null()
                               : json_real((double)c->iteration_ns / 1e9);
}

/* Sets the ZeRO stage of plan candidate `it` to the job's before its keys are
 * read from a plan file: older files lack the key. */
static void start_zero(const lhi_read_context *r, void *it)
{
    const lh_plan *plan = r->context;
    ((lh_choice *)it)->zero = plan->job->training.zero;
}

/* Checks a plan candidate `it` (layout with results), read from a plan file,
 * against the job; see lhi_choice_check(). */
static lh_status check_choice(const lhi_read_context *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lh_plan *plan = r->context;
    return lhi_choice_check(r->doc, plan->job, map, it, r->mem, err);
}

static const lhi_schema_field choice_rows[] = {
    {"status", LHI_ENUM(lh_choice, status), .names = lhi_choice_status_names},
    {"iteration_s", LHI_DERIVED(lh_choice), .write = write_seconds},
    {"layout", LHI_STRUCT(lh_choice, layout), .table = &layout_table},
    {"placement", LHI_ENUM(lh_choice, placement), .names = placement_names},
    {"recompute", LHI_ENUM(lh_choice, recompute),
     .names = lhi_chosen_recompute_names},
    {"zero", LHI_INTEGER(lh_choice, zero), .most = 3, .when = LHI_DEFAULTED},
    {"microbatches", LHI_INTEGER(lh_choice, microbatches), .most = UINT32_MAX},
    {"iteration_ns", LHI_INTEGER(lh_choice, iteration_ns), .least = -1,
     .most = INT64_MAX},
    {"makespan_ns", LHI_INTEGER(lh_choice, makespan_ns), .least = -1,
     .most = INT64_MAX},
    {"optimizer_ns", LHI_INTEGER(lh_choice, optimizer_ns), .most = INT64_MAX},
    {"overhead_ns", LHI_INTEGER(lh_choice, overhead_ns), .most = INT64_MAX},
    {"lower_bound_ns", LHI_INTEGER(lh_choice, lower_bound_ns),
     .most = INT64_MAX},
    {"bubble_ratio", LHI_REAL(lh_choice, bubble_ratio), .high = 1},
    {"peak_memory_bytes", LHI_INTEGER(lh_choice, peak_memory_bytes),
     .most = INT64_MAX},
    {"memory_limit_bytes", LHI_INTEGER(lh_choice, memory_limit_bytes),
     .least = INT64_MIN, .most = INT64_MAX},
    {"tokens_per_s", LHI_REAL(lh_choice, tokens_per_s), .high = 1e300},
    {"mfu", LHI_REAL(lh_choice, mfu), .high = 1e300},
    {"why", LHI_STRING(lh_choice, why)},
    {"elastic", LHI_STRUCT_POINTER(lh_choice, elastic), .table = &elastic_table,
     .when = LHI_OPTIONAL},
    {"cost", LHI_STRUCT_POINTER(lh_choice, cost), .table = &lhi_cost_table,
     .when = LHI_OPTIONAL},
    {"jitter", LHI_STRUCT_POINTER(lh_choice, jitter),
     .table = &lhi_jitter_table, .when = LHI_OPTIONAL},
    {"chunk_layers", LHI_CUSTOM(lh_choice), .read = read_layers,
     .write = write_layers, LHI_OMIT_IF(lh_choice, chunk_layers, 0)},
};
const lhi_schema lhi_choice_table = {LHI_ROWS("choice", lh_choice, choice_rows),
                                     .start = start_zero,
                                     .check = check_choice};
