/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/fail.h"

#include <string.h>

lh_status lhi_options_check_size(const void *given, const char *what,
                                 lh_error *err)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size >= sizeof size)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL, "%s.size is %zu: set it to sizeof(%s)",
                    what, size, what);
}

lh_status lhi_options_copy(void *mine, size_t mine_size, const void *given,
                           const char *what, lh_error *err)
{
    size_t taken = 0;
    if (given) {
        LHI_TRY(lhi_options_check_size(given, what, err));
        memcpy(&taken, given, sizeof taken);
        if (taken > mine_size)
            taken = mine_size;
        memcpy(mine, given, taken);
    }
    if (taken < mine_size)
        memset((unsigned char *)mine + taken, 0, mine_size - taken);
    memcpy(mine, &mine_size, sizeof mine_size);
    return LH_OK;
}
