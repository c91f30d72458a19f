/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the time of every pass and message. Times within a device follow
 * from its order alone, so every device runs as far as its known inputs allow.
 * Pending messages then enter the links one by one in time order, since nothing
 * still unknown can be earlier than the earliest of them. If no message is
 * left, the remaining passes wait in a cycle. */
#include "schedule/verifier/data_streams.h"
#include "schedule/verifier/rate_sharing.h"
#include "schedule/verifier/verifier.h"

#include "base/heap.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Payloads of events: a node, whose message enters its link; a device, whose
 * piece of data-parallel communication does; a chunk, whose reduce-scatter is
 * launched. */
#define FIRST_PIECE ((uint64_t)LH_NONE)
#define FIRST_SCATTER (2 * (uint64_t)LH_NONE)

/* As a time: not yet computed. */
#define UNKNOWN (-1)

/* A link's message order. */
typedef struct ordered_link {
    uint32_t *nodes; /* in explicit order; NULL: FIFO */
    uint32_t count, next;
} ordered_link;

/* Simulation state. */
typedef struct run {
    lhi_verifier *judge;
    uint32_t *consumers;  /* [node]: receives this node's output */
    uint32_t *sources;    /* [node]: provides this node's input */
    int64_t *inputs;      /* [node]: input arrival, or UNKNOWN */
    int64_t *ends;        /* [node]: or UNKNOWN */
    bool *entering;       /* [node]: message waits for the link's order */
    int64_t *posted_ns;   /* [node]: earliest departure by its receive, or
                           * UNKNOWN; NULL: immediately */
    uint32_t *next;       /* [device]: its next node */
    int64_t *free_ns;     /* [device] */
    int64_t *dp_free_ns;  /* [device]: its data-parallel link */
    int64_t *gathered_ns; /* [chunk]: arrival of its weights */
    uint32_t *fetches;    /* chunks whose gather is not issued, per device, by
                           * first use */
    uint32_t *fetch, *fetch_end; /* [device]: its range in `fetches` */
    bool *begun;                 /* [chunk]: its first F has started */
    uint64_t *left;              /* [chunk]: remaining W and B passes */
    int64_t *released_ns;        /* [chunk]: end of the last one so far */
    int64_t *link_free_ns;       /* [resource] */
    ordered_link *orders;        /* [resource] */
    uint32_t *launches;  /* [node]: first operation that starts with it, or
                          * LH_NONE; NULL: no operations */
    uint32_t *next_op;   /* [operation]: next one on the same node */
    uint32_t *starters;  /* [operation]: the node that starts it */
    uint32_t *waiters;   /* [operation]: the node that waits, or LH_NONE */
    uint32_t *missing;   /* [node]: prerequisite operations not started */
    int64_t *fetched_ns; /* [node]: latest arrival of the started ones */
    /* [node]: for an F with offloaded activations, the node that needs them;
     * for that node, the F; LH_NONE: not offloaded. NULL: no chunk offloads */
    uint32_t *gradients;
    int64_t *stream_ns; /* [device]: copy stream free from */
    int64_t *copied_ns; /* [node]: end of the copies that it waits for */
    uint32_t *stack;    /* devices that may be able to continue */
    bool *stacked;      /* [device] */
    uint32_t n_stacked;
    lhi_verify_streams streams; /* of devices that share links */
    bool by_rate;               /* transfers share links by rate: */
    lhi_verify_sharing sharing;
    lhi_heap heap; /* produced messages, and pieces */
    uint32_t n_done;
    int64_t makespan_ns;
} simulation;

/* Pushes a device that may start its next pass on the stack of devices to
 * advance, unless it is there. */
static void push_device(simulation *r, uint32_t device)
{
    if (!r->stacked[device]) {
        r->stacked[device] = true;
        r->stack[r->n_stacked++] = device;
    }
}

/* Raises the simulated makespan to time_ns if it is less. */
static void extend_makespan(simulation *r, int64_t time_ns)
{
    if (time_ns > r->makespan_ns)
        r->makespan_ns = time_ns;
}

/* Records a collective's arrival at end_ns, for the passes that wait for it. */
static void arrive_collective(simulation *r, const lhi_verify_collective *what,
                              int64_t end_ns)
{
    extend_makespan(r, end_ns);
    if (what->is_gather)
        r->gathered_ns[what->chunk] = end_ns;
    uint32_t waiter = what->op == LH_NONE ? LH_NONE : r->waiters[what->op];
    if (waiter == LH_NONE)
        return;
    r->missing[waiter]--;
    if (r->fetched_ns[waiter] < end_ns)
        r->fetched_ns[waiter] = end_ns;
}

/* Adds an event at which the device's next piece (collective slice) is offered
 * to its links. `ticket`: its place among waiting pieces, 0 for a new one,
 * which follows them at equal times; pieces follow messages. */
static void queue_piece(simulation *r, uint32_t device, int64_t time_ns,
                        uint64_t ticket)
{
    const lhi_verifier *judge = r->judge;
    lhi_event event = {.time_ns = time_ns,
                       .rank = (uint64_t)judge->n_rows + 1,
                       .seq = ticket,
                       .payload = FIRST_PIECE + device};
    if (ticket == 0)
        event.rank += 1 + (uint64_t)device;
    if (!lhi_heap_push(&r->heap, event))
        r->judge->no_memory = true;
}

/* Launches a collective on its device's data-parallel link. On a link shared
 * with messages it joins the device's queue; otherwise its arrival is known at
 * once. */
static void launch_collective(simulation *r, lhi_verify_collective what)
{
    const lh_chunk *chunk = lh_pipeline_chunk(r->judge->pipeline, what.chunk);
    lhi_verify_stream *shared =
        lhi_verify_get_stream(&r->streams, chunk->device);
    if (shared) {
        int64_t first_ns = lhi_verify_launch(r->judge, shared, what);
        if (first_ns >= 0)
            queue_piece(r, chunk->device, first_ns, 0);
        return;
    }
    int64_t *link = &r->dp_free_ns[chunk->device];
    *link = (*link > what.launched_ns ? *link : what.launched_ns) +
            what.transfer_ns;
    arrive_collective(r, &what, *link + chunk->dp_latency_ns);
}

/* Queues the device's next piece (collective slice) after the offer of one, and
 * records the collective's arrival if that was its last piece. */
static void follow_offer(simulation *r, uint32_t device, lhi_verify_offer offer)
{
    if (offer.next_ns >= 0)
        queue_piece(r, device, offer.next_ns, offer.ticket);
    if (!offer.sent)
        return;
    const lh_chunk *chunk =
        lh_pipeline_chunk(r->judge->pipeline, offer.sent->chunk);
    arrive_collective(r, offer.sent, offer.sent_ns + chunk->dp_latency_ns);
    push_device(r, device);
}

/* Offers the device's next piece (collective slice) to its links at now_ns;
 * queues it again if they are busy. */
static void enter_piece(simulation *r, uint32_t device, int64_t now_ns)
{
    lhi_verify_stream *s = lhi_verify_get_stream(&r->streams, device);
    if (r->by_rate)
        lhi_verify_add_piece(&r->sharing, s, device, now_ns);
    else
        follow_offer(
            r, device,
            lhi_verify_offer_piece(&r->streams, s, r->link_free_ns, now_ns));
}

/* Issues the all-gather of the device's next chunk at now_ns; false: all are
 * issued. */
static bool issue_next_gather(simulation *r, uint32_t device, int64_t now_ns)
{
    if (r->fetch[device] == r->fetch_end[device])
        return false;
    uint32_t c = r->fetches[r->fetch[device]++];
    const lh_chunk *chunk = lh_pipeline_chunk(r->judge->pipeline, c);
    r->gathered_ns[c] = INT64_MAX; /* until it arrives */
    launch_collective(
        r, (lhi_verify_collective){.chunk = c,
                                   .op = LH_NONE,
                                   .is_gather = true,
                                   .launched_ns = now_ns,
                                   .transfer_ns = chunk->all_gather_ns});
    return true;
}

/* Lists each device's all-gathers by its chunks' first F, and issues the first.
 * */
static void issue_first_gathers(simulation *r)
{
    const lhi_verifier *judge = r->judge;
    uint32_t first = lhi_pipeline_n_initial_gathers(judge->pipeline), n = 0;
    for (uint32_t device = 0; device < judge->n_devices; device++) {
        r->fetch[device] = n;
        for (uint32_t node = judge->first[device];
             node < judge->first[device + 1]; node++) {
            const lh_pass *pass = &judge->passes[node];
            if (pass->kind != LH_F || r->gathered_ns[pass->chunk] != UNKNOWN)
                continue;
            r->gathered_ns[pass->chunk] = 0;
            if (lh_pipeline_chunk(judge->pipeline, pass->chunk)->all_gather_ns)
                r->fetches[n++] = pass->chunk;
        }
        r->fetch_end[device] = n;
        for (uint32_t i = 0; first == 0 || i < first; i++)
            if (!issue_next_gather(r, device, 0))
                break;
    }
}

/* Issues the device's next all-gather when the first F of `chunk` starts; a
 * chunk without an all-gather issues none. */
static void begin_chunk(simulation *r, uint32_t device, uint32_t chunk,
                        int64_t start_ns)
{
    if (r->begun[chunk])
        return;
    r->begun[chunk] = true;
    if (lh_pipeline_chunk(r->judge->pipeline, chunk)->all_gather_ns)
        issue_next_gather(r, device, start_ns);
}

/* Delivers the output of the pass `node` (index in judge->passes) to its
 * consumer. */
static void deliver_output(simulation *r, uint32_t node, int64_t time_ns)
{
    uint32_t consumer = r->consumers[node];
    r->inputs[consumer] = time_ns;
    push_device(r, r->judge->rows[consumer]);
}

/* Sends the message of the pass `node` (its index in judge->passes) at now_ns,
 * or later when its link is free. */
static void depart_message(simulation *r, uint32_t node, int64_t now_ns)
{
    const lhi_verifier *judge = r->judge;
    uint32_t link = lhi_verify_get_link(judge, node, NULL);
    const lh_link *l = lh_pipeline_link(judge->pipeline, link);
    if (r->by_rate) {
        lhi_verify_add_message(&r->sharing, node, link, now_ns);
        return;
    }
    int64_t *free_ns = &r->link_free_ns[judge->link_resources[link]];
    *free_ns = (*free_ns > now_ns ? *free_ns : now_ns) + l->transfer_ns;
    deliver_output(r, node, *free_ns + l->latency_ns);
}

/* Completes the next transfer on links shared by rate that ends at until_ns or
 * before; false: there is none. */
static bool end_transfer(simulation *r, int64_t until_ns)
{
    lhi_verify_transfer done;
    if (!r->by_rate || !lhi_verify_end_transfer(&r->sharing, until_ns, &done))
        return false;
    if (done.is_piece) {
        lhi_verify_stream *s = lhi_verify_get_stream(&r->streams, done.owner);
        follow_offer(r, done.owner, lhi_verify_end_piece(s, r->sharing.now_ns));
        return true;
    }
    uint32_t link = lhi_verify_get_link(r->judge, done.owner, NULL);
    const lh_link *l = lh_pipeline_link(r->judge->pipeline, link);
    deliver_output(r, done.owner, r->sharing.now_ns + l->latency_ns);
    return true;
}

/* Sends the message of the pass `node`, ready at now_ns, or with an explicit
 * link order all messages that the order now allows. */
static void enter_link(simulation *r, uint32_t node, int64_t now_ns)
{
    const lhi_verifier *judge = r->judge;
    uint32_t link = lhi_verify_get_link(judge, node, NULL);
    if (link == LHI_NO_LINK) {
        deliver_output(r, node, now_ns);
        return;
    }
    ordered_link *order = &r->orders[judge->link_resources[link]];
    if (!order->nodes) {
        depart_message(r, node, now_ns);
        return;
    }
    r->entering[node] = true;
    while (order->next < order->count && r->entering[order->nodes[order->next]])
        depart_message(r, order->nodes[order->next++], now_ns);
}

/* Runs the data-parallel operations that the pass `node` launches, in sequence
 * on the device's link, and updates the passes that wait for them. */
static void launch_operations(simulation *r, uint32_t node, int64_t start_ns)
{
    const lhi_verifier *judge = r->judge;
    for (uint32_t i = r->launches[node]; i != LH_NONE; i = r->next_op[i]) {
        const lh_dp_op *op = lh_pipeline_dp_op(judge->pipeline, i);
        launch_collective(
            r, (lhi_verify_collective){.chunk = op->chunk,
                                       .op = i,
                                       .launched_ns = start_ns,
                                       .transfer_ns = op->transfer_ns});
    }
}

/* Queues the produced message of the pass `node` for its link; with rendezvous
 * receives, its receive has been posted before. At equal times a device's
 * messages enter in the order of production, that of its nodes, and not in the
 * order in which their receives are found to be posted. */
static void queue_message(simulation *r, uint32_t node)
{
    int64_t time_ns = r->ends[node];
    if (r->posted_ns && r->posted_ns[node] > time_ns)
        time_ns = r->posted_ns[node];
    lhi_event event = {.time_ns = time_ns,
                       .rank = (uint64_t)r->judge->rows[node] + 1,
                       .seq = node,
                       .payload = node};
    if (!lhi_heap_push(&r->heap, event))
        r->judge->no_memory = true;
}

/* Posts the receive for the input of the pass `node` (index in judge->passes)
 * at now_ns; the message may then use the link. */
static void post_receive(simulation *r, uint32_t node, int64_t now_ns)
{
    uint32_t source = r->sources[node];
    if (source == LH_NONE || r->posted_ns[source] != UNKNOWN)
        return;
    r->posted_ns[source] = now_ns;
    if (r->ends[source] != UNKNOWN &&
        lhi_verify_get_link(r->judge, source, NULL) != LHI_SAME_DEVICE)
        queue_message(r, source);
}

/* Posts the receives due when the device reaches the pass `node`: for this
 * pass, or with LH_RECEIVES_LATE_FD the next one other than W, and its partner.
 * */
static void post_due_receives(simulation *r, uint32_t device, uint32_t node)
{
    const lhi_verifier *judge = r->judge;
    uint32_t end = judge->first[device + 1];
    if (lh_pipeline_receives(judge->pipeline) == LH_RECEIVES_LATE_FD)
        while (node < end && judge->passes[node].kind == LH_W)
            node++;
    if (node == end)
        return;
    post_receive(r, node, r->free_ns[device]);
    if (lhi_verify_starts_pair(judge, node))
        post_receive(r, node + 1, r->free_ns[device]);
}

/* Launches a chunk's reduce-scatter at now_ns, if it has one. */
static void launch_scatter(simulation *r, uint32_t chunk, int64_t now_ns)
{
    int64_t transfer_ns =
        lh_pipeline_chunk(r->judge->pipeline, chunk)->reduce_scatter_ns;
    if (transfer_ns)
        launch_collective(r,
                          (lhi_verify_collective){.chunk = chunk,
                                                  .op = LH_NONE,
                                                  .launched_ns = now_ns,
                                                  .transfer_ns = transfer_ns});
}

/* Counts a W or B of `chunk`, ended at end_ns. After the last one, adds events
 * for the reduce-scatters. Two copies of a chunk (two directions) sum their
 * gradients, so theirs start together. */
static void release_gradients(simulation *r, uint32_t chunk, int64_t end_ns)
{
    const lhi_verifier *judge = r->judge;
    uint32_t copy = (chunk + judge->path_length) % judge->n_chunks;
    if (r->released_ns[chunk] < end_ns)
        r->released_ns[chunk] = end_ns;
    if (--r->left[chunk] > 0 || r->left[copy] > 0)
        return;
    if (copy == chunk) {
        launch_scatter(r, chunk, end_ns);
        return;
    }
    if (r->released_ns[copy] > end_ns)
        end_ns = r->released_ns[copy];
    for (uint32_t i = 0; i < 2; i++) {
        lhi_event event = {.time_ns = end_ns,
                           .rank = 0, /* before messages of the same time */
                           .seq = i ? copy : chunk,
                           .payload = FIRST_SCATTER + (i ? copy : chunk)};
        if (!lhi_heap_push(&r->heap, event))
            r->judge->no_memory = true;
    }
}

/* Records the end of the pass `node`, starts the reduce-scatter after a chunk's
 * last pass, and delivers or queues the output. */
static void end_pass(simulation *r, uint32_t node, int64_t end_ns)
{
    lhi_verifier *judge = r->judge;
    const lh_pass *pass = &judge->passes[node];
    r->ends[node] = end_ns;
    r->n_done++;
    extend_makespan(r, end_ns);
    if (pass->kind == LH_W || pass->kind == LH_B)
        release_gradients(r, pass->chunk, end_ns);
    if (r->consumers[node] == LH_NONE)
        return;
    uint32_t link = lhi_verify_get_link(judge, node, NULL);
    if (link == LHI_SAME_DEVICE) {
        deliver_output(r, node, end_ns);
        return;
    }
    if (!r->posted_ns || r->posted_ns[node] != UNKNOWN)
        queue_message(r, node);
}

/* Adds a copy of offloaded activations, requested by the pass `node`, to its
 * device's copy stream. The pass `waiter` does not start before it ends. */
static void add_copy(simulation *r, uint32_t node, uint32_t waiter,
                     int64_t now_ns)
{
    const lhi_verifier *judge = r->judge;
    const lh_chunk *chunk =
        lh_pipeline_chunk(judge->pipeline, judge->passes[node].chunk);
    int64_t *stream = &r->stream_ns[judge->rows[node]];
    *stream = (*stream > now_ns ? *stream : now_ns) + chunk->offload_ns;
    if (r->copied_ns[waiter] < *stream)
        r->copied_ns[waiter] = *stream;
}

/* Starts to copy the next pass's activations to the device at the start of the
 * pass `node`, if they are offloaded. `end`: first pass of the next device. */
static void fetch_activations(simulation *r, uint32_t node, uint32_t end,
                              int64_t start_ns)
{
    if (!r->gradients || node + 1 == end)
        return;
    uint32_t forward = r->gradients[node + 1];
    if (forward != LH_NONE && forward <= node)
        add_copy(r, node + 1, node + 1, start_ns);
}

/* Starts to copy the activations of the F `node`, which has ended, to storage
 * if they are offloaded. The pass after the device's next one waits for the
 * copy. */
static void store_activations(simulation *r, uint32_t node, int64_t end_ns)
{
    if (r->gradients && r->gradients[node] != LH_NONE &&
        r->gradients[node] > node)
        add_copy(r, node, node + 2, end_ns);
}

/* Simulates a device's passes until one lacks an input or an operation. */
static void advance_device(simulation *r, uint32_t device)
{
    const lhi_verifier *judge = r->judge;
    uint32_t end = judge->first[device + 1];
    for (; r->next[device] < end; r->next[device]++) {
        uint32_t node = r->next[device];
        const lh_pass *pass = &judge->passes[node];
        if (r->posted_ns)
            post_due_receives(r, device, node);
        bool pair = lhi_verify_starts_pair(judge, node);
        if (r->inputs[node] == UNKNOWN ||
            (pair && r->inputs[node + 1] == UNKNOWN))
            return;
        int64_t start_ns = r->free_ns[device];
        if (r->inputs[node] > start_ns)
            start_ns = r->inputs[node];
        if (pair && r->inputs[node + 1] > start_ns)
            start_ns = r->inputs[node + 1];
        if (pass->kind == LH_F && r->gathered_ns[pass->chunk] > start_ns)
            start_ns = r->gathered_ns[pass->chunk];
        if (start_ns == INT64_MAX)
            return;
        if (r->copied_ns && r->copied_ns[node] > start_ns)
            start_ns = r->copied_ns[node];
        if (r->launches) {
            if (r->missing[node])
                return;
            if (r->fetched_ns[node] > start_ns)
                start_ns = r->fetched_ns[node];
            launch_operations(r, node, start_ns);
        }
        if (pass->kind == LH_F)
            begin_chunk(r, device, pass->chunk, start_ns);
        if (pair) { /* both outputs are available at its end */
            r->free_ns[device] =
                start_ns + lhi_verify_compute_pair_ns(judge, node);
            end_pass(r, node, r->free_ns[device]);
            end_pass(r, ++r->next[device], r->free_ns[device]);
            continue;
        }
        fetch_activations(r, node, end, start_ns);
        r->free_ns[device] = start_ns + lhi_verify_get_duration(judge, pass);
        store_activations(r, node, r->free_ns[device]);
        end_pass(r, node, r->free_ns[device]);
    }
}

/* Simulates all devices' passes until none can run its next pass. */
static void advance_all(simulation *r)
{
    while (r->n_stacked) {
        uint32_t device = r->stack[--r->n_stacked];
        r->stacked[device] = false;
        advance_device(r, device);
    }
}

/* --- dependencies --------------------------------------------------------- */

/* Finds the pass (index in judge->passes) that consumes each pass's output. */
static lh_status find_consumers(simulation *r, lh_error *err)
{
    lhi_verifier *judge = r->judge;
    uint32_t total = judge->first[judge->n_rows], n = judge->n_microbatches;
    size_t cells = (size_t)judge->n_chunks * n;
    uint32_t *forward = LHI_NEW(judge->mem, uint32_t, cells);
    uint32_t *backward = LHI_NEW(judge->mem, uint32_t, cells);
    if (!forward || !backward)
        return lhi_fail_nomem(err);
    for (uint32_t node = 0; node < total; node++) {
        const lh_pass *pass = &judge->passes[node];
        size_t cell = (size_t)pass->chunk * n + pass->microbatch;
        if (pass->kind == LH_F)
            forward[cell] = node;
        else if (pass->kind != LH_W)
            backward[cell] = node;
        if (pass->kind == LH_W || pass->kind == LH_B)
            r->left[pass->chunk]++;
        r->consumers[node] = r->sources[node] = LH_NONE;
        r->ends[node] = UNKNOWN;
    }
    for (uint32_t node = 0; node < total; node++) {
        const lh_pass *pass = &judge->passes[node];
        uint32_t chunk;
        lhi_verify_get_link(judge, node, &chunk);
        if (chunk == LH_NONE)
            continue;
        size_t cell = (size_t)chunk * n + pass->microbatch;
        uint32_t consumer = pass->kind == LH_F ? forward[cell] : backward[cell];
        r->consumers[node] = consumer;
        r->sources[consumer] = node;
        r->inputs[consumer] = UNKNOWN;
    }
    return LH_OK;
}

/* Finds the offloaded activations, those with at least two passes of their
 * device between F and backward, and the passes that use them. */
static lh_status find_copies(simulation *r, lh_error *err)
{
    lhi_verifier *judge = r->judge;
    uint32_t total = judge->first[judge->n_rows];
    if (!lh_pipeline_offloads(judge->pipeline))
        return LH_OK;
    r->gradients = LHI_NEW(judge->mem, uint32_t, total);
    r->stream_ns = LHI_NEW(judge->mem, int64_t, judge->n_devices);
    r->copied_ns = LHI_NEW(judge->mem, int64_t, total);
    if (!r->gradients || !r->stream_ns || !r->copied_ns)
        return lhi_fail_nomem(err);
    for (uint32_t node = 0; node < total; node++)
        r->gradients[node] = LH_NONE;
    for (uint32_t node = 0; node < total; node++) {
        const lh_pass *pass = &judge->passes[node];
        if (pass->kind != LH_F ||
            !lh_pipeline_chunk(judge->pipeline, pass->chunk)->offload_ns)
            continue;
        uint32_t back =
            lhi_verify_find_gradient(judge, pass->chunk, pass->microbatch);
        if (back < node + 3)
            continue;
        r->gradients[node] = back;
        r->gradients[back] = node;
    }
    return LH_OK;
}

/* Finds, for each data-parallel operation, the pass (index in judge->passes)
 * that launches it and the pass that waits for it. */
static lh_status find_operations(simulation *r, lh_error *err)
{
    lhi_verifier *judge = r->judge;
    uint32_t n = lhi_pipeline_n_dp_ops(judge->pipeline);
    uint32_t total = judge->first[judge->n_rows];
    if (n == 0)
        return LH_OK;
    r->launches = LHI_NEW(judge->mem, uint32_t, total);
    r->next_op = LHI_NEW(judge->mem, uint32_t, n);
    r->starters = LHI_NEW(judge->mem, uint32_t, n);
    r->waiters = LHI_NEW(judge->mem, uint32_t, n);
    r->missing = LHI_NEW(judge->mem, uint32_t, total);
    r->fetched_ns = LHI_NEW(judge->mem, int64_t, total);
    if (!r->launches || !r->next_op || !r->starters || !r->waiters ||
        !r->missing || !r->fetched_ns)
        return lhi_fail_nomem(err);
    for (uint32_t node = 0; node < total; node++)
        r->launches[node] = LH_NONE;
    for (uint32_t i = n; i-- > 0;) { /* reversed, so lists keep their order */
        const lh_dp_op *op = lh_pipeline_dp_op(judge->pipeline, i);
        uint32_t starter = r->starters[i] =
            lhi_verify_find_dp_pass(judge, &op->launch);
        r->next_op[i] = r->launches[starter];
        r->launches[starter] = i;
        r->waiters[i] = op->needed_by.chunk == LH_NONE
                            ? LH_NONE
                            : lhi_verify_find_dp_pass(judge, &op->needed_by);
        if (r->waiters[i] != LH_NONE)
            r->missing[r->waiters[i]]++;
    }
    return LH_OK;
}

/* Reads the explicit message orders of links into the simulation. */
static lh_status read_link_orders(simulation *r, lh_error *err)
{
    lhi_verifier *judge = r->judge;
    uint32_t n = lh_schedule_n_link_orders(judge->schedule);
    for (uint32_t i = 0; i < n; i++) {
        const lh_link_order *order = lh_schedule_link_order(judge->schedule, i);
        uint32_t *nodes = LHI_NEW(judge->mem, uint32_t, order->n_passes);
        if (!nodes)
            return lhi_fail_nomem(err);
        if (order->n_passes == 0)
            continue;
        for (uint32_t k = 0; k < order->n_passes; k++)
            nodes[k] = lhi_verify_find_pass(judge, &order->passes[k]);
        uint32_t link = lhi_verify_get_link(judge, nodes[0], NULL);
        r->orders[judge->link_resources[link]] =
            (ordered_link){nodes, order->n_passes, 0};
    }
    return LH_OK;
}

/* Allocates and initialises the simulation's state in the verifier's arena. */
static lh_status make_simulation(simulation *r, lh_error *err)
{
    lhi_verifier *judge = r->judge;
    lhi_arena *mem = judge->mem;
    uint32_t total = judge->first[judge->n_rows];
    r->consumers = LHI_NEW(mem, uint32_t, total);
    r->sources = LHI_NEW(mem, uint32_t, total);
    r->inputs = LHI_NEW(mem, int64_t, total);
    r->ends = LHI_NEW(mem, int64_t, total);
    r->entering = LHI_NEW(mem, bool, total);
    bool late = lh_pipeline_receives(judge->pipeline) != LH_RECEIVES_EARLY;
    if (late && !(r->posted_ns = LHI_NEW(mem, int64_t, total)))
        return lhi_fail_nomem(err);
    for (uint32_t node = 0; late && node < total; node++)
        r->posted_ns[node] = UNKNOWN;
    r->next = LHI_NEW(mem, uint32_t, judge->n_devices);
    r->free_ns = LHI_NEW(mem, int64_t, judge->n_devices);
    r->dp_free_ns = LHI_NEW(mem, int64_t, judge->n_devices);
    r->gathered_ns = LHI_NEW(mem, int64_t, judge->n_chunks);
    r->fetches = LHI_NEW(mem, uint32_t, judge->n_chunks);
    r->fetch = LHI_NEW(mem, uint32_t, judge->n_devices);
    r->fetch_end = LHI_NEW(mem, uint32_t, judge->n_devices);
    r->begun = LHI_NEW(mem, bool, judge->n_chunks);
    r->left = LHI_NEW(mem, uint64_t, judge->n_chunks);
    r->released_ns = LHI_NEW(mem, int64_t, judge->n_chunks);
    r->link_free_ns = LHI_NEW(mem, int64_t, judge->n_resources);
    r->orders = LHI_NEW(mem, ordered_link, judge->n_resources);
    r->stack = LHI_NEW(mem, uint32_t, judge->n_devices);
    r->stacked = LHI_NEW(mem, bool, judge->n_devices);
    if (!r->consumers || !r->sources || !r->inputs || !r->ends ||
        !r->entering || !r->fetches || !r->fetch || !r->fetch_end ||
        !r->begun || !r->next || !r->free_ns || !r->dp_free_ns ||
        !r->gathered_ns || !r->left || !r->released_ns || !r->link_free_ns ||
        !r->orders || !r->stack || !r->stacked)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < judge->n_chunks; c++)
        r->gathered_ns[c] = UNKNOWN;
    LHI_TRY(lhi_verify_make_streams(judge, &r->streams, err));
    r->by_rate = lhi_pipeline_dp_priority(judge->pipeline) == LH_DP_FAIR;
    LHI_TRY(lhi_verify_make_sharing(judge, &r->sharing, err));
    LHI_TRY(find_consumers(r, err));
    LHI_TRY(find_operations(r, err));
    LHI_TRY(find_copies(r, err));
    return read_link_orders(r, err);
}

/* --- deadlock ------------------------------------------------------------- */

/* Returns the pass (index in judge->passes) for which the device's next pass
 * waits; describes the wait in `why` (256 bytes). */
static uint32_t find_blocker(const simulation *r, uint32_t device, char *why)
{
    const lhi_verifier *judge = r->judge;
    char text[LH_PASS_TEXT_SIZE], needs[LH_PASS_TEXT_SIZE],
        first[LH_PASS_TEXT_SIZE];
    uint32_t node = r->next[device];
    if (lhi_verify_starts_pair(judge, node) && r->inputs[node] != UNKNOWN)
        node++;
    uint32_t source = r->sources[node];
    lh_pass_format(&judge->passes[node], text);
    if (r->inputs[node] != UNKNOWN) {
        uint32_t i = 0;
        while (r->waiters[i] != node || r->ends[r->starters[i]] != UNKNOWN)
            i++;
        lh_pass_format(&judge->passes[r->starters[i]], needs);
        snprintf(why, 256,
                 "device %" PRIu32 " waits in %s for data-parallel "
                 "communication that %s starts later on the "
                 "same device",
                 device, text, needs);
        return r->starters[i];
    }
    lh_pass_format(&judge->passes[source], needs);
    if (r->ends[source] == UNKNOWN) {
        snprintf(why, 256,
                 "device %" PRIu32 " waits in %s for %s of device %" PRIu32,
                 device, text, needs, judge->rows[source]);
        return source;
    }
    uint32_t link = lhi_verify_get_link(judge, source, NULL);
    uint32_t resource = judge->link_resources[link];
    const ordered_link *order = &r->orders[resource];
    uint32_t head = order->nodes[order->next];
    snprintf(why, 256,
             "device %" PRIu32 " waits in %s for the message of %s, which link "
             "%s sends after the message of %s of device %" PRIu32,
             device, text, needs, judge->resource_names[resource],
             lh_pass_format(&judge->passes[head], first), judge->rows[head]);
    /* Produced, but its receive is not posted: the consumer has not reached it.
     */
    return r->ends[head] == UNKNOWN ? head : r->consumers[head];
}

/* Adds a violation that describes a cycle of devices that wait for each other.
 * */
static void add_deadlock(simulation *r)
{
    lhi_verifier *judge = r->judge;
    char why[256], text[900];
    uint32_t device = 0;
    while (r->next[device] == judge->first[device + 1])
        device++;
    for (uint32_t i = 0; i < judge->n_devices; i++)
        device = judge->rows[find_blocker(r, device, why)];
    uint32_t begin = device, length = 0;
    size_t used = 0;
    text[0] = '\0';
    do {
        device = judge->rows[find_blocker(r, device, why)];
        length++;
        size_t room = sizeof text - used, need = strlen(why) + 2;
        if (used + need + 8 < sizeof text)
            used += (size_t)snprintf(text + used, room, "%s%s",
                                     used ? "; " : "", why);
        else if (used + 8 < sizeof text && text[used - 1] != '.')
            used += (size_t)snprintf(text + used, room, "; ...");
    } while (device != begin);
    lhi_verify_add_violation(judge, "deadlock, a cycle of %" PRIu32 ": %s",
                             length, text);
}

lh_status lhi_verify_check_timing(lhi_verifier *judge, lh_error *err)
{
    simulation r = {.judge = judge};
    LHI_TRY(make_simulation(&r, err));
    issue_first_gathers(&r);
    for (uint32_t d = judge->n_devices; d-- > 0;) {
        r.next[d] = judge->first[d];
        push_device(&r, d);
    }
    advance_all(&r);
    lhi_event event;
    while (!judge->no_memory) {
        if (end_transfer(&r, r.heap.count > 0 ? r.heap.items[0].time_ns
                                              : INT64_MAX)) {
            advance_all(&r);
            continue;
        }
        if (!lhi_heap_pop(&r.heap, &event))
            break;
        if (event.payload >= FIRST_SCATTER)
            launch_scatter(&r, (uint32_t)(event.payload - FIRST_SCATTER),
                           event.time_ns);
        else if (event.payload >= FIRST_PIECE)
            enter_piece(&r, (uint32_t)(event.payload - FIRST_PIECE),
                        event.time_ns);
        else
            enter_link(&r, (uint32_t)event.payload, event.time_ns);
        advance_all(&r);
    }
    lhi_heap_fini(&r.heap);
    if (judge->no_memory)
        return lhi_fail_nomem(err);
    if (r.n_done == judge->first[judge->n_rows])
        judge->verdict->makespan_ns = r.makespan_ns;
    else
        add_deadlock(&r);
    return LH_OK;
}
