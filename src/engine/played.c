/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication of a timed rank: it takes the pipeline's times
 * on the device's own link, one after the other, dated by the passes that it
 * follows. */
#include "engine/rank.h"

static lhi_played *play_transfer(lhi_rank *rank, uint32_t chunk,
                                 bool is_scatter, uint32_t op,
                                 int64_t transfer_ns, int64_t ready_ns)
{
    lhi_played *x = &rank->played[rank->n_played++];
    int64_t depart =
        ready_ns > rank->data_free_ns ? ready_ns : rank->data_free_ns;
    *x = (lhi_played){chunk,  is_scatter,           op, ready_ns,
                      depart, depart + transfer_ns, 0};
    rank->data_free_ns = x->sent_ns;
    x->arrive_ns = x->sent_ns + rank->o.pipeline->chunks[chunk].dp_latency_ns;
    return x;
}

lh_status lhi_played_make(lhi_rank *rank, lh_error *err)
{
    const lh_pipeline *p = rank->o.pipeline;
    lhi_arena *mem = rank->mem;
    size_t points = 2 * (size_t)rank->o.exec->n_half;
    rank->gathered_ns = LHI_NEW(mem, int64_t, p->n_chunks);
    rank->late_gathers = LHI_NEW(mem, uint32_t, p->n_chunks);
    rank->point_ready_ns = LHI_NEW(mem, int64_t, p->n_dp_ops ? points : 0);
    rank->played =
        LHI_NEW(mem, lhi_played, 2 * (size_t)p->n_chunks + p->n_dp_ops);
    if (!rank->gathered_ns || !rank->late_gathers || !rank->point_ready_ns ||
        !rank->played)
        return lhi_fail_nomem(err);
    return LH_OK;
}

static void gather(lhi_rank *rank, uint32_t chunk, int64_t now_ns)
{
    int64_t transfer_ns = rank->o.pipeline->chunks[chunk].all_gather_ns;
    rank->gathered_ns[chunk] =
        play_transfer(rank, chunk, false, LH_NONE, transfer_ns, now_ns)
            ->arrive_ns;
}

/* Whether a chunk's weights are gathered before this pass. */
static bool needs_gather(const lhi_rank *rank, const lhi_exec_pass *pass)
{
    return pass->is_first &&
           rank->o.pipeline->chunks[pass->pass.chunk].all_gather_ns > 0;
}

void lhi_played_begin(lhi_rank *rank, int64_t t0_ns)
{
    const lh_pipeline *p = rank->o.pipeline;
    uint32_t n = 0;
    rank->n_played = rank->n_late = rank->next_late = 0;
    rank->data_free_ns = t0_ns;
    for (uint32_t i = 0; i < rank->program->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->program->passes[i];
        if (!needs_gather(rank, pass))
            continue;
        if (p->first_gathers == 0 || n++ < p->first_gathers)
            gather(rank, pass->pass.chunk, t0_ns);
        else
            rank->late_gathers[rank->n_late++] = pass->pass.chunk;
    }
    for (uint32_t i = 0; p->n_dp_ops && i < 2 * rank->o.exec->n_half; i++)
        rank->point_ready_ns[i] = 0;
}

static size_t point_of(const lhi_rank *rank, const lh_pass *pass)
{
    return (pass->kind == LH_F ? 0 : (size_t)rank->o.exec->n_half) +
           (size_t)pass->chunk * rank->o.pipeline->n_microbatches +
           pass->microbatch;
}

int64_t lhi_played_ready(const lhi_rank *rank, const lhi_exec_pass *pass)
{
    const lh_pipeline *p = rank->o.pipeline;
    int64_t ready = 0;
    if (pass->pass.kind == LH_F)
        ready = rank->gathered_ns[pass->pass.chunk];
    if (p->n_dp_ops && pass->pass.kind != LH_W) {
        int64_t op = rank->point_ready_ns[point_of(rank, &pass->pass)];
        ready = op > ready ? op : ready;
    }
    return ready;
}

/* The operations that a pass launches as it starts. */
static void launch(lhi_rank *rank, const lhi_exec_pass *pass, int64_t start_ns)
{
    const lh_pipeline *p = rank->o.pipeline;
    size_t point = point_of(rank, &pass->pass);
    for (uint32_t i = p->dp_first[point]; i < p->dp_first[point + 1]; i++) {
        const lh_dp_op *op = &p->dp_ops[i];
        const lhi_played *x =
            play_transfer(rank, op->chunk, op->is_reduce_scatter, i,
                          op->transfer_ns, start_ns);
        if (op->before.chunk == LH_NONE)
            continue;
        lh_pass before = {.chunk = op->before.chunk,
                          .microbatch = op->before.microbatch,
                          .kind = op->before.backward ? LH_D : LH_F};
        int64_t *ready = &rank->point_ready_ns[point_of(rank, &before)];
        if (x->arrive_ns > *ready)
            *ready = x->arrive_ns;
    }
}

void lhi_played_start(lhi_rank *rank, const lhi_exec_pass *pass,
                      int64_t start_ns)
{
    const lh_pipeline *p = rank->o.pipeline;
    if (p->n_dp_ops > 0 && pass->pass.kind != LH_W)
        launch(rank, pass, start_ns);
    if (rank->next_late < rank->n_late && needs_gather(rank, pass))
        gather(rank, rank->late_gathers[rank->next_late++], start_ns);
}

void lhi_played_end(lhi_rank *rank, const lhi_exec_pass *pass, int64_t end_ns)
{
    const lh_chunk *c = &rank->o.pipeline->chunks[pass->pass.chunk];
    if (pass->is_last && c->reduce_scatter_ns > 0)
        play_transfer(rank, pass->pass.chunk, true, LH_NONE,
                      c->reduce_scatter_ns, end_ns);
}

int64_t lhi_played_last(const lhi_rank *rank)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < rank->n_played; i++)
        if (rank->played[i].arrive_ns > last)
            last = rank->played[i].arrive_ns;
    return last;
}
