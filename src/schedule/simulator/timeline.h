/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of lh_timeline, and the event engine that fills it.
 *
 * The performance model. Input: a pipeline and a schedule for it. Output: each
 * pass's time, message and collective (longhaul/simulate.h), and an
 * explanation of the total (longhaul/experimental/analysis.h).
 *
 *     order_check.c        checks that the orders are complete, before a run
 *     event_engine.c       the model: events in time order
 *     link_orders.h        explicit message orders on links, for the engine
 *     dp_clock.h           data-parallel communication, for any simulator;
 *                          dp_pieces.c: its pieces on links with messages
 *     fair_links.h         links that messages and pieces share by rate
 *     copy_clock.h         activation offloading, for any simulator
 *     simulate.c           lh_simulate(), and access to a timeline
 *     evaluator.c          makespan only, without an event queue if possible
 *     analysis.c           idle time by cause, critical path, links, slack
 *     tolerance.c          delay tolerance per boundary, from many makespans
 *     jitter_samples.h     makespans under random delays: jitter.c
 *     kernels.c            longest path through recorded kernels */
#ifndef LHI_SCHEDULE_SIMULATOR_TIMELINE_H
#define LHI_SCHEDULE_SIMULATOR_TIMELINE_H

#include "base/arena.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/simulator/dp_clock.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/simulate.h>

/* A simulation's result; all memory belongs to `mem`. */
struct lh_timeline {
    lhi_arena *mem;
    lh_sim_options options; /* options used; owns `delegated` */
    uint32_t n_devices, n_resources;
    const char **resource_names;
    int64_t makespan_ns, first_device_end_ns;
    int64_t busy_ns; /* sum over all devices */
    int64_t *peak_memory, *memory_limits;
    size_t *offsets; /* device d's runs: offsets[d]..offsets[d + 1] - 1 */
    lh_timeline_run *runs;
    uint32_t n_messages, n_collectives;
    lh_message *messages;
    lh_collective *collectives;
    uint32_t n_pieces; /* of collectives on shared links */
    lhi_dp_piece *pieces;
    uint32_t n_copies;
    lh_offload_copy *copies;
};

/* Completes simulator options with defaults from the pipeline and rejects
 * invalid ones. `options` may be NULL. */
lh_status lhi_sim_options(const lh_pipeline *pipeline,
                          const lh_sim_options *options, lh_sim_options *out,
                          lh_error *err);

/* Per (chunk, microbatch): passes observed in the orders so far. */
typedef struct lhi_observed_passes {
    uint8_t *state;  /* bits below */
    uint32_t *parts; /* divided W: n_parts << 16 | parts observed */
} lhi_observed_passes;

/* Bits: pass kinds of which a duration was observed. */
enum { LHI_OBSERVED_F = 1, LHI_OBSERVED_D = 2, LHI_OBSERVED_W = 4 };

/* Checks that `schedule` has every pass of `pipeline` exactly once, on its
 * device, after its prerequisites with the same chunk and microbatch (W parts
 * in order). `seen`: zeroed, n_chunks x n_microbatches entries. */
lh_status lhi_orders_check(const lh_pipeline *pipeline,
                           const lh_schedule *schedule,
                           lhi_observed_passes *seen, lh_error *err);

/* Work limit for tolerances: total passes times boundaries. With the event
 * engine a sixteenth applies. */
#define LHI_TOLERANCE_WORK (UINT64_C(1) << 20)

/* Computes tolerances[i] for each boundary between devices i and i + 1 in a UD
 * pipeline. The tolerance is the largest delay, averaged over both directions,
 * whose last ns costs at most 2 ns: one forward and one backward. LH_NO_LIMIT:
 * any delay; -1: too much to simulate. `options` must be complete. */
lh_status lhi_sim_find_tolerances(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_sim_options *options,
                                  lhi_arena *scratch, int64_t *tolerances,
                                  lh_error *err);

/* Computes messages, busy time (also with data-parallel pieces, slices of
 * collectives) and queue length of every link. *out: one entry per link
 * resource of the timeline, allocated in `mem`. */
lh_status lhi_analysis_compute_link_use(const lh_pipeline *pipeline,
                                        const lh_timeline *timeline,
                                        lhi_arena *mem, lhi_arena *scratch,
                                        lh_link_use **out, lh_error *err);
/* Computes slackness and delay tolerance of every boundary between devices, in
 * `mem`. Slackness: difference of the devices' warm-up forwards. Delay
 * tolerance: delay that costs at most 2 ns per ns. Only for chunk c on device
 * c; otherwise *out and *n_out are unchanged. */
lh_status lhi_analysis_find_slack(const lh_pipeline *pipeline,
                                  const lh_timeline *timeline,
                                  const lh_schedule *schedule, lhi_arena *mem,
                                  lhi_arena *scratch, lh_slack **out,
                                  uint32_t *n_out, lh_error *err);

/* A simulated network that delivers the messages of some links, in place of the
 * links' latencies. */
typedef struct lhi_sim_network {
    void *context;
    const bool *carries; /* per lh_pipeline_link() */
    /* Sends message `number` of the timeline at message->depart_ns. That is not
     * before the time to which the network has advanced. */
    lh_status (*send)(void *context, uint32_t number, const lh_message *message,
                      lh_error *err);
    /* Advances the network until its next message arrives, at most to
     * `until_ns`. *number: the message; LH_NONE: none arrives. */
    lh_status (*receive)(void *context, int64_t until_ns, uint32_t *number,
                         int64_t *arrive_ns, lh_error *err);
} lhi_sim_network;

/* Simulates a schedule as lh_simulate() does; `network` delivers the messages
 * of its links. Data-parallel pieces that share a link with such messages wait
 * for the link's transfer times. */
lh_status lhi_simulate_with_network(const lh_pipeline *pipeline,
                                    const lh_schedule *schedule,
                                    const lh_sim_options *options,
                                    const lhi_sim_network *network,
                                    lh_timeline **out, lh_error *err);

/* Computes a timeline's busy time, and each device's peak memory, from its
 * passes. */
void lhi_timeline_sum_passes(const lh_pipeline *pipeline,
                             lh_timeline *timeline);

/* Lets later runs of an evaluator end early: they may report INT64_MAX for a
 * makespan of useless_ns or more. INT64_MAX: no run does. */
void lhi_evaluator_set_useless(lh_evaluator *evaluator, int64_t useless_ns);

/* Simulates a schedule with the event engine; everything in *out is allocated
 * from `mem`. `network` may be NULL. idle_limits[device]: idle time in ns after
 * which the run ends, with a makespan of INT64_MAX and an incomplete timeline;
 * NULL: no limit. */
lh_status lhi_event_engine_run(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_sim_options *options,
                               const lhi_sim_network *network,
                               const int64_t *idle_limits, lhi_arena *mem,
                               lh_timeline **out, lh_error *err);

#endif
