/* SPDX-License-Identifier: Apache-2.0 */
/* Every public call with its 1st, 2nd, 3rd, ... allocation failing: it returns
 * LH_ENOMEM, returns no object and leaks nothing. Allocations in libyaml and
 * jansson count, too: malloc and related functions are replaced for the whole
 * process, which requires glibc without sanitizers.
 *
 * Each is tried twice: only that allocation fails, and all from it on fail.
 * Beyond a call's first 400 allocations, progressively fewer are tried. */
#define _POSIX_C_SOURCE 200809L
#include "format/job/events_file.h"
#include "format/job/model_size.h"
#include "jobs.h"
#include "network/optical/network.h"
#include "schedule/pipeline/file/schedule_csv.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/check.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/optical.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/report.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/experimental/status.h>
#include <stdlib.h>

/* --- malloc --------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);

static int64_t n_live;      /* allocations not yet freed */
static int64_t fail_at = 0; /* number of the failing one; 0: none */
static int64_t n_asked;
static bool fail_on, has_failed;

static bool fails(void)
{
    n_asked++;
    if (fail_at == 0 || n_asked < fail_at || (n_asked > fail_at && !fail_on))
        return false;
    return has_failed = true;
}

static void *count(void *p)
{
    n_live += p != NULL;
    return p;
}

void *malloc(size_t size)
{
    return fails() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    void *p = __libc_realloc(old, size);
    n_live += p != NULL && old == NULL;
    return p;
}

void free(void *old)
{
    n_live -= old != NULL;
    __libc_free(old);
}

/* glibc's qsort allocates and falls back without memory: a call that succeeds
 * despite a failed allocation would then prove nothing. */
void qsort(void *base, size_t n, size_t size,
           int (*compare)(const void *, const void *))
{
    unsigned char *at = base;
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0; k--) {
            unsigned char *a = at + (k - 1) * size, *b = at + k * size;
            if (compare(a, b) <= 0)
                break;
            for (size_t j = 0; j < size; j++) {
                unsigned char byte = a[j];
                a[j] = b[j];
                b[j] = byte;
            }
        }
}

/* --- calls ---------------------------------------------------------------- */

static const char pipeline_text[] =
    "longhaul: pipeline/1\n"
    "time_unit: ns\n"
    "microbatches: 4\n"
    "devices: 2\n"
    "chunks:\n"
    "  - {device: 0, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
    "  - {device: 1, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
    "links:\n"
    "  - {from: 0, to: 1, latency: 5, transfer: 1, name: a}\n"
    "  - {from: 1, to: 0, latency: 5, transfer: 2, name: b}\n"
    "sites: [{name: west, devices: [0]}, {name: east, devices: [1]}]\n"
    "data_parallel: [{chunk: 0, all_gather: 5, reduce_scatter: 5}]\n"
    "memory_limit: 9\n";
static const char short_text[] =
    "longhaul: pipeline/1\nmicrobatches: 4\ndevices: 2\n"
    "uniform: {placement: wave, F: 2, D: 2, W: 2, memory: {F: 1, W: -1}}\n"
    "datacenters: {count: 2, latency: 1, transfer: 0.5}\n";
static const char profile_text[] =
    "longhaul: profile/1\nmodel: llama3-8b\n"
    "entries:\n"
    "  - {kind: layer, sequence: 4096, F_us: 1, D_us: 1, W_us: 1}\n"
    "links: [{path: node, alpha_us: 3.1, beta_ns_per_byte: 0.0024}]\n";
static const char model_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"vocab_size\": 100,"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 4,"
    " \"num_attention_heads\": 4}";
static char job_yaml[1024];

static const char scenario_text[] =
    "longhaul: optical/1\n"
    "topology:\n"
    "  nodes: [{id: 1}, {id: 2}, {id: 7}]\n"
    "  links: [{a: 1, b: 2, km: 10}, {a: 2, b: 7, km: 20},"
    " {a: 1, b: 7, km: 5}]\n"
    "slots: 32\n"
    "candidate_paths: 2\n"
    "job: {preset: 8b, stages: 3, datacenters: 3, schedule: 1f1b,"
    " microbatches: 4}\n"
    "background: {erlang: 10}\n"
    "request_slots: 2\n"
    "seeds: [1]\n"
    "policies: {cba: {}, slack: {}}\n";

/* Created once, with enough memory. */
static lh_pipeline *pipeline;
static lh_schedule *schedule, *ordered;
static lh_timeline *timeline;
static lh_analysis *analysis;
static lh_trace *trace;
static lh_profile *profile;
static lh_job *job;
static lh_job *open_job;
static lh_plan *plan, *open_plan;
static lh_scenario *scenario;
static lh_optical *optical;
static char *trace_text, *plan_text, *open_plan_text;
static char folder[] = "/tmp/longhaul-oom-XXXXXX", file[64], csv_file[64];
static lh_error err;

#define LEN(text) (sizeof(text) - 1)

/* CALL(name, type, call, release): creates and releases `out` of that type. */
#define CALL(name, type, call, release)                                        \
    static lh_status name(void)                                                \
    {                                                                          \
        type *out = NULL;                                                      \
        lh_status status = call;                                               \
        CHECK_MSG((status == LH_OK) == (out != NULL), #name " hands out");     \
        release(out);                                                          \
        return status;                                                         \
    }
#define TEXT(name, call) CALL(name, char, call, lh_text_free)

CALL(pipeline_parse, lh_pipeline,
     lh_pipeline_parse(pipeline_text, LEN(pipeline_text), "p", &out, &err),
     lh_pipeline_free)
CALL(shorthand_parse, lh_pipeline,
     lh_pipeline_parse(short_text, LEN(short_text), "p", &out, &err),
     lh_pipeline_free)
CALL(pipeline_read, lh_pipeline, lh_pipeline_read(file, &out, &err),
     lh_pipeline_free)
TEXT(pipeline_format, lh_pipeline_format(pipeline, &out, NULL, &err))
CALL(schedule_parse, lh_schedule,
     lh_schedule_parse("0F0,0B0\n1F0\n", 12, "s", &out, &err), lh_schedule_free)
CALL(schedule_read, lh_schedule, lh_schedule_read(csv_file, false, &out, &err),
     lh_schedule_free)
TEXT(schedule_format, lh_schedule_format(ordered, &out, NULL, &err))
TEXT(links_format, lhi_schedule_format_links(ordered, &out, NULL, &err))
CALL(schedule_whole, lh_schedule,
     lh_schedule_merge_parts(pipeline, schedule, &out, &err), lh_schedule_free)
CALL(schedule_whole_alone, lh_schedule,
     lh_schedule_merge_parts(NULL, schedule, &out, &err), lh_schedule_free)
CALL(simulate, lh_timeline, lh_simulate(pipeline, ordered, NULL, &out, &err),
     lh_timeline_free)
CALL(evaluator_make, lh_evaluator,
     lh_evaluator_make(pipeline, NULL, &out, &err), lh_evaluator_free)
CALL(check, lh_verdict, lh_check(pipeline, ordered, &out, &err),
     lh_verdict_free)
CALL(analysis_make, lh_analysis,
     lh_analysis_make(pipeline, schedule, timeline, &out, &err),
     lh_analysis_free)
CALL(trace_make, lh_trace, lh_trace_make(pipeline, timeline, "oom", &out, &err),
     lh_trace_free)
TEXT(trace_format, lh_trace_format(trace, &out, NULL, &err))
CALL(trace_parse, lh_trace,
     lh_trace_parse(trace_text, strlen(trace_text), "t", &out, &err),
     lh_trace_free)
CALL(model_parse, lh_model,
     lhi_model_parse(model_text, LEN(model_text), "m", &out, &err),
     lh_model_free)
CALL(profile_parse, lh_profile,
     lh_profile_parse(profile_text, LEN(profile_text), "p", &out, &err),
     lh_profile_free)
static const char events_text[] =
    "longhaul: events/1\nevents:\n"
    "  - {from: 0, to: 2, links: [a], latency: 1}\n"
    "  - {from: 1, to: 3, device: 1, slower: x2}\n";
static lh_events *events;
static lh_event_timeline *course;
CALL(events_parse, lh_events,
     lhi_events_parse(events_text, LEN(events_text), "e", &out, &err),
     lh_events_free)
TEXT(events_format, lhi_events_format(events, &out, NULL, &err))
CALL(course_make, lh_event_timeline,
     lh_event_timeline_make(pipeline, events, NULL, &out, &err),
     lh_event_timeline_free)
CALL(course_pipeline, lh_pipeline,
     lh_event_timeline_pipeline(course, 2, &out, &err), lh_pipeline_free)
TEXT(profile_format, lh_profile_format(profile, &out, NULL, &err))
CALL(job_parse, lh_job,
     lh_job_parse(job_yaml, strlen(job_yaml), "j", NULL, &out, &err),
     lh_job_free)
TEXT(job_format, lh_job_format(job, &out, NULL, &err))
/* Allocation counts are per thread; test_plan_threads covers several. */
static const lh_plan_options one_thread = {.size = sizeof one_thread,
                                           .threads = 1};
CALL(plan_make, lh_plan, lh_plan_make(job, &one_thread, &out, &err),
     lh_plan_free)
static const lh_jitter jitter = {
    .size = sizeof jitter, .latency = 0.5, .samples = 3};
static const lh_plan_options robust = {
    .size = sizeof robust, .threads = 1, .jitter = &jitter};
CALL(plan_make_robust, lh_plan, lh_plan_make(job, &robust, &out, &err),
     lh_plan_free)
static const lh_plan_options drawn = {.size = sizeof drawn,
                                      .threads = 1,
                                      .no_optimal = true,
                                      .partition = LH_PARTITION_MONTE_CARLO,
                                      .sampling = {4, 3, 4, 3, 1}};
CALL(plan_make_drawn, lh_plan, lh_plan_make(job, &drawn, &out, &err),
     lh_plan_free)
static const lh_plan_options exact = {.size = sizeof exact,
                                      .threads = 1,
                                      .no_optimal = true,
                                      .partition = LH_PARTITION_EXACT};
CALL(plan_make_exact, lh_plan, lh_plan_make(job, &exact, &out, &err),
     lh_plan_free)
static const lh_link_change slower = {LH_ALL_LINKS, LH_ALL_LINKS,
                                      LH_LINK_LATENCY, true, 2};
static const lh_plan_whatif_question slower_links = {"latency=x2", 1, &slower};
static const lh_plan_options links = {.size = sizeof links,
                                      .threads = 1,
                                      .quick = true,
                                      .pareto_front = true,
                                      .usd_per_gpu_hour = 2,
                                      .n_questions = 1,
                                      .questions = &slower_links,
                                      .sensitivity = true,
                                      .range = 2};
static const lh_plan_options cheapest = {.size = sizeof cheapest,
                                         .threads = 1,
                                         .quick = true,
                                         .objective = LH_PLAN_CHEAPEST,
                                         .pareto_front = true,
                                         .usd_per_gpu_hour = 2,
                                         .usd_per_gb = 0.1};
CALL(plan_make_cheapest, lh_plan, lh_plan_make(open_job, &cheapest, &out, &err),
     lh_plan_free)
CALL(plan_make_links, lh_plan, lh_plan_make(open_job, &links, &out, &err),
     lh_plan_free)
CALL(plan_parse, lh_plan,
     lh_plan_parse(plan_text, strlen(plan_text), "p", &out, &err), lh_plan_free)
TEXT(plan_format, lh_plan_format(plan, &out, NULL, &err))
CALL(open_plan_parse, lh_plan,
     lh_plan_parse(open_plan_text, strlen(open_plan_text), "p", &out, &err),
     lh_plan_free)
TEXT(open_plan_format, lh_plan_format(open_plan, &out, NULL, &err))
CALL(plan_pipeline, lh_pipeline,
     lh_plan_pipeline(job, &plan->best.layout, LH_PLACEMENT_UD,
                      LH_RECOMPUTE_NONE, &out, NULL, &err),
     lh_pipeline_free)
TEXT(svg, lh_report_svg(trace, NULL, &out, NULL, &err))
TEXT(terminal, lh_report_terminal(trace, NULL, &out, NULL, &err))
CALL(report_analysis, lh_report_analysis,
     lh_report_analysis_make(trace, analysis, &out, &err),
     lh_report_analysis_free)

CALL(scenario_parse, lh_scenario,
     lh_scenario_parse(scenario_text, LEN(scenario_text), "s", &out, &err),
     lh_scenario_free)
CALL(optical_run, lh_optical,
     lh_optical_run_all(scenario,
                        &(lh_optical_options){
                            .size = sizeof(lh_optical_options), .threads = 1},
                        &out, &err),
     lh_optical_free)
TEXT(optical_html, lh_optical_html(scenario, optical, &out, NULL, &err))

static lh_status routes(void)
{
    lh_route *out = NULL;
    uint32_t n = 0;
    lh_status status = lhi_topology_routes(lh_scenario_topology(scenario), 0, 2,
                                           2, &out, &n, &err);
    CHECK((status == LH_OK) == (out != NULL));
    lhi_routes_free(out);
    return status;
}

static lh_status solve(void)
{
    lh_solve_options o = {.size = sizeof o, .effort = 2000, .memory = 1 << 20};
    lh_solution solution = {0};
    lh_status status = lh_solve(pipeline, &o, &solution, &err);
    lh_solution_fini(&solution);
    return status;
}

/* The whole report: intermediate calls return no other objects. */
static lh_status html(void)
{
    lh_report *report = NULL;
    char *text = NULL;
    lh_report_row row = {"1f1b", "ok", 1, 0.5, 2, "why"};
    const double xs[] = {0, 1};
    const char *series[] = {"1f1b"};
    const int64_t makespans[] = {1, 2};
    lh_report_sweep sweep = {.size = sizeof sweep,
                             .x = "latency",
                             .n_points = 2,
                             .xs = xs,
                             .n_series = 1,
                             .series = series,
                             .makespan_ns = makespans};
    lh_status status = lh_report_make("oom", &report, &err);
    if (status == LH_OK)
        status = lh_report_add_fact(report, "name", "value", &err);
    if (status == LH_OK)
        status = lh_report_add_trace(report, trace, "x", NULL, &err);
    if (status == LH_OK)
        status = lh_report_add_row(report, &row, &err);
    if (status == LH_OK)
        status = lh_report_add_sweep(report, &sweep, &err);
    if (status == LH_OK)
        status = lh_report_format_html(report, &text, NULL, &err);
    CHECK((status == LH_OK) == (text != NULL));
    lh_text_free(text);
    lh_report_free(report);
    return status;
}

static lh_status evaluate(void)
{
    lh_evaluator *e = NULL;
    int64_t ns = 0;
    lh_status status = lh_evaluator_make(pipeline, NULL, &e, &err);
    if (status == LH_OK)
        status = lh_evaluator_run(e, ordered, &ns, &err);
    lh_evaluator_free(e);
    return status;
}

static lh_status lower_bound(void)
{
    lh_bound bound;
    return lhi_compute_closed_form_bound(pipeline, &bound, &err);
}

static lh_status write_file(void)
{
    return lh_file_write(file, pipeline_text, LEN(pipeline_text), &err);
}

static lh_status write_schedule(void)
{
    return lh_schedule_write(ordered, csv_file, &err);
}

static const char *method;

CALL(method_run, lh_schedule,
     lh_method_run(method, pipeline,
                   &(lh_method_options){.size = sizeof(lh_method_options),
                                        .sub_blocks = 2},
                   &out, NULL, &err),
     lh_schedule_free)

/* --- runs ----------------------------------------------------------------- */

/* Runs once with allocation number `at` failing; false: not reached. */
static bool try_once(const char *name, lh_status (*call)(void), int64_t at,
                     bool on)
{
    int64_t before = n_live;
    err = (lh_error){0};
    fail_at = at;
    fail_on = on;
    has_failed = false;
    n_asked = 0;
    lh_status status = call();
    fail_at = 0;
    CHECK_MSG(n_live == before, "%s loses %" PRId64 " (at %" PRId64 ")", name,
              n_live - before, at);
    if (!has_failed) {
        CHECK_MSG(status == LH_OK, "%s fails: %s", name, err.text);
        return false;
    }
    CHECK_MSG(status == LH_ENOMEM && err.code == LH_ENOMEM && err.text[0],
              "%s says '%s' (%s) at allocation %" PRId64, name,
              lh_status_name(status), err.text, at);
    return true;
}

static void try_all(const char *name, lh_status (*call)(void))
{
    CHECK_MSG(call() == LH_OK, "%s fails: %s", name, err.text);
    int64_t at = 1;
    while (!test_state.bad && try_once(name, call, at, false) &&
           try_once(name, call, at, true))
        at += at < 400 ? 1 : at / 40;
}

#define TRY(call) try_all(#call, call)

static void formats(void)
{
    TRY(pipeline_parse);
    TRY(shorthand_parse);
    TRY(pipeline_format);
    TRY(write_file);
    TRY(pipeline_read);
    TRY(schedule_parse);
    TRY(schedule_format);
    TRY(links_format);
    TRY(write_schedule);
    TRY(schedule_read);
    TRY(trace_format);
    TRY(trace_parse);
    TRY(model_parse);
    TRY(profile_parse);
    TRY(events_parse);
    TRY(events_format);
    TRY(course_make);
    TRY(course_pipeline);
    TRY(profile_format);
    TRY(job_parse);
    TRY(job_format);
    TRY(plan_format);
    TRY(plan_parse);
    TRY(open_plan_format);
    TRY(open_plan_parse);
}

static void running(void)
{
    TRY(simulate);
    TRY(evaluator_make);
    TRY(evaluate);
    TRY(check);
    TRY(analysis_make);
    TRY(lower_bound);
    TRY(schedule_whole);
    TRY(schedule_whole_alone);
    TRY(trace_make);
}

static void methods(void)
{
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        method = lh_method_name(m);
        if (method_run() == LH_OK)
            try_all(method, method_run);
        else
            CHECK_INT(err.code, LH_EUNSUPPORTED);
    }
}

static void planning(void)
{
    TRY(plan_pipeline);
    TRY(plan_make);
    TRY(plan_make_robust);
    TRY(plan_make_drawn);
    TRY(plan_make_exact);
    TRY(plan_make_links);
    TRY(plan_make_cheapest);
}

static void solving(void)
{
    TRY(solve);
}

static void optics(void)
{
    TRY(scenario_parse);
    TRY(routes);
    TRY(optical_run);
    TRY(optical_html);
}

static void pictures(void)
{
    TRY(svg);
    TRY(terminal);
    TRY(report_analysis);
    TRY(html);
}

static bool prepare(void)
{
    static const lh_pass forth[] = {{0, 0, 0, 1, LH_F, false},
                                    {0, 1, 0, 1, LH_F, false},
                                    {0, 2, 0, 1, LH_F, false},
                                    {0, 3, 0, 1, LH_F, false}};
    const lh_link_order order = {"a", 4, forth};
    const lh_method_options cut = {.size = sizeof cut, .sub_blocks = 2};
    const lh_optical_options alone = {.size = sizeof alone, .threads = 1};
    const lh_pass *rows[2];
    uint32_t counts[2];
    if (!mkdtemp(folder))
        return false;
    snprintf(file, sizeof file, "%s/p.yaml", folder);
    snprintf(csv_file, sizeof csv_file, "%s/s.csv", folder);
    if (lh_pipeline_parse(pipeline_text, LEN(pipeline_text), "p", &pipeline,
                          &err) ||
        lh_method_run("greedy", pipeline, &cut, &schedule, NULL, &err))
        return false;
    for (uint32_t d = 0; d < 2; d++)
        rows[d] = lh_schedule_order(schedule, d, &counts[d]);
    job_text(job_yaml, sizeof job_yaml, JOB_SMALL, "%s",
             "layout: {pipeline: 2, data: 1, micro_batch: 1,\n"
             "         chunks_per_device: 1, outermost: pipeline}\n");
    /* At three quarters of the bandwidth another layout is best. */
    open_job = job_with(
        JOB_SMALL,
        "  links: [{between: [west, east], latency_ms: 0.01, gbps: 320}]\n"
        "model: {layers: 4, hidden: 1024, ffn: 4096, heads: 4, vocab: 100}\n"
        "training: {global_batch: 4, sequence: 1024, recompute: none}\n"
        "layout: {micro_batch: 1, schedule: 1f1b, sharding: full}\n");
    return open_job &&
           !lh_schedule_make(2, rows, counts, 1, &order, &ordered, &err) &&
           !lh_simulate(pipeline, schedule, NULL, &timeline, &err) &&
           !lh_analysis_make(pipeline, schedule, timeline, &analysis, &err) &&
           !lh_trace_make(pipeline, timeline, "oom", &trace, &err) &&
           !lh_trace_format(trace, &trace_text, NULL, &err) &&
           !lh_profile_parse(profile_text, LEN(profile_text), "p", &profile,
                             &err) &&
           !lhi_events_parse(events_text, LEN(events_text), "e", &events,
                             &err) &&
           !lh_event_timeline_make(pipeline, events, NULL, &course, &err) &&
           !lh_job_parse(job_yaml, strlen(job_yaml), "j", NULL, &job, &err) &&
           !lh_plan_make(job, &robust, &plan, &err) &&
           !lh_plan_format(plan, &plan_text, NULL, &err) &&
           !lh_plan_make(open_job, &links, &open_plan, &err) &&
           open_plan->sensitivity->ranges[1].n_break_evens == 1 &&
           !lh_plan_format(open_plan, &open_plan_text, NULL, &err) &&
           !lh_scenario_parse(scenario_text, LEN(scenario_text), "s", &scenario,
                              &err) &&
           !lh_optical_run_all(scenario, &alone, &optical, &err);
}

static void clean_up(void)
{
    char path[80];
    remove(file);
    remove(csv_file);
    snprintf(path, sizeof path, "%s/s.links.csv", folder);
    remove(path);
    remove(folder);
    lh_text_free(trace_text);
    lh_text_free(plan_text);
    lh_optical_free(optical);
    lh_scenario_free(scenario);
    lh_plan_free(plan);
    lh_job_free(job);
    lh_text_free(open_plan_text);
    lh_plan_free(open_plan);
    lh_job_free(open_job);
    lh_event_timeline_free(course);
    lh_events_free(events);
    lh_profile_free(profile);
    lh_trace_free(trace);
    lh_analysis_free(analysis);
    lh_timeline_free(timeline);
    lh_schedule_free(ordered);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
}

int main(void)
{
    if (!prepare()) {
        fprintf(stderr, "cannot prepare: %s\n", err.text);
        return 1;
    }
    RUN(formats);
    RUN(running);
    RUN(methods);
    RUN(planning);
    RUN(pictures);
    RUN(solving);
    RUN(optics);
    clean_up();
    return test_summary();
}
