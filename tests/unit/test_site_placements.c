/* SPDX-License-Identifier: Apache-2.0 */
/* Placements found by the search, compared with exhaustive enumeration. */
#include "jobs.h"

#include "planner/layout/equivalence.h"
#include "planner/layout/site_search.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

static lh_layout layout_of(uint32_t tensor, uint32_t pipeline, uint32_t data)
{
    return (lh_layout){.tensor = tensor,
                       .context = 1,
                       .expert = 1,
                       .pipeline = pipeline,
                       .data = data,
                       .micro_batch = 1,
                       .chunks_per_device = 1};
}

/* A placement in a comparable form: datacenter and stages per part, by group.
 */
typedef struct flat {
    uint32_t n_groups, n[4], replicas[4], site[4][4], stages[4][4];
} flat;

static flat flatten(const lh_sites *s)
{
    flat f = {.n_groups = s->n_groups};
    for (uint32_t g = 0; g < s->n_groups && g < 4; g++) {
        f.replicas[g] = s->groups[g].replicas;
        f.n[g] = s->groups[g].n_parts;
        for (uint32_t i = 0; i < f.n[g] && i < 4; i++) {
            f.site[g][i] = s->groups[g].parts[i].datacenter;
            f.stages[g][i] = s->groups[g].parts[i].stages;
        }
    }
    return f;
}

/* Checks whether group g of a is group h of b with datacenters renamed. */
static bool same_group(const flat *a, uint32_t g, const flat *b, uint32_t h,
                       const uint32_t *to)
{
    if (a->n[g] != b->n[h] || a->replicas[g] != b->replicas[h])
        return false;
    for (uint32_t i = 0; i < a->n[g]; i++)
        if (to[a->site[g][i]] != b->site[h][i] ||
            a->stages[g][i] != b->stages[h][i])
            return false;
    return true;
}

static bool same_flat(const flat *a, const flat *b, const uint32_t *to)
{
    if (a->n_groups != b->n_groups)
        return false;
    for (uint32_t g = 0; g < a->n_groups; g++) {
        bool any = false;
        for (uint32_t h = 0; h < b->n_groups; h++)
            any = any || same_group(a, g, b, h, to);
        if (!any)
            return false;
    }
    return true;
}

/* All links of these jobs are symmetric, and GPUs and networks equal; so a
 * renaming has to preserve only sizes and links. */
static bool keeps_job(const lh_job *job, const uint32_t *to)
{
    uint32_t n = job->n_datacenters;
    for (uint32_t a = 0; a < n; a++) {
        if (job->datacenters[a].gpus != job->datacenters[to[a]].gpus)
            return false;
        for (uint32_t b = 0; b < n; b++)
            if (a != b &&
                (job->wans[a * n + b].latency_ns !=
                     job->wans[to[a] * n + to[b]].latency_ns ||
                 job->wans[a * n + b].gbps >
                     job->wans[to[a] * n + to[b]].gbps ||
                 job->wans[a * n + b].gbps < job->wans[to[a] * n + to[b]].gbps))
                return false;
    }
    return true;
}

static bool same_result(const lh_job *job, const flat *a, const flat *b)
{
    uint32_t n = job->n_datacenters, code[4];
    for (code[0] = 0; code[0] < n; code[0]++)
        for (code[1] = 0; code[1] < n; code[1]++)
            for (code[2] = 0; code[2] < n; code[2]++)
                for (code[3] = 0; code[3] < n; code[3]++) {
                    bool used[4] = {false}, ok = true;
                    for (uint32_t i = 0; i < n; i++) {
                        ok = ok && !used[code[i]];
                        used[code[i]] = true;
                    }
                    if (ok && keeps_job(job, code) && same_flat(a, b, code))
                        return true;
                }
    return false;
}

/* ---- exhaustive enumeration ---- */

/* State of the enumeration. */
typedef struct brute {
    const lh_job *job;
    const lh_layout *layout;
    uint32_t left[4]; /* free ranks per datacenter */
    flat now;
    flat *all;
    uint32_t n, room;
} brute;

static void add_flat(brute *b)
{
    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 64;
        b->all = realloc(b->all, b->room * sizeof *b->all);
    }
    b->all[b->n++] = b->now;
}

static void begin_group(brute *b, uint32_t replicas);

/* Adds another part to the last group, in every datacenter, with every number
 * of stages. */
static void add_part(brute *b, uint32_t stages, uint32_t replicas)
{
    uint32_t g = b->now.n_groups - 1, r = b->now.replicas[g];
    if (stages == 0) {
        begin_group(b, replicas);
        return;
    }
    for (uint32_t s = 0; s < b->job->n_datacenters; s++) {
        bool used = false;
        for (uint32_t h = 0; h <= g; h++)
            for (uint32_t i = 0; i < b->now.n[h]; i++)
                used = used || b->now.site[h][i] == s;
        for (uint32_t k = 1; !used && k <= stages && k * r <= b->left[s]; k++) {
            b->now.site[g][b->now.n[g]] = s;
            b->now.stages[g][b->now.n[g]++] = k;
            add_part(b, stages - k, replicas);
            b->now.n[g]--;
        }
    }
}

static void begin_group(brute *b, uint32_t replicas)
{
    if (replicas == 0) {
        add_flat(b);
        return;
    }
    if (b->now.n_groups == b->job->n_datacenters)
        return;
    uint32_t g = b->now.n_groups++;
    for (uint32_t r = 1; r <= replicas; r++) {
        b->now.replicas[g] = r;
        b->now.n[g] = 0;
        add_part(b, b->layout->pipeline, replicas - r);
    }
    b->now.n_groups--;
}

static void count_all(brute *b)
{
    for (uint32_t i = 0; i < b->job->n_datacenters; i++)
        b->left[i] = b->job->datacenters[i].gpus / b->layout->tensor;
    begin_group(b, b->layout->data);
}

/* Keeps only the datacenters, groups and order; numbers may differ. */
static flat shape_of(const flat *f)
{
    flat shape = *f;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        shape.replicas[g] = 0;
        for (uint32_t i = 0; i < f->n[g]; i++)
            shape.stages[g][i] = 0;
    }
    return shape;
}

/* If all GPUs are needed, there is one placement per order and grouping, and
 * the search finds all; otherwise at least one for each. */
static void check_found(const char *cluster, lh_layout layout, bool all_needed,
                        uint32_t expected)
{
    lh_job *job = job_at(64, cluster, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    brute b = {.job = job, .layout = &layout};
    const lh_sites *list = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    CHECK_OK(lhi_placement_search(job, &layout, mem, &list, &n, &err), err);
    count_all(&b);
    CHECK(n < LHI_MOST_SITES);
    if (expected)
        CHECK_INT(n, expected);
    flat *found = calloc(n + 1, sizeof *found);
    for (uint32_t i = 0; i < n; i++) {
        lhi_layout_placement at;
        lh_layout l = layout;
        l.sites = &list[i];
        CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
        found[i] = flatten(&list[i]);
        for (uint32_t j = 0; j < i; j++)
            CHECK(!same_result(job, &found[i], &found[j]));
    }
    uint32_t missing = 0;
    for (uint32_t k = 0; k < b.n; k++) {
        bool any = false;
        for (uint32_t i = 0; i < n && !any; i++) {
            flat x = shape_of(&found[i]), y = shape_of(&b.all[k]);
            any = all_needed ? same_result(job, &found[i], &b.all[k])
                             : same_result(job, &x, &y);
        }
        missing += !any;
    }
    CHECK_MSG(missing == 0, "%u of %u placements are missing", missing, b.n);
    CHECK(b.n >= n);
    free(found);
    free(b.all);
    lhi_arena_free(mem);
    lh_job_free(job);
}

#define SITES3(a, b, c)                                                        \
    "  datacenters:\n"                                                         \
    "   - {name: a, nodes: " #a "}\n"                                          \
    "   - {name: b, nodes: " #b "}\n"                                          \
    "   - {name: c, nodes: " #c "}\n"                                          \
    "  links:\n"

#define LINK(a, b, ms)                                                         \
    "   - {between: [" #a ", " #b "], latency_ms: " #ms ", gbps: 100}\n"

#define EQUAL3 LINK(a, b, 10) LINK(a, c, 10) LINK(b, c, 10)
#define APART3 LINK(a, b, 10) LINK(a, c, 20) LINK(b, c, 30)

static void all_placements_are_found(void)
{
    /* Equivalent datacenters: one pipeline through all, two and one, each
     * alone. */
    check_found(SITES3(2, 2, 2) EQUAL3, layout_of(4, 6, 1), true, 1);
    check_found(SITES3(2, 2, 2) EQUAL3, layout_of(4, 2, 3), true, 2);
    check_found(SITES3(2, 2, 2) EQUAL3, layout_of(4, 3, 2), true, 1);
    /* Three orders in both directions: the head is in the last datacenter. */
    check_found(SITES3(2, 2, 2) APART3, layout_of(4, 6, 1), true, 6);
    check_found(SITES3(2, 2, 2) APART3, layout_of(4, 2, 3), true, 7);
    /* 4, 2 and 2 ranks: pipelines of two in each, or two pipelines of four. */
    check_found(SITES3(4, 2, 2) EQUAL3, layout_of(4, 2, 4), true, 0);
    check_found(SITES3(4, 2, 2) APART3, layout_of(4, 4, 2), true, 0);
    check_found(SITES3(3, 2, 1) APART3, layout_of(4, 3, 2), true, 0);
    /* Four: twelve orders in both directions. */
    check_found(JOB_PAIRS, layout_of(4, 8, 1), true, 24);
    check_found(JOB_PAIRS, layout_of(4, 4, 2), true, 0);
    check_found(JOB_PAIRS, layout_of(4, 2, 4), true, 0);
    check_found(JOB_PAIRS, layout_of(1, 8, 4), true, 0);
}

static void some_of_each_kind_are_found(void)
{
    check_found(SITES3(2, 2, 2) APART3, layout_of(4, 5, 1), false, 0);
    check_found(SITES3(3, 2, 2) APART3, layout_of(4, 3, 2), false, 0);
    check_found(SITES3(5, 1, 1) EQUAL3, layout_of(4, 2, 3), false, 0);
    check_found(SITES3(5, 3, 2) APART3, layout_of(4, 4, 2), false, 0);
    check_found(JOB_PAIRS, layout_of(4, 2, 2), false, 0);
}

/* ---- winners ---- */

static int64_t time_of(const lh_job *job, lh_layout layout,
                       const lh_sites *sites)
{
    lh_pipeline *p = NULL;
    lh_schedule *schedule = NULL;
    lh_timeline *timeline = NULL;
    lh_error err = {0};
    int64_t ns = 0;
    layout.sites = sites;
    layout.outermost = lhi_sites_outermost(sites);
    CHECK_OK(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                              &p, NULL, &err),
             err);
    CHECK_OK(lh_method_run("zb-h1", p, NULL, &schedule, NULL, &err), err);
    CHECK_OK(lh_simulate(p, schedule, NULL, &timeline, &err), err);
    if (timeline)
        ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return ns;
}

static const lh_sites *fastest(const lh_job *job, const lh_layout *layout,
                               lhi_arena *mem, int64_t *ns)
{
    const lh_sites *list = NULL, *best = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    CHECK_OK(lhi_placement_search(job, layout, mem, &list, &n, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        int64_t here = time_of(job, *layout, &list[i]);
        if (!best || here < *ns) {
            best = &list[i];
            *ns = here;
        }
    }
    CHECK(best != NULL);
    return best;
}

/* Pipelines inside the close pairs, replicas between them: faster than any
 * single pipeline through all, and than replicas within one datacenter each. */
static void mixed_wins_between_close_pairs(void)
{
    lh_job *job = job_at(64,
                         "  datacenters:\n"
                         "   - {name: a, nodes: 2}\n"
                         "   - {name: b, nodes: 2}\n"
                         "   - {name: c, nodes: 2}\n"
                         "   - {name: d, nodes: 2}\n"
                         "  links:\n" LINK(a, c, 1) LINK(b, d, 1) LINK(a, b, 60)
                             LINK(c, d, 60) LINK(a, d, 60) LINK(b, c, 60),
                         NULL);
    lhi_arena *mem = lhi_arena_make(0);
    const uint32_t degrees[][2] = {{8, 1}, {4, 2}, {2, 4}};
    int64_t ns[LH_OUTERMOST_MIXED + 1] = {0};
    const lh_sites *best[LH_OUTERMOST_MIXED + 1] = {NULL};
    for (int d = 0; d < 3; d++) {
        lh_layout l = layout_of(4, degrees[d][0], degrees[d][1]);
        const lh_sites *list = NULL;
        uint32_t n = 0;
        lh_error err = {0};
        CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
        for (uint32_t i = 0; i < n; i++) {
            lh_outermost o = lhi_sites_outermost(&list[i]);
            int64_t here = time_of(job, l, &list[i]);
            if (ns[o] && here >= ns[o])
                continue;
            ns[o] = here;
            best[o] = &list[i];
        }
    }
    CHECK(best[LH_OUTERMOST_MIXED] != NULL);
    const lh_site_stages *parts = best[LH_OUTERMOST_MIXED]->groups[0].parts;
    CHECK_INT(parts[0].datacenter + parts[1].datacenter, 2); /* a and c */
    CHECK(ns[LH_OUTERMOST_PIPELINE] > ns[LH_OUTERMOST_MIXED] * 21 / 20);
    CHECK(ns[LH_OUTERMOST_DATA] > ns[LH_OUTERMOST_MIXED] * 21 / 20);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* b is between a and d, and c at the far end: nobody lists them as c a d b. */
static void orders_are_found(void)
{
    lh_job *job = job_at(32,
                         "  datacenters:\n"
                         "   - {name: a, nodes: 1}\n"
                         "   - {name: b, nodes: 1}\n"
                         "   - {name: c, nodes: 1}\n"
                         "   - {name: d, nodes: 1}\n"
                         "  links:\n" LINK(c, a, 2) LINK(a, d, 2) LINK(d, b, 2)
                             LINK(a, b, 40) LINK(b, c, 40) LINK(c, d, 40),
                         NULL);
    static const uint32_t want[] = {1, 3, 0, 2};
    lhi_arena *mem = lhi_arena_make(0);
    lh_layout l = layout_of(4, 4, 1);
    int64_t ns = 0;
    lh_error err = {0};
    const lh_sites *best = fastest(job, &l, mem, &ns), *usual = NULL;
    CHECK_INT(best->n_groups, 1);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_INT(best->groups[0].parts[i].datacenter, want[i]);
    CHECK_OK(lhi_sites_default(job, &l, mem, &usual, &err), err);
    CHECK(time_of(job, l, usual) > ns + 80000000);
    /* The search ranks the same one first. */
    const lh_sites *list = NULL;
    uint32_t n = 0;
    CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
    CHECK(lhi_sites_are_equal(&list[0], best));
    lhi_arena_free(mem);
    lh_job_free(job);
}

static bool has(const lh_sites *list, uint32_t n, const lh_sites *one)
{
    for (uint32_t i = 0; i < n; i++)
        if (lhi_sites_are_equal(&list[i], one))
            return true;
    return false;
}

/* 24 and 8 GPUs, the few twice as fast: three replicas here and one there;
 * stages by memory, and by speed. */
static void sizes_and_speeds_differ(void)
{
    lh_job *job = job_at(
        48,
        "  datacenters:\n"
        "   - {name: west, nodes: 6}\n"
        "   - {name: east, nodes: 2, gpu: {tflops: 1000, memory_gib: 141, "
        "memory_gbps: 4800, efficiency: 0.5}}\n"
        "  links:\n"
        "   - {between: [west, east], latency_ms: 10, gbps: 400}\n",
        NULL);
    static const lh_site_stages here[] = {{0, 2}, {1, 2}};
    static const lh_site_stages by_room[] = {{0, 6}, {1, 2}},
                                turned[] = {{1, 2}, {0, 6}};
    static const lh_site_stages by_speed[] = {{0, 1}, {1, 2}},
                                evenly[] = {{0, 2}, {1, 1}};
    const lh_site_group replicas[] = {{3, 1, here}, {1, 1, here + 1}};
    const lh_site_group all[] = {{1, 2, by_room}, {1, 2, turned}};
    const lh_site_group few[] = {{1, 2, by_speed}, {1, 2, evenly}};
    const lh_sites want[] = {
        {2, replicas}, {1, &all[0]}, {1, &all[1]}, {1, &few[0]}, {1, &few[1]}};
    const uint32_t degrees[][2] = {{2, 4}, {8, 1}, {8, 1}, {3, 1}, {3, 1}};
    lhi_arena *mem = lhi_arena_make(0);
    for (int i = 0; i < 5; i++) {
        lh_layout l = layout_of(4, degrees[i][0], degrees[i][1]);
        const lh_sites *list = NULL;
        uint32_t n = 0;
        lh_error err = {0};
        CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
        CHECK_MSG(has(list, n, &want[i]), "row %d: not among %u", i, n);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
}

static uint32_t count(const char *prices, const char *of_b, const char *to_c,
                      uint32_t pipeline)
{
    char cluster[1024];
    snprintf(cluster, sizeof cluster,
             "%s"
             "  datacenters:\n"
             "   - {name: a, nodes: 1}\n"
             "   - {name: b, nodes: 1%s}\n"
             "   - {name: c, nodes: 1}\n"
             "  links:\n"
             "   - {between: [a, b], latency_ms: 1, gbps: 100}\n"
             "   - {between: [b, c], latency_ms: 1, gbps: 100}\n"
             "   - {between: [a, c], latency_ms: 1, gbps: 100%s}\n",
             prices, of_b, to_c);
    lh_job *job = job_at(64, cluster, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    lh_layout l = layout_of(4, pipeline, 1);
    const lh_sites *list = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
    lhi_arena_free(mem);
    lh_job_free(job);
    return n;
}

/* Datacenters that differ in price are not equivalent. */
static void prices_differ(void)
{
    static const char each[] = "  usd_per_gpu_hour: 2\n";
    CHECK_INT(count(each, "", "", 1), 1);
    CHECK_INT(count(each, ", usd_per_gpu_hour: 3", "", 1), 2);
    CHECK_INT(count(each, "", "", 2), 1);
    /* From a to c, between a and b in both directions. */
    CHECK_INT(count(each, "", ", usd_per_gb: 0.1", 2), 3);
}

/* Only the job's own placement is found. */
static void jobs_decide(void)
{
    static const char *const outermost[] = {NULL, "pipeline", "data", "mixed"};
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_MIXED; o++) {
        char rest[64];
        snprintf(rest, sizeof rest, "layout: {outermost: %s}\n", outermost[o]);
        lh_job *job = job_at(64, JOB_PAIRS, rest);
        lhi_arena *mem = lhi_arena_make(0);
        lh_layout l = layout_of(2, 4, 4);
        const lh_sites *list = NULL;
        uint32_t n = 0;
        lh_error err = {0};
        CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
        CHECK(n > 0);
        for (uint32_t i = 0; i < n; i++)
            CHECK_INT(lhi_sites_outermost(&list[i]), o);
        lhi_arena_free(mem);
        lh_job_free(job);
    }
}

/* Twelve datacenters on a line, listed at random: the best order is found. */
static void many_are_put_in_order(void)
{
    static const int place[] = {3, 9, 0, 6, 11, 1, 7, 4, 10, 2, 8, 5};
    char cluster[8000];
    int used = snprintf(cluster, sizeof cluster, "  datacenters:\n");
    for (int i = 0; i < 12; i++)
        used += snprintf(cluster + used, sizeof cluster - (size_t)used,
                         "   - {name: s%d, nodes: 1}\n", i);
    used +=
        snprintf(cluster + used, sizeof cluster - (size_t)used, "  links:\n");
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < i; j++)
            used += snprintf(cluster + used, sizeof cluster - (size_t)used,
                             "   - {between: [s%d, s%d], latency_ms: %d, "
                             "gbps: 100}\n",
                             i, j, 3 * abs(place[i] - place[j]));
    lh_job *job = job_at(24, cluster, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    const lh_sites *list = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    lh_layout l = layout_of(4, 12, 1);
    CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
    CHECK(n > 0 && n <= LHI_MOST_SITES);
    for (uint32_t i = 1; n && i < 12; i++) {
        const lh_site_stages *parts = list[0].groups[0].parts;
        CHECK_INT(
            abs(place[parts[i].datacenter] - place[parts[i - 1].datacenter]),
            1);
    }
    /* Pairs of neighbours, for pipelines of two. */
    l = layout_of(4, 2, 6);
    CHECK_OK(lhi_placement_search(job, &l, mem, &list, &n, &err), err);
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t close = 0;
        for (uint32_t g = 0; g < list[i].n_groups; g++)
            close += list[i].groups[g].n_parts == 2 &&
                     abs(place[list[i].groups[g].parts[0].datacenter] -
                         place[list[i].groups[g].parts[1].datacenter]) == 1;
        any = any || close == 6;
    }
    CHECK(any);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* The same list again, and separate ones for other degrees. */
static void lists_are_kept(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_sites_store *store = NULL;
    lhi_sites_list first[3], again;
    const lh_sites *own = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    const uint32_t degrees[][3] = {{4, 4, 2}, {2, 4, 2}, {4, 2, 4}};
    CHECK_OK(lhi_sites_store_make(job, mem, &store, &err), err);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) {
            lh_layout l =
                layout_of(degrees[i][0], degrees[i][1], degrees[i][2]);
            CHECK_OK(lhi_sites_store_find(store, &l, &again, &err), err);
            if (round == 0)
                first[i] = again;
            CHECK(again.sites == first[i].sites && again.n == first[i].n);
            CHECK_OK(lhi_placement_search(job, &l, mem, &own, &n, &err), err);
            /* At most each placement and the reversed one. */
            CHECK(n > again.n && again.n > LHI_MAX_TRIED_PLACEMENTS &&
                  again.n <= 2 * LHI_MAX_TRIED_PLACEMENTS);
            uint32_t reversed = 0;
            for (uint32_t k = 0; k < again.n; k++) {
                CHECK(lhi_sites_are_equal(&own[k], &again.sites[k]));
                reversed += again.reversed[k];
            }
            CHECK_INT(again.n - reversed, LHI_MAX_TRIED_PLACEMENTS);
        }
    lhi_arena_free(mem);
    lh_job_free(job);
}

int main(void)
{
    RUN(all_placements_are_found);
    RUN(some_of_each_kind_are_found);
    RUN(mixed_wins_between_close_pairs);
    RUN(orders_are_found);
    RUN(sizes_and_speeds_differ);
    RUN(prices_differ);
    RUN(jobs_decide);
    RUN(many_are_put_in_order);
    RUN(lists_are_kept);
    return test_summary();
}
