/* SPDX-License-Identifier: Apache-2.0 */
/* Monte Carlo over complete configurations by ScaleAcross Explorer (2026,
 * section 6.2), for comparison:
 *
 * 1. Samples layouts that fit the memory, each with the even partition under
 *    every fast method: first uniformly, then like the fastest samples (the
 *    paper guides later samples by features of fast ones).
 * 2. Samples partitions of the fastest tenth of the layouts.
 * 3. Changes each of the fastest partitions many times by one layer. */
#include "planner/layout/choice.h"
#include "planner/layout/layer_partition.h"
#include "planner/layout/partition_search.h"
#include "planner/layout/space.h"
#include "planner/search/candidate.h"
#include "planner/search/unexplored.h"

#include "base/random.h"
#include "base/sort.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMULATED = 8,         /* layouts evaluated under every method */
    TRIES = 200,           /* most samples per layout, because few may fit */
    MOST_TRIES = 60000,    /* samples in all */
    KNOWN_SLOTS = 1 << 17, /* of the hash set: more than MOST_TRIES */
    EXPLORATION = 3,       /* a third of the layouts are sampled uniformly */
    COMPARED = 256,        /* layouts compared to select a model for a sample */
    PARTITIONED = 10,      /* a tenth of the layouts get sampled partitions */
    DEFAULT_LAYOUTS = 3000
};

/* A kept partition. */
typedef struct kept_partition {
    int64_t ns;
    uint32_t layout; /* candidate */
    const char *method;
    uint32_t *layers;
} kept_partition;

/* A sampled layout. */
typedef struct sampled_layout {
    int64_t ns;         /* with the even partition */
    uint32_t layout;    /* candidate */
    const char *method; /* the fastest with the even partition */
} sampled_layout;

/* Sampling state. */
typedef struct monte_carlo {
    lhi_layout_search *s;
    lhi_space space;
    lhi_random random;
    uint32_t n_layouts, n_partitions, n_keep, n_changes;
    kept_partition *best; /* by ns, the fastest first */
    uint32_t n_best;
    uint32_t done, total; /* parts of the current step, for the progress */
    lhi_arena *mem;
    uint64_t *known;         /* hashes of sampled layouts; 0: empty slot */
    sampled_layout *sampled; /* by candidate; after step 1 by time */
    /* One layout's sampling state: */
    uint32_t layout;
    const char *method;
    const lhi_config *like; /* configuration to imitate; NULL: none */
    uint32_t imitated;      /* dimensions in which to imitate it, as bits */
    lhi_level level;        /* of the visited children */
    uint32_t seen;          /* visited children with most_equal equal values */
    uint32_t most_equal;    /* most dimensions equal to `like` in a child */
    lhi_config chosen;
} monte_carlo;

/* Returns `given`, or the default `usual` if `given` is 0. */
static uint32_t get_value_or_default(uint32_t given, uint32_t usual)
{
    return given ? given : usual;
}

/* Checks whether the caller asks to stop and a plan has been found. */
static bool is_stopped(const monte_carlo *d)
{
    const lh_plan_options *o = &d->s->options;
    return o->progress &&
           o->progress(o->context, d->done, d->total,
                       d->n_best ? d->best[0].ns : -1) &&
           d->n_best > 0;
}

/* --- one layout ----------------------------------------------------------- */

/* Returns a dimension's value to imitate: the number of GPUs for the data
 * degree, which changes with the other degrees. */
static uint64_t get_imitated_value(lhi_dimension dimension,
                                   const lhi_config *config)
{
    return dimension == LHI_DIMENSION_DATA
               ? lh_layout_gpus(&config->layout)
               : lhi_dimension_value(dimension, config);
}

/* Counts the dimensions among `dimensions` (a set of bits) that `level` decides
 * and in which two configurations have equal values to imitate. */
static uint32_t count_equal(const lhi_config *x, const lhi_config *y,
                            uint32_t dimensions, lhi_level level)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LHI_N_DIMENSIONS; i++) {
        const lhi_dimension d = (lhi_dimension)i;
        n += (dimensions >> i & 1) && lhi_dimension_level(d) == level &&
             get_imitated_value(d, x) == get_imitated_value(d, y);
    }
    return n;
}

/* Selects one of the children visited so far with equal probability (reservoir
 * sampling), among those most like the configuration to imitate. Visitor
 * callback. */
static lh_status select_child(void *context, const lhi_config *config,
                              lh_error *err)
{
    monte_carlo *d = context;
    const uint32_t equal =
        d->like ? count_equal(config, d->like, d->imitated, d->level) : 0;
    (void)err;
    if (equal < d->most_equal)
        return LH_OK;
    if (equal > d->most_equal)
        d->seen = 0;
    d->most_equal = equal;
    if (lhi_random_below(&d->random, ++d->seen) == 0)
        d->chosen = *config;
    return LH_OK;
}

/* Returns the fastest of COMPARED random layouts sampled so far. */
static uint32_t select_model(monte_carlo *d)
{
    uint32_t best = lhi_random_below(&d->random, d->s->n);
    for (uint32_t i = 1; i < COMPARED; i++) {
        const uint32_t other = lhi_random_below(&d->random, d->s->n);
        if (d->sampled[other].ns < d->sampled[best].ns)
            best = other;
    }
    return best;
}

/* Adds the sampled layout to the known ones. Returns whether it was known. */
static bool add_known(monte_carlo *d)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < LHI_N_DIMENSIONS; i++)
        hash = lhi_mix64(hash ^
                         lhi_dimension_value((lhi_dimension)i, &d->chosen)) +
               i;
    hash += hash == 0;
    uint32_t slot = (uint32_t)hash % KNOWN_SLOTS;
    while (d->known[slot] != 0 && d->known[slot] != hash)
        slot = (slot + 1) % KNOWN_SLOTS;
    const bool was_known = d->known[slot] == hash;
    d->known[slot] = hash;
    return was_known;
}

/* Samples a complete layout at random, level by level of the search tree;
 * *found: there is one. After the exploration the sample imitates a fast layout
 * in all dimensions but one to three. */
static lh_status sample_layout(monte_carlo *d, bool *found, lh_error *err)
{
    uint64_t dropped = 0;
    d->like = NULL;
    if (d->s->n > d->n_layouts / EXPLORATION)
        d->like = &d->s->candidates[select_model(d)].config;
    d->imitated = (1u << LHI_N_DIMENSIONS) - 1;
    for (uint32_t i = lhi_random_below(&d->random, 3) + 1; i > 0; i--)
        d->imitated &= ~(1u << lhi_random_below(&d->random, LHI_N_DIMENSIONS));
    d->chosen = (lhi_config){0};
    *found = true;
    for (uint32_t level = LHI_LEVEL_NONE; level < LHI_LEVEL_COMPLETE && *found;
         level++) {
        lhi_config parent = d->chosen;
        d->seen = d->most_equal = 0;
        d->level = (lhi_level)(level + 1);
        LHI_TRY(lhi_space_children(&d->space, (lhi_level)level, &parent,
                                   &dropped, select_child, d, err));
        *found = d->seen > 0;
    }
    return LH_OK;
}

/* --- partitions ----------------------------------------------------------- */

/* Computes a built pipeline's iteration time under the sampled schedule method,
 * in *ns; leaves *ns unchanged if the schedule exceeds the memory. */
static lh_status time_built(const monte_carlo *d, const lhi_built_layout *built,
                            int64_t *ns, lh_error *err)
{
    lh_method_options how = {.size = sizeof how,
                             .sub_blocks = d->s->options.sub_blocks};
    lh_schedule *schedule;
    lh_timeline *t;
    LHI_TRY(
        lh_method_run(d->method, built->pipeline, &how, &schedule, NULL, err));
    lh_status status = lh_simulate(built->pipeline, schedule, NULL, &t, err);
    lh_schedule_free(schedule);
    LHI_TRY(status);
    if (lh_timeline_fits(t, NULL))
        *ns =
            lh_timeline_makespan(t) + built->optimizer_ns + built->overhead_ns;
    lh_timeline_free(t);
    return LH_OK;
}

/* Returns the index of the current layout's slowest stored partition if an
 * eighth of the n_keep stored partitions are the layout's own, which is its
 * share; n_best if it has fewer. */
static uint32_t find_replaced(const monte_carlo *d)
{
    uint32_t share = d->n_keep / SIMULATED, n = 0, last = d->n_best;
    for (uint32_t i = 0; i < d->n_best; i++)
        if (d->best[i].layout == d->layout) {
            last = i;
            n++;
        }
    return n >= (share ? share : 1) ? last : d->n_best;
}

/* Stores a layer partition of the current layout and its time `ns` if it is
 * among the n_keep fastest of all layouts, of which each layout has a limited
 * share. */
static lh_status keep_partition(monte_carlo *d, int64_t ns,
                                const uint32_t *layers, lh_error *err)
{
    const lh_layout *l = &d->s->candidates[d->layout].config.layout;
    uint32_t n = l->pipeline * l->chunks_per_device, at = find_replaced(d);
    bool full = at < d->n_best;
    if (!full && at == d->n_keep) {
        full = at > 0;
        at -= full;
    }
    if (d->n_keep == 0 || (full && ns >= d->best[at].ns))
        return LH_OK;
    uint32_t *copy = LHI_NEW(d->mem, uint32_t, n);
    if (!copy)
        return lhi_fail_nomem(err);
    memcpy(copy, layers, n * sizeof *copy);
    d->n_best += !full;
    for (; at > 0 && d->best[at - 1].ns > ns; at--)
        d->best[at] = d->best[at - 1];
    d->best[at] = (kept_partition){ns, d->layout, d->method, copy};
    return LH_OK;
}

/* Times one layer partition of the current layout under the sampled method, in
 * *ns, and stores it if it is among the fastest. useless_ns is not used.
 * Partition callback. */
static lh_status time_partition(void *context, const uint32_t *layers,
                                int64_t useless_ns, int64_t *ns, lh_error *err)
{
    (void)useless_ns; /* the slower ones are kept, too */
    monte_carlo *d = context;
    lhi_config config = d->s->candidates[d->layout].config;
    lhi_built_layout built;
    lh_error why = {0};
    *ns = INT64_MAX;
    if (is_stopped(d))
        return LH_OK; /* the samples that are left take no time */
    config.layers = layers;
    lh_status status = lhi_layout_build(d->s->job, &config, &built, &why);
    if (status == LH_OK) {
        status = time_built(d, &built, ns, &why);
        lh_pipeline_free(built.pipeline);
    }
    if (status != LH_OK && !lhi_layout_is_infeasible(status) &&
        !lhi_method_is_inapplicable(status)) {
        if (err)
            *err = why;
        return status;
    }
    if (status != LH_OK && !d->s->first_refusal.text[0])
        d->s->first_refusal = why;
    return *ns < INT64_MAX ? keep_partition(d, *ns, layers, err) : LH_OK;
}

/* Returns the current layout's partition problem: its layers, chunks and
 * allowed ratio. */
static lhi_partition make_partition(monte_carlo *d)
{
    const lh_layout *l = &d->s->candidates[d->layout].config.layout;
    return (lhi_partition){.n_layers = d->s->job->model->layers,
                           .n_chunks = l->pipeline * l->chunks_per_device,
                           .max_ratio =
                               lhi_layer_partition_ratio(&d->s->options),
                           .time = time_partition,
                           .context = d};
}

/* Samples random layer partitions of the current layout. */
static lh_status sample_partitions(monte_carlo *d, lh_error *err)
{
    lhi_partition p = make_partition(d);
    lhi_partition_sampling how = {.samples = d->n_partitions,
                                  .seed = lhi_random_next(&d->random)};
    int64_t ns = INT64_MAX;
    uint32_t *best = calloc(p.n_chunks, sizeof *best);
    if (!best)
        return lhi_fail_nomem(err);
    lh_status status = lhi_partition_sample(&p, &how, best, &ns, err);
    free(best);
    return status;
}

/* Times random changes of a stored partition `one`; `layers` is scratch. */
static lh_status change_partition(monte_carlo *d, const kept_partition *one,
                                  uint32_t *layers, lh_error *err)
{
    d->layout = one->layout;
    d->method = one->method;
    lhi_partition p = make_partition(d);
    int64_t ns = one->ns;
    memcpy(layers, one->layers, p.n_chunks * sizeof *layers);
    return lhi_partition_perturb(&p, d->n_changes, &d->random, layers, &ns,
                                 err);
}

/* --- complete search ------------------------------------------------------ */

/* Selects the fastest schedule method for the current layout's even partition
 * among the fast ones that plans with as many stages consider (the job's own
 * even if it is slow); *fits: the even partition fits the memory under one. */
static lh_status select_method(monte_carlo *d, bool *fits, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    const lh_layout *l = &s->candidates[d->layout].config.layout;
    uint32_t n = l->pipeline * l->chunks_per_device;
    const bool own = lhi_schedule_requested(s->job) == LHI_REQUEST_METHOD;
    uint32_t *even = calloc(n, sizeof *even);
    lh_status status = even ? LH_OK : lhi_fail_nomem(err);
    const char *fastest = NULL;
    int64_t least_ns = INT64_MAX;
    for (uint32_t c = 0; c < n && even; c++)
        even[c] = s->job->model->layers / n + (c < s->job->model->layers % n);
    for (uint32_t i = 0; i < lhi_n_methods && status == LH_OK; i++) {
        const lhi_method *m = &lhi_methods[i];
        int64_t ns = INT64_MAX;
        if ((m->kind == LHI_METHOD_SLOW && !own) ||
            !lhi_method_is_considered(s->job, &s->options, l->pipeline, m))
            continue;
        d->method = m->name;
        status = time_partition(d, even, INT64_MAX, &ns, err);
        if (status == LH_OK && ns < least_ns) {
            least_ns = ns;
            fastest = m->name;
        }
    }
    d->sampled[d->layout] = (sampled_layout){least_ns, d->layout, fastest};
    *fits = fastest != NULL;
    free(even);
    return status;
}

/* Samples layouts that fit the memory with the even partition. Gives up after
 * TRIES samples per layout, or MOST_TRIES in all. */
static lh_status sample_layouts(monte_carlo *d, lh_error *err)
{
    lhi_layout_search *s = d->s;
    uint32_t tries =
        d->n_layouts < MOST_TRIES / TRIES ? TRIES * d->n_layouts : MOST_TRIES;
    d->total = d->n_layouts;
    while (s->n < d->n_layouts && tries-- > 0) {
        bool found;
        d->done = s->n;
        if (is_stopped(d))
            break;
        LHI_TRY(sample_layout(d, &found, err));
        const lh_layout *l = &d->chosen.layout;
        if (!found || (uint64_t)l->pipeline * l->chunks_per_device >
                          s->job->model->layers)
            continue;
        if (add_known(d))
            continue;
        d->layout = s->n;
        s->candidates[s->n] = (lhi_candidate){.config = d->chosen};
        LHI_TRY(select_method(d, &found, err));
        if (!found)
            continue;
        s->n++;
    }
    return LH_OK;
}

/* Orders sampled layouts by time, then by sampling order. */
static int compare_sampled(const void *a, const void *b)
{
    const sampled_layout *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->layout < y->layout ? -1 : x->layout > y->layout;
}

/* Samples random layer partitions of the fastest sampled layouts. */
static lh_status sample_all_partitions(monte_carlo *d, lh_error *err)
{
    const uint32_t n = (d->s->n + PARTITIONED - 1) / PARTITIONED;
    lh_status status = LH_OK;
    lhi_sort(d->sampled, d->s->n, sizeof *d->sampled, compare_sampled);
    d->done = 0;
    d->total = n;
    for (uint32_t i = 0; i < n && status == LH_OK && !is_stopped(d); i++) {
        d->done = i;
        d->layout = d->sampled[i].layout;
        d->method = d->sampled[i].method;
        status = sample_partitions(d, err);
    }
    return status;
}

/* Changes each of the stored partitions by random one-layer moves. */
static lh_status change_partitions(monte_carlo *d, lh_error *err)
{
    uint32_t n = d->n_best;
    uint32_t *layers = calloc(d->s->job->model->layers, sizeof *layers);
    kept_partition *start = calloc(n + (size_t)1, sizeof *start);
    lh_status status = layers && start ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && n)
        memcpy(start, d->best, n * sizeof *start);
    d->done = 0;
    d->total = n;
    for (uint32_t i = 0; i < n && status == LH_OK && !is_stopped(d); i++) {
        d->done = i;
        status = change_partition(d, &start[i], layers, err);
    }
    free(layers);
    free(start);
    return status;
}

/* Simulates the fastest partition of the fastest layouts under every method. */
static lh_status simulate_best(monte_carlo *d, lh_error *err)
{
    lhi_layout_search *s = d->s;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_best && n < SIMULATED; i++) {
        const kept_partition *one = &d->best[i];
        lhi_candidate *c = &s->candidates[one->layout];
        if (c->simulated)
            continue;
        const lh_layout *l = &c->config.layout;
        size_t chunks = (size_t)l->pipeline * l->chunks_per_device;
        uint32_t *layers = LHI_NEW(s->mem, uint32_t, chunks);
        if (!layers)
            return lhi_fail_nomem(err);
        memcpy(layers, one->layers, chunks * sizeof *layers);
        c->config.layers = layers;
        LHI_TRY(lhi_candidate_compute_bound(s, c, err));
        LHI_TRY(lhi_candidate_evaluate(s, c, err));
        if (lhi_candidate_is_feasible(c) && c->choice.iteration_ns < s->best_ns)
            s->best_ns = c->choice.iteration_ns;
        n++;
    }
    /* The others are not listed: they were evaluated under one method only. */
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->candidates[i].simulated) {
            s->candidates[i].bound_ns = INT64_MAX;
            s->n_simulated++;
        }
    return LH_OK;
}

lh_status lhi_layout_search_run_monte_carlo(lhi_layout_search *s, lh_error *err)
{
    const lh_plan_sampling *o = &s->options.sampling;
    monte_carlo d = {.s = s,
                     .random = {o->seed ? o->seed : 1},
                     .n_layouts =
                         get_value_or_default(o->layouts, DEFAULT_LAYOUTS),
                     .n_partitions = get_value_or_default(o->partitions, 100),
                     .n_keep = get_value_or_default(o->keep, 1000),
                     .n_changes = get_value_or_default(o->changes, 100)};
    s->best_ns = s->best_value = INT64_MAX;
    d.mem = lhi_arena_make(0);
    d.best = calloc(d.n_keep, sizeof *d.best);
    d.sampled = calloc(d.n_layouts, sizeof *d.sampled);
    d.known = calloc(KNOWN_SLOTS, sizeof *d.known);
    s->candidates = calloc(d.n_layouts, sizeof *s->candidates);
    lh_status status = d.mem && d.best && d.sampled && d.known && s->candidates
                           ? LH_OK
                           : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_space_init(s->job, s->mem, &d.space, err);
    if (status == LH_OK)
        status = sample_layouts(&d, err);
    if (status == LH_OK)
        status = sample_all_partitions(&d, err);
    if (status == LH_OK)
        status = change_partitions(&d, err);
    if (status == LH_OK)
        status = simulate_best(&d, err);
    lhi_space_fini(&d.space);
    lhi_arena_free(d.mem);
    free(d.best);
    free(d.sampled);
    free(d.known);
    return status;
}
