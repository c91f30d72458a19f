/* SPDX-License-Identifier: Apache-2.0 */
/* Passes measured by PyTorch, in a Python of its own. */
#ifndef CLI_PROFILE_TORCH_H
#define CLI_PROFILE_TORCH_H

#include "cli.h"

#include <longhaul/job.h>
#include <longhaul/profile.h>

/* What `python -m longhaul.torch` is told; lists are NULL where not given. */
typedef struct torch_profile {
    const char *python, *modules, *tensor, *micro_batch;
    uint32_t repeats;
} torch_profile;

/* Runs it over the job; *out is the caller's. */
lh_status cli_profile_torch(cli *c, const lh_job *job, const torch_profile *how,
                            lh_profile **out);

#endif
