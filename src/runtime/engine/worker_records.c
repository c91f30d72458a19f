/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the run's records on rank 0 at its end; reports restarts. */
#include "runtime/engine/restart.h"
#include "runtime/engine/run_journal.h"
#include "runtime/engine/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Appends the encoded counts and records of this rank's passes and collectives
 * to `out`. */
static lh_status write_records(const lhi_run_worker *w, lhi_text *out,
                               lh_error *err)
{
    lhi_record_counts counts = {w->program->rank->program->n_passes,
                                w->program->n_collectives};
    unsigned char head[LHI_RECORD_COUNTS_BYTES];
    size_t size = lhi_record_rows_size(&counts);
    unsigned char *rows = malloc(size + 1);
    if (!rows)
        return lhi_fail_nomem(err);
    lhi_record_counts_write(&counts, head);
    lhi_record_rows_write(&counts, w->program->records, w->program->collectives,
                          rows);
    lhi_text_add(out, (const char *)head, sizeof head);
    lhi_text_add(out, (const char *)rows, size);
    free(rows);
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lhi_run_worker_send_records(lhi_run_worker *w, lh_error *err)
{
    lhi_text text = {0};
    lh_status status = write_records(w, &text, err);
    if (status == LH_OK)
        status = lhi_run_worker_send(w, 0, LHI_TAG_RECORD, text.data,
                                     LHI_RECORD_COUNTS_BYTES, err);
    w->turn++;
    if (status == LH_OK)
        status = lhi_run_worker_send(w, 0, LHI_TAG_RECORD,
                                     text.data + LHI_RECORD_COUNTS_BYTES,
                                     text.len - LHI_RECORD_COUNTS_BYTES, err);
    lhi_text_fini(&text);
    return status;
}

/* Receives rank `rank`'s record counts into `head` and decodes them into
 * *out. */
static lh_status receive_counts(lhi_run_worker *w, uint32_t rank,
                                unsigned char head[LHI_RECORD_COUNTS_BYTES],
                                lhi_record_counts *out, lh_error *err)
{
    LHI_TRY(lhi_run_worker_receive(w, rank, LHI_TAG_RECORD, head,
                                   LHI_RECORD_COUNTS_BYTES, err));
    return lhi_run_worker_wrap_sender(
        rank, lhi_record_counts_read(head, LHI_RECORD_COUNTS_BYTES, out, err),
        err);
}

/* Receives rank `rank`'s records of the last iteration, and appends counts and
 * records to `out`; `place`: the rank's position in the process grid, for which
 * counts are checked. */
static lh_status receive_records(lhi_run_worker *w, uint32_t rank,
                                 uint32_t place, lhi_text *out, lh_error *err)
{
    lhi_record_counts counts;
    unsigned char head[LHI_RECORD_COUNTS_BYTES];
    uint64_t turn = w->turn;
    LHI_TRY(receive_counts(w, rank, head, &counts, err));
    LHI_TRY(
        lhi_job_check_counts(w->job, w->program->exec, place, &counts, err));
    size_t size = lhi_record_rows_size(&counts);
    unsigned char *rows = malloc(size + 1);
    if (!rows)
        return lhi_fail_nomem(err);
    w->turn++;
    lh_status status =
        lhi_run_worker_receive(w, rank, LHI_TAG_RECORD, rows, size, err);
    w->turn = turn;
    if (status == LH_OK) {
        lhi_text_add(out, (const char *)head, sizeof head);
        lhi_text_add(out, (const char *)rows, size);
    }
    free(rows);
    return status;
}

/* Lists the run's schedule switches and notices: those of the journal if the
 * run may restart, else this rank's. The caller releases the texts. */
static lh_status list_changes(const lhi_run_worker *w, lhi_journal_entries *out,
                              lh_error *err)
{
    unsigned char change[LHI_SWITCH_BYTES], bytes[LHI_ADAPT_NOTICE_BYTES];
    lhi_adapt_notice row;
    if (w->job->record)
        return lhi_journal_read(w->job->record->journal, out, err);
    *out = (lhi_journal_entries){.n_notices = w->n_notices_reported};
    const lhi_switch *switches =
        lhi_rescheduler_switches(w->rescheduler, &out->n_switches);
    for (uint32_t i = 0; i < out->n_switches; i++) {
        lhi_switch_write(&switches[i], change);
        lhi_text_add(&out->switches, (const char *)change, sizeof change);
        lhi_text_add(&out->switches, switches[i].assignment,
                     switches[i].n_assignment);
    }
    for (uint32_t i = 0; i < out->n_notices; i++) {
        lhi_decider_get_notice(lhi_adaptation_decider(w->adapting), i, &row);
        lhi_adapt_notice_write(&row, bytes);
        lhi_text_add(&out->notices, (const char *)bytes, sizeof bytes);
    }
    return LH_OK;
}

lh_status lhi_run_worker_add_header(const lhi_run_worker *w,
                                    uint32_t n_recorded, lhi_text *out,
                                    lh_error *err)
{
    lhi_outcome outcome = {.n_iterations = w->n_iterations,
                           .pool_growth = w->pool_growth,
                           .interrupted = w->interrupted,
                           .n_recorded = n_recorded};
    unsigned char head[LHI_OUTCOME_BYTES], row[LHI_ITERATION_BYTES];
    const lhi_proposed_plan *last = w->program->proposed;
    lhi_journal_entries changes;
    LHI_TRY(list_changes(w, &changes, err));
    outcome.n_switches = changes.n_switches;
    outcome.n_notices = changes.n_notices;
    if (w->adapting)
        outcome.monitor_ns = (uint64_t)lhi_adaptation_cpu_ns(w->adapting);
    if (last)
        outcome.texts = last->texts;
    lhi_outcome_head_write(&outcome, head);
    lhi_text_add(out, (const char *)head, sizeof head);
    for (uint32_t i = 0; i < w->n_iterations; i++) {
        lhi_iteration_write(&w->iterations[i], row);
        lhi_text_add(out, (const char *)row, sizeof row);
    }
    lhi_text_add(out, changes.switches.data, changes.switches.len);
    lhi_text_add(out, changes.notices.data, changes.notices.len);
    out->failed =
        out->failed || changes.switches.failed || changes.notices.failed;
    lhi_text_fini(&changes.switches);
    lhi_text_fini(&changes.notices);
    if (last)
        lhi_text_add(out, last->text, lhi_proposal_texts_size(&last->texts));
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lhi_run_worker_collect_records(lhi_run_worker *w, lhi_text *out,
                                         lh_error *err)
{
    uint32_t n = w->program->has_records ? w->job->exec->n_ranks : 0;
    LHI_TRY(lhi_run_worker_add_header(w, n, out, err));
    for (uint32_t p = 0; p < n; p++) {
        /* In a timed run ranks stay at their logical ranks. */
        uint32_t host = w->training ? lhi_rank_assignment_find_rank(
                                          lhi_run_worker_rank_assignment(w), p)
                                    : p;
        LHI_TRY(host == w->me ? write_records(w, out, err)
                              : receive_records(w, host, p, out, err));
    }
    if (w->observer && w->n_iterations > 0)
        lhi_text_add(out, (const char *)lhi_observer_sums(w->observer),
                     lhi_observer_count_sums(w->job) * sizeof(double));
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

void lhi_run_worker_report_restart(const lhi_run_worker *w, uint64_t step)
{
    char text[250];
    const lhi_job *job = w->job;
    const char *source = !w->training     ? ""
                         : w->is_restored ? ", with the state in memory"
                         : job->model->resume && step > 0
                             ? ", with the state in the checkpoint"
                             : ", with its initial state";
    if (job->is_started_again)
        snprintf(text, sizeof text,
                 "rank 0 was started again: the run continues at step %" PRIu64
                 "%s; the results of earlier iterations are lost",
                 step, source);
    else
        snprintf(text, sizeof text,
                 "restart %" PRIu32 " continues at step %" PRIu64 "%s",
                 job->n_restarts, step, source);
    if (job->o.warning)
        job->o.warning(job->o.context, text);
}
