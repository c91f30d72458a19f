/* SPDX-License-Identifier: Apache-2.0 */
/* Plans written and read back. */
#ifndef TEST_PLANS_H
#define TEST_PLANS_H

#include "test.h"

#include <longhaul/experimental/plan.h>

/* Evaluation budget for layouts, a twentieth of the default, for properties
 * that hold for any plan. */
enum { LITTLE_WORK = 1500000 };

/* Plans a job with a small budget and frees the job. NULL fails the test. */
static inline lh_plan *plan_of_job(lh_job *job)
{
    const lh_plan_options quick = {.size = sizeof quick, .quick = true};
    lh_plan *plan = NULL;
    lh_error err = {0};
    if (job)
        CHECK_OK(lh_plan_make(job, &quick, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

/* Formats the plan, parses the text and checks that formatting again gives the
 * same text. Returns the parsed plan and the text (unless `text` is NULL), both
 * freed by the caller. NULL fails the test. */
static inline lh_plan *plan_again(const lh_plan *plan, char **text)
{
    char *own = NULL, *second = NULL, **first = text ? text : &own;
    size_t len = 0;
    lh_plan *again = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_format(plan, first, &len, &err), err);
    CHECK_OK(lh_plan_parse(*first, len, "plan.json", &again, &err), err);
    if (again)
        CHECK_OK(lh_plan_format(again, &second, NULL, &err), err);
    CHECK(second && strcmp(*first, second) == 0);
    lh_text_free(second);
    lh_text_free(own);
    return again;
}

/* Checks that the plan can be written and read back. */
static inline void plan_reads_back(const lh_plan *plan)
{
    lh_plan_free(plan_again(plan, NULL));
}

/* Checks that the text is rejected as a plan, with `says` in the error. */
static inline void plan_refused(const char *text, const char *says)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_parse(text, strlen(text), "plan.json", &plan, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, says);
    lh_plan_free(plan);
}

#endif
