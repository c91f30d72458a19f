/* SPDX-License-Identifier: Apache-2.0 */
/* Imports another program's arguments or configuration as a job. */
#ifndef RUN_IMPORT_H
#define RUN_IMPORT_H

#include <longhaul/experimental/import.h>

#include <stdint.h>

/* Imports `data`. If that succeeds, the result must parse as a job, and every
 * note and every name of an ignored option must be non-empty. `model` and
 * `schedule` may be NULL. */
void run_import(lh_import_source source, const uint8_t *data, size_t size,
                const lh_model *model, const char *schedule);

#endif
