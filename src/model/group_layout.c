/* SPDX-License-Identifier: Apache-2.0 */
#include "model/group_layout.h"

#include "base/fail.h"
#include "base/integer_math.h"

#include <inttypes.h>
#include <math.h>

/* ---- the stage ---- */

lh_status lhi_check_replica_sites(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_layer_range *slice,
                                  lh_error *err)
{
    uint64_t replicas = 0;

    for (uint32_t i = 0; i < slice->n_sites; i++) {
        if (slice->sites[i].datacenter >= job->n_datacenters ||
            !slice->sites[i].replicas)
            return lhi_fail(
                err, LH_EINVAL,
                "replicas are assigned to a datacenter that the "
                "job does not have, or a listed datacenter has none");
        replicas += slice->sites[i].replicas;
    }
    if (replicas != layout->data)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu64 " replicas in all datacenters, but data is "
                        "%" PRIu32,
                        replicas, layout->data);
    return LH_OK;
}

lh_status lhi_check_even_spread(const lh_job *job, const lh_layout *layout,
                                const lh_cost_layer_range *slice,
                                uint32_t datacenters, lh_error *err)
{
    if (slice->datacenter >= job->n_datacenters ||
        datacenters > job->n_datacenters - slice->datacenter)
        return lhi_fail(err, LH_EINVAL,
                        "a layer range is in a datacenter that the job does "
                        "not have");
    if (layout->data % datacenters)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data (%" PRIu32 ") does not "
                        "divide over %" PRIu32 " datacenters",
                        layout->data, datacenters);
    return LH_OK;
}

/* Inserts a datacenter into f->sites, which has n entries in the job's order,
 * in which ranks are numbered; the layer range lists them in ring order. */
static void insert_site(lhi_group_layout *f, uint32_t n, lh_cost_site site)
{
    while (n > 0 && f->sites[n - 1].datacenter > site.datacenter) {
        f->sites[n] = f->sites[n - 1];
        n--;
    }
    f->sites[n] = site;
}

/* Lists the stage's datacenters with their replica counts in f->sites, in
 * the job's order. */
static lh_status list_sites(const lh_layout *layout,
                            const lh_cost_layer_range *slice,
                            lhi_group_layout *f, lh_error *err)
{
    uint32_t dcs = slice->data_datacenters ? slice->data_datacenters : 1;

    if (slice->n_sites > LH_MAX_DATACENTERS)
        return lhi_fail(err, LH_EINVAL, "replicas in more than %u datacenters",
                        LH_MAX_DATACENTERS);
    if (slice->n_sites) {
        LHI_TRY(lhi_check_replica_sites(f->job, layout, slice, err));
        f->n_sites = slice->n_sites;
        for (uint32_t i = 0; i < f->n_sites; i++)
            insert_site(f, i, slice->sites[i]);
        return LH_OK;
    }
    LHI_TRY(lhi_check_even_spread(f->job, layout, slice, dcs, err));
    f->n_sites = dcs;
    for (uint32_t i = 0; i < dcs; i++)
        f->sites[i] = (lh_cost_site){slice->datacenter + i, layout->data / dcs};
    return LH_OK;
}

lh_status lhi_group_layout_build(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 lhi_group_layout *out, lh_error *err)
{
    uint64_t replica = (uint64_t)layout->tensor * layout->context;

    *out = (lhi_group_layout){.job = job,
                              .expert = layout->expert,
                              .tensor = lh_layout_expert_tensor(layout),
                              .block = lh_layout_expert_block(layout),
                              .ranks = replica * layout->data,
                              .replica = replica,
                              .layout = layout,
                              .n_runs = slice->n_runs,
                              .runs = slice->runs,
                              .sharing = slice->n_sharing_ranks
                                             ? slice->n_sharing_ranks
                                             : layout->pipeline};
    out->matches_dense_layers =
        layout->expert == 1 && out->tensor == layout->tensor;
    return list_sites(layout, slice, out, err);
}

/* Returns the number of the stage's ranks in the datacenters before number
 * `site`. */
static uint64_t count_ranks_before(const lhi_group_layout *f, uint32_t site)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < site; i++)
        n += f->sites[i].replicas * f->replica;
    return n;
}

/* Returns the nodes of the stage's ranks in datacenter number `site`. */
static lhi_stage_nodes find_nodes(const lhi_group_layout *f, uint32_t site)
{
    const lh_cost_layer_range range = {.n_runs = f->n_runs, .runs = f->runs};
    lhi_stage_nodes nodes;

    lhi_stage_nodes_find(f->job, f->layout, &range, f->sites[site].datacenter,
                         f->sites[site].replicas, &nodes);
    return nodes;
}

/* Returns the index, among the stage's sites, of a datacenter; 0 if it is not
 * one of them. */
static uint32_t find_site(const lhi_group_layout *f, uint32_t datacenter)
{
    uint32_t site = 0;

    while (site < f->n_sites && f->sites[site].datacenter != datacenter)
        site++;
    return site < f->n_sites ? site : 0;
}

/* ---- blocks ---- */

uint64_t lhi_group_layout_find_node(const lhi_group_layout *f,
                                    uint32_t datacenter, uint64_t rank)
{
    lhi_stage_nodes nodes = find_nodes(f, find_site(f, datacenter));

    return lhi_stage_nodes_find_node(&nodes, rank);
}

/* Counts the nodes of the groups of ranks `step` apart among the datacenter's
 * ranks low to high - 1. Returns the most nodes of any group and the fewest
 * members of any group on one node. */
static lhi_node_count count_nodes(const lhi_stage_nodes *nodes, uint64_t low,
                                  uint64_t high, uint32_t step)
{
    bool aligned = low % step == 0 && lhi_stage_nodes_are_aligned(nodes, step);
    lhi_node_count worst = {0, 0};

    for (uint64_t i = 0; i < (aligned ? 1 : step) && low + i < high; i++)
        lhi_node_count_add(
            &worst, lhi_stage_nodes_count(nodes, low + i, step,
                                          (high - low - i + step - 1) / step));
    return worst;
}

/* Finds the members, `tensor` ranks apart, of a group in the expert block that
 * begins at rank `first`, per datacenter. A block is the consecutive ranks that
 * together hold every expert once. */
static void find_members(const lhi_group_layout *f, uint64_t first,
                         lhi_group_members *out)
{
    uint64_t from = 0;

    out->size = f->expert;
    out->n = 0;
    for (uint32_t i = 0; i < f->n_sites; i++) {
        uint64_t to = from + f->sites[i].replicas * f->replica;
        uint64_t low = first > from ? first : from;
        uint64_t end = first + f->block, high = end < to ? end : to;

        if (low < high) {
            uint32_t dc = f->sites[i].datacenter;
            lhi_site_members *p = &out->at[out->n++];
            lhi_stage_nodes nodes = find_nodes(f, i);
            lhi_node_count count =
                count_nodes(&nodes, low - from, high - from, f->tensor);

            p->datacenter = dc;
            p->members = (double)(high - low) / f->tensor;
            p->fewest_per_node = fmin(p->members, (double)count.fewest);
            p->nodes = (double)count.nodes;
            p->senders = (double)(high - low) * f->sharing;
        }
        from = to;
    }
}

/* Returns the greatest common divisor. */
static uint64_t find_gcd(uint64_t a, uint64_t b)
{
    return (uint64_t)lhi_gcd((int64_t)a, (int64_t)b);
}

/* Returns in *first the first rank of the i-th expert block with ranks in the
 * datacenter; false: there are no more. For each run of replicas it lists the
 * first block, the following ones until their positions on nodes repeat, and
 * the last. */
static bool find_block(const lhi_group_layout *f, uint32_t datacenter,
                       uint64_t i, uint64_t *first)
{
    uint32_t site = find_site(f, datacenter);
    lhi_stage_nodes nodes = find_nodes(f, site);
    uint64_t low = count_ranks_before(f, site);

    for (uint32_t run = 0; run < nodes.n_runs; run++) {
        uint64_t period = lhi_stage_nodes_find_period(&nodes, run);
        uint64_t high = low + lhi_stage_nodes_count_ranks(&nodes, run);
        uint64_t from = low / f->block, to = (high - 1) / f->block, n;

        period /= find_gcd(period, f->block);
        n = to - from < period + 1 ? to - from : period + 1;
        if (i <= n) {
            *first = (i == n ? to : from + i) * f->block;
            return true;
        }
        i -= n + 1;
        low = high;
    }
    return false;
}

bool lhi_group_layout_find_dispatch_group(const lhi_group_layout *groups,
                                          uint32_t datacenter, uint32_t i,
                                          lhi_group_members *out)
{
    uint64_t first;

    if (!find_block(groups, datacenter, i, &first))
        return false;
    find_members(groups, first, out);
    return true;
}

/* Checks whether an expert block crosses the boundary before datacenter number
 * `site`, and no earlier boundary. */
static bool crosses_boundary(const lhi_group_layout *f, uint32_t site)
{
    uint64_t rank = count_ranks_before(f, site), before;

    if (site == 0 || rank % f->block == 0)
        return false;
    before = count_ranks_before(f, site - 1);
    return before / f->block != rank / f->block || before % f->block == 0;
}

bool lhi_group_layout_find_spanning_group(const lhi_group_layout *groups,
                                          uint32_t i, lhi_group_members *out)
{
    for (uint32_t site = 1; site < groups->n_sites; site++)
        if (crosses_boundary(groups, site) && i-- == 0) {
            uint64_t rank = count_ranks_before(groups, site);

            find_members(groups, rank - rank % groups->block, out);
            return true;
        }
    return false;
}

bool lhi_group_layout_find_sharing_group(const lhi_group_layout *groups,
                                         uint32_t datacenter, uint32_t i,
                                         lhi_group_members *out)
{
    lhi_group_layout one = *groups;

    one.block = one.expert = groups->tensor;
    one.tensor = 1;
    return lhi_group_layout_find_dispatch_group(&one, datacenter, i, out);
}

bool lhi_group_layout_sharing_is_intra_node(const lhi_group_layout *groups,
                                            uint32_t datacenter)
{
    return groups->job->datacenters[datacenter].gpus_per_node %
                   groups->tensor ==
               0 &&
           groups->replica % groups->tensor == 0;
}

/* ---- replicas of experts ---- */

/* Counts the ranks start, start + block, ... (replicas of one expert rank) that
 * are below `rank`. */
static uint64_t count_replicas_before(const lhi_group_layout *f, uint64_t start,
                                      uint64_t rank)
{
    return rank > start ? (rank - start + f->block - 1) / f->block : 0;
}

/* Returns where expert replica groups of number `kind` begin: the position
 * within its expert block (ranks that hold every expert once) of the first rank
 * in datacenter number `kind`. */
static uint64_t find_kind_start(const lhi_group_layout *f, uint32_t kind)
{
    return count_ranks_before(f, kind) % f->block;
}

/* Counts the positions in an expert block (ranks that hold every expert once),
 * from find_kind_start() on, whose replicas are spread over the datacenters in
 * the same way. 0: an earlier kind has these positions. */
static uint64_t count_equal_positions(const lhi_group_layout *f, uint32_t kind)
{
    uint64_t start = find_kind_start(f, kind), end = f->block;

    for (uint32_t i = 0; i < f->n_sites; i++) {
        uint64_t other = find_kind_start(f, i);

        if (i < kind && other == start)
            return 0;
        if (other > start && other < end)
            end = other;
    }
    return end - start;
}

void lhi_group_layout_find_site_replicas(const lhi_group_layout *f,
                                         const lhi_expert_replicas *kind,
                                         const lh_cost_site *site,
                                         lh_cost_group *out)
{
    uint32_t at = find_site(f, site->datacenter);
    lhi_stage_nodes nodes = find_nodes(f, at);
    uint64_t from = count_ranks_before(f, at) % f->block;
    lhi_node_count worst = {0, 0};

    for (uint64_t i = 0; i < kind->n; i++)
        lhi_node_count_add(
            &worst, lhi_stage_nodes_count(
                        &nodes, (kind->start + i + f->block - from) % f->block,
                        f->block, site->replicas));
    *out = (lh_cost_group){.size = site->replicas,
                           .per_node = (uint32_t)worst.fewest,
                           .per_datacenter = site->replicas,
                           .datacenter = site->datacenter,
                           .concurrent = 1,
                           .nodes = (uint32_t)worst.nodes};
}

/* Finds the expert replica groups of number `kind`: ranks with the same
 * experts, whose groups are spread equally over the datacenters. They have the
 * same position in all expert blocks (ranks that hold every expert once). */
static void find_replica_groups(const lhi_group_layout *f, uint32_t kind,
                                lhi_expert_replicas *out)
{
    uint64_t start = find_kind_start(f, kind), from = 0;
    lh_cost_group *g = &out->group;
    uint32_t n = 0;

    *g = (lh_cost_group){.size = (uint32_t)(f->ranks / f->block),
                         .per_node = UINT32_MAX,
                         .per_datacenter = UINT32_MAX,
                         .concurrent = 1};
    out->n = count_equal_positions(f, kind);
    out->start = start;
    if (!out->n)
        return;
    for (uint32_t i = 0; i < f->n_sites; i++) {
        uint64_t to = from + f->sites[i].replicas * f->replica;
        uint64_t here = count_replicas_before(f, start, to) -
                        count_replicas_before(f, start, from);
        lh_cost_group at;

        from = to;
        if (!here)
            continue;
        out->sites[n] = (lh_cost_site){f->sites[i].datacenter, (uint32_t)here};
        lhi_group_layout_find_site_replicas(f, out, &out->sites[n++], &at);
        if (at.size < g->per_datacenter)
            g->per_datacenter = at.size;
        if (at.per_node < g->per_node)
            g->per_node = at.per_node;
        if (at.nodes > g->nodes)
            g->nodes = at.nodes;
    }
    g->datacenter = out->sites[0].datacenter;
    if (n > 1) {
        g->n_sites = n;
        g->sites = out->sites;
    }
}

/* Counts the data-parallel rings of experts that run between datacenters at
 * once. A group consists of the GPUs with the same experts; same-kind groups
 * have equally many members in each datacenter. A group has as many rings as
 * members in the datacenter with the fewest of them, because each ring needs
 * its own member in every datacenter. */
static double count_rings(const lhi_group_layout *f)
{
    lhi_expert_replicas c;
    double rings = 0;

    for (uint32_t i = 0; i < f->n_sites; i++) {
        find_replica_groups(f, i, &c);
        if (c.n && c.group.n_sites > 1)
            rings += (double)c.n * c.group.per_datacenter;
    }
    return rings * f->sharing;
}

bool lhi_group_layout_find_replicas(const lhi_group_layout *groups, uint32_t i,
                                    lhi_expert_replicas *out)
{
    if (i >= groups->n_sites)
        return false;
    find_replica_groups(groups, i, out);
    if (out->n && out->group.n_sites > 1)
        out->group.concurrent = (uint32_t)fmin(UINT32_MAX, count_rings(groups));
    return true;
}

/* ---- public interface ---- */

/* Finds, among the process groups of experts along `dimension` (dispatch or
 * sharing of experts) with a member in the datacenter, the one that spans most
 * datacenters. */
static void find_widest_group(const lhi_group_layout *groups,
                              lh_cost_dimension dimension, uint32_t datacenter,
                              lhi_group_members *out)
{
    lhi_group_members m;

    out->n = 0;
    for (uint32_t i = 0;
         dimension == LH_COST_EXPERT
             ? lhi_group_layout_find_dispatch_group(groups, datacenter, i, &m)
             : lhi_group_layout_find_sharing_group(groups, datacenter, i, &m);
         i++)
        if (m.n > out->n)
            *out = m;
}

/* Fills *out, the process group of experts along `dimension`, from the group
 * that spans most datacenters. The range `slice` gives the datacenter in which
 * it has members. */
static void fill_group(const lhi_group_layout *groups,
                       lh_cost_dimension dimension,
                       const lh_cost_layer_range *slice, lh_cost_group *out)
{
    double near = INFINITY, here = INFINITY, nodes = 0, senders = 1;
    lhi_group_members m;

    find_widest_group(groups, dimension, slice->datacenter, &m);
    for (uint32_t i = 0; i < m.n; i++) {
        near = fmin(near, m.at[i].fewest_per_node);
        here = fmin(here, m.at[i].members);
        nodes = fmax(nodes, m.at[i].nodes);
        if (m.n > 1)
            senders = fmax(senders, m.at[i].senders);
    }
    *out = (lh_cost_group){.size = (uint32_t)m.size,
                           .per_node = (uint32_t)fmax(1, near),
                           .per_datacenter = (uint32_t)fmax(1, here),
                           .datacenter = m.at[0].datacenter,
                           .concurrent = (uint32_t)senders,
                           .nodes = (uint32_t)nodes};
}

lh_status lhi_group_layout_compute_group(const lhi_group_layout *groups,
                                         lh_cost_dimension dimension,
                                         const lh_cost_layer_range *slice,
                                         lh_cost_group *out, lh_error *err)
{
    lhi_expert_replicas c, widest;

    if (dimension != LH_COST_DATA) {
        fill_group(groups, dimension, slice, out);
    } else {
        widest.group.n_sites = 0;
        for (uint32_t i = 0; lhi_group_layout_find_replicas(groups, i, &c); i++)
            if (i == 0 || (c.n && c.group.n_sites > widest.group.n_sites))
                widest = c;
        *out = widest.group;
        out->sites = NULL;
        out->n_sites = 0;
    }
    if (out->size <= out->per_datacenter)
        return LH_OK;
    if (slice->n_sites &&
        (uint64_t)out->per_datacenter * slice->n_sites > out->size)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "groups of experts lie unevenly over the slice's "
                        "datacenters, and differ");
    out->n_sites = slice->n_sites;
    out->sites = slice->sites;
    return LH_OK;
}
