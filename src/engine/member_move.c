/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a rank to another rank assignment, or gives its chunks other layers:
 * between two steps, after all ranks agreed, together with the proposed
 * schedule. */
#include "engine/member.h"

#include "base/realtime.h"
#include "course/course.h"
#include "engine/sharded.h"

const lhi_seats *lhi_member_seats(const lhi_member *w)
{
    return w->shift && w->shift->proposed ? w->shift->proposed->seats : NULL;
}

static const uint32_t *layers_of(const lhi_member *w, const lhi_seat *seat)
{
    const lhi_job *job = seat ? &seat->job : w->job;
    return job->model ? job->model->first_layers : NULL;
}

/* Migrates the training state; collective. */
static lh_status exchange(lhi_member *w, lhi_seat *next, uint64_t *bytes,
                          lh_error *err)
{
    const lhi_exchange_options o = {.job = w->job,
                                    .net = w->net,
                                    .before = lhi_member_seats(w),
                                    .then = &next->seats,
                                    .layers_before = layers_of(w, w->seat),
                                    .layers_then = layers_of(w, next),
                                    .turn = w->turn};
    LHI_TRY(lhi_training_gather(w->training, w->turn, err));
    LHI_TRY(lhi_exchange_state(&o, lhi_training_train(w->training),
                               lhi_training_train(next->training), &w->moving,
                               err));
    lhi_training_take_over(next->training, w->training);
    *bytes = w->me == 0 ? lhi_exchange_bytes(&o) : 0;
    return LH_OK;
}

/* Waits as long as emulated host links would take under this step's conditions.
 */
static lh_status await_links(lhi_member *w, const lhi_seats *then,
                             uint64_t step, int64_t begin_ns, lh_error *err)
{
    const lh_course *course = w->job->o.course;
    const lhi_seats *before = lhi_member_seats(w);
    int64_t ns;
    if (!course || !course->places || !then->hosts)
        return LH_OK;
    LHI_TRY(lhi_course_moving(course, lh_course_state(course, step),
                              before ? before->hosts : NULL, then->hosts,
                              then->vias, &ns, err));
    return lhi_sleep_emulated(w->net, w->stop, begin_ns + ns, err);
}

/* Frees the rank's previous device and training. */
static void leave_seat(lhi_member *w, lhi_seat *next)
{
    if (w->seat) {
        lhi_seat_free(w->seat);
    } else {
        lhi_training_free(w->training);
        w->device->ops->close(w->device);
    }
    w->seat = next;
    w->training = next->training;
    w->device = next->device;
}

/* Emulates a migration on a timed device, which has no state, by its duration.
 */
static lh_status play(lhi_member *w, lh_error *err)
{
    int64_t until =
        lhi_now_ns() + lhi_rescheduler_next(w->rescheduler)->proposed->seats
                           ->move_ns;
    return lhi_sleep_emulated(w->net, w->stop, until, err);
}

lh_status lhi_member_move(lhi_member *w, uint64_t step, lhi_moving *out,
                          lh_error *err)
{
    int64_t begin_ns = lhi_now_ns();
    lhi_seat *next = lhi_rescheduler_seat(w->rescheduler);
    *out = (lhi_moving){0};
    if (next) {
        lhi_member_note_held(w, lhi_rescheduler_next(w->rescheduler), next);
        LHI_TRY(exchange(w, next, &out->bytes, err));
        LHI_TRY(await_links(w, &next->seats, step, begin_ns, err));
    } else {
        LHI_TRY(play(w, err));
    }
    out->ns = lhi_now_ns() - begin_ns;
    return LH_OK;
}

void lhi_member_moved(lhi_member *w, lhi_seat *next)
{
    if (next) {
        leave_seat(w, next);
        w->place = lhi_seats_place(lhi_member_seats(w), w->me);
    }
    w->state = LH_NONE; /* conditions are applied before the next step */
}
