/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/futex.h"

#include "base/realtime.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void lhi_futex_wait(uint32_t *word, uint32_t value, int64_t until_ns,
                    bool shared)
{
    if (until_ns < 0)
        return;
    struct timespec t = lhi_timespec(until_ns);
    int how = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    syscall(SYS_futex, word, how, value, &t, NULL, FUTEX_BITSET_MATCH_ANY);
}

void lhi_futex_wake(uint32_t *word, bool shared)
{
    int how = FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    syscall(SYS_futex, word, how, INT32_MAX, NULL, NULL, 0);
}
