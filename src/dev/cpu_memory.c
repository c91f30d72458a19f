/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/cpu.h"

enum { LINE_FLOATS = 16 }; /* a cache line */

float *lhi_cpu_floats(lhi_arena *mem, size_t rows, size_t columns)
{
    size_t n;
    if (columns > 0 &&
        rows > (SIZE_MAX / sizeof(float) - LINE_FLOATS) / columns)
        return NULL;
    n = rows * columns + LINE_FLOATS;
    float *all = LHI_NEW(mem, float, n);
    if (!all)
        return NULL;
    uintptr_t over = (uintptr_t)all % (LINE_FLOATS * sizeof(float));
    return over ? all + (LINE_FLOATS - over / sizeof(float)) : all;
}
