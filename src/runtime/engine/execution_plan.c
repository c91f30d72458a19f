/* SPDX-License-Identifier: Apache-2.0 */
/* Accessors for an execution plan. */
#include "runtime/engine/execution_plan.h"

/* Returns an instruction stream's name (compute, send, receive, data, offload);
 * static storage. */
const char *lh_stream_name(lh_stream stream)
{
    static const char *const names[] = {
        "compute",   "receive-prev", "receive-next", "send-next",
        "send-prev", "data",         "offload",
    };
    return stream < LH_N_STREAMS ? names[stream] : "?";
}

/* Frees an execution plan; ignores NULL. */
void lh_exec_free(lh_exec *exec)
{
    if (!exec)
        return;
    lh_schedule_free(exec->schedule);
    lhi_arena_free(exec->mem);
}

lh_sim_options lhi_exec_sim_options_on(const lh_exec *exec, lh_data_path path,
                                       const bool *delegated)
{
    const lh_exec_options *o = &exec->options;
    const bool all = path == LH_DATA_PATH_DELEGATED;
    return (lh_sim_options){.size = sizeof(lh_sim_options),
                            .receives = all ? LH_RECEIVES_EARLY : o->receives,
                            .override_receives = true,
                            .coupled_queue = all ? 0 : o->coupled_queue,
                            .fifo = o->fifo,
                            .delegated = delegated,
                            .host_copy_ns = o->host_copy_ns};
}

lh_sim_options lhi_exec_sim_options(const lh_exec *exec)
{
    const lh_exec_options *o = &exec->options;
    return lhi_exec_sim_options_on(exec, o->path, o->delegation->links);
}

uint32_t lh_exec_n_ranks(const lh_exec *exec)
{
    return exec->n_ranks;
}

int64_t lh_exec_predicted_ns(const lh_exec *exec)
{
    return exec->predicted_ns;
}

uint32_t lh_exec_receive_slots(const lh_exec *exec, uint32_t rank)
{
    return exec->ranks[rank].n_slots;
}

uint32_t lh_exec_sends_in_flight(const lh_exec *exec, uint32_t rank)
{
    return exec->ranks[rank].n_in_flight;
}

const char *lh_exec_link_name(const lh_exec *exec, uint32_t link)
{
    return exec->link_names[link];
}

const lh_instruction *lh_exec_instructions(const lh_exec *exec, uint32_t rank,
                                           uint32_t *n_instructions)
{
    *n_instructions = exec->ranks[rank].n_instructions;
    return exec->ranks[rank].instructions;
}
