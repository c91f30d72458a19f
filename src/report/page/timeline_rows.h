/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline's rows: selection, order and names. The page, the static picture
 * and the terminal all draw these rows. */
#ifndef LHI_REPORT_PAGE_TIMELINE_ROWS_H
#define LHI_REPORT_PAGE_TIMELINE_ROWS_H

#include "base/arena.h"

#include <longhaul/experimental/trace.h>

#include <stdbool.h>

/* A link on which some message takes time. */
typedef struct lhi_link_row {
    uint32_t link;         /* LH_NONE: messages without a link */
    bool is_between_sites; /* between sites */
    bool is_quiet;         /* within a site, and rarely used */
} lhi_link_row;

/* A timeline's rows. */
typedef struct lhi_timeline_rows {
    uint32_t n_sites; /* sites with devices */
    const uint32_t *sites;
    const uint32_t *devices; /* all devices in the trace, grouped by site */
    uint32_t n_links, n_quiet;
    const lhi_link_row *links; /* between sites first, quiet ones last */
    /* Each chunk's position among its device's chunks, from 0; the most chunks
     * on one device. */
    uint32_t n_chunks, most_chunks;
    const uint32_t *chunk_positions;
} lhi_timeline_rows;

/* Computes a timeline's rows. Datacenters, and the devices within each, are in
 * the order in which a microbatch visits them, so that its path is a diagonal.
 * Replicas, which share chunks, are in numerical order. A link is quiet if
 * messages use it for less than 5 % of the makespan. Valid as long as `mem`;
 * false on allocation failure. */
bool lhi_timeline_rows_make(const lh_trace *trace, lhi_arena *mem,
                            lhi_timeline_rows *out);

/* Returns a device's passes with their times, in order; *n: their number. */
const lh_trace_run *lhi_trace_device_runs(const lh_trace *trace,
                                          uint32_t device, uint32_t *n);

/* Buffer size for row labels. */
#define LHI_ROW_LABEL 40
/* Formats a device's label, "device 3", into `text`, which it returns. */
char *lhi_device_label(uint32_t device, char *text);
/* Formats the label that counts n quiet links (little used, not drawn), such as
 * "1 quiet link", into `text`, which it returns. */
char *lhi_quiet_label(uint32_t n, char *text);
/* Returns a link's name, borrowed from the trace. */
const char *lhi_link_label(const lh_trace *trace, uint32_t link);
/* Returns a datacenter's name, borrowed from the trace. */
const char *lhi_site_label(const lh_trace *trace, uint32_t site);
/* Checks whether datacenters have their own rows in the timeline. */
bool lhi_timeline_has_site_rows(const lh_trace *trace);

#endif
