/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/engines.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

_Static_assert(LHI_N_ENGINES - 1 <= LH_MAX_SOLVE_ENGINES,
               "a solution has a row for each");

/* Texts for one engine. */
typedef struct row {
    const char *name, *label, *about;
} engine_row;

static const engine_row rows[LHI_N_ENGINES] = {
#define ROW(id, name, label, about) [LHI_ENGINE_##id] = {name, label, about},
    LHI_ENGINE_LIST(ROW)
#undef ROW
};

/* Names in earlier versions, still accepted. */
static const struct {
    const char *name;
    lhi_engine engine;
} former_names[] = {{"loose", LHI_ENGINE_RELAXATION},
                    {"fewer", LHI_ENGINE_REDUCTION},
                    {"regrowth", LHI_ENGINE_DESTROY_REPAIR}};
enum { N_FORMER_NAMES = sizeof former_names / sizeof *former_names };

/* Checks whether the text name[0..len-1] equals `known`. */
static bool has_name(const char *known, const char *name, size_t len)
{
    return strlen(known) == len && strncmp(known, name, len) == 0;
}

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

uint32_t lh_solve_engine_find(const char *name, size_t len)
{
    uint32_t i = 0;
    while (i < lh_n_solve_engines() && !has_name(rows[i + 1].name, name, len))
        i++;
    for (uint32_t k = 0; k < N_FORMER_NAMES && i == lh_n_solve_engines(); k++)
        if (has_name(former_names[k].name, name, len))
            return former_names[k].engine - 1;
    return i;
}

const char *lhi_engine_get_label(lhi_engine engine)
{
    return engine == LHI_ENGINE_NONE ? "" : rows[engine].label;
}

/* Fails with LH_EINVAL because no search engine has the name in name[0..len-1];
 * the message lists the known ones. */
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
        const uint32_t i = lh_solve_engine_find(at, len);
        if (i == lh_n_solve_engines())
            return report_unknown_engine(at, len, err);
        all |= UINT64_C(1) << (i + 1);
        at = at[len] ? at + len + 1 : NULL;
    }
    *off = all;
    return LH_OK;
}
