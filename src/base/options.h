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

/* Checks an output struct's size field; `what`: the struct's name in the
 * message. LH_EINVAL: smaller than the size field itself. */
lh_status lhi_options_check_size(const void *given, const char *what,
                                 lh_error *err);

/* Copies a caller's struct of any header version, as LHI_OPTIONS_COPY
 * describes, without type checks. `mine_size`: size of our struct; `what`: its
 * name in messages. */
lh_status lhi_options_copy(void *mine, size_t mine_size, const void *given,
                           const char *what, lh_error *err);

#endif
