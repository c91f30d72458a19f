/* SPDX-License-Identifier: Apache-2.0 */
/* Effects of the link settings between sites on a sender's rate and on the time
 * of a message. */
#include "model/paths.h"

#include "base/exact_equality.h"
#include "base/fail.h"
#include "model/link_settings.h"

#include <math.h>

enum { MAX_FEC_BLOCK = 1 << 20 }; /* packets per erasure-code block */

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

/* Computes the moments of a Poisson variable with parameter x, truncated to at
 * most `most`. */
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
 * flows, hashed onto `paths` paths: flows!/paths^flows times the coefficient of
 * x^flows in (sum of x^j/j!)^paths. The coefficient is the density of a sum of
 * truncated variables, approximated at its mean with the first correction
 * (Daniels, Saddlepoint Approximations in Statistics, Ann. Math. Stat. 25,
 * 1954). */
static double compute_max_probability(double most, double flows, double paths)
{
    const double pi = 3.14159265358979323846;
    double whole = lgamma(flows + 1) - flows * log(paths);

    if (most >= flows)
        return 1;
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

double lhi_fec_residual(uint32_t data, uint32_t parity, double loss)
{
    double n = (double)data + parity, first = (double)parity + 1;
    double left = 0;

    if (!data || !(loss > 0))
        return 0;
    if (!(loss < 1))
        return 1;
    /* Starts at the largest binomial term, which does not underflow. */
    double at = fmax(first, fmin(n, floor(n * loss)));
    double largest = exp(lgamma(n + 1) - lgamma(at + 1) - lgamma(n - at + 1) +
                         at * log(loss) + (n - at) * log1p(-loss));
    double term = largest;
    for (double j = at; j <= n && term > 1e-18 * largest; j++) {
        left += term * j / n;
        term *= (n - j) / (j + 1) * loss / (1 - loss);
    }
    term = largest;
    for (double j = at; j > first && term > 1e-18 * largest; j--) {
        term *= j / (n - j + 1) * (1 - loss) / loss;
        left += term * (j - 1) / n;
    }
    return fmin(left, loss);
}

double lhi_congestion_share(double bytes_per_s, double latency_ns,
                            double queue_bytes, double flows)
{
    double product = bytes_per_s * 2 * latency_ns / 1e9;
    double b = product > 0 ? queue_bytes * sqrt(flows) / product : 1;

    if (!(b < 1))
        return 1;
    if (!(b > 0))
        b = 0;
    return ((1 - b) * (3 + b) / 8 + b + b * b / 2) /
           ((1 - b) / 2 + b + b * b / 2);
}

bool lh_link_setting_is_default(const lh_link_setting *s)
{
    return s->balancing == LH_BALANCING_ANY &&
           s->congestion == LH_CONGESTION_ANY &&
           s->recovery == LH_RECOVERY_ANY && !s->queue_pairs && !s->paths &&
           !s->fec_data && !s->fec_parity && !(s->window_bytes > 0) &&
           !(s->queue_bytes > 0) && !s->channels;
}

uint32_t lh_nccl_channels(double interface_bytes_per_s)
{
    const double channel_bytes_per_s = 14e9; /* NCCL_P2P_PER_CHANNEL_NET_BW */
    double channels = ceil(interface_bytes_per_s / channel_bytes_per_s - 1e-9);

    return !(channels >= 1) ? 2 : channels < 64 ? (uint32_t)channels : 64;
}

double lh_nccl_window_bytes(const lh_link_setting *s)
{
    double buffer =
        s->buffer_bytes > 0 ? s->buffer_bytes : LH_NCCL_BUFFER_BYTES;
    double window =
        s->tcp_window_bytes > 0 ? s->tcp_window_bytes : LH_TCP_WINDOW_BYTES;

    if (!s->channels)
        return INFINITY;
    if (s->sockets)
        buffer = fmin(buffer, s->sockets * window);
    return s->channels * buffer;
}

/* Checks the load and the settings of a link. LH_EINVAL: a value is out of
 * range. */
static lh_status check_inputs(const lh_link_load *use, const lh_link_setting *s,
                              lh_error *err)
{
    if (!(use->line_bytes_per_s > 0 && use->latency_ns >= 0 &&
          use->return_ns >= 0 && use->loss >= 0 && use->loss < 1 &&
          use->oversubscription >= 1 && use->senders >= 1 &&
          use->interface_bytes_per_s >= 0 && use->message_bytes >= 0))
        return lhi_fail(err, LH_EINVAL,
                        "a link's use makes no sense: a rate above 0, a loss "
                        "from 0 to below 1, an oversubscription and a number "
                        "of senders of at least 1 are needed");
    if (!(s->window_bytes >= 0 && s->queue_bytes >= 0 && s->buffer_bytes >= 0 &&
          s->tcp_window_bytes >= 0) ||
        (s->fec_parity && !s->fec_data) || s->fec_data > MAX_FEC_BLOCK ||
        s->fec_parity > MAX_FEC_BLOCK)
        return lhi_fail(err, LH_EINVAL,
                        "a link's setting makes no sense: a window, a queue "
                        "or a block of a code is out of range");
    return LH_OK;
}

/* Returns half a link's round trip, in ns; the one-way latency if the return
 * latency is unknown. */
static double get_half_round_trip_ns(const lh_link_load *use)
{
    return use->return_ns > 0 ? (use->latency_ns + use->return_ns) / 2
                              : use->latency_ns;
}

/* Returns lhi_ecmp_busiest_path_flows() for `flows` and `paths` from the cache;
 * computes and stores it if it is missing. */
static double find_busiest_cached(lhi_ecmp_cache *known, double flows,
                                  double paths)
{
    double busiest;

    for (uint32_t i = 0; i < LHI_ECMP_CACHE_SIZE; i++)
        if (lhi_equals_exactly(known->last[i].flows, flows) &&
            lhi_equals_exactly(known->last[i].paths, paths))
            return known->last[i].busiest;
    busiest = lhi_ecmp_busiest_path_flows(flows, paths);
    known->last[known->next].flows = flows;
    known->last[known->next].paths = paths;
    known->last[known->next].busiest = busiest;
    known->next = (known->next + 1) % LHI_ECMP_CACHE_SIZE;
    known->asked++;
    return busiest;
}

/* Computes a sender's rate on a link: its share of the line, limited by load
 * balancing over its queue_pairs, window, congestion control and interface.
 * Stores the rate, and which of these limits it, in *e. `known`: cache of ECMP
 * results. */
static void fill_wire(const lh_link_load *use, const lh_link_setting *s,
                      double queue_pairs, lhi_ecmp_cache *known,
                      lh_link_effect *e)
{
    double paths = s->paths ? s->paths : 1, flows = use->senders * queue_pairs;
    double window = s->window_bytes, room;
    double own =
        use->interface_bytes_per_s > 0 ? use->interface_bytes_per_s : INFINITY;

    e->share_bytes_per_s =
        use->line_bytes_per_s / (use->oversubscription * use->senders);
    e->busiest_flows = s->balancing == LH_BALANCING_ECMP
                           ? find_busiest_cached(known, flows, paths)
                           : flows / paths;
    e->balance_share = flows / paths / e->busiest_flows;
    if (!(window > 0) && s->balancing == LH_BALANCING_SPRAY)
        window = LH_WINDOW_BYTES;
    window = fmin(window > 0 ? queue_pairs * window : INFINITY,
                  lh_nccl_window_bytes(s));
    e->window_bytes_per_s =
        get_half_round_trip_ns(use) > 0
            ? window * 1e9 / (2 * get_half_round_trip_ns(use))
            : INFINITY;
    room = e->share_bytes_per_s * e->balance_share;
    e->congestion_share = 1;
    if (s->congestion == LH_CONGESTION_ON &&
        room < fmin(own, e->window_bytes_per_s))
        e->congestion_share = lhi_congestion_share(
            use->line_bytes_per_s / paths, get_half_round_trip_ns(use),
            s->queue_bytes > 0 ? s->queue_bytes : LH_QUEUE_BYTES,
            fmax(1, flows / paths));
    room *= e->congestion_share;
    e->limit = LH_LIMIT_SHARE;
    e->wire_bytes_per_s = room;
    if (own < e->wire_bytes_per_s) {
        e->limit = LH_LIMIT_INTERFACE;
        e->wire_bytes_per_s = own;
    }
    if (e->window_bytes_per_s < e->wire_bytes_per_s) {
        e->limit = LH_LIMIT_WINDOW;
        e->wire_bytes_per_s = e->window_bytes_per_s;
    }
}

/* Returns the mean time of one message under the effect *e of a setting. */
static double estimate_message(const lh_link_load *use,
                               const lh_link_setting *s, double queue_pairs,
                               const lh_link_effect *e)
{
    double round_trip_ns = 2 * get_half_round_trip_ns(use);
    double line = e->share_bytes_per_s * e->balance_share * e->congestion_share;
    if (use->interface_bytes_per_s > 0)
        line = fmin(line, use->interface_bytes_per_s);
    const lhi_long_message message = {
        .recovery = s->recovery,
        .bytes = use->message_bytes / e->fec_share,
        .bytes_per_s = line,
        .queue_pairs = queue_pairs,
        .window_bytes = round_trip_ns > 0
                            ? e->window_bytes_per_s * round_trip_ns * 1e-9
                            : INFINITY,
        .latency_ns = use->latency_ns,
        .round_trip_ns = round_trip_ns,
        .loss = e->loss,
        /* A gap among sprayed packets is no loss for a while [RFC 8985]. */
        .reorder_ns =
            s->balancing == LH_BALANCING_SPRAY ? round_trip_ns / 4 : 0};
    return lhi_estimate_message_ns(&message);
}

lh_status lhi_compute_link_effect(const lh_link_load *use,
                                  const lh_link_setting *setting,
                                  lhi_ecmp_cache *known, lh_link_effect *out,
                                  lh_error *err)
{
    double queue_pairs = setting->queue_pairs ? setting->queue_pairs : 1;
    lh_link_effect e = {.fec_share = 1, .loss = use->loss};
    lh_flow flow;

    LHI_TRY(check_inputs(use, setting, err));
    fill_wire(use, setting, queue_pairs, known, &e);
    if (setting->fec_data) {
        e.fec_share = setting->fec_data /
                      ((double)setting->fec_data + setting->fec_parity);
        e.loss =
            lhi_fec_residual(setting->fec_data, setting->fec_parity, use->loss);
    }
    /* Each queue pair sends its part and repeats only its own losses. */
    flow = (lh_flow){e.wire_bytes_per_s * e.fec_share / queue_pairs,
                     get_half_round_trip_ns(use), e.loss};
    e.recovery_share = lhi_flow_efficiency(setting->recovery, &flow);
    e.bytes_per_s = e.wire_bytes_per_s * e.fec_share * e.recovery_share;
    e.in_flight_bytes = e.bytes_per_s * use->latency_ns / 1e9;
    if (use->message_bytes > 0) {
        e.message_ns = estimate_message(use, setting, queue_pairs, &e);
        e.message_bytes_per_s = use->message_bytes * 1e9 / e.message_ns;
    }
    *out = e;
    return LH_OK;
}

lh_status lhi_cost_link_setting(const lh_link_load *use,
                                const lh_link_setting *setting,
                                lh_link_effect *out, lh_error *err)
{
    lhi_ecmp_cache known = {0};

    return lhi_compute_link_effect(use, setting, &known, out, err);
}
