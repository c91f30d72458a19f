/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as a job shop: operations in chains ("streams") on machines that
 * run one at a time. Microbatches are interchangeable, so a stream's operations
 * run in index order, and only the interleaving of a machine's streams is open
 * (docs/theory/optimal.md, "Streams"). */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_JOB_SHOP_H
#define LHI_SCHEDULE_SOLVER_MODEL_JOB_SHOP_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/solve.h>
#include <longhaul/pipeline.h>

/* As an index: none. A time later than any schedule; sums of four fit into 64
 * bits. */
#define NONE UINT32_MAX
#define FAR (INT64_MAX / 4)

/* Kinds of streams. */
typedef enum lhi_stream_kind {
    LHI_F,
    LHI_D, /* or B */
    LHI_W,
    LHI_MESSAGE_F, /* from chunk to chunk + 1 */
    LHI_MESSAGE_D, /* from chunk to chunk - 1 */
    LHI_GATHER,
    LHI_SCATTER,
} lhi_stream_kind;

/* A chain of same-kind operations on one chunk. */
typedef struct lhi_stream {
    lhi_stream_kind kind;
    uint32_t chunk, machine;
    uint32_t slot;         /* index on its machine */
    uint32_t first, count; /* range of operations */
    uint32_t per;          /* operations per microbatch; collectives: all */
} lhi_stream;

/* Precedence rule: operation x in stream b requires operation x / per_b in
 * stream a, on the same machine (per_a is 1). */
typedef struct lhi_rule {
    uint32_t a, b;
} lhi_rule;

/* Kinds of machines. */
typedef enum lhi_machine_kind {
    LHI_DEVICE,
    LHI_LINK,
    LHI_GATHERS, /* a device's data-parallel link before ... */
    LHI_SCATTERS /* ... and after the passes */
} lhi_machine_kind;

/* A machine that runs one operation at a time. */
typedef struct lhi_machine {
    lhi_machine_kind kind;
    uint32_t index; /* device or resource number */
    uint32_t first_stream, n_streams;
    uint32_t first_rule, n_rules;
    /* The device that also determines its order; NONE: open. */
    uint32_t leader;
    int64_t memory_limit;     /* without static memory; LH_NO_LIMIT */
    bool arcs_enforce_memory; /* arcs alone enforce that limit */
} lhi_machine;

/* The job shop for one pipeline. */
typedef struct lhi_shop {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n_microbatches, parts;
    uint32_t n_streams, n_machines, n_ops, n_rules;
    /* Times are in units of unit_ns / scale: divided by their common divisor,
     * and multiplied if some passes take no time, so that those take 1. */
    int64_t unit_ns, scale;
    lhi_stream *streams;
    lhi_machine *machines;
    lhi_rule *rules;
    uint32_t *stream_of; /* per operation */
    int64_t *time;       /* per operation, > 0 */
    int64_t *memory;     /* per operation: net change */
    /* Arcs: the second operation starts no earlier than `lag` after the end of
     * the first. */
    uint32_t *succ_at, *succ, *pred_at, *pred;
    int64_t *succ_lag, *pred_lag;
    /* Release times and tails: an operation starts no earlier than `head`, and
     * `tail` follows its end; tail < 0: not part of the objective. */
    int64_t *head, *tail;
    uint32_t *f, *d, *w, *message_f, *message_d; /* streams per chunk */
    uint32_t *device_machine;                    /* per device; NONE: idle */
    uint32_t *link_machine;                      /* per resource; NONE */
    int64_t horizon;    /* upper bound for semi-active schedules */
    int64_t host_copy;  /* time of a copy to host memory; 0: none */
    bool times_relaxed; /* bounds are valid; solutions must be simulated */
    bool shares_links;  /* some links carry collectives, too (relaxed) */
    bool parts_relaxed; /* built by lhi_shop_make_relaxed() */
    bool restricted;    /* solutions are valid; better ones may exist */
} lhi_shop;

/* Builds a job shop in `mem`. `parts`: parts per W. `fifo`: links are FIFO; if
 * a link has several senders, FIFO is relaxed. If W parts are unequal, the job
 * shop is restricted: it runs them in order. LH_EUNSUPPORTED: too large for
 * exact arithmetic. */
lh_status lhi_shop_make(const lh_pipeline *p, uint32_t parts, bool fifo,
                        lh_solve_objective objective, lhi_arena *mem,
                        lhi_shop **out, lh_error *err);

/* Adds copies to host memory of host_copy_ns each, which
 * lhi_machine_orders_evaluate() then includes. Bounds remain those without
 * copies. Rescales the times so that the copy time is an integer; if they would
 * be too large, rounds or shortens the copy time instead. */
void lhi_shop_add_host_copies(lhi_shop *shop, int64_t host_copy_ns);

/* Builds a job shop as lhi_shop_make() does, with equal W parts: each as short
 * as the shortest and freeing as much as the largest. Never restricted: its
 * bounds hold for all orders of the parts. `parts`: parts per W; `fifo`: links
 * are FIFO. */
lh_status lhi_shop_make_relaxed(const lh_pipeline *p, uint32_t parts, bool fifo,
                                lh_solve_objective objective, lhi_arena *mem,
                                lhi_shop **out, lh_error *err);

/* Builds the precedence rules between streams (same-kind passes on one chunk)
 * of the same machine: which operations must precede which. For the
 * construction of a job shop only. */
lh_status lhi_shop_make_rules(lhi_shop *shop, lh_error *err);

/* Checks whether no device has more than one chunk. */
bool lhi_shop_has_single_chunks(const lhi_shop *shop);

/* Returns the job-shop deadline, in scaled time, that allows makespans of at
 * most `units` (multiples of unit_ns). */
int64_t lhi_shop_get_deadline(const lhi_shop *shop, int64_t units);

/* Builds a schedule from the operation order on every machine,
 * orders[machine][k]. `links`: include message orders. */
lh_status lhi_shop_build_schedule(const lhi_shop *shop,
                                  const uint32_t *const *orders, bool links,
                                  lh_schedule **out, lh_error *err);
/* Extracts every machine's order from a schedule by simulating it; orders[m]
 * needs capacity for the machine's operations. *fits = false: the schedule
 * does not belong to this job shop. */
lh_status lhi_shop_read_orders(const lhi_shop *shop,
                               const lh_schedule *schedule,
                               uint32_t *const *orders, bool *fits,
                               lh_error *err);
/* Returns the operation count on a machine. */
uint32_t lhi_machine_count_operations(const lhi_shop *shop, uint32_t machine);

#endif
