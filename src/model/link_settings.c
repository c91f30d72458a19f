/* SPDX-License-Identifier: Apache-2.0 */
/* Effects of the link settings between sites on a sender's rate and on a
 * message's time. */
#include "model/paths.h"

#include "base/exact_equality.h"
#include "base/fail.h"
#include "model/link_settings.h"

#include <math.h>

enum { MAX_FEC_BLOCK = 1 << 20 }; /* packets per erasure-code block */

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

/* Checks the load and a link's settings. LH_EINVAL: a value is out of range. */
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
 * balancing over its queue_pairs, by window, congestion control and interface.
 * Stores the rate and its limiting factor in *e. `known`: cache of ECMP
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

/* Returns the mean time in ns of one message of the load `use`, under the
 * effect *e of the link setting `s`. */
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
