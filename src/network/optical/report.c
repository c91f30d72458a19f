/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a scenario's report. */
#include "network/optical/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_fact(lhi_text *out, const char *name, const char *format, ...)
    LHI_PRINTF(3, 4);

/* Adds a name with a formatted value, at most 79 bytes, to the page's fact
 * list; the name is not escaped. */
static void add_fact(lhi_text *out, const char *name, const char *format, ...)
{
    char text[80];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lhi_text_printf(out, "<div><dt>%s</dt><dd>%s</dd></div>", name, text);
}

/* Checks whether no other policy has a shorter mean iteration time than number
 * `policy`. */
static bool is_best(const lh_optical *o, uint32_t policy)
{
    for (uint32_t i = 0; i < o->n_policies; i++)
        if (o->policies[i].iteration_s < o->policies[policy].iteration_s)
            return false;
    return true;
}

/* Adds the HTML table of policies with their mean results. */
static void add_table(lhi_text *out, const lh_optical *o)
{
    lhi_text_puts(
        out, "<section class=panel><div class=panel-head><h2>Policies</h2>"
             "</div>\n<div class=scroll><table><thead><tr><th scope=col>"
             "Policy<th class=num scope=col>Iteration<th class=num scope=col>"
             "Standard deviation<th class=num scope=col>Bubble<th class=num "
             "scope=col>Blocked<th class=num scope=col>Slots held<th "
             "class=num scope=col>Others refused");
    lhi_text_puts(out, o->has_failures
                           ? "<th class=num scope=col>Lost to failures</tr>"
                             "</thead><tbody>\n"
                           : "</tr></thead><tbody>\n");
    for (uint32_t i = 0; i < o->n_policies; i++) {
        const lh_optical_policy *p = &o->policies[i];
        lhi_text_printf(out, "<tr%s><td>", is_best(o, i) ? " class=best" : "");
        lhi_html_text(out, p->name);
        lhi_text_printf(out,
                        "<td class=num>%.3f s<td class=num>%.3f s<td "
                        "class=num>%.1f %%<td class=num>%.2f %%<td class=num>"
                        "%.0f<td class=num>%.2f %%",
                        p->iteration_s, p->iteration_s_sd,
                        100 * p->bubble_ratio, 100 * p->blocking_probability,
                        p->slots_held, 100 * p->collateral);
        if (o->has_failures)
            lhi_text_printf(out, "<td class=num>%.3f s", p->lost_s);
        lhi_text_puts(out, "</tr>\n");
    }
    lhi_text_puts(out, "</tbody></table></div></section>\n");
}

/* Measures shown as bars. */
typedef enum measure {
    ITERATION,
    BUBBLE,
    BLOCKING,
} measure;

/* Returns a job's measure `what`: iteration time in seconds, or bubble or
 * blocking in per cent. */
static double get_job_value(const lh_optical_job *job, measure what)
{
    return what == ITERATION ? job->iteration_s
           : what == BUBBLE  ? 100 * job->bubble_ratio
                             : 100 * job->blocking_probability;
}

/* Returns the mean of a measure over a run's jobs. */
static double get_run_value(const lh_optical_run *run, measure what)
{
    double sum = 0;
    for (uint32_t j = 0; j < run->n_jobs; j++)
        sum += get_job_value(&run->jobs[j], what);
    return sum / run->n_jobs;
}

/* Draws a bar for each policy's mean of measure `what`, under `title`, and a
 * dot for each seed. */
static void draw_bars(lhi_text *out, const lh_optical *o, measure what,
                      const char *title)
{
    enum { LEFT = 170, WIDTH = 560, ROW = 18 };
    double most = 0;
    for (uint32_t i = 0; i < o->n_policies; i++)
        for (uint32_t k = 0; k < o->policies[i].n_runs; k++)
            most = fmax(most, get_run_value(&o->policies[i].runs[k], what));
    double scale = most > 0 ? WIDTH / most : 0;
    lhi_text_printf(out,
                    "<h3>%s</h3><svg class=bars viewBox=\"0 0 %d "
                    "%" PRIu32 "\">",
                    title, LEFT + WIDTH + 90, o->n_policies * ROW + 4);
    for (uint32_t i = 0; i < o->n_policies; i++) {
        const lh_optical_policy *p = &o->policies[i];
        double mean = what == ITERATION ? p->iteration_s
                      : what == BUBBLE  ? 100 * p->bubble_ratio
                                        : 100 * p->blocking_probability;
        uint32_t y = i * ROW + 2;
        lhi_text_printf(out,
                        "<text class=name x=%d y=%" PRIu32 " text-anchor=end>",
                        LEFT - 6, y + 12);
        lhi_html_text(out, p->name);
        lhi_text_printf(out,
                        "</text><rect class=mean x=%d y=%" PRIu32
                        " width=%.1f height=%d />",
                        LEFT, y, mean * scale, ROW - 4);
        for (uint32_t k = 0; k < p->n_runs; k++)
            lhi_text_printf(
                out, "<circle class=dot cx=%.1f cy=%" PRIu32 " r=2 />",
                LEFT + get_run_value(&p->runs[k], what) * scale, y + 7);
        lhi_text_printf(out, "<text class=name x=%d y=%" PRIu32 ">%.3g</text>",
                        LEFT + WIDTH + 8, y + 12, mean);
    }
    if (what == ITERATION)
        lhi_text_printf(
            out, "<line class=low x1=%.1f x2=%.1f y1=0 y2=%" PRIu32 " />",
            LEFT + o->policies[0].bound_s * scale,
            LEFT + o->policies[0].bound_s * scale, o->n_policies * ROW);
    lhi_text_puts(out, "</svg>");
}

/* Simulates a policy again with one seed and records job 0's last iteration for
 * the figures, into *rec; `jobs` receives the placed jobs. */
static lh_status record_iteration(const lh_scenario *s,
                                  const lhi_policy *policy, uint64_t seed,
                                  lhi_arena *mem, lhi_optical_run_job *jobs,
                                  lhi_iteration_record *rec, lh_error *err)
{
    lhi_optical_job_output *outs =
        LHI_NEW(mem, lhi_optical_job_output, s->n_jobs);
    uint32_t n = s->iterations + 1;
    if (!outs)
        return lhi_fail_nomem(err);
    for (uint32_t j = 0; j < s->n_jobs; j++) {
        outs[j] =
            (lhi_optical_job_output){.iteration_ns = LHI_NEW(mem, int64_t, n),
                                     .labels = LHI_NEW(mem, uint32_t, n),
                                     .requested = LHI_NEW(mem, uint32_t, n),
                                     .refused = LHI_NEW(mem, uint32_t, n)};
        if (!outs[j].iteration_ns || !outs[j].labels || !outs[j].requested ||
            !outs[j].refused)
            return lhi_fail_nomem(err);
    }
    LHI_TRY(lhi_scenario_prepare_jobs(s, policy, seed, mem, jobs, err));
    lhi_optical_run_output out = {.jobs = outs};
    lhi_optical_run_input in = lhi_scenario_run_input(s, jobs, seed);
    in.record = rec;
    lh_status status = lhi_optical_simulate(&in, &out, err);
    free(out.outages);
    return status;
}

/* Adds one policy's figures to the page: routes, passes and spectrum of job 0's
 * last iteration with the first seed. x, y: the nodes' positions in the map, 0
 * to 1. */
static lh_status draw_policy(lhi_text *out, const lh_scenario *s,
                             const lh_optical *o, const lh_optical_policy *p,
                             const lhi_policy *policy, const double *x,
                             const double *y, lh_error *err)
{
    lhi_iteration_record rec = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_optical_run_job *jobs =
        mem ? LHI_NEW(mem, lhi_optical_run_job, s->n_jobs) : NULL;
    lh_status status = jobs ? record_iteration(s, policy, p->runs[0].seed, mem,
                                               jobs, &rec, err)
                            : lhi_fail_nomem(err);
    if (status == LH_OK) {
        lhi_text_printf(out, "<details class=panel%s><summary>",
                        is_best(o, (uint32_t)(p - o->policies)) ? " open" : "");
        lhi_html_text(out, p->name);
        lhi_text_printf(out,
                        "</summary><p class=note>Seed %" PRIu64
                        ", last iteration: %.3f s.</p><h3>Stages and "
                        "routes</h3>",
                        p->runs[0].seed,
                        (double)(rec.end_ns - rec.begin_ns) / 1e9);
        status = lhi_figure_topology(out, s, &jobs[0], &rec, x, y, err);
    }
    if (status == LH_OK) {
        lhi_text_puts(out,
                      "<h3>Passes: <span class=legend><span><i "
                      "style=\"background:var(--f)\"></i>F forward"
                      "</span><span><i style=\"background:var(--b)\"></i>"
                      "B backward</span><span><i style=\"background:"
                      "var(--w)\"></i>W weight gradient</span><span><i "
                      "style=\"border:2px solid var(--queue)\"></i>delayed "
                      "by the network</span></span></h3>");
        lhi_figure_timeline(out, s, &jobs[0], &rec);
        lhi_text_puts(out, "<h3>Occupied share of every fibre: <span "
                           "class=legend><span><i style=\"background:"
                           "var(--faint)\"></i>by others</span><span><i "
                           "style=\"background:var(--accent)\"></i>by the "
                           "jobs</span></span></h3>");
        status = lhi_figure_spectrum(out, s, &rec, err);
        lhi_text_puts(out, "</details>\n");
    }
    lhi_iteration_record_fini(&rec);
    lhi_arena_free(mem);
    return status;
}

/* Adds the sections of all policies to the page. */
static lh_status draw_policies(lhi_text *out, const lh_scenario *s,
                               const lh_optical *o, lh_error *err)
{
    uint32_t n = s->topology->n_nodes;
    double *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    lh_status status = x && y ? lhi_figure_layout(s->topology, x, y, err)
                              : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < o->n_policies; i++)
        status =
            draw_policy(out, s, o, &o->policies[i], &s->policies[i], x, y, err);
    free(x);
    free(y);
    return status;
}

/* Adds the section with bars for iteration time, bubble and blocking. */
static void add_bars(lhi_text *out, const lh_optical *o)
{
    lhi_text_puts(out,
                  "<section class=panel><div class=panel-head><h2>Seed by "
                  "seed</h2><p class=note>Bars are means, dots are seeds; "
                  "the dashed line is a lower bound on the iteration time, "
                  "with instantaneous messages.</p></div>\n");
    draw_bars(out, o, ITERATION, "Iteration time, s");
    draw_bars(out, o, BUBBLE, "Bubble, %");
    draw_bars(out, o, BLOCKING, "Blocked requests, %");
    lhi_text_puts(out, "</section>\n");
}

/* Adds the page with all sections: title, table, bars, topology and policies.
 */
static lh_status add_page(lhi_text *out, const lh_scenario *s,
                          const lh_optical *o, lh_error *err)
{
    const lh_topology *t = s->topology;
    lhi_text title = {0}, facts = {0}, body = {0};
    lhi_text_puts(&title, "Policies on ");
    lhi_html_text(&title, *t->name ? t->name : "the network");
    add_fact(&facts, "nodes", "%" PRIu32, t->n_nodes);
    add_fact(&facts, "links", "%" PRIu32 " of %" PRIu32 " slots", t->n_cables,
             s->network->slots);
    add_fact(&facts, "jobs", "%" PRIu32, s->n_jobs);
    add_fact(&facts, "seeds", "%" PRIu32, o->policies[0].n_runs);
    add_table(&body, o);
    add_bars(&body, o);
    lh_status status = draw_policies(&body, s, o, err);
    if (status == LH_OK)
        lhi_html_page(out, &title, &facts, &body);
    lhi_text_fini(&title);
    lhi_text_fini(&facts);
    lhi_text_fini(&body);
    return status;
}

lh_status lh_optical_html(const lh_scenario *scenario,
                          const lh_optical *optical, char **text, size_t *len,
                          lh_error *err)
{
    const lh_optical *o = optical;
    lhi_text out = {0};
    if (o->n_policies != scenario->n_policies)
        return lhi_fail(err, LH_EINVAL, "the result is for another scenario");
    lh_status status = add_page(&out, scenario, o, err);
    if (status == LH_OK)
        status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    return status;
}
