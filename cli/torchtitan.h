/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for torchtitan, and which layers each stage has. */
#ifndef CLI_TORCHTITAN_H
#define CLI_TORCHTITAN_H

#include "cli.h"

#include <longhaul/plan.h>

/* A plan's layout as options of torchtitan, a line each, remarks behind '#'.
 * LH_EUNSUPPORTED, saying why, where torchtitan cannot be told. Release *text
 * with free(). */
lh_status cli_torchtitan(cli *c, const lh_plan *plan, char **text);

/* Which modules each stage of a plan has, and on which rank it lies, as JSON. */
lh_status cli_write_stages(cli *c, const lh_plan *plan, const char *path);

#endif
