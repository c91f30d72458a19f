/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace_keys.h"

#include "pipe/pipeline_own.h"
#include "pipe/schedule_own.h"

/* --- header --------------------------------------------------------------- */

static const lhi_field device_rows[] = {
    {"site", LHI_WHOLE(lh_trace_device, site), .most = LH_MAX_DEVICES - 1},
    {"memory_static", LHI_WHOLE(lh_trace_device, memory_static),
     .least = INT64_MIN, .most = INT64_MAX},
    {"memory_limit", LHI_WHOLE(lh_trace_device, memory_limit),
     .least = INT64_MIN, .most = INT64_MAX - 1, .when = LHI_LEFT_OUT,
     .absent = LH_NO_LIMIT},
    {"dp_link", LHI_TEXT(lh_trace_device, dp_link), .least = 1, .quoted = true,
     .when = LHI_LEFT_OUT},
};
static const lhi_table device_table = {
    LHI_ROWS("device", lh_trace_device, device_rows)};

static const lhi_field trace_rows[] = {
    {"longhaul", LHI_OWN(lh_trace), .form = "trace/1"},
    {"title", LHI_TEXT(lh_trace, title), .quoted = true},
    {"source", LHI_TEXT(lh_trace, source), .quoted = true},
    {"makespan_ns", LHI_WHOLE(lh_trace, makespan_ns),
     .most = LHI_TRACE_MOST_NS},
    {"memory_unit", LHI_TEXT(lh_trace, memory_unit), .quoted = true},
    {"sites", LHI_LIST(lh_trace, site_names, n_sites), .of = LHI_F_TEXT,
     .quoted = true},
    {"links", LHI_LIST(lh_trace, link_names, n_links), .of = LHI_F_TEXT,
     .quoted = true},
    {"devices", LHI_LIST(lh_trace, devices, n_devices), .table = &device_table,
     .fewest = 1, .longest = LH_MAX_DEVICES},
    {"displayTimeUnit", LHI_OWN(lh_trace), .form = "ms", .when = LHI_KEPT},
    {"traceEvents", LHI_OWN(lh_trace), .form = ""},
};
const lhi_table lhi_trace_table = {LHI_ROWS("trace", lh_trace, trace_rows)};

/* --- slices --------------------------------------------------------------- */

static const lhi_field slice_rows[] = {
    {"ph", LHI_OWN(lhi_trace_slice), .when = LHI_KEPT},
    {"ts", LHI_REAL(lhi_trace_slice, start_us), .high = 1e15},
    {"dur", LHI_REAL(lhi_trace_slice, length_us), .high = 1e15},
    {"name", LHI_OWN(lhi_trace_slice), .when = LHI_KEPT},
    {"cat", LHI_OWN(lhi_trace_slice), .when = LHI_KEPT},
    {"pid", LHI_OWN(lhi_trace_slice), .when = LHI_KEPT},
    {"tid", LHI_OWN(lhi_trace_slice), .when = LHI_KEPT},
    {"args", LHI_OWN(lhi_trace_slice)},
};
const lhi_table lhi_trace_slice_table = {
    LHI_ROWS("slice", lhi_trace_slice, slice_rows)};

#define AT_NS(T, m) LHI_WHOLE(T, m), .most = LHI_TRACE_MOST_NS
#define PASS(m)                                                                \
    LHI_WORD(lh_trace_message, m), .parse = lhi_pass_parse,                    \
                                   .print = lhi_pass_print,                    \
                                   .form = LHI_PASS_FORM

static const lhi_field run_rows[] = {
    {"start_ns", AT_NS(lh_trace_run, start_ns)},
    {"end_ns", AT_NS(lh_trace_run, end_ns)},
    {"issued_ns", AT_NS(lh_trace_run, issued_ns),
     LHI_UNLESS_SAME(lh_trace_run, end_ns)},
    {"memory", LHI_WHOLE(lh_trace_run, memory), .least = INT64_MIN,
     .most = INT64_MAX},
    {"memory_after", LHI_WHOLE(lh_trace_run, memory_after), .least = INT64_MIN,
     .most = INT64_MAX},
    {"waits_for", LHI_WHOLE(lh_trace_run, waits_for), .most = LH_NONE - 1,
     .when = LHI_LEFT_OUT, .absent = LH_NONE},
};
const lhi_table lhi_trace_run_table = {
    LHI_ROWS("pass", lh_trace_run, run_rows)};

static const lhi_field message_rows[] = {
    {"producer", PASS(producer)},
    {"consumer", PASS(consumer)},
    {"from", LHI_WHOLE(lh_trace_message, from), .most = LH_MAX_DEVICES - 1},
    {"to", LHI_WHOLE(lh_trace_message, to), .most = LH_MAX_DEVICES - 1},
    {"link", LHI_WHOLE(lh_trace_message, link), .most = LH_NONE - 1,
     .when = LHI_LEFT_OUT, .absent = LH_NONE},
    {"produced_ns", AT_NS(lh_trace_message, produced_ns)},
    {"ready_ns", AT_NS(lh_trace_message, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_message, depart_ns)},
    {"sent_ns", AT_NS(lh_trace_message, sent_ns)},
    {"arrive_ns", AT_NS(lh_trace_message, arrive_ns)},
};
const lhi_table lhi_trace_message_table = {
    LHI_ROWS("message", lh_trace_message, message_rows)};

static const char *const collectives[] = {"all-gather", "reduce-scatter", NULL};

static lh_status check_bucket(const lhi_reading *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lhi_node *bucket;
    (void)it;
    return lhi_find(map, "buckets")
               ? lhi_need(r->doc, map, "bucket", &bucket, err)
               : LH_OK;
}

static const lhi_field collective_rows[] = {
    {"op", LHI_NAME(lh_trace_collective, is_reduce_scatter),
     .names = collectives},
    {"kind", LHI_NAME(lh_trace_collective, kind), .names = lhi_dp_kind_names,
     .least = LH_DP_AGO, LHI_UNLESS(lh_trace_collective, kind, LH_DP_ANY)},
    {"chunk", LHI_WHOLE(lh_trace_collective, chunk), .most = LH_MAX_CHUNKS - 1},
    {"device", LHI_WHOLE(lh_trace_collective, device),
     .most = LH_MAX_DEVICES - 1},
    {"ready_ns", AT_NS(lh_trace_collective, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_collective, depart_ns)},
    {"sent_ns", AT_NS(lh_trace_collective, sent_ns)},
    {"arrive_ns", AT_NS(lh_trace_collective, arrive_ns)},
    {"bucket", LHI_WHOLE(lh_trace_collective, bucket),
     .most = LH_MAX_MICROBATCHES - 1,
     LHI_UNLESS(lh_trace_collective, n_buckets, 0)},
    {"buckets", LHI_WHOLE(lh_trace_collective, n_buckets), .least = 1,
     .most = LH_MAX_MICROBATCHES,
     LHI_UNLESS(lh_trace_collective, n_buckets, 0)},
};
const lhi_table lhi_trace_collective_table = {
    LHI_ROWS("communication", lh_trace_collective, collective_rows),
    .check = check_bucket};

static const char *const ways[] = {"out", "back", NULL};

static const lhi_field copy_rows[] = {
    {"way", LHI_NAME(lh_trace_offload, is_back), .names = ways},
    {"chunk", LHI_WHOLE(lh_trace_offload, chunk), .most = LH_MAX_CHUNKS - 1},
    {"microbatch", LHI_WHOLE(lh_trace_offload, microbatch),
     .most = LH_MAX_MICROBATCHES - 1},
    {"device", LHI_WHOLE(lh_trace_offload, device), .most = LH_MAX_DEVICES - 1},
    {"ready_ns", AT_NS(lh_trace_offload, ready_ns)},
    {"depart_ns", AT_NS(lh_trace_offload, depart_ns)},
    {"end_ns", AT_NS(lh_trace_offload, end_ns)},
};
const lhi_table lhi_trace_copy_table = {
    LHI_ROWS("copy", lh_trace_offload, copy_rows)};
