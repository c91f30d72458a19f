/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_schedule. */
#ifndef LHI_SCHEDULE_H
#define LHI_SCHEDULE_H

#include "base/arena.h"

#include <longhaul/schedule.h>

struct lh_schedule {
    lhi_arena *mem;
    uint32_t n_devices, n_link_orders, n_skipped;
    const lh_pass **orders; /* [device][0..counts[device]-1] */
    uint32_t *counts;
    const lh_link_order *link_orders;
};

#endif
