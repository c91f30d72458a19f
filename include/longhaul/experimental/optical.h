/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates pipeline-parallel training over an elastic optical network:
 * topologies, scenarios, and the comparison of policies for routing and
 * spectrum assignment. Model: docs/optical.md. File formats:
 * docs/formats/topology.md, docs/formats/scenario.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_OPTICAL_H
#define LONGHAUL_EXPERIMENTAL_OPTICAL_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- topologies ---------------------------------------------------------- */

/* Network nodes and cables. Nodes are numbered from 0 in the order of their
 * ids; a cable is two opposite fibres. Immutable after creation. */
typedef struct lh_topology lh_topology;

/* Reads and parses a network topology file. LH_EIO: it cannot be read. */
LH_API lh_status lh_topology_read(const char *path, lh_topology **out,
                                  lh_error *err);
/* Frees a topology; NULL is a no-op. */
LH_API void lh_topology_free(lh_topology *topology);

/* Returns the topology's name; borrowed. */
LH_API const char *lh_topology_name(const lh_topology *topology);
/* Returns the network's node count. */
LH_API uint32_t lh_topology_n_nodes(const lh_topology *topology);

/* A cable between two nodes. */
typedef struct lh_cable {
    uint32_t a, b; /* nodes */
    int64_t length_m;
} lh_cable;

/* Returns the network's cable count. */
LH_API uint32_t lh_topology_n_cables(const lh_topology *topology);

/* A loop-free route. */
typedef struct lh_route {
    int64_t length_m;
    uint32_t n_nodes;
    const uint32_t *nodes;
    const uint32_t *cables; /* [n_nodes - 1] */
} lh_route;

/* --- scenarios ------------------------------------------------------------ */

/* Policies for routing and spectrum assignment. */
typedef enum lh_assignment {
    LH_SD_FF,  /* shortest route, first fit */
    LH_KSP_FF, /* candidate routes in order, first fit */
    /* labels communication-bound passes, ranks routes by fitness */
    LH_CBA,
    LH_SLACK,    /* deadlines instead of labels */
    LH_CRITICAL, /* slack from the critical path, routes by cost */
} lh_assignment;

/* A scenario: network, traffic and policies. Immutable after creation. */
typedef struct lh_scenario lh_scenario;

/* Parses a scenario. `name` appears in error messages; referenced files are
 * searched in its folder. Release with lh_scenario_free(). */
LH_API lh_status lh_scenario_parse(const char *text, size_t len,
                                   const char *name, lh_scenario **out,
                                   lh_error *err);
/* Reads and parses a scenario file. LH_EIO: it cannot be read. */
LH_API lh_status lh_scenario_read(const char *path, lh_scenario **out,
                                  lh_error *err);
/* Frees a scenario; NULL is a no-op. */
LH_API void lh_scenario_free(lh_scenario *scenario);

/* Returns the scenario's topology; borrowed. */
LH_API const lh_topology *lh_scenario_topology(const lh_scenario *scenario);
/* Returns the scenario's job count. */
LH_API uint32_t lh_scenario_n_jobs(const lh_scenario *scenario);
/* Returns the path of the i-th file that the scenario refers to, as opened;
 * NULL past the end. */
LH_API const char *lh_scenario_file(const lh_scenario *scenario, uint32_t i);

/* --- results -------------------------------------------------------------- */

/* A cable outage; times after the jobs' begin. */
typedef struct lh_outage {
    uint32_t cable, a, b;   /* a, b: its nodes */
    int64_t down_ns, up_ns; /* up_ns -1: not repaired during the run */
} lh_outage;

/* One job's result under one policy with one seed. Rates are ratios, not per
 * cent. All values except the arrays and the counts of
 * messages exclude the warm-up iteration. */
typedef struct lh_optical_job {
    uint32_t n_devices;
    const uint32_t *sites;       /* node per device */
    uint32_t n_iterations;       /* including the warm-up, which is the first */
    const int64_t *iteration_ns; /* [n_iterations] */
    const uint32_t *labels;      /* communication-bound passes per iteration */
    const uint32_t *requested;   /* requests per iteration */
    const uint32_t *refused;     /* blocked requests per iteration */
    /* Lower bound on an iteration: with zero-time messages; with the policy
     * option fill_idle, the passes of the busiest device. */
    int64_t bound_ns;
    uint64_t blocked; /* blocked requests, including warm-up */
    double iteration_s, bubble_ratio, blocking_probability;
    double slots_held; /* occupied slots x fibres, averaged over time */
    /* Messages sent again because a job with a higher priority took their
     * circuit: in all iterations, also those of a finished job, and in the
     * warm-up iteration. */
    uint64_t preempted_messages, warm_up_preempted_messages;
    /* With failures, otherwise NULL and 0: the same run without failures, the
     * mean loss per iteration, and the messages whose circuit was cut. */
    const int64_t *intact_ns; /* [n_iterations] */
    double lost_s;
    uint64_t cut_messages;
} lh_optical_job;

/* One policy's result with one seed. */
typedef struct lh_optical_run {
    uint64_t seed;
    uint32_t n_jobs;
    const lh_optical_job *jobs;
    uint64_t background, background_refused; /* while job 0 was measured */
    uint32_t n_outages;
    const lh_outage *outages;                 /* by begin */
    uint64_t background_cut, background_lost; /* circuits cut; not restored */
} lh_optical_run;

/* Means over jobs and seeds; standard deviations over seeds (divisor n). */
typedef struct lh_optical_policy {
    const char *name;
    lh_assignment assignment;
    double iteration_s, iteration_s_sd;
    double bubble_ratio, bubble_ratio_sd;
    double blocking_probability, blocking_probability_sd;
    double slots_held, collateral;
    double bound_s; /* mean lower bound on an iteration */
    double lost_s;  /* per iteration, by failures */
    uint32_t n_runs;
    const lh_optical_run *runs; /* one per seed */
} lh_optical_policy;

/* All policies' results. Release with lh_optical_free(). */
typedef struct lh_optical {
    uint32_t n_policies;
    const lh_optical_policy *policies;
    bool has_failures; /* the scenario has `failures` */
} lh_optical;

/* Options for lh_optical_run_all(). */
typedef struct lh_optical_options {
    size_t size;      /* sizeof(lh_optical_options) */
    uint32_t threads; /* 0: one per processor */
    uint32_t n_seeds; /* 0: the scenario's number */
    const uint64_t *seeds;
    /* Called after every run, by one thread at a time; returning true stops
     * with LH_ECANCELED. May be NULL. */
    bool (*progress)(void *context, uint32_t done, uint32_t total);
    void *context;
} lh_optical_options;

/* Simulates every policy of a scenario with every seed. The result does not
 * depend on the thread count. `options` may be NULL. Release with
 * lh_optical_free(). */
LH_API lh_status lh_optical_run_all(const lh_scenario *scenario,
                                    const lh_optical_options *options,
                                    lh_optical **out, lh_error *err);
/* Frees lh_optical_run_all()'s results; NULL is a no-op. */
LH_API void lh_optical_free(lh_optical *optical);

/* Formats a self-contained HTML page: policies with their spread, topology,
 * spectrum over time per fibre, and one iteration. The topology has the
 * stages and routes of the first seed; the iteration marks
 * communication-bound passes. Release *text with lh_text_free(); `len` may
 * be NULL. */
LH_API lh_status lh_optical_html(const lh_scenario *scenario,
                                 const lh_optical *optical, char **text,
                                 size_t *len, lh_error *err);

/* Formats the first policy's outages and seed as an events file
 * (docs/formats/events.md) for the first job: in each iteration, the longer
 * path between two devices, or the wait for a repair, is an added latency.
 * Release *text with lh_text_free(); `len` may be NULL. LH_EINFEASIBLE: no link
 * is delayed. */
LH_API lh_status lh_optical_events(const lh_scenario *scenario,
                                   const lh_optical *optical, char **text,
                                   size_t *len, lh_error *err);

/* Returns half the width of the 95 % confidence interval of a mean over n_runs
 * seeds with standard deviation sd (divisor n_runs), by Student's t; 0 for one
 * run. */
LH_API double lh_optical_half_width(double sd, uint32_t n_runs);

/* --- sweeps --------------------------------------------------------------- */

/* A scenario key with its values. */
typedef struct lh_optical_axis {
    const char *key; /* such as "background.erlang" */
    uint32_t n_values;
    const char *const *values;
} lh_optical_axis;

/* A scenario's results for every value combination. */
typedef struct lh_optical_sweep {
    uint32_t n_axes;
    const lh_optical_axis *axes;
    uint32_t n_cells;
    const lh_optical *const *cells; /* the last axis varies fastest */
} lh_optical_sweep;

/* Simulates a scenario file for every value combination.
 * `axes`: KEY=VALUE,VALUE;KEY=VALUE,VALUE with keys of the scenario
 * ("job.microbatches"); a key of a list is set in all its items. Files are
 * relative to the scenario. The result does not depend on the thread count.
 * LH_EINPUT: a value does not fit; the message names it. Release with
 * lh_optical_sweep_free(). */
LH_API lh_status lh_optical_sweep_run(const char *path, const char *axes,
                                      const lh_optical_options *options,
                                      lh_optical_sweep **out, lh_error *err);
/* Frees a sweep; NULL is a no-op. */
LH_API void lh_optical_sweep_free(lh_optical_sweep *sweep);
/* Returns the index of the value that axis `axis` (a varied key) has in cell
 * `cell` (one combination of values, the last axis varying fastest). */
LH_API uint32_t lh_optical_sweep_value(const lh_optical_sweep *sweep,
                                       uint32_t cell, uint32_t axis);
/* The best value combination. */
typedef struct lh_optical_choice {
    uint32_t cell, policy; /* with the shortest mean iteration */
    uint32_t stepwise;     /* cell by choosing one key after the other */
} lh_optical_choice;

/* Returns the combination and policy with the shortest mean iteration; of
 * equals, the first. `stepwise`: the cell reached under this policy by choosing
 * the best value of each key in turn, with the following keys at their first
 * values. */
LH_API lh_optical_choice lh_optical_sweep_best(const lh_optical_sweep *sweep);
/* Returns the path of the i-th file that the sweep's scenarios refer to; a file
 * may occur repeatedly; NULL past the end. */
LH_API const char *lh_optical_sweep_file(const lh_optical_sweep *sweep,
                                         uint32_t i);
/* Formats a sweep as CSV: one row per cell and policy, with 95 % confidence
 * intervals. Release *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_optical_sweep_csv(const lh_optical_sweep *sweep,
                                      char **text, size_t *len, lh_error *err);
/* Formats a sweep as a self-contained HTML page: curves of iteration time,
 * bubble and blocking with 95 % confidence bands. Release *text with
 * lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_optical_sweep_html(const lh_optical_sweep *sweep,
                                       char **text, size_t *len, lh_error *err);

/* --- background traffic alone --------------------------------------------- */

/* Background traffic parameters. */
typedef struct lh_traffic {
    size_t size;      /* sizeof(lh_traffic) */
    double erlang;    /* offered load on the whole network, > 0 */
    double holding_s; /* mean, > 0 */
    uint32_t slots_min, slots_max;
    uint32_t slots;    /* per fibre */
    uint32_t k;        /* candidate routes */
    bool shared_fibre; /* both directions share one spectrum */
    /* All requests connect these two nodes; both 0: random pairs. */
    uint32_t from, to;
    /* Rates in Gb/s in place of slots_min and slots_max; 0: slots. A request
     * takes as many slots as its path's rate needs. */
    uint32_t gbps_min, gbps_max;
    uint32_t guard_slots; /* free slots above every circuit */
    bool adaptive;        /* rate per slot by length; else 75 Gb/s */
    /* In place of `adaptive`: rate per slot by the GSNR under the current load.
     * A request is refused if the GSNR of its circuit, or of a circuit in use,
     * would be too low.
     * Needs rates. */
    bool by_gsnr;
} lh_traffic;

/* Result from lh_traffic_run(). */
typedef struct lh_traffic_result {
    uint64_t requests, refused;
    double carried_slots; /* occupied slots x fibres, averaged over time */
} lh_traffic_result;

/* Simulates background traffic alone: `requests` Poisson arrivals after
 * `warm_up` others, each taking the first free block on its candidate routes.
 * *out: refused requests and mean occupied slots. */
LH_API lh_status lh_traffic_run(const lh_topology *topology,
                                const lh_traffic *traffic, uint64_t seed,
                                uint64_t warm_up, uint64_t requests,
                                lh_traffic_result *out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
