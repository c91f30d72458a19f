/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_KILL_SIBLING_H
#define TEST_KILL_SIBLING_H

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Ends a rank that is not this one: both are children of the same process. */
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
