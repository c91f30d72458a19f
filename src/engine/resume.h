/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a checkpoint, the same one on every rank. */
#ifndef LHI_RESUME_H
#define LHI_RESUME_H

#include "net/net.h"
#include "train/train.h"

typedef struct lhi_resume_options {
    lhi_train *train;
    lhi_net *net;
    const char *path; /* a checkpoint, or the folder of several */
    const lhi_checkpoint_options *checkpoint;
    lhi_remarks remarks; /* rank 0 */
    const lhi_net_stop *stop;
} lhi_resume_options;

/* All ranks call it. Of several checkpoints the newest that is whole on every
 * rank; those that are not are passed over with a remark. LH_EINPUT: none is,
 * or it is of another model or recipe. */
lh_status lhi_resume(const lhi_resume_options *options, lh_error *err);

#endif
