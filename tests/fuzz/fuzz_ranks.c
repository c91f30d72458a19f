/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a rank map. */
#include "fuzz.h"
#include "report/diagnosis/rank_map.h"

#include <longhaul/experimental/diagnose.h>

static lh_status parse(const char *text, size_t len, lh_rank_map **out,
                       lh_error *err)
{
    return lhi_rank_map_parse(text, len, "ranks.yaml", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_rank_map, parse, lhi_rank_map_format,
                lh_rank_map_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_rank_map_free(read_twice((const char *)data, size));
    return 0;
}
