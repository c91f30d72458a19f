/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/unequal_bound.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "format/job/parse.h"
#include "model/shape.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/space.h"

#include <math.h>
#include <string.h>

/* Checks whether the job and the options allow plans whose datacenters have
 * different values: a few datacenters differ, and their sites are open. */
static bool suits_differing(const lh_job *job, const lh_plan_options *options)
{
    const lh_layout *l = &job->layout;
    bool differ = false;
    for (uint32_t i = 1; i < job->n_datacenters; i++)
        differ = differ || !lhi_datacenters_are_equivalent(job, 0, i);
    return differ && job->n_datacenters <= LHI_UNEQUAL_MAX_SITES && !l->sites &&
           !(l->schedule && strcmp(l->schedule, "elastic") == 0) &&
           options->objective == LH_PLAN_FASTEST && !options->quick &&
           !options->jitter && !options->elastic_as_published &&
           options->partition != LH_PARTITION_MONTE_CARLO;
}

bool lhi_unequal_is_searched(const lh_job *job, const lh_plan_options *options)
{
    const lh_layout *l = &job->layout;
    return suits_differing(job, options) &&
           (job->target == LH_TARGET_ANY ||
            job->target == LH_TARGET_LONGHAUL) &&
           !l->data && !l->micro_batch &&
           (l->outermost == LH_OUTERMOST_ANY ||
            l->outermost == LH_OUTERMOST_DATA);
}

bool lhi_site_tensors_are_searched(const lh_job *job,
                                   const lh_plan_options *options)
{
    const lh_layout *l = &job->layout;
    return l->tensor_per_site && suits_differing(job, options) &&
           (l->outermost == LH_OUTERMOST_ANY ||
            l->outermost == LH_OUTERMOST_PIPELINE);
}

bool lhi_differing_is_searched(const lh_job *job,
                               const lh_plan_options *options)
{
    return lhi_unequal_is_searched(job, options) ||
           lhi_site_tensors_are_searched(job, options);
}

/* State while listing times. */
typedef struct time_list {
    const lh_job *job;
    lhi_arena *mem;
    lhi_bound_inputs *inputs;
    lhi_unequal_times *all;
    uint32_t n, room;
} time_list;

/* Computes, for one set of degrees, all passes' times for every microbatch size
 * in every datacenter, and how many pipeline ranks each datacenter holds. */
static lh_status fill_times(const time_list *t, lhi_unequal_times *it,
                            lh_error *err)
{
    lhi_config config = it->group;
    const uint32_t group = lhi_group_size(&config.layout);
    for (uint32_t mb = 1; mb <= LHI_UNEQUAL_MAX_MICRO_BATCH; mb++)
        for (uint32_t dc = 0; dc < t->job->n_datacenters; dc++) {
            config.layout.micro_batch = mb;
            it->ranks[dc] = t->job->datacenters[dc].gpus / group;
            LHI_TRY(lhi_bound_inputs_compute_passes(t->inputs, &config, dc,
                                                    &it->ns[dc][mb - 1], err));
        }
    return LH_OK;
}

/* Checks whether the list's last entry has the same degrees as `config`. */
static bool is_listed(const time_list *t, const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    const lh_layout *last = t->n ? &t->all[t->n - 1].group.layout : NULL;
    return last && last->tensor == l->tensor && last->context == l->context &&
           last->expert == l->expert && last->expert_tensor == l->expert_tensor;
}

/* Appends an entry with the degrees of `config` and their pass times to the
 * list, unless the last entry has the same degrees. Skips degrees that the cost
 * model rejects. Visitor callback. */
static lh_status add_times(void *context, const lhi_config *config,
                           lh_error *err)
{
    time_list *t = context;
    lh_error why = {0};
    if (is_listed(t, config))
        return LH_OK;
    if (t->n == t->room) {
        const uint32_t room = t->room ? 2 * t->room : 64;
        lhi_unequal_times *more = LHI_NEW(t->mem, lhi_unequal_times, room);
        if (!more)
            return lhi_fail_nomem(err);
        if (t->n)
            memcpy(more, t->all, t->n * sizeof *more);
        t->all = more;
        t->room = room;
    }
    t->all[t->n] = (lhi_unequal_times){.group = *config};
    const lh_status status = fill_times(t, &t->all[t->n], &why);
    t->n += status == LH_OK;
    if (status == LH_OK || status == LH_EUNSUPPORTED ||
        status == LH_EINFEASIBLE)
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

lh_status lhi_unequal_list_times(const lh_job *job, lhi_arena *mem,
                                 lhi_unequal_times **out, uint32_t *n,
                                 lh_error *err)
{
    time_list t = {.job = job, .mem = mem};
    const lhi_config none = {0};
    lhi_space space;
    lh_status status = lhi_space_init(job, mem, &space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(job, 1, &t.inputs, err);
    if (status == LH_OK)
        status = lhi_space_children(&space, LHI_LEVEL_NONE, &none, NULL,
                                    add_times, &t, err);
    lhi_bound_inputs_free(t.inputs);
    lhi_space_fini(&space);
    *out = t.all;
    *n = t.n;
    return status;
}

/* Returns the most sequences per ns that all datacenters' GPUs can process with
 * one set of degrees, each datacenter with its best microbatch size. */
static double compute_rate(const lh_job *job, const lhi_unequal_times *t)
{
    double rate = 0;
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++) {
        double most = 0;
        for (uint32_t i = 0; i < LHI_UNEQUAL_MAX_MICRO_BATCH; i++)
            most = fmax(most, (i + 1.0) / fmax((double)t->ns[dc][i], 1));
        rate += t->ranks[dc] * most;
    }
    return rate;
}

lh_status lhi_unequal_compute_bound(const lh_job *job, int64_t *ns,
                                    lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_unequal_times *all = NULL;
    uint32_t n = 0;
    double most = 0;
    lh_status status = mem ? lhi_unequal_list_times(job, mem, &all, &n, err)
                           : lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, compute_rate(job, &all[i]));
    *ns = INT64_MAX;
    if (most > 0 && job->training.global_batch / most < 0x1p60)
        *ns = (int64_t)(job->training.global_batch / most) +
              lhi_find_iteration_overhead_ns(job);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_differing_compute_bound(const lh_job *job,
                                      const lh_plan_options *options,
                                      int64_t *ns, lh_error *err)
{
    double rate = 0;
    *ns = INT64_MAX;
    if (lhi_unequal_is_searched(job, options))
        LHI_TRY(lhi_unequal_compute_bound(job, ns, err));
    if (!lhi_site_tensors_are_searched(job, options))
        return LH_OK;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        rate += (double)job->datacenters[i].gpus *
                lhi_gpu_max_flops_per_s(&job->datacenters[i].gpu,
                                        job->framework.fp8);
    /* Every degree has at least the matrix products, at the peak rates. A
     * profile's times need not respect these. */
    const double least =
        job->profile ? 0 : lh_cost_iteration_flops(job) / rate * 1e9;
    *ns = lhi_min_int64(*ns, least < 0x1p60 ? (int64_t)least : *ns);
    return LH_OK;
}
