/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a training run fits into memory: said before it starts, since what
 * is too much may otherwise show after hours, in the middle of a step. What is
 * counted is needed for certain; that there is room for it promises nothing. */
#include "base/memory_room.h"
#include "engine/steps.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_need {
    double state;       /* weights, gradients, optimizer */
    double activations; /* and room to compute in */
} rank_need;

/* at_once[i]: the most microbatches of chunk mine[i] between F and the first
 * part of W. */
static void count_at_once(const lhi_exec_rank *rank, const lhi_cpu_options *o,
                          uint32_t *at_once, uint32_t *now)
{
    for (uint32_t p = 0; p < rank->n_passes; p++) {
        const lh_pass *pass = &rank->passes[p].pass;
        for (uint32_t i = 0; i < o->n_mine; i++) {
            if (o->mine[i] != pass->chunk)
                continue;
            if (pass->kind == LH_F && ++now[i] > at_once[i])
                at_once[i] = now[i];
            bool ends =
                pass->kind == LH_B || (pass->kind == LH_W && pass->part == 0);
            if (ends && now[i] > 0)
                now[i]--;
        }
    }
}

static lh_status count_rank(const lhi_job *job, const lh_exec *exec,
                            uint32_t rank, rank_need *out, lh_error *err)
{
    lhi_cpu_options o;
    LHI_TRY(lhi_job_cpu_options(job, rank, &o, err));
    uint32_t *counts = calloc(2 * (size_t)o.n_mine + 1, sizeof *counts);
    if (counts) {
        double values = 0;
        count_at_once(&exec->ranks[rank % exec->n_ranks], &o, counts,
                      counts + o.n_mine);
        for (uint32_t i = 0; i < o.n_mine; i++)
            values += lhi_cpu_parameters(&o, i);
        double gradients = 2 * values * sizeof(float);
        out->state = gradients + lhi_train_bytes(values, job->n_replicas);
        out->activations = lhi_cpu_bytes(&o, counts) - gradients;
    }
    free((uint32_t *)(uintptr_t)o.mine);
    free(counts);
    return counts ? LH_OK : lhi_fail_nomem(err);
}

static double stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t size = 0;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &size);
        pthread_attr_destroy(&attributes);
    }
    return (double)size;
}

/* "12.5 GiB", rounded up or down, so that what is needed and what there is do
 * not come out alike. */
typedef char size_text[32];
static const char *show_bytes(double bytes, bool up, char *text)
{
    static const char *const units[] = {"MiB", "GiB", "TiB"};
    double value = bytes / (1 << 20);
    uint32_t unit = 0;
    for (; value >= 1024 && unit < 2; unit++)
        value /= 1024;
    double tenths = 10 * value;
    uint64_t whole = tenths < 1e15 ? (uint64_t)tenths : UINT64_C(1000000000000);
    whole += up && (double)whole < tenths;
    snprintf(text, sizeof(size_text), "%llu.%u %s",
             (unsigned long long)(whole / 10), (unsigned)(whole % 10),
             units[unit]);
    return text;
}

static lh_status refuse(const char *where, rank_need need, double blas,
                        lhi_memory_room room, const char *also, lh_error *err)
{
    size_text all, state, activations, buffers, there;
    return lhi_fail(
        err, LH_ENOMEM,
        "training needs %s of memory %s (weights, gradients and optimizer %s, "
        "activations %s, OpenBLAS and stacks %s), but there are %s, by %s: "
        "give "
        "that, or plan for smaller microbatches, a shorter sequence or more "
        "machines%s",
        show_bytes(need.state + need.activations + blas, true, all), where,
        show_bytes(need.state, false, state),
        show_bytes(need.activations, false, activations),
        show_bytes(blas, false, buffers),
        show_bytes((double)room.bytes, false, there), room.limit, also);
}

/* What counts for this process alone, and for all on this machine. */
static lh_status compare(rank_need here, double n_here, rank_need machine,
                         lh_error *err)
{
    /* In this process and in each that it starts; a thread for each rank. */
    double maps = n_here * (LHI_BLAS_BUFFER_BYTES + stack_bytes());
    lhi_memory_room to_map = lhi_room_to_map(), to_fill = lhi_room_to_fill("");
    if (here.state + here.activations + maps > (double)to_map.bytes)
        return refuse("in a process", here, maps, to_map,
                      n_here > 1 ? ", or run ranks as processes (--transport "
                                   "local)"
                                 : "",
                      err);
    if (machine.state + machine.activations > (double)to_fill.bytes)
        return refuse("on this machine", machine, 0, to_fill, "", err);
    return LH_OK;
}

lh_status lhi_job_fits(const lhi_job *job, lhi_job_place place, lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    rank_need sum = {0}, most = {0}, least = {0}, one = {0};
    for (uint32_t r = 0; r < n; r++) {
        LHI_TRY(count_rank(job, job->exec, r, &one, err));
        double total = one.state + one.activations;
        sum.state += one.state;
        sum.activations += one.activations;
        if (total > most.state + most.activations)
            most = one;
        if (r == 0 || total < least.state + least.activations)
            least = one;
    }
    switch (place) {
    case LHI_RANKS_THREADS:
        return compare(sum, n, sum, err);
    case LHI_RANKS_PROCESSES:
        return compare(most, 1, sum, err);
    default: /* which rank this is shows once it is started */
        return compare(least, 1, least, err);
    }
}

lh_status lhi_job_activations(const lhi_job *job, const lh_exec *exec,
                              uint32_t rank, bool all, double *bytes,
                              lh_error *err)
{
    uint32_t n = all ? exec->n_ranks * job->n_replicas : 1;
    double sum = 0;
    for (uint32_t r = 0; r < n; r++) {
        rank_need one = {0};
        LHI_TRY(count_rank(job, exec, all ? r : rank, &one, err));
        sum += one.activations;
    }
    *bytes = sum;
    return LH_OK;
}

lh_status lhi_job_fits_more(double bytes, lh_error *err)
{
    size_text more, there;
    lhi_memory_room room = lhi_room_to_fill("");
    if (bytes <= (double)room.bytes)
        return LH_OK;
    return lhi_fail(err, LH_ENOMEM,
                    "it keeps %s more of activations at a time, but there are "
                    "%s, by %s",
                    show_bytes(bytes, true, more),
                    show_bytes((double)room.bytes, false, there), room.limit);
}
