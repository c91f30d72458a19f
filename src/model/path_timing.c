/* SPDX-License-Identifier: Apache-2.0 */
/* Time per byte and per message on the paths of a layer range's process groups.
 */
#include "model/group_layout.h"
#include "model/groups.h"
#include "model/timing.h"

#include "base/fail.h"
#include "format/job/parse.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Checks whether two groups have equally many members in the same datacenters.
 */
static bool have_equal_members(const lhi_group_members *a,
                               const lhi_group_members *b)
{
    return a->n == b->n && memcmp(a->at, b->at, a->n * sizeof a->at[0]) == 0;
}

/* Finds the all-to-all time of the slowest group that exchanges tokens in the
 * layer range's datacenter; stores it in p->expert. `groups`: process groups of
 * the experts. */
static lh_status find_dispatch_path(lhi_cost_context *p,
                                    const lhi_group_layout *groups,
                                    lh_error *err)
{
    lhi_exchange exchange =
        lhi_exchange_make(p->job->training.dispatcher, p->job->model);
    uint32_t dc = p->slice->datacenter;
    lhi_group_members members, last = {.n = 0};

    if (p->is_lower_bound)
        return lhi_all_to_all_compute_lower_bound(p->job, dc, groups->expert,
                                                  groups->tensor, &exchange,
                                                  &p->options, &p->expert, err);
    for (uint32_t i = 0;
         lhi_group_layout_find_dispatch_group(groups, dc, i, &members); i++) {
        lhi_exchange_time here;

        if (have_equal_members(&members, &last))
            continue;
        last = members;
        LHI_TRY(lhi_all_to_all_compute_time(p->job, &members, &exchange,
                                            &p->options, p->ecmp_cache, &here,
                                            err));
        p->expert.ns_per_byte = fmax(p->expert.ns_per_byte, here.ns_per_byte);
        p->expert.latency_ns = fmax(p->expert.latency_ns, here.latency_ns);
        p->expert.wire_ns_per_byte =
            fmax(p->expert.wire_ns_per_byte, here.wire_ns_per_byte);
    }
    return LH_OK;
}

/* Combines two network paths into *to: the lower rate of *to and *what, and the
 * longer of their latencies. */
static void take_slower_path(lh_cost_path *to, const lh_cost_path *what)
{
    to->bytes_per_s = fmin(to->bytes_per_s, what->bytes_per_s);
    to->latency_ns = fmax(to->latency_ns, what->latency_ns);
    to->ring_latency_ns = fmax(to->ring_latency_ns, what->ring_latency_ns);
}

/* Finds the slowest path among the groups of adjacent GPUs that share experts
 * (expert tensor parallelism); stores it in p->sharing. `groups`: process
 * groups of the experts. */
static lh_status find_sharing_path(lhi_cost_context *p,
                                   const lhi_group_layout *groups,
                                   lh_error *err)
{
    uint32_t dc = p->slice->datacenter;
    lhi_group_members m;

    p->sharing = (lh_cost_path){.bytes_per_s = INFINITY};
    if (p->is_lower_bound &&
        !lhi_group_layout_sharing_is_intra_node(groups, dc))
        return LH_OK;
    for (uint32_t i = 0; lhi_group_layout_find_sharing_group(groups, dc, i, &m);
         i++) {
        lh_cost_site sites[LH_MAX_DATACENTERS];
        lh_cost_group group = {.size = groups->tensor,
                               .per_node = UINT32_MAX,
                               .per_datacenter = UINT32_MAX,
                               .datacenter = m.at[0].datacenter,
                               .n_sites = m.n,
                               .sites = sites};
        lh_cost_path path;

        for (uint32_t k = 0; k < m.n; k++) {
            uint32_t nodes = (uint32_t)m.at[k].nodes;
            uint32_t here = (uint32_t)m.at[k].members;
            uint32_t near = (uint32_t)m.at[k].fewest_per_node;

            sites[k] = (lh_cost_site){m.at[k].datacenter, here};
            group.per_datacenter =
                here < group.per_datacenter ? here : group.per_datacenter;
            group.per_node = near < group.per_node ? near : group.per_node;
            group.nodes = nodes > group.nodes ? nodes : group.nodes;
            group.concurrent =
                (uint32_t)fmax(group.concurrent, m.at[k].senders);
        }
        LHI_TRY(lhi_compute_group_path(p->job, &group, &p->options,
                                       p->ecmp_cache, &path, err));
        take_slower_path(&p->sharing, &path);
    }
    return LH_OK;
}

/* Finds the network paths of token dispatch and of expert tensor parallelism,
 * if experts are distributed. */
static lh_status find_expert_paths(lhi_cost_context *p, lh_error *err)
{
    lhi_group_layout groups;

    if (!p->shape.dispatches_tokens)
        return LH_OK;
    LHI_TRY(lhi_group_layout_build(p->job, p->layout, p->slice, &groups, err));
    if (groups.expert > 1)
        LHI_TRY(find_dispatch_path(p, &groups, err));
    return groups.tensor > 1 ? find_sharing_path(p, &groups, err) : LH_OK;
}

/* Computes a lower bound on the path of a group of `size` members, for any
 * position of the stage on nodes. `span`: GPUs from the first to the last
 * member; `unit`: the first of them is a multiple of it; `near`: most members
 * on every node of a group that straddles some. */
static lh_status find_least_path(const lhi_cost_context *p, uint32_t size,
                                 uint64_t span, uint64_t unit, uint32_t near,
                                 lh_cost_path *out, lh_error *err)
{
    const lh_datacenter *dc = &p->job->datacenters[p->slice->datacenter];
    lh_cost_group group = {.size = size,
                           .per_node = size,
                           .per_datacenter = size,
                           .datacenter = p->slice->datacenter,
                           .concurrent = 1};
    lh_cost_path far;

    if (span <= dc->gpus_per_node)
        LHI_TRY(lhi_compute_group_path(p->job, &group, &p->options,
                                       p->ecmp_cache, out, err));
    if (dc->gpus_per_node % unit == 0 ||
        (span <= dc->gpus_per_node && !(dc->fabric.bytes_per_s > 0)))
        return LH_OK;
    group.per_node = near;
    LHI_TRY(lhi_compute_group_path(p->job, &group, &p->options, p->ecmp_cache,
                                   &far, err));
    if (span > dc->gpus_per_node) {
        *out = far;
        return LH_OK;
    }
    out->bytes_per_s = fmax(out->bytes_per_s, far.bytes_per_s);
    out->latency_ns = fmin(out->latency_ns, far.latency_ns);
    out->ring_latency_ns = fmin(out->ring_latency_ns, far.ring_latency_ns);
    return LH_OK;
}

/* Returns the largest number of members that every node (of per_node GPUs) can
 * have in a tensor-parallel group on several nodes. The members are divided
 * evenly over the fewest nodes possible, at least two. */
static uint32_t count_most_near(uint32_t tensor, uint32_t per_node)
{
    uint32_t nodes = (tensor + per_node - 1) / per_node;

    return tensor / (nodes > 1 ? nodes : 2);
}

/* Computes lower bounds on the tensor-parallel and context-parallel paths, for
 * any position of the stage on nodes. */
static lh_status find_least_paths(lhi_cost_context *p, lh_error *err)
{
    uint32_t tensor = p->layout->tensor, context = p->layout->context;
    uint32_t per_node = p->job->datacenters[p->slice->datacenter].gpus_per_node;
    uint64_t replica = (uint64_t)tensor * context;

    if (tensor > 1)
        LHI_TRY(find_least_path(p, tensor, tensor, tensor,
                                count_most_near(tensor, per_node), &p->tensor,
                                err));
    return context > 1 ? find_least_path(p, context, replica, replica, 1,
                                         &p->context, err)
                       : LH_OK;
}

/* Finds the groups and network paths of tensor, context and expert
 * communication. For a lower bound, takes the fastest paths. */
static lh_status find_paths(lhi_cost_context *p, lh_error *err)
{
    lh_cost_group context;

    LHI_TRY(lhi_cost_find_group(p->job, p->layout, LH_COST_TENSOR, p->slice,
                                &p->tensor_group, err));
    LHI_TRY(lhi_cost_find_group(p->job, p->layout, LH_COST_CONTEXT, p->slice,
                                &p->context_group, err));
    LHI_TRY(find_expert_paths(p, err));
    if (p->is_lower_bound)
        return find_least_paths(p, err);
    if (p->tensor_group.size > 1)
        LHI_TRY(lh_cost_group_path(p->job, &p->tensor_group, &p->options,
                                   &p->tensor, err));
    if (p->context_group.size < 2)
        return LH_OK;
    /* Keys and values move from one GPU to the next; between nodes they use the
     * sender's interface alone. */
    context = p->context_group;
    if (context.size > context.per_node)
        context.per_node = 1;
    context.nodes = 0;
    return lh_cost_group_path(p->job, &context, &p->options, &p->context, err);
}

/* Checks that the layer range is inside the model and its datacenter in the
 * job. LH_EINVAL otherwise. */
static lh_status check_slice(const lh_job *job,
                             const lh_cost_layer_range *slice, lh_error *err)
{
    uint32_t layers = job->model->layers;

    if (slice->first_layer > layers ||
        slice->n_layers > layers - slice->first_layer)
        return lhi_fail(err, LH_EINVAL,
                        "layers %" PRIu32 "+%" PRIu32
                        " are not all among the model's %" PRIu32,
                        slice->first_layer, slice->n_layers, layers);
    if (slice->datacenter >= job->n_datacenters)
        return lhi_fail(err, LH_EINVAL, "datacenter %" PRIu32 " of %" PRIu32,
                        slice->datacenter, job->n_datacenters);
    return LH_OK;
}

/* Operations per ns of FlashAttention-2 as PyTorch runs it on an H200, the
 * means of the ranges in docs/validation.md ("Layers on an H200"). Its
 * instructions are those of A100, whose products are slower than this. From
 * B200 on, torchtitan selects cuDNN's attention (ScaledDotProductAttention in
 * attention.py). */
enum { FLASH_2_F = 332000, FLASH_2_D = 253500, B200_PEAK_TFLOPS = 2250 };

/* The highest rates of cuDNN's attention kernels for long sequences, as
 * fractions of a GPU's peak from H100 on (attention_work.c has the source): F
 * 0.70 on H200, 0.68 on GB200, 0.79 on GB300; D 0.60, 0.54, 0.61. */
static const double CUDNN_F = 0.70, CUDNN_D = 0.58;
enum { H100_PEAK_TFLOPS = 989 };

/* Sets the rates of the job's attention kernels in the cost inputs, if they
 * differ from those of matrix products on this GPU. */
static void set_flash_rates(lhi_cost_context *p, const lh_gpu *gpu)
{
    const lh_attention kernel = p->job->framework.attention;

    if (p->by_efficiency)
        return;
    if (p->shape.cudnn_attention && gpu->tflops >= H100_PEAK_TFLOPS) {
        p->flash_f_flops_per_ns = CUDNN_F * gpu->flops_per_s / 1e9;
        p->flash_d_flops_per_ns = CUDNN_D * gpu->flops_per_s / 1e9;
    } else if (kernel == LH_ATTENTION_FLASH_2 &&
               gpu->tflops < B200_PEAK_TFLOPS) {
        p->flash_f_flops_per_ns = fmin(p->flops_per_ns, FLASH_2_F);
        p->flash_d_flops_per_ns = fmin(p->flops_per_ns, FLASH_2_D);
    } else {
        return;
    }
    p->has_flash_rates = true;
}

lh_status lhi_cost_context_build(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options, bool least,
                                 lhi_ecmp_cache *known, lhi_cost_context *p,
                                 lh_error *err)
{
    const lh_gpu *gpu;
    const lh_cost_constants *c;
    double rate, fp8_rate, experts;

    *p = (lhi_cost_context){.job = job,
                            .layout = layout,
                            .slice = slice,
                            .is_lower_bound = least,
                            .ecmp_cache = known};
    LHI_TRY(lhi_complete_cost_options(job, options, &p->options, err));
    if (job->training.rings != LH_RING_LOCKSTEP)
        p->options.rings = job->training.rings;
    LHI_TRY(check_slice(job, slice, err));
    LHI_TRY(lhi_shape_make(job, layout, &p->options, &p->shape, err));
    LHI_TRY(find_paths(p, err));
    gpu = &job->datacenters[slice->datacenter].gpu;
    c = p->options.constants;
    p->by_efficiency = gpu->efficiency > 0;
    rate = lhi_gpu_sustained_flops_per_s(gpu, c->matmul_efficiency);
    fp8_rate = lhi_gpu_sustained_fp8_flops_per_s(gpu, c->matmul_efficiency);
    experts = job->framework.fused_experts ? c->fused_experts_efficiency
                                           : c->experts_efficiency;
    p->grouped_efficiency =
        p->shape.fp8 ? lhi_gpu_experts_efficiency(fp8_rate, true,
                                                  c->matmul_efficiency, experts)
                     : lhi_gpu_experts_efficiency(
                           rate, false, c->matmul_efficiency, experts);
    if (p->by_efficiency) {
        rate = gpu->flops_per_s * gpu->efficiency;
        fp8_rate = gpu->fp8_tflops * 1e12 * gpu->efficiency;
    }
    p->flops_per_ns = rate / 1e9;
    p->fp8_flops_per_ns = fp8_rate / 1e9;
    set_flash_rates(p, gpu);
    p->bytes_per_ns = gpu->memory_bytes_per_s / 1e9 * c->memory_efficiency;
    return LH_OK;
}
