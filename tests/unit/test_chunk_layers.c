/* SPDX-License-Identifier: Apache-2.0 */
/* A job's layout.layers: read, written, and respected by every plan. Also
 * training.dropout. */
#include "test_job.h"

#include "jobs.h"
#include "plans.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/export.h>

#define PP2 "layout: {tensor: 2, pipeline: 2, chunks_per_device: 2, layers: "

static void bad_layers_are_refused(void)
{
    refuse(JOB PP2 "8}\n", "layout.layers: must be a list");
    refuse(JOB PP2 "[16, 16]}\n",
           "layout.layers: requires pipeline and chunks_per_device, and one "
           "entry for each");
    refuse(JOB "layout: {pipeline: 2, layers: [16, 16]}\n",
           "layout.layers: requires pipeline and chunks_per_device");
    refuse(JOB PP2 "[8, 8, 8, 9]}\n",
           "layout.layers: add up to 33, but llama3-8b has 32 layers");
    refuse(JOB "layout: {pipeline: 1, chunks_per_device: 3, "
               "layers: [16, 0, 16]}\n",
           "layout.layers[1]: ");
    refuse(JOB "layout: {pipeline: 2, layers: []}\n",
           "layout.layers: requires pipeline and chunks_per_device");
}

#define MTP                                                                    \
    "longhaul: job/1\n"                                                        \
    "model: deepseek-v3\n"                                                     \
    "training: {global_batch: 64, sequence: 4096}\n"                           \
    "cluster: {gpu: h200, gpus_per_node: 8,\n"                                 \
    "          node_link: {gbps: 3600, latency_us: 3},\n"                      \
    "          fabric: {gbps: 400, latency_us: 8},\n"                          \
    "          datacenters: [{name: west, nodes: 16}]}\n"                      \
    "layout: {tensor: 1, context: 1, expert: 64, pipeline: 2, data: 64,\n"     \
    "         micro_batch: 1, chunks_per_device: 2, "

static void modules_are_behind_all_layers(void)
{
    refuse(JOB PP2 "[8, 8, 16, 0], mtp_chunk: 2}\n",
           "layout.mtp_chunk: requires a model with mtp_layers");
    refuse(MTP "mtp_chunk: 2}\n",
           "layout.mtp_chunk: requires layout.layers and a pipeline above 1");
    refuse(MTP "layers: [30, 30, 1, 0], mtp_chunk: 1}\n",
           "layout.mtp_chunk: is 1, but chunk 2 has layers");
    refuse(MTP "layers: [30, 30, 1, 0], mtp_chunk: 0}\n", "layout.mtp_chunk");
    refuse(MTP "layers: [30, 30, 1, 0], mtp_chunk: 4}\n", "layout.mtp_chunk");
    refuse(MTP "layers: [30, 30, 1, 0], mtp_chunk: 2}\n"
               "profile: {longhaul: profile/1, entries: [{kind: head, "
               "sequence: 4096,\n"
               "  F_us: 1, D_us: 1, W_us: 1}]}\n",
           "has head times that include multi-token prediction");
}

/* Separate slices equal a joint one: the parameters and passes of the two
 * slices add up to those of the one. */
static void modules_apart_cost_what_they_do_with_the_head(void)
{
    lh_error err = {0};
    lh_job *job = parse(MTP "layers: [30, 30, 1, 0], mtp_chunk: 2}\n", &err);
    const lh_cost_layer_range slices[] = {
        {.head = true},
        {.head = true, .mtp = LH_MTP_ELSEWHERE},
        {.mtp = LH_MTP_IN_RANGE},
        {.head = false}};
    lh_cost c[4] = {{.params = 0}};
    CHECK_MSG(job, "%s", err.text);
    for (int i = 0; job && i < 4; i++)
        CHECK_OK(
            lh_cost_chunk(job, &job->layout, &slices[i], NULL, &c[i], &err),
            err);
    CHECK_INT(c[0].params, c[1].params + c[2].params);
    CHECK_INT(c[0].expert_params, c[1].expert_params + c[2].expert_params);
    CHECK_INT(c[0].activation_bytes,
              c[1].activation_bytes + c[2].activation_bytes);
    CHECK_NEAR((double)c[0].f.total_ns,
               (double)(c[1].f.total_ns + c[2].f.total_ns), 2);
    CHECK_NEAR((double)c[0].w.total_ns,
               (double)(c[1].w.total_ns + c[2].w.total_ns), 2);
    /* The MTP module alone: one layer with 256 experts, and 2 x hidden^2. */
    CHECK_NEAR(c[2].f.flops, c[0].f.flops - c[1].f.flops, 1);
    CHECK_INT(c[3].f.total_ns, 0);
    CHECK_INT(c[3].params, 0);
    lh_job_free(job);
}

/* A message from the MTP module to the head has the size of two hidden states.
 */
static void messages_behind_modules_are_larger(void)
{
    lh_error err = {0};
    static const char *const says[] = {"", ", mtp_chunk: 2"};
    int64_t transfer[2] = {0}, elsewhere[2] = {0};
    lh_plan_options o = {.size = sizeof o, .no_optimal = true};
    for (int k = 0; k < 2; k++) {
        lh_plan *plan = NULL;
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 2\n"
            "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, "
            "vocab: 1000, mtp_layers: 1}\n"
            "training: {global_batch: 8, sequence: 1024}\n"
            "layout: {tensor: 1, context: 1, data: 1, pipeline: 4, "
            "micro_batch: 1, chunks_per_device: 1, layers: [4, 4, 0, 0]%s}\n",
            says[k]);
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
        for (uint32_t i = 0; plan && i < lh_pipeline_n_links(plan->pipeline);
             i++) {
            const lh_link *l = lh_pipeline_link(plan->pipeline, i);
            if (l->from == 2 && l->to == 3)
                transfer[k] = l->transfer_ns;
            if (l->from == 0 && l->to == 1)
                elsewhere[k] = l->transfer_ns;
        }
        lh_plan_free(plan);
        lh_job_free(job);
    }
    CHECK(transfer[0] > 0 && elsewhere[0] > 0);
    CHECK_INT(transfer[1], 2 * transfer[0]);
    CHECK_INT(elsewhere[1], elsewhere[0]);
}

/* Megatron-LM runs modules only in the last of a rank's two chunks: of eight
 * chunks on four ranks, in number 5 but not in 3. */
static void megatron_has_modules_in_last_chunks(void)
{
    static const char *const layers[] = {
        "[2, 2, 2, 2, 0, 0, 0, 0], mtp_chunk: 5",
        "[4, 2, 2, 0, 0, 0, 0, 0], mtp_chunk: 3"};
    const lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .target = LH_TARGET_MEGATRON};
    for (int k = 0; k < 2; k++) {
        lh_error err = {0};
        lh_plan *plan = NULL;
        lh_job *job =
            job_with(JOB_SMALL,
                     "  gpus_per_node: 2\n"
                     "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, "
                     "vocab: 1000, mtp_layers: 1}\n"
                     "training: {global_batch: 8, sequence: 1024}\n"
                     "layout: {tensor: 1, context: 1, data: 1, pipeline: 4, "
                     "micro_batch: 1, chunks_per_device: 2, layers: %s}\n",
                     layers[k]);
        const lh_status status = lh_plan_make(job, &o, &plan, &err);
        CHECK_MSG((status == LH_OK) == (k == 0), "%s: %s", layers[k], err.text);
        if (k == 1)
            CHECK_HAS(err.text, "in the last chunk of a rank");
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

static void the_text_has_them(void)
{
    lh_error err;
    char *text = NULL;
    lh_job *back = NULL;
    lh_job *j = parse(JOB PP2 "[7, 8, 8, 9]}\n", &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_OK(lh_job_format(j, &text, NULL, &err), err);
    CHECK_OK(lh_job_parse(text, strlen(text), "again", NULL, &back, &err), err);
    CHECK(back && back->layout.n_chunk_layers == 4 &&
          back->layout.chunk_layers[3] == 9);
    lh_text_free(text);
    lh_job_free(back);
    lh_job_free(j);
}

static void check_layers(const lh_choice *c, const uint32_t *want, uint32_t n)
{
    uint32_t chunks = c->layout.pipeline * c->layout.chunks_per_device;
    if (c->status != LH_CHOICE_OK || chunks != n)
        return;
    CHECK(c->chunk_layers != NULL);
    for (uint32_t i = 0; c->chunk_layers && i < n; i++)
        CHECK_INT(c->chunk_layers[i], want[i]);
}

/* More imbalanced than the search's own choice; so the search bound must not
 * exceed it. */
static void every_plan_keeps_them(void)
{
    static const uint32_t want[] = {2, 14, 14, 2};
    lh_job *job = job_with(JOB_TWO_SITES,
                           "layout: {tensor: 2, context: 1, pipeline: 2, "
                           "chunks_per_device: 2, layers: [2, 14, 14, 2]}\n");
    lh_plan_options o = {.size = sizeof o};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan) {
        CHECK(plan->best.chunk_layers != NULL);
        check_layers(&plan->best, want, 4);
        for (uint32_t i = 0; i < plan->n_alternatives; i++)
            check_layers(&plan->alternatives[i], want, 4);
        CHECK(plan->search_bound_ns <= plan->best.iteration_ns);
    }
    lh_plan_free(plan);
    plan = NULL;
    o.partition = LH_PARTITION_EXACT;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "layout.layers");
    lh_job_free(job);
}

/* Meta's partition of Llama 3 405B: one layer in each of 128 chunks, except the
 * first (embedding only) and the last (head only) (arXiv:2407.21783, section
 * 3.3.2). */
static void ends_without_layers(void)
{
    uint32_t want[128];
    char text[1024], layers[512];
    size_t len = 0;
    for (int i = 0; i < 128; i++) {
        want[i] = i > 0 && i < 127;
        len += (size_t)snprintf(layers + len, sizeof layers - len, "%s%u",
                                i ? ", " : "", want[i]);
    }
    snprintf(text, sizeof text,
             "longhaul: job/1\n"
             "model: llama3-405b\n"
             "training: {global_batch: 128, sequence: 8192, zero: 1}\n"
             "cluster:\n"
             "  gpu: h200\n"
             "  gpus_per_node: 8\n"
             "  node_link: {gbps: 3600, latency_us: 3}\n"
             "  fabric: {gbps: 400, latency_us: 8}\n"
             "  datacenters: [{name: west, nodes: 64}]\n"
             "layout: {tensor: 8, context: 1, pipeline: 16, micro_batch: 1, "
             "chunks_per_device: 8,\n         layers: [%s]}\n",
             layers);
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_job *job = parse(text, &err);
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .target = LH_TARGET_MEGATRON};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan) {
        lh_layout l = plan->best.layout;
        lh_cost_layer_range slice = {.embedding = true, .n_sites = 0};
        lh_cost cost = {0};
        check_layers(&plan->best, want, 128);
        CHECK(!plan->best.elastic);
        CHECK(plan->search_bound_ns <= plan->best.iteration_ns);
        CHECK(plan->best.lower_bound_ns <= plan->best.iteration_ns);
        CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
        CHECK_INT(lh_pipeline_chunk(plan->pipeline, 0)->f_ns, cost.f.total_ns);
        char *megatron = NULL, *same = NULL;
        CHECK_OK(lh_export_megatron(plan, NULL, &megatron, NULL, &err), err);
        CHECK_HAS(megatron, "--pipeline-model-parallel-layout E|t*1|t*1|");
        CHECK_HAS(megatron, "|t*1|L\n");
        lh_text_free(megatron);
        lh_plan_free(plan_again(plan, &same));
        if (same) { /* a chunk without layers omits one */
            char *at = strstr(strstr(same, "\"chunk_layers\""), "1");
            *at = '0';
            plan_refused(same, "125 layers for a model of 126");
        }
        lh_text_free(same);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Dropout masks are stored for attention, its output and the MLP's output. */
static void dropout_is_the_jobs_to_say(void)
{
    static const char *const says[] = {"", ", dropout: false",
                                       ", dropout: true"};
    int64_t bytes[2][3];
    for (int norm = 0; norm < 2; norm++)
        for (int k = 0; k < 3; k++) {
            lh_layout layout = {.tensor = 1,
                                .context = 1,
                                .expert = 1,
                                .pipeline = 1,
                                .data = 1,
                                .micro_batch = 1,
                                .chunks_per_device = 1};
            lh_cost_layer_range slice = {.n_layers = 2};
            lh_cost cost = {0};
            lh_error err = {0};
            lh_job *job = job_with(
                JOB_SMALL,
                "model: {layers: 4, hidden: 1024, ffn: 4096, heads: 8, "
                "vocab: 1000, norm: %s}\n"
                "training: {global_batch: 8, sequence: 1024%s}\n",
                norm ? "layer" : "rms", says[k]);
            CHECK_OK(lh_cost_chunk(job, &layout, &slice, NULL, &cost, &err),
                     err);
            bytes[norm][k] = cost.activation_bytes;
            lh_job_free(job);
        }
    CHECK_INT(bytes[0][0], bytes[0][1]); /* rms: default is no dropout */
    CHECK_INT(bytes[1][0], bytes[1][2]); /* layer: default is dropout */
    CHECK(bytes[0][2] > bytes[0][1] && bytes[1][2] > bytes[1][1]);
}

int main(void)
{
    RUN(bad_layers_are_refused);
    RUN(modules_are_behind_all_layers);
    RUN(modules_apart_cost_what_they_do_with_the_head);
    RUN(messages_behind_modules_are_larger);
    RUN(megatron_has_modules_in_last_chunks);
    RUN(the_text_has_them);
    RUN(every_plan_keeps_them);
    RUN(ends_without_layers);
    RUN(dropout_is_the_jobs_to_say);
    return test_summary();
}
