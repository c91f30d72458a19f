/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_exec: the instructions in the form that ranks run. */
#ifndef LHI_EXEC_H
#define LHI_EXEC_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/offload.h"
#include "pipe/schedule_own.h"

#include <longhaul/engine.h>

/* Inputs of passes are numbered as they come: that of F(c, m) is c * n + m,
 * that of D or B(c, m) is N + c * n + m, N = chunks * microbatches. A message
 * has the number of the input that it is. */
typedef struct lhi_exec_pass {
    lh_pass pass;
    uint32_t input, output; /* LH_NONE: none */
    bool local_input;       /* left by an earlier pass of this rank */
    bool local_output;
    bool is_first;    /* F of its chunk: waits for the chunk's all-gather */
    bool is_last;     /* W or B: the chunk's reduce-scatter follows */
    uint32_t slot;    /* of the input, where it is a message */
    uint32_t in_link; /* that it takes */
    uint32_t peer;    /* that the output goes to */
    uint32_t link;    /* that it takes */
    uint64_t turn;
    /* Whether the output, the input, is delegated, and what each of its copies
     * takes by the model. */
    bool delegated, in_delegated;
    uint32_t queue; /* of the output's lane; LH_NONE: it is not delegated */
    int64_t staging_ns, in_staging_ns;
    int64_t host_copy_ns;     /* of activations that rest in the host */
    uint32_t first_post;      /* posts before this pass: up to the next one's */
    int64_t start_ns, end_ns; /* predicted */
    int64_t issued_ns;        /* predicted: the rank goes on */
    uint32_t first_data; /* communications launched before this pass starts */
    uint32_t waits_data; /* of these so many have to be there */
    /* Copies launched by the passes before this one, and how many of them have
     * to be done. */
    uint32_t first_copy, waits_copies;
} lhi_exec_pass;

/* A data-parallel communication: launched as pass `after` starts (where it is
 * an operation or a gather) or as the pass before that has ended. */
typedef struct lhi_exec_data {
    uint32_t chunk, op; /* lh_pipeline_dp_op(); LH_NONE: of the whole chunk */
    bool is_scatter;
    uint32_t after, before; /* passes; LH_NONE: none waits for it */
    int64_t predicted_ns;   /* launched */
} lhi_exec_data;

/* A receive: posted before pass `before`, for pass `consumer`. */
typedef struct lhi_exec_post {
    uint32_t input, peer, slot, before, consumer, link;
    bool delegated;
    uint32_t queue; /* of its lane; LH_NONE */
} lhi_exec_post;

/* What is delegated between a rank and another one, one way: nth message,
 * queue nth % n_queues. */
typedef struct lhi_exec_lane {
    bool receives;
    uint32_t peer, n, n_queues;
    uint32_t *items; /* the passes that make them; receives: the posts */
} lhi_exec_lane;

typedef struct lhi_exec_rank {
    uint32_t n_passes, n_posts, n_slots, n_under_way, n_instructions, n_data;
    uint32_t n_buffers;    /* of what passes make, until it is there */
    lhi_exec_data *data;   /* in the order of their launch */
    uint32_t n_copies;
    lhi_offload *copies;   /* likewise */
    lhi_exec_pass *passes; /* n_passes + 1: the last one only ends posts */
    lhi_exec_post *posts;  /* in the order of posting */
    uint32_t n_lanes;
    lhi_exec_lane *lanes;
    lh_instruction *instructions;
} lhi_exec_rank;

struct lh_exec {
    lhi_arena *mem;
    lh_exec_options options; /* with a `delegation` of its own */
    uint32_t n_ranks, n_links, n_half, n_chunks;
    const char **link_names;
    uint64_t *link_messages; /* of a step, per link */
    uint32_t *chunk_ranks;
    int64_t predicted_ns;
    lhi_exec_rank *ranks;
    lh_schedule *schedule; /* that it is of */
};

/* lh_exec_make() without the proof. */
lh_status lhi_exec_lower(const lh_pipeline *pipeline,
                         const lh_schedule *schedule,
                         const lh_exec_options *options, lh_exec **out,
                         lh_error *err);

/* Fills in the data stream of a rank whose passes are there
 * (lower_data.c). */
lh_status lhi_exec_lower_data(const lh_pipeline *p, lhi_arena *mem,
                              lhi_arena *scratch, lhi_exec_rank *rank,
                              lh_error *err);

/* Likewise its offload stream (lower_data.c). */
lh_status lhi_exec_lower_copies(const lh_pipeline *p, lhi_arena *mem,
                                lhi_arena *scratch, lhi_exec_rank *rank,
                                lh_error *err);

/* How messages go under it, to simulate others in its place: of those that are
 * delegated without their copies. */
lh_sim_options lhi_exec_sim(const lh_exec *exec);
/* Likewise on another path; `delegated`: of a mixed one, else NULL. */
lh_sim_options lhi_exec_sim_on(const lh_exec *exec, lh_data_path path,
                               const bool *delegated);

/* --- the two paths (lower_paths.c) ------------------------------------------
 */

/* Copies the delegation of the options, as far as it is looked at. */
lh_status lhi_exec_take_paths(const lh_pipeline *pipeline,
                              lh_exec_options *options, lhi_arena *mem,
                              lh_error *err);
/* Simulates the schedule as its messages go under the options. */
lh_status lhi_exec_simulate(const lh_pipeline *pipeline,
                            const lh_schedule *schedule,
                            const lh_exec_options *options, lh_timeline **out,
                            lh_error *err);
/* Whether a message of the route is delegated, and what each copy takes. */
bool lhi_exec_delegates(const lh_exec_options *options, const lhi_route *route,
                        int64_t *staging_ns);
/* The rank's lanes, once it has its passes and posts. Per input, when its
 * message is made and there by the prediction. LH_EUNSUPPORTED: more queues are
 * needed than there may be. */
lh_status lhi_exec_add_lanes(lh_exec *exec, uint32_t rank,
                             const int64_t *made_ns, const int64_t *arrive_ns,
                             lh_error *err);

/* Whether every instruction can be carried out at last, with each message
 * moving only once its receive is posted and links with explicit orders
 * waiting for the message in turn. LH_EDEADLOCK: no. */
lh_status lhi_exec_prove(const lh_exec *exec, lh_error *err);

/* The rank that makes input `input`, and the one that needs it. */
static inline uint32_t lhi_exec_maker(const lh_exec *x, uint32_t input,
                                      uint32_t n_microbatches)
{
    uint32_t c = input % x->n_half / n_microbatches;
    return x->chunk_ranks[input < x->n_half ? c - 1 : c + 1];
}

#endif
