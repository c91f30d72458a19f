/* SPDX-License-Identifier: Apache-2.0 */
/* A deterministic scheduler with a virtual clock, for multi-threaded tests.
 *
 * A test program linked with `virtual_time_dep` runs its threads one at a time.
 * A switch is possible only where the running thread blocks, wakes another
 * thread or takes a lock; a seed selects the next thread. The clocks stop while
 * any thread is runnable. If all threads wait, the clock jumps to the earliest
 * deadline. An hour's wait takes no real time, machine load has no effect, and
 * a seed determines the execution order.
 *
 * The linker (--wrap) replaces these calls in the program's own objects, not in
 * shared libraries: threads, mutexes, conditions, private futexes, clocks,
 * sleeps, poll and epoll_wait. Files and sockets remain the kernel's; the
 * scheduler polls the files that threads wait for before it advances the clock.
 * Other processes are not covered: fork() ends virtual time in both processes.
 *
 * If no thread can ever run again (deadlock), the program prints the object
 * each thread waits for and aborts. */
#ifndef VIRTUAL_TIME_H
#define VIRTUAL_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* Starts virtual time for the calling thread and the threads it creates. */
void virtual_time_begin(uint64_t seed);
/* Returns to the system's threads and clocks. All other threads must have been
 * joined. */
void virtual_time_end(void);
/* Checks whether the calling thread runs in virtual time. */
bool virtual_time_is_on(void);
/* Advances the clock while no thread runs, as if the process was suspended. */
void virtual_time_suspend(int64_t ns);

/* Runs RUN (test.h) in virtual time. */
#define RUN_VIRTUAL(test)                                                      \
    do {                                                                       \
        virtual_time_begin(1);                                                 \
        RUN(test);                                                             \
        virtual_time_end();                                                    \
    } while (0)

#endif
