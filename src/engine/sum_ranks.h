/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that all ranks need the sum of, each place filled by one of them. */
#ifndef LHI_SUM_RANKS_H
#define LHI_SUM_RANKS_H

#include "net/net.h"

/* Adds up the arrays of all ranks, on rank 0; all get the sum. `turn` is the
 * same on all, and another one each time. `stop` as in lhi_net_wait_unless. */
lh_status lhi_sum_ranks(lhi_net *net, uint64_t turn, double *values, size_t n,
                        const lhi_net_stop *stop, lh_error *err);
/* A text of `size` bytes that rank `from` has, to rank 0. */
lh_status lhi_text_to_first(lhi_net *net, uint32_t from, uint64_t turn,
                            char *text, size_t size, const lhi_net_stop *stop,
                            lh_error *err);

#endif
