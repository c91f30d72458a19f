/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/verifier/data_streams.h"

#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/pipeline.h>

#include <string.h>

/* Returns the name count in a device's data-parallel link: its parts between "
 * + ". */
static uint32_t count_names(const char *text)
{
    uint32_t n = 1;
    while ((text = strstr(text, " + "))) {
        text += 3;
        n++;
    }
    return n;
}

/* Stores in stream `s` the resources of `text`: of the link with this name, or
 * of the links that its parts name. */
static lh_status find_links(const lhi_verifier *judge, const char *text,
                            lhi_verify_stream *s, lh_error *err)
{
    uint32_t whole = lhi_verify_find_resource(judge, text);
    uint32_t n = whole != LH_NONE ? 1 : count_names(text);
    s->links = LHI_NEW(judge->mem, uint32_t, n);
    if (!s->links)
        return lhi_fail_nomem(err);
    if (whole != LH_NONE) {
        s->links[s->n_links++] = whole;
        return LH_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *end = strstr(text, " + ");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        char *name = lhi_arena_strndup(judge->mem, text, length);
        if (!name)
            return lhi_fail_nomem(err);
        uint32_t r = lhi_verify_find_resource(judge, name);
        bool is_new = r != LH_NONE;
        for (uint32_t k = 0; k < s->n_links; k++)
            is_new = is_new && s->links[k] != r;
        if (is_new)
            s->links[s->n_links++] = r;
        text = end ? end + 3 : text;
    }
    return LH_OK;
}

lh_status lhi_verify_make_streams(const lhi_verifier *judge,
                                  lhi_verify_streams *out, lh_error *err)
{
    *out = (lhi_verify_streams){.judge = judge};
    if (!lh_pipeline_shares_links(judge->pipeline, LH_NONE))
        return LH_OK;
    out->all = LHI_NEW(judge->mem, lhi_verify_stream, judge->n_devices);
    if (!out->all)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < judge->n_devices; d++) {
        const char *name = lh_pipeline_dp_link(judge->pipeline, d);
        out->all[d].end = &out->all[d].first;
        if (name)
            LHI_TRY(find_links(judge, name, &out->all[d], err));
    }
    return LH_OK;
}

lhi_verify_stream *lhi_verify_get_stream(const lhi_verify_streams *streams,
                                         uint32_t device)
{
    return streams->all && streams->all[device].n_links > 0
               ? &streams->all[device]
               : NULL;
}

int64_t lhi_verify_launch(lhi_verifier *judge, lhi_verify_stream *s,
                          lhi_verify_collective what)
{
    lhi_verify_collective *x = LHI_NEW(judge->mem, lhi_verify_collective, 1);
    if (!x) {
        judge->no_memory = true;
        return -1;
    }
    *x = what;
    x->next = NULL;
    bool is_alone = !s->first;
    *s->end = x;
    s->end = &x->next;
    if (!is_alone)
        return -1;
    return s->sent_ns > what.launched_ns ? s->sent_ns : what.launched_ns;
}

/* Cuts the first collective of a stream into pieces: the fewest that are no
 * longer than the pipeline's longest piece, as equal as integers allow. */
static void cut_first(const lhi_verifier *judge, lhi_verify_stream *s)
{
    int64_t longest = lhi_pipeline_dp_piece_ns(judge->pipeline);
    int64_t whole = s->first->transfer_ns;
    s->n_pieces = 1;
    if (longest > 0 && whole > longest)
        s->n_pieces = whole / longest + (whole % longest > 0);
    s->each_ns = whole / s->n_pieces;
    s->extra = whole % s->n_pieces;
    s->sum = 0;
    s->n_left = s->n_pieces;
}

int64_t lhi_verify_take_piece(const lhi_verifier *judge, lhi_verify_stream *s)
{
    if (s->n_left == 0)
        cut_first(judge, s);
    s->sum += s->extra;
    bool is_longer = s->sum >= s->n_pieces;
    s->sum -= is_longer ? s->n_pieces : 0;
    s->n_left--;
    return s->each_ns + is_longer;
}

lhi_verify_offer lhi_verify_end_piece(lhi_verify_stream *s, int64_t sent_ns)
{
    lhi_verify_offer offer = {.sent_ns = sent_ns, .next_ns = sent_ns};
    s->ticket = 0;
    s->sent_ns = sent_ns;
    if (s->n_left > 0)
        return offer;
    offer.sent = s->first;
    s->first = s->first->next;
    if (!s->first) {
        s->end = &s->first;
        offer.next_ns = -1;
    } else if (s->first->launched_ns > offer.next_ns) {
        offer.next_ns = s->first->launched_ns;
    }
    return offer;
}

lhi_verify_offer lhi_verify_offer_piece(lhi_verify_streams *streams,
                                        lhi_verify_stream *s, int64_t *free_ns,
                                        int64_t now_ns)
{
    const lhi_verifier *judge = streams->judge;
    lhi_verify_offer offer = {.next_ns = -1};
    int64_t begin_ns = now_ns;
    if (s->ticket == 0)
        s->ticket = ++streams->n_tickets;
    for (uint32_t i = 0; i < s->n_links; i++)
        if (free_ns[s->links[i]] > begin_ns)
            begin_ns = free_ns[s->links[i]];
    if (begin_ns > now_ns &&
        lhi_pipeline_dp_priority(judge->pipeline) == LH_DP_PIPELINE_FIRST) {
        offer.waits = true;
        offer.ticket = s->ticket;
        offer.next_ns = begin_ns;
        return offer;
    }
    int64_t sent_ns = begin_ns + lhi_verify_take_piece(judge, s);
    for (uint32_t i = 0; i < s->n_links; i++)
        free_ns[s->links[i]] = sent_ns;
    return lhi_verify_end_piece(s, sent_ns);
}
