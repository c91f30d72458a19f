/* SPDX-License-Identifier: Apache-2.0 */
/* Precedence rules between one machine's streams. */
#include "schedule/solver/model/job_shop.h"

#include "schedule/pipeline/pipeline_internal.h"

/* Returns a stream's position on a microbatch's path through the pipeline (F of
 * all chunks, then D, with messages between); NONE for W. */
static uint32_t get_position(const lhi_shop *s, const lhi_stream *t)
{
    uint32_t n = s->p->n_chunks;
    switch (t->kind) {
    case LHI_F:
        return 2 * t->chunk;
    case LHI_MESSAGE_F:
        return 2 * t->chunk + 1;
    case LHI_D:
        return 2 * (2 * n - 1 - t->chunk);
    case LHI_MESSAGE_D:
        return 2 * (2 * n - 1 - t->chunk) + 1;
    default:
        return NONE;
    }
}

/* Checks whether, for every microbatch, the operation of stream a has to run
 * before that of stream b, because of their positions on the path. */
static bool always_precedes(const lhi_shop *s, const lhi_stream *a,
                            const lhi_stream *b)
{
    uint32_t length = lhi_count_direction_chunks(s->p);
    if (a->chunk / length != b->chunk / length)
        return false; /* other microbatches */
    uint32_t x = get_position(s, a), y = get_position(s, b);
    if (x != NONE && y != NONE)
        return x < y;
    return b->kind == LHI_W && a->kind == LHI_D && a->chunk >= b->chunk;
}

lh_status lhi_shop_make_rules(lhi_shop *s, lh_error *err)
{
    for (int fill = 0; fill < 2; fill++) {
        uint32_t n = 0;
        for (uint32_t m = 0; m < s->n_machines; m++) {
            lhi_machine *k = &s->machines[m];
            k->first_rule = n;
            for (uint32_t i = 0; i < k->n_streams * k->n_streams; i++) {
                uint32_t a = k->first_stream + i / k->n_streams;
                uint32_t b = k->first_stream + i % k->n_streams;
                if (a == b ||
                    !always_precedes(s, &s->streams[a], &s->streams[b]))
                    continue;
                if (fill)
                    s->rules[n] = (lhi_rule){a, b};
                n++;
            }
            k->n_rules = n - k->first_rule;
        }
        if (!fill) {
            s->rules = LHI_NEW(s->mem, lhi_rule, n);
            if (!s->rules)
                return lhi_fail_nomem(err);
        }
        s->n_rules = n;
    }
    return LH_OK;
}
