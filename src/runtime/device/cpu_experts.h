/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture-of-experts layers in the cpu device: routing, dispatch to experts on
 * other ranks (node-aware: cpu_node_dispatch.h), and the experts' computation.
 */
#ifndef LHI_RUNTIME_DEVICE_CPU_EXPERTS_H
#define LHI_RUNTIME_DEVICE_CPU_EXPERTS_H

#include "runtime/device/cpu.h"

/* ---- routing (cpu_router.c) ---- */

/* Allocates buffers for other ranks' expert choices, which count towards a
 * capacity or belong to tensor-parallel experts. False: out of memory. */
bool lhi_cpu_make_choices(lhi_cpu *cpu);
/* Returns the bytes allocated by lhi_cpu_make_choices(); 0: none needed. */
size_t lhi_cpu_choice_bytes(const lhi_cpu *cpu);
/* Allocates one microbatch's routing tables of an expert layer; false: out of
 * memory. */
bool lhi_cpu_make_routes(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_saved_activations *kept);
/* Routes norm2's rows: computes each row's experts, their routing
 * weights, and each choice's row in the dispatch order. */
void lhi_cpu_route(lhi_cpu *cpu, const lhi_cpu_weights *w,
                   lhi_cpu_saved_activations *kept);
/* Replaces the saved router scores by the gradients of the router's logits,
 * given the routing weights' gradients in cpu->d_routing_weights. */
void lhi_cpu_route_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept);
/* Computes the router's weight gradient (W) in d_w and counts each expert's
 * choices; `adds`: adds to the sums there rather than overwriting them. */
void lhi_cpu_route_wgrad(const lhi_cpu *cpu,
                         const lhi_cpu_saved_activations *kept,
                         const lhi_cpu_weights *d_w, bool adds);

/* --- expert parallelism (cpu_expert_parallel.c) -----------------------------
 * A single rank sends nothing and only sorts rows by expert. A failing
 * collective sets collective_status; later ones are then skipped. */

/* Checks that the model's experts can be divided evenly over the
 * expert-parallel ranks. LH_EINVAL or LH_EUNSUPPORTED: they cannot. */
lh_status lhi_cpu_check_expert_parallel(const lhi_cpu_options *options,
                                        lh_error *err);
/* Allocates the send and receive buffers and counts of expert parallelism;
 * false: out of memory. */
bool lhi_cpu_make_expert_parallel(lhi_cpu *cpu, const lhi_cpu_options *options);
/* Checks whether an expert is on this rank. */
static inline bool lhi_cpu_has_expert(const lhi_cpu *cpu, uint32_t expert)
{
    return expert / cpu->n_local_experts == cpu->expert_rank;
}
/* Counts the rows that local experts process. */
static inline size_t
lhi_cpu_count_local_rows(const lhi_cpu *cpu,
                         const lhi_cpu_saved_activations *kept)
{
    return (size_t)
        kept->recv_offsets[cpu->n_source_ranks * cpu->n_local_experts];
}
/* Returns the size of the larger of the two groups that exchange expert rows.
 */
static inline uint32_t lhi_cpu_max_partners(const lhi_cpu *cpu)
{
    return cpu->n_expert_ranks > cpu->n_expert_tensor_ranks
               ? cpu->n_expert_ranks
               : cpu->n_expert_tensor_ranks;
}
/* Returns the row counts received by the i-th rank that shares the local
 * experts, one per source rank and local expert. */
static inline int32_t *lhi_cpu_row_counts(const lhi_cpu *cpu, uint32_t i)
{
    return cpu->row_counts + (1 + (size_t)i) * cpu->experts;
}
/* Returns this rank's part of recv_offsets. */
static inline int32_t *
lhi_cpu_own_recv_offsets(const lhi_cpu *cpu,
                         const lhi_cpu_saved_activations *kept)
{
    return kept->recv_offsets + (size_t)cpu->expert_tensor_rank * cpu->experts;
}
/* Number of arrays in exchange_sizes: two exchanges, both directions. */
enum { LHI_CPU_EXCHANGE_SIZES = 4 };
/* Sends the routed rows of x [r][h] to the ranks of their experts. Returns the
 * rows received here, with their offsets in kept->recv_offsets. */
const float *lhi_cpu_send_rows(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                               const float *x);
/* Returns the rows that lhi_cpu_send_rows() returned earlier, for the backward
 * pass: from the saved activations or, on a single rank, copied again from
 * x. */
const float *lhi_cpu_resent_rows(const lhi_cpu *cpu,
                                 const lhi_cpu_saved_activations *kept,
                                 const float *x);
/* Returns the buffer for the local experts' outputs, before they are sent back.
 */
static inline float *lhi_cpu_expert_output_buffer(const lhi_cpu *cpu)
{
    return cpu->n_source_ranks > 1 ? cpu->received : cpu->dispatch_buffer;
}
/* Sends expert outputs back to the tokens' ranks. They arrive in the dispatch
 * buffer in expert order, summed over the ranks that share an expert.
 * Node-aware dispatch sends them by lhi_cpu_return_rows_via_relays() instead.
 * */
void lhi_cpu_return_rows(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept);
/* Sends each row of the output gradients d, with its routing weight, to the
 * rank of the row's expert. Returns the gradients that this rank received. If
 * tokens come from several ranks (cpu->n_source_ranks), stores the received
 * rows' routing weights in cpu->recv_routing_weights. */
float *lhi_cpu_send_gradients(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                              const float *d);
/* Sends input gradients from the experts' ranks back to the tokens' ranks, into
 * the dispatch buffer. `worth`: gradient of each row's routing weight, which is
 * sent along into cpu->d_routing_weights. */
void lhi_cpu_return_gradients(lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              const float *worth);
/* Returns the floats in the dispatch buffer: one row per choice, with one extra
 * float each under expert parallelism; or all rows, for the shared experts'
 * output. */
static inline size_t lhi_cpu_dispatch_floats(const lhi_cpu *cpu)
{
    size_t chosen = (size_t)cpu->max_rows * cpu->max_choices;
    size_t n = chosen * (cpu->h + (cpu->n_source_ranks > 1));
    size_t shared = cpu->shared_f ? (size_t)cpu->t * cpu->h : 0;
    return n > shared ? n : shared;
}
/* Returns the buffer in which received rows are saved for W. */
static inline float *
lhi_cpu_received_rows(const lhi_cpu *cpu, const lhi_cpu_saved_activations *kept)
{
    return kept->gate_up +
           (size_t)cpu->max_rows * cpu->max_choices * 2 * cpu->expert_f;
}
/* Returns the buffer in which received gradients are saved for W. */
static inline float *
lhi_cpu_received_gradients(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept)
{
    return lhi_cpu_received_rows(cpu, kept) +
           (size_t)cpu->max_rows * cpu->max_choices * cpu->h;
}

/* ---- experts (cpu_experts.c) ---- */

/* Routes and dispatches norm2's rows to experts, and computes the gate
 * and up projections of all received rows. */
void lhi_cpu_experts_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_saved_activations *kept);
/* Applies the activation function to the routed experts' gate_up and stores the
 * result in act. */
void lhi_cpu_experts_act(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept);
/* Computes the shared experts' gate_up and their output gate, if the layer has
 * shared experts. */
void lhi_cpu_shared_experts_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                               lhi_cpu_saved_activations *kept);
/* Applies the activation function to the shared experts' gate_up and stores the
 * result in act. */
void lhi_cpu_shared_experts_act(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                                lhi_cpu_saved_activations *kept);
/* Computes the layer's output `out`: the state after attention (mid) plus the
 * outputs of routed experts, times routing weights, and of shared experts. */
void lhi_cpu_experts_down(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          const lhi_cpu_saved_activations *kept, float *out);
/* Computes norm2's gradient for local rows, into the scratch buffer, from the
 * experts' output gradient d [r][h]. Replaces gate_up and the router's scores
 * by their gradients. */
void lhi_cpu_experts_backward(lhi_cpu *cpu, const lhi_cpu_weights *w,
                              lhi_cpu_saved_activations *kept, const float *d);
/* Computes the weight gradients of router, gate and up projections (W) in d_w;
 * `adds`: adds to the sums there rather than overwriting them. */
void lhi_cpu_experts_up_wgrad(const lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              const lhi_cpu_weights *d_w, bool adds);
/* Computes the experts' down weight gradient (W) from d, as in
 * lhi_cpu_experts_backward(), in d_w; `adds`: adds to the sum there. */
void lhi_cpu_experts_down_wgrad(const lhi_cpu *cpu,
                                const lhi_cpu_saved_activations *kept,
                                const float *d, const lhi_cpu_weights *d_w,
                                bool adds);

#endif
