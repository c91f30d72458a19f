/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: an optical scenario. Files that it names are not there. */
#include "fuzz.h"

#include <longhaul/optical.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_scenario *scenario = NULL;
    lh_error err = {0};
    lh_status status = lh_scenario_parse(
        (const char *)data, size, "/nowhere/scenario.yaml", &scenario, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, scenario);
        return 0;
    }
    REQUIRE(lh_scenario_n_policies(scenario) > 0, "no policy");
    REQUIRE(lh_scenario_n_seeds(scenario) > 0, "no seed");
    lh_scenario_free(scenario);
    return 0;
}
