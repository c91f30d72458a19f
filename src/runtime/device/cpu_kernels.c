/* SPDX-License-Identifier: Apache-2.0 */
/* The portable kernels, and the selection among all kernel tables. */
#include "runtime/device/cpu_kernels_internal.h"

#define KERNELS lhi_kernels_base
#define KERNELS_NAME "base"
#include "runtime/device/cpu_kernels_body.inc"

size_t lhi_kernels_list_supported(const lhi_kernels **out, size_t room)
{
    size_t n = 0;
    const lhi_kernels *all[3] = {0};
#if LHI_KERNELS_X86
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        all[n++] = &lhi_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        all[n++] = &lhi_kernels_avx2;
#endif
    all[n++] = &lhi_kernels_base;
    for (size_t i = 0; i < n && i < room; i++)
        out[i] = all[i];
    return n < room ? n : room;
}

const lhi_kernels *lhi_kernels_find_fastest(void)
{
    const lhi_kernels *best;
    lhi_kernels_list_supported(&best, 1);
    return best;
}
