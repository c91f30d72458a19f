/* SPDX-License-Identifier: Apache-2.0 */
/* Longest paths through kernel lists: an example by hand, random lists compared
 * with a recursion over all paths, and rejected input. */
#include "fail_alloc.h"
#include "random_pipeline.h"
#include "test.h"

#include "schedule/simulator/kernels.h"

enum { AG0, F0, P, F1, B1, Q, B0, RS0, N };

static const uint32_t chain[] = {AG0, F0, P, F1, B1, Q, B0};

/* ag0 -> f0 -> p -> f1 -> b1 -> q -> b0 -> rs0, and b0 after f0. */
static void list_example(lhi_placement_kernel *k)
{
    static const uint32_t before_b0[] = {Q, F0};
    static const lhi_placement_kernel list[N] = {
        {LHI_KERNEL_DP, {20, 2}, 0, NULL},
        {LHI_KERNEL_COMPUTE, {7, 7}, 1, &chain[AG0]},
        {LHI_KERNEL_P2P, {1, 13}, 1, &chain[F0]},
        {LHI_KERNEL_COMPUTE, {7, 7}, 1, &chain[P]},
        {LHI_KERNEL_COMPUTE, {14, 14}, 1, &chain[F1]},
        {LHI_KERNEL_P2P, {1, 13}, 1, &chain[B1]},
        {LHI_KERNEL_COMPUTE, {14, 14}, 2, before_b0},
        {LHI_KERNEL_DP, {20, 2}, 1, &chain[B0]},
    };
    memcpy(k, list, sizeof list);
}

static void by_hand(void)
{
    lhi_placement_kernel k[N];
    lhi_reconstruction r = {0};
    lh_error err = {0};
    list_example(k);
    CHECK_OK(lhi_kernels_reconstruct(k, N, &r, &err), err);
    CHECK_INT(r.ns[LHI_KERNEL_DP_OUT], 84);
    CHECK_INT(r.ns[LHI_KERNEL_PP_OUT], 72);
    CHECK_INT(r.ns[r.faster], 72);
    CHECK_INT(r.path_ns[LHI_KERNEL_DP_OUT][LHI_KERNEL_COMPUTE], 42);
    CHECK_INT(r.path_ns[LHI_KERNEL_DP_OUT][LHI_KERNEL_P2P], 2);
    CHECK_INT(r.path_ns[LHI_KERNEL_DP_OUT][LHI_KERNEL_DP], 40);
    CHECK_INT(r.path_ns[LHI_KERNEL_PP_OUT][LHI_KERNEL_P2P], 26);
    CHECK_INT(r.path_ns[LHI_KERNEL_PP_OUT][LHI_KERNEL_DP], 4);
    k[AG0].ns[LHI_KERNEL_PP_OUT] += 12; /* identical */
    CHECK_OK(lhi_kernels_reconstruct(k, N, &r, &err), err);
    CHECK_INT(r.ns[LHI_KERNEL_PP_OUT], 84);
    CHECK_INT(r.faster, LHI_KERNEL_DP_OUT);
    CHECK_OK(lhi_kernels_reconstruct(NULL, 0, &r, &err), err);
    CHECK_INT(r.ns[LHI_KERNEL_DP_OUT], 0);
}

/* Returns the longest path that ends with kernel k. */
static int64_t naive(const lhi_placement_kernel *kernels, uint32_t k,
                     int placed)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < kernels[k].n_predecessors; i++) {
        int64_t one = naive(kernels, kernels[k].predecessors[i], placed);
        longest = one > longest ? one : longest;
    }
    return longest + kernels[k].ns[placed];
}

/* Numbers also run against time order, so that the list is unsorted. */
static void random_lists(void)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        rng r = {seed};
        uint32_t n = 1 + rng_below(&r, 12), before[12][4];
        bool mirrored = rng_chance(&r, 50);
        lhi_placement_kernel k[12] = {{0}};
        for (uint32_t i = 0; i < n; i++) {
            uint32_t me = mirrored ? n - 1 - i : i;
            k[me].kind = (lhi_kernel_kind)rng_below(&r, 3);
            k[me].ns[0] = rng_below(&r, 9);
            k[me].ns[1] = rng_below(&r, 9);
            k[me].n_predecessors = i ? rng_below(&r, 5) : 0;
            k[me].predecessors = before[me];
            for (uint32_t j = 0; j < k[me].n_predecessors; j++) {
                uint32_t earlier = rng_below(&r, i);
                before[me][j] = mirrored ? n - 1 - earlier : earlier;
            }
        }
        lhi_reconstruction got = {0};
        lh_error err = {0};
        CHECK_OK(lhi_kernels_reconstruct(k, n, &got, &err), err);
        for (int p = 0; p < LHI_N_KERNEL_PLACEMENTS; p++) {
            int64_t want = 0, sum = 0;
            for (uint32_t i = 0; i < n; i++)
                want = naive(k, i, p) > want ? naive(k, i, p) : want;
            for (int kind = 0; kind < LHI_N_KERNEL_KINDS; kind++)
                sum += got.path_ns[p][kind];
            CHECK_INT(got.ns[p], want);
            CHECK_INT(sum, want);
        }
    }
}

static void refuses(const lhi_placement_kernel *k, uint32_t n, const char *part)
{
    lhi_reconstruction r = {.faster = LHI_N_KERNEL_PLACEMENTS};
    lh_error err = {0};
    CHECK_INT(lhi_kernels_reconstruct(k, n, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, part);
    CHECK_INT(r.faster, LHI_N_KERNEL_PLACEMENTS);
}

static void refused(void)
{
    static const uint32_t two[] = {AG0, F1}, itself[] = {F1}, none[] = {N};
    lhi_placement_kernel k[N];
    list_example(k);
    k[F0].n_predecessors =
        2; /* f0 -> p -> f1 -> f0; b1 and later wait for it */
    k[F0].predecessors = two;
    refuses(k, N, "waits for itself, in a cycle of 3");
    list_example(k);
    k[F1].predecessors = itself;
    refuses(k, N, "kernel 3 waits for itself, in a cycle of 1");
    list_example(k);
    k[P].predecessors = none;
    refuses(k, N, "kernel 2 comes after kernel 8, which does not exist");
    list_example(k);
    k[Q].ns[1] = -1;
    refuses(k, N, "kernel 5: a duration is negative");
    k[Q].ns[1] = INT64_MAX;
    refuses(k, N, "up to kernel 5 add up to more than 2^53 ns");
    list_example(k);
    k[RS0].kind = LHI_N_KERNEL_KINDS;
    refuses(k, N, "kernel 7: unknown kind 3");
}

static void without_memory(void)
{
    lhi_placement_kernel k[N];
    lhi_reconstruction r;
    lh_error err;
    list_example(k);
    FAIL_EACH_ALLOC(status = lhi_kernels_reconstruct(k, N, &r, &err));
}

int main(void)
{
    RUN(by_hand);
    RUN(random_lists);
    RUN(refused);
    RUN(without_memory);
    return test_summary();
}
