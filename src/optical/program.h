/* SPDX-License-Identifier: Apache-2.0 */
/* What the devices of a job do in one iteration: passes in order, and the
 * messages between them. */
#ifndef LHI_PROGRAM_H
#define LHI_PROGRAM_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

typedef struct lhi_task {
    int64_t duration_ns;
    int64_t bits; /* of the message it makes */
    uint32_t device;
    uint32_t producer; /* on another device, whose message it needs; LH_NONE */
    uint32_t consumer; /* on another device, of its message; LH_NONE */
    uint32_t after;    /* W: the D on this device that it needs; LH_NONE */
    uint32_t port;     /* by which it sends: device * 2 + (0 F, 1 gradient) */
    lh_pass pass;
} lhi_task;

typedef struct lhi_program {
    uint32_t n_devices, n_tasks;
    const lhi_task *tasks; /* by device, then in order */
    const uint32_t *first; /* [n_devices + 1], into tasks */
    int64_t bound_ns;      /* an iteration with no time for messages */
    int64_t busy_ns;       /* all passes of all devices */
    int64_t least_ns;      /* those of the busiest device */
    int64_t max_bits;
    uint32_t max_edge;    /* most messages of one pair of devices */
    lh_receives receives; /* when they are posted */
    /* Where the passes are from: what they send within a site, and their
     * data-parallel communication, are its. NULL: there is none of either. */
    const lh_pipeline *pipeline;
    int64_t after_ns; /* follows in every iteration */
    /* Messages from device a to device b: [a * n_devices + b]. */
    const uint32_t *edges;
} lhi_program;

typedef enum lhi_program_order {
    LHI_GPIPE,
    LHI_1F1B,
} lhi_program_order;

/* One chunk per device, all alike. */
typedef struct lhi_chain {
    uint32_t stages, microbatches;
    int64_t forward_ns, backward_ns, bits;
    lhi_program_order order;
    uint32_t warm_up_factor; /* 1F1B: warm-up forwards, 1: p-1-s on stage s */
} lhi_chain;

/* The link that the message of a task takes where both its ends are on one
 * site of the pipeline; NULL: it is there at once. */
const lhi_route *lhi_program_route(const lhi_program *program, uint32_t task);

lh_status lhi_program_chain(const lhi_chain *chain, lhi_arena *mem,
                            lhi_program *out, lh_error *err);
/* LH_EINFEASIBLE, LH_EDEADLOCK: the schedule does not suit the pipeline. */
lh_status lhi_program_schedule(const lh_pipeline *pipeline,
                               const lh_schedule *schedule, int64_t bits,
                               lhi_arena *mem, lhi_program *out, lh_error *err);

#endif
