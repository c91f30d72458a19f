/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule's CSVs, for those that have them in memory. */
#ifndef LHI_SCHEDULE_CSV_H
#define LHI_SCHEDULE_CSV_H

#include <longhaul/schedule.h>

#include <stddef.h>

/* Both texts at once: S.csv's and, unless NULL, S.links.csv's. */
lh_status lhi_schedule_parse_both(const char *rows, size_t rows_len,
                                  const char *links, size_t links_len,
                                  const char *name, lh_schedule **out,
                                  lh_error *err);

#endif
