/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_texts[] = {
#define STATUS_TEXT(name, text) text,
    LH_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
};

const char *lh_status_name(lh_status status)
{
    size_t i = (size_t)status;
    if (i >= sizeof status_texts / sizeof status_texts[0])
        return "unknown status";
    return status_texts[i];
}

const char *lh_version(void)
{
    return LONGHAUL_VERSION;
}

void lh_text_free(char *text)
{
    free(text);
}

/* Replaces the end of a message that does not fit into `size` bytes by dots.
 * `needed`: its length from snprintf(). */
static void end_with_dots(char *text, size_t size, int needed)
{
    if (needed >= 0 && (size_t)needed >= size)
        memcpy(text + size - 4, "...", 4);
}

lh_status lhi_fail(lh_error *err, lh_status code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        int needed = vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        end_with_dots(err->text, sizeof err->text, needed);
        err->code = code;
    }
    return code;
}

void lhi_fail_add_context(lh_error *err, const char *format, ...)
{
    if (!err)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof err->text) {
        end_with_dots(err->text, sizeof err->text, used);
        return;
    }
    size_t room = sizeof err->text - (size_t)used;
    int needed = snprintf(err->text + used, room, ": %s", old);
    end_with_dots(err->text, sizeof err->text, used + needed);
}

lh_status lhi_fail_nomem(lh_error *err)
{
    return lhi_fail(err, LH_ENOMEM, "out of memory");
}
