/* SPDX-License-Identifier: Apache-2.0 */
/* Advice on the training program's options: each iteration time is that of a
 * plan with this option in the job. */
#include "jobs.h"
#include "plans.h"

#include <stdlib.h>

/* A model with experts on eight H100s. */
#define CLUSTER_AND_MODEL                                                      \
    "longhaul: job/1\n"                                                        \
    "cluster:\n"                                                               \
    "  gpu: {tflops: 989, memory_gib: %s, memory_gbps: 3350}\n"                \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 400, latency_us: 3}\n"                                \
    "  fabric: {gbps: %s, latency_us: 8}\n"                                    \
    "  datacenters: [{name: west, nodes: 2}]\n"                                \
    "model: {layers: 4, hidden: 2048, ffn: 4096, heads: 16, kv_heads: 16, "    \
    "head_dim: 128, vocab: 32000, gated: true, tied_embeddings: false, "       \
    "experts: 16, experts_per_token: 4, expert_ffn: 1024, "                    \
    "shared_expert_ffn: 1024, dense_layers: 1}\n"
/* The same with a fixed layout and schedule for Megatron-LM. */
#define JOB                                                                    \
    CLUSTER_AND_MODEL                                                          \
    "training: {global_batch: 32, sequence: 4096, zero: 1, recompute: %s%s}\n" \
    "framework: {preset: megatron%s}\n"                                        \
    "layout: {tensor: 2, context: 1, expert: 4, pipeline: 2, data: 2, "        \
    "micro_batch: 1, chunks_per_device: 1, schedule: 1f1b}\n"
/* The same with an open layout. */
#define OPEN_JOB                                                               \
    CLUSTER_AND_MODEL                                                          \
    "training: {global_batch: 32, sequence: 4096, zero: 1%s}\n"                \
    "framework: {preset: megatron%s}\n"

/* Plans the job in `text`. */
static lh_plan *make_plan(const char *text)
{
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_parse(text, strlen(text), "job", NULL, &job, &err), err);
    return plan_of_job(job);
}

/* Plans the job with the given GPU memory, recomputation, and further keys of
 * `training` and `framework`. */
static lh_plan *make(const char *gib, const char *recompute,
                     const char *training, const char *framework)
{
    char text[2000];
    snprintf(text, sizeof text, JOB, gib, "100", recompute, training,
             framework);
    return make_plan(text);
}

/* Plans the job with an open layout, the given GPU memory, and further keys of
 * `training` and `framework`. */
static lh_plan *make_open_with(const char *gib, const char *training,
                               const char *framework)
{
    char text[2000];
    snprintf(text, sizeof text, OPEN_JOB, gib, "400", training, framework);
    return make_plan(text);
}

/* Plans the job with an open layout and 8 GiB of memory. */
static lh_plan *make_open(const char *training, const char *framework)
{
    return make_open_with("8", training, framework);
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

/* Checks that the text of a plan with flags_layout is rejected with another
 * gain in it, and without its changes. */
static void check_wrong_texts(char *text)
{
    static const char key[] = "\"gain\": 0.";
    char *flags = strstr(strstr(text, "\"flags_layout\""), "\"flags\"");
    char *gain = strstr(flags, key) + strlen(key), *end = strchr(flags, ']');
    const char was = *gain;
    *gain = was == '9' ? '1' : '9';
    plan_refused(text, "must be the saved fraction of before_s");
    *gain = was;
    memmove(strchr(flags, '[') + 1, end, strlen(end) + 1);
    plan_refused(text, "has 0 entries; at least 1 are required");
}

/* With overlapped all-to-alls and bf16 gradients, experts over all GPUs become
 * faster than experts on every GPU. The job with these options has that layout,
 * or a faster one. */
static void options_change_the_layout(void)
{
    char *text = NULL;
    lh_plan *p = make_open("", ""), *again = p ? plan_again(p, &text) : NULL;
    const lh_flag_plan *f = p ? p->flag_plan : NULL;
    lh_plan *with =
        make_open("", ", overlap: {expert: 1}, gradients: bf16, reduce: bf16");
    CHECK(p && f && again && again->flag_plan && with);
    if (f && again && with) {
        CHECK_INT(p->best.layout.expert, 1);
        CHECK_INT(f->best->layout.expert, 8);
        CHECK(f->before_ns > p->best.iteration_ns);
        CHECK(f->best->iteration_ns < p->flags_ns);
        CHECK_INT(f->n_flags, 2);
        CHECK_STR(f->flags[0].key, "framework.overlap.expert: 1");
        CHECK_STR(f->flags[1].key,
                  "framework.gradients: bf16, framework.reduce: bf16");
        for (uint32_t i = 0; i < f->n_flags; i++) {
            CHECK(f->flags[i].advised && !f->flags[i].fixed);
            CHECK_NEAR(f->flags[i].gain,
                       1 - (double)f->flags[i].iteration_ns /
                               (double)f->before_ns,
                       1e-12);
        }
        CHECK_INT(with->best.layout.expert, 8);
        CHECK(with->best.iteration_ns <= f->best->iteration_ns);
        CHECK(with->flag_plan == NULL);
        CHECK_INT(again->flag_plan->best->iteration_ns, f->best->iteration_ns);
        check_wrong_texts(text);
    }
    lh_text_free(text);
    lh_plan_free(with);
    lh_plan_free(again);
    lh_plan_free(p);
}

/* With 4 GiB of memory the layout that is fastest with bf16 gradients does not
 * fit without them. A job that sets fp32 gradients has no such layout. */
static void a_layout_may_need_an_option(void)
{
    static const char fixed[] = CLUSTER_AND_MODEL
        "training: {global_batch: 32, sequence: 4096, zero: 1, recompute: "
        "none}\n"
        "framework: {preset: megatron%s}\n"
        "layout: {tensor: 1, context: 1, expert: 8, pipeline: 1, data: 8, "
        "micro_batch: 1, chunks_per_device: 4}\n";
    char text[2000];
    lh_error err = {0};
    lh_job *job = NULL;
    lh_plan *none = NULL;
    lh_plan *p = make_open_with("4", "", "");
    const lh_flag_plan *f = p ? p->flag_plan : NULL;
    CHECK(f && f->exceeds_memory && f->n_flags > 0);
    if (f) {
        CHECK_STR(f->flags[0].key,
                  "framework.gradients: bf16, framework.reduce: bf16");
        CHECK_STR(f->flags[0].flag, "--grad-reduce-in-bf16");
        CHECK_INT(f->best->layout.tensor, 1);
        CHECK_INT(f->best->recompute, LH_RECOMPUTE_NONE);
        CHECK(f->best->iteration_ns < p->flags_ns);
        for (uint32_t i = 0; i < f->n_flags; i++) {
            CHECK(f->flags[i].advised);
            CHECK(f->flags[i].peak_memory_bytes <= f->best->memory_limit_bytes);
        }
        plan_reads_back(p);
    }
    snprintf(text, sizeof text, fixed, "4", "400", "");
    CHECK_OK(lh_job_parse(text, strlen(text), "job", NULL, &job, &err), err);
    CHECK_INT(lh_plan_make(job, NULL, &none, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "or framework.gradients: bf16, framework.reduce: bf16");
    lh_job_free(job);
    snprintf(text, sizeof text, fixed, "4", "400",
             ", gradients: bf16, reduce: bf16");
    lh_plan *with = make_plan(text);
    CHECK(f && with && with->best.iteration_ns == f->flags[0].iteration_ns);
    lh_plan_free(with);
    lh_plan_free(p);
    p = make_open_with("4", "", ", gradients: fp32, reduce: fp32");
    CHECK(p && (!p->flag_plan || !p->flag_plan->exceeds_memory));
    lh_plan_free(p);
}

/* The job in a plan leaves open the options that the job's file does. */
static void a_plans_job_leaves_options_open(void)
{
    char *text = NULL;
    size_t len = 0;
    lh_error err = {0};
    lh_plan *p = make_open("", "");
    lh_plan *again = NULL;
    if (p)
        CHECK_OK(lh_job_format(p->job, &text, &len, &err), err);
    if (text)
        again = make_plan(text);
    CHECK(again && again->flag_plan && again->n_flags == p->n_flags);
    for (uint32_t i = 0; again && i < again->n_flags; i++)
        CHECK(!again->flags[i].fixed);
    CHECK_INT(again ? again->flags_ns : 0, p ? p->flags_ns : 1);
    lh_text_free(text);
    lh_plan_free(again);
    lh_plan_free(p);
}

/* Options that the job sets, also at their default, are listed, but neither
 * advised nor used for another layout. */
static void fixed_options_are_respected(void)
{
    lh_plan *p =
        make_open(", dispatcher: alltoall",
                  ", overlap: {expert: 0}, gradients: fp32, reduce: fp32");
    lh_plan *fixed = make("80", "none", ", dispatcher: alltoall", "");
    const lh_flag_advice *deepep = find(fixed, "training.dispatcher: deepep");
    const lh_flag_advice *tensor =
        find(fixed, "framework.overlap.tensor: 0.82");
    if (p) {
        CHECK(p->n_flags > 0 && !p->flag_plan);
        CHECK_INT(p->flags_ns, -1);
        for (uint32_t i = 0; i < p->n_flags; i++)
            CHECK(p->flags[i].fixed && !p->flags[i].advised);
        plan_reads_back(p);
    }
    CHECK(deepep && deepep->fixed && !deepep->advised && deepep->gain > 0);
    CHECK(tensor && !tensor->fixed && tensor->advised);
    lh_plan_free(fixed);
    lh_plan_free(p);
}

/* Where HybridEP is faster beside the overlap that was advised before, it
 * replaces DeepEP, which is as fast alone. */
static void one_dispatcher_is_advised(void)
{
    lh_plan *p = make_open("", "}\nlayout: {tensor: 1, context: 1, expert: 4, "
                               "pipeline: 1, data: 8, micro_batch: 1");
    const lh_flag_advice *deepep = find(p, "training.dispatcher: deepep");
    const lh_flag_advice *hybridep = find(p, "training.dispatcher: hybridep");
    CHECK_STR(p->flags[0].key, "framework.overlap.expert: 1");
    CHECK(deepep && !deepep->advised && hybridep && hybridep->advised);
    CHECK(p->flag_plan == NULL);
    lh_plan_free(p);
}

int main(void)
{
    RUN(one_dispatcher_is_advised);
    RUN(a_layout_may_need_an_option);
    RUN(a_plans_job_leaves_options_open);
    RUN(fixed_options_are_respected);
    RUN(options_change_the_layout);
    RUN(advised_changes_hold_together);
    RUN(each_gain_is_that_of_a_plan);
    RUN(recomputed_modules_fit_into_memory);
    return test_summary();
}
