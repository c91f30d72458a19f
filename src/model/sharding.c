/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication [Raj section 7] within and between datacenters.
 */
#include "model/sharding.h"

#include "base/fail.h"
#include "format/job/job_values.h"
#include "model/collective.h"

#include <math.h>

/* A computation's inputs. */
typedef struct sharding_context {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_layer_range *slice;
    const lh_cost_options *options;
    lhi_ecmp_cache *known;
    const lhi_group_layout *groups;  /* of experts; NULL: as all other layers */
    const lhi_expert_replicas *kind; /* with `groups`: the groups in question */
} sharding_context;

/* Finds the data-parallel group of the members in one datacenter: the group of
 * experts if the context has an expert layout, else of dense layers. */
static void find_site_group(const sharding_context *s, const lh_cost_site *site,
                            lh_cost_group *out)
{
    if (s->groups)
        lhi_group_layout_find_site_replicas(s->groups, s->kind, site, out);
    else
        lhi_compute_site_group(s->job, s->layout, s->slice, site, out);
}

/* Returns the number of datacenters over which a group's members are spread. */
static uint32_t count_datacenters(const lh_cost_group *group)
{
    return group->n_sites > 1 ? group->n_sites
                              : group->size / group->per_datacenter;
}

/* Adds the transfer and latency times (ns) of collective *what to those of
 * collective *to. */
static void add_times(lhi_collective *to, const lhi_collective *what)
{
    to->transfer += what->transfer;
    to->latency += what->latency;
}

/* Computes the time of a collective of `bytes` bytes in a group within one
 * datacenter. */
static lh_status compute_site_time(const sharding_context *s,
                                   lh_collective_kind kind,
                                   const lh_cost_group *group, double bytes,
                                   lhi_collective *out, lh_error *err)
{
    lh_cost_path path;

    *out = (lhi_collective){0};
    if (group->size < 2)
        return LH_OK;
    LHI_TRY(lhi_compute_group_path(s->job, group, s->options, s->known, &path,
                                   err));
    lhi_cost_collective_ring(s->options->rings, kind, group->size, bytes, &path,
                             &out->transfer, &out->latency);
    return LH_OK;
}

/* Computes the time of a collective of `bytes` bytes inside the slowest of the
 * group's datacenters. */
static lh_status compute_slowest_site_time(const sharding_context *s,
                                           lh_collective_kind kind,
                                           const lh_cost_group *group,
                                           double bytes, lhi_collective *out,
                                           lh_error *err)
{
    lh_cost_group inner = *group;

    *out = (lhi_collective){0};
    if (group->n_sites < 2) {
        inner.size = group->per_datacenter;
        return compute_site_time(s, kind, &inner, bytes, out, err);
    }
    for (uint32_t i = 0; i < group->n_sites; i++) {
        lhi_collective here;

        find_site_group(s, &group->sites[i], &inner);
        LHI_TRY(compute_site_time(s, kind, &inner, bytes, &here, err));
        if (here.transfer + here.latency > out->transfer + out->latency)
            *out = here;
    }
    return LH_OK;
}

/* Computes the time of a collective of `bytes` bytes per ring over one ring
 * through the n `sites`, with `rings` equal rings running concurrently. */
static lh_status compute_ring_time(const sharding_context *s,
                                   lh_collective_kind kind,
                                   const lh_cost_site *sites, uint32_t n,
                                   double rings, double bytes,
                                   lhi_collective *out, lh_error *err)
{
    lh_cost_group ring = {.size = n,
                          .per_node = 1,
                          .per_datacenter = 1,
                          .datacenter = sites[0].datacenter,
                          .concurrent = (uint32_t)fmin(UINT32_MAX, rings),
                          .n_sites = n,
                          .sites = sites};
    lh_cost_path path;

    *out = (lhi_collective){0};
    if (n < 2)
        return LH_OK;
    LHI_TRY(lhi_compute_group_path(s->job, &ring, s->options, s->known, &path,
                                   err));
    lhi_cost_collective_ring(s->options->rings, kind, n, bytes, &path,
                             &out->transfer, &out->latency);
    return LH_OK;
}

/* Returns the index in the job of a group's i-th datacenter. */
static uint32_t get_datacenter(const lh_cost_group *group, uint32_t i)
{
    return group->n_sites > 1 ? group->sites[i].datacenter
                              : group->datacenter + i;
}

/* Lists in zones[] the zones of the same datacenter as entry i of a group's n
 * datacenters. Returns their number, or 0 if an earlier entry is one of them.
 */
static uint32_t find_zones(const sharding_context *s,
                           const lh_cost_group *group, uint32_t n, uint32_t i,
                           lh_cost_site *zones)
{
    uint32_t first = get_datacenter(group, i), count = 0;

    for (uint32_t k = 0; k < n; k++) {
        uint32_t dc = get_datacenter(group, k);

        if (k != i && !lhi_are_zones_of_same_datacenter(s->job, first, dc))
            continue;
        if (k < i)
            return 0;
        zones[count++] = (lh_cost_site){dc, 1};
    }
    return count;
}

/* Computes the time of a collective of `bytes` bytes between datacenters, with
 * one member in each. As many rings run concurrently as a datacenter has
 * members, or with `one_ring` a single one, whose few members alone pay the
 * long latency. Zones of a datacenter communicate among themselves first, then
 * the remaining share of each between datacenters. */
static lh_status compute_time_between(const sharding_context *s,
                                      lh_collective_kind kind,
                                      const lh_cost_group *group, double bytes,
                                      bool one_ring, lhi_collective *out,
                                      lh_error *err)
{
    uint32_t n = count_datacenters(group), n_sites = 0, fewest = UINT32_MAX;
    lh_cost_site sites[LH_MAX_DATACENTERS], zones[LH_MAX_DATACENTERS];
    double rings = group->concurrent ? group->concurrent : 1;
    lhi_collective far;

    *out = (lhi_collective){0};
    if (n < 2)
        return LH_OK;
    if (one_ring)
        rings = group->concurrent / group->per_datacenter;
    else
        bytes /= group->per_datacenter;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = find_zones(s, group, n, i, zones);
        lhi_collective here;

        if (!count)
            continue;
        LHI_TRY(
            compute_ring_time(s, kind, zones, count, rings, bytes, &here, err));
        if (here.transfer + here.latency > out->transfer + out->latency)
            *out = here;
        sites[n_sites++] = zones[0];
        fewest = count < fewest ? count : fewest;
    }
    LHI_TRY(compute_ring_time(s, kind, sites, n_sites, rings * fewest,
                              bytes / fewest, &far, err));
    add_times(out, &far);
    return LH_OK;
}

/* Adds to *sum the time of a collective of `bytes` bytes with full sharding
 * over all datacenters: first inside each datacenter, then the shards between
 * them. */
static lh_status add_full_sharding(const sharding_context *s,
                                   lh_collective_kind kind,
                                   const lh_cost_group *group, double bytes,
                                   lhi_collective *sum, lh_error *err)
{
    lhi_collective part;

    LHI_TRY(compute_slowest_site_time(s, kind, group, bytes, &part, err));
    add_times(sum, &part);
    LHI_TRY(compute_time_between(s, kind, group, bytes, false, &part, err));
    add_times(sum, &part);
    return LH_OK;
}

/* Adds to *sum the times with hybrid sharding: state is sharded inside each
 * datacenter (gather_bytes, reduce_bytes), and gradients are summed between
 * datacenters [SX section 4.1, there for two]. */
static lh_status add_hybrid_sharding(const sharding_context *s,
                                     const lh_cost_group *group,
                                     double gather_bytes, double reduce_bytes,
                                     lhi_data_times *sum, lh_error *err)
{
    bool leaders = s->layout->sharding == LH_SHARDING_HYBRID_LEADERS;
    lhi_collective part;

    LHI_TRY(compute_slowest_site_time(s, LH_ALL_GATHER, group, gather_bytes,
                                      &part, err));
    add_times(&sum->gather, &part);
    LHI_TRY(compute_slowest_site_time(s, LH_REDUCE_SCATTER, group, reduce_bytes,
                                      &part, err));
    add_times(&sum->reduce, &part);
    LHI_TRY(compute_time_between(s, LH_ALL_REDUCE, group, reduce_bytes, leaders,
                                 &part, err));
    add_times(&sum->between, &part);
    return LH_OK;
}

/* Adds the data-parallel times for `params` parameters of a group to *sum;
 * `in_8_bits` of them are gathered in 8 bits. */
static lh_status add_group_times(const sharding_context *s,
                                 const lh_cost_group *group, double params,
                                 double in_8_bits, lhi_data_times *sum,
                                 lh_error *err)
{
    uint32_t zero = s->job->training.zero;
    double element = lhi_precision_bytes(s->job->training.precision);
    double gather = params * element - in_8_bits * (element - 1);
    double reduce = params * s->options->gradient_wire_bytes;

    if (group->size < 2 || params <= 0)
        return LH_OK;
    if (zero && s->layout->sharding > LH_SHARDING_FULL &&
        count_datacenters(group) > 1)
        return add_hybrid_sharding(s, group, gather, reduce, sum, err);
    if (!zero)
        return add_full_sharding(s, LH_ALL_REDUCE, group, reduce, &sum->reduce,
                                 err);
    LHI_TRY(
        add_full_sharding(s, LH_ALL_GATHER, group, gather, &sum->gather, err));
    return add_full_sharding(s, LH_REDUCE_SCATTER, group, reduce, &sum->reduce,
                             err);
}

/* Sets the transfer time and the latency of *to to the larger values of *to and
 * *what. */
static void take_slower(lhi_collective *to, const lhi_collective *what)
{
    to->transfer = fmax(to->transfer, what->transfer);
    to->latency = fmax(to->latency, what->latency);
}

/* Adds the gather and reduction times of `params` expert parameters. If replica
 * groups differ, the slowest counts in each component, since all groups wait
 * for it. */
static lh_status add_expert_times(sharding_context *s, double params,
                                  lhi_data_times *sum, lh_error *err)
{
    lhi_data_times slowest = {0};
    lhi_expert_replicas c;

    for (uint32_t i = 0; lhi_group_layout_find_replicas(s->groups, i, &c);
         i++) {
        lhi_data_times here = {0};

        if (!c.n)
            continue;
        s->kind = &c;
        LHI_TRY(add_group_times(s, &c.group, params, 0, &here, err));
        take_slower(&slowest.gather, &here.gather);
        take_slower(&slowest.reduce, &here.reduce);
        take_slower(&slowest.between, &here.between);
    }
    s->kind = NULL;
    add_times(&sum->gather, &slowest.gather);
    add_times(&sum->reduce, &slowest.reduce);
    add_times(&sum->between, &slowest.between);
    return LH_OK;
}

lh_status lhi_compute_data_times(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options,
                                 const lhi_params *params,
                                 lhi_ecmp_cache *known, lhi_data_times *out,
                                 lh_error *err)
{
    sharding_context s = {job, layout, slice, options, known, NULL, NULL};
    lh_cost_group group;
    lhi_group_layout groups;

    *out = (lhi_data_times){0};
    LHI_TRY(lhi_cost_find_group(job, layout, LH_COST_DATA_SHARED, slice, &group,
                                err));
    LHI_TRY(add_group_times(&s, &group, params->total - params->experts,
                            params->in_8_bits, out, err));
    if (!(params->experts > 0))
        return LH_OK;
    LHI_TRY(lhi_group_layout_build(job, layout, slice, &groups, err));
    if (groups.matches_dense_layers)
        return add_group_times(&s, &group, params->experts, 0, out, err);
    s.groups = &groups;
    return add_expert_times(&s, params->experts, out, err);
}

/* Computes the data-parallel collective times for one part of a layer range
 * (embedding, layer or head), into *out. Subtracts the parameters of range
 * `without`, if not NULL. */
static lh_status compute_part_time(const sharding_context *s,
                                   const lhi_shape *shape,
                                   const lh_cost_layer_range *part,
                                   const lh_cost_layer_range *without,
                                   lhi_data_times *out, lh_error *err)
{
    lhi_params params, less = {0};

    lhi_count_slice_params(shape, part, &params);
    if (without)
        lhi_count_slice_params(shape, without, &less);
    params.total = fmax(0, params.total - less.total);
    params.experts = fmax(0, params.experts - less.experts);
    params.in_8_bits = fmax(0, params.in_8_bits - less.in_8_bits);
    return lhi_compute_data_times(s->job, s->layout, s->slice, s->options,
                                  &params, s->known, out, err);
}

lh_status lhi_compute_part_times(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options,
                                 const lhi_shape *shape, lhi_ecmp_cache *known,
                                 lhi_part_times *out, lh_error *err)
{
    sharding_context s = {job, layout, slice, options, known, NULL, NULL};
    lh_cost_layer_range embedding = {.embedding = slice->embedding};
    lh_cost_layer_range ends = {
        .embedding = slice->embedding, .head = slice->head, .mtp = slice->mtp};
    lhi_part_times times = {0};
    bool made[LHI_LAYER_KINDS] = {false};

    for (uint32_t i = 0; i < slice->n_layers; i++) {
        lh_cost_layer_range one = {.first_layer = slice->first_layer + i,
                                   .n_layers = 1};
        uint32_t kind = lhi_find_layer_kind(job->model, one.first_layer);

        if (!made[kind])
            LHI_TRY(compute_part_time(&s, shape, &one, NULL,
                                      &times.layers[kind], err));
        made[kind] = true;
    }
    if (slice->embedding)
        LHI_TRY(compute_part_time(&s, shape, &embedding, NULL, &times.embedding,
                                  err));
    /* A matrix shared by both ends is sent once. */
    if (lhi_slice_has_end(slice))
        LHI_TRY(
            compute_part_time(&s, shape, &ends, &embedding, &times.head, err));
    *out = times;
    return LH_OK;
}

void lhi_find_part_times(const lh_job *job, const lh_cost_layer_range *slice,
                         const lhi_part_times *times, uint32_t i,
                         double *gather, double *reduce)
{
    const lhi_data_times *sent = &times->embedding;
    const uint32_t layer = slice->first_layer + i - 1;

    if (i > slice->n_layers)
        sent = &times->head;
    else if (i > 0)
        sent = &times->layers[lhi_find_layer_kind(job->model, layer)];
    *gather = sent->gather.transfer + sent->gather.latency;
    *reduce = sent->reduce.transfer + sent->reduce.latency;
}

/* Fills the cost options with their defaults; the job's ring mode, if it is not
 * the default, takes precedence. */
static lh_status complete_options(const lh_job *job,
                                  const lh_cost_options *given,
                                  lh_cost_options *out, lh_error *err)
{
    LHI_TRY(lhi_complete_cost_options(job, given, out, err));
    if (job->training.rings != LH_RING_LOCKSTEP)
        out->rings = job->training.rings;
    return LH_OK;
}

lh_status lhi_compute_sharding_times(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known,
                                     lhi_sharding_times *out, lh_error *err)
{
    lh_cost_options full;
    lhi_shape shape;
    lhi_part_times times;
    lhi_stage_overlap gathers = {0}, reductions = {0};
    lhi_sharding_times sum = {0};

    LHI_TRY(complete_options(job, options, &full, err));
    LHI_TRY(lhi_shape_make(job, layout, &full, &shape, err));
    LHI_TRY(lhi_compute_part_times(job, layout, slice, &full, &shape, known,
                                   &times, err));
    for (uint32_t i = 0; i < slice->n_layers + 2; i++) {
        double g, r;

        lhi_find_part_times(job, slice, &times, i, &g, &r);
        lhi_stage_overlap_add(&gathers, g, 0);
        lhi_stage_overlap_add(&reductions, 0, r);
        sum.longest_gather = fmax(sum.longest_gather, g);
        sum.longest_reduce = fmax(sum.longest_reduce, r);
    }
    sum.gather = lhi_stage_overlap_compute_ns(&gathers);
    sum.reduce = lhi_stage_overlap_compute_ns(&reductions);
    *out = sum;
    return LH_OK;
}

lh_status lhi_compute_marginal_sharding_times(
    const lh_job *job, const lh_layout *layout,
    const lh_cost_layer_range *slice, bool of_expert,
    const lh_cost_options *options, lhi_data_times *out, lh_error *err)
{
    const lhi_params many = {.total = 1e9, .experts = of_expert ? 1e9 : 0};
    lh_cost_options full;
    lhi_data_times t;

    LHI_TRY(complete_options(job, options, &full, err));
    LHI_TRY(lhi_compute_data_times(job, layout, slice, &full, &many, NULL, &t,
                                   err));
    t.gather.transfer /= many.total;
    t.reduce.transfer /= many.total;
    t.between = (lhi_collective){0};
    *out = t;
    return LH_OK;
}

void lhi_stage_overlap_add(lhi_stage_overlap *relay, double first,
                           double second)
{
    relay->last_second_start += fmax(relay->last_second_duration, first);
    relay->last_second_duration = second;
}

double lhi_stage_overlap_compute_ns(const lhi_stage_overlap *relay)
{
    return relay->last_second_start + relay->last_second_duration;
}

bool lhi_accumulates_whole_gradients(const lh_job *job, const lh_layout *layout)
{
    return job->framework.preset == LH_FRAMEWORK_TORCHTITAN &&
           layout->pipeline > 1 && job->training.zero >= 2;
}

uint32_t lhi_find_zero(const lh_job *job, const lh_layout *layout)
{
    return lhi_accumulates_whole_gradients(job, layout) &&
                   job->training.zero == 2
               ? 1
               : job->training.zero;
}

bool lhi_shards_fp32_parameters(const lh_job *job)
{
    return job->framework.preset == LH_FRAMEWORK_TORCHTITAN &&
           job->training.zero == 3 &&
           job->training.precision != LH_PRECISION_FP32;
}

bool lhi_gathers_in_first_microbatch(const lh_job *job, const lh_layout *layout)
{
    return job->framework.preset == LH_FRAMEWORK_TORCHTITAN &&
           job->training.zero == 2 && layout->pipeline == 1;
}

/* Counts a replica group's members in the layer range's datacenter. */
static double count_members_here(const sharding_context *s,
                                 const lh_cost_group *group)
{
    for (uint32_t i = 0; i < group->n_sites; i++) {
        lh_cost_group here;

        if (group->sites[i].datacenter != s->slice->datacenter)
            continue;
        find_site_group(s, &group->sites[i], &here);
        return here.size;
    }
    return group->per_datacenter;
}

/* Counts the members in the layer range's datacenter of the expert replica
 * group with the fewest members there. */
static double count_replicas_here(sharding_context *s)
{
    double fewest = INFINITY;
    lhi_expert_replicas c;

    s->kind = &c;
    for (uint32_t i = 0; lhi_group_layout_find_replicas(s->groups, i, &c); i++)
        if (c.n)
            fewest = fmin(fewest, count_members_here(s, &c.group));
    s->kind = NULL;
    return fewest;
}

lh_status lhi_count_state_ranks(const lh_job *job, const lh_layout *layout,
                                const lh_cost_layer_range *slice,
                                double *shared, double *experts, lh_error *err)
{
    sharding_context s = {job, layout, slice, NULL, NULL, NULL, NULL};
    lh_cost_group group;
    lhi_group_layout groups;

    *shared = (double)layout->data * layout->context;
    *experts =
        *shared * layout->tensor / (double)lh_layout_expert_block(layout);
    if (layout->sharding <= LH_SHARDING_FULL)
        return LH_OK;
    LHI_TRY(lhi_cost_find_group(job, layout, LH_COST_DATA_SHARED, slice, &group,
                                err));
    *shared = *experts = count_members_here(&s, &group);
    if (!job->model->experts)
        return LH_OK;
    LHI_TRY(lhi_group_layout_build(job, layout, slice, &groups, err));
    if (groups.matches_dense_layers)
        return LH_OK;
    s.groups = &groups;
    *experts = count_replicas_here(&s);
    return LH_OK;
}
