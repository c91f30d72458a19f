/* SPDX-License-Identifier: Apache-2.0 */
/* `account` and `runners_up` of a plan: docs/formats/plan.md. */
#include "plan/explain/account.h"
#include "plan/plan_own.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

static const struct {
    const char *key;
    size_t at;
} parts[] = {
    {"compute_s", offsetof(lh_plan_account, compute_ns)},
    {"inside_s", offsetof(lh_plan_account, inside_ns)},
    {"imbalance_s", offsetof(lh_plan_account, imbalance_ns)},
    {"bubble_s", offsetof(lh_plan_account, bubble_ns)},
    {"messages_s", offsetof(lh_plan_account, messages_ns)},
    {"data_parallel_s", offsetof(lh_plan_account, data_ns)},
    {"memory_s", offsetof(lh_plan_account, memory_ns)},
    {"optimizer_s", offsetof(lh_plan_account, optimizer_ns)},
    {"overhead_s", offsetof(lh_plan_account, overhead_ns)},
};

enum { N_PARTS = sizeof parts / sizeof parts[0] };

static int64_t *part(lh_plan_account *a, int i)
{
    return (int64_t *)(void *)((char *)a + parts[i].at);
}

static json_t *account_to_json(const lh_plan_account *account)
{
    lh_plan_account a = *account;
    json_t *map = json_object();
    for (int i = 0; map && i < N_PARTS; i++)
        if (json_object_set_new(map, parts[i].key,
                                json_real((double)*part(&a, i) / 1e9)) != 0) {
            json_decref(map);
            return NULL;
        }
    return map;
}

static json_t *runners_to_json(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < plan->n_runners; i++) {
        const lh_plan_runner *r = &plan->runners[i];
        json_t *map =
            json_pack("{s:s, s:o}", "dimension", r->dimension, "choice",
                      lhi_choice_to_json(plan->job, &r->choice));
        if (json_array_append_new(list, map) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

bool lhi_account_to_json(const lh_plan *plan, json_t *map)
{
    bool ok = true;
    if (plan->account)
        ok = json_object_set_new(map, "account",
                                 account_to_json(plan->account)) == 0;
    if (plan->n_runners)
        ok = json_object_set_new(map, "runners_up", runners_to_json(plan)) ==
                 0 &&
             ok;
    return ok;
}

static lh_status read_account(const lhi_doc *doc, lhi_plan *plan,
                              const lhi_node *map, lh_error *err)
{
    const char *keys[N_PARTS + 1] = {NULL};
    lh_plan_account *a = LHI_NEW(plan->mem, lh_plan_account, 1);
    int64_t sum = 0, want = plan->plan.best.iteration_ns;
    if (!a)
        return lhi_fail_nomem(err);
    for (int i = 0; i < N_PARTS; i++)
        keys[i] = parts[i].key;
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    for (int i = 0; i < N_PARTS; i++) {
        const lhi_node *node;
        double value;
        LHI_TRY(lhi_need(doc, map, keys[i], &node, err));
        LHI_TRY(lhi_get_number(doc, node, 0, 9e8, &value, err));
        *part(a, i) = llround(value * 1e9);
        sum += *part(a, i);
    }
    /* Fifteen digits say five ns more or less where there are 10^15. */
    int64_t lost = want < INT64_C(1000000000000000) ? 0 : 5 * N_PARTS;
    if (sum < want - lost || sum > want + lost)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "adds up to %" PRId64 " ns, not to the iteration's "
                            "%" PRId64,
                            sum, want);
    plan->plan.account = a;
    return LH_OK;
}

static lh_status read_runner(const lhi_doc *doc, lhi_plan *plan,
                             const lhi_node *map, lh_plan_runner *out,
                             lh_error *err)
{
    static const char *const keys[] = {"dimension", "choice", NULL};
    const lhi_node *node;
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(lhi_need(doc, map, "dimension", &node, err));
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "must be a text");
    if (!lhi_dimension_known(node->text))
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "'%.60s' is no dimension of layouts", node->text);
    out->dimension = lhi_arena_strdup(plan->mem, node->text);
    if (!out->dimension)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_need(doc, map, "choice", &node, err));
    return lhi_choice_from_node(doc, plan, node, &out->choice, err);
}

lh_status lhi_account_from_root(const lhi_doc *doc, lhi_plan *plan,
                                lh_error *err)
{
    const lhi_node *map = lhi_find(doc->root, "account");
    if (map)
        LHI_TRY(read_account(doc, plan, map, err));
    const lhi_node *list = lhi_find(doc->root, "runners_up");
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_want_list(doc, list, err));
    lh_plan_runner *runners = LHI_NEW(plan->mem, lh_plan_runner, list->n_items);
    if (!runners)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_runner(doc, plan, node, &runners[node->index], err));
    plan->plan.runners = runners;
    plan->plan.n_runners = list->n_items;
    return LH_OK;
}
