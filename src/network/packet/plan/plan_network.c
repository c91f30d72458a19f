/* SPDX-License-Identifier: Apache-2.0 */
/* Delivers a schedule's messages between datacenters packet by packet.
 *
 * The schedule's simulation and the packet simulations of all links advance
 * together: the earliest event of all is processed next. A message is posted
 * when the schedule sends it, and its last packet's arrival lets the receiving
 * pass start. Instead, message times can be drawn from those of a few messages
 * that were simulated before.
 *
 * The packet simulation has the messages of all replicas, each sent when the
 * first replica sends it. Then each other replica's schedule is simulated with
 * the times that its own messages took; the slowest replica counts. */
#include "network/packet/plan/plan_network.h"

#include "base/fail.h"
#include "base/heap.h"
#include "base/random.h"
#include "network/packet/link.h"
#include "schedule/simulator/timeline.h"

#include <math.h>

/* Limits of a link's simulation, for its memory: numbers of queue pairs, and of
 * messages of all replicas in an iteration. */
enum { MOST_PAIRS = 1 << 20, MOST_MESSAGES = 1 << 24 };

/* A link's packet simulation. */
typedef struct link_network {
    const lhi_plan_link *from;
    uint32_t replicas, queue_pairs;
    lhi_packet_options options;
    lhi_fabric fabric;
    lhi_packet_message *messages; /* [sent * replicas + replica] */
    uint32_t *timeline;           /* per sent message: its number */
    int64_t *depart_ns;           /* per sent message */
    int64_t *took_ns;             /* [sent * replicas + replica] */
    uint32_t n_sent;
    lhi_packet_sim *sim;
    /* Sampled times instead. */
    const lhi_message_times *times;
    uint32_t n_times;
    lhi_random random;
    lh_packet_counters counters;
} link_network;

/* The network of one iteration. */
typedef struct network {
    const lhi_plan_iteration *iteration;
    lhi_arena *mem;
    link_network *links;
    bool *carries;
    bool draws;
    uint32_t replica;  /* whose schedule is simulated */
    uint32_t *sent_of; /* [find_key()]: position among a link's messages */
    lhi_heap arrivals; /* drawn ones; payload: message */
} network;

/* --- setup --- */

/* Lists the queue pairs of a link: those of each sending device's replica, to a
 * receiver of its own. */
static lh_status make_pairs(link_network *n, uint32_t hosts, lhi_arena *mem,
                            lh_error *err)
{
    uint64_t total = (uint64_t)hosts * n->queue_pairs;
    if (total > MOST_PAIRS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "link %s: %llu queue pairs are more than packets are "
                        "simulated for; sample messages",
                        n->from->name, (unsigned long long)total);
    lhi_queue_pair *pairs = LHI_NEW(mem, lhi_queue_pair, total);
    if (!pairs)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < total; i++)
        pairs[i] =
            (lhi_queue_pair){i / n->queue_pairs, hosts + i / n->queue_pairs};
    n->options.pairs = pairs;
    n->options.n_pairs = (uint32_t)total;
    return LH_OK;
}

/* Opens the packet simulation of a link, with all messages of an iteration. */
static lh_status open_link(link_network *n, lhi_arena *mem, lh_error *err)
{
    const lhi_plan_link *from = n->from;
    uint32_t hosts = from->n_senders * n->replicas;
    uint64_t total = (uint64_t)from->n_messages * n->replicas;
    if (total > MOST_MESSAGES)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "link %s: %llu messages are more than packets are "
                        "simulated for; sample messages",
                        from->name, (unsigned long long)total);
    n->messages = LHI_NEW(mem, lhi_packet_message, total);
    n->timeline = LHI_NEW(mem, uint32_t, from->n_messages);
    n->depart_ns = LHI_NEW(mem, int64_t, from->n_messages);
    n->took_ns = LHI_NEW(mem, int64_t, total);
    if (!n->messages || !n->timeline || !n->depart_ns || !n->took_ns)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_packet_link_build(&from->link, hosts, mem, &n->fabric,
                                  &n->options.transport, err));
    LHI_TRY(make_pairs(n, hosts, mem, err));
    for (uint64_t i = 0; i < total; i++)
        n->messages[i] = (lhi_packet_message){
            .bytes = (uint64_t)llround(from->link.load.message_bytes),
            .queue_pairs = n->queue_pairs,
            .n_required = 1};
    n->options.fabric = &n->fabric;
    n->options.messages = n->messages;
    n->options.n_messages = (uint32_t)total;
    return lhi_packets_open(&n->options, &n->sim, err);
}

/* Simulates a sample of the messages of `link`, the link with their number. */
static lh_status sample_link(link_network *n, const lh_packet_link *link,
                             const lhi_plan_iteration *it, lhi_arena *mem,
                             lh_error *err)
{
    return lhi_packet_link_sample(link, n->options.seed, it->progress,
                                  it->context, n->options.record, mem,
                                  &n->times, &n->n_times, &n->counters, err);
}

/* Prepares all links; `records`: one of each, or NULL. */
static lh_status open_network(network *net, lh_packet_record *records,
                              lh_error *err)
{
    const lhi_plan_iteration *it = net->iteration;
    uint32_t n_links = lh_pipeline_n_links(it->plan->pipeline);
    net->draws = it->sample != LH_PACKET_ALL;
    net->links = LHI_NEW(net->mem, link_network, it->links->n);
    net->carries = LHI_NEW(net->mem, bool, n_links);
    const lh_pipeline *p = it->plan->pipeline;
    net->sent_of = LHI_NEW(net->mem, uint32_t,
                           2 * (size_t)p->n_chunks * p->n_microbatches);
    if (!net->links || !net->carries || !net->sent_of)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_links; i++)
        net->carries[i] = it->links->of_link[i] != LH_NONE;
    for (uint32_t i = 0; i < it->links->n; i++) {
        link_network *n = &net->links[i];
        n->from = &it->links->links[i];
        lh_packet_link link = n->from->link;
        link.messages =
            it->sample < n->from->n_messages ? it->sample : n->from->n_messages;
        lh_status status = lhi_packet_link_check(&link, err);
        if (status != LH_OK) {
            lhi_fail_add_context(err, "link %s", n->from->name);
            return status;
        }
        n->replicas = (uint32_t)llround(n->from->link.load.senders);
        n->queue_pairs = n->from->link.setting.queue_pairs;
        n->options.seed = it->seed + ((uint64_t)i << 32);
        n->options.progress = it->progress;
        n->options.context = it->context;
        n->options.record = records ? &records[i] : NULL;
        n->random.state = lhi_mix64(n->options.seed);
        LHI_TRY(net->draws ? sample_link(n, &link, it, net->mem, err)
                           : open_link(n, net->mem, err));
    }
    return LH_OK;
}

/* Frees all links. */
static void close_network(network *net)
{
    for (uint32_t i = 0; net->links && i < net->iteration->links->n; i++)
        lhi_packets_close(net->links[i].sim);
    lhi_heap_fini(&net->arrivals);
    lhi_arena_free(net->mem);
}

/* --- messages --- */

/* Returns a number for a message that is the same in every replica. */
static size_t find_key(const network *net, const lh_message *message)
{
    const lh_pipeline *p = net->iteration->plan->pipeline;
    const lh_pass *pass = &message->consumer;
    size_t position =
        (size_t)pass->chunk * p->n_microbatches + pass->microbatch;
    return 2 * position + (pass->kind == LH_F);
}

/* Returns how long a message takes without a packet simulation: drawn from the
 * sample or, after one, what the replica's message took in it. */
static int64_t find_duration(network *net, link_network *n,
                             const lh_message *message)
{
    if (n->took_ns)
        return n->took_ns[(size_t)net->sent_of[find_key(net, message)] *
                              n->replicas +
                          net->replica % n->replicas];
    const lhi_message_times *t =
        &n->times[lhi_random_below(&n->random, n->n_times)];
    return (int64_t)ceil(t->end_ns - t->start_ns);
}

/* Sends a message of the schedule: that of every replica at the same time. */
static lh_status send_message(void *context, uint32_t number,
                              const lh_message *message, lh_error *err)
{
    network *net = context;
    link_network *n =
        &net->links[net->iteration->links->of_link[message->link]];
    if (net->draws) {
        lhi_event event = {.time_ns = message->depart_ns +
                                      find_duration(net, n, message),
                           .seq = n->n_sent++,
                           .payload = number};
        return lhi_heap_push(&net->arrivals, event) ? LH_OK
                                                    : lhi_fail_nomem(err);
    }
    uint32_t sender = n->from->senders[message->from];
    for (uint32_t r = 0; r < n->replicas; r++) {
        uint32_t at = n->n_sent * n->replicas + r;
        n->messages[at].first_pair =
            (sender * n->replicas + r) * n->queue_pairs;
        lhi_packets_send(n->sim, at, message->depart_ns);
    }
    net->sent_of[find_key(net, message)] = n->n_sent;
    n->depart_ns[n->n_sent] = message->depart_ns;
    n->timeline[n->n_sent++] = number;
    return LH_OK;
}

/* Takes the first drawn arrival, if it is not after until_ns. */
static void take_drawn(network *net, int64_t until_ns, uint32_t *number,
                       int64_t *arrive_ns)
{
    lhi_event event;
    *number = LH_NONE;
    if (net->arrivals.count == 0 || net->arrivals.items[0].time_ns > until_ns)
        return;
    lhi_heap_pop(&net->arrivals, &event);
    *number = (uint32_t)event.payload;
    *arrive_ns = event.time_ns;
}

/* Takes the first replica's next arrival on a link; false: none. */
static bool take_arrival(link_network *n, uint32_t *number, int64_t *arrive_ns)
{
    uint32_t at;
    while (lhi_packets_take_arrival(n->sim, &at, arrive_ns)) {
        n->took_ns[at] = *arrive_ns - n->depart_ns[at / n->replicas];
        if (at % n->replicas == 0) {
            *number = n->timeline[at / n->replicas];
            return true;
        }
    }
    return false;
}

/* Advances all links together until a message arrives, at most to until_ns. */
static lh_status receive_message(void *context, int64_t until_ns,
                                 uint32_t *number, int64_t *arrive_ns,
                                 lh_error *err)
{
    network *net = context;
    uint64_t until_ps = until_ns > INT64_MAX / 1000 ? UINT64_MAX - 1
                                                    : (uint64_t)until_ns * 1000;
    *number = LH_NONE;
    if (net->draws) {
        take_drawn(net, until_ns, number, arrive_ns);
        return LH_OK;
    }
    for (uint32_t i = 0; i < net->iteration->links->n; i++)
        if (take_arrival(&net->links[i], number, arrive_ns))
            return LH_OK;
    for (;;) {
        link_network *first = NULL;
        uint64_t first_ps = UINT64_MAX;
        for (uint32_t i = 0; i < net->iteration->links->n; i++) {
            uint64_t ps = lhi_packets_peek(net->links[i].sim);
            if (ps < first_ps) {
                first_ps = ps;
                first = &net->links[i];
            }
        }
        if (!first || first_ps > until_ps)
            return LH_OK;
        LHI_TRY(lhi_packets_step(first->sim, err));
        if (take_arrival(first, number, arrive_ns))
            return LH_OK;
    }
}

/* --- iteration --- */

/* Stores the times of all messages on simulated links. */
static void store_messages(const network *net, const lh_timeline *timeline,
                           lhi_plan_iteration_result *out)
{
    uint32_t n, stored;
    const lh_message *messages = lh_timeline_messages(timeline, &n);
    for (uint32_t k = 0; k < net->iteration->links->n; k++) {
        const link_network *link = &net->links[k];
        stored = 0;
        for (uint32_t i = 0; i < n; i++)
            if (messages[i].link != LH_NONE &&
                net->iteration->links->of_link[messages[i].link] == k)
                out->message_ns[k][stored++] =
                    (double)(messages[i].arrive_ns - messages[i].depart_ns);
        out->counters[k] =
            net->draws ? link->counters : lhi_packets_count(link->sim);
    }
}

/* Simulates the packets that are still under way after the first replica's
 * iteration. */
static lh_status end_packets(network *net, lh_error *err)
{
    uint32_t number;
    int64_t arrive_ns;
    for (uint32_t i = 0; i < net->iteration->links->n; i++) {
        link_network *n = &net->links[i];
        while (lhi_packets_peek(n->sim) != UINT64_MAX)
            LHI_TRY(lhi_packets_step(n->sim, err));
        take_arrival(n, &number, &arrive_ns);
    }
    return LH_OK;
}

/* Simulates the schedule of a replica; release *timeline. */
static lh_status simulate_replica(network *net, uint32_t replica,
                                  lh_timeline **timeline, lh_error *err)
{
    const lh_plan *plan = net->iteration->plan;
    const lhi_sim_network messages = {.context = net,
                                      .carries = net->carries,
                                      .send = send_message,
                                      .receive = receive_message};
    net->replica = replica;
    return lhi_simulate_with_network(plan->pipeline, plan->schedule, NULL,
                                     &messages, timeline, err);
}

/* Raises *makespan_ns to that of the slowest of the other replicas, whose
 * messages have been simulated or are drawn. */
static lh_status simulate_others(network *net, int64_t *makespan_ns,
                                 lh_error *err)
{
    uint32_t replicas = 1;
    net->draws = true;
    for (uint32_t i = 0; i < net->iteration->links->n; i++)
        if (net->links[i].replicas > replicas)
            replicas = net->links[i].replicas;
    for (uint32_t r = 1; r < replicas; r++) {
        lh_timeline *timeline = NULL;
        LHI_TRY(simulate_replica(net, r, &timeline, err));
        if (lh_timeline_makespan(timeline) > *makespan_ns)
            *makespan_ns = lh_timeline_makespan(timeline);
        lh_timeline_free(timeline);
    }
    return LH_OK;
}

lh_status lhi_plan_iteration_simulate(const lhi_plan_iteration *iteration,
                                      lhi_plan_iteration_result *out,
                                      lh_error *err)
{
    network net = {.iteration = iteration, .mem = lhi_arena_make(0)};
    lh_timeline *timeline = NULL;
    if (!net.mem)
        return lhi_fail_nomem(err);
    lh_status status = open_network(&net, out->records, err);
    if (status == LH_OK)
        status = simulate_replica(&net, 0, &timeline, err);
    if (status == LH_OK && !net.draws)
        status = end_packets(&net, err);
    if (status == LH_OK) {
        out->makespan_ns = lh_timeline_makespan(timeline);
        store_messages(&net, timeline, out);
        status = simulate_others(&net, &out->makespan_ns, err);
    }
    lh_timeline_free(timeline);
    close_network(&net);
    return status;
}
