/* SPDX-License-Identifier: Apache-2.0 */
#include "size_view.h"

#include "inputs.h"
#include "plan_screen.h"
#include "wrap.h"

#include <longhaul/experimental/json_output.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Seconds per day and per hour. */
#define DAY_S 86400.0
#define HOUR_S 3600.0

/* Capacity for an amount or a duration as text, in bytes. */
enum { AMOUNT_TEXT = 40 };
/* Capacity for a loss's description, in bytes. */
enum { LOSS_TEXT = 200 };
/* Capacity for the distance from the bounds, in bytes. */
enum { GAP_TEXT = 160 };

/* --- text ---------------------------------------------------------------- */

/* Formats an amount with three or more significant digits and a suffix K or M:
 * "1.13 M", "750 K". */
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

/* Formats a duration in the unit that suits the duration `like`. */
static const char *format_duration_like(double s, double like,
                                        char text[AMOUNT_TEXT])
{
    if (!isfinite(s))
        snprintf(text, AMOUNT_TEXT, "no end (failures stop all progress)");
    else if (s >= 1000 * 365 * DAY_S)
        snprintf(text, AMOUNT_TEXT, "more than 1000 years");
    else if (like >= 2 * DAY_S)
        snprintf(text, AMOUNT_TEXT, "%.1f days", s / DAY_S);
    else if (like >= HOUR_S)
        snprintf(text, AMOUNT_TEXT, "%.1f h", s / HOUR_S);
    else
        snprintf(text, AMOUNT_TEXT, "%.1f min", s / 60);
    return text;
}

/* Formats a duration: "18.3 days", "5.1 h", "12.0 min". */
static const char *format_duration(double s, char text[AMOUNT_TEXT])
{
    return format_duration_like(s, s, text);
}

/* Formats a time as an option's value, rounded down to a tenth of its unit:
 * "17.6d", "9.5h". */
static const char *format_option(double s, char text[AMOUNT_TEXT])
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{DAY_S, "d"}, {HOUR_S, "h"}, {60, "min"}, {1, "s"}};
    size_t i = 0;
    while (i < 3 && s < 2 * units[i].seconds)
        i++;
    snprintf(text, AMOUNT_TEXT, "%.1f%s", floor(10 * s / units[i].seconds) / 10,
             units[i].name);
    return text;
}

/* Prints the node count of each datacenter that a cluster size uses, then the
 * spare nodes per datacenter (`spares`) and whether it uses spot capacity. */
static void print_nodes(cli *c, const lh_job *job, const lh_size *size,
                        uint32_t spares)
{
    const char *title = "where";
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        if (!size->nodes[i])
            continue;
        cli_wrap(c, title, "%s: %" PRIu32 " node%s of %" PRIu32 " %s",
                 site->name, size->nodes[i], size->nodes[i] > 1 ? "s" : "",
                 site->gpus_per_node, site->gpu.name);
        title = "";
    }
    if (spares)
        cli_wrap(c, title, "and %" PRIu32 " spare node%s in each", spares,
                 spares > 1 ? "s" : "");
    if (size->spot)
        cli_wrap(c, title, "spot capacity");
}

/* Prints the accuracy of the modelled training time and, if the deadline is met
 * but the mean error may exceed it, the longer training time and the deadline
 * that allows for the error. */
static void print_time_accuracy(cli *c, const lh_job *job,
                                const lh_size_options *o, const lh_size *size)
{
    char days[AMOUNT_TEXT], deadline[AMOUNT_TEXT];
    cli_print_accuracy(c, job, size->accuracy);
    if (!size->accuracy || !(size->train_s <= o->deadline_s))
        return;
    const double longer = 1 + size->accuracy->mean_percent / 100;
    if (size->train_s * longer > o->deadline_s)
        cli_wrap(c, "",
                 "with %+.0f %% the run takes %s, beyond the deadline; allow "
                 "for the error by --deadline %s",
                 size->accuracy->mean_percent,
                 format_duration(size->train_s * longer, days),
                 format_option(o->deadline_s / longer, deadline));
}

/* Prints the mean number of missing nodes, and the iteration while one is
 * missing, if that was planned. */
static void print_missing(cli *c, const lh_size *size)
{
    const double missing = size->goodput.missing, s = size->node_loss_s;
    char rest[AMOUNT_TEXT * 2] = "training stops";
    if (s < 0 || missing < 0.001)
        return;
    if (isfinite(s))
        snprintf(rest, sizeof rest, "iterations take up to %.3f s (%+.0f %%)",
                 s, 100 * (s * 1e9 / (double)size->iteration_ns - 1));
    cli_wrap(c, "",
             "%.2g nodes are missing on average; %s while one is missing "
             "(--spares replace it)",
             missing, rest);
}

/* Prints the modelled training time against the deadline, its accuracy,
 * throughput, goodput, the failure and checkpoint intervals, and missing nodes.
 */
static void print_time(cli *c, const lh_job *job, const lh_size_options *o,
                       const lh_size *size)
{
    char days[AMOUNT_TEXT], limit[AMOUNT_TEXT], between[AMOUNT_TEXT],
        interval[AMOUNT_TEXT];
    const lh_goodput *g = &size->goodput;
    const double least = fmin(size->train_s, o->deadline_s);
    if (o->deadline_s > 0)
        cli_wrap(c, "time",
                 isfinite(size->train_s) ? "%s of %s (modelled)"
                                         : "%s; the deadline is %s (modelled)",
                 format_duration_like(size->train_s, least, days),
                 format_duration_like(o->deadline_s, least, limit));
    else
        cli_wrap(c, "time", "%s (modelled)",
                 format_duration(size->train_s, days));
    print_time_accuracy(c, job, o, size);
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
    print_missing(c, size);
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

/* Returns a sentence's end: whether the training still meets the deadline after
 * losing nodes (`loss`), and how many spares that needs; "" without a
 * deadline. */
static const char *get_deadline_text(const lh_size_options *o,
                                     const lh_size_loss *loss)
{
    if (!(o->deadline_s > 0))
        return "";
    if (loss->meets_deadline)
        return ", still in time";
    return o->failures->spares ? ", too late: keep more spares (--spares)"
                               : ", too late: keep spares (--spares)";
}

/* Formats the cost of the training after a loss of nodes as ", USD 8.10 M"; "":
 * no prices. */
static const char *format_loss_cost(const lh_size_loss *loss,
                                    char text[LOSS_TEXT])
{
    char usd[AMOUNT_TEXT];
    *text = '\0';
    if (loss->usd >= 0)
        snprintf(text, LOSS_TEXT, ", USD %s", format_amount(loss->usd, usd));
    return text;
}

/* Prints how many lost nodes the spare nodes replace and, for each datacenter
 * in use, the training time and whether the deadline is met if the number of
 * nodes in the options fails there beyond its spares for the whole run. */
static void print_losses(cli *c, const lh_job *job, const lh_size_options *o,
                         const lh_size *size)
{
    const uint32_t spares = o->failures->spares;
    if (spares > 0 && size->n_losses > 0)
        cli_wrap(c, "losses",
                 spares > 1 ? "the spare nodes replace up to %" PRIu32
                              " lost nodes of each datacenter"
                            : "the spare node replaces %" PRIu32
                              " lost node of each datacenter",
                 spares);
    for (uint32_t i = 0; i < size->n_losses; i++) {
        const lh_size_loss *loss = &size->losses[i];
        char days[AMOUNT_TEXT], cost[LOSS_TEXT], lost[LOSS_TEXT];
        const char *title = i > 0 || spares > 0 ? "" : "losses";
        snprintf(lost, sizeof lost, "%" PRIu32 "%s node%s of %.100s",
                 loss->nodes, spares > 0 ? " more" : "",
                 loss->nodes > 1 ? "s" : "",
                 job->datacenters[loss->datacenter].name);
        if (loss->train_s < 0)
            cli_wrap(
                c, title, "%s: %s", lost,
                loss->nodes *
                            job->datacenters[loss->datacenter].gpus_per_node ==
                        size->gpus
                    ? "no node is left"
                    : "no layout fits the rest");
        else if (!isfinite(loss->train_s))
            cli_wrap(c, title, "%s: %s", lost,
                     format_duration(loss->train_s, days));
        else
            cli_wrap(c, title,
                     "%s for the whole run: %s (%+.1f %%)%s with a new plan%s",
                     lost, format_duration(loss->train_s, days),
                     100 * (loss->train_s / size->train_s - 1),
                     format_loss_cost(loss, cost), get_deadline_text(o, loss));
    }
}

/* Prints the parallel degrees of the layout planned for a cluster size. */
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

/* Prints one cluster size under the heading `title`: nodes, layout, time and
 * failures, cost, and losses. */
static void print_size(cli *c, const lh_job *job, const lh_size_options *o,
                       const lh_size *size, const char *title)
{
    cli_print(c, "\n");
    cli_wrap(c, title, "%" PRIu32 " GPU%s", size->gpus + size->spare_gpus,
             size->gpus + size->spare_gpus > 1 ? "s" : "");
    print_nodes(c, job, size, o->failures->spares);
    print_time(c, job, o, size);
    print_cost(c, size);
    print_layout(c, &size->layout);
    print_losses(c, job, o, size);
}

/* Formats how much more or less an amount is than another, as "12 % less time".
 */
static void format_change(double x, double other, const char *of, char *text,
                          size_t room)
{
    snprintf(text, room, "%.0f %% %s %s", 100 * fabs(x / other - 1),
             x < other ? "less" : "more", of);
}

/* Prints a line with the GPUs, time and cost of a size. */
static void print_summary(cli *c, const char *title, const lh_size *x)
{
    char days[AMOUNT_TEXT], usd[AMOUNT_TEXT];
    cli_wrap(c, title, "%" PRIu32 " GPU%s: %s (modelled), USD %s",
             x->gpus + x->spare_gpus, x->gpus + x->spare_gpus > 1 ? "s" : "",
             format_duration(x->train_s, days), format_amount(x->usd, usd));
}

/* Prints the knee: its GPUs, time and cost, compared with the cheapest size
 * and, with a budget, the fastest. */
static void print_knee(cli *c, const lh_job *job, const lh_size_options *o,
                       const lh_size_result *r)
{
    char time[AMOUNT_TEXT], cost[AMOUNT_TEXT];
    const lh_size *x = &r->knee;
    if (!x->gpus)
        return;
    cli_print(c, "\n");
    print_summary(c, "knee", x);
    print_nodes(c, job, x, o->failures->spares);
    format_change(x->train_s, r->cheapest.train_s, "time", time, sizeof time);
    format_change(x->usd, r->cheapest.usd, "cost", cost, sizeof cost);
    cli_wrap(c, "", "%s for %s than the cheapest", time, cost);
    if (!(o->budget_usd > 0))
        return;
    format_change(x->train_s, r->fastest.train_s, "time", time, sizeof time);
    format_change(x->usd, r->fastest.usd, "cost", cost, sizeof cost);
    cli_wrap(c, "", "%s for %s than the fastest", cost, time);
}

/* Prints the command that plans the job written to the -o file: with a
 * deadline and prices of traffic the cheapest plan within the deadline, whose
 * iteration may be longer than the shortest. */
static void print_next(cli *c, const lh_size_options *o,
                       const lh_size_result *r)
{
    const lh_size *best = &r->cheapest;
    char how[AMOUNT_TEXT * 2] = "";
    if (o->deadline_s > 0 && best->between_usd > 0) {
        const double most_ns =
            fmax((double)best->iteration_ns,
                 (double)best->iteration_ns * o->deadline_s / best->train_s);
        const int64_t ns = (int64_t)fmin(most_ns, 1e18);
        snprintf(how, sizeof how,
                 " --objective cost --max-iteration %" PRId64 ".%09" PRId64 "s",
                 ns / 1000000000, ns % 1000000000);
    }
    cli_print(c,
              "\nnext          longhaul plan %s%s (searches longer, and may "
              "find a %s)\n",
              c->common.output, how,
              *how ? "cheaper plan" : "shorter iteration");
}

/* Prints the proven lower bounds on GPUs, cost and time, and how much of each
 * the optimum may save against the result, if a size meets the requirements. */
static void print_bounds(cli *c, const lh_size_options *o,
                         const lh_size_result *r)
{
    const uint32_t gpus = r->fewest.gpus + r->fewest.spare_gpus;
    char usd[AMOUNT_TEXT], cost[AMOUNT_TEXT + 20] = "";
    char fewer[GAP_TEXT] = "", cheaper[GAP_TEXT] = "";
    if (r->usd_bound > 0)
        snprintf(cost, sizeof cost, " and USD %s",
                 format_amount(r->usd_bound, usd));
    if (gpus <= r->gpus_bound)
        snprintf(fewer, GAP_TEXT, "; no size has fewer GPUs than the result");
    else
        snprintf(fewer, GAP_TEXT,
                 "; the best size may have %" PRIu32 " GPU%s (%.1f %%) fewer",
                 gpus - r->gpus_bound, gpus - r->gpus_bound > 1 ? "s" : "",
                 100 * (1 - (double)r->gpus_bound / gpus));
    if (r->usd_bound > 0 && r->cheapest.usd > r->usd_bound)
        snprintf(cheaper, GAP_TEXT, "; the cheapest may cost %.0f %% less",
                 100 * (1 - r->usd_bound / r->cheapest.usd));
    if (!(o->deadline_s > 0))
        cli_wrap(c, "", "at least%s are required (proven for the cost model)%s",
                 cost + (r->usd_bound > 0 ? strlen(" and") : 0), cheaper);
    else
        cli_wrap(
            c, "",
            "at least %" PRIu32 " GPU%s%s are required (proven for the cost "
            "model)%s%s",
            r->gpus_bound, r->gpus_bound > 1 ? "s" : "", cost, fewer, cheaper);
    if (o->budget_usd > 0 && r->fastest.train_s > 0)
        cli_wrap(c, "",
                 "no size within the budget takes less than %s (proven for the "
                 "cost model); the fastest may take %.1f %% less",
                 format_duration(r->train_bound_s, usd),
                 100 * fmax(0, 1 - r->train_bound_s / r->fastest.train_s));
}

/* Prints, if no planned size meets the requirements, whether that is proven for
 * all sizes, or the lower bounds on the GPUs and cost of one that does. */
static void print_bounds_of_missing(cli *c, const lh_size_options *o,
                                    const lh_size_result *r)
{
    char usd[AMOUNT_TEXT], least[GAP_TEXT] = "";
    if (!r->gpus_bound || (o->budget_usd > 0 && !(r->usd_bound > 0))) {
        cli_wrap(c, "",
                 "no size in the ranges can meet the requirements (proven for "
                 "the cost model)");
        return;
    }
    int len = 0;
    if (o->deadline_s > 0)
        len = snprintf(least, sizeof least, "%" PRIu32 " GPU%s", r->gpus_bound,
                       r->gpus_bound > 1 ? "s" : "");
    if (r->usd_bound > 0)
        snprintf(least + len, sizeof least - (size_t)len, "%sUSD %s",
                 len ? " and " : "", format_amount(r->usd_bound, usd));
    cli_wrap(c, "",
             "not proven impossible: a size that meets the requirements needs "
             "at least %s (proven for the cost model)",
             least);
}

/* Prints whether the result is the best of all cluster sizes, how many of them
 * were planned, and the proven bounds. */
static void print_certainty(cli *c, const lh_size_options *o,
                            const lh_size_result *r)
{
    cli_print(c, "\n");
    const char *found =
        r->interrupted   ? "interrupted; best found so far, without bounds"
        : r->n_found     ? r->all_planned ? "best found of all sizes; a bound "
                                            "excludes those not planned"
                                          : "best found"
        : r->all_planned ? "no size found; a bound excludes those not planned"
                         : "no size found";
    cli_wrap(c, "certainty", "%s; %" PRIu32 " of %.0f sizes planned", found,
             r->n_planned, r->n_sizes);
    if (r->interrupted)
        return;
    if (r->n_found)
        print_bounds(c, o, r);
    else
        print_bounds_of_missing(c, o, r);
}

/* Prints the sizes that meet the requirements: without a deadline only a line
 * on the one with the fewest GPUs, which takes longest. */
static void print_found(cli *c, const lh_job *job, const lh_size_options *o,
                        const lh_size_result *r)
{
    const bool two = r->n_found == 2, fewest = o->deadline_s > 0 && two;
    const bool fastest = o->budget_usd > 0 && r->fastest.usd > r->cheapest.usd;
    if (fewest)
        print_size(c, job, o, &r->fewest, "fewest");
    if (fastest)
        print_size(c, job, o, &r->fastest, "fastest");
    print_size(c, job, o, &r->cheapest,
               r->cheapest.usd < 0 ? "fewest"
               : fewest || fastest ? "cheapest"
                                   : "best");
    if (two && !fewest) {
        cli_print(c, "\n");
        print_summary(c, "fewest", &r->fewest);
    }
}

/* Prints that no planned size meets the requirements, and the remedies: for
 * lost nodes or lost work, if only failures exceed the deadline; otherwise
 * other requirements. */
static void print_not_found(cli *c, const lh_size_options *o,
                            const lh_size_result *r)
{
    const lh_goodput *g = &r->fastest.goodput;
    const double running_s = o->tokens / r->fastest.tokens_per_s;
    const bool late = r->fastest.train_s > o->deadline_s && o->deadline_s > 0;
    char days[AMOUNT_TEXT], cause[GAP_TEXT] = "";
    const char *help =
        late && o->budget_usd > 0
            ? "More nodes (--nodes), a later deadline or a higher budget"
        : late ? "More nodes (--nodes) or a later deadline"
               : "A higher budget";
    if (!isfinite(r->fastest.train_s) || (late && running_s <= o->deadline_s)) {
        snprintf(cause, sizeof cause, "Without failures it takes %s. ",
                 format_duration(running_s, days));
        help = g->speed < g->progress
                   ? "Spare nodes (--spares) or a shorter repair (--repair)"
                   : "Shorter checkpoints (--checkpoint) and restarts "
                     "(--restart)";
    }
    cli_wrap(c, "result",
             "no planned size meets the requirements; this is the "
             "fastest of them. %s%s may help",
             cause, help);
}

/* Prints the best cluster sizes, bounds and certainty as text. */
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
        print_not_found(c, o, r);
        print_size(c, job, o, &r->fastest, "fastest");
    } else {
        print_found(c, job, o, r);
        print_knee(c, job, o, r);
    }
    print_certainty(c, o, r);
    if (c->common.output && r->n_found)
        print_next(c, o, r);
    return LH_OK;
}

/* Prints the fewest and the cheapest cluster size, bounds and certainty as
 * JSON. */
static lh_status print_json(cli *c, const lh_job *job, const lh_size_options *o,
                            const lh_size_result *r)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_size_result_format(job, o, r, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

lh_status cli_print_size(cli *c, const lh_job *job, const lh_size_options *o,
                         const lh_size_result *result)
{
    return c->common.json ? print_json(c, job, o, result)
                          : print_text(c, job, o, result);
}
