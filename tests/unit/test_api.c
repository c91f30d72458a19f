/* SPDX-License-Identifier: Apache-2.0 */
/* Runtime part of the API rules in docs/develop.md, "The API": every struct
 * that begins with `size` may come from a caller compiled with an older or a
 * newer header. */
#define _GNU_SOURCE /* mkdtemp */
#include "api_calls.h"
#include "api_report_calls.h"
#include "net_processes.h"
#include "resilience/placement/layers_search.h"

#include <longhaul/experimental/host_placement.h>
#include <longhaul/experimental/layers.h>
#include <longhaul/experimental/transport.h>

/* --- structs -------------------------------------------------------------- */

/* A struct and the call that takes it. */
typedef struct taker {
    const char *what; /* struct and call */
    lh_status (*call)(const void *given, lh_error *err);
    const void *full;
    size_t size;
    size_t older; /* end of the struct in an older header */
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
static const int64_t staging[8] = {5, 6};
static const lh_delegation delegation = {
    .size = sizeof delegation, .staging_ns = 7, .link_staging_ns = staging};
static const lh_adapt_options adapt = {
    .size = sizeof adapt, .sim = &sim, .effort = 100, .switch_ns = 5};
static lh_adapt_input adapt_now = {
    .size = sizeof adapt_now, .step = 3, .steps_left = 9};
static const lh_observed_pass seen_pass = {{.n_parts = 1}, 77};
static const lh_observation seen = {
    .size = sizeof seen, .step = 3, .n_passes = 1, .passes = &seen_pass};
static const lh_diagnose_options diagnose = {.size = sizeof diagnose,
                                             .threads = 2};
static const lh_jitter jitter = {
    .size = sizeof jitter, .latency = 0.5, .samples = 20, .seed = 3};
static const lh_adapt_emulate_options adapt_play = {
    .size = sizeof adapt_play, .adapt = &adapt, .jitter = &jitter};
static const lh_event_timeline_options course_options = {
    .size = sizeof course_options, .time_divisor = 7};
static const lh_host_link_delay slow_host_link = {0, 1, 500, 0};

/* Calls with the given options, host state, and exchange options; NULL:
 * defaults. */
static lh_status moved(const lh_host_placement_options *made,
                       const lh_host_slowdowns *now,
                       const lh_host_exchange_options *how, lh_error *err)
{
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_host_placement *places = NULL;
    lh_host_exchange *x = NULL;
    lh_status status = lh_host_placement_make(p, made, &places, err);
    if (status == LH_OK)
        status = lh_host_placement_find_exchange(places, now, s, how, &x, err);
    say(status, "%" PRIu32 " %d %" PRId64, x ? x->n_hosts : 0,
        x ? x->is_exhaustive : 0, x ? x->current_ns : 0);
    lh_host_exchange_free(x);
    lh_host_placement_free(places);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static lh_status placed(const void *given, lh_error *err)
{
    return moved(given, NULL, NULL, err);
}

static lh_status slowed(const void *given, lh_error *err)
{
    return moved(NULL, given, NULL, err);
}

static lh_status exchanged(const void *given, lh_error *err)
{
    return moved(NULL, NULL, given, err);
}

/* Uses a pipeline with two layers in each chunk. */
static lh_status shared_out(const void *given, lh_error *err)
{
    static const uint32_t two[] = {2, 2};
    lh_pipeline *p = pipeline();
    lh_schedule *s = schedule(p);
    lh_layers *layers = NULL;
    lh_layer_migration *m = NULL;
    lh_status status = lh_layers_make(p, two, &layers, err);
    if (status == LH_OK)
        status = lhi_layers_find_partition(layers, p, s, given, &m, err);
    say(status, "%s", m ? m->why : "");
    lhi_layer_migration_free(m);
    lh_layers_free(layers);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static const uint32_t odd_numbers[2] = {3, 1};
static const lh_layers_options sharing = {.size = sizeof sharing,
                                          .layer_counts = odd_numbers,
                                          .sim = &sim,
                                          .layer_ns = 7,
                                          .benefit_steps = 1e6};
static const double no_messages[2] = {0, 0};
static const lh_host_placement_options places = {
    .size = sizeof places, .n_replicas = 3, .state_messages = no_messages};
static const double slower_hosts[2] = {2, 3};
static const lh_host_slowdowns hosts_now = {.size = sizeof hosts_now,
                                            .n_links = 1,
                                            .links = &slow_host_link,
                                            .pass_factors = slower_hosts};
static const lh_host_exchange_options exchange = {.size = sizeof exchange,
                                                  .sim = &sim,
                                                  .benefit_steps = 3,
                                                  .max_exhaustive_hosts = 1};
static const lh_method_options method = {
    .size = sizeof method, .sub_blocks = 2, .sim = &sim, .bound_ns = 1};
static const lh_scheduler_options of_best = {
    .size = sizeof of_best, .method = &method, .effort = 10};
static const lh_solve_options solve = {
    .size = sizeof solve, .effort = 20000, .sub_blocks = 2, .target_ns = 1};
static const lh_tradeoff_options tradeoff = {
    .size = sizeof tradeoff, .solve_options = &solve, .makespan_ns = 40000};
static const lh_exec_options exec_options = {.size = sizeof exec_options,
                                             .receives = LH_RECEIVES_LATE,
                                             .receive_slots = 3};
static const lh_train_options train = {
    .size = sizeof train, .steps = 2, .message_bytes = 100};
static const lh_train_adapt train_adapt = {.size = sizeof train_adapt,
                                           .decision_options = &adapt};
static const char *const course_names[] = {"measured"};
static const int64_t course_ns[] = {5, 6};
static const lh_report_iterations small_course = {.size = sizeof small_course,
                                                  .n_iterations = 2,
                                                  .n_series = 1,
                                                  .series = course_names,
                                                  .ns = course_ns};
static const lh_report_distribution small_varied = {.size = sizeof small_varied,
                                                    .title = "differ",
                                                    .n = 2,
                                                    .ns = course_ns,
                                                    .nominal_ns = 4};
static const lh_report_difference small_difference = {
    .group = "g", .name = "n", .first = "1", .second = "2"};
static const lh_report_differences small_differences = {
    .size = sizeof small_differences,
    .first = "a",
    .second = "b",
    .n_rows = 1,
    .rows = &small_difference};
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
static const lh_train_optimizer optimizer = {.size = sizeof optimizer,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .epsilon = 1e-8,
                                             .rate_decay = LH_RATE_DECAY_LINEAR,
                                             .decay_steps = 2};
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
static const char *const sentences[] = {"it is slow"};
static const lh_report_diagnosis diagnosis_page = {
    .size = sizeof diagnosis_page, .n_sentences = 1, .sentences = sentences};
static const lh_report_decision decision = {
    .size = sizeof decision, .n_sentences = 1, .sentences = sentences};
static const lh_svg_options svg = {
    .size = sizeof svg, .width = 900, .analysis = &small_analysis};
static const lh_terminal_options terminal = {
    .size = sizeof terminal, .width = 70, .ascii = true};
static const lh_optical_options optical = {.size = sizeof optical,
                                           .threads = 1};
static const lh_packet_run packet_run = {.size = sizeof packet_run,
                                         .threads = 1};
static const lh_packet_plan_run packet_plan_run = {
    .size = sizeof packet_plan_run, .threads = 1};
static const lh_draft_site draft_sites[] = {{.gpu = "h200"}, {.gpu = "b200"}};
static const lh_draft_options draft = {.size = sizeof draft,
                                       .model = "qwen2.5-32b",
                                       .n_sites = 2,
                                       .sites = draft_sites,
                                       .gbps = 7,
                                       .sequence = 99};
static const lh_bundle_options bundle = {
    .size = sizeof bundle, .form = LH_PYTORCH_COMPUTE_COMMS, .port = 7};
static const lh_export_options export_options = {.size = sizeof export_options,
                                                 .allow_inexact = true};
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

static const lh_failures failures = {.size = sizeof failures,
                                     .gpu_mtbf_s = 5000,
                                     .checkpoint_s = 5,
                                     .restart_s = 50,
                                     .repair_s = 900,
                                     .spares = 1};
static const lh_size_options size_options = {.size = sizeof size_options,
                                             .tokens = 1e6,
                                             .deadline_s = 1e6,
                                             .effort = 3,
                                             .threads = 1};

/* The only rank of a job; main() finds a port. */
static lh_transport_options transport = {.size = sizeof transport,
                                         .n_ranks = 1,
                                         .job = "api",
                                         .secret = "0123456789abcdef",
                                         .secret_bytes = 16,
                                         .join_ns = 1000000000};

static lh_status joined(const void *given, lh_error *err)
{
    lh_transport *t = NULL;
    lh_status status = lh_transport_join(given, &t, err);
    say(status, "%s", t ? "joined" : "");
    lh_transport_free(t);
    return status == LH_EUNSUPPORTED ? LH_OK : status; /* built without tcp */
}

static const taker takers[] = {
    TAKER(lh_sim_options, simulated, &sim, coupled_queue),
    TAKER(lh_sim_options, evaluated, &sim, fifo),
    TAKER(lh_monitor_options, watched, &monitor, warm_up),
    TAKER(lh_delegation, delegated, &delegation, link_staging_ns),
    TAKER(lh_adapt_options, adapted, &adapt, switch_ns),
    TAKER(lh_adapt_emulate_options, adapting, &adapt_play, jitter),
    TAKER(lh_adapt_input, decides, &adapt_now, steps_left),
    TAKER(lh_observation, watches, &seen, collectives),
    TAKER(lh_diagnose_options, diagnosed, &diagnose, threads),
    TAKER(lh_jitter, shaken, &jitter, seed),
    TAKER(lh_jitter, hardened, &jitter, seed),
    TAKER(lh_jitter, spread, &jitter, seed),
    TAKER(lh_event_timeline_options, followed, &course_options, time_divisor),
    TAKER(lh_layers_options, shared_out, &sharing, layer_ns),
    TAKER(lh_host_placement_options, placed, &places, state_messages),
    TAKER(lh_host_slowdowns, slowed, &hosts_now, pass_factors),
    TAKER(lh_host_exchange_options, exchanged, &exchange, max_exhaustive_hosts),
    TAKER(lh_method_options, by_method, &method, n_enqueue),
    TAKER(lh_scheduler_options, best, &of_best, effort),
    TAKER(lh_solve_options, solved, &solve, target_ns),
    TAKER(lh_solve_options, certified, &solve, progress),
    TAKER(lh_tradeoff_options, traded, &tradeoff, makespan_ns),
    TAKER(lh_exec_options, lowered, &exec_options, receive_slots),
    TAKER(lh_train_options, played, &train, message_bytes),
    TAKER(lh_train_adapt, trained_adapting, &train_adapt, on_event),
    TAKER(lh_reschedule, switched, &reschedule, name),
    TAKER(lh_compare_options, compared, &compare, fixed_schedules),
    TAKER(lh_train_model, trained, &train_model, token_bytes),
    TAKER(lh_train_optimizer, optimized, &optimizer, decay_steps),
    TAKER(lh_train_plan_options, plan_trained, &train_plan, model),
    TAKER(lh_measure_options, measured, &measure, repeats),
    TAKER(lh_cost_options, priced, &cost, gradient_bytes),
    TAKER(lh_plan_options, planned, &plan, partition),
    TAKER(lh_pipeline_desc, made, &desc, memory_unit),
    TAKER(lh_report_analysis, with_analysis, &small_analysis, n_causes),
    TAKER(lh_report_sweep, with_sweep, &small_sweep, n_series),
    TAKER(lh_report_sweep, plotted, &small_sweep, n_series),
    TAKER(lh_report_distribution, with_varied, &small_varied, nominal_ns),
    TAKER(lh_report_differences, with_differences, &small_differences, n_rows),
    TAKER(lh_report_iterations, course_drawn, &small_course, n_spans),
    TAKER(lh_report_table, with_table, &table, n_columns),
    TAKER(lh_report_decision, with_decision, &decision, n_notes),
    TAKER(lh_report_diagnosis, with_diagnosis, &diagnosis_page, n_sentences),
    TAKER(lh_report_what_if, asked, &what_if, mfu),
    TAKER(lh_svg_options, drawn, &svg, analysis),
    TAKER(lh_terminal_options, typed, &terminal, color),
    TAKER(lh_terminal_options, plotted_on, &terminal, width),
    TAKER(lh_optical_options, routed, &optical, n_seeds),
    TAKER(lh_packet_run, simulate_packets, &packet_run, n_seeds),
    TAKER(lh_packet_plan_run, simulate_plan_packets, &packet_plan_run, n_seeds),
    TAKER(lh_traffic, loaded, &traffic, from),
    TAKER(lh_failures, good, &failures, restart_s),
    TAKER(lh_size_options, sized, &size_options, effort),
    TAKER(lh_transport_options, joined, &transport, join_ns),
    TAKER(lh_draft_options, drafted, &draft, sequence),
    TAKER(lh_export_options, exported, &export_options, allow_inexact),
    TAKER(lh_bundle_options, bundled, &bundle, allow_inexact),
    TAKER(lh_import_options, imported, &import_options, cluster),
    TAKER(lh_simulated, told, &simulated_all, objective),
    TAKER(lh_simulated, bounded, &simulated_all, jitter),
    TAKER(lh_scheduled, told_schedule, &scheduled_all, memory),
    TAKER(lh_sim_options, weighed, &sim, fifo),
};

enum { BEYOND = 64, MOST = 1024 };

/* Copies the struct into its own block, valid for `size` bytes; the rest is
 * garbage. */
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

/* Checks that calls with the struct as `given` and as `like` have the same
 * result. */
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
    adapt_now.pipeline = p;
    transport.port = free_port();
    lh_error err = {0};
    lh_timeline *t = NULL;
    lh_analysis *a = NULL;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
    simulated_all.pipeline = scheduled_all.pipeline = what_if.pipeline = p;
    simulated_all.schedule = what_if.schedule = s;
    simulated_all.timeline = scheduled_all.timeline = t;
    simulated_all.analysis = a;
    RUN(sizes);
    lh_analysis_free(a);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return test_summary();
}
