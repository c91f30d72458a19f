/* SPDX-License-Identifier: Apache-2.0 */
/* Wall time of a run, and the processors that other programs used meanwhile. */
#define _DEFAULT_SOURCE /* clock_gettime, getrusage */
#include "train_internal.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Shortest run in ns whose processor times, counted in ticks of 10 ms, are
 * precise enough. */
static const int64_t least_ns = 1000000000;
/* Largest relative difference between the wall time and that of the machine's
 * processor times, which differ in virtual time or after a suspension. */
static const double most_difference = 0.2;

/* Returns the monotonic clock in ns. */
static int64_t read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the processor time in s that this process and its ended children have
 * used. */
static double read_own(void)
{
    double s = 0;
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (size_t i = 0; i < CLI_COUNT_OF(whose); i++) {
        struct rusage used;
        if (getrusage(whose[i], &used) != 0)
            continue;
        s += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    return s;
}

/* Reads the times in s that all processors of the machine were busy and idle.
 * Returns false if the system does not provide them. */
static bool read_machine(double *busy_s, double *idle_s)
{
    /* user, nice, system, idle, iowait, irq, softirq, steal */
    unsigned long long t[8];
    FILE *f = fopen("/proc/stat", "re");
    const int n =
        f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0],
                   &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7])
          : 0;
    if (f)
        fclose(f);
    const double tick_s = 1 / (double)sysconf(_SC_CLK_TCK);
    if (n != 8 || !(tick_s > 0))
        return false;
    /* t[7]: another virtual machine had the processor. */
    *busy_s = tick_s * (double)(t[0] + t[1] + t[2] + t[5] + t[6]);
    *idle_s = tick_s * (double)(t[3] + t[4] + t[7]);
    return true;
}

void train_clock_begin(train_clock *t)
{
    *t = (train_clock){.others = NAN};
    t->has_machine = read_machine(&t->busy_s, &t->idle_s);
    t->own_s = read_own();
    t->begin_ns = read_clock();
}

void train_clock_end(train_clock *t)
{
    double busy_s, idle_s;
    t->elapsed_ns = read_clock() - t->begin_ns;
    if (!t->has_machine || t->elapsed_ns < least_ns ||
        !read_machine(&busy_s, &idle_s))
        return;
    busy_s -= t->busy_s;
    const double n = (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double wall_s = (busy_s + idle_s - t->idle_s) / n;
    const double elapsed_s = (double)t->elapsed_ns * 1e-9;
    if (fabs(wall_s - elapsed_s) > most_difference * elapsed_s)
        return;
    t->others = fmax(0, (busy_s - (read_own() - t->own_s)) / wall_s);
}

bool train_clock_is_disturbed(const train_clock *t, const lh_train_result *r)
{
    const double n = (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double needed = r->n_processors ? r->n_processors : r->n_ranks;
    return t->others > 0.1 && n - t->others < 0.9 * needed;
}
