/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans as choices among others: the best one, and what it would be
 * without each of its parts. */
#include "plan/elastic_choices.h"

#include "pipe/pipeline.h"

#include <longhaul/bounds.h>
#include <longhaul/elastic.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <string.h>

static uint32_t bit(lh_elastic_sharding sharding)
{
    return 1u << sharding;
}

/* What the job leaves open. */
static lhi_elastic_freedom freedom_of(const lh_job *job)
{
    const lh_training *t = &job->training;
    lhi_elastic_freedom f = {.recompute = !t->recompute_given};
    if (t->zero_given)
        f.shardings = bit(t->zero == 1   ? LH_ELASTIC_ZERO1
                          : t->zero == 2 ? LH_ELASTIC_ZERO2
                                         : LH_ELASTIC_ZERO3);
    return f;
}

static lh_status fill_choice(const lhi_elastic_result *found,
                             lh_choice *choice, lh_error *err)
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
                          .elastic = found->details};
    choice->layout.schedule = "elastic";
    LHI_TRY(lh_lower_bound(p, &bound, err));
    LHI_TRY(lh_simulate(p, found->schedule, NULL, &t, err));
    choice->makespan_ns = lh_timeline_makespan(t);
    choice->optimizer_ns = found->built.optimizer_ns;
    choice->overhead_ns = found->built.overhead_ns;
    choice->iteration_ns = choice->makespan_ns + after;
    choice->lower_bound_ns = bound.ns + after;
    choice->bubble_ratio = lh_timeline_bubble_ratio(t);
    int64_t least_room = INT64_MAX;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t peak = lh_timeline_peak_memory(t, d);
        if (p->memory_limits[d] - peak < least_room) {
            least_room = p->memory_limits[d] - peak;
            choice->peak_memory_bytes = peak;
            choice->memory_limit_bytes = p->memory_limits[d];
        }
    }
    lh_timeline_free(t);
    return LH_OK;
}

static void fini(lhi_elastic_result *r)
{
    lh_pipeline_free(r->built.pipeline);
    lh_schedule_free(r->schedule);
}

/* One more row: a layout with so much freedom; `what` names it. */
static lh_status add_row(const lh_job *job, const lhi_config *like,
                         const lhi_elastic_freedom *freedom, const char *what,
                         lhi_arena *mem, lhi_elastic_choices *out,
                         lh_error *err)
{
    lh_error why = {0};
    lhi_elastic_result *r = &out->results[out->n_rows];
    lh_choice *row = &out->rows[out->n_rows];
    lh_status status = lhi_elastic_layout(job, like, freedom, mem, r, &why);
    if (status == LH_OK) {
        row->why = what;
        out->n_rows++;
        lh_status filled = fill_choice(r, row, err);
        row->why = what;
        return filled;
    }
    if (status == LH_EINFEASIBLE || status == LH_EUNSUPPORTED) {
        char text[LHI_ELASTIC_WHY];
        *row = (lh_choice){.status = LH_CHOICE_MEMORY,
                           .layout = like->layout,
                           .placement = like->placement,
                           .microbatches = like->microbatches,
                           .iteration_ns = -1,
                           .makespan_ns = -1};
        row->layout.schedule = "elastic";
        snprintf(text, sizeof text, "%s: %.200s", what, why.text);
        row->why = lhi_arena_strdup(mem, text);
        out->n_rows += row->why != NULL;
        return row->why ? LH_OK : lhi_fail_nomem(err);
    }
    if (err)
        *err = why;
    return status;
}

/* Without each part that the job leaves open, and breadth-first. */
static lh_status add_rows(const lh_job *job, lhi_arena *mem,
                          lhi_elastic_choices *out, lh_error *err)
{
    lhi_elastic_freedom all = freedom_of(job);
    const lhi_config *best = &out->results[0].config;
    all.chunks = best->layout.chunks_per_device;
    lhi_elastic_freedom f = all;
    if (!job->training.zero_given) {
        f.shardings = bit(LH_ELASTIC_ZERO1);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-1", mem, out, err));
        f.shardings = bit(LH_ELASTIC_ZERO2);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-2", mem, out, err));
        f.shardings = bit(LH_ELASTIC_ZERO3);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-3", mem, out, err));
    }
    f = all;
    f.recompute = false;
    if (all.recompute)
        LHI_TRY(add_row(job, best, &f, "nothing recomputed", mem, out, err));
    if (all.recompute && !job->training.zero_given) {
        f.shardings = bit(LH_ELASTIC_ZERO1);
        LHI_TRY(add_row(job, best, &f, "all ZeRO-1, nothing recomputed", mem,
                        out, err));
    }
    f = all;
    f.depth_first = true;
    LHI_TRY(add_row(job, best, &f, "depth-first, as interleaved-1f1b", mem,
                    out, err));
    f = all;
    f.breadth_first = true;
    return add_row(job, best, &f, "breadth-first, one group", mem, out, err);
}

static const char *sharding_text(const lh_plan_elastic *e, char *text,
                                 size_t room)
{
    snprintf(text, room, "ZeRO-1 %.0f %%, ZeRO-2 %.0f %%, ZeRO-3 %.0f %%",
             100 * (1 - e->gradients), 100 * (e->gradients - e->parameters),
             100 * e->parameters);
    return text;
}

/* Says of the fastest what it is, of the others how much slower they are. */
static lh_status name_rows(lhi_elastic_choices *out, lhi_arena *mem,
                           lh_error *err)
{
    lh_choice *first = &out->rows[0];
    const lh_plan_elastic *e = first->elastic;
    char text[LHI_ELASTIC_WHY], shares[80];
    size_t used = (size_t)snprintf(
        text, sizeof text, "%u group%s of %u to %u microbatches, %s",
        (unsigned)e->n_enqueue, e->n_enqueue == 1 ? "" : "s",
        (unsigned)e->enqueue[e->n_enqueue - 1], (unsigned)e->enqueue[0],
        sharding_text(e, shares, sizeof shares));
    for (uint32_t i = 0; i < e->n_recomputed && used + 40 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %.0f %%",
                                 i ? ", " : "; recomputed: ",
                                 e->recomputed[i].operation,
                                 100 * e->recomputed[i].first);
    first->why = lhi_arena_strdup(mem, text);
    if (!first->why)
        return lhi_fail_nomem(err);
    for (uint32_t i = 1; i < out->n_rows; i++) {
        lh_choice *row = &out->rows[i];
        if (row->status != LH_CHOICE_OK)
            continue;
        snprintf(text, sizeof text, "%s: %+.1f %%", row->why,
                 100 * ((double)row->iteration_ns /
                            (double)first->iteration_ns -
                        1));
        row->why = lhi_arena_strdup(mem, text);
        if (!row->why)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* The fastest comes first. */
static void put_first(lhi_elastic_choices *out)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < out->n_rows; i++)
        if (out->rows[i].status == LH_CHOICE_OK &&
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
        fini(&choices->results[i]);
}

lh_status lhi_elastic_choices_make(const lh_job *job, const lhi_config *likes,
                                   uint32_t n_likes, lhi_arena *mem,
                                   lhi_elastic_choices *out, lh_error *err)
{
    *out = (lhi_elastic_choices){0};
    lhi_elastic_freedom all = freedom_of(job);
    for (uint32_t i = 0; i < n_likes; i++) {
        lhi_elastic_choices one = {0};
        LHI_TRY(add_row(job, &likes[i], &all, "shares by the paper's rules",
                        mem, &one, err));
        bool better = one.rows[0].status == LH_CHOICE_OK &&
                      (out->n_rows == 0 || one.rows[0].iteration_ns <
                                               out->rows[0].iteration_ns);
        if (!better) {
            fini(&one.results[0]);
            continue;
        }
        fini(&out->results[0]);
        *out = one;
    }
    if (out->n_rows == 0)
        return LH_OK;
    LHI_TRY(add_rows(job, mem, out, err));
    put_first(out);
    return name_rows(out, mem, err);
}
