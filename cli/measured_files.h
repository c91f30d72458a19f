/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured in a recording, as files that other commands take. */
#ifndef CLI_MEASURED_FILES_H
#define CLI_MEASURED_FILES_H

#include "cli.h"

#include <longhaul/diagnose.h>

typedef struct cli_measured {
    const char *pipeline, *profile; /* files to write; NULL: none */
    const char *job; /* under whose conditions the profile's times are */
} cli_measured;

/* Writes them, of the replica whose passes take longest. */
lh_status cli_measured_write(cli *c, const cli_measured *files,
                             const lh_recording *recording,
                             const lh_diagnosis *diagnosis);

#endif
