/* SPDX-License-Identifier: Apache-2.0 */
/* The delegated path's copies and queues. */
#ifndef LHI_SCHEDULE_SIMULATOR_DELEGATE_H
#define LHI_SCHEDULE_SIMULATOR_DELEGATE_H

#include <longhaul/experimental/delegate.h>

/* Returns the time to copy a message between device and host memory at either
 * end, in ns: bytes / rate + constant. The rate must be positive. */
int64_t lhi_delegation_staging_ns(uint64_t bytes, double host_bytes_per_s,
                                  int64_t constant_ns);

/* Returns the queue count per direction with which delegated sends keep pace
 * with production: ceil(made / moved), at least 1. `made` and `moved` (per
 * queue) are messages per unit time, finite, with `moved` > 0. Example in
 * Adaptra section 5.2: 8 made and 2 moved per second need 4 queues. */
uint32_t lhi_delegation_count_queues(double made, double moved);

#endif
