/* SPDX-License-Identifier: Apache-2.0 */
/* Training time lost to failures: docs/theory/sizes.md#goodput.
 *
 * A job fails as a Poisson process. Every failure discards the work since the
 * last checkpoint and stops training for the restart. Failed nodes return after
 * a repair; until then spares replace them, and without spares the job runs
 * more slowly on the remaining nodes: in proportion to them, or at given speeds
 * with one node missing. */
#include <longhaul/experimental/size.h>

#include "base/fail.h"
#include "base/options.h"
#include "planner/size/size_internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Bisection steps: halves the bracket below double precision. */
enum { BISECTIONS = 200 };

double lh_checkpoint_interval_s(double checkpoint_s, double mtbf_s)
{
    if (!(checkpoint_s > 0 && mtbf_s > 0 && mtbf_s <= DBL_MAX))
        return 0;
    /* (1 - y) e^(y + c) = 1 for y = interval / MTBF and c = checkpoint / MTBF,
     * where the progress's derivative is 0; 0 < y < 1. */
    const double c = checkpoint_s / mtbf_s;
    double low = 0, high = 1;
    for (int i = 0; i < BISECTIONS; i++) {
        const double y = (low + high) / 2;
        *(log1p(-y) + y + c > 0 ? &low : &high) = y;
    }
    return (low + high) / 2 * mtbf_s;
}

/* Returns the share of running time that is not lost to checkpoints, repeated
 * work and restarts, with a failure every `mtbf` seconds (all arguments in s).
 * A segment of length interval + checkpoint fails e^x - 1 times on average, x =
 * length / mtbf; each failure costs mtbf and the restart. */
static double compute_progress(double interval, double checkpoint,
                               double restart, double mtbf)
{
    if (!(interval > 0))
        return mtbf / (mtbf + restart);
    const double failures = expm1((interval + checkpoint) / mtbf);
    return interval / ((mtbf + restart) * failures);
}

/* Returns the mean number of failed nodes that no spare replaces. The number of
 * nodes under repair is Poisson distributed with mean `mean` (M/G/infinity
 * queue). */
static double count_missing(double mean, uint32_t spares)
{
    /* E[max(0, k - s)] = mean - s + sum over k < s of (s - k) P(k) */
    double probability = exp(-mean), sum = 0;
    for (uint32_t k = 0; k < spares; k++) {
        sum += (spares - k) * probability;
        probability *= mean / (k + 1);
    }
    return fmax(0, mean - spares + sum);
}

/* Returns the probability that no node is missing, as count_missing(). */
static double compute_complete(double mean, uint32_t spares)
{
    double probability = exp(-mean), sum = 0;
    for (uint32_t k = 0; k <= spares; k++) {
        sum += probability;
        probability *= mean / (k + 1);
    }
    return fmin(1, sum);
}

/* Failed nodes of a datacenter that no spare replaces. */
typedef struct missing_nodes {
    double mean;     /* number */
    double complete; /* probability that there are none */
    double speed;    /* with one missing, relative to all nodes running */
} missing_nodes;

/* Orders datacenters by the speed with one node missing, the slowest first. */
static int compare_speeds(const void *a, const void *b)
{
    const double x = ((const missing_nodes *)a)->speed;
    const double y = ((const missing_nodes *)b)->speed;
    return (x > y) - (x < y);
}

/* Returns the mean speed of a job on `nodes` nodes in n datacenters, relative
 * to all nodes running. While nodes are missing, in number m, the speed is that
 * of the slowest datacenter with a missing node times (nodes - m) / (nodes -
 * 1). Sorts `sites`. */
static double compute_speed(missing_nodes *sites, uint32_t n, uint32_t nodes)
{
    double speed = 1, before = 1, mean = 0;
    qsort(sites, n, sizeof *sites, compare_speeds);
    for (uint32_t i = 0; i < n; i++) {
        speed *= sites[i].complete;
        mean += sites[i].mean;
    }
    for (uint32_t i = 0; i < n && nodes > 1; i++) {
        /* Datacenter i has missing nodes, and no slower one has. */
        const double some = 1 - sites[i].complete;
        mean -= sites[i].mean;
        speed += before * sites[i].speed *
                 fmax(0, (nodes - mean) * some - sites[i].mean) / (nodes - 1);
        before *= sites[i].complete;
    }
    return speed;
}

/* Returns the failures per second of the nodes of datacenter i, nodes[i] nodes.
 */
static double compute_node_rate(const lh_job *job, const uint32_t *nodes,
                                uint32_t i, const lh_failures *f)
{
    const double gpus = (double)nodes[i] * job->datacenters[i].gpus_per_node;
    return (f->gpu_mtbf_s > 0 ? gpus / f->gpu_mtbf_s : 0) +
           (f->node_mtbf_s > 0 ? nodes[i] / f->node_mtbf_s : 0);
}

bool lhi_goodput_lacks_nodes(const lh_job *job, const uint32_t *nodes,
                             uint32_t i, const lh_failures *f)
{
    static const double LEAST = 0.001;
    const double rate = compute_node_rate(job, nodes, i, f);
    return 1 - compute_complete(rate * f->repair_s, f->spares) > LEAST;
}

/* Fails with LH_EINVAL if a time in the failure model is negative or
 * infinite. */
static lh_status check_times(const lh_failures *f, lh_error *err)
{
    const double all[] = {f->gpu_mtbf_s,   f->node_mtbf_s, f->link_mtbf_s,
                          f->checkpoint_s, f->restart_s,   f->repair_s,
                          f->link_repair_s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i] >= 0 && all[i] <= DBL_MAX))
            return lhi_fail(err, LH_EINVAL,
                            "lh_failures: a time is %g s; expected 0 or more",
                            all[i]);
    return LH_OK;
}

lh_status lh_goodput_compute(const lh_job *job, const uint32_t *nodes,
                             const lh_failures *failures, lh_goodput *out,
                             lh_error *err)
{
    lh_failures f;
    uint32_t used = 0, sites = 0;
    double node_rate = 0, missing = 0;
    missing_nodes lacking[LH_MAX_DATACENTERS];
    LHI_TRY(LHI_OPTIONS_COPY(lh_failures, &f, failures, err));
    LHI_TRY(check_times(&f, err));
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const double rate = compute_node_rate(job, nodes, i, &f);
        const double mean = rate * f.repair_s;
        used += nodes[i];
        sites += nodes[i] > 0;
        node_rate += rate;
        lacking[i] = (missing_nodes){
            .mean = count_missing(mean, f.spares),
            .complete = compute_complete(mean, f.spares),
            .speed = f.node_loss_speeds ? f.node_loss_speeds[i] : 1};
        missing += lacking[i].mean;
    }
    const double links = (double)sites * (sites ? sites - 1 : 0) / 2;
    const double link_rate = f.link_mtbf_s > 0 ? links / f.link_mtbf_s : 0;
    const double rate = node_rate + link_rate;
    *out = (lh_goodput){
        .failures_per_s = rate, .progress = 1, .speed = 1, .missing = missing};
    if (rate > 0) {
        const double stop = f.restart_s + link_rate / rate * f.link_repair_s;
        out->interval_s = lh_checkpoint_interval_s(f.checkpoint_s, 1 / rate);
        out->progress =
            compute_progress(out->interval_s, f.checkpoint_s, stop, 1 / rate);
    }
    if (f.node_loss_speeds)
        out->speed = compute_speed(lacking, job->n_datacenters, used);
    else if (used)
        out->speed = fmax(0, 1 - missing / used);
    out->fraction = out->progress * out->speed;
    return LH_OK;
}
