/* SPDX-License-Identifier: Apache-2.0 */
/* The clock for all real-time events, and sleeping by it. Times are nanoseconds
 * of CLOCK_MONOTONIC, which all processes on a host share. */
#ifndef LHI_BASE_REALTIME_H
#define LHI_BASE_REALTIME_H

#include <longhaul/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Returns the monotonic clock's current time in ns. */
int64_t lhi_now_ns(void);
/* Returns at_ns + ns, capped at now_ns. */
static inline int64_t lhi_advance_time_ns(int64_t at_ns, int64_t ns,
                                          int64_t now_ns)
{
    return ns < now_ns - at_ns ? at_ns + ns : now_ns;
}
/* Converts nanoseconds to a struct timespec. */
struct timespec lhi_timespec(int64_t at_ns);

/* Sleeps until the clock reaches `at_ns`, accurate to a microsecond; returns at
 * once if it already has. Continues after signals. */
void lhi_sleep_until(int64_t at_ns);
/* Sleeps for `ns` nanoseconds, accurate to a microsecond. */
void lhi_sleep_for(int64_t ns);

/* Makes the system wake the calling thread exactly when its wait expires, not
 * up to 50 us later. `realtime`: also gives it priority over all ordinary
 * threads (SCHED_FIFO). LH_EUNSUPPORTED without the required capability. */
lh_status lhi_enable_precise_wakeups(bool realtime, lh_error *err);

/* Starts a thread that runs thread_main(of) with normal priority, even if the
 * caller has real-time priority. LH_EIO: the system cannot start one. */
lh_status lhi_start_normal_thread(pthread_t *out,
                                  void *(*thread_main)(void *of), void *of,
                                  lh_error *err);
/* Returns the calling thread's CPU time in ns. */
int64_t lhi_thread_cpu_ns(void);

#endif
