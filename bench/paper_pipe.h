/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines of papers' settings, and what schedules of them take. A program
 * ends with a message where one cannot be made. */
#ifndef PAPER_PIPE_H
#define PAPER_PIPE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>

#include <stdbool.h>
#include <stdint.h>

/* Devices alike; chunks as the placement has them, a device's time shared among
 * its own. */
typedef struct paper_pipe {
    const char *placement; /* "ud", "wave", "loop" */
    unsigned devices, microbatches;
    double f_ms, d_ms, w_ms;        /* per device */
    unsigned datacenters;           /* devices next to each other; 0: one */
    double latency_ms, transfer_ms; /* between these */
    /* Of what a device's F of one microbatch holds; 0: no limit. A chunk of
     * half the layers holds half of it. */
    unsigned memory;
    bool joint; /* B in place of D and W */
    /* Latency of links between neighbours, both ways, devices - 1 of them;
     * NULL: none. Only without datacenters. */
    const double *delays_ms;
} paper_pipe;

/* Release with lh_pipeline_free(). */
lh_pipeline *paper_pipe_make(const paper_pipe *q);

/* How a schedule is made and run. */
typedef struct paper_run {
    const char *method;
    unsigned sub_blocks;    /* greedy: parts of a W; 0: whole */
    lh_receives receives;   /* with LH_RECEIVES_LATE: unposted */
    unsigned coupled;       /* queue of a device's sends; 0: none */
    const uint32_t *warmup; /* slack: forwards first, per device; NULL */
} paper_run;

typedef struct paper_result {
    double ms;      /* negative: the method does not fit */
    double bubbles; /* idle time / makespan, 0..1 */
    /* When the first device's first backward begins. */
    double first_backward_ms;
} paper_result;

paper_result paper_pipe_run(const paper_pipe *q, const paper_run *how);
/* Its makespan alone. */
double paper_pipe_ms(const paper_pipe *q, const paper_run *how);
/* A schedule made for one pipeline, run on another: the order stays. */
paper_result paper_pipe_replay(const paper_pipe *made_for, const paper_pipe *q,
                               const paper_run *how);

/* What a search found, and what it proved. */
typedef struct paper_best {
    double ms, bound_ms;
    bool proven; /* none is shorter */
} paper_best;

/* The same of any pipeline. */
paper_result paper_run_on(const lh_pipeline *p, const paper_run *how);
paper_best paper_solve(const lh_pipeline *p, uint64_t effort);

/* Ends by effort, so that the result is the same everywhere. */
paper_best paper_pipe_solve(const paper_pipe *q, uint64_t effort);

/* Ends the program with the message if `status` is an error. */
void paper_must(lh_status status, const lh_error *err);

#endif
