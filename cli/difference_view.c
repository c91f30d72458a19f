/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the differences between a measured iteration and its prediction. */
#include "difference_view.h"
#include "inputs.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"F", "I", "W", "B"};

/* Returns by how many percent `measured` exceeds `predicted`; 0 if nothing was
 * predicted. */
static double compute_percent(int64_t predicted, int64_t measured)
{
    return predicted ? 100 * ((double)measured / (double)predicted - 1) : 0;
}

/* Returns by how many percent `measured` exceeds `predicted`, rounded to the
 * printed digits, so that -0.00 is not printed. */
static double compute_shown_percent(int64_t predicted, int64_t measured)
{
    return cli_round_for_text(compute_percent(predicted, measured), 2);
}

/* Prints the number and the mean predicted and measured times of one kind of
 * operation, called `name`; nothing if neither trace has any. */
static void print_kind(cli *c, const char *name, const lh_trace_share *k)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    if (k->n)
        cli_print(c, "  %-10s %8" PRIu64 " %14s %14s %+8.2f %%\n", name, k->n,
                  cli_time_text(k->predicted_ns / (int64_t)k->n, p),
                  cli_time_text(k->measured_ns / (int64_t)k->n, m),
                  compute_shown_percent(k->predicted_ns, k->measured_ns));
}

/* Prints the median measured iteration time, and the iterations in `log` that
 * differ most from the prediction. */
static void print_iterations(cli *c, const lh_trace_difference *d,
                             const lh_run_log *log)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    if (!log)
        return;
    uint32_t worst = 0;
    for (uint32_t i = 1; i < log->n_iterations; i++)
        if (llabs(log->iterations[i].ns - d->predicted_ns) >
            llabs(log->iterations[worst].ns - d->predicted_ns))
            worst = i;
    cli_print(c, "  %-10s %8" PRIu32 " %14s %14s %+8.2f %%, median\n",
              "iterations", log->n_iterations,
              cli_time_text(d->predicted_ns, p),
              cli_time_text(log->median_ns, m),
              compute_shown_percent(d->predicted_ns, log->median_ns));
    cli_print(
        c, "  %-10s %8" PRIu64 " %14s %14s %+8.2f %%, at worst\n", "iteration",
        log->iterations[worst].step + 1, cli_time_text(d->predicted_ns, p),
        cli_time_text(log->iterations[worst].ns, m),
        compute_shown_percent(d->predicted_ns, log->iterations[worst].ns));
}

/* Returns the logged iterations with their errors as a list; NULL: out of
 * memory. */
static json_t *make_iterations_json(const lh_trace_difference *d,
                                    const lh_run_log *log)
{
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < log->n_iterations; i++) {
        const lh_logged_iteration *it = &log->iterations[i];
        json_t *one = json_pack("{s:I, s:o, s:f}", "step", (json_int_t)it->step,
                                "seconds", cli_seconds(it->ns), "error",
                                compute_percent(d->predicted_ns, it->ns) / 100);
        if (!one || json_array_append_new(all, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

void cli_difference_text(cli *c, const lh_trace_difference *d, const char *how,
                         const lh_run_log *log)
{
    char p[CLI_TIME_TEXT], m[CLI_TIME_TEXT];
    if (how[0])
        cli_wrap(c, "measured", "%s", how);
    cli_print(c, "  %-10s %8s %14s %14s\n", "", "number", "predicted",
              "measured");
    cli_print(c, "  %-10s %8s %14s %14s %+8.2f %%\n", "makespan", "",
              cli_time_text(d->predicted_ns, p),
              cli_time_text(d->measured_ns, m),
              compute_shown_percent(d->predicted_ns, d->measured_ns));
    for (uint32_t i = 0; i <= LH_B; i++)
        print_kind(c, kind_names[i], &d->kinds[i]);
    print_kind(c, "messages", &d->messages);
    print_iterations(c, d, log);
    cli_print(c, "  start times differ by %s on average, at worst by %s (%s)\n",
              cli_time_text((int64_t)d->mean_start_ns, p),
              cli_time_text(d->worst_start_ns, m), d->worst);
    if (d->divergence[0])
        cli_print(
            c,
            "  first deviation: %s on device %" PRIu32 ", predicted at %s: it "
            "starts %s %s%s\n",
            d->divergence, d->divergence_device,
            cli_time_text(d->divergence_ns, p),
            cli_time_text(d->divergence_delay_ns < 0 ? -d->divergence_delay_ns
                                                     : d->divergence_delay_ns,
                          m),
            d->divergence_delay_ns < 0 ? "earlier" : "later",
            d->divergence_waits ? " (it waits for a message)" : "");
    if (d->n_only_predicted || d->n_only_measured)
        cli_print(c,
                  "  in one trace only: %" PRIu64 " predicted, %" PRIu64
                  " measured passes\n",
                  d->n_only_predicted, d->n_only_measured);
    cli_print(c, "\n");
}

/* Returns number and mean times of one kind of operation, in seconds, as
 * JSON. */
static json_t *kind_json(const lh_trace_share *k)
{
    double n = k->n ? (double)k->n : 1;
    return json_pack("{s:I, s:f, s:f}", "n", (json_int_t)k->n, "predicted_s",
                     (double)k->predicted_ns / 1e9 / n, "measured_s",
                     (double)k->measured_ns / 1e9 / n);
}

json_t *cli_difference_json(const lh_trace_difference *d, const lh_run_log *log,
                            const char *how, const char *report)
{
    json_t *all = json_pack("{s:s}", "report", report);
    if (!d || !all)
        return all;
    json_t *kinds = json_object();
    for (uint32_t i = 0; i <= LH_B; i++)
        if (d->kinds[i].n)
            json_object_set_new(kinds, kind_names[i], kind_json(&d->kinds[i]));
    json_t *more = json_pack(
        "{s:s, s:o, s:o, s:f, s:I, s:I, s:I, s:f, s:o, s:s, s:o, "
        "s:o}",
        "measured_as", how, "predicted_s", cli_seconds(d->predicted_ns),
        "measured_s", cli_seconds(d->measured_ns), "error",
        compute_percent(d->predicted_ns, d->measured_ns) / 100, "passes",
        (json_int_t)d->n_passes, "only_predicted",
        (json_int_t)d->n_only_predicted, "only_measured",
        (json_int_t)d->n_only_measured, "mean_start_error_s",
        d->mean_start_ns / 1e9, "worst_start_error_s",
        cli_seconds(d->worst_start_ns), "worst_pass", d->worst, "kinds", kinds,
        "messages", kind_json(&d->messages));
    if (more && d->divergence[0])
        json_object_set_new(
            more, "parts",
            json_pack("{s:s, s:I, s:o, s:o}", "pass", d->divergence, "device",
                      (json_int_t)d->divergence_device, "predicted_start_s",
                      cli_seconds(d->divergence_ns), "later_s",
                      cli_seconds(d->divergence_delay_ns)));
    if (more && log &&
        (json_object_set_new(more, "median_s", cli_seconds(log->median_ns)) ||
         json_object_set_new(more, "iterations",
                             make_iterations_json(d, log)))) {
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

lh_status cli_deviation_facts(cli *c, const lh_trace_difference *d,
                              lh_report *report)
{
    char p[CLI_TIME_TEXT], text[160];
    if (d->divergence[0]) {
        snprintf(text, sizeof text, "%s on device %" PRIu32 ", %s %s",
                 d->divergence, d->divergence_device,
                 cli_time_text(d->divergence_delay_ns < 0
                                   ? -d->divergence_delay_ns
                                   : d->divergence_delay_ns,
                               p),
                 d->divergence_delay_ns < 0 ? "earlier" : "later");
        CLI_TRY(lh_report_add_fact(report, "first deviation", text, &c->err));
    }
    snprintf(text, sizeof text, "%s on average",
             cli_time_text((int64_t)d->mean_start_ns, p));
    return lh_report_add_fact(report, "start times differ by", text, &c->err);
}

lh_status cli_difference_facts(cli *c, const lh_trace_difference *d,
                               const char *how, const lh_run_log *log,
                               lh_report *report)
{
    char p[CLI_TIME_TEXT], text[160];
    snprintf(text, sizeof text, "%s, measured %+.2f %%",
             cli_time_text(d->predicted_ns, p),
             compute_shown_percent(d->predicted_ns, d->measured_ns));
    CLI_TRY(lh_report_add_fact(report, "predicted", text, &c->err));
    if (how[0])
        CLI_TRY(lh_report_add_fact(report, "measured", how, &c->err));
    if (log) {
        snprintf(text, sizeof text, "%" PRIu32 ", median %s, %+.2f %%",
                 log->n_iterations, cli_time_text(log->median_ns, p),
                 compute_shown_percent(d->predicted_ns, log->median_ns));
        CLI_TRY(lh_report_add_fact(report, "iterations", text, &c->err));
    }
    return cli_deviation_facts(c, d, report);
}
