/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_schedule. */
#ifndef LHI_SCHEDULE_OWN_H
#define LHI_SCHEDULE_OWN_H

#include "base/arena.h"

#include <longhaul/schedule.h>
#include <stdbool.h>

struct lh_schedule {
    lhi_arena *mem;
    const char *name; /* of the file it was read from, or NULL */
    uint32_t n_devices, n_link_orders, n_skipped;
    const lh_pass **orders; /* [device][0..counts[device]-1] */
    uint32_t *counts;
    const uint32_t **cells; /* per device: the cell of each pass, from 1; NULL,
                               also for a device: pass i is cell i + 1 */
    const lh_link_order *link_orders;
};

/* The same again, but for the name of its file and the cells there. */
lh_status lhi_schedule_copy(const lh_schedule *schedule, lh_schedule **out,
                            lh_error *err);

/* Reading at..end-1: both give what follows, or NULL. A number below `below`:
 */
const char *lhi_number_scan(const char *at, const char *end, uint32_t below,
                            uint32_t *out);
/* A pass as lh_pass_text() writes it, within the limits of a pipeline. Where
 * it is none only because of how it is cut, *bad_cut (may be NULL) is set. */
const char *lhi_pass_scan(const char *at, const char *end, lh_pass *out,
                          bool *bad_cut);
/* The same of a whole text; `pass` is an lh_pass. */
bool lhi_pass_parse(const char *text, void *pass);
#define LHI_PASS_FORM "a pass, as 3F0, 3I0, 3B0 or 0W3:2/8"
const char *lhi_pass_print(const void *pass, char *text);
/* "0F": the chunk and kind of passes. */
const char *lhi_passes_scan(const char *at, const char *end, uint32_t *chunk,
                            uint8_t *kind);

/* Whether a link may be called so: not empty, no control characters, commas or
 * quotes, no blanks around it. Everything else survives the CSV. */
bool lhi_link_name_ok(const char *name, size_t len);

#endif
