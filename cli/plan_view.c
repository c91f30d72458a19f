/* SPDX-License-Identifier: Apache-2.0 */
/* Formats plans as text and tables. */
#include "view.h"

#include <inttypes.h>
#include <longhaul/experimental/cost.h>
#include <math.h>
#include <string.h>

/* Returns the abbreviation for the parallel dimension that crosses the
 * datacenters: "PP-out" (pipeline), "DP-out" (replicas) or "mixed". */
static const char *get_outermost_text(lh_outermost outermost)
{
    return outermost == LH_OUTERMOST_MIXED  ? "mixed"
           : outermost == LH_OUTERMOST_DATA ? "DP-out"
                                            : "PP-out";
}

char *cli_micro_batch_text(const lh_layout *layout,
                           char text[CLI_MICRO_BATCH_TEXT])
{
    const uint32_t n =
        layout->group_micro_batches ? layout->sites->n_groups : 0;
    int len = 0;
    snprintf(text, CLI_MICRO_BATCH_TEXT, "%" PRIu32, layout->micro_batch);
    for (uint32_t g = 0; g < n && len < CLI_MICRO_BATCH_TEXT; g++)
        len += snprintf(text + len, (size_t)(CLI_MICRO_BATCH_TEXT - len),
                        "%s%" PRIu32, g ? "/" : "",
                        layout->group_micro_batches[g]);
    return text;
}

char *cli_site_tensors_text(const lh_plan *plan,
                            char buffer[CLI_SITE_TENSORS_TEXT])
{
    const lh_layout *l = &plan->best.layout;
    const lh_site_group *group = l->site_tensors ? &l->sites->groups[0] : NULL;
    int len = 0;
    snprintf(buffer, CLI_SITE_TENSORS_TEXT, "%" PRIu32, l->tensor);
    for (uint32_t i = 0;
         group && i < group->n_parts && len < CLI_SITE_TENSORS_TEXT; i++) {
        const uint32_t dc = group->parts[i].datacenter;
        len += snprintf(buffer + len, (size_t)(CLI_SITE_TENSORS_TEXT - len),
                        "%s%" PRIu32 " in %.60s", i ? ", " : "",
                        l->site_tensors[dc], plan->job->datacenters[dc].name);
    }
    return buffer;
}

char *cli_days_text(double tokens_per_s, char text[CLI_GROUPED_TEXT])
{
    const double days = 1e12 / tokens_per_s / 86400;
    char number[CLI_GROUPED_TEXT - 8];
    if (days < 999.5)
        snprintf(number, sizeof number, "%.3g", days);
    else
        snprintf(number, sizeof number, "%s", cli_grouped_text(days, text));
    snprintf(text, CLI_GROUPED_TEXT, "%s days", number);
    return text;
}

/* Formats a layout's tensor degree: a number or, if datacenters have different
 * ones, those of the pipeline's datacenters in its order, as "8/1". */
static char *format_tensor(const lh_layout *layout,
                           char text[CLI_MICRO_BATCH_TEXT])
{
    const lh_site_group *group =
        layout->site_tensors ? &layout->sites->groups[0] : NULL;
    int len = 0;
    snprintf(text, CLI_MICRO_BATCH_TEXT, "%" PRIu32, layout->tensor);
    for (uint32_t i = 0;
         group && i < group->n_parts && len < CLI_MICRO_BATCH_TEXT; i++)
        len +=
            snprintf(text + len, (size_t)(CLI_MICRO_BATCH_TEXT - len),
                     "%s%" PRIu32, i ? "/" : "",
                     lh_layout_site_tensor(layout, group->parts[i].datacenter));
    return text;
}

char *cli_layout_text(const lh_choice *c, char *buffer, size_t room)
{
    const lh_layout *l = &c->layout;
    char tensor[CLI_MICRO_BATCH_TEXT];
    int len = snprintf(buffer, room, "TP %s", format_tensor(l, tensor));
    struct {
        const char *name;
        uint32_t degree;
    } more[] = {
        {"CP", l->context}, {"EP", l->expert}, {"ETP", l->expert_tensor}};
    for (uint32_t i = 0; i < 3; i++)
        if (more[i].degree > 1)
            len += snprintf(buffer + len, room - (size_t)len, " %s %" PRIu32,
                            more[i].name, more[i].degree);
    char zero[24] = "", sizes[CLI_MICRO_BATCH_TEXT];
    if (c->zero > 1)
        snprintf(zero, sizeof zero, " ZeRO %" PRIu32, c->zero);
    snprintf(
        buffer + len, room - (size_t)len,
        " PP %" PRIu32 "x%" PRIu32 " DP %" PRIu32 " mb %s"
        " %s%s%s%s%s%s%s%s%s",
        l->pipeline, l->chunks_per_device, l->data,
        cli_micro_batch_text(l, sizes), get_outermost_text(l->outermost),
        l->rank_order ? " ranks by " : "",
        l->rank_order ? lh_outermost_name(l->rank_order) : "",
        l->packing == LH_PACKING_ALIGNED ? " aligned" : "", zero,
        l->sharding > LH_SHARDING_FULL ? " sharding " : "",
        l->sharding > LH_SHARDING_FULL ? lh_sharding_name(l->sharding) : "",
        c->recompute == LH_RECOMPUTE_NONE ? "" : " recompute ",
        c->recompute == LH_RECOMPUTE_NONE ? ""
                                          : lh_recompute_name(c->recompute));
    return buffer;
}

char *cli_plan_time(const lh_plan *plan, double ns, char *text)
{
    const bool small = plan->best.iteration_ns < INT64_C(1000000000);
    if (ns < 0)
        snprintf(text, CLI_TIME_TEXT, "-");
    else
        snprintf(text, CLI_TIME_TEXT, "%.3f %s", ns / (small ? 1e6 : 1e9),
                 small ? "ms" : "s");
    return text;
}

double cli_round_for_text(double value, int decimals)
{
    return fabs(value) < 0.5 * pow(10, -decimals) ? 0 : value;
}

double cli_percent_slower(double value, double than)
{
    return cli_round_for_text(100 * (value / than - 1), 1);
}

/* --- source of the times ------------------------------------------------ */

/* Checks whether the job's profile has measured times of whole chunks, as runs
 * of plans write them, rather than of single layers. */
static bool has_run_profile(const lh_job *job)
{
    for (uint32_t i = 0; job->profile && i < job->profile->n_entries; i++)
        if (job->profile->entries[i].kind == LH_PROFILE_CHUNK)
            return true;
    return false;
}

/* Checks whether the plan's pass times come from this source (a measurement or
 * a formula). */
static bool is_from(const lh_plan *p, lh_cost_source source)
{
    return strcmp(p->cost_source, lh_cost_source_name(source)) == 0;
}

const char *cli_time_source_text(const lh_plan *p)
{
    if (is_from(p, LH_COST_PROFILE))
        return "from measured passes";
    if (is_from(p, LH_COST_MIXED))
        return "from measured and modelled passes";
    if (has_run_profile(p->job))
        return "modelled; the profile measured another layout";
    if (is_from(p, LH_COST_EFFICIENCY))
        return "modelled, with the job's efficiency";
    if (is_from(p, LH_COST_PART_EFFICIENCY))
        return "modelled, in part with the job's efficiency";
    return "modelled";
}

const char *cli_unmeasured_text(const lh_plan *p, char *text, size_t room)
{
    const lh_plan_unmeasured *u = p->unmeasured;
    char time[CLI_TIME_TEXT], layout[240];
    *text = '\0';
    if (!u)
        return text;
    if (!u->n_entries) {
        snprintf(text, room,
                 "no passes of this job's model and GPUs with sequence %" PRIu32
                 ": the profile has no effect here",
                 p->job->training.sequence);
        return text;
    }
    if (!u->fastest) {
        snprintf(text, room,
                 "has none of this plan's passes; a short search found no plan "
                 "with measured layouts");
        return text;
    }
    snprintf(text, room,
             "has none of this plan's passes; the %s layout with measured "
             "passes, by a short search, takes %s (%+.1f %%): %s %s, %s",
             p->objective == LH_PLAN_CHEAPEST ? "cheapest" : "fastest",
             cli_plan_time(p, (double)u->fastest->iteration_ns, time),
             cli_percent_slower((double)u->fastest->iteration_ns,
                                (double)p->best.iteration_ns),
             u->fastest->layout.schedule,
             lh_placement_name(u->fastest->placement),
             cli_layout_text(u->fastest, layout, sizeof layout));
    return text;
}

/* --- report ------------------------------------------------------------- */

/* Adds a row for choice `x` (an evaluated plan: schedule, placement, times) to
 * the report's table, with its layout if `with_layout`. */
static lh_status add_choice(cli *c, const lh_choice *x, bool with_layout,
                            lh_report *report)
{
    char name[200], layout[120];
    snprintf(name, sizeof name, "%s %s%s%s",
             x->layout.schedule ? x->layout.schedule : "any schedule",
             lh_placement_name(x->placement), with_layout ? ", " : "",
             with_layout ? cli_layout_text(x, layout, sizeof layout) : "");
    bool ok = x->status == LH_CHOICE_OK;
    lh_report_row row = {
        .method = name,
        .status = lh_choice_status_name(x->status),
        .makespan_ns = x->iteration_ns,
        .bubble_ratio = ok ? x->bubble_ratio : -1,
        .peak_memory = ok ? x->peak_memory_bytes : -1,
        .why = *x->why ? x->why : NULL,
    };
    return lh_report_add_row(report, &row, &c->err);
}

lh_status cli_plan_facts(cli *c, const lh_plan *p, lh_report *report)
{
    char iteration[CLI_TIME_TEXT], layout[120], sites[CLI_SITES_TEXT] = "";
    char cost[120] = "", unmeasured[CLI_UNMEASURED_TEXT];
    if (p->best.cost)
        snprintf(cost, sizeof cost,
                 "USD %.4g per iteration, %.4g per 10^9 tokens",
                 p->best.cost->usd, p->best.cost->usd_per_1e9_tokens);
    if (p->best.layout.sites)
        cli_sites_text(p->job, p->best.layout.sites, sites, sizeof sites);
    cli_plan_time(p, (double)p->best.iteration_ns, iteration);
    const struct {
        const char *name, *value;
    } facts[] = {
        {"job", p->name},
        {"iteration", iteration},
        {"layout", cli_layout_text(&p->best, layout, sizeof layout)},
        {"datacenters", sites},
        {"schedule", p->best.layout.schedule},
        {"cost", cost},
        {"why", p->best.why},
        {"pass times", cli_time_source_text(p)},
        {"profile", cli_unmeasured_text(p, unmeasured, sizeof unmeasured)},
        {"longhaul", p->version},
    };
    for (uint32_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (*facts[i].value)
            CLI_TRY(lh_report_add_fact(report, facts[i].name, facts[i].value,
                                       &c->err));
    return LH_OK;
}

lh_status cli_plan_rows(cli *c, const lh_plan *p, lh_report *report)
{
    for (uint32_t i = 0; i < p->n_methods; i++)
        if (p->methods[i].status != LH_CHOICE_FAILED)
            CLI_TRY(add_choice(c, &p->methods[i], false, report));
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        CLI_TRY(add_choice(c, &p->alternatives[i], true, report));
    return LH_OK;
}
