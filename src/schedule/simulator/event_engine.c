/* SPDX-License-Identifier: Apache-2.0 */
/* The event engine. It processes six event kinds in time order; at equal times
 * queue entries come free first, then passes end, then messages enter
 * their links, then data-parallel pieces, each by device number:
 *
 *     FREE  a message arrived, or its transfer ended, so the sender's queue
 *           entry is free (coupled queues only; Adaptra, section 3.2)
 *     END   a pass ends; its output becomes a message
 *     SCATTER the reduce-scatter of a chunk whose copies have both ended; by
 *           chunk
 *     ENTER a message with its receive posted enters its link
 *     RETRY a data-parallel piece waits for shared links that are free now;
 *           by order of entry (priority: pipeline-first)
 *     PIECE a data-parallel piece enters shared links
 *
 * On links shared by rate (priority: fair) transfers end before all events of
 * the same time.
 *
 * All messages that enter at time t are determined before any enters, so FIFO
 * with ties to the lower sending device is exact even if passes take no time.
 *
 * A message's arrival is known when it departs, unless a simulated network
 * (lhi_sim_network) delivers it: the network then advances to the next event's
 * time, and its arrivals up to then come before that event.
 */
#include "schedule/simulator/copy_clock.h"
#include "schedule/simulator/dp_clock.h"
#include "schedule/simulator/fair_links.h"
#include "schedule/simulator/link_orders.h"
#include "schedule/simulator/timeline.h"

#include "base/heap.h"

#include <inttypes.h>
#include <string.h>

/* Event kinds, in processing order at equal times. */
enum event_kind { FREE, END, SCATTER, ENTER, RETRY, PIECE };

/* As a time: not yet computed. */
#define UNKNOWN INT64_MIN

/* A pass's input; link_orders.h numbers them. */
typedef struct input {
    int64_t produced_ns;
    int64_t ready_ns;  /* UNKNOWN until it enters its link */
    int64_t arrive_ns; /* UNKNOWN until it leaves its link */
    uint64_t nth;      /* messages issued earlier, on all devices */
    uint32_t message;  /* its index, once it has left */
    bool issued, posted;
} input;

/* State per device. */
typedef struct device_state {
    const lh_pass *order;
    lh_timeline_run *runs;
    uint32_t count, pos;
    int64_t free_ns; /* ready for the pass at `pos` since */
    int64_t idle_ns;
    bool running;
    uint64_t stalled_on; /* input blocked by a full send queue */
    uint32_t in_flight;
} device_state;

/* The engine's state for one run. */
typedef struct engine {
    const lh_pipeline *p;
    const lh_schedule *s;
    lh_sim_options options;
    const lhi_sim_network *network; /* NULL: none */
    lhi_arena *mem;
    lh_timeline *t;
    lhi_heap heap;
    uint64_t n_events, n_issued;
    uint64_t n_half; /* all chunks * microbatches */
    input *inputs;
    device_state *devices;
    lhi_departures *links; /* by resource */
    int64_t *link_free_ns; /* by resource */
    lhi_fair_links fair;   /* zeroed if no links are shared by rate */
    lhi_dp_clock data;
    lhi_copy_clock offload;
    int64_t *copies;            /* per run: additional copy time; NULL: none */
    const int64_t *idle_limits; /* per device; NULL: none */
    bool no_memory;
    lh_status network_status; /* of its functions */
    lh_error *err;
} engine;

/* Returns the number of the input (a message, or a result on the same device)
 * that a pass needs from a pass of another chunk; LHI_NO_INPUT: none. */
static uint64_t get_input(const engine *e, const lh_pass *pass)
{
    uint64_t i =
        (uint64_t)pass->chunk * e->p->n_microbatches + pass->microbatch;
    if (pass->kind == LH_F)
        return lhi_is_first_chunk(e->p, pass->chunk) ? LHI_NO_INPUT : i;
    if (pass->kind == LH_W || lhi_is_last_chunk(e->p, pass->chunk))
        return LHI_NO_INPUT;
    return e->n_half + i;
}

/* Checks whether the device's next pass is an F that runs overlapped with the
 * B after it. */
static bool starts_pair(const engine *e, const device_state *dev)
{
    return dev->pos < dev->count && dev->order[dev->pos].kind == LH_F &&
           lhi_is_overlapped(e->p, &dev->order[dev->pos]);
}

/* Raises *start to the arrival of a pass's input, and sets *message to the
 * input's message. Returns false if the arrival is not known yet. */
static bool get_arrival(const engine *e, const lh_pass *pass, int64_t *start,
                        uint32_t *message)
{
    uint64_t needs = get_input(e, pass);
    *message = LH_NONE;
    if (needs == LHI_NO_INPUT)
        return true;
    const input *in = &e->inputs[needs];
    if (in->arrive_ns == UNKNOWN)
        return false;
    if (in->arrive_ns > *start)
        *start = in->arrive_ns;
    *message = in->message;
    return true;
}

/* Checks whether a message on the route is sent directly, so that it occupies
 * the sender's queue and waits for its receive. Delegated messages, sent by a
 * helper thread from host memory, do neither. */
static bool is_direct(const engine *e, const lhi_route *route)
{
    return !e->options.delegated || route->link == LH_NONE ||
           !e->options.delegated[route->link];
}

/* Returns the route (link between two devices) over which input number `in` of
 * a pass, a message, is delivered. */
static const lhi_route *get_route(const engine *e, uint64_t in)
{
    uint32_t c = (uint32_t)(in % e->n_half / e->p->n_microbatches);
    return in < e->n_half ? &e->p->forward[c - 1] : &e->p->backward[c + 1];
}

/* Adds an event at time_ns with the payload `what` (a message for ENTER). Equal
 * times are ordered by kind, device, then order of addition; messages of a
 * device by order of production. */
static void push_event(engine *e, int64_t time_ns, enum event_kind kind,
                       uint32_t device, uint64_t what)
{
    /* Messages from one device enter in production order, even if rendezvous
     * receives are posted in a different order. */
    uint64_t seq = kind == ENTER ? e->inputs[what].nth : e->n_events++;
    lhi_event event = {time_ns, (uint64_t)kind << 32 | device, seq, what};
    if (!lhi_heap_push(&e->heap, event))
        e->no_memory = true;
}

/* Starts device d's next pass, from the time at which all that it needs has
 * arrived, if the arrival times of its input, collectives and offload copies
 * are known. */
static void try_start(engine *e, uint32_t d)
{
    device_state *dev = &e->devices[d];
    if (dev->running || dev->stalled_on != LHI_NO_INPUT ||
        dev->pos == dev->count)
        return;
    const lh_pass *pass = &dev->order[dev->pos];
    lh_timeline_run *run = &dev->runs[dev->pos];
    int64_t start = dev->free_ns;
    uint32_t of_b;
    if (!get_arrival(e, pass, &start, &run->message) ||
        (starts_pair(e, dev) && !get_arrival(e, pass + 1, &start, &of_b)))
        return;
    /* On shared links false until the last piece is sent, see on_piece();
     * otherwise forever: only this device's later passes launch the missing
     * operation. */
    if (!lhi_dp_clock_get_start(&e->data, pass, &start))
        return;
    lhi_copy_clock_get_start(&e->offload, d, dev->pos, &start);
    lhi_dp_clock_on_start(&e->data, pass, start);
    lhi_copy_clock_on_start(&e->offload, d, dev->pos, start);
    dev->idle_ns += start - dev->free_ns;
    if (e->idle_limits && dev->idle_ns >= e->idle_limits[d])
        e->t->makespan_ns = INT64_MAX; /* useless */
    run->pass = *pass;
    run->device = d;
    run->start_ns = start;
    run->end_ns = start + lhi_pass_duration(e->p, pass);
    if (e->copies)
        run->end_ns += e->copies[run - e->t->runs];
    dev->running = true;
    push_event(e, run->end_ns, END, d, 0);
}

/* Returns the device that sends input number `in` of a pass, a message. */
static uint32_t get_sender(const engine *e, uint64_t in)
{
    uint32_t c = (uint32_t)(in % e->n_half / e->p->n_microbatches);
    return e->p->chunks[in < e->n_half ? c - 1 : c + 1].device;
}

/* Posts the receive for the pass at dev->order[pos] at time `now`; its message
 * may then enter its link. */
static void post_receive(engine *e, const device_state *dev, uint32_t pos,
                         int64_t now)
{
    if (pos >= dev->count)
        return;
    uint64_t needs = get_input(e, &dev->order[pos]);
    if (needs == LHI_NO_INPUT || e->inputs[needs].posted ||
        !is_direct(e, get_route(e, needs)))
        return;
    e->inputs[needs].posted = true;
    if (e->inputs[needs].issued)
        push_event(e, now, ENTER, get_sender(e, needs), needs);
}

/* With rendezvous receives, posts the receives that are due when the device is
 * about to run the pass at dev->pos. after_w: the previous pass was a W. */
static void post_due_receives(engine *e, const device_state *dev, int64_t now,
                              bool after_w)
{
    if (e->options.receives == LH_RECEIVES_LATE) {
        post_receive(e, dev, dev->pos, now);
        if (starts_pair(e, dev))
            post_receive(e, dev, dev->pos + 1, now);
    } else if (e->options.receives == LH_RECEIVES_LATE_FD && !after_w) {
        uint32_t pos = dev->pos;
        while (pos < dev->count && dev->order[pos].kind == LH_W)
            pos++;
        post_receive(e, dev, pos, now);
        if (pos < dev->count && dev->order[pos].kind == LH_F &&
            lhi_is_overlapped(e->p, &dev->order[pos]))
            post_receive(e, dev, pos + 1, now);
    }
}

/* Advances device d to its next pass at time `now`, posts the receives that are
 * then due, and starts the pass if its inputs are known to arrive. */
static void advance_device(engine *e, uint32_t d, int64_t now)
{
    device_state *dev = &e->devices[d];
    bool was_w = dev->order[dev->pos].kind == LH_W;
    dev->runs[dev->pos].issued_ns = now;
    dev->free_ns = now;
    dev->pos++;
    post_due_receives(e, dev, now, was_w);
    try_start(e, d);
}

/* Puts message `out` into device d's send queue at time `now`; it enters its
 * link once its receive is posted. */
static void issue_message(engine *e, uint32_t d, uint64_t out, int64_t now)
{
    input *in = &e->inputs[out];
    bool direct = is_direct(e, get_route(e, out));
    in->issued = true;
    in->nth = e->n_issued++;
    e->devices[d].in_flight += direct;
    if (e->options.receives == LH_RECEIVES_EARLY || in->posted || !direct)
        push_event(e, now, ENTER, d, out);
}

/* Makes a pass's output available at time `now`: sends it, or passes it to
 * another chunk of the device. Returns false if the send queue is full. */
static bool deliver_output(engine *e, uint32_t d, const lh_pass *pass,
                           int64_t now)
{
    device_state *dev = &e->devices[d];
    const lhi_route *route;
    uint64_t out = lhi_get_output(e->p, pass, &route);
    if (out == LHI_NO_INPUT)
        return true;
    if (!route->message) {
        e->inputs[out].arrive_ns = now;
        return true;
    }
    uint32_t queue = e->options.coupled_queue;
    e->inputs[out].produced_ns = now;
    if (queue && dev->in_flight == queue && is_direct(e, route)) {
        dev->stalled_on = out;
        return false;
    }
    issue_message(e, d, out, now);
    return true;
}

/* Handles the end of device d's pass: sends the output, or stalls the device
 * if its send queue is full. An overlapped F's output is sent at the end of its
 * pair's B. */
static void on_end(engine *e, uint32_t d, int64_t now)
{
    device_state *dev = &e->devices[d];
    const lh_pass *pass = &dev->order[dev->pos];
    bool overlapped = lhi_is_overlapped(e->p, pass);
    dev->running = false;
    if (now > e->t->makespan_ns)
        e->t->makespan_ns = now;
    if (lhi_dp_clock_on_end(&e->data, pass, now)) {
        push_event(e, now, SCATTER, pass->chunk, 0);
        push_event(e, now, SCATTER, lhi_get_copy(e->p, pass->chunk), 0);
    }
    lhi_copy_clock_on_end(&e->offload, d, dev->pos, now);
    if (overlapped && pass->kind != LH_F)
        deliver_output(e, d, pass - 1, now);
    if ((overlapped && pass->kind == LH_F) || deliver_output(e, d, pass, now))
        advance_device(e, d, now);
}

/* Handles a freed entry in device d's send queue: issues a stalled message and
 * continues the device. */
static void on_free(engine *e, uint32_t d, int64_t now)
{
    device_state *dev = &e->devices[d];
    dev->in_flight--;
    if (dev->stalled_on == LHI_NO_INPUT)
        return;
    uint64_t out = dev->stalled_on;
    dev->stalled_on = LHI_NO_INPUT;
    issue_message(e, d, out, now);
    advance_device(e, d, now);
}

/* Handles the arrival of message `i`, known now: frees the sender's queue
 * entry, and starts the receiving device's pass if it waits for the message. */
static void arrive_message(engine *e, uint64_t i, const lhi_route *route,
                           int64_t arrive_ns)
{
    input *in = &e->inputs[i];
    lh_message *msg = &e->t->messages[in->message];
    device_state *to = &e->devices[msg->to];
    bool starts =
        to->pos < to->count && !to->running &&
        (get_input(e, &to->order[to->pos]) == i ||
         (starts_pair(e, to) && get_input(e, &to->order[to->pos + 1]) == i));
    msg->arrive_ns = in->arrive_ns = arrive_ns;
    if (e->options.coupled_queue && is_direct(e, route) &&
        !e->options.coupled_until_sent)
        push_event(e, arrive_ns, FREE, msg->from, 0);
    if (starts)
        try_start(e, msg->to);
}

/* Delivers message `i`, whose transfer has a known end: its arrival is known,
 * unless the network delivers it. */
static void deliver_message(engine *e, uint64_t i, const lhi_route *route)
{
    uint32_t number = e->inputs[i].message;
    const lh_message *msg = &e->t->messages[number];
    if (e->options.coupled_queue && is_direct(e, route) &&
        e->options.coupled_until_sent)
        push_event(e, msg->sent_ns, FREE, msg->from, 0);
    if (!e->network || route->link == LH_NONE ||
        !e->network->carries[route->link])
        arrive_message(e, i, route, msg->sent_ns + route->latency_ns);
    else if (e->network_status == LH_OK)
        e->network_status =
            e->network->send(e->network->context, number, msg, e->err);
}

/* Puts message `i` on its link at time `now`: it departs when it is ready and
 * the link is free. On a link shared by rate it joins the link's queue, and
 * end_transfer() delivers it. */
static void depart_message(engine *e, uint64_t i, const lhi_route *route,
                           int64_t now)
{
    input *in = &e->inputs[i];
    bool is_f = i < e->n_half;
    uint32_t c = (uint32_t)(i % e->n_half / e->p->n_microbatches);
    uint32_t m = (uint32_t)(i % e->p->n_microbatches);
    uint32_t from_chunk = is_f ? c - 1 : c + 1;
    lh_message *msg = &e->t->messages[e->t->n_messages];
    in->message = e->t->n_messages++;
    msg->from = e->p->chunks[from_chunk].device;
    msg->to = e->p->chunks[c].device;
    msg->link = route->link;
    msg->resource = route->resource;
    msg->produced_ns = in->produced_ns;
    msg->ready_ns = in->ready_ns;
    msg->depart_ns = in->ready_ns;
    /* The final kinds, D or B, are filled in later from the orders. */
    uint8_t kind = is_f ? LH_F : LH_D;
    msg->consumer = (lh_pass){c, m, 0, 1, kind, false};
    msg->producer = (lh_pass){from_chunk, m, 0, 1, kind, false};
    if (lhi_is_shared_fairly(&e->fair, route->resource)) {
        lhi_fair_links_add_message(&e->fair, route->resource, in->message,
                                   route->transfer_ns, now);
        return;
    }
    if (route->resource != LH_NONE) {
        int64_t *free_ns = &e->link_free_ns[route->resource];
        if (*free_ns > msg->depart_ns)
            msg->depart_ns = *free_ns;
        *free_ns = msg->depart_ns + route->transfer_ns;
    }
    msg->sent_ns = msg->depart_ns + route->transfer_ns;
    deliver_message(e, i, route);
}

/* Returns the number of the input that timeline message `number` is. */
static uint64_t get_message_input(const engine *e, uint32_t number)
{
    const lh_pass *consumer = &e->t->messages[number].consumer;
    return (uint64_t)consumer->chunk * e->p->n_microbatches +
           consumer->microbatch + (consumer->kind == LH_F ? 0 : e->n_half);
}

/* Handles the next arrival from the network, if it is at `until_ns` or before.
 * Returns false if there is none. */
static bool receive_message(engine *e, int64_t until_ns)
{
    uint32_t message;
    int64_t arrive_ns;
    if (!e->network || e->network_status != LH_OK)
        return false;
    e->network_status = e->network->receive(e->network->context, until_ns,
                                            &message, &arrive_ns, e->err);
    if (e->network_status != LH_OK || message == LH_NONE)
        return false;
    uint64_t i = get_message_input(e, message);
    arrive_message(e, i, get_route(e, i), arrive_ns);
    return true;
}

/* Handles message `in`, which may enter its link from `now` on: departs all
 * messages that the link's explicit order, if any, then allows. */
static void on_enter(engine *e, uint64_t in, int64_t now)
{
    const lhi_route *route = get_route(e, in);
    e->inputs[in].ready_ns = now;
    lhi_departures *l = NULL;
    if (route->resource != LH_NONE)
        l = &e->links[route->resource];
    if (!l || !l->order) {
        depart_message(e, in, route, now);
        return;
    }
    while (l->next < l->n_order &&
           e->inputs[l->order[l->next]].ready_ns != UNKNOWN) {
        uint64_t first = l->order[l->next++];
        depart_message(e, first, get_route(e, first), now);
    }
}

/* Adds an event for each piece (slice of a data-parallel collective on shared
 * links) that became ready since the last call. */
static void add_pieces(engine *e)
{
    int64_t ready_ns;
    uint32_t d;
    while ((d = lhi_dp_clock_take_request(&e->data, &ready_ns)) != LH_NONE)
        push_event(e, ready_ns, PIECE, d, d);
}

/* Offers the next data-parallel piece (collective slice) of device d to its
 * links at time `now`. If the piece is sent, tries to start the device's next
 * pass (on links shared by rate later), otherwise offers it again later. */
static void on_piece(engine *e, uint32_t d, int64_t now)
{
    lhi_event again = {.rank = (uint64_t)RETRY << 32, .payload = d};
    if (e->fair.p)
        lhi_fair_links_add_piece(&e->fair, d,
                                 lhi_dp_clock_get_piece_ns(&e->data, d), now);
    else if (lhi_dp_clock_offer_piece(&e->data, d, e->link_free_ns, now,
                                      &again.time_ns, &again.seq))
        try_start(e, d);
    else if (!lhi_heap_push(&e->heap, again))
        e->no_memory = true;
}

/* Handles the next end of a transfer on links shared by rate, at most at
 * `until_ns`. Returns false if there is none. */
static bool end_transfer(engine *e, int64_t until_ns)
{
    lhi_fair_end end;
    if (!e->fair.p || !lhi_fair_links_take_end(&e->fair, until_ns, &end))
        return false;
    if (end.is_piece) {
        lhi_dp_clock_record_piece(&e->data, end.index, end.depart_ns,
                                  end.sent_ns);
        try_start(e, end.index);
    } else {
        uint64_t i = get_message_input(e, end.index);
        e->t->messages[end.index].depart_ns = end.depart_ns;
        e->t->messages[end.index].sent_ns = end.sent_ns;
        deliver_message(e, i, get_route(e, i));
    }
    add_pieces(e);
    return true;
}

/* Starts the simulation: launches the data-parallel operations, posts the
 * receives due at time 0 and starts every device's first pass. */
static void start_all(engine *e)
{
    const lh_pipeline *p = e->p;
    lhi_dp_clock_begin(&e->data, 0);
    for (uint32_t d = 0; d < p->n_devices; d++)
        lhi_dp_clock_add_device(&e->data, e->devices[d].order, sizeof(lh_pass),
                                e->devices[d].count, 0);
    for (uint32_t d = 0; d < p->n_devices; d++)
        post_due_receives(e, &e->devices[d], 0, false);
    for (uint32_t d = 0; d < p->n_devices; d++)
        try_start(e, d);
}

/* Fails with LH_EDEADLOCK; the message names the first blocked device d and
 * the message or pass that it waits for. */
static lh_status report_deadlock(const engine *e, uint32_t d, lh_error *err)
{
    const device_state *dev = &e->devices[d];
    char here[LH_PASS_TEXT_SIZE], there[LH_PASS_TEXT_SIZE];
    const lh_pass *pass = &dev->order[dev->pos];
    uint64_t needs = get_input(e, pass);
    if (starts_pair(e, dev) &&
        (needs == LHI_NO_INPUT || e->inputs[needs].arrive_ns != UNKNOWN))
        needs = get_input(e, ++pass);
    size_t point =
        lhi_pass_index(e->p, pass->chunk, pass->microbatch, pass->kind != LH_F);
    lh_pass_format(pass, here);
    if (dev->stalled_on == LHI_NO_INPUT && pass->kind != LH_W &&
        e->data.n_pending && e->data.n_pending[point] > 0 &&
        (needs == LHI_NO_INPUT || e->inputs[needs].arrive_ns != UNKNOWN))
        return lhi_dp_clock_fail_late_launch(&e->data, d, point, here, err);
    if (dev->stalled_on != LHI_NO_INPUT || needs == LHI_NO_INPUT)
        return lhi_fail(err, LH_EDEADLOCK,
                        "deadlock: device %" PRIu32 " stops after %s because "
                        "its send queue stays full; make the queue longer",
                        d, here);
    uint32_t other = get_sender(e, needs);
    const device_state *sender = &e->devices[other];
    if (sender->pos == sender->count)
        return lhi_fail(err, LH_EDEADLOCK,
                        "deadlock: the input of %s, on device %" PRIu32
                        ", never leaves device %" PRIu32
                        ": blocked by the message order given for its link",
                        here, d, other);
    lh_pass_format(&sender->order[sender->pos], there);
    return lhi_fail(err, LH_EDEADLOCK,
                    "deadlock: device %" PRIu32
                    " waits at %s for device %" PRIu32 ", which waits at %s",
                    d, here, other, there);
}

/* Processes all events of the simulation in time order, until a device has been
 * idle for too long. Fails with LH_EDEADLOCK if passes remain that cannot
 * start. */
static lh_status run_events(engine *e, lh_error *err)
{
    lhi_event event;
    start_all(e);
    add_pieces(e);
    for (;;) {
        /* Arrivals that are due before the next event may add earlier ones. */
        int64_t next_ns =
            e->heap.count > 0 ? e->heap.items[0].time_ns : INT64_MAX;
        if (receive_message(e, next_ns) || end_transfer(e, next_ns))
            continue;
        if (e->no_memory || e->fair.no_memory || e->network_status != LH_OK ||
            e->t->makespan_ns == INT64_MAX || !lhi_heap_pop(&e->heap, &event))
            break;
        uint32_t d = (uint32_t)event.rank;
        switch ((enum event_kind)(event.rank >> 32)) {
        case FREE:
            on_free(e, d, event.time_ns);
            break;
        case END:
            on_end(e, d, event.time_ns);
            break;
        case SCATTER: /* d: the chunk */
            lhi_dp_clock_scatter(&e->data, d, event.time_ns);
            break;
        case ENTER:
            on_enter(e, event.payload, event.time_ns);
            break;
        case RETRY:
        case PIECE:
            on_piece(e, (uint32_t)event.payload, event.time_ns);
            break;
        }
        add_pieces(e);
    }
    if (e->no_memory || e->fair.no_memory)
        return lhi_fail_nomem(err);
    if (e->network_status != LH_OK || e->t->makespan_ns == INT64_MAX)
        return e->network_status;
    for (uint32_t d = 0; d < e->p->n_devices; d++)
        if (e->devices[d].pos < e->devices[d].count)
            return report_deadlock(e, d, err);
    return LH_OK;
}

/* Allocates the engine's state, and the timeline's arrays in final size. */
static lh_status allocate(engine *e, lh_error *err)
{
    const lh_pipeline *p = e->p;
    lh_timeline *t = e->t;
    uint64_t routes = 0, total = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        routes += (uint64_t)p->forward[c].message + p->backward[c].message;
    for (uint32_t d = 0; d < p->n_devices; d++)
        total += e->s->counts[d];
    e->n_half = (uint64_t)p->n_chunks * p->n_microbatches;
    e->inputs = LHI_NEW(e->mem, input, 2 * e->n_half);
    e->devices = LHI_NEW(e->mem, device_state, p->n_devices);
    e->links = LHI_NEW(e->mem, lhi_departures, p->n_resources);
    e->link_free_ns = LHI_NEW(e->mem, int64_t, p->n_resources);
    t->offsets = LHI_NEW(e->mem, size_t, p->n_devices + 1);
    t->runs = LHI_NEW(e->mem, lh_timeline_run, total);
    t->messages = LHI_NEW(e->mem, lh_message, routes * p->n_microbatches);
    t->collectives =
        LHI_NEW(e->mem, lh_collective, 2 * (size_t)p->n_chunks + p->n_dp_ops);
    t->peak_memory = LHI_NEW(e->mem, int64_t, p->n_devices);
    t->memory_limits = LHI_NEW(e->mem, int64_t, p->n_devices);
    t->resource_names = LHI_NEW(e->mem, const char *, p->n_resources);
    if (!e->inputs || !e->devices || !e->links || !e->link_free_ns ||
        !t->offsets || !t->runs || !t->messages || !t->collectives ||
        !t->peak_memory || !t->memory_limits || !t->resource_names)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_dp_clock_init(p, e->mem, &e->data, err));
    e->data.sent = t->collectives;
    e->data.n_messages = &t->n_messages;
    return lhi_fair_links_init(p, routes * p->n_microbatches, e->mem, &e->fair,
                               err);
}

/* Allocates and initialises the engine and the timeline for one simulation. */
static lh_status make_engine(engine *e, lh_error *err)
{
    const lh_pipeline *p = e->p;
    lh_timeline *t = e->t;
    LHI_TRY(allocate(e, err));
    for (uint64_t i = 0; i < 2 * e->n_half; i++)
        e->inputs[i] = (input){
            .ready_ns = UNKNOWN, .arrive_ns = UNKNOWN, .message = LH_NONE};
    for (uint32_t r = 0; r < p->n_resources; r++) {
        t->resource_names[r] = lhi_arena_strdup(t->mem, p->resource_names[r]);
        if (!t->resource_names[r])
            return lhi_fail_nomem(err);
    }
    t->n_devices = p->n_devices;
    t->n_resources = p->n_resources;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        t->offsets[d + 1] = t->offsets[d] + e->s->counts[d];
        e->devices[d] = (device_state){.order = e->s->orders[d],
                                       .runs = t->runs + t->offsets[d],
                                       .count = e->s->counts[d],
                                       .stalled_on = LHI_NO_INPUT};
        t->memory_limits[d] = p->memory_limits[d];
    }
    for (uint32_t r = 0; p->blocked_until_ns && r < p->n_resources; r++)
        e->link_free_ns[r] = p->blocked_until_ns[r];
    LHI_TRY(lhi_copy_clock_init(p, e->s, t->offsets, e->mem, &e->offload, err));
    if (!e->options.fifo && e->s->n_link_orders)
        LHI_TRY(lhi_link_orders_read(p, e->s, e->mem, e->links, err));
    if (e->options.host_copy_ns == 0 || !lh_pipeline_has_host(p))
        return LH_OK;
    return lhi_find_host_copies(p, e->s, e->options.host_copy_ns, t->offsets,
                                e->mem, &e->copies, err);
}

/* Sets the producing and the consuming pass of every message to the passes in
 * the orders, which decide between D and B. */
static void name_message_ends(engine *e)
{
    lh_timeline *t = e->t;
    for (uint32_t d = 0; d < t->n_devices; d++)
        for (size_t i = t->offsets[d]; i < t->offsets[d + 1]; i++) {
            const lh_pass *pass = &t->runs[i].pass;
            const lhi_route *route;
            uint64_t out = lhi_get_output(e->p, pass, &route);
            if (t->runs[i].message != LH_NONE)
                t->messages[t->runs[i].message].consumer = *pass;
            if (out != LHI_NO_INPUT && e->inputs[out].message != LH_NONE)
                t->messages[e->inputs[out].message].producer = *pass;
        }
}

/* Computes the timeline's makespan, idle time and peak memory per device. */
static void compute_totals(engine *e)
{
    const lh_pipeline *p = e->p;
    lh_timeline *t = e->t;
    uint32_t first = p->chunks[0].device;
    t->n_collectives = e->data.n_sent;
    t->n_pieces = e->data.n_pieces;
    t->pieces = e->data.pieces;
    t->n_copies = e->offload.n_done;
    t->copies = e->offload.done;
    if (e->data.last_ns > t->makespan_ns)
        t->makespan_ns = e->data.last_ns;
    lhi_timeline_sum_passes(p, t);
    if (t->offsets[first + 1] > t->offsets[first])
        t->first_device_end_ns = t->runs[t->offsets[first + 1] - 1].end_ns;
}

/* Fails for options that the pipeline does not support: coupled sends with
 * overlapped pairs, since a full send queue could separate the passes of a
 * pair, and a simulated network with links shared by rate. */
static lh_status check_support(const engine *e, lh_error *err)
{
    if (e->network && e->p->dp_priority == LH_DP_FAIR)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a simulated network cannot be combined with "
                        "data-parallel communication that shares links by "
                        "rate; use 'priority: fifo'");
    if (e->p->overlap_f_b == 0 || !e->options.coupled_queue)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "coupled sends cannot be combined with overlapped passes; "
                    "remove 'overlap' from the pipeline");
}

/* Checks the orders, simulates them, and computes the timeline's totals. */
static lh_status run_all(engine *e, lh_error *err)
{
    const lh_pipeline *p = e->p;
    LHI_TRY(check_support(e, err));
    uint64_t n = (uint64_t)p->n_chunks * p->n_microbatches;
    lhi_mark mark = lhi_arena_mark(e->mem);
    lhi_observed_passes seen = {LHI_NEW(e->mem, uint8_t, n),
                                LHI_NEW(e->mem, uint32_t, n)};
    if (!seen.state || !seen.parts)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_orders_check(p, e->s, &seen, err));
    lhi_arena_rewind(e->mem, mark);
    LHI_TRY(make_engine(e, err));
    LHI_TRY(run_events(e, err));
    if (e->t->makespan_ns == INT64_MAX)
        return LH_OK;
    name_message_ends(e);
    compute_totals(e);
    return LH_OK;
}

lh_status lhi_event_engine_run(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_sim_options *options,
                               const lhi_sim_network *network,
                               const int64_t *idle_limits, lhi_arena *mem,
                               lh_timeline **out, lh_error *err)
{
    engine e = {.p = pipeline,
                .s = schedule,
                .options = *options,
                .network = network,
                .idle_limits = idle_limits,
                .mem = mem,
                .err = err};
    e.t = LHI_NEW(mem, lh_timeline, 1);
    if (!e.t)
        return lhi_fail_nomem(err);
    e.t->mem = mem;
    e.t->options = *options;
    if (options->delegated && pipeline->n_links) {
        bool *own = LHI_NEW(mem, bool, pipeline->n_links);
        if (!own)
            return lhi_fail_nomem(err);
        memcpy(own, options->delegated, pipeline->n_links * sizeof *own);
        e.t->options.delegated = own;
    }
    lh_status status = run_all(&e, err);
    lhi_heap_fini(&e.heap);
    lhi_fair_links_fini(&e.fair);
    if (status == LH_OK)
        *out = e.t;
    return status;
}
