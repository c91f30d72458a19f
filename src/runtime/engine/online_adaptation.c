/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/online_adaptation.h"

#include "base/bytes.h"
#include "base/process.h"
#include "base/realtime.h"
#include "runtime/transport/handshake.h"

#include <stdlib.h>
#include <string.h>

/* Capacity of the ring of iterations that the decision thread has not
 * processed. */
enum { QUEUE_LENGTH = 8 };

/* Budget for processing observations: this share of the run's time plus
 * CPU_ALLOWANCE_NS, in processor time summed over all ranks. */
static const double max_cpu_share = 0.0025;
#define CPU_ALLOWANCE_NS INT64_C(100000000)

/* One rank's observation message: its buffer, its expected header and its
 * receive. */
typedef struct rank_message {
    unsigned char *bytes;
    size_t size, capacity;
    lhi_observation_header head; /* expected header */
    lhi_net_op op;
} rank_message;

/* One observed iteration: the step, the plan that it followed and all ranks'
 * messages. */
typedef struct observed_step {
    uint64_t step;
    const lh_exec *exec;
    const lhi_proposed_plan *proposed; /* that has it; NULL: the initial plan */
    int64_t ns;                        /* duration */
    rank_message *parts;               /* per rank */
} observed_step;

/* State of the online adaptation on rank 0. */
struct lhi_adaptation {
    const lhi_job *job;
    lhi_net *net;
    uint32_t n; /* ranks */
    lhi_decider *decider;
    lhi_iteration_observation *observation;
    uint64_t clock; /* clock id of this rank's host */
    int64_t start_ns;
    pthread_t thread;
    bool has_thread;
    /* Used by the thread only. */
    lhi_rank_observation *seen; /* per rank */
    lhi_pass_observation *rows;
    lhi_collective_record *executed;
    size_t row_capacity, collective_capacity;
    uint32_t *clocks;
    uint32_t n_processors;     /* shared by more ranks; 0: one per rank */
    int64_t *edges;            /* two per row */
    lhi_hop_observation *hops; /* of all ranks */
    lhi_hop_times *hop_times;  /* NULL: hops are not observed */
    /* Protected by `lock`. The thread processes queue[first % QUEUE_LENGTH];
     * the entry at `last` belongs to the rank. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint32_t first, last;
    int64_t thread_cpu_ns; /* thread's processor time without decisions */
    int64_t rank_cpu_ns;   /* rank's processor time for its own part */
    observed_step queue[QUEUE_LENGTH];
};

uint64_t lhi_host_clock_id(const lhi_job *job, uint32_t rank)
{
    lhi_process self;
    unsigned char digest[32];
    if (!job->launched)
        return 0;
    lhi_process_identify_self(&self);
    if (!self.boot[0])
        return rank + UINT64_C(1);
    lhi_compute_sha256(self.boot, strlen(self.boot), digest);
    return lhi_load_little_endian(digest, 8);
}

/* --- thread --- */

/* Returns the place (position in the process grid) of rank `rank` in the
 * observed iteration, after the migrations so far. */
static uint32_t find_place(const observed_step *in, uint32_t rank)
{
    return lhi_rank_assignment_find_place(
        in->proposed ? in->proposed->assignment : NULL, rank);
}

/* Enlarges the arrays of passes and collectives to a whole iteration's size. */
static lh_status grow_rows(lhi_adaptation *a, const observed_step *in,
                           lh_error *err)
{
    size_t n_rows = 0, n_executed = 0;
    for (uint32_t r = 0; r < a->n; r++) {
        n_rows += in->parts[r].head.n_passes;
        n_executed += in->parts[r].head.n_collectives;
    }
    if (n_rows > a->row_capacity || !a->rows) {
        lhi_pass_observation *rows =
            realloc(a->rows, (n_rows + 1) * sizeof *rows);
        if (!rows)
            return lhi_fail_nomem(err);
        a->rows = rows;
        a->row_capacity = n_rows;
        free(a->edges);
        a->edges = calloc(2 * n_rows + 1, sizeof *a->edges);
        if (!a->edges) {
            a->row_capacity = 0;
            return lhi_fail_nomem(err);
        }
    }
    if (n_executed > a->collective_capacity || !a->executed) {
        lhi_collective_record *executed =
            realloc(a->executed, (n_executed + 1) * sizeof *executed);
        if (!executed)
            return lhi_fail_nomem(err);
        a->executed = executed;
        a->collective_capacity = n_executed;
    }
    return LH_OK;
}

/* Waits for the observations that all ranks sent for this iteration, and
 * decodes them into a->seen, by place. */
static lh_status read_messages(lhi_adaptation *a, observed_step *in,
                               lh_error *err)
{
    lhi_pass_observation *rows;
    lhi_collective_record *executed;
    LHI_TRY(grow_rows(a, in, err));
    rows = a->rows;
    executed = a->executed;
    for (uint32_t r = 0; r < a->n; r++) {
        rank_message *p = &in->parts[r];
        lhi_rank_observation *to = &a->seen[find_place(in, r)];
        *to = (lhi_rank_observation){p->head, rows, executed,
                                     a->hops + (size_t)r * p->head.n_hops};
        if (r > 0)
            LHI_TRY(lhi_net_wait(a->net, &p->op, 0, err));
        lh_status status =
            lhi_observation_read(p->bytes, p->size, &to->head, to->rows,
                                 to->collectives, to->hops, err);
        if (status != LH_OK) {
            lhi_fail_add_context(err, "rank %u sends", r);
            return status;
        }
        rows += p->head.n_passes;
        executed += p->head.n_collectives;
    }
    return LH_OK;
}

/* Merges all ranks' observations of one iteration into one, and passes it to
 * the decider. */
static lh_status process_iteration(lhi_adaptation *a, observed_step *in,
                                   lh_error *err)
{
    lh_observation seen;
    lhi_measured_iteration whole = {.ns = in->ns};
    LHI_TRY(read_messages(a, in, err));
    LHI_TRY(lhi_iteration_observation_merge(a->observation, in->exec, a->seen,
                                            in->step, &seen, err));
    if (in->proposed && in->proposed->assignment->layers)
        lhi_iteration_observation_scale_layers(a->observation,
                                               in->proposed->pipeline);
    bool differ = lhi_iteration_observation_find_clocks(
        a->seen, in->exec->n_ranks, a->clocks);
    if (a->hop_times)
        lhi_hop_times_compute(a->hop_times, a->seen, a->observation, in->step,
                              &whole);
    if (a->n_processors)
        whole.processors_ns = lhi_iteration_observation_processor_time(
            a->seen, a->n, a->n_processors, a->edges);
    return lhi_decider_add_iteration(a->decider, &seen, &whole,
                                     differ ? a->clocks : NULL, err);
}

/* Main function for the adaptation thread: processes queued iterations until
 * the run ends; a failure ends the run. */
static void *thread_main(void *of)
{
    lhi_adaptation *a = of;
    lh_error err = {0};
    lh_status status = LH_OK;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && status == LH_OK) {
        if (a->first == a->last) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        observed_step *in = &a->queue[a->first % QUEUE_LENGTH];
        pthread_mutex_unlock(&a->lock);
        status = process_iteration(a, in, &err);
        lhi_proposed_plan_release(in->proposed);
        in->proposed = NULL;
        pthread_mutex_lock(&a->lock);
        a->thread_cpu_ns = lhi_thread_cpu_ns() - lhi_decider_cpu_ns(a->decider);
        a->first++;
    }
    pthread_mutex_unlock(&a->lock);
    if (status != LH_OK)
        lhi_net_abort(a->net, err.text);
    return NULL;
}

/* --- construction --- */

/* Allocates the queue, decider and observation buffers, and starts the
 * thread. */
static lh_status init(lhi_adaptation *a, const lhi_device *device,
                      lh_error *err)
{
    a->seen = calloc(a->n, sizeof *a->seen);
    a->clocks = calloc(a->job->exec->n_ranks, sizeof *a->clocks);
    if (!a->seen || !a->clocks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < QUEUE_LENGTH; i++)
        if (!(a->queue[i].parts = calloc(a->n, sizeof *a->queue[i].parts)))
            return lhi_fail_nomem(err);
    LHI_TRY(lhi_decider_make(a->job, &a->decider, err));
    const lhi_slow_hosts *slow = lhi_decider_slow_hosts(a->decider);
    if (slow && !a->job->emulates)
        LHI_TRY(lhi_hop_times_make(a->job, slow, &a->hop_times, err));
    a->hops =
        calloc((size_t)a->n * lhi_job_count_hops(a->job) + 1, sizeof *a->hops);
    if (!a->hops)
        return lhi_fail_nomem(err);
    LHI_TRY(
        lhi_iteration_observation_make(a->job, device, &a->observation, err));
    LHI_TRY(lhi_start_normal_thread(&a->thread, thread_main, a, err));
    a->has_thread = true;
    return LH_OK;
}

lh_status lhi_adaptation_make(const lhi_job *job, lhi_net *net,
                              const lhi_device *device, lhi_adaptation **out,
                              lh_error *err)
{
    lhi_adaptation *a = calloc(1, sizeof *a);
    if (!a)
        return lhi_fail_nomem(err);
    a->job = job;
    a->net = net;
    a->n = lhi_net_n_ranks(net);
    a->clock = lhi_host_clock_id(job, 0);
    a->start_ns = lhi_now_ns();
    a->n_processors = lhi_job_shared_processors(job);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    lh_status status = init(a, device, err);
    if (status != LH_OK) {
        lhi_adaptation_free(a);
        return status;
    }
    *out = a;
    return LH_OK;
}

void lhi_adaptation_stop(lhi_adaptation *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread)
        pthread_join(a->thread, NULL);
    a->has_thread = false;
}

void lhi_adaptation_free(lhi_adaptation *a)
{
    if (!a)
        return;
    lhi_adaptation_stop(a);
    for (uint32_t i = 0; i < QUEUE_LENGTH; i++) {
        observed_step *in = &a->queue[i];
        lhi_proposed_plan_release(in->proposed);
        for (uint32_t r = 0; in->parts && r < a->n; r++)
            free(in->parts[r].bytes);
        free(in->parts);
    }
    lhi_decider_free(a->decider);
    lhi_iteration_observation_free(a->observation);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a->seen);
    free(a->rows);
    free(a->edges);
    free(a->hops);
    lhi_hop_times_free(a->hop_times);
    free(a->executed);
    free(a->clocks);
    free(a);
}

lhi_decider *lhi_adaptation_decider(lhi_adaptation *a)
{
    return a->decider;
}

/* --- called by the rank --- */

int64_t lhi_adaptation_cpu_ns(lhi_adaptation *a)
{
    pthread_mutex_lock(&a->lock);
    const int64_t ns = a->thread_cpu_ns + a->rank_cpu_ns * a->n;
    pthread_mutex_unlock(&a->lock);
    return ns;
}

bool lhi_adaptation_begin_iteration(lhi_adaptation *a, uint64_t step,
                                    const lhi_rank_program *shift)
{
    const int64_t spent_ns = lhi_adaptation_cpu_ns(a);
    pthread_mutex_lock(&a->lock);
    const bool has_room = a->last - a->first < QUEUE_LENGTH;
    pthread_mutex_unlock(&a->lock);
    const double may_ns =
        CPU_ALLOWANCE_NS + max_cpu_share * (double)(lhi_now_ns() - a->start_ns);
    if (!has_room || (double)spent_ns > may_ns)
        return false;
    observed_step *in = &a->queue[a->last % QUEUE_LENGTH];
    in->step = step;
    in->exec = shift->exec;
    in->proposed =
        shift->proposed ? lhi_proposed_plan_retain(shift->proposed) : NULL;
    return true;
}

/* Prepares the receive buffer and the expected header for rank `rank`'s
 * message, with n_executed collectives, about the current iteration. */
static lh_status prepare_message(lhi_adaptation *a, uint32_t rank,
                                 uint32_t n_executed, rank_message **out,
                                 lh_error *err)
{
    observed_step *in = &a->queue[a->last % QUEUE_LENGTH];
    rank_message *p = &in->parts[rank];
    const uint32_t stage = find_place(in, rank) % in->exec->n_ranks;
    const lhi_record_counts counts = {in->exec->ranks[stage].n_passes,
                                      n_executed};
    LHI_TRY(lhi_job_check_counts(a->job, in->exec, stage, &counts, err));
    p->head = (lhi_observation_header){.n_passes = counts.n_passes,
                                       .n_collectives = n_executed,
                                       .n_hops = lhi_job_count_hops(a->job)};
    p->size = lhi_observation_size(&p->head);
    if (p->size > p->capacity) {
        free(p->bytes);
        p->capacity = 0;
        if (!(p->bytes = malloc(p->size)))
            return lhi_fail_nomem(err);
        p->capacity = p->size;
    }
    *out = p;
    return LH_OK;
}

lh_status lhi_adaptation_expect_rank(lhi_adaptation *a, uint32_t rank,
                                     uint32_t n_executed, uint64_t tag,
                                     lh_error *err)
{
    rank_message *p;
    LHI_TRY(prepare_message(a, rank, n_executed, &p, err));
    p->op = (lhi_net_op){0};
    return lhi_net_receive(a->net, rank, tag, p->bytes, p->size, &p->op, err);
}

lh_status lhi_adaptation_add_local(lhi_adaptation *a, const lhi_rank *rank,
                                   const lhi_training *training,
                                   const lhi_collective_record *executed,
                                   uint32_t n_executed, lh_error *err)
{
    rank_message *p;
    lhi_hop_observation hops[LHI_NET_MAX_RANKS];
    const int64_t before_ns = lhi_thread_cpu_ns();
    LHI_TRY(prepare_message(a, 0, n_executed, &p, err));
    p->head.clock = a->clock;
    if (p->head.n_hops)
        lhi_training_read_hops(training, hops);
    lhi_observation_write(&p->head, rank->observation, executed, hops,
                          p->bytes);
    a->rank_cpu_ns += lhi_thread_cpu_ns() - before_ns;
    return LH_OK;
}

void lhi_adaptation_end_iteration(lhi_adaptation *a, int64_t ns)
{
    pthread_mutex_lock(&a->lock);
    a->queue[a->last % QUEUE_LENGTH].ns = ns;
    a->last++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}
