/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/defects.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *kind, *text;
} table[LHI_N_REMARKS] = {
#define LHI_REMARK_ROW(name, kind, text) {kind, text},
    LHI_DEFECT_LIST(LHI_REMARK_ROW)
#undef LHI_REMARK_ROW
};

void lhi_defect_add(lhi_defect_counts *remarks, lhi_defect_kind kind,
                    uint64_t n, const char *format, ...)
{
    if (n == 0)
        return;
    if (remarks->n[kind] == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(remarks->first[kind], sizeof remarks->first[kind], format,
                  args);
        va_end(args);
    }
    remarks->n[kind] += n;
}

lh_status lhi_defects_list(const lhi_defect_counts *remarks, lhi_arena *arena,
                           const lh_recording_defect **out, uint32_t *n,
                           lh_error *err)
{
    lh_recording_defect *list =
        LHI_NEW(arena, lh_recording_defect, LHI_N_REMARKS);
    uint32_t used = 0;
    for (uint32_t i = 0; list && i < LHI_N_REMARKS; i++) {
        char text[480];
        if (remarks->n[i] == 0)
            continue;
        snprintf(text, sizeof text, "%" PRIu64 " %s; the first: %s",
                 remarks->n[i], table[i].text, remarks->first[i]);
        list[used] = (lh_recording_defect){table[i].kind, remarks->n[i],
                                           lhi_arena_strdup(arena, text)};
        if (!list[used++].text)
            return lhi_fail_nomem(err);
    }
    if (!list)
        return lhi_fail_nomem(err);
    *out = list;
    *n = used;
    return LH_OK;
}
