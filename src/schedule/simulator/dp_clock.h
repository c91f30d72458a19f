/* SPDX-License-Identifier: Apache-2.0 */
/* Models data-parallel communication: per-chunk gathers and reductions, and the
 * operations that passes launch. Each device has one link for them, which
 * serves them in issue order. The simulator reports each pass's start and end
 * and queries whether a pass may start. */
#ifndef LHI_SCHEDULE_SIMULATOR_DP_CLOCK_H
#define LHI_SCHEDULE_SIMULATOR_DP_CLOCK_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/simulate.h>

/* Data-parallel links for all devices. */
typedef struct lhi_dp_clock {
    const lh_pipeline *p;
    int64_t last_ns;        /* latest arrival; INT64_MIN: none */
    int64_t *free_ns;       /* per device: link free from */
    int64_t *gathered_ns;   /* per chunk: its all-gather's arrival */
    uint32_t *next_gather;  /* per chunk: the chunk whose all-gather its first
                             * forward issues, or LH_NONE */
    uint32_t *chunk_queue;  /* one device's chunks by first forward */
    uint32_t *n_unreleased; /* per chunk: remaining W and B passes */
    uint32_t *n_pending;    /* per point: prerequisites not yet launched; NULL:
                             * the pipeline has no operations */
    int64_t *ready_ns;      /* per point: latest arrival of launched ones */
    lh_collective *sent;    /* 2 n_chunks + n_dp_ops; NULL: not recorded */
    uint32_t n_sent;
} lhi_dp_clock;

/* Initialises the clock of data-parallel collectives; all its memory belongs
 * to `mem`. */
lh_status lhi_dp_clock_init(const lh_pipeline *pipeline, lhi_arena *mem,
                            lhi_dp_clock *out, lh_error *err);

/* Starts an iteration on the collectives' clock at time `now`; then call
 * lhi_dp_clock_add_device() for every device. */
void lhi_dp_clock_begin(lhi_dp_clock *clock, int64_t now);
/* Registers a device's passes in order, `stride` bytes apart, and issues the
 * first chunks' gathers. */
void lhi_dp_clock_add_device(lhi_dp_clock *clock, const lh_pass *order,
                             size_t stride, uint32_t count, int64_t now);

/* Raises *start to the arrival of the collectives that the pass needs. Returns
 * false if one has not been launched. */
bool lhi_dp_clock_get_start(const lhi_dp_clock *clock, const lh_pass *pass,
                            int64_t *start);
/* Launches the collectives that start with a pass; call in each device's pass
 * order. */
void lhi_dp_clock_on_start(lhi_dp_clock *clock, const lh_pass *pass,
                           int64_t start);
/* Launches the collectives (all-gathers, reduce-scatters) that follow a pass,
 * which has ended at `now`. */
void lhi_dp_clock_on_end(lhi_dp_clock *clock, const lh_pass *pass, int64_t now);

#endif
