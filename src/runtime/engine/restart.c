/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/engine/restart.h"

#include "base/fail.h"
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/memory_checkpoint.h"
#include "runtime/engine/rerouting.h"
#include "runtime/engine/reschedule.h"
#include "runtime/engine/run_journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Tag rounds below those of resuming ranks: see docs/formats/wire.md. */
enum { RESTART_TURN = (1 << 23) - 1, COUNT_TURN = (1 << 23) - 4 };

lh_status lhi_job_check_restarts(const lhi_job *job, lh_error *err)
{
    const lh_train_options *o = &job->o;
    if (!o->max_restarts)
        return LH_OK;
    if (job->model && !job->model->checkpoint)
        return lhi_fail(err, LH_EINVAL,
                        "a run restarts from its checkpoints: give it a folder "
                        "for them");
    if (o->profiles)
        return lhi_fail(err, LH_EINVAL,
                        "a run that restarts measures no profile");
    return LH_OK;
}

lh_status lhi_run_record_make(const lh_train_options *o, lhi_run_record **out,
                              lh_error *err)
{
    const size_t restarts_bytes =
        sizeof(lhi_run_record) + o->max_restarts * sizeof(lh_train_restart);
    if (o->steps >= (SIZE_MAX - restarts_bytes) / sizeof(lh_iteration))
        return lhi_fail_nomem(err);
    const size_t n = (size_t)o->steps + 1;
    const size_t bytes = restarts_bytes + n * sizeof(lh_iteration);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    lhi_run_record *made = map;
    const lh_status status = lhi_journal_make(&made->journal, err);
    if (status != LH_OK) {
        munmap(map, bytes);
        return status;
    }
    *out = made;
    (*out)->bytes = bytes;
    (*out)->restarts = (lh_train_restart *)(void *)((*out)->iterations + n);
    return LH_OK;
}

void lhi_run_record_free(lhi_run_record *record)
{
    if (!record)
        return;
    close(record->journal);
    munmap(record, record->bytes);
}

/* Finds the step of the newest checkpoint that the run has written; *step 0:
 * none. LH_EIO: its folder cannot be read. */
static lh_status find_own_checkpoint(const lhi_job *job, uint64_t *step,
                                     lh_error *err)
{
    const lhi_run_record *r = job->record;
    uint64_t *steps = NULL;
    size_t n = 0;
    *step = 0;
    /* The first save creates the folder. */
    if (!r->owns_folder ||
        (access(job->model->checkpoint, F_OK) != 0 && errno == ENOENT))
        return LH_OK;
    const lh_status status =
        lhi_train_find(job->model->checkpoint, &steps, &n, err);
    if (status == LH_EINPUT) /* none yet */
        return LH_OK;
    if (status != LH_OK) {
        lhi_fail_add_context(err, "cannot restart");
        return status;
    }
    if (n > 0 && (r->is_continued || steps[n - 1] > r->first_step))
        *step = steps[n - 1];
    free(steps);
    return LH_OK;
}

/* Records in the job which rank was lost; LHI_NET_NO_RANK: unknown. A host that
 * is back is no loss. */
static void record_lost_rank(lhi_job *job, uint32_t rank,
                             lhi_failure_cause cause)
{
    job->is_return = cause == LHI_CAUSE_RETURN;
    if (job->is_return)
        return;
    if (rank == LHI_NET_NO_RANK) {
        job->n_lost_again = 0;
        return;
    }
    job->n_lost_again = job->lost_rank == rank ? job->n_lost_again + 1 : 1;
    job->lost_rank = rank;
}

/* Formats a note on a rank that was lost several times in succession into
 * `out`; "": there is none. */
static void format_lost_again(const lhi_job *job, char out[80])
{
    *out = '\0';
    if (job->n_lost_again > 1 && !job->is_return)
        snprintf(out, 80,
                 "; rank %" PRIu32 " was lost %" PRIu32
                 " times in succession: check its host",
                 job->lost_rank, job->n_lost_again);
}

/* Adds to the error `why` of a run that lost a rank that all its restarts are
 * used up, and its last checkpoint, if this process knows it. */
static void add_restarts_used_up(const lhi_job *job, lh_error *why)
{
    const uint32_t n = job->o.max_restarts;
    char text[sizeof why->text], last[sizeof why->text] = "", again[80];
    uint64_t step = 0;
    if (job->record->has_begun && job->model &&
        find_own_checkpoint(job, &step, NULL) == LH_OK)
        snprintf(last, sizeof last,
                 step ? "; the last checkpoint is step %" PRIu64
                        " in %.200s: continue with --resume"
                      : "; it has no checkpoint",
                 step, job->model->checkpoint);
    snprintf(text, sizeof text, "%.200s", why->text);
    format_lost_again(job, again);
    lhi_fail(why, why->code,
             "%s; all restarts are used up (--max-restarts %" PRIu32 ")%s%s",
             text, n, again, last);
}

void lhi_job_add_last_checkpoint(const lhi_job *job, lh_error *why)
{
    const lh_train_model *m = job->model;
    char text[sizeof why->text];
    uint64_t *steps = NULL;
    size_t n = 0;
    if (!m || !m->checkpoint || m->fresh ||
        lhi_train_find(m->checkpoint, &steps, &n, NULL) != LH_OK)
        return;
    snprintf(text, sizeof text, "%.300s", why->text);
    if (n > 0)
        lhi_fail(why, why->code,
                 "%s; the last checkpoint is step %" PRIu64
                 " in %.200s: continue with --resume",
                 text, steps[n - 1], m->checkpoint);
    free(steps);
}

/* Makes the job resume from its own checkpoints. */
static void resume_own_checkpoint(lhi_job *job)
{
    job->restarted = *job->model;
    job->restarted.resume = job->model->checkpoint;
    job->restarted.weights = NULL;
    job->restarted.fresh = false;
    job->model = &job->restarted;
}

/* Prepares the next attempt after one that failed because of `why`, and prints
 * a remark on rank 0. *restarts: false if all restarts are used up. */
static lh_status prepare_restart(lhi_job *job, const char *why, bool *restarts,
                                 lh_error *err)
{
    char text[700], again[80];
    *restarts = job->record && job->n_restarts < job->o.max_restarts;
    if (!*restarts)
        return LH_OK;
    job->n_restarts++;
    if (!job->record->has_begun && job->launched)
        return LH_OK; /* not rank 0 */
    uint64_t step = 0;
    if (job->model) /* else the ranks would detect it, in each attempt */
        LHI_TRY(find_own_checkpoint(job, &step, err));
    if (step > 0 && lhi_job_has_threads(job)) /* they share the job */
        resume_own_checkpoint(job);
    format_lost_again(job, again);
    snprintf(text, sizeof text,
             "%.500s; all ranks restart (restart %" PRIu32
             " of at most %" PRIu32 ")%s",
             why, job->n_restarts, job->o.max_restarts, again);
    if (job->o.warning)
        job->o.warning(job->o.context, text);
    return job->launched ? LH_OK : lhi_job_reroute_lost(job, err);
}

/* Checks whether this rank 0 was started again, while the others restart, and
 * has not continued the run since. The checkpoints in its folder then belong to
 * the run, unless --fresh was to remove others. */
static lh_status find_lost_record(lhi_job *job, lhi_net *net, lh_error *err)
{
    lhi_run_record *r = job->record;
    double n_restarts = job->n_restarts;
    LHI_TRY(lhi_all_reduce_sum(net, COUNT_TURN, &n_restarts, 1, NULL, err));
    const bool only_others_restarted = job->n_restarts == 0 && n_restarts > 0;
    if (lhi_net_rank(net) > 0 || r->has_begun ||
        (!r->is_continued && !only_others_restarted))
        return LH_OK;
    if (job->model->fresh)
        return lhi_fail(err, LH_EINVAL,
                        "rank 0 was started again during a run with --fresh, "
                        "so its folder may have other checkpoints: start all "
                        "ranks again with --resume");
    job->is_started_again = r->is_continued = r->owns_folder = true;
    return LH_OK;
}

lh_status lhi_job_resume_attempt(lhi_job *job, lhi_net *net, lh_error *err)
{
    uint64_t own = 0;
    double step = 0;
    if (!job->record || !job->model || lhi_job_has_threads(job))
        return LH_OK;
    LHI_TRY(find_lost_record(job, net, err));
    if (lhi_net_rank(net) == 0 &&
        (job->record->has_begun || job->is_started_again))
        LHI_TRY(find_own_checkpoint(job, &own, err));
    step = (double)own;
    LHI_TRY(lhi_all_reduce_sum(net, RESTART_TURN, &step, 1, NULL, err));
    if (step > 0)
        resume_own_checkpoint(job);
    return LH_OK;
}

/* Calls the caller's stop callback and stores its answer for the ranks; true:
 * rank 0 runs here and stops now. */
static bool poll_stop(void *of)
{
    const lhi_job *job = of;
    int asked = job->o.stop(job->o.context);
    atomic_store(job->stop_request, asked);
    return asked == LH_STOP_NOW && !job->follows;
}

/* Runs all ranks until they end; *lost_rank: the rank that was lost, or
 * LHI_NET_NO_RANK. */
static lh_status run_ranks(lhi_job *job, const lhi_attempts *a,
                           const lhi_net_stop *stop, lhi_rank_result *results,
                           uint32_t *lost_rank, lh_error *err)
{
    const lhi_local_options options = {.stop = stop,
                                       .silence_ns = job->o.silence_ns,
                                       .lost_rank = lost_rank,
                                       .numbers = a->numbers,
                                       .has_remote_peers = a->failure != NULL};
    *lost_rank = LHI_NET_NO_RANK;
    if (!a->are_threads)
        return lhi_local_run_or_stop(a->n, a->n_links, a->links, a->rank_main,
                                     a->context, &options, results, err);
    job->record->lost_thread = LHI_NET_NO_RANK;
    const lh_status status = lhi_inproc_run(
        a->n, a->n_links, a->links, a->rank_main, a->context, results, err);
    *lost_rank = job->record->lost_thread;
    return status;
}

/* Checks whether the caller asked the run to stop; `stop`: NULL without a stop
 * callback. */
static bool is_stopping(const lhi_job *job, const lhi_net_stop *stop)
{
    return stop && (atomic_load(job->stop_request) != LH_STOP_NO ||
                    job->o.stop(job->o.context) != LH_STOP_NO);
}

/* Ends the run, whose other ranks restart because of `why`, on a launched rank
 * that received a stop request: adds that to `why`. */
static void stop_restart(const lhi_job *job, const lhi_attempts *a,
                         lh_error *why)
{
    char text[sizeof why->text];
    if (!a->failure || !job->record || job->n_restarts >= job->o.max_restarts)
        return;
    a->failure->stops_run = a->failure->is_reporter = true;
    snprintf(text, sizeof text, "%.300s", why->text);
    lhi_fail(why, why->code,
             "%s; the run ends instead of restarting, because rank %" PRIu32
             " received a stop request",
             text, a->numbers[0]);
}

/* Runs the attempts (starts of all ranks) until one succeeds or restarts are
 * used up; `stop`: NULL without a stop callback; `results`: of the last
 * attempt, one per rank. */
static lh_status repeat_attempts(lhi_job *job, const lhi_attempts *a,
                                 const lhi_net_stop *stop,
                                 lhi_rank_result *results, lh_error *err)
{
    uint32_t lost_rank;
    lh_error why = {0};
    lh_status status;
    lhi_failure_cause cause;
    bool restarts = false, needs_restart;
    do {
        for (uint32_t i = 0; i < a->n; i++) {
            free(results[i].text);
            results[i] = (lhi_rank_result){NULL, 0};
        }
        if (a->prepare)
            LHI_TRY(a->prepare(a->context, err));
        status = run_ranks(job, a, stop, results, &lost_rank, &why);
        cause = lost_rank != LHI_NET_NO_RANK ? LHI_CAUSE_LOSS : LHI_CAUSE_ERROR;
        if (a->failure && *a->failure->text) {
            cause = a->failure->cause;
            lost_rank = a->failure->rank;
            lhi_fail(&why, status, "%s", a->failure->text);
        } else if (a->failure && !a->failure->has_joined) {
            /* The others cannot know it and do not join a second time. */
            cause = job->n_restarts > 0 ? cause : LHI_CAUSE_ERROR;
        }
        const bool fails_by_loss = status != LH_OK && cause != LHI_CAUSE_ERROR;
        needs_restart = fails_by_loss && !is_stopping(job, stop);
        if (fails_by_loss && !needs_restart)
            stop_restart(job, a, &why);
        if (needs_restart)
            record_lost_rank(job, lost_rank, cause);
        restarts = needs_restart;
        const lh_status ready =
            restarts ? prepare_restart(job, why.text, &restarts, err) : LH_OK;
        if (ready != LH_OK) {
            if (a->failure) /* no other process detects it */
                a->failure->is_reporter = true;
            return ready;
        }
    } while (restarts);
    if (needs_restart && job->record)
        add_restarts_used_up(job, &why);
    else if (needs_restart)
        lhi_job_add_last_checkpoint(job, &why);
    if (status != LH_OK && err)
        *err = why;
    return status;
}

/* Runs the attempts, with memory files for their in-memory checkpoints. */
static lh_status run_attempts(lhi_job *job, const lhi_attempts *a,
                              const lhi_net_stop *stop,
                              lhi_rank_result *results, lh_error *err)
{
    int *files = NULL;
    if (job->record && job->model)
        LHI_TRY(lhi_memory_files_make(a->n, &files, err));
    job->memory_files = files;
    const lh_status status = repeat_attempts(job, a, stop, results, err);
    job->memory_files = NULL;
    lhi_memory_files_free(a->n, files);
    return status;
}

lh_status lhi_job_run_attempts(lhi_job *job, const lhi_attempts *attempts,
                               lhi_rank_result *results, lh_error *err)
{
    if (!job->o.stop)
        return run_attempts(job, attempts, NULL, results, err);
    /* Only this process receives signals: it stores stop requests for rank 0 in
     * shared memory. */
    void *map = mmap(NULL, sizeof *job->stop_request, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    job->stop_request = map;
    const lhi_net_stop stop = {poll_stop, job};
    lh_status status = run_attempts(job, attempts, &stop, results, err);
    munmap(map, sizeof *job->stop_request);
    job->stop_request = NULL;
    return status;
}

uint64_t lhi_run_record_next_step(const lhi_run_record *record)
{
    return record->first_step + record->n_reported;
}

lh_status lhi_run_record_begin(const lhi_job *job, uint64_t step,
                               uint32_t *n_kept, lh_error *err)
{
    lhi_run_record *r = job->record;
    if (!r->has_begun || step < r->first_step)
        r->first_step = step;
    r->has_begun = true;
    r->owns_folder = r->owns_folder || (job->model && !job->model->fresh);
    r->n_kept = step - r->first_step;
    /* Some attempts may have been lost before they began. */
    while (r->n_restarts < job->n_restarts) {
        const uint64_t n_lost =
            r->n_reported > r->n_kept ? r->n_reported - r->n_kept : 0;
        r->restarts[r->n_restarts] = (lh_train_restart){step, n_lost};
        r->n_reported -= n_lost;
        /* Last, as this rank may be killed at any time. */
        __atomic_add_fetch(&r->n_restarts, 1, __ATOMIC_RELEASE);
    }
    *n_kept = (uint32_t)r->n_kept;
    lhi_switch back;
    bool switches = false;
    LHI_TRY(lhi_journal_begin_attempt(r->journal, step, job->exec, &back,
                                      &switches, err));
    /* The callbacks of a new process have seen no switch. */
    if (switches && lhi_job_has_threads(job) && job->o.switched) {
        const lh_switch what = lhi_switch_to_public(&back);
        job->o.switched(job->o.context, &what);
    }
    return LH_OK;
}
