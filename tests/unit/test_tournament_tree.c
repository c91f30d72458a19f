/* SPDX-License-Identifier: Apache-2.0 */
/* Earliest machine: the tournament tree agrees with a scan over all machines
 * after any updates, and returns every stale machine once. */
#include "test.h"

#include "base/random.h"
#include "schedule/solver/model/earliest_machine.h"

enum { MOST = 70 };

/* The tournament tree and plain arrays to compare with. */
typedef struct model {
    lhi_arena *mem;
    lhi_earliest_machine first;
    uint32_t n;
    int64_t end[MOST];
    bool stale[MOST];
} model;

static void begin(model *m)
{
    lhi_earliest_machine_reset(&m->first);
    for (uint32_t i = 0; i < m->n; i++) {
        m->end[i] = FAR;
        m->stale[i] = true;
    }
}

static void make(model *m, uint32_t n)
{
    lh_error err = {0};
    *m = (model){.mem = lhi_arena_make(0), .n = n};
    CHECK_OK(lhi_earliest_machine_make(&m->first, n, m->mem, &err), err);
    begin(m);
}

static uint32_t scan(const model *m)
{
    uint32_t best = NONE;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->end[i] < FAR && (best == NONE || m->end[i] < m->end[best]))
            best = i;
    return best;
}

static void set(model *m, uint32_t machine, int64_t end)
{
    m->end[machine] = end;
    lhi_earliest_machine_set_end(&m->first, machine, end);
    CHECK_INT(lhi_earliest_machine_get(&m->first), scan(m));
}

static void mark(model *m, uint32_t machine)
{
    m->stale[machine] = true;
    lhi_earliest_machine_mark_stale(&m->first, machine);
}

/* Takes all stale machines, checking that there are no more; or only the first.
 */
static void look(model *m, bool all)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < m->n; i++)
        left += m->stale[i];
    for (uint32_t take = all ? left : left > 0; take > 0; take--, left--) {
        uint32_t i = lhi_earliest_machine_take_stale(&m->first);
        CHECK_MSG(i < m->n && m->stale[i], "%u is not to be looked at", i);
        if (test_state.bad)
            return;
        m->stale[i] = false;
    }
    if (left == 0)
        CHECK_INT(lhi_earliest_machine_take_stale(&m->first), NONE);
}

/* Returns an end time from a small range: many are equal. */
static int64_t some_end(lhi_random *r)
{
    static const int64_t ends[] = {0, 1, 2, 3, FAR - 1, FAR, FAR};
    return ends[lhi_random_below(r, 7)];
}

static void step(model *m, lhi_random *r)
{
    uint32_t any = lhi_random_below(r, m->n), winner = scan(m);
    switch (lhi_random_below(r, 8)) {
    case 0: /* the winner, repeatedly */
        for (int i = 0; i < 3 && winner != NONE; i++, winner = scan(m))
            set(m, winner, some_end(r));
        break;
    case 1: /* another one, repeatedly */
        for (int i = 0; i < 3; i++)
            if (any != scan(m))
                set(m, any, some_end(r));
        break;
    case 2:
        set(m, any, lhi_random_below(r, 1000));
        break;
    case 3: /* an unchanged value */
        set(m, any, m->end[any]);
        break;
    case 4:
        mark(m, any);
        mark(m, any);
        break;
    case 5:
        look(m, lhi_random_below(r, 4) == 0);
        break;
    default:
        set(m, any, some_end(r));
        break;
    }
}

static void as_a_scan_says(void)
{
    lhi_random r = {11};
    for (uint32_t n = 1; n <= MOST && !test_state.bad; n++) {
        model m;
        make(&m, n);
        CHECK_INT(lhi_earliest_machine_get(&m.first), NONE);
        look(&m, true);
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 1500 && !test_state.bad; i++)
                step(&m, &r);
            begin(&m); /* a new round; no state remains */
            CHECK_INT(lhi_earliest_machine_get(&m.first), NONE);
            if (round > 0)
                look(&m, true);
        }
        if (test_state.bad)
            fprintf(stderr, "%u machines\n", n);
        lhi_arena_free(m.mem);
    }
}

static void only_one(void)
{
    model m;
    make(&m, 1);
    set(&m, 0, 5);
    CHECK_INT(lhi_earliest_machine_get(&m.first), 0);
    set(&m, 0, 9);
    set(&m, 0, FAR);
    CHECK_INT(lhi_earliest_machine_get(&m.first), NONE);
    set(&m, 0, 0);
    CHECK_INT(lhi_earliest_machine_get(&m.first), 0);
    lhi_arena_free(m.mem);
}

/* The lowest index wins ties, for any order of updates. */
static void ties(void)
{
    for (uint32_t n = 2; n <= MOST; n++) {
        model m;
        make(&m, n);
        for (uint32_t i = n; i-- > 0;) {
            set(&m, i, 4);
            CHECK_INT(lhi_earliest_machine_get(&m.first), i);
        }
        for (uint32_t i = 0; i + 1 < n; i++) {
            set(&m, i, 4 + i % 2);
            set(&m, i, FAR);
            CHECK_INT(lhi_earliest_machine_get(&m.first), i + 1);
        }
        set(&m, n - 1, FAR);
        CHECK_INT(lhi_earliest_machine_get(&m.first), NONE);
        lhi_arena_free(m.mem);
    }
}

int main(void)
{
    RUN(as_a_scan_says);
    RUN(only_one);
    RUN(ties);
    return test_summary();
}
