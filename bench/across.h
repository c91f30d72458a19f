/* SPDX-License-Identifier: Apache-2.0 */
/* ScaleAcross Explorer (2026): its workloads and topologies as jobs, and what
 * its figures say, computed from them. */
#ifndef ACROSS_H
#define ACROSS_H

#include <stdbool.h>
#include <stdint.h>

/* --- jobs ----------------------------------------------------------------- */

typedef enum outer { DATA_OUT, PIPELINE_OUT } outer;

/* A model and how it is trained. Degrees of table 2 or of the figure. */
typedef struct workload {
    const char *name, *model, *training, *framework, *gpu;
    uint32_t layers, tensor, context, expert, pipeline, data, chunks;
    uint32_t micro, microbatches; /* of each replica */
    uint32_t doubled;             /* first chunks with two layers */
} workload;

/* Buildings of zones: table 3. */
typedef struct topology {
    const char *name;
    uint32_t buildings, zones;   /* zones in each; 1: none */
    double inside;               /* 1:inside between zones */
    uint32_t pipeline, replicas; /* of the job that fills it */
} topology;

/* What a figure varies. */
typedef struct crossing {
    outer outermost;
    double over; /* 1:over between buildings */
    double latency_us;
    double far_us;    /* of the last building; 0: latency_us */
    const char *ends; /* further keys of links, as "loss: 0.1"; NULL: none */
    const char *sharding; /* NULL: full */
    bool flat_rings; /* through all GPUs, each step as long as the longest hop,
                        as section 3.2 argues; else as the library has them */
    bool open;       /* no layout: the planner's */
    const char *layout; /* in place of all of it; NULL: the workload's */
} crossing;

/* The testbeds: 64 and 128 GPUs in two buildings, no zones. */
workload across_dense_17b(uint32_t microbatches);
workload across_moe_40b(uint32_t experts, uint32_t microbatches);
/* The same, gradients summed in 16 bits. */
workload across_moe_40b_narrow(uint32_t experts, uint32_t microbatches);
/* Section 3.2's 8192 GPUs, with 16 or 2 pipeline ranks; 0 experts: dense. */
workload across_8k(uint32_t experts, uint32_t pipeline);
/* The dense model on 100,000 GPUs, filling a topology. */
workload across_100k(const topology *on);

/* "A1" to "A4", "B1" to "B4". */
const topology *across_topology(const char *name);

/* The job as text, to be freed. `on` may be NULL: two buildings. */
char *across_job(const workload *w, const topology *on, const crossing *c);

/* --- what comes of them --------------------------------------------------- */

/* Seconds of an iteration of the job's layout with a method. On trouble the
 * program ends with a message. */
double across_seconds(const workload *w, const topology *on, const crossing *c,
                      const char *method);
/* Of what the planner finds where `layout` (of a job file) is given; NULL:
 * nothing is. */
double across_best_seconds(const workload *w, const topology *on,
                           const crossing *c, const char *layout);

/* A number for a row of bench/data/scaleacross/findings.csv. */
typedef void (*across_add)(void *to, const char *key, double value);
/* Figures of layouts that the paper names. */
void across_figures(across_add add, void *to);
/* Figures of layouts that a search finds. */
void across_searches(across_add add, void *to);

#endif
