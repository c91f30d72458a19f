/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's schedule proposals: opens, checks and closes them; on rank 0 asks
 * the decider or the caller for them. */
#include "runtime/engine/worker.h"

#include "base/options.h"

#include <inttypes.h>

lhi_rank_options lhi_run_worker_make_rank_options(const lhi_run_worker *w)
{
    const lhi_rerouting *rerouting = &w->job->rerouting;
    const bool is_rerouted = rerouting->exec != NULL;
    const lhi_grid *grid = &w->job->grid;
    const uint32_t stage =
        is_rerouted ? w->place : lhi_grid_find_coords(grid, w->place).device;
    return (lhi_rank_options){
        .pipeline = is_rerouted ? rerouting->pipeline : w->job->pipeline,
        .exec = is_rerouted ? rerouting->exec : w->job->exec,
        .stage = stage,
        .place = w->place,
        .grid = grid->tensors ? grid : NULL,
        .n_rows = w->job->model ? lhi_job_count_rows(w->job) : 0,
        .rerouted_replicas = is_rerouted ? w->job->grid.replicas : 0,
        .replica = w->job->pipeline,
        .net = w->net,
        .device = w->device,
        .emulates = w->job->emulates,
        .observes = lhi_job_is_adapting(w->job),
        .hooks = w->training ? lhi_training_hooks(w->training) : NULL,
        .stop = w->stop,
    };
}

void lhi_run_worker_close_proposal(lhi_run_worker *w, bool go,
                                   const lhi_migration_stats *moved)
{
    const lhi_rank *rank = w->program->rank;
    const uint64_t turns = rank->turns;
    const lhi_copy_sums copies = rank->copy_sums;
    const uint32_t n_grown = lhi_rank_pool_growth(rank);
    lhi_migration_target *target =
        moved ? lhi_rescheduler_migration_target(w->rescheduler) : NULL;
    if (go)
        lhi_run_worker_record_memory(
            w, lhi_rescheduler_next_program(w->rescheduler), NULL);
    lhi_rescheduler_close(w->rescheduler, go, moved, &w->program);
    if (!go)
        return;
    w->earlier_pool_growth += n_grown;
    w->program->rank->turns = turns;
    w->program->rank->copy_sums = copies;
    if (moved)
        lhi_run_worker_finish_migration(w, target);
    if (w->training)
        lhi_training_set_plan(w->training, w->program->exec);
}

/* Opens a proposal for `step`; makes the rescheduler first if there is none. */
static lh_status open_proposal(lhi_run_worker *w, uint64_t step,
                               const lh_reschedule *what, lh_error *err)
{
    const lhi_rank_options with = lhi_run_worker_make_rank_options(w);
    if (!w->rescheduler)
        LHI_TRY(lhi_rescheduler_make(w->job, &with, &w->rescheduler, err));
    return lhi_rescheduler_open(w->rescheduler, step, what, err);
}

lh_status lhi_run_worker_propose(lhi_run_worker *w, uint64_t step,
                                 lhi_command *command, lh_error *err)
{
    const lh_train_options *o = &w->job->o;
    const lh_reschedule *given = NULL;
    lh_reschedule what;
    if (w->adapting && step < o->steps)
        given = lhi_decider_take_proposal(lhi_adaptation_decider(w->adapting));
    else if (o->reschedule && step < o->steps)
        given = o->reschedule(o->context, step);
    if (!given)
        return LH_OK;
    LHI_TRY(LHI_OPTIONS_COPY(lh_reschedule, &what, given, err));
    if (!what.schedule)
        return lhi_fail(
            err, LH_EINVAL,
            "reschedule announced another schedule from step %" PRIu64
            " on, but returned none",
            step);
    if (what.override_path &&
        (what.path > LH_DATA_PATH_MIXED ||
         (what.path == LH_DATA_PATH_MIXED && !what.delegated)))
        return lhi_fail(err, LH_EINVAL,
                        "reschedule returned path %d from step %" PRIu64
                        " on, which is invalid, or mixed without `delegated`",
                        (int)what.path, step);
    LHI_TRY(open_proposal(w, step, &what, err));
    command->proposes = true;
    return LH_OK;
}

lh_status lhi_run_worker_apply_verdict(lhi_run_worker *w,
                                       const lhi_command *command,
                                       lh_error *err)
{
    bool steps = command->what == LHI_COMMAND_STEP;
    bool ends = command->what == LHI_COMMAND_END;
    bool moves = command->what == LHI_COMMAND_MOVE;
    bool open = lhi_rescheduler_is_open(w->rescheduler);
    bool decides = command->verdict != LHI_VERDICT_NONE;
    bool go = command->verdict == LHI_VERDICT_GO;
    if (decides != (open && (steps || ends || moves)) || (go && ends) ||
        (moves && !go))
        return lhi_fail(
            err, LH_EIO, "rank 0 sent %s, which is not expected now",
            decides ? "a verdict on a schedule" : "no verdict on its schedule");
    if (decides) {
        bool agrees;
        LHI_TRY(lhi_rescheduler_await(w->rescheduler, &agrees, err));
        if (go && !agrees)
            return lhi_fail(
                err, LH_EIO,
                "rank 0 switched to a schedule that this rank has refused");
        if (go && moves != lhi_rescheduler_migrates(w->rescheduler))
            return lhi_fail(err, LH_EIO, "rank 0 %s, unlike its schedule",
                            moves ? "migrates parts of the job"
                                  : "migrates nothing");
        if (!moves) /* else after the migration */
            lhi_run_worker_close_proposal(w, go, NULL);
        open = false;
    }
    if (command->wants_observation &&
        (!steps || !w->program->rank->observation))
        return lhi_fail(
            err, LH_EIO,
            "rank 0 requested an observation, which is not expected now");
    if (!command->proposes)
        return LH_OK;
    if (open || !(steps || command->what == LHI_COMMAND_SCHEDULE))
        return lhi_fail(err, LH_EIO,
                        "rank 0 sent a schedule, which is not expected now");
    return open_proposal(w, command->step + steps, NULL, err);
}
