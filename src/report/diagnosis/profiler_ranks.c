/* SPDX-License-Identifier: Apache-2.0 */
/* Determines each rank's stage and replica. A map has precedence. Without one,
 * ranks with the same chunks are a stage's replicas, stages are ordered by
 * their first chunk, and a process group with one rank per stage is a pipeline.
 */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- from the map --------------------------------------------------------- */

/* Returns the rank map's entry for a rank number; NULL if there is none. */
static const lhi_map_rank *find_map_rank(const lh_rank_map *map, uint32_t rank)
{
    for (uint32_t i = 0; i < map->n_ranks; i++)
        if (map->ranks[i].rank == rank)
            return &map->ranks[i];
    return NULL;
}

lh_status lhi_profiler_check_map(lhi_profiler *p, lh_error *err)
{
    const lh_rank_map *map = p->map;
    if (p->n_ranks == 1 && p->ranks[0].rank == LH_NONE)
        p->ranks[0].rank = 0; /* a single file */
    for (uint32_t i = 0; map && i < map->n_names; i++)
        if (!p->name_used[i])
            return lhi_fail(err, LH_EINPUT,
                            "%s:%" PRIu32 ": names[%" PRIu32
                            "].name: no range in the traces matches '%.80s'",
                            map->file, map->names[i].line, i,
                            map->names[i].pattern);
    for (uint32_t i = 0; map && map->n_ranks && i < p->n_ranks; i++)
        if (p->ranks[i].rank != LH_NONE &&
            !find_map_rank(map, p->ranks[i].rank))
            return lhi_fail(err, LH_EINPUT,
                            "%s: is the trace of rank %u, which %s lacks: add "
                            "the rank to 'ranks', with its stage and replica",
                            p->ranks[i].file, p->ranks[i].rank, map->file);
    return LH_OK;
}

/* Sets stage and replica of every rank with traces to those in the rank map. */
static void assign_from_map(lhi_profiler *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const lhi_map_rank *m = find_map_rank(p->map, p->ranks[i].rank);
        p->ranks[i].stage = m->stage;
        p->ranks[i].replica = m->replica;
    }
}

/* --- from the operations -------------------------------------------------- */

/* Returns the smallest chunk number among a rank's passes; INT32_MAX if it has
 * none. */
static int32_t get_first_chunk(const lhi_profiled_rank *r)
{
    int32_t least = INT32_MAX;
    for (size_t i = 0; i < r->n_ops; i++)
        if (lhi_range_is_pass(r->ops[i].op) && r->ops[i].chunk < least)
            least = r->ops[i].chunk;
    return least;
}

/* Compares chunk numbers, for lhi_sort(). */
static int compare_chunks(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Numbers the pipeline stages by their ranks' first chunk, and sets each rank's
 * stage; *n_stages: their number. */
static lh_status find_stages(lhi_profiler *p, uint32_t *n_stages, lh_error *err)
{
    int32_t *firsts = malloc((p->n_ranks + 1u) * sizeof *firsts);
    uint32_t n = 0;
    if (!firsts)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_ranks; i++)
        firsts[i] = get_first_chunk(&p->ranks[i]);
    lhi_sort(firsts, p->n_ranks, sizeof *firsts, compare_chunks);
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (n == 0 || firsts[i] != firsts[n - 1])
            firsts[n++] = firsts[i];
    if (n && firsts[n - 1] == INT32_MAX)
        n--; /* ranks without passes have no stage */
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        int32_t own = get_first_chunk(&p->ranks[i]);
        p->ranks[i].stage = LH_NONE;
        for (uint32_t k = 0; k < n; k++)
            if (firsts[k] == own)
                p->ranks[i].stage = k;
    }
    *n_stages = n;
    if (n > 1 && firsts[0] < 0)
        n = 0;
    free(firsts);
    if (n == 0)
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no passes whose names contain their chunk; "
                        "set the kinds of ranges, and the stage and replica of "
                        "each rank, in a map (--map)",
                        p->ranks[0].file);
    return LH_OK;
}

/* Returns the rank with number `rank` among those with traces; NULL if there is
 * none. */
static const lhi_profiled_rank *find_profiled_rank(const lhi_profiler *p,
                                                   uint32_t rank)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i].rank == rank)
            return &p->ranks[i];
    return NULL;
}

/* Checks whether a process group is the pipeline of rank number `rank`: it has
 * n_stages ranks, and those with traces are on different stages. */
static bool is_pipeline(const lhi_profiler *p, const lhi_rank_group *g,
                        uint32_t rank, uint32_t n_stages)
{
    bool has = false;
    if (g->n != n_stages)
        return false;
    for (uint32_t i = 0; i < g->n; i++) {
        const lhi_profiled_rank *a = find_profiled_rank(p, g->ranks[i]);
        has = has || g->ranks[i] == rank;
        for (uint32_t k = 0; a && k < i; k++) {
            const lhi_profiled_rank *b = find_profiled_rank(p, g->ranks[k]);
            if (b && b->stage == a->stage)
                return false;
        }
    }
    return has;
}

/* Returns the smallest rank number in the pipeline of rank `r`, which
 * identifies the pipeline; LH_NONE if no process group with n_stages ranks is
 * one. */
static uint32_t find_pipeline(const lhi_profiler *p, const lhi_profiled_rank *r,
                              uint32_t n_stages)
{
    uint32_t least = LH_NONE;
    if (n_stages == 1)
        return r->rank;
    for (uint32_t i = 0; i < r->n_groups && least == LH_NONE; i++)
        if (is_pipeline(p, &r->groups[i], r->rank, n_stages))
            for (uint32_t k = 0; k < r->groups[i].n; k++)
                least = r->groups[i].ranks[k] < least ? r->groups[i].ranks[k]
                                                      : least;
    if (least == LH_NONE && p->n_ranks == n_stages)
        least = 0; /* one rank per stage: a single pipeline */
    return least;
}

/* Compares unsigned integers, for lhi_sort(). */
static int compare_numbers(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Numbers the replicas by the least rank in each pipeline of n_stages ranks.
 * LH_EINPUT: the process groups do not determine a rank's pipeline. */
static lh_status find_replicas(lhi_profiler *p, uint32_t n_stages,
                               lh_error *err)
{
    uint32_t *least = malloc((p->n_ranks + 1u) * sizeof *least), n = 0;
    if (!least)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        p->ranks[i].replica = LH_NONE;
        if (p->ranks[i].stage == LH_NONE)
            continue;
        p->ranks[i].replica = find_pipeline(p, &p->ranks[i], n_stages);
        if (p->ranks[i].replica == LH_NONE) {
            free(least);
            return lhi_fail(
                err, LH_EINPUT,
                "%s: does not list the ranks of its pipeline: set the stage "
                "and replica of each rank in a map (--map)",
                p->ranks[i].file);
        }
        least[n++] = p->ranks[i].replica;
    }
    lhi_sort(least, n, sizeof *least, compare_numbers);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || least[i] != least[kept - 1])
            least[kept++] = least[i];
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (uint32_t k = 0; k < kept; k++)
            if (p->ranks[i].replica == least[k]) {
                p->ranks[i].replica = k;
                break;
            }
    free(least);
    return LH_OK;
}

/* --- all ------------------------------------------------------------------ */

enum { MOST_NAMED = 8 }; /* ranks in a remark */

/* Appends a rank without a trace to a name list; counts it in *n. */
static void name_missing(uint32_t rank, lhi_text *names, uint32_t *n)
{
    if ((*n)++ < MOST_NAMED)
        lhi_text_printf(names, "%srank %" PRIu32, names->len ? ", " : "", rank);
    else if (*n == MOST_NAMED + 1)
        lhi_text_puts(names, ", ...");
}

/* Reports ranks without a trace: those in the map, or those below the world
 * size. */
static lh_status report_missing(const lhi_profiler *p, lh_error *err)
{
    lhi_text names = {0};
    uint32_t n = 0, world = 0;
    bool has_map = p->map && p->map->n_ranks;
    for (uint32_t i = 0; has_map && i < p->map->n_ranks; i++)
        if (!find_profiled_rank(p, p->map->ranks[i].rank))
            name_missing(p->map->ranks[i].rank, &names, &n);
    for (uint32_t i = 0; i < p->n_ranks && !has_map; i++)
        world = p->ranks[i].world > world ? p->ranks[i].world : world;
    if (world > p->n_ranks) {
        for (uint32_t rank = 0; n <= MOST_NAMED && rank < world; rank++)
            if (!find_profiled_rank(p, rank))
                name_missing(rank, &names, &n);
        n = world - p->n_ranks;
    }
    if (n && !names.failed)
        lhi_defect_add(p->remarks, LHI_REMARK_FILES, n, "%s", names.data);
    lh_status status = names.failed ? lhi_fail_nomem(err) : LH_OK;
    lhi_text_fini(&names);
    return status;
}

lh_status lhi_profiler_find_ranks(lhi_profiler *p, lh_error *err)
{
    uint32_t n_stages;
    LHI_TRY(report_missing(p, err));
    if (p->map && p->map->n_ranks) {
        assign_from_map(p);
    } else {
        lhi_profiler_find_positions(p);
        LHI_TRY(find_stages(p, &n_stages, err));
        LHI_TRY(find_replicas(p, n_stages, err));
    }
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        lhi_profiled_rank *r = &p->ranks[i];
        for (size_t k = 0; k < r->n_ops; k++)
            if (r->ops[k].chunk < 0 && r->ops[k].microbatch >= 0)
                r->ops[k].chunk = (int32_t)r->stage;
    }
    return LH_OK;
}
