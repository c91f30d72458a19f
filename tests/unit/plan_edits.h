/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files with manual edits. */
#ifndef TEST_PLAN_EDITS_H
#define TEST_PLAN_EDITS_H

#include "jobs.h"
#include "test.h"

#include <longhaul/experimental/plan.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the value of the first "key" after `from`; the caller frees the new
 * text. */
static inline char *edited(const char *text, const char *from, const char *key,
                           const char *value)
{
    const char *at = from ? strstr(text, from) : text;
    at = at ? strstr(at, key) : NULL;
    CHECK_MSG(at != NULL, "there is no %s after %s", key, from ? from : "");
    if (!at)
        return NULL;
    at += strlen(key);
    at += strcspn(at, ":") + 2;
    size_t before = (size_t)(at - text), rest = strcspn(at, ",\n");
    char *out = malloc(strlen(text) + strlen(value) + 1);
    if (!out)
        exit(1);
    memcpy(out, text, before);
    strcpy(out + before, value);
    strcat(out + before, at + rest);
    return out;
}

/* Returns the text of JOB_SMALL's plan with these lines added; NULL: no plan.
 */
static inline char *planned_text(const char *lines, const lh_plan_options *how)
{
    lh_job *job = job_with(JOB_SMALL, "%s", lines);
    lh_plan *plan = NULL;
    char *out = NULL;
    lh_error err = {0};
    if (job)
        CHECK_OK(lh_plan_make(job, how, &plan, &err), err);
    if (plan)
        CHECK_OK(lh_plan_format(plan, &out, NULL, &err), err);
    lh_plan_free(plan);
    lh_job_free(job);
    return out;
}

/* Arguments for edited(), and the expected error text; NULL: accepted. */
typedef struct plan_edit {
    const char *from, *key, *value, *says;
} plan_edit;

/* Parses the edited plan. An error must point at the key or its object, never
 * at the beginning of the file. */
static inline void try_edit(const char *text, const plan_edit *e)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    char *now = edited(text, e->from, e->key, e->value);
    if (!now)
        return;
    lh_status status =
        lh_plan_parse(now, strlen(now), "plan.json", &plan, &err);
    CHECK_MSG(status == (e->says ? LH_EINPUT : LH_OK), "%s %s: status %d: %s",
              e->key, e->value, (int)status, err.text);
    if (e->says) {
        CHECK_HAS(err.text, e->says);
        CHECK_MSG(strncmp(err.text, "plan.json:", 10) == 0 &&
                      strncmp(err.text, "plan.json:1:", 12) != 0,
                  "%s", err.text);
    }
    lh_plan_free(plan);
    free(now);
}

#endif
