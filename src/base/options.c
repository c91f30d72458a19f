/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/fail.h"

#include <string.h>

lh_status lhi_options_take(void *mine, size_t mine_size, const void *given,
                           const char *what, lh_error *err)
{
    size_t size = sizeof size;
    if (given)
        memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return lhi_fail(err, LH_EINVAL, "%s.size is %zu: set it to sizeof(%s)",
                        what, size, what);
    if (size > mine_size)
        size = mine_size;
    memset(mine, 0, mine_size);
    if (given)
        memcpy(mine, given, size);
    memcpy(mine, &mine_size, sizeof mine_size);
    return LH_OK;
}
