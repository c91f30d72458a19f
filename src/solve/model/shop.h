/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as a job shop: operations in chains ("streams"), on machines that
 * run one at a time. Microbatches are alike, so the operations of a stream run
 * in index order, and only how a machine's streams interleave is open
 * (docs/theory/optimal.md, "Streams"). */
#ifndef LHI_SHOP_H
#define LHI_SHOP_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/pipeline.h>
#include <longhaul/solve.h>

#define NONE UINT32_MAX
#define FAR (INT64_MAX / 4)

typedef enum lhi_kind {
    LHI_F,
    LHI_D, /* or B */
    LHI_W,
    LHI_MESSAGE_F, /* from chunk to chunk + 1 */
    LHI_MESSAGE_D, /* from chunk to chunk - 1 */
    LHI_GATHER,
    LHI_SCATTER,
} lhi_kind;

typedef struct lhi_stream {
    lhi_kind kind;
    uint32_t chunk, machine;
    uint32_t slot;         /* among the streams of its machine */
    uint32_t first, count; /* its operations */
    uint32_t per;          /* operations of one microbatch */
} lhi_stream;

/* Operation x of stream b needs operation x / per_b + shift of stream a done,
 * on the same machine (per_a is 1). */
typedef struct lhi_rule {
    uint32_t a, b;
} lhi_rule;

typedef enum lhi_machine_kind {
    LHI_DEVICE,
    LHI_LINK,
    LHI_GATHERS, /* a device's data-parallel link before ... */
    LHI_SCATTERS /* ... and after the passes */
} lhi_machine_kind;

typedef struct lhi_machine {
    lhi_machine_kind kind;
    uint32_t index; /* of the device or resource */
    uint32_t first_stream, n_streams;
    uint32_t first_rule, n_rules;
    /* The device that decides its order too; NONE: it is open. */
    uint32_t leader;
    int64_t memory_limit; /* net of static memory; LH_NO_LIMIT */
    bool arcs_hold;       /* arcs alone keep that limit */
} lhi_machine;

typedef struct lhi_shop {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n_microbatches, parts;
    uint32_t n_streams, n_machines, n_ops, n_rules;
    /* Times are in units of unit_ns / scale: divided by their common divisor,
     * and multiplied where some passes take no time, so that those take 1. */
    int64_t unit_ns, scale;
    lhi_stream *streams;
    lhi_machine *machines;
    lhi_rule *rules;
    uint32_t *stream_of; /* per operation */
    int64_t *time;       /* per operation, > 0 */
    int64_t *memory;     /* per operation: net change */
    /* Arcs: the second starts no earlier than `lag` after the first ended. */
    uint32_t *succ_at, *succ, *pred_at, *pred;
    int64_t *succ_lag, *pred_lag;
    /* From outside: an operation starts no earlier than `head`, and `tail`
     * follows its end; below 0 where the objective does not ask for it. */
    int64_t *head, *tail;
    uint32_t *f, *d, *w, *message_f, *message_d; /* streams per chunk */
    uint32_t *device_machine;                    /* per device; NONE: idle */
    uint32_t *link_machine;                      /* per resource; NONE */
    int64_t horizon; /* no semi-active schedule is longer */
    bool relaxed;    /* its bounds hold; its solutions have to be simulated */
    bool loose;      /* made by lhi_shop_make_loose() */
    bool restricted; /* its solutions hold; there may be better ones */
} lhi_shop;

/* `parts`: of a W. `fifo`: links are first in, first out; where a link has
 * several senders the shop is then relaxed. Where the parts of a W are not
 * alike it is restricted: it takes them in order.
 * LH_EUNSUPPORTED: too large for exact numbers. Lives in `mem`. */
lh_status lhi_shop_make(const lh_pipeline *p, uint32_t parts, bool fifo,
                        lh_solve_objective objective, lhi_arena *mem,
                        lhi_shop **out, lh_error *err);

/* The same with the parts of a W alike: each as short, and freeing as much, as
 * any of them. Never restricted: its bounds hold for all orders of the parts.
 */
lh_status lhi_shop_make_loose(const lh_pipeline *p, uint32_t parts, bool fifo,
                              lh_solve_objective objective, lhi_arena *mem,
                              lhi_shop **out, lh_error *err);

/* No device has more than one chunk. */
bool lhi_shop_is_single(const lhi_shop *shop);

/* The shop's deadline for "makespan <= units * unit_ns", and back: the least
 * number of units that a shop time needs. */
int64_t lhi_shop_deadline(const lhi_shop *shop, int64_t units);

/* A schedule from the order of operations on every machine:
 * orders[machine.first operation + k]; `links`: with message orders. */
lh_status lhi_shop_schedule(const lhi_shop *shop, const uint32_t *const *orders,
                            bool links, lh_schedule **out, lh_error *err);
/* The order of every machine from a schedule and how it ran; orders[m] has
 * room for the machine's operations. false: it is not one of this shop. */
lh_status lhi_shop_orders(const lhi_shop *shop, const lh_schedule *schedule,
                          uint32_t *const *orders, bool *fits, lh_error *err);
uint32_t lhi_machine_ops(const lhi_shop *shop, uint32_t machine);

#endif
