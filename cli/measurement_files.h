/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a recording's measurements as inputs for other commands. */
#ifndef CLI_MEASUREMENT_FILES_H
#define CLI_MEASUREMENT_FILES_H

#include "cli.h"

#include <longhaul/experimental/diagnose.h>

/* Output files for measurements. */
typedef struct cli_measurement_files {
    const char *pipeline, *profile; /* files to write; NULL: none */
    const char *job;                /* job that the profile's times apply to */
} cli_measurement_files;

/* Writes the files of measured times that the options name, for the replica
 * with the longest passes. */
lh_status cli_write_measurements(cli *c, const cli_measurement_files *files,
                                 const lh_recording *recording,
                                 const lh_diagnosis *diagnosis);

#endif
