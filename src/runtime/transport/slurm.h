/* SPDX-License-Identifier: Apache-2.0 */
/* Startup under srun without MPI. A step's environment has the rank, the rank
 * count, rank 0's host and the job's secret. Slurm's variables are described in
 * srun(1), "OUTPUT ENVIRONMENT VARIABLES". */
#ifndef LHI_RUNTIME_TRANSPORT_SLURM_H
#define LHI_RUNTIME_TRANSPORT_SLURM_H

#include "runtime/transport/launch_settings.h"

/* Checks whether this process is a Slurm task to be started this way: it has a
 * secret in LONGHAUL_SECRET, or no MPI or PMI variables. */
bool lhi_slurm_is_launched(void);
/* Reads this Slurm task's settings from the environment. The host is
 * LONGHAUL_HOST, or loopback if the step has one node, or the step's first
 * node. The port is LONGHAUL_PORT, or the first that Slurm reserved for the
 * step, or one computed from the step's number. LH_EINVAL: a variable is
 * missing or invalid; `err` has the remedy. The secret is not checked. */
lh_status lhi_slurm_read_environment(lhi_launch_settings *out, lh_error *err);

/* Returns the first name in a Slurm node list: n07 for "n[07-12,20],m".
 * LH_EINVAL: invalid list, or the name does not fit `room` bytes. */
lh_status lhi_slurm_first_node(const char *list, char *out, size_t room,
                               lh_error *err);

#endif
