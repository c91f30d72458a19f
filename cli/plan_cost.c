/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_cost.h"
#include "plan_screen.h"
#include "plan_whatif.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>

/* Capacity for a formatted number, in bytes. */
enum { AMOUNT = 40 };

/* Formats a number with four significant digits, or as a whole number from 1000
 * on, into `text`, which it returns. */
static const char *format_amount(double x, char *text)
{
    snprintf(text, AMOUNT, x >= 1000 ? "%.0f" : "%.4g", x);
    return text;
}

void cli_print_cost(cli *c, const lh_choice *choice)
{
    const lh_plan_cost *x = choice->cost;
    char one[AMOUNT], tokens[AMOUNT], hour[AMOUNT], gb[AMOUNT];
    if (!x)
        return;
    cli_wrap(c, "cost",
             "USD %s per iteration, %s per 10^9 tokens; %" PRIu32
             " GPUs at USD %s an hour",
             format_amount(x->usd, one),
             format_amount(x->usd_per_1e9_tokens, tokens), x->gpus,
             format_amount(x->usd_per_hour, hour));
    if (x->inter_datacenter_gb > 0)
        cli_wrap(c, "", "including USD %s for %s GB sent between datacenters",
                 format_amount(x->between_usd, one),
                 format_amount(x->inter_datacenter_gb, gb));
}

/* Plans that cost less than a plan: `knee` has the least product of time and
 * cost, `least` the least cost. NULL: none. */
typedef struct cheaper_plans {
    const lh_choice *knee, *least;
} cheaper_plans;

/* Returns the product of a choice's iteration time and cost. */
static double compute_product(const lh_choice *x)
{
    return (double)x->iteration_ns * x->cost->usd;
}

/* Keeps choice `x` in `found` if it is feasible and better than those there. */
static void compare_choice(const lh_choice *x, cheaper_plans *found)
{
    if (!x || x->status != LH_CHOICE_OK || !x->cost)
        return;
    if (compute_product(x) < compute_product(found->knee))
        found->knee = x;
    if (x->cost->usd < found->least->cost->usd)
        found->least = x;
}

/* Finds the knee and the cheapest of all plans that the plan lists. A plan that
 * saves less than a tenth of the cost counts as none: the prices of the fastest
 * plans differ by a few percent. */
static cheaper_plans find_cheaper(const lh_plan *p)
{
    const double most_usd = 0.9 * p->best.cost->usd;
    cheaper_plans found = {&p->best, &p->best};
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        compare_choice(&p->alternatives[i], &found);
    for (uint32_t i = 0; i < p->n_dimension_alternatives; i++)
        compare_choice(&p->dimension_alternatives[i].choice, &found);
    for (uint32_t i = 0; i < p->n_idle; i++)
        compare_choice(p->idle[i].best, &found);
    for (uint32_t i = 0; i < p->n_pareto; i++)
        compare_choice(&p->pareto_front[i], &found);
    if (found.knee->cost->usd > most_usd)
        found.knee = NULL;
    if (found.least->cost->usd > most_usd)
        found.least = NULL;
    return found;
}

/* Formats how much less a choice costs than the plan, and how much longer it
 * takes: "33 % less, USD 10.6 (time +0.8 %), with TP 2 ...". */
static void format_saving(const lh_plan *p, const lh_choice *x, char *text,
                          size_t room)
{
    char usd[AMOUNT], layout[240];
    snprintf(text, room, "%.0f %% less, USD %s (time %+.1f %%), with %s",
             100 * (1 - x->cost->usd / p->best.cost->usd),
             format_amount(x->cost->usd, usd),
             cli_percent_slower((double)x->iteration_ns,
                                (double)p->best.iteration_ns),
             cli_layout_text(x, layout, sizeof layout));
}

const char *cli_cheaper_plan_text(const lh_plan *plan, char *text, size_t room)
{
    *text = '\0';
    if (!plan->best.cost || plan->objective == LH_PLAN_CHEAPEST)
        return text;
    const cheaper_plans found = find_cheaper(plan);
    const lh_choice *x = found.knee ? found.knee : found.least;
    if (x)
        format_saving(plan, x, text, room);
    return text;
}

lh_status cli_check_iteration(cli *c, const lh_plan *plan, int64_t most_ns)
{
    if (most_ns == 0 || lh_plan_iteration_ns(plan) <= most_ns)
        return LH_OK;
    return cli_error(c, LH_EINFEASIBLE,
                     "no plan found with an iteration of at most %.9g s "
                     "(--max-iteration); the fastest found takes %.9g s (%s)",
                     (double)most_ns * 1e-9,
                     (double)lh_plan_iteration_ns(plan) * 1e-9,
                     cli_time_source_text(plan));
}

void cli_print_cheaper_plans(cli *c, const lh_plan *plan)
{
    const lh_plan_cost *own = plan->best.cost;
    char text[CLI_NOTE_TEXT];
    if (!own || plan->objective == LH_PLAN_CHEAPEST)
        return;
    const cheaper_plans found = find_cheaper(plan);
    if (found.knee) {
        format_saving(plan, found.knee, text, sizeof text);
        cli_wrap(c, "", "%s; see --pareto", text);
    }
    if (found.least && found.least != found.knee) {
        format_saving(plan, found.least, text, sizeof text);
        cli_wrap(c, "", "%s; see --objective cost", text);
    } else if (!found.least && own->between_usd > own->usd / 2) {
        cli_wrap(c, "",
                 "mostly for communication; --objective cost reduces it");
    }
}

/* Fills a table with the Pareto front: time, memory, cost if priced, and
 * layout. */
static void fill_front(const lh_plan *plan, cli_table *t)
{
    const bool priced = plan->best.cost != NULL;
    static const char *const head[] = {"#iteration", "#memory", "#cost",
                                       "layout, schedule"};
    const char *free_head[] = {head[0], head[1], head[3]};
    cli_table_row(t, priced ? 4 : 3, priced ? head : free_head);
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        const lh_choice *x = &plan->pareto_front[i];
        char time[CLI_TIME_TEXT], memory[CLI_MEMORY_TEXT], what[400],
            layout[240];
        char usd[AMOUNT] = "-", cost[AMOUNT + 4];
        cli_plan_time(plan, (double)x->iteration_ns, time);
        cli_memory_text(x->peak_memory_bytes, "bytes", memory);
        snprintf(cost, sizeof cost, "USD %s",
                 x->cost ? format_amount(x->cost->usd, usd) : usd);
        snprintf(what, sizeof what, "%s, %s %s%s",
                 cli_layout_text(x, layout, sizeof layout),
                 x->layout.schedule ? x->layout.schedule : "",
                 lh_placement_name(x->placement),
                 i && i == plan->pareto_knee   ? " (knee)"
                 : i && i == plan->pareto_near ? " (near the fastest)"
                                               : "");
        const char *cells[] = {time, memory, cost, what};
        const char *free_cells[] = {time, memory, what};
        cli_table_row(t, priced ? 4 : 3, priced ? cells : free_cells);
        cli_note_sites(t, plan, x, &plan->best);
    }
}

/* Prints by how many percent Pareto front entry number `entry` is cheaper and
 * slower than the fastest, after `label`; `why` is appended. */
static void print_trade_off(cli *c, const lh_plan *plan, const char *label,
                            uint32_t entry, const char *why)
{
    const lh_choice *x = &plan->pareto_front[entry];
    const lh_choice *fastest = &plan->pareto_front[0];
    char usd[AMOUNT];
    cli_wrap(c, label,
             "%.0f %% cheaper for %.1f %% more time than the fastest: USD %s%s",
             100 * (1 - x->cost->usd / fastest->cost->usd),
             cli_percent_slower((double)x->iteration_ns,
                                (double)fastest->iteration_ns),
             format_amount(x->cost->usd, usd), why);
}

/* Prints the Pareto front's knee (beyond it 1 % less cost takes over 1 % more
 * time) and the cheapest entry within 1 % of the fastest time. */
static void print_knee(cli *c, const lh_plan *plan)
{
    if (plan->best.cost && !plan->pareto_knee && !plan->pareto_near)
        cli_wrap(c, "knee",
                 "the fastest; no entry saves a larger share of the "
                 "cost than it adds to the time");
    if (plan->pareto_knee)
        print_trade_off(
            c, plan, "knee", plan->pareto_knee,
            " (knee): beyond it, 1 % less cost takes over 1 % more time");
    if (plan->pareto_near && plan->pareto_near != plan->pareto_knee)
        print_trade_off(
            c, plan, plan->pareto_knee ? "" : "knee", plan->pareto_near,
            " (near the fastest): the cheapest within 1 % of its time");
}

void cli_print_pareto_front(cli *c, const lh_plan *plan)
{
    const bool priced = plan->best.cost != NULL;
    cli_table t = {0};
    if (!plan->n_pareto)
        return;
    cli_print(c,
              "\n"
              "Pareto front%s in time%s memory%s\n",
              plan->pareto_complete ? "" : " of the evaluated plans",
              priced ? "," : " and", priced ? " and cost" : "");
    fill_front(plan, &t);
    cli_table_print(c, "", &t);
    print_knee(c, plan);
    if (plan->n_pareto_slow)
        cli_wrap(c, "",
                 "%" PRIu32 " more are much slower than the fastest; "
                 "--pareto-times 1000 lists them",
                 plan->n_pareto_slow);
}

lh_status cli_report_pareto_front(cli *c, const lh_plan *plan,
                                  lh_report *report)
{
    cli_table t = {0};
    fill_front(plan, &t);
    return cli_table_report(c,
                            plan->pareto_complete
                                ? "Pareto front"
                                : "Pareto front of the evaluated plans",
                            &t, report);
}
