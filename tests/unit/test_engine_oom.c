/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with each allocation and all later ones failing on all ranks:
 * plans are rejected, runs end. */
#define _POSIX_C_SOURCE 200809L
#include "fail_alloc.h"
#include "jobs.h"
#include "plans.h"
#include "tiny_model.h"
#include "training_text.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <stdlib.h>
#include <unistd.h>

static const char text[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 3\ndevices: 2\n"
    "uniform: {placement: wave, F: 1, D: 1, W: 1}\n"
    "datacenters: {count: 2, latency: 5, transfer: 2}\n";

static const char two_stages[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 2\ndevices: 2\n"
    "uniform: {placement: ud, F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\n";

static lh_pipeline *pipeline;
static lh_schedule *schedule;

static void plans(void)
{
    for (int receives = 0; receives < 3; receives++) {
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)receives};
        lh_error err = {0};
        FAIL_EACH_ALLOC({
            lh_exec *x = NULL;
            status = lh_exec_make(pipeline, schedule, &o, &x, &err);
            CHECK((status == LH_OK) == (x != NULL));
            lh_exec_free(x);
        });
    }
}

/* A pipeline with offloaded activations. */
static void copies(void)
{
    static const char away[] =
        "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 4\ndevices: 2\n"
        "backward: joint\nuniform: {placement: ud, F: 1, D: 1, W: 1, "
        "offload: 1}\n";
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    CHECK_OK(lh_pipeline_parse(away, strlen(away), "away", &p, &err), err);
    CHECK_OK(lh_method_run("gpipe", p, NULL, &s, NULL, &err), err);
    FAIL_EACH_ALLOC({
        lh_exec *x = NULL;
        status = lh_exec_make(p, s, NULL, &x, &err);
        CHECK((status == LH_OK) == (x != NULL));
        lh_exec_free(x);
    });
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void runs(void)
{
    for (int receives = 0; receives < 2; receives++) {
        /* Rendezvous receives with blocking sends, with a queue long enough to
         * avoid deadlock. */
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)receives,
                             .coupled_queue = receives ? 16 : 0};
        lh_exec *x = NULL;
        lh_error err = {0};
        CHECK_OK(lh_exec_make(pipeline, schedule, &o, &x, &err), err);
        int64_t n = 0;
        do {
            lh_train_options with = {.size = sizeof with, .steps = 2};
            lh_train_result *r = NULL;
            fail_alloc_hit = false;
            fail_alloc_after = n++;
            lh_status status = lh_train_timed(pipeline, x, &with, &r, &err);
            fail_alloc_after = -1;
            CHECK((status == LH_OK) == (r != NULL));
            CHECK(fail_alloc_hit || status == LH_OK);
            CHECK(status == LH_OK || err.text[0]);
            lh_train_result_free(r);
        } while (fail_alloc_hit && n < 5000);
        CHECK(n > 20 && n < 5000);
        lh_exec_free(x);
    }
}

/* Another schedule for each step. */
typedef struct switching {
    lh_schedule *others[2];
    lh_reschedule given;
    int64_t fails_after; /* from the second proposal to its outcome */
    uint32_t n_followed;
} switching;

static const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    static const char *const names[] = {"greedy", "zb-v"};
    switching *s = of;
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->others[step % 2],
                               .name = names[step % 2],
                               .why = "test"};
    if (step == 1 && s->fails_after >= 0)
        fail_alloc_after = s->fails_after;
    return &s->given;
}

static void note_switch(void *of, const lh_switch *what)
{
    switching *s = of;
    s->n_followed += !what->refused;
    if (s->fails_after >= 0 && what->step == 1)
        fail_alloc_after = -1;
}

/* A run ends with an error, or rejects a proposal for lack of memory. First all
 * later allocations fail, then only a proposal's. */
static void switches(void)
{
    lh_exec *x = NULL;
    lh_error err = {0};
    switching s = {.others = {NULL, schedule}};
    CHECK_OK(lh_exec_make(pipeline, schedule, NULL, &x, &err), err);
    CHECK_OK(lh_method_run("greedy", pipeline, NULL, &s.others[0], NULL, &err),
             err);
    for (int alone = 0; alone < 2; alone++) {
        int64_t n = 0;
        s.n_followed = 0;
        do {
            const lh_train_options with = {.size = sizeof with,
                                           .steps = 3,
                                           .context = &s,
                                           .reschedule = next_schedule,
                                           .switched = note_switch};
            lh_train_result *r = NULL;
            fail_alloc_hit = false;
            fail_alloc_after = alone ? -1 : n;
            s.fails_after = alone ? n : -1;
            n++;
            lh_status status = lh_train_timed(pipeline, x, &with, &r, &err);
            fail_alloc_after = -1;
            CHECK((status == LH_OK) == (r != NULL));
            CHECK(fail_alloc_hit || status == LH_OK);
            CHECK(status == LH_OK || err.text[0]);
            uint32_t n_switches = 0;
            if (r)
                lh_train_switches(r, &n_switches);
            CHECK_INT(n_switches, r ? 3 : 0);
            lh_train_result_free(r);
        } while (fail_alloc_hit && n < 5000);
        CHECK(n > 20 && n < 5000);
        CHECK(s.n_followed >= 3);
    }
    lh_schedule_free(s.others[0]);
    lh_exec_free(x);
}

/* --- migrations ----------------------------------------------------------- */

/* Before step 1 layers and ranks migrate, and one rank's data pass through
 * another. */
typedef struct moving {
    const lh_schedule *schedule;
    lh_reschedule given;
    int64_t fails_after; /* from the proposal to its outcome; < 0: never */
    uint32_t n_moved, n_refused;
} moving;

static const lh_reschedule *next_move(void *of, uint64_t step)
{
    static const uint32_t layers[] = {2, 1}, hosts[] = {1, 3, 0, 2},
                          vias[] = {2, LH_NONE, LH_NONE, 0};
    moving *s = of;
    if (step != 1)
        return NULL;
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->schedule,
                               .name = "as before",
                               .why = "test",
                               .layers = layers,
                               .hosts = hosts,
                               .relay_ranks = vias};
    if (s->fails_after >= 0)
        fail_alloc_after = s->fails_after;
    return &s->given;
}

static void note_move(void *of, const lh_switch *what)
{
    moving *s = of;
    fail_alloc_after = -1;
    s->n_moved += !what->refused;
    s->n_refused += what->refused != NULL;
}

/* As `switches`: all later allocations fail, or only the migration's, at every
 * few allocations from the proposal on. */
static void moves(void)
{
    enum { STRIDE = 5 };
    static const uint32_t first_layers[] = {0, 1, 3};
    char path[] = "/tmp/longhaul-test-oom-moves-XXXXXX";
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_exec *x = NULL;
    const lh_model model = tiny_model(3);
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    training_text(path, 4000);
    CHECK_OK(
        lh_pipeline_parse(two_stages, strlen(two_stages), "test", &p, &err),
        err);
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 8;
    m.replicas = 2;
    m.data = path;
    moving of = {.schedule = s};
    for (int once = 0; once < 2; once++) {
        int64_t n = 0;
        fail_alloc_once = once;
        do {
            const lh_train_options o = {.size = sizeof o,
                                        .steps = 3,
                                        .context = &of,
                                        .reschedule = next_move,
                                        .switched = note_move};
            lh_train_result *r = NULL;
            fail_alloc_hit = false;
            of.fails_after = n;
            n += STRIDE;
            lh_status status = lh_train_cpu(p, x, &m, &o, &r, &err);
            fail_alloc_after = -1;
            CHECK((status == LH_OK) == (r != NULL));
            CHECK(fail_alloc_hit || status == LH_OK);
            CHECK(status == LH_OK || err.text[0]);
            lh_train_result_free(r);
        } while (fail_alloc_hit && n < 20000);
        CHECK(n > 20 * STRIDE && n < 20000);
    }
    CHECK(of.n_moved > 0 && of.n_refused > 0);
    fail_alloc_once = false;
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    unlink(path);
}

static const char small[] =
    "  gpus_per_node: 2\n"
    "training: {global_batch: 4, sequence: 8, zero: 1}\n"
    "model: {layers: 2, hidden: 16, ffn: 24, heads: 2, vocab: 256}\n"
    "layout: {tensor: 1, data: 2, pipeline: 2, micro_batch: 1, "
    "chunks_per_device: 1, schedule: 1f1b}\n";

/* All forwards first, so that offloads can complete. */
static const char leaving[] =
    "  gpus_per_node: 2\n"
    "training: {global_batch: 8, sequence: 8, zero: 1, offload: 1}\n"
    "model: {layers: 2, hidden: 16, ffn: 24, heads: 2, vocab: 256}\n"
    "layout: {tensor: 1, data: 2, pipeline: 2, micro_batch: 1, "
    "chunks_per_device: 1, schedule: gpipe}\n";

/* Two replicas with profiling, with and without emulated links and offload:
 * only one allocation in every few fails, to limit the test's duration. */
static void profiles(void)
{
    enum { STRIDE = 7 };
    char path[] = "/tmp/longhaul-test-oom-XXXXXX";
    lh_error err = {0};
    lh_plan *plans_of[] = {plan_of_job(job_with(JOB_SMALL, small)),
                           plan_of_job(job_with(JOB_SMALL, leaving))};
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof text) == (ssize_t)sizeof text);
    close(fd);
    for (int i = 0; plans_of[0] && plans_of[1] && i < 3; i++) {
        const lh_plan *plan = plans_of[i == 2];
        const lh_train_options run = {
            .size = sizeof run, .steps = 2, .profiles = true};
        lh_train_model m = lh_train_model_defaults();
        m.data = path;
        m.emulate_links = i == 0;
        m.offload_folder = "/tmp";
        const lh_train_plan_options o = {
            .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
        int64_t n = 3 * i;
        lh_status status;
        do {
            lh_train_result *r = NULL;
            fail_alloc_hit = false;
            fail_alloc_after = n;
            n += STRIDE;
            status = lh_train_plan(plan, &o, &r, &err);
            fail_alloc_after = -1;
            CHECK((status == LH_OK) == (r != NULL));
            CHECK(fail_alloc_hit || status == LH_OK);
            CHECK(status == LH_OK || err.text[0]);
            CHECK(status != LH_OK || fail_alloc_hit || r->profile);
            CHECK(status != LH_OK || (r->copy_ns > 0) == (i == 2));
            lh_train_result_free(r);
        } while (status != LH_OK && n < 20000);
        CHECK(n > 20 * STRIDE && n < 20000);
    }
    lh_plan_free(plans_of[0]);
    lh_plan_free(plans_of[1]);
    unlink(path);
}

int main(void)
{
    lh_error err;
    if (lh_pipeline_parse(text, strlen(text), "test", &pipeline, &err) !=
            LH_OK ||
        lh_method_run("zb-v", pipeline, NULL, &schedule, NULL, &err) != LH_OK)
        return 1;
    RUN(plans);
    RUN(copies);
    RUN(runs);
    RUN(switches);
    RUN(moves);
    RUN(profiles);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return test_summary();
}
