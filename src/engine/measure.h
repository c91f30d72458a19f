/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring links. */
#ifndef LHI_MEASURE_H
#define LHI_MEASURE_H

#include "base/fail.h"

#include <stdint.h>

/* A message of n bytes between two processes of this machine takes *alpha_ns +
 * n * *beta_ns_per_byte: fitted to several sizes, relative errors squared. */
lh_status lhi_measure_link(uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err);

/* The fit alone: n sizes and times. */
void lhi_fit_link(const double *bytes, const double *ns, uint32_t n,
                  double *alpha_ns, double *beta_ns_per_byte);

#endif
