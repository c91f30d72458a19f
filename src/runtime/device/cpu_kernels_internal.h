/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tables, one per instruction set. */
#ifndef LHI_RUNTIME_DEVICE_CPU_KERNELS_INTERNAL_H
#define LHI_RUNTIME_DEVICE_CPU_KERNELS_INTERNAL_H

#include "runtime/device/cpu_kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)
/* 1 if the AVX2 and AVX-512 kernels can be compiled. */
#define LHI_KERNELS_X86 1
#else
#define LHI_KERNELS_X86 0
#endif

extern const lhi_kernels lhi_kernels_base;
extern const lhi_kernels lhi_kernels_avx2;
extern const lhi_kernels lhi_kernels_avx512;

#endif
