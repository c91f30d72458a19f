/* SPDX-License-Identifier: Apache-2.0 */
/* Edited plans: contradictions with the job or the rest of the file are
 * rejected with file, line and key. */
#include "jobs.h"
#include "plan_edits.h"

#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/plan.h>

#include <stdlib.h>
#include <string.h>

static const lh_jitter rough = {
    .size = sizeof rough, .latency = 1, .samples = 20, .seed = 3};

/* A plan across two datacenters, with prices, jitter samples and link advice.
 */
static char *make_text(void)
{
    const lh_plan_options how = {.size = sizeof how,
                                 .effort = 10000,
                                 .jitter = &rough,
                                 .pareto_front = true};
    return planned_text("  gpus_per_node: 2\n"
                        "  usd_per_gpu_hour: 2\n"
                        "training: {global_batch: 16, sequence: 2048, "
                        "zero: 1, recompute: none}\n"
                        "layout: {tensor: 1, context: 1, pipeline: 4, "
                        "chunks_per_device: 1, outermost: pipeline, "
                        "micro_batch: 1}\n",
                        &how);
}

static uint32_t line_of(const char *text, const char *from, const char *key)
{
    uint32_t line = 1;
    const char *at = from ? strstr(text, from) : text;
    at = at ? strstr(at, key) : text;
    for (const char *c = text; c < at; c++)
        line += *c == '\n';
    return line;
}

#define CHANGED "input_hash: does not match the plan's job, which was changed"

static const plan_edit mistakes[] = {
    {NULL, "\"microbatches\"", "15", "microbatches: 15 of 1 samples on 1 "},
    {NULL, "\"iteration_ns\"", "-1", "iteration_ns: must not be negative"},
    {NULL, "\"iteration_ns\"", "-5", "iteration_ns: -5 is out of range"},
    {NULL, "\"makespan_ns\"", "5",
     ": is not the sum of makespan_ns, optimizer_ns and"},
    {NULL, "\"overhead_ns\"", "-1", "overhead_ns: -1 is out of range"},
    {NULL, "\"lower_bound_ns\"", "900000000000000000",
     "lower_bound_ns: is above iteration_ns"},
    {NULL, "\"iteration_s\"", "77.5",
     "iteration_s: does not match iteration_ns"},
    {"\"methods\"", "\"iteration_s\"", "77.5",
     "methods[0].iteration_s: does not match"},
    {NULL, "\"bubble_ratio\"", "1.5",
     "bubble_ratio: 1.5 is out of range; from 0 to 1"},
    {NULL, "\"mfu\"", "-0.5", "mfu: -0.5 is out of range"},
    {NULL, "\"tokens_per_s\"", "1",
     "tokens_per_s: does not match iteration_ns"},
    {NULL, "\"peak_memory_bytes\"", "900000000000000",
     "peak_memory_bytes: is above memory_limit_bytes"},
    {NULL, "\"tensor\"", "64", "layout: needs 256 GPUs; the job has 4"},
    {NULL, "\"status\"", "\"failed\"", "iteration_ns: must be -1 if the"},
    {"\"cost\"", "\"gpus\"", "3", "cost.gpus: is 3, but the layout needs 4"},
    {"\"jitter\"", "\"samples\"", "21",
     "jitter.samples: is 21; robust.samples"},
    {"\"jitter\"", "\"mean_s\"", "0.0001", "mean_s: must be between least_s"},
    {"\"search\"", "\"layouts\"", "3", "search.layouts: is 3, but memory,"},
    {"\"search\"", "\"lower_bound_s\"", "1000",
     "lower_bound_s: does not match lower_bound_ns"},
    {"\"schedule\": {", "\"method\"", "\"gpipe-x\"",
     "schedule.method: is 'gpipe-x', but layout.schedule"},
    {"\"network\"", "\"from\"", "\"north\"",
     "network[0].from: the job has no datacenter 'north'"},
    {"\"network\"", "\"from\"", "\"east\"", "must differ from 'from'"},
    {"\"runners_up\"", "\"dimension\"", "\"colour\"",
     "unknown layout dimension 'colour'"},
    {NULL, "\"zero\"", "0", "zero: is 0, but the job's training.zero is 1"},
    {NULL, "\"recompute\"", "\"full\"",
     "recompute: is 'full', but the job's training.recompute is 'none'"},
    {NULL, "\"input_hash\"", "\"fnv1a64:0123456789abcdef\"", CHANGED},
    {"\"training\": {", "\"zero\"", "0", "zero: is 1, but the job's"},
    {"\"training\": {", "\"recompute\"", "\"full\"",
     "recompute: is 'none', but the job's"},
    {"\"training\": {", "\"optimizer\"", "\"adam\"", CHANGED},
    {"\"model\": {", "\"kv_heads\"", "4", "mfu: does not match iteration_ns"},
    {"\"job\": {", "\"pipeline\"", "2",
     "layout.pipeline: is 4, but the job's layout.pipeline is 2"},
    {"\"job\": {", "\"micro_batch\"", "2", "the job's layout.micro_batch is"},
    {"\"datacenters\": [", "\"nodes\"", "2", CHANGED},
};

static void mistakes_are_refused(const char *text)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        try_edit(text, &mistakes[i]);
}

/* The error's line is the key's. */
static void lines_are_said(const char *text)
{
    char want[64];
    lh_plan *plan = NULL;
    lh_error err = {0};
    char *bad = edited(text, NULL, "\"mfu\"", "-1");
    snprintf(want, sizeof want,
             "plan.json:%" PRIu32 ": mfu:", line_of(text, NULL, "\"mfu\""));
    CHECK_INT(lh_plan_parse(bad, strlen(bad), "plan.json", &plan, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, want);
    free(bad);
}

static void edit_is_needed(const char *text)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_parse(text, strlen(text), "plan.json", &plan, &err), err);
    CHECK(plan && plan->robust && plan->n_pareto && plan->n_network == 2 &&
          plan->n_dimension_alternatives && plan->best.cost);
    lh_plan_free(plan);
}

/* The pipeline's devices are where the layout places its ranks. */
static void devices_are_in_place(const char *text)
{
    char *bad = NULL;
    lh_plan *plan = NULL;
    lh_error err = {0};
    /* Renames both datacenters in the job, but not in the pipeline. */
    const char *job = strstr(text, "\n \"job\": {");
    CHECK(job);
    if (!job)
        return;
    bad = malloc(strlen(text) + 1);
    if (!bad)
        exit(1);
    strcpy(bad, text);
    char *sites = strstr(strstr(bad, "\"pipeline\": {"), "\"sites\"");
    CHECK(sites != NULL);
    char *west = sites ? strstr(sites, "west") : NULL;
    char *east = sites ? strstr(sites, "east") : NULL;
    CHECK(west && east);
    if (west && east) {
        memcpy(west, "east", 4);
        memcpy(east, "west", 4);
        CHECK_INT(lh_plan_parse(bad, strlen(bad), "plan.json", &plan, &err),
                  LH_EINPUT);
        CHECK_HAS(err.text, "pipeline: device 0 is in 'east', but the layout "
                            "places that rank in 'west'");
    }
    lh_plan_free(plan);
    free(bad);
}

/* Rejects a time with all link advice applied if there is no advice. */
static void links_are_there(const char *text)
{
    lh_plan *plan = NULL, *again = NULL;
    char *bad = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_parse(text, strlen(text), "plan.json", &plan, &err), err);
    if (!plan)
        return;
    plan->n_network = 0;
    CHECK_OK(lh_plan_format(plan, &bad, NULL, &err), err);
    CHECK_INT(lh_plan_parse(bad, strlen(bad), "plan.json", &again, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, "network_iteration_s: requires a link in 'network'");
    lh_text_free(bad);
    lh_plan_free(plan);
    lh_plan_free(again);
}

static char *plan_text;

static void refusals(void)
{
    mistakes_are_refused(plan_text);
    lines_are_said(plan_text);
}

static void places(void)
{
    devices_are_in_place(plan_text);
    links_are_there(plan_text);
}

static void as_written(void)
{
    edit_is_needed(plan_text);
}

int main(void)
{
    plan_text = make_text();
    CHECK(plan_text);
    if (plan_text) {
        RUN(as_written);
        RUN(refusals);
        RUN(places);
    }
    lh_text_free(plan_text);
    return test_summary();
}
