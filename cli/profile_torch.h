/* SPDX-License-Identifier: Apache-2.0 */
/* Measures passes with PyTorch in a separate Python process. */
#ifndef CLI_PROFILE_TORCH_H
#define CLI_PROFILE_TORCH_H

#include "cli.h"

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/profile.h>

/* Arguments for `python -m longhaul.torch`; lists are NULL if not given. */
typedef struct torch_profile {
    const char *python, *modules, *tensor, *micro_batch;
    uint32_t repeats;
} torch_profile;

/* Measures a profile for the job with PyTorch; the caller owns *out. */
lh_status cli_profile_torch(cli *c, const lh_job *job, const torch_profile *how,
                            lh_profile **out);

#endif
