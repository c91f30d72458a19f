/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the measurements of a recording as inputs for other commands. */
#ifndef CLI_MEASURED_FILES_H
#define CLI_MEASURED_FILES_H

#include "cli.h"

#include <longhaul/diagnose.h>

/* Output files for measurements. */
typedef struct cli_measured {
    const char *pipeline, *profile; /* files to write; NULL: none */
    const char *job; /* job that the profile's times apply to */
} cli_measured;

/* Writes the files for the replica with the longest passes. */
lh_status cli_measured_write(cli *c, const cli_measured *files,
                             const lh_recording *recording,
                             const lh_diagnosis *diagnosis);

#endif
