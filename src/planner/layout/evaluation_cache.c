/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/evaluation_cache.h"

#include "planner/layout/choice.h"
#include "schedule/methods/sched.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/simulator/timeline.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <pthread.h>
#include <stdlib.h>

/* Initial and maximum number of entries. */
enum { INITIAL_CAPACITY = 1 << 10, MAX_CAPACITY = 1 << 19 };

/* A cached outcome. */
typedef struct entry {
    lhi_fingerprint of; /* includes the method; 0, 0: empty */
    lhi_method_outcome outcome;
} entry;

/* The evaluation cache: a hash table with open addressing. */
struct lhi_evaluation_cache {
    pthread_mutex_t lock; /* protects the members below */
    lhi_arena *mem;
    entry *all;
    uint32_t n, room;
};

lh_status lhi_evaluation_cache_make(lhi_evaluation_cache **out, lh_error *err)
{
    lhi_evaluation_cache *t = calloc(1, sizeof *t);
    if (!t)
        return lhi_fail_nomem(err);
    t->mem = lhi_arena_make(0);
    t->all = calloc(INITIAL_CAPACITY, sizeof *t->all);
    if (!t->mem || !t->all || pthread_mutex_init(&t->lock, NULL) != 0) {
        lhi_arena_free(t->mem);
        free(t->all);
        free(t);
        return lhi_fail_nomem(err);
    }
    t->room = INITIAL_CAPACITY;
    *out = t;
    return LH_OK;
}

void lhi_evaluation_cache_free(lhi_evaluation_cache *tried)
{
    if (!tried)
        return;
    pthread_mutex_destroy(&tried->lock);
    lhi_arena_free(tried->mem);
    free(tried->all);
    free(tried);
}

/* --- known results -------------------------------------------------------- */

/* Checks whether an entry of the cache's hash table is unused: its fingerprint
 * is 0. */
static bool is_empty(const entry *e)
{
    return e->of.a == 0 && e->of.b == 0;
}

/* Returns the hash-table entry with fingerprint `of` (hash of pipeline and
 * method), or the empty entry where it would be stored (linear probing). */
static entry *find_slot(const lhi_evaluation_cache *t, lhi_fingerprint of)
{
    uint32_t at = (uint32_t)(of.a >> 32) & (t->room - 1);
    while (!is_empty(&t->all[at]) &&
           (t->all[at].of.a != of.a || t->all[at].of.b != of.b))
        at = (at + 1) & (t->room - 1);
    return &t->all[at];
}

/* Doubles the hash table if it is more than half full; returns false on
 * allocation failure, or at the largest size. */
static bool ensure_capacity(lhi_evaluation_cache *t)
{
    if (2 * t->n < t->room)
        return true;
    if (t->room >= MAX_CAPACITY)
        return false;
    lhi_evaluation_cache more = *t;
    more.room = 2 * t->room;
    more.all = calloc(more.room, sizeof *more.all);
    if (!more.all)
        return false;
    for (uint32_t i = 0; i < t->room; i++)
        if (!is_empty(&t->all[i]))
            *find_slot(&more, t->all[i].of) = t->all[i];
    free(t->all);
    t->all = more.all;
    t->room = more.room;
    return true;
}

/* Looks up a schedule method's result by `of`, the fingerprint of pipeline and
 * method. Returns false if it is not in the cache. */
static bool is_known(lhi_evaluation_cache *t, lhi_fingerprint of,
                     lhi_method_outcome *out)
{
    pthread_mutex_lock(&t->lock);
    const entry *e = find_slot(t, of);
    const bool known = !is_empty(e);
    if (known)
        *out = e->outcome;
    pthread_mutex_unlock(&t->lock);
    return known;
}

/* Stores a schedule method's result under `of`, the fingerprint of pipeline and
 * method; without memory, the cache stays unchanged. */
static void add_outcome(lhi_evaluation_cache *t, lhi_fingerprint of,
                        const lhi_method_outcome *outcome)
{
    pthread_mutex_lock(&t->lock);
    const char *why = NULL;
    if (ensure_capacity(t))
        why = *outcome->why ? lhi_arena_strdup(t->mem, outcome->why) : "";
    if (why) {
        entry *e = find_slot(t, of);
        t->n += is_empty(e);
        *e = (entry){of, *outcome};
        e->outcome.why = why;
    }
    pthread_mutex_unlock(&t->lock);
}

/* --- new results ---------------------------------------------------------- */

/* Returns the outcome of a schedule whose makespan is useless_ns or more. */
static lhi_method_outcome make_useless(int64_t useless_ns)
{
    return (lhi_method_outcome){.status = LH_CHOICE_FAILED,
                                .is_useless = true,
                                .makespan_ns = useless_ns,
                                .why = ""};
}

/* Computes a schedule's makespan; INT64_MAX: useless_ns (0: none) or more. */
static lh_status simulate(const lh_pipeline *p, const lh_schedule *schedule,
                          int64_t useless_ns, int64_t *makespan_ns,
                          lh_error *err)
{
    lh_evaluator *evaluator;
    LHI_TRY(lh_evaluator_make(p, NULL, &evaluator, err));
    if (useless_ns)
        lhi_evaluator_set_useless(evaluator, useless_ns);
    lh_status status = lh_evaluator_run(evaluator, schedule, makespan_ns, err);
    lh_evaluator_free(evaluator);
    return status;
}

/* Fills makespan, bubble ratio and memory in *out, or that the makespan is
 * useless_ns (0: none) or more. known_ns: the makespan; 0: not simulated yet.
 */
static lh_status evaluate_schedule(const lh_pipeline *p,
                                   const lh_schedule *schedule,
                                   int64_t known_ns, int64_t useless_ns,
                                   lhi_method_outcome *out, lh_error *err)
{
    lh_choice choice = {0};
    out->makespan_ns = known_ns;
    if (known_ns == 0)
        LHI_TRY(simulate(p, schedule, useless_ns, &out->makespan_ns, err));
    /* Methods do not improve makespans that are useless. */
    if (useless_ns && out->makespan_ns >= useless_ns) {
        *out = make_useless(useless_ns);
        return LH_OK;
    }
    lhi_choice_memory(&choice, p, schedule);
    out->peak_memory_bytes = choice.peak_memory_bytes;
    out->memory_limit_bytes = choice.memory_limit_bytes;
    out->bubble_ratio = lhi_choice_bubble_ratio(p, schedule, out->makespan_ns);
    out->status = LH_CHOICE_OK;
    out->why = "";
    return LH_OK;
}

/* Runs a schedule method on a pipeline, as lhi_evaluation_cache_run_method()
 * does, and simulates the result into *out. If the method does not apply, or
 * its result is useless, succeeds with *schedule NULL. */
static lh_status run_method(const lh_pipeline *p, const char *method,
                            uint32_t sub_blocks, int64_t useless_ns,
                            lhi_arena *mem, lhi_method_outcome *out,
                            lh_schedule **schedule, lh_error *err)
{
    lh_bound bound = {0};
    if (lhi_method_find(method)->kind == LHI_METHOD_SLOW)
        LHI_TRY(lhi_compute_closed_form_bound(p, &bound, err));
    lh_method_options how = {
        .size = sizeof how, .sub_blocks = sub_blocks, .bound_ns = bound.ns};
    lh_schedule *made;
    int64_t known_ns;
    lh_error why = {0};
    *out = make_useless(useless_ns);
    lh_status status = lhi_method_run_below(method, p, &how, useless_ns, &made,
                                            &known_ns, &why);
    if (status == LH_OK && made) {
        *out = (lhi_method_outcome){0};
        status = evaluate_schedule(p, made, known_ns, useless_ns, out, err);
        if (status != LH_OK)
            lhi_fail_add_context(err, "method %s", method);
        if (status == LH_OK && schedule && out->status == LH_CHOICE_OK)
            *schedule = made;
        else
            lh_schedule_free(made);
        return status;
    }
    if (status == LH_OK)
        return LH_OK;
    if (!lhi_method_is_inapplicable(status)) {
        if (err)
            *err = why;
        return status;
    }
    *out = (lhi_method_outcome){.status = status == LH_EINFEASIBLE
                                              ? LH_CHOICE_MEMORY
                                              : LH_CHOICE_FAILED,
                                .why = lhi_arena_strdup(mem, why.text)};
    return out->why ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_evaluation_cache_run_method(
    lhi_evaluation_cache *tried, const lh_pipeline *pipeline,
    const char *method, uint32_t sub_blocks, int64_t useless_ns, lhi_arena *mem,
    lhi_method_outcome *out, lh_schedule **schedule, lh_error *err)
{
    if (!tried)
        return run_method(pipeline, method, sub_blocks, useless_ns, mem, out,
                          schedule, err);
    lhi_fingerprint of = lhi_pipeline_fingerprint(pipeline);
    of.a ^= (uint64_t)(lhi_method_find(method) - lhi_methods) + 1;
    if (!schedule && is_known(tried, of, out) &&
        !(out->is_useless &&
          (useless_ns == 0 || useless_ns > out->makespan_ns))) {
        out->why = *out->why ? lhi_arena_strdup(mem, out->why) : "";
        return out->why ? LH_OK : lhi_fail_nomem(err);
    }
    LHI_TRY(run_method(pipeline, method, sub_blocks, useless_ns, mem, out,
                       schedule, err));
    add_outcome(tried, of, out);
    return LH_OK;
}
