/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/dives_own.h"

#include "base/sort.h"
#include "plan/layout/alike.h"
#include "plan/layout/uneven.h"
#include "plan/search/goal.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUILT = 64,       /* neighbours to build, least bounds first */
    GLANCES = 20,     /* of them, with a quick evaluation */
    CLOSER = 4,       /* of them, under every method */
    SLOW_GLANCES = 4, /* under a slow method */
    ROUNDS = 6,       /* per local search */
    AGAIN = 3,        /* restarts over all targets */
    ANCHORS = 5,      /* other bests to start from as well */
    MOVED_OF_EACH = 3,
    MOVED = 24,          /* others whose layers are moved at the end */
    MOST_NEAR = 1 << 16, /* neighbours of one layout */
    PASSES = 60000,      /* scheduled while moving layers, each way */
    PASSES_PER_WORK = 3, /* budget while moving layers, per work unit */
    SLOW = 20,           /* this many times as long as another method */
};

/* Thresholds relative to the best: CLOSE_RATIO is evaluated under every method,
 * NEAR_RATIO in two dimensions at once. */
static const double CLOSE = 1.03, NEAR = 1.05, BEHIND = 1.15, WIDE = 1.3,
                    FAR = 2;
/* Results within this factor of the best were searched as thoroughly as the
 * best. */
static const double SURE = 1.1;

/* --- candidates ---------------------------------------------------------- */

/* Returns a configuration's hash slot. */
static uint32_t slot_of(const lhi_diver *d, const lhi_config *config)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int i = 0; i < LHI_N_DIMENSIONS; i++)
        hash = (hash ^ lhi_dimension_value((lhi_dimension)i, config)) *
               UINT64_C(1099511628211);
    uint32_t at = (uint32_t)(hash >> 32) & (d->known_room - 1);
    while (d->known[at] &&
           !lhi_config_same(&d->s->candidates[d->known[at] - 1].config, config))
        at = (at + 1) & (d->known_room - 1);
    return at;
}

/* Grows the candidate array by at least `more` entries. */
static lh_status make_room(lhi_diver *d, uint32_t more, lh_error *err)
{
    lhi_layout_search *s = d->s;
    uint32_t want = s->n + more;
    if (want <= s->room && 2 * want <= d->known_room && d->moved)
        return LH_OK;
    uint32_t room = 2 * want, slots = 1024;
    while (slots < 4 * want)
        slots *= 2;
    lhi_candidate *all = realloc(s->candidates, room * sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    s->candidates = all;
    s->room = room;
    uint32_t has = d->moved ? s->n : 0;
    bool *moved = realloc(d->moved, room * sizeof *moved);
    if (!moved)
        return lhi_fail_nomem(err);
    d->moved = moved;
    memset(moved + has, 0, (room - has) * sizeof *moved);
    uint32_t *known = calloc(slots, sizeof *known);
    if (!known)
        return lhi_fail_nomem(err);
    free(d->known);
    d->known = known;
    d->known_room = slots;
    for (uint32_t i = 0; i < s->n; i++)
        known[slot_of(d, &s->candidates[i].config)] = i + 1;
    return LH_OK;
}

/* Finds or adds the candidate for a neighbour, with its bound. If the bound is
 * not below `limit_ns`, it is rebalanced first. Capacity must be ensured. */
static lh_status find_candidate(lhi_diver *d, lhi_dive_near *n,
                                int64_t limit_ns, bool *made, lh_error *err)
{
    lhi_layout_search *s = d->s;
    const lhi_dive_found *f = &d->found[n->found];
    uint32_t *slot = &d->known[slot_of(d, &f->config)];
    *made = *slot == 0;
    if (*slot) {
        n->at = *slot - 1;
        return LH_OK;
    }
    lhi_candidate *c = &s->candidates[s->n];
    *c = (lhi_candidate){.config = f->config, .floor = f->floor, .dived = true};
    d->moved[s->n] = false;
    LHI_TRY(lhi_candidate_bound(s, c, err));
    if (limit_ns < INT64_MAX && c->bound_ns >= limit_ns)
        LHI_TRY(lhi_candidate_even_out(s, c, err));
    d->work += c->evened ? lhi_work_of_evening(&c->config)
                         : lhi_work_of_pipeline(&c->config);
    n->at = s->n++;
    *slot = s->n;
    return LH_OK;
}

/* --- neighbourhood ------------------------------------------------------- */

/* Collects the neighbours. */
static lh_status collect(void *context, const lhi_config *config,
                         const lhi_floor *floor, lh_error *err)
{
    lhi_diver *d = context;
    if (d->n_near == MOST_NEAR)
        return LH_OK;
    lhi_dive_found *found =
        lhi_dive_grown(d->found, d->n_found, &d->found_room, sizeof *found);
    if (!found)
        return lhi_fail_nomem(err);
    d->found = found;
    lhi_dive_near *all =
        lhi_dive_grown(d->near, d->n_near, &d->near_room, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    d->near = all;
    d->near[d->n_near++] =
        (lhi_dive_near){floor->ns, d->n_found, LHI_NO_CANDIDATE};
    d->found[d->n_found++] = (lhi_dive_found){*config, *floor};
    return LH_OK;
}

/* Builds the neighbours and keeps those that may be better, least bounds first.
 */
static lh_status build_near(lhi_diver *d, const lhi_dive_target *t,
                            uint32_t changes, lh_error *err)
{
    uint32_t n = d->n_near, kept = 0, built = 0;
    lhi_sort(d->near, n, sizeof *d->near, lhi_dive_compare_near);
    for (uint32_t i = 0; i < n && built < BUILT * changes; i++) {
        lhi_dive_near *o = &d->near[i];
        bool made;
        LHI_TRY(find_candidate(d, o, lhi_dive_limit(d, t), &made, err));
        built += made;
        o->key = d->s->candidates[o->at].bound_ns;
        if (o->key < lhi_dive_limit(d, t))
            d->near[kept++] = *o;
    }
    d->n_near = kept;
    lhi_sort(d->near, kept, sizeof *d->near, lhi_dive_compare_near);
    return LH_OK;
}

/* Targets far behind by their least bound only get a quick evaluation. */
static bool is_far(const lhi_diver *d, int64_t ns)
{
    return d->s->options.goal == LH_PLAN_FASTEST && ns < INT64_MAX &&
           (double)ns > FAR * (double)d->targets[0].best;
}

/* Tries the partition of the neighbourhood's central layout. */
static lh_status try_layers(lhi_diver *d, uint32_t at, const lhi_config *from,
                            bool closer, lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_candidate *c = &s->candidates[at], other = *c;
    const lh_layout *x = &c->config.layout, *y = &from->layout;
    if (!from->layers || c->config.layers ||
        x->pipeline * x->chunks_per_device !=
            y->pipeline * y->chunks_per_device ||
        !lhi_uneven_possible(s->job, &c->config, &s->options))
        return LH_OK;
    other.config.layers = from->layers;
    other.missing = 0; /* with even chunks */
    LHI_TRY(lhi_candidate_bound(s, &other, err));
    if (other.bound_ns == INT64_MAX)
        return LH_OK;
    LHI_TRY(closer ? lhi_candidate_simulate(s, &other, err)
                   : lhi_candidate_glance(s, &other, err));
    d->work += lhi_work_of_schedules(&other.config, closer);
    if (lhi_candidate_works(&other) &&
        (!lhi_candidate_works(c) || lhi_value_of(&s->options, &other.choice) <
                                        lhi_value_of(&s->options, &c->choice)))
        *c = other;
    return LH_OK;
}

/* Evaluates a candidate quickly, also with the given layers. */
static lh_status glance_at(lhi_diver *d, uint32_t at, const lhi_config *from,
                           lh_error *err)
{
    lhi_candidate *c = &d->s->candidates[at];
    LHI_TRY(lhi_candidate_glance(d->s, c, err));
    d->work += lhi_work_of_schedules(&c->config, c->thorough);
    LHI_TRY(try_layers(d, at, from, false, err));
    lhi_dive_note(d, at);
    return LH_OK;
}

/* Evaluates a candidate under every method. */
static lh_status look_closer(lhi_diver *d, uint32_t at, lh_error *err)
{
    lhi_candidate *c = &d->s->candidates[at], before = *c;
    LHI_TRY(lhi_candidate_simulate(d->s, c, err));
    d->work += lhi_work_of_schedules(&c->config, true);
    if (!lhi_candidate_works(c) && lhi_candidate_works(&before))
        *c = before;
    lhi_dive_note(d, at);
    return LH_OK;
}

/* Evaluates the most promising neighbours, first quickly, then under every
 * method. */
static lh_status try_near(lhi_diver *d, const lhi_dive_target *t,
                          const lhi_config *from, uint32_t changes,
                          lh_error *err)
{
    uint32_t glances = 0, closer = 0;
    for (uint32_t i = 0; i < d->n_near && glances < GLANCES * changes; i++) {
        lhi_dive_near *n = &d->near[i];
        if (t->best < INT64_MAX && (is_far(d, n->key) || is_far(d, t->best)))
            break;
        if (d->s->candidates[n->at].simulated || n->key >= lhi_dive_limit(d, t))
            continue;
        LHI_TRY(glance_at(d, n->at, from, err));
        glances++;
    }
    for (uint32_t i = 0; i < d->n_near; i++)
        d->near[i].key = lhi_dive_value(d, d->near[i].at);
    lhi_sort(d->near, d->n_near, sizeof *d->near, lhi_dive_compare_near);
    for (uint32_t i = 0; i < d->n_near && closer < CLOSER; i++) {
        lhi_dive_near *n = &d->near[i];
        if (n->key == INT64_MAX || (double)n->key > CLOSE * (double)t->best)
            break;
        if (d->s->candidates[n->at].thorough)
            continue;
        LHI_TRY(look_closer(d, n->at, err));
        closer++;
    }
    return LH_OK;
}

/* --- under one method ---------------------------------------------------- */

static bool is_slow(const lhi_dive_target *t)
{
    return lhi_methods[t->value].kind == LHI_METHOD_SLOW;
}

/* Adds a row for the method's best. */
static lh_status try_method(lhi_diver *d, const lhi_dive_target *t, uint32_t at,
                            const uint32_t *layers, lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_candidate c = s->candidates[at]; /* replaces the candidate if better */
    lhi_built built;
    lh_error why = {0};
    if (layers) {
        c.config.layers = layers;
        c.thorough = false; /* with these layers */
    }
    lh_status status = lhi_layout_build(s->job, &c.config, &built, &why);
    if (status != LH_OK && lhi_layout_refused(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    status = lhi_candidate_bound_built(&c, &built, err);
    lh_choice row = lhi_candidate_choice(&c, lhi_methods[t->value].name);
    if (status == LH_OK)
        status = lhi_method_try(s->job, &s->options, &built, s->tried, s->mem,
                                &row, NULL, err);
    d->work +=
        lhi_work_of_schedules(&c.config, false) * (is_slow(t) ? SLOW : 1);
    lh_pipeline_free(built.pipeline);
    LHI_TRY(status);
    lhi_candidate *own = &s->candidates[at];
    c.choice = row;
    c.simulated = true;
    if (lhi_candidate_works(&c) &&
        lhi_value_of(&s->options, &row) < lhi_dive_value(d, at)) {
        *own = c;
        own->missing = 0;
    }
    lhi_dive_note_row(d, at, &row);
    return LH_OK;
}

/* Evaluates the neighbours under the target's method. */
static lh_status try_near_by_method(lhi_diver *d, const lhi_dive_target *t,
                                    const lhi_config *from, lh_error *err)
{
    uint32_t most = is_slow(t) ? SLOW_GLANCES : GLANCES, n = 0;
    for (uint32_t i = 0; i < d->n_near; i++) {
        int64_t value = lhi_dive_value(d, d->near[i].at);
        if (value < INT64_MAX)
            d->near[i].key = value;
    }
    lhi_sort(d->near, d->n_near, sizeof *d->near, lhi_dive_compare_near);
    for (uint32_t i = 0; i < d->n_near && n < most; i++, n++) {
        uint32_t at = d->near[i].at;
        const lh_layout *x = &d->found[d->near[i].found].config.layout,
                        *y = &from->layout;
        LHI_TRY(try_method(d, t, at, NULL, err));
        if (from->layers && x->pipeline * x->chunks_per_device ==
                                y->pipeline * y->chunks_per_device)
            LHI_TRY(try_method(d, t, at, from->layers, err));
    }
    return LH_OK;
}

/* --- one local search ---------------------------------------------------- */

/* Explores the neighbourhood of one layout. */
static lh_status explore(lhi_diver *d, uint32_t which, uint32_t from,
                         uint32_t changes, bool *better, lh_error *err)
{
    const lhi_dive_target *t = &d->targets[which];
    int64_t before = t->best;
    lhi_config anchor = d->s->candidates[from].config;
    lhi_nearby around = {.space = &d->space,
                         .floors = d->floors,
                         .bounded = d->bounded,
                         .from = anchor,
                         .most_changes = changes,
                         .dimension = t->dimension,
                         .value = t->value,
                         .below_ns = lhi_dive_limit(d, t),
                         .visit = collect,
                         .context = d};
    if (from == t->at && t->row.chunk_layers)
        anchor.layers = t->row.chunk_layers;
    LHI_TRY(make_room(d, BUILT * changes + 1, err));
    d->n_near = d->n_found = 0;
    lh_status status = lhi_nearby_find(&around, err);
    d->work += around.work;
    if (status == LH_OK)
        status = build_near(d, t, changes, err);
    if (status == LH_OK)
        status = t->dimension == LHI_DIMENSION_SCHEDULE
                     ? try_near_by_method(d, t, &anchor, err)
                     : try_near(d, t, &anchor, changes, err);
    *better = t->best < before;
    return status;
}

/* Moves layers, under the target's own method if the target is a method. */
static lh_status move_by_method(lhi_diver *d, const lhi_dive_target *t,
                                lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_config config = lhi_config_of(&t->row);
    const uint32_t *given = config.layers;
    const char *method = is_slow(t) ? lhi_method_at_a_glance()->name
                                    : lhi_methods[t->value].name;
    int64_t ns = INT64_MAX;
    if (!lhi_uneven_possible(s->job, &config, &s->options))
        return LH_OK;
    for (int k = 0; k < 2; k++) {
        uint64_t left = PASSES;
        LHI_TRY(lhi_uneven_search(s->job, &s->options, s->tried, method, k == 0,
                                  false, config.layers, &left, s->mem, &config,
                                  &ns, err));
        d->work += (PASSES - left) / PASSES_PER_WORK;
    }
    return config.layers == given ? LH_OK
                                  : try_method(d, t, t->at, config.layers, err);
}

/* Moves one candidate's layers. */
static lh_status move_one(lhi_diver *d, uint32_t at, lh_error *err)
{
    uint64_t passes = (uint64_t)2 * PASSES, left = passes;
    d->moved[at] = true;
    LHI_TRY(lhi_layout_search_move_one(d->s, at, &left, err));
    d->work += (passes - left) / PASSES_PER_WORK;
    lhi_dive_note(d, at);
    return LH_OK;
}

/* Moves layers in the target's best. */
static lh_status move_best(lhi_diver *d, uint32_t which, lh_error *err)
{
    const lhi_dive_target *t = &d->targets[which];
    if (t->at == LHI_NO_CANDIDATE)
        return LH_OK;
    if (t->dimension == LHI_DIMENSION_SCHEDULE)
        return move_by_method(d, t, err);
    return d->moved[t->at] ? LH_OK : move_one(d, t->at, err);
}

/* --- partition transfer --------------------------------------------------- */

/* Tries the target's new partition on neighbours in one dimension, which were
 * evaluated with other layers before. */
static lh_status lend_layers(lhi_diver *d, uint32_t which, bool *better,
                             lh_error *err)
{
    const lhi_dive_target *t = &d->targets[which];
    const int64_t before = t->best;
    const lhi_config from = lhi_config_of(&t->row);
    const uint32_t chunks =
        from.layout.pipeline * from.layout.chunks_per_device;
    lhi_nearby around = {.space = &d->space,
                         .floors = d->floors,
                         .bounded = d->bounded,
                         .from = from,
                         .most_changes = 1,
                         .dimension = t->dimension,
                         .value = t->value,
                         .below_ns = lhi_dive_limit(d, t),
                         .visit = collect,
                         .context = d};
    *better = false;
    if (!from.layers || t->dimension == LHI_DIMENSION_SCHEDULE ||
        !lhi_uneven_possible(d->s->job, &from, &d->s->options))
        return LH_OK;
    d->n_near = d->n_found = 0;
    LHI_TRY(lhi_nearby_find(&around, err));
    d->work += around.work;
    lhi_sort(d->near, d->n_near, sizeof *d->near, lhi_dive_compare_near);
    for (uint32_t i = 0, n = 0;
         i < d->n_near && n < BUILT && !lhi_dive_spent(d); i++) {
        lhi_dive_near *o = &d->near[i];
        const lh_layout *l = &d->found[o->found].config.layout;
        bool made;
        if (l->pipeline * l->chunks_per_device != chunks ||
            o->key >= lhi_dive_limit(d, t))
            continue;
        LHI_TRY(make_room(d, 1, err));
        LHI_TRY(find_candidate(d, o, INT64_MAX, &made, err));
        LHI_TRY(lhi_dive_lend(d, t, o->at, &from, err));
        n++;
    }
    *better = t->best < before;
    return LH_OK;
}

/* Transfers partitions until nothing improves. */
static lh_status lend_until_settled(lhi_diver *d, uint32_t which, lh_error *err)
{
    bool better = d->targets[which].at != LHI_NO_CANDIDATE;
    for (int i = 0; i < ROUNDS && better && !lhi_dive_spent(d); i++)
        LHI_TRY(lend_layers(d, which, &better, err));
    return LH_OK;
}

/* Checks whether two dimensions may change at once. */
static bool is_wide(const lhi_diver *d, const lhi_dive_target *t)
{
    return (double)t->best <= WIDE * (double)d->targets[0].best;
}

/* Runs the local search for one target. */
static lh_status dive(lhi_diver *d, uint32_t which, lh_error *err)
{
    bool better = true;
    lhi_dive_target *t = &d->targets[which];
    uint32_t top = d->targets[0].at, changes = 1;
    if (which > 0 && lhi_dive_is_closed(d, t))
        return LH_OK;
    if (t->settled || (which > 0 && t->best == d->targets[0].best))
        return LH_OK; /* it is the overall best, or as good */
    if (which > 0)
        LHI_TRY(explore(d, which, top, 1, &better, err));
    if (t->at == LHI_NO_CANDIDATE)
        LHI_TRY(explore(d, which, top, 2, &better, err));
    for (int i = 0; i < ROUNDS && t->at != LHI_NO_CANDIDATE &&
                    !is_far(d, t->best) && !lhi_dive_spent(d);
         i++) {
        LHI_TRY(explore(d, which, t->at, changes, &better, err));
        if (!better && changes == 2)
            break;
        if (!better && !is_wide(d, t))
            break;
        changes = better ? 1 : 2;
    }
    if (t->at != LHI_NO_CANDIDATE && !is_far(d, t->best) &&
        !lhi_dive_spent(d)) {
        LHI_TRY(move_best(d, which, err));
        LHI_TRY(lend_until_settled(d, which, err));
    }
    t->settled = !lhi_dive_spent(d);
    return LH_OK;
}

/* Moves the next candidates' layers: which is best with its own layers only
 * shows afterwards. */
static lh_status move_next(lhi_diver *d, uint32_t which, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (int n = 0; n < MOVED_OF_EACH && !lhi_dive_spent(d); n++) {
        const lhi_dive_target *t = &d->targets[which];
        uint32_t found = LHI_NO_CANDIDATE;
        double most = BEHIND * (double)t->best;
        for (uint32_t i = 0; i < s->n; i++)
            if (!d->moved[i] && (double)lhi_dive_value(d, i) < most &&
                lhi_dive_is_of(t, &s->candidates[i].config, UINT64_MAX)) {
                found = i;
                most = (double)lhi_dive_value(d, i);
            }
        if (found == LHI_NO_CANDIDATE)
            break;
        LHI_TRY(move_one(d, found, err));
    }
    return LH_OK;
}

/* Returns the most promising unsettled target; 0: none. */
static uint32_t next_target(const lhi_diver *d, const bool *done)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i < d->n_targets; i++)
        if (!done[i] && (!found || d->targets[i].best < d->targets[found].best))
            found = i;
    return found;
}

/* Restarts from the best with other values: the path from the overall best may
 * miss the best with this value. */
static lh_status dive_from_others(lhi_diver *d, uint32_t which, lh_error *err)
{
    const lhi_dive_target *t = &d->targets[which];
    uint32_t from[ANCHORS], n = 0;
    bool better;
    int64_t after = 0;
    LHI_TRY(explore(d, which, d->targets[0].at, 2, &better, err));
    while (n < ANCHORS && !lhi_dive_spent(d)) {
        const lhi_dive_target *next = NULL;
        for (uint32_t i = 1; i < d->n_targets; i++) {
            const lhi_dive_target *o = &d->targets[i];
            bool known = o->at == LHI_NO_CANDIDATE || o->at == t->at ||
                         o->at == d->targets[0].at || o->best < after ||
                         o->dimension == LHI_DIMENSION_SITES;
            for (uint32_t k = 0; k < n && !known; k++)
                known = from[k] == o->at;
            if (!known && (!next || o->best < next->best))
                next = o;
        }
        if (!next)
            break;
        after = next->best;
        from[n++] = next->at;
        LHI_TRY(explore(d, which, next->at, 1, &better, err));
    }
    return LH_OK;
}

/* Runs the local search for all targets. */
static lh_status dive_all(lhi_diver *d, lh_error *err)
{
    for (int i = 0; i < AGAIN && !lhi_dive_spent(d); i++) {
        int64_t before = d->targets[0].best;
        bool *done = calloc(d->n_targets, sizeof *done);
        if (!done)
            return lhi_fail_nomem(err);
        lh_status status = dive(d, 0, err);
        uint32_t which;
        while (status == LH_OK && !lhi_dive_spent(d) &&
               (which = next_target(d, done)) > 0) {
            done[which] = true;
            bool again = i == 1 && is_wide(d, &d->targets[which]) &&
                         d->targets[which].best > d->targets[0].best &&
                         !lhi_dive_is_closed(d, &d->targets[which]);
            if (again)
                status = dive_from_others(d, which, err);
            if (again && status == LH_OK)
                status = move_next(d, which, err);
            if (status != LH_OK)
                break;
            status = dive(d, which, err);
        }
        free(done);
        LHI_TRY(status);
        if (i > 0 && d->targets[0].best == before)
            break;
    }
    return LH_OK;
}

/* Moves the layers of the candidates close to the best: only moved layers and
 * optimised schedules show which is best. */
static lh_status move_others(lhi_diver *d, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (int n = 0; n < MOVED && !lhi_dive_spent(d); n++) {
        uint32_t found = LHI_NO_CANDIDATE;
        double most = NEAR * (double)d->targets[0].best;
        for (uint32_t i = 0; i < s->n; i++)
            if (!d->moved[i] && (double)lhi_dive_value(d, i) < most &&
                lhi_uneven_possible(s->job, &s->candidates[i].config,
                                    &s->options)) {
                found = i;
                most = (double)lhi_dive_value(d, i);
            }
        if (found == LHI_NO_CANDIDATE)
            break;
        LHI_TRY(move_one(d, found, err));
    }
    return LH_OK;
}

/* Finalises the overall best beyond the budget: explores its neighbourhood and
 * tries all known partitions on others. */
static lh_status settle(lhi_diver *d, lh_error *err)
{
    bool better = true;
    LHI_TRY(lend_until_settled(d, 0, err));
    for (int i = 0; i < ROUNDS && better && !lhi_dive_spent(d); i++) {
        const int64_t before = d->targets[0].best;
        LHI_TRY(dive(d, 0, err));
        LHI_TRY(lhi_dive_lend_to_all(d, &better, err));
        better = d->targets[0].best < before;
    }
    return LH_OK;
}

/* --- complete search ----------------------------------------------------- */

/* Removes candidates built on the way that are slower; they are not listed. */
static void drop_others(lhi_diver *d)
{
    lhi_layout_search *s = d->s;
    uint32_t kept = d->first;
    for (uint32_t i = d->first; i < s->n; i++)
        if (lhi_candidate_works(&s->candidates[i]))
            s->candidates[kept++] = s->candidates[i];
    s->n = kept;
}

/* Adds or subtracts the counts of the search's own candidates, because local
 * search changes them. */
static void count_first(const lhi_diver *d, int64_t sign, int64_t *simulated,
                        int64_t *too_large)
{
    for (uint32_t i = 0; i < d->first; i++) {
        const lhi_candidate *c = &d->s->candidates[i];
        *simulated += c->simulated ? sign : 0;
        *too_large += !c->simulated && c->missing > 0 ? sign : 0;
    }
}

/* Lists the best with each value in s->unexplored. */
static lh_status list_heads(const lhi_diver *d, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (uint32_t i = 1; s->unseen && i < d->n_targets; i++) {
        const lhi_dive_target *t = &d->targets[i];
        bool sure =
            t->settled && (double)t->best <= SURE * (double)d->targets[0].best;
        lhi_head head = {t->dimension, t->value, t->row, sure};
        if (t->best < INT64_MAX)
            LHI_TRY(lhi_heads_add(&s->unseen->heads, s->mem, &head, err));
    }
    return LH_OK;
}

/* Runs all steps with allocated state. */
static lh_status dive_with(lhi_diver *d, lh_error *err)
{
    lhi_layout_search *s = d->s;
    LHI_TRY(make_room(d, 1, err));
    LHI_TRY(lhi_dive_targets_make(d, err));
    for (uint32_t i = 0; i < s->n; i++)
        lhi_dive_note(d, i);
    if (d->targets[0].at == LHI_NO_CANDIDATE)
        return LH_OK;
    d->parts = LHI_DIVE_PARTS - 1;
    LHI_TRY(dive_all(d, err));
    LHI_TRY(move_others(d, err));
    d->parts = LHI_DIVE_PARTS;
    LHI_TRY(settle(d, err));
    return list_heads(d, err);
}

lh_status lhi_layout_search_dive(lhi_layout_search *s, lh_error *err)
{
    const lhi_layout_search before = *s;
    lhi_diver d = {
        .s = s, .limits = lhi_dive_limits_of(&s->options), .first = s->n};
    int64_t simulated = 0, too_large = 0;
    count_first(&d, -1, &simulated, &too_large);
    lh_status status = lhi_space_init(s->job, s->mem, &d.space, err);
    if (status == LH_OK)
        status = lhi_floors_make(s->job, lhi_uneven_most(s->job, &s->options),
                                 &d.floors, err);
    if (status == LH_OK)
        status = lhi_bounded_make(&d.bounded, err);
    if (status == LH_OK)
        status = dive_with(&d, err);
    drop_others(&d);
    count_first(&d, 1, &simulated, &too_large);
    /* The search has already counted the others as unexplored or pruned. */
    s->n_simulated = before.n_simulated + (uint64_t)simulated;
    s->n_memory = before.n_memory + (uint64_t)too_large;
    s->n_unsupported = before.n_unsupported;
    lhi_bounded_free(d.bounded);
    lhi_floors_free(d.floors);
    lhi_space_fini(&d.space);
    free(d.targets);
    free(d.found);
    free(d.near);
    free(d.known);
    free(d.moved);
    return status;
}
