/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that srun has started without MPI: the environment of a step says who
 * is who and where rank 0 is, and carries the job's secret. Slurm's variables
 * are those of srun(1), "OUTPUT ENVIRONMENT VARIABLES". */
#ifndef LHI_SLURM_H
#define LHI_SLURM_H

#include "net/net.h"

/* How long ranks wait for each other: nodes begin seconds apart. */
#define LHI_SLURM_JOIN_NS INT64_C(60000000000)

/* What the environment says of this process. */
typedef struct lhi_slurm {
    uint32_t rank, n_ranks;
    char host[256]; /* of rank 0 */
    uint16_t port;  /* of rank 0 */
    char job[64];   /* names the step */
    const char *secret;
} lhi_slurm;

/* Whether this process is a task of a step that uses this: it has a secret in
 * LONGHAUL_SECRET, or nothing of MPI or PMI in its environment. */
bool lhi_slurm_launched(void);
/* Whether it is rank 0: what is wrong with the environment all ranks find, and
 * one says. */
bool lhi_slurm_leads(void);

/* The host is LONGHAUL_HOST, or loopback where the step has one node, or the
 * first of the step's nodes; the port LONGHAUL_PORT, or the first that Slurm
 * reserved for the step, or one that follows from the step's number.
 * LH_EINVAL: what is missing or wrong, and what to do. */
lh_status lhi_slurm_look(lhi_slurm *out, lh_error *err);

/* The first name of a list as Slurm writes them: "n[07-12,20],m" is n07, m.
 * LH_EINVAL: no such list, or a name that is too long for `room` bytes. */
lh_status lhi_slurm_first_node(const char *list, char *out, size_t room,
                               lh_error *err);

#endif
