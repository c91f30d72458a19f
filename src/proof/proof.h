/* SPDX-License-Identifier: Apache-2.0 */
/* Records of why a schedule is optimal: docs/formats/certificate.md.
 *
 * In: what src/solve proves (certify.c there fills a record), or a file. Out:
 * an lh_certificate, or its file; src/verify judges it and uses no more than
 * that.
 * proof.c: what a certificate owns, names of its parts, the hash of the
 * pipeline that it is about. certificate_file.c: its keys, by tables
 * (doc/fields.h), reading and writing. */
#ifndef LHI_PROOF_H
#define LHI_PROOF_H

#include "base/arena.h"
#include "base/fail.h"
#include "doc/fields.h"

#include <longhaul/certificate.h>

/* The public part first: an lh_certificate is always one of these. */
typedef struct lhi_certificate {
    lh_certificate c;
    lhi_arena *mem;
    lh_schedule *schedule;
} lhi_certificate;

/* Empty: LH_PROOF_NONE, all texts "". */
lh_status lhi_certificate_make(lhi_certificate **out, lh_error *err);

/* "fnv1a64:" and 16 digits, of the canonical text. */
enum { LHI_HASH_TEXT = 32 };
lh_status lhi_pipeline_hash(const lh_pipeline *pipeline, char *out,
                            lh_error *err);

extern const lhi_table lhi_certificate_table; /* lh_certificate */
extern const char *const lhi_proof_kinds[], *const lhi_bound_kinds[];

#endif
