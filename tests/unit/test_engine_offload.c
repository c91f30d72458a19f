/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offload from the cpu device to a file: weights stay bitwise equal,
 * memory matches its prediction and is lower, and file errors end the run with
 * one reason. */
#define _GNU_SOURCE
#include "kill_sibling.h"
#include "sanitized.h"
#include "scheduled.h"
#include "tiny_model.h"
#include "training_text.h"
#include "virtual_time.h"

#include <dirent.h>
#include <longhaul/experimental/engine.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 8, STEPS = 3, MICROBATCHES = 8, SEQUENCE = 24 };

static char folder[64], text_path[80], files[80];

/* Configuration of a run. */
typedef struct setup {
    const char *placement, *method;
    uint32_t devices, replicas;
    uint32_t of; /* offloaded leading layers of a chunk; 0: none */
    uint32_t again;
    const lh_model *model;
    double validation, gradients, parameters;
    bool emulates;
    uint32_t copy_us; /* 0: 1 */
    const char *transport, *to;
    bool elastic; /* passes launch ZeRO 3 gathers and scatters */
    uint32_t tensor, context, expert; /* 0: 1 */
} setup;

static lh_pipeline *make_pipeline(const setup *s)
{
    char text[512], copy[32] = "";
    if (s->of)
        snprintf(copy, sizeof copy, ", offload: %u",
                 s->copy_us ? s->copy_us : 1);
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: joint\nuniform: {placement: %s, F: 10, "
             "D: 12, W: 9%s}\n%s",
             (unsigned)MICROBATCHES / s->replicas, s->devices, s->placement,
             copy,
             s->elastic ? "data_parallel:\n  elastic: {enqueue: [4], "
                          "dequeue: [4], transfer: 10, gradients: 1, "
                          "parameters: 1, buckets: {scatter: 1, forward: 1, "
                          "backward: 1}}\n"
                        : "");
    return pipeline_of(text);
}

static int (*stop)(void *context);

static lh_status train(const setup *s, const char *checkpoint,
                       lh_train_result **out, lh_error *err)
{
    lh_model model = s->model ? *s->model : tiny_model(LAYERS);
    uint32_t first_layers[LAYERS + 1], again[LAYERS];
    bool offload[LAYERS] = {false};
    lh_pipeline *p = make_pipeline(s);
    lh_schedule *schedule = schedule_by(p, s->method);
    lh_exec *x = NULL;
    CHECK_OK(lh_exec_make(p, schedule, NULL, &x, err), *err);
    lh_train_model m = lh_train_model_defaults();
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    for (uint32_t i = 0; i < LAYERS; i++) {
        again[i] = s->again;
        offload[i] = i % (LAYERS / n) < s->of;
    }
    m.model = &model;
    m.first_layers = first_layers;
    m.recompute = again;
    m.offload = offload;
    m.offload_folder = s->to ? s->to : files;
    m.sequence = SEQUENCE;
    m.replicas = s->replicas;
    m.seed = 5;
    m.data = text_path;
    m.rate = 1e-2;
    m.validation = s->validation;
    m.validate_every = s->validation > 0;
    m.sharded_gradients = s->gradients;
    m.sharded_parameters = s->parameters;
    m.per_layer_sharding = s->gradients > 0 && !s->elastic;
    m.tensor = s->tensor;
    m.context = s->context;
    m.expert = s->expert;
    m.checkpoint = checkpoint;
    m.emulate_links = s->emulates;
    const lh_train_options o = {.size = sizeof o,
                                .steps = STEPS,
                                .transport = s->transport,
                                .stop = stop};
    lh_status status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

static char *read_weights(const char *name, size_t *size)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/step-%08u/model.safetensors", name,
             (unsigned)STEPS);
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &st) != 0)
        return NULL;
    char *bytes = malloc((size_t)st.st_size + 1);
    *size = bytes ? fread(bytes, 1, (size_t)st.st_size, file) : 0;
    fclose(file);
    return bytes;
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    uint32_t n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n == 2;
}

/* Returns measured memory over all ranks. Predictions must be within 3 %, for
 * activations within 1 KiB (arrays are aligned to 16 bytes), for the file
 * exact. */
static int64_t held(const lh_train_result *r, int64_t *stored)
{
    uint32_t n;
    int64_t sum = 0;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    *stored = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lh_train_memory *m = &all[i];
        int64_t more = r->n_pool_growths ? m->measured[LH_MEMORY_BUFFERS] -
                                               m->predicted[LH_MEMORY_BUFFERS]
                                         : 0;
        double error =
            (double)(m->measured_bytes - more) / (double)m->predicted_bytes - 1;
        CHECK_MSG(fabs(error) < 0.03, "rank %u: %lld predicted, %lld held", i,
                  (long long)m->predicted_bytes, (long long)m->measured_bytes);
        int64_t room = 1024;
        if (SANITIZED) /* adds padding behind each array */
            room += m->predicted[LH_MEMORY_ACTIVATIONS] / 50;
        CHECK(llabs(m->measured[LH_MEMORY_ACTIVATIONS] -
                    m->predicted[LH_MEMORY_ACTIVATIONS]) < room);
        CHECK_INT(m->measured[LH_MEMORY_STORAGE],
                  m->predicted[LH_MEMORY_STORAGE]);
        sum += m->measured[LH_MEMORY_ACTIVATIONS];
        *stored += m->measured[LH_MEMORY_STORAGE];
    }
    return sum;
}

/* With and without offload: the same bits, losses and validation; less memory.
 */
static void compare(setup s, const char *what)
{
    char names[2][128];
    char *weights[2] = {NULL, NULL};
    size_t sizes[2] = {0, 1};
    int64_t bytes[2], stored[2];
    double losses[2][2];
    for (int i = 0; i < 2; i++) {
        lh_error err = {0};
        lh_train_result *r = NULL;
        setup one = s;
        if (i == 0)
            one.of = 0;
        snprintf(names[i], sizeof names[i], "%s/%s-%d", folder, what, i);
        lh_status status = train(&one, names[i], &r, &err);
        if (status == LH_EUNSUPPORTED && strstr(err.text, "OpenBLAS")) {
            fprintf(stderr, "SKIPPED: %s\n", err.text);
            exit(77);
        }
        CHECK_OK(status, err);
        if (!r)
            return;
        bytes[i] = held(r, &stored[i]);
        losses[i][0] = r->iterations[STEPS - 1].loss;
        losses[i][1] = r->iterations[STEPS - 1].validation_loss;
        CHECK(i == 0 || r->predicted_copy_ns > 0);
        CHECK((r->copy_ns > 0) == (i == 1));
        CHECK(i == 0 || r->trace->n_copies > 0);
        weights[i] = read_weights(names[i], &sizes[i]);
        lh_train_result_free(r);
    }
    CHECK_MSG(weights[0] && weights[1] && sizes[0] == sizes[1] &&
                  memcmp(weights[0], weights[1], sizes[0]) == 0,
              "%s: other weights", what);
    CHECK(memcmp(losses[0], losses[1], sizeof losses[0]) == 0);
    CHECK_INT(stored[0], 0);
    CHECK(stored[1] > 0);
    CHECK_MSG(bytes[1] < bytes[0], "%s: %lld bytes, without %lld", what,
              (long long)bytes[1], (long long)bytes[0]);
    CHECK(is_empty(files));
    free(weights[0]);
    free(weights[1]);
}

static void weights_are_unaffected(void)
{
    const uint32_t cheap = 1u << LH_PART_ATTENTION_NORM |
                           1u << LH_PART_MLP_NORM | 1u << LH_PART_ACTIVATION;
    static lh_model mixtral, gpt2, deepseek;
    mixtral = tiny_mixtral(LAYERS);
    gpt2 = tiny_gpt2(LAYERS);
    deepseek = tiny_deepseek(LAYERS);
    compare((setup){"ud", "gpipe", 2, 1, .of = 4}, "gpipe");
    compare((setup){"ud", "1f1b", 4, 1, .of = 1}, "1f1b");
    compare((setup){"loop", "interleaved-1f1b", 2, 1, .of = 2}, "interleaved");
    compare((setup){"ud", "gpipe", 1, 2, .of = 8}, "replicas");
    compare((setup){"ud", "gpipe", 2, 1, .of = 3, .again = cheap}, "again");
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .validation = 0.2},
            "validation");
    compare(
        (setup){"ud", "gpipe", 2, 2, .of = 4, .gradients = 1, .parameters = 1},
        "zero-3");
    compare((setup){"ud", "gpipe", 2, 1, .of = 2, .model = &mixtral}, "moe");
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .model = &gpt2}, "gpt2");
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .model = &deepseek},
            "deepseek");
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .transport = "local"},
            "processes");
}

/* Ranks that communicate within passes are unaffected, too. */
static void weights_of_ranks_that_communicate_are_unaffected(void)
{
    static lh_model mixtral;
    mixtral = tiny_mixtral(LAYERS);
    compare((setup){"loop", "elastic", 2, 2, .of = 2, .gradients = 1,
                    .parameters = 1, .elastic = true},
            "elastic");
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .context = 2}, "context");
    compare(
        (setup){"ud", "gpipe", 2, 2, .of = 4, .expert = 2, .model = &mixtral},
        "expert");
    static lh_model pairs;
    pairs = tiny_model(LAYERS);
    pairs.kv_heads = pairs.heads;
    compare((setup){"ud", "gpipe", 2, 1, .of = 4, .tensor = 2, .model = &pairs},
            "tensor");
}

/* With emulated links, file bandwidth is emulated, too: copies take the
 * pipeline's time, and passes wait for them. */
static void copies_take_the_time_of_the_pipeline(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    const setup s = {
        "ud", "gpipe", 1, 1, .of = 8, .emulates = true, .copy_us = 20000};
    CHECK_OK(train(&s, NULL, &r, &err), err);
    if (!r)
        return;
    CHECK_INT(r->predicted_copy_ns, 16 * INT64_C(20000000));
    CHECK_INT(r->trace->n_copies, 16);
    for (uint32_t i = 0; i < r->trace->n_copies; i++) {
        const lh_trace_offload *c = &r->trace->copies[i];
        CHECK(c->end_ns - c->depart_ns >= INT64_C(20000000));
        for (uint32_t k = 0; k < r->trace->n_runs && c->is_reload; k++) {
            const lh_trace_run *run = &r->trace->runs[k];
            if (run->pass.kind != LH_F && run->pass.chunk == c->chunk &&
                run->pass.microbatch == c->microbatch)
                CHECK(run->start_ns >= c->end_ns);
        }
    }
    CHECK(r->copy_ns >= r->predicted_copy_ns);
    /* Passes do not wait while they compute, which takes long on a busy
     * machine. */
    int64_t computed_ns = 0;
    for (uint32_t i = 0; i < r->trace->n_runs; i++)
        computed_ns += r->trace->runs[i].end_ns - r->trace->runs[i].start_ns;
    CHECK(r->copy_wait_ns + computed_ns > r->predicted_copy_ns / 4);
    CHECK(r->iterations[STEPS - 1].ns >= r->predicted_copy_ns);
    lh_train_result_free(r);
}

/* --- runs that end during copies of an hour each ------------------------ */

static const setup for_hours = {
    "ud", "gpipe", 2, 1, .of = 4, .emulates = true, .copy_us = 3600000000};
static int n_asked;

static int soon(void *none)
{
    (void)none;
    return ++n_asked > MICROBATCHES ? LH_STOP_NOW : LH_STOP_NO;
}

/* Only the first rank polls for a stop; the other one is notified. */
static void interruptions_do_not_wait_for_copies(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    n_asked = 0;
    stop = soon;
    CHECK_OK(train(&for_hours, NULL, &r, &err), err);
    CHECK(r && r->interrupted && r->n_iterations == 0);
    lh_train_result_free(r);
    r = NULL;
    lh_pipeline *p = make_pipeline(&for_hours);
    lh_schedule *schedule = schedule_by(p, "gpipe");
    lh_exec *x = NULL;
    CHECK_OK(lh_exec_make(p, schedule, NULL, &x, &err), err);
    const lh_train_options o = {.size = sizeof o, .stop = stop};
    n_asked = 0;
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    CHECK(r && r->interrupted && r->n_iterations == 0);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    stop = NULL;
}

static pid_t caller;

static int kill_one(void *none)
{
    (void)none;
    if (getpid() != caller && ++n_asked == MICROBATCHES)
        kill_sibling();
    return LH_STOP_NO;
}

static void lost_ranks_do_not_wait_for_copies(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    setup s = for_hours;
    s.transport = "local";
    n_asked = 0;
    caller = getpid();
    stop = kill_one;
    CHECK_INT(train(&s, NULL, &r, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 1");
    CHECK(!r);
    stop = NULL;
}

static void an_invalid_folder_is_rejected(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    char none[128];
    snprintf(none, sizeof none, "%s/none", folder);
    const setup s = {"ud", "gpipe", 2, 1, .of = 4, .to = none};
    CHECK_INT(train(&s, NULL, &r, &err), LH_EIO);
    CHECK_HAS(err.text, none);
    CHECK_HAS(err.text, "--offload-to");
}

/* A full disk, emulated by a file size limit of a few pages. */
static void a_full_disk_ends_the_run(void)
{
    static const char *const transports[] = {"inproc", "local"};
    for (int i = 0; i < 2; i++) {
        int state = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            lh_error err = {0};
            lh_train_result *r = NULL;
            const struct rlimit little = {30 * 4096, 30 * 4096};
            const setup s = {"ud", "gpipe", 2,
                             1,    .of = 4, .transport = transports[i]};
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &little);
            lh_status status = train(&s, NULL, &r, &err);
            bool said = status == LH_EIO && strstr(err.text, "no space for") &&
                        strstr(err.text, files) && strstr(err.text, "rank ");
            if (!said)
                fprintf(stderr, "status %d: %s\n", (int)status, err.text);
            _exit(said ? 0 : 1);
        }
        CHECK_INT(waitpid(child, &state, 0), child);
        CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
        CHECK(is_empty(files));
    }
}

/* The pipeline's copies and the model's offload must agree. */
static void inconsistent_offloads_are_rejected(void)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    setup s = {"ud", "gpipe", 2, 1, .of = 4, .again = LH_PART_ALL};
    CHECK_INT(train(&s, NULL, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "none of its layers");
}

int main(void)
{
    char command[128];
    snprintf(folder, sizeof folder, "/tmp/longhaul-offload-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    snprintf(files, sizeof files, "%s/files", folder);
    CHECK_INT(mkdir(files, 0700), 0);
    training_text(text_path, 6000);
    RUN_VIRTUAL(weights_are_unaffected);
    RUN_VIRTUAL(weights_of_ranks_that_communicate_are_unaffected);
    RUN_VIRTUAL(copies_take_the_time_of_the_pipeline);
    RUN_VIRTUAL(interruptions_do_not_wait_for_copies);
    RUN_VIRTUAL(lost_ranks_do_not_wait_for_copies);
    RUN_VIRTUAL(an_invalid_folder_is_rejected);
    RUN_VIRTUAL(a_full_disk_ends_the_run);
    RUN_VIRTUAL(inconsistent_offloads_are_rejected);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
    return test_summary();
}
