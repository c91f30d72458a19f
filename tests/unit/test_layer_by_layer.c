/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 2 and 3 layer by layer: each layer's gather and reduction has its own
 * latency, and overlaps with one neighbour's computation at most. */
#include "jobs.h"
#include "test_cost.h"

#include "base/random.h"
#include "model/paths.h"
#include "model/sharding.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/simulate.h>

enum { MOST = 100 };

/* Share of the GPU that data-parallel communication takes from computation
 * (PipeMesh's section VI-A: 2.4 to 3.1 %). */
static const double CONTENTION = 0.0275;

/* --- the recurrence, reimplemented ---------------------------------------- */

/* Returns the duration of `compute` if it runs at the rate 1 - share until a
 * communication of duration `sent` ends, then at the rate 1. */
static double compute_beside(double compute, double sent, double share)
{
    const double meanwhile = (1 - share) * sent;
    if (sent <= 0)
        return compute;
    return compute < meanwhile ? compute / (1 - share)
                               : sent + compute - meanwhile;
}

/* A stream of sequential gathers and one of computation. Gather i + 1 is
 * launched when layer i starts, and slows it down. */
static double gathers_then(uint32_t n, const double *gather,
                           const double *compute, double share)
{
    double stream = gather[0], ready = stream, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        double start = end > ready ? end : ready;
        if (i + 1 < n) {
            stream = (stream > start ? stream : start) + gather[i + 1];
            ready = stream;
        }
        end = start + compute_beside(compute[i], stream - start, share);
    }
    return end;
}

/* Layer i + 2 waits until the reduction of layer i ends, and is slower beside
 * the reduction of layer i + 1. */
static double reduces_behind(uint32_t n, const double *compute,
                             const double *reduce, double share)
{
    double end = 0, done = 0, before = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double start = end > before ? end : before;
        end = start + compute_beside(compute[i], done - start, share);
        before = done;
        done = (done > end ? done : end) + reduce[i];
    }
    return done;
}

static double relay(uint32_t n, const double *first, const double *second)
{
    lhi_stage_overlap r = {0};
    for (uint32_t i = 0; i < n; i++)
        lhi_stage_overlap_add(&r, first[i], second[i]);
    return lhi_stage_overlap_compute_ns(&r);
}

/* Gathers of 5, 7 and 4 before computation of 6, 3 and 8. The first is waited
 * for: 5. The second starts with layer 0 and takes 1 longer: 7. The third
 * starts with layer 1 and takes 1 longer: 4. The last layer takes 8. */
static void three_layers(void)
{
    static const double g[] = {5, 7, 4}, t[] = {6, 3, 8};
    CHECK_NEAR(relay(3, g, t), 5 + 7 + 4 + 8, 0);
    CHECK_NEAR(gathers_then(3, g, t, 0), 24, 0);
    /* In reverse, as for gradients: 6, then 5 covers more than 3, 7 overlaps
     * with 8, and the last reduction, 4, with nothing. */
    CHECK_NEAR(relay(3, t, g), 6 + 5 + 8 + 4, 0);
    CHECK_NEAR(reduces_behind(3, t, g, 0), 23, 0);
}

static void random_layers(void)
{
    lhi_random r = {1};
    for (int i = 0; i < 2000; i++) {
        uint32_t n = 1 + lhi_random_below(&r, 20);
        double g[20], t[20];
        for (uint32_t k = 0; k < n; k++) {
            g[k] = lhi_random_below(&r, 10);
            t[k] = lhi_random_below(&r, 10);
        }
        CHECK_NEAR(relay(n, g, t), gathers_then(n, g, t, 0), 0);
        CHECK_NEAR(relay(n, t, g), reduces_behind(n, t, g, 0), 0);
    }
}

/* --- a model slice -------------------------------------------------------- */

/* On eight GPUs in one node in each of two datacenters. */
static void init_far(fixture *f, const char *model)
{
    fixture_init(f, model);
    f->layout.data = 16;
    f->slice.data_datacenters = 2;
    f->slice.n_layers = f->job.model->layers;
    f->job.training.zero = 3;
}

/* Durations of a layer or an end alone, from ZeRO 1: passes without
 * communication, and the communication before and after them. */
typedef struct alone {
    double f, d, w, gather, reduce;
} alone;

static alone cost_alone(const fixture *like, lh_cost_layer_range slice)
{
    fixture f = *like;
    alone out = {0};
    f.job.datacenters = f.sites;
    f.job.wans = f.wans;
    f.job.training.zero = 1;
    slice.datacenter = like->slice.datacenter;
    slice.data_datacenters = like->slice.data_datacenters;
    f.slice = slice;
    COST(&f);
    out.f = (double)f.cost.f.total_ns;
    out.d = (double)f.cost.d.total_ns;
    out.w = (double)f.cost.w.total_ns;
    out.gather = (double)(f.cost.all_gather_ns + f.cost.data_latency_ns);
    out.reduce = (double)(f.cost.reduce_scatter_ns + f.cost.data_latency_ns);
    return out;
}

/* In forward order. */
static void check_slice(fixture *f)
{
    double t[3][MOST + 2], gather[MOST + 2], reduce[MOST + 2];
    double back[3][MOST + 2];
    uint32_t n = 0;
    const lh_cost_layer_range *s = &f->slice;
    for (uint32_t i = 0; i < s->n_layers + 2; i++) {
        lh_cost_layer_range one = {.first_layer = s->first_layer + i - 1,
                                   .n_layers = 1};
        if (i == 0)
            one = (lh_cost_layer_range){.embedding = s->embedding};
        if (i == s->n_layers + 1)
            one = (lh_cost_layer_range){.head = s->head};
        if (!one.n_layers && !one.embedding && !one.head)
            continue;
        alone a = cost_alone(f, one);
        t[0][n] = a.f;
        t[1][n] = a.d;
        t[2][n] = a.w;
        gather[n] = a.gather;
        reduce[n++] = a.reduce;
    }
    for (uint32_t i = 0; i < n; i++) {
        back[0][i] = gather[n - 1 - i];
        back[1][i] = t[1][n - 1 - i];
        back[2][i] = t[2][n - 1 - i];
    }
    double forward = gathers_then(n, gather, t[0], CONTENTION);
    double backward = gathers_then(n, back[0], back[1], CONTENTION);
    for (uint32_t i = 0; i < n; i++)
        back[0][i] = reduce[n - 1 - i];
    double weights = reduces_behind(n, back[2], back[0], CONTENTION);
    COST(f);
    /* Single costs are rounded up to whole ns. */
    CHECK_NEAR((double)f->cost.f.total_ns, forward, 3.0 * n);
    CHECK_NEAR((double)f->cost.d.total_ns, backward, 3.0 * n);
    CHECK_NEAR((double)f->cost.w.total_ns, weights, 3.0 * n);
    CHECK_INT(f->cost.all_gather_ns + f->cost.reduce_scatter_ns, 0);
    /* ZeRO 2 gathers before all passes. */
    f->job.training.zero = 2;
    COST(f);
    CHECK_NEAR((double)f->cost.w.total_ns, weights, 3.0 * n);
    CHECK(f->cost.all_gather_ns > 0);
    /* torchtitan gathers during the first microbatch: only the part without
     * overlap adds time. */
    f->job.framework.preset = LH_FRAMEWORK_TORCHTITAN;
    COST(f);
    double plain = 0;
    for (uint32_t i = 0; i < n; i++)
        plain += t[0][i];
    CHECK_NEAR((double)f->cost.all_gather_ns, forward - plain, 4.0 * n);
    f->job.framework.preset = LH_FRAMEWORK_NONE;
    f->job.training.zero = 1;
    int64_t w_ns = f->cost.w.total_ns, f_ns = f->cost.f.total_ns;
    COST(f);
    CHECK_INT(f->cost.f.total_ns, f_ns);
    CHECK(f->cost.w.total_ns <= w_ns);
    f->job.training.zero = 3;
}

/* Latencies and rates at which gathers take less than a layer, as long, and far
 * longer; with and without ends; MoE layers beside dense ones. */
static void slices_of_models(void)
{
    static const char *const models[] = {"llama3-8b", "deepseek-v3",
                                         "mixtral-8x7b"};
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < 24; i++) {
            fixture f;
            init_far(&f, models[m]);
            CHECK(f.slice.n_layers <= MOST);
            f.wans[1].latency_ns = f.wans[2].latency_ns = i % 3 == 0 ? 20000
                                                          : i % 3 == 1
                                                              ? 1500000
                                                              : 80000000;
            f.wans[1].bytes_per_s = f.wans[2].bytes_per_s =
                i / 3 % 2 ? 400e9 : 4e9;
            f.slice.embedding = i / 6 % 2;
            f.slice.head = i / 12 % 2;
            f.slice.first_layer = (uint32_t)i % 4;
            f.slice.n_layers = i % 5 ? f.slice.n_layers - 4 : 1;
            check_slice(&f);
        }
}

/* Waiting for communication within a pass counts as communication, not
 * computation. */
static void waiting_is_communication(void)
{
    fixture f;
    init_far(&f, "llama3-70b");
    f.job.training.zero = 1;
    COST(&f);
    lh_cost plain = f.cost;
    f.job.training.zero = 3;
    COST(&f);
    CHECK_NEAR((double)(f.cost.f.communication_ns - plain.f.communication_ns),
               (double)(f.cost.f.total_ns - plain.f.total_ns), 2);
    CHECK_INT(f.cost.f.matmul_ns, plain.f.matmul_ns);
    /* Hybrid sharding gathers inside: the passes contain no 20 ms latency. */
    f.layout.sharding = LH_SHARDING_HYBRID;
    COST(&f);
    CHECK_MSG(f.cost.f.total_ns - plain.f.total_ns < 20000000, "%.3f ms longer",
              (double)(f.cost.f.total_ns - plain.f.total_ns) / 1e6);
}

static int64_t pass_sum(const lh_cost *c)
{
    return c->f.total_ns + c->d.total_ns + c->w.total_ns;
}

/* More latency, a lower rate, or another layer never make it faster; ZeRO 0 and
 * 1 are unaffected. */
static void more_is_never_faster(void)
{
    lhi_random r = {7};
    for (int i = 0; i < 300; i++) {
        fixture f;
        lh_cost before;
        uint32_t zero = lhi_random_below(&r, 4);
        init_far(&f, i % 2 ? "llama3-70b" : "deepseek-v3");
        f.job.training.zero = zero;
        f.slice.n_layers = 1 + lhi_random_below(&r, 30);
        f.slice.embedding = lhi_random_below(&r, 2);
        f.wans[1].latency_ns = f.wans[2].latency_ns =
            (int64_t)lhi_random_below(&r, 40000) * 1000;
        COST(&f);
        before = f.cost;
        f.wans[1].latency_ns += 1 + lhi_random_below(&r, 10000000);
        COST(&f);
        CHECK(pass_sum(&f.cost) >= pass_sum(&before));
        if (zero < 2)
            CHECK_INT(pass_sum(&f.cost), pass_sum(&before));
        before = f.cost;
        f.wans[2].bytes_per_s /= 1 + lhi_random_below(&r, 50);
        COST(&f);
        CHECK(pass_sum(&f.cost) >= pass_sum(&before));
        if (zero < 2)
            CHECK_INT(pass_sum(&f.cost), pass_sum(&before));
        before = f.cost;
        f.slice.n_layers++;
        COST(&f);
        CHECK(pass_sum(&f.cost) > pass_sum(&before));
    }
}

/* Consecutive slices of a model on one GPU: three layers with gathers 5, 7, 4
 * and passes 6, 3, 8, cut after the second. The first slice takes 5 + 7 + 3 =
 * 15, as alone. The second's gather, 4, overlaps with these 3: 1 + 8 = 9,
 * instead of 4 + 8, and both take the 24 of the whole. Reductions of 4, 7, 5
 * behind 8, 3, 6: the last layer alone takes 8 and leaves its reduction to the
 * others, which take max(4, 3) + max(7, 6) + 5. */
static void cut_on_one_gpu(void)
{
    lhi_stage_overlap f = {.last_second_duration = 3},
                      w = {.last_second_duration = 4};
    lhi_stage_overlap_add(&f, 4, 8);
    CHECK_NEAR(lhi_stage_overlap_compute_ns(&f) - 3, 9, 0);
    lhi_stage_overlap_add(&w, 3, 7);
    lhi_stage_overlap_add(&w, 6, 5);
    CHECK_NEAR(lhi_stage_overlap_compute_ns(&w), 4 + 7 + 5, 0);
    CHECK_NEAR(relay(3, (double[]){8, 3, 6}, (double[]){4, 7, 5}), 8 + 16, 0);
}

static lh_cost cost_among(fixture *f, lh_cost_layer_range slice)
{
    lh_cost out = {0};
    lh_error err;
    lhi_ecmp_cache known = {0};
    slice.datacenter = f->slice.datacenter;
    slice.data_datacenters = f->slice.data_datacenters;
    CHECK_MSG(lhi_chunk_cost_in_sequence(&f->job, &f->layout, &slice, NULL,
                                         &known, &out, &err) == LH_OK,
              "%s", err.text);
    return out;
}

/* Returns the next slice of the model; the last one takes the rest. */
static lh_cost_layer_range cut_next(const lh_model *m, uint32_t first,
                                    lhi_random *r)
{
    const uint32_t left = m->layers - first;
    const uint32_t most = lhi_random_below(r, 2) ? 1 : left;
    lh_cost_layer_range s = {.first_layer = first, .embedding = first == 0};
    s.n_layers = left ? 1 + lhi_random_below(r, most) : 0;
    s.head = s.n_layers == left && (left == 0 || lhi_random_below(r, 2));
    return s;
}

/* For any cut, the slices on one GPU together take as long as the whole; in a
 * pipeline each is gathered separately. Rounded to ns. */
static void cuts_cost_nothing_on_one_gpu(void)
{
    static const char *const models[] = {"llama3-8b", "deepseek-v3",
                                         "gpt-oss-120b"};
    lhi_random r = {11};
    for (int i = 0; i < 90; i++) {
        fixture f;
        lh_cost_layer_range s;
        double sum[4] = {0}, n = 0;
        init_far(&f, models[i % 3]);
        const lh_model *m = f.job.model;
        if (i % 4 == 1) { /* gathers compete with layers' traffic */
            fixture_init(&f, models[i % 3]);
            f.sites[0].fabric.bytes_per_s = 5e9;
            f.layout.tensor = 16;
            f.layout.data = 4;
        }
        f.job.training.zero = 2 + lhi_random_below(&r, 2);
        f.layout.pipeline = 1 + (i % 10 == 9);
        const bool one_by_one = f.layout.pipeline == 1 && i % 2;
        if (one_by_one)
            f.job.framework.preset = LH_FRAMEWORK_TORCHTITAN;
        f.wans[1].latency_ns = f.wans[2].latency_ns =
            (int64_t)lhi_random_below(&r, 40000) * 1000;
        f.wans[1].bytes_per_s = f.wans[2].bytes_per_s =
            4e9 * (1 + lhi_random_below(&r, 100));
        const lh_cost whole = cost_among(
            &f, (lh_cost_layer_range){
                    .n_layers = m->layers, .embedding = true, .head = true});
        for (uint32_t first = 0; n == 0 || !s.head; first += s.n_layers, n++) {
            s = cut_next(m, first, &r);
            const lh_cost one = cost_among(&f, s);
            sum[0] += (double)one.f.total_ns;
            sum[1] += (double)one.d.total_ns;
            sum[2] += (double)one.w.total_ns;
            sum[3] += (double)one.all_gather_ns;
        }
        const double all[] = {
            (double)whole.f.total_ns, (double)whole.d.total_ns,
            (double)whole.w.total_ns, (double)whole.all_gather_ns};
        for (int k = 0; k < 3 + one_by_one; k++)
            if (f.layout.pipeline == 1)
                CHECK_NEAR(sum[k], all[k], n + 1);
            else
                CHECK(sum[k] >= all[k] - n - 1);
        if (f.layout.pipeline > 1 && f.job.training.zero == 3 && n > 1)
            CHECK(sum[0] > all[0] + 1000);
    }
}

/* A chunk measured in one piece waits like its layers. */
static void measured_in_one_piece(void)
{
    lh_profile_entry entry = {.kind = LH_PROFILE_CHUNK,
                              .n_chunks = 1,
                              .tensor = 1,
                              .context = 1,
                              .expert = 1,
                              .micro_batch = 1,
                              .sequence = 8192,
                              .communication = true,
                              .f_ns = 320000000,
                              .d_ns = 640000000,
                              .w_ns = 320000000,
                              .activation_bytes = 1000,
                              .static_bytes = LH_NOT_MEASURED};
    lh_profile profile = {.name = "p.yaml", .n_entries = 1, .entries = &entry};
    fixture f;
    init_far(&f, "llama3-8b"); /* 32 layers: 10 ms each */
    f.job.profile = &profile;
    f.slice.n_chunks = 1;
    f.wans[1].latency_ns = f.wans[2].latency_ns = 80000000;
    COST(&f);
    CHECK_INT(f.cost.time_source, LH_COST_PROFILE);
    lh_cost_layer_range one = {.n_layers = 1};
    double g = cost_alone(&f, one).gather;
    CHECK(g > 80e6);
    CHECK_NEAR((double)f.cost.f.total_ns, 32 * g + 10e6, 100);
    CHECK_NEAR((double)f.cost.d.total_ns, 32 * g + 20e6, 100);
}

/* Tensor parallelism over two nodes with a slow fabric, also used by gathers. A
 * layer's traffic and the next gather run sequentially, which takes longer than
 * the layer. Two layers: 5 and 7 before 6, including 2 of traffic, would take 5
 * + (7 + 2) + 6. */
static void an_interface_is_shared(void)
{
    fixture f;
    alone one;
    double used, whole;

    fixture_init(&f, "llama3-8b");
    f.sites[0].fabric.bytes_per_s = 5e9;
    f.layout.tensor = 16;
    f.layout.data = 4;
    f.slice.n_layers = 1;
    one = cost_alone(&f, f.slice);
    /* Two all-gathers and two reduce-scatters with all tokens, at the rate of a
     * node's eight interfaces. */
    used = 4 * 15.0 / 16 * 8192 * 4096 * 2 / (8 * 0.985 * 5);
    CHECK(used < one.f && one.gather < one.f && one.gather + used > one.f);
    f.slice.n_layers = 2;
    f.job.training.zero = 3;
    COST(&f);
    whole = one.gather + (one.gather + used) + one.f;
    CHECK_NEAR((double)f.cost.f.total_ns, whole, 4);
    /* Gathers within a node compete with nothing. */
    f.layout.tensor = 1;
    f.layout.data = 8;
    f.slice.n_layers = 1;
    f.job.training.zero = 1;
    one = cost_alone(&f, f.slice);
    f.slice.n_layers = 2;
    f.job.training.zero = 3;
    COST(&f);
    CHECK(one.gather < one.f);
    CHECK_NEAR((double)f.cost.f.total_ns,
               one.gather + one.f + CONTENTION * one.gather + one.f, 4);
    /* A given efficiency of passes includes contention by communication. */
    f.sites[0].gpu.efficiency = 0.5;
    f.slice.n_layers = 1;
    f.job.training.zero = 1;
    one = cost_alone(&f, f.slice);
    f.slice.n_layers = 2;
    f.job.training.zero = 3;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.total_ns,
               one.gather + fmax(one.f, one.gather) + one.f, 4);
    f.sites[0].gpu.efficiency = 0;
    /* Gathers between nodes do not compete with a ring of keys and values in a
     * node. */
    f.layout.context = 2;
    f.slice.n_layers = 1;
    f.job.training.zero = 1;
    one = cost_alone(&f, f.slice);
    CHECK(one.gather > one.f);
    f.slice.n_layers = 2;
    f.job.training.zero = 3;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.total_ns, 2 * one.gather + one.f, 4);
}

/* --- a job ---------------------------------------------------------------- */

/* 80 layers over 80 ms each way: data parallelism across both datacenters
 * without pipelining gathers 80 times forward and 80 times backward. */
static void far_sites_cost_a_latency_per_layer(void)
{
    lh_job *job = job_with(
        JOB_70B,
        "  datacenters: [{name: west, nodes: 64}, {name: east, nodes: 64}]\n"
        "  links: [{between: [west, east], latency_ms: 80, gbps: 3200}]\n"
        "training: {global_batch: 512, sequence: 4096, zero: 3}\n");
    lh_layout l = {.tensor = 2,
                   .context = 1,
                   .expert = 1,
                   .pipeline = 1,
                   .data = 512,
                   .micro_batch = 1,
                   .chunks_per_device = 1,
                   .outermost = LH_OUTERMOST_DATA};
    lh_error err = {0};
    int64_t ns[2];
    CHECK_INT(job->model->layers, 80);
    for (int hybrid = 0; hybrid < 2; hybrid++) {
        lh_pipeline *p = NULL;
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        l.sharding = hybrid ? LH_SHARDING_HYBRID : LH_SHARDING_FULL;
        CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_FULL,
                                  &p, NULL, &err),
                 err);
        CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        ns[hybrid] = lh_timeline_makespan(t);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(ns[0] >= 160 * INT64_C(80000000), "%.3f s", (double)ns[0] / 1e9);
    CHECK_MSG(ns[1] < 160 * INT64_C(80000000), "%.3f s", (double)ns[1] / 1e9);
    lh_job_free(job);
}

static void schedule_of(const lh_pipeline *p, lh_timeline **t)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, t, &err), err);
    lh_schedule_free(s);
}

/* On one rank chunks follow each other like layers: with latencies alone, none
 * overlaps with another. */
static void chunks_save_no_latencies(void)
{
    lh_job *job = job_with(
        JOB_70B,
        "  datacenters: [{name: west, nodes: 64}, {name: east, nodes: 64}]\n"
        "  links: [{between: [west, east], latency_ms: 80, gbps: 3200}]\n"
        "training: {global_batch: 512, sequence: 4096, zero: 3}\n");
    int64_t one = 0;
    for (uint32_t chunks = 1; chunks <= 8; chunks *= 2) {
        lh_layout l = {.tensor = 2,
                       .context = 1,
                       .expert = 1,
                       .pipeline = 1,
                       .data = 512,
                       .micro_batch = 1,
                       .chunks_per_device = chunks,
                       .outermost = LH_OUTERMOST_DATA};
        lh_placement placement =
            chunks == 1 ? LH_PLACEMENT_UD : LH_PLACEMENT_LOOP;
        lh_pipeline *p = NULL;
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_error err = {0};
        CHECK_OK(lh_plan_pipeline(job, &l, placement, LH_RECOMPUTE_NONE, &p,
                                  NULL, &err),
                 err);
        CHECK_OK(lh_method_run("gpipe", p, NULL, &s, NULL, &err), err);
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        int64_t ns = lh_timeline_makespan(t);
        one = chunks == 1 ? ns : one;
        CHECK_MSG(ns >= one, "%u chunks take %.3f s, one %.3f", chunks,
                  (double)ns / 1e9, (double)one / 1e9);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    lh_job_free(job);
}

/* A rank first gathers its first layer and finally reduces its gradients. These
 * are operations without overlap, and the passes are shorter by them. More
 * latency affects both. */
static void ends_are_operations(void)
{
    int64_t before[4] = {0};
    for (int i = 0; i < 3; i++) {
        static const double ms[] = {0.05, 10, 80};
        for (uint32_t zero = 1; zero <= 3; zero++) {
            lh_job *job = job_with(
                JOB_70B,
                "  links: [{between: [west, east], latency_ms: %g, gbps: "
                "800}]\n"
                "training: {global_batch: 32, sequence: 4096, zero: %u}\n",
                ms[i], zero);
            lh_layout l = {.tensor = 8,
                           .context = 1,
                           .expert = 1,
                           .pipeline = 4,
                           .data = 8,
                           .micro_batch = 1,
                           .chunks_per_device = 1,
                           .outermost = LH_OUTERMOST_DATA};
            lh_pipeline *p = NULL;
            lh_timeline *t = NULL;
            lh_error err = {0};
            CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD,
                                      LH_RECOMPUTE_NONE, &p, NULL, &err),
                     err);
            schedule_of(p, &t);
            int64_t ns = lh_timeline_makespan(t);
            uint32_t n_collectives;
            lh_timeline_collectives(t, &n_collectives);
            CHECK_INT(n_collectives, 8);
            for (uint32_t c = 0; c < 4; c++) {
                const lh_chunk *k = lh_pipeline_chunk(p, c);
                lh_cost_layer_range one = {.first_layer = 20 * c,
                                           .n_layers = 20,
                                           .embedding = c == 0,
                                           .head = c == 3,
                                           .data_datacenters = 2};
                lh_cost cost;
                CHECK_OK(lh_cost_chunk(job, &l, &one, NULL, &cost, &err), err);
                CHECK(k->all_gather_ns > 0 && k->reduce_scatter_ns > 0);
                if (zero == 1)
                    continue;
                int64_t sent = 4 * (k->f_ns + k->w_ns) + k->reduce_scatter_ns +
                               k->dp_latency_ns;
                int64_t whole = 4 * (cost.f.total_ns + cost.w.total_ns);
                if (zero == 3)
                    sent += k->all_gather_ns;
                CHECK(sent >= whole && sent < whole + 8);
                CHECK(cost.w.blocking_ns > (int64_t)(1e6 * ms[i]));
                CHECK((cost.f.blocking_ns > (int64_t)(1e6 * ms[i])) ==
                      (zero == 3));
            }
            CHECK_MSG(ns > before[zero], "ZeRO %u, %g ms", zero, ms[i]);
            before[zero] = ns;
            lh_timeline_free(t);
            lh_pipeline_free(p);
            lh_job_free(job);
        }
    }
}

/* By default, parameters are gathered inside each datacenter. */
static void far_sites_do_not_share_layers(void)
{
    lh_job *job = job_with(
        JOB_70B,
        "  datacenters: [{name: west, nodes: 64}, {name: east, nodes: 64}]\n"
        "  links: [{between: [west, east], latency_ms: 80, gbps: 3200}]\n"
        "training: {global_batch: 512, sequence: 4096, zero: 3}\n"
        "layout: {tensor: 2, pipeline: 1, micro_batch: 1, schedule: 1f1b}\n");
    lh_plan_options o = {.size = sizeof o, .no_optimal = true};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    CHECK_INT(plan->best.layout.data, 512);
    CHECK(plan->best.layout.sharding > LH_SHARDING_FULL);
    CHECK(plan->best.iteration_ns < 160 * INT64_C(80000000));
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    RUN(three_layers);
    RUN(random_layers);
    RUN(slices_of_models);
    RUN(waiting_is_communication);
    RUN(more_is_never_faster);
    RUN(cut_on_one_gpu);
    RUN(cuts_cost_nothing_on_one_gpu);
    RUN(measured_in_one_piece);
    RUN(an_interface_is_shared);
    RUN(far_sites_cost_a_latency_per_layer);
    RUN(ends_are_operations);
    RUN(chunks_save_no_latencies);
    RUN(far_sites_do_not_share_layers);
    return test_summary();
}
