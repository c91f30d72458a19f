/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of calls that must leave their outputs unchanged, and the check. */
#ifndef FAILING_CALL_INPUTS_H
#define FAILING_CALL_INPUTS_H

#include "fail_alloc.h"
#include "jobs.h"
#include "small_recording.h"
#include "small_trace.h"
#include "uniform.h"

#include "network/optical/network.h"
#include "schedule/simulator/kernels.h"
#include <longhaul/check.h>
#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/advice.h>
#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/compare.h>
#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/draft.h>
#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/host_placement.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/layers.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/monitor.h>
#include <longhaul/experimental/optical.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/tradeoff.h>
#include <longhaul/scheduler.h>

enum { POISON = 0x5a };

static lh_error err;

/* An output before the call: a pattern that no call would write. */
#define POISONED(type, name)                                                   \
    type name;                                                                 \
    memset(&name, POISON, sizeof name)

/* Checks whether memory still has the pattern. */
static bool is_poison(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != POISON)
            return false;
    return true;
}

static const char *test_name; /* of the current call */

/* Checks the output after a failure, or the error after success; returns the
 * call's status. */
static lh_status left_alone(lh_status status, const void *out, size_t size)
{
    if (status != LH_OK)
        CHECK_MSG(is_poison(out, size), "%s: %s, and writes its output",
                  test_name, lh_status_name(status));
    else
        CHECK_MSG(is_poison(&err, sizeof err), "%s succeeds and says '%s'",
                  test_name, err.text);
    return status;
}

#define CALL(call, out)                                                        \
    (memset(&err, POISON, sizeof err), left_alone(call, &(out), sizeof(out)))

/* --- inputs of the calls -------------------------------------------------- */

static lh_pipeline *pipeline, *other;
static lh_schedule *schedule;
static lh_timeline *timeline;
static lh_analysis *analysis;
static lh_trace *trace;
static lh_job *job;
static lh_plan *plan;
static lh_exec *exec;
static lh_solution solution;
static lh_certificate *certificate;
static lh_topology *topology;
static const lh_layout layout = {.tensor = 1,
                                 .context = 1,
                                 .expert = 1,
                                 .pipeline = 2,
                                 .data = 1,
                                 .micro_batch = 1,
                                 .chunks_per_device = 1};
static const lh_elastic_case elastic = {.stages = 2,
                                        .replicas = 2,
                                        .chunks = 2,
                                        .microbatches = 4,
                                        .f_ns = 10,
                                        .b_ns = 20,
                                        .dp_ns = 3,
                                        .pp_ns = 1,
                                        .params = 100};

/* Creates the inputs. */
static void make_all(void)
{
    lh_error why = {0};
    lh_solve_options o = {.size = sizeof o, .effort = 20000};
    lh_plan_options quick = {
        .size = sizeof quick, .quick = true, .no_optimal = true};
    static const char nodes[] =
        "nodes: [{id: 1}, {id: 2}]\nlinks: [{a: 1, b: 2, km: 1}]\n";
    pipeline = uniform_make(
        (uniform){"ud", 2, 3, 2e-3, 3e-3, 1e-3, 2, 1e-3, 1e-4, 0, NULL});
    other = uniform_make((uniform){"ud", 3, 3, 2, 3, 1, 0, 0, 0, 1, NULL});
    job = job_with(JOB_SMALL, "%s", "");
    CHECK_OK(lh_method_run("1f1b", pipeline, NULL, &schedule, NULL, &why), why);
    CHECK_OK(lh_simulate(pipeline, schedule, NULL, &timeline, &why), why);
    CHECK_OK(lh_analysis_make(pipeline, schedule, timeline, &analysis, &why),
             why);
    CHECK_OK(lh_trace_make(pipeline, timeline, NULL, &trace, &why), why);
    CHECK_OK(lh_plan_make(job, &quick, &plan, &why), why);
    CHECK_OK(lh_exec_make(pipeline, schedule, NULL, &exec, &why), why);
    CHECK_OK(lh_solve(pipeline, &o, &solution, &why), why);
    CHECK_OK(lh_certify(pipeline, &o, &solution, &certificate, &why), why);
    CHECK_OK(lhi_topology_parse(nodes, strlen(nodes), "t", &topology, &why),
             why);
}

/* Frees the inputs. */
static void free_all(void)
{
    lh_topology_free(topology);
    lh_certificate_free(certificate);
    lh_solution_fini(&solution);
    lh_exec_free(exec);
    lh_plan_free(plan);
    lh_trace_free(trace);
    lh_analysis_free(analysis);
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lh_job_free(job);
    lh_pipeline_free(other);
    lh_pipeline_free(pipeline);
}

#endif
