/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a plan in words: model, GPUs, layout, placement, runners-up. */
#include "jitter_view.h"
#include "plan_screen.h"
#include "plan_whatif.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum {
    NAME = 24, /* name columns in a list */
    SITES = 5, /* datacenters shown */
    LINKS = 2, /* links shown */
};

/* Text with separators between its parts. */
typedef struct words {
    char text[1200];
    size_t len;
} words;

static void add_words(words *w, const char *between, const char *format, ...)
    CLI_PRINTF(3, 4);

/* Appends formatted text to the buffer `w`, after the separator `between`
 * unless the buffer is empty. Truncates at the buffer's end. */
static void add_words(words *w, const char *between, const char *format, ...)
{
    va_list args;
    int len = snprintf(w->text + w->len, sizeof w->text - w->len, "%s",
                       w->len ? between : "");
    w->len += len > 0 ? (size_t)len : 0;
    if (w->len >= sizeof w->text)
        w->len = sizeof w->text - 1;
    va_start(args, format);
    len = vsnprintf(w->text + w->len, sizeof w->text - w->len, format, args);
    va_end(args);
    w->len += len > 0 ? (size_t)len : 0;
    if (w->len >= sizeof w->text)
        w->len = sizeof w->text - 1;
}

/* --- model and GPUs ----------------------------------------------------- */

const char *cli_params_text(uint64_t n, char *text, size_t room)
{
    const double x = (double)n;
    if (x >= 1e12)
        snprintf(text, room, "%.4g T", x / 1e12);
    else if (x >= 1e9)
        snprintf(text, room, "%.4g B", x / 1e9);
    else
        snprintf(text, room, "%.4g M", x / 1e6);
    return text;
}

const char *cli_precision_text(const lh_job *job, char *text, size_t room)
{
    snprintf(text, room, "%s%s", lh_precision_name(job->training.precision),
             job->framework.fp8 == LH_FP8_NONE     ? ""
             : job->framework.fp8 == LH_FP8_MATMUL ? ", products in FP8"
             : job->framework.fp8 == LH_FP8_HEAD
                 ? ", products and head in FP8"
                 : ", products and dispatch in FP8");
    return text;
}

/* Describes the model (parameters, layers) and the training (batch, sequence,
 * precision). */
static words describe_model(const lh_plan *p)
{
    const lh_model *m = p->job->model;
    const lh_training *t = &p->job->training;
    const uint64_t all = lh_model_params(m), active = lh_model_active_params(m);
    char name[4 * NAME + 4], a[20], b[20];
    words w = {0};
    add_words(&w, "", "%s: %s parameters",
              cli_shorten(m->name, NAME, name, sizeof name),
              cli_params_text(all, a, sizeof a));
    if (active < all)
        add_words(&w, ", ", "%s of them active",
                  cli_params_text(active, b, sizeof b));
    add_words(&w, ", ", "%" PRIu32 " layers", m->layers);
    char precision[60];
    add_words(&w, "; ", "%" PRIu32 " sequences of %" PRIu32 " tokens, %s",
              t->global_batch, t->sequence,
              cli_precision_text(p->job, precision, sizeof precision));
    return w;
}

/* Fills used[datacenter] with the plan's GPU count in each datacenter; false:
 * the plan does not assign its GPUs to datacenters. */
static bool count_gpus(const lh_plan *p, uint32_t *used)
{
    const lh_layout *l = &p->best.layout;
    if (p->job->n_datacenters == 1)
        used[0] = lh_plan_gpus(p);
    for (uint32_t g = 0; l->sites && g < l->sites->n_groups; g++) {
        const lh_site_group *group = &l->sites->groups[g];
        for (uint32_t i = 0; i < group->n_parts; i++)
            used[group->parts[i].datacenter] +=
                group->parts[i].stages * group->replicas * l->context *
                lh_layout_site_tensor(l, group->parts[i].datacenter);
    }
    return l->sites || p->job->n_datacenters == 1;
}

/* Appends the GPUs in use by type, each type once: "256 h100-sxm, 128
 * a100-80g". used[d]: number in datacenter d. */
static void add_kinds(words *w, const lh_plan *p, const uint32_t *used)
{
    const lh_datacenter *all = p->job->datacenters;
    for (uint32_t i = 0; i < p->job->n_datacenters; i++) {
        uint32_t n = 0, k = 0;
        while (strcmp(all[k].gpu.name, all[i].gpu.name) != 0)
            k++;
        for (uint32_t j = i; k == i && j < p->job->n_datacenters; j++)
            if (strcmp(all[j].gpu.name, all[i].gpu.name) == 0)
                n += used[j];
        char name[4 * NAME + 4];
        if (n)
            add_words(w, w->text[w->len - 1] == ':' ? " " : ", ",
                      "%" PRIu32 " %s", n,
                      cli_shorten(all[i].gpu.name, NAME, name, sizeof name));
    }
}

/* Describes the GPUs in use, by datacenter and kind. */
static words describe_gpus(const lh_plan *p)
{
    uint32_t used[LH_MAX_DATACENTERS] = {0};
    words w = {0};
    add_words(&w, "", "%" PRIu32 " of %" PRIu32, lh_plan_gpus(p),
              p->job->n_gpus);
    if (count_gpus(p, used)) {
        add_words(&w, "", ":");
        add_kinds(&w, p, used);
    }
    return w;
}

const char *cli_plan_gpus_text(const lh_plan *p, char *text, size_t room)
{
    snprintf(text, room, "%s", describe_gpus(p).text);
    return text;
}

void cli_plan_model(cli *c, const lh_plan *p)
{
    cli_wrap(c, "model", "%s", describe_model(p).text);
    cli_wrap(c, "GPUs", "%s", describe_gpus(p).text);
}

/* --- layout ------------------------------------------------------------- */

/* Appends a parallel degree above 1 with its meaning, as in 'CP 2 (context)'.
 */
static void add_degree(words *w, const char *name, uint32_t degree,
                       const char *meaning)
{
    if (degree > 1)
        add_words(w, ", ", "%s %" PRIu32 " (%s)", name, degree, meaning);
}

/* Appends the recomputed operations or modules; nothing without recomputation.
 */
static void add_recomputed(words *w, const lh_plan *p)
{
    if (p->best.recompute == LH_RECOMPUTE_NONE)
        return;
    if (p->best.recompute == LH_RECOMPUTE_OPERATIONS) {
        const lh_plan_elastic *e = p->best.elastic;
        for (uint32_t i = 0; i < e->n_recomputed; i++)
            add_words(w, i ? ", " : "; ", "%s%s",
                      i ? "" : "recomputed: ", e->recomputed[i].operation);
        return;
    }
    if (p->best.recompute != LH_RECOMPUTE_MODULES) {
        add_words(w, "; ", "%s recomputation",
                  lh_recompute_name(p->best.recompute));
        return;
    }
    add_words(w, "; ", "recomputed:");
    for (uint32_t i = 0; i < LH_N_MODULES; i++)
        if (p->job->training.recompute_modules >> i & 1)
            add_words(w, " ", "%s", lh_module_name((lh_module)i));
}

/* Checks whether all replica groups run in the same single datacenter. */
static bool is_single_site(const lh_sites *sites)
{
    for (uint32_t i = 0; sites && i < sites->n_groups; i++)
        if (sites->groups[i].n_parts != 1 ||
            sites->groups[i].parts[0].datacenter !=
                sites->groups[0].parts[0].datacenter)
            return false;
    return sites != NULL;
}

/* Appends the microbatch size in sequences; if replica groups have unequal
 * sizes, each size with its group's first datacenter. */
static void add_micro_batches(words *w, const lh_plan *p)
{
    const lh_layout *l = &p->best.layout;
    const lh_datacenter *all = p->job->datacenters;
    const uint32_t n = l->group_micro_batches ? l->sites->n_groups : 0;
    add_words(w, ", ", "mb ");
    for (uint32_t g = 0; g < n; g++)
        add_words(w, g ? ", " : "", "%" PRIu32 " in %s",
                  l->group_micro_batches[g],
                  all[l->sites->groups[g].parts[0].datacenter].name);
    if (!n)
        add_words(w, "", "%" PRIu32, l->micro_batch);
    add_words(w, " ", "(sequence%s per microbatch)",
              l->micro_batch > 1 ? "s" : "");
}

/* Appends the tensor degree; if datacenters have different ones, each with its
 * datacenter. */
static void add_tensors(words *w, const lh_plan *p)
{
    char text[CLI_SITE_TENSORS_TEXT];
    add_words(w, "", "TP %s (tensor)", cli_site_tensors_text(p, text));
}

/* Appends the layout in cli_layout_text() notation, each abbreviation with its
 * meaning. */
static void add_layout(words *w, const lh_plan *p)
{
    const lh_choice *b = &p->best;
    const lh_layout *l = &b->layout;
    add_tensors(w, p);
    add_degree(w, "CP", l->context, "context");
    add_degree(w, "EP", l->expert, "experts");
    if (l->expert > 1)
        add_degree(w, "ETP", l->expert_tensor, "GPUs per expert");
    add_words(w, ", ",
              "PP %" PRIu32 "x%" PRIu32 " (pipeline, %" PRIu32
              " chunk%s per device)",
              l->pipeline, l->chunks_per_device, l->chunks_per_device,
              l->chunks_per_device > 1 ? "s" : "");
    add_words(w, ", ", "DP %" PRIu32 " (data)", l->data);
    add_micro_batches(w, p);
    if (p->job->n_datacenters > 1)
        add_words(w, ", ", "%s",
                  is_single_site(l->sites) ? "all in one datacenter"
                  : l->outermost == LH_OUTERMOST_DATA
                      ? "DP-out (replicas in different datacenters)"
                  : l->outermost == LH_OUTERMOST_MIXED
                      ? "mixed (pipelines and replicas over datacenters)"
                      : "PP-out (pipelines over datacenters)");
    if (l->rank_order)
        add_words(w, ", ", "%s outermost in a datacenter's ranks",
                  lh_outermost_name(l->rank_order));
    if (l->packing)
        add_words(w, ", ", "%s",
                  l->packing == LH_PACKING_ALIGNED
                      ? "aligned to nodes (GPUs stay idle where a stage or "
                        "replica would straddle nodes)"
                      : "packed densely on nodes");
    add_words(w, ", ", "ZeRO %" PRIu32, b->zero);
    if (l->sharding > LH_SHARDING_FULL)
        add_words(w, ", ", "shards %s%s", lh_sharding_name(l->sharding),
                  l->data == 1 || is_single_site(l->sites)
                      ? " (nothing to divide between datacenters)"
                      : "");
    add_recomputed(w, p);
}

void cli_plan_layout(cli *c, const lh_plan *p)
{
    const lh_choice *b = &p->best;
    words w = {0};
    add_layout(&w, p);
    add_words(&w, "; ", "%" PRIu32 " microbatch%s", b->microbatches,
              b->microbatches == 1 ? "" : "es");
    cli_wrap(c, "layout", "%s", w.text);
    cli_wrap(c, "schedule", "%s, placement %s; bubble %.2f %%",
             b->layout.schedule, lh_placement_name(b->placement),
             100 * b->bubble_ratio);
}

/* --- placement ---------------------------------------------------------- */

/* Appends the layers from `begin` to before `end`: "0-19", or "60". */
static void add_range(words *w, uint32_t begin, uint32_t end)
{
    if (end - begin == 1)
        add_words(w, ", ", "%" PRIu32, begin);
    else
        add_words(w, ", ", "%" PRIu32 "-%" PRIu32, begin, end - 1);
}

/* Appends the model layers on n_devices devices from first_device on: "40
 * layers, 0-19 and 60-79". With two directions, copies of layers that are
 * listed do not count. */
static void add_layers(words *w, const lh_plan *p, uint32_t first_device,
                       uint32_t n_devices)
{
    enum { MOST = 3 }; /* ranges */
    words ranges = {0};
    uint32_t n = 0, n_ranges = 0, begin = 0, end = 0;
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(p->pipeline); i++) {
        const uint32_t device = lh_pipeline_chunk(p->pipeline, i)->device;
        uint32_t first, count;
        lh_plan_layers(p, i, &first, &count);
        if (device < first_device || device >= first_device + n_devices ||
            count == 0 || n == p->job->model->layers)
            continue;
        if (n > 0 && first != end && n_ranges++ < MOST)
            add_range(&ranges, begin, end);
        if (n == 0 || first != end)
            begin = first;
        end = first + count;
        n += count;
    }
    add_words(w, ": ", "%" PRIu32 " layer%s", n, n == 1 ? "" : "s");
    if (n > 1 && n < p->job->model->layers && n_ranges < MOST) {
        add_range(&ranges, begin, end);
        add_words(w, " ", "(%s)", ranges.text);
    }
}

/* Appends `stages` pipeline stages from `first` on with their replicas and
 * model layers: "stages 0-3 of 8 replicas: 40 layers (0-19, 60-79)". `tensor`:
 * the datacenter's own tensor degree; 0: none. */
static void add_part(words *w, const lh_plan *p, uint32_t first,
                     uint32_t stages, uint32_t replicas, uint32_t tensor)
{
    const uint32_t all = p->best.layout.pipeline;
    if (all == 1)
        add_words(w, "; ", "the only stage");
    else if (stages == all)
        add_words(w, "; ", "all %" PRIu32 " stages", all);
    else if (stages == 1)
        add_words(w, "; ", "stage %" PRIu32, first);
    else
        add_words(w, "; ", "stages %" PRIu32 "-%" PRIu32, first,
                  first + stages - 1);
    add_words(w, " ", "of %" PRIu32 " replica%s", replicas,
              replicas > 1 ? "s" : "");
    if (tensor)
        add_words(w, ", ", "TP %" PRIu32, tensor);
    add_layers(w, p, first, stages);
}

/* Appends the pipeline stages and replicas that run in a datacenter, or that it
 * is idle. */
static void describe_site(const lh_plan *p, uint32_t datacenter, words *w)
{
    const lh_layout *l = &p->best.layout;
    if (!l->sites) {
        add_part(w, p, 0, l->pipeline, l->data, 0);
        return;
    }
    for (uint32_t g = 0; g < l->sites->n_groups; g++) {
        const lh_site_group *group = &l->sites->groups[g];
        uint32_t first = 0;
        for (uint32_t i = 0; i < group->n_parts; i++) {
            if (group->parts[i].datacenter == datacenter)
                add_part(w, p, first, group->parts[i].stages, group->replicas,
                         l->site_tensors ? l->site_tensors[datacenter] : 0);
            first += group->parts[i].stages;
        }
    }
    if (!w->len)
        add_words(w, "", "idle");
}

/* Appends the number of idle GPUs in a datacenter, and why the plan does not
 * use them: the best plan that uses more is slower, or none is feasible. */
static void add_idle(words *w, const lh_plan *p, uint32_t datacenter)
{
    for (uint32_t i = 0; i < p->n_idle; i++) {
        const lh_plan_idle *it = &p->idle[i];
        if (it->datacenter != datacenter)
            continue;
        if (it->gpus < p->job->datacenters[datacenter].gpus)
            add_words(w, "; ", "%" PRIu32 " idle", it->gpus);
        add_words(w, "; ", "%s%s", it->best ? "using more: " : "", it->why);
    }
}

void cli_plan_sites(cli *c, const lh_plan *p)
{
    uint32_t used[LH_MAX_DATACENTERS] = {0};
    static const char *const head[] = {"datacenter", "#GPUs", "holds"};
    const uint32_t n = p->job->n_datacenters;
    char sites[CLI_SITES_TEXT];
    cli_table t = {.hide_heading = true, .after_label = true};
    if (!count_gpus(p, used)) {
        cli_wrap(c, "datacenters", "in the job's order");
        return;
    }
    if (n > 1)
        cli_wrap(
            c, "datacenters", "%s",
            cli_sites_text(p->job, p->best.layout.sites, sites, sizeof sites));
    cli_table_row(&t, 3, head);
    for (uint32_t i = 0; i < n && i < SITES; i++) {
        char name[4 * NAME + 4], gpus[40];
        words w = {0};
        describe_site(p, i, &w);
        add_idle(&w, p, i);
        snprintf(gpus, sizeof gpus, "%" PRIu32 " of %" PRIu32 " GPUs", used[i],
                 p->job->datacenters[i].gpus);
        const char *cells[] = {
            cli_shorten(p->job->datacenters[i].name, NAME, name, sizeof name),
            gpus, w.text};
        cli_table_row(&t, 3, cells);
    }
    cli_table_print(c, n > 1 ? "" : "datacenters", &t);
    if (n > SITES)
        cli_wrap(c, "", "and %" PRIu32 " more: --show layouts", n - SITES);
}

/* --- other layouts ------------------------------------------------------ */

/* Returns a choice's (evaluated plan's) value for the plan's objective,
 * iteration time in ns or cost in USD; below 0: unknown. */
static double get_objective_value(const lh_plan *p, const lh_choice *x)
{
    if (x->status != LH_CHOICE_OK)
        return -1;
    if (p->objective == LH_PLAN_CHEAPEST)
        return x->cost ? x->cost->usd : -1;
    if (p->robust && !x->jitter)
        return -1;
    if (p->robust)
        return p->robust->statistic == LH_PLAN_BY_P95
                   ? (double)x->jitter->p95_ns
                   : x->jitter->mean_ns;
    return (double)x->iteration_ns;
}

/* Adds a table row for alternative plan `x`: `more` (the difference to the
 * plan, in percent), objective value, schedule, placement and layout. If its
 * layout text equals the plan's, a note names its datacenters. */
static void add_other(cli_table *t, const lh_plan *p, const lh_choice *x,
                      const char *more)
{
    char value[40], what[400], layout[240], own[240];
    if (p->objective == LH_PLAN_CHEAPEST)
        snprintf(value, sizeof value, "USD %.4g", x->cost->usd);
    else
        cli_plan_time(p, get_objective_value(p, x), value);
    snprintf(what, sizeof what, "%s %s  %s", x->layout.schedule,
             lh_placement_name(x->placement),
             cli_layout_text(x, layout, sizeof layout));
    const char *cells[] = {more, value, what};
    cli_table_row(t, 3, cells);
    /* The name does not show the difference. */
    if (strcmp(layout, cli_layout_text(&p->best, own, sizeof own)) == 0)
        cli_note_sites(t, p, x, &p->best);
}

/* Returns the table column's heading with the objective's value; its leading
 * '#' aligns the column right. */
static const char *get_objective_heading(const lh_plan *p)
{
    if (p->objective == LH_PLAN_CHEAPEST)
        return "#cost";
    if (p->robust)
        return p->robust->statistic == LH_PLAN_BY_P95 ? "#95th percentile"
                                                      : "#mean";
    return "#iteration";
}

/* Counts the feasible layouts that were not sampled under jitter, if the
 * objective is a statistic of these samples; otherwise 0. */
static uint32_t count_unsampled(const lh_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_alternatives && p->robust; i++)
        n += p->alternatives[i].status == LH_CHOICE_OK &&
             !p->alternatives[i].jitter;
    return n;
}

/* Prints why the table of alternative layouts is empty. */
static void explain_no_other(cli *c, const lh_plan *p)
{
    const uint32_t n = count_unsampled(p);
    if (n)
        cli_wrap(
            c, "alternatives",
            "none sampled with jitter; %" PRIu32 " without: --show layouts", n);
    else
        cli_wrap(c, "alternatives", "all take the same time");
}

/* Prints a table of at most `most` alternative layouts by objective value.
 * Leaves out layouts that are as fast, to 0.1 %, as the plan or as the layout
 * above them. */
void cli_plan_other_layouts(cli *c, const lh_plan *p, uint32_t most)
{
    const double best = get_objective_value(p, &p->best);
    const char *head[] = {p->objective == LH_PLAN_CHEAPEST ? "#dearer"
                                                           : "#slower",
                          get_objective_heading(p), "schedule, layout"};
    char last[40] = "+0.0 %";
    uint32_t shown = 0, ties = 0;
    cli_table t = {0};
    cli_table_row(&t, 3, head);
    for (uint32_t i = 0; i < p->n_alternatives && shown < most; i++) {
        const lh_choice *x = &p->alternatives[i];
        const double value = get_objective_value(p, x);
        char more[40];
        if (value < 0 || best <= 0 || !x->layout.schedule)
            continue;
        snprintf(more, sizeof more, "%+.1f %%",
                 100 * (value > best ? value / best - 1 : 0));
        if (strcmp(more, last) == 0) {
            ties += shown == 0;
            continue;
        }
        memcpy(last, more, sizeof last);
        add_other(&t, p, x, more);
        shown++;
    }
    t.hide_heading = shown == 0;
    cli_table_print(c, "alternatives", &t);
    if (shown == 0)
        explain_no_other(c, p);
    if (ties)
        cli_wrap(c, "", "%" PRIu32 " more layout%s as good as the plan's", ties,
                 ties > 1 ? "s are" : " is");
    if (shown && !p->robust)
        cli_wrap(c, "",
                 "upper limits: alternatives are searched less than the plan; "
                 "fix an alternative's values in layout to search it fully");
}

/* --- network ------------------------------------------------------------ */

/* Returns by which share of the iteration the advised settings of a link
 * shorten it; 0 if one of the two times is unknown. */
static double compute_relative_gain(const lh_link_advice *a)
{
    const int64_t now = a->planned.iteration_ns, then = a->advised.iteration_ns;
    return now > 0 && then > 0 ? (double)now / (double)then - 1 : 0;
}

/* Appends the gain of a link's advised settings in percent, and the settings
 * that change, each with its gain in packet simulations or "(unsure)". */
static void describe_gain(const lh_link_advice *a, words *w)
{
    char from[4 * NAME + 4], to[4 * NAME + 4];
    add_words(w, "", "%s>%s: %+.1f %% faster with",
              cli_shorten(a->from, NAME, from, sizeof from),
              cli_shorten(a->to, NAME, to, sizeof to),
              100 * compute_relative_gain(a));
    bool any = false;
    for (uint32_t k = 0; k < a->n_questions; k++) {
        const lh_advice_question *q = &a->questions[k];
        char text[80], now[80];
        lh_advice_option_text(&a->advised, q->topic, text, sizeof text);
        lh_advice_option_text(&a->planned, q->topic, now, sizeof now);
        if (!q->change_advised || strcmp(text, now) == 0)
            continue;
        add_words(w, any ? ", " : " ", "%s", text);
        if (q->published)
            add_words(w, " ", "(packet simulations: %.1f to %.1f %%)",
                      100 * q->published->low, 100 * q->published->high);
        else
            add_words(w, " ", "(unsure)");
        any = true;
    }
}

const char *cli_plan_ends_text(const lh_plan *p, char *text, size_t room)
{
    lh_ends_limit limit;
    char from[4 * NAME + 4], to[4 * NAME + 4];
    *text = '\0';
    if (!lh_plan_find_ends_limit(p, &limit))
        return text;
    const double gbps = 8e-9;
    snprintf(text, room,
             limit.planned
                 ? "%s>%s: windows allow a GPU %.3g of %.3g Gb/s, as planned"
                 : "%s>%s: NCCL's default buffers allow a GPU %.3g of %.3g "
                   "Gb/s",
             cli_shorten(limit.from, NAME, from, sizeof from),
             cli_shorten(limit.to, NAME, to, sizeof to),
             limit.ends_bytes_per_s * gbps, limit.link_bytes_per_s * gbps);
    return text;
}

void cli_plan_network_gain(cli *c, const lh_plan *p)
{
    const double matters = 0.01;
    uint32_t shown = 0, more = 0;
    char time[CLI_TIME_TEXT];
    for (uint32_t i = 0; i < p->n_network; i++) {
        if (compute_relative_gain(&p->network[i]) <= matters)
            continue;
        if (shown == LINKS) {
            more++;
            continue;
        }
        words w = {0};
        describe_gain(&p->network[i], &w);
        cli_wrap(c, shown++ ? "" : "network", "%s", w.text);
    }
    if (more)
        cli_wrap(c, "", "and %" PRIu32 " more links: --show network", more);
    const double as_advised =
        (double)p->network_ns / (double)p->best.iteration_ns - 1;
    if (!shown && p->network_ns > 0 && as_advised > matters)
        cli_wrap(c, "network",
                 "link end points are planned as ideal; with the settings of "
                 "--show network %s (%+.1f %%)",
                 cli_plan_time(p, (double)p->network_ns, time),
                 100 * as_advised);
    char ends[CLI_ENDS_TEXT];
    if (*cli_plan_ends_text(p, ends, sizeof ends))
        cli_wrap(c, "ends", "%s", ends);
}

/* --- report ------------------------------------------------------------- */

bool cli_plan_site_text(const lh_plan *p, uint32_t datacenter, uint32_t *gpus,
                        char *text, size_t room)
{
    uint32_t used[LH_MAX_DATACENTERS] = {0};
    words w = {0};
    if (!count_gpus(p, used))
        return false;
    describe_site(p, datacenter, &w);
    add_idle(&w, p, datacenter);
    snprintf(text, room, "%s", w.text);
    *gpus = used[datacenter];
    return true;
}

/* Adds a fact to the report, with invalid UTF-8 replaced. */
static lh_status add_fact(cli *c, lh_report *report, const char *name,
                          const char *text)
{
    return lh_report_add_fact(report, name, cli_utf8_name(c, text), &c->err);
}

/* Adds a table with the datacenters' GPUs and stages to the report. */
static lh_status report_sites(cli *c, const lh_plan *p, lh_report *report)
{
    static const char *const head[] = {"datacenter", "#GPUs", "holds"};
    cli_table t = {0};
    cli_table_row(&t, 3, head);
    for (uint32_t i = 0; i < p->job->n_datacenters; i++) {
        char gpus[40], holds[CLI_SITE_TEXT];
        uint32_t used = 0;
        if (!cli_plan_site_text(p, i, &used, holds, sizeof holds))
            continue;
        snprintf(gpus, sizeof gpus, "%" PRIu32 " of %" PRIu32, used,
                 p->job->datacenters[i].gpus);
        const char *cells[] = {p->job->datacenters[i].name, gpus, holds};
        cli_table_row(&t, 3, cells);
    }
    return cli_table_report(c, "Layer placement", &t, report);
}

/* Adds a key figure to the report: the iteration time within which 95 % of the
 * samples under jitter end. */
static lh_status add_jitter_card(cli *c, const lh_plan *p, lh_report *report)
{
    const lh_jitter_result *r = p->best.jitter;
    char p95[CLI_TIME_TEXT], mean[CLI_TIME_TEXT], p99[CLI_TIME_TEXT];
    words more = {0};
    if (!r)
        return LH_OK;
    add_words(&more, "", "with jitter; mean %s, 99 %% within %s",
              cli_plan_time(p, r->mean_ns, mean),
              cli_plan_time(p, (double)r->p99_ns, p99));
    return lh_report_add_card(report, "95 % of iterations within",
                              cli_plan_time(p, (double)r->p95_ns, p95),
                              more.text, &c->err);
}

/* Adds the histogram of all sampled iteration times to the report. */
static lh_status add_jitter_histogram(cli *c, const lh_plan *p,
                                      lh_report *report)
{
    const lh_choice *b = &p->best;
    lh_jitter jitter;
    if (!b->jitter || !p->robust)
        return LH_OK;
    CLI_TRY(lh_plan_jitter(p->job, b, &p->robust->jitter, &jitter, &c->err));
    jitter.samples = b->jitter->samples;
    const cli_jitter_report_input varied = {.pipeline = p->pipeline,
                                            .schedule = p->schedule,
                                            .jitter = &jitter,
                                            .after_ns = b->optimizer_ns +
                                                        b->overhead_ns,
                                            .base_ns = b->iteration_ns};
    return cli_jitter_report(c, &varied, report);
}

/* Adds the report's headline numbers: iteration, throughput, utilisation,
 * GPUs, parameters and jitter. */
static lh_status add_cards(cli *c, const lh_plan *p, lh_report *report)
{
    const lh_choice *b = &p->best;
    char parameters[20], share[20], name[4 * NAME + 4];
    char iteration[CLI_TIME_TEXT], passes[CLI_TIME_TEXT], rest[CLI_TIME_TEXT];
    char rate[CLI_GROUPED_TEXT], gpus[CLI_GROUPED_TEXT];
    words days = {0}, of = {0}, made = {0};
    double rest_ns = (double)(b->optimizer_ns + b->overhead_ns);
    add_words(&made, "", "%s; pipeline %s, optimizer and overhead %s",
              cli_time_source_text(p),
              cli_plan_time(p, (double)b->iteration_ns - rest_ns, passes),
              cli_plan_time(p, rest_ns, rest));
    add_words(&days, "", "tokens/s; %s per trillion",
              cli_days_text(b->tokens_per_s, rate));
    cli_grouped_text(b->tokens_per_s, rate);
    cli_grouped_text(lh_plan_gpus(p), gpus);
    add_words(&of, "", "of %" PRIu32 " in the job", p->job->n_gpus);
    snprintf(share, sizeof share, "%.1f %%", 100 * b->mfu);
    const char *const cards[][3] = {
        {"Iteration", cli_plan_time(p, (double)b->iteration_ns, iteration),
         made.text},
        {"Throughput", rate, days.text},
        {"Model FLOPs utilisation", share, "of the GPUs' peak"},
        {"GPUs", gpus, of.text},
        {"Parameters",
         cli_params_text(lh_model_params(p->job->model), parameters,
                         sizeof parameters),
         cli_utf8_name(
             c, cli_shorten(p->job->model->name, NAME, name, sizeof name))}};
    for (uint32_t i = 0; i < sizeof cards / sizeof *cards; i++)
        CLI_TRY(lh_report_add_card(report, cards[i][0], cards[i][1],
                                   cards[i][2], &c->err));
    CLI_TRY(add_jitter_card(c, p, report));
    return add_jitter_histogram(c, p, report);
}

lh_status cli_plan_summary(cli *c, const lh_plan *p, lh_report *report)
{
    words layout = {0}, search = {0};
    add_layout(&layout, p);
    add_words(&search, "",
              "%" PRIu32 " layouts: %" PRIu32 " do not fit in "
              "memory, %" PRIu32 " ruled out by a bound, %" PRIu32
              " simulated, %" PRIu32 " unexplored",
              p->n_layouts, p->n_memory, p->n_bounded, p->n_simulated,
              p->n_unexplored);
    if (p->n_elastic_unexplored)
        add_words(&search, ", ", "elastic plans unexplored on %" PRIu32,
                  p->n_elastic_unexplored);
    for (uint32_t i = 0; i < p->n_pruned; i++)
        add_words(&search, i ? ", " : "; ruled out: ", "%" PRIu64 " by %s",
                  p->pruned[i].n, p->pruned[i].bound);
    if (lh_plan_gap(p) >= 0 && p->objective == LH_PLAN_FASTEST)
        add_words(&search, "; ", "at most %.1f %% faster is possible (proven)",
                  100 * lh_plan_gap(p));
    CLI_TRY(add_fact(c, report, "model", describe_model(p).text));
    CLI_TRY(add_fact(c, report, "GPUs", describe_gpus(p).text));
    CLI_TRY(add_fact(c, report, "notation", layout.text));
    CLI_TRY(add_fact(c, report, "search", search.text));
    CLI_TRY(add_cards(c, p, report));
    return report_sites(c, p, report);
}
