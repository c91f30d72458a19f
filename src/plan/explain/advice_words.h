/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_ADVICE_WORDS_H
#define LHI_ADVICE_WORDS_H

#include "base/arena.h"

#include <longhaul/advice.h>

/* Fills in q->why from all else of it, in `mem`; others have a share in a link
 * that is `shared`. */
lh_status lhi_say_why(lh_advice_question *q, bool shared, lhi_arena *mem,
                      lh_error *err);

#endif
