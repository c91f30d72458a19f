/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance suite for transports. A runner starts `n` ranks on the transport
 * and returns when all have ended. */
#ifndef NET_SUITE_H
#define NET_SUITE_H

#include "runtime/transport/transport.h"

/* Runs rank_main on n ranks with n_links emulated links; fills results (unless
 * NULL) and returns the run's status. */
typedef lh_status net_runner(uint32_t n, uint32_t n_links,
                             const lhi_net_link *links,
                             lhi_rank_main *rank_main, void *context,
                             lhi_rank_result *results, lh_error *err);

/* A transport under test. */
typedef struct net_transport {
    const char *name;
    net_runner *run;
} net_transport;

/* One case of the suite, run by each rank. */
typedef struct net_case {
    const char *name;
    uint32_t n_ranks;
    lhi_rank_main *rank_main;
    uint32_t n_links;
    lhi_net_link links[4];
    const char *fails; /* part of the run's error; NULL: none */
} net_case;

/* Sends without an emulated link, starting now. */
lh_status net_send_now(lhi_net *net, uint32_t to, uint64_t tag,
                       const void *data, size_t size, lhi_net_op *op,
                       lh_error *err);

extern const net_case net_cases[];
extern const unsigned n_net_cases;

/* Within a rank: fails it unless the condition is true. */
#define EXPECT(condition)                                                      \
    do {                                                                       \
        if (!(condition))                                                      \
            return lhi_fail(err, LH_EINVAL, "%s:%d: not true: %s", __FILE__,   \
                            __LINE__, #condition);                             \
    } while (0)

/* Within a rank: fails it unless `got` is within `tolerance` of `want`. */
#define EXPECT_NEAR(got, want, tolerance)                                      \
    do {                                                                       \
        int64_t near_got = (got), near_want = (want);                          \
        if (near_got < near_want - (tolerance) ||                              \
            near_got > near_want + (tolerance))                                \
            return lhi_fail(err, LH_EINVAL, "%s:%d: %s is %lld, not %lld",     \
                            __FILE__, __LINE__, #got, (long long)near_got,     \
                            (long long)near_want);                             \
    } while (0)

#endif
