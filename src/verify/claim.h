/* SPDX-License-Identifier: Apache-2.0 */
/* The judge's own look at a pipeline as operations in rows (the passes of one
 * chunk and kind, or their messages) on machines (devices and links), and its
 * own reasons why they are not done by a deadline. Nothing here is shared with
 * what makes schedules and bounds; docs/theory/optimal.md has the proofs. */
#ifndef LHI_CLAIM_H
#define LHI_CLAIM_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/bounds.h>
#include <longhaul/certificate.h>
#include <longhaul/pipeline.h>
#include <stdbool.h>
#include <stdint.h>

#define LHI_NEVER (INT64_MAX / 4)

/* Data-parallel communication of a chunk that shares its device. */
enum { LHI_GATHERED = 16, LHI_SCATTERED = 17 };

typedef struct lhi_claim_row {
    uint8_t kind; /* lh_pass_kind; of messages that of their producers; or */
    bool message; /* one of LHI_GATHERED, LHI_SCATTERED */
    uint32_t chunk, machine;
    uint32_t slot;              /* among the rows of its machine */
    uint32_t first, count, per; /* its operations; `per` of a microbatch */
    uint32_t place;             /* on a microbatch's way; W: that of its D */
    int64_t time, memory;       /* of each operation; time in units */
} lhi_claim_row;

typedef struct lhi_claim_states {
    uint32_t n;
    uint16_t *counts; /* [state * rows + slot]: operations done */
    uint32_t *next;   /* the state after one more of that row; LH_NONE */
} lhi_claim_states;

typedef struct lhi_claim_machine {
    uint32_t device;  /* or LH_NONE: */
    const char *link; /* ... a link of that name */
    uint32_t first_row, n_rows, first_op, n_ops;
    int64_t room;             /* memory for passes; INT64_MAX: no limit */
    lhi_claim_states *states; /* NULL: too many */
} lhi_claim_machine;

typedef struct lhi_claim {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n_rows, n_machines, n_ops;
    lhi_claim_row *rows;
    lhi_claim_machine *machines;
    uint32_t *row_of; /* [op] */
    size_t *slot_at;  /* [op]: into the arrays per operation and slot */
    uint32_t *succ_at, *succ, *pred_at, *pred; /* arcs */
    int64_t *succ_lag, *pred_lag;
    int64_t *head, *tail; /* [op]: from outside */
    /* Times are unit_ns / scale: passes that take none take 1. */
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
    const char *refuted_by;          /* what lhi_claim_refute() ended with */
    uint32_t refuted_at;             /* machine; LH_NONE: a single pass */
} lhi_claim;

/* Lives in `mem`. *why is set, and *out NULL, where the pipeline is beyond what
 * is checked. */
lh_status lhi_claim_make(const lh_pipeline *p, uint32_t parts, lhi_arena *mem,
                         lhi_claim **out, const char **why, lh_error *err);
void lhi_claim_fini(lhi_claim *claim); /* what is not in `mem`; NULL is fine */

/* The deadline in the model's time for "done by `ns`"; -1: out of range. */
int64_t lhi_claim_deadline(const lhi_claim *claim, int64_t ns);
/* The least makespan above `ns` that there can be. */
int64_t lhi_claim_above(const lhi_claim *claim, int64_t ns);

/* Tightens windows to a fixpoint; *refuted: some pass has none left. Else
 * `least` and `most` are filled in. */
lh_status lhi_claim_windows(lhi_claim *claim, int64_t deadline, bool *refuted,
                            lh_error *err);
/* Whether machine m alone cannot run its operations within the windows that
 * `start` and `finish` give. */
bool lhi_claim_machine_fails(lhi_claim *claim, uint32_t m);

/* Goes through clauses, each of which has to follow from the windows of
 * lhi_claim_windows() and the clauses before it. *bad is the first that does
 * not, LH_NONE where all do; *refuted: none is left open. */
lh_status lhi_claim_clauses(lhi_claim *claim, int64_t deadline,
                            const lh_certificate *c, uint32_t *bad,
                            bool *refuted, lh_error *err);

/* The operation of a pass or its message; LH_NONE. */
uint32_t lhi_claim_op(const lhi_claim *claim, const lh_pass *pass,
                      bool message);
const lhi_claim_row *lhi_claim_find_row(const lhi_claim *claim, uint32_t chunk,
                                        uint8_t kind, bool message);

/* The terms of a closed form, worked out anew: *n of them, at most 8, and their
 * sum. *n is 0 where there is no such form. */
enum { LHI_MOST_TERMS = 8 };
lh_status lhi_claim_form(const lh_pipeline *p, lh_bound_kind form,
                         uint32_t device, const char *link,
                         lh_bound_term *terms, uint32_t *n, int64_t *sum,
                         lh_error *err);

#endif
