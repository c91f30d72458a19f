/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism: the losses of fifty steps equal those of one rank for any
 * degrees, schedule, model and transport; checkpoints are readable with other
 * degrees; memory matches its prediction. */
#define _GNU_SOURCE
#include "sanitized.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <stdlib.h>

enum {
    LAYERS = 4,
    STEPS = OF_CASES(50),
    MICROBATCHES = 4,
    SEQUENCE = 12,
    SEQUENCES = 2
};

/* --- models --------------------------------------------------------------- */

enum { LLAMA, TIED, QWEN, QWEN3, GPT, FALCON, N_MODELS };

static lh_model model_of(int which)
{
    lh_model m = which == GPT      ? tiny_gpt2(LAYERS)
                 : which == FALCON ? tiny_falcon(LAYERS)
                                   : tiny_model(LAYERS);
    m.heads = 4;
    m.head_dim = 8;
    m.kv_heads = 4;
    if (which == TIED) {
        m.tied_embeddings = true;
        m.vocab = 259; /* its shards differ in size */
    }
    if (which == QWEN)
        m.qkv_bias = true;
    if (which == QWEN3)
        m.qk_norm = true;
    /* Ranks share key heads: two of four, four of them, two of two. */
    if (which == LLAMA || which == QWEN3)
        m.kv_heads = 2;
    if (which == QWEN || which == FALCON)
        m.kv_heads = 1;
    return m;
}

/* --- one run -------------------------------------------------------------- */

/* Configuration of a run. */
typedef struct setup {
    int model;
    uint32_t devices, replicas, context, tensor, zero;
    const char *method, *placement, *transport;
    bool joint;
    uint32_t again;
    double dropout;
    bool links;
    bool hybrid;         /* replicas alternate between two sites */
    bool whole;          /* all rows between products */
    uint32_t tensors[3]; /* per stage; 0: `tensor` on all */
    const char *resume, *checkpoint;
} setup;

/* Returns the number of ranks with one replica and context index. */
static uint32_t count_ranks(const setup *s)
{
    uint32_t n = s->tensors[0] ? 0 : s->devices * s->tensor;
    for (uint32_t d = 0; s->tensors[0] && d < s->devices; d++)
        n += s->tensors[d];
    return n;
}

static lh_pipeline *make_pipeline(const setup *s)
{
    char text[1024], links[256] = "";
    lh_error err;
    lh_pipeline *p = NULL;
    if (s->links)
        snprintf(links, sizeof links,
                 "links:\n  - {from: 0, to: 1, latency: 50, transfer: 20}\n"
                 "  - {from: 1, to: 0, latency: 70, transfer: 20}\n");
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: %s\n"
             "uniform: {placement: %s, chunks_per_device: %d, F: 10, D: 12, "
             "W: 9, memory: {F: 1, W: -1}}\n%s",
             (unsigned)MICROBATCHES / s->replicas, s->devices,
             s->joint ? "joint" : "split", s->placement,
             strcmp(s->placement, "ud") == 0 ? 1 : 2, links);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

static lh_status train(const setup *s, uint64_t steps, lh_train_result **out,
                       lh_error *err)
{
    lh_pipeline *p = make_pipeline(s);
    lh_schedule *schedule = NULL;
    lh_exec *x = NULL;
    lh_status status = LH_EINVAL;
    uint32_t first_layers[2 * LAYERS + 1], again[LAYERS];
    static const uint32_t sites[] = {0, 1, 0, 1, 0, 1, 0, 1};
    lh_model model = model_of(s->model);
    lh_method_options with = {.size = sizeof with};
    if (p &&
        (status = lh_method_run(s->method, p, &with, &schedule, NULL, err)) ==
            LH_OK &&
        (status = lh_exec_make(p, schedule, NULL, &x, err)) == LH_OK) {
        lh_train_model m = lh_train_model_defaults();
        uint32_t n = lh_pipeline_n_chunks(p);
        for (uint32_t c = 0; c <= n; c++)
            first_layers[c] = LAYERS * c / n;
        for (uint32_t i = 0; i < LAYERS; i++)
            again[i] =
                (s->again << i % 7 | s->again >> (7 - i % 7)) & LH_PART_ALL;
        m.model = &model;
        m.first_layers = first_layers;
        m.recompute = again;
        m.micro_batch = SEQUENCES;
        m.sequence = SEQUENCE;
        m.replicas = s->replicas;
        m.tensor = s->tensor;
        m.context = s->context;
        m.stage_tensors = s->tensors[0] ? s->tensors : NULL;
        m.per_layer_sharding = s->zero >= 2 && s->replicas * s->context > 1;
        m.sharded_gradients = m.per_layer_sharding;
        m.sites = s->hybrid ? sites : NULL;
        m.sharded_parameters = m.per_layer_sharding && s->zero == 3;
        m.seed = 5;
        m.data = text_path;
        m.rate = m.min_rate = 3e-4;
        m.warmup = 0;
        m.dropout = s->dropout;
        m.checkpoint = s->checkpoint;
        m.resume = s->resume;
        m.emulate_links = s->links;
        m.no_sequence_parallel = s->whole;
        if (!s->tensors[0])
            m.groups[LH_TRAIN_GROUP_TENSOR] = (lh_train_group_link){1000, 0.01};
        m.validation = 0.2;
        m.validate_every = STEPS / 2;
        lh_train_options o = {
            .size = sizeof o, .transport = s->transport, .steps = steps};
        status = lh_train_cpu(p, x, &m, &o, out, err);
    }
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

/* --- one rank ------------------------------------------------------------- */

static lh_iteration reference[N_MODELS][2][STEPS];

static const setup alone = {.devices = 1,
                            .replicas = 1,
                            .context = 1,
                            .tensor = 1,
                            .method = "1f1b",
                            .placement = "ud",
                            .transport = "inproc",
                            .joint = true};

static void one_rank(void)
{
    for (int which = 0; which < N_MODELS; which++)
        for (int drops = 0; drops < 2; drops++) {
            lh_error err;
            lh_train_result *r = NULL;
            setup s = alone;
            s.model = which;
            s.dropout = drops ? 0.1 : 0;
            CHECK_OK(train(&s, STEPS, &r, &err), err);
            for (uint32_t i = 0; r && i < STEPS; i++)
                reference[which][drops][i] = r->iterations[i];
            lh_train_result_free(r);
        }
    CHECK(FEW_CASES || reference[LLAMA][0][STEPS - 1].loss < 5.3);
    CHECK(fabs(reference[GPT][1][9].loss - reference[GPT][0][9].loss) > 1e-5);
}

/* --- the same on several ranks -------------------------------------------- */

static void check_memory(const lh_train_result *r, const char *name)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    CHECK_INT(n, r->n_ranks);
    for (uint32_t i = 0; i < n; i++) {
        const lh_train_memory *m = &all[i];
        int64_t bytes[2] = {m->predicted_bytes, m->measured_bytes};
        static const lh_memory_kind exact[] = {
            LH_MEMORY_PARAMETERS, LH_MEMORY_GRADIENTS, LH_MEMORY_MOMENTS,
            LH_MEMORY_ACTIVATIONS};
        bytes[0] -= m->predicted[LH_MEMORY_BUFFERS];
        bytes[1] -= m->measured[LH_MEMORY_BUFFERS];
        /* Some are small, and sanitizers add padding. */
        CHECK_MSG(fabs((double)(bytes[1] - bytes[0])) <
                      0.03 * (double)bytes[0] + 8192,
                  "%s: rank %u: %lld bytes predicted, %lld held", name,
                  (unsigned)i, (long long)bytes[0], (long long)bytes[1]);
        for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
            double a = (double)m->predicted[exact[k]];
            double b = (double)m->measured[exact[k]];
            CHECK_MSG(fabs(b / a - 1) < 0.03, "%s: rank %u: %s %g, held %g",
                      name, (unsigned)i, lh_memory_kind_name(exact[k]), a, b);
        }
    }
}

static void check_same(const setup *s, const lh_train_result *r, uint32_t from,
                       const char *name)
{
    const lh_iteration *want = reference[s->model][s->dropout > 0];
    CHECK_INT(r->n_iterations + from, STEPS);
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const lh_iteration *it = &r->iterations[i], *w = &want[it->step];
        CHECK_MSG(fabs(it->loss - w->loss) < 1e-6,
                  "%s: step %u: loss %.9f, not %.9f", name, (unsigned)it->step,
                  it->loss, w->loss);
        CHECK_MSG(fabs(it->gradient_norm / w->gradient_norm - 1) < 1e-4,
                  "%s: step %u: norm %.9f, not %.9f", name, (unsigned)it->step,
                  it->gradient_norm, w->gradient_norm);
        CHECK_INT(it->tokens, MICROBATCHES * SEQUENCES * SEQUENCE);
        CHECK(isfinite(w->validation_loss) == isfinite(it->validation_loss));
        if (isfinite(w->validation_loss))
            CHECK_NEAR(it->validation_loss, w->validation_loss, 1e-6);
    }
}

static void run_steps(const setup *s, uint32_t steps)
{
    char name[160];
    lh_error err;
    lh_train_result *r = NULL;
    snprintf(name, sizeof name,
             "model %d, tensor %u, context %u, replicas %u, zero %u, %u x %s "
             "%s over %s, again %x, dropout %g%s%s, degrees %u, %u, %u",
             s->model, s->tensor, s->context, s->replicas, s->zero, s->devices,
             s->placement, s->method, s->transport, s->again, s->dropout,
             s->hybrid ? ", hybrid" : "", s->whole ? ", whole rows" : "",
             s->tensors[0], s->tensors[1], s->tensors[2]);
    lh_status status = train(s, steps, &r, &err);
    CHECK_MSG(status == LH_OK, "%s: %s", name, err.text);
    if (!r)
        return;
    CHECK_INT(r->n_ranks, count_ranks(s) * s->replicas * s->context);
    CHECK_INT(r->tensor, s->tensor);
    CHECK_INT(r->n_replicas, s->replicas);
    check_same(s, r, STEPS - steps, name);
    check_memory(r, name);
    lh_train_result_free(r);
}

static void run(const setup *s)
{
    run_steps(s, STEPS);
}

static uint32_t below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % n;
}

static void seeded_combinations(void)
{
    static const char *const methods[][2] = {{"1f1b", "ud"},
                                             {"zb-h1", "ud"},
                                             {"zb-h2", "ud"},
                                             {"gpipe", "ud"},
                                             {"interleaved-1f1b", "loop"},
                                             {"zb-v", "wave"}};
    static const uint32_t parts[] = {0, 0, LH_PART_ALL, 0x51, 0x2a};
    uint32_t state = 7;
    for (uint32_t i = 0; i < OF_CASES(40); i++) {
        setup s = alone;
        uint32_t method = below(&state, 6);
        s.model = (int)(i % N_MODELS);
        s.tensor = below(&state, 3) ? 2 : 4;
        s.devices = 1 + below(&state, 2);
        s.replicas = 1 + below(&state, 2);
        if (method >= 4)
            s.devices = 2;
        s.method = methods[method][0];
        s.placement = methods[method][1];
        s.joint = (method == 0 || method == 3) && below(&state, 2);
        s.transport = i % 7 == 5 ? "local" : "inproc";
        s.again = parts[below(&state, 5)];
        s.dropout = below(&state, 2) ? 0.1 : 0;
        s.links = s.devices == 2 && method < 4 && below(&state, 4) == 0;
        s.context = below(&state, 3) ? 1 : 2;
        s.zero = 1 + below(&state, 3);
        s.links = s.links && s.zero == 1; /* otherwise not emulated */
        s.hybrid = s.replicas * s.context == 4;
        run(&s);
    }
}

/* Ranks with all rows between products, for each kind of model. */
static void whole_rows(void)
{
    uint32_t state = 3;
    for (int i = 0; i < N_MODELS; i++) {
        setup s = alone;
        s.model = i;
        s.whole = true;
        s.tensor = i % 3 ? 2 : 4;
        s.devices = 1 + (uint32_t)i % 2;
        s.replicas = 1 + (uint32_t)i / 2 % 2;
        s.context = i % 4 == 3 ? 2 : 1;
        s.method = i % 2 ? "zb-h1" : "1f1b";
        s.joint = i % 2 == 0;
        s.again = i % 3 == 1 ? LH_PART_ALL : 0;
        s.dropout = below(&state, 2) ? 0.1 : 0;
        s.zero = 1 + (uint32_t)i % 3;
        run_steps(&s, STEPS / 2);
    }
}

/* --- degrees per stage ---------------------------------------------------- */

/* Stages with different degrees, for each kind of model. */
static void stages_have_their_own_degrees(void)
{
    static const uint32_t degrees[][3] = {{2, 1, 1}, {1, 2, 4}, {4, 1, 2},
                                          {1, 4, 1}, {2, 4, 4}, {4, 2, 1}};
    for (uint32_t i = 0; i < OF_CASES(30); i++) {
        const uint32_t k = i % 6;
        setup s = alone;
        s.model = (int)((i + i / 6) % N_MODELS);
        memcpy(s.tensors, degrees[k], sizeof s.tensors);
        s.devices = k % 3 == 0 ? 3 : 2;
        s.tensor = 0;
        for (uint32_t d = 0; d < s.devices; d++)
            s.tensor = s.tensors[d] > s.tensor ? s.tensors[d] : s.tensor;
        s.joint = k % 2 == 0;
        s.method = k == 4 ? "interleaved-1f1b" : s.joint ? "1f1b" : "zb-h1";
        s.placement = k == 4 ? "loop" : "ud";
        s.replicas = 1 + i % 2;
        s.context = k == 5 ? 2 : 1;
        s.zero = 1 + i / 2 % 3;
        s.again = k == 1 ? LH_PART_ALL : 0;
        s.dropout = i % 4 == 3 ? 0.1 : 0;
        s.transport = k == 2 ? "local" : "inproc";
        s.links = s.devices == 2 && s.zero == 1 && s.context == 1 && k != 4;
        run_steps(&s, STEPS / 2);
    }
}

/* Returns the shortest time that a message to device `to` took. */
static int64_t find_shortest_message(const lh_train_result *r, uint32_t to)
{
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < r->trace->n_messages; i++) {
        const lh_trace_message *m = &r->trace->messages[i];
        if (m->to == to && m->arrive_ns - m->ready_ns < best)
            best = m->arrive_ns - m->ready_ns;
    }
    return best;
}

/* A link takes 20 us for a message, in as many parts of equal size as ranks of
 * the greater degree share it, and 50 us forward or 70 us backward until it
 * arrives. A receiver of the greater degree waits only for its part; the first
 * copy's is the first. Times per part are rounded to 1 ns. */
static void parts_of_a_message_share_its_time(void)
{
    static const struct {
        uint32_t degrees[3];
        int64_t forward_ns, backward_ns;
    } cases[] = {{{1, 1}, 20000 + 50000, 20000 + 70000},
                 {{2, 1}, 20000 + 50000, 20000 / 2 + 70000},
                 {{1, 4}, 20000 / 4 + 50000, 20000 + 70000},
                 {{4, 2}, 20000 + 50000, 20000 / 2 + 70000}};
    for (uint32_t i = 0; i < 4; i++) {
        lh_error err;
        lh_train_result *r = NULL;
        setup s = alone;
        s.model = LLAMA;
        memcpy(s.tensors, cases[i].degrees, sizeof s.tensors);
        s.devices = 2;
        s.links = true;
        CHECK_OK(train(&s, 1, &r, &err), err);
        if (r) {
            CHECK_NEAR((double)find_shortest_message(r, 1),
                       (double)cases[i].forward_ns, 4);
            CHECK_NEAR((double)find_shortest_message(r, 0),
                       (double)cases[i].backward_ns, 4);
        }
        lh_train_result_free(r);
    }
}

static void options_for_equal_degrees_are_rejected(void)
{
    static const setup s = {.devices = 2,
                            .replicas = 1,
                            .context = 1,
                            .tensors = {2, 1},
                            .method = "1f1b",
                            .placement = "ud",
                            .transport = "inproc",
                            .joint = true};
    lh_pipeline *p = make_pipeline(&s);
    lh_schedule *schedule = NULL;
    lh_error err;
    lh_model model = model_of(LLAMA);
    const uint32_t first_layers[] = {0, 2, 4};
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = SEQUENCE;
    m.stage_tensors = s.tensors;
    m.data = text_path;
    CHECK_OK(lh_method_run("1f1b", p, NULL, &schedule, NULL, &err), err);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"late receives", "blocking sends",
                                            "a profile of the run"};
        lh_exec_options how = {.size = sizeof how};
        lh_train_options o = {.size = sizeof o, .profiles = i == 2};
        lh_exec *x = NULL;
        lh_train_result *r = NULL;
        how.receives = i == 0 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY;
        how.coupled_queue = i == 1 ? 2 : 0;
        CHECK_OK(lh_exec_make(p, schedule, &how, &x, &err), err);
        CHECK_INT(lh_train_cpu(p, x, &m, &o, &r, &err), LH_EUNSUPPORTED);
        CHECK_HAS(err.text, names[i]);
        lh_exec_free(x);
    }
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
}

static void invalid_degrees_are_rejected(void)
{
    setup s = alone;
    lh_error err;
    lh_train_result *r = NULL;
    s.model = QWEN;
    s.tensor = 3;
    CHECK_INT(train(&s, 1, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "heads (4)");
    CHECK(!r);
}

/* --- checkpoints ---------------------------------------------------------- */

/* Checks that headers and sizes are equal, and numbers within summation error.
 */
static void check_files(const char *name, const char *other, const char *file)
{
    size_t a_size = 0, b_size = 0;
    char *a = saved_file(name, STEPS / 2, file, &a_size);
    char *b = saved_file(other, STEPS / 2, file, &b_size);
    uint64_t head = 0;
    double worst = 0;
    CHECK_INT(a_size, b_size);
    if (a && b && a_size == b_size && a_size > 8) {
        memcpy(&head, a, sizeof head);
        CHECK(head < a_size && memcmp(a, b, 8 + (size_t)head) == 0);
        for (size_t at = 8 + (size_t)head; at + 4 <= a_size; at += 4) {
            float x, y;
            memcpy(&x, a + at, 4);
            memcpy(&y, b + at, 4);
            double off = fabs((double)x - (double)y);
            worst = off > worst ? off : worst;
        }
        CHECK_MSG(worst < 1e-4, "%s: %s differs by %g", name, file, worst);
    }
    free(a);
    free(b);
}

/* Trains half the steps with one configuration, the rest with another. */
static void go_on(setup first, setup then, const char *name)
{
    char path[160];
    lh_error err;
    lh_train_result *r = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    first.checkpoint = then.resume = path;
    CHECK_OK(train(&first, STEPS / 2, &r, &err), err);
    lh_train_result_free(r);
    r = NULL;
    CHECK_OK(train(&then, STEPS, &r, &err), err);
    if (r) {
        CHECK_INT(r->n_iterations, STEPS / 2);
        check_same(&then, r, STEPS / 2, name);
    }
    lh_train_result_free(r);
}

static void checkpoints_are_independent_of_the_layout(void)
{
    static const int models[] = {LLAMA, TIED, QWEN, GPT, FALCON};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        int model = models[k];
        char names[4][32];
        setup one = alone, two = alone, pair = alone, pairs = alone;
        one.model = two.model = pair.model = pairs.model = model;
        two.tensor = pairs.tensor = model == LLAMA ? 4 : 2;
        two.devices = 2;
        two.method = "zb-h1";
        two.joint = false;
        pair.replicas = pairs.replicas = 2;
        pairs.zero = 1 + (uint32_t)k % 3;
        pairs.hybrid = k >= 3; /* with two shards each */
        if (pairs.hybrid)
            pair.replicas = pairs.replicas = 4;
        for (int i = 0; i < 4; i++)
            snprintf(names[i], sizeof names[i], "m%d-%d", model, i);
        go_on(one, two, names[0]);
        go_on(two, one, names[1]);
        go_on(pair, pairs, names[2]);
        go_on(pairs, pair, names[3]);
        if (model == TIED || model == QWEN) {
            two.tensors[0] = 4, two.tensors[1] = 2;
            pairs.tensors[0] = 1;
            pairs.devices = 2, pairs.tensors[1] = 2;
            snprintf(names[0], sizeof names[0], "m%d-4", model);
            snprintf(names[1], sizeof names[1], "m%d-5", model);
            go_on(two, pairs, names[0]);
            go_on(pairs, two, names[1]);
            check_files(names[0], names[1], "model.safetensors");
            check_files(names[0], names[1], "optimizer.safetensors");
        }
        for (int i = 0; i < 4; i += 2) {
            check_files(names[i], names[i + 1], "model.safetensors");
            check_files(names[i], names[i + 1], "optimizer.safetensors");
        }
    }
}

int main(void)
{
    if (!folder_begin("tensor", 6000))
        return 1;
    RUN_VIRTUAL(one_rank);
    RUN_VIRTUAL(seeded_combinations);
    RUN_VIRTUAL(whole_rows);
    RUN_VIRTUAL(stages_have_their_own_degrees);
    RUN_VIRTUAL(parts_of_a_message_share_its_time);
    RUN_VIRTUAL(options_for_equal_degrees_are_rejected);
    RUN_VIRTUAL(invalid_degrees_are_rejected);
    RUN_VIRTUAL(checkpoints_are_independent_of_the_layout);
    folder_end();
    return test_summary();
}
