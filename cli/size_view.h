/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the result of longhaul size. */
#ifndef CLI_SIZE_VIEW_H
#define CLI_SIZE_VIEW_H

#include "cli.h"

#include <longhaul/experimental/size.h>

/* Prints the sizes as text, or as JSON with --json. */
lh_status cli_print_size(cli *c, const lh_job *job, const lh_size_options *o,
                         const lh_size_result *result);

#endif
