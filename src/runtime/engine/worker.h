/* SPDX-License-Identifier: Apache-2.0 */
/* Worker: one rank of a run from the first step to the last. Holds its state,
 * its control messages and the results that it returns. step_loop.c executes
 * rank 0's commands on it. */
#ifndef LHI_RUNTIME_ENGINE_WORKER_H
#define LHI_RUNTIME_ENGINE_WORKER_H

#include "runtime/engine/job.h"
#include "runtime/engine/memory_checkpoint.h"
#include "runtime/engine/observer.h"
#include "runtime/engine/online_adaptation.h"
#include "runtime/engine/rank_program.h"
#include "runtime/engine/reschedule.h"
#include "runtime/engine/watchdog.h"

#include <stdatomic.h>

/* A send that is in flight during the next step. */
typedef struct lhi_pending_send {
    unsigned char *bytes;
    size_t capacity;
    bool is_in_flight;
    lhi_net_op op;
} lhi_pending_send;

/* State of a worker. */
typedef struct lhi_run_worker {
    const lhi_job *job;
    lhi_net *net;
    lhi_rank_program *program;
    lhi_rescheduler *rescheduler; /* NULL: no proposal so far */
    lhi_adaptation *adapting;     /* rank 0; NULL: the run does not adapt */
    uint32_t n_notices_reported;  /* notices passed on to the caller */
    lhi_pending_send observation; /* other ranks: last observation sent */
    uint64_t clock;               /* id of the host's clock, if adapting */
    lhi_device *device;
    lhi_group *groups[LHI_N_GRID_KINDS]; /* groups of the device; or NULL */
    /* group time in validation steps, in ns */
    double validation_ns[LH_N_TRAIN_GROUPS];
    lhi_group *node_experts;          /* node-local expert group; or NULL */
    lhi_training *training;           /* NULL: nothing is trained */
    lhi_memory_checkpoint *in_memory; /* NULL: none */
    bool is_restored;                 /* the run began with it */
    lhi_observer *observer;           /* NULL: no profile is recorded */
    lhi_watchdog *watchdog;           /* NULL: ranks are threads, or timed */
    uint64_t n_steps;                 /* completed by this rank */
    uint32_t me, n;
    uint32_t place;               /* current logical rank */
    lhi_migration_target *target; /* NULL: the initial one */
    lhi_state_migration_ops
        migration;            /* in flight until the endpoint is closed */
    lh_iteration *iterations; /* rank 0 */
    uint32_t n_iterations;
    int64_t migration_ns; /* migration time before this step */
    bool interrupted, saved;
    int64_t peak_bytes[LH_N_MEMORY_KINDS]; /* peak over all kinds together */
    uint32_t over_limit_rank;              /* a rank above its limit; LH_NONE */
    int64_t over_limit_bytes;
    uint64_t pool_growth;
    uint64_t
        earlier_pool_growth; /* this rank's pool growth in earlier programs */
    uint64_t turn;           /* numbers the command rounds */
    uint32_t state;          /* event timeline state; 0 without one; LH_NONE:
                              * unknown */
    lhi_net_stop stop_now;
    const lhi_net_stop *stop;  /* rank 0: &stop_now; NULL: never stops */
    atomic_bool stop_reported; /* the stop was reported */
    /* 1 plus the rank whose stop request ends the run; 0: none. Ranks that
     * follow rank 0 know it at the end. */
    uint32_t stopped_by;
} lhi_run_worker;

/* --- control messages in the current turn; blocking --- */

/* Sends a control message of class `class` (command, report, record and others)
 * to rank `to`, tagged with the current turn (number of the command). */
lh_status lhi_run_worker_send(lhi_run_worker *w, uint32_t to, unsigned class,
                              const void *data, size_t size, lh_error *err);
/* Receives a control message of class `class` and exactly `size` bytes in the
 * current turn (number of the command). */
lh_status lhi_run_worker_receive(lhi_run_worker *w, uint32_t from,
                                 unsigned class, void *data, size_t size,
                                 lh_error *err);
/* If `status` is a failure, adds the sender's rank `from` to the error;
 * returns `status`. */
lh_status lhi_run_worker_wrap_sender(uint32_t from, lh_status status,
                                     lh_error *err);
/* Sends a command to rank `to`, as rank 0. */
lh_status lhi_run_worker_send_command(lhi_run_worker *w, uint32_t to,
                                      const lhi_command *command,
                                      lh_error *err);
/* Receives rank 0's next command. */
lh_status lhi_run_worker_receive_command(lhi_run_worker *w, lhi_command *out,
                                         lh_error *err);
/* Sends this rank's report on a finished command to rank 0. */
lh_status lhi_run_worker_send_report(lhi_run_worker *w,
                                     const lhi_command_report *done,
                                     lh_error *err);
/* Receives rank `from`'s report on a finished command. */
lh_status lhi_run_worker_receive_report(lhi_run_worker *w, uint32_t from,
                                        lhi_command_report *out, lh_error *err);

/* --- stop requests (worker_stop.c) --- */

/* Returns the stronger of the stop requests to this process and to the process
 * that launched it; LH_STOP_NO: none. */
int lhi_job_find_stop_request(const lhi_job *job);
/* Passes a remark `text` to the caller's callback, which prints it. */
void lhi_run_worker_print_remark(const lhi_run_worker *w, const char *text);
/* Checks whether rank 0, the lhi_run_worker `of`, must stop at once: a callback
 * that ends waits. */
bool lhi_run_worker_stops_now(void *of);
/* Checks, on rank 0, whether a rank has received a stop request, so that the
 * run ends. Prints a remark once, which names the rank unless it is rank 0. */
bool lhi_run_worker_is_stopping(lhi_run_worker *w);
/* Stores, on a rank that follows rank 0, whether a stop request ends the run,
 * from its END command. The first rank of an output that rank 0 does not share
 * prints the cause. */
void lhi_run_worker_end_following(lhi_run_worker *w, const lhi_command *end);

/* --- process groups of the device (worker_groups.c) --- */

/* Creates the rank's process groups for collectives inside passes and sets
 * them on its device. */
lh_status lhi_run_worker_join_groups(lhi_run_worker *w, lh_error *err);
/* Frees the process groups that the device used. */
void lhi_run_worker_leave_groups(lhi_run_worker *w);
/* Returns the time in ns that the rank has spent in collectives inside passes
 * so far, without validation steps, by lh_train_group_kind. */
void lhi_run_worker_group_times(const lhi_run_worker *w,
                                double ns[LH_N_TRAIN_GROUPS]);

/* --- memory (worker_memory.c) --- */

/* Raises the rank's peak memory to its present memory, including a program or
 * migration target that is about to replace the current one; NULL: none. */
void lhi_run_worker_record_memory(lhi_run_worker *w,
                                  const lhi_rank_program *next,
                                  const lhi_migration_target *target);
/* Compares all ranks' memory with their enforced limits after a step and
 * sets over_limit_rank. Collective; `turn`: number of this call. */
lh_status lhi_run_worker_check_limits(lhi_run_worker *w, uint64_t turn,
                                      lh_error *err);
/* Gathers all ranks' memory at the run's end; rank 0 appends it to
 * `out`, by rank and kind. Collective. */
lh_status lhi_run_worker_gather_memory(lhi_run_worker *w, lhi_text *out,
                                       lh_error *err);

/* --- schedule proposals (worker_proposals.c) --- */

/* Returns the options for this rank's program: its stage and pipeline copy
 * follow from its current place in the process grid. */
lhi_rank_options lhi_run_worker_make_rank_options(const lhi_run_worker *w);
/* Closes the rescheduler's open proposal: `go` switches to it. `moved`:
 * statistics of a migration; NULL: none. */
void lhi_run_worker_close_proposal(lhi_run_worker *w, bool go,
                                   const lhi_migration_stats *moved);
/* Asks the decider or the caller for a new schedule from `step` on; if there
 * is one, opens the proposal and adds it to the command. */
lh_status lhi_run_worker_propose(lhi_run_worker *w, uint64_t step,
                                 lhi_command *command, lh_error *err);
/* Applies rank 0's verdict in the command on this rank: accepts, drops or opens
 * a proposal. LH_EIO: the verdict is not possible now, or accepts a proposal
 * that this rank refused. */
lh_status lhi_run_worker_apply_verdict(lhi_run_worker *w,
                                       const lhi_command *command,
                                       lh_error *err);

/* --- migration (worker_migrate.c) --- */

/* Returns the current rank assignment; NULL: the initial one. */
const lhi_rank_assignment *
lhi_run_worker_rank_assignment(const lhi_run_worker *w);
/* Migrates the training state before `step`, for a migration that all ranks
 * accepted; timed devices only sleep for its duration. *out: bytes over all
 * ranks, on rank 0. The caller then closes the proposal and calls
 * lhi_run_worker_finish_migration() with the rescheduler's migration target.
 * Collective. */
lh_status lhi_run_worker_migrate(lhi_run_worker *w, uint64_t step,
                                 lhi_migration_stats *out, lh_error *err);
/* Passes a completed host or layer migration, `row`, to the caller's
 * callback. */
lh_status lhi_run_worker_report_migration(const lhi_run_worker *w,
                                          const lhi_switch *row, lh_error *err);
/* Continues with the device and training of the migration target; NULL: the
 * rank keeps its own. */
void lhi_run_worker_finish_migration(lhi_run_worker *w,
                                     lhi_migration_target *next);

/* --- records at the end of the run --- */

/* Sends this rank's records of the last iteration to rank 0. The counts are a
 * separate message, from which rank 0 computes the records' size. */
lh_status lhi_run_worker_send_records(lhi_run_worker *w, lh_error *err);
/* Appends the run's outcome header on rank 0; `n_recorded`: number of ranks
 * whose records follow. */
lh_status lhi_run_worker_add_header(const lhi_run_worker *w,
                                    uint32_t n_recorded, lhi_text *out,
                                    lh_error *err);
/* Appends the run's outcome with the records of all ranks, which they send
 * after the end command. */
lh_status lhi_run_worker_collect_records(lhi_run_worker *w, lhi_text *out,
                                         lh_error *err);
/* Prints the step with which a restarted run continues, and the source of its
 * training state. */
void lhi_run_worker_report_restart(const lhi_run_worker *w, uint64_t step);

#endif
