/* SPDX-License-Identifier: Apache-2.0 */
/* Input: execution traces of Chakra: a byte with their number (at most 4), then
 * each after its length in two bytes; the last one is the rest. A replay ends
 * at the end of one of its ranks. */
#include "fuzz.h"

#include <longhaul/experimental/chakra.h>

enum { MOST_RANKS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[MOST_RANKS] = {"0.et", "1.et", "2.et",
                                                  "3.et"};
    lh_chakra_file files[MOST_RANKS];
    const uint32_t n = size ? 1 + data[0] % MOST_RANKS : 1;
    const char *at = (const char *)data + (size > 0);
    size_t left = size - (size > 0);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = left;
        if (i + 1 < n && left >= 2) {
            len = (size_t)((uint8_t)at[0] | (uint8_t)at[1] << 8);
            at += 2;
            left -= 2;
            len = len < left ? len : left;
        }
        files[i] = (lh_chakra_file){names[i], at, len};
        at += len;
        left -= len;
    }
    lh_chakra *replay = NULL;
    lh_error err = {0};
    lh_status status = lh_chakra_replay(files, n, &replay, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, replay);
        return 0;
    }
    int64_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lh_chakra_rank *rank = &replay->ranks[i];
        REQUIRE(rank->end_ns >= 0 && rank->compute_ns >= 0, "rank %u", i);
        last = rank->end_ns > last ? rank->end_ns : last;
    }
    REQUIRE(replay->n_ranks == n && replay->total_ns == last, "%u ranks", n);
    lh_chakra_free(replay);
    return 0;
}
