/* SPDX-License-Identifier: Apache-2.0 */
#include "network/packet/collectives.h"

#include "base/fail.h"

#include <math.h>

/* Messages that wait for one message of an all-reduce. */
enum { MOST_SUCCESSORS = 2 };

const char *lh_packet_traffic_name(lh_packet_traffic traffic)
{
    static const char *const names[] = {"messages", "ring", "hierarchical",
                                        "all-to-all"};
    return traffic < LH_N_TRAFFICS ? names[traffic] : NULL;
}

/* An all-reduce under construction. */
typedef struct builder {
    lhi_message_set *out;
    uint32_t (*next)[MOST_SUCCESSORS]; /* successors of each message */
    uint32_t gpus, queue_pairs;
} builder;

void lhi_collective_count(const lhi_packet_collective *c, uint64_t *n_messages,
                          uint64_t *n_pairs)
{
    uint64_t gpus = c->gpus, n = 2 * gpus, queue_pairs = c->queue_pairs;
    switch (c->kind) {
    case LH_TRAFFIC_RING:
        *n_messages = n * (2 * n - 2);
        *n_pairs = n * queue_pairs;
        break;
    case LH_TRAFFIC_HIERARCHICAL:
        *n_messages = n * n;
        *n_pairs = 2 * n * queue_pairs;
        break;
    default:
        *n_messages = n * (n - 1) * c->rounds;
        *n_pairs = n * (n - 1) * queue_pairs;
    }
}

/* Sets message `number`: `bytes` bytes over the queue pairs of connection
 * `connection`. */
static void set_message(const builder *b, uint32_t number, double bytes,
                        uint32_t connection)
{
    b->out->messages[number] =
        (lhi_packet_message){.bytes = (uint64_t)ceil(bytes),
                             .first_pair = connection * b->queue_pairs,
                             .queue_pairs = b->queue_pairs,
                             .successors = b->next[number]};
}

/* Lets message `after` wait for the arrival of message `before`. */
static void add_dependency(const builder *b, uint32_t before, uint32_t after)
{
    lhi_packet_message *m = &b->out->messages[before];
    b->next[before][m->n_successors++] = after;
    b->out->messages[after].n_required++;
}

/* Sets the hosts of connection `connection`. */
static void connect(const builder *b, uint32_t connection, uint32_t from,
                    uint32_t to)
{
    for (uint32_t i = 0; i < b->queue_pairs; i++)
        b->out->pairs[connection * b->queue_pairs + i] =
            (lhi_queue_pair){from, to};
}

/* Builds one ring through all hosts. Message r * steps + s: step s of host r.
 */
static void build_ring(const builder *b, double bytes)
{
    uint32_t n = 2 * b->gpus, steps = 2 * (n - 1);
    for (uint32_t r = 0; r < n; r++) {
        connect(b, r, r, (r + 1) % n);
        for (uint32_t s = 0; s < steps; s++)
            set_message(b, r * steps + s, bytes / n, r);
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t s = 0; s + 1 < steps; s++)
            add_dependency(b, r * steps + s, (r + 1) % n * steps + s + 1);
}

/* Builds the rings within both sites and the exchange between them. Host h has
 * messages h * steps to h * steps + steps - 1: the reduce-scatter's, two of the
 * exchange, the all-gather's. */
static void build_hierarchical(const builder *b, double bytes)
{
    uint32_t g = b->gpus, ring = g - 1, steps = 2 * g;
    for (uint32_t h = 0; h < 2 * g; h++) {
        connect(b, h, h, h / g * g + (h + 1) % g);
        connect(b, 2 * g + h, h, (h + g) % (2 * g));
        for (uint32_t s = 0; s < steps; s++) {
            bool crosses = s == ring || s == ring + 1;
            set_message(b, h * steps + s, bytes / g / (crosses ? 2 : 1),
                        crosses ? 2 * g + h : h);
        }
    }
    for (uint32_t h = 0; h < 2 * g; h++) {
        uint32_t own = h * steps, next = (h / g * g + (h + 1) % g) * steps;
        uint32_t peer = (h + g) % (2 * g) * steps;
        for (uint32_t s = 0; s + 1 < ring; s++) {
            add_dependency(b, own + s, next + s + 1);
            add_dependency(b, own + ring + 2 + s, next + ring + 3 + s);
        }
        /* The reduced part: half of it goes to the peer, which sums it; the
         * other half is summed here and sent back. */
        if (ring > 0) {
            add_dependency(b, own + ring - 1, next + ring);
            add_dependency(b, own + ring - 1, next + ring + 1);
            add_dependency(b, own + ring, peer + ring + 2);
            add_dependency(b, own + ring + 1, peer + ring + 2);
        }
        add_dependency(b, own + ring, peer + ring + 1);
    }
}

/* Builds rounds of all-to-alls. Host h has messages m = h * (n - 1) to m + n -
 * 2 of each round, one to each other host. `numbers`: all message numbers in
 * order, of which the successors of a message are a section. */
static void build_all_to_all(const lhi_packet_collective *c, uint32_t *numbers,
                             lhi_message_set *out)
{
    uint32_t n = 2 * c->gpus, peers = n - 1, each = n * peers;
    for (uint32_t i = 0; i < out->n_messages; i++) {
        uint32_t connection = i % each, from = connection / peers;
        uint32_t to = (from + 1 + connection % peers) % n;
        bool is_last = i / each + 1 == c->rounds;
        numbers[i] = i;
        out->messages[i] = (lhi_packet_message){
            .bytes = (uint64_t)ceil(c->bytes / n),
            .first_pair = connection * c->queue_pairs,
            .queue_pairs = c->queue_pairs,
            .successors =
                is_last ? NULL : &numbers[(i / each + 1) * each + to * peers],
            .n_successors = is_last ? 0 : peers,
            .n_required = i < each ? 0 : peers};
        for (uint32_t k = 0; k < c->queue_pairs && i < each; k++)
            out->pairs[connection * c->queue_pairs + k] =
                (lhi_queue_pair){from, to};
    }
}

lh_status lhi_collective_build(const lhi_packet_collective *c, lhi_arena *mem,
                               lhi_message_set *out, lh_error *err)
{
    uint64_t n_messages, n_pairs;
    bool is_exchange = c->kind == LH_TRAFFIC_ALL_TO_ALL;
    lhi_collective_count(c, &n_messages, &n_pairs);
    *out = (lhi_message_set){LHI_NEW(mem, lhi_packet_message, n_messages),
                             LHI_NEW(mem, lhi_queue_pair, n_pairs),
                             (uint32_t)n_messages, (uint32_t)n_pairs};
    uint32_t *next = LHI_NEW(mem, uint32_t,
                             n_messages * (is_exchange ? 1 : MOST_SUCCESSORS));
    if (!out->messages || !out->pairs || !next)
        return lhi_fail_nomem(err);
    const builder b = {out, (uint32_t(*)[MOST_SUCCESSORS])next, c->gpus,
                       c->queue_pairs};
    if (is_exchange)
        build_all_to_all(c, next, out);
    else if (c->kind == LH_TRAFFIC_RING)
        build_ring(&b, c->bytes);
    else
        build_hierarchical(&b, c->bytes);
    return LH_OK;
}
