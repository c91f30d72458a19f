/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/engines.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

_Static_assert(LHI_N_ENGINES - 1 <= LH_MAX_SOLVE_ENGINES,
               "a solution has a row for each");

/* Texts for one engine. */
typedef struct row {
    const char *name, *says, *about;
} engine_row;

static const engine_row rows[LHI_N_ENGINES] = {
#define ROW(id, name, says, about) [LHI_ENGINE_##id] = {name, says, about},
    LHI_ENGINE_LIST(ROW)
#undef ROW
};

uint32_t lh_n_solve_engines(void)
{
    return LHI_N_ENGINES - 1;
}

const char *lh_solve_engine_name(uint32_t i)
{
    return i < lh_n_solve_engines() ? rows[i + 1].name : NULL;
}

const char *lh_solve_engine_about(uint32_t i)
{
    return i < lh_n_solve_engines() ? rows[i + 1].about : NULL;
}

const char *lhi_engine_get_label(lhi_engine engine)
{
    return engine == LHI_ENGINE_NONE ? "" : rows[engine].says;
}

/* Fails due to an unknown engine name; the message lists the known ones. */
static lh_status report_unknown_engine(const char *name, size_t len,
                                       lh_error *err)
{
    char known[400] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < lh_n_solve_engines(); i++) {
        const char *next = lh_solve_engine_name(i);
        if (n + strlen(next) + 3 > sizeof known)
            break;
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                              i ? ", " : "", next);
    }
    return lhi_fail(err, LH_EINVAL, "unknown engine '%.*s'; known: %s",
                    (int)(len < 40 ? len : 40), name, known);
}

lh_status lhi_engine_parse_disabled(const char *without, uint64_t *off,
                                    lh_error *err)
{
    uint64_t all = 0;
    const char *at = without;
    while (at) {
        const size_t len = strcspn(at, ",");
        uint32_t i = 1;
        while (i < LHI_N_ENGINES && (strlen(rows[i].name) != len ||
                                     strncmp(rows[i].name, at, len) != 0))
            i++;
        if (i == LHI_N_ENGINES)
            return report_unknown_engine(at, len, err);
        all |= UINT64_C(1) << i;
        at = at[len] ? at + len + 1 : NULL;
    }
    *off = all;
    return LH_OK;
}
