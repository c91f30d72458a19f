/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_comparison.h"

#include "inputs.h"
#include "plan_explanation.h"
#include "plan_screen.h"
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Maximum number of rows; capacity for a cell's text in bytes; kinds of memory;
 * capacity for a plan's summary in bytes. */
enum { ROWS = 96, TEXT = 200, MEMORY_KINDS = 6, HEAD = CLI_SITES_TEXT + TEXT };

/* The comparison's rows and storage for their texts. */
typedef struct pair {
    const lh_plan *plans[2];
    uint32_t n;
    lh_report_difference rows[ROWS];
    char texts[ROWS][2][CLI_SITES_TEXT];
    char changes[ROWS][40];
} pair;

/* Direction that counts as better. */
typedef enum preference {
    NEITHER,
    LESS,
    MORE,
} preference;

/* Appends a row called `name`, without values, to section `group` of the
 * comparison between two plans; its texts are buffers in `p`. */
static lh_report_difference *add_row(pair *p, const char *group,
                                     const char *name)
{
    lh_report_difference *row = &p->rows[p->n];
    *row = (lh_report_difference){.group = group,
                                  .name = name,
                                  .first = p->texts[p->n][0],
                                  .second = p->texts[p->n][1],
                                  .change = p->changes[p->n]};
    p->n++;
    return row;
}

/* Sets the last row's change, as in "+2.1 %" from values[0] to values[1], and
 * whether that is better by `wanted`; nothing if the change is below 0.05 % or
 * values[0] is 0. */
static void add_change(pair *p, const double values[2], preference wanted)
{
    lh_report_difference *row = &p->rows[p->n - 1];
    const double by = values[0] > 0 ? 100 * (values[1] / values[0] - 1) : 0;
    if (fabs(by) < 0.05)
        return;
    snprintf(p->changes[p->n - 1], sizeof p->changes[0], "%s%.1f %%",
             by < 0 ? "\u2212" : "+", fabs(by));
    row->better = wanted == NEITHER ? 0 : (wanted == MORE) == (by > 0) ? 1 : -1;
}

/* Appends a row of texts, of the `first` and the `second` plan, to `group` of
 * two plans' comparison; NULL is empty. */
static void add_words(pair *p, const char *group, const char *name,
                      const char *first, const char *second)
{
    add_row(p, group, name);
    snprintf(p->texts[p->n - 1][0], CLI_SITES_TEXT, "%s", first ? first : "");
    snprintf(p->texts[p->n - 1][1], CLI_SITES_TEXT, "%s", second ? second : "");
}

/* Appends a row with counts, from the `first` and the `second` plan, to `group`
 * in the comparison between two plans. */
static void add_count(pair *p, const char *group, const char *name,
                      uint64_t first, uint64_t second)
{
    add_row(p, group, name);
    snprintf(p->texts[p->n - 1][0], TEXT, "%" PRIu64, first);
    snprintf(p->texts[p->n - 1][1], TEXT, "%" PRIu64, second);
}

/* Appends a row for two numbers with `digits` decimals and a unit to `group` in
 * the comparison; values below 0 are absent. `wanted`: the better direction. */
static void add_real(pair *p, const char *group, const char *name,
                     const double values[2], int digits, const char *unit,
                     preference wanted)
{
    add_row(p, group, name);
    for (int i = 0; i < 2; i++)
        if (values[i] >= 0)
            snprintf(p->texts[p->n - 1][i], TEXT, "%.*f%s", digits, values[i],
                     unit);
        else
            snprintf(p->texts[p->n - 1][i], TEXT, "-");
    if (values[0] >= 0 && values[1] >= 0)
        add_change(p, values, wanted);
}

/* Appends a row with two times in ns, both printed in the first plan's unit, to
 * `group` in the comparison. `wanted`: the better direction. */
static void add_time(pair *p, const char *group, const char *name,
                     const double ns[2], preference wanted)
{
    add_row(p, group, name);
    for (int i = 0; i < 2; i++)
        cli_plan_time(p->plans[0], ns[i], p->texts[p->n - 1][i]);
    if (ns[0] >= 0 && ns[1] >= 0)
        add_change(p, ns, wanted);
}

/* Appends a row with memory in bytes, from the `first` and the `second` plan,
 * with its change to `group` in the comparison. `wanted`: the better
 * direction. */
static void add_bytes(pair *p, const char *group, const char *name,
                      int64_t first, int64_t second, preference wanted)
{
    const double values[2] = {(double)first, (double)second};
    add_row(p, group, name);
    cli_memory_text(first, "bytes", p->texts[p->n - 1][0]);
    cli_memory_text(second, "bytes", p->texts[p->n - 1][1]);
    add_change(p, values, wanted);
}

/* --- groups ------------------------------------------------------------- */

/* Appends rows about the jobs to the comparison: model, cluster and source of
 * times, since plans for different jobs may differ for these reasons alone. */
static void add_job(pair *p)
{
    static const char *const group = "job";
    const lh_job *a = p->plans[0]->job, *b = p->plans[1]->job;
    char texts[2][CLI_SITES_TEXT];
    add_words(p, group, "model", a->model->name, b->model->name);
    for (int i = 0; i < 2; i++)
        cli_params_text(lh_model_params(p->plans[i]->job->model), texts[i],
                        sizeof texts[i]);
    add_words(p, group, "parameters", texts[0], texts[1]);
    for (int i = 0; i < 2; i++)
        cli_plan_gpus_text(p->plans[i], texts[i], sizeof texts[i]);
    add_words(p, group, "GPUs of the job, by type", texts[0], texts[1]);
    add_count(p, group, "sequences per iteration", a->training.global_batch,
              b->training.global_batch);
    add_count(p, group, "tokens per sequence", a->training.sequence,
              b->training.sequence);
    for (int i = 0; i < 2; i++)
        cli_precision_text(p->plans[i]->job, texts[i], sizeof texts[i]);
    add_words(p, group, "precision", texts[0], texts[1]);
    add_words(p, group, "pass times from", p->plans[0]->cost_source,
              p->plans[1]->cost_source);
    add_words(p, group, "profile", a->profile ? a->profile->name : "-",
              b->profile ? b->profile->name : "-");
}

/* Appends the layout rows: degrees, datacenters, placement, schedule, sharding
 * and recomputation. */
static void add_layout(pair *p)
{
    static const char *const group = "layout";
    static const char *const outermost[] = {[LH_OUTERMOST_PIPELINE] =
                                                "pipeline",
                                            [LH_OUTERMOST_DATA] = "data",
                                            [LH_OUTERMOST_MIXED] = "mixed"};
    static const char *const packing[] = {[LH_PACKING_ANY] = "dense",
                                          [LH_PACKING_DENSE] = "dense",
                                          [LH_PACKING_ALIGNED] = "aligned"};
    const lh_choice *a = &p->plans[0]->best, *b = &p->plans[1]->best;
    const lh_layout *x = &a->layout, *y = &b->layout;
    char sites[2][CLI_SITES_TEXT] = {"", ""};
    char sizes[2][CLI_MICRO_BATCH_TEXT];
    for (int i = 0; i < 2; i++)
        if (p->plans[i]->best.layout.sites)
            cli_sites_text(p->plans[i]->job, p->plans[i]->best.layout.sites,
                           sites[i], sizeof sites[i]);
    add_count(p, group, "GPUs in use", lh_plan_gpus(p->plans[0]),
              lh_plan_gpus(p->plans[1]));
    add_count(p, group, "tensor", x->tensor, y->tensor);
    add_count(p, group, "context", x->context, y->context);
    add_count(p, group, "expert", x->expert, y->expert);
    add_count(p, group, "pipeline", x->pipeline, y->pipeline);
    add_count(p, group, "chunks per device", x->chunks_per_device,
              y->chunks_per_device);
    add_count(p, group, "data", x->data, y->data);
    add_words(p, group, "sequences per microbatch",
              cli_micro_batch_text(x, sizes[0]),
              cli_micro_batch_text(y, sizes[1]));
    add_count(p, group, "microbatches", a->microbatches, b->microbatches);
    add_words(p, group, "outermost", outermost[x->outermost],
              outermost[y->outermost]);
    add_words(p, group, "rank order", outermost[lh_layout_rank_order(x)],
              outermost[lh_layout_rank_order(y)]);
    add_words(p, group, "packing on nodes", packing[x->packing],
              packing[y->packing]);
    add_words(p, group, "datacenters", sites[0], sites[1]);
    add_words(p, group, "chunks placed as", lh_placement_name(a->placement),
              lh_placement_name(b->placement));
    add_words(p, group, "schedule", x->schedule, y->schedule);
    add_count(p, group, "ZeRO", a->zero, b->zero);
    add_words(p, group, "sharding", lh_sharding_name(x->sharding),
              lh_sharding_name(y->sharding));
    add_words(p, group, "recomputed", lh_recompute_name(a->recompute),
              lh_recompute_name(b->recompute));
}

/* Appends both iterations' breakdowns, if both plans have one. */
static void add_parts(pair *p)
{
    lh_report_breakdown_part parts[2][CLI_BREAKDOWN_PARTS];
    if (!p->plans[0]->breakdown || !p->plans[1]->breakdown)
        return;
    for (int i = 0; i < 2; i++)
        cli_breakdown_parts(p->plans[i]->breakdown, parts[i]);
    for (int k = 0; k < CLI_BREAKDOWN_PARTS; k++) {
        const double ns[2] = {(double)parts[0][k].ns, (double)parts[1][k].ns};
        add_time(p, "breakdown", parts[0][k].name, ns, LESS);
    }
}

/* Appends the rows for times, rates, utilisation and bubble, and for jitter and
 * cost if both plans have them. */
static void add_speed(pair *p)
{
    static const char *const group = "iteration";
    const lh_choice *a = &p->plans[0]->best, *b = &p->plans[1]->best;
    const double took[] = {(double)a->iteration_ns, (double)b->iteration_ns};
    const double passes[] = {(double)a->makespan_ns, (double)b->makespan_ns};
    const double bound[] = {(double)a->lower_bound_ns,
                            (double)b->lower_bound_ns};
    const double rate[] = {a->tokens_per_s, b->tokens_per_s};
    const double mfu[] = {100 * a->mfu, 100 * b->mfu};
    const double bubble[] = {100 * a->bubble_ratio, 100 * b->bubble_ratio};
    const double days[] = {1e12 / a->tokens_per_s / 86400,
                           1e12 / b->tokens_per_s / 86400};
    add_time(p, group, "iteration", took, LESS);
    add_time(p, group, "pipeline", passes, LESS);
    add_time(p, group, "lower bound of the layout and its layer partition",
             bound, NEITHER);
    add_row(p, group, "tokens per second");
    for (int i = 0; i < 2; i++)
        cli_grouped_text(rate[i], p->texts[p->n - 1][i]);
    add_change(p, rate, MORE);
    add_real(p, group, "days per trillion tokens", days, 1, "", LESS);
    add_real(p, group, "model FLOPs utilisation", mfu, 1, " %", MORE);
    add_real(p, group, "bubble", bubble, 1, " %", LESS);
    if (a->jitter && b->jitter) {
        const double mean[] = {a->jitter->mean_ns, b->jitter->mean_ns};
        const double p95[] = {(double)a->jitter->p95_ns,
                              (double)b->jitter->p95_ns};
        add_time(p, group, "mean with jitter", mean, LESS);
        add_time(p, group, "95 % with jitter within", p95, LESS);
    }
    if (a->cost && b->cost) {
        const double usd[] = {a->cost->usd_per_1e9_tokens,
                              b->cost->usd_per_1e9_tokens};
        add_real(p, group, "USD per 10^9 tokens", usd, 2, "", LESS);
    }
}

/* Appends the memory rows for each plan's fullest device, in bytes. */
static void add_memory(pair *p)
{
    static const char *const group = "memory of the fullest device";
    const lh_choice *a = &p->plans[0]->best, *b = &p->plans[1]->best;
    const lh_plan_memory *x = cli_plan_fullest_device(p->plans[0]),
                         *y = cli_plan_fullest_device(p->plans[1]);
    add_bytes(p, group, "peak", a->peak_memory_bytes, b->peak_memory_bytes,
              LESS);
    add_bytes(p, group, "limit", a->memory_limit_bytes, b->memory_limit_bytes,
              NEITHER);
    if (!x || !y)
        return;
    const struct {
        const char *name;
        int64_t first, second;
    } kinds[MEMORY_KINDS] = {
        {"parameters", x->parameters_bytes, y->parameters_bytes},
        {"gradients", x->gradients_bytes, y->gradients_bytes},
        {"optimizer", x->optimizer_bytes, y->optimizer_bytes},
        {"activations", x->activations_bytes, y->activations_bytes},
        {"buffers", x->buffers_bytes, y->buffers_bytes},
        {"temporary", x->temporary_bytes, y->temporary_bytes}};
    for (int k = 0; k < MEMORY_KINDS; k++)
        add_bytes(p, group, kinds[k].name, kinds[k].first, kinds[k].second,
                  NEITHER);
}

/* Computes the GB per iteration that a plan sends between datacenters:
 * *messages by the pipeline, *data by data parallelism, *experts by expert
 * parallelism. */
static void count_sent(const lh_plan *plan, double *messages, double *data,
                       double *experts)
{
    for (uint32_t i = 0; i < plan->n_network; i++) {
        const lh_link_advice *link = &plan->network[i];
        *messages += (double)link->messages * (double)link->message_bytes / 1e9;
        *data += (double)link->data_bytes / 1e9;
        *experts += (double)link->expert_bytes / 1e9;
    }
}

/* Appends the volume sent between datacenters per iteration, in GB. */
static void add_communication(pair *p)
{
    static const char *const group = "sent between datacenters per iteration";
    double messages[2] = {0}, data[2] = {0}, experts[2] = {0};
    for (int i = 0; i < 2; i++)
        count_sent(p->plans[i], &messages[i], &data[i], &experts[i]);
    add_real(p, group, "pipeline messages", messages, 2, " GB", NEITHER);
    add_real(p, group, "data parallelism", data, 2, " GB", NEITHER);
    add_real(p, group, "tokens for experts", experts, 2, " GB", NEITHER);
}

/* --- heading ------------------------------------------------------------ */

/* Adds one fact per plan to the report: iteration time, layout and schedule. */
static lh_status add_heads(cli *c, const pair *p, const char *const names[2],
                           lh_report *report)
{
    for (int i = 0; i < 2; i++) {
        const lh_plan *plan = p->plans[i];
        char layout[TEXT], took[CLI_TIME_TEXT], text[HEAD];
        snprintf(text, sizeof text, "%s of %s: %s, %s",
                 cli_plan_time(plan, (double)plan->best.iteration_ns, took),
                 plan->name,
                 cli_layout_text(&plan->best, layout, sizeof layout),
                 plan->best.layout.schedule);
        CLI_TRY(lh_report_add_fact(report, names[i], text, &c->err));
    }
    return LH_OK;
}

/* Adds a key figure called `title` to the report, from the comparison's row
 * with the name `row`: the first plan's value, and below it the second's with
 * the change. `names`: labels of the plans. */
static lh_status add_card(cli *c, const pair *p, const char *title,
                          const char *row, const char *const names[2],
                          lh_report *report)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const lh_report_difference *d = &p->rows[i];
        char more[2 * CLI_SITES_TEXT + 2 * TEXT];
        if (strcmp(d->name, row) != 0)
            continue;
        snprintf(more, sizeof more, "%.*s; %.*s: %s%s%s", TEXT, names[0], TEXT,
                 names[1], d->second, *d->change ? ", " : "", d->change);
        return lh_report_add_card(report, title, d->first, more, &c->err);
    }
    return LH_OK;
}

lh_status cli_compare_plans(cli *c, const lh_plan *const plans[2],
                            const char *const names[2], lh_report *report)
{
    pair *p = calloc(1, sizeof *p);
    if (!p)
        return cli_no_memory(c);
    p->plans[0] = plans[0];
    p->plans[1] = plans[1];
    add_speed(p);
    add_parts(p);
    add_job(p);
    add_layout(p);
    add_memory(p);
    add_communication(p);
    const lh_report_differences all = {.size = sizeof all,
                                       .first = names[0],
                                       .second = names[1],
                                       .n_rows = p->n,
                                       .rows = p->rows};
    static const char *const cards[][2] = {
        {"Iteration", "iteration"},
        {"Tokens per second", "tokens per second"},
        {"Model FLOPs utilisation", "model FLOPs utilisation"},
        {"Peak memory", "peak"}};
    lh_status status = add_heads(c, p, names, report);
    for (size_t i = 0; status == LH_OK && i < sizeof cards / sizeof *cards; i++)
        status = add_card(c, p, cards[i][0], cards[i][1], names, report);
    if (status == LH_OK)
        status = lh_report_add_differences(report, &all, &c->err);
    free(p);
    return status;
}
