/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles a run on the cpu device. During the run each rank sums the durations
 * of its passes and messages by step. At the end rank 0 gets all sums, and
 * messages of several sizes are measured between stages. Means are taken over
 * the iterations between the quartiles.
 *
 * A pass counts from the time when it could start (device free, input arrived)
 * to its end. A message counts from its producer's end to its arrival. This
 * matches the simulator's model. */
#ifndef LHI_RUNTIME_ENGINE_OBSERVER_H
#define LHI_RUNTIME_ENGINE_OBSERVER_H

#include "runtime/engine/job.h"
#include "runtime/engine/rank_program.h"

typedef struct lhi_observer lhi_observer;

/* Creates a rank's observer, which collects pass times, message times and
 * memory for a profile. */
lh_status lhi_observer_make(const lhi_job *job, uint32_t rank,
                            lhi_observer **out, lh_error *err);
/* Frees the observer; NULL is allowed. */
void lhi_observer_free(lhi_observer *observer);

/* Adds the rank's `iteration`-th step, from 0, whose records are in the given
 * rank program. `waited_ns`: wait time inside each pass for gathers and
 * scatters; NULL: none. */
void lhi_observer_add_step(lhi_observer *observer, uint64_t iteration,
                           const lhi_rank_program *shift,
                           const int64_t *waited_ns);
/* Measures the links and sums the observations over all ranks after the last
 * step. Collective. `turn` is equal on all ranks and unique to this call. */
lh_status lhi_observer_finish(lhi_observer *observer, lhi_net *net,
                              lhi_device *device, uint64_t turn, lh_error *err);
/* Returns the observer's array of sums (pass and message times, memory). After
 * lhi_observer_finish() rank 0 has the sums over all ranks, for
 * lhi_observed_means_make(). */
const double *lhi_observer_sums(const lhi_observer *observer);
/* Returns the entry count in an observer's array of sums. */
size_t lhi_observer_count_sums(const lhi_job *job);

/* Means, in ns and bytes. */
typedef struct lhi_observed_means {
    uint32_t n_steps;         /* steps averaged */
    bool has_messages;        /* shared clock: message_ns are measured */
    double *pass_ns;          /* per chunk and lh_pass_kind; 0: none ran */
    double *message_ns;       /* into a chunk: F, then D or B; 0: none */
    double *state_bytes;      /* per chunk: values, gradients, moments */
    double *activation_bytes; /* per chunk and microbatch; 0: unknown */
    double *alpha_ns;         /* chunk c to c + 1 and back, unloaded: */
    double *beta_ns; /* alpha + beta * bytes; 0: same rank, or the links are
                      * emulated */
    double iteration_ns;
} lhi_observed_means;

/* Computes the mean durations over the run's n iterations from the observers'
 * sums. Release with lhi_observed_means_free(). */
lh_status lhi_observed_means_make(const lhi_job *job,
                                  const lh_iteration *iterations, uint64_t n,
                                  const double *sums, lhi_observed_means **out,
                                  lh_error *err);
/* Frees the means; NULL is allowed. */
void lhi_observed_means_free(lhi_observed_means *observed);

/* Returns a result's means; NULL: none. In outcome.c. */
const lhi_observed_means *
lhi_result_observed_means(const lh_train_result *result);
/* Stores a profile in the result, which then owns it. */
void lhi_result_take_profile(lh_train_result *result, lh_profile *profile);

#endif
