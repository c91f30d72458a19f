/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated links with data parallelism: replicas train with every message and
 * collective on the plan's links, for twelve combinations of replicas,
 * placement and links. Nothing depends on wall-clock speed: the times of
 * transfers show to the nanosecond that links follow the model. Passes are
 * planned at a microsecond, so the iteration time shows that the links are
 * there. */
#define _POSIX_C_SOURCE 200809L
#include "jobs.h"
#include "plans.h"
#include "training_text.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 2 };

static char text_path[] = "/tmp/longhaul-test-replicas-XXXXXX";

/* Planned passes take a microsecond; actual ones take longer. */
static const char sites_text[] =
    "longhaul: job/1\n"
    "model: {layers: 4, hidden: 64, ffn: 96, heads: 2, vocab: 256}\n"
    "training: {global_batch: 8, sequence: 32, precision: fp32, zero: 1,\n"
    "  recompute: none}\n"
    "cluster:\n"
    "  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}\n"
    "  gpus_per_node: %u\n"
    "  node_link: {gbps: 80, latency_us: 10}\n"
    "  fabric: {gbps: 10, latency_us: 50}\n"
    "  datacenters:\n"
    "    - {name: west, nodes: 1}\n"
    "    - {name: east, nodes: 1}\n"
    "  links:\n"
    "    - {between: [west, east], latency_ms: %u, gbps: %s}\n"
    "layout: {tensor: 1, context: 1, expert: 1, pipeline: 2, data: %u,\n"
    "  micro_batch: 1, chunks_per_device: 1, schedule: %s, %s}\n"
    "profile:\n"
    "  longhaul: profile/1\n"
    "  entries:\n"
    "    - {kind: layer, sequence: 32, F_us: 1, D_us: 1, W_us: 1}\n"
    "    - {kind: embedding, sequence: 32, F_us: 1, D_us: 1, W_us: 1}\n"
    "    - {kind: head, sequence: 32, F_us: 1, D_us: 1, W_us: 1}\n";

/* Replicas, placement, links and schedule. */
typedef struct combination {
    uint32_t replicas;
    const char *places;
    uint32_t latency_ms;
    const char *gbps, *schedule;
} combination;

#define OVER_PIPELINES "outermost: pipeline"
#define OVER_REPLICAS "outermost: data"
/* One datacenter has one replica less; the last replica spans both. */
#define MIXED_2                                                                \
    "sites: [{replicas: 1, pipeline: [{datacenter: west, stages: 2}]}, "       \
    "{replicas: 1, pipeline: [{datacenter: west, stages: 1}, "                 \
    "{datacenter: east, stages: 1}]}]"
#define MIXED_4                                                                \
    "sites: [{replicas: 2, pipeline: [{datacenter: west, stages: 2}]}, "       \
    "{replicas: 2, pipeline: [{datacenter: west, stages: 1}, "                 \
    "{datacenter: east, stages: 1}]}]"

static const combination combinations[] = {
    {2, OVER_PIPELINES, 10, "1", "1f1b"},
    {2, OVER_PIPELINES, 1, "0.02", "zb-h1"},
    {2, OVER_REPLICAS, 10, "1", "zb-h1"},
    {2, OVER_REPLICAS, 1, "0.02", "1f1b"},
    {2, MIXED_2, 10, "1", "1f1b"},
    {2, MIXED_2, 1, "0.02", "zb-h1"},
    {4, OVER_PIPELINES, 10, "1", "zb-h1"},
    {4, OVER_PIPELINES, 1, "0.02", "greedy"},
    {4, OVER_REPLICAS, 10, "1", "1f1b"},
    {4, OVER_REPLICAS, 1, "0.02", "zb-h1"},
    {4, MIXED_4, 10, "1", "1f1b"},
    {4, MIXED_4, 1, "0.02", "1f1b"},
};

static lh_plan *plan_of(const combination *x)
{
    char text[2048];
    lh_error err = {0};
    lh_job *job = NULL;
    snprintf(text, sizeof text, sites_text, 2 * x->replicas, x->latency_ms,
             x->gbps, x->replicas, x->schedule, x->places);
    CHECK_OK(lh_job_parse(text, strlen(text), "job.yaml", ".", &job, &err),
             err);
    return plan_of_job(job);
}

static const lh_link *link_of(const lh_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(plan->pipeline); i++) {
        const lh_link *link = lh_pipeline_link(plan->pipeline, i);
        if (link->name && strcmp(link->name, name) == 0)
            return link;
    }
    return NULL;
}

static int by_departure(const void *a, const void *b)
{
    const lh_trace_message *x = a, *y = b;
    return x->depart_ns < y->depart_ns ? -1 : x->depart_ns > y->depart_ns;
}

/* Checks that each message leaves when it is ready and its predecessor on the
 * link has left, within this replica. The plan's transfer time includes the
 * other replicas' traffic. */
static void check_messages(const lh_plan *plan, const lh_trace *t,
                           bool in_order)
{
    lh_trace_message *all = calloc(t->n_messages + 1u, sizeof *all);
    CHECK(all && t->n_messages == 2 * plan->best.microbatches);
    for (uint32_t k = 0; all && k < t->n_links; k++) {
        const lh_link *link = link_of(plan, t->link_names[k]);
        uint32_t n = 0;
        int64_t free_ns = 0;
        CHECK(link != NULL);
        for (uint32_t i = 0; link && i < t->n_messages; i++)
            if (t->messages[i].link == k)
                all[n++] = t->messages[i];
        qsort(all, n, sizeof *all, by_departure);
        for (uint32_t i = 0; i < n; i++) {
            const lh_trace_message *m = &all[i];
            int64_t at = m->ready_ns > free_ns ? m->ready_ns : free_ns;
            if (in_order)
                CHECK(m->depart_ns >= at);
            else
                CHECK_INT(m->depart_ns, at);
            CHECK_INT(m->sent_ns, m->depart_ns + link->transfer_ns);
            CHECK_INT(m->arrive_ns, m->sent_ns + link->latency_ns);
            free_ns = m->sent_ns;
        }
    }
    free(all);
}

/* Checks that a device's collectives run sequentially on its own link. */
static void check_collectives(const lh_plan *plan, const lh_trace *t)
{
    uint32_t n_chunks = lh_pipeline_n_chunks(plan->pipeline);
    CHECK_INT(t->n_collectives, 2 * n_chunks);
    for (uint32_t d = 0; d < t->n_devices; d++) {
        int64_t free_ns = 0;
        for (uint32_t i = 0; i < t->n_collectives; i++) {
            const lh_trace_collective *x = &t->collectives[i];
            const lh_chunk *c = lh_pipeline_chunk(plan->pipeline, x->chunk);
            if (x->device != d)
                continue;
            CHECK_INT(x->depart_ns,
                      x->ready_ns > free_ns ? x->ready_ns : free_ns);
            CHECK_INT(x->sent_ns - x->depart_ns, x->is_reduce_scatter
                                                     ? c->reduce_scatter_ns
                                                     : c->all_gather_ns);
            CHECK_INT(x->arrive_ns - x->sent_ns, c->dp_latency_ns);
            CHECK(x->arrive_ns <= t->makespan_ns);
            free_ns = x->sent_ns;
            for (uint32_t k = 0; !x->is_reduce_scatter && k < t->n_runs; k++)
                CHECK(t->runs[k].pass.chunk != x->chunk ||
                      t->runs[k].start_ns >= x->arrive_ns);
        }
    }
}

/* Measurements contain no planned memory. */
static void check_memory(const lh_trace *t)
{
    for (uint32_t d = 0; d < t->n_devices; d++)
        CHECK(t->devices[d].memory_static == 0 &&
              t->devices[d].memory_limit == LH_NO_LIMIT);
    for (uint32_t i = 0; i < t->n_runs; i++)
        CHECK(t->runs[i].memory == 0 && t->runs[i].memory_after == 0);
}

static void check_run(const lh_plan *plan, const combination *x,
                      const char *transport)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    lh_train_model m = lh_train_model_defaults();
    m.seed = 3;
    m.data = text_path;
    m.emulate_links = true;
    const lh_train_options run = {
        .size = sizeof run, .transport = transport, .steps = STEPS};
    const lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    /* Rings of mixed replicas queue with messages, which is not emulated. */
    if (lh_pipeline_shares_links(plan->pipeline, LH_NONE)) {
        CHECK(strstr(x->places, "sites") &&
              lh_train_plan(plan, &o, &r, &err) == LH_EUNSUPPORTED);
        m.emulate_links = false;
    }
    CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    if (!r)
        return;
    CHECK_INT(r->n_ranks, 2 * x->replicas);
    CHECK_INT(r->n_replicas, x->replicas);
    if (!m.emulate_links) {
        lh_train_result_free(r);
        return;
    }
    CHECK(r->unshared_ns == plan->best.iteration_ns);
    CHECK(r->predicted_ns >= r->unshared_ns);
    /* The first iteration starts with equal values on all replicas. */
    CHECK_MSG(r->iterations[STEPS - 1].ns >= plan->best.makespan_ns,
              "%u replicas, %s: %lld ns, shorter than the links alone take, "
              "%lld ns",
              x->replicas, x->places, (long long)r->iterations[STEPS - 1].ns,
              (long long)plan->best.makespan_ns);
    CHECK(r->trace != NULL);
    if (r->trace) {
        check_messages(plan, r->trace, strcmp(x->schedule, "greedy") == 0);
        check_collectives(plan, r->trace);
        check_memory(r->trace);
    }
    lh_train_result_free(r);
}

static void links_are_as_planned(void)
{
    for (uint32_t i = 0; i < sizeof combinations / sizeof *combinations; i++) {
        const combination *x = &combinations[i];
        lh_plan *plan = plan_of(x);
        if (plan)
            check_run(plan, x, i % 4 == 3 ? "local" : "inproc");
        lh_plan_free(plan);
    }
}

int main(void)
{
    int fd = mkstemp(text_path);
    CHECK(fd >= 0);
    close(fd);
    training_text(text_path, 4000);
    RUN(links_are_as_planned);
    unlink(text_path);
    return test_summary();
}
