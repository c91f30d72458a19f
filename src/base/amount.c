/* SPDX-License-Identifier: Apache-2.0 */
#include "base/amount.h"

#include <inttypes.h>
#include <stdio.h>

char *lhi_amount_text(int64_t bytes, char *buffer)
{
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    double size = 1 << 30;
    for (int i = 0; i < 3; i++, size /= 1024)
        if ((double)bytes >= 0.1 * size) {
            snprintf(buffer, LHI_AMOUNT_TEXT, "%.1f %s", (double)bytes / size,
                     units[i]);
            return buffer;
        }
    snprintf(buffer, LHI_AMOUNT_TEXT, "%" PRId64 " bytes", bytes);
    return buffer;
}
