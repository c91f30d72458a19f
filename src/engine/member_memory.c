/* SPDX-License-Identifier: Apache-2.0 */
/* Tracks the resident memory of each rank in a training run. */
#include "engine/member.h"
#include "engine/sum_ranks.h"

#include <stdlib.h>
#include <string.h>

static int64_t sum_of(const int64_t bytes[LH_N_MEMORY_KINDS])
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        sum += i == LH_MEMORY_STORAGE ? 0 : bytes[i];
    return sum;
}

void lhi_member_note_held(lhi_member *w, const lhi_shift *next,
                          const lhi_seat *seat)
{
    int64_t now[LH_N_MEMORY_KINDS] = {0};
    if (!w->training)
        return;
    w->device->ops->held(w->device, now);
    lhi_training_held(w->training, now);
    lhi_rank_held(w->shift->rank, now);
    if (next)
        lhi_rank_held(next->rank, now);
    if (seat) {
        seat->device->ops->held(seat->device, now);
        lhi_training_held(seat->training, now);
    }
    if (sum_of(now) > sum_of(w->held))
        memcpy(w->held, now, sizeof now);
}

lh_status lhi_member_check_limits(lhi_member *w, uint64_t turn, lh_error *err)
{
    if (!w->job->o.enforces_memory)
        return LH_OK;
    double *sums = calloc(w->n, sizeof *sums);
    if (!sums)
        return lhi_fail_nomem(err);
    sums[w->me] = (double)sum_of(w->held);
    lh_status status = lhi_sum_ranks(w->net, turn, sums, w->n, NULL, err);
    for (uint32_t r = 0; status == LH_OK && r < w->n; r++)
        if (w->over == LH_NONE &&
            sums[r] > (double)w->job->memory[r].limit_bytes) {
            w->over = r;
            w->over_bytes = (int64_t)sums[r];
        }
    free(sums);
    return status;
}

lh_status lhi_member_share_held(lhi_member *w, lhi_text *out, lh_error *err)
{
    size_t each = LHI_HELD_NUMBERS, n = w->n * each;
    const lhi_copy_sums *copies = &w->shift->rank->copy_sums;
    if (!w->training || !w->shift->has_records)
        return LH_OK;
    double *all = calloc(n, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    lhi_member_note_held(w, NULL, NULL);
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        all[w->me * each + i] = (double)w->held[i];
    lhi_member_spent(w, all + w->me * each + LH_N_MEMORY_KINDS);
    all[w->me * each + each - 2] = (double)copies->copied_ns;
    all[w->me * each + each - 1] = (double)copies->waited_ns;
    lh_status status = lhi_sum_ranks(w->net, w->turn, all, n, w->stop, err);
    w->turn++;
    if (status == LH_OK && out)
        lhi_text_add(out, (const char *)all, n * sizeof *all);
    free(all);
    return status == LH_OK && out && out->failed ? lhi_fail_nomem(err) : status;
}
