/* SPDX-License-Identifier: Apache-2.0 */
/* The search's degrees are exactly those allowed by arithmetic, each once:
 * tensor x context x pipeline x data GPUs at most, experts inside a stage's
 * ranks. */
#include "jobs.h"

#include "planner/layout/space.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 20000 };

/* Parallelism degrees of a layout. */
typedef struct degrees {
    uint32_t tensor, context, expert, expert_tensor, pipeline, data,
        micro_batch;
} degrees;

/* A list of degrees. */
typedef struct list {
    const lhi_space *space;
    degrees all[MOST];
    uint32_t n;
} list;

static void add(list *l, degrees d)
{
    CHECK(l->n < MOST);
    if (l->n < MOST)
        l->all[l->n++] = d;
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(degrees));
}

static lh_status note(void *context, const lhi_config *config, lh_error *err)
{
    list *l = context;
    const lh_layout *x = &config->layout;
    (void)err;
    add(l,
        (degrees){x->tensor, x->context, x->expert, lh_layout_expert_tensor(x),
                  x->pipeline, x->data, x->micro_batch});
    CHECK_INT(config->microbatches * x->data * x->micro_batch,
              l->space->job->training.global_batch);
    return LH_OK;
}

static lh_status enter(void *context, const lhi_config *config, lh_error *err)
{
    list *l = context;
    return lhi_space_children(l->space, LHI_LEVEL_WORK, config, NULL, note, l,
                              err);
}

static bool is_power(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* The search's limits on tensor and context are heuristic: inside a node or, up
 * to 8, on whole nodes; a divisor of the heads, 2048 tokens per GPU. */
static bool group_is_tried(const lh_job *job, uint32_t tp, uint32_t cp)
{
    uint32_t node = job->datacenters[0].gpus_per_node;
    return (node % tp == 0 || (tp <= 8 && tp % node == 0)) &&
           job->model->heads % tp == 0 && is_power(cp) &&
           (cp == 1 || job->training.sequence / cp >= 2048) &&
           (tp * cp <= node || tp * cp % node == 0);
}

/* Collects every tuple of numbers that satisfies the rules. */
static void enumerate(const lh_job *job, list *l)
{
    uint32_t n = job->n_gpus, batch = job->training.global_batch;
    uint32_t experts = job->model->experts ? job->model->experts : 1;
    uint32_t cut = job->layout.expert_tensor;
    for (uint32_t tp = 1; tp <= n; tp++)
        for (uint32_t cp = 1; cp <= n; cp++)
            for (uint32_t pp = 1; pp <= job->model->layers; pp++)
                for (uint32_t dp = 1; dp <= n; dp++) {
                    if (!group_is_tried(job, tp, cp) || tp * cp * pp * dp > n ||
                        batch % dp != 0)
                        continue;
                    for (uint32_t ep = 1; ep <= experts; ep++)
                        for (uint32_t mb = 1; mb <= 8; mb *= 2) {
                            uint32_t etp = cut ? cut : ep > 1 ? 1 : tp;
                            if (experts % ep == 0 &&
                                tp * cp * dp % (ep * etp) == 0 &&
                                batch % (dp * mb) == 0)
                                add(l, (degrees){tp, cp, ep, etp, pp, dp, mb});
                        }
                }
}

static void check_job(lh_job *job)
{
    list *tree = calloc(1, sizeof *tree), *all = calloc(1, sizeof *all);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_config none = {0};
    lh_error err = {0};
    lhi_space space;
    CHECK(tree && all && mem && job);
    CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
    tree->space = &space;
    CHECK_OK(lhi_space_children(&space, LHI_LEVEL_NONE, &none, NULL, enter,
                                tree, &err),
             err);
    enumerate(job, all);
    qsort(tree->all, tree->n, sizeof *tree->all, compare);
    qsort(all->all, all->n, sizeof *all->all, compare);
    CHECK(all->n > 0);
    CHECK_INT(tree->n, all->n);
    for (uint32_t i = 0; i < all->n && i < tree->n; i++)
        CHECK(compare(&tree->all[i], &all->all[i]) == 0);
    lhi_space_fini(&space);
    lhi_arena_free(mem);
    free(tree);
    free(all);
    lh_job_free(job);
}

#define MIXTURE(experts)                                                       \
    "model: {layers: 4, hidden: 1024, heads: 8, vocab: 1000, "                 \
    "experts: " experts ", experts_per_token: 2, expert_ffn: 512}\n"

static void all_degrees_that_the_arithmetic_allows(void)
{
    check_job(job_with(
        JOB_SMALL, "  gpus_per_node: 4\n" MIXTURE(
                       "8") "training: {global_batch: 16, sequence: 4096}\n"));
    /* Not only powers of two. */
    check_job(job_with(
        JOB_SMALL, "  gpus_per_node: 6\n" MIXTURE(
                       "12") "training: {global_batch: 36, sequence: 4096}\n"));
    check_job(
        job_with(JOB_SMALL,
                 "  gpus_per_node: 8\n" MIXTURE(
                     "160") "training: {global_batch: 40, sequence: 8192}\n"));
    check_job(job_with(JOB_SMALL,
                       "  gpus_per_node: 8\n" MIXTURE(
                           "8") "training: {global_batch: 16, sequence: 4096}\n"
                                "layout: {expert_tensor: 2}\n"));
    check_job(job_with(JOB_SMALL,
                       "  gpus_per_node: 8\n"
                       "training: {global_batch: 48, sequence: 4096}\n"));
}

/* ScaleAcross Explorer, table 2: expert 16 with data 16, tensor 1 and pipeline
 * 8 on 128 GPUs. */
static void a_published_layout_is_one(void)
{
    lh_job *job = job_with(
        JOB_SMALL,
        "  gpus_per_node: 8\n"
        "  datacenters: [{name: west, nodes: 8}, {name: east, nodes: 8}]\n"
        "model: {layers: 48, hidden: 2048, heads: 16, vocab: 1000, experts: "
        "128, experts_per_token: 8, expert_ffn: 1024}\n"
        "training: {global_batch: 512, sequence: 8192}\n"
        "layout: {tensor: 1, context: 1, expert: 16, data: 16, pipeline: 8}\n");
    list *tree = calloc(1, sizeof *tree);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_config none = {0};
    lh_error err = {0};
    lhi_space space;
    CHECK(job && tree && mem);
    CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
    tree->space = &space;
    CHECK_OK(lhi_space_children(&space, LHI_LEVEL_NONE, &none, NULL, enter,
                                tree, &err),
             err);
    CHECK_INT(tree->n, 4); /* microbatches of 1, 2, 4 and 8 */
    lhi_space_fini(&space);
    lhi_arena_free(mem);
    free(tree);
    lh_job_free(job);
}

int main(void)
{
    RUN(all_degrees_that_the_arithmetic_allows);
    RUN(a_published_layout_is_one);
    return test_summary();
}
