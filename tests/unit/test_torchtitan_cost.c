/* SPDX-License-Identifier: Apache-2.0 */
/* Time and memory of torchtitan's runs, counted by hand from its source:
 * sharded state, gradients in a pipeline, selective recomputation, cross
 * entropy, element-wise operations, attention. And the gradients of DeepSpeed.
 */
#include "jobs.h"

#include <longhaul/experimental/cost.h>

#define TITAN(training, framework)                                             \
    "  gpu: {tflops: 989.5, memory_gib: 80, memory_gbps: 2400}\n"              \
    "training: {global_batch: 32, sequence: 4096, " training "}\n"             \
    "framework: {preset: torchtitan" framework "}\n"

enum { DATA = 4, TOKENS = 2 * 4096, VOCAB = 128256, HIDDEN = 4096 };
static const lh_cost_layer_range LAYER = {.n_layers = 1};
static const lh_cost_layer_range HEAD = {.first_layer = 32, .head = true};

/* Costs a range of a job with these lines, on one tensor-parallel rank or
 * several. */
static lh_cost cost_of(const char *lines, uint32_t tensor, uint32_t pipeline,
                       const lh_cost_layer_range *range)
{
    lh_layout layout = {.tensor = tensor,
                        .context = 1,
                        .expert = 1,
                        .pipeline = pipeline,
                        .data = DATA,
                        .micro_batch = 2,
                        .chunks_per_device = 1};
    lh_cost cost = {0};
    lh_error err;
    lh_job *job = job_with(JOB_TWO_SITES, "%s", lines);
    if (job)
        CHECK_OK(lh_cost_chunk(job, &layout, range, NULL, &cost, &err), err);
    lh_job_free(job);
    return cost;
}

/* FSDP2 shards fp32 parameters; the passes' copy exists only while gathered. */
static void state_has_sixteen_bytes(void)
{
    lh_cost c = cost_of(TITAN("zero: 3", ""), 1, 1, &LAYER);
    CHECK_NEAR((double)c.weight_bytes, 4.0 * (double)c.params / DATA, 1);
    CHECK_NEAR((double)c.gradient_bytes, 4.0 * (double)c.params / DATA, 1);
    CHECK_NEAR((double)c.optimizer_bytes, 8.0 * (double)c.params / DATA, 1);
}

/* The pipeline's stages reduce gradients with the last microbatch only. */
static void pipelines_accumulate_whole_gradients(void)
{
    lh_cost kept = cost_of(TITAN("zero: 2", ""), 1, 2, &LAYER);
    CHECK_INT(kept.weight_bytes, 2 * kept.params);
    CHECK_INT(kept.gradient_bytes, 4 * kept.params);
    CHECK_NEAR((double)kept.optimizer_bytes, 12.0 * (double)kept.params / DATA,
               1);
    CHECK(kept.reduce_scatter_ns > 0 && kept.w.data_ns == 0);
    lh_cost freed = cost_of(TITAN("zero: 3", ""), 1, 2, &LAYER);
    CHECK_INT(freed.gradient_bytes, 4 * freed.params);
    CHECK_NEAR((double)freed.weight_bytes, 4.0 * (double)freed.params / DATA,
               1);
    lh_cost alone = cost_of(TITAN("zero: 2", ""), 1, 1, &LAYER);
    CHECK_NEAR((double)alone.gradient_bytes, 4.0 * (double)alone.params / DATA,
               1);
}

/* Kept: input, queries, values, result and log-sum-exp of attention, gate; with
 * separate kernels also the MLP's result. */
static void selective_saves_every_second_product(void)
{
    double kept = 2.0 * (HIDDEN + HIDDEN + 1024 + HIDDEN + 14336) + 4 * 32;
    lh_cost c =
        cost_of(TITAN("zero: 3, recompute: selective", ""), 1, 1, &LAYER);
    CHECK_NEAR((double)c.activation_bytes, kept * TOKENS, 1);
    lh_cost eager =
        cost_of(TITAN("zero: 3, recompute: selective", ", kernels: eager"), 1,
                1, &LAYER);
    CHECK_NEAR((double)eager.activation_bytes, (kept + 2 * HIDDEN) * TOKENS, 1);
    /* Keys, attention's output and the MLP's second matrix again: products of
     * 1024, 4096 and 14336 columns. */
    lh_cost none = cost_of(TITAN("zero: 3, recompute: none", ""), 1, 1, &LAYER);
    CHECK_NEAR(c.d.flops - none.d.flops,
               2.0 * TOKENS * HIDDEN * (1024 + 4096 + 14336), 1);
}

/* Bytes per logit: cross_entropy_loss() without and with tensor parallelism. */
static void an_eager_loss_allocates_its_temporary_values(void)
{
    double logits = (double)TOKENS * VOCAB;
    lh_cost fused = cost_of(TITAN("zero: 3", ""), 1, 1, &HEAD);
    lh_cost eager = cost_of(TITAN("zero: 3", ", loss: eager"), 1, 1, &HEAD);
    CHECK_NEAR((double)(eager.workspace_bytes - fused.workspace_bytes),
               8 * logits, 1);
    CHECK_INT(eager.activation_bytes, fused.activation_bytes);
    double rate = 2400 * lh_cost_defaults()->memory_efficiency;
    CHECK_NEAR((double)(eager.f.memory_ns - fused.f.memory_ns),
               (22 - 14) * logits / rate, 2);
    CHECK_NEAR((double)(eager.d.memory_ns - fused.d.memory_ns),
               (26 - 10) * logits / rate, 2);
    lh_cost two = cost_of(TITAN("zero: 3", ", loss: eager"), 2, 1, &HEAD);
    lh_cost fused_two = cost_of(TITAN("zero: 3", ""), 2, 1, &HEAD);
    CHECK_NEAR((double)(two.workspace_bytes - fused_two.workspace_bytes),
               12 * logits / 2, 1);
    lh_cost chunked = cost_of(TITAN("zero: 3", ", loss: chunked"), 1, 1, &HEAD);
    CHECK_NEAR((double)chunked.workspace_bytes, 12 * logits / 8, 1);
    CHECK_NEAR((double)chunked.activation_bytes,
               (2 * 2 + 2 * 2) * (double)TOKENS * HIDDEN, 1);
}

/* 16 bytes more for each rotated value, 2 values more for each activation. */
static void eager_kernels_move_more(void)
{
    double rate = 2400 * lh_cost_defaults()->memory_efficiency;
    lh_cost fused = cost_of(TITAN("zero: 3", ""), 1, 1, &LAYER);
    lh_cost eager = cost_of(TITAN("zero: 3", ", kernels: eager"), 1, 1, &LAYER);
    double more = 16.0 * TOKENS * (32 + 8) * 128;
    CHECK_NEAR((double)(eager.f.memory_ns - fused.f.memory_ns),
               (more + 2 * 2.0 * TOKENS * 14336) / rate, 2);
    CHECK_NEAR((double)(eager.d.memory_ns - fused.d.memory_ns),
               (more + 4 * 2.0 * TOKENS * 14336 + 9 * 2.0 * TOKENS * HIDDEN) /
                   rate,
               2);
}

/* FSDP2 copies what it gathered: a read and a write of 16 bits. With tensor
 * parallelism the sequence is the second dimension, unless blocks move directly
 * (asynchronously). */
static void collectives_are_copied(void)
{
    double rate = 2400 * lh_cost_defaults()->memory_efficiency;
    lh_cost sharded = cost_of(TITAN("zero: 3", ""), 1, 1, &LAYER);
    lh_cost whole = cost_of(TITAN("zero: 2", ""), 1, 1, &LAYER);
    CHECK_NEAR((double)(sharded.f.memory_ns - whole.f.memory_ns),
               4.0 * (double)whole.params / rate, 2);
    lh_cost copied = cost_of(TITAN("zero: 2", ""), 2, 1, &LAYER);
    lh_cost direct = cost_of(
        TITAN("zero: 2", ", overlap: {tensor: 0.1}") "layout: {tensor: 2}\n", 2,
        1, &LAYER);
    CHECK_NEAR((double)(copied.f.memory_ns - direct.f.memory_ns),
               4 * 4.0 * TOKENS * HIDDEN / rate, 2);
}

/* The rates of docs/validation.md, for Hopper's peak only. */
static void flash_attention_2_is_slower_on_hopper(void)
{
    lh_cost fused = cost_of(TITAN("zero: 3", ""), 1, 1, &LAYER);
    lh_cost flash = cost_of(TITAN("zero: 3", ", attention: flash-attention-2"),
                            1, 1, &LAYER);
    double rate =
        989.5e3 * 0.87 * lh_cost_defaults()->matmul_efficiency; /* per ns */
    double scores = 2.0 * TOKENS * 2048 * 32;
    CHECK_NEAR((double)(flash.f.matmul_ns - fused.f.matmul_ns),
               scores * 256 * (1 / 332e3 - 1 / rate), 2e3);
    CHECK_NEAR((double)(flash.d.matmul_ns - fused.d.matmul_ns),
               scores * 640 * (1 / 253.5e3 - 1 / rate), 5e3);
}

/* BF16_Optimizer's W pass writes 2 bytes per weight; a second kernel converts
 * them (2 + 4), a third adds them to the fp32 sums (4 + 4 + 4): 20 bytes, in
 * place of fp32 sums read and written (8). Llama 3 8B's layer has four
 * products. In fp16 and with gradients in bf16 there are no such kernels. */
static void deepspeed_adds_bf16_gradients_to_fp32_sums(void)
{
#define DEEPSPEED(precision, framework)                                        \
    "  gpu: {tflops: 989.5, memory_gib: 80, memory_gbps: 2400}\n"              \
    "training: {global_batch: 32, sequence: 4096, zero: 1, "                   \
    "precision: " precision "}\nframework: {receives: late" framework "}\n"
    const lh_cost_constants *c = lh_cost_defaults();
    const double weights =
        HIDDEN * (4096.0 + 2 * 1024) + HIDDEN * 4096.0 + 3 * HIDDEN * 14336.0;
    lh_cost sums =
        cost_of(DEEPSPEED("bf16", ", preset: deepspeed, gradients: fp32"), 1, 2,
                &LAYER);
    lh_cost fused =
        cost_of(DEEPSPEED("bf16", ", gradients: fp32"), 1, 2, &LAYER);
    CHECK_NEAR((double)(sums.w.memory_ns - fused.w.memory_ns),
               12 * weights / (2400 * c->memory_efficiency), 4);
    CHECK_NEAR((double)(sums.w.kernel_ns - fused.w.kernel_ns),
               4 * 2 * c->kernel_ns, 1);
    CHECK_INT(sums.f.memory_ns, fused.f.memory_ns);
    CHECK_INT(sums.d.memory_ns, fused.d.memory_ns);
    lh_cost own =
        cost_of(DEEPSPEED("bf16", ", preset: deepspeed"), 1, 2, &LAYER);
    lh_cost none =
        cost_of(DEEPSPEED("bf16", ", gradients: bf16"), 1, 2, &LAYER);
    CHECK_INT(own.w.memory_ns, none.w.memory_ns);
    own = cost_of(DEEPSPEED("fp16", ", preset: deepspeed, gradients: fp32"), 1,
                  2, &LAYER);
    none = cost_of(DEEPSPEED("fp16", ", gradients: fp32"), 1, 2, &LAYER);
    CHECK_INT(own.w.memory_ns, none.w.memory_ns);
}

int main(void)
{
    RUN(state_has_sixteen_bytes);
    RUN(pipelines_accumulate_whole_gradients);
    RUN(selective_saves_every_second_product);
    RUN(an_eager_loss_allocates_its_temporary_values);
    RUN(eager_kernels_move_more);
    RUN(collectives_are_copied);
    RUN(flash_attention_2_is_slower_on_hopper);
    RUN(deepspeed_adds_bf16_gradients_to_fp32_sums);
    return test_summary();
}
