/* SPDX-License-Identifier: Apache-2.0 */
/* Optimality certificate: a record with which a third party checks that a
 * schedule is optimal. Text form: docs/formats/certificate.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_CERTIFICATE_H
#define LONGHAUL_EXPERIMENTAL_CERTIFICATE_H

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Optimality proof kinds. */
typedef enum lh_proof_kind {
    LH_PROOF_CLOSED_FORM, /* sum of named durations */
    LH_PROOF_PASS_KINDS,  /* a device has no shorter order, even if its chunks
                           * are not distinguished */
    /* a shorter schedule gives some pass an empty time window, derived from one
     * device or link at a time */
    LH_PROOF_WINDOWS,
    LH_PROOF_SEARCH, /* refutation: each clause follows from earlier ones,
                      * down to the empty clause */
    LH_PROOF_NONE,   /* not recorded; see `why` */
} lh_proof_kind;

/* LH_PROOF_SEARCH: maximum number of pass or message pairs that share a device
 * or link and differ in kind or chunk. Larger proofs are neither recorded nor
 * checked. */
enum { LH_PROOF_MAX_PAIRS = 1 << 27 };

/* Time windows at the end of the refutation, for the passes of one chunk and
 * kind or for their messages. */
typedef struct lh_proof_row {
    uint32_t chunk;
    uint8_t kind; /* lh_pass_kind; messages: of the producer */
    bool message;
    uint32_t n_passes;        /* split W: counts every part */
    const int64_t *start_ns;  /* earliest start */
    const int64_t *finish_ns; /* latest end */
} lh_proof_row;

/* States that one pass (or its message) precedes another on the shared device
 * or link. */
typedef struct lh_proof_order {
    lh_pass first, second;
    bool messages;
} lh_proof_order;

/* A disjunction: at least one order holds in every schedule that ends by
 * lh_certificate.refuted_ns. */
typedef struct lh_proof_clause {
    uint32_t n_orders; /* at least one order holds in every feasible schedule */
    const lh_proof_order *orders; /* in schedules that end by refuted_ns */
} lh_proof_clause;

/* An optimality certificate. Owns its arrays and strings; release with
 * lh_certificate_free(). */
typedef struct lh_certificate {
    const char *version; /* longhaul version that wrote it */
    /* "fnv1a64:..." hash of the canonical text */
    const char *pipeline_hash;
    /* schedule restricted to first in, first out */
    bool fifo;
    uint32_t sub_blocks;           /* number of W parts; 1: W is whole */
    int64_t makespan_ns, bound_ns; /* equal: optimal */
    const lh_schedule *schedule;
    lh_proof_kind kind;
    const char *why; /* LH_PROOF_NONE: the reason; else "" */
    /* LH_PROOF_CLOSED_FORM: the bound is the sum of the terms. */
    lh_bound_kind form;
    uint32_t device;  /* also of LH_PROOF_PASS_KINDS; LH_NONE if the form
                       * involves no device */
    const char *link; /* LH_BOUND_LINK, or windows on a link; else "" */
    uint32_t n_terms;
    const lh_bound_term *terms;
    /* LH_PROOF_PASS_KINDS, LH_PROOF_WINDOWS, LH_PROOF_SEARCH: no schedule ends
     * by this time. */
    int64_t refuted_ns;
    /* LH_PROOF_WINDOWS: windows for `device` or `link` that its passes cannot
     * fit. Empty (n_rows 0) if a window was already empty. */
    uint32_t n_rows;
    const lh_proof_row *rows;
    uint32_t n_clauses;
    const lh_proof_clause *clauses;
} lh_certificate;

/* Repeats the proof of the bound of `solution` and records it. `options` are
 * those of the original search; effort and time limit apply to the proof, and
 * are shared by the methods. For a solution that is not optimal only
 * LH_PROOF_CLOSED_FORM and LH_PROOF_PASS_KINDS are tried.
 *
 * The kind is LH_PROOF_NONE if no record exists: no such proof, another
 * objective, too long, or cancelled. Release with lh_certificate_free(). */
LH_API lh_status lh_certify(const lh_pipeline *pipeline,
                            const lh_solve_options *options,
                            const lh_solution *solution, lh_certificate **out,
                            lh_error *err);
/* Frees the certificate; NULL is a no-op. */
LH_API void lh_certificate_free(lh_certificate *certificate);

/* Formats the certificate as JSON. Parsing the text gives an equal certificate,
 * which formats to the same text. Release *text with lh_text_free(); `len` may
 * be NULL. */
LH_API lh_status lh_certificate_format(const lh_certificate *certificate,
                                       char **text, size_t *len, lh_error *err);
/* Reads and parses a certificate file. LH_EIO: the file cannot be read;
 * LH_EINPUT: it is no valid certificate. Release *out with
 * lh_certificate_free(). */
LH_API lh_status lh_certificate_read(const char *path, lh_certificate **out,
                                     lh_error *err);

LH_API const char *lh_proof_kind_name(lh_proof_kind kind); /* "windows" */

#ifdef __cplusplus
}
#endif
#endif
