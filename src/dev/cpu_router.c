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
#include "dev/cpu_nodes.h"

#include <math.h>
#include <string.h>

bool lhi_cpu_make_choices(lhi_cpu *cpu)
{
    uint32_t n =
        cpu->n_tensor > cpu->n_contexts ? cpu->n_tensor : cpu->n_contexts;
    size_t all = (size_t)cpu->n_contexts * cpu->t * cpu->chosen;
    if (lhi_cpu_choice_bytes(cpu) == 0)
        return true;
    return (!cpu->capacity ||
            (cpu->all_chosen = LHI_NEW(cpu->mem, int32_t, all))) &&
           (cpu->choice_bytes = LHI_NEW(cpu->mem, size_t, n));
}

/* Returns the offset of the local rows' choices. */
static size_t own_choices(const lhi_cpu *cpu)
{
    return (size_t)cpu->first_routed * cpu->chosen;
}

bool lhi_cpu_make_routes(const lhi_cpu *cpu, lhi_arena *mem, lhi_cpu_kept *kept)
{
    size_t t = cpu->t, r = cpu->routes_r;
    size_t all = (size_t)cpu->routed_r * cpu->chosen;
    bool gates = cpu->gates_shared;
    return (kept->scores = lhi_cpu_floats(mem, r, cpu->experts)) &&
           (kept->shares = lhi_cpu_floats(mem, all, 1)) &&
           (!gates || ((kept->gate = lhi_cpu_floats(mem, t, 1)) &&
                       (kept->d_gate = lhi_cpu_floats(mem, t, 1)))) &&
           (kept->chosen = LHI_NEW(mem, int32_t, all)) &&
           (kept->place = LHI_NEW(mem, int32_t, all)) &&
           (kept->source = LHI_NEW(mem, int32_t, all)) &&
           (kept->first = LHI_NEW(mem, int32_t, cpu->experts + 1)) &&
           (kept->from =
                cpu->n_from == 1
                    ? kept->first
                    : LHI_NEW(mem, int32_t, cpu->n_from * cpu->here + 1)) &&
           lhi_cpu_make_copies(cpu, mem, kept);
}

/* Returns the highest of n ratings not yet marked by -INFINITY, the first of
 * equal ones, and marks it. */
static uint32_t take_best(float *ratings, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (ratings[i] > ratings[best])
            best = i;
    ratings[best] = -INFINITY;
    return best;
}

/* Rates a group by its best expert, or its two best. */
static float group_rating(const float *ratings, uint32_t n, bool two)
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
static void keep_groups(const lhi_cpu *cpu, float *ratings, float *groups)
{
    uint32_t n = cpu->expert_groups, size = cpu->experts / n;
    for (uint32_t g = 0; g < n; g++)
        groups[g] = group_rating(ratings + g * size, size, cpu->sigmoid);
    for (uint32_t i = 0; i < cpu->chosen_groups; i++)
        take_best(groups, n);
    for (uint32_t e = 0; e < cpu->experts; e++)
        if (groups[e / size] > -INFINITY)
            ratings[e] = -INFINITY;
}

/* Chooses the experts for a row with scores p, and computes their routing
 * weights. */
static void choose(const lhi_cpu *cpu, const float *p, const float *bias,
                   int32_t *chosen, float *shares)
{
    float *ratings = cpu->d_experts, all = 0;
    for (uint32_t e = 0; e < cpu->experts; e++)
        ratings[e] = bias ? p[e] + bias[e] : p[e];
    if (cpu->expert_groups)
        keep_groups(cpu, ratings, ratings + cpu->experts);
    for (uint32_t j = 0; j < cpu->chosen; j++) {
        chosen[j] = (int32_t)take_best(ratings, cpu->experts);
        all += shares[j] = p[chosen[j]];
    }
    for (uint32_t j = 0; j < cpu->chosen; j++)
        shares[j] = cpu->routed_scale *
                    (cpu->raw_shares ? shares[j] : shares[j] / all);
}

/* Returns the index within t of the first dispatched row. */
static uint32_t first_taken(const lhi_cpu *cpu)
{
    return cpu->first_routes - cpu->first_routed;
}

/* Gathers the choices from all ranks that share sequences and rows:
 * [context][t][topk]. */
static const int32_t *gather_choices(lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    size_t each = (size_t)cpu->t * cpu->chosen;
    int32_t *all = cpu->all_chosen;
    if (!all)
        return kept->chosen;
    int32_t *mine = all + cpu->context * each;
    memcpy(mine + (size_t)first_taken(cpu) * cpu->chosen, kept->chosen,
           (size_t)cpu->routed_r * cpu->chosen * sizeof *all);
    if (!cpu->cuts_experts) /* else they are gathered already */
        lhi_cpu_gather_choices(cpu, mine);
    lhi_cpu_gather_contexts(cpu, mine, all, each * sizeof *all);
    return all;
}

/* Applies the capacity to one sequence: sets a choice's position to -1 if it is
 * dropped, else to 0. First choices of all tokens precede second ones; `chosen`
 * is as gathered. */
static void keep_to_capacity(const lhi_cpu *cpu, lhi_cpu_kept *kept,
                             const int32_t *chosen, uint32_t sequence,
                             int32_t *taken)
{
    uint32_t n = cpu->n_contexts, pieces = lhi_cpu_n_pieces(cpu);
    uint32_t first = first_taken(cpu);
    memset(taken, 0, cpu->experts * sizeof *taken);
    for (uint32_t k = 0; k < cpu->chosen * cpu->whole_sequence; k++) {
        uint32_t j = k / cpu->whole_sequence, token = k % cpu->whole_sequence;
        uint32_t piece = token / cpu->piece, half = piece >= n;
        uint32_t context = half ? 2 * n - 1 - piece : piece;
        size_t row = ((size_t)sequence * pieces + half) * cpu->piece +
                     token % cpu->piece;
        int32_t expert =
            chosen[(context * (size_t)cpu->t + row) * cpu->chosen + j];
        bool fits = taken[expert] < (int32_t)cpu->capacity;
        taken[expert] += fits;
        if (context == cpu->context && row >= first &&
            row < first + cpu->routed_r)
            kept->place[(row - first) * cpu->chosen + j] = fits ? 0 : -1;
    }
}

/* Computes the choices' positions, sorted by expert. */
static void put_in_order(lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    size_t all = (size_t)cpu->routed_r * cpu->chosen;
    int32_t *first = kept->first;
    const int32_t *chosen = cpu->capacity ? gather_choices(cpu, kept) : NULL;
    if (!chosen)
        memset(kept->place, 0, all * sizeof *kept->place);
    for (uint32_t i = 0; chosen && i < cpu->microbatch; i++)
        keep_to_capacity(cpu, kept, chosen, i, first);
    memset(first, 0, (cpu->experts + 1) * sizeof *first);
    for (size_t i = 0; i < all; i++)
        first[kept->chosen[i] + 1] += kept->place[i] == 0;
    for (uint32_t e = 0; e < cpu->experts; e++)
        first[e + 1] += first[e];
    for (size_t i = 0; i < all; i++) {
        if (kept->place[i] < 0)
            continue;
        int32_t at = first[kept->chosen[i]]++;
        kept->place[i] = at;
        kept->source[at] = (int32_t)(i / cpu->chosen);
    }
    for (uint32_t e = cpu->experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

/* Returns the rows that this rank's router processes. */
static const float *routed_here(const lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    return kept->norm2 + (size_t)cpu->first_routes * cpu->h;
}

void lhi_cpu_route(lhi_cpu *cpu, const lhi_cpu_weights *w,
                   lhi_cpu_kept *kept)
{
    size_t n = cpu->experts, own = own_choices(cpu);
    float max, inv;
    lhi_cpu_forward_product(cpu, routed_here(cpu, kept), w->router,
                            kept->scores, cpu->routes_r, cpu->h, cpu->experts,
                            false);
    if (cpu->sigmoid)
        cpu->k->sigmoid(kept->scores, cpu->routes_r * n);
    for (size_t row = 0; row < cpu->routes_r; row++) {
        float *p = kept->scores + row * n;
        if (!cpu->sigmoid) {
            cpu->k->softmax(p, n, 1, n, n, 1, &max, &inv);
            cpu->k->scale_rows(p, n, 1, n, &inv);
        }
        choose(cpu, p, w->router_bias, kept->chosen + own + row * cpu->chosen,
               kept->shares + own + row * cpu->chosen);
    }
    if (cpu->cuts_experts) {
        lhi_cpu_gather_choices(cpu, kept->chosen);
        lhi_cpu_gather_choices(cpu, kept->shares);
    }
    put_in_order(cpu, kept);
}

/* Returns the auxiliary loss's gradient with respect to each probability of an
 * expert with `count` choices in the sequence. */
static float balance_of(const lhi_cpu *cpu, float count)
{
    size_t n = (size_t)cpu->whole_sequence * cpu->chosen;
    return cpu->balance * (float)cpu->experts * count / (float)n *
           cpu->loss_scale;
}

/* Counts each expert's choices in each sequence: [microbatch][experts]. */
static void count_choices(lhi_cpu *cpu, const lhi_cpu_kept *kept, float *counts)
{
    size_t all = (size_t)cpu->microbatch * cpu->experts;
    const int32_t *chosen = kept->chosen + own_choices(cpu);
    memset(counts, 0, all * sizeof *counts);
    for (size_t i = 0; i < (size_t)cpu->routes_r * cpu->chosen; i++) {
        size_t sequence = (cpu->first_routes + i / cpu->chosen) / cpu->sequence;
        counts[sequence * cpu->experts + (size_t)chosen[i]]++;
    }
    if (lhi_cpu_parts_routes(cpu))
        lhi_cpu_add_values(cpu, counts, all);
    lhi_cpu_add_contexts(cpu, counts, all);
}

/* Converts d from gradients of normalised probabilities to gradients of the
 * scores. */
static void parts_back(const float *p, float *d, uint32_t n)
{
    float all = 0, mean = 0;
    for (uint32_t e = 0; e < n; e++)
        all += p[e];
    for (uint32_t e = 0; e < n; e++)
        mean += d[e] * (p[e] / all);
    for (uint32_t e = 0; e < n; e++)
        d[e] = (d[e] - mean) / all;
}

/* Replaces a row's scores by the gradients of its logits: from those of the
 * routing weights, through the normalisation over the chosen experts, then the
 * softmax or sigmoid. `balance` [experts]. */
static void row_back(const lhi_cpu *cpu, lhi_cpu_kept *kept, size_t row,
                     const float *balance)
{
    float *p = kept->scores + row * cpu->experts, all = 0, dot = 0, mean = 0;
    const size_t own = own_choices(cpu) + row * cpu->chosen;
    const float *shares = kept->shares + own;
    const int32_t *chosen = kept->chosen + own, *place = kept->place + own;
    float *d = cpu->d_experts;
    memcpy(d, balance, cpu->experts * sizeof *d);
    if (cpu->sigmoid)
        parts_back(p, d, cpu->experts);
    for (uint32_t j = 0; j < cpu->chosen; j++) {
        all += p[chosen[j]];
        if (place[j] >= 0)
            dot += cpu->d_shares[place[j]] * shares[j];
    }
    for (uint32_t j = 0; j < cpu->chosen; j++) {
        float by = cpu->routed_scale *
                   (place[j] >= 0 ? cpu->d_shares[place[j]] : 0);
        d[chosen[j]] += cpu->raw_shares ? by : (by - dot) / all;
    }
    for (uint32_t e = 0; !cpu->sigmoid && e < cpu->experts; e++)
        mean += p[e] * d[e];
    for (uint32_t e = 0; e < cpu->experts; e++)
        p[e] *= cpu->sigmoid ? d[e] * (1 - p[e]) : d[e] - mean;
}

void lhi_cpu_route_back(lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    float *balance = cpu->d_experts + cpu->experts;
    count_choices(cpu, kept, balance);
    for (size_t i = 0; i < (size_t)cpu->microbatch * cpu->experts; i++)
        balance[i] = balance_of(cpu, balance[i]);
    for (size_t row = 0; row < cpu->routes_r; row++) {
        size_t sequence = (cpu->first_routes + row) / cpu->sequence;
        row_back(cpu, kept, row, balance + sequence * cpu->experts);
    }
}

void lhi_cpu_route_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                           const lhi_cpu_weights *d_w, bool adds)
{
    size_t all = (size_t)cpu->routes_r * cpu->chosen;
    const int32_t *chosen = kept->chosen + own_choices(cpu);
    lhi_cpu_weight_product(cpu, kept->scores, routed_here(cpu, kept),
                           d_w->router, cpu->routes_r, cpu->h, cpu->experts,
                           adds);
    if (!d_w->router_bias)
        return;
    /* Integers: an expert's choices minus the mean, times the number of
     * experts. */
    for (uint32_t e = 0; e < cpu->experts; e++)
        d_w->router_bias[e] = (adds ? d_w->router_bias[e] : 0) - (float)all;
    for (size_t i = 0; i < all; i++)
        d_w->router_bias[chosen[i]] += (float)cpu->experts;
}
