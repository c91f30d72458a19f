/* SPDX-License-Identifier: Apache-2.0 */
/* Four independent timings for random pipelines and schedules: the simulator,
 * the tests' naive simulator, the verifier and the evaluator must agree.
 *
 *     test_agreement [CASES [FIRST]] */
#include "base/heap.h"
#include "cases.h"
#include "naive_sim.h"
#include "random_pipeline.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/simulator/timeline.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

static uint32_t n_cases = OF_CASES(20000), first_case;

static bool same_pass(const lh_pass *a, const lh_pass *b)
{
    return a->chunk == b->chunk && a->microbatch == b->microbatch &&
           a->kind == b->kind && a->part == b->part && a->n_parts == b->n_parts;
}

static void compare_runs(const lh_timeline *t, const naive_result *n)
{
    for (uint32_t d = 0; d < n->n_devices; d++) {
        uint32_t count;
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &count);
        CHECK_INT(count, n->counts[d]);
        for (uint32_t i = 0; i < count && i < n->counts[d]; i++) {
            const naive_run *want = &n->runs[d][i];
            CHECK(same_pass(&runs[i].pass, &want->pass));
            CHECK_INT(runs[i].device, d);
            CHECK_INT(runs[i].start_ns, want->start_ns);
            CHECK_INT(runs[i].end_ns, want->end_ns);
            CHECK_INT(runs[i].issued_ns, want->issued_ns);
        }
        CHECK_INT(lh_timeline_peak_memory(t, d), n->peak_memory[d]);
    }
}

static void compare_message(const lh_timeline *t, const lh_message *got,
                            const naive_message *want)
{
    CHECK(same_pass(&got->consumer, &want->consumer));
    CHECK_INT(got->from, want->from);
    CHECK_INT(got->to, want->to);
    CHECK_INT(got->produced_ns, want->produced_ns);
    CHECK_INT(got->ready_ns, want->ready_ns);
    CHECK_INT(got->depart_ns, want->depart_ns);
    CHECK_INT(got->sent_ns, want->sent_ns);
    CHECK_INT(got->arrive_ns, want->arrive_ns);
    CHECK_INT(got->resource == LH_NONE, want->link == NULL);
    if (want->link && got->resource != LH_NONE)
        CHECK_STR(lh_timeline_resource_name(t, got->resource), want->link);
}

static void compare_messages(const lh_timeline *t, const naive_result *n)
{
    uint32_t count;
    const lh_message *messages = lh_timeline_messages(t, &count);
    CHECK_INT(count, n->n_messages);
    for (uint32_t i = 0; i < n->n_messages; i++) {
        uint32_t k = 0;
        while (k < count &&
               !same_pass(&messages[k].producer, &n->messages[i].producer))
            k++;
        CHECK_MSG(k < count, "a message is missing");
        if (k < count)
            compare_message(t, &messages[k], &n->messages[i]);
    }
}

static void compare_collectives(const lh_timeline *t, const naive_result *n)
{
    uint32_t count;
    const lh_collective *all = lh_timeline_collectives(t, &count);
    CHECK_INT(count, n->n_collectives);
    for (uint32_t i = 0; i < n->n_collectives; i++) {
        const naive_collective *want = &n->collectives[i];
        uint32_t k = 0;
        while (k < count &&
               (all[k].chunk != want->chunk ||
                all[k].is_reduce_scatter != want->is_reduce_scatter ||
                all[k].ready_ns != want->ready_ns ||
                all[k].depart_ns != want->depart_ns ||
                all[k].sent_ns != want->sent_ns ||
                all[k].arrive_ns != want->arrive_ns))
            k++;
        CHECK_MSG(k < count,
                  "no collective of chunk %" PRIu32 " at %" PRId64
                  " to %" PRId64,
                  want->chunk, want->depart_ns, want->sent_ns);
    }
}

/* Checks that busy and idle times add up to the makespan on every device, and
 * that the critical path runs from 0 to the makespan without gaps. */
static void check_analysis(const lh_pipeline *p, const lh_schedule *s,
                           const lh_timeline *t)
{
    lh_analysis *a = NULL;
    lh_error err = {0};
    uint32_t count;
    CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
    if (!a)
        return;
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++) {
        const int64_t *idle = lh_analysis_idle(a, d);
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &count);
        int64_t sum = 0;
        for (uint32_t i = 0; i < LH_N_CAUSES; i++) {
            CHECK(idle[i] >= 0);
            sum += idle[i];
        }
        for (uint32_t i = 0; i < count; i++)
            sum += runs[i].end_ns - runs[i].start_ns;
        CHECK_INT(sum, lh_timeline_makespan(t));
    }
    const lh_segment *path = lh_analysis_critical_path(a, &count);
    int64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(path[i].start_ns, at);
        CHECK(path[i].end_ns >= at);
        at = path[i].end_ns;
    }
    CHECK_INT(at, lh_timeline_makespan(t));
    lh_analysis_free(a);
}

enum { MOST_LINKS = 256 };

/* Samples simulation options. `delegated`: array with at least MOST_LINKS
 * flags; receives the delegated links. */
static lh_sim_options some_options(rng *r, bool *delegated)
{
    lh_sim_options o = {.size = sizeof o};
    if (rng_chance(r, 50))
        return o;
    if (rng_chance(r, 40)) {
        for (uint32_t i = 0; i < MOST_LINKS; i++)
            delegated[i] = rng_chance(r, 50);
        o.delegated = delegated;
    }
    o.receives = (lh_receives)rng_below(r, 3);
    if (rng_chance(r, 50))
        o.coupled_queue = 1 + rng_below(r, 3);
    o.coupled_until_sent = o.coupled_queue > 0 && rng_chance(r, 30);
    o.fifo = rng_chance(r, 30);
    return o;
}

static void compare_judge(const lh_pipeline *p, const lh_schedule *s,
                          const lh_timeline *t)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    CHECK_OK(lh_check(p, s, &v, &err), err);
    if (!v)
        return;
    CHECK_INT(lh_verdict_valid(v), lh_timeline_fits(t, NULL));
    CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        CHECK_INT(lh_verdict_peak_memory(v, d), lh_timeline_peak_memory(t, d));
    lh_verdict_free(v);
}

static void compare_evaluator(const lh_pipeline *p, const lh_schedule *s,
                              const lh_sim_options *o, lh_status want_status,
                              int64_t want)
{
    lh_evaluator *e = NULL;
    lh_error err = {0};
    CHECK_OK(lh_evaluator_make(p, o, &e, &err), err);
    for (int again = 0; e && again < 2; again++) {
        int64_t got = -1;
        lh_status status = lh_evaluator_run(e, s, &got, &err);
        CHECK_INT(status, want_status);
        if (want_status == LH_OK)
            CHECK_INT(got, want);
    }
    lh_evaluator_free(e);
}

/* Repeats the comparison, including the verifier, with the receive policy set
 * in the pipeline. Options may override it. */
static void compare_own(const lh_pipeline *p, const lh_schedule *s,
                        const lh_sim_options *o, lh_status want_status,
                        int64_t want)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_pipeline *own = NULL;
    lh_timeline *t = NULL;
    lh_sim_options with = *o;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &desc, &err), err);
    desc.receives = o->receives;
    CHECK_OK(lh_pipeline_make(&desc, &own, &err), err);
    with.receives = LH_RECEIVES_EARLY;
    CHECK_INT(lh_simulate(own, s, &with, &t, &err), want_status);
    if (t)
        CHECK_INT(lh_timeline_makespan(t), want);
    compare_evaluator(own, s, &with, want_status, want);
    if (t && !o->coupled_queue && !o->delegated &&
        (!o->fifo || lh_schedule_n_link_orders(s) == 0))
        compare_judge(own, s, t);
    with.override_receives = true; /* overrides: early */
    lh_timeline *early = NULL, *plain = NULL;
    CHECK_INT(lh_simulate(own, s, &with, &early, &err),
              lh_simulate(p, s, &with, &plain, &err));
    if (early && plain)
        CHECK_INT(lh_timeline_makespan(early), lh_timeline_makespan(plain));
    lh_timeline_free(plain);
    lh_timeline_free(early);
    lh_timeline_free(t);
    lh_pipeline_free(own);
}

static void compare(const lh_pipeline *p, const lh_schedule *s,
                    const lh_sim_options *o, uint32_t *n_deadlocks)
{
    lh_timeline *t = NULL;
    lh_error err = {0};
    naive_result *n = naive_simulate(p, s, o);
    lh_status status = lh_simulate(p, s, o, &t, &err);
    if (n->deadlock) {
        CHECK_INT(status, LH_EDEADLOCK);
        ++*n_deadlocks;
    } else {
        CHECK_OK(status, err);
    }
    if (t) {
        CHECK_INT(lh_timeline_makespan(t), n->makespan_ns);
        compare_runs(t, n);
        compare_messages(t, n);
        compare_collectives(t, n);
        check_analysis(p, s, t);
        bool early = o->receives == LH_RECEIVES_EARLY && !o->coupled_queue &&
                     !o->host_copy_ns;
        if (early && (!o->fifo || lh_schedule_n_link_orders(s) == 0))
            compare_judge(p, s, t);
    }
    compare_evaluator(p, s, o, status, n->makespan_ns);
    if (!lh_pipeline_has_host(p)) /* not part of a pipeline description */
        compare_own(p, s, o, status, n->makespan_ns);
    lh_timeline_free(t);
    naive_free(n);
}

static void all_agree(void)
{
    uint32_t n_deadlocks = 0, n_shared = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *p = random_pipeline(&r, NULL);
        lh_schedule *s =
            random_schedule(&r, p, rng_chance(&r, 50), rng_chance(&r, 30));
        bool delegated[MOST_LINKS];
        lh_sim_options o = some_options(&r, delegated);
        CHECK(lh_pipeline_n_links(p) <= MOST_LINKS);
        if (rng_chance(&r, 30)) {
            lh_pipeline *plain = p;
            p = communicating_pipeline(&r, plain, s);
            lh_pipeline_free(plain);
        }
        if (i % 3 == 0) {
            rng other = {UINT64_C(1000000007) + i};
            lh_pipeline *plain = p;
            p = sharing_pipeline(&other, plain);
            n_shared += lh_pipeline_shares_links(p, LH_NONE);
            lh_pipeline_free(plain);
        }
        lh_pipeline *hosted = NULL;
        lh_error err = {0};
        if (rng_chance(&r, 30) &&
            lh_pipeline_with_host(p, 1 + rng_below(&r, 9), &hosted, &err) ==
                LH_OK) {
            lh_pipeline_free(p);
            p = hosted;
            o.host_copy_ns = rng_below(&r, 200);
        }
        bool before = test_state.bad;
        test_state.bad = false;
        compare(p, s, &o, &n_deadlocks);
        if (test_state.bad) {
            fprintf(stderr,
                    "case %" PRIu32 ": receives %d, queue %" PRIu32
                    ", fifo %d\n",
                    i, (int)o.receives, o.coupled_queue, o.fifo);
            if (!before)
                print_case(p, s);
        }
        test_state.bad |= before;
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_shared * 20 >= n_cases, "too few share links: %" PRIu32,
              n_shared);
    CHECK_MSG(n_deadlocks * 10 < n_cases, "too many deadlocks: %" PRIu32,
              n_deadlocks);
}

/* A network that delivers every message at the time that its link would. */
typedef struct planned_network {
    const lh_pipeline *p;
    lhi_heap arrivals;
    uint32_t n_sent;
} planned_network;

static lh_status send_planned(void *context, uint32_t number,
                              const lh_message *message, lh_error *err)
{
    planned_network *n = context;
    (void)err;
    lhi_event event = {.time_ns =
                           message->sent_ns +
                           lh_pipeline_link(n->p, message->link)->latency_ns,
                       .seq = n->n_sent++,
                       .payload = number};
    return lhi_heap_push(&n->arrivals, event) ? LH_OK : LH_ENOMEM;
}

static lh_status receive_planned(void *context, int64_t until_ns,
                                 uint32_t *number, int64_t *arrive_ns,
                                 lh_error *err)
{
    planned_network *n = context;
    lhi_event event;
    (void)err;
    *number = LH_NONE;
    if (n->arrivals.count == 0 || n->arrivals.items[0].time_ns > until_ns)
        return LH_OK;
    lhi_heap_pop(&n->arrivals, &event);
    *number = (uint32_t)event.payload;
    *arrive_ns = event.time_ns;
    return LH_OK;
}

/* Some links' messages are delivered by a network with the links' own times:
 * the schedule's times stay the same. */
static void networks_change_nothing_else(void)
{
    uint32_t n_sent = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 10; i++) {
        rng r = {UINT64_C(5000000000) + i};
        bool delegated[MOST_LINKS], carries[MOST_LINKS];
        static const random_shape shape = {.no_zero_times = true};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_schedule *s =
            random_schedule(&r, p, rng_chance(&r, 50), rng_chance(&r, 30));
        lh_sim_options o = some_options(&r, delegated);
        planned_network network = {.p = p};
        for (uint32_t k = 0; k < MOST_LINKS; k++)
            carries[k] = rng_chance(&r, 60);
        const lhi_sim_network by = {.context = &network,
                                    .carries = carries,
                                    .send = send_planned,
                                    .receive = receive_planned};
        lh_timeline *t = NULL, *carried = NULL;
        lh_error err = {0};
        lh_status status = lh_simulate(p, s, &o, &t, &err);
        CHECK_INT(lhi_simulate_with_network(p, s, &o, &by, &carried, &err),
                  status);
        for (uint32_t d = 0; t && carried && d < lh_timeline_n_devices(t);
             d++) {
            uint32_t n;
            const lh_timeline_run *a = lh_timeline_runs(t, d, &n);
            const lh_timeline_run *b = lh_timeline_runs(carried, d, &n);
            for (uint32_t k = 0; k < n; k++)
                CHECK_MSG(a[k].start_ns == b[k].start_ns &&
                              a[k].end_ns == b[k].end_ns,
                          "case %" PRIu32 ": device %" PRIu32, i, d);
        }
        n_sent += network.n_sent;
        lhi_heap_fini(&network.arrivals);
        lh_timeline_free(t);
        lh_timeline_free(carried);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_sent >= n_cases / 10, "only %" PRIu32 " messages", n_sent);
}

/* Returns a pipeline with two directions or overlapped pairs or both. Without
 * zero times, so that no pass ends after reduce-scatters of the same time. */
static lh_pipeline *make_two_way(rng *r)
{
    static const random_shape shape = {.no_zero_times = true};
    lh_pipeline *one = random_pipeline(r, &shape);
    lh_pipeline *p = two_way_pipeline(r, one);
    lh_pipeline_free(one);
    if (rng_chance(r, 30)) {
        one = p;
        p = sharing_pipeline(r, one);
        lh_pipeline_free(one);
    }
    return p;
}

/* Pipelines with two directions and overlapped pairs. */
static void two_way_pipelines_agree(void)
{
    uint32_t n_deadlocks = 0, n_both = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 4; i++) {
        rng r = {UINT64_C(3000000000) + i};
        bool delegated[MOST_LINKS];
        lh_pipeline *p = make_two_way(&r);
        lh_schedule *walked =
            random_schedule(&r, p, rng_chance(&r, 50), rng_chance(&r, 30));
        lh_schedule *s = overlapping_schedule(&r, p, walked, true);
        lh_sim_options o = some_options(&r, delegated);
        if (lhi_pipeline_overlap_f_b(p) > 0)
            o.coupled_queue = 0; /* rejected together with pairs */
        n_both +=
            lhi_pipeline_is_bidirectional(p) && lhi_pipeline_overlap_f_b(p) > 0;
        bool before = test_state.bad;
        test_state.bad = false;
        compare(p, s, &o, &n_deadlocks);
        if (test_state.bad) {
            fprintf(stderr, "case %" PRIu32 ": receives %d, fifo %d\n", i,
                    (int)o.receives, o.fifo);
            if (!before)
                print_case(p, s);
        }
        test_state.bad |= before;
        lh_schedule_free(walked);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_both * 20 >= n_cases / 4, "only %" PRIu32 " have both", n_both);
}

/* Pairs in which the B needs the F: both the simulator and the verifier find
 * them. */
static void dependent_pairs_are_wrong(void)
{
    uint32_t n_wrong = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 20; i++) {
        rng r = {UINT64_C(4000000000) + i};
        lh_pipeline *p = make_two_way(&r);
        lh_schedule *walked = random_schedule(&r, p, false, false);
        lh_schedule *s = overlapping_schedule(&r, p, walked, false);
        lh_timeline *t = NULL;
        lh_verdict *v = NULL;
        lh_error err = {0};
        lh_status status = lh_simulate(p, s, NULL, &t, &err);
        CHECK_OK(lh_check(p, s, &v, &err), err);
        CHECK_INT(lh_verdict_makespan(v) >= 0, status == LH_OK);
        if (t)
            CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
        n_wrong += status != LH_OK;
        lh_timeline_free(t);
        lh_verdict_free(v);
        lh_schedule_free(walked);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_wrong * 20 > n_cases / 20, "only %" PRIu32 " are wrong",
              n_wrong);
}

/* Broken schedules: the verifier accepts a schedule if and only if the
 * simulator can run it and it fits. */
static void agree_on_what_is_wrong(void)
{
    uint32_t n_valid = 0, n_deadlocks = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *p = random_pipeline(&r, NULL);
        lh_schedule *whole =
            random_schedule(&r, p, rng_chance(&r, 50), rng_chance(&r, 30));
        lh_schedule *s = broken_schedule(&r, whole);
        lh_timeline *t = NULL;
        lh_verdict *v = NULL;
        lh_error err = {0};
        lh_status status = lh_simulate(p, s, NULL, &t, &err);
        CHECK_OK(lh_check(p, s, &v, &err), err);
        bool runs = status == LH_OK, fits = t && lh_timeline_fits(t, NULL);
        n_deadlocks += status == LH_EDEADLOCK;
        n_valid += lh_verdict_valid(v);
        if (lh_verdict_valid(v) != fits ||
            (lh_verdict_makespan(v) >= 0) != runs) {
            CHECK_MSG(false, "case %" PRIu32 ": simulator: %s; judge: %s", i,
                      status == LH_OK ? "runs" : err.text,
                      lh_verdict_valid(v) ? "valid"
                                          : lh_verdict_violation(v, 0));
            print_case(p, s);
        }
        if (t && v)
            CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
        lh_timeline_free(t);
        lh_verdict_free(v);
        lh_schedule_free(whole);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    /* Checks that both valid and deadlocking schedules occurred. */
    CHECK_MSG(n_cases < 1000 ||
                  (n_valid > n_cases / 50 && n_deadlocks > n_cases / 100),
              "%" PRIu32 " valid, %" PRIu32 " deadlocks", n_valid, n_deadlocks);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(all_agree);
    RUN(networks_change_nothing_else);
    RUN(two_way_pipelines_agree);
    RUN(dependent_pairs_are_wrong);
    RUN(agree_on_what_is_wrong);
    return test_summary();
}
