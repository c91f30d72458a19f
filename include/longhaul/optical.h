/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline-parallel training over an elastic optical network: topologies,
 * scenarios, and the simulation that compares ways to assign routes and
 * frequency slots. docs/optical.md says what is simulated; the files are in
 * docs/formats/topology.md and docs/formats/scenario.md. */
#ifndef LONGHAUL_OPTICAL_H
#define LONGHAUL_OPTICAL_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- topologies ---------------------------------------------------------- */

/* Nodes and cables. Nodes are numbered from 0 in the order of their ids;
 * a cable is two opposite fibres. Immutable once made. */
typedef struct lh_topology lh_topology;

LH_API lh_status lh_topology_parse(const char *text, size_t len,
                                   const char *name, lh_topology **out,
                                   lh_error *err);
LH_API lh_status lh_topology_read(const char *path, lh_topology **out,
                                  lh_error *err);
LH_API void lh_topology_free(lh_topology *topology); /* NULL is fine */

LH_API const char *lh_topology_name(const lh_topology *topology);
LH_API uint32_t lh_topology_n_nodes(const lh_topology *topology);
LH_API int64_t lh_topology_node_id(const lh_topology *topology, uint32_t node);
/* "" where the file has none. */
LH_API const char *lh_topology_node_name(const lh_topology *topology,
                                         uint32_t node);
/* LH_NONE: no node has this id. */
LH_API uint32_t lh_topology_find(const lh_topology *topology, int64_t id);

typedef struct lh_cable {
    uint32_t a, b; /* nodes */
    int64_t km;
} lh_cable;

LH_API uint32_t lh_topology_n_cables(const lh_topology *topology);
LH_API const lh_cable *lh_topology_cable(const lh_topology *topology,
                                         uint32_t cable);

/* A loop-free route. */
typedef struct lh_route {
    int64_t km;
    uint32_t n_nodes;
    const uint32_t *nodes;
} lh_route;

/* Up to `k` routes between two different nodes: least km first, then fewer
 * hops, then the lower node where they part. Release *out, one block with all
 * that it points to, with lh_routes_free(). */
LH_API lh_status lh_topology_routes(const lh_topology *topology, uint32_t from,
                                    uint32_t to, uint32_t k, lh_route **out,
                                    uint32_t *n_routes, lh_error *err);
LH_API void lh_routes_free(lh_route *routes); /* NULL is fine */

/* --- scenarios ------------------------------------------------------------ */

typedef enum lh_assignment {
    LH_SD_FF,    /* shortest route, first fit */
    LH_KSP_FF,   /* candidate routes in order, first fit */
    LH_CBA,      /* labels of communication-bound passes, fitness of routes */
    LH_SLACK,    /* deadlines in place of labels */
    LH_CRITICAL, /* slack by the critical path, routes by what they cost */
} lh_assignment;

LH_API const char *lh_assignment_name(lh_assignment assignment); /* "sd-ff" */

/* What a scenario names: a network, traffic, policies. Immutable once made. */
typedef struct lh_scenario lh_scenario;

/* `name` is what messages call the text; files it names are looked for in the
 * folder of `name`. */
LH_API lh_status lh_scenario_parse(const char *text, size_t len,
                                   const char *name, lh_scenario **out,
                                   lh_error *err);
LH_API lh_status lh_scenario_read(const char *path, lh_scenario **out,
                                  lh_error *err);
LH_API void lh_scenario_free(lh_scenario *scenario); /* NULL is fine */

LH_API const lh_topology *lh_scenario_topology(const lh_scenario *scenario);
LH_API uint32_t lh_scenario_n_jobs(const lh_scenario *scenario);
/* The path, as it was opened, of the i-th file that it names; NULL: there are
 * no more. */
LH_API const char *lh_scenario_file(const lh_scenario *scenario, uint32_t i);

/* --- results -------------------------------------------------------------- */

/* One job under one policy with one seed. Rates are ratios, not per cent; all
 * but the arrays leave the warm-up iteration out. */
typedef struct lh_optical_job {
    uint32_t n_devices;
    const uint32_t *sites;       /* node of each device */
    uint32_t n_iterations;       /* with the warm-up, which is the first */
    const int64_t *iteration_ns; /* [n_iterations] */
    const uint32_t *labels;      /* communication-bound passes in each */
    const uint32_t *requested;   /* requests in each */
    const uint32_t *refused;     /* blocked requests in each */
    int64_t bound_ns;            /* iteration with no time for messages */
    uint64_t blocked;            /* blocked requests, warm-up included */
    double iteration_s, bubble_ratio, blocking_probability;
    double slots_held; /* slots x fibres held, averaged over time */
} lh_optical_job;

typedef struct lh_optical_run {
    uint64_t seed;
    uint32_t n_jobs;
    const lh_optical_job *jobs;
    uint64_t background, background_refused; /* while job 0 was counted */
} lh_optical_run;

/* Means over jobs and seeds; the deviations over seeds (divisor n). */
typedef struct lh_optical_policy {
    const char *name;
    lh_assignment assignment;
    double iteration_s, iteration_s_sd;
    double bubble_ratio, bubble_ratio_sd;
    double blocking_probability, blocking_probability_sd;
    double slots_held, collateral;
    double bound_s; /* iteration with no time for communication */
    uint32_t n_runs;
    const lh_optical_run *runs; /* one per seed */
} lh_optical_policy;

typedef struct lh_optical {
    uint32_t n_policies;
    const lh_optical_policy *policies;
} lh_optical;

typedef struct lh_optical_options {
    size_t size;      /* sizeof(lh_optical_options) */
    uint32_t threads; /* 0: one per processor */
    uint32_t n_seeds; /* 0: the scenario's */
    const uint64_t *seeds;
    /* Called after every run, by one thread at a time; true: stop, and the
     * result is LH_ECANCELED. May be NULL. */
    bool (*progress)(void *context, uint32_t done, uint32_t total);
    void *context;
} lh_optical_options;

/* Runs every policy with every seed. The result does not depend on the number
 * of threads. `options` may be NULL. Release with lh_optical_free(). */
LH_API lh_status lh_optical_run_all(const lh_scenario *scenario,
                                    const lh_optical_options *options,
                                    lh_optical **out, lh_error *err);
LH_API void lh_optical_free(lh_optical *optical); /* NULL is fine */

/* One HTML file that loads nothing: the policies with their spread, the
 * topology with the stages and routes of the first seed, spectrum over time
 * per fibre, and one iteration with communication-bound passes marked.
 * Release *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_optical_html(const lh_scenario *scenario,
                                 const lh_optical *optical, char **text,
                                 size_t *len, lh_error *err);

/* --- background traffic alone --------------------------------------------- */

typedef struct lh_traffic {
    size_t size;      /* sizeof(lh_traffic) */
    double erlang;    /* offered load over the whole network, > 0 */
    double holding_s; /* mean, > 0 */
    uint32_t slots_min, slots_max;
    uint32_t slots;    /* per fibre */
    uint32_t k;        /* candidate routes */
    bool shared_fibre; /* both directions share one spectrum */
    /* Every request is between these two nodes; both 0: any pair. */
    uint32_t from, to;
} lh_traffic;

typedef struct lh_traffic_result {
    uint64_t requests, refused;
    double carried_slots; /* slots x fibres held, averaged over time */
} lh_traffic_result;

/* `requests` Poisson arrivals after `warm_up` others, first fit on the
 * candidate routes. */
LH_API lh_status lh_traffic_run(const lh_topology *topology,
                                const lh_traffic *traffic, uint64_t seed,
                                uint64_t warm_up, uint64_t requests,
                                lh_traffic_result *out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
