/* SPDX-License-Identifier: Apache-2.0 */
/* The solver's steps between rounds, in parts on several threads: equal results
 * for equal effort here, too. Also to be run with ThreadSanitizer. */
#include "sanitized.h"
#include "solve_same.h"

static const uint32_t counts[] = {3};

/* Sanitizers check threads, not results, so they run with threads only. */
static void same_on_threads(uniform u, uint64_t effort)
{
    if (!FEW_CASES) {
        same_with(counts, 1, u, effort, 0);
        return;
    }
    lh_pipeline *p = uniform_make(u);
    outcome o = solve_with(p, effort, counts[0], 0);
    lh_text_free(o.text);
    lh_pipeline_free(p);
}

/* Large-neighbourhood search starts only after most searches would have ended.
 */
static void same_neighbourhoods(void)
{
    uniform wave = hard(8, 24);
    wave.placement = "wave";
    wave.memory = 8;
    same_on_threads(wave, 3700000);
}

/* With thousands of passes, problems with fewer microbatches are solved first.
 */
static void same_fewer_microbatches(void)
{
    same_on_threads(hard(16, 96), 1300000);
}

int main(void)
{
    RUN(same_neighbourhoods);
    RUN(same_fewer_microbatches);
    return test_summary();
}
