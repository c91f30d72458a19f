/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/group.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/round.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A rank group and its scratch memory. */
struct lhi_group {
    lhi_net *net;
    const lhi_net_stop *stop;
    lhi_net_group members;
    uint64_t tag, calls;
    int64_t latest_ns, began_ns, spent_ns, linked_ns;
    int64_t latency_ns;
    double ns_per_byte;
    int64_t bytes_ns; /* emulated transfer time, last call */
    /* part of the next call's transfer time already elapsed */
    int64_t beside_ns;
    uint32_t *ranks;
    size_t *sizes, *others, *shares; /* n_ranks each; per-call scratch */
    float *parts;                    /* other members' summands */
    size_t n_parts;
    lhi_round round;   /* in progress */
    lhi_round ahead;   /* counts exchanged before it */
    size_t given, got; /* bytes sent and received in both */
};

/* Checks a new group's options: the caller is a member, the tag's low 32 bits
 * are 0, and no rank occurs twice. Else LH_EINVAL. */
static lh_status check_options(const lhi_net *net, const lhi_group_options *o,
                               lh_error *err)
{
    const lhi_net_group g = {o->n_ranks,      o->mine, o->ranks,
                             LHI_NET_NO_LINK, NULL,    NULL};
    LHI_TRY(lhi_round_check(net, &g, err));
    if (o->tag & UINT32_MAX)
        return lhi_fail(err, LH_EINVAL,
                        "the tag %" PRIx64
                        " of a group must have zeros in its low 32 bits",
                        o->tag);
    for (uint32_t i = 0; i < o->n_ranks; i++)
        for (uint32_t k = 0; k < i; k++)
            if (o->ranks[i] == o->ranks[k])
                return lhi_fail(err, LH_EINVAL,
                                "rank %" PRIu32 " is in a group twice",
                                o->ranks[i]);
    return LH_OK;
}

lh_status lhi_group_make(lhi_net *net, const lhi_group_options *o,
                         lhi_group **out, lh_error *err)
{
    LHI_TRY(check_options(net, o, err));
    size_t n = o->n_ranks;
    lhi_group *g = calloc(1, sizeof *g);
    if (!g)
        return lhi_fail_nomem(err);
    g->ranks = malloc(n * sizeof *g->ranks);
    g->sizes = malloc(3 * n * sizeof *g->sizes);
    g->round.sends = calloc(4 * n, sizeof *g->round.sends);
    if (!g->ranks || !g->sizes || !g->round.sends) {
        lhi_group_free(g);
        return lhi_fail_nomem(err);
    }
    memcpy(g->ranks, o->ranks, n * sizeof *g->ranks);
    g->others = g->sizes + n;
    g->shares = g->others + n;
    g->net = net;
    g->stop = o->stop;
    g->tag = o->tag;
    g->members = (lhi_net_group){o->n_ranks,      o->mine,       g->ranks,
                                 LHI_NET_NO_LINK, &g->latest_ns, NULL};
    g->round.net = net;
    g->round.group = &g->members;
    g->round.receives = g->round.sends + n;
    g->ahead = g->round;
    g->ahead.sends = g->round.receives + n;
    g->ahead.receives = g->ahead.sends + n;
    *out = g;
    return LH_OK;
}

void lhi_group_free(lhi_group *g)
{
    if (!g)
        return;
    free(g->ranks);
    free(g->sizes);
    free(g->round.sends);
    free(g->parts);
    free(g);
}

uint32_t lhi_group_n_ranks(const lhi_group *g)
{
    return g->members.n_ranks;
}

uint32_t lhi_group_index(const lhi_group *g)
{
    return g->members.mine;
}

size_t lhi_group_memory_bytes(const lhi_group *g)
{
    return g->n_parts * sizeof *g->parts;
}

void lhi_group_set_link(lhi_group *g, int64_t latency_ns, double ns_per_byte)
{
    g->latency_ns = latency_ns;
    g->ns_per_byte = ns_per_byte;
}

void lhi_group_overlap_next(lhi_group *g, const lhi_group *before)
{
    g->beside_ns = before->bytes_ns;
}

int64_t lhi_group_duration_ns(const lhi_group *g)
{
    return g->spent_ns;
}

int64_t lhi_group_emulated_ns(const lhi_group *g)
{
    return g->linked_ns;
}

uint64_t lhi_group_count_calls(const lhi_group *g)
{
    return g->calls;
}

/* ---- a round of messages ---- */

/* Prepares the group for its next collective: a new message tag, no sends and
 * receives, and byte counts of 0. */
static void begin_round(lhi_group *g)
{
    g->began_ns = g->latest_ns = lhi_now_ns();
    g->round.tag = g->tag | (g->calls++ & UINT32_MAX);
    g->ahead.tag = g->round.tag;
    /* Zeroed operations are not waited for. */
    memset(g->round.sends, 0, 4 * g->members.n_ranks * sizeof *g->round.sends);
    g->given = g->got = 0;
}

/* Posts the receive of `size` bytes from member `i` into `data`, and adds them
 * to the collective's received bytes. */
static lh_status receive(lhi_group *g, uint32_t i, void *data, size_t size,
                         lh_error *err)
{
    g->got += size;
    return lhi_round_receive(&g->round, i, data, size, err);
}

/* Starts the send of `size` bytes to member `i`, and adds them to the
 * collective's sent bytes. */
static lh_status send_part(lhi_group *g, uint32_t i, const void *data,
                           size_t size, lh_error *err)
{
    g->given += size;
    return lhi_round_send(&g->round, i, data, size, err);
}

/* Waits for the collective's sends and receives, sleeps until the emulated link
 * would have transferred them, and adds the durations to the totals. */
static lh_status end_round(lhi_group *g, lh_status status, lh_error *err)
{
    const bool was_working = lhi_net_pause_work(g->net);
    if (status == LH_OK)
        status = lhi_round_wait(&g->round, g->round.receives, g->stop, err);
    status = lhi_round_end(&g->round, status, g->stop, err);
    size_t most = g->given > g->got ? g->given : g->got;
    g->bytes_ns = (int64_t)((double)most * g->ns_per_byte + 0.5);
    int64_t link_ns =
        g->latency_ns +
        (g->bytes_ns > g->beside_ns ? g->bytes_ns - g->beside_ns : 0);
    g->beside_ns = 0;
    g->linked_ns += link_ns;
    if (status == LH_OK && link_ns > 0 && g->members.n_ranks > 1)
        lhi_sleep_until(g->latest_ns + link_ns);
    g->spent_ns += lhi_now_ns() - g->began_ns;
    lhi_net_resume_work(g->net, was_working);
    return status;
}

/* Starts a round's sends (one collective's messages) to all other members, with
 * the sizes and addresses in `b`. */
static lh_status send_all(lhi_group *g, lhi_round *round,
                          const lhi_group_bytes *b, lh_error *err)
{
    const unsigned char *from = b->out;
    for (uint32_t i = 0; i < g->members.n_ranks; i++) {
        size_t size = b->send_bytes[b->to_all ? 0 : i];
        g->given += i == g->members.mine ? 0 : size;
        if (i != g->members.mine)
            LHI_TRY(lhi_round_send(round, i, from, size, err));
        from += b->to_all ? 0 : size;
    }
    return LH_OK;
}

/* Starts a round's receives (one collective's messages) from all other members,
 * with the sizes and addresses in `b`. */
static lh_status receive_all(lhi_group *g, lhi_round *round,
                             const lhi_group_bytes *b, lh_error *err)
{
    size_t at = 0; /* `in` is NULL if nothing is received */
    for (uint32_t i = 0; i < g->members.n_ranks; at += b->recv_bytes[i++]) {
        if (i == g->members.mine)
            continue;
        g->got += b->recv_bytes[i];
        LHI_TRY(lhi_round_receive(round, i,
                                  at ? (unsigned char *)b->in + at : b->in,
                                  b->recv_bytes[i], err));
    }
    return LH_OK;
}

/* Runs an all-to-all among the group's members, with the sizes and addresses
 * per member in `b`. */
static lh_status exchange(lhi_group *g, const lhi_group_bytes *b, lh_error *err)
{
    begin_round(g);
    lh_status status = receive_all(g, &g->round, b, err);
    if (status == LH_OK)
        status = send_all(g, &g->round, b, err);
    return end_round(g, status, err);
}

/* ---- collectives ---- */

/* Returns the sum of the first `i` sizes. */
static size_t sum_before(const size_t *sizes, uint32_t i)
{
    size_t sum = 0;
    for (uint32_t k = 0; k < i; k++)
        sum += sizes[k];
    return sum;
}

lh_status lhi_group_all_gather(lhi_group *g, const void *mine, void *all,
                               const size_t *sizes, lh_error *err)
{
    uint32_t n = g->members.n_ranks, me = g->members.mine;
    unsigned char *to = all;
    unsigned char *place = to + sum_before(sizes, me);
    lh_status status = LH_OK;
    if (mine != place && sizes[me] > 0)
        memcpy(place, mine, sizes[me]);
    begin_round(g);
    for (uint32_t i = 0; i < n && status == LH_OK; to += sizes[i++])
        if (i != me)
            status = receive(g, i, to, sizes[i], err);
    for (uint32_t i = 0; i < n && status == LH_OK; i++)
        if (i != me)
            status = send_part(g, i, place, sizes[me], err);
    return end_round(g, status, err);
}

/* Enlarges the buffer for other members' summands to `n` values; false: out of
 * memory. */
static bool reserve_parts(lhi_group *g, size_t n)
{
    if (n <= g->n_parts)
        return true;
    float *parts = realloc(g->parts, n * sizeof *parts);
    if (!parts)
        return false;
    g->parts = parts;
    g->n_parts = n;
    return true;
}

/* Receives the other members' values for the caller's `count` sums into
 * g->parts, and sends them theirs from `values`, counts[i] for member i. */
static lh_status gather_parts(lhi_group *g, const float *values, size_t count,
                              const size_t *counts, lh_error *err)
{
    uint32_t n = g->members.n_ranks, me = g->members.mine;
    if (!reserve_parts(g, count * (n - 1))) {
        lhi_fail_nomem(err);
        return lhi_round_end(&g->round, LH_ENOMEM, NULL, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        g->sizes[i] = counts[i] * sizeof *values;
        g->others[i] = i == me ? 0 : count * sizeof *values;
    }
    const lhi_group_bytes b = {values, g->sizes, false, g->parts, g->others};
    return exchange(g, &b, err);
}

lh_status lhi_group_reduce_scatter(lhi_group *g, const float *values,
                                   float *out, const size_t *counts,
                                   lh_error *err)
{
    size_t count = counts[g->members.mine];
    LHI_TRY(gather_parts(g, values, count, counts, err));
    lhi_round_add(&g->members, values + sum_before(counts, g->members.mine),
                  g->parts, count, out);
    return LH_OK;
}

/* Largest all-reduce in which every member sends all its values to all others
 * and sums locally: one step rather than two. */
enum { DIRECT_REDUCE_VALUES = 1024 };

/* Returns the value count of member i when `n` values are divided evenly; the
 * first n % n_ranks members have one value more. */
static size_t get_share(size_t n, uint32_t n_ranks, uint32_t i)
{
    return n / n_ranks + (i < n % n_ranks);
}

size_t lhi_group_scatter_bytes(uint32_t n_ranks, size_t count)
{
    return (n_ranks - 1) * count * sizeof(float);
}

size_t lhi_group_reduce_bytes(uint32_t n_ranks, uint32_t mine, size_t n)
{
    return n <= DIRECT_REDUCE_VALUES
               ? n_ranks * n * sizeof(float)
               : lhi_group_scatter_bytes(n_ranks, get_share(n, n_ranks, mine));
}

lh_status lhi_group_all_reduce(lhi_group *g, float *values, size_t n,
                               lh_error *err)
{
    uint32_t n_ranks = g->members.n_ranks;
    if (n <= DIRECT_REDUCE_VALUES) {
        size_t bytes = n * sizeof *values;
        if (!reserve_parts(g, n * n_ranks)) {
            lhi_fail_nomem(err);
            return lhi_round_end(&g->round, LH_ENOMEM, NULL, err);
        }
        for (uint32_t i = 0; i < n_ranks; i++)
            g->sizes[i] = bytes;
        LHI_TRY(lhi_group_all_gather(g, values, g->parts, g->sizes, err));
        for (size_t k = 0; k < n; k++) {
            float sum = g->parts[k];
            for (uint32_t i = 1; i < n_ranks; i++)
                sum += g->parts[i * n + k];
            values[k] = sum;
        }
        return LH_OK;
    }
    size_t first = 0;
    for (uint32_t i = 0; i < n_ranks; i++) {
        g->shares[i] = get_share(n, n_ranks, i);
        if (i < g->members.mine)
            first += g->shares[i];
    }
    size_t count = g->shares[g->members.mine];
    LHI_TRY(gather_parts(g, values, count, g->shares, err));
    lhi_round_add(&g->members, values + first, g->parts, count, values + first);
    for (uint32_t i = 0; i < n_ranks; i++)
        g->sizes[i] = g->shares[i] * sizeof *values;
    return lhi_group_all_gather(g, values + first, values, g->sizes, err);
}

/* Copies the data that this member sends to itself, from its send to its
 * receive buffer. */
static lh_status copy_own(const lhi_group *g, const lhi_group_bytes *b,
                          lh_error *err)
{
    uint32_t me = g->members.mine;
    size_t gives = b->send_bytes[b->to_all ? 0 : me];
    const unsigned char *from = b->out;
    unsigned char *to = b->in;
    if (gives != b->recv_bytes[me])
        return lhi_fail(err, LH_EINVAL,
                        "a rank sends itself %zu bytes but expects %zu", gives,
                        b->recv_bytes[me]);
    if (gives > 0)
        memcpy(to + sum_before(b->recv_bytes, me),
               from + (b->to_all ? 0 : sum_before(b->send_bytes, me)), gives);
    return LH_OK;
}

lh_status lhi_group_all_to_all(lhi_group *g, const void *out,
                               const size_t *gives, void *in,
                               const size_t *gets, lh_error *err)
{
    const lhi_group_bytes b = {out, gives, false, in, gets};
    lh_status status = copy_own(g, &b, err);
    return status == LH_OK ? exchange(g, &b, err)
                           : lhi_round_end(&g->round, status, NULL, err);
}

lh_status lhi_group_all_to_all_with_counts(lhi_group *g,
                                           const lhi_group_bytes *counts,
                                           const lhi_group_bytes *rows,
                                           void (*known)(void *context),
                                           void *context, lh_error *err)
{
    begin_round(g);
    lh_status status = receive_all(g, &g->ahead, counts, err);
    if (status == LH_OK)
        status = send_all(g, &g->ahead, counts, err);
    if (status == LH_OK)
        status = send_all(g, &g->round, rows, err);
    const bool was_working = lhi_net_pause_work(g->net);
    if (status == LH_OK)
        status = lhi_round_wait(&g->ahead, g->ahead.receives, g->stop, err);
    lhi_net_resume_work(g->net, was_working);
    if (status == LH_OK)
        status = copy_own(g, counts, err);
    if (status == LH_OK) {
        known(context);
        status = copy_own(g, rows, err);
    }
    if (status == LH_OK)
        status = receive_all(g, &g->round, rows, err);
    status = lhi_round_end(&g->ahead, status, g->stop, err);
    return end_round(g, status, err);
}

lh_status lhi_group_shift_begin(lhi_group *g, bool back, const void *out,
                                size_t gives, void *in, size_t gets,
                                lh_error *err)
{
    uint32_t n = g->members.n_ranks, me = g->members.mine;
    uint32_t next = (me + 1) % n, before = (me + n - 1) % n;
    begin_round(g);
    if (n == 1) {
        if (gives != gets)
            return end_round(g,
                             lhi_fail(err, LH_EINVAL,
                                      "a rank sends itself %zu bytes but "
                                      "expects %zu",
                                      gives, gets),
                             err);
        if (gives > 0)
            memcpy(in, out, gives);
        return LH_OK;
    }
    lh_status status = receive(g, back ? next : before, in, gets, err);
    if (status == LH_OK)
        status = send_part(g, back ? before : next, out, gives, err);
    return status == LH_OK ? LH_OK : end_round(g, status, err);
}

lh_status lhi_group_shift_end(lhi_group *g, lh_error *err)
{
    g->began_ns = lhi_now_ns(); /* excludes the caller's own work since
                                 * lhi_group_shift_begin() */
    return end_round(g, LH_OK, err);
}

lh_status lhi_group_shift(lhi_group *g, bool back, const void *out,
                          size_t gives, void *in, size_t gets, lh_error *err)
{
    LHI_TRY(lhi_group_shift_begin(g, back, out, gives, in, gets, err));
    return lhi_group_shift_end(g, err);
}
