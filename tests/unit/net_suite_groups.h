/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance suite: groups of ranks (src/runtime/transport/group.h). */
#ifndef NET_SUITE_GROUPS_H
#define NET_SUITE_GROUPS_H

#include "runtime/transport/transport.h"

lhi_rank_main net_groups_sum;       /* 4 ranks */
lhi_rank_main net_groups_all_pairs; /* 4 */
lhi_rank_main net_groups_ring;      /* 3 */
lhi_rank_main net_groups_apart;     /* 4: two kinds at once, in two threads */
lhi_rank_main net_groups_link;      /* 2 */
lhi_rank_main net_groups_refuse;    /* 2 */
lhi_rank_main net_groups_fail;      /* 3; the last one fails */
lhi_rank_main net_groups_disagree;  /* 2; their sizes do not match */

#endif
