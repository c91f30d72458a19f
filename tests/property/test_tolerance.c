/* SPDX-License-Identifier: Apache-2.0 */
/* The delay that a schedule tolerates on each boundary, versus trying every
 * delay on small random pipelines: the last ns that costs at most 2 ns.
 *
 *     test_tolerance [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>

static uint32_t n_cases = OF_CASES(600), first_case;

/* Samples a pipeline with a few devices, durations of a few ns, and links
 * between some devices. */
static lh_pipeline *tiny(rng *r)
{
    lh_chunk chunks[5] = {{0}};
    lh_link links[8];
    lh_pipeline_desc d = {.size = sizeof d,
                          .n_devices = 2 + rng_below(r, 3),
                          .n_microbatches = 1 + rng_below(r, 9),
                          .joint = rng_chance(r, 20),
                          .chunks = chunks,
                          .links = links};
    d.n_chunks = d.n_devices;
    for (uint32_t i = 0; i < d.n_devices; i++)
        chunks[i] = (lh_chunk){.device = i,
                               .f_ns = 1 + rng_below(r, 6),
                               .d_ns = 1 + rng_below(r, 6),
                               .w_ns = 1 + rng_below(r, 6)};
    for (uint32_t i = 0; i + 1 < d.n_devices; i++)
        for (uint32_t back = 0; back < 2; back++)
            if (rng_chance(r, 70))
                links[d.n_links++] = (lh_link){.from = i + back,
                                               .to = i + 1 - back,
                                               .latency_ns = rng_below(r, 7),
                                               .transfer_ns = rng_below(r, 3)};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&d, &p, &err), err);
    return p;
}

/* Returns the makespan with additional latency between a and a + 1, in both
 * directions. A missing link counts as one without latency and transfer time.
 */
static int64_t with_delay(const lh_pipeline *p, const lh_schedule *s,
                          const lh_sim_options *sim, uint32_t a, int64_t extra)
{
    lh_link links[10];
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *slower = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    bool there[2] = {false};
    CHECK_OK(lh_pipeline_describe(p, &d, &err), err);
    for (uint32_t i = 0; i < d.n_links; i++) {
        links[i] = d.links[i];
        for (uint32_t back = 0; back < 2; back++)
            if (links[i].from == a + back && links[i].to == a + 1 - back) {
                links[i].latency_ns += extra;
                there[back] = true;
            }
    }
    for (uint32_t back = 0; back < 2; back++)
        if (!there[back])
            links[d.n_links++] = (lh_link){
                .from = a + back, .to = a + 1 - back, .latency_ns = extra};
    d.links = links;
    CHECK_OK(lh_pipeline_make(&d, &slower, &err), err);
    CHECK_OK(lh_simulate(slower, s, sim, &t, &err), err);
    int64_t ns = t ? lh_timeline_makespan(t) : -1;
    lh_timeline_free(t);
    lh_pipeline_free(slower);
    return ns;
}

static int64_t latency(const lh_pipeline *p, uint32_t from, uint32_t to,
                       int64_t *transfer_ns)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *l = lh_pipeline_link(p, i);
        if (l->from == from && l->to == to) {
            *transfer_ns = l->transfer_ns;
            return l->latency_ns;
        }
    }
    *transfer_ns = 0;
    return 0;
}

static void check_boundary(const lh_pipeline *p, const lh_schedule *s,
                           const lh_sim_options *sim, uint32_t a,
                           const lh_slack *slack)
{
    int64_t there, back, least, most;
    int64_t delay = latency(p, a, a + 1, &there) + latency(p, a + 1, a, &back);
    least = -latency(p, a, a + 1, &there);
    if (-latency(p, a + 1, a, &back) > least)
        least = -latency(p, a + 1, a, &back);
    delay = (delay + there + back) / 2;
    CHECK_INT(slack->delay_ns, delay);
    int64_t before = with_delay(p, s, sim, a, least);
    int64_t end = with_delay(p, s, sim, a, 0) + 2;
    /* In a queue with two slots, the first message to arrive frees a slot, so a
     * later message may reduce waiting. There may then be several limits; the
     * analysis finds one of them. */
    most = least;
    bool several = sim->coupled_queue > 1, over = false, is_end = false;
    for (int64_t extra = least + 1; extra <= end; extra++) {
        int64_t ns = with_delay(p, s, sim, a, extra);
        bool paid_once = ns - before <= 2;
        CHECK_MSG(several || !paid_once || !over, "less again at %d",
                  (int)extra);
        is_end = is_end || (!paid_once &&
                            slack->tolerance_ns ==
                                (extra - 1 == least ? 0 : delay + extra - 1));
        over = over || !paid_once;
        if (paid_once)
            most = extra;
        before = ns;
    }
    if (several && is_end)
        return;
    CHECK_INT(slack->tolerance_ns, !over           ? LH_NO_LIMIT
                                   : most == least ? 0
                                                   : delay + most);
}

static void every_delay_is_tried(void)
{
    static const char *const methods[] = {"1f1b",   "gpipe",     "zb-h1",
                                          "zb-h2",  "slack",     "steady-slack",
                                          "greedy", "look-ahead"};
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        lh_sim_options sim = {.size = sizeof sim};
        if (rng_chance(&r, 30))
            sim.receives = LH_RECEIVES_LATE;
        if (rng_chance(&r, 20))
            sim.coupled_queue = 1 + rng_below(&r, 2);
        lh_pipeline *p = tiny(&r);
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_analysis *a = NULL;
        lh_error err = {0};
        uint32_t n = 0;
        const char *method = methods[rng_below(&r, 8)];
        lh_status status = lh_method_run(method, p, NULL, &s, NULL, &err);
        if (status == LH_OK)
            status = lh_simulate(p, s, &sim, &t, &err);
        CHECK_MSG(status == LH_OK || status == LH_EUNSUPPORTED ||
                      status == LH_EDEADLOCK,
                  "%s", err.text);
        if (status == LH_OK)
            CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
        const lh_slack *slack = a ? lh_analysis_slack(a, &n) : NULL;
        for (uint32_t k = 0; k < n && !test_state.bad; k++)
            check_boundary(p, s, &sim, k, &slack[k]);
        if (test_state.bad) {
            fprintf(stderr, "%s in case %u, receives %d, queue %u\n", method,
                    first_case + i, (int)sim.receives, sim.coupled_queue);
            print_case(p, s);
        }
        lh_analysis_free(a);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* Adaptra, theorem 1: equal stages, warm-ups with sampled slackness. Every
 * boundary tolerates the promised delay, and the last one no more, because no
 * device waits behind it. */
static void warm_ups_promise_so_much(void)
{
    enum { T = 12 };
    for (uint32_t i = 0; i < n_cases / 4 && !test_state.bad; i++) {
        rng r = {first_case + i};
        uint32_t x[5], P = 2 + rng_below(&r, 4), n = 0;
        lh_chunk chunks[5] = {{0}};
        for (uint32_t d = 0; d < P; d++)
            chunks[d] =
                (lh_chunk){.device = d, .f_ns = T, .d_ns = T, .w_ns = T};
        x[P - 1] = 1;
        for (uint32_t d = P - 1; d-- > 0;)
            x[d] = x[d + 1] + 1 + rng_below(&r, 4);
        lh_pipeline_desc desc = {.size = sizeof desc,
                                 .n_devices = P,
                                 .n_microbatches = 3 * x[0] + rng_below(&r, 9),
                                 .n_chunks = P,
                                 .chunks = chunks};
        lh_method_options options = {
            .size = sizeof options, .warmup = x, .n_warmup = P};
        lh_pipeline *p = NULL;
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_analysis *a = NULL;
        lh_error err = {0};
        CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
        CHECK_OK(lh_method_run("steady-slack", p, &options, &s, NULL, &err),
                 err);
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
        const lh_slack *slack = lh_analysis_slack(a, &n);
        for (uint32_t d = 0; d < n; d++) {
            int64_t promised = (slack[d].slackness - 1) * T;
            CHECK(slack[d].tolerance_ns >= promised);
            if (d + 1 == n)
                CHECK_INT(slack[d].tolerance_ns, promised);
        }
        if (test_state.bad) {
            fprintf(stderr, "in case %u\n", first_case + i);
            print_case(p, s);
        }
        lh_analysis_free(a);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(every_delay_is_tried);
    RUN(warm_ups_promise_so_much);
    return test_summary();
}
