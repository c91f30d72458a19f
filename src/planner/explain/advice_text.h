/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_PLANNER_EXPLAIN_ADVICE_TEXT_H
#define LHI_PLANNER_EXPLAIN_ADVICE_TEXT_H

#include "base/arena.h"

#include <longhaul/experimental/advice.h>

/* Sets q->why, the reason for the advised link setting, from the question's
 * other members; the text is in `mem`. `shared`: other jobs use the link too.
 */
lh_status lhi_advice_format_reason(lh_advice_question *q, bool shared,
                                   lhi_arena *mem, lh_error *err);

#endif
