/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a pipeline. */
#include "fuzz.h"
#include "run_schedule.h"

static lh_status parse(const char *text, size_t len, lh_pipeline **out,
                       lh_error *err)
{
    return lh_pipeline_parse(text, len, "pipeline.yaml", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_pipeline, parse, lh_pipeline_format,
                lh_pipeline_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_pipeline *p = read_twice((const char *)data, size);
    /* Limits the size: look-ahead, alone and within auto, is slow on larger
     * pipelines. */
    if (p && fuzz_is_small(p) &&
        lh_pipeline_n_chunks(p) * lh_pipeline_n_microbatches(p) <= 120)
        fuzz_methods(p);
    lh_pipeline_free(p);
    return 0;
}
