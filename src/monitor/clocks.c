/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/clocks.h"

#include <math.h>

/* Iteration counts: before outliers are detected; for offset and drift; for the
 * scatter. */
enum { LEARNS = 8, MEMORY = 40, SCATTER = 64 };
static const double odd_errors = 6;
static const double finest_ns = 200;

static double square(double x)
{
    return x * x;
}

double lhi_clocks_error(const lhi_clocks *c)
{
    double n = fmin((double)c->seen, MEMORY);
    /* A fitted line's standard error at its end. */
    return c->seen ? sqrt(4 * (c->spread + square(finest_ns)) / n) : 0;
}

static void begin_clocks(lhi_clocks *c, uint64_t step, double half, double both)
{
    *c = (lhi_clocks){.offset = half, .around = both, .step = step, .seen = 1};
}

/* Updates the least-squares line through all readings while there are few
 * (Brookner, Tracking and Kalman Filtering Made Easy, section 1.2.10); later
 * with fading memory. */
static void follow(lhi_clocks *c, double off, double off_both, double steps)
{
    double n = fmin((double)++c->seen, MEMORY);
    double gain = 2 * (2 * n - 1) / (n * (n + 1));
    c->offset += gain * off;
    c->drift += 6 / (n * (n + 1)) * off / steps;
    c->around += off_both / n;
    double share = 1 / fmin((double)c->seen, SCATTER);
    c->spread += share * (square(off) - c->spread);
}

double lhi_clocks_add(lhi_clocks *c, uint64_t step, double there, double back)
{
    double half = (there - back) / 2, both = there + back;
    if (c->seen == 0) {
        begin_clocks(c, step, half, both);
        return c->offset;
    }
    double steps = (double)(step - c->step);
    c->step = step;
    c->offset += c->drift * steps;
    double off = half - c->hidden - c->offset, off_both = both - c->around;
    double odd = odd_errors * sqrt(c->spread + square(finest_ns));
    if (c->seen < LEARNS || fabs(off) < odd) {
        c->odd = 0;
        c->odd_sum = 0;
        /* Both directions may have become equally slower. */
        follow(c, off, off_both, steps);
        return c->offset;
    }
    /* A clock step changes only the difference. A slower direction changes the
     * sum as well, by twice as much. */
    bool is_set = fabs(off_both) < fabs(off);
    c->odd++;
    c->odd_sum += off;
    if (c->odd < 2)
        return is_set ? c->offset + off : c->offset;
    if (is_set)
        c->offset += c->odd_sum / c->odd;
    else {
        c->hidden += c->odd_sum / c->odd;
        c->around = both;
    }
    c->odd = 0;
    c->odd_sum = 0;
    return c->offset;
}
