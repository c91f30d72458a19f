/* SPDX-License-Identifier: Apache-2.0 */
/* One run: jobs and background traffic on one network, under one policy, from
 * one seed. */
#ifndef LHI_TRAFFIC_RUN_H
#define LHI_TRAFFIC_RUN_H

#include "base/random.h"
#include "optical/choose.h"
#include "optical/program.h"
#include "sim/dp_clock.h"

typedef struct lhi_background {
    double erlang; /* 0: none */
    double holding_ns;
    uint32_t slots_min, slots_max;
    uint32_t from, to; /* one pair of nodes; both 0: any pair */
} lhi_background;

/* Requests closer than this, on average, would hold up simulated time. */
#define LHI_LEAST_GAP_NS 1000

static inline bool lhi_background_moves(const lhi_background *b)
{
    return b->erlang <= 0 || b->holding_ns / b->erlang >= LHI_LEAST_GAP_NS;
}

typedef struct lhi_run_job {
    const lhi_program *program;
    const uint32_t *sites; /* node of each device */
} lhi_run_job;

/* A circuit that was held at some time of the recorded iteration. */
typedef struct lhi_held_circuit {
    const lhi_path *path;
    uint32_t first, slots;
    uint32_t job, task; /* LH_NONE: background */
    int64_t start_ns, end_ns;
} lhi_held_circuit;

/* The last iteration of job 0, for pictures; times are the run's. */
typedef struct lhi_sent_record {
    int64_t begin_ns, end_ns;
    int64_t *start_ns, *finish_ns, *arrive_ns; /* by task; -1: no message */
    bool *bound;                               /* communication-bound */
    lhi_held_circuit *held;
    size_t n_held, held_room;
} lhi_sent_record;
void lhi_record_fini(lhi_sent_record *record);

typedef struct lhi_run_input {
    lhi_network *network;
    const lhi_policy *policy;
    const lhi_background *background;
    const lhi_run_job *jobs;
    uint32_t n_jobs;
    int64_t retry_ns;
    uint32_t iterations; /* counted ones; one before them is not */
    uint64_t seed;
    lhi_sent_record *record; /* zeroed; NULL: none */
} lhi_run_input;

/* Of each job, arrays of iterations + 1. */
typedef struct lhi_run_job_output {
    int64_t *iteration_ns;
    uint32_t *labels, *requested, *refused;
    double held_ns; /* slots x fibres x ns, in counted iterations */
} lhi_run_job_output;

typedef struct lhi_run_output {
    lhi_run_job_output *jobs;
    uint64_t background, background_refused;
} lhi_run_output;

/* Fills the output, whose arrays the caller has made. */
lh_status lhi_run(const lhi_run_input *input, lhi_run_output *output,
                  lh_error *err);

/* --- circuits and background traffic ----------------------------------------
 */

typedef struct lhi_circuit {
    const lhi_path *path;
    uint32_t first, slots; /* slots 0: not in use */
    uint32_t next_unused;
    uint32_t job, task;
    int64_t start_ns, end_ns;
} lhi_circuit;

typedef struct lhi_circuits {
    lhi_spectrum spectrum;
    lhi_circuit *items;
    uint32_t count, room, unused;
    uint64_t held; /* slots x fibres */
} lhi_circuits;

lh_status lhi_circuits_make(const lhi_network *network, lhi_circuits *out,
                            lh_error *err);
void lhi_circuits_fini(lhi_circuits *circuits);
/* Holds the grant's slots; LH_NONE: no memory. */
uint32_t lhi_circuits_take(lhi_circuits *circuits,
                           const lhi_circuit_grant *grant);
void lhi_circuits_release(lhi_circuits *circuits, uint32_t circuit);

typedef struct lhi_arrivals {
    const lhi_background *background;
    uint32_t n_nodes;
    lhi_random random;
    int64_t next_ns; /* INT64_MAX: no more */
    double gap_ns;   /* mean */
} lhi_arrivals;

typedef struct lhi_arrival {
    uint32_t from, to, slots;
    int64_t holding_ns;
} lhi_arrival;

void lhi_arrivals_init(lhi_arrivals *arrivals, const lhi_background *background,
                       uint32_t n_nodes, uint64_t seed);
/* The arrival at next_ns, which moves on. */
lhi_arrival lhi_arrivals_next(lhi_arrivals *arrivals);

#endif
