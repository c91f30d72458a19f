/* SPDX-License-Identifier: Apache-2.0 */
/* Presents a plan as a decision: recommendation, map of the sites, safer and
 * equally fast alternatives, Pareto front. */
#include "plan_cost.h"
#include "plan_screen.h"
#include "plan_whatif.h"
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a sentence, in bytes. */
enum { SENTENCE = 700 };

/* Formats the GPUs in use and available in a datacenter with their type: "128
 * of 128 h100-sxm". */
static void format_gpus(const lh_datacenter *site, uint32_t used, char *text,
                        size_t room)
{
    snprintf(text, room, "%" PRIu32 " of %" PRIu32 " %s", used, site->gpus,
             site->gpu.name);
}

/* --- notes -------------------------------------------------------------- */

/* Formats a choice relative to the plan: "14.6 s (+0.2 %), 9.1 GiB free, with
 * 1f1b, TP 4 PP 4x2 ...". */
static void format_choice(const lh_plan *p, const lh_choice *x, char *text,
                          size_t room)
{
    char time[CLI_TIME_TEXT], layout[240];
    const double free_gib =
        (double)(x->memory_limit_bytes - x->peak_memory_bytes) / 0x1p30;
    snprintf(text, room,
             "%s (%+.1f %%), %.1f GiB free beyond the reserve, with %s, %s",
             cli_plan_time(p, (double)x->iteration_ns, time),
             cli_percent_slower((double)x->iteration_ns,
                                (double)p->best.iteration_ns),
             free_gib, x->layout.schedule,
             cli_layout_text(x, layout, sizeof layout));
}

const char *cli_plan_margin_text(const lh_plan *p, char *text, size_t room)
{
    const lh_plan_margin *m = p->margin;
    char amount[40], choice[CLI_NOTE_TEXT - 60];
    *text = '\0';
    if (!m)
        return text;
    if (m->percent > 0)
        snprintf(amount, sizeof amount, "%.4g %% free", m->percent);
    else
        snprintf(amount, sizeof amount, "%.4g GiB free", m->gib);
    if (!m->best) {
        snprintf(text, room, "no plan found with %s", amount);
        return text;
    }
    format_choice(p, m->best, choice, sizeof choice);
    snprintf(text, room, "with %s: %s", amount, choice);
    return text;
}

const char *cli_plan_ties_text(const lh_plan *p, char *text, size_t room)
{
    char time[CLI_TIME_TEXT], layout[200];
    *text = '\0';
    if (!p->ties)
        return text;
    const lh_choice *x = p->ties->practice;
    snprintf(text, room,
             "%s (%+.1f %%, within the error), the most usual of %" PRIu32
             " tie%s: %s",
             cli_plan_time(p, (double)x->iteration_ns, time),
             cli_percent_slower((double)x->iteration_ns,
                                (double)p->best.iteration_ns),
             p->ties->n, p->ties->n == 1 ? "" : "s",
             cli_layout_text(x, layout, sizeof layout));
    return text;
}

/* Free share of a GPU's usable memory from which a plan counts as safe, as the
 * page marks fuller devices. */
#define SAFE_SHARE 0.05

/* Checks whether a feasible choice leaves at least the share SAFE_SHARE of the
 * fullest GPU's memory limit free. */
static bool is_safe(const lh_choice *x)
{
    return x->status == LH_CHOICE_OK && x->layout.schedule &&
           (double)x->peak_memory_bytes <=
               (1 - SAFE_SHARE) * (double)x->memory_limit_bytes;
}

/* Formats a plan that leaves more memory free: the one for --margin; else this
 * plan or the fastest known one that leaves SAFE_SHARE free. */
static void format_safe(const lh_plan *p, char *text, size_t room)
{
    const lh_choice *best = NULL;
    char left[CLI_MEMORY_TEXT];
    const struct {
        const lh_choice *list;
        uint32_t n;
    } all[] = {{p->methods, p->n_methods},
               {p->alternatives, p->n_alternatives},
               {p->pareto_front, p->n_pareto}};
    if (*cli_plan_margin_text(p, text, room))
        return;
    if (is_safe(&p->best)) {
        snprintf(
            text, room,
            "this plan: %s of the fullest GPU stay free beyond the reserve",
            cli_memory_text(p->best.memory_limit_bytes -
                                p->best.peak_memory_bytes,
                            "bytes", left));
        return;
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (uint32_t i = 0; i < all[k].n; i++)
            if (is_safe(&all[k].list[i]) &&
                (!best || all[k].list[i].iteration_ns < best->iteration_ns))
                best = &all[k].list[i];
    if (best)
        format_choice(p, best, text, room);
    else
        snprintf(text, room,
                 "no evaluated plan leaves %.0f %% of the fullest GPU free; "
                 "longhaul plan --margin %.0f%% searches for one",
                 100 * SAFE_SHARE, 100 * SAFE_SHARE);
}

/* Formats the fastest alternative layout, the second best after the plan, into
 * `text`; "": none. */
static void format_next(const lh_plan *p, char *text, size_t room)
{
    *text = '\0';
    for (uint32_t i = 0; i < p->n_alternatives && !*text; i++)
        if (p->alternatives[i].status == LH_CHOICE_OK &&
            p->alternatives[i].layout.schedule)
            format_choice(p, &p->alternatives[i], text, room);
}

/* --- recommendation ----------------------------------------------------- */

/* Formats the decision's first sentence: the model to train, the GPUs to use,
 * and in which of the n_sites datacenters. */
static void format_what(const lh_plan *p, const lh_report_site *sites,
                        uint32_t n_sites, char *text, size_t room)
{
    enum { MOST_SITES = 6 }; /* the map below has all */
    const uint32_t used = lh_plan_gpus(p);
    char of[40] = "";
    if (used < p->job->n_gpus)
        snprintf(of, sizeof of, " of %" PRIu32, p->job->n_gpus);
    size_t len =
        (size_t)snprintf(text, room, "Train %.60s on %s%" PRIu32 "%s GPUs",
                         p->job->model->name, *of ? "" : "all ", used, of);
    for (uint32_t i = 0; n_sites > 1 && i < n_sites && len < room; i++) {
        const lh_datacenter *site = &p->job->datacenters[i];
        if (i == MOST_SITES) {
            len += (size_t)snprintf(text + len, room - len,
                                    " and others of %" PRIu32 " datacenters",
                                    n_sites);
            break;
        }
        const uint32_t here = (uint32_t)llround(sites[i].used * site->gpus);
        len += (size_t)snprintf(text + len, room - len, "%s", i ? ", " : ": ");
        if (len < room && here)
            len += (size_t)snprintf(text + len, room - len, "%" PRIu32 " in %s",
                                    here, site->name);
        else if (len < room)
            len += (size_t)snprintf(text + len, room - len, "none in %s",
                                    site->name);
    }
    if (len < room)
        snprintf(text + len, room - len, ".");
}

/* Formats the layout: degrees, microbatches, schedule and replicas. */
static void format_degrees(const lh_plan *p, char *text, size_t room)
{
    const lh_choice *b = &p->best;
    const lh_layout *l = &b->layout;
    char sites[CLI_SITES_TEXT] = "", sizes[CLI_MICRO_BATCH_TEXT];
    char tensor[CLI_SITE_TENSORS_TEXT];
    const struct {
        const char *name;
        uint32_t degree;
    } degrees[] = {{"context", l->context},
                   {"expert", l->expert},
                   {"pipeline", l->pipeline},
                   {"data", l->data}};
    if (l->sites)
        cli_sites_text(p->job, l->sites, sites, sizeof sites);
    int len = snprintf(text, room, "Layout: ");
    if (l->tensor > 1 || l->site_tensors)
        len +=
            snprintf(text + len, room - (size_t)len, "tensor parallelism %s, ",
                     cli_site_tensors_text(p, tensor));
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (degrees[i].degree > 1)
            len += snprintf(text + len, room - (size_t)len,
                            "%s parallelism %" PRIu32 ", ", degrees[i].name,
                            degrees[i].degree);
    snprintf(text + len, room - (size_t)len,
             "microbatches of %.80s sequence%s, %s recomputation, "
             "schedule %.40s%s%.250s.",
             cli_micro_batch_text(l, sizes), l->micro_batch > 1 ? "s" : "",
             b->recompute == LH_RECOMPUTE_NONE
                 ? "no"
                 : lh_recompute_name(b->recompute),
             l->schedule, *sites ? "; " : "", sites);
}

/* Formats the decision's second sentence: iteration time, throughput and cost,
 * and the error of modelled times. */
static void format_result(const lh_plan *p, char *text, size_t room)
{
    const lh_choice *b = &p->best;
    char time[CLI_TIME_TEXT], rate[CLI_GROUPED_TEXT], cost[80] = "";
    char days[CLI_GROUPED_TEXT], error[200] = "";
    if (b->cost) {
        const double usd = 1e3 * b->cost->usd_per_1e9_tokens;
        snprintf(cost, sizeof cost, " and USD %.4g %s",
                 usd / (usd < 1e6 ? 1e3 : 1e6), usd < 1e6 ? "K" : "M");
    }
    if (p->accuracy)
        snprintf(error, sizeof error,
                 "; predictions differed by %.0f %% on average from %" PRIu32
                 " published runs of %.80s",
                 p->accuracy->mean_percent, p->accuracy->n, p->accuracy->kind);
    cli_grouped_text(b->tokens_per_s, rate);
    snprintf(text, room,
             "One iteration takes %s (%s): %s tokens/s, %s%s per trillion "
             "tokens%s.",
             cli_plan_time(p, (double)b->iteration_ns, time),
             cli_time_source_text(p), rate,
             cli_days_text(b->tokens_per_s, days), cost, error);
}

/* Formats the third sentence: the gap between the plan's time and the proven
 * lower bound, and the free memory. */
static void format_proof(const lh_plan *p, char *text, size_t room)
{
    const bool cheap = p->objective == LH_PLAN_CHEAPEST;
    const double gap = cheap ? lh_plan_cost_gap(p) : lh_plan_gap(p);
    char used[CLI_MEMORY_TEXT], limit[CLI_MEMORY_TEXT], proof[240];
    char left[CLI_GROUPED_TEXT], all[CLI_GROUPED_TEXT], open[120] = "";
    if (p->n_unexplored)
        snprintf(open, sizeof open, "; %s of %s layouts were not explored",
                 cli_grouped_text(p->n_unexplored, left),
                 cli_grouped_text(p->n_layouts, all));
    if (gap < 0)
        snprintf(proof, sizeof proof,
                 "This is the best plan found, without a proven bound%s", open);
    else
        snprintf(proof, sizeof proof,
                 "No plan of this job is more than %.1f %% %s (proven for the "
                 "cost model%s)",
                 100 * gap, cheap ? "cheaper" : "faster", open);
    snprintf(text, room, "%s, and the fullest GPU uses %s of %s.", proof,
             cli_memory_text(p->best.peak_memory_bytes, "bytes", used),
             cli_memory_text(p->best.memory_limit_bytes, "bytes", limit));
}

/* --- map ---------------------------------------------------------------- */

/* Texts of a site or link on the map. */
typedef struct map_text {
    char first[80], second[CLI_SITE_TEXT];
} map_text;

/* Returns the index of the job's datacenter called `name`, which must exist. */
static uint32_t find_site(const lh_job *job, const char *name)
{
    uint32_t i = 0;
    while (i + 1 < job->n_datacenters &&
           strcmp(job->datacenters[i].name, name) != 0)
        i++;
    return i;
}

/* Fills in sites[i], the map's entry for datacenter i, with texts kept in
 * `texts`; false: the plan does not assign its GPUs to datacenters. */
static bool fill_sites(cli *c, const lh_plan *p, map_text *texts,
                       lh_report_site *sites)
{
    for (uint32_t i = 0; i < p->job->n_datacenters; i++) {
        const lh_datacenter *site = &p->job->datacenters[i];
        uint32_t used = 0;
        if (!cli_plan_site_text(p, i, &used, texts[i].second,
                                sizeof texts[i].second))
            return false;
        format_gpus(site, used, texts[i].first, sizeof texts[i].first);
        sites[i] = (lh_report_site){
            site->name, cli_utf8_name(c, texts[i].first), texts[i].second,
            site->gpus ? (double)used / site->gpus : 0};
    }
    return true;
}

/* Fills in a link of the report's site map from its advice `a`: latency and
 * bandwidth, traffic per iteration, and share of the bandwidth in use. */
static void fill_link(const lh_plan *p, const lh_link_advice *a, map_text *t,
                      lh_report_site_link *link)
{
    const lh_job *job = p->job;
    link->from = find_site(job, a->from);
    link->to = find_site(job, a->to);
    const lh_wan *wan = &job->wans[link->from * job->n_datacenters + link->to];
    const double bytes = (double)a->messages * (double)a->message_bytes +
                         (double)a->data_bytes + (double)a->expert_bytes;
    const double room = wan->bytes_per_s / wan->oversubscription *
                        (double)p->best.iteration_ns / 1e9;
    snprintf(t->first, sizeof t->first, "%.4g ms, %.4g Gb/s",
             (double)wan->latency_ns / 1e6, wan->gbps);
    snprintf(t->second, sizeof t->second, "%.4g GB per iteration%s%s%s",
             bytes / 1e9, a->messages ? ", pipeline messages" : "",
             a->data_bytes ? ", data parallelism" : "",
             a->expert_bytes ? ", tokens for experts" : "");
    link->values = t->first;
    link->carries = t->second;
    link->use = room > 0 ? bytes / room : -1;
}

/* --- decision ----------------------------------------------------------- */

/* Appends the pair (`name`, `text`) to `notes`, the decision's notes, unless
 * `text` is empty. */
static void add_note(lh_report_decision *d, const char **notes,
                     const char *name, const char *text)
{
    if (!*text)
        return;
    notes[2 * d->n_notes] = name;
    notes[2 * d->n_notes++ + 1] = text;
}

/* Memory of the decision's lists, in the sizes that the plan needs. */
typedef struct lists {
    map_text *texts; /* of sites, then links */
    lh_report_site *sites;
    lh_report_site_link *links;
    lh_report_tradeoff *tradeoffs;
    char (*names)[300], (*marks)[100]; /* of tradeoffs */
} lists;

/* Frees the arrays that hold the report's decision. */
static void free_lists(lists *l)
{
    free(l->texts);
    free(l->sites);
    free(l->links);
    free(l->tradeoffs);
    free(l->names);
    free(l->marks);
}

/* Allocates the arrays that hold the report's decision: texts, sites, links and
 * Pareto points. Returns false on allocation failure. */
static bool make_lists(const lh_plan *p, lists *l)
{
    const size_t n = p->job->n_datacenters, m = p->n_network + 1;
    l->texts = calloc(n + m, sizeof *l->texts);
    l->sites = calloc(n, sizeof *l->sites);
    l->links = calloc(m, sizeof *l->links);
    l->tradeoffs = calloc(p->n_pareto + 1, sizeof *l->tradeoffs);
    l->names = calloc(p->n_pareto + 1, sizeof *l->names);
    l->marks = calloc(p->n_pareto + 1, sizeof *l->marks);
    return l->texts && l->sites && l->links && l->tradeoffs && l->names &&
           l->marks;
}

/* Formats the remark on entry `i` of the Pareto front into `text`: "this plan",
 * or for the knee and the entry near the fastest how much cheaper and slower it
 * is; "": none. */
static void format_mark(const lh_plan *p, uint32_t i, char *text, size_t room)
{
    const lh_choice *x = &p->pareto_front[i], *fastest = &p->pareto_front[0];
    *text = '\0';
    if (i > 0 && (i == p->pareto_knee || i == p->pareto_near))
        snprintf(text, room, "%s: %.0f %% cheaper for %.1f %% more time",
                 i == p->pareto_knee ? "knee" : "near the fastest",
                 100 * (1 - x->cost->usd / fastest->cost->usd),
                 cli_percent_slower((double)x->iteration_ns,
                                    (double)fastest->iteration_ns));
    else if (x->iteration_ns == p->best.iteration_ns &&
             x->peak_memory_bytes == p->best.peak_memory_bytes)
        snprintf(text, room, "this plan");
}

/* Fills in the points of the Pareto front (time, cost, memory) with their
 * remarks, in arrays of `l`. */
static void fill_tradeoffs(const lh_plan *p, const lists *l,
                           lh_report_decision *d)
{
    for (uint32_t i = 0; i < p->n_pareto; i++) {
        const lh_choice *x = &p->pareto_front[i];
        char layout[240];
        snprintf(l->names[i], sizeof *l->names, "%s, %.40s",
                 cli_layout_text(x, layout, sizeof layout),
                 x->layout.schedule ? x->layout.schedule : "any schedule");
        format_mark(p, i, l->marks[i], sizeof *l->marks);
        l->tradeoffs[i] = (lh_report_tradeoff){
            l->names[i], l->marks[i], x->iteration_ns, x->peak_memory_bytes,
            x->cost ? x->cost->usd : -1};
    }
    d->n_tradeoffs = p->n_pareto;
    d->tradeoffs = l->tradeoffs;
}

/* Fills in the report's decision (recommendation, map, notes, Pareto front)
 * with the arrays of `l` as memory, and sets it in the report. */
static lh_status set_decision(cli *c, const lh_plan *p, const lists *l,
                              lh_report *report)
{
    enum { NOTES = 7, SENTENCES = 4 };
    char sentences[SENTENCES][SENTENCE], text[NOTES][CLI_NOTE_TEXT];
    const char *notes[2 * NOTES], *said[SENTENCES];
    lh_report_decision d = {.size = sizeof d, .notes = notes};
    if (fill_sites(c, p, l->texts, l->sites)) {
        d.n_sites = p->job->n_datacenters;
        d.sites = l->sites;
        d.links = l->links;
        for (; d.n_links < p->n_network; d.n_links++)
            fill_link(p, &p->network[d.n_links],
                      &l->texts[d.n_sites + d.n_links], &l->links[d.n_links]);
    }
    format_what(p, d.sites, d.n_sites, sentences[0], SENTENCE);
    format_result(p, sentences[1], SENTENCE);
    format_proof(p, sentences[2], SENTENCE);
    format_degrees(p, sentences[3], SENTENCE);
    for (int i = 0; i < SENTENCES; i++)
        said[i] = cli_utf8_name(c, sentences[i]);
    d.n_sentences = SENTENCES;
    d.sentences = said;
    fill_tradeoffs(p, l, &d);
    format_safe(p, text[0], CLI_NOTE_TEXT);
    format_next(p, text[1], CLI_NOTE_TEXT);
    cli_plan_ties_text(p, text[2], CLI_NOTE_TEXT);
    cli_whatif_text(p, text[3], CLI_NOTE_TEXT);
    cli_sensitivity_text(p, text[4], CLI_NOTE_TEXT);
    if (!p->sensitivity && !p->n_answers && p->n_network)
        snprintf(text[4], CLI_NOTE_TEXT,
                 "not examined; longhaul plan --sensitivity finds the latency "
                 "and bandwidth at which another layout becomes the best");
    cli_plan_ends_text(p, text[5], CLI_NOTE_TEXT);
    cli_cheaper_plan_text(p, text[6], CLI_NOTE_TEXT);
    add_note(&d, notes, "Safe alternative", text[0]);
    add_note(&d, notes, "Next layout", text[1]);
    add_note(&d, notes, "As in practice", text[2]);
    add_note(&d, notes, "Cheaper plan", text[6]);
    add_note(&d, notes, "What if", cli_utf8_name(c, text[3]));
    add_note(&d, notes, "Other link values", cli_utf8_name(c, text[4]));
    add_note(&d, notes, "Link end points", cli_utf8_name(c, text[5]));
    return lh_report_set_decision(report, &d, &c->err);
}

lh_status cli_plan_decision(cli *c, const lh_plan *p, lh_report *report)
{
    lists l = {0};
    lh_status status =
        make_lists(p, &l) ? set_decision(c, p, &l, report) : cli_no_memory(c);
    free_lists(&l);
    return status;
}
