/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/drift_detector.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Iterations over which the scatter is averaged. */
static const double scatter_iterations = 64;
/* Thresholds in standard errors: of a change, of each iteration in it, and
 * between these iterations. */
static const double change_errors = 6, each_errors = 2.5, agree_errors = 4;
/* Resolution of clocks and times, relative and in ns. */
static const double relative_resolution = 1e-3, resolution_ns = 200;

/* Reorders the n values so that the k-th smallest is at index k and no larger
 * one precedes it: Hoare's find, CACM 4(7), 1961, in Wirth's form. A full sort
 * took most of the monitor's time. */
static void select_smallest(double *values, ptrdiff_t n, ptrdiff_t k)
{
    ptrdiff_t from = 0, to = n - 1;
    while (from < to) {
        const double by = values[k];
        ptrdiff_t i = from, j = to;
        while (i <= j) {
            while (values[i] < by)
                i++;
            while (values[j] > by)
                j--;
            if (i <= j) {
                const double other = values[i];
                values[i++] = values[j];
                values[j--] = other;
            }
        }
        from = j < k ? i : from;
        to = k < i ? j : to;
    }
}

/* Exchanges *a and *b. */
static void swap(double *a, double *b)
{
    const double c = *a;
    *a = *b;
    *b = c;
}

/* Partially sorts the values: moves the `cut` smallest to the array's front and
 * the `cut` largest to its end. */
static void move_extremes(double *values, size_t n, size_t cut)
{
    if (cut > 3) {
        select_smallest(values, (ptrdiff_t)n, (ptrdiff_t)cut);
        select_smallest(values + cut, (ptrdiff_t)(n - cut),
                        (ptrdiff_t)(n - 2 * cut) - 1);
        return;
    }
    for (size_t from = 0, to = n - 1; from < cut; from++, to--) {
        size_t least = from, most = from;
        for (size_t i = from + 1; i <= to; i++) {
            least = values[i] < values[least] ? i : least;
            most = values[i] > values[most] ? i : most;
        }
        swap(&values[from], &values[least]);
        swap(&values[to], &values[most == from ? least : most]);
    }
}

lhi_drift_reading lhi_drift_reading_compute(double *samples, size_t n)
{
    lhi_drift_reading r = {.n = n};
    if (n == 0)
        return r;
    const size_t cut = n / 10, left = n - 2 * cut;
    move_extremes(samples, n, cut);
    double sum = 0, low = samples[cut], high = low;
    for (size_t i = cut; i < cut + left; i++) {
        sum += samples[i];
        low = samples[i] < low ? samples[i] : low;
        high = samples[i] > high ? samples[i] : high;
    }
    r.mean = sum / (double)left;
    if (n < 2)
        return r;
    /* Winsorized variance: each cut value counts as its nearest kept one. */
    const double ends = (double)cut,
                 mean = (sum + ends * (low + high)) / (double)n;
    double squares =
        ends * ((low - mean) * (low - mean) + (high - mean) * (high - mean));
    for (size_t i = cut; i < cut + left; i++)
        squares += (samples[i] - mean) * (samples[i] - mean);
    double kept = (double)left / (double)n;
    r.variance = squares / (double)(n - 1) / (kept * kept) / (double)n;
    return r;
}

/* Returns x squared. */
static double square(double x)
{
    return x * x;
}

/* Returns the estimated variance, in ns squared, of the mean over `w`
 * iterations with `n` samples (messages or passes) each. */
static double estimate_variance(const lhi_drift_detector *g, double n, double w)
{
    /* A scatter from few samples can be far off, and apparent common variation
     * can be chance: both are widened. */
    double sample =
        g->sample_scatter / n * square(1 + 4 / (g->degrees_of_freedom + 1));
    double seen = fmax(g->n_iterations, 1); /* 0 if the level is 0 */
    double chance = 3 * sqrt(2 / seen) * g->sample_scatter / n;
    double common = fmax(g->common_scatter - chance, 0) * square(1 + 8 / seen);
    return ((sample + common + square(relative_resolution)) * square(g->level) +
            square(resolution_ns)) /
           w;
}

double lhi_drift_detector_error(const lhi_drift_detector *g)
{
    double n = g->n_last ? (double)g->window[0].n : 1;
    return g->weight > 0 ? sqrt(estimate_variance(g, n, g->weight)) : 0;
}

/* Updates the estimated variances of single samples and of iteration means from
 * reading `r` (mean of one iteration), which deviates from the current level by
 * `off` ns. */
static void learn_scatter(lhi_drift_detector *g, lhi_drift_reading r,
                          double off)
{
    double n = (double)r.n;
    g->n_iterations = fmin(g->n_iterations + 1, scatter_iterations);
    if (r.n > 1) {
        double degrees = n - 1;
        g->degrees_of_freedom =
            fmin(g->degrees_of_freedom + degrees, scatter_iterations * degrees);
        g->sample_scatter +=
            (r.variance * n / square(g->level) - g->sample_scatter) * degrees /
            g->degrees_of_freedom;
    }
    /* Variance of an iteration's mean around the previous level, beyond that of
     * its samples. */
    double mean = square(off / g->level) * (g->weight - 1) / g->weight;
    g->common_scatter +=
        (mean - g->sample_scatter / n - g->common_scatter) / g->n_iterations;
    if (!g->has_left)
        g->normal_scatter = g->sample_scatter;
}

/* Averages a reading (mean of one iteration) into the current level and, while
 * the detector reports no change, into the normal level. */
static void average_reading(lhi_drift_detector *g, lhi_drift_reading r)
{
    double off = r.mean - g->level;
    g->weight = fmin(g->weight + 1, LHI_DRIFT_AVERAGING);
    g->level += off / g->weight;
    if (!g->has_left)
        g->normal = g->level;
    if (g->level > 0)
        learn_scatter(g, r, off);
}

/* Adds a reading (mean of one iteration) to the newest readings' window, in
 * which changes are searched. If the window is full, averages its oldest
 * reading into the level. */
static void add_to_window(lhi_drift_detector *g, lhi_drift_reading r)
{
    if (g->n_last == LHI_DRIFT_WINDOW)
        average_reading(g, g->window[LHI_DRIFT_WINDOW - 1]);
    else
        g->n_last++;
    for (uint32_t i = LHI_DRIFT_WINDOW - 1; i > 0; i--)
        g->window[i] = g->window[i - 1];
    g->window[0] = r;
}

/* Checks whether the newest `w` readings (iteration means) all deviate
 * significantly from the current level in one direction, and their average by
 * at least `least` ns. *mean is their average. */
static bool has_deviated(const lhi_drift_detector *g, uint32_t w, double least,
                         double *mean)
{
    double samples = 0, sum = 0;
    bool above = g->window[0].mean > g->level;
    for (uint32_t i = 0; i < w; i++) {
        double off = g->window[i].mean - g->level, n = (double)g->window[i].n;
        if ((off > 0) != above ||
            square(off) < square(each_errors) * estimate_variance(g, n, 1))
            return false;
        sum += g->window[i].mean;
        samples += n;
    }
    *mean = sum / w;
    double n = samples / w, off = *mean - g->level;
    return fabs(off) >= least &&
           square(off) >=
               square(change_errors) * (estimate_variance(g, n, w) +
                                        estimate_variance(g, n, g->weight));
}

/* Checks whether the newest `w` readings (iteration means) agree with their
 * average `mean` within their noise, so that they form a new level. */
static bool have_common_level(const lhi_drift_detector *g, uint32_t w,
                              double mean)
{
    double scale = g->level > 0 ? fmax(mean / g->level, 1) : 1;
    for (uint32_t i = 0; i < w; i++) {
        const lhi_drift_reading *r = &g->window[i];
        double noise = fmax(
            estimate_variance(g, (double)r->n, 1) * square(scale), r->variance);
        if (square(r->mean - mean) > square(agree_errors) * noise)
            return false;
    }
    return true;
}

/* Returns how many of the newest readings (iteration means) have left the
 * current level, by at least `least` ns, and share a new one; 0: none. A full
 * window that deviates counts even if its readings differ. *mean is their
 * average. */
static uint32_t find_change(const lhi_drift_detector *g, double least,
                            double *mean)
{
    for (uint32_t w = g->n_last; w > 1; w--)
        if (has_deviated(g, w, least, mean) && have_common_level(g, w, *mean))
            return w;
    bool wild = g->n_last == LHI_DRIFT_WINDOW &&
                has_deviated(g, LHI_DRIFT_WINDOW, least, mean);
    return wild ? LHI_DRIFT_WINDOW : 0;
}

/* Sets the current level to `mean`, the average of the newest `w` readings
 * (iteration means), estimates its scatter from them, and empties the window.
 * */
static void move_level(lhi_drift_detector *g, uint32_t w, double mean)
{
    double scatter = 0;
    for (uint32_t i = 0; i < w; i++)
        scatter += g->window[i].variance * (double)g->window[i].n / w;
    if (mean > 0)
        g->sample_scatter = fmax(g->normal_scatter, scatter / square(mean));
    g->level = mean;
    g->weight = w;
    g->n_last = 0;
}

/* Sets the current level back to the normal level, after a change has ended;
 * returns LHI_DRIFT_ENDS. */
static lhi_drift_change reset_level(lhi_drift_detector *g)
{
    g->level = g->normal;
    g->sample_scatter = g->normal_scatter;
    g->weight = LHI_DRIFT_AVERAGING / 2;
    g->has_left = false;
    return LHI_DRIFT_ENDS;
}

void lhi_drift_detector_reset(lhi_drift_detector *g)
{
    reset_level(g);
    g->n_last = 0;
}

/* Checks whether the newest readings (iteration means) agree with the normal
 * level again, so that a change has ended; ignores deviations below `least` ns.
 * */
static bool has_returned(const lhi_drift_detector *g, double least)
{
    double error = lhi_drift_detector_error(g),
           off = fabs(g->level - g->normal);
    return g->has_left && (off < least / 2 || off < 3 * error);
}

lhi_drift_change lhi_drift_detector_add(lhi_drift_detector *g,
                                        lhi_drift_reading r, bool learns,
                                        double least, uint32_t *ago)
{
    *ago = 0;
    g->n_samples += r.n;
    if (learns || g->weight < 2) {
        average_reading(g, r);
        return LHI_DRIFT_UNCHANGED;
    }
    add_to_window(g, r);
    double mean;
    uint32_t w = find_change(g, least, &mean);
    if (w == 0) {
        g->report_delay -= g->report_delay > 0;
        bool fades =
            g->weight >= LHI_DRIFT_AVERAGING / 2 && has_returned(g, least);
        return fades ? reset_level(g) : LHI_DRIFT_UNCHANGED;
    }
    *ago = w - 1;
    move_level(g, w, mean);
    bool tells = g->report_delay == 0;
    g->report_delay = LHI_DRIFT_WINDOW;
    if (!g->has_left) {
        g->has_left = true;
        return LHI_DRIFT_BEGINS;
    }
    if (has_returned(g, least))
        return reset_level(g);
    return tells ? LHI_DRIFT_CHANGES : LHI_DRIFT_UNCHANGED;
}
