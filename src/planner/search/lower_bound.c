/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bounds; docs/theory/plan-search.md has the proofs. */
#include "planner/search/lower_bound_internal.h"

#include <math.h>

const char *lhi_bound_kind_name(lhi_bound_kind kind)
{
    static const char *const names[] = {"none", "work", "layers",    "warm-up",
                                        "path", "link", "residency", "memory"};
    return (unsigned)kind < LHI_N_BOUND_KINDS ? names[kind] : "unknown";
}

uint32_t lhi_bound_compute_least_layers(uint32_t layers, uint32_t chunks,
                                        double ratio)
{
    uint32_t a = 1;
    if (chunks == 0 || layers / chunks < 2)
        return 1;
    /* With `a` layers in the smallest chunk, the others have at most
     * floor(ratio * a). */
    while (a < layers / chunks &&
           a + (chunks - 1.0) * floor(ratio * a + 1e-9) < layers)
        a++;
    return a;
}

/* Checks whether all stages have the same costs: those of one site (one or more
 * datacenters). */
static bool is_uniform(const lhi_bound_case *c)
{
    for (uint32_t k = 1; c->site_of_stage && k < c->stages; k++)
        if (c->site_of_stage[k] != c->site_of_stage[0])
            return false;
    return true;
}

int64_t lhi_bound_compute_work(const lhi_bound_case *c)
{
    double rate = 0;
    if (is_uniform(c)) {
        const lhi_bound_site *s = lhi_bound_site_of_stage(c, 0);
        return (int64_t)((double)c->microbatches / c->stages *
                         (double)(s->f + s->d + s->w));
    }
    for (uint32_t k = 0; k < c->stages; k++) {
        double slowness = lhi_bound_site_of_stage(c, k)->slowness;
        if (!(slowness > 0))
            return 0;
        rate += 1 / slowness;
    }
    return (int64_t)((double)c->microbatches * (double)c->first_ns / rate);
}

int64_t lhi_bound_compute_layers(const lhi_bound_case *c)
{
    int64_t most = 0;
    for (int kind = LHI_ANY_KIND; kind < lhi_bound_count_kinds(c); kind++) {
        int64_t layer = INT64_MAX;
        for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++)
            layer = lhi_min_int64(
                layer,
                lhi_bound_all_passes_ns(lhi_bound_site_of_stage(c, k), kind));
        int64_t n = (lhi_bound_count_layers(c, kind) + (int64_t)c->stages - 1) /
                    c->stages;
        most =
            lhi_max_int64(most, lhi_bound_multiply(n * c->microbatches, layer));
    }
    return most;
}

/* Returns the F and D time of the whole model for one microbatch in ns, each
 * layer on the site (one or more datacenters) that is fastest for it. */
static int64_t compute_fastest_path(const lhi_bound_case *c)
{
    int64_t sum = 0;
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        int64_t part = INT64_MAX;
        for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++) {
            const lhi_bound_pass *p = &lhi_bound_site_of_stage(c, k)->parts[i];
            part = lhi_min_int64(part, p->f + p->d);
        }
        sum += part * c->n_of_part[i];
    }
    return sum;
}

int64_t lhi_bound_compute_path(const lhi_bound_case *c)
{
    int64_t w = INT64_MAX, hops = 0;
    for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++)
        w = lhi_min_int64(w, lhi_bound_site_of_stage(c, k)->layer.w);
    uint32_t v = c->chunks_per_device ? c->chunks_per_device : 1;
    for (uint32_t k = 0; c->forward_hops && k + 1 < c->stages; k++)
        hops += (c->forward_hops[k] + c->backward_hops[k]) * v;
    if (c->placement == LH_PLACEMENT_LOOP)
        hops += (c->wrap_forth + c->wrap_back) * (v - 1);
    return lhi_bound_first_gather_ns(c) + compute_fastest_path(c) +
           w * c->least_layers + lhi_bound_first_reduce_ns(c) + hops;
}

lhi_bound_pass lhi_bound_find_least_layer(const lhi_bound_case *c)
{
    lhi_bound_pass p = lhi_bound_site_of_stage(c, 0)->layer;
    for (uint32_t k = 1; c->site_of_stage && k < c->stages; k++) {
        const lhi_bound_pass *q = &lhi_bound_site_of_stage(c, k)->layer;
        p.f = lhi_min_int64(p.f, q->f);
        p.d = lhi_min_int64(p.d, q->d);
        p.w = lhi_min_int64(p.w, q->w);
    }
    return p;
}

int64_t lhi_bound_compute_link(const lhi_bound_case *c, uint32_t per_microbatch,
                               int64_t transfer_ns, int64_t latency_ns)
{
    lhi_bound_pass layer = lhi_bound_find_least_layer(c);
    int64_t messages = (int64_t)per_microbatch * c->microbatches;
    if (c->chunks_per_device == 1 && per_microbatch == 1)
        return lhi_bound_compute_path(c) +
               lhi_bound_multiply(messages - 1, transfer_ns);
    return lhi_bound_multiply(messages, transfer_ns) + latency_ns +
           c->least_layers * (layer.f + layer.d + layer.w);
}
