/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnoses jobs that do not fit in memory: finds the changes that make them
 * fit. */
#ifndef LHI_PLANNER_SEARCH_MEMORY_NEEDS_H
#define LHI_PLANNER_SEARCH_MEMORY_NEEDS_H

#include "planner/search/candidate.h"

/* An option of the training program with another value. */
typedef struct lhi_option_change {
    const char *key, *flag; /* of the job, and of the program */
    bool fixed;             /* the job sets the option */
} lhi_option_change;

/* Sets the option of the job's training program with which training needs less
 * memory without recomputation: gradients in the type of the training, in bf16
 * with Megatron-LM; compiled layers with torchtitan. Returns false if there is
 * none, or the job has it. */
bool lhi_reduce_memory_by_option(lh_job *job, lhi_option_change *out);

/* Finds the changes that make `s`'s job fit into memory: more memory per GPU,
 * more nodes, or another key. Each search runs the steps of the plan's
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
