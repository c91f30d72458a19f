/* SPDX-License-Identifier: Apache-2.0 */
/* Root inference of the search, on random pipelines with random counts: derives
 * exactly the transitive closure of "before", or detects that no order exists.
 *
 *     test_root_inference [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include "schedule/solver/search/search_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 512 }; /* operations */

static uint32_t n_cases = 600, first_case;
static uint32_t n_possible, n_impossible, n_inferred;

static bool before[MOST][MOST];

/* --- counts --------------------------------------------------------------- */

/* Samples counts from a random order that respects the arcs, widens them, and
 * sometimes makes them inconsistent. */
static void draw_counts(lhi_windows *w, rng *r)
{
    const lhi_shop *s = w->shop;
    const uint32_t wide = rng_below(r, 4);
    const bool wrong = rng_chance(r, 30);
    int64_t place[MOST] = {0};
    for (uint32_t x = 0; x < w->n_order; x++) {
        const uint32_t o = w->order[x];
        int64_t last = o > s->streams[s->stream_of[o]].first ? place[o - 1] : 0;
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++)
            if (place[s->pred[i]] > last)
                last = place[s->pred[i]];
        place[o] = last + 1 + rng_below(r, 8);
    }
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_machine *m =
            &s->machines[s->streams[s->stream_of[o]].machine];
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const lhi_stream *t = &s->streams[m->first_stream + i];
            const size_t at = w->slot_at[o] + i;
            uint32_t n = 0;
            while (n < t->count &&
                   (place[t->first + n] < place[o] ||
                    (place[t->first + n] == place[o] && t->first + n < o)))
                n++;
            const uint32_t low = rng_below(r, wide + 1);
            w->least[at] = n > low ? n - low : 0;
            w->most[at] = n + rng_below(r, wide + 1);
            if (wrong && rng_chance(r, 2))
                w->least[at] = rng_below(r, t->count + 1);
            if (w->most[at] > t->count)
                w->most[at] = t->count;
        }
    }
}

/* --- reference ------------------------------------------------------------ */

static void relate(const lhi_windows *w)
{
    const lhi_shop *s = w->shop;
    memset(before, 0, sizeof before);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_stream *own = &s->streams[s->stream_of[o]];
        const lhi_machine *m = &s->machines[own->machine];
        for (uint32_t i = 0; i < m->n_streams && m->leader == NONE; i++) {
            const lhi_stream *t = &s->streams[m->first_stream + i];
            const size_t at = w->slot_at[o] + i;
            for (uint32_t x = 0; x < t->count; x++) {
                const uint32_t q = t->first + x;
                if (t == own ? q < o : x < w->least[at] || x < w->fixed[at])
                    before[q][o] = true;
                if (t != own && x >= w->most[at])
                    before[o][q] = true;
            }
        }
    }
    for (uint32_t k = 0; k < s->n_ops; k++)
        for (uint32_t a = 0; a < s->n_ops; a++)
            for (uint32_t b = 0; before[a][k] && b < s->n_ops; b++)
                before[a][b] = before[a][b] || before[k][b];
}

static bool has_cycle(uint32_t n)
{
    for (uint32_t o = 0; o < n; o++)
        if (before[o][o])
            return true;
    return false;
}

/* --- comparison ----------------------------------------------------------- */

static void compare(const lhi_windows *w, const uint32_t *least,
                    const uint32_t *most)
{
    const lhi_shop *s = w->shop;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_stream *own = &s->streams[s->stream_of[o]];
        const lhi_machine *m = &s->machines[own->machine];
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const lhi_stream *t = &s->streams[m->first_stream + i];
            const size_t at = w->slot_at[o] + i;
            uint32_t low = 0, high = 0;
            if (t == own)
                continue;
            while (low < t->count && before[t->first + low][o])
                low++;
            while (high < t->count && !before[o][t->first + high])
                high++;
            CHECK_MSG(least[at] == low && most[at] == high,
                      "%u: %u to %u of stream %u come before it, not %u to %u",
                      o, least[at], most[at], i, low, high);
            n_inferred +=
                m->leader == NONE && (low > w->least[at] || high < w->most[at]);
        }
    }
}

static void try_case(uint64_t seed)
{
    static const random_shape shape = {
        .max_devices = 3, .max_microbatches = 6, .max_chunks = 3};
    static const lh_solve_options none = {.size = sizeof none};
    rng r = {seed};
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *shop = NULL;
    lhi_windows *w = NULL;
    lhi_budget budget;
    uint32_t impossible;
    lhi_budget_begin(&budget, &none);
    lh_status status =
        lhi_shop_make(p, 1 + rng_below(&r, 2), rng_chance(&r, 20),
                      LH_SOLVE_OBJECTIVE_MAKESPAN, mem, &shop, &err);
    if (status == LH_OK && shop->n_ops <= MOST)
        CHECK_OK(lhi_windows_make(shop, 0, &budget, mem, &w, &impossible, &err),
                 err);
    if (w) {
        const size_t slots = w->slot_at[shop->n_ops];
        uint32_t *list = LHI_NEW(mem, uint32_t, shop->n_ops);
        uint32_t *least = LHI_NEW(mem, uint32_t, slots);
        uint32_t *most = LHI_NEW(mem, uint32_t, slots);
        CHECK(list && least && most);
        draw_counts(w, &r);
        w->restricted_counts = true;
        relate(w);
        const bool possible =
            lhi_search_compute_root_orders(w, true, list, least, most);
        CHECK_INT(possible, !has_cycle(shop->n_ops));
        n_possible += possible;
        n_impossible += !possible;
        if (possible && !test_state.bad)
            compare(w, least, most);
        lhi_windows_free(w);
    }
    if (test_state.bad)
        fprintf(stderr, "case %" PRIu64 "\n", seed);
    lhi_arena_free(mem);
    lh_pipeline_free(p);
}

static void random_counts(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        try_case(first_case + i);
    CHECK_MSG(n_possible * 10 >= n_cases && n_impossible * 10 >= n_cases &&
                  n_inferred >= n_cases,
              "%u possible, %u not, %u counts inferred", n_possible,
              n_impossible, n_inferred);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(random_counts);
    return test_summary();
}
