/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of docs/develop.md, "The API", that a running program shows: every
 * struct that begins with `size` is taken from callers compiled with an older
 * or a newer header. */
#define _GNU_SOURCE /* mkdtemp */
#include "jobs.h"
#include "small_trace.h"
#include "test.h"
#include "uniform.h"

#include <dirent.h>
#include <fcntl.h>
#include <longhaul/best.h>
#include <longhaul/certificate.h>
#include <longhaul/compare.h>
#include <longhaul/cost.h>
#include <longhaul/draft.h>
#include <longhaul/engine.h>
#include <longhaul/events.h>
#include <longhaul/export.h>
#include <longhaul/import.h>
#include <longhaul/jitter.h>
#include <longhaul/monitor.h>
#include <longhaul/optical.h>
#include <longhaul/plan.h>
#include <longhaul/tradeoff.h>
#include <stddef.h>
#include <unistd.h>

/* What a call came to, as text. */
static char outcome[1 << 20];

static lh_status say(lh_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (status == LH_OK)
        vsnprintf(outcome, sizeof outcome, format, list);
    va_end(list);
    return status;
}

static lh_status say_text(lh_status status, char *text)
{
    status = say(status, "%s", text ? text : "");
    lh_text_free(text);
    return status;
}

static lh_pipeline *pipeline(void)
{
    return uniform_make(
        (uniform){"ud", 2, 4, 2e-3, 3e-3, 1e-3, 2, 1e-3, 1e-4, 0, NULL});
}

static lh_schedule *schedule(const lh_pipeline *p)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    return s;
}

static lh_status say_schedule(lh_status status, lh_schedule *s, lh_error *err)
{
    char *text = NULL;
    if (status == LH_OK)
        status = lh_schedule_format(s, &text, NULL, err);
    lh_schedule_free(s);
    return say_text(status, text);
}

/* --- a call for each struct ----------------------------------------------- */

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
    say(status, "%g", m ? lh_monitor_link(m, 0).delay_ns : 0.);
    lh_monitor_free(m);
    lh_schedule_free(s);
    lh_pipeline_free(p);
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
    say(status, "%g", m ? lh_monitor_pass(m, 0, LH_F).ns : 0.);
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
static const lh_event slow_event = {.to = 2,
                                    .n_links = 1,
                                    .links = slow_links,
                                    .latency_ns = 7000,
                                    .latency_times = 1,
                                    .transfer_times = 1,
                                    .slower = 1,
                                    .device = LH_NONE,
                                    .rank = LH_NONE};

static lh_status followed(const void *given, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    const lh_events events = {"events", 1, &slow_event};
    lh_course *course = NULL;
    int64_t ns = 0;
    lh_status status = lh_course_make(p, &events, given, &course, err);
    if (status == LH_OK)
        lh_course_play(course, s, NULL, 1, &ns, err);
    say(status, "%" PRId64, ns);
    lh_course_free(course);
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
    lh_best b = {0};
    lh_status status = lh_best_schedule("greedy", p, given, &b, err);
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
    lh_status status = lh_least_memory(p, given, &m, err);
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

/* With a schedule that a run is to go on with. */
typedef struct other_schedule {
    const void *given;
    char refused[200];
    uint32_t n;
} other_schedule;

static const lh_reschedule *go_on(void *of, uint64_t step)
{
    return step == 1 ? ((other_schedule *)of)->given : NULL;
}

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

/* As far as the data, which are not there. */
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

/* As far as the model, which the cpu device does not run. */
static lh_status measured(const void *given, lh_error *err)
{
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_profile *profile = NULL;
    lh_job other = *job;
    lh_model model = *job->model;
    model.moe_interval = 1;
    model.experts = 4;
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
    lh_cost_slice slice = {.n_layers = 2, .embedding = true};
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

/* What lies in another struct may be of another size, too. */
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
        j.one_data_link);
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

static lh_status say_report(lh_status status, lh_report *report, lh_error *err)
{
    char *text = NULL;
    if (status == LH_OK)
        status = lh_report_format_html(report, &text, NULL, err);
    lh_report_free(report);
    return say_text(status, text);
}

static lh_report *report(void)
{
    lh_report *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_report_make("title", &r, &err), err);
    return r;
}

static lh_status with_analysis(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_trace(r, &small_trace, "x", given, err);
    return say_report(status, r, err);
}

static lh_status with_sweep(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_sweep(r, given, err);
    return say_report(status, r, err);
}

static lh_status with_table(const void *given, lh_error *err)
{
    lh_report *r = report();
    lh_status status = lh_report_add_table(r, given, err);
    return say_report(status, r, err);
}

static lh_status plotted(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_report_terminal_plot(given, NULL, &text, NULL, err);
    return say_text(status, text);
}

static lh_status drawn(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status = lh_report_svg(&small_trace, given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status typed(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status =
        lh_report_terminal(&small_trace, given, &text, NULL, err);
    return say_text(status, text);
}

static lh_status plotted_on(const void *given, lh_error *err)
{
    char *text = NULL;
    lh_status status =
        lh_report_terminal_plot(&small_sweep, given, &text, NULL, err);
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

static lh_status loaded(const void *given, lh_error *err)
{
    static const char text[] =
        "nodes: [{id: 1}, {id: 2}, {id: 3}]\nlinks: [{a: 1, b: 2, km: 1}, "
        "{a: 2, b: 3, km: 1}, {a: 1, b: 3, km: 1}]\n";
    lh_topology *t = NULL;
    lh_traffic_result r = {0};
    lh_status status = lh_topology_parse(text, strlen(text), "t", &t, err);
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

/* Removes a folder of files. */
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

/* The line of launch.sh with its port. */
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

/* --- the structs ---------------------------------------------------------- */

typedef struct taker {
    const char *what; /* struct and call */
    lh_status (*call)(const void *given, lh_error *err);
    const void *full;
    size_t size;
    size_t older; /* where an older header's struct ends */
} taker;

#define TAKER(type, call, value, field)                                        \
    {                                                                          \
#type ".size, " #call, call, value, sizeof(type),                      \
            offsetof(type, field)                                              \
    }

static const lh_sim_options sim = {.size = sizeof sim,
                                   .receives = LH_RECEIVES_LATE,
                                   .coupled_queue = 1,
                                   .fifo = true};
static const lh_monitor_options monitor = {
    .size = sizeof monitor, .sim = &sim, .warm_up = 5};
static const lh_seen_pass seen_pass = {{.n_parts = 1}, 77};
static const lh_seen seen = {
    .size = sizeof seen, .step = 3, .n_passes = 1, .passes = &seen_pass};
static const lh_jitter jitter = {
    .size = sizeof jitter, .latency = 0.5, .samples = 20, .seed = 3};
static const lh_course_options course_options = {.size = sizeof course_options,
                                                 .speed = 7};
static const lh_method_options method = {
    .size = sizeof method, .sub_blocks = 2, .sim = &sim, .bound_ns = 1};
static const lh_best_options of_best = {
    .size = sizeof of_best, .method = &method, .effort = 10};
static const lh_solve_options solve = {
    .size = sizeof solve, .effort = 20000, .sub_blocks = 2, .target_ns = 1};
static const lh_tradeoff_options tradeoff = {
    .size = sizeof tradeoff, .each = &solve, .makespan_ns = 40000};
static const lh_exec_options exec_options = {.size = sizeof exec_options,
                                             .receives = LH_RECEIVES_LATE,
                                             .receive_slots = 3};
static const lh_train_options train = {
    .size = sizeof train, .steps = 2, .message_bytes = 100};
static lh_reschedule reschedule = {
    .size = sizeof reschedule, .name = "zb-h1", .why = "to see"};
static const char *const methods[] = {"1f1b", "zb-h1"};
static const lh_compare_options compare = {.size = sizeof compare,
                                           .n_methods = 2,
                                           .methods = methods,
                                           .sub_blocks = 1,
                                           .effort = 1000};
static const lh_train_model train_model = {.size = sizeof train_model,
                                           .model = &tiny,
                                           .first_layers = tiny_chunks,
                                           .micro_batch = 1,
                                           .sequence = 4,
                                           .data = "/nowhere/to be found"};
static const lh_train_plan_options train_plan = {.size = sizeof train_plan,
                                                 .run = &train};
static const lh_measure_options measure = {.size = sizeof measure,
                                           .repeats = 1};
static const lh_cost_options cost = {
    .size = sizeof cost, .no_dropout = true, .gradient_bytes = 2};
static const lh_plan_options plan = {
    .size = sizeof plan, .top = 2, .no_optimal = true, .quick = true};
static const lh_chunk chunks[] = {{.f_ns = 1, .d_ns = 2, .w_ns = 3}};
static const lh_pipeline_desc desc = {.size = sizeof desc,
                                      .n_devices = 1,
                                      .n_microbatches = 2,
                                      .n_chunks = 1,
                                      .chunks = chunks,
                                      .memory_unit = "bytes"};
static const char *const head[] = {"name", "#ns"};
static const lh_report_table table = {
    .size = sizeof table, .title = "t", .n_columns = 2, .head = head};
static const lh_svg_options svg = {
    .size = sizeof svg, .width = 900, .analysis = &small_analysis};
static const lh_terminal_options terminal = {
    .size = sizeof terminal, .width = 70, .ascii = true};
static const lh_optical_options optical = {.size = sizeof optical,
                                           .threads = 1};
static const lh_draft_site draft_sites[] = {{.gpu = "h200"}, {.gpu = "b200"}};
static const lh_draft_options draft = {.size = sizeof draft,
                                       .model = "qwen2.5-32b",
                                       .n_sites = 2,
                                       .sites = draft_sites,
                                       .gbps = 7,
                                       .sequence = 99};
static const lh_bundle_options bundle = {
    .size = sizeof bundle, .form = LH_PYTORCH_COMPUTE_COMMS, .port = 7};
static const lh_import_options import_options = {.size = sizeof import_options,
                                                 .machines = &draft};
static const lh_traffic traffic = {.size = sizeof traffic,
                                   .erlang = 5,
                                   .holding_s = 1,
                                   .slots = 4,
                                   .slots_min = 1,
                                   .slots_max = 2,
                                   .k = 2,
                                   .to = 1};

static const taker takers[] = {
    TAKER(lh_sim_options, simulated, &sim, coupled_queue),
    TAKER(lh_sim_options, evaluated, &sim, fifo),
    TAKER(lh_monitor_options, watched, &monitor, warm_up),
    TAKER(lh_seen, watches, &seen, collectives),
    TAKER(lh_jitter, shaken, &jitter, seed),
    TAKER(lh_jitter, hardened, &jitter, seed),
    TAKER(lh_jitter, spread, &jitter, seed),
    TAKER(lh_course_options, followed, &course_options, speed),
    TAKER(lh_method_options, by_method, &method, n_enqueue),
    TAKER(lh_best_options, best, &of_best, effort),
    TAKER(lh_solve_options, solved, &solve, target_ns),
    TAKER(lh_solve_options, certified, &solve, progress),
    TAKER(lh_tradeoff_options, traded, &tradeoff, makespan_ns),
    TAKER(lh_exec_options, lowered, &exec_options, receive_slots),
    TAKER(lh_train_options, played, &train, message_bytes),
    TAKER(lh_reschedule, switched, &reschedule, name),
    TAKER(lh_compare_options, compared, &compare, replay),
    TAKER(lh_train_model, trained, &train_model, token_bytes),
    TAKER(lh_train_plan_options, plan_trained, &train_plan, model),
    TAKER(lh_measure_options, measured, &measure, repeats),
    TAKER(lh_cost_options, priced, &cost, gradient_bytes),
    TAKER(lh_plan_options, planned, &plan, partition),
    TAKER(lh_pipeline_desc, made, &desc, memory_unit),
    TAKER(lh_report_analysis, with_analysis, &small_analysis, n_causes),
    TAKER(lh_report_sweep, with_sweep, &small_sweep, n_series),
    TAKER(lh_report_sweep, plotted, &small_sweep, n_series),
    TAKER(lh_report_table, with_table, &table, n_columns),
    TAKER(lh_svg_options, drawn, &svg, analysis),
    TAKER(lh_terminal_options, typed, &terminal, color),
    TAKER(lh_terminal_options, plotted_on, &terminal, width),
    TAKER(lh_optical_options, routed, &optical, n_seeds),
    TAKER(lh_traffic, loaded, &traffic, from),
    TAKER(lh_draft_options, drafted, &draft, sequence),
    TAKER(lh_bundle_options, bundled, &bundle, port),
    TAKER(lh_import_options, imported, &import_options, cluster),
};

enum { BEYOND = 64, MOST = 512 };

/* The struct in a block of its own, `size` bytes of which the caller knows:
 * what is behind them is no one's. */
static void *block(const taker *t, size_t size)
{
    unsigned char *at = malloc(MOST);
    memset(at, 0xa5, MOST);
    memcpy(at, t->full, size < t->size ? size : t->size);
    memcpy(at, &size, sizeof size);
    return at;
}

static void sizes_too_small(const taker *t)
{
    static const size_t bad[] = {0, 1, sizeof(size_t) - 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lh_error err = {0};
        void *given = block(t, t->size);
        memcpy(given, &bad[i], sizeof bad[i]);
        strcpy(outcome, "untouched");
        CHECK_MSG(t->call(given, &err) == LH_EINVAL, "%s is %zu", t->what,
                  bad[i]);
        CHECK_MSG(strncmp(err.text, t->what, strcspn(t->what, ",")) == 0 &&
                      strstr(err.text, "set it to sizeof"),
                  "%s: '%s'", t->what, err.text);
        CHECK_STR(outcome, "untouched");
        free(given);
    }
}

/* Calls with the struct as `given` and as `like`: the same comes out. */
static void alike(const taker *t, void *given, void *like)
{
    static char want[sizeof outcome];
    lh_error err = {0};
    lh_status status = t->call(like, &err);
    memcpy(want, outcome, sizeof want);
    lh_status now = t->call(given, &err);
    CHECK_MSG(now == status && (status == LH_OK || status == LH_EINVAL),
              "%s: %s", t->what, err.text);
    CHECK_MSG(status != LH_OK || strcmp(outcome, want) == 0, "%s: not the same",
              t->what);
    free(given);
    free(like);
}

static void older_callers(const taker *t)
{
    unsigned char *zeroed = block(t, t->size);
    memset(zeroed + t->older, 0, t->size - t->older);
    alike(t, block(t, t->older), zeroed);
}

static void newer_callers(const taker *t)
{
    alike(t, block(t, t->size + BEYOND), block(t, t->size));
}

static void sizes(void)
{
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
        CHECK(takers[i].size + BEYOND <= MOST);
        sizes_too_small(&takers[i]);
        older_callers(&takers[i]);
        newer_callers(&takers[i]);
    }
}

int main(void)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    reschedule.schedule = s;
    RUN(sizes);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return test_summary();
}
