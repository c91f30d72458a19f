/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's capacity check versus brute force: a machine has a preemptive
 * schedule within given windows exactly if its unit pieces of work can be
 * matched to distinct unit slots of time (the definition). Orders without
 * preemption, enumerated, must never be excluded. */
#include "random_pipeline.h"
#include "schedule/verifier/model.h"
#include "test.h"

enum { CASES = 4000, MAX_OPS = 6, HORIZON = 16 };

/* One machine whose every operation is a row of its own. */
typedef struct instance {
    lhi_verify_row rows[MAX_OPS];
    lhi_verify_machine machine;
    lhi_verify_model model;
    uint32_t row_of[MAX_OPS], rank[MAX_OPS];
    int64_t start[MAX_OPS], finish[MAX_OPS];
    lhi_verify_event events[MAX_OPS];
    lhi_verify_demand demand[2 * 8];
} instance;

static void make_instance(rng *r, instance *x)
{
    uint32_t n = 1 + rng_below(r, MAX_OPS);
    memset(x, 0, sizeof *x);
    for (uint32_t o = 0; o < n; o++) {
        x->rows[o].time = 1 + rng_below(r, 4);
        x->row_of[o] = o;
        x->start[o] = rng_below(r, HORIZON - 4);
        x->finish[o] = x->start[o] + x->rows[o].time + rng_below(r, 7);
        if (x->finish[o] > HORIZON)
            x->finish[o] = HORIZON;
    }
    x->machine.n_ops = n;
    x->model = (lhi_verify_model){.n_machines = 1,
                                  .machines = &x->machine,
                                  .rows = x->rows,
                                  .n_rows = n,
                                  .n_ops = n,
                                  .row_of = x->row_of,
                                  .start = x->start,
                                  .finish = x->finish,
                                  .events = x->events,
                                  .rank = x->rank,
                                  .demand = x->demand};
}

/* Finds a slot for one unit of operation `o`, moving other units to other slots
 * (augmenting path). */
static bool find_slot(const instance *x, uint32_t o, int *owner, bool *tried)
{
    for (int64_t t = x->start[o]; t < x->finish[o]; t++) {
        if (tried[t])
            continue;
        tried[t] = true;
        if (owner[t] < 0 || find_slot(x, (uint32_t)owner[t], owner, tried)) {
            owner[t] = (int)o;
            return true;
        }
    }
    return false;
}

static bool has_preemptive_schedule(const instance *x)
{
    int owner[HORIZON];
    for (int t = 0; t < HORIZON; t++)
        owner[t] = -1;
    for (uint32_t o = 0; o < x->machine.n_ops; o++)
        for (int64_t unit = 0; unit < x->rows[o].time; unit++) {
            bool tried[HORIZON] = {false};
            if (!find_slot(x, o, owner, tried))
                return false;
        }
    return true;
}

/* Checks whether the operations outside `done` can follow in some order. */
static bool has_order(const instance *x, uint32_t done, int64_t now)
{
    if (done == (1u << x->machine.n_ops) - 1)
        return true;
    for (uint32_t o = 0; o < x->machine.n_ops; o++) {
        int64_t begin = now > x->start[o] ? now : x->start[o];
        if (!(done >> o & 1) && begin + x->rows[o].time <= x->finish[o] &&
            has_order(x, done | 1u << o, begin + x->rows[o].time))
            return true;
    }
    return false;
}

static void agrees_with_brute_force(void)
{
    uint32_t n_overloaded = 0, n_gaps = 0;
    for (uint32_t seed = 0; seed < CASES && !test_state.bad; seed++) {
        rng r = {seed};
        instance x;
        make_instance(&r, &x);
        bool overloaded = lhi_verify_is_overloaded(&x.model, 0);
        bool ordered = has_order(&x, 0, 0);
        CHECK_INT(overloaded, !has_preemptive_schedule(&x));
        CHECK(!(overloaded && ordered));
        n_overloaded += overloaded;
        n_gaps += !overloaded && !ordered;
    }
    printf("%u of %u overloaded; %u feasible with preemption only\n",
           n_overloaded, (uint32_t)CASES, n_gaps);
    CHECK(n_overloaded > CASES / 10 && n_overloaded < 9 * CASES / 10);
    CHECK(n_gaps > 0);
}

int main(void)
{
    RUN(agrees_with_brute_force);
    return test_summary();
}
