/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of a route, a number of slots and a block to a request. */
#ifndef LHI_NETWORK_OPTICAL_ASSIGNMENT_H
#define LHI_NETWORK_OPTICAL_ASSIGNMENT_H

#include "network/optical/spectrum.h"

/* Propagation delay in fibre: 5 ns per metre. */
#define LHI_NS_PER_M INT64_C(5)

/* CBA's rules that its paper leaves open (docs/optical.md). */
typedef struct lhi_cba_rules {
    double label_factor;    /* slots of a labelled message / N0 */
    double refusal_factor;  /* slots after a refused request / N0 */
    double guard;           /* above this refused share, labels add no slots */
    bool block_contiguity;  /* contiguity index of the requested block alone;
                             * else of the whole fibre after placement */
    bool free_share_factor; /* fitness: delta multiplies; else it divides */
} lhi_cba_rules;

/* An assignment policy with its options. */
typedef struct lhi_policy {
    const char *name;
    lh_assignment assignment;
    uint32_t request_slots; /* N0 */
    bool ladder, keep_labels, ask_late, stage_order, fill_idle, groom;
    uint32_t warm_up_factor;  /* 0: the job's */
    const char *schedule;     /* a method's name; NULL: the job's */
    const lhi_cba_rules *cba; /* NULL: lhi_cba_defaults */
} lhi_policy;

extern const lhi_cba_rules lhi_cba_defaults;

/* Returns a policy's rules for labels, refusals and fitness. */
static inline const lhi_cba_rules *lhi_policy_rules(const lhi_policy *policy)
{
    return policy->cba ? policy->cba : &lhi_cba_defaults;
}

/* A request for a circuit. */
typedef struct lhi_request {
    const lhi_paths *paths;
    const lhi_policy *policy;
    uint32_t slots; /* requested; SLACK and CRITICAL: maximum */
    int64_t bits;
    int64_t wait_ns;     /* until the port is free */
    int64_t deadline_ns; /* from now to the deadline; negative: none */
    uint32_t queued;     /* other messages queued at the port */
    int64_t period_ns;   /* producing pass's duration */
} lhi_request;

/* The path and block of slots assigned to a request; the block includes the
 * guard slots above it. */
typedef struct lhi_circuit_grant {
    const lhi_path *path;
    uint32_t first, slots;
    int64_t mbps; /* per slot */
} lhi_circuit_grant;

/* Returns ceil(bits / rate) in ns: the time for which a message occupies the
 * port. */
static inline int64_t lhi_serialisation_ns(int64_t bits, int64_t mbps,
                                           uint32_t slots)
{
    int64_t rate = mbps * slots; /* bits per us */
    return (bits * 1000 + rate - 1) / rate;
}

/* Chooses path, number of slots and block for a circuit request by the
 * request's policy. Returns false if the request is blocked. */
bool lhi_assignment_choose(const lhi_spectrum *spectrum,
                           const lhi_request *request, lhi_circuit_grant *out);

/* Chooses the first of n_paths paths, in order, that has `slots` contiguous
 * free slots (units of optical spectrum), and its first such block. Returns
 * false if no path has one: the request is blocked. */
bool lhi_assignment_first_fit(const lhi_spectrum *spectrum,
                              const lhi_paths *paths, uint32_t n_paths,
                              uint32_t slots, lhi_circuit_grant *out);

/* Chooses like lhi_assignment_first_fit(), but for a rate in Gb/s rather than a
 * number of slots: each path needs as many slots as its rate per slot
 * requires. */
bool lhi_assignment_first_fit_rate(const lhi_spectrum *spectrum,
                                   const lhi_paths *paths, uint32_t gbps,
                                   lhi_circuit_grant *out);

/* Returns CBA's fitness of a path with possible block starts `starts`, a
 * non-empty set. */
double lhi_assignment_fitness(const lhi_spectrum *spectrum,
                              const lhi_cba_rules *rules, const lhi_path *path,
                              uint32_t slots, const uint64_t *starts);
/* Returns the first slot in `starts` for a block of `slots` slots that leaves
 * the fewest free-to-occupied steps on the path's fibres; the lowest of equals.
 */
uint32_t lhi_assignment_best_block(const lhi_spectrum *spectrum,
                                   const lhi_path *path, uint32_t slots,
                                   const uint64_t *starts);
/* Returns the contiguity index of slots first..last of one fibre, whose
 * occupied slots are the bits of `busy`: 1 minus the share of steps from a free
 * to an occupied slot. */
double lhi_spectrum_contiguity(const uint64_t *busy, uint32_t first,
                               uint32_t last);

#endif
