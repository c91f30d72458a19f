/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan: every rank executes its passes in the schedule's order, and
 * messages and data-parallel communication beside them. The order is proven
 * deadlock-free before the run starts. See docs/engine.md.
 *
 * Stable for the timed device, which emulates the durations. Training on the
 * cpu device needs the options in longhaul/experimental/engine.h. */
#ifndef LONGHAUL_TRAIN_H
#define LONGHAUL_TRAIN_H

#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Experimental options. */
struct lh_event_timeline;
struct lh_exec_options;
struct lh_migration;
struct lh_reschedule;
struct lh_switch;
struct lh_train_adapt;
struct lh_train_model;

/* One iteration's result. */
typedef struct lh_iteration {
    uint64_t step;          /* from 0 */
    int64_t ns;             /* from its start to the last pass or data-parallel
                             * communication on any rank */
    double loss;            /* nats per token; NAN: no training */
    double validation_loss; /* NAN: not computed after this step */
    /* Unweighted mean loss of the multi-token prediction modules, part of no
     * other loss; NAN: no such modules. */
    double mtp_loss;
    double gradient_norm,
        learning_rate; /* gradient norm before clipping; learning rate */
    uint64_t tokens;
    /* Timed passes that started too late to meet their deadlines, and the
     * largest lateness of any pass. */
    uint64_t missed_deadlines;
    int64_t max_lateness_ns;
    /* Adaptive runs whose first iterations were measured: the duration that
     * the measurements predicted before the iteration; 0: none. */
    int64_t predicted_ns;
} lh_iteration;

enum {
    LH_STOP_NO,
    LH_STOP_AFTER, /* after the current iteration */
    LH_STOP_NOW
};

/* Default message size if neither a plan nor the caller sets one. */
enum { LH_TRAIN_MESSAGE_BYTES = 65536 };

/* Options for lh_train_timed() and lh_train_cpu(). A member that is 0 or NULL
 * has its default. */
typedef struct lh_train_options {
    size_t size; /* sizeof(lh_train_options) */
    /* NULL or "inproc": ranks are threads. "local": ranks are processes on this
     * machine. "ucx", "tcp": this process is one rank started by mpirun or
     * srun. */
    const char *transport;
    uint64_t steps;         /* 0: 1 */
    uint64_t message_bytes; /* timed ranks; 0: LH_TRAIN_MESSAGE_BYTES */
    /* Tolerated lateness: a timed pass that starts at most this late still ends
     * by its deadline; 0: 20 ms. */
    int64_t tolerated_lateness_ns;
    bool real_links; /* timed: uses the real network without emulated delays */
    bool realtime; /* run ranks under SCHED_FIFO; fails without the privilege */
    /* Called on rank 0 after each iteration. */
    void (*progress)(void *context, const lh_iteration *iteration);
    /* Stop request: returns LH_STOP_...; polled often on rank 0. If ranks are
     * processes on this machine, the calling process is polled too, and the
     * stronger request wins.
     *
     * On other ranks it is polled at least once per iteration; a request to any
     * rank ends the run of all ranks after the iteration, and LH_STOP_NOW acts
     * at once only on rank 0 and in the calling process. May be called from
     * several threads. Ranks still alive 3 s after the calling process received
     * LH_STOP_NOW are killed. */
    int (*stop)(void *context);
    /* Called when a run started by mpirun or srun has failed, before this rank
     * leaves it, which takes a moment. `why` is NULL on all ranks except the
     * one that should report the error: one per host if the launcher has a
     * separate output for each host. May be NULL. */
    void (*failed)(void *context, const char *why);
    void *context;
    /* Called with a one-sentence warning that does not end the run, for example
     * about a damaged checkpoint that was skipped, or with the notice that the
     * run stops. Called on rank 0; for warnings about `stop`, also on others.
     * May be NULL. */
    void (*warning)(void *context, const char *text);
    /* "ucx": permits listening beyond this host, although UCX accepts messages
     * from any peer that can reach it (docs/engine-transports.md). */
    bool insecure;
    /* cpu, with a plan: the result contains a run profile. Adds messages in
     * several sizes between the stages at the run's end. */
    bool profiles;
    /* Returns the schedule for iterations from `step` on, or NULL for no
     * change. Called on rank 0 when the previous iteration starts, and once
     * before the first iteration. Ignored on other ranks.
     *
     * All ranks receive a new schedule during the previous iteration, lower it
     * under the options of the run's first execution plan and prove it
     * deadlock-free. At the boundary all adopt it, or none if any rank cannot.
     * The returned value is read before the next call. Cannot be combined with
     * `profiles`. NULL: the run keeps its schedule. */
    const struct lh_reschedule *(*reschedule)(void *context, uint64_t step);
    /* Called on rank 0 at the boundary; strings are borrowed for the call. May
     * be NULL. */
    void (*switched)(void *context, const struct lh_switch *what);
    /* Link and device slowdowns during the run; NULL: none. The run uses
     * the timeline's pipeline in state 0. Messages in flight keep the delay
     * with which they were sent. LH_EUNSUPPORTED: slow links without link
     * emulation, or slow devices with computed passes. Borrowed until the run
     * ends. */
    const struct lh_event_timeline *event_timeline;
    /* Adaptive run; NULL: none. Cannot be combined with `reschedule` or
     * `profiles`. Borrowed until the run ends. */
    const struct lh_train_adapt *adapt;
    /* cpu: enforces the pipeline's memory limits on every rank. If the
     * prediction exceeds them, the run fails with LH_ENOMEM before it starts,
     * and a proposed schedule is rejected. A run that exceeds them anyway ends
     * with LH_ENOMEM after that iteration, with a checkpoint if checkpoints are
     * enabled. LH_EINVAL: the pipeline has no limits, or not in bytes. */
    bool enforces_memory;
    /* "tcp": rails. Messages between two ranks are spread over several paths,
     * each between the rails with the same index; if one fails, the others
     * carry its messages. Each entry is an interface name, an address, or a
     * network in which the host has an address ("10.1.0.0/24"). All ranks need
     * the same number. 0: one path, the one used for rendezvous. Borrowed until
     * the run ends. */
    uint32_t n_rails;
    const char *const *rails;
    /* Called on rank 0 before `switched` for the schedule that included the
     * migration; its argument is borrowed for the call. May be NULL. */
    void (*migrated)(void *context, const struct lh_migration *what);
    /* timed: layers per chunk of the pipeline, required for layer migration;
     * cpu: taken from the model. NULL: no layer migration. Borrowed until the
     * run ends. */
    const uint32_t *layers;
    /* Announces the migrations that `reschedule` will request. LH_EUNSUPPORTED,
     * before the run starts, if they are impossible. Without the announcement
     * such a switch is rejected when proposed. */
    bool moves_layers, moves_places;
    /* Ranks that are processes: a rank that sends nothing for this time, for
     * example because it is stopped, has failed, and the run ends; at least 0.1
     * s, with rails 1.6 s. 0: "local" 10 s; "tcp" and "ucx" 3.5 s, with rails
     * 10 s. */
    int64_t silence_ns;
    /* Maximum number of restarts after the loss of a rank (killed, silent, or
     * ended without an error; ranks that are threads: ended by an event of
     * event_timeline); 0: the loss ends the run. All ranks continue after the
     * last iteration, with the state that each stores in memory that outlives
     * it, or, if that is lost, with the newest checkpoint; each restart is a
     * `warning`. Iterations after that checkpoint are repeated, with
     * `progress`. Errors that a rank reports end the run. With restarts, ranks
     * that mpirun or srun started run in child processes of the started ones,
     * which supervise them. A restarted run begins with the initial schedule;
     * `reschedule` is called again for its first step, and `adapt` measures
     * again. LH_EINVAL: cpu without a checkpoint folder, or `profiles`. */
    uint32_t max_restarts;
    /* Called in a process that a launcher started before its rank joins the
     * others. Later failures end the other ranks; earlier ones are reported to
     * them by lh_train_report_failure(). May be NULL. */
    void (*joining)(void *context);
} lh_train_options;

/* Devices that execute passes. */
typedef enum lh_train_device {
    LH_TRAIN_TIMED, /* passes take the pipeline's time */
    LH_TRAIN_CPU    /* this machine's processors train the plan's model */
} lh_train_device;

/* Options for lh_train_plan(). */
typedef struct lh_train_plan_options {
    size_t size; /* sizeof(lh_train_plan_options) */
    lh_train_device device;
    /* Replacements for the plan's own; NULL: none. The pipeline must have the
     * plan's chunks. */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const struct lh_exec_options *exec; /* NULL: defaults for lh_exec_make() */
    /* NULL: defaults for lh_train_timed(). message_bytes 0: as in the plan. */
    const lh_train_options *run;
    /* cpu: data and training options; model, first_layers, micro_batch,
     * sequence and replicas come from the plan. timed: ignored. */
    const struct lh_train_model *model;
} lh_train_plan_options;

/* A run's result. Owns its contents; release with lh_train_result_free(). */
typedef struct lh_train_result lh_train_result;

/* Builds an execution plan from the plan's schedule and runs it. `options`
 * NULL: one iteration on the timed device. Release with
 * lh_train_result_free().
 *
 * Errors as in lh_exec_make(), lh_train_timed() and lh_train_cpu(); also
 * LH_EUNSUPPORTED: the cpu device cannot run layers that the plan splits
 * between GPUs. */
LH_API lh_status lh_train_plan(const lh_plan *plan,
                               const lh_train_plan_options *options,
                               lh_train_result **out, lh_error *err);

/* Returns how many iterations ended. */
LH_API uint32_t lh_train_n_iterations(const lh_train_result *result);
/* Returns iteration number i's times and losses; borrowed. */
LH_API const lh_iteration *lh_train_iteration(const lh_train_result *result,
                                              uint32_t i);
/* Returns the iteration time in ns predicted by the simulator, for the last
 * iteration's schedule; 0: there was none. */
LH_API int64_t lh_train_predicted_ns(const lh_train_result *result);
/* Returns the median measured iteration time in ns; 0: there was none.
 */
LH_API int64_t lh_train_median_ns(const lh_train_result *result);
/* Frees a training result; ignores NULL. */
LH_API void lh_train_result_free(lh_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
