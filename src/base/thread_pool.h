/* SPDX-License-Identifier: Apache-2.0 */
/* Running independent tasks on several threads. */
#ifndef LHI_BASE_THREAD_POOL_H
#define LHI_BASE_THREAD_POOL_H

#include "base/fail.h"

#include <stdint.h>

enum { LHI_MAX_PARALLEL_TASKS = 256 }; /* tasks per job */

/* A job: the task function, its context and a progress callback. */
typedef struct lhi_parallel_job {
    void *context;
    /* Runs task i on thread number `thread`: 0 is the caller; worker threads
     * have numbers below the thread count. */
    void (*run_task)(void *context, uint32_t i, uint32_t thread);
    /* Reports progress on the calling thread, after each task that it ran and
     * about twenty times a second while it waits: tasks 0 .. n_done - 1 are
     * finished. */
    void (*report_progress)(void *context, uint32_t n_done);
} lhi_parallel_job;

/* A thread pool, reusable for many jobs. */
typedef struct lhi_thread_pool lhi_thread_pool;

/* Creates a pool with at most `threads` threads, including the caller. Worker
 * threads start with the first job that has tasks for them. */
lh_status lhi_thread_pool_make(uint32_t threads, lhi_thread_pool **out,
                               lh_error *err);
/* Stops the worker threads and frees the pool; accepts NULL. */
void lhi_thread_pool_free(lhi_thread_pool *crew);

/* Runs tasks 0 .. n - 1 of the parallel job `team` (a task function and its
 * data) on the pool's threads; returns when all have ended. Tasks start in
 * ascending order. A pool runs one job at a time: a task must not start another
 * one. If no thread can be created, the caller runs all tasks. */
void lhi_thread_pool_run(lhi_thread_pool *crew, const lhi_parallel_job *team,
                         uint32_t n);

/* Runs tasks 0 .. n - 1 of the parallel job `team` (a task function and its
 * data). Uses a temporary pool of at most `threads` threads, including the
 * caller. */
void lhi_run_parallel(const lhi_parallel_job *team, uint32_t n,
                      uint32_t threads);

/* Returns the number of processors available to the process: 1 or more. */
uint32_t lhi_count_processors(void);

#endif
