/* SPDX-License-Identifier: Apache-2.0 */
/* A table of emulated links that processes of one host share although they were
 * not forked together. Rank 0 makes it and tells the others 64 bytes. */
#ifndef LHI_SHARED_H
#define LHI_SHARED_H

#include "net/cards.h"
#include "net/emulated_links.h"

typedef struct lhi_shared lhi_shared;

/* With no links there is nothing to share: a table of NULL. */
lh_status lhi_shared_make(uint32_t n_links, const lhi_net_link *links,
                          unsigned char extra[LHI_SHARE_BYTES],
                          lhi_shared **out, lh_error *err);
/* LH_EUNSUPPORTED: rank 0 runs elsewhere. LH_EINVAL: it emulates other links.
 */
lh_status lhi_shared_find(uint32_t n_links, const lhi_net_link *links,
                          const unsigned char extra[LHI_SHARE_BYTES],
                          lhi_shared **out, lh_error *err);
lhi_links *lhi_shared_table(const lhi_shared *shared);
void lhi_shared_free(lhi_shared *shared); /* NULL is fine */

#endif
