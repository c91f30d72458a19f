/* SPDX-License-Identifier: Apache-2.0 */
#include "difference.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"F", "I", "W", "B"};

/* --- matching ----------------------------------------------------------------
 */

static int compare_passes(const lh_pass *a, const lh_pass *b)
{
    const uint32_t x[] = {a->chunk, a->microbatch, a->kind, a->part,
                          a->n_parts};
    const uint32_t y[] = {b->chunk, b->microbatch, b->kind, b->part,
                          b->n_parts};
    for (uint32_t i = 0; i < 5; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int compare_runs(const void *a, const void *b)
{
    const lh_trace_run *const *x = a, *const *y = b;
    return compare_passes(&(*x)->pass, &(*y)->pass);
}

static int compare_messages(const void *a, const void *b)
{
    const lh_trace_message *const *x = a, *const *y = b;
    int by_producer = compare_passes(&(*x)->producer, &(*y)->producer);
    return by_producer ? by_producer
                       : compare_passes(&(*x)->consumer, &(*y)->consumer);
}

static void note_parting(cli_difference *d, const lh_trace_run *p,
                         int64_t later_ns)
{
    int64_t off = later_ns < 0 ? -later_ns : later_ns;
    if (off <= d->predicted_ns / 1000 ||
        (d->parts[0] && p->start_ns >= d->parts_at_ns))
        return;
    lh_pass_text(&p->pass, d->parts);
    d->parts_device = p->device;
    d->parts_at_ns = p->start_ns;
    d->parts_by_ns = later_ns;
    d->parts_waits = p->waits_for != LH_NONE;
}

static void match_run(cli_difference *d, const lh_trace_run *p,
                      const lh_trace_run *m)
{
    cli_kind_difference *kind = &d->kinds[p->pass.kind];
    int64_t off = m->start_ns - p->start_ns;
    kind->n++;
    kind->predicted_ns += p->end_ns - p->start_ns;
    kind->measured_ns += m->end_ns - m->start_ns;
    d->n_passes++;
    note_parting(d, p, off);
    off = off < 0 ? -off : off;
    d->mean_start_ns += (double)off;
    if (off >= d->worst_start_ns) {
        d->worst_start_ns = off;
        lh_pass_text(&p->pass, d->worst);
    }
}

/* Pointers to the elements of both traces, in the same order. */
typedef struct pair {
    const void **p, **m;
} pair;

static lh_status sort_pair(cli *c, const void *p, uint32_t n_p, const void *m,
                           uint32_t n_m, size_t size,
                           int (*compare)(const void *, const void *),
                           pair *out)
{
    out->p = calloc((size_t)n_p + 1, sizeof *out->p);
    out->m = calloc((size_t)n_m + 1, sizeof *out->m);
    if (!out->p || !out->m)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < n_p; i++)
        out->p[i] = (const char *)p + i * size;
    for (uint32_t i = 0; i < n_m; i++)
        out->m[i] = (const char *)m + i * size;
    qsort(out->p, n_p, sizeof *out->p, compare);
    qsort(out->m, n_m, sizeof *out->m, compare);
    return LH_OK;
}

static lh_status match_runs(cli *c, const lh_trace *p, const lh_trace *m,
                            cli_difference *d)
{
    pair both = {0};
    lh_status status = sort_pair(c, p->runs, p->n_runs, m->runs, m->n_runs,
                                 sizeof *p->runs, compare_runs, &both);
    uint32_t i = 0, j = 0;
    while (status == LH_OK && i < p->n_runs && j < m->n_runs) {
        int order = compare_runs(&both.p[i], &both.m[j]);
        if (order == 0)
            match_run(d, both.p[i], both.m[j]);
        i += order <= 0;
        j += order >= 0;
    }
    free(both.p);
    free(both.m);
    d->only_predicted = p->n_runs - d->n_passes;
    d->only_measured = m->n_runs - d->n_passes;
    return status;
}

static lh_status match_messages(cli *c, const lh_trace *p, const lh_trace *m,
                                cli_difference *d)
{
    pair both = {0};
    lh_status status =
        sort_pair(c, p->messages, p->n_messages, m->messages, m->n_messages,
                  sizeof *p->messages, compare_messages, &both);
    uint32_t i = 0, j = 0;
    while (status == LH_OK && i < p->n_messages && j < m->n_messages) {
        const lh_trace_message *x = both.p[i], *y = both.m[j];
        int order = compare_messages(&both.p[i], &both.m[j]);
        if (order == 0) {
            d->messages.n++;
            d->messages.predicted_ns += x->arrive_ns - x->ready_ns;
            d->messages.measured_ns += y->arrive_ns - y->ready_ns;
        }
        i += order <= 0;
        j += order >= 0;
    }
    free(both.p);
    free(both.m);
    return status;
}

lh_status cli_difference_make(cli *c, const lh_trace *predicted,
                              const lh_trace *measured, cli_difference *out)
{
    *out = (cli_difference){.there = true,
                            .predicted_ns = predicted->makespan_ns,
                            .measured_ns = measured->makespan_ns};
    CLI_TRY(match_runs(c, predicted, measured, out));
    if (out->n_passes == 0)
        return cli_error(c, LH_EINPUT,
                         "the predicted and the measured trace have no pass in "
                         "common; they are of different schedules");
    out->mean_start_ns /= (double)out->n_passes;
    return match_messages(c, predicted, measured, out);
}

/* --- showing
 * ------------------------------------------------------------------- */

static double percent(int64_t predicted, int64_t measured)
{
    return predicted ? 100 * ((double)measured / (double)predicted - 1) : 0;
}

static void print_kind(cli *c, const char *name, const cli_kind_difference *k)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    if (k->n)
        fprintf(c->out, "  %-10s %8" PRIu64 " %14s %14s %+8.2f %%\n", name,
                k->n, cli_time_text(k->predicted_ns / (int64_t)k->n, p),
                cli_time_text(k->measured_ns / (int64_t)k->n, m),
                percent(k->predicted_ns, k->measured_ns));
}

/* The median, and those that differ most from the prediction. */
static void print_iterations(cli *c, const cli_difference *d)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    if (!d->iterations)
        return;
    uint32_t worst = 0;
    for (uint32_t i = 1; i < d->n_iterations; i++)
        if (llabs(d->iterations[i].ns - d->predicted_ns) >
            llabs(d->iterations[worst].ns - d->predicted_ns))
            worst = i;
    fprintf(c->out, "  %-10s %8" PRIu32 " %14s %14s %+8.2f %%, median\n",
            "iterations", d->n_iterations, cli_time_text(d->predicted_ns, p),
            cli_time_text(d->median_ns, m),
            percent(d->predicted_ns, d->median_ns));
    fprintf(c->out, "  %-10s %8" PRIu64 " %14s %14s %+8.2f %%, at worst\n",
            "iteration", d->iterations[worst].step + 1,
            cli_time_text(d->predicted_ns, p),
            cli_time_text(d->iterations[worst].ns, m),
            percent(d->predicted_ns, d->iterations[worst].ns));
}

static json_t *iterations_json(const cli_difference *d)
{
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < d->n_iterations; i++) {
        const struct cli_logged *it = &d->iterations[i];
        json_t *one = json_pack(
            "{s:I, s:o, s:f}", "step", (json_int_t)it->step, "seconds",
            cli_seconds(it->ns), "error",
            percent(d->predicted_ns, it->ns) / 100);
        if (!one || json_array_append_new(all, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

void cli_difference_text(cli *c, const cli_difference *d)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    fprintf(c->out, "  %-10s %8s %14s %14s\n", "", "number", "predicted",
            "measured");
    fprintf(c->out, "  %-10s %8s %14s %14s %+8.2f %%\n", "makespan", "",
            cli_time_text(d->predicted_ns, p), cli_time_text(d->measured_ns, m),
            percent(d->predicted_ns, d->measured_ns));
    for (uint32_t i = 0; i <= LH_B; i++)
        print_kind(c, kind_names[i], &d->kinds[i]);
    print_kind(c, "messages", &d->messages);
    print_iterations(c, d);
    fprintf(c->out, "  passes start %s off on average, at worst %s (%s)\n",
            cli_time_text((int64_t)d->mean_start_ns, p),
            cli_time_text(d->worst_start_ns, m), d->worst);
    if (d->parts[0])
        fprintf(c->out,
                "  they part at %s on device %" PRIu32 ", predicted at %s: it "
                "starts %s %s%s\n",
                d->parts, d->parts_device, cli_time_text(d->parts_at_ns, p),
                cli_time_text(
                    d->parts_by_ns < 0 ? -d->parts_by_ns : d->parts_by_ns, m),
                d->parts_by_ns < 0 ? "earlier" : "later",
                d->parts_waits ? " (it waits for a message)" : "");
    if (d->only_predicted || d->only_measured)
        fprintf(c->out,
                "  not in both: %" PRIu64 " predicted, %" PRIu64
                " measured passes\n",
                d->only_predicted, d->only_measured);
    fputc('\n', c->out);
}

static json_t *kind_json(const cli_kind_difference *k)
{
    double n = k->n ? (double)k->n : 1;
    return json_pack("{s:I, s:f, s:f}", "n", (json_int_t)k->n, "predicted_s",
                     (double)k->predicted_ns / 1e9 / n, "measured_s",
                     (double)k->measured_ns / 1e9 / n);
}

json_t *cli_difference_json(const cli_difference *d, const char *report)
{
    json_t *all = json_pack("{s:s}", "report", report);
    if (!d->there || !all)
        return all;
    json_t *kinds = json_object();
    for (uint32_t i = 0; i <= LH_B; i++)
        if (d->kinds[i].n)
            json_object_set_new(kinds, kind_names[i], kind_json(&d->kinds[i]));
    json_t *more =
        json_pack("{s:o, s:o, s:f, s:I, s:I, s:I, s:f, s:o, s:s, s:o, s:o}",
                  "predicted_s", cli_seconds(d->predicted_ns), "measured_s",
                  cli_seconds(d->measured_ns), "error",
                  percent(d->predicted_ns, d->measured_ns) / 100, "passes",
                  (json_int_t)d->n_passes, "only_predicted",
                  (json_int_t)d->only_predicted, "only_measured",
                  (json_int_t)d->only_measured, "mean_start_error_s",
                  d->mean_start_ns / 1e9, "worst_start_error_s",
                  cli_seconds(d->worst_start_ns), "worst_pass", d->worst,
                  "kinds", kinds, "messages", kind_json(&d->messages));
    if (more && d->parts[0])
        json_object_set_new(more, "parts",
                            json_pack("{s:s, s:I, s:o, s:o}", "pass", d->parts,
                                      "device", (json_int_t)d->parts_device,
                                      "predicted_start_s",
                                      cli_seconds(d->parts_at_ns), "later_s",
                                      cli_seconds(d->parts_by_ns)));
    if (more && d->iterations &&
        (json_object_set_new(more, "median_s", cli_seconds(d->median_ns)) ||
         json_object_set_new(more, "iterations", iterations_json(d)))) {
        json_decref(more);
        more = NULL;
    }
    if (!more || json_object_update(all, more)) {
        json_decref(all);
        all = NULL;
    }
    json_decref(more);
    return all;
}

lh_status cli_difference_facts(cli *c, const cli_difference *d,
                               lh_report *report)
{
    char p[CLI_TIME_TEXT], text[160];
    snprintf(text, sizeof text, "%s, measured %+.2f %%",
             cli_time_text(d->predicted_ns, p),
             percent(d->predicted_ns, d->measured_ns));
    CLI_TRY(lh_report_add_fact(report, "predicted", text, &c->err));
    if (d->iterations) {
        snprintf(text, sizeof text, "%" PRIu32 ", median %s, %+.2f %%",
                 d->n_iterations, cli_time_text(d->median_ns, p),
                 percent(d->predicted_ns, d->median_ns));
        CLI_TRY(lh_report_add_fact(report, "iterations", text, &c->err));
    }
    if (d->parts[0]) {
        snprintf(text, sizeof text, "%s on device %" PRIu32 ", %s %s", d->parts,
                 d->parts_device,
                 cli_time_text(
                     d->parts_by_ns < 0 ? -d->parts_by_ns : d->parts_by_ns, p),
                 d->parts_by_ns < 0 ? "earlier" : "later");
        CLI_TRY(lh_report_add_fact(report, "they part at", text, &c->err));
    }
    snprintf(text, sizeof text, "%s on average",
             cli_time_text((int64_t)d->mean_start_ns, p));
    return lh_report_add_fact(report, "passes start off by", text, &c->err);
}
