/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/realtime.h"

#include "base/fail.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Nanoseconds per second. */
enum { BILLION = 1000000000 };

int64_t lhi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * BILLION + t.tv_nsec;
}

/* Sets the thread's timer slack to 1 ns; with the default, timers fire 50 us
 * late. */
static void set_timer_slack(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

struct timespec lhi_timespec(int64_t at_ns)
{
    return (struct timespec){.tv_sec = (time_t)(at_ns / BILLION),
                             .tv_nsec = (long)(at_ns % BILLION)};
}

void lhi_sleep_until(int64_t at_ns)
{
    struct timespec t = lhi_timespec(at_ns);
    if (at_ns <= 0)
        return;
    set_timer_slack();
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

void lhi_sleep_for(int64_t ns)
{
    lhi_sleep_until(lhi_now_ns() + ns);
}

lh_status lhi_enable_precise_wakeups(bool realtime, lh_error *err)
{
    const struct sched_param how = {.sched_priority = 1};
    set_timer_slack();
    if (!realtime)
        return LH_OK;
    int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &how);
    if (error)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "ranks cannot run under SCHED_FIFO: %s; the capability "
                        "CAP_SYS_NICE is required",
                        strerror(error));
    return LH_OK;
}

lh_status lhi_start_normal_thread(pthread_t *out,
                                  void *(*thread_main)(void *of), void *of,
                                  lh_error *err)
{
    pthread_attr_t how;
    const struct sched_param ordinary = {0};
    int error = pthread_attr_init(&how);
    if (error)
        return lhi_fail_nomem(err);
    pthread_attr_setinheritsched(&how, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&how, SCHED_OTHER);
    pthread_attr_setschedparam(&how, &ordinary);
    error = pthread_create(out, &how, thread_main, of);
    pthread_attr_destroy(&how);
    if (error)
        return lhi_fail(err, LH_EIO, "cannot start a thread: %s",
                        strerror(error));
    return LH_OK;
}

int64_t lhi_thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * BILLION + t.tv_nsec;
}
