/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a plan's messages between datacenters packet by packet, for
 * longhaul packets. */
#ifndef CLI_PLAN_PACKETS_H
#define CLI_PLAN_PACKETS_H

#include "inputs.h"

#include <longhaul/experimental/packets.h>

/* Options of a plan's simulation. */
typedef struct cli_plan_packets {
    uint32_t sample; /* as in lh_packet_plan_run */
    uint32_t seeds, threads;
} cli_plan_packets;

/* Reads the plan c->operands[0], simulates it and prints the result. */
lh_status cli_plan_packets_run(cli *c, const cli_plan_packets *how);

#endif
