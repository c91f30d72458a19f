/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the run's records on rank 0 at its end. */
#include "engine/member.h"

#include <stdlib.h>

/* Formats this rank's counts and rows. */
static lh_status write_records(const lhi_member *w, lhi_text *out,
                               lh_error *err)
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

lh_status lhi_member_send_records(lhi_member *w, lh_error *err)
{
    lhi_text text = {0};
    lh_status status = write_records(w, &text, err);
    if (status == LH_OK)
        status = lhi_member_tell(w, 0, LHI_TAG_RECORD, text.data,
                                 LHI_COUNTS_BYTES, err);
    w->turn++;
    if (status == LH_OK)
        status =
            lhi_member_tell(w, 0, LHI_TAG_RECORD, text.data + LHI_COUNTS_BYTES,
                            text.len - LHI_COUNTS_BYTES, err);
    lhi_text_fini(&text);
    return status;
}

static lh_status hear_counts(lhi_member *w, uint32_t rank,
                             unsigned char head[LHI_COUNTS_BYTES],
                             lhi_counts *out, lh_error *err)
{
    LHI_TRY(
        lhi_member_hear(w, rank, LHI_TAG_RECORD, head, LHI_COUNTS_BYTES, err));
    return lhi_member_from(
        rank, lhi_counts_read(head, LHI_COUNTS_BYTES, out, err), err);
}

static lh_status hear_records(lhi_member *w, uint32_t rank, uint32_t place,
                              lhi_text *out, lh_error *err)
{
    lhi_counts counts;
    unsigned char head[LHI_COUNTS_BYTES];
    uint64_t turn = w->turn;
    LHI_TRY(hear_counts(w, rank, head, &counts, err));
    LHI_TRY(lhi_job_check_counts(w->job, w->shift->exec, place, &counts, err));
    size_t size = lhi_rows_bytes(&counts);
    unsigned char *rows = malloc(size + 1);
    if (!rows)
        return lhi_fail_nomem(err);
    w->turn++;
    lh_status status =
        lhi_member_hear(w, rank, LHI_TAG_RECORD, rows, size, err);
    w->turn = turn;
    if (status == LH_OK) {
        lhi_text_add(out, (const char *)head, sizeof head);
        lhi_text_add(out, (const char *)rows, size);
    }
    free(rows);
    return status;
}

/* Appends the notices that were passed on. */
static void add_told(const lhi_member *w, lhi_text *out)
{
    unsigned char bytes[LHI_TOLD_BYTES];
    lhi_told row;
    for (uint32_t i = 0; i < w->n_told; i++) {
        lhi_deciding_told(lhi_adapting_mind(w->adapting), i, &row);
        lhi_told_write(&row, bytes);
        lhi_text_add(out, (const char *)bytes, sizeof bytes);
    }
}

void lhi_member_add_heading(const lhi_member *w, uint32_t n_recorded,
                            lhi_text *out)
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
    outcome.n_told = w->n_told;
    if (last)
        outcome.texts = last->texts;
    lhi_outcome_head_write(&outcome, head);
    lhi_text_add(out, (const char *)head, sizeof head);
    for (uint32_t i = 0; i < w->n_iterations; i++) {
        lhi_iteration_write(&w->iterations[i], row);
        lhi_text_add(out, (const char *)row, sizeof row);
    }
    for (uint32_t i = 0; i < outcome.n_switches; i++) {
        lhi_switch_write(&switches[i], change);
        lhi_text_add(out, (const char *)change, sizeof change);
        if (switches[i].n_seats)
            lhi_text_add(out, switches[i].seats, switches[i].n_seats);
    }
    add_told(w, out);
    if (last)
        lhi_text_add(out, last->text, lhi_texts_size(&last->texts));
}

lh_status lhi_member_collect(lhi_member *w, lhi_text *out, lh_error *err)
{
    uint32_t n = w->shift->has_records ? w->job->exec->n_ranks : 0;
    lhi_member_add_heading(w, n, out);
    for (uint32_t p = 0; p < n; p++) {
        /* In a timed run ranks stay at their logical ranks. */
        uint32_t host =
            w->training ? lhi_seats_host(lhi_member_seats(w), p) : p;
        LHI_TRY(host == w->me ? write_records(w, out, err)
                              : hear_records(w, host, p, out, err));
    }
    if (w->observer && w->n_iterations > 0)
        lhi_text_add(out, (const char *)lhi_observer_sums(w->observer),
                     lhi_observed_size(w->job) * sizeof(double));
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}
