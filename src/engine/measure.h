/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring links. */
#ifndef LHI_MEASURE_H
#define LHI_MEASURE_H

#include "base/fail.h"
#include "net/net.h"

#include <longhaul/profile.h>
#include <stdint.h>

/* A profile that owns its texts, of one that does not. */
lh_status lhi_profile_own(const lh_profile *profile, lh_profile **out,
                          lh_error *err);

/* A message of n bytes between two processes of this machine takes *alpha_ns +
 * n * *beta_ns_per_byte: fitted to several sizes, relative errors squared. */
lh_status lhi_measure_link(uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err);

/* The same between ranks `a` and `b` of a run, who both call it; `tag` and some
 * after it are nobody else's. Half of there and back counts, so that clocks
 * need not agree. */
lh_status lhi_ping(lhi_net *net, uint32_t a, uint32_t b, uint64_t tag,
                   uint32_t repeats, double *alpha_ns, double *beta_ns_per_byte,
                   lh_error *err);

/* The fit alone: n sizes and times. */
void lhi_fit_link(const double *bytes, const double *ns, uint32_t n,
                  double *alpha_ns, double *beta_ns_per_byte);

#endif
