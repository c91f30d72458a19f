/* SPDX-License-Identifier: Apache-2.0 */
/* Plans written and read back. */
#ifndef TEST_PLANS_H
#define TEST_PLANS_H

#include "test.h"

#include <longhaul/plan.h>

/* Work for layouts, a twentieth of the default: of what shows in any plan. */
enum { LITTLE_WORK = 1500000 };

/* The plan of a job, made quickly; frees the job. NULL fails the test. */
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

/* The plan as it is read back from its text, and the text (NULL: no one wants
 * it), both for the caller to free; NULL where it is not, which fails the test.
 * Written again it is the same text. */
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

static inline void plan_reads_back(const lh_plan *plan)
{
    lh_plan_free(plan_again(plan, NULL));
}

/* The text is not that of a plan, and the message has `says` in it. */
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
