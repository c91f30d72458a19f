/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance suite: emulated links. */
#ifndef NET_SUITE_LINKS_H
#define NET_SUITE_LINKS_H

#include "runtime/transport/transport.h"

lhi_rank_main net_links_fifo;          /* 3 ranks, a link */
lhi_rank_main net_links_shared_link;   /* 3, two links */
lhi_rank_main net_links_held_link;     /* 2, a link */
lhi_rank_main net_links_changing_link; /* 2, a link */
lhi_rank_main net_links_turns;         /* 2, a link */

#endif
