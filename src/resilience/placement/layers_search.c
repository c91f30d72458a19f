/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the layer count for each chunk by hill climbing. Each step moves one
 * layer from the chunk to the chunk with the greatest gain, starting from the
 * present partition and from the initial one; the best partition evaluated
 * wins. Chunks in between pass a layer on, so that each chunk's layers stay
 * contiguous. */
#include "resilience/placement/layers_internal.h"
#include "resilience/placement/text_fragments.h"

#include "base/options.h"
#include "resilience/placement/layers_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a reason in bytes; number of chunks that it lists. */
enum { WHY_TEXT = 400, SHOWN = 12 };

/* Search state. */
typedef struct search {
    const lh_layers *layers;
    const lh_pipeline *pipeline; /* with the initial partition */
    const lh_schedule *schedule;
    lh_layers_options o;
    double lasts;
    lhi_arena *mem;
    uint32_t n;
    uint32_t *from, *best, *next, *step, *trial;
    int64_t *moved; /* scratch for layers sent and received */
    double *work;   /* per device */
    int64_t now_ns, best_ns, best_move_ns, next_ns;
    double best_total, next_spread;
    uint64_t n_tried;
} search;

/* Simulates an iteration with numbers[c] layers in chunk c into *ns. *fits:
 * whether the schedule is within the memory limits. */
static lh_status simulate(search *s, const uint32_t *numbers, int64_t *ns,
                          bool *fits, lh_error *err)
{
    lh_pipeline *p;
    lh_timeline *t;
    LHI_TRY(lh_layers_pipeline(s->layers, s->pipeline, numbers, &p, err));
    lh_status status = lh_simulate(p, s->schedule, s->o.sim, &t, err);
    if (status == LH_OK) {
        *ns = lh_timeline_makespan(t);
        *fits = lh_timeline_fits(t, NULL);
        lh_timeline_free(t);
    }
    lh_pipeline_free(p);
    s->n_tried++;
    return status;
}

/* Returns the sum of squares of the devices' work with `numbers` layers per
 * chunk. Among partitions with equal iteration times, the search continues from
 * the smallest sum. */
static double compute_imbalance(const search *s, const uint32_t *numbers)
{
    const lh_pipeline *p = s->pipeline;
    double sum = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        s->work[d] = 0;
    for (uint32_t c = 0; c < s->n; c++) {
        const lh_chunk *k = &p->chunks[c];
        lhi_layer_ratios x = lhi_layers_ratios(s->layers, c, numbers[c]);
        s->work[k->device] += (double)k->f_ns * x.f + (double)k->d_ns * x.d +
                              (double)k->w_ns * x.w;
    }
    for (uint32_t d = 0; d < p->n_devices; d++)
        sum += s->work[d] * s->work[d];
    return sum;
}

/* Evaluates the layers per chunk in s->trial. Keeps them as the result if they
 * have the least time including migration; copies them to s->next and sets
 * *is_next if they have the least iteration time so far. */
static lh_status evaluate_partition(search *s, bool *is_next, lh_error *err)
{
    int64_t ns, busiest;
    bool fits;
    LHI_TRY(simulate(s, s->trial, &ns, &fits, err));
    if (!fits)
        return LH_OK;
    double spread = compute_imbalance(s, s->trial);
    if (ns < s->next_ns || (ns == s->next_ns && spread < s->next_spread)) {
        s->next_ns = ns;
        s->next_spread = spread;
        memcpy(s->next, s->trial, s->n * sizeof *s->next);
        *is_next = true;
    }
    lhi_layers_count_transfers(s->pipeline, s->from, s->trial, s->moved,
                               &busiest);
    double move = (double)busiest * (double)s->o.layer_ns;
    double total = (double)ns * s->lasts + move;
    if (total >= s->best_total || move > 0x1p61)
        return LH_OK;
    s->best_total = total;
    s->best_ns = ns;
    s->best_move_ns = (int64_t)move;
    memcpy(s->best, s->trial, s->n * sizeof *s->best);
    return LH_OK;
}

/* Hill climbing over layers per chunk: moves one layer between chunks at a
 * time, from the partition s->next on, until no move improves it. */
static lh_status climb(search *s, lh_error *err)
{
    for (bool better = true; better;) {
        better = false;
        memcpy(s->step, s->next, s->n * sizeof *s->step);
        for (uint32_t a = 0; a < s->n; a++)
            for (uint32_t b = 0; b < s->n; b++) {
                if (a == b || s->step[a] < 2)
                    continue;
                memcpy(s->trial, s->step, s->n * sizeof *s->trial);
                s->trial[a]--;
                s->trial[b]++;
                LHI_TRY(evaluate_partition(s, &better, err));
            }
    }
    return LH_OK;
}

/* Runs hill climbing over layers per chunk twice: from the running partition
 * and from the initial one. */
static lh_status search_partition(search *s, lh_error *err)
{
    bool is_next;
    LHI_TRY(climb(s, err));
    s->next_ns = INT64_MAX;
    memcpy(s->trial, s->layers->numbers, s->n * sizeof *s->trial);
    LHI_TRY(evaluate_partition(s, &is_next, err));
    return s->next_ns < INT64_MAX ? climb(s, err) : LH_OK;
}

/* --- text ----------------------------------------------------------------- */

/* Appends numbers[c], the layers per chunk, to the explanation `why`; the first
 * few of them. */
static void add_numbers(const search *s, const uint32_t *numbers, char *why)
{
    for (uint32_t c = 0; c < s->n && c < SHOWN; c++)
        lhi_text_append_limited(why, WHY_TEXT, "%s%" PRIu32, c ? ", " : "",
                                numbers[c]);
    if (s->n > SHOWN)
        lhi_text_append_limited(why, WHY_TEXT, ", ...");
}

/* Appends the devices that take at least 2 % longer than without slowdowns,
 * with their factors, to the explanation `why`; the first three. */
static void add_slow_devices(const search *s, char *why)
{
    const lh_pipeline *quiet = s->layers->pipeline;
    uint32_t n = 0;
    for (uint32_t d = 0; d < quiet->n_devices; d++) {
        double was = 0, is = 0;
        for (uint32_t c = 0; c < s->n; c++) {
            const lh_chunk *k = &quiet->chunks[c], *q = &s->pipeline->chunks[c];
            if (k->device != d)
                continue;
            was += (double)k->f_ns + (double)k->d_ns + (double)k->w_ns;
            is += (double)q->f_ns + (double)q->d_ns + (double)q->w_ns;
        }
        if (is > 1.02 * was && was > 0 && n++ < 3)
            lhi_text_append_limited(
                why, WHY_TEXT, "%sdevice %" PRIu32 " takes %.3g times as long",
                n > 1 ? ", " : "", d, is / was);
    }
    lhi_text_append_limited(why, WHY_TEXT, n ? ": " : "no device is slow: ");
}

/* Writes why layers migrate, or why they do not, into `why`, with the layers
 * per chunk and iteration times before and after. */
static void explain(const search *s, const lh_layer_migration *m, char *why)
{
    char one[LHI_TIME_FORMAT_SIZE], other[LHI_TIME_FORMAT_SIZE],
        move[LHI_TIME_FORMAT_SIZE];
    char many[LHI_TIME_FORMAT_SIZE];
    add_slow_devices(s, why);
    lhi_text_append_limited(why, WHY_TEXT, "%s an iteration",
                            lhi_time_format(m->current_ns, one));
    if (!m->is_move) {
        lhi_text_append_limited(why, WHY_TEXT,
                                "; no layer migration is worth its cost");
        return;
    }
    lhi_text_append_limited(why, WHY_TEXT, " with ");
    add_numbers(s, s->from, why);
    lhi_text_append_limited(why, WHY_TEXT, " layers, %s with ",
                            lhi_time_format(m->predicted_ns, other));
    add_numbers(s, m->layer_counts, why);
    lhi_text_append_limited(
        why, WHY_TEXT, "; the migration takes %s once and has an effect for %s",
        lhi_time_format(m->move_ns, move),
        lhi_iterations_format(s->lasts, many));
}

/* --- result --------------------------------------------------------------- */

/* Checks the options, allocates the search's arrays, and evaluates the running
 * layers per chunk. */
static lh_status set_up(search *s, lh_error *err)
{
    const lh_pipeline *p = s->layers->pipeline;
    bool fits;
    s->n = p->n_chunks;
    if (!(s->o.benefit_steps >= 0) || s->o.benefit_steps > 1e15 ||
        s->o.layer_ns < 0)
        return lhi_fail(
            err, LH_EINVAL,
            "lh_layers_options: benefit_steps is %g, layer_ns %" PRId64
            "; neither may be negative",
            s->o.benefit_steps, s->o.layer_ns);
    s->lasts = s->o.benefit_steps > 0 ? s->o.benefit_steps : 1e6;
    s->from = LHI_NEW(s->mem, uint32_t, s->n);
    s->best = LHI_NEW(s->mem, uint32_t, s->n);
    s->next = LHI_NEW(s->mem, uint32_t, s->n);
    s->step = LHI_NEW(s->mem, uint32_t, s->n);
    s->work = LHI_NEW(s->mem, double, p->n_devices);
    s->trial = LHI_NEW(s->mem, uint32_t, s->n);
    s->moved = LHI_NEW(s->mem, int64_t, 2 * (size_t)p->n_devices);
    if (!s->from || !s->best || !s->next || !s->work || !s->step || !s->trial ||
        !s->moved)
        return lhi_fail_nomem(err);
    const uint32_t *now =
        s->o.layer_counts ? s->o.layer_counts : s->layers->numbers;
    memcpy(s->from, now, s->n * sizeof *now);
    memcpy(s->best, now, s->n * sizeof *now);
    memcpy(s->next, now, s->n * sizeof *now);
    LHI_TRY(simulate(s, s->from, &s->now_ns, &fits, err));
    s->n_tried = 0;
    s->best_ns = s->next_ns = s->now_ns;
    s->next_spread = compute_imbalance(s, s->from);
    s->best_total = (double)s->now_ns * s->lasts;
    return LH_OK;
}

/* The result with its arena, which contains it. */
typedef struct owned {
    lh_layer_migration move; /* first */
    lhi_arena *mem;
} owned;

/* Builds the result: the best layers per chunk, with times and explanation;
 * *out owns the search's arena. */
static lh_status make_result(search *s, lh_layer_migration **out, lh_error *err)
{
    int64_t busiest;
    owned *x = LHI_NEW(s->mem, owned, 1);
    char *why = LHI_NEW(s->mem, char, WHY_TEXT);
    if (!x || !why)
        return lhi_fail_nomem(err);
    uint64_t n_moves = lhi_layers_count_transfers(s->pipeline, s->from, s->best,
                                                  s->moved, &busiest);
    x->mem = s->mem;
    x->move = (lh_layer_migration){
        .is_move = memcmp(s->best, s->from, s->n * sizeof *s->best) != 0,
        .n_chunks = s->n,
        .layer_counts = s->best,
        .current_ns = s->now_ns,
        .predicted_ns = s->best_ns,
        .move_ns = s->best_move_ns,
        .n_moves = n_moves < UINT32_MAX ? (uint32_t)n_moves : UINT32_MAX,
        .n_evaluated = s->n_tried,
        .why = why};
    explain(s, &x->move, why);
    *out = &x->move;
    return LH_OK;
}

lh_status lhi_layers_find_partition(const lh_layers *layers,
                                    const lh_pipeline *pipeline,
                                    const lh_schedule *schedule,
                                    const lh_layers_options *options,
                                    lh_layer_migration **out, lh_error *err)
{
    search s = {.layers = layers, .pipeline = pipeline, .schedule = schedule};
    LHI_TRY(LHI_OPTIONS_COPY(lh_layers_options, &s.o, options, err));
    s.mem = lhi_arena_make(0);
    if (!s.mem)
        return lhi_fail_nomem(err);
    lh_status status = set_up(&s, err);
    if (status == LH_OK)
        status = search_partition(&s, err);
    if (status == LH_OK)
        status = make_result(&s, out, err);
    if (status != LH_OK)
        lhi_arena_free(s.mem);
    return status;
}

void lhi_layer_migration_free(lh_layer_migration *move)
{
    if (move)
        lhi_arena_free(((owned *)(void *)move)->mem);
}
