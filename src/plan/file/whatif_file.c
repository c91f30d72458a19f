/* SPDX-License-Identifier: Apache-2.0 */
/* `what_if` and `sensitivity` of a plan: docs/formats/plan.md. */
#include "plan/plan_own.h"
#include "plan/search/goal.h"

#include <math.h>
#include <string.h>

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

/* Takes both over. */
static bool append(json_t *list, json_t *map)
{
    return json_array_append_new(list, map) == 0;
}

double lhi_keeping(const lh_plan *plan, const lh_plan_answer *answer)
{
    lh_plan_options options = {.goal = plan->goal};
    return lhi_behind(&options, &answer->kept, &answer->best);
}

bool lhi_range_value(const lh_job *job, const lh_plan_range *range,
                     double *value)
{
    uint32_t n = job->n_datacenters;
    bool first = true;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++) {
            bool mine = (a == range->from && b == range->to) ||
                        (a == range->to && b == range->from);
            if (a == b || (!mine && range->from != LH_ALL_LINKS))
                continue;
            const lh_wan *wan = &job->wans[(size_t)a * n + b];
            double here = range->quantity == LH_LINK_LATENCY
                              ? (double)wan->latency_ns / 1e6
                              : wan->gbps;
            if (!first && (here < *value || here > *value))
                return false;
            *value = here;
            first = false;
        }
    return !first;
}

/* --- written ---------------------------------------------------------------
 */

static json_t *answers_to_json(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < plan->n_answers; i++) {
        const lh_plan_answer *a = &plan->answers[i];
        json_t *map = json_object();
        bool ok = map && set(map, "links", json_string(a->text)) &&
                  set(map, "keeping_costs", json_real(lhi_keeping(plan, a))) &&
                  set(map, "kept", lhi_choice_to_json(plan->job, &a->kept)) &&
                  set(map, "best", lhi_choice_to_json(plan->job, &a->best));
        if (!ok || json_array_append(list, map)) {
            json_decref(list);
            list = NULL;
        }
        json_decref(map);
    }
    return list;
}

static json_t *flips_to_json(const lh_plan *plan, const lh_plan_range *range)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < range->n_flips; i++) {
        const lh_plan_flip *f = &range->flips[i];
        json_t *map = json_object();
        bool ok = map && set(map, "factor_below", json_real(f->factor_below)) &&
                  set(map, "factor_above", json_real(f->factor_above)) &&
                  set(map, "below", lhi_choice_to_json(plan->job, &f->below)) &&
                  set(map, "above", lhi_choice_to_json(plan->job, &f->above));
        if (!ok || json_array_append(list, map)) {
            json_decref(list);
            list = NULL;
        }
        json_decref(map);
    }
    return list;
}

static json_t *range_to_json(const lh_plan *plan, const lh_plan_range *range)
{
    const lh_datacenter *sites = plan->job->datacenters;
    double value = 0;
    bool known = lhi_range_value(plan->job, range, &value);
    json_t *map = json_object();
    bool ok = map &&
              (range->from == LH_ALL_LINKS ||
               set(map, "between",
                   json_pack("[s,s]", sites[range->from].name,
                             sites[range->to].name))) &&
              set(map, "quantity",
                  json_string(lh_link_quantity_name(range->quantity))) &&
              set(map, "value", known ? json_real(value) : json_null()) &&
              set(map, "flips", flips_to_json(plan, range));
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

static json_t *sensitivity_to_json(const lh_plan *plan)
{
    const lh_plan_sensitivity *s = plan->sensitivity;
    json_t *map = json_object(), *list = json_array();
    bool ok = map && list && set(map, "least", json_real(s->least)) &&
              set(map, "most", json_real(s->most)) &&
              set(map, "tolerance", json_real(s->tolerance)) &&
              set(map, "here", lhi_choice_to_json(plan->job, &s->here));
    for (uint32_t i = 0; ok && i < s->n_ranges; i++)
        ok = append(list, range_to_json(plan, &s->ranges[i]));
    ok = ok && json_object_set(map, "ranges", list) == 0;
    json_decref(list);
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

bool lhi_links_to_json(const lh_plan *plan, json_t *map)
{
    return (!plan->n_answers || set(map, "what_if", answers_to_json(plan))) &&
           (!plan->sensitivity ||
            set(map, "sensitivity", sensitivity_to_json(plan)));
}

/* --- read ------------------------------------------------------------------
 */

typedef struct reader {
    const lhi_doc *doc;
    lhi_plan *plan;
} reader;

static lh_status get_number(const reader *r, const lhi_node *map,
                            const char *key, double least, double most,
                            double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_number(r->doc, node, least, most, out, err);
}

static lh_status get_choice(const reader *r, const lhi_node *map,
                            const char *key, lh_choice *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    LHI_TRY(lhi_want_map(r->doc, node, err));
    return lhi_choice_from_node(r->doc, r->plan, node, out, err);
}

static lh_status get_list(const reader *r, const lhi_node *map, const char *key,
                          const lhi_node **out, lh_error *err)
{
    LHI_TRY(lhi_need(r->doc, map, key, out, err));
    return lhi_want_list(r->doc, *out, err);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

static lh_status read_answer(const reader *r, const lhi_node *map,
                             lh_plan_answer *out, lh_error *err)
{
    static const char *const keys[] = {"links", "keeping_costs", "kept", "best",
                                       NULL};
    const lhi_node *node;
    double said;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "links", &node, err));
    LHI_TRY(lhi_get_string(r->doc, node, &out->text, err));
    if (!(out->text = lhi_arena_strdup(r->plan->mem, out->text)))
        return lhi_fail_nomem(err);
    LHI_TRY(get_choice(r, map, "kept", &out->kept, err));
    LHI_TRY(get_choice(r, map, "best", &out->best, err));
    LHI_TRY(get_number(r, map, "keeping_costs", -1, 1e300, &said, err));
    if (near(said, lhi_keeping(&r->plan->plan, out)))
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_find(map, "keeping_costs"), err, LH_EINPUT,
                        "is not what 'kept' and 'best' say");
}

static lh_status read_answers(const reader *r, lh_error *err)
{
    const lhi_node *list = lhi_find(r->doc->root, "what_if");
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_plan_answer *answers =
        LHI_NEW(r->plan->mem, lh_plan_answer, list->n_items);
    if (!answers)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_answer(r, n, &answers[n->index], err));
    r->plan->plan.answers = answers;
    r->plan->plan.n_answers = list->n_items;
    return LH_OK;
}

static lh_status read_flip(const reader *r, const lhi_node *map,
                           lh_plan_flip *out, lh_error *err)
{
    static const char *const keys[] = {"factor_below", "factor_above", "below",
                                       "above", NULL};
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(
        get_number(r, map, "factor_below", 1e-9, 1e9, &out->factor_below, err));
    LHI_TRY(get_number(r, map, "factor_above", out->factor_below, 1e9,
                       &out->factor_above, err));
    LHI_TRY(get_choice(r, map, "below", &out->below, err));
    return get_choice(r, map, "above", &out->above, err);
}

static lh_status read_flips(const reader *r, const lhi_node *map,
                            lh_plan_range *out, lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(get_list(r, map, "flips", &list, err));
    lh_plan_flip *flips = LHI_NEW(r->plan->mem, lh_plan_flip, list->n_items);
    if (!flips)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_flip(r, n, &flips[n->index], err));
    out->flips = flips;
    out->n_flips = list->n_items;
    return LH_OK;
}

static lh_status find_site(const reader *r, const lhi_node *node, uint32_t *out,
                           lh_error *err)
{
    const lh_job *job = r->plan->job;
    const char *name;
    LHI_TRY(lhi_get_string(r->doc, node, &name, err));
    for (*out = 0; *out < job->n_datacenters; ++*out)
        if (strcmp(job->datacenters[*out].name, name) == 0)
            return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "the job has no datacenter '%.60s'", name);
}

static lh_status read_between(const reader *r, const lhi_node *list,
                              lh_plan_range *out, lh_error *err)
{
    out->from = out->to = LH_ALL_LINKS;
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_want_list(r->doc, list, err));
    if (list->n_items != 2)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must name two datacenters");
    LHI_TRY(find_site(r, list->first, &out->from, err));
    LHI_TRY(find_site(r, list->first->next, &out->to, err));
    if (out->from == out->to)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must name two different datacenters");
    return LH_OK;
}

static lh_status check_value(const reader *r, const lhi_node *map,
                             const lh_plan_range *range, lh_error *err)
{
    const lhi_node *node;
    double value = 0, said = 0;
    bool known = lhi_range_value(r->plan->job, range, &value);
    LHI_TRY(lhi_need(r->doc, map, "value", &node, err));
    if (!lhi_is_null(node))
        LHI_TRY(lhi_get_number(r->doc, node, 0, 1e300, &said, err));
    if (known == !lhi_is_null(node) && near(said, value * known))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "is not what the job says of these links");
}

static lh_status read_range(const reader *r, const lhi_node *map,
                            lh_plan_range *out, lh_error *err)
{
    static const char *const keys[] = {"between", "quantity", "value", "flips",
                                       NULL};
    static const char *const quantities[] = {"latency", "bandwidth", NULL};
    const lhi_node *node;
    uint32_t quantity;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(read_between(r, lhi_find(map, "between"), out, err));
    LHI_TRY(lhi_need(r->doc, map, "quantity", &node, err));
    LHI_TRY(lhi_get_choice(r->doc, node, quantities, &quantity, err));
    out->quantity = (lh_link_quantity)quantity;
    LHI_TRY(check_value(r, map, out, err));
    return read_flips(r, map, out, err);
}

static lh_status read_sensitivity(const reader *r, lh_error *err)
{
    static const char *const keys[] = {"least", "most",   "tolerance",
                                       "here",  "ranges", NULL};
    const lhi_node *map = lhi_find(r->doc->root, "sensitivity"), *list;
    if (!map)
        return LH_OK;
    lh_plan_sensitivity *s = LHI_NEW(r->plan->mem, lh_plan_sensitivity, 1);
    if (!s)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_want_map(r->doc, map, err));
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(get_number(r, map, "least", 1e-9, 1, &s->least, err));
    LHI_TRY(get_number(r, map, "most", 1, 1e9, &s->most, err));
    LHI_TRY(get_number(r, map, "tolerance", 0, 1e9, &s->tolerance, err));
    LHI_TRY(get_choice(r, map, "here", &s->here, err));
    LHI_TRY(get_list(r, map, "ranges", &list, err));
    lh_plan_range *ranges = LHI_NEW(r->plan->mem, lh_plan_range, list->n_items);
    if (!ranges)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_range(r, n, &ranges[n->index], err));
    s->ranges = ranges;
    s->n_ranges = list->n_items;
    r->plan->plan.sensitivity = s;
    return LH_OK;
}

lh_status lhi_links_from_doc(const lhi_doc *doc, lhi_plan *plan, lh_error *err)
{
    reader r = {doc, plan};
    LHI_TRY(read_answers(&r, err));
    return read_sensitivity(&r, err);
}
