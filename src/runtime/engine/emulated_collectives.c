/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated data-parallel communication on a timed rank. The program's data
 * stream takes the pipeline's times on the device's own link, one collective
 * after the other, dated by the passes that it follows. If the device shares
 * links with messages, the emulated links determine the times. */
#include "runtime/engine/rank.h"

#include "base/integer_math.h"
#include "base/realtime.h"
#include "schedule/pipeline/pipeline_internal.h"

#include "runtime/device/timed.h"

#include <string.h>

lh_status lhi_emulated_collectives_make(lhi_rank *rank, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    rank->data_ready_ns = LHI_NEW(rank->mem, int64_t, program->n_passes);
    rank->collectives =
        LHI_NEW(rank->mem, lhi_collective_record, program->n_data);
    rank->shares_links = rank->o.emulates && !rank->o.hooks &&
                         lhi_shares_link(rank->o.pipeline, rank->o.stage);
    rank->shared_slots =
        LHI_NEW(rank->mem, uint32_t, rank->shares_links ? program->n_data : 0);
    if (!rank->data_ready_ns || !rank->collectives || !rank->shared_slots)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Returns the modelled transfer time in ns of a data-parallel collective
 * (all-gather or reduce-scatter) in the rank's data stream. */
static int64_t compute_transfer_time(const lhi_rank *rank,
                                     const lhi_exec_data *data)
{
    const lh_chunk *k = lhi_timed_find_chunk(rank->o.device, data->chunk);
    if (data->op != LH_NONE)
        return rank->o.pipeline->dp_ops[data->op].transfer_ns;
    return data->is_scatter ? k->reduce_scatter_ns : k->all_gather_ns;
}

/* Hands the rank's next data-parallel collective, ready at ready_ns, over to
 * the shared emulated links. */
static lh_status share_next_collective(lhi_rank *rank, int64_t ready_ns,
                                       lh_error *err)
{
    const lh_pipeline *p = rank->o.pipeline;
    const uint32_t i = rank->n_collectives, first = p->shared_at[rank->o.stage];
    const lhi_exec_data *data = &rank->program->data[i];
    const int64_t transfer_ns = compute_transfer_time(rank, data);
    const lhi_net_collective what = {
        .n_links = p->shared_at[rank->o.stage + 1] - first,
        .links = &p->shared[first],
        .ready_ns = ready_ns,
        .transfer_ns = transfer_ns,
        .latency_ns =
            lhi_timed_find_chunk(rank->o.device, data->chunk)->dp_latency_ns,
        .n_pieces = lhi_count_pieces(p, transfer_ns)};
    rank->collectives[i] =
        (lhi_collective_record){.chunk = data->chunk,
                                .is_reduce_scatter = data->is_scatter,
                                .op = data->op,
                                .ready_ns = ready_ns};
    LHI_TRY(lhi_net_add_collective(rank->o.net, &what, &rank->shared_slots[i],
                                   err));
    rank->n_collectives++;
    return LH_OK;
}

/* Waits for the rank's i-th collective on the shared links, unless it has been
 * waited for before in this step. */
static lh_status await_shared(lhi_rank *rank, uint32_t i, lh_error *err)
{
    lhi_collective_record *x = &rank->collectives[i];
    lhi_net_transfer times;
    if (rank->shared_slots[i] == LH_NONE)
        return LH_OK;
    LHI_TRY(lhi_net_await_collective(rank->o.net, rank->shared_slots[i], &times,
                                     err));
    rank->shared_slots[i] = LH_NONE;
    x->depart_ns = times.depart_ns;
    x->sent_ns = times.sent_ns;
    x->arrive_ns = times.arrive_ns;
    return LH_OK;
}

/* Computes the times of the rank's next data-parallel collective, ready at
 * ready_ns: it starts when the previous one has been sent. The pass that needs
 * it then waits for its arrival. */
static void emulate_next_collective(lhi_rank *rank, int64_t ready_ns)
{
    const lhi_exec_data *data = &rank->program->data[rank->n_collectives];
    lhi_collective_record *x = &rank->collectives[rank->n_collectives++];
    int64_t depart =
        ready_ns > rank->data_free_ns ? ready_ns : rank->data_free_ns;
    *x = (lhi_collective_record){.chunk = data->chunk,
                                 .is_reduce_scatter = data->is_scatter,
                                 .op = data->op,
                                 .ready_ns = ready_ns,
                                 .depart_ns = depart,
                                 .sent_ns = depart +
                                            compute_transfer_time(rank, data)};
    rank->data_free_ns = x->sent_ns;
    x->arrive_ns =
        x->sent_ns +
        lhi_timed_find_chunk(rank->o.device, data->chunk)->dp_latency_ns;
    if (data->before == LH_NONE)
        return;
    int64_t *waits = &rank->data_ready_ns[data->before];
    if (x->arrive_ns > *waits)
        *waits = x->arrive_ns;
}

/* Launches the rank's next emulated collectives before index `end` that are
 * launched after at most `after` passes; all are ready at ready_ns. */
static lh_status emulate_collectives(lhi_rank *rank, uint32_t end,
                                     uint32_t after, int64_t ready_ns,
                                     lh_error *err)
{
    while (rank->n_collectives < end &&
           rank->program->data[rank->n_collectives].after <= after) {
        if (rank->shares_links)
            LHI_TRY(share_next_collective(rank, ready_ns, err));
        else
            emulate_next_collective(rank, ready_ns);
    }
    return LH_OK;
}

lh_status lhi_emulated_collectives_begin_step(lhi_rank *rank, int64_t t0_ns,
                                              lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    memset(rank->data_ready_ns, 0,
           program->n_passes * sizeof *rank->data_ready_ns);
    rank->n_collectives = 0;
    rank->data_free_ns = t0_ns;
    return emulate_collectives(rank, program->passes[0].first_data, 0, t0_ns,
                               err);
}

lh_status lhi_emulated_collectives_await_pass(lhi_rank *rank, uint32_t pass,
                                              int64_t *ready_ns, lh_error *err)
{
    const lhi_exec_pass *of = &rank->program->passes[pass];
    int64_t arrived = rank->data_ready_ns[pass];
    for (uint32_t i = 0; rank->shares_links && i < of->n_required_data; i++)
        if (rank->program->data[i].before == pass) {
            LHI_TRY(await_shared(rank, i, err));
            arrived = lhi_max_int64(arrived, rank->collectives[i].arrive_ns);
        }
    *ready_ns = lhi_max_int64(*ready_ns, arrived);
    if (arrived > lhi_now_ns())
        lhi_sleep_until(arrived);
    return LH_OK;
}

lh_status lhi_emulated_collectives_start_pass(lhi_rank *rank,
                                              const lhi_exec_pass *pass,
                                              int64_t start_ns, lh_error *err)
{
    return emulate_collectives(rank, pass[1].first_data,
                               (uint32_t)(pass - rank->program->passes),
                               start_ns, err);
}

lh_status lhi_emulated_collectives_end_pass(lhi_rank *rank,
                                            const lhi_exec_pass *pass,
                                            int64_t end_ns, lh_error *err)
{
    return emulate_collectives(rank, pass[1].first_data, UINT32_MAX, end_ns,
                               err);
}

lh_status lhi_emulated_collectives_end_step(lhi_rank *rank, int64_t *last_ns,
                                            lh_error *err)
{
    *last_ns = 0;
    for (uint32_t i = 0; i < rank->n_collectives; i++) {
        if (rank->shares_links)
            LHI_TRY(await_shared(rank, i, err));
        *last_ns = lhi_max_int64(*last_ns, rank->collectives[i].arrive_ns);
    }
    if (*last_ns > lhi_now_ns())
        lhi_sleep_until(*last_ns);
    return LH_OK;
}
