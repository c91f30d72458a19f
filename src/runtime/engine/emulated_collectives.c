/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated data-parallel communication on a timed rank. The program's data
 * stream takes the pipeline's times on the device's own link, one collective
 * after the other, dated by the passes that it follows. */
#include "runtime/engine/rank.h"

#include "runtime/device/timed.h"

#include <string.h>

lh_status lhi_emulated_collectives_make(lhi_rank *rank, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    rank->data_ready_ns = LHI_NEW(rank->mem, int64_t, program->n_passes);
    rank->collectives =
        LHI_NEW(rank->mem, lhi_collective_record, program->n_data);
    if (!rank->data_ready_ns || !rank->collectives)
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

/* Computes the times of the rank's next emulated collectives before index `end`
 * that are launched after at most `after` passes; all are ready at ready_ns. */
static void emulate_collectives(lhi_rank *rank, uint32_t end, uint32_t after,
                                int64_t ready_ns)
{
    while (rank->n_collectives < end &&
           rank->program->data[rank->n_collectives].after <= after)
        emulate_next_collective(rank, ready_ns);
}

void lhi_emulated_collectives_begin_step(lhi_rank *rank, int64_t t0_ns)
{
    const lhi_exec_rank *program = rank->program;
    memset(rank->data_ready_ns, 0,
           program->n_passes * sizeof *rank->data_ready_ns);
    rank->n_collectives = 0;
    rank->data_free_ns = t0_ns;
    emulate_collectives(rank, program->passes[0].first_data, 0, t0_ns);
}

int64_t lhi_emulated_collectives_ready_ns(const lhi_rank *rank,
                                          const lhi_exec_pass *pass)
{
    return rank->data_ready_ns[pass - rank->program->passes];
}

void lhi_emulated_collectives_start_pass(lhi_rank *rank,
                                         const lhi_exec_pass *pass,
                                         int64_t start_ns)
{
    emulate_collectives(rank, pass[1].first_data,
                        (uint32_t)(pass - rank->program->passes), start_ns);
}

void lhi_emulated_collectives_end_pass(lhi_rank *rank,
                                       const lhi_exec_pass *pass,
                                       int64_t end_ns)
{
    emulate_collectives(rank, pass[1].first_data, UINT32_MAX, end_ns);
}

int64_t lhi_emulated_collectives_last_ns(const lhi_rank *rank)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < rank->n_collectives; i++)
        if (rank->collectives[i].arrive_ns > last)
            last = rank->collectives[i].arrive_ns;
    return last;
}
