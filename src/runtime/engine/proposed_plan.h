/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules proposed during a run, from their texts to execution plans. Ranks
 * in one process share them: one rank lowers and checks, the others find its
 * result. */
#ifndef LHI_RUNTIME_ENGINE_PROPOSED_PLAN_H
#define LHI_RUNTIME_ENGINE_PROPOSED_PLAN_H

#include "runtime/engine/control_messages.h"
#include "runtime/engine/execution_plan.h"
#include "runtime/engine/rank_assignment.h"

/* The plans in use by this process's ranks; thread-safe. */
typedef struct lhi_proposals lhi_proposals;

/* An execution plan with the texts that it was made from. */
typedef struct lhi_proposed_plan {
    const char *text;
    lhi_proposal_texts texts;
    const lh_exec *exec;
    const lhi_rank_assignment *assignment; /* its rank assignment */
    /* The pipeline of `exec`, with the assignment's layer counts. */
    const lh_pipeline *pipeline;
} lhi_proposed_plan;

/* Creates the list of proposed plans of a run, all for `pipeline` and under
 * `options` but with their own data paths. `limits`: permitted migrations;
 * NULL: none. All three are borrowed. */
lh_status lhi_proposals_make(const lh_pipeline *pipeline,
                             const lh_exec_options *options,
                             const lhi_rank_assignment_limits *limits,
                             lhi_proposals **out, lh_error *err);
/* Frees the proposed plan list itself, once all plans in it are released. NULL
 * is allowed. */
void lhi_proposals_free(lhi_proposals *proposals);

/* Returns the plan of a proposal's texts; builds and checks it unless it is in
 * the list. `text` is copied. Errors as in lh_schedule_parse() and
 * lh_exec_make(); LH_EINPUT: the paths do not match the pipeline's links.
 * Release with lhi_proposed_plan_release(). */
lh_status lhi_proposed_plan_acquire(lhi_proposals *proposals, const char *text,
                                    const lhi_proposal_texts *texts,
                                    const lhi_proposed_plan **out,
                                    lh_error *err);
/* Formats the data path: "direct", "delegated", or for the mixed path a 0 or 1
 * per link. `out` has LHI_PATHS_TEXT_BYTES plus one byte per link. Returns the
 * length. */
enum { LHI_PATHS_TEXT_BYTES = 16 };
uint32_t lhi_paths_format(lh_data_path path, const bool *delegated,
                          uint32_t n_links, char *out);
/* Adds a reference to a proposed plan and returns it. */
const lhi_proposed_plan *
lhi_proposed_plan_retain(const lhi_proposed_plan *proposed);
/* Drops a reference to a proposed plan; the last one frees the plan. NULL is
 * allowed. */
void lhi_proposed_plan_release(const lhi_proposed_plan *proposed);

#endif
