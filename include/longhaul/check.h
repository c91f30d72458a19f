/* SPDX-License-Identifier: Apache-2.0 */
/* Independent schedule verifier: shares no code with the generators or the
 * simulator. */
#ifndef LONGHAUL_CHECK_H
#define LONGHAUL_CHECK_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The verifier's result. Release with lh_verdict_free(). */
typedef struct lh_verdict lh_verdict;

/* Checks `schedule` against every rule of docs/theory/performance-model.md:
 *
 * - each pass exactly once, on its device, with complete parts
 * - valid pass order per device and no deadlock
 * - memory within the limits
 * - link orders complete and on the right link
 * - communication cells, if there are any: each message has one send and one
 *   receive at valid positions, in equal orders for each pair of devices, and
 *   they run without deadlock if sends wait for their receives
 *
 * Returns LH_OK for both valid and invalid schedules. Release with
 * lh_verdict_free(). */
LH_API lh_status lh_check(const lh_pipeline *pipeline,
                          const lh_schedule *schedule, lh_verdict **out,
                          lh_error *err);

LH_API void lh_verdict_free(lh_verdict *verdict); /* frees; NULL is a no-op */

/* Returns true if no rule is violated. */
LH_API bool lh_verdict_valid(const lh_verdict *verdict);

/* Returns how many violations are stored, at most the first 100. `total` (may
 * be NULL) receives the number of all. */
LH_API uint32_t lh_verdict_n_violations(const lh_verdict *verdict,
                                        uint64_t *total);

/* Returns violation i's text; borrowed. */
LH_API const char *lh_verdict_violation(const lh_verdict *verdict, uint32_t i);

/* Returns the makespan in ns from the verifier's own arithmetic; -1 if the
 * schedule cannot run. */
LH_API int64_t lh_verdict_makespan(const lh_verdict *verdict);

/* Returns the device's peak memory from the verifier's own arithmetic; -1 if
 * the schedule cannot run. */
LH_API int64_t lh_verdict_peak_memory(const lh_verdict *verdict,
                                      uint32_t device);

#ifdef __cplusplus
}
#endif
#endif
