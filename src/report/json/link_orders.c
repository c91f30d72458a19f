/* SPDX-License-Identifier: Apache-2.0 */
/* Determines whether a schedule's message order on links improves on FIFO.
 */
#include "base/fail.h"
#include "base/options.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/schedule.h>

/* Simulates a schedule and returns its makespan in ns. */
static lh_status find_makespan(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_sim_options *options, int64_t *ns,
                               lh_error *err)
{
    lh_timeline *timeline = NULL;
    LHI_TRY(lh_simulate(pipeline, schedule, options, &timeline, err));
    *ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    return LH_OK;
}

lh_status lh_schedule_drop_useless_link_orders(const lh_pipeline *pipeline,
                                               const lh_schedule *schedule,
                                               const lh_sim_options *options,
                                               lh_schedule **plain,
                                               int64_t *fifo_ns, lh_error *err)
{
    lh_sim_options sim;
    int64_t ordered = 0, fifo = 0;
    lh_schedule *without = NULL;
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &sim, options, err));
    const bool wanted = !sim.fifo;
    if (lh_schedule_n_link_orders(schedule) > 0) {
        if (wanted) {
            LHI_TRY(find_makespan(pipeline, schedule, &sim, &ordered, err));
            sim.fifo = true;
            LHI_TRY(find_makespan(pipeline, schedule, &sim, &fifo, err));
        }
        if (ordered >= fifo)
            LHI_TRY(lh_schedule_copy(schedule, false, &without, err));
    }
    *plain = without;
    *fifo_ns = ordered < fifo ? fifo : 0;
    return LH_OK;
}
