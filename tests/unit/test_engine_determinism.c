/* SPDX-License-Identifier: Apache-2.0 */
/* Training gives bitwise equal weights for any schedule, pipeline degree,
 * transport, thread timing, and interruption: twenty steps of a tiny model,
 * compared through saved files. */
#define _GNU_SOURCE
#include "moe_models.h"
#include "sanitized.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include <dirent.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/solve.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LAYERS = 8, STEPS = 20, MICROBATCHES = 8, SEQUENCE = 24 };

static lh_model tiny, tied, gpt2, mixtral, qwen3, falcon, deepseek, qwen2_moe,
    deepseek_v3;

/* --- one run -------------------------------------------------------------- */

/* Configuration of a run. */
typedef struct setup {
    const char *placement, *method;
    uint32_t devices, replicas, sub_blocks;
    const char *transport;
    lh_receives receives;
    uint32_t queue; /* blocking sends */
    bool joint, delays;
    lh_data_path path; /* mixed: the first link alone */
    const lh_model *model;
    const char *resume;
    uint32_t checkpoint_every;
    double validation;
    uint32_t again; /* recomputed parts of the first layer; rotated by one for
                     * each later layer */
    double dropout;
} setup;

static lh_pipeline *make_pipeline(const setup *s)
{
    char text[2048], links[1024] = "";
    lh_error err;
    lh_pipeline *p = NULL;
    size_t at = 0;
    uint32_t state = s->devices;
    /* Every pair has a link with its own delay, up to 1 ms. */
    for (uint32_t i = 0; s->delays && i < s->devices; i++)
        for (int step = -1; step <= 1; step += 2) {
            uint32_t j = (i + s->devices + (uint32_t)step) % s->devices;
            if (j == i || (s->devices == 2 && step > 0))
                continue;
            state = state * 1664525 + 1013904223;
            at += (size_t)snprintf(
                links + at, sizeof links - at,
                "  - {from: %u, to: %u, latency: %u, transfer: %u}\n", i, j,
                (state >> 8) % 1000, (state >> 20) % 300);
        }
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: %s\n"
             "uniform: {placement: %s, chunks_per_device: %d, F: 10, D: 12, "
             "W: 9, memory: {F: 1, W: -1}}\n%s%s",
             (unsigned)MICROBATCHES / s->replicas, s->devices,
             s->joint ? "joint" : "split", s->placement,
             strcmp(s->placement, "ud") == 0 ? 1 : 2, at ? "links:\n" : "",
             links);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

static lh_schedule *make_schedule(const setup *s, const lh_pipeline *p)
{
    lh_error err;
    lh_schedule *out = NULL;
    if (strcmp(s->method, "optimal") == 0) {
        lh_solve_options o = {.size = sizeof o, .effort = 20000};
        lh_solution found = {0};
        CHECK_OK(lh_solve(p, &o, &found, &err), err);
        out = found.schedule;
        found.schedule = NULL;
        lh_solution_fini(&found);
        return out;
    }
    lh_method_options o = {.size = sizeof o, .sub_blocks = s->sub_blocks};
    CHECK_OK(lh_method_run(s->method, p, &o, &out, NULL, &err), err);
    return out;
}

static lh_status train(const setup *s, const char *checkpoint, uint64_t steps,
                       lh_train_result **out, lh_error *err)
{
    lh_pipeline *p = make_pipeline(s);
    lh_schedule *schedule = p ? make_schedule(s, p) : NULL;
    lh_exec *x = NULL;
    lh_status status = LH_EINVAL;
    static const bool first_link[64] = {true};
    const lh_delegation copies = {
        .size = sizeof copies, .links = first_link, .staging_ns = 20000};
    lh_exec_options how = {.size = sizeof how,
                           .receives = s->receives,
                           .coupled_queue = s->queue,
                           .path = s->path,
                           .delegation = &copies};
    uint32_t first_layers[2 * LAYERS + 1], again[LAYERS];
    if (schedule &&
        (status = lh_exec_make(p, schedule, &how, &x, err)) == LH_OK) {
        lh_train_model m = lh_train_model_defaults();
        uint32_t n = lh_pipeline_n_chunks(p);
        for (uint32_t c = 0; c <= n; c++)
            first_layers[c] = LAYERS * c / n;
        m.model = s->model ? s->model : &tiny;
        m.first_layers = first_layers;
        m.sequence = SEQUENCE;
        for (uint32_t i = 0; i < LAYERS; i++)
            again[i] =
                (s->again << i % 7 | s->again >> (7 - i % 7)) & LH_PART_ALL;
        m.recompute = again;
        m.replicas = s->replicas;
        m.seed = 5;
        m.data = text_path;
        m.rate = 1e-2;
        m.validation = s->validation;
        m.validate_every = s->validation > 0 ? 5 : 0;
        m.checkpoint = checkpoint;
        m.checkpoint_every = s->checkpoint_every;
        m.keep = 3;
        m.resume = s->resume;
        m.emulate_links = s->delays;
        m.dropout = s->dropout;
        m.balance_bias = 0.01;
        m.expert_capacity = m.model->unnormalised_scores ? 0.8 : 0;
        lh_train_options o = {
            .size = sizeof o, .transport = s->transport, .steps = steps};
        status = lh_train_cpu(p, x, &m, &o, out, err);
    }
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

/* --- weights -------------------------------------------------------------- */

static char *reference;
static size_t reference_size;
static double reference_loss;

static void check_same(const char *name)
{
    size_t size = 0;
    char *bytes = saved_weights(name, STEPS, &size);
    CHECK_MSG(bytes != NULL, "%s: no weights", name);
    if (bytes)
        CHECK_MSG(size == reference_size && memcmp(bytes, reference, size) == 0,
                  "%s: other weights", name);
    free(bytes);
}

/* Checks memory against its prediction, within 3 %, without buffers for
 * messages that take longer than predicted. */
static void check_memory(const lh_train_result *r, const char *name)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    CHECK_INT(n, r->n_ranks);
    for (uint32_t i = 0; i < n; i++) {
        const lh_train_memory *m = &all[i];
        int64_t bytes[2] = {m->predicted_bytes, m->measured_bytes};
        CHECK(m->measured[LH_MEMORY_ACTIVATIONS] > 0 &&
              m->measured[LH_MEMORY_BUFFERS] >=
                  m->predicted[LH_MEMORY_BUFFERS]);
        CHECK_MSG(r->n_ranks > r->n_replicas || r->n_pool_growths == 0,
                  "%s: no messages, and more buffers than predicted", name);
        if (r->n_pool_growths > 0) {
            bytes[0] -= m->predicted[LH_MEMORY_BUFFERS];
            bytes[1] -= m->measured[LH_MEMORY_BUFFERS];
        }
        CHECK_MSG(fabs((double)bytes[1] / (double)bytes[0] - 1) < 0.03,
                  "%s: rank %u: %lld bytes predicted, %lld held", name,
                  (unsigned)i, (long long)bytes[0], (long long)bytes[1]);
    }
}

static double run(const setup *s, const char *name)
{
    char path[160];
    lh_error err;
    lh_train_result *r = NULL;
    double loss = NAN;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(train(s, path, STEPS, &r, &err), err);
    if (r && r->n_iterations) {
        loss = r->iterations[r->n_iterations - 1].loss;
        check_memory(r, name);
    }
    lh_train_result_free(r);
    return loss;
}

static void one_rank(void)
{
    setup s = {
        "ud",         "1f1b", 1, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY,
        .joint = true};
    reference_loss = run(&s, "reference");
    reference = saved_weights("reference", STEPS, &reference_size);
    CHECK(reference != NULL && reference_size > 100000);
    CHECK(reference_loss > 0 && reference_loss < 3.5); /* it started at 5.5 */
}

static void schedules_and_degrees(void)
{
    static const setup all[] = {
        {"ud", "1f1b", 2, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "zb-h1", 4, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "zb-h2", 4, 1, 0, "inproc", .receives = LH_RECEIVES_LATE},
        {"ud", "greedy", 4, 1, 1, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "gpipe", 8, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "1f1b", 8, 1, 0, "inproc", .receives = LH_RECEIVES_LATE,
         .joint = true},
        {"loop", "interleaved-1f1b", 4, 1, 0, "inproc",
         .receives = LH_RECEIVES_EARLY},
        {"loop", "greedy", 2, 1, 1, "inproc", .receives = LH_RECEIVES_EARLY},
        {"loop", "gpipe", 1, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"wave", "zb-v", 4, 1, 0, "inproc", .receives = LH_RECEIVES_LATE_FD},
        {"wave", "dualpipev", 2, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "optimal", 2, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s-%s-%u", all[i].placement, all[i].method,
                 all[i].devices);
        double loss = run(&all[i], name);
        CHECK_MSG(memcmp(&loss, &reference_loss, sizeof loss) == 0,
                  "%s: loss %.17g, not %.17g", name, loss, reference_loss);
        check_same(name);
    }
}

/* Whole layers, the cheap parts, and other parts in every layer; W with its D
 * or long after, in order or not. */
static void recomputation(void)
{
    static const uint32_t parts[] = {LH_PART_ALL, 0x51, 0x2a, 0x0f, 0x01};
    static const char *const methods[][2] = {{"1f1b", "ud"},
                                             {"zb-h1", "ud"},
                                             {"zb-v", "wave"},
                                             {"interleaved-1f1b", "loop"},
                                             {"gpipe", "ud"}};
    for (uint32_t i = 0; i < 6; i++) {
        setup s = {.placement = methods[i % 5][1],
                   .method = methods[i % 5][0],
                   .devices = i < 5 ? 2 : 4,
                   .replicas = 1,
                   .transport = "inproc",
                   .joint = i == 0 || i == 4,
                   .again = parts[i % 5]};
        char name[64];
        snprintf(name, sizeof name, "%s-%u-again", s.method, s.devices);
        double loss = run(&s, name);
        CHECK_MSG(memcmp(&loss, &reference_loss, sizeof loss) == 0,
                  "%s: loss %.17g, not %.17g", name, loss, reference_loss);
        check_same(name);
    }
}

static void transports_and_delays(void)
{
    static const setup all[] = {
        {"ud", "zb-h1", 4, 1, 0, "local", .receives = LH_RECEIVES_EARLY},
        {"wave", "zb-v", 2, 1, 0, "local", .receives = LH_RECEIVES_LATE,
         .delays = true},
        {"ud", "greedy", 4, 1, 1, "inproc", .receives = LH_RECEIVES_EARLY,
         .delays = true},
        {"loop", "interleaved-1f1b", 4, 1, 0, "inproc",
         .receives = LH_RECEIVES_EARLY, .delays = true},
        {"ud", "1f1b", 4, 1, 0, "inproc", .receives = LH_RECEIVES_LATE,
         .queue = 1, .delays = true},
        {"ud", "zb-h2", 4, 1, 0, "local", .receives = LH_RECEIVES_LATE,
         .queue = 1},
        {"wave", "zb-v", 2, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY,
         .queue = 3},
        {"wave", "zb-v", 4, 1, 0, "inproc", .receives = LH_RECEIVES_LATE,
         .queue = 1, .path = LH_DATA_PATH_DELEGATED, .delays = true},
        {"loop", "interleaved-1f1b", 4, 1, 0, "local",
         .receives = LH_RECEIVES_EARLY, .path = LH_DATA_PATH_DELEGATED},
        {"ud", "zb-h2", 4, 1, 0, "inproc", .receives = LH_RECEIVES_LATE,
         .queue = 1, .path = LH_DATA_PATH_MIXED, .delays = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        snprintf(name, sizeof name, "t%zu-%s-%s", i, all[i].transport,
                 all[i].method);
        run(&all[i], name);
        check_same(name);
    }
}

/* Split W passes, with validation in between. */
static void validation_changes_nothing(void)
{
    setup s = {"ud",
               "1f1b",
               2,
               1,
               0,
               "inproc",
               .receives = LH_RECEIVES_EARLY,
               .queue = 2,
               .validation = 0.1};
    char path[160];
    lh_error err;
    size_t size[2];
    char *weights[2];
    for (int i = 0; i < 2; i++) {
        lh_train_result *r = NULL;
        snprintf(path, sizeof path, "%s/valid%d", folder, i);
        s.devices = i ? 4 : 2;
        s.path = i ? LH_DATA_PATH_DELEGATED : LH_DATA_PATH_DIRECT;
        s.method = i ? "zb-h1" : "1f1b";
        CHECK_OK(train(&s, path, STEPS, &r, &err), err);
        for (uint32_t k = 0; r && k < r->n_iterations; k++) {
            double loss = r->iterations[k].validation_loss;
            CHECK_INT(isfinite(loss) != 0, k % 5 == 4);
            CHECK(!isfinite(loss) || (loss > 0 && loss < 6));
        }
        lh_train_result_free(r);
        weights[i] = saved_weights(i ? "valid1" : "valid0", STEPS, &size[i]);
    }
    CHECK(weights[0] && weights[1] && size[0] == size[1] &&
          memcmp(weights[0], weights[1], size[0]) == 0);
    free(weights[0]);
    free(weights[1]);
}

/* --- killed and resumed --------------------------------------------------- */

static bool there(const char *name, unsigned step)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s/step-%08u", folder, name, step);
    return stat(path, &st) == 0;
}

static void killed_and_resumed(void)
{
    setup s = {"ud",
               "zb-h1",
               4,
               1,
               0,
               "inproc",
               .receives = LH_RECEIVES_EARLY,
               .checkpoint_every = 1,
               .delays = true};
    char path[160];
    snprintf(path, sizeof path, "%s/killed", folder);
    pid_t child = fork();
    if (child == 0) {
        lh_train_result *r = NULL;
        train(&s, path, STEPS, &r, NULL);
        _exit(0);
    }
    CHECK(child > 0);
    for (int i = 0; i < 6000 && !there("killed", 7); i++)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(there("killed", 7));
    CHECK(!there("killed", STEPS));
    /* With another number of ranks and another schedule. */
    setup after = {
        "ud",          "1f1b", 2, 1, 0, "local", .receives = LH_RECEIVES_EARLY,
        .resume = path};
    lh_train_result *r = NULL;
    lh_error err;
    CHECK_OK(train(&after, path, STEPS, &r, &err), err);
    CHECK(r && r->n_iterations < STEPS && r->n_iterations > 0);
    if (r && r->n_iterations)
        CHECK_INT(r->iterations[r->n_iterations - 1].step, STEPS - 1);
    lh_train_result_free(r);
    check_same("killed");
}

/* --- data parallelism ----------------------------------------------------- */

static void compare_floats(const char *a, const char *b, size_t size)
{
    uint64_t head;
    memcpy(&head, a, sizeof head);
    double worst = 0;
    for (size_t at = 8 + head; at + 4 <= size; at += 4) {
        float x, y;
        memcpy(&x, a + at, 4);
        memcpy(&y, b + at, 4);
        double off = fabs((double)x - (double)y);
        worst = off > worst ? off : worst;
    }
    CHECK_MSG(worst < 2e-3, "weights differ by %g", worst);
    CHECK_MSG(worst > 0, "sums in another order would differ");
}

static void replicas(void)
{
    static const setup all[] = {
        {"ud", "1f1b", 1, 2, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "zb-h1", 2, 2, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"wave", "zb-v", 2, 2, 0, "local", .receives = LH_RECEIVES_EARLY},
        {"ud", "greedy", 4, 2, 1, "inproc", .receives = LH_RECEIVES_LATE,
         .delays = true},
    };
    char *first = NULL;
    size_t first_size = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        snprintf(name, sizeof name, "dp%zu", i);
        double loss = run(&all[i], name);
        CHECK_NEAR(loss, reference_loss, 1e-4 * reference_loss);
        size_t size = 0;
        char *bytes = saved_weights(name, STEPS, &size);
        CHECK(bytes != NULL);
        if (!bytes)
            continue;
        if (!first) {
            first = bytes;
            first_size = size;
            CHECK_INT(size, reference_size);
            if (reference && size == reference_size)
                compare_floats(first, reference, size);
            continue;
        }
        CHECK_MSG(size == first_size && memcmp(bytes, first, size) == 0,
                  "%s: other weights", name);
        free(bytes);
    }
    free(first);
}

/* Embedding and head on different ranks sum their gradients. */
static void tied_embeddings(void)
{
    static const setup all[] = {
        {"ud", "1f1b", 1, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"ud", "zb-h1", 4, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY},
        {"wave", "zb-v", 2, 1, 0, "local", .receives = LH_RECEIVES_EARLY},
    };
    char *first = NULL;
    size_t first_size = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        setup s = all[i];
        char name[64];
        size_t size = 0;
        s.model = &tied;
        snprintf(name, sizeof name, "tied%zu", i);
        run(&s, name);
        char *bytes = saved_weights(name, STEPS, &size);
        CHECK(bytes != NULL);
        if (first && bytes)
            CHECK_MSG(size == first_size && memcmp(bytes, first, size) == 0,
                      "%s: other weights", name);
        if (first) {
            free(bytes);
        } else {
            first = bytes;
            first_size = size;
        }
    }
    free(first);
}

/* --- other models --------------------------------------------------------- */

/* Resumes halfway with another pipeline. */
static void resume_halfway(setup s, const char *name)
{
    char path[160], half[200];
    lh_error err;
    lh_train_result *r = NULL;
    s.joint = false, s.devices = 4, s.method = "zb-h1";
    s.checkpoint_every = STEPS / 2;
    snprintf(path, sizeof path, "%s/%s-half", folder, name);
    CHECK_OK(train(&s, path, STEPS, &r, &err), err);
    lh_train_result_free(r);
    r = NULL;
    snprintf(half, sizeof half, "%s/step-%08d", path, STEPS / 2);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    s.devices = 2, s.method = "1f1b", s.resume = half;
    CHECK_OK(train(&s, path, STEPS, &r, &err), err);
    CHECK(r && r->n_iterations == STEPS / 2);
    lh_train_result_free(r);
}

/* One rank, then each configuration; those with as many replicas are equal.
 * With few cases, every third configuration, with a rotating start per model.
 */
static void same_of_model(const lh_model *model, double dropout)
{
    static size_t from;
    static const setup all[] = {
        {"ud", "1f1b", 1, 1, 0, "inproc", .joint = true},
        {"ud", "zb-h2", 4, 1, 0, "inproc", .again = LH_PART_ALL},
        {"ud", "gpipe", 2, 1, 0, "inproc", .joint = true, .again = 0x2a},
        {"loop", "interleaved-1f1b", 4, 1, 0, "local", .again = 0x1d1},
        {"wave", "zb-v", 2, 1, 0, "inproc", .delays = true},
        {"ud", "1f1b", 1, 2, 0, "inproc", .joint = true},
        {"wave", "zb-v", 2, 2, 0, "local", .again = 0x20f},
        {"ud", "greedy", 4, 2, 1, "inproc", .delays = true},
    };
    char *first[3] = {NULL};
    size_t sizes[3] = {0};
    for (size_t i = FEW_CASES ? from++ % 3 : 0; i <= sizeof all / sizeof *all;
         i += FEW_CASES ? 3 : 1) {
        bool resumes = i == sizeof all / sizeof *all;
        setup s = all[resumes ? 0 : i];
        char name[64];
        size_t size = 0;
        s.model = model;
        s.dropout = dropout;
        s.receives = LH_RECEIVES_EARLY;
        snprintf(name, sizeof name, "%s%zu", model->name, i);
        if (resumes)
            resume_halfway(s, name);
        else
            CHECK(run(&s, name) < 4.5); /* it started at 5.5 */
        char *bytes = saved_weights(name, STEPS, &size);
        char **same = &first[s.replicas];
        CHECK(bytes != NULL);
        if (!*same) {
            *same = bytes;
            sizes[s.replicas] = size;
            continue;
        }
        CHECK_MSG(bytes && size == sizes[s.replicas] &&
                      memcmp(bytes, *same, size) == 0,
                  "%s: other weights", name);
        free(bytes);
    }
    if (first[1] && first[2] && sizes[1] == sizes[2])
        compare_floats(first[1], first[2], sizes[1]);
    free(first[1]);
    free(first[2]);
}

/* Layer norms, biases, GeLU, learned positions; the same dropout. */
static void gpt2_alike(void)
{
    same_of_model(&gpt2, 0.1);
}

/* A router, experts, and the balance loss. */
static void mixtral_alike(void)
{
    same_of_model(&mixtral, 0);
}

/* A norm for each query and key. */
static void qwen3_alike(void)
{
    same_of_model(&qwen3, 0);
}

/* Attention and MLP on one norm; separate dropout for their outputs. */
static void falcon_alike(void)
{
    same_of_model(&falcon, 0.1);
}

/* Latent attention: stored, recomputed with everything derived from it, or
 * alone. */
static void deepseek_alike(void)
{
    same_of_model(&deepseek, 0);
}

/* Dense layers in between, shared experts, experts with a capacity; groups, and
 * a balancing bias. */
static void other_experts_alike(void)
{
    same_of_model(&qwen2_moe, 0);
    same_of_model(&deepseek_v3, 0);
}

/* --- faults --------------------------------------------------------------- */

static void faults(void)
{
    setup s = {"ud", "1f1b", 4, 1, 0, "inproc", .receives = LH_RECEIVES_EARLY};
    char path[160];
    lh_train_result *r = NULL;
    lh_error err;
    snprintf(path, sizeof path, "%s/nothing", folder);
    s.resume = path; /* a missing checkpoint */
    CHECK(train(&s, NULL, STEPS, &r, &err) != LH_OK);
    CHECK_HAS(err.text, "nothing");
    CHECK_HAS(err.text, "rank ");
    s.resume = NULL;
    /* A file in place of the folder. */
    CHECK(train(&s, text_path, 2, &r, &err) != LH_OK);
    CHECK_HAS(err.text, "rank 0");
    CHECK(r == NULL);
}

int main(void)
{
    if (!folder_begin("same", 6000))
        return 1;
    tied = tiny = tiny_model(LAYERS);
    tied.tied_embeddings = true;
    gpt2 = tiny_gpt2(LAYERS);
    mixtral = tiny_mixtral(LAYERS);
    qwen3 = tiny_qwen3(LAYERS);
    falcon = tiny_falcon(LAYERS);
    deepseek = tiny_deepseek(LAYERS);
    qwen2_moe = qwen2_moe_of(tiny);
    qwen2_moe.name = "tiny-qwen2-moe";
    deepseek_v3 = glm4_moe_of(deepseek);
    deepseek_v3.name = "tiny-deepseek-v3";
    RUN_VIRTUAL(one_rank);
    RUN_VIRTUAL(schedules_and_degrees);
    RUN_VIRTUAL(recomputation);
    RUN_VIRTUAL(transports_and_delays);
    RUN_VIRTUAL(validation_changes_nothing);
    RUN_VIRTUAL(killed_and_resumed);
    RUN_VIRTUAL(replicas);
    RUN_VIRTUAL(tied_embeddings);
    RUN_VIRTUAL(gpt2_alike);
    RUN_VIRTUAL(mixtral_alike);
    RUN_VIRTUAL(qwen3_alike);
    RUN_VIRTUAL(falcon_alike);
    RUN_VIRTUAL(deepseek_alike);
    RUN_VIRTUAL(other_experts_alike);
    RUN_VIRTUAL(faults);
    free(reference);
    folder_end();
    return test_summary();
}
