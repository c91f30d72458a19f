/* SPDX-License-Identifier: Apache-2.0 */
/* A job with two datacenters, and helpers for file tests. */
#ifndef TEST_JOB_H
#define TEST_JOB_H

#include "test.h"

#include <longhaul/experimental/job.h>

#define TRAINING "training: {global_batch: 8, sequence: 16}\n"
#define TWO                                                                    \
    "cluster:\n"                                                               \
    "  gpu: a100-80g\n"                                                        \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 800, latency_us: 2.5}\n"                              \
    "  fabric: {gbps: 100, latency_us: 7}\n"                                   \
    "  datacenters:\n"                                                         \
    "    - {name: a, nodes: 2}\n"                                              \
    "    - {name: b, nodes: 1}\n"
#define LINK "  links: [{between: [a, b], latency_ms: 1.5, gbps: 10}]\n"
#define HEAD "longhaul: job/1\nmodel: llama3-8b\n"
#define JOB HEAD TRAINING TWO LINK

/* Parses a job; returns NULL on error. */
static inline lh_job *parse(const char *text, lh_error *err)
{
    lh_job *job = NULL;
    *err = (lh_error){0};
    return lh_job_parse(text, strlen(text), "j.yaml", NULL, &job, err) == LH_OK
               ? job
               : NULL;
}

/* Checks that the job is rejected with `says` in the error. */
static inline void refuse(const char *text, const char *says)
{
    lh_error err;
    lh_job *j = parse(text, &err);
    CHECK_MSG(!j, "accepted, where it should say '%s':\n%s", says, text);
    if (!j)
        CHECK_HAS(err.text, says);
    lh_job_free(j);
}

/* Checks that the profile round-trips through its text. */
static inline void profile_round_trip(lh_profile *profile, const char *what)
{
    char *text = NULL, *again = NULL;
    size_t len = 0;
    lh_profile *back = NULL;
    lh_error err = {0};
    CHECK_OK(lh_profile_format(profile, &text, &len, &err), err);
    CHECK_MSG(lh_profile_parse(text, len, "again", &back, &err) == LH_OK,
              "%s: %s", what, err.text);
    if (back) {
        CHECK_OK(lh_profile_format(back, &again, NULL, &err), err);
        CHECK_STR(again, text);
    }
    lh_profile_free(back);
    lh_text_free(again);
    lh_text_free(text);
}

#endif
