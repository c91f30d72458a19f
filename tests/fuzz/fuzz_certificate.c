/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a certificate. Whatever the certificate for a small pipeline claims,
 * the verifier must accept only the pipeline's optimum. */
#include "fuzz.h"
#include "schedule/certificate/certificate.h"

#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/solve.h>

#define HASH "fnv1a64:3fb7622eabca4598" /* hash over pipeline_text */

static const char pipeline_text[] =
    "{longhaul: pipeline/1, time_unit: ns, microbatches: 4, devices: 2,\n"
    " backward: split, uniform: {placement: wave, chunks_per_device: 2,\n"
    " F: 14, D: 20, W: 8, memory: {F: 1, D: 0, W: -1}},\n"
    " datacenters: {count: 2, latency: 10, transfer: 57}, memory_limit: 2}\n";

static lh_status parse(const char *text, size_t len, lh_certificate **out,
                       lh_error *err)
{
    return lhi_certificate_parse(text, len, "proof.json", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_certificate, parse, lh_certificate_format,
                lh_certificate_free)

/* Makespan and bound by number of W parts (index 2: W split in two). Each is
 * solved once. */
static struct {
    int64_t best_ns, bound_ns;
} known[3];

static void solve(const lh_pipeline *p, uint32_t parts)
{
    lh_solve_options o = {
        .size = sizeof o, .effort = 300000, .sub_blocks = parts};
    lh_solution s;
    lh_error err;
    MUST(lh_solve(p, &o, &s, &err), err);
    known[parts].best_ns = s.makespan_ns;
    known[parts].bound_ns = s.bound_ns;
    lh_solution_fini(&s);
}

static void judge(const lh_pipeline *p, const lh_certificate *read)
{
    lh_certificate c = *read;
    lh_claims *claims = NULL;
    lh_error err;
    uint32_t parts = c.sub_blocks;
    if (parts > 2)
        return;
    if (known[parts].best_ns == 0)
        solve(p, parts);
    c.pipeline_hash = HASH;
    MUST(lh_check_certificate(p, NULL, &c, &claims, &err), err);
    REQUIRE(lh_claims_verdict(claims) != LH_CLAIM_VERIFIED ||
                (c.makespan_ns <= known[parts].best_ns &&
                 c.makespan_ns >= known[parts].bound_ns),
            "accepted");
    lh_claims_free(claims);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_pipeline *p = NULL;
    lh_error err;
    lh_certificate *c = read_twice((const char *)data, size);
    if (c) {
        MUST(lh_pipeline_parse(pipeline_text, sizeof pipeline_text - 1, "p", &p,
                               &err),
             err);
        judge(p, c);
    }
    lh_pipeline_free(p);
    lh_certificate_free(c);
    return 0;
}
