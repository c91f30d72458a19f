/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of heads and tails, with the orders that raised them: enough to
 * explain later why something takes too long. */
#include "schedule/solver/search/search_internal.h"

#include "base/integer_math.h"

#include <stdlib.h>

bool lhi_search_grow_array(lhi_search *s, void **array, uint32_t *room,
                           size_t each, uint32_t need)
{
    if (need <= *room)
        return true;
    uint32_t more = *room > 512 ? 2 * *room : 1024;
    while (more < need)
        more *= 2;
    void *grown = realloc(*array, more * each);
    if (!grown) {
        s->no_memory = true;
        return false;
    }
    s->bytes += (more - *room) * each;
    *array = grown;
    *room = more;
    return true;
}

void lhi_search_add_conflict(lhi_search *s, lit l)
{
    if (s->level_of[l >> 1] == 0)
        return;
    if (lhi_search_grow_array(s, (void **)&s->conflict, &s->room_conflict,
                              sizeof *s->conflict, s->n_conflict + 1))
        s->conflict[s->n_conflict++] = l;
}

void lhi_search_queue_operation(history *h, uint32_t n_ops, uint32_t op)
{
    if (h->queued[op])
        return;
    h->queued[op] = true;
    uint32_t at = h->front + h->n_queue++;
    h->queue[at < n_ops ? at : at - n_ops] = op;
}

uint32_t lhi_search_take_operation(history *h, uint32_t n_ops)
{
    uint32_t op = h->queue[h->front];
    h->front = h->front + 1 == n_ops ? 0 : h->front + 1;
    h->n_queue--;
    h->queued[op] = false;
    return op;
}

void lhi_search_undo_steps(history *h, uint32_t n)
{
    while (h->n > n) {
        const step *e = &h->steps[--h->n];
        h->last[e->op] = e->prev;
        h->now[e->op] =
            e->prev == NONE ? h->root[e->op] : h->steps[e->prev].value;
    }
}

bool lhi_search_add_step(lhi_search *s, history *h, uint32_t op, uint32_t from,
                         int64_t weight, lit by)
{
    if (!lhi_search_grow_array(s, (void **)&h->steps, &h->room,
                               sizeof *h->steps, h->n + 1))
        return false;
    h->steps[h->n] =
        (step){h->now[from] + weight, weight, op, from, by, h->last[op]};
    h->last[op] = h->n++;
    h->now[op] = h->now[from] + weight;
    lhi_search_queue_operation(h, s->s->n_ops, op);
    return true;
}

void lhi_search_explain_path(lhi_search *s, const history *h, uint32_t op,
                             int64_t need)
{
    while (need > h->root[op]) {
        uint32_t e = h->last[op];
        while (h->steps[e].prev != NONE &&
               h->steps[h->steps[e].prev].value >= need)
            e = h->steps[e].prev;
        if (h->steps[e].by != NONE)
            lhi_search_add_conflict(s, h->steps[e].by);
        need -= h->steps[e].weight;
        op = h->steps[e].from;
    }
}

/* Returns an operation's head (earliest start) or tail (time that must follow)
 * when the history had n steps. */
static int64_t get_value_at(const history *h, uint32_t op, uint32_t n)
{
    uint32_t e = h->last[op];
    while (e != NONE && e >= n)
        e = h->steps[e].prev;
    return e == NONE ? h->root[op] : h->steps[e].value;
}

void lhi_search_explain_both(lhi_search *s, uint32_t a, int64_t head,
                             uint32_t b, int64_t tail, int64_t spare)
{
    int64_t less =
        lhi_min_int64(spare, lhi_max_int64(head - s->head.root[a], 0));
    lhi_search_explain_path(s, &s->head, a, head - less);
    lhi_search_explain_path(s, &s->tail, b, tail - (spare - less));
}

/* Adds to the conflict the heads (earliest starts) and tails (times that must
 * follow) because of which literal `l` (operation b before a) holds: a before b
 * would exceed the deadline. */
void lhi_search_explain_time(lhi_search *s, lit l)
{
    uint32_t b = lhi_search_get_first(s, l), a = lhi_search_get_second(s, l);
    why w = s->reason[l >> 1];
    int64_t head = get_value_at(&s->head, a, w.x);
    int64_t tail = get_value_at(&s->tail, b, w.y);
    int64_t spare =
        head + s->s->time[a] + s->s->time[b] + tail - s->deadline - 1;
    lhi_search_explain_both(s, a, head, b, tail, spare);
}
