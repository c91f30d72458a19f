/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/adapting.h"

#include "base/bytes.h"
#include "base/process.h"
#include "base/realtime.h"
#include "net/hello.h"

#include <stdlib.h>
#include <string.h>

/* Capacity of the ring of iterations that the decision thread has not
 * processed. */
enum { QUEUE = 8 };

/* Budget for processing observations: this share of the run's time plus
 * FREE_NS, in processor time summed over all ranks. */
static const double most_share = 0.0025;
#define FREE_NS INT64_C(100000000)

/* One rank's observation message: its buffer, its expected header and its
 * receive. */
typedef struct part {
    unsigned char *bytes;
    size_t size, room;
    lhi_seen_head head; /* expected header */
    lhi_net_op op;
} part;

/* One observed iteration: the step, the plan that it followed and the messages
 * of all ranks. */
typedef struct intake {
    uint64_t step;
    const lh_exec *exec;
    const lhi_proposed *proposed; /* that has it; NULL: the initial plan */
    part *parts;                  /* per rank */
} intake;

/* State of the online adaptation on rank 0. */
struct lhi_adapting {
    const lhi_job *job;
    lhi_net *net;
    uint32_t n; /* ranks */
    lhi_deciding *deciding;
    lhi_sight *sight;
    uint64_t clock; /* clock id of this rank's host */
    int64_t began_ns;
    pthread_t thread;
    bool has_thread;
    /* Used by the thread only. */
    lhi_seen_part *seen; /* per rank */
    lhi_seen_row *rows;
    lhi_played *played;
    size_t row_room, played_room;
    uint32_t *clocks;
    /* Protected by `lock`. The thread processes queue[first % QUEUE]; the entry
     * at `last` belongs to the rank. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint32_t first, last;
    int64_t spent_ns; /* thread's processor time without decisions */
    int64_t own_ns;   /* rank's processor time for its own part */
    intake queue[QUEUE];
};

uint64_t lhi_clock_number(const lhi_job *job, uint32_t rank)
{
    lhi_process self;
    unsigned char digest[32];
    if (!job->launched)
        return 0;
    lhi_process_self(&self);
    if (!self.boot[0])
        return rank + UINT64_C(1);
    lhi_digest(self.boot, strlen(self.boot), digest);
    return lhi_get_bytes(digest, 8);
}

/* --- thread --- */

/* Grows the row arrays to hold an entire iteration. */
static lh_status make_room(lhi_adapting *a, const intake *in, lh_error *err)
{
    size_t n_rows = 0, n_played = 0;
    for (uint32_t r = 0; r < a->n; r++) {
        n_rows += in->parts[r].head.n_passes;
        n_played += in->parts[r].head.n_played;
    }
    if (n_rows > a->row_room || !a->rows) {
        lhi_seen_row *rows = realloc(a->rows, (n_rows + 1) * sizeof *rows);
        if (!rows)
            return lhi_fail_nomem(err);
        a->rows = rows;
        a->row_room = n_rows;
    }
    if (n_played > a->played_room || !a->played) {
        lhi_played *played =
            realloc(a->played, (n_played + 1) * sizeof *played);
        if (!played)
            return lhi_fail_nomem(err);
        a->played = played;
        a->played_room = n_played;
    }
    return LH_OK;
}

/* Waits for the messages of all ranks and parses them into a->seen. */
static lh_status read_parts(lhi_adapting *a, intake *in, lh_error *err)
{
    lhi_seen_row *rows;
    lhi_played *played;
    LHI_TRY(make_room(a, in, err));
    rows = a->rows;
    played = a->played;
    for (uint32_t r = 0; r < a->n; r++) {
        part *p = &in->parts[r];
        lhi_seen_part *to = &a->seen[r];
        *to = (lhi_seen_part){p->head, rows, played};
        if (r > 0)
            LHI_TRY(lhi_net_wait(a->net, &p->op, 0, err));
        lh_status status = lhi_seen_read(p->bytes, p->size, &to->head, to->rows,
                                         to->played, err);
        if (status != LH_OK) {
            lhi_wrap(err, "rank %u sends", r);
            return status;
        }
        rows += p->head.n_passes;
        played += p->head.n_played;
    }
    return LH_OK;
}

/* Merges one iteration and hands it to the decider. */
static lh_status look_at(lhi_adapting *a, intake *in, lh_error *err)
{
    lh_seen seen;
    LHI_TRY(read_parts(a, in, err));
    LHI_TRY(lhi_sight_merge(a->sight, in->exec, a->seen, in->step, &seen, err));
    if (in->proposed && in->proposed->seats->layers)
        lhi_sight_with_first_layers(a->sight, in->proposed->pipeline);
    bool differ = lhi_sight_clocks(a->seen, in->exec->n_ranks, a->clocks);
    return lhi_deciding_add(a->deciding, &seen, differ ? a->clocks : NULL, err);
}

static void *thread_main(void *of)
{
    lhi_adapting *a = of;
    lh_error err = {0};
    lh_status status = LH_OK;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && status == LH_OK) {
        if (a->first == a->last) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        intake *in = &a->queue[a->first % QUEUE];
        pthread_mutex_unlock(&a->lock);
        status = look_at(a, in, &err);
        lhi_proposed_release(in->proposed);
        in->proposed = NULL;
        pthread_mutex_lock(&a->lock);
        a->spent_ns = lhi_thread_ns() - lhi_deciding_thought_ns(a->deciding);
        a->first++;
    }
    pthread_mutex_unlock(&a->lock);
    if (status != LH_OK)
        lhi_net_abort(a->net, err.text);
    return NULL;
}

/* --- construction --- */

static lh_status set_up(lhi_adapting *a, const lhi_device *device,
                        lh_error *err)
{
    a->seen = calloc(a->n, sizeof *a->seen);
    a->clocks = calloc(a->job->exec->n_ranks, sizeof *a->clocks);
    if (!a->seen || !a->clocks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < QUEUE; i++)
        if (!(a->queue[i].parts = calloc(a->n, sizeof *a->queue[i].parts)))
            return lhi_fail_nomem(err);
    LHI_TRY(lhi_deciding_make(a->job, &a->deciding, err));
    LHI_TRY(lhi_sight_make(a->job, device, &a->sight, err));
    LHI_TRY(lhi_thread_ordinary(&a->thread, thread_main, a, err));
    a->has_thread = true;
    return LH_OK;
}

lh_status lhi_adapting_make(const lhi_job *job, lhi_net *net,
                            const lhi_device *device, lhi_adapting **out,
                            lh_error *err)
{
    lhi_adapting *a = calloc(1, sizeof *a);
    if (!a)
        return lhi_fail_nomem(err);
    a->job = job;
    a->net = net;
    a->n = lhi_net_n_ranks(net);
    a->clock = lhi_clock_number(job, 0);
    a->began_ns = lhi_now_ns();
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    lh_status status = set_up(a, device, err);
    if (status != LH_OK) {
        lhi_adapting_free(a);
        return status;
    }
    *out = a;
    return LH_OK;
}

void lhi_adapting_stop(lhi_adapting *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread)
        pthread_join(a->thread, NULL);
    a->has_thread = false;
}

void lhi_adapting_free(lhi_adapting *a)
{
    if (!a)
        return;
    lhi_adapting_stop(a);
    for (uint32_t i = 0; i < QUEUE; i++) {
        intake *in = &a->queue[i];
        lhi_proposed_release(in->proposed);
        for (uint32_t r = 0; in->parts && r < a->n; r++)
            free(in->parts[r].bytes);
        free(in->parts);
    }
    lhi_deciding_free(a->deciding);
    lhi_sight_free(a->sight);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a->seen);
    free(a->rows);
    free(a->played);
    free(a->clocks);
    free(a);
}

lhi_deciding *lhi_adapting_mind(lhi_adapting *a)
{
    return a->deciding;
}

/* --- called by the rank --- */

bool lhi_adapting_begin(lhi_adapting *a, uint64_t step, const lhi_shift *shift)
{
    pthread_mutex_lock(&a->lock);
    const bool has_room = a->last - a->first < QUEUE;
    /* Every rank spends as much as this one. */
    const int64_t spent_ns = a->spent_ns + a->own_ns * a->n;
    pthread_mutex_unlock(&a->lock);
    const double may_ns =
        FREE_NS + most_share * (double)(lhi_now_ns() - a->began_ns);
    if (!has_room || (double)spent_ns > may_ns)
        return false;
    intake *in = &a->queue[a->last % QUEUE];
    in->step = step;
    in->exec = shift->exec;
    in->proposed = shift->proposed ? lhi_proposed_hold(shift->proposed) : NULL;
    return true;
}

/* Prepares the receive buffer and expected header for one rank's message in the
 * current iteration. */
static lh_status open_part(lhi_adapting *a, uint32_t rank, uint32_t n_played,
                           part **out, lh_error *err)
{
    intake *in = &a->queue[a->last % QUEUE];
    part *p = &in->parts[rank];
    const lhi_counts counts = {
        in->exec->ranks[rank % in->exec->n_ranks].n_passes, n_played};
    LHI_TRY(lhi_job_check_counts(a->job, in->exec, rank % in->exec->n_ranks,
                                 &counts, err));
    p->head = (lhi_seen_head){counts.n_passes, n_played, 0};
    p->size = lhi_seen_size(&p->head);
    if (p->size > p->room) {
        free(p->bytes);
        p->room = 0;
        if (!(p->bytes = malloc(p->size)))
            return lhi_fail_nomem(err);
        p->room = p->size;
    }
    *out = p;
    return LH_OK;
}

lh_status lhi_adapting_expect(lhi_adapting *a, uint32_t rank, uint32_t n_played,
                              uint64_t tag, lh_error *err)
{
    part *p;
    LHI_TRY(open_part(a, rank, n_played, &p, err));
    p->op = (lhi_net_op){0};
    return lhi_net_receive(a->net, rank, tag, p->bytes, p->size, &p->op, err);
}

lh_status lhi_adapting_add_own(lhi_adapting *a, const lhi_rank *rank,
                               const lhi_played *played, uint32_t n_played,
                               lh_error *err)
{
    part *p;
    const int64_t before_ns = lhi_thread_ns();
    LHI_TRY(open_part(a, 0, n_played, &p, err));
    p->head.clock = a->clock;
    lhi_seen_write(&p->head, rank->seen, played, p->bytes);
    a->own_ns += lhi_thread_ns() - before_ns;
    return LH_OK;
}

void lhi_adapting_end(lhi_adapting *a)
{
    pthread_mutex_lock(&a->lock);
    a->last++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}
