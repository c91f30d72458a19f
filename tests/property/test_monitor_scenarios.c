/* SPDX-License-Identifier: Apache-2.0 */
/* Random scenarios with known ground truth: links and devices become slower for
 * a while, under 5 % noise. The monitor must detect every slowdown that costs
 * at least 5 % per iteration, and its end, within three iterations, and must
 * report nothing false.
 *
 *     test_monitor_scenarios [SCENARIOS [FIRST]] */
#include "cases.h"
#include "noisy_run.h"
#include "random_pipeline.h"
#include "resilience/monitor/monitor.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>

enum { MOST_TRUTHS = 3, STEPS = 90, SOON = 3, MOST = 64 };

static uint32_t n_cases = 200, first_case = 1;

/* A slowdown between two steps: the ground truth. */
typedef struct truth {
    lh_monitor_target what;
    uint32_t index;
    bool transfer;
    double factor;
    uint64_t from, to;
    double cost; /* fraction per iteration */
    bool began, ended;
} truth;

static struct {
    uint32_t changes, found; /* cost >= 5 %: starts and ends */
    uint32_t small, small_found;
    uint32_t told, right;
} sum[LH_MONITOR_DATA];

static double between(rng *r, double a, double b)
{
    return a + (b - a) * (double)(rng_next(r) >> 11) * 0x1p-53;
}

static uniform random_uniform(rng *r)
{
    static const char *const placements[] = {"ud", "ud", "loop", "wave"};
    uniform u = {.placement = placements[rng_below(r, 4)],
                 .devices = 2 + rng_below(r, 7),
                 .microbatches = 8 + 8 * rng_below(r, 3),
                 .f = between(r, 5, 20)};
    u.d = u.f * between(r, 0.8, 1.3);
    u.w = u.f * between(r, 0.5, 1);
    u.datacenters = u.devices;
    u.latency = between(r, 0, 40);
    u.transfer = between(r, 0.1, 8);
    return u;
}

static lh_schedule *random_order(rng *r, const lh_pipeline *p, const uniform *u)
{
    static const char *const ud[] = {"1f1b", "zb-h1", "zb-h2", "greedy"};
    lh_schedule *s = NULL;
    lh_error err = {0};
    const char *method =
        strcmp(u->placement, "ud") == 0 ? ud[rng_below(r, 4)] : "greedy";
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    return s;
}

static void apply_truths(const truth *t, uint32_t n, uint64_t step,
                         double *latency, double *transfer, double *slower)
{
    for (uint32_t i = 0; i < MOST; i++)
        latency[i] = transfer[i] = slower[i] = 1;
    for (uint32_t i = 0; i < n; i++) {
        bool is_on = step >= t[i].from && step < t[i].to;
        double *factors = t[i].what == LH_MONITOR_DEVICE ? slower
                          : t[i].transfer                ? transfer
                                                         : latency;
        factors[t[i].index] *= is_on ? t[i].factor : 1;
    }
}

/* Returns the makespan without noise under the current factors. */
static int64_t quiet_makespan(noisy_run *n, uint64_t step)
{
    double cv = n->cv;
    n->cv = 0;
    noisy_iterate(n, step);
    n->cv = cv;
    return n->makespan_ns;
}

static truth random_truth(rng *r, const lh_pipeline *p, uint32_t nth)
{
    truth t = {.from = 15 + 25 * nth + rng_below(r, 5)};
    t.to = t.from + 6 + rng_below(r, 10);
    bool device = rng_chance(r, 30);
    t.what = device ? LH_MONITOR_DEVICE : LH_MONITOR_LINK;
    t.index = rng_below(r, device ? p->n_devices : p->n_links);
    t.transfer = rng_chance(r, 30);
    t.factor = device ? between(r, 1.05, 2) : between(r, 1.1, 6);
    return t;
}

static truth *truth_of(truth *t, uint32_t n, const lh_monitor_event *e,
                       uint64_t step)
{
    bool ends = e->change == LH_MONITOR_ENDS;
    for (uint32_t i = n; i-- > 0;) { /* the latest match */
        uint64_t since = ends ? t[i].to : t[i].from;
        uint64_t until = ends ? STEPS + 20 : t[i].to + 1;
        if (t[i].what == e->target && t[i].index == e->index && step >= since &&
            step < until)
            return &t[i];
    }
    return NULL;
}

static void note_event(truth *t, uint32_t n, const lh_monitor_event *e,
                       uint64_t step)
{
    truth *is = truth_of(t, n, e, step);
    sum[e->target].told++;
    sum[e->target].right += is != NULL;
    if (!is)
        fprintf(stderr, "case %u, step %" PRIu64 ": %s %u %s, %g to %g\n",
                first_case, step, lh_monitor_target_name(e->target), e->index,
                lh_monitor_change_name(e->change), e->baseline_ns,
                e->current_ns);
    if (is && e->change != LH_MONITOR_ENDS) /* also for an ongoing event */
        is->began |= step < is->from + SOON;
    if (is && e->change == LH_MONITOR_ENDS)
        is->ended |= step < is->to + SOON;
}

static void count_truth(const truth *t)
{
    bool counts = t->cost >= 0.05;
    sum[t->what].changes += counts ? 2 : 0;
    sum[t->what].found += counts ? (uint32_t)(t->began + t->ended) : 0;
    sum[t->what].small += !counts;
    sum[t->what].small_found += !counts && t->began;
    if (counts && !(t->began && t->ended))
        fprintf(stderr,
                "case %u: %s %u%s x %.2f from %" PRIu64 " to %" PRIu64
                ", %.1f %%: began %d, ended %d\n",
                first_case, lh_monitor_target_name(t->what), t->index,
                t->transfer ? " transfer" : "", t->factor, t->from, t->to,
                100 * t->cost, t->began, t->ended);
}

static void play(noisy_run *n, truth *t, uint32_t n_truths, double *latency,
                 double *transfer, double *slower)
{
    lh_monitor *m = NULL;
    lh_error err = {0};
    CHECK_OK(lh_monitor_make(n->p, n->s, NULL, &m, &err), err);
    for (uint64_t step = 0; m && step < STEPS + 20; step++) {
        apply_truths(t, n_truths, step, latency, transfer, slower);
        noisy_iterate(n, step);
        CHECK_OK(lh_monitor_add(m, &n->seen, &err), err);
        uint32_t news;
        const lh_monitor_event *e = lhi_monitor_events(m, &news);
        for (uint32_t i = 0; i < news; i++)
            note_event(t, n_truths, &e[i], step);
    }
    lh_monitor_free(m);
}

static void one_scenario(uint32_t number)
{
    rng r = {number};
    uniform u = random_uniform(&r);
    lh_pipeline *p = uniform_make(u);
    lh_schedule *s = random_order(&r, p, &u);
    double latency[MOST], transfer[MOST], slower[MOST];
    apply_truths(NULL, 0, 0, latency, transfer, slower);
    noisy_run n = noisy_make(p, s, 0.05, number);
    n.latency = latency;
    n.transfer = transfer;
    n.slower = slower;
    truth t[MOST_TRUTHS];
    uint32_t n_truths = 1 + rng_below(&r, MOST_TRUTHS);
    int64_t quiet = quiet_makespan(&n, 0);
    for (uint32_t i = 0; i < n_truths; i++) {
        t[i] = random_truth(&r, p, i);
        apply_truths(&t[i], 1, t[i].from, latency, transfer, slower);
        t[i].cost = (double)(quiet_makespan(&n, 0) - quiet) / (double)quiet;
        apply_truths(&t[i], 1, t[i].to, latency, transfer, slower);
    }
    play(&n, t, n_truths, latency, transfer, slower);
    for (uint32_t i = 0; i < n_truths; i++)
        count_truth(&t[i]);
    noisy_free(&n);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void all_that_costs_is_found(void)
{
    uint32_t last = first_case + n_cases;
    for (; first_case < last; first_case++)
        one_scenario(first_case);
    for (int what = LH_MONITOR_LINK; what < LH_MONITOR_DATA; what++) {
        fprintf(stderr,
                "%s: %u of %u changes found in time, %u of %u told are so; of "
                "%u that cost less %u were told\n",
                lh_monitor_target_name((lh_monitor_target)what),
                sum[what].found, sum[what].changes, sum[what].right,
                sum[what].told, sum[what].small, sum[what].small_found);
        CHECK_INT(sum[what].found, sum[what].changes);
        CHECK_INT(sum[what].right, sum[what].told);
    }
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(all_that_costs_is_found);
    return test_summary();
}
