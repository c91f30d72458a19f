/* SPDX-License-Identifier: Apache-2.0 */
/* One iteration as all its ranks have seen it, as a monitor takes it.
 *
 * Replicas run the same passes and send the same messages: of each, the one
 * that took longest counts, since it is what an iteration waits for. Where
 * ranks read different clocks, the messages of the first replica alone count:
 * what two clocks differ by would decide which is the longest. */
#ifndef LHI_SIGHT_H
#define LHI_SIGHT_H

#include "engine/steps.h"

#include <longhaul/monitor.h>

/* Of one rank. */
typedef struct lhi_seen_part {
    lhi_seen_head head;
    lhi_seen_row *rows; /* per pass */
    lhi_played *played;
} lhi_seen_part;

typedef struct lhi_sight lhi_sight; /* room that iterations share */

/* `device`: of any rank, which knows how large messages are. */
lh_status lhi_sight_make(const lhi_job *job, const lhi_device *device,
                         lhi_sight **out, lh_error *err);
void lhi_sight_free(lhi_sight *sight); /* NULL is fine */

/* `parts`: of all ranks, under `exec`. *out is borrowed until the next call. */
lh_status lhi_sight_merge(lhi_sight *sight, const lh_exec *exec,
                          const lhi_seen_part *parts, uint64_t step,
                          lh_seen *out, lh_error *err);

/* What was merged last, of an iteration of `now`, whose chunks have other
 * numbers of layers than the run's pipeline: as it would have been with those.
 */
void lhi_sight_with_first_layers(lhi_sight *sight, const lh_pipeline *now);

/* Numbers the clocks that the first replica's ranks read, in `clocks`, per
 * device; whether any two differ. */
bool lhi_sight_clocks(const lhi_seen_part *parts, uint32_t n_devices,
                      uint32_t *clocks);

#endif
