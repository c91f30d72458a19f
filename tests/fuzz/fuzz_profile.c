/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a profile. */
#include "format/job/profile_lookup.h"
#include "fuzz.h"

#include <longhaul/experimental/profile.h>

static lh_status parse(const char *text, size_t len, lh_profile **out,
                       lh_error *err)
{
    return lh_profile_parse(text, len, "profile.yaml", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_profile, parse, lh_profile_format,
                lh_profile_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_profile *profile = read_twice((const char *)data, size);
    for (uint32_t i = 0; profile && i < profile->n_entries; i++)
        REQUIRE(lhi_profile_find(profile, &profile->entries[i]) != NULL,
                "an entry is not found");
    lh_profile_free(profile);
    return 0;
}
