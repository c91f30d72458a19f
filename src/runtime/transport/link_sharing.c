/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/link_sharing.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "runtime/transport/emulated_links.h"
#include "runtime/transport/futex.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#define NONE UINT32_MAX
#define NEVER INT64_MAX

enum { MAX_RANKS = 4096 };

/* A message or a collective. */
typedef struct input {
    int64_t entered_ns, transfer_ns, latency_ns;
    uint64_t turn;     /* of a message */
    uint32_t link;     /* of a message */
    uint32_t rank;     /* sender */
    uint32_t n_pieces; /* 0: a message */
    uint32_t active;   /* atomic, futex: 1 once all earlier turns are known */
    bool taken;
    /* results, valid if `known` */
    bool known;
    lhi_net_transfer times;
    uint32_t next; /* in its link's queue or its rank's stream; NONE: last */
} input;

/* Work of a message or a piece that shares its links by rate. */
typedef struct transfer {
    bool is_active, is_shared; /* is_shared: it has half of the rate */
    int64_t depart_ns, since_ns, end_ns;
    int64_t left; /* at since_ns: half nanoseconds at full rate */
} transfer;

/* A link's state in the simulation. */
typedef struct shared_link {
    int64_t free_ns;    /* end of the last transfer; not by rate */
    int64_t arrived_ns; /* latest arrival; later messages do not overtake */
    uint32_t head, tail, current; /* messages; by rate */
    uint32_t sender;              /* rank whose piece is on it; by rate */
    transfer message;
} shared_link;

/* A rank's stream of collectives in the simulation. */
typedef struct stream {
    uint32_t head, tail; /* launched, not sent */
    uint32_t piece;      /* next one of `head` */
    int64_t request_ns;  /* entry of that piece; NEVER: none, or it entered */
    int64_t free_ns;     /* end of the last collective */
    uint64_t entry;      /* order of entry */
    bool waits;          /* entered, not begun */
    transfer sending;    /* by rate */
} stream;

/* A rank's links. */
typedef struct stream_links {
    uint32_t n;
    uint32_t all[LHI_SHARING_MAX_LINKS];
} stream_links;

/* The table; in memory shared between processes. */
struct lhi_sharing {
    pthread_mutex_t lock;
    bool broken;
    lhi_link_sharing rule;
    uint32_t n_links, n_streams;
    /* Latest end that a rank has observed: inputs enter then or later. */
    int64_t observed_ns;
    uint32_t n_inputs, n_taken, n_active;
    input inputs[LHI_SHARING_MAX_INPUTS];
    uint32_t order[LHI_SHARING_MAX_INPUTS]; /* active inputs by entry */
    stream_links links_of[MAX_RANKS];
    /* simulation, up to the input order[next] */
    uint32_t next;
    int64_t simulated_ns; /* events before this time are done */
    uint64_t n_entries;
    stream streams[MAX_RANKS];
    struct {
        uint64_t next_turn;
        int64_t entered_ns; /* of the previous turn */
    } turns[LHI_LINKS_MAX];
    shared_link links[];
};

size_t lhi_sharing_bytes(uint32_t n_links)
{
    return sizeof(lhi_sharing) + n_links * sizeof(shared_link);
}

/* --- simulation ------------------------------------------------------------
 */

/* Sets the state before the first input. */
static void restart(lhi_sharing *t)
{
    t->next = 0;
    t->simulated_ns = INT64_MIN;
    t->n_entries = 0;
    for (uint32_t i = 0; i < t->n_links; i++)
        t->links[i] = (shared_link){.free_ns = INT64_MIN,
                                    .arrived_ns = INT64_MIN,
                                    .head = NONE,
                                    .tail = NONE,
                                    .current = NONE,
                                    .sender = NONE};
    for (uint32_t r = 0; r < t->n_streams; r++)
        t->streams[r] = (stream){.head = NONE,
                                 .tail = NONE,
                                 .request_ns = NEVER,
                                 .free_ns = INT64_MIN};
    for (uint32_t i = 0; i < t->n_inputs; i++)
        t->inputs[i].known = false;
}

/* Records the end of a message's transfer. */
static void finish_message(lhi_sharing *t, uint32_t i, int64_t depart_ns,
                           int64_t sent_ns)
{
    input *m = &t->inputs[i];
    shared_link *l = &t->links[m->link];
    l->arrived_ns = lhi_max_int64(l->arrived_ns, sent_ns + m->latency_ns);
    m->times = (lhi_net_transfer){depart_ns, sent_ns, l->arrived_ns};
    m->known = true;
}

/* Returns the duration of the stream's next piece at full rate. */
static int64_t get_piece_ns(const lhi_sharing *t, const stream *s)
{
    const input *c = &t->inputs[s->head];
    return lhi_split_evenly(c->transfer_ns, s->piece, c->n_pieces);
}

/* Records the end of the stream's piece, and requests the next one. */
static void finish_piece(lhi_sharing *t, stream *s, int64_t depart_ns,
                         int64_t sent_ns)
{
    input *c = &t->inputs[s->head];
    if (s->piece == 0)
        c->times.depart_ns = depart_ns;
    s->request_ns = sent_ns;
    if (++s->piece < c->n_pieces)
        return;
    c->times.sent_ns = sent_ns;
    c->times.arrive_ns = sent_ns + c->latency_ns;
    c->known = true;
    s->piece = 0;
    s->head = c->next;
    s->free_ns = sent_ns;
    if (s->head == NONE) {
        s->tail = NONE;
        s->request_ns = NEVER;
    }
}

/* Gives a transfer its rate from `now` on. */
static void set_rate(transfer *x, bool is_shared, int64_t now)
{
    x->left -= (now - x->since_ns) * (x->is_shared ? 1 : 2);
    x->since_ns = now;
    x->is_shared = is_shared;
    x->end_ns = now + lhi_max_int64(is_shared ? x->left : (x->left + 1) / 2, 0);
}

/* Starts a transfer of duration `ns` at full rate. */
static void start_transfer(transfer *x, int64_t ns, bool is_shared, int64_t now)
{
    *x = (transfer){
        .is_active = true, .depart_ns = now, .since_ns = now, .left = 2 * ns};
    set_rate(x, is_shared, now);
}

/* Checks whether one of rank r's links transfers a message. */
static bool meets_message(const lhi_sharing *t, uint32_t r)
{
    for (uint32_t i = 0; i < t->links_of[r].n; i++)
        if (t->links[t->links_of[r].all[i]].message.is_active)
            return true;
    return false;
}

/* Updates the rate of the piece on link `l` after a message began or ended. */
static void update_piece(lhi_sharing *t, const shared_link *l, int64_t now)
{
    if (l->sender == NONE)
        return;
    transfer *x = &t->streams[l->sender].sending;
    const bool is_shared = meets_message(t, l->sender);
    if (is_shared != x->is_shared)
        set_rate(x, is_shared, now);
}

/* Starts the next message on a link that is shared by rate, if it has one. */
static void start_message(lhi_sharing *t, shared_link *l, int64_t now)
{
    if (l->head == NONE || l->message.is_active)
        return;
    l->current = l->head;
    l->head = t->inputs[l->head].next;
    start_transfer(&l->message, t->inputs[l->current].transfer_ns,
                   l->sender != NONE, now);
}

/* Makes `sender` (NONE: nobody) the rank whose piece is on rank r's links. */
static void set_sender(lhi_sharing *t, uint32_t r, uint32_t sender, int64_t now)
{
    for (uint32_t i = 0; i < t->links_of[r].n; i++) {
        shared_link *l = &t->links[t->links_of[r].all[i]];
        l->sender = sender;
        if (l->message.is_active)
            set_rate(&l->message, sender != NONE, now);
    }
}

/* Returns the waiting stream with the least entry of at least `after`; NONE:
 * there is none. */
static uint32_t find_waiting(const lhi_sharing *t, uint64_t after)
{
    uint32_t first = NONE;
    for (uint32_t r = 0; r < t->n_streams; r++)
        if (t->streams[r].waits && t->streams[r].entry >= after &&
            (first == NONE || t->streams[r].entry < t->streams[first].entry))
            first = r;
    return first;
}

/* Checks whether rank r's piece, by rate, meets another piece on its links, or
 * an earlier piece (before entry `entry`) that waits for one of them. */
static bool is_blocked(const lhi_sharing *t, uint32_t r)
{
    const stream_links *own = &t->links_of[r];
    for (uint32_t i = 0; i < own->n; i++)
        if (t->links[own->all[i]].sender != NONE)
            return true;
    for (uint32_t k = 0; k < t->n_streams; k++) {
        if (!t->streams[k].waits || t->streams[k].entry >= t->streams[r].entry)
            continue;
        for (uint32_t i = 0; i < own->n; i++)
            for (uint32_t j = 0; j < t->links_of[k].n; j++)
                if (own->all[i] == t->links_of[k].all[j])
                    return true;
    }
    return false;
}

/* Starts, by rate, all waiting pieces that can start, in order of entry. */
static void start_pieces(lhi_sharing *t, int64_t now)
{
    uint64_t after = 0;
    for (uint32_t r; (r = find_waiting(t, after)) != NONE;) {
        stream *s = &t->streams[r];
        after = s->entry + 1;
        if (is_blocked(t, r))
            continue;
        s->waits = false;
        start_transfer(&s->sending, get_piece_ns(t, s), meets_message(t, r),
                       now);
        set_sender(t, r, r, now);
    }
}

/* Returns the time from which rank r's links are free, at least `now`. */
static int64_t get_free_ns(const lhi_sharing *t, uint32_t r, int64_t now)
{
    for (uint32_t i = 0; i < t->links_of[r].n; i++)
        now = lhi_max_int64(now, t->links[t->links_of[r].all[i]].free_ns);
    return now;
}

/* Sends the stream's piece at depart_ns, not by rate. */
static void send_piece(lhi_sharing *t, uint32_t r, int64_t depart_ns)
{
    stream *s = &t->streams[r];
    const int64_t sent_ns = depart_ns + get_piece_ns(t, s);
    for (uint32_t i = 0; i < t->links_of[r].n; i++)
        t->links[t->links_of[r].all[i]].free_ns = sent_ns;
    s->waits = false;
    finish_piece(t, s, depart_ns, sent_ns);
}

/* A message enters its link at `now`. */
static void enter_message(lhi_sharing *t, uint32_t i, int64_t now)
{
    input *m = &t->inputs[i];
    shared_link *l = &t->links[m->link];
    if (t->rule != LHI_LINK_FAIR) {
        const int64_t depart_ns = lhi_max_int64(now, l->free_ns);
        l->free_ns = depart_ns + m->transfer_ns;
        finish_message(t, i, depart_ns, l->free_ns);
        return;
    }
    m->next = NONE;
    if (l->head == NONE)
        l->head = i;
    else
        t->inputs[l->tail].next = i;
    l->tail = i;
    start_message(t, l, now);
    update_piece(t, l, now);
}

/* A collective enters its rank's stream at `now`. */
static void enter_collective(lhi_sharing *t, uint32_t i, int64_t now)
{
    stream *s = &t->streams[t->inputs[i].rank];
    t->inputs[i].next = NONE;
    if (s->head != NONE) {
        t->inputs[s->tail].next = i;
        s->tail = i;
        return;
    }
    s->head = s->tail = i;
    s->piece = 0;
    s->request_ns = lhi_max_int64(now, s->free_ns);
}

/* Ends the transfers by rate that are due at `now`: messages first, by link,
 * then pieces, by rank. Returns whether there was one. */
static bool end_transfer(lhi_sharing *t, int64_t now)
{
    for (uint32_t i = 0; i < t->n_links; i++) {
        shared_link *l = &t->links[i];
        if (!l->message.is_active || l->message.end_ns > now)
            continue;
        l->message.is_active = false;
        finish_message(t, l->current, l->message.depart_ns, now);
        start_message(t, l, now);
        update_piece(t, l, now);
        return true;
    }
    for (uint32_t r = 0; r < t->n_streams; r++) {
        stream *s = &t->streams[r];
        if (!s->sending.is_active || s->sending.end_ns > now)
            continue;
        s->sending.is_active = false;
        finish_piece(t, s, s->sending.depart_ns, now);
        set_sender(t, r, NONE, now);
        start_pieces(t, now);
        return true;
    }
    return false;
}

/* Lets the pieces requested for `now` enter, lower ranks first. */
static void enter_pieces(lhi_sharing *t, int64_t now)
{
    for (uint32_t r = 0; r < t->n_streams; r++) {
        stream *s = &t->streams[r];
        if (s->request_ns > now)
            continue;
        s->request_ns = NEVER;
        s->entry = t->n_entries++;
        s->waits = true;
        if (t->rule == LHI_LINK_FIFO)
            send_piece(t, r, get_free_ns(t, r, now));
        else if (t->rule == LHI_LINK_FAIR)
            start_pieces(t, now);
    }
    uint64_t after = 0;
    for (uint32_t r; t->rule == LHI_LINK_MESSAGES_FIRST &&
                     (r = find_waiting(t, after)) != NONE;) {
        after = t->streams[r].entry + 1;
        if (get_free_ns(t, r, now) <= now)
            send_piece(t, r, now);
    }
}

/* Returns the time of the next event; NEVER: none. */
static int64_t find_next_event(const lhi_sharing *t)
{
    int64_t ns =
        t->next < t->n_active ? t->inputs[t->order[t->next]].entered_ns : NEVER;
    for (uint32_t r = 0; r < t->n_streams; r++) {
        const stream *s = &t->streams[r];
        ns = lhi_min_int64(ns, s->request_ns);
        if (s->sending.is_active)
            ns = lhi_min_int64(ns, s->sending.end_ns);
        if (s->waits && t->rule == LHI_LINK_MESSAGES_FIRST)
            ns = lhi_min_int64(ns, get_free_ns(t, r, INT64_MIN));
    }
    for (uint32_t i = 0; i < t->n_links && t->rule == LHI_LINK_FAIR; i++)
        if (t->links[i].message.is_active)
            ns = lhi_min_int64(ns, t->links[i].message.end_ns);
    return ns;
}

/* Simulates until the times of the input in `slot` are known, if they can be.
 */
static void simulate(lhi_sharing *t, uint32_t slot)
{
    while (!t->inputs[slot].known) {
        const int64_t found_ns = find_next_event(t);
        if (found_ns == NEVER)
            return;
        const int64_t now = lhi_max_int64(found_ns, t->simulated_ns);
        t->simulated_ns = now;
        while (t->rule == LHI_LINK_FAIR && end_transfer(t, now))
            ;
        for (; t->next < t->n_active; t->next++) {
            const uint32_t i = t->order[t->next];
            if (t->inputs[i].entered_ns > now)
                break;
            if (t->inputs[i].n_pieces)
                enter_collective(t, i, now);
            else
                enter_message(t, i, now);
        }
        enter_pieces(t, now);
    }
}

/* --- inputs ----------------------------------------------------------------
 */

/* Checks whether input a enters before b: by time, messages before collectives,
 * the messages of a link by turn, lower ranks first. */
static bool enters_before(const input *a, const input *b)
{
    if (a->entered_ns != b->entered_ns)
        return a->entered_ns < b->entered_ns;
    if ((a->n_pieces > 0) != (b->n_pieces > 0))
        return a->n_pieces == 0;
    if (a->link != b->link)
        return a->link < b->link;
    if (a->turn != b->turn)
        return a->turn < b->turn;
    return a->rank < b->rank;
}

/* Lets input i enter, at or after the latest observed end. */
static void activate(lhi_sharing *t, uint32_t i)
{
    input *x = &t->inputs[i];
    x->entered_ns = lhi_max_int64(x->entered_ns, t->observed_ns);
    uint32_t at = t->n_active++;
    for (; at > 0 && enters_before(x, &t->inputs[t->order[at - 1]]); at--)
        t->order[at] = t->order[at - 1];
    t->order[at] = i;
    if (at < t->next || x->entered_ns <= t->simulated_ns)
        restart(t);
    __atomic_store_n(&x->active, 1, __ATOMIC_RELEASE);
    lhi_futex_wake(&x->active, true);
}

/* Lets message i enter, and all those on its link that waited for its turn. */
static void activate_turns(lhi_sharing *t, uint32_t i)
{
    const uint32_t link = t->inputs[i].link;
    while (i != NONE) {
        input *m = &t->inputs[i];
        m->entered_ns = lhi_max_int64(m->entered_ns, t->turns[link].entered_ns);
        t->turns[link].entered_ns = m->entered_ns;
        t->turns[link].next_turn = m->turn + 1;
        activate(t, i);
        i = NONE;
        for (uint32_t k = 0; k < t->n_inputs && i == NONE; k++)
            if (!t->inputs[k].active && t->inputs[k].link == link &&
                t->inputs[k].n_pieces == 0 &&
                t->inputs[k].turn == t->turns[link].next_turn)
                i = k;
    }
}

lh_status lhi_sharing_init(lhi_sharing *t, uint32_t n_links,
                           const lhi_net_link *links, lh_error *err)
{
    pthread_mutexattr_t how;
    int error = pthread_mutexattr_init(&how);
    if (error == 0)
        error = pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    if (error == 0)
        error = pthread_mutex_init(&t->lock, &how);
    pthread_mutexattr_destroy(&how);
    if (error != 0)
        return lhi_fail(err, LH_EIO, "no lock for shared emulated links: %s",
                        strerror(error));
    t->observed_ns = INT64_MIN;
    t->n_links = n_links;
    for (uint32_t i = 0; i < n_links; i++) {
        t->turns[i].entered_ns = INT64_MIN;
        if (links[i].sharing != LHI_LINK_UNSHARED)
            t->rule = links[i].sharing;
    }
    restart(t);
    return LH_OK;
}

void lhi_sharing_fini(lhi_sharing *t)
{
    pthread_mutex_destroy(&t->lock);
}

/* Locks the table; fails if an earlier owner of the lock was killed. */
static lh_status lock_table(lhi_sharing *t, lh_error *err)
{
    int error = pthread_mutex_lock(&t->lock);
    if (error == EOWNERDEAD) {
        t->broken = true;
        pthread_mutex_consistent(&t->lock);
        error = 0;
    }
    if (error == 0 && !t->broken)
        return LH_OK;
    if (error == 0)
        pthread_mutex_unlock(&t->lock);
    return lhi_fail(err, LH_EIO,
                    "a rank was killed while it used the shared emulated "
                    "links");
}

/* Appends an input to the locked table; *slot: its index. */
static lh_status append(lhi_sharing *t, const input *x, uint32_t *slot,
                        lh_error *err)
{
    if (t->n_taken == t->n_inputs && t->n_inputs > 0) { /* all are done */
        t->n_inputs = t->n_taken = t->n_active = 0;
        restart(t);
    }
    if (t->n_inputs == LHI_SHARING_MAX_INPUTS)
        return lhi_fail(err, LH_EIO,
                        "shared emulated links have %d messages and "
                        "collectives at once, the supported maximum",
                        LHI_SHARING_MAX_INPUTS);
    *slot = t->n_inputs++;
    t->inputs[*slot] = *x;
    return LH_OK;
}

/* Adds a message to the locked table. */
static lh_status add_message(lhi_sharing *t, const input *m, uint32_t *slot,
                             lh_error *err)
{
    if (m->turn == LHI_NET_NO_TURN) {
        LHI_TRY(append(t, m, slot, err));
        activate(t, *slot);
        return LH_OK;
    }
    bool twice = m->turn < t->turns[m->link].next_turn;
    for (uint32_t i = 0; i < t->n_inputs && !twice; i++)
        twice = !t->inputs[i].active && t->inputs[i].n_pieces == 0 &&
                t->inputs[i].link == m->link && t->inputs[i].turn == m->turn;
    if (twice)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u: turn %" PRIu64 " is used twice",
                        m->link, m->turn);
    LHI_TRY(append(t, m, slot, err));
    if (m->turn == t->turns[m->link].next_turn)
        activate_turns(t, *slot);
    return LH_OK;
}

lh_status lhi_sharing_add_message(lhi_sharing *t, uint32_t link,
                                  uint32_t sender, const lhi_net_link *rule,
                                  int64_t transfer_ns, int64_t entered_ns,
                                  uint64_t turn, uint32_t *slot, lh_error *err)
{
    const input m = {.entered_ns = entered_ns,
                     .transfer_ns = transfer_ns,
                     .latency_ns = rule->latency_ns,
                     .turn = turn,
                     .link = link,
                     .rank = sender};
    LHI_TRY(lock_table(t, err));
    lh_status status = add_message(t, &m, slot, err);
    pthread_mutex_unlock(&t->lock);
    return status;
}

lh_status lhi_sharing_add_collective(lhi_sharing *t, uint32_t rank,
                                     const lhi_net_collective *what,
                                     uint32_t *slot, lh_error *err)
{
    const input c = {.entered_ns = what->ready_ns,
                     .transfer_ns = what->transfer_ns,
                     .latency_ns = what->latency_ns,
                     .link = NONE,
                     .rank = rank,
                     .n_pieces = what->n_pieces};
    if (rank >= MAX_RANKS || what->n_links > LHI_SHARING_MAX_LINKS ||
        what->n_pieces == 0)
        return lhi_fail(err, LH_EINVAL,
                        "shared emulated links: at most %d ranks, each with %d "
                        "links, and at least one piece",
                        MAX_RANKS, LHI_SHARING_MAX_LINKS);
    for (uint32_t i = 0; i < what->n_links; i++)
        if (what->links[i] >= t->n_links)
            return lhi_fail(err, LH_EINVAL,
                            "emulated link %u does not exist; the run has %u",
                            what->links[i], t->n_links);
    LHI_TRY(lock_table(t, err));
    stream_links *own = &t->links_of[rank];
    own->n = what->n_links;
    memcpy(own->all, what->links, what->n_links * sizeof *own->all);
    if (rank >= t->n_streams) {
        t->n_streams = rank + 1;
        restart(t);
    }
    lh_status status = append(t, &c, slot, err);
    if (status == LH_OK)
        activate(t, *slot);
    pthread_mutex_unlock(&t->lock);
    return status;
}

lh_status lhi_sharing_take(lhi_sharing *t, uint32_t slot, int64_t now_ns,
                           bool *taken, lhi_net_transfer *times, lh_error *err)
{
    *taken = false;
    *times = (lhi_net_transfer){0, 0, NEVER};
    LHI_TRY(lock_table(t, err));
    lh_status status = LH_OK;
    if (slot >= t->n_inputs || t->inputs[slot].taken) {
        status = lhi_fail(err, LH_EIO,
                          "shared emulated links have no message %u in transit",
                          slot);
    } else if (t->inputs[slot].active) {
        input *x = &t->inputs[slot];
        simulate(t, slot);
        *times = x->times;
        *taken = x->taken = x->known && x->times.arrive_ns <= now_ns;
        t->n_taken += *taken;
        if (*taken)
            t->observed_ns = lhi_max_int64(t->observed_ns, x->times.sent_ns);
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

void lhi_sharing_wait_known(lhi_sharing *t, uint32_t slot, int64_t until_ns)
{
    lhi_futex_wait(&t->inputs[slot].active, 0, until_ns, true);
}
