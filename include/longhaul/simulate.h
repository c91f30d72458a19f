/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model (DESIGN §3; CrossPipe §4.1) run forward: when every
 * pass and message of a schedule starts and ends. */
#ifndef LONGHAUL_SIMULATE_H
#define LONGHAUL_SIMULATE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_sim_options {
    size_t size;            /* sizeof(lh_sim_options) */
    lh_receives receives;   /* LH_RECEIVES_EARLY (0): as the pipeline has it */
    uint32_t coupled_queue; /* head-of-line blocking with a queue of so many
                               messages per device; 0: uncoupled */
    bool fifo;              /* ignore the schedule's link orders */
    bool own_receives;      /* `receives` counts, even where it is early */
    /* Per lh_pipeline_link(): its messages take the delegated path, and wait
     * for neither `coupled_queue` nor `receives`. NULL: none does. Borrowed as
     * long as what the options were given to. */
    const bool *delegated;
    /* Where the pipeline has host memory (lh_pipeline_with_host()): what a copy
     * of all that a forward leaves takes, to the host or back. What a device
     * has no room of its own for when its forward ends rests in the host until
     * its D or B; both passes take a copy longer. 0: copies take no time. */
    int64_t host_copy_ns;
} lh_sim_options;

/* One pass, as it ran. Times from the start of the iteration. */
typedef struct lh_timeline_run {
    lh_pass pass;
    uint32_t device;
    int64_t start_ns, end_ns;
    /* The device may go on; later than end_ns only under coupled queues. */
    int64_t issued_ns;
    uint32_t message; /* that it waited for, LH_NONE: none or local */
} lh_timeline_run;

/* One message between two devices. */
typedef struct lh_message {
    lh_pass producer, consumer;
    uint32_t from, to;   /* devices */
    uint32_t link;       /* lh_pipeline_link() index; LH_NONE: no link */
    uint32_t resource;   /* links named alike share one; LH_NONE: no link */
    int64_t produced_ns; /* the producer ended */
    int64_t ready_ns;    /* issued and its receive posted: enters the link */
    int64_t depart_ns;   /* transfer begins */
    int64_t sent_ns;     /* transfer ended */
    int64_t arrive_ns;
} lh_message;

/* One data-parallel communication. */
typedef struct lh_collective {
    uint32_t chunk, device;
    bool is_reduce_scatter; /* else all-gather */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t op; /* lh_pipeline_dp_op() index; LH_NONE: the chunk's own, at
                    the beginning or end of the iteration */
} lh_collective;

/* Activations that leave their device, or come back (lh_chunk.offload_ns), on a
 * stream of the device's own that carries one copy at a time. */
typedef struct lh_copy {
    uint32_t chunk, microbatch, device;
    bool is_back;
    /* The device's runs: launched as this one starts (back) or has ended; and
     * the one that waits until it is done. */
    uint32_t at, before;
    int64_t ready_ns, depart_ns, end_ns;
} lh_copy;

typedef struct lh_timeline lh_timeline;

/* Runs the schedule. LH_EINFEASIBLE: passes are missing, doubled or on the
 * wrong device; LH_EDEADLOCK: the orders wait for each other. Memory over the
 * limit is not an error here: see lh_timeline_fits(). `options` may be NULL.
 * Release with lh_timeline_free(). Time O(passes * log passes). */
LH_API lh_status lh_simulate(const lh_pipeline *pipeline,
                             const lh_schedule *schedule,
                             const lh_sim_options *options, lh_timeline **out,
                             lh_error *err);
LH_API void lh_timeline_free(lh_timeline *timeline); /* NULL is fine */

/* From time 0, when the first data-parallel all-gather or the first pass
 * starts, to the end of the last pass or data-parallel communication. */
LH_API int64_t lh_timeline_makespan(const lh_timeline *timeline);
/* End of the last pass on the device of chunk 0 (CrossPipe §4.1). */
LH_API int64_t lh_timeline_first_device_end(const lh_timeline *timeline);
/* Idle time / makespan over all devices, 0..1. */
LH_API double lh_timeline_bubble_ratio(const lh_timeline *timeline);
LH_API int64_t lh_timeline_peak_memory(const lh_timeline *timeline,
                                       uint32_t device);
/* Whether every device stays within its limit; else *device (may be NULL) is
 * the first that does not. */
LH_API bool lh_timeline_fits(const lh_timeline *timeline, uint32_t *device);

LH_API uint32_t lh_timeline_n_devices(const lh_timeline *timeline);
/* The runs of one device in order; borrowed. */
LH_API const lh_timeline_run *lh_timeline_runs(const lh_timeline *timeline,
                                               uint32_t device,
                                               uint32_t *n_runs);
/* All messages between devices; those of one link in the order in which they
 * leave. Borrowed. */
LH_API const lh_message *lh_timeline_messages(const lh_timeline *timeline,
                                              uint32_t *n_messages);
LH_API const lh_collective *lh_timeline_collectives(const lh_timeline *timeline,
                                                    uint32_t *n_collectives);
/* Those of one device in the order of its stream. */
LH_API const lh_copy *lh_timeline_copies(const lh_timeline *timeline,
                                         uint32_t *n_copies);
/* Distinct links (named ones once): the resources of lh_message. */
LH_API uint32_t lh_timeline_n_resources(const lh_timeline *timeline);
LH_API const char *lh_timeline_resource_name(const lh_timeline *timeline,
                                             uint32_t resource);

/* --- evaluating many orders of one pipeline ----------------------------- */

/* Works out makespans only, without allocating per call: for searches. Not
 * for use by two threads at once. */
typedef struct lh_evaluator lh_evaluator;

LH_API lh_status lh_evaluator_make(const lh_pipeline *pipeline,
                                   const lh_sim_options *options,
                                   lh_evaluator **out, lh_error *err);
LH_API void lh_evaluator_free(lh_evaluator *evaluator); /* NULL is fine */
/* The makespan of a schedule; the same number, and the same errors, as
 * lh_simulate(). */
LH_API lh_status lh_evaluator_run(lh_evaluator *evaluator,
                                  const lh_schedule *schedule,
                                  int64_t *makespan_ns, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
