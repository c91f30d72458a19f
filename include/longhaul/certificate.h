/* SPDX-License-Identifier: Apache-2.0 */
/* The record of why a schedule is optimal, for others to check. Text form:
 * docs/formats/certificate.md. */
#ifndef LONGHAUL_CERTIFICATE_H
#define LONGHAUL_CERTIFICATE_H

#include <longhaul/bounds.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/solve.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_proof_kind {
    LH_PROOF_CLOSED_FORM, /* a sum of works, named */
    LH_PROOF_WINDOWS,     /* a shorter schedule leaves some pass no time, by
                             reasoning about one device or link at a time */
    LH_PROOF_SEARCH,      /* clauses, each from those before it, down to none */
    LH_PROOF_NONE,        /* not recorded; `why` says why not */
} lh_proof_kind;

/* LH_PROOF_SEARCH: passes and messages that share a device or link, in pairs of
 * different kinds or chunks; with more of them none is recorded or judged. */
enum { LH_PROOF_MOST_PAIRS = 1 << 27 };

/* The passes of one chunk and kind, or their messages, and the time that is
 * left to each where the refutation ended. */
typedef struct lh_proof_row {
    uint32_t chunk;
    uint8_t kind; /* lh_pass_kind; of messages that of their producers */
    bool message;
    uint32_t n_passes;        /* W in parts: every part */
    const int64_t *start_ns;  /* earliest start */
    const int64_t *finish_ns; /* latest end */
} lh_proof_row;

/* One pass (or its message) before another on the device or link that they
 * share. */
typedef struct lh_proof_order {
    lh_pass first, second;
    bool messages;
} lh_proof_order;

typedef struct lh_proof_clause {
    uint32_t n_orders; /* of these at least one holds in every schedule that is
                          done */
    const lh_proof_order *orders; /* by refuted_ns */
} lh_proof_clause;

typedef struct lh_certificate {
    const char *version;           /* of longhaul that made it */
    const char *pipeline_hash;     /* "fnv1a64:..." of its canonical text */
    bool fifo;                     /* the schedule ran first in, first out */
    uint32_t sub_blocks;           /* W whole, or in so many parts */
    int64_t makespan_ns, bound_ns; /* equal: optimal */
    const lh_schedule *schedule;
    lh_proof_kind kind;
    const char *why; /* LH_PROOF_NONE; else "" */
    /* LH_PROOF_CLOSED_FORM: the bound is the sum of the terms. */
    lh_bound_kind form;
    uint32_t device;  /* LH_NONE where the form is of no device */
    const char *link; /* LH_BOUND_LINK, and windows on a link; else "" */
    uint32_t n_terms;
    const lh_bound_term *terms;
    /* LH_PROOF_WINDOWS, LH_PROOF_SEARCH: no schedule is done by then. */
    int64_t refuted_ns;
    /* LH_PROOF_WINDOWS: the windows of `device` or `link`, which its passes do
     * not fit into; none (n_rows 0) where a window was empty before. */
    uint32_t n_rows;
    const lh_proof_row *rows;
    uint32_t n_clauses;
    const lh_proof_clause *clauses;
} lh_certificate;

/* Proves once more, with a record, that the optimal schedule of `solution` is
 * so. `options` are those it was found with; effort and time limit hold for the
 * proof. Where there is no record (not optimal, another objective, too long,
 * stopped) the kind is LH_PROOF_NONE. Release with lh_certificate_free(). */
LH_API lh_status lh_certify(const lh_pipeline *pipeline,
                            const lh_solve_options *options,
                            const lh_solution *solution, lh_certificate **out,
                            lh_error *err);
LH_API void lh_certificate_free(lh_certificate *certificate);

/* JSON; reads back to the same certificate and the same text. Release *text
 * with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_certificate_format(const lh_certificate *certificate,
                                       char **text, size_t *len, lh_error *err);
LH_API lh_status lh_certificate_parse(const char *text, size_t len,
                                      const char *name, lh_certificate **out,
                                      lh_error *err);
LH_API lh_status lh_certificate_read(const char *path, lh_certificate **out,
                                     lh_error *err);

LH_API const char *lh_proof_kind_name(lh_proof_kind kind); /* "windows" */
/* "path", "device", "drain", "round-trips", "memory", "link" */
LH_API const char *lh_bound_kind_name(lh_bound_kind kind);

#ifdef __cplusplus
}
#endif
#endif
