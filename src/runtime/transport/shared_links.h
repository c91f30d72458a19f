/* SPDX-License-Identifier: Apache-2.0 */
/* An emulated link table shared by separately started processes on one host.
 * Rank 0 creates it and sends its location (64 bytes) to the others. */
#ifndef LHI_RUNTIME_TRANSPORT_SHARED_LINKS_H
#define LHI_RUNTIME_TRANSPORT_SHARED_LINKS_H

#include "runtime/transport/address_exchange.h"
#include "runtime/transport/emulated_links.h"

typedef struct lhi_shared_links lhi_shared_links;

/* Creates the shared emulated link table on rank 0; `extra` receives its
 * location. Without links the table is NULL. */
lh_status
lhi_shared_links_make(uint32_t n_links, const lhi_net_link *links,
                      unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES],
                      lhi_shared_links **out, lh_error *err);
/* Maps rank 0's shared table of emulated links, whose location is in `extra`.
 * LH_EUNSUPPORTED: rank 0 is on another host. LH_EINVAL: it emulates other
 * links. */
lh_status
lhi_shared_links_map(uint32_t n_links, const lhi_net_link *links,
                     const unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES],
                     lhi_shared_links **out, lh_error *err);
/* Returns the mapped emulated link table; NULL: the run emulates no links. */
lhi_links *lhi_shared_links_table(const lhi_shared_links *shared);
/* Unmaps and frees the shared emulated link table; NULL is allowed. */
void lhi_shared_links_free(lhi_shared_links *shared);

#endif
