/* SPDX-License-Identifier: Apache-2.0 */
/* A deterministic scheduler with a virtual clock, for tests of threads.
 *
 * A test program that is linked with `virtual_time_dep` has its threads run one
 * at a time. The running thread changes only where it blocks, wakes another
 * thread or takes a lock; a seed decides which thread runs next. The clocks
 * stand still while any thread can run. When all threads wait, the clock jumps
 * to the earliest time that one of them waits for. A wait of an hour takes no
 * time, the load of the machine changes nothing, and one seed gives one
 * history.
 *
 * Replaced by the linker (--wrap) in the program's own objects, not in shared
 * libraries: threads, mutexes, conditions, private futexes, clocks, sleeps,
 * poll and epoll_wait. Files and sockets are the kernel's; a thread that waits
 * for one is asked before the clock moves. Other processes are not covered:
 * fork() ends virtual time in both.
 *
 * When no thread can ever run again, the program prints what each thread waits
 * for and aborts: a deadlock. */
#ifndef VIRTUAL_TIME_H
#define VIRTUAL_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* Starts virtual time for the calling thread and those it creates. */
void virtual_time_begin(uint64_t seed);
/* Returns to the system's threads and clocks; all others have been joined. */
void virtual_time_end(void);
/* Whether the calling thread runs in virtual time. */
bool virtual_time_is_on(void);

/* RUN of test.h in virtual time. */
#define RUN_VIRTUAL(test)                                                      \
    do {                                                                       \
        virtual_time_begin(1);                                                 \
        RUN(test);                                                             \
        virtual_time_end();                                                    \
    } while (0)

#endif
