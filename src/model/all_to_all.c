/* SPDX-License-Identifier: Apache-2.0 */
/* All-to-all time: traffic within a node, within a datacenter and between
 * datacenters proceeds concurrently over the respective paths. */
#include "model/all_to_all.h"

#include "base/fail.h"
#include "format/job/parse.h"

#include <inttypes.h>
#include <math.h>

/* The fraction of a GPU's token bytes, all copies together, that crosses each
 * kind of path. */
typedef struct shares {
    double node;   /* within the node */
    double member; /* to each member on other nodes */
} shares;

/* Returns the probability that at least one of `copies` distinct experts, drawn
 * from `from` experts, is among `some` of them. */
static double compute_hit(double some, double from, double copies)
{
    double none = 1;

    for (double i = 0; i < copies; i++)
        none *= fmax(0, (from - some - i) / fmax(1, from - i));
    return 1 - none;
}

/* Returns n! / (k! (n - k)!), 0 where n < k. */
static double choose(double n, double k)
{
    double ways = 1;

    for (double i = 0; i < k; i++)
        ways *= fmax(0, n - i) / (k - i);
    return ways;
}

/* Returns the probability that a token has an expert in a block of `block`
 * whole expert groups. The number of the block's groups among the token's
 * groups is hypergeometric. */
static double compute_group_hit(const lhi_exchange *exchange, double block)
{
    double groups = exchange->groups, chosen = exchange->groups_per_token;
    double width = exchange->experts / groups, hit = 0;

    for (double j = 1; j <= fmin(block, chosen); j++)
        hit += choose(block, j) * choose(groups - block, chosen - j) *
               compute_hit(j * width, chosen * width, exchange->copies);
    return hit / choose(groups, chosen);
}

/* Returns the probability that any of a token's experts is on `members` of the
 * group's `size` GPUs. Experts are drawn evenly; with node-limited routing
 * (arXiv:2412.19437, section 2.1.2) their groups are drawn first. Between whole
 * groups the probability is interpolated. */
static double compute_visits(const lhi_exchange *exchange, double members,
                             double size)
{
    double block = exchange->experts * members / size;
    double width = exchange->groups > 0 ? exchange->experts / exchange->groups
                                        : exchange->experts;
    double chosen = exchange->groups_per_token, parts = block / width;

    if (!(exchange->groups > 0))
        return compute_hit(block, exchange->experts, exchange->copies);
    if (parts <= 1)
        return chosen / exchange->groups *
               compute_hit(block, chosen * width, exchange->copies);
    return (1 - (parts - floor(parts))) *
               compute_group_hit(exchange, floor(parts)) +
           (parts - floor(parts)) * compute_group_hit(exchange, ceil(parts));
}

/* Computes which fraction of a GPU's token bytes stays within its node, and
 * which goes to each member on other nodes. The group has `size` members,
 * `near` of them on this node and `block` on each other one. DeepEP and
 * HybridEP send a token once to each other node with any of its experts, and
 * there once to each such GPU (is_token_in_rank in DeepEP's
 * get_dispatch_layout()). An all-gather sends each token to all members: over
 * the node's links to each, and once through the interfaces that a node's
 * members share. */
static shares compute_shares(const lhi_exchange *exchange, double size,
                             double near, double block)
{
    double copies = exchange->copies;

    switch (exchange->dispatcher) {
    case LH_DISPATCHER_ALL_GATHER:
        return (shares){(near > 1 ? size - 1 : 0) / copies,
                        1 / (near * copies)};
    case LH_DISPATCHER_DEEPEP:
    case LH_DISPATCHER_HYBRIDEP:
        return (shares){size * compute_visits(exchange, 1, size) * (near - 1) /
                            near / copies,
                        block > 0 ? compute_visits(exchange, block, size) /
                                        block / copies
                                  : 0};
    case LH_DISPATCHER_ALL_TO_ALL:
        break;
    }
    return (shares){(near - 1) / size, 1 / size};
}

/* Computes the fractions of compute_shares() for the group members in
 * datacenter number `at` of the group. */
static shares compute_site_shares(const lhi_group_members *m, uint32_t at,
                                  const lhi_exchange *exchange)
{
    double nodes = 0, near = m->at[at].fewest_per_node;

    for (uint32_t i = 0; i < m->n; i++)
        nodes += m->at[i].nodes;
    return compute_shares(exchange, m->size, near,
                          nodes > 1 ? (m->size - near) / (nodes - 1) : 0);
}

lhi_exchange lhi_exchange_make(lh_dispatcher dispatcher, const lh_model *model)
{
    return (lhi_exchange){.dispatcher = dispatcher,
                          .copies = model->experts_per_token,
                          .experts = model->experts,
                          .groups = model->expert_groups,
                          .groups_per_token = model->groups_per_token};
}

double lhi_all_to_all_compute_share(const lhi_group_members *members,
                                    uint32_t part, const lhi_exchange *exchange)
{
    return compute_site_shares(members, part, exchange).member;
}

/* Returns an all-to-all's latency from that within the node (node_ns) and that
 * outside it (away_ns). All messages are in flight at once, so the longest
 * counts once (NCCL's user guide, "Point-to-point communication"). DeepEP and
 * HybridEP add a forwarding step within the node, so both count. */
static double compute_latency(const lhi_exchange *exchange, double node_ns,
                              double away_ns)
{
    return lhi_dispatches_once_per_node(exchange->dispatcher)
               ? node_ns + away_ns
               : fmax(node_ns, away_ns);
}

/* Counts the group's GPUs that use the link between two of its datacenters
 * (numbers `from` and `to`) at the same time; at least 1. */
static double count_link_senders(const lh_job *job, const lhi_group_members *m,
                                 uint32_t from, uint32_t to)
{
    uint32_t a = m->at[from].datacenter, b = m->at[to].datacenter;
    double senders = 0;

    for (uint32_t i = 0; i < m->n; i++)
        if (lhi_uses_same_link(job, a, b, m->at[i].datacenter, b))
            senders += m->at[i].senders;
    return fmax(1, senders);
}

/* Adds the time per byte over the links from one datacenter to the others. */
static lh_status
add_inter_datacenter_links(const lh_job *job, const lhi_group_members *m,
                           uint32_t at, const lh_cost_options *options,
                           lhi_ecmp_cache *known, lhi_exchange_time *sum,
                           lh_error *err)
{
    const lhi_site_members *here = &m->at[at];

    for (uint32_t i = 0; i < m->n; i++) {
        const lhi_site_members *there = &m->at[i];
        lh_cost_path path;

        if (i == at)
            continue;
        LHI_TRY(lhi_compute_inter_datacenter_path(
            job, here->datacenter, there->datacenter,
            count_link_senders(job, m, at, i), options, known, &path, err));
        sum->ns_per_byte += there->members * 1e9 / path.bytes_per_s;
        sum->latency_ns = fmax(sum->latency_ns, path.latency_ns);
    }
    return LH_OK;
}

/* Finds the paths from one GPU to the other members. *away: the time for one
 * byte to each member on other nodes, sent sequentially. *node: the intra-node
 * path, unless the GPU has no peer on its node. */
static lh_status
find_member_paths(const lh_job *job, const lhi_group_members *m, uint32_t at,
                  const lh_cost_options *options, lhi_ecmp_cache *known,
                  lhi_exchange_time *away, lh_cost_path *node, lh_error *err)
{
    const lhi_site_members *p = &m->at[at];
    double far = p->members - p->fewest_per_node;
    lh_cost_path path;

    *away = (lhi_exchange_time){0};
    *node = (lh_cost_path){.bytes_per_s = INFINITY};
    LHI_TRY(add_inter_datacenter_links(job, m, at, options, known, away, err));
    if (far > 0) {
        LHI_TRY(lhi_compute_intra_datacenter_path(job, p->datacenter, false, 1,
                                                  options, &path, err));
        away->ns_per_byte += far * 1e9 / path.bytes_per_s;
        away->latency_ns = fmax(away->latency_ns, path.latency_ns);
    }
    return p->fewest_per_node > 1
               ? lhi_compute_intra_datacenter_path(job, p->datacenter, true, 1,
                                                   options, node, err)
               : LH_OK;
}

/* Computes the time for one datacenter's members. The interface carries the
 * traffic to other nodes and to other datacenters, while the node's links work
 * concurrently. Each GPU uses only its own interface. */
static lh_status
compute_site_time(const lh_job *job, const lhi_group_members *m, uint32_t at,
                  const lhi_exchange *exchange, const lh_cost_options *options,
                  lhi_ecmp_cache *known, lhi_exchange_time *out, lh_error *err)
{
    shares s = compute_site_shares(m, at, exchange);
    lhi_exchange_time away;
    lh_cost_path node;

    LHI_TRY(find_member_paths(job, m, at, options, known, &away, &node, err));
    out->wire_ns_per_byte = s.member * away.ns_per_byte;
    out->ns_per_byte =
        fmax(s.node * 1e9 / node.bytes_per_s, out->wire_ns_per_byte);
    out->latency_ns =
        compute_latency(exchange, node.latency_ns, away.latency_ns);
    return LH_OK;
}

lh_status lhi_all_to_all_compute_path_times(const lh_job *job,
                                            const lhi_group_members *members,
                                            const lh_cost_options *options,
                                            lhi_ecmp_cache *known,
                                            lhi_exchange_paths *out,
                                            lh_error *err)
{
    lhi_exchange_paths worst = {0};

    for (uint32_t i = 0; i < members->n; i++) {
        double far = members->size - members->at[i].fewest_per_node;
        lhi_exchange_time away;
        lh_cost_path node;

        LHI_TRY(find_member_paths(job, members, i, options, known, &away, &node,
                                  err));
        worst.near_ns_per_byte =
            fmax(worst.near_ns_per_byte, 1e9 / node.bytes_per_s);
        worst.near_latency_ns = fmax(worst.near_latency_ns, node.latency_ns);
        if (far > 0)
            worst.far_ns_per_byte =
                fmax(worst.far_ns_per_byte, away.ns_per_byte / far);
        worst.far_latency_ns = fmax(worst.far_latency_ns, away.latency_ns);
    }
    *out = worst;
    return LH_OK;
}

lh_status lhi_all_to_all_compute_time(const lh_job *job,
                                      const lhi_group_members *members,
                                      const lhi_exchange *exchange,
                                      const lh_cost_options *options,
                                      lhi_ecmp_cache *known,
                                      lhi_exchange_time *out, lh_error *err)
{
    lhi_exchange_time worst = {0};

    for (uint32_t i = 0; i < members->n; i++) {
        lhi_exchange_time here;

        LHI_TRY(compute_site_time(job, members, i, exchange, options, known,
                                  &here, err));
        worst.ns_per_byte = fmax(worst.ns_per_byte, here.ns_per_byte);
        worst.latency_ns = fmax(worst.latency_ns, here.latency_ns);
        worst.wire_ns_per_byte =
            fmax(worst.wire_ns_per_byte, here.wire_ns_per_byte);
    }
    *out = worst;
    return LH_OK;
}

/* ---- lower bound ---- */

/* Finds paths at least as fast as any within a node of a datacenter (*node) or
 * from such a node (*away); without such a network the path is infinitely fast.
 */
static lh_status find_best_paths(const lh_job *job, uint32_t datacenter,
                                 const lh_cost_options *options,
                                 lh_cost_path *node, lh_cost_path *away,
                                 lh_error *err)
{
    const lh_datacenter *dc = &job->datacenters[datacenter];
    uint32_t n = job->n_datacenters;

    *node = *away = (lh_cost_path){.bytes_per_s = INFINITY};
    if (dc->node_link.bytes_per_s > 0)
        LHI_TRY(lhi_compute_intra_datacenter_path(job, datacenter, true, 1,
                                                  options, node, err));
    if (!(dc->fabric.bytes_per_s > 0))
        return LH_OK;
    LHI_TRY(lhi_compute_intra_datacenter_path(job, datacenter, false, 1,
                                              options, away, err));
    if (n > 1)
        away->bytes_per_s =
            fmax(away->bytes_per_s, dc->fabric.bytes_per_s *
                                        options->constants->fabric_efficiency);
    for (uint32_t i = 0; i < n; i++) {
        const lh_wan *wan = &job->wans[(size_t)datacenter * n + i];
        const lh_profile_link *measured =
            i == datacenter ? NULL
                            : lhi_profile_link(job, LH_PATH_WAN, datacenter, i);

        if (i == datacenter)
            continue;
        if (measured && !options->ignore_profile)
            away->bytes_per_s = INFINITY;
        away->latency_ns =
            fmin(away->latency_ns, measured ? fmin((double)measured->alpha_ns,
                                                   (double)wan->latency_ns)
                                            : (double)wan->latency_ns);
    }
    return LH_OK;
}

lh_status lhi_all_to_all_compute_lower_bound(
    const lh_job *job, uint32_t datacenter, double size, uint32_t step,
    const lhi_exchange *exchange, const lh_cost_options *options,
    lhi_exchange_time *out, lh_error *err)
{
    lhi_exchange_time least = {INFINITY, INFINITY, 0};
    double near = job->datacenters[datacenter].gpus_per_node, most = 0;
    lh_cost_path node, away;

    for (uint32_t i = 0; i < job->n_datacenters; i++)
        most = fmax(most, job->datacenters[i].gpus_per_node);
    most = fmax(1, most / step);
    near = fmin(size, fmax(1, near / step));
    LHI_TRY(find_best_paths(job, datacenter, options, &node, &away, err));
    for (double k = 1; k <= near; k++) {
        shares s = compute_shares(exchange, size, k, fmin(most, size - k));
        double far = s.member * (size - k) * 1e9 / away.bytes_per_s;
        double late = compute_latency(exchange, k > 1 ? node.latency_ns : 0,
                                      k < size ? away.latency_ns : 0);

        least.ns_per_byte =
            fmin(least.ns_per_byte, fmax(s.node * 1e9 / node.bytes_per_s, far));
        least.latency_ns = fmin(least.latency_ns, late);
    }
    *out = least;
    return LH_OK;
}

/* ---- public interface ---- */

/* Distributes a group evenly over its consecutive datacenters, each with the
 * group's `per_datacenter` members, into *out. */
static lh_status distribute_evenly(const lh_job *job,
                                   const lh_cost_group *group,
                                   lhi_group_members *out, lh_error *err)
{
    uint32_t left = group->size, n;

    if (!group->size || !group->per_node || !group->per_datacenter ||
        group->datacenter >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL, "incomplete group of GPUs");
    n = group->n_sites > 1
            ? group->n_sites
            : (group->size + group->per_datacenter - 1) / group->per_datacenter;
    if (n > job->n_datacenters ||
        (group->n_sites < 2 && n > job->n_datacenters - group->datacenter))
        return lhi_fail(err, LH_EINVAL,
                        "a group spreads over %" PRIu32
                        " datacenters, more than there are",
                        n);
    *out = (lhi_group_members){.size = group->size, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = (left + n - i - 1) / (n - i);
        uint32_t near = here < group->per_node ? here : group->per_node;

        out->at[i] = (lhi_site_members){
            .datacenter = group->n_sites > 1 ? group->sites[i].datacenter
                                             : group->datacenter + i,
            .members = here,
            .fewest_per_node = near,
            .nodes = ceil((double)here / near),
            .senders = group->concurrent};
        left -= here;
    }
    return LH_OK;
}

lh_status lhi_cost_all_to_all(const lh_job *job, const lh_cost_group *group,
                              double bytes, const lh_cost_options *options,
                              double *transfer_ns, double *latency_ns,
                              lh_error *err)
{
    const lhi_exchange plain = {.dispatcher = LH_DISPATCHER_ALL_TO_ALL,
                                .copies = 1};
    lhi_ecmp_cache known = {0};
    lhi_exchange_time t;
    lhi_group_members members;
    lh_cost_options full;

    LHI_TRY(lhi_complete_cost_options(job, options, &full, err));
    LHI_TRY(distribute_evenly(job, group, &members, err));
    LHI_TRY(lhi_all_to_all_compute_time(job, &members, &plain, &full, &known,
                                        &t, err));
    *transfer_ns = bytes * t.ns_per_byte;
    *latency_ns = t.latency_ns;
    return LH_OK;
}
