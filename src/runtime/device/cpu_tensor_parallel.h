/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism in the cpu device: collectives among the ranks that share
 * layers. Without tensor parallelism these do nothing, since gathered or
 * reduced results are already complete. A failing collective sets the device's
 * collective_status; later ones are then skipped. */
#ifndef LHI_RUNTIME_DEVICE_CPU_TENSOR_PARALLEL_H
#define LHI_RUNTIME_DEVICE_CPU_TENSOR_PARALLEL_H

#include "runtime/device/cpu.h"

/* Checks whether rows are distributed over the tensor-parallel ranks (sequence
 * parallelism). */
static inline bool lhi_cpu_has_sequence_parallel(const lhi_cpu *cpu)
{
    return cpu->n_tensor_ranks > 1 && !cpu->replicates_rows;
}
/* Copies the rows [r][h] that a pipeline message carries into it. With
 * replicated rows each rank sends its share (arXiv:2104.04473, section 4.1). */
void lhi_cpu_write_message(const lhi_cpu *cpu, const float *x, float *message);
/* Copies a received pipeline message to x [r][h]; gathers the shares if rows
 * are replicated. */
void lhi_cpu_read_message(lhi_cpu *cpu, const float *message, float *x);
/* Checks that the model and microbatch can be split over the tensor-parallel
 * ranks. */
lh_status lhi_cpu_check_tensor_parallel(const lhi_cpu_options *options,
                                        lh_error *err);
/* Allocates the buffers for tensor parallelism; false: out of memory. */
bool lhi_cpu_make_tensor_parallel(lhi_cpu *cpu);
/* Returns the address of this rank's rows in the matrix `all` [t][h]. */
float *lhi_cpu_own_rows(const lhi_cpu *cpu, float *all);
/* All-gathers the rows of `all` [t][h] from the tensor-parallel ranks; `own`:
 * this rank's rows. */
void lhi_cpu_gather_rows(lhi_cpu *cpu, const float *own, float *all);
/* Reduce-scatters the matrix `all` [t][h] over the tensor-parallel ranks: each
 * receives its own rows of the sum in `own`, which may point into `all`. */
void lhi_cpu_reduce_scatter_rows(lhi_cpu *cpu, const float *all, float *own);
/* Computes the loss of all rows from `logits`, of which each tensor-parallel
 * rank has part of the vocabulary, and replaces the logits by their gradients
 * times `scale`. As cross_entropy in lhi_kernels. */
double lhi_cpu_vocab_parallel_loss(lhi_cpu *cpu, float *logits,
                                   const int32_t *targets, float scale);
/* All-gathers choices, or routing weights, [t][topk]; each rank provides its
 * own rows. */
void lhi_cpu_gather_choices(lhi_cpu *cpu, void *all);
/* All-reduces n values over the tensor-parallel ranks. */
void lhi_cpu_all_reduce_values(lhi_cpu *cpu, float *values, size_t n);
/* Sums, over the tensor-parallel ranks, the gradients that they hold as
 * partial sums, for n weight-gradient items from `first` on. These are
 * gradients from a rank's own rows (norms, routers), or from some of the
 * queries that share a key head. All other gradients are complete without
 * this. */
void lhi_cpu_reduce_partial_gradients(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                      uint32_t first, uint32_t n);
/* Allocates the buffer for partial gradients once the chunks exist; false: out
 * of memory. */
bool lhi_cpu_make_partial_gradients(lhi_cpu *cpu);
/* Checks whether each tensor-parallel rank routes only part of the rows. */
static inline bool lhi_cpu_distributes_routing(const lhi_cpu *cpu)
{
    return cpu->n_tensor_ranks > 1 &&
           !(cpu->replicates_rows && cpu->shards_experts);
}
/* Returns the address in x [r][h] of the rows routed by this rank. */
static inline float *lhi_cpu_routed_rows(const lhi_cpu *cpu, const float *x)
{
    size_t first = (size_t)cpu->first_router_row - cpu->first_row;
    return (float *)(uintptr_t)x + first * cpu->h;
}
/* All-gathers expert outputs if rows are replicated but each rank's experts
 * processed only its share of x [r][h]. */
void lhi_cpu_gather_expert_outputs(lhi_cpu *cpu, float *x);
/* Checks whether a layer's MLP processes all rows. If not, routed experts
 * process only this rank's rows. */
static inline bool lhi_cpu_mlp_gathers_rows(const lhi_cpu *cpu, bool moe)
{
    return !moe || cpu->shared_f > 0 || cpu->shards_experts;
}

#endif
