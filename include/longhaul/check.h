/* SPDX-License-Identifier: Apache-2.0 */
/* The independent judge of schedules: shares no code with the generators or
 * the simulator. */
#ifndef LONGHAUL_CHECK_H
#define LONGHAUL_CHECK_H

#include <longhaul/certificate.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_verdict lh_verdict;

/* Judges `schedule` against every rule of DESIGN §2 and §3: each pass exactly
 * once and on its device, parts complete, own order of passes, no deadlock,
 * memory within the limits, link orders complete and of that link. LH_OK
 * whatever the verdict; release with lh_verdict_free(). */
LH_API lh_status lh_check(const lh_pipeline *pipeline,
                          const lh_schedule *schedule, lh_verdict **out,
                          lh_error *err);
LH_API void lh_verdict_free(lh_verdict *verdict); /* NULL is fine */
LH_API bool lh_verdict_valid(const lh_verdict *verdict);
/* At most the first 100 are kept; `total` counts all. */
LH_API uint32_t lh_verdict_n_violations(const lh_verdict *verdict,
                                        uint64_t *total);
LH_API const char *lh_verdict_violation(const lh_verdict *verdict, uint32_t i);
/* By the judge's own arithmetic; -1 where the schedule cannot run. */
LH_API int64_t lh_verdict_makespan(const lh_verdict *verdict);
LH_API int64_t lh_verdict_peak_memory(const lh_verdict *verdict,
                                      uint32_t device);

/* --- certificates -------------------------------------------------------- */

typedef enum lh_claim_status {
    LH_CLAIM_VERIFIED,
    LH_CLAIM_UNVERIFIED, /* may be so: the judge's own means do not reach it */
    LH_CLAIM_WRONG,      /* contradicts what the judge finds */
} lh_claim_status;

typedef struct lh_claims lh_claims;

/* Goes through what a certificate says, each statement by the judge's own
 * arithmetic and reasoning. `schedule` (may be NULL) is one that is to be
 * optimal by it, in place of the certificate's own. LH_OK whatever comes out;
 * release with lh_claims_free(). */
LH_API lh_status lh_check_certificate(const lh_pipeline *pipeline,
                                      const lh_schedule *schedule,
                                      const lh_certificate *certificate,
                                      lh_claims **out, lh_error *err);
LH_API void lh_claims_free(lh_claims *claims); /* NULL is fine */
LH_API uint32_t lh_n_claims(const lh_claims *claims);
LH_API lh_claim_status lh_claims_status(const lh_claims *claims, uint32_t i);
LH_API const char *lh_claims_text(const lh_claims *claims, uint32_t i);
/* The worst of all: VERIFIED means that the schedule is optimal. */
LH_API lh_claim_status lh_claims_verdict(const lh_claims *claims);
LH_API const char *lh_claim_status_name(lh_claim_status status);

#ifdef __cplusplus
}
#endif
#endif
