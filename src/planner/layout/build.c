/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the scheduling problem from a layout: costs become passes
 * (build_chunks.c), hops become links. */
#include "planner/layout/build_internal.h"

#include "planner/layout/target.h"

#include "base/integer_math.h"
#include "base/text.h"
#include "format/job/job_values.h"
#include "model/flop_count.h"
#include "model/group_layout.h"
#include "model/groups.h"
#include "model/shape.h"
#include "model/work.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the location of a pipeline rank (stage) in the first replica of a
 * group of replicas. */
static const lhi_rank_location *get_rank(const lhi_layout_builder *b,
                                         uint32_t group, uint32_t stage)
{
    size_t P = b->config->layout.pipeline;
    return &b->places.ranks[group * P + stage];
}

/* Checks whether replica groups `i` and `g` send from one stage to another over
 * the same link, or both within one datacenter. */
static bool crosses_same_link(const lhi_layout_builder *b, uint32_t i,
                              uint32_t g, uint32_t from, uint32_t to)
{
    uint32_t a = get_rank(b, g, from)->datacenter;
    uint32_t z = get_rank(b, g, to)->datacenter;
    uint32_t x = get_rank(b, i, from)->datacenter;
    uint32_t y = get_rank(b, i, to)->datacenter;

    return a == z || x == y ? a == x && z == y
                            : lhi_uses_same_link(b->job, a, z, x, y);
}

/* Counts the replicas that share the link of group g's messages from one stage
 * to another: those of all groups that use this link. */
static uint32_t count_senders(const lhi_layout_builder *b, uint32_t g,
                              uint32_t from, uint32_t to)
{
    const lh_sites *sites = b->places.sites;
    uint32_t replicas = 0;
    for (uint32_t i = 0; i < sites->n_groups; i++)
        if (crosses_same_link(b, i, g, from, to))
            replicas += sites->groups[i].replicas;
    return replicas;
}

/* Returns the message route of replica group `g` from stage `from` to stage
 * `to`, for the cost model. */
static lh_cost_hop make_hop(const lhi_layout_builder *b, uint32_t g,
                            uint32_t from, uint32_t to)
{
    return lhi_layout_hop(&b->places, &b->config->layout, g, from, to,
                          count_senders(b, g, from, to));
}

/* Computes the message from stage `from` to stage `to` into *out, for the
 * replica group whose message takes longest. */
static lh_status cost_message(lhi_layout_builder *b, uint32_t from, uint32_t to,
                              lh_cost_message *out, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    for (uint32_t g = 0; g < b->places.sites->n_groups; g++) {
        lh_cost_hop hop = make_hop(b, g, from, to);
        const lh_layout own =
            lhi_layout_on_hop(&b->config->layout, hop.from, hop.to);
        lh_cost_message here;
        LHI_TRY(lhi_compute_hop_message(b->job, &own, &hop, &options,
                                        &b->busiest, &here, err));
        if (g == 0) {
            *out = here;
            continue;
        }
        out->transfer_ns = lhi_max_int64(out->transfer_ns, here.transfer_ns);
        out->latency_ns = lhi_max_int64(out->latency_ns, here.latency_ns);
    }
    return LH_OK;
}

/* Enlarges the message between stages `from` and `to` if it follows multi-token
 * prediction modules separate from the head: it also carries their hidden
 * states, each as large as the model's. A link has one message size, so the
 * largest counts. */
static lh_status widen_mtp_message(const lhi_layout_builder *b, uint32_t from,
                                   uint32_t to, lh_cost_message *message,
                                   lh_error *err)
{
    const uint32_t mtp = b->job->layout.mtp_chunk;
    for (uint32_t c = mtp; mtp && c + 1 < b->n_chunks; c++) {
        uint32_t here = b->chunks[c].device, next = b->chunks[c + 1].device;
        if ((here == from && next == to) || (here == to && next == from))
            return lhi_round_up_checked((double)message->transfer_ns *
                                            (1.0 + b->job->model->mtp_layers),
                                        "a transfer", &message->transfer_ns,
                                        err);
    }
    return LH_OK;
}

/* Adds the link from stage `from` to stage `to` to the pipeline, with the
 * latency and transfer time of the replica group whose message takes
 * longest. */
static lh_status add_link(lhi_layout_builder *b, uint32_t from, uint32_t to,
                          lh_error *err)
{
    lh_cost_message message;
    LHI_TRY(cost_message(b, from, to, &message, err));
    LHI_TRY(widen_mtp_message(b, from, to, &message, err));
    lh_link *link = &b->links[b->n_links];
    *link = (lh_link){from, to, message.latency_ns, message.transfer_ns, NULL};
    b->link_before[b->n_links] = b->last_link[from];
    b->last_link[from] = ++b->n_links;
    return LH_OK;
}

/* Returns the first pair of datacenters or zones, as from * n_datacenters + to,
 * whose messages use the same link; it identifies the link. */
static uint32_t find_first_pair(const lh_job *job, uint32_t from, uint32_t to)
{
    uint32_t n = job->n_datacenters, pair = 0;
    while (pair / n == pair % n ||
           !lhi_uses_same_link(job, from, to, pair / n, pair % n))
        pair++;
    return pair;
}

/* Returns 1 + the datacenter pair (see find_first_pair()) that replica group
 * `g` crosses on a link; 0: it stays inside one datacenter. */
static uint32_t find_crossed_pair(const lhi_layout_builder *b, uint32_t g,
                                  const lh_link *link)
{
    uint32_t from = get_rank(b, g, link->from)->datacenter;
    uint32_t to = get_rank(b, g, link->to)->datacenter;
    return from == to ? 0 : find_first_pair(b->job, from, to) + 1;
}

/* Returns the representative of a datacenter pair's set in the union-find array
 * `shared`; pairs in one set share a link. */
static uint32_t find_set_root(uint32_t *shared, uint32_t pair)
{
    while (shared[pair] != pair)
        pair = shared[pair] = shared[shared[pair]];
    return pair;
}

/* Returns the name of a link's end at datacenter or zone `at`: the
 * datacenter's, also for a zone of it. */
static const char *get_end_name(const lh_job *job, uint32_t at)
{
    const lh_datacenter *dc = &job->datacenters[at];
    return dc->zone_of ? dc->zone_of : dc->name;
}

/* Capacity for a link's name, in bytes. */
enum { LINK_NAME = 256 };

/* Formats the link's name between a pair of datacenters: "A>B". Links
 * between zones of one datacenter have the zones' names. */
static void format_link_name(const lh_job *job, uint32_t pair,
                             char name[LINK_NAME])
{
    uint32_t n = job->n_datacenters, from = pair / n, to = pair % n;
    bool zones = lhi_are_zones_of_same_datacenter(job, from, to);
    /* No site has '>' in its name, so link names are unique. */
    snprintf(name, LINK_NAME, "%s>%s",
             zones ? job->datacenters[from].name : get_end_name(job, from),
             get_end_name(job, to));
}

/* Sets the link's name to that of its datacenter pair. Links with equal names
 * share one physical link. */
static lh_status name_link(lhi_layout_builder *b, uint32_t pair, lh_link *link,
                           lh_error *err)
{
    char name[LINK_NAME];
    format_link_name(b->job, pair, name);
    link->name = lhi_arena_strdup(b->mem, name);
    return link->name ? LH_OK : lhi_fail_nomem(err);
}

/* Merges links: one link between datacenters serves all pairs of stages that
 * use it. The pipeline represents every group at once, so links used by one
 * message in several groups become a single link; the pipeline waits for either
 * as for both. */
static lh_status share_links(lhi_layout_builder *b, lh_error *err)
{
    uint32_t n = b->job->n_datacenters, G = b->places.sites->n_groups;
    for (uint32_t i = 0; i < n * n; i++)
        b->shared[i] = i;
    for (uint32_t i = 0; i < b->n_links; i++) {
        uint32_t all = 0;
        for (uint32_t g = 0; g < G; g++) {
            uint32_t pair = find_crossed_pair(b, g, &b->links[i]);
            if (!pair)
                continue;
            pair = find_set_root(b->shared, pair - 1);
            if (all) {
                uint32_t other = find_set_root(b->shared, all - 1);
                b->shared[pair > other ? pair : other] =
                    pair > other ? other : pair;
            }
            all = pair + 1;
        }
    }
    for (uint32_t i = 0; i < b->n_links; i++)
        for (uint32_t g = 0; g < G && !b->links[i].name; g++) {
            uint32_t pair = find_crossed_pair(b, g, &b->links[i]);
            if (pair)
                LHI_TRY(name_link(b, find_set_root(b->shared, pair - 1),
                                  &b->links[i], err));
        }
    return LH_OK;
}

/* Fails if the expert groups of chunk c's stage send tokens over a link that
 * carries messages. carries[]: the links that do, by the representatives of
 * their datacenter pairs. */
static lh_status check_tokens(lhi_layout_builder *b, uint32_t c,
                              const bool *carries, lh_error *err)
{
    const lhi_stage_placement *spread =
        &b->places.stages[lhi_config_device(b->config, c)];
    lh_cost_layer_range slice = lhi_config_slice(b->job, b->config, spread, c);
    lhi_group_layout groups;
    lhi_group_members block;
    if (spread->n_sites < 2 || !lhi_count_moe_layers(b->job->model, &slice))
        return LH_OK;
    slice.datacenter = spread->sites[0].datacenter;
    LHI_TRY(lhi_group_layout_build(b->job, &b->config->layout, &slice, &groups,
                                   err));
    for (uint32_t i = 0;
         lhi_group_layout_find_spanning_group(&groups, i, &block); i++)
        for (uint32_t k = 0; k < block.n * block.n; k++) {
            uint32_t from = block.at[k / block.n].datacenter;
            uint32_t to = block.at[k % block.n].datacenter;
            if (from == to ||
                !carries[find_set_root(b->shared,
                                       find_first_pair(b->job, from, to))])
                continue;
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "the link from %s to %s would carry both pipeline "
                            "messages and tokens of expert groups, which do "
                            "not wait for each other in the model; use "
                            "another layout.expert or layout.sites",
                            b->job->datacenters[from].name,
                            b->job->datacenters[to].name);
        }
    return LH_OK;
}

/* Rejects layouts in which a link between datacenters carries both the
 * pipeline's messages and tokens of expert groups: the tokens' time is part of
 * the passes. Tensor and context groups never leave a datacenter. */
static lh_status check_token_links(lhi_layout_builder *b, lh_error *err)
{
    const uint32_t n = b->job->n_datacenters;
    bool crosses = false;
    if (n < 2 || b->config->layout.expert < 2)
        return LH_OK;
    bool *carries = LHI_NEW(b->mem, bool, (size_t)n *n);
    if (!carries)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < b->n_links; i++)
        for (uint32_t g = 0; g < b->places.sites->n_groups; g++) {
            uint32_t pair = find_crossed_pair(b, g, &b->links[i]);
            if (!pair)
                continue;
            carries[find_set_root(b->shared, pair - 1)] = true;
            crosses = true;
        }
    for (uint32_t c = 0; crosses && c < b->n_chunks; c++)
        LHI_TRY(check_tokens(b, c, carries, err));
    return LH_OK;
}

/* Formats the names of the links that the data-parallel ring through a stage's
 * datacenters uses, each link once. */
static void format_ring_name(lhi_layout_builder *b,
                             const lhi_stage_placement *spread, lhi_text *out)
{
    uint32_t pairs[LH_MAX_DATACENTERS], n = 0;
    for (uint32_t i = 0; i < spread->n_sites; i++) {
        const lh_cost_site *next = &spread->sites[(i + 1) % spread->n_sites];
        uint32_t pair = find_set_root(
            b->shared, find_first_pair(b->job, spread->sites[i].datacenter,
                                       next->datacenter));
        uint32_t k = 0;
        while (k < n && pairs[k] != pair)
            k++;
        if (k < n)
            continue;
        char name[LINK_NAME];
        format_link_name(b->job, pair, name);
        lhi_text_printf(out, "%s%s", n ? " + " : "", name);
        pairs[n++] = pair;
    }
}

/* Checks whether two stages' replicas use the same datacenters in the same
 * order, so that their data-parallel rings use the same links. */
static bool have_same_ring(const lhi_stage_placement *a,
                           const lhi_stage_placement *b)
{
    bool same = a->n_sites == b->n_sites;
    for (uint32_t i = 0; same && i < a->n_sites; i++)
        same = a->sites[i].datacenter == b->sites[i].datacenter;
    return same;
}

/* Checks whether a chunk's data-parallel group, of all parameters or of the
 * expert replicas, has ranks on several nodes of one datacenter; result in
 * *leaves. */
static lh_status leaves_node(const lhi_layout_builder *b,
                             const lhi_stage_placement *spread, uint32_t chunk,
                             bool *leaves, lh_error *err)
{
    const lh_layout own =
        lhi_layout_in_datacenter(&b->layout, spread->sites[0].datacenter);
    lh_cost_layer_range slice =
        lhi_config_slice(b->job, b->config, spread, chunk);
    lh_cost_group all, copies;
    slice.datacenter = spread->sites[0].datacenter;
    LHI_TRY(lhi_cost_find_group(b->job, &own, LH_COST_DATA_SHARED, &slice, &all,
                                err));
    LHI_TRY(
        lhi_cost_find_group(b->job, &own, LH_COST_DATA, &slice, &copies, err));
    *leaves = all.size > all.per_node || copies.size > copies.per_node;
    return LH_OK;
}

/* Names the data-parallel link of a chunk's device: the ring between
 * datacenters, else the datacenter's fabric, or the links within a node.
 * Stages with the same ring have one link. */
static lh_status name_dp_link(lhi_layout_builder *b, uint32_t chunk,
                              lh_error *err)
{
    uint32_t d = b->chunks[chunk].device;
    const lhi_stage_placement *spread = &b->places.stages[d];
    lhi_text name = {0};
    if (spread->n_sites > 1 && d > 0 && b->dp_links[d - 1] &&
        have_same_ring(spread, spread - 1)) {
        b->dp_links[d] = b->dp_links[d - 1];
        return LH_OK;
    }
    if (spread->n_sites > 1) {
        format_ring_name(b, spread, &name);
    } else {
        bool leaves;
        LHI_TRY(leaves_node(b, spread, chunk, &leaves, err));
        lhi_text_printf(&name, "%s of %s", leaves ? "fabric" : "node links",
                        b->job->datacenters[spread->sites[0].datacenter].name);
    }
    if (!name.failed)
        b->dp_links[d] = lhi_arena_strdup(b->mem, name.data);
    lhi_text_fini(&name);
    return b->dp_links[d] ? LH_OK : lhi_fail_nomem(err);
}

/* Names the data-parallel link of each device whose chunks gather parameters or
 * reduce gradients. */
static lh_status name_dp_links(lhi_layout_builder *b, lh_error *err)
{
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        const lh_chunk *chunk = &b->chunks[c];
        if (!b->dp_links[chunk->device] &&
            (chunk->all_gather_ns || chunk->reduce_scatter_ns))
            LHI_TRY(name_dp_link(b, c, err));
    }
    return LH_OK;
}

/* Adds the link from device `from` to device `to` to the pipeline unless it
 * exists or both are equal. b->last_link and b->link_before chain each device's
 * links, latest first. */
static lh_status add_hop(lhi_layout_builder *b, uint32_t from, uint32_t to,
                         lh_error *err)
{
    if (from == to)
        return LH_OK;
    for (uint32_t i = b->last_link[from]; i; i = b->link_before[i - 1])
        if (b->links[i - 1].to == to)
            return LH_OK;
    return add_link(b, from, to, err);
}

/* Allocates the builder's arrays in its arena. */
static lh_status allocate_arrays(lhi_layout_builder *b, lh_error *err)
{
    uint32_t P = b->config->layout.pipeline;
    size_t n = b->job->n_datacenters;
    b->shared = LHI_NEW(b->mem, uint32_t, n * n);
    b->chunks = LHI_NEW(b->mem, lh_chunk, 2 * (size_t)b->n_chunks);
    b->links = LHI_NEW(b->mem, lh_link, 2 * (size_t)b->n_chunks);
    b->link_before = LHI_NEW(b->mem, uint32_t, 2 * (size_t)b->n_chunks);
    b->last_link = LHI_NEW(b->mem, uint32_t, P);
    b->optimizer_ns = LHI_NEW(b->mem, int64_t, P);
    b->workspace = LHI_NEW(b->mem, int64_t, P);
    b->buffers = LHI_NEW(b->mem, int64_t, P);
    b->dp_links = LHI_NEW(b->mem, const char *, P);
    if (b->config->layout.group_micro_batches) {
        b->site_costs = LHI_NEW(b->mem, lh_cost, b->n_chunks * n);
        if (!b->site_costs)
            return lhi_fail_nomem(err);
    }
    if (!b->shared || !b->chunks || !b->links || !b->link_before ||
        !b->last_link || !b->optimizer_ns || !b->workspace || !b->buffers ||
        !b->dp_links)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Adds to the iteration overhead the time to reduce the gradient of the matrix
 * shared by embedding and head, if they are on different devices. With two
 * directions the first and the last device have both. */
static lh_status add_tied_embedding(lhi_layout_builder *b, lh_error *err)
{
    uint32_t first = b->chunks[0].device;
    uint32_t last = b->chunks[b->n_chunks - 1].device;
    if (first == last || b->config->placement == LH_PLACEMENT_BD ||
        lhi_is_iteration_end_measured(b->job))
        return LH_OK;
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    int64_t longest = 0;
    for (uint32_t g = 0; g < b->places.sites->n_groups; g++) {
        lh_cost_hop hop = make_hop(b, g, first, last);
        int64_t ns;
        LHI_TRY(lhi_cost_tied_embedding(b->job, &b->config->layout, &hop,
                                        &options, &ns, err));
        longest = lhi_max_int64(longest, ns);
    }
    b->built->overhead_ns += longest;
    return LH_OK;
}

/* Builds the pipeline from the chunks and links. A device's memory limit is the
 * lowest of the datacenters with replicas of its stage. */
static lh_status make_pipeline(lhi_layout_builder *b, lh_error *err)
{
    uint32_t P = b->config->layout.pipeline;
    const bool both = b->config->placement == LH_PLACEMENT_BD;
    int64_t *limits = LHI_NEW(b->mem, int64_t, P);
    uint32_t *at = LHI_NEW(b->mem, uint32_t, P);
    lh_site *sites = LHI_NEW(b->mem, lh_site, b->job->n_datacenters);
    if (!limits || !at || !sites)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < b->job->n_datacenters; i++)
        sites[i].name = b->job->datacenters[i].name;
    for (uint32_t d = 0; d < P; d++) {
        const lhi_stage_placement *spread = &b->places.stages[d];
        at[d] = get_rank(b, 0, d)->datacenter;
        limits[d] = lh_gpu_usable_bytes(&b->job->datacenters[at[d]].gpu);
        /* Every replica must fit in its datacenter. */
        for (uint32_t i = 0; i < spread->n_sites; i++) {
            uint32_t dc = spread->sites[i].datacenter;
            int64_t room = lh_gpu_usable_bytes(&b->job->datacenters[dc].gpu);
            if (room < limits[d])
                limits[d] = room;
        }
        if (b->optimizer_ns[d] > b->built->optimizer_ns)
            b->built->optimizer_ns = b->optimizer_ns[d];
    }
    if (b->site_costs)
        lhi_layout_builder_set_memory(b, limits);
    /* A device's last reduction comes after its last pass. */
    b->built->overhead_ns +=
        lhi_find_iteration_overhead_ns(b->job) + b->late_ns;
    lh_pipeline_desc desc = {
        .size = sizeof desc,
        .n_devices = P,
        .n_microbatches = b->config->microbatches / (both ? 2 : 1),
        .n_chunks = b->n_chunks * (both ? 2 : 1),
        .bidirectional = both,
        .chunks = b->chunks,
        .n_links = b->n_links,
        .links = b->links,
        .memory_limits = limits,
        .memory_unit = "bytes",
        .n_sites = b->job->n_datacenters,
        .sites = sites,
        .device_sites = at,
        .receives = lhi_framework_receives(&b->job->framework,
                                           b->config->layout.chunks_per_device),
        .dp_links = b->dp_links,
        .joint = lhi_layout_joins_backward(b->job, P),
        .overlap_f_b = b->job->framework.overlap_f_b,
        .n_slices = b->job->layout.slices,
        .slice_attention = lhi_find_slice_attention(b->job),
    };
    lh_status status = lh_pipeline_make(&desc, &b->built->pipeline, err);
    if (status != LH_EINPUT)
        return status;
    /* Times or bytes exceed a pipeline's range: other layouts may work. */
    if (err)
        err->code = LH_EUNSUPPORTED;
    return LH_EUNSUPPORTED;
}

/* Places the ranks, then adds chunks, links, data-parallel links and the tied
 * embedding, and builds the pipeline. */
static lh_status build_pipeline(lhi_layout_builder *b, lh_error *err)
{
    const lh_layout *l = &b->config->layout;
    LHI_TRY(allocate_arrays(b, err));
    if (b->known)
        LHI_TRY(lhi_build_cache_place(b->known, b->job, l, &b->places, err));
    else
        LHI_TRY(lhi_layout_place(b->job, l, b->mem, &b->places, err));
    if (b->config->placement == LH_PLACEMENT_BD)
        LHI_TRY(lhi_two_directions_merge_stages(b->job, b->mem, &b->layout,
                                                &b->places, err));
    for (uint32_t c = 0; c < b->n_chunks; c++)
        LHI_TRY(lhi_layout_builder_add_chunk(b, c, err));
    for (uint32_t c = 0; c + 1 < b->n_chunks; c++) {
        LHI_TRY(add_hop(b, b->chunks[c].device, b->chunks[c + 1].device, err));
        LHI_TRY(add_hop(b, b->chunks[c + 1].device, b->chunks[c].device, err));
    }
    LHI_TRY(share_links(b, err));
    LHI_TRY(check_token_links(b, err));
    LHI_TRY(name_dp_links(b, err));
    LHI_TRY(add_tied_embedding(b, err));
    return make_pipeline(b, err);
}

lh_job lhi_config_job(const lh_job *job, const lhi_config *config)
{
    lh_job as_configured = *job;
    as_configured.training.recompute = config->recompute;
    if (config->zero_given)
        as_configured.training.zero = config->zero;
    /* Sharding beyond ZeRO-1 is sent by the elastic plan's own operations. */
    if (config->elastic)
        as_configured.training.zero = 1;
    return as_configured;
}

/* Builds a configuration's pipeline into `built`. `known`: cache of placement
 * and chunk costs; `parts`: receives each device's memory parts; either may be
 * NULL. LH_EUNSUPPORTED: more chunks than layers. */
static lh_status build_config(const lh_job *job, const lhi_config *config,
                              lhi_build_cache *known, lh_plan_memory *parts,
                              lhi_built_layout *built, lh_error *err)
{
    const lh_layout *l = &config->layout;
    lh_job as_configured = lhi_config_job(job, config);
    lhi_layout_builder b = {.job = &as_configured,
                            .config = config,
                            .layout = *l,
                            /* the cache has no costs per datacenter */
                            .known = l->group_micro_batches ? NULL : known,
                            .parts = parts,
                            .built = built};
    uint64_t n_chunks = (uint64_t)l->pipeline * l->chunks_per_device;
    if (n_chunks > job->model->layers && !config->layers)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%" PRIu64 " chunks (pipeline x chunks_per_device) "
                        "exceed the model's %" PRIu32 " layers",
                        n_chunks, job->model->layers);
    if (config->placement == LH_PLACEMENT_BD)
        LHI_TRY(lhi_two_directions_check(&as_configured, config, err));
    b.n_chunks = (uint32_t)n_chunks;
    *built = (lhi_built_layout){0};
    b.mem = lhi_arena_make(0);
    if (!b.mem)
        return lhi_fail_nomem(err);
    lh_status status = build_pipeline(&b, err);
    lhi_arena_free(b.mem);
    return status;
}

lh_status lhi_layout_build(const lh_job *job, const lhi_config *config,
                           lhi_built_layout *built, lh_error *err)
{
    return build_config(job, config, NULL, NULL, built, err);
}

lh_status lhi_layout_build_cached(const lh_job *job, const lhi_config *config,
                                  lhi_build_cache *known,
                                  lhi_built_layout *built, lh_error *err)
{
    return build_config(job, config, known, NULL, built, err);
}

lh_status lhi_layout_memory(const lh_job *job, const lhi_config *config,
                            lh_plan_memory *parts, lh_error *err)
{
    lhi_built_layout built;
    for (uint32_t d = 0; d < config->layout.pipeline; d++)
        parts[d] = (lh_plan_memory){.rank = d};
    LHI_TRY(build_config(job, config, NULL, parts, &built, err));
    lh_pipeline_free(built.pipeline);
    return LH_OK;
}

lh_status lh_plan_pipeline(const lh_job *job, const lh_layout *layout,
                           lh_placement placement, lh_recompute recompute,
                           lh_pipeline **out, int64_t *optimizer_ns,
                           lh_error *err)
{
    lhi_config config = {
        .layout = *layout, .placement = placement, .recompute = recompute};
    lhi_built_layout built;
    if (layout->group_micro_batches && !layout->sites)
        return lhi_fail(err, LH_EINVAL, "group_micro_batches requires sites");
    const uint64_t step = lhi_layout_count_sequences(layout);
    if (!layout->tensor || !layout->context || !layout->expert ||
        !layout->pipeline || !step || !layout->chunks_per_device)
        return lhi_fail(err, LH_EINVAL, "the layout is incomplete");
    if (job->layout.slices == LHI_SLICES_AUTO)
        return lhi_fail(err, LH_EINVAL,
                        "layout.slices of the job is auto; give a number");
    if (recompute == LH_RECOMPUTE_MODULES && !job->training.recompute_modules)
        return lhi_fail(err, LH_EINVAL,
                        "the job names no modules to recompute");
    if (layout->site_tensors && !layout->sites)
        return lhi_fail(err, LH_EINVAL, "site_tensors requires sites");
    const double gpus = (double)lh_layout_gpus(layout);
    if (gpus > job->n_gpus)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the layout needs %.0f GPUs; the job has %" PRIu32,
                        gpus, job->n_gpus);
    if (job->training.global_batch % step != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a global batch of %" PRIu32 " is not divisible by "
                        "data %" PRIu32 " x micro_batch %" PRIu32,
                        job->training.global_batch, layout->data,
                        layout->micro_batch);
    config.microbatches = (uint32_t)(job->training.global_batch / step *
                                     lhi_job_count_slices(job));
    if (placement == LH_PLACEMENT_WAVE && layout->chunks_per_device != 2)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a wave has 2 chunks per device, not %" PRIu32,
                        layout->chunks_per_device);
    config.layers = lhi_layers_requested(job, layout);
    LHI_TRY(lhi_layout_build(job, &config, &built, err));
    *out = built.pipeline;
    if (optimizer_ns)
        *optimizer_ns = built.optimizer_ns + built.overhead_ns;
    return LH_OK;
}
