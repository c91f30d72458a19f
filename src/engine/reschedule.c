/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/reschedule.h"

#include "base/input.h"
#include "base/realtime.h"
#include "base/text.h"
#include "course/course.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_NS = 20000000 }; /* poll interval for the stop request */

/* Proposal messages with another rank. */
typedef struct exchange {
    lhi_net_op head, text, vote;
    unsigned char bytes[LHI_VOTE_BYTES]; /* encoded vote */
} exchange;

/* State of a proposal. */
typedef enum phase {
    IDLE,
    OPEN, /* the thread works on it */
    VOTED
} phase;

/* State of the rescheduler. */
struct lhi_rescheduler {
    const lhi_job *job;
    lhi_rank_options rank, next_rank; /* current; after the proposal */
    uint32_t me, n;
    exchange *others;     /* rank 0: per rank; else one */
    double most_bytes;    /* cpu: peak activations so far, in bytes */
    uint64_t round;       /* counts proposals */
    lhi_switch *switches; /* rank 0; the open proposal's is last */
    uint32_t n_closed;
    pthread_t thread;
    bool has_thread;
    /* Protected by `lock`. While `phase` is OPEN, the members after it belong
     * to the thread. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    lhi_shift *retired;
    phase phase;
    uint64_t step;
    const lh_schedule *schedule;
    char *paths; /* path text, n_paths bytes */
    uint32_t n_paths;
    char *seats; /* rank 0: rank assignment as a text */
    const lhi_proposed *proposed; /* current plan; NULL: the initial one */
    lhi_seat *next_seat; /* NULL: this rank keeps its device */
    unsigned char head[LHI_PROPOSAL_BYTES];
    char *text;
    double bytes;
    lhi_shift *next; /* NULL: this rank refuses */
    lhi_vote vote;
    lh_status status; /* transport status for the run */
    lh_error err;
};

/* --- all ranks --- */

/* Checks the additional memory that the plan needs beyond the previous peak.
 * Rank 0 checks for all ranks on one machine. */
static lh_status check_memory(lhi_rescheduler *r, const lhi_job *job,
                              const lh_exec *exec, lh_error *err)
{
    bool all = !job->launched;
    uint32_t place = r->next_rank.base + r->next_rank.stage;
    if (!job->model || (all && r->me > 0))
        return LH_OK;
    LHI_TRY(lhi_job_keeps_limits(job, exec, err));
    LHI_TRY(lhi_job_activations(job, exec, place, all, &r->bytes, err));
    if (r->bytes <= r->most_bytes)
        return LH_OK;
    return lhi_job_fits_more(r->bytes - r->most_bytes, "activations at a time",
                             err);
}

static const lhi_seats *seats_of(const lhi_proposed *proposed)
{
    return proposed ? proposed->seats : NULL;
}

/* Checks whether the event timeline's hosts may have these places. */
static lh_status check_places(const lhi_job *job, const lhi_seats *seats,
                              lh_error *err)
{
    lh_pipeline *p;
    if (!job->o.course || !job->o.course->places || !seats->hosts)
        return LH_OK;
    LHI_TRY(lh_course_pipeline_in(job->o.course, 0, seats->hosts, &p, err));
    lh_pipeline_free(p);
    return LH_OK;
}

/* Sets up this rank's options under the proposal. A changed rank assignment
 * requires a new device and training. */
static lh_status take_seat(lhi_rescheduler *r, const lhi_proposed *proposed,
                           lh_error *err)
{
    const lhi_seats *seats = proposed->seats;
    lhi_rank_options *with = &r->next_rank;
    LHI_TRY(check_places(r->job, seats, err));
    *with = r->rank;
    with->exec = proposed->exec;
    with->pipeline = proposed->pipeline;
    if (!r->job->model) /* emulated work stays with the timed rank */
        return LH_OK;
    with->seats = seats;
    if (lhi_seats_alike(seats, seats_of(r->proposed)))
        return LH_OK;
    LHI_TRY(lhi_seat_make(r->job, with->net, proposed->exec, seats, with->stop,
                          &r->next_seat, err));
    const lhi_seat *seat = r->next_seat;
    with->stage = seat->place % proposed->exec->n_ranks;
    with->base = seat->place - with->stage;
    with->device = seat->device;
    with->hooks = lhi_training_hooks(seat->training);
    return LH_OK;
}

/* Lowers the proposal and makes the rank program for it. */
static lh_status make_shift(lhi_rescheduler *r, const lhi_proposal *p,
                            lh_error *err)
{
    const lhi_proposed *proposed;
    LHI_TRY(lhi_proposed_take(r->job->proposals, r->text, &p->texts, &proposed,
                              err));
    lh_status status = take_seat(r, proposed, err);
    if (status == LH_OK)
        status = check_memory(r, r->next_seat ? &r->next_seat->job : r->job,
                              proposed->exec, err);
    if (status == LH_OK)
        status = lhi_shift_make(&r->next_rank, &r->next, err);
    if (status == LH_OK) {
        r->next->proposed = proposed;
        return LH_OK;
    }
    lhi_seat_free(r->next_seat);
    r->next_seat = NULL;
    lhi_proposed_release(proposed);
    return status;
}

/* Evaluates the proposal and fills in this rank's vote. */
static void judge(lhi_rescheduler *r, const lhi_proposal *p, lh_status status,
                  lh_error *why)
{
    if (status == LH_OK)
        status = make_shift(r, p, why);
    r->vote = (lhi_vote){.refuses = status != LH_OK, .step = r->step};
    if (status != LH_OK)
        lhi_text_copy(r->vote.why, sizeof r->vote.why, why->text);
}

static uint64_t proposal_tag(const lhi_rescheduler *r, uint32_t number)
{
    return lhi_tag(LHI_TAG_SCHEDULE, r->round, number);
}

static lh_status send_bytes(lhi_rescheduler *r, uint32_t to, uint64_t tag,
                            const void *bytes, size_t size, lhi_net_op *op,
                            lh_error *err)
{
    *op = (lhi_net_op){0};
    return lhi_net_send(r->rank.net, to, tag, bytes, size, LHI_NET_NO_LINK,
                        lhi_now_ns(), LHI_NET_NO_TURN, op, err);
}

static lh_status receive_bytes(lhi_rescheduler *r, uint32_t from, uint64_t tag,
                               void *bytes, size_t size, lhi_net_op *op,
                               lh_error *err)
{
    *op = (lhi_net_op){0};
    return lhi_net_receive(r->rank.net, from, tag, bytes, size, op, err);
}

/* --- rank 0 --- */

/* Formats the proposal as texts, *out; texts above the size limit are rejected.
 */
static lh_status format(const lhi_rescheduler *r, lhi_proposal *p, char **out,
                        lh_error *err)
{
    const lh_schedule *schedule = r->schedule;
    char *rows = NULL, *links = NULL, *both = NULL;
    size_t n_rows = 0, n_links = 0;
    size_t n_seats = r->seats ? strlen(r->seats) : 0;
    size_t most = lhi_input_bytes(LHI_INPUT_SCHEDULE);
    lh_status status = lh_schedule_format(schedule, &rows, &n_rows, err);
    if (status == LH_OK)
        status = lh_schedule_format_links(schedule, &links, &n_links, err);
    if (!links)
        n_links = 0;
    if (status == LH_OK && (n_rows > most || n_links > most))
        status =
            lhi_fail_large("the proposed schedule", most, "a schedule", err);
    if (status == LH_OK && n_seats > LHI_SEATS_MOST)
        status = lhi_fail_large("the proposed seats", LHI_SEATS_MOST,
                                "seats of a run", err);
    if (status == LH_OK &&
        !(both = malloc(n_rows + n_links + r->n_paths + n_seats + 1)))
        status = lhi_fail_nomem(err);
    if (status == LH_OK) {
        memcpy(both, rows, n_rows);
        if (links)
            memcpy(both + n_rows, links, n_links);
        if (r->n_paths)
            memcpy(both + n_rows + n_links, r->paths, r->n_paths);
        if (n_seats)
            memcpy(both + n_rows + n_links + r->n_paths, r->seats, n_seats);
        p->texts = (lhi_texts){(uint32_t)n_rows, (uint32_t)n_links, r->n_paths,
                               (uint32_t)n_seats};
        *out = both;
    }
    lh_text_free(rows);
    lh_text_free(links);
    return status;
}

/* Receives a vote; the first refusal becomes the result. */
static lh_status hear_vote(lhi_rescheduler *r, uint32_t from, lh_error *err)
{
    lhi_vote vote;
    lhi_vote *mine = &r->vote;
    exchange *x = &r->others[from];
    LHI_TRY(lhi_net_wait(r->rank.net, &x->vote, 0, err));
    lh_status status = lhi_vote_read(x->bytes, sizeof x->bytes, &vote, err);
    if (status == LH_OK && vote.step != r->step)
        status =
            lhi_fail(err, LH_EIO, "a vote on step %" PRIu64 ", not %" PRIu64,
                     vote.step, r->step);
    if (status != LH_OK) {
        lhi_wrap(err, "rank %" PRIu32 " sends", from);
        lhi_net_abort(r->rank.net, err->text);
        return status;
    }
    if (vote.refuses && !mine->refuses) {
        char said[sizeof vote.why + 24];
        snprintf(said, sizeof said, "rank %" PRIu32 ": %s", from, vote.why);
        mine->refuses = true;
        lhi_text_copy(mine->why, sizeof mine->why, said);
    }
    return LH_OK;
}

/* Rank 0's part: sends the proposal and collects the votes. */
static lh_status lead_proposal(lhi_rescheduler *r, lh_error *err)
{
    lhi_proposal p = {.step = r->step};
    lh_error why = {0};
    lh_status formatted = format(r, &p, &r->text, &why);
    lhi_proposal_write(&p, r->head);
    for (uint32_t to = 1; to < r->n; to++) {
        exchange *x = &r->others[to];
        LHI_TRY(receive_bytes(r, to, lhi_tag(LHI_TAG_VOTE, r->round, 0),
                              x->bytes, sizeof x->bytes, &x->vote, err));
        LHI_TRY(send_bytes(r, to, proposal_tag(r, 0), r->head, sizeof r->head,
                           &x->head, err));
        if (p.texts.n_rows)
            LHI_TRY(send_bytes(r, to, proposal_tag(r, 1), r->text,
                               lhi_texts_size(&p.texts), &x->text, err));
    }
    judge(r, &p, formatted, &why);
    for (uint32_t to = 1; to < r->n; to++) {
        exchange *x = &r->others[to];
        LHI_TRY(lhi_net_wait(r->rank.net, &x->head, 0, err));
        if (p.texts.n_rows)
            LHI_TRY(lhi_net_wait(r->rank.net, &x->text, 0, err));
        LHI_TRY(hear_vote(r, to, err));
    }
    return LH_OK;
}

/* --- other ranks --- */

static lh_status hear_head(lhi_rescheduler *r, lhi_proposal *out, lh_error *err)
{
    exchange *x = r->others;
    LHI_TRY(receive_bytes(r, 0, proposal_tag(r, 0), r->head, sizeof r->head,
                          &x->head, err));
    LHI_TRY(lhi_net_wait(r->rank.net, &x->head, 0, err));
    lh_status status = lhi_proposal_read(r->head, sizeof r->head, out, err);
    if (status == LH_OK && out->step != r->step)
        status = lhi_fail(err, LH_EIO,
                          "a schedule for step %" PRIu64 ", not %" PRIu64,
                          out->step, r->step);
    if (status == LH_OK)
        return LH_OK;
    lhi_wrap(err, "rank 0 sends");
    lhi_net_abort(r->rank.net, err->text);
    return status;
}

static lh_status hear_text(lhi_rescheduler *r, const lhi_proposal *p,
                           lh_error *err)
{
    exchange *x = r->others;
    size_t size = lhi_texts_size(&p->texts);
    r->text = malloc(size + 1);
    if (!r->text) { /* rank 0 waits until it is received */
        lhi_fail_nomem(err);
        lhi_net_abort(r->rank.net, err->text);
        return LH_ENOMEM;
    }
    LHI_TRY(
        receive_bytes(r, 0, proposal_tag(r, 1), r->text, size, &x->text, err));
    return lhi_net_wait(r->rank.net, &x->text, 0, err);
}

/* The other ranks' part: receives the proposal and votes. */
static lh_status follow_proposal(lhi_rescheduler *r, lh_error *err)
{
    lhi_proposal p;
    lh_error why = {0};
    exchange *x = r->others;
    LHI_TRY(hear_head(r, &p, err));
    if (p.texts.n_rows)
        LHI_TRY(hear_text(r, &p, err));
    lh_status there =
        p.texts.n_rows
            ? LH_OK
            : lhi_fail(&why, LH_EIO, "rank 0 could not send the schedule");
    judge(r, &p, there, &why);
    lhi_vote_write(&r->vote, x->bytes);
    LHI_TRY(send_bytes(r, 0, lhi_tag(LHI_TAG_VOTE, r->round, 0), x->bytes,
                       sizeof x->bytes, &x->vote, err));
    return lhi_net_wait(r->rank.net, &x->vote, 0, err);
}

/* --- thread --- */

static void *thread_main(void *of)
{
    lhi_rescheduler *r = of;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        lhi_shift *retired = r->retired;
        r->retired = NULL;
        bool open = r->phase == OPEN;
        if (r->stop && !retired)
            break;
        if (!retired && !open) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        lhi_shift_free(retired);
        lh_error err = {0};
        lh_status status = LH_OK;
        if (open)
            status =
                r->me == 0 ? lead_proposal(r, &err) : follow_proposal(r, &err);
        pthread_mutex_lock(&r->lock);
        if (!open)
            continue;
        r->status = status;
        r->err = err;
        r->phase = VOTED;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static lh_status start_thread(lhi_rescheduler *r, lh_error *err)
{
    LHI_TRY(lhi_thread_ordinary(&r->thread, thread_main, r, err));
    r->has_thread = true;
    return LH_OK;
}

/* --- construction --- */

static lh_status set_up(lhi_rescheduler *r, lh_error *err)
{
    bool all = !r->job->launched;
    r->others = calloc(r->me == 0 ? r->n : 1, sizeof *r->others);
    r->paths = malloc(r->job->pipeline->n_links + (size_t)LHI_PATHS_ROOM);
    if (!r->others || !r->paths)
        return lhi_fail_nomem(err);
    if (r->job->model && (r->me == 0 || !all))
        LHI_TRY(lhi_job_activations(r->job, r->rank.exec, r->me, all,
                                    &r->most_bytes, err));
    return start_thread(r, err);
}

lh_status lhi_rescheduler_make(const lhi_job *job, const lhi_rank_options *rank,
                               lhi_rescheduler **out, lh_error *err)
{
    pthread_condattr_t clock;
    lhi_rescheduler *r = calloc(1, sizeof *r);
    if (!r)
        return lhi_fail_nomem(err);
    r->job = job;
    r->rank = *rank;
    r->me = lhi_net_rank(rank->net);
    r->n = lhi_net_n_ranks(rank->net);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &clock);
    pthread_condattr_destroy(&clock);
    lh_status status = set_up(r, err);
    if (status != LH_OK) {
        lhi_rescheduler_free(r);
        return status;
    }
    *out = r;
    return LH_OK;
}

void lhi_rescheduler_stop(lhi_rescheduler *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread)
        pthread_join(r->thread, NULL);
    r->has_thread = false;
    lhi_seat_stop(r->next_seat);
}

static void free_switches(lhi_rescheduler *r)
{
    for (uint32_t i = 0; i < r->n_closed; i++)
        free(r->switches[i].seats);
    free(r->switches);
}

void lhi_rescheduler_free(lhi_rescheduler *r)
{
    if (!r)
        return;
    lhi_rescheduler_stop(r);
    lhi_shift_free(r->retired);
    lhi_shift_free(r->next);
    lhi_seat_free(r->next_seat);
    lhi_proposed_release(r->proposed);
    free(r->seats);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->text);
    free(r->paths);
    free(r->others);
    free_switches(r);
    free(r);
}

/* --- called by the rank --- */

static lh_status add_switch(lhi_rescheduler *r, uint64_t step,
                            const lh_reschedule *what, lh_error *err)
{
    lhi_switch *more =
        realloc(r->switches, (r->n_closed + 1u) * sizeof *r->switches);
    if (!more)
        return lhi_fail_nomem(err);
    r->switches = more;
    lhi_switch *row = &more[r->n_closed];
    *row = (lhi_switch){.step = step,
                        .path = what->own_path ? what->path
                                               : r->job->exec->options.path};
    lhi_text_copy(row->to, sizeof row->to, what->name ? what->name : "");
    lhi_text_copy(row->why, sizeof row->why, what->why ? what->why : "");
    row->expected_ns = what->predicted_ns;
    return LH_OK;
}

/* Formats the proposed rank assignment: as given, else the current one. */
static lh_status set_seats(lhi_rescheduler *r, const lh_reschedule *what,
                           lh_error *err)
{
    static const lhi_seats begun = {0};
    const lhi_seats *now = seats_of(r->proposed);
    lhi_seats then = now ? *now : begun;
    then.n_chunks = r->job->seating.n_chunks;
    then.n_places = r->job->seating.n_places;
    if (then.n_places == 0) /* rejected by all ranks */
        then.n_places = lhi_grid_ranks(&r->job->grid);
    then.move_ns = 0;
    then.vias = what->hosts ? (uint32_t *)(uintptr_t)what->vias : NULL;
    if (what->layers)
        then.layers = (uint32_t *)(uintptr_t)what->layers;
    if (what->hosts)
        then.hosts = (uint32_t *)(uintptr_t)what->hosts;
    if (what->layers || what->hosts)
        then.move_ns = what->move_ns;
    free(r->seats);
    r->seats = NULL;
    return lhi_seats_write(&then, &r->seats, err);
}

lh_status lhi_rescheduler_open(lhi_rescheduler *r, uint64_t step,
                               const lh_reschedule *what, lh_error *err)
{
    if (what) {
        LHI_TRY(add_switch(r, step, what, err));
        LHI_TRY(set_seats(r, what, err));
    }
    pthread_mutex_lock(&r->lock);
    r->n_paths = what && what->own_path
                     ? lhi_paths_write(what->path, what->delegated,
                                       r->job->pipeline->n_links, r->paths)
                     : 0;
    r->phase = OPEN;
    r->step = step;
    r->schedule = what ? what->schedule : NULL;
    r->round++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return LH_OK;
}

bool lhi_rescheduler_is_open(lhi_rescheduler *r)
{
    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    bool open = r->phase != IDLE;
    pthread_mutex_unlock(&r->lock);
    return open;
}

lh_status lhi_rescheduler_await(lhi_rescheduler *r, bool *agrees, lh_error *err)
{
    bool stopped = false;
    pthread_mutex_lock(&r->lock);
    while (r->phase == OPEN && !stopped) {
        const struct timespec until = lhi_timespec(lhi_now_ns() + LOOK_NS);
        pthread_cond_timedwait(&r->changed, &r->lock, &until);
        pthread_mutex_unlock(&r->lock);
        stopped = lhi_net_stopped(r->rank.stop);
        pthread_mutex_lock(&r->lock);
    }
    lh_status status = r->phase == OPEN ? LH_ECANCELED : r->status;
    if (r->phase == OPEN)
        lhi_fail(err, LH_ECANCELED, "interrupted");
    else if (status != LH_OK && err)
        *err = r->err;
    pthread_mutex_unlock(&r->lock);
    if (status == LH_OK)
        *agrees = !r->vote.refuses;
    return status;
}

const lhi_shift *lhi_rescheduler_next(lhi_rescheduler *r)
{
    pthread_mutex_lock(&r->lock);
    const lhi_shift *next = r->next;
    pthread_mutex_unlock(&r->lock);
    return next;
}

bool lhi_rescheduler_moves(lhi_rescheduler *r)
{
    pthread_mutex_lock(&r->lock);
    bool moves =
        r->next && !lhi_seats_alike(r->next->proposed->seats,
                                    r->proposed ? r->proposed->seats : NULL);
    pthread_mutex_unlock(&r->lock);
    return moves;
}

lhi_seat *lhi_rescheduler_seat(lhi_rescheduler *r)
{
    return r->next_seat;
}

/* Completes rank 0's record of a proposal that was accepted or dropped. */
static void note_end(lhi_rescheduler *r, bool go, const lhi_moving *moved)
{
    lhi_switch *row = &r->switches[r->n_closed++];
    row->is_refused = !go;
    if (r->next)
        row->predicted_ns = lh_exec_predicted_ns(r->next->exec);
    if (!go)
        lhi_text_copy(row->refused, sizeof row->refused, r->vote.why);
    if (!go || !moved)
        return;
    row->seats = r->seats;
    r->seats = NULL;
    row->n_seats = row->seats ? (uint32_t)strlen(row->seats) : 0;
    row->moved_bytes = moved->bytes;
    row->move_ns = moved->ns;
    row->move_expected_ns = r->next->proposed->seats->move_ns;
}

/* Switches to the accepted plan. */
static void go_on(lhi_rescheduler *r, lhi_shift **shift)
{
    r->retired = *shift;
    *shift = r->next;
    r->rank = r->next_rank;
    lhi_proposed_release(r->proposed);
    r->proposed = lhi_proposed_hold(r->next->proposed);
    r->next_seat = NULL; /* the caller owns it */
    if (r->bytes > r->most_bytes)
        r->most_bytes = r->bytes;
}

void lhi_rescheduler_close(lhi_rescheduler *r, bool go, const lhi_moving *moved,
                           lhi_shift **shift)
{
    lhi_seat *unused = NULL;
    pthread_mutex_lock(&r->lock);
    if (r->me == 0 && (go || r->vote.refuses))
        note_end(r, go, moved);
    r->retired = r->next;
    if (go)
        go_on(r, shift);
    else
        unused = r->next_seat;
    r->next = NULL;
    r->next_seat = NULL;
    free(r->text);
    r->text = NULL;
    r->phase = IDLE;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    lhi_seat_free(unused);
}

const lhi_switch *lhi_rescheduler_switches(const lhi_rescheduler *r,
                                           uint32_t *n)
{
    *n = r ? r->n_closed : 0;
    return r ? r->switches : NULL;
}

lh_switch lhi_switch_shown(const lhi_switch *row)
{
    return (lh_switch){.step = row->step,
                       .to = row->to,
                       .why = row->why,
                       .path = row->path,
                       .refused = row->is_refused ? row->refused : NULL,
                       .predicted_ns = row->expected_ns && row->predicted_ns
                                           ? row->expected_ns
                                           : row->predicted_ns};
}

lh_moved lhi_moved_shown(const lhi_switch *row, const lhi_seats *seats)
{
    return (lh_moved){.n_chunks = seats->layers ? seats->n_chunks : 0,
                      .n_places = seats->hosts ? seats->n_places : 0,
                      .layers = seats->layers,
                      .hosts = seats->hosts,
                      .vias = seats->vias,
                      .bytes = row->moved_bytes,
                      .ns = row->move_ns,
                      .predicted_ns = row->move_expected_ns};
}

lh_notice lhi_notice_shown(const lhi_told *row)
{
    lh_notice n = row->notice;
    n.name = row->name;
    n.text = row->text;
    return n;
}
