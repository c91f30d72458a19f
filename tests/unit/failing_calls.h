/* SPDX-License-Identifier: Apache-2.0 */
/* Calls each function that creates something; `bad` makes it fail. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include "failing_call_inputs.h"
#include "format/job/events_file.h"
#include "format/job/model_size.h"
#include "model/all_to_all.h"
#include "model/groups.h"
#include "model/link_settings.h"
#include "model/ops.h"
#include "network/optical/network.h"
#include "report/diagnosis/rank_map.h"
#include "report/diagnosis/recording.h"
#include "report/diagnosis/replica_pipeline.h"
#include "schedule/certificate/certificate.h"
#include "schedule/elastic/elastic.h"
#include "schedule/methods/sched.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>

static lh_status takes_pipeline(bool bad)
{
    POISONED(lh_pipeline *, out);
    lh_pipeline_desc desc = {.size = sizeof desc};
    CHECK_OK(lh_pipeline_describe(pipeline, &desc, &err), err);
    desc.n_microbatches = bad ? 0 : 3;
    lh_status status = CALL(lh_pipeline_make(&desc, &out, &err), out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    return status;
}

static lh_status gives_host_memory(bool bad)
{
    POISONED(lh_pipeline *, out);
    lh_status status = CALL(
        lh_pipeline_with_host(other, bad ? 0 : LH_NO_LIMIT, &out, &err), out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    return status;
}

static lh_status injects(bool bad)
{
    POISONED(lh_pipeline *, out);
    lh_status status =
        CALL(lh_pipeline_set_link_delay(other, bad ? "nowhere" : "0-1", 1, 1,
                                        &out, &err),
             out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    return status;
}

static lh_status describes(bool bad)
{
    POISONED(lh_pipeline_desc, out);
    POISONED(lh_pipeline_desc, rest); /* all except `size`, which is an input */
    out.size = bad ? sizeof(size_t) : sizeof out;
    memset(&err, POISON, sizeof err);
    lh_status status = lh_pipeline_describe(pipeline, &out, &err);
    memcpy((char *)&rest + sizeof(size_t), (char *)&out + sizeof(size_t),
           sizeof rest - sizeof(size_t));
    return left_alone(status, &rest, sizeof rest);
}

static lh_status makes_schedule(bool bad)
{
    POISONED(lh_schedule *, out);
    POISONED(const char *, chosen);
    lh_status status =
        CALL(lh_method_run(bad ? "dorapp" : "auto", bad ? other : pipeline,
                           NULL, &out, &chosen, &err),
             out);
    left_alone(status, &chosen, sizeof chosen);
    if (status == LH_OK)
        lh_schedule_free(out);
    return status;
}

static lh_status finds_method(bool bad)
{
    POISONED(uint32_t, out);
    return CALL(lhi_method_find_number(bad ? "x" : "1f1b", &out, &err), out);
}

static lh_status chooses(const char *name, bool bad)
{
    POISONED(lh_scheduler_result, out);
    lh_scheduler_options o = {.size = sizeof o, .effort = 2000};
    lh_status status =
        CALL(lh_scheduler_run(bad ? "no such" : name, pipeline, &o, &out, &err),
             out);
    if (status == LH_OK)
        lh_scheduler_result_fini(&out);
    return status;
}

static lh_status chooses_auto(bool bad)
{
    return chooses("auto", bad);
}

static lh_status chooses_optimal(bool bad)
{
    return chooses("optimal", bad);
}

static lh_status solves(bool bad)
{
    POISONED(lh_solution, out);
    lh_solve_options o = {
        .size = sizeof o, .effort = 2000, .sub_blocks = bad ? 1u << 30 : 1};
    lh_status status = CALL(lh_solve(pipeline, &o, &out, &err), out);
    if (status == LH_OK)
        lh_solution_fini(&out);
    return status;
}

static lh_status certifies(bool bad)
{
    POISONED(lh_certificate *, out);
    lh_solve_options o = {.size = bad ? 0 : sizeof o, .effort = 2000};
    lh_status status =
        CALL(lh_certify(pipeline, &o, &solution, &out, &err), out);
    if (status == LH_OK)
        lh_certificate_free(out);
    return status;
}

static lh_status bounds(bool bad)
{
    POISONED(lh_bound, out);
    (void)bad; /* it can fail only for lack of memory */
    lh_status status =
        CALL(lhi_compute_closed_form_bound(pipeline, &out, &err), out);
    return bad ? LH_EINVAL : status;
}

static lh_status weighs(bool bad)
{
    POISONED(lh_memory_point, out);
    lh_solve_options each = {.size = sizeof each, .effort = 2000};
    lh_tradeoff_options o = {
        .size = sizeof o, .solve_options = &each, .makespan_ns = bad ? 1 : 0};
    lh_status status = CALL(lh_minimise_memory(pipeline, &o, &out, &err), out);
    if (status == LH_OK)
        lh_memory_point_fini(&out);
    return status;
}

static lh_status draws_curve(bool bad)
{
    POISONED(lh_memory_curve, out);
    lh_solve_options each = {.size = sizeof each,
                             .effort = 2000,
                             .objective = bad ? LH_SOLVE_OBJECTIVE_FIRST_DEVICE
                                              : LH_SOLVE_OBJECTIVE_MAKESPAN};
    lh_tradeoff_options o = {
        .size = sizeof o, .solve_options = &each, .points = 2};
    lh_status status =
        CALL(lh_memory_curve_make(pipeline, &o, &out, &err), out);
    if (status == LH_OK)
        lh_memory_curve_fini(&out);
    return status;
}

static lh_status simulates(bool bad)
{
    POISONED(lh_timeline *, out);
    lh_status status = CALL(
        lh_simulate(bad ? other : pipeline, schedule, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_timeline_free(out);
    return status;
}

static lh_status evaluates(bool bad)
{
    POISONED(int64_t, out);
    POISONED(lh_evaluator *, judge);
    lh_status status = CALL(
        lh_evaluator_make(bad ? other : pipeline, NULL, &judge, &err), judge);
    if (status != LH_OK)
        return status;
    status = CALL(lh_evaluator_run(judge, schedule, &out, &err), out);
    lh_evaluator_free(judge);
    return status;
}

static lh_status analyses(bool bad)
{
    POISONED(lh_analysis *, out);
    lh_status status =
        CALL(lh_analysis_make(pipeline, schedule, timeline, &out, &err), out);
    if (status == LH_OK)
        lh_analysis_free(out);
    return bad ? LH_EINVAL : status;
}

static lh_status shakes(bool bad)
{
    POISONED(lh_jitter_result, out);
    lh_jitter j = {.size = sizeof j, .latency = 1, .samples = 3};
    return CALL(
        lh_jitter_run(bad ? other : pipeline, schedule, NULL, &j, &out, &err),
        out);
}

/* Output of lh_jitter_times for three samples. */
typedef struct three_times {
    int64_t ns[3];
} three_times;

static lh_status draws_times(bool bad)
{
    POISONED(three_times, out);
    lh_jitter j = {.size = sizeof j, .latency = 1, .samples = 3};
    return CALL(lh_jitter_times(bad ? other : pipeline, schedule, NULL, &j,
                                out.ns, &err),
                out);
}

/* Slows down an existing device, or a missing one. */
static lh_events slow_device(bool bad, lh_event *e)
{
    *e = (lh_event){.end_step = 2,
                    .latency_factor = 1,
                    .transfer_factor = 1,
                    .slowdown = 2,
                    .device = bad ? 99 : 0,
                    .rank = LH_NONE};
    return (lh_events){"events", 1, e};
}

static lh_status follows(bool bad)
{
    POISONED(lh_event_timeline *, out);
    lh_event e;
    lh_events events = slow_device(bad, &e);
    lh_status status =
        CALL(lh_event_timeline_make(pipeline, &events, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_event_timeline_free(out);
    return status;
}

static lh_status plays(bool bad)
{
    POISONED(int64_t, out);
    POISONED(lh_pipeline *, at);
    lh_event e;
    lh_events events = slow_device(false, &e);
    lh_event_timeline *course = NULL;
    lh_status status = lh_event_timeline_make(bad ? other : pipeline, &events,
                                              NULL, &course, &err);
    if (status != LH_OK)
        return status;
    status = CALL(lh_event_timeline_pipeline(course, 1, &at, &err), at);
    if (status == LH_OK) {
        lh_pipeline_free(at);
        status = CALL(
            lh_event_timeline_simulate(course, schedule, NULL, 1, &out, &err),
            out);
    }
    lh_event_timeline_free(course);
    return status;
}

static lh_status monitors(bool bad)
{
    POISONED(lh_monitor *, out);
    lh_status status = CALL(
        lh_monitor_make(bad ? other : pipeline, schedule, NULL, &out, &err),
        out);
    if (status == LH_OK)
        lh_monitor_free(out);
    return status;
}

static lh_status estimates(bool bad)
{
    lh_monitor *m = NULL;
    POISONED(lh_pipeline *, out);
    lh_status status = lh_monitor_make(pipeline, schedule, NULL, &m, &err);
    if (status == LH_OK)
        status = CALL(lh_monitor_pipeline(m, &out, &err), out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    lh_monitor_free(m);
    return bad ? LH_EINVAL : status;
}

static lh_status adapts(bool bad)
{
    POISONED(lh_adapt *, out);
    lh_status status = CALL(
        lh_adapt_make(bad ? other : pipeline, schedule, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_adapt_free(out);
    return status;
}

static lh_status plays_adapting(bool bad)
{
    const lh_events none = {.name = "none"};
    lh_event_timeline *course = NULL;
    POISONED(lh_emulation *, out);
    lh_status status = lh_event_timeline_make(bad ? other : pipeline, &none,
                                              NULL, &course, &err);
    if (status == LH_OK)
        status =
            CALL(lh_adapt_emulate(course, schedule, NULL, 2, &out, &err), out);
    if (status == LH_OK)
        lh_emulation_free(out);
    lh_event_timeline_free(course);
    return status;
}

static lh_status decides(bool bad)
{
    lh_adapt *a = NULL;
    POISONED(const lh_decision *, out);
    const lh_adapt_input now = {.size = sizeof now,
                                .pipeline = bad ? other : pipeline};
    lh_status status = lh_adapt_make(pipeline, schedule, NULL, &a, &err);
    if (status == LH_OK)
        status = CALL(lh_adapt_decide(a, &now, &out, &err), out);
    lh_adapt_free(a);
    return status;
}

static lh_status reads_recording(bool bad)
{
    POISONED(lh_recording *, out);
    small_recording(&(small_job){
        .steps = 1, .stages = 2, .replicas = 2, .microbatches = 2});
    lh_status status =
        CALL(lhi_recording_parse(small_text, bad ? 40 : small_len, "small.csv",
                                 &out, &err),
             out);
    if (status == LH_OK)
        lh_recording_free(out);
    return status;
}

static const char ranks_text[] =
    "longhaul: ranks/1\n"
    "ranks: [{rank: 0, stage: 0, replica: 0}]\n"
    "names: [{name: 'f{microbatch}', is: forward-compute}]\n";

static lh_status reads_ranks(bool bad)
{
    POISONED(lh_rank_map *, out);
    lh_status status =
        CALL(lhi_rank_map_parse(ranks_text, bad ? 40 : sizeof ranks_text - 1,
                                "ranks.yaml", &out, &err),
             out);
    if (status == LH_OK)
        lh_rank_map_free(out);
    return status;
}

/* A forward pass on the GPU, and a backward one; a message that nobody
 * receives. */
static const char profiler_text[] =
    "{\"distributedInfo\": {\"rank\": 0, \"world_size\": 1,"
    " \"pg_config\": [{\"ranks\": [0]}]}, \"traceEvents\": ["
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"f0\","
    " \"ts\": 1, \"dur\": 5},"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"launch\","
    " \"ts\": 2, \"dur\": 1, \"args\": {\"correlation\": 7}},"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\","
    " \"ts\": 3, \"dur\": 2, \"args\": {\"correlation\": 7}},"
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"gloo:send\","
    " \"ts\": 8, \"dur\": 2},"
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"PP:0B0\","
    " \"ts\": 10, \"dur\": 5}]}";

static lh_status reads_profiler(bool bad)
{
    lh_rank_map *map = NULL;
    POISONED(lh_recording *, out);
    lh_status status = lhi_rank_map_parse(ranks_text, sizeof ranks_text - 1,
                                          "ranks.yaml", &map, &err);
    if (status == LH_OK)
        status = CALL(lhi_recording_parse_mapped(
                          profiler_text, bad ? 40 : sizeof profiler_text - 1,
                          "rank0.json", map, &out, &err),
                      out);
    if (status == LH_OK)
        lh_recording_free(out);
    lh_rank_map_free(map);
    return status;
}

static lh_status diagnoses(bool bad)
{
    lh_recording *r = NULL;
    POISONED(lh_diagnosis *, out);
    lh_diagnose_options with = {.size = bad ? 1 : sizeof with, .threads = 1};
    small_recording(&(small_job){
        .steps = 1, .stages = 2, .replicas = 2, .microbatches = 2});
    lh_status status =
        lhi_recording_parse(small_text, small_len, "small.csv", &r, &err);
    if (status == LH_OK)
        status = CALL(lh_diagnose(r, &with, &out, &err), out);
    if (status == LH_OK)
        lh_diagnosis_free(out);
    lh_recording_free(r);
    return status;
}

static lh_status reshapes(bool bad)
{
    lh_recording *r = NULL;
    lh_schedule *order = NULL;
    POISONED(lh_pipeline *, out);
    small_recording(&(small_job){
        .steps = 1, .stages = 2, .replicas = 2, .microbatches = 2});
    lh_status status =
        lhi_recording_parse(small_text, small_len, "small.csv", &r, &err);
    if (status == LH_OK)
        status = CALL(
            lhi_recording_pipeline(r, bad ? 2 : 1, &out, &order, &err), out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    lh_schedule_free(order);
    lh_recording_free(r);
    return status;
}

static lh_status reshapes_with_links(bool bad)
{
    lh_recording *r = NULL;
    POISONED(lh_pipeline *, out);
    small_recording(&(small_job){
        .steps = 1, .stages = 2, .replicas = 2, .microbatches = 2});
    lh_status status =
        lhi_recording_parse(small_text, small_len, "small.csv", &r, &err);
    if (status == LH_OK)
        status =
            CALL(lh_recording_linked_pipeline(r, bad ? 2 : 1, &out, &err), out);
    if (status == LH_OK)
        lh_pipeline_free(out);
    lh_recording_free(r);
    return status;
}

static lh_status judges(bool bad)
{
    POISONED(lh_verdict *, out);
    lh_status status = CALL(lh_check(pipeline, schedule, &out, &err), out);
    if (status == LH_OK)
        lh_verdict_free(out);
    return bad ? LH_EINVAL : status;
}

static lh_status judges_certificate(bool bad)
{
    POISONED(lh_claims *, out);
    lh_status status = CALL(
        lh_check_certificate(pipeline, NULL, certificate, &out, &err), out);
    if (status == LH_OK)
        lh_claims_free(out);
    return bad ? LH_EINVAL : status;
}

static lh_status makes_trace(bool bad)
{
    POISONED(lh_trace *, out);
    lh_trace wrong = small_trace;
    wrong.n_devices = 1;
    lh_status status =
        CALL(lh_trace_copy(bad ? &wrong : &small_trace, &out, &err), out);
    if (status == LH_OK)
        lh_trace_free(out);
    return status;
}

static lh_status lowers(bool bad)
{
    POISONED(lh_exec *, out);
    lh_status status = CALL(
        lh_exec_make(bad ? other : pipeline, schedule, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_exec_free(out);
    return status;
}

static lh_status plans(bool bad)
{
    POISONED(lh_plan *, out);
    lh_plan_options o = {.size = sizeof o,
                         .quick = true,
                         .no_optimal = true,
                         .objective = bad ? LH_PLAN_CHEAPEST : LH_PLAN_FASTEST};
    lh_status status = CALL(lh_plan_make(job, &o, &out, &err), out);
    if (status == LH_OK)
        lh_plan_free(out);
    return status;
}

static lh_status plans_pipeline(bool bad)
{
    POISONED(lh_pipeline *, out);
    POISONED(int64_t, optimizer_ns);
    lh_layout l = layout;
    l.data = bad ? 64 : 1;
    lh_status status =
        CALL(lh_plan_pipeline(job, &l, LH_PLACEMENT_OTHER, LH_RECOMPUTE_NONE,
                              &out, &optimizer_ns, &err),
             out);
    left_alone(status, &optimizer_ns, sizeof optimizer_ns);
    if (status == LH_OK)
        lh_pipeline_free(out);
    return status;
}

static lh_status compares(bool bad)
{
    POISONED(lh_comparison *, out);
    static const char *const methods[] = {"1f1b", "nothing"};
    lh_compare_base base = {.name = "p", .pipeline = pipeline};
    lh_compare_options o = {
        .size = sizeof o, .n_methods = bad ? 2 : 1, .methods = methods};
    lh_status status = CALL(lh_compare(1, &base, &o, &out, &err), out);
    if (status == LH_OK)
        lh_comparison_free(out);
    return status;
}

static lh_status trains(bool bad)
{
    POISONED(lh_train_result *, out);
    lh_train_options run = {.size = sizeof run,
                            .transport = bad ? "pigeons" : NULL};
    lh_status status =
        CALL(lh_train_timed(pipeline, exec, &run, &out, &err), out);
    if (status == LH_OK)
        lh_train_result_free(out);
    return status;
}

static lh_status prices(bool bad)
{
    POISONED(lh_cost, out);
    lh_cost_layer_range slice = {.n_layers = bad ? 99 : 2};
    return CALL(lh_cost_chunk(job, &layout, &slice, NULL, &out, &err), out);
}

static lh_status lists_ops(bool bad)
{
    enum { N = LH_COST_MAX_OPS };
    lh_cost_op ops[N];
    POISONED(uint32_t, n);
    lh_cost_layer_range slice = {.n_layers = 2};
    lh_layout l = layout;
    l.micro_batch = bad ? UINT32_MAX : 1;
    lh_job large = *job;
    large.training.sequence = bad ? UINT32_MAX : job->training.sequence;
    memset(ops, POISON, sizeof ops);
    lh_status status =
        CALL(lhi_cost_layer_ops(&large, &l, &slice, 0, NULL, ops, &n, &err), n);
    return left_alone(status, ops, sizeof ops);
}

static lh_status drafts(bool bad)
{
    POISONED(char *, out);
    POISONED(size_t, len);
    const lh_draft_options o = {.size = sizeof o, .n_sites = bad ? 65 : 0};
    lh_status status = CALL(lh_job_draft(&o, &out, &len, &err), out);
    if (status == LH_OK)
        lh_text_free(out);
    return left_alone(status, &len, sizeof len);
}

static lh_status finds_group(bool bad)
{
    POISONED(lh_cost_group, out);
    lh_cost_layer_range slice = {.n_layers = 2,
                                 .data_datacenters = bad ? 2 : 1};
    return CALL(
        lhi_cost_find_group(job, &layout, LH_COST_DATA, &slice, &out, &err),
        out);
}

static lh_status finds_path(bool bad)
{
    POISONED(lh_cost_path, out);
    lh_cost_group g = {.size = 2,
                       .per_node = 1,
                       .per_datacenter = 1,
                       .datacenter = bad ? 1 : 0,
                       .concurrent = 1};
    return CALL(lh_cost_group_path(job, &g, NULL, &out, &err), out);
}

static lh_status exchanges(bool bad)
{
    double out[2];
    lh_cost_group g = {.size = 2,
                       .per_node = 1,
                       .per_datacenter = 1,
                       .datacenter = bad ? 9 : 0,
                       .concurrent = 1};
    memset(out, POISON, sizeof out);
    return CALL(lhi_cost_all_to_all(job, &g, 1e6, NULL, &out[0], &out[1], &err),
                out);
}

static lh_status sends(bool bad)
{
    POISONED(lh_cost_message, out);
    lh_cost_hop hop = {.to = bad ? 7 : 1};
    return CALL(lhi_cost_hop_message(job, &layout, &hop, NULL, &out, &err),
                out);
}

static lh_status sets_link(bool bad)
{
    POISONED(lh_link_effect, out);
    lh_link_load load = {.line_bytes_per_s = bad ? -1 : 1e9,
                         .oversubscription = 1,
                         .senders = 1};
    lh_link_setting setting = {.queue_pairs = 2};
    return CALL(lhi_cost_link_setting(&load, &setting, &out, &err), out);
}

static lh_status queues(bool bad)
{
    POISONED(lh_elastic_plan *, out);
    lh_status status =
        CALL(lh_elastic_plan_queue(&elastic, bad ? 1 : 2, &out, &err), out);
    if (status == LH_OK)
        lh_elastic_plan_free(out);
    return status;
}

static lh_status times_events(bool bad)
{
    POISONED(int64_t, ns);
    POISONED(lh_dp_op *, ops);
    POISONED(uint32_t, n);
    lh_elastic_plan *p = NULL;
    lh_elastic_case g = elastic;
    lh_status status = lh_elastic_plan_queue(&g, 2, &p, &err);
    g.f_ns = bad ? -1 : g.f_ns;
    if (status == LH_OK)
        status = CALL(lh_elastic_event_time(&g, p, 0, &ns, &err), ns);
    lh_status listed = status;
    if (p && (status == LH_OK || bad)) {
        listed = CALL(lhi_elastic_operations(&g, p, &ops, &n, &err), ops);
        left_alone(listed, &n, sizeof n);
        if (listed == LH_OK)
            lhi_elastic_ops_free(ops);
    }
    lh_elastic_plan_free(p);
    return listed;
}

static lh_status chooses_elastic(bool bad)
{
    POISONED(lh_elastic_choice *, out);
    static const lh_elastic_op ops[] = {{10, 2}, {20, 1}};
    lh_status status =
        CALL(lh_elastic_choose(&elastic, 2, ops, bad ? 1 : 1 << 20,
                               LH_ELASTIC_ANY, &out, &err),
             out);
    if (status == LH_OK)
        lh_elastic_choice_free(out);
    return status;
}

static lh_status searches_elastic(bool bad)
{
    POISONED(lh_elastic_search_result *, out);
    static const lh_elastic_op ops[] = {{10, 2}, {20, 1}};
    lh_elastic_setting s = {.given = elastic, .n_ops = 2, .ops = ops};
    lh_status status = CALL(
        lh_elastic_search_events(1, &s, bad ? 1 : 1 << 20, &out, &err), out);
    if (status == LH_OK)
        lh_elastic_search_result_free(out);
    return status;
}

static lh_status reconstructs(bool bad)
{
    POISONED(lhi_reconstruction, out);
    lhi_placement_kernel k[2];
    memset(k, 0, sizeof k);
    k[0].ns[0] = 3;
    k[1].ns[0] = bad ? -1 : 2;
    return CALL(lhi_kernels_reconstruct(k, 2, &out, &err), out);
}

static lh_status routes(bool bad)
{
    POISONED(lh_route *, out);
    POISONED(uint32_t, n);
    lh_status status = CALL(
        lhi_topology_routes(topology, 0, bad ? 0 : 1, 2, &out, &n, &err), out);
    left_alone(status, &n, sizeof n);
    if (status == LH_OK)
        lhi_routes_free(out);
    return status;
}

static lh_status loads(bool bad)
{
    POISONED(lh_traffic_result, out);
    lh_traffic t = {.size = sizeof t,
                    .erlang = bad ? -1 : 5,
                    .holding_s = 1,
                    .slots = 4,
                    .slots_min = 1,
                    .slots_max = 2,
                    .k = 1};
    return CALL(lh_traffic_run(topology, &t, 1, 0, 20, &out, &err), out);
}

/* --- texts ---------------------------------------------------------------- */

/* Each parser, on invalid input; the only check is that *out stays unchanged.
 */
#define READER(name, type, call)                                               \
    static lh_status name(bool bad)                                            \
    {                                                                          \
        POISONED(type *, out);                                                 \
        static const char text[] = "longhaul: nothing/9\n";                    \
        size_t len = strlen(text);                                             \
        (void)bad, (void)len;                                                  \
        return CALL(call, out);                                                \
    }
READER(reads_job, lh_job, lh_job_parse(text, len, "x", NULL, &out, &err))
READER(reads_model, lh_model, lhi_model_parse(text, len, "x", &out, &err))
READER(reads_plan, lh_plan, lh_plan_parse(text, len, "x", &out, &err))
READER(reads_trace, lh_trace, lh_trace_parse(text, len, "x", &out, &err))
READER(reads_profile, lh_profile, lh_profile_parse(text, len, "x", &out, &err))
READER(reads_events, lh_events, lhi_events_parse(text, len, "x", &out, &err))
READER(reads_pipeline, lh_pipeline,
       lh_pipeline_parse(text, len, "x", &out, &err))
READER(reads_schedule, lh_schedule,
       lh_schedule_parse(text, len, "x", &out, &err))
READER(reads_certificate, lh_certificate,
       lhi_certificate_parse(text, len, "x", &out, &err))
READER(reads_scenario, lh_scenario,
       lh_scenario_parse(text, len, "x", &out, &err))
READER(reads_topology, lh_topology,
       lhi_topology_parse(text, len, "x", &out, &err))
READER(reads_file, lh_plan, lh_plan_read("/nowhere/x", &out, &err))

/* Each writer, which can fail only for lack of memory. */
#define WRITER(name, call)                                                     \
    static lh_status name(bool bad)                                            \
    {                                                                          \
        POISONED(char *, out);                                                 \
        POISONED(size_t, len);                                                 \
        lh_status status = CALL(call, out);                                    \
        left_alone(status, &len, sizeof len);                                  \
        if (status == LH_OK)                                                   \
            lh_text_free(out);                                                 \
        return bad ? LH_EINVAL : status;                                       \
    }
WRITER(writes_job, lh_job_format(job, &out, &len, &err))
WRITER(writes_plan, lh_plan_format(plan, &out, &len, &err))
WRITER(writes_trace, lh_trace_format(trace, &out, &len, &err))
WRITER(writes_pipeline, lh_pipeline_format(pipeline, &out, &len, &err))
WRITER(writes_schedule, lh_schedule_format(schedule, &out, &len, &err))
WRITER(writes_certificate, lh_certificate_format(certificate, &out, &len, &err))
WRITER(writes_svg, lh_report_svg(trace, NULL, &out, &len, &err))
WRITER(writes_terminal, lh_report_terminal(trace, NULL, &out, &len, &err))

#endif
