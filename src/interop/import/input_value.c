/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/input_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lh_status lhi_input_value_fail(lhi_input_key key, lh_status code, lh_error *err,
                               const char *format, ...)
{
    char why[400];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    if (!key.value->is_given || !key.value->line)
        return lhi_fail(err, code, "%s: %s: %s", key.file, key.name, why);
    return lhi_fail(err, code, "%s:%u: %s: %s", key.file, key.value->line,
                    key.name, why);
}

lh_status lhi_input_value_get_integer(lhi_input_key key, int64_t least,
                                      int64_t most, int64_t *out, lh_error *err)
{
    if (!key.value->is_given)
        return LH_OK;
    const char *text = key.value->values[0].text;
    char *end;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || number < least || number > most)
        return lhi_input_value_fail(
            key, LH_EINPUT, err,
            "'%.40s' is not a whole number from %" PRId64 " to %" PRId64, text,
            least, most);
    *out = number;
    return LH_OK;
}

lh_status lhi_input_value_get_real(lhi_input_key key, double *out,
                                   lh_error *err)
{
    if (!key.value->is_given)
        return LH_OK;
    const char *text = key.value->values[0].text;
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number))
        return lhi_input_value_fail(key, LH_EINPUT, err,
                                    "'%.40s' is not a number", text);
    *out = number;
    return LH_OK;
}

lh_status lhi_input_value_get_choice(lhi_input_key key,
                                     const char *const *names, uint32_t *out,
                                     lh_error *err)
{
    if (!key.value->is_given)
        return LH_OK;
    const char *text = key.value->values[0].text;
    char all[200] = "";
    for (uint32_t i = 0; names[i]; i++) {
        const size_t len = strlen(all);
        if (strcmp(names[i], text) == 0) {
            *out = i;
            return LH_OK;
        }
        snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", names[i]);
    }
    return lhi_input_value_fail(key, LH_EINPUT, err, "'%.40s' is not one of %s",
                                text, all);
}

/* --- names ---------------------------------------------------------------- */

/* Checks whether two characters differ; '-' and '_' count as equal. */
static bool are_different_characters(char a, char b)
{
    return (a == '_' ? '-' : a) != (b == '_' ? '-' : b);
}

bool lhi_is_same_word(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return !*a && !*b;
}

bool lhi_is_similar_name(const char *a, const char *b)
{
    while (*a && *b && !are_different_characters(*a, *b)) {
        a++;
        b++;
    }
    if (!*a && !*b)
        return true;
    return strcmp(a + (*a != 0), b + (*b != 0)) == 0 ||
           strcmp(a, b + (*b != 0)) == 0 || strcmp(a + (*a != 0), b) == 0;
}
