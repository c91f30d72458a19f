/* SPDX-License-Identifier: Apache-2.0 */
/* Moves layers between chunks: first of the fastest ones, then of others whose
 * bound over all partitions allows a win, least bound first, even if their even
 * chunks do not fit. Finally each layout tries the layers of others. */
#include "planner/layout/equivalence.h"
#include "planner/layout/layer_partition.h"
#include "planner/search/objective.h"
#include "planner/search/search_budget.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of passes are for the default effort; more effort raises them. */
enum {
    MAX_FASTEST = 12,           /* layouts */
    PASSES_OF_FASTEST = 100000, /* scheduled for each */
    PASSES_OF_OTHERS = 30000,   /* for the others; or, if more, */
    TIMED_OF_OTHERS = 10,       /* this many partitions */
    PASSES = 3000000,           /* for all these */
    MOST_KINDS = 64,
    MAX_DISTANCE = 2, /* a neighbour's differing dimensions */
    PASSES_OF_NEAR = 2000000,
    MAX_DONORS = 3,                /* partitions with as many chunks */
    MAX_DONATED_PIPELINES = 20000, /* pipelines built with these */
    PASSES_OF_DONATED = 1000000,
    SLOW_PARTITIONS = 48, /* under a slow method, */
    SLOW_PASSES = 300000, /* but at most this, */
    LEAST_SLOW = 16,      /* and none if fewer partitions remain; */
    MAX_SLOW_STARTS = 64, /* and at most this many layouts */
};

/* All methods are tried if a fast one's time on the partition is this close to
 * the best. */
static const double CLOSE_RATIO = 1.02;

/* Effort for moving one layout's layers. */
typedef struct effort {
    const uint32_t *given; /* initial layers */
    uint64_t most;         /* passes */
    bool steepest;
    bool climbed; /* `given` is a result of hill climbing */
    bool any;     /* every method, however far from the best */
} effort;

/* Layout class: pipeline degree and chunks per device. */
typedef struct kind {
    uint32_t pipeline, chunks_per_device;
} kind;

/* Search state. */
typedef struct partition_mover {
    lhi_layout_search *s;
    uint64_t passes;
    bool *done;             /* per candidate */
    bool *tried;            /* with the effort for the fastest */
    kind kinds[MOST_KINDS]; /* kinds moved so far */
    int n_kinds;
} partition_mover;

/* Checks whether the caller asks to stop, or the search's time limit is
 * reached. */
static bool is_over(const partition_mover *m)
{
    return lhi_layout_search_should_stop(m->s, m->s->n, true);
}

/* Returns a number of passes, which is for the default effort, for the search's
 * effort. */
static uint64_t scale_passes(const partition_mover *m, uint64_t passes)
{
    return lhi_scale_by_effort(&m->s->options, passes);
}

/* Returns the schedule method for timing partitions: the candidate's best one,
 * or the default if that is slow. */
static const char *find_quick_method(const partition_mover *m,
                                     const lhi_candidate *c)
{
    const lhi_method *want = lhi_method_find(lhi_candidate_is_feasible(c)
                                                 ? c->choice.layout.schedule
                                                 : m->s->job->layout.schedule);
    bool quick =
        want && want->kind != LHI_METHOD_SLOW && want->kind != LHI_METHOD_META;
    return quick ? want->name : lhi_method_get_representative()->name;
}

/* Returns a candidate's objective value; less is better. */
static int64_t get_value(const partition_mover *m, const lhi_candidate *c)
{
    return lhi_objective_value(&m->s->options, &c->choice);
}

/* Returns the layer partition of the candidate with the best objective value
 * that has as many chunks as `like`, other than it; NULL: none. */
static const uint32_t *find_sibling_layers(const partition_mover *m,
                                           const lhi_candidate *like)
{
    const lhi_candidate *best = NULL;
    uint32_t n =
        like->config.layout.pipeline * like->config.layout.chunks_per_device;
    for (uint32_t i = 0; i < m->s->n; i++) {
        const lhi_candidate *c = &m->s->candidates[i];
        if (c != like && lhi_candidate_is_feasible(c) && c->config.layers &&
            c->config.layout.pipeline * c->config.layout.chunks_per_device ==
                n &&
            (!best || get_value(m, c) < get_value(m, best)))
            best = c;
    }
    return best ? best->config.layers : NULL;
}

/* Evaluates `moved`, candidate `c` with other layers, under every method; it
 * replaces `c` if it is better. */
static lh_status evaluate_moved(partition_mover *m, lhi_candidate *c,
                                lhi_candidate *moved, lh_error *err)
{
    lhi_layout_search *s = m->s;
    moved->missing = 0; /* with even chunks */
    LHI_TRY(lhi_candidate_compute_bound(s, moved, err));
    if (moved->bound_ns == INT64_MAX)
        return LH_OK;
    LHI_TRY(lhi_candidate_evaluate(s, moved, err));
    if (!lhi_candidate_is_feasible(moved) ||
        (lhi_candidate_is_feasible(c) &&
         get_value(m, moved) >= get_value(m, c)))
        return LH_OK;
    s->n_memory -= c->missing > 0 && !c->simulated;
    *c = *moved;
    return LH_OK;
}

/* Improves the layer partition of candidate `c` by hill climbing with effort
 * `how` (starting partition, passes to schedule, kind of descent). Evaluates
 * the result under every schedule method; it replaces `c` if it is better. */
static lh_status move_layers(partition_mover *m, lhi_candidate *c,
                             const effort *how, lh_error *err)
{
    lhi_layout_search *s = m->s;
    lhi_candidate moved = *c;
    int64_t ns = INT64_MAX;
    uint64_t passes = how->most < m->passes ? how->most : m->passes;
    uint64_t left = passes;
    const uint32_t *like = c->config.layers, *given = how->given;
    moved.config.layers = given;
    if (!lhi_layer_partition_has_alternatives(s->job, &moved.config,
                                              &s->options))
        return LH_OK;
    if (like == given)
        like = find_sibling_layers(m, c);
    LHI_TRY(lhi_layer_partition_search(s->job, &s->options, s->evaluation_cache,
                                       find_quick_method(m, c), how->steepest,
                                       how->climbed, like, &left, s->mem,
                                       &moved.config, &ns, err));
    m->passes -= passes - left;
    if (moved.config.layers == given)
        return LH_OK;
    const lhi_candidate *best = lhi_layout_search_find_best(s);
    if (best && !how->any && s->options.objective == LH_PLAN_FASTEST &&
        (double)ns > CLOSE_RATIO * (double)best->choice.iteration_ns)
        return LH_OK;
    return evaluate_moved(m, c, &moved, err);
}

/* Checks whether two candidates have the same chunks. Placement, state and
 * recomputation have little effect on the best layer partition. */
static bool has_same_chunks(const lhi_candidate *a, const lhi_candidate *b)
{
    const lh_layout *x = &a->config.layout, *y = &b->config.layout;
    return lhi_degrees_are_equal(x, y) &&
           x->chunks_per_device == y->chunks_per_device &&
           a->config.placement == b->config.placement;
}

/* Returns the fastest feasible candidate, not done yet, whose chunks differ
 * from those of all `n` known ones: near-copies would use up the work limit.
 * NULL: none. */
static lhi_candidate *find_next_fastest(const partition_mover *m,
                                        lhi_candidate *const *known, int n)
{
    lhi_candidate *best = NULL;
    for (uint32_t i = 0; i < m->s->n; i++) {
        lhi_candidate *c = &m->s->candidates[i];
        bool like = !lhi_candidate_is_feasible(c) || m->done[i] ||
                    (best && get_value(m, c) >= get_value(m, best));
        for (int k = 0; k < n && !like; k++)
            like = has_same_chunks(known[k], c);
        if (!like)
            best = c;
    }
    return best;
}

/* Checks whether the candidate's bound over all partitions shows that none can
 * beat the best. */
static bool is_hopeless(const partition_mover *m, const lhi_candidate *c)
{
    int64_t best = m->s->best_value, ns = c->lower_bound.ns;
    if (m->s->options.objective != LH_PLAN_FASTEST)
        return !lhi_candidate_is_feasible(c) ||
               lhi_objective_value_at(&m->s->options, &c->choice, ns) >= best;
    return ns >= lhi_layout_search_useless_ns(m->s, best);
}

/* Returns the candidate's iteration time or, if it was not simulated, its lower
 * bound. */
static int64_t get_known_ns(const lhi_candidate *c)
{
    return lhi_candidate_is_feasible(c) ? c->choice.iteration_ns : c->bound_ns;
}

/* Checks whether the search has moved layers before in a candidate with the
 * same pipeline degree and chunks per device as `c`. */
static bool is_known_kind(const partition_mover *m, const lhi_candidate *c)
{
    const lh_layout *l = &c->config.layout;
    for (int i = 0; i < m->n_kinds; i++)
        if (m->kinds[i].pipeline == l->pipeline &&
            m->kinds[i].chunks_per_device == l->chunks_per_device)
            return true;
    return false;
}

/* Records the candidate's pipeline degree and chunk count for is_known_kind().
 */
static void record_kind(partition_mover *m, const lhi_candidate *c)
{
    const lh_layout *l = &c->config.layout;
    if (m->n_kinds < MOST_KINDS && !is_known_kind(m, c))
        m->kinds[m->n_kinds++] = (kind){l->pipeline, l->chunks_per_device};
}

/* Returns the candidate, not done yet, with the least bound over all partitions
 * (`by_floor`) or the least known time. `of_new_kind`: only with a new pipeline
 * degree or chunk count. */
static lhi_candidate *find_next_promising(const partition_mover *m,
                                          bool of_new_kind, bool by_floor)
{
    lhi_candidate *best = NULL;
    int64_t least = 0;
    for (uint32_t i = 0; i < m->s->n; i++) {
        lhi_candidate *c = &m->s->candidates[i];
        int64_t ns = by_floor ? c->lower_bound.ns : get_known_ns(c);
        if (!m->done[i] && (!best || ns < least) && !is_hopeless(m, c) &&
            !(of_new_kind && is_known_kind(m, c))) {
            best = c;
            least = ns;
        }
    }
    return best;
}

/* Lowers the best objective value of the search to a feasible candidate's, if
 * it is lower. */
static void record_best(partition_mover *m, const lhi_candidate *c)
{
    if (lhi_candidate_is_feasible(c) && get_value(m, c) < m->s->best_value)
        m->s->best_value = get_value(m, c);
}

/* Improves the fastest candidates' layer partitions: by steepest descent, then
 * from other starting partitions too. */
static lh_status move_fastest(partition_mover *m, lh_error *err)
{
    lhi_candidate *c, *fastest[MAX_FASTEST];
    effort how[MAX_FASTEST];
    int n = 0;
    while (n < MAX_FASTEST && !is_over(m) &&
           (c = find_next_fastest(m, fastest, n))) {
        m->done[c - m->s->candidates] = true;
        if (is_hopeless(m, c))
            continue;
        how[n] = (effort){c->config.layers, scale_passes(m, PASSES_OF_FASTEST),
                          true, false, true};
        LHI_TRY(move_layers(m, c, &how[n], err));
        fastest[n++] = c;
        record_kind(m, c);
    }
    /* Slow methods were evaluated so far without moved layers. */
    for (int i = 0; i < n; i++)
        record_best(m, fastest[i]);
    for (int i = 0; i < n; i++) {
        how[i].steepest = false;
        m->tried[fastest[i] - m->s->candidates] = true;
        if (!is_hopeless(m, fastest[i]))
            LHI_TRY(move_layers(m, fastest[i], &how[i], err));
        record_best(m, fastest[i]);
    }
    return LH_OK;
}

/* Returns the F, D and W pass count of one iteration, to estimate simulation
 * work. */
static uint64_t count_passes(const lhi_candidate *c)
{
    return 3 * (uint64_t)c->config.layout.pipeline *
           c->config.layout.chunks_per_device * c->config.microbatches;
}

/* Improves the layer partition of a candidate that is not among the fastest,
 * with the smaller effort for such candidates, and records its result. */
static lh_status move_other(partition_mover *m, lhi_candidate *c, lh_error *err)
{
    uint64_t each = count_passes(c);
    effort how = {c->config.layers, scale_passes(m, PASSES_OF_OTHERS), false,
                  false, false};
    if (how.most < TIMED_OF_OTHERS * each)
        how.most = TIMED_OF_OTHERS * each;
    m->done[c - m->s->candidates] = true;
    record_kind(m, c);
    LHI_TRY(move_layers(m, c, &how, err));
    record_best(m, c);
    return LH_OK;
}

/* Improves the layer partitions of candidates that are not the fastest. First
 * comes one of each pipeline degree and chunk count, then alternately the
 * least bound and the least known time. */
static lh_status move_others(partition_mover *m, lh_error *err)
{
    const uint64_t half = scale_passes(m, PASSES) / 2;
    lhi_candidate *c;
    while (m->n_kinds < MOST_KINDS && m->passes > half && !is_over(m) &&
           (c = find_next_promising(m, true, true)))
        LHI_TRY(move_other(m, c, err));
    for (bool by_floor = true; m->passes > 0 && !is_over(m) &&
                               (c = find_next_promising(m, false, by_floor));
         by_floor = !by_floor)
        LHI_TRY(move_other(m, c, err));
    return LH_OK;
}

/* Counts the dimensions in which two candidates differ. Degrees count once,
 * because their product is fixed by the GPUs. */
static int count_differences(const lhi_candidate *a, const lhi_candidate *b)
{
    bool degrees = false;
    int n = 0;
    for (int d = 0; d < LHI_N_DIMENSIONS; d++) {
        if (lhi_dimension_value((lhi_dimension)d, &a->config) ==
            lhi_dimension_value((lhi_dimension)d, &b->config))
            continue;
        if (d <= LHI_DIMENSION_DATA)
            degrees = true;
        else
            n++;
    }
    return n + degrees;
}

/* Returns the candidate with the least known time among those that differ from
 * the best in at most MAX_DISTANCE dimensions and were not tried. */
static lhi_candidate *find_next_neighbour(const partition_mover *m,
                                          const lhi_candidate *best)
{
    lhi_candidate *found = NULL;
    for (uint32_t i = 0; i < m->s->n; i++) {
        lhi_candidate *c = &m->s->candidates[i];
        if (c != best && !m->tried[i] && !is_hopeless(m, c) &&
            (!found || get_known_ns(c) < get_known_ns(found)) &&
            count_differences(c, best) <= MAX_DISTANCE)
            found = c;
    }
    return found;
}

/* Improves the layer partitions of the best candidate's neighbours (few
 * dimensions differ), with the effort for the fastest ones: they were evaluated
 * with even chunks, or under one method. */
static lh_status move_neighbours(partition_mover *m, lh_error *err)
{
    m->passes = scale_passes(m, PASSES_OF_NEAR);
    while (m->passes > 0) {
        const lhi_candidate *best = lhi_layout_search_find_best(m->s);
        lhi_candidate *c = best ? find_next_neighbour(m, best) : NULL;
        if (!c || is_over(m))
            break;
        effort how = {c->config.layers, scale_passes(m, PASSES_OF_FASTEST),
                      false, m->done[c - m->s->candidates], true};
        m->tried[c - m->s->candidates] = true;
        LHI_TRY(move_layers(m, c, &how, err));
        record_best(m, c);
    }
    return LH_OK;
}

/* --- partition transfer --------------------------------------------------- */

/* Checks whether two candidates have the same chunk counts and placement. */
static bool is_chunked_alike(const lhi_candidate *a, const lhi_candidate *b)
{
    return a->config.layout.pipeline == b->config.layout.pipeline &&
           a->config.layout.chunks_per_device ==
               b->config.layout.chunks_per_device &&
           a->config.placement == b->config.placement;
}

/* Checks whether two candidates with equal chunk counts have equal layers per
 * chunk. */
static bool is_same_layers(const lhi_candidate *a, const lhi_candidate *b)
{
    const uint32_t n =
        a->config.layout.pipeline * a->config.layout.chunks_per_device;
    return memcmp(a->config.layers, b->config.layers,
                  n * sizeof *a->config.layers) == 0;
}

/* Finds up to MAX_DONORS feasible candidates whose layer partitions can be
 * tried for `c`: they have as many chunks as `c`, the same chunk placement, and
 * a partition other than the default (`config.layers`). `donors` lists them
 * fastest first, one for each partition. Returns their number. */
static int find_donors(const partition_mover *m, const lhi_candidate *c,
                       const lhi_candidate *donors[MAX_DONORS])
{
    int n = 0;
    for (; n < MAX_DONORS; n++) {
        const lhi_candidate *best = NULL;
        for (uint32_t i = 0; i < m->s->n; i++) {
            const lhi_candidate *o = &m->s->candidates[i];
            bool out = !lhi_candidate_is_feasible(o) || !o->config.layers ||
                       !is_chunked_alike(o, c) ||
                       (best && get_value(m, o) >= get_value(m, best));
            for (int k = 0; k < n && !out; k++)
                out = is_same_layers(donors[k], o);
            if (!out)
                best = o;
        }
        if (!best)
            break;
        donors[n] = best;
    }
    return n;
}

/* Checks whether a candidate has other layer partitions, one of which may beat
 * the best. */
static bool may_win(const partition_mover *m, const lhi_candidate *c)
{
    return !is_hopeless(m, c) && lhi_layer_partition_has_alternatives(
                                     m->s->job, &c->config, &m->s->options);
}

/* Evaluates a candidate with the layer partition of another candidate
 * (`layers`) if its bound allows a new best. */
static lh_status evaluate_donor(partition_mover *m, lhi_candidate *c,
                                const uint32_t *layers, lh_error *err)
{
    lhi_layout_search *s = m->s;
    lhi_candidate moved = *c;
    const uint64_t n_memory = s->n_memory, n_unsupported = s->n_unsupported;
    moved.config.layers = layers;
    moved.missing = 0; /* from its own pipeline */
    LHI_TRY(lhi_candidate_compute_bound(s, &moved, err));
    s->n_memory = n_memory;
    s->n_unsupported = n_unsupported;
    bool hopeless =
        moved.bound_ns == INT64_MAX ||
        (s->options.objective == LH_PLAN_FASTEST
             ? moved.bound_ns >= lhi_layout_search_useless_ns(s, s->best_value)
             : lhi_candidate_is_feasible(c) &&
                   lhi_objective_value_at(&s->options, &c->choice,
                                          moved.bound_ns) >= s->best_value);
    const uint64_t passes = count_passes(c);
    if (hopeless || m->passes < passes)
        return LH_OK;
    m->passes -= passes;
    LHI_TRY(evaluate_moved(m, c, &moved, err));
    record_best(m, c);
    return LH_OK;
}

/* Tries the best layer partitions of candidates with the same chunks on all
 * other candidates: often faster than their own, which may not even fit, and
 * cheap compared with moving layers one by one. */
static lh_status transfer_layers(partition_mover *m, lh_error *err)
{
    lhi_layout_search *s = m->s;
    bool *done = calloc(s->n + (size_t)1, sizeof *done);
    lh_status status = done ? LH_OK : lhi_fail_nomem(err);
    uint64_t built = 0;
    m->passes = scale_passes(m, PASSES_OF_DONATED);
    for (uint32_t i = 0; i < s->n && status == LH_OK; i++) {
        const lhi_candidate *donors[MAX_DONORS];
        const uint32_t *layers[MAX_DONORS];
        if (done[i] || !may_win(m, &s->candidates[i]))
            continue;
        int n = find_donors(m, &s->candidates[i], donors);
        for (int k = 0; k < n; k++)
            layers[k] = donors[k]->config.layers;
        for (uint32_t j = i; j < s->n && status == LH_OK; j++) {
            lhi_candidate *c = &s->candidates[j];
            if (done[j] || !may_win(m, c) ||
                !is_chunked_alike(c, &s->candidates[i]))
                continue;
            done[j] = true;
            for (int k = 0; k < n && status == LH_OK; k++)
                if (c->config.layers != layers[k] &&
                    built++ < MAX_DONATED_PIPELINES && !is_over(m) &&
                    !is_hopeless(m, c))
                    status = evaluate_donor(m, c, layers[k], err);
        }
    }
    free(done);
    return status;
}

/* --- slow methods --------------------------------------------------------- */

/* Checks whether the caller stops the search. Callback for the layer-partition
 * search. */
static bool is_asked(void *context)
{
    return is_over(context);
}

/* Returns the first slow schedule method that plans consider; NULL: none. */
static const char *find_slow_method(const partition_mover *m,
                                    const lhi_candidate *c)
{
    const lhi_layout_search *s = m->s;
    for (uint32_t i = 0; i < lhi_n_methods; i++)
        if (lhi_methods[i].kind == LHI_METHOD_SLOW &&
            lhi_method_is_considered(s->job, &s->options,
                                     c->config.layout.pipeline,
                                     &lhi_methods[i]))
            return lhi_methods[i].name;
    return NULL;
}

/* Returns the candidate with the least bound over all partitions for which a
 * slow method is affordable, among those whose pipeline degree and chunks per
 * device were not recorded by record_kind(); NULL: none. */
static lhi_candidate *find_least_bound(const partition_mover *m)
{
    lhi_candidate *best = NULL;
    for (uint32_t i = 0; i < m->s->n; i++) {
        lhi_candidate *c = &m->s->candidates[i];
        const uint64_t passes = count_passes(c);
        if (!is_hopeless(m, c) && passes > LHI_FEW_PASSES &&
            passes * LEAST_SLOW <= m->passes &&
            (!best || c->lower_bound.ns < best->lower_bound.ns) &&
            !m->done[i] && !is_known_kind(m, c) &&
            lhi_layer_partition_has_alternatives(m->s->job, &c->config,
                                                 &m->s->options))
            best = c;
    }
    return best;
}

/* Improves the layer partition of candidate `c` under slow schedule method
 * `method`, with at most m->passes passes. */
static lh_status walk_under_slow_method(partition_mover *m, lhi_candidate *c,
                                        const char *method, lh_error *err)
{
    lhi_layout_search *s = m->s;
    const uint64_t most = m->passes / count_passes(c);
    lhi_layer_partition_slow_search how = {
        .method = method,
        .max_partitions = most < SLOW_PARTITIONS ? most : SLOW_PARTITIONS,
        .start_limit_ns = s->best_value == INT64_MAX
                              ? INT64_MAX /* nothing works yet */
                              : (int64_t)(CLOSE_RATIO * (double)s->best_value),
        .should_stop = is_asked,
        .context = m};
    lhi_candidate moved = *c;
    int64_t ns = INT64_MAX;
    uint32_t n_timed = 0;
    LHI_TRY(lhi_layer_partition_search_slow_method(
        s->job, &s->options, s->evaluation_cache, &how, s->mem, &moved.config,
        &n_timed, &ns, err));
    m->passes -= n_timed * count_passes(c);
    if (ns < how.start_limit_ns)
        record_kind(m, c);
    if (ns >= s->best_value)
        return LH_OK;
    moved.with_slow_methods = true;
    LHI_TRY(evaluate_moved(m, c, &moved, err));
    record_best(m, c);
    return LH_OK;
}

/* Improves layer partitions under a slow schedule method, which with many
 * chunks can be several percent faster than those used so far. The candidate
 * with the least bound comes first, since it determines the proven bound. The
 * next least bounds follow, until the passes are used up: a layout whose
 * balanced partitions are slow costs two timings, and one that has been walked
 * excludes others with its pipeline degree and chunk count. */
static lh_status move_under_slow_method(partition_mover *m, lh_error *err)
{
    lhi_layout_search *s = m->s;
    lhi_candidate *c;
    if (!s->complete || s->options.objective != LH_PLAN_FASTEST)
        return LH_OK;
    m->passes = SLOW_PASSES;
    m->n_kinds = 0;
    memset(m->done, 0, s->n * sizeof *m->done);
    for (int n = 0;
         n < MAX_SLOW_STARTS && !is_over(m) && (c = find_least_bound(m)); n++) {
        const char *method = find_slow_method(m, c);
        m->done[c - s->candidates] = true;
        if (method)
            LHI_TRY(walk_under_slow_method(m, c, method, err));
    }
    return LH_OK;
}

lh_status lhi_layout_search_move_layers_of(lhi_layout_search *s,
                                           uint32_t candidate, uint64_t *passes,
                                           lh_error *err)
{
    partition_mover m = {.s = s, .passes = *passes};
    lhi_candidate *c = &s->candidates[candidate];
    effort how = {c->config.layers, *passes / 2, true, false, true};
    lh_status status = LH_OK;
    for (int i = 0; i < 2 && status == LH_OK; i++) {
        status = move_layers(&m, c, &how, err);
        how.steepest = false;
    }
    *passes = m.passes;
    return status;
}

lh_status lhi_layout_search_move_layers(lhi_layout_search *s, lh_error *err)
{
    if (s->options.partition == LH_PARTITION_EVEN)
        return LH_OK;
    partition_mover m = {.s = s};
    m.passes = scale_passes(&m, PASSES);
    m.done = calloc(s->n + (size_t)1, sizeof *m.done);
    m.tried = calloc(s->n + (size_t)1, sizeof *m.tried);
    lh_status status =
        m.done && m.tried ? move_fastest(&m, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = move_others(&m, err);
    if (status == LH_OK)
        status = move_neighbours(&m, err);
    const int64_t before = s->best_value;
    if (status == LH_OK)
        status = transfer_layers(&m, err);
    if (status == LH_OK && s->best_value < before) {
        memset(m.tried, 0, s->n * sizeof *m.tried);
        status = move_neighbours(&m, err);
    }
    if (status == LH_OK)
        status = move_under_slow_method(&m, err);
    free(m.done);
    free(m.tried);
    return status;
}
