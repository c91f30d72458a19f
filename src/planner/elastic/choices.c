/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the rows of a plan for elastic schedules: the best one, the same
 * without each of its features (ablation), and other schedules on the same
 * degrees. */
#include "planner/elastic/choices.h"

#include "base/format_units.h"
#include "planner/layout/choice.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <string.h>

/* Returns the bit that stands for a sharding mode (ZeRO 1, 2, 3 or mixed) in
 * the bit sets of allowed modes. */
static uint32_t get_mode_bit(lh_elastic_sharding sharding)
{
    return 1u << sharding;
}

lhi_elastic_options lhi_elastic_options_from_job(const lh_job *job)
{
    const lh_training *t = &job->training;
    lhi_elastic_options f = {.recompute = !t->recompute_given, .uneven = true};
    if (job->layout.chunk_layers) {
        f.layers = job->layout.chunk_layers;
        f.uneven = false;
    }
    if (t->zero_given)
        f.shardings = get_mode_bit(t->zero == 1   ? LH_ELASTIC_ZERO1
                                   : t->zero == 2 ? LH_ELASTIC_ZERO2
                                                  : LH_ELASTIC_ZERO3);
    return f;
}

/* Frees the pipeline and schedule of an elastic-plan search result. */
static void free_result(lhi_elastic_result *r)
{
    lh_pipeline_free(r->built.pipeline);
    lh_schedule_free(r->schedule);
}

/* Fills *choice (a plan candidate of the planner's table) from an elastic-plan
 * search result. `method`: schedule method of a row that is not an elastic
 * plan, else NULL. */
static lh_status fill_choice(const lhi_elastic_result *found,
                             const char *method, lh_choice *choice,
                             lh_error *err)
{
    const lh_pipeline *p = found->built.pipeline;
    int64_t after = found->built.optimizer_ns + found->built.overhead_ns;
    lh_timeline *t;
    lh_bound bound;
    *choice = (lh_choice){.status = LH_CHOICE_OK,
                          .layout = found->config.layout,
                          .placement = found->config.placement,
                          .recompute = found->config.recompute,
                          .microbatches = found->config.microbatches,
                          .why = "",
                          .elastic = found->details,
                          .chunk_layers = found->config.layers};
    choice->layout.schedule = found->details ? LHI_ELASTIC : method;
    if (found->details) {
        choice->zero = lhi_elastic_zero(found->details);
        if (found->details->n_recomputed > 0)
            choice->recompute = LH_RECOMPUTE_OPERATIONS;
    }
    LHI_TRY(lhi_compute_closed_form_bound(p, &bound, err));
    LHI_TRY(lh_simulate(p, found->schedule, NULL, &t, err));
    choice->makespan_ns = lh_timeline_makespan(t);
    choice->optimizer_ns = found->built.optimizer_ns;
    choice->overhead_ns = found->built.overhead_ns;
    choice->iteration_ns = choice->makespan_ns + after;
    choice->lower_bound_ns = bound.ns + after;
    choice->bubble_ratio = lh_timeline_bubble_ratio(t);
    lhi_choice_memory(choice, p, found->schedule);
    lh_timeline_free(t);
    return LH_OK;
}

lh_status lhi_elastic_choice_of(const lhi_elastic_result *found,
                                lh_choice *choice, lh_error *err)
{
    return fill_choice(found, NULL, choice, err);
}

/* Returns a plan candidate for the table: the layout of `like` with schedule
 * `method`, status "does not fit into memory" and unknown times. */
static lh_choice start_row(const lhi_config *like, const char *method)
{
    lh_choice row = {.status = LH_CHOICE_MEMORY,
                     .layout = like->layout,
                     .placement = like->placement,
                     .recompute = like->recompute,
                     .microbatches = like->microbatches,
                     .iteration_ns = -1,
                     .makespan_ns = -1};
    row.layout.schedule = method;
    return row;
}

/* Sets the table row's description: `what` and, if activations are offloaded,
 * the host memory per GPU and the copies' time. */
static lh_status describe_row(const lhi_elastic_result *r, const char *what,
                              lhi_arena *mem, lh_choice *row, lh_error *err)
{
    char text[LHI_ELASTIC_WHY];
    row->why = what;
    if (r->offloaded_bytes == 0)
        return LH_OK;
    double gib = (double)r->offloaded_bytes / (1 << 30);
    snprintf(text, sizeof text,
             "%s: %.0f GiB of host memory per GPU, %.1f s of copies each way",
             what, gib, (double)r->copying_ns / 1e9);
    row->why = lhi_arena_strdup(mem, text);
    return row->why ? LH_OK : lhi_fail_nomem(err);
}

/* Checks whether the caller's callback asks to stop, and passes it whether the
 * table has a row. */
static bool is_stopped(const lhi_elastic_choices *out)
{
    return out->stopped && out->stopped(out->context, out->n_rows > 0);
}

/* Searches the best elastic plan with the degrees of `like` and the options
 * `freedom`, and adds it, or the reason why there is none, to the table *out;
 * `what` describes the row. Adds nothing if the search was stopped. */
static lh_status add_row(const lh_job *job, const lhi_config *like,
                         const lhi_elastic_options *freedom, const char *what,
                         lhi_arena *mem, lhi_elastic_choices *out,
                         lh_error *err)
{
    if (is_stopped(out))
        return LH_OK;
    lh_error why = {0};
    lhi_elastic_result *r = &out->results[out->n_rows];
    lh_choice *row = &out->rows[out->n_rows];
    lhi_elastic_options f = *freedom;
    f.stopped = out->stopped;
    f.context = out->context;
    lh_status status = lhi_elastic_search_layout(job, like, &f, mem, r, &why);
    if (status == LH_EINFEASIBLE && is_stopped(out))
        return LH_OK; /* the reason is not known */
    if (status == LH_OK) {
        out->n_rows++;
        LHI_TRY(fill_choice(r, NULL, row, err));
        return describe_row(r, what, mem, row, err);
    }
    if (lhi_method_is_inapplicable(status)) {
        char text[LHI_ELASTIC_WHY];
        *row = start_row(like, LHI_ELASTIC);
        snprintf(text, sizeof text, "%s: %.200s", what, why.text);
        row->why = lhi_arena_strdup(mem, text);
        out->n_rows += row->why != NULL;
        return row->why ? LH_OK : lhi_fail_nomem(err);
    }
    if (err)
        *err = why;
    return status;
}

/* Adds to the table the best plans without one feature each (such as unequal
 * layers, mixed sharding or recomputation, if the job leaves it open), and
 * depth-first, breadth-first and offloading plans. */
static lh_status add_rows(const lh_job *job, lhi_arena *mem,
                          lhi_elastic_choices *out, lh_error *err)
{
    lhi_elastic_options all = lhi_elastic_options_from_job(job);
    const lhi_config *best = &out->results[0].config;
    all.chunks = best->layout.chunks_per_device;
    lhi_elastic_options even = all, f;
    even.uneven = false;
    if (best->layers && !job->layout.chunk_layers)
        LHI_TRY(
            add_row(job, best, &even, "equal layers per chunk", mem, out, err));
    all.layers = best->layers;
    f = all;
    if (!job->training.zero_given) {
        f.shardings = get_mode_bit(LH_ELASTIC_ZERO1);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-1", mem, out, err));
        f.shardings = get_mode_bit(LH_ELASTIC_ZERO2);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-2", mem, out, err));
        f.shardings = get_mode_bit(LH_ELASTIC_ZERO3);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-3", mem, out, err));
    }
    f = all;
    f.recompute = false;
    if (all.recompute)
        LHI_TRY(add_row(job, best, &f, "nothing recomputed", mem, out, err));
    if (all.recompute && !job->training.zero_given) {
        f.shardings = get_mode_bit(LH_ELASTIC_ZERO1);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-1, nothing recomputed", mem,
                        out, err));
    }
    f = even;
    f.depth_first = true;
    LHI_TRY(add_row(job, best, &f, "depth-first, like interleaved-1f1b", mem,
                    out, err));
    f = even;
    f.breadth_first = true;
    LHI_TRY(add_row(job, best, &f, "breadth-first, one group", mem, out, err));
    if (job->training.recompute_given &&
        job->training.recompute != LH_RECOMPUTE_NONE)
        return LH_OK;
    f.recompute = false;
    f.offload = true;
    return add_row(job, best, &f, "breadth-first with offloading, like Fold3D",
                   mem, out, err);
}

/* --- zero-bubble ---------------------------------------------------------- */

/* One zero-bubble schedule to compare with. */
typedef struct zero_bubble {
    const char *method;
    uint32_t chunks;
    lh_placement placement;
} zero_bubble;

/* Builds the layout `config`, runs schedule method `method` on it and simulates
 * the result, into *out. */
static lh_status run_method(const lh_job *job, const lhi_config *config,
                            const char *method, lhi_elastic_result *out,
                            lh_error *err)
{
    lh_timeline *t;
    lh_method_options how = {.size = sizeof how};
    out->config = *config;
    LHI_TRY(lhi_layout_build(job, config, &out->built, err));
    LHI_TRY(lh_method_run(method, out->built.pipeline, &how, &out->schedule,
                          NULL, err));
    LHI_TRY(lh_simulate(out->built.pipeline, out->schedule, NULL, &t, err));
    out->makespan_ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    return LH_OK;
}

/* Adds a table row with zero-bubble schedule `z` (method, placement, chunks per
 * device) on the degrees of `like`: the fastest that fits into memory, over all
 * recomputation modes that the job allows. */
static lh_status add_zero_bubble(const lh_job *job, const lhi_config *like,
                                 const zero_bubble *z, lhi_arena *mem,
                                 lhi_elastic_choices *out, lh_error *err)
{
    const lh_training *t = &job->training;
    lhi_elastic_result best = {0};
    lhi_config config = {.layout = like->layout,
                         .placement = z->placement,
                         .microbatches = like->microbatches};
    char text[LHI_ELASTIC_WHY];
    lh_error why = {0};
    lh_status status = LH_OK, last = LH_OK;
    config.layout.chunks_per_device = z->chunks;
    for (uint32_t k = LH_RECOMPUTE_NONE;
         k <= LH_RECOMPUTE_MODULES && status == LH_OK; k++) {
        lhi_elastic_result one = {0};
        if (t->recompute_given ? k != (uint32_t)t->recompute
                               : k == LH_RECOMPUTE_MODULES)
            continue;
        config.recompute = (lh_recompute)k;
        last = run_method(job, &config, z->method, &one, &why);
        bool better = last == LH_OK &&
                      (!best.schedule || one.makespan_ns < best.makespan_ns);
        if (better) {
            lhi_elastic_result before = best;
            best = one;
            one = before;
        }
        free_result(&one);
        if (last != LH_OK && !lhi_method_is_inapplicable(last))
            status = last;
    }
    if (status != LH_OK) {
        free_result(&best);
        if (err)
            *err = why;
        return status;
    }
    if (!best.schedule && last == LH_EUNSUPPORTED)
        return LH_OK;
    lh_choice *row = &out->rows[out->n_rows];
    out->results[out->n_rows++] = best;
    if (best.schedule) {
        LHI_TRY(fill_choice(&best, z->method, row, err));
        row->why = "zero-bubble within the same memory";
        return LH_OK;
    }
    *row = start_row(&config, z->method);
    snprintf(text, sizeof text, "zero-bubble: %.200s", why.text);
    row->why = lhi_arena_strdup(mem, text);
    return row->why ? LH_OK : lhi_fail_nomem(err);
}

/* Adds table rows with the zero-bubble schedules ZB-H1, ZB-H2 and ZB-V on the
 * best plan's degrees, if the job leaves schedule and chunk count open. */
static lh_status add_zero_bubbles(const lh_job *job, lhi_arena *mem,
                                  lhi_elastic_choices *out, lh_error *err)
{
    static const zero_bubble all[] = {{"zb-h1", 1, LH_PLACEMENT_UD},
                                      {"zb-h2", 1, LH_PLACEMENT_UD},
                                      {"zb-v", 2, LH_PLACEMENT_WAVE}};
    lhi_config like = out->results[0].config;
    if (lhi_schedule_requested(job) != LHI_REQUEST_ANY)
        return LH_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !is_stopped(out); i++) {
        uint32_t chunks = job->layout.chunks_per_device;
        if ((chunks && chunks != all[i].chunks) ||
            all[i].chunks * like.layout.pipeline > job->model->layers)
            continue;
        LHI_TRY(add_zero_bubble(job, &like, &all[i], mem, out, err));
    }
    return LH_OK;
}

/* Formats the percentages of ZeRO-1, ZeRO-2 and ZeRO-3 into `text`. */
static const char *format_sharding(const lh_plan_elastic *e, char *text,
                                   size_t room)
{
    snprintf(text, room, "ZeRO-1 %.0f %%, ZeRO-2 %.0f %%, ZeRO-3 %.0f %%",
             100 * (1 - e->gradients), 100 * (e->gradients - e->parameters),
             100 * e->parameters);
    return text;
}

/* Inserts the plan of the published planner (PipeMesh) as the table's first
 * row; the fastest plan becomes the second. */
static lh_status add_published_row(const lh_job *job, lhi_arena *mem,
                                   lhi_elastic_choices *out, lh_error *err)
{
    lhi_elastic_options f = lhi_elastic_options_from_job(job);
    lhi_elastic_result found;
    lh_choice row;
    const lhi_config like = out->results[0].config;
    f.published = true;
    f.stopped = out->stopped;
    f.context = out->context;
    lh_status status =
        lhi_elastic_search_layout(job, &like, &f, mem, &found, err);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "PipeMesh's planner");
        return status;
    }
    status = fill_choice(&found, NULL, &row, err);
    if (status != LH_OK) {
        free_result(&found);
        return status;
    }
    out->rows[0].why = "result of longhaul's own search";
    memmove(out->rows + 1, out->rows, out->n_rows * sizeof *out->rows);
    memmove(out->results + 1, out->results, out->n_rows * sizeof *out->results);
    out->rows[0] = row;
    out->results[0] = found;
    out->n_rows++;
    return LH_OK;
}

/* Formats an elastic plan's range of group sizes, from the last (smallest) to
 * the first group: "8 to 64 microbatches". Returns `text`. */
static const char *format_groups(const lh_plan_elastic *e, char *text,
                                 size_t room)
{
    unsigned least = e->enqueue[e->n_enqueue - 1], most = e->enqueue[0];
    if (least == most)
        snprintf(text, room, "%u microbatch%s", most, most == 1 ? "" : "es");
    else
        snprintf(text, room, "%u to %u microbatches", least, most);
    return text;
}

/* Sets the rows' descriptions: for the first row its groups, sharding and
 * recomputation; for every other row how much slower it is than the first. */
static lh_status describe_rows(lhi_elastic_choices *out, lhi_arena *mem,
                               lh_error *err)
{
    lh_choice *first = &out->rows[0];
    const lh_plan_elastic *e = first->elastic;
    char text[LHI_ELASTIC_WHY], sizes[80], shares[80];
    size_t used =
        (size_t)snprintf(text, sizeof text, "%s%u group%s of %s, %s",
                         out->published ? "plan of PipeMesh's planner: " : "",
                         (unsigned)e->n_enqueue, e->n_enqueue == 1 ? "" : "s",
                         format_groups(e, sizes, sizeof sizes),
                         format_sharding(e, shares, sizeof shares));
    for (uint32_t i = 0; i < e->n_recomputed && used + 40 < sizeof text; i++)
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%s %.0f %%",
            i ? ", " : "; recomputed: ", e->recomputed[i].operation,
            100 * e->recomputed[i].first);
    first->why = lhi_arena_strdup(mem, text);
    if (!first->why)
        return lhi_fail_nomem(err);
    for (uint32_t i = 1; i < out->n_rows; i++) {
        lh_choice *row = &out->rows[i];
        if (row->status != LH_CHOICE_OK)
            continue;
        double idle = (double)row->makespan_ns * row->bubble_ratio;
        double less = (double)first->makespan_ns * first->bubble_ratio;
        double work = (double)row->makespan_ns - idle -
                      ((double)first->makespan_ns - less);
        snprintf(text, sizeof text,
                 "%s: %+.1f %% against %s, "
                 "work %+.3f s, waiting %+.3f s per device",
                 row->why,
                 lhi_drop_negative_zero(100 * ((double)row->iteration_ns /
                                                   (double)first->iteration_ns -
                                               1),
                                        1),
                 out->published ? "that planner's" : "the fastest elastic plan",
                 lhi_drop_negative_zero(work / 1e9, 3),
                 lhi_drop_negative_zero((idle - less) / 1e9, 3));
        if (out->results[i].offloaded_bytes > 0) {
            /* The device alone cannot hold it and the host's memory is unknown:
             * a time for comparison, not a plan. */
            size_t end = strlen(text);
            snprintf(text + end, sizeof text - end,
                     ": %.3f s if hosts have that memory",
                     (double)row->iteration_ns / 1e9);
            row->status = LH_CHOICE_MEMORY;
            row->iteration_ns = row->makespan_ns = -1;
        }
        row->why = lhi_arena_strdup(mem, text);
        if (!row->why)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Swaps the fastest row that offloads nothing to host memory with the table's
 * first row. */
static void sort_fastest_first(lhi_elastic_choices *out)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < out->n_rows; i++)
        if (out->rows[i].status == LH_CHOICE_OK &&
            out->results[i].offloaded_bytes == 0 &&
            out->rows[i].iteration_ns < out->rows[best].iteration_ns)
            best = i;
    lh_choice row = out->rows[best];
    lhi_elastic_result result = out->results[best];
    out->rows[best] = out->rows[0];
    out->results[best] = out->results[0];
    out->rows[0] = row;
    out->results[0] = result;
}

void lhi_elastic_choices_fini(lhi_elastic_choices *choices)
{
    for (uint32_t i = 0; i < LHI_ELASTIC_ROWS; i++)
        free_result(&choices->results[i]);
}

lh_status lhi_elastic_choices_make(const lh_job *job, lhi_elastic_result *found,
                                   lhi_arena *mem, lhi_elastic_choices *out,
                                   lh_error *err)
{
    out->results[0] = *found;
    *found = (lhi_elastic_result){0};
    LHI_TRY(fill_choice(&out->results[0], NULL, &out->rows[0], err));
    LHI_TRY(describe_row(&out->results[0],
                         "result of the search over equal stages", mem,
                         &out->rows[0], err));
    out->n_rows = 1;
    LHI_TRY(add_rows(job, mem, out, err));
    sort_fastest_first(out);
    LHI_TRY(add_zero_bubbles(job, mem, out, err));
    if (out->published)
        LHI_TRY(add_published_row(job, mem, out, err));
    return describe_rows(out, mem, err);
}
