/* SPDX-License-Identifier: Apache-2.0 */
/* Checks freedom from deadlock before anything runs. An instruction becomes
 * possible once others are done, and stays possible. The execution order is
 * therefore irrelevant: either all instructions run, or the same ones never do.
 * One walk through the graph decides.
 *
 * A pass waits for the previous pass, for its input, and for collectives in its
 * data stream. Collectives run in launch order, independent of the passes, and
 * all replicas launch them in the same order. A launched collective therefore
 * completes, and one replica's walk stands for all. The same holds for passes
 * that compute together with counterparts in other copies of the pipeline: all
 * copies have the same passes in the same order, so the collectives inside a
 * pass find all their members. Activation copies run in order in their own
 * stream and need no other rank.
 *
 * A message waits for its producing pass, for its receive to be posted
 * (rendezvous: no buffering on the way is assumed), and on a link with an
 * explicit order for the previous message. With blocking sends it also waits
 * until the queue has a free entry among its rank's earlier messages, and the
 * rank's later instructions wait with it. */
#include "runtime/engine/execution_plan.h"

#include <inttypes.h>

/* State of the walk. */
typedef struct deadlock_walk {
    const lh_exec *x;
    lhi_arena *mem;
    uint32_t *done;          /* per rank: executed passes */
    uint32_t *queued;        /* per rank: messages in its queue */
    bool *has_unqueued;      /* per rank: the last message is not queued yet */
    uint8_t *n_waits;        /* per message: unmet conditions */
    bool *moved;             /* per message */
    bool *is_available;      /* per message: arrived, and copied if delegated */
    uint32_t *next_in_queue; /* per message: next one in its copy queue */
    uint32_t *previous_in_queue; /* per message: previous one */
    bool *delegated;             /* per message */
    uint32_t *consumer;          /* per message: rank */
    uint32_t *before;            /* per message: its post */
    uint32_t *producer;          /* per message: rank */
    uint32_t *next;              /* per message: next in its link's order */
    uint32_t *previous;
    uint32_t *stack; /* messages that can move */
    uint32_t n_stack;
} deadlock_walk;

/* Allocates the deadlock check's arrays per rank, message and link in its
 * arena. */
static lh_status allocate(deadlock_walk *p, lh_error *err)
{
    size_t n = 2 * (size_t)p->x->n_half;
    p->done = LHI_NEW(p->mem, uint32_t, p->x->n_ranks);
    p->queued = LHI_NEW(p->mem, uint32_t, p->x->n_ranks);
    p->has_unqueued = LHI_NEW(p->mem, bool, p->x->n_ranks);
    p->n_waits = LHI_NEW(p->mem, uint8_t, n);
    p->moved = LHI_NEW(p->mem, bool, n);
    p->is_available = LHI_NEW(p->mem, bool, n);
    p->delegated = LHI_NEW(p->mem, bool, n);
    p->next_in_queue = LHI_NEW(p->mem, uint32_t, n);
    p->previous_in_queue = LHI_NEW(p->mem, uint32_t, n);
    p->consumer = LHI_NEW(p->mem, uint32_t, n);
    p->before = LHI_NEW(p->mem, uint32_t, n);
    p->producer = LHI_NEW(p->mem, uint32_t, n);
    p->next = LHI_NEW(p->mem, uint32_t, n);
    p->previous = LHI_NEW(p->mem, uint32_t, n);
    p->stack = LHI_NEW(p->mem, uint32_t, n);
    if (!p->done || !p->queued || !p->has_unqueued || !p->n_waits ||
        !p->moved || !p->consumer || !p->before || !p->producer || !p->next ||
        !p->previous || !p->stack || !p->is_available || !p->delegated ||
        !p->next_in_queue || !p->previous_in_queue)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        p->next[i] = p->previous[i] = p->next_in_queue[i] =
            p->previous_in_queue[i] = LH_NONE;
    return LH_OK;
}

/* For links with an explicit message order, stores each message's predecessor
 * and successor on its link. */
static lh_status chain_turns(deadlock_walk *p, lh_error *err)
{
    const lh_exec *x = p->x;
    uint64_t *first = LHI_NEW(p->mem, uint64_t, (size_t)x->n_links + 1);
    if (!first)
        return lhi_fail_nomem(err);
    for (int round = 0; round < 2; round++) {
        uint32_t *at = NULL;
        if (round == 1) {
            for (uint32_t k = 0; k < x->n_links; k++)
                first[k + 1] += first[k];
            at = LHI_NEW(p->mem, uint32_t, first[x->n_links]);
            if (!at)
                return lhi_fail_nomem(err);
        }
        for (uint32_t r = 0; r < x->n_ranks; r++)
            for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
                const lhi_exec_pass *pass = &x->ranks[r].passes[i];
                if (pass->turn == UINT64_MAX)
                    continue;
                if (round == 0)
                    first[pass->link + 1]++;
                else
                    at[first[pass->link] + pass->turn] = pass->output;
            }
        for (uint32_t k = 0; round == 1 && k < x->n_links; k++)
            for (uint64_t i = first[k] + 1; i < first[k + 1]; i++) {
                p->next[at[i - 1]] = at[i];
                p->previous[at[i]] = at[i - 1];
            }
    }
    return LH_OK;
}

/* Decrements a message's unmet condition count; pushes the message to the stack
 * of movable ones when none remains. */
static void satisfy(deadlock_walk *p, uint32_t message)
{
    if (--p->n_waits[message] == 0)
        p->stack[p->n_stack++] = message;
}

/* Enqueues the output message of rank `r`'s last pass, if it has one, and posts
 * the receives that follow the pass. Returns false if the rank's send queue is
 * full. */
static bool issue_message(deadlock_walk *p, uint32_t r)
{
    const lhi_exec_rank *rank = &p->x->ranks[r];
    const lhi_exec_pass *next = &rank->passes[p->done[r]];
    if (p->has_unqueued[r]) {
        uint32_t queue = p->x->options.coupled_queue;
        bool queues = !next[-1].delegated;
        if (queue && queues && p->queued[r] == queue)
            return false;
        p->has_unqueued[r] = false;
        p->queued[r] += queues;
        satisfy(p, next[-1].output);
    }
    if (p->done[r] < rank->n_passes)
        for (uint32_t k = next->first_post; k < next[1].first_post; k++)
            satisfy(p, rank->posts[k].input);
    return true;
}

/* Checks whether the rank's next pass needs a collective or offload copy that
 * only a later pass launches. */
static bool needs_later_launch(const deadlock_walk *p, uint32_t r)
{
    const lhi_exec_rank *rank = &p->x->ranks[r];
    const lhi_exec_pass *pass = &rank->passes[p->done[r]];
    return p->done[r] < rank->n_passes &&
           (pass->n_required_data > pass->first_data ||
            pass->n_required_copies >
                lhi_exec_count_launched_copies(rank, p->done[r]));
}

/* Executes a rank's passes in order until one lacks its input or the send
 * queue is full. */
static void run_rank(deadlock_walk *p, uint32_t r)
{
    const lhi_exec_rank *rank = &p->x->ranks[r];
    if (p->has_unqueued[r] && !issue_message(p, r))
        return;
    while (p->done[r] < rank->n_passes) {
        const lhi_exec_pass *pass = &rank->passes[p->done[r]];
        if (needs_later_launch(p, r))
            return;
        if (pass->input != LH_NONE && !pass->local_input &&
            !p->is_available[pass->input])
            return;
        p->done[r]++;
        p->has_unqueued[r] = pass->output != LH_NONE && !pass->local_output;
        if (!issue_message(p, r))
            return;
    }
}

/* For a lane (the delegated messages to or from one rank) that receives, stores
 * each message's predecessor and successor in its copy queue. */
static void chain_queues(deadlock_walk *p, const lhi_exec_rank *rank,
                         const lhi_exec_lane *lane)
{
    for (uint32_t i = lane->n_queues; lane->receives && i < lane->n; i++) {
        uint32_t now = rank->posts[lane->items[i]].input;
        uint32_t before = rank->posts[lane->items[i - lane->n_queues]].input;
        p->previous_in_queue[now] = before;
        p->next_in_queue[before] = now;
    }
}

/* Prepares the deadlock check: stores each message's sending and receiving rank
 * and the condition count for its move, from all ranks' receives; links each
 * copy queue's messages. */
static void init(deadlock_walk *p)
{
    const lh_exec *x = p->x;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        const lhi_exec_rank *rank = &x->ranks[r];
        for (uint32_t k = 0; k < rank->n_posts; k++) {
            const lhi_exec_post *post = &rank->posts[k];
            p->consumer[post->input] = r;
            p->before[post->input] = post->before;
            p->producer[post->input] = post->peer;
            p->delegated[post->input] = post->delegated;
            p->n_waits[post->input] = (uint8_t)(2 - (post->before == 0));
            if (p->previous[post->input] != LH_NONE)
                p->n_waits[post->input]++;
        }
        for (uint32_t i = 0; i < rank->n_lanes; i++)
            chain_queues(p, rank, &rank->lanes[i]);
    }
}

/* Checks whether the input of the rank's next pass has arrived in host memory
 * but is not on the device yet: delegated messages (copied through host memory)
 * are copied in their queue's order, after earlier ones. */
static bool has_input_in_queue(const deadlock_walk *p, uint32_t r)
{
    const lhi_exec_rank *rank = &p->x->ranks[r];
    const lhi_exec_pass *pass = &rank->passes[p->done[r]];
    return p->done[r] < rank->n_passes && pass->input != LH_NONE &&
           !pass->local_input && p->moved[pass->input];
}

/* Fails with LH_EDEADLOCK: pass `pass` of rank `r` waits for an offload copy or
 * a collective that the rank itself launches only with a later pass. */
static lh_status fail_own_communication(const lhi_exec_rank *rank, uint32_t r,
                                        const lhi_exec_pass *pass,
                                        lh_error *err)
{
    char here[LH_PASS_TEXT_SIZE], there[LH_PASS_TEXT_SIZE];
    if (pass->n_required_copies >
        lhi_exec_count_launched_copies(rank, (uint32_t)(pass - rank->passes)))
        return lhi_fail(err, LH_EDEADLOCK,
                        "deadlock: rank %" PRIu32 " waits at %s for a copy of "
                        "activations that it "
                        "launches only later",
                        r, lh_pass_format(&pass->pass, here));
    const lhi_exec_data *data = &rank->data[pass->n_required_data - 1];
    return lhi_fail(err, LH_EDEADLOCK,
                    "deadlock: rank %" PRIu32 " waits at %s for a "
                    "communication of chunk %" PRIu32 " that it launches "
                    "itself only with %s",
                    r, lh_pass_format(&pass->pass, here), data->chunk,
                    lh_pass_format(&rank->passes[data->after].pass, there));
}

/* Fails with LH_EDEADLOCK: explains why rank `r` cannot run its next pass, and
 * how to avoid it. */
static lh_status fail_deadlock(const deadlock_walk *p, uint32_t r,
                               lh_error *err)
{
    const lhi_exec_rank *rank = &p->x->ranks[r];
    char here[LH_PASS_TEXT_SIZE], there[LH_PASS_TEXT_SIZE];
    const lhi_exec_pass *pass = &rank->passes[p->done[r]];
    if (p->has_unqueued[r])
        return lhi_fail(err, LH_EDEADLOCK,
                        "deadlock: rank %" PRIu32
                        " stops after %s because its send queue stays full; "
                        "make the queue longer",
                        r, lh_pass_format(&pass[-1].pass, here));
    lh_pass_format(&pass->pass, here);
    if (needs_later_launch(p, r))
        return fail_own_communication(rank, r, pass, err);
    uint32_t input = pass->input, maker = p->producer[input];
    const lhi_exec_rank *other = &p->x->ranks[maker];
    bool ended = p->done[maker] == other->n_passes;
    if (!ended)
        lh_pass_format(&other->passes[p->done[maker]].pass, there);
    if (has_input_in_queue(p, r))
        return lhi_fail(
            err, LH_EDEADLOCK,
            "deadlock: the input of %s on rank %" PRIu32
            " has arrived by the delegated path, but is behind one in its "
            "queue that never arrives; use more receive buffers",
            here, r);
    if (p->previous[input] != LH_NONE && !p->moved[p->previous[input]]) {
        uint32_t first = p->previous[input];
        return lhi_fail(
            err, LH_EDEADLOCK,
            "deadlock: the input of %s on rank %" PRIu32
            " can be sent only after a message to rank %" PRIu32
            ", which is never sent; use the links first in, first out, or more "
            "than %" PRIu32 " receive buffers",
            here, r, p->consumer[first],
            p->x->ranks[p->consumer[first]].n_slots);
    }
    return lhi_fail(err, LH_EDEADLOCK,
                    "deadlock: rank %" PRIu32 " waits at %s for rank %" PRIu32
                    ", which waits at %s",
                    r, here, maker, ended ? "its end" : there);
}

/* Marks an arrived delegated message as available to its pass once all earlier
 * messages of its copy queue are. Then runs the pass's rank and continues with
 * the later messages. */
static void mark_available(deadlock_walk *p, uint32_t message)
{
    while (message != LH_NONE && p->moved[message] &&
           (p->previous_in_queue[message] == LH_NONE ||
            p->is_available[p->previous_in_queue[message]])) {
        p->is_available[message] = true;
        run_rank(p, p->consumer[message]);
        message = p->next_in_queue[message];
    }
}

/* Simulates the ranks: executes passes and moves messages until nothing more is
 * possible. LH_EDEADLOCK: a pass remains. */
static lh_status run_all(deadlock_walk *p, lh_error *err)
{
    const lh_exec *x = p->x;
    init(p);
    for (uint32_t r = 0; r < x->n_ranks; r++)
        run_rank(p, r);
    while (p->n_stack) {
        uint32_t message = p->stack[--p->n_stack];
        p->moved[message] = true;
        if (p->next[message] != LH_NONE)
            satisfy(p, p->next[message]);
        p->queued[p->producer[message]] -= !p->delegated[message];
        mark_available(p, message);
        if (p->has_unqueued[p->producer[message]])
            run_rank(p, p->producer[message]);
    }
    uint32_t stuck = LH_NONE; /* prefer a rank that others wait for */
    for (uint32_t r = x->n_ranks; r-- > 0;)
        if (p->done[r] < x->ranks[r].n_passes)
            stuck = r;
    for (uint32_t r = x->n_ranks; r-- > 0;)
        if (has_input_in_queue(p, r))
            stuck = r;
    for (uint32_t r = x->n_ranks; r-- > 0;)
        if (p->has_unqueued[r] || needs_later_launch(p, r))
            stuck = r;
    return stuck == LH_NONE ? LH_OK : fail_deadlock(p, stuck, err);
}

lh_status lhi_exec_check_deadlock(const lh_exec *exec, lh_error *err)
{
    deadlock_walk p = {.x = exec, .mem = lhi_arena_make(0)};
    lh_status status = p.mem ? allocate(&p, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = chain_turns(&p, err);
    if (status == LH_OK)
        status = run_all(&p, err);
    lhi_arena_free(p.mem);
    return status;
}
