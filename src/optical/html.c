/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a scenario. */
#include "optical/picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const char head[] =
    "<!DOCTYPE html><html lang=en><head><meta charset=utf-8>"
    "<meta name=viewport content=\"width=device-width\"><style>"
    ":root{--ink:#1d2430;--soft:#69707d;--page:#fff;--line:#c9ced6;"
    "--f:#3b7dd8;--b:#e08a2e;--w:#5aa469;--bound:#c2213b;--others:#7b8494}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa3b2;"
    "--page:#15191f;--line:#3a424e;--others:#8d97a8}}"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);"
    "background:var(--page);max-width:1000px;margin:2em auto;padding:0 1em}"
    "h1{font-size:1.5em}h2{margin-top:2em}h3{margin-bottom:.3em}"
    "table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:right;"
    "border-bottom:1px solid var(--line)}td:first-child,th:first-child"
    "{text-align:left}p.note{color:var(--soft)}svg{max-width:100%;"
    "display:block}svg.wide{width:100%}svg.map{width:700px}"
    "svg text{fill:var(--ink)}.id{font-size:8px;fill:var(--soft)!important}"
    ".stage{font-size:10px}.cable{stroke:var(--line);stroke-width:1.5}"
    ".route{stroke:var(--f);stroke-opacity:.7}.node{fill:var(--line)}"
    ".site{fill:var(--b)}.others{fill:var(--others)}.jobs{fill:var(--f)}"
    ".f{fill:var(--f)}.b{fill:var(--b)}.w{fill:var(--w)}"
    ".bound{fill:none;stroke:var(--bound);stroke-width:1}"
    ".mean{fill:var(--f);fill-opacity:.35}.dot{fill:var(--ink)}"
    ".name{font-size:11px}.low{stroke:var(--bound);stroke-dasharray:3 3}"
    "</style>";

static void table(lhi_text *out, const lh_optical *o)
{
    lhi_text_puts(out,
                  "<table><tr><th>policy<th>iteration s<th>sd<th>bubble %<th>"
                  "blocked %<th>slots held<th>others refused %</tr>");
    for (uint32_t i = 0; i < o->n_policies; i++) {
        const lh_optical_policy *p = &o->policies[i];
        lhi_text_puts(out, "<tr><td>");
        lhi_html_text(out, p->name);
        lhi_text_printf(out,
                        "<td>%.3f<td>%.3f<td>%.1f<td>%.2f<td>%.0f<td>%.2f"
                        "</tr>",
                        p->iteration_s, p->iteration_s_sd,
                        100 * p->bubble_ratio, 100 * p->blocking_probability,
                        p->slots_held, 100 * p->collateral);
    }
    lhi_text_puts(out, "</table>");
}

typedef enum measure {
    ITERATION,
    BUBBLE,
    BLOCKING,
} measure;

static double job_value(const lh_optical_job *job, measure what)
{
    return what == ITERATION ? job->iteration_s
           : what == BUBBLE  ? 100 * job->bubble_ratio
                             : 100 * job->blocking_probability;
}

static double run_value(const lh_optical_run *run, measure what)
{
    double sum = 0;
    for (uint32_t j = 0; j < run->n_jobs; j++)
        sum += job_value(&run->jobs[j], what);
    return sum / run->n_jobs;
}

/* A bar for the mean of each policy, a dot for each seed. */
static void bars(lhi_text *out, const lh_optical *o, measure what,
                 const char *title)
{
    enum { LEFT = 170, WIDTH = 560, ROW = 18 };
    double most = 0;
    for (uint32_t i = 0; i < o->n_policies; i++)
        for (uint32_t k = 0; k < o->policies[i].n_runs; k++)
            most = fmax(most, run_value(&o->policies[i].runs[k], what));
    double scale = most > 0 ? WIDTH / most : 0;
    lhi_text_printf(out,
                    "<h3>%s</h3><svg class=wide viewBox=\"0 0 %d "
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
            lhi_text_printf(out,
                            "<circle class=dot cx=%.1f cy=%" PRIu32 " r=2 />",
                            LEFT + run_value(&p->runs[k], what) * scale, y + 7);
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

/* Runs a policy once more with the first seed, and keeps its last iteration. */
static lh_status record(const lh_scenario *s, const lhi_policy *policy,
                        uint64_t seed, lhi_arena *mem, lhi_run_job *jobs,
                        lhi_sent_record *rec, lh_error *err)
{
    lhi_run_job_output *outs = LHI_NEW(mem, lhi_run_job_output, s->n_jobs);
    uint32_t n = s->iterations + 1;
    if (!outs)
        return lhi_fail_nomem(err);
    for (uint32_t j = 0; j < s->n_jobs; j++) {
        outs[j] = (lhi_run_job_output){.iteration_ns = LHI_NEW(mem, int64_t, n),
                                       .labels = LHI_NEW(mem, uint32_t, n),
                                       .requested = LHI_NEW(mem, uint32_t, n),
                                       .refused = LHI_NEW(mem, uint32_t, n)};
        if (!outs[j].iteration_ns || !outs[j].labels || !outs[j].requested ||
            !outs[j].refused)
            return lhi_fail_nomem(err);
    }
    LHI_TRY(lhi_prepare(s, policy, seed, mem, jobs, err));
    lhi_run_output out = {.jobs = outs};
    lhi_run_input in = {.network = s->network,
                        .policy = policy,
                        .background = &s->background,
                        .jobs = jobs,
                        .n_jobs = s->n_jobs,
                        .retry_ns = s->retry_ns,
                        .iterations = s->iterations,
                        .seed = seed,
                        .record = rec};
    return lhi_run(&in, &out, err);
}

static lh_status draw_policy(lhi_text *out, const lh_scenario *s,
                             const lh_optical_policy *p,
                             const lhi_policy *policy, const double *x,
                             const double *y, lh_error *err)
{
    lhi_sent_record rec = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_run_job *jobs = mem ? LHI_NEW(mem, lhi_run_job, s->n_jobs) : NULL;
    lh_status status =
        jobs ? record(s, policy, p->runs[0].seed, mem, jobs, &rec, err)
             : lhi_fail_nomem(err);
    if (status == LH_OK) {
        lhi_text_puts(out, "<h2>");
        lhi_html_text(out, p->name);
        lhi_text_printf(out,
                        "</h2><p class=note>Seed %" PRIu64
                        ", last iteration: %.3f s.</p><h3>Stages and "
                        "routes</h3>",
                        p->runs[0].seed,
                        (double)(rec.end_ns - rec.begin_ns) / 1e9);
        status = lhi_picture_topology(out, s, &jobs[0], &rec, x, y, err);
    }
    if (status == LH_OK) {
        lhi_text_puts(out, "<h3>Passes; outlined in red: held up by the "
                           "network</h3>");
        lhi_picture_timeline(out, s, &jobs[0], &rec);
        lhi_text_puts(out, "<h3>Share of every fibre held: grey by others, "
                           "blue by the jobs</h3>");
        status = lhi_picture_spectrum(out, s, &rec, err);
    }
    lhi_record_fini(&rec);
    lhi_arena_free(mem);
    return status;
}

static lh_status draw_all(lhi_text *out, const lh_scenario *s,
                          const lh_optical *o, lh_error *err)
{
    uint32_t n = s->topology->n_nodes;
    double *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    lh_status status =
        x && y ? lhi_map_layout(s->topology, x, y, err) : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < o->n_policies; i++)
        status =
            draw_policy(out, s, &o->policies[i], &s->policies[i], x, y, err);
    free(x);
    free(y);
    return status;
}

lh_status lh_optical_html(const lh_scenario *scenario,
                          const lh_optical *optical, char **text, size_t *len,
                          lh_error *err)
{
    const lh_topology *t = scenario->topology;
    const lh_optical *o = optical;
    lhi_text out = {0};
    if (o->n_policies != scenario->n_policies)
        return lhi_fail(err, LH_EINVAL, "the result is of another scenario");
    lhi_text_puts(&out, head);
    lhi_text_puts(&out, "<title>longhaul optical</title></head><body><h1>"
                        "Policies on ");
    lhi_html_text(&out, *t->name ? t->name : "the network");
    lhi_text_printf(&out,
                    "</h1><p class=note>%" PRIu32 " nodes, %" PRIu32
                    " links of %" PRIu32 " slots, %" PRIu32
                    " seeds. Bars are means, dots are seeds; the dashed line "
                    "is an iteration with no time for messages.</p>",
                    t->n_nodes, t->n_cables, scenario->network->slots,
                    o->policies[0].n_runs);
    table(&out, o);
    bars(&out, o, ITERATION, "Iteration time, s");
    bars(&out, o, BUBBLE, "Bubble, %");
    bars(&out, o, BLOCKING, "Blocked requests, %");
    lh_status status = draw_all(&out, scenario, o, err);
    if (status == LH_OK) {
        lhi_text_puts(&out, "</body></html>\n");
        status = lhi_text_take(&out, text, len, err);
    }
    lhi_text_fini(&out);
    return status;
}
