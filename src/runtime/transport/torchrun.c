/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/torchrun.h"

#include "base/fail.h"

#include <stdio.h>
#include <stdlib.h>

bool lhi_torchrun_is_launched(void)
{
    if (!getenv("RANK") || !getenv("WORLD_SIZE") || !getenv("MASTER_ADDR") ||
        !getenv("MASTER_PORT"))
        return false;
    return getenv("TORCHELASTIC_RUN_ID") || !lhi_mpi_is_launched();
}

lh_status lhi_torchrun_read_environment(lhi_launch_settings *out, lh_error *err)
{
    lhi_launch_settings s = {0};
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    uint64_t rank, n, port, n_here, local;
    if (!lhi_launch_parse_number("RANK", UINT32_MAX, NULL, &rank) ||
        !lhi_launch_parse_number("WORLD_SIZE", LHI_NET_MAX_RANKS, NULL, &n) ||
        !lhi_launch_parse_number("MASTER_PORT", 65534, NULL, &port) ||
        port == 0 || rank >= n)
        return lhi_fail(err, LH_EINVAL,
                        "RANK, WORLD_SIZE (at most %d) and MASTER_PORT (1 to "
                        "65534) do not identify a rank: start it with "
                        "torchrun, or unset RANK",
                        LHI_NET_MAX_RANKS);
    s.rank = (uint32_t)rank;
    s.n_ranks = (uint32_t)n;
    /* Without TORCHELASTIC_RESTART_COUNT, which differs between an agent that
     * has restarted its ranks and one that joined later. */
    snprintf(s.job, sizeof s.job, "torchrun %.40s", run ? run : "");
    LHI_TRY(lhi_launch_read_port(&s, (uint16_t)(run ? port + 1 : port), err));
    LHI_TRY(lhi_launch_set_host(&s, "MASTER_ADDR", getenv("MASTER_ADDR"), err));
    if (rank == 0 &&
        lhi_launch_parse_number("LOCAL_WORLD_SIZE", n, NULL, &n_here) &&
        n_here < n)
        LHI_TRY(lhi_launch_check_first_host(
            &s, "MASTER_ADDR, or the first name of --hosts,", err));
    if (lhi_launch_parse_number("LOCAL_RANK", rank, NULL, &local) &&
        lhi_launch_parse_number("LOCAL_WORLD_SIZE", n - rank + local, NULL,
                                &n_here) &&
        local < n_here) {
        s.first_here = (uint32_t)(rank - local);
        s.n_here = (uint32_t)n_here;
    }
    /* Of --hosts. */
    lhi_launch_parse_number("LONGHAUL_HOST_LAYOUT", UINT32_MAX, NULL,
                            &s.host_layout);
    lhi_launch_read_secret(&s);
    *out = s;
    return LH_OK;
}
