/* SPDX-License-Identifier: Apache-2.0 */
/* Derives sequences, shares and buckets for one queue size (PipeMesh, section
 * IV-B), and validates plans from input. */
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

#include <inttypes.h>
#include <string.h>

/* Checks whether a duration is negative or above the supported limit. */
static bool is_time_invalid(int64_t ns)
{
    return ns < 0 || ns > LHI_ELASTIC_MAX_TIME;
}

lh_status lhi_elastic_check_case(const lh_elastic_case *given, lh_error *err)
{
    const lh_elastic_case *g = given;
    if (g->stages < 1 || g->replicas < 1 || g->chunks < 1 ||
        g->microbatches < 1)
        return lhi_fail(err, LH_EINVAL,
                        "stages, replicas, chunks and microbatches must be at "
                        "least 1");
    if (g->microbatches > LH_MAX_MICROBATCHES || g->stages > LH_MAX_DEVICES ||
        g->chunks > LH_MAX_CHUNKS || g->replicas > 1u << 24 ||
        (uint64_t)g->chunks * g->stages > LH_MAX_CHUNKS ||
        (uint64_t)g->chunks * g->stages * g->microbatches > LH_MAX_PASSES)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " stages of %" PRIu32 " chunks and %" PRIu32
                        " microbatches exceed the supported size",
                        g->stages, g->chunks, g->microbatches);
    if (is_time_invalid(g->f_ns) || is_time_invalid(g->b_ns) ||
        is_time_invalid(g->dp_ns) || is_time_invalid(g->pp_ns) ||
        is_time_invalid(g->sharded_ns) || g->f_ns == 0 || g->b_ns == 0)
        return lhi_fail(err, LH_EINVAL,
                        "times must be from 0 to 2^52 ns, those of passes "
                        "above 0");
    if (g->sharded_ns > 0 && g->sharded_ns < g->dp_ns)
        return lhi_fail(err, LH_EINVAL,
                        "a chunk takes %" PRId64 " ns layer by layer, less "
                        "than the %" PRId64 " ns at once",
                        g->sharded_ns, g->dp_ns);
    if (g->expert_params < 0 || g->expert_params > g->params ||
        g->expert_replicas > 1u << 24)
        return lhi_fail(err, LH_EINVAL,
                        "experts have %" PRId64 " of %" PRId64
                        " parameters, and %" PRIu32
                        " replicas: at most all, and 2^24",
                        g->expert_params, g->params, g->expert_replicas);
    if (g->params < 0 || g->params > LHI_ELASTIC_MAX_PARAMS)
        return lhi_fail(err, LH_EINVAL,
                        "parameters must be from 0 to 2^50 on a device");
    if (g->weight_bytes < 0 || g->gradient_bytes < 0 ||
        g->optimizer_bytes < 0 || g->other_bytes < 0 || g->base_bytes < 0 ||
        g->base_bytes > LHI_ELASTIC_MAX_BASE_BYTES || g->weight_bytes > 64 ||
        g->gradient_bytes > 64 || g->optimizer_bytes > 1024 ||
        g->other_bytes > LHI_ELASTIC_MAX_PARAMS ||
        (unsigned)g->sharding > LH_ELASTIC_ZERO3)
        return lhi_fail(err, LH_EINVAL, "bytes or sharding are out of range");
    /* Everything serialised, the same limit as for pipelines. */
    long double all = ((long double)g->f_ns + (long double)g->b_ns +
                       2 * (long double)g->pp_ns +
                       4 * (long double)lhi_elastic_get_sharded_ns(g)) *
                      g->chunks * g->microbatches * g->stages;
    if (all > 0x1p60L)
        return lhi_fail(err, LH_EINVAL,
                        "the times add up to more than 2^60 ns (36 years)");
    return LH_OK;
}

/* Splits `n` into `k` parts; the first n mod k parts are larger by one. */
static void split_evenly(uint32_t n, uint32_t k, uint32_t *parts)
{
    for (uint32_t i = 0; i < k; i++)
        parts[i] = n / k + (i < n % k);
}

/* Returns the smallest of n values; n is at least 1. */
static uint32_t find_minimum(const uint32_t *values, uint32_t n)
{
    uint32_t least = values[0];
    for (uint32_t i = 1; i < n; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

uint32_t lhi_elastic_count_groups(const lh_elastic_case *given, uint32_t queue)
{
    uint32_t rest = given->microbatches - queue;
    return queue >= given->microbatches ? 1 : 1 + (rest - 1) / queue + 1;
}

/* Returns how many parameters, at most `most`, can be sharded so that `n`
 * passes of pass_ns each hide the communication of these parameters. */
static int64_t compute_hidden_share(const lh_elastic_case *g, uint32_t n,
                                    int64_t pass_ns, int64_t most)
{
    int64_t sharded_ns = lhi_elastic_get_sharded_ns(g);
    if (sharded_ns == 0)
        return most;
    lhi_int128 share = (lhi_int128)g->params * n * pass_ns / sharded_ns;
    return share < most ? (int64_t)share : most;
}

/* Returns how many passes of pass_ns hide a communication of comm_ns, at most
 * INT32_MAX. */
static uint32_t count_passes_to_hide(int64_t comm_ns, int64_t pass_ns)
{
    lhi_int128 n = lhi_int128_divide_ceil(comm_ns, pass_ns);
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* Returns the smaller one of `a` and `b`. */
static uint32_t get_minimum(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns the communication time in ns that the backward (dequeue) groups
 * should hide: of a whole chunk at once or, if a part of it may be sharded,
 * layer by layer. */
static int64_t get_time_to_hide(const lh_elastic_case *g)
{
    return g->sharding == LH_ELASTIC_ZERO1 ? g->dp_ns
                                           : lhi_elastic_get_sharded_ns(g);
}

/* Sets the backward (dequeue) group sizes, and in *p the numbers of sharded
 * gradients and parameters whose communication backwards can hide, with their
 * backward bucket counts. */
static void fill_dequeue(const lh_elastic_case *g, uint32_t *dequeue,
                         lh_elastic_plan *p)
{
    uint32_t B = g->microbatches, S = p->n_dequeue;
    /* May exceed 32 bits for tiny passes; min(need, B) does not. */
    int64_t sharded_ns = get_time_to_hide(g);
    lhi_int128 need = lhi_int128_divide_ceil(sharded_ns, g->b_ns);
    uint32_t to_hide = need < B ? (uint32_t)need : B;
    bool hides = (lhi_int128)B * g->b_ns >= (lhi_int128)S * sharded_ns;
    if (S > 1 && !hides) {
        uint32_t last = get_minimum(to_hide, B - (S - 1) * g->stages);
        split_evenly(B - last, S - 1, dequeue);
        dequeue[S - 1] = last;
        p->scatter_buckets = find_minimum(dequeue, S);
        p->params_g =
            compute_hidden_share(g, p->scatter_buckets, g->b_ns, g->params);
        return;
    }
    split_evenly(B, S, dequeue);
    uint32_t m = dequeue[S - 1];
    if (!hides) { /* single group */
        p->scatter_buckets = B;
        return;
    }
    p->scatter_buckets = get_minimum(to_hide, m);
    p->params_g = S == 1 ? g->params
                         : compute_hidden_share(g, p->scatter_buckets, g->b_ns,
                                                g->params);
    p->backward_buckets = m - p->scatter_buckets;
    p->params_p =
        compute_hidden_share(g, p->backward_buckets, g->b_ns, p->params_g);
}

/* Checks whether sharding parameters too (ZeRO-3) saves memory despite its
 * buffers: 2/D + 8/M < 2. If experts have fewer replicas, the resident fraction
 * per parameter replaces 1/D. */
static bool saves_sharding_memory(const lh_elastic_case *g)
{
    lhi_int128 D = g->replicas, M = g->chunks,
               all = g->params > 0 ? g->params : 1;
    lhi_int128 kept =
        g->params > 0 ? lhi_elastic_compute_resident_params(g, g->params) : 1;
    return 2 * M * kept + 8 * D * all < 2 * D * M * all;
}

/* Shards all gradients or parameters as the case's ZeRO level demands, whether
 * their communication can be hidden or not. Spreads each communication over as
 * many passes as hide it, at most a group's. */
static void shard_all(const lh_elastic_case *g, lh_elastic_plan *p)
{
    uint32_t m = find_minimum(p->dequeue, p->n_dequeue);
    int64_t sharded_ns = lhi_elastic_get_sharded_ns(g);
    uint32_t scatter = count_passes_to_hide(sharded_ns, g->b_ns);
    p->params_g = g->sharding == LH_ELASTIC_ZERO1 ? 0 : g->params;
    p->params_p = g->sharding == LH_ELASTIC_ZERO3 ? g->params : 0;
    p->scatter_buckets = p->params_g == 0 ? 0
                         : scatter == 0   ? 1
                                          : get_minimum(scatter, m);
    p->forward_buckets = p->backward_buckets = 0;
    if (p->params_p == 0)
        return;
    uint32_t rest = m - p->scatter_buckets;
    uint32_t e = p->n_enqueue == 1
                     ? p->enqueue[0]
                     : find_minimum(p->enqueue + 1, p->n_enqueue - 1);
    uint32_t forward = count_passes_to_hide(sharded_ns, g->f_ns);
    p->backward_buckets = rest > 0 ? rest : 1;
    p->forward_buckets = forward == 0 ? 1 : get_minimum(forward, e);
}

lh_status lhi_elastic_fill_plan(const lh_elastic_case *given, uint32_t queue,
                                uint32_t *enqueue, uint32_t *dequeue,
                                lh_elastic_plan *out, lh_error *err)
{
    const lh_elastic_case *g = given;
    uint32_t B = g->microbatches, groups = lhi_elastic_count_groups(g, queue);
    *out = (lh_elastic_plan){.n_enqueue = groups,
                             .n_dequeue = groups,
                             .enqueue = enqueue,
                             .dequeue = dequeue};
    enqueue[0] = queue < B ? queue : B;
    if (groups > 1)
        split_evenly(B - queue, groups - 1, enqueue + 1);
    uint32_t shortest = find_minimum(enqueue, groups);
    if (shortest < g->stages)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "a queue of %" PRIu32 " cuts %" PRIu32
                        " microbatches into groups of %" PRIu32
                        " and more, %" PRIu32 " fewer than the %" PRIu32
                        " stages",
                        queue, B, shortest, g->stages - shortest, g->stages);
    fill_dequeue(g, dequeue, out);
    if (g->sharding != LH_ELASTIC_MIXED) {
        shard_all(g, out);
        lhi_elastic_derive_plan(g, out);
        return LH_OK;
    }
    if (!g->as_published && !saves_sharding_memory(g))
        out->params_p = 0;
    if (!g->as_published && groups > 1)
        out->params_p = compute_hidden_share(
            g, find_minimum(enqueue + 1, groups - 1), g->f_ns, out->params_p);
    if (out->params_p == 0)
        out->backward_buckets = 0;
    else
        out->forward_buckets = count_passes_to_hide(
            lhi_elastic_compute_partial_ns(g, out->params_p), g->f_ns);
    lhi_elastic_derive_plan(g, out);
    return LH_OK;
}

/* A plan with the arena that owns it and its sequences. */
typedef struct owned_plan {
    lh_elastic_plan plan;
    lhi_arena *mem;
} owned_plan;

lh_status lhi_elastic_copy_plan(const lh_elastic_plan *from,
                                lh_elastic_plan **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    owned_plan *to = mem ? LHI_NEW(mem, owned_plan, 1) : NULL;
    uint32_t *e = mem ? LHI_NEW(mem, uint32_t, from->n_enqueue) : NULL;
    uint32_t *d = mem ? LHI_NEW(mem, uint32_t, from->n_dequeue) : NULL;
    if (!to || !e || !d) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    memcpy(e, from->enqueue, from->n_enqueue * sizeof *e);
    memcpy(d, from->dequeue, from->n_dequeue * sizeof *d);
    to->mem = mem;
    to->plan = *from;
    to->plan.enqueue = e;
    to->plan.dequeue = d;
    *out = &to->plan;
    return LH_OK;
}

void lh_elastic_plan_free(lh_elastic_plan *plan)
{
    if (plan)
        lhi_arena_free(((owned_plan *)plan)->mem);
}

lh_status lh_elastic_plan_queue(const lh_elastic_case *given, uint32_t queue,
                                lh_elastic_plan **out, lh_error *err)
{
    LHI_TRY(lhi_elastic_check_case(given, err));
    if (queue < 1 || queue > given->microbatches)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "a queue of %" PRIu32 " is out of range; there are "
                        "%" PRIu32 " microbatches",
                        queue, given->microbatches);
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t n = lhi_elastic_count_groups(given, queue);
    uint32_t *parts = mem ? LHI_NEW(mem, uint32_t, 2 * (size_t)n) : NULL;
    lh_elastic_plan plan;
    lh_status status = parts ? lhi_elastic_fill_plan(given, queue, parts,
                                                     parts + n, &plan, err)
                             : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_elastic_copy_plan(&plan, out, err);
    lhi_arena_free(mem);
    return status;
}

/* Checks that every group (`name`: enqueue or dequeue) has at least `stages`
 * microbatches and that all add up to the microbatches. */
static lh_status check_groups(const lh_elastic_case *g, const char *name,
                              uint32_t n, const uint32_t *groups, lh_error *err)
{
    uint64_t sum = 0;
    if (n == 0)
        return lhi_fail(err, LH_EINPUT, "%s: at least one group is required",
                        name);
    for (uint32_t j = 0; j < n; j++) {
        if (groups[j] < g->stages)
            return lhi_fail(
                err, LH_EINPUT,
                "%s: group %" PRIu32 " has %" PRIu32 " microbatches, %" PRIu32
                " fewer than the pipeline has stages; it needs "
                "at least %" PRIu32,
                name, j + 1, groups[j], g->stages - groups[j], g->stages);
        sum += groups[j];
    }
    if (sum != g->microbatches)
        return lhi_fail(err, LH_EINPUT,
                        "%s: the groups have %" PRIu64 " microbatches, %" PRIu64
                        " %s than the %" PRIu32 " there are",
                        name, sum,
                        sum > g->microbatches ? sum - g->microbatches
                                              : g->microbatches - sum,
                        sum > g->microbatches ? "more" : "fewer",
                        g->microbatches);
    return LH_OK;
}

/* Checks that no more parameters are sharded than exist, and that every
 * communication for sharded parameters is split into at least one bucket. */
static lh_status check_shares(const lh_elastic_case *g,
                              const lh_elastic_plan *p, lh_error *err)
{
    if (p->params_g < 0 || p->params_p < 0 || p->params_g > g->params)
        return lhi_fail(err, LH_EINPUT,
                        "the gradients of %" PRId64 " parameters cannot be "
                        "sharded: there are %" PRId64 ", %" PRId64 " fewer",
                        p->params_g, g->params, p->params_g - g->params);
    if (p->params_p > p->params_g)
        return lhi_fail(err, LH_EINPUT,
                        "%" PRId64 " sharded parameters are %" PRId64
                        " more than have sharded gradients (%" PRId64
                        "); ZeRO-3 shards both",
                        p->params_p, p->params_p - p->params_g, p->params_g);
    if (p->params_g > 0 && p->n_dequeue > 1 && p->scatter_buckets == 0)
        return lhi_fail(err, LH_EINPUT,
                        "sharded gradients need at least 1 scatter bucket");
    if (p->params_p > 0 &&
        ((p->n_enqueue > 1 && p->forward_buckets == 0) ||
         (p->n_dequeue * (uint64_t)g->chunks > 1 && p->backward_buckets == 0)))
        return lhi_fail(err, LH_EINPUT,
                        "sharded parameters need at least 1 gather bucket "
                        "forward and backward");
    return LH_OK;
}

lh_status lhi_elastic_plan_make(const lh_elastic_case *given,
                                const lh_elastic_plan *wanted,
                                lh_elastic_plan **out, lh_error *err)
{
    LHI_TRY(lhi_elastic_check_case(given, err));
    LHI_TRY(check_groups(given, "enqueue", wanted->n_enqueue, wanted->enqueue,
                         err));
    LHI_TRY(check_groups(given, "dequeue", wanted->n_dequeue, wanted->dequeue,
                         err));
    LHI_TRY(check_shares(given, wanted, err));
    lh_elastic_plan plan = *wanted;
    lhi_elastic_derive_plan(given, &plan);
    return lhi_elastic_copy_plan(&plan, out, err);
}
