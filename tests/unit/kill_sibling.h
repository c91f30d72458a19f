/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_KILL_SIBLING_H
#define TEST_KILL_SIBLING_H

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Kills another rank: a child of the same parent process. */
static inline void kill_sibling(void)
{
    char path[80];
    int pid, parent = (int)getppid();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1)
        if (pid != getpid()) {
            kill(pid, SIGKILL);
            break;
        }
    if (file)
        fclose(file);
}

#endif
