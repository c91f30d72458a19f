/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the n-th allocation of a program fail. The program is linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc (tests/meson.build). */
#ifndef FAIL_ALLOC_H
#define FAIL_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

/* Remaining allocations that succeed, over all threads; < 0: unlimited. */
static _Atomic int64_t fail_alloc_after = -1;
static atomic_bool fail_alloc_hit;  /* an allocation has failed */
static atomic_bool fail_alloc_once; /* later allocations succeed again */

/* Checks whether the current allocation has to fail, and counts it. */
static bool fail_alloc_now(void)
{
    int64_t left = fail_alloc_after;
    while (left > 0 &&
           !atomic_compare_exchange_weak(&fail_alloc_after, &left, left - 1))
        continue;
    if (left != 0)
        return false;
    fail_alloc_hit = true;
    if (fail_alloc_once)
        fail_alloc_after = -1;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fail_alloc_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fail_alloc_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fail_alloc_now() ? NULL : __real_realloc(old, size);
}

/* Runs `statement`, which sets `status`, once for each allocation with that and
 * all later ones failing, until a run completes. Each failing run must return
 * LH_ENOMEM. */
#define FAIL_EACH_ALLOC(statement)                                             \
    do {                                                                       \
        for (int64_t fail_n = 0;; fail_n++) {                                  \
            lh_status status = LH_OK;                                          \
            fail_alloc_hit = false;                                            \
            fail_alloc_after = fail_n;                                         \
            statement;                                                         \
            fail_alloc_after = -1;                                             \
            if (!fail_alloc_hit)                                               \
                break;                                                         \
            CHECK_INT(status, LH_ENOMEM);                                      \
        }                                                                      \
    } while (0)

#endif
