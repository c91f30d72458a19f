/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in lh_error. The function that detects the cause writes the message;
 * callers add context only where it helps. */
#ifndef LHI_BASE_FAIL_H
#define LHI_BASE_FAIL_H

#include <longhaul/status.h>

#if defined(__GNUC__)
#define LHI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define LHI_PRINTF(fmt, args)
#endif

/* Writes the formatted message into `err` (unless NULL) and returns `code`, so
 * that a check reads `return lhi_fail(err, LH_EINPUT, ...)`. */
lh_status lhi_fail(lh_error *err, lh_status code, const char *format, ...)
    LHI_PRINTF(3, 4);

/* Prepends "context: " to the current message. */
void lhi_fail_add_context(lh_error *err, const char *format, ...)
    LHI_PRINTF(2, 3);

/* Reports a failed allocation; returns LH_ENOMEM. */
lh_status lhi_fail_nomem(lh_error *err);

#define LHI_TRY(call)                                                          \
    do {                                                                       \
        lh_status lhi_try_status = (call);                                     \
        if (lhi_try_status != LH_OK)                                           \
            return lhi_try_status;                                             \
    } while (0)

#endif
