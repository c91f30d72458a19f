/* SPDX-License-Identifier: Apache-2.0 */
/* A recording of a small job with known properties: each replica's stages run
 * forward and then backward. Forward passes take 10 ms, backward passes 20 ms,
 * messages 1 ms, collectives 2 ms. */
#ifndef SMALL_RECORDING_H
#define SMALL_RECORDING_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SMALL_HEADING                                                          \
    "step,rank,dp_rank,stage,optype,seq_id,mc,gmc,mb_id,start_ts,duration\n"

/* Parameters of the recording. */
typedef struct small_job {
    uint32_t steps, stages, replicas, microbatches;
    double slower;     /* slowdown of stage 0, replica 0; 0: none */
    uint32_t n_slower; /* also stage 1, replica 1 ... up to this many; 0: one */
    /* Factor on pass durations, equal on all stages, at (step * replicas +
     * replica) * microbatches + microbatch; at most 2; NULL: 1. */
    const double *work;
    const double *backward_work; /* of backward passes; NULL: `work` */
    uint32_t work_shift;     /* each later stage uses it this many microbatches
                              * later */
    const char *leave_out;   /* operation to omit; NULL: none */
    uint32_t leave_out_step; /* step without it, from 0 on */
} small_job;

static char small_text[1 << 18];
static size_t small_len;

/* Appends one row, unless it is omitted. */
static void small_row(const small_job *j, uint32_t step, uint32_t stage,
                      uint32_t replica, const char *op, uint32_t seq,
                      int microbatch, double start, double seconds)
{
    if (j->leave_out && step == j->leave_out_step &&
        strcmp(op, j->leave_out) == 0)
        return;
    int pass = microbatch >= 0 || strstr(op, "params");
    small_len += (size_t)snprintf(
        small_text + small_len, sizeof small_text - small_len,
        "%u,%u,%u,%u,%s,%u,%d,%d,%d,%.6f,%.6f\n", 10 + step,
        replica * j->stages + stage, replica, stage, op, seq, pass ? 0 : -1,
        microbatch >= 0 ? (int)stage : -1, microbatch, start, seconds);
}

/* Returns the factor on a pass's duration. */
static double small_work(const double *work, const small_job *j, uint32_t step,
                         uint32_t stage, uint32_t replica, uint32_t m)
{
    uint32_t M = j->microbatches;
    return work ? work[(step * j->replicas + replica) * M +
                       (m + stage * j->work_shift) % M]
                : 1;
}

/* Writes one rank's rows of one step. Passes start when the slowest replica
 * allows, which does not change their durations. */
static void small_rank(const small_job *j, uint32_t step, uint32_t s,
                       uint32_t r)
{
    double slower = j->slower > 0 ? j->slower : 1, longest = j->work ? 2 : 1;
    const double *back = j->backward_work ? j->backward_work : j->work;
    double f = 0.010 * slower * longest, b = 0.020 * slower * longest,
           own = s == r && (r == 0 || r < j->n_slower) ? slower : 1;
    uint32_t S = j->stages, M = j->microbatches;
    double half = 0.003 + (f + 0.002) * (S + M), end = half;
    small_row(j, step, s, r, "params-all-gather", 0, -1, 0, 0.002);
    for (uint32_t m = 0; m < M; m++) {
        double at = 0.003 + (f + 0.002) * (s + m);
        if (s > 0)
            small_row(j, step, s, r, "forward-recv", m, -1, at - 0.001, 0.001);
        small_row(j, step, s, r, "forward-compute", m, (int)m, at,
                  0.010 * own * small_work(j->work, j, step, s, r, m));
        if (s + 1 < S)
            small_row(j, step, s, r, "forward-send", m, -1, at + f + 0.001,
                      0.001);
        at = half + (b + 0.002) * (S - 1 - s + m);
        if (s + 1 < S)
            small_row(j, step, s, r, "backward-recv", m, -1, at - 0.001, 0.001);
        small_row(j, step, s, r, "backward-compute", m, (int)m, at,
                  0.020 * own * small_work(back, j, step, s, r, m));
        if (s > 0)
            small_row(j, step, s, r, "backward-send", m, -1, at + b + 0.001,
                      0.001);
        end = at + b;
    }
    end = half + (b + 0.002) * (S + M);
    small_row(j, step, s, r, "grads-reduce-scatter", 0, -1, end, 0.002);
    small_row(j, step, s, r, "optimizer", 0, -1, end + 0.003, 0.001);
}

/* Writes the recording to small_text and small_len. */
static void small_recording(const small_job *j)
{
    small_len = (size_t)snprintf(small_text, sizeof small_text, SMALL_HEADING);
    for (uint32_t step = 0; step < j->steps; step++)
        for (uint32_t r = 0; r < j->replicas; r++)
            for (uint32_t s = 0; s < j->stages; s++)
                small_rank(j, step, s, r);
}

#endif
