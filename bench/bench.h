/* SPDX-License-Identifier: Apache-2.0 */
/* Provides helpers for the benchmark programs: clock, median, JSON header.
 */
#ifndef BENCH_H
#define BENCH_H

#include <longhaul.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns the monotonic clock in seconds. */
static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* qsort() comparison for doubles. */
static inline int bench_compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns the median; sorts `seconds` in place. */
static inline double bench_median(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, bench_compare);
    return n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

/* Prints the error and exits. */
static inline void bench_die(const lh_error *err)
{
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

/* Returns the processor's name from Linux's /proc, or "unknown". */
static inline const char *bench_machine(char *buffer, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(buffer, size, "unknown");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(buffer, size, "%s", colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
    return buffer;
}

/* Begins the program's JSON object; the caller closes it with
 * "}\n". */
static inline void bench_begin(const char *name)
{
    char machine[128];
    printf("{\"benchmark\": \"%s\", \"version\": \"%s\", \"machine\": \"%s\"",
           name, lh_version(), bench_machine(machine, sizeof machine));
}

#endif
