/* SPDX-License-Identifier: Apache-2.0 */
/* Breakdown of a plan's time, and the best alternative in every dimension. */
#include "jobs.h"
#include "plans.h"

#include <longhaul/experimental/plan.h>

#include <stdlib.h>

static unsigned batch = 16; /* sequences per iteration */

static lh_job *job_of(const char *training, const char *link,
                      const char *layout)
{
    return job_with(JOB_A100S,
                    "  gpus_per_node: 2\n"
                    "  links: [{between: [west, east], %s}]\n"
                    "model: {layers: 12, hidden: 2048, ffn: 8192, heads: 16, "
                    "kv_heads: 16, head_dim: 128, vocab: 32000, gated: true, "
                    "tied_embeddings: false}\n"
                    "training: {global_batch: %u, sequence: 2048%s}\n"
                    "layout: {%s}\n",
                    link, batch, training, layout);
}

static lh_plan *make_of(const lh_job *job)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static lh_plan *make(const char *training, const char *link, const char *layout)
{
    lh_job *job = job_of(training, link, layout);
    lh_plan *plan = make_of(job);
    lh_job_free(job);
    return plan;
}

static void check_sum(const lh_plan *p)
{
    const lh_plan_breakdown *a = p->breakdown;
    const int64_t parts[] = {a->compute_ns, a->intra_layer_ns,  a->imbalance_ns,
                             a->bubble_ns,  a->messages_ns,     a->data_ns,
                             a->offload_ns, a->memory_stall_ns, a->optimizer_ns,
                             a->overhead_ns};
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        CHECK_MSG(parts[i] >= 0, "part %zu is %" PRId64, i, parts[i]);
        sum += parts[i];
    }
    CHECK_INT(sum, p->best.iteration_ns);
}

static void check_text(const lh_plan *p)
{
    char *text = NULL;
    lh_plan *again = plan_again(p, &text);
    if (again) {
        CHECK(again->breakdown &&
              again->breakdown->compute_ns == p->breakdown->compute_ns);
        CHECK_INT(again->n_dimension_alternatives, p->n_dimension_alternatives);
    }
    lh_plan_free(again);
    /* Parts with a wrong sum are rejected. */
    char *at = strstr(text, "\"compute_s\": ");
    CHECK(at != NULL);
    if (at)
        at[strlen("\"compute_s\": ")] = '7';
    plan_refused(text, "adds up to");
    lh_text_free(text);
}

/* GPipe with equal passes and free links: the closed form. */
static void parts_of_gpipe(void)
{
    lh_plan *p = make(", recompute: none, zero: 0", "latency_ms: 1, gbps: 800",
                      "tensor: 1, pipeline: 2, data: 1, micro_batch: 1, "
                      "chunks_per_device: 1, schedule: gpipe");
    const lh_plan_breakdown *a = p->breakdown;
    const lh_chunk *x = lh_pipeline_chunk(p->pipeline, 0);
    const lh_chunk *y = lh_pipeline_chunk(p->pipeline, 1);
    const lh_link *link = lh_pipeline_link(p->pipeline, 0);
    int64_t n = 16, first = x->f_ns + x->d_ns + x->w_ns,
            last = y->f_ns + y->d_ns + y->w_ns;
    check_sum(p);
    CHECK_INT(a->intra_layer_ns, 0);
    CHECK_INT(a->data_ns, 0);
    CHECK_INT(a->compute_ns, n * (first + last) / 2);
    CHECK_INT(a->compute_ns + a->imbalance_ns,
              n * (first > last ? first : last));
    /* The last device, with the head, is slower: it waits for one F, and the
     * first still has a backward. */
    CHECK(last > first);
    CHECK_INT(a->bubble_ns, first);
    CHECK_INT(a->messages_ns, 2 * (link->latency_ns + link->transfer_ns));
    CHECK_INT(a->memory_stall_ns, 0);
    check_text(p);
    lh_plan_free(p);
}

/* Copies longer than passes: the stream is busy from the end of the first F to
 * the start of the last B. */
static void parts_of_offloading(void)
{
    lh_plan *p = make(", recompute: none, zero: 0, offload: {layers: 1, "
                      "storage_gbps: 0.1}",
                      "latency_ms: 1, gbps: 800",
                      "framework: longhaul, tensor: 1, pipeline: 1, data: 1, "
                      "micro_batch: 1, chunks_per_device: 1, schedule: gpipe");
    const lh_plan_breakdown *a = p->breakdown;
    const lh_chunk *x = lh_pipeline_chunk(p->pipeline, 0);
    int64_t n = 16, b = x->d_ns + x->w_ns;
    check_sum(p);
    CHECK(x->offload_ns > b);
    CHECK_INT(a->compute_ns, n * (x->f_ns + b));
    CHECK_INT(a->offload_ns,
              x->f_ns + 2 * n * x->offload_ns + b - n * (x->f_ns + b));
    CHECK_INT(a->bubble_ns, 0);
    lh_plan *again = plan_again(p, NULL);
    CHECK(again && again->breakdown->offload_ns == a->offload_ns);
    lh_plan_free(again);
    check_text(p);
    lh_plan_free(p);
}

static void causes(void)
{
    const char *layout = "tensor: 2, pipeline: 2, data: 2, micro_batch: 1, "
                         "outermost: pipeline, schedule: 1f1b";
    lh_plan *near = make("", "latency_ms: 0.01, gbps: 10000", layout);
    lh_plan *far = make("", "latency_ms: 100, gbps: 10000", layout);
    lh_plan *out = make("", "latency_ms: 1, gbps: 1",
                        "tensor: 2, pipeline: 2, data: 2, micro_batch: 1, "
                        "outermost: data, schedule: 1f1b");
    check_sum(near);
    check_sum(far);
    check_sum(out);
    CHECK(near->breakdown->intra_layer_ns > 0);
    CHECK_INT(near->breakdown->compute_ns, far->breakdown->compute_ns);
    CHECK(far->breakdown->messages_ns >
          near->breakdown->messages_ns + 100000000);
    CHECK_INT(far->breakdown->data_ns, near->breakdown->data_ns);
    CHECK(out->breakdown->data_ns > out->best.iteration_ns / 2);
    check_text(far);
    lh_plan_free(near);
    lh_plan_free(far);
    lh_plan_free(out);
}

/* The same layout with the elastic schedule and with 1F1B: its passes
 * communicate as much, for any sharding in the plan. */
static void elastic_sends_as_much(void)
{
    const char *layout = "tensor: 2, pipeline: 2, data: 2, micro_batch: 1, "
                         "chunks_per_device: 1, schedule: %s";
    char text[120];
    snprintf(text, sizeof text, layout, "1f1b");
    lh_plan *plain =
        make(", recompute: none, zero: 1", "latency_ms: 1, gbps: 400", text);
    snprintf(text, sizeof text, layout, "elastic");
    CHECK(!plain->best.elastic && plain->breakdown->intra_layer_ns > 0);
    for (int zero = 2; zero <= 3; zero++) {
        char training[60];
        snprintf(training, sizeof training, ", recompute: none, zero: %d",
                 zero);
        lh_plan *own = make(training, "latency_ms: 1, gbps: 400", text);
        CHECK(own->best.elastic != NULL);
        check_sum(own);
        CHECK_INT(own->breakdown->intra_layer_ns,
                  plain->breakdown->intra_layer_ns);
        CHECK_INT(own->breakdown->compute_ns, plain->breakdown->compute_ns);
        lh_plan_free(own);
    }
    lh_plan_free(plain);
}

/* Passes that wait for their layers' parameters and gradients neither compute
 * nor wait for tensor parallelism. */
static void waits_for_shares_are_data_parallelism(void)
{
    const char *layout = "tensor: 2, pipeline: 2, data: 2, micro_batch: 1, "
                         "outermost: data, sharding: full, schedule: 1f1b";
    const char *links = "latency_ms: 20, gbps: 100";
    lh_plan *plain = make(", recompute: none, zero: 1", links, layout);
    int64_t before_ns = plain->breakdown->data_ns;
    for (int zero = 2; zero <= 3; zero++) {
        char training[60];
        snprintf(training, sizeof training, ", recompute: none, zero: %d",
                 zero);
        lh_plan *own = make(training, links, layout);
        check_sum(own);
        /* Up to the rounding in each pass. */
        CHECK_NEAR((double)own->breakdown->intra_layer_ns,
                   (double)plain->breakdown->intra_layer_ns, 1000);
        CHECK_NEAR((double)own->breakdown->compute_ns,
                   (double)plain->breakdown->compute_ns, 1000);
        /* 6 layers per rank, in each of 8 microbatches. */
        CHECK(own->breakdown->data_ns > before_ns + 6 * 8 * INT64_C(20000000));
        before_ns = own->breakdown->data_ns;
        lh_plan_free(own);
    }
    lh_plan_free(plain);
}

static const lh_plan_dimension_alternative *find(const lh_plan *p,
                                                 const char *dimension)
{
    for (uint32_t i = 0; i < p->n_dimension_alternatives; i++)
        if (strcmp(p->dimension_alternatives[i].dimension, dimension) == 0)
            return &p->dimension_alternatives[i];
    return NULL;
}

/* Returns the best plan with the dimension fixed to each other value. */
static int64_t best_other(const char *key, const uint32_t *values, uint32_t own)
{
    int64_t best = INT64_MAX;
    for (; *values; values++) {
        char layout[60];
        if (*values == own)
            continue;
        snprintf(layout, sizeof layout, "%s: %" PRIu32, key, *values);
        lh_plan *p = make("", "latency_ms: 5, gbps: 100", layout);
        if (p && p->best.iteration_ns < best)
            best = p->best.iteration_ns;
        lh_plan_free(p);
    }
    return best;
}

static void check_runner(const lh_plan *p, const char *key,
                         const uint32_t *values, uint32_t own)
{
    const lh_plan_dimension_alternative *r = find(p, key);
    CHECK_MSG(r != NULL, "no other %s", key);
    if (!r)
        return;
    CHECK(r->choice.status == LH_CHOICE_OK);
    /* Most layouts are first evaluated with one method: an alternative within
     * 0.5 % may have been judged slower. */
    int64_t other = best_other(key, values, own);
    CHECK(r->choice.iteration_ns >= other);
    CHECK_MSG((double)r->choice.iteration_ns <= 1.005 * (double)other,
              "another %s takes %" PRId64 " ns, not %" PRId64, key,
              r->choice.iteration_ns, other);
    CHECK(r->choice.iteration_ns >= p->best.iteration_ns);
    CHECK_MSG(r->bound_ns >= 0 && r->bound_ns <= other,
              "another %s: %s, but one takes %" PRId64 " ns", key,
              r->choice.why, other);
}

static void runners(void)
{
    static const uint32_t two[] = {1, 2, 0}, eight[] = {1, 2, 4, 8, 0},
                          batches[] = {1, 2, 4, 8, 0}, chunks[] = {1, 2, 4, 0};
    lh_plan *p = make("", "latency_ms: 5, gbps: 100", "");
    const lh_layout *l = &p->best.layout;
    check_runner(p, "tensor", two, l->tensor);
    check_runner(p, "data", eight, l->data);
    check_runner(p, "micro_batch", batches, l->micro_batch);
    check_runner(p, "chunks_per_device", chunks, l->chunks_per_device);
    CHECK(!find(p, "expert"));
    const lh_plan_dimension_alternative *r = find(p, "schedule");
    CHECK(r && strcmp(r->choice.layout.schedule, l->schedule) != 0);
    r = find(p, "recompute");
    CHECK(r && r->choice.recompute != p->best.recompute);
    CHECK_INT(p->n_layouts, p->n_memory + p->n_bounded + p->n_simulated);
    CHECK(p->n_alternatives <= 10);
    check_text(p);
    lh_plan_free(p);
}

#define QUICK "micro_batch: 2, chunks_per_device: 1, schedule: greedy"

/* Returns the best time over both datacenters at one oversubscription. */
static int64_t point(const lh_layout *like, double x, const char *sites)
{
    char layout[160], link[80];
    snprintf(link, sizeof link, "latency_ms: 1, gbps: 50, oversubscription: %g",
             x);
    snprintf(layout, sizeof layout, QUICK ", tensor: %" PRIu32 ", sites: [%s]",
             like->tensor, sites);
    lh_plan *plan = make("", link, layout);
    int64_t ns = plan ? plan->best.iteration_ns : -1;
    lh_plan_free(plan);
    return ns;
}

/* With many microbatches pipelines overlap their traffic while the link is
 * wide, but they send more, so that replicas are faster over a narrow one. */
static void curves(void)
{
    batch = 512;
    lh_job *job = job_of("", "latency_ms: 1, gbps: 50", QUICK);
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .curves = true};
    lh_plan *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &p, &err), err);
    CHECK_INT(p->n_curves, 1); /* no experts */
    const lh_plan_curve *c = &p->curves[0];
    const int64_t *pipelines = c->iteration_ns, *replicas = pipelines + 6;
    CHECK(c->over == LH_CURVE_OVERSUBSCRIPTION && c->n_points == 6);
    CHECK_STR(c->series[0], "PP-out");
    CHECK_STR(c->series[1], "DP-out");
    for (uint32_t i = 0; i < c->n_points; i += 5) {
        CHECK_INT(pipelines[i],
                  point(&p->best.layout, c->xs[i], "{pipeline: [west, east]}"));
        CHECK_INT(replicas[i], point(&p->best.layout, c->xs[i],
                                     "{pipeline: [west]}, {pipeline: [east]}"));
    }
    CHECK(pipelines[0] < replicas[0] && replicas[5] < pipelines[5]);
    CHECK_INT(c->n_crossings, 1);
    for (uint32_t i = 0; i + 1 < c->n_points; i++)
        if (c->crossings[0] >= c->xs[i] && c->crossings[0] <= c->xs[i + 1])
            CHECK(pipelines[i] <= replicas[i] &&
                  pipelines[i + 1] >= replicas[i + 1]);
    check_text(p);
    lh_plan_free(p);
    lh_job_free(job);
    batch = 16;
}

/* On unequal GPUs the plan's chunks are uneven, while those in curves are even:
 * at the job's own links no point is slower than the plan, which is on the
 * curve. */
static void curves_hold_the_plan(void)
{
    lh_job *job = job_with(
        JOB_TWO_SITES,
        "  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2, gpu: "
        "{tflops: 150, memory_gib: 80, memory_gbps: 2000, efficiency: 0.5}}]\n"
        "layout: {tensor: 4, context: 1, outermost: pipeline, pipeline: 4, "
        "chunks_per_device: 1}\n");
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .layout_effort = LITTLE_WORK / 10,
                         .curves = true};
    lh_plan *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &p, &err), err);
    if (p) {
        const lh_plan_curve *c = &p->curves[0];
        CHECK(p->best.chunk_layers && c->xs[0] <= 1);
        CHECK_MSG(c->iteration_ns[0] > 0 &&
                      c->iteration_ns[0] <= p->best.iteration_ns,
                  "%" PRId64 " ns, the plan takes %" PRId64, c->iteration_ns[0],
                  p->best.iteration_ns);
        CHECK(c->iteration_ns[c->n_points - 1] >= p->best.iteration_ns);
    }
    lh_plan_free(p);
    lh_job_free(job);
}

/* True from call `most` on. */
typedef struct ending {
    uint32_t n, most;
} ending;

static bool has_ended(void *context, uint32_t done, uint32_t total,
                      int64_t best_ns)
{
    ending *e = context;
    (void)done, (void)total, (void)best_ns;
    return e->n++ >= e->most;
}

static lh_plan *curves_until(const lh_job *job, ending *e)
{
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .layout_effort = LITTLE_WORK / 10,
                         .curves = true,
                         .threads = 1, /* for the number of calls */
                         .progress = has_ended,
                         .context = e};
    lh_plan *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &p, &err), err);
    return p;
}

/* Points that an interrupted search did not reach are absent: -1 would mean
 * that nothing fits. */
static void curves_that_end_early(void)
{
    lh_job *job =
        job_with(JOB_TWO_SITES, "layout: {tensor: 4, context: 1, pipeline: 2, "
                                "chunks_per_device: 1}\n");
    ending never = {0, UINT32_MAX};
    lh_plan *whole = curves_until(job, &never);
    CHECK(whole && whole->n_curves == 1 && whole->curves[0].n_points == 6);
    uint32_t shorter = 0;
    for (uint32_t less = 8; whole && less < 16 && less < never.n; less += 3) {
        ending early = {0, never.n - less};
        lh_plan *p = curves_until(job, &early);
        const lh_plan_curve *all = &whole->curves[0];
        const lh_plan_curve *c = p && p->n_curves ? &p->curves[0] : NULL;
        shorter += c && c->n_points < 6;
        for (uint32_t i = 0; c && i < c->n_points; i++)
            for (uint32_t k = 0; k < c->n_series; k++)
                CHECK_INT(c->iteration_ns[k * c->n_points + i],
                          all->iteration_ns[k * all->n_points + i]);
        lh_plan_free(p);
    }
    CHECK(shorter > 0);
    lh_plan_free(whole);
    lh_job_free(job);
}

int main(void)
{
    RUN(parts_of_gpipe);
    RUN(parts_of_offloading);
    RUN(causes);
    RUN(elastic_sends_as_much);
    RUN(waits_for_shares_are_data_parallelism);
    RUN(runners);
    RUN(curves);
    RUN(curves_hold_the_plan);
    RUN(curves_that_end_early);
    return test_summary();
}
