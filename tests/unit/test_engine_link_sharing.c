/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated links that messages share with data-parallel communication: runs on
 * the timed device and the simulator agree to the nanosecond, under every
 * order. */
#include "dated_messages.h"
#include "random_pipeline.h"
#include "sanitized.h"
#include "scheduled.h"
#include "test.h"
#include "virtual_time.h"

#include <longhaul/experimental/pipeline.h>

/* Counts the collectives of a run that the simulation does not have at the same
 * times. */
static uint32_t count_other_collectives(const lh_trace *predicted,
                                        const lh_trace *trace)
{
    uint32_t n_other = 0;
    CHECK_INT(trace->n_collectives, predicted->n_collectives);
    for (uint32_t i = 0; i < trace->n_collectives; i++) {
        const lh_trace_collective *c = &trace->collectives[i];
        bool found = false;
        for (uint32_t k = 0; k < predicted->n_collectives && !found; k++) {
            const lh_trace_collective *w = &predicted->collectives[k];
            found = c->chunk == w->chunk && c->device == w->device &&
                    c->is_reduce_scatter == w->is_reduce_scatter &&
                    c->ready_ns == w->ready_ns &&
                    c->depart_ns == w->depart_ns && c->sent_ns == w->sent_ns &&
                    c->arrive_ns == w->arrive_ns;
        }
        n_other += !found;
    }
    return n_other;
}

/* Runs a schedule and compares it with its simulation. */
static void compare(const lh_pipeline *p, const lh_schedule *s)
{
    lh_error err = {0};
    lh_exec *x = NULL;
    lh_timeline *t = NULL;
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    lh_trace *trace = x && t ? run_dated(p, x, "inproc") : NULL;
    lh_trace *predicted = NULL;
    if (trace) {
        CHECK_OK(lh_trace_make(p, t, NULL, &predicted, &err), err);
        CHECK_INT(count_other_dates(t, trace), 0);
        CHECK_INT(count_other_collectives(predicted, trace), 0);
    }
    lh_trace_free(predicted);
    lh_trace_free(trace);
    lh_timeline_free(t);
    lh_exec_free(x);
}

/* The example of docs/formats/pipeline.md, whose times are derived there: the
 * all-gather of device 1 delays the messages on `wan`. */
static void the_documented_example(void)
{
    static const struct {
        const char *keys;
        int64_t makespan_ms;
    } rows[] = {{"", 125},
                {"  piece: 9\n", 125},
                {"  piece: 9\n  priority: pipeline-first\n", 129},
                {"  priority: fair\n", 129},
                {"  piece: 9\n  priority: fair\n", 129}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[900];
        snprintf(
            text, sizeof text,
            "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 2\n"
            "devices: 2\nbackward: joint\n"
            "chunks:\n"
            "  - {device: 0, F: 10, D: 10, W: 10}\n"
            "  - {device: 1, F: 10, D: 10, W: 10}\n"
            "links:\n"
            "  - {from: 0, to: 1, latency: 5, transfer: 4, name: wan}\n"
            "  - {from: 1, to: 0, latency: 5, transfer: 4}\n"
            "data_parallel:\n%s"
            "  chunks: [{chunk: 1, all_gather: 27, latency: 5, link: wan}]\n",
            rows[i].keys);
        lh_pipeline *p = pipeline_of(text);
        lh_schedule *s = schedule_by(p, "1f1b");
        lh_timeline *t = NULL;
        lh_error err = {0};
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        CHECK_INT(lh_timeline_makespan(t), rows[i].makespan_ms * 1000000);
        lh_timeline_free(t);
        compare(p, s);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* Copies a pipeline with all its times in ms rather than ns: each event is much
 * later than the clock's steps in virtual time. NULL: they would be too long.
 */
static lh_pipeline *slow_down(const lh_pipeline *p)
{
    enum { MS = 1000000, MOST = 64 };
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_chunk chunks[MOST];
    lh_link links[MOST];
    lh_dp_op ops[MOST];
    lh_pipeline *out = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &desc, &err), err);
    CHECK(desc.n_chunks <= MOST && desc.n_links <= MOST &&
          desc.n_dp_ops <= MOST);
    for (uint32_t i = 0; i < desc.n_chunks && i < MOST; i++) {
        chunks[i] = desc.chunks[i];
        int64_t *const times[] = {&chunks[i].f_ns,
                                  &chunks[i].d_ns,
                                  &chunks[i].w_ns,
                                  &chunks[i].all_gather_ns,
                                  &chunks[i].reduce_scatter_ns,
                                  &chunks[i].dp_latency_ns};
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            *times[k] *= MS;
    }
    for (uint32_t i = 0; i < desc.n_links && i < MOST; i++) {
        links[i] = desc.links[i];
        links[i].latency_ns *= MS;
        links[i].transfer_ns *= MS;
        /* Emulated links of one name are equal. */
        for (uint32_t k = 0; k < i; k++)
            if (links[k].name && links[i].name &&
                strcmp(links[k].name, links[i].name) == 0) {
                links[i].latency_ns = links[k].latency_ns;
                links[i].transfer_ns = links[k].transfer_ns;
            }
    }
    for (uint32_t i = 0; i < desc.n_dp_ops && i < MOST; i++) {
        ops[i] = desc.dp_ops[i];
        ops[i].transfer_ns *= MS;
    }
    desc.chunks = chunks;
    desc.links = links;
    desc.dp_ops = ops;
    desc.dp_piece_ns *= MS;
    return lh_pipeline_make(&desc, &out, &err) == LH_OK ? out : NULL;
}

/* Checks whether a schedule can run: operations that passes launch may wait for
 * each other. */
static bool can_run(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *t = NULL;
    const bool can = lh_simulate(p, s, NULL, &t, NULL) == LH_OK;
    lh_timeline_free(t);
    return can;
}

/* Random pipelines whose data-parallel communication shares links with
 * messages, in pieces, on one or two links, under a random order. Some passes
 * launch operations, and some links have an order of their messages. */
static void runs_are_as_simulated(void)
{
    const random_shape shape = {.max_devices = 4,
                                .max_microbatches = 4,
                                .no_limits = true,
                                .no_zero_times = true};
    uint32_t n_shared[3] = {0, 0, 0}, n_ops = 0;
    for (uint32_t seed = 0; seed < OF_CASES(10000) && !test_state.bad; seed++) {
        rng r = {seed};
        lh_pipeline *plain = random_pipeline(&r, &shape);
        lh_pipeline *sharing = sharing_pipeline(&r, plain);
        lh_schedule *s = random_schedule(&r, sharing, true, seed % 2);
        lh_pipeline *with_ops =
            seed % 3 ? NULL : communicating_pipeline(&r, sharing, s);
        lh_pipeline *p = slow_down(with_ops ? with_ops : sharing);
        lh_pipeline_desc desc = {.size = sizeof desc};
        lh_error err = {0};
        CHECK_OK(
            lh_pipeline_describe(with_ops ? with_ops : sharing, &desc, &err),
            err);
        if (p && lh_pipeline_shares_links(p, LH_NONE) && can_run(p, s)) {
            n_shared[desc.dp_priority]++;
            n_ops += desc.n_dp_ops > 0;
            compare(p, s);
            if (test_state.bad)
                print_case(p, s);
        }
        lh_pipeline_free(p);
        lh_pipeline_free(with_ops);
        lh_schedule_free(s);
        lh_pipeline_free(sharing);
        lh_pipeline_free(plain);
    }
    for (int i = 0; i < 3; i++)
        CHECK(n_shared[i] > 20);
    CHECK(n_ops > 20);
}

/* Ranks as processes share the table; late wake-ups may only delay them. */
static void processes_share_links(void)
{
    lh_pipeline *p = pipeline_of(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 2\n"
        "devices: 2\nuniform: {placement: ud, F: 2, D: 2, W: 2}\n"
        "links:\n"
        "  - {from: 0, to: 1, latency: 1, transfer: 2, name: wan}\n"
        "  - {from: 1, to: 0, latency: 1, transfer: 2, name: back}\n"
        "data_parallel:\n"
        "  priority: fair\n"
        "  chunks: [{chunk: 1, all_gather: 6, link: wan + back}]\n");
    lh_schedule *s = schedule_by(p, "1f1b");
    lh_error err = {0};
    lh_exec *x = NULL;
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    lh_trace *trace = x ? run_dated(p, x, "local") : NULL;
    if (trace) {
        CHECK_INT(trace->n_collectives, 1);
        CHECK(trace->collectives[0].arrive_ns >= 6000000);
        CHECK(trace->makespan_ns >= lh_exec_predicted_ns(x));
    }
    lh_trace_free(trace);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(processes_share_links);
    RUN_VIRTUAL(the_documented_example);
    RUN_VIRTUAL(runs_are_as_simulated);
    return test_summary();
}
