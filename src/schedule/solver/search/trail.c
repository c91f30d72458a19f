/* SPDX-License-Identifier: Apache-2.0 */
/* The trail: orders in the sequence in which they were set, with their reasons.
 */
#include "schedule/solver/search/search_internal.h"

void lhi_search_explain(lhi_search *s, lit l)
{
    why w = s->reason[l >> 1];
    switch ((why_kind)w.kind) {
    case WHY_NOT:
        break;
    case WHY_CLAUSE:
        for (uint32_t i = 0; i < s->clauses[w.x]; i++)
            if (s->clauses[w.x + 2 + i] != l)
                lhi_search_add_conflict(s, s->clauses[w.x + 2 + i] ^ 1);
        break;
    case WHY_TWO:
        lhi_search_add_conflict(s, w.y);
        lhi_search_add_conflict(s, w.x);
        break;
    case WHY_ONE:
        lhi_search_add_conflict(s, w.x);
        break;
    case WHY_TIME:
        lhi_search_explain_time(s, l);
        break;
    case WHY_SET:
        for (uint32_t i = 0; i < w.y; i++)
            lhi_search_add_conflict(s, s->sets[w.x + i]);
        break;
    }
}

/* Sets the count *where to `value` and records the old value, so that
 * backtracking restores it; false: out of memory. */
static bool set_count(lhi_search *s, uint32_t *where, uint32_t value)
{
    if (!lhi_search_grow_array(s, (void **)&s->undos, &s->room_undos,
                               sizeof *s->undos, s->n_undos + 1))
        return false;
    s->undos[s->n_undos++] = (undo){where, *where};
    *where = value;
    return true;
}

bool lhi_search_assign(lhi_search *s, lit l, why w)
{
    uint32_t a = lhi_search_get_first(s, l), b = lhi_search_get_second(s, l),
             v = l >> 1;
    const lhi_stream *x = lhi_search_get_stream(s, a),
                     *y = lhi_search_get_stream(s, b);
    s->value[l] = 1;
    s->value[l ^ 1] = -1;
    s->level_of[v] = s->n_levels;
    s->reason[v] = s->n_levels ? w : (why){WHY_NOT, 0, 0};
    s->trail[s->n_trail++] = l;
    uint32_t *after = &s->after[s->slot_at[a] + y->slot];
    uint32_t *before = &s->before[s->slot_at[b] + x->slot];
    if (b - y->first < *after && !set_count(s, after, b - y->first))
        return false;
    return a - x->first + 1 <= *before ||
           set_count(s, before, a - x->first + 1);
}

bool lhi_search_enqueue_open(lhi_search *s, lit l, why w)
{
    if (s->value[l] == 0)
        return lhi_search_assign(s, l, w);
    /* The conflict: the reasons for l, and l being false. */
    why kept = s->reason[l >> 1];
    s->n_conflict = 0;
    lhi_search_add_conflict(s, l ^ 1);
    s->reason[l >> 1] = w;
    lhi_search_explain(s, l);
    s->reason[l >> 1] = kept;
    return false;
}
