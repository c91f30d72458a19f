/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a plan where the links are others, in words. */
#include "plan_links.h"
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LAYOUT_TEXT = 240 };

void cli_print_sites(cli *c, const lh_plan *plan, const lh_choice *choice,
                     const lh_choice *than, const char *indent)
{
    char here[CLI_SITES_TEXT] = "", there[CLI_SITES_TEXT] = "";
    if (choice->layout.sites)
        cli_sites_text(plan->job, choice->layout.sites, here, sizeof here);
    if (than->layout.sites)
        cli_sites_text(plan->job, than->layout.sites, there, sizeof there);
    if (strcmp(here, there) != 0)
        cli_print(c, "%s%s\n", indent,
                  *here ? here : "datacenters in the job's order");
}

/* --- what if ----------------------------------------------------------------
 */

static void print_answer(cli *c, const lh_plan *p, const lh_plan_answer *a)
{
    char layout[LAYOUT_TEXT];
    double kept = (double)a->kept.iteration_ns / 1e9;
    double best = (double)a->best.iteration_ns / 1e9;
    double more = 100 * (kept / ((double)p->best.iteration_ns / 1e9) - 1);
    bool cost = p->goal == LH_PLAN_CHEAPEST && a->kept.cost && a->best.cost;
    cli_print(c, "  %s\n", a->text);
    if (cost) {
        kept = a->kept.cost->usd;
        best = a->best.cost->usd;
        more = 100 * (kept / p->best.cost->usd - 1);
    }
    cli_print(c,
              cost ? "    this plan costs USD %.4g (%+.1f %%)"
                   : "    this plan takes %.3f s (%+.1f %%)",
              kept, more);
    if (kept <= best)
        cli_print(c, ", and is the best\n");
    else
        cli_print(c,
                  cost ? ", keeping it costs %.1f %%\n"
                         "    the best costs USD %.4g: %s, %s %s\n"
                       : ", keeping it costs %.1f %%\n"
                         "    the best takes %.3f s: %s, %s %s\n",
                  100 * (kept / best - 1), best,
                  cli_layout_text(&a->best, layout, sizeof layout),
                  a->best.layout.schedule ? a->best.layout.schedule : "",
                  lh_placement_name(a->best.placement));
    if (kept > best)
        cli_print_sites(c, p, &a->best, &p->best, "      ");
}

void cli_print_answers(cli *c, const lh_plan *plan)
{
    if (plan->n_answers)
        cli_print(c, "\nIf the links were others\n");
    for (uint32_t i = 0; i < plan->n_answers; i++)
        print_answer(c, plan, &plan->answers[i]);
}

/* --- sensitivity ------------------------------------------------------------
 */

/* What a factor stands for: "43.1 ms", or "x2.16" where links differ. */
static const char *show(const lh_plan_range *r, double job, double factor,
                        char *text, size_t room)
{
    const char *unit = r->quantity == LH_LINK_LATENCY ? "ms" : "Gb/s";
    if (job > 0)
        snprintf(text, room, "%.4g %s", job * factor, unit);
    else
        snprintf(text, room, "x%.4g", factor);
    return text;
}

/* The job's value of a range's links; 0: they have several. */
static double value_of(const lh_job *job, const lh_plan_range *r)
{
    uint32_t n = job->n_datacenters;
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < n * n; i++) {
        uint32_t a = i / n, b = i % n;
        bool mine = (a == r->from && b == r->to) ||
                    (a == r->to && b == r->from) || r->from == LH_ALL_LINKS;
        if (a == b || !mine)
            continue;
        double here = r->quantity == LH_LINK_LATENCY
                          ? (double)job->wans[i].latency_ns / 1e6
                          : job->wans[i].gbps;
        least = fmin(least, here);
        most = fmax(most, here);
    }
    return least < most ? 0 : most;
}

static const char *layout_of(const lh_choice *x, char *text, size_t room)
{
    char layout[LAYOUT_TEXT];
    snprintf(text, room, "%s %s", cli_layout_text(x, layout, sizeof layout),
             lh_placement_name(x->placement));
    return text;
}

static void print_range(cli *c, const lh_plan *p, const lh_plan_range *r)
{
    const lh_plan_sensitivity *s = p->sensitivity;
    const lh_datacenter *sites = p->job->datacenters;
    double job = value_of(p->job, r);
    double low = s->least, high = s->most;
    char name[160], a[40], b[40], layout[LAYOUT_TEXT + 10];
    for (uint32_t i = 0; i < r->n_flips; i++) {
        double at = r->flips[i].factor_below;
        if (at < 1 && r->flips[i].factor_above <= 1)
            low = r->flips[i].factor_above;
        if (at >= 1 && at < high)
            high = at;
    }
    if (r->from == LH_ALL_LINKS)
        snprintf(name, sizeof name, "%s",
                 p->job->n_datacenters > 2 ? "all links" : "the link");
    else
        snprintf(name, sizeof name, "%s-%s", sites[r->from].name,
                 sites[r->to].name);
    cli_print(c, "  %s, %s: stays the best from %s to %s%s\n",
              lh_link_quantity_name(r->quantity), name,
              show(r, job, low, a, sizeof a), show(r, job, high, b, sizeof b),
              r->n_flips ? "" : ", all that was looked at");
    for (uint32_t i = 0; i < r->n_flips; i++) {
        const lh_plan_flip *f = &r->flips[i];
        bool up = f->factor_below >= 1;
        cli_print(
            c, "    %s %s: %s\n", up ? "from" : "up to",
            show(r, job, up ? f->factor_above : f->factor_below, a, sizeof a),
            layout_of(up ? &f->above : &f->below, layout, sizeof layout));
        cli_print_sites(c, p, up ? &f->above : &f->below, &s->here, "      ");
    }
}

void cli_print_sensitivity(cli *c, const lh_plan *plan)
{
    const lh_plan_sensitivity *s = plan->sensitivity;
    char layout[LAYOUT_TEXT + 10];
    if (!s)
        return;
    cli_print(c,
              "\nHow far the links may change until another layout is better "
              "than this plan's\n"
              "  (to %.2g %%, by quick searches): %s\n",
              100 * s->tolerance, layout_of(&s->here, layout, sizeof layout));
    for (uint32_t i = 0; i < s->n_ranges; i++)
        print_range(c, plan, &s->ranges[i]);
}
