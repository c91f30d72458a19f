/* SPDX-License-Identifier: Apache-2.0 */
/* Kills or stops this rank's process where the event timeline says so. A rank
 * that is a thread ends or sleeps instead. */
#include "runtime/engine/restart.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "resilience/event_timeline/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Main function for the process that wakes the stopped process `pid` after
 * pause_ns; repeats it until that process ends this one. */
_Noreturn static void wake(pid_t pid, int64_t pause_ns)
{
    const struct timespec again = {.tv_nsec = 10000000};
    struct timespec left = {pause_ns / 1000000000, pause_ns % 1000000000};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != pid) /* ended before the call */
        _exit(0);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    while (getppid() == pid && kill(pid, SIGCONT) == 0)
        nanosleep(&again, NULL);
    _exit(0);
}

/* Stops this process for pause_ns. Another process wakes it. */
static lh_status stop_process(int64_t pause_ns, lh_error *err)
{
    const pid_t me = getpid(), other = fork();
    if (other < 0)
        return lhi_fail(err, LH_EIO, "cannot stop this process for a time: %s",
                        strerror(errno));
    if (other == 0)
        wake(me, pause_ns);
    raise(SIGSTOP);
    kill(other, SIGKILL);
    while (waitpid(other, NULL, 0) < 0 && errno == EINTR)
        ;
    return LH_OK;
}

/* Applies event `e` to rank `rank`, which is a thread. */
static lh_status apply_to_thread(const lhi_job *job, uint32_t rank,
                                 const lh_event *e, lh_error *err)
{
    if (e->process == LH_PROCESS_STOPPED) {
        lhi_sleep_for(e->pause_ns / job->o.event_timeline->speed);
        return LH_OK;
    }
    __atomic_store_n(&job->record->lost_thread, rank, __ATOMIC_RELAXED);
    return lhi_fail(err, LH_EIO, "%s by an event",
                    e->process == LH_PROCESS_LOST ? "lost" : "killed");
}

/* Records that a rank does not come back on a host of its own. */
static void record_lost_rank(const lhi_job *job, uint32_t rank)
{
    job->record->lost_rank = rank;
    __atomic_add_fetch(&job->record->n_lost_ranks, 1, __ATOMIC_RELEASE);
}

lh_status lhi_job_apply_process_events(const lhi_job *job, uint32_t rank,
                                       uint64_t step, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    if (job->replaces) /* the events were the lost process's */
        return LH_OK;
    for (uint32_t i = 0; timeline && i < timeline->n_effects; i++) {
        const lh_event *e = timeline->effects[i].event;
        bool *is_done = job->record ? &job->record->events_done[i] : NULL;
        if (!e->process || e->rank != rank || (uint64_t)e->first_step != step ||
            (is_done && *is_done))
            continue;
        if (is_done) /* first, as this process may not survive it */
            *is_done = true;
        if (job->is_started_again) /* as above */
            continue;
        if (e->process == LH_PROCESS_LOST)
            record_lost_rank(job, rank);
        if (lhi_job_has_threads(job)) {
            LHI_TRY(apply_to_thread(job, rank, e, err));
            continue;
        }
        if (e->process == LH_PROCESS_LOST && job->launched)
            kill(getppid(), SIGKILL);
        if (e->process != LH_PROCESS_STOPPED)
            raise(SIGKILL);
        LHI_TRY(stop_process(e->pause_ns / timeline->speed, err));
    }
    return LH_OK;
}

lh_status lhi_job_check_process_events(const lhi_job *job, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    const uint32_t n = lhi_grid_count_ranks(&job->grid);
    bool kills = false;
    for (uint32_t i = 0; timeline && i < timeline->n_effects; i++) {
        const lh_event *e = timeline->effects[i].event;
        kills = kills || e->process == LH_PROCESS_KILLED ||
                e->process == LH_PROCESS_LOST;
        if (e->process && e->rank >= n)
            return lhi_fail(err, LH_EINPUT,
                            "the event in line %" PRIu32 ": there is no rank "
                            "%" PRIu32 "; the run has 0 to %" PRIu32,
                            e->line, e->rank, n - 1);
    }
    if (kills && !job->o.max_restarts)
        return lhi_fail(err, LH_EINVAL,
                        "the events kill ranks, which ends a run that does not "
                        "restart: permit restarts (max_restarts, "
                        "--max-restarts)");
    return LH_OK;
}
