/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmark programs share: a clock, medians, a JSON line. */
#ifndef BENCH_H
#define BENCH_H

#include <longhaul/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline int bench_compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sorts `seconds`. */
static inline double bench_median(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, bench_compare);
    return n % 2 ? seconds[n / 2]
                 : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

static inline void bench_die(const lh_error *err)
{
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

/* The processor's name as Linux gives it, or "unknown". */
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

/* Opens the JSON object that a program prints; it closes it with "}\n". */
static inline void bench_begin(const char *name)
{
    char machine[128];
    printf("{\"benchmark\": \"%s\", \"version\": \"%s\", \"machine\": \"%s\"",
           name, lh_version(), bench_machine(machine, sizeof machine));
}

#endif
