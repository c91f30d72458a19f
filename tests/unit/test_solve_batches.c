/* SPDX-License-Identifier: Apache-2.0 */
/* What the solver does between rounds, in pieces on several threads: the same
 * for the same effort too. To be run with ThreadSanitizer too. */
#include "solve_same.h"

static const uint32_t counts[] = {3};

/* Neighbourhoods wait until most searches would have ended. */
static void same_neighbourhoods(void)
{
    uniform wave = hard(8, 24);
    wave.placement = "wave";
    wave.memory = 8;
    same_with(counts, 1, wave, 3700000, 0);
}

/* Where there are thousands of passes fewer microbatches come first. */
static void same_fewer_microbatches(void)
{
    same_with(counts, 1, hard(16, 96), 1300000, 0);
}

int main(void)
{
    RUN(same_neighbourhoods);
    RUN(same_fewer_microbatches);
    return test_summary();
}
