/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/verifier/rate_sharing.h"

#include <string.h>

lh_status lhi_verify_make_sharing(lhi_verifier *judge, lhi_verify_sharing *out,
                                  lh_error *err)
{
    *out = (lhi_verify_sharing){.judge = judge};
    for (int kind = 0; kind < 2; kind++) {
        out->is_taken[kind] = LHI_NEW(judge->mem, bool, judge->n_resources);
        out->is_moving[kind] = LHI_NEW(judge->mem, bool, judge->n_resources);
        if (!out->is_taken[kind] || !out->is_moving[kind])
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Checks whether one of the transfer's links is marked in marks[]. */
static bool has_mark(const lhi_verify_transfer *t, const bool *marks)
{
    for (uint32_t i = 0; i < t->n_links; i++)
        if (marks[t->links[i]])
            return true;
    return false;
}

/* Marks all links of a transfer in marks[]. */
static void mark_links(const lhi_verify_transfer *t, bool *marks)
{
    for (uint32_t i = 0; i < t->n_links; i++)
        marks[t->links[i]] = true;
}

/* Determines which transfers move, those without an earlier transfer of their
 * kind on one of their links, and whose rates are halved. */
static void find_rates(lhi_verify_sharing *s)
{
    size_t size = s->judge->n_resources * sizeof(bool);
    for (int kind = 0; size > 0 && kind < 2; kind++) {
        memset(s->is_taken[kind], 0, size);
        memset(s->is_moving[kind], 0, size);
    }
    for (lhi_verify_transfer *t = s->first; t; t = t->next) {
        t->moves = !has_mark(t, s->is_taken[t->is_piece]);
        mark_links(t, s->is_taken[t->is_piece]);
        if (t->moves)
            mark_links(t, s->is_moving[t->is_piece]);
    }
    for (lhi_verify_transfer *t = s->first; t; t = t->next)
        t->is_halved = has_mark(t, s->is_moving[!t->is_piece]);
}

/* Advances all transfers that move to time time_ns. */
static void advance(lhi_verify_sharing *s, int64_t time_ns)
{
    for (lhi_verify_transfer *t = s->first; t; t = t->next)
        if (t->moves)
            t->work -= (time_ns - s->now_ns) * (t->is_halved ? 1 : 2);
    s->now_ns = time_ns;
}

/* Adds the transfer `what`, which enters its links at now_ns, after all others.
 */
static void add_transfer(lhi_verify_sharing *s, lhi_verify_transfer what,
                         int64_t now_ns)
{
    lhi_verify_transfer *t = s->unused, **end = &s->first;
    if (t)
        s->unused = t->next;
    else if (!(t = LHI_NEW(s->judge->mem, lhi_verify_transfer, 1))) {
        s->judge->no_memory = true;
        return;
    }
    advance(s, now_ns);
    *t = what;
    while (*end)
        end = &(*end)->next;
    *end = t;
    find_rates(s);
}

void lhi_verify_add_message(lhi_verify_sharing *s, uint32_t node, uint32_t link,
                            int64_t now_ns)
{
    const lh_link *l = lh_pipeline_link(s->judge->pipeline, link);
    lhi_verify_transfer message = {.owner = node,
                                   .n_links = 1,
                                   .links = &s->judge->link_resources[link],
                                   .work = 2 * l->transfer_ns};
    add_transfer(s, message, now_ns);
}

void lhi_verify_add_piece(lhi_verify_sharing *s, lhi_verify_stream *stream,
                          uint32_t device, int64_t now_ns)
{
    lhi_verify_transfer piece = {
        .is_piece = true,
        .owner = device,
        .n_links = stream->n_links,
        .links = stream->links,
        .work = 2 * lhi_verify_take_piece(s->judge, stream)};
    add_transfer(s, piece, now_ns);
}

/* Returns the link to the transfer that ends first, and its end in *end_ns: the
 * first whole ns at which its work is done. */
static lhi_verify_transfer **find_next_end(lhi_verify_sharing *s,
                                           int64_t *end_ns)
{
    lhi_verify_transfer **first = NULL;
    for (lhi_verify_transfer **at = &s->first; *at; at = &(*at)->next) {
        const lhi_verify_transfer *t = *at;
        int64_t rest_ns = t->work <= 0   ? 0
                          : t->is_halved ? t->work
                                         : t->work / 2 + t->work % 2;
        if (!t->moves || (first && s->now_ns + rest_ns >= *end_ns))
            continue;
        *end_ns = s->now_ns + rest_ns;
        first = at;
    }
    return first;
}

bool lhi_verify_end_transfer(lhi_verify_sharing *s, int64_t until_ns,
                             lhi_verify_transfer *out)
{
    int64_t end_ns = 0;
    lhi_verify_transfer **at = find_next_end(s, &end_ns);
    if (!at || end_ns > until_ns)
        return false;
    advance(s, end_ns);
    lhi_verify_transfer *t = *at;
    *out = *t;
    *at = t->next;
    t->next = s->unused;
    s->unused = t;
    find_rates(s);
    return true;
}
