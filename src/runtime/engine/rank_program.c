/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/rank_program.h"

#include <stdlib.h>

lh_status lhi_rank_program_make(const lhi_rank_options *options,
                                lhi_rank_program **out, lh_error *err)
{
    const lh_pipeline *p = options->pipeline;
    lhi_rank_program *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->exec = options->exec;
    lh_status status = lhi_rank_make(options, &s->rank, err);
    if (status == LH_OK) {
        s->records =
            calloc(s->rank->program->n_passes + 1u, sizeof *s->records);
        s->collectives = calloc(2 * (size_t)p->n_chunks + p->n_dp_ops +
                                    s->rank->program->n_copies + 1,
                                sizeof *s->collectives);
        if (!s->records || !s->collectives)
            status = lhi_fail_nomem(err);
    }
    if (status != LH_OK) {
        lhi_rank_program_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_rank_program_free(lhi_rank_program *s)
{
    if (!s)
        return;
    lhi_rank_free(s->rank);
    lhi_proposed_plan_release(s->proposed);
    free(s->records);
    free(s->collectives);
    free(s);
}

void lhi_rank_program_store_records(lhi_rank_program *s, int64_t t0_ns,
                                    const lhi_collective_record *executed,
                                    uint32_t n_executed)
{
    const lhi_rank *rank = s->rank;
    /* The run's trace is that of its own pipeline. */
    if (rank->o.rerouted_replicas > 0)
        return;
    for (uint32_t i = 0; i < rank->program->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->program->passes[i];
        lhi_pass_record r = rank->records[i];
        r.start_ns -= t0_ns;
        r.end_ns -= t0_ns;
        r.issued_ns -= t0_ns;
        if (pass->input != LH_NONE && !pass->local_input) {
            r.entered_ns -= t0_ns;
            r.arrived_ns -= t0_ns;
        }
        s->records[i] = r;
    }
    s->n_collectives = n_executed;
    for (uint32_t i = 0; i < n_executed; i++) {
        lhi_collective_record x = executed[i];
        x.ready_ns -= t0_ns;
        x.depart_ns -= t0_ns;
        x.sent_ns -= t0_ns;
        x.arrive_ns -= t0_ns;
        s->collectives[i] = x;
    }
    for (uint32_t i = 0; i < rank->n_copied; i++) {
        const lhi_storage_times *when = &rank->copied[i];
        int64_t end_ns = when->end_ns - t0_ns;
        s->collectives[s->n_collectives++] =
            (lhi_collective_record){.chunk = rank->program->copies[i].chunk,
                                    .op = LH_NONE,
                                    .copy = i + 1,
                                    .ready_ns = when->ready_ns - t0_ns,
                                    .depart_ns = when->depart_ns - t0_ns,
                                    .sent_ns = end_ns,
                                    .arrive_ns = end_ns};
    }
    s->has_records = true;
}
