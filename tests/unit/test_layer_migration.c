/* SPDX-License-Identifier: Apache-2.0 */
/* Layer migration away from slow devices. */
#include "resilience/adapt/migration.h"
#include "resilience/placement/layers_search.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/layers.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>

enum { MS = 1000000, STAGES = 4 };

/* Four stages with four layers of 5 ms; a fifth layer takes 3 ms more. */
static const uniform four = {
    .placement = "ud",
    .devices = STAGES,
    .microbatches = 8,
    .f = 20,
    .d = 20,
    .w = 20,
    .more = "data_parallel:\n"
            "  - {chunk: 1, all_gather: 8, reduce_scatter: 4}\n"};
static const uint32_t even[] = {4, 4, 4, 4};

/* A pipeline, its schedule and its layers. */
typedef struct setting {
    lh_pipeline *quiet;
    lh_layers *layers;
    lh_schedule *schedule;
} setting;

static setting set_up(uniform u)
{
    lh_error err = {0};
    setting t = {.quiet = uniform_make(u)};
    CHECK_OK(lh_layers_make(t.quiet, even, &t.layers, &err), err);
    CHECK_OK(lh_method_run("zb-h1", t.quiet, NULL, &t.schedule, NULL, &err),
             err);
    return t;
}

static void tear_down(setting *t)
{
    lh_schedule_free(t->schedule);
    lh_layers_free(t->layers);
    lh_pipeline_free(t->quiet);
}

/* Returns the pipeline with a device's passes multiplied, and the last chunk's
 * head longer. */
static lh_pipeline *slowed(const lh_pipeline *p, uint32_t device, double times,
                           int64_t head_ns)
{
    lh_error err = {0};
    lh_chunk chunks[STAGES];
    lh_pipeline *out = NULL;
    lh_pipeline_desc d = {.size = sizeof d};
    CHECK_OK(lh_pipeline_describe(p, &d, &err), err);
    for (uint32_t c = 0; c < STAGES; c++) {
        chunks[c] = d.chunks[c];
        double slower = chunks[c].device == device ? times : 1;
        int64_t more = c + 1 == STAGES ? head_ns : 0;
        chunks[c].f_ns = (int64_t)((double)(chunks[c].f_ns + more) * slower);
        chunks[c].d_ns = (int64_t)((double)(chunks[c].d_ns + more) * slower);
        chunks[c].w_ns = (int64_t)((double)chunks[c].w_ns * slower);
    }
    d.chunks = chunks;
    CHECK_OK(lh_pipeline_make(&d, &out, &err), err);
    return out;
}

static int64_t makespan(const setting *t, const lh_pipeline *p,
                        const uint32_t *numbers)
{
    lh_error err = {0};
    lh_pipeline *q = NULL;
    lh_timeline *line = NULL;
    CHECK_OK(lh_layers_pipeline(t->layers, p, numbers, &q, &err), err);
    CHECK_OK(lh_simulate(q, t->schedule, NULL, &line, &err), err);
    int64_t ns = lh_timeline_makespan(line);
    lh_timeline_free(line);
    lh_pipeline_free(q);
    return ns;
}

static lh_layer_migration *find(const setting *t, const lh_pipeline *p,
                                const lh_layers_options *o)
{
    lh_error err = {0};
    lh_layer_migration *m = NULL;
    CHECK_OK(lhi_layers_find_partition(t->layers, p, t->schedule, o, &m, &err),
             err);
    return m;
}

static void chunks_take_what_their_layers_do(void)
{
    lh_error err = {0};
    setting t = set_up(four);
    const uint32_t numbers[] = {6, 2, 4, 4};
    lh_pipeline *p = NULL;
    CHECK_OK(lh_layers_pipeline(t.layers, t.quiet, numbers, &p, &err), err);
    CHECK_INT(lh_pipeline_chunk(p, 0)->f_ns, 30 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->w_ns, 10 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->all_gather_ns, 4 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->reduce_scatter_ns, 2 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 0)->mem_f, 2); /* from 1.5 */
    CHECK_INT(lh_pipeline_chunk(p, 0)->mem_w, -2);
    lh_pipeline_free(p);
    /* A slow device stays slow with other layer counts. */
    lh_pipeline *slow = slowed(t.quiet, 0, 1.5, 0);
    CHECK_OK(lh_layers_pipeline(t.layers, slow, numbers, &p, &err), err);
    CHECK_INT(lh_pipeline_chunk(p, 0)->f_ns, 45 * MS);
    lh_pipeline_free(p);
    lh_pipeline_free(slow);
    tear_down(&t);
}

/* A head takes 7 ms out of the last chunk's 27: it stays there. */
static void what_is_no_layer_stays(void)
{
    lh_error err = {0};
    lh_pipeline *plain = uniform_make(four), *p = NULL;
    lh_pipeline *headed = slowed(plain, LH_NONE, 1, 7 * MS);
    lh_layers *layers = NULL;
    const uint32_t numbers[] = {4, 5, 5, 2};
    CHECK_OK(lh_layers_make(headed, even, &layers, &err), err);
    CHECK_OK(lh_layers_pipeline(layers, headed, numbers, &p, &err), err);
    CHECK_INT(lh_pipeline_chunk(p, 3)->f_ns, (7 + 2 * 5) * MS);
    CHECK_INT(lh_pipeline_chunk(p, 3)->w_ns, 2 * 5 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->f_ns, 25 * MS);
    lh_pipeline_free(p);
    lh_layers_free(layers);
    lh_pipeline_free(headed);
    lh_pipeline_free(plain);
}

/* Enumerates all partitions of 16 layers; returns the shortest makespan. */
static int64_t least(const setting *t, const lh_pipeline *p)
{
    int64_t best = INT64_MAX;
    uint32_t n[STAGES];
    for (n[0] = 1; n[0] <= 13; n[0]++)
        for (n[1] = 1; n[0] + n[1] <= 14; n[1]++)
            for (n[2] = 1; n[0] + n[1] + n[2] <= 15; n[2]++) {
                n[3] = 16 - n[0] - n[1] - n[2];
                int64_t ns = makespan(t, p, n);
                best = ns < best ? ns : best;
            }
    return best;
}

static void layers_leave_a_slow_device(void)
{
    setting t = set_up(four);
    for (uint32_t d = 0; d < STAGES; d++)
        for (double times = 1.25; times < 3; times += 0.5) {
            lh_pipeline *slow = slowed(t.quiet, d, times, 0);
            lh_layer_migration *m = find(&t, slow, NULL);
            /* Moving one layer of 5 ms gains nothing against a factor of 1.25.
             */
            CHECK(times < 1.5 || (m->is_move && m->layer_counts[d] < 4));
            CHECK_INT(m->current_ns, makespan(&t, slow, even));
            CHECK_INT(m->predicted_ns, makespan(&t, slow, m->layer_counts));
            /* Compared with all partitions. */
            int64_t best = least(&t, slow);
            CHECK_MSG((double)m->predicted_ns <= 1.03 * (double)best,
                      "device %" PRIu32 ", %g: %" PRId64 ", least %" PRId64, d,
                      times, m->predicted_ns, best);
            CHECK_HAS(m->why, "times as long");
            lhi_layer_migration_free(m);
            lh_pipeline_free(slow);
        }
    tear_down(&t);
}

/* One layer per boundary that it crosses, all boundaries concurrently. */
static void it_has_to_pay(void)
{
    setting t = set_up(four);
    lh_pipeline *slow = slowed(t.quiet, 3, 2, 0);
    lh_layers_options o = {
        .size = sizeof o, .benefit_steps = 10, .layer_ns = 100 * MS};
    lh_layer_migration *m = find(&t, slow, &o);
    CHECK(m->is_move);
    CHECK_INT(m->move_ns, (4 - m->layer_counts[3]) * 100 * MS);
    CHECK_HAS(m->why, "has an effect for 10 iterations");
    int64_t gain = m->current_ns - m->predicted_ns;
    uint32_t n[STAGES];
    memcpy(n, m->layer_counts, sizeof n);
    lhi_layer_migration_free(m);
    o.layer_ns = 10 * gain;
    m = find(&t, slow, &o);
    CHECK(!m->is_move);
    CHECK_INT(m->move_ns, 0);
    CHECK_HAS(m->why, "no layer migration is worth its cost");
    lhi_layer_migration_free(m);
    o = (lh_layers_options){.size = sizeof o, .benefit_steps = 1};
    m = find(&t, slow, &o);
    CHECK_HAS(m->why, "has an effect for 1 iteration");
    CHECK(!strstr(m->why, "1 iterations"));
    lhi_layer_migration_free(m);
    /* When the device recovers, they return. */
    o = (lh_layers_options){.size = sizeof o,
                            .benefit_steps = 100,
                            .layer_ns = MS,
                            .layer_counts = n};
    m = find(&t, t.quiet, &o);
    CHECK(m->is_move);
    for (uint32_t c = 0; c < STAGES; c++)
        CHECK_INT(m->layer_counts[c], 4);
    lhi_layer_migration_free(m);
    lh_pipeline_free(slow);
    tear_down(&t);
}

/* Layers move if the gain is at least twice the noise; the cases' noise is
 * relative to the gain. A search repeats once the noise has halved. */
static void gains_within_the_noise_wait(void)
{
    static const struct {
        double noise;
        bool is_first, moves;
    } cases[] = {{0.51, true, false},  {0.49, true, true},
                 {1.1, true, false},   {0.54, false, false},
                 {0.28, false, false}, {0.26, false, true}};
    setting t = set_up(four);
    lh_error err = {0};
    lh_monitor *monitor = NULL;
    lh_pipeline *slow = slowed(t.quiet, 3, 2, 0);
    lh_layer_migration *m = find(&t, slow, NULL);
    const lh_decision stays = {.benefit_steps = 100,
                               .predicted_ns = m->current_ns};
    const double gain =
        1 - (double)m->predicted_ns / (double)stays.predicted_ns;
    lhi_layer_migration_free(m);
    CHECK_OK(lh_monitor_make(t.quiet, t.schedule, NULL, &monitor, &err), err);
    lhi_migration_history tried = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lhi_migration_state now = {.layers = t.layers,
                                         .may_be_slow = true,
                                         .monitor = monitor,
                                         .estimated = slow,
                                         .schedule = t.schedule,
                                         .decision = &stays,
                                         .noise = cases[i].noise * gain};
        lhi_migration found = {0};
        if (cases[i].is_first)
            tried = (lhi_migration_history){0};
        CHECK_OK(lhi_migration_find(&tried, &now, &found, &err), err);
        CHECK_MSG((found.layers != NULL) == cases[i].moves, "noise %g",
                  cases[i].noise);
        lhi_layer_migration_free(found.layers);
    }
    lh_monitor_free(monitor);
    lh_pipeline_free(slow);
    tear_down(&t);
}

/* A layer's activation is 10, and stage 0 has memory for 4 x 4. */
static void memory_is_kept_to(void)
{
    setting t = set_up(four);
    lh_error err = {0};
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *slow = slowed(t.quiet, 3, 3, 0), *pipelines[2];
    const int64_t limits[] = {160, 800, 800, 800};
    lh_chunk chunks[STAGES];
    CHECK_OK(lh_pipeline_describe(slow, &d, &err), err);
    for (uint32_t c = 0; c < STAGES; c++) {
        chunks[c] = d.chunks[c];
        chunks[c].mem_f = 40;
        chunks[c].mem_w = -40;
    }
    d.chunks = chunks;
    for (uint32_t i = 0; i < 2; i++) {
        d.memory_limits = i == 0 ? NULL : limits;
        CHECK_OK(lh_pipeline_make(&d, &pipelines[i], &err), err);
        lh_layer_migration *m = find(&t, pipelines[i], NULL);
        CHECK(m->is_move);
        CHECK((m->layer_counts[0] > 4) == (i == 0));
        lhi_layer_migration_free(m);
        lh_pipeline_free(pipelines[i]);
    }
    lh_pipeline_free(slow);
    tear_down(&t);
}

static void wrong_numbers_are_refused(void)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_layers *none = NULL;
    setting t = set_up(four);
    const uint32_t fewer[] = {4, 4, 4, 3}, empty[] = {4, 4, 8, 0};
    CHECK_INT(lh_layers_pipeline(t.layers, t.quiet, fewer, &p, &err),
              LH_EINVAL);
    CHECK_HAS(err.text, "15 in total, but 16 initially");
    CHECK_INT(lh_layers_pipeline(t.layers, t.quiet, empty, &p, &err),
              LH_EINVAL);
    CHECK_INT(lh_layers_make(t.quiet, empty, &none, &err), LH_EINVAL);
    CHECK_HAS(err.text, "chunk 3 has 0 layers");
    CHECK(!p && !none);
    tear_down(&t);
}

int main(void)
{
    RUN(chunks_take_what_their_layers_do);
    RUN(what_is_no_layer_stays);
    RUN(layers_leave_a_slow_device);
    RUN(it_has_to_pay);
    RUN(gains_within_the_noise_wait);
    RUN(memory_is_kept_to);
    RUN(wrong_numbers_are_refused);
    return test_summary();
}
