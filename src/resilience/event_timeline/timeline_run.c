/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates iterations in sequence; each state is simulated once. */
#include "resilience/event_timeline/timeline.h"

#include <inttypes.h>
#include <stdlib.h>

/* Simulates an iteration in state number `state` (an active event set); *ns is
 * its makespan in ns. */
static lh_status simulate_state(const lh_event_timeline *event_timeline,
                                uint32_t state, const lh_schedule *schedule,
                                const lh_sim_options *options, int64_t *ns,
                                lh_error *err)
{
    lh_pipeline *p;
    lh_timeline *timeline;
    LHI_TRY(lh_event_timeline_pipeline(event_timeline, state, &p, err));
    lh_status status = lh_simulate(p, schedule, options, &timeline, err);
    if (status == LH_OK) {
        *ns = lh_timeline_makespan(timeline);
        lh_timeline_free(timeline);
    }
    lh_pipeline_free(p);
    return status;
}

/* Adds a restart's cost to *ns, a state's iteration time: multiplies it by 1 +
 * restart_steps (repeated steps), if a rail fails in the state and the run
 * restarts after failures. */
static lh_status add_restarts(const lh_event_timeline *event_timeline,
                              uint32_t state, int64_t *ns, lh_error *err)
{
    int64_t n = event_timeline->restart_steps;
    if (*ns < 0 || n == 0 ||
        lhi_event_timeline_count_failures(event_timeline, state) == 0)
        return LH_OK;
    if (*ns > INT64_MAX / 2 / (1 + n))
        return lhi_fail(
            err, LH_EINVAL,
            "the time of a restart of %" PRId64 " steps exceeds the limit", n);
    *ns *= 1 + n;
    return LH_OK;
}

lh_status lhi_event_timeline_check_simulated(const lh_event_timeline *timeline,
                                             lh_error *err)
{
    for (uint32_t i = 0; i < timeline->n_effects; i++) {
        const lh_event *e = timeline->effects[i].event;
        if (e->process)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "process: the events kill or stop rank %" PRIu32
                            "'s process at step %" PRId64
                            ", and a simulation has no processes: use 'train', "
                            "or remove the event",
                            e->rank, e->first_step);
    }
    return LH_OK;
}

lh_status lh_event_timeline_simulate(const lh_event_timeline *event_timeline,
                                     const lh_schedule *schedule,
                                     const lh_sim_options *options,
                                     uint64_t n_steps, int64_t *ns,
                                     lh_error *err)
{
    LHI_TRY(lhi_event_timeline_check_simulated(event_timeline, err));
    uint32_t n_states = lh_event_timeline_n_states(event_timeline);
    int64_t *known = malloc(n_states * sizeof *known);
    lh_status status = known ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t s = 0; known && s < n_states; s++)
        known[s] = -1;
    for (uint64_t i = 0; status == LH_OK && i < n_steps; i++) {
        int64_t *of_state = &known[lh_event_timeline_state(event_timeline, i)];
        if (*of_state < 0)
            status = simulate_state(event_timeline,
                                    lh_event_timeline_state(event_timeline, i),
                                    schedule, options, of_state, err);
    }
    for (uint32_t i = 0; status == LH_OK && i < n_states; i++)
        status = add_restarts(event_timeline, i, &known[i], err);
    for (uint64_t i = 0; status == LH_OK && i < n_steps; i++)
        ns[i] = known[lh_event_timeline_state(event_timeline, i)];
    free(known);
    return status;
}
