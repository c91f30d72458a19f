/* SPDX-License-Identifier: Apache-2.0 */
/* `cost` of a choice in the plan's file. */
#include "plan/plan_own.h"
#include "plan/search/front.h"

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

/* --- objective and front -----------------------------------------------------
 */

static const char *const objectives[] = {"time", "cost", NULL};

const char *lh_plan_goal_name(lh_plan_goal goal)
{
    return (unsigned)goal < 2 ? objectives[goal] : "unknown";
}

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

static json_t *front_to_json(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < plan->n_front; i++)
        if (json_array_append_new(
                list, lhi_choice_to_json(plan->job, &plan->front[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

bool lhi_front_to_json(const lh_plan *plan, json_t *map)
{
    return (plan->goal == LH_PLAN_FASTEST ||
            set(map, "objective",
                json_string(lh_plan_goal_name(plan->goal)))) &&
           (!plan->n_front ||
            (set(map, "front", front_to_json(plan)) &&
             set(map, "front_whole", json_boolean(plan->front_whole))));
}

/* Nothing on it is as good as something else on it in everything. */
static lh_status check_front(const lhi_doc *doc, const lhi_node *list,
                             const lh_choice *all, uint32_t n, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            lhi_front_point a = lhi_point_of(&all[i]),
                            b = lhi_point_of(&all[k]);
            if (i == k || !lhi_point_covers(&a, &b))
                continue;
            return lhi_doc_fail(doc, list, err, LH_EINPUT,
                                "entry %u is as good as entry %u in time, "
                                "memory and cost",
                                i, k);
        }
    return LH_OK;
}

lh_status lhi_front_from_doc(const lhi_doc *doc, lhi_plan *plan, lh_error *err)
{
    const lhi_node *node = lhi_find(doc->root, "objective"), *list;
    lh_plan *p = &plan->plan;
    uint32_t objective;
    if (node) {
        LHI_TRY(lhi_get_choice(doc, node, objectives, &objective, err));
        p->goal = (lh_plan_goal)objective;
    }
    if (!(list = lhi_find(doc->root, "front")))
        return LH_OK;
    LHI_TRY(lhi_want_list(doc, list, err));
    if (list->n_items > LHI_MOST_FRONT)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "has %u entries; at most %d are possible",
                            list->n_items, LHI_MOST_FRONT);
    lh_choice *all = LHI_NEW(plan->mem, lh_choice, list->n_items);
    if (!all)
        return lhi_fail_nomem(err);
    for (node = list->first; node; node = node->next) {
        LHI_TRY(lhi_want_map(doc, node, err));
        LHI_TRY(lhi_choice_from_node(doc, plan, node, &all[node->index], err));
    }
    LHI_TRY(check_front(doc, list, all, list->n_items, err));
    p->front = all;
    p->n_front = list->n_items;
    LHI_TRY(lhi_need(doc, doc->root, "front_whole", &node, err));
    return lhi_get_bool(doc, node, &p->front_whole, err);
}
