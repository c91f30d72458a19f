/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/emulated_links.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/futex.h"
#include "runtime/transport/link_sharing.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Upper bound on a link's times, 30 years, so that sums cannot overflow the
 * clock. */
#define MAX_LINK_NS INT64_C(1000000000000000000)

/* A message on a link. */
typedef struct message {
    int64_t entered_ns, transfer_ns, latency_ns, end_ns;
    int64_t arrival_ns; /* atomic */
    uint64_t turn;
    uint32_t sender;
    uint32_t known; /* atomic, futex: 1 once the arrival time is set */
    uint32_t next_free;
    bool used, left, taken; /* finalised: out of `order`, times are fixed */
} message;

/* One emulated link. */
typedef struct link {
    pthread_mutex_t lock;
    lhi_net_link rule;
    bool broken, in_turns;
    /* Last finalised message: its transfer's end, and its arrival. */
    int64_t free_ns, arrived_ns;
    uint64_t next_turn;  /* turn of order[head] */
    uint32_t head, tail; /* range of `order` in use */
    /* slots ever used; first free one + 1 */
    uint32_t n_slots, free_slot;
    uint32_t order[2 * LHI_LINKS_MAX_MESSAGES]; /* slots in departure order */
    message slots[LHI_LINKS_MAX_MESSAGES];
} link;

/* The table; in memory shared between processes. */
struct lhi_links {
    uint32_t n_links;
    bool is_shared;        /* some link is */
    size_t sharing_offset; /* in bytes: the table of shared links */
    link links[];
};

/* Returns the offset in bytes of the table of shared links, aligned for any
 * type. */
static size_t compute_sharing_offset(uint32_t n_links)
{
    const size_t end = sizeof(lhi_links) + n_links * sizeof(link);
    return (end + 63) / 64 * 64;
}

/* Returns the table of shared links. */
static lhi_sharing *get_sharing(lhi_links *table)
{
    return (lhi_sharing *)(void *)((char *)table + table->sharing_offset);
}

lh_status lhi_links_check(uint32_t n_links, const lhi_net_link *links,
                          lh_error *err)
{
    if (n_links > LHI_LINKS_MAX)
        return lhi_fail(err, LH_EINVAL, "%u emulated links, more than %d",
                        n_links, LHI_LINKS_MAX);
    for (uint32_t i = 0; i < n_links; i++) {
        const lhi_net_link *l = &links[i];
        if (l->latency_ns < 0 || l->latency_ns > MAX_LINK_NS ||
            l->transfer_ns < 0 || l->transfer_ns > MAX_LINK_NS ||
            !isfinite(l->ns_per_byte) || l->ns_per_byte < 0)
            return lhi_fail(err, LH_EINVAL,
                            "emulated link %u: latency %" PRId64
                            " ns, transfer %" PRId64
                            " ns and %g ns per byte must be at least 0 and at "
                            "most 30 years",
                            i, l->latency_ns, l->transfer_ns, l->ns_per_byte);
    }
    return LH_OK;
}

size_t lhi_links_bytes(uint32_t n_links)
{
    return compute_sharing_offset(n_links) + lhi_sharing_bytes(n_links);
}

lh_status lhi_links_init(lhi_links *table, uint32_t n_links,
                         const lhi_net_link *links, lh_error *err)
{
    pthread_mutexattr_t how;
    int error = pthread_mutexattr_init(&how);
    if (error == 0)
        error = pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    table->n_links = 0;
    table->is_shared = false;
    table->sharing_offset = compute_sharing_offset(n_links);
    bool shared = false;
    for (uint32_t i = 0; i < n_links && error == 0; i++) {
        link *l = &table->links[i];
        l->rule = links[i];
        shared = shared || l->rule.sharing != LHI_LINK_UNSHARED;
        l->free_ns = l->arrived_ns = INT64_MIN;
        error = pthread_mutex_init(&l->lock, &how);
        if (error == 0)
            table->n_links++;
    }
    pthread_mutexattr_destroy(&how);
    lh_status status =
        error == 0 ? LH_OK
                   : lhi_fail(err, LH_EIO, "no lock for an emulated link: %s",
                              strerror(error));
    if (status == LH_OK && shared)
        status = lhi_sharing_init(get_sharing(table), n_links, links, err);
    table->is_shared = shared && status == LH_OK;
    if (status != LH_OK)
        lhi_links_fini(table);
    return status;
}

void lhi_links_fini(lhi_links *table)
{
    for (uint32_t i = 0; i < table->n_links; i++)
        pthread_mutex_destroy(&table->links[i].lock);
    if (table->is_shared)
        lhi_sharing_fini(get_sharing(table));
    table->is_shared = false;
    table->n_links = 0;
}

/* Locks an emulated link; fails if an earlier lock owner was killed. */
static lh_status lock_link(link *l, uint32_t i, lh_error *err)
{
    int error = pthread_mutex_lock(&l->lock);
    if (error == EOWNERDEAD) {
        /* The owner died in the middle of an update: the link is unusable. */
        l->broken = true;
        pthread_mutex_consistent(&l->lock);
        error = 0;
    }
    if (error == 0 && !l->broken)
        return LH_OK;
    if (error == 0)
        pthread_mutex_unlock(&l->lock);
    return lhi_fail(err, LH_EIO,
                    "a rank was killed while it used emulated link %u", i);
}

/* Returns message slot `i` to the link's free-slot list. */
static void free_slot(link *l, uint32_t i)
{
    l->slots[i].used = false;
    l->slots[i].next_free = l->free_slot;
    l->free_slot = i + 1;
}

/* Takes a free message slot of the link and returns its index;
 * LHI_LINKS_MAX_MESSAGES if all are in use. */
static uint32_t take_slot(link *l)
{
    uint32_t i = LHI_LINKS_MAX_MESSAGES;
    if (l->free_slot > 0) {
        i = l->free_slot - 1;
        l->free_slot = l->slots[i].next_free;
    } else if (l->n_slots < LHI_LINKS_MAX_MESSAGES) {
        i = l->n_slots++;
    }
    return i;
}

/* Removes the messages that have arrived by now_ns from the link's departure
 * order, because their times can no longer change. */
static void finalise_arrived(link *l, int64_t now_ns)
{
    while (l->head < l->tail) {
        uint32_t i = l->order[l->head];
        message *s = &l->slots[i];
        if (s->arrival_ns > now_ns)
            break;
        l->free_ns = s->end_ns;
        l->arrived_ns = s->arrival_ns;
        l->next_turn++;
        l->head++;
        s->left = true;
        if (s->taken)
            free_slot(l, i);
    }
    if (l->head == l->tail)
        l->head = l->tail = 0;
}

/* Checks whether message a departs before b: by turn if the link's messages
 * have turns, else by entry time. */
static bool departs_before(const link *l, const message *a, const message *b)
{
    if (l->in_turns)
        return a->turn < b->turn;
    if (a->entered_ns != b->entered_ns)
        return a->entered_ns < b->entered_ns;
    return a->sender < b->sender;
}

/* Inserts the message in slot `i` into the link's departure order (by turn,
 * else by entry time); returns its position. */
static uint32_t insert_in_order(link *l, uint32_t i)
{
    if (l->tail == 2 * LHI_LINKS_MAX_MESSAGES) {
        memmove(l->order, l->order + l->head,
                (l->tail - l->head) * sizeof l->order[0]);
        l->tail -= l->head;
        l->head = 0;
    }
    uint32_t place = l->tail++;
    while (place > l->head &&
           departs_before(l, &l->slots[i], &l->slots[l->order[place - 1]])) {
        l->order[place] = l->order[place - 1];
        place--;
    }
    l->order[place] = i;
    return place;
}

/* Computes the transfer and arrival times of the messages from position `place`
 * of the departure order on. A later message never arrives before an earlier
 * one, even if the latency has fallen. */
static void compute_times(link *l, uint32_t place)
{
    int64_t free_ns = l->free_ns, arrived_ns = l->arrived_ns;
    if (place > l->head) {
        free_ns = l->slots[l->order[place - 1]].end_ns;
        arrived_ns = l->slots[l->order[place - 1]].arrival_ns;
    }
    for (; place < l->tail; place++) {
        message *s = &l->slots[l->order[place]];
        if (l->in_turns && s->turn != l->next_turn + (place - l->head))
            return; /* an earlier turn has not been handed over yet */
        int64_t start_ns = s->entered_ns > free_ns ? s->entered_ns : free_ns;
        free_ns = start_ns + s->transfer_ns;
        if (free_ns + s->latency_ns > arrived_ns)
            arrived_ns = free_ns + s->latency_ns;
        bool same =
            s->known && s->end_ns == free_ns && s->arrival_ns == arrived_ns;
        s->end_ns = free_ns;
        __atomic_store_n(&s->arrival_ns, arrived_ns, __ATOMIC_RELEASE);
        if (same)
            return;
        if (!s->known) {
            __atomic_store_n(&s->known, 1, __ATOMIC_RELEASE);
            if (l->in_turns)
                lhi_futex_wake(&s->known, true);
        }
    }
}

/* Checks that a turn (position in the link's departure order) is not used
 * twice and that all messages on the link have one, or none. */
static lh_status check_turn(const link *l, uint32_t i, uint64_t turn,
                            lh_error *err)
{
    if (l->head < l->tail && l->in_turns != (turn != LHI_NET_NO_TURN))
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u: some messages have a turn and some "
                        "have none",
                        i);
    if (turn == LHI_NET_NO_TURN)
        return LH_OK;
    bool twice = turn < l->next_turn;
    for (uint32_t k = l->tail; k > l->head && !twice; k--) {
        uint64_t other = l->slots[l->order[k - 1]].turn;
        twice = other == turn;
        if (other < turn)
            break;
    }
    if (twice)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u: turn %" PRIu64 " is used twice", i,
                        turn);
    return LH_OK;
}

/* Computes the time for which a message of `bytes` bytes occupies link `l`, of
 * index `i`, into *out. LH_EINVAL: it is too long. */
static lh_status compute_transfer(const link *l, uint32_t i, size_t bytes,
                                  int64_t *out, lh_error *err)
{
    double transfer_ns =
        (double)l->rule.transfer_ns + (double)bytes * l->rule.ns_per_byte;
    if (transfer_ns > (double)MAX_LINK_NS)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u: %zu bytes would take %g s", i, bytes,
                        transfer_ns * 1e-9);
    *out = l->rule.transfer_ns +
           (int64_t)((double)bytes * l->rule.ns_per_byte + 0.5);
    return LH_OK;
}

/* Adds a message that takes transfer_ns from rank `sender` to link `l`, which
 * is locked and has index `i`; *out: its slot. `turn`: its position in the
 * departure order. */
static lh_status enter_link(link *l, uint32_t i, uint32_t sender,
                            int64_t transfer_ns, int64_t entered_ns,
                            uint64_t turn, uint32_t *out, lh_error *err)
{
    finalise_arrived(l, lhi_now_ns());
    LHI_TRY(check_turn(l, i, turn, err));
    uint32_t index = take_slot(l);
    if (index == LHI_LINKS_MAX_MESSAGES)
        return lhi_fail(
            err, LH_EIO,
            "emulated link %u has %d messages that are not received", i,
            LHI_LINKS_MAX_MESSAGES);
    message *s = &l->slots[index];
    *s = (message){.entered_ns = entered_ns,
                   .transfer_ns = transfer_ns,
                   .latency_ns = l->rule.latency_ns,
                   .arrival_ns = LHI_LINKS_UNKNOWN,
                   .turn = turn,
                   .sender = sender,
                   .used = true};
    l->in_turns = turn != LHI_NET_NO_TURN;
    compute_times(l, insert_in_order(l, index));
    *out = index;
    return LH_OK;
}

lh_status lhi_links_enter(lhi_links *table, uint32_t i, uint32_t sender,
                          size_t bytes, int64_t entered_ns, uint64_t turn,
                          uint32_t *slot, lh_error *err)
{
    if (i >= table->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has %u", i,
                        table->n_links);
    link *l = &table->links[i];
    int64_t transfer_ns;
    LHI_TRY(lock_link(l, i, err));
    const lhi_net_link rule = l->rule;
    lh_status status = compute_transfer(l, i, bytes, &transfer_ns, err);
    if (status == LH_OK && rule.sharing == LHI_LINK_UNSHARED)
        status =
            enter_link(l, i, sender, transfer_ns, entered_ns, turn, slot, err);
    pthread_mutex_unlock(&l->lock);
    if (status != LH_OK || rule.sharing == LHI_LINK_UNSHARED)
        return status;
    return lhi_sharing_add_message(get_sharing(table), i, sender, &rule,
                                   transfer_ns, entered_ns, turn, slot, err);
}

/* Fails unless the run has shared links. */
static lh_status check_shared(const lhi_links *table, lh_error *err)
{
    return table->is_shared
               ? LH_OK
               : lhi_fail(err, LH_EINVAL, "the run has no shared links");
}

lh_status lhi_links_add_collective(lhi_links *table, uint32_t rank,
                                   const lhi_net_collective *what,
                                   uint32_t *slot, lh_error *err)
{
    LHI_TRY(check_shared(table, err));
    return lhi_sharing_add_collective(get_sharing(table), rank, what, slot,
                                      err);
}

lh_status lhi_links_take_collective(lhi_links *table, uint32_t slot,
                                    int64_t now_ns, bool *taken,
                                    lhi_net_transfer *times, lh_error *err)
{
    LHI_TRY(check_shared(table, err));
    return lhi_sharing_take(get_sharing(table), slot, now_ns, taken, times,
                            err);
}

lh_status lhi_links_set(lhi_links *table, uint32_t i, const lhi_net_link *rule,
                        lh_error *err)
{
    if (i >= table->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has %u", i,
                        table->n_links);
    link *l = &table->links[i];
    LHI_TRY(lhi_links_check(1, rule, err));
    LHI_TRY(lock_link(l, i, err));
    /* Waiting ranks read l->rule.sharing without the lock. */
    l->rule.latency_ns = rule->latency_ns;
    l->rule.transfer_ns = rule->transfer_ns;
    l->rule.ns_per_byte = rule->ns_per_byte;
    pthread_mutex_unlock(&l->lock);
    return LH_OK;
}

lh_status lhi_links_suspend(lhi_links *table, uint32_t i, int64_t until_ns,
                            lh_error *err)
{
    if (i >= table->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has %u", i,
                        table->n_links);
    link *l = &table->links[i];
    if (l->rule.sharing != LHI_LINK_UNSHARED)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "emulated link %u is shared with data-parallel "
                        "communication and cannot be suspended",
                        i);
    LHI_TRY(lock_link(l, i, err));
    finalise_arrived(l, lhi_now_ns());
    if (l->free_ns < until_ns)
        l->free_ns = until_ns;
    compute_times(l, l->head);
    pthread_mutex_unlock(&l->lock);
    return LH_OK;
}

bool lhi_links_is_valid(const lhi_links *table, uint32_t i, uint32_t slot)
{
    if (!table || i >= table->n_links)
        return false;
    return slot < (table->links[i].rule.sharing == LHI_LINK_UNSHARED
                       ? (uint32_t)LHI_LINKS_MAX_MESSAGES
                       : (uint32_t)LHI_SHARING_MAX_INPUTS);
}

lh_status lhi_links_take(lhi_links *table, uint32_t i, uint32_t index,
                         int64_t now_ns, bool *taken, int64_t *began_ns,
                         int64_t *arrived_ns, lh_error *err)
{
    link *l = &table->links[i];
    if (l->rule.sharing != LHI_LINK_UNSHARED) {
        lhi_net_transfer times;
        LHI_TRY(lhi_sharing_take(get_sharing(table), index, now_ns, taken,
                                 &times, err));
        *began_ns = times.depart_ns;
        *arrived_ns = times.arrive_ns;
        return LH_OK;
    }
    message *s = &l->slots[index];
    *taken = false;
    *arrived_ns = __atomic_load_n(&s->arrival_ns, __ATOMIC_ACQUIRE);
    if (*arrived_ns > now_ns)
        return LH_OK;
    /* The arrival may have been postponed meanwhile. */
    LHI_TRY(lock_link(l, i, err));
    if (!s->used || s->taken) {
        pthread_mutex_unlock(&l->lock);
        return lhi_fail(err, LH_EIO,
                        "emulated link %u has no message %u in transit", i,
                        index);
    }
    *arrived_ns = s->arrival_ns;
    if (*arrived_ns <= now_ns) {
        *taken = s->taken = true;
        *began_ns = s->end_ns - s->transfer_ns;
        finalise_arrived(l, now_ns);
        if (s->left && s->used)
            free_slot(l, index);
    }
    pthread_mutex_unlock(&l->lock);
    return LH_OK;
}

void lhi_links_wait_known(lhi_links *table, uint32_t i, uint32_t slot,
                          int64_t until_ns)
{
    if (table->links[i].rule.sharing != LHI_LINK_UNSHARED)
        lhi_sharing_wait_known(get_sharing(table), slot, until_ns);
    else
        lhi_futex_wait(&table->links[i].slots[slot].known, 0, until_ns, true);
}
