/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule's CSV texts in memory. */
#ifndef LHI_SCHEDULE_PIPELINE_FILE_SCHEDULE_CSV_H
#define LHI_SCHEDULE_PIPELINE_FILE_SCHEDULE_CSV_H

#include <longhaul/experimental/schedule.h>
#include <longhaul/schedule.h>

#include <stddef.h>

/* Parses a schedule from the texts of S.csv (`rows`) and S.links.csv (`links`;
 * NULL: none). `name`: file name in messages. */
lh_status lhi_schedule_parse_both(const char *rows, size_t rows_len,
                                  const char *links, size_t links_len,
                                  const char *name, lh_schedule **out,
                                  lh_error *err);

/* Formats the links' message orders as CSV text of *len bytes; *text is NULL if
 * there are none. Release it with lh_text_free(). */
lh_status lhi_schedule_format_links(const lh_schedule *schedule, char **text,
                                    size_t *len, lh_error *err);

#endif
