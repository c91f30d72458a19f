/* SPDX-License-Identifier: Apache-2.0 */
/* Finds stragglers: workers, stages and links slower than their peers, and
 * uneven microbatches. Determines the affected steps and each one's cost. */
#include "report/diagnosis/diagnose_internal.h"
#include "report/diagnosis/microbatch_imbalance.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ratio to the peers from which a component counts as slow. A stage's passes
 * hardly differ between replicas, stages differ by their layers, messages by
 * other traffic. */
static const double slow_ratio[] = {[LH_SLOW_WORKER] = 1.1,
                                    [LH_SLOW_STAGE] = 1.1,
                                    [LH_SLOW_LINK] = 1.5,
                                    [LH_SLOW_MICROBATCHES] = 1};
/* Tolerance for uneven microbatches, in standard errors of the mean: a worker
 * that received longer microbatches by chance is not slow. The second one
 * applies to pass times normalised by the replica's work on other stages, which
 * removes only part of the effect. */
#define NOISE_ERRORS 3
#define RESIDUAL_NOISE_ERRORS 1
/* Least cost worth reporting, as a share of a step. */
#define MIN_COST 0.002
/* Least cost for a straggler that others mask; it is reported beside them. */
#define MIN_MASKED_COST 0.01

enum { MAX_EVALUATED = 64 }; /* stragglers whose cost is computed */

/* --- candidates ----------------------------------------------------------- */

/* A component that may be slow, with its times. */
typedef struct component {
    lh_slow_component result;
    double own, others;  /* sums over its slow steps */
    uint32_t worker;     /* the worker; for a link its receiver */
    uint32_t sender;     /* link: the sending worker */
    bool back;           /* link: backward messages */
    double messages;     /* link: total transfer time in this step */
    uint32_t n_messages; /* link: messages in this step */
} component;

/* Straggler search state. */
typedef struct lhi_slow_search {
    lhi_diagnosis_state *d;
    uint32_t n;
    component *all;
    uint32_t first_link;        /* links come last in `all` */
    uint32_t *of_receiver;      /* at 2 * worker + back: the last listed link to
                                 * that receiver; LH_NONE: none */
    uint32_t *next_link;        /* per link: the previous one to its receiver */
    double *passes;             /* per worker, in the current step */
    double *workers;            /* pass times per stage, sorted */
    double *stages;             /* median pass time per stage */
    double *sorted_stages;      /* the same, sorted */
    double *values;             /* scratch: one per link */
    lhi_imbalance_step *uneven; /* per step */
    double *works;              /* scratch: one per stage */
    uint32_t n_kept;            /* number in `all` whose cost is computed */
} straggler_search;

/* Returns the number of the listed link over which receive `i`, in operation
 * group `group`, got its message; LH_NONE if it is not listed. */
static uint32_t find_link(const straggler_search *l, const lhi_op_graph *g,
                          uint32_t group, uint32_t i)
{
    uint32_t sender = lhi_op_graph_sender(g, group, i);
    uint32_t back = g->op[i] == LHI_OP_BACKWARD_RECV;
    uint32_t k = l->of_receiver[2 * g->worker[i] + back];
    while (k != LH_NONE && l->all[l->first_link + k].sender != sender)
        k = l->next_link[k];
    return k;
}

/* Lists the links between workers that the first step uses, as candidates for
 * stragglers. Messages of later steps on other links are left out of the
 * comparison. */
static void list_links(straggler_search *l)
{
    const lhi_op_graph *g = l->d->recording->steps[0].graph;
    uint32_t S = g->n_stages;
    l->first_link = l->n;
    memset(l->of_receiver, 0xff,
           2 * (size_t)lhi_recording_n_workers(l->d->recording) *
               sizeof(uint32_t));
    for (uint32_t group = 0; group < g->n_groups; group++)
        for (uint32_t i = g->first[group]; i < g->first[group + 1]; i++) {
            uint32_t to = g->worker[i];
            if (!lhi_op_is_receive((lhi_op_type)g->op[i]) ||
                find_link(l, g, group, i) != LH_NONE)
                continue;
            uint32_t sender = lhi_op_graph_sender(g, group, i);
            bool back = g->op[i] == LHI_OP_BACKWARD_RECV;
            uint32_t k = l->n - l->first_link;
            l->next_link[k] = l->of_receiver[2 * to + back];
            l->of_receiver[2 * to + back] = k;
            l->all[l->n++] = (component){.result = {.kind = LH_SLOW_LINK,
                                                    .stage = sender % S,
                                                    .to_stage = to % S,
                                                    .replica = to / S},
                                         .worker = to,
                                         .sender = sender,
                                         .back = back};
        }
}

/* Lists the candidates for stragglers (slow components): workers, stages,
 * microbatches and links. */
static void list_components(straggler_search *l)
{
    const lh_recording *r = l->d->recording;
    uint32_t S = r->n_stages;
    for (uint32_t w = 0; w < lhi_recording_n_workers(r) && r->n_replicas > 1;
         w++)
        l->all[l->n++] = (component){.result = {.kind = LH_SLOW_WORKER,
                                                .stage = w % S,
                                                .replica = w / S},
                                     .worker = w};
    for (uint32_t s = 0; s < S && S > 1; s++)
        l->all[l->n++] = (component){
            .result = {.kind = LH_SLOW_STAGE, .stage = s, .replica = LH_NONE}};
    l->all[l->n++] = (component){.result = {.kind = LH_SLOW_MICROBATCHES,
                                            .stage = LH_NONE,
                                            .to_stage = LH_NONE,
                                            .replica = LH_NONE}};
    list_links(l);
}

/* --- times in a step ------------------------------------------------------ */

/* Sums a step's pass times for each worker (a replica's stage), and its
 * transfer times and messages for each link. */
static void sum_step(straggler_search *l, const lhi_recorded_step *step)
{
    const lhi_op_graph *g = step->graph;
    memset(l->passes, 0,
           (size_t)g->n_stages * g->n_replicas * sizeof *l->passes);
    for (uint32_t k = l->first_link; k < l->n; k++) {
        l->all[k].messages = 0;
        l->all[k].n_messages = 0;
    }
    for (uint32_t group = 0; group < g->n_groups; group++)
        for (uint32_t i = g->first[group]; i < g->first[group + 1]; i++) {
            lhi_op_type op = (lhi_op_type)g->op[i];
            if (lhi_op_is_pass(op))
                l->passes[g->worker[i]] += (double)step->duration_ns[i];
            if (!lhi_op_is_receive(op))
                continue;
            uint32_t k = find_link(l, g, group, i);
            if (k == LH_NONE)
                continue;
            l->all[l->first_link + k].messages += (double)step->duration_ns[i];
            l->all[l->first_link + k].n_messages++;
        }
}

/* Returns the lower median of n sorted values without one of those that equal
 * `own`. */
static double get_median_of_others(const double *sorted, uint32_t n, double own)
{
    if (n < 2)
        return 0;
    uint32_t middle = (n - 2) / 2;
    return own <= sorted[middle] ? sorted[middle + 1] : sorted[middle];
}

/* Returns the median pass time, in the current step, of the same stage's
 * workers in other replicas. */
static double get_median_of_peers(const straggler_search *l, uint32_t worker)
{
    const lh_recording *r = l->d->recording;
    uint32_t stage = worker % r->n_stages;
    return get_median_of_others(&l->workers[(size_t)stage * r->n_replicas],
                                r->n_replicas, l->passes[worker]);
}

/* Returns the median pass time in the current step over all stages but
 * `stage`. */
static double get_median_of_stages(const straggler_search *l, uint32_t stage)
{
    return get_median_of_others(l->sorted_stages, l->d->recording->n_stages,
                                l->stages[stage]);
}

/* Returns a link's mean message time in ns in the current step; 0 if it
 * transferred none. */
static double get_link_mean(const component *link)
{
    return link->n_messages ? link->messages / link->n_messages : 0;
}

/* Returns the median of the links' mean transfer times, forward or, with
 * `back`, backward; 0 if fewer than three have messages. */
static double get_median_of_links(const straggler_search *l, bool back)
{
    uint32_t n = 0;
    for (uint32_t i = l->first_link; i < l->n; i++)
        if (l->all[i].back == back && l->all[i].n_messages)
            l->values[n++] = get_link_mean(&l->all[i]);
    return n > 2 ? lhi_lower_median(l->values, n) : 0;
}

/* Sorts the workers' pass times within each stage, and computes each stage's
 * median. */
static void sort_passes(straggler_search *l)
{
    const lh_recording *r = l->d->recording;
    for (uint32_t s = 0; s < r->n_stages; s++) {
        double *workers = &l->workers[(size_t)s * r->n_replicas];
        for (uint32_t k = 0; k < r->n_replicas; k++)
            workers[k] = l->passes[k * r->n_stages + s];
        l->stages[s] = lhi_lower_median(workers, r->n_replicas);
        l->sorted_stages[s] = l->stages[s];
    }
    lhi_lower_median(l->sorted_stages, r->n_stages); /* sorts in place */
}

/* With uneven microbatches, divides each worker's pass time in the current step
 * by its replica's relative work: the median over stages of pass time by stage
 * median. */
static void normalise_work(straggler_search *l)
{
    uint32_t S = l->d->recording->n_stages;
    for (uint32_t first = 0; first < lhi_recording_n_workers(l->d->recording);
         first += S) {
        double work;
        for (uint32_t s = 0; s < S; s++)
            l->works[s] =
                l->stages[s] > 0 ? l->passes[first + s] / l->stages[s] : 0;
        work = lhi_lower_median(l->works, S);
        for (uint32_t s = 0; s < S && work > 0; s++)
            l->passes[first + s] /= work;
    }
}

/* Returns the ratio of candidate `a`'s time to its peers' from which it counts
 * as slow in a step. Uneven microbatches (`uneven`) raise it for workers by the
 * error expected by chance. */
static double get_slow_threshold(const straggler_search *l, const component *a,
                                 const lhi_imbalance_step *uneven,
                                 uint32_t n_microbatches)
{
    double from = slow_ratio[a->result.kind];
    if (!uneven->is_uneven || a->result.kind != LH_SLOW_WORKER)
        return from;
    return from + (l->d->recording->n_stages > 1 ? RESIDUAL_NOISE_ERRORS
                                                 : NOISE_ERRORS) *
                      uneven->spread / sqrt(n_microbatches);
}

/* Computes straggler candidate `a`'s time in the current step (*own) and its
 * peers' (*others), both in ns; 0: no data. `uneven`: the step's microbatch
 * imbalance; `links`: median link times forward and backward. */
static void compare_component(const straggler_search *l, const component *a,
                              const lhi_imbalance_step *uneven,
                              const double *links, double *own, double *others)
{
    switch (a->result.kind) {
    case LH_SLOW_LINK:
        *own = get_link_mean(a);
        *others = links[a->back];
        break;
    case LH_SLOW_STAGE:
        *own = l->stages[a->result.stage];
        *others = get_median_of_stages(l, a->result.stage);
        break;
    case LH_SLOW_MICROBATCHES:
        *others = uneven->is_uneven ? l->sorted_stages[0] : 0;
        *own = *others * uneven->longest;
        break;
    case LH_SLOW_WORKER:
        *own = l->passes[a->worker];
        *others = get_median_of_peers(l, a->worker);
        break;
    }
}

/* Compares all candidates for stragglers with their peers in step number
 * `at`. */
static void compare_step(straggler_search *l, uint32_t at)
{
    const lh_recording *r = l->d->recording;
    const lhi_recorded_step *step = &r->steps[at];
    const lhi_imbalance_step *uneven = &l->uneven[at];
    double links[2] = {get_median_of_links(l, false),
                       get_median_of_links(l, true)};
    sort_passes(l);
    if (uneven->is_uneven && r->n_stages > 1) {
        normalise_work(l);
        sort_passes(l);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        component *a = &l->all[i];
        double own, others,
            from =
                get_slow_threshold(l, a, uneven, step->graph->n_microbatches);
        compare_component(l, a, uneven, links, &own, &others);
        if (others <= 0 || own <= from * others)
            continue;
        if (a->result.n_steps++ == 0)
            a->result.first_step = step->step;
        a->result.last_step = step->step;
        a->result.is_ongoing = at + 1 == r->n_steps;
        a->own += own;
        a->others += others;
    }
}

/* --- costs ---------------------------------------------------------------- */

/* A scenario with capacity for its links. stays_uneven: repaired workers keep
 * the unevenness of their microbatches. */
typedef struct repair_scenario {
    lhi_scenario *scenario;
    lhi_worker_link *links;
    bool stays_uneven;
} repair_scenario;

/* Sets replacement times in replay scenario `s` that make microbatches even:
 * each pass takes its stage's mean over the replicas that are not slow; a slow
 * worker keeps its own mean. */
static void make_even(const straggler_search *l, const lhi_scenario *s)
{
    const lh_recording *r = l->d->recording;
    uint32_t S = r->n_stages, R = r->n_replicas;
    for (uint32_t stage = 0; stage < S; stage++)
        for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++) {
            double usual = (double)lhi_typical_of_stage(&l->d->passes, r, stage,
                                                        (lhi_op_type)k);
            double sum = 0, n = 0;
            for (uint32_t w = stage; w < S * R; w += S) {
                double own = l->d->passes.means[(size_t)w * LHI_N_OPS + k];
                bool is_slow = own > slow_ratio[LH_SLOW_WORKER] * usual;
                sum += is_slow ? 0 : own;
                n += !is_slow;
            }
            for (uint32_t w = stage; w < S * R; w += S) {
                size_t cell = (size_t)w * LHI_N_OPS + k;
                double own = l->d->passes.means[cell];
                bool is_slow = own > slow_ratio[LH_SLOW_WORKER] * usual;
                s->is_recorded[cell] = false;
                s->replacement_ns[cell] = (int64_t)(is_slow ? own : sum / n);
            }
        }
}

/* Sets replacement times in a replay scenario that repair straggler `a` (a slow
 * worker, stage or link): its operations take as long as its peers'. */
static void repair_component(const straggler_search *l, const component *a,
                             const repair_scenario *u)
{
    lhi_scenario *s = u->scenario;
    const lh_recording *r = l->d->recording;
    const lhi_typical_passes *usual = &l->d->passes;
    uint32_t S = r->n_stages;
    if (a->result.kind == LH_SLOW_MICROBATCHES)
        make_even(l, s);
    for (uint32_t w = 0; w < lhi_recording_n_workers(r); w++) {
        size_t row = (size_t)w * LHI_N_OPS;
        bool is_worker = a->result.kind == LH_SLOW_WORKER && w == a->worker;
        bool is_stage =
            a->result.kind == LH_SLOW_STAGE && w % S == a->result.stage;
        for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++) {
            if (!is_worker && !is_stage)
                continue;
            s->replacement_ns[row + k] =
                is_worker ? lhi_typical_of_peers(usual, r, w, (lhi_op_type)k)
                          : lhi_typical_of_other_stages(usual, r, w % S,
                                                        (lhi_op_type)k);
            if (u->stays_uneven && usual->means[row + k] > 0)
                s->factors[row + k] =
                    (double)s->replacement_ns[row + k] / usual->means[row + k];
            *lhi_scenario_flag(s, w, (lhi_op_type)k) = false;
        }
    }
    if (a->result.kind != LH_SLOW_LINK)
        return;
    lhi_op_type recv = a->back ? LHI_OP_BACKWARD_RECV : LHI_OP_FORWARD_RECV;
    lhi_op_type send = a->back ? LHI_OP_BACKWARD_SEND : LHI_OP_FORWARD_SEND;
    s->replacement_ns[(size_t)a->worker * LHI_N_OPS + recv] =
        l->d->typical_ns[recv];
    s->replacement_ns[(size_t)a->sender * LHI_N_OPS + send] =
        l->d->typical_ns[send];
    *lhi_scenario_flag(s, a->worker, recv) = false;
    *lhi_scenario_flag(s, a->sender, send) = false;
    u->links[s->n_links++] = (lhi_worker_link){a->sender, a->worker};
    s->links = u->links;
}

lh_status lhi_scenario_make_replaceable(lhi_diagnosis_state *d,
                                        lhi_arena *arena, lhi_scenario *out,
                                        lh_error *err)
{
    LHI_TRY(
        lhi_scenario_make(d->recording, true, d->typical_ns, arena, out, err));
    size_t n = (size_t)lhi_recording_n_workers(d->recording) * LHI_N_OPS;
    out->replacement_ns = LHI_NEW(arena, int64_t, n);
    out->factors = LHI_NEW(arena, double, n);
    return out->replacement_ns && out->factors ? LH_OK : lhi_fail_nomem(err);
}

/* Builds a scenario in the arena that repairs straggler `only` or, if `only` is
 * LH_NONE, all stragglers except `without`. */
static lh_status make_repaired(const straggler_search *l, uint32_t only,
                               uint32_t without, lhi_arena *arena,
                               lhi_scenario *out, lh_error *err)
{
    repair_scenario u = {out, LHI_NEW(arena, lhi_worker_link, l->n_kept),
                         false};
    if (!u.links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < l->n_kept; i++)
        if (l->all[i].result.kind == LH_SLOW_MICROBATCHES)
            u.stays_uneven = i == without || (only != LH_NONE && i != only);
    LHI_TRY(lhi_scenario_make_replaceable(l->d, arena, out, err));
    /* Stages last: a slow worker is part of its stage's time. */
    static const lh_slow_kind order[] = {LH_SLOW_MICROBATCHES, LH_SLOW_LINK,
                                         LH_SLOW_WORKER, LH_SLOW_STAGE};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (uint32_t i = 0; i < l->n_kept; i++)
            if (i != without && (only == LH_NONE || i == only) &&
                l->all[i].result.kind == order[k])
                repair_component(l, &l->all[i], &u);
    return LH_OK;
}

/* Computes the mean step time in ns if straggler `only` is repaired or, if that
 * is LH_NONE, all stragglers except `without`. */
static lh_status replay_repaired(const straggler_search *l, uint32_t only,
                                 uint32_t without, double *ns, lh_error *err)
{
    lhi_scenario s;
    lhi_mark mark = lhi_arena_mark(l->d->scratch);
    LHI_TRY(make_repaired(l, only, without, l->d->scratch, &s, err));
    LHI_TRY(lhi_replay_mean_step(l->d, &s, ns, err));
    lhi_arena_rewind(l->d->scratch, mark);
    return LH_OK;
}

lh_status lhi_scenario_make_repaired(const lhi_diagnosis_state *d,
                                     uint32_t straggler, lhi_scenario *out,
                                     lh_error *err)
{
    return make_repaired(d->slow_search, straggler, LH_NONE, d->arena, out,
                         err);
}

/* Finds masked stragglers (slow workers, stages or links): those that cost
 * nothing alone, but do once all others are repaired. */
static lh_status find_masked(straggler_search *l, lh_error *err)
{
    uint32_t n = l->n_kept;
    lh_diagnosis *out = &l->d->out;
    double all, ns, alone = 0;
    for (uint32_t i = 0; i < n; i++)
        alone = (double)l->all[i].result.cost_ns > alone
                    ? (double)l->all[i].result.cost_ns
                    : alone;
    if (n < 2)
        return LH_OK;
    LHI_TRY(replay_repaired(l, LH_NONE, LH_NONE, &all, err));
    if (out->t_ns - all - alone < MIN_MASKED_COST * out->t_ns)
        return LH_OK;
    for (uint32_t i = 0; i < n; i++) {
        lh_slow_component *t = &l->all[i].result;
        if ((double)t->cost_ns >= MIN_COST * out->t_ns)
            continue;
        LHI_TRY(replay_repaired(l, LH_NONE, i, &ns, err));
        if (ns - all < MIN_MASKED_COST * out->t_ns)
            continue;
        t->hidden = true;
        t->cost_ns = (int64_t)(ns - all);
        out->combined_saving_ns = (int64_t)(out->t_ns - all);
    }
    return LH_OK;
}

/* Compares candidates by excess time over their peers, the largest first, for
 * sorting. */
static int compare_excess(const void *a, const void *b)
{
    const component *x = a, *y = b;
    double p = x->own - x->others, q = y->own - y->others;
    p *= x->result.kind == LH_SLOW_LINK ? 2 : 1;
    q *= y->result.kind == LH_SLOW_LINK ? 2 : 1;
    return (p < q) - (p > q);
}

/* Compares candidates by cost, the most expensive first, for sorting. */
static int compare_costs(const void *a, const void *b)
{
    const component *x = a, *y = b;
    return (x->result.cost_ns < y->result.cost_ns) -
           (x->result.cost_ns > y->result.cost_ns);
}

/* --- selection ------------------------------------------------------------ */

/* Computes the cost of the slowest candidates (mean step time less that with
 * the candidate repaired) and stores the ones above the limit for reporting. */
static lh_status select_costly(straggler_search *l, lh_error *err)
{
    lh_diagnosis *out = &l->d->out;
    uint32_t kept = 0;
    double ns;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->all[i].result.n_steps)
            l->all[kept++] = l->all[i];
    lhi_sort(l->all, kept, sizeof *l->all, compare_excess);
    l->n_kept = kept = kept < MAX_EVALUATED ? kept : MAX_EVALUATED;
    lh_slow_component *results = LHI_NEW(l->d->arena, lh_slow_component, kept);
    if (!results)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < kept; i++) {
        LHI_TRY(replay_repaired(l, i, LH_NONE, &ns, err));
        l->all[i].result.cost_ns = (int64_t)(out->t_ns - ns);
    }
    LHI_TRY(find_masked(l, err));
    lhi_sort(l->all, kept, sizeof *l->all, compare_costs);
    for (uint32_t i = 0; i < kept; i++) {
        component *a = &l->all[i];
        a->result.ratio = a->own / a->others;
        if ((double)a->result.cost_ns >= MIN_COST * out->t_ns)
            results[out->n_slow_components++] = a->result;
    }
    out->slow_components = results;
    return LH_OK;
}

lh_status lhi_diagnosis_find_slow_components(lhi_diagnosis_state *d,
                                             lh_error *err)
{
    const lh_recording *r = d->recording;
    uint32_t n = lhi_recording_n_workers(r);
    straggler_search *l = LHI_NEW(d->scratch, straggler_search, 1);
    if (!l)
        return lhi_fail_nomem(err);
    l->d = d;
    /* Each chunk in each replica receives at most one message per direction. */
    size_t links = 2 * (size_t)r->n_replicas * r->steps[0].graph->n_chunks;
    l->all = LHI_NEW(d->scratch, component, n + r->n_stages + 1 + links);
    l->of_receiver = LHI_NEW(d->scratch, uint32_t, 2 * (size_t)n);
    l->next_link = LHI_NEW(d->scratch, uint32_t, links);
    l->passes = LHI_NEW(d->scratch, double, n);
    l->workers = LHI_NEW(d->scratch, double, n);
    l->stages = LHI_NEW(d->scratch, double, r->n_stages);
    l->sorted_stages = LHI_NEW(d->scratch, double, r->n_stages);
    l->values = LHI_NEW(d->scratch, double, links);
    l->works = LHI_NEW(d->scratch, double, r->n_stages);
    if (!l->all || !l->of_receiver || !l->next_link || !l->passes ||
        !l->workers || !l->stages || !l->sorted_stages || !l->values ||
        !l->works)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_imbalance_find(r, d->scratch, &l->uneven, err));
    list_components(l);
    for (uint32_t i = 0; i < r->n_steps; i++) {
        sum_step(l, &r->steps[i]);
        compare_step(l, i);
    }
    d->slow_search = l;
    return select_costly(l, err);
}
