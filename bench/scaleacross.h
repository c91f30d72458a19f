/* SPDX-License-Identifier: Apache-2.0 */
/* Builds ScaleAcross Explorer's workloads and topologies (2026) as jobs
 * and computes the paper's figures from them. */
#ifndef ACROSS_H
#define ACROSS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* --- jobs --------------------------------------------------------------- */

/* Outermost parallelism: the dimension that crosses buildings. */
typedef enum outer { DATA_OUT, PIPELINE_OUT } outer;

/* Model and training configuration. The degrees come from table 2 or from the
 * figure that uses them. */
typedef struct workload {
    const char *name, *model, *training, *framework, *gpu;
    uint32_t layers, tensor, context, expert, pipeline, data, chunks;
    uint32_t microbatch_size, microbatches; /* per replica */
    uint32_t two_layer_chunks;              /* leading chunks with two layers */
} workload;

/* Reading of the batch in table 2: 176 sequences of the dense model in
 * microbatches of 4 on 4 replicas, and 64 of the mixture of experts in
 * microbatches of 1 on 16 replicas. */
typedef struct batch_reading {
    const char *name;
    uint32_t dense, mixture; /* microbatches per replica */
} batch_reading;

/* The table's "global batch size", which all figures but figure 5 use, and each
 * replica's batch. */
extern const batch_reading across_readings_of_batch[2];

/* Topology with buildings and zones (table 3). */
typedef struct topology {
    const char *name;
    uint32_t buildings, zones;    /* zones per building; 1: no zones */
    double zone_oversubscription; /* oversubscription 1:inside between zones */
    uint32_t pipeline, replicas; /* layout of the job that fills the topology */
} topology;

/* Parameters that a figure varies: network between buildings and layout. */
typedef struct crossing {
    outer outermost;
    double oversubscription; /* oversubscription 1:over between buildings */
    double latency_us;
    double last_building_us; /* latency to the last building; 0: latency_us */
    const char *link_keys;   /* extra link keys, e.g. "loss: 0.1"; NULL: none */
    const char *sharding;    /* NULL: full sharding */
    bool flat_rings; /* ring over all GPUs, each step as long as its slowest hop
                      * (section 3.2); else the library's default */
    bool planner_layout; /* no layout: the planner chooses it */
    const char *layout;  /* replaces the whole layout; NULL: the workload's */
} crossing;

/* Returns the testbed workload: 64 or 128 GPUs in two buildings without zones.
 */
workload across_dense_17b(uint32_t microbatches);
/* Returns the same with `zero: 3`: FSDP gathers and reduces for each pass, as
 * PyTorch's does. */
workload across_dense_17b_per_pass(uint32_t microbatches);
/* Returns the mixture-of-experts testbed workload. */
workload across_moe_40b(uint32_t experts, uint32_t microbatches);
/* Returns the mixture-of-experts workload with 16-bit gradient reduction. */
workload across_moe_40b_narrow(uint32_t experts, uint32_t microbatches);
/* Returns the workload for the 8192 GPUs of section 3.2, with 16 or 2 pipeline
 * ranks; 0 experts: dense model. */
workload across_8k(uint32_t experts, uint32_t pipeline);
/* Returns the dense workload on 100,000 GPUs that fills topology `on`. */
workload across_100k(const topology *on);
/* Returns the dense workload on 100,000 GPUs with short sequences. */
workload across_100k_short(const topology *on);

/* Returns the topology by name, "A1" to "A4" or "B1" to "B4". */
const topology *across_topology(const char *name);

/* Returns the job as text; free with free(). `on` may be NULL: two buildings.
 */
char *across_job_text(const workload *w, const topology *on, const crossing *c);

/* --- iteration times ---------------------------------------------------- */

/* Returns seconds per iteration for the job's layout under a scheduling
 * method. Exits with a message on error. */
double across_seconds(const workload *w, const topology *on, const crossing *c,
                      const char *method);
/* Returns seconds per iteration for a job with `zero: 3` whose chunks, with one
 * layer each, gather parameters and reduce gradients once per run: the passes
 * of one kind and chunk without one of another chunk in between, as DoraPP runs
 * them (section 2.2). A run's communication proceeds beside the run before. */
double across_fsdp_by_run_seconds(const workload *w, const crossing *c,
                                  const char *method);
/* The planner's best plan: seconds per iteration, and its layout. */
typedef struct across_plan {
    double seconds;
    uint32_t pipeline, data, chunks;        /* chunks per device */
    uint32_t microbatch_size, microbatches; /* per replica */
    bool pipeline_out;
} across_plan;

/* Searches for the best plan. `layout` fixes layout parts, in job-file syntax;
 * NULL: all free. Exits with a message on error. */
across_plan across_best_plan(const workload *w, const topology *on,
                             const crossing *c, const char *layout);
/* Returns its seconds alone. */
double across_best_seconds(const workload *w, const topology *on,
                           const crossing *c, const char *layout);

/* Result of one search. */
typedef struct across_search {
    double seconds;       /* of an iteration */
    uint64_t n_simulated; /* layouts that fit the memory and were simulated */
} across_search;

/* Searches all layouts by Monte Carlo sampling with its default draws if
 * `sampled`, else by hill climbing, without optimal schedules. */
across_search across_search_layouts(const workload *w, const crossing *c,
                                    bool sampled);

/* Callback that receives one value for a row of
 * bench/data/scaleacross/findings.csv. */
typedef void (*across_add_value)(void *to, const char *key, double value);
/* Computes the figures whose layouts the paper states. */
void across_figures(across_add_value add, void *to);
/* Defaults of the paper's figures: oversubscription (the ratio's second number)
 * and latency.
 * Section 2.1: "in the range of ~1:3 to 1:8", at the lower end. */
#define ACROSS_OVERSUBSCRIPTION 3.0
#define ACROSS_LATENCY_US 50.0
/* Adds figures 6 and 11 to 14 for 100,000 GPUs with a workload; `name` follows
 * the figure's number in the keys. */
void across_add_100k(across_add_value add, void *to, const char *name,
                     workload (*make)(const topology *on));
/* Computes the figures for 100,000 GPUs with short sequences, those about
 * losses, load balancing and congestion control with simulated packets. */
void across_short_figures(across_add_value add, void *to);
/* Prints figures 6, 11, 12 and 21 for longer messages between stages. */
void across_print_messages(FILE *to);
/* Prints the ratios for the testbed's figures for both readings of table 2. */
void across_print_readings(FILE *to);
/* Prints figures 6, 20 and 21 with simulated packets for several usual
 * oversubscriptions, PP-out and DP-out. */
void across_print_ranges(FILE *to);
/* Prints figure 24 at 1:16 for several batches: three searches each. */
void across_print_batches(FILE *to);
/* Prints the plans of Monte Carlo sampling with its default draws beside those
 * of hill climbing, for the workloads of table 2 at 1:16. */
void across_print_sampling(FILE *to);
/* Computes the figures whose layouts come from a search. */
void across_searches(across_add_value add, void *to);

#endif
