/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model run forward while an order is being made: what each
 * device may run next and when, given all that was placed so far. `slack` and
 * `greedy` differ only in how a device chooses. */
#ifndef LHI_PLANNER_H
#define LHI_PLANNER_H

#include "sched/sched.h"

#define LHI_NEVER INT64_MAX

typedef struct lhi_plan_chunk {
    uint32_t next_f, next_d; /* microbatch of the next F, and of the next D (or
                                B): in order, per chunk and kind */
    int64_t *f_at, *d_at;    /* when the input of each is there; LHI_NEVER:
                                not known yet */
    /* Memory that must stay free after an F, or a D, of this chunk so that
     * its microbatch can always go on to its end. */
    int64_t keep_f, keep_d;
    int64_t mem_d; /* of D, or of B */
    uint32_t nth;  /* among its device's chunks */
} lhi_plan_chunk;

/* The best of some chunks; LHI_NEVER throughout: there is none. `need` is the
 * memory that an F or D takes and keeps free. */
typedef struct lhi_pass_offer {
    int64_t ready_need; /* least, of those whose input is there already */
    int64_t later_ns;   /* earliest input, of those on their way, ... */
    int64_t later_need; /* ... and least need among these */
} lhi_pass_offer;

/* The next Fs, or Ds, of a device's chunks whose input is known: a tournament
 * with a leaf per chunk, in model order. nodes[1] is the best of all. */
typedef struct lhi_offers {
    lhi_pass_offer *nodes;
    uint32_t leaves;
} lhi_offers;

typedef struct lhi_plan_device {
    const uint32_t *chunks; /* in model order */
    uint32_t n_chunks;
    lhi_offers f, d; /* D or B */
    int64_t free_ns;
    int64_t memory, limit;   /* static memory included */
    int64_t most_need;       /* of any F or D: with so much room all fit */
    uint64_t f_left, d_left; /* passes not placed yet */
    uint32_t w_pending;      /* Ws whose D is placed */
    uint32_t w_at;           /* place in the order of the D whose W is next */
    uint16_t w_part;
    lh_pass_kind last; /* of F and D, whichever was placed last */
} lhi_plan_device;

/* What a device would do next. */
typedef struct lhi_choice {
    int64_t start_ns;  /* LHI_NEVER: nothing for now */
    lh_pass_kind kind; /* LH_D stands for D or B; LH_W for its next part */
    uint32_t chunk;    /* of F and D */
} lhi_choice;

typedef struct lhi_planner lhi_planner;
typedef lhi_choice lhi_choose_fn(const lhi_planner *planner, uint32_t device,
                                 const void *policy);

struct lhi_planner {
    const lh_pipeline *pipeline;
    lhi_arena *mem;
    lhi_plan_chunk *chunks;
    lhi_plan_device *devices;
    uint32_t n_parts;              /* of each W */
    uint32_t quarters;             /* of a forward: memory left unused */
    struct lhi_booking *resources; /* per link resource */
    int64_t *gathered_ns;          /* per chunk: its all-gather is there */
    lhi_choice *choices;           /* per device */
    uint32_t *tree, leaves;        /* tournament of devices */
    lhi_orders *orders;            /* filled; not owned */
};

/* Places all passes: each time the device whose choice starts earliest (ties:
 * the lower device) runs it. `n_parts`: sub-blocks of each W. `quarters`: of
 * its memory each device leaves so many quarters of a forward unused, if it
 * can. Makes and fills `out`. Time O(passes * log(chunks * devices)). */
lh_status lhi_planner_run(const lh_pipeline *pipeline, uint32_t n_parts,
                          uint32_t quarters, lhi_choose_fn *choose,
                          const void *policy, lhi_orders *out, lh_error *err);

/* Greedy's orders with that much unused: where memory is tight less may be
 * better, as a forward that only just fits can take what others' turns then
 * wait for. */
lh_status lhi_greedy_sparing(const lh_pipeline *pipeline,
                             const lh_method_options *options,
                             uint32_t quarters, lhi_orders *out, lh_error *err);

/* When the next F, or D, of a chunk could start; LHI_NEVER: unknown, or none
 * left. */
int64_t lhi_plan_start(const lhi_planner *planner,
                       const lhi_plan_device *device, uint32_t chunk,
                       lh_pass_kind kind);
/* Whether the next F, or D, of a chunk leaves what must stay free. */
bool lhi_plan_fits(const lhi_planner *planner, const lhi_plan_device *device,
                   uint32_t chunk, lh_pass_kind kind);

/* How much memory the device may still take. */
int64_t lhi_plan_room(const lhi_plan_device *device);

/* The last chunk, by its place among the device's, whose pass has its input
 * and fits into `room`; LH_NONE: none. */
uint32_t lhi_offers_ready(const lhi_offers *offers, int64_t room);
/* The same of those whose input comes later, but by `by_ns`. */
uint32_t lhi_offers_later(const lhi_offers *offers, int64_t room,
                          int64_t by_ns);
/* When the first of those comes, if it fits; LHI_NEVER: none. */
int64_t lhi_offers_next(const lhi_offers *offers, int64_t room);

#endif
