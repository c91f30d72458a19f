/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/placement/text_fragments.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lhi_text_append_limited(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, room - used, format, values);
    va_end(values);
}

const char *lhi_time_format(int64_t ns, char *text)
{
    double ms = (double)ns * 1e-6;
    if (ms >= 10000)
        snprintf(text, LHI_TIME_FORMAT_SIZE, "%.1f s", ms * 1e-3);
    else
        snprintf(text, LHI_TIME_FORMAT_SIZE, ms >= 100 ? "%.0f ms" : "%.3g ms",
                 ms);
    return text;
}

const char *lhi_iterations_format(double n, char *text)
{
    snprintf(text, LHI_TIME_FORMAT_SIZE, "%.0f iteration%s", n,
             n >= 0.5 && n < 1.5 ? "" : "s");
    return text;
}
