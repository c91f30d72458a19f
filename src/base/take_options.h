/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a caller's struct that begins with `size_t size`. The caller may have
 * been compiled with an older header, whose struct ends earlier, or with a
 * newer one, whose struct is longer. */
#ifndef LHI_TAKE_OPTIONS_H
#define LHI_TAKE_OPTIONS_H

#include <longhaul/status.h>

/* Fills `mine` with as much of `given` as both have; what `given` lacks is 0,
 * what it has beyond ours is not looked at. `given` NULL: all is 0. mine->size
 * is sizeof(type) then. A field that given->size cuts in two is taken as far
 * as it goes: a size is meant to be the sizeof of some header's struct.
 * LH_EINVAL: given->size holds less than itself, as 0 does; `mine` is
 * untouched then. */
#define LHI_OPTIONS_TAKE(type, mine, given, err)                               \
    lhi_options_take((type *){(mine)}, sizeof(type), (const type *){(given)},  \
                     #type, (err))

/* LH_EINVAL as there, for a struct that is to be filled in. */
lh_status lhi_options_size(const void *given, const char *what, lh_error *err);

/* LHI_OPTIONS_TAKE, types not checked. `what`: the name of the struct. */
lh_status lhi_options_take(void *mine, size_t mine_size, const void *given,
                           const char *what, lh_error *err);

#endif
