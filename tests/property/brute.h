/* SPDX-License-Identifier: Apache-2.0 */
/* Decides by complete enumeration whether a tiny pipeline has a schedule that
 * is faster than a given time. Implements the performance model independently,
 * from the public pipeline alone. */
#ifndef BRUTE_H
#define BRUTE_H

#include <longhaul/pipeline.h>

/* Result of the enumeration. */
typedef enum brute_answer {
    BRUTE_FASTER,   /* a schedule below the limit exists */
    BRUTE_NONE,     /* none exists */
    BRUTE_TOO_MANY, /* more time vectors than `most` */
} brute_answer;

/* Time limit and model options. */
typedef struct brute_options {
    int64_t below_ns;
    bool fifo;         /* FIFO on links with one sender */
    bool first_device; /* objective: end of the last pass on chunk 0's device */
    uint32_t parts;    /* per W, run in order */
    uint32_t most;     /* limit on time vectors */
} brute_options;

/* Enumerates all schedules in which the microbatches of each chunk and kind run
 * in order. */
brute_answer brute_force(const lh_pipeline *p, const brute_options *options);
/* Checks whether some link has several sending devices. */
bool brute_shared_links(const lh_pipeline *p);

#endif
