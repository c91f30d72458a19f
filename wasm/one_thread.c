/* SPDX-License-Identifier: Apache-2.0 */
/* In place of base/team.c where there are no threads: the caller does it all,
 * as base/team.h says of places where others cannot be had. */
#include "base/team.h"

#include <stdlib.h>

struct lhi_crew {
    char none;
};

lh_status lhi_crew_make(uint32_t threads, lhi_crew **out, lh_error *err)
{
    (void)threads;
    lhi_crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return lhi_fail_nomem(err);
    *out = crew;
    return LH_OK;
}

void lhi_crew_free(lhi_crew *crew)
{
    free(crew);
}

void lhi_crew_run(lhi_crew *crew, const lhi_team *team, uint32_t n)
{
    (void)crew;
    lhi_team_run(team, n, 1);
}

void lhi_team_run(const lhi_team *team, uint32_t n, uint32_t threads)
{
    (void)threads;
    for (uint32_t i = 0; i < n; i++) {
        team->work(team->context, i, 0);
        if (team->look)
            team->look(team->context, i + 1);
    }
}

uint32_t lhi_processors(void)
{
    return 1;
}
