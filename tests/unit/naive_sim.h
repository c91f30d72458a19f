/* SPDX-License-Identifier: Apache-2.0 */
/* Reference simulator, slow and plain: the clock advances from event to event,
 * and at each one all rules are tried until nothing changes. Written from the
 * rules alone, to be compared with lh_simulate(). */
#ifndef NAIVE_SIM_H
#define NAIVE_SIM_H

#include <longhaul/simulate.h>

/* Times of one pass. */
typedef struct naive_run {
    lh_pass pass;
    int64_t start_ns, end_ns, issued_ns;
} naive_run;

/* Times of one message between devices. */
typedef struct naive_message {
    lh_pass producer, consumer;
    uint32_t from, to;
    const char *link; /* its name, NULL: there is none */
    int64_t produced_ns, ready_ns, depart_ns, sent_ns, arrive_ns;
} naive_message;

/* Times of one data-parallel collective. */
typedef struct naive_collective {
    uint32_t chunk;
    bool is_reduce_scatter;
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
} naive_collective;

/* Result of naive_simulate. */
typedef struct naive_result {
    bool deadlock; /* the other members are undefined then */
    int64_t makespan_ns;
    uint32_t n_devices, n_messages, n_collectives;
    uint32_t *counts;     /* [device] */
    naive_run **runs;     /* [device][position] */
    int64_t *peak_memory; /* [device] */
    naive_message *messages;
    naive_collective *collectives;
} naive_result;

/* Simulates `s`, which must be complete and on the right devices. Free the
 * result with naive_free. */
naive_result *naive_simulate(const lh_pipeline *p, const lh_schedule *s,
                             const lh_sim_options *options);
void naive_free(naive_result *result);

#endif
