/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload: copies and their times, waiting passes, and agreement
 * between simulator, verifier, execution plans and traces. */
#include "scheduled.h"

#include "schedule/solver/model/job_shop.h"

#include <longhaul/check.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/experimental/trace.h>

enum { MS = 1000000 };

static const char alone[] = "longhaul: pipeline/1\ntime_unit: ms\n"
                            "microbatches: 4\ndevices: 1\nbackward: joint\n"
                            "chunks:\n  - {device: 0, F: 10, D: 12, W: 8, "
                            "offload: 15}\n";

static lh_timeline *simulated(const lh_pipeline *p, const lh_schedule *s)
{
    lh_error err = {0};
    lh_timeline *t = NULL;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    return t;
}

/* By hand: the stream runs out 0 (10-25), out 1 (25-40), out 2 (40-55), back 0
 * (55-70), out 3 (70-85), back 1 (85-100), back 2, back 3; F 2 waits for out 0,
 * F 3 for out 1, B 0 for back 0. */
static void one_device_by_hand(void)
{
    static const struct {
        bool is_back;
        int microbatch, depart, end;
    } want[] = {{false, 0, 10, 25},  {false, 1, 25, 40}, {false, 2, 40, 55},
                {true, 0, 55, 70},   {false, 3, 70, 85}, {true, 1, 85, 100},
                {true, 2, 100, 115}, {true, 3, 120, 135}};
    static const int starts[] = {0, 10, 25, 40, 70, 100, 120, 140};
    lh_pipeline *p = pipeline_of(alone);
    lh_schedule *s = schedule_by(p, "gpipe");
    lh_timeline *t = simulated(p, s);
    uint32_t n;
    CHECK(lh_pipeline_offloads(p));
    CHECK_INT(lh_timeline_makespan(t), 160 * MS);
    const lh_timeline_run *runs = lh_timeline_runs(t, 0, &n);
    CHECK_INT(n, 8);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(runs[i].start_ns, starts[i] * (int64_t)MS);
    const lh_offload_copy *copies = lh_timeline_copies(t, &n);
    CHECK_INT(n, 8);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(copies[i].is_reload, want[i].is_back);
        CHECK_INT(copies[i].microbatch, want[i].microbatch);
        CHECK_INT(copies[i].depart_ns, want[i].depart * (int64_t)MS);
        CHECK_INT(copies[i].end_ns, want[i].end * (int64_t)MS);
    }
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* If the backward is one of the next two passes, nothing is copied. */
static void what_is_needed_soon_stays(void)
{
    char text[sizeof alone + 8];
    snprintf(text, sizeof text, "%s", alone);
    *strchr(strstr(text, "microbatches: "), '4') = '2';
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "gpipe");
    lh_timeline *t = simulated(p, s);
    uint32_t n;
    lh_timeline_copies(t, &n);
    CHECK_INT(n, 0);
    CHECK_INT(lh_timeline_makespan(t), 60 * MS);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Idle time and the critical path sum to the makespan, and name copies. */
static void it_is_said_what_is_waited_for(void)
{
    lh_error err = {0};
    lh_pipeline *p = pipeline_of(alone);
    lh_schedule *s = schedule_by(p, "gpipe");
    lh_timeline *t = simulated(p, s);
    lh_analysis *a = NULL;
    uint32_t n, copies = 0;
    CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
    CHECK_INT(lh_analysis_idle(a, 0)[LH_CAUSE_COPY], 40 * MS);
    const lh_segment *path = lh_analysis_critical_path(a, &n);
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(path[i].start_ns, at);
        at = path[i].end_ns;
        copies += path[i].kind == LH_SEGMENT_COPY;
    }
    CHECK_INT(at, 160 * MS);
    CHECK_INT(copies, 6);
    CHECK(strcmp(lh_segment_name(LH_SEGMENT_COPY), "copy") == 0);
    lh_analysis_free(a);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static lh_pipeline *drawn(uint32_t *seed, bool loop)
{
    char text[512];
    uint32_t x[5];
    for (int i = 0; i < 5; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = *seed >> 16;
    }
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: joint\nuniform: {placement: %s, F: %u, "
             "D: %u, W: %u, offload: %u}\ndatacenters: {count: 2, latency: "
             "%u, transfer: %u}\n",
             4 * (1 + x[0] % 3), x[0] & 1 ? 4u : 2u, loop ? "loop" : "ud",
             10 + x[1] % 50, 10 + x[2] % 60, 5 + x[2] % 7, 1 + x[3] % 90,
             x[4] % 40, x[4] % 25);
    return pipeline_of(text);
}

/* Checks that a device's copies do not overlap, none starts before its trigger,
 * and no waiting pass starts before its copy is done. */
static void check_copies(const lh_timeline *t)
{
    uint32_t n, n_runs;
    const lh_offload_copy *all = lh_timeline_copies(t, &n);
    CHECK(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        const lh_offload_copy *c = &all[i];
        const lh_timeline_run *runs = lh_timeline_runs(t, c->device, &n_runs);
        const lh_timeline_run *at = &runs[c->launching_run];
        CHECK(c->depart_ns >= (c->is_reload ? at->start_ns : at->end_ns));
        CHECK(runs[c->waiting_run].start_ns >= c->end_ns);
        CHECK_INT(c->waiting_run, c->launching_run + (c->is_reload ? 1u : 2u));
        for (uint32_t k = i + 1; k < n; k++)
            if (all[k].device == c->device) {
                CHECK(all[k].depart_ns >= c->end_ns);
                break;
            }
    }
}

static void judge_and_simulator_agree(void)
{
    static const char *const methods[] = {"gpipe", "1f1b", "greedy",
                                          "interleaved-1f1b"};
    uint32_t seed = 7, waited = 0;
    for (uint32_t i = 0; i < 60; i++) {
        lh_error err = {0};
        lh_verdict *v = NULL;
        lh_evaluator *e = NULL;
        int64_t quick = 0;
        bool loop = i % 4 == 3;
        lh_pipeline *p = drawn(&seed, loop);
        lh_schedule *s = schedule_by(p, methods[loop ? 3 : i % 3]);
        lh_timeline *t = simulated(p, s);
        check_copies(t);
        CHECK_OK(lh_check(p, s, &v, &err), err);
        CHECK(lh_verdict_valid(v));
        CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
        CHECK_OK(lh_evaluator_make(p, NULL, &e, &err), err);
        CHECK_OK(lh_evaluator_run(e, s, &quick, &err), err);
        CHECK_INT(quick, lh_timeline_makespan(t));
        lh_analysis *a = NULL;
        CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
        waited += lh_analysis_idle(a, LH_NONE)[LH_CAUSE_COPY] > 0;
        lh_analysis_free(a);
        lh_evaluator_free(e);
        lh_verdict_free(v);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK(waited > 10);
}

/* Files and numbers round-trip; each chunk's own time counts. */
static void files_keep_it(void)
{
    lh_error err = {0};
    char *text = NULL, *again = NULL;
    lh_pipeline *p = pipeline_of(alone), *q = NULL;
    CHECK_OK(lh_pipeline_format(p, &text, NULL, &err), err);
    CHECK_HAS(text, "\"offload\": 15000000");
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "again", &q, &err), err);
    CHECK_OK(lh_pipeline_format(q, &again, NULL, &err), err);
    CHECK(strcmp(text, again) == 0);
    CHECK_INT(lh_pipeline_chunk(q, 0)->offload_ns, 15 * MS);
    lh_text_free(text);
    lh_text_free(again);
    lh_pipeline_free(p);
    lh_pipeline_free(q);
}

static void refused(const char *from, const char *to, const char *why)
{
    char text[sizeof alone + 32];
    lh_error err = {0};
    lh_pipeline *p = NULL;
    const char *at = strstr(alone, from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - alone), alone, to,
             at + strlen(from));
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "p.yaml", &p, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, "p.yaml:");
    CHECK_HAS(err.text, why);
}

static void nonsense_is_refused(void)
{
    refused("joint", "split", "requires backward: joint");
    refused("offload: 15", "offload: -1", "offload");
    refused("offload: 15", "offload: [1]", "offload");
    refused("offload: 15", "offload: 1e30", "offload");
    refused("offload: 15", "offlaod: 15", "offlaod");
}

/* All orders of one device with three microbatches: of any microbatches, or
 * with the forwards and the backwards in their order. */
enum { N_PASSES = 6, N_ORDERS = 90, N_IN_ORDER = 5 };
typedef struct all_orders {
    lh_pass rows[N_ORDERS + 1][N_PASSES]; /* and a scratch one */
    uint32_t n;
} all_orders;

/* Extends the first `n` passes of the next order by every pass that may follow.
 */
static void list_orders(all_orders *all, uint32_t n, bool in_order)
{
    lh_pass *row = all->rows[all->n];
    if (n == N_PASSES)
        memcpy(all->rows[++all->n], row, sizeof all->rows[0]);
    for (uint32_t k = 0; n < N_PASSES && k < N_PASSES; k++) {
        const lh_pass pass = {
            .microbatch = k / 2, .n_parts = 1, .kind = k % 2 ? LH_B : LH_F};
        uint32_t n_before = 0, n_lower = 0;
        bool is_there = false;
        row = all->rows[all->n];
        for (uint32_t i = 0; i < n; i++) {
            n_before += row[i].microbatch == pass.microbatch;
            n_lower +=
                row[i].kind == pass.kind && row[i].microbatch < pass.microbatch;
            is_there = is_there || (row[i].microbatch == pass.microbatch &&
                                    row[i].kind == pass.kind);
        }
        if (is_there || n_before != k % 2 ||
            (in_order && n_lower != pass.microbatch))
            continue;
        row[n] = pass;
        list_orders(all, n + 1, in_order);
    }
}

/* Returns the shortest makespan over all orders of two devices. */
static int64_t find_shortest(const lh_pipeline *p, bool in_order)
{
    const uint32_t n = in_order ? N_IN_ORDER : N_ORDERS;
    static all_orders all[2];
    const uint32_t counts[2] = {N_PASSES, N_PASSES};
    lh_evaluator *e = NULL;
    lh_error err = {0};
    int64_t best = INT64_MAX;
    for (uint32_t d = 0; d < 2; d++) {
        all[d].n = 0;
        list_orders(&all[d], 0, in_order);
        CHECK_INT(all[d].n, n);
        for (uint32_t i = 0; i < n * N_PASSES; i++)
            all[d].rows[i / N_PASSES][i % N_PASSES].chunk = d;
    }
    CHECK_OK(lh_evaluator_make(p, NULL, &e, &err), err);
    for (uint32_t i = 0; i < n * n; i++) {
        const lh_pass *rows[2] = {all[0].rows[i / n], all[1].rows[i % n]};
        lh_schedule *s = NULL;
        int64_t ns = 0;
        CHECK_OK(lh_schedule_make(2, rows, counts, 0, NULL, &s, &err), err);
        if (lh_evaluator_run(e, s, &ns, &err) == LH_OK && ns < best)
            best = ns;
        lh_schedule_free(s);
    }
    lh_evaluator_free(e);
    return best;
}

/* The search simulates its schedules with copies, and finds the best one with
 * microbatches in order. Its bound holds for all orders, and is met where
 * copies need not delay any pass. */
static void searches_simulate_copies(void)
{
    uint32_t seed = 3, n_proven = 0;
    for (uint32_t i = 0; i < 10; i++) {
        const lh_solve_options o = {.size = sizeof o, .effort = 20000};
        char text[400];
        uint32_t times[7];
        lh_solution out = {0};
        lh_verdict *v = NULL;
        lh_error err = {0};
        for (uint32_t k = 0; k < 7; k++) {
            seed = seed * 1664525 + 1013904223;
            times[k] = 1 + (seed >> 16) % 20;
        }
        snprintf(text, sizeof text,
                 "longhaul: pipeline/1\ntime_unit: ms\n"
                 "microbatches: 3\ndevices: 2\nbackward: joint\n"
                 "links: [{from: 0, to: 1, latency: 20}]\n"
                 "chunks:\n"
                 "  - {device: 0, F: %u, D: %u, W: %u, offload: %u}\n"
                 "  - {device: 1, F: %u, D: %u, W: %u, offload: 19}\n",
                 times[0], times[1], times[2], 2 * times[3], times[4], times[5],
                 times[6]);
        lh_pipeline *p = pipeline_of(text);
        int64_t best = find_shortest(p, false);
        int64_t in_order = find_shortest(p, true);
        CHECK_OK(lh_solve(p, &o, &out, &err), err);
        CHECK_OK(lh_check(p, out.schedule, &v, &err), err);
        CHECK(lh_verdict_valid(v));
        CHECK_INT(lh_verdict_makespan(v), out.makespan_ns);
        CHECK_INT(out.makespan_ns, in_order);
        CHECK(in_order >= best);
        CHECK(out.bound_ns <= best);
        n_proven += out.status == LH_SOLVE_OPTIMAL;
        lh_verdict_free(v);
        lh_solution_fini(&out);
        lh_pipeline_free(p);
    }
    CHECK(n_proven > 0 && n_proven < 10);
}

/* Copies to host memory take time in the search: if they take long, the best
 * schedule is one without copies. */
static void searches_time_host_copies(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\n"
        "microbatches: 6\ndevices: 3\nmemory_limit: 2\n"
        "uniform: {placement: ud, F: 10, D: 10, W: 10, memory: {F: 1, W: -1}}\n"
        "datacenters: {count: 3, latency: 20, transfer: 0}\n";
    lh_pipeline *own = pipeline_of(text), *p = NULL;
    lh_error err = {0};
    int64_t ns[4];
    CHECK_OK(lh_pipeline_with_host(own, LH_NO_LIMIT, &p, &err), err);
    for (uint32_t i = 0; i < 4; i++) {
        static const int64_t copy_ns[] = {0, MS, 1000 * (int64_t)MS, 0};
        const lh_solve_options o = {
            .size = sizeof o, .effort = 100000, .host_copy_ns = copy_ns[i]};
        const lh_sim_options sim = {.size = sizeof sim,
                                    .host_copy_ns = copy_ns[i]};
        lh_solution out = {0};
        lh_timeline *t = NULL;
        CHECK_OK(lh_solve(i < 3 ? p : own, &o, &out, &err), err);
        CHECK_OK(lh_simulate(p, out.schedule, &sim, &t, &err), err);
        CHECK_INT(lh_timeline_makespan(t), out.makespan_ns);
        CHECK(out.bound_ns <= out.makespan_ns);
        ns[i] = out.makespan_ns;
        lh_timeline_free(t);
        lh_solution_fini(&out);
    }
    CHECK(ns[0] < ns[1]);
    CHECK(ns[1] < ns[2]);
    CHECK_INT(ns[2], ns[3]);
    lh_pipeline_free(p);
    lh_pipeline_free(own);
}

/* With copies, too, operations of the other device stay outside the objective:
 * the sum of all times before them and their tail is not positive. A copy's time
 * is no multiple of the passes' unit, so that all times are rescaled. */
static void bounds_the_first_device(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\n"
        "microbatches: 2\ndevices: 2\nmemory_limit: 3\n"
        "chunks:\n"
        "  - {device: 0, F: 3, D: 3, W: 3, memory: {F: 1, W: -1}}\n"
        "  - {device: 1, F: 3, D: 3, W: 30, memory: {F: 1, W: -1}}\n";
    const lh_solve_objective first = LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    lh_pipeline *own = pipeline_of(text), *p = NULL;
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *s = NULL;
    lh_error err = {0};
    uint32_t n_outside = 0;
    CHECK_OK(lh_pipeline_with_host(own, LH_NO_LIMIT, &p, &err), err);
    CHECK_OK(lhi_shop_make(p, 1, false, first, mem, &s, &err), err);
    const int64_t before = s->time[0];
    lhi_shop_add_host_copies(s, 31 * MS);
    CHECK_INT(s->time[0], 3 * before);
    int64_t longest = 0;
    for (uint32_t o = 0; o < s->n_ops; o++)
        longest += s->time[o] + s->host_copy;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_stream *of = &s->streams[s->stream_of[o]];
        if (of->machine != s->device_machine[1])
            continue;
        n_outside++;
        CHECK(s->tail[o] + longest <= 0);
    }
    CHECK_INT(n_outside, 6);
    lhi_arena_free(mem);
    lh_pipeline_free(p);
    lh_pipeline_free(own);
}

static void ranks_are_told(void)
{
    lh_error err = {0};
    lh_exec *x = NULL;
    uint32_t n, copies = 0, passes = 0;
    lh_pipeline *p = pipeline_of(alone);
    lh_schedule *s = schedule_by(p, "gpipe");
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    CHECK_INT(lh_exec_predicted_ns(x), 160 * MS);
    const lh_instruction *all = lh_exec_instructions(x, 0, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].stream == LH_STREAM_COMPUTE)
            passes++;
        if (all[i].stream != LH_STREAM_OFFLOAD)
            continue;
        bool back = all[i].pass.kind != LH_F;
        CHECK_INT(all[i].passes_before, passes);
        CHECK_INT(all[i].needed_by_pass, all[i].passes_before + 1);
        copies += back ? 100 : 1;
    }
    CHECK_INT(copies, 404);
    CHECK(strcmp(lh_stream_name(LH_STREAM_OFFLOAD), "offload") == 0);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* The timed device emulates copies, too; its trace has them and round-trips. */
static void timed_devices_play_it(void)
{
    lh_error err = {0};
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_trace *back = NULL;
    char *text = NULL, *again = NULL;
    size_t len;
    lh_pipeline *p = pipeline_of(alone);
    lh_schedule *s = schedule_by(p, "gpipe");
    const lh_train_options o = {.size = sizeof o, .steps = 2};
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    CHECK(r->iterations[1].ns >= 160 * MS);
    CHECK_INT(r->trace->n_copies, 8);
    for (uint32_t i = 0; i < r->trace->n_copies; i++) {
        const lh_trace_offload *c = &r->trace->copies[i];
        CHECK_INT(c->end_ns - c->depart_ns, 15 * MS);
    }
    CHECK_OK(lh_trace_format(r->trace, &text, &len, &err), err);
    CHECK_HAS(text, "\"cat\":\"copy\"");
    CHECK_HAS(text, "device 0 offload");
    CHECK_OK(lh_trace_parse(text, len, "t.json", &back, &err), err);
    CHECK_OK(lh_trace_format(back, &again, NULL, &err), err);
    CHECK(strcmp(text, again) == 0);
    lh_trace_free(back);
    char *way = strstr(text, "\"way\":\"out\"");
    memcpy(way + 7, "up!", 3);
    CHECK_INT(lh_trace_parse(text, len, "t.json", &back, &err), LH_EINPUT);
    CHECK_HAS(err.text, "way");
    lh_text_free(text);
    lh_text_free(again);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(one_device_by_hand);
    RUN(what_is_needed_soon_stays);
    RUN(it_is_said_what_is_waited_for);
    RUN(judge_and_simulator_agree);
    RUN(files_keep_it);
    RUN(nonsense_is_refused);
    RUN(searches_simulate_copies);
    RUN(searches_time_host_copies);
    RUN(bounds_the_first_device);
    RUN(ranks_are_told);
    RUN(timed_devices_play_it);
    return test_summary();
}
