/* SPDX-License-Identifier: Apache-2.0 */
/* When data parallelism communicates: within, before or after passes. */
#ifndef LHI_MODEL_DATA_PASSES_H
#define LHI_MODEL_DATA_PASSES_H

#include "model/slice_sums.h"

/* Computes the bytes and times of data-parallel communication into `out`, and
 * extends the passes in `s` that wait for it. */
lh_status lhi_compute_data_parallel_time(const lhi_cost_context *p,
                                         const lhi_params *params,
                                         lhi_slice_sums *s, lh_cost *out,
                                         lh_error *err);

#endif
