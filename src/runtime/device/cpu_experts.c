/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: adds the outputs of the experts chosen by the router
 * (cpu_router.c), each multiplied by its routing weight. Rows are sorted by
 * expert, stable within an expert, so that each expert needs one product over
 * all its rows.
 *
 * Shared experts (DeepSeekMoE: arXiv:2401.06066, section 3.2) are one MLP that
 * processes all rows, with separate buffers. Its output may be multiplied by
 * the sigmoid of the row's product with a gate vector (Qwen2-MoE).
 *
 * Tensor-parallel ranks hold parts of the shared experts, as of a dense MLP,
 * and process all rows there. Routed experts process the local rows and those
 * received from other ranks, or are cut like the shared experts. */
#include "runtime/device/cpu_node_dispatch.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <string.h>

/* A batch of consecutive rows for one expert, from one source rank
 * (cpu_expert_parallel.c). */
typedef struct expert_batch {
    uint32_t expert; /* local index */
    size_t first;
    uint32_t n;
} expert_batch;

/* Returns the number of batches of rows for this rank's experts: local experts
 * times source ranks. */
static uint32_t count_batches(const lhi_cpu *cpu)
{
    return cpu->n_source_ranks * cpu->n_local_experts;
}

/* Returns batch `i` of the received rows, those that one source rank sent to
 * one local expert: the expert, the first row and the row count. */
static expert_batch make_batch(const lhi_cpu *cpu,
                               const lhi_cpu_saved_activations *kept,
                               uint32_t i)
{
    return (expert_batch){
        i % cpu->n_local_experts, (size_t)kept->recv_offsets[i],
        (uint32_t)(kept->recv_offsets[i + 1] - kept->recv_offsets[i])};
}

/* Returns the address of a local expert's gate and up projection in `w`, which
 * has weights or their gradients. */
static float *get_gate_up(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          uint32_t expert)
{
    return w->experts + (size_t)expert * 3 * cpu->expert_f * cpu->h;
}

/* Returns the address of a local expert's down projection in `w`, which has
 * weights or their gradients. */
static float *get_down(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                       uint32_t expert)
{
    return get_gate_up(cpu, w, expert) + 2 * (size_t)cpu->expert_f * cpu->h;
}

/* Returns the address of the shared experts' down projection in `w`, which has
 * weights or their gradients. */
static float *get_shared_down(const lhi_cpu *cpu, const lhi_cpu_weights *w)
{
    return w->shared + 2 * (size_t)cpu->shared_f * cpu->h;
}

/* Returns the address of the first row in `all` that this rank's router
 * processes. */
static float *get_routed_rows(const lhi_cpu *cpu, float *all)
{
    return cpu->shards_experts ? all
                               : all + (size_t)cpu->first_router_row * cpu->h;
}

/* Returns the address of the rows in `all` over which the shared experts'
 * outputs are summed: all rows with tensor-parallel experts, else this rank's
 * own rows. */
static float *get_shared_rows(const lhi_cpu *cpu, float *all)
{
    return cpu->shards_experts ? all : lhi_cpu_own_rows(cpu, all);
}

/* Returns how many rows get_shared_rows() points to. */
static uint32_t count_shared_rows(const lhi_cpu *cpu)
{
    return cpu->shards_experts ? cpu->t : cpu->r;
}

/* Checks whether the shared experts' output gradient is multiplied by their
 * gate before it is all-gathered rather than afterwards. */
static bool gates_before_gather(const lhi_cpu *cpu)
{
    return lhi_cpu_has_sequence_parallel(cpu) && !cpu->shards_experts;
}

void lhi_cpu_experts_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_saved_activations *kept)
{
    uint32_t up = 2 * cpu->expert_f;
    lhi_cpu_route(cpu, w, kept);
    const float *x =
        lhi_cpu_send_rows(cpu, kept, get_routed_rows(cpu, kept->norm2));
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        if (l.n)
            lhi_cpu_forward_product(
                cpu, x + l.first * cpu->h, get_gate_up(cpu, w, l.expert),
                kept->gate_up + l.first * up, l.n, cpu->h, up, false);
    }
}

void lhi_cpu_experts_act(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    cpu->k->swiglu(kept->gate_up, kept->act,
                   lhi_cpu_count_local_rows(cpu, kept), cpu->expert_f,
                   cpu->bf16);
}

void lhi_cpu_shared_experts_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                               lhi_cpu_saved_activations *kept)
{
    if (!w->shared)
        return;
    lhi_cpu_forward_product(cpu, kept->norm2, w->shared, kept->shared_gate_up,
                            cpu->t, cpu->h, 2 * cpu->shared_f, false);
    if (!w->shared_gate)
        return;
    cpu->k->row_dots(get_shared_rows(cpu, kept->norm2), cpu->h, w->shared_gate,
                     0, count_shared_rows(cpu), cpu->h,
                     kept->shared_gate_values);
    cpu->k->sigmoid(kept->shared_gate_values, count_shared_rows(cpu));
}

void lhi_cpu_shared_experts_act(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                                lhi_cpu_saved_activations *kept)
{
    if (w->shared)
        cpu->k->swiglu(kept->shared_gate_up, kept->shared_act, cpu->t,
                       cpu->shared_f, cpu->bf16);
}

/* Adds the shared experts' down projection, times their output gate if there
 * is one, to `out`. */
static void add_shared(lhi_cpu *cpu, const lhi_cpu_weights *w,
                       const lhi_cpu_saved_activations *kept, float *out)
{
    lhi_cpu_forward_product(cpu, kept->shared_act, get_shared_down(cpu, w),
                            cpu->scratch, cpu->t, cpu->shared_f, cpu->h, false);
    float *rows = get_shared_rows(cpu, cpu->scratch);
    uint32_t n = count_shared_rows(cpu);
    if (!cpu->shards_experts)
        lhi_cpu_reduce_scatter_rows(cpu, cpu->scratch, rows);
    if (w->shared_gate)
        cpu->k->scale_rows(rows, cpu->h, n, cpu->h, kept->shared_gate_values);
    cpu->k->add(out, rows, (size_t)n * cpu->h);
}

/* Adds `by` times the output of the `number`-th expert chosen for row `row` to
 * the row at `to`. Adds nothing if the choice was dropped for lack of capacity.
 * */
static void add_routed(const lhi_cpu *cpu,
                       const lhi_cpu_saved_activations *kept, size_t row,
                       uint32_t number, float by, float *to)
{
    int32_t at = kept->expert_rows[row * cpu->topk + number];
    const float *x = cpu->dispatch_buffer + (size_t)(at < 0 ? 0 : at) * cpu->h;
    for (size_t i = 0; at >= 0 && i < cpu->h; i++)
        to[row * cpu->h + i] += by * x[i];
}

/* Adds the outputs of all routed experts, times their routing weights, to
 * `sum`. With `gradients` it adds the input gradients without weights. */
static void add_all_routed(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept,
                           bool gradients, float *sum)
{
    if (cpu->node_dispatch) {
        lhi_cpu_add_returned_rows(cpu, kept, gradients, sum);
        return;
    }
    for (size_t row = 0; row < cpu->dispatched_rows; row++)
        for (uint32_t j = 0; j < cpu->topk; j++)
            add_routed(cpu, kept, row, j,
                       gradients ? 1
                                 : kept->routing_weights[row * cpu->topk + j],
                       sum);
}

/* Returns the buffer in which expert outputs for x [r][h] are summed: x itself
 * or, if experts are tensor-parallel, a zeroed buffer for partial sums. */
static float *begin_sum(const lhi_cpu *cpu, float *x)
{
    if (!cpu->shards_experts)
        return x;
    memset(cpu->summands, 0, (size_t)cpu->t * cpu->h * sizeof *x);
    return cpu->summands;
}

/* Completes a sum begun by begin_sum(): with tensor-parallel experts it
 * reduce-scatters the partial sums and adds the result to x. */
static void end_sum(lhi_cpu *cpu, float *x)
{
    if (!cpu->shards_experts)
        return;
    float *own = lhi_cpu_own_rows(cpu, cpu->summands);
    lhi_cpu_reduce_scatter_rows(cpu, cpu->summands, own);
    cpu->k->add(x, own, (size_t)cpu->r * cpu->h);
}

void lhi_cpu_experts_down(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          const lhi_cpu_saved_activations *kept, float *out)
{
    size_t n = (size_t)cpu->r * cpu->h;
    lhi_drop at = {kept->sample, kept->layer, LHI_DROP_MLP};
    float *made = lhi_cpu_expert_output_buffer(cpu);
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        if (l.n)
            lhi_cpu_forward_product(cpu, kept->act + l.first * cpu->expert_f,
                                    get_down(cpu, w, l.expert),
                                    made + l.first * cpu->h, l.n, cpu->expert_f,
                                    cpu->h, false);
    }
    lhi_cpu_return_rows(cpu, kept);
    memset(out, 0, n * sizeof *out);
    float *sum = begin_sum(cpu, out);
    add_all_routed(cpu, kept, false, lhi_cpu_routed_rows(cpu, sum));
    lhi_cpu_gather_expert_outputs(cpu, sum);
    if (w->shared)
        add_shared(cpu, w, kept, sum);
    end_sum(cpu, out);
    lhi_cpu_apply_dropout_rows(cpu, at, out);
    cpu->k->add(out, kept->residual, n);
}

/* Multiplies the rows x of `width` floats, in expert order, by their routing
 * weights. */
static void scale_by_routing_weights(const lhi_cpu *cpu,
                                     const lhi_cpu_saved_activations *kept,
                                     float *x, size_t width)
{
    if (cpu->n_source_ranks > 1) {
        cpu->k->scale_rows(x, width, lhi_cpu_count_local_rows(cpu, kept), width,
                           cpu->recv_routing_weights);
        return;
    }
    for (size_t i = 0; i < (size_t)cpu->dispatched_rows * cpu->topk; i++)
        if (kept->expert_rows[i] >= 0)
            cpu->k->scale_rows(x + (size_t)kept->expert_rows[i] * width, width,
                               1, width, &kept->routing_weights[i]);
}

/* With sequence parallelism: all-gathers the gradient d of all rows into
 * kept->d_down and returns it; multiplies it by the shared gate before if
 * gates_before_gather(). Otherwise returns d. */
static const float *gather_gated_gradient(lhi_cpu *cpu,
                                          const lhi_cpu_weights *w,
                                          lhi_cpu_saved_activations *kept,
                                          const float *d)
{
    if (!lhi_cpu_has_sequence_parallel(cpu))
        return d;
    float *own = lhi_cpu_own_rows(cpu, kept->d_down);
    memcpy(own, d, (size_t)cpu->r * cpu->h * sizeof *d);
    if (w->shared_gate && gates_before_gather(cpu))
        cpu->k->scale_rows(own, cpu->h, cpu->r, cpu->h,
                           kept->shared_gate_values);
    lhi_cpu_gather_rows(cpu, own, kept->d_down);
    return kept->d_down;
}

/* Computes the gradient of the shared experts' output gate, before its sigmoid,
 * with tensor parallelism. Each rank has only some columns of every row, so
 * ranks sum their parts. */
static void gate_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    size_t f = cpu->shared_f;
    cpu->k->row_dots(cpu->scratch, f, kept->shared_act, f, cpu->t, f,
                     kept->d_shared_gate_values);
    lhi_cpu_all_reduce_values(cpu, kept->d_shared_gate_values, cpu->t);
    memmove(kept->d_shared_gate_values,
            kept->d_shared_gate_values + cpu->first_row,
            cpu->r * sizeof *kept->d_shared_gate_values);
    const float *gate = kept->shared_gate_values + cpu->first_dispatched_row;
    for (size_t i = 0; i < cpu->r; i++)
        kept->d_shared_gate_values[i] *=
            (gates_before_gather(cpu) ? 1 : gate[i]) * (1 - gate[i]);
    if (!gates_before_gather(cpu))
        cpu->k->scale_rows(cpu->scratch, f, cpu->t, f,
                           kept->shared_gate_values);
}

/* Computes the gradients of the shared experts' gate_up and of their gate's
 * logit. With tensor-parallel experts d covers all rows. */
static void shared_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                            lhi_cpu_saved_activations *kept, const float *d)
{
    size_t f = cpu->shared_f;
    if (gates_before_gather(cpu))
        d = gather_gated_gradient(cpu, w, kept, d);
    lhi_cpu_input_product(cpu, d, get_shared_down(cpu, w), cpu->scratch, cpu->t,
                          cpu->shared_f, cpu->h);
    if (w->shared_gate && cpu->tensor_group) {
        gate_backward(cpu, kept);
    } else if (w->shared_gate) {
        cpu->k->row_dots(cpu->scratch, f, kept->shared_act, f, cpu->t, f,
                         kept->d_shared_gate_values);
        for (size_t i = 0; i < cpu->t; i++)
            kept->d_shared_gate_values[i] *=
                kept->shared_gate_values[i] * (1 - kept->shared_gate_values[i]);
        cpu->k->scale_rows(cpu->scratch, f, cpu->t, f,
                           kept->shared_gate_values);
    }
    cpu->k->swiglu_backward(kept->shared_gate_up, cpu->scratch, cpu->t, f,
                            cpu->bf16);
}

/* Adds the shared experts' gradient of norm2 to `sum`. If the shared experts
 * have an output gate, adds the gate's part of that gradient to
 * cpu->scratch. */
static void add_shared_dgrad(lhi_cpu *cpu, const lhi_cpu_weights *w,
                             const lhi_cpu_saved_activations *kept, float *sum)
{
    size_t h = cpu->h;
    float *rows = get_shared_rows(cpu, cpu->dispatch_buffer);
    lhi_cpu_input_product(cpu, kept->shared_gate_up, w->shared,
                          cpu->dispatch_buffer, cpu->t, cpu->h,
                          2 * cpu->shared_f);
    if (!cpu->shards_experts)
        lhi_cpu_reduce_scatter_rows(cpu, cpu->dispatch_buffer, rows);
    cpu->k->add(sum, rows, count_shared_rows(cpu) * h);
    for (size_t row = 0; w->shared_gate && row < cpu->r; row++)
        for (size_t i = 0; i < h; i++)
            cpu->scratch[row * h + i] +=
                kept->d_shared_gate_values[row] * w->shared_gate[i];
}

void lhi_cpu_experts_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                              lhi_cpu_saved_activations *kept, const float *d)
{
    size_t h = cpu->h, f = cpu->expert_f;
    if (cpu->shards_experts)
        d = gather_gated_gradient(cpu, w, kept, d);
    float *d_made =
        lhi_cpu_send_gradients(cpu, kept, lhi_cpu_routed_rows(cpu, d));
    size_t all = lhi_cpu_count_local_rows(cpu, kept);
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        if (l.n)
            lhi_cpu_input_product(
                cpu, d_made + l.first * h, get_down(cpu, w, l.expert),
                cpu->scratch + l.first * f, l.n, cpu->expert_f, cpu->h);
    }
    /* d W' act' = d (W act)': the gradient of the expert's routing weight. */
    cpu->k->row_dots(cpu->scratch, f, kept->act, f, all, f,
                     cpu->d_routing_weights);
    scale_by_routing_weights(cpu, kept, cpu->scratch, f);
    if (cpu->n_source_ranks > 1) /* W reads it from here */
        scale_by_routing_weights(cpu, kept, d_made, h);
    cpu->k->swiglu_backward(kept->gate_up, cpu->scratch, all, f, cpu->bf16);
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        if (l.n)
            lhi_cpu_input_product(cpu, kept->gate_up + l.first * 2 * f,
                                  get_gate_up(cpu, w, l.expert),
                                  cpu->dispatch_buffer + l.first * h, l.n,
                                  cpu->h, 2 * cpu->expert_f);
    }
    lhi_cpu_return_gradients(cpu, kept, cpu->d_routing_weights);
    if (cpu->shards_experts) /* each rank has a partial sum */
        lhi_cpu_all_reduce_values(cpu, cpu->d_routing_weights,
                                  (size_t)kept->expert_offsets[cpu->experts]);
    lhi_cpu_route_backward(cpu, kept);
    if (w->shared)
        shared_backward(cpu, w, kept, d);
    lhi_cpu_input_product(cpu, kept->scores, w->router,
                          lhi_cpu_routed_rows(cpu, cpu->scratch),
                          cpu->router_rows, cpu->h, cpu->experts);
    float *sum = begin_sum(cpu, cpu->scratch);
    add_all_routed(cpu, kept, true, lhi_cpu_routed_rows(cpu, sum));
    lhi_cpu_gather_expert_outputs(cpu, sum);
    if (w->shared)
        add_shared_dgrad(cpu, w, kept, sum);
    end_sum(cpu, cpu->scratch);
}

/* Computes one expert's weight gradient dw [out][in] from output gradients dy
 * and inputs x with `rows` rows each; `adds`: adds to dw rather than
 * overwriting it. Without rows the gradient is 0. */
static void compute_expert_wgrad(const lhi_cpu *cpu, const float *dy,
                                 const float *x, float *dw, uint32_t rows,
                                 uint32_t in, uint32_t out, bool adds)
{
    if (rows)
        lhi_cpu_weight_product(cpu, dy, x, dw, rows, in, out, adds);
    else if (!adds)
        memset(dw, 0, (size_t)in * out * sizeof *dw);
}

void lhi_cpu_experts_up_wgrad(const lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              const lhi_cpu_weights *d_w, bool adds)
{
    uint32_t up = 2 * cpu->expert_f;
    const float *own = lhi_cpu_own_rows(cpu, kept->norm2);
    lhi_cpu_route_wgrad(cpu, kept, d_w, adds);
    const float *x =
        lhi_cpu_resent_rows(cpu, kept, get_routed_rows(cpu, kept->norm2));
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        compute_expert_wgrad(cpu, kept->gate_up + l.first * up,
                             x + l.first * cpu->h,
                             get_gate_up(cpu, d_w, l.expert), l.n, cpu->h, up,
                             adds || i >= cpu->n_local_experts);
    }
    if (d_w->shared)
        lhi_cpu_weight_product(cpu, kept->shared_gate_up, kept->norm2,
                               d_w->shared, cpu->t, cpu->h, 2 * cpu->shared_f,
                               adds);
    if (d_w->shared_gate)
        lhi_cpu_weight_product(cpu, kept->d_shared_gate_values, own,
                               d_w->shared_gate, cpu->r, cpu->h, 1, adds);
}

/* Returns the output gradients d in expert order, each row multiplied by its
 * routing weight. */
static const float *
get_weighted_gradients(const lhi_cpu *cpu,
                       const lhi_cpu_saved_activations *kept, const float *d)
{
    if (cpu->n_source_ranks > 1)
        return lhi_cpu_received_gradients(cpu, kept);
    lhi_cpu_resent_rows(cpu, kept, d);
    scale_by_routing_weights(cpu, kept, cpu->dispatch_buffer, cpu->h);
    return cpu->dispatch_buffer;
}

void lhi_cpu_experts_down_wgrad(const lhi_cpu *cpu,
                                const lhi_cpu_saved_activations *kept,
                                const float *d, const lhi_cpu_weights *d_w,
                                bool adds)
{
    if (cpu->shards_experts && lhi_cpu_has_sequence_parallel(cpu))
        d = kept->d_down;
    const float *d_made =
        get_weighted_gradients(cpu, kept, lhi_cpu_routed_rows(cpu, d));
    for (uint32_t i = 0; i < count_batches(cpu); i++) {
        expert_batch l = make_batch(cpu, kept, i);
        compute_expert_wgrad(cpu, d_made + l.first * cpu->h,
                             kept->act + l.first * cpu->expert_f,
                             get_down(cpu, d_w, l.expert), l.n, cpu->expert_f,
                             cpu->h, adds || i >= cpu->n_local_experts);
    }
    if (!d_w->shared)
        return;
    if (gates_before_gather(cpu)) {
        d = kept->d_down;
    } else if (d_w->shared_gate) {
        memcpy(cpu->dispatch_buffer, d, (size_t)cpu->t * cpu->h * sizeof *d);
        cpu->k->scale_rows(cpu->dispatch_buffer, cpu->h, cpu->t, cpu->h,
                           kept->shared_gate_values);
        d = cpu->dispatch_buffer;
    }
    lhi_cpu_weight_product(cpu, d, kept->shared_act, get_shared_down(cpu, d_w),
                           cpu->t, cpu->shared_f, cpu->h, adds);
}
