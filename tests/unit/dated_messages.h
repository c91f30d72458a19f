/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on the timed device whose messages are held to the simulator's dates, to
 * the nanosecond, however busy the machine is: passes may begin late by any
 * time, so that dates follow from each other alone. */
#ifndef TEST_DATED_MESSAGES_H
#define TEST_DATED_MESSAGES_H

#include "test.h"

#include <longhaul/engine.h>
#include <longhaul/simulate.h>
#include <longhaul/trace.h>

#define LONGEST_NS INT64_C(2000000) /* of what is run */

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

static inline bool same_input(const lh_pass *a, const lh_pass *b)
{
    return a->chunk == b->chunk && a->microbatch == b->microbatch &&
           (a->kind == LH_F) == (b->kind == LH_F);
}

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
