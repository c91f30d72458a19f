/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_DISPATCH_H
#define LHI_DISPATCH_H

#include "solve/model/words.h"

/* Makes orders by dispatching what is due first; *ok is false where memory
 * then stood in the way. */
lh_status lhi_words_dispatch(lhi_words *words, const int64_t *due, bool *ok,
                             lhi_arena *mem, lh_error *err);

#endif
