/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_timeline, and the event engine that fills it.
 *
 * The performance model. In: a pipeline and a schedule of it. Out: when each
 * pass, message and collective happens (longhaul/simulate.h), and why that
 * takes so long (longhaul/analysis.h).
 *
 *   orders.c        whether the orders are complete, before anything runs
 *   event_engine.c  the model itself: events in order of time
 *   dp_clock.h      when data-parallel communication happens, for whoever runs
 *                   passes
 *   copy_clock.h    when activations leave devices and come back, likewise
 *   simulate.c      lh_simulate() by that engine, and looking into a timeline
 *   evaluator.c     makespans alone, without a clock where none is needed
 *   analysis.c      idle time by cause, critical path, links, slack
 *   tolerance.c     what delay each boundary absorbs, by many makespans
 *   draws.h         the same under delays that vary: jitter.c
 *   kernels.c       the longest path of kernels that someone recorded */
#ifndef LHI_TIMELINE_H
#define LHI_TIMELINE_H

#include "base/arena.h"
#include "pipe/pipeline_own.h"
#include "pipe/schedule_own.h"

#include <longhaul/simulate.h>

struct lh_timeline {
    lhi_arena *mem;
    lh_sim_options options; /* that it was made under; `delegated` is its own */
    uint32_t n_devices, n_resources;
    const char **resource_names;
    int64_t makespan_ns, first_device_end_ns;
    int64_t busy_ns; /* of all devices together */
    int64_t *peak_memory, *memory_limits;
    size_t *offsets; /* runs of device d: offsets[d]..offsets[d + 1] - 1 */
    lh_timeline_run *runs;
    uint32_t n_messages, n_collectives;
    lh_message *messages;
    lh_collective *collectives;
    uint32_t n_copies;
    lh_copy *copies;
};

/* The value every caller fills in for what it was not given; refuses nonsense.
 * `options` may be NULL. */
lh_status lhi_sim_options(const lh_pipeline *pipeline,
                          const lh_sim_options *options, lh_sim_options *out,
                          lh_error *err);

/* Per (chunk, microbatch): what of it has been seen in the orders so far. */
typedef struct lhi_seen {
    uint8_t *state;  /* bits below */
    uint32_t *parts; /* of a W that is cut: how many << 16 | parts seen */
} lhi_seen;

enum { LHI_SEEN_F = 1, LHI_SEEN_D = 2, LHI_SEEN_W = 4 };

/* Whether `schedule` has every pass of `pipeline` exactly once, on its device,
 * each after those of its chunk and microbatch that it needs (parts of a W in
 * order). `seen` is zeroed space for n_chunks x n_microbatches. */
lh_status lhi_orders_check(const lh_pipeline *pipeline,
                           const lh_schedule *schedule, lhi_seen *seen,
                           lh_error *err);

/* Passes of all devices times boundaries up to which tolerances are worked
 * out; a sixteenth of that where the event engine has to run. */
#define LHI_TOLERANCE_WORK (UINT64_C(1) << 20)

/* Into tolerances[i], for each boundary between devices i and i + 1 of a UD
 * pipeline, the largest delay, the mean of both ways, of which no ns is paid
 * more than twice, once there and once back; LH_NO_LIMIT: any; -1: there is
 * too much to simulate. `options` are complete. */
lh_status lhi_find_tolerances(const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_sim_options *options, lhi_arena *scratch,
                              int64_t *tolerances, lh_error *err);

/* Runs the events. Everything in *out is allocated from `mem`. */
lh_status lhi_engine_run(const lh_pipeline *pipeline,
                         const lh_schedule *schedule,
                         const lh_sim_options *options, lhi_arena *mem,
                         lh_timeline **out, lh_error *err);

#endif
