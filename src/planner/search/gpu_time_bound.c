/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/gpu_time_bound.h"

#include "base/arena.h"
#include "base/fail.h"
#include "planner/layout/space.h"
#include "planner/search/lower_bound.h"
#include "planner/search/unequal_bound.h"

#include <math.h>

/* State of the visits. */
typedef struct least_time {
    const lh_job *job;
    lhi_bound_inputs *inputs;
    double gpu_ns; /* least so far */
} least_time;

/* Lowers the least GPU time to that of one set of degrees, for its microbatch
 * size and for the larger ones of unequal microbatches. Degrees that the cost
 * model rejects are skipped. Visitor callback. */
static lh_status visit_degrees(void *context, const lhi_config *config,
                               lh_error *err)
{
    least_time *t = context;
    lhi_config c = *config;
    const uint32_t group = lhi_group_size(&c.layout);
    const uint32_t used = t->job->n_gpus / group * group;
    do {
        lhi_lower_bound bound = {0};
        lh_error why = {0};
        const lh_status status = lhi_bound_inputs_compute(
            t->inputs, LHI_LEVEL_GROUP, &c, &bound, &why);
        if (status == LH_OK) {
            t->gpu_ns = fmin(t->gpu_ns, (double)bound.ns * used);
        } else if (status != LH_EUNSUPPORTED && status != LH_EINFEASIBLE) {
            if (err)
                *err = why;
            return status;
        }
    } while (++c.layout.micro_batch <= LHI_UNEQUAL_MAX_MICRO_BATCH);
    return LH_OK;
}

lh_status lhi_compute_gpu_time_bound(const lh_job *job, double *gpu_s,
                                     lh_error *err)
{
    least_time t = {.job = job, .gpu_ns = INFINITY};
    const lhi_config none = {0};
    lhi_space space;
    lhi_arena *mem = lhi_arena_make(0);
    *gpu_s = 0;
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_space_init(job, mem, &space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(job, 1, &t.inputs, err);
    if (status == LH_OK)
        status = lhi_space_children(&space, LHI_LEVEL_NONE, &none, NULL,
                                    visit_degrees, &t, err);
    lhi_bound_inputs_free(t.inputs);
    lhi_space_fini(&space);
    lhi_arena_free(mem);
    if (status == LH_OK && isfinite(t.gpu_ns))
        *gpu_s = t.gpu_ns / 1e9;
    return status;
}
