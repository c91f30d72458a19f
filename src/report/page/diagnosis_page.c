/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a diagnosis into the page's JSON: the whole JSON output, and data for
 * the drawings. For a large recording the page shows some steps and replicas
 * and the number of omitted ones. */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "base/sort.h"
#include "report/diagnosis/diagnose_internal.h"
#include "report/diagnosis/replay_trace.h"
#include "report/json/json_parts.h"
#include "report/trace/json_text.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    MAX_ROWS = 64,       /* devices per timeline */
    MAX_PASSES = 150000, /* in all timelines together */
    MAX_CELLS = 4096,    /* per heat map */
    MAX_STEPS = 64,
};

/* Page generator state. */
typedef struct page_state {
    lhi_text *out;
    lhi_arena *arena;
    const lh_recording *recording;
    const lhi_diagnosis_state *d;
    uint32_t n_drawn, n_heat; /* replicas in timelines and in heat maps */
    uint32_t *drawn, *heat;   /* by index */
    uint32_t n_steps;         /* displayed steps; 0: none fits */
    uint32_t *steps;          /* by index */
    uint32_t typical;         /* index in `steps`: nearest to the mean */
    int64_t longest_ns;       /* over all timelines */
    lhi_scenario own, usual;
} page_state;

/* --- selection ------------------------------------------------------------ */

/* A replica with its slowdown, for sorting. */
typedef struct ranked {
    double slowdown;
    uint32_t replica;
} ranked;

/* Compares replicas by slowdown, the slowest first, for lhi_sort(). */
static int compare_slowdowns(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return (x->slowdown < y->slowdown) - (x->slowdown > y->slowdown);
}

/* Compares unsigned integers, for sorting. */
static int compare_indices(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Chooses at most `most` (at least 1) of n replicas in `by`, sorted slowest
 * first: the slowest ones and, if at most half are chosen, the median one as
 * the last. Stores their indices in ascending order in `out`; returns their
 * number. */
static uint32_t choose_replicas(const ranked *by, uint32_t n, uint32_t most,
                                uint32_t *out)
{
    uint32_t taken = most < 1 ? 1 : most < n ? most : n;
    for (uint32_t i = 0; i < taken; i++)
        out[i] = by[i].replica;
    if (taken > 1 && taken <= n / 2)
        out[taken - 1] = by[n / 2].replica;
    lhi_sort(out, taken, sizeof *out, compare_indices);
    return taken;
}

/* Chooses the replicas that the page's timelines and heat maps display, within
 * the limits on rows and cells. */
static lh_status choose_all_replicas(page_state *p, lh_error *err)
{
    const lh_diagnosis *d = &p->d->out;
    uint32_t n = d->n_replicas;
    ranked *by = LHI_NEW(p->arena, ranked, n);
    p->drawn = LHI_NEW(p->arena, uint32_t, n);
    p->heat = LHI_NEW(p->arena, uint32_t, n);
    if (!by || !p->drawn || !p->heat)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        by[i] = (ranked){d->by_replica[i], i};
    lhi_sort(by, n, sizeof *by, compare_slowdowns);
    p->n_drawn = choose_replicas(by, n, MAX_ROWS / d->n_stages, p->drawn);
    p->n_heat = choose_replicas(by, n, MAX_CELLS / d->n_stages, p->heat);
    return LH_OK;
}

/* Returns the pass count in the displayed replicas' timelines, for the step
 * with the most. */
static uint64_t count_passes(const page_state *p)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < p->recording->n_graphs; i++) {
        const lhi_op_graph *g = p->recording->graphs[i];
        uint64_t n = 0;
        for (uint32_t k = 0; k < g->n_ops; k++)
            n += lhi_op_is_pass((lhi_op_type)g->op[k]);
        n = n * p->n_drawn / g->n_replicas + 1;
        most = n > most ? n : most;
    }
    return most;
}

/* Counts the recommendations that have a replay scenario, and so a timeline. */
static uint32_t count_scenarios(const page_state *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->d->out.n_remedies; i++)
        n += p->d->sources[i].scenario != NULL;
    return n;
}

/* Chooses the steps that the page displays: all, or the most typical one, the
 * slowest, and evenly spaced others. */
static lh_status choose_steps(page_state *p, lh_error *err)
{
    const lh_diagnosis *d = &p->d->out;
    uint64_t fit = MAX_PASSES / count_passes(p), rest = 1 + count_scenarios(p);
    uint32_t typical = 0, slowest = 0, n = d->n_steps;
    bool *shown = LHI_NEW(p->arena, bool, n);
    p->steps = LHI_NEW(p->arena, uint32_t, n);
    if (!shown || !p->steps)
        return lhi_fail_nomem(err);
    fit = fit > rest ? fit - rest : 0;
    if (p->recording->n_graphs > 1)
        fit /= 2; /* each graph has an idealised timeline of its own */
    fit = fit < MAX_STEPS ? fit : MAX_STEPS;
    if (fit < 2 && fit < n)
        return LH_OK;
    for (uint32_t i = 1; i < n; i++) {
        double off = (double)d->steps[i].t_ns - d->t_ns;
        double least = (double)d->steps[typical].t_ns - d->t_ns;
        if (off * off < least * least)
            typical = i;
        if (d->steps[i].t_ns > d->steps[slowest].t_ns)
            slowest = i;
    }
    shown[typical] = shown[slowest] = true;
    for (uint64_t i = 0; i < n && n <= fit; i++)
        shown[i] = true;
    for (uint64_t i = 0; i + 2 < fit && n > fit; i++)
        shown[i * n / (fit - 2)] = true;
    for (uint32_t i = 0; i < n; i++) {
        if (i == typical)
            p->typical = p->n_steps;
        if (shown[i])
            p->steps[p->n_steps++] = i;
    }
    return LH_OK;
}

/* --- timelines ------------------------------------------------------------ */

/* Adds a timeline to the page as JSON, without an analysis, and updates the
 * longest makespan. */
static lh_status add_trace(page_state *p, const lh_trace *trace,
                           const char *label, lh_error *err)
{
    static const lh_report_analysis none = {.size = sizeof none};
    if (trace->makespan_ns > p->longest_ns)
        p->longest_ns = trace->makespan_ns;
    return lhi_page_add_trace(p->out, trace, label, &none, err);
}

/* Adds to the page the timeline of step number `step`, replayed under a
 * scenario (which operations keep their recorded times), with the displayed
 * replicas. */
static lh_status add_replay(page_state *p, uint32_t step,
                            const lhi_scenario *scenario, const char *label,
                            lh_error *err)
{
    const lhi_replayed_step replayed = {.step = &p->recording->steps[step],
                                        .scenario = scenario,
                                        .n_replicas = p->n_drawn,
                                        .replicas = p->drawn};
    lh_trace trace;
    lhi_mark mark = lhi_arena_mark(p->arena);
    LHI_TRY(
        lhi_replay_trace_make(p->recording, &replayed, p->arena, &trace, err));
    lh_status status = add_trace(p, &trace, label, err);
    lhi_arena_rewind(p->arena, mark);
    return status;
}

/* Returns the first displayed step with the same operation graph as displayed
 * step `i`; both have the same idealised timeline. */
static uint32_t find_first_with_graph(const page_state *p, uint32_t i)
{
    uint32_t k = 0;
    while (p->recording->steps[p->steps[k]].graph !=
           p->recording->steps[p->steps[i]].graph)
        k++;
    return k;
}

/* Adds one idealised timeline for each distinct operation graph among the
 * displayed steps. */
static lh_status add_ideals(page_state *p, lh_error *err)
{
    lhi_text_puts(p->out, ",\n\"ideals\":{");
    for (uint32_t i = 0; i < p->n_steps; i++) {
        if (find_first_with_graph(p, i) != i)
            continue;
        lhi_text_printf(p->out, "%s\"%" PRIu32 "\":", i ? ",\n" : "", i);
        LHI_TRY(add_replay(p, p->steps[i], &p->usual, "usual times", err));
    }
    lhi_text_puts(p->out, "}");
    return LH_OK;
}

/* Adds a timeline for each recommendation; null if it has none or exceeds the
 * pass limit. */
static lh_status add_remedies(page_state *p, lh_error *err)
{
    const lh_diagnosis *d = &p->d->out;
    lhi_text_puts(p->out, ",\n\"helps\":[");
    for (uint32_t i = 0; i < d->n_remedies; i++) {
        const lhi_remedy_source *source = &p->d->sources[i];
        lhi_text_puts(p->out, i ? ",\n" : "");
        if (source->trace && source->trace->n_runs <= MAX_PASSES)
            LHI_TRY(add_trace(p, source->trace, d->remedies[i].action, err));
        else if (source->scenario && p->n_steps)
            LHI_TRY(add_replay(p, p->steps[p->typical], source->scenario,
                               d->remedies[i].action, err));
        else
            lhi_text_puts(p->out, "null");
    }
    lhi_text_puts(p->out, "]");
    return LH_OK;
}

/* --- heat maps ------------------------------------------------------------ */

/* Appends a ratio to a JSON list of numbers; with a comma before it unless it
 * is the list's first element. */
static void add_ratio(lhi_text *out, bool first, double ratio)
{
    lhi_text_puts(out, first ? "" : ",");
    lhi_json_add(out, json_real(ratio));
}

/* Adds a step's heat map: each worker's pass time relative to its typical time,
 * by stage, for the replicas in heat maps. */
static lh_status add_step_map(page_state *p, uint32_t step, lh_error *err)
{
    const lhi_recorded_step *s = &p->recording->steps[step];
    const lhi_op_graph *g = s->graph;
    lhi_mark mark = lhi_arena_mark(p->arena);
    uint32_t n = lhi_recording_n_workers(p->recording),
             S = p->recording->n_stages;
    double *took = LHI_NEW(p->arena, double, n);
    double *usual = LHI_NEW(p->arena, double, n);
    if (!took || !usual)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (lhi_op_is_pass((lhi_op_type)g->op[i])) {
            took[g->worker[i]] += (double)s->duration_ns[i];
            usual[g->worker[i]] += (double)p->d->typical_ns[g->op[i]];
        }
    for (uint32_t i = 0; i < S; i++)
        for (uint32_t k = 0; k < p->n_heat; k++) {
            uint32_t w = p->heat[k] * S + i;
            /* A cell shows four digits. */
            lhi_text_printf(p->out, "%s%.0f", i || k ? "," : "",
                            usual[w] > 0 ? 1e4 * took[w] / usual[w] : 1e4);
        }
    lhi_arena_rewind(p->arena, mark);
    return LH_OK;
}

/* Adds the heat map of all steps: the workers' slowdowns by stage, for the
 * replicas in heat maps. */
static void add_map(page_state *p)
{
    const lh_diagnosis *d = &p->d->out;
    for (uint32_t i = 0; i < d->n_stages; i++)
        for (uint32_t k = 0; k < p->n_heat; k++)
            add_ratio(p->out, i + k == 0,
                      d->by_worker[i * d->n_replicas + p->heat[k]]);
}

/* Appends a JSON member `key`: the list of the numbers that n replicas have in
 * the recording; replicas[] holds their indices. */
static void add_numbers(page_state *p, const char *key,
                        const uint32_t *replicas, uint32_t n)
{
    lhi_text_printf(p->out, ",\n\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++)
        lhi_text_printf(p->out, "%s%" PRIu32, i ? "," : "",
                        p->d->out.replicas[replicas[i]]);
    lhi_text_puts(p->out, "]");
}

/* --- page ----------------------------------------------------------------- */

/* Adds each displayed step with its heat map and its timeline with measured
 * times. */
static lh_status add_steps(page_state *p, lh_error *err)
{
    lhi_text_puts(p->out, ",\n\"steps\":[");
    for (uint32_t i = 0; i < p->n_steps; i++) {
        lhi_text_printf(
            p->out, "%s{\"index\":%" PRIu32 ",\"ideal\":%" PRIu32 ",\"map\":[",
            i ? ",\n" : "", p->steps[i], find_first_with_graph(p, i));
        LHI_TRY(add_step_map(p, p->steps[i], err));
        lhi_text_puts(p->out, "],\"own\":");
        LHI_TRY(add_replay(p, p->steps[i], &p->own, "measured times", err));
        lhi_text_puts(p->out, "}");
    }
    lhi_text_puts(p->out, "]");
    return LH_OK;
}

/* Appends the whole diagnosis to the page as a JSON object: results, the
 * caller's explanatory sentences, heat maps and timelines. */
static lh_status add_all(page_state *p, const lh_report_diagnosis *given,
                         lh_error *err)
{
    LHI_TRY(lhi_scenario_make(p->recording, true, p->d->typical_ns, p->arena,
                              &p->own, err));
    LHI_TRY(lhi_scenario_make(p->recording, false, p->d->typical_ns, p->arena,
                              &p->usual, err));
    LHI_TRY(choose_all_replicas(p, err));
    LHI_TRY(choose_steps(p, err));
    lhi_text_puts(p->out, "{\"told\":");
    lhi_json_add(p->out, lhi_json_diagnosis(&p->d->out));
    lhi_text_puts(p->out, ",\n\"sentences\":[");
    for (uint32_t i = 0; i < given->n_sentences; i++) {
        lhi_text_puts(p->out, i ? ",\n" : "");
        lhi_json_add_string(p->out, given->sentences[i]);
    }
    lhi_text_puts(p->out, "]");
    add_numbers(p, "drawn", p->drawn, p->n_drawn);
    add_numbers(p, "mapped", p->heat, p->n_heat);
    lhi_text_puts(p->out, ",\n\"map\":[");
    add_map(p);
    lhi_text_puts(p->out, "]");
    LHI_TRY(add_steps(p, err));
    LHI_TRY(add_ideals(p, err));
    LHI_TRY(add_remedies(p, err));
    lhi_text_printf(p->out, ",\n\"typical\":%" PRIu32 ",\"longest\":%" PRId64,
                    p->typical, p->longest_ns);
    lhi_text_puts(p->out, "}");
    return LH_OK;
}

lh_status lh_report_add_diagnosis(lh_report *report,
                                  const lh_report_diagnosis *diagnosis,
                                  lh_error *err)
{
    lh_report_diagnosis given;
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_diagnosis, &given, diagnosis, err));
    if (!given.recording || !given.diagnosis)
        return lhi_fail(err, LH_EINVAL,
                        "a diagnosis and its recording are required");
    if (given.diagnosis->n_steps == 0)
        return lhi_fail(err, LH_EINVAL,
                        "the diagnosis has no replayed steps to show");
    for (uint32_t i = 0; i < given.n_sentences; i++)
        if (!lhi_is_utf8(given.sentences[i]))
            return lhi_fail(err, LH_EINVAL, "a sentence is not UTF-8 text");
    lhi_text item = {0};
    page_state p = {.out = &item,
                    .arena = lhi_arena_make(0),
                    .recording = given.recording,
                    .d = (const lhi_diagnosis_state *)given.diagnosis};
    lh_status status = p.arena ? add_all(&p, &given, err) : lhi_fail_nomem(err);
    lhi_arena_free(p.arena);
    if (status == LH_OK && item.failed)
        status = lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_text_fini(&item);
        return status;
    }
    lhi_text_fini(&report->diagnosis);
    report->diagnosis = item;
    return LH_OK;
}
