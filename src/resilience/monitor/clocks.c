/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/clocks.h"

#include <math.h>

/* Iteration counts: before outliers are detected; for offset and drift; for the
 * scatter. */
enum { WARM_UP = 8, MAX_AVERAGED = 40, MAX_SCATTER = 64 };
/* Standard errors beyond which a difference is an outlier. */
static const double outlier_errors = 6;
/* Clock resolution, added to the scatter. */
static const double resolution_ns = 200;

/* Returns x squared. */
static double square(double x)
{
    return x * x;
}

double lhi_clock_offset_error(const lhi_clock_offset *c)
{
    double n = fmin((double)c->n_iterations, MAX_AVERAGED);
    /* A fitted line's standard error at its end. */
    return c->n_iterations ? sqrt(4 * (c->variance + square(resolution_ns)) / n)
                           : 0;
}

/* Starts the estimate of two clocks' offset at step `step`, in ns. `half`: half
 * the difference of the excess delays (measured minus expected) of the two
 * directions, the first offset; `both`: their sum. */
static void begin_clocks(lhi_clock_offset *c, uint64_t step, double half,
                         double both)
{
    *c = (lhi_clock_offset){
        .offset = half, .round_trip = both, .step = step, .n_iterations = 1};
}

/* Updates the estimate's offset, drift, round trip and variance by a
 * least-squares line through all readings; once there are many, older ones fade
 * (Brookner, Tracking and Kalman Filtering Made Easy, section 1.2.10). `off`,
 * `off_both`: deviations of offset and round trip from the line, in ns;
 * `steps`: since the last reading. */
static void update_line(lhi_clock_offset *c, double off, double off_both,
                        double steps)
{
    double n = fmin((double)++c->n_iterations, MAX_AVERAGED);
    double gain = 2 * (2 * n - 1) / (n * (n + 1));
    c->offset += gain * off;
    c->drift += 6 / (n * (n + 1)) * off / steps;
    c->round_trip += off_both / n;
    double share = 1 / fmin((double)c->n_iterations, MAX_SCATTER);
    c->variance += share * (square(off) - c->variance);
}

double lhi_clock_offset_add(lhi_clock_offset *c, uint64_t step, double there,
                            double back)
{
    double half = (there - back) / 2, both = there + back;
    if (c->n_iterations == 0) {
        begin_clocks(c, step, half, both);
        return c->offset;
    }
    double steps = (double)(step - c->step);
    c->step = step;
    c->offset += c->drift * steps;
    double off = half - c->asymmetry - c->offset,
           off_both = both - c->round_trip;
    double odd = outlier_errors * sqrt(c->variance + square(resolution_ns));
    if (c->n_iterations < WARM_UP || fabs(off) < odd) {
        c->n_outliers = 0;
        c->outlier_sum = 0;
        /* Both directions may have become equally slower. */
        update_line(c, off, off_both, steps);
        return c->offset;
    }
    /* A clock step changes only the difference. A slower direction changes the
     * sum as well, by twice as much. */
    bool is_set = fabs(off_both) < fabs(off);
    c->n_outliers++;
    c->outlier_sum += off;
    if (c->n_outliers < 2)
        return is_set ? c->offset + off : c->offset;
    if (is_set)
        c->offset += c->outlier_sum / c->n_outliers;
    else {
        c->asymmetry += c->outlier_sum / c->n_outliers;
        c->round_trip = both;
    }
    c->n_outliers = 0;
    c->outlier_sum = 0;
    return c->offset;
}
