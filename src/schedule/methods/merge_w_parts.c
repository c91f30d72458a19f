/* SPDX-License-Identifier: Apache-2.0 */
/* Merges W parts into whole W passes, for runtimes without parts. Each W runs
 * in the position of one of its parts. The position is chosen so that memory
 * still fits and the makespan grows least: first the best of all-first,
 * all-middle and all-last, then one W after another is moved while that helps
 * and the work limit allows. */
#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <stdbool.h>

/* Work limit for local search: passes evaluated over all moves. */
#define MAX_WORK UINT64_C(40000000)

/* Search state for merging W parts. */
typedef struct merge_state {
    const lh_pipeline *pipeline; /* may be NULL */
    const lh_schedule *divided;
    lhi_arena *mem;
    lh_evaluator *evaluator;
    uint32_t n_devices;
    uint16_t *
        *place; /* [device][pass]: part at whose position the whole W runs */
    lh_pass **orders;
    uint32_t *counts;
    int64_t *fixed; /* per device: static memory */
    uint64_t n_passes;
} merge_state;

/* Objective: memory feasibility first, then makespan. */
typedef struct objective {
    bool fits;
    int64_t makespan_ns;
} objective;

/* Checks whether schedule result a is better than b: only a fits into memory,
 * or a is faster and either both fit or neither does. */
static bool is_better(objective a, objective b)
{
    if (a.fits != b.fits)
        return a.fits;
    return a.makespan_ns < b.makespan_ns;
}

/* Builds the schedule in which each W runs undivided at the position of the
 * part that the search has chosen for it. */
static lh_status make_schedule(merge_state *w, lh_schedule **out, lh_error *err)
{
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint32_t count, n = 0;
        const lh_pass *order = lh_schedule_order(w->divided, d, &count);
        for (uint32_t i = 0; i < count; i++) {
            lh_pass pass = order[i];
            if (pass.n_parts > 1 && pass.part != w->place[d][i])
                continue;
            pass.part = 0;
            pass.n_parts = 1;
            w->orders[d][n++] = pass;
        }
        w->counts[d] = n;
    }
    uint32_t n_links = lh_schedule_n_link_orders(w->divided);
    return lh_schedule_make(
        w->n_devices, (const lh_pass *const *)w->orders, w->counts, n_links,
        n_links ? lh_schedule_link_order(w->divided, 0) : NULL, out, err);
}

/* Checks that every device's peak memory is within its limit. */
static bool fits(const merge_state *w)
{
    for (uint32_t d = 0; d < w->n_devices; d++) {
        int64_t held = w->fixed[d];
        int64_t limit = lh_pipeline_memory_limit(w->pipeline, d);
        for (uint32_t i = 0; i < w->counts[d]; i++) {
            const lh_pass *pass = &w->orders[d][i];
            held += lhi_pass_memory_change(
                lh_pipeline_chunk(w->pipeline, pass->chunk), pass);
            if (held > limit)
                return false;
        }
    }
    return true;
}

/* Builds the schedule for the chosen W positions and simulates it. *out: the
 * schedule; *s: its makespan and whether it fits into memory. */
static lh_status evaluate(merge_state *w, lh_schedule **out, objective *s,
                          lh_error *err)
{
    lh_schedule *made;
    LHI_TRY(make_schedule(w, &made, err));
    lh_status status =
        lh_evaluator_run(w->evaluator, made, &s->makespan_ns, err);
    if (status != LH_OK) {
        lh_schedule_free(made);
        return status;
    }
    s->fits = fits(w);
    *out = made;
    return LH_OK;
}

/* Chooses for every W the position at which the merged pass runs: that of its
 * first part (`which` 0), middle part (1) or last part (2). */
static void place_all(merge_state *w, int which)
{
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint32_t count;
        const lh_pass *order = lh_schedule_order(w->divided, d, &count);
        for (uint32_t i = 0; i < count; i++) {
            uint16_t last = (uint16_t)(order[i].n_parts - 1);
            w->place[d][i] = which == 0 ? 0 : which == 1 ? last / 2 : last;
        }
    }
}

/* Lets the merged W of device d whose first part is at index `first` of the
 * device's order run at the position of its part number `part`. */
static void place_one(merge_state *w, uint32_t d, uint32_t first, uint16_t part)
{
    uint32_t count;
    const lh_pass *order = lh_schedule_order(w->divided, d, &count);
    const lh_pass *w0 = &order[first];
    for (uint32_t i = first, seen = 0; i < count && seen < w0->n_parts; i++)
        if (order[i].kind == LH_W && order[i].chunk == w0->chunk &&
            order[i].microbatch == w0->microbatch) {
            w->place[d][i] = part;
            seen++;
        }
}

/* Tries the first, middle and last part's position for one W, whose first part
 * is at index `first`, and keeps the best schedule. */
static lh_status improve_one(merge_state *w, uint32_t d, uint32_t first,
                             uint16_t n_parts, lh_schedule **best, objective *s,
                             lh_error *err)
{
    uint16_t now = w->place[d][first];
    const uint16_t tries[] = {0, (uint16_t)((n_parts - 1) / 2),
                              (uint16_t)(n_parts - 1)};
    for (size_t k = 0; k < 3; k++) {
        lh_schedule *made;
        objective other;
        if (tries[k] == now)
            continue;
        place_one(w, d, first, tries[k]);
        LHI_TRY(evaluate(w, &made, &other, err));
        if (is_better(other, *s)) {
            lh_schedule_free(*best);
            *best = made;
            *s = other;
            now = tries[k];
        } else {
            lh_schedule_free(made);
        }
    }
    place_one(w, d, first, now);
    return LH_OK;
}

/* Local search: improves the W positions one after another within the work
 * limit. */
static lh_status improve(merge_state *w, lh_schedule **best, objective *s,
                         lh_error *err)
{
    uint64_t effort = 0;
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint32_t count;
        const lh_pass *order = lh_schedule_order(w->divided, d, &count);
        for (uint32_t i = 0; i < count; i++) {
            if (order[i].n_parts == 1 || order[i].part != 0)
                continue;
            effort += 3 * w->n_passes;
            if (effort > MAX_WORK)
                return LH_OK;
            LHI_TRY(improve_one(w, d, i, order[i].n_parts, best, s, err));
        }
    }
    return LH_OK;
}

/* Finds the best common position for all W (first, middle or last part), then
 * improves single ones. */
static lh_status search(merge_state *w, lh_schedule **out, lh_error *err)
{
    lh_schedule *best = NULL;
    objective best_score = {false, 0};
    int best_which = 0;
    lh_status status = LH_OK;
    for (int which = 0; which < 3 && status == LH_OK; which++) {
        lh_schedule *made;
        objective s;
        place_all(w, which);
        status = evaluate(w, &made, &s, err);
        if (status != LH_OK)
            break;
        if (!best || is_better(s, best_score)) {
            lh_schedule_free(best);
            best = made;
            best_score = s;
            best_which = which;
        } else {
            lh_schedule_free(made);
        }
    }
    if (status == LH_OK) {
        place_all(w, best_which);
        status = improve(w, &best, &best_score, err);
    }
    if (status != LH_OK) {
        lh_schedule_free(best);
        return status;
    }
    *out = best;
    return LH_OK;
}

/* Allocates, per device, arrays as long as the device's order in the schedule
 * with divided W. */
static lh_status allocate(merge_state *w, lh_error *err)
{
    w->n_devices = lh_schedule_n_devices(w->divided);
    w->place = LHI_NEW(w->mem, uint16_t *, w->n_devices);
    w->orders = LHI_NEW(w->mem, lh_pass *, w->n_devices);
    w->counts = LHI_NEW(w->mem, uint32_t, w->n_devices);
    w->fixed = LHI_NEW(w->mem, int64_t, w->n_devices);
    if (!w->place || !w->orders || !w->counts || !w->fixed)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint32_t count;
        lh_schedule_order(w->divided, d, &count);
        w->n_passes += count;
        w->place[d] = LHI_NEW(w->mem, uint16_t, count);
        w->orders[d] = LHI_NEW(w->mem, lh_pass, count);
        if (!w->place[d] || !w->orders[d])
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Merges the parts of every W by local search; without a pipeline, each W takes
 * its last part's position. */
static lh_status merge_parts(merge_state *w, lh_schedule **out, lh_error *err)
{
    LHI_TRY(allocate(w, err));
    if (!w->pipeline) {
        place_all(w, 2);
        return make_schedule(w, out, err);
    }
    LHI_TRY(lh_evaluator_make(w->pipeline, NULL, &w->evaluator, err));
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(w->pipeline); c++) {
        const lh_chunk *chunk = lh_pipeline_chunk(w->pipeline, c);
        if (chunk->device < w->n_devices)
            w->fixed[chunk->device] += chunk->mem_static;
    }
    int64_t ignored; /* also checks schedule against pipeline */
    lh_status status =
        lh_evaluator_run(w->evaluator, w->divided, &ignored, err);
    if (status == LH_OK)
        status = search(w, out, err);
    lh_evaluator_free(w->evaluator);
    return status;
}

lh_status lh_schedule_merge_parts(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  lh_schedule **out, lh_error *err)
{
    merge_state w = {.pipeline = pipeline, .divided = schedule};
    w.mem = lhi_arena_make(0);
    if (!w.mem)
        return lhi_fail_nomem(err);
    lh_status status = merge_parts(&w, out, err);
    lhi_arena_free(w.mem);
    return status;
}
