/* SPDX-License-Identifier: Apache-2.0 */
#include "current_plan_view.h"

#include "inputs.h"
#include "plan_explanation.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a value's text in bytes; width of the column with current
 * values. */
enum { VALUE_TEXT = 600, TODAY_COLUMNS = 24 };

/* --- dimensions --------------------------------------------------------- */

/* A layout's dimension. */
typedef enum dimension {
    TENSOR,
    CONTEXT,
    EXPERT,
    EXPERT_TENSOR,
    PIPELINE,
    DATA,
    MICRO_BATCH,
    CHUNKS,
    SCHEDULE,
    RECOMPUTE,
    ZERO,
    SHARDING,
    SITES,
    LAYERS,
    N_DIMENSIONS
} dimension;

/* Names as in the plan's alternatives and in JSON. */
static const char *const dimension_names[N_DIMENSIONS] = {
    "tensor",   "context",   "expert",      "expert_tensor",
    "pipeline", "data",      "micro_batch", "chunks_per_device",
    "schedule", "recompute", "zero",        "sharding",
    "sites",    "layers"};

/* Returns a choice's (evaluated layout's) value for a numeric search dimension,
 * such as the tensor degree or the ZeRO stage. */
static uint32_t get_dimension_value(dimension d, const lh_choice *x)
{
    const lh_layout *l = &x->layout;
    switch (d) {
    case TENSOR:
        return l->tensor;
    case CONTEXT:
        return l->context;
    case EXPERT:
        return l->expert;
    case EXPERT_TENSOR:
        return lh_layout_expert_tensor(l);
    case PIPELINE:
        return l->pipeline;
    case DATA:
        return l->data;
    case MICRO_BATCH:
        return l->micro_batch;
    case CHUNKS:
        return l->chunks_per_device;
    default:
        return x->zero;
    }
}

/* Writes the layers per chunk to `text`, with repeated numbers joined, as in
 * "2, 3 x 6, 2". */
static void format_layers(const lh_plan *p, char *text)
{
    const uint32_t n = lh_pipeline_n_chunks(p->pipeline);
    size_t len = 0;
    for (uint32_t i = 0, times; i < n && len < VALUE_TEXT; i += times) {
        uint32_t first, count, next;
        lh_plan_layers(p, i, &first, &count);
        for (times = 1; i + times < n; times++) {
            lh_plan_layers(p, i + times, &first, &next);
            if (next != count)
                break;
        }
        len += (size_t)snprintf(text + len, VALUE_TEXT - len, "%s%" PRIu32,
                                len ? ", " : "", count);
        if (times > 1 && len < VALUE_TEXT)
            len += (size_t)snprintf(text + len, VALUE_TEXT - len, " x %" PRIu32,
                                    times);
    }
}

/* Formats the plan layout's sites into `text`, or the outermost parallelism if
 * the layout has none. */
static void format_sites(const lh_plan *p, char *text)
{
    const lh_layout *l = &p->best.layout;
    if (l->sites)
        cli_sites_text(p->job, l->sites, text, VALUE_TEXT);
    else
        snprintf(text, VALUE_TEXT, "%s outermost",
                 lh_outermost_name(l->outermost));
}

/* Writes the recomputation to `text`: its name, or the recomputed modules. */
static void format_recompute(const lh_plan *p, char *text)
{
    size_t len = 0;
    if (p->best.recompute != LH_RECOMPUTE_MODULES) {
        snprintf(text, VALUE_TEXT, "%s", lh_recompute_name(p->best.recompute));
        return;
    }
    for (uint32_t i = 0; i < LH_N_MODULES; i++)
        if (p->job->training.recompute_modules >> i & 1)
            len +=
                (size_t)snprintf(text + len, VALUE_TEXT - len, "%s%s",
                                 len ? ", " : "", lh_module_name((lh_module)i));
}

/* Writes the value for a search dimension (degree, placement, schedule) in a
 * plan's best choice to `text`; empty if it does not apply. */
static void format_value(dimension d, const lh_plan *p, char *text)
{
    const lh_choice *x = &p->best;
    *text = '\0';
    switch (d) {
    case SCHEDULE:
        snprintf(text, VALUE_TEXT, "%s", x->layout.schedule);
        break;
    case RECOMPUTE:
        format_recompute(p, text);
        break;
    case SHARDING:
        if (x->layout.sharding != LH_SHARDING_ANY)
            snprintf(text, VALUE_TEXT, "%s",
                     lh_sharding_name(x->layout.sharding));
        break;
    case SITES:
        if (p->job->n_datacenters > 1)
            format_sites(p, text);
        break;
    case LAYERS:
        format_layers(p, text);
        break;
    default:
        snprintf(text, VALUE_TEXT, "%" PRIu32, get_dimension_value(d, x));
        break;
    }
}

/* Returns the best known iteration time, in ns, among plans with the current
 * configuration's value in this dimension; 0: unknown. */
static int64_t find_best_with_current(dimension d, const lh_plan *today,
                                      const lh_plan *plan)
{
    if (d > CHUNKS && d != ZERO)
        return 0;
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++) {
        const lh_plan_dimension_alternative *r =
            &plan->dimension_alternatives[i];
        if (strcmp(r->dimension, dimension_names[d]) == 0 &&
            r->choice.status == LH_CHOICE_OK &&
            get_dimension_value(d, &r->choice) ==
                get_dimension_value(d, &today->best))
            return r->choice.iteration_ns;
    }
    return 0;
}

/* --- output ------------------------------------------------------------- */

/* A dimension in which the plans differ, with both values. */
typedef struct change {
    dimension d;
    char today[VALUE_TEXT], plan[VALUE_TEXT];
    int64_t keeping_ns;
} change;

/* Lists the search dimensions in which the current configuration and the plan
 * differ; returns their number. */
static uint32_t find_changes(const lh_plan *today, const lh_plan *plan,
                             change out[N_DIMENSIONS])
{
    uint32_t n = 0;
    for (dimension d = 0; d < N_DIMENSIONS; d++) {
        change *x = &out[n];
        format_value(d, today, x->today);
        format_value(d, plan, x->plan);
        /* Expert degrees are irrelevant without experts. */
        if ((d == EXPERT || d == EXPERT_TENSOR) && !plan->job->model->experts)
            continue;
        if (strcmp(x->today, x->plan) == 0)
            continue;
        x->d = d;
        x->keeping_ns = find_best_with_current(d, today, plan);
        n++;
    }
    return n;
}

/* Returns by how many percent the iteration time `ns` exceeds than_ns; below
 * 0: faster. */
static double compute_percent(int64_t ns, int64_t than_ns)
{
    return cli_percent_slower((double)ns, (double)than_ns);
}

/* Prints a table of the n changed dimensions, each with the plan's loss if this
 * dimension alone kept its current value. */
static void print_changes(cli *c, const lh_plan *plan, const change *changes,
                          uint32_t n)
{
    static const char *const head[] = {"#if unchanged", "what", "today",
                                       "plan"};
    cli_table t = {.after_label = true};
    cli_table_row(&t, 4, head);
    for (uint32_t i = 0; i < n; i++) {
        char kept[40] = "", was[80];
        if (changes[i].keeping_ns > 0)
            snprintf(kept, sizeof kept, "%+.1f %%",
                     compute_percent(changes[i].keeping_ns,
                                     plan->best.iteration_ns));
        const char *const cells[] = {
            kept, dimension_names[changes[i].d],
            cli_shorten(changes[i].today, TODAY_COLUMNS, was, sizeof was),
            changes[i].plan};
        cli_table_row(&t, 4, cells);
    }
    cli_table_print(c, "changes", &t);
}

/* Prints the breakdown of the iteration time of both configurations side by
 * side. */
static void print_parts(cli *c, const lh_plan *today, const lh_plan *plan)
{
    static const char *const head[] = {"part", "#today", "#plan", "#less"};
    lh_report_breakdown_part was[CLI_BREAKDOWN_PARTS], is[CLI_BREAKDOWN_PARTS];
    cli_table t = {.after_label = true};
    if (!today->breakdown || !plan->breakdown)
        return;
    cli_breakdown_parts(today->breakdown, was);
    cli_breakdown_parts(plan->breakdown, is);
    cli_table_row(&t, 4, head);
    for (uint32_t i = 0; i < CLI_BREAKDOWN_PARTS; i++) {
        const int64_t ns = was[i].ns - is[i].ns;
        char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT], less[CLI_TIME_TEXT + 1];
        char size[CLI_TIME_TEXT];
        snprintf(less, sizeof less, "%s%s", ns < 0 ? "-" : "",
                 cli_plan_time(today, fabs((double)ns), size));
        const char *const cells[] = {
            was[i].name, cli_plan_time(today, (double)was[i].ns, a),
            cli_plan_time(today, (double)is[i].ns, b), less};
        if (was[i].ns || is[i].ns)
            cli_table_row(&t, 4, cells);
    }
    cli_table_print(c, "breakdown", &t);
}

void cli_current_plan_text(cli *c, const cli_current_plan *today,
                           const lh_plan *plan)
{
    const lh_plan *was = today->plan;
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT], layout[200];
    if (!was) {
        cli_wrap(c, "today", "cannot be costed: %s", today->why);
        cli_print(c, "\n");
        return;
    }
    change *changes = calloc(N_DIMENSIONS, sizeof *changes);
    const uint32_t n = changes ? find_changes(was, plan, changes) : 0;
    cli_wrap(c, "today", "%s: %s on %s",
             cli_plan_time(was, (double)was->best.iteration_ns, a),
             was->best.layout.schedule,
             cli_layout_text(&was->best, layout, sizeof layout));
    cli_wrap(c, "plan", "%s: %+.1f %%%s",
             cli_plan_time(was, (double)plan->best.iteration_ns, b),
             compute_percent(plan->best.iteration_ns, was->best.iteration_ns),
             plan->best.iteration_ns > was->best.iteration_ns
                 ? "; the search found nothing faster than the current "
                   "configuration, raise --time"
                 : "");
    if (n)
        print_changes(c, plan, changes, n);
    else
        cli_wrap(c, "changes", "none");
    print_parts(c, was, plan);
    cli_print(c, "\n");
    free(changes);
}

/* Returns a JSON list of the search dimensions in which the current
 * configuration `today` and the plan differ; NULL: out of memory. */
static json_t *changes_json(const lh_plan *today, const lh_plan *plan)
{
    change *changes = calloc(N_DIMENSIONS, sizeof *changes);
    const uint32_t n = changes ? find_changes(today, plan, changes) : 0;
    json_t *list = changes ? json_array() : NULL;
    for (uint32_t i = 0; list && i < n; i++) {
        json_t *one = json_pack("{s:s, s:s, s:s}", "dimension",
                                dimension_names[changes[i].d], "today",
                                changes[i].today, "plan", changes[i].plan);
        if (one && changes[i].keeping_ns > 0)
            json_object_set_new(one, "keeping_s",
                                cli_seconds(changes[i].keeping_ns));
        json_array_append_new(list, one);
    }
    free(changes);
    return list;
}

json_t *cli_current_plan_json(const cli_current_plan *today,
                              const lh_plan *plan, const char *text)
{
    json_t *whole = json_loads(text, 0, NULL);
    if (!today->plan)
        return json_pack("{s:{s:s}, s:o}", "today", "why", today->why, "plan",
                         whole);
    return json_pack("{s:{s:o}, s:o, s:o}", "today", "iteration_s",
                     cli_seconds(today->plan->best.iteration_ns), "changes",
                     changes_json(today->plan, plan), "plan", whole);
}
