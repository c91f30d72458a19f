/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a job, which may not refer to other files. */
#include "fuzz.h"

#include <longhaul/experimental/job.h>

static lh_status parse(const char *text, size_t len, lh_job **out,
                       lh_error *err)
{
    return lh_job_parse(text, len, "job.yaml", NULL, out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_job, parse, lh_job_format, lh_job_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_job_free(read_twice((const char *)data, size));
    return 0;
}
