/* SPDX-License-Identifier: Apache-2.0 */
/* Flows on the busiest of several paths, each flow hashed to a path. */
#include "model/link_settings.h"

#include <math.h>

/* A Poisson variable with parameter x, truncated to at most `most`. */
typedef struct truncated_poisson {
    double log_sum;                       /* log of the sum over x^j / j! */
    double mean, variance, third, fourth; /* central moments */
} truncated_poisson;

/* Sums the Poisson weights w(j) = x^j / j! for j = 0..`most` into *sum, and j
 * w(j) into *first. Both are scaled so that the largest weight is 1. */
static void add_terms(double x, double most, double *sum, double *first)
{
    double at = fmin(most, floor(x)), up = 1, down = 1;

    *sum = 1;
    *first = at;
    for (double j = at; j >= 1 && down > 1e-18; j--) {
        down *= j / x;
        *sum += down;
        *first += down * (j - 1);
    }
    for (double j = at + 1; j <= most && up > 1e-18; j++) {
        up *= x / j;
        *sum += up;
        *first += up * j;
    }
}

/* Computes a Poisson variable's moments with parameter x, truncated to at most
 * `most`. */
static truncated_poisson compute_moments(double x, double most)
{
    double at = fmin(most, floor(x)), sum, first;
    truncated_poisson t;

    add_terms(x, most, &sum, &first);
    t = (truncated_poisson){.log_sum = log(sum) + at * log(x) - lgamma(at + 1),
                            .mean = first / sum};
    double weight = 1 / sum, w = weight;
    for (double j = at; j >= 0 && w > 1e-18 * weight; w *= j / x, j--) {
        double d = j - t.mean;
        t.variance += w * d * d;
        t.third += w * d * d * d;
        t.fourth += w * d * d * d * d;
    }
    w = weight * x / (at + 1);
    for (double j = at + 1; j <= most && w > 1e-18 * weight; j++) {
        double d = j - t.mean;
        t.variance += w * d * d;
        t.third += w * d * d * d;
        t.fourth += w * d * d * d * d;
        w *= x / (j + 1);
    }
    return t;
}

/* Finds the parameter at which a truncated Poisson variable has the mean `mean`
 * < most, by bracketed Newton steps in log x (the slope is the variance). An
 * error does not change the caller's result to first order. *t receives the
 * variable. */
static double find_tilt(double mean, double most, truncated_poisson *t)
{
    double low = mean, high = INFINITY, x = mean * (1 + 2 / (most - mean));

    for (int step = 0; step < 100; step++) {
        *t = compute_moments(x, most);
        if (fabs(t->mean - mean) <= 1e-7 * mean)
            return x;
        if (t->mean < mean)
            low = x;
        else
            high = x;
        x *= exp(fmax(-2, fmin(2, (mean - t->mean) / t->variance)));
        if (!(x > low && x < high))
            x = high < INFINITY ? (low + high) / 2 : 4 * low;
    }
    *t = compute_moments(x, most);
    return x;
}

/* Computes the probability that no path has more than `most` of the `flows`
 * flows, hashed onto `paths` paths; `most` is below `flows`. It is
 * flows!/paths^flows times the coefficient of x^flows in (sum of x^j/j!)^paths.
 * The coefficient is the density of a sum of truncated variables, approximated
 * at its mean with the first correction (Daniels, Saddlepoint Approximations in
 * Statistics, Ann. Math. Stat. 25, 1954). */
static double compute_max_probability(double most, double flows, double paths)
{
    const double pi = 3.14159265358979323846;
    double whole = lgamma(flows + 1) - flows * log(paths);

    if (most * paths < flows)
        return 0;
    if (most * paths - flows < 0.5)
        return exp(whole - paths * lgamma(most + 1));
    truncated_poisson t;
    double x = find_tilt(flows / paths, most, &t);
    double skew2 = t.third * t.third / pow(t.variance, 3);
    double excess = t.fourth / (t.variance * t.variance) - 3;
    double correction = 1 + (excess / 8 - 5 * skew2 / 24) / paths;
    double density = -0.5 * log(2 * pi * paths * t.variance) + log(correction);

    return fmin(1, exp(whole + paths * t.log_sum - flows * log(x) + density));
}

/* Returns the expected maximum of n standard normal variables. */
static double compute_max_normal(double n)
{
    const double step = 1.0 / 8;
    double sum = 0;

    for (double z = -10; z < 10; z += step) {
        double above = 0.5 * erfc((z + step / 2) / sqrt(2));
        double all = above < 1 ? exp(n * log1p(-above)) : 0;

        sum += z + step / 2 < 0 ? -all : 1 - all;
    }
    return sum * step;
}

double lhi_ecmp_busiest_path_flows(double flows, double paths)
{
    double mean, from, expected = 0;

    flows = floor(flows + 0.5);
    paths = floor(paths + 0.5);
    if (!(flows >= 1 && paths >= 1))
        return 0;
    mean = flows / paths;
    if (paths < 2)
        return flows;
    /* Deviations of the counts are approximately normal, with the deviation
     * from their own mean removed. */
    if (mean > 64)
        return mean + sqrt(mean) * compute_max_normal(paths);
    /* The sum over m of the probabilities that some path has more than m flows.
     * They are 1 for small m and 0 from some m on; starts where they change and
     * proceeds in both directions. */
    from = fmin(flows - 1, ceil(mean + sqrt(2 * mean * log(paths))));
    for (double most = from; most < flows; most++) {
        double more = 1 - compute_max_probability(most, flows, paths);

        expected += fmax(0, more);
        if (more < 1e-4)
            break;
    }
    for (double most = from - 1; most >= 0; most--) {
        double none = compute_max_probability(most, flows, paths);

        if (none < 1e-4)
            return expected + most + 1;
        expected += 1 - none;
    }
    return expected;
}
