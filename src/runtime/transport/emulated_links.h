/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated links compute when messages depart from a link and arrive. A run's
 * link table is one memory block without pointers, so that processes can share
 * it. Its locks are robust: if an owner is killed, the lock is released.
 *
 * Model (as in the performance model): a link is first in, first out by entry
 * time (ties: lower sender first), or follows explicit turns. A message
 * occupies the link for its transfer time and arrives `latency_ns` later. Ranks
 * hand over messages slightly after their entry and not always in entry order.
 * A message's times therefore stay provisional until it has arrived: an earlier
 * entry that is handed over later is still scheduled before it. */
#ifndef LHI_RUNTIME_TRANSPORT_EMULATED_LINKS_H
#define LHI_RUNTIME_TRANSPORT_EMULATED_LINKS_H

#include "runtime/transport/transport.h"

typedef struct lhi_links lhi_links;

/* Arrival time of a message whose turn is not determined yet. */
#define LHI_LINKS_UNKNOWN INT64_MAX

enum {
    LHI_LINKS_MAX_MESSAGES = 1 << 14, /* maximum messages on one link */
    LHI_LINKS_MAX = 4096              /* maximum links per run */
};

/* Checks that the latency and transfer time of each emulated link are in range;
 * otherwise LH_EINVAL, which names the link. */
lh_status lhi_links_check(uint32_t n_links, const lhi_net_link *links,
                          lh_error *err);

/* Returns the bytes that a table of n_links emulated links needs. */
size_t lhi_links_bytes(uint32_t n_links);
/* Initialises a table of n_links emulated links with the parameters `links`, in
 * lhi_links_bytes() zeroed bytes of memory, which processes may share. */
lh_status lhi_links_init(lhi_links *table, uint32_t n_links,
                         const lhi_net_link *links, lh_error *err);
/* Destroys the locks of an emulated link table. */
void lhi_links_fini(lhi_links *table);

/* Adds a message of `bytes` bytes from rank `sender` to emulated link `i`,
 * which it enters at entered_ns; `turn`: its position in the link's departure
 * order. *slot identifies it until lhi_links_take(). LH_EINVAL: invalid link or
 * turn; LH_EIO: the link is full, or a rank was killed while it held the lock.
 * */
lh_status lhi_links_enter(lhi_links *table, uint32_t link, uint32_t sender,
                          size_t bytes, int64_t entered_ns, uint64_t turn,
                          uint32_t *slot, lh_error *err);

/* Adds a collective of rank `rank` on shared links, and takes it as
 * lhi_links_take() takes a message. */
lh_status lhi_links_add_collective(lhi_links *table, uint32_t rank,
                                   const lhi_net_collective *what,
                                   uint32_t *slot, lh_error *err);
lh_status lhi_links_take_collective(lhi_links *table, uint32_t slot,
                                    int64_t now_ns, bool *taken,
                                    lhi_net_transfer *times, lh_error *err);

/* Sets an emulated link's latency and transfer time for later messages.
 * Messages in transit keep theirs and are not overtaken. LH_EINVAL: invalid
 * link or parameters. */
lh_status lhi_links_set(lhi_links *table, uint32_t link,
                        const lhi_net_link *rule, lh_error *err);

/* Holds back all departures from emulated link `i` until until_ns, as if the
 * link were down. LH_EUNSUPPORTED: the link is shared. */
lh_status lhi_links_suspend(lhi_links *table, uint32_t link, int64_t until_ns,
                            lh_error *err);

/* Checks that a link and a message slot exist; a peer may send any numbers. */
bool lhi_links_is_valid(const lhi_links *table, uint32_t link, uint32_t slot);

/* Takes the message in slot `index` off emulated link `i` if it has arrived by
 * now_ns, as its receiver: sets *taken, *arrived_ns and *began_ns (start of the
 * transfer), and frees the slot. Otherwise *arrived_ns is the time for the next
 * attempt, or LHI_LINKS_UNKNOWN: then call lhi_links_wait_known(). */
lh_status lhi_links_take(lhi_links *table, uint32_t link, uint32_t slot,
                         int64_t now_ns, bool *taken, int64_t *began_ns,
                         int64_t *arrived_ns, lh_error *err);
/* Sleeps until the message's arrival time in slot `slot` of emulated link `i`
 * is known, at most until until_ns. */
void lhi_links_wait_known(lhi_links *table, uint32_t link, uint32_t slot,
                          int64_t until_ns);

#endif
