/* SPDX-License-Identifier: Apache-2.0 */
/* Finds measured entries of a profile. */
#ifndef LHI_FORMAT_JOB_PROFILE_LOOKUP_H
#define LHI_FORMAT_JOB_PROFILE_LOOKUP_H

#include <longhaul/experimental/profile.h>

/* Finds the entry measured under exactly the conditions in `like`: kind,
 * tensor, context, expert, micro_batch, sequence, recompute, sequence
 * parallelism; for a chunk also chunk and n_chunks. GPU and model must match
 * those in `like` or be unnamed. NULL: none. Borrowed. */
const lh_profile_entry *lhi_profile_find(const lh_profile *profile,
                                         const lh_profile_entry *like);

#endif
