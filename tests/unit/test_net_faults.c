/* SPDX-License-Identifier: Apache-2.0 */
/* Random faults under the conformance suite and under training. Every run ends
 * with the same bytes as an undisturbed one; or, if bytes were lost, with an
 * error that names a rank, on every rank that did not finish.
 *
 *     test_net_faults                  200 seeds, with sanitizers 40
 *     test_net_faults FIRST N          N seeds from FIRST on
 *     TEST_NET_VERBOSE=1               prints each seed's scenario */
#define _GNU_SOURCE
#include "faulty_wire.h"
#include "net_conform.h"
#include "reordering_transport.h"
#include "sanitized.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include "base/realtime.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const int64_t ms_ns = 1000000;
static bool verbose;

/* ---- runs ---- */

/* How the current run's ranks are connected. */
typedef enum layer { UNDISTURBED, LATE, WIRE } layer;
static struct {
    layer is;
    bool in_processes; /* LATE: else threads */
    reordering_transport late;
    wire_plan plan;
    wire_log log;
    uint32_t max_restarts, n_restarts; /* of a training */
} now;

/* The engine's calls to lhi_inproc_run arrive here. */
lh_status __real_lhi_inproc_run(uint32_t n, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_main *rank_main, void *context,
                                lhi_rank_result *results, lh_error *err);
lh_status __wrap_lhi_inproc_run(uint32_t n, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_main *rank_main, void *context,
                                lhi_rank_result *results, lh_error *err);
lh_status __wrap_lhi_inproc_run(uint32_t n, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_main *rank_main, void *context,
                                lhi_rank_result *results, lh_error *err)
{
    if (now.is == WIRE) {
        const wire_plan plan = now.plan;
        if (now.max_restarts) /* the fault does not occur again */
            now.plan = (wire_plan){.silence_ns = plan.silence_ns};
        return wire_run(&plan, &now.log, n, n_links, links, rank_main, context,
                        results, err);
    }
    if (now.is == UNDISTURBED)
        return __real_lhi_inproc_run(n, n_links, links, rank_main, context,
                                     results, err);
    now.late.rank_main = rank_main;
    now.late.context = context;
    return (now.in_processes ? lhi_local_run : __real_lhi_inproc_run)(
        n, n_links, links, late_net_rank, &now.late, results, err);
}

/* ---- training ---- */

enum { STEPS = 4, MICROBATCHES = 4, SEQUENCE = 160, LAYERS = 4 };

/* A training, its undisturbed result, and the bytes per connection. */
typedef struct training {
    const char *name, *placement, *method;
    uint32_t devices, replicas;
    lh_receives receives;
    uint32_t queue; /* blocking sends */
    lh_data_path path;
    const char *launches; /* operations launched by passes; NULL: none */
    double gradients, parameters;
    bool by_layer, leaders;
    const uint32_t *sites;
    lh_pipeline *pipeline;
    lh_exec *exec;
    char *weights; /* undisturbed */
    size_t size;
    double losses[STEPS];
    uint64_t passed[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
} training;

static training trainings[] = {
    {.name = "two stages",
     .placement = "ud",
     .method = "1f1b",
     .devices = 2,
     .replicas = 1},
    {.name = "four stages",
     .placement = "ud",
     .method = "zb-h1",
     .devices = 4,
     .replicas = 1},
    {.name = "two replicas",
     .placement = "ud",
     .method = "1f1b",
     .devices = 2,
     .replicas = 2},
    {.name = "late receives, coupled",
     .placement = "wave",
     .method = "zb-v",
     .devices = 2,
     .replicas = 1,
     .receives = LH_RECEIVES_LATE,
     .queue = 2},
    {.name = "delegated messages",
     .placement = "wave",
     .method = "zb-v",
     .devices = 2,
     .replicas = 2,
     .path = LH_DATA_PATH_DELEGATED},
};
enum { N_TRAININGS = sizeof trainings / sizeof *trainings };

/* Trainings whose passes wait for gathers and scatters. */
static const uint32_t pairs[] = {0, 0, 1, 1};
static training sharded[] = {
    {.name = "launched gathers and scatters",
     .placement = "loop",
     .method = "elastic",
     .devices = 1,
     .replicas = 2,
     .launches = "backward: joint\ndata_parallel:\n  elastic: {enqueue: [1, "
                 "1], dequeue: [1, 1], transfer: 1, gradients: 1, parameters: "
                 "1, buckets: {scatter: 1, forward: 1, backward: 1}}\n",
     .gradients = 1,
     .parameters = 1},
    {.name = "layer by layer",
     .placement = "ud",
     .method = "zb-h1",
     .devices = 2,
     .replicas = 2,
     .by_layer = true,
     .gradients = 1,
     .parameters = 1},
    {.name = "layer by layer, by site",
     .placement = "ud",
     .method = "gpipe",
     .devices = 1,
     .replicas = 4,
     .by_layer = true,
     .leaders = true,
     .sites = pairs,
     .gradients = 1,
     .parameters = 1},
    {.name = "sums over sites",
     .placement = "ud",
     .method = "gpipe",
     .devices = 1,
     .replicas = 4,
     .sites = pairs},
};
enum { N_SHARDED = sizeof sharded / sizeof *sharded };
static bool only_sharded;
static bool computes; /* the cpu device is available */

static void make_training(training *t)
{
    char text[800];
    lh_error err = {0};
    lh_schedule *schedule = NULL;
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\n%s"
             "uniform: {placement: %s, chunks_per_device: %d, F: 10, D: 12, "
             "W: 9, memory: {F: 1, W: -1}}\n",
             (unsigned)MICROBATCHES / t->replicas, t->devices,
             t->launches ? t->launches : "backward: split\n", t->placement,
             strcmp(t->placement, "ud") == 0 ? 1 : 2);
    lh_method_options o = {.size = sizeof o};
    lh_exec_options how = {.size = sizeof how,
                           .receives = t->receives,
                           .coupled_queue = t->queue,
                           .path = t->path};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &t->pipeline, &err),
             err);
    CHECK_OK(lh_method_run(t->method, t->pipeline, &o, &schedule, NULL, &err),
             err);
    CHECK_OK(lh_exec_make(t->pipeline, schedule, &how, &t->exec, &err), err);
    lh_schedule_free(schedule);
}

/* Trains over the current connections; *weights: the saved file. */
static lh_status run_training(const training *t, double losses[STEPS],
                              char **weights, size_t *size, lh_error *err)
{
    char checkpoint[80], clear[100];
    uint32_t first_layers[9], n = lh_pipeline_n_chunks(t->pipeline);
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    snprintf(checkpoint, sizeof checkpoint, "%s/run", folder);
    snprintf(clear, sizeof clear, "rm -rf '%s'", checkpoint);
    const lh_model tiny = tiny_model(LAYERS);
    lh_train_model m = lh_train_model_defaults();
    m.model = &tiny;
    m.first_layers = first_layers;
    m.sequence = SEQUENCE;
    m.replicas = t->replicas;
    m.sharded_gradients = t->gradients;
    m.sharded_parameters = t->parameters;
    m.per_layer_sharding = t->by_layer;
    m.sites = t->sites;
    m.reduce_by_leaders = t->leaders;
    m.seed = 5;
    m.data = text_path;
    m.rate = 1e-2;
    m.checkpoint = checkpoint;
    lh_train_options o = {
        .size = sizeof o, .steps = STEPS, .max_restarts = now.max_restarts};
    lh_train_result *r = NULL;
    lh_status status = lh_train_cpu(t->pipeline, t->exec, &m, &o, &r, err);
    now.n_restarts = r ? r->n_restarts : 0;
    for (uint32_t i = 0; i < STEPS && status == LH_OK; i++)
        losses[i] = r->iterations[i].loss;
    *weights = status == LH_OK ? saved_weights("run", STEPS, size) : NULL;
    lh_train_result_free(r);
    if (system(clear) != 0)
        abort();
    return status;
}

/* *same: the result equals the undisturbed one. */
static lh_status train_once(const training *t, bool *same, lh_error *err)
{
    double losses[STEPS];
    char *weights = NULL;
    size_t size = 0;
    lh_status status = run_training(t, losses, &weights, &size, err);
    *same = status != LH_OK ||
            (memcmp(losses, t->losses, sizeof losses) == 0 && weights &&
             size == t->size && memcmp(weights, t->weights, size) == 0);
    free(weights);
    return status;
}

/* ---- conformance cases ---- */

/* Cases that end well and whose every step fails if the run does. */
static const char *const breakable[] = {
    "sizes", "tags", "crowd", "collectives", "leave early", "barrier waits"};

static const net_case *case_named(const char *name)
{
    for (unsigned i = 0; i < n_net_cases; i++)
        if (strcmp(net_cases[i].name, name) == 0)
            return &net_cases[i];
    abort();
}

static uint64_t case_passed[32][WIRE_MOST_RANKS][WIRE_MOST_RANKS];

/* *same: the case ended as expected. */
static lh_status run_case(const net_case *c, bool *same, lh_error *err)
{
    lhi_rank_result results[WIRE_MOST_RANKS] = {{0}};
    char word[] = "hello from";
    lh_status status = __wrap_lhi_inproc_run(c->n_ranks, c->n_links, c->links,
                                             c->rank_main, word, results, err);
    for (uint32_t i = 0; i < WIRE_MOST_RANKS; i++)
        free(results[i].text);
    *same = c->fails ? status != LH_OK && strstr(err->text, c->fails)
                     : status == LH_OK;
    return status;
}

/* ---- undisturbed ---- */

static wire_plan quiet(void)
{
    return (wire_plan){.silence_ns = 60000 * ms_ns};
}

/* Records each run's undisturbed result, and the bytes per connection. */
static void undisturbed(void)
{
    for (uint32_t i = 0; computes && i < N_TRAININGS + N_SHARDED; i++) {
        training *t =
            i < N_TRAININGS ? &trainings[i] : &sharded[i - N_TRAININGS];
        lh_error err = {0};
        bool same = false;
        make_training(t);
        now.is = UNDISTURBED;
        CHECK_OK(run_training(t, t->losses, &t->weights, &t->size, &err), err);
        CHECK(t->weights != NULL && t->size > 10000);
        now.is = WIRE;
        now.plan = quiet();
        CHECK_OK(train_once(t, &same, &err), err);
        CHECK_MSG(same, "%s: other weights", t->name);
        memcpy(t->passed, now.log.passed, sizeof t->passed);
    }
    for (unsigned i = 0; i < n_net_cases; i++) {
        lh_error err = {0};
        bool same = false;
        now.is = WIRE;
        now.plan = quiet();
        run_case(&net_cases[i], &same, &err);
        CHECK_MSG(same, "%s: '%s'", net_cases[i].name, err.text);
        memcpy(case_passed[i], now.log.passed, sizeof now.log.passed);
    }
}

/* ---- random faults ---- */

/* A seed's scenario: exactly one of the two is set. */
typedef struct scenario {
    const training *training;
    const net_case *conformance;
    uint32_t n_ranks;
} scenario;

static void choose_fault(uint64_t *state, uint32_t n,
                         uint64_t passed[][WIRE_MOST_RANKS], bool harmless)
{
    wire_plan *p = &now.plan;
    do {
        p->fault = (wire_fault)chance_below(state, N_WIRE_FAULTS);
    } while (wire_fault_is_harmless(p->fault) != harmless);
    do {
        p->from = (uint32_t)chance_below(state, n);
        p->to = (uint32_t)chance_below(state, n);
    } while (p->from == p->to);
    p->both_ways = chance_below(state, 2) != 0;
    p->at = chance_below(state, passed[p->from][p->to] + 1);
    p->n_bytes =
        1 + (size_t)chance_below(state, chance_below(state, 2) ? 8192 : 64);
    p->tcp = chance_below(state, 8) == 0;
    p->slow = chance_below(state, 3) == 0;
    /* On a busy machine a limit this short may also end an undisturbed run:
     * only used where the run may end. */
    bool half_open = p->fault == WIRE_STOPPED || p->fault == WIRE_SWALLOWED;
    p->silence_ns = (harmless ? 60000 : half_open ? 300 : 1500) * ms_ns;
}

static scenario choose_scenario(uint64_t seed)
{
    uint64_t state = seed;
    scenario s = {0};
    now.is = chance_below(&state, 4) ? WIRE : LATE;
    bool harmless = now.is == LATE || chance_below(&state, 3) == 0;
    unsigned i = 0;
    if (only_sharded || (computes && chance_below(&state, 2))) {
        s.training = only_sharded
                         ? &sharded[chance_below(&state, N_SHARDED)]
                         : &trainings[chance_below(&state, N_TRAININGS)];
        s.n_ranks = s.training->devices * s.training->replicas;
    } else {
        i = (unsigned)chance_below(&state, n_net_cases);
        if (!harmless)
            i = (unsigned)(case_named(breakable[chance_below(
                               &state, sizeof breakable / sizeof *breakable)]) -
                           net_cases);
        s.conformance = &net_cases[i];
        s.n_ranks = s.conformance->n_ranks;
    }
    now.in_processes = now.is == LATE && s.conformance && seed % 2;
    now.late = (reordering_transport){
        .seed = seed, .most_ns = (int64_t)chance_below(&state, 3000000)};
    now.plan = quiet();
    now.plan.seed = seed;
    uint64_t passed[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    if (s.training)
        memcpy(passed, s.training->passed, sizeof passed);
    else
        memcpy(passed, case_passed[i], sizeof passed);
    if (now.is == WIRE)
        choose_fault(&state, s.n_ranks, passed, harmless);
    return s;
}

/* Checks for a valid reason to end. */
static bool is_reason(const char *text)
{
    static const char *const reasons[] = {
        "its connection to rank",        "silent for",
        "received invalid data from it", "its connections were closed",
        "has closed its endpoint",       "some were lost",
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strncmp(text, "rank ", 5) == 0 && strstr(text, reasons[i]))
            return true;
    return false;
}

static struct {
    unsigned runs, struck, same, ended;
    int64_t longest_ns;
} counts[N_WIRE_FAULTS + 1];

static void count_run(const scenario *s, lh_status status, bool same)
{
    wire_fault kind = now.is == LATE ? N_WIRE_FAULTS : now.plan.fault;
    bool struck = now.is == WIRE && now.log.struck;
    int64_t took_ns = struck ? now.log.ended_ns - now.log.struck_ns : 0;
    counts[kind].runs++;
    counts[kind].struck += struck;
    counts[kind].same += same && status == LH_OK;
    counts[kind].ended += status != LH_OK;
    if (took_ns > counts[kind].longest_ns)
        counts[kind].longest_ns = took_ns;
    if (!verbose)
        return;
    printf("seed %" PRIu64 ": %s, %s%s%s, %u to %u before byte %" PRIu64
           ": %s after %.3f s\n",
           now.plan.seed,
           s->training ? s->training->name : s->conformance->name,
           now.is == LATE ? "LATE" : wire_fault_name(kind),
           now.plan.tcp ? ", tcp" : "", now.plan.slow ? ", slow" : "",
           now.plan.from, now.plan.to, now.plan.at,
           status == LH_OK ? "ends well" : "fails", (double)took_ns * 1e-9);
    for (uint32_t i = 0; now.is == WIRE && i < s->n_ranks; i++)
        if (now.log.status[i] != LH_OK)
            printf("    %u: %s\n", i, now.log.text[i]);
}

/* A hanging run ends the program, which prints the scenario. */
enum { HANGS_S = 120 };
static char doing[300];

static void hangs(int signal)
{
    (void)signal;
    ssize_t n = write(STDERR_FILENO, doing, strlen(doing));
    (void)n;
    abort();
}

static void say_doing(uint64_t seed, const scenario *s)
{
    const wire_plan *p = &now.plan;
    const char *name = s->training ? s->training->name : s->conformance->name;
    if (now.is == LATE)
        snprintf(doing, sizeof doing, "seed %" PRIu64 " hangs: %s, late\n",
                 seed, name);
    else
        snprintf(doing, sizeof doing,
                 "seed %" PRIu64 " hangs: %s, %s from %u to %u before byte "
                 "%" PRIu64 "%s%s\n",
                 seed, name, wire_fault_name(p->fault), p->from, p->to, p->at,
                 p->tcp ? ", tcp" : "", p->slow ? ", slow" : "");
    alarm(HANGS_S);
}

static void check_seed(uint64_t seed)
{
    scenario s = choose_scenario(seed);
    lh_error err = {0};
    bool same = false;
    now.log = (wire_log){0};
    say_doing(seed, &s);
    lh_status status = s.training ? train_once(s.training, &same, &err)
                                  : run_case(s.conformance, &same, &err);
    count_run(&s, status, same);
    bool harmless = now.is == LATE || wire_fault_is_harmless(now.plan.fault);
    const char *name = s.training ? s.training->name : s.conformance->name;
    if (harmless || status == LH_OK) {
        bool fails = s.conformance && s.conformance->fails;
        CHECK_MSG(same && (fails || status == LH_OK),
                  "seed %" PRIu64 " (%s): %s", seed, name,
                  status == LH_OK ? "other bytes" : err.text);
        return;
    }
    for (uint32_t i = 0; i < s.n_ranks; i++)
        if (now.log.status[i] != LH_OK)
            CHECK_MSG(now.log.status[i] == LH_EIO && is_reason(now.log.text[i]),
                      "seed %" PRIu64 " (%s, %s), rank %u: '%s'", seed, name,
                      wire_fault_name(now.plan.fault), i, now.log.text[i]);
}

static uint64_t first_seed = 1, n_seeds = OF_CASES(200);

static void ends_with_the_same_or_a_reason(void)
{
    for (uint64_t i = 0; i < n_seeds; i++)
        check_seed(first_seed + i);
    printf("%-12s %6s %6s %6s %6s  %s\n", "", "runs", "struck", "same", "ended",
           "longest, s");
    for (int k = 0; k <= N_WIRE_FAULTS; k++)
        printf("%-12s %6u %6u %6u %6u  %.3f\n",
               k == N_WIRE_FAULTS ? "LATE" : wire_fault_name((wire_fault)k),
               counts[k].runs, counts[k].struck, counts[k].same,
               counts[k].ended, (double)counts[k].longest_ns * 1e-9);
}

/* A run that may restart continues after the fault, for example when a rank was
 * silent, with the bytes of an undisturbed run. Some faults strike after the
 * last step. */
static void lost_ranks_restart(void)
{
    uint32_t n = 0, n_restarts = 0;
    for (uint64_t seed = first_seed; computes && n < n_seeds / 8; seed++) {
        scenario s = choose_scenario(seed);
        lh_error err = {0};
        bool same = false;
        if (!s.training || now.is != WIRE ||
            wire_fault_is_harmless(now.plan.fault))
            continue;
        now.log = (wire_log){0};
        now.max_restarts = 1;
        now.plan.silence_ns = 3500 * ms_ns;
        const wire_fault fault = now.plan.fault;
        say_doing(seed, &s);
        const lh_status status = train_once(s.training, &same, &err);
        now.max_restarts = 0;
        CHECK_MSG(status == LH_OK && same, "seed %" PRIu64 " (%s, %s): %s",
                  seed, s.training->name, wire_fault_name(fault),
                  status == LH_OK ? "other bytes" : err.text);
        n_restarts += now.n_restarts;
        n++;
    }
    printf("%u trainings with faults, %u restarts\n", n, n_restarts);
    CHECK(n < 4 || n_restarts > n / 2);
}

/* With a second rail beside the proxy's, no fault is visible, even if bytes are
 * lost. A fault rarely strikes after the rail's last byte. */
static void rails_lose_nothing(void)
{
    unsigned n_struck = 0, n = (unsigned)(n_seeds / 5);
    lhi_rails_statistics seen = {0};
    for (uint64_t i = 0; i < n; i++) {
        scenario s = choose_scenario(first_seed + i);
        uint64_t state = first_seed + i, again = 7 * state;
        lh_error err = {0};
        bool same = false;
        if (now.is == LATE) { /* which has no proxy */
            s = choose_scenario(again);
            now.is = WIRE;
        }
        now.plan.rails = true;
        if (wire_fault_is_harmless(now.plan.fault))
            now.plan.fault = (wire_fault)chance_below(&state, N_WIRE_FAULTS);
        now.plan.at /= 2;
        now.log = (wire_log){0};
        say_doing(first_seed + i, &s);
        lh_status status = s.training ? train_once(s.training, &same, &err)
                                      : run_case(s.conformance, &same, &err);
        bool fails = s.conformance && s.conformance->fails;
        CHECK_MSG(same && (fails || status == LH_OK),
                  "seed %" PRIu64 " over rails (%s, %s): %s", first_seed + i,
                  s.training ? s.training->name : s.conformance->name,
                  wire_fault_name(now.plan.fault),
                  status == LH_OK ? "other bytes" : err.text);
        if (verbose)
            printf("seed %" PRIu64 " over rails: %s, %s: %d struck, %d lost, "
                   "%d again, %d twice, %d back\n",
                   first_seed + i,
                   s.training ? s.training->name : s.conformance->name,
                   wire_fault_name(now.plan.fault), now.log.struck,
                   (int)now.log.seen.n_lost, (int)now.log.seen.n_retransmitted,
                   (int)now.log.seen.n_duplicates,
                   (int)now.log.seen.n_restored);
        n_struck += now.log.struck;
        seen.n_lost += now.log.seen.n_lost;
        seen.n_restored += now.log.seen.n_restored;
        seen.n_retransmitted += now.log.seen.n_retransmitted;
        seen.n_duplicates += now.log.seen.n_duplicates;
    }
    printf("%u over rails, %u struck: %" PRIu64 " connections lost, %" PRIu64
           " back; segments sent again %" PRIu64 ", come twice %" PRIu64 "\n",
           n, n_struck, seen.n_lost, seen.n_restored, seen.n_retransmitted,
           seen.n_duplicates);
    if (n >= 40)
        CHECK(n_struck > n / 4 && seen.n_lost > 0 && seen.n_retransmitted > 0);
}

/* A rail is cut repeatedly under load, so that segments are lost and
 * duplicated. */
static void rails_cut_often(void)
{
    lhi_rails_statistics seen = {0};
    for (uint64_t seed = 0; seed < 4; seed++) {
        lh_error err = {0};
        bool same = false;
        now.is = WIRE;
        now.plan = (wire_plan){.seed = seed,
                               .fault = WIRE_CUT,
                               .from = seed % 2,
                               .to = 1 - seed % 2,
                               .at = 5000,
                               .every = 300000,
                               .rails = true};
        now.log = (wire_log){0};
        scenario s = {.conformance = case_named("sizes")};
        say_doing(seed, &s);
        run_case(s.conformance, &same, &err);
        CHECK_MSG(same, "cut often: %s", err.text);
        seen.n_restored += now.log.seen.n_restored;
        seen.n_retransmitted += now.log.seen.n_retransmitted;
        seen.n_duplicates += now.log.seen.n_duplicates;
    }
    printf("cut often: %" PRIu64 " connections back; segments sent again "
           "%" PRIu64 ", come twice %" PRIu64 "\n",
           seen.n_restored, seen.n_retransmitted, seen.n_duplicates);
    CHECK(seen.n_restored > 4 && seen.n_retransmitted > 4);
}

/* Seeds beyond the usual ones that found bugs: a receive accessed after
 * completion (205), lost bytes replaced by PINGs (734). */
static void found_before(void)
{
    static const uint64_t seeds[] = {205, 734};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        check_seed(seeds[i]);
}

/* The same with gathered parameters and scattered gradients. */
static void sharding_ends_so_too(void)
{
    only_sharded = computes;
    for (uint64_t i = 0; computes && i < (n_seeds + 3) / 4; i++)
        check_seed(first_seed + i);
    only_sharded = false;
}

/* ---- setup ---- */

static void look_for_device(void)
{
    training t = trainings[0];
    lh_error err = {0};
    make_training(&t);
    lh_status status = run_training(&t, t.losses, &t.weights, &t.size, &err);
    computes = status != LH_EUNSUPPORTED;
    if (!computes)
        printf("SKIPPED training: %s\n", err.text);
    free(t.weights);
    lh_exec_free(t.exec);
    lh_pipeline_free(t.pipeline);
}

int main(int argc, char **argv)
{
    verbose = getenv("TEST_NET_VERBOSE") != NULL;
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        n_seeds = strtoull(argv[2], NULL, 10);
    }
    if (!folder_begin("faults", 20000))
        return 1;
    look_for_device();
    signal(SIGALRM, hangs);
    RUN_VIRTUAL(undisturbed);
    RUN_VIRTUAL(ends_with_the_same_or_a_reason);
    RUN_VIRTUAL(lost_ranks_restart);
    RUN_VIRTUAL(sharding_ends_so_too);
    RUN_VIRTUAL(found_before);
    RUN_VIRTUAL(rails_lose_nothing);
    RUN_VIRTUAL(rails_cut_often);
    for (uint32_t i = 0; i < N_TRAININGS + N_SHARDED; i++) {
        training *t =
            i < N_TRAININGS ? &trainings[i] : &sharded[i - N_TRAININGS];
        free(t->weights);
        lh_exec_free(t->exec);
        lh_pipeline_free(t->pipeline);
    }
    folder_end();
    return test_summary();
}
