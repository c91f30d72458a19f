/* SPDX-License-Identifier: Apache-2.0 */
/* `curves` of a plan: docs/formats/plan.md. */
#include "planner/file/plan_file.h"

#include <string.h>

static const char *const overs[] = {"oversubscription", "experts", NULL};

/* Maximum point count of a curve in a file. */
enum { MOST_POINTS = 10000 };

const char *lh_curve_over_name(lh_curve_over over)
{
    return (unsigned)over < 2 ? overs[over] : "unknown";
}

/* One series in the file's form; a curve has all in one array. */
typedef struct series {
    const char *name;
    const int64_t *iteration_ns;
    uint32_t n;
} series;

static const lhi_schema_field series_rows[] = {
    {"name", LHI_STRING(series, name)},
    {"iteration_s", LHI_LIST(series, iteration_ns, n),
     .item_type = LHI_FIELD_SECONDS, .high = 9e9, .null_items = true,
     .absent = -1},
};
static const lhi_schema series_table = {
    LHI_ROWS("series", series, series_rows)};
static const lhi_schema_field series_row = {.width = sizeof(series),
                                            .table = &series_table};

/* Reads a curve's two series, `owner`, from a plan file: each has a name and
 * one iteration time per x value. */
static lh_status read_series(const lhi_read_context *r, const lhi_node *list,
                             void *owner, lh_error *err)
{
    lh_plan_curve *c = owner;
    const void *items;
    uint32_t n;
    LHI_TRY(lhi_schema_read_list(r, list, &series_row, &items, &n, err));
    const series *all = items;
    const char **names = LHI_NEW(r->mem, const char *, n);
    int64_t *ns = LHI_NEW(r->mem, int64_t, (size_t)n * c->n_points + 1);
    if (!names || !ns)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        const series *s = &all[node->index];
        if (s->n != c->n_points)
            return lhi_doc_fail(r->doc, lhi_node_find(node, "iteration_s"), err,
                                LH_EINPUT, "must have as many points as x");
        names[node->index] = s->name;
        memcpy(ns + (size_t)node->index * s->n, s->iteration_ns,
               s->n * sizeof *ns);
    }
    c->series = names;
    c->n_series = n;
    c->iteration_ns = ns;
    return LH_OK;
}

/* Returns the JSON list of a curve's series, names with iteration times; NULL
 * on allocation failure. */
static json_t *write_series(const void *owner, const void *context)
{
    const lh_plan_curve *c = owner;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < c->n_series; i++) {
        series one = {c->series[i], c->iteration_ns + (size_t)i * c->n_points,
                      c->n_points};
        json_t *map = lhi_schema_write(&series_table, &one, context);
        if (json_array_append_new(list, map) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Checks that each value of a list is above the one before. */
static lh_status check_rising(const lhi_read_context *r, const lhi_node *list,
                              const double *values, lh_error *err)
{
    for (const lhi_node *node = list->first; node; node = node->next)
        if (node->index > 0 && values[node->index] <= values[node->index - 1])
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "must be above the previous value");
    return LH_OK;
}

/* Checks that the x values of a curve `it` in a plan file increase, and the
 * crossings of its series too. LH_EINPUT otherwise. */
static lh_status check_curve(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    const lh_plan_curve *c = it;
    LHI_TRY(check_rising(r, lhi_node_find(map, "x"), c->xs, err));
    return check_rising(r, lhi_node_find(map, "crossings"), c->crossings, err);
}

static const lhi_schema_field curve_rows[] = {
    {"over", LHI_ENUM(lh_plan_curve, over), .names = overs},
    {"x", LHI_LIST(lh_plan_curve, xs, n_points), .item_type = LHI_FIELD_REAL,
     .low = 1e-9, .high = 1e300, .max_items = MOST_POINTS},
    {"series", LHI_CUSTOM(lh_plan_curve), .read = read_series,
     .write = write_series, .table = &series_table},
    {"crossings", LHI_LIST(lh_plan_curve, crossings, n_crossings),
     .item_type = LHI_FIELD_REAL, .low = 1e-9, .high = 1e300,
     .max_items = MOST_POINTS},
};
const lhi_schema lhi_curve_table = {
    LHI_ROWS("curve", lh_plan_curve, curve_rows), .check = check_curve};
