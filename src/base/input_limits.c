/* SPDX-License-Identifier: Apache-2.0 */
#include "base/input_limits.h"

#include "base/text.h"

static const struct {
    const char *what;
    size_t bytes;
} kinds[LHI_N_INPUTS] = {
#define LHI_INPUT_ROW(name, what, mib) {what, (size_t)(mib) << 20},
    LHI_INPUT_LIST(LHI_INPUT_ROW)
#undef LHI_INPUT_ROW
};

const char *lhi_input_describe(lhi_input_kind kind)
{
    return kinds[kind].what;
}

size_t lhi_input_max_bytes(lhi_input_kind kind)
{
    return kinds[kind].bytes;
}

lh_status lhi_input_check_size(size_t len, const char *name,
                               lhi_input_kind kind, lh_error *err)
{
    if (len <= kinds[kind].bytes)
        return LH_OK;
    return lhi_fail_too_large(name, kinds[kind].bytes, kinds[kind].what, err);
}

lh_status lhi_input_read(const char *path, lhi_input_kind kind, char **out,
                         size_t *len, lh_error *err)
{
    return lhi_text_read(path, kinds[kind].bytes, kinds[kind].what, out, len,
                         err);
}
