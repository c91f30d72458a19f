/* SPDX-License-Identifier: Apache-2.0 */
/* Training under twenty random events, with schedule and data-path switches at
 * random iterations. The final weights must equal, byte for byte, those from an
 * undisturbed run on one rank, and no run may hang. Arguments: CASES and FIRST.
 */
#define _GNU_SOURCE
#include "base/text.h"
#include "cases.h"
#include "format/job/events_file.h"
#include "random_pipeline.h"
#include "scheduled.h"
#include "test.h"
#include "tiny_model.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    STEPS = 12,
    LAYERS = 4,
    MICROBATCHES = 4,
    EVENTS = 20,
    MOST_LINKS = 16,
    MOST_METHODS = 24,
    HANGS_S = 120
};

static char folder[64], data_path[80];
static uint64_t seed_now;

static void hangs(int signal)
{
    (void)signal;
    printf("seed %llu hangs\n", (unsigned long long)seed_now);
    fflush(stdout);
    _exit(1);
}

/* --- cases ---------------------------------------------------------------- */

/* A random case: pipeline, event timeline, schedules and data paths. */
typedef struct setting {
    rng r;
    lh_pipeline *pipeline; /* the event timeline's state 0 */
    lh_event_timeline *course;
    lh_schedule *all[MOST_METHODS];
    const char *names[MOST_METHODS];
    uint32_t n;
    int64_t staging_ns[MOST_LINKS];
    bool links[MOST_LINKS], later[MOST_LINKS];
    lh_delegation copies;
    lh_exec_options exec;
    lh_reschedule given;
    uint32_t n_followed, n_refused, n_paths;
    const char *transport;
} setting;

static lh_pipeline *draw_pipeline(rng *r)
{
    static const char *const placements[] = {"ud", "loop", "wave"};
    const char *placement = placements[rng_below(r, 3)];
    const bool ud = strcmp(placement, "ud") == 0;
    const uint32_t devices = ud ? 2 + rng_below(r, 3) : 2;
    char text[1024], links[512] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < devices; i++)
        for (uint32_t j = 0; j < devices; j++)
            if (i + 1 == j || j + 1 == i)
                at += (size_t)snprintf(links + at, sizeof links - at,
                                       "  - {from: %u, to: %u, latency: %u, "
                                       "transfer: %u}\n",
                                       i, j, 10 + rng_below(r, 100),
                                       1 + rng_below(r, 30));
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: %u\nuniform: {placement: %s, chunks_per_device: %d, "
             "F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\nlinks:\n%s",
             (int)MICROBATCHES, devices, placement, ud ? 1 : 2, links);
    return pipeline_of(text);
}

static void draw_events(setting *s, const lh_pipeline *p)
{
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "longhaul: events/1\ntime_unit: us\n"
                                 "events:\n");
    for (int i = 0; i < EVENTS; i++) {
        const uint32_t from = rng_below(&s->r, STEPS);
        const uint32_t to = from + 1 + rng_below(&s->r, STEPS - from);
        const lh_link *l =
            lh_pipeline_link(p, rng_below(&s->r, lh_pipeline_n_links(p)));
        static const char *const what[] = {"latency: ", "latency: x",
                                           "transfer: x", "slower: x"};
        const uint32_t kind = rng_below(&s->r, 4);
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  - {from: %u, to: %u, links: ['%u>%u'], "
                               "%s%u}\n",
                               from, to, l->from, l->to, what[kind],
                               2 + rng_below(&s->r, kind ? 2 : 300));
    }
    lh_events *events = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_events_parse(text, at, "e", &events, &err), err);
    CHECK_OK(lh_event_timeline_make(p, events, NULL, &s->course, &err), err);
    CHECK_OK(lh_event_timeline_pipeline(s->course, 0, &s->pipeline, &err), err);
    lh_events_free(events);
}

/* Samples blocking or non-blocking sends, staging durations, and the initial
 * data path. */
static void draw_paths(setting *s)
{
    rng *r = &s->r;
    for (uint32_t i = 0; i < MOST_LINKS; i++) {
        s->staging_ns[i] = rng_below(r, 50000);
        s->links[i] = rng_chance(r, 50);
    }
    s->copies = (lh_delegation){.size = sizeof s->copies,
                                .links = s->links,
                                .staging_ns = rng_below(r, 50000),
                                .link_staging_ns = s->staging_ns};
    s->exec = (lh_exec_options){
        .size = sizeof s->exec,
        .receives = (lh_receives)rng_below(r, 3),
        .override_receives = true,
        .coupled_queue = rng_chance(r, 70) ? 1 + rng_below(r, 4) : 0,
        .receive_slots = rng_chance(r, 30) ? 1 + rng_below(r, 3) : 0,
        .path = (lh_data_path)rng_below(r, 3),
        .delegation = &s->copies,
    };
}

static void make_schedules(setting *s)
{
    for (uint32_t i = 0; i < lh_n_methods() && s->n < MOST_METHODS; i++) {
        const char *name = lh_method_name(i);
        const lh_method_options how = {.size = sizeof how, .sub_blocks = 2};
        if (lh_method_is_auto(name) ||
            lh_method_run(name, s->pipeline,
                          strcmp(name, "greedy") == 0 ? &how : NULL,
                          &s->all[s->n], NULL, NULL) != LH_OK)
            continue;
        s->names[s->n++] = name;
    }
    CHECK(s->n >= 4);
}

static void set_up(setting *s, uint64_t seed)
{
    *s = (setting){.r = {seed}};
    lh_pipeline *p = draw_pipeline(&s->r);
    draw_events(s, p);
    draw_paths(s);
    make_schedules(s);
    s->transport = rng_chance(&s->r, 40) ? "local" : "inproc";
    lh_pipeline_free(p);
}

static void tear_down(setting *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        lh_schedule_free(s->all[i]);
    lh_event_timeline_free(s->course);
    lh_pipeline_free(s->pipeline);
}

/* --- runs ----------------------------------------------------------------- */

static const lh_reschedule *another(void *of, uint64_t step)
{
    setting *s = of;
    (void)step;
    if (!rng_chance(&s->r, 70))
        return NULL;
    uint32_t i = rng_below(&s->r, s->n);
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->all[i],
                               .name = s->names[i],
                               .override_path = rng_chance(&s->r, 80),
                               .path = (lh_data_path)rng_below(&s->r, 3),
                               .delegated = s->later};
    for (uint32_t k = 0; k < MOST_LINKS; k++)
        s->later[k] = rng_chance(&s->r, 50);
    return &s->given;
}

/* Creates the executor for the case's first schedule, without queue and slot
 * limits if it would deadlock. */
static lh_exec *first_exec(setting *s)
{
    lh_exec *x = NULL;
    lh_error err = {0};
    lh_status status = lh_exec_make(s->pipeline, s->all[0], &s->exec, &x, &err);
    if (status == LH_EDEADLOCK) {
        s->exec.coupled_queue = 0;
        s->exec.receive_slots = 0;
        status = lh_exec_make(s->pipeline, s->all[0], &s->exec, &x, &err);
    }
    CHECK_OK(status, err);
    return x;
}

static void train(setting *s, const lh_exec *x, const char *name, bool quiet,
                  lh_train_result **out)
{
    char path[160];
    lh_error err = {0};
    uint32_t first_layers[LAYERS + 1];
    const uint32_t n = lh_pipeline_n_chunks(s->pipeline);
    const lh_model model = tiny_model(LAYERS);
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 12;
    m.data = data_path;
    m.rate = 1e-2;
    m.checkpoint = path;
    m.emulate_links = !quiet;
    const lh_train_options o = {.size = sizeof o,
                                .transport = s->transport,
                                .steps = STEPS,
                                .context = s,
                                .event_timeline = quiet ? NULL : s->course,
                                .reschedule = quiet ? NULL : another};
    CHECK_OK(lh_train_cpu(s->pipeline, x, &m, &o, out, &err), err);
}

static char *weights_of(const char *name, size_t *size)
{
    char path[200], *text = NULL;
    lh_error err;
    snprintf(path, sizeof path, "%s/%s/step-%08d/model.safetensors", folder,
             name, STEPS);
    CHECK_OK(lhi_file_read(path, 1 << 24, &text, size, &err), err);
    return text;
}

static char *want;
static size_t want_size;

static void quiet_on_one_rank(void)
{
    setting s = {.transport = "inproc"};
    lh_error err = {0};
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    char text[256];
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\nmicrobatches: %d\ndevices: 1\n"
             "uniform: {placement: ud, F: 1, D: 1, W: 1}\n",
             (int)MICROBATCHES);
    s.pipeline = pipeline_of(text);
    lh_schedule *schedule = schedule_by(s.pipeline, "1f1b");
    CHECK_OK(lh_exec_make(s.pipeline, schedule, NULL, &x, &err), err);
    train(&s, x, "quiet", true, &r);
    want = weights_of("quiet", &want_size);
    CHECK(want && want_size > 10000);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(s.pipeline);
}

static uint64_t n_followed, n_refused, n_paths;

static void one_case(uint64_t seed)
{
    setting s;
    char name[32];
    uint32_t n = 0;
    size_t size = 0;
    lh_train_result *r = NULL;
    seed_now = seed;
    alarm(HANGS_S);
    set_up(&s, seed);
    snprintf(name, sizeof name, "seed-%llu", (unsigned long long)seed);
    lh_exec *x = first_exec(&s);
    lh_data_path before = s.exec.path;
    if (x)
        train(&s, x, name, false, &r);
    const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        CHECK_MSG(!rows[i].refused || strstr(rows[i].refused, "deadlock"),
                  "seed %llu: %s", (unsigned long long)seed, rows[i].refused);
        n_refused += rows[i].refused != NULL;
        if (rows[i].refused)
            continue;
        n_followed++;
        n_paths += rows[i].path != before;
        before = rows[i].path;
    }
    char *got = weights_of(name, &size);
    CHECK_MSG(got && want && size == want_size && memcmp(got, want, size) == 0,
              "seed %llu, %s: other weights", (unsigned long long)seed,
              s.transport);
    lh_text_free(got);
    lh_train_result_free(r);
    lh_exec_free(x);
    tear_down(&s);
    alarm(0);
}

static uint32_t n_cases = 16, first_case;

static void weights_do_not_notice(void)
{
    for (uint32_t i = 0; i < n_cases; i++)
        one_case(first_case + (uint64_t)i);
    CHECK_MSG(n_followed > 4 * n_cases && n_paths > 2 * n_cases,
              "%llu switches, %llu of them of the path, %llu refused",
              (unsigned long long)n_followed, (unsigned long long)n_paths,
              (unsigned long long)n_refused);
}

int main(int argc, char **argv)
{
    char remove[100];
    FILE *file;
    cases_from(argc, argv, &n_cases, &first_case);
    snprintf(folder, sizeof folder, "/tmp/longhaul-paths-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(data_path, sizeof data_path, "%s/data", folder);
    file = fopen(data_path, "w");
    CHECK(file != NULL);
    for (unsigned i = 0; file && i < 4000; i++)
        fputc("etaoin shrdlu\n"[i * i % 97 % 14], file);
    if (file)
        fclose(file);
    signal(SIGALRM, hangs);
    RUN(quiet_on_one_rank);
    RUN(weights_do_not_notice);
    free(want);
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    return system(remove) != 0 || test_summary();
}
