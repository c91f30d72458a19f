/* SPDX-License-Identifier: Apache-2.0 */
/* The methods' orders and makespans in cases known from the papers, from the
 * zero-bubble authors' scheduler, or computed by hand. */
#include "schedule/methods/sched.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>

/* A schedule's makespan, validity and peak memory. */
typedef struct result {
    lh_status status;
    double ms;    /* makespan */
    bool valid;   /* result of lh_check() */
    int64_t peak; /* highest of any device */
    const char *chosen;
    char *csv;
    lh_error err;
} result;

static void clear(result *r)
{
    lh_text_free(r->csv);
    r->csv = NULL;
}

static void judge(const lh_pipeline *p, const lh_schedule *s,
                  lh_receives receives, result *r)
{
    lh_sim_options sim = {.size = sizeof sim, .receives = receives};
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    CHECK_OK(lh_simulate(p, s, &sim, &t, &r->err), r->err);
    CHECK_OK(lh_check(p, s, &v, &r->err), r->err);
    if (t && v) {
        r->ms = (double)lh_timeline_makespan(t) / 1e6;
        r->valid = lh_verdict_valid(v);
        for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
            if (lh_timeline_peak_memory(t, d) > r->peak)
                r->peak = lh_timeline_peak_memory(t, d);
    }
    lh_timeline_free(t);
    lh_verdict_free(v);
}

/* Runs `method`'s schedule for `made_for` (NULL: p) on `p`. */
static result run_on(const lh_pipeline *p, const lh_pipeline *made_for,
                     const char *method, lh_receives receives,
                     const lh_method_options *options)
{
    result r = {0};
    lh_schedule *s = NULL;
    r.status = lh_method_run(method, made_for ? made_for : p, options, &s,
                             &r.chosen, &r.err);
    if (r.status == LH_OK) {
        judge(p, s, receives, &r);
        CHECK_OK(lh_schedule_format(s, &r.csv, NULL, &r.err), r.err);
    }
    lh_schedule_free(s);
    return r;
}

static result run(uniform u, const char *method, uint32_t sub_blocks)
{
    lh_pipeline *p = uniform_make(u);
    lh_method_options options = {.size = sizeof options,
                                 .sub_blocks = sub_blocks};
    result r = run_on(p, NULL, method, LH_RECEIVES_EARLY, &options);
    CHECK_MSG(r.status == LH_OK, "%s: %s", method, r.err.text);
    CHECK(r.valid);
    lh_pipeline_free(p);
    return r;
}

static void check_ms(uniform u, const char *method, uint32_t sub_blocks,
                     double ms)
{
    result r = run(u, method, sub_blocks);
    CHECK_MSG(fabs(r.ms - ms) < 1e-9, "%s takes %.6f ms, not %.6f", method,
              r.ms, ms);
    clear(&r);
}

static void check_csv(uniform u, const char *method, const char *csv)
{
    result r = run(u, method, 0);
    CHECK_STR(r.csv, csv);
    clear(&r);
}

static void check_refused(uniform u, const char *method, lh_status status,
                          const char *part)
{
    lh_pipeline *p = uniform_make(u);
    result r = run_on(p, NULL, method, LH_RECEIVES_EARLY, NULL);
    CHECK_INT(r.status, status);
    CHECK_HAS(r.err.text, part);
    clear(&r);
    lh_pipeline_free(p);
}

static const uniform ud = {"ud", 3, 4, 1, 1, 1, 0, 0, 0, 0, NULL};

static uniform sized(uniform u, unsigned devices, unsigned microbatches)
{
    u.devices = devices;
    u.microbatches = microbatches;
    return u;
}

/* --- static orders -------------------------------------------------------- */

static void orders_of_gpipe_and_1f1b(void)
{
    uniform u = sized(ud, 2, 3);
    check_csv(u, "gpipe", "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
    check_csv(u, "1f1b", "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
    check_csv(sized(ud, 3, 1), "1f1b", "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    check_ms(sized(ud, 4, 8), "gpipe", 0, 33);
    check_ms(sized(ud, 4, 8), "1f1b", 0, 33);
}

static void gpipe_runs_on_any_placement(void)
{
    uniform u = {"wave", 2, 2, 2, 2, 2, 0, 0, 0, 0, NULL};
    check_csv(u, "gpipe",
              "0F0,0F1,3F0,3F1,3B0,3B1,0B0,0B1\n"
              "1F0,1F1,2F0,2F1,2B0,2B1,1B0,1B1\n");
}

static void orders_of_zero_bubble(void)
{
    uniform u = sized(ud, 2, 4);
    check_csv(u, "zb-h1",
              "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3\n"
              "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3\n");
    check_csv(u, "zb-h2",
              "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
              "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3\n");
    /* Fewer microbatches than warm-up forwards. */
    check_csv(sized(ud, 3, 1), "zb-h2",
              "0F0,0I0,0W0\n1F0,1I0,1W0\n2F0,2I0,2W0\n");
}

static void zero_bubble_peaks(void)
{
    for (unsigned devices = 1; devices <= 6; devices++) {
        uniform u = sized(ud, devices, 4 * devices);
        result h1 = run(u, "zb-h1", 0), h2 = run(u, "zb-h2", 0);
        CHECK_INT(h1.peak, devices);
        CHECK_INT(h2.peak, 2 * devices - 1);
        u.placement = "wave";
        result v = run(u, "zb-v", 0);
        CHECK_INT(v.peak, 2 * devices);
        clear(&h1);
        clear(&h2);
        clear(&v);
    }
}

static void interleaved_as_megatron(void)
{
    uniform u = {"loop", 2, 4, 2, 2, 2, 0, 0, 0, 0, NULL};
    check_ms(u, "interleaved-1f1b", 0, 27);
    check_csv(u, "interleaved-1f1b",
              "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,"
              "0B3\n"
              "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,"
              "1B3\n");
    check_ms(sized(u, 4, 8), "interleaved-1f1b", 0, 57);
    /* With 3 on 2 devices one group: warm-ups of (2 - 1) 3 + 2 and + 0. */
    check_csv(sized(u, 2, 3), "interleaved-1f1b",
              "0F0,0F1,0F2,2F0,2F1,2F2,2B0,2B1,2B2,0B0,0B1,0B2\n"
              "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1B0,1B1,1B2\n");
}

/* --- zb-v ----------------------------------------------------------------- */

/* The orders from zbv.py in sail-sg/zero-bubble-pipeline-parallelism with unit
 * costs and no communication. */
static void zb_v_orders(void)
{
    uniform u = {"wave", 2, 3, 2, 2, 2, 0, 0, 0, 0, NULL};
    check_csv(u, "zb-v",
              "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,0I1,3W2,"
              "0I2,0W1,0W2\n"
              "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,1I1,2I2,1I2,2W1,"
              "1W1,2W2,1W2\n");
    check_csv(sized(u, 1, 4), "zb-v",
              "0F0,1F0,1I0,1W0,0F1,0I0,0W0,1F1,1I1,1W1,0F2,0I1,0W1,1F2,1I2,"
              "1W2,0F3,0I2,0W2,1F3,1I3,0I3,1W3,0W3\n");
    check_csv(sized(u, 2, 1), "zb-v",
              "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,1I0,2W0,1W0\n");
}

static void zb_v_makespans(void)
{
    static const struct {
        unsigned devices, n;
        double units, replayed_ms;
    } rows[] = {{2, 4, 25, 737},   {4, 6, 39, 1057},   {4, 8, 51, 1296},
                {4, 16, 99, 2292}, {8, 16, 103, 2543}, {8, 32, 199, 4535}};
    uniform unit = {"wave", 2, 4, 2, 2, 2, 0, 0, 0, 0, NULL};
    uniform far = {"wave", 2, 4, 38, 48, 20, 2, 38, 9.5, 0, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uniform u = sized(unit, rows[i].devices, rows[i].n);
        check_ms(u, "zb-v", 0, rows[i].units);
        u = sized(far, rows[i].devices, rows[i].n);
        u.memory = 2 * rows[i].devices;
        check_ms(u, "zb-v", 0, rows[i].replayed_ms);
    }
}

/* --- v-half, v-min -------------------------------------------------------- */

/* Compares a CSV with the next lines of a file. */
static void check_rows(const char *csv, FILE *file, const char *what)
{
    static char line[1 << 13];
    for (const char *at = csv; *at; at = strchr(at, '\n') + 1) {
        CHECK(fgets(line, sizeof line, file));
        CHECK_MSG(strncmp(at, line, strlen(line)) == 0, "%s: not %s", what,
                  line);
    }
}

/* The orders of the authors' code (tests/data/zero_bubble/SOURCE.md). Memory:
 * the closed forms of docs/theory/schedules.md. */
static void v_memory_orders(void)
{
    FILE *file = fopen(TEST_DATA "/zero_bubble/orders.txt", "r");
    char line[64], method[16];
    unsigned devices, n, n_cases = 0;
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        CHECK_INT(sscanf(line, "%15s %u %u", method, &devices, &n), 3);
        uniform u = {"wave", devices, n, 2, 2, 2, 0, 0, 0, 0, NULL};
        u.memory = strcmp(method, "v-half") == 0 ? devices / 2 * 2 + 2
                                                 : (devices + 4) / 3 * 2;
        result r = run(u, method, 0);
        check_rows(r.csv, file, line);
        clear(&r);
        n_cases++;
    }
    CHECK_INT(n_cases, 60);
    if (file)
        fclose(file);
}

static void v_memory_makespans(void)
{
    static const struct {
        unsigned devices, n;
        double half, least;
    } rows[] = {{4, 16, 101, 107},
                {8, 16, 113, 123},
                {8, 32, 209, 219},
                {8, 64, 401, 411},
                {16, 64, 425, 443}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uniform u = {"wave", rows[i].devices, rows[i].n, 2, 2, 2, 0, 0, 0, 0,
                     NULL};
        check_ms(u, "v-half", 0, rows[i].half);
        check_ms(u, "v-min", 0, rows[i].least);
    }
}

/* --- greedy --------------------------------------------------------------- */

static void greedy_matches_zb_h1(void)
{
    uniform u = {"ud", 4, 12, 8, 8, 8, 0, 0, 0, 4, NULL};
    check_ms(u, "greedy", 1, 312);
    u = (uniform){"ud", 8, 16, 8, 8, 8, 0, 0, 0, 8, NULL};
    check_ms(u, "greedy", 1, 440);
    for (unsigned devices = 1; devices <= 9; devices++)
        for (unsigned n = 2 * devices; n <= 4 * devices; n += devices) {
            u = sized(u, devices, n);
            u.memory = devices;
            result h1 = run(u, "zb-h1", 0);
            check_ms(u, "greedy", 1, h1.ms);
            clear(&h1);
        }
}

static void greedy_as_in_the_paper(void)
{
    uniform u = {"ud", 8, 16, 38, 48, 20, 0, 0, 0, 8, NULL};
    check_ms(u, "zb-h1", 0, 2158);
    check_ms(u, "greedy", 8, 2219);
    check_ms(u, "greedy", 1, 2238);
}

static void greedy_cuts_w(void)
{
    uniform u = {"ud", 1, 1, 1, 1, 1, 0, 0, 0, 0, NULL};
    result r = run(u, "greedy", 3);
    CHECK_STR(r.csv, "0F0,0I0,0W0:0/3,0W0:1/3,0W0:2/3\n");
    clear(&r);
}

/* A device's chunks share its memory: the minimum for one microbatch must
 * suffice, regardless of the first chunk's possible use. */
static void greedy_shares_memory(void)
{
    static const char *const placements[] = {"wave", "loop"};
    for (unsigned i = 0; i < 2; i++)
        for (unsigned memory = 2; memory <= 9; memory++)
            for (unsigned n = 1; n <= 9; n++) {
                uniform u = {placements[i], 4,   n, 4, 6, 3, 2, 5, 2,
                             memory,        NULL};
                result r = run(u, "greedy", 1 + n % 3);
                CHECK(r.peak <= memory);
                clear(&r);
            }
    check_refused((uniform){"wave", 4, 5, 4, 6, 3, 2, 5, 2, 1, NULL}, "greedy",
                  LH_EINFEASIBLE, "device 0 needs memory 2, its limit is 1");
}

/* Passes that never free all their memory: only a limited number fits. */
static void memory_that_is_never_freed(void)
{
    lh_chunk chunks[2] = {{.device = 0, .f_ns = 1, .d_ns = 1, .mem_f = 1},
                          {.device = 1, .f_ns = 1, .d_ns = 1, .mem_f = 1}};
    int64_t limits[2] = {9, 3};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 2,
                             .n_microbatches = 3,
                             .n_chunks = 2,
                             .chunks = chunks,
                             .memory_limits = limits};
    for (desc.n_microbatches = 3; desc.n_microbatches <= 4;
         desc.n_microbatches++) {
        lh_pipeline *p = NULL;
        lh_error err = {0};
        CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
        result r = run_on(p, NULL, "greedy", LH_RECEIVES_EARLY, NULL);
        CHECK_INT(r.status, desc.n_microbatches == 3 ? LH_OK : LH_EINFEASIBLE);
        if (r.status != LH_OK)
            CHECK_HAS(r.err.text, "device 1 needs memory 4, its limit is 3");
        clear(&r);
        lh_pipeline_free(p);
    }
}

/* Many chunks on a device cost no more than their passes. */
static void greedy_with_many_chunks(void)
{
    enum { N = 20000 };
    lh_chunk *chunks = calloc(N, sizeof *chunks);
    for (uint32_t c = 0; chunks && c < N; c++)
        chunks[c] = (lh_chunk){.device = c % 2,
                               .f_ns = 2,
                               .d_ns = 1,
                               .w_ns = 1,
                               .mem_f = 1,
                               .mem_w = -1};
    int64_t limits[2] = {N, N};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 2,
                             .n_microbatches = 8,
                             .n_chunks = N,
                             .chunks = chunks,
                             .memory_limits = limits};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    result r = run_on(p, NULL, "greedy", LH_RECEIVES_EARLY, NULL);
    CHECK_MSG(r.status == LH_OK, "%s", r.err.text);
    CHECK(r.valid);
    clear(&r);
    lh_pipeline_free(p);
    free(chunks);
}

static void greedy_with_joint_backward(void)
{
    uniform u = {"ud", 2, 2, 1, 1, 1, 0, 0, 0, 0, "backward: joint\n"};
    check_csv(u, "greedy", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    u = (uniform){"wave", 3, 7, 4, 6, 3, 3, 1, 2, 3, "backward: joint\n"};
    result r = run(u, "greedy", 4);
    CHECK(r.csv && !strpbrk(r.csv, "IW"));
    clear(&r);
}

/* --- rejected ------------------------------------------------------------- */

static void placement_that_does_not_suit(void)
{
    uniform loop = {"loop", 2, 4, 2, 2, 2, 0, 0, 0, 0, NULL};
    check_refused(loop, "1f1b", LH_EUNSUPPORTED, "1f1b: needs placement ud");
    check_refused(loop, "zb-h1", LH_EUNSUPPORTED, "that of this pipeline is");
    check_refused(loop, "zb-h2", LH_EUNSUPPORTED, "placement ud");
    check_refused(loop, "zb-v", LH_EUNSUPPORTED, "placement wave");
    check_refused(loop, "slack", LH_EUNSUPPORTED, "placement ud");
    check_refused(ud, "interleaved-1f1b", LH_EUNSUPPORTED, "placement loop");
}

static void joint_backward_that_does_not_suit(void)
{
    uniform u = ud;
    u.more = "backward: joint\n";
    check_refused(u, "zb-h1", LH_EUNSUPPORTED, "backward: split");
    check_refused(u, "zb-h2", LH_EUNSUPPORTED, "backward: split");
    check_refused(u, "slack", LH_EUNSUPPORTED, "backward: split");
    u.placement = "wave";
    check_refused(u, "zb-v", LH_EUNSUPPORTED, "backward: split");
}

static void memory_that_does_not_do(void)
{
    uniform u = ud;
    u.memory = 2;
    check_refused(u, "zb-h1", LH_EINFEASIBLE,
                  "zb-h1: device 0 needs memory 3, its limit is 2");
    check_refused(u, "gpipe", LH_EINFEASIBLE, "device 0 needs memory 4");
    check_refused(u, "1f1b", LH_EINFEASIBLE, "device 0 needs memory 3");
    u.microbatches = 100; /* decided after as many as devices */
    check_refused(u, "1f1b", LH_EINFEASIBLE, "1f1b: device 0 needs memory 3");
    u.memory = 3;
    result enough = run(u, "1f1b", 1);
    CHECK(enough.peak == 3);
    clear(&enough);
    u.placement = "wave";
    u.memory = 5;
    u.microbatches = 9;
    check_refused(u, "zb-v", LH_EINFEASIBLE, "needs memory 6, its limit is 5");
    result r = run(u, "auto", 1);
    CHECK(r.peak <= 5);
    clear(&r);
}

static void names(void)
{
    lh_pipeline *p = uniform_make(ud);
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_INT(lh_method_run("zb-h3", p, NULL, &s, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "unknown method 'zb-h3'; known: gpipe, 1f1b, ");
    CHECK_HAS(err.text, "zb-h1, zb-h2");
    CHECK(s == NULL);
    for (uint32_t i = 0; i < lh_n_methods(); i++) {
        CHECK(lh_method_name(i) != NULL);
        CHECK(lhi_method_about(i) != NULL);
    }
    CHECK(lh_method_name(lh_n_methods()) == NULL);
    lh_method_options options = {.size = sizeof options, .sub_blocks = 4097};
    CHECK_INT(lh_method_run("greedy", p, &options, &s, NULL, &err), LH_EINVAL);
    options = (lh_method_options){0};
    CHECK_INT(lh_method_run("greedy", p, &options, &s, NULL, &err), LH_EINVAL);
    lh_pipeline_free(p);
}

/* --- auto ----------------------------------------------------------------- */

static void auto_takes_the_best(void)
{
    static const uniform cases[] = {
        {"ud", 4, 8, 2, 3, 1, 2, 5, 1, 4, NULL},
        {"ud", 4, 8, 2, 3, 1, 2, 0, 0, 0, NULL},
        {"wave", 4, 8, 2, 2, 2, 0, 0, 0, 8, NULL},
        {"loop", 4, 8, 2, 2, 2, 0, 0, 0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        result best = run(cases[i], "auto", 2);
        bool named = false;
        lh_pipeline *p = uniform_make(cases[i]);
        lh_method_options options = {.size = sizeof options, .sub_blocks = 2};
        for (uint32_t k = 0; k < lh_n_methods(); k++) {
            result r =
                run_on(p, NULL, lh_method_name(k), LH_RECEIVES_EARLY, &options);
            CHECK(r.status != LH_OK || r.ms >= best.ms);
            if (strcmp(best.chosen, lh_method_name(k)) == 0) {
                named = true;
                CHECK_STR(r.csv, best.csv);
            }
            clear(&r);
        }
        CHECK(named && strcmp(best.chosen, "auto") != 0);
        clear(&best);
        lh_pipeline_free(p);
    }
}

static void auto_says_why_nothing_fits(void)
{
    uniform u = ud;
    u.more = "memory_limit: 0\n";
    check_refused(
        u, "auto", LH_EINFEASIBLE,
        "auto: no method is feasible; look-ahead: device 0 needs memory 1");
}

int main(void)
{
    RUN(orders_of_gpipe_and_1f1b);
    RUN(gpipe_runs_on_any_placement);
    RUN(orders_of_zero_bubble);
    RUN(zero_bubble_peaks);
    RUN(interleaved_as_megatron);
    RUN(zb_v_orders);
    RUN(zb_v_makespans);
    RUN(v_memory_orders);
    RUN(v_memory_makespans);
    RUN(greedy_matches_zb_h1);
    RUN(greedy_as_in_the_paper);
    RUN(greedy_cuts_w);
    RUN(greedy_shares_memory);
    RUN(memory_that_is_never_freed);
    RUN(greedy_with_many_chunks);
    RUN(greedy_with_joint_backward);
    RUN(placement_that_does_not_suit);
    RUN(joint_backward_that_does_not_suit);
    RUN(memory_that_does_not_do);
    RUN(names);
    RUN(auto_takes_the_best);
    RUN(auto_says_why_nothing_fits);
    return test_summary();
}
