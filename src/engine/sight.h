/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the ranks' observations of one iteration into the monitor's input.
 *
 * Replicas run the same passes and send the same messages; the slowest one
 * counts, since the iteration waits for it. If ranks read different clocks,
 * only the first replica's messages count: otherwise the clock offset would
 * decide which is slowest. */
#ifndef LHI_SIGHT_H
#define LHI_SIGHT_H

#include "engine/steps.h"

#include <longhaul/monitor.h>

/* Observation of one rank. */
typedef struct lhi_seen_part {
    lhi_seen_head head;
    lhi_seen_row *rows; /* per pass */
    lhi_played *played;
} lhi_seen_part;

typedef struct lhi_sight lhi_sight; /* buffers shared by iterations */

/* Makes the buffers. `device`: any rank's, for message sizes. */
lh_status lhi_sight_make(const lhi_job *job, const lhi_device *device,
                         lhi_sight **out, lh_error *err);
void lhi_sight_free(lhi_sight *sight); /* NULL is fine */

/* Merges the observations of all ranks under `exec`. *out is borrowed until the
 * next call. */
lh_status lhi_sight_merge(lhi_sight *sight, const lh_exec *exec,
                          const lhi_seen_part *parts, uint64_t step,
                          lh_seen *out, lh_error *err);

/* Scales the last merged iteration, which ran `now` with other layer counts, to
 * the counts of the run's pipeline. */
void lhi_sight_with_first_layers(lhi_sight *sight, const lh_pipeline *now);

/* Numbers the clocks of the first replica's ranks, per device, in `clocks`;
 * returns whether any two differ. */
bool lhi_sight_clocks(const lhi_seen_part *parts, uint32_t n_devices,
                      uint32_t *clocks);

#endif
