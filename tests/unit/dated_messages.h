/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on the timed device and compares message times with the simulator's, to
 * the nanosecond. The device's allowed slip is practically infinite, so that a
 * busy machine does not matter: times depend on each other alone. */
#ifndef TEST_DATED_MESSAGES_H
#define TEST_DATED_MESSAGES_H

#include "test.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/trace.h>

#define LONGEST_NS INT64_C(2000000) /* upper limit for a run */

/* Runs two steps on the timed device; returns a copy of the trace, for the
 * caller to free. */
static inline lh_trace *run_dated(const lh_pipeline *p, const lh_exec *x,
                                  const char *transport)
{
    lh_error err = {0};
    lh_train_result *r = NULL;
    lh_trace *copy = NULL;
    const lh_train_options o = {.size = sizeof o,
                                .transport = transport,
                                .steps = 2,
                                .message_bytes = 24000,
                                .tolerated_lateness_ns = INT64_MAX / 4};
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    CHECK(r && r->missed_deadlines == 0 && r->trace);
    if (r && r->trace)
        CHECK_OK(lh_trace_copy(r->trace, &copy, &err), err);
    lh_train_result_free(r);
    return copy;
}

/* Checks whether two passes consume the same message. */
static inline bool same_input(const lh_pass *a, const lh_pass *b)
{
    return a->chunk == b->chunk && a->microbatch == b->microbatch &&
           (a->kind == LH_F) == (b->kind == LH_F);
}

/* Finds the simulated message for a traced one; NULL: none. */
static inline const lh_message *message_of(const lh_timeline *t,
                                           const lh_trace_message *m)
{
    uint32_t n;
    const lh_message *all = lh_timeline_messages(t, &n);
    for (uint32_t i = 0; i < n; i++)
        if (same_input(&all[i].consumer, &m->consumer))
            return &all[i];
    return NULL;
}

/* Counts traced messages whose ready or arrival time differs from the
 * simulation. */
static inline uint32_t count_other_dates(const lh_timeline *t,
                                         const lh_trace *trace)
{
    uint32_t n_messages, n_other = 0;
    lh_timeline_messages(t, &n_messages);
    CHECK_INT(trace->n_messages, n_messages);
    for (uint32_t i = 0; i < trace->n_messages; i++) {
        const lh_trace_message *m = &trace->messages[i];
        const lh_message *want = message_of(t, m);
        CHECK(want != NULL);
        n_other += want && (m->ready_ns != want->ready_ns ||
                            m->arrive_ns != want->arrive_ns);
    }
    return n_other;
}

#endif
