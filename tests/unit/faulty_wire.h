/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over connections in whose middle somebody sits: as threads of this
 * process, each with an endpoint as tcp makes it, but every byte between two of
 * them goes through a thread that passes it on as the plan says: in pieces,
 * late, and once, at a given byte, with something done to it. Of ranks with
 * rails it is one of two; what has gone may come back there. */
#ifndef FAULTY_WIRE_H
#define FAULTY_WIRE_H

#include "runtime/transport/rails.h"
#include "runtime/transport/transport.h"

enum { WIRE_MOST_RANKS = 8 };

/* X(name, harmless): what is done. Whatever is harmless has to leave no trace
 * in what ranks come to. */
#define WIRE_FAULT_LIST(X)                                                     \
    X(NOTHING, true)                                                           \
    X(PAUSED, true)       /* nothing goes on for a while */                    \
    X(CUT, false)         /* both ends are closed */                           \
    X(HALF_CLOSED, false) /* the receiving end alone */                        \
    X(STOPPED, false)     /* nothing is taken any more: half open */           \
    X(SWALLOWED, false)   /* all is taken, and lost: half open */              \
    X(DOUBLED, false)     /* some bytes come twice */                          \
    X(DROPPED, false)     /* some bytes do not come */                         \
    X(SWAPPED, false)     /* some bytes come after those behind them */        \
    X(DAMAGED, false)     /* one bit is another */

typedef enum wire_fault {
#define WIRE_FAULT_ENUM(name, harmless) WIRE_##name,
    WIRE_FAULT_LIST(WIRE_FAULT_ENUM)
#undef WIRE_FAULT_ENUM
        N_WIRE_FAULTS
} wire_fault;

const char *wire_fault_name(wire_fault fault);
bool wire_fault_is_harmless(wire_fault fault);

typedef struct wire_plan {
    uint64_t seed;
    wire_fault fault;
    uint32_t from, to; /* where: the bytes that go from here to there */
    bool both_ways;    /* half open: and those that come back */
    uint64_t at;       /* before which byte */
    uint64_t every;    /* and again after so many; 0: once */
    size_t n_bytes;    /* that are doubled, dropped or swapped, at most */
    bool tcp;          /* connections are TCP's, else socket pairs */
    bool slow;         /* readers are: small buffers, small pieces, late */
    bool rails;        /* two to each peer: the wire is the first */
    int64_t silence_ns;
} wire_plan;

/* What happened. */
typedef struct wire_log {
    lh_status status[WIRE_MOST_RANKS];
    char text[WIRE_MOST_RANKS][512];                   /* why a rank failed */
    uint64_t passed[WIRE_MOST_RANKS][WIRE_MOST_RANKS]; /* bytes from, to */
    bool struck;                                       /* the fault came */
    int64_t struck_ns, ended_ns; /* and all ranks had ended */
    lhi_rails_statistics seen;   /* by all ranks */
} wire_log;

/* Like lhi_inproc_run, by the plan. */
lh_status wire_run(const wire_plan *plan, wire_log *log, uint32_t n,
                   uint32_t n_links, const lhi_net_link *links,
                   lhi_rank_main *rank_main, void *context,
                   lhi_rank_result *results, lh_error *err);

#endif
