/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the recompute table: operation by operation, keeps the minimum
 * recompute time for each total of stored bytes. */
#include "schedule/elastic/elastic_internal.h"

#include <inttypes.h>

enum { MAX_POINTS = 1 << 23 }; /* over all rows: 128 MiB */

typedef lhi_elastic_recompute_point point;
typedef struct lhi_elastic_recompute_row row;

/* Rejects operations with negative sizes or times, and totals that would
 * overflow. */
static lh_status check_ops(const lh_elastic_case *g, uint32_t n,
                           const lh_elastic_op *ops, lh_error *err)
{
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages;
    lhi_int128 bytes = 0, ns = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (ops[k].bytes < 0 || ops[k].ns < 0)
            return lhi_fail(err, LH_EINVAL,
                            "operation %" PRIu32 ": negative bytes or time", k);
        bytes += ops[k].bytes;
        ns += ops[k].ns;
    }
    if (bytes * J > (lhi_int128)1 << 62 || ns * J > (lhi_int128)1 << 60)
        return lhi_fail(
            err, LH_EINVAL,
            "the operations add up to more than 2^62 bytes or 2^60 ns");
    return LH_OK;
}

/* Computes the recompute table's row `to` from row `from`: each point (stored
 * bytes, recompute time) once with `op` recomputed and once with it stored.
 * Both sequences are sorted, so one pass merges them. `front`: drops dominated
 * points. *total: points in all rows so far. */
static lh_status merge_next_row(lhi_arena *mem, bool front, const row *from,
                                const lh_elastic_op *op, row *to, size_t *total,
                                lh_error *err)
{
    if (*total + 2 * from->count > MAX_POINTS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the operations' sizes have more than %d different "
                        "sums; round them to a coarser unit",
                        MAX_POINTS);
    to->sums = LHI_NEW(mem, point, 2 * from->count);
    if (!to->sums)
        return lhi_fail_nomem(err);
    size_t again = 0, kept = 0;
    while (kept < from->count) {
        int64_t a = again < from->count ? from->sums[again].stored : INT64_MAX;
        int64_t b = from->sums[kept].stored + op->bytes;
        point next = {a < b ? a : b, INT64_MAX};
        if (a == next.stored)
            next.recompute_ns = from->sums[again++].recompute_ns + op->ns;
        if (b == next.stored) {
            int64_t ns = from->sums[kept++].recompute_ns;
            if (ns < next.recompute_ns)
                next.recompute_ns = ns;
        }
        /* A point with more bytes and no less recompute time is dominated, and
         * no undominated point extends a dominated one. */
        if (!front || to->count == 0 ||
            next.recompute_ns < to->sums[to->count - 1].recompute_ns)
            to->sums[to->count++] = next;
    }
    *total += to->count;
    return LH_OK;
}

lh_status lhi_elastic_build_recompute_table(
    const lh_elastic_case *given, uint32_t n_ops, const lh_elastic_op *ops,
    bool front, lhi_arena *mem, lhi_elastic_recompute_table *out, lh_error *err)
{
    LHI_TRY(check_ops(given, n_ops, ops, err));
    *out = (lhi_elastic_recompute_table){.n_ops = n_ops, .ops = ops};
    out->rows = LHI_NEW(mem, row, (size_t)n_ops + 1);
    point *start = LHI_NEW(mem, point, 1);
    if (!out->rows || !start)
        return lhi_fail_nomem(err);
    out->rows[0] = (row){start, 1};
    size_t total = 1;
    for (uint32_t k = 0; k < n_ops; k++)
        LHI_TRY(merge_next_row(mem, front, &out->rows[k], &ops[k],
                               &out->rows[k + 1], &total, err));
    return LH_OK;
}

void lhi_elastic_recover_operations(const lhi_elastic_recompute_table *sums,
                                    lhi_elastic_recompute_point at,
                                    bool *recomputed)
{
    for (uint32_t k = sums->n_ops; k-- > 0;) {
        const row *r = &sums->rows[k];
        const lh_elastic_op *op = &sums->ops[k];
        recomputed[k] = false;
        for (size_t i = 0; i < r->count; i++)
            if (r->sums[i].stored == at.stored &&
                r->sums[i].recompute_ns + op->ns == at.recompute_ns) {
                recomputed[k] = true;
                at = r->sums[i];
                break;
            }
        if (!recomputed[k])
            at.stored -= op->bytes;
    }
}
