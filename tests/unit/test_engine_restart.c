/* SPDX-License-Identifier: Apache-2.0 */
/* Runs whose ranks are killed at random times restart until they end, with the
 * bytes and losses of an undisturbed run, and repeat no iteration:
 *
 *     test_engine_restart [KILLS [SEED]] */
#define _GNU_SOURCE
#include "runtime/device/data.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/restart.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { LAYERS = 4, STEPS = 12, RANKS = 4, MOST_STEPS = 1000 };

static lh_model model;
static lh_pipeline *pipeline;
static lh_exec *exec;

/* Kinds of runs. */
static const struct kind {
    const char *resume;
    uint32_t checkpoint_every;
    double validation;
    bool adapts, fresh;
    uint32_t zero;
} kinds[] = {
    {NULL, 1, 0, true, false, 1},
    {NULL, 0, 0.2, false, false, 3}, /* no checkpoint before the end */
    {"first", 2, 0, true, false, 1},
    {NULL, 2, 0, false, true, 0}, /* its folder has another run's checkpoints */
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
/* Folders of their undisturbed runs. */
static const char *const calm_names[N_KINDS] = {"calm0", "calm1", "calm2",
                                                "calm3"};

/* --- deaths of ranks ------------------------------------------------------ */

/* The launcher forks all ranks of an attempt, then those of the next. */
static uint32_t n_forked, n_deaths, most_deaths;
static uint64_t chance;
static uint32_t victims, delay_us; /* a bit per rank */

static uint32_t draw(uint32_t n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(chance >> 33) % n;
}

/* Chooses the next attempt's victims before its first fork. */
static void before_fork(void)
{
    if (n_forked % RANKS == 0) {
        victims = n_deaths < most_deaths ? 1u << draw(RANKS) : 0;
        if (victims && draw(3) == 0) /* as if a host was lost */
            victims |= 1u << draw(RANKS);
        delay_us = 1 + draw(40000);
    }
    n_forked++;
}

/* A victim dies of SIGALRM, which it does not catch. */
static void in_fork(void)
{
    const struct itimerval death = {.it_value = {.tv_usec = delay_us}};
    if (victims >> (n_forked - 1) % RANKS & 1)
        setitimer(ITIMER_REAL, &death, NULL);
}

static char first_death[300]; /* remark on the first one */

static void count_death(void *of, const char *text)
{
    (void)of;
    if (n_deaths == 0)
        snprintf(first_death, sizeof first_death, "%s", text);
    n_deaths += strstr(text, "; all ranks restart (") != NULL;
}

/* --- runs ----------------------------------------------------------------- */

static atomic_uint *n_reports; /* per step, from all attempts */

static bool is_folder_lost;
static int64_t silence_ns;

/* Reads of data by all ranks, and the read that never ends; 0: none. */
static atomic_uint *n_reads;
static uint32_t hanging_read;

lh_status __real_lhi_data_read_window(const lhi_data *data, int validation,
                                      uint64_t sample, int32_t *tokens,
                                      lh_error *err);
lh_status __wrap_lhi_data_read_window(const lhi_data *data, int validation,
                                      uint64_t sample, int32_t *tokens,
                                      lh_error *err);
lh_status __wrap_lhi_data_read_window(const lhi_data *data, int validation,
                                      uint64_t sample, int32_t *tokens,
                                      lh_error *err)
{
    if (hanging_read && atomic_fetch_add(n_reads, 1) + 1 == hanging_read)
        for (;;)
            pause();
    return __real_lhi_data_read_window(data, validation, sample, tokens, err);
}

/* Replaces the checkpoint folder by a file and kills rank 0. */
static void lose_folder(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s/lost'; : > '%s/lost'", folder,
             folder);
    CHECK_INT(system(command), 0);
    raise(SIGKILL);
}

static void report(void *of, const lh_iteration *it)
{
    (void)of;
    atomic_fetch_add(&n_reports[it->step], 1);
    if (is_folder_lost && it->step == 3)
        lose_folder();
}

static lh_status train(const struct kind *kind, const char *name,
                       uint64_t steps, uint32_t max_restarts, double rate,
                       lh_train_result **out, lh_error *err)
{
    char path[160], from[160];
    const uint32_t first_layers[] = {0, 2, LAYERS};
    lh_train_model m = lh_train_model_defaults();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 16;
    m.replicas = 2;
    m.seed = 5;
    m.data = text_path;
    m.rate = rate;
    m.warmup = 2;
    m.validation = kind->validation;
    m.validate_every = kind->validation > 0 ? 2 : 0;
    m.checkpoint = path;
    m.checkpoint_every = kind->checkpoint_every;
    m.keep = 2;
    m.fresh = kind->fresh;
    m.unsharded_optimizer = kind->zero == 0;
    m.per_layer_sharding = kind->zero == 3;
    m.sharded_parameters = m.sharded_gradients = kind->zero == 3;
    if (kind->resume) {
        snprintf(from, sizeof from, "%s/%s", folder, kind->resume);
        m.resume = from;
    }
    const lh_train_adapt adapt = {.size = sizeof adapt};
    const lh_train_options o = {.size = sizeof o,
                                .transport = "local",
                                .adapt = kind->adapts ? &adapt : NULL,
                                .steps = steps,
                                .progress = report,
                                .warning = count_death,
                                .silence_ns = silence_ns,
                                .max_restarts = max_restarts};
    return lh_train_cpu(pipeline, exec, &m, &o, out, err);
}

static void check_same_file(const char *a, const char *b, const char *file)
{
    size_t size[2];
    char *bytes[] = {saved_file(a, STEPS, file, &size[0]),
                     saved_file(b, STEPS, file, &size[1])};
    CHECK_MSG(bytes[0] && bytes[1] && size[0] == size[1] &&
                  memcmp(bytes[0], bytes[1], size[0]) == 0,
              "%s: %s differs from the undisturbed run's", b, file);
    free(bytes[0]);
    free(bytes[1]);
}

static void remove_run(const char *name)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s/%s'", folder, name);
    CHECK_INT(system(command), 0);
}

/* Trains a kind of run whose ranks die; `want`: the undisturbed run. Returns
 * the number of deaths. */
static uint32_t check_deaths(const struct kind *kind, uint32_t deaths,
                             const lh_train_result *want)
{
    lh_train_result *r = NULL;
    lh_error err;
    const char *calm = calm_names[kind - kinds];
    if (kind->fresh) {
        CHECK_OK(train(&kinds[0], "killed", 3, 0, 2e-2, &r, &err), err);
        lh_train_result_free(r);
        r = NULL;
    }
    for (int i = 0; i < STEPS; i++)
        atomic_store(&n_reports[i], 0);
    n_deaths = n_forked = 0;
    most_deaths = deaths;
    CHECK_OK(train(kind, "killed", STEPS, deaths, 1e-2, &r, &err), err);
    most_deaths = 0;
    if (!r)
        return n_deaths;
    const uint32_t first = STEPS - want->n_iterations;
    CHECK_INT(r->n_restarts, n_deaths);
    CHECK_INT(r->n_iterations, want->n_iterations);
    uint64_t n_again = 0, n_repeated = 0;
    for (uint32_t i = 0; i < r->n_iterations && i < want->n_iterations; i++) {
        const unsigned n = atomic_load(&n_reports[first + i]);
        CHECK_INT(r->iterations[i].step, want->iterations[i].step);
        CHECK(r->iterations[i].loss == want->iterations[i].loss);
        CHECK(memcmp(&r->iterations[i].validation_loss,
                     &want->iterations[i].validation_loss,
                     sizeof(double)) == 0);
        CHECK_MSG(n > 0, "step %u was lost", first + i);
        n_again += n - 1;
    }
    for (uint32_t i = 0; i < r->n_restarts; i++)
        n_repeated += r->restarts[i].n_repeated;
    CHECK(n_again >= n_repeated);
    CHECK_INT(n_repeated, 0); /* their states are kept in memory */
    lh_train_result_free(r);
    check_same_file(calm, "killed", "model.safetensors");
    check_same_file(calm, "killed", "optimizer.safetensors");
    remove_run("killed");
    return n_deaths;
}

static uint32_t n_kills = 12;

static void ranks_are_killed(void)
{
    lh_train_result *want[N_KINDS] = {NULL};
    lh_error err;
    uint32_t n = 0;
    CHECK_OK(train(&kinds[0], "first", 2, 0, 1e-2, &want[0], &err), err);
    lh_train_result_free(want[0]);
    for (uint32_t k = 0; k < N_KINDS; k++) {
        want[k] = NULL;
        CHECK_OK(
            train(&kinds[k], calm_names[k], STEPS, 0, 1e-2, &want[k], &err),
            err);
        CHECK(want[k] && want[k]->n_restarts == 0);
    }
    for (uint32_t k = 0; n < n_kills && !test_state.bad; k++)
        n += check_deaths(&kinds[k % N_KINDS], 1 + draw(5), want[k % N_KINDS]);
    for (uint32_t k = 0; k < N_KINDS; k++)
        lh_train_result_free(want[k]);
}

/* One rank hangs in a pass of its third iteration, while its heartbeats go on:
 * in each iteration the first and the last stage read two windows per
 * replica. Others may be taken for silent on a busy machine. */
static void a_rank_that_hangs_is_lost(void)
{
    lh_train_result *r = NULL;
    lh_error err;
    CHECK_OK(train(&kinds[3], "calm", STEPS, 0, 1e-2, &r, &err), err);
    lh_train_result_free(r);
    r = NULL;
    n_deaths = 0;
    silence_ns = 1000000000;
    hanging_read = 2 * 2 * 2 * 2 + 3;
    CHECK_OK(train(&kinds[3], "hung", STEPS, 100, 1e-2, &r, &err), err);
    hanging_read = 0;
    silence_ns = 0;
    CHECK_MSG(n_deaths > 0 && strstr(first_death, ": hangs: its pass "), "%s",
              first_death);
    CHECK(r && r->n_restarts == n_deaths && r->n_iterations == STEPS);
    lh_train_result_free(r);
    check_same_file("calm", "hung", "model.safetensors");
}

/* --- ends ----------------------------------------------------------------- */

static void restarts_are_limited(void)
{
    lh_train_result *r = NULL;
    lh_error err;
    n_deaths = n_forked = 0;
    most_deaths = 1000000;
    lh_status status =
        train(&kinds[0], "limited", MOST_STEPS, 2, 1e-2, &r, &err);
    most_deaths = 0;
    CHECK_INT(status, LH_EIO);
    CHECK_HAS(err.text, "killed by signal 14");
    CHECK_INT(n_deaths, 2);
    CHECK(r == NULL);
}

/* Not a restart from the beginning. */
static void an_unreadable_folder_ends_the_run(void)
{
    lh_train_result *r = NULL;
    lh_error err;
    n_deaths = 0;
    is_folder_lost = true;
    CHECK_INT(train(&kinds[0], "lost", STEPS, 5, 1e-2, &r, &err), LH_EIO);
    is_folder_lost = false;
    CHECK_HAS(err.text, "cannot restart: ");
    CHECK_HAS(err.text, "Not a directory");
    CHECK_INT(n_deaths, 0);
}

/* A loss that is not finite would be so again. */
static void errors_are_not_repeated(void)
{
    lh_train_result *r = NULL;
    lh_error err;
    n_deaths = 0;
    CHECK(train(&kinds[0], "infinite", STEPS, 5, 1e8, &r, &err) != LH_OK);
    CHECK_HAS(err.text, "is not finite");
    CHECK_INT(n_deaths, 0);
}

static void runs_that_cannot_restart_are_rejected(void)
{
    const uint32_t first_layers[] = {0, 2, LAYERS};
    lh_train_model m = lh_train_model_defaults();
    lh_train_options o = {
        .size = sizeof o, .transport = "local", .max_restarts = 1};
    lh_train_result *r = NULL;
    lh_error err;
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 16;
    m.replicas = 2;
    m.data = text_path;
    CHECK_INT(lh_train_cpu(pipeline, exec, &m, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "restarts from its checkpoints");
    m.checkpoint = folder;
    o.profiles = true;
    CHECK_INT(lh_train_cpu(pipeline, exec, &m, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "measures no profile");
}

/* Two replicas of parts 5 and 6; a step count is stored plus one. */
static void newest_common_states_are_chosen(void)
{
    static const struct {
        lh_kept_states ranks[4];
        uint64_t step;
        uint32_t donors[4];
    } cases[] = {
        /* rank 1 was lost before it kept its state after 8 steps */
        {{{5, 5, {8, 9}}, {6, 6, {8, 7}}, {5, 5, {8, 9}}, {6, 6, {8, 9}}},
         7,
         {0, 1, 2, 3}},
        /* rank 2's host is new; ranks 0 and 1 have exchanged their hosts */
        {{{5, 6, {8, 9}}, {6, 5, {8, 9}}, {5, 0, {0, 0}}, {6, 6, {8, 9}}},
         8,
         {1, 0, 1, 3}},
        /* both hosts with part 6 are new; then nothing was kept */
        {{{5, 5, {8, 9}}, {6, 0, {0, 0}}, {5, 5, {8, 9}}, {6, 0, {0, 0}}},
         0,
         {LH_NONE, LH_NONE, LH_NONE, LH_NONE}},
        {{{5, 0, {0, 0}}, {6, 0, {0, 0}}, {5, 0, {0, 0}}, {6, 0, {0, 0}}},
         0,
         {LH_NONE, LH_NONE, LH_NONE, LH_NONE}},
    };
    lh_error err = {0};
    uint64_t step = 77;
    uint32_t donors[4] = {77, 77, 77, 77};
    CHECK_INT(lh_restart_choose(0, cases[0].ranks, &step, donors, &err),
              LH_EINVAL);
    CHECK(step == 77 && donors[0] == 77);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(lh_restart_choose(4, cases[i].ranks, &step, donors, &err),
                 err);
        CHECK_INT(step, cases[i].step);
        CHECK(memcmp(donors, cases[i].donors, sizeof donors) == 0);
    }
}

int main(int argc, char **argv)
{
    lh_error err;
    lh_schedule *schedule = NULL;
    const lh_method_options method = {.size = sizeof method};
    const lh_exec_options how = {.size = sizeof how};
    const char *text =
        "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 2\ndevices: 2\n"
        "backward: split\nuniform: {placement: ud, chunks_per_device: 1, F: "
        "10, D: 12, W: 9, memory: {F: 1, W: -1}}\n";
    n_kills = argc > 1 ? (uint32_t)atoi(argv[1]) : n_kills;
    chance = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    n_reports = mmap(NULL, MOST_STEPS * sizeof *n_reports,
                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    n_reads = mmap(NULL, sizeof *n_reads, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_reports == MAP_FAILED || n_reads == MAP_FAILED ||
        !folder_begin("restart", 6000))
        return 1;
    pthread_atfork(before_fork, NULL, in_fork);
    model = tiny_model(LAYERS);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &pipeline, &err),
             err);
    CHECK_OK(lh_method_run("zb-h1", pipeline, &method, &schedule, NULL, &err),
             err);
    CHECK_OK(lh_exec_make(pipeline, schedule, &how, &exec, &err), err);
    RUN(ranks_are_killed);
    RUN(a_rank_that_hangs_is_lost);
    RUN(newest_common_states_are_chosen);
    RUN(restarts_are_limited);
    RUN(an_unreadable_folder_ends_the_run);
    RUN(errors_are_not_repeated);
    RUN(runs_that_cannot_restart_are_rejected);
    lh_exec_free(exec);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    folder_end();
    return test_summary();
}
