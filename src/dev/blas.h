/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by OpenBLAS, which is loaded when a device that computes is
 * opened and not before: nothing else of longhaul needs it. */
#ifndef LHI_BLAS_H
#define LHI_BLAS_H

#include <longhaul/status.h>

enum { /* CBLAS's numbers */
       LHI_BLAS_ROWS = 101,
       LHI_BLAS_PLAIN = 111,
       LHI_BLAS_TRANSPOSED = 112,
};

typedef void (*lhi_sgemm)(int order, int transpose_a, int transpose_b, int m,
                          int n, int k, float alpha, const float *a, int lda,
                          const float *b, int ldb, float beta, float *c,
                          int ldc);

/* Loads OpenBLAS, with one thread per call, so that results depend neither on
 * who calls nor on what else runs. For the time of loading it sets
 * OPENBLAS_NUM_THREADS, and OPENBLAS_CORETYPE where the processor has AVX-512
 * and the variable is not set (OpenBLAS takes newer processors than it knows
 * for ones without), so no other thread may use the environment meanwhile. The
 * library then stays loaded. LH_EUNSUPPORTED: it is not installed. */
lh_status lhi_blas_load(lhi_sgemm *sgemm, lh_error *err);

#endif
