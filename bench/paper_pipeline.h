/* SPDX-License-Identifier: Apache-2.0 */
/* Builds pipelines in papers' settings and measures their schedules. Functions
 * exit with a message if a pipeline cannot be built. */
#ifndef PAPER_PIPE_H
#define PAPER_PIPE_H

#include <longhaul.h>

#include <stdbool.h>
#include <stdint.h>

/* Pipeline with equal devices. The placement determines the chunks; a device's
 * time is shared among its chunks. */
typedef struct paper_pipeline {
    const char *placement; /* "ud", "wave" or "loop" */
    unsigned devices, microbatches;
    double f_ms, d_ms, w_ms;        /* per device */
    unsigned datacenters;           /* adjacent device groups; 0: one */
    double latency_ms, transfer_ms; /* between datacenters */
    /* Memory in units of a device's F activations for one microbatch; 0: no
     * limit. A chunk with half the layers stores half of it. */
    unsigned memory;
    bool joint; /* B in place of D and W */
    /* D releases the activations, as in Adaptra's Algorithm 1; otherwise W. */
    bool released_at_d;
    /* Latency for the devices - 1 links between neighbours, both directions;
     * NULL: none. Only without datacenters. */
    const double *delays_ms;
} paper_pipeline;

/* Builds the pipeline. Release with lh_pipeline_free(). */
lh_pipeline *paper_pipeline_build(const paper_pipeline *q);

/* Scheduling method and simulation options. */
typedef struct paper_run {
    const char *method;
    unsigned sub_blocks;    /* greedy: parts of a W; 0: whole */
    lh_receives receives;   /* LH_RECEIVES_LATE: not preposted */
    unsigned send_queue;    /* queue length of a device's sends; 0: none */
    bool until_sent;        /* a send leaves the queue before its latency */
    const uint32_t *warmup; /* slackness: leading forwards per device; NULL */
} paper_run;

enum { PAPER_MOST_DEVICES = 16 };

/* One simulated schedule's makespan and idle time. */
typedef struct paper_result {
    double ms;      /* negative: the method is not applicable, or a deadlock */
    double bubbles; /* idle time / makespan, 0..1 */
    /* First backward's start on the first device. */
    double first_backward_ms;
    int64_t peak[PAPER_MOST_DEVICES]; /* memory per device */
} paper_result;

/* Builds and simulates a method's schedule. */
paper_result paper_pipeline_run(const paper_pipeline *q, const paper_run *how);
/* Returns the makespan alone, in ms. */
double paper_pipeline_makespan_ms(const paper_pipeline *q,
                                  const paper_run *how);
/* Runs a schedule built for one pipeline on another one, in the same order. */
paper_result paper_pipeline_replay(const paper_pipeline *made_for,
                                   const paper_pipeline *q,
                                   const paper_run *how);

/* Solver result: best makespan and proven bound. */
typedef struct paper_best {
    double ms, bound_ms;
    bool proven; /* proven optimal */
} paper_best;

/* Runs a method on any pipeline. */
paper_result paper_run_on(const lh_pipeline *p, const paper_run *how);
/* Runs a schedule built for any pipeline on another one, in the same order. */
paper_result paper_replay_on(const lh_pipeline *made_for, const lh_pipeline *p,
                             const paper_run *how);
/* Solves any pipeline under an effort limit. */
paper_best paper_solve(const lh_pipeline *p, uint64_t effort);

/* Solves a paper's pipeline and simulates the schedule under each of `n` runs,
 * whose methods are ignored; messages leave first in, first out. Returns the
 * solver's result. */
paper_best paper_pipeline_solve_and_run(const paper_pipeline *q,
                                        uint64_t effort, const paper_run *how,
                                        unsigned n, paper_result *out);

/* Solves a paper's pipeline. The limit is effort, so the result is equal on
 * every machine. */
paper_best paper_pipeline_solve(const paper_pipeline *q, uint64_t effort);

/* Exits with the message if `status` is an error. */
void paper_check_status(lh_status status, const lh_error *err);

#endif
