/* SPDX-License-Identifier: Apache-2.0 */
/* Measurement of links and profiles. */
#ifndef LHI_RUNTIME_ENGINE_MEASURE_H
#define LHI_RUNTIME_ENGINE_MEASURE_H

#include "base/fail.h"
#include "runtime/transport/transport.h"

#include <longhaul/experimental/profile.h>
#include <stdint.h>

/* Copies a profile so that it owns its strings. */
lh_status lhi_profile_copy(const lh_profile *profile, lh_profile **out,
                           lh_error *err);

/* Measures messages between two processes on this machine, `repeats` round
 * trips per size. An n-byte message takes *alpha_ns + n * *beta_ns_per_byte,
 * fitted over several sizes by least squared relative errors. */
lh_status lhi_measure_link(uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err);

/* Measures messages between ranks `a` and `b` of a run, which both call it:
 * `repeats` round trips per size, of which half counts, so that clocks need not
 * agree. Fits *alpha_ns (latency) and *beta_ns_per_byte as lhi_measure_link()
 * does. Uses `tag` and the following tags. */
lh_status lhi_measure_ping(lhi_net *net, uint32_t a, uint32_t b, uint64_t tag,
                           uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err);

/* Fits duration = *alpha_ns + *beta_ns_per_byte * size by least squares of
 * relative errors to n sizes (bytes) and durations (ns). */
void lhi_fit_link(const double *bytes, const double *ns, uint32_t n,
                  double *alpha_ns, double *beta_ns_per_byte);

#endif
