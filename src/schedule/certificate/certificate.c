/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/certificate/certificate.h"

#include <inttypes.h>
#include <stdio.h>

const char *const lhi_proof_kinds[] = {"closed-form", "pass-kinds", "windows",
                                       "search",      "none",       NULL};
const char *const lhi_bound_kinds[] = {
    "path", "device", "drain", "round-trips", "memory", "link", NULL};

/* Returns the name of a proof kind (closed form, windows, clauses or none) as
 * written in certificates; static storage. */
const char *lh_proof_kind_name(lh_proof_kind kind)
{
    return (unsigned)kind <= LH_PROOF_NONE ? lhi_proof_kinds[kind] : "unknown";
}

const char *lhi_closed_form_name(lh_bound_kind kind)
{
    return (unsigned)kind <= LH_BOUND_LINK ? lhi_bound_kinds[kind] : "unknown";
}

lh_status lhi_certificate_make(lhi_certificate **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_certificate *c = mem ? LHI_NEW(mem, lhi_certificate, 1) : NULL;
    if (!c) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    c->mem = mem;
    c->c = (lh_certificate){.version = "",
                            .pipeline_hash = "",
                            .sub_blocks = 1,
                            .kind = LH_PROOF_NONE,
                            .why = "",
                            .link = "",
                            .device = LH_NONE};
    *out = c;
    return LH_OK;
}

void lh_certificate_free(lh_certificate *certificate)
{
    if (!certificate)
        return;
    lhi_certificate *whole = (lhi_certificate *)certificate;
    lh_schedule_free(whole->schedule);
    lhi_arena_free(whole->mem);
}

lh_status lhi_pipeline_hash(const lh_pipeline *pipeline, char *out,
                            lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lh_pipeline_format(pipeline, &text, &len, err));
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    lh_text_free(text);
    snprintf(out, LHI_HASH_TEXT, "fnv1a64:%016" PRIx64, hash);
    return LH_OK;
}
