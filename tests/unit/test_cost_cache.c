/* SPDX-License-Identifier: Apache-2.0 */
/* Cost cache: one layout with changing layer partitions, across many
 * datacenters with ECMP links. Cached values stay correct and are not
 * recomputed. */
#include "jobs.h"

#include "planner/layout/build_cache.h"
#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"

#include "model/paths.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/job.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SITES = 16, PIPELINE = 2, CHUNKS = 8, LAYERS = 32, TRIES = 60 };

/* Every third datacenter has slower GPUs. */
static lh_job *make_job(void)
{
    static char cluster[32768];
    size_t at = (size_t)snprintf(cluster, sizeof cluster, "  datacenters:\n");
    for (int i = 0; i < SITES; i++)
        at += (size_t)snprintf(cluster + at, sizeof cluster - at,
                               "   - {name: s%d, nodes: 2, gpu: {tflops: %d, "
                               "memory_gib: 80, memory_gbps: 3000, "
                               "efficiency: 0.5}}\n",
                               i, i % 3 ? 600 : 400);
    at += (size_t)snprintf(cluster + at, sizeof cluster - at, "  links:\n");
    for (int i = 0; i < SITES; i++)
        for (int k = 0; k < i; k++)
            at += (size_t)snprintf(
                cluster + at, sizeof cluster - at,
                "   - {between: [s%d, s%d], latency_ms: %d, gbps: 400, "
                "load_balancing: ecmp, queue_pairs: 8, paths: 16}\n",
                i, k, 5 + (i * k) % 7);
    CHECK(at < sizeof cluster);
    return job_with(JOB_TWO_SITES,
                    "%s"
                    "training: {global_batch: 64, sequence: 4096, zero: 1}\n",
                    cluster);
}

static lhi_config config_of(lh_sharding sharding)
{
    return (lhi_config){.layout = {.tensor = 4,
                                   .context = 1,
                                   .expert = 1,
                                   .pipeline = PIPELINE,
                                   .data = SITES,
                                   .micro_batch = 1,
                                   .chunks_per_device = CHUNKS / PIPELINE,
                                   .outermost = LH_OUTERMOST_DATA,
                                   .sharding = sharding},
                        .placement = LH_PLACEMENT_LOOP,
                        .recompute = LH_RECOMPUTE_NONE,
                        .microbatches = 4};
}

/* Returns partition number `i`: layers move between chunks. */
static void move(uint32_t *layers, int i)
{
    uint32_t from = (uint32_t)(i * 5) % CHUNKS, to = (uint32_t)(i * 3) % CHUNKS;
    uint32_t n = 1 + (uint32_t)i % 2;
    if (layers[from] > n) {
        layers[from] -= n;
        layers[to] += n;
    }
}

static lhi_built_layout build(const lh_job *job, const lhi_config *config,
                              lhi_build_cache *known)
{
    lhi_built_layout built = {0};
    lh_error err = {0};
    CHECK_OK(lhi_layout_build_cached(job, config, known, &built, &err), err);
    return built;
}

static void check_same(const lhi_built_layout *a, const lhi_built_layout *b)
{
    char *x = NULL, *y = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_format(a->pipeline, &x, NULL, &err), err);
    CHECK_OK(lh_pipeline_format(b->pipeline, &y, NULL, &err), err);
    CHECK_STR(x, y);
    CHECK_INT(a->optimizer_ns, b->optimizer_ns);
    CHECK_INT(a->overhead_ns, b->overhead_ns);
    CHECK_INT(a->communication_ns, b->communication_ns);
    CHECK_INT(a->source, b->source);
    lh_text_free(x);
    lh_text_free(y);
}

static void partitions_are_as_if_alone(void)
{
    lh_job *job = make_job();
    lhi_config config = config_of(LH_SHARDING_FULL);
    lhi_build_cache *known = NULL;
    lh_error err = {0};
    uint32_t layers[CHUNKS];
    CHECK_OK(lhi_build_cache_make(&known, &err), err);
    for (int i = 0; i < CHUNKS; i++)
        layers[i] = LAYERS / CHUNKS;
    config.layers = layers;
    for (int i = 0; i < TRIES && job; i++) {
        move(layers, i);
        lhi_built_layout alone = build(job, &config, NULL);
        lhi_built_layout again = build(job, &config, known);
        check_same(&alone, &again);
        lh_pipeline_free(alone.pipeline);
        lh_pipeline_free(again.pipeline);
    }
    lhi_build_cache_free(known);
    lh_job_free(job);
}

/* Cached values are returned, even a cost that no chunk has: a layout is not
 * computed twice. */
static void what_is_known_is_used(void)
{
    lh_job *job = make_job();
    lhi_config config = config_of(LH_SHARDING_FULL);
    lhi_build_cache *known = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_build_cache_make(&known, &err), err);
    lh_pipeline_free(build(job, &config, known).pipeline);
    const uint32_t each = LAYERS / CHUNKS;
    for (uint32_t c = 0; c < CHUNKS && job; c++) {
        lh_cost cost = {0};
        CHECK(lhi_build_cache_find_cost(known, c, c * each, each, &cost));
        cost.f.total_ns += 1000 + c;
        lhi_build_cache_add_cost(known, c, c * each, each, &cost);
    }
    lhi_built_layout alone = build(job, &config, NULL);
    lhi_built_layout again = build(job, &config, known);
    for (uint32_t c = 0; c < CHUNKS && job; c++)
        CHECK_INT(again.pipeline->chunks[c].f_ns,
                  alone.pipeline->chunks[c].f_ns + 1000 + c);
    lh_pipeline_free(alone.pipeline);
    lh_pipeline_free(again.pipeline);
    lhi_build_cache_free(known);
    lh_job_free(job);
}

static void places_are_found_once(void)
{
    lh_job *job = make_job();
    lhi_config config = config_of(LH_SHARDING_FULL);
    lhi_build_cache *known = NULL;
    lhi_layout_placement first = {0}, again = {0};
    lh_error err = {0};
    CHECK_OK(lhi_build_cache_make(&known, &err), err);
    CHECK_OK(lhi_build_cache_place(known, job, &config.layout, &first, &err),
             err);
    CHECK_OK(lhi_build_cache_place(known, job, &config.layout, &again, &err),
             err);
    CHECK(first.ranks && first.ranks == again.ranks);
    CHECK(first.stages && first.stages == again.stages);
    lhi_build_cache_free(known);
    lh_job_free(job);
}

static void what_is_kept_gives_way(void)
{
    lhi_build_cache *known = NULL;
    lh_error err = {0};
    lh_cost cost = {.params = 7}, out = {0};
    CHECK_OK(lhi_build_cache_make(&known, &err), err);
    CHECK(!lhi_build_cache_find_cost(known, 0, 0, 0, &out));
    lhi_build_cache_add_cost(known, 3, 12, 4, &cost);
    CHECK(lhi_build_cache_find_cost(known, 3, 12, 4, &out));
    CHECK_INT(out.params, 7);
    /* The same slot, but another key. */
    CHECK(!lhi_build_cache_find_cost(known, 3 + 64, 12, 4, &out));
    CHECK(!lhi_build_cache_find_cost(known, 3, 12 + 8, 4, &out));
    CHECK(!lhi_build_cache_find_cost(known, 3, 12, 4 + 4, &out));
    cost.params = 8;
    lhi_build_cache_add_cost(known, 3, 12 + 8, 4, &cost);
    CHECK(!lhi_build_cache_find_cost(known, 3, 12, 4, &out));
    CHECK(lhi_build_cache_find_cost(known, 3, 12 + 8, 4, &out));
    CHECK_INT(out.params, 8);
    lhi_build_cache_free(known);
}

/* Prices each chunk of a pipeline across two datacenters on its own. */
static void check_costs(const lh_job *job, const lhi_config *config)
{
    lhi_build_cache *known = NULL;
    lhi_layout_placement places = {0};
    lh_error err = {0};
    lhi_built_layout built = build(job, config, NULL);
    const uint32_t n =
        config->layout.pipeline * config->layout.chunks_per_device;
    const lh_cost_options options = {.size = sizeof options,
                                     .estimate_missing = true};
    CHECK_OK(lhi_build_cache_make(&known, &err), err);
    CHECK_OK(lhi_build_cache_place(known, job, &config->layout, &places, &err),
             err);
    for (uint32_t c = 0; c < n && built.pipeline && places.stages; c++) {
        const lhi_stage_placement *spread =
            &places.stages[lhi_config_device(config, c)];
        lh_cost_layer_range slice = lhi_config_slice(job, config, spread, c);
        const lh_chunk *chunk = &built.pipeline->chunks[c];
        lh_cost cost = {0};
        slice.datacenter = spread->sites[0].datacenter;
        CHECK_OK(
            lh_cost_chunk(job, &config->layout, &slice, &options, &cost, &err),
            err);
        CHECK_INT(chunk->f_ns, cost.f.total_ns);
        CHECK_INT(chunk->d_ns, cost.d.total_ns);
        CHECK_INT(chunk->w_ns, cost.w.total_ns);
        CHECK_INT(chunk->mem_f, cost.activation_bytes);
        CHECK_INT(chunk->mem_w, -cost.weight_input_bytes);
    }
    lh_pipeline_free(built.pipeline);
    lhi_build_cache_free(known);
}

/* Layers with experts and without, local and global attention, different
 * datacenters, measured chunks: two chunks share a cost only if all of these
 * are equal. */
static void chunks_cost_what_they_do_alone(void)
{
#define SHAPE "layers: 24, hidden: 1024, heads: 8, vocab: 32000, ffn: 4096"
#define EXPERTS "experts: 8, experts_per_token: 2, expert_ffn: 512"
    static const char *const models[] = {
        "{" SHAPE "}",
        "{" SHAPE ", " EXPERTS ", dense_layers: 7}",
        "{" SHAPE ", " EXPERTS ", moe_interval: 3, moe_phase: 1}",
        "{" SHAPE ", " EXPERTS ", dense_list: [5, 6, 13]}",
        "{" SHAPE ", sliding_window: 256, full_interval: 4}",
        "{" SHAPE ", sliding_window: 256, window_first_layer: 9}"};
    char profile[1024] = "profile:\n  longhaul: profile/1\n  entries:\n";
    for (int c = 0; c < 6; c++)
        snprintf(profile + strlen(profile), sizeof profile - strlen(profile),
                 "   - {kind: chunk, chunk: %d, of: 6, sequence: 4096, F_us: "
                 "%d, D_us: %d, W_us: 345}\n",
                 c, 1234 + 10 * c, 2345 + c % 2);
    static const uint32_t uneven[] = {1, 4, 4, 5, 5, 5};
    static const lh_site_stages parts[] = {{0, 3}, {1, 3}};
    static const lh_site_group group = {1, 2, parts};
    static const lh_sites halves = {1, &group};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < 8; i++) {
            lh_job *job = job_with(
                JOB_TWO_SITES,
                "  datacenters: [{name: west, nodes: 2}, {name: east, nodes: "
                "2%s}]\nmodel: %s\ntraining: {global_batch: 12, sequence: "
                "4096, zero: 1}\n%s",
                i & 1 ? ", gpu: {tflops: 300, memory_gib: 80, memory_gbps: "
                        "2000, efficiency: 0.5}"
                      : "",
                models[m], i & 2 ? profile : "");
            lhi_config config = config_of(LH_SHARDING_FULL);
            config.layout.tensor = 2;
            config.layout.data = 1;
            config.layout.sites = &halves;
            config.layout.outermost = LH_OUTERMOST_PIPELINE;
            config.layout.pipeline = 6;
            config.layout.chunks_per_device = 1;
            config.placement = LH_PLACEMENT_UD;
            config.microbatches = 12;
            config.layers = i & 4 ? uneven : NULL;
            if (job)
                check_costs(job, &config);
            config.layout.tensor = 4;
            config.layout.sites = NULL;
            config.layout.pipeline = 3;
            config.layout.chunks_per_device = 2;
            config.placement = LH_PLACEMENT_LOOP;
            if (job)
                check_costs(job, &config);
            lh_job_free(job);
        }
}

/* Datacenters 0, 3, ... are equivalent, and so are all others. */
static void alike_datacenters(void)
{
    static const lh_cost_site sites[] = {{0, 1}, {1, 1}, {3, 1}, {2, 2}};
    const lhi_stage_placement spread = {
        .n_sites = 4, .sites = sites, .sharing = 1};
    lh_layout full = config_of(LH_SHARDING_FULL).layout;
    lh_layout hybrid = config_of(LH_SHARDING_HYBRID).layout;
    lh_job *job = make_job();
    if (!job)
        return;
    CHECK(lhi_datacenters_are_equivalent(job, 0, 3) &&
          !lhi_datacenters_are_equivalent(job, 0, 1));
    CHECK(!lhi_stage_placement_repeats(job, &full, &spread, 0));
    CHECK(!lhi_stage_placement_repeats(job, &full, &spread, 1));
    CHECK(lhi_stage_placement_repeats(job, &full, &spread, 2));
    CHECK(lhi_stage_placement_repeats(job, &full, &spread, 3));
    /* State is sharded over a datacenter's replicas. */
    CHECK(lhi_stage_placement_repeats(job, &hybrid, &spread, 2));
    CHECK(!lhi_stage_placement_repeats(job, &hybrid, &spread, 3));
    lh_job_free(job);
}

/* Equivalence depends on each property of a choice's layout, one at a time, but
 * not on its schedule or its results. */
static void alike_choices(void)
{
    static const lh_site_stages part = {0, PIPELINE}, same = {0, PIPELINE},
                                other = {1, PIPELINE};
    static const lh_site_group group = {SITES, 1, &part},
                               again = {SITES, 1, &same},
                               moved = {SITES, 1, &other};
    static const lh_sites sites = {1, &group}, copy = {1, &again},
                          elsewhere = {1, &moved};
    static const uint32_t even[] = {8, 8, 8, 8, 0, 0, 0, 0};
    static const uint32_t too[] = {8, 8, 8, 8, 0, 0, 0, 0};
    static const uint32_t uneven[] = {9, 8, 8, 7, 0, 0, 0, 0};
    const lhi_config config = config_of(LH_SHARDING_FULL);
    lh_choice a = {.layout = config.layout,
                   .placement = config.placement,
                   .microbatches = config.microbatches,
                   .chunk_layers = even};
    a.layout.sites = &sites;
    lh_choice b = a;
    b.layout.sites = &copy;
    b.layout.schedule = "1f1b";
    b.iteration_ns = 7;
    b.chunk_layers = too;
    CHECK(lhi_choices_are_equal(&a, &b) && lhi_choices_share_pipeline(&a, &b));
    b.chunk_layers = uneven;
    CHECK(lhi_choices_are_equal(&a, &b) && !lhi_choices_share_pipeline(&a, &b));
    b.chunk_layers = NULL;
    CHECK(lhi_choices_are_equal(&a, &b) && !lhi_choices_share_pipeline(&a, &b));
    lh_choice others[14];
    for (int i = 0; i < 14; i++)
        others[i] = a;
    others[0].layout.tensor++;
    others[1].layout.context++;
    others[2].layout.expert++;
    others[3].layout.pipeline++;
    others[4].layout.data++;
    others[5].layout.micro_batch++;
    others[6].layout.chunks_per_device++;
    others[7].layout.outermost = LH_OUTERMOST_PIPELINE;
    others[8].layout.sharding = LH_SHARDING_HYBRID;
    others[9].layout.sites = &elsewhere;
    others[10].layout.sites = NULL;
    others[11].placement = LH_PLACEMENT_WAVE;
    others[12].recompute = LH_RECOMPUTE_FULL;
    others[13].zero = 2;
    for (int i = 0; i < 14; i++) {
        CHECK_MSG(!lhi_choices_are_equal(&a, &others[i]), "change %d", i);
        CHECK_MSG(!lhi_choices_share_pipeline(&a, &others[i]), "change %d", i);
        CHECK_MSG(lhi_degrees_are_equal(&a.layout, &others[i].layout) ==
                      (i > 5),
                  "change %d", i);
    }
}

/* Any schedule, the optimal one, or one method. */
static void asked_schedules(void)
{
    static const struct {
        const char *schedule;
        lhi_schedule_request asked;
    } jobs[] = {
        {NULL, LHI_REQUEST_ANY},          {"auto", LHI_REQUEST_ANY},
        {"optimal", LHI_REQUEST_OPTIMAL}, {"look-ahead", LHI_REQUEST_METHOD},
        {"elastic", LHI_REQUEST_METHOD},  {"nothing", LHI_REQUEST_METHOD}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        lh_job job = {.layout = {.schedule = jobs[i].schedule}};
        CHECK_INT(lhi_schedule_requested(&job), jobs[i].asked);
    }
}

/* All links between the datacenters use one hashing result. */
static void hashing_is_looked_up(void)
{
    lh_job *job = make_job();
    lhi_ecmp_cache known = {0};
    lh_cost_options options = {.size = sizeof options,
                               .constants = lh_cost_defaults()};
    lh_error err = {0};
    for (uint32_t i = 0; i < SITES && job; i++)
        for (uint32_t k = 0; k < SITES; k++) {
            lhi_ecmp_cache nothing = {0};
            lh_cost_path path, alone;
            if (i == k)
                continue;
            CHECK_OK(lhi_compute_inter_datacenter_path(job, i, k, 32, &options,
                                                       &known, &path, &err),
                     err);
            CHECK_OK(lhi_compute_inter_datacenter_path(job, i, k, 32, &options,
                                                       &nothing, &alone, &err),
                     err);
            CHECK_NEAR(path.bytes_per_s, alone.bytes_per_s, 0);
            CHECK_INT(nothing.asked, 1);
        }
    CHECK_INT(known.asked, 1);
    if (job) {
        lh_cost_path other, alone;
        lhi_ecmp_cache nothing = {0};
        CHECK_OK(lhi_compute_inter_datacenter_path(job, 0, 1, 3, &options,
                                                   &known, &other, &err),
                 err);
        CHECK_OK(lhi_compute_inter_datacenter_path(job, 0, 1, 3, &options,
                                                   &nothing, &alone, &err),
                 err);
        CHECK_NEAR(other.bytes_per_s, alone.bytes_per_s, 0);
        CHECK_INT(known.asked, 2);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(partitions_are_as_if_alone);
    RUN(what_is_known_is_used);
    RUN(places_are_found_once);
    RUN(what_is_kept_gives_way);
    RUN(chunks_cost_what_they_do_alone);
    RUN(alike_datacenters);
    RUN(alike_choices);
    RUN(asked_schedules);
    RUN(hashing_is_looked_up);
    return test_summary();
}
