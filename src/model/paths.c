/* SPDX-License-Identifier: Apache-2.0 */
/* Paths between GPUs, and collectives over them: the alpha-beta model on the
 * slowest path crossed. */
#include "model/paths.h"

#include "base/fail.h"
#include "format/job/job_values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool lhi_are_zones_of_same_datacenter(const lh_job *job, uint32_t a, uint32_t b)
{
    const char *x = job->datacenters[a].zone_of;

    return x && x == job->datacenters[b].zone_of;
}

/* Checks whether `a` and `b` are the same datacenter or zones of the same one.
 */
static bool is_same_site(const lh_job *job, uint32_t a, uint32_t b)
{
    return a == b || lhi_are_zones_of_same_datacenter(job, a, b);
}

bool lhi_uses_same_link(const lh_job *job, uint32_t a, uint32_t b, uint32_t x,
                        uint32_t y)
{
    if (lhi_are_zones_of_same_datacenter(job, a, b))
        return a == x && x != y && lhi_are_zones_of_same_datacenter(job, x, y);
    return is_same_site(job, a, x) && is_same_site(job, b, y);
}

/* Checks whether a datacenter is called `name`, or is a zone of a datacenter
 * called `name`. */
static bool has_name(const lh_datacenter *dc, const char *name)
{
    return !strcmp(dc->name, name) ||
           (dc->zone_of && !strcmp(dc->zone_of, name));
}

uint32_t lhi_find_datacenter(const lh_job *job, const char *name)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (has_name(&job->datacenters[i], name))
            return i;
    return LH_NONE;
}

const lh_profile_link *lhi_profile_link(const lh_job *job, lh_profile_path kind,
                                        uint32_t from, uint32_t to)
{
    const lh_profile *p = job->profile;

    for (uint32_t i = 0; p && i < p->n_links; i++) {
        const lh_profile_link *link = &p->links[i];
        const lh_datacenter *site = &job->datacenters[from];

        if (link->path != kind)
            continue;
        if (kind == LH_PATH_WAN) {
            if (has_name(site, link->from) &&
                has_name(&job->datacenters[to], link->to))
                return link;
        } else if (!link->site || has_name(site, link->site)) {
            return link;
        }
    }
    return NULL;
}

/* Sets the path to the profile's measurement of this kind between `from` and
 * `to`, with the fraction `share` of its rate. Returns false if there is none
 * or options->ignore_profile is set. */
static bool use_measured(const lh_job *job, const lh_cost_options *options,
                         lh_profile_path kind, uint32_t from, uint32_t to,
                         double share, lh_cost_path *out)
{
    const lh_profile_link *link;

    if (options->ignore_profile)
        return false;
    link = lhi_profile_link(job, kind, from, to);
    if (!link)
        return false;
    out->kind = kind;
    out->measured = true;
    out->latency_ns = (double)link->alpha_ns;
    out->bytes_per_s = link->beta_ns_per_byte > 0
                           ? share * 1e9 / link->beta_ns_per_byte
                           : INFINITY;
    return true;
}

lh_status lhi_compute_intra_datacenter_path(const lh_job *job,
                                            uint32_t datacenter, bool same_node,
                                            double interfaces,
                                            const lh_cost_options *options,
                                            lh_cost_path *out, lh_error *err)
{
    const lh_datacenter *dc = &job->datacenters[datacenter];
    const lh_cost_constants *c = options->constants;
    lh_profile_path kind = same_node ? LH_PATH_NODE : LH_PATH_FABRIC;
    const lh_network *net = same_node ? &dc->node_link : &dc->fabric;
    double efficiency = same_node ? c->node_efficiency : c->fabric_efficiency;
    double rate;

    *out = (lh_cost_path){.kind = kind};
    if (use_measured(job, options, kind, datacenter, datacenter, 1, out))
        return LH_OK;
    if (!(net->bytes_per_s > 0))
        return lhi_fail(err, LH_EUNSUPPORTED, "datacenter %s has no %s",
                        dc->name, same_node ? "node_link" : "fabric");
    rate = net->bytes_per_s * efficiency;
    if (!same_node && interfaces > 1) {
        double inside = dc->node_link.bytes_per_s * c->node_efficiency;

        rate *= interfaces;
        if (inside > 0)
            rate = fmin(rate, inside);
    }
    out->bytes_per_s = rate;
    out->latency_ns = (double)net->latency_ns;
    return LH_OK;
}

lh_link_load lhi_link_load(const lh_job *job, uint32_t from, uint32_t to,
                           const lh_cost_constants *constants)
{
    size_t n = job->n_datacenters;
    const lh_wan *wan = &job->wans[from * n + to];
    return (lh_link_load){
        .line_bytes_per_s = wan->bytes_per_s * constants->wan_efficiency,
        .latency_ns = (double)wan->latency_ns,
        .return_ns = (double)job->wans[to * n + from].latency_ns,
        .loss = wan->loss,
        .oversubscription = wan->oversubscription,
        .interface_bytes_per_s = job->datacenters[from].fabric.bytes_per_s *
                                 constants->fabric_efficiency,
    };
}

/* Returns the bandwidth from zone `from` to zone `to` that is available to one
 * GPU in bytes/s, even if no other GPU sends. */
static double compute_zone_bandwidth_per_gpu(const lh_job *job, uint32_t from,
                                             uint32_t to,
                                             const lh_cost_constants *constants)
{
    const lh_datacenter *a = &job->datacenters[from];
    const lh_datacenter *b = &job->datacenters[to];
    double gpus = a->gpus < b->gpus ? a->gpus : b->gpus;

    return job->wans[(size_t)from * job->n_datacenters + to].bytes_per_s *
           constants->fabric_efficiency / gpus;
}

lh_status lhi_compute_inter_datacenter_path(const lh_job *job, uint32_t from,
                                            uint32_t to, double concurrent,
                                            const lh_cost_options *options,
                                            lhi_ecmp_cache *known,
                                            lh_cost_path *out, lh_error *err)
{
    const lh_wan *wan = &job->wans[(size_t)from * job->n_datacenters + to];
    double rate, own;

    *out = (lh_cost_path){.kind = LH_PATH_WAN};
    if (use_measured(job, options, LH_PATH_WAN, from, to, 1 / concurrent, out))
        return LH_OK;
    if (!(wan->bytes_per_s > 0))
        return lhi_fail(err, LH_EUNSUPPORTED, "there is no link %s>%s",
                        job->datacenters[from].name, job->datacenters[to].name);
    own = job->datacenters[from].fabric.bytes_per_s *
          options->constants->fabric_efficiency;
    if (!lh_link_setting_is_default(&wan->setting)) {
        lh_link_load use = lhi_link_load(job, from, to, options->constants);
        lh_link_effect effect;
        use.senders = concurrent;
        LHI_TRY(
            lhi_compute_link_effect(&use, &wan->setting, known, &effect, err));
        out->bytes_per_s = effect.bytes_per_s;
        out->latency_ns = use.latency_ns;
        return LH_OK;
    }
    /* Selective repeat: each lost packet is retransmitted alone and once. */
    rate = wan->bytes_per_s * options->constants->wan_efficiency *
           (1 - wan->loss) / (wan->oversubscription * concurrent);
    if (own > 0)
        rate = fmin(rate, own);
    if (lhi_are_zones_of_same_datacenter(job, from, to))
        rate = fmin(rate, compute_zone_bandwidth_per_gpu(job, from, to,
                                                         options->constants));
    out->bytes_per_s = rate;
    out->latency_ns = (double)wan->latency_ns;
    return LH_OK;
}

/* A ring: its slowest hop, and totals over all hops. */
typedef struct ring {
    lh_cost_path slowest;
    double sum_ns, least_ns; /* latencies */
    uint32_t hops;
} ring;

/* Adds `hops` equal hops between ring neighbours over a path to a ring: to its
 * latencies and to its slowest hop. */
static void add_hops(ring *r, const lh_cost_path *path, uint32_t hops)
{
    if (!hops)
        return;
    r->sum_ns += hops * path->latency_ns;
    r->least_ns =
        r->hops ? fmin(r->least_ns, path->latency_ns) : path->latency_ns;
    if (!r->hops)
        r->slowest = *path;
    r->hops += hops;
    /* Each step takes as long as its slowest hop. */
    r->slowest.bytes_per_s = fmin(r->slowest.bytes_per_s, path->bytes_per_s);
    r->slowest.latency_ns = fmax(r->slowest.latency_ns, path->latency_ns);
    r->slowest.measured = r->slowest.measured && path->measured;
}

/* Returns the path that represents a ring: its slowest hop's rate, and the
 * latency around it without the shortest hop. */
static lh_cost_path summarise_ring(const ring *r)
{
    lh_cost_path path = r->slowest;

    path.ring_latency_ns = r->sum_ns - r->least_ns;
    return path;
}

/* Adds `hops` hops between members on one node to a ring. They limit the rate
 * and add to the latency around the ring, but not to that of its longest hop.
 */
static lh_status add_node_hops(const lh_job *job, uint32_t datacenter,
                               uint32_t hops, const lh_cost_options *options,
                               ring *r, lh_error *err)
{
    lh_cost_path path;

    if (!hops)
        return LH_OK;
    LHI_TRY(lhi_compute_intra_datacenter_path(job, datacenter, true, 1, options,
                                              &path, err));
    r->sum_ns += hops * path.latency_ns;
    r->least_ns = fmin(r->least_ns, path.latency_ns);
    r->slowest.bytes_per_s = fmin(r->slowest.bytes_per_s, path.bytes_per_s);
    return LH_OK;
}

/* Computes the path of a ring through one datacenter's nodes. */
static lh_status compute_node_ring(const lh_job *job,
                                   const lh_cost_group *group,
                                   const lh_cost_options *options,
                                   lh_cost_path *out, lh_error *err)
{
    uint32_t nodes =
        group->nodes ? group->nodes
                     : (group->size + group->per_node - 1) / group->per_node;
    bool same_node = nodes < 2;
    lh_cost_path path;
    ring r = {0};

    LHI_TRY(lhi_compute_intra_datacenter_path(job, group->datacenter, same_node,
                                              same_node ? 1 : group->per_node,
                                              options, &path, err));
    add_hops(&r, &path, same_node ? group->size : nodes);
    if (!same_node)
        LHI_TRY(add_node_hops(job, group->datacenter, group->size - nodes,
                              options, &r, err));
    *out = summarise_ring(&r);
    return LH_OK;
}

/* Returns the i-th of a group's n datacenters: from its list, otherwise
 * consecutive from the first. */
static uint32_t find_ring_site(const lh_cost_group *group, uint32_t i,
                               uint32_t n)
{
    return group->n_sites > 1 ? group->sites[i % n].datacenter
                              : group->datacenter + i % n;
}

/* Counts the ring hops over the same link as hop i of n. There are several if
 * the ring alternates between zones of two datacenters. */
static uint32_t count_hops_on_link(const lh_job *job,
                                   const lh_cost_group *group, uint32_t i,
                                   uint32_t n)
{
    uint32_t from = find_ring_site(group, i, n),
             to = find_ring_site(group, i + 1, n);
    uint32_t same = 0;

    for (uint32_t k = 0; k < n; k++)
        same += lhi_uses_same_link(job, from, to, find_ring_site(group, k, n),
                                   find_ring_site(group, k + 1, n));
    return same;
}

/* Computes the path that represents a ring through n datacenters: its slowest
 * hop's rate and the latency around it. */
static lh_status compute_datacenter_ring(const lh_job *job,
                                         const lh_cost_group *group, uint32_t n,
                                         const lh_cost_options *options,
                                         lhi_ecmp_cache *known,
                                         lh_cost_path *out, lh_error *err)
{
    double concurrent = group->concurrent ? group->concurrent : 1;
    ring r = {0};

    for (uint32_t i = 0; i < n; i++) {
        lh_cost_path path;

        LHI_TRY(lhi_compute_inter_datacenter_path(
            job, find_ring_site(group, i, n), find_ring_site(group, i + 1, n),
            concurrent * count_hops_on_link(job, group, i, n), options, known,
            &path, err));
        add_hops(&r, &path, 1);
    }
    *out = summarise_ring(&r);
    return LH_OK;
}

lh_status lhi_compute_group_path(const lh_job *job, const lh_cost_group *group,
                                 const lh_cost_options *options,
                                 lhi_ecmp_cache *known, lh_cost_path *out,
                                 lh_error *err)
{
    uint32_t spread;

    if (!group->size || !group->per_node || !group->per_datacenter ||
        group->datacenter >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL, "incomplete group of GPUs");
    if (group->n_sites > 1)
        return compute_datacenter_ring(job, group, group->n_sites, options,
                                       known, out, err);
    if (group->size <= group->per_datacenter)
        return compute_node_ring(job, group, options, out, err);
    spread = (group->size + group->per_datacenter - 1) / group->per_datacenter;
    if (spread > job->n_datacenters - group->datacenter)
        return lhi_fail(err, LH_EINVAL,
                        "a group spreads over %" PRIu32
                        " datacenters, more than there are",
                        spread);
    return compute_datacenter_ring(job, group, spread, options, known, out,
                                   err);
}

lh_status lh_cost_group_path(const lh_job *job, const lh_cost_group *group,
                             const lh_cost_options *options, lh_cost_path *out,
                             lh_error *err)
{
    lhi_ecmp_cache known = {0};
    lh_cost_options full;

    LHI_TRY(lhi_complete_cost_options(job, options, &full, err));
    return lhi_compute_group_path(job, group, &full, &known, out, err);
}

int64_t lhi_cost_message_bytes(const lh_job *job, const lh_layout *layout)
{
    double bytes = (double)layout->micro_batch * job->training.sequence *
                   job->model->hidden *
                   lhi_precision_bytes(job->training.precision) /
                   lhi_job_count_slices(job);

    return bytes < 0x1p62 ? (int64_t)bytes : INT64_C(1) << 62;
}

/* Checks how GPU pairs of a hop (a message between pipeline stages) inside a
 * datacenter lie on nodes. *leaves: some pairs are on different nodes; *stays:
 * some are on one node. Positions on nodes repeat after at most `per_node`
 * replicas. */
static void find_pairs(const lh_layout *layout, const lh_cost_hop *hop,
                       uint64_t per_node, bool *leaves, bool *stays)
{
    uint64_t size = (uint64_t)layout->tensor * layout->context;
    uint64_t low = hop->from_gpu < hop->to_gpu ? hop->from_gpu : hop->to_gpu;
    uint64_t far = (uint64_t)hop->from_gpu + hop->to_gpu - 2 * low;
    uint64_t n = hop->peers ? hop->peers : 1;

    *leaves = *stays = false;
    for (uint64_t r = 0; r < n && r < per_node && !(*leaves && *stays); r++) {
        uint64_t at = (low + r * hop->stride) % per_node;

        *leaves = *leaves || at + far + size > per_node;
        *stays = *stays || (far < per_node &&
                            (at + far < per_node || at + size > per_node));
    }
}

/* Counts the GPUs that send over a hop (a message between pipeline stages) at
 * the same time: those of all replicas that use it. */
static double count_hop_senders(const lh_layout *layout, const lh_cost_hop *hop)
{
    return (double)layout->tensor * layout->context *
           (hop->replicas ? hop->replicas : layout->data);
}

/* Computes a hop's path, from one pipeline rank's GPUs to their peers in
 * another rank: the slowest path of all pairs. */
static lh_status compute_hop_path(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_hop *hop,
                                  const lh_cost_options *options,
                                  lhi_ecmp_cache *known, lh_cost_path *out,
                                  lh_error *err)
{
    bool leaves, stays;
    lh_cost_path node;

    if (hop->from >= job->n_datacenters || hop->to >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL,
                        "a hop to or from a datacenter that "
                        "the job does not have");
    if (hop->from != hop->to) {
        return lhi_compute_inter_datacenter_path(job, hop->from, hop->to,
                                                 count_hop_senders(layout, hop),
                                                 options, known, out, err);
    }
    find_pairs(layout, hop, job->datacenters[hop->from].gpus_per_node, &leaves,
               &stays);
    LHI_TRY(lhi_compute_intra_datacenter_path(job, hop->from, !leaves, 1,
                                              options, out, err));
    if (!leaves || !stays)
        return LH_OK;
    LHI_TRY(lhi_compute_intra_datacenter_path(job, hop->from, true, 1, options,
                                              &node, err));
    out->bytes_per_s = fmin(out->bytes_per_s, node.bytes_per_s);
    out->latency_ns = fmax(out->latency_ns, node.latency_ns);
    return LH_OK;
}

/* Computes *ns, the mean time by which losses on a link between datacenters
 * delay a message beyond a stream's mean rate. A lost packet is sent again a
 * round trip later. The next stage waits for the parts of all `gpus` GPUs, each
 * of `share` bytes, and the link carries those of `senders`. */
static lh_status compute_loss_delay(const lh_job *job, const lh_cost_hop *hop,
                                    const lh_cost_options *options,
                                    double share, double gpus, double senders,
                                    lhi_ecmp_cache *known, double *ns,
                                    lh_error *err)
{
    const lh_wan *wan = &job->wans[hop->from * job->n_datacenters + hop->to];
    lh_link_setting setting = wan->setting;
    lh_link_effect effect;
    /* The GPUs of a stage as one sender. */
    lh_link_load use =
        lhi_link_load(job, hop->from, hop->to, options->constants);
    double queue_pairs = fmax(1, setting.queue_pairs) * gpus;
    use.senders = senders / gpus;
    use.interface_bytes_per_s *= gpus;
    use.message_bytes = share * gpus;
    setting.queue_pairs = (uint32_t)fmin(queue_pairs, 1 << 20);
    setting.channels = (uint32_t)fmin(setting.channels * gpus, 1 << 20);
    LHI_TRY(lhi_compute_link_effect(&use, &setting, known, &effect, err));
    *ns = fmax(0, effect.message_ns - use.latency_ns -
                      use.message_bytes * 1e9 / effect.bytes_per_s);
    return LH_OK;
}

lh_status lhi_compute_hop_message(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_hop *hop,
                                  const lh_cost_options *options,
                                  lhi_ecmp_cache *known, lh_cost_message *out,
                                  lh_error *err)
{
    lh_cost_options full;
    lhi_shape shape;
    lh_cost_path path;
    lh_cost_message message;
    double gpus, share, late_ns = 0;

    LHI_TRY(lhi_complete_cost_options(job, options, &full, err));
    LHI_TRY(lhi_shape_make(job, layout, &full, &shape, err));
    LHI_TRY(compute_hop_path(job, layout, hop, &full, known, &path, err));
    message.bytes = lhi_cost_message_bytes(job, layout);
    gpus = (double)layout->tensor * layout->context;
    share = (double)message.bytes / gpus;
    if (full.unsplit_messages)
        share *= layout->tensor;
    LHI_TRY(lhi_round_up_checked(share * 1e9 / path.bytes_per_s, "a transfer",
                                 &message.transfer_ns, err));
    if (path.kind == LH_PATH_WAN && !path.measured &&
        job->wans[hop->from * job->n_datacenters + hop->to].loss > 0) {
        LHI_TRY(compute_loss_delay(job, hop, &full, share, gpus,
                                   count_hop_senders(layout, hop), known,
                                   &late_ns, err));
    }
    LHI_TRY(lhi_round_up_checked(path.latency_ns + late_ns, "a latency",
                                 &message.latency_ns, err));
    message.kind = path.kind;
    message.measured = path.measured;
    *out = message;
    return LH_OK;
}

lh_status lhi_cost_hop_message(const lh_job *job, const lh_layout *layout,
                               const lh_cost_hop *hop,
                               const lh_cost_options *options,
                               lh_cost_message *out, lh_error *err)
{
    lhi_ecmp_cache known = {0};

    return lhi_compute_hop_message(job, layout, hop, options, &known, out, err);
}

lh_status lhi_cost_tied_embedding(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_hop *hop,
                                  const lh_cost_options *options, int64_t *ns,
                                  lh_error *err)
{
    lh_cost_options full;
    lhi_shape shape;
    lhi_ecmp_cache known = {0};
    lh_cost_path path;
    double transfer, latency, bytes;

    LHI_TRY(lhi_complete_cost_options(job, options, &full, err));
    LHI_TRY(lhi_shape_make(job, layout, &full, &shape, err));
    if (!job->model->tied_embeddings || layout->pipeline == 1) {
        *ns = 0;
        return LH_OK;
    }
    LHI_TRY(compute_hop_path(job, layout, hop, &full, &known, &path, err));
    bytes = shape.vocab * job->model->hidden * full.gradient_wire_bytes;
    lh_cost_collective(LH_ALL_REDUCE, 2, bytes, &path, &transfer, &latency);
    return lhi_round_up_checked(transfer + latency, "an all-reduce", ns, err);
}
