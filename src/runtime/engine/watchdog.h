/* SPDX-License-Identifier: Apache-2.0 */
/* Watchdog of a rank's process: detects that the rank's thread hangs in a pass
 * while its communication thread still sends heartbeats, so that the other
 * ranks take it for a slow one.
 *
 * A pass is shorter than an iteration. The rank is lost if one pass lasts
 * longer than the limit for silent ranks plus ITERATIONS_PER_PASS times the
 * passes of an iteration: of this rank's longest one so far; in the first
 * iteration, of one in which each pass takes as long as the longest so far. The
 * first pass has no limit. Waits for other ranks within passes, and time in
 * which the whole process was stopped, do not count. */
#ifndef LHI_RUNTIME_ENGINE_WATCHDOG_H
#define LHI_RUNTIME_ENGINE_WATCHDOG_H

#include "runtime/transport/transport.h"

#include <longhaul/schedule.h>

typedef struct lhi_watchdog lhi_watchdog;

/* Options for lhi_watchdog_start(). */
typedef struct lhi_watchdog_options {
    lhi_net *net;       /* its passes are marked by lhi_net_begin_work() */
    int64_t silence_ns; /* limit for silent ranks; 0: 10 s */
    uint32_t n_passes;  /* of the rank in an iteration */
    bool kills; /* kills the process 1 s after the other ranks were notified */
} lhi_watchdog_options;

/* Packs a pass into a number for lhi_net_begin_work(). */
uint64_t lhi_watchdog_pack_pass(const lh_pass *pass);

/* Starts a thread that monitors the rank's passes. */
lh_status lhi_watchdog_start(const lhi_watchdog_options *options,
                             lhi_watchdog **out, lh_error *err);
/* Reports the total duration in ns of the passes of an iteration. */
void lhi_watchdog_add_iteration(lhi_watchdog *dog, int64_t ns);
/* Ends the thread and frees the watchdog; NULL is allowed. Call it before the
 * endpoint is closed. */
void lhi_watchdog_stop(lhi_watchdog *dog);

#endif
