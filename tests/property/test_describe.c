/* SPDX-License-Identifier: Apache-2.0 */
/* Round trips from pipelines to descriptions and back.
 *
 *     test_describe [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include <longhaul/experimental/pipeline.h>

#include <stdlib.h>
#include <string.h>

static uint32_t n_cases = 2000, first_case;

static lh_pipeline *make(const lh_pipeline_desc *desc)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(desc, &p, &err), err);
    return p;
}

static lh_pipeline_desc describe(const lh_pipeline *p)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &desc, &err), err);
    return desc;
}

/* Checks that both pipelines have the same text, and frees both. */
static void check_same(lh_pipeline *p, lh_pipeline *q)
{
    char *a = NULL, *b = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_format(p, &a, NULL, &err), err);
    CHECK_OK(lh_pipeline_format(q, &b, NULL, &err), err);
    CHECK_STR(b, a);
    lh_text_free(a);
    lh_text_free(b);
    lh_pipeline_free(p);
    lh_pipeline_free(q);
}

static void random_ones_come_back(void)
{
    static const random_shape shape = {.everything = true};
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++) {
        rng r = {first_case + i};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_pipeline_desc desc = describe(p);
        check_same(p, make(&desc));
        if (test_state.bad)
            fprintf(stderr, "case %u\n", first_case + i);
    }
}

/* Copies that other tests make, each with one change, lose no other field. */
static void copies_lose_nothing(void)
{
    static const random_shape shape = {.everything = true};
    for (uint32_t i = 0; i < n_cases / 10 && !test_state.bad; i++) {
        rng r = {first_case + i}, again = r;
        lh_pipeline *p = random_pipeline(&r, &shape);
        if (lh_pipeline_n_links(p) > 0)
            check_same(slower_pipeline(p, 0, 0, 0),
                       random_pipeline(&again, &shape));
        int64_t limits[16];
        for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
            limits[d] = lh_pipeline_memory_limit(p, d);
        if (describe(p).memory_limits)
            check_same(limited_pipeline(p, limits), p);
        else
            lh_pipeline_free(p);
    }
}

/* A description that uses every field, except those that exclude others: see
 * two_directions_are_described() slices_are_described() and
 * copies_are_described(). A positional initialiser that lacks a field does not
 * compile: a new field needs a non-default value here and a comparison below.
 */
static const lh_chunk chunks[] = {{1, 2, 3, 4, 5, -6, 1, 8, 9, 10, 11, 12},
                                  {0, 2, 3, 4, 5, -6, 1, 8, 9, 10, 11, 12}};
static const lh_link links[] = {{0, 1, 5, 6, "left"}, {1, 0, 7, 8, NULL}};
static const int64_t limits[] = {70, 80};
static const lh_site sites[] = {{"west"}, {"east"}};
static const uint32_t device_sites[] = {1, 0};
static const lh_dp_op ops[] = {
    {1, true, 1, 2, LH_DP_ANY, 0, 30, {1, 2, false}, {LH_NONE, 0, false}},
    {1, false, 0, 1, LH_DP_AGB, 0.375, 31, {1, 2, true}, {1, 3, true}}};
static const char *const dp_links[] = {"left + b>a", "fabric of a"};
static const uint32_t enqueue[] = {3, 2}, dequeue[] = {1, 1, 3};

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"
/* clang-format off */
static const lh_pipeline_desc all = {
    sizeof all, 2, 5, true, 2, chunks, 2, links, limits, "KiB", 2, sites,
    device_sites, 2, ops, 2, 2, 3, enqueue, dequeue,
    LH_RECEIVES_LATE_FD, dp_links, 3, LH_DP_PIPELINE_FIRST, false, 0, 0, 0, 0};
/* clang-format on */
#pragma GCC diagnostic pop

static bool same_link(const lh_link *a, const lh_link *b)
{
    return a->from == b->from && a->to == b->to &&
           a->latency_ns == b->latency_ns && a->transfer_ns == b->transfer_ns &&
           strcmp(a->name ? a->name : "1-0", b->name) == 0;
}

static bool same_op(const lh_dp_op *a, const lh_dp_op *b)
{
    return a->chunk == b->chunk &&
           a->is_reduce_scatter == b->is_reduce_scatter &&
           a->bucket == b->bucket && a->kind == b->kind &&
           !(a->share < b->share) && !(a->share > b->share) &&
           a->n_buckets == b->n_buckets && a->transfer_ns == b->transfer_ns &&
           a->launch.chunk == b->launch.chunk &&
           a->launch.microbatch == b->launch.microbatch &&
           a->launch.backward == b->launch.backward &&
           a->needed_by.chunk == b->needed_by.chunk &&
           a->needed_by.microbatch == b->needed_by.microbatch &&
           a->needed_by.backward == b->needed_by.backward;
}

static void every_field_is_described(void)
{
    lh_pipeline *p = make(&all);
    lh_pipeline_desc d = describe(p);
    CHECK_INT(d.size, sizeof d);
    CHECK_INT(d.n_devices, all.n_devices);
    CHECK_INT(d.n_microbatches, all.n_microbatches);
    CHECK_INT(d.joint, all.joint);
    CHECK_INT(d.n_chunks, all.n_chunks);
    CHECK_INT(d.n_links, all.n_links);
    CHECK_STR(d.memory_unit, all.memory_unit);
    CHECK_INT(d.n_sites, all.n_sites);
    CHECK_INT(d.n_dp_ops, all.n_dp_ops);
    CHECK_INT(d.n_initial_gathers, all.n_initial_gathers);
    CHECK_INT(d.n_enqueue, all.n_enqueue);
    CHECK_INT(d.n_dequeue, all.n_dequeue);
    CHECK_INT(d.receives, all.receives);
    CHECK_INT(d.dp_piece_ns, all.dp_piece_ns);
    CHECK_INT(d.dp_priority, all.dp_priority);
    CHECK(d.chunks && d.links && d.memory_limits && d.sites);
    CHECK(d.device_sites && d.dp_ops && d.enqueue && d.dequeue && d.dp_links);
    for (uint32_t i = 0; i < 2 && !test_state.bad; i++) {
        CHECK(memcmp(&d.chunks[i], &chunks[i], sizeof *chunks) == 0);
        CHECK(same_link(&links[i], &d.links[i]));
        CHECK_INT(d.memory_limits[i], limits[i]);
        CHECK_STR(d.sites[i].name, sites[i].name);
        CHECK_INT(d.device_sites[i], device_sites[i]);
        CHECK(same_op(&d.dp_ops[i], &ops[i]));
        CHECK_INT(d.enqueue[i], enqueue[i]);
        CHECK_INT(d.dequeue[i], dequeue[i]);
        CHECK_STR(d.dp_links[i], dp_links[i]);
    }
    check_same(p, make(&d));
}

static void two_directions_are_described(void)
{
    lh_chunk plain[2] = {chunks[0], chunks[1]};
    plain[0].offload_ns = plain[1].offload_ns = 0;
    const lh_pipeline_desc two_way = {.size = sizeof two_way,
                                      .n_devices = 2,
                                      .n_microbatches = 5,
                                      .n_chunks = 2,
                                      .chunks = plain,
                                      .bidirectional = true,
                                      .overlap_f_b = 0.875};
    lh_pipeline *p = make(&two_way);
    lh_pipeline_desc d = describe(p);
    CHECK(d.bidirectional);
    CHECK_NEAR(d.overlap_f_b, 0.875, 0);
    check_same(p, make(&d));
}

static void copies_are_described(void)
{
    const lh_pipeline_desc three = {
        .size = sizeof three,
        .n_devices = 3,
        .n_microbatches = 4,
        .n_chunks = 3,
        .chunks =
            (const lh_chunk[]){{.device = 0, .f_ns = 2, .d_ns = 3, .w_ns = 4},
                               {.device = 1, .f_ns = 2, .d_ns = 3, .w_ns = 4},
                               {.device = 2, .f_ns = 2, .d_ns = 3, .w_ns = 4}},
        .n_copies = 3};
    lh_pipeline *p = make(&three);
    lh_pipeline_desc d = describe(p);
    CHECK_INT(d.n_copies, 3);
    CHECK(!d.bidirectional);
    check_same(p, make(&d));
}

static void slices_are_described(void)
{
    const lh_pipeline_desc sliced = {
        .size = sizeof sliced,
        .n_devices = 2,
        .n_microbatches = 6,
        .n_chunks = 2,
        .chunks =
            (const lh_chunk[]){{.device = 0, .f_ns = 2, .d_ns = 3, .w_ns = 4},
                               {.device = 1, .f_ns = 2, .d_ns = 3, .w_ns = 4}},
        .n_slices = 3,
        .slice_attention = 0.25};
    lh_pipeline *p = make(&sliced);
    lh_pipeline_desc d = describe(p);
    CHECK_INT(d.n_slices, 3);
    CHECK_NEAR(d.slice_attention, 0.25, 0);
    check_same(p, make(&d));
}

/* Descriptions whose size is that of older and newer headers. */
static void other_sizes(void)
{
    struct {
        lh_pipeline_desc desc;
        uint64_t newer;
    } large;
    lh_pipeline *p = make(&all);
    lh_error err = {0};
    memset(&large, 1, sizeof large);
    large.desc.size = sizeof large;
    CHECK_OK(lh_pipeline_describe(p, &large.desc, &err), err);
    CHECK_INT(large.desc.size, sizeof large);
    CHECK_INT(large.desc.n_dequeue, 3);
    CHECK_INT(large.newer, 0);
    lh_pipeline_desc small = {.size = offsetof(lh_pipeline_desc, n_dp_ops),
                              .n_dp_ops = 77};
    CHECK_INT(lh_pipeline_describe(p, &small, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "the pipeline does not fit into");
    CHECK_INT(small.n_devices, 0);
    small.size = 0;
    CHECK_INT(lh_pipeline_describe(p, &small, &err), LH_EINVAL);
    CHECK_INT(small.n_devices, 0);
    lh_pipeline_free(p);
    lh_pipeline_desc less = all;
    less.receives = LH_RECEIVES_EARLY;
    less.dp_links = NULL;
    less.n_dp_ops = less.n_initial_gathers = less.n_enqueue = less.n_dequeue =
        0;
    p = make(&less);
    small.size = offsetof(lh_pipeline_desc, n_dp_ops);
    CHECK_OK(lh_pipeline_describe(p, &small, &err), err);
    CHECK_INT(small.n_devices, 2);
    CHECK_INT(small.n_dp_ops, 77);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(every_field_is_described);
    RUN(two_directions_are_described);
    RUN(copies_are_described);
    RUN(slices_are_described);
    RUN(random_ones_come_back);
    RUN(copies_lose_nothing);
    RUN(other_sizes);
    return test_summary();
}
