/* SPDX-License-Identifier: Apache-2.0 */
/* Job sizes: how many nodes of which datacenter train a number of tokens
 * before a deadline and within a budget, with failures.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_SIZE_H
#define LONGHAUL_EXPERIMENTAL_SIZE_H

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- failures ------------------------------------------------------------- */

/* A training job's failure rates, and its recovery. Mean times between
 * failures; 0: no such failures. */
typedef struct lh_failures {
    size_t size;        /* sizeof(lh_failures) */
    double gpu_mtbf_s;  /* of one GPU, with its share of the node */
    double node_mtbf_s; /* of one node, in addition: preemptions */
    double link_mtbf_s; /* of the link between two datacenters */
    /* Training stops for this long for each checkpoint. */
    double checkpoint_s;
    /* From a failure until training continues from the last checkpoint. */
    double restart_s;
    double repair_s;      /* from a node's failure until its return */
    double link_repair_s; /* from a link's failure until its return */
    uint32_t spares; /* nodes of each datacenter that replace failed ones */
    /* One per datacenter: speed while one of its nodes is missing, relative to
     * all nodes running, from 0 to 1. Further missing nodes reduce it in
     * proportion to the nodes. NULL: already the first one does. */
    const double *node_loss_speeds;
} lh_failures;

/* Share of training time that makes progress. */
typedef struct lh_goodput {
    double failures_per_s; /* of the whole job */
    double interval_s; /* training between checkpoints; 0: no failures, or free
                        * checkpoints */
    /* Share of the time in which iterations run that no failure discards. */
    double progress;
    double speed;    /* mean speed, relative to all nodes running */
    double fraction; /* progress * speed */
    double missing;  /* mean number of failed nodes that no spare replaces */
} lh_goodput;

/* Returns the checkpoint interval, in seconds of training, with the most
 * progress under failures: the exact optimum for exponentially distributed
 * failures. Young's sqrt(2 * checkpoint_s * mtbf_s) approximates it (Young
 * 1974; Daly 2006, equation 37). 0 if either argument is 0. */
LH_API double lh_checkpoint_interval_s(double checkpoint_s, double mtbf_s);

/* Computes the goodput (share of throughput that remains despite failures) of a
 * job that uses nodes[i] nodes of datacenter i, spares not included. LH_EINVAL:
 * a negative or infinite value. */
LH_API lh_status lh_goodput_compute(const lh_job *job, const uint32_t *nodes,
                                    const lh_failures *failures,
                                    lh_goodput *out, lh_error *err);

/* --- sizes ---------------------------------------------------------------- */

/* Node counts to consider in a datacenter. */
typedef struct lh_size_range {
    uint32_t least, most; /* least 0: the datacenter may be left out */
} lh_size_range;

/* Options for lh_size_find(). 0 or NULL: none, or the default. */
typedef struct lh_size_options {
    size_t size;       /* sizeof(lh_size_options) */
    double tokens;     /* to train; required */
    double deadline_s; /* longest training time */
    double budget_usd; /* highest cost; requires prices */
    /* One per datacenter; NULL: up to the job's nodes, and no datacenter is
     * required. */
    const lh_size_range *ranges;
    const lh_failures *failures; /* NULL: none */
    /* Spot capacity at `spot_price` times the job's prices, whose nodes are
     * taken away every spot_mtbf_s on average. 0: none. */
    double spot_price, spot_mtbf_s;
    uint32_t lost_nodes; /* also plan the loss of so many nodes of a datacenter;
                          * 0: 2 */
    double usd_per_gpu_hour, usd_per_gb; /* override the job's prices */
    uint32_t effort;                     /* sizes to plan; 0: 24 */
    uint32_t threads;                    /* see lh_plan_options */
    /* Called before each plan; returning true stops the search. The result then
     * has the best of the planned sizes; LH_ECANCELED: none is planned. May be
     * NULL. */
    bool (*progress)(void *context, uint32_t planned, uint32_t effort);
    void *context;
} lh_size_options;

/* Consequence if nodes are lost. */
typedef struct lh_size_loss {
    uint32_t datacenter, nodes; /* lost ones, beyond the spares */
    /* With the best plan for the other nodes, by the longer search: with prices
     * the cheapest that meets the requirements, else the fastest; -1: none
     * fits. */
    double iteration_s, train_s;
    double usd; /* of the training; -1: no prices, or no plan */
    bool meets_deadline;
} lh_size_loss;

/* One size with its predicted training run. */
typedef struct lh_size {
    uint32_t nodes[LH_MAX_DATACENTERS]; /* in use, without spares */
    uint32_t gpus, spare_gpus;
    bool spot;
    lh_layout layout; /* degrees only: no pointers */
    int64_t iteration_ns;
    double tokens_per_s; /* without failures */
    lh_goodput goodput;
    /* Longest iteration with one node missing, of all datacenters; INFINITY: no
     * layout fits the other nodes; -1: not planned, because nodes are hardly
     * ever missing, or not for a size of lh_size_result. */
    double node_loss_s;
    double train_s;                    /* with failures */
    double usd, gpus_usd, between_usd; /* -1: no prices */
    /* Errors of modelled times in published runs of this kind, for the sizes of
     * lh_size_result; NULL: none. */
    const lh_validated_runs *accuracy;
    uint32_t n_losses; /* of lh_size_result's sizes only */
    lh_size_loss losses[LH_MAX_DATACENTERS];
} lh_size;

/* Result from lh_size_find(); release with lh_size_result_free(). */
typedef struct lh_size_result {
    uint32_t n_found; /* 0: no size meets the requirements */
    lh_size fewest;   /* fewest GPUs, then least cost */
    lh_size cheapest; /* least cost; equal to `fewest` without prices */
    /* Least training time; searched for only with a budget. If n_found is 0,
     * all three are the fastest size that was planned. */
    lh_size fastest;
    /* The planned size that meets the requirements with the least product of
     * training time and cost, without losses. gpus is 0 if there are no prices,
     * or if the product is not a tenth below those of `cheapest` and, with a
     * budget, `fastest`. */
    lh_size knee;
    double n_sizes; /* in the ranges */
    uint32_t n_planned;
    /* No size with fewer GPUs, at less cost or in less time meets the
     * requirements: lower bounds over all layouts. 0: no size can meet them, or
     * no prices, or no budget. */
    uint32_t gpus_bound;
    double usd_bound, train_bound_s;
    bool all_planned; /* every size was planned or excluded by a bound */
    bool interrupted; /* the search was stopped: there are no bounds */
} lh_size_result;

/* Searches for the sizes (numbers of nodes per datacenter, within ranges) that
 * train by the deadline within the budget with the fewest GPUs and at the least
 * cost. Deterministic. LH_EINPUT: the job has zones or fixes datacenters
 * (layout.sites), or a budget without prices. */
LH_API lh_status lh_size_find(const lh_job *job, const lh_size_options *options,
                              lh_size_result **out, lh_error *err);
/* Frees a size search's result; NULL is a no-op. */
LH_API void lh_size_result_free(lh_size_result *result);

/* Builds the job with nodes[i] nodes in datacenter i; datacenters without nodes
 * are left out, and the request for different tensor degrees if the remaining
 * ones do not differ. Release *out with lh_job_free(). */
LH_API lh_status lh_size_job(const lh_job *job, const uint32_t *nodes,
                             lh_job **out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
