/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one rank in a process that mpirun, srun, torchrun or a similar launcher
 * started. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/engine/rerouting.h"
#include "runtime/engine/restart.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/slurm.h"
#include "runtime/transport/tcp_join.h"
#include "runtime/transport/torchrun.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Reports the failed run's message `why` to the caller's callback, after which
 * the caller exits. `why` NULL: another rank prints the message; then sleeps
 * first, because mpirun kills all processes when one ends. */
static void exit_with_message(const lhi_job *job, const char *why)
{
    if (job->o.failed)
        job->o.failed(job->o.context, why);
    if (!why)
        lhi_sleep_for(300000000);
}

/* Main function for a rank started by mpirun or srun: runs job `of`; *result
 * (*size bytes): rank 0's outcome. After a failure it ends the process with a
 * message. */
static lh_status launched_main(lhi_net *net, void *of, char **result,
                               size_t *size, lh_error *err)
{
    const lhi_job *job = of;
    lh_status status = lhi_job_run_rank(net, of, result, size, err);
    lh_error why;
    if (status == LH_OK || status == LH_ECANCELED)
        return status;
    const char *failure = lhi_net_failure(net);
    lhi_fail(&why, status, "%s", failure ? failure : "a rank has failed");
    if (lhi_net_lost_rank(net) != LHI_NET_NO_RANK)
        lhi_job_add_last_checkpoint(job, &why);
    exit_with_message(job, lhi_net_is_reporter(net) ? why.text : NULL);
    return status;
}

/* Ranks of other replicas, and all ranks, that a process may replace. */
enum { MOST_OF_STAGE = 3, MOST_REPLACED = 3 + MOST_OF_STAGE };
/* Time after a restart before a replacement starts for a rank that has not
 * joined, per replica between the two; less if --silence is less. */
static const int64_t replacement_delay_ns = 10000000000;

/* Start of this process's rank. */
typedef struct start {
    lhi_job *job;
    uint32_t rank;
    lhi_mpi *mpi; /* NULL: started by srun or torchrun */
    const lhi_mpi_setup *setup;
    const lhi_tcp_options *tcp;  /* of ranks started so */
    uint32_t first_here, n_here; /* of lhi_launch_settings */
    /* Ranks that this process may replace, and for how many delays it waits
     * before it does. */
    uint32_t n_replaced, replaced[MOST_REPLACED], n_delays[MOST_REPLACED];
    /* One per child process, shared with them: of the own rank, then of those
     * that it may replace. */
    lhi_attempt_failure *failure;
} start;

/* Checks whether the caller asked the run to stop, while the ranks join. */
static bool is_stopped(void *of)
{
    const lhi_job *job = of;
    return (job->o.stop && job->o.stop(job->o.context) != LH_STOP_NO) ||
           (job->stop_request && atomic_load(job->stop_request) != LH_STOP_NO);
}

/* Longest time in which a rank that does not join reports the reason to the
 * others. They may start seconds later. */
static const int64_t report_ns = 10000000000;

/* Checks whether the caller asked the run twice to stop. */
static bool is_stopped_at_once(void *of)
{
    const lhi_job *job = of;
    return job->o.stop && job->o.stop(job->o.context) == LH_STOP_NOW;
}

/* Checks whether some other rank has not received why the joining has ended. */
static bool has_uninformed(const start *s)
{
    for (uint32_t i = 0; s->tcp && i < s->tcp->n_ranks; i++)
        if (s->tcp->needs_reason[i])
            return true;
    return false;
}

/* Records that no other rank has received why the run ends. */
static void mark_uninformed(const start *s)
{
    for (uint32_t i = 0; s->tcp && i < s->tcp->n_ranks; i++)
        s->tcp->needs_reason[i] = s->rank == 0 ? i > 0 : i == 0;
}

/* Sends the reason `why` for which no rank joins to the ranks that have not
 * received it; after this process has printed it, as it may take long. */
static void inform_others(const start *s, const char *why)
{
    lhi_tcp_options o = *s->tcp;
    o.join_ns = report_ns;
    o.is_stopped = is_stopped_at_once;
    o.stop_context = s->job;
    lhi_tcp_send_reason(&o, why);
}

/* Creates this rank's endpoint, connected to all other ranks. */
static lh_status open_endpoint(const start *s, lhi_net **out, lh_error *err)
{
    if (s->mpi)
        return lhi_net_mpi(s->mpi, s->setup, out, err);
    lhi_tcp_options o = *s->tcp;
    o.outlasts_wrong_secrets = s->job->n_restarts > 0;
    o.is_stopped = is_stopped;
    o.stop_context = s->job;
    lhi_net *net = NULL;
    LHI_TRY(strcmp(s->job->o.transport, "ucx") == 0
                ? lhi_net_ucx(&o, &net, err)
                : lhi_net_tcp(&o, &net, err));
    lhi_net_set_output(net, s->first_here, s->n_here);
    *out = net;
    return LH_OK;
}

/* Runs this process's rank in this process: connects it to the other ranks, and
 * runs the job. *result: rank 0's outcome. */
static lh_status run_here(const start *s, lhi_rank_result *result,
                          lh_error *err)
{
    lhi_net *net = NULL;
    lh_error why = {0};
    lh_status status = open_endpoint(s, &net, &why);
    if (status == LH_OK)
        return lhi_rank_run(net, launched_main, s->job, result, err);
    if (has_uninformed(s)) {
        exit_with_message(s->job, why.text);
        inform_others(s, why.text);
    }
    return lhi_fail(err, status, "%s", why.text);
}

/* Stores why this attempt of the run failed, for the parent process: `text`;
 * the run may restart unless `cause` is an error; `rank`: the lost rank, or
 * LHI_NET_NO_RANK; is_reporter: this process prints the error. */
static void store_failure(const start *s, lhi_failure_cause cause,
                          uint32_t rank, bool is_reporter, const char *text)
{
    s->failure->cause = cause;
    s->failure->rank = rank;
    s->failure->is_reporter = is_reporter;
    snprintf(s->failure->text, sizeof s->failure->text, "%s", text);
}

/* Main function for a rank that runs in a child process, with its connected
 * endpoint; *result (*size bytes): rank 0's outcome. */
static lh_status child_rank_main(lhi_net *net, void *of, char **result,
                                 size_t *size, lh_error *err)
{
    const start *s = of;
    lh_status status = lhi_job_run_rank(net, s->job, result, size, err);
    if (status != LH_OK)
        store_failure(s, lhi_net_failure_cause(net), lhi_net_lost_rank(net),
                      lhi_net_is_reporter(net), lhi_net_failure(net));
    s->failure->was_stopped = s->job->was_stopped;
    return status;
}

/* Waits after a restart whether all ranks join; true: not within the time
 * after which replacement number `index`, from 1, starts. */
static bool is_rank_missing(const lhi_net *alone, const start *s,
                            uint32_t index)
{
    const lhi_attempt_failure *own = &s->failure[0];
    const int64_t silence_ns = s->job->o.silence_ns;
    const int64_t delay_ns = silence_ns && silence_ns < replacement_delay_ns
                                 ? silence_ns
                                 : replacement_delay_ns;
    const int64_t until_ns = lhi_now_ns() + s->n_delays[index - 1] * delay_ns;
    while (s->job->n_restarts > 0 && lhi_now_ns() < until_ns) {
        if (__atomic_load_n(&own->has_joined, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&own->text[0], __ATOMIC_ACQUIRE) ||
            lhi_net_failure(alone))
            return false;
        lhi_sleep_for(20000000);
    }
    return s->job->n_restarts > 0;
}

/* Main function for the child process with number `index`: runs in place of a
 * rank that has not joined after a restart, because its host is lost. */
static lh_status replace_rank(const lhi_net *alone, const start *s,
                              uint32_t index, lh_error *err)
{
    char text[200];
    start other = *s;
    lhi_tcp_options tcp = *s->tcp;
    lhi_rank_result none = {0};
    lhi_net *net = NULL;
    lh_error ignored;
    other.rank = tcp.rank = s->replaced[index - 1];
    tcp.needs_reason = NULL; /* of this process's own rank */
    other.tcp = &tcp;
    other.failure = &s->failure[index];
    s->job->first_memory_file =
        other.rank - index; /* its file is number `index` */
    s->job->replaces = true;
    s->job->replacing_host = s->rank;
    /* If it cannot join, the rank itself has, or the attempt fails. */
    if (!is_rank_missing(alone, s, index) ||
        open_endpoint(&other, &net, &ignored) != LH_OK)
        return LH_OK;
    snprintf(text, sizeof text,
             "rank %" PRIu32 " has not restarted: rank %" PRIu32
             "'s host runs it in its place",
             other.rank, s->rank);
    if (s->job->o.warning)
        s->job->o.warning(s->job->o.context, text);
    lh_status status = lhi_rank_run(net, child_rank_main, &other, &none, err);
    free(none.text);
    return status;
}

/* Main function for the child process that runs this rank: connects to the
 * other ranks and runs. `alone`: its number among this process's children; a
 * higher one replaces a lost rank. */
static lh_status child_main(lhi_net *alone, void *of, char **result,
                            size_t *size, lh_error *err)
{
    const start *s = of;
    if (lhi_net_rank(alone) > 0)
        return replace_rank(alone, s, lhi_net_rank(alone), err);
    lhi_rank_result mine;
    lhi_net *net = NULL;
    lh_error why = {0};
    lh_status status = open_endpoint(s, &net, &why);
    if (status != LH_OK) {
        const bool restarts = status == LH_EIO && s->job->n_restarts > 0;
        const bool is_first_lost = restarts && s->tcp && *s->tcp->misses_first;
        char text[sizeof s->failure->text];
        snprintf(text, sizeof text,
                 is_first_lost
                     ? "the run has ended, or rank 0's host is lost: %.300s; "
                       "if the run has not finished, start all ranks again and "
                       "resume from the checkpoints (--resume)"
                     : "%s",
                 why.text);
        store_failure(
            s, restarts && !is_first_lost ? LHI_CAUSE_LOSS : LHI_CAUSE_ERROR,
            LHI_NET_NO_RANK, true, text);
        return lhi_fail(err, status, "%s", text);
    }
    __atomic_store_n(&s->failure->has_joined, true, __ATOMIC_RELEASE);
    status = lhi_rank_run(net, child_rank_main, of, &mine, err);
    *result = mine.text;
    *size = mine.size;
    return status;
}

/* Prepares an attempt (a start of all ranks) in the parent process: clears the
 * stored failures; under mpirun exchanges addresses again. */
static lh_status prepare_attempt(void *of, lh_error *err)
{
    const start *s = of;
    /* If its rank is lost, no other rank may report to the same output. */
    for (uint32_t i = 0; i <= s->n_replaced; i++)
        s->failure[i] = (lhi_attempt_failure){
            .is_reporter =
                lhi_grid_count_ranks(&s->job->grid) == 1 || s->n_here == 1};
    lh_status status = s->mpi && s->job->n_restarts > 0
                           ? lhi_mpi_exchange(s->mpi, s->setup, err)
                           : LH_OK;
    if (status != LH_OK && s->rank == 0) /* all ranks detect it */
        s->failure->is_reporter = true;
    return status;
}

/* Adds a rank that this process may replace after n_delays delays. Rank 0 is
 * excluded, because the other ranks connect to its host. */
static void add_replaced(start *s, uint32_t rank, uint32_t n_delays)
{
    if (rank == 0 || s->n_replaced == MOST_REPLACED)
        return;
    s->replaced[s->n_replaced] = rank;
    s->n_delays[s->n_replaced++] = n_delays;
}

/* Lists the ranks that this process may replace: the same stage of the replicas
 * before its own, whose ranks have the same weights. If there are at least two
 * other replicas, among which microbatches can be divided (rerouting.h), first
 * those of the neighbouring stage. */
static void find_replaced(start *s)
{
    const lhi_grid *grid = &s->job->grid;
    lhi_grid_coords at = lhi_grid_find_coords(grid, s->rank);
    const uint32_t own = at.replica;
    const bool divides = grid->replicas > 2;
    if (s->mpi) /* replaces no process */
        return;
    for (uint32_t r = 0; divides && r < lhi_grid_count_ranks(grid); r++)
        if (lhi_job_find_sharing_host(s->job, r) == s->rank)
            add_replaced(s, r, 1);
    for (uint32_t i = 1; i < grid->replicas && i <= MOST_OF_STAGE; i++) {
        at.replica = (own + grid->replicas - i) % grid->replicas;
        add_replaced(s, lhi_grid_find_rank(grid, &at), i + divides);
    }
}

/* Runs the rank in a child process, which this process starts again after the
 * loss of any rank. *result: rank 0's outcome. */
static lh_status run_in_children(start *s, lhi_rank_result *result,
                                 lh_error *err)
{
    lh_error why = {0};
    lhi_rank_result results[1 + MOST_REPLACED] = {{NULL, 0}};
    uint32_t numbers[1 + MOST_REPLACED] = {s->rank};
    find_replaced(s);
    memcpy(numbers + 1, s->replaced, s->n_replaced * sizeof *numbers);
    const size_t bytes = (1 + s->n_replaced) * sizeof *s->failure;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    s->failure = map;
    s->job->follows = s->rank != 0;
    s->job->first_memory_file = s->rank;
    const lhi_attempts attempts = {.n = 1 + s->n_replaced,
                                   .numbers = numbers,
                                   .rank_main = child_main,
                                   .context = s,
                                   .prepare = prepare_attempt,
                                   .failure = s->failure};
    lh_status status = lhi_job_run_attempts(s->job, &attempts, results, &why);
    *result = results[0];
    s->job->was_stopped = s->failure->was_stopped;
    for (uint32_t i = 1; i <= s->n_replaced; i++)
        free(results[i].text);
    if (s->failure->stops_run)
        mark_uninformed(s);
    const bool informs = status != LH_OK && has_uninformed(s);
    if (status != LH_OK && (status != LH_ECANCELED || informs))
        exit_with_message(s->job, s->failure->is_reporter ? why.text : NULL);
    if (informs)
        inform_others(s, why.text);
    if (status != LH_OK && err)
        *err = why;
    munmap(map, bytes);
    return status;
}

/* Runs this process's rank, in this process or, if the job may restart, in a
 * child process. *result: rank 0's outcome. */
static lh_status run_rank(start *s, lhi_rank_result *result, lh_error *err)
{
    if (s->job->o.joining)
        s->job->o.joining(s->job->o.context);
    return s->job->record ? run_in_children(s, result, err)
                          : run_here(s, result, err);
}

/* Fails with LH_EINVAL unless the launcher started as many ranks as the plan
 * has; `how`: the launcher's option in the message. */
static lh_status check_ranks(const lhi_job *job, uint32_t n_ranks,
                             const char *how, lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    if (n_ranks == n)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "%" PRIu32 " ranks were started, but the plan has "
                    "%" PRIu32 ": %s %" PRIu32,
                    n_ranks, n, how, n);
}

/* Prefixes the message by this process's rank, as the environment variable
 * `name` gives it. Each rank reports its own environment, because another
 * rank's may be valid. */
static void add_rank_variable(const char *name, lh_error *err)
{
    const char *rank = getenv(name);
    if (rank)
        lhi_fail_add_context(err, "%s=%.20s", name, rank);
}

/* Checks the job's secret. All ranks of a host have the same one: if it is
 * missing, the host's first rank reports that, and the others end silently. */
static lh_status check_secret(const lhi_job *job, const lhi_launch_settings *s,
                              bool by_torchrun, lh_error *err)
{
    uint64_t local;
    const lh_status status = lhi_launch_check_secret(
        s, by_torchrun ? "torchrun or --hosts" : "srun", err);
    if (status != LH_OK &&
        lhi_launch_parse_number(by_torchrun ? "LOCAL_RANK" : "SLURM_LOCALID",
                                UINT32_MAX, NULL, &local) &&
        local > 0)
        exit_with_message(job, NULL);
    return status;
}

/* Runs this process as one rank that torchrun (by_torchrun) or srun started:
 * connects to the other ranks and runs the job over the n_links emulated links.
 * *result: rank 0's outcome. */
static lh_status run_by_environment(lhi_job *job, bool by_torchrun,
                                    uint32_t n_links, const lhi_net_link *links,
                                    lhi_rank_result *result, lh_error *err)
{
    lhi_launch_settings s;
    unsigned char digest[LHI_SETUP_BYTES];
    bool misses_first = false;
    lh_status status = by_torchrun ? lhi_torchrun_read_environment(&s, err)
                                   : lhi_slurm_read_environment(&s, err);
    if (status == LH_OK)
        status = check_ranks(job, s.n_ranks,
                             by_torchrun ? "WORLD_SIZE" : "srun -n", err);
    if (status == LH_OK)
        status = check_secret(job, &s, by_torchrun, err);
    if (status != LH_OK) {
        add_rank_variable(by_torchrun ? "RANK" : "SLURM_PROCID", err);
        return status;
    }
    job->host_layout = s.host_layout;
    LHI_TRY(lhi_job_compute_digest(job, digest, err));
    /* Shared with the child process of run_in_children(). */
    void *map = mmap(NULL, s.n_ranks * sizeof(bool), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    const lhi_tcp_options o = {.rank = s.rank,
                               .n_ranks = s.n_ranks,
                               .host = s.host,
                               .port = s.port,
                               .job = s.job,
                               .setup = digest,
                               .secret = s.secret,
                               .secret_size = strlen(s.secret),
                               .join_ns = LHI_LAUNCH_JOIN_TIMEOUT_NS,
                               .misses_first = &misses_first,
                               .needs_reason = map,
                               .silence_ns = job->o.silence_ns,
                               .n_links = n_links,
                               .links = links,
                               .insecure = job->o.insecure,
                               .n_rails = job->o.n_rails,
                               .rails = job->o.rails};
    start mine = {.job = job,
                  .rank = s.rank,
                  .tcp = &o,
                  .first_here = s.first_here,
                  .n_here = s.n_here};
    job->tcp = &o;
    status = run_rank(&mine, result, err);
    munmap(map, s.n_ranks * sizeof(bool));
    return status;
}

lh_status lhi_job_run_launched(lhi_job *job, uint32_t n_links,
                               const lhi_net_link *links,
                               lhi_rank_result *result, lh_error *err)
{
    lhi_mpi *mpi;
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    job->launched = true;
    const bool by_torchrun = lhi_torchrun_is_launched();
    if (by_torchrun || lhi_slurm_is_launched())
        return run_by_environment(job, by_torchrun, n_links, links, result,
                                  err);
    if (!lhi_mpi_is_launched())
        return lhi_fail(err, LH_EINVAL,
                        "transport %s requires ranks started by mpirun, srun "
                        "or torchrun: mpirun -np %" PRIu32
                        " longhaul train ..., srun -n %" PRIu32
                        ", or RANK, WORLD_SIZE=%" PRIu32
                        ", MASTER_ADDR and MASTER_PORT in the environment",
                        job->o.transport, n, n, n);
    lhi_mpi_setup work = {.transport = job->o.transport,
                          .insecure = job->o.insecure,
                          .n_rails = job->o.n_rails,
                          .rails = job->o.rails,
                          .n_links = n_links,
                          .links = links,
                          .silence_ns = job->o.silence_ns};
    LHI_TRY(lhi_job_compute_digest(job, work.digest, err));
    LHI_TRY(lhi_mpi_start(&mpi, err));
    lh_status status =
        check_ranks(job, lhi_mpi_n_ranks(mpi), "mpirun -np", err);
    if (status == LH_OK)
        status = lhi_mpi_exchange(mpi, &work, err);
    /* All ranks detect it; rank 0 reports it. */
    if (status != LH_OK && lhi_mpi_rank(mpi) != 0)
        exit_with_message(job, NULL);
    if (status == LH_OK)
        status = run_rank(&(start){.job = job,
                                   .rank = lhi_mpi_rank(mpi),
                                   .mpi = mpi,
                                   .setup = &work},
                          result, err);
    lhi_mpi_finalise(mpi, status != LH_OK);
    return status;
}

void lh_train_report_failure(const char *why)
{
    lhi_launch_settings s = {0};
    const bool by_torchrun = lhi_torchrun_is_launched();
    if (by_torchrun)
        lhi_torchrun_read_environment(&s, NULL);
    else if (lhi_slurm_is_launched())
        lhi_slurm_read_environment(&s, NULL);
    if (s.n_ranks > 1) /* else not started so, or it cannot be known */
        lhi_tcp_send_failure(&(lhi_tcp_options){.rank = s.rank,
                                                .n_ranks = s.n_ranks,
                                                .host = s.host,
                                                .port = s.port,
                                                .job = s.job,
                                                .secret = s.secret,
                                                .secret_size = strlen(s.secret),
                                                .join_ns = report_ns},
                             why);
}
