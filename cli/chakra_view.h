/* SPDX-License-Identifier: Apache-2.0 */
/* Replays Chakra execution traces, for simulate. */
#ifndef CLI_CHAKRA_VIEW_H
#define CLI_CHAKRA_VIEW_H

#include "cli.h"

/* Checks whether a path names an execution trace: it ends in ".et". */
bool cli_is_chakra(const char *path);
/* Replays PREFIX.0.et, PREFIX.1.et and so on, and prints the ranks' times.
 * Rejects other options than the common ones. */
lh_status cli_chakra_replay(cli *c, const char *path);

#endif
