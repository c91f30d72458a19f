/* SPDX-License-Identifier: Apache-2.0 */
/* A run as all its ranks see it, and what rank 0 hands back.
 *
 * What goes into the engine is a pipeline with a schedule of it; what comes out
 * is how long iterations took, what passes and messages did in the last one,
 * and, where there is a model, trained weights. Where each idea is:
 *
 *   lower.c, exec.h     the schedule as instructions of each rank
 *   lower_data.c        ... of its data-parallel communications
 *   prove.c             that these cannot stop; exec.c: looking at them
 *   memory_fits.c       whether there is memory for it, and how much it takes
 *   job_device.c        what a rank computes with
 *   grid.c              which ranks there are, and which compute together
 *   run.c, launched.c   calls that start a run, with the launchers of src/net
 *   same_work.c         what ranks that start apart have to have alike
 *   steps.c             what a rank does from the first step to the last
 *   member.h            ... what it has, and says: member_talk.c; what was
 *   member_groups.c     ... whom it computes with
 *   member_records.c    ... recorded; member_memory.c: and held
 *   conditions.c        ... while links and devices become slow
 *   messages.c          what ranks tell each other then, as bytes
 *   shift.c             what a rank has of one execution plan
 *   reschedule.c        another one in its place, while the run goes on;
 *   proposed.c          ... from texts to execution plans
 *   seats.c             who has which part of the job; seating.c: what of
 *                       it may move, and else why not; seat.c: what a rank
 *                       needs in another place; member_move.c: going there,
 *   exchange_state.c    ... with all that was trained
 *   adapting.c          a run that watches itself: its thread on rank 0
 *   sight.c             ... what all ranks have seen of an iteration
 *   deciding.c          ... what follows from that; deciding_moves.c: whether
 *                       parts of the job are to move
 *   rank.c, rank.h      one step: passes in order, messages around them:
 *   rank_send.c, pool.c ... sending; the buffers
 *   late.c              ... receives that are posted late
 *   coupled.c           ... sends that block the passes behind them
 *   delegated.c         ... messages by way of host memory; lower_paths.c:
 *                       which, and by which queues
 *   offloaded.c         ... activations that leave, and come back
 *   played.c            ... data parallelism of timed devices
 *   training*.c         data parallelism that is real; optimizer, checkpoints
 *   sharded.c           ... launched by passes, of what is sharded:
 *   shard_plan.c        ... where that is meanwhile
 *   resume.c            ... going on from one, the same on all ranks
 *   sum_ranks.c         ... sums over all ranks
 *   outcome.c           what rank 0 recorded, as a result; measured_trace.c:
 *                       ... and a trace
 *   observe.c           what a run takes, for a profile
 *   measure*.c          what passes and links take here: profiles
 *   plan/               what of a plan says what is run */
#ifndef LHI_STEPS_H
#define LHI_STEPS_H

#include "base/text.h"
#include "dev/data.h"
#include "engine/grid.h"
#include "engine/proposed.h"
#include "engine/rank.h"
#include "engine/seats.h"
#include "engine/training.h"

typedef struct lhi_job {
    const lh_pipeline *pipeline;
    const lh_exec *exec; /* that the run begins with */
    lhi_proposals *proposals;
    lh_exec_options others; /* under which these are lowered */
    lhi_seating seating;    /* what may move */
    lh_train_options o;     /* complete */
    lh_train_adapt adapt;   /* that o.adapt points to, unless it is NULL */
    lhi_grid grid;
    bool shared_clock; /* one machine */
    bool emulates;
    bool launched; /* each rank in a process that mpirun or srun started */
    const lh_train_model *model; /* NULL: nothing is trained */
    const lhi_data *data;
    const lh_train_memory *memory; /* per rank, predicted; NULL without model */
    lhi_sgemm sgemm;               /* of the ranks of this process */
    /* Made beforehand, one per rank, who takes it from here. NULL: each rank
     * makes its own. */
    lhi_device **devices;
    /* What the process that started the ranks was asked, an LH_STOP_..., in
     * memory that they share with it; NULL: they are in one process. */
    _Atomic int *asked;
} lhi_job;

/* What a rank of a job with a model trains with; without data and sgemm.
 * options->mine is to be released with free(). */
lh_status lhi_job_cpu_options(const lhi_job *job, uint32_t rank,
                              lhi_cpu_options *out, lh_error *err);

/* Where ranks of a job run: memory is counted by that. */
typedef enum lhi_job_place {
    LHI_RANKS_THREADS,   /* of this process */
    LHI_RANKS_PROCESSES, /* of this machine */
    LHI_RANKS_ANYWHERE,  /* one is in this process */
} lhi_job_place;

/* LH_ENOMEM: weights, gradients, optimizer, activations (as the schedule has
 * them at a time) and OpenBLAS's buffers need more than the limits of this
 * process, its control groups or the machine leave; `err` says how much of
 * what, and what to do. */
lh_status lhi_job_fits(const lhi_job *job, lhi_job_place place, lh_error *err);

/* What a rank is predicted to hold under `exec`, and its limit. */
lh_status lhi_job_predict_memory(const lhi_job *job, const lh_exec *exec,
                                 uint32_t rank, lh_train_memory *out,
                                 lh_error *err);
/* LH_ENOMEM: limits are enforced, and a rank is predicted to hold more under
 * `exec`; LH_EINVAL: ... and there are none. */
lh_status lhi_job_keeps_limits(const lhi_job *job, const lh_exec *exec,
                               lh_error *err);
/* LH_ENOMEM: it has come to hold more. */
lh_status lhi_job_over_limit(uint32_t rank, int64_t bytes, int64_t limit_bytes,
                             uint64_t step, lh_error *err);

/* Of the activations that a schedule keeps at a time, with room to compute in:
 * of a rank, or of all ranks together. */
lh_status lhi_job_activations(const lhi_job *job, const lh_exec *exec,
                              uint32_t rank, bool all, double *bytes,
                              lh_error *err);
/* Likewise of all but these: weights, gradients, moments, buffers. */
lh_status lhi_job_state(const lhi_job *job, const lh_exec *exec, uint32_t rank,
                        bool all, double *bytes, lh_error *err);
/* LH_ENOMEM: there is no room for so much beside what is held already; `what`
 * it is of. */
lh_status lhi_job_fits_more(double bytes, const char *what, lh_error *err);

/* The device of a rank of the job. */
lh_status lhi_job_device(const lhi_job *job, uint32_t rank, lhi_device **out,
                         lh_error *err);

/* What one rank of a run does: an lhi_rank_main, with the lhi_job. On rank 0
 * the result is the outcome's text (lhi_outcome_read), also of a run that was
 * interrupted. */
lh_status lhi_job_rank(lhi_net *net, void *job, char **result, size_t *size,
                       lh_error *err);

/* Runs this process's rank of a job whose processes MPI has started; the text
 * in *result is NULL on all but rank 0. */
lh_status lhi_job_launched(lhi_job *job, uint32_t n_links,
                           const lhi_net_link *links, lhi_rank_result *result,
                           lh_error *err);

/* SHA-256 of what all ranks have to have alike: instructions with their times,
 * and the numbers of training. Not of files: they may lie elsewhere on each
 * host. In same_work.c. */
lh_status lhi_job_digest_of(const lhi_job *job, unsigned char out[32],
                            lh_error *err);

/* --- what is slow in a step (conditions.c) --- */

/* Whether the course of events, if there is one, is one of this run. */
/* Rank 0, once it is known when the step begins: rails that go down in it. */
lh_status lhi_job_hold_links(const lhi_job *job, uint32_t state, lhi_net *net,
                             int64_t begin_ns, lh_error *err);
lh_status lhi_job_check_course(const lhi_job *job, lh_error *err);
/* The pipeline as it is in a step with these seats: *out, to be released; NULL:
 * as the run began. */
lh_status lhi_job_conditions(const lhi_job *job, uint64_t step,
                             const lhi_seats *seats, lh_pipeline **out,
                             lh_error *err);
/* Between two steps, on each rank before it begins with `step`, and on rank 0
 * before it tells the others to: if that is in another state of the course than
 * *state, links, device and training (NULL: there is none) are set to it. */
lh_status lhi_job_enter_step(const lhi_job *job, uint64_t step,
                             const lhi_seats *seats, lhi_net *net,
                             lhi_device *device, lhi_training *training,
                             uint32_t *state, lh_error *err);
/* Of lhi_job_digest_of(): adds the course. */
lh_status lhi_job_digest_course(const lhi_job *job, unsigned char sum[32],
                                lh_error *err);

/* The emulated links, lhi_job_n_links() of them: one per resource of each
 * copy of the pipeline, the first copy's first. */
size_t lhi_job_n_links(const lhi_job *job);
lh_status lhi_job_links(const lhi_job *job, lhi_net_link *links, lh_error *err);

/* What is handed back of each rank of a run that trains: bytes by kind, what
 * groups have spent, what copies of activations took and how long passes waited
 * for them. */
enum { LHI_HELD_NUMBERS = LH_N_MEMORY_KINDS + LH_N_TRAIN_GROUPS + 2 };

/* What rank 0 has handed back (docs/formats/wire.md) into a result, and the
 * trace of the last iteration. */
lh_status lhi_outcome_read(const lhi_job *job, const char *text, size_t size,
                           lh_train_result **out, lh_error *err);

/* Whether a rank can have recorded so much of an iteration under `exec`;
 * LH_EIO: no. */
lh_status lhi_job_check_counts(const lhi_job *job, const lh_exec *exec,
                               uint32_t rank, const lhi_counts *counts,
                               lh_error *err);

/* The trace of what was recorded under `exec`: `records[r]` and `played[r]` of
 * each rank, times from the start of the iteration. */
lh_status lhi_measured_trace(const lhi_job *job, const lh_exec *exec,
                             const lhi_record *const *records,
                             const lhi_played *const *played,
                             const uint32_t *n_played, lh_trace **out,
                             lh_error *err);

#endif
