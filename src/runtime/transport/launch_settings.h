/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a rank whose launcher passes them in environment variables. */
#ifndef LHI_RUNTIME_TRANSPORT_LAUNCH_SETTINGS_H
#define LHI_RUNTIME_TRANSPORT_LAUNCH_SETTINGS_H

#include "runtime/transport/transport.h"

/* Timeout for all ranks to join; nodes may start seconds apart. */
#define LHI_LAUNCH_JOIN_TIMEOUT_NS INT64_C(60000000000)

/* This process's settings from the environment. */
typedef struct lhi_launch_settings {
    uint32_t rank, n_ranks;
    char host[256];     /* rank 0's */
    uint16_t port;      /* rank 0's */
    char job[64];       /* name of the job, equal on all ranks */
    const char *secret; /* not checked */
    /* Ranks of this host, if their output is separate from that of other hosts'
     * ranks; n_here 0: it is not, or is unknown. */
    uint32_t first_here, n_here;
    uint64_t host_layout; /* hash of the ranks per host; 0: unknown */
} lhi_launch_settings;

/* Parses a number from 0 to `most` in the environment variable `name`; `ends`
 * lists characters that may follow it, NULL: none. False: unset or invalid. */
bool lhi_launch_parse_number(const char *name, uint64_t most, const char *ends,
                             uint64_t *out);

/* Reads the job's secret from LONGHAUL_SECRET; "" if it is not set. */
void lhi_launch_read_secret(lhi_launch_settings *s);

/* Checks the job's secret. LH_EINVAL: it is missing or too short; the message
 * names the launcher, such as "srun". */
lh_status lhi_launch_check_secret(const lhi_launch_settings *s,
                                  const char *launcher, lh_error *err);

/* Reads rank 0's port from LONGHAUL_PORT; `port` if that is not set. LH_EINVAL:
 * it is not a port. */
lh_status lhi_launch_read_port(lhi_launch_settings *s, uint16_t port,
                               lh_error *err);

/* Sets rank 0's host in `s` to `host`. LH_EINVAL: it is too long; `name`: the
 * variable that it comes from, for the message. */
lh_status lhi_launch_set_host(lhi_launch_settings *s, const char *name,
                              const char *host, lh_error *err);

/* Checks, on rank 0, that other hosts can reach the address of its host
 * s->host. LH_EINVAL: the host's name resolves to a loopback address; the
 * message names the variable `name` that sets the host. A literal address is
 * not checked. */
lh_status lhi_launch_check_first_host(const lhi_launch_settings *s,
                                      const char *name, lh_error *err);

#endif
