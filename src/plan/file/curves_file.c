/* SPDX-License-Identifier: Apache-2.0 */
/* `curves` of a plan: docs/formats/plan.md. */
#include "plan/plan_own.h"

#include <math.h>

static const char *const overs[] = {"oversubscription", "experts", NULL};

enum { MOST_POINTS = 10000 };

const char *lh_curve_over_name(lh_curve_over over)
{
    return (unsigned)over < 2 ? overs[over] : "unknown";
}

static json_t *reals_to_json(const double *values, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_real(values[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *times_to_json(const int64_t *ns, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(
                list, ns[i] < 0 ? json_null()
                                : json_real((double)ns[i] / 1e9)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *curve_to_json(const lh_plan_curve *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < c->n_series; i++) {
        json_t *one =
            json_pack("{s:s, s:o}", "name", c->series[i], "iteration_s",
                      times_to_json(c->iteration_ns + (size_t)i * c->n_points,
                                    c->n_points));
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "over",
                     lh_curve_over_name(c->over), "x",
                     reals_to_json(c->xs, c->n_points), "series", list,
                     "crossings", reals_to_json(c->crossings, c->n_crossings));
}

json_t *lhi_curves_to_json(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < plan->n_curves; i++)
        if (json_array_append_new(list, curve_to_json(&plan->curves[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* --- reading ---------------------------------------------------------------
 */

/* Numbers above 0 that rise. */
static lh_status read_reals(const lhi_doc *doc, const lhi_node *map,
                            const char *key, lhi_arena *mem, const double **out,
                            uint32_t *n, lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(doc, map, key, &list, err));
    LHI_TRY(lhi_want_list(doc, list, err));
    if (list->n_items > MOST_POINTS)
        return lhi_doc_fail(doc, list, err, LH_EINPUT, "more than %d points",
                            MOST_POINTS);
    double *values = LHI_NEW(mem, double, list->n_items);
    if (!values)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        uint32_t i = node->index;
        LHI_TRY(lhi_get_number(doc, node, 1e-9, 1e300, &values[i], err));
        if (i > 0 && values[i] <= values[i - 1])
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "is no more than the one before");
    }
    *out = values;
    *n = list->n_items;
    return LH_OK;
}

static lh_status read_times(const lhi_doc *doc, const lhi_node *map, uint32_t n,
                            int64_t *out, lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(doc, map, "iteration_s", &list, err));
    LHI_TRY(lhi_want_list(doc, list, err));
    if (list->n_items != n)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "has another number of points than x");
    for (const lhi_node *node = list->first; node; node = node->next) {
        double value = -1e-9;
        if (!lhi_is_null(node))
            LHI_TRY(lhi_get_number(doc, node, 0, 9e9, &value, err));
        out[node->index] = llround(value * 1e9);
    }
    return LH_OK;
}

static lh_status read_series(const lhi_doc *doc, const lhi_node *list,
                             lhi_arena *mem, lh_plan_curve *out, lh_error *err)
{
    static const char *const keys[] = {"name", "iteration_s", NULL};
    LHI_TRY(lhi_want_list(doc, list, err));
    const char **names = LHI_NEW(mem, const char *, list->n_items);
    int64_t *ns =
        LHI_NEW(mem, int64_t, (size_t)list->n_items * out->n_points + 1);
    if (!names || !ns)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        const lhi_node *name;
        LHI_TRY(lhi_known_keys(doc, node, keys, err));
        LHI_TRY(lhi_need(doc, node, "name", &name, err));
        if (name->kind != LHI_SCALAR)
            return lhi_doc_fail(doc, name, err, LH_EINPUT, "must be a text");
        names[node->index] = lhi_arena_strdup(mem, name->text);
        if (!names[node->index])
            return lhi_fail_nomem(err);
        LHI_TRY(read_times(doc, node, out->n_points,
                           ns + (size_t)node->index * out->n_points, err));
    }
    out->series = names;
    out->n_series = list->n_items;
    out->iteration_ns = ns;
    return LH_OK;
}

static lh_status read_curve(const lhi_doc *doc, const lhi_node *map,
                            lhi_arena *mem, lh_plan_curve *out, lh_error *err)
{
    static const char *const keys[] = {"over", "x", "series", "crossings",
                                       NULL};
    const lhi_node *node;
    uint32_t over;
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(lhi_need(doc, map, "over", &node, err));
    LHI_TRY(lhi_get_choice(doc, node, overs, &over, err));
    out->over = (lh_curve_over)over;
    LHI_TRY(read_reals(doc, map, "x", mem, &out->xs, &out->n_points, err));
    LHI_TRY(lhi_need(doc, map, "series", &node, err));
    LHI_TRY(read_series(doc, node, mem, out, err));
    return read_reals(doc, map, "crossings", mem, &out->crossings,
                      &out->n_crossings, err);
}

lh_status lhi_curves_from_root(const lhi_doc *doc, lhi_arena *mem,
                               lh_plan *plan, lh_error *err)
{
    const lhi_node *list = lhi_find(doc->root, "curves");
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_want_list(doc, list, err));
    lh_plan_curve *curves = LHI_NEW(mem, lh_plan_curve, list->n_items);
    if (!curves)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_curve(doc, node, mem, &curves[node->index], err));
    plan->curves = curves;
    plan->n_curves = list->n_items;
    return LH_OK;
}
