/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the reason for or against a host exchange as text. */
#include "resilience/placement/placement_internal.h"
#include "resilience/placement/text_fragments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Capacity for the text on a link's traffic in bytes; hosts and moves that the
 * reason lists. */
enum { CARRIED_TEXT = 80, SHOWN = 2, SHOWN_MOVES = 4 };

/* Returns the place (replica * n_devices + device) at which `hosts` has `host`,
 * which must occur. */
static uint32_t find_place(const uint32_t *hosts, uint32_t host)
{
    uint32_t i = 0;
    while (hosts[i] != host)
        i++;
    return i;
}

/* Checks whether the pipeline has a link from one device to another. */
static bool has_link(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < p->n_links; i++)
        if (p->links[i].from == from && p->links[i].to == to)
            return true;
    return false;
}

/* Traffic on a link between hosts. */
typedef enum carries { NOTHING, MESSAGES, DATA } carries;

/* Describes the traffic between hosts `one` and `other`, in either direction,
 * in `text`, and returns its kind: pipeline messages, data-parallel ring, or
 * none. hosts[i]: host at place i. */
static carries describe_traffic(const lh_host_placement *s,
                                const uint32_t *hosts, uint32_t one,
                                uint32_t other, char *text)
{
    uint32_t a = find_place(hosts, one), b = find_place(hosts, other);
    uint32_t d = a % s->n_devices, e = b % s->n_devices, r = a / s->n_devices,
             q = b / s->n_devices, n = s->n_replicas;
    if (r == q &&
        (has_link(s->pipeline, d, e) || has_link(s->pipeline, e, d))) {
        snprintf(text, CARRIED_TEXT,
                 "messages between devices %" PRIu32 " and %" PRIu32
                 " of replica %" PRIu32,
                 d < e ? d : e, d < e ? e : d, r);
        return MESSAGES;
    }
    if (d == e && ((r + 1) % n == q || (q + 1) % n == r)) {
        snprintf(text, CARRIED_TEXT,
                 "the data-parallel communication of device %" PRIu32, d);
        return DATA;
    }
    snprintf(text, CARRIED_TEXT, "nothing");
    return NOTHING;
}

/* Checks whether the link from host `from` to host `to` has additional latency
 * or transfer time in the table `slow`. */
static bool is_slow(const lhi_host_slowdown_tables *slow, uint32_t from,
                    uint32_t to)
{
    lhi_additional_time x = lhi_host_slowdowns_link(slow, from, to);
    return x.latency_ns > 0 || x.transfer_ns > 0;
}

/* Appends the pairs of hosts with a slow link, and their traffic, to the
 * explanation `why`; if there are many, only the pair count. */
static void add_links(const lh_host_placement *s,
                      const lhi_host_slowdown_tables *slow,
                      const uint32_t *hosts, char *why)
{
    char text[CARRIED_TEXT];
    uint32_t n = 0, of[DATA + 1] = {0};
    size_t before = strlen(why);
    for (uint32_t a = 0; a < slow->n_hosts; a++)
        for (uint32_t b = a + 1; b < slow->n_hosts; b++) {
            if (!is_slow(slow, a, b) && !is_slow(slow, b, a))
                continue;
            of[describe_traffic(s, hosts, a, b, text)]++;
            if (n++ < SHOWN)
                lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                                        "%sthe slow link between hosts %" PRIu32
                                        " and %" PRIu32 " carries %s",
                                        n > 1 ? ", " : "", a, b, text);
        }
    if (n <= SHOWN)
        return;
    why[before] = '\0';
    lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                            "of %" PRIu32 " slow links between hosts, %" PRIu32
                            " carry data-parallel communication, %" PRIu32
                            " messages",
                            n, of[DATA], of[MESSAGES]);
}

/* Appends the slow hosts, with the factors on their pass times, to the
 * explanation `why`; the first few by number. */
static void add_hosts(const lhi_host_slowdown_tables *slow, char *why)
{
    uint32_t n = 0;
    for (uint32_t h = 0; h < slow->n_hosts; h++)
        if (slow->pass_factors[h] > 1 && n++ < SHOWN)
            lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                                    "%shost %" PRIu32
                                    " takes %.3g times as long",
                                    *why ? ", " : "", h, slow->pass_factors[h]);
    if (n > SHOWN)
        lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                                ", so do %" PRIu32 " more", n - SHOWN);
}

/* Appends the new place (device and replica) of each moved host to the
 * explanation `why`; the first few of them. */
static void add_moves(const lh_host_placement *s, const lh_host_exchange *x,
                      char *why)
{
    for (uint32_t i = 0; i < x->n_moves && i < SHOWN_MOVES; i++) {
        const lh_host_move *m = &x->moves[i];
        lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                                "%shost %" PRIu32 " gets device %" PRIu32
                                " of replica %" PRIu32,
                                i ? ", " : "", m->to, m->place % s->n_devices,
                                m->place / s->n_devices);
    }
    if (x->n_moves > SHOWN_MOVES)
        lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                                " and %" PRIu32 " more move",
                                x->n_moves - SHOWN_MOVES);
}

void lhi_host_exchange_explain(const lh_host_placement *s,
                               const lhi_host_slowdown_tables *slow,
                               const uint32_t *now_hosts, double lasts,
                               const lh_host_exchange *x, char *why)
{
    char one[LHI_TIME_FORMAT_SIZE], other[LHI_TIME_FORMAT_SIZE],
        move[LHI_TIME_FORMAT_SIZE];
    char many[LHI_TIME_FORMAT_SIZE];
    why[0] = '\0';
    add_links(s, slow, now_hosts, why);
    add_hosts(slow, why);
    lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE, "%s%s an iteration",
                            *why ? ": " : "no slowdown is known: ",
                            lhi_time_format(x->current_ns, one));
    if (!x->is_exchange) {
        lhi_text_append_limited(
            why, LHI_EXCHANGE_REASON_SIZE,
            x->is_exhaustive ? "; no placement is worth its migration cost"
                             : "; no exchange is worth its migration cost");
        return;
    }
    lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE, ", %s where ",
                            lhi_time_format(x->predicted_ns, other));
    add_moves(s, x, why);
    lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE,
                            ", which takes %s once and has an effect for %s",
                            lhi_time_format(x->move_ns, move),
                            lhi_iterations_format(lasts, many));
    size_t before = strlen(why);
    lhi_text_append_limited(why, LHI_EXCHANGE_REASON_SIZE, "; then ");
    add_links(s, slow, x->hosts, why);
    if (strlen(why) == before + strlen("; then "))
        why[before] = '\0';
}
