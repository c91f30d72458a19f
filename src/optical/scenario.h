/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario, read and checked.
 *
 * Jobs over an elastic optical network. In: a scenario's file. Out: how long
 * iterations take under each policy (longhaul/optical.h).
 *
 *   optical_network.h  nodes and cables: topology.c; candidate routes: routes.c
 *   spectrum.h         slots of fibres; choose.h: which a request gets
 *   program.h          what a job's devices do in one iteration
 *   scenario.c         the file; traffic_job.c: its jobs
 *   prepare.c          jobs under a policy and a seed, placed: optical_place.h
 *   traffic_run.h      one run: jobs and background, circuits.c; deadlines of
 *                      messages: critical.h
 *   optical.c          all policies with all seeds; optical_traffic.c:
 *                      background alone
 *   html.c             the report; picture.h: its pictures */
#ifndef LHI_SCENARIO_H
#define LHI_SCENARIO_H

#include "optical/traffic_run.h"

#include <longhaul/plan.h>

/* One job: a regular chain of stages, or a pipeline with its schedule. */
typedef struct lhi_job_spec {
    const char *name;
    uint32_t devices;
    lhi_chain chain;       /* microbatches, times, bits: always */
    int64_t weight_ns;     /* chain: of the backward, its W pass */
    uint32_t activations;  /* chain: micro-batches that a device can hold, where
                              a method orders its passes; 0: any number */
    const char *schedule;  /* chain: gpipe, 1f1b or a method; else a method,
                              or NULL: the plan's */
    lh_plan *plan;         /* owned; NULL: none */
    lh_pipeline *pipeline; /* owned; NULL: the plan's, or a chain */
    const uint32_t *placement; /* [devices] nodes; NULL: from the seed */
    uint32_t datacenters;      /* of a placement from the seed */
    bool keep_groups; /* devices of one site of the pipeline stay together */
} lhi_job_spec;

/* A file that the scenario names. */
typedef struct lhi_named_file lhi_named_file;
struct lhi_named_file {
    const char *path; /* as it was opened */
    lhi_named_file *next;
};

struct lh_scenario {
    lhi_arena *mem;
    lh_topology *topology;
    lhi_network *network;
    int64_t slowest_mbps; /* of a slot */
    uint32_t n_jobs, n_policies, n_seeds;
    lhi_job_spec *jobs;
    lhi_policy *policies;
    uint64_t *seeds;
    lhi_background background;
    uint32_t request_slots;
    int64_t retry_ns;
    uint32_t iterations;
    lhi_named_file *files, *last_file; /* in the order of the text */
};

/* The pipeline of a job that is not a chain. */
const lh_pipeline *lhi_job_pipeline(const lhi_job_spec *job);

/* Jobs: `map` is a job's map. */
lh_status lhi_job_from(const lhi_doc *doc, const lhi_node *map,
                       lh_scenario *scenario, lhi_job_spec *out, lh_error *err);
/* A plan's file stands at `node`. */
lh_status lhi_job_from_plan(const lhi_doc *doc, const lhi_node *node,
                            lh_scenario *scenario, lhi_job_spec *out,
                            lh_error *err);
/* The path of the file that stands at `node`, which lies beside the document;
 * the scenario owns it and says so (lh_scenario_file()). */
lh_status lhi_scenario_names(lh_scenario *scenario, const lhi_doc *doc,
                             const lhi_node *node, const char **path,
                             lh_error *err);
/* "gpipe" or "1f1b" of a chain: *order is set. */
bool lhi_chain_order(const char *schedule, lhi_program_order *order);
/* Refuses what is not the name of a method. */
lh_status lhi_get_method(const lhi_doc *doc, const lhi_node *node,
                         lhi_arena *mem, const char **out, lh_error *err);

/* Where the devices of every job are under one policy with one seed, and what
 * they do; everything in `mem`. */
lh_status lhi_prepare(const lh_scenario *scenario, const lhi_policy *policy,
                      uint64_t seed, lhi_arena *mem, lhi_run_job *jobs,
                      lh_error *err);

#endif
