/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in lh_error. Whoever first knows the cause writes it; callers wrap
 * only when they add something. */
#ifndef LHI_FAIL_H
#define LHI_FAIL_H

#include <longhaul/status.h>

#if defined(__GNUC__)
#define LHI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define LHI_PRINTF(fmt, args)
#endif

/* Writes the message (if `err`) and returns `code`, so that a check is
 * `return lhi_fail(err, LH_EINPUT, ...)`. */
lh_status lhi_fail(lh_error *err, lh_status code, const char *format, ...)
    LHI_PRINTF(3, 4);

/* Puts "context: " before the message that is there. */
void lhi_wrap(lh_error *err, const char *format, ...) LHI_PRINTF(2, 3);

/* The one message for a failed allocation. */
lh_status lhi_fail_nomem(lh_error *err);

#define LHI_TRY(call)                                                          \
    do {                                                                       \
        lh_status lhi_try_status = (call);                                     \
        if (lhi_try_status != LH_OK)                                           \
            return lhi_try_status;                                             \
    } while (0)

#endif
