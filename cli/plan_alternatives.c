/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the best alternative per dimension: results, proven bounds, and the
 * dimensions without an alternative. */
#include "plan_explanation.h"
#include "plan_screen.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Dimension that a job may fix, in the order of the plan's rows. */
typedef struct dimension {
    const char *name;
    bool given, open; /* open: the job permits other values */
} dimension;

/* Number of search dimensions; capacity for a layout's text, in bytes. */
enum { DIMENSIONS = 13, LAYOUT = 240 };

/* Fills in all[], the planner's search dimensions (degrees, placement, schedule
 * and others): whether the job fixes each one, and whether it can have other
 * values. */
static void list_dimensions(const lh_plan *p, dimension *all)
{
    const lh_job *job = p->job;
    const lh_layout *l = &job->layout;
    const bool many = job->n_datacenters > 1;
    const dimension list[DIMENSIONS] = {
        {"tensor", l->tensor, true},
        {"context", l->context, true},
        {"expert", l->expert, job->model->experts > 0},
        {"pipeline", l->pipeline, true},
        {"data", l->data, true},
        {"sites", l->sites, many},
        {"zero", job->training.zero_given, true},
        {"sharding", l->sharding > LH_SHARDING_FULL, false},
        {"micro_batch", l->micro_batch, true},
        {"chunks_per_device", l->chunks_per_device, true},
        {"placement", false, p->best.layout.pipeline > 1},
        {"recompute", job->training.recompute_given, true},
        {"schedule", l->schedule, true}};
    memcpy(all, list, sizeof list);
}

/* Returns the alternative layout's member for the dimension that it varies,
 * such as the pipeline degree; NULL: the dimension is not a number. */
static const uint32_t *get_numeric_value(const lh_plan_dimension_alternative *r)
{
    const lh_layout *l = &r->choice.layout;
    const struct {
        const char *name;
        const uint32_t *value;
    } all[] = {{"tensor", &l->tensor},
               {"context", &l->context},
               {"expert", &l->expert},
               {"pipeline", &l->pipeline},
               {"data", &l->data},
               {"zero", &r->choice.zero},
               {"micro_batch", &l->micro_batch},
               {"chunks_per_device", &l->chunks_per_device}};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(r->dimension, all[i].name) == 0)
            return all[i].value;
    return NULL;
}

/* Writes a search dimension's alternative value to `name`, as in "tensor 8". */
static void name_alternative(const lh_plan_dimension_alternative *r, char *name,
                             size_t room)
{
    const uint32_t *degree = get_numeric_value(r);
    if (degree)
        snprintf(name, room, "%s %" PRIu32, r->dimension, *degree);
    else
        snprintf(name, room, "%s", r->dimension);
}

/* Rows that describe the same plan, and their status. */
typedef struct group {
    char names[200];
    bool is_quick_evaluation, bounded, known;
    int64_t least_ns; /* if known: lower bound */
} group;

/* Checks whether two alternatives describe the same plan. */
static bool is_same_plan(const lh_choice *a, const lh_choice *b)
{
    char x[LAYOUT], y[LAYOUT];
    return a->iteration_ns == b->iteration_ns && a->status == b->status &&
           a->placement == b->placement &&
           a->lower_bound_ns == b->lower_bound_ns &&
           (!a->layout.schedule) == (!b->layout.schedule) &&
           (!a->layout.schedule ||
            strcmp(a->layout.schedule, b->layout.schedule) == 0) &&
           strcmp(cli_layout_text(a, x, sizeof x),
                  cli_layout_text(b, y, sizeof y)) == 0;
}

/* Appends the name of alternative `r` (a value of a dimension) to the group's
 * names, for values whose best plan is the same. Joins its kind of evidence and
 * lower bound, too. */
static void merge_row(group *g, const lh_plan_dimension_alternative *r)
{
    char name[60];
    name_alternative(r, name, sizeof name);
    const size_t len = strlen(g->names);
    snprintf(g->names + len, sizeof g->names - len, "%s%s", len ? ", " : "",
             name);
    g->is_quick_evaluation |= r->is_quick_evaluation;
    g->bounded |= r->choice.status == LH_CHOICE_BOUNDED;
    if (r->bound_ns >= 0 && (!g->known || r->bound_ns < g->least_ns))
        g->least_ns = r->bound_ns;
    g->known |= r->bound_ns >= 0;
}

/* Returns by how many percent a feasible choice is slower than the plan or, if
 * cost is the objective, more expensive. */
static double compute_relative_gap(const lh_plan *p, const lh_choice *x)
{
    if (p->objective == LH_PLAN_CHEAPEST && x->cost && p->best.cost)
        return cli_percent_slower(x->cost->usd, p->best.cost->usd);
    return cli_percent_slower((double)x->iteration_ns,
                              (double)p->best.iteration_ns);
}

/* Adds a table row for the dimension values in group `g`, whose best found plan
 * is `x`: values, difference to the plan, lower bound, kind of evidence, and
 * layout. */
static void add_group(cli_table *t, const lh_plan *p, const group *g,
                      const lh_choice *x)
{
    char layout[LAYOUT], what[LAYOUT + 80], found[40] = "-", least[40] = "-";
    /* A choice's own bound holds for its layer partition alone. */
    const int64_t least_ns =
        g->bounded && (!g->known || x->lower_bound_ns < g->least_ns)
            ? x->lower_bound_ns
            : g->least_ns;
    const bool closed = !g->bounded && g->known && least_ns >= x->iteration_ns;
    if (!g->bounded)
        snprintf(found, sizeof found, "%+.1f %%", compute_relative_gap(p, x));
    if (g->bounded || (g->known && !closed))
        snprintf(
            least, sizeof least, "%+.1f %%",
            cli_percent_slower((double)least_ns, (double)p->best.iteration_ns));
    else if (closed)
        snprintf(least, sizeof least, "the same");
    snprintf(what, sizeof what, "%s %s  %s",
             x->layout.schedule ? x->layout.schedule : "any schedule",
             lh_placement_name(x->placement),
             cli_layout_text(x, layout, sizeof layout));
    const char *cells[] = {g->names, found, least,
                           g->bounded               ? "bound only"
                           : g->is_quick_evaluation ? "quick evaluation"
                           : closed                 ? "proven"
                                                    : "best found",
                           what};
    cli_table_row(t, 5, cells);
}

/* Prints the search dimensions for which no alternative value exists: those
 * that the job fixes, and those without another feasible value found. */
static void print_missing(cli *c, const lh_plan *p)
{
    dimension all[DIMENSIONS];
    char given[300] = "", none[300] = "";
    list_dimensions(p, all);
    for (int d = 0; d < DIMENSIONS; d++) {
        uint32_t i = 0;
        while (i < p->n_dimension_alternatives &&
               strcmp(p->dimension_alternatives[i].dimension, all[d].name) != 0)
            i++;
        if (i < p->n_dimension_alternatives || (!all[d].open && !all[d].given))
            continue;
        char *text = all[d].given ? given : none;
        const size_t len = strlen(text);
        snprintf(text + len, sizeof given - len, "%s%s", len ? ", " : "",
                 all[d].name);
    }
    if (*given)
        cli_wrap(c, "  given", "%s: fixed by the job", given);
    if (*none)
        cli_wrap(c, "  no other", "%s: no alternative found", none);
}

void cli_plan_alternatives(cli *c, const lh_plan *p)
{
    static const char *const head[] = {"value", "#found", "#at least",
                                       "confidence", "schedule, layout"};
    cli_table t = {0};
    if (!p->n_dimension_alternatives)
        return;
    cli_print(c, "\n"
                 "Best alternative per dimension\n");
    cli_table_row(&t, 5, head);
    for (uint32_t i = 0; i < p->n_dimension_alternatives; i++) {
        const lh_choice *own = &p->dimension_alternatives[i].choice;
        group g = {.names = ""};
        uint32_t k = 0;
        while (!is_same_plan(&p->dimension_alternatives[k].choice, own))
            k++;
        if (k < i)
            continue; /* merged with the first of the group */
        for (k = i; k < p->n_dimension_alternatives; k++)
            if (is_same_plan(&p->dimension_alternatives[k].choice, own))
                merge_row(&g, &p->dimension_alternatives[k]);
        add_group(&t, p, &g, own);
    }
    cli_table_print(c, "", &t);
    cli_wrap(c, "",
             "found: by this search, relative to the plan; at least: proven "
             "lower bound. 'Best found': a search with this value fixed may "
             "find a better plan. 'Quick evaluation': plans with this value "
             "were not fully searched");
    print_missing(c, p);
}

/* --- report ------------------------------------------------------------- */

lh_status cli_report_alternatives(cli *c, const lh_plan *p, lh_report *report)
{
    enum { COLUMNS = 5 };
    static const char *const head[COLUMNS] = {
        "Changed dimension", "costs", "#iteration", "layout", "schedule"};
    const char *cells[COLUMNS];
    lh_report_table table = {.size = sizeof table,
                             .title = "Runners-up",
                             .n_columns = COLUMNS,
                             .head = head};
    if (p->n_dimension_alternatives == 0)
        return LH_OK;
    CLI_TRY(lh_report_add_table(report, &table, &c->err));
    for (uint32_t i = 0; i < p->n_dimension_alternatives; i++) {
        const lh_plan_dimension_alternative *r = &p->dimension_alternatives[i];
        char name[60], time[CLI_TIME_TEXT] = "", layout[120], schedule[80];
        name_alternative(r, name, sizeof name);
        if (r->choice.iteration_ns >= 0)
            cli_time_text(r->choice.iteration_ns, time);
        snprintf(schedule, sizeof schedule, "%s %s",
                 r->choice.layout.schedule ? r->choice.layout.schedule
                                           : "any schedule",
                 lh_placement_name(r->choice.placement));
        cells[0] = name;
        cells[1] = r->choice.why;
        cells[2] = time;
        cells[3] = cli_layout_text(&r->choice, layout, sizeof layout);
        cells[4] = schedule;
        CLI_TRY(lh_report_add_cells(report, COLUMNS, cells, &c->err));
    }
    return LH_OK;
}
