/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/parallel_for.h"

#include "planner/search/pareto_front.h"

#include "base/integer_math.h"
#include "base/thread_pool.h"

#include <stdlib.h>

/* One thread's state. */
typedef struct worker {
    lhi_arena *mem;   /* NULL: the search's own */
    bool initialised; /* false: the members below are from an earlier call */
    lhi_layout_search own;
    lh_error why; /* error of its first failed part */
    /* index of that part, and of the first refusal */
    uint32_t failed, refused_at;
    lh_status status;
} worker;

/* A search's threads and their state. */
struct lhi_workers {
    lhi_thread_pool *crew;
    lhi_arena *mem;
    uint32_t n;
    worker all[];
};

lh_status lhi_workers_make(uint32_t threads, lhi_arena *mem, lhi_workers **out,
                           lh_error *err)
{
    uint32_t n = threads ? threads : lhi_count_processors();
    if (n > LHI_MAX_PARALLEL_TASKS)
        n = LHI_MAX_PARALLEL_TASKS;
    lhi_workers *w = calloc(1, sizeof *w + n * sizeof *w->all);
    if (!w)
        return lhi_fail_nomem(err);
    w->mem = mem;
    w->n = n;
    lh_status status = lhi_thread_pool_make(n, &w->crew, err);
    if (status == LH_OK)
        *out = w;
    else
        free(w);
    return status;
}

void lhi_workers_free(lhi_workers *w)
{
    if (!w)
        return;
    lhi_thread_pool_free(w->crew);
    for (uint32_t i = 0; i < w->n; i++)
        if (w->all[i].mem)
            lhi_arena_adopt(w->mem, w->all[i].mem);
    free(w);
}

uint32_t lhi_workers_count(const lhi_workers *workers)
{
    return workers ? workers->n : 1;
}

/* One call of lhi_layout_search_parallel_for(). */
typedef struct parallel_job {
    lhi_layout_search *s;   /* for the calling thread only */
    lhi_layout_search like; /* state at the start */
    worker *all;
    uint32_t n, each; /* parts, and parts per chunk of work */
    lhi_search_task *part;
    void *context;
    lhi_pareto_front *fronts; /* per part; NULL: not required */
} parallel_job;

/* Initialises a worker's search copy: counts of layouts are 0, there is no
 * failure, and results go to the worker's own arena. */
static void reset_thread(parallel_job *j, worker *w, uint32_t thread)
{
    w->own = j->like;
    w->own.workers = NULL;
    w->own.unexplored = NULL;
    w->own.on_worker_thread = j->like.on_worker_thread || thread > 0;
    w->own.n_memory = w->own.n_simulated = w->own.n_unsupported = 0;
    w->own.first_refusal.text[0] = '\0';
    w->failed = w->refused_at = UINT32_MAX;
    w->initialised = true;
    w->status = LH_OK;
    if (thread == 0)
        return;
    if (!w->mem)
        w->mem = lhi_arena_make(0);
    if (!w->mem)
        w->status = lhi_fail_nomem(&w->why);
    w->own.mem = w->mem;
}

/* Runs part `i` of the layouts on worker `w` (thread number `thread`), with the
 * search's incumbent and, for Pareto searches, the part's own front. Records
 * the worker's first part in which a layout broke a rule of the job. */
static lh_status run_part(parallel_job *j, worker *w, uint32_t thread,
                          uint32_t i)
{
    lhi_layout_search *own = &w->own;
    own->best_ns = j->like.best_ns;
    own->best_value = j->like.best_value;
    own->front = NULL;
    if (j->fronts) {
        own->front = &j->fronts[i];
        own->front->mem = own->mem;
    }
    lh_status status = j->part(j->context, own, thread, i, &w->why);
    if (own->first_refusal.text[0] && w->refused_at == UINT32_MAX)
        w->refused_at = i;
    return status;
}

/* Runs the consecutive parts of chunk `piece` on worker `thread`. Thread-pool
 * callback. */
static void run_chunk(void *context, uint32_t piece, uint32_t thread)
{
    parallel_job *j = context;
    worker *w = &j->all[thread];
    uint32_t i = piece * j->each, end = i + j->each;
    if (!w->initialised)
        reset_thread(j, w, thread);
    for (; i < end && i < j->n && w->status == LH_OK; i++)
        w->status = run_part(j, w, thread, i);
    if (w->status != LH_OK && w->failed == UINT32_MAX)
        w->failed = i;
}

/* Calls the caller's progress callback, on the caller's own thread only. */
static void report_progress(void *context, uint32_t n_done)
{
    parallel_job *j = context;
    (void)n_done;
    if (lhi_layout_search_is_cancelled(j->s, j->s->n))
        atomic_store(j->s->stop, true);
}

/* Adds `n` workers' layout counts to the search. Returns the status and error
 * of the first failed part. */
static lh_status merge_counts(parallel_job *j, uint32_t n, lh_error *err)
{
    const worker *first = NULL, *refused = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const worker *w = &j->all[i];
        if (!w->initialised)
            continue;
        j->s->cancelled = j->s->cancelled || w->own.cancelled;
        j->s->n_memory += w->own.n_memory;
        j->s->n_simulated += w->own.n_simulated;
        j->s->n_unsupported += w->own.n_unsupported;
        if (w->status != LH_OK && (!first || w->failed < first->failed))
            first = w;
        if (!refused || w->refused_at < refused->refused_at)
            refused = w;
    }
    if (refused && refused->refused_at < UINT32_MAX &&
        !j->s->first_refusal.text[0])
        j->s->first_refusal = refused->own.first_refusal;
    if (!first)
        return LH_OK;
    if (err)
        *err = first->why;
    return first->status;
}

/* Adds the plan candidates of the parts' Pareto fronts to the search's front,
 * in the parts' order. */
static lh_status merge_fronts(parallel_job *j, lh_error *err)
{
    for (uint32_t i = 0; j->fronts && i < j->n; i++)
        for (uint32_t k = 0; k < j->fronts[i].n; k++)
            LHI_TRY(
                lhi_pareto_front_add(j->s->front, &j->fronts[i].all[k], err));
    return LH_OK;
}

/* Runs all chunks of parts on the worker threads; nested calls from within a
 * part stay on its thread. */
static void run_chunks(parallel_job *j)
{
    const lhi_parallel_job team = {j, run_chunk, report_progress};
    uint32_t n = (j->n + j->each - 1) / j->each;
    if (j->s->workers) {
        lhi_thread_pool_run(j->s->workers->crew, &team, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        run_chunk(j, i, 0);
}

/* Runs all parts in parallel, then merges counts, errors and Pareto fronts in
 * the parts' order. */
static lh_status run_parts(parallel_job *j, lh_error *err)
{
    lhi_layout_search *s = j->s;
    atomic_bool stop = false, *outer = s->stop;
    if (s->front) {
        j->fronts = calloc(j->n, sizeof *j->fronts);
        if (!j->fronts)
            return lhi_fail_nomem(err);
    }
    if (!outer)
        s->stop = &stop;
    j->like = *s;
    run_chunks(j);
    s->stop = outer;
    LHI_TRY(merge_counts(j, lhi_workers_count(s->workers), err));
    return merge_fronts(j, err);
}

lh_status lhi_layout_search_parallel_for(lhi_layout_search *s, uint32_t n,
                                         lhi_search_task *part, void *context,
                                         lh_error *err)
{
    worker *alone = NULL;
    parallel_job j = {.s = s, .n = n, .part = part, .context = context};
    j.each = (n + LHI_MAX_PARALLEL_TASKS - 1) / LHI_MAX_PARALLEL_TASKS;
    if (n == 0)
        return LH_OK;
    if (s->workers) {
        j.all = s->workers->all;
        for (uint32_t i = 0; i < s->workers->n; i++)
            j.all[i].initialised = false;
    } else {
        j.all = alone = calloc(1, sizeof *alone);
        if (!alone)
            return lhi_fail_nomem(err);
    }
    lh_status status = run_parts(&j, err);
    free(j.fronts);
    free(alone);
    return status;
}
