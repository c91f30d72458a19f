/* SPDX-License-Identifier: Apache-2.0 */
/* When data-parallel communication happens: the gathers and reductions of
 * chunks, and the operations that passes launch. Each device has one link for
 * it, which takes them in the order in which they are issued. Whoever runs the
 * passes tells when each starts and ends, and asks whether one may start. */
#ifndef LHI_DP_CLOCK_H
#define LHI_DP_CLOCK_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <longhaul/simulate.h>

typedef struct lhi_dp_clock {
    const lh_pipeline *p;
    int64_t last_ns;       /* when the last one arrives; INT64_MIN: none */
    int64_t *free_ns;      /* per device: its link */
    int64_t *gathered_ns;  /* per chunk: its all-gather arrives */
    uint32_t *next_gather; /* per chunk: whose all-gather its first forward
                              issues, or LH_NONE */
    uint32_t *line;        /* of one device: chunks by first forward */
    uint32_t *releases;    /* per chunk: W and B passes to go */
    uint32_t *left;        /* per point: operations not launched that it needs;
                              NULL: the pipeline has none */
    int64_t *ready_ns;     /* per point: the last of those launched arrives */
    lh_collective *sent;   /* 2 n_chunks + n_dp_ops; NULL: not kept */
    uint32_t n_sent;
} lhi_dp_clock;

/* In `mem`, as is all that it points to. */
lh_status lhi_dp_clock_make(const lh_pipeline *pipeline, lhi_arena *mem,
                            lhi_dp_clock *out, lh_error *err);

/* An iteration begins; then lhi_dp_clock_device() for every device. */
void lhi_dp_clock_begin(lhi_dp_clock *clock, int64_t now);
/* The passes of a device in order, `stride` bytes apart: gathers of the chunks
 * that are first are issued. */
void lhi_dp_clock_device(lhi_dp_clock *clock, const lh_pass *order,
                         size_t stride, uint32_t count, int64_t now);

/* Raises *start to when the pass may start, at the earliest; false: something
 * that it needs has not been launched. */
bool lhi_dp_clock_ready(const lhi_dp_clock *clock, const lh_pass *pass,
                        int64_t *start);
/* In the order of each device's passes. */
void lhi_dp_clock_started(lhi_dp_clock *clock, const lh_pass *pass,
                          int64_t start);
void lhi_dp_clock_ended(lhi_dp_clock *clock, const lh_pass *pass, int64_t now);

#endif
