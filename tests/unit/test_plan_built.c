/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says of its own layout has to be what its pipeline was built from
 * and comes to: each key edited by itself is refused where it stands. */
#include "jobs.h"
#include "plan_edits.h"

#include <longhaul/cost.h>
#include <longhaul/plan.h>

static char *text_of(const char *with)
{
    lh_job *job = job_with(JOB_SMALL, "%s", with);
    lh_plan *plan = NULL;
    char *out = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o, .effort = 10000};
    if (job)
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan)
        CHECK_OK(lh_plan_format(plan, &out, NULL, &err), err);
    lh_plan_free(plan);
    lh_job_free(job);
    return out;
}

typedef struct edit {
    const char *from, *key, *value;
    const char *says; /* NULL: nothing, it is what the plan says */
} edit;

static void try_edits(const char *with, const edit *edits, size_t n)
{
    char *text = text_of(with);
    CHECK(text);
    for (size_t i = 0; text && i < n; i++) {
        const edit *e = &edits[i];
        lh_plan *plan = NULL;
        lh_error err = {0};
        char *now = edited(text, e->from, e->key, e->value);
        if (!now)
            continue;
        lh_status status =
            lh_plan_parse(now, strlen(now), "plan.json", &plan, &err);
        CHECK_MSG(status == (e->says ? LH_EINPUT : LH_OK),
                  "%s %s: status %d: %s", e->key, e->value, (int)status,
                  err.text);
        if (e->says) {
            CHECK_HAS(err.text, e->says);
            CHECK_MSG(strncmp(err.text, "plan.json:", 10) == 0 &&
                          strncmp(err.text, "plan.json:1:", 12) != 0,
                      "%s", err.text);
        }
        lh_plan_free(plan);
        free(now);
    }
    lh_text_free(text);
}

#define TRY(with, edits) try_edits(with, edits, sizeof edits / sizeof *edits)

/* Pipelines over both sites, two chunks a device. */
static void pipeline_outermost(void)
{
    static const edit edits[] = {
        {NULL, "\"zero\"", "1", NULL},
        {NULL, "\"zero\"", "0",
         ": zero: is '0', but the plan's pipeline is that of '1'; to have "
         "another, set training.zero in the job and plan again"},
        {NULL, "\"zero\"", "2", ": zero: is '2', but the plan's pipeline is"},
        {NULL, "\"zero\"", "3", ": zero: is '3', but the plan's pipeline is"},
        {NULL, "\"recompute\"", "\"none\"", NULL},
        {NULL, "\"recompute\"", "\"full\"",
         ": recompute: is 'full', but the plan's pipeline is that of 'none'; "
         "to have another, set training.recompute in the job and plan again"},
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
         ": bubble_ratio: is not what makespan_ns and the passes"},
        {NULL, "\"mfu\"", "0.001",
         ": mfu: is not what iteration_ns and the job's model and GPUs say"},
        {"\"methods\"", "\"mfu\"", "0.001", ": methods[0].mfu: is not what"},
        {NULL, "\"peak_memory_bytes\"", "1",
         ": peak_memory_bytes: is 1, but the device with the least room"},
        {NULL, "\"memory_limit_bytes\"", "80000000000",
         ": memory_limit_bytes: is 80000000000, but the device with the least "
         "room left may hold "},
        {NULL, "\"cost_source\"", "\"modelx\"",
         ": cost_source: is 'modelx'; it may be model, efficiency, profile, "
         "mixed or part-efficiency"},
        {NULL, "\"cost_source\"", "\"profile\"",
         ": cost_source: is 'profile', but times of the plan's pipeline are "
         "from 'model'"},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but all are the same for this "
         "layout, which plans call 'full'; to have another, set"},
        {NULL, "\"outermost\"", "\"data\"", "outermost is data, but here is"},
    };
    TRY("  gpus_per_node: 4\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 4, "
        "micro_batch: 1, chunks_per_device: 2, outermost: pipeline, "
        "schedule: interleaved-1f1b}\n",
        edits);
}

/* Whole pipelines at each site: how state is shared shows in times. */
static void data_outermost(void)
{
    static const edit edits[] = {
        {NULL, "\"sharding\"", "\"full\"", NULL},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but the job says 'full'"},
        {NULL, "\"outermost\"", "\"pipeline\"", "outermost is pipeline, but"},
        {NULL, "\"zero\"", "3", ": zero: is '3', but the plan's pipeline is"},
    };
    TRY("  gpus_per_node: 2\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 2, "
        "micro_batch: 1, outermost: data, sharding: full}\n",
        edits);
    static const edit open[] = {
        {NULL, "\"sharding\"", "\"full\"", NULL},
        {NULL, "\"sharding\"", "\"hybrid\"",
         ": layout.sharding: is 'hybrid', but the plan's pipeline is that of "
         "'full'; to have another, set layout.sharding in the job"},
        {NULL, "\"sharding\"", "\"hybrid-leaders\"",
         ": layout.sharding: is 'hybrid-leaders', but the plan's pipeline is"},
    };
    TRY("  gpus_per_node: 2\n"
        "training: {global_batch: 16, sequence: 2048, zero: 1}\n"
        "layout: {tensor: 1, context: 1, pipeline: 1, data: 4, "
        "micro_batch: 1, chunks_per_device: 1, outermost: data}\n",
        open);
}

/* One site: what lies outermost is a word. */
static void one_site(void)
{
    static const edit edits[] = {
        {NULL, "\"outermost\"", "\"pipeline\"", NULL},
        {NULL, "\"outermost\"", "\"data\"",
         ": layout.outermost: is 'data', but both are the same here, which "
         "plans call 'pipeline'"},
        {NULL, "\"cost_source\"", "\"efficiency\"", NULL},
        {NULL, "\"cost_source\"", "\"model\"",
         ": cost_source: is 'model', but times of the plan's pipeline are "
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

/* A word that the job gives is the plan's. */
static void word_of_the_job(void)
{
    static const edit edits[] = {
        {NULL, "\"outermost\"", "\"pipeline\"",
         ": layout.outermost: is 'pipeline', but the job says 'data'; to have "
         "another, set layout.outermost in the job and plan again"},
    };
    TRY("  gpus_per_node: 4\n"
        "  datacenters: [{name: west, nodes: 1}]\n"
        "  links:\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: {tensor: 1, context: 1, pipeline: 2, data: 2, "
        "outermost: data}\n",
        edits);
}

/* The optimizer's and the rest's times, moved from one to the other: their sum
 * stays. */
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
    CHECK_HAS(err.text, "but account.optimizer_s says ");
    lh_text_free(moved);
}

int main(void)
{
    RUN(pipeline_outermost);
    RUN(data_outermost);
    RUN(one_site);
    RUN(word_of_the_job);
    RUN(after_the_pipeline);
    return test_summary();
}
