/* SPDX-License-Identifier: Apache-2.0 */
/* One run: jobs and background traffic on one network, under one policy, from
 * one seed. */
#ifndef LHI_NETWORK_OPTICAL_SIMULATION_H
#define LHI_NETWORK_OPTICAL_SIMULATION_H

#include "base/random.h"
#include "network/optical/assignment.h"
#include "network/optical/program.h"
#include "schedule/simulator/dp_clock.h"

/* Background traffic parameters. */
typedef struct lhi_background {
    double erlang; /* 0: none */
    double holding_ns;
    uint32_t slots_min, slots_max;
    uint32_t gbps_min, gbps_max; /* rates rather than slots; 0: slots */
    uint32_t from, to;           /* one pair of nodes; both 0: any pair */
} lhi_background;

/* Least mean gap between requests; with shorter gaps simulated time would
 * hardly advance. */
#define LHI_MIN_REQUEST_GAP_NS 1000

/* Checks whether the mean gap between requests is large enough. */
static inline bool lhi_background_is_sparse(const lhi_background *b)
{
    return b->erlang <= 0 ||
           b->holding_ns / b->erlang >= LHI_MIN_REQUEST_GAP_NS;
}

/* A cut of a link's fibres. */
typedef struct lhi_link_cut {
    uint32_t cable;
    int64_t at_ns, repair_ns; /* after the jobs' begin; INT64_MAX: never */
} lhi_link_cut;

/* Failures of links. */
typedef struct lhi_failures {
    uint32_t n_cuts;
    const lhi_link_cut *cuts;
    double mtbf_ns, mttr_ns; /* random cuts per link, means; 0: none */
    int64_t detection_ns;    /* from a cut to the new request */
    bool wait; /* messages wait for the repair; else they are rerouted */
} lhi_failures;

/* A run's job with its placement. */
typedef struct lhi_optical_run_job {
    const lhi_program *program;
    const lhi_policy *policy;
    const uint32_t *sites; /* node per device */
    uint32_t priority;     /* takes slots from jobs with a lower one */
} lhi_optical_run_job;

/* A circuit in use during the recorded iteration. */
typedef struct lhi_recorded_circuit {
    const lhi_path *path;
    uint32_t first, slots;
    uint32_t job, task; /* LH_NONE: background */
    int64_t start_ns, end_ns;
} lhi_recorded_circuit;

/* The last iteration of job 0, for pictures; times are the run's. */
typedef struct lhi_iteration_record {
    int64_t begin_ns, end_ns;
    int64_t *start_ns, *finish_ns, *arrive_ns; /* per task; -1: no message */
    bool *is_bound;                            /* communication-bound */
    lhi_recorded_circuit *circuits;
    size_t n_circuits, circuits_capacity;
} lhi_iteration_record;
/* Frees the arrays of an iteration recorded for figures. */
void lhi_iteration_record_fini(lhi_iteration_record *record);

/* Run inputs. */
typedef struct lhi_optical_run_input {
    lhi_network *network;
    const lhi_background *background;
    const lhi_failures *failures; /* NULL: none */
    const lhi_optical_run_job *jobs;
    uint32_t n_jobs;
    int64_t retry_ns;
    int64_t setup_ns, teardown_ns; /* of a message's circuit */
    uint32_t iterations;           /* measured ones, after one warm-up */
    uint64_t seed;
    lhi_iteration_record *record; /* zeroed; NULL: none */
} lhi_optical_run_input;

/* A job's results; arrays have iterations + 1 entries. */
typedef struct lhi_optical_job_output {
    int64_t *iteration_ns;
    uint32_t *labels, *requested, *refused;
    uint64_t cut_messages;               /* messages whose circuit was cut */
    uint64_t preempted_messages;         /* whose circuit another job took */
    uint64_t warm_up_preempted_messages; /* those in the warm-up iteration */
    double held_ns; /* slots x fibres x ns, in measured iterations */
} lhi_optical_job_output;

/* A run's results. */
typedef struct lhi_optical_run_output {
    lhi_optical_job_output *jobs;
    uint64_t background, background_refused;
    uint64_t background_cut, background_lost; /* circuits cut; not restored */
    /* Times after the jobs' begin; free() releases the array. */
    lh_outage *outages;
    uint32_t n_outages, outages_capacity;
} lhi_optical_run_output;

/* Simulates one run (jobs and background traffic under one policy with one
 * seed) and fills *output, whose arrays the caller allocates. */
lh_status lhi_optical_simulate(const lhi_optical_run_input *input,
                               lhi_optical_run_output *output, lh_error *err);

/* --- circuits and background traffic -------------------------------------- */

/* A circuit: a block of slots on a path. */
typedef struct lhi_circuit {
    const lhi_path *path;
    uint32_t first, slots; /* slots 0: unused entry */
    uint32_t next_unused;
    uint32_t job, task;
    uint32_t gbps; /* background by rate; else 0 */
    int64_t mbps;  /* per slot */
    int64_t start_ns, end_ns;
    int64_t send_ns;  /* a job's: when its port begins to send */
    uint64_t release; /* sequence number of its release */
} lhi_circuit;

/* All circuits with the spectrum that they occupy. */
typedef struct lhi_circuits {
    lhi_spectrum spectrum;
    lhi_circuit *items;
    uint32_t count, room, unused;
    uint64_t held; /* slots x fibres */
} lhi_circuits;

/* Allocates the spectrum (occupied slots of every fibre) of the network, with
 * no slot occupied, and an empty list of circuits. */
lh_status lhi_circuits_make(const lhi_network *network, lhi_circuits *out,
                            lh_error *err);
/* Frees a run's spectrum (occupied slots of every fibre) and its list of
 * circuits. */
void lhi_circuits_fini(lhi_circuits *circuits);
/* Occupies the spectrum slots of a grant (path and block) and returns the new
 * circuit's index; LH_NONE on allocation failure. */
uint32_t lhi_circuits_allocate(lhi_circuits *circuits,
                               const lhi_circuit_grant *grant);
/* Releases a circuit's spectrum slots; its index may then be used again. */
void lhi_circuits_release(lhi_circuits *circuits, uint32_t circuit);

/* Background arrival generator. */
typedef struct lhi_arrivals {
    const lhi_background *background;
    uint32_t n_nodes;
    lhi_random random;
    int64_t next_ns; /* INT64_MAX: no more */
    double gap_ns;   /* mean */
} lhi_arrivals;

/* A background request. */
typedef struct lhi_arrival {
    uint32_t from, to;
    uint32_t slots, gbps; /* gbps 0: slots */
    int64_t holding_ns;
} lhi_arrival;

/* Initialises the generator of background requests between n_nodes nodes from a
 * seed. */
void lhi_arrivals_init(lhi_arrivals *arrivals, const lhi_background *background,
                       uint32_t n_nodes, uint64_t seed);
/* Returns the background request that arrives at arrivals->next_ns, and
 * advances next_ns to the one after it. */
lhi_arrival lhi_arrivals_next(lhi_arrivals *arrivals);

#endif
