/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one rank that share its large matrix products. */
#ifndef LHI_RUNTIME_DEVICE_THREAD_TEAM_H
#define LHI_RUNTIME_DEVICE_THREAD_TEAM_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_thread_team lhi_thread_team;

/* Starts n_threads - 1 threads; the caller of lhi_thread_team_run() is the
 * remaining one. LH_EIO: the system starts no more threads. */
lh_status lhi_thread_team_make(uint32_t n_threads, lhi_thread_team **out,
                               lh_error *err);
/* Ends the threads of a team and frees it; NULL is allowed. */
void lhi_thread_team_free(lhi_thread_team *team);

/* Calls run(context, task, thread) once for each task in [0, n_tasks), each on
 * one of the team's threads, whose number is below n_threads; returns after all
 * of them. One call at a time. */
void lhi_thread_team_run(lhi_thread_team *team, uint32_t n_tasks,
                         void (*run)(void *context, uint32_t task,
                                     uint32_t thread),
                         void *context);

#endif
