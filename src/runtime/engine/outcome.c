/* SPDX-License-Identifier: Apache-2.0 */
/* Parses rank 0's outcome into a result. */
#include "runtime/engine/observer.h"
#include "runtime/engine/reschedule.h"
#include "runtime/engine/restart.h"

#include "base/sort.h"
#include "base/thread_pool.h"
#include "schedule/simulator/timeline.h"

#include <inttypes.h>
#include <longhaul/experimental/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result with the memory that it owns. */
typedef struct owned_result {
    lh_train_result result; /* first: callers hold this */
    lh_iteration *iterations;
    lhi_switch *rows;
    lh_switch *switches;              /* with the texts of `rows` */
    lhi_rank_assignment *assignments; /* per switch, if parts moved */
    lh_migration *moved;              /* per switch; refers to `assignments` */
    uint32_t n_switches;
    lhi_adapt_notice *notice_rows;
    lh_adapt_event *notices; /* with the texts of `notice_rows` */
    uint32_t n_notices;
    lh_schedule *schedule; /* NULL: the initial schedule */
    lh_data_path path;
    bool *delegated; /* mixed path: per link */
    lh_train_restart *restarts;
    lh_trace *trace;
    lhi_observed_means *observed;
    lh_profile *profile;
    lh_train_memory *memory;
    uint32_t n_memory;
    double spent_ns[LH_N_TRAIN_GROUPS]; /* mean over ranks */
    double copied_ns, waited_ns;        /* same for activation copies */
} owned_result;

/* Remaining bytes of the outcome. */
typedef struct reader {
    const unsigned char *at;
    size_t n_left;
} reader;

/* Returns the address of the next `size` bytes of the text and advances the
 * reader; NULL: fewer are left. */
static const unsigned char *take_bytes(reader *r, size_t size)
{
    const unsigned char *at = r->at;
    if (size > r->n_left)
        return NULL;
    r->at += size;
    r->n_left -= size;
    return at;
}

/* Fails with LH_EIO: rank 0's result text ends early. */
static lh_status fail_truncated(lh_error *err)
{
    return lhi_fail(err, LH_EIO, "rank 0 returned an incomplete result");
}

lh_status lhi_job_check_counts(const lhi_job *job, const lh_exec *exec,
                               uint32_t rank, const lhi_record_counts *counts,
                               lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    uint32_t n_passes = exec->ranks[rank].n_passes;
    size_t most =
        2 * (size_t)p->n_chunks + p->n_dp_ops + exec->ranks[rank].n_copies;
    if (counts->n_passes == n_passes && counts->n_collectives <= most)
        return LH_OK;
    return lhi_fail(
        err, LH_EIO,
        "rank %" PRIu32 " has recorded %" PRIu32 " passes and %" PRIu32
        " communications, not %" PRIu32 " and at most %zu",
        rank, counts->n_passes, counts->n_collectives, n_passes, most);
}

/* Checks that the chunks and operations of recorded collectives and copies
 * exist in the pipeline. */
static lh_status check_recorded(const lhi_job *job, const lh_exec *exec,
                                uint32_t rank,
                                const lhi_collective_record *executed,
                                uint32_t n, lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    for (uint32_t i = 0; i < n; i++)
        if (executed[i].chunk >= p->n_chunks ||
            executed[i].copy > exec->ranks[rank].n_copies ||
            (executed[i].op != LH_NONE && executed[i].op >= p->n_dp_ops))
            return lhi_fail(err, LH_EIO,
                            "rank %" PRIu32
                            " recorded a communication that the pipeline does "
                            "not have",
                            rank);
    return LH_OK;
}

/* Decodes one rank's records: passes and, n_executed of them, collectives and
 * copies. */
static lh_status read_rank(const lhi_job *job, const lh_exec *exec,
                           uint32_t rank, reader *r, lhi_arena *mem,
                           lhi_pass_record **records,
                           lhi_collective_record **executed,
                           uint32_t *n_executed, lh_error *err)
{
    lhi_record_counts counts;
    const unsigned char *head = take_bytes(r, LHI_RECORD_COUNTS_BYTES);
    if (!head)
        return fail_truncated(err);
    LHI_TRY(
        lhi_record_counts_read(head, LHI_RECORD_COUNTS_BYTES, &counts, err));
    LHI_TRY(lhi_job_check_counts(job, exec, rank, &counts, err));
    size_t size = lhi_record_rows_size(&counts);
    const unsigned char *rows = take_bytes(r, size);
    if (!rows)
        return fail_truncated(err);
    *records = LHI_NEW(mem, lhi_pass_record, counts.n_passes);
    *executed = LHI_NEW(mem, lhi_collective_record, counts.n_collectives);
    if (!*records || !*executed)
        return lhi_fail_nomem(err);
    *n_executed = counts.n_collectives;
    lh_status status =
        lhi_record_rows_read(rows, size, &counts, *records, *executed, err);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "rank %" PRIu32 " sends", rank);
        return status;
    }
    return check_recorded(job, exec, rank, *executed, counts.n_collectives,
                          err);
}

/* Decodes the records of all ranks and makes the measured trace. */
static lh_status read_records(const lhi_job *job, const lh_exec *exec,
                              reader *r, lhi_arena *mem, lh_trace **out,
                              lh_error *err)
{
    uint32_t n = exec->n_ranks;
    lhi_pass_record **records = LHI_NEW(mem, lhi_pass_record *, n);
    lhi_collective_record **executed = LHI_NEW(mem, lhi_collective_record *, n);
    uint32_t *n_executed = LHI_NEW(mem, uint32_t, n);
    if (!records || !executed || !n_executed)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(read_rank(job, exec, i, r, mem, &records[i], &executed[i],
                          &n_executed[i], err));
    return lhi_measured_trace(
        job, exec, (const lhi_pass_record *const *)records,
        (const lhi_collective_record *const *)executed, n_executed, out, err);
}

uint32_t lhi_job_shared_processors(const lhi_job *job)
{
    const uint32_t n =
        job->model && !job->launched ? lhi_count_processors() : 0;
    return n < lhi_grid_count_ranks(&job->grid) ? n : 0;
}

/* Returns the time that `n` processors need for the passes of all ranks. */
static double compute_shared_ns(const lhi_job *job, uint32_t n)
{
    const lh_pipeline *p = job->pipeline;
    double passes_ns = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        passes_ns +=
            ((double)p->chunks[c].f_ns + (double)p->chunks[c].d_ns +
             (double)p->chunks[c].w_ns) *
            lhi_grid_count_device_ranks(&job->grid, job->exec->chunk_ranks[c]);
    passes_ns -= (double)job->model->collective_wait_ns *
                 lhi_grid_count_copies(&job->grid);
    return passes_ns * (double)p->n_microbatches / n;
}

int64_t lhi_job_predict_iteration(const lhi_job *job, int64_t pipeline_ns)
{
    const lh_train_model *m = job->model;
    const uint32_t n = lhi_job_shared_processors(job);
    double shared_ns =
        n && !m->includes_sharing ? compute_shared_ns(job, n) : 0;
    if (shared_ns > (double)pipeline_ns && shared_ns < 0x1p62)
        pipeline_ns = (int64_t)shared_ns;
    return pipeline_ns + (m ? m->end_ns : 0);
}

/* Stores the predicted iteration time for alone_ns, the pipeline's time with
 * one processor per rank. */
static void set_prediction(const lhi_job *job, int64_t alone_ns,
                           lh_train_result *r)
{
    r->n_processors = lhi_job_shared_processors(job);
    r->predicted_ns = lhi_job_predict_iteration(job, alone_ns);
    r->unshared_ns = alone_ns + (job->model ? job->model->end_ns : 0);
}

/* Copies the job to *at, with the pipeline in effect in the last of n
 * iterations (events and `assignment` of hosts and layers). *made: that
 * pipeline, owned by the caller; NULL: the job's own. */
static lh_status find_last_conditions(const lhi_job *job,
                                      const owned_result *to, uint64_t n,
                                      const lhi_rank_assignment *assignment,
                                      lhi_job *at, lh_pipeline **made,
                                      lh_error *err)
{
    *at = *job;
    *made = NULL;
    if (n == 0)
        return LH_OK;
    LHI_TRY(lhi_job_make_step_pipeline(job, to->iterations[n - 1].step,
                                       assignment, made, err));
    if (*made)
        at->pipeline = *made;
    return LH_OK;
}

/* Returns the first step of the last iteration's schedule; *predicted_ns: that
 * schedule's predicted iteration time. A run may end before a new schedule's
 * first iteration. */
static uint64_t find_last_schedule(const lhi_job *job, const owned_result *to,
                                   int64_t *predicted_ns)
{
    const lh_train_result *r = &to->result;
    uint64_t from = 0, last = r->n_iterations
                                  ? r->iterations[r->n_iterations - 1].step
                                  : UINT64_MAX;
    *predicted_ns = lh_exec_predicted_ns(job->exec);
    for (uint32_t i = 0; i < to->n_switches; i++) {
        const lhi_switch *row = &to->rows[i];
        if (row->is_refused || row->step > last)
            continue;
        from = row->step;
        *predicted_ns = row->predicted_ns;
    }
    return from;
}

/* Least iterations in the median of measured and predicted times; single
 * iterations of shared processors differ by half. */
enum { LEAST_IN_MEDIAN = 10 };

/* Sets the result's prediction to the median of the predictions that the
 * calibrated iterations from step `from` on have, and earlier ones, up to
 * LEAST_IN_MEDIAN iterations: each is predicted under its own schedule. Returns
 * the first step with one, else `from`. `ns`: scratch, one per iteration. */
static uint64_t use_calibrated_prediction(lh_train_result *r, uint64_t from,
                                          int64_t *ns)
{
    uint32_t n = 0;
    for (uint32_t i = r->n_iterations; i-- > 0;) {
        const lh_iteration *it = &r->iterations[i];
        if (it->predicted_ns == 0 || (it->step < from && n >= LEAST_IN_MEDIAN))
            break;
        ns[n++] = it->predicted_ns;
    }
    if (n == 0)
        return from;
    r->is_calibrated = true;
    r->predicted_ns = r->unshared_ns = lhi_median_ns(ns, n);
    return r->iterations[r->n_iterations - n].step;
}

/* Computes the result's median, minimum and maximum iteration time under the
 * last schedule, the greatest lateness over all iterations, and the prediction.
 * */
static lh_status summarise(const lhi_job *job, owned_result *to, lh_error *err)
{
    lh_train_result *r = &to->result;
    int64_t predicted_ns;
    uint64_t from = find_last_schedule(job, to, &predicted_ns);
    uint32_t n = 0;
    int64_t *ns = calloc((size_t)r->n_iterations + 1, sizeof *ns);
    if (!ns)
        return lhi_fail_nomem(err);
    set_prediction(job, predicted_ns, r);
    from = use_calibrated_prediction(r, from, ns);
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const lh_iteration *it = &r->iterations[i];
        if (it->step >= from)
            ns[n++] = it->ns;
        r->missed_deadlines += it->missed_deadlines;
        if (it->max_lateness_ns > r->max_lateness_ns)
            r->max_lateness_ns = it->max_lateness_ns;
    }
    if (n) {
        r->median_ns = lhi_median_ns(ns, n);
        r->min_ns = ns[0];
        r->max_ns = ns[n - 1];
    }
    if (r->predicted_ns > 0)
        r->error = (double)r->median_ns / (double)r->predicted_ns - 1;
    free(ns);
    return LH_OK;
}

/* Decodes the observers' sums and computes the means over n iterations. */
static lh_status read_observed(const lhi_job *job, reader *r, owned_result *to,
                               uint64_t n, lh_error *err)
{
    size_t size = lhi_observer_count_sums(job) * sizeof(double);
    const unsigned char *bytes = take_bytes(r, size);
    double *sums = malloc(size);
    lh_status status =
        bytes ? sums ? LH_OK : lhi_fail_nomem(err) : fail_truncated(err);
    if (status == LH_OK) {
        memcpy(sums, bytes, size);
        status = lhi_observed_means_make(job, to->iterations, n, sums,
                                         &to->observed, err);
    }
    free(sums);
    return status;
}

/* Returns the predicted offload-copy time per iteration under the initial
 * schedule, averaged over ranks, in ns. */
static int64_t predict_copy_time(const lhi_job *job)
{
    double sum_ns = 0;
    const lh_exec_options *o = &job->exec->options;
    for (uint32_t r = 0; r < job->exec->n_ranks; r++)
        for (uint32_t i = 0; i < job->exec->ranks[r].n_copies; i++)
            sum_ns += o->lists_host_copies
                          ? (double)o->host_copy_ns
                          : (double)job->pipeline
                                ->chunks[job->exec->ranks[r].copies[i].chunk]
                                .offload_ns;
    return (int64_t)(sum_ns / job->exec->n_ranks);
}

/* Decodes each rank's measured memory and stores it with its prediction. */
static lh_status read_memory(const lhi_job *job, reader *r, owned_result *to,
                             lh_error *err)
{
    double held;
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    const unsigned char *at =
        take_bytes(r, n * LHI_MEMORY_REPORT_NUMBERS * sizeof held);
    if (!at)
        return fail_truncated(err);
    if (!(to->memory = calloc(n, sizeof *to->memory)))
        return lhi_fail_nomem(err);
    to->n_memory = n;
    for (uint32_t i = 0; i < n; i++) {
        lh_train_memory *one = &to->memory[i];
        *one = job->memory[i];
        for (uint32_t k = 0; k < LH_N_MEMORY_KINDS; k++) {
            memcpy(&held, at, sizeof held);
            at += sizeof held;
            if (!(held >= 0 && held < 0x1p53))
                return lhi_fail(err, LH_EIO,
                                "rank %" PRIu32
                                " reported an invalid memory of %g bytes",
                                i, held);
            one->measured[k] = (int64_t)held;
            if (k != LH_MEMORY_STORAGE)
                one->measured_bytes += one->measured[k];
        }
        for (uint32_t k = 0; k < LH_N_TRAIN_GROUPS + 2; k++) {
            double *const ends[] = {&to->copied_ns, &to->waited_ns};
            memcpy(&held, at, sizeof held);
            at += sizeof held;
            if (!(held >= 0 && held < 0x1p53))
                return lhi_fail(err, LH_EIO,
                                "rank %" PRIu32
                                " reported an invalid time of %g ns",
                                i, held);
            *(k < LH_N_TRAIN_GROUPS ? &to->spent_ns[k]
                                    : ends[k - LH_N_TRAIN_GROUPS]) += held / n;
        }
    }
    return LH_OK;
}

/* Decodes the migration that belongs to switch `i`, if any. */
static lh_status read_migration(const lhi_job *job, reader *r, owned_result *to,
                                uint32_t i, lh_error *err)
{
    const lhi_switch *row = &to->rows[i];
    if (row->n_assignment == 0)
        return LH_OK;
    const unsigned char *text = take_bytes(r, row->n_assignment);
    if (!text)
        return fail_truncated(err);
    LHI_TRY(lhi_rank_assignment_parse((const char *)text, row->n_assignment,
                                      &job->assignment_limits,
                                      &to->assignments[i], err));
    to->moved[i] = lhi_moved_to_public(row, &to->assignments[i]);
    return LH_OK;
}

/* Decodes `n` schedule switches with their migrations. */
static lh_status read_switches(const lhi_job *job, reader *r, uint32_t n,
                               owned_result *to, lh_error *err)
{
    if (n > r->n_left / LHI_SWITCH_BYTES)
        return fail_truncated(err);
    to->rows = calloc(n + 1u, sizeof *to->rows);
    to->switches = calloc(n + 1u, sizeof *to->switches);
    to->assignments = calloc(n + 1u, sizeof *to->assignments);
    to->moved = calloc(n + 1u, sizeof *to->moved);
    if (!to->rows || !to->switches || !to->assignments || !to->moved)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *bytes = take_bytes(r, LHI_SWITCH_BYTES);
        if (!bytes)
            return fail_truncated(err);
        LHI_TRY(lhi_switch_read(bytes, LHI_SWITCH_BYTES, &to->rows[i], err));
        to->switches[i] = lhi_switch_to_public(&to->rows[i]);
        to->n_switches++;
        LHI_TRY(read_migration(job, r, to, i, err));
    }
    return LH_OK;
}

/* Decodes `n` notices of the adaptation (events and decisions). */
static lh_status read_notices(reader *r, uint32_t n, owned_result *to,
                              lh_error *err)
{
    if (n > r->n_left / LHI_ADAPT_NOTICE_BYTES)
        return fail_truncated(err);
    to->notice_rows = calloc(n + 1u, sizeof *to->notice_rows);
    to->notices = calloc(n + 1u, sizeof *to->notices);
    if (!to->notice_rows || !to->notices)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        LHI_TRY(lhi_adapt_notice_read(take_bytes(r, LHI_ADAPT_NOTICE_BYTES),
                                      LHI_ADAPT_NOTICE_BYTES,
                                      &to->notice_rows[i], err));
        to->notices[i] = lhi_notice_to_public(&to->notice_rows[i]);
        to->n_notices++;
    }
    return LH_OK;
}

/* Decodes the last iteration's schedule; *out NULL: the initial one. */
static lh_status read_schedule(const lhi_job *job, reader *r,
                               const lhi_outcome *head,
                               const lhi_proposed_plan **out, lh_error *err)
{
    const unsigned char *text =
        take_bytes(r, lhi_proposal_texts_size(&head->texts));
    *out = NULL;
    if (!text)
        return fail_truncated(err);
    if (!head->texts.n_rows)
        return LH_OK;
    return lhi_proposed_plan_acquire(job->proposals, (const char *)text,
                                     &head->texts, out, err);
}

/* Decodes the ranks' records of the last iteration, which ran under
 * `followed`, and makes its trace. */
static lh_status read_last(const lhi_job *job,
                           const lhi_proposed_plan *followed, reader *r,
                           owned_result *to, uint64_t n, lh_error *err)
{
    lhi_job at;
    lh_pipeline *made;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    const lh_exec *exec = followed ? followed->exec : job->exec;
    lh_status status = find_last_conditions(
        job, to, n, followed ? followed->assignment : NULL, &at, &made, err);
    if (status == LH_OK) {
        status = read_records(&at, exec, r, mem, &to->trace, err);
        lh_pipeline_free(made);
    }
    lhi_arena_free(mem);
    return status;
}

/* Stores the last iteration's data path in the result: direct, delegated
 * (messages copied through host memory) or mixed. */
static lh_status store_path(const lhi_job *job, const lh_exec *exec,
                            owned_result *to, lh_error *err)
{
    const bool *links = exec->options.delegation->links;
    const size_t n = job->pipeline->n_links;
    to->path = exec->options.path;
    if (!links)
        return LH_OK;
    if (!(to->delegated = malloc(n * sizeof *links + 1)))
        return lhi_fail_nomem(err);
    memcpy(to->delegated, links, n * sizeof *links);
    return LH_OK;
}

/* Copies the run's restarts to the result. */
static lh_status copy_restarts(const lhi_run_record *record, owned_result *to,
                               lh_error *err)
{
    const size_t size = record->n_restarts * sizeof *to->restarts;
    to->restarts = malloc(size + 1);
    if (!to->restarts)
        return lhi_fail_nomem(err);
    memcpy(to->restarts, record->restarts, size);
    to->result.n_restarts = record->n_restarts;
    to->result.restarts = to->restarts;
    return LH_OK;
}

/* Decodes rank 0's whole result, in the order in which it was written, and
 * computes the summary. */
static lh_status read_all(const lhi_job *job, reader *r, owned_result *to,
                          lh_error *err)
{
    lhi_outcome head;
    const lhi_proposed_plan *followed = NULL;
    size_t head_bytes =
        r->n_left < LHI_OUTCOME_BYTES ? r->n_left : LHI_OUTCOME_BYTES;
    LHI_TRY(lhi_outcome_head_read(take_bytes(r, head_bytes), head_bytes, &head,
                                  err));
    if (head.n_iterations > r->n_left / LHI_ITERATION_BYTES ||
        (head.n_recorded && head.n_recorded != job->exec->n_ranks))
        return fail_truncated(err);
    to->iterations = calloc(head.n_iterations + 1, sizeof *to->iterations);
    if (!to->iterations)
        return lhi_fail_nomem(err);
    for (uint64_t i = 0; i < head.n_iterations; i++)
        to->iterations[i] =
            lhi_iteration_read(take_bytes(r, LHI_ITERATION_BYTES));
    lh_status status = read_switches(job, r, head.n_switches, to, err);
    if (status == LH_OK)
        status = read_notices(r, head.n_notices, to, err);
    if (status == LH_OK)
        status = read_schedule(job, r, &head, &followed, err);
    if (status == LH_OK && followed)
        status =
            lhi_schedule_copy(followed->exec->schedule, &to->schedule, err);
    const lh_exec *exec = followed ? followed->exec : job->exec;
    if (status == LH_OK)
        status = store_path(job, exec, to, err);
    if (status == LH_OK && head.n_recorded)
        status = read_last(job, followed, r, to, head.n_iterations, err);
    if (status == LH_OK && job->model && job->o.profiles &&
        head.n_iterations > 0 && head.n_recorded > 0)
        status = read_observed(job, r, to, head.n_iterations, err);
    if (status == LH_OK && job->model && head.n_recorded > 0)
        status = read_memory(job, r, to, err);
    if (status == LH_OK && r->n_left > 0)
        status = lhi_fail(err, LH_EIO, "rank 0 returned data after its result");
    to->result = (lh_train_result){
        .n_iterations = (uint32_t)head.n_iterations,
        .iterations = to->iterations,
        .interrupted = head.interrupted,
        .trace = to->trace,
        .n_pool_growths = (uint32_t)head.pool_growth,
        .monitor_ns = (int64_t)head.monitor_ns,
        .utilisation = -1,
        .n_ranks = lhi_grid_count_ranks(&job->grid),
        .n_replicas = job->grid.replicas,
        .context = job->grid.context,
        .tensor = job->grid.tensor,
        .expert = job->grid.expert,
    };
    if (status == LH_OK && job->n_restarts)
        status = copy_restarts(job->record, to, err);
    const uint64_t n_measured =
        head.n_iterations - (job->record ? job->record->n_kept : 0);
    if (n_measured > 0) {
        to->result.copy_ns = (int64_t)(to->copied_ns / (double)n_measured);
        to->result.copy_wait_ns = (int64_t)(to->waited_ns / (double)n_measured);
    }
    to->result.predicted_copy_ns = predict_copy_time(job);
    for (uint32_t k = 0; k < LH_N_TRAIN_GROUPS && n_measured > 0; k++)
        to->result.exchange_ns[k] =
            (int64_t)(to->spent_ns[k] / (double)n_measured);
    if (status == LH_OK)
        status = summarise(job, to, err);
    lhi_proposed_plan_release(followed);
    return status;
}

lh_status lhi_outcome_read(const lhi_job *job, const char *text, size_t size,
                           lh_train_result **out, lh_error *err)
{
    reader r = {(const unsigned char *)text, size};
    owned_result *to = calloc(1, sizeof *to);
    if (!to)
        return lhi_fail_nomem(err);
    if (!text) { /* rank 0 in another process has it */
        to->result.is_on_other_process = true;
        to->result.interrupted = job->was_stopped;
        to->result.utilisation = -1;
        *out = &to->result;
        return LH_OK;
    }
    lh_status status = read_all(job, &r, to, err);
    if (status != LH_OK) {
        lh_train_result_free(&to->result);
        return status;
    }
    *out = &to->result;
    return LH_OK;
}

const lhi_observed_means *
lhi_result_observed_means(const lh_train_result *result)
{
    return ((const owned_result *)result)->observed;
}

void lhi_result_take_profile(lh_train_result *result, lh_profile *profile)
{
    owned_result *own = (owned_result *)result;
    own->profile = profile;
    own->result.profile = profile;
}

const lh_switch *lh_train_switches(const lh_train_result *result,
                                   uint32_t *n_switches)
{
    const owned_result *own = (const owned_result *)result;
    *n_switches = own->n_switches;
    return own->switches;
}

const lh_migration *lh_train_migration(const lh_train_result *result,
                                       uint32_t i)
{
    const owned_result *own = (const owned_result *)result;
    return i < own->n_switches && own->rows[i].n_assignment ? &own->moved[i]
                                                            : NULL;
}

/* Returns all events and decisions of an adaptive run, and their number;
 * borrowed from the result. */
const lh_adapt_event *lh_train_adapt_events(const lh_train_result *result,
                                            uint32_t *n_notices)
{
    const owned_result *own = (const owned_result *)result;
    *n_notices = own->n_notices;
    return own->notices;
}

/* Returns the peak memory of each rank over all replicas; NULL with *n_ranks 0:
 * unknown. Borrowed from the result. */
const lh_train_memory *lh_train_peak_memory(const lh_train_result *result,
                                            uint32_t *n_ranks)
{
    const owned_result *own = (const owned_result *)result;
    *n_ranks = own->n_memory;
    return own->memory;
}

const lh_schedule *lh_train_schedule(const lh_train_result *result)
{
    return ((const owned_result *)result)->schedule;
}

lh_data_path lh_train_path(const lh_train_result *result,
                           const bool **delegated)
{
    const owned_result *own = (const owned_result *)result;
    if (delegated)
        *delegated = own->delegated;
    return own->path;
}

uint32_t lh_train_n_iterations(const lh_train_result *result)
{
    return result->n_iterations;
}

const lh_iteration *lh_train_iteration(const lh_train_result *result,
                                       uint32_t i)
{
    return &result->iterations[i];
}

int64_t lh_train_predicted_ns(const lh_train_result *result)
{
    return result->predicted_ns;
}

int64_t lh_train_median_ns(const lh_train_result *result)
{
    return result->median_ns;
}

void lh_train_result_free(lh_train_result *result)
{
    owned_result *own = (owned_result *)result;
    if (!own)
        return;
    lh_trace_free(own->trace);
    lhi_observed_means_free(own->observed);
    lh_profile_free(own->profile);
    free(own->memory);
    free(own->restarts);
    free(own->iterations);
    for (uint32_t i = 0; i < own->n_switches; i++)
        lhi_rank_assignment_fini(&own->assignments[i]);
    free(own->assignments);
    free(own->moved);
    free(own->switches);
    free(own->notice_rows);
    free(own->notices);
    lh_schedule_free(own->schedule);
    free(own->rows);
    free(own->delegated);
    free(own);
}
