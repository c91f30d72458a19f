/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by OpenBLAS. The library is loaded when the first computing
 * device is opened, because nothing else in longhaul needs it. */
#ifndef LHI_RUNTIME_DEVICE_BLAS_H
#define LHI_RUNTIME_DEVICE_BLAS_H

#include <longhaul/status.h>

#include <stdint.h>

enum { /* CBLAS's enum values */
       LHI_BLAS_ROWS = 101,
       LHI_BLAS_PLAIN = 111,
       LHI_BLAS_TRANSPOSED = 112,
};

typedef void (*lhi_sgemm)(int order, int transpose_a, int transpose_b, int m,
                          int n, int k, float alpha, const float *a, int lda,
                          const float *b, int ldb, float beta, float *c,
                          int ldc);

/* Address space that OpenBLAS maps for each concurrent call, in bytes. It maps
 * the buffer in the middle of a product and retries forever if that fails. */
enum { LHI_BLAS_BUFFER_BYTES = 128 << 20 };

/* Loads OpenBLAS with one thread per call, so that results depend neither on
 * the caller nor on concurrent work. Preallocates buffers for `n_callers`
 * concurrent calls, so that no product waits for memory. OpenBLAS owns the
 * buffers; fork() inherits them. The library stays loaded.
 *
 * While loading, the function sets OPENBLAS_NUM_THREADS. If the processor has
 * AVX-512 and OPENBLAS_CORETYPE is unset, it sets that variable too, since
 * OpenBLAS treats unknown newer processors as lacking AVX-512. No other thread
 * may access the environment or map memory meanwhile.
 *
 * Errors: LH_EUNSUPPORTED if the library is missing or cannot be loaded (`err`
 * has the reason); LH_ENOMEM if the buffers do not fit. */
lh_status lhi_blas_load(uint32_t n_callers, lhi_sgemm *sgemm, lh_error *err);

#endif
