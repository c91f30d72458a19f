/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until a word of memory changes: what all waiting of the transports
 * comes down to. */
#ifndef LHI_FUTEX_H
#define LHI_FUTEX_H

#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word is `value`, at most until `until_ns` of lhi_now_ns().
 * `shared`: the word is in memory shared between processes. */
void lhi_futex_wait(uint32_t *word, uint32_t value, int64_t until_ns,
                    bool shared);
void lhi_futex_wake(uint32_t *word, bool shared);

#endif
