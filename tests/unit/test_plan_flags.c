/* SPDX-License-Identifier: Apache-2.0 */
/* Advice on the training program's options: each iteration time is that of a
 * plan with this option in the job. */
#include "jobs.h"
#include "plans.h"

#include <stdlib.h>

/* A model with experts on four H100s, with a fixed layout and schedule for
 * Megatron-LM. */
#define JOB                                                                    \
    "longhaul: job/1\n"                                                        \
    "cluster:\n"                                                               \
    "  gpu: {tflops: 989, memory_gib: %s, memory_gbps: 3350}\n"                \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 400, latency_us: 3}\n"                                \
    "  fabric: {gbps: 100, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 2}]\n"                                \
    "model: {layers: 4, hidden: 2048, ffn: 4096, heads: 16, kv_heads: 16, "    \
    "head_dim: 128, vocab: 32000, gated: true, tied_embeddings: false, "       \
    "experts: 16, experts_per_token: 4, expert_ffn: 1024, "                    \
    "shared_expert_ffn: 1024, dense_layers: 1}\n"                              \
    "training: {global_batch: 32, sequence: 4096, zero: 1, recompute: %s%s}\n" \
    "framework: {preset: megatron%s}\n"                                        \
    "layout: {tensor: 2, context: 1, expert: 4, pipeline: 2, data: 2, "        \
    "micro_batch: 1, chunks_per_device: 1, schedule: 1f1b}\n"

/* Plans the job with the given GPU memory, recomputation, and further keys of
 * `training` and `framework`. */
static lh_plan *make(const char *gib, const char *recompute,
                     const char *training, const char *framework)
{
    const lh_plan_options quick = {.size = sizeof quick, .quick = true};
    char text[2000];
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text, JOB, gib, recompute, training, framework);
    CHECK_OK(lh_job_parse(text, strlen(text), "job", NULL, &job, &err), err);
    if (job)
        CHECK_OK(lh_plan_make(job, &quick, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

/* Returns the plan's advice for the key of the job; NULL: none. */
static const lh_flag_advice *find(const lh_plan *p, const char *key)
{
    for (uint32_t i = 0; i < p->n_flags; i++)
        if (strcmp(p->flags[i].key, key) == 0)
            return &p->flags[i];
    return NULL;
}

/* Every change that the plan lists, as a job of its own. */
static void each_gain_is_that_of_a_plan(void)
{
    static const struct {
        const char *key, *flag, *training, *framework;
    } rows[] = {
        {"training.dispatcher: deepep",
         "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend "
         "deepep",
         ", dispatcher: deepep", ""},
        {"training.dispatcher: allgather",
         "--moe-token-dispatcher-type allgather", ", dispatcher: allgather",
         ""},
        {"framework.overlap.shared_experts: 1", "--moe-shared-expert-overlap",
         "", ", overlap: {shared_experts: 1}"},
        {"framework.overlap.tensor: 0.82", "--tp-comm-overlap", "",
         ", overlap: {tensor: 0.82}"},
        {"framework.gradients: bf16, framework.reduce: bf16",
         "--grad-reduce-in-bf16", "", ", gradients: bf16, reduce: bf16"},
    };
    lh_plan *p = make("80", "none", "", "");
    lh_plan *again = p ? plan_again(p, NULL) : NULL;
    CHECK(p && again && again->n_flags == p->n_flags);
    for (size_t i = 0; p && i < sizeof rows / sizeof *rows; i++) {
        const lh_flag_advice *f = find(p, rows[i].key);
        lh_plan *with = make("80", "none", rows[i].training, rows[i].framework);
        CHECK_MSG(f != NULL, "no advice on %s", rows[i].key);
        if (f && with) {
            CHECK_STR(f->flag, rows[i].flag);
            CHECK_STR(f->certainty, "modelled");
            CHECK_INT(f->iteration_ns, with->best.iteration_ns);
            CHECK_INT(f->peak_memory_bytes, with->best.peak_memory_bytes);
            CHECK_NEAR(f->gain,
                       1 - (double)with->best.iteration_ns /
                               (double)p->best.iteration_ns,
                       1e-12);
            CHECK(!find(with, rows[i].key));
        }
        lh_plan_free(with);
    }
    for (uint32_t i = 1; p && i < p->n_flags; i++)
        CHECK(p->flags[i - 1].iteration_ns <= p->flags[i].iteration_ns);
    lh_plan_free(again);
    lh_plan_free(p);
}

/* In place of full recomputation the plan advises the modules with which the
 * job fits; with more memory fewer, or none. */
static void recomputed_modules_fit_into_memory(void)
{
    static const char *const gib[] = {"80", "2.1"};
    int64_t before_ns = 0;
    for (size_t i = 0; i < sizeof gib / sizeof *gib; i++) {
        lh_plan *p = make(gib[i], "full", "", "");
        const lh_flag_advice *f = NULL;
        for (uint32_t k = 0; p && k < p->n_flags; k++)
            if (strncmp(p->flags[k].key, "training.recompute: ", 20) == 0)
                f = &p->flags[k];
        CHECK_MSG(f != NULL, "%s GiB", gib[i]);
        if (f) {
            lh_plan *with = make(gib[i], f->key + 20, "", "");
            CHECK((i == 0) == (strcmp(f->key + 20, "none") == 0));
            CHECK(f->iteration_ns < p->best.iteration_ns);
            CHECK(f->iteration_ns >= before_ns);
            before_ns = f->iteration_ns;
            CHECK_INT(f->iteration_ns, with ? with->best.iteration_ns : 0);
            lh_plan_free(with);
        }
        lh_plan_free(p);
    }
}

/* The advised changes together, as a job of their own. Of two dispatchers and
 * two overlaps only one each is advised. */
static void advised_changes_hold_together(void)
{
    lh_plan *p = make("80", "none", "", "");
    const lh_flag_advice *deepep = find(p, "training.dispatcher: deepep");
    const lh_flag_advice *other = find(p, "training.dispatcher: hybridep");
    const lh_flag_advice *tensor = find(p, "framework.overlap.tensor: 0.82");
    lh_plan *with = make("80", "none", ", dispatcher: deepep",
                         ", overlap: {tensor: 0.82}, gradients: bf16, "
                         "reduce: bf16");
    CHECK(deepep && deepep->advised && other && !other->advised);
    CHECK(tensor && tensor->advised);
    if (p && with) {
        CHECK_INT(p->flags_ns, with->best.iteration_ns);
        CHECK(p->flags_ns < p->flags[0].iteration_ns);
        for (uint32_t i = 0; i < with->n_flags; i++)
            CHECK(!with->flags[i].advised);
        CHECK_INT(with->flags_ns, -1);
    }
    lh_plan_free(with);
    lh_plan_free(p);
}

int main(void)
{
    RUN(advised_changes_hold_together);
    RUN(each_gain_is_that_of_a_plan);
    RUN(recomputed_modules_fit_into_memory);
    return test_summary();
}
