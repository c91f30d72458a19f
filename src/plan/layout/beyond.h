/* SPDX-License-Identifier: Apache-2.0 */
/* What a job may give although no search would come to it by itself: where it
 * does, a plan in which that is open may be slower. */
#ifndef LHI_BEYOND_H
#define LHI_BEYOND_H

#include "plan/layout/space.h"

/* *out in `mem`: "tensor 3, context 4 (1024 tokens a GPU)"; NULL: all that is
 * given is in the space of a job that leaves it open. */
lh_status lhi_space_beyond(const lhi_space *space, lhi_arena *mem,
                           const char **out, lh_error *err);

#endif
