/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan's what-if results and sensitivity to the links. */
#include "plan_whatif.h"
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Capacity for a layout's text, in bytes. */
enum { LAYOUT_TEXT = 240 };

/* Formats the datacenters that a choice (evaluated plan) uses into `text`, and
 * returns a text: "" if choice `than` uses the same ones. */
static const char *format_sites_if_different(const lh_plan *plan,
                                             const lh_choice *choice,
                                             const lh_choice *than, char *text)
{
    char there[CLI_SITES_TEXT] = "";
    *text = '\0';
    if (choice->layout.sites)
        cli_sites_text(plan->job, choice->layout.sites, text, CLI_SITES_TEXT);
    if (than->layout.sites)
        cli_sites_text(plan->job, than->layout.sites, there, sizeof there);
    if (strcmp(text, there) == 0)
        return "";
    return *text ? text : "datacenters in the job's order";
}

void cli_note_sites(cli_table *table, const lh_plan *plan,
                    const lh_choice *choice, const lh_choice *than)
{
    char sites[CLI_SITES_TEXT];
    const char *text = format_sites_if_different(plan, choice, than, sites);
    if (*text)
        cli_table_note(table, text);
}

/* Checks whether two choices (evaluated plans) with equal degrees have equal
 * numbers of layers per chunk. */
static bool same_layers(const lh_plan *plan, const lh_choice *x,
                        const lh_choice *y)
{
    const uint32_t n = x->layout.pipeline * x->layout.chunks_per_device;
    const lh_plan a = {.job = plan->job, .best = *x};
    const lh_plan b = {.job = plan->job, .best = *y};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first, of_a, of_b;
        lh_plan_layers(&a, i, &first, &of_a);
        lh_plan_layers(&b, i, &first, &of_b);
        if (of_a != of_b)
            return false;
    }
    return true;
}

/* Formats a choice's (evaluated plan's) layout and placement into `text`, which
 * it returns; also its datacenters if they differ from those of choice `than`.
 * */
static const char *format_layout(const lh_plan *plan, const lh_choice *x,
                                 const lh_choice *than, char *text, size_t room)
{
    char layout[LAYOUT_TEXT], own[LAYOUT_TEXT], sites[CLI_SITES_TEXT];
    const char *other = format_sites_if_different(plan, x, than, sites);
    cli_layout_text(x, layout, sizeof layout);
    cli_layout_text(than, own, sizeof own);
    const char *name = layout;
    if (!*other && strcmp(layout, own) == 0)
        name = same_layers(plan, x, than) ? "this layout"
                                          : "these degrees with another layer "
                                            "partition";
    snprintf(text, room, "%s, %s %s%s%s", name,
             x->layout.schedule ? x->layout.schedule : "any schedule",
             lh_placement_name(x->placement), *other ? ", " : "", other);
    return text;
}

/* Capacity for a layout with its datacenters, in bytes. */
enum { CHOICE_TEXT = LAYOUT_TEXT + CLI_SITES_TEXT + 100 };

/* --- what-if ------------------------------------------------------------ */

/* Adds a table row with one answer to --what-if: the iteration times of this
 * plan and of the best plan found under the changed link values. */
static void add_answer(cli_table *t, const lh_plan *p,
                       const lh_plan_whatif_answer *a)
{
    const bool cost =
        p->objective == LH_PLAN_CHEAPEST && a->kept.cost && a->best.cost;
    const double kept = cost ? a->kept.cost->usd : (double)a->kept.iteration_ns;
    const double best = cost ? a->best.cost->usd : (double)a->best.iteration_ns;
    const double now = cost ? p->best.cost->usd : (double)p->best.iteration_ns;
    char takes[60], more[40], least[60], text[CHOICE_TEXT];
    char gain[CHOICE_TEXT + 60];
    if (cost) {
        snprintf(takes, sizeof takes, "USD %.4g", kept);
        snprintf(least, sizeof least, "USD %.4g", best);
    } else {
        cli_plan_time(p, kept, takes);
        cli_plan_time(p, best, least);
    }
    snprintf(more, sizeof more, "%+.1f %%", cli_percent_slower(kept, now));
    if (kept <= best)
        snprintf(gain, sizeof gain, "this plan");
    else
        snprintf(gain, sizeof gain, "%s (keeping this plan costs %.1f %%)",
                 format_layout(p, &a->best, &p->best, text, sizeof text),
                 100 * (kept / best - 1));
    const char *cells[] = {a->text, takes, more, least, gain};
    cli_table_row(t, 5, cells);
}

/* Fills a table with the answers to all --what-if questions. */
static void fill_answers(const lh_plan *plan, cli_table *t)
{
    static const char *const head[] = {"links", "#this plan", "#change",
                                       "#best found", "with"};
    cli_table_row(t, 5, head);
    for (uint32_t i = 0; i < plan->n_answers; i++)
        add_answer(t, plan, &plan->answers[i]);
}

void cli_print_whatif(cli *c, const lh_plan *plan)
{
    cli_table t = {0};
    if (!plan->n_answers)
        return;
    cli_print(c, "\n"
                 "What-if: other link values\n");
    fill_answers(plan, &t);
    cli_table_print(c, "", &t);
}

const char *cli_whatif_text(const lh_plan *p, char *text, size_t room)
{
    enum { MOST = 3 }; /* the others are in the page's table */
    size_t len = 0;
    *text = '\0';
    for (uint32_t i = 0; i < p->n_answers && i < MOST && len < room; i++) {
        const lh_plan_whatif_answer *a = &p->answers[i];
        const double kept = (double)a->kept.iteration_ns;
        char takes[CLI_TIME_TEXT], least[CLI_TIME_TEXT];
        len += (size_t)snprintf(
            text + len, room - len, "%s%s: %s (%+.1f %%) with this plan",
            i ? "; " : "", a->text, cli_plan_time(p, kept, takes),
            cli_percent_slower(kept, (double)p->best.iteration_ns));
        if (len < room && a->best.iteration_ns < a->kept.iteration_ns)
            len += (size_t)snprintf(
                text + len, room - len, ", %s with the best found",
                cli_plan_time(p, (double)a->best.iteration_ns, least));
    }
    if (p->n_answers > MOST && len < room)
        snprintf(text + len, room - len, "; %" PRIu32 " more below",
                 p->n_answers - MOST);
    return text;
}

/* --- sensitivity -------------------------------------------------------- */

/* Formats a break-even factor on a link's value (beyond it another plan is
 * better): the resulting value, "43.1 ms", or "x2.16" if the job's links
 * differ. `job`: the job's value; 0: they differ. */
static const char *format_factor(const lh_plan_range *r, double job,
                                 double factor, char *text, size_t room)
{
    const char *unit = r->quantity == LH_LINK_LATENCY ? "ms" : "Gb/s";
    const double value = job * factor;
    if (job > 0)
        snprintf(text, room, value < 1e4 ? "%.4g %s" : "%.0f %s", value, unit);
    else
        snprintf(text, room, "x%.4g", factor);
    return text;
}

/* Returns the latency in ms or bandwidth in Gb/s (r->quantity) that the job
 * gives for the links of `r`; 0 if these links have different values. */
static double get_link_value(const lh_job *job, const lh_plan_range *r)
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

/* End of the range in which the plan's layout remains the best: the break-even
 * value, or the search limit. */
typedef struct range_end {
    double factor;
    bool flips;
} range_end;

/* Finds the range of factors around 1, on the link value of `r`, in which the
 * plan stays the best. low->flips, high->flips: whether another plan becomes
 * better at that end; false at an end of the searched range. */
static void find_ends(const lh_plan_sensitivity *s, const lh_plan_range *r,
                      range_end *low, range_end *high)
{
    *low = (range_end){s->min_factor, false};
    *high = (range_end){s->max_factor, false};
    for (uint32_t i = 0; i < r->n_break_evens; i++) {
        const double at = r->break_evens[i].factor_below;
        if (at < 1 && r->break_evens[i].factor_above <= 1)
            *low = (range_end){r->break_evens[i].factor_above, true};
        if (at >= 1 && at < high->factor)
            *high = (range_end){at, true};
    }
}

/* Formats one end of the range in which the plan stays the best; in parentheses
 * if no other plan becomes better there. `job`: the job's value, 0 if its links
 * differ. */
static const char *format_end(const lh_plan_range *r, double job,
                              const range_end *e, char *text, size_t room)
{
    char value[40];
    snprintf(text, room, e->flips ? "%s" : "(%s)",
             format_factor(r, job, e->factor, value, sizeof value));
    return text;
}

/* Adds a table note about break-even factor `f`: the plan that becomes the best
 * beyond it. `job`: the link value in the job, 0 if the job's links differ. */
static void add_break_even(cli_table *t, const lh_plan *p,
                           const lh_plan_range *r, const lh_plan_break_even *f,
                           double job)
{
    char at[40], layout[CHOICE_TEXT], note[CHOICE_TEXT + 60];
    const bool up = f->factor_below >= 1;
    snprintf(note, sizeof note, "%s %s: %s", up ? "from" : "up to",
             format_factor(r, job, up ? f->factor_above : f->factor_below, at,
                           sizeof at),
             format_layout(p, up ? &f->above : &f->below, &p->best, layout,
                           sizeof layout));
    cli_table_note(t, note);
}

/* Formats the links to which range `r` of values applies, as in "west-east",
 * into `text`, which it returns. */
static const char *name_links(const lh_job *job, const lh_plan_range *r,
                              char *text, size_t room)
{
    const lh_datacenter *sites = job->datacenters;
    if (r->from == LH_ALL_LINKS)
        snprintf(text, room, "%s",
                 job->n_datacenters > 2 ? "all links" : "the link");
    else
        snprintf(text, room, "%.70s-%.70s", sites[r->from].name,
                 sites[r->to].name);
    return text;
}

/* Adds a table row for one link quantity (latency or bandwidth): the range of
 * values in which the plan stays the best, with notes about the plans beyond.
 * */
static void add_range(cli_table *t, const lh_plan *p, const lh_plan_range *r)
{
    const lh_plan_sensitivity *s = p->sensitivity;
    const double job = get_link_value(p->job, r);
    range_end low, high;
    char name[160], a[48], b[48];
    find_ends(s, r, &low, &high);
    const char *cells[] = {name_links(p->job, r, name, sizeof name),
                           lh_link_quantity_name(r->quantity),
                           format_end(r, job, &low, a, sizeof a),
                           format_end(r, job, &high, b, sizeof b),
                           r->n_break_evens ? "" : "no other layout is better"};
    cli_table_row(t, 5, cells);
    for (uint32_t i = 0; i < r->n_break_evens; i++)
        add_break_even(t, p, r, &r->break_evens[i], job);
}

const char *cli_sensitivity_text(const lh_plan *p, char *text, size_t room)
{
    const lh_plan_sensitivity *s = p->sensitivity;
    size_t len = 0;
    *text = '\0';
    for (uint32_t i = 0; s && i < s->n_ranges && len < room; i++) {
        const lh_plan_range *r = &s->ranges[i];
        const double job = get_link_value(p->job, r);
        range_end low, high;
        char name[160], a[48], b[48];
        find_ends(s, r, &low, &high);
        len += (size_t)snprintf(
            text + len, room - len, "%s%s of %s: the best from %s to %s",
            len ? "; " : "", lh_link_quantity_name(r->quantity),
            name_links(p->job, r, name, sizeof name),
            format_end(r, job, &low, a, sizeof a),
            format_end(r, job, &high, b, sizeof b));
    }
    return text;
}

/* Fills a table with, for each link quantity, the range of values in which the
 * plan stays the best. */
static void fill_ranges(const lh_plan *plan, cli_table *t)
{
    static const char *const head[] = {"links", "quantity", "#stays from",
                                       "#to", ""};
    cli_table_row(t, 5, head);
    for (uint32_t i = 0; i < plan->sensitivity->n_ranges; i++)
        add_range(t, plan, &plan->sensitivity->ranges[i]);
}

void cli_print_sensitivity(cli *c, const lh_plan *plan)
{
    const lh_plan_sensitivity *s = plan->sensitivity;
    cli_table t = {0};
    if (!s)
        return;
    cli_print(c, "\n"
                 "Sensitivity: link values for which this plan's layout stays "
                 "the best\n");
    if (s->margin > 0)
        cli_print(c,
                  "  (break-even values to %.2g %%; others better by more than "
                  "%.2g %%, by quick and full searches)\n",
                  100 * s->tolerance, 100 * s->margin);
    else
        cli_print(c, "  (break-even values to %.2g %%, by quick searches)\n",
                  100 * s->tolerance);
    cli_print(c, "  (in brackets: end of the searched range; the plan's layout "
                 "is still the best there)\n");
    fill_ranges(plan, &t);
    cli_table_print(c, "", &t);
}

lh_status cli_report_links(cli *c, const lh_plan *plan, lh_report *report)
{
    cli_table answers = {0}, ranges = {0};
    if (plan->n_answers) {
        fill_answers(plan, &answers);
        CLI_TRY(cli_table_report(c, "What-if: other link values", &answers,
                                 report));
    }
    if (!plan->sensitivity)
        return LH_OK;
    fill_ranges(plan, &ranges);
    return cli_table_report(c,
                            "Sensitivity: link values for which this layout "
                            "stays the best",
                            &ranges, report);
}
