/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with experts in the cpu device: which experts a row passes, how it
 * comes to those of other ranks (cpu_nodes.h: by way of nodes), and what they
 * make of it. */
#ifndef LHI_CPU_EXPERTS_H
#define LHI_CPU_EXPERTS_H

#include "dev/cpu.h"

/* --- which experts (cpu_router.c) -------------------------------------------
 */

/* Room for choices of other ranks, that count for a capacity or are of experts
 * that are cut; how much (0: none is needed). False: no memory. */
bool lhi_cpu_make_choices(lhi_cpu *cpu);
size_t lhi_cpu_choice_bytes(const lhi_cpu *cpu);
/* Room for what a layer keeps of routes; false: no memory. */
bool lhi_cpu_make_routes(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_kept *kept);
/* From norm2: which experts each row passes, what their results are times, and
 * where its rows lie in the order of experts. */
void lhi_cpu_route(lhi_cpu *cpu, const lhi_cpu_weights *w,
                   lhi_cpu_kept *kept);
/* Scores become gradients of the logits, from cpu->d_shares. */
void lhi_cpu_route_back(lhi_cpu *cpu, lhi_cpu_kept *kept);
/* What W adds: the router, from norm2, and how often each expert was chosen. */
void lhi_cpu_route_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                           const lhi_cpu_weights *d_w, bool adds);

/* --- experts of other ranks (cpu_expert_ranks.c) -----------------------------
 * Alone nothing is sent: rows are put in the order of experts. What goes wrong
 * is in cpu->met, and then nothing more is done.
 */

lh_status lhi_cpu_check_expert_ranks(const lhi_cpu_options *options,
                                     lh_error *err);
/* Room for it; false: no memory. */
bool lhi_cpu_make_expert_ranks(lhi_cpu *cpu, const lhi_cpu_options *options);
/* Whether an expert of the model is here. */
static inline bool lhi_cpu_has_expert(const lhi_cpu *cpu, uint32_t expert)
{
    return expert / cpu->here == cpu->expert;
}
/* How many rows there are here. */
static inline size_t lhi_cpu_rows_here(const lhi_cpu *cpu,
                                       const lhi_cpu_kept *kept)
{
    return (size_t)kept->from[cpu->n_from * cpu->here];
}
/* Of the groups in which rows go to experts, the larger one's ranks. */
static inline uint32_t lhi_cpu_most_partners(const lhi_cpu *cpu)
{
    return cpu->n_expert > cpu->n_slices ? cpu->n_expert : cpu->n_slices;
}
/* Numbers of rows, of each member of its group and expert there, that come to
 * the rank with the i-th part of the experts here, as it is told them; and where
 * kept->from has those of this rank. */
static inline int32_t *lhi_cpu_counts_of(const lhi_cpu *cpu, uint32_t i)
{
    return cpu->row_counts + (1 + (size_t)i) * cpu->experts;
}
static inline int32_t *lhi_cpu_own_from(const lhi_cpu *cpu,
                                        const lhi_cpu_kept *kept)
{
    return kept->from + (size_t)cpu->slice * cpu->experts;
}
/* Sizes that cpu->sizes has of each: of two exchanges, both ways. */
enum { LHI_PARTNER_SIZES = 4 };
/* Rows of x [r][h], which are routed, go to their experts: those that are here
 * now, of which kept->from says how many; and the same once more, without
 * sending anything. */
const float *lhi_cpu_send_rows(lhi_cpu *cpu, lhi_cpu_kept *kept,
                               const float *x);
const float *lhi_cpu_rows_again(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                const float *x);
/* Where what experts here make of rows is to be, before it goes back. */
static inline float *lhi_cpu_made_rows(const lhi_cpu *cpu)
{
    return cpu->n_from > 1 ? cpu->incoming : cpu->routed;
}
/* It is in cpu->routed again, in the order of all experts: what all parts of an
 * expert make of a row, added up. Or it is where cpu_nodes.h has it. */
void lhi_cpu_return_rows(lhi_cpu *cpu, const lhi_cpu_kept *kept);
/* The same of gradients, with shares, which are in cpu->incoming_shares then;
 * and of those of inputs, in cpu->routed, with what results are worth. */
float *lhi_cpu_send_gradients(lhi_cpu *cpu, lhi_cpu_kept *kept,
                              const float *d);
void lhi_cpu_return_gradients(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                              const float *worth);
/* Floats of cpu->routed: rows of all choices, one number more of each where they
 * come from other ranks; or all rows, of what shared experts make. */
static inline size_t lhi_cpu_routed(const lhi_cpu *cpu)
{
    size_t chosen = (size_t)cpu->most_r * cpu->most;
    size_t n = chosen * (cpu->h + (cpu->n_from > 1));
    size_t shared = cpu->shared_f ? (size_t)cpu->t * cpu->h : 0;
    return n > shared ? n : shared;
}
/* Where they are kept. */
static inline float *lhi_cpu_incoming_rows(const lhi_cpu *cpu,
                                           const lhi_cpu_kept *kept)
{
    return kept->gate_up + (size_t)cpu->most_r * cpu->most * 2 * cpu->expert_f;
}
static inline float *lhi_cpu_incoming_gradients(const lhi_cpu *cpu,
                                                const lhi_cpu_kept *kept)
{
    return lhi_cpu_incoming_rows(cpu, kept) +
           (size_t)cpu->most_r * cpu->most * cpu->h;
}

/* --- experts (cpu_experts.c) ------------------------------------------------
 */

/* From norm2: the routes, and gate_up of all rows that come here. */
void lhi_cpu_experts_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept);
/* From gate_up to act. */
void lhi_cpu_experts_act(const lhi_cpu *cpu, lhi_cpu_kept *kept);
/* The same of shared experts, if there are any; with their gate. */
void lhi_cpu_shared_up(lhi_cpu *cpu, const lhi_cpu_weights *w,
                       lhi_cpu_kept *kept);
void lhi_cpu_shared_act(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept);
/* out = mid + what the experts make of act. */
void lhi_cpu_experts_down(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          const lhi_cpu_kept *kept, float *out);
/* From d, the gradient of what they added [r][h], to that of norm2, of these
 * rows, in cpu->wide; puts gradients of gate_up and of the router's logits in
 * their places. */
void lhi_cpu_experts_back(lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept, const float *d);
/* What W adds: router, gate and up; down, from d as above. */
void lhi_cpu_experts_up_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                const lhi_cpu_weights *d_w, bool adds);
void lhi_cpu_experts_down_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                  const float *d, const lhi_cpu_weights *d_w,
                                  bool adds);

#endif
