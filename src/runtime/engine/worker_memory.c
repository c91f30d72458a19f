/* SPDX-License-Identifier: Apache-2.0 */
/* Tracks each rank's resident memory in a training run. */
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/worker.h"

#include <stdlib.h>
#include <string.h>

/* Sums memory over all kinds except storage. */
static int64_t sum_bytes(const int64_t bytes[LH_N_MEMORY_KINDS])
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        sum += i == LH_MEMORY_STORAGE ? 0 : bytes[i];
    return sum;
}

void lhi_run_worker_record_memory(lhi_run_worker *w,
                                  const lhi_rank_program *next,
                                  const lhi_migration_target *target)
{
    int64_t now[LH_N_MEMORY_KINDS] = {0};
    if (!w->training)
        return;
    w->device->ops->add_memory(w->device, now);
    lhi_training_add_memory(w->training, now);
    lhi_rank_add_memory(w->program->rank, now);
    if (next)
        lhi_rank_add_memory(next->rank, now);
    if (target) {
        target->device->ops->add_memory(target->device, now);
        lhi_training_add_memory(target->training, now);
    }
    if (sum_bytes(now) > sum_bytes(w->peak_bytes))
        memcpy(w->peak_bytes, now, sizeof now);
}

lh_status lhi_run_worker_check_limits(lhi_run_worker *w, uint64_t turn,
                                      lh_error *err)
{
    if (!w->job->o.enforces_memory)
        return LH_OK;
    double *sums = calloc(w->n, sizeof *sums);
    if (!sums)
        return lhi_fail_nomem(err);
    sums[w->me] = (double)sum_bytes(w->peak_bytes);
    lh_status status = lhi_all_reduce_sum(w->net, turn, sums, w->n, NULL, err);
    for (uint32_t r = 0; status == LH_OK && r < w->n; r++)
        if (w->over_limit_rank == LH_NONE &&
            sums[r] > (double)w->job->memory[r].limit_bytes) {
            w->over_limit_rank = r;
            w->over_limit_bytes = (int64_t)sums[r];
        }
    free(sums);
    return status;
}

lh_status lhi_run_worker_gather_memory(lhi_run_worker *w, lhi_text *out,
                                       lh_error *err)
{
    size_t each = LHI_MEMORY_REPORT_NUMBERS, n = w->n * each;
    const lhi_copy_sums *copies = &w->program->rank->copy_sums;
    if (!w->training || !w->program->has_records)
        return LH_OK;
    double *all = calloc(n, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    lhi_run_worker_record_memory(w, NULL, NULL);
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        all[w->me * each + i] = (double)w->peak_bytes[i];
    lhi_run_worker_group_times(w, all + w->me * each + LH_N_MEMORY_KINDS);
    all[w->me * each + each - 2] = (double)copies->copied_ns;
    all[w->me * each + each - 1] = (double)copies->waited_ns;
    lh_status status =
        lhi_all_reduce_sum(w->net, w->turn, all, n, w->stop, err);
    w->turn++;
    if (status == LH_OK && out)
        lhi_text_add(out, (const char *)all, n * sizeof *all);
    free(all);
    return status == LH_OK && out && out->failed ? lhi_fail_nomem(err) : status;
}
