/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a search's result, and the accuracy of its predicted times. */
#include "planner/size/size_internal.h"

#include "base/fail.h"
#include "planner/validated_runs.h"

#include <stddef.h>
#include <stdlib.h>

/* A result with the memory of its sizes' accuracies. */
typedef struct sized_result {
    lh_size_result result;
    lhi_arena *mem;
} sized_result;

lh_size_result *lhi_size_make_result(void)
{
    sized_result *r = calloc(1, sizeof *r);
    if (r)
        r->mem = lhi_arena_make(0);
    if (r && r->mem)
        return &r->result;
    free(r);
    return NULL;
}

/* Returns the memory that belongs to a result. */
static sized_result *get_owner(lh_size_result *result)
{
    return (sized_result *)((char *)result - offsetof(sized_result, result));
}

void lh_size_result_free(lh_size_result *result)
{
    if (!result)
        return;
    lhi_arena_free(get_owner(result)->mem);
    free(get_owner(result));
}

lh_status lhi_size_state_accuracy(lhi_size_search *s, lh_error *err)
{
    lh_size_result *r = s->result;
    lh_size *const sizes[] = {&r->fewest, &r->cheapest, &r->fastest, &r->knee};
    lhi_arena *mem = get_owner(r)->mem;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lh_size *size = sizes[i];
        lh_job *job = NULL;
        if (!size->gpus)
            continue;
        LHI_TRY(lh_size_job(s->job, size->nodes, &job, err));
        const lh_status status =
            lhi_find_accuracy(mem, job, size->gpus, &size->accuracy, err);
        lh_job_free(job);
        LHI_TRY(status);
    }
    return LH_OK;
}
