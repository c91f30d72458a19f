/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as command lines of Megatron-LM. */
#ifndef CLI_MEGATRON_H
#define CLI_MEGATRON_H

#include "cli.h"

#include <longhaul/plan.h>

/* A plan's layout as arguments of Megatron-LM, a line each, remarks behind
 * '#'. Release *text with free(). */
lh_status cli_megatron(cli *c, const lh_plan *plan, char **text);

#endif
