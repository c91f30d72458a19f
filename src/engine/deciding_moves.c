/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/deciding_moves.h"

#include "base/fail.h"
#include "base/text.h"
#include "course/course.h"
#include "pipe/schedule_own.h"
#include "places/places_own.h"

#include <stdlib.h>
#include <string.h>

/* State of the migration decider. */
struct lhi_move_mind {
    const lhi_job *job;
    lhi_moves_tried tried;
    uint32_t spot; /* counts migrations */
    /* Current hosts and layer counts; NULL: as at the start. */
    uint32_t *hosts, *numbers;
    uint32_t *vias; /* relays in the open exchange, per place */
    /* Current schedule. */
    lh_schedule *schedule; /* NULL: the initial schedule */
    char name[LHI_SWITCH_NAME];
    lh_data_path path;
    bool *links; /* mixed path: per link; else NULL */
    /* The open proposal, if any. */
    lhi_moves_found open;
};

bool lhi_job_moves(const lhi_job *job)
{
    const lh_train_adapt *a = &job->adapt;
    return job->o.adapt && (a->moves_hosts || a->moves_layers);
}

lh_status lhi_job_check_moves(const lhi_job *job, lh_error *err)
{
    const lh_train_adapt *a = &job->adapt;
    const bool hosts = job->o.course && job->o.course->places;
    if (!job->o.adapt)
        return LH_OK;
    if (a->moves_hosts && !hosts)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: hosts exchange their places where "
                        "events are of some");
    if (a->moves_hosts && job->seating.n_places == 0)
        return lhi_seating_fail_places(&job->seating, err);
    if (a->moves_layers && !job->seating.layers)
        return lhi_seating_fail_layers(&job->seating, err);
    if (a->layer_ns < 0)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: a layer takes less than no time");
    return LH_OK;
}

lh_status lhi_move_mind_make(const lhi_job *job, lhi_move_mind **out,
                             lh_error *err)
{
    lhi_move_mind *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
    m->job = job;
    m->path = job->exec->options.path;
    lhi_text_copy(m->name, sizeof m->name, lh_adapt_candidate(0));
    m->vias = calloc(job->seating.n_places + (size_t)1, sizeof *m->vias);
    if (!m->vias) {
        free(m);
        return lhi_fail_nomem(err);
    }
    *out = m;
    return LH_OK;
}

static void close_open(lhi_move_mind *m)
{
    lh_exchange_free(m->open.exchange);
    lh_layer_move_free(m->open.layers);
    m->open = (lhi_moves_found){0};
}

void lhi_move_mind_free(lhi_move_mind *m)
{
    if (!m)
        return;
    close_open(m);
    lh_schedule_free(m->schedule);
    free(m->links);
    free(m->hosts);
    free(m->numbers);
    free(m->vias);
    free(m);
}

lh_status lhi_move_mind_share(const lhi_move_mind *m, const lh_pipeline *first,
                              lh_pipeline **out, lh_error *err)
{
    *out = NULL;
    if (!m->numbers)
        return LH_OK;
    return lh_layers_pipeline(m->job->seating.layers, first, m->numbers, out,
                              err);
}

static const lh_schedule *running(const lhi_move_mind *m)
{
    return m->schedule ? m->schedule : m->job->exec->schedule;
}

/* Fills the decision from the open proposal. */
static void give(lhi_move_mind *m, lhi_moved_decision *out)
{
    const lh_exchange *x = m->open.exchange;
    const lh_layer_move *l = m->open.layers;
    for (uint32_t i = 0; x && i < x->n_hosts; i++)
        m->vias[i] = LH_NONE;
    for (uint32_t i = 0; x && i < x->n_moves; i++)
        m->vias[x->moves[i].place] = x->moves[i].via;
    *out = (lhi_moved_decision){
        .given = {.size = sizeof out->given,
                  .schedule = running(m),
                  .name = m->name,
                  .why = x ? x->why : l->why,
                  .own_path = true,
                  .path = m->path,
                  .delegated = m->links,
                  .predicted_ns = x ? x->predicted_ns : l->predicted_ns,
                  .layers = l ? l->numbers : NULL,
                  .hosts = x ? x->hosts : NULL,
                  .vias = x ? m->vias : NULL,
                  .move_ns = x ? x->move_ns : l->move_ns},
        .now_ns = x ? x->now_ns : l->now_ns};
}

/* Makes a placement with measured pass durations if the run computes on the cpu
 * device. *out NULL: the event timeline's placement applies. */
static lh_status pace(const lhi_move_mind *m, const lh_pipeline *measured,
                      lh_places **out, lh_error *err)
{
    *out = NULL;
    if (!m->job->model || !m->job->adapt.moves_hosts)
        return LH_OK;
    return lhi_places_paced(m->job->o.course->places, measured, out, err);
}

lh_status lhi_move_mind_find(lhi_move_mind *m, const lhi_moves_seen *seen,
                             lhi_moved_decision *out, bool *moves,
                             lh_error *err)
{
    const lh_train_adapt *a = &m->job->adapt;
    const lh_course *course = m->job->o.course;
    const lh_sim_options sim =
        lhi_exec_sim_on(m->job->exec, m->path, m->links);
    lh_places *paced;
    *moves = false;
    LHI_TRY(pace(m, seen->estimated, &paced, err));
    const lhi_moves_now now = {
        .course = a->moves_hosts ? course : NULL,
        .places = paced,
        .state = course ? lh_course_state(course, seen->step) : 0,
        .layers = a->moves_layers ? m->job->seating.layers : NULL,
        .layer_ns = a->layer_ns,
        .hosts = m->hosts,
        .numbers = m->numbers,
        .spot = m->spot,
        .monitor = seen->monitor,
        .n_notices = seen->n_notices,
        .estimated = seen->estimated,
        .schedule = running(m),
        .sim = &sim,
        .decision = seen->decision};
    lh_status status = lhi_moves_find(&m->tried, &now, &m->open, err);
    lh_places_free(paced);
    LHI_TRY(status);
    *moves = m->open.exchange || m->open.layers;
    if (*moves)
        give(m, out);
    return LH_OK;
}

static lh_status take_numbers(const uint32_t *from, uint32_t n, uint32_t **to,
                              lh_error *err)
{
    uint32_t *copy = calloc((size_t)n + 1, sizeof *copy);
    if (!copy)
        return lhi_fail_nomem(err);
    memcpy(copy, from, n * sizeof *copy);
    free(*to);
    *to = copy;
    return LH_OK;
}

lh_status lhi_move_mind_answer(lhi_move_mind *m, bool followed, bool *layers,
                               lh_error *err)
{
    lh_status status = LH_OK;
    *layers = followed && m->open.layers;
    if (followed && m->open.exchange)
        status = take_numbers(m->open.exchange->hosts,
                              m->open.exchange->n_hosts, &m->hosts, err);
    else if (followed)
        status = take_numbers(m->open.layers->numbers,
                              m->open.layers->n_chunks, &m->numbers, err);
    m->spot += followed;
    close_open(m);
    return status;
}

lh_status lhi_move_mind_follow(lhi_move_mind *m, const lh_reschedule *what,
                               lh_error *err)
{
    size_t n = m->job->pipeline->n_links;
    lh_schedule *schedule;
    bool *links = NULL;
    LHI_TRY(lhi_schedule_copy(what->schedule, &schedule, err));
    if (what->delegated && !(links = calloc(n + 1, sizeof *links))) {
        lh_schedule_free(schedule);
        return lhi_fail_nomem(err);
    }
    if (links)
        memcpy(links, what->delegated, n * sizeof *links);
    lh_schedule_free(m->schedule);
    free(m->links);
    m->schedule = schedule;
    m->links = links;
    m->path = what->path;
    lhi_text_copy(m->name, sizeof m->name, what->name);
    return LH_OK;
}
