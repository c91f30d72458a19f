/* SPDX-License-Identifier: Apache-2.0 */
/* When data parallelism communicates: in passes, before or after them. */
#ifndef LHI_DATA_PASSES_H
#define LHI_DATA_PASSES_H

#include "cost/slice_sums.h"

/* Its bytes and times into `out`; passes that wait for it become longer. */
lh_status lhi_time_data_parallel(const lhi_prices *p, const lhi_params *params,
                                 lhi_sums *s, lh_cost *out, lh_error *err);

#endif
