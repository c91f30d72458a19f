/* SPDX-License-Identifier: Apache-2.0 */
/* Resumes from a checkpoint, the same one on every rank. */
#ifndef LHI_RUNTIME_ENGINE_RESUME_H
#define LHI_RUNTIME_ENGINE_RESUME_H

#include "runtime/training/train.h"
#include "runtime/transport/transport.h"

/* Options for resuming. */
typedef struct lhi_resume_options {
    lhi_train *train;
    lhi_net *net;
    const char *path; /* a checkpoint, or a folder of several */
    const lhi_checkpoint_options *checkpoint;
    lhi_remarks remarks; /* rank 0 */
    const lhi_net_stop *stop;
} lhi_resume_options;

/* Loads the newest checkpoint that is intact on every rank; reports skipped
 * ones as remarks. Collective. LH_EINPUT: none is intact, or it belongs to
 * another model or other data. */
lh_status lhi_resume(const lhi_resume_options *options, lh_error *err);

#endif
