/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded training runs and checks after them: weights, losses, and memory
 * against its prediction. */
#ifndef TEST_SHARDED_RUNS_H
#define TEST_SHARDED_RUNS_H

#include "kill_sibling.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <math.h>
#include <stdlib.h>

enum { LAYERS = 8, STEPS = 6, ALL_MICROBATCHES = 16, SEQUENCE = 24 };

static void (*progress)(void *context, const lh_iteration *iteration);

/* Configuration of a training run; zeros are defaults. */
typedef struct setup {
    uint32_t stages, chunks, replicas;
    uint32_t tensor, expert, cut; /* 0: 1; cut: ranks that share one expert */
    uint32_t slices, sequence;    /* 0: whole sequences; SEQUENCE tokens */
    double dropout;
    bool both_ways;                /* two directions: placement bd */
    const char *enqueue, *dequeue; /* NULL: 1F1B without operations */
    double gradients, parameters;
    uint32_t scatter, forward, backward; /* buckets */
    const char *data;                    /* replaces the elastic section; NULL:
                                          * none */
    const char *transport, *resume;
    uint32_t again;
    bool tied, delays, experts;
    double validation;
    uint64_t steps;            /* 0: STEPS */
    uint32_t checkpoint_every; /* 0: only at the end */
    double rate;               /* 0: 3e-3 */
    const char *method;        /* NULL: elastic or 1f1b */
    uint32_t sub_blocks;       /* parts of W; 0: 1 */
    bool split;                /* split backward */
    bool by_layer;
    lh_train_group_link gathers, reductions; /* emulated, with `delays` */
    const uint32_t *sites;
    bool leaders;
    bool whole_optimizer;               /* ZeRO 0 */
    lh_model (*model)(uint32_t layers); /* NULL: tiny_model or tiny_mixtral */
    const char *then;       /* method to switch to at step 2; NULL: none */
    const uint32_t *layers; /* ... and its chunks' layers; NULL */
} setup;

/* Creates the pipeline for the configuration. */
static inline lh_pipeline *make_pipeline(const setup *s)
{
    char text[2048], elastic[1024] = "", slices[64] = "";
    const uint32_t k = s->slices ? s->slices : 1;
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
    if (k > 1)
        snprintf(slices, sizeof slices, "slices: {count: %u}\n", k);
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %u\n"
             "devices: %u\n%suniform: {placement: %s, "
             "chunks_per_device: %u, F: 60, D: 60, W: 60}\n%s%s",
             k * ALL_MICROBATCHES / s->replicas / (s->both_ways ? 2 : 1),
             s->stages, s->split ? "" : "backward: joint\n",
             s->both_ways ? "bd" : "loop", s->chunks, elastic, slices);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

static char switch_refused[512]; /* error text of the switch; "": accepted */

/* lh_train_options.switched: keeps the error text. */
static inline void note_switch(void *of, const lh_switch *what)
{
    (void)of;
    snprintf(switch_refused, sizeof switch_refused, "%s",
             what->refused ? what->refused : "");
}

/* lh_train_options.reschedule: proposes the schedule at step 2. */
static inline const lh_reschedule *go_on_with(void *of, uint64_t step)
{
    return step == 2 ? of : NULL;
}

/* Trains with the configuration; `name` is the checkpoint's. */
static inline lh_status train(const setup *s, const char *name,
                              lh_train_result **out, lh_error *err)
{
    char path[128];
    uint32_t first_layers[17], again[LAYERS];
    lh_model model = s->model     ? s->model(LAYERS)
                     : s->experts ? tiny_mixtral(LAYERS)
                                  : tiny_model(LAYERS);
    lh_pipeline *p = make_pipeline(s);
    lh_schedule *schedule = NULL, *switched = NULL;
    lh_exec *x = NULL;
    lh_method_options with = {.size = sizeof with, .sub_blocks = s->sub_blocks};
    const char *method = s->method       ? s->method
                         : s->enqueue    ? "elastic"
                         : s->chunks > 1 ? "interleaved-1f1b"
                         : s->slices > 1 ? "seq1f1b"
                                         : "1f1b";
    lh_reschedule then = {.size = sizeof then, .name = "then"};
    if (!p)
        return LH_EINVAL;
    model.tied_embeddings = s->tied;
    uint32_t n = lh_pipeline_n_chunks(p) / (s->both_ways ? 2 : 1);
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    for (uint32_t i = 0; i < LAYERS; i++)
        again[i] = s->again;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.recompute = again;
    m.sequence = s->sequence ? s->sequence : SEQUENCE;
    m.dropout = s->dropout;
    m.replicas = s->replicas;
    m.tensor = s->tensor;
    m.expert = s->expert;
    m.expert_tensor = s->cut ? s->cut : 1;
    m.sharded_gradients = s->gradients;
    m.sharded_parameters = s->parameters;
    m.per_layer_sharding = s->by_layer;
    m.unsharded_optimizer = s->whole_optimizer;
    m.layer_links = (lh_train_collective_links){s->gathers, s->reductions};
    m.sites = s->sites;
    m.reduce_by_leaders = s->leaders;
    m.seed = 5;
    m.data = text_path;
    m.rate = s->rate > 0 ? s->rate : 3e-3;
    m.min_rate = m.rate;
    m.validation = s->validation;
    m.validate_every = s->validation > 0 ? 2 : 0;
    m.checkpoint = path;
    m.fresh = true; /* names are used again */
    m.checkpoint_every = s->checkpoint_every;
    m.resume = s->resume;
    m.emulate_links = s->delays;
    const lh_train_options o = {.size = sizeof o,
                                .transport =
                                    s->transport ? s->transport : "inproc",
                                .steps = s->steps ? s->steps : STEPS,
                                .context = &then,
                                .reschedule = s->then ? go_on_with : NULL,
                                .switched = note_switch,
                                .progress = progress};
    lh_status status = lh_method_run(method, p, &with, &schedule, NULL, err);
    if (status == LH_OK && s->then)
        status = lh_method_run(s->then, p, NULL, &switched, NULL, err);
    then.schedule = switched;
    then.layers = s->layers;
    if (status == LH_OK)
        status = lh_exec_make(p, schedule, NULL, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    lh_schedule_free(switched);
    lh_pipeline_free(p);
    return status;
}

/* --- outcome -------------------------------------------------------------- */

/* Weights, losses and memory of a finished run. */
typedef struct outcome {
    char *weights;
    size_t size;
    double losses[STEPS];
    double most_bytes; /* peak of any rank, without messages */
} outcome;

/* Checks measured against predicted memory, and records the peak. */
static inline void check_memory(const lh_train_result *r, const char *name,
                                outcome *out)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    CHECK_INT(n, r->n_ranks);
    for (uint32_t i = 0; i < n; i++) {
        double off =
            (double)all[i].measured_bytes / (double)all[i].predicted_bytes - 1;
        double held = (double)all[i].measured_bytes;
        CHECK_MSG(fabs(off) < 0.03 || (r->n_pool_growths > 0 && off > 0),
                  "%s: rank %u: %lld bytes predicted, %lld held", name,
                  (unsigned)i, (long long)all[i].predicted_bytes,
                  (long long)all[i].measured_bytes);
        out->most_bytes = held > out->most_bytes ? held : out->most_bytes;
    }
}

/* Trains and collects the outcome; failures fail the test. */
static inline outcome run(const setup *s, const char *name)
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
    /* A migration holds its tensors twice for a time; another schedule may need
     * more memory. */
    if (!s->layers && !(s->then && s->enqueue))
        check_memory(r, name, &out);
    lh_train_result_free(r);
    out.weights =
        saved_weights(name, s->steps ? (unsigned)s->steps : STEPS, &out.size);
    return out;
}

/* Compares weights bit by bit. */
static inline bool are_same(const outcome *a, const outcome *b)
{
    return a->weights && b->weights && a->size == b->size &&
           memcmp(a->weights, b->weights, a->size) == 0;
}

/* Computes the largest absolute difference between weights, and the largest
 * relative one between losses. */
static inline void differences(const outcome *a, const outcome *b,
                               double *weights, double *losses)
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

/* Checks for bitwise equality with `want`. */
static inline void check_same(const setup *s, const char *name,
                              const outcome *want)
{
    outcome o = run(s, name);
    CHECK_MSG(are_same(&o, want), "%s: other weights", name);
    free(o.weights);
}

/* Checks for equality with `want` except for the summation order. */
static inline void check_near(const setup *s, const char *name,
                              const outcome *want)
{
    double weights, losses;
    outcome o = run(s, name);
    differences(&o, want, &weights, &losses);
    CHECK_MSG(weights > 0 && losses < 1e-6,
              "%s: losses differ by %g, weights by %g", name, losses, weights);
    free(o.weights);
}

/* Checks that training fails with `says` in the error. */
static inline void check_refused(const setup *s, const char *says)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    CHECK(train(s, "refused", &r, &err) != LH_OK);
    CHECK_HAS(err.text, says);
    CHECK(!r);
}

static int n_done;

/* Progress callback: kills another rank after the second iteration. */
static inline void kill_one(void *of, const lh_iteration *it)
{
    (void)of;
    (void)it;
    if (++n_done == 2)
        kill_sibling();
}

/* Kills a rank after two iterations in a long run with processes: the other
 * ranks report it and end. */
static inline void check_killed(const setup *s)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    n_done = 0;
    progress = kill_one;
    CHECK_INT(train(s, "killed", &r, &err), LH_EIO);
    CHECK_HAS(err.text, "rank ");
    CHECK(!r);
    progress = NULL;
}

#endif
