/* SPDX-License-Identifier: Apache-2.0 */
#include "size_view.h"

#include "inputs.h"
#include "wrap.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Seconds per day and per hour. */
#define DAY_S 86400.0
#define HOUR_S 3600.0

/* Capacity for an amount or a duration as text, in bytes. */
enum { AMOUNT_TEXT = 40 };
/* Capacity for the description of a loss, in bytes. */
enum { LOSS_TEXT = 200 };

/* --- text ---------------------------------------------------------------- */

/* Formats an amount with three or more digits: "1.13 M", "750 K". */
static const char *format_amount(double x, char text[AMOUNT_TEXT])
{
    static const struct {
        double factor;
        const char *suffix;
    } units[] = {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (x >= 0.9995 * units[i].factor) {
            const double scaled = x / units[i].factor;
            snprintf(text, AMOUNT_TEXT, "%.*f%s",
                     scaled < 9.995   ? 2
                     : scaled < 99.95 ? 1
                                      : 0,
                     scaled, units[i].suffix);
            return text;
        }
    snprintf(text, AMOUNT_TEXT, "%.3g", x);
    return text;
}

/* Formats a duration: "18.3 days", "5.1 h", "12.0 min". */
static const char *format_duration(double s, char text[AMOUNT_TEXT])
{
    if (!isfinite(s))
        snprintf(text, AMOUNT_TEXT, "no end (failures stop all progress)");
    else if (s >= 2 * DAY_S)
        snprintf(text, AMOUNT_TEXT, "%.1f days", s / DAY_S);
    else if (s >= HOUR_S)
        snprintf(text, AMOUNT_TEXT, "%.1f h", s / HOUR_S);
    else
        snprintf(text, AMOUNT_TEXT, "%.1f min", s / 60);
    return text;
}

/* Prints the nodes of each datacenter in use. */
static void print_nodes(cli *c, const lh_job *job, const lh_size *size,
                        uint32_t spares)
{
    char text[2000] = "";
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        const size_t len = strlen(text);
        if (size->nodes[i] && len < sizeof text - 200)
            snprintf(text + len, sizeof text - len,
                     "%s%s %" PRIu32 " node%s of %" PRIu32 " %s",
                     len ? ", " : "", site->name, size->nodes[i],
                     size->nodes[i] > 1 ? "s" : "", site->gpus_per_node,
                     site->gpu.name);
    }
    const char *spot = size->spot ? "; spot capacity" : "";
    if (spares)
        cli_wrap(c, "where", "%s; %" PRIu32 " spare node%s in each%s", text,
                 spares, spares > 1 ? "s" : "", spot);
    else
        cli_wrap(c, "where", "%s%s", text, spot);
}

/* Prints the training time and its failures. */
static void print_time(cli *c, const lh_size_options *o, const lh_size *size)
{
    char days[AMOUNT_TEXT], limit[AMOUNT_TEXT], between[AMOUNT_TEXT],
        interval[AMOUNT_TEXT];
    const lh_goodput *g = &size->goodput;
    if (o->deadline_s > 0)
        cli_wrap(c, "time", "%s of %s (modelled)",
                 format_duration(size->train_s, days),
                 format_duration(o->deadline_s, limit));
    else
        cli_wrap(c, "time", "%s (modelled)",
                 format_duration(size->train_s, days));
    cli_wrap(c, "throughput",
             "%.0f tokens/s, iteration %.3f s; goodput %.0f "
             "tokens/s, %.1f %%",
             size->tokens_per_s, (double)size->iteration_ns / 1e9,
             size->tokens_per_s * g->fraction, 100 * g->fraction);
    if (!(g->failures_per_s > 0))
        return;
    if (g->interval_s > 0)
        cli_wrap(c, "failures", "one every %s; best checkpoint interval %s",
                 format_duration(1 / g->failures_per_s, between),
                 format_duration(g->interval_s, interval));
    else
        cli_wrap(c, "failures", "one every %s",
                 format_duration(1 / g->failures_per_s, between));
}

/* Prints the cost, if the job has prices. */
static void print_cost(cli *c, const lh_size *size)
{
    char usd[AMOUNT_TEXT], between[AMOUNT_TEXT];
    if (size->usd < 0 || !isfinite(size->usd))
        return;
    if (size->between_usd > 0)
        cli_wrap(c, "cost",
                 "USD %s, of which USD %s for traffic between "
                 "datacenters",
                 format_amount(size->usd, usd),
                 format_amount(size->between_usd, between));
    else
        cli_wrap(c, "cost", "USD %s", format_amount(size->usd, usd));
}

/* Returns the effect of a loss on the deadline, as an ending of a sentence. */
static const char *get_deadline_text(const lh_size_options *o,
                                     const lh_size_loss *loss)
{
    if (!(o->deadline_s > 0))
        return "";
    if (loss->meets_deadline)
        return ", still in time";
    if (o->failures->spares >= loss->nodes)
        return ", too late without the spares";
    return o->failures->spares ? ", too late: keep more spares (--spares)"
                               : ", too late: keep spares (--spares)";
}

/* Prints the consequence of losing nodes in each datacenter. */
static void print_losses(cli *c, const lh_job *job, const lh_size_options *o,
                         const lh_size *size)
{
    for (uint32_t i = 0; i < size->n_losses; i++) {
        const lh_size_loss *loss = &size->losses[i];
        char days[AMOUNT_TEXT], lost[LOSS_TEXT];
        snprintf(lost, sizeof lost, "%" PRIu32 " node%s of %.100s%s",
                 loss->nodes, loss->nodes > 1 ? "s" : "",
                 job->datacenters[loss->datacenter].name,
                 o->failures->spares ? " beyond its spares" : "");
        if (loss->train_s < 0)
            cli_wrap(c, i ? "" : "losses", "%s: no layout fits the rest", lost);
        else if (!isfinite(loss->train_s))
            cli_wrap(c, i ? "" : "losses", "%s: %s", lost,
                     format_duration(loss->train_s, days));
        else
            cli_wrap(c, i ? "" : "losses",
                     "%s for the whole run: %s (%+.1f %%) with a new plan%s",
                     lost, format_duration(loss->train_s, days),
                     100 * (loss->train_s / size->train_s - 1),
                     get_deadline_text(o, loss));
    }
}

/* Prints the degrees of a layout. */
static void print_layout(cli *c, const lh_layout *l)
{
    char more[AMOUNT_TEXT] = "";
    int len = 0;
    if (l->context > 1)
        len = snprintf(more, sizeof more, ", CP %" PRIu32, l->context);
    if (l->expert > 1)
        snprintf(more + len, sizeof more - (size_t)len, ", EP %" PRIu32,
                 l->expert);
    cli_wrap(c, "layout",
             "TP %" PRIu32 "%s, PP %" PRIu32 ", DP %" PRIu32 ", mb %" PRIu32,
             l->tensor, more, l->pipeline, l->data, l->micro_batch);
}

/* Prints one size under a heading. */
static void print_size(cli *c, const lh_job *job, const lh_size_options *o,
                       const lh_size *size, const char *title)
{
    cli_print(c, "\n");
    cli_wrap(c, title, "%" PRIu32 " GPUs", size->gpus + size->spare_gpus);
    print_nodes(c, job, size, o->failures->spares);
    print_time(c, o, size);
    print_cost(c, size);
    print_layout(c, &size->layout);
    print_losses(c, job, o, size);
}

/* Prints how sure the result is. */
static void print_certainty(cli *c, const lh_size_result *r)
{
    char usd[AMOUNT_TEXT];
    cli_print(c, "\n");
    cli_wrap(c, "certainty", "%s; %" PRIu32 " of %.0f sizes planned",
             r->all_planned
                 ? "best found of all sizes; a bound excludes those not planned"
                 : "best found",
             r->n_planned, r->n_sizes);
    if (!r->gpus_bound)
        cli_wrap(c, "",
                 "no size in the ranges can meet the requirements "
                 "(proven for the cost model)");
    else if (r->usd_bound > 0)
        cli_wrap(c, "",
                 "no size with fewer than %" PRIu32
                 " GPUs or below USD %s meets the requirements (proven "
                 "for the cost model)",
                 r->gpus_bound, format_amount(r->usd_bound, usd));
    else
        cli_wrap(c, "",
                 "no size with fewer than %" PRIu32
                 " GPUs meets the requirements (proven for the cost "
                 "model)",
                 r->gpus_bound);
}

/* Prints the result as text. */
static lh_status print_text(cli *c, const lh_job *job, const lh_size_options *o,
                            const lh_size_result *r)
{
    char tokens[AMOUNT_TEXT];
    const double per_iteration =
        (double)job->training.global_batch * job->training.sequence;
    cli_print(c, "%s\n\n", job->name);
    cli_wrap(c, "training",
             "%s tokens, %.0f iterations of %" PRIu32 " sequences of %" PRIu32
             " tokens",
             format_amount(o->tokens, tokens), ceil(o->tokens / per_iteration),
             job->training.global_batch, job->training.sequence);
    if (!r->n_found) {
        cli_wrap(c, "result",
                 "no planned size meets the requirements; this is the "
                 "fastest of them");
        print_size(c, job, o, &r->fewest, "fastest");
    } else if (r->n_found == 1) {
        print_size(c, job, o, &r->fewest,
                   r->fewest.usd < 0 ? "fewest" : "best");
    } else {
        print_size(c, job, o, &r->fewest, "fewest");
        print_size(c, job, o, &r->cheapest, "cheapest");
    }
    print_certainty(c, r);
    if (c->common.output && r->n_found)
        cli_print(c, "\nnext          longhaul plan %s\n", c->common.output);
    return LH_OK;
}

/* --- JSON ---------------------------------------------------------------- */

/* Returns a number, or null if it is negative (unknown) or infinite. */
static json_t *known_json(double x)
{
    return x < 0 || !isfinite(x) ? json_null() : json_real(x);
}

/* Returns the datacenters in use as a list. */
static json_t *nodes_json(cli *c, const lh_job *job, const lh_size *size)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        if (size->nodes[i])
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:I, s:I}", "datacenter",
                                cli_utf8_name(c, site->name), "gpu",
                                cli_utf8_name(c, site->gpu.name), "nodes",
                                (json_int_t)size->nodes[i], "gpus_per_node",
                                (json_int_t)site->gpus_per_node));
    }
    return list;
}

/* Returns the losses of nodes as a list. */
static json_t *losses_json(cli *c, const lh_job *job, const lh_size *size)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < size->n_losses; i++) {
        const lh_size_loss *x = &size->losses[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:o, s:o, s:b}", "datacenter",
                      cli_utf8_name(c, job->datacenters[x->datacenter].name),
                      "nodes", (json_int_t)x->nodes, "iteration_s",
                      known_json(x->iteration_s), "train_s",
                      known_json(x->train_s), "meets_deadline",
                      x->meets_deadline));
    }
    return list;
}

/* Returns one size as JSON. */
static json_t *size_json(cli *c, const lh_job *job, const lh_size *size)
{
    const lh_layout *l = &size->layout;
    const lh_goodput *g = &size->goodput;
    return json_pack(
        "{s:I, s:I, s:b, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:f, s:f, "
        "s:{s:f, s:f, s:f, s:f, s:f, s:f}, s:o, s:o, s:o, s:o, s:o}",
        "gpus", (json_int_t)size->gpus, "spare_gpus",
        (json_int_t)size->spare_gpus, "spot", size->spot, "datacenters",
        nodes_json(c, job, size), "layout", "tensor", (json_int_t)l->tensor,
        "context", (json_int_t)l->context, "expert", (json_int_t)l->expert,
        "pipeline", (json_int_t)l->pipeline, "data", (json_int_t)l->data,
        "micro_batch", (json_int_t)l->micro_batch, "iteration_s",
        (double)size->iteration_ns / 1e9, "tokens_per_s", size->tokens_per_s,
        "goodput", "fraction", g->fraction, "tokens_per_s",
        size->tokens_per_s * g->fraction, "progress", g->progress, "speed",
        g->speed, "failures_per_day", g->failures_per_s * DAY_S,
        "checkpoint_interval_s", g->interval_s, "train_s",
        known_json(size->train_s), "usd", known_json(size->usd), "gpus_usd",
        known_json(size->gpus_usd), "between_usd",
        known_json(size->between_usd), "losses", losses_json(c, job, size));
}

/* Prints the result as JSON. */
static lh_status print_json(cli *c, const lh_job *job, const lh_size_options *o,
                            const lh_size_result *r)
{
    json_t *object = json_pack(
        "{s:f, s:o, s:o, s:b, s:f, s:I, s:b, s:o, s:o}", "tokens", o->tokens,
        "deadline_s",
        o->deadline_s > 0 ? json_real(o->deadline_s) : json_null(),
        "budget_usd",
        o->budget_usd > 0 ? json_real(o->budget_usd) : json_null(), "found",
        r->n_found > 0, "sizes", r->n_sizes, "planned",
        (json_int_t)r->n_planned, "all_planned", r->all_planned, "gpus_bound",
        r->gpus_bound ? json_integer(r->gpus_bound) : json_null(), "usd_bound",
        r->usd_bound > 0 ? json_real(r->usd_bound) : json_null());
    if (object && r->n_found) {
        json_object_set_new(object, "fewest", size_json(c, job, &r->fewest));
        json_object_set_new(object, "cheapest",
                            size_json(c, job, &r->cheapest));
    } else if (object) {
        json_object_set_new(object, "fastest", size_json(c, job, &r->fewest));
    }
    return cli_put_json(c, object);
}

lh_status cli_print_size(cli *c, const lh_job *job, const lh_size_options *o,
                         const lh_size_result *result)
{
    return c->common.json ? print_json(c, job, o, result)
                          : print_text(c, job, o, result);
}
