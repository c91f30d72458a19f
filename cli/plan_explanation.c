/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_explanation.h"

#include "plan_cost.h"
#include "plan_screen.h"
#include "plan_whatif.h"

#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <string.h>

/* Index of the part for optimizer and overhead, the last one. */
enum { OPTIMIZER = 8 };

void cli_breakdown_parts(const lh_plan_breakdown *a,
                         lh_report_breakdown_part parts[CLI_BREAKDOWN_PARTS])
{
    const lh_report_breakdown_part all[CLI_BREAKDOWN_PARTS] = {
        {"compute", a->compute_ns},
        {"tensor/context/expert communication", a->intra_layer_ns},
        {"load imbalance", a->imbalance_ns},
        {"pipeline idle time", a->bubble_ns},
        {"exposed messages", a->messages_ns},
        {"exposed data parallelism", a->data_ns},
        {"exposed offloading", a->offload_ns},
        {"memory-limited stalls", a->memory_stall_ns},
        {"optimizer", a->optimizer_ns},
        {"overhead", a->overhead_ns}};
    memcpy(parts, all, sizeof all);
}

/* Merges the last part of the iteration breakdown, the overhead, into the part
 * before it, the optimizer. */
static void merge_optimizer(lh_report_breakdown_part parts[CLI_BREAKDOWN_PARTS])
{
    parts[OPTIMIZER].name = "optimizer and overhead";
    parts[OPTIMIZER].ns += parts[OPTIMIZER + 1].ns;
}

void cli_plan_breakdown(cli *c, const lh_plan *p)
{
    const lh_plan_breakdown *a = p->breakdown;
    if (!a)
        return;
    lh_report_breakdown_part parts[CLI_BREAKDOWN_PARTS];
    cli_breakdown_parts(a, parts);
    merge_optimizer(parts);
    char text[600];
    size_t len = 0;
    for (uint32_t i = 0; i <= OPTIMIZER; i++) {
        char time[CLI_TIME_TEXT];
        if (i == 0 || parts[i].ns * 10000 >= p->best.iteration_ns)
            len += (size_t)snprintf(
                text + len, sizeof text - len, "%s%s %s", len ? ", " : "",
                parts[i].name, cli_plan_time(p, (double)parts[i].ns, time));
    }
    cli_wrap(c, "breakdown", "%s", text);
}

/* Returns the sum of all kinds of memory on a device, in bytes. */
static int64_t sum_memory(const lh_plan_memory *m)
{
    return m->parameters_bytes + m->gradients_bytes + m->optimizer_bytes +
           m->activations_bytes + m->buffers_bytes + m->temporary_bytes;
}

const lh_plan_memory *cli_plan_fullest_device(const lh_plan *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (sum_memory(&p->rank_memory[i]) == p->best.peak_memory_bytes &&
            lh_pipeline_memory_limit(p->pipeline, i) ==
                p->best.memory_limit_bytes)
            return &p->rank_memory[i];
    return NULL;
}

/* Number of parts of a GPU's memory. */
enum { MEMORY_PARTS = 6 };

/* Formats the GPU's memory limit with the tightest one, as in " (80 GiB less 6
 * % reserve)", into `text`, which it returns; "" without a reserve. */
static const char *format_reserve(const lh_plan *p, char *text, size_t size)
{
    const lh_gpu *gpu = NULL;
    for (uint32_t i = 0; i < p->job->n_datacenters && !gpu; i++)
        if (lh_gpu_usable_bytes(&p->job->datacenters[i].gpu) ==
            p->best.memory_limit_bytes)
            gpu = &p->job->datacenters[i].gpu;
    *text = '\0';
    if (gpu && gpu->reserve_gib > 0)
        snprintf(text, size, " (%g GiB less %g GiB reserve)", gpu->memory_gib,
                 gpu->reserve_gib);
    else if (gpu && gpu->reserve_percent > 0)
        snprintf(text, size, " (%g GiB less %g %% reserve)", gpu->memory_gib,
                 gpu->reserve_percent);
    return text;
}

/* Formats "parameters 8.8, gradients 17.5 GiB"; omits parts that round to 0.0.
 */
static void format_memory_parts(const lh_plan *p, char *text, size_t room)
{
    const lh_plan_memory *m = cli_plan_fullest_device(p);
    const char *names[MEMORY_PARTS] = {"parameters",  "gradients", "optimizer",
                                       "activations", "buffers",   "temporary"};
    const double gib = (double)(INT64_C(1) << 30);
    const double peak = (double)p->best.peak_memory_bytes;
    const double unit = peak < 0.1 * gib ? gib / 1024 : gib;
    const bool small = peak < 10 * unit;
    size_t len = 0;
    *text = '\0';
    if (!m)
        return;
    const int64_t bytes[MEMORY_PARTS] = {
        m->parameters_bytes,  m->gradients_bytes, m->optimizer_bytes,
        m->activations_bytes, m->buffers_bytes,   m->temporary_bytes};
    for (size_t i = 0; i < MEMORY_PARTS; i++)
        if ((double)bytes[i] >= (small ? 0.005 : 0.05) * unit)
            len += (size_t)snprintf(text + len, room - len, "%s%s %.*f",
                                    len ? ", " : "", names[i], small ? 2 : 1,
                                    (double)bytes[i] / unit);
    if (len)
        snprintf(text + len, room - len, unit < gib ? " MiB" : " GiB");
}

void cli_plan_memory(cli *c, const lh_plan *p)
{
    char used[CLI_MEMORY_TEXT], limit[CLI_MEMORY_TEXT], reserve[80];
    char text[400];
    cli_wrap(c, "memory", "%s of %s%s on the fullest device",
             cli_memory_text(p->best.peak_memory_bytes, "bytes", used),
             cli_memory_text(p->best.memory_limit_bytes, "bytes", limit),
             format_reserve(p, reserve, sizeof reserve));
    format_memory_parts(p, text, sizeof text);
    if (*text)
        cli_wrap(c, "", "%s", text);
}

/* Adds one table row per reason in `why`, a list separated by semicolons. The
 * first row has `name` in its first cell, the others none. */
static void add_reasons(cli_table *t, const char *name, const char *why)
{
    while (*why) {
        const size_t len = strcspn(why, ";");
        char line[400];
        snprintf(line, sizeof line, "%.*s", (int)(len < 399 ? len : 399), why);
        const char *cells[] = {name, line};
        cli_table_row(t, 2, cells);
        name = "";
        why += len;
        why += strspn(why, "; ");
    }
}

/* Checks whether two links have the same traffic and advice. */
static bool same_advice(const lh_link_advice *a, const lh_link_advice *b)
{
    bool same = a->messages == b->messages && a->data_bytes == b->data_bytes &&
                a->expert_bytes == b->expert_bytes &&
                a->n_questions == b->n_questions;
    for (uint32_t k = 0; same && k < a->n_questions; k++)
        same = strcmp(a->questions[k].why, b->questions[k].why) == 0;
    return same;
}

/* Prints a link's traffic per iteration and the settings advised for it. */
static void print_link(cli *c, const lh_link_advice *a)
{
    cli_print(c, "  %s>%s: ", a->from, a->to);
    if (a->messages)
        cli_print(c, "%" PRIu64 " messages of %.1f MB", a->messages,
                  (double)a->message_bytes / 1e6);
    if (a->data_bytes)
        cli_print(c, "%s%.1f GB of data parallelism", a->messages ? ", " : "",
                  (double)a->data_bytes / 1e9);
    if (a->expert_bytes)
        cli_print(c, "%s%.1f GB of tokens for experts",
                  a->messages || a->data_bytes ? ", " : "",
                  (double)a->expert_bytes / 1e9);
    cli_print(c, "%s\n",
              a->measured ? "; rate from the job's profile, for any setting"
                          : "");
    static const char *const head[] = {"", ""};
    cli_table t = {.hide_heading = true};
    cli_table_row(&t, 2, head);
    for (uint32_t k = 0; k < a->n_questions; k++) {
        const lh_advice_question *q = &a->questions[k];
        char name[60];
        snprintf(name, sizeof name, "  %s", lh_advice_topic_name(q->topic));
        add_reasons(&t, name, q->why);
        if (q->confidence)
            add_reasons(&t, "", q->confidence);
    }
    cli_table_print(c, "", &t);
}

/* Checks whether the job plans a link with the default network setting, i.e.
 * lossless end points. */
static bool has_default_setting(const lh_plan *p)
{
    for (uint32_t i = 0; i < p->n_network; i++)
        if (lh_link_setting_is_default(&p->network[i].planned.setting))
            return true;
    return false;
}

/* Prints the iteration time with the advised network settings and with the
 * job's own; or that no setting gains 1 %. */
static void print_network_times(cli *c, const lh_plan *p)
{
    char with[CLI_TIME_TEXT], now[CLI_TIME_TEXT];
    const bool has_now = p->network_now_ns > 0;
    cli_plan_time(p, (double)p->network_ns, with);
    cli_plan_time(p, (double)p->network_now_ns, now);
    if (has_now && p->network_ns >= p->network_now_ns)
        cli_print(c, "  no change recommended: no other setting gains 1 %%\n");
    else if (has_now)
        cli_print(c, "  iteration with these settings  %s, without %s\n", with,
                  now);
    else
        cli_print(c, "  iteration with these settings  %s\n", with);
    if (has_now && has_default_setting(p))
        cli_print(c,
                  "  The job has no settings of the link end points, so the "
                  "plan assumes ideal\n"
                  "  ones; with ecmp, one queue pair and go-back-n the "
                  "iteration takes %s.\n",
                  now);
}

void cli_plan_network(cli *c, const lh_plan *p)
{
    if (!p->n_network)
        return;
    cli_print(c, "\nNetwork\n");
    for (uint32_t i = 0; i < p->n_network; i++) {
        const lh_link_advice *a = &p->network[i];
        uint32_t k = 0;
        while (k < i && !same_advice(&p->network[k], a))
            k++;
        if (k < i)
            cli_print(c, "  %s>%s: as %s>%s\n", a->from, a->to,
                      p->network[k].from, p->network[k].to);
        else
            print_link(c, a);
    }
    if (p->network_ns >= 0)
        print_network_times(c, p);
}

/* Formats which arrangement is the fastest over a curve: "PP-out up to 6.31,
 * then DP-out". PP-out: the pipeline crosses the datacenters; DP-out: the
 * replicas do. */
static void format_curve(const lh_plan_curve *curve, char *text, size_t room)
{
    const int64_t *ns = curve->iteration_ns;
    uint32_t n = curve->n_points, last = n ? n - 1 : 0;
    if (curve->n_series < 2 || n == 0 || ns[0] < 0 || ns[n] < 0 ||
        ns[last] < 0 || ns[n + last] < 0) {
        snprintf(text, room, "no plan of both kinds at some points");
        return;
    }
    uint32_t best = ns[0] <= ns[n] ? 0 : 1;
    size_t len = (size_t)snprintf(text, room, "%s", curve->series[best]);
    for (uint32_t i = 0; i < curve->n_crossings && len < room; i++) {
        best = !best;
        len += (size_t)snprintf(text + len, room - len, " up to %.3g, then %s",
                                curve->crossings[i], curve->series[best]);
    }
    if (curve->n_crossings == 0 && len < room)
        snprintf(text + len, room - len, " from %.6g to %.6g", curve->xs[0],
                 curve->xs[last]);
}

/* Prints, as a table, the iteration time over the values of one link quantity
 * with the pipeline (PP-out) and with whole replicas (DP-out) across the
 * datacenters. */
static void print_curve(cli *c, const lh_plan *p, const lh_plan_curve *curve)
{
    char text[200], numbers[CLI_MOST_COLUMNS][40];
    const char *cells[CLI_MOST_COLUMNS];
    const uint32_t n = curve->n_points < CLI_MOST_COLUMNS
                           ? curve->n_points
                           : CLI_MOST_COLUMNS - 1;
    cli_table t = {0};
    format_curve(curve, text, sizeof text);
    cli_print(c, "\nFaster over %s: %s\n", lh_curve_over_name(curve->over),
              text);
    cells[0] = lh_curve_over_name(curve->over);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(numbers[i], sizeof numbers[i], "#%.6g", curve->xs[i]);
        cells[i + 1] = numbers[i];
    }
    cli_table_row(&t, n + 1, cells);
    for (uint32_t s = 0; s < curve->n_series; s++) {
        cells[0] = curve->series[s];
        for (uint32_t i = 0; i < n; i++) {
            const size_t at = (size_t)s * curve->n_points + i;
            cells[i + 1] =
                cli_plan_time(p, (double)curve->iteration_ns[at], numbers[i]);
        }
        cli_table_row(&t, n + 1, cells);
    }
    cli_table_print(c, "", &t);
}

void cli_plan_curves(cli *c, const lh_plan *p)
{
    for (uint32_t i = 0; i < p->n_curves; i++)
        print_curve(c, p, &p->curves[i]);
    char text[40];
    if (p->n_curves)
        cli_wrap(c, "",
                 "Curves use even chunks and scheduling methods, over links "
                 "also the plan's own schedule; the plan takes %s.",
                 cli_plan_time(p, (double)p->best.iteration_ns, text));
}

/* --- report ------------------------------------------------------------- */

/* Adds the iteration's breakdown to the report, if there is one. */
static lh_status add_account(cli *c, const lh_plan *p, lh_report *report)
{
    const lh_plan_breakdown *a = p->breakdown;
    if (!a)
        return LH_OK;
    lh_report_breakdown_part parts[CLI_BREAKDOWN_PARTS];
    cli_breakdown_parts(a, parts);
    merge_optimizer(parts);
    return lh_report_add_breakdown(report, "Breakdown of the iteration",
                                   OPTIMIZER + 1, parts, &c->err);
}

/* Adds a row with one network setting `o` that answers the advice question `q`,
 * its rate and times, and whether it is advised, to the report. */
static lh_status add_option(cli *c, const lh_advice_question *q,
                            const lh_advice_option *o, lh_report *report)
{
    char name[80], rate[40] = "", message[CLI_TIME_TEXT] = "",
                   time[CLI_TIME_TEXT] = "";
    double rate_of = o->message_bytes_per_s > 0 ? o->message_bytes_per_s
                                                : o->data_bytes_per_s;
    lh_advice_option_text(o, q->topic, name, sizeof name);
    snprintf(rate, sizeof rate, "%.4g Gb/s", rate_of * 8 / 1e9);
    if (o->message_ns >= 0)
        cli_time_text(o->message_ns, message);
    if (o->iteration_ns >= 0)
        cli_time_text(o->iteration_ns, time);
    const char *advice = !o->advised         ? ""
                         : q->change_advised ? "advised"
                                             : "advised, no gain";
    const char *cells[] = {o->advised ? lh_advice_topic_name(q->topic) : "",
                           name,
                           advice,
                           rate,
                           message,
                           time};
    return lh_report_add_cells(report, 6, cells, &c->err);
}

/* Checks whether the advice question has a setting that shortens the iteration
 * by at least 0.05 % against the plan's. */
static bool has_gain(const lh_advice_question *q)
{
    return q->change_advised || q->gain >= 0.0005;
}

/* Checks whether a link before link `i` in the plan's list has the same traffic
 * and advice, so that both share a table. */
static bool is_repeated(const lh_plan *p, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (same_advice(&p->network[k], &p->network[i]))
            return true;
    return false;
}

/* Adds one row to the report for all advice questions of a link for which no
 * setting gains 0.05 %; the plan file lists the settings evaluated for them. */
static lh_status add_no_gain(cli *c, const lh_link_advice *a, lh_report *report)
{
    char names[200];
    size_t len = 0;
    for (uint32_t k = 0; k < a->n_questions; k++)
        if (!has_gain(&a->questions[k]) && len < sizeof names)
            len += (size_t)snprintf(
                names + len, sizeof names - len, "%s%s", len ? ", " : "",
                lh_advice_topic_name(a->questions[k].topic));
    const char *cells[] = {names, "any", "nothing to gain", "", "", ""};
    return len ? lh_report_add_cells(report, 6, cells, &c->err) : LH_OK;
}

/* Adds a table with the network settings advised for the plan's link number
 * `first`, and for all links with the same traffic and advice, to the report.
 * */
static lh_status add_link(cli *c, const lh_plan *p, uint32_t first,
                          lh_report *report)
{
    const lh_link_advice *a = &p->network[first];
    static const char *const head[] = {"Question", "setting",  "",
                                       "#a flow",  "#message", "#iteration"};
    char title[1000];
    lh_report_table table = {
        .size = sizeof table, .title = title, .n_columns = 6, .head = head};
    size_t len = (size_t)snprintf(title, sizeof title, "Network: %.80s>%.80s",
                                  a->from, a->to);
    for (uint32_t k = first + 1; k < p->n_network; k++)
        if (same_advice(a, &p->network[k]) && len < sizeof title)
            len += (size_t)snprintf(title + len, sizeof title - len,
                                    ", %.80s>%.80s", p->network[k].from,
                                    p->network[k].to);
    CLI_TRY(lh_report_add_table(report, &table, &c->err));
    for (uint32_t k = 0; k < a->n_questions; k++) {
        const lh_advice_question *q = &a->questions[k];
        if (!has_gain(q))
            continue;
        for (int other = 0; other < 2; other++) /* the advised option first */
            for (uint32_t i = 0; i < q->n_options; i++)
                if (q->options[i].advised == !other)
                    CLI_TRY(add_option(c, q, &q->options[i], report));
        const char *sure[] = {
            "", q->confidence ? q->confidence : "", "", "", "", ""};
        if (q->confidence)
            CLI_TRY(lh_report_add_cells(report, 6, sure, &c->err));
    }
    return add_no_gain(c, a, report);
}

/* Adds the iteration time curves over one link quantity to the report. */
static lh_status add_curve(cli *c, const lh_plan *p, const lh_plan_curve *curve,
                           lh_report *report)
{
    char title[260], text[200];
    format_curve(curve, text, sizeof text);
    snprintf(title, sizeof title, "Pipelines or replicas over datacenters: %s",
             text);
    lh_report_sweep sweep = {.size = sizeof sweep,
                             .title = title,
                             .x = lh_curve_over_name(curve->over),
                             .n_points = curve->n_points,
                             .xs = curve->xs,
                             .n_series = curve->n_series,
                             .series = curve->series,
                             .makespan_ns = curve->iteration_ns,
                             .baseline_ns = p->best.iteration_ns};
    return lh_report_add_sweep(report, &sweep, &c->err);
}

/* Adds a table of the peak memory by kind on each pipeline rank's device to the
 * report. */
static lh_status add_memory(cli *c, const lh_plan *p, lh_report *report)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const lh_plan_memory *m = &p->rank_memory[i];
        const lh_report_memory_kind kinds[] = {
            {"parameters", m->parameters_bytes},
            {"gradients", m->gradients_bytes},
            {"optimizer", m->optimizer_bytes},
            {"activations", m->activations_bytes},
            {"buffers", m->buffers_bytes},
            {"temporary", m->temporary_bytes}};
        const int64_t limit =
            m->rank < lh_pipeline_n_devices(p->pipeline)
                ? lh_pipeline_memory_limit(p->pipeline, m->rank)
                : 0;
        char name[40];
        snprintf(name, sizeof name, "stage %" PRIu32, m->rank);
        CLI_TRY(
            lh_report_add_memory(report, name, limit == LH_NO_LIMIT ? 0 : limit,
                                 sizeof kinds / sizeof *kinds, kinds, &c->err));
    }
    return LH_OK;
}

lh_status cli_plan_reasons(cli *c, const lh_plan *p, lh_report *report)
{
    CLI_TRY(cli_plan_decision(c, p, report));
    CLI_TRY(cli_plan_summary(c, p, report));
    CLI_TRY(add_account(c, p, report));
    CLI_TRY(add_memory(c, p, report));
    CLI_TRY(cli_report_alternatives(c, p, report));
    if (p->n_pareto)
        CLI_TRY(cli_report_pareto_front(c, p, report));
    CLI_TRY(cli_report_flags(c, p, report));
    CLI_TRY(cli_report_links(c, p, report));
    for (uint32_t i = 0; i < p->n_network; i++)
        if (!is_repeated(p, i))
            CLI_TRY(add_link(c, p, i, report));
    for (uint32_t i = 0; i < p->n_curves; i++)
        CLI_TRY(add_curve(c, p, &p->curves[i], report));
    return LH_OK;
}
