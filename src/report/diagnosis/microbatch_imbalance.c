/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/microbatch_imbalance.h"

#include "report/diagnosis/typical_passes.h"

#include <math.h>

/* Thresholds for uneven microbatches. Equally long passes vary by one or two
 * per cent. A temporary disturbance on a rank affects different microbatches in
 * forward and backward passes, and no other rank. Among the published jobs
 * (docs/diagnose.md), two have a spread of 0.02; the job with uneven sequences
 * has a spread of 0.15 to 0.23 and a correlation of 0.99. */
#define MIN_SPREAD 0.05
#define MIN_CORRELATION 0.9

/* Sums of squares and products of two deviations from a mean. */
typedef struct pair_sums {
    double xx, yy, xy;
} pair_sums;

/* A worker's statistics, in one step and over all steps. */
typedef struct worker_statistics {
    double squares, longest;
    uint32_t n;
    pair_sums ways;   /* all steps: forward and backward */
    pair_sums stages; /* all steps: this stage and the replica's mean */
} worker_statistics;

/* A step's pass times for chunk c, replica r, microbatch m at (r * n_chunks +
 * c) * n_microbatches + m; later their relative excess over the row's mean. */
typedef struct pass_times {
    double *forward, *backward, *both;
    uint32_t *worker; /* at r * n_chunks + c */
} pass_times;

/* Fills the tables of a step's pass times in ns by replica, chunk and
 * microbatch: forward, backward (D and W together) and both; allocates them. */
static lh_status sum_pass_times(const lhi_recorded_step *step, lhi_arena *arena,
                                pass_times *t, lh_error *err)
{
    const lhi_op_graph *g = step->graph;
    size_t rows = (size_t)g->n_replicas * g->n_chunks;
    t->forward = LHI_NEW(arena, double, rows * g->n_microbatches);
    t->backward = LHI_NEW(arena, double, rows * g->n_microbatches);
    t->both = LHI_NEW(arena, double, rows * g->n_microbatches);
    t->worker = LHI_NEW(arena, uint32_t, rows);
    if (!t->forward || !t->backward || !t->both || !t->worker)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < g->n_ops; i++) {
        if (!lhi_op_is_pass((lhi_op_type)g->op[i]))
            continue;
        size_t row =
            (size_t)(g->worker[i] / g->n_stages) * g->n_chunks + g->chunk[i];
        size_t at = row * g->n_microbatches + g->microbatch[i];
        (g->op[i] == LHI_OP_FORWARD ? t->forward : t->backward)[at] +=
            (double)step->duration_ns[i];
        t->both[at] += (double)step->duration_ns[i];
        t->worker[row] = g->worker[i];
    }
    return LH_OK;
}

/* Replaces n values by their relative excess over the mean (value / mean - 1);
 * by 0 if all are 0. */
static void subtract_mean(double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i];
    for (uint32_t i = 0; i < n; i++)
        values[i] = sum > 0 ? values[i] * n / sum - 1 : 0;
}

/* Adds one pair of deviations x, y to the sums of squares and products. */
static void add_pair(pair_sums *to, double x, double y)
{
    to->xx += x * x;
    to->yy += y * y;
    to->xy += x * y;
}

/* Returns Pearson's correlation coefficient; 0 if either variance is 0. */
static double compute_correlation(const pair_sums *of)
{
    double squares = of->xx * of->yy;
    return squares > 0 ? of->xy / sqrt(squares) : 0;
}

/* Adds one replica's deviations of pass times from their means to the
 * statistics of its workers (stages). Its table rows, one per chunk, begin at
 * `first`. */
static void add_replica(worker_statistics *workers, const lhi_op_graph *g,
                        const pass_times *t, size_t first)
{
    uint32_t C = g->n_chunks, M = g->n_microbatches;
    for (size_t row = first; row < first + C; row++) {
        subtract_mean(&t->forward[row * M], M);
        subtract_mean(&t->backward[row * M], M);
        subtract_mean(&t->both[row * M], M);
    }
    for (uint32_t m = 0; m < M; m++) {
        double usual = 0;
        for (size_t row = first; row < first + C; row++)
            usual += t->both[row * M + m] / C;
        for (size_t row = first; row < first + C; row++) {
            worker_statistics *w = &workers[t->worker[row]];
            size_t at = row * M + m;
            add_pair(&w->ways, t->forward[at], t->backward[at]);
            add_pair(&w->stages, t->both[at], usual);
            w->squares += t->both[at] * t->both[at];
            w->longest = fmax(w->longest, 1 + t->both[at]);
            w->n++;
        }
    }
}

/* Computes a step's imbalance of microbatches into *out: the medians over
 * workers of the spread of microbatch times and of the longest one's excess.
 * `room`: scratch, one value per worker. */
static lh_status analyse_step(const lhi_recorded_step *step, lhi_arena *arena,
                              worker_statistics *workers, double *room,
                              lhi_imbalance_step *out, lh_error *err)
{
    const lhi_op_graph *g = step->graph;
    uint32_t n = g->n_stages * g->n_replicas;
    lhi_mark mark = lhi_arena_mark(arena);
    pass_times t;
    LHI_TRY(sum_pass_times(step, arena, &t, err));
    for (uint32_t w = 0; w < n; w++) {
        workers[w].squares = workers[w].longest = 0;
        workers[w].n = 0;
    }
    for (uint32_t r = 0; r < g->n_replicas; r++)
        add_replica(workers, g, &t, (size_t)r * g->n_chunks);
    for (uint32_t w = 0; w < n; w++)
        room[w] = workers[w].n ? sqrt(workers[w].squares / workers[w].n) : 0;
    out->spread = lhi_lower_median(room, n);
    for (uint32_t w = 0; w < n; w++)
        room[w] = workers[w].longest;
    out->longest = lhi_lower_median(room, n);
    lhi_arena_rewind(arena, mark);
    return LH_OK;
}

lh_status lhi_imbalance_find(const lh_recording *recording, lhi_arena *arena,
                             lhi_imbalance_step **out, lh_error *err)
{
    uint32_t n = lhi_recording_n_workers(recording);
    lhi_imbalance_step *steps =
        LHI_NEW(arena, lhi_imbalance_step, recording->n_steps);
    worker_statistics *workers = LHI_NEW(arena, worker_statistics, n);
    double *room = LHI_NEW(arena, double, n);
    if (!steps || !workers || !room)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < recording->n_steps; i++)
        LHI_TRY(analyse_step(&recording->steps[i], arena, workers, room,
                             &steps[i], err));
    for (uint32_t w = 0; w < n; w++)
        room[w] = fmin(compute_correlation(&workers[w].ways),
                       compute_correlation(&workers[w].stages));
    bool is_correlated = lhi_lower_median(room, n) >= MIN_CORRELATION;
    for (uint32_t i = 0; i < recording->n_steps; i++)
        steps[i].is_uneven = is_correlated && steps[i].spread >= MIN_SPREAD;
    *out = steps;
    return LH_OK;
}
