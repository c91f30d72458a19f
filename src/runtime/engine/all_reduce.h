/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over all ranks for arrays in which each entry is filled by one rank. */
#ifndef LHI_RUNTIME_ENGINE_ALL_REDUCE_H
#define LHI_RUNTIME_ENGINE_ALL_REDUCE_H

#include "runtime/transport/transport.h"

/* Adds the arrays of all ranks on rank 0; all ranks get the sum. `turn` is
 * equal on all ranks and new in each call. `stop` as in lhi_net_wait_or_stop().
 */
lh_status lhi_all_reduce_sum(lhi_net *net, uint64_t turn, double *values,
                             size_t n, const lhi_net_stop *stop, lh_error *err);
/* Sends the text of `size` bytes from rank `from` to rank 0, which receives it
 * into `text`; other ranks do nothing. `turn`: distinguishes successive calls.
 * */
lh_status lhi_send_text_to_root(lhi_net *net, uint32_t from, uint64_t turn,
                                char *text, size_t size,
                                const lhi_net_stop *stop, lh_error *err);

#endif
