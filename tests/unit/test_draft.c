/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Draft jobs: each parses, explains its keys, and contains the requested values
 * for any model, GPU and number of datacenters. */
#include "test_job.h"

#include <longhaul/experimental/draft.h>

#include <ctype.h>
#include <stdlib.h>

/* Drafts and parses a job. Release the text with lh_text_free(), the job with
 * lh_job_free(). */
static lh_job *drafted(const lh_draft_options *o, char **text)
{
    lh_error err = {0};
    lh_job *job;
    *text = NULL;
    CHECK_OK(lh_job_draft(o, text, NULL, &err), err);
    if (!*text)
        return NULL;
    job = parse(*text, &err);
    CHECK_MSG(job, "%s in\n%s", err.text, *text);
    return job;
}

/* Checks whether the line has a key, after a list's dash or a comment's '#'. */
static bool has_key(const char *line, bool *covered)
{
    const char *at = line + strspn(line, " -");
    *covered = at[0] == '#' && at[1] == ' ';
    at += *covered ? 2 : 0;
    const char *end = at;
    while (islower((unsigned char)*end) || *end == '_')
        end++;
    return end > at && *end == ':';
}

/* Returns the text with the comment at `at` uncommented. */
static char *uncover(const char *text, size_t at)
{
    char *copy = strdup(text);
    char *hash = strchr(copy + at, '#');
    memmove(hash, hash + 2, strlen(hash + 2) + 1);
    return copy;
}

static void lines_are_short_and_say_what_they_are(const char *text)
{
    for (const char *line = text, *end; *line; line = end + 1) {
        bool covered;
        end = strchr(line, '\n');
        const size_t len = (size_t)(end - line);
        CHECK_MSG(len <= 100, "%.*s", (int)len, line);
        CHECK_MSG(len == 0 || line[len - 1] != ' ', "ends with a space: %.*s",
                  (int)len, line);
        if (!has_key(line, &covered))
            continue;
        /* Sections are explained by the line above, lists once for their key.
         */
        const char *second =
            covered ? strchr(strchr(line, '#') + 1, '#') : strchr(line, '#');
        bool above = line - text > 3 && line[-2] != '\n';
        bool said = (second && second < end) || (above && line[0] != ' ') ||
                    strncmp(line, "longhaul", 8) == 0;
        CHECK_MSG(said, "nothing is said of: %.*s", (int)len, line);
    }
}

static void what_is_covered_may_be_uncovered(const char *text)
{
    uint32_t n = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        bool covered;
        lh_error err;
        if (!has_key(line, &covered) || !covered)
            continue;
        char *open = uncover(text, (size_t)(line - text));
        lh_job *job = parse(open, &err);
        CHECK_MSG(job, "%s in\n%s", err.text, open);
        lh_job_free(job);
        free(open);
        n++;
    }
    CHECK(n >= 5);
}

static void each_model_on_each_gpu_is_a_job(void)
{
    for (const char *const *m = lh_model_presets(); *m; m++)
        for (const char *const *g = lh_gpu_presets(); *g; g++)
            for (uint32_t n = 1; n <= 4; n++) {
                const lh_draft_site one = {.gpu = *g};
                const lh_draft_site sites[4] = {one, one, one, one};
                const lh_draft_options o = {.size = sizeof o,
                                            .model = *m,
                                            .n_sites = n,
                                            .sites = sites};
                char *text;
                lh_job *job = drafted(&o, &text);
                if (!job)
                    continue;
                CHECK_STR(job->model->name, *m);
                CHECK(job->n_datacenters == n);
                double memory = 0;
                for (uint32_t i = 0; i < n; i++) {
                    CHECK_STR(job->datacenters[i].gpu.name, *g);
                    memory += (double)job->datacenters[i].gpu.memory_bytes *
                              job->datacenters[i].gpus;
                }
                CHECK(memory >= 72.0 * (double)lh_model_params(job->model));
                CHECK(job->training.precision == (strncmp(*g, "v100", 4) == 0
                                                      ? LH_PRECISION_FP16
                                                      : LH_PRECISION_BF16));
                lines_are_short_and_say_what_they_are(text);
                if (n == 2)
                    what_is_covered_may_be_uncovered(text);
                lh_job_free(job);
                lh_text_free(text);
            }
}

static void what_is_asked_for_is_there(void)
{
    const lh_draft_site sites[] = {
        {.gpu = "h100", .nodes = 4},
        {.gpu = "a100", .nodes = 16, .gpus_per_node = 4},
        {.gpu = "h100", .nodes = 2, .gpus_per_node = 2}};
    const lh_draft_options o = {.size = sizeof o,
                                .model = "llama3.3-70b",
                                .n_sites = 3,
                                .sites = sites,
                                .latency_ns = 1500000,
                                .gbps = 12.5,
                                .global_batch = 96,
                                .sequence = 1024};
    char *text;
    lh_job *job = drafted(&o, &text);
    CHECK_STR(job->model->name, "llama3.1-70b");
    CHECK(job->training.global_batch == 96 && job->training.sequence == 1024);
    const lh_datacenter *d = job->datacenters;
    CHECK(d[0].nodes == 4 && d[0].gpus_per_node == 8);
    CHECK(d[1].nodes == 16 && d[1].gpus_per_node == 4);
    CHECK(d[2].nodes == 2 && d[2].gpus_per_node == 2);
    CHECK_STR(d[0].gpu.name, "h100-sxm");
    CHECK_STR(d[1].gpu.name, "a100-80g");
    CHECK_STR(d[2].gpu.name, "h100-sxm");
    CHECK(d[1].fabric.gbps < d[0].fabric.gbps);
    CHECK(d[1].node_link.gbps < d[2].node_link.gbps);
    for (uint32_t a = 0; a < 3; a++)
        for (uint32_t b = 0; b < 3; b++) {
            const lh_wan *wan = &job->wans[a * 3 + b];
            CHECK(a == b ||
                  (wan->latency_ns == 1500000 && wan->bytes_per_s > 1.5624e9 &&
                   wan->bytes_per_s < 1.5626e9));
        }
    lh_job_free(job);
    lh_text_free(text);
}

static void what_is_not_said_follows_from_the_model(void)
{
    const lh_draft_options o = {.size = sizeof o, .model = "gpt3-175b"};
    char *text;
    lh_job *job = drafted(&o, &text);
    CHECK(job->n_datacenters == 1); /* 2048 learned positions */
    CHECK(job->training.sequence == 2048);
    CHECK(job->training.global_batch * 2048 == LH_DRAFT_TOKENS);
    lh_job_free(job);
    lh_text_free(text);
}

static void a_config_json_is_a_model(void)
{
    const lh_draft_options o = {.size = sizeof o,
                                .model = "configs/Qwen3-30B-A3B/config.json",
                                .folder = TEST_DATA};
    lh_error err = {0};
    char *text = NULL;
    lh_job *job = NULL;
    CHECK_OK(lh_job_draft(&o, &text, NULL, &err), err);
    CHECK_HAS(text, "model: \"configs/Qwen3-30B-A3B/config.json\"");
    CHECK_HAS(text, "30.53 billion parameters");
    CHECK_OK(lh_job_parse(text, strlen(text), "j", TEST_DATA, &job, &err), err);
    CHECK(job->model->layers == 48);
    lh_job_free(job);
    lh_text_free(text);
}

static void refuse_draft(lh_draft_options o, const char *says)
{
    lh_error err = {0};
    char *text = NULL;
    o.size = sizeof o;
    CHECK(lh_job_draft(&o, &text, NULL, &err) == LH_EINPUT);
    CHECK(!text);
    CHECK_HAS(err.text, says);
}

static void what_no_job_may_have_is_refused(void)
{
    const lh_draft_site wrong = {.gpu = "h1000"}, none = {0};
    const lh_draft_site many = {
        .gpu = "h100", .nodes = 1u << 24, .gpus_per_node = 1024};
    refuse_draft((lh_draft_options){.n_sites = 1, .sites = &wrong},
                 "unknown GPU 'h1000'; known: v100-32g,");
    refuse_draft((lh_draft_options){.n_sites = 1, .sites = &none},
                 "unknown GPU ''");
    refuse_draft((lh_draft_options){.n_sites = 65, .sites = &none},
                 "65 sites; at most 64");
    refuse_draft((lh_draft_options){.n_sites = 1, .sites = &many},
                 "exceed the limit of 16777216 GPUs");
    refuse_draft((lh_draft_options){.model = "gpt3-175b", .sequence = 4096},
                 "has learned 2048 positions");
    lh_draft_options o = {.size = sizeof o, .model = "nowhere/config.json"};
    lh_error err = {0};
    char *text = NULL;
    CHECK(lh_job_draft(&o, &text, NULL, &err) == LH_EIO);
    CHECK_HAS(err.text, "nowhere/config.json");
}

int main(void)
{
    RUN(each_model_on_each_gpu_is_a_job);
    RUN(what_is_asked_for_is_there);
    RUN(what_is_not_said_follows_from_the_model);
    RUN(a_config_json_is_a_model);
    RUN(what_no_job_may_have_is_refused);
    return test_summary();
}
