/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's own model of a pipeline: operations in rows (passes with one
 * chunk and kind, or their messages) on machines (devices and links), with its
 * own proofs that a deadline cannot be met. Shares no code with the scheduling
 * and bounding modules; proofs are in docs/theory/optimal.md. */
#ifndef LHI_SCHEDULE_VERIFIER_MODEL_H
#define LHI_SCHEDULE_VERIFIER_MODEL_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/pipeline.h>
#include <stdbool.h>
#include <stdint.h>

/* A time later than any schedule; sums of four fit into 64 bits. */
#define LHI_NEVER (INT64_MAX / 4)

/* Data-parallel communication for a chunk that shares its device. */
enum { LHI_GATHERED = 16, LHI_SCATTERED = 17 };

/* A row: operations with one chunk and kind. */
typedef struct lhi_verify_row {
    uint8_t kind; /* lh_pass_kind; messages: their producers'; or ... */
    bool message; /* ... LHI_GATHERED or LHI_SCATTERED */
    uint32_t chunk, machine;
    uint32_t slot;              /* index on its machine */
    uint32_t first, count, per; /* its operations; `per`: per microbatch */
    /* position on a microbatch's path; W: as its D */
    uint32_t place;
    int64_t time, memory; /* per operation; time in units */
    uint32_t out, in;     /* first precedence from and to it; LH_NONE */
} lhi_verify_row;

/* A precedence between two rows: operation i of `to` starts at least `lag`
 * after the first need[i] operations of `from` have ended. need[] never
 * decreases. */
typedef struct lhi_verify_precedence {
    uint32_t from, to; /* rows */
    int64_t lag;
    uint32_t *need;  /* [operation of `to`] */
    uint32_t *first; /* [operation of `from`]: first dependent operation of
                      * `to`; its count: none */
    uint32_t next_out, next_in; /* next precedence of the row; LH_NONE */
} lhi_verify_precedence;

/* All reachable states of one machine. */
typedef struct lhi_verify_states {
    uint32_t n;
    uint16_t *counts; /* [state * rows + slot]: completed operations */
    uint32_t *next;   /* successor state per row; LH_NONE */
} lhi_verify_states;

/* A machine: a device, or a link. */
typedef struct lhi_verify_machine {
    uint32_t device;  /* or LH_NONE: */
    const char *link; /* ... a link with that name */
    uint32_t first_row, n_rows, first_op, n_ops;
    int64_t room;              /* memory for passes; INT64_MAX: no limit */
    lhi_verify_states *states; /* NULL: too many */
} lhi_verify_machine;

/* An operation with its earliest start or its deadline. */
typedef struct lhi_verify_event {
    int64_t time;
    uint32_t op;
} lhi_verify_event;

/* A range of operations by deadline. `sum`: their total duration; `excess`: the
 * largest amount by which the duration up to a deadline exceeds it. */
typedef struct lhi_verify_demand {
    int64_t sum, excess;
} lhi_verify_demand;

/* The model with its windows. */
typedef struct lhi_verify_model {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint64_t work, most_work; /* steps so far; limit */
    uint32_t n_rows, n_machines, n_ops;
    lhi_verify_row *rows;
    lhi_verify_machine *machines;
    uint32_t *row_of; /* [op] */
    uint32_t *row_at; /* [type * chunks + chunk]: F, D or B, W, messages of F,
                       * of D or B; LH_NONE */
    size_t *slot_at;  /* [op]: index for arrays per operation and slot */
    uint32_t n_precedences;
    lhi_verify_precedence *precedences;
    int64_t *head, *tail; /* [op]: release time and tail */
    /* Times are in unit_ns / scale: passes without duration take 1. */
    int64_t unit_ns, scale;
    /* Under a deadline: earliest start, latest end. */
    int64_t *start, *finish;
    uint32_t *least, *most; /* [slot_at]: operations of that row before it */
    /* scratch */
    uint32_t *queue;
    bool *queued, *dirty; /* [op], [machine] */
    uint32_t front, n_queue;
    int64_t *early, *late;           /* [state] */
    int64_t *new_start, *new_finish; /* [op] */
    lhi_verify_event *events;        /* [operation of one machine] */
    uint32_t *rank;                  /* [operation of one machine] */
    lhi_verify_demand *demand;       /* binary tree over `rank` */
} lhi_verify_model;

/* Builds the verifier's job-shop model in `mem`, independently of the
 * solver's. `parts`: parts per W; `most_work`: limit on the steps of all
 * refutations with the model. Unsupported pipeline: *why is set and *out is
 * NULL. */
lh_status lhi_verify_model_make(const lh_pipeline *p, uint32_t parts,
                                uint64_t most_work, lhi_arena *mem,
                                lhi_verify_model **out, const char **why,
                                lh_error *err);
/* Counts steps of work, of about 6 ns each: visited operations, precedences,
 * states, literals. Returns whether there are more than the model's limit;
 * refutations then end without a result. */
static inline bool lhi_verify_count_work(lhi_verify_model *claim,
                                         uint64_t steps)
{
    claim->work += steps;
    return claim->work > claim->most_work;
}
/* Frees the states of all machines and their times, which are not part of the
 * model's arena; NULL is allowed. */
void lhi_verify_model_fini(lhi_verify_model *claim);

/* Returns the deadline in model time, including the model's tails, for
 * schedules that end by `ns`; -1: out of range. */
int64_t lhi_verify_get_deadline(const lhi_verify_model *claim, int64_t ns);
/* Returns the smallest makespan above `ns` that is possible, since all times
 * are multiples of the model's time unit. */
int64_t lhi_verify_get_next_makespan(const lhi_verify_model *claim, int64_t ns);

/* Tightens the time windows for `deadline` until nothing changes; *refuted:
 * some window is empty. Otherwise fills in `least` and `most`, the numbers of
 * operations of each row that precede an operation. */
lh_status lhi_verify_tighten_windows(lhi_verify_model *claim, int64_t deadline,
                                     bool *refuted, lh_error *err);
/* Sets the windows for `deadline` from heads, tails and precedences alone;
 * false: some window is empty. */
bool lhi_verify_start_windows(lhi_verify_model *claim, int64_t deadline);
/* Propagates the windows of all queued operations along rows and precedences;
 * false: some window is empty, which refutes the deadline. */
bool lhi_verify_propagate(lhi_verify_model *claim);
/* Checks whether device m (machine number) cannot meet the deadline even if its
 * chunks are not distinguished. *refuted: it cannot. Sets windows, and `least`
 * to the numbers of operations that must precede an operation. */
lh_status lhi_verify_check_pass_kinds(lhi_verify_model *claim, uint32_t m,
                                      int64_t deadline, bool *refuted,
                                      lh_error *err);
/* Raises an operation's earliest start and queues it; false: its window is
 * empty. */
bool lhi_verify_raise_start(lhi_verify_model *claim, uint32_t o, int64_t start);
/* Lowers an operation's latest end and queues it; false: its time window is
 * empty */
bool lhi_verify_lower_end(lhi_verify_model *claim, uint32_t o, int64_t finish);
/* Queues an operation for propagation and marks its machine for tightening. */
void lhi_verify_queue_operation(lhi_verify_model *claim, uint32_t o);
/* Removes and returns the next operation in the queue, which must not be
 * empty. */
uint32_t lhi_verify_take_operation(lhi_verify_model *claim);
/* Propagates an operation's time window along its row (same-kind operations on
 * one chunk) and its precedences; false: some window is empty. */
bool lhi_verify_propagate_operation(lhi_verify_model *claim, uint32_t o);

/* Checks whether the operations of machine m that must run within some time
 * interval, by their earliest starts and latest ends, take longer than that
 * interval. */
bool lhi_verify_is_overloaded(lhi_verify_model *claim, uint32_t m);
/* Checks whether machine m, taken alone, has no order of its operations within
 * the time windows in `start` and `finish` of the model. */
bool lhi_verify_is_machine_infeasible(lhi_verify_model *claim, uint32_t m);

/* Checks that each clause of the certificate follows from the time windows
 * (lhi_verify_tighten_windows()) and the previous clauses. *bad: the first that
 * does not, or LH_NONE; *refuted: the clauses refute the deadline. Neither is
 * meaningful if the work exceeds its limit, except that *refuted is true. */
lh_status lhi_verify_check_clauses(lhi_verify_model *claim, int64_t deadline,
                                   const lh_certificate *c, uint32_t *bad,
                                   bool *refuted, lh_error *err);

/* Returns the model's operation for a pass or, with `message`, for the message
 * that it produces; LH_NONE: none. */
uint32_t lhi_verify_find_operation(const lhi_verify_model *claim,
                                   const lh_pass *pass, bool message);
/* Finds the model's row that has all same-kind passes on a chunk, or with
 * `message` their messages; NULL: none. */
const lhi_verify_row *lhi_verify_find_row(const lhi_verify_model *claim,
                                          uint32_t chunk, uint8_t kind,
                                          bool message);

/* Recomputes a closed form: *n terms, at most 8, and their sum. *n is 0 if the
 * form does not apply. */
enum { LHI_VERIFY_MAX_TERMS = 8 };
/* Computes the closed-form bound `form` for a device or link: its terms (n of
 * them) and their sum in ns. */
lh_status lhi_verify_compute_closed_form(const lh_pipeline *p,
                                         lh_bound_kind form, uint32_t device,
                                         const char *link, lh_bound_term *terms,
                                         uint32_t *n, int64_t *sum,
                                         lh_error *err);

#endif
