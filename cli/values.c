/* SPDX-License-Identifier: Apache-2.0 */
#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

bool cli_parse_numbers(const char *text, uint32_t least, uint32_t n,
                       uint32_t *numbers, uint64_t *sum)
{
    char one[16];
    *sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number;
        size_t len = strcspn(text, ",");
        if (len >= sizeof one || (text[len] == ',') != (i + 1 < n))
            return false;
        memcpy(one, text, len);
        one[len] = '\0';
        if (!cli_parse_count(one, least, 1000000, &number))
            return false;
        numbers[i] = (uint32_t)number;
        *sum += number;
        text += len + 1;
    }
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

bool cli_parse_number(const char *text, cli_number *out, const char **rest)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},     {"us", 1e3},   {"ms", 1e6},   {"s", 1e9},
                 {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
    out->timed = false;
    if (!cli_parse_real(text, &out->value, rest))
        return false;
    for (uint32_t i = 0; i < sizeof units / sizeof *units && !out->timed; i++) {
        size_t len = strlen(units[i].name);
        if (strncmp(*rest, units[i].name, len) == 0) {
            out->value *= units[i].ns;
            out->timed = true;
            *rest += len;
        }
    }
    return out->value <= (out->timed ? 0x1p62 : 0x1p53);
}

bool cli_parse_time(const char *text, int64_t *out_ns)
{
    cli_number n;
    const char *rest;
    if (!cli_parse_number(text, &n, &rest) || *rest ||
        (!n.timed && n.value > 0))
        return false;
    *out_ns = llround(n.value);
    return true;
}

bool cli_parse_range(const char **text, cli_range *out)
{
    out->n_numbers = 0;
    do {
        *text += out->n_numbers > 0;
        if (out->n_numbers == 3 ||
            !cli_parse_number(*text, &out->number[out->n_numbers], text))
            return false;
        out->n_numbers++;
    } while (**text == ':');
    return (!**text || **text == ',') && out->n_numbers != 2;
}

double cli_range_count(const cli_range *range)
{
    const cli_number *n = range->number;
    if (range->n_numbers == 1)
        return 1;
    if (n[2].value <= 0 || n[1].value < n[0].value)
        return 0;
    /* Counted rather than summed, so that steps of 0.1 end exactly. */
    return floor((n[1].value - n[0].value) / n[2].value + 1e-9) + 1;
}

double cli_range_at(const cli_range *range, double i)
{
    const cli_number *n = range->number;
    return range->n_numbers == 1 ? n[0].value : n[0].value + i * n[2].value;
}

bool cli_parse_memory_share(const char *text, double *percent, double *gib)
{
    char *end;
    const double value = strtod(text, &end);
    const bool share = strcmp(end, "%") == 0;
    if (end == text || (*end && !share) || !(value > 0) ||
        value >= (share ? 100 : 1e6))
        return false;
    *(share ? percent : gib) = value;
    return true;
}
