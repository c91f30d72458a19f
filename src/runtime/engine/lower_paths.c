/* SPDX-License-Identifier: Apache-2.0 */
/* The delegated path in an execution plan (Adaptra, arXiv:2504.19232, section
 * 5.2): which messages use it, and through which queues.
 *
 * Messages between two ranks are numbered and assigned to queues round-robin.
 * There are enough queues that no message waits for the previous copy in its
 * queue: the maximum of ceil(messages produced in a period / messages that one
 * queue moves in it); at least 1. */
#include "base/options.h"
#include "base/sort.h"
#include "runtime/engine/execution_plan.h"
#include "schedule/simulator/delegate.h"

#include <inttypes.h>

/* --- path selection --- */

lh_status lhi_exec_copy_delegation(const lh_pipeline *p,
                                   lh_exec_options *options, lhi_arena *mem,
                                   lh_error *err)
{
    uint32_t n = p->n_links;
    lh_delegation from = {0};
    lh_delegation *own = LHI_NEW(mem, lh_delegation, 1);
    bool *links = LHI_NEW(mem, bool, n + (size_t)1);
    int64_t *staging = LHI_NEW(mem, int64_t, n + (size_t)1);
    if (!own || !links || !staging)
        return lhi_fail_nomem(err);
    if (options->delegation)
        LHI_TRY(
            LHI_OPTIONS_COPY(lh_delegation, &from, options->delegation, err));
    if (options->path > LH_DATA_PATH_MIXED ||
        (options->path == LH_DATA_PATH_MIXED && !from.links))
        return lhi_fail(err, LH_EINVAL, "lh_exec_options.path is %d%s",
                        (int)options->path,
                        from.links ? "" : ", without delegation->links");
    *own = from;
    own->size = sizeof *own;
    own->links = NULL;
    for (uint32_t i = 0; i < n; i++) {
        links[i] = options->path == LH_DATA_PATH_MIXED && from.links[i];
        staging[i] =
            from.link_staging_ns ? from.link_staging_ns[i] : from.staging_ns;
    }
    own->link_staging_ns = staging;
    if (options->path == LH_DATA_PATH_MIXED)
        own->links = links;
    options->delegation = own;
    return LH_OK;
}

lh_status lhi_exec_simulate(const lh_pipeline *pipeline,
                            const lh_schedule *schedule,
                            const lh_exec_options *o, lh_timeline **out,
                            lh_error *err)
{
    lh_pipeline *staged;
    lh_sim_options how = {.size = sizeof how,
                          .receives = o->receives,
                          .override_receives = true,
                          .coupled_queue = o->coupled_queue,
                          .fifo = o->fifo,
                          .host_copy_ns = o->host_copy_ns};
    if (o->path == LH_DATA_PATH_DIRECT)
        return lh_simulate(pipeline, schedule, &how, out, err);
    LHI_TRY(lh_delegate(pipeline, &how, o->delegation, &staged, &how, err));
    lh_status status = lh_simulate(staged, schedule, &how, out, err);
    lh_pipeline_free(staged);
    return status;
}

bool lhi_exec_is_delegated(const lh_exec_options *o, const lhi_route *route,
                           int64_t *staging_ns)
{
    const lh_delegation *d = o->delegation;
    if (!route->message || o->path == LH_DATA_PATH_DIRECT ||
        (d->links && (route->link == LH_NONE || !d->links[route->link])))
        return false;
    *staging_ns = route->link == LH_NONE ? d->staging_ns
                                         : d->link_staging_ns[route->link];
    return true;
}

/* --- queues --- */

/* A message in a lane. */
typedef struct item {
    uint32_t what;   /* pass or post */
    uint32_t before; /* post position, if buffers are few */
    int64_t from_ns; /* start of the copy and its duration */
    int64_t staging_ns;
} item;

/* Compares two delegated messages (copied through host memory) to or from one
 * rank, for sorting: by posting position, start of the copy, and index. */
static int compare_messages(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->from_ns != y->from_ns)
        return x->from_ns < y->from_ns ? -1 : 1;
    return (x->what > y->what) - (x->what < y->what);
}

/* Returns the queue count, each with its own thread, that let every
 * delegated message be copied at once: the most messages whose copies would
 * overlap in one queue. `items`: the n messages of a lane (to or from one
 * rank), in order. */
static uint32_t count_queues(const item *items, uint32_t n)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t made = 1;
        while (i + made < n &&
               items[i + made].from_ns < items[i].from_ns + items[i].staging_ns)
            made++;
        uint32_t needed = lhi_delegation_count_queues(made, 1);
        most = needed > most ? needed : most;
    }
    return most;
}

/* Lists the delegated messages to rank `peer` or, with `receives`, from it in
 * `items`, in their posting order; returns their number. made_ns, arrive_ns:
 * predicted times per input number, in ns. */
static uint32_t list_messages(const lh_exec *x, const lhi_exec_rank *rank,
                              uint32_t peer, bool receives,
                              const int64_t *made_ns, const int64_t *arrive_ns,
                              item *items)
{
    uint32_t n = 0;
    for (uint32_t i = 0; !receives && i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        if (pass->delegated && pass->peer == peer)
            items[n++] = (item){i, 0, made_ns[pass->output], pass->staging_ns};
    }
    for (uint32_t k = 0; receives && k < rank->n_posts; k++) {
        const lhi_exec_post *post = &rank->posts[k];
        int64_t staging = rank->passes[post->consumer].in_staging_ns;
        if (!post->delegated || post->peer != peer)
            continue;
        /* With few buffers the earliest arrival may be posted last. */
        items[n++] = (item){k, x->options.receive_slots ? post->before : 0,
                            arrive_ns[post->input] - staging, staging};
    }
    lhi_sort(items, n, sizeof *items, compare_messages);
    return n;
}

/* Fills in the messages of a lane (all messages to or from one rank that are
 * delegated, which means sent through host memory) and assigns them to host
 * queues, which copy them. LH_EUNSUPPORTED: more than LH_MAX_QUEUES queues. */
static lh_status fill_lane(lh_exec *x, lhi_exec_rank *rank, lhi_exec_lane *lane,
                           const item *items, lh_error *err)
{
    lane->n_queues = count_queues(items, lane->n);
    if (lane->n_queues > LH_MAX_QUEUES)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the delegated path needs %" PRIu32
                        " queues between two ranks because copies are slow "
                        "relative to passes; the limit is %d; delegate only "
                        "links with fewer messages, or use faster copies",
                        lane->n_queues, LH_MAX_QUEUES);
    lane->items = LHI_NEW(x->mem, uint32_t, lane->n);
    if (!lane->items)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < lane->n; i++) {
        uint32_t what = lane->items[i] = items[i].what;
        *(lane->receives ? &rank->posts[what].queue
                         : &rank->passes[what].queue) = i % lane->n_queues;
    }
    return LH_OK;
}

lh_status lhi_exec_add_lanes(lh_exec *x, uint32_t r, const int64_t *made_ns,
                             const int64_t *arrive_ns, lh_error *err)
{
    lhi_exec_rank *rank = &x->ranks[r];
    if (x->options.path == LH_DATA_PATH_DIRECT)
        return LH_OK;
    lhi_arena *mem = lhi_arena_make(0);
    item *items = mem ? LHI_NEW(mem, item, (size_t)rank->n_passes + 1) : NULL;
    rank->lanes = LHI_NEW(x->mem, lhi_exec_lane, 2 * (size_t)x->n_ranks);
    lh_status status = items && rank->lanes ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < 2 * x->n_ranks; i++) {
        lhi_exec_lane lane = {.receives = i % 2, .peer = i / 2};
        lane.n = list_messages(x, rank, lane.peer, lane.receives, made_ns,
                               arrive_ns, items);
        if (lane.n == 0)
            continue;
        status = fill_lane(x, rank, &lane, items, err);
        rank->lanes[rank->n_lanes++] = lane;
    }
    lhi_arena_free(mem);
    return status;
}
