/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated links that messages share with pieces of data-parallel collectives,
 * by the rules of the performance model (docs/formats/pipeline.md, "Shared
 * links"). Ranks hand over messages and collectives slightly after they enter.
 * All times are therefore provisional until a rank has observed an arrival:
 * the table computes them again, by an event simulation of the inputs so far.
 * An input that enters before an observed end enters at that end.
 *
 * The table is one memory block without pointers, so that processes can share
 * it. Its lock is robust. */
#ifndef LHI_RUNTIME_TRANSPORT_LINK_SHARING_H
#define LHI_RUNTIME_TRANSPORT_LINK_SHARING_H

#include "runtime/transport/transport.h"

typedef struct lhi_sharing lhi_sharing;

enum {
    LHI_SHARING_MAX_INPUTS = 1 << 16, /* in transit or not yet received */
    LHI_SHARING_MAX_LINKS = 64        /* of one rank's collectives */
};

/* Returns the bytes that a table for n_links emulated links needs. */
size_t lhi_sharing_bytes(uint32_t n_links);
/* Initialises a table in lhi_sharing_bytes() zeroed bytes. All shared links
 * have the same rule, that of links[i].sharing. */
lh_status lhi_sharing_init(lhi_sharing *table, uint32_t n_links,
                           const lhi_net_link *links, lh_error *err);
/* Destroys the table's lock. */
void lhi_sharing_fini(lhi_sharing *table);

/* Adds a message from rank `sender` to shared link `link`, which it enters at
 * entered_ns, after the message with the previous turn (LHI_NET_NO_TURN: no
 * turns). *slot identifies it until lhi_sharing_take(). LH_EINVAL: the turn is
 * used twice. LH_EIO: the table is full, or a rank was killed while it held the
 * lock. */
lh_status lhi_sharing_add_message(lhi_sharing *table, uint32_t link,
                                  uint32_t sender, const lhi_net_link *rule,
                                  int64_t transfer_ns, int64_t entered_ns,
                                  uint64_t turn, uint32_t *slot, lh_error *err);
/* Adds a collective to the stream of rank `rank`; *slot identifies it. Errors
 * as above. */
lh_status lhi_sharing_add_collective(lhi_sharing *table, uint32_t rank,
                                     const lhi_net_collective *what,
                                     uint32_t *slot, lh_error *err);

/* Takes the message or collective in a slot if it has arrived by now_ns: sets
 * *taken and its times. Otherwise times->arrive_ns is the time for the next
 * attempt, or INT64_MAX if an earlier turn is missing: then call
 * lhi_sharing_wait_known(). */
lh_status lhi_sharing_take(lhi_sharing *table, uint32_t slot, int64_t now_ns,
                           bool *taken, lhi_net_transfer *times, lh_error *err);
/* Sleeps until the slot's arrival time is known, at most until until_ns. */
void lhi_sharing_wait_known(lhi_sharing *table, uint32_t slot,
                            int64_t until_ns);

#endif
