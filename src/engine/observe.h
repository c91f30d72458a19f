/* SPDX-License-Identifier: Apache-2.0 */
/* What a run on the cpu device takes, as a profile has it: while it goes on,
 * each rank adds up the times of its passes and messages by step; at the end
 * all sums go to rank 0, beside what messages of several sizes take between
 * the stages; of the steps whose iterations took neither longest nor shortest
 * come the means.
 *
 * A pass counts from when it could begin, its device free and its input there,
 * to its end, and a message from the end of the pass that made it until it was
 * there: what a simulator adds up. */
#ifndef LHI_OBSERVE_H
#define LHI_OBSERVE_H

#include "engine/shift.h"
#include "engine/steps.h"

typedef struct lhi_observer lhi_observer;

lh_status lhi_observer_make(const lhi_job *job, uint32_t rank,
                            lhi_observer **out, lh_error *err);
void lhi_observer_free(lhi_observer *observer); /* NULL is fine */

/* The rank's `iteration`-th step, from 0, was kept in `shift`. `waited_ns`: per
 * pass, how long it waited inside for what it gathers and scatters; NULL: it
 * does not. */
void lhi_observe_step(lhi_observer *observer, uint64_t iteration,
                      const lhi_shift *shift, const int64_t *waited_ns);
/* After the last step, all ranks together: links, then the sums. `turn` is the
 * same on all, and nobody else's. */
lh_status lhi_observe_end(lhi_observer *observer, lhi_net *net,
                          lhi_device *device, uint64_t turn, lh_error *err);
/* Then, on rank 0: as many numbers, for lhi_observed_make(). */
const double *lhi_observer_sums(const lhi_observer *observer);
size_t lhi_observed_size(const lhi_job *job);

/* Means, ns, and bytes. */
typedef struct lhi_observed {
    uint32_t n_steps;    /* that they are of */
    bool has_messages;   /* clocks were shared: message_ns are of the run */
    double *pass_ns;     /* per chunk and lh_pass_kind; 0: none ran */
    double *message_ns;  /* to a chunk, F's and then D's or B's; 0: none */
    double *state_bytes; /* per chunk: values, gradients, moments */
    double *kept_bytes;  /* per chunk, by one microbatch; 0: not seen */
    double *alpha_ns;    /* from chunk c to c + 1 and back, without load: */
    double *beta_ns;     /* ... alpha + beta * bytes; 0: on one rank, or the
                            links are emulated */
    double iteration_ns;
} lhi_observed;

/* `iterations`: of the run, n of them. Release with lhi_observed_free(). */
lh_status lhi_observed_make(const lhi_job *job, const lh_iteration *iterations,
                            uint64_t n, const double *sums, lhi_observed **out,
                            lh_error *err);
void lhi_observed_free(lhi_observed *observed); /* NULL is fine */

/* Of a result: what was observed (NULL: nothing), and the profile that it then
 * owns. In outcome.c. */
const lhi_observed *lhi_result_observed(const lh_train_result *result);
void lhi_result_take_profile(lh_train_result *result, lh_profile *profile);

#endif
