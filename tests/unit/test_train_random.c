/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs that fit the cpu device are planned and trained exactly as
 * planned. Losses and weights equal those of the same replicas without pipeline
 * or sharding; memory matches its prediction.
 *
 *     test_train_random [SEED COUNT [show]] */
#define _POSIX_C_SOURCE 200809L
#include "sharded_runs.h"
#include "virtual_time.h"

#include <longhaul/experimental/plan.h>

enum { DRAWN_STEPS = 3 };

static uint32_t state;
static bool shows;
/* Number of plans trained with each feature. */
static uint32_t n_operations, n_full, n_by_layer, n_by_site, n_elastic,
    n_together;

static uint32_t pick(uint32_t n)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

/* Picks an entry, in proportion to its repetitions. */
#define PICK(list) ((list)[pick(sizeof(list) / sizeof *(list))])

static const char *const models[] = {
    "layers: 8, hidden: 32, ffn: 48, heads: 2, vocab: 256",
    "layers: 16, hidden: 32, ffn: 64, heads: 2, kv_heads: 1, vocab: 256",
    "layers: 12, hidden: 48, ffn: 96, heads: 3, vocab: 256, "
    "tied_embeddings: true",
    "layers: 6, hidden: 32, heads: 2, vocab: 256, experts: 4, "
    "experts_per_token: 2, expert_ffn: 24"};
static const char *const zeros[] = {
    "", "", ", zero: 0", ", zero: 1", ", zero: 2", ", zero: 3", ", zero: 3"};
static const char *const recomputes[] = {
    "", "", ", recompute: none", ", recompute: selective", ", recompute: full"};
static const char *const schedules[] = {"",
                                        "",
                                        ", schedule: elastic",
                                        ", schedule: elastic",
                                        ", schedule: 1f1b",
                                        ", schedule: zb-h1",
                                        ", schedule: gpipe",
                                        ", schedule: look-ahead"};
static const char *const chunks[] = {"", "", ", chunks_per_device: 1",
                                     ", chunks_per_device: 2",
                                     ", chunks_per_device: 4"};
static const char *const shardings[] = {"",
                                        "",
                                        ", sharding: full",
                                        ", sharding: hybrid",
                                        ", sharding: hybrid",
                                        ", sharding: hybrid-leaders"};
static const char *const micros[] = {"", ", micro_batch: 1",
                                     ", micro_batch: 2"};
static const char *const limits[] = {"1",     "1",     "0.008", "0.006",
                                     "0.005", "0.004", "0.003", "0.0025",
                                     "0.002", "0.0015"};

/* One or two datacenters, with a given layout or one left to the planner. */
static void draw_job(char *text, size_t room)
{
    uint32_t data = 1 + pick(4), pipeline = 1 + pick(4);
    uint32_t tensor = 1, context = 1, expert = 1;
    const char *model = PICK(models);
    if (data * pipeline <= 6 && pick(4) > 0) {
        tensor += pick(2);
        context += pick(3) == 0;
        expert += strstr(model, "experts") && data * tensor * context % 2 == 0;
    }
    uint32_t gpus = data * pipeline * tensor * context, nodes = gpus, batch;
    char sites[96] = "", links[96] = "[]", degrees[64] = "";
    const char *sharding = "";
    if (data % 2 == 0 && pick(2)) {
        nodes = gpus / 2;
        snprintf(sites, sizeof sites, ", {name: b, nodes: %u}", nodes);
        snprintf(links, sizeof links,
                 "[{between: [a, b], latency_ms: %u, gbps: %u}]", 1 + pick(5),
                 1 + pick(4));
        sharding = PICK(shardings);
    }
    if (pick(4) > 0)
        snprintf(degrees, sizeof degrees, ", data: %u, pipeline: %u", data,
                 pipeline);
    batch = data * 4 * (1 + pick(3));
    const char *limit = PICK(limits);
    const char *zero = PICK(zeros), *again = PICK(recomputes);
    const char *micro = PICK(micros), *chunk = PICK(chunks);
    const char *schedule = PICK(schedules);
    if (strstr(schedule, "zb-h1")) /* supports only one chunk */
        chunk = ", chunks_per_device: 1";
    snprintf(text, room,
             "longhaul: job/1\n"
             "model: {%s}\n"
             "training: {global_batch: %u, sequence: 16, precision: fp32%s%s}\n"
             "cluster:\n"
             "  gpu: {tflops: 0.05, memory_gib: %s, memory_gbps: 20}\n"
             "  gpus_per_node: 1\n"
             "  node_link: {gbps: 20, latency_us: 10}\n"
             "  fabric: {gbps: %u, latency_us: 20}\n"
             "  datacenters: [{name: a, nodes: %u}%s]\n"
             "  links: %s\n"
             "layout: {framework: longhaul, tensor: %u, context: %u, expert: "
             "%u%s%s%s%s%s}\n",
             model, batch, zero, again, limit, 1 + pick(20), nodes, sites,
             links, tensor, context, expert, degrees, micro, chunk, schedule,
             sharding);
}

/* --- reference ------------------------------------------------------------ */

/* Trains on the same samples and replicas, one chunk, with only the optimizer
 * sharded. */
static lh_status train_plainly(const lh_plan *plan, const lh_train_model *like,
                               lh_train_result **out, lh_error *err)
{
    char text[256];
    uint32_t first_layers[2] = {0, plan->job->model->layers};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_exec *x = NULL;
    lh_train_model m = *like;
    const lh_train_options run = {.size = sizeof run, .steps = DRAWN_STEPS};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\nmicrobatches: %u\ndevices: 1\nuniform: "
             "{placement: ud, F: 1, D: 1, W: 1}\n",
             lh_pipeline_n_microbatches(plan->pipeline));
    m.model = plan->job->model;
    m.first_layers = first_layers;
    m.micro_batch = plan->best.layout.micro_batch;
    m.sequence = plan->job->training.sequence;
    m.replicas = plan->best.layout.data;
    lh_status status = lh_pipeline_parse(text, strlen(text), "one", &p, err);
    if (status == LH_OK)
        status = lh_method_run("gpipe", p, NULL, &s, NULL, err);
    if (status == LH_OK)
        status = lh_exec_make(p, s, NULL, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, &m, &run, out, err);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

/* Checks whether gradients are summed in the same order: over microbatches,
 * then over all replicas. */
static bool is_summed_alike(const lh_choice *c)
{
    if (c->layout.tensor > 1 || c->layout.context > 1 || c->layout.expert > 1)
        return false;
    if (c->layout.data == 1)
        return true;
    if (c->layout.sharding > LH_SHARDING_FULL && c->zero > 0)
        return false;
    return c->elastic ? c->elastic->gradients <= 0 : c->zero < 2;
}

static void tally(const lh_choice *c)
{
    bool many = c->layout.data > 1;
    n_operations += c->recompute == LH_RECOMPUTE_OPERATIONS;
    n_full += c->recompute == LH_RECOMPUTE_FULL;
    n_elastic += c->elastic != NULL;
    n_by_layer += many && !c->elastic && c->zero >= 2;
    n_together +=
        c->layout.tensor > 1 || c->layout.context > 1 || c->layout.expert > 1;
    n_by_site += many && c->layout.sharding > LH_SHARDING_FULL;
}

static void compare(const lh_plan *plan, const lh_train_result *r,
                    const lh_train_result *plain, const char *text)
{
    outcome held = {0};
    double most = 0;
    bool same = true;
    for (uint32_t i = 0; i < DRAWN_STEPS; i++) {
        double off = r->iterations[i].loss / plain->iterations[i].loss - 1;
        most = fmax(most, fabs(off));
        same = same && r->iterations[i].loss == plain->iterations[i].loss &&
               r->iterations[i].gradient_norm ==
                   plain->iterations[i].gradient_norm;
    }
    CHECK_MSG(most < 1e-6, "losses differ by %g:\n%s", most, text);
    CHECK_MSG(same || !is_summed_alike(&plan->best),
              "not the same losses and norms:\n%s", text);
    check_memory(r, text, &held);
    tally(&plan->best);
    if (!shows)
        return;
    const lh_choice *c = &plan->best;
    double predicted = 0, off = 0;
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    for (uint32_t i = 0; i < n; i++) {
        off = fmax(off, fabs((double)all[i].measured_bytes /
                                 (double)all[i].predicted_bytes -
                             1));
        predicted = fmax(predicted, (double)all[i].predicted_bytes);
    }
    double planned = (double)c->peak_memory_bytes;
    printf(
        "TP %u CP %u EP %u DP %u PP %u x %u chunks, zero %u%s, %s, %s, losses "
        "%.1e%s, memory %.2f %%, planned %.0f of %.0f\n",
        c->layout.tensor, c->layout.context, c->layout.expert, c->layout.data,
        c->layout.pipeline, c->layout.chunks_per_device, c->zero,
        c->layout.sharding > LH_SHARDING_FULL ? " hybrid" : "",
        lh_recompute_name(c->recompute), c->layout.schedule, most,
        same ? " (same)" : "", 100 * off, planned, predicted);
}

/* Returns whether there is a plan. */
static bool try_one(void)
{
    char text[2048];
    lh_error err = {0};
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_train_result *r = NULL, *plain = NULL;
    const lh_plan_options quick = {.size = sizeof quick, .no_optimal = true};
    draw_job(text, sizeof text);
    lh_status status =
        lh_job_parse(text, strlen(text), "drawn", NULL, &job, &err);
    if (status == LH_OK)
        status = lh_plan_make(job, &quick, &plan, &err);
    if (status == LH_OK) {
        lh_train_model m = lh_train_model_defaults();
        const lh_train_options run = {.size = sizeof run, .steps = DRAWN_STEPS};
        const lh_train_plan_options o = {
            .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
        m.seed = 3;
        m.data = text_path;
        m.rate = 1e-3;
        CHECK_MSG(lh_train_plan(plan, &o, &r, &err) == LH_OK, "%s:\n%s",
                  err.text, text);
        CHECK_OK(train_plainly(plan, &m, &plain, &err), err);
        if (r && plain)
            compare(plan, r, plain, text);
    } else if (shows) {
        printf("no plan: %s\n", err.text);
    }
    lh_train_result_free(r);
    lh_train_result_free(plain);
    lh_plan_free(plan);
    lh_job_free(job);
    return status == LH_OK;
}

static uint32_t seed = 1, count = 6;

static void drawn(void)
{
    uint32_t n = 0;
    state = seed;
    for (uint32_t i = 0; n < count && i < 8 * count; i++)
        n += try_one();
    CHECK_MSG(n == count, "%u plans of %u", n, count);
    CHECK_MSG(count < 40 || (n_operations && n_full && n_by_layer &&
                             n_by_site && n_elastic && n_together > 9),
              "%u with operations made again, %u with layers, %u layer by "
              "layer, %u by site, %u elastic, %u with ranks together",
              n_operations, n_full, n_by_layer, n_by_site, n_elastic,
              n_together);
}

int main(int argc, char **argv)
{
    if (!folder_begin("sharded", 9000))
        return 1;
    if (argc > 2) {
        seed = (uint32_t)strtoul(argv[1], NULL, 10);
        count = (uint32_t)strtoul(argv[2], NULL, 10);
    }
    shows = argc > 3;
    RUN_VIRTUAL(drawn);
    folder_end();
    return test_summary();
}
