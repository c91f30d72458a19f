/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for processors with AVX512. */
#include "runtime/device/cpu_kernels_internal.h"

#if LHI_KERNELS_X86
#if defined(__clang__)
#pragma clang attribute push(                                                  \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))),             \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define KERNELS lhi_kernels_avx512
#define KERNELS_NAME "avx512"
#include "runtime/device/cpu_kernels_body.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
