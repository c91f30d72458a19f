/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model once more, slow and plain: a clock goes from moment to
 * moment, and at each everything is tried until nothing more happens. Written
 * from the rules alone, to be compared with lh_simulate(). */
#ifndef NAIVE_SIM_H
#define NAIVE_SIM_H

#include <longhaul/simulate.h>

typedef struct naive_run {
    lh_pass pass;
    int64_t start_ns, end_ns, issued_ns;
} naive_run;

typedef struct naive_message {
    lh_pass producer, consumer;
    uint32_t from, to;
    const char *link; /* its name, NULL: there is none */
    int64_t produced_ns, ready_ns, depart_ns, sent_ns, arrive_ns;
} naive_message;

typedef struct naive_collective {
    uint32_t chunk;
    bool is_reduce_scatter;
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
} naive_collective;

typedef struct naive_result {
    bool deadlock; /* then the rest means nothing */
    int64_t makespan_ns;
    uint32_t n_devices, n_messages, n_collectives;
    uint32_t *counts;     /* [device] */
    naive_run **runs;     /* [device][position] */
    int64_t *peak_memory; /* [device] */
    naive_message *messages;
    naive_collective *collectives;
} naive_result;

/* `s` has to be complete and on the right devices. */
naive_result *naive_simulate(const lh_pipeline *p, const lh_schedule *s,
                             const lh_sim_options *options);
void naive_free(naive_result *result);

#endif
