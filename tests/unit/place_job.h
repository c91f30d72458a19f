/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs over several datacenters, for the tests of placement. */
#ifndef PLACE_JOB_H
#define PLACE_JOB_H

#include "test.h"

#include <longhaul/job.h>
#include <stdarg.h>

#define PLACE_GPU                                                              \
    "{tflops: 500, memory_gib: 80, memory_gbps: 3000, efficiency: 0.5}"

/* A job of llama3-8b with 4 GPUs per node; `cluster` has datacenters and links,
 * `rest` (or NULL) what follows, e.g. the layout. */
static inline lh_job *place_job(unsigned batch, const char *cluster,
                                const char *rest)
{
    char text[8192];
    lh_job *job = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: job/1\n"
             "model: llama3-8b\n"
             "training: {global_batch: %u, sequence: 4096}\n"
             "cluster:\n"
             "  gpu: " PLACE_GPU "\n"
             "  gpus_per_node: 4\n"
             "  node_link: {gbps: 3600, latency_us: 3}\n"
             "  fabric: {gbps: 400, latency_us: 8}\n"
             "%s%s",
             batch, cluster, rest ? rest : "");
    CHECK_OK(lh_job_parse(text, strlen(text), "job.yaml", NULL, &job, &err),
             err);
    return job;
}

/* Four datacenters of 8 GPUs in two pairs: a and b, c and d are close. */
#define PLACE_PAIRS                                                            \
    "  datacenters:\n"                                                         \
    "   - {name: a, nodes: 2}\n"                                               \
    "   - {name: b, nodes: 2}\n"                                               \
    "   - {name: c, nodes: 2}\n"                                               \
    "   - {name: d, nodes: 2}\n"                                               \
    "  links:\n"                                                               \
    "   - {between: [a, b], latency_ms: 1, gbps: 400}\n"                       \
    "   - {between: [c, d], latency_ms: 1, gbps: 200}\n"                       \
    "   - {between: [a, c], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [a, d], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [b, c], latency_ms: 30, gbps: 100}\n"                      \
    "   - {between: [b, d], latency_ms: 40, gbps: 50}\n"

#endif
