/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/equivalence.h"

#include "base/exact_equality.h"
#include "format/job/job_values.h"
#include "model/paths.h"
#include "model/work.h"
#include "planner/layout/choice.h"

#include <string.h>

/* ---- layers ---- */

bool lhi_layers_are_equivalent(const lh_model *model, uint32_t a, uint32_t b)
{
    return lhi_find_layer_kind(model, a) == lhi_find_layer_kind(model, b);
}

/* ---- layouts ---- */

/* Checks whether two replica groups have equal replica counts, and equal stages
 * in the same datacenters. */
static bool is_same_group(const lh_site_group *a, const lh_site_group *b)
{
    if (a->replicas != b->replicas || a->n_parts != b->n_parts)
        return false;
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].datacenter != b->parts[i].datacenter ||
            a->parts[i].stages != b->parts[i].stages)
            return false;
    return true;
}

bool lhi_sites_are_equal(const lh_sites *a, const lh_sites *b)
{
    if (!a || !b || a->n_groups != b->n_groups)
        return !a && !b;
    for (uint32_t i = 0; i < a->n_groups; i++)
        if (!is_same_group(&a->groups[i], &b->groups[i]))
            return false;
    return true;
}

/* Checks whether two layouts with equal sites have the same microbatch size in
 * every replica group. */
static bool have_equal_micro_batches(const lh_layout *a, const lh_layout *b)
{
    if (!a->group_micro_batches && !b->group_micro_batches)
        return true; /* compared with the degrees */
    for (uint32_t g = 0; g < a->sites->n_groups; g++)
        if (lhi_layout_group_micro_batch(a, g) !=
            lhi_layout_group_micro_batch(b, g))
            return false;
    return true;
}

/* Checks whether two layouts with equal sites have the same tensor degree in
 * every datacenter of the first replica group. */
static bool have_equal_tensors(const lh_layout *a, const lh_layout *b)
{
    if (!a->site_tensors && !b->site_tensors)
        return true; /* compared with the degrees */
    const lh_site_group *group = &a->sites->groups[0];
    for (uint32_t i = 0; i < group->n_parts; i++)
        if (lh_layout_site_tensor(a, group->parts[i].datacenter) !=
            lh_layout_site_tensor(b, group->parts[i].datacenter))
            return false;
    return true;
}

bool lhi_degrees_are_equal(const lh_layout *a, const lh_layout *b)
{
    return a->tensor == b->tensor && a->context == b->context &&
           a->expert == b->expert &&
           lh_layout_expert_tensor(a) == lh_layout_expert_tensor(b) &&
           a->pipeline == b->pipeline && a->data == b->data &&
           a->micro_batch == b->micro_batch;
}

bool lhi_configs_are_equal(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    return lhi_degrees_are_equal(x, y) &&
           x->chunks_per_device == y->chunks_per_device &&
           x->outermost == y->outermost && x->rank_order == y->rank_order &&
           x->packing == y->packing && x->sharding == y->sharding &&
           a->placement == b->placement && a->recompute == b->recompute &&
           a->zero == b->zero && lhi_sites_are_equal(x->sites, y->sites) &&
           have_equal_micro_batches(x, y) && have_equal_tensors(x, y);
}

bool lhi_choices_are_equal(const lh_choice *a, const lh_choice *b)
{
    lhi_config x = lhi_config_from_choice(a), y = lhi_config_from_choice(b);
    return lhi_configs_are_equal(&x, &y);
}

bool lhi_choices_share_pipeline(const lh_choice *a, const lh_choice *b)
{
    const uint32_t *x = a->chunk_layers, *y = b->chunk_layers;
    const lh_layout *l = &a->layout;
    size_t n = (size_t)l->pipeline * l->chunks_per_device;
    if (!lhi_choices_are_equal(a, b))
        return false;
    return x == y || (x && y && memcmp(x, y, n * sizeof *x) == 0);
}

/* ---- stages ---- */

/* Finds the runs (blocks of consecutive GPUs) in which a stage's replicas lie
 * in a datacenter. *out is the first of them, in the stage's own array. Returns
 * their number. */
static uint32_t find_runs(const lhi_stage_placement *s, uint32_t datacenter,
                          const lh_cost_run **out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_runs; i++)
        if (s->runs[i].datacenter == datacenter && n++ == 0)
            *out = &s->runs[i];
    return n;
}

/* Returns the position, on its node of `per_node` GPUs, of the first GPU in
 * `run` (equally spaced replicas, each on `size` consecutive GPUs). Returns 0
 * if the position has no effect: all replicas are on one node, or each replica
 * fits on one node at the same position. */
static uint64_t find_position(const lh_cost_run *run, uint64_t size,
                              uint32_t per_node)
{
    uint64_t at = run->first_gpu % per_node;
    uint64_t length = (run->replicas - (uint64_t)1) * run->stride + size;
    bool apart = run->stride % per_node == 0 && at + size <= per_node;
    return at + length <= per_node || apart ? 0 : at;
}

bool lhi_stage_nodes_are_alike(const lh_job *job, const lh_layout *layout,
                               const lhi_stage_placement *a,
                               uint32_t a_datacenter,
                               const lhi_stage_placement *b,
                               uint32_t b_datacenter)
{
    const uint32_t per_node = job->datacenters[a_datacenter].gpus_per_node;
    const uint64_t size =
        (uint64_t)lh_layout_site_tensor(layout, a_datacenter) * layout->context;
    const lh_cost_run *x = NULL, *y = NULL;
    uint32_t n = find_runs(a, a_datacenter, &x);
    if (find_runs(b, b_datacenter, &y) != n ||
        job->datacenters[b_datacenter].gpus_per_node != per_node)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (x[i].replicas != y[i].replicas || x[i].stride != y[i].stride)
            return false;
    if (n == 1)
        return find_position(x, size, per_node) ==
               find_position(y, size, per_node);
    /* Runs may meet on a node. */
    for (uint32_t i = 0; i < n; i++)
        if (x[i].first_gpu - x[0].first_gpu != y[i].first_gpu - y[0].first_gpu)
            return false;
    return n == 0 || x[0].first_gpu % per_node == y[0].first_gpu % per_node;
}

bool lhi_stage_placements_are_alike(const lh_job *job, const lh_layout *layout,
                                    const lhi_stage_placement *a,
                                    const lhi_stage_placement *b)
{
    if (a->n_sites != b->n_sites || a->sharing != b->sharing)
        return false;
    for (uint32_t i = 0; i < a->n_sites; i++)
        if (a->sites[i].datacenter != b->sites[i].datacenter ||
            a->sites[i].replicas != b->sites[i].replicas ||
            !lhi_stage_nodes_are_alike(job, layout, a, a->sites[i].datacenter,
                                       b, b->sites[i].datacenter))
            return false;
    return true;
}

/* ---- datacenters and links ---- */

/* Checks whether two networks have equal bandwidth and latency. */
static bool is_same_network(const lh_network *a, const lh_network *b)
{
    return lhi_equals_exactly(a->bytes_per_s, b->bytes_per_s) &&
           a->latency_ns == b->latency_ns;
}

/* Checks whether two GPU types are equal in every property that affects costs
 * and memory. */
static bool is_same_gpu(const lh_gpu *a, const lh_gpu *b)
{
    const char *p = a->preset ? a->preset : "";
    const char *q = b->preset ? b->preset : "";
    return strcmp(a->name, b->name) == 0 && strcmp(p, q) == 0 &&
           lhi_equals_exactly(a->flops_per_s, b->flops_per_s) &&
           lhi_equals_exactly(a->fp8_tflops, b->fp8_tflops) &&
           lhi_equals_exactly(a->sustained_tflops, b->sustained_tflops) &&
           lhi_equals_exactly(a->sustained_fp8_tflops,
                              b->sustained_fp8_tflops) &&
           a->memory_bytes == b->memory_bytes &&
           lh_gpu_usable_bytes(a) == lh_gpu_usable_bytes(b) &&
           lhi_equals_exactly(a->memory_bytes_per_s, b->memory_bytes_per_s) &&
           lhi_equals_exactly(a->efficiency, b->efficiency);
}

/* Checks whether two measured links have equal latency and time per byte;
 * either may be NULL. */
static bool is_same_profile_link(const lh_profile_link *a,
                                 const lh_profile_link *b)
{
    if (!a || !b)
        return a == b;
    return a->alpha_ns == b->alpha_ns &&
           lhi_equals_exactly(a->beta_ns_per_byte, b->beta_ns_per_byte);
}

/* Checks whether two datacenters have equal GPUs, nodes, internal networks and
 * profile times. */
static bool have_same_inside(const lh_job *job, uint32_t a, uint32_t b)
{
    for (int k = 0; k < 2; k++) {
        lh_profile_path path = k ? LH_PATH_NODE : LH_PATH_FABRIC;
        if (!is_same_profile_link(lhi_profile_link(job, path, a, a),
                                  lhi_profile_link(job, path, b, b)))
            return false;
    }
    return true;
}

bool lhi_datacenters_are_equivalent(const lh_job *job, uint32_t a, uint32_t b)
{
    const lh_datacenter *x = &job->datacenters[a], *y = &job->datacenters[b];
    return x->gpus_per_node == y->gpus_per_node &&
           is_same_gpu(&x->gpu, &y->gpu) &&
           is_same_network(&x->node_link, &y->node_link) &&
           is_same_network(&x->fabric, &y->fabric) &&
           have_same_inside(job, a, b);
}

/* Checks whether two link settings are equal. */
static bool is_same_setting(const lh_link_setting *a, const lh_link_setting *b)
{
    return a->balancing == b->balancing && a->congestion == b->congestion &&
           a->recovery == b->recovery && a->queue_pairs == b->queue_pairs &&
           a->paths == b->paths && a->fec_data == b->fec_data &&
           a->fec_parity == b->fec_parity &&
           lhi_equals_exactly(a->window_bytes, b->window_bytes) &&
           lhi_equals_exactly(a->queue_bytes, b->queue_bytes) &&
           a->channels == b->channels && a->sockets == b->sockets &&
           lhi_equals_exactly(a->buffer_bytes, b->buffer_bytes) &&
           lhi_equals_exactly(a->tcp_window_bytes, b->tcp_window_bytes);
}

bool lhi_wan_links_are_equal(const lh_job *job, uint32_t a, uint32_t b,
                             uint32_t x, uint32_t y)
{
    size_t n = job->n_datacenters;
    const lh_wan *p = &job->wans[a * n + b], *q = &job->wans[x * n + y];
    return lhi_equals_exactly(p->bytes_per_s, q->bytes_per_s) &&
           p->latency_ns == q->latency_ns &&
           lhi_equals_exactly(p->loss, q->loss) &&
           lhi_equals_exactly(p->oversubscription, q->oversubscription) &&
           lhi_equals_exactly(p->usd_per_gb, q->usd_per_gb) &&
           is_same_setting(&p->setting, &q->setting) &&
           lhi_are_zones_of_same_datacenter(job, a, b) ==
               lhi_are_zones_of_same_datacenter(job, x, y) &&
           is_same_profile_link(lhi_profile_link(job, LH_PATH_WAN, a, b),
                                lhi_profile_link(job, LH_PATH_WAN, x, y));
}
