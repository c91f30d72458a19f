/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a timeline: which there are, in which order, and what they are
 * called. The page, the still picture and the terminal all draw these. */
#ifndef LHI_TIMELINE_ROWS_H
#define LHI_TIMELINE_ROWS_H

#include "base/arena.h"

#include <longhaul/trace.h>

#include <stdbool.h>

/* A link on which a message takes any time. */
typedef struct lhi_link_row {
    uint32_t link; /* LH_NONE: of messages without a link */
    bool far;      /* between sites */
    bool quiet;    /* within a site, and hardly ever used */
} lhi_link_row;

typedef struct lhi_timeline_rows {
    uint32_t n_sites; /* those with devices */
    const uint32_t *sites;
    const uint32_t *devices; /* all of the trace's, those of a site together */
    uint32_t n_links, n_quiet;
    const lhi_link_row *links; /* between sites first, quiet ones last */
    /* How manieth chunk of its device each is, from 0 on, and how many chunks
     * the device with most of them has. */
    uint32_t n_chunks, most_chunks;
    const uint32_t *turns;
} lhi_timeline_rows;

/* Sites, and the devices of each, stand in the order in which a microbatch gets
 * to them, so that its way is a diagonal; replicas, which share chunks, in that
 * of their numbers. A link is quiet while messages spend less than 5 % of the
 * makespan on it. Lasts as long as `mem`; false: no memory. */
bool lhi_timeline_rows_make(const lh_trace *trace, lhi_arena *mem,
                            lhi_timeline_rows *out);

/* The runs of a device, in order, and how many they are. */
const lh_trace_run *lhi_runs_of(const lh_trace *trace, uint32_t device,
                                uint32_t *n);

/* "device 3" */
#define LHI_ROW_LABEL 40
char *lhi_device_label(uint32_t device, char *text);
/* "1 quiet link" */
char *lhi_quiet_label(uint32_t n, char *text);
/* The trace's own, which is borrowed. */
const char *lhi_link_label(const lh_trace *trace, uint32_t link);
const char *lhi_site_label(const lh_trace *trace, uint32_t site);
/* Whether sites have a row of their own. */
bool lhi_timeline_grouped(const lh_trace *trace);

#endif
