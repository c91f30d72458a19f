/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul check`. */
#include "format/document/schema.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>

/* Builds the JSON for a certificate's verdict with its checked claims. */
static json_t *claims_json(const lh_certificate *certificate,
                           const lh_claims *claims)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < lh_n_claims(claims); i++)
        list = lhi_json_append(
            list, json_pack("{s:s, s:s}", "status",
                            lh_claim_status_name(lh_claims_status(claims, i)),
                            "text", lh_claims_text(claims, i)));
    return json_pack("{s:s, s:s, s:o}", "status",
                     lh_claim_status_name(lh_claims_verdict(claims)), "proof",
                     lh_proof_kind_name(certificate->kind), "claims", list);
}

lh_status lh_verdict_format(const lh_verdict *verdict,
                            const lh_pipeline *pipeline,
                            const lh_certificate *certificate,
                            const lh_claims *claims, char **text, size_t *len,
                            lh_error *err)
{
    uint64_t total;
    const uint32_t kept = lh_verdict_n_violations(verdict, &total);
    json_t *list = json_array(), *peaks = json_array();
    for (uint32_t i = 0; list && i < kept; i++)
        list = lhi_json_append(list,
                               json_string(lh_verdict_violation(verdict, i)));
    for (uint32_t d = 0; peaks && d < lh_pipeline_n_devices(pipeline); d++)
        peaks = lhi_json_append(
            peaks, json_integer(lh_verdict_peak_memory(verdict, d)));
    const int64_t ns = lh_verdict_makespan(verdict);
    json_t *j = json_pack(
        "{s:b, s:o, s:I, s:o, s:o}", "valid", lh_verdict_valid(verdict),
        "violations", list, "n_violations", (json_int_t)total, "makespan_s",
        ns < 0 ? json_null() : lhi_json_seconds(ns), "peak_memory", peaks);
    bool ok = j != NULL;
    if (lh_pipeline_has_host(pipeline))
        ok = ok && lhi_json_set(j, "host_memory",
                                lhi_json_host_memory(pipeline, peaks));
    ok = ok &&
         (!claims || !certificate ||
          lhi_json_set(j, "certificate", claims_json(certificate, claims)));
    return lhi_json_format_indented(lhi_json_finish(j, ok), 2, text, len, err);
}
