/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated iteration's messages, collectives and copies; an
 * evaluator for many orders of one pipeline.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_SIMULATE_H
#define LONGHAUL_EXPERIMENTAL_SIMULATE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One message between two devices. */
typedef struct lh_message {
    lh_pass producer, consumer;
    uint32_t from, to; /* devices */
    uint32_t link;     /* lh_pipeline_link() index; LH_NONE: no link */
    /* links with equal names share one; LH_NONE: no link */
    uint32_t resource;
    int64_t produced_ns; /* producer's end */
    int64_t ready_ns;    /* issued and receive posted: enters the link queue */
    int64_t depart_ns;   /* transfer begins */
    int64_t sent_ns;     /* transfer ends */
    int64_t arrive_ns;
} lh_message;

/* One data-parallel communication. */
typedef struct lh_collective {
    uint32_t chunk, device;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t op; /* lh_pipeline_dp_op() index; LH_NONE: the chunk's own at the
                  * start or end of the iteration */
} lh_collective;

/* One copy of offloaded activations (lh_chunk.offload_ns), to or from the host,
 * on a device stream that carries one copy at a time. */
typedef struct lh_offload_copy {
    uint32_t chunk, microbatch, device;
    bool is_reload;
    /* The device's run indices: the copy is launched when the first starts
     * (reload) or ends (offload); the second waits for the copy. */
    uint32_t launching_run, waiting_run;
    int64_t ready_ns, depart_ns, end_ns;
} lh_offload_copy;

/* Returns the last pass's end on chunk 0's device (CrossPipe section
 * 4.1). */
LH_API int64_t lh_timeline_first_device_end(const lh_timeline *timeline);

/* Returns all *n_messages messages between devices; those on one link in
 * departure order. Borrowed. */
LH_API const lh_message *lh_timeline_messages(const lh_timeline *timeline,
                                              uint32_t *n_messages);
/* Returns all *n_collectives data-parallel collectives with their times;
 * borrowed. */
LH_API const lh_collective *lh_timeline_collectives(const lh_timeline *timeline,
                                                    uint32_t *n_collectives);
/* Returns all *n_copies offload copies; those on one device in stream order.
 * Borrowed. */
LH_API const lh_offload_copy *lh_timeline_copies(const lh_timeline *timeline,
                                                 uint32_t *n_copies);
/* Returns the number of distinct links (equal names count once): the resources
 * in lh_message. */
LH_API uint32_t lh_timeline_n_resources(const lh_timeline *timeline);
/* Returns a link resource's name (links with equal names share one);
 * borrowed. */
LH_API const char *lh_timeline_resource_name(const lh_timeline *timeline,
                                             uint32_t resource);

/* --- evaluating many orders of one pipeline ----------------------------- */

/* Computes makespans only, without allocation per call; for searches. Not
 * thread-safe. */
typedef struct lh_evaluator lh_evaluator;

/* Creates an evaluator, which computes makespans of many schedules faster than
 * lh_simulate(). `options` may be NULL. Release with lh_evaluator_free(). */
LH_API lh_status lh_evaluator_make(const lh_pipeline *pipeline,
                                   const lh_sim_options *options,
                                   lh_evaluator **out, lh_error *err);
/* Frees an evaluator; ignores NULL. */
LH_API void lh_evaluator_free(lh_evaluator *evaluator);
/* Computes a schedule's makespan in ns into *makespan_ns; same result and
 * errors as lh_simulate(). */
LH_API lh_status lh_evaluator_run(lh_evaluator *evaluator,
                                  const lh_schedule *schedule,
                                  int64_t *makespan_ns, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
