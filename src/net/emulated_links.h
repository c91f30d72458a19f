/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated links: when messages that enter a link leave it and arrive. The
 * table of all links of a run lies in one piece of memory without pointers in
 * it, so that processes can share it; no holder of a lock that is killed
 * leaves it locked.
 *
 * The rule is the performance model's: first in, first out by time of entry
 * (at equal times the lower sender), or in explicit turns; a message occupies
 * the link for its transfer and arrives `latency_ns` after that. Ranks hand
 * over messages a little after they entered, not always in the order of entry.
 * So a message's date is open until it has arrived: one that entered earlier
 * but is handed over later still takes its place before it. */
#ifndef LHI_EMULATED_LINKS_H
#define LHI_EMULATED_LINKS_H

#include "net/net.h"

typedef struct lhi_links lhi_links;

/* The arrival of a message whose turn has not come. */
#define LHI_LINKS_UNKNOWN INT64_MAX

enum {
    LHI_LINKS_SLOTS = 1 << 14, /* messages that one link can hold */
    LHI_LINKS_MOST = 4096      /* links in a run */
};

/* Checks what a caller wants emulated: LH_EINVAL names the link. */
lh_status lhi_links_check(uint32_t n_links, const lhi_net_link *links,
                          lh_error *err);

/* Bytes of a table, and making one in that many zeroed bytes. */
size_t lhi_links_bytes(uint32_t n_links);
lh_status lhi_links_init(lhi_links *table, uint32_t n_links,
                         const lhi_net_link *links, lh_error *err);
void lhi_links_fini(lhi_links *table);

/* A message of `sender` enters. *slot names it from now on, until it is taken.
 * LH_EINVAL: a wrong link or turn; LH_EIO: no room, or a rank was killed while
 * it held the link. */
lh_status lhi_links_enter(lhi_links *table, uint32_t link, uint32_t sender,
                          size_t bytes, int64_t entered_ns, uint64_t turn,
                          uint32_t *slot, lh_error *err);

/* What enters the link from now on takes it so; what is under way keeps the
 * times that it entered with, and is not overtaken. LH_EINVAL: a wrong link, or
 * times that none has. */
lh_status lhi_links_set(lhi_links *table, uint32_t link,
                        const lhi_net_link *rule, lh_error *err);

/* What enters the link leaves no sooner. */
lh_status lhi_links_hold(lhi_links *table, uint32_t link, int64_t until_ns,
                         lh_error *err);

/* False where no message can be there (a peer may send anything). */
bool lhi_links_valid(const lhi_links *table, uint32_t link, uint32_t slot);

/* The receiver's: if the message has arrived by `now_ns`, *arrived_ns says when,
 * *began_ns when its transfer began, and its slot is free again. Otherwise
 * *arrived_ns is when to look again, or LHI_LINKS_UNKNOWN: then lhi_links_sleep
 * until it is known or `until_ns`. */
lh_status lhi_links_take(lhi_links *table, uint32_t link, uint32_t slot,
                         int64_t now_ns, bool *taken, int64_t *began_ns,
                         int64_t *arrived_ns, lh_error *err);
void lhi_links_sleep(lhi_links *table, uint32_t link, uint32_t slot,
                     int64_t until_ns);

#endif
