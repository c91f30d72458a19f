/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of data-parallel communication on links shared with messages
 * (docs/formats/pipeline.md, "Shared links"). A device offers one piece at a
 * time to its links: the first piece of a collective when it has been launched
 * and the device's previous collective is sent, every other piece when the
 * previous one is sent. */
#include "schedule/simulator/dp_clock.h"

#include "base/integer_math.h"

lh_status lhi_dp_clock_make_streams(lhi_dp_clock *c, lhi_arena *mem,
                                    lh_error *err)
{
    const lh_pipeline *p = c->p;
    if (!p->shared_at)
        return LH_OK;
    size_t most = 2 * (size_t)p->n_chunks + p->n_dp_ops, n_pieces = 0;
    for (uint32_t i = 0; i < p->n_chunks; i++)
        if (lhi_shares_link(p, p->chunks[i].device))
            n_pieces += lhi_count_pieces(p, p->chunks[i].all_gather_ns) +
                        lhi_count_pieces(p, p->chunks[i].reduce_scatter_ns);
    for (uint32_t i = 0; i < p->n_dp_ops; i++)
        if (lhi_shares_link(p, p->chunks[p->dp_ops[i].chunk].device))
            n_pieces += lhi_count_pieces(p, p->dp_ops[i].transfer_ns);
    c->streams = LHI_NEW(mem, lhi_dp_stream, p->n_devices);
    c->next_launched = LHI_NEW(mem, uint32_t, most);
    c->requests = LHI_NEW(mem, uint32_t, p->n_devices);
    c->pieces = LHI_NEW(mem, lhi_dp_piece, n_pieces);
    if (!c->streams || !c->next_launched || !c->requests || !c->pieces)
        return lhi_fail_nomem(err);
    return LH_OK;
}

void lhi_dp_clock_reset_streams(lhi_dp_clock *c)
{
    c->n_requests = c->n_pieces = 0;
    c->n_entries = 0;
    for (uint32_t d = 0; c->streams && d < c->p->n_devices; d++)
        c->streams[d] = (lhi_dp_stream){.head = LH_NONE, .tail = LH_NONE};
}

/* Returns the time in ns for which a whole collective occupies its links. */
static int64_t get_transfer(const lhi_dp_clock *c, const lh_collective *what)
{
    const lh_chunk *k = &c->p->chunks[what->chunk];
    if (what->op != LH_NONE)
        return c->p->dp_ops[what->op].transfer_ns;
    return what->is_reduce_scatter ? k->reduce_scatter_ns : k->all_gather_ns;
}

/* Requests that the next piece (collective slice) of device d be offered to its
 * shared links at time ready_ns. */
static void request(lhi_dp_clock *c, uint32_t d, int64_t ready_ns)
{
    c->streams[d].is_waiting = false;
    c->streams[d].ready_ns = ready_ns;
    c->requests[c->n_requests++] = d;
}

void lhi_dp_clock_add_to_stream(lhi_dp_clock *c, uint32_t index)
{
    uint32_t d = c->sent[index].device;
    lhi_dp_stream *s = &c->streams[d];
    c->next_launched[index] = LH_NONE;
    if (s->tail != LH_NONE) {
        c->next_launched[s->tail] = index;
        s->tail = index;
        return;
    }
    s->head = s->tail = index;
    s->piece = 0;
    request(c, d, lhi_max_int64(c->sent[index].ready_ns, c->free_ns[d]));
}

uint32_t lhi_dp_clock_take_request(lhi_dp_clock *c, int64_t *ready_ns)
{
    if (c->n_requests == 0)
        return LH_NONE;
    uint32_t d = c->requests[--c->n_requests];
    *ready_ns = c->streams[d].ready_ns;
    return d;
}

void lhi_dp_clock_note_operation(lhi_dp_clock *c, const lh_dp_op *op,
                                 int64_t arrives)
{
    const lh_dp_pass *at = &op->needed_by;
    if (at->chunk == LH_NONE)
        return;
    size_t waiting =
        lhi_pass_index(c->p, at->chunk, at->microbatch, at->backward);
    c->n_pending[waiting]--;
    if (arrives > c->ready_ns[waiting])
        c->ready_ns[waiting] = arrives;
}

/* Records the arrival of a collective that was sent in pieces, for the passes
 * that wait for it and for the iteration's end. */
static void note_arrival(lhi_dp_clock *c, const lh_collective *what)
{
    if (what->arrive_ns > c->last_ns)
        c->last_ns = what->arrive_ns;
    if (what->op != LH_NONE)
        lhi_dp_clock_note_operation(c, &c->p->dp_ops[what->op],
                                    what->arrive_ns);
    else if (!what->is_reduce_scatter)
        c->gathered_ns[what->chunk] = what->arrive_ns;
}

/* Removes the first collective, whose last piece was sent at sent_ns, from
 * device d's queue, and records its arrival. Requests the first piece of the
 * next collective. */
static void finish_collective(lhi_dp_clock *c, uint32_t d, int64_t sent_ns)
{
    lhi_dp_stream *s = &c->streams[d];
    lh_collective *what = &c->sent[s->head];
    what->depart_ns = s->depart_ns;
    what->sent_ns = sent_ns;
    what->arrive_ns = sent_ns + c->p->chunks[what->chunk].dp_latency_ns;
    note_arrival(c, what);
    c->free_ns[d] = sent_ns;
    s->piece = 0;
    s->head = c->next_launched[s->head];
    if (s->head == LH_NONE)
        s->tail = LH_NONE;
    else
        request(c, d, lhi_max_int64(c->sent[s->head].ready_ns, sent_ns));
}

int64_t lhi_dp_clock_get_piece_ns(const lhi_dp_clock *c, uint32_t device)
{
    const lhi_dp_stream *s = &c->streams[device];
    int64_t whole = get_transfer(c, &c->sent[s->head]);
    return lhi_split_evenly(whole, s->piece, lhi_count_pieces(c->p, whole));
}

void lhi_dp_clock_record_piece(lhi_dp_clock *c, uint32_t device,
                               int64_t depart_ns, int64_t sent_ns)
{
    lhi_dp_stream *s = &c->streams[device];
    int64_t whole = get_transfer(c, &c->sent[s->head]);
    if (s->piece == 0)
        s->depart_ns = depart_ns;
    c->pieces[c->n_pieces++] = (lhi_dp_piece){
        s->head,   *c->n_messages, s->ready_ns,
        depart_ns, sent_ns,        lhi_dp_clock_get_piece_ns(c, device)};
    if (++s->piece == lhi_count_pieces(c->p, whole))
        finish_collective(c, device, sent_ns);
    else
        request(c, device, sent_ns);
}

/* Sends the next piece (collective slice) of device d at depart_ns, when its
 * links are free. Updates free_ns[], the time from which each link resource is
 * free. */
static void send_piece(lhi_dp_clock *c, uint32_t d, int64_t *free_ns,
                       int64_t depart_ns)
{
    const lh_pipeline *p = c->p;
    int64_t sent_ns = depart_ns + lhi_dp_clock_get_piece_ns(c, d);
    for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
        free_ns[p->shared[i]] = sent_ns;
    lhi_dp_clock_record_piece(c, d, depart_ns, sent_ns);
}

bool lhi_dp_clock_offer_piece(lhi_dp_clock *c, uint32_t d, int64_t *free_ns,
                              int64_t now, int64_t *again_ns, uint64_t *entry)
{
    const lh_pipeline *p = c->p;
    lhi_dp_stream *s = &c->streams[d];
    int64_t depart_ns = now;
    if (!s->is_waiting) {
        s->is_waiting = true;
        s->entry = c->n_entries++;
    }
    for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
        depart_ns = lhi_max_int64(depart_ns, free_ns[p->shared[i]]);
    if (depart_ns > now && p->dp_priority == LH_DP_PIPELINE_FIRST) {
        *again_ns = depart_ns;
        *entry = s->entry;
        return false;
    }
    send_piece(c, d, free_ns, depart_ns);
    return true;
}
