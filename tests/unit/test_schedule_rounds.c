/* SPDX-License-Identifier: Apache-2.0 */
/* Orders in rounds of several microbatches and zero bubble on folded chunks
 * (ScaleAcross Explorer, 2026), compared with orders by hand and makespans from
 * a second implementation. */
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/solve.h>

/* Each chunk takes 1 ms for each of F, D, W; every message between devices
 * arrives `latency` ms later. */
static lh_pipeline *unit_times(const char *placement, unsigned devices,
                               unsigned n, double latency)
{
    return uniform_make((uniform){.placement = placement,
                                  .devices = devices,
                                  .microbatches = n,
                                  .f = 2,
                                  .d = 2,
                                  .w = 2,
                                  .datacenters = devices,
                                  .latency = latency});
}

static lh_schedule *make(const char *method, const lh_pipeline *p,
                         uint32_t group, bool ignore_network)
{
    lh_method_options o = {.size = sizeof o,
                           .round_size = group,
                           .ignore_network = ignore_network};
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run(method, p, &o, &s, NULL, &err), err);
    return s;
}

static void check_row(const char *method, const char *placement,
                      bool ignore_network, uint32_t row, const char *want)
{
    lh_pipeline *p = unit_times(placement, 2, 4, 0);
    lh_schedule *s = make(method, p, 2, ignore_network);
    char got[1024] = "";
    uint32_t count = 0;
    const lh_pass *order = s ? lh_schedule_order(s, row, &count) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        char cell[LH_PASS_TEXT_SIZE];
        strcat(strcat(got, i ? "," : ""), lh_pass_format(&order[i], cell));
    }
    CHECK_STR(got, want);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void orders_by_hand(void)
{
    check_row("flexible", "loop", false, 0,
              "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,"
              "0B3");
    check_row("dorapp", "loop", false, 1,
              "1F0,1F1,3F0,3I0,3W0,3F1,3I1,3W1,1F2,1I0,1W0,1F3,1I1,1W1,3F2,"
              "3I2,3W2,3F3,3I3,3W3,1I2,1I3,1W2,1W3");
    check_row("zbv-phases", "wave", false, 0,
              "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,"
              "0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3");
    check_row("interleaved-zbv", "wave", true, 1,
              "1F0,2F0,1F1,2F1,2I0,1I0,2I1,2W0,1I1,1W0,1F2,2F2,1F3,2F3,2I2,"
              "2W1,1I2,1W1,2I3,2W2,1I3,1W2,2W3,1W3");
}

/* Expected times and peaks of one case. */
typedef struct timed_row {
    const char *method, *placement;
    uint32_t group;
    bool ignore_network;
    double ms[4];     /* for latency 0, 0.5, 1, 2 ms; 0: unknown */
    int64_t peaks[4]; /* per device; 0: unknown */
} timed_row;

static void check_timed(const timed_row *row, uint32_t i)
{
    static const double latencies[] = {0, 0.5, 1, 2};
    lh_pipeline *p = unit_times(row->placement, 4, 8, latencies[i]);
    lh_schedule *s = make(row->method, p, row->group, row->ignore_network);
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    if (t) {
        double ms = (double)lh_timeline_makespan(t) / 1e6;
        CHECK_MSG(ms == row->ms[i], "%s, latency %g: %g ms, not %g",
                  row->method, latencies[i], ms, row->ms[i]);
        for (uint32_t d = 0; d < 4 && row->peaks[d]; d++)
            CHECK_INT(lh_timeline_peak_memory(t, d), row->peaks[d]);
    }
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void makespans_under_latency(void)
{
    static const timed_row rows[] = {
        {"flexible", "loop", 4, false, {57, 64, 71, 92}, {11, 9, 7, 5}},
        {"dorapp", "loop", 4, false, {54, 59, 64, 78}, {0}},
        {"dorapp", "loop", 8, false, {54, 57, 60, 70}, {15, 13, 11, 9}},
        {"zbv-phases", "wave", 0, false, {51, 57.5, 65, 83}, {8, 8, 8, 8}},
        {"interleaved-zbv", "wave", 0, true, {51, 60, 70, 96}, {0}},
        {"interleaved-zbv", "wave", 0, false, {51, 0, 67, 66}, {0}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (uint32_t i = 0; i < 4; i++)
            if (rows[r].ms[i] > 0)
                check_timed(&rows[r], i);
}

/* Rounds of P are interleaved 1F1B. */
static void rounds_of_p(void)
{
    lh_pipeline *p = unit_times("loop", 4, 8, 0);
    lh_schedule *a = make("flexible", p, 0, false);
    lh_schedule *b = make("interleaved-1f1b", p, 0, false);
    char *x = NULL, *y = NULL;
    lh_error err = {0};
    CHECK_OK(lh_schedule_format(a, &x, NULL, &err), err);
    CHECK_OK(lh_schedule_format(b, &y, NULL, &err), err);
    if (x && y)
        CHECK_STR(x, y);
    lh_text_free(x);
    lh_text_free(y);
    lh_schedule_free(a);
    lh_schedule_free(b);
    lh_pipeline_free(p);
}

static void check_valid(const char *method, const char *placement,
                        unsigned devices, unsigned legs, unsigned n,
                        uint32_t group, double latency)
{
    char text[512];
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_verdict *v = NULL;
    int len = snprintf(text, sizeof text,
                       "longhaul: pipeline/1\ntime_unit: ms\n"
                       "microbatches: %u\ndevices: %u\n"
                       "uniform: {placement: %s, chunks_per_device: %u, "
                       "F: 3, D: 4, W: 2, memory: {F: 1, W: -1}}\n"
                       "datacenters: {count: %u, latency: %g, transfer: 1}\n",
                       n, devices, placement, legs, devices, latency);
    CHECK_OK(lh_pipeline_parse(text, (size_t)len, "test", &p, &err), err);
    lh_method_options o = {.size = sizeof o, .round_size = group};
    lh_schedule *s = NULL;
    lh_status status = lh_method_run(method, p, &o, &s, NULL, &err);
    if (status == LH_EUNSUPPORTED && group && n > group &&
        (group < devices || (n % group && n % group < devices))) {
        CHECK_HAS(err.text, "block each other");
        lh_pipeline_free(p);
        return;
    }
    CHECK_OK(status, err);
    if (status == LH_OK)
        CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_MSG(v && lh_verdict_valid(v),
              "%s: %u devices, %u chunks each, %u microbatches, rounds of %u",
              method, devices, legs, n, group);
    lh_verdict_free(v);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Two all-gathers with 3 each at the start, two reduce-scatters with 5 each as
 * a rank's chunks end: the last pass ends at 30, the last reduce-scatter at 36.
 */
static void with_data_parallel(void)
{
    lh_pipeline *p = uniform_make((uniform){
        .placement = "loop",
        .devices = 2,
        .microbatches = 4,
        .f = 2,
        .d = 2,
        .w = 2,
        .more = "data_parallel:\n"
                "  prefetch: 1\n"
                "  chunks:\n"
                "  - {chunk: 0, all_gather: 3, reduce_scatter: 5}\n"
                "  - {chunk: 1, all_gather: 3, reduce_scatter: 5}\n"
                "  - {chunk: 2, all_gather: 3, reduce_scatter: 5}\n"
                "  - {chunk: 3, all_gather: 3, reduce_scatter: 5}\n"});
    lh_schedule *s = make("dorapp", p, 2, false);
    lh_timeline *t = NULL;
    lh_error err = {0};
    int64_t last = 0;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    for (uint32_t d = 0; t && d < 2; d++) {
        uint32_t n = 0;
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &n);
        last = runs[n - 1].end_ns > last ? runs[n - 1].end_ns : last;
    }
    CHECK_INT(last, 30000000);
    if (t)
        CHECK_INT(lh_timeline_makespan(t), 36000000);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* For any size, no deadlock and every pass once, or an error if a round is too
 * short. */
static void every_size(void)
{
    for (unsigned devices = 1; devices <= 5; devices++)
        for (unsigned n = 1; n <= 11; n += 2) {
            for (uint32_t group = 1; group <= 8; group++)
                for (unsigned legs = 2; legs <= 4; legs++) {
                    check_valid("flexible", "loop", devices, legs, n, group, 5);
                    check_valid("dorapp", "loop", devices, legs, n, group, 5);
                }
            check_valid("flexible", "ud", devices, 1, n, 0, 5);
            check_valid("dorapp", "ud", devices, 1, n, 0, 5);
            check_valid("zbv-phases", "wave", devices, 2, n, 0, 5);
            for (unsigned legs = 2; legs <= 6; legs += 2)
                for (int latency = 0; latency <= 40; latency += 20)
                    check_valid("interleaved-zbv", "wave", devices, legs, n, 0,
                                latency);
        }
}

/* With memory for one forward more than on the next device, the optimum has
 * rounds of half as many microbatches as devices, and a short warm-up. */
static void optimal_with_short_warmup(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\n"
        "microbatches: 12\ndevices: 6\nmemory_limit: [9, 8, 7, 6, 5, 4]\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 20, D: 20,\n"
        "          W: 20, memory: {F: 1, W: -1}}\n";
    const lh_solve_options o = {.size = sizeof o, .effort = 50000};
    lh_pipeline *p = NULL;
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(s.makespan_ns, 850 * INT64_C(1000000));
    CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(orders_by_hand);
    RUN(makespans_under_latency);
    RUN(rounds_of_p);
    RUN(with_data_parallel);
    RUN(every_size);
    RUN(optimal_with_short_warmup);
    return test_summary();
}
