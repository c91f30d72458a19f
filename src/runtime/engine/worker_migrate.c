/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a rank to another rank assignment, or gives its chunks other layers:
 * between two steps, after all ranks agreed, together with the proposed
 * schedule. */
#include "runtime/engine/worker.h"

#include "base/realtime.h"
#include "resilience/event_timeline/timeline.h"
#include "runtime/engine/elastic_sharding.h"

const lhi_rank_assignment *
lhi_run_worker_rank_assignment(const lhi_run_worker *w)
{
    return w->program && w->program->proposed ? w->program->proposed->assignment
                                              : NULL;
}

/* Returns each chunk's first layer after a migration to `target`; NULL target:
 * the current partition. Returns NULL if the run trains no model. */
static const uint32_t *get_first_layers(const lhi_run_worker *w,
                                        const lhi_migration_target *target)
{
    const lhi_job *job = target ? &target->job : w->job;
    return job->model ? job->model->first_layers : NULL;
}

/* Migrates the training state of all ranks to `next`, this rank's target;
 * collective. *bytes: bytes sent over all ranks. */
static lh_status migrate_state(lhi_run_worker *w, lhi_migration_target *next,
                               uint64_t *bytes, lh_error *err)
{
    const lhi_state_migration_options o = {
        .job = w->job,
        .net = w->net,
        .old_assignment = lhi_run_worker_rank_assignment(w),
        .new_assignment = &next->assignment,
        .old_first_layers = get_first_layers(w, w->target),
        .new_first_layers = get_first_layers(w, next),
        .turn = w->turn};
    LHI_TRY(lhi_state_migration_run(&o, lhi_training_state(w->training),
                                    lhi_training_state(next->training),
                                    &w->migration, err));
    lhi_training_take_over(next->training, w->training);
    *bytes = w->me == 0 ? lhi_state_migration_count_bytes(&o) : 0;
    return LH_OK;
}

/* Sleeps until a migration to assignment `then`, begun at begin_ns, would be
 * complete over the emulated links between hosts in this step's conditions. */
static lh_status await_links(lhi_run_worker *w, const lhi_rank_assignment *then,
                             uint64_t step, int64_t begin_ns, lh_error *err)
{
    const lh_event_timeline *timeline = w->job->o.event_timeline;
    const lhi_rank_assignment *before = lhi_run_worker_rank_assignment(w);
    int64_t ns;
    if (!timeline || !timeline->placement || !then->ranks)
        return LH_OK;
    LHI_TRY(lhi_event_timeline_migration(
        timeline, lh_event_timeline_state(timeline, step),
        before ? before->ranks : NULL, then->ranks, then->relays, &ns, err));
    return lhi_sleep_emulated(w->net, w->stop, begin_ns + ns, err);
}

/* Frees the rank's previous device and training and continues with those of
 * the migration target `next`. */
static void replace_state(lhi_run_worker *w, lhi_migration_target *next)
{
    if (w->target) {
        lhi_migration_target_free(w->target);
    } else {
        lhi_training_free(w->training);
        w->device->ops->close(w->device);
    }
    w->target = next;
    w->training = next->training;
    w->device = next->device;
}

/* Sleeps for the accepted migration's duration on a timed device, which has no
 * state to send. */
static lh_status emulate_migration(lhi_run_worker *w, lh_error *err)
{
    int64_t until = lhi_now_ns() + lhi_rescheduler_next_program(w->rescheduler)
                                       ->proposed->assignment->move_ns;
    return lhi_sleep_emulated(w->net, w->stop, until, err);
}

lh_status lhi_run_worker_migrate(lhi_run_worker *w, uint64_t step,
                                 lhi_migration_stats *out, lh_error *err)
{
    lhi_migration_target *next =
        lhi_rescheduler_migration_target(w->rescheduler);
    *out = (lhi_migration_stats){0};
    /* The next iteration needs these weights in any case: not counted here. */
    if (next)
        LHI_TRY(lhi_training_gather_values(w->training, w->turn, err));
    int64_t begin_ns = lhi_now_ns();
    if (next) {
        lhi_run_worker_record_memory(
            w, lhi_rescheduler_next_program(w->rescheduler), next);
        LHI_TRY(migrate_state(w, next, &out->bytes, err));
        LHI_TRY(await_links(w, &next->assignment, step, begin_ns, err));
    } else {
        LHI_TRY(emulate_migration(w, err));
    }
    out->ns = lhi_now_ns() - begin_ns;
    return LH_OK;
}

void lhi_run_worker_finish_migration(lhi_run_worker *w,
                                     lhi_migration_target *next)
{
    if (next) {
        replace_state(w, next);
        w->place = lhi_rank_assignment_find_place(
            lhi_run_worker_rank_assignment(w), w->me);
    }
    w->state = LH_NONE; /* conditions are applied before the next step */
}

lh_status lhi_run_worker_report_migration(const lhi_run_worker *w,
                                          const lhi_switch *row, lh_error *err)
{
    lhi_rank_assignment assignment;
    LHI_TRY(lhi_rank_assignment_parse(row->assignment, row->n_assignment,
                                      &w->job->assignment_limits, &assignment,
                                      err));
    const lh_migration what = lhi_moved_to_public(row, &assignment);
    w->job->o.migrated(w->job->o.context, &what);
    lhi_rank_assignment_fini(&assignment);
    return LH_OK;
}
