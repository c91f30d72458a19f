/* SPDX-License-Identifier: Apache-2.0 */
/* Startup by torchrun's variables RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT, which other launchers of PyTorch jobs set, too. */
#ifndef LHI_RUNTIME_TRANSPORT_TORCHRUN_H
#define LHI_RUNTIME_TRANSPORT_TORCHRUN_H

#include "runtime/transport/launch_settings.h"

/* Checks whether this process has torchrun's variables. Those of a process that
 * mpirun started are ignored, unless torchrun itself has set them. */
bool lhi_torchrun_is_launched(void);

/* Reads this rank's settings. The host is MASTER_ADDR. The port is
 * LONGHAUL_PORT, else MASTER_PORT; under torchrun, whose own server listens
 * there, the next one. LH_EINVAL: a variable is missing or invalid; `err` has
 * the remedy. The secret is not checked. */
lh_status lhi_torchrun_read_environment(lhi_launch_settings *out,
                                        lh_error *err);

#endif
