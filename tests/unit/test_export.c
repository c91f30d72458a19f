/* SPDX-License-Identifier: Apache-2.0 */
/* Exports: lists of targets and formats, and complete texts or none when memory
 * runs out. tests/cli/test_exports.py checks their contents. */
#define _GNU_SOURCE /* mkdtemp */
#include "fail_alloc.h"
#include "jobs.h"

#include <longhaul/experimental/chakra.h>
#include <longhaul/experimental/export.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Counts the files of a Chakra export: one for each of 2 x 2 ranks, and the
 * groups. */
static lh_status count_file(void *context, const char *suffix, const char *data,
                            size_t len, lh_error *err)
{
    uint32_t *n = context;
    (void)err;
    CHECK(strcmp(suffix, *n < 4 ? (char[]){(char)('0' + *n), '.', 'e', 't', 0}
                                : "groups.json") == 0);
    CHECK(data != NULL && len > 0);
    ++*n;
    return LH_OK;
}

static lh_plan *plan_of(lh_target target, unsigned zero)
{
    lh_job *job = job_with(JOB_TWO_SITES,
                           "training: {global_batch: 32, sequence: 4096, "
                           "zero: %u}\n"
                           "layout: {schedule: interleaved-1f1b, tensor: 4, "
                           "pipeline: 2, data: 2, micro_batch: 1, "
                           "chunks_per_device: 2, outermost: pipeline}\n",
                           zero);
    lh_plan_options options = {
        .size = sizeof options, .no_optimal = true, .target = target};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &options, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

static void names(void)
{
    CHECK_STR(lh_export_target_name(LH_EXPORT_PYTORCH), "pytorch");
    CHECK_INT(lh_n_export_targets(), LH_EXPORT_CHAKRA + 1);
    CHECK(!lh_export_target_name((lh_export_target)lh_n_export_targets()));
    CHECK_INT(lh_n_pytorch_forms(), LH_PYTORCH_COMPUTE_COMMS + 1);
    CHECK(!lh_pytorch_form_name((lh_pytorch_form)lh_n_pytorch_forms()));
}

typedef lh_status (*plan_export)(const lh_plan *plan,
                                 const lh_export_options *options, char **text,
                                 size_t *len, lh_error *err);

static lh_status export_stages(const lh_plan *plan,
                               const lh_export_options *options, char **text,
                               size_t *len, lh_error *err)
{
    (void)options;
    return lh_export_stages(plan, text, len, err);
}

/* Exports `plan` with each allocation failing, then in full. */
static void export_plan(plan_export make, const lh_plan *plan, const char *has)
{
    char *text = NULL;
    size_t len = 0;
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        text = NULL;
        status = make(plan, NULL, &text, NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
    });
    text = NULL;
    CHECK_OK(make(plan, NULL, &text, &len, &err), err);
    CHECK(text && strlen(text) == len);
    CHECK_HAS(text, has);
    lh_text_free(text);
}

static void plans(void)
{
    lh_plan *plan = plan_of(LH_TARGET_MEGATRON, 1);
    export_plan(lh_export_megatron, plan, "--pipeline-model-parallel-size 2\n");
    export_plan(lh_export_megatron_bridge, plan,
                "            pipeline_model_parallel_size=2,\n");
    export_plan(export_stages, plan, "\"lm_head\"\n");
    lh_plan_free(plan);
    plan = plan_of(LH_TARGET_TORCHTITAN, 2);
    export_plan(lh_export_torchtitan, plan,
                "--parallelism.pipeline_parallel_degree 2\n");
    export_plan(lh_export_torchtitan_model, plan, "\ndef model_spec():\n");
    lh_plan_free(plan);
}

static void schedules(void)
{
    lh_plan *plan = plan_of(LH_TARGET_ANY, 1);
    lh_error err = {0};
    char *text, *before;
    int64_t cost_ns = -7;
    for (uint32_t form = 0; form < lh_n_pytorch_forms(); form++)
        FAIL_EACH_ALLOC({
            text = NULL;
            status = lh_export_pytorch(plan->pipeline, plan->schedule,
                                       (lh_pytorch_form)form, &text, NULL, NULL,
                                       &err);
            CHECK((status == LH_OK) == (text != NULL));
            CHECK(!text || (strstr(text, "0SEND_F0") != NULL) ==
                               (form == LH_PYTORCH_COMPUTE_COMMS));
            lh_text_free(text);
        });
    FAIL_EACH_ALLOC({
        text = NULL;
        status = lh_export_chrome(plan->pipeline, plan->schedule, "x", &text,
                                  NULL, &err);
        CHECK((status == LH_OK) == (text != NULL));
        lh_text_free(text);
    });
    /* One node, after the metadata. */
    static const char trace[] = "\0\4\x08\1\x18\4";
    const lh_chakra_file file = {"0.et", trace, sizeof trace - 1};
    FAIL_EACH_ALLOC({
        lh_chakra *replay = NULL;
        status = lh_chakra_replay(&file, 1, &replay, &err);
        CHECK((status == LH_OK) == (replay != NULL));
        lh_chakra_free(replay);
    });
    FAIL_EACH_ALLOC({
        uint32_t n_files = 0;
        status = lh_export_chakra(plan->pipeline, plan->schedule, plan,
                                  count_file, &n_files, &err);
        CHECK((status == LH_OK) == (n_files == 5));
    });
    text = before = (char[]){"untouched"};
    CHECK_INT(lh_export_pytorch(plan->pipeline, plan->schedule,
                                (lh_pytorch_form)lh_n_pytorch_forms(), &text,
                                NULL, &cost_ns, &err),
              LH_EINVAL);
    CHECK(text == before && cost_ns == -7);
    lh_plan_free(plan);
}

/* Without memory there is no folder, and nothing beside it. */
static void bundles(void)
{
    char folder[] = "/tmp/longhaul-export-XXXXXX", path[64];
    lh_plan *plan = plan_of(LH_TARGET_MEGATRON, 1);
    lh_error err = {0};
    struct stat info;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/b", folder);
    FAIL_EACH_ALLOC({
        status = lh_export_bundle(plan, LH_EXPORT_MEGATRON, path, NULL, &err);
        CHECK((status == LH_OK) == (stat(path, &info) == 0));
        if (status != LH_OK)
            CHECK(rmdir(folder) == 0 && mkdir(folder, 0700) == 0);
    });
    CHECK_INT(lh_export_bundle(plan, LH_EXPORT_MEGATRON, path, NULL, &err),
              LH_EIO);
    CHECK_HAS(err.text, "already exists");
    CHECK_INT(lh_export_bundle(plan, (lh_export_target)lh_n_export_targets(),
                               "/nowhere", NULL, &err),
              LH_EINVAL);
    static const char *const names[] = {
        "args.txt",  "hosts-west.txt", "hosts-east.txt", "nodes.txt",
        "launch.sh", "job.sbatch",     "README.md"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/b/%s", folder, names[i]);
        CHECK_MSG(unlink(path) == 0, "%s is not there", path);
    }
    snprintf(path, sizeof path, "%s/b", folder);
    CHECK(rmdir(path) == 0 && rmdir(folder) == 0);
    lh_plan_free(plan);
}

int main(void)
{
    RUN(names);
    RUN(plans);
    RUN(schedules);
    RUN(bundles);
    return test_summary();
}
