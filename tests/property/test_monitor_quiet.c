/* SPDX-License-Identifier: Apache-2.0 */
/* Ten thousand iterations with 5 % noise and no other change: the monitor must
 * report no event.
 *
 *     test_monitor_quiet [ITERATIONS [SEED]]
 *
 * Other kinds of noise run for a fifth as many iterations. */
#include "cases.h"
#include "noisy_run.h"
#include "resilience/monitor/monitor.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>

static uint32_t n_cases = 10000, first_case = 1;

static void check_quiet(noisy_run *n, uint32_t steps, const uint32_t *clocks)
{
    lh_monitor *m = NULL;
    lh_error err = {0};
    uint32_t told = 0;
    lh_monitor_options o = {.size = sizeof o, .clocks = clocks};
    CHECK_OK(lh_monitor_make(n->p, n->s, &o, &m, &err), err);
    for (uint64_t step = 0; m && step < steps; step++) {
        noisy_iterate(n, step);
        CHECK_OK(lh_monitor_add(m, &n->seen, &err), err);
        uint32_t news;
        const lh_monitor_event *e = lhi_monitor_events(m, &news);
        if (news > 0)
            fprintf(stderr, "step %" PRIu64 ": %s %u %s, %g to %g\n", step,
                    lh_monitor_target_name(e->target), e->index,
                    lh_monitor_change_name(e->change), e->baseline_ns,
                    e->current_ns);
        told += news;
    }
    CHECK_INT(told, 0);
    lh_monitor_free(m);
}

static void quiet(uint32_t steps, const char *method, uniform u, bool together,
                  bool late, bool clocks)
{
    lh_pipeline *p = uniform_make(u);
    lh_schedule *s = NULL;
    lh_error err = {0};
    uint32_t hosts[64];
    double offsets[64], drifts[64];
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    noisy_run n = noisy_make(p, s, 0.05, first_case);
    n.together = together;
    n.late = late;
    for (uint32_t d = 0; d < u.devices; d++) {
        hosts[d] = d / 2;
        offsets[d] = 1e9 * (d / 2);
        drifts[d] = 1e5 * (d / 2 % 2); /* 100 us per step */
    }
    if (clocks) {
        n.clock = offsets;
        n.drift = drifts;
    }
    check_quiet(&n, steps, clocks ? hosts : NULL);
    noisy_free(&n);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static const uniform eight = {.placement = "ud",
                              .devices = 8,
                              .microbatches = 16,
                              .f = 9,
                              .d = 9,
                              .w = 9,
                              .datacenters = 8,
                              .latency = 30,
                              .transfer = 2};

static void each_message_for_itself(void)
{
    quiet(n_cases, "1f1b", eight, false, false, false);
}

static void all_of_an_iteration_alike(void)
{
    quiet(n_cases / 5, "zb-h2", eight, true, false, false);
}

static void with_late_receives_and_queues(void)
{
    uniform u = eight;
    u.transfer = 12;
    quiet(n_cases / 5, "zb-h1", u, false, true, false);
}

static void with_clocks_that_drift(void)
{
    quiet(n_cases / 5, "1f1b", eight, false, false, true);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(each_message_for_itself);
    RUN(all_of_an_iteration_alike);
    RUN(with_late_receives_and_queues);
    RUN(with_clocks_that_drift);
    return test_summary();
}
