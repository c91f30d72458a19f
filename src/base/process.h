/* SPDX-License-Identifier: Apache-2.0 */
/* Which process something belongs to, so that a later one can tell whether it
 * still runs: files of a killed run say nothing by themselves. */
#ifndef LHI_PROCESS_H
#define LHI_PROCESS_H

#include <stdint.h>

/* Texts are of letters, digits, '.', '_' and '-'; "" where the system does not
 * say. */
typedef struct lhi_process {
    char host[65];    /* the machine's name */
    char machine[65]; /* /etc/machine-id: survives a restart */
    char boot[65];    /* the kernel's, new with each restart */
    uint64_t space;   /* where `number` counts: containers have their own */
    int64_t number;
    uint64_t started; /* ticks since the boot: numbers are used again */
} lhi_process;

typedef enum lhi_process_state {
    LHI_PROCESS_RUNS,
    LHI_PROCESS_GONE,
    LHI_PROCESS_ELSEWHERE /* cannot be seen from here */
} lhi_process_state;

void lhi_process_self(lhi_process *out);
/* Gone: it was of this machine, and has ended or the machine was restarted. */
lhi_process_state lhi_process_look(const lhi_process *process);
/* A number for all of `process` but the process itself: where its number
 * counts. */
uint32_t lhi_process_place(const lhi_process *process);

#endif
