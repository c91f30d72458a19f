/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pipeline/pipeline_internal.h"

/* The state of both hashes. */
typedef struct mixer {
    uint64_t a, b;
} mixer;

/* Mixes a word into both hashes of the mixer, which are independent:
 * SplitMix64's finalizer (Steele, Lea and Flood, 2014) and FNV-1a over words.
 * */
static void mix(mixer *m, uint64_t word)
{
    uint64_t x = m->a + word + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    m->a = x ^ (x >> 31);
    m->b = (m->b ^ word) * UINT64_C(1099511628211);
    m->b ^= m->b >> 29;
}

/* Adds a duration in ns to the hash. */
static void mix_time(mixer *m, int64_t ns)
{
    mix(m, (uint64_t)ns);
}

/* Adds a fraction from 0 to 1 to the hash, in units of 2^-52. */
static void mix_share(mixer *m, double share)
{
    mix(m, (uint64_t)(share * 0x1p52));
}

/* Adds a text with its end mark to the hash; NULL and "" differ. */
static void mix_text(mixer *m, const char *text)
{
    for (; text && *text; text++)
        mix(m, (unsigned char)*text);
    mix(m, text ? 256 : 257);
}

/* Adds a chunk's device, durations and memory to the hash. */
static void mix_chunk(mixer *m, const lh_chunk *c)
{
    const int64_t all[] = {c->f_ns,          c->d_ns,
                           c->w_ns,          c->mem_f,
                           c->mem_d,         c->mem_w,
                           c->mem_static,    c->all_gather_ns,
                           c->dp_latency_ns, c->reduce_scatter_ns,
                           c->offload_ns};
    mix(m, c->device);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mix_time(m, all[i]);
}

/* Adds a route (link used between neighbouring chunks) to the hash, and
 * whether it carries messages. */
static void mix_route(mixer *m, const lhi_route *r)
{
    mix(m, r->message);
    mix(m, r->link);
}

/* Adds a link and the number of its resource (links with equal names share one)
 * to the hash. */
static void mix_link(mixer *m, const lh_link *l, uint32_t resource)
{
    mix(m, (uint64_t)l->from << 32 | l->to);
    mix(m, resource);
    mix_time(m, l->latency_ns);
    mix_time(m, l->transfer_ns);
}

/* Adds a reference to a pass to the hash; LH_NONE as its chunk: no pass. */
static void mix_point(mixer *m, const lh_dp_pass *p)
{
    mix(m, p->chunk);
    if (p->chunk == LH_NONE)
        return;
    mix(m, 2 * (uint64_t)p->microbatch + p->backward);
}

/* Adds all members of a data-parallel operation to the hash. */
static void mix_op(mixer *m, const lh_dp_op *op)
{
    mix(m, 2 * (uint64_t)op->chunk + op->is_reduce_scatter);
    mix(m, op->bucket);
    mix(m, op->n_buckets);
    mix(m, (uint64_t)op->kind);
    mix_share(m, op->share);
    mix_time(m, op->transfer_ns);
    mix_point(m, &op->launch);
    mix_point(m, &op->needed_by);
}

/* Adds a list's length and elements to the hash. */
static void mix_list(mixer *m, const uint32_t *all, uint32_t n)
{
    mix(m, n);
    for (uint32_t i = 0; i < n; i++)
        mix(m, all[i]);
}

lhi_fingerprint lhi_pipeline_fingerprint(const lh_pipeline *p)
{
    mixer m = {0, UINT64_C(14695981039346656037)};
    const uint64_t counts[] = {p->n_devices,
                               p->n_microbatches,
                               p->n_chunks,
                               p->n_links,
                               p->n_sites,
                               p->joint,
                               p->has_collectives,
                               p->n_dp_ops,
                               p->has_deferred_gathers,
                               p->first_gathers,
                               (uint64_t)p->receives,
                               p->has_limits,
                               (uint64_t)p->placement,
                               p->n_copies};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        mix(&m, counts[i]);
    mix_share(&m, p->overlap_f_b);
    mix(&m, p->n_slices);
    mix_share(&m, p->slice_attention);
    mix_text(&m, p->memory_unit);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        mix_time(&m, lh_pipeline_memory_limit(p, d));
        mix(&m, p->device_sites ? p->device_sites[d] : LH_NONE);
        mix_text(&m, p->dp_links ? p->dp_links[d] : NULL);
    }
    for (uint32_t c = 0; c < p->n_chunks; c++)
        mix_chunk(&m, &p->chunks[c]);
    for (uint32_t i = 0; i < p->n_links; i++)
        mix_link(&m, &p->links[i], p->link_resources[i]);
    for (uint32_t c = 0; c + 1 < p->n_chunks; c++) {
        mix_route(&m, &p->forward[c]);
        mix_route(&m, &p->backward[c + 1]);
    }
    for (uint32_t i = 0; i < p->n_dp_ops; i++)
        mix_op(&m, &p->dp_ops[i]);
    if (p->shared_at) {
        mix_time(&m, p->dp_piece_ns);
        mix(&m, (uint64_t)p->dp_priority);
        mix_list(&m, p->shared_at, p->n_devices + 1);
        mix_list(&m, p->shared, p->shared_at[p->n_devices]);
    }
    mix_list(&m, p->enqueue, p->n_enqueue);
    mix_list(&m, p->dequeue, p->n_dequeue);
    return (lhi_fingerprint){m.a, m.b};
}
