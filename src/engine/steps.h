/* SPDX-License-Identifier: Apache-2.0 */
/* A run as all its ranks see it, and what rank 0 hands back. */
#ifndef LHI_STEPS_H
#define LHI_STEPS_H

#include "base/text.h"
#include "dev/data.h"
#include "engine/rank.h"
#include "engine/training.h"

typedef struct lhi_job {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    lh_train_options o; /* complete */
    uint32_t n_replicas;
    bool shared_clock; /* one machine */
    bool emulates;
    const lh_train_model *model; /* NULL: nothing is trained */
    const lhi_data *data;
    /* Made beforehand, one per rank, who takes it from here. NULL: each rank
     * makes its own. */
    lhi_device **devices;
} lhi_job;

/* The device of a rank of the job. */
lh_status lhi_job_device(const lhi_job *job, uint32_t rank, lhi_device **out,
                         lh_error *err);

/* What one rank of a run does: an lhi_rank_main, with the lhi_job. On rank 0
 * the result is the outcome's text (lhi_outcome_read), also of a run that was
 * interrupted. */
lh_status lhi_job_rank(lhi_net *net, void *job, char **result, size_t *size,
                       lh_error *err);

/* Runs this process's rank of a job whose processes MPI has started; the text
 * in *result is NULL on all but rank 0. */
lh_status lhi_job_launched(lhi_job *job, uint32_t n_links,
                           const lhi_net_link *links, lhi_rank_result *result,
                           lh_error *err);

/* The emulated links: room for one per resource. */
lh_status lhi_job_links(const lhi_job *job, lhi_net_link *links, lh_error *err);

/* What rank 0 has handed back (docs/formats/wire.md) into a result, and the
 * trace of the last iteration. */
lh_status lhi_outcome_read(const lhi_job *job, const char *text, size_t size,
                           lh_train_result **out, lh_error *err);

/* Whether a rank can have recorded so much; LH_EIO: no. */
lh_status lhi_job_check_counts(const lhi_job *job, uint32_t rank,
                               const lhi_counts *counts, lh_error *err);

/* The trace of what was recorded: `records[r]` and `played[r]` of each rank,
 * times from the start of the iteration. */
lh_status lhi_measured_trace(const lhi_job *job,
                             const lhi_record *const *records,
                             const lhi_played *const *played,
                             const uint32_t *n_played, lh_trace **out,
                             lh_error *err);

#endif
