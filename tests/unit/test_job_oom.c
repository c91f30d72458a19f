/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, models and profiles when memory runs out: each allocation fails in
 * turn, and each time the call returns LH_ENOMEM, leaks nothing and leaves its
 * output unchanged. */
#include <longhaul/experimental/draft.h>
#include <longhaul/experimental/job.h>

#include "fail_alloc.h"
#include "test.h"

#include <jansson.h>
#include <stdlib.h>

/* Makes the nth allocation from now on fail. */
static void fail_alloc_at(uint64_t n)
{
    fail_alloc_hit = false;
    fail_alloc_after = (int64_t)n - 1;
}

/* Lets allocations succeed again; returns whether one failed. */
static bool fail_alloc_done(void)
{
    fail_alloc_after = -1;
    return fail_alloc_hit;
}

static const char job_text[] =
    "longhaul: job/1\n"
    "model: {layers: 4, hidden: 8, heads: 2, vocab: 10, ffn: 4, experts: 2, "
    "experts_per_token: 1, expert_ffn: 3, dense_list: [1, 2], name: small}\n"
    "training: {global_batch: 8, sequence: 16, zero: 0, recompute: full}\n"
    "cluster:\n"
    "  gpus_per_node: 4\n"
    "  gpu: {name: own, tflops: 1.5, memory_gib: 2, memory_gbps: 3}\n"
    "  node_link: {gbps: 800, latency_us: 2.5}\n"
    "  fabric: {gbps: 100, latency_us: 7}\n"
    "  datacenters: [{name: a, nodes: 2}, {name: b, nodes: 1, gpu: h200}]\n"
    "  links: [{between: [a, b], latency_ms: 1.5, gbps: 10, queue_pairs: 2,\n"
    "           load_balancing: spray, loss: 0.1, fec: {data: 8, parity: 1}}]\n"
    "framework: {preset: deepspeed, receives: late, overlap: {expert: 0.5}}\n"
    "layout: {tensor: 2, outermost: data, sharding: hybrid,\n"
    "         schedule: zb-h1, sites: [{replicas: 1, pipeline: [{datacenter: "
    "a, stages: 2}]}],\n"
    "         chunks_per_device: 1, layers: [3, 1]}\n"
    "profile:\n"
    "  longhaul: profile/1\n"
    "  model: own\n"
    "  gpu: own\n"
    "  source: here\n"
    "  entries: [{kind: head, sequence: 7, F_us: 1, D_us: 2, W_us: 3}]\n"
    "  links: [{path: wan, from: a, to: b, alpha_us: 1, "
    "beta_ns_per_byte: 0.1}]\n";

static const char files_text[] =
    "longhaul: job/1\n"
    "model: data/configs/Qwen1.5-MoE-A2.7B/config.json\n"
    "training: {global_batch: 8, sequence: 16}\n"
    "cluster: {gpus_per_node: 1, gpu: h200, datacenters: [{name: a, "
    "nodes: 1}]}\n";

static void check_failed(lh_status status, const lh_error *err, const void *out,
                         uint64_t n)
{
    CHECK_MSG(status == LH_ENOMEM, "allocation %d: status %d: %s", (int)n,
              (int)status, err->text);
    CHECK_STR(err->text, "out of memory");
    CHECK(out == NULL);
}

static void jobs_are_read_or_not(void)
{
    static const struct {
        const char *text, *folder;
    } jobs[] = {{job_text, NULL}, {files_text, TEST_DATA "/.."}};
    for (size_t i = 0; i < 2; i++)
        for (uint64_t n = 1;; n++) {
            lh_job *job = NULL;
            lh_error err = {0};
            fail_alloc_at(n);
            lh_status status = lh_job_parse(jobs[i].text, strlen(jobs[i].text),
                                            "j", jobs[i].folder, &job, &err);
            if (!fail_alloc_done()) {
                CHECK_MSG(status == LH_OK, "%s", err.text);
                CHECK(n > 5);
                lh_job_free(job);
                break;
            }
            check_failed(status, &err, job, n);
        }
}

static void job_files_are_read_or_not(void)
{
    for (uint64_t n = 1;; n++) {
        lh_job *job = NULL;
        lh_error err = {0};
        fail_alloc_at(n);
        lh_status status = lh_job_read(
            TEST_DATA "/../../examples/llama3-70b-two-sites.yaml", &job, &err);
        if (!fail_alloc_done()) {
            CHECK_MSG(status == LH_OK, "%s", err.text);
            lh_job_free(job);
            break;
        }
        check_failed(status, &err, job, n);
    }
}

static void jobs_are_written_or_not(void)
{
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_parse(job_text, strlen(job_text), "j", NULL, &job, &err),
             err);
    for (uint64_t n = 1; job; n++) {
        char *text = NULL;
        fail_alloc_at(n);
        lh_status status = lh_job_format(job, &text, NULL, &err);
        if (!fail_alloc_done()) {
            CHECK_MSG(status == LH_OK, "%s", err.text);
            CHECK(n > 100); /* jansson's are counted too */
            lh_text_free(text);
            break;
        }
        check_failed(status, &err, text, n);
    }
    lh_job_free(job);
}

static void drafts_are_written_or_not(void)
{
    static const char *const models[] = {"deepseek-v3",
                                         "configs/Qwen3-30B-A3B/config.json"};
    const lh_draft_site sites[] = {{.gpu = "h100"}, {.gpu = "v100"}};
    for (size_t i = 0; i < 2; i++)
        for (uint64_t n = 1;; n++) {
            const lh_draft_options o = {.size = sizeof o,
                                        .model = models[i],
                                        .n_sites = 2,
                                        .sites = sites,
                                        .folder = TEST_DATA};
            char *text = NULL;
            lh_error err = {0};
            fail_alloc_at(n);
            lh_status status = lh_job_draft(&o, &text, NULL, &err);
            if (!fail_alloc_done()) {
                CHECK_MSG(status == LH_OK, "%s", err.text);
                CHECK(n > 10);
                lh_text_free(text);
                break;
            }
            check_failed(status, &err, text, n);
        }
}

static void profiles_and_models_are_read_or_not(void)
{
    for (uint64_t n = 1;; n++) {
        static const char text[] =
            "longhaul: profile/1\nlinks: [{path: node, site: x, alpha_us: 1, "
            "beta_ns_per_byte: 1}]\n";
        lh_profile *profile = NULL;
        lh_error err = {0};
        fail_alloc_at(n);
        lh_status status =
            lh_profile_parse(text, sizeof text - 1, "p", &profile, &err);
        if (!fail_alloc_done()) {
            CHECK_MSG(status == LH_OK, "%s", err.text);
            lh_profile_free(profile);
            break;
        }
        check_failed(status, &err, profile, n);
    }
    for (uint64_t n = 1;; n++) {
        lh_model *model = NULL;
        lh_error err = {0};
        fail_alloc_at(n);
        lh_status status = lh_model_read(
            TEST_DATA "/configs/Qwen3-30B-A3B/config.json", &model, &err);
        if (!fail_alloc_done()) {
            CHECK_MSG(status == LH_OK, "%s", err.text);
            lh_model_free(model);
            break;
        }
        check_failed(status, &err, model, n);
    }
}

int main(void)
{
    json_set_alloc_funcs(__wrap_malloc, free);
    RUN(jobs_are_read_or_not);
    RUN(job_files_are_read_or_not);
    RUN(jobs_are_written_or_not);
    RUN(drafts_are_written_or_not);
    RUN(profiles_and_models_are_read_or_not);
    return test_summary();
}
