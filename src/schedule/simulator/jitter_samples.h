/* SPDX-License-Identifier: Apache-2.0 */
/* Monte Carlo samples of a pipeline, for callers that may stop early. */
#ifndef LHI_SCHEDULE_SIMULATOR_JITTER_SAMPLES_H
#define LHI_SCHEDULE_SIMULATOR_JITTER_SAMPLES_H

#include <longhaul/experimental/jitter.h>

typedef struct lhi_jitter_sampler lhi_jitter_sampler;

/* Creates a sampler, which draws pipelines with random delays. `pipeline` must
 * outlive it. Errors as lh_jitter_run(). */
lh_status lhi_jitter_sampler_make(const lh_pipeline *pipeline,
                                  const lh_jitter *jitter,
                                  lhi_jitter_sampler **out, lh_error *err);
/* Frees a sampler; NULL is allowed. */
void lhi_jitter_sampler_free(lhi_jitter_sampler *draws);
/* Returns how many samples the sampler's options request. */
uint32_t lhi_jitter_sampler_count(const lhi_jitter_sampler *draws);
/* Returns the pipeline for the current sample (initially sample 0); its times
 * change with every draw. */
const lh_pipeline *
lhi_jitter_sampler_get_pipeline(const lhi_jitter_sampler *draws);
/* Draws the random delays of sample number `sample` into the sampler's pipeline
 * copy. They depend only on that number and the seed. */
void lhi_jitter_sampler_draw(lhi_jitter_sampler *draws, uint32_t sample);

/* Computes mean and percentiles of the n makespans ns[] (n >= 1), which it
 * sorts in place. */
void lhi_jitter_summarise(int64_t *ns, uint32_t n, lh_jitter_result *out);

#endif
