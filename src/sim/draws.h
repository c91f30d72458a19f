/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as each sample draws it, for those who stop early. */
#ifndef LHI_DRAWS_H
#define LHI_DRAWS_H

#include <longhaul/jitter.h>

typedef struct lhi_jitter_draws lhi_jitter_draws;

/* `pipeline` outlives the draws. Errors as lh_jitter_run(). */
lh_status lhi_jitter_draws_make(const lh_pipeline *pipeline,
                                const lh_jitter *jitter, lhi_jitter_draws **out,
                                lh_error *err);
void lhi_jitter_draws_free(lhi_jitter_draws *draws); /* NULL is fine */
uint32_t lhi_jitter_draws_count(const lhi_jitter_draws *draws);
/* The pipeline of the last sample drawn (at first, sample 0); its times change
 * with every draw. */
const lh_pipeline *lhi_jitter_draws_pipeline(const lhi_jitter_draws *draws);
/* What a sample draws depends on its number alone. */
void lhi_jitter_draws_next(lhi_jitter_draws *draws, uint32_t sample);

/* Of n times (1 or more), which are put in order. */
void lhi_jitter_sum_up(int64_t *ns, uint32_t n, lh_jitter_result *out);

#endif
