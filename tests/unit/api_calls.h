/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the API once for each struct that begins with `size` and records the
 * result as text. api_report_calls.h has the calls for reports. */
#ifndef API_CALLS_H
#define API_CALLS_H

#include "jobs.h"
#include "network/optical/network.h"
#include "report/diagnosis/recording.h"
#include "resilience/monitor/monitor.h"
#include "small_recording.h"
#include "test.h"
#include "uniform.h"

#include <dirent.h>
#include <fcntl.h>
#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/compare.h>
#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/delegate.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/draft.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/import.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/monitor.h>
#include <longhaul/experimental/optical.h>
#include <longhaul/experimental/packets.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/size.h>
#include <longhaul/experimental/tradeoff.h>
#include <longhaul/export.h>
#include <longhaul/scheduler.h>
#include <stddef.h>
#include <unistd.h>

/* The result of the last call, as text. */
static char outcome[1 << 20];

/* Writes the formatted text to outcome if the status is LH_OK; returns the
 * status. */
static lh_status say(lh_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (status == LH_OK)
        vsnprintf(outcome, sizeof outcome, format, list);
    va_end(list);
    return status;
}

/* Writes the text (NULL: empty) to outcome and frees it; returns the status. */
static lh_status say_text(lh_status status, char *text)
{
    status = say(status, "%s", text ? text : "");
    lh_text_free(text);
    return status;
}

/* Returns a small pipeline: 2 devices, 4 microbatches, two datacenters. */
static lh_pipeline *pipeline(void)
{
    return uniform_make(
        (uniform){"ud", 2, 4, 2e-3, 3e-3, 1e-3, 2, 1e-3, 1e-4, 0, NULL});
}

/* Returns the 1F1B schedule for the pipeline. */
static lh_schedule *schedule(const lh_pipeline *p)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    return s;
}

/* Writes the schedule's text to outcome and frees the schedule. */
static lh_status say_schedule(lh_status status, lh_schedule *s, lh_error *err)
{
    char *text = NULL;
    if (status == LH_OK)
        status = lh_schedule_format(s, &text, NULL, err);
    lh_schedule_free(s);
    return say_text(status, text);
}

/* The objects that results point to; set by main(). */
static lh_simulated simulated_all = {.size = sizeof simulated_all,
                                     .name = "1f1b",
                                     .objective =
                                         LH_SOLVE_OBJECTIVE_FIRST_DEVICE};
static const lh_solve_engine engine = {.name = "beams", .calls = 3};
static const lh_memory_point least = {.limit = 7, .limit_bound = 6};
static lh_scheduled scheduled_all = {.size = sizeof scheduled_all,
                                     .requested = "auto",
                                     .method = "1f1b",
                                     .bound_ns = 5,
                                     .limited_by = "a device",
                                     .seconds = 0.5,
                                     .n_engines = 1,
                                     .engines = &engine,
                                     .memory = &least};

/* --- one call per struct -------------------------------------------------- */

static lh_status told(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_simulated_format(given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status bounded(const void *given, lh_error *err)
{
    lh_bound bound = {0};
    lh_status status = lh_simulated_bound(given, &bound, err);
    return say(status, "%s", bound.text);
}

static lh_status told_schedule(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_scheduled_format(given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status weighed(const void *given, lh_error *err)
{
    lh_schedule *plain = NULL;
    int64_t fifo_ns = 0;
    lh_status status = lh_schedule_drop_useless_link_orders(
        simulated_all.pipeline, simulated_all.schedule, given, &plain, &fifo_ns,
        err);
    lh_schedule_free(plain);
    return say(status, "%d", (int)fifo_ns);
}

static lh_status simulated(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_timeline *t = NULL;
    lh_status status = lh_simulate(p, s, given, &t, err);
    say(status, "%" PRId64, t ? lh_timeline_makespan(t) : 0);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status watched(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_monitor *m = NULL;
    lh_status status = lh_monitor_make(p, s, given, &m, err);
    say(status, "%g", m ? lhi_monitor_link(m, 0).delay_ns : 0.);
    lh_monitor_free(m);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status delegated(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline(), *staged = NULL;
    lh_sim_options how;
    lh_status status = lh_delegate(p, NULL, given, &staged, &how, err);
    say(status, "%" PRId64,
        staged ? lh_pipeline_link(staged, 0)->latency_ns : 0);
    lh_pipeline_free(staged);
    lh_pipeline_free(p);
    return status;
}

static lh_status adapted(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_adapt *a = NULL;
    const lh_decision *d = NULL;
    const lh_adapt_input now = {.size = sizeof now, .pipeline = p};
    lh_status status = lh_adapt_make(p, s, given, &a, err);
    if (status == LH_OK)
        status = lh_adapt_decide(a, &now, &d, err);
    say(status, "%" PRId64, d ? d->switch_ns : 0);
    lh_adapt_free(a);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status adapting(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    const lh_events none = {.name = "none"};
    lh_event_timeline *course = NULL;
    lh_emulation *played = NULL;
    uint64_t n;
    lh_status status = lh_event_timeline_make(p, &none, NULL, &course, err);
    if (status == LH_OK)
        status = lh_adapt_emulate(course, s, given, 3, &played, err);
    say(status, "%" PRId64, played ? lh_emulation_steps(played, &n)[2].ns : 0);
    lh_emulation_free(played);
    lh_event_timeline_free(course);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status decides(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_adapt *a = NULL;
    const lh_decision *d = NULL;
    lh_status status = lh_adapt_make(p, s, NULL, &a, err);
    if (status == LH_OK)
        status = lh_adapt_decide(a, given, &d, err);
    say(status, "%" PRIu64, d ? d->benefit_steps : 0);
    lh_adapt_free(a);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status diagnosed(const void *given, lh_error *err)
{
    lh_recording *r = NULL;
    lh_diagnosis *d = NULL;
    small_recording(&(small_job){
        .steps = 2, .stages = 2, .replicas = 1, .microbatches = 2});
    lh_status status =
        lhi_recording_parse(small_text, small_len, "small.csv", &r, err);
    if (status == LH_OK)
        status = lh_diagnose(r, given, &d, err);
    say(status, "%g", d ? d->slowdown : 0.);
    lh_diagnosis_free(d);
    lh_recording_free(r);
    return status;
}

static lh_status watches(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_monitor *m = NULL;
    lh_status status = lh_monitor_make(p, s, NULL, &m, err);
    if (status == LH_OK)
        status = lh_monitor_add(m, given, err);
    say(status, "%g", m ? lhi_monitor_pass(m, 0, LH_F).ns : 0.);
    lh_monitor_free(m);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status evaluated(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_evaluator *judge = NULL;
    int64_t ns = 0;
    lh_status status = lh_evaluator_make(p, given, &judge, err);
    if (status == LH_OK)
        status = lh_evaluator_run(judge, s, &ns, err);
    say(status, "%" PRId64, ns);
    lh_evaluator_free(judge);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status shaken(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_jitter_result r = {0};
    lh_status status = lh_jitter_run(p, s, NULL, given, &r, err);
    say(status, "%.17g %" PRId64, r.mean_ns, r.p95_ns);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static const char *const slow_links[] = {"dc0>dc1"};
static const lh_event slow_event = {.end_step = 2,
                                    .n_links = 1,
                                    .links = slow_links,
                                    .latency_ns = 7000,
                                    .latency_factor = 1,
                                    .transfer_factor = 1,
                                    .slowdown = 1,
                                    .device = LH_NONE,
                                    .rank = LH_NONE};

static lh_status followed(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    const lh_events events = {"events", 1, &slow_event};
    lh_event_timeline *course = NULL;
    int64_t ns = 0;
    lh_status status = lh_event_timeline_make(p, &events, given, &course, err);
    if (status == LH_OK)
        lh_event_timeline_simulate(course, s, NULL, 1, &ns, err);
    say(status, "%" PRId64, ns);
    lh_event_timeline_free(course);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status by_method(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = NULL;
    lh_status status = lh_method_run("greedy", p, given, &s, NULL, err);
    lh_pipeline_free(p);
    return say_schedule(status, s, err);
}

static lh_status best(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_scheduler_result b = {0};
    lh_status status = lh_scheduler_run("greedy", p, given, &b, err);
    lh_pipeline_free(p);
    return say_schedule(status, b.schedule, err);
}

static lh_status solved(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_solution s = {0};
    lh_status status = lh_solve(p, given, &s, err);
    say(status, "%" PRId64 " %" PRIu64, s.makespan_ns, s.effort);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
    return status;
}

static lh_status certified(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_solve_options o = {.size = sizeof o, .effort = 20000};
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_status status = lh_solve(p, &o, &s, err);
    if (status == LH_OK)
        status = lh_certify(p, given, &s, &c, err);
    say(status, "%d", c ? (int)c->kind : 0);
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
    return status;
}

static lh_status traded(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_memory_point m = {0};
    lh_status status = lh_minimise_memory(p, given, &m, err);
    say(status, "%" PRId64 " %" PRId64, m.limit, m.makespan_ns);
    lh_memory_point_fini(&m);
    lh_pipeline_free(p);
    return status;
}

static lh_status lowered(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_exec *x = NULL;
    lh_status status = lh_exec_make(p, s, given, &x, err);
    say(status, "%" PRIu32 " %" PRId64, x ? lh_exec_receive_slots(x, 1) : 0,
        x ? lh_exec_predicted_ns(x) : 0);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status played(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_status status = lh_exec_make(p, s, NULL, &x, err);
    if (status == LH_OK)
        status = lh_train_timed(p, x, given, &r, err);
    say(status, "%" PRIu32, r ? r->n_iterations : 0);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status trained_adapting(const void *given, lh_error *err)
{
    const lh_train_options run = {
        .size = sizeof run, .steps = 2, .message_bytes = 100, .adapt = given};
    return played(&run, err);
}

/* A run that switches to another schedule, and its outcome. */
typedef struct other_schedule {
    const void *given;
    char refused[200];
    uint32_t n;
} other_schedule;

/* lh_train_options.reschedule: proposes the schedule at step 1. */
static const lh_reschedule *go_on(void *of, uint64_t step)
{
    return step == 1 ? ((other_schedule *)of)->given : NULL;
}

/* lh_train_options.switched: counts switches and keeps the reason. */
static void note_switch(void *of, const lh_switch *what)
{
    other_schedule *s = of;
    s->n++;
    snprintf(s->refused, sizeof s->refused, "%s %s", what->why,
             what->refused ? what->refused : "");
}

static lh_status switched(const void *given, lh_error *err)
{
    other_schedule other = {.given = given};
    const lh_train_options run = {.size = sizeof run,
                                  .steps = 2,
                                  .message_bytes = 100,
                                  .context = &other,
                                  .reschedule = go_on,
                                  .switched = note_switch};
    static const char of_rank[] = "rank 0: ";
    lh_status status = played(&run, err);
    say(status, "%" PRIu32 " %s", other.n, other.refused);
    if (status != LH_OK && strstr(err->text, of_rank) == err->text)
        memmove(err->text, err->text + strlen(of_rank),
                strlen(err->text + strlen(of_rank)) + 1);
    return status;
}

static const lh_model tiny = {.name = "tiny",
                              .layers = 2,
                              .hidden = 8,
                              .ffn = 8,
                              .vocab = 256,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_dim = 4,
                              .moe_interval = 1};
static const uint32_t tiny_chunks[] = {0, 1, 2};

/* Trains until the data are opened, which do not exist. */
static lh_status trained(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_status status = lh_exec_make(p, s, NULL, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, given, NULL, &r, err);
    CHECK(status != LH_OK && !r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status == LH_EINVAL ? status : say(LH_OK, "%s", err->text);
}

/* Trains with these options of the optimizer, until the data are missing. */
static lh_status optimized(const void *given, lh_error *err)
{
    const lh_train_model m = {.size = sizeof m,
                              .model = &tiny,
                              .first_layers = tiny_chunks,
                              .micro_batch = 1,
                              .sequence = 4,
                              .data = "/nowhere/to be found",
                              .optimizer = given};
    return trained(&m, err);
}

/* Measures until the model is checked, which the cpu device does not support.
 */
static lh_status measured(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_profile *profile = NULL;
    lh_job other = *job;
    lh_model model = *job->model;
    model.attention_sinks = true;
    other.model = &model;
    lh_status status = lh_profile_measure(&other, given, &profile, err);
    CHECK(status != LH_OK && !profile);
    lh_job_free(job);
    return status == LH_EINVAL ? status : say(LH_OK, "%s", err->text);
}

static lh_status priced(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_layout layout = {.tensor = 1,
                        .context = 1,
                        .expert = 1,
                        .pipeline = 2,
                        .data = 1,
                        .micro_batch = 1,
                        .chunks_per_device = 1};
    lh_cost_layer_range slice = {.n_layers = 2, .embedding = true};
    lh_cost cost = {0};
    lh_status status = lh_cost_chunk(job, &layout, &slice, given, &cost, err);
    say(status, "%" PRId64 " %" PRId64, cost.f.total_ns, cost.optimizer_ns);
    lh_job_free(job);
    return status;
}

static lh_status planned(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_plan *plan = NULL;
    char *text = NULL;
    lh_status status = lh_plan_make(job, given, &plan, err);
    if (status == LH_OK)
        status = lh_plan_format(plan, &text, NULL, err);
    lh_plan_free(plan);
    lh_job_free(job);
    return say_text(status, text);
}

/* A struct nested in another struct may have a different size, too. */
static lh_status hardened(const void *given, lh_error *err)
{
    const lh_plan_options jittered = {.size = sizeof jittered,
                                      .top = 2,
                                      .no_optimal = true,
                                      .quick = true,
                                      .jitter = given};
    return planned(&jittered, err);
}

static lh_status spread(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_choice over_sites = {.layout = {.tensor = 2,
                                       .context = 1,
                                       .expert = 1,
                                       .pipeline = 2,
                                       .data = 4,
                                       .outermost = LH_OUTERMOST_DATA}};
    lh_jitter j = {0};
    lh_status status = lh_plan_jitter(job, &over_sites, given, &j, err);
    say(status, "%zu %g %" PRIu64 " %d", j.size - sizeof j, j.latency, j.seed,
        j.shared_data_link);
    lh_job_free(job);
    return status;
}

static lh_status compared(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_compare_base base = {.name = "p", .pipeline = p};
    lh_comparison *c = NULL;
    lh_status status = lh_compare(1, &base, given, &c, err);
    say(status, "%" PRIu32 " %" PRId64, c ? c->n_contenders : 0,
        c ? c->outcomes[0].ns : 0);
    lh_comparison_free(c);
    lh_pipeline_free(p);
    return status;
}

static lh_status made(const void *given, lh_error *err)
{
    lh_pipeline *p = NULL;
    char *text = NULL;
    lh_status status = lh_pipeline_make(given, &p, err);
    if (status == LH_OK)
        status = lh_pipeline_format(p, &text, NULL, err);
    lh_pipeline_free(p);
    return say_text(status, text);
}

static lh_status routed(const void *given, lh_error *err)
{
    static const char text[] =
        "longhaul: optical/1\n"
        "topology: {nodes: [{id: 1}, {id: 2}], links: [{a: 1, b: 2, km: 9}]}\n"
        "modulation: adaptive\nslots: 8\niterations: 1\nseeds: [1]\n"
        "jobs:\n- {preset: 8b, stages: 2, datacenters: 2, schedule: 1f1b, "
        "microbatches: 2}\n"
        "policies: {cba: {}}\n";
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    lh_status status = lh_scenario_parse(text, strlen(text), "s", &s, err);
    if (status == LH_OK)
        status = lh_optical_run_all(s, given, &o, err);
    say(status, "%.17g", o ? o->policies[0].iteration_s : 0);
    lh_optical_free(o);
    lh_scenario_free(s);
    return status;
}

static lh_status simulate_packets(const void *given, lh_error *err)
{
    const lh_packet_link link = {.load = {.line_bytes_per_s = 1e9,
                                          .latency_ns = 1e5,
                                          .oversubscription = 1,
                                          .senders = 1,
                                          .message_bytes = 1e5}};
    lh_packet_result out = {0};
    lh_status status = lh_packets_simulate_links(&link, 1, given, &out, err);
    say(status, "%.17g", out.end_ns);
    return status;
}

static lh_status simulate_plan_packets(const void *given, lh_error *err)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", JOB_SMALL);
    char *end = strstr(text, "gbps: 100}]");
    snprintf(end, sizeof text - (size_t)(end - text),
             "gbps: 100, load_balancing: ecmp, recovery: go-back-n}]\n"
             "layout: {pipeline: 2, outermost: pipeline}\n");
    lh_job *job = NULL;
    const lh_plan_options quick = {.size = sizeof quick, .quick = true};
    lh_plan *p = NULL;
    lh_packet_plan *out = NULL;
    lh_status status = lh_job_parse(text, strlen(text), "j", ".", &job, err);
    if (status == LH_OK)
        status = lh_plan_make(job, &quick, &p, err);
    if (status == LH_OK)
        status = lh_packets_simulate_plan(p, given, &out, err);
    say(status, "%.17g", out ? out->mean_ns : 0);
    lh_packet_plan_free(out);
    lh_plan_free(p);
    lh_job_free(job);
    return status;
}

static lh_status loaded(const void *given, lh_error *err)
{
    static const char text[] =
        "nodes: [{id: 1}, {id: 2}, {id: 3}]\nlinks: [{a: 1, b: 2, km: 1}, "
        "{a: 2, b: 3, km: 1}, {a: 1, b: 3, km: 1}]\n";
    lh_topology *t = NULL;
    lh_traffic_result r = {0};
    lh_status status = lhi_topology_parse(text, strlen(text), "t", &t, err);
    if (status == LH_OK)
        status = lh_traffic_run(t, given, 1, 0, 50, &r, err);
    say(status, "%" PRIu64 " %.17g", r.refused, r.carried_slots);
    lh_topology_free(t);
    return status;
}

static lh_status plan_trained(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    const lh_plan_options quick = {.size = sizeof quick, .quick = true};
    lh_plan *p = NULL;
    lh_train_result *r = NULL;
    lh_status status = lh_plan_make(job, &quick, &p, err);
    if (status == LH_OK)
        status = lh_train_plan(p, given, &r, err);
    say(status, "%" PRIu32, r ? r->n_iterations : 0);
    lh_train_result_free(r);
    lh_plan_free(p);
    lh_job_free(job);
    return status;
}

static lh_status good(const void *given, lh_error *err)
{
    const uint32_t nodes[] = {4, 4};
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_goodput g = {0};
    lh_status status = lh_goodput_compute(job, nodes, given, &g, err);
    lh_job_free(job);
    return say(status, "%g", g.fraction);
}

static lh_status sized(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_size_result *r = NULL;
    lh_status status = lh_size_find(job, given, &r, err);
    status = say(status, "%g", r ? r->fewest.train_s : 0);
    lh_size_result_free(r);
    lh_job_free(job);
    return status;
}

static lh_status drafted(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_job_draft(given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status imported(const void *given, lh_error *err)
{
    static const char text[] =
        "torchrun --nnodes 2 --nproc-per-node 8 p.py --num-layers 4 "
        "--hidden-size 64 --num-attention-heads 4 --vocab-size 512 "
        "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 "
        "--bf16";
    lh_import *import = NULL;
    lh_status status = lh_import_parse(
        LH_IMPORT_MEGATRON, text, sizeof text - 1, "t", given, &import, err);
    status = say(status, "%s", import ? import->job : "");
    lh_import_free(import);
    return status;
}

static lh_status exported(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    const lh_plan_options quick = {
        .size = sizeof quick, .quick = true, .target = LH_TARGET_MEGATRON};
    lh_plan *p = NULL;
    char *text = NULL;
    lh_status status = lh_plan_make(job, &quick, &p, err);
    if (status == LH_OK)
        status = lh_export_megatron(p, given, &text, NULL, err);
    lh_plan_free(p);
    lh_job_free(job);
    return say_text(status, text);
}

/* Removes a folder and its files. */
static void remove_files(const char *folder)
{
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    while (open_folder && (entry = readdir(open_folder)))
        unlinkat(dirfd(open_folder), entry->d_name, 0);
    if (open_folder)
        closedir(open_folder);
    rmdir(folder);
}

/* Records the default_port line of launch.sh. */
static lh_status bundled(const void *given, lh_error *err)
{
    char folder[] = "/tmp/longhaul-api-XXXXXX", path[64], line[200], port[200];
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    const lh_plan_options quick = {
        .size = sizeof quick, .quick = true, .target = LH_TARGET_PYTORCH};
    lh_plan *p = NULL;
    lh_status status = lh_plan_make(job, &quick, &p, err);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/b", folder);
    if (status == LH_OK)
        status = lh_export_bundle(p, LH_EXPORT_PYTORCH, path, given, err);
    snprintf(path, sizeof path, "%s/b/launch.sh", folder);
    FILE *file = status == LH_OK ? fopen(path, "r") : NULL;
    port[0] = '\0';
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "default_port=", 13) == 0)
            strcpy(port, line);
    if (file)
        fclose(file);
    say(status, "%s", port);
    snprintf(path, sizeof path, "%s/b", folder);
    remove_files(path);
    rmdir(folder);
    lh_plan_free(p);
    lh_job_free(job);
    return status;
}

#endif
