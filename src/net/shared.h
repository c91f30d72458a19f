/* SPDX-License-Identifier: Apache-2.0 */
/* A table of emulated links shared by separately started processes on one host.
 * Rank 0 creates it and sends its location (64 bytes) to the others. */
#ifndef LHI_SHARED_H
#define LHI_SHARED_H

#include "net/cards.h"
#include "net/emulated_links.h"

typedef struct lhi_shared lhi_shared;

/* Creates the table on rank 0. Without links the table is NULL. */
lh_status lhi_shared_make(uint32_t n_links, const lhi_net_link *links,
                          unsigned char extra[LHI_SHARE_BYTES],
                          lhi_shared **out, lh_error *err);
/* Maps rank 0's table. LH_EUNSUPPORTED: rank 0 is on another host. LH_EINVAL:
 * it emulates other links. */
lh_status lhi_shared_find(uint32_t n_links, const lhi_net_link *links,
                          const unsigned char extra[LHI_SHARE_BYTES],
                          lhi_shared **out, lh_error *err);
/* Returns the table. */
lhi_links *lhi_shared_table(const lhi_shared *shared);
void lhi_shared_free(lhi_shared *shared); /* NULL is allowed */

#endif
