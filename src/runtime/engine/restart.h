/* SPDX-License-Identifier: Apache-2.0 */
/* Restarts a run whose rank was lost, with the training state in memory
 * (memory_checkpoint.h) or from its last checkpoint. A process that runs no
 * rank itself forks and supervises them: all ranks of the transport local, or
 * the one rank of a process that mpirun or srun started, and ranks that it
 * replaces. They share a record of the run, which outlives every rank. Ranks
 * that are threads restart in their process, after an event has ended one. */
#ifndef LHI_RUNTIME_ENGINE_RESTART_H
#define LHI_RUNTIME_ENGINE_RESTART_H

#include "runtime/engine/job.h"

#include <longhaul/experimental/events.h>

/* Record of a run over its restarts, written by rank 0, except for events_done,
 * of which each rank writes its own. */
struct lhi_run_record {
    size_t bytes;
    bool has_begun;
    /* All later checkpoints in the folder belong to this run: false until the
     * first save if --fresh removes other checkpoints then. */
    bool owns_folder;
    /* Rank 0 was started again: checkpoints of first_step and before belong to
     * this run, too. */
    bool is_continued;
    uint64_t first_step;
    uint64_t n_reported; /* iterations passed to the caller's callback */
    uint64_t n_kept;     /* of earlier attempts, in `iterations` */
    uint32_t n_restarts;
    /* Ranks are threads: the one that an event or the transport has lost;
     * LHI_NET_NO_RANK: none. */
    uint32_t lost_thread;
    uint32_t n_lost_ranks, lost_rank; /* lost for good by events */
    int journal;                      /* run_journal.h */
    bool events_done[LH_MAX_EVENTS];  /* process events, by effect number */
    lh_train_restart
        *restarts; /* at the record's end; capacity: max_restarts */
    lh_iteration iterations[];
};

/* Checks that a run with options->max_restarts can restart. LH_EINVAL: a model
 * without checkpoints, or a profile is measured. */
lh_status lhi_job_check_restarts(const lhi_job *job, lh_error *err);

/* Makes a run's record in memory shared with processes that are forked
 * afterwards. */
lh_status lhi_run_record_make(const lh_train_options *options,
                              lhi_run_record **out, lh_error *err);
/* Frees a record; NULL is allowed. */
void lhi_run_record_free(lhi_run_record *record);

/* Failure of an attempt, as seen by its one rank here. */
typedef struct lhi_attempt_failure {
    bool has_joined; /* the rank was connected to all others */
    lhi_failure_cause cause;
    uint32_t rank;    /* the lost rank; LHI_NET_NO_RANK: unknown */
    bool is_reporter; /* this process prints the reason */
    bool was_stopped; /* no failure: a stop request has ended the run */
    bool stops_run;   /* because of a stop request the rank does not restart */
    char text[512];   /* the reason; empty: the rank itself was lost */
} lhi_attempt_failure;

/* Ranks that a process starts, attempt by attempt. */
typedef struct lhi_attempts {
    bool are_threads;        /* of this process; else it forks them */
    uint32_t n, n_links;     /* ranks; emulated links between them */
    const uint32_t *numbers; /* of the ranks in the run; NULL: from 0 */
    const lhi_net_link *links;
    lhi_rank_main *rank_main;
    void *context;
    /* Called before each attempt; NULL: nothing. */
    lh_status (*prepare)(void *context, lh_error *err);
    /* Shared memory in which the first rank stores its failure; NULL: these are
     * all ranks of the run. */
    lhi_attempt_failure *failure;
} lhi_attempts;

/* Runs the ranks of `attempts`; after the loss of one again, as often as the
 * job permits, unless a stop was requested. results: of the last attempt, one
 * per rank, zeroed. */
lh_status lhi_job_run_attempts(lhi_job *job, const lhi_attempts *attempts,
                               lhi_rank_result *results, lh_error *err);

/* Adds the newest checkpoint to the error `why` of a run without restarts that
 * lost a rank. Its folder has only checkpoints of this run or of the one that
 * it continues, unless the run has --fresh: then nothing is added. */
void lhi_job_add_last_checkpoint(const lhi_job *job, lh_error *why);

/* Makes all ranks of an attempt resume from the newest checkpoint that the run
 * has written; if there is none, the run begins as in its first attempt.
 * Collective, unless the job does not restart. */
lh_status lhi_job_resume_attempt(lhi_job *job, lhi_net *net, lh_error *err);

/* Returns the step at which a run's next attempt without checkpoints starts:
 * the one after the last reported iteration. */
uint64_t lhi_run_record_next_step(const lhi_run_record *record);

/* Records on rank 0 that an attempt begins at `step`, and the iterations that
 * restarts lost. *n_kept: the number of reported iterations before `step`, in
 * job->record->iterations. */
lh_status lhi_run_record_begin(const lhi_job *job, uint64_t step,
                               uint32_t *n_kept, lh_error *err);

#endif
