/* SPDX-License-Identifier: Apache-2.0 */
/* What fails leaves its outputs alone, and what succeeds the error: each call
 * with something wrong about it, and with every allocation failing in turn. */
#include "fail_alloc.h"
#include "jobs.h"
#include "small_trace.h"
#include "uniform.h"

#include <longhaul/advice.h>
#include <longhaul/analysis.h>
#include <longhaul/best.h>
#include <longhaul/check.h>
#include <longhaul/compare.h>
#include <longhaul/cost.h>
#include <longhaul/draft.h>
#include <longhaul/elastic.h>
#include <longhaul/engine.h>
#include <longhaul/events.h>
#include <longhaul/jitter.h>
#include <longhaul/kernels.h>
#include <longhaul/monitor.h>
#include <longhaul/optical.h>
#include <longhaul/plan.h>
#include <longhaul/tradeoff.h>

enum { POISON = 0x5a };

static lh_error err;

/* An output before the call: nothing that a call would write. */
#define POISONED(type, name)                                                   \
    type name;                                                                 \
    memset(&name, POISON, sizeof name)

static bool is_poison(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != POISON)
            return false;
    return true;
}

static const char *test_name; /* of what is called */

/* Goes on with the call's status. */
static lh_status left_alone(lh_status status, const void *out, size_t size)
{
    if (status != LH_OK)
        CHECK_MSG(is_poison(out, size), "%s: %s, and writes its output",
                  test_name, lh_status_name(status));
    else
        CHECK_MSG(is_poison(&err, sizeof err), "%s succeeds and says '%s'",
                  test_name, err.text);
    return status;
}

#define CALL(call, out)                                                        \
    (memset(&err, POISON, sizeof err), left_alone(call, &(out), sizeof(out)))

/* --- what the calls are given --------------------------------------------- */

static lh_pipeline *pipeline, *other;
static lh_schedule *schedule;
static lh_timeline *timeline;
static lh_analysis *analysis;
static lh_trace *trace;
static lh_job *job;
static lh_plan *plan;
static lh_exec *exec;
static lh_solution solution;
static lh_certificate *certificate;
static lh_topology *topology;
static const lh_layout layout = {.tensor = 1,
                                 .context = 1,
                                 .expert = 1,
                                 .pipeline = 2,
                                 .data = 1,
                                 .micro_batch = 1,
                                 .chunks_per_device = 1};
static const lh_elastic_case elastic = {.stages = 2,
                                        .replicas = 2,
                                        .chunks = 2,
                                        .microbatches = 4,
                                        .f_ns = 10,
                                        .b_ns = 20,
                                        .dp_ns = 3,
                                        .pp_ns = 1,
                                        .params = 100};

static void make_all(void)
{
    lh_error why = {0};
    lh_solve_options o = {.size = sizeof o, .effort = 20000};
    lh_plan_options quick = {
        .size = sizeof quick, .quick = true, .no_optimal = true};
    static const char nodes[] =
        "nodes: [{id: 1}, {id: 2}]\nlinks: [{a: 1, b: 2, km: 1}]\n";
    pipeline = uniform_make(
        (uniform){"ud", 2, 3, 2e-3, 3e-3, 1e-3, 2, 1e-3, 1e-4, 0, NULL});
    other = uniform_make((uniform){"ud", 3, 3, 2, 3, 1, 0, 0, 0, 1, NULL});
    job = job_with(JOB_SMALL, "%s", "");
    CHECK_OK(lh_method_run("1f1b", pipeline, NULL, &schedule, NULL, &why), why);
    CHECK_OK(lh_simulate(pipeline, schedule, NULL, &timeline, &why), why);
    CHECK_OK(lh_analysis_make(pipeline, schedule, timeline, &analysis, &why),
             why);
    CHECK_OK(lh_trace_make(pipeline, timeline, NULL, &trace, &why), why);
    CHECK_OK(lh_plan_make(job, &quick, &plan, &why), why);
    CHECK_OK(lh_exec_make(pipeline, schedule, NULL, &exec, &why), why);
    CHECK_OK(lh_solve(pipeline, &o, &solution, &why), why);
    CHECK_OK(lh_certify(pipeline, &o, &solution, &certificate, &why), why);
    CHECK_OK(lh_topology_parse(nodes, strlen(nodes), "t", &topology, &why),
             why);
}

static void free_all(void)
{
    lh_topology_free(topology);
    lh_certificate_free(certificate);
    lh_solution_fini(&solution);
    lh_exec_free(exec);
    lh_plan_free(plan);
    lh_trace_free(trace);
    lh_analysis_free(analysis);
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lh_job_free(job);
    lh_pipeline_free(other);
    lh_pipeline_free(pipeline);
}

/* --- the calls: `bad` makes them fail ------------------------------------- */

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

static lh_status describes(bool bad)
{
    POISONED(lh_pipeline_desc, out);
    POISONED(lh_pipeline_desc, rest); /* all but `size`, which is an input */
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
    return CALL(lh_method_find(bad ? "x" : "1f1b", &out, &err), out);
}

static lh_status chooses(const char *name, bool bad)
{
    POISONED(lh_best, out);
    lh_best_options o = {.size = sizeof o, .effort = 2000};
    lh_status status =
        CALL(lh_best_schedule(bad ? "no such" : name, pipeline, &o, &out, &err),
             out);
    if (status == LH_OK)
        lh_best_fini(&out);
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
    (void)bad; /* only memory can be missing */
    lh_status status = CALL(lh_lower_bound(pipeline, &out, &err), out);
    return bad ? LH_EINVAL : status;
}

static lh_status weighs(bool bad)
{
    POISONED(lh_memory_point, out);
    lh_solve_options each = {.size = sizeof each, .effort = 2000};
    lh_tradeoff_options o = {
        .size = sizeof o, .each = &each, .makespan_ns = bad ? 1 : 0};
    lh_status status = CALL(lh_least_memory(pipeline, &o, &out, &err), out);
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
    lh_tradeoff_options o = {.size = sizeof o, .each = &each, .points = 2};
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

/* A device that is there, or not. */
static lh_events slow_device(bool bad, lh_event *e)
{
    *e = (lh_event){.to = 2,
                    .latency_times = 1,
                    .transfer_times = 1,
                    .slower = 2,
                    .device = bad ? 99 : 0,
                    .rank = LH_NONE};
    return (lh_events){"events", 1, e};
}

static lh_status follows(bool bad)
{
    POISONED(lh_course *, out);
    lh_event e;
    lh_events events = slow_device(bad, &e);
    lh_status status =
        CALL(lh_course_make(pipeline, &events, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_course_free(out);
    return status;
}

static lh_status plays(bool bad)
{
    POISONED(int64_t, out);
    POISONED(lh_pipeline *, at);
    lh_event e;
    lh_events events = slow_device(false, &e);
    lh_course *course = NULL;
    lh_status status =
        lh_course_make(bad ? other : pipeline, &events, NULL, &course, &err);
    if (status != LH_OK)
        return status;
    status = CALL(lh_course_pipeline(course, 1, &at, &err), at);
    if (status == LH_OK) {
        lh_pipeline_free(at);
        status =
            CALL(lh_course_play(course, schedule, NULL, 1, &out, &err), out);
    }
    lh_course_free(course);
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
                         .goal = bad ? LH_PLAN_CHEAPEST : LH_PLAN_FASTEST};
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
    lh_cost_slice slice = {.n_layers = bad ? 99 : 2};
    return CALL(lh_cost_chunk(job, &layout, &slice, NULL, &out, &err), out);
}

static lh_status lists_ops(bool bad)
{
    enum { N = LH_COST_MAX_OPS };
    lh_cost_op ops[N];
    POISONED(uint32_t, n);
    lh_cost_slice slice = {.n_layers = 2};
    lh_layout l = layout;
    l.micro_batch = bad ? UINT32_MAX : 1;
    lh_job large = *job;
    large.training.sequence = bad ? UINT32_MAX : job->training.sequence;
    memset(ops, POISON, sizeof ops);
    lh_status status =
        CALL(lh_cost_layer_ops(&large, &l, &slice, 0, NULL, ops, &n, &err), n);
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
    lh_cost_slice slice = {.n_layers = 2, .data_datacenters = bad ? 2 : 1};
    return CALL(
        lh_cost_group_of(job, &layout, LH_COST_DATA, &slice, &out, &err), out);
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
    return CALL(lh_cost_all_to_all(job, &g, 1e6, NULL, &out[0], &out[1], &err),
                out);
}

static lh_status sends(bool bad)
{
    POISONED(lh_cost_message, out);
    lh_cost_hop hop = {.to = bad ? 7 : 1};
    return CALL(lh_cost_hop_message(job, &layout, &hop, NULL, &out, &err), out);
}

static lh_status sets_link(bool bad)
{
    POISONED(lh_link_effect, out);
    lh_link_load load = {.line_bytes_per_s = bad ? -1 : 1e9,
                         .oversubscription = 1,
                         .senders = 1};
    lh_link_setting setting = {.queue_pairs = 2};
    return CALL(lh_cost_link_setting(&load, &setting, &out, &err), out);
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
        listed = CALL(lh_elastic_operations(&g, p, &ops, &n, &err), ops);
        left_alone(listed, &n, sizeof n);
        if (listed == LH_OK)
            lh_elastic_ops_free(ops);
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
    POISONED(lh_elastic_best *, out);
    static const lh_elastic_op ops[] = {{10, 2}, {20, 1}};
    lh_elastic_setting s = {.given = elastic, .n_ops = 2, .ops = ops};
    lh_status status = CALL(
        lh_elastic_search_events(1, &s, bad ? 1 : 1 << 20, &out, &err), out);
    if (status == LH_OK)
        lh_elastic_best_free(out);
    return status;
}

static lh_status reconstructs(bool bad)
{
    POISONED(lh_reconstruction, out);
    lh_kernel k[2];
    memset(k, 0, sizeof k);
    k[0].ns[0] = 3;
    k[1].ns[0] = bad ? -1 : 2;
    return CALL(lh_kernels_reconstruct(k, 2, &out, &err), out);
}

static lh_status routes(bool bad)
{
    POISONED(lh_route *, out);
    POISONED(uint32_t, n);
    lh_status status = CALL(
        lh_topology_routes(topology, 0, bad ? 0 : 1, 2, &out, &n, &err), out);
    left_alone(status, &n, sizeof n);
    if (status == LH_OK)
        lh_routes_free(out);
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

/* Each reader of texts, over what it cannot read; that nothing else stands in
 * *out is all there is to ask. */
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
READER(reads_model, lh_model, lh_model_parse(text, len, "x", &out, &err))
READER(reads_plan, lh_plan, lh_plan_parse(text, len, "x", &out, &err))
READER(reads_trace, lh_trace, lh_trace_parse(text, len, "x", &out, &err))
READER(reads_profile, lh_profile, lh_profile_parse(text, len, "x", &out, &err))
READER(reads_events, lh_events, lh_events_parse(text, len, "x", &out, &err))
READER(reads_pipeline, lh_pipeline,
       lh_pipeline_parse(text, len, "x", &out, &err))
READER(reads_schedule, lh_schedule,
       lh_schedule_parse(text, len, "x", &out, &err))
READER(reads_certificate, lh_certificate,
       lh_certificate_parse(text, len, "x", &out, &err))
READER(reads_scenario, lh_scenario,
       lh_scenario_parse(text, len, "x", &out, &err))
READER(reads_topology, lh_topology,
       lh_topology_parse(text, len, "x", &out, &err))
READER(reads_file, lh_plan, lh_plan_read("/nowhere/x", &out, &err))

/* Each writer, which only memory can be missing to. */
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

/* --- all of them ---------------------------------------------------------- */

#define EACH(X)                                                                \
    X(takes_pipeline)                                                          \
    X(describes)                                                               \
    X(makes_schedule)                                                          \
    X(finds_method)                                                            \
    X(chooses_auto)                                                            \
    X(chooses_optimal)                                                         \
    X(solves)                                                                  \
    X(certifies)                                                               \
    X(bounds)                                                                  \
    X(weighs)                                                                  \
    X(draws_curve)                                                             \
    X(simulates)                                                               \
    X(evaluates)                                                               \
    X(analyses)                                                                \
    X(shakes)                                                                  \
    X(follows)                                                                 \
    X(plays)                                                                   \
    X(monitors)                                                                \
    X(estimates)                                                               \
    X(judges)                                                                  \
    X(judges_certificate)                                                      \
    X(makes_trace)                                                             \
    X(lowers)                                                                  \
    X(plans)                                                                   \
    X(plans_pipeline)                                                          \
    X(compares)                                                                \
    X(prices)                                                                  \
    X(lists_ops)                                                               \
    X(drafts)                                                                  \
    X(finds_group)                                                             \
    X(finds_path)                                                              \
    X(exchanges)                                                               \
    X(sends)                                                                   \
    X(sets_link)                                                               \
    X(queues)                                                                  \
    X(times_events)                                                            \
    X(chooses_elastic)                                                         \
    X(searches_elastic)                                                        \
    X(reconstructs)                                                            \
    X(routes)                                                                  \
    X(loads)                                                                   \
    X(reads_job)                                                               \
    X(reads_model)                                                             \
    X(reads_plan)                                                              \
    X(reads_trace)                                                             \
    X(reads_profile)                                                           \
    X(reads_events)                                                            \
    X(reads_pipeline)                                                          \
    X(reads_schedule)                                                          \
    X(reads_certificate)                                                       \
    X(reads_scenario)                                                          \
    X(reads_topology)                                                          \
    X(reads_file)                                                              \
    X(writes_job)                                                              \
    X(writes_plan)                                                             \
    X(writes_trace)                                                            \
    X(writes_pipeline)                                                         \
    X(writes_schedule)                                                         \
    X(writes_certificate)                                                      \
    X(writes_svg)                                                              \
    X(writes_terminal)

static const struct {
    const char *name;
    lh_status (*call)(bool bad);
} calls[] = {
#define ROW(name) {#name, name},
    EACH(ROW)
#undef ROW
};

static bool reads(const char *name)
{
    return strncmp(name, "reads_", 6) == 0;
}

/* Its ranks allocate on threads of their own, which has no order. */
static void wrong_transport(void)
{
    test_name = "trains";
    CHECK(trains(true) != LH_OK);
    CHECK(trains(false) == LH_OK);
}

static void wrong_input(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        test_name = calls[i].name;
        CHECK_MSG(calls[i].call(true) != LH_OK, "%s does not fail", test_name);
        if (!reads(test_name))
            CHECK_MSG(calls[i].call(false) == LH_OK, "%s fails: %s", test_name,
                      err.text);
    }
}

/* As FAIL_EACH_ALLOC, but a call that needs many allocations is not run that
 * often: after some it fails in steps. */
static void no_memory(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        test_name = calls[i].name;
        for (int64_t n = 0;; n += 1 + n / 16) {
            fail_alloc_hit = false;
            fail_alloc_after = n;
            calls[i].call(false);
            fail_alloc_after = -1;
            if (!fail_alloc_hit)
                break;
        }
    }
}

int main(void)
{
    make_all();
    RUN(wrong_transport);
    RUN(wrong_input);
    RUN(no_memory);
    free_all();
    return test_summary();
}
