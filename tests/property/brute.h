/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a tiny pipeline has a schedule that is faster than a given time, by
 * going through all of them. Knows the performance model from the public
 * pipeline alone. */
#ifndef BRUTE_H
#define BRUTE_H

#include <longhaul/pipeline.h>

typedef enum brute_answer {
    BRUTE_FASTER,   /* there is one below the limit */
    BRUTE_NONE,     /* there is none */
    BRUTE_TOO_MANY, /* more states than `most` */
} brute_answer;

typedef struct brute_options {
    int64_t below_ns;
    bool fifo;         /* links with one sender only */
    bool first_device; /* the end of the last pass on chunk 0's device */
    uint32_t parts;    /* of a W, taken in order */
    uint32_t most;     /* states */
} brute_options;

/* Microbatches of a chunk and kind run in order. */
brute_answer brute_force(const lh_pipeline *p, const brute_options *options);
/* Some link has several sending devices. */
bool brute_shared_links(const lh_pipeline *p);

#endif
