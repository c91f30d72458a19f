/* SPDX-License-Identifier: Apache-2.0 */
/* Optimality certificates: records that prove why a schedule is optimal
 * (docs/formats/certificate.md).
 *
 * Input: a proof from src/schedule/solver (certify.c there fills the record),
 * or a file. Output: an lh_certificate, or its file. src/schedule/verifier
 * checks it and depends on nothing else.
 *
 * - certificate.c: ownership, names, and the hash over the pipeline.
 * - certificate_file.c: reads and writes it by field tables
 * (format/document/schema.h). */
#ifndef LHI_SCHEDULE_CERTIFICATE_CERTIFICATE_H
#define LHI_SCHEDULE_CERTIFICATE_CERTIFICATE_H

#include "base/arena.h"
#include "base/fail.h"
#include "format/document/schema.h"

#include <longhaul/experimental/certificate.h>

/* A certificate with the memory that it owns. The public part comes first, so
 * every lh_certificate can be cast to this type. */
typedef struct lhi_certificate {
    lh_certificate c;
    lhi_arena *mem;
    lh_schedule *schedule;
} lhi_certificate;

/* Allocates an empty certificate: kind LH_PROOF_NONE, all strings "". */
lh_status lhi_certificate_make(lhi_certificate **out, lh_error *err);

/* Buffer size for a hash: "fnv1a64:", 16 hex digits and a terminator fit. */
enum { LHI_HASH_TEXT = 32 };
/* Writes the FNV-1a hash over the pipeline's canonical text into `out`,
 * LHI_HASH_TEXT bytes. */
lh_status lhi_pipeline_hash(const lh_pipeline *pipeline, char *out,
                            lh_error *err);

extern const lhi_schema lhi_certificate_table; /* lh_certificate fields */
extern const char *const lhi_proof_kinds[], *const lhi_bound_kinds[];

/* Returns a closed-form lower bound's name: "path", "device", "drain",
 * "round-trips", "memory" or "link"; static storage. */
const char *lhi_closed_form_name(lh_bound_kind kind);

/* Parses the JSON form; `name` appears in error messages. LH_EINPUT: the text
 * is not a valid certificate. Release *out with lh_certificate_free(). */
lh_status lhi_certificate_parse(const char *text, size_t len, const char *name,
                                lh_certificate **out, lh_error *err);

#endif
