/* SPDX-License-Identifier: Apache-2.0 */
/* Converts work to time. */
#include "model/timing.h"
#include "model/collective.h"

#include <math.h>

/* Returns the time, in ns, of `calls` equal ring collectives with `bytes` in
 * total, over `gpus` GPUs. */
static double compute_ring_time(const lhi_cost_context *p, uint32_t gpus,
                                const lh_cost_path *path, double bytes,
                                double calls)
{
    double transfer, latency;

    if (calls <= 0 || gpus < 2)
        return 0;
    lhi_cost_collective_ring(p->options.rings, LH_ALL_GATHER, gpus,
                             bytes / calls, path, &transfer, &latency);
    return calls * (transfer + latency);
}

/* Returns the time in ns of the matrix products in `work`. */
static double compute_product_time(const lhi_cost_context *p,
                                   const lhi_work *work)
{
    double ns = (work->flops - work->fp8_flops) / p->flops_per_ns;

    if (work->fp8_flops > 0)
        ns += work->fp8_flops / p->fp8_flops_per_ns;
    if (p->by_efficiency)
        return ns;
    ns += work->padding_flops / p->flops_per_ns;
    if (p->has_flash_rates)
        ns += work->flash_f_flops / p->flash_f_flops_per_ns +
              work->flash_d_flops / p->flash_d_flops_per_ns -
              work->flash_flops / p->flops_per_ns;
    if (work->fp8_padding_flops > 0)
        ns += work->fp8_padding_flops / p->fp8_flops_per_ns;
    if (work->grouped_flops > 0)
        ns += work->grouped_flops * (1 / p->grouped_efficiency - 1) /
              (p->shape.fp8 ? p->fp8_flops_per_ns : p->flops_per_ns);
    return ns;
}

/* Returns the exposed part of a communication of `ns`, of which the fraction
 * `overlap` can overlap with `behind` ns of other work. */
static double compute_exposed_time(double ns, double overlap, double behind)
{
    return ns - fmin(overlap * ns, behind);
}

double lhi_compute_communication_time(const lhi_cost_context *p,
                                      const lhi_work *work)
{
    const lh_framework *f = &p->job->framework;
    double tensor = compute_ring_time(p, p->tensor_group.size, &p->tensor,
                                      work->tensor_bytes, work->tensor_calls);
    double expert = work->expert_bytes * p->expert.ns_per_byte +
                    work->expert_calls * p->expert.latency_ns;
    double ring = 0, under = 0; /* key/value ring; its part hidden behind
                                 * attention */
    double behind = compute_product_time(p, work), ns;

    if (work->context_calls > 0) {
        ring = work->context_bytes * 1e9 / p->context.bytes_per_s +
               work->context_calls * p->context.latency_ns;
        under = fmin(ring, work->core_flops / p->flops_per_ns);
    }
    behind = fmax(0, behind - under);
    ns = compute_exposed_time(tensor, f->overlap_tensor, behind) + expert;
    ns += compute_ring_time(p, p->shape.expert_tensor, &p->sharing,
                            work->sharing_bytes, work->sharing_calls);
    return ns + (ring - under);
}

/* Returns the time in ns that a ring collective of `bytes` over `gpus` GPUs
 * uses the network outside the node; 0 if the path is inside a node. */
static double compute_ring_wire_time(const lh_cost_path *path, uint32_t gpus,
                                     double bytes)
{
    if (gpus < 2 || path->kind == LH_PATH_NODE)
        return 0;
    return (gpus - 1.0) / gpus * bytes * 1e9 / path->bytes_per_s;
}

double lhi_compute_wire_time(const lhi_cost_context *p, const lhi_work *work)
{
    double ns = compute_ring_wire_time(&p->tensor, p->tensor_group.size,
                                       work->tensor_bytes);

    if (work->context_calls > 0 && p->context.kind != LH_PATH_NODE)
        ns += work->context_bytes * 1e9 / p->context.bytes_per_s;
    return ns + work->expert_bytes * p->expert.wire_ns_per_byte;
}

void lhi_compute_work_time(const lhi_cost_context *p, const lhi_work *work,
                           lhi_time_breakdown *out)
{
    const lh_cost_constants *c = p->options.constants;

    *out = (lhi_time_breakdown){.flops = work->flops};
    out->matmul = compute_product_time(p, work);
    /* A given efficiency covers a pass's kernels, but not those that
     * context parallelism adds. */
    out->memory =
        (p->by_efficiency ? work->ring_bytes : work->bytes) / p->bytes_per_ns;
    out->kernel =
        (p->by_efficiency ? work->ring_kernels : work->kernels) * c->kernel_ns;
    if (!p->by_efficiency)
        out->kernel +=
            work->dispatches * c->dispatch_ns + work->experts * c->expert_ns;
    out->communication = lhi_compute_communication_time(p, work);
    out->total = out->matmul + out->memory + out->kernel + out->communication;
    out->inter_node = fmin(lhi_compute_wire_time(p, work), out->total);
}

void lhi_time_breakdown_add(lhi_time_breakdown *to,
                            const lhi_time_breakdown *what, double times)
{
    to->total += times * what->total;
    to->matmul += times * what->matmul;
    to->memory += times * what->memory;
    to->kernel += times * what->kernel;
    to->communication += times * what->communication;
    to->flops += times * what->flops;
}

void lhi_time_breakdown_hide(lhi_time_breakdown *pass, double ns)
{
    pass->communication -= ns;
    pass->total -= ns;
}
