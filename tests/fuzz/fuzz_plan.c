/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a plan. */
#include "fuzz.h"

#include <longhaul/experimental/plan.h>

static lh_status parse(const char *text, size_t len, lh_plan **out,
                       lh_error *err)
{
    return lh_plan_parse(text, len, "plan.json", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_plan, parse, lh_plan_format, lh_plan_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_plan_free(read_twice((const char *)data, size));
    return 0;
}
