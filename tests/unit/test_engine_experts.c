/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism. The first losses equal those of ranks with all experts
 * bit by bit, and those of fifty steps within 1e-6, for any degrees, schedule,
 * model and transport. The same holds for all losses with tensor parallelism
 * and split experts. Checkpoints are the same files and readable with other
 * degrees; memory matches its prediction. */
#define _GNU_SOURCE
#include "moe_models.h"
#include "sanitized.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEPTH = 4, N_STEPS = OF_CASES(50), BATCH = 8 /* over all replicas */ };

/* --- models --------------------------------------------------------------- */

enum { MIXTRAL, QWEN, GROUPED, LATENT, N_KINDS };

static lh_model model_with(int kind)
{
    lh_model m = kind == LATENT ? tiny_deepseek(DEPTH) : tiny_model(DEPTH);
    if (kind != LATENT) {
        m.heads = m.kv_heads = 4;
        m.head_dim = 8;
    }
    if (kind == MIXTRAL || kind == QWEN) {
        m = kind == MIXTRAL ? mixtral_of(m) : qwen2_moe_of(m);
        m.experts = 8;
        m.experts_per_token = 3;
    } else {
        m = glm4_moe_of(m);
    }
    if (m.ffn) /* divisible by four */
        m.ffn = 12;
    if (m.shared_expert_gate)
        m.shared_expert_ffn = 8;
    return m;
}

/* --- run ------------------------------------------------------------------ */

/* Configuration of a run. */
typedef struct path_context {
    int kind;
    uint32_t devices, replicas, context, tensor, expert, again;
    uint32_t zero;     /* 2 and 3: layer by layer; else 0 if unsharded, or 1 */
    uint32_t cut;      /* ranks that share an expert; 0: 1 */
    bool whole_rows;   /* without sequence parallelism */
    uint32_t sites;    /* consecutive replicas per sharding site; 0: all */
    uint32_t per_node; /* a stage's ranks per node, where a token is sent once
                        * per node; 0: one copy per expert */
    const char *method, *placement, *transport, *writes, *reads;
    bool joint, links, whole, leaders;
} way;

static const way simple = {.devices = 1,
                           .replicas = 1,
                           .expert = 1,
                           .method = "1f1b",
                           .placement = "ud",
                           .transport = "inproc"};

static lh_pipeline *pipeline_of(const way *w)
{
    char text[512];
    bool folded = strcmp(w->placement, "ud") != 0;
    lh_pipeline *made = NULL;
    lh_error err;
    int n =
        snprintf(text, sizeof text,
                 "longhaul: pipeline/1\ntime_unit: us\nbackward: %s\n"
                 "microbatches: %u\ndevices: %u\nuniform: {placement: %s, "
                 "chunks_per_device: %d, F: 11, D: 13, W: 8}\n%s",
                 w->joint ? "joint" : "split", (unsigned)(BATCH / w->replicas),
                 w->devices, w->placement, folded ? 2 : 1,
                 w->links && w->devices == 2
                     ? "links:\n  - {from: 0, to: 1, latency: 40, transfer: "
                       "10}\n  - {from: 1, to: 0, latency: 30, transfer: "
                       "10}\n"
                     : "");
    CHECK_OK(lh_pipeline_parse(text, (size_t)n, "experts", &made, &err), err);
    return made;
}

static lh_status go(const way *w, uint64_t steps, lh_train_result **out,
                    lh_error *err)
{
    lh_model model = model_with(w->kind);
    lh_pipeline *p = pipeline_of(w);
    lh_schedule *order = NULL;
    lh_exec *plan = NULL;
    uint32_t cuts[9], again[DEPTH], n = lh_pipeline_n_chunks(p);
    uint32_t sites[32];
    for (uint32_t i = 0; w->sites && i < w->devices * w->replicas; i++)
        sites[i] = i % w->replicas * w->sites / w->replicas;
    uint32_t nodes[32], copies = w->replicas * (w->tensor ? w->tensor : 1) *
                                 (w->context ? w->context : 1);
    for (uint32_t i = 0; w->per_node && i < w->devices * copies; i++)
        nodes[i] = i % copies / w->per_node;
    for (uint32_t i = 0; i < DEPTH; i++)
        again[i] = i % 2 ? w->again : w->again >> 1;
    for (uint32_t c = 0; c <= n; c++)
        cuts[c] = DEPTH * c / n;
    lh_status status = lh_method_run(w->method, p, NULL, &order, NULL, err);
    if (status == LH_OK)
        status = lh_exec_make(p, order, NULL, &plan, err);
    if (status == LH_OK) {
        lh_train_model m = lh_train_model_defaults();
        lh_train_options run = {
            .size = sizeof run, .transport = w->transport, .steps = steps};
        m.model = &model;
        m.first_layers = cuts;
        m.recompute = again;
        m.replicas = w->replicas;
        m.context = w->context;
        m.tensor = w->tensor;
        m.expert = w->expert;
        m.expert_tensor = w->cut ? w->cut : 1;
        m.no_sequence_parallel = w->whole_rows;
        m.nodes = w->per_node ? nodes : NULL;
        m.intra_node_experts = (lh_train_group_link){500, 0.005};
        m.unsharded_optimizer = w->whole;
        m.sites = w->sites ? sites : NULL;
        m.reduce_by_leaders = w->leaders;
        m.per_layer_sharding = w->zero >= 2;
        m.sharded_gradients = m.per_layer_sharding;
        m.sharded_parameters = w->zero == 3;
        m.sequence = 16;
        m.data = text_path;
        m.seed = 11;
        m.rate = m.min_rate = 3e-4;
        m.warmup = 0;
        m.balance_bias = 0.001;
        m.expert_capacity = w->kind == QWEN ? 1.1 : 0;
        m.validation = 0.2;
        m.validate_every = N_STEPS / 2;
        m.checkpoint = w->writes;
        m.resume = w->reads;
        m.emulate_links = w->links;
        m.groups[LH_TRAIN_GROUP_EXPERT] = (lh_train_group_link){2000, 0.02};
        m.groups[LH_TRAIN_GROUP_TENSOR] = (lh_train_group_link){1000, 0.01};
        status = lh_train_cpu(p, plan, &m, &run, out, err);
    }
    lh_exec_free(plan);
    lh_schedule_free(order);
    lh_pipeline_free(p);
    return status;
}

/* --- ranks with all experts ----------------------------------------------- */

enum { MOST_REPLICAS = 4 };
static lh_iteration wanted[N_KINDS][MOST_REPLICAS + 1][N_STEPS];

static void ranks_with_all_experts(void)
{
    for (int kind = 0; kind < N_KINDS; kind++)
        for (uint32_t replicas = 1; replicas <= MOST_REPLICAS; replicas *= 2) {
            way w = simple;
            lh_train_result *r = NULL;
            lh_error err;
            w.kind = kind;
            w.replicas = replicas;
            CHECK_OK(go(&w, N_STEPS, &r, &err), err);
            if (r)
                memcpy(wanted[kind][replicas], r->iterations,
                       sizeof wanted[kind][replicas]);
            lh_train_result_free(r);
        }
    CHECK(FEW_CASES || wanted[MIXTRAL][2][N_STEPS - 1].loss <
                           wanted[MIXTRAL][2][0].loss - 0.1);
}

/* --- ranks with some experts ---------------------------------------------- */

static void memory_is_as_predicted(const lh_train_result *r, const char *name)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < LH_N_MEMORY_KINDS; k++) {
            double want = (double)all[i].predicted[k];
            double got = (double)all[i].measured[k];
            /* Small arrays matter little in larger models; sanitizers add
             * padding. */
            double small = SANITIZED && k == LH_MEMORY_SCRATCH ? 8192 : 2048;
            if (k != LH_MEMORY_BUFFERS)
                CHECK_MSG(fabs(got - want) <= 0.03 * want + small,
                          "%s: rank %u holds %g of %s, not %g", name,
                          (unsigned)i, got,
                          lh_memory_kind_name((lh_memory_kind)k), want);
        }
}

static void losses_are_the_same(const way *w, const lh_train_result *r,
                                uint64_t first, const char *name)
{
    const lh_iteration *want = wanted[w->kind][w->replicas];
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const lh_iteration *a = &r->iterations[i], *b = &want[a->step];
        bool bits = a->step == 0 && first == 0 && w->tensor < 2 &&
                    w->context < 2 && w->cut < 2 &&
                    (w->per_node == 0 || w->per_node % w->expert == 0);
        double off = fabs(a->loss - b->loss);
        CHECK_MSG(bits ? off == 0 : off < 1e-6,
                  "%s: step %u: loss %.9f, not %.9f", name, (unsigned)a->step,
                  a->loss, b->loss);
        CHECK_NEAR(a->gradient_norm / b->gradient_norm, 1, 1e-4);
        if (isfinite(b->validation_loss))
            CHECK_NEAR(a->validation_loss, b->validation_loss, 1e-6);
    }
}

static void compare_steps(const way *w, uint64_t steps)
{
    char name[160];
    lh_train_result *r = NULL;
    lh_error err;
    snprintf(name, sizeof name,
             "kind %d, tensor %u, context %u, expert %u of %u, cut %u, %u on a "
             "node, %u x %s %s, %s, %x, zero %u, %u sites",
             w->kind, w->tensor, w->context, w->expert, w->replicas, w->cut,
             w->per_node, w->devices, w->placement, w->method, w->transport,
             w->again, w->zero, w->sites);
    lh_status status = go(w, steps, &r, &err);
    CHECK_MSG(status == LH_OK, "%s: %s", name, err.text);
    if (!r)
        return;
    CHECK_INT(r->expert, w->expert);
    CHECK_INT(r->n_iterations, steps);
    losses_are_the_same(w, r, 0, name);
    memory_is_as_predicted(r, name);
    lh_train_result_free(r);
}

static void compare_run(const way *w)
{
    compare_steps(w, N_STEPS);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % n;
}

static const char *const ways[][2] = {{"1f1b", "ud"},
                                      {"gpipe", "ud"},
                                      {"zb-h1", "ud"},
                                      {"zb-h2", "ud"},
                                      {"interleaved-1f1b", "loop"},
                                      {"zb-v", "wave"}};
static const uint32_t parts[] = {0, LH_PART_ALL, 0xa2, 0x51};

static void ranks_with_a_part_of_the_experts(void)
{
    uint32_t state = 3;
    for (int i = 0; i < OF_CASES(24); i++) {
        way w = simple;
        uint32_t method = draw(&state, 6);
        w.kind = i % N_KINDS;
        w.replicas = draw(&state, 2) ? 4 : 2;
        w.expert = w.replicas == 4 && draw(&state, 2) ? 4 : 2;
        w.devices = method >= 4 ? 2 : 1 + draw(&state, 2);
        w.method = ways[method][0];
        w.placement = ways[method][1];
        w.joint = method < 2 && draw(&state, 2);
        w.again = parts[draw(&state, 4)];
        w.transport = i % 8 == 3 ? "local" : "inproc";
        w.links = i % 5 == 4;
        w.whole = i % 4 == 2;
        if (!w.whole && !w.links)
            w.zero = 1 + (uint32_t)(i + i / N_KINDS) % 3;
        compare_run(&w);
    }
}

/* Expert groups may span these ranks, too. Otherwise every rank has all
 * experts, or experts are split over as many ranks as layers, fewer, or more.
 */
static void experts_with_tensor_parallelism(void)
{
    uint32_t state = 5;
    for (int i = 0; i < OF_CASES(10); i++) {
        way w = simple;
        uint32_t method = draw(&state, 6);
        w.kind = i % N_KINDS;
        w.tensor = w.kind == LATENT || draw(&state, 3) ? 2 : 4;
        w.replicas = 1 << draw(&state, w.tensor == 2 ? 3 : 2);
        w.expert = 1 << draw(&state, 4);
        if (w.expert > w.replicas * w.tensor)
            w.expert = w.tensor;
        uint32_t all = w.replicas * w.tensor;
        bool as_layers = i % 4 == 0;
        if (as_layers)
            w.cut = w.tensor;
        else if (i % 2 == 0 || draw(&state, 2))
            w.cut = w.tensor == all || draw(&state, 2) ? 2 : 4;
        while (w.cut * w.expert > (as_layers ? w.cut : all))
            w.expert /= 2;
        w.devices = method >= 4 ? 2 : 1 + draw(&state, 2);
        w.method = ways[method][0];
        w.placement = ways[method][1];
        w.joint = method < 2 && draw(&state, 2);
        w.again = parts[draw(&state, 4)];
        w.transport = i % 8 == 3 ? "local" : "inproc";
        w.links = i % 5 == 4;
        w.whole = draw(&state, 2);
        if (w.replicas * w.tensor <= 4) /* expert capacity applies globally */
            w.context = 1 + draw(&state, 2);
        if (!w.whole && !w.links && w.replicas * w.context > 1)
            w.zero = 1 + (uint32_t)i % 3;
        compare_run(&w);
    }
}

/* Experts are sharded over a site's replicas of the same experts, and summed
 * across sites; none may be counted twice. */
static void experts_across_sites(void)
{
    static const struct {
        uint32_t replicas, context, tensor, expert, cut, zero, sites;
        bool leaders, links;
    } rows[] = {
        {4, 1, 2, 2, 1, 3, 2, false, false},
        {4, 1, 2, 1, 1, 2, 2, true, false},
        {4, 1, 1, 4, 1, 3, 2, false, true},
        {4, 1, 1, 2, 1, 1, 4, false, false},
        {4, 1, 2, 2, 1, 1, 2, true, false},
        {2, 2, 2, 1, 4, 2, 2, false, false},
    };
    for (uint32_t i = 0; i < OF_CASES(sizeof rows / sizeof *rows); i++) {
        way w = simple;
        w.kind = (int)i % N_KINDS;
        w.replicas = rows[i].replicas;
        w.context = rows[i].context;
        w.tensor = rows[i].tensor;
        w.expert = rows[i].expert;
        w.cut = rows[i].cut;
        w.zero = rows[i].zero;
        w.sites = rows[i].sites;
        w.leaders = rows[i].leaders;
        w.links = rows[i].links;
        w.method = ways[i % 4][0];
        w.again = parts[i % 4];
        w.transport = i == 3 ? "local" : "inproc";
        compare_steps(&w, N_STEPS / 5);
    }
}

/* A token is sent once per node, also with nodes of three ranks and one, and to
 * all ranks that share an expert. */
static void tokens_are_sent_once_per_node(void)
{
    const way base = {.replicas = 4, .expert = 4, .zero = 1};
    const struct {
        int kind;
        uint32_t replicas, tensor, context, expert, cut, per_node, again;
        bool links;
    } rows[] = {{QWEN, 4, 1, 1, 4, 1, 2, 0, false},
                {MIXTRAL, 4, 1, 1, 4, 1, 3, LH_PART_ALL, true},
                {GROUPED, 2, 2, 1, 4, 1, 2, 0xa2, false},
                {LATENT, 2, 1, 2, 4, 1, 1, 0, true},
                {MIXTRAL, 4, 1, 1, 2, 1, 2, 0, false},
                /* and split experts, on one node and on two */
                {MIXTRAL, 4, 2, 1, 4, 2, 4, 0xa2, false},
                {QWEN, 4, 1, 1, 2, 2, 3, 0, true}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        way w = base;
        w.kind = rows[i].kind;
        w.replicas = rows[i].replicas;
        w.tensor = rows[i].tensor;
        w.context = rows[i].context;
        w.expert = rows[i].expert;
        w.cut = rows[i].cut;
        w.per_node = rows[i].per_node;
        w.again = rows[i].again;
        w.links = rows[i].links;
        w.zero = w.links ? 0 : 1 + i % 3;
        w.devices = 1 + i % 2;
        w.method = i % 2 ? "zb-h1" : "1f1b";
        w.placement = "ud";
        w.transport = i == 2 ? "local" : "inproc";
        compare_steps(&w, N_STEPS / 5);
    }
}

/* Ranks have all rows between products: experts split like layers process all
 * rows, others each rank's share. */
static void ranks_with_all_rows(void)
{
    const struct {
        int kind;
        uint32_t tensor, expert, cut, per_node, zero, again;
        bool links;
    } rows[] = {{QWEN, 2, 1, 2, 0, 1, 0, false},
                {GROUPED, 2, 1, 2, 0, 2, 0, false},
                {LATENT, 2, 1, 2, 0, 1, LH_PART_ALL, false},
                {MIXTRAL, 2, 1, 1, 0, 1, 0xa2, false},
                {QWEN, 2, 2, 1, 0, 3, LH_PART_ALL, false},
                {GROUPED, 4, 4, 1, 2, 2, 0, false},
                {LATENT, 2, 2, 2, 0, 1, 0x51, true}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        way w = simple;
        w.whole_rows = true;
        w.replicas = 2;
        w.kind = rows[i].kind;
        w.tensor = rows[i].tensor;
        w.expert = rows[i].expert;
        w.cut = rows[i].cut;
        w.per_node = rows[i].per_node;
        w.zero = rows[i].zero;
        w.again = rows[i].again;
        w.links = rows[i].links;
        w.whole = w.links;
        w.devices = 1 + i / 3 % 2;
        compare_steps(&w, N_STEPS / 5);
    }
}

/* Expert groups span replicas and context-parallel ranks. */
static void experts_with_context_parallelism(void)
{
    way w = simple;
    lh_train_result *whole = NULL, *parted = NULL;
    lh_error err;
    w.kind = GROUPED;
    w.replicas = w.context = 2;
    w.method = "zb-h1";
    w.devices = 2;
    CHECK_OK(go(&w, N_STEPS / 2, &whole, &err), err);
    for (w.expert = 2; w.expert <= 4; w.expert *= 2) {
        CHECK_OK(go(&w, N_STEPS / 2, &parted, &err), err);
        for (uint32_t i = 0; whole && parted && i < N_STEPS / 2; i++)
            CHECK_NEAR(parted->iterations[i].loss, whole->iterations[i].loss,
                       1e-6);
        CHECK(parted && whole &&
              memcmp(&parted->iterations[0].loss, &whole->iterations[0].loss,
                     sizeof whole->iterations[0].loss) == 0);
        lh_train_result_free(parted);
        parted = NULL;
    }
    lh_train_result_free(whole);
}

/* --- checkpoints ---------------------------------------------------------- */

static void files_are_alike(const char *a, const char *b, const char *name)
{
    size_t sizes[2] = {0};
    char *both[2] = {saved_file(a, N_STEPS / 2, name, &sizes[0]),
                     saved_file(b, N_STEPS / 2, name, &sizes[1])};
    uint64_t head = 0;
    CHECK_INT(sizes[0], sizes[1]);
    if (both[0] && both[1] && sizes[0] == sizes[1]) {
        memcpy(&head, both[0], sizeof head);
        head += sizeof head;
        CHECK(head < sizes[0] && memcmp(both[0], both[1], head) == 0);
        for (size_t at = head; at < sizes[0]; at += sizeof(float)) {
            float x[2];
            memcpy(&x[0], both[0] + at, sizeof x[0]);
            memcpy(&x[1], both[1] + at, sizeof x[1]);
            CHECK(fabs((double)x[0] - (double)x[1]) < 1e-4);
        }
    }
    free(both[0]);
    free(both[1]);
}

/* Trains half the steps with one configuration, the rest with another. */
static void halves(way first, way second, const char *name)
{
    lh_train_result *r = NULL;
    lh_error err;
    char path[120];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    first.writes = second.reads = path;
    CHECK_OK(go(&first, N_STEPS / 2, &r, &err), err);
    lh_train_result_free(r);
    r = NULL;
    CHECK_OK(go(&second, N_STEPS, &r, &err), err);
    if (r)
        losses_are_the_same(&second, r, N_STEPS / 2, name);
    lh_train_result_free(r);
}

static void checkpoints_are_the_same(void)
{
    for (int kind = QWEN; kind <= LATENT; kind++) {
        char one[40], other[40];
        way whole = simple, parted = simple;
        whole.kind = parted.kind = kind;
        whole.replicas = parted.replicas = 4;
        parted.expert = kind == QWEN ? 2 : 4;
        parted.cut = 2; /* across replicas, sequences and layers */
        parted.devices = 2;
        parted.method = "zb-h1";
        if (kind != QWEN)
            parted.tensor = 2;
        if (kind == GROUPED) /* has all experts, but split */
            whole.tensor = whole.cut = 2;
        if (kind == GROUPED) {
            parted.context = 2;
            parted.tensor = parted.expert = 1;
            parted.cut = 2;
        }
        parted.sites = kind == LATENT ? 0 : 2;
        parted.whole = kind == LATENT;
        parted.zero = kind == QWEN ? 3 : kind == GROUPED ? 2 : 0;
        snprintf(one, sizeof one, "whole-%d", kind);
        halves(whole, parted, one);
        snprintf(other, sizeof other, "parted-%d", kind);
        halves(parted, whole, other);
        files_are_alike(one, other, "model.safetensors");
        files_are_alike(one, other, "optimizer.safetensors");
    }
}

static void unsupported_experts_are_rejected(void)
{
    way w = simple;
    lh_train_result *r = NULL;
    lh_error err;
    w.replicas = 2;
    w.expert = 4;
    CHECK_INT(go(&w, 1, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "not a multiple of expert 4");
    w.replicas = w.expert = 3;
    CHECK_INT(go(&w, 1, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "8 experts cannot be divided evenly among 3 ranks");
    w.expert = 1;
    w.replicas = w.cut = 5;
    CHECK_INT(go(&w, 1, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text,
              "divides expert_ffn (48) evenly among expert_tensor 5 ranks");
    CHECK(!r);
}

/* Words instead of random letters, with which a router's choice is sometimes so
 * close that another summation order changes it. */
static void write_words(void)
{
    FILE *file = fopen(text_path, "w");
    for (uint32_t i = 0; file && i < 5000; i++)
        fprintf(file, "%c",
                "pack my box with five dozen jugs"[i * i % 31 % (1 + i % 29)]);
    if (file)
        fclose(file);
}

int main(void)
{
    if (!folder_begin("experts", 0))
        return 1;
    write_words();
    RUN_VIRTUAL(ranks_with_all_experts);
    RUN_VIRTUAL(ranks_with_a_part_of_the_experts);
    RUN_VIRTUAL(experts_with_tensor_parallelism);
    RUN_VIRTUAL(experts_across_sites);
    RUN_VIRTUAL(tokens_are_sent_once_per_node);
    RUN_VIRTUAL(ranks_with_all_rows);
    RUN_VIRTUAL(experts_with_context_parallelism);
    RUN_VIRTUAL(checkpoints_are_the_same);
    RUN_VIRTUAL(unsupported_experts_are_rejected);
    folder_end();
    return test_summary();
}
