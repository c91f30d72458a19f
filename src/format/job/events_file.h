/* SPDX-License-Identifier: Apache-2.0 */
/* Text form of event timelines (docs/formats/events.md). */
#ifndef LHI_FORMAT_JOB_EVENTS_FILE_H
#define LHI_FORMAT_JOB_EVENTS_FILE_H

#include <longhaul/experimental/events.h>

/* Parses an events file's text (changes of links, devices and rails during a
 * run). LH_EINPUT: `err` has file, line and key. Release with lh_events_free().
 */
lh_status lhi_events_parse(const char *text, size_t len, const char *name,
                           lh_events **out, lh_error *err);

/* Formats events as canonical text (JSON, nanoseconds). Parsing it gives the
 * same events, which format to the same text. Release *text with
 * lh_text_free(); `len` may be NULL. */
lh_status lhi_events_format(const lh_events *events, char **text, size_t *len,
                            lh_error *err);

#endif
