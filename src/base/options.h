/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a caller's struct that begins with `size_t size`. The caller may have
 * been compiled with an older header, whose struct is shorter, or with a newer
 * one, whose struct is longer. */
#ifndef LHI_BASE_OPTIONS_H
#define LHI_BASE_OPTIONS_H

#include <longhaul/status.h>

/* Copies the common prefix of `given` into `mine`. Fields missing from `given`
 * become 0, and fields beyond our struct are ignored. If `given` is NULL, all
 * fields are 0. Sets mine->size to sizeof(type). A field that given->size cuts
 * in two is copied partially: a size should be the sizeof from some header
 * version.
 *
 * LH_EINVAL: given->size is smaller than the size field itself (as 0 is);
 * `mine` is then unchanged. */
#define LHI_OPTIONS_COPY(type, mine, given, err)                               \
    lhi_options_copy((type *){(mine)}, sizeof(type), (const type *){(given)},  \
                     #type, (err))

/* Checks that `given`, a caller's struct whose first member is its size, states
 * a size that includes this member. LH_EINVAL: it is smaller, such as 0.
 * `what`: the struct's name in the message. */
lh_status lhi_options_check_size(const void *given, const char *what,
                                 lh_error *err);

/* Copies `given`, a caller's struct that begins with its size, into `mine`
 * (mine_size bytes). Members that only `mine` has become 0; bytes of `given`
 * beyond mine_size are ignored. `given` NULL: all members are 0. `what`: the
 * struct's name in messages. LH_EINVAL: invalid size. */
lh_status lhi_options_copy(void *mine, size_t mine_size, const void *given,
                           const char *what, lh_error *err);

#endif
