/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnoses jobs that do not fit in memory: finds the changes that make them
 * fit. */
#ifndef LHI_PLANNER_SEARCH_MEMORY_NEEDS_H
#define LHI_PLANNER_SEARCH_MEMORY_NEEDS_H

#include "planner/search/candidate.h"

/* Finds the changes that make `s`'s job fit into memory: more memory per GPU,
 * more nodes, or another training key. Each search runs the steps of the plan's
 * search until a first layout works. */
lh_status lhi_find_memory_needs(const lhi_layout_search *s,
                                lh_memory_needs *out, lh_error *err);

/* Capacity for the text on memory needs, in bytes. */
enum { LHI_MEMORY_NEEDS_TEXT = 400 };

/* Formats the changes that make a job fit: "GPUs need 127.5 GiB (h100-sxm has
 * 80 GiB; tensor 1, pipeline 16, ...), or 4 nodes are needed ...". Empty: no
 * change was found. */
void lhi_format_memory_needs(const lh_job *job, const lh_memory_needs *needs,
                             char text[LHI_MEMORY_NEEDS_TEXT]);

#endif
