/* SPDX-License-Identifier: Apache-2.0 */
/* Monte Carlo samples of a pipeline, for callers that may stop early. */
#ifndef LHI_DRAWS_H
#define LHI_DRAWS_H

#include <longhaul/jitter.h>

typedef struct lhi_jitter_draws lhi_jitter_draws;

/* Creates a sampler. `pipeline` must outlive it. Errors as lh_jitter_run(). */
lh_status lhi_jitter_draws_make(const lh_pipeline *pipeline,
                                const lh_jitter *jitter, lhi_jitter_draws **out,
                                lh_error *err);
void lhi_jitter_draws_free(lhi_jitter_draws *draws); /* NULL is allowed */
/* Returns the number of samples. */
uint32_t lhi_jitter_draws_count(const lhi_jitter_draws *draws);
/* Returns the pipeline for the current sample (initially sample 0); its times
 * change with every draw. */
const lh_pipeline *lhi_jitter_draws_pipeline(const lhi_jitter_draws *draws);
/* Draws a sample; it depends on its number and the seed only. */
void lhi_jitter_draws_next(lhi_jitter_draws *draws, uint32_t sample);

/* Summarises n times (n >= 1); sorts them in place. */
void lhi_jitter_sum_up(int64_t *ns, uint32_t n, lh_jitter_result *out);

#endif
