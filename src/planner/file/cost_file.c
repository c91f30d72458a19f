/* SPDX-License-Identifier: Apache-2.0 */
/* `cost` of a choice in the plan's file, and the plan's objective. */
#include "planner/file/plan_file.h"

#include <math.h>

const char *const lhi_plan_objective_names[] = {"time", "cost", NULL};

/* Checks that the cost in USD is the sum of GPU and inter-datacenter traffic
 * costs. */
static lh_status check_cost(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    const lh_plan_cost *c = it;
    if (fabs(c->gpus_usd + c->between_usd - c->usd) <= 1e-9 * c->usd)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "usd"), err, LH_EINPUT,
                        "is not the sum of gpus_usd and between_usd");
}

#define AMOUNT(key, member)                                                    \
    {                                                                          \
        key, LHI_REAL(lh_plan_cost, member), .high = 1e300                     \
    }

static const lhi_schema_field cost_rows[] = {
    {"gpus", LHI_INTEGER(lh_plan_cost, gpus), .least = 1, .most = LH_MAX_GPUS},
    AMOUNT("usd_per_hour", usd_per_hour),
    AMOUNT("between_gb", inter_datacenter_gb),
    AMOUNT("gpus_usd", gpus_usd),
    AMOUNT("between_usd", between_usd),
    AMOUNT("usd", usd),
    AMOUNT("usd_per_1e9_tokens", usd_per_1e9_tokens),
};
const lhi_schema lhi_cost_table = {LHI_ROWS("cost", lh_plan_cost, cost_rows),
                                   .check = check_cost};
