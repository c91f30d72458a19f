/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an lh_exec: instructions in the form that ranks execute. */
#ifndef LHI_RUNTIME_ENGINE_EXECUTION_PLAN_H
#define LHI_RUNTIME_ENGINE_EXECUTION_PLAN_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/offload.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/engine.h>

/* A pass with its input and output. Numbering of pass inputs, with n
 * microbatches and N = chunks * n:
 *
 *     F(c, m)           c * n + m
 *     D(c, m), B(c, m)  N + c * n + m
 *
 * A message has the number of the input that it carries. */
typedef struct lhi_exec_pass {
    lh_pass pass;
    uint32_t input, output; /* LH_NONE: none */
    bool local_input;       /* produced by an earlier pass of this rank */
    bool local_output;
    bool is_first;    /* F of its chunk: waits for the all-gather */
    bool is_last;     /* W or B: the reduce-scatter follows */
    uint32_t slot;    /* of the input if it is a message */
    uint32_t in_link; /* link of the input */
    uint32_t peer;    /* rank that receives the output */
    uint32_t link;    /* link of the output */
    uint64_t turn;
    /* Whether the output and the input are delegated, and each copy's modelled
     * duration. */
    bool delegated, in_delegated;
    uint32_t queue; /* in the output's lane; LH_NONE: direct */
    int64_t staging_ns, in_staging_ns;
    int64_t host_copy_ns;     /* copies of activations held in host memory */
    uint32_t first_post;      /* posts before this pass: up to the next one's */
    int64_t start_ns, end_ns; /* predicted */
    int64_t issued_ns;        /* predicted: the rank continues */
    uint32_t first_data;      /* collectives launched before this pass */
    uint32_t n_required_data; /* how many of them must be complete */
    /* Copies launched by earlier passes, and how many must be complete. */
    uint32_t first_copy, n_required_copies;
} lhi_exec_pass;

/* A data-parallel collective: launched when pass `after` starts (operations and
 * gathers) or when the preceding pass has ended. */
typedef struct lhi_exec_data {
    uint32_t chunk, op; /* lh_pipeline_dp_op(); LH_NONE: whole chunk */
    bool is_scatter;
    uint32_t after, before; /* passes; LH_NONE: no pass waits for it */
    int64_t predicted_ns;   /* launch time */
} lhi_exec_data;

/* A receive: posted before pass `before`, for pass `consumer`. */
typedef struct lhi_exec_post {
    uint32_t input, peer, slot, before, consumer, link;
    bool delegated;
    uint32_t queue; /* in its lane; LH_NONE */
} lhi_exec_post;

/* Delegated messages between this rank and a peer, in one direction. Message i
 * uses queue i % n_queues. */
typedef struct lhi_exec_lane {
    bool receives;
    uint32_t peer, n, n_queues;
    uint32_t *items; /* producing passes; posts if it receives */
} lhi_exec_lane;

/* One rank's lowered program. */
typedef struct lhi_exec_rank {
    uint32_t n_passes, n_posts, n_slots, n_in_flight, n_instructions, n_data;
    uint32_t n_buffers;  /* for outputs until they have arrived */
    lhi_exec_data *data; /* in launch order */
    uint32_t n_copies;
    lhi_offload_copy *copies; /* in launch order */
    lhi_exec_pass *passes;    /* n_passes + 1: the last one only ends posts */
    lhi_exec_post *posts;     /* in posting order */
    uint32_t n_lanes;
    lhi_exec_lane *lanes;
    lh_instruction *instructions;
} lhi_exec_rank;

/* An execution plan. */
struct lh_exec {
    lhi_arena *mem;
    lh_exec_options options; /* with its own copy of `delegation` */
    uint32_t n_ranks, n_links, n_half, n_chunks;
    const char **link_names;
    uint64_t *link_messages; /* per step and link */
    uint32_t *chunk_ranks;
    int64_t predicted_ns;
    lhi_exec_rank *ranks;
    lh_schedule *schedule; /* the source schedule */
};

/* Builds an execution plan as lh_exec_make() does, but without the deadlock
 * check. */
lh_status lhi_exec_lower(const lh_pipeline *pipeline,
                         const lh_schedule *schedule,
                         const lh_exec_options *options, lh_exec **out,
                         lh_error *err);

/* Builds a rank's data stream, its data-parallel collectives in launch order,
 * from its passes. `scratch`: memory for temporary tables. */
lh_status lhi_exec_lower_data(const lh_pipeline *p, lhi_arena *mem,
                              lhi_arena *scratch, lhi_exec_rank *rank,
                              lh_error *err);

/* Builds a rank's offload stream, its copies of activations in launch order,
 * from its passes. `lists_host_copies`: includes copies to host memory, for the
 * cpu device. `scratch`: memory for temporary tables. */
lh_status lhi_exec_lower_copies(const lh_pipeline *p, bool lists_host_copies,
                                lhi_arena *mem, lhi_arena *scratch,
                                lhi_exec_rank *rank, lh_error *err);
/* Returns how many copies are launched before pass `i` runs, those that it
 * launches itself as it starts included. */
uint32_t lhi_exec_count_launched_copies(const lhi_exec_rank *rank, uint32_t i);

/* Returns simulator options with the plan's data path and message settings, for
 * simulations of other schedules. Omits delegated links' copies to and from
 * host memory. */
lh_sim_options lhi_exec_sim_options(const lh_exec *exec);
/* Returns simulator options with the plan's message settings for another data
 * path (direct, delegated or mixed); `delegated`: flag per link, for the mixed
 * path; else NULL. */
lh_sim_options lhi_exec_sim_options_on(const lh_exec *exec, lh_data_path path,
                                       const bool *delegated);

/* --- direct and delegated path (lower_paths.c) --- */

/* Copies the delegation options that the plan's data path uses into `mem`. */
lh_status lhi_exec_copy_delegation(const lh_pipeline *pipeline,
                                   lh_exec_options *options, lhi_arena *mem,
                                   lh_error *err);
/* Simulates the schedule with the data path (direct, delegated or mixed) of
 * the options. */
lh_status lhi_exec_simulate(const lh_pipeline *pipeline,
                            const lh_schedule *schedule,
                            const lh_exec_options *options, lh_timeline **out,
                            lh_error *err);
/* Checks whether messages on a route are delegated (copied through host memory
 * and sent by a helper thread). *staging_ns: duration of each copy. */
bool lhi_exec_is_delegated(const lh_exec_options *options,
                           const lhi_route *route, int64_t *staging_ns);
/* Builds a rank's lanes, each with the delegated messages to or from one rank.
 * made_ns, arrive_ns: predicted time, per input number, when the message is
 * produced and arrives. LH_EUNSUPPORTED: more than LH_MAX_QUEUES queues are
 * needed. */
lh_status lhi_exec_add_lanes(lh_exec *exec, uint32_t rank,
                             const int64_t *made_ns, const int64_t *arrive_ns,
                             lh_error *err);

/* Checks that every instruction can eventually run. A message moves only after
 * its receive is posted, and links with explicit orders wait for the next
 * message in their order. LH_EDEADLOCK: the plan deadlocks. */
lh_status lhi_exec_check_deadlock(const lh_exec *exec, lh_error *err);

/* Returns the rank that produces an input. */
static inline uint32_t lhi_exec_producer(const lh_exec *x, uint32_t input,
                                         uint32_t n_microbatches)
{
    uint32_t c = input % x->n_half / n_microbatches;
    return x->chunk_ranks[input < x->n_half ? c - 1 : c + 1];
}

#endif
