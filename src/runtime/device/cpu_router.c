/* SPDX-License-Identifier: Apache-2.0 */
/* The router: computes each row's experts and their routing weights. The
 * router's product with a row becomes scores by a softmax (Mixtral:
 * arXiv:2401.04088, section 2.1) or sigmoids (DeepSeek-V3: arXiv:2412.19437,
 * section 2.1.2). The top-k experts by score are chosen. With sigmoids a bias
 * is added for this choice only; it moves step by step until all experts are
 * used, without an auxiliary loss. With expert groups (arXiv:2405.04434,
 * section 2.1.3), groups are chosen first, by their best expert, or with
 * sigmoids by the sum of their two best.
 *
 * Each expert processes all rows that chose it, or at most `capacity` per
 * sequence (GShard: arXiv:2006.16668, section 2.2): first choices of all rows
 * before second ones, earlier rows before later ones. Choices beyond the
 * capacity are dropped; the row's other routing weights are unchanged.
 *
 * An auxiliary loss balances the experts (Switch Transformers:
 * arXiv:2101.03961, equation 4), per sequence (DeepSeek-V2, section 2.1.4), so
 * that it does not depend on the grouping into microbatches:
 *
 *     balance * experts * sum over experts of (share of the choices)
 *                                           * (mean probability)
 *
 * With sigmoids the probability is the score divided by the sum of all scores
 * (DeepSeek-V3, equations 17 to 20). */
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_node_dispatch.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <math.h>
#include <string.h>

bool lhi_cpu_make_choices(lhi_cpu *cpu)
{
    uint32_t n = cpu->n_tensor_ranks > cpu->n_context_ranks
                     ? cpu->n_tensor_ranks
                     : cpu->n_context_ranks;
    size_t all = (size_t)cpu->n_context_ranks * cpu->t * cpu->topk;
    if (lhi_cpu_choice_bytes(cpu) == 0)
        return true;
    return (!cpu->capacity ||
            (cpu->all_topk_experts = LHI_NEW(cpu->mem, int32_t, all))) &&
           (cpu->choice_bytes = LHI_NEW(cpu->mem, size_t, n));
}

/* Returns the index of this rank's first expert choice in the arrays
 * [t][topk]. */
static size_t get_own_choice_offset(const lhi_cpu *cpu)
{
    return (size_t)cpu->first_dispatched_row * cpu->topk;
}

bool lhi_cpu_make_routes(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_saved_activations *kept)
{
    size_t t = cpu->t, r = cpu->router_rows;
    size_t all = (size_t)cpu->dispatched_rows * cpu->topk;
    bool gates = cpu->gates_shared;
    return (kept->scores = lhi_cpu_alloc_floats(mem, r, cpu->experts)) &&
           (kept->routing_weights = lhi_cpu_alloc_floats(mem, all, 1)) &&
           (!gates ||
            ((kept->shared_gate_values = lhi_cpu_alloc_floats(mem, t, 1)) &&
             (kept->d_shared_gate_values = lhi_cpu_alloc_floats(mem, t, 1)))) &&
           (kept->topk_experts = LHI_NEW(mem, int32_t, all)) &&
           (kept->expert_rows = LHI_NEW(mem, int32_t, all)) &&
           (kept->source_rows = LHI_NEW(mem, int32_t, all)) &&
           (kept->expert_offsets = LHI_NEW(mem, int32_t, cpu->experts + 1)) &&
           (kept->recv_offsets =
                cpu->n_source_ranks == 1
                    ? kept->expert_offsets
                    : LHI_NEW(mem, int32_t,
                              cpu->n_source_ranks * cpu->n_local_experts +
                                  1)) &&
           lhi_cpu_make_copies(cpu, mem, kept);
}

/* Returns the index of the highest of n ratings, the first of equal ones, and
 * sets that rating to -INFINITY. */
static uint32_t pop_best(float *ratings, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (ratings[i] > ratings[best])
            best = i;
    ratings[best] = -INFINITY;
    return best;
}

/* Rates an expert group by its best expert or, with `two`, by the sum of its
 * two best (group-limited routing). */
static float compute_group_rating(const float *ratings, uint32_t n, bool two)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (ratings[i] > best) {
            second = best;
            best = ratings[i];
        } else if (ratings[i] > second) {
            second = ratings[i];
        }
    return two && n > 1 ? best + second : best;
}

/* Sets the ratings of experts in unchosen groups to -INFINITY. */
static void mask_groups(const lhi_cpu *cpu, float *ratings, float *groups)
{
    uint32_t n = cpu->expert_groups, size = cpu->experts / n;
    for (uint32_t g = 0; g < n; g++)
        groups[g] =
            compute_group_rating(ratings + g * size, size, cpu->sigmoid);
    for (uint32_t i = 0; i < cpu->topk_groups; i++)
        pop_best(groups, n);
    for (uint32_t e = 0; e < cpu->experts; e++)
        if (groups[e / size] > -INFINITY)
            ratings[e] = -INFINITY;
}

/* Chooses the topk experts for a row by its router scores p plus `bias` (NULL:
 * none), in chosen[], and computes their routing weights shares[]; `bias` does
 * not affect the weights. */
static void choose_experts(const lhi_cpu *cpu, const float *p,
                           const float *bias, int32_t *chosen, float *shares)
{
    float *ratings = cpu->d_experts, all = 0;
    for (uint32_t e = 0; e < cpu->experts; e++)
        ratings[e] = bias ? p[e] + bias[e] : p[e];
    if (cpu->expert_groups)
        mask_groups(cpu, ratings, ratings + cpu->experts);
    for (uint32_t j = 0; j < cpu->topk; j++) {
        chosen[j] = (int32_t)pop_best(ratings, cpu->experts);
        all += shares[j] = p[chosen[j]];
    }
    for (uint32_t j = 0; j < cpu->topk; j++)
        shares[j] = cpu->routed_scale *
                    (cpu->raw_routing_weights ? shares[j] : shares[j] / all);
}

/* Returns the index, among the rows t, of the first row that this rank
 * dispatches to experts; 0 if it dispatches all. */
static uint32_t get_first_dispatched(const lhi_cpu *cpu)
{
    return cpu->first_router_row - cpu->first_dispatched_row;
}

/* Returns the expert choices of all tensor- and context-parallel ranks:
 * [context][t][topk]. */
static const int32_t *gather_choices(lhi_cpu *cpu,
                                     const lhi_cpu_saved_activations *kept)
{
    size_t each = (size_t)cpu->t * cpu->topk;
    int32_t *all = cpu->all_topk_experts;
    if (!all)
        return kept->topk_experts;
    int32_t *mine = all + cpu->context_rank * each;
    memcpy(mine + (size_t)get_first_dispatched(cpu) * cpu->topk,
           kept->topk_experts,
           (size_t)cpu->dispatched_rows * cpu->topk * sizeof *all);
    if (!cpu->shards_experts) /* else they are gathered already */
        lhi_cpu_gather_choices(cpu, mine);
    lhi_cpu_gather_contexts(cpu, mine, all, each * sizeof *all);
    return all;
}

/* Applies the expert capacity to one sequence: sets a choice's expert row to
 * -1 if the choice is dropped, else to 0. First choices of all tokens precede
 * second ones. `chosen`: from gather_choices(); `taken`: scratch, a count per
 * expert. */
static void apply_capacity(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                           const int32_t *chosen, uint32_t sequence,
                           int32_t *taken)
{
    uint32_t n = cpu->n_context_ranks, pieces = lhi_cpu_count_pieces(cpu);
    uint32_t first = get_first_dispatched(cpu);
    memset(taken, 0, cpu->experts * sizeof *taken);
    for (uint32_t k = 0; k < cpu->topk * cpu->whole_sequence; k++) {
        uint32_t j = k / cpu->whole_sequence, token = k % cpu->whole_sequence;
        uint32_t piece = token / cpu->piece, half = piece >= n;
        uint32_t context = half ? 2 * n - 1 - piece : piece;
        size_t row = ((size_t)sequence * pieces + half) * cpu->piece +
                     token % cpu->piece;
        int32_t expert =
            chosen[(context * (size_t)cpu->t + row) * cpu->topk + j];
        bool fits = taken[expert] < (int32_t)cpu->capacity;
        taken[expert] += fits;
        if (context == cpu->context_rank && row >= first &&
            row < first + cpu->dispatched_rows)
            kept->expert_rows[(row - first) * cpu->topk + j] = fits ? 0 : -1;
    }
}

/* Computes each expert choice's row in the dispatch order, sorted by expert,
 * and each expert's first row; applies the capacity. */
static void sort_by_expert(lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    size_t all = (size_t)cpu->dispatched_rows * cpu->topk;
    int32_t *first = kept->expert_offsets;
    const int32_t *chosen = cpu->capacity ? gather_choices(cpu, kept) : NULL;
    if (!chosen)
        memset(kept->expert_rows, 0, all * sizeof *kept->expert_rows);
    for (uint32_t i = 0; chosen && i < cpu->microbatch; i++)
        apply_capacity(cpu, kept, chosen, i, first);
    memset(first, 0, (cpu->experts + 1) * sizeof *first);
    for (size_t i = 0; i < all; i++)
        first[kept->topk_experts[i] + 1] += kept->expert_rows[i] == 0;
    for (uint32_t e = 0; e < cpu->experts; e++)
        first[e + 1] += first[e];
    for (size_t i = 0; i < all; i++) {
        if (kept->expert_rows[i] < 0)
            continue;
        int32_t at = first[kept->topk_experts[i]]++;
        kept->expert_rows[i] = at;
        kept->source_rows[at] = (int32_t)(i / cpu->topk);
    }
    for (uint32_t e = cpu->experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

/* Returns the address in norm2 of the first row that this rank's router
 * processes. */
static const float *get_router_input(const lhi_cpu *cpu,
                                     const lhi_cpu_saved_activations *kept)
{
    return kept->norm2 + (size_t)cpu->first_router_row * cpu->h;
}

void lhi_cpu_route(lhi_cpu *cpu, const lhi_cpu_weights *w,
                   lhi_cpu_saved_activations *kept)
{
    size_t n = cpu->experts, own = get_own_choice_offset(cpu);
    float max, inv;
    lhi_cpu_forward_product(cpu, get_router_input(cpu, kept), w->router,
                            kept->scores, cpu->router_rows, cpu->h,
                            cpu->experts, false);
    if (cpu->sigmoid)
        cpu->k->sigmoid(kept->scores, cpu->router_rows * n);
    for (size_t row = 0; row < cpu->router_rows; row++) {
        float *p = kept->scores + row * n;
        if (!cpu->sigmoid) {
            cpu->k->softmax(p, n, 1, n, n, 1, &max, &inv);
            cpu->k->scale_rows(p, n, 1, n, &inv);
        }
        choose_experts(cpu, p, w->router_bias,
                       kept->topk_experts + own + row * cpu->topk,
                       kept->routing_weights + own + row * cpu->topk);
    }
    if (cpu->shards_experts) {
        lhi_cpu_gather_choices(cpu, kept->topk_experts);
        lhi_cpu_gather_choices(cpu, kept->routing_weights);
    }
    sort_by_expert(cpu, kept);
}

/* Returns the load-balancing loss's gradient by each probability of an expert
 * that has `count` choices in the sequence. */
static float compute_balance_gradient(const lhi_cpu *cpu, float count)
{
    size_t n = (size_t)cpu->whole_sequence * cpu->topk;
    return cpu->balance_weight * (float)cpu->experts * count / (float)n *
           cpu->loss_scale;
}

/* Counts each expert's choices in each sequence over all ranks:
 * counts[microbatch][experts]. */
static void count_choices(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                          float *counts)
{
    size_t all = (size_t)cpu->microbatch * cpu->experts;
    const int32_t *chosen = kept->topk_experts + get_own_choice_offset(cpu);
    memset(counts, 0, all * sizeof *counts);
    for (size_t i = 0; i < (size_t)cpu->router_rows * cpu->topk; i++) {
        size_t sequence =
            (cpu->first_router_row + i / cpu->topk) / cpu->sequence;
        counts[sequence * cpu->experts + (size_t)chosen[i]]++;
    }
    if (lhi_cpu_distributes_routing(cpu))
        lhi_cpu_all_reduce_values(cpu, counts, all);
    lhi_cpu_all_reduce_contexts(cpu, counts, all);
}

/* Converts d from gradients of the normalised probabilities p to gradients of
 * the unnormalised router scores of n experts. */
static void normalise_backward(const float *p, float *d, uint32_t n)
{
    float all = 0, mean = 0;
    for (uint32_t e = 0; e < n; e++)
        all += p[e];
    for (uint32_t e = 0; e < n; e++)
        mean += d[e] * (p[e] / all);
    for (uint32_t e = 0; e < n; e++)
        d[e] = (d[e] - mean) / all;
}

/* Replaces a row's router scores by its logits' gradients: from the routing
 * weights', through the normalisation over the chosen experts, then the softmax
 * or sigmoid. `balance` [experts]: gradient of the load-balancing loss. */
static void row_backward(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                         size_t row, const float *balance)
{
    float *p = kept->scores + row * cpu->experts, all = 0, dot = 0, mean = 0;
    const size_t own = get_own_choice_offset(cpu) + row * cpu->topk;
    const float *shares = kept->routing_weights + own;
    const int32_t *chosen = kept->topk_experts + own,
                  *place = kept->expert_rows + own;
    float *d = cpu->d_experts;
    memcpy(d, balance, cpu->experts * sizeof *d);
    if (cpu->sigmoid)
        normalise_backward(p, d, cpu->experts);
    for (uint32_t j = 0; j < cpu->topk; j++) {
        all += p[chosen[j]];
        if (place[j] >= 0)
            dot += cpu->d_routing_weights[place[j]] * shares[j];
    }
    for (uint32_t j = 0; j < cpu->topk; j++) {
        float by = cpu->routed_scale *
                   (place[j] >= 0 ? cpu->d_routing_weights[place[j]] : 0);
        d[chosen[j]] += cpu->raw_routing_weights ? by : (by - dot) / all;
    }
    for (uint32_t e = 0; !cpu->sigmoid && e < cpu->experts; e++)
        mean += p[e] * d[e];
    for (uint32_t e = 0; e < cpu->experts; e++)
        p[e] *= cpu->sigmoid ? d[e] * (1 - p[e]) : d[e] - mean;
}

void lhi_cpu_route_backward(lhi_cpu *cpu, lhi_cpu_saved_activations *kept)
{
    float *balance = cpu->d_experts + cpu->experts;
    count_choices(cpu, kept, balance);
    for (size_t i = 0; i < (size_t)cpu->microbatch * cpu->experts; i++)
        balance[i] = compute_balance_gradient(cpu, balance[i]);
    for (size_t row = 0; row < cpu->router_rows; row++) {
        size_t sequence = (cpu->first_router_row + row) / cpu->sequence;
        row_backward(cpu, kept, row, balance + sequence * cpu->experts);
    }
}

void lhi_cpu_route_wgrad(const lhi_cpu *cpu,
                         const lhi_cpu_saved_activations *kept,
                         const lhi_cpu_weights *d_w, bool adds)
{
    size_t all = (size_t)cpu->router_rows * cpu->topk;
    const int32_t *chosen = kept->topk_experts + get_own_choice_offset(cpu);
    lhi_cpu_weight_product(cpu, kept->scores, get_router_input(cpu, kept),
                           d_w->router, cpu->router_rows, cpu->h, cpu->experts,
                           adds);
    if (!d_w->router_bias)
        return;
    /* Integers: an expert's choices minus the mean, times the expert count. */
    for (uint32_t e = 0; e < cpu->experts; e++)
        d_w->router_bias[e] = (adds ? d_w->router_bias[e] : 0) - (float)all;
    for (size_t i = 0; i < all; i++)
        d_w->router_bias[chosen[i]] += (float)cpu->experts;
}
