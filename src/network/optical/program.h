/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a job's devices in one iteration: passes in order, and the
 * messages between them. */
#ifndef LHI_NETWORK_OPTICAL_PROGRAM_H
#define LHI_NETWORK_OPTICAL_PROGRAM_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* A pass with its message. */
typedef struct lhi_task {
    int64_t duration_ns;
    int64_t bits; /* for its output message */
    uint32_t device;
    /* task on another device whose message it needs; LH_NONE */
    uint32_t producer;
    /* task on another device that needs its message; LH_NONE */
    uint32_t consumer;
    uint32_t after; /* W: the D on this device that it needs; LH_NONE */
    uint32_t port;  /* send port: device * 2 + (0 F, 1 gradient) */
    lh_pass pass;
} lhi_task;

/* The ring in which the replicas of a job exchange parameters and gradients:
 * each is on its own node and sends to the next one. */
typedef struct lhi_replica_ring {
    uint32_t n_nodes; /* 0: one replica, or none on another node */
    const uint32_t *nodes;
    uint32_t n_chunks;
    /* Per chunk, that each replica sends; 0: nothing. Parameters are gathered
     * before the chunk's first F, gradients reduced after its last B or W. */
    const int64_t *gather_bits, *reduce_bits;
} lhi_replica_ring;

/* A job's tasks in one iteration. */
typedef struct lhi_program {
    uint32_t n_devices, n_tasks;
    const lhi_task *tasks; /* by device, then in order */
    /* The messages between replicas follow the tasks: tasks[n_tasks] to
     * tasks[n_messages - 1], with kind F for gathers and W for reductions.
     * Message n_tasks + i is sent over hop i modulo ring.n_nodes. */
    uint32_t n_messages, n_ports;
    lhi_replica_ring ring;
    const uint32_t *first; /* [n_devices + 1], into tasks */
    int64_t bound_ns;      /* iteration time with instantaneous messages */
    int64_t busy_ns;       /* total pass time */
    int64_t busiest_ns;    /* the busiest device's pass time */
    int64_t max_bits;
    uint32_t max_pair_messages; /* most messages between two devices */
    lh_receives receives;       /* when they are posted */
    /* The passes' source; provides links within a site and the data-parallel
     * communication. NULL: neither exists. */
    const lh_pipeline *pipeline;
    int64_t after_ns; /* added after every iteration */
    /* Messages from device a to device b: [a * n_devices + b]. */
    const uint32_t *edges;
} lhi_program;

/* Pass orders on a chain. */
typedef enum lhi_program_order {
    LHI_GPIPE,
    LHI_1F1B,
} lhi_program_order;

/* A chain with equal stages, one chunk per device. */
typedef struct lhi_chain {
    uint32_t stages, microbatches;
    int64_t forward_ns, backward_ns, bits;
    lhi_program_order order;
    uint32_t warm_up_factor; /* 1F1B warm-up forwards; 1: p-1-s on stage s */
} lhi_chain;

/* Returns the pipeline link of a task's message if both devices are in one
 * datacenter of the pipeline; NULL: the message does not use such a link and
 * arrives at once. */
const lhi_route *lhi_program_route(const lhi_program *program, uint32_t task);

/* Returns in *from and *to the nodes between which the output message of a task
 * is sent, or a message between replicas; sites[device]: node. False: the task
 * has none, or it stays on a node. */
static inline bool lhi_program_get_ends(const lhi_program *p,
                                        const uint32_t *sites, uint32_t task,
                                        uint32_t *from, uint32_t *to)
{
    const lhi_task *t = &p->tasks[task];
    if (task >= p->n_tasks) {
        uint32_t hop = (task - p->n_tasks) % p->ring.n_nodes;
        *from = p->ring.nodes[hop];
        *to = p->ring.nodes[(hop + 1) % p->ring.n_nodes];
        return true;
    }
    if (t->consumer == LH_NONE)
        return false;
    *from = sites[t->device];
    *to = sites[p->tasks[t->consumer].device];
    return *from != *to;
}

/* Appends the messages of a ring of replicas to a program without them. The
 * ring's arrays must outlive the program. */
lh_status lhi_program_add_replicas(const lhi_replica_ring *ring, lhi_arena *mem,
                                   lhi_program *program, lh_error *err);

/* Builds the program (pass orders and messages of one iteration) of a pipeline
 * with equal stages, one per device, with GPipe's or 1F1B's pass order. */
lh_status lhi_program_build_chain(const lhi_chain *chain, lhi_arena *mem,
                                  lhi_program *out, lh_error *err);
/* Builds the program (pass orders and messages of one iteration) of a schedule;
 * `bits`: every message's size. LH_EINFEASIBLE, LH_EDEADLOCK: the schedule does
 * not fit the pipeline. */
lh_status lhi_program_build_schedule(const lh_pipeline *pipeline,
                                     const lh_schedule *schedule, int64_t bits,
                                     lhi_arena *mem, lhi_program *out,
                                     lh_error *err);

#endif
