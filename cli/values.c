/* SPDX-License-Identifier: Apache-2.0 */
#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool cli_parse_count(const char *text, uint64_t least, uint64_t most,
                     uint64_t *out)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end || errno || value < least || value > most)
        return false;
    *out = value;
    return true;
}

bool cli_parse_real(const char *text, double *out, const char **rest)
{
    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value < 0)
        return false;
    *out = value;
    *rest = end;
    return true;
}
