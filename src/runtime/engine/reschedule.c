/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/engine/reschedule.h"

#include "base/input_limits.h"
#include "base/realtime.h"
#include "base/text.h"
#include "resilience/event_timeline/timeline.h"
#include "schedule/pipeline/file/schedule_csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_NS = 20000000 }; /* poll interval for the stop request */

/* Proposal messages with another rank. */
typedef struct peer_messages {
    lhi_net_op head, text, vote;
    unsigned char bytes[LHI_VOTE_BYTES]; /* encoded vote */
} peer_messages;

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
    peer_messages *others; /* rank 0: per rank; else one */
    double most_bytes;     /* cpu: peak activations so far, in bytes */
    uint64_t round;        /* counts proposals */
    lhi_switch *switches;  /* rank 0; the open proposal's is last */
    uint32_t n_closed;
    pthread_t thread;
    bool has_thread;
    /* Protected by `lock`. While `phase` is OPEN, the members after it belong
     * to the thread. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    lhi_rank_program *retired;
    phase phase;
    uint64_t step;
    const lh_schedule *schedule;
    char *paths; /* path text, n_paths bytes */
    uint32_t n_paths;
    char *assignment_text;             /* rank 0: rank assignment as a text */
    const lhi_proposed_plan *proposed; /* current plan; NULL: the initial one */
    lhi_migration_target *next_target; /* NULL: this rank keeps its device */
    unsigned char head[LHI_PROPOSAL_BYTES];
    char *text;
    double bytes;
    lhi_rank_program *next; /* NULL: this rank refuses */
    lhi_vote vote;
    lh_status status; /* transport status for the run */
    lh_error err;
};

/* --- all ranks --- */

/* Checks that memory is available for the activations that the proposed plan
 * `exec` needs beyond the run's previous peak. On one machine rank 0 checks for
 * all ranks. */
static lh_status check_memory(lhi_rescheduler *r, const lhi_job *job,
                              const lh_exec *exec, lh_error *err)
{
    bool all = !job->launched;
    uint32_t place = r->next_rank.place;
    if (!job->model || (all && r->me > 0))
        return LH_OK;
    LHI_TRY(lhi_job_check_limits(job, exec, err));
    LHI_TRY(lhi_job_activation_bytes(job, exec, place, all, &r->bytes, err));
    if (r->bytes <= r->most_bytes)
        return LH_OK;
    return lhi_job_check_extra_memory(r->bytes - r->most_bytes,
                                      "simultaneous activations", err);
}

/* Returns a proposal's rank assignment; NULL: the initial one. */
static const lhi_rank_assignment *
get_assignment(const lhi_proposed_plan *proposed)
{
    return proposed ? proposed->assignment : NULL;
}

/* Checks that the event timeline's hosts may be assigned as in `assignment`: a
 * host may not replace one with other links or memory. */
static lh_status check_places(const lhi_job *job,
                              const lhi_rank_assignment *assignment,
                              lh_error *err)
{
    lh_pipeline *p;
    if (!job->o.event_timeline || !job->o.event_timeline->placement ||
        !assignment->ranks)
        return LH_OK;
    LHI_TRY(lh_event_timeline_pipeline_with_hosts(job->o.event_timeline, 0,
                                                  assignment->ranks, &p, err));
    lh_pipeline_free(p);
    return LH_OK;
}

/* Sets this rank's options (device, training, place) for running the proposed
 * plan. A changed assignment of hosts or layers gets a new device and training.
 * */
static lh_status set_up_target(lhi_rescheduler *r,
                               const lhi_proposed_plan *proposed, lh_error *err)
{
    const lhi_rank_assignment *assignment = proposed->assignment;
    lhi_rank_options *with = &r->next_rank;
    LHI_TRY(check_places(r->job, assignment, err));
    *with = r->rank;
    with->exec = proposed->exec;
    with->pipeline = proposed->pipeline;
    if (!r->job->model) /* emulated work stays with the timed rank */
        return LH_OK;
    with->assignment = assignment;
    if (lhi_rank_assignment_equal(assignment, get_assignment(r->proposed)))
        return LH_OK;
    LHI_TRY(lhi_migration_target_make(r->job, with->net, proposed->exec,
                                      assignment, with->stop, &r->next_target,
                                      err));
    const lhi_migration_target *target = r->next_target;
    with->stage = target->place % proposed->exec->n_ranks;
    with->place = target->place;
    with->device = target->device;
    with->hooks = lhi_training_hooks(target->training);
    return LH_OK;
}

/* Builds proposal `p`'s execution plan, and the program (buffers and threads)
 * with which this rank would run it. */
static lh_status make_program(lhi_rescheduler *r, const lhi_proposal *p,
                              lh_error *err)
{
    const lhi_proposed_plan *proposed;
    LHI_TRY(lhi_proposed_plan_acquire(r->job->proposals, r->text, &p->texts,
                                      &proposed, err));
    lh_status status = set_up_target(r, proposed, err);
    if (status == LH_OK)
        status = check_memory(r, r->next_target ? &r->next_target->job : r->job,
                              proposed->exec, err);
    if (status == LH_OK)
        status = lhi_rank_program_make(&r->next_rank, &r->next, err);
    if (status == LH_OK) {
        r->next->proposed = proposed;
        return LH_OK;
    }
    lhi_migration_target_free(r->next_target);
    r->next_target = NULL;
    lhi_proposed_plan_release(proposed);
    return status;
}

/* Builds and checks the proposed plan, unless `status` is already an error
 * (`why`), and fills in this rank's vote. */
static void evaluate_proposal(lhi_rescheduler *r, const lhi_proposal *p,
                              lh_status status, lh_error *why)
{
    if (status == LH_OK)
        status = make_program(r, p, why);
    r->vote = (lhi_vote){.refuses = status != LH_OK, .step = r->step};
    if (status != LH_OK)
        lhi_text_copy(r->vote.why, sizeof r->vote.why, why->text);
}

/* Returns a proposal's message tag: `number` 0 for the header, 1 for
 * the text. */
static uint64_t make_proposal_tag(const lhi_rescheduler *r, uint32_t number)
{
    return lhi_tag(LHI_TAG_SCHEDULE, r->round, number);
}

/* Starts sending `size` bytes of a proposal to rank `to`; `op` is pending until
 * they are sent. */
static lh_status send_bytes(lhi_rescheduler *r, uint32_t to, uint64_t tag,
                            const void *bytes, size_t size, lhi_net_op *op,
                            lh_error *err)
{
    *op = (lhi_net_op){0};
    return lhi_net_send(r->rank.net, to, tag, bytes, size, LHI_NET_NO_LINK,
                        lhi_now_ns(), LHI_NET_NO_TURN, op, err);
}

/* Posts a receive of exactly `size` bytes from rank `from`; `op` is pending
 * until they have arrived. */
static lh_status receive_bytes(lhi_rescheduler *r, uint32_t from, uint64_t tag,
                               void *bytes, size_t size, lhi_net_op *op,
                               lh_error *err)
{
    *op = (lhi_net_op){0};
    return lhi_net_receive(r->rank.net, from, tag, bytes, size, op, err);
}

/* --- rank 0 --- */

/* Formats the proposal's schedule, link orders, paths and assignment as one
 * text *out; rejects texts above the size limit. */
static lh_status format_proposal(const lhi_rescheduler *r, lhi_proposal *p,
                                 char **out, lh_error *err)
{
    const lh_schedule *schedule = r->schedule;
    char *rows = NULL, *links = NULL, *both = NULL;
    size_t n_rows = 0, n_links = 0;
    size_t n_assignment = r->assignment_text ? strlen(r->assignment_text) : 0;
    size_t most = lhi_input_max_bytes(LHI_INPUT_SCHEDULE);
    lh_status status = lh_schedule_format(schedule, &rows, &n_rows, err);
    if (status == LH_OK)
        status = lhi_schedule_format_links(schedule, &links, &n_links, err);
    if (!links)
        n_links = 0;
    if (status == LH_OK && (n_rows > most || n_links > most))
        status = lhi_fail_too_large("the proposed schedule", most, "a schedule",
                                    err);
    if (status == LH_OK && n_assignment > LHI_RANK_ASSIGNMENT_MAX_BYTES)
        status = lhi_fail_too_large("the proposed rank assignment",
                                    LHI_RANK_ASSIGNMENT_MAX_BYTES,
                                    "a rank assignment", err);
    if (status == LH_OK &&
        !(both = malloc(n_rows + n_links + r->n_paths + n_assignment + 1)))
        status = lhi_fail_nomem(err);
    if (status == LH_OK) {
        memcpy(both, rows, n_rows);
        if (links)
            memcpy(both + n_rows, links, n_links);
        if (r->n_paths)
            memcpy(both + n_rows + n_links, r->paths, r->n_paths);
        if (n_assignment)
            memcpy(both + n_rows + n_links + r->n_paths, r->assignment_text,
                   n_assignment);
        p->texts = (lhi_proposal_texts){(uint32_t)n_rows, (uint32_t)n_links,
                                        r->n_paths, (uint32_t)n_assignment};
        *out = both;
    }
    lh_text_free(rows);
    lh_text_free(links);
    return status;
}

/* Receives rank `from`'s vote; the first refusal becomes the proposal's
 * result. */
static lh_status receive_vote(lhi_rescheduler *r, uint32_t from, lh_error *err)
{
    lhi_vote vote;
    lhi_vote *mine = &r->vote;
    peer_messages *x = &r->others[from];
    LHI_TRY(lhi_net_wait(r->rank.net, &x->vote, 0, err));
    lh_status status = lhi_vote_read(x->bytes, sizeof x->bytes, &vote, err);
    if (status == LH_OK && vote.step != r->step)
        status =
            lhi_fail(err, LH_EIO, "a vote on step %" PRIu64 ", not %" PRIu64,
                     vote.step, r->step);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "rank %" PRIu32 " sends", from);
        lhi_net_abort(r->rank.net, err->text);
        return status;
    }
    if (vote.refuses && !mine->refuses) {
        char text[sizeof vote.why + 24];
        snprintf(text, sizeof text, "rank %" PRIu32 ": %s", from, vote.why);
        mine->refuses = true;
        lhi_text_copy(mine->why, sizeof mine->why, text);
    }
    return LH_OK;
}

/* Sends the proposal to all ranks and collects their votes (rank 0). */
static lh_status lead_proposal(lhi_rescheduler *r, lh_error *err)
{
    lhi_proposal p = {.step = r->step};
    lh_error why = {0};
    lh_status formatted = format_proposal(r, &p, &r->text, &why);
    lhi_proposal_write(&p, r->head);
    for (uint32_t to = 1; to < r->n; to++) {
        peer_messages *x = &r->others[to];
        LHI_TRY(receive_bytes(r, to, lhi_tag(LHI_TAG_VOTE, r->round, 0),
                              x->bytes, sizeof x->bytes, &x->vote, err));
        LHI_TRY(send_bytes(r, to, make_proposal_tag(r, 0), r->head,
                           sizeof r->head, &x->head, err));
        if (p.texts.n_rows)
            LHI_TRY(send_bytes(r, to, make_proposal_tag(r, 1), r->text,
                               lhi_proposal_texts_size(&p.texts), &x->text,
                               err));
    }
    evaluate_proposal(r, &p, formatted, &why);
    for (uint32_t to = 1; to < r->n; to++) {
        peer_messages *x = &r->others[to];
        LHI_TRY(lhi_net_wait(r->rank.net, &x->head, 0, err));
        if (p.texts.n_rows)
            LHI_TRY(lhi_net_wait(r->rank.net, &x->text, 0, err));
        LHI_TRY(receive_vote(r, to, err));
    }
    return LH_OK;
}

/* --- other ranks --- */

/* Receives a proposal's header from rank 0; an invalid header ends the run. */
static lh_status receive_header(lhi_rescheduler *r, lhi_proposal *out,
                                lh_error *err)
{
    peer_messages *x = r->others;
    LHI_TRY(receive_bytes(r, 0, make_proposal_tag(r, 0), r->head,
                          sizeof r->head, &x->head, err));
    LHI_TRY(lhi_net_wait(r->rank.net, &x->head, 0, err));
    lh_status status = lhi_proposal_read(r->head, sizeof r->head, out, err);
    if (status == LH_OK && out->step != r->step)
        status = lhi_fail(err, LH_EIO,
                          "a schedule for step %" PRIu64 ", not %" PRIu64,
                          out->step, r->step);
    if (status == LH_OK)
        return LH_OK;
    lhi_fail_add_context(err, "rank 0 sends");
    lhi_net_abort(r->rank.net, err->text);
    return status;
}

/* Receives the text of a proposal (schedule, link orders, paths, assignment)
 * from rank 0. */
static lh_status receive_text(lhi_rescheduler *r, const lhi_proposal *p,
                              lh_error *err)
{
    peer_messages *x = r->others;
    size_t size = lhi_proposal_texts_size(&p->texts);
    r->text = malloc(size + 1);
    if (!r->text) { /* rank 0 waits until it is received */
        lhi_fail_nomem(err);
        lhi_net_abort(r->rank.net, err->text);
        return LH_ENOMEM;
    }
    LHI_TRY(receive_bytes(r, 0, make_proposal_tag(r, 1), r->text, size,
                          &x->text, err));
    return lhi_net_wait(r->rank.net, &x->text, 0, err);
}

/* Receives a proposal, evaluates it and sends this rank's vote (ranks other
 * than 0). */
static lh_status follow_proposal(lhi_rescheduler *r, lh_error *err)
{
    lhi_proposal p;
    lh_error why = {0};
    peer_messages *x = r->others;
    LHI_TRY(receive_header(r, &p, err));
    if (p.texts.n_rows)
        LHI_TRY(receive_text(r, &p, err));
    lh_status there =
        p.texts.n_rows
            ? LH_OK
            : lhi_fail(&why, LH_EIO, "rank 0 could not send the schedule");
    evaluate_proposal(r, &p, there, &why);
    lhi_vote_write(&r->vote, x->bytes);
    LHI_TRY(send_bytes(r, 0, lhi_tag(LHI_TAG_VOTE, r->round, 0), x->bytes,
                       sizeof x->bytes, &x->vote, err));
    return lhi_net_wait(r->rank.net, &x->vote, 0, err);
}

/* --- thread --- */

/* Main function for the rescheduler's thread: evaluates open proposals and
 * frees replaced programs, so that the step loop does not wait. */
static void *thread_main(void *of)
{
    lhi_rescheduler *r = of;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        lhi_rank_program *retired = r->retired;
        r->retired = NULL;
        bool open = r->phase == OPEN;
        if (r->stop && !retired)
            break;
        if (!retired && !open) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        lhi_rank_program_free(retired);
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

/* Starts the rescheduler's thread, which evaluates proposals. */
static lh_status start_thread(lhi_rescheduler *r, lh_error *err)
{
    LHI_TRY(lhi_start_normal_thread(&r->thread, thread_main, r, err));
    r->has_thread = true;
    return LH_OK;
}

/* --- construction --- */

/* Allocates the rescheduler's buffers, predicts the initial activation memory,
 * and starts the thread. */
static lh_status init(lhi_rescheduler *r, lh_error *err)
{
    bool all = !r->job->launched;
    r->others = calloc(r->me == 0 ? r->n : 1, sizeof *r->others);
    r->paths = malloc(r->job->pipeline->n_links + (size_t)LHI_PATHS_TEXT_BYTES);
    if (!r->others || !r->paths)
        return lhi_fail_nomem(err);
    if (r->job->model && (r->me == 0 || !all))
        LHI_TRY(lhi_job_activation_bytes(r->job, r->rank.exec, r->me, all,
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
    lh_status status = init(r, err);
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
    lhi_migration_target_stop(r->next_target);
}

/* Frees the list of switches and their texts. */
static void free_switches(lhi_rescheduler *r)
{
    for (uint32_t i = 0; i < r->n_closed; i++)
        free(r->switches[i].assignment);
    free(r->switches);
}

void lhi_rescheduler_free(lhi_rescheduler *r)
{
    if (!r)
        return;
    lhi_rescheduler_stop(r);
    lhi_rank_program_free(r->retired);
    lhi_rank_program_free(r->next);
    lhi_migration_target_free(r->next_target);
    lhi_proposed_plan_release(r->proposed);
    free(r->assignment_text);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->text);
    free(r->paths);
    free(r->others);
    free_switches(r);
    free(r);
}

/* --- called by the rank --- */

/* Appends a switch to the schedule `what`, proposed for step `step`, to rank
 * 0's list. */
static lh_status add_switch(lhi_rescheduler *r, uint64_t step,
                            const lh_reschedule *what, lh_error *err)
{
    lhi_switch *more =
        realloc(r->switches, (r->n_closed + 1u) * sizeof *r->switches);
    if (!more)
        return lhi_fail_nomem(err);
    r->switches = more;
    lhi_switch *row = &more[r->n_closed];
    *row = (lhi_switch){
        .step = step,
        .path = what->override_path ? what->path : r->job->exec->options.path};
    lhi_text_copy(row->to, sizeof row->to, what->name ? what->name : "");
    lhi_text_copy(row->why, sizeof row->why, what->why ? what->why : "");
    row->expected_ns = what->predicted_ns;
    return LH_OK;
}

/* Formats the complete rank assignment that results from proposal `what`: the
 * current hosts and layers, replaced where the proposal gives others. */
static lh_status format_assignment(lhi_rescheduler *r,
                                   const lh_reschedule *what, lh_error *err)
{
    static const lhi_rank_assignment begun = {0};
    const lhi_rank_assignment *now = get_assignment(r->proposed);
    lhi_rank_assignment then = now ? *now : begun;
    then.n_chunks = r->job->assignment_limits.n_chunks;
    then.n_places = r->job->assignment_limits.n_places;
    if (then.n_places == 0) /* rejected by all ranks */
        then.n_places = lhi_grid_count_ranks(&r->job->grid);
    then.move_ns = 0;
    then.relays = what->hosts ? (uint32_t *)(uintptr_t)what->relay_ranks : NULL;
    if (what->layers)
        then.layers = (uint32_t *)(uintptr_t)what->layers;
    if (what->hosts)
        then.ranks = (uint32_t *)(uintptr_t)what->hosts;
    if (what->layers || what->hosts)
        then.move_ns = what->move_ns;
    free(r->assignment_text);
    r->assignment_text = NULL;
    return lhi_rank_assignment_format(&then, &r->assignment_text, err);
}

lh_status lhi_rescheduler_open(lhi_rescheduler *r, uint64_t step,
                               const lh_reschedule *what, lh_error *err)
{
    if (what) {
        LHI_TRY(add_switch(r, step, what, err));
        LHI_TRY(format_assignment(r, what, err));
    }
    pthread_mutex_lock(&r->lock);
    r->n_paths = what && what->override_path
                     ? lhi_paths_format(what->path, what->delegated,
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
        const struct timespec until = lhi_timespec(lhi_now_ns() + POLL_NS);
        pthread_cond_timedwait(&r->changed, &r->lock, &until);
        pthread_mutex_unlock(&r->lock);
        stopped = lhi_net_is_stop_requested(r->rank.stop);
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

const lhi_rank_program *lhi_rescheduler_next_program(lhi_rescheduler *r)
{
    pthread_mutex_lock(&r->lock);
    const lhi_rank_program *next = r->next;
    pthread_mutex_unlock(&r->lock);
    return next;
}

bool lhi_rescheduler_migrates(lhi_rescheduler *r)
{
    pthread_mutex_lock(&r->lock);
    bool moves = r->next && !lhi_rank_assignment_equal(
                                r->next->proposed->assignment,
                                r->proposed ? r->proposed->assignment : NULL);
    pthread_mutex_unlock(&r->lock);
    return moves;
}

lhi_migration_target *lhi_rescheduler_migration_target(lhi_rescheduler *r)
{
    return r->next_target;
}

/* Completes rank 0's list entry of the closed proposal: accepted (`go`) or
 * dropped, with the migration statistics `moved`; NULL: none. */
static void record_result(lhi_rescheduler *r, bool go,
                          const lhi_migration_stats *moved)
{
    lhi_switch *row = &r->switches[r->n_closed++];
    row->is_refused = !go;
    if (r->next)
        row->predicted_ns = lh_exec_predicted_ns(r->next->exec);
    if (!go)
        lhi_text_copy(row->refused, sizeof row->refused, r->vote.why);
    if (!go || !moved)
        return;
    row->assignment = r->assignment_text;
    r->assignment_text = NULL;
    row->n_assignment = row->assignment ? (uint32_t)strlen(row->assignment) : 0;
    row->moved_bytes = moved->bytes;
    row->move_ns = moved->ns;
    row->move_expected_ns = r->next->proposed->assignment->move_ns;
}

/* Makes the accepted proposal's program the rank's program *shift, and keeps
 * the old one for the rescheduler's thread to free. */
static void switch_plan(lhi_rescheduler *r, lhi_rank_program **shift)
{
    r->retired = *shift;
    *shift = r->next;
    r->rank = r->next_rank;
    lhi_proposed_plan_release(r->proposed);
    r->proposed = lhi_proposed_plan_retain(r->next->proposed);
    r->next_target = NULL; /* the caller owns it */
    if (r->bytes > r->most_bytes)
        r->most_bytes = r->bytes;
}

void lhi_rescheduler_close(lhi_rescheduler *r, bool go,
                           const lhi_migration_stats *moved,
                           lhi_rank_program **shift)
{
    lhi_migration_target *unused = NULL;
    pthread_mutex_lock(&r->lock);
    if (r->me == 0 && (go || r->vote.refuses))
        record_result(r, go, moved);
    r->retired = r->next;
    if (go)
        switch_plan(r, shift);
    else
        unused = r->next_target;
    r->next = NULL;
    r->next_target = NULL;
    free(r->text);
    r->text = NULL;
    r->phase = IDLE;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    lhi_migration_target_free(unused);
}

const lhi_switch *lhi_rescheduler_switches(const lhi_rescheduler *r,
                                           uint32_t *n)
{
    *n = r ? r->n_closed : 0;
    return r ? r->switches : NULL;
}

lh_switch lhi_switch_to_public(const lhi_switch *row)
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

lh_migration lhi_moved_to_public(const lhi_switch *row,
                                 const lhi_rank_assignment *assignment)
{
    return (lh_migration){
        .n_chunks = assignment->layers ? assignment->n_chunks : 0,
        .n_places = assignment->ranks ? assignment->n_places : 0,
        .layers = assignment->layers,
        .hosts = assignment->ranks,
        .relay_ranks = assignment->relays,
        .bytes = row->moved_bytes,
        .ns = row->move_ns,
        .predicted_ns = row->move_expected_ns};
}

lh_adapt_event lhi_notice_to_public(const lhi_adapt_notice *row)
{
    lh_adapt_event n = row->notice;
    n.name = row->name;
    n.text = row->text;
    return n;
}
