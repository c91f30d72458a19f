/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock of everything that happens in real time, and sleeping by it.
 * Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host
 * share. */
#ifndef LHI_REALTIME_H
#define LHI_REALTIME_H

#include <longhaul/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

int64_t lhi_now_ns(void);
/* A time of the past moved on by `ns`, at most to now. */
static inline int64_t lhi_later_ns(int64_t at_ns, int64_t ns, int64_t now_ns)
{
    return ns < now_ns - at_ns ? at_ns + ns : now_ns;
}
/* The same as C has it. */
struct timespec lhi_timespec(int64_t at_ns);

/* Sleeps until the clock has reached `at_ns`, to the microsecond; returns at
 * once where it has. Signals do not end it. */
void lhi_sleep_until(int64_t at_ns);
void lhi_sleep_for(int64_t ns);

/* Has the system wake the calling thread at the moment that it waits for, not
 * up to 50 us later. `realtime`: also before all ordinary threads, under
 * SCHED_FIFO; LH_EUNSUPPORTED without the right to. */
lh_status lhi_wake_sharply(bool realtime, lh_error *err);

/* Starts a thread of ordinary priority, whatever that of the caller is: its
 * passes go first. */
lh_status lhi_thread_ordinary(pthread_t *out, void *(*thread_main)(void *of),
                              void *of, lh_error *err);
/* Processor time of the calling thread. */
int64_t lhi_thread_ns(void);

#endif
