/* SPDX-License-Identifier: Apache-2.0 */
/* Multilevel search: a pipeline with half of the devices, chunks and
 * microbatches, and half of the memory, has similar good schedules in half of
 * the time. Rule parameters are tuned where a schedule takes little work, and
 * interpolated for the next larger pipeline. */
#include "schedule/solver/improve/multilevel.h"

#include "base/integer_math.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/improve/rule_tuning.h"

enum { MAX_LEVELS = 8, MIN_DEVICES = 8 };

/* One pipeline of the hierarchy with its job shop. */
typedef struct level {
    const lh_pipeline *p;
    const lhi_shop *shop;
    lhi_justifier *justifier; /* may be NULL */
    lhi_machine_orders *orders;
    lhi_rule_parameters parameters;
} level;

/* Checks whether the pipeline can be halved: every pair of chunks 2c, 2c + 1 is
 * on a pair of devices 2d, 2d + 1. */
static bool can_halve(const lh_pipeline *p)
{
    if (p->n_devices < MIN_DEVICES || p->n_devices % 2 || p->n_chunks % 2 ||
        p->n_chunks < MIN_DEVICES || p->n_microbatches % 2 ||
        p->has_collectives || p->offloads || p->n_copies > 1 ||
        p->n_slices > 1 || p->overlap_f_b > 0 || p->n_dp_ops > 0)
        return false;
    for (uint32_t c = 0; c < p->n_chunks; c += 2)
        if (p->chunks[c].device / 2 != p->chunks[c + 1].device / 2)
            return false;
    return true;
}

/* Returns the total time of a machine's operations, in units of the shop. */
static int64_t compute_work(const lhi_shop *shop, const lhi_machine *m)
{
    int64_t work = 0;
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const lhi_stream *t = &shop->streams[m->first_stream + i];
        for (uint32_t k = 0; k < t->count; k++)
            work += shop->time[t->first + k];
    }
    return work;
}

/* Checks whether messages wait little in queues, which coarser pipelines do not
 * have: no link works half as long as the device with the most work. Measured:
 * with busier links (CrossWave with transfers of two forward passes) tuning
 * coarser pipelines made schedules 6 to 19 % longer. */
static bool has_short_queues(const lhi_shop *shop)
{
    int64_t device = 0, link = 0;
    for (uint32_t m = 0; m < shop->n_machines; m++) {
        const lhi_machine *machine = &shop->machines[m];
        int64_t *most = machine->kind == LHI_DEVICE ? &device : &link;
        *most = lhi_max_int64(*most, compute_work(shop, machine));
    }
    return 2 * link < device;
}

bool lhi_multilevel_is_applicable(const lhi_solver *r)
{
    return !r->is_reduced && can_halve(r->p) &&
           r->p->n_chunks >= 2 * r->p->n_devices &&
           r->o.objective == LH_SOLVE_OBJECTIVE_MAKESPAN &&
           lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_TUNING) &&
           has_short_queues(r->shop);
}

/* Returns a route's delay in ns without queueing. */
static int64_t get_delay(const lhi_route *route)
{
    return route->message ? route->transfer_ns + route->latency_ns : 0;
}

/* Sets the halved pipeline's route from chunk `from` to chunk `to`. Its delay
 * is half of the delay between the middles of the two pairs of chunks.
 * `routes`: the pipeline's routes in this direction; routes[c] leaves chunk
 * c. */
static lhi_route halve_route(const lh_pipeline *p, const lhi_route *routes,
                             uint32_t from, uint32_t to)
{
    const bool forward = to > from;
    const uint32_t last = forward ? 2 * from + 1 : 2 * from;
    const uint32_t first = forward ? 2 * from : 2 * from + 1;
    const uint32_t next = forward ? 2 * to : 2 * to + 1;
    const int64_t delay =
        get_delay(&routes[last]) +
        (get_delay(&routes[first]) + get_delay(&routes[next])) / 2;
    const bool message =
        p->chunks[2 * from].device / 2 != p->chunks[2 * to].device / 2;
    return (lhi_route){.message = message,
                       .link = LH_NONE,
                       .resource = LH_NONE,
                       .latency_ns = message ? delay / 2 : 0};
}

/* Returns the mean of two chunks, on the device of the halved pipeline. */
static lh_chunk halve_chunks(const lh_chunk *a, const lh_chunk *b)
{
    lh_chunk c = *a;
    c.device = a->device / 2;
    c.f_ns = (a->f_ns + b->f_ns) / 2;
    c.d_ns = (a->d_ns + b->d_ns) / 2;
    c.w_ns = (a->w_ns + b->w_ns) / 2;
    c.mem_static = 0;
    c.mem_f = (a->mem_f + b->mem_f) / 2;
    c.mem_d = (a->mem_d + b->mem_d) / 2;
    c.mem_w = -c.mem_f - c.mem_d;
    return c;
}

/* Builds the halved pipeline `out` of p in `mem`: half of the devices, chunks,
 * microbatches and memory, and links without queueing. */
static lh_status halve_pipeline(const lh_pipeline *p, lhi_arena *mem,
                                lh_pipeline *out, lh_error *err)
{
    const uint32_t n = p->n_chunks / 2;
    *out = *p;
    out->n_devices = p->n_devices / 2;
    out->n_chunks = n;
    out->n_microbatches = p->n_microbatches / 2;
    out->n_resources = 0;
    out->chunks = LHI_NEW(mem, lh_chunk, n);
    out->forward = LHI_NEW(mem, lhi_route, n);
    out->backward = LHI_NEW(mem, lhi_route, n);
    out->memory_limits = LHI_NEW(mem, int64_t, out->n_devices);
    if (!out->chunks || !out->forward || !out->backward || !out->memory_limits)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < out->n_devices; d++)
        out->memory_limits[d] =
            lhi_min_int64(p->memory_limits[2 * d], p->memory_limits[2 * d + 1]);
    for (uint32_t c = 0; c < n; c++) {
        const lh_chunk *pair = &p->chunks[2 * c];
        int64_t *limit = &out->memory_limits[pair->device / 2];
        out->chunks[c] = halve_chunks(&pair[0], &pair[1]);
        if (*limit != LH_NO_LIMIT)
            *limit -= (pair[0].mem_static + pair[1].mem_static) / 2;
        if (c + 1 < n)
            out->forward[c] = halve_route(p, p->forward, c, c + 1);
        if (c > 0)
            out->backward[c] = halve_route(p, p->backward, c, c - 1);
    }
    for (uint32_t d = 0; d < out->n_devices; d++)
        if (out->memory_limits[d] != LH_NO_LIMIT)
            out->memory_limits[d] /= 2;
    return LH_OK;
}

/* Returns the value at fine chunk c between the values of two coarse chunks,
 * linearly interpolated or extrapolated. A coarse chunk is in the middle of its
 * two fine chunks. */
static double interpolate(double a, double b, uint32_t c, uint32_t coarse)
{
    const double x = ((double)c + 0.5) / 2 - 0.5 - (double)coarse;
    return a + x * (b - a);
}

/* Sets the fine level's parameters to those of the coarse level, interpolated
 * over chunks: offsets twice as long, caps twice as large. */
static void refine_parameters(const level *coarse, level *fine)
{
    const lhi_shop *s = coarse->shop, *t = fine->shop;
    const double unit = 2 * (double)s->unit_ns / (double)s->scale *
                        (double)t->scale / (double)t->unit_ns;
    const uint32_t n = fine->p->n_chunks, last = coarse->p->n_chunks - 2;
    const uint32_t *from[] = {s->f, s->d, s->w}, *to[] = {t->f, t->d, t->w};
    fine->parameters.patience = coarse->parameters.patience;
    for (uint32_t c = 0; c < n; c++) {
        const uint32_t left = c < 1 ? 0 : (c - 1) / 2;
        const uint32_t x = left < last ? left : last;
        for (int k = 0; k < (fine->p->joint ? 2 : 3); k++) {
            const int64_t *offset = coarse->parameters.offset;
            fine->parameters.offset[to[k][c]] =
                (int64_t)(unit * interpolate((double)offset[from[k][x]],
                                             (double)offset[from[k][x + 1]], c,
                                             x));
        }
        const uint32_t *cap = coarse->parameters.cap;
        const double most = 2 * interpolate(cap[x], cap[x + 1], c, x);
        fine->parameters.cap[c] = most < 1 ? 1
                                  : most < t->n_microbatches
                                      ? (uint32_t)most
                                      : t->n_microbatches;
    }
}

/* Fills in a level for pipeline p. `shop`: its job shop; NULL: built in
 * `mem`. */
static lh_status make_level(const lhi_solver *r, const lh_pipeline *p,
                            lhi_shop *shop, lhi_arena *mem, level *out,
                            lh_error *err)
{
    if (!shop)
        LHI_TRY(lhi_shop_make(p, r->o.sub_blocks, false, r->o.objective, mem,
                              &shop, err));
    *out = (level){.p = p, .shop = shop};
    LHI_TRY(lhi_justifier_make(shop, mem, &out->justifier, err));
    LHI_TRY(lhi_machine_orders_make(shop, mem, &out->orders, err));
    return lhi_rule_parameters_make(shop, mem, &out->parameters, err);
}

/* Builds levels[0] for the solver's pipeline and the following ones for
 * pipelines halved in turn. Returns their number in *n. */
static lh_status make_levels(const lhi_solver *r, lhi_arena *mem, level *levels,
                             uint32_t *n, lh_error *err)
{
    const lh_pipeline *p = r->p;
    LHI_TRY(make_level(r, p, r->shop, mem, &levels[0], err));
    for (*n = 1; *n < MAX_LEVELS && can_halve(p); ++*n) {
        lh_pipeline *half = LHI_NEW(mem, lh_pipeline, 1);
        if (!half)
            return lhi_fail_nomem(err);
        LHI_TRY(halve_pipeline(p, mem, half, err));
        LHI_TRY(make_level(r, half, NULL, mem, &levels[*n], err));
        p = half;
    }
    return LH_OK;
}

/* Tunes all levels, the coarsest first; offers the schedule of levels[0] to the
 * solver. levels[0] gets a quarter of the work: its steps take most, and its
 * initial parameters are good. The others share the rest equally. */
static lh_status tune_levels(lhi_solver *r, level *levels, uint32_t n,
                             uint64_t ticks, lhi_arena *mem, lh_error *err)
{
    for (uint32_t i = n; i-- > 0 && !lhi_solver_is_done(r);) {
        level *l = &levels[i];
        int64_t time = -1;
        const lhi_tuning_options how = {
            .seed = r->o.seed,
            .ticks = i > 0 ? ticks / 4 * 3 / (n - 1) : ticks / 4,
            .target = i > 0 ? 0 : lhi_shop_get_deadline(r->shop, r->low_units),
            .parameters = &l->parameters,
            .justifier = l->justifier};
        if (i + 1 < n)
            refine_parameters(&levels[i + 1], l);
        LHI_TRY(
            lhi_rule_tuning_run(l->orders, &time, &how, &r->budget, mem, err));
        if (i == 0 && time >= 0)
            return lhi_solver_offer_orders(r, l->orders, LHI_ENGINE_TUNING,
                                           err);
    }
    return LH_OK;
}

lh_status lhi_multilevel_run(lhi_solver *r, uint64_t ticks, lh_error *err)
{
    level levels[MAX_LEVELS];
    uint32_t n = 0;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_TUNING);
    lhi_solver_report(r, "tuning");
    lh_status status = make_levels(r, mem, levels, &n, err);
    if (status == LH_OK)
        status = tune_levels(r, levels, n, ticks, mem, err);
    lhi_budget_restore_engine(&r->budget, before);
    lhi_arena_free(mem);
    return status;
}
