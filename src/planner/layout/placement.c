/* SPDX-License-Identifier: Apache-2.0 */
/* Places pipeline ranks on datacenters: docs/theory/placement.md. */
#include "planner/layout/equivalence.h"
#include "planner/layout/space.h"

#include "base/integer_math.h"

#include <inttypes.h>

uint32_t lhi_group_size(const lh_layout *layout)
{
    return layout->tensor * layout->context;
}

lh_layout lhi_layout_in_datacenter(const lh_layout *layout, uint32_t datacenter)
{
    lh_layout out = *layout;
    const uint32_t n =
        layout->group_micro_batches ? layout->sites->n_groups : 0;
    for (uint32_t g = 0; g < n; g++)
        if (layout->sites->groups[g].parts[0].datacenter == datacenter)
            out.micro_batch = layout->group_micro_batches[g];
    out.tensor = lh_layout_site_tensor(layout, datacenter);
    return out;
}

lh_layout lhi_layout_on_hop(const lh_layout *layout, uint32_t from, uint32_t to)
{
    lh_layout out = lhi_layout_in_datacenter(layout, from);
    const uint32_t other = lh_layout_site_tensor(layout, to);
    if (other < out.tensor)
        out.tensor = other;
    return out;
}

/* Allocates a placement with n_groups replica groups and n_parts pipeline parts
 * in all. NULL: no memory. */
static lh_sites *make_sites(lhi_arena *mem, uint32_t n_groups, uint32_t n_parts,
                            lh_site_group **groups, lh_site_stages **parts)
{
    lh_sites *sites = LHI_NEW(mem, lh_sites, 1);
    *groups = LHI_NEW(mem, lh_site_group, n_groups);
    *parts = LHI_NEW(mem, lh_site_stages, n_parts);
    if (!sites || !*groups || !*parts)
        return NULL;
    sites->n_groups = n_groups;
    sites->groups = *groups;
    return sites;
}

/* Places the pipeline in the job's order of datacenters: each datacenter takes
 * as many consecutive stages, with all their replicas, as fit. LH_EUNSUPPORTED:
 * some stages do not fit. */
static lh_status place_stages_by_capacity(const lh_job *job, const lh_layout *l,
                                          lhi_arena *mem, const lh_sites **out,
                                          lh_error *err)
{
    uint32_t placed = 0;
    uint64_t stage_gpus = (uint64_t)lhi_group_size(l) * l->data;
    lh_site_group *group;
    lh_site_stages *parts;
    lh_sites *sites = make_sites(mem, 1, job->n_datacenters, &group, &parts);
    if (!sites)
        return lhi_fail_nomem(err);
    *group = (lh_site_group){l->data, 0, parts};
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++) {
        uint64_t room = job->datacenters[dc].gpus / stage_gpus;
        uint64_t left = l->pipeline - placed;
        uint32_t here = (uint32_t)(room < left ? room : left);
        if (here)
            parts[group->n_parts++] = (lh_site_stages){dc, here};
        placed += here;
    }
    if (placed < l->pipeline)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "pipeline %" PRIu32
                        " does not fit: a stage needs %" PRIu64
                        " GPUs (tensor x context x data), and the "
                        "datacenters hold %" PRIu32 " whole stages",
                        l->pipeline, stage_gpus, placed);
    *out = sites;
    return LH_OK;
}

/* Places whole replicas, equally many in each datacenter of the job.
 * LH_EUNSUPPORTED: the numbers do not divide or a datacenter has too few
 * GPUs. */
static lh_status place_replicas_evenly(const lh_job *job, const lh_layout *l,
                                       lhi_arena *mem, const lh_sites **out,
                                       lh_error *err)
{
    uint32_t n = job->n_datacenters;
    uint64_t replica_gpus = (uint64_t)lhi_group_size(l) * l->pipeline;
    lh_site_group *groups;
    lh_site_stages *parts;
    if (l->data % n != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data %" PRIu32 " is not divisible by %" PRIu32
                        " datacenters: with data parallelism outermost, each "
                        "needs the same number of replicas",
                        l->data, n);
    lh_sites *sites = make_sites(mem, n, n, &groups, &parts);
    if (!sites)
        return lhi_fail_nomem(err);
    for (uint32_t dc = 0; dc < n; dc++) {
        uint64_t room = job->datacenters[dc].gpus / replica_gpus;
        if (room < l->data / n)
            return lhi_fail(
                err, LH_EUNSUPPORTED,
                "datacenter %s holds %" PRIu64 " whole replicas of %" PRIu64
                " GPUs, but must hold %" PRIu32,
                job->datacenters[dc].name, room, replica_gpus, l->data / n);
        parts[dc] = (lh_site_stages){dc, l->pipeline};
        groups[dc] = (lh_site_group){l->data / n, 1, &parts[dc]};
    }
    *out = sites;
    return LH_OK;
}

lh_status lhi_sites_default(const lh_job *job, const lh_layout *layout,
                            lhi_arena *mem, const lh_sites **out, lh_error *err)
{
    if (layout->outermost == LH_OUTERMOST_MIXED)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "layout.outermost: mixed requires layout.sites (the "
                        "datacenters of each stage)");
    if (layout->outermost == LH_OUTERMOST_DATA)
        return place_replicas_evenly(job, layout, mem, out, err);
    return place_stages_by_capacity(job, layout, mem, out, err);
}

/* ---- from sites to ranks ---- */

/* State while placing ranks. */
typedef struct placement_builder {
    const lh_job *job;
    const lh_layout *layout;
    const lh_sites *sites;
    lhi_arena *mem;
    lhi_rank_location *ranks;
    lhi_stage_placement *spreads;
    uint64_t *used; /* GPUs, per datacenter */
} placement_builder;

/* GPUs of one pipeline part in its datacenter: equally many blocks of adjacent
 * GPUs, a stage's replicas or a replica's stages (docs/theory/placement.md). */
typedef struct part_gpus {
    uint64_t first; /* first GPU */
    uint64_t
        in_a_block;   /* GPUs from a replica or stage to the next of a block */
    uint64_t spacing; /* GPUs from a block's start to the next */
    uint64_t end;     /* after the last GPU */
    bool shifted;     /* at other GPUs than with dense packing */
} part_gpus;

/* Returns the least distance, in GPUs, between the starts of blocks of `size`
 * GPUs at which every block uses as few nodes of `node` GPUs as possible.
 * Blocks start at multiples of g within a node, the greatest common divisor of
 * distance and `node`; no start adds a node if g > (size - 1) % node. */
static uint64_t align_blocks(uint64_t size, uint64_t node)
{
    uint64_t spacing = size;
    while ((uint64_t)lhi_gcd((int64_t)spacing, (int64_t)node) <=
           (size - 1) % node)
        spacing++;
    return spacing;
}

/* Computes which GPUs of a datacenter a part of the pipeline (consecutive
 * stages) uses with this packing, if the datacenter's first `used` GPUs are
 * taken: first block, distance between blocks, and end. */
static part_gpus find_part_gpus(const lh_job *job, const lh_layout *l,
                                lh_packing packing, uint32_t replicas,
                                const lh_site_stages *part, uint64_t used)
{
    const bool data = lh_layout_rank_order(l) == LH_OUTERMOST_DATA;
    const lh_layout own = lhi_layout_in_datacenter(l, part->datacenter);
    const uint64_t group = lhi_group_size(&own);
    const uint64_t size = group * (data ? part->stages : replicas);
    const uint64_t n = data ? replicas : part->stages;
    const uint64_t node = job->datacenters[part->datacenter].gpus_per_node;
    const bool aligned = packing == LH_PACKING_ALIGNED;
    part_gpus gpus = {.first = used, .in_a_block = group, .spacing = size};
    if (aligned) {
        gpus.first = (used + node - 1) / node * node;
        gpus.spacing = align_blocks(size, node);
    }
    gpus.end = gpus.first + (n - 1) * gpus.spacing + size;
    gpus.shifted = gpus.first != used || (n > 1 && gpus.spacing != size);
    return gpus;
}

bool lhi_packing_matters(const lh_job *job, const lh_layout *l)
{
    const lh_site_stages all = {0, l->pipeline};
    const lh_site_group one = {l->data, 1, &all};
    const lh_sites single = {.n_groups = 1, .groups = &one};
    const lh_sites *sites = job->n_datacenters == 1 ? &single : l->sites;
    bool shifted = false;
    for (uint32_t dc = 0; sites && dc < job->n_datacenters; dc++) {
        uint64_t used = 0;
        for (uint32_t g = 0; g < sites->n_groups; g++)
            for (uint32_t i = 0; i < sites->groups[g].n_parts; i++) {
                const lh_site_group *group = &sites->groups[g];
                if (group->parts[i].datacenter != dc)
                    continue;
                const part_gpus gpus =
                    find_part_gpus(job, l, LH_PACKING_ALIGNED, group->replicas,
                                   &group->parts[i], used);
                shifted = shifted || gpus.shifted;
                used = gpus.end;
            }
        if (used > job->datacenters[dc].gpus)
            return false;
    }
    return shifted;
}

/* Places the consecutive stages of one pipeline part on the next free GPUs of
 * its datacenter. LH_EUNSUPPORTED: it has too few. */
static lh_status place_part(placement_builder *p, const lh_site_group *group,
                            const lh_site_stages *part,
                            lhi_rank_location *ranks, lh_error *err)
{
    const lh_layout *l = p->layout;
    if (part->datacenter >= p->job->n_datacenters)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "stages in datacenter %" PRIu32 " of %" PRIu32,
                        part->datacenter, p->job->n_datacenters);
    const lh_datacenter *dc = &p->job->datacenters[part->datacenter];
    const part_gpus gpus =
        find_part_gpus(p->job, l, l->packing, group->replicas, part,
                       p->used[part->datacenter]);
    /* Numbering of longhaul/experimental/cost.h: replicas are adjacent, or one
     * replica's stages. */
    bool data = lh_layout_rank_order(l) == LH_OUTERMOST_DATA;
    uint64_t stride = data ? gpus.in_a_block : gpus.spacing;
    uint64_t between = data ? gpus.spacing : gpus.in_a_block;
    if (gpus.end > dc->gpus)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "datacenter %s has %" PRIu32 " GPUs, but its stages "
                        "and replicas need %" PRIu64,
                        dc->name, dc->gpus, gpus.end);
    for (uint32_t i = 0; i < part->stages; i++)
        ranks[i] = (lhi_rank_location){part->datacenter,
                                       (uint32_t)(gpus.first + i * stride),
                                       (uint32_t)between};
    p->used[part->datacenter] = gpus.end;
    return LH_OK;
}

/* Places the pipeline stages of replica group `g`, part by part. */
static lh_status place_group(placement_builder *p, uint32_t g, lh_error *err)
{
    const lh_site_group *group = &p->sites->groups[g];
    uint32_t P = p->layout->pipeline, placed = 0;
    for (uint32_t i = 0; i < group->n_parts; i++) {
        const lh_site_stages *part = &group->parts[i];
        if (part->stages > P - placed)
            break;
        LHI_TRY(
            place_part(p, group, part, p->ranks + (size_t)g * P + placed, err));
        placed += part->stages;
        if (i + 1 == group->n_parts && placed == P)
            return LH_OK;
    }
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the stages of group %" PRIu32
                    " of layout.sites do not add up to pipeline %" PRIu32,
                    g + 1, P);
}

/* Places all groups of replicas. LH_EUNSUPPORTED: they do not have the layout's
 * replica count. */
static lh_status place_groups(placement_builder *p, lh_error *err)
{
    uint64_t replicas = 0;
    for (uint32_t g = 0; g < p->sites->n_groups; g++) {
        replicas += p->sites->groups[g].replicas;
        LHI_TRY(place_group(p, g, err));
    }
    if (replicas == p->layout->data)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "layout.sites has %" PRIu64
                    " replicas, but data is %" PRIu32,
                    replicas, p->layout->data);
}

/* ---- replicas of one stage ---- */

/* Checks whether stages `s` and `t` are in the same datacenter in every replica
 * group. */
static bool have_same_datacenters(const placement_builder *p, uint32_t s,
                                  uint32_t t)
{
    uint32_t P = p->layout->pipeline;
    for (uint32_t g = 0; g < p->sites->n_groups; g++)
        if (p->ranks[(size_t)g * P + s].datacenter !=
            p->ranks[(size_t)g * P + t].datacenter)
            return false;
    return true;
}

/* Lists stage `s`'s datacenters with their replica count, in the job's
 * order. */
static lh_status find_stage_placement(placement_builder *p, uint32_t s,
                                      lhi_stage_placement *out, lh_error *err)
{
    uint32_t n = p->job->n_datacenters, P = p->layout->pipeline;
    lh_cost_site *sites = LHI_NEW(p->mem, lh_cost_site, n);
    if (!sites)
        return lhi_fail_nomem(err);
    for (uint32_t dc = 0; dc < n; dc++) {
        lh_cost_site here = {dc, 0};
        for (uint32_t g = 0; g < p->sites->n_groups; g++)
            if (p->ranks[(size_t)g * P + s].datacenter == dc)
                here.replicas += p->sites->groups[g].replicas;
        if (here.replicas)
            sites[out->n_sites++] = here;
    }
    out->sites = sites;
    return LH_OK;
}

/* Lists the blocks of consecutive GPUs on which a stage's replicas lie, sorted
 * by datacenter and then by GPU, into the stage's placement. */
static lh_status find_runs(placement_builder *p, uint32_t s, lh_error *err)
{
    uint32_t n_groups = p->sites->n_groups, P = p->layout->pipeline;
    lh_cost_run *runs = LHI_NEW(p->mem, lh_cost_run, n_groups);
    lhi_stage_placement *stage = &p->spreads[s];
    if (!runs)
        return lhi_fail_nomem(err);
    for (uint32_t g = 0; g < n_groups; g++) {
        const lhi_rank_location *at = &p->ranks[(size_t)g * P + s];
        uint32_t i = g;
        for (; i > 0 && runs[i - 1].datacenter > at->datacenter; i--)
            runs[i] = runs[i - 1];
        runs[i] = (lh_cost_run){at->datacenter, at->first_gpu,
                                p->sites->groups[g].replicas, at->stride};
    }
    stage->n_runs = n_groups;
    stage->runs = runs;
    return LH_OK;
}

lh_cost_layer_range lhi_stage_range(const lhi_stage_placement *spread)
{
    return (lh_cost_layer_range){.n_sites = spread->n_sites,
                                 .sites = spread->sites,
                                 .n_sharing_ranks = spread->sharing,
                                 .n_runs = spread->n_runs,
                                 .runs = spread->runs};
}

/* Checks whether the stage has replicas in datacenter `dc`. */
static bool has_site(const lhi_stage_placement *spread, uint32_t dc)
{
    for (uint32_t i = 0; i < spread->n_sites; i++)
        if (spread->sites[i].datacenter == dc)
            return true;
    return false;
}

/* Checks whether rings through the datacenters of two stages could share a
 * link: they have two datacenters in common. */
static bool may_share_link(const lhi_stage_placement *a,
                           const lhi_stage_placement *b)
{
    uint32_t common = 0;
    for (uint32_t i = 0; i < a->n_sites && common < 2; i++)
        common += has_site(b, a->sites[i].datacenter);
    return common == 2;
}

uint32_t lhi_stage_placement_min_replicas(const lhi_stage_placement *spread)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < spread->n_sites; i++)
        if (spread->sites[i].replicas < least)
            least = spread->sites[i].replicas;
    return least;
}

/* Checks whether the stage's replicas in each of its datacenters include
 * complete sets of experts: their ranks divide into blocks of expert x
 * expert-tensor ranks. */
static bool has_whole_blocks(const lh_job *job, const lh_layout *layout,
                             const lhi_stage_placement *spread)
{
    uint64_t block = lh_layout_expert_block(layout);
    for (uint32_t i = 0; job->model->experts && i < spread->n_sites; i++)
        if ((uint64_t)spread->sites[i].replicas * lhi_group_size(layout) %
            block)
            return false;
    return true;
}

bool lhi_stage_placement_repeats(const lh_job *job, const lh_layout *layout,
                                 const lhi_stage_placement *spread, uint32_t i)
{
    const lh_cost_site *sites = spread->sites;
    if (i > 0 && !has_whole_blocks(job, layout, spread))
        return false;
    for (uint32_t k = 0; k < i; k++)
        if ((layout->sharding <= LH_SHARDING_FULL ||
             sites[k].replicas == sites[i].replicas) &&
            lhi_layout_in_datacenter(layout, sites[k].datacenter).micro_batch ==
                lhi_layout_in_datacenter(layout, sites[i].datacenter)
                    .micro_batch &&
            lhi_datacenters_are_equivalent(job, sites[k].datacenter,
                                           sites[i].datacenter) &&
            lhi_stage_nodes_are_alike(job, layout, spread, sites[k].datacenter,
                                      spread, sites[i].datacenter))
            return true;
    return false;
}

/* Estimates the bytes of gradients and parameters per GPU that a stage's
 * data-parallel ring carries in an iteration. Only the order of datacenters in
 * the ring depends on it. */
static double estimate_ring_bytes(const placement_builder *p,
                                  const lhi_stage_placement *spread)
{
    return 4 * (double)lh_model_params(p->job->model) /
           ((double)p->layout->pipeline * p->layout->tensor *
            p->layout->context * lhi_stage_placement_min_replicas(spread));
}

/* Orders the datacenters of each stage's ring, and counts the stages whose
 * rings share links. The stages form n_runs runs: stages first[i] to first[i +
 * 1] - 1 have the same datacenters. */
static lh_status order_rings(placement_builder *p, const uint32_t *first,
                             uint32_t n_runs, lh_error *err)
{
    for (uint32_t i = 0; i < n_runs; i++) {
        lhi_stage_placement *a = &p->spreads[first[i]];
        for (uint32_t j = 0; j < n_runs; j++)
            if (j == i || may_share_link(a, &p->spreads[first[j]]))
                a->sharing += first[j + 1] - first[j];
        if (a->n_sites > 1)
            LHI_TRY(
                lhi_ring_order(p->job, a->n_sites, (lh_cost_site *)a->sites,
                               (double)lhi_group_size(p->layout) * a->sharing *
                                   lhi_stage_placement_min_replicas(a),
                               estimate_ring_bytes(p, a), err));
    }
    return LH_OK;
}

/* Finds, for each stage, the datacenters and GPUs of its replicas, and the
 * datacenters' order in its ring. */
static lh_status find_stage_placements(placement_builder *p, lh_error *err)
{
    uint32_t P = p->layout->pipeline, n = 0;
    uint32_t *first = LHI_NEW(p->mem, uint32_t, (size_t)P + 1);
    if (!first)
        return lhi_fail_nomem(err);
    for (uint32_t s = 0; s < P; s++) {
        if (s > 0 && have_same_datacenters(p, s - 1, s))
            continue;
        first[n++] = s;
        LHI_TRY(find_stage_placement(p, s, &p->spreads[s], err));
    }
    first[n] = P;
    LHI_TRY(order_rings(p, first, n, err));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t s = first[i] + 1; s < first[i + 1]; s++)
            p->spreads[s] = p->spreads[first[i]];
    for (uint32_t s = 0; s < P; s++)
        LHI_TRY(find_runs(p, s, err));
    return LH_OK;
}

/* Checks that with unequal microbatches all ranks that share experts process
 * equally many tokens, and that with different tensor degrees every GPU
 * sends a part of the activations, which the receiving stage can divide among
 * another number of GPUs. LH_EUNSUPPORTED: some expert group spans datacenters,
 * or every GPU sends whole activations. */
static lh_status check_unequal(const lh_job *job, const lh_layout *l,
                               lh_error *err)
{
    const uint64_t block = lh_layout_expert_block(l);
    if (l->site_tensors && job->framework.no_sequence_parallel)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "different tensor degrees per datacenter require "
                        "framework.sequence_parallel");
    for (uint32_t g = 0; l->group_micro_batches && g < l->sites->n_groups; g++)
        if ((uint64_t)l->sites->groups[g].replicas * lhi_group_size(l) %
                block !=
            0)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "with unequal microbatches the ranks of every "
                            "group in layout.sites must divide into expert "
                            "groups of %" PRIu64,
                            block);
    return LH_OK;
}

lh_status lhi_layout_place(const lh_job *job, const lh_layout *layout,
                           lhi_arena *mem, lhi_layout_placement *out,
                           lh_error *err)
{
    placement_builder p = {
        .job = job, .layout = layout, .sites = layout->sites, .mem = mem};
    LHI_TRY(check_unequal(job, layout, err));
    if (!p.sites)
        LHI_TRY(lhi_sites_default(job, layout, mem, &p.sites, err));
    p.ranks = LHI_NEW(mem, lhi_rank_location,
                      (size_t)p.sites->n_groups * layout->pipeline);
    p.spreads = LHI_NEW(mem, lhi_stage_placement, layout->pipeline);
    p.used = LHI_NEW(mem, uint64_t, job->n_datacenters);
    if (!p.ranks || !p.spreads || !p.used)
        return lhi_fail_nomem(err);
    LHI_TRY(place_groups(&p, err));
    LHI_TRY(find_stage_placements(&p, err));
    *out = (lhi_layout_placement){p.sites, p.ranks, p.spreads};
    return LH_OK;
}

lh_cost_hop lhi_layout_hop(const lhi_layout_placement *places,
                           const lh_layout *layout, uint32_t group,
                           uint32_t from, uint32_t to, uint32_t senders)
{
    const lhi_rank_location *ranks =
        &places->ranks[(size_t)group * layout->pipeline];
    return (lh_cost_hop){.from = ranks[from].datacenter,
                         .to = ranks[to].datacenter,
                         .from_gpu = ranks[from].first_gpu,
                         .to_gpu = ranks[to].first_gpu,
                         .replicas = senders,
                         .peers = places->sites->groups[group].replicas,
                         .stride = ranks[from].stride};
}

void lhi_layer_range(uint32_t layers, uint32_t n_chunks, uint32_t chunk,
                     uint32_t *first, uint32_t *count)
{
    uint32_t each = layers / n_chunks, more = layers % n_chunks;
    /* Chunks from..from+more-1 have one more layer. */
    uint32_t from = (n_chunks - more) / 2;
    uint32_t before = chunk < from          ? 0
                      : chunk < from + more ? chunk - from
                                            : more;
    *first = chunk * each + before;
    *count = each + (chunk >= from && chunk < from + more);
}

const uint32_t *lhi_layers_requested(const lh_job *job, const lh_layout *layout)
{
    uint64_t chunks = (uint64_t)layout->pipeline * layout->chunks_per_device;
    const lh_layout *asked = &job->layout;
    return asked->n_chunk_layers == chunks ? asked->chunk_layers : NULL;
}

uint32_t lhi_layers_requested_min(const lh_job *job)
{
    const lh_layout *asked = &job->layout;
    uint32_t least = asked->n_chunk_layers ? UINT32_MAX : 1;
    for (uint32_t i = 0; i < asked->n_chunk_layers; i++)
        if (asked->chunk_layers[i] < least)
            least = asked->chunk_layers[i];
    return least;
}

uint32_t lhi_layers_requested_empty_chunks(const lh_job *job)
{
    const lh_layout *asked = &job->layout;
    uint32_t n = 0;
    for (uint32_t i = 1; i + 1 < asked->n_chunk_layers; i++)
        n += asked->chunk_layers[i] == 0;
    return n;
}

lh_mtp_location lhi_mtp_is_with_head(const lh_job *job)
{
    return job->layout.mtp_chunk ? LH_MTP_ELSEWHERE : LH_MTP_WITH_HEAD;
}

void lhi_config_layers(uint32_t layers, const lhi_config *config,
                       uint32_t chunk, uint32_t *first, uint32_t *count)
{
    const lh_layout *l = &config->layout;
    if (!config->layers) {
        lhi_layer_range(layers, l->pipeline * l->chunks_per_device, chunk,
                        first, count);
        return;
    }
    *first = 0;
    for (uint32_t c = 0; c < chunk; c++)
        *first += config->layers[c];
    *count = config->layers[chunk];
}

uint32_t lhi_config_device(const lhi_config *config, uint32_t chunk)
{
    uint32_t P = config->layout.pipeline;
    if (chunk >= P && (config->placement == LH_PLACEMENT_WAVE ||
                       config->placement == LH_PLACEMENT_BD))
        return 2 * P - 1 - chunk;
    return chunk % P;
}

lh_status lhi_state_sites(const lh_job *job, const lh_layout *l, uint32_t zero,
                          uint32_t *sites, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_layout_placement places;
    lh_status status =
        mem ? lhi_layout_place(job, l, mem, &places, err) : lhi_fail_nomem(err);
    for (uint32_t stage = 0; status == LH_OK && stage < l->pipeline; stage++) {
        uint32_t replica = 0;
        for (uint32_t g = 0; g < places.sites->n_groups; g++) {
            uint32_t at =
                places.ranks[(size_t)g * l->pipeline + stage].datacenter;
            for (uint32_t k = 0; k < places.sites->groups[g].replicas; k++) {
                sites[(size_t)stage * l->data + replica] = zero ? at : replica;
                replica++;
            }
        }
    }
    lhi_arena_free(mem);
    return status;
}
