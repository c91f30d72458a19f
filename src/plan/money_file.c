/* SPDX-License-Identifier: Apache-2.0 */
/* `cost` of a choice in the plan's file. */
#include "plan/planfile.h"

#include <math.h>

json_t *lhi_cost_to_json(const lh_plan_cost *c)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "gpus",
                     (json_int_t)c->gpus, "usd_per_hour", c->usd_per_hour,
                     "between_gb", c->between_gb, "gpus_usd", c->gpus_usd,
                     "between_usd", c->between_usd, "usd", c->usd,
                     "usd_per_1e9_tokens", c->usd_per_1e9_tokens);
}

lh_status lhi_cost_from_node(const lhi_doc *doc, const lhi_node *map,
                             lhi_arena *mem, const lh_plan_cost **out,
                             lh_error *err)
{
    static const char *const keys[] = {
        "gpus",        "usd_per_hour", "between_gb",         "gpus_usd",
        "between_usd", "usd",          "usd_per_1e9_tokens", NULL};
    const lhi_node *node;
    lh_plan_cost *c = LHI_NEW(mem, lh_plan_cost, 1);
    if (!c)
        return lhi_fail_nomem(err);
    double *const values[] = {&c->usd_per_hour, &c->between_gb,
                              &c->gpus_usd,     &c->between_usd,
                              &c->usd,          &c->usd_per_1e9_tokens};
    LHI_TRY(lhi_want_map(doc, map, err));
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(lhi_need(doc, map, "gpus", &node, err));
    LHI_TRY(lhi_get_u32(doc, node, 1, LH_MAX_GPUS, &c->gpus, err));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        LHI_TRY(lhi_need(doc, map, keys[i + 1], &node, err));
        LHI_TRY(lhi_get_number(doc, node, 0, 1e300, values[i], err));
    }
    if (fabs(c->gpus_usd + c->between_usd - c->usd) > 1e-9 * c->usd)
        return lhi_doc_fail(doc, lhi_find(map, "usd"), err, LH_EINPUT,
                            "is not gpus_usd and between_usd together");
    *out = c;
    return LH_OK;
}
