/* SPDX-License-Identifier: Apache-2.0 */
/* Times of F, D and W: bounded by the host's launches, without the all-to-alls
 * of experts that run beside computation. These run beside another microbatch's
 * pass in the opposite direction (combined 1F1B), or beside the shared experts.
 */
#include "model/timing.h"

#include <math.h>

/* Streaming multiprocessors (SMs) that a dispatcher's kernels occupy, of an
 * H100's: moe_deepep_num_sms and moe_hybridep_num_sms in transformer_config.py
 * of Megatron Core 0.16. For NCCL's all-to-all no number is published; the
 * model assumes DeepEP's. */
enum { H100_SMS = 132, DEEPEP_SMS = 20, HYBRIDEP_SMS = 16 };

/* Returns the exposed part of a communication of `ns` beside `behind` ns of
 * computation. While both run, the communication's kernels take the fraction
 * `sms` of the GPU's SMs from the computation. Both together take
 * max(ns, behind + sms * ns). */
static double compute_exposed(double ns, double behind, double sms)
{
    return fmax(ns - behind, sms * ns);
}

/* Returns the fraction of the SMs that the job's token dispatcher occupies. 0
 * if the job gives the efficiency of passes, which covers their contention. */
static double find_sm_share(const lhi_cost_context *p)
{
    const lh_dispatcher dispatcher = p->job->training.dispatcher;

    if (p->by_efficiency)
        return 0;
    return (double)(dispatcher == LH_DISPATCHER_HYBRIDEP ? HYBRIDEP_SMS
                                                         : DEEPEP_SMS) /
           H100_SMS;
}

/* Returns a pass's time without communication, in ns: products, memory traffic
 * and kernel launches. */
static double compute_own_time(const lhi_cost_context *p, const lhi_work *work)
{
    lhi_time_breakdown time;

    lhi_compute_work_time(p, work, &time);
    return time.total - time.communication;
}

/* Returns the fraction of passes that run alone in combined 1F1B, which runs F
 * of one microbatch together with B of another. On the critical path these are
 * the passes of `pipeline` microbatches (warm-up count in
 * get_pp_rank_microbatches(), schedules.py of Megatron Core 0.16). 0 for a
 * lower bound, and with a given efficiency, which is that of all passes. */
static double compute_unpaired_share(const lhi_cost_context *p)
{
    const lh_layout *l = p->layout;
    double microbatches;

    if (p->is_lower_bound || p->by_efficiency)
        return 0;
    microbatches = p->job->training.global_batch /
                   ((double)l->data * (double)l->micro_batch);
    return fmin(1, l->pipeline / fmax(1, microbatches));
}

/* Computes the hidden time of combined 1F1B: the layer's forward of one
 * microbatch runs with the backward of another (TransformerLayerSchedulePlan
 * in model_chunk_schedule_plan.py of Megatron Core 0.16):
 *   communication: combine_d | dispatch_f, dispatch_d    | combine_f
 *   computation:   attn_f    | experts: d, w, then f     | attn_d, attn_w
 * `attn` includes router, permutation, norms and shared experts. */
static void hide_behind_other_pass(const lhi_cost_context *p,
                                   const lhi_pass_work *work,
                                   const lhi_expert_work *experts,
                                   double dispatch, double combine,
                                   lhi_hidden_exchange *out)
{
    const double sms = find_sm_share(p);
    const double mlp_f = compute_own_time(p, &experts->routed.f);
    const double mlp_d = compute_own_time(p, &experts->routed.d);
    const double mlp_w = compute_own_time(p, &experts->routed.w);
    const double attn_f = compute_own_time(p, &work->f) - mlp_f;
    const double attn_b = compute_own_time(p, &work->d) - mlp_d +
                          compute_own_time(p, &work->w) - mlp_w;
    const double both =
        compute_exposed(2 * dispatch, mlp_f + mlp_d + mlp_w, sms) / 2;
    const double share =
        p->job->framework.overlap_expert * (1 - compute_unpaired_share(p));

    out->f_ns = share * (dispatch + combine - both -
                         compute_exposed(combine, attn_b, sms));
    out->d_ns = share * (dispatch + combine - both -
                         compute_exposed(combine, attn_f, sms));
}

/* Computes the hidden time of shared experts that run on their own stream
 * (shared_experts.py of Megatron Core 0.16). Their first products and
 * activation function run beside the dispatch, the last product beside the
 * combination, the backward in reverse. */
static void hide_behind_shared_experts(const lhi_cost_context *p,
                                       const lhi_expert_work *experts,
                                       double dispatch, double combine,
                                       lhi_hidden_exchange *out)
{
    const double sms = find_sm_share(p);
    const double share = p->job->framework.overlap_shared_experts;
    const lhi_pass_work *up = &experts->shared_up;
    const lhi_pass_work *down = &experts->shared_down;

    out->f_ns =
        share * (dispatch + combine -
                 compute_exposed(dispatch, compute_own_time(p, &up->f), sms) -
                 compute_exposed(combine, compute_own_time(p, &down->f), sms));
    out->d_ns = share * (dispatch + combine -
                         compute_exposed(dispatch,
                                         compute_own_time(p, &up->d) +
                                             compute_own_time(p, &up->w),
                                         sms) -
                         compute_exposed(combine,
                                         compute_own_time(p, &down->d) +
                                             compute_own_time(p, &down->w),
                                         sms));
}

void lhi_compute_hidden_exchange(const lhi_cost_context *p,
                                 const lhi_pass_work *work,
                                 lhi_hidden_exchange *out)
{
    const lh_framework *f = &p->job->framework;
    const lhi_shape *s = &p->shape;
    const double bytes =
        s->tokens * lhi_model_expert_input(s->model) * s->element * s->received;
    double dispatch, combine;
    lhi_expert_work experts;

    *out = (lhi_hidden_exchange){0};
    if (!(work->f.expert_calls > 0) ||
        !(f->overlap_expert > 0 || f->overlap_shared_experts > 0))
        return;
    lhi_work_experts(s, &experts);
    dispatch =
        bytes * (s->dispatch_element / s->element) * p->expert.ns_per_byte +
        p->expert.latency_ns;
    combine = bytes * p->expert.ns_per_byte + p->expert.latency_ns;
    if (f->overlap_expert > 0)
        hide_behind_other_pass(p, work, &experts, dispatch, combine, out);
    else
        hide_behind_shared_experts(p, &experts, dispatch, combine, out);
}

/* Raises the pass times *s to the host's lower bound: the host issues kernels
 * ahead of the GPU, at a limited rate. A layer of a hybrid model has one of the
 * two blocks (attention, MLP) for which `layer_host_ns` is fitted. Kernels that
 * context parallelism adds take as long as the others of a forward pass. */
static void apply_host_bound(const lhi_cost_context *p,
                             const lhi_pass_work *work, lhi_pass_times *s)
{
    double host = p->options.constants->layer_host_ns /
                  (p->shape.model->layer_pattern ? 2 : 1);
    double again = p->shape.recompute == LH_RECOMPUTE_FULL ? host : 0;
    double kernel = host / (work->f.kernels - work->f.ring_kernels);

    if (p->by_efficiency)
        return;
    s->f.total = fmax(s->f.total, host + work->f.ring_kernels * kernel);
    s->d.total = fmax(s->d.total, host + again + work->d.ring_kernels * kernel);
    s->w.total = fmax(s->w.total, host);
}

void lhi_compute_pass_times(const lhi_cost_context *p,
                            const lhi_pass_work *work, bool is_layer,
                            lhi_pass_times *out)
{
    lhi_hidden_exchange hidden;

    lhi_compute_work_time(p, &work->f, &out->f);
    lhi_compute_work_time(p, &work->d, &out->d);
    lhi_compute_work_time(p, &work->w, &out->w);
    if (!is_layer)
        return;
    lhi_compute_hidden_exchange(p, work, &hidden);
    lhi_time_breakdown_hide(&out->f, hidden.f_ns);
    lhi_time_breakdown_hide(&out->d, hidden.d_ns);
    apply_host_bound(p, work, out);
}
