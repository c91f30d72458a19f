/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the compared plans, the options of the training program and the search
 * statistics. */
#include "plan_screen.h"
#include "plan_whatif.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <string.h>

/* Capacities for texts of a layout and of a method, in bytes. */
enum { LAYOUT = 240, METHOD = 64 };

/* Adds a table row for choice `x` (an evaluated plan): its times, schedule and
 * (`with_layout`) layout, and `why`, the reason why it is not the plan. */
static void add_choice(cli_table *t, const lh_plan *p, const lh_choice *x,
                       bool with_layout, const char *why)
{
    const bool drawn = p->robust != NULL;
    char time[CLI_TIME_TEXT], mean[CLI_TIME_TEXT] = "-";
    char p95[CLI_TIME_TEXT] = "-", method[METHOD];
    char layout[LAYOUT] = "";
    if (x->jitter) {
        cli_plan_time(p, x->jitter->mean_ns, mean);
        cli_plan_time(p, (double)x->jitter->p95_ns, p95);
    }
    snprintf(method, sizeof method, "%s %s",
             x->layout.schedule ? x->layout.schedule : "any schedule",
             lh_placement_name(x->placement));
    if (with_layout)
        cli_layout_text(x, layout, sizeof layout);
    cli_plan_time(p, (double)x->iteration_ns, time);
    const char *plain[] = {time, method, layout};
    const char *varied[] = {time, mean, p95, method, layout};
    cli_table_row(t, drawn ? 5 : 3, drawn ? varied : plain);
    if (*why)
        cli_table_note(t, why);
}

/* Adds the heading of the table of choices; `drawn`: with the columns for the
 * times sampled under jitter. */
static void add_heading(cli_table *t, bool drawn)
{
    static const char *const plain[] = {"#iteration", "schedule", "layout"};
    static const char *const varied[] = {"#iteration", "#mean with jitter",
                                         "#95th percentile", "schedule",
                                         "layout"};
    cli_table_row(t, drawn ? 5 : 3, drawn ? varied : plain);
}

/* Checks whether choice `x` was evaluated with a chunk count per device or a
 * recomputation mode different from those of the plan, `best`. */
static bool has_other_chunks(const lh_choice *x, const lh_choice *best)
{
    return x->layout.chunks_per_device != best->layout.chunks_per_device ||
           x->recompute != best->recompute;
}

/* Lists the methods whose schedules do not fit into memory, once each, in one
 * line. The plan file has the missing bytes of each. */
static void print_too_large(cli *c, const lh_plan *p)
{
    char names[1000] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < p->n_methods; i++) {
        const char *name = p->methods[i].layout.schedule;
        bool again = p->methods[i].status != LH_CHOICE_MEMORY;
        for (uint32_t k = 0; k < p->n_methods && !again; k++)
            again = strcmp(p->methods[k].layout.schedule, name) == 0 &&
                    (k < i || p->methods[k].status == LH_CHOICE_OK);
        if (!again && len < sizeof names)
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%s",
                                    len ? ", " : "", name);
    }
    if (len)
        cli_wrap(c, "  too large", "%s", names);
}

/* Returns the index in p->methods of the first schedule with the plan's
 * iteration time; 0 without one. */
static uint32_t find_chosen(const lh_plan *p)
{
    for (uint32_t i = 0; i < p->n_methods; i++)
        if (p->methods[i].iteration_ns == p->best.iteration_ns)
            return i;
    return 0;
}

void cli_plan_schedules(cli *c, const lh_plan *p)
{
    cli_table t = {0};
    uint32_t chosen = find_chosen(p);
    cli_print(c, "\nSchedules on this layout\n");
    add_heading(&t, p->robust != NULL);
    for (uint32_t i = 0; i < p->n_methods; i++)
        if (p->methods[i].status == LH_CHOICE_OK)
            add_choice(&t, p, &p->methods[i],
                       has_other_chunks(&p->methods[i], &p->best),
                       i == chosen ? "chosen" : p->methods[i].why);
    cli_table_print(c, "", &t);
    print_too_large(c, p);
}

/* Prints the layers per chunk if they are not as even as possible. */
static void print_layers(cli *c, const lh_choice *b)
{
    enum { MOST = 4096 };
    const uint32_t n = b->layout.pipeline * b->layout.chunks_per_device;
    char text[MOST + 40];
    size_t len = 0;
    if (!b->chunk_layers)
        return;
    for (uint32_t i = 0; i < n && len < MOST; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%" PRIu32,
                                i ? " " : "", b->chunk_layers[i]);
    cli_print(c, "\n");
    cli_wrap(c, "layers", "%s%s per chunk", text, len < MOST ? "" : " ...");
}

void cli_plan_layouts(cli *c, const lh_plan *p)
{
    char sites[CLI_SITES_TEXT];
    cli_table t = {0};
    print_layers(c, &p->best);
    if (p->best.layout.sites)
        cli_wrap(
            c, "sites", "%s",
            cli_sites_text(p->job, p->best.layout.sites, sites, sizeof sites));
    cli_print(c, "\nOther layouts\n");
    add_heading(&t, p->robust != NULL);
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        add_choice(&t, p, &p->alternatives[i], true, p->alternatives[i].why);
        cli_note_sites(&t, p, &p->alternatives[i], &p->best);
    }
    cli_table_print(c, "", &t);
}

/* Prints how many layouts each kind of lower bound excluded: "109382 by work,
 * 48195 by layers". */
static void print_pruned(cli *c, const lh_plan *p)
{
    char text[600];
    size_t len = 0;
    for (uint32_t i = 0; i < p->n_pruned && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "%s%" PRIu64 " by %s", len ? ", " : "",
                                p->pruned[i].n, p->pruned[i].bound);
    if (len)
        cli_wrap(c, "  ruled out", "%s", text);
}

void cli_plan_search(cli *c, const lh_plan *p)
{
    const double gap = lh_plan_gap(p);
    cli_print(c, "\nSearch\n");
    cli_wrap(c, "  why", "%s", p->best.why);
    cli_wrap(c, "  layouts",
             "%" PRIu32 ", of which %" PRIu32 " do not fit in memory, %" PRIu32
             " are ruled out by a bound, %" PRIu32
             " were simulated and %" PRIu32 " are unexplored",
             p->n_layouts, p->n_memory, p->n_bounded, p->n_simulated,
             p->n_unexplored);
    if (p->n_elastic_unexplored)
        cli_wrap(c, "", "elastic plans on %" PRIu32 " of them are unexplored",
                 p->n_elastic_unexplored);
    if (gap < 0)
        return;
    print_pruned(c, p);
    if (p->objective == LH_PLAN_CHEAPEST && lh_plan_cost_gap(p) < 0)
        return; /* the bound refers to time, and cheap plans are slow */
    if (p->objective == LH_PLAN_CHEAPEST)
        cli_wrap(c, "  proven",
                 "no layout, layer partition and schedule is more than %.1f %% "
                 "cheaper",
                 100 * lh_plan_cost_gap(p));
    else if (gap > 0)
        cli_wrap(c, "  proven",
                 "no layout, layer partition and schedule is more than %.1f %% "
                 "faster",
                 100 * gap);
    else
        cli_wrap(c, "  proven",
                 "no layout, layer partition and schedule is faster");
}

/* --- options of the training program ------------------------------------- */

/* Formats the plan's time with all advised options of the training program
 * together: "-4.2 %, 5.3 s, with all 3 advised"; "" unless several are advised.
 * */
static const char *format_together(const lh_plan *p, char *text, size_t room)
{
    char time[CLI_TIME_TEXT];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_flags; i++)
        n += p->flags[i].advised;
    *text = '\0';
    if (n > 1)
        snprintf(text, room, "%+.1f %%, %s, with all %" PRIu32 " advised",
                 cli_percent_slower((double)p->flags_ns,
                                    (double)p->best.iteration_ns),
                 cli_plan_time(p, (double)p->flags_ns, time), n);
    return text;
}

/* Formats the layout that is fastest with other options of the training
 * program: "-7.3 %, 5.1 s, on tensor 1 ... with 2 other options"; "" if the
 * plan has none that saves more than the fraction `matters`. */
static void format_layout(const lh_plan *p, double matters, char *text,
                          size_t room)
{
    const lh_flag_plan *f = p->flag_plan;
    char time[CLI_TIME_TEXT], layout[200];
    *text = '\0';
    if (!f || (double)f->best->iteration_ns >=
                  (1 - matters) * (double)p->best.iteration_ns)
        return;
    cli_layout_text(f->best, layout, sizeof layout);
    snprintf(text, room, "%+.1f %%, %s, on %s with %" PRIu32 " option%s",
             cli_percent_slower((double)f->best->iteration_ns,
                                (double)p->best.iteration_ns),
             cli_plan_time(p, (double)f->best->iteration_ns, time), layout,
             f->n_flags, f->n_flags == 1 ? "" : "s");
}

void cli_plan_flags_gain(cli *c, const lh_plan *p, uint32_t most)
{
    const double matters = 0.01;
    uint32_t shown = 0;
    bool found = false;
    char text[400];
    format_together(p, text, sizeof text);
    if (!*text && most == 0)
        most = 1;
    for (uint32_t i = 0; i < p->n_flags; i++) {
        const lh_flag_advice *f = &p->flags[i];
        char time[CLI_TIME_TEXT];
        if (f->gain <= matters || !f->advised)
            continue;
        found = true;
        if (shown == most)
            break;
        cli_wrap(c, shown++ ? "" : "flags", "%+.1f %%, %s, with %s (%s)",
                 -100 * f->gain,
                 cli_plan_time(p, (double)f->iteration_ns, time), f->flag,
                 f->certainty);
    }
    if (found)
        cli_wrap(c, shown++ ? "" : "flags", "%s%s--show flags", text,
                 *text ? ": " : "all: ");
    format_layout(p, matters, text, sizeof text);
    if (*text)
        cli_wrap(c, shown ? "" : "flags", "%s: --show flags", text);
}

/* Fills a table with the iteration time and memory of a layout under each of
 * flags[0..n-1], a changed option of the training program. */
static void fill_flags(const lh_plan *p, const lh_flag_advice *flags,
                       uint32_t n, cli_table *t)
{
    static const char *const head[] = {"#iteration",   "#change",
                                       "#peak memory", "",
                                       "option",       "key of the job"};
    cli_table_row(t, 6, head);
    for (uint32_t i = 0; i < n; i++) {
        const lh_flag_advice *f = &flags[i];
        char time[CLI_TIME_TEXT], change[40], memory[40];
        cli_plan_time(p, (double)f->iteration_ns, time);
        snprintf(change, sizeof change, "%+.2f %%", -100 * f->gain);
        snprintf(memory, sizeof memory, "%.1f GiB",
                 (double)f->peak_memory_bytes / 0x1p30);
        const char *cells[] = {
            time,    change,
            memory,  f->advised ? "advised" : f->fixed ? "fixed" : "",
            f->flag, f->key};
        cli_table_row(t, 6, cells);
    }
}

/* Fills the table of options of the plan's layout (`other` false), or of the
 * layout that is fastest with changed options, and its title. Returns false if
 * the plan has no such table. */
static bool fill_flag_table(const lh_plan *p, bool other, cli_table *t,
                            char *title, size_t room)
{
    const lh_flag_plan *f = p->flag_plan;
    char text[300], time[CLI_TIME_TEXT], layout[200];
    if (other ? !f : !p->n_flags)
        return false;
    snprintf(title, room, "Options of %s%s%s, each changed alone (%s)",
             lh_target_display_name(p->job->target), other ? " on " : "",
             other ? cli_layout_text(f->best, layout, sizeof layout) : "",
             other ? f->flags[0].certainty : p->flags[0].certainty);
    if (other)
        fill_flags(p, f->flags, f->n_flags, t);
    else
        fill_flags(p, p->flags, p->n_flags, t);
    if (!other && *format_together(p, text, sizeof text))
        cli_table_note(t, text);
    if (other) {
        const int len = snprintf(
            text, sizeof text, "%s without%s, ",
            cli_plan_time(p, (double)f->before_ns, time),
            f->exceeds_memory ? ", which does not fit into memory" : "");
        snprintf(text + len, sizeof text - (size_t)len,
                 "%s with all %" PRIu32 " (%+.1f %% against the plan)",
                 cli_plan_time(p, (double)f->best->iteration_ns, time),
                 f->n_flags,
                 cli_percent_slower((double)f->best->iteration_ns,
                                    (double)p->best.iteration_ns));
        cli_table_note(t, text);
    }
    return true;
}

void cli_plan_flags(cli *c, const lh_plan *p)
{
    char title[400];
    for (int other = 0; other < 2; other++) {
        cli_table t = {0};
        if (!fill_flag_table(p, other, &t, title, sizeof title))
            continue;
        cli_print(c, "\n%s\n", title);
        cli_table_print(c, "", &t);
    }
}

lh_status cli_report_flags(cli *c, const lh_plan *p, lh_report *report)
{
    char title[400];
    for (int other = 0; other < 2; other++) {
        cli_table t = {0};
        if (fill_flag_table(p, other, &t, title, sizeof title))
            CLI_TRY(cli_table_report(c, title, &t, report));
    }
    return LH_OK;
}
