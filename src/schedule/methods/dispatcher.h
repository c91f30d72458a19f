/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatcher: builds an order by running the performance model forward. It
 * tracks which pass each device may run next and when, given all passes placed
 * so far. `slack` and `greedy` differ only in their dispatch policy. */
#ifndef LHI_SCHEDULE_METHODS_DISPATCHER_H
#define LHI_SCHEDULE_METHODS_DISPATCHER_H

#include "schedule/methods/sched.h"

/* As a time: never. */
#define LHI_NEVER INT64_MAX

/* Dispatch state per chunk. */
typedef struct lhi_dispatcher_chunk {
    uint32_t next_f, next_d; /* microbatch for the next F and the next D (or B),
                              * per chunk and kind, in order */
    /* input arrival per microbatch; LHI_NEVER: unknown */
    int64_t *f_at, *d_at;
    /* Memory that must stay free after an F, or D, on this chunk so that its
     * microbatch can always finish. */
    int64_t reserve_f, reserve_d;
    int64_t mem_d;  /* change by D, or B */
    uint32_t index; /* index among its device's chunks */
} lhi_dispatcher_chunk;

/* Minimum over several chunks; all fields LHI_NEVER: no entry. `need`: memory
 * that an F or D takes plus its reserve. */
typedef struct lhi_ready_entry {
    int64_t ready_need; /* min. need among passes with input available */
    int64_t later_ns;   /* earliest input still in flight */
    int64_t later_need; /* min. need among passes with input in flight */
} lhi_ready_entry;

/* Ready queue: the next Fs, or Ds, on a device's chunks whose input time is
 * known. A tournament tree with one leaf per chunk, in the device's order;
 * nodes[1] is the root. */
typedef struct lhi_ready_queue {
    lhi_ready_entry *nodes;
    uint32_t leaves;
} lhi_ready_queue;

/* Dispatch state per device. */
typedef struct lhi_dispatcher_device {
    /* In model order: of two directions, a chunk closer to the model's end is
     * later; of more copies, one of a lower copy. */
    const uint32_t *chunks;
    uint32_t n_chunks;
    lhi_ready_queue f, d; /* d: D or B */
    int64_t free_ns;
    int64_t memory, limit;   /* including static memory */
    int64_t most_need;       /* max. need of any F or D */
    uint64_t f_left, d_left; /* passes not yet placed */
    uint32_t w_pending;      /* Ws whose D is placed */
    uint32_t w_at;           /* position of the D whose W is next */
    int64_t idle_left_ns;    /* before the makespan is useless */
    uint16_t w_part;
    lh_pass_kind last; /* last placed kind, F or D */
    uint32_t oldest; /* more than two copies: chunk of the oldest microbatch */
} lhi_dispatcher_device;

/* A device's next pass. */
typedef struct lhi_dispatcher_choice {
    int64_t start_ns;  /* LHI_NEVER: nothing at present */
    lh_pass_kind kind; /* LH_D: D or B; LH_W: the next W part */
    uint32_t chunk;    /* for F and D */
    /* F only: the chunk whose next B runs overlapped with it, if has_pair. */
    uint32_t pair;
    bool has_pair;
} lhi_dispatcher_choice;

typedef struct lhi_dispatcher lhi_dispatcher;
/* Dispatch policy: chooses a device's next pass. `policy`: the caller's data.
 */
typedef lhi_dispatcher_choice
lhi_dispatcher_policy_fn(const lhi_dispatcher *planner, uint32_t device,
                         const void *policy);

/* The dispatcher's state for one run. */
struct lhi_dispatcher {
    const lh_pipeline *pipeline;
    lhi_arena *mem;
    lhi_dispatcher_chunk *chunks;
    lhi_dispatcher_device *devices;
    uint32_t n_parts;  /* parts per W */
    uint32_t quarters; /* unused memory, quarters of a forward */
    struct lhi_link_reservations *resources; /* per link resource */
    int64_t *gathered_ns;           /* per chunk: its all-gather's arrival */
    lhi_dispatcher_choice *choices; /* per device */
    uint32_t *tree, leaves;         /* tournament tree over devices */
    bool is_useless;                /* some device was idle for too long */
    lhi_orders *orders;             /* output; not owned */
};

/* Builds all passes' orders: repeatedly runs the choice (by policy
 * function `choose`) that starts earliest; ties: the lower device. `n_parts`:
 * parts per W. `quarters`: quarters of a forward's memory that each device
 * leaves unused, if feasible. Allocates and fills `out`; stops early
 * if the makespan would be out->useless_ns or more. It does not stop early if
 * several devices send on one link, because the simulation may then be faster
 * than the dispatcher's times. Time O(passes * log(chunks * devices)). */
lh_status lhi_dispatcher_run(const lh_pipeline *pipeline, uint32_t n_parts,
                             uint32_t quarters,
                             lhi_dispatcher_policy_fn *choose,
                             const void *policy, lhi_orders *out,
                             lh_error *err);

/* Runs the method "greedy" and leaves `quarters` quarters of a forward's
 * memory unused. With little memory this can be faster: a forward that barely
 * fits may take memory that other passes then wait for. */
lh_status lhi_greedy_run_with_reserve(const lh_pipeline *pipeline,
                                      const lh_method_options *options,
                                      uint32_t quarters, lhi_orders *out,
                                      lh_error *err);

/* Returns the time in ns at which a chunk's next F or D (input-gradient pass)
 * could start. LHI_NEVER: it is not known yet when the input arrives, or no
 * pass of this kind is left. */
int64_t lhi_dispatcher_get_start(const lhi_dispatcher *planner,
                                 const lhi_dispatcher_device *device,
                                 uint32_t chunk, lh_pass_kind kind);
/* Checks whether a chunk's next F or D fits into the device's memory and leaves
 * the reserve free that its microbatch still needs. */
bool lhi_dispatcher_fits(const lhi_dispatcher *planner,
                         const lhi_dispatcher_device *device, uint32_t chunk,
                         lh_pass_kind kind);

/* Checks whether the next F of chunk `f` and the next B of chunk `b` can run as
 * an overlapped pair, a single pass. Neither may need the other, and both must
 * fit into `room` bytes. */
bool lhi_dispatcher_fits_pair(const lhi_dispatcher *planner, uint32_t f,
                              uint32_t b, int64_t room);

/* Returns the memory in bytes that the device may still take below its
 * limit. */
int64_t lhi_dispatcher_get_headroom(const lhi_dispatcher_device *device);

/* Returns the last chunk, by its index on the device, whose next pass has its
 * input and fits into `room` bytes; LH_NONE: none. */
uint32_t lhi_ready_queue_find_ready(const lhi_ready_queue *offers,
                                    int64_t room);
/* Returns the last chunk, by its index on the device, whose next pass fits into
 * `room` bytes and gets its input, now in flight, by by_ns; LH_NONE: none. */
uint32_t lhi_ready_queue_find_later(const lhi_ready_queue *offers, int64_t room,
                                    int64_t by_ns);
/* Returns the time in ns at which the first input in flight arrives, among
 * passes that fit into `room` bytes; LHI_NEVER: none. */
int64_t lhi_ready_queue_get_next_arrival(const lhi_ready_queue *offers,
                                         int64_t room);

#endif
