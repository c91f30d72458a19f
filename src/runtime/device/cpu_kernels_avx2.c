/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for processors with AVX2. */
#include "runtime/device/cpu_kernels_internal.h"

#if LHI_KERNELS_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))),                  \
                             apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define KERNELS lhi_kernels_avx2
#define KERNELS_NAME "avx2"
#include "runtime/device/cpu_kernels_body.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
