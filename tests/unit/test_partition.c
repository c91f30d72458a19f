/* SPDX-License-Identifier: Apache-2.0 */
/* Layer partitions over chunks: their number, the best one by enumeration, and
 * searches with fewer evaluations. */
#include "planner/layout/partition_search.h"
#include "test.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/simulate.h>

/* Two ranks, 4 microbatches, layers of 1 s per pass, 4 % more for interleaved
 * ZBV's finer split, messages of 1 s with 0.05 s latency. */
typedef struct two_ranks {
    uint32_t n_chunks;
    const char *method;
    bool prunes; /* times that are no use are not computed */
} two_ranks;

static lh_status time_of(void *context, const uint32_t *layers,
                         int64_t useless_ns, int64_t *ns, lh_error *err)
{
    const two_ranks *t = context;
    lh_chunk chunks[8] = {{0}};
    const lh_link links[] = {{0, 1, 50000000, 1000000000, NULL},
                             {1, 0, 50000000, 1000000000, NULL}};
    bool folded = strcmp(t->method, "interleaved-zbv") == 0;
    for (uint32_t c = 0; c < t->n_chunks; c++) {
        int64_t s = (int64_t)layers[c] * 1000000000;
        uint32_t at = folded && c / 2 % 2 ? 1 - c % 2 : c % 2;
        int64_t back = folded ? s / 100 * 104 : s;
        chunks[c] =
            (lh_chunk){.device = at, .f_ns = s, .d_ns = back, .w_ns = back};
    }
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 2,
                             .n_microbatches = 4,
                             .n_chunks = t->n_chunks,
                             .chunks = chunks,
                             .n_links = 2,
                             .links = links};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_timeline *timeline = NULL;
    lh_status status = lh_pipeline_make(&desc, &p, err);
    if (status == LH_OK)
        status = lh_method_run(t->method, p, NULL, &s, NULL, err);
    if (status == LH_OK)
        status = lh_simulate(p, s, NULL, &timeline, err);
    if (status == LH_OK)
        *ns = lh_timeline_makespan(timeline);
    if (t->prunes && *ns >= useless_ns)
        *ns = INT64_MAX;
    lh_timeline_free(timeline);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

static uint64_t count_of(const lhi_partition *p)
{
    uint64_t n = 0;
    lh_error err = {0};
    CHECK_OK(lhi_partition_count(p, &n, &err), err);
    return n;
}

static void counts(void)
{
    lhi_partition p = {.n_layers = 12, .n_chunks = 4, .max_ratio = 3};
    CHECK_INT(count_of(&p), 35);
    p.n_chunks = 6;
    CHECK_INT(count_of(&p), 141);
    p.max_ratio = 1;
    CHECK_INT(count_of(&p), 1);
    p = (lhi_partition){.n_layers = 100, .n_chunks = 20, .max_ratio = 100};
    CHECK(count_of(&p) == UINT64_MAX); /* C(99, 19) */
}

/* Every partition in 2, 4 and 6 chunks, under two schedules. */
static void all_of_twelve_layers(void)
{
    static const char *const methods[] = {"dorapp", "interleaved-zbv"};
    int64_t least = INT64_MAX;
    uint64_t asked = 0;
    lh_error err = {0};
    for (int m = 0; m < 2; m++)
        for (uint32_t chunks = 2; chunks <= 6; chunks += 2) {
            two_ranks t = {chunks, methods[m], false};
            lhi_partition p = {12, chunks, 3, time_of, &t, false, 0};
            uint32_t best[6] = {0};
            int64_t ns = INT64_MAX;
            CHECK_OK(lhi_partition_exact(&p, best, &ns, &err), err);
            CHECK_INT(p.n_timed, count_of(&p));
            asked += p.n_timed;
            least = ns < least ? ns : least;
        }
    CHECK_INT(asked, 366);
    CHECK_INT(least, 78200000000);
    uint32_t equal[] = {2, 2, 2, 2, 2, 2}, found[] = {3, 4, 3, 2};
    two_ranks six = {6, "dorapp", false}, four = {4, "dorapp", false};
    int64_t ns;
    CHECK_OK(time_of(&six, equal, INT64_MAX, &ns, &err), err);
    CHECK_INT(ns, 82300000000);
    CHECK_OK(time_of(&four, found, INT64_MAX, &ns, &err), err);
    CHECK_INT(ns, 78200000000);
}

/* With fewer evaluations: never better than the optimum, never worse than the
 * start. */
static void searches(void)
{
    two_ranks t = {4, "dorapp", false};
    lh_error err = {0};
    int64_t exact_ns = INT64_MAX, even_ns;
    uint32_t best[4], even[] = {3, 3, 3, 3};
    lhi_partition p = {12, 4, 3, time_of, &t, false, 0};
    CHECK_OK(lhi_partition_exact(&p, best, &exact_ns, &err), err);
    CHECK_OK(time_of(&t, even, INT64_MAX, &even_ns, &err), err);

    int64_t ns = even_ns;
    memcpy(best, even, sizeof best);
    p.n_timed = 0;
    CHECK_OK(lhi_partition_climb(&p, 1000, best, &ns, &err), err);
    CHECK_INT(ns, exact_ns);
    CHECK_INT(best[0] + best[1] + best[2] + best[3], 12);
    ns = even_ns;
    memcpy(best, even, sizeof best);
    p.n_timed = 0;
    CHECK_OK(lhi_partition_climb(&p, 5, best, &ns, &err), err);
    CHECK_INT(p.n_timed, 5);
    CHECK(ns <= even_ns);

    lhi_partition_sampling how = {60, 6, 6, 1};
    ns = INT64_MAX;
    p.n_timed = 0;
    CHECK_OK(lhi_partition_sample(&p, &how, best, &ns, &err), err);
    CHECK(ns >= exact_ns && ns <= even_ns && p.n_timed <= 96);
    int64_t again_ns = INT64_MAX;
    uint32_t again[4];
    CHECK_OK(lhi_partition_sample(&p, &how, again, &again_ns, &err), err);
    CHECK(again_ns == ns && memcmp(again, best, sizeof best) == 0);
}

/* Without the times that a search has no use for, its result is the same. */
static void useless_times_are_not_needed(void)
{
    uint32_t best[2][4];
    int64_t ns[2][3];
    uint64_t timed[2][3];
    lh_error err = {0};
    for (int i = 0; i < 2; i++) {
        two_ranks t = {4, "dorapp", i == 1};
        const lhi_partition_sampling how = {20, 3, 6, 1};
        for (int k = 0; k < 3; k++) {
            lhi_partition p = {12, 4, 3, time_of, &t, k == 1, 0};
            ns[i][k] = INT64_MAX;
            for (uint32_t c = 0; c < 4; c++)
                best[i][c] = 3;
            CHECK_OK(
                k == 2
                    ? lhi_partition_sample(&p, &how, best[i], &ns[i][k], &err)
                    : lhi_partition_climb(&p, 1000, best[i], &ns[i][k], &err),
                err);
            timed[i][k] = p.n_timed;
        }
    }
    CHECK(memcmp(best[0], best[1], sizeof best[0]) == 0);
    CHECK(memcmp(ns[0], ns[1], sizeof ns[0]) == 0);
    CHECK(memcmp(timed[0], timed[1], sizeof timed[0]) == 0);
}

/* Times of sampled partitions, in sampling order. */
typedef struct sampled_times {
    int64_t ns[90];
    uint32_t n;
} sampled_times;

/* A time that grows with the variation of chunk sizes. */
static lh_status time_of_variation(void *context, const uint32_t *layers,
                                   int64_t useless_ns, int64_t *ns,
                                   lh_error *err)
{
    sampled_times *t = context;
    (void)useless_ns;
    (void)err;
    *ns = 0;
    for (uint32_t c = 0; c < 12; c++)
        *ns += (int64_t)layers[c] * layers[c] * 1000000;
    if (t && t->n < 90)
        t->ns[t->n++] = *ns;
    return LH_OK;
}

/* Returns the mean excess over the even partition's time, 12 chunks of 4
 * layers. */
static double mean_excess(const int64_t *ns, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)(ns[i] - INT64_C(192000000));
    return sum / n;
}

/* The first third of the samples is random; the correlation of features with
 * their times selects the others, which are faster. */
static void features_guide_samples(void)
{
    sampled_times t = {.n = 0};
    lh_error err = {0};
    int64_t ns = INT64_MAX;
    uint32_t best[12];
    lhi_partition p = {48, 12, 3, time_of_variation, &t, false, 0};
    const lhi_partition_sampling how = {90, 0, 0, 1};
    CHECK_OK(lhi_partition_sample(&p, &how, best, &ns, &err), err);
    CHECK_INT(t.n, 90);
    CHECK(mean_excess(t.ns + 30, 60) < mean_excess(t.ns, 30) / 2);
}

/* Changes continue from the last one that was not slower: the even partition is
 * two moves away. */
static void changes_accumulate(void)
{
    lh_error err = {0};
    lhi_random random = {1};
    uint32_t layers[12] = {3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5};
    int64_t ns = 196000000;
    lhi_partition p = {48, 12, 3, time_of_variation, NULL, false, 0};
    CHECK_OK(lhi_partition_perturb(&p, 2000, &random, layers, &ns, &err), err);
    CHECK_INT(ns, 192000000);
    for (uint32_t c = 0; c < 12; c++)
        CHECK_INT(layers[c], 4);
}

int main(void)
{
    RUN(features_guide_samples);
    RUN(changes_accumulate);
    RUN(counts);
    RUN(all_of_twelve_layers);
    RUN(searches);
    RUN(useless_times_are_not_needed);
    return test_summary();
}
