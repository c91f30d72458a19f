/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's data stream: all-gathers and reduce-scatters in launch order, one at
 * a time (PipeMesh, section V). Also its offload stream: activations that are
 * copied out and back. */
#include "runtime/engine/execution_plan.h"

/* State while a data stream is listed. */
typedef struct stream_builder {
    const lh_pipeline *p;
    lhi_exec_rank *rank;
    uint32_t *pass_of; /* by point: the rank's pass or LH_NONE; used if passes
                        * launch operations */
    uint32_t *gathers; /* passes that need a gathered chunk, in order */
    uint32_t n_gathers, next_gather;
} stream_builder;

/* Returns the index of an F, D or B pass in l->pass_of. */
static size_t get_pass_index(const stream_builder *l, const lh_pass *pass)
{
    return lhi_pass_index(l->p, pass->chunk, pass->microbatch,
                          pass->kind != LH_F);
}

/* Checks whether pass i of the rank is the first F of a chunk that has an
 * all-gather of its parameters, which it must wait for. */
static bool is_gathered(const stream_builder *l, uint32_t i)
{
    const lhi_exec_pass *pass = &l->rank->passes[i];
    return pass->is_first && l->p->chunks[pass->pass.chunk].all_gather_ns > 0;
}

/* Fills in l->pass_of, the index of each F, D and B among the rank's passes
 * (n_points entries), and lists the passes that wait for an all-gather. */
static void find_passes(stream_builder *l, size_t n_points)
{
    for (size_t i = 0; i < n_points; i++)
        l->pass_of[i] = LH_NONE;
    for (uint32_t i = 0; i < l->rank->n_passes; i++) {
        const lhi_exec_pass *pass = &l->rank->passes[i];
        if (n_points > 0 && pass->pass.kind != LH_W)
            l->pass_of[get_pass_index(l, &pass->pass)] = i;
        if (is_gathered(l, i))
            l->gathers[l->n_gathers++] = i;
    }
}

/* Appends a collective to the rank's data stream, its data-parallel
 * collectives' order. */
static void add_collective(stream_builder *l, lhi_exec_data what)
{
    l->rank->data[l->rank->n_data++] = what;
}

/* Appends the next chunk's all-gather in the rank's gather list to its data
 * stream (collectives in launch order), launched after `after` passes; `now`:
 * predicted launch time in ns. */
static void add_gather(stream_builder *l, uint32_t after, int64_t now)
{
    uint32_t before = l->gathers[l->next_gather++];
    add_collective(l,
                   (lhi_exec_data){.chunk = l->rank->passes[before].pass.chunk,
                                   .op = LH_NONE,
                                   .after = after,
                                   .before = before,
                                   .predicted_ns = now});
}

/* Returns the index of the rank's pass at which a data-parallel operation
 * starts or ends; LH_NONE: the rank has no such pass. */
static uint32_t find_pass(const stream_builder *l, const lh_dp_pass *at)
{
    return at->chunk == LH_NONE
               ? LH_NONE
               : l->pass_of[lhi_pass_index(l->p, at->chunk, at->microbatch,
                                           at->backward)];
}

/* Appends the data-parallel collectives that are launched when pass i starts to
 * the rank's data stream. */
static void add_launched(stream_builder *l, uint32_t i)
{
    const lh_pipeline *p = l->p;
    const lhi_exec_pass *pass = &l->rank->passes[i];
    if (p->n_dp_ops && pass->pass.kind != LH_W) {
        size_t at = get_pass_index(l, &pass->pass);
        for (uint32_t k = p->dp_first[at]; k < p->dp_first[at + 1]; k++) {
            const lh_dp_op *op = &p->dp_ops[k];
            add_collective(
                l, (lhi_exec_data){.chunk = op->chunk,
                                   .op = k,
                                   .is_scatter = op->is_reduce_scatter,
                                   .after = i,
                                   .before = find_pass(l, &op->needed_by),
                                   .predicted_ns = pass->start_ns});
        }
    }
    if (is_gathered(l, i) && l->next_gather < l->n_gathers)
        add_gather(l, i, pass->start_ns);
}

/* Builds the rank's data-parallel collective stream in launch order, and how
 * many of them each pass waits for. */
static void build_stream(stream_builder *l)
{
    lhi_exec_rank *rank = l->rank;
    uint32_t first = l->p->first_gathers;
    while (l->next_gather < l->n_gathers &&
           (first == 0 || l->next_gather < first))
        add_gather(l, 0, 0);
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        lhi_exec_pass *pass = &rank->passes[i];
        pass->first_data = rank->n_data;
        add_launched(l, i);
        if (pass->is_last &&
            l->p->chunks[pass->pass.chunk].reduce_scatter_ns > 0)
            add_collective(l, (lhi_exec_data){.chunk = pass->pass.chunk,
                                              .op = LH_NONE,
                                              .is_scatter = true,
                                              .after = i + 1,
                                              .before = LH_NONE,
                                              .predicted_ns = pass->issued_ns});
    }
    rank->passes[rank->n_passes].first_data = rank->n_data;
    for (uint32_t k = 0; k < rank->n_data; k++)
        if (rank->data[k].before != LH_NONE)
            rank->passes[rank->data[k].before].n_required_data = k + 1;
}

lh_status lhi_exec_lower_data(const lh_pipeline *p, lhi_arena *mem,
                              lhi_arena *scratch, lhi_exec_rank *rank,
                              lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(scratch);
    size_t most = p->n_dp_ops;
    /* Summed over all ranks: passes times ranks. */
    size_t points =
        p->n_dp_ops ? 2 * (size_t)p->n_chunks * p->n_microbatches : 0;
    for (uint32_t i = 0; i < rank->n_passes; i++)
        most += (size_t)rank->passes[i].is_first + rank->passes[i].is_last;
    stream_builder l = {.p = p,
                        .rank = rank,
                        .pass_of = LHI_NEW(scratch, uint32_t, points),
                        .gathers = LHI_NEW(scratch, uint32_t, p->n_chunks)};
    rank->data = LHI_NEW(mem, lhi_exec_data, most);
    if (!l.pass_of || !l.gathers || !rank->data)
        return lhi_fail_nomem(err);
    find_passes(&l, points);
    build_stream(&l);
    lhi_arena_rewind(scratch, mark);
    return LH_OK;
}

/* Lists the rank's copies of activations to and from host memory in out[] and
 * returns their number. Pass i + 1 waits for the copy to the host after F i; D
 * or B waits for the copy back at its own start. */
static uint32_t list_host_copies(const lhi_exec_rank *rank,
                                 lhi_offload_copy *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        const bool is_back = pass->pass.kind != LH_F;
        if (pass->host_copy_ns > 0)
            out[n++] = (lhi_offload_copy){.chunk = pass->pass.chunk,
                                          .microbatch = pass->pass.microbatch,
                                          .to_device = is_back,
                                          .at = i,
                                          .before = is_back ? i : i + 1};
    }
    return n;
}

uint32_t lhi_exec_count_launched_copies(const lhi_exec_rank *rank, uint32_t i)
{
    uint32_t n = rank->passes[i].first_copy;
    while (n < rank->n_copies && rank->copies[n].at == i &&
           rank->copies[n].to_device)
        n++;
    return n;
}

lh_status lhi_exec_lower_copies(const lh_pipeline *p, bool lists_host_copies,
                                lhi_arena *mem, lhi_arena *scratch,
                                lhi_exec_rank *rank, lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(scratch);
    if (!p->offloads && !lists_host_copies)
        return LH_OK;
    uint32_t *places = LHI_NEW(scratch, uint32_t, lhi_count_offload_scratch(p));
    rank->copies = LHI_NEW(mem, lhi_offload_copy, rank->n_passes);
    if (!places || !rank->copies)
        return lhi_fail_nomem(err);
    rank->n_copies = p->offloads
                         ? lhi_list_offload_copies(
                               p, &rank->passes->pass, sizeof *rank->passes,
                               rank->n_passes, places, rank->copies)
                         : list_host_copies(rank, rank->copies);
    for (uint32_t k = 0, i = 0; i <= rank->n_passes; i++) {
        while (k < rank->n_copies && rank->copies[k].at < i)
            k++;
        rank->passes[i].first_copy = k;
    }
    for (uint32_t k = 0; k < rank->n_copies; k++)
        rank->passes[rank->copies[k].before].n_required_copies = k + 1;
    lhi_arena_rewind(scratch, mark);
    return LH_OK;
}
