/* SPDX-License-Identifier: Apache-2.0 */
/* Profiling without a clock: ranks "run" the simulator's times, and their
 * records must reproduce the pipeline's times. */
#include "test.h"
#include "virtual_time.h"

#include "runtime/engine/observer.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

/* 4 stages, split or joint, with links that are always idle when needed. */
static lh_pipeline *make_pipeline(bool joint)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 6\ndevices: 4\n"
        "backward: %s\n"
        "chunks:\n"
        "  - {device: 0, F: 100, D: 120, W: 90, memory: {F: 1, W: -1}}\n"
        "  - {device: 1, F: 110, D: 130, W: 95, memory: {F: 1, W: -1}}\n"
        "  - {device: 2, F: 105, D: 125, W: 85, memory: {F: 1, W: -1}}\n"
        "  - {device: 3, F: 140, D: 150, W: 70, memory: {F: 1, W: -1}}\n"
        "links:\n"
        "  - {from: 0, to: 1, latency: 240, transfer: 3}\n"
        "  - {from: 1, to: 0, latency: 41, transfer: 3}\n"
        "  - {from: 1, to: 2, latency: 50, transfer: 2}\n"
        "  - {from: 2, to: 1, latency: 51, transfer: 2}\n"
        "  - {from: 2, to: 3, latency: 10, transfer: 1}\n"
        "  - {from: 3, to: 2, latency: 11, transfer: 1}\n";
    char made[sizeof text + 8];
    lh_error err;
    lh_pipeline *p = NULL;
    snprintf(made, sizeof made, text, joint ? "joint" : "split");
    CHECK_OK(lh_pipeline_parse(made, strlen(made), "test", &p, &err), err);
    return p;
}

/* Simulated ranks and their records. */
typedef struct world {
    lhi_job job;
    lh_timeline *timeline;
    lhi_rank_program *shifts; /* per rank */
    lhi_rank *ranks;
    int64_t waited_ns; /* within each pass */
} world;

/* Records rank r's simulated times, each multiplied by `scale`. */
static void keep(world *w, uint32_t r, int64_t scale)
{
    lhi_rank_program *s = &w->shifts[r];
    const lhi_exec_rank *program = &w->job.exec->ranks[r];
    uint32_t n, n_messages;
    const lh_timeline_run *runs = lh_timeline_runs(w->timeline, r, &n);
    const lh_message *messages = lh_timeline_messages(w->timeline, &n_messages);
    CHECK_INT(n, program->n_passes);
    for (uint32_t i = 0; i < n; i++) {
        lhi_pass_record *to = &s->records[i];
        to->start_ns = scale * runs[i].start_ns;
        to->end_ns = scale * runs[i].end_ns;
        to->issued_ns = scale * runs[i].issued_ns;
        if (program->passes[i].input == LH_NONE)
            continue;
        for (uint32_t k = 0; k < n_messages; k++)
            if (memcmp(&messages[k].consumer, &runs[i].pass,
                       sizeof runs[i].pass) == 0) {
                to->entered_ns = scale * messages[k].ready_ns;
                to->arrived_ns = scale * messages[k].arrive_ns;
            }
    }
}

static void make_world(world *w, const lh_pipeline *p, const lh_exec *x)
{
    uint32_t n = x->n_ranks;
    *w = (world){.job = {.pipeline = p,
                         .exec = x,
                         .grid = {.n_devices = n,
                                  .replicas = 1,
                                  .context = 1,
                                  .tensor = 1,
                                  .expert = 1,
                                  .expert_tensor = 1},
                         .shared_clock = true}};
    w->shifts = calloc(n, sizeof *w->shifts);
    w->ranks = calloc(n, sizeof *w->ranks);
    for (uint32_t r = 0; w->shifts && w->ranks && r < n; r++) {
        size_t n_passes = x->ranks[r].n_passes + 1u;
        w->ranks[r].program = &x->ranks[r];
        w->ranks[r].records = calloc(n_passes, sizeof(lhi_pass_record));
        w->shifts[r].exec = x;
        w->shifts[r].rank = &w->ranks[r];
        w->shifts[r].records = calloc(n_passes, sizeof(lhi_pass_record));
        /* Each F except a chunk's first one stores 100 more bytes. */
        for (size_t i = 0, held = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            if (pass->pass.kind == LH_F)
                held += pass->is_first ? 1000 : 100;
            w->ranks[r].records[i].peak_bytes = held;
        }
    }
}

static void free_world(world *w)
{
    for (uint32_t r = 0; r < w->job.exec->n_ranks; r++) {
        free(w->ranks[r].records);
        free(w->shifts[r].records);
    }
    free(w->ranks);
    free(w->shifts);
    lh_timeline_free(w->timeline);
}

static void observe_step(const world *w, lhi_observer *o, uint32_t step,
                         uint32_t r, int64_t scale)
{
    uint32_t n = w->job.exec->ranks[r].n_passes;
    int64_t *waited = calloc(n + 1u, sizeof *waited);
    for (uint32_t i = 0; waited && i < n; i++)
        waited[i] = scale * w->waited_ns;
    lhi_observer_add_step(o, step, &w->shifts[r], w->waited_ns ? waited : NULL);
    free(waited);
}

/* Runs `n` steps, the first one twice as slow, the last one three times, and
 * sums over all ranks. */
static lhi_observed_means *observe(world *w, uint32_t n)
{
    size_t size = lhi_observer_count_sums(&w->job);
    double *sums = calloc(size, sizeof *sums);
    lh_iteration *iterations = calloc(n, sizeof *iterations);
    lhi_observed_means *out = NULL;
    lh_error err;
    for (uint32_t r = 0; r < w->job.exec->n_ranks; r++) {
        lhi_observer *o = NULL;
        CHECK_OK(lhi_observer_make(&w->job, r, &o, &err), err);
        for (uint32_t i = 0; o && i < n; i++) {
            int64_t scale = i == 0 ? 2 : i + 1 == n ? 3 : 1;
            keep(w, r, scale);
            observe_step(w, o, i, r, scale);
            iterations[i].ns = scale * lh_timeline_makespan(w->timeline);
        }
        for (size_t i = 0; o && sums && i < size; i++)
            sums[i] += lhi_observer_sums(o)[i];
        lhi_observer_free(o);
    }
    CHECK_OK(lhi_observed_means_make(&w->job, iterations, n, sums, &out, &err),
             err);
    free(sums);
    free(iterations);
    return out;
}

static int64_t latency_of(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *l = lh_pipeline_link(p, i);
        if (l->from == from && l->to == to)
            return l->latency_ns + l->transfer_ns;
    }
    return -1;
}

static void check_observed(const lh_pipeline *p, bool joint,
                           const lhi_observed_means *o, const world *w)
{
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t c = 0; c < n; c++) {
        const lh_chunk *chunk = lh_pipeline_chunk(p, c);
        const double *ns = &o->pass_ns[(size_t)c * (LH_B + 1)];
        const double *message = &o->message_ns[2 * (size_t)c];
        int64_t less = w->waited_ns;
        CHECK_NEAR(ns[LH_F], (double)(chunk->f_ns - less), 1e-3);
        CHECK_NEAR(ns[LH_D], joint ? 0 : (double)(chunk->d_ns - less), 1e-3);
        CHECK_NEAR(ns[LH_W], joint ? 0 : (double)(chunk->w_ns - less), 1e-3);
        CHECK_NEAR(ns[LH_B],
                   joint ? (double)(chunk->d_ns + chunk->w_ns - less) : 0,
                   1e-3);
        CHECK_NEAR(message[0], c ? (double)latency_of(p, c - 1, c) : 0, 1e-3);
        CHECK_NEAR(message[1], c + 1 < n ? (double)latency_of(p, c + 1, c) : 0,
                   1e-3);
        CHECK(c + 1 == n || o->activation_bytes[c] == 100);
    }
    CHECK_NEAR(o->iteration_ns, (double)lh_timeline_makespan(w->timeline),
               1e-3);
}

/* Excludes warm-up and unusually long iterations; as many steps as are
 * recorded, fewer, or more. */
static void profiles_contain_the_given_times(void)
{
    static const char *const methods[] = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
    static const uint32_t steps[] = {5, 10, 64, 150};
    for (uint32_t i = 0; i < 4; i++) {
        bool joint = i < 2;
        /* Blocked time does not belong to a pass. */
        const lh_exec_options how = {.size = sizeof how,
                                     .coupled_queue = i % 2};
        const lh_sim_options sim = {.size = sizeof sim, .coupled_queue = i % 2};
        lh_error err;
        lh_pipeline *p = make_pipeline(joint);
        lh_schedule *s = NULL;
        lh_exec *x = NULL;
        if (p)
            CHECK_OK(lh_method_run(methods[i], p, NULL, &s, NULL, &err), err);
        if (s)
            CHECK_OK(lh_exec_make(p, s, &how, &x, &err), err);
        if (x) {
            world w;
            make_world(&w, p, x);
            w.waited_ns = i % 3 == 1 ? 7000 : 0;
            CHECK_OK(lh_simulate(p, s, &sim, &w.timeline, &err), err);
            lhi_observed_means *o = observe(&w, steps[i]);
            if (o)
                check_observed(p, joint, o, &w);
            lhi_observed_means_free(o);
            free_world(&w);
        }
        lh_exec_free(x);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

int main(void)
{
    RUN_VIRTUAL(profiles_contain_the_given_times);
    return test_summary();
}
