/* SPDX-License-Identifier: Apache-2.0 */
/* Builds each stage's pass order and computes its warm-up length. */
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

/* Returns the last stage's extra warm-up forwards x. With M chunks per stage
 * and a first enqueue group of e_1 microbatches, (M - 1) e_1 forwards precede
 * the first backward. If some backward depends on a later forward, x is the
 * largest number of positions by which that forward would come too late. */
static uint32_t compute_extra_warmup(const lh_elastic_case *g,
                                     const lh_elastic_plan *p)
{
    int64_t M = g->chunks, most = 0, lead = (M - 1) * p->enqueue[0];
    int64_t d_before = 0;
    uint32_t first = 0; /* enqueue group with the dequeue group's first */
    int64_t first_before = 0;
    for (uint32_t j = 0; j < p->n_dequeue; j++) {
        while (d_before >= first_before + p->enqueue[first])
            first_before += p->enqueue[first++];
        int64_t d_end = d_before + p->dequeue[j];
        for (int64_t c = M; c >= 1; c--) {
            uint32_t e = first;
            int64_t e_before = first_before, m = d_before;
            while (m < d_end) {
                /* Positions from 1, for microbatch m on chunk c. */
                int64_t back =
                    M * d_before + (M - c) * p->dequeue[j] + (m - d_before) + 1;
                int64_t forth =
                    M * e_before + (c - 1) * p->enqueue[e] + (m - e_before) + 1;
                if (forth - lead - back > most)
                    most = forth - lead - back;
                e_before += p->enqueue[e++];
                m = e_before;
            }
        }
        d_before = d_end;
    }
    return (uint32_t)most;
}

/* Checks for every group e_j (groups[j] microbatches) that e_j C >= P (C +
 * C_PP). Pipeline messages, which take C_PP, are then hidden behind passes of C
 * = pass_ns on P stages. */
static bool are_messages_hidden(uint32_t n, const uint32_t *groups,
                                int64_t pass_ns, const lh_elastic_case *g)
{
    for (uint32_t j = 0; j < n; j++)
        if ((lhi_int128)groups[j] * pass_ns <
            (lhi_int128)g->stages * (pass_ns + g->pp_ns))
            return false;
    return true;
}

void lhi_elastic_derive_plan(const lh_elastic_case *given,
                             lh_elastic_plan *plan)
{
    plan->extra_warmup = compute_extra_warmup(given, plan);
    /* Between groups a stage alternates forwards and backwards, so a message
     * longer than either is exposed. */
    plan->pp_hidden =
        given->pp_ns <= given->f_ns && given->pp_ns <= given->b_ns &&
        are_messages_hidden(plan->n_enqueue, plan->enqueue, given->f_ns,
                            given) &&
        are_messages_hidden(plan->n_dequeue, plan->dequeue, given->b_ns, given);
}

/* Returns how many forwards stage `stage` runs before its first backward,
 * except the one directly before that backward. */
static int64_t count_warmup(const lh_elastic_case *g, const lh_elastic_plan *p,
                            uint32_t stage)
{
    int64_t all = (int64_t)g->chunks * g->microbatches;
    int64_t w = (int64_t)(g->chunks - 1) * p->enqueue[0] +
                2 * (int64_t)(g->stages - stage) + p->extra_warmup;
    return w < all ? w : all;
}

int64_t lh_elastic_resident_passes(const lh_elastic_case *given,
                                   const lh_elastic_plan *plan, uint32_t stage)
{
    int64_t all = (int64_t)given->chunks * given->microbatches;
    int64_t n = count_warmup(given, plan, stage) + 1;
    return n < all ? n : all;
}

/* Returns the maximum number of chunk passes with resident activations in
 * depth-first order: interleaved 1F1B, or 1F1B with one chunk per stage. */
int64_t lh_elastic_depth_first_resident_passes(const lh_elastic_case *given)
{
    int64_t P = given->stages, M = given->chunks;
    int64_t n = M > 1 ? (M - 1) * P + 2 * (P - 1) + 1 : P;
    int64_t all = M * given->microbatches;
    return n < all ? n : all;
}

/* Cursor in the forward or backward list. */
typedef struct list_cursor {
    uint32_t n;
    const uint32_t *groups;
    uint32_t chunks, group, completed_microbatches,
        index;                 /* at: index within the block */
    uint32_t completed_blocks; /* completed blocks in this group */
} list_cursor;

/* Writes stage `stage`'s next forward (or backward) pass at cursor `w` to
 * *out and advances the cursor. */
static void write_next_pass(list_cursor *w, const lh_elastic_case *g,
                            uint32_t stage, bool backward, lh_pass *out)
{
    uint32_t c =
        backward ? w->chunks - 1 - w->completed_blocks : w->completed_blocks;
    *out = (lh_pass){.chunk = c * g->stages + stage - 1,
                     .microbatch = w->completed_microbatches + w->index,
                     .n_parts = 1,
                     .kind = backward ? LH_B : LH_F};
    if (++w->index < w->groups[w->group])
        return;
    w->index = 0;
    if (++w->completed_blocks < w->chunks)
        return;
    w->completed_blocks = 0;
    w->completed_microbatches += w->groups[w->group++];
}

void lhi_elastic_order(const lh_elastic_case *given,
                       const lh_elastic_plan *plan, uint32_t stage,
                       lh_pass *passes)
{
    list_cursor f = {.n = plan->n_enqueue, .groups = plan->enqueue};
    list_cursor b = {.n = plan->n_dequeue, .groups = plan->dequeue};
    f.chunks = b.chunks = given->chunks;
    int64_t all = (int64_t)given->chunks * given->microbatches;
    int64_t w = count_warmup(given, plan, stage);
    for (int64_t i = 0; i < w; i++)
        write_next_pass(&f, given, stage, false, passes++);
    for (int64_t i = w; i < all; i++) {
        write_next_pass(&f, given, stage, false, passes++);
        write_next_pass(&b, given, stage, true, passes++);
    }
    for (int64_t i = 0; i < w; i++)
        write_next_pass(&b, given, stage, true, passes++);
}
