/* SPDX-License-Identifier: Apache-2.0 */
/* A text that another program is started with, as a job. */
#ifndef RUN_IMPORT_H
#define RUN_IMPORT_H

#include <longhaul/import.h>

#include <stdint.h>

/* What becomes of it is a job, which is read again; everything is named that is
 * not in it. `model` and `schedule` may be NULL. */
void run_import(lh_import_source source, const uint8_t *data, size_t size,
                const lh_model *model, const char *schedule);

#endif
