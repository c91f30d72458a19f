/* SPDX-License-Identifier: Apache-2.0 */
/* Reproduces Adaptra's figure 21 with a run that detects slow links and adapts
 * online. */
#include "adaptra.h"

#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/methods.h>

enum { STEPS = 1200 };

/* A run's initial configuration and the adaptations allowed. */
typedef struct scenario {
    const char *title;
    bool direct, may_delegate;
    double staging_ms; /* copy at either end of a delegated message */
    bool quick;
} scenario;

static lh_emulation *run_scenario(const scenario *s,
                                  const lh_event_timeline *timeline,
                                  const lh_pipeline *p)
{
    const paper_run *direct = &adaptra_runs[ADAPTRA_ZB];
    lh_sim_options sim = {.size = sizeof sim};
    lh_delegation delegation = {.size = sizeof delegation,
                                .staging_ns = (int64_t)(s->staging_ms * 1e6)};
    lh_adapt_options adapt = {.size = sizeof adapt,
                              .sim = &sim,
                              .delegation =
                                  s->may_delegate ? &delegation : NULL};
    lh_adapt_emulate_options o = {.size = sizeof o, .adapt = &adapt};
    lh_schedule *schedule = NULL;
    lh_emulation *played = NULL;
    lh_error err = {0};

    if (s->direct) {
        sim.receives = direct->receives;
        sim.coupled_queue = direct->send_queue;
    }
    paper_check_status(lh_method_run("zb-h2", p, NULL, &schedule, NULL, &err),
                       &err);
    paper_check_status(
        lh_adapt_emulate(timeline, schedule, &o, STEPS, &played, &err), &err);
    lh_schedule_free(schedule);
    return played;
}

static void print_scenario(FILE *to, const scenario *s,
                           const lh_event_timeline *timeline,
                           const lh_pipeline *p)
{
    lh_emulation *played = run_scenario(s, timeline, p);
    uint32_t n_switches = 0;
    uint64_t n_steps = 0, delegated = 0;
    int64_t ns = 0;
    const lh_emulated_step *steps = lh_emulation_steps(played, &n_steps);

    lh_emulation_switches(played, &n_switches);
    for (uint64_t i = 0; i < n_steps; i++) {
        ns += steps[i].ns;
        delegated += steps[i].path != LH_DATA_PATH_DIRECT;
    }
    fprintf(to, "| %s | %.2f | %u | %u |\n", s->title, (double)ns / 60e9,
            n_switches, (unsigned)delegated);
    lh_emulation_free(played);
}

void adaptra_adapting(FILE *to, const page_options *how)
{
    static const scenario starts[] = {
        {"passes never wait for a send", false, false, 0, true},
        {"direct path, which it keeps", true, false, 0, false},
        {"direct path, copies of 0 ms", true, true, 0, true},
        {"direct path, copies of 1 ms", true, true, 1, false},
        {"direct path, copies of 5 ms", true, true, 5, false},
        {"direct path, copies of 10 ms", true, true, 10, false},
    };
    lh_pipeline *p = adaptra_stages(how->folder, false);
    lh_events *events = adaptra_events(how->folder);
    lh_event_timeline *timeline = NULL;
    lh_error err = {0};

    paper_check_status(lh_event_timeline_make(p, events, NULL, &timeline, &err),
                       &err);

    fputs("| begins on | minutes | switches | iterations not on the direct "
          "path |\n| --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (!how->quick || starts[i].quick)
            print_scenario(to, &starts[i], timeline, p);
    lh_event_timeline_free(timeline);
    lh_events_free(events);
    lh_pipeline_free(p);
}
