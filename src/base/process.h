/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the process that owns a file, so that a later process can check
 * whether it still runs; files of a killed run do not show it themselves. */
#ifndef LHI_BASE_PROCESS_H
#define LHI_BASE_PROCESS_H

#include <stdint.h>

/* A process's identity. Strings contain letters, digits, '.', '_' and '-';
 * "" where the system provides none. */
typedef struct lhi_process {
    char host[65];          /* host name */
    char machine[65];       /* /etc/machine-id: survives a reboot */
    char boot[65];          /* kernel's boot id, new with each reboot */
    uint64_t pid_namespace; /* PID namespace of `number` (containers) */
    int64_t number;
    uint64_t started; /* ticks since boot: PIDs are reused */
} lhi_process;

/* A process's state. */
typedef enum lhi_process_state {
    LHI_PROCESS_RUNS,
    LHI_PROCESS_GONE,
    LHI_PROCESS_ELSEWHERE /* not visible from here */
} lhi_process_state;

/* Identifies the calling process: machine, boot, PID namespace, number and
 * start time. */
void lhi_process_identify_self(lhi_process *out);
/* Checks whether a process still runs. LHI_PROCESS_GONE: it belonged to this
 * machine, and it ended or the machine was rebooted. */
lhi_process_state lhi_process_check(const lhi_process *process);
/* Returns a hash of the machine, boot and PID namespace in which the process
 * number is unique. The number itself is not part of the hash. */
uint32_t lhi_process_hash_namespace(const lhi_process *process);

#endif
