/* SPDX-License-Identifier: Apache-2.0 */
/* Links whose ends, NCCL's buffers and TCP's windows, limit a sender more than
 * the link does. */
#include "model/link_settings.h"
#include "model/paths.h"
#include "model/shape.h"

#include <longhaul/experimental/plan.h>
#include <math.h>

/* A rate 1 % below the link's is no limit worth a message. */
static const double CLOSE_RATIO = 0.99;

/* Returns how many GPUs share a link when they send at once: the number of
 * message flows or of data-parallel flows, the smaller if the link carries
 * both, which gives the higher rate per GPU. 0: no GPU sends. */
static double count_senders(const lh_link_advice *a)
{
    uint64_t m = a->message_flows, d = a->data_flows;

    return (double)(m && (!d || m < d) ? m : d);
}

/* Computes one link's rate per sender into *out, with and without the window
 * (bytes in flight) of its ends. Returns false if the windows reduce it by less
 * than 1 %, or the link is unused or measured. */
static bool find_limit(const lh_plan *plan, const lh_link_advice *a,
                       lh_ends_limit *out)
{
    const lh_job *job = plan->job;
    uint32_t from, to;
    lh_link_effect wide, real;
    lh_link_load use;

    if (a->measured || !(count_senders(a) > 0) ||
        (from = lhi_find_datacenter(job, a->from)) == LH_NONE ||
        (to = lhi_find_datacenter(job, a->to)) == LH_NONE)
        return false;
    use = lhi_link_load(job, from, to, lhi_find_cost_constants(job));
    use.senders = count_senders(a);
    lh_link_setting given =
        job->wans[(size_t)from * job->n_datacenters + to].setting;
    lh_link_setting without = given;
    without.channels = 0;
    without.window_bytes = without.balancing == LH_BALANCING_SPRAY ? 1e18 : 0;
    *out = (lh_ends_limit){.from = a->from,
                           .to = a->to,
                           .round_trip_ns = use.latency_ns + use.return_ns,
                           .ends = given,
                           .planned = !lh_link_setting_is_default(&given)};
    if (!out->planned)
        out->ends.channels = lh_nccl_channels(use.interface_bytes_per_s);
    if (lhi_cost_link_setting(&use, &without, &wide, NULL) != LH_OK ||
        lhi_cost_link_setting(&use, &out->ends, &real, NULL) != LH_OK)
        return false;
    out->link_bytes_per_s = wide.bytes_per_s;
    out->ends_bytes_per_s = real.bytes_per_s;
    return real.limit == LH_LIMIT_WINDOW &&
           real.bytes_per_s < CLOSE_RATIO * wide.bytes_per_s;
}

bool lh_plan_find_ends_limit(const lh_plan *plan, lh_ends_limit *out)
{
    bool any = false;

    for (uint32_t i = 0; i < plan->n_network; i++) {
        lh_ends_limit one;
        if (!find_limit(plan, &plan->network[i], &one))
            continue;
        if (any && out->ends_bytes_per_s * one.link_bytes_per_s <=
                       one.ends_bytes_per_s * out->link_bytes_per_s)
            continue;
        *out = one;
        any = true;
    }
    return any;
}
