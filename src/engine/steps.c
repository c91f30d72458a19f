/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do from the first step to the last. Rank 0 leads: it tells the
 * others when a step begins, hears when it ended, and collects what was
 * recorded. */
#include "engine/steps.h"

#include "base/realtime.h"
#include "base/take_options.h"
#include "dev/timed.h"
#include "engine/observe.h"
#include "engine/reschedule.h"
#include "engine/shift.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 4 }; /* that an order may use up */

/* Before a step begins, so that all ranks know of it. */
#define AHEAD_NS 1000000
#define AHEAD_PER_RANK_NS 100000

typedef struct worker {
    const lhi_job *job;
    lhi_net *net;
    lhi_shift *shift;
    lhi_rescheduler *rescheduler; /* NULL: nothing was proposed so far */
    lhi_device *device;
    lhi_training *training; /* NULL: nothing is trained */
    lhi_observer *observer; /* NULL: nothing is to be profiled */
    uint64_t n_steps;       /* that this rank has done */
    uint32_t me, n;
    lh_iteration *iterations; /* rank 0 */
    uint32_t n_iterations;
    bool interrupted, saved;
    uint64_t n_grown;
    uint64_t n_grown_before; /* this rank's, under schedules before */
    uint64_t turn;           /* numbers the rounds of orders */
    uint32_t state;          /* of the course of events; 0 without one */
    lhi_net_stop stop_now;
    const lhi_net_stop *stop; /* rank 0: &stop_now; NULL: nothing stops it */
    atomic_bool told;         /* that it stops */
    uint32_t n_unheard;       /* steps since this rank alone was asked to */
} worker;

/* --- small messages ----------------------------------------------------------
 */

static lh_status tell(worker *w, uint32_t to, unsigned class, const void *data,
                      size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(w->net, to, lhi_tag(class, w->turn, 0), data, size,
                         LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN, &op,
                         err));
    return lhi_net_wait(w->net, &op, 0, err);
}

/* Says whose message it is that is wrong. */
static lh_status from_rank(uint32_t from, lh_status status, lh_error *err)
{
    if (status != LH_OK)
        lhi_wrap(err, "rank %u sends", from);
    return status;
}

static lh_status hear(worker *w, uint32_t from, unsigned class, void *data,
                      size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(w->net, from, lhi_tag(class, w->turn, 0), data,
                            size, &op, err));
    return lhi_net_wait_unless(w->net, &op, w->stop, err);
}

static lh_status tell_command(worker *w, uint32_t to,
                              const lhi_command *command, lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    lhi_command_write(command, bytes);
    return tell(w, to, LHI_TAG_COMMAND, bytes, sizeof bytes, err);
}

static lh_status hear_command(worker *w, lhi_command *out, lh_error *err)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    LHI_TRY(hear(w, 0, LHI_TAG_COMMAND, bytes, sizeof bytes, err));
    return from_rank(0, lhi_command_read(bytes, sizeof bytes, out, err), err);
}

static lh_status tell_done(worker *w, const lhi_done *done, lh_error *err)
{
    unsigned char bytes[LHI_DONE_BYTES];
    lhi_done_write(done, bytes);
    return tell(w, 0, LHI_TAG_DONE, bytes, sizeof bytes, err);
}

static lh_status hear_done(worker *w, uint32_t from, lhi_done *out,
                           lh_error *err)
{
    unsigned char bytes[LHI_DONE_BYTES];
    LHI_TRY(hear(w, from, LHI_TAG_DONE, bytes, sizeof bytes, err));
    return from_rank(from, lhi_done_read(bytes, sizeof bytes, out, err), err);
}

/* --- one step
 * ----------------------------------------------------------------- */

static void add_done(worker *w, lh_iteration *it, int64_t t0_ns,
                     const lhi_done *d)
{
    int64_t ns = w->job->shared_clock ? d->end_ns - t0_ns : d->end_ns;
    if (ns > it->ns)
        it->ns = ns;
    it->slips += d->n_slips;
    if (d->worst_late_ns > it->worst_late_ns)
        it->worst_late_ns = d->worst_late_ns;
}

static lh_status train_step(worker *w, const lhi_command *command, int64_t t0,
                            int64_t *end_ns, lhi_train_report *report,
                            lh_error *err)
{
    lhi_training_begin(w->training, command->step);
    LHI_TRY(lhi_rank_step(w->shift->rank, command->step, LHI_STEP_TRAIN, t0,
                          end_ns, err));
    LHI_TRY(lhi_training_end(w->training, w->turn, report, err));
    uint32_t n_played;
    const lhi_played *played = lhi_training_played(w->training, &n_played);
    lhi_shift_keep(w->shift, t0, played, n_played);
    if (w->observer)
        lhi_observe_step(w->observer, w->n_steps++, w->shift);
    *end_ns = lhi_now_ns();
    return LH_OK;
}

static lh_status validate(worker *w, double *loss, lh_error *err)
{
    int64_t end_ns;
    LHI_TRY(lhi_training_gather(w->training, w->turn, err));
    LHI_TRY(lhi_rank_step(w->shift->rank, 0, LHI_STEP_VALIDATE, lhi_now_ns(),
                          &end_ns, err));
    return lhi_training_validated(w->training, w->turn, loss, err);
}

/* Does what rank 0 has ordered; what of it only rank 0 wants is in *report. */
static lh_status obey(worker *w, const lhi_command *command, lhi_done *out,
                      lhi_train_report *report, lh_error *err)
{
    *out = (lhi_done){.loss = NAN};
    if (command->what == LHI_COMMAND_SCHEDULE)
        return LH_OK;
    if (command->what == LHI_COMMAND_VALIDATE)
        return validate(w, &out->loss, err);
    if (command->what == LHI_COMMAND_SAVE)
        return lhi_training_save(w->training, w->turn, err);
    if (command->what == LHI_COMMAND_MEASURE)
        return lhi_observe_end(w->observer, w->net, w->device, w->turn, err);
    int64_t t0 = w->job->shared_clock ? command->t0_ns : lhi_now_ns(), end_ns;
    if (w->training) {
        LHI_TRY(train_step(w, command, t0, &end_ns, report, err));
    } else {
        LHI_TRY(lhi_rank_step(w->shift->rank, command->step, LHI_STEP_TRAIN, t0,
                              &end_ns, err));
        lhi_timed_slips slips = lhi_timed_take_slips(w->device);
        out->n_slips = slips.n;
        out->worst_late_ns = slips.worst_ns;
        const lhi_rank *rank = w->shift->rank;
        lhi_shift_keep(w->shift, t0, rank->played, rank->n_played);
    }
    out->end_ns = w->job->shared_clock ? end_ns : end_ns - t0;
    out->n_grown = w->n_grown_before + w->shift->rank->n_grown;
    return LH_OK;
}

/* Gives an order to all ranks, and obeys it; adds up into *it. */
static lh_status lead_command(worker *w, const lhi_command *command,
                              lh_iteration *it, lhi_train_report *report,
                              lh_error *err)
{
    lhi_done mine;
    for (uint32_t r = 1; r < w->n; r++)
        LHI_TRY(tell_command(w, r, command, err));
    LHI_TRY(obey(w, command, &mine, report, err));
    uint64_t n_grown = mine.n_grown;
    if (command->what == LHI_COMMAND_STEP)
        add_done(w, it, command->t0_ns, &mine);
    if (command->what == LHI_COMMAND_VALIDATE)
        it->validation_loss = mine.loss;
    for (uint32_t r = 1; r < w->n; r++) {
        lhi_done theirs;
        LHI_TRY(hear_done(w, r, &theirs, err));
        if (command->what == LHI_COMMAND_STEP)
            add_done(w, it, command->t0_ns, &theirs);
        n_grown += theirs.n_grown;
    }
    if (command->what == LHI_COMMAND_STEP)
        w->n_grown = n_grown;
    w->turn += TURNS;
    return LH_OK;
}

/* --- other schedules
 * ----------------------------------------------------------- */

static lhi_rank_options rank_options(const worker *w)
{
    uint32_t stage = w->me % w->job->exec->n_ranks;
    return (lhi_rank_options){
        .pipeline = w->job->pipeline,
        .exec = w->job->exec,
        .stage = stage,
        .base = w->me - stage,
        .net = w->net,
        .device = w->device,
        .emulates = w->job->emulates,
        .hooks = w->training ? lhi_training_hooks(w->training) : NULL,
        .stop = w->stop,
    };
}

static lh_status open_proposal(worker *w, uint64_t step,
                               const lh_reschedule *what, lh_error *err)
{
    const lhi_rank_options with = rank_options(w);
    if (!w->rescheduler)
        LHI_TRY(lhi_rescheduler_make(w->job, &with, &w->rescheduler, err));
    return lhi_rescheduler_open(w->rescheduler, step, what, err);
}

static void close_proposal(worker *w, bool go)
{
    const lhi_rank *rank = w->shift->rank;
    const uint64_t turns = rank->turns;
    const uint32_t n_grown = rank->n_grown;
    lhi_rescheduler_close(w->rescheduler, go, &w->shift);
    if (!go)
        return;
    w->n_grown_before += n_grown;
    w->shift->rank->turns = turns;
    if (w->training)
        lhi_training_reschedule(w->training, w->shift->exec);
}

/* Asks which schedule is to count from `step` on. */
static lh_status propose(worker *w, uint64_t step, lhi_command *command,
                         lh_error *err)
{
    const lh_train_options *o = &w->job->o;
    const lh_reschedule *given = NULL;
    lh_reschedule what;
    if (o->reschedule && step < o->steps)
        given = o->reschedule(o->context, step);
    if (!given)
        return LH_OK;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_reschedule, &what, given, err));
    if (!what.schedule)
        return lhi_fail(err, LH_EINVAL,
                        "reschedule says that there is another schedule from "
                        "step %" PRIu64 " on, and gives none",
                        step);
    LHI_TRY(open_proposal(w, step, &what, err));
    command->proposes = true;
    return LH_OK;
}

/* What has become of the proposal, if one is open. */
static lh_status decide(worker *w, lhi_command *command, lh_error *err)
{
    bool all_agree;
    uint32_t before, n;
    if (!lhi_rescheduler_is_open(w->rescheduler))
        return LH_OK;
    LHI_TRY(lhi_rescheduler_await(w->rescheduler, &all_agree, err));
    bool go = all_agree && command->what == LHI_COMMAND_STEP;
    command->verdict = go ? LHI_VERDICT_GO : LHI_VERDICT_DROP;
    lhi_rescheduler_switches(w->rescheduler, &before);
    close_proposal(w, go);
    const lhi_switch *rows = lhi_rescheduler_switches(w->rescheduler, &n);
    if (n > before && w->job->o.switched) {
        const lh_switch what = lhi_switch_shown(&rows[before]);
        w->job->o.switched(w->job->o.context, &what);
    }
    return LH_OK;
}

/* The same where rank 0 leads. */
static lh_status heed(worker *w, const lhi_command *command, lh_error *err)
{
    bool steps = command->what == LHI_COMMAND_STEP;
    bool ends = command->what == LHI_COMMAND_END;
    bool open = lhi_rescheduler_is_open(w->rescheduler);
    bool decides = command->verdict != LHI_VERDICT_NONE;
    bool go = command->verdict == LHI_VERDICT_GO;
    if (decides != (open && (steps || ends)) || (go && ends))
        return lhi_fail(err, LH_EIO, "rank 0 sends %s, which it may not now",
                        decides ? "a verdict on a schedule"
                                : "no verdict on its schedule");
    if (decides) {
        bool agrees;
        LHI_TRY(lhi_rescheduler_await(w->rescheduler, &agrees, err));
        if (go && !agrees)
            return lhi_fail(err, LH_EIO,
                            "rank 0 goes on with a schedule that this rank has "
                            "refused");
        close_proposal(w, go);
        open = false;
    }
    if (!command->proposes)
        return LH_OK;
    if (open || !(steps || command->what == LHI_COMMAND_SCHEDULE))
        return lhi_fail(err, LH_EIO,
                        "rank 0 sends a schedule, which it may not now");
    return open_proposal(w, command->step + steps, NULL, err);
}

/* --- a step, led
 * --------------------------------------------------------------- */

static bool is_due(uint64_t step, uint32_t every)
{
    return every > 0 && (step + 1) % every == 0;
}

/* What follows a step of training. */
static lh_status lead_rest(worker *w, uint64_t step, lh_iteration *it,
                           lh_error *err)
{
    const lh_train_model *m = w->job->model;
    bool ends = step + 1 == w->job->o.steps;
    lhi_command command = {.what = LHI_COMMAND_VALIDATE};
    if (m->validation > 0 && m->validate_every > 0 &&
        (ends || is_due(step, m->validate_every)))
        LHI_TRY(lead_command(w, &command, it, NULL, err));
    w->saved = false;
    command.what = LHI_COMMAND_SAVE;
    if (m->checkpoint && is_due(step, m->checkpoint_every)) {
        LHI_TRY(lead_command(w, &command, it, NULL, err));
        w->saved = true;
    }
    return LH_OK;
}

static lh_status lead_step(worker *w, uint64_t step, lh_error *err)
{
    lh_iteration *it = &w->iterations[w->n_iterations];
    lhi_train_report report = {.loss = NAN, .norm = NAN, .rate = NAN};
    lhi_command command = {.what = LHI_COMMAND_STEP, .step = step};
    LHI_TRY(decide(w, &command, err));
    LHI_TRY(propose(w, step + 1, &command, err));
    LHI_TRY(
        lhi_job_enter_step(w->job, step, w->net, w->device, &w->state, err));
    command.t0_ns = lhi_now_ns();
    if (!w->training)
        command.t0_ns += AHEAD_NS + (int64_t)w->n * AHEAD_PER_RANK_NS;
    *it = (lh_iteration){.step = step, .validation_loss = NAN};
    LHI_TRY(lead_command(w, &command, it, &report, err));
    it->loss = report.loss;
    it->norm = report.norm;
    it->rate = report.rate;
    it->tokens = report.tokens;
    if (w->training)
        LHI_TRY(lead_rest(w, step, it, err));
    w->n_iterations++;
    if (w->job->o.progress)
        w->job->o.progress(w->job->o.context, it);
    return LH_OK;
}

/* What the first step is to follow. */
static lh_status lead_first_schedule(worker *w, uint64_t step, lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_SCHEDULE, .step = step};
    LHI_TRY(propose(w, step, &command, err));
    return command.proposes
               ? lead_command(w, &command, w->iterations, NULL, err)
               : LH_OK;
}

/* At the end of the run, unless just done. */
static lh_status lead_save(worker *w, lh_error *err)
{
    const lh_train_model *m = w->job->model;
    if (!m || !m->checkpoint || w->saved || w->n_iterations == 0)
        return LH_OK;
    lhi_command command = {.what = LHI_COMMAND_SAVE};
    return lead_command(w, &command, &w->iterations[w->n_iterations], NULL,
                        err);
}

/* Also of a run that was asked to stop. */
static lh_status lead_measuring(worker *w, lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_MEASURE};
    if (!w->observer || w->n_iterations == 0)
        return LH_OK;
    return lead_command(w, &command, &w->iterations[w->n_iterations], NULL,
                        err);
}

/* --- the end: what was recorded
 * ------------------------------------------------ */

/* Counts and rows of this rank, as one text. */
static lh_status write_records(const worker *w, lhi_text *out, lh_error *err)
{
    lhi_counts counts = {w->shift->rank->program->n_passes, w->shift->n_played};
    unsigned char head[LHI_COUNTS_BYTES];
    size_t size = lhi_rows_bytes(&counts);
    unsigned char *rows = malloc(size + 1);
    if (!rows)
        return lhi_fail_nomem(err);
    lhi_counts_write(&counts, head);
    lhi_rows_write(&counts, w->shift->records, w->shift->played, rows);
    lhi_text_add(out, (const char *)head, sizeof head);
    lhi_text_add(out, (const char *)rows, size);
    free(rows);
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

/* The counts as one message, so that their receiver knows the size of the
 * rows. */
static lh_status send_records(worker *w, lh_error *err)
{
    lhi_text text = {0};
    lh_status status = write_records(w, &text, err);
    if (status == LH_OK)
        status = tell(w, 0, LHI_TAG_RECORD, text.data, LHI_COUNTS_BYTES, err);
    w->turn++;
    if (status == LH_OK)
        status = tell(w, 0, LHI_TAG_RECORD, text.data + LHI_COUNTS_BYTES,
                      text.len - LHI_COUNTS_BYTES, err);
    lhi_text_fini(&text);
    return status;
}

static lh_status hear_counts(worker *w, uint32_t rank,
                             unsigned char head[LHI_COUNTS_BYTES],
                             lhi_counts *out, lh_error *err)
{
    LHI_TRY(hear(w, rank, LHI_TAG_RECORD, head, LHI_COUNTS_BYTES, err));
    return from_rank(rank, lhi_counts_read(head, LHI_COUNTS_BYTES, out, err),
                     err);
}

static lh_status hear_records(worker *w, uint32_t rank, lhi_text *out,
                              lh_error *err)
{
    lhi_counts counts;
    unsigned char head[LHI_COUNTS_BYTES];
    uint64_t turn = w->turn;
    LHI_TRY(hear_counts(w, rank, head, &counts, err));
    LHI_TRY(lhi_job_check_counts(w->job, w->shift->exec, rank, &counts, err));
    size_t size = lhi_rows_bytes(&counts);
    unsigned char *rows = malloc(size + 1);
    if (!rows)
        return lhi_fail_nomem(err);
    w->turn++;
    lh_status status = hear(w, rank, LHI_TAG_RECORD, rows, size, err);
    w->turn = turn;
    if (status == LH_OK) {
        lhi_text_add(out, (const char *)head, sizeof head);
        lhi_text_add(out, (const char *)rows, size);
    }
    free(rows);
    return status;
}

/* `n_recorded`: ranks whose records follow. */
static void add_heading(const worker *w, uint32_t n_recorded, lhi_text *out)
{
    lhi_outcome outcome = {.n_iterations = w->n_iterations,
                           .n_grown = w->n_grown,
                           .interrupted = w->interrupted,
                           .n_recorded = n_recorded};
    unsigned char head[LHI_OUTCOME_BYTES], row[LHI_ITERATION_BYTES];
    unsigned char change[LHI_SWITCH_BYTES];
    const lhi_proposed *last = w->shift->proposed;
    const lhi_switch *switches =
        lhi_rescheduler_switches(w->rescheduler, &outcome.n_switches);
    outcome.n_rows = last ? last->n_rows : 0;
    outcome.n_links = last ? last->n_links : 0;
    lhi_outcome_head_write(&outcome, head);
    lhi_text_add(out, (const char *)head, sizeof head);
    for (uint32_t i = 0; i < w->n_iterations; i++) {
        lhi_iteration_write(&w->iterations[i], row);
        lhi_text_add(out, (const char *)row, sizeof row);
    }
    for (uint32_t i = 0; i < outcome.n_switches; i++) {
        lhi_switch_write(&switches[i], change);
        lhi_text_add(out, (const char *)change, sizeof change);
    }
    if (last)
        lhi_text_add(out, last->text, (size_t)last->n_rows + last->n_links);
}

static lh_status collect(worker *w, lhi_text *out, lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_END};
    LHI_TRY(decide(w, &command, err));
    uint32_t n = w->shift->has_records ? w->job->exec->n_ranks : 0;
    for (uint32_t r = 1; r < w->n; r++)
        LHI_TRY(tell_command(w, r, &command, err));
    w->turn++;
    add_heading(w, n, out);
    if (n > 0)
        LHI_TRY(write_records(w, out, err));
    for (uint32_t r = 1; r < n; r++)
        LHI_TRY(hear_records(w, r, out, err));
    if (w->observer && w->n_iterations > 0)
        lhi_text_add(out, (const char *)lhi_observer_sums(w->observer),
                     lhi_observed_size(w->job) * sizeof(double));
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

/* --- leading and following
 * ------------------------------------------------------ */

static void say(const worker *w, const char *text)
{
    if (w->job->o.remark)
        w->job->o.remark(w->job->o.context, text);
}

static int asked_to_stop(worker *w)
{
    const lhi_job *job = w->job;
    int here = job->o.stop ? job->o.stop(job->o.context) : LH_STOP_NO;
    int there = job->asked ? atomic_load(job->asked) : LH_STOP_NO;
    int asked = here > there ? here : there;
    if (asked != LH_STOP_NO && !atomic_exchange(&w->told, true))
        say(w, "stopping after this iteration; interrupt again to stop at "
               "once");
    return asked;
}

static bool stop_now(void *of)
{
    return asked_to_stop(of) == LH_STOP_NOW;
}

/* Who asks all ranks asks rank 0, too, which then ends the run. Steps go on: it
 * was not asked. The first may have been on its way. */
static void note_unheard(worker *w)
{
    enum { SURE = 2 };
    char text[200];
    const lhi_job *job = w->job;
    if (!job->launched || !job->o.stop || w->n_unheard >= SURE ||
        job->o.stop(job->o.context) == LH_STOP_NO || ++w->n_unheard < SURE)
        return;
    snprintf(text, sizeof text,
             "rank %" PRIu32 " was asked to stop, and goes on until rank 0 is "
             "asked: signal that, or mpirun or srun, which signal all",
             w->me);
    say(w, text);
}

/* Steps begin once all ranks have made what they need. */
static lh_status await_all(worker *w, lh_error *err)
{
    const lhi_net_group all = {w->n, w->me, NULL, LHI_NET_NO_LINK, NULL};
    return lhi_net_barrier(w->net, &all, lhi_tag(LHI_TAG_BARRIER, 0, 0),
                           w->stop, err);
}

static lh_status lead(worker *w, lhi_text *out, lh_error *err)
{
    lh_status status = await_all(w, err);
    uint64_t step = w->training ? lhi_training_step(w->training) : 0;
    if (status == LH_OK)
        status = lead_first_schedule(w, step, err);
    for (; status == LH_OK && step < w->job->o.steps; step++) {
        if (asked_to_stop(w) != LH_STOP_NO) {
            w->interrupted = true;
            break;
        }
        status = lead_step(w, step, err);
    }
    if (status == LH_OK)
        status = lead_save(w, err);
    if (status == LH_OK)
        status = lead_measuring(w, err);
    if (status == LH_OK)
        return collect(w, out, err);
    if (status == LH_ECANCELED) { /* what there is, without the others */
        w->interrupted = true;
        add_heading(w, 0, out);
    }
    return status;
}

static lh_status follow(worker *w, lh_error *err)
{
    LHI_TRY(await_all(w, err));
    for (;;) {
        lhi_command command;
        lhi_done mine;
        LHI_TRY(hear_command(w, &command, err));
        LHI_TRY(heed(w, &command, err));
        if (command.what == LHI_COMMAND_END)
            break;
        if (command.what == LHI_COMMAND_STEP) {
            note_unheard(w);
            LHI_TRY(lhi_job_enter_step(w->job, command.step, w->net, w->device,
                                       &w->state, err));
        }
        lhi_train_report report;
        LHI_TRY(obey(w, &command, &mine, &report, err));
        LHI_TRY(tell_done(w, &mine, err));
        w->turn += TURNS;
    }
    w->turn++;
    return w->shift->has_records && w->me < w->job->exec->n_ranks
               ? send_records(w, err)
               : LH_OK;
}

/* --- setting up
 * ----------------------------------------------------------------- */

static lh_status make_training(worker *w, lh_error *err)
{
    const lhi_job *job = w->job;
    uint32_t n = job->exec->n_ranks;
    lhi_training_options o = {.pipeline = job->pipeline,
                              .exec = job->exec,
                              .emulates = job->emulates,
                              .shared_clock = job->shared_clock,
                              .model = job->model,
                              .stage = w->me % n,
                              .replica = w->me / n,
                              .n_replicas = job->n_replicas,
                              .n_ranks = w->n,
                              .steps = job->o.steps,
                              .net = w->net,
                              .device = w->device,
                              .remarks = {job->o.remark, job->o.context},
                              .stop = w->stop};
    return lhi_training_make(&o, &w->training, err);
}

static lh_status make_rank(worker *w, lh_error *err)
{
    const lhi_job *job = w->job;
    if (!w->device)
        LHI_TRY(lhi_job_device(job, w->me, &w->device, err));
    if (job->model)
        LHI_TRY(make_training(w, err));
    const lhi_rank_options o = rank_options(w);
    LHI_TRY(lhi_shift_make(&o, &w->shift, err));
    if (w->training && job->o.profiles)
        LHI_TRY(lhi_observer_make(job, w->me, &w->observer, err));
    if (w->me > 0)
        return LH_OK;
    w->iterations = calloc((size_t)job->o.steps + 1, sizeof *w->iterations);
    return w->iterations ? LH_OK : lhi_fail_nomem(err);
}

static lh_status lead_or_follow(worker *w, lhi_text *out, lh_error *err)
{
    LHI_TRY(lhi_wake_sharply(w->job->o.realtime, err));
    if (w->me == 0 && w->job->o.stop) {
        w->stop_now = (lhi_net_stop){stop_now, w};
        w->stop = &w->stop_now;
    }
    LHI_TRY(make_rank(w, err));
    return w->me == 0 ? lead(w, out, err) : follow(w, err);
}

/* Until the endpoint is closed, messages may still use what is in here. */
static void free_worker(void *of)
{
    worker *w = of;
    lhi_rescheduler_free(w->rescheduler);
    lhi_shift_free(w->shift);
    lhi_training_free(w->training);
    lhi_observer_free(w->observer);
    if (w->device)
        w->device->ops->close(w->device);
    free(w->iterations);
    free(w);
}

lh_status lhi_job_rank(lhi_net *net, void *of, char **result, size_t *size,
                       lh_error *err)
{
    const lhi_job *job = of;
    worker *w = calloc(1, sizeof *w);
    if (!w)
        return lhi_fail_nomem(err);
    w->job = job;
    w->net = net;
    w->me = lhi_net_rank(net);
    w->n = lhi_net_n_ranks(net);
    if (job->devices) {
        w->device = job->devices[w->me];
        job->devices[w->me] = NULL;
    }
    lhi_net_when_closed(net, free_worker, w);
    lhi_text out = {0};
    lh_error own = {0};
    lh_status status = lead_or_follow(w, &out, &own);
    if (status != LH_OK) {
        lhi_net_abort(net, own.text);
        if (w->training)
            lhi_training_stop(w->training);
        if (err)
            *err = own;
    }
    /* Their threads use the endpoint, which is closed next. */
    if (w->rescheduler)
        lhi_rescheduler_stop(w->rescheduler);
    if (w->shift)
        lhi_rank_stop(w->shift->rank);
    if (out.len > 0 && lhi_text_take(&out, result, size, err) != LH_OK &&
        status == LH_OK)
        status = LH_ENOMEM;
    lhi_text_fini(&out);
    return status;
}
