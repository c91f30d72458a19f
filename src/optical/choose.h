/* SPDX-License-Identifier: Apache-2.0 */
/* Which route, how many slots and which block a request gets. */
#ifndef LHI_CHOOSE_H
#define LHI_CHOOSE_H

#include "optical/spectrum.h"

/* 5000 ns of light per km. */
#define LHI_NS_PER_KM INT64_C(5000)

typedef struct lhi_policy {
    const char *name;
    lh_assignment assignment;
    uint32_t request_slots; /* N0 */
    bool ladder, keep_labels, ask_late, stage_order, fill_idle;
    uint32_t warm_up_factor; /* 0: the job's */
    const char *schedule;    /* a method's name; NULL: the job's */
} lhi_policy;

typedef struct lhi_request {
    const lhi_paths *paths;
    const lhi_policy *policy;
    uint32_t slots; /* wanted; SLACK and CRITICAL: the most they may offer */
    int64_t bits;
    int64_t wait_ns;    /* until the port is free */
    int64_t allowed_ns; /* from now to the deadline; negative: none */
    uint32_t queued;    /* other messages that wait for the port */
    int64_t period_ns;  /* the pass that made the message took so long */
} lhi_request;

typedef struct lhi_circuit_grant {
    const lhi_path *path;
    uint32_t first, slots;
} lhi_circuit_grant;

/* ceil(bits / rate): how long sending occupies the port. */
static inline int64_t lhi_serialise(int64_t bits, int64_t mbps, uint32_t slots)
{
    int64_t rate = mbps * slots; /* bits per ms */
    return (bits * 1000 + rate - 1) / rate;
}

/* False: refused. */
bool lhi_choose(const lhi_spectrum *spectrum, const lhi_request *request,
                lhi_circuit_grant *out);

/* First fit on the candidates in order. */
bool lhi_first_fit(const lhi_spectrum *spectrum, const lhi_paths *paths,
                   uint32_t n_paths, uint32_t slots, lhi_circuit_grant *out);

/* CBA's fitness of a path on which blocks may begin at `starts`, not none. */
double lhi_fitness(const lhi_spectrum *spectrum, const lhi_path *path,
                   uint32_t slots, const uint64_t *starts);
/* The start of `starts` after which the fewest free-to-held steps remain on
 * the path's fibres; the lowest such. */
uint32_t lhi_best_block(const lhi_spectrum *spectrum, const lhi_path *path,
                        uint32_t slots, const uint64_t *starts);
/* Contiguity index of slots first..last of one fibre. */
double lhi_contiguity(const uint64_t *busy, uint32_t first, uint32_t last);

#endif
