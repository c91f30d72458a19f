/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a run on each rank. Rank 0 leads: it sends the command for each
 * step, receives the reports, and collects the records. */
#include "runtime/engine/rerouting.h"
#include "runtime/engine/restart.h"
#include "runtime/engine/run_journal.h"
#include "runtime/engine/worker.h"

#include "base/realtime.h"
#include "runtime/device/timed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS_PER_COMMAND = 4 }; /* turns that a command may use */

/* Lead time before a step, so that its command reaches all ranks. */
#define START_LEAD_NS 1000000
#define START_LEAD_PER_RANK_NS 100000

/* Applies the event timeline's conditions of `step` to this rank's process,
 * links, device and training. */
static lh_status apply_conditions(lhi_run_worker *w, uint64_t step,
                                  lh_error *err)
{
    LHI_TRY(lhi_job_apply_process_events(w->job, w->me, step, err));
    return lhi_job_apply_conditions(w->job, step,
                                    lhi_run_worker_rank_assignment(w), w->net,
                                    w->device, w->training, &w->state, err);
}

/* --- step --- */

/* Raises the iteration's time and greatest lateness in *it to those in a rank's
 * report `d`, and adds its missed deadlines; t0_ns: the iteration's start. */
static void add_report(lhi_run_worker *w, lh_iteration *it, int64_t t0_ns,
                       const lhi_command_report *d)
{
    int64_t ns = w->job->shared_clock ? d->end_ns - t0_ns : d->end_ns;
    if (ns > it->ns)
        it->ns = ns;
    it->missed_deadlines += d->n_slips;
    if (d->worst_late_ns > it->max_lateness_ns)
        it->max_lateness_ns = d->worst_late_ns;
}

/* Runs one training step of this rank, begun at t0: passes, optimizer, records
 * and memory check. *end_ns: its end; *report is filled in. */
static lh_status train_step(lhi_run_worker *w, const lhi_command *command,
                            int64_t t0, int64_t *end_ns,
                            lhi_train_report *report, lh_error *err)
{
    lhi_training_begin_step(w->training, command->step);
    LHI_TRY(lhi_rank_run_step(w->program->rank, command->step, LHI_STEP_TRAIN,
                              t0, end_ns, err));
    LHI_TRY(lhi_training_end_step(w->training, w->turn, report, err));
    if (w->in_memory)
        LHI_TRY(lhi_memory_checkpoint_store(
            w->in_memory, lhi_training_state(w->training), err));
    uint32_t n_executed;
    const lhi_collective_record *executed =
        lhi_training_collectives(w->training, &n_executed);
    lhi_rank_program_store_records(w->program, t0, executed, n_executed);
    if (w->observer)
        lhi_observer_add_step(w->observer, w->n_steps++, w->program,
                              lhi_training_wait_times(w->training));
    *end_ns = lhi_now_ns();
    lhi_run_worker_record_memory(w, NULL, NULL);
    return lhi_run_worker_check_limits(w, w->turn + 1, err);
}

/* Gathers all parameters, runs one validation step and returns its loss. */
static lh_status validate(lhi_run_worker *w, double *loss, lh_error *err)
{
    int64_t end_ns;
    double before[LH_N_TRAIN_GROUPS], after[LH_N_TRAIN_GROUPS];
    LHI_TRY(lhi_training_gather_values(w->training, w->turn, err));
    lhi_run_worker_group_times(w, before);
    LHI_TRY(lhi_rank_run_step(w->program->rank, 0, LHI_STEP_VALIDATE,
                              lhi_now_ns(), &end_ns, err));
    lhi_run_worker_group_times(w, after);
    for (uint32_t k = 0; k < LH_N_TRAIN_GROUPS; k++)
        w->validation_ns[k] += after[k] - before[k];
    return lhi_training_end_validation(w->training, w->turn, loss, err);
}

/* Returns the last step's collective records, with clock times. */
static const lhi_collective_record *
get_last_collectives(const lhi_run_worker *w, uint32_t *n)
{
    if (w->training)
        return lhi_training_collectives(w->training, n);
    *n = w->program->rank->n_collectives;
    return w->program->rank->collectives;
}

/* Sends this rank's observation of the step to rank 0 without waiting. */
static lh_status send_observation(lhi_run_worker *w, lh_error *err)
{
    lhi_pending_send *s = &w->observation;
    const lhi_rank *rank = w->program->rank;
    lhi_hop_observation hops[LHI_NET_MAX_RANKS];
    lhi_observation_header seen = {.n_passes = rank->program->n_passes,
                                   .n_hops = lhi_job_count_hops(w->job),
                                   .clock = w->clock};
    const lhi_collective_record *executed =
        get_last_collectives(w, &seen.n_collectives);
    size_t size = lhi_observation_size(&seen);
    if (s->is_in_flight)
        LHI_TRY(lhi_net_wait(w->net, &s->op, 0, err));
    s->is_in_flight = false;
    if (size > s->capacity) {
        free(s->bytes);
        s->capacity = 0;
        if (!(s->bytes = malloc(size)))
            return lhi_fail_nomem(err);
        s->capacity = size;
    }
    if (seen.n_hops)
        lhi_training_read_hops(w->training, hops);
    lhi_observation_write(&seen, rank->observation, executed, hops, s->bytes);
    s->op = (lhi_net_op){0};
    LHI_TRY(lhi_net_send(w->net, 0, lhi_tag(LHI_TAG_OBSERVATION, w->turn, 0),
                         s->bytes, size, LHI_NET_NO_LINK, lhi_now_ns(),
                         LHI_NET_NO_TURN, &s->op, err));
    s->is_in_flight = true;
    return LH_OK;
}

/* Migrates the training state before `step` and closes the proposal as
 * accepted. */
static lh_status migrate(lhi_run_worker *w, uint64_t step, lh_error *err)
{
    lhi_migration_stats moved;
    LHI_TRY(lhi_run_worker_migrate(w, step, &moved, err));
    lhi_run_worker_close_proposal(w, true, &moved);
    return LH_OK;
}

/* Executes a command of rank 0. *out: this rank's reply; *report: values that
 * only rank 0 uses. */
static lh_status execute_command(lhi_run_worker *w, const lhi_command *command,
                                 lhi_command_report *out,
                                 lhi_train_report *report, lh_error *err)
{
    *out = (lhi_command_report){.loss = NAN};
    if (command->what == LHI_COMMAND_SCHEDULE)
        return LH_OK;
    if (command->what == LHI_COMMAND_MOVE)
        return migrate(w, command->step, err);
    if (command->what == LHI_COMMAND_VALIDATE)
        return validate(w, &out->loss, err);
    if (command->what == LHI_COMMAND_SAVE)
        return lhi_training_save(w->training, w->turn, err);
    if (command->what == LHI_COMMAND_MEASURE)
        return lhi_observer_finish(w->observer, w->net, w->device, w->turn,
                                   err);
    int64_t t0 = w->job->shared_clock ? command->t0_ns : lhi_now_ns(), end_ns;
    const int64_t work_ns = lhi_net_total_work_ns(w->net);
    if (w->training) {
        LHI_TRY(train_step(w, command, t0, &end_ns, report, err));
    } else {
        LHI_TRY(lhi_rank_run_step(w->program->rank, command->step,
                                  LHI_STEP_TRAIN, t0, &end_ns, err));
        lhi_timed_slips slips = lhi_timed_read_slips(w->device);
        out->n_slips = slips.n;
        out->worst_late_ns = slips.worst_ns;
        const lhi_rank *rank = w->program->rank;
        lhi_rank_program_store_records(w->program, t0, rank->collectives,
                                       rank->n_collectives);
    }
    if (w->watchdog)
        lhi_watchdog_add_iteration(w->watchdog,
                                   lhi_net_total_work_ns(w->net) - work_ns);
    out->end_ns = w->job->shared_clock ? end_ns : end_ns - t0;
    out->pool_growth =
        w->earlier_pool_growth + lhi_rank_pool_growth(w->program->rank);
    out->is_stopping = lhi_job_find_stop_request(w->job) != LH_STOP_NO;
    get_last_collectives(w, &out->n_collectives);
    return LH_OK;
}

/* Sends a command to all ranks, executes it and collects the replies, whose
 * times it adds to *it. */
static lh_status lead_command(lhi_run_worker *w, const lhi_command *command,
                              lh_iteration *it, lhi_train_report *report,
                              lh_error *err)
{
    lhi_command_report mine;
    for (uint32_t r = 1; r < w->n; r++)
        LHI_TRY(lhi_run_worker_send_command(w, r, command, err));
    LHI_TRY(execute_command(w, command, &mine, report, err));
    uint64_t n_grown = mine.pool_growth;
    if (command->what == LHI_COMMAND_STEP)
        add_report(w, it, command->t0_ns, &mine);
    if (command->what == LHI_COMMAND_VALIDATE)
        it->validation_loss = mine.loss;
    if (command->wants_observation)
        LHI_TRY(lhi_adaptation_add_local(
            w->adapting, w->program->rank, w->training,
            get_last_collectives(w, &mine.n_collectives), mine.n_collectives,
            err));
    for (uint32_t r = 1; r < w->n; r++) {
        lhi_command_report theirs;
        LHI_TRY(lhi_run_worker_receive_report(w, r, &theirs, err));
        if (command->wants_observation)
            LHI_TRY(lhi_adaptation_expect_rank(
                w->adapting, r, theirs.n_collectives,
                lhi_tag(LHI_TAG_OBSERVATION, w->turn, 0), err));
        if (command->what == LHI_COMMAND_STEP)
            add_report(w, it, command->t0_ns, &theirs);
        if (theirs.is_stopping && !w->stopped_by)
            w->stopped_by = 1 + r;
        n_grown += theirs.pool_growth;
    }
    if (command->wants_observation)
        lhi_adaptation_end_iteration(w->adapting, it->ns);
    if (command->what == LHI_COMMAND_STEP)
        w->pool_growth = n_grown;
    w->turn += TURNS_PER_COMMAND;
    return LH_OK;
}

/* --- schedule proposals --- */

/* Sends the migrate command to all ranks and stores its duration, which counts
 * towards the next iteration. */
static lh_status lead_migration(lhi_run_worker *w, uint64_t step, lh_error *err)
{
    const lhi_command command = {
        .what = LHI_COMMAND_MOVE, .step = step, .verdict = LHI_VERDICT_GO};
    int64_t begin_ns = lhi_now_ns();
    LHI_TRY(lead_command(w, &command, NULL, NULL, err));
    w->migration_ns = lhi_now_ns() - begin_ns;
    return LH_OK;
}

/* Waits for the votes on the open proposal, if any, and sets the command's
 * verdict: switch to it, drop it, or migrate first. */
static lh_status decide_proposal(lhi_run_worker *w, lhi_command *command,
                                 lh_error *err)
{
    bool all_agree;
    uint32_t before, n;
    if (!lhi_rescheduler_is_open(w->rescheduler))
        return LH_OK;
    LHI_TRY(lhi_rescheduler_await(w->rescheduler, &all_agree, err));
    bool go = all_agree && command->what == LHI_COMMAND_STEP;
    lhi_rescheduler_switches(w->rescheduler, &before);
    if (go && lhi_rescheduler_migrates(w->rescheduler)) {
        LHI_TRY(lead_migration(w, command->step, err));
    } else {
        command->verdict = go ? LHI_VERDICT_GO : LHI_VERDICT_DROP;
        lhi_run_worker_close_proposal(w, go, NULL);
    }
    const lhi_switch *rows = lhi_rescheduler_switches(w->rescheduler, &n);
    if (n > before && w->job->record)
        LHI_TRY(lhi_journal_add_switch(w->job->record->journal, &rows[before],
                                       err));
    if (n > before && w->job->o.migrated && rows[before].n_assignment)
        LHI_TRY(lhi_run_worker_report_migration(w, &rows[before], err));
    if (n > before && w->job->o.switched) {
        const lh_switch what = lhi_switch_to_public(&rows[before]);
        w->job->o.switched(w->job->o.context, &what);
    }
    if (n > before && w->adapting)
        lhi_decider_record_verdict(lhi_adaptation_decider(w->adapting),
                                   rows[before].step, go);
    return LH_OK;
}

/* Passes new adaptation notices (events, decisions) and remarks for the user to
 * the caller's callbacks. */
static lh_status report_notices(lhi_run_worker *w, lh_error *err)
{
    const lh_train_options *o = &w->job->o;
    char text[LHI_ADAPT_NOTICE_TEXT];
    lhi_adapt_notice row;
    if (!w->adapting)
        return LH_OK;
    lhi_decider *mind = lhi_adaptation_decider(w->adapting);
    while (lhi_decider_get_notice(mind, w->n_notices_reported, &row)) {
        const lh_adapt_event shown = lhi_notice_to_public(&row);
        w->n_notices_reported++;
        if (w->job->record)
            LHI_TRY(lhi_journal_add_notice(w->job->record->journal, &row, err));
        if (o->adapt->on_event)
            o->adapt->on_event(o->context, &shown);
    }
    if (lhi_decider_take_remark(mind, text, sizeof text) && o->warning)
        o->warning(o->context, text);
    return LH_OK;
}

/* --- leading a step --- */

/* Checks whether an action that is due every `every` steps follows step
 * `step`; `every` 0: never. */
static bool is_due(uint64_t step, uint32_t every)
{
    return every > 0 && (step + 1) % every == 0;
}

/* Records that the current step's checkpoint is written. */
static void mark_saved(lhi_run_worker *w)
{
    w->saved = true;
    if (w->job->record)
        w->job->record->owns_folder = true;
}

/* Passes the iterations from index `first` on to the caller's callback. */
static void report_iterations(lhi_run_worker *w, uint64_t first)
{
    for (uint64_t i = first; i < w->n_iterations; i++) {
        if (w->job->o.progress)
            w->job->o.progress(w->job->o.context, &w->iterations[i]);
        if (w->job->record)
            w->job->record->n_reported = i + 1;
    }
}

/* Runs validation and checkpoint on all ranks if they are due after step
 * `step`; rank 0. */
static lh_status lead_validation_and_save(lhi_run_worker *w, uint64_t step,
                                          lh_iteration *it, lh_error *err)
{
    const lh_train_model *m = w->job->model;
    bool ends = step + 1 == w->job->o.steps;
    lhi_command command = {.what = LHI_COMMAND_VALIDATE};
    if ((m->validation > 0 || m->validation_data) && m->validate_every > 0 &&
        (ends || is_due(step, m->validate_every)))
        LHI_TRY(lead_command(w, &command, it, NULL, err));
    w->saved = false;
    command.what = LHI_COMMAND_SAVE;
    if (m->checkpoint && is_due(step, m->checkpoint_every)) {
        LHI_TRY(lead_command(w, &command, it, NULL, err));
        mark_saved(w);
    }
    return LH_OK;
}

/* Runs one iteration as rank 0: decides proposals, sends the command, collects
 * reports, validates and saves. */
static lh_status lead_step(lhi_run_worker *w, uint64_t step, lh_error *err)
{
    lh_iteration *it = &w->iterations[w->n_iterations];
    lhi_train_report report = {
        .loss = NAN, .modules_loss = NAN, .norm = NAN, .rate = NAN};
    lhi_command command = {.what = LHI_COMMAND_STEP, .step = step};
    w->migration_ns = 0;
    LHI_TRY(decide_proposal(w, &command, err));
    LHI_TRY(lhi_run_worker_propose(w, step + 1, &command, err));
    LHI_TRY(apply_conditions(w, step, err));
    command.wants_observation =
        w->adapting &&
        lhi_adaptation_begin_iteration(w->adapting, step, w->program);
    command.t0_ns = lhi_now_ns();
    if (!w->training)
        command.t0_ns += START_LEAD_NS + (int64_t)w->n * START_LEAD_PER_RANK_NS;
    LHI_TRY(lhi_job_hold_links(w->job, w->state, w->net, command.t0_ns, err));
    *it = (lh_iteration){.step = step, .validation_loss = NAN};
    if (w->adapting)
        it->predicted_ns =
            lhi_decider_predict(lhi_adaptation_decider(w->adapting), step);
    LHI_TRY(lead_command(w, &command, it, &report, err));
    it->ns += w->migration_ns;
    it->loss = report.loss;
    it->mtp_loss = report.modules_loss;
    it->gradient_norm = report.norm;
    it->learning_rate = report.rate;
    it->tokens = report.tokens;
    if (w->training)
        LHI_TRY(lead_validation_and_save(w, step, it, err));
    w->n_iterations++;
    LHI_TRY(report_notices(w, err));
    report_iterations(w, w->n_iterations - 1);
    return LH_OK;
}

/* Proposes a schedule for the first step `step` to all ranks, if the decider
 * or the caller has one; rank 0. */
static lh_status lead_first_schedule(lhi_run_worker *w, uint64_t step,
                                     lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_SCHEDULE, .step = step};
    LHI_TRY(lhi_run_worker_propose(w, step, &command, err));
    return command.proposes
               ? lead_command(w, &command, w->iterations, NULL, err)
               : LH_OK;
}

/* Checks whether the run has a state that no checkpoint has; rank 0. A restored
 * state may follow no recorded iteration, if the record of the run was lost. */
static bool has_unsaved_state(const lhi_run_worker *w)
{
    const lh_train_model *m = w->job->model;
    return m && m->checkpoint && !w->saved &&
           (w->n_iterations > 0 || w->is_restored);
}

/* Saves a checkpoint at the run's end, unless the last step was saved;
 * rank 0. */
static lh_status lead_save(lhi_run_worker *w, lh_error *err)
{
    if (!has_unsaved_state(w))
        return LH_OK;
    lhi_command command = {.what = LHI_COMMAND_SAVE};
    return lead_command(w, &command, &w->iterations[w->n_iterations], NULL,
                        err);
}

/* Restarts all ranks if the process of a rank that another host runs is back:
 * fails the run as if that rank was lost, after a checkpoint, because no rank
 * may have its part of the state in memory. */
static lh_status restart_with_returned_rank(lhi_run_worker *w, lh_error *err)
{
    const uint32_t rank =
        w->job->returns ? lhi_tcp_returns_poll(w->job->returns) : UINT32_MAX;
    if (rank == UINT32_MAX)
        return LH_OK;
    if (has_unsaved_state(w)) {
        LHI_TRY(lead_save(w, err));
        mark_saved(w);
    }
    lhi_net_abort_return(w->net, rank);
    return lhi_fail(err, LH_EIO, "%s", lhi_net_failure(w->net));
}

/* Measures the links between stages for the profile at the run's end,
 * also of a stopped one. */
static lh_status lead_measurement(lhi_run_worker *w, lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_MEASURE};
    if (!w->observer || w->n_iterations == 0)
        return LH_OK;
    return lead_command(w, &command, &w->iterations[w->n_iterations], NULL,
                        err);
}

/* --- end of the run --- */

/* Ends the run as rank 0: collects memory and records of all ranks and writes
 * the result to `out`. */
static lh_status lead_end(lhi_run_worker *w, lhi_text *out, lh_error *err)
{
    lhi_command command = {.what = LHI_COMMAND_END,
                           .stopped_by = w->interrupted ? w->stopped_by : 0};
    LHI_TRY(decide_proposal(w, &command, err));
    for (uint32_t r = 1; r < w->n; r++)
        LHI_TRY(lhi_run_worker_send_command(w, r, &command, err));
    w->turn++;
    lhi_text held = {0};
    lh_status status = lhi_run_worker_gather_memory(w, &held, err);
    if (status == LH_OK)
        status = lhi_run_worker_collect_records(w, out, err);
    if (status == LH_OK)
        lhi_text_add(out, held.len ? held.data : "", held.len);
    lhi_text_fini(&held);
    return status == LH_OK && out->failed ? lhi_fail_nomem(err) : status;
}

/* --- leading and following --- */

/* Passes the transport's notices for the user, such as a failed rail (network
 * connection), to the caller's callback. */
static void report_transport_remarks(const lhi_run_worker *w)
{
    char text[400];
    while (lhi_net_read_notice(w->net, text, sizeof text))
        lhi_run_worker_print_remark(w, text);
}

/* Waits until all ranks have made their devices, groups and training. */
static lh_status await_all_ranks(lhi_run_worker *w, lh_error *err)
{
    const lhi_net_group all = {w->n, w->me, NULL, LHI_NET_NO_LINK, NULL, NULL};
    return lhi_net_barrier(w->net, &all, lhi_tag(LHI_TAG_BARRIER, 0, 0),
                           w->stop, err);
}

/* Warns that no checkpoint of the last iteration exists if a run stops at
 * once. */
static void report_unsaved(lhi_run_worker *w)
{
    if (has_unsaved_state(w))
        lhi_run_worker_print_remark(
            w, "stopped at once: no checkpoint of the last iteration "
               "was written; earlier checkpoints, if any, remain");
}

/* Continues the run's record at `step` (rank 0), and reports recorded
 * iterations that a lost rank 0 had not yet reported to the caller. */
static lh_status continue_record(lhi_run_worker *w, uint64_t step,
                                 lh_error *err)
{
    LHI_TRY(lhi_run_record_begin(w->job, step, &w->n_iterations, err));
    w->saved = w->n_iterations > 0 && !w->is_restored;
    if (w->job->n_restarts > 0 || w->job->is_started_again)
        lhi_run_worker_report_restart(w, step);
    report_iterations(w, w->job->record->n_reported);
    return LH_OK;
}

/* Runs all iterations as rank 0 until the end, a stop request or an exceeded
 * memory limit. */
static lh_status lead(lhi_run_worker *w, lhi_text *out, lh_error *err)
{
    bool ended = false;
    lh_status status = await_all_ranks(w, err);
    uint64_t step = w->training ? lhi_training_step(w->training) : 0;
    if (!w->training && w->job->record)
        step = lhi_run_record_next_step(w->job->record);
    if (status == LH_OK && w->job->record)
        status = continue_record(w, step, err);
    if (status == LH_OK)
        status = lead_first_schedule(w, step, err);
    for (; status == LH_OK && step < w->job->o.steps; step++) {
        if (lhi_run_worker_is_stopping(w)) {
            w->interrupted = true;
            break;
        }
        status = restart_with_returned_rank(w, err);
        if (status == LH_OK)
            status = lead_step(w, step, err);
        report_transport_remarks(w);
        if (w->over_limit_rank != LH_NONE)
            break;
    }
    if (status == LH_OK) {
        status = lead_save(w, err);
        ended = status == LH_OK;
    }
    if (status == LH_OK && w->over_limit_rank != LH_NONE)
        return lhi_job_fail_over_limit(
            w->over_limit_rank, w->over_limit_bytes,
            w->job->memory[w->over_limit_rank].limit_bytes, step, err);
    if (status == LH_OK)
        status = lead_measurement(w, err);
    if (status == LH_OK)
        status = lead_end(w, out, err);
    if (status == LH_ECANCELED) { /* results without the other ranks */
        w->interrupted = true;
        if (!ended)
            report_unsaved(w);
        lhi_text_fini(out);
        lh_error ignored;
        if (lhi_run_worker_add_header(w, 0, out, &ignored) != LH_OK)
            lhi_text_fini(out);
    }
    return status;
}

/* Executes rank 0's commands, such as a training step, until the end
 * command. */
static lh_status follow(lhi_run_worker *w, lh_error *err)
{
    LHI_TRY(await_all_ranks(w, err));
    for (;;) {
        lhi_command command;
        lhi_command_report mine;
        LHI_TRY(lhi_run_worker_receive_command(w, &command, err));
        LHI_TRY(lhi_run_worker_apply_verdict(w, &command, err));
        report_transport_remarks(w);
        if (command.what == LHI_COMMAND_END) {
            lhi_run_worker_end_following(w, &command);
            break;
        }
        if (command.what == LHI_COMMAND_STEP)
            LHI_TRY(apply_conditions(w, command.step, err));
        lhi_train_report report;
        LHI_TRY(execute_command(w, &command, &mine, &report, err));
        LHI_TRY(lhi_run_worker_send_report(w, &mine, err));
        if (command.wants_observation)
            LHI_TRY(send_observation(w, err));
        w->turn += TURNS_PER_COMMAND;
    }
    w->turn++;
    LHI_TRY(lhi_run_worker_gather_memory(w, NULL, err));
    return w->program->has_records && w->place < w->job->exec->n_ranks
               ? lhi_run_worker_send_records(w, err)
               : LH_OK;
}

/* --- construction --- */

/* Makes this rank's optimizer, checkpoints and data-parallel training. */
static lh_status make_training(lhi_run_worker *w, lh_error *err)
{
    const lhi_training_options o =
        lhi_job_training_options(w->job, w->net, w->device, w->place, w->stop);
    return lhi_training_make(&o, &w->training, err);
}

/* Opens the in-memory checkpoint, whose memory outlives this rank's process.
 * After a restart, restores the training state of all ranks from their
 * in-memory checkpoints, at the newest step that all of them contain. */
static lh_status restore_state(lhi_run_worker *w, lh_error *err)
{
    const lhi_run_record *record = w->job->record;
    uint64_t step = 0;
    if (w->me == 0 && w->job->is_started_again)
        step = LHI_NEWEST_COMMON_STEP;
    else if (w->me == 0 && record && record->has_begun)
        step = lhi_run_record_next_step(record);
    LHI_TRY(lhi_memory_checkpoint_open(w->job, w->me, &w->in_memory, err));
    if (!w->in_memory)
        return LH_OK;
    LHI_TRY(lhi_memory_checkpoint_restore(w->in_memory, w->net, step,
                                          lhi_training_state(w->training),
                                          &w->is_restored, err));
    return w->is_restored ? lhi_training_gather_restored(w->training, err)
                          : LH_OK;
}

/* Makes everything that this rank needs: device, groups, training, program,
 * observers. */
static lh_status make_rank(lhi_run_worker *w, lh_error *err)
{
    const lhi_job *job = w->job;
    if (!w->device)
        LHI_TRY(lhi_job_make_device(job, w->me, &w->device, err));
    LHI_TRY(lhi_run_worker_join_groups(w, err));
    if (job->model) {
        LHI_TRY(make_training(w, err));
        LHI_TRY(restore_state(w, err));
    }
    const lhi_rank_options o = lhi_run_worker_make_rank_options(w);
    LHI_TRY(lhi_rank_program_make(&o, &w->program, err));
    if (w->training && job->o.profiles)
        LHI_TRY(lhi_observer_make(job, w->me, &w->observer, err));
    if (lhi_job_is_adapting(job))
        w->clock = lhi_host_clock_id(job, w->me);
    if (w->me > 0)
        return LH_OK;
    w->iterations =
        job->record ? job->record->iterations
                    : calloc((size_t)job->o.steps + 1, sizeof *w->iterations);
    if (!w->iterations)
        return lhi_fail_nomem(err);
    return lhi_job_is_adapting(job)
               ? lhi_adaptation_make(job, w->net, w->device, &w->adapting, err)
               : LH_OK;
}

/* Makes this rank and runs it to the end, as rank 0 or as one that follows its
 * commands. */
static lh_status lead_or_follow(lhi_run_worker *w, lhi_text *out, lh_error *err)
{
    LHI_TRY(lhi_enable_precise_wakeups(w->job->o.realtime, err));
    if (w->me == 0 && w->job->o.stop) {
        w->stop_now = (lhi_net_stop){lhi_run_worker_stops_now, w};
        w->stop = &w->stop_now;
    }
    LHI_TRY(make_rank(w, err));
    /* A timed device's passes sleep, each for any time of its pipeline. */
    if (w->training && !lhi_job_has_threads(w->job)) {
        const lhi_watchdog_options o = {w->net, w->job->o.silence_ns,
                                        w->program->rank->program->n_passes,
                                        true};
        LHI_TRY(lhi_watchdog_start(&o, &w->watchdog, err));
    }
    return w->me == 0 ? lead(w, out, err) : follow(w, err);
}

/* Frees the worker. Called when the endpoint is closed; until then messages in
 * flight may use its memory. */
static void free_worker(void *of)
{
    lhi_run_worker *w = of;
    lhi_adaptation_free(w->adapting);
    lhi_rescheduler_free(w->rescheduler);
    free(w->observation.bytes);
    lhi_rank_program_free(w->program);
    lhi_run_worker_leave_groups(w);
    lhi_observer_free(w->observer);
    lhi_memory_checkpoint_close(w->in_memory);
    if (w->target) {
        lhi_migration_target_free(w->target);
    } else {
        lhi_training_free(w->training);
        if (w->device)
            w->device->ops->close(w->device);
    }
    lhi_state_migration_ops_fini(&w->migration);
    if (!w->job->record)
        free(w->iterations);
    free(w);
}

lh_status lhi_job_run_rank(lhi_net *net, void *of, char **result, size_t *size,
                           lh_error *err)
{
    lhi_job *job = of;
    lhi_run_worker *w = calloc(1, sizeof *w);
    if (!w)
        return lhi_fail_nomem(err);
    w->job = job;
    w->net = net;
    w->over_limit_rank = LH_NONE;
    w->me = w->place = lhi_net_rank(net);
    w->n = lhi_net_n_ranks(net);
    if (job->devices) {
        w->device = job->devices[w->me];
        job->devices[w->me] = NULL;
    }
    lhi_net_set_release(net, free_worker, w);
    lhi_text out = {0};
    lh_error own = {0};
    lh_status status = lhi_job_resume_attempt(job, net, &own);
    if (status == LH_OK)
        status = lhi_job_reroute_replaced(job, net, &own);
    if (status == LH_OK)
        status = lead_or_follow(w, &out, &own);
    if (job->launched && w->me > 0)
        job->was_stopped = w->stopped_by > 0;
    if (status != LH_OK) {
        lhi_net_abort(net, own.text);
        if (lhi_job_has_threads(job) && job->record &&
            lhi_net_lost_rank(net) != LHI_NET_NO_RANK)
            __atomic_store_n(&job->record->lost_thread, lhi_net_lost_rank(net),
                             __ATOMIC_RELAXED);
        if (w->training)
            lhi_training_stop(w->training);
        if (err)
            *err = own;
    }
    /* The threads of watchdog, adaptation and rescheduler use the endpoint,
     * which is closed next. */
    lhi_watchdog_stop(w->watchdog);
    if (w->adapting)
        lhi_adaptation_stop(w->adapting);
    if (w->rescheduler)
        lhi_rescheduler_stop(w->rescheduler);
    if (w->program)
        lhi_rank_stop(w->program->rank);
    if (out.len > 0 && lhi_text_take(&out, result, size, err) != LH_OK &&
        status == LH_OK)
        status = LH_ENOMEM;
    if (job->launched) { /* else threads may share the job */
        lhi_tcp_returns_close(job->returns);
        job->returns = NULL;
    }
    lhi_text_fini(&out);
    return status;
}
