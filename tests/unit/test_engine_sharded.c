/* SPDX-License-Identifier: Apache-2.0 */
/* Training with what elastic plans shard: gradients that are scattered group by
 * group and freed, parameters that are gathered before use and freed. Weights
 * beside those of replicas that shard the optimizer alone, and memory beside
 * what was predicted. */
#define _GNU_SOURCE
#include "scripted_switches.h"
#include "test.h"
#include "tiny_model.h"

#include <longhaul/engine.h>
#include <longhaul/methods.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAYERS = 8, STEPS = 6, ALL_MICROBATCHES = 16, SEQUENCE = 24 };

static char folder[64], text_path[80];
static void (*progress)(void *context, const lh_iteration *iteration);

typedef struct setup {
    uint32_t stages, chunks, replicas;
    const char *enqueue, *dequeue; /* NULL: 1F1B without operations */
    double gradients, parameters;
    uint32_t scatter, forward, backward; /* buckets */
    const char *data;                    /* in place of what is elastic; NULL */
    const char *transport, *resume;
    uint32_t again;
    bool tied, delays, experts;
    double validation;
    uint64_t steps;            /* 0: STEPS */
    uint32_t checkpoint_every; /* 0: at the end alone */
    double rate;               /* 0: 3e-3 */
} setup;

static lh_pipeline *make_pipeline(const setup *s)
{
    char text[2048], elastic[1024] = "";
    lh_error err;
    lh_pipeline *p = NULL;
    if (s->data)
        snprintf(elastic, sizeof elastic, "%s", s->data);
    else if (s->enqueue)
        snprintf(elastic, sizeof elastic,
                 "data_parallel:\n  elastic: {enqueue: [%s], dequeue: [%s], "
                 "transfer: %d, gradients: %.17g, parameters: %.17g, "
                 "buckets: {scatter: %u, forward: %u, backward: %u}}\n",
                 s->enqueue, s->dequeue, s->delays ? 300 : 10, s->gradients,
                 s->parameters, s->scatter, s->forward, s->backward);
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\nbackward: joint\nuniform: {placement: loop, "
             "chunks_per_device: %u, F: 60, D: 60, W: 60}\n%s",
             ALL_MICROBATCHES / s->replicas, s->stages, s->chunks, elastic);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

static lh_status train(const setup *s, const char *name, lh_train_result **out,
                       lh_error *err)
{
    char path[128];
    uint32_t first_layers[17], again[LAYERS];
    lh_model model = s->experts ? tiny_mixtral(LAYERS) : tiny_model(LAYERS);
    lh_pipeline *p = make_pipeline(s);
    lh_schedule *schedule = NULL;
    lh_exec *x = NULL;
    lh_method_options with = {.size = sizeof with};
    if (!p)
        return LH_EINVAL;
    model.tied_embeddings = s->tied;
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    for (uint32_t i = 0; i < LAYERS; i++)
        again[i] = s->again;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.again = again;
    m.sequence = SEQUENCE;
    m.replicas = s->replicas;
    m.sharded_gradients = s->gradients;
    m.sharded_parameters = s->parameters;
    m.seed = 5;
    m.data = text_path;
    m.rate = s->rate > 0 ? s->rate : 3e-3;
    m.min_rate = m.rate;
    m.validation = s->validation;
    m.validate_every = s->validation > 0 ? 2 : 0;
    m.checkpoint = path;
    m.checkpoint_every = s->checkpoint_every;
    m.resume = s->resume;
    m.emulate_links = s->delays;
    const lh_train_options o = {.size = sizeof o,
                                .transport =
                                    s->transport ? s->transport : "inproc",
                                .steps = s->steps ? s->steps : STEPS,
                                .progress = progress};
    lh_status status = lh_method_run(s->enqueue ? "elastic" : "1f1b", p, &with,
                                     &schedule, NULL, err);
    if (status == LH_OK)
        status = lh_exec_make(p, schedule, NULL, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

/* --- what came out ---------------------------------------------------------
 */

typedef struct outcome {
    char *weights;
    size_t size;
    double losses[STEPS];
    double most_bytes; /* held by any rank, without messages */
} outcome;

static char *read_weights(const char *name, unsigned step, size_t *size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/step-%08u/model.safetensors", folder,
             name, step);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    if (bytes && fread(bytes, 1, *size, file) != *size) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

static void check_memory(const lh_train_result *r, const char *name,
                         outcome *out)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_memory_held(r, &n);
    CHECK_INT(n, r->n_ranks);
    for (uint32_t i = 0; i < n; i++) {
        double off =
            (double)all[i].measured_bytes / (double)all[i].predicted_bytes - 1;
        double held = (double)all[i].measured_bytes;
        CHECK_MSG(fabs(off) < 0.03 || (r->n_grown > 0 && off > 0),
                  "%s: rank %u: %lld bytes predicted, %lld held", name,
                  (unsigned)i, (long long)all[i].predicted_bytes,
                  (long long)all[i].measured_bytes);
        out->most_bytes = held > out->most_bytes ? held : out->most_bytes;
    }
}

static outcome run(const setup *s, const char *name)
{
    lh_error err;
    lh_train_result *r = NULL;
    outcome out = {0};
    lh_status status = train(s, name, &r, &err);
    CHECK_MSG(status == LH_OK, "%s: %s", name, err.text);
    if (status != LH_OK)
        return out;
    for (uint32_t i = 0; i < r->n_iterations && i < STEPS; i++)
        out.losses[i] = r->iterations[i].loss;
    check_memory(r, name, &out);
    lh_train_result_free(r);
    out.weights =
        read_weights(name, s->steps ? (unsigned)s->steps : STEPS, &out.size);
    CHECK_MSG(out.weights != NULL, "%s: no weights", name);
    return out;
}

static bool are_same(const outcome *a, const outcome *b)
{
    return a->weights && b->weights && a->size == b->size &&
           memcmp(a->weights, b->weights, a->size) == 0;
}

/* The largest difference of two weights, and of two losses relative to one. */
static void differences(const outcome *a, const outcome *b, double *weights,
                        double *losses)
{
    uint64_t head = 0;
    *weights = *losses = 0;
    if (!a->weights || !b->weights || a->size != b->size)
        return;
    memcpy(&head, a->weights, sizeof head);
    for (size_t at = 8 + head; at + 4 <= a->size; at += 4) {
        float x, y;
        memcpy(&x, a->weights + at, 4);
        memcpy(&y, b->weights + at, 4);
        *weights = fmax(*weights, fabs((double)x - (double)y));
    }
    for (int i = 0; i < STEPS; i++)
        *losses = fmax(*losses, fabs(a->losses[i] / b->losses[i] - 1));
}

/* --- tests -----------------------------------------------------------------
 */

static outcome plain; /* two replicas, the optimizer sharded */

static void all_at_once_is_as_before(void)
{
    static const setup all[] = {
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 0,
         .parameters = 0,
         .scatter = 1,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = 0,
         .scatter = 3,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = 1,
         .scatter = 3,
         .forward = 2,
         .backward = 2},
        {.stages = 2,
         .chunks = 4,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = .6,
         .parameters = .3,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .transport = "local"},
        {.stages = 1,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = .7,
         .scatter = 8,
         .forward = 8,
         .backward = 8,
         .again = LH_PART_ALL},
        {.stages = 4,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = .5,
         .parameters = .5,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .delays = true},
    };
    const setup reference = {.stages = 2, .chunks = 1, .replicas = 2};
    plain = run(&reference, "plain");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        snprintf(name, sizeof name, "once%zu", i);
        outcome o = run(&all[i], name);
        CHECK_MSG(are_same(&o, &plain), "%s: other weights", name);
        free(o.weights);
    }
}

/* The same bits for the same groups and gradients, whatever else. */
static void groups(void)
{
    static const setup all[] = {
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 0,
         .scatter = 3,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 1,
         .scatter = 2,
         .forward = 2,
         .backward = 2},
        {.stages = 2,
         .chunks = 4,
         .replicas = 2,
         .enqueue = "4,2,2",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .4,
         .scatter = 1,
         .forward = 1,
         .backward = 2,
         .transport = "local"},
        {.stages = 1,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 1,
         .scatter = 4,
         .forward = 4,
         .backward = 4,
         .again = LH_PART_ALL},
        {.stages = 4,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .6,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .delays = true},
        {.stages = 1,
         .chunks = 1,
         .replicas = 2,
         .enqueue = "3,5",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .5,
         .scatter = 2,
         .forward = 1,
         .backward = 1,
         .again = 0x51},
    };
    outcome first = {0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        double weights, losses;
        snprintf(name, sizeof name, "groups%zu", i);
        outcome o = run(&all[i], name);
        differences(&o, &plain, &weights, &losses);
        CHECK_MSG(losses < 1e-6, "%s: losses differ by %g", name, losses);
        CHECK_MSG(weights > 0, "%s: sums in another order would differ", name);
        if (getenv("LONGHAUL_SHOW"))
            fprintf(stderr, "%s: weights %g, losses %g\n", name, weights,
                    losses);
        if (i == 0) {
            first = o;
            continue;
        }
        CHECK_MSG(are_same(&o, &first), "%s: other weights", name);
        free(o.weights);
    }
    free(first.weights);
}

/* Weights of experts lie together, gate, up and down of each: they are cut off
 * together, wherever the share ends. */
static void experts(void)
{
    static const double shares[] = {1, .55, .42, .3};
    setup reference = {
        .stages = 2, .chunks = 1, .replicas = 2, .experts = true};
    setup other = {.stages = 1,
                   .chunks = 2,
                   .replicas = 2,
                   .enqueue = "4,4",
                   .dequeue = "4,4",
                   .scatter = 3,
                   .forward = 2,
                   .backward = 2,
                   .experts = true};
    outcome want = run(&reference, "experts");
    for (uint32_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double weights, losses;
        other.gradients = shares[i];
        other.parameters = i % 2 ? 0 : shares[i];
        outcome got = run(&other, "experts-cut");
        differences(&got, &want, &weights, &losses);
        CHECK_MSG(weights > 0 && losses < 1e-6,
                  "%.2f: losses differ by %g, weights by %g", shares[i], losses,
                  weights);
        free(got.weights);
    }
    free(want.weights);
}

/* A level each, and what is made again, from one checkpoint to the next, with
 * validation in between, tied embeddings and another pipeline: as long as all
 * go backward in one group, not a bit differs. */
static void levels_change_at_checkpoints(void)
{
    static const double shares[][2] = {{0, 0}, {1, 1}, {.7, 0}, {1, .4}};
    setup reference = {.stages = 2,
                       .chunks = 1,
                       .replicas = 2,
                       .tied = true,
                       .validation = .1,
                       .checkpoint_every = 2,
                       .steps = 2};
    setup other = {.stages = 2,
                   .chunks = 2,
                   .replicas = 2,
                   .enqueue = "8",
                   .dequeue = "8",
                   .scatter = 3,
                   .forward = 2,
                   .backward = 2,
                   .tied = true,
                   .validation = .1,
                   .checkpoint_every = 2};
    char from[2][128];
    snprintf(from[0], sizeof from[0], "%s/tied", folder);
    snprintf(from[1], sizeof from[1], "%s/levels", folder);
    for (uint32_t i = 0; i < 4; i++) {
        reference.steps = other.steps = 2 * (i + 1);
        reference.resume = i ? from[0] : NULL;
        other.resume = i ? from[1] : NULL;
        other.gradients = shares[i][0];
        other.parameters = shares[i][1];
        other.again = i % 2 ? LH_PART_ALL : 0;
        other.stages = i % 2 ? 1 : 2;
        outcome a = run(&reference, "tied"), b = run(&other, "levels");
        CHECK_MSG(are_same(&a, &b), "after change %u: other weights", i);
        free(a.weights);
        free(b.weights);
    }
}

static uint32_t next_random(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % n;
}

/* Parts of n, none below `least`. */
static void draw_groups(uint32_t *state, uint32_t n, uint32_t least, char *text)
{
    const char *between = "";
    for (; n > 0; between = ",") {
        uint32_t one = least + next_random(state, n);
        if (one > n || n - one < least)
            one = n;
        text += sprintf(text, "%s%u", between, one);
        n -= one;
    }
}

/* Any groups, shares, buckets, chunks, stages and replicas. */
static void any_of_them(void)
{
    uint32_t state = 7;
    for (uint32_t i = 0; i < 12; i++) {
        char name[32], up[64] = "", down[64] = "";
        double weights, losses;
        setup s = {.stages = 1 + next_random(&state, 4),
                   .chunks = 1 + next_random(&state, 2),
                   .replicas = 1u << next_random(&state, 3),
                   .again = next_random(&state, 2) ? LH_PART_ALL : 0,
                   .steps = STEPS};
        uint32_t n = ALL_MICROBATCHES / s.replicas;
        const setup plainly = {
            .stages = 1, .chunks = 1, .replicas = s.replicas};
        if (n < s.stages)
            s.stages = 1;
        draw_groups(&state, n, s.stages, up);
        draw_groups(&state, n, s.stages, down);
        s.enqueue = up;
        s.dequeue = down;
        s.gradients = next_random(&state, 5) / 4.0;
        s.parameters = s.gradients * next_random(&state, 5) / 4.0;
        s.scatter = 1 + next_random(&state, 4);
        s.forward = 1 + next_random(&state, 4);
        s.backward = 1 + next_random(&state, 4);
        snprintf(name, sizeof name, "any%u", i);
        outcome a = run(&s, name), b = run(&plainly, "any-plainly");
        differences(&a, &b, &weights, &losses);
        CHECK_MSG(losses < 1e-6,
                  "%s: %u stages, %u chunks, %u replicas, %s up, %s down, %g, "
                  "%g: losses differ by %g",
                  name, s.stages, s.chunks, s.replicas, s.enqueue, s.dequeue,
                  s.gradients, s.parameters, losses);
        free(a.weights);
        free(b.weights);
    }
}

/* Less than half where state counts: four replicas, many chunks. */
static void holds_less(void)
{
    const setup much = {.stages = 1,
                        .chunks = 8,
                        .replicas = 4,
                        .enqueue = "4",
                        .dequeue = "4",
                        .scatter = 1,
                        .forward = 1,
                        .backward = 1};
    setup least = much;
    least.gradients = least.parameters = 1;
    least.again = LH_PART_ALL;
    least.forward = least.backward = 2;
    outcome a = run(&much, "much"), b = run(&least, "least");
    CHECK(are_same(&a, &b));
    CHECK_MSG(b.most_bytes < .5 * a.most_bytes, "%.0f of %.0f bytes",
              b.most_bytes, a.most_bytes);
    free(a.weights);
    free(b.weights);
}

/* --- faults ----------------------------------------------------------------
 */

/* Two chunks on one stage, whose second one has these operations. */
#define TWO_CHUNKS(operations)                                                 \
    {                                                                          \
        .stages = 1, .chunks = 2, .replicas = 2, .enqueue = "8",               \
        .gradients = 1,                                                        \
        .data = "data_parallel:\n  groups: {enqueue: [8], dequeue: [4, 4]}\n"  \
                "  chunks: [{chunk: 0, all_gather: 5, reduce_scatter: 5}]\n"   \
                "  operations:\n" operations                                   \
    }
#define AGO                                                                    \
    "  - {chunk: 1, all_gather: 5, kind: AGO, launch: 0F0, before: 1F0}\n"
#define RSG "  - {chunk: 1, reduce_scatter: 5, kind: RSG, launch: 0B0}\n"
#define RSG0 "  - {chunk: 0, reduce_scatter: 5, kind: RSG, launch: 1B4}\n"
#define RSO "  - {chunk: 1, reduce_scatter: 5, kind: RSO, launch: 0B4}\n"
#define BUCKET(b, launched)                                                    \
    "  - {chunk: 1, reduce_scatter: 5, kind: RSG, bucket: " b                  \
    ", launch: " launched "}\n"
#define GATHERED(b, launched, waits)                                           \
    "  - {chunk: 1, all_gather: 5, kind: AGB, bucket: " b                      \
    ", launch: " launched waits "}\n"

static void refuses(void)
{
    static const struct {
        setup s;
        const char *says;
    } rows[] = {
        {{.stages = 2, .chunks = 1, .replicas = 2, .gradients = 1},
         "it needs data_parallel.groups"},
        {TWO_CHUNKS(AGO RSO),
         "two groups' gradients still have to be scattered"},
        {TWO_CHUNKS(AGO RSG RSG0), "its gradients are not scattered"},
        {TWO_CHUNKS(RSG RSG0 RSO), "what was updated is not gathered"},
        {TWO_CHUNKS(AGO RSG0 "  - {chunk: 1, reduce_scatter: 5, kind: RSO, "
                             "launch: 0B0}\n"),
         "the last scatter comes before the last backward"},
        {TWO_CHUNKS(AGO BUCKET("1/2", "0B0") RSG0 RSO),
         "a bucket of its gradients is left out or comes twice"},
        {TWO_CHUNKS(AGO BUCKET("0/2", "0B0") BUCKET("0/2", "0B1") RSG0 RSO),
         "a bucket of its gradients is left out or comes twice"},
        {TWO_CHUNKS(AGO BUCKET("0/3", "0B0") BUCKET("1/2", "0B1") RSG0 RSO),
         "a bucket of its gradients is left out or comes twice"},
        {TWO_CHUNKS(AGO RSG RSG0 GATHERED("1/2", "0B1", ", before: 1B4") RSO),
         "a bucket of its parameters is left out or comes twice"},
        {TWO_CHUNKS(AGO RSG RSG0 "  - {chunk: 1, reduce_scatter: 5, kind: RSO, "
                                 "bucket: 0/2, launch: 0B4}\n"),
         "what comes once an iteration is cut into buckets"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 2,
          .gradients = .1,
          .parameters = .2},
         "of parameters at most that of gradients"},
    };
    const setup there[] = {
        TWO_CHUNKS(AGO RSG RSG0 RSO),
        TWO_CHUNKS(AGO BUCKET("0/2", "0B0") BUCKET("1/2", "0B1") RSG0 RSO),
        TWO_CHUNKS(AGO RSG RSG0 GATHERED("0/2", "0B0", "")
                       GATHERED("1/2", "0B1", ", before: 1B4") RSO)};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        free(run(&there[i], "all-there").weights);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_error err = {0};
        lh_train_result *r = NULL;
        CHECK(train(&rows[i].s, "refused", &r, &err) != LH_OK);
        CHECK_HAS(err.text, rows[i].says);
        CHECK(!r);
    }
}

static int n_done;

static void kill_one(void *of, const lh_iteration *it)
{
    (void)of;
    if (++n_done == 2)
        kill_sibling();
    (void)it;
}

/* While the others gather, or scatter, and wait for it. */
static void killed(void)
{
    setup s = {.stages = 2,
               .chunks = 2,
               .replicas = 2,
               .enqueue = "4,4",
               .dequeue = "4,4",
               .gradients = 1,
               .parameters = 1,
               .scatter = 2,
               .forward = 2,
               .backward = 2,
               .transport = "local",
               .steps = 100000};
    for (int i = 0; i < 2; i++) {
        lh_error err = {0};
        lh_train_result *r = NULL;
        s.delays = i == 1;
        progress = kill_one;
        CHECK_INT(train(&s, "killed", &r, &err), LH_EIO);
        CHECK_HAS(err.text, "rank ");
        CHECK(!r);
    }
    progress = NULL;
}

int main(void)
{
    char command[128];
    snprintf(folder, sizeof folder, "/tmp/longhaul-sharded-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    FILE *file = fopen(text_path, "w");
    uint32_t state = 1;
    for (int i = 0; file && i < 9000; i++) {
        state = state * 1664525 + 1013904223;
        fputc("etaoin shrdlu\n"[(state >> 24) % 14], file);
    }
    if (file)
        fclose(file);
    RUN(all_at_once_is_as_before);
    RUN(groups);
    RUN(experts);
    RUN(levels_change_at_checkpoints);
    RUN(any_of_them);
    RUN(holds_less);
    RUN(refuses);
    RUN(killed);
    free(plain.weights);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
    return test_summary();
}
