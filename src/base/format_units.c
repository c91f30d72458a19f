/* SPDX-License-Identifier: Apache-2.0 */
#include "base/format_units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

char *lhi_format_bytes(int64_t bytes, char *buffer)
{
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    double size = 1 << 30;
    for (int i = 0; i < 3; i++, size /= 1024)
        if ((double)bytes >= 0.1 * size) {
            snprintf(buffer, LHI_FORMAT_BYTES_SIZE, "%.1f %s",
                     (double)bytes / size, units[i]);
            return buffer;
        }
    snprintf(buffer, LHI_FORMAT_BYTES_SIZE, "%" PRId64 " bytes", bytes);
    return buffer;
}

char *lhi_format_duration(int64_t ns, char *buffer)
{
    static const struct {
        int64_t size;
        const char *name;
    } units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
    size_t i = 0;
    while (i < 3 && ns < units[i].size)
        i++;
    /* Keeps four significant digits: `scale` steps per unit, then drops
     * trailing zeros. */
    int64_t size = units[i].size, scale = 1;
    int decimals = 0;
    while (scale < size && ns / size * scale < 1000 && decimals < 3) {
        scale *= 10;
        decimals++;
    }
    int64_t step = size / scale;
    int64_t steps = ns / step + (ns % step >= step - ns % step);
    int64_t whole = steps / scale, rest = steps % scale;
    while (decimals > 0 && rest % 10 == 0) {
        rest /= 10;
        decimals--;
    }
    if (decimals == 0)
        snprintf(buffer, LHI_FORMAT_DURATION_SIZE, "%" PRId64 " %s", whole,
                 units[i].name);
    else
        snprintf(buffer, LHI_FORMAT_DURATION_SIZE,
                 "%" PRId64 ".%0*" PRId64 " %s", whole, decimals, rest,
                 units[i].name);
    return buffer;
}

double lhi_drop_negative_zero(double value, int decimals)
{
    return fabs(value) < 0.5 * pow(10, -decimals) ? 0 : value;
}
