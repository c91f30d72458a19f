/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a plan's messages between datacenters packet by packet, for
 * longhaul packets. */
#ifndef CLI_PLAN_PACKETS_H
#define CLI_PLAN_PACKETS_H

#include "inputs.h"

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/packets.h>
#include <longhaul/experimental/profile.h>

/* Shows that `done` of `total` simulations have ended; returns true after an
 * interrupt, to stop (callback). `context`: the cli. */
bool cli_packets_show_progress(void *context, uint32_t done, uint32_t total);

/* Options of a plan's simulation. */
typedef struct cli_plan_packets {
    uint32_t sample; /* as in lh_packet_plan_run */
    uint32_t seeds, threads;
    const char *html; /* page to write; NULL: none */
} cli_plan_packets;

/* Reads the plan c->operands[0], simulates it and prints the result. */
lh_status cli_plan_packets_run(cli *c, const cli_plan_packets *how);

/* Job whose links have estimated values, for plan --network packets. */
typedef struct cli_packet_job {
    lh_job job; /* shares its contents with the original */
    lh_profile profile;
    char *source; /* of the profile: which links are simulated */
    lh_profile_link *links;
    uint32_t n_estimated; /* the first links */
} cli_packet_job;

/* Estimates the links that the plan's messages cross from packets and stores a
 * copy of `job` with these estimates in *out. The plan and the job must outlive
 * it. Release with cli_packet_job_fini(), also after a failure. */
lh_status cli_packet_job_make(cli *c, const lh_job *job, const lh_plan *plan,
                              uint32_t threads, cli_packet_job *out);
/* Frees the estimates. */
void cli_packet_job_fini(cli_packet_job *job);

#endif
