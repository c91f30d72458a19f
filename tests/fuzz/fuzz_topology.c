/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: the topology of an optical network. */
#include "fuzz.h"

#include <longhaul/optical.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_topology *t = NULL;
    lh_route *routes = NULL;
    lh_error err = {0};
    uint32_t count = 0;
    lh_status status =
        lh_topology_parse((const char *)data, size, "t.yaml", &t, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, t);
        return 0;
    }
    uint32_t n = lh_topology_n_nodes(t);
    if (n >= 2 && n <= 32) {
        MUST(lh_topology_routes(t, 0, n - 1, 4, &routes, &count, &err), err);
        REQUIRE(count >= 1 && count <= 4, "%u routes", (unsigned)count);
        for (uint32_t i = 0; i < count; i++)
            REQUIRE(routes[i].nodes[0] == 0 &&
                        routes[i].nodes[routes[i].n_nodes - 1] == n - 1 &&
                        (i == 0 || routes[i].km >= routes[i - 1].km),
                    "route %u", (unsigned)i);
        lh_routes_free(routes);
    }
    lh_topology_free(t);
    return 0;
}
