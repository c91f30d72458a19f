/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by OpenBLAS, which is loaded when a device that computes is
 * opened and not before: nothing else of longhaul needs it. */
#ifndef LHI_BLAS_H
#define LHI_BLAS_H

#include <longhaul/status.h>

#include <stdint.h>

enum { /* CBLAS's numbers */
       LHI_BLAS_ROWS = 101,
       LHI_BLAS_PLAIN = 111,
       LHI_BLAS_TRANSPOSED = 112,
};

typedef void (*lhi_sgemm)(int order, int transpose_a, int transpose_b, int m,
                          int n, int k, float alpha, const float *a, int lda,
                          const float *b, int ldb, float beta, float *c,
                          int ldc);

/* Address space that OpenBLAS takes for each call that runs at a time. It asks
 * for it in the middle of a product, and where it gets none it asks again and
 * again, for ever. */
enum { LHI_BLAS_BUFFER_BYTES = 128 << 20 };

/* Loads OpenBLAS, with one thread per call, so that results depend neither on
 * who calls nor on what else runs, and has it take the buffers of `n_callers`
 * calls at a time, so that no product of so many threads has to wait for
 * memory. They stay its own and are inherited by fork(). For the time of
 * loading it sets OPENBLAS_NUM_THREADS, and OPENBLAS_CORETYPE where the
 * processor has AVX-512 and the variable is not set (OpenBLAS takes newer
 * processors than it knows for ones without), so no other thread may use the
 * environment, or map memory, meanwhile. The library then stays loaded.
 * LH_EUNSUPPORTED: it is not installed, or cannot be loaded, for a reason that
 * `err` says; LH_ENOMEM: there is no room for the buffers. */
lh_status lhi_blas_load(uint32_t n_callers, lhi_sgemm *sgemm, lh_error *err);

#endif
