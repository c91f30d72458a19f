/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's statements about its layout must match its pipeline: every edited
 * key is rejected at its position. */
#include "jobs.h"
#include "plan_edits.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/plan.h>

typedef plan_edit edit;

static char *text_of(const char *with)
{
    const lh_plan_options how = {.size = sizeof how, .effort = 10000};
    return planned_text(with, &how);
}

static void try_edits(const char *with, const edit *edits, size_t n)
{
    char *text = text_of(with);
    CHECK(text);
    for (size_t i = 0; text && i < n; i++)
        try_edit(text, &edits[i]);
    lh_text_free(text);
}

#define TRY(with, edits) try_edits(with, edits, sizeof edits / sizeof *edits)

/* Pipelines across both datacenters, two chunks per device. */
static void pipeline_outermost(void)
{
    static const edit edits[] = {
        {NULL, "\"zero\"", "1", NULL},
        {NULL, "\"zero\"", "0",
         ": zero: is '0', but the plan's pipeline was built with '1'; to "
         "change it, set training.zero in the job and plan again"},
        {NULL, "\"zero\"", "2", ": zero: is '2', but the plan's pipeline was"},
        {NULL, "\"zero\"", "3", ": zero: is '3', but the plan's pipeline was"},
        {NULL, "\"recompute\"", "\"none\"", NULL},
        {NULL, "\"recompute\"", "\"full\"",
         ": recompute: is 'full', but the plan's pipeline was built with "
         "'none'; "
         "to change it, set training.recompute in the job and plan again"},
        {NULL, "\"recompute\"", "\"selective\"", ": recompute: is 'selective'"},
        {NULL, "\"placement\"", "\"loop\"", NULL},
        {NULL, "\"placement\"", "\"ud\"",
         ": placement: is 'ud', but layout.chunks_per_device is 2, which lie "
         "as 'loop' or 'wave'"},
        {NULL, "\"placement\"", "\"irregular\"", ": placement: is 'irregular'"},
        {NULL, "\"placement\"", "\"wave\"",
         ": placement: is 'wave', but the plan's pipeline has chunk 2 on "
         "device 0, not 1"},
        {"\"methods\"", "\"placement\"", "\"ud\"", ": methods[0].placement: "},
        {NULL, "\"bubble_ratio\"", "0.001",
         ": bubble_ratio: does not match makespan_ns and the passes"},
        {NULL, "\"mfu\"", "0.001",
         ": mfu: does not match iteration_ns and the job's model and GPUs;"},
        {"\"methods\"", "\"mfu\"", "0.001", ": methods[0].mfu: does not match"},
        {NULL, "\"peak_memory_bytes\"", "1",
         ": peak_memory_bytes: is 1, but the device with the least free memory "
         "needs"},
        {NULL, "\"memory_limit_bytes\"", "80000000000",
         ": memory_limit_bytes: is 80000000000, but the limit of the device "
         "with the least free memory is "},
        {NULL, "\"cost_source\"", "\"modelx\"",
         ": cost_source: is 'modelx'; expected model, efficiency, profile, "
         "mixed or part-efficiency"},
        {NULL, "\"cost_source\"", "\"profile\"",
         ": cost_source: is 'profile', but the times of the plan's pipeline "
         "are "
         "from 'model'"},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but all are equivalent for this "
         "layout, and plans use 'full'; to change it, set"},
        {NULL, "\"outermost\"", "\"data\"", "outermost is data, but there is"},
    };
    TRY("  gpus_per_node: 4\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 4, "
        "micro_batch: 1, chunks_per_device: 2, outermost: pipeline, "
        "schedule: interleaved-1f1b}\n",
        edits);
}

/* Whole pipelines in each datacenter: state sharding affects times. */
static void data_outermost(void)
{
    static const edit edits[] = {
        {NULL, "\"sharding\"", "\"full\"", NULL},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but the job requires 'full'"},
        {NULL, "\"outermost\"", "\"pipeline\"", "outermost is pipeline, but"},
        {NULL, "\"zero\"", "3", ": zero: is '3', but the plan's pipeline was"},
    };
    TRY("  gpus_per_node: 2\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 2, "
        "micro_batch: 1, outermost: data, sharding: full}\n",
        edits);
    static const edit open[] = {
        {NULL, "\"sharding\"", "\"full\"", NULL},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but the plan's pipeline was built "
         "with "
         "'full'; to change it, set layout.sharding in the job"},
        {NULL, "\"sharding\"", "\"hybrid-leaders\"",
         ": layout.sharding: is 'hybrid-leaders', but the plan's pipeline was"},
    };
    TRY("  gpus_per_node: 2\n"
        "training: {global_batch: 16, sequence: 2048, zero: 1}\n"
        "layout: {tensor: 1, context: 1, pipeline: 1, data: 4, "
        "micro_batch: 1, chunks_per_device: 1, outermost: data}\n",
        open);
}

/* One datacenter: `outermost` has only one valid value. */
static void one_site(void)
{
    static const edit edits[] = {
        {NULL, "\"outermost\"", "\"pipeline\"", NULL},
        {NULL, "\"outermost\"", "\"data\"",
         ": layout.outermost: is 'data', but both are equivalent here, and "
         "plans use 'pipeline'"},
        {NULL, "\"cost_source\"", "\"efficiency\"", NULL},
        {NULL, "\"cost_source\"", "\"model\"",
         ": cost_source: is 'model', but the times of the plan's pipeline are "
         "from 'efficiency'"},
    };
    TRY("  gpu: {preset: h100-sxm, efficiency: 0.4}\n"
        "  gpus_per_node: 4\n"
        "  datacenters: [{name: west, nodes: 1}]\n"
        "  links:\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 2, "
        "micro_batch: 1, chunks_per_device: 1}\n",
        edits);
}

/* A value given in the job must be the plan's. */
static void word_of_the_job(void)
{
    static const edit edits[] = {
        {NULL, "\"outermost\"", "\"pipeline\"",
         ": layout.outermost: is 'pipeline', but the job requires 'data'; to "
         "change it, set layout.outermost in the job and plan again"},
    };
    TRY("  gpus_per_node: 4\n"
        "  datacenters: [{name: west, nodes: 1}]\n"
        "  links:\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 2, "
        "outermost: data}\n",
        edits);
}

/* --- plans with changed values, written again ----------------------------- */

static lh_plan *plan_again(const char *with)
{
    char *text = text_of(with);
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK(text);
    if (text)
        CHECK_OK(lh_plan_parse(text, strlen(text), "plan.json", &plan, &err),
                 err);
    lh_text_free(text);
    return plan;
}

/* `says` NULL: it is accepted. */
static void written_again(const lh_plan *plan, const char *says)
{
    char *text = NULL;
    lh_plan *again = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    if (!text)
        return;
    lh_status status =
        lh_plan_parse(text, strlen(text), "plan.json", &again, &err);
    CHECK_MSG(status == (says ? LH_EINPUT : LH_OK), "%s: status %d: %s",
              says ? says : "as it is", (int)status, err.text);
    if (says)
        CHECK_HAS(err.text, says);
    lh_plan_free(again);
    lh_text_free(text);
}

#define ONE_SITE                                                               \
    "  gpus_per_node: 4\n"                                                     \
    "  datacenters: [{name: west, nodes: 1}]\n"                                \
    "  links:\n"                                                               \
    "training: {global_batch: 16, sequence: 2048}\n"

/* Degrees with as many GPUs for as many microbatches. */
static void other_degrees(void)
{
    lh_plan *plan = plan_again(ONE_SITE "layout: {pipeline: 1}\n");
    uint32_t n = 0;
    if (!plan)
        return;
    lh_layout *l = &plan->best.layout;
    const lh_layout is = *l;
    uint32_t group = is.tensor * is.context * is.data;
    uint32_t together = is.data * is.micro_batch;
    for (uint32_t data = 1; data <= group; data++)
        for (uint32_t tensor = 1; tensor <= group / data; tensor++) {
            if (group % data || together % data || group / data % tensor)
                continue;
            l->data = data;
            l->micro_batch = together / data;
            l->tensor = tensor;
            l->context = group / data / tensor;
            bool same = data == is.data && tensor == is.tensor;
            written_again(plan,
                          same ? NULL : "the plan's pipeline was built with");
            n += !same;
        }
    CHECK(n > 2);
    lh_plan_free(plan);
}

/* Chunk layers that differ from the pipeline's. */
static void other_layers(void)
{
    lh_plan *plan = plan_again(
        ONE_SITE
        "model: {layers: 6, hidden: 1024, ffn: 4096, heads: 8, vocab: 1000}\n"
        "layout: {pipeline: 2, chunks_per_device: 1, tensor: 1}\n");
    uint32_t first, n[2], other[2];
    if (!plan)
        return;
    for (uint32_t c = 0; c < 2; c++)
        lh_plan_layers(plan, c, &first, &n[c]);
    plan->best.chunk_layers = n;
    written_again(plan, NULL);
    other[0] = n[0] + 1;
    other[1] = n[1] - 1;
    plan->best.chunk_layers = other;
    written_again(plan, "in the plan's pipeline; to change them, set "
                        "layout.chunk_layers");
    lh_plan_free(plan);
}

/* An elastic plan's sharding, communication and recomputation. */
static void elastic_parts(void)
{
    lh_plan *plan = plan_again(
        "  gpus_per_node: 8\n"
        "  datacenters: [{name: west, nodes: 16}, {name: east, nodes: 16}]\n"
        "  links: [{between: [west, east], latency_ms: 1, gbps: 800}]\n"
        "model: llama3-70b\n"
        "training: {global_batch: 512, sequence: 8192}\n"
        "layout: {tensor: 8, context: 1, pipeline: 4, data: 8, micro_batch: 1, "
        "chunks_per_device: 4, outermost: data, schedule: elastic}\n");
    CHECK(plan && plan->best.elastic);
    if (!plan || !plan->best.elastic)
        return;
    const lh_plan_elastic *is = plan->best.elastic;
    lh_plan_elastic e = *is;
    plan->best.elastic = &e;
    written_again(plan, NULL);
    CHECK(is->n_enqueue > 1 && is->n_recomputed > 0);
    CHECK(is->gradients >= 1 && is->parameters <= 0);
    uint32_t groups[8];
    memcpy(groups, is->enqueue, is->n_enqueue * sizeof *groups);
    groups[0]--;
    groups[1]++;
    e.enqueue = groups;
    written_again(plan, "enqueue: group 0 has ");
    e = *is;
    e.gradients = 0.9;
    plan->best.zero = 1;
    written_again(plan, "gradients: is 0.9, but the operations of the plan's");
    plan->best.zero = 2;
    e = *is;
    e.parameters = 0.1;
    written_again(plan, "gradients: is, or 'parameters' is, not the value "
                        "that the plan's pipeline was built with");
    e = *is;
    e.scatter_buckets++;
    written_again(plan, "scatter: is");
    e = *is;
    e.n_recomputed--;
    written_again(plan, "recomputed");
    /* All rows of one operation, on a device between the first and the last. */
    e = *is;
    lh_plan_recomputed rows[64];
    uint32_t layers[16];
    memcpy(rows, is->recomputed, is->n_recomputed * sizeof *rows);
    memcpy(layers, rows[0].layers, sizeof layers);
    layers[1] += layers[1] ? -1u : 1;
    for (uint32_t i = 0; i < is->n_recomputed; i++)
        if (memcmp(rows[i].layers, rows[0].layers, sizeof layers) == 0)
            rows[i].layers = layers;
    e.recomputed = rows;
    written_again(plan, "recomputed: is not the value that the plan's pipeline "
                        "was");
    e = *is;
    plan->cost_source = "efficiency";
    written_again(plan,
                  "cost_source: is 'efficiency', but the times of the plan's "
                  "pipeline are from 'model'");
    lh_plan_free(plan);
}

/* Moves time between the optimizer and the rest: their sum stays. */
static void after_the_pipeline(void)
{
    static const char said[] = ": optimizer_ns: is ";
    char *text = text_of("  gpus_per_node: 2\n"
                         "training: {global_batch: 16, sequence: 2048}\n"
                         "layout: {tensor: 1, context: 1, pipeline: 4}\n");
    lh_plan *plan = NULL;
    char *moved = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_parse(text, strlen(text), "plan.json", &plan, &err), err);
    lh_text_free(text);
    if (!plan)
        return;
    plan->best.optimizer_ns += 1000;
    plan->best.overhead_ns -= 1000;
    CHECK_OK(lh_plan_format(plan, &moved, NULL, &err), err);
    lh_plan_free(plan);
    plan = NULL;
    CHECK_INT(lh_plan_parse(moved, strlen(moved), "plan.json", &plan, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, said);
    CHECK_HAS(err.text, "but account.optimizer_s is ");
    lh_text_free(moved);
}

int main(void)
{
    RUN(pipeline_outermost);
    RUN(data_outermost);
    RUN(one_site);
    RUN(word_of_the_job);
    RUN(after_the_pipeline);
    RUN(other_degrees);
    RUN(other_layers);
    RUN(elastic_parts);
    return test_summary();
}
