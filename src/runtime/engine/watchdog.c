/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* kill */
#include "runtime/engine/watchdog.h"

#include "base/fail.h"
#include "base/realtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Longest iterations that a pass may last. Other programs may slow down the
 * processors, but a pass is a small part of an iteration. */
enum { ITERATIONS_PER_PASS = 10 };
/* Longest and shortest interval in ns between two checks, which otherwise is an
 * eighth of the limit for silent ranks. */
static const int64_t max_interval_ns = 1000000000, min_interval_ns = 10000000;
/* Time in ns for the other ranks to receive the reason before the process is
 * killed. */
static const int64_t notice_ns = 1000000000;
/* Bits of the chunk and of the microbatch in a packed pass; the kind has the
 * bits above. */
enum { NUMBER_BITS = 28 };

/* State of a watchdog. */
struct lhi_watchdog {
    lhi_watchdog_options o;
    int64_t interval_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool stops;
    int64_t longest_ns; /* passes of an iteration; 0: none has ended */
    /* Pass at the last check, by its begin (0: none), and its time so far. */
    int64_t since_ns, busy_ns;
};

uint64_t lhi_watchdog_pack_pass(const lh_pass *pass)
{
    return (uint64_t)pass->kind << 2 * NUMBER_BITS |
           (uint64_t)pass->chunk << NUMBER_BITS | pass->microbatch;
}

/* Unpacks a pass from the number `packed`. */
static lh_pass unpack_pass(uint64_t packed)
{
    const uint64_t mask = (UINT64_C(1) << NUMBER_BITS) - 1;
    return (lh_pass){.kind = (uint8_t)(packed >> 2 * NUMBER_BITS),
                     .chunk = (uint32_t)(packed >> NUMBER_BITS & mask),
                     .microbatch = (uint32_t)(packed & mask),
                     .n_parts = 1};
}

/* Waits for `ns` nanoseconds or until the watchdog stops. Called with the lock
 * held. */
static void wait_for(lhi_watchdog *dog, int64_t ns)
{
    const int64_t until_ns = lhi_now_ns() + ns;
    const struct timespec until = lhi_timespec(until_ns);
    while (!dog->stops && lhi_now_ns() < until_ns)
        pthread_cond_timedwait(&dog->changed, &dog->lock, &until);
}

/* Returns the duration in ns of an iteration's passes, or an upper estimate in
 * the first iteration; 0: no pass has ended. */
static int64_t find_iteration_ns(const lhi_watchdog *dog)
{
    return dog->longest_ns
               ? dog->longest_ns
               : dog->o.n_passes * lhi_net_longest_work_ns(dog->o.net);
}

/* Adds the time since the last check, elapsed_ns, to the present pass's time if
 * the pass is the same; returns the limit in ns that it exceeds, 0: none. A
 * late check, for example because the process was stopped, counts two intervals
 * at most. */
static int64_t find_exceeded_limit(lhi_watchdog *dog, int64_t elapsed_ns,
                                   uint64_t *pass)
{
    const int64_t since_ns = lhi_net_read_work(dog->o.net, pass);
    const int64_t most_ns = 2 * dog->interval_ns;
    if (since_ns == 0 || since_ns != dog->since_ns)
        dog->busy_ns = 0;
    else
        dog->busy_ns += elapsed_ns < most_ns ? elapsed_ns : most_ns;
    dog->since_ns = since_ns;
    const int64_t iteration_ns = find_iteration_ns(dog);
    const int64_t limit_ns =
        dog->o.silence_ns + ITERATIONS_PER_PASS * iteration_ns;
    return iteration_ns > 0 && dog->busy_ns > limit_ns ? limit_ns : 0;
}

/* Fails the run because this rank hangs in `pass`, for longer than limit_ns,
 * and kills the process, whose threads cannot be ended. Called with the lock
 * held.
 */
static void report_hang(lhi_watchdog *dog, uint64_t pass, int64_t limit_ns)
{
    char text[200], name[LH_PASS_TEXT_SIZE];
    const lh_pass what = unpack_pass(pass);
    snprintf(text, sizeof text,
             "hangs: its pass %s lasts more than %.3g s, which is %g s "
             "(--silence) and %d times the passes of an iteration (%.3g s)",
             lh_pass_format(&what, name), (double)limit_ns * 1e-9,
             (double)dog->o.silence_ns * 1e-9, ITERATIONS_PER_PASS,
             (double)find_iteration_ns(dog) * 1e-9);
    lhi_net_abort_loss(dog->o.net, lhi_net_rank(dog->o.net), text);
    wait_for(dog, notice_ns);
    if (!dog->stops && dog->o.kills)
        kill(getpid(), SIGKILL);
}

/* Main function of the watchdog's thread. */
static void *thread_main(void *of)
{
    lhi_watchdog *dog = of;
    int64_t last_ns = lhi_now_ns();
    pthread_mutex_lock(&dog->lock);
    while (!dog->stops) {
        uint64_t pass = 0;
        wait_for(dog, dog->interval_ns);
        const int64_t now_ns = lhi_now_ns();
        const int64_t limit_ns =
            find_exceeded_limit(dog, now_ns - last_ns, &pass);
        if (limit_ns && !dog->stops) {
            report_hang(dog, pass, limit_ns);
            break;
        }
        last_ns = now_ns;
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

lh_status lhi_watchdog_start(const lhi_watchdog_options *options,
                             lhi_watchdog **out, lh_error *err)
{
    lhi_watchdog *dog = calloc(1, sizeof *dog);
    pthread_condattr_t how;
    if (!dog)
        return lhi_fail_nomem(err);
    dog->o = *options;
    if (!dog->o.silence_ns)
        dog->o.silence_ns = LHI_LOCAL_SILENCE_NS;
    dog->interval_ns = dog->o.silence_ns / 8;
    if (dog->interval_ns > max_interval_ns)
        dog->interval_ns = max_interval_ns;
    if (dog->interval_ns < min_interval_ns)
        dog->interval_ns = min_interval_ns;
    pthread_mutex_init(&dog->lock, NULL);
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->changed, &how);
    pthread_condattr_destroy(&how);
    const lh_status status =
        lhi_start_normal_thread(&dog->thread, thread_main, dog, err);
    if (status != LH_OK) {
        pthread_cond_destroy(&dog->changed);
        pthread_mutex_destroy(&dog->lock);
        free(dog);
        return status;
    }
    *out = dog;
    return LH_OK;
}

void lhi_watchdog_add_iteration(lhi_watchdog *dog, int64_t ns)
{
    pthread_mutex_lock(&dog->lock);
    if (ns > dog->longest_ns)
        dog->longest_ns = ns;
    pthread_mutex_unlock(&dog->lock);
}

void lhi_watchdog_stop(lhi_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->stops = true;
    pthread_cond_broadcast(&dog->changed);
    pthread_mutex_unlock(&dog->lock);
    pthread_join(dog->thread, NULL);
    pthread_cond_destroy(&dog->changed);
    pthread_mutex_destroy(&dog->lock);
    free(dog);
}
