/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/deciding.h"

#include "engine/deciding_moves.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "base/take_options.h"
#include "base/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of the latest proposal. */
typedef enum answer {
    QUIET,    /* no open proposal */
    DECIDED,  /* decided, not yet proposed to the ranks */
    PROPOSED, /* proposed to the ranks */
    FOLLOWED, /* in effect from step `from` on */
    REFUSED
} answer;

/* State of the decider. */
struct lhi_deciding {
    const lhi_job *job;
    lh_monitor *monitor; /* NULL: no iteration observed yet */
    lh_adapt *adapt;
    lhi_move_mind *moves; /* NULL: migration is disabled */
    bool has_switched; /* the initial plan was replaced */
    bool is_move;      /* latest decision is a migration */
    uint32_t n_noticed;
    int64_t thought_ns;
    char last[LHI_TOLD_TEXT]; /* reason in the latest reported decision */
    /* Protected by `lock`. `proposal` and the data behind it belong to the
     * decision until its verdict is recorded. */
    pthread_mutex_t lock;
    answer answer;
    uint64_t from;
    lh_reschedule given;
    lhi_told *told;
    uint32_t n_told;
    char remark[400]; /* "": none */
    bool has_remarked;
};

/* --- construction --- */

lh_status lhi_job_adapt(const lhi_job *job, lh_adapt **out, lh_error *err)
{
    lh_adapt_options o;
    const lh_sim_options sim = lhi_exec_sim(job->exec);
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_options, &o, job->adapt.decides, err));
    if (job->exec->options.path != LH_DATA_PATH_DIRECT)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: a run that adapts chooses the path of "
                        "its messages; it has to begin on the direct one");
    o.sim = &sim;
    return lh_adapt_make(job->pipeline, job->exec->schedule, &o, out, err);
}

lh_status lhi_deciding_make(const lhi_job *job, lhi_deciding **out,
                            lh_error *err)
{
    lhi_deciding *d = calloc(1, sizeof *d);
    if (!d)
        return lhi_fail_nomem(err);
    d->job = job;
    pthread_mutex_init(&d->lock, NULL);
    lh_status status = lhi_job_adapt(job, &d->adapt, err);
    if (status == LH_OK && lhi_job_moves(job))
        status = lhi_move_mind_make(job, &d->moves, err);
    if (status != LH_OK) {
        lhi_deciding_free(d);
        return status;
    }
    *out = d;
    return LH_OK;
}

void lhi_deciding_free(lhi_deciding *d)
{
    if (!d)
        return;
    lh_adapt_free(d->adapt);
    lh_monitor_free(d->monitor);
    lhi_move_mind_free(d->moves);
    pthread_mutex_destroy(&d->lock);
    free(d->told);
    free(d);
}

/* --- notices --- */

/* Appends a notice; the array doubles when it is full. */
static lh_status add_told(lhi_deciding *d, const lhi_told *row, lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    lhi_told *more = d->told;
    if ((d->n_told & (d->n_told + 1)) == 0) /* full at 1, 3, 7, ... */
        more = realloc(d->told, (2 * (size_t)d->n_told + 1) * sizeof *d->told);
    if (more) {
        d->told = more;
        d->told[d->n_told++] = *row;
    }
    pthread_mutex_unlock(&d->lock);
    return more ? LH_OK : lhi_fail_nomem(err);
}

/* Formats a duration with a unit. */
static void time_text(double ns, char *text, size_t room)
{
    if (ns >= 1e9)
        snprintf(text, room, "%.3g s", ns / 1e9);
    else if (ns >= 1e6)
        snprintf(text, room, "%.3g ms", ns / 1e6);
    else
        snprintf(text, room, "%.3g us", ns / 1e3);
}

/* Names the monitored link, device or communication in a notice. */
static void thing_text(const lhi_deciding *d, const lh_monitor_event *e,
                       char *text, size_t room)
{
    const lh_pipeline *p = d->job->pipeline;
    const lh_link *link =
        e->what == LH_MONITOR_LINK ? &p->links[e->index] : NULL;
    if (link)
        snprintf(text, room, "a message from device %" PRIu32 " to %" PRIu32,
                 link->from, link->to);
    else
        snprintf(text, room, "%s of device %" PRIu32,
                 e->what == LH_MONITOR_DEVICE ? "the passes"
                                              : "the communication",
                 e->index);
}

/* Returns the part of a notice that names a remedy this run has not enabled; ""
 * if none. */
static const char *undone_text(const lhi_deciding *d, const lh_monitor_event *e)
{
    const lh_train_adapt *may = &d->job->adapt;
    if (e->cost_ns <= 0)
        return "";
    if (e->what == LH_MONITOR_DATA && !may->moves_hosts)
        return ", of which hosts in other places could save up to all; none "
               "moves without --moving";
    if (e->what == LH_MONITOR_DEVICE && !may->moves_layers)
        return ", of which layers on other devices could save a part; none "
               "moves without --moving";
    return "";
}

/* Adds the notice for a monitor event. */
static lh_status tell_event(lhi_deciding *d, uint64_t step,
                            const lh_monitor_event *e, lh_error *err)
{
    lhi_told row = {{.step = step, .event = *e}, "", ""};
    char thing[80], before[24], now[24], cost[24];
    thing_text(d, e, thing, sizeof thing);
    time_text(e->before_ns, before, sizeof before);
    time_text(e->now_ns, now, sizeof now);
    time_text((double)e->cost_ns, cost, sizeof cost);
    if (e->change == LH_MONITOR_ENDS)
        snprintf(row.text, sizeof row.text,
                 "from iteration %" PRIu64 " on %s takes %s, as before",
                 e->from, thing, now);
    else
        snprintf(row.text, sizeof row.text,
                 "from iteration %" PRIu64 " on %s takes %s in place of %s; an "
                 "iteration takes %s more because of it%s",
                 e->from, thing, now, before, e->cost_ns > 0 ? cost : "nothing",
                 undone_text(d, e));
    d->n_noticed++;
    return add_told(d, &row, err);
}

/* Recorded once, so that a long run does not repeat it every iteration. */
static void note_failure(lhi_deciding *d, const lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    if (!d->has_remarked)
        snprintf(d->remark, sizeof d->remark,
                 "the run goes on and adapts to nothing that it cannot see: "
                 "%.300s",
                 err->text);
    d->has_remarked = true;
    pthread_mutex_unlock(&d->lock);
}

/* --- decisions --- */

/* Adds the notice for a decision unless it repeats the previous reason. */
static lh_status tell_decision(lhi_deciding *d, uint64_t step,
                               const lh_decision *what, bool news,
                               lh_error *err)
{
    lhi_told row = {{.step = step,
                     .is_decision = true,
                     .is_switch = what->is_switch,
                     .path = what->path,
                     .now_ns = what->now_ns,
                     .predicted_ns = what->predicted_ns,
                     .bound_ns = what->bound_ns},
                    "",
                    ""};
    lhi_text_copy(row.name, sizeof row.name, what->name);
    lhi_text_copy(row.text, sizeof row.text, what->why);
    if (!what->is_switch && (!news || strcmp(row.text, d->last) == 0))
        return LH_OK;
    memcpy(d->last, row.text, sizeof d->last);
    return add_told(d, &row, err);
}

/* Stores the decision for rank 0 to propose. */
static void propose(lhi_deciding *d, const lh_reschedule *given, bool is_move)
{
    pthread_mutex_lock(&d->lock);
    d->given = *given;
    d->is_move = is_move;
    d->answer = DECIDED;
    pthread_mutex_unlock(&d->lock);
}

/* Checks whether a migration is better than the decision; if so, proposes it.
 */
static lh_status move_parts(lhi_deciding *d, uint64_t step,
                            const lh_pipeline *estimated,
                            const lh_decision *what, bool *moves, lh_error *err)
{
    const lhi_moves_seen seen = {.step = step,
                                 .monitor = d->monitor,
                                 .n_notices = d->n_noticed,
                                 .estimated = estimated,
                                 .decision = what};
    lhi_moved_decision move;
    lh_decision told = *what;
    *moves = false;
    if (!d->moves)
        return LH_OK;
    LHI_TRY(lhi_move_mind_find(d->moves, &seen, &move, moves, err));
    if (!*moves)
        return LH_OK;
    if (what->is_switch)
        LHI_TRY(lh_adapt_answer(d->adapt, step + 1, false, err));
    told.is_switch = true;
    told.name = move.given.name;
    told.path = move.given.path;
    told.now_ns = move.now_ns;
    told.predicted_ns = move.given.predicted_ns;
    told.why = move.given.why;
    LHI_TRY(tell_decision(d, step, &told, true, err));
    propose(d, &move.given, true);
    return LH_OK;
}

/* Proposes a migration if it is better, else the adaptation's decision. */
static lh_status act(lhi_deciding *d, uint64_t step, bool news,
                     const lh_pipeline *estimated, const lh_decision *what,
                     lh_error *err)
{
    bool moves;
    LHI_TRY(move_parts(d, step, estimated, what, &moves, err));
    if (moves)
        return LH_OK;
    LHI_TRY(tell_decision(d, step, what, news, err));
    const lh_reschedule given = {.size = sizeof given,
                                 .schedule = what->schedule,
                                 .name = what->name,
                                 .why = what->why,
                                 .own_path = true,
                                 .path = what->path,
                                 .delegated = what->delegated,
                                 .predicted_ns = what->predicted_ns};
    if (what->is_switch)
        propose(d, &given, false);
    return LH_OK;
}

/* Runs the adaptation on the monitor's current estimate. */
static lh_status decide(lhi_deciding *d, uint64_t step, bool news,
                        lh_error *err)
{
    lh_pipeline *estimated = NULL, *shared = NULL;
    const lh_decision *what;
    LHI_TRY(lh_monitor_pipeline(d->monitor, &estimated, err));
    lh_status status =
        d->moves ? lhi_move_mind_share(d->moves, estimated, &shared, err)
                 : LH_OK;
    lh_adapt_now with = {.size = sizeof with,
                         .pipeline = shared ? shared : estimated,
                         .step = step,
                         .steps_left = d->job->o.steps - step - 1};
    with.events = lh_monitor_going_on(d->monitor, &with.n_events);
    const int64_t before_ns = lhi_thread_ns();
    if (status == LH_OK)
        status = lh_adapt_decide(d->adapt, &with, &what, err);
    if (status == LH_OK)
        status = act(d, step, news, estimated, what, err);
    d->thought_ns += lhi_thread_ns() - before_ns;
    lh_pipeline_free(shared);
    lh_pipeline_free(estimated);
    return status;
}

/* Processes the verdict on the last proposal once iteration `step` runs under
 * it. */
static lh_status hear_answer(lhi_deciding *d, uint64_t step, lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    const answer was = d->answer;
    const uint64_t from = d->from;
    const lh_reschedule given = d->given;
    const bool knows = was == REFUSED || (was == FOLLOWED && step >= from);
    if (knows)
        d->answer = QUIET;
    pthread_mutex_unlock(&d->lock);
    if (!knows)
        return LH_OK;
    if (d->is_move) { /* the monitor detects host changes itself */
        bool layers;
        d->has_switched = d->has_switched || was == FOLLOWED;
        LHI_TRY(
            lhi_move_mind_answer(d->moves, was == FOLLOWED, &layers, err));
        if (layers)
            lhi_adapt_renew(d->adapt);
        return LH_OK;
    }
    if (was == FOLLOWED) { /* the adaptation owns `proposal` until answered */
        const lh_sim_options how =
            lhi_exec_sim_on(d->job->exec, given.path, given.delegated);
        d->has_switched = true;
        LHI_TRY(lh_monitor_follow_on(d->monitor, given.schedule, &how, err));
        if (d->moves)
            LHI_TRY(lhi_move_mind_follow(d->moves, &given, err));
    }
    return lh_adapt_answer(d->adapt, from, was == FOLLOWED, err);
}

static bool is_quiet(lhi_deciding *d)
{
    pthread_mutex_lock(&d->lock);
    const bool quiet = d->answer == QUIET;
    pthread_mutex_unlock(&d->lock);
    return quiet;
}

static lh_status add_step(lhi_deciding *d, const lh_seen *seen, lh_error *err)
{
    uint32_t n_news, n_open;
    LHI_TRY(hear_answer(d, seen->step, err));
    LHI_TRY(lh_monitor_add(d->monitor, seen, err));
    const lh_monitor_event *news = lh_monitor_events(d->monitor, &n_news);
    for (uint32_t i = 0; i < n_news; i++)
        LHI_TRY(tell_event(d, seen->step, &news[i], err));
    lh_monitor_going_on(d->monitor, &n_open);
    /* Otherwise the run follows its initial plan, which was chosen for these
     * conditions. */
    if ((n_news || n_open || d->has_switched) && is_quiet(d))
        return decide(d, seen->step, n_news > 0, err);
    return LH_OK;
}

lh_status lhi_deciding_add(lhi_deciding *d, const lh_seen *seen,
                           const uint32_t *clocks, lh_error *err)
{
    lh_error why = {0};
    lh_status status = LH_OK;
    if (!d->monitor) {
        const lh_sim_options sim = lhi_exec_sim(d->job->exec);
        const lh_monitor_options o = {
            .size = sizeof o, .clocks = clocks, .sim = &sim};
        status = lh_monitor_make(d->job->pipeline, d->job->exec->schedule, &o,
                                 &d->monitor, &why);
    }
    if (status == LH_OK)
        status = add_step(d, seen, &why);
    if (status == LH_ENOMEM)
        return lhi_fail_nomem(err);
    if (status != LH_OK)
        note_failure(d, &why);
    return LH_OK;
}

int64_t lhi_deciding_thought_ns(const lhi_deciding *d)
{
    return d->thought_ns;
}

/* --- called by the rank's thread --- */

const lh_reschedule *lhi_deciding_next(lhi_deciding *d)
{
    pthread_mutex_lock(&d->lock);
    const bool is_new = d->answer == DECIDED;
    if (is_new)
        d->answer = PROPOSED;
    pthread_mutex_unlock(&d->lock);
    return is_new ? &d->given : NULL;
}

void lhi_deciding_answer(lhi_deciding *d, uint64_t step, bool followed)
{
    pthread_mutex_lock(&d->lock);
    d->answer = followed ? FOLLOWED : REFUSED;
    d->from = step;
    pthread_mutex_unlock(&d->lock);
}

bool lhi_deciding_told(lhi_deciding *d, uint32_t i, lhi_told *out)
{
    pthread_mutex_lock(&d->lock);
    const bool is_there = i < d->n_told;
    if (is_there)
        *out = d->told[i];
    pthread_mutex_unlock(&d->lock);
    return is_there;
}

bool lhi_deciding_remark(lhi_deciding *d, char *text, size_t room)
{
    pthread_mutex_lock(&d->lock);
    const bool is_there = d->remark[0] != 0;
    if (is_there)
        lhi_text_copy(text, room, d->remark);
    d->remark[0] = 0;
    pthread_mutex_unlock(&d->lock);
    return is_there;
}
