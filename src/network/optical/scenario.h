/* SPDX-License-Identifier: Apache-2.0 */
/* A validated scenario: training jobs over an elastic optical network. Input: a
 * scenario's file. Output: iteration times under each policy
 * (longhaul/experimental/optical.h).
 *
 *     network.h          nodes, cables: topology.c; candidate routes: routes.c
 *     gnpy.h             networks of GNPy with the GSNR of paths; gn_model.h
 *     spectrum.h         slots of fibres; assignment.h: slots for requests;
 *                        load_gsnr.h: by the GSNR under the current load
 *     program.h          tasks of a job's devices in one iteration
 *     replicas.c         messages between a job's replicas
 *     scenario.c         file reader; job_reader.c, policy_reader.c: its parts
 *     prepare_jobs.c     jobs under a policy and seed; device_placement.h
 *     simulation.h       one run: jobs and background, circuits.c; message
 *                        deadlines: deadlines.h
 *     optical.c          all policies with all seeds; background_traffic.c:
 *                        background alone
 *     live_circuits.c    cuts and restoration; failure_events.c: as events
 *     sweep.c            grids of scenarios; sweep_page.c: their pictures
 *     report.c           report; figures.h: its pictures */
#ifndef LHI_NETWORK_OPTICAL_SCENARIO_H
#define LHI_NETWORK_OPTICAL_SCENARIO_H

#include "network/optical/simulation.h"

#include <longhaul/experimental/optical.h>
#include <longhaul/experimental/plan.h>

/* One job: a regular chain of stages, or a pipeline with its schedule. */
typedef struct lhi_optical_job_spec {
    const char *name;
    uint32_t devices;
    lhi_chain chain;       /* microbatches, times and bits are always set */
    int64_t weight_ns;     /* chain: time of W within the backward */
    uint32_t activations;  /* chain: microbatch limit per device for methods; 0:
                            * none */
    const char *schedule;  /* chain: gpipe, 1f1b or a method; else a method, or
                            * NULL: the plan's */
    lh_plan *plan;         /* owned; NULL: none */
    lh_pipeline *pipeline; /* owned; NULL: the plan's, or a chain */
    const uint32_t *placement; /* [devices] nodes; NULL: from the seed */
    uint32_t datacenters;      /* for placements from the seed */
    /* Messages between replicas; ring.nodes NULL: from the seed. A plan's ring
     * passes the datacenters ring_sites of its pipeline. */
    lhi_replica_ring ring;
    const uint32_t *ring_sites;
    bool keep_groups;         /* one pipeline site's devices share a node */
    const lhi_policy *policy; /* NULL: the run's */
    uint32_t priority;        /* among the scenario's jobs */
} lhi_optical_job_spec;

/* A file that the scenario refers to. */
typedef struct lhi_scenario_file lhi_scenario_file;
struct lhi_scenario_file {
    const char *path; /* as opened */
    lhi_scenario_file *next;
};

/* A scenario. */
struct lh_scenario {
    lhi_arena *mem;
    lh_topology *topology;
    lhi_network *network;
    bool borrows_network; /* it belongs to another scenario of a sweep */
    int64_t slowest_mbps; /* per slot */
    uint32_t n_jobs, n_policies, n_seeds;
    lhi_optical_job_spec *jobs;
    lhi_policy *policies;
    uint64_t *seeds;
    lhi_background background;
    const lhi_failures *failures; /* NULL: none */
    uint32_t request_slots;
    int64_t retry_ns;
    int64_t setup_ns, teardown_ns; /* of a message's circuit */
    uint32_t iterations;
    lhi_scenario_file *files, *last_file; /* by appearance */
};

/* Builds a scenario (network, jobs, background traffic, policies and seeds)
 * from a parsed scenario file. */
lh_status lhi_scenario_build(const lhi_doc *doc, lh_scenario **out,
                             lh_error *err);

/* Simulates n scenarios with all their policies and seeds in one pool of
 * threads; results[i] are those of scenarios[i]. */
lh_status lhi_optical_run_scenarios(const lh_scenario *const *scenarios,
                                    uint32_t n,
                                    const lh_optical_options *options,
                                    lh_optical **results, lh_error *err);

/* Returns the pipeline of a job given by a file; NULL for a chain of equal
 * stages. */
const lh_pipeline *lhi_optical_job_pipeline(const lhi_optical_job_spec *job);

/* Determines the messages between replicas of a plan that has some in several
 * datacenters, with data parallelism outermost: sizes and datacenters, without
 * nodes. Sets job->pipeline to the plan's without these collectives. Leaves
 * other jobs unchanged. */
lh_status lhi_replicas_from_plan(const lh_plan *plan, lhi_arena *mem,
                                 lhi_optical_job_spec *job, lh_error *err);

/* Reads one entry of `policies` into *out: `map` is named after the policy or
 * has the key `policy`, and is null or holds options. Read after the scenario's
 * network and request_slots. */
lh_status lhi_policy_parse(const lhi_doc *doc, const lhi_node *map,
                           lh_scenario *scenario, lhi_policy *out,
                           lh_error *err);
/* Reads a job of a scenario from the map `map`. */
lh_status lhi_optical_job_parse(const lhi_doc *doc, const lhi_node *map,
                                lh_scenario *scenario,
                                lhi_optical_job_spec *out, lh_error *err);
/* Reads a job of a scenario from the plan file named at `node`. */
lh_status lhi_optical_job_parse_plan(const lhi_doc *doc, const lhi_node *node,
                                     lh_scenario *scenario,
                                     lhi_optical_job_spec *out, lh_error *err);
/* Appends a path to the list of files that the scenario refers to
 * (lh_scenario_file()); borrows the path. */
lh_status lhi_scenario_add_file(lh_scenario *scenario, const char *path,
                                lh_error *err);
/* Returns the path of the file named at `node`, relative to the document. The
 * scenario owns the path and lists it (lh_scenario_file()). */
lh_status lhi_scenario_resolve_file(lh_scenario *scenario, const lhi_doc *doc,
                                    const lhi_node *node, const char **path,
                                    lh_error *err);
/* Parses the pass order of a chain job, "gpipe" or "1f1b", into *order; false
 * for any other schedule. */
bool lhi_program_order_parse(const char *schedule, lhi_program_order *order);
/* Reads a schedule method's name, such as "1f1b", and copies it into `mem`.
 * LH_EINPUT: there is no such method. */
lh_status lhi_scenario_parse_method(const lhi_doc *doc, const lhi_node *node,
                                    lhi_arena *mem, const char **out,
                                    lh_error *err);

/* Places every job's devices on network nodes under one policy with one seed,
 * and builds their programs (pass orders and messages); everything is allocated
 * in `mem`. */
lh_status lhi_scenario_prepare_jobs(const lh_scenario *scenario,
                                    const lhi_policy *policy, uint64_t seed,
                                    lhi_arena *mem, lhi_optical_run_job *jobs,
                                    lh_error *err);

/* Returns the inputs of the simulation of a scenario's prepared jobs with
 * random seed `seed`. */
lhi_optical_run_input lhi_scenario_run_input(const lh_scenario *scenario,
                                             const lhi_optical_run_job *jobs,
                                             uint64_t seed);

/* Returns an assignment policy's name, such as "sd-ff". */
const char *lhi_assignment_name(lh_assignment assignment);

#endif
