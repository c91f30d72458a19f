/* SPDX-License-Identifier: Apache-2.0 */
/* Adaptra's warm-ups (algorithms 1 and 2), its worked example with a slow link
 * (figure 5), and CrossPipe's measured tables. */
#include "test.h"
#include "uniform.h"

#include "schedule/methods/slack.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>

enum { MS = 1000000 };

/* UD pipeline with unit memory; the delay of link i - (i+1), each way, is
 * delays[i] ms. */
static lh_pipeline *slow_links(uint32_t devices, uint32_t n, int64_t t_ms,
                               const int64_t *delays, int64_t memory)
{
    lh_chunk chunks[16] = {{0}};
    lh_link links[32] = {{0}};
    int64_t limits[16];
    for (uint32_t i = 0; i < devices; i++) {
        chunks[i] = (lh_chunk){.device = i,
                               .f_ns = t_ms * MS,
                               .d_ns = t_ms * MS,
                               .w_ns = t_ms * MS,
                               .mem_f = 1,
                               .mem_w = -1};
        limits[i] = memory;
    }
    for (uint32_t i = 0; i + 1 < devices; i++) {
        links[2 * i] = (lh_link){i, i + 1, delays[i] * MS, 0, NULL};
        links[2 * i + 1] = (lh_link){i + 1, i, delays[i] * MS, 0, NULL};
    }
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = devices,
                             .n_microbatches = n,
                             .n_chunks = devices,
                             .chunks = chunks,
                             .n_links = 2 * (devices - 1),
                             .links = links,
                             .memory_limits = memory ? limits : NULL};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    return p;
}

static const int64_t no_delay[16] = {0};

static lh_schedule *make(const lh_pipeline *p, const char *method,
                         const uint32_t *warmup, bool initial)
{
    lh_method_options options = {.size = sizeof options,
                                 .slack_initial = initial,
                                 .warmup = warmup,
                                 .n_warmup = lh_pipeline_n_devices(p)};
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run(method, p, &options, &s, NULL, &err), err);
    return s;
}

static int64_t run_ms(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *t = NULL;
    lh_error err = {0};
    if (!s)
        return -1;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    int64_t ns = t ? lh_timeline_makespan(t) : -1;
    CHECK(t && lh_timeline_fits(t, NULL));
    lh_timeline_free(t);
    CHECK_INT(ns % MS, 0);
    return ns / MS;
}

static void check_warmup(const lh_pipeline *p, bool initial,
                         const uint32_t *want)
{
    lh_method_options options = {.size = sizeof options,
                                 .slack_initial = initial};
    uint32_t x[16] = {0};
    lh_error err = {0};
    bool cut;
    CHECK_OK(lhi_slack_compute_warmups(p, &options, x, &cut, &err), err);
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        CHECK_MSG(x[d] == want[d], "device %u warms up with %u, not %u",
                  (unsigned)d, (unsigned)x[d], (unsigned)want[d]);
}

static void algorithm_1(void)
{
    static const uint32_t x4[] = {7, 5, 3, 1};
    static const uint32_t x8[] = {16, 13, 11, 9, 7, 5, 3, 1};
    static const uint32_t few[] = {3, 2, 1, 1};
    lh_pipeline *p = slow_links(4, 12, 10, no_delay, 7);
    check_warmup(p, true, x4);
    lh_pipeline_free(p);
    p = slow_links(8, 32, 10, no_delay, 16);
    check_warmup(p, true, x8);
    lh_pipeline_free(p);
    /* Less memory than devices: steps of 1 as far as possible. */
    p = slow_links(4, 12, 10, no_delay, 3);
    check_warmup(p, true, few);
    lh_pipeline_free(p);
}

static void algorithm_2(void)
{
    static const int64_t c20[] = {20, 0, 0}, c60[] = {60, 0, 0};
    static const uint32_t x20[] = {8, 5, 3, 1}, x60[] = {9, 5, 3, 1};
    static const uint32_t x_mem[] = {6, 5, 3, 1};
    lh_pipeline *p = slow_links(4, 12, 10, c20, 0);
    check_warmup(p, false, x20);
    lh_pipeline_free(p);
    p = slow_links(4, 12, 10, c60, 0);
    check_warmup(p, false, x60);
    lh_pipeline_free(p);
    p = slow_links(4, 12, 10, c20, 6);
    check_warmup(p, false, x_mem);
    lh_pipeline_free(p);
}

/* Fewer microbatches than 2S + 1: the slackness stays at 2, the warm-up at the
 * available number. */
static void algorithm_2_with_few_microbatches(void)
{
    static const int64_t c60[] = {60, 60, 60};
    static const uint32_t want[] = {5, 5, 3, 1};
    lh_pipeline *p = slow_links(4, 5, 10, c60, 0);
    check_warmup(p, false, want);
    lh_pipeline_free(p);
}

/* Rows: the order for no delay, replayed; recomputed for each delay; with
 * warm-ups by algorithm 2; zb-h2 and zb-h1 replayed. */
static void slow_first_link(void)
{
    static const int64_t want[3][5] = {{390, 390, 390, 390, 390},
                                       {400, 400, 400, 400, 460},
                                       {440, 410, 410, 420, 560}};
    static const uint32_t x[] = {7, 5, 3, 1};
    lh_pipeline *calm = slow_links(4, 12, 10, no_delay, 0);
    for (int64_t i = 0; i < 3; i++) {
        int64_t delays[3] = {10 * i, 0, 0};
        lh_pipeline *p = slow_links(4, 12, 10, delays, 0);
        lh_schedule *made[5] = {
            make(calm, "slack", x, false), make(p, "slack", x, false),
            make(p, "slack", NULL, false), make(p, "zb-h2", NULL, false),
            make(p, "zb-h1", NULL, false)};
        for (uint32_t k = 0; k < 5; k++) {
            CHECK_INT(run_ms(p, made[k]), want[i][k]);
            lh_schedule_free(made[k]);
        }
        lh_pipeline_free(p);
    }
    lh_pipeline_free(calm);
}

/* With a limit at most x forwards are live, and none exceeds memory. */
static void memory_holds_forwards_back(void)
{
    static const int64_t c[] = {20, 0, 5};
    static const uint32_t x[] = {5, 4, 3, 1};
    lh_pipeline *p = slow_links(4, 16, 10, c, 5);
    lh_schedule *s = make(p, "slack", x, false);
    CHECK(run_ms(p, s) > 0);
    for (uint32_t d = 0; s && d < 4; d++) {
        uint32_t count, ahead = 0;
        const lh_pass *order = lh_schedule_order(s, d, &count);
        for (uint32_t i = 0; i < count; i++) {
            ahead += order[i].kind == LH_F;
            ahead -= order[i].kind == LH_D;
            CHECK(ahead <= x[d]);
        }
    }
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- the order that keeps its slackness ----------------------------------- */

/* Returns the makespan of the order for no delay with `delay_ms` each way on
 * one link. */
static int64_t replayed(const lh_schedule *s, uint32_t n, int64_t t_ms,
                        uint32_t link, int64_t delay_ms)
{
    int64_t delays[16] = {0};
    delays[link] = delay_ms;
    lh_pipeline *p = slow_links(lh_schedule_n_devices(s), n, t_ms, delays, 0);
    int64_t ms = run_ms(p, s);
    lh_pipeline_free(p);
    return ms;
}

/* Theorem 1, the paper's figure 8: n = 30, t = 10 ms. Up to (slackness - 1) t a
 * delay is paid once; beyond, every further ms is paid repeatedly. */
static void theorem_1(void)
{
    static const uint32_t warmups[][4] = {
        {7, 5, 3, 1}, {10, 7, 4, 1}, {13, 9, 5, 1}, {16, 11, 6, 1}};
    enum { N = 30, T = 10 };
    lh_pipeline *calm = slow_links(4, N, T, no_delay, 0);
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t *x = warmups[k];
        int64_t slackness = x[0] - x[1], limit = (slackness - 1) * T;
        lh_schedule *s = make(calm, "steady-slack", x, false);
        CHECK_INT(run_ms(calm, s), 3 * N * T + 3 * T);
        for (uint32_t link = 0; s && link < 3; link++) {
            int64_t at = replayed(s, N, T, link, limit);
            for (int64_t c = 0; c <= limit; c += 5)
                CHECK(replayed(s, N, T, link, c) <= 3 * N * T + 3 * T + c);
            CHECK(replayed(s, N, T, link, limit + 5) >= at + 4 * 5);
        }
        if (x[0] == 13) {
            CHECK_INT(replayed(s, N, T, 2, 20), 950);
            CHECK_INT(replayed(s, N, T, 2, 30), 960);
            CHECK_INT(replayed(s, N, T, 2, 40), 1080);
        }
        lh_schedule_free(s);
    }
    /* Algorithm 3's order with the same warm-ups has used up its slackness. */
    lh_schedule *drained = make(calm, "slack", warmups[2], false);
    CHECK_INT(replayed(drained, N, T, 2, 20), 1140);
    lh_schedule_free(drained);
    lh_pipeline_free(calm);
}

static bool same_orders(const lh_schedule *a, const lh_schedule *b)
{
    for (uint32_t d = 0; d < lh_schedule_n_devices(a); d++) {
        uint32_t n, m;
        const lh_pass *x = lh_schedule_order(a, d, &n);
        const lh_pass *y = lh_schedule_order(b, d, &m);
        for (uint32_t i = 0; i < n && n == m; i++)
            if (x[i].kind != y[i].kind || x[i].microbatch != y[i].microbatch)
                return false;
        if (n != m)
            return false;
    }
    return true;
}

/* With the warm-ups and the memory of the zero-bubble orders it equals them: W
 * as late as memory allows. */
static void memory_makes_it_zero_bubble(void)
{
    for (uint32_t P = 1; P <= 8; P++)
        for (uint32_t n = 2 * P; n <= 3 * P + 2; n++)
            for (uint32_t k = 1; k <= 2; k++) {
                uint32_t x[8];
                for (uint32_t d = 0; d < P; d++)
                    x[d] = k * (P - d) - (k - 1);
                lh_pipeline *p = slow_links(P, n, 10, no_delay, x[0]);
                lh_schedule *s = make(p, "steady-slack", x, false);
                lh_schedule *zb = make(p, k == 1 ? "zb-h1" : "zb-h2", x, false);
                CHECK_MSG(same_orders(s, zb), "P %u n %u zb-h%u", (unsigned)P,
                          (unsigned)n, (unsigned)k);
                lh_schedule_free(s);
                lh_schedule_free(zb);
                lh_pipeline_free(p);
            }
}

/* Memory for fewer forwards than algorithm 2 needs: it is used where it gains
 * most, not at the first boundaries at the expense of the last. */
static void scarce_slackness_is_shared(void)
{
    static const int64_t slow_first[] = {20, 0, 0};
    lh_pipeline *p = slow_links(4, 12, 10, no_delay, 4);
    lh_schedule *s = make(p, "steady-slack", NULL, false);
    lh_schedule *zb = make(p, "zb-h1", NULL, false);
    CHECK_INT(run_ms(p, s), run_ms(p, zb));
    lh_schedule_free(s);
    lh_schedule_free(zb);
    lh_pipeline_free(p);
    for (int64_t memory = 4; memory <= 8; memory++) {
        p = slow_links(4, 12, 10, slow_first, memory);
        s = make(p, "steady-slack", NULL, false);
        int64_t ms = run_ms(p, s);
        for (uint32_t a = 1; a <= 8; a++)
            for (uint32_t i = 0; i < 36; i++) {
                uint32_t x[4] = {a, i / 6 + 1, i % 6 + 1, 1};
                if (a > memory || x[1] > a || x[2] > x[1] || x[2] == 6)
                    continue;
                lh_schedule *other = make(p, "steady-slack", x, false);
                CHECK_MSG(run_ms(p, other) >= ms, "memory %d: %u %u %u",
                          (int)memory, x[0], x[1], x[2]);
                lh_schedule_free(other);
            }
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

static void check_given(uint32_t n, const uint32_t *x, lh_status status,
                        const char *part)
{
    lh_pipeline *p = slow_links(3, 6, 10, no_delay, 4);
    lh_method_options options = {
        .size = sizeof options, .warmup = x, .n_warmup = n};
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_INT(lh_method_run("slack", p, &options, &s, NULL, &err), status);
    CHECK_HAS(err.text, part);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void given_warmups_that_cannot_be(void)
{
    static const uint32_t rising[] = {2, 3, 1}, none[] = {2, 1, 0};
    static const uint32_t many[] = {5, 3, 1};
    check_given(2, rising, LH_EINVAL, "2 warm-up counts are given for 3");
    check_given(3, rising, LH_EINVAL, "device 1 is greater than that of");
    check_given(3, none, LH_EINVAL, "device 2 is 0");
    check_given(3, many, LH_EINFEASIBLE,
                "device 0 needs memory 5, its limit is 4");
}

/* --- CrossPipe, tables 5 and 6 -------------------------------------------- */

/* M70 on 8 devices; seconds per microbatch of the static schedules, cases 1 (16
 * microbatches) and 2 (32, recomputation), at 5 delays; then of the greedy one,
 * case 1. 2 datacenters (table 5), then 4 (table 6). */
static const double ratios[5][2] = {
    {0, 0}, {.25, .25}, {.25, 2}, {2, .25}, {2, 2}};
static const double measured[3][4][5] = {{{.151, .168, .241, .242, .321},
                                          {.174, .193, .262, .262, .333},
                                          {.149, .177, .269, .268, .359},
                                          {.173, .198, .274, .274, .349}},
                                         {{.133, .15, .23, .229, .309},
                                          {.168, .187, .259, .258, .331},
                                          {.133, .158, .249, .248, .338},
                                          {.168, .19, .269, .269, .346}},
                                         {{.118, .148, .315, .314, .473},
                                          {.161, .177, .33, .329, .476},
                                          {.119, .161, .339, .337, .512},
                                          {.16, .181, .331, .33, .479}}};

static double predict(const char *method, uniform u, lh_receives receives)
{
    lh_pipeline *p = uniform_make(u);
    lh_method_options options = {.size = sizeof options, .sub_blocks = 8};
    lh_sim_options sim = {.size = sizeof sim, .receives = receives};
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run(method, p, &options, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, &sim, &t, &err), err);
    double seconds = t ? (double)lh_timeline_makespan(t) / 1e9 : 0;
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return seconds / u.microbatches;
}

static uniform m70(const char *placement, unsigned row, unsigned ratio)
{
    uniform u = {placement, 8, 16, 38, 48, 20, 2, 0, 0, 8, NULL};
    u.datacenters = row < 2 ? 2 : 4;
    u.latency = 38 * ratios[ratio][0];
    u.transfer = 38 * ratios[ratio][1];
    if (row % 2) {
        u.microbatches = 32;
        u.d += u.f;
    }
    if (strcmp(placement, "wave") == 0)
        u.memory *= 2;
    return u;
}

static void crosspipe_static_rows(void)
{
    static const struct {
        const char *method, *placement;
        lh_receives receives;
        double rms, worst; /* percent, as computed */
    } rows[3] = {{"1f1b", "ud", LH_RECEIVES_LATE, 1.1, 2.3},
                 {"zb-h1", "ud", LH_RECEIVES_LATE, 1.1, 2.2},
                 {"zb-v", "wave", LH_RECEIVES_LATE_FD, 3.5, 6.9}};
    for (unsigned k = 0; k < 3; k++) {
        double squares = 0, worst = 0;
        for (unsigned i = 0; i < 20; i++) {
            double is =
                predict(rows[k].method, m70(rows[k].placement, i / 5, i % 5),
                        rows[k].receives);
            double off = 100 * (is / measured[k][i / 5][i % 5] - 1);
            squares += off * off;
            worst = fabs(off) > worst ? fabs(off) : worst;
        }
        CHECK_NEAR(sqrt(squares / 20), rows[k].rms, 0.05);
        CHECK_NEAR(worst, rows[k].worst, 0.05);
    }
}

static void crosspipe_single_cells(void)
{
    CHECK_NEAR(predict("1f1b", m70("ud", 0, 0), LH_RECEIVES_LATE), .152, 5e-4);
    CHECK_NEAR(predict("1f1b", m70("ud", 0, 4), LH_RECEIVES_LATE), .322, 1e-3);
    CHECK_NEAR(predict("zb-h1", m70("ud", 0, 3), LH_RECEIVES_LATE), .229, 5e-4);
    CHECK_NEAR(predict("zb-v", m70("wave", 0, 2), LH_RECEIVES_LATE_FD), .316,
               5e-4);
}

/* Without rendezvous receives the predicted static rows would be much faster
 * than published, by up to these percentages. */
static void crosspipe_static_rows_with_early_receives(void)
{
    static const char *const methods[3] = {"1f1b", "zb-h1", "zb-v"};
    static const double fastest[3] = {11, 15, 34};
    for (unsigned k = 0; k < 3; k++) {
        double most = 0;
        for (unsigned i = 0; i < 20; i++) {
            uniform u = m70(k == 2 ? "wave" : "ud", i / 5, i % 5);
            double off = 100 * (1 - predict(methods[k], u, LH_RECEIVES_EARLY) /
                                        measured[k][i / 5][i % 5]);
            most = off > most ? off : most;
        }
        CHECK_NEAR(most, fastest[k], 0.6);
    }
}

/* The measured CrossUDSub in case 1, where bandwidth is a small part of the
 * delay. */
static void crosspipe_greedy_row(void)
{
    static const double is[2][3] = {{.137, .149, .16}, {.138, .155, .2}};
    static const unsigned at[3] = {0, 1, 3};
    for (unsigned i = 0; i < 6; i++) {
        double got = predict("greedy", m70("ud", i / 3 * 2, at[i % 3]),
                             LH_RECEIVES_EARLY);
        CHECK_NEAR(got / is[i / 3][i % 3], 1, 0.06);
    }
}

static double quickest(const char *const *methods, uniform u)
{
    double best = INFINITY;
    for (; *methods; methods++) {
        double s = predict(*methods, u, LH_RECEIVES_EARLY);
        best = s < best ? s : best;
    }
    return best;
}

/* Section 5.1: split beats unified; Loop suffers most from delay; Wave is best
 * at small delays, UD at large bandwidth delays. */
static void crosspipe_claims(void)
{
    static const char *const split[] = {"zb-h1", "greedy", NULL};
    static const char *const united[] = {"1f1b", NULL};
    static const char *const looped[] = {"interleaved-1f1b", NULL};
    static const char *const waved[] = {"zb-v", "greedy", NULL};
    uniform near = {"ud", 4, 8, 10, 10, 10, 2, 0, 0, 4, NULL}, far = near;
    far.latency = 20;
    CHECK(quickest(split, near) < quickest(united, near));
    CHECK(quickest(split, far) < quickest(united, far));
    uniform wave = near, wave_thin = near, thin = near;
    wave.placement = wave_thin.placement = "wave";
    wave.memory = wave_thin.memory = 8;
    thin.transfer = wave_thin.transfer = 20;
    CHECK(quickest(waved, wave) < quickest(split, near));
    CHECK(quickest(split, thin) < quickest(waved, wave_thin));
    uniform loop = near, loop_far = far, wave_far = wave;
    loop.placement = loop_far.placement = "loop";
    loop.memory = loop_far.memory = 0;
    wave_far.latency = 20;
    double loop_loss = quickest(looped, loop_far) / quickest(looped, loop);
    CHECK(loop_loss > quickest(united, far) / quickest(united, near));
    CHECK(loop_loss > quickest(split, far) / quickest(split, near));
    CHECK(loop_loss > quickest(waved, wave_far) / quickest(waved, wave));
}

/* Section 5.1: small delays cost the same as latency or as transfer. */
static void crosspipe_small_delays(void)
{
    static const struct {
        const char *method, *placement;
    } rows[] = {{"1f1b", "ud"},
                {"zb-h1", "ud"},
                {"greedy", "ud"},
                {"interleaved-1f1b", "loop"},
                {"zb-v", "wave"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uniform late = {rows[i].placement, 4, 8, 10, 10, 10, 2, 5, 0, 0, NULL};
        uniform thin = late;
        thin.latency = 0;
        thin.transfer = 5;
        CHECK_NEAR(predict(rows[i].method, late, LH_RECEIVES_EARLY),
                   predict(rows[i].method, thin, LH_RECEIVES_EARLY), 1e-12);
    }
}

int main(void)
{
    RUN(algorithm_1);
    RUN(algorithm_2);
    RUN(algorithm_2_with_few_microbatches);
    RUN(slow_first_link);
    RUN(memory_holds_forwards_back);
    RUN(theorem_1);
    RUN(memory_makes_it_zero_bubble);
    RUN(scarce_slackness_is_shared);
    RUN(given_warmups_that_cannot_be);
    RUN(crosspipe_static_rows);
    RUN(crosspipe_single_cells);
    RUN(crosspipe_static_rows_with_early_receives);
    RUN(crosspipe_greedy_row);
    RUN(crosspipe_claims);
    RUN(crosspipe_small_delays);
    return test_summary();
}
