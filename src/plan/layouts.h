/* SPDX-License-Identifier: Apache-2.0 */
/* Which layouts a job leaves open. */
#ifndef LHI_LAYOUTS_H
#define LHI_LAYOUTS_H

#include "plan/layout.h"

/* More only if the job fixes micro_batch. */
#define LHI_MOST_MICROBATCHES 4096

typedef struct lhi_layouts {
    const lh_job *job;
    lhi_config *configs;
    uint32_t n, room;
    uint32_t n_dropped; /* for having more microbatches than that */
} lhi_layouts;

/* Every layout that divides the GPUs, the batch and the model. Release with
 * lhi_layouts_fini(), after a failure too. LH_EINVAL: too many. */
lh_status lhi_layouts_find(const lh_job *job, lhi_layouts *out, lh_error *err);
void lhi_layouts_fini(lhi_layouts *layouts);

#endif
