/* SPDX-License-Identifier: Apache-2.0 */
/* An lh_schedule's members. */
#ifndef LHI_SCHEDULE_PIPELINE_SCHEDULE_INTERNAL_H
#define LHI_SCHEDULE_PIPELINE_SCHEDULE_INTERNAL_H

#include "base/arena.h"

#include <longhaul/experimental/schedule.h>
#include <stdbool.h>

/* A schedule: each device's pass order, and link orders. */
struct lh_schedule {
    lhi_arena *mem;
    const char *name; /* source file, or NULL */
    uint32_t n_devices, n_link_orders, n_comms;
    const lh_pass **orders; /* [device][0..counts[device]-1] */
    uint32_t *counts;
    const uint32_t **cells; /* per device: each pass's cell, 1-based; NULL, also
                             * per device: pass i is in cell i + 1 */
    const lh_comm **comms;  /* per device: its communication cells; NULL: none
                             * anywhere */
    uint32_t *comm_counts;
    const lh_link_order *link_orders;
};

/* Copies a schedule with its link orders, without its file name and cell
 * positions. */
lh_status lhi_schedule_copy(const lh_schedule *schedule, lh_schedule **out,
                            lh_error *err);

/* Returns the time that a device's overlapped pairs save, in ns. */
int64_t lhi_schedule_measure_overlap(const lh_schedule *schedule,
                                     const lh_pipeline *pipeline,
                                     uint32_t device);

/* Parses a decimal number smaller than `below`, between `at` and `end`, into
 * *out. Returns the position after it, or NULL if there is none. */
const char *lhi_scan_number(const char *at, const char *end, uint32_t below,
                            uint32_t *out);
/* Parses a pass in lh_pass_format() format, within a pipeline's limits. Returns
 * the position after it, or NULL. Sets *bad_cut (may be NULL) if only its part
 * suffix is invalid. */
const char *lhi_scan_pass(const char *at, const char *end, lh_pass *out,
                          bool *bad_cut);
/* Parses a communication action in lh_comm_format() format into *out. Returns
 * the parsed text's end, or NULL on error. */
const char *lhi_scan_comm(const char *at, const char *end, lh_comm *out);
/* Parses a whole text as a pass into the lh_pass `pass`; false: it is none. */
bool lhi_parse_pass(const char *text, void *pass);
/* Form of a pass in errors. */
#define LHI_PASS_FORM "a pass, such as 3F0, 3I0, 3B0 or 0W3:2/8"
/* Formats a pass (`pass` points to an lh_pass) into `text`, of
 * LHI_TEXT_FORM_SIZE bytes; returns `text`. */
const char *lhi_format_pass(const void *pass, char *text);
/* Parses a chunk and a pass kind, such as "0F", from the text between `at` and
 * `end`. Returns the position after it, or NULL if there is none. */
const char *lhi_scan_pass_kind(const char *at, const char *end, uint32_t *chunk,
                               uint8_t *kind);

/* Checks whether a link name is valid: non-empty, no control characters, commas
 * or quotes, no surrounding spaces. All other names survive the CSV format. */
bool lhi_is_link_name(const char *name, size_t len);

#endif
