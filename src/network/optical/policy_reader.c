/* SPDX-License-Identifier: Apache-2.0 */
/* Reads policies. */
#include "network/optical/scenario_keys.h"

#include "schedule/methods/sched.h"

#include <string.h>

static const char *const assignment_names[] = {"sd-ff", "ksp-ff",   "cba",
                                               "slack", "critical", NULL};

const char *lhi_assignment_name(lh_assignment assignment)
{
    return assignment_names[assignment];
}

lh_status lhi_scenario_parse_method(const lhi_doc *doc, const lhi_node *node,
                                    lhi_arena *mem, const char **out,
                                    lh_error *err)
{
    const char *name;
    LHI_TRY(lhi_node_get_string(doc, node, &name, err));
    lh_error why = {0};
    if (lhi_method_find_number(name, NULL, &why) != LH_OK)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "%s", why.text);
    *out = lhi_arena_strdup(mem, name);
    return *out ? LH_OK : lhi_fail_nomem(err);
}

/* Reads the options of policy CBA only: kept labels, and the choices between
 * possible readings of its paper. LH_EINPUT: the policy is another one. */
static lh_status read_cba_rules(lhi_keys_reader *r, const lhi_node *map,
                                lhi_policy *out)
{
    static const char *const keys[] = {"keep_labels",    "label_factor",
                                       "refusal_factor", "guard",
                                       "contiguity",     "free_share"};
    static const char *const windows[] = {"fibre", "block", NULL};
    static const char *const readings[] = {"divisor", "factor", NULL};
    const lhi_node *given = NULL;
    for (size_t i = 0; !given && i < sizeof keys / sizeof *keys; i++)
        given = lhi_node_find(map, keys[i]);
    if (!given)
        return LH_OK;
    if (out->assignment != LH_CBA)
        return lhi_doc_fail(r->doc, given, r->err, LH_EINPUT,
                            "is an option of the policy cba only; remove it");
    lhi_cba_rules *rules = LHI_NEW(r->s->mem, lhi_cba_rules, 1);
    if (!rules)
        return lhi_fail_nomem(r->err);
    *rules = lhi_cba_defaults;
    LHI_TRY(lhi_keys_get_flag(r, map, "keep_labels", &out->keep_labels));
    LHI_TRY(
        lhi_keys_get_real(r, map, "label_factor", 1, 64, &rules->label_factor));
    LHI_TRY(lhi_keys_get_real(r, map, "refusal_factor", 0, 1,
                              &rules->refusal_factor));
    LHI_TRY(lhi_keys_get_real(r, map, "guard", 0, 1, &rules->guard));
    LHI_TRY(lhi_keys_get_choice(r, map, "contiguity", windows,
                                &rules->block_contiguity));
    LHI_TRY(lhi_keys_get_choice(r, map, "free_share", readings,
                                &rules->free_share_factor));
    out->cba = rules;
    return LH_OK;
}

/* Reads one policy: its assignment rule, from `policy` or from its own name,
 * and its options. */
static lh_status read_policy(lhi_keys_reader *r, const lhi_node *map,
                             lhi_policy *out)
{
    static const char *const keys[] = {
        "policy",     "request_slots", "ladder",         "keep_labels",
        "ask_late",   "stage_order",   "fill_idle",      "warm_up_factor",
        "schedule",   "label_factor",  "refusal_factor", "guard",
        "contiguity", "free_share",    "groom",          NULL};
    const lhi_node *node = NULL;
    uint32_t which = 0;
    *out = (lhi_policy){.name = lhi_arena_strdup(r->s->mem, map->key),
                        .request_slots = r->s->request_slots};
    if (!out->name)
        return lhi_fail_nomem(r->err);
    if (map->kind == LHI_SCALAR && !lhi_node_is_null(map)) {
        node = map; /* the name alone */
    } else if (!lhi_node_is_null(map)) {
        LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
        LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
        node = lhi_node_find(map, "policy");
    }
    if (node) {
        LHI_TRY(lhi_node_get_choice(r->doc, node, assignment_names, &which,
                                    r->err));
    } else {
        while (assignment_names[which] &&
               strcmp(assignment_names[which], out->name) != 0)
            which++;
        if (!assignment_names[which])
            return lhi_doc_fail(
                r->doc, map, r->err, LH_EINPUT,
                "is not the name of a policy; set one: {policy: sd-ff, ksp-ff, "
                "cba, slack or critical}");
    }
    out->assignment = (lh_assignment)which;
    if (map->kind != LHI_MAP)
        return LH_OK;
    LHI_TRY(
        lhi_keys_get_count(r, map, "request_slots", 1,
                           r->s->network->slots - r->s->network->guard_slots,
                           &out->request_slots));
    LHI_TRY(lhi_keys_get_count(r, map, "warm_up_factor", 1, 1000,
                               &out->warm_up_factor));
    LHI_TRY(lhi_keys_get_flag(r, map, "ladder", &out->ladder));
    LHI_TRY(lhi_keys_get_flag(r, map, "ask_late", &out->ask_late));
    LHI_TRY(lhi_keys_get_flag(r, map, "stage_order", &out->stage_order));
    LHI_TRY(lhi_keys_get_flag(r, map, "fill_idle", &out->fill_idle));
    LHI_TRY(lhi_keys_get_flag(r, map, "groom", &out->groom));
    if ((node = lhi_node_find(map, "schedule")) != NULL)
        LHI_TRY(lhi_scenario_parse_method(r->doc, node, r->s->mem,
                                          &out->schedule, r->err));
    return read_cba_rules(r, map, out);
}

lh_status lhi_policy_parse(const lhi_doc *doc, const lhi_node *map,
                           lh_scenario *scenario, lhi_policy *out,
                           lh_error *err)
{
    lhi_keys_reader r = {.doc = doc, .s = scenario, .err = err};
    return read_policy(&r, map, out);
}
