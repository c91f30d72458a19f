/* SPDX-License-Identifier: Apache-2.0 */
/* Creates pipelines from text, and schedules by method. */
#ifndef TEST_SCHEDULED_H
#define TEST_SCHEDULED_H

#include "test.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/pipeline.h>

/* Parses a pipeline; NULL fails the test. */
static inline lh_pipeline *pipeline_of(const char *text)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

/* Returns the method's schedule for the pipeline; NULL fails the test. */
static inline lh_schedule *schedule_by(const lh_pipeline *p, const char *method)
{
    lh_error err = {0};
    lh_schedule *s = NULL;
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    return s;
}

#endif
