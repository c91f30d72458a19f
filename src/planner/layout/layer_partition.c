/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/layer_partition.h"

#include "base/random.h"
#include "format/job/parse.h"
#include "planner/layout/build_cache.h"
#include "planner/layout/choice.h"
#include "planner/layout/partition_search.h"
#include "schedule/solver/bound/closed_forms.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Default ratio between the layers of two chunks on equal GPUs: embedding, head
 * and memory need no larger one. */
static const double EQUAL_GPUS_RATIO = 3;

double lhi_layer_partition_speed_ratio(const lh_job *job)
{
    double least = DBL_MAX, most = 0;
    for (uint32_t d = 0; d < job->n_datacenters; d++) {
        const double rate = lhi_gpu_max_flops_per_s(&job->datacenters[d].gpu,
                                                    job->framework.fp8);
        least = fmin(least, rate);
        most = fmax(most, rate);
    }
    return most > least && least > 0 ? most / least : 1;
}

double lhi_layer_partition_default_ratio(const lh_job *job)
{
    return EQUAL_GPUS_RATIO * lhi_layer_partition_speed_ratio(job);
}

double lhi_layer_partition_ratio(const lh_plan_options *options)
{
    return options->max_chunk_ratio > 0 ? options->max_chunk_ratio
                                        : EQUAL_GPUS_RATIO;
}

double lhi_layer_partition_max_ratio(const lh_job *job,
                                     const lh_plan_options *options)
{
    const lh_layout *l = &job->layout;
    double ratio = lhi_layer_partition_ratio(options);
    for (uint32_t i = 0; i < l->n_chunk_layers; i++)
        for (uint32_t k = 0; k < l->n_chunk_layers; k++)
            if (l->chunk_layers[k] &&
                l->chunk_layers[i] > ratio * l->chunk_layers[k])
                ratio = (double)l->chunk_layers[i] / l->chunk_layers[k];
    return ratio;
}

/* Returns the total chunk count of a configuration: pipeline degree times
 * chunks per device. */
static uint32_t count_chunks(const lhi_config *config)
{
    return config->layout.pipeline * config->layout.chunks_per_device;
}

bool lhi_layer_partition_has_alternatives(const lh_job *job,
                                          const lhi_config *config,
                                          const lh_plan_options *options)
{
    uint32_t n = count_chunks(config);
    return !job->layout.chunk_layers && config->placement != LH_PLACEMENT_BD &&
           options->partition != LH_PARTITION_EVEN && n > 1 &&
           job->model->layers > n && lhi_layer_partition_ratio(options) > 1;
}

/* Partition evaluation under one method. */
typedef struct trial {
    const lh_job *job;
    const lh_plan_options *options;
    const char *method;
    lhi_config config;
    lhi_build_cache *known;
    lhi_evaluation_cache *tried;
    lhi_arena *mem; /* for error texts */
} trial;

lh_status lhi_layer_partition_time_built(const lhi_built_layout *built,
                                         const char *method,
                                         uint32_t sub_blocks,
                                         lhi_evaluation_cache *tried,
                                         int64_t useless_ns, lhi_arena *mem,
                                         int64_t *ns, lh_error *err)
{
    const int64_t more_ns = built->optimizer_ns + built->overhead_ns;
    lhi_method_outcome outcome;
    lh_bound bound;
    *ns = INT64_MAX;
    LHI_TRY(lhi_compute_closed_form_bound(built->pipeline, &bound, err));
    if (bound.ns + more_ns >= useless_ns)
        return LH_OK;
    LHI_TRY(lhi_evaluation_cache_run_method(
        tried, built->pipeline, method, sub_blocks,
        useless_ns == INT64_MAX ? 0 : useless_ns - more_ns, mem, &outcome, NULL,
        err));
    if (outcome.status == LH_CHOICE_OK)
        *ns = outcome.makespan_ns + more_ns;
    return LH_OK;
}

/* Computes the iteration time of layer partition `layers` under the trial's
 * schedule method, in ns; INT64_MAX: it does not work, or the time is at
 * least useless_ns. Callback for the partition search. */
static lh_status time_partition(void *context, const uint32_t *layers,
                                int64_t useless_ns, int64_t *ns, lh_error *err)
{
    trial *t = context;
    lhi_built_layout built;
    lh_error why = {0};
    *ns = INT64_MAX;
    t->config.layers = layers;
    lh_status status =
        lhi_layout_build_cached(t->job, &t->config, t->known, &built, &why);
    if (status == LH_OK) {
        status = lhi_layer_partition_time_built(
            &built, t->method, t->options->sub_blocks, t->tried, useless_ns,
            t->mem, ns, &why);
        lh_pipeline_free(built.pipeline);
    }
    /* Another partition may work. */
    if (status != LH_OK && !lhi_layout_is_infeasible(status) &&
        !lhi_method_is_inapplicable(status)) {
        if (err)
            *err = why;
        return status;
    }
    return LH_OK;
}

/* --- starts --------------------------------------------------------------- */

enum {
    INPUT_PARTITION,
    EVEN_WORK, /* per device */
    ONE_END_SMALL,
    BOTH_END_SMALL,
    MIDDLE_LARGE,
    RISING,
    FALLING,
    N_SHAPES,
    N_STARTS = N_SHAPES + 1,  /* and a sibling layout's partition */
    MAX_REBALANCED_LAYERS = 8 /* layers, for EVEN_WORK */
};

/* Quantity that rebalancing evens out between devices. */
typedef enum balanced {
    BALANCED_WORK,  /* F, D and W times of one microbatch, ns */
    BALANCED_MEMORY /* bytes above the memory limit with one microbatch in each
                     * chunk; below 0: free */
} balanced;

/* Returns the weight of chunk c of n in a starting partition of the hill
 * climbing: its layers relative to an even partition. `shape`: the partition's
 * form, such as RISING (more layers in later chunks). */
static double get_weight(int shape, uint32_t c, uint32_t n)
{
    double x = (double)c / (n - 1);
    switch (shape) {
    case ONE_END_SMALL:
        return c + 1 == n ? 0.5 : 1;
    case BOTH_END_SMALL:
        return c == 0 || c + 1 == n ? 0.5 : 1;
    case MIDDLE_LARGE:
        return x < 0.5 ? 1 + 2 * x : 3 - 2 * x;
    case RISING:
        return 1 + x;
    case FALLING:
        return 2 - x;
    default:
        return 1;
    }
}

/* Each device's work or memory for one microbatch. */
typedef struct loads {
    balanced what;
    double *of;      /* per device */
    double most;     /* INFINITY: no such layout */
    uint32_t n_most; /* device count at the maximum */
} loads;

/* Returns a chunk's share of its device's load. */
static double get_chunk_load(const lh_chunk *k, balanced what)
{
    return what == BALANCED_MEMORY ? (double)(k->mem_static + k->mem_f)
                                   : (double)(k->f_ns + k->d_ns + k->w_ns);
}

/* Computes each device's load (out->what) under layer partition `layers`, the
 * largest load, and how many devices have it. If the partition cannot be built,
 * the largest load is INFINITY. */
static lh_status compute_loads(trial *t, const uint32_t *layers, loads *out,
                               lh_error *err)
{
    lhi_built_layout built;
    lh_error why = {0};
    uint32_t devices = t->config.layout.pipeline;
    t->config.layers = layers;
    lh_status status =
        lhi_layout_build_cached(t->job, &t->config, t->known, &built, &why);
    out->most = INFINITY;
    out->n_most = 0;
    if (status == LH_OK) {
        for (uint32_t d = 0; d < devices; d++)
            out->of[d] =
                out->what == BALANCED_MEMORY
                    ? -(double)lh_pipeline_memory_limit(built.pipeline, d)
                    : 0;
        for (uint32_t c = 0; c < lh_pipeline_n_chunks(built.pipeline); c++) {
            const lh_chunk *k = lh_pipeline_chunk(built.pipeline, c);
            out->of[k->device] += get_chunk_load(k, out->what);
        }
        out->most = out->of[0];
        for (uint32_t d = 1; d < devices; d++)
            out->most = fmax(out->most, out->of[d]);
        for (uint32_t d = 0; d < devices; d++)
            out->n_most += !(out->of[d] < out->most);
        lh_pipeline_free(built.pipeline);
    } else if (!lhi_layout_is_infeasible(status)) {
        if (err)
            *err = why;
        return status;
    }
    return LH_OK;
}

/* Checks whether device loads `a` are more even than `b`: a lower maximum or,
 * with equal maxima, fewer devices that have it. */
static bool is_more_even(const loads *a, const loads *b)
{
    return a->most < b->most || (!(b->most < a->most) && a->n_most < b->n_most);
}

/* Moves one layer from a chunk of device `from` to a chunk of device `to`, if
 * some such move makes the device loads more even than `now`; takes the first.
 * *next: the new loads; *moved: false if no move does. */
static lh_status move_layer(trial *t, const lhi_partition *p, uint32_t from,
                            uint32_t to, const loads *now, uint32_t *layers,
                            loads *next, bool *moved, lh_error *err)
{
    *moved = false;
    for (uint32_t a = 0; a < p->n_chunks; a++)
        for (uint32_t b = 0; b < p->n_chunks; b++) {
            if (lhi_config_device(&t->config, a) != from ||
                lhi_config_device(&t->config, b) != to || layers[a] < 2)
                continue;
            layers[a]--;
            layers[b]++;
            if (lhi_partition_allows(p, layers)) {
                LHI_TRY(compute_loads(t, layers, next, err));
                *moved = is_more_even(next, now);
            }
            if (*moved)
                return LH_OK;
            layers[a]++;
            layers[b]--;
        }
    return LH_OK;
}

/* Rebalances a partition greedily: moves layers from the most to the least
 * loaded device while that lowers the largest load; for memory, until all
 * devices fit. Embedding, head and layers of other kinds weigh several layers.
 * Needs no schedule, so it costs little. *most receives the largest load. */
static lh_status rebalance_layers(trial *t, const lhi_partition *p,
                                  balanced what, uint32_t *layers, double *most,
                                  lh_error *err)
{
    uint32_t devices = t->config.layout.pipeline;
    double *room = calloc(2 * (size_t)devices, sizeof *room);
    loads both[2] = {{.what = what, .of = room},
                     {.what = what, .of = room ? room + devices : NULL}};
    const uint32_t max_moves =
        what == BALANCED_MEMORY ? p->n_layers : MAX_REBALANCED_LAYERS + devices;
    if (!room)
        return lhi_fail_nomem(err);
    lh_status status = compute_loads(t, layers, &both[0], err);
    bool moved = devices > 1 && both[0].most < INFINITY;
    *most = both[0].most;
    for (uint32_t i = 0; i < max_moves && moved && status == LH_OK &&
                         !(what == BALANCED_MEMORY && *most <= 0);
         i++) {
        const loads *now = &both[i % 2];
        uint32_t from = 0, to = 0;
        for (uint32_t d = 1; d < devices; d++) {
            from = now->of[d] > now->of[from] ? d : from;
            to = now->of[d] < now->of[to] ? d : to;
        }
        moved = from != to;
        if (moved)
            status = move_layer(t, p, from, to, now, layers, &both[(i + 1) % 2],
                                &moved, err);
        if (moved)
            *most = both[(i + 1) % 2].most;
    }
    free(room);
    return status;
}

/* A starting partition and its time. */
typedef struct start {
    uint32_t *layers;
    int64_t ns;
    bool done;
} start;

/* Builds the starting partitions of the hill climbing into `starts`.
 * room[0..n-1] is the given partition; each start deviates from it by
 * `strength`, 0 to 1 (full weights of get_weight()). `like`: partition of
 * another layout, or NULL. `speed`: scratch, n entries. */
static void build_starts(const lhi_partition *p, const uint32_t *like,
                         double strength, double *speed, uint32_t *room,
                         start *starts)
{
    uint32_t n = p->n_chunks;
    for (int i = 0; i < N_STARTS; i++) {
        starts[i].done = i > INPUT_PARTITION && p->steepest;
        starts[i].layers = room + (size_t)i * n;
        if (i == N_SHAPES)
            memcpy(starts[i].layers, like ? like : room, n * sizeof *room);
        for (uint32_t c = 0; c < n; c++)
            speed[c] = room[c] * (1 + strength * (get_weight(i, c, n) - 1));
        if (i != INPUT_PARTITION && i != EVEN_WORK && i != N_SHAPES)
            lhi_partition_distribute(p->n_layers, n, p->max_ratio, speed,
                                     starts[i].layers);
        for (int k = 0; k < i; k++)
            if (memcmp(starts[k].layers, starts[i].layers, n * sizeof *room) ==
                0)
                starts[i].done = true;
    }
}

/* Times the starting partitions by simulation until `most` partitions are timed
 * in all calls together. Sets *works if at least one of them is feasible. */
static lh_status time_starts(trial *t, lhi_partition *p, uint64_t most,
                             start *starts, bool *works, lh_error *err)
{
    for (int i = 0; i < N_STARTS; i++) {
        starts[i].ns = INT64_MAX;
        if (starts[i].done || (i != INPUT_PARTITION && p->n_timed >= most))
            continue;
        p->n_timed++;
        LHI_TRY(
            time_partition(t, starts[i].layers, INT64_MAX, &starts[i].ns, err));
        *works = *works || starts[i].ns < INT64_MAX;
    }
    return LH_OK;
}

/* Times the given partition with one layer moved, for each possible move until
 * one is feasible or `most` partitions are timed in all calls together. The
 * feasible partition becomes a start of the hill climbing. */
static lh_status find_move(trial *t, lhi_partition *p, uint64_t most,
                           start *starts, lh_error *err)
{
    start *s = &starts[ONE_END_SMALL];
    uint32_t n = p->n_chunks, *to = s->layers;
    memcpy(to, starts[INPUT_PARTITION].layers, n * sizeof *to);
    for (uint32_t i = 0; i < n * n && s->ns == INT64_MAX; i++) {
        uint32_t a = i / n, b = i % n;
        if (a == b || to[a] < 2 || p->n_timed >= most)
            continue;
        to[a]--;
        to[b]++;
        if (lhi_partition_allows(p, to)) {
            p->n_timed++;
            LHI_TRY(time_partition(t, to, INT64_MAX, &s->ns, err));
        }
        if (s->ns < INT64_MAX)
            break;
        to[a]++;
        to[b]--;
    }
    s->done = false;
    return LH_OK;
}

/* Finds starting partitions that fit into memory. If none does, tries weaker
 * deviations from the given partition: full strength, half, a quarter, then
 * one-layer moves. Stops once `most` partitions are timed. `like`, `speed`,
 * `room`: as for build_starts(). */
static lh_status find_starts(trial *t, lhi_partition *p, const uint32_t *like,
                             uint64_t most, double *speed, uint32_t *room,
                             start *starts, lh_error *err)
{
    bool works = false;
    for (double strength = 1; strength > 0.2 && !works; strength /= 2) {
        build_starts(p, like, strength, speed, room, starts);
        /* Already timed. */
        starts[INPUT_PARTITION].done = strength < 1;
        starts[EVEN_WORK].done = starts[EVEN_WORK].done || strength < 1;
        starts[N_SHAPES].done = starts[N_SHAPES].done || strength < 1;
        LHI_TRY(time_starts(t, p, most, starts, &works, err));
    }
    return works || p->steepest ? LH_OK : find_move(t, p, most, starts, err);
}

/* Runs hill climbing from each start, fastest first, until `most` partitions
 * are timed; `best` and *best_ns receive the fastest partition. If `climbed`,
 * an earlier call climbed from the given partition, probably to its local
 * optimum: it then comes last. */
static lh_status climb_from_starts(lhi_partition *p, uint64_t most,
                                   bool climbed, start *starts, uint32_t *best,
                                   int64_t *best_ns, lh_error *err)
{
    for (;;) {
        start *next = NULL;
        for (int i = 0; i < N_STARTS; i++)
            if (!starts[i].done && starts[i].ns < INT64_MAX &&
                !(climbed && i == INPUT_PARTITION) &&
                (!next || starts[i].ns < next->ns))
                next = &starts[i];
        if (!next && !starts[INPUT_PARTITION].done &&
            starts[INPUT_PARTITION].ns < INT64_MAX)
            next = &starts[INPUT_PARTITION];
        if (!next)
            return LH_OK;
        next->done = true;
        if (p->n_timed < most)
            LHI_TRY(lhi_partition_climb(p, most - p->n_timed, next->layers,
                                        &next->ns, err));
        if (next->ns < *best_ns) {
            *best_ns = next->ns;
            memcpy(best, next->layers, p->n_chunks * sizeof *best);
        }
    }
}

/* Copies the layers per chunk of the trial's configuration, or an even
 * partition if it has none, into layers[0..n-1]. */
static void get_input_layers(const trial *t, uint32_t n, uint32_t *layers)
{
    uint32_t first;
    for (uint32_t c = 0; c < n; c++)
        lhi_config_layers(t->job->model->layers, &t->config, c, &first,
                          &layers[c]);
}

lh_status
lhi_layer_partition_search(const lh_job *job, const lh_plan_options *options,
                           lhi_evaluation_cache *tried, const char *method,
                           bool steepest, bool climbed, const uint32_t *like,
                           uint64_t *passes, lhi_arena *mem, lhi_config *config,
                           int64_t *iteration_ns, lh_error *err)
{
    uint32_t n = count_chunks(config);
    uint64_t each = (uint64_t)n * config->microbatches * 3;
    uint64_t most = *passes / each;
    trial t = {job, options, method, *config, NULL, tried, lhi_arena_make(0)};
    lhi_partition p = {.n_layers = job->model->layers,
                       .n_chunks = n,
                       .max_ratio = lhi_layer_partition_ratio(options),
                       .time = time_partition,
                       .context = &t,
                       .steepest = steepest};
    start starts[N_STARTS] = {{0}};
    uint32_t *best = LHI_NEW(mem, uint32_t, n);
    uint32_t *room = calloc((size_t)N_STARTS * n, sizeof *room);
    double *speed = calloc(n, sizeof *speed);
    double load;
    lh_status status =
        t.mem && best && room && speed ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_build_cache_make(&t.known, err);
    if (status == LH_OK) {
        get_input_layers(&t, n, room);
        memcpy(room + EVEN_WORK * n, room, n * sizeof *room);
    }
    if (status == LH_OK && !steepest)
        status = rebalance_layers(&t, &p, BALANCED_WORK, room + EVEN_WORK * n,
                                  &load, err);
    if (status == LH_OK)
        status = find_starts(&t, &p, like, most, speed, room, starts, err);
    int64_t ns = starts[INPUT_PARTITION].ns;
    if (status == LH_OK)
        status = climb_from_starts(&p, most, climbed, starts, best, &ns, err);
    if (status == LH_OK && ns < INT64_MAX && best[0] > 0) {
        *iteration_ns = ns;
        config->layers = best;
    }
    *passes -= p.n_timed < most ? p.n_timed * each : *passes;
    lhi_build_cache_free(t.known);
    lhi_arena_free(t.mem);
    free(room);
    free(speed);
    return status;
}

/* --- slow methods --------------------------------------------------------- */

/* Tolerance: rounding differs with the chunks. */
static const double WORK_TOLERANCE = 1 + 1e-6;

/* Random walk for a slow method: few partitions can be timed, so they are
 * selected by load. */
typedef struct random_walk {
    trial t;
    lhi_partition p;
    const lhi_layer_partition_slow_search *how;
    loads now;        /* loads of the last sample */
    double most;      /* largest device load worth a try */
    uint32_t *evened; /* layers with balanced work */
    uint32_t *totals; /* layers per device */
    uint32_t *drawn;  /* next partition to time */
    uint32_t *one;    /* one device's chunks in it */
    double *speed;
    uint32_t *best;
    int64_t best_ns;
} random_walk;

/* Checks whether the random search has timed as many partitions as its budget
 * allows, or the caller asks to stop. */
static bool is_over_budget(const random_walk *s)
{
    return s->p.n_timed >= s->how->max_partitions ||
           (s->how->should_stop && s->how->should_stop(s->how->context));
}

/* Times the sampled partition s->drawn if no device's load exceeds s->most, and
 * stores it if it is at least as fast as the best partition so far. */
static lh_status time_sample(random_walk *s, lh_error *err)
{
    int64_t ns;
    if (!lhi_partition_allows(&s->p, s->drawn) || is_over_budget(s))
        return LH_OK;
    LHI_TRY(compute_loads(&s->t, s->drawn, &s->now, err));
    if (s->now.most > s->most * WORK_TOLERANCE)
        return LH_OK;
    s->p.n_timed++;
    /* One as fast as the best replaces it. */
    const int64_t useless_ns = s->best_ns + (s->best_ns < INT64_MAX);
    LHI_TRY(time_partition(&s->t, s->drawn, useless_ns, &ns, err));
    if (ns < INT64_MAX && ns <= s->best_ns) {
        s->best_ns = ns;
        memcpy(s->best, s->drawn, s->p.n_chunks * sizeof *s->best);
    }
    return LH_OK;
}

/* Distributes s->totals[d] layers of each device d over its chunks into
 * s->drawn, with fewer layers in its first chunk and still fewer in its last:
 * the pipeline then fills, and reaches the first D, sooner. */
static void build_rounds(random_walk *s)
{
    const lhi_config *config = &s->t.config;
    uint32_t v = config->layout.chunks_per_device;
    for (uint32_t i = 0; i < v; i++)
        s->speed[i] = i == 0 ? 0.7 : i + 1 == v ? 0.5 : 1;
    for (uint32_t d = 0; d < config->layout.pipeline; d++) {
        uint32_t i = 0;
        lhi_partition_distribute(s->totals[d], v, s->p.max_ratio, s->speed,
                                 s->one);
        for (uint32_t c = 0; c < s->p.n_chunks; c++)
            if (lhi_config_device(config, c) == d)
                s->drawn[c] = s->one[i++];
    }
}

/* Times the partition with small first and last chunks, and its variants with
 * another device as the one with the most layers. */
static lh_status time_rounds(random_walk *s, lh_error *err)
{
    uint32_t P = s->t.config.layout.pipeline, m = 0;
    memset(s->totals, 0, P * sizeof *s->totals);
    for (uint32_t c = 0; c < s->p.n_chunks; c++)
        s->totals[lhi_config_device(&s->t.config, c)] += s->evened[c];
    for (uint32_t d = 1; d < P; d++)
        m = s->totals[d] > s->totals[m] ? d : m;
    const uint32_t most = s->totals[m];
    for (uint32_t d = 0; d < P; d++) {
        const uint32_t less = s->totals[d];
        if (d != m && less == most)
            continue;
        s->totals[m] = less;
        s->totals[d] = most;
        build_rounds(s);
        LHI_TRY(time_sample(s, err));
        s->totals[d] = less;
        s->totals[m] = most;
    }
    return LH_OK;
}

/* Times the given partition and its rebalanced form, whose largest device load
 * limits all further samples (s->most). */
static lh_status time_rebalanced(random_walk *s, lh_error *err)
{
    const uint32_t n = s->p.n_chunks;
    get_input_layers(&s->t, n, s->evened);
    memcpy(s->drawn, s->evened, n * sizeof *s->drawn);
    s->most = INFINITY;
    LHI_TRY(time_sample(s, err));
    LHI_TRY(rebalance_layers(&s->t, &s->p, BALANCED_WORK, s->evened, &s->most,
                             err));
    memcpy(s->drawn, s->evened, n * sizeof *s->drawn);
    return time_sample(s, err);
}

/* Improves the best partition by random one-layer moves, for slow methods:
 * there is no time to try all moves. */
static lh_status walk_randomly(random_walk *s, lh_error *err)
{
    enum { MAX_SAMPLES = 64 }; /* samples per timed partition */
    const uint32_t n = s->p.n_chunks;
    lhi_random random = {1};
    for (uint64_t i = 0;
         i < MAX_SAMPLES * s->how->max_partitions && !is_over_budget(s); i++) {
        uint32_t from = lhi_random_below(&random, n);
        uint32_t to = lhi_random_below(&random, n - 1);
        to += to >= from;
        memcpy(s->drawn, s->best, n * sizeof *s->drawn);
        s->drawn[from]--;
        s->drawn[to]++;
        LHI_TRY(time_sample(s, err));
    }
    return LH_OK;
}

lh_status lhi_layer_partition_search_slow_method(
    const lh_job *job, const lh_plan_options *options,
    lhi_evaluation_cache *tried, const lhi_layer_partition_slow_search *how,
    lhi_arena *mem, lhi_config *config, uint32_t *n_timed,
    int64_t *iteration_ns, lh_error *err)
{
    const uint32_t n = count_chunks(config);
    const uint32_t v = config->layout.chunks_per_device;
    uint32_t *room = calloc(4 * (size_t)n, sizeof *room);
    double *real = calloc(2 * (size_t)n, sizeof *real);
    uint32_t *best = LHI_NEW(mem, uint32_t, n);
    random_walk s = {
        .t = {job, options, how->method, *config, NULL, tried,
              lhi_arena_make(0)},
        .p = {.n_layers = job->model->layers,
              .n_chunks = n,
              .max_ratio = lhi_layer_partition_ratio(options)},
        .how = how,
        .now = {.of = real},
        .evened = room,
        .totals = room ? room + n : NULL,
        .drawn = room ? room + 2 * (size_t)n : NULL,
        .one = room ? room + 3 * (size_t)n : NULL,
        .speed = real ? real + n : NULL,
        .best = best,
        .best_ns = INT64_MAX,
    };
    lh_status status =
        room && real && best && s.t.mem ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_build_cache_make(&s.t.known, err);
    if (status == LH_OK)
        status = time_rebalanced(&s, err);
    if (status == LH_OK && v > 2 && s.most < INFINITY)
        status = time_rounds(&s, err);
    if (status == LH_OK && s.most < INFINITY && s.best_ns < how->start_limit_ns)
        status = walk_randomly(&s, err);
    if (status == LH_OK && s.best_ns < INT64_MAX) {
        *iteration_ns = s.best_ns;
        config->layers = best;
    }
    *n_timed = (uint32_t)s.p.n_timed;
    lhi_build_cache_free(s.t.known);
    lhi_arena_free(s.t.mem);
    free(room);
    free(real);
    return status;
}

/* Implements lhi_layer_partition_rebalance() and
 * lhi_layer_partition_fit_memory(). */
static lh_status rebalance_config(const lh_job *job,
                                  const lh_plan_options *options, balanced what,
                                  lhi_arena *mem, lhi_config *config,
                                  lh_error *err)
{
    uint32_t n = count_chunks(config);
    trial t = {job, options, NULL, *config, NULL, NULL, NULL};
    lhi_partition p = {.n_layers = job->model->layers,
                       .n_chunks = n,
                       .max_ratio = lhi_layer_partition_ratio(options)};
    if (!lhi_layer_partition_has_alternatives(job, config, options))
        return LH_OK;
    uint32_t *layers = LHI_NEW(mem, uint32_t, n);
    lh_status status = layers ? LH_OK : lhi_fail_nomem(err);
    bool same = true;
    double most = INFINITY;
    if (status == LH_OK)
        status = lhi_build_cache_make(&t.known, err);
    if (status == LH_OK) {
        get_input_layers(&t, n, layers);
        status = rebalance_layers(&t, &p, what, layers, &most, err);
    }
    for (uint32_t c = 0; c < n && status == LH_OK; c++) {
        uint32_t first, given;
        lhi_config_layers(job->model->layers, config, c, &first, &given);
        same = same && given == layers[c];
    }
    if (status == LH_OK && !same && !(what == BALANCED_MEMORY && most > 0))
        config->layers = layers;
    lhi_build_cache_free(t.known);
    return status;
}

lh_status lhi_layer_partition_rebalance(const lh_job *job,
                                        const lh_plan_options *options,
                                        lhi_arena *mem, lhi_config *config,
                                        lh_error *err)
{
    return rebalance_config(job, options, BALANCED_WORK, mem, config, err);
}

lh_status lhi_layer_partition_fit_memory(const lh_job *job,
                                         const lh_plan_options *options,
                                         lhi_arena *mem, lhi_config *config,
                                         lh_error *err)
{
    return rebalance_config(job, options, BALANCED_MEMORY, mem, config, err);
}
