/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule with its communication written out, for PyTorch. */
#ifndef CLI_COMMS_H
#define CLI_COMMS_H

#include "cli.h"

#include <longhaul/trace.h>

/* The actions that _load_csv(..., format="compute_comms") of
 * torch.distributed.pipelining (2.15) takes, a row per device: passes, sends,
 * receives, waits for sends, and what sharded parameters and gradients need.
 * Every two devices post their messages to each other in one and the same
 * order, that of the predicted iteration, so none waits for another in a
 * circle. Release *text with free(). */
lh_status cli_comms(cli *c, const lh_trace *trace, char **text);

#endif
