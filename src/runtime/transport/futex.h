/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until a word in memory changes; all transports wait this way. */
#ifndef LHI_RUNTIME_TRANSPORT_FUTEX_H
#define LHI_RUNTIME_TRANSPORT_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word equals `value`, at most until `until_ns` on the
 * lhi_now_ns() clock. `shared`: the word is in memory shared between processes.
 */
void lhi_futex_wait(uint32_t *word, uint32_t value, int64_t until_ns,
                    bool shared);
/* Wakes all waiters on the word; `shared`: the word is in memory shared between
 * processes. */
void lhi_futex_wake(uint32_t *word, bool shared);

#endif
