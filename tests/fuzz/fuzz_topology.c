/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a topology. Finds several routes in it and checks them. */
#include "fuzz.h"
#include "network/optical/network.h"

#include <longhaul/experimental/optical.h>

static void check_route(const lh_topology *t, const lh_route *r, uint32_t from,
                        uint32_t to)
{
    int64_t length_m = 0;
    REQUIRE(r->nodes[0] == from && r->nodes[r->n_nodes - 1] == to, "ends");
    for (uint32_t i = 0; i < r->n_nodes; i++)
        for (uint32_t k = 0; k < i; k++)
            REQUIRE(r->nodes[i] != r->nodes[k], "a loop");
    for (uint32_t i = 0; i + 1 < r->n_nodes; i++) {
        const lh_cable *x = lhi_topology_cable(t, r->cables[i]);
        uint32_t a = r->nodes[i], b = r->nodes[i + 1];
        REQUIRE((x->a == a && x->b == b) || (x->a == b && x->b == a),
                "no link");
        length_m += x->length_m;
    }
    REQUIRE(length_m == r->length_m, "%lld m", (long long)r->length_m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_topology *t = NULL;
    lh_error err = {0};
    lh_status status =
        lhi_topology_parse((const char *)data, size, "t.yaml", &t, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, t);
        return 0;
    }
    uint32_t n = lh_topology_n_nodes(t);
    for (uint32_t to = n > 4 ? n - 3 : 1; to < n; to++) {
        lh_route *routes = NULL;
        uint32_t count = 0;
        MUST(lhi_topology_routes(t, 0, to, 4, &routes, &count, &err), err);
        REQUIRE(count > 0, "no route");
        for (uint32_t i = 0; i < count; i++) {
            check_route(t, &routes[i], 0, to);
            REQUIRE(i == 0 || routes[i - 1].length_m <= routes[i].length_m,
                    "order");
        }
        lhi_routes_free(routes);
    }
    lh_topology_free(t);
    return 0;
}
