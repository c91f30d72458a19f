/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction: the model's and the MTP modules' losses equal those
 * of one rank for any degrees, schedule and recomputation. Memory matches its
 * prediction; checkpoints resume with other degrees. tests/peers compares the
 * results with PyTorch.
 *
 *     test_engine_mtp [N]     also N random combinations, fifty steps each */
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

enum {
    LAYERS = 2,
    MODULES = 2,
    STEPS = OF_CASES(50),
    FEW = OF_CASES(20),
    MICROBATCHES = 4,
    SEQUENCE = 8
};

/* --- one run -------------------------------------------------------------- */

enum { LLAMA, TIED, DEEPSEEK, N_MODELS };

static lh_model model_of(int which)
{
    lh_model m = tiny_model(LAYERS);
    m.vocab = 128;
    if (which == DEEPSEEK) {
        m = tiny_deepseek(LAYERS);
        m = glm4_moe_of(m);
        m.ffn = 26;
        m.shared_expert_ffn = 2 * (m.expert_ffn = 12);
    }
    m.tied_embeddings = which == TIED;
    m.mtp_layers = which == TIED ? 1 : MODULES;
    return m;
}

/* Configuration of a run. */
typedef struct setup {
    int model;
    uint32_t devices, replicas, context, tensor, expert, zero;
    const char *method;
    bool joint, whole;
    uint32_t again;
    const char *resume, *checkpoint;
} setup;

static const setup alone = {.devices = 1,
                            .replicas = 1,
                            .context = 1,
                            .tensor = 1,
                            .expert = 1,
                            .method = "1f1b",
                            .joint = true};

static lh_status train(const setup *s, uint64_t steps, lh_train_result **out,
                       lh_error *err)
{
    char text[512];
    lh_pipeline *p = NULL;
    lh_schedule *schedule = NULL;
    lh_exec *x = NULL;
    lh_model model = model_of(s->model);
    uint32_t first_layers[LAYERS + 1], again[LAYERS + MODULES];
    lh_method_options with = {.size = sizeof with};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: %s\nuniform: {F: 10, D: 12, W: 9, "
             "memory: {F: 1, W: -1}}\n",
             (unsigned)MICROBATCHES / s->replicas, s->devices,
             s->joint ? "joint" : "split");
    lh_status status = lh_pipeline_parse(text, strlen(text), "test", &p, err);
    if (status == LH_OK)
        status = lh_method_run(s->method, p, &with, &schedule, NULL, err);
    if (status == LH_OK)
        status = lh_exec_make(p, schedule, NULL, &x, err);
    if (status == LH_OK) {
        lh_train_model m = lh_train_model_defaults();
        for (uint32_t c = 0; c <= s->devices; c++)
            first_layers[c] = LAYERS * c / s->devices;
        for (uint32_t i = 0; i < model.layers + model.mtp_layers; i++)
            again[i] = s->again;
        m.model = &model;
        m.first_layers = first_layers;
        m.recompute = again;
        m.micro_batch = 2;
        m.sequence = SEQUENCE;
        m.replicas = s->replicas;
        m.tensor = s->tensor;
        m.context = s->context;
        m.expert = s->expert;
        m.no_sequence_parallel = s->whole;
        m.per_layer_sharding = s->zero >= 2 && s->replicas * s->context > 1;
        m.sharded_gradients = m.per_layer_sharding;
        m.sharded_parameters = m.per_layer_sharding && s->zero == 3;
        m.unsharded_optimizer = s->zero == 0;
        m.seed = 5;
        m.data = text_path;
        m.rate = m.min_rate = 3e-4;
        m.warmup = 0;
        m.checkpoint = s->checkpoint;
        m.resume = s->resume;
        m.validation = 0.2;
        m.validate_every = STEPS / 2;
        lh_train_options o = {
            .size = sizeof o, .transport = "inproc", .steps = steps};
        status = lh_train_cpu(p, x, &m, &o, out, err);
    }
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

/* --- one rank ------------------------------------------------------------- */

static lh_iteration reference[N_MODELS][STEPS];

static void one_rank(void)
{
    for (int which = 0; which < N_MODELS; which++) {
        lh_error err;
        lh_train_result *r = NULL;
        setup s = alone;
        s.model = which;
        CHECK_OK(train(&s, STEPS, &r, &err), err);
        for (uint32_t i = 0; r && i < STEPS; i++)
            reference[which][i] = r->iterations[i];
        lh_train_result_free(r);
        const lh_iteration *first = reference[which];
        const lh_iteration *last = &first[STEPS - 1];
        CHECK(FEW_CASES ||
              (last->loss < first->loss && last->mtp_loss < first->mtp_loss));
    }
}

/* --- the same on several ranks -------------------------------------------- */

static void check_memory(const lh_train_result *r, const char *name)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    static const lh_memory_kind exact[] = {
        LH_MEMORY_PARAMETERS, LH_MEMORY_GRADIENTS, LH_MEMORY_MOMENTS,
        LH_MEMORY_ACTIVATIONS, LH_MEMORY_SCRATCH};
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
            double a = (double)all[i].predicted[exact[k]];
            double b = (double)all[i].measured[exact[k]];
            CHECK_MSG(fabs(b - a) < 0.03 * a + 8192,
                      "%s: rank %u: %s %g predicted, %g held", name,
                      (unsigned)i, lh_memory_kind_name(exact[k]), a, b);
        }
}

static void check_same(const setup *s, const lh_train_result *r,
                       const char *name)
{
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const lh_iteration *it = &r->iterations[i];
        const lh_iteration *want = &reference[s->model][it->step];
        CHECK_MSG(fabs(it->loss - want->loss) < 1e-6 &&
                      fabs(it->mtp_loss - want->mtp_loss) < 1e-6,
                  "%s: step %u: losses %.9f and %.9f, not %.9f and %.9f", name,
                  (unsigned)it->step, it->loss, it->mtp_loss, want->loss,
                  want->mtp_loss);
        CHECK_MSG(fabs(it->gradient_norm / want->gradient_norm - 1) < 1e-4,
                  "%s: step %u: norm %.9f, not %.9f", name, (unsigned)it->step,
                  it->gradient_norm, want->gradient_norm);
        if (isfinite(want->validation_loss) && isfinite(it->validation_loss))
            CHECK_NEAR(it->validation_loss, want->validation_loss, 1e-6);
    }
}

static void run(const setup *s, uint32_t steps)
{
    char name[160];
    lh_error err;
    lh_train_result *r = NULL;
    snprintf(name, sizeof name,
             "model %d, %u stages of %s, %u replicas, zero %u, tensor %u%s, "
             "context %u, expert %u, again %x",
             s->model, s->devices, s->method, s->replicas, s->zero, s->tensor,
             s->whole ? " with whole rows" : "", s->context, s->expert,
             s->again);
    lh_status status = train(s, steps, &r, &err);
    CHECK_MSG(status == LH_OK, "%s: %s", name, err.text);
    if (!r)
        return;
    CHECK_INT(r->n_iterations, steps);
    check_same(s, r, name);
    check_memory(r, name);
    lh_train_result_free(r);
}

static uint32_t below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % n;
}

static uint32_t n_drawn; /* from the command line */

static void random_combinations(void)
{
    static const char *const methods[] = {"1f1b", "zb-h1", "zb-h2", "gpipe"};
    static const uint32_t parts[] = {0, LH_PART_ALL, 0x51};
    uint32_t state = 11;
    for (uint32_t i = 0; i < n_drawn; i++) {
        setup s = alone;
        uint32_t method = below(&state, 4);
        s.model = (int)(i % N_MODELS);
        s.devices = 1 + below(&state, 2);
        s.replicas = 1 + below(&state, 2);
        s.tensor = 1 + below(&state, 2);
        s.context = below(&state, 3) ? 1 : 2;
        s.zero = below(&state, 4);
        s.method = methods[method];
        s.joint = (method == 0 || method == 3) && below(&state, 2);
        s.again = parts[below(&state, 3)];
        s.whole = s.model != DEEPSEEK && s.tensor > 1 && below(&state, 3) == 0;
        if (s.model == DEEPSEEK && s.replicas == 2 && below(&state, 2))
            s.expert = 2;
        run(&s, STEPS);
    }
}

/* Each degree and level, with one model per kind. */
static void degrees(void)
{
    setup a = alone, b = alone, c = alone;
    a.model = LLAMA, b.model = TIED, c.model = DEEPSEEK;
    a.tensor = a.context = 2, a.zero = 3, a.again = LH_PART_ALL;
    b.devices = b.replicas = 2, b.zero = 2, b.method = "zb-h1";
    b.joint = false;
    c.tensor = c.replicas = c.expert = 2, c.zero = 1, c.again = 0x51;
    run(&a, FEW);
    run(&b, FEW);
    run(&c, FEW);
    a.context = 1, a.whole = true, a.zero = 0;
    run(&a, FEW);
}

/* Any schedule of stages and any recomputation gives the same bits. */
static void schedules_give_the_same_bits(void)
{
    static const char *const methods[] = {"1f1b", "zb-h1"};
    for (int i = 0; i < 2; i++) {
        lh_error err;
        lh_train_result *r = NULL;
        setup s = alone;
        s.model = i ? TIED : LLAMA;
        s.devices = 2;
        s.method = methods[i];
        s.joint = i == 0;
        s.again = LH_PART_ALL;
        CHECK_OK(train(&s, STEPS / 5, &r, &err), err);
        for (uint32_t k = 0; r && k < r->n_iterations && k < 2; k++)
            CHECK(r->iterations[k].loss == reference[s.model][k].loss &&
                  r->iterations[k].mtp_loss == reference[s.model][k].mtp_loss &&
                  r->iterations[k].gradient_norm ==
                      reference[s.model][k].gradient_norm);
        lh_train_result_free(r);
    }
}

/* --- checkpoints ---------------------------------------------------------- */

enum { SAVED = 5 }; /* steps before it */

static void go_on(setup first, setup then, const char *name)
{
    char path[160];
    lh_error err;
    lh_train_result *r = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    first.checkpoint = then.resume = path;
    CHECK_OK(train(&first, SAVED, &r, &err), err);
    lh_train_result_free(r);
    r = NULL;
    CHECK_OK(train(&then, 2 * SAVED, &r, &err), err);
    if (r) {
        CHECK_INT(r->n_iterations, SAVED);
        check_same(&then, r, name);
    }
    lh_train_result_free(r);
}

/* DeepSeek-V3's names, with the embedding once. */
static void check_names(const char *run_name, const lh_model *m)
{
    static const char *const names[] = {"enorm", "hnorm", "eh_proj",
                                        "input_layernorm", "shared_head.norm"};
    size_t size, at = 0;
    uint32_t embeddings = 0;
    char *bytes = saved_weights(run_name, SAVED, &size), text[96];
    for (size_t i = 0; bytes && i < sizeof names / sizeof *names; i++)
        for (uint32_t k = 0; k <= m->mtp_layers; k++) {
            int len =
                snprintf(text, sizeof text, "\"model.layers.%u.%s.weight\"",
                         LAYERS + k, names[i]);
            bool is = memmem(bytes, size, text, (size_t)len) != NULL;
            CHECK_MSG(is == (k < m->mtp_layers), "%s", text);
        }
    for (; bytes && at + 12 < size; at++)
        embeddings += memcmp(bytes + at, "embed_tokens", 12) == 0;
    CHECK_INT(embeddings, 1);
    free(bytes);
}

static void checkpoints_are_independent_of_the_layout(void)
{
    for (int i = 0; i < 2; i++) {
        setup one = alone, many = alone;
        const int kind = i ? DEEPSEEK : LLAMA;
        const lh_model m = model_of(kind);
        one.model = many.model = kind;
        many.devices = i ? 1 : 2;
        many.tensor = many.context = 2;
        many.expert = i ? 2 : 1;
        many.zero = i ? 1 : 3;
        go_on(one, many, i ? "one-d" : "one");
        go_on(many, one, i ? "many-d" : "many");
        check_names(i ? "one-d" : "one", &m);
        check_names(i ? "many-d" : "many", &m);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_drawn = (uint32_t)strtoul(argv[1], NULL, 10);
    if (!folder_begin("mtp", 4000))
        return 1;
    RUN_VIRTUAL(one_rank);
    RUN_VIRTUAL(degrees);
    RUN_VIRTUAL(random_combinations);
    RUN_VIRTUAL(schedules_give_the_same_bits);
    RUN_VIRTUAL(checkpoints_are_independent_of_the_layout);
    folder_end();
    return test_summary();
}
