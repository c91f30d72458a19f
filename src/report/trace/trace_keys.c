/* SPDX-License-Identifier: Apache-2.0 */
#include "report/trace/trace_keys.h"

#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

/* --- header --------------------------------------------------------------- */

static const lhi_schema_field device_rows[] = {
    {"site", LHI_INTEGER(lh_trace_device, site), .most = LH_MAX_DEVICES - 1},
    {"memory_static", LHI_INTEGER(lh_trace_device, memory_static),
     .least = INT64_MIN, .most = INT64_MAX},
    {"memory_limit", LHI_INTEGER(lh_trace_device, memory_limit),
     .least = INT64_MIN, .most = INT64_MAX - 1, .when = LHI_OPTIONAL,
     .absent = LH_NO_LIMIT},
    {"dp_link", LHI_STRING(lh_trace_device, dp_link), .least = 1,
     .quoted = true, .when = LHI_OPTIONAL},
};
static const lhi_schema device_table = {
    LHI_ROWS("device", lh_trace_device, device_rows)};

static const lhi_schema_field trace_rows[] = {
    {"longhaul", LHI_CUSTOM(lh_trace), .description = "trace/1"},
    {"title", LHI_STRING(lh_trace, title), .quoted = true},
    {"source", LHI_STRING(lh_trace, source), .quoted = true},
    {"makespan_ns", LHI_INTEGER(lh_trace, makespan_ns),
     .most = LHI_TRACE_MOST_NS},
    {"memory_unit", LHI_STRING(lh_trace, memory_unit), .quoted = true},
    {"sites", LHI_LIST(lh_trace, site_names, n_sites),
     .item_type = LHI_FIELD_STRING, .quoted = true},
    {"links", LHI_LIST(lh_trace, link_names, n_links),
     .item_type = LHI_FIELD_STRING, .quoted = true},
    {"devices", LHI_LIST(lh_trace, devices, n_devices), .table = &device_table,
     .min_items = 1, .max_items = LH_MAX_DEVICES},
    {"displayTimeUnit", LHI_CUSTOM(lh_trace), .description = "ms",
     .when = LHI_DEFAULTED},
    {"traceEvents", LHI_CUSTOM(lh_trace), .description = ""},
};
const lhi_schema lhi_trace_table = {LHI_ROWS("trace", lh_trace, trace_rows)};

/* --- slices --------------------------------------------------------------- */

static const lhi_schema_field slice_rows[] = {
    {"ph", LHI_CUSTOM(lhi_trace_slice), .when = LHI_DEFAULTED},
    {"ts", LHI_REAL(lhi_trace_slice, start_us), .high = 1e15},
    {"dur", LHI_REAL(lhi_trace_slice, length_us), .high = 1e15},
    {"name", LHI_CUSTOM(lhi_trace_slice), .when = LHI_DEFAULTED},
    {"cat", LHI_CUSTOM(lhi_trace_slice), .when = LHI_DEFAULTED},
    {"pid", LHI_CUSTOM(lhi_trace_slice), .when = LHI_DEFAULTED},
    {"tid", LHI_CUSTOM(lhi_trace_slice), .when = LHI_DEFAULTED},
    {"args", LHI_CUSTOM(lhi_trace_slice)},
};
const lhi_schema lhi_trace_slice_table = {
    LHI_ROWS("slice", lhi_trace_slice, slice_rows)};

#define AT_NS(T, m) LHI_INTEGER(T, m), .most = LHI_TRACE_MOST_NS
#define PASS(m)                                                                \
    LHI_TEXT_FORM(lh_trace_message, m), .parse = lhi_parse_pass,               \
                                        .print = lhi_format_pass,              \
                                        .description = LHI_PASS_FORM

static const lhi_schema_field run_rows[] = {
    {"start_ns", AT_NS(lh_trace_run, start_ns)},
    {"end_ns", AT_NS(lh_trace_run, end_ns)},
    {"issued_ns", AT_NS(lh_trace_run, issued_ns),
     LHI_OMIT_IF_SAME(lh_trace_run, end_ns)},
    {"memory", LHI_INTEGER(lh_trace_run, memory), .least = INT64_MIN,
     .most = INT64_MAX},
    {"memory_after", LHI_INTEGER(lh_trace_run, memory_after),
     .least = INT64_MIN, .most = INT64_MAX},
    {"waits_for", LHI_INTEGER(lh_trace_run, waits_for), .most = LH_NONE - 1,
     .when = LHI_OPTIONAL, .absent = LH_NONE},
};
const lhi_schema lhi_trace_run_table = {
    LHI_ROWS("pass", lh_trace_run, run_rows)};

static const lhi_schema_field message_rows[] = {
    {"producer", PASS(producer)},
    {"consumer", PASS(consumer)},
    {"from", LHI_INTEGER(lh_trace_message, from), .most = LH_MAX_DEVICES - 1},
    {"to", LHI_INTEGER(lh_trace_message, to), .most = LH_MAX_DEVICES - 1},
    {"link", LHI_INTEGER(lh_trace_message, link), .most = LH_NONE - 1,
     .when = LHI_OPTIONAL, .absent = LH_NONE},
    {"produced_ns", AT_NS(lh_trace_message, produced_ns)},
    {"ready_ns", AT_NS(lh_trace_message, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_message, depart_ns)},
    {"sent_ns", AT_NS(lh_trace_message, sent_ns)},
    {"arrive_ns", AT_NS(lh_trace_message, arrive_ns)},
};
const lhi_schema lhi_trace_message_table = {
    LHI_ROWS("message", lh_trace_message, message_rows)};

static const char *const collectives[] = {"all-gather", "reduce-scatter", NULL};

/* Fails if a collective's map has the key `buckets` (their number) but no key
 * `bucket` (its index); a callback for the trace's schema. */
static lh_status check_bucket(const lhi_read_context *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lhi_node *bucket;
    (void)it;
    return lhi_node_find(map, "buckets")
               ? lhi_node_require(r->doc, map, "bucket", &bucket, err)
               : LH_OK;
}

static const lhi_schema_field collective_rows[] = {
    {"op", LHI_ENUM(lh_trace_collective, is_reduce_scatter),
     .names = collectives},
    {"kind", LHI_ENUM(lh_trace_collective, kind), .names = lhi_dp_kind_names,
     .least = LH_DP_AGO, LHI_OMIT_IF(lh_trace_collective, kind, LH_DP_ANY)},
    {"chunk", LHI_INTEGER(lh_trace_collective, chunk),
     .most = LH_MAX_CHUNKS - 1},
    {"device", LHI_INTEGER(lh_trace_collective, device),
     .most = LH_MAX_DEVICES - 1},
    {"ready_ns", AT_NS(lh_trace_collective, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_collective, depart_ns)},
    {"sent_ns", AT_NS(lh_trace_collective, sent_ns)},
    {"arrive_ns", AT_NS(lh_trace_collective, arrive_ns)},
    {"bucket", LHI_INTEGER(lh_trace_collective, bucket),
     .most = LH_MAX_MICROBATCHES - 1,
     LHI_OMIT_IF(lh_trace_collective, n_buckets, 0)},
    {"buckets", LHI_INTEGER(lh_trace_collective, n_buckets), .least = 1,
     .most = LH_MAX_MICROBATCHES,
     LHI_OMIT_IF(lh_trace_collective, n_buckets, 0)},
};
const lhi_schema lhi_trace_collective_table = {
    LHI_ROWS("communication", lh_trace_collective, collective_rows),
    .check = check_bucket};

static const char *const ways[] = {"out", "back", NULL};

static const lhi_schema_field copy_rows[] = {
    {"way", LHI_ENUM(lh_trace_offload, is_reload), .names = ways},
    {"chunk", LHI_INTEGER(lh_trace_offload, chunk), .most = LH_MAX_CHUNKS - 1},
    {"microbatch", LHI_INTEGER(lh_trace_offload, microbatch),
     .most = LH_MAX_MICROBATCHES - 1},
    {"device", LHI_INTEGER(lh_trace_offload, device),
     .most = LH_MAX_DEVICES - 1},
    {"ready_ns", AT_NS(lh_trace_offload, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_offload, depart_ns)},
    {"end_ns", AT_NS(lh_trace_offload, end_ns)},
};
const lhi_schema lhi_trace_copy_table = {
    LHI_ROWS("copy", lh_trace_offload, copy_rows)};
