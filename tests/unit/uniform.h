/* SPDX-License-Identifier: Apache-2.0 */
/* Regular pipelines for tests, times in milliseconds. */
#ifndef TEST_UNIFORM_H
#define TEST_UNIFORM_H

#include <longhaul/pipeline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parameters of a regular pipeline; zeros are defaults. */
typedef struct uniform {
    const char *placement; /* "ud", "loop", "wave" */
    unsigned devices, microbatches;
    double f, d, w; /* per device */
    unsigned datacenters;
    double latency, transfer;
    unsigned memory;  /* activations per device; 0: no limit */
    const char *more; /* further lines of the file, or NULL */
} uniform;

/* Creates the pipeline; the caller frees it. */
static inline lh_pipeline *uniform_make(uniform u)
{
    char text[2048];
    lh_error err = {0};
    lh_pipeline *p = NULL;
    int n = snprintf(text, sizeof text,
                     "longhaul: pipeline/1\n"
                     "time_unit: ms\n"
                     "microbatches: %u\n"
                     "devices: %u\n"
                     "uniform: {placement: %s, F: %.17g, D: %.17g, W: %.17g, "
                     "memory: {F: 1, D: 0, W: -1}}\n",
                     u.microbatches, u.devices, u.placement, u.f, u.d, u.w);
    if (u.datacenters)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "datacenters: {count: %u, latency: %.17g, "
                      "transfer: %.17g}\n",
                      u.datacenters, u.latency, u.transfer);
    if (u.memory)
        n += snprintf(text + n, sizeof text - (size_t)n, "memory_limit: %u\n",
                      u.memory);
    snprintf(text + n, sizeof text - (size_t)n, "%s", u.more ? u.more : "");
    if (lh_pipeline_parse(text, strlen(text), "uniform", &p, &err) != LH_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return p;
}

#endif
