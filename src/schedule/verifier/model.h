/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's own model of a pipeline: operations in rows (passes with one
 * chunk and kind, or their messages) on machines (devices and links), with its
 * own proofs that a deadline cannot be met. Shares no code with the scheduling
 * and bounding modules; proofs are in docs/theory/optimal.md. */
#ifndef LHI_SCHEDULE_VERIFIER_MODEL_H
#define LHI_SCHEDULE_VERIFIER_MODEL_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/bounds.h>
#include <longhaul/certificate.h>
#include <longhaul/pipeline.h>
#include <stdbool.h>
#include <stdint.h>

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
} lhi_verify_row;

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

/* The model with its windows. */
typedef struct lhi_verify_model {
    const lh_pipeline *p;
    lhi_arena *mem;
    uint32_t n_rows, n_machines, n_ops;
    lhi_verify_row *rows;
    lhi_verify_machine *machines;
    uint32_t *row_of; /* [op] */
    size_t *slot_at;  /* [op]: index for arrays per operation and slot */
    uint32_t *succ_at, *succ, *pred_at, *pred; /* arcs */
    int64_t *succ_lag, *pred_lag;
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
    const char *refuted_by;          /* refuting method */
    uint32_t refuted_at;             /* machine; LH_NONE: a single pass */
} lhi_verify_model;

/* Builds the model in `mem`. Unsupported pipeline: *why is set and *out is
 * NULL. */
lh_status lhi_verify_model_make(const lh_pipeline *p, uint32_t parts,
                                lhi_arena *mem, lhi_verify_model **out,
                                const char **why, lh_error *err);
void lhi_verify_model_fini(
    lhi_verify_model *claim); /* frees memory outside `mem`; NULL is
                               * allowed */

/* Returns the deadline in model time for "done by `ns`"; -1: out of range. */
int64_t lhi_verify_get_deadline(const lhi_verify_model *claim, int64_t ns);
/* Returns the smallest possible makespan above `ns`. */
int64_t lhi_verify_get_next_makespan(const lhi_verify_model *claim, int64_t ns);

/* Tightens the windows to a fixpoint; *refuted: some window is empty. Otherwise
 * fills `least` and `most`. */
lh_status lhi_verify_tighten_windows(lhi_verify_model *claim, int64_t deadline,
                                     bool *refuted, lh_error *err);
/* Checks whether machine m alone cannot run its operations within the windows
 * in `start` and `finish`. */
bool lhi_verify_is_machine_infeasible(lhi_verify_model *claim, uint32_t m);

/* Checks that each clause follows from the windows
 * (lhi_verify_tighten_windows()) and the previous clauses. *bad: the first that
 * does not, or LH_NONE; *refuted: the clauses refute the deadline. */
lh_status lhi_verify_check_clauses(lhi_verify_model *claim, int64_t deadline,
                                   const lh_certificate *c, uint32_t *bad,
                                   bool *refuted, lh_error *err);

/* Returns the operation for a pass or its message; LH_NONE. */
uint32_t lhi_verify_find_operation(const lhi_verify_model *claim,
                                   const lh_pass *pass, bool message);
/* Finds a row; NULL: none. */
const lhi_verify_row *lhi_verify_find_row(const lhi_verify_model *claim,
                                          uint32_t chunk, uint8_t kind,
                                          bool message);

/* Recomputes a closed form: *n terms, at most 8, and their sum. *n is 0 if the
 * form does not apply. */
enum { LHI_VERIFY_MAX_TERMS = 8 };
/* Computes the closed form `form` for a device or link. */
lh_status lhi_verify_compute_closed_form(const lh_pipeline *p,
                                         lh_bound_kind form, uint32_t device,
                                         const char *link, lh_bound_term *terms,
                                         uint32_t *n, int64_t *sum,
                                         lh_error *err);

#endif
