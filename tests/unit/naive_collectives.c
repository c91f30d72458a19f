/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication of the reference simulator. */
#include "naive_sim_internal.h"
#include "schedule/pipeline/accessors.h"

#include <string.h>

/* --- whole collectives ---------------------------------------------------- */

/* Appends the last collective to its device's queue if the device shares a
 * link; returns whether it does. */
static bool defer(world *w, int64_t whole_ns, uint32_t op)
{
    uint32_t last = w->out->n_collectives - 1;
    naive_collective *c = &w->out->collectives[last];
    sharer *s = &w->sharers[lh_pipeline_chunk(w->p, c->chunk)->device];
    if (s->n_wires == 0)
        return false;
    c->arrive_ns = NEVER;
    s->queue[s->count] = last;
    s->whole_ns[s->count] = whole_ns;
    s->ops[s->count++] = op;
    return true;
}

static void collect(world *w, uint32_t chunk, bool scatter)
{
    const lh_chunk *k = lh_pipeline_chunk(w->p, chunk);
    int64_t *free_ns = &w->dp_free_ns[k->device];
    naive_collective *c = &w->out->collectives[w->out->n_collectives++];
    c->chunk = chunk;
    c->is_reduce_scatter = scatter;
    c->ready_ns = w->now;
    if (!scatter)
        w->gathers[chunk] = true;
    if (defer(w, scatter ? k->reduce_scatter_ns : k->all_gather_ns, UINT32_MAX))
        return;
    c->depart_ns = *free_ns > w->now ? *free_ns : w->now;
    c->sent_ns =
        c->depart_ns + (scatter ? k->reduce_scatter_ns : k->all_gather_ns);
    c->arrive_ns = c->sent_ns + k->dp_latency_ns;
    *free_ns = c->sent_ns;
    if (!scatter)
        w->gathered_ns[chunk] = c->arrive_ns;
}

void naive_gather_next(world *w, uint32_t device)
{
    /* The items are in the device's order. */
    for (uint32_t i = 0; i < w->n_items; i++) {
        uint32_t c = w->items[i].pass.chunk;
        const lh_chunk *k = lh_pipeline_chunk(w->p, c);
        if (w->items[i].pass.kind != LH_F || k->device != device ||
            w->gathered_ns[c] != NEVER || w->gathers[c])
            continue;
        collect(w, c, false);
        return;
    }
}

void naive_gather_all(world *w)
{
    uint32_t n = lh_pipeline_n_chunks(w->p);
    w->gathered_ns = naive_grab(n, sizeof *w->gathered_ns);
    w->gathers = naive_grab(n, sizeof *w->gathers);
    w->due = naive_grab(n, sizeof *w->due);
    uint32_t n_ops = lhi_pipeline_n_dp_ops(w->p);
    w->out->collectives =
        naive_grab((size_t)2 * n + n_ops, sizeof *w->out->collectives);
    w->operated_ns = naive_grab(n_ops, sizeof *w->operated_ns);
    for (uint32_t i = 0; i < n_ops; i++)
        w->operated_ns[i] = NEVER;
    for (uint32_t c = 0; c < n; c++)
        if (lh_pipeline_chunk(w->p, c)->all_gather_ns > 0)
            w->gathered_ns[c] = NEVER;
    uint32_t first = lhi_pipeline_n_initial_gathers(w->p);
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        for (uint32_t i = 0; i < (first ? first : n); i++)
            naive_gather_next(w, d);
}

bool naive_begins_gathered(const world *w, const item *it)
{
    if (it->pass.kind != LH_F ||
        lh_pipeline_chunk(w->p, it->pass.chunk)->all_gather_ns == 0)
        return false;
    for (uint32_t i = 0; i < it->position; i++)
        if (w->orders[it->device][i]->pass.kind == LH_F &&
            w->orders[it->device][i]->pass.chunk == it->pass.chunk)
            return false;
    return true;
}

void naive_scatter_if_last(world *w, uint32_t chunk)
{
    uint32_t n = lh_pipeline_n_chunks(w->p);
    uint32_t copy =
        lhi_pipeline_is_bidirectional(w->p) ? (chunk + n / 2) % n : chunk;
    for (uint32_t i = 0; i < w->n_items; i++) {
        const item *it = &w->items[i];
        if ((it->pass.chunk == chunk || it->pass.chunk == copy) &&
            it->pass.kind >= LH_W && !it->ended)
            return;
    }
    if (copy == chunk && lh_pipeline_chunk(w->p, chunk)->reduce_scatter_ns > 0)
        collect(w, chunk, true);
    w->due[chunk] = w->due[copy] = copy != chunk;
}

void naive_scatter_copies(world *w)
{
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(w->p); c++) {
        if (w->due[c] && lh_pipeline_chunk(w->p, c)->reduce_scatter_ns > 0)
            collect(w, c, true);
        w->due[c] = false;
    }
}

static bool is_at(const lh_pass *pass, const lh_dp_pass *at)
{
    return pass->kind != LH_W && pass->chunk == at->chunk &&
           pass->microbatch == at->microbatch &&
           (pass->kind != LH_F) == at->backward;
}

void naive_launch(world *w, const lh_pass *pass)
{
    for (uint32_t i = 0; i < lhi_pipeline_n_dp_ops(w->p); i++) {
        const lh_dp_op *op = lh_pipeline_dp_op(w->p, i);
        if (!is_at(pass, &op->launch))
            continue;
        const lh_chunk *k = lh_pipeline_chunk(w->p, op->chunk);
        int64_t *free_ns = &w->dp_free_ns[k->device];
        w->out->collectives[w->out->n_collectives++] =
            (naive_collective){.chunk = op->chunk,
                               .is_reduce_scatter = op->is_reduce_scatter,
                               .ready_ns = w->now};
        if (defer(w, op->transfer_ns, i))
            continue;
        int64_t depart = *free_ns > w->now ? *free_ns : w->now;
        *free_ns = depart + op->transfer_ns;
        w->operated_ns[i] = *free_ns + k->dp_latency_ns;
        w->out->collectives[w->out->n_collectives - 1] =
            (naive_collective){op->chunk, op->is_reduce_scatter, w->now, depart,
                               *free_ns,  w->operated_ns[i]};
    }
}

bool naive_has_operations(const world *w, const lh_pass *pass)
{
    for (uint32_t i = 0; i < lhi_pipeline_n_dp_ops(w->p); i++)
        if (is_at(pass, &lh_pipeline_dp_op(w->p, i)->needed_by) &&
            w->operated_ns[i] > w->now)
            return false;
    return true;
}

/* --- pieces on shared links ----------------------------------------------- */

void naive_find_sharers(world *w)
{
    uint32_t n = lh_pipeline_n_devices(w->p),
             most =
                 2 * lh_pipeline_n_chunks(w->p) + lhi_pipeline_n_dp_ops(w->p);
    w->sharers = naive_grab(n, sizeof *w->sharers);
    for (uint32_t d = 0; d < n; d++) {
        sharer *s = &w->sharers[d];
        const char *name = lh_pipeline_dp_link(w->p, d);
        s->queue = naive_grab(most, sizeof *s->queue);
        s->whole_ns = naive_grab(most, sizeof *s->whole_ns);
        s->ops = naive_grab(most, sizeof *s->ops);
        for (uint32_t i = 0; name && i < w->n_wires; i++) {
            size_t length = strlen(w->wires[i].name);
            for (const char *at = name; at; at = strstr(at, " + ")) {
                at += at == name ? 0 : 3;
                if (strncmp(at, w->wires[i].name, length) == 0 &&
                    (at[length] == '\0' ||
                     strncmp(at + length, " + ", 3) == 0)) {
                    s->wires[s->n_wires++] = i;
                    break;
                }
            }
        }
    }
}

bool naive_enter_piece(world *w)
{
    for (uint32_t d = 0; d < w->out->n_devices; d++) {
        sharer *s = &w->sharers[d];
        if (s->waits || s->moves || s->at == s->count || s->free_ns > w->now)
            continue;
        s->waits = true;
        s->entry = w->n_entries++;
        return true;
    }
    return false;
}

static void end_collective(world *w, sharer *s)
{
    naive_collective *c = &w->out->collectives[s->queue[s->at]];
    c->sent_ns = s->free_ns;
    c->arrive_ns =
        s->free_ns + lh_pipeline_chunk(w->p, c->chunk)->dp_latency_ns;
    if (s->ops[s->at] != UINT32_MAX)
        w->operated_ns[s->ops[s->at]] = c->arrive_ns;
    else if (!c->is_reduce_scatter)
        w->gathered_ns[c->chunk] = c->arrive_ns;
    s->at++;
    s->piece = 0;
}

/* Returns the length of a device's next piece; *n: the number of pieces. */
static int64_t get_piece(const world *w, const sharer *s, uint32_t *n)
{
    int64_t whole = s->whole_ns[s->at];
    int64_t longest = lhi_pipeline_dp_piece_ns(w->p);
    *n = 1;
    while (longest > 0 && *n * longest < whole)
        ++*n;
    lh_pass part = {.part = (uint16_t)s->piece, .n_parts = (uint16_t)*n};
    return naive_part_of(whole, &part);
}

bool naive_send_piece(world *w)
{
    sharer *first = NULL;
    int64_t begin_ns = 0;
    if (naive_shares_rates(w))
        return false;
    for (uint32_t d = 0; d < w->out->n_devices; d++) {
        sharer *s = &w->sharers[d];
        int64_t free_ns = w->now;
        for (uint32_t i = 0; i < s->n_wires; i++)
            if (w->wires[s->wires[i]].free_ns > free_ns)
                free_ns = w->wires[s->wires[i]].free_ns;
        if (!s->waits || (first && first->entry < s->entry) ||
            (free_ns > w->now &&
             lhi_pipeline_dp_priority(w->p) == LH_DP_PIPELINE_FIRST))
            continue;
        first = s;
        begin_ns = free_ns;
    }
    if (!first)
        return false;
    uint32_t n;
    int64_t piece_ns = get_piece(w, first, &n);
    if (first->piece == 0)
        w->out->collectives[first->queue[first->at]].depart_ns = begin_ns;
    first->waits = false;
    first->free_ns = begin_ns + piece_ns;
    for (uint32_t i = 0; i < first->n_wires; i++)
        w->wires[first->wires[i]].free_ns = first->free_ns;
    if (++first->piece == n)
        end_collective(w, first);
    return true;
}

/* --- links shared by rate ------------------------------------------------- */

bool naive_shares_rates(const world *w)
{
    return lhi_pipeline_dp_priority(w->p) == LH_DP_FAIR;
}

static bool uses(const world *w, const sharer *s, const lh_link *link)
{
    for (uint32_t i = 0; i < s->n_wires; i++)
        if (strcmp(w->wires[s->wires[i]].name, link->name) == 0)
            return true;
    return false;
}

static bool meet(const sharer *a, const sharer *b)
{
    for (uint32_t i = 0; i < a->n_wires; i++)
        for (uint32_t k = 0; k < b->n_wires; k++)
            if (a->wires[i] == b->wires[k])
                return true;
    return false;
}

static bool end_message(world *w, item *it)
{
    if (!it->moves || it->halves > 0)
        return false;
    it->moves = false;
    it->departed = true;
    it->sent_ns = w->now;
    it->arrive_ns = w->now + it->link->latency_ns;
    return true;
}

/* A message begins if no earlier one is left on its link. */
static bool begin_message(world *w, item *it)
{
    if (it->turn == 0 || it->moves || it->departed)
        return false;
    for (uint32_t i = 0; i < w->n_items; i++) {
        const item *x = &w->items[i];
        if (x->turn > 0 && x->turn < it->turn && !x->departed &&
            strcmp(x->link->name, it->link->name) == 0)
            return false;
    }
    it->moves = true;
    it->depart_ns = w->now;
    it->halves = 2 * it->link->transfer_ns;
    return true;
}

static bool end_piece(world *w, sharer *s)
{
    uint32_t n;
    if (!s->moves || s->halves > 0)
        return false;
    s->moves = false;
    s->free_ns = w->now;
    get_piece(w, s, &n);
    if (++s->piece == n)
        end_collective(w, s);
    return true;
}

/* A piece begins if no other moves, and no earlier one waits, on its links. */
static bool begin_piece(world *w, sharer *s)
{
    uint32_t n;
    if (!s->waits)
        return false;
    for (uint32_t d = 0; d < w->out->n_devices; d++) {
        const sharer *x = &w->sharers[d];
        if (x != s && meet(x, s) &&
            (x->moves || (x->waits && x->entry < s->entry)))
            return false;
    }
    s->waits = false;
    s->moves = true;
    s->halves = 2 * get_piece(w, s, &n);
    if (s->piece == 0)
        w->out->collectives[s->queue[s->at]].depart_ns = w->now;
    return true;
}

bool naive_move(world *w)
{
    bool any = false;
    if (!naive_shares_rates(w))
        return false;
    for (uint32_t i = 0; i < w->n_items; i++)
        any |= end_message(w, &w->items[i]);
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        any |= end_piece(w, &w->sharers[d]);
    for (uint32_t i = 0; i < w->n_items; i++)
        any |= begin_message(w, &w->items[i]);
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        any |= begin_piece(w, &w->sharers[d]);
    return any;
}

static int64_t item_rate(const world *w, const item *it)
{
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        if (w->sharers[d].moves && uses(w, &w->sharers[d], it->link))
            return 1;
    return 2;
}

static int64_t piece_rate(const world *w, const sharer *s)
{
    for (uint32_t i = 0; i < w->n_items; i++)
        if (w->items[i].moves && uses(w, s, w->items[i].link))
            return 1;
    return 2;
}

/* Returns the end of a transfer with `halves` left at this rate, if that is
 * before next_ns. */
static int64_t end_of(const world *w, int64_t halves, int64_t rate,
                      int64_t next_ns)
{
    int64_t end_ns = w->now + halves / rate;
    while ((end_ns - w->now) * rate < halves)
        end_ns++;
    return end_ns < next_ns ? end_ns : next_ns;
}

int64_t naive_advance(world *w, int64_t next_ns)
{
    int64_t end_ns = next_ns;
    for (uint32_t i = 0; i < w->n_items; i++)
        if (w->items[i].moves)
            end_ns = end_of(w, w->items[i].halves, item_rate(w, &w->items[i]),
                            end_ns);
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        if (w->sharers[d].moves)
            end_ns = end_of(w, w->sharers[d].halves,
                            piece_rate(w, &w->sharers[d]), end_ns);
    if (end_ns == NEVER)
        return NEVER;
    for (uint32_t i = 0; i < w->n_items; i++)
        if (w->items[i].moves)
            w->items[i].halves -=
                (end_ns - w->now) * item_rate(w, &w->items[i]);
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        if (w->sharers[d].moves)
            w->sharers[d].halves -=
                (end_ns - w->now) * piece_rate(w, &w->sharers[d]);
    return end_ns;
}
