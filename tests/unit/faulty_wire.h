/* SPDX-License-Identifier: Apache-2.0 */
/* Fault-injecting proxy between ranks. Ranks run as threads with tcp endpoints,
 * but a proxy thread forwards every byte between two ranks. The plan says how:
 * in pieces, with delays, and with one fault at a given byte. With rails, the
 * proxy carries one rail out of two, and lost bytes may be resent over the
 * other. */
#ifndef FAULTY_WIRE_H
#define FAULTY_WIRE_H

#include "runtime/transport/rails.h"
#include "runtime/transport/transport.h"

enum { WIRE_MOST_RANKS = 8 };

/* X(name, harmless): faults. A harmless fault must not change the ranks'
 * results. */
#define WIRE_FAULT_LIST(X)                                                     \
    X(NOTHING, true)                                                           \
    X(PAUSED, true)       /* stalls for a while */                    \
    X(CUT, false)         /* closes both ends */                           \
    X(HALF_CLOSED, false) /* closes receiving end */                        \
    X(STOPPED, false)     /* stops reading: half open */           \
    X(SWALLOWED, false)   /* reads and discards: half open */              \
    X(DOUBLED, false)     /* repeats some bytes */                          \
    X(DROPPED, false)     /* loses some bytes */                         \
    X(SWAPPED, false)     /* delays some bytes behind later ones */        \
    X(DAMAGED, false)     /* flips one bit */

/* Fault to inject. */
typedef enum wire_fault {
#define WIRE_FAULT_ENUM(name, harmless) WIRE_##name,
    WIRE_FAULT_LIST(WIRE_FAULT_ENUM)
#undef WIRE_FAULT_ENUM
        N_WIRE_FAULTS
} wire_fault;

/* Returns the fault's name. */
const char *wire_fault_name(wire_fault fault);
/* Checks whether the fault must not change results. */
bool wire_fault_is_harmless(wire_fault fault);

/* Configuration of the proxy: the fault, its place, and the connection type. */
typedef struct wire_plan {
    uint64_t seed;
    wire_fault fault;
    uint32_t from, to; /* direction that fails */
    bool both_ways;    /* half open: the reverse direction, too */
    uint64_t at;       /* byte offset before which it strikes */
    uint64_t every;    /* repeats after this many bytes; 0: once */
    size_t n_bytes;    /* maximum length to double, drop, swap */
    bool tcp;          /* TCP connections, else socket pairs */
    bool slow;         /* small buffers, small delayed pieces */
    bool rails;        /* two rails per peer, the proxy on the first */
    int64_t silence_ns;
} wire_plan;

/* Outcome of a run. */
typedef struct wire_log {
    lh_status status[WIRE_MOST_RANKS];
    /* a rank's error message */
    char text[WIRE_MOST_RANKS][512];
    /* forwarded bytes [from][to] */
    uint64_t passed[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    /* the fault was injected */
    bool struck;
    int64_t struck_ns, ended_ns; /* times: fault, end of all ranks */
    lhi_rails_statistics seen;   /* over all ranks */
} wire_log;

/* Runs ranks as lhi_inproc_run does, through the proxy. */
lh_status wire_run(const wire_plan *plan, wire_log *log, uint32_t n,
                   uint32_t n_links, const lhi_net_link *links,
                   lhi_rank_main *rank_main, void *context,
                   lhi_rank_result *results, lh_error *err);

#endif
