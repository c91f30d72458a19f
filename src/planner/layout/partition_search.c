/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/partition_search.h"

#include "base/fail.h"
#include "base/random.h"
#include "base/sort.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns the most layers that a chunk may have if the smallest chunk has
 * `least`, by the largest allowed ratio. */
static uint32_t compute_max_chunk(const lhi_partition *p, uint32_t least)
{
    double most = floor(p->max_ratio * least + 1e-9);
    return most < p->n_layers ? (uint32_t)most : p->n_layers;
}

bool lhi_partition_allows(const lhi_partition *p, const uint32_t *layers)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        least = layers[c] < least ? layers[c] : least;
        most = layers[c] > most ? layers[c] : most;
    }
    return least > 0 && most <= compute_max_chunk(p, least);
}

void lhi_partition_distribute(uint32_t layers, uint32_t n, double most_ratio,
                              const double *speed, uint32_t *out)
{
    for (uint32_t c = 0; c < n; c++)
        out[c] = 1;
    for (uint32_t i = n; i < layers; i++) {
        uint32_t to = 0;
        for (uint32_t c = 1; c < n; c++)
            if ((out[c] + 1) / speed[c] < (out[to] + 1) / speed[to])
                to = c;
        out[to]++;
    }
    /* Raises the slowest chunks if they would have too few. */
    for (;;) {
        uint32_t least = 0, most = 0;
        for (uint32_t c = 1; c < n; c++) {
            least = out[c] < out[least] ? c : least;
            most = out[c] > out[most] ? c : most;
        }
        if (out[most] <= most_ratio * out[least] + 1e-9)
            return;
        out[most]--;
        out[least]++;
    }
}

/* Returns the sum of `a` and `b`; UINT64_MAX on overflow. */
static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Counts the ways to write n_layers as a sum of n_chunks numbers from `least`
 * to `most`. ways[k]: for sum k; `room` is scratch with n_layers + 1 entries,
 * like `ways`. */
static uint64_t count_between(const lhi_partition *p, uint32_t least,
                              uint32_t most, uint64_t *ways, uint64_t *room)
{
    uint32_t n = p->n_layers;
    memset(ways, 0, (n + 1) * sizeof *ways);
    ways[0] = 1;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        memset(room, 0, (n + 1) * sizeof *room);
        for (uint32_t have = 0; have <= n; have++)
            for (uint32_t k = least; ways[have] && k <= most && have + k <= n;
                 k++)
                room[have + k] = add_capped(room[have + k], ways[have]);
        memcpy(ways, room, (n + 1) * sizeof *ways);
    }
    return ways[n];
}

lh_status lhi_partition_count(const lhi_partition *p, uint64_t *out,
                              lh_error *err)
{
    uint64_t count = 0;
    uint64_t *room = calloc(2 * ((size_t)p->n_layers + 1), sizeof *room);
    if (!room)
        return lhi_fail_nomem(err);
    uint64_t *ways = room + p->n_layers + 1;
    for (uint32_t least = 1; least <= p->n_layers / p->n_chunks; least++) {
        uint32_t most = compute_max_chunk(p, least);
        uint64_t with = count_between(p, least, most, ways, room);
        uint64_t without = count_between(p, least + 1, most, ways, room);
        count = with == UINT64_MAX ? with : add_capped(count, with - without);
    }
    free(room);
    *out = count;
    return LH_OK;
}

/* Times the partition `layers` by the callback, in *ns; copies it to *best, and
 * its time to *best_ns, if it is the fastest so far. Times of useless_ns or
 * more need not be exact. */
static lh_status time_partition(lhi_partition *p, const uint32_t *layers,
                                int64_t useless_ns, uint32_t *best,
                                int64_t *best_ns, int64_t *ns, lh_error *err)
{
    LHI_TRY(p->time(p->context, layers, useless_ns, ns, err));
    p->n_timed++;
    if (*ns < *best_ns) {
        *best_ns = *ns;
        memcpy(best, layers, p->n_chunks * sizeof *best);
    }
    return LH_OK;
}

/* Enumeration state. */
typedef struct enumeration {
    lhi_partition *p;
    uint32_t *layers, *best;
    int64_t *best_ns;
} enumeration;

/* Times every allowed partition recursively: distributes `left` layers over
 * chunks `at` and later. The chunks before have their layers, from `least` to
 * `most` each. */
static lh_status enumerate_partitions(enumeration *w, uint32_t at,
                                      uint32_t left, uint32_t least,
                                      uint32_t most, lh_error *err)
{
    const lhi_partition *p = w->p;
    uint32_t after = p->n_chunks - at - 1;
    int64_t ns;
    if (after == 0) {
        w->layers[at] = left;
        if (!lhi_partition_allows(p, w->layers))
            return LH_OK;
        return time_partition(w->p, w->layers, *w->best_ns, w->best, w->best_ns,
                              &ns, err);
    }
    for (uint32_t k = 1; k + after <= left; k++) {
        uint32_t low = k < least ? k : least, high = k > most ? k : most;
        if (high > compute_max_chunk(p, low))
            continue;
        w->layers[at] = k;
        LHI_TRY(enumerate_partitions(w, at + 1, left - k, low, high, err));
    }
    return LH_OK;
}

lh_status lhi_partition_exact(lhi_partition *p, uint32_t *best,
                              int64_t *best_ns, lh_error *err)
{
    enumeration w = {.p = p, .best = best, .best_ns = best_ns};
    w.layers = calloc(p->n_chunks, sizeof *w.layers);
    if (!w.layers)
        return lhi_fail_nomem(err);
    lh_status status =
        enumerate_partitions(&w, 0, p->n_layers, p->n_layers, 1, err);
    free(w.layers);
    return status;
}

/* Sets chunks `a` and `b` to at_a and at_b layers and times the partition; a
 * faster one is copied to `best`. Then restores both chunks, unless the change
 * is an improvement and the descent takes the first one rather than the
 * steepest. */
static lh_status try_change(lhi_partition *p, uint32_t a, uint32_t b,
                            uint32_t at_a, uint32_t at_b, uint32_t *layers,
                            uint32_t *best, int64_t *best_ns, lh_error *err)
{
    uint32_t was_a = layers[a], was_b = layers[b];
    int64_t ns, before = *best_ns;
    layers[a] = at_a;
    layers[b] = at_b;
    if (lhi_partition_allows(p, layers))
        LHI_TRY(time_partition(p, layers, *best_ns, best, best_ns, &ns, err));
    if (*best_ns < before && !p->steepest)
        return LH_OK;
    layers[a] = was_a;
    layers[b] = was_b;
    return LH_OK;
}

/* Times every move of `step` layers between two chunks or, with `step` 0, every
 * exchange of two chunks. Takes each improvement at once; steepest descent only
 * records the best one. Stops once `most` partitions are timed. */
static lh_status try_moves(lhi_partition *p, uint32_t step, uint64_t most,
                           uint32_t *layers, uint32_t *best, int64_t *best_ns,
                           lh_error *err)
{
    for (uint32_t from = 0; from < p->n_chunks; from++)
        for (uint32_t to = 0; to < p->n_chunks && p->n_timed < most; to++) {
            uint32_t a = layers[from], b = layers[to];
            bool useful = step ? from != to && a > step : from < to && a != b;
            if (useful)
                LHI_TRY(try_change(p, from, to, step ? a - step : b,
                                   step ? b + step : a, layers, best, best_ns,
                                   err));
        }
    return LH_OK;
}

lh_status lhi_partition_climb(lhi_partition *p, uint64_t most, uint32_t *best,
                              int64_t *best_ns, lh_error *err)
{
    uint32_t *layers = calloc(p->n_chunks, sizeof *layers);
    if (!layers)
        return lhi_fail_nomem(err);
    lh_status status = LH_OK;
    uint64_t end = add_capped(p->n_timed, most);
    static const uint32_t steps[] = {1, 2, 0};
    for (int i = 0; i < 3 && status == LH_OK;) {
        int64_t before = *best_ns;
        memcpy(layers, best, p->n_chunks * sizeof *layers);
        status = try_moves(p, steps[i], end, layers, best, best_ns, err);
        i = *best_ns < before ? 0 : i + 1;
    }
    free(layers);
    return status;
}

/* --- Monte Carlo ---------------------------------------------------------- */

enum {
    UNGUIDED = 3, /* a third of the samples are not guided by features */
    PROPOSED =
        32, /* random partitions from which a guided sample is selected */
    N_FEATURES = 4
};

/* Sums over the timed samples, for the correlation of each feature with time.
 */
typedef struct feature_sums {
    double n, ms, ms_squared; /* of times, less `offset_ns` */
    int64_t offset_ns;
    double value[N_FEATURES], squared[N_FEATURES], product[N_FEATURES];
} feature_sums;

/* One sampled partition. */
typedef struct sample {
    int64_t ns;
    uint32_t number; /* in sampling order */
} sample;

/* Orders sampled partitions by time, then by sampling order. */
static int compare_samples(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Computes a partition's features: the largest chunk, the variation of chunk
 * sizes (sum of squares), the first and the last chunk, in layers. */
static void compute_features(const lhi_partition *p, const uint32_t *layers,
                             double *features)
{
    uint32_t largest = 0;
    double squares = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (layers[c] > largest)
            largest = layers[c];
        squares += (double)layers[c] * layers[c];
    }
    features[0] = largest;
    features[1] = squares;
    features[2] = layers[0];
    features[3] = layers[p->n_chunks - 1];
}

/* Adds one timed sample to the sums. */
static void add_to_sums(feature_sums *s, const lhi_partition *p,
                        const uint32_t *layers, int64_t ns)
{
    double features[N_FEATURES];
    compute_features(p, layers, features);
    if (s->n == 0)
        s->offset_ns = ns;
    const double ms = (double)(ns - s->offset_ns) / 1e6;
    s->n++;
    s->ms += ms;
    s->ms_squared += ms * ms;
    for (uint32_t i = 0; i < N_FEATURES; i++) {
        s->value[i] += features[i];
        s->squared[i] += features[i] * features[i];
        s->product[i] += features[i] * ms;
    }
}

/* Estimates how slow a partition is: the sum over its features of the deviation
 * from the mean, in standard deviations, times the feature's correlation with
 * time. */
static double estimate_slowness(const feature_sums *s, const lhi_partition *p,
                                const uint32_t *layers)
{
    double features[N_FEATURES], slowness = 0;
    compute_features(p, layers, features);
    for (uint32_t i = 0; i < N_FEATURES; i++) {
        const double variance =
            s->n * s->squared[i] - s->value[i] * s->value[i];
        if (variance > 0)
            slowness += (s->n * s->product[i] - s->value[i] * s->ms) *
                        (s->n * features[i] - s->value[i]) / variance;
    }
    return slowness;
}

/* Samples a partition: the even one, changed by up to n_chunks random moves of
 * one layer, so that partitions of every variation of chunk sizes are sampled.
 * Repeats until it is allowed; after 200 failures uses the even partition. */
static void sample_partition(const lhi_partition *p, lhi_random *random,
                             uint32_t *layers)
{
    const uint32_t n = p->n_chunks;
    for (uint32_t tries = 0; tries <= 200; tries++) {
        uint32_t moves = lhi_random_below(random, n) + 1;
        for (uint32_t c = 0; c < n; c++)
            layers[c] = p->n_layers / n + (c < p->n_layers % n);
        while (tries < 200 && moves-- > 0) {
            const uint32_t from = lhi_random_below(random, n);
            if (layers[from] == 1)
                continue;
            layers[from]--;
            layers[lhi_random_below(random, n)]++;
        }
        if (lhi_partition_allows(p, layers))
            return;
    }
}

/* Samples the partition of PROPOSED random ones that is the fastest by its
 * features. `scratch` has space for a partition. */
static void sample_guided_partition(const lhi_partition *p,
                                    const feature_sums *sums,
                                    lhi_random *random, uint32_t *scratch,
                                    uint32_t *layers)
{
    double least = 0;
    for (uint32_t i = 0; i < PROPOSED; i++) {
        sample_partition(p, random, scratch);
        const double slowness = estimate_slowness(sums, p, scratch);
        if (i == 0 || slowness < least) {
            least = slowness;
            memcpy(layers, scratch, p->n_chunks * sizeof *layers);
        }
    }
}

/* Times random partitions and stores them in `drawn`, one after another, after
 * which `drawn` has space for one more. Features guide all but the first third.
 * samples[]: their numbers and times; *best and *best_ns: the fastest partition
 * so far, with its time. */
static lh_status sample_partitions(lhi_partition *p,
                                   const lhi_partition_sampling *how,
                                   lhi_random *random, sample *samples,
                                   uint32_t *drawn, uint32_t *best,
                                   int64_t *best_ns, lh_error *err)
{
    feature_sums sums = {0};
    uint32_t *scratch = drawn + (size_t)how->samples * p->n_chunks;
    for (uint32_t i = 0; i < how->samples; i++) {
        uint32_t *layers = drawn + (size_t)i * p->n_chunks;
        if (i < how->samples / UNGUIDED || sums.n < 2)
            sample_partition(p, random, layers);
        else
            sample_guided_partition(p, &sums, random, scratch, layers);
        samples[i].number = i;
        LHI_TRY(time_partition(p, layers, INT64_MAX, best, best_ns,
                               &samples[i].ns, err));
        if (samples[i].ns < INT64_MAX)
            add_to_sums(&sums, p, layers, samples[i].ns);
    }
    return LH_OK;
}

lh_status lhi_partition_perturb(lhi_partition *p, uint32_t changes,
                                lhi_random *random, uint32_t *layers,
                                int64_t *ns, lh_error *err)
{
    for (uint32_t i = 0; i < changes && p->n_chunks > 1; i++) {
        uint32_t from = lhi_random_below(random, p->n_chunks);
        uint32_t to = lhi_random_below(random, p->n_chunks - 1);
        int64_t changed_ns = INT64_MAX;
        to += to >= from;
        layers[from]--;
        layers[to]++;
        if (lhi_partition_allows(p, layers)) {
            p->n_timed++;
            LHI_TRY(p->time(p->context, layers, INT64_MAX, &changed_ns, err));
        }
        if (changed_ns <= *ns && changed_ns < INT64_MAX) {
            *ns = changed_ns;
            continue;
        }
        layers[from]++;
        layers[to]--;
    }
    return LH_OK;
}

lh_status lhi_partition_sample(lhi_partition *p,
                               const lhi_partition_sampling *how,
                               uint32_t *best, int64_t *best_ns, lh_error *err)
{
    lhi_random random = {how->seed};
    sample *samples = calloc((size_t)how->samples + 1, sizeof *samples);
    uint32_t *drawn =
        calloc(((size_t)how->samples + 1) * p->n_chunks, sizeof *drawn);
    lh_status status = LH_OK;
    if (!samples || !drawn)
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = sample_partitions(p, how, &random, samples, drawn, best,
                                   best_ns, err);
    if (status == LH_OK)
        lhi_sort(samples, how->samples, sizeof *samples, compare_samples);
    for (uint32_t i = 0; i < how->keep && i < how->samples && status == LH_OK;
         i++) {
        uint32_t *layers = drawn + (size_t)samples[i].number * p->n_chunks;
        status = lhi_partition_perturb(p, how->changes, &random, layers,
                                       &samples[i].ns, err);
        if (status == LH_OK && samples[i].ns < *best_ns) {
            *best_ns = samples[i].ns;
            memcpy(best, layers, p->n_chunks * sizeof *best);
        }
    }
    free(samples);
    free(drawn);
    return status;
}
