/* SPDX-License-Identifier: Apache-2.0 */
/* State of one run: simulation.c changes it, run_state.c builds it. */
#ifndef LHI_NETWORK_OPTICAL_SIMULATION_INTERNAL_H
#define LHI_NETWORK_OPTICAL_SIMULATION_INTERNAL_H

#include "network/optical/simulation.h"

#include "base/heap.h"

/* Event kinds, in their order at equal times; same-kind events occur in
 * creation order. Background arrivals are not in the heap, because at most one
 * is pending. */
enum {
    LHI_EVENT_RELEASE,    /* payload: circuit */
    LHI_EVENT_BACKGROUND, /* not in the heap */
    LHI_EVENT_ARRIVAL,    /* payload: job, task that produced the message */
    LHI_EVENT_TASK_END,   /* payload: job, task */
    LHI_EVENT_REQUEST, /* payload: job, task; a retried or deferred request */
    LHI_EVENT_WAKE,    /* payload: job, device whose next task is ready */
    LHI_EVENT_BEGIN,   /* payload: job */
    LHI_EVENT_END,     /* payload: job whose iteration ends */
    LHI_EVENT_REPAIR,  /* payload: cable, kind of outage */
    LHI_EVENT_CUT,     /* payload: cable, kind of outage */
};

/* Job state. */
typedef struct lhi_live_job {
    const lhi_program *program;
    const lhi_policy *policy;
    const uint32_t *sites;
    lhi_optical_job_output *out;
    uint32_t index, iteration; /* iteration: the running one */
    uint32_t priority;
    uint32_t left; /* remaining tasks and messages between replicas in this
                    * iteration */
    int64_t begin_ns, best_ns;
    bool guarded;   /* labels add no slots in this iteration */
    double held_ns; /* in this iteration */
    /* Per device: */
    uint32_t *next;   /* all earlier tasks have started */
    uint32_t *next_w; /* all earlier W passes have started */
    int64_t *free_ns; /* its last task's end, or iteration start */
    bool *running;
    int64_t *port_free;     /* [program->n_ports] */
    uint32_t *port_queue;   /* messages deferred until it is free */
    uint32_t *port_circuit; /* the latest circuit, or LH_NONE */
    /* Per task and message between replicas; "message" refers to its output: */
    int64_t *start, *end;
    int64_t *before; /* at its start: since when the device was free */
    bool *started, *done;
    int64_t *arrive;    /* message: arrival time once granted */
    int64_t *allowed;   /* message: deadline after iteration start; -1: none */
    uint8_t *attempt;   /* message: refusals so far */
    bool *there;        /* message: has arrived */
    bool *label, *flag; /* message: from the last iteration */
    bool *refused;      /* message: in this iteration */
    bool *deferred;     /* message: in its port's queue */
    uint32_t *circuit;  /* message: its circuit, or LH_NONE */
    bool *posted;       /* message: receive posted (rendezvous receives only) */
    lhi_dp_clock data;  /* if the program has a pipeline */
    int64_t *wake_ns;   /* per device: its pending wake-up time */
    int64_t *link_free; /* per pipeline resource */
    /* Per chunk, only with a ring of replicas: messages of its gather that have
     * not arrived, when the last one arrived, and its B and W passes that have
     * not ended. */
    uint32_t *gathers_left, *passes_left;
    int64_t *gathered_ns;
} lhi_live_job;

/* A message that waits for a cable's repair. */
typedef struct lhi_live_wait {
    uint32_t cable;
    uint64_t message; /* payload of its request */
} lhi_live_wait;

/* Run state. */
typedef struct lhi_live_run {
    const lhi_optical_run_input *in;
    lhi_optical_run_output *out;
    lhi_circuits circuits;
    lhi_arrivals arrivals;
    lhi_heap heap;
    uint64_t seq;
    lhi_live_job *jobs;
    uint32_t jobs_left; /* jobs with remaining iterations */
    int64_t now;
    bool counting; /* job 0 has finished its warm-up */
    bool no_memory;
    lhi_arena *mem;
    /* Spectrum without the circuits that a job may take from others; NULL: all
     * jobs have the same priority. */
    uint64_t *residual;
    /* Failures: */
    int64_t begin_ns;
    uint32_t *down; /* per cable: outages in progress; NULL: no failures */
    bool *forever;  /* per cable: no repair will follow */
    bool some_forever;
    lhi_random random;
    lhi_live_wait *waits; /* for a repair */
    uint32_t n_waits, waits_capacity;
    const lhi_live_job *separated; /* its task's message has no path left */
    uint32_t separated_task;
} lhi_live_run;

/* Adds an event of this kind at time_ns to the queue; `what`: its payload.
 * Returns false on allocation failure, which also sets r->no_memory. */
static inline bool lhi_live_push(lhi_live_run *r, int64_t time_ns,
                                 uint32_t kind, uint64_t what)
{
    lhi_event e = {
        .time_ns = time_ns, .rank = kind, .seq = r->seq++, .payload = what};
    if (!lhi_heap_push(&r->heap, e))
        r->no_memory = true;
    return !r->no_memory;
}

/* Returns the event payload that encodes task `task` of job `j`. */
static inline uint64_t lhi_live_payload(const lhi_live_job *j, uint32_t task)
{
    return (uint64_t)j->index << 32 | task;
}

/* Checks whether a message goes to another network node. */
static inline bool lhi_live_crosses_nodes(const lhi_live_job *j, uint32_t task)
{
    uint32_t from, to;
    return lhi_program_get_ends(j->program, j->sites, task, &from, &to);
}

/* --- live_circuits.c: circuits in use, cut and restored --------------------
 */

/* Checks whether job 0 is in its last iteration, which is recorded for figures.
 */
bool lhi_live_is_recording(const lhi_live_run *r);
/* Appends all circuits in use to the record of job 0's last iteration, when the
 * recorded iteration begins. */
void lhi_live_start_record(lhi_live_run *r);
/* Assigns a path and slots to a background request by first fit, for a rate or
 * (gbps 0) for a number of slots; false: refused. */
static inline bool lhi_live_assign_background(const lhi_live_run *r,
                                              const lhi_paths *paths,
                                              uint32_t slots, uint32_t gbps,
                                              lhi_circuit_grant *out)
{
    const lhi_spectrum *s = &r->circuits.spectrum;
    return gbps > 0
               ? lhi_assignment_first_fit_rate(s, paths, gbps, out)
               : lhi_assignment_first_fit(s, paths, paths->count, slots, out);
}

/* Occupies a grant's spectrum slots until `end_ns` and schedules their release.
 * `owner`: the job whose `task` sends the message; LH_NONE for background
 * traffic, for which `task` is its rate in Gb/s or 0. Returns the circuit;
 * LH_NONE on allocation failure. */
uint32_t lhi_live_hold(lhi_live_run *r, const lhi_circuit_grant *grant,
                       int64_t end_ns, uint32_t owner, uint32_t task);
/* Extends a circuit until `end_ns`, and postpones its spectrum slots'
 * release. */
void lhi_live_extend(lhi_live_run *r, uint32_t circuit, int64_t end_ns);
/* Processes a circuit's release event: frees its slots. Ignores the event of a
 * circuit that was cut or extended since. */
void lhi_live_release(lhi_live_run *r, const lhi_event *e);
/* Chooses path and slots for a refused request of job `j` as if the circuits of
 * jobs with a lower priority were free, and releases those in the way; their
 * messages request other circuits. Returns false if the request stays refused.
 */
bool lhi_live_preempt(lhi_live_run *r, const lhi_live_job *j,
                      const lhi_request *request, lhi_circuit_grant *grant);
/* Schedules the run's planned and random cable cuts as events and allocates
 * their state; the jobs begin at r->begin_ns. LH_ENOMEM. */
lh_status lhi_live_begin_failures(lhi_live_run *r);
/* Processes a cable cut (payload: cable and kind of outage): releases the
 * circuits on the cable, reroutes background circuits, and schedules new
 * requests for the jobs' messages. */
void lhi_live_cut(lhi_live_run *r, uint64_t payload);
/* Processes a cable's repair (payload: cable and kind of outage): ends the
 * outage and requests circuits for the messages that waited for it. */
void lhi_live_repair(lhi_live_run *r, uint64_t payload);
/* Checks whether each of n_paths paths contains a cable that is cut and will
 * never be repaired. */
bool lhi_live_is_separated(const lhi_live_run *r, const lhi_paths *paths,
                           uint32_t n_paths);

/* --- replicas.c: messages between replicas ---------------------------------
 */

/* Allocates the state of the messages between a job's replicas; LH_ENOMEM. */
lh_status lhi_live_make_replicas(lhi_live_job *j, lhi_arena *mem);
/* Resets this state at the start of an iteration. */
void lhi_live_begin_replicas(lhi_live_job *j);
/* Labels the messages between replicas that delayed a pass or the end of the
 * iteration, for the next one, and returns their number. */
uint32_t lhi_live_label_replicas(lhi_live_job *j);

/* Allocates the state of a run and schedules each job's first iteration.
 * Release the heap, circuits and arena also after a failure. */
lh_status lhi_live_run_make(lhi_live_run *run, lh_error *err);

#endif
