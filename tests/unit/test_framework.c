/* SPDX-License-Identifier: Apache-2.0 */
/* A job's `framework`: presets, single keys, errors, the canonical form, and
 * equal costs for the same choices through options. */
#include "test_job.h"

#include "format/job/job_values.h"
#include "jobs.h"

#include <longhaul/experimental/cost.h>

#define TP2 "layout: {tensor: 2}\n"
#define FP16                                                                   \
    HEAD "training: {global_batch: 8, sequence: 16, precision: fp16}\n" TWO LINK

static void without_the_section_nothing_is_said(void)
{
    lh_error err;
    lh_job *j = parse(JOB, &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    char *text = NULL;
    CHECK(!j->framework.given);
    CHECK_OK(lh_job_format(j, &text, NULL, &err), err);
    CHECK(text && !strstr(text, "framework"));
    lh_text_free(text);
    lh_job_free(j);
}

/* A job's text and its expected framework choices. */
typedef struct expected {
    const char *text;
    bool unfused, whole_norms;
    lh_gradient gradients, reduce;
    lh_receives plain, interleaved;
} expected;

static const expected presets[] = {
    {JOB "framework: {}\n", false, false, LH_GRADIENT_FP32, LH_GRADIENT_FP32,
     LH_RECEIVES_EARLY, LH_RECEIVES_EARLY},
    {JOB "framework: {preset: megatron}\n", false, false, LH_GRADIENT_FP32,
     LH_GRADIENT_FP32, LH_RECEIVES_LATE, LH_RECEIVES_EARLY},
    {FP16 "framework: {preset: megatron}\n", false, false, LH_GRADIENT_FP16,
     LH_GRADIENT_FP16, LH_RECEIVES_LATE, LH_RECEIVES_EARLY},
    {JOB "framework: {preset: torchtitan}\n", false, false, LH_GRADIENT_FP32,
     LH_GRADIENT_FP32, LH_RECEIVES_EARLY, LH_RECEIVES_EARLY},
    {JOB "framework: {preset: deepspeed}\n", false, true, LH_GRADIENT_BF16,
     LH_GRADIENT_BF16, LH_RECEIVES_LATE, LH_RECEIVES_LATE},
    {FP16 "framework: {preset: deepspeed, attention: unfused}\n", true, true,
     LH_GRADIENT_FP16, LH_GRADIENT_FP16, LH_RECEIVES_LATE, LH_RECEIVES_LATE},
    {JOB "layout: {framework: megatron}\n", false, false, LH_GRADIENT_FP32,
     LH_GRADIENT_FP32, LH_RECEIVES_LATE, LH_RECEIVES_EARLY},
    /* Defaults that the file has stay in it. */
    {JOB "framework: {preset: none, attention: fused, kernels: fused,"
         " gradients: fp32, reduce: fp32, receives: early,"
         " overlap: {tensor: 0, expert: 0}}\n",
     false, false, LH_GRADIENT_FP32, LH_GRADIENT_FP32, LH_RECEIVES_EARLY,
     LH_RECEIVES_EARLY},
    /* A key overrides the preset, in any order. */
    {FP16 "framework: {gradients: fp32, reduce: bf16, receives: late-fd,"
          " sequence_parallel: true, attention: fused, preset: deepspeed}\n",
     false, false, LH_GRADIENT_FP32, LH_GRADIENT_BF16, LH_RECEIVES_LATE_FD,
     LH_RECEIVES_LATE_FD},
};

static bool alike(const lh_framework *a, const lh_framework *b)
{
    return a->preset_given == b->preset_given &&
           a->attention_given == b->attention_given &&
           a->kernels_given == b->kernels_given &&
           a->gradients_given == b->gradients_given &&
           a->reduce_given == b->reduce_given &&
           a->overlap_tensor_given == b->overlap_tensor_given &&
           a->overlap_expert_given == b->overlap_expert_given &&
           a->preset == b->preset && a->attention == b->attention &&
           a->kernels == b->kernels && a->loss == b->loss &&
           a->no_sequence_parallel == b->no_sequence_parallel &&
           a->gradients == b->gradients && a->reduce == b->reduce &&
           a->receives_given == b->receives_given &&
           a->receives == b->receives && a->fp8 == b->fp8 &&
           !(a->overlap_tensor < b->overlap_tensor) &&
           !(a->overlap_tensor > b->overlap_tensor) &&
           !(a->overlap_expert < b->overlap_expert) &&
           !(a->overlap_expert > b->overlap_expert) &&
           !(a->overlap_shared_experts < b->overlap_shared_experts) &&
           !(a->overlap_shared_experts > b->overlap_shared_experts);
}

static void it_reads_back_to_itself(const lh_job *job)
{
    char *text = NULL, *again = NULL;
    size_t len = 0;
    lh_job *back = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_format(job, &text, &len, &err), err);
    CHECK_OK(lh_job_parse(text, len, "again", NULL, &back, &err), err);
    if (back) {
        CHECK(back->framework.given);
        CHECK(alike(&back->framework, &job->framework));
        CHECK_OK(lh_job_format(back, &again, NULL, &err), err);
        CHECK_STR(again, text);
    }
    lh_job_free(back);
    lh_text_free(again);
    lh_text_free(text);
}

static void presets_and_keys_mean_what_they_say(void)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const expected *e = &presets[i];
        lh_error err;
        lh_job *j = parse(e->text, &err);
        CHECK_MSG(j, "%s", err.text);
        if (!j)
            continue;
        const lh_framework *f = &j->framework;
        CHECK_MSG(f->given &&
                      (f->attention == LH_ATTENTION_UNFUSED) == e->unfused &&
                      f->no_sequence_parallel == e->whole_norms &&
                      f->gradients == e->gradients && f->reduce == e->reduce,
                  "%s", e->text);
        CHECK_INT(lhi_framework_receives(f, 1), e->plain);
        CHECK_INT(lhi_framework_receives(f, 2), e->interleaved);
        it_reads_back_to_itself(j);
        lh_job_free(j);
    }
}

static void all_keys_survive_a_round_trip(void)
{
    lh_error err;
    lh_job *j = parse("longhaul: job/1\nmodel: mixtral-8x7b\n" TRAINING
                      "cluster: {gpu: h100, gpus_per_node: 1,"
                      " fabric: {gbps: 100, latency_us: 7},"
                      " datacenters: [{name: a, nodes: 2}]}\n"
                      "framework: {preset: torchtitan, attention: unfused,"
                      " sequence_parallel: false, gradients: bf16,"
                      " reduce: fp16, receives: early,"
                      " overlap: {tensor: 0.25, expert: 1}, fp8: matmul}\n",
                      &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_NEAR(j->framework.overlap_tensor, 0.25, 0);
    CHECK_NEAR(j->framework.overlap_expert, 1, 0);
    CHECK_INT(j->framework.fp8, LH_FP8_MATMUL);
    CHECK_STR(lhi_fp8_name(j->framework.fp8), "matmul");
    CHECK_STR(lhi_gradient_name(j->framework.reduce), "fp16");
    CHECK_STR(lhi_framework_preset_name(j->framework.preset), "torchtitan");
    it_reads_back_to_itself(j);
    lh_job_free(j);
}

static void what_makes_no_sense_is_refused(void)
{
#define F(map) JOB "framework: " map "\n"
    refuse(F("megatron"), "framework: must be a map");
    refuse(F("{preset: megatrn}"), "j.yaml:13: framework.preset: ");
    refuse(F("{presets: megatron}"), "framework.presets: unknown key");
    refuse(F("{attention: flash}"), "framework.attention: ");
    refuse(F("{sequence_parallel: 1}"), "framework.sequence_parallel: ");
    refuse(F("{gradients: fp8}"), "framework.gradients: ");
    refuse(
        F("{gradients: fp16}"),
        "framework.gradients: must be fp32, or the training precision, bf16");
    refuse(F("{reduce: int8}"), "framework.reduce: ");
    refuse(F("{receives: never}"), "framework.receives: ");
    refuse(F("{overlap: 1}"), "framework.overlap: must be a map");
    refuse(F("{overlap: {tensor: 1.5}}"), "framework.overlap.tensor: ");
    refuse(F("{overlap: {data: 1}}"), "framework.overlap.data: unknown key");
    refuse(F("{overlap: {expert: 0.5}}"),
           "framework.overlap.expert: llama3-8b has no experts");
    refuse(F("{overlap: {shared_experts: 1}}"),
           "framework.overlap.shared_experts: llama3-8b has no shared experts");
    refuse(F("{fp8: dispatch}"),
           "framework.fp8: llama3-8b has no experts; use matmul");
    refuse(F("{overlap: {tensor: 0.5}}") "layout: {tensor: 1}\n",
           "framework.overlap.tensor: requires layout.tensor above 1");
    refuse(F("{fp8: all}"), "framework.fp8: ");
#undef F
}

static void same_costs(const lh_job *a, const lh_cost_options *with,
                       const lh_job *b)
{
    lh_layout layout = {.tensor = 2,
                        .context = 1,
                        .expert = 1,
                        .pipeline = 2,
                        .data = 2,
                        .micro_batch = 2,
                        .chunks_per_device = 1};
    lh_cost_layer_range slice = {.n_layers = 16, .embedding = true};
    lh_cost x, y, plain;
    lh_error err;
    CHECK_OK(lh_cost_chunk(a, &layout, &slice, NULL, &plain, &err), err);
    CHECK_OK(lh_cost_chunk(a, &layout, &slice, with, &x, &err), err);
    CHECK_OK(lh_cost_chunk(b, &layout, &slice, NULL, &y, &err), err);
    CHECK_INT(x.f.total_ns, y.f.total_ns);
    CHECK_INT(x.d.total_ns, y.d.total_ns);
    CHECK_INT(x.static_bytes, y.static_bytes);
    CHECK_INT(x.activation_bytes, y.activation_bytes);
    CHECK_INT(x.reduce_scatter_ns, y.reduce_scatter_ns);
    CHECK_INT(x.reduce_bytes, y.reduce_bytes);
    CHECK_INT(x.optimizer_ns, y.optimizer_ns);
    CHECK(plain.f.total_ns != y.f.total_ns ||
          plain.static_bytes != y.static_bytes ||
          plain.reduce_bytes != y.reduce_bytes);
}

/* A job can express every option of a caller; and each one changes a cost. */
static void a_job_costs_what_options_cost(void)
{
    const struct {
        const char *lines;
        lh_cost_options options;
    } cases[] = {
        {"framework: {attention: unfused}\n",
         {.size = sizeof(lh_cost_options), .unfused_attention = true}},
        {"framework: {sequence_parallel: false}\n",
         {.size = sizeof(lh_cost_options), .no_sequence_parallel = true}},
        {"framework: {gradients: bf16}\n",
         {.size = sizeof(lh_cost_options), .gradient_bytes = 2}},
        {"framework: {reduce: bf16}\n",
         {.size = sizeof(lh_cost_options), .gradient_wire_bytes = 2}},
        {"framework: {preset: deepspeed}\n",
         {.size = sizeof(lh_cost_options),
          .no_sequence_parallel = true,
          .gradient_bytes = 2,
          .gradient_wire_bytes = 2}},
    };
    lh_job *plain = job_with(JOB_A100S, "%s", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_job *job = job_with(JOB_A100S, "%s", cases[i].lines);
        if (plain && job)
            same_costs(plain, &cases[i].options, job);
        lh_job_free(job);
    }
    lh_job_free(plain);
}

static void targets_are_found_by_name(void)
{
    static const struct {
        const char *name;
        lh_target target;
    } rows[] = {{"longhaul", LH_TARGET_LONGHAUL},
                {"megatron", LH_TARGET_MEGATRON},
                {"torchtitan", LH_TARGET_TORCHTITAN},
                {"pytorch", LH_TARGET_PYTORCH}};
    lh_error err = {0};
    lh_target target = LH_TARGET_ANY;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_OK(lh_target_find(rows[i].name, &target, &err), err);
        CHECK_INT(target, rows[i].target);
    }
    CHECK_INT(lh_target_find("any", &target, &err), LH_EINVAL);
    CHECK_HAS(err.text, "unknown framework 'any'; expected longhaul, ");
    CHECK_INT(target, LH_TARGET_PYTORCH);
}

int main(void)
{
    RUN(without_the_section_nothing_is_said);
    RUN(presets_and_keys_mean_what_they_say);
    RUN(all_keys_survive_a_round_trip);
    RUN(what_makes_no_sense_is_refused);
    RUN(a_job_costs_what_options_cost);
    RUN(targets_are_found_by_name);
    return test_summary();
}
