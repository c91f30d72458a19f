/* SPDX-License-Identifier: Apache-2.0 */
/* A run as seen by all its ranks, and rank 0's result.
 *
 * The engine takes a pipeline with a schedule. It returns iteration times, the
 * last iteration's timeline and, with a model, trained weights. Files:
 *
 *     lower.c, execution_plan.h  the schedule as instructions per rank
 *     lower_data.c               ... its data-parallel collectives
 *     check_deadlock.c           ... freedom from deadlock
 *     execution_plan.c           ... accessors
 *     memory_check.c             memory prediction and limits
 *     job_device.c               the device of a rank
 *     process_grid.c             the ranks and their process groups
 *     run.c, launched_rank.c     entry points, with the launchers of
 *                                src/runtime/transport
 *     restart.c                  restarts after the loss of a rank
 *     rerouting.c                ... and its microbatches on other ranks
 *     run_journal.c              ... switches and notices before it
 *     memory_checkpoint.c        ... training state before it
 *     kept_states.c              ... which state, and from which rank
 *     job_digest.c               the configuration that ranks must share
 *     step_loop.c                a rank from the first step to the last
 *     worker.h                   ... its state; worker_messages.c: its
 *                                control messages
 *     worker_groups.c            ... its process groups
 *     worker_proposals.c         ... its proposals of other schedules
 *     worker_records.c           ... its records; worker_memory.c: memory
 *     step_conditions.c          ... slow links and devices
 *     process_events.c           ... killed and stopped processes
 *     watchdog.c                 ... detection of a pass that hangs
 *     control_messages.c         ... encoding of control messages
 *     rank_program.c             storage of a rank for one execution plan
 *     reschedule.c               schedule switches during a run
 *     proposed_plan.c            ... from texts to execution plans
 *     rank_assignment.c          layers per chunk and ranks per place
 *     rank_assignment_limits.c   ... permitted migrations
 *     migration_target.c         ... a rank under a new assignment
 *     worker_migrate.c           ... its migration
 *     migrate_state.c            ... the training state's migration
 *     online_adaptation.c        adaptation thread on rank 0
 *     iteration_observation.c    ... merged observations
 *     decider.c                  ... decisions; migration_decider.c:
 *                                migrations; calibration.c: measured times;
 *                                hop_times.c: times per host and hop
 *     rank.c, rank.h             one step: passes and messages
 *     rank_send.c, buffer_pool.c ... sends and buffers
 *     message_parts.c            ... messages to another tensor degree
 *     rendezvous.c               ... receives posted late
 *     blocking_sends.c           ... sends that block later passes
 *     delegated_path.c           ... messages through host memory;
 *                                lower_paths.c: paths and queues
 *     activation_offload.c       ... activation copies
 *     emulated_collectives.c     ... data parallelism on timed devices
 *     training*.c                real data parallelism, optimizer and
 *                                checkpoints
 *     elastic_sharding.c         ... sharding around passes
 *     shard_plan.c               ... its buffers
 *     fsdp.c                     ... sharding inside passes
 *     resume.c                   ... resuming, the same on all ranks
 *     all_reduce.c               ... sums over all ranks
 *     outcome.c                  rank 0's records as a result
 *     measured_trace.c           ... and as a trace
 *     observer.c                 profile of a run
 *     measure*.c                 profiles of passes and links
 *     plan/                      training a plan */
#ifndef LHI_RUNTIME_ENGINE_JOB_H
#define LHI_RUNTIME_ENGINE_JOB_H

#include "base/text.h"
#include "runtime/device/data.h"
#include "runtime/engine/process_grid.h"
#include "runtime/engine/proposed_plan.h"
#include "runtime/engine/rank.h"
#include "runtime/engine/rank_assignment.h"
#include "runtime/engine/training.h"
#include "runtime/transport/tcp_returns.h"

#include <string.h>

typedef struct lhi_run_record lhi_run_record; /* restart.h */

/* The iteration without a lost rank, over all replicas; NULL: no rank's
 * microbatches are rerouted (rerouting.h). */
typedef struct lhi_rerouting {
    lh_pipeline *pipeline;
    lh_exec *exec;
} lhi_rerouting;

/* A run's configuration, shared by all ranks in a process. */
typedef struct lhi_job {
    const lh_pipeline *pipeline;
    const lh_exec *exec; /* initial plan */
    lhi_proposals *proposals;
    lh_exec_options proposal_options; /* options for lowering proposals */
    lhi_rank_assignment_limits assignment_limits; /* permitted migrations */
    lh_train_options o;                           /* complete */
    lh_train_adapt adapt; /* target of o.adapt, unless that is NULL */
    lhi_grid grid;
    bool shared_clock; /* all ranks on one machine */
    bool emulates;
    bool launched;           /* one rank per process, started externally */
    bool follows;            /* ... which is not rank 0 */
    bool replaces;           /* this process runs a lost rank of another host */
    uint32_t replacing_host; /* if so: rank whose host this process uses */
    lhi_rerouting rerouting;
    uint64_t host_layout; /* of lhi_launch_settings */
    /* Options with which this rank has joined; NULL: ranks were not started by
     * srun, torchrun or --hosts. */
    const lhi_tcp_options *tcp;
    /* Listens for ranks that run on another host; rank 0; NULL: none does. */
    lhi_tcp_returns *returns;
    /* This process is a rank 0 that was started again: the others restart, and
     * the record of the run is lost. */
    bool is_started_again;
    const lh_train_model *model; /* NULL: nothing is trained */
    const lhi_data *data;
    lhi_data_fingerprint data_fingerprint;
    uint64_t validation_fingerprint; /* lhi_data_hash_validation() */
    const lh_train_memory *memory; /* per rank, predicted; NULL without model */
    lhi_sgemm sgemm;               /* of the ranks in this process */
    /* Made in advance, one per rank, which takes ownership. NULL: each rank
     * makes its own. */
    lhi_device **devices;
    /* The stop request to the launching process, an LH_STOP_ value in shared
     * memory; NULL or LH_STOP_NO: ranks are in one process. */
    _Atomic int *stop_request;
    lhi_run_record *record; /* NULL: the run does not restart */
    /* In-memory checkpoints (memory_checkpoint.h) of the ranks that this
     * process starts, from rank first_memory_file on; NULL: none. */
    const int *memory_files;
    uint32_t first_memory_file;
    uint32_t n_restarts;
    /* The last lost rank, and how often it was lost in succession; 0: unknown
     */
    uint32_t lost_rank, n_lost_again;
    bool is_return; /* the last restart is with a returned host */
    /* A stop request has ended the run, of which this process runs a rank other
     * than rank 0, started by a launcher. */
    bool was_stopped;
    lh_train_model restarted; /* target of `model` after a restart */
} lhi_job;

/* Checks whether the run adapts its schedule now: not while a lost rank's
 * microbatches are rerouted, in an iteration over all replicas. */
static inline bool lhi_job_is_adapting(const lhi_job *job)
{
    return job->o.adapt && !job->rerouting.exec;
}

/* Checks whether the ranks are threads of this process. */
static inline bool lhi_job_has_threads(const lhi_job *job)
{
    return strcmp(job->o.transport, "inproc") == 0;
}

/* Returns the sequences of a microbatch over the first n replicas. */
uint64_t lhi_job_count_sequences(const lh_train_model *m, uint32_t n);
/* Returns the rows (tokens) of a microbatch that the tensor-parallel ranks of a
 * stage divide; requires a model. */
uint32_t lhi_job_count_rows(const lhi_job *job);
/* Fills the cpu device's options for a rank of a job with a model, without data
 * and sgemm. Release options->mine with free(). */
lh_status lhi_job_fill_cpu_options(const lhi_job *job, uint32_t rank,
                                   lhi_cpu_options *out, lh_error *err);

/* Where a job's ranks run, for the memory check. */
typedef enum lhi_job_launch_kind {
    LHI_RANKS_THREADS,   /* in this process */
    LHI_RANKS_PROCESSES, /* on this machine */
    LHI_RANKS_LAUNCHED,  /* one is in this process */
} lhi_job_launch_kind;

/* Checks the memory before the start; `place`: how ranks are launched.
 * LH_ENOMEM: parameters, gradients, optimizer, the schedule's activations and
 * OpenBLAS buffers exceed the process's limits, its control groups or the
 * machine. `err` names the amounts and a remedy. */
lh_status lhi_job_check_memory(const lhi_job *job, lhi_job_launch_kind place,
                               lh_error *err);

/* Predicts a rank's memory under execution plan `exec`, by kind, and returns
 * its memory limit. */
lh_status lhi_job_predict_memory(const lhi_job *job, const lh_exec *exec,
                                 uint32_t rank, lh_train_memory *out,
                                 lh_error *err);
/* Checks the enforced memory limits. LH_ENOMEM: a rank is predicted to exceed
 * its limit under `exec`; LH_EINVAL: the pipeline has no limits. */
lh_status lhi_job_check_limits(const lhi_job *job, const lh_exec *exec,
                               lh_error *err);
/* Fails with LH_ENOMEM: rank `rank` has used `bytes` of memory in step `step`,
 * more than its limit limit_bytes. */
lh_status lhi_job_fail_over_limit(uint32_t rank, int64_t bytes,
                                  int64_t limit_bytes, uint64_t step,
                                  lh_error *err);

/* Returns the predicted peak bytes of activations and scratch buffers under
 * execution plan `exec`: for one rank or, with `all`, the sum over all
 * ranks. */
lh_status lhi_job_activation_bytes(const lhi_job *job, const lh_exec *exec,
                                   uint32_t rank, bool all, double *bytes,
                                   lh_error *err);
/* Returns the predicted bytes of parameters, gradients, moments and buffers
 * under execution plan `exec`: for one rank or, with `all`, the sum over all
 * ranks. */
lh_status lhi_job_state_bytes(const lhi_job *job, const lh_exec *exec,
                              uint32_t rank, bool all, double *bytes,
                              lh_error *err);
/* Checks that `bytes` more memory can be allocated besides the memory in use.
 * LH_ENOMEM: too little is available; `what` names the use. */
lh_status lhi_job_check_extra_memory(double bytes, const char *what,
                                     lh_error *err);

/* Returns how many processors the ranks share, if their passes are computed on
 * this machine and it has fewer processors than ranks; else 0. */
uint32_t lhi_job_shared_processors(const lhi_job *job);
/* Returns the predicted iteration time in ns from that of the pipeline alone,
 * which assumes one processor per rank. It includes the time after the
 * pipeline. If ranks share processors, the pipeline takes at least the total
 * pass time divided by their number. */
int64_t lhi_job_predict_iteration(const lhi_job *job, int64_t pipeline_ns);

/* Returns the number of hops (traffic from another replica's rank) that each
 * rank observes, one per replica, if the run may exchange hosts over real
 * links; else 0. */
uint32_t lhi_job_count_hops(const lhi_job *job);

/* Makes the device (cpu or timed) of a rank. */
lh_status lhi_job_make_device(const lhi_job *job, uint32_t rank,
                              lhi_device **out, lh_error *err);

/* Runs one rank: an lhi_rank_main, with the lhi_job. On rank 0 the result is
 * the outcome's text (lhi_outcome_read), also for an interrupted run. */
lh_status lhi_job_run_rank(lhi_net *net, void *job, char **result, size_t *size,
                           lh_error *err);

/* Runs this process's rank of a job that mpirun, torchrun or srun started, over
 * n_links emulated links; the text in *result is NULL on all ranks except 0. */
lh_status lhi_job_run_launched(lhi_job *job, uint32_t n_links,
                               const lhi_net_link *links,
                               lhi_rank_result *result, lh_error *err);

/* Computes the digest of everything that all ranks must share: the plan with
 * its instructions and their times, the options, and the data. Excludes file
 * paths, which may differ per host. In job_digest.c. */
lh_status lhi_job_compute_digest(const lhi_job *job,
                                 unsigned char out[LHI_SETUP_BYTES],
                                 lh_error *err);

/* --- event timeline (step_conditions.c) --- */

/* Applies rail failures in a step to the links, on rank 0, once the step's
 * start time is known. */
lh_status lhi_job_hold_links(const lhi_job *job, uint32_t state, lhi_net *net,
                             int64_t begin_ns, lh_error *err);
/* Checks that the event timeline (slowdowns and failures during the run), if
 * any, fits this run. */
lh_status lhi_job_check_events(const lhi_job *job, lh_error *err);
/* Checks that the ranks which the event timeline kills or stops, if any, exist,
 * and that the run survives it. */
lh_status lhi_job_check_process_events(const lhi_job *job, lh_error *err);
/* Kills or stops this process, rank `rank`, if the event timeline says so for
 * `step`, which is about to start; once per run. */
lh_status lhi_job_apply_process_events(const lhi_job *job, uint32_t rank,
                                       uint64_t step, lh_error *err);
/* Makes the pipeline that applies in a step, with slowdowns of the event
 * timeline and under a rank assignment: *out, released by the caller; NULL: as
 * at the start. */
lh_status lhi_job_make_step_pipeline(const lhi_job *job, uint64_t step,
                                     const lhi_rank_assignment *assignment,
                                     lh_pipeline **out, lh_error *err);
/* Applies the event timeline's conditions between steps: on each rank before
 * it starts `step`, on rank 0 before it sends the command. If the timeline's
 * state differs from *state, sets the times of links, device and training
 * (NULL: none). */
lh_status lhi_job_apply_conditions(const lhi_job *job, uint64_t step,
                                   const lhi_rank_assignment *assignment,
                                   lhi_net *net, lhi_device *device,
                                   lhi_training *training, uint32_t *state,
                                   lh_error *err);
/* Extends the digest of lhi_job_compute_digest() by the event timeline. */
lh_status lhi_job_digest_events(const lhi_job *job, unsigned char sum[32],
                                lh_error *err);

/* Returns the number of emulated links: one per pipeline link resource and
 * replica; the first replica's come first. */
size_t lhi_job_count_links(const lhi_job *job);
/* Fills in the parameters of the run's emulated links: links[], with
 * lhi_job_count_links() entries. Between stages with different tensor degrees a
 * link has a time per byte, since messages have parts. LH_EUNSUPPORTED: links
 * of one name differ. */
lh_status lhi_job_list_links(const lhi_job *job, lhi_net_link *links,
                             lh_error *err);

/* Numbers returned per rank in a training run: bytes by kind, time in groups,
 * duration of activation copies and the wait time for them. */
enum { LHI_MEMORY_REPORT_NUMBERS = LH_N_MEMORY_KINDS + LH_N_TRAIN_GROUPS + 2 };

/* Parses rank 0's outcome (docs/formats/wire.md) into a result with the last
 * iteration's trace. */
lh_status lhi_outcome_read(const lhi_job *job, const char *text, size_t size,
                           lh_train_result **out, lh_error *err);

/* Checks that a rank's numbers of recorded passes and collectives are possible
 * under execution plan `exec`; otherwise LH_EIO. */
lh_status lhi_job_check_counts(const lhi_job *job, const lh_exec *exec,
                               uint32_t rank, const lhi_record_counts *counts,
                               lh_error *err);

/* Makes an iteration's trace under execution plan `exec`. records[r] has rank
 * r's passes and executed[r] its n_executed[r] collectives and copies, times
 * from the iteration's start. */
lh_status lhi_measured_trace(const lhi_job *job, const lh_exec *exec,
                             const lhi_pass_record *const *records,
                             const lhi_collective_record *const *executed,
                             const uint32_t *n_executed, lh_trace **out,
                             lh_error *err);

#endif
