/* SPDX-License-Identifier: Apache-2.0 */
/* A shop with time running backwards: arcs the other way, tails for heads, and
 * what gives memory back takes it. */
#ifndef LHI_MIRROR_H
#define LHI_MIRROR_H

#include "solve/model/words.h"

/* Lives in `mem`, and is good as long as `shop`. */
lh_status lhi_mirror_make(const lhi_shop *shop, lhi_arena *mem, lhi_shop **out,
                          lh_error *err);
/* The operation's number in the mirror, and back. */
uint32_t lhi_mirror_op(const lhi_shop *shop, uint32_t op);
/* The orders of `from` as the other of the two shops has them. */
void lhi_mirror_words(lhi_words *to, const lhi_words *from);

#endif
