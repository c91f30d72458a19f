/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of the layout search versus simulated schedules, on small random
 * jobs. No layer partition under any method beats the bound of its layout, or
 * that of any ancestor in the search tree. If the bound finds that nothing
 * fits, nothing does. */
#include "jobs.h"

#include "base/random.h"
#include "planner/search/lower_bound.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

enum {
    JOBS = 1500,
    FAR_JOBS = 500,
    ZONED_JOBS = 300,
    EMPTY_JOBS = 1000,
    LAYOUTS_PER_JOB = 4,
    METHODS = 3,
    MOST_LAYERS = 6
};

static const double ratio = 3;

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

/* Writes the datacenters and links. `far`: ten times the latency, so that a
 * layer's compute time is negligible. */
static size_t add_datacenters(lhi_random *r, uint32_t n, bool far, char *text,
                              size_t room)
{
    static const char *const settings[] = {
        "", "", ", loss: 0.00001, oversubscription: 2",
        ", load_balancing: ecmp, queue_pairs: 4, paths: 8",
        ", recovery: go-back-n, loss: 0.0001, fec: {data: 32, parity: 1}"};
    size_t len = 0;
    /* Compute, memory and memory bandwidth vary independently. */
    len += (size_t)snprintf(text + len, room - len, "  datacenters:\n");
    for (uint32_t i = 0; i < n; i++)
        len += (size_t)snprintf(
            text + len, room - len,
            "   - {name: s%u, nodes: %u, gpu: {tflops: %u, memory_gib: %.2f, "
            "memory_gbps: %u%s}}\n",
            i, pick(r, 1, 3), pick(r, 0, 2) ? pick(r, 1, 5) * 60 : 1000,
            pick(r, 0, 3) ? 80 : 2.02 + 0.02 * pick(r, 0, 30),
            pick(r, 0, 2) ? pick(r, 1, 4) * 200 : 4000,
            pick(r, 0, 1) ? ", efficiency: 0.5" : "");
    len += (size_t)snprintf(text + len, room - len, "  links:\n");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++)
            len += (size_t)snprintf(
                text + len, room - len,
                "   - {between: [s%u, s%u], latency_ms: %u, gbps: %u%s}\n", i,
                k, pick(r, 0, 20) * (far ? 10 : 1), pick(r, 1, 100),
                settings[pick(r, 0, 4)]);
    return len;
}

/* Writes one datacenter with two or three zones, or two datacenters with two
 * zones each. All ZeRO stages are possible. */
static size_t add_zones(lhi_random *r, char *text, size_t room)
{
    uint32_t n = pick(r, 1, 2), n_zones = n == 1 ? pick(r, 2, 3) : 2;
    size_t len = (size_t)snprintf(
        text, room,
        "  zone_link: {gbps: %u, latency_us: %u, oversubscription: %u}\n"
        "  gpu: {tflops: %u, memory_gib: 80, memory_gbps: 2000}\n"
        "  datacenters:\n",
        pick(r, 1, 4) * 50, pick(r, 1, 500), pick(r, 1, 16),
        pick(r, 1, 5) * 60);
    for (uint32_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, room - len,
                                "   - name: s%u\n     zones:\n", i);
        for (uint32_t k = 0; k < n_zones; k++)
            len += (size_t)snprintf(text + len, room - len,
                                    "      - {name: z%u, nodes: %u}\n", k,
                                    pick(r, 1, 3));
    }
    len += (size_t)snprintf(text + len, room - len,
                            n > 1 ? "  links: [{between: [s0, s1], "
                                    "latency_ms: %u, gbps: %u}]\n"
                                  : "  links: []\n",
                            pick(r, 0, 20), pick(r, 1, 100));
    return len;
}

/* Types of random jobs. */
typedef enum kind {
    ANY,
    FAR,   /* ZeRO 3, two or three sites */
    ZONED, /* datacenters with zones */
    EMPTY  /* job gives chunks; the ends may have no layer */
} kind;

/* Drops the dispatcher key if the model has no experts. */
static const char *suited(const char *training, bool experts)
{
    return experts || !strstr(training, "dispatcher") ? training : "";
}

/* Writes the job's own chunks. The first and the last may have no layer; with
 * two pipeline stages, any chunk may. `mtp`: the MTP modules may be in a chunk
 * other than the head's. */
static void add_chunks(lhi_random *r, uint32_t layers, bool mtp, char *text,
                       size_t room)
{
    uint32_t pipeline = pick(r, 1, 2), v = pick(r, 1, layers > 3 ? 3 : 2);
    uint32_t n = pipeline * v, list[MOST_LAYERS] = {0}, left = layers;
    uint32_t end = n, apart = 0;
    if (mtp && pipeline > 1)
        apart = pick(r, 1, n - 1), end = apart + 1 < n ? apart + 1 : n;
    for (uint32_t c = 1; c < end && c + 1 < n; c++)
        if (pipeline == 1 || pick(r, 0, 2)) {
            list[c] = 1;
            left--;
        }
    /* With two chunks, one has all layers. */
    uint32_t first = n > 2 ? 1 : pick(r, 0, n - 1);
    while (left-- > 0)
        list[n > 2 ? pick(r, 1, end < n - 1 ? end - 1 : n - 2) : first]++;
    size_t len = (size_t)snprintf(
        text, room, "layout: {pipeline: %u, chunks_per_device: %u, layers: [%u",
        pipeline, v, list[0]);
    for (uint32_t c = 1; c < n; c++)
        len += (size_t)snprintf(text + len, room - len, ", %u", list[c]);
    len += (size_t)snprintf(text + len, room - len, "]");
    if (apart)
        len +=
            (size_t)snprintf(text + len, room - len, ", mtp_chunk: %u", apart);
    snprintf(text + len, room - len, "}\n");
}

/* Writes the keys of a hybrid model with that many layers to `text`. */
static void write_hybrid(uint32_t layers, bool mtp, char *text, size_t room)
{
    snprintf(text, room,
             ", layer_pattern: \"%.*s%s\", mamba_heads: 8, mamba_head_dim: 64, "
             "mamba_groups: 4, mamba_state_dim: 64, mamba_conv_kernel: 4, "
             "experts: 4, experts_per_token: 2, expert_ffn: 512, "
             "expert_latent: 64",
             (int)layers, "EM*M-E", mtp ? "/*E" : "");
}

/* Samples a job. torchtitan gathers parameters differently without a pipeline.
 */
static lh_job *random_job(lhi_random *r, kind of, bool torchtitan)
{
    static const char *const more[] = {
        "",
        ", experts: 4, experts_per_token: 2, expert_ffn: 512",
        ", experts: 4, experts_per_token: 2, expert_ffn: 512, moe_interval: 2",
        (", experts: 4, experts_per_token: 1, expert_ffn: 2048, "
         "shared_expert_ffn: 512, dense_layers: 1"),
        ", experts: 6, experts_per_token: 3, expert_ffn: 512",
        ", experts: 8, experts_per_token: 2, expert_ffn: 512",
        ", sliding_window: 512",
        ", sliding_window: 512, full_interval: 3",
        (", linear_key_heads: 4, linear_value_heads: 8, "
         "linear_key_head_dim: 64, linear_value_head_dim: 64, "
         "linear_conv_kernel: 4, full_interval: 3, attention_gate: true"),
        ", tied_embeddings: true, norm: layer",
        ""}; /* the last one: hybrid */
    static const char *const zero[] = {"", ", zero: 0", ", zero: 2",
                                       ", zero: 3, recompute: full",
                                       ", dispatcher: deepep"};
    static const char *const all_shared[] = {", zero: 3",
                                             ", zero: 3, recompute: full"};
    /* Includes sharded experts, for which the bounds are weaker. */
    static const char *const layouts[] = {
        "layout: {expert_tensor: 2}\n", "layout: {expert: 2, tensor: 2}\n",
        "layout: {expert: 2, outermost: data}\n"};
    bool far = of == FAR || (of == EMPTY && pick(r, 0, 1));
    enum { HYBRID = sizeof more / sizeof *more - 1 };
    uint32_t model = pick(r, 0, HYBRID);
    bool experts = model == HYBRID || strstr(more[model], "experts: ");
    char sites[4096], chunks[256] = "", hybrid[256] = "";
    uint32_t layers = pick(r, 3, MOST_LAYERS);
    bool mtp = of == EMPTY && pick(r, 0, 1);
    if (model == HYBRID)
        write_hybrid(layers, mtp, hybrid, sizeof hybrid);
    if (of == EMPTY)
        add_chunks(r, layers, mtp, chunks, sizeof chunks);
    uint32_t n_sites = pick(r, far ? 2 : 1, 3);
    size_t len = (size_t)snprintf(sites, sizeof sites,
                                  "  gpus_per_node: %u\n"
                                  "  node_link: {gbps: 1000, latency_us: 3}\n"
                                  "  fabric: {gbps: %u, latency_us: 8}\n",
                                  pick(r, 1, 2) * 2, pick(r, 1, 4) * 50);
    if (of == ZONED)
        len += add_zones(r, sites + len, sizeof sites - len);
    else
        len +=
            add_datacenters(r, n_sites, far, sites + len, sizeof sites - len);
    CHECK(len < sizeof sites);
    return job_with(
        JOB_SMALL,
        "%s"
        "model: {layers: %u, hidden: %u, ffn: 1024, heads: 4, vocab: "
        "%u%s%s%s}\n"
        "training: {global_batch: %u, sequence: 4096%s}\n%s%s",
        sites, layers, 128u << pick(r, 0, 4), pick(r, 1, 40) * 1000,
        more[model], hybrid, mtp ? ", mtp_layers: 2" : "", pick(r, 1, 3) * 4,
        far ? all_shared[pick(r, 0, 1)] : suited(zero[pick(r, 0, 4)], experts),
        torchtitan ? "framework: {preset: torchtitan}\n" : "",
        of == EMPTY                     ? chunks
        : experts && pick(r, 0, 3) == 0 ? layouts[pick(r, 0, 2)]
                                        : "");
}

/* --- random descent in the search tree ----------------------------------- */

/* State of a uniform random selection among a node's children. */
typedef struct choosing {
    lhi_random *r;
    lhi_config chosen;
    uint32_t n;
} choosing;

/* Selects one of n nodes with equal probability (reservoir sampling). */
static lh_status choose(void *context, const lhi_config *config, lh_error *err)
{
    choosing *c = context;
    (void)err;
    if (lhi_random_below(c->r, ++c->n) == 0)
        c->chosen = *config;
    return LH_OK;
}

static uint64_t n_split, n_ruled_out; /* raised by the partition bound; by half
                                       * or more */

/* A path from the root to a leaf, with the bound at each level. */
typedef struct way {
    lhi_config config;
    lhi_lower_bound
        floors[LHI_LEVEL_COMPLETE + 2]; /* the last: partition bound */
    uint64_t n_tried, n_fit;
    int64_t least_ns; /* feasible only; INT64_MAX: none */
} way;

/* Descends to a random leaf and computes the bounds on the way. Returns false
 * if the branch is empty. */
static bool go_down(lhi_random *r, const lhi_space *space,
                    lhi_bound_inputs *floors, way *w)
{
    lh_error err = {0};
    *w = (way){.least_ns = INT64_MAX};
    for (int level = LHI_LEVEL_NONE; level < LHI_LEVEL_COMPLETE; level++) {
        choosing c = {.r = r};
        CHECK_OK(lhi_space_children(space, (lhi_level)level, &w->config, NULL,
                                    choose, &c, &err),
                 err);
        if (c.n == 0)
            return false;
        w->config = c.chosen;
        lh_status status =
            lhi_bound_inputs_compute(floors, (lhi_level)(level + 1), &w->config,
                                     &w->floors[level + 1], &err);
        if (status == LH_EUNSUPPORTED)
            return false;
        CHECK_OK(status, err);
    }
    const lhi_lower_bound *leaf = &w->floors[LHI_LEVEL_COMPLETE];
    lhi_lower_bound *closer = &w->floors[LHI_LEVEL_COMPLETE + 1];
    *closer = *leaf;
    if (leaf->ns < INT64_MAX / 2)
        CHECK_OK(lhi_bound_inputs_compute_tight(
                     floors, &w->config, leaf->ns + leaf->ns / 2, closer, &err),
                 err);
    CHECK(closer->ns >= leaf->ns);
    n_split += closer->ns > leaf->ns;
    n_ruled_out += closer->ns >= leaf->ns + leaf->ns / 2;
    return true;
}

/* --- schedules for a layout ---------------------------------------------- */

static void check_time(way *w, int64_t ns, const char *method)
{
    for (int level = 1; level <= LHI_LEVEL_COMPLETE + 1; level++) {
        const lhi_lower_bound *f = &w->floors[level];
        CHECK_MSG(f->ns <= ns,
                  "%s takes %.6f ms; bound '%s' of level %d is %.6f ms", method,
                  (double)ns / 1e6, lhi_bound_kind_name(f->kind), level,
                  (double)f->ns / 1e6);
    }
}

static void run_methods(lhi_random *r, const lhi_built_layout *built, way *w)
{
    for (int i = 0; i < METHODS; i++) {
        const char *name = lh_method_name(lhi_random_below(r, lh_n_methods()));
        lh_schedule *s;
        lh_timeline *t;
        lh_error err = {0};
        w->n_tried++;
        if (lh_method_is_auto(name)) /* only selects among the others */
            continue;
        if (lh_method_run(name, built->pipeline, NULL, &s, NULL, &err) != LH_OK)
            continue;
        CHECK_OK(lh_simulate(built->pipeline, s, NULL, &t, &err), err);
        if (lh_timeline_fits(t, NULL)) {
            w->n_fit++;
            int64_t ns = lh_timeline_makespan(t) + built->optimizer_ns +
                         built->overhead_ns;
            w->least_ns = ns < w->least_ns ? ns : w->least_ns;
            check_time(w, ns, name);
        }
        lh_timeline_free(t);
        lh_schedule_free(s);
    }
}

static void try_partition(lhi_random *r, const lh_job *job, way *w,
                          const uint32_t *layers)
{
    lhi_config config = w->config;
    lhi_built_layout built;
    lh_error err = {0};
    config.layers = layers;
    if (lhi_layout_build(job, &config, &built, &err) != LH_OK)
        return;
    run_methods(r, &built, w);
    lh_pipeline_free(built.pipeline);
}

/* Tries every partition of the remaining `left` layers on chunks from `at` on.
 */
static void try_partitions(lhi_random *r, const lh_job *job, way *w,
                           uint32_t *layers, uint32_t at, uint32_t left)
{
    uint32_t n = w->config.layout.pipeline * w->config.layout.chunks_per_device;
    if (at + 1 < n) {
        for (uint32_t k = 1; k < left; k++) {
            layers[at] = k;
            try_partitions(r, job, w, layers, at + 1, left - k);
        }
        return;
    }
    layers[at] = left;
    uint32_t least = left, most = left;
    for (uint32_t c = 0; c < n; c++) {
        least = layers[c] < least ? layers[c] : least;
        most = layers[c] > most ? layers[c] : most;
    }
    if (left > 0 && most <= ratio * least)
        try_partition(r, job, w, layers);
}

static uint64_t n_layouts, n_fit, n_refused, n_tight;
static uint64_t n_dispatched, n_across; /* feasible */
static uint64_t n_shared;               /* feasible, parameters gathered across
                                         * sites */

/* Checks whether parameters are gathered from another datacenter. */
static bool shares_across(const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    const lh_sites *at = l->sites;
    if (config->zero < 2 || !at || l->sharding > LH_SHARDING_FULL)
        return false;
    for (uint32_t g = 1; g < at->n_groups; g++)
        if (at->groups[g].parts[0].datacenter !=
            at->groups[0].parts[0].datacenter)
            return true;
    return false;
}

/* Checks whether some tokens go to experts in another datacenter. */
static bool sends_across(const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    uint64_t ranks = 0, block = lh_layout_expert_block(l);
    for (uint32_t g = 0; l->sites && g < l->sites->n_groups; g++) {
        ranks +=
            (uint64_t)l->sites->groups[g].replicas * l->tensor * l->context;
        if (ranks % block != 0)
            return true;
    }
    return false;
}

/* Returns the largest ratio between chunk sizes; unrestricted if the job gives
 * its own chunks. */
static double ratio_of(const lh_job *job)
{
    return job->layout.n_chunk_layers ? MOST_LAYERS : ratio;
}

static void check_job(lhi_random *r, const lh_job *job)
{
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_space space;
    lhi_bound_inputs *floors = NULL;
    CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
    CHECK_OK(lhi_bound_inputs_make(job, ratio_of(job), &floors, &err), err);
    for (int i = 0; i < LAYOUTS_PER_JOB; i++) {
        uint32_t layers[MOST_LAYERS];
        way w;
        if (!go_down(r, &space, floors, &w))
            continue;
        const lhi_lower_bound *leaf = &w.floors[LHI_LEVEL_COMPLETE];
        for (int level = 2; level <= LHI_LEVEL_COMPLETE; level++)
            if (w.floors[level].missing)
                w.floors[level].ns = INT64_MAX;
        if (job->layout.n_chunk_layers)
            try_partition(r, job, &w, job->layout.chunk_layers);
        else
            try_partitions(r, job, &w, layers, 0, job->model->layers);
        n_layouts++;
        n_fit += w.n_fit > 0;
        n_dispatched += w.n_fit > 0 && w.config.layout.expert > 1;
        n_across += w.n_fit > 0 && w.config.layout.expert > 1 &&
                    sends_across(&w.config);
        n_shared += w.n_fit > 0 && shares_across(&w.config);
        n_refused += leaf->missing > 0;
        n_tight += leaf->missing > 0 && w.n_tried > 0;
    }
    lhi_bound_inputs_free(floors);
    lhi_space_fini(&space);
    lhi_arena_free(mem);
}

static void check_seed(uint64_t seed, kind of)
{
    lhi_random r = {seed};
    lh_job *job = random_job(&r, of, seed % 3 == 0);
    if (job)
        check_job(&r, job);
    lh_job_free(job);
}

static void nothing_is_below_its_bounds(void)
{
    /* Rare combinations: an embedding's gradient is sent and the experts' are
     * not; the slowest replicas of a stage differ for layers and for the ends.
     */
    static const uint64_t known[] = {6052, 13596};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        check_seed(known[i], ANY);
    for (uint64_t seed = 1; seed <= JOBS; seed++)
        check_seed(seed, ANY);
    /* Both feasible and rejected layouts must occur often enough. */
    CHECK_MSG(n_fit > JOBS / 2 && n_refused > 5 && n_tight > 2,
              "of %lu layouts %lu fit, %lu are refused, %lu of them tried",
              (unsigned long)n_layouts, (unsigned long)n_fit,
              (unsigned long)n_refused, (unsigned long)n_tight);
    CHECK_MSG(n_split > JOBS / 4 && n_ruled_out > JOBS / 100,
              "%lu bounds are higher with all splits tried, %lu by a half",
              (unsigned long)n_split, (unsigned long)n_ruled_out);
    CHECK_MSG(n_dispatched > JOBS / 10 && n_across > JOBS / 50,
              "%lu layouts send tokens, %lu between datacenters",
              (unsigned long)n_dispatched, (unsigned long)n_across);
}

static void nothing_far_is_below_its_bounds(void)
{
    for (uint64_t seed = 1; seed <= FAR_JOBS; seed++)
        check_seed(seed, FAR);
    CHECK_MSG(n_shared > FAR_JOBS / 10,
              "%lu layouts gather between datacenters",
              (unsigned long)n_shared);
}

static void nothing_in_zones_is_below_its_bounds(void)
{
    unsigned long before = (unsigned long)n_fit,
                  dispatched = (unsigned long)n_across;

    for (uint64_t seed = 1; seed <= ZONED_JOBS; seed++)
        check_seed(seed, ZONED);
    CHECK_MSG(n_fit - before > ZONED_JOBS && n_across > dispatched,
              "%lu layouts fit, %lu send tokens between zones",
              (unsigned long)n_fit - before,
              (unsigned long)n_across - dispatched);
}

static void nothing_with_empty_ends_is_below_its_bounds(void)
{
    unsigned long before = (unsigned long)n_fit;

    for (uint64_t seed = 1; seed <= EMPTY_JOBS; seed++)
        check_seed(seed, EMPTY);
    CHECK_MSG(n_fit - before > EMPTY_JOBS / 2, "%lu layouts fit",
              (unsigned long)n_fit - before);
}

/* Distant replicas that gather each layer from each other: communication
 * dominates, and the bound is close to the optimum. */
static void far_layers_take_what_they_send(void)
{
    lhi_random r = {1};
    lh_error err = {0};
    uint32_t layers[MOST_LAYERS];
    for (int zero = 2; zero <= 3; zero++) {
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 4\n"
            "  node_link: {gbps: 1000, latency_us: 3}\n"
            "  fabric: {gbps: 100, latency_us: 8}\n"
            "  gpu: {tflops: 1000, memory_gib: 80, memory_gbps: 4000}\n"
            "  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}]\n"
            "  links: [{between: [a, b], latency_ms: 100, gbps: 10}]\n"
            "model: {layers: 4, hidden: 256, ffn: 1024, heads: 4, "
            "vocab: 1000}\n"
            "training: {global_batch: 64, sequence: 4096, zero: %d}\n"
            "layout: {tensor: 2, pipeline: 2, data: 2, micro_batch: 1, "
            "outermost: data, chunks_per_device: 1, sharding: full}\n",
            zero);
        lhi_arena *mem = lhi_arena_make(0);
        lhi_space space;
        lhi_bound_inputs *floors = NULL;
        way w;
        CHECK(job);
        CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
        CHECK_OK(lhi_bound_inputs_make(job, ratio, &floors, &err), err);
        CHECK(go_down(&r, &space, floors, &w));
        for (int i = 0; i < 10; i++) /* with different random methods */
            try_partitions(&r, job, &w, layers, 0, job->model->layers);
        double ns = (double)w.floors[LHI_LEVEL_COMPLETE].ns;
        CHECK_MSG(shares_across(&w.config), "replicas are in one place");
        CHECK_MSG(ns * 1.12 > (double)w.least_ns,
                  "ZeRO %d--validation must be at least 0 and less than 1 %.0f "
                  "ms, the best takes %.0f",
                  zero, ns / 1e6, (double)w.least_ns / 1e6);
        lhi_bound_inputs_free(floors);
        lhi_space_fini(&space);
        lhi_arena_free(mem);
        lh_job_free(job);
    }
}

int main(void)
{
    RUN(nothing_is_below_its_bounds);
    RUN(nothing_far_is_below_its_bounds);
    RUN(nothing_in_zones_is_below_its_bounds);
    RUN(nothing_with_empty_ends_is_below_its_bounds);
    RUN(far_layers_take_what_they_send);
    return test_summary();
}
