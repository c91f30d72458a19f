/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with different tensor degrees per datacenter (docs/theory/unequal.md):
 * lists pipelines over the datacenters in every order, with a tensor degree for
 * each, estimates their iteration times, and searches the remaining dimensions
 * of the best estimates. */
#include "planner/site_tensors.h"

#include "base/fail.h"
#include "format/job/job_values.h"
#include "planner/fixed_layouts.h"
#include "planner/layout/choice.h"
#include "planner/layout/layout.h"
#include "planner/layout/space.h"
#include "planner/search/plan_search.h"
#include "planner/search/unequal_bound.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_SAME_DEGREES = 2, /* estimates with the same degrees */
    MAX_SIZES = 3,        /* microbatch sizes: 1, 2, 4, or the job's */
    MAX_TIMES = 64 /* datacenters and tensor degrees, with one context degree */
};

/* A microbatch's least pass times in one datacenter with one pair of degrees,
 * without messages. */
typedef struct degree_times {
    uint32_t datacenter, tensor, context;
    uint32_t ranks;        /* pipeline ranks that fit */
    int64_t ns[MAX_SIZES]; /* by tensor_search.micro_batches */
} degree_times;

/* A pipeline over datacenters, in the order of its parts. */
typedef struct site_pipeline {
    uint32_t context, data, micro_batch;
    uint32_t size; /* index of micro_batch in tensor_search.micro_batches */
    uint32_t n_parts;
    uint32_t datacenter[LHI_UNEQUAL_MAX_SITES], stages[LHI_UNEQUAL_MAX_SITES];
    uint32_t tensors[LHI_UNEQUAL_MAX_SITES]; /* per datacenter; 0: unused */
    /* of all passes of the model in the part's datacenter, for a microbatch */
    double model_ns[LHI_UNEQUAL_MAX_SITES];
    double stages_per_ns; /* sum over the parts: stages / model_ns */
    double ns;            /* estimate */
} site_pipeline;

/* Search state. */
typedef struct tensor_search {
    const lh_job *job;
    uint32_t micro_batches[MAX_SIZES], n_sizes;
    degree_times *times;
    uint32_t n_times;
    site_pipeline best[LHI_MAX_FIXED_LAYOUTS]; /* least times first */
    uint32_t n;
} tensor_search;

/* --- estimates ------------------------------------------------------------ */

/* Checks whether two pipelines have the same tensor, context and data
 * degrees. */
static bool have_same_degrees(const site_pipeline *a, const site_pipeline *b)
{
    return a->context == b->context && a->data == b->data &&
           memcmp(a->tensors, b->tensors, sizeof a->tensors) == 0;
}

/* Stores a pipeline in s->best, sorted by estimated time, if it is among the
 * fastest; at most MAX_SAME_DEGREES entries have the same degrees. */
static void keep_pipeline(tensor_search *s, const site_pipeline *p)
{
    uint32_t same = 0, last = s->n - 1;
    for (uint32_t i = 0; i < s->n; i++)
        if (have_same_degrees(&s->best[i], p) && ++same == MAX_SAME_DEGREES)
            last = i;
    if (same == MAX_SAME_DEGREES || s->n == LHI_MAX_FIXED_LAYOUTS) {
        if (s->best[last].ns <= p->ns)
            return;
        memmove(&s->best[last], &s->best[last + 1],
                (--s->n - last) * sizeof s->best[0]);
    }
    uint32_t at = s->n++;
    for (; at > 0 && s->best[at - 1].ns > p->ns; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = *p;
}

/* Estimates how much longer passes take with the recomputation that the
 * pipeline needs to fit in memory: 1 without, 4/3 with full recomputation;
 * INFINITY: it does not fit. State has mixed precision with ZeRO 1; a layer's
 * activations have 34 bytes per token and hidden dimension, its input 2
 * [Korthikanti et al., arXiv:2205.05198, section 4]. */
static double estimate_recomputation(const tensor_search *s,
                                     const site_pipeline *p, uint32_t stages)
{
    const lh_model *m = s->job->model;
    const uint32_t microbatches =
        s->job->training.global_batch / (p->data * p->micro_batch);
    uint32_t resident = stages; /* microbatches on the part's first stage */
    double slower = 1;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const uint32_t dc = p->datacenter[i];
        const double ranks = (double)p->tensors[dc] * p->context;
        const double layers = m->layers / (p->model_ns[i] * p->stages_per_ns);
        const double params =
            layers / m->layers * (double)lh_model_params(m) / p->tensors[dc];
        const double room =
            (double)lh_gpu_usable_bytes(&s->job->datacenters[dc].gpu) -
            params * (6 + 12.0 / ((double)p->data * p->context));
        const double input =
            2 * layers * p->micro_batch * (double)s->job->training.sequence *
            m->hidden / ranks *
            (resident < microbatches ? resident : microbatches);
        if (room < input)
            return INFINITY;
        if (room < 17 * input)
            slower = 4.0 / 3;
        resident -= p->stages[i];
    }
    return slower;
}

/* Returns the longest time, in ns, that a microbatch's messages of all replicas
 * take on a link between two consecutive parts. */
static double estimate_transfer_ns(const tensor_search *s,
                                   const site_pipeline *p)
{
    const lh_job *job = s->job;
    const double bytes = (double)p->data * p->micro_batch *
                         (double)job->training.sequence * job->model->hidden *
                         lhi_precision_bytes(job->training.precision);
    double longest = 0;
    for (uint32_t i = 0; i + 1 < p->n_parts; i++) {
        const lh_wan *link =
            &job->wans[(size_t)p->datacenter[i] * job->n_datacenters +
                       p->datacenter[i + 1]];
        longest = fmax(longest, bytes / link->bytes_per_s * 1e9);
    }
    return longest;
}

/* Estimates the iteration time of a pipeline and stores it, if its tensor
 * degrees differ and it fits in memory. The estimate has layers in proportion
 * to the stages' speed and half the bubble of 1F1B, because chunks and split
 * backward passes shorten it. */
static void finish_pipeline(tensor_search *s, site_pipeline *p)
{
    uint32_t stages = 0;
    bool differ = false;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        stages += p->stages[i];
        differ = differ ||
                 p->tensors[p->datacenter[i]] != p->tensors[p->datacenter[0]];
    }
    const uint32_t want = s->job->layout.pipeline;
    if (!differ || stages > s->job->model->layers || (want && want != stages))
        return;
    const double microbatches =
        s->job->training.global_batch / ((double)p->data * p->micro_batch);
    const double stage_ns =
        estimate_recomputation(s, p, stages) / p->stages_per_ns;
    if (!isfinite(stage_ns))
        return;
    p->ns = fmax(stage_ns, estimate_transfer_ns(s, p)) * microbatches +
            stage_ns * (stages - 1) / 2;
    keep_pipeline(s, p);
}

/* Appends every datacenter that the pipeline does not use yet, with every
 * tensor degree, and stores the resulting pipelines. */
static void add_parts(tensor_search *s, const site_pipeline *p)
{
    for (uint32_t i = 0; i < s->n_times; i++) {
        const degree_times *t = &s->times[i];
        const uint32_t stages = t->ranks / p->data;
        site_pipeline longer = *p;
        if (t->context != p->context || p->tensors[t->datacenter] || !stages)
            continue;
        longer.datacenter[longer.n_parts] = t->datacenter;
        longer.stages[longer.n_parts] = stages;
        longer.model_ns[longer.n_parts] = fmax((double)t->ns[p->size], 1);
        longer.stages_per_ns += stages / longer.model_ns[longer.n_parts++];
        longer.tensors[t->datacenter] = t->tensor;
        finish_pipeline(s, &longer);
        add_parts(s, &longer);
    }
}

/* Checks whether a value is possible: the job leaves it open (`want` is 0) or
 * fixes it. */
static bool is_allowed(uint32_t value, uint32_t want)
{
    return want == 0 || want == value;
}

/* Lists the pipelines with one context degree. */
static void list_pipelines(tensor_search *s, uint32_t context)
{
    const lh_layout *want = &s->job->layout;
    const uint32_t batch = s->job->training.global_batch;
    for (uint32_t i = 0; i < s->n_sizes; i++)
        for (uint32_t data = 1; data <= batch && data <= s->job->n_gpus;
             data++) {
            const uint32_t mb = s->micro_batches[i];
            const site_pipeline empty = {
                .context = context, .data = data, .micro_batch = mb, .size = i};
            if (is_allowed(data, want->data) &&
                batch % ((uint64_t)data * mb) == 0 &&
                batch / (data * mb) <= LHI_MOST_MICROBATCHES)
                add_parts(s, &empty);
        }
}

/* --- pass times ----------------------------------------------------------- */

/* Checks whether a datacenter's stages may have these degrees: tensor ranks are
 * in one node, or tensor and context ranks fill nodes. */
static bool suits_node(const tensor_search *s, uint32_t datacenter,
                       uint32_t tensor, uint32_t context)
{
    const lh_datacenter *dc = &s->job->datacenters[datacenter];
    const uint64_t group = (uint64_t)tensor * context;
    return s->job->model->heads % tensor == 0 && group <= dc->gpus &&
           dc->gpus_per_node % tensor == 0 &&
           (group <= dc->gpus_per_node || group % dc->gpus_per_node == 0);
}

/* Adds the pass times of one datacenter with one pair of degrees to the list.
 * Skips degrees that the cost model rejects. */
static lh_status add_times(tensor_search *s, lhi_bound_inputs *inputs,
                           uint32_t datacenter, uint32_t tensor,
                           uint32_t context, lh_error *err)
{
    degree_times *t = &s->times[s->n_times];
    lhi_config config = {
        .layout = {.tensor = tensor, .context = context, .expert = 1}};
    *t = (degree_times){datacenter,
                        tensor,
                        context,
                        s->job->datacenters[datacenter].gpus /
                            (tensor * context),
                        {0}};
    for (uint32_t i = 0; i < s->n_sizes; i++) {
        lh_error why = {0};
        config.layout.micro_batch = s->micro_batches[i];
        const lh_status status = lhi_bound_inputs_compute_passes(
            inputs, &config, datacenter, &t->ns[i], &why);
        if (lhi_layout_is_infeasible(status))
            return LH_OK;
        if (status != LH_OK && err)
            *err = why;
        LHI_TRY(status);
    }
    s->n_times++;
    return LH_OK;
}

/* Lists the microbatch sizes: the one that the job fixes, or 1, 2 and 4. */
static void list_micro_batches(tensor_search *s)
{
    const uint32_t want = s->job->layout.micro_batch;
    s->n_sizes = want ? 1 : MAX_SIZES;
    for (uint32_t i = 0; i < s->n_sizes; i++)
        s->micro_batches[i] = want ? want : UINT32_C(1) << i;
}

/* Lists the pass times of all datacenters and degrees with one context
 * degree. */
static lh_status list_times(tensor_search *s, lhi_bound_inputs *inputs,
                            uint32_t context, lh_error *err)
{
    s->n_times = 0;
    for (uint32_t dc = 0; dc < s->job->n_datacenters; dc++)
        for (uint32_t tensor = 1;
             tensor <= s->job->datacenters[dc].gpus_per_node; tensor++)
            if (suits_node(s, dc, tensor, context) && s->n_times < MAX_TIMES)
                LHI_TRY(add_times(s, inputs, dc, tensor, context, err));
    return LH_OK;
}

/* Lists the best pipelines with every context degree. */
static lh_status list_all(tensor_search *s, const lhi_space *space,
                          lhi_bound_inputs *inputs, lh_error *err)
{
    const uint32_t want = s->job->layout.context;
    for (uint32_t context = 1; context <= s->job->n_gpus; context++) {
        if (want ? want != context : !lhi_space_context(space, context))
            continue;
        LHI_TRY(list_times(s, inputs, context, err));
        list_pipelines(s, context);
    }
    return LH_OK;
}

/* Lists the best pipelines with different tensor degrees, into s->best. */
static lh_status list_best(tensor_search *s, lhi_arena *mem, lh_error *err)
{
    lhi_space space = {0};
    lhi_bound_inputs *inputs = NULL;
    list_micro_batches(s);
    s->times = LHI_NEW(mem, degree_times, MAX_TIMES);
    lh_status status = s->times ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_space_init(s->job, mem, &space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(s->job, 1, &inputs, err);
    if (status == LH_OK)
        status = list_all(s, &space, inputs, err);
    lhi_bound_inputs_free(inputs);
    lhi_space_fini(&space);
    return status;
}

/* --- search --------------------------------------------------------------- */

/* Fixes in a copy of the job the degrees and sites of a pipeline; the copy's
 * lists are in `mem`. */
static lh_status fix_pipeline(const site_pipeline *p, lhi_arena *mem,
                              lh_job *job, lh_error *err)
{
    lh_sites *sites = LHI_NEW(mem, lh_sites, 1);
    lh_site_group *group = LHI_NEW(mem, lh_site_group, 1);
    lh_site_stages *parts = LHI_NEW(mem, lh_site_stages, p->n_parts);
    uint32_t *tensors = LHI_NEW(mem, uint32_t, job->n_datacenters);
    uint32_t *none = LHI_NEW(mem, uint32_t, job->n_datacenters);
    lh_layout *to = &job->layout;
    if (!sites || !group || !parts || !tensors || !none)
        return lhi_fail_nomem(err);
    to->pipeline = 0;
    to->tensor = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const uint32_t dc = p->datacenter[i];
        parts[i] = (lh_site_stages){dc, p->stages[i]};
        to->pipeline += p->stages[i];
        if (p->tensors[dc] < to->tensor)
            to->tensor = p->tensors[dc];
    }
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++)
        tensors[dc] = p->tensors[dc] ? p->tensors[dc] : to->tensor;
    *group = (lh_site_group){p->data, p->n_parts, parts};
    *sites = (lh_sites){1, group};
    job->min_gpus = none; /* the search may end without a result */
    to->sites = sites;
    to->site_tensors = tensors;
    to->tensor_per_site = false;
    to->context = p->context;
    to->expert = 1;
    to->data = p->data;
    to->micro_batch = p->micro_batch;
    to->outermost = LH_OUTERMOST_PIPELINE;
    return LH_OK;
}

/* Appends to the plan's reasons how much different tensor degrees gain over the
 * best plan with one degree, whose iteration takes before_ns. */
static lh_status state_gain(int64_t before_ns, lhi_arena *mem, lh_plan *plan,
                            lh_error *err)
{
    const int64_t ns = plan->best.iteration_ns;
    char gain[80] = "tried, not faster than one degree";
    char why[4 * LHI_OPTIMALITY_TEXT];
    if (ns > 0 && ns < before_ns)
        snprintf(gain, sizeof gain, "%.1f %% faster than with one degree",
                 100 * ((double)before_ns / (double)ns - 1));
    snprintf(why, sizeof why, "%s; tensor degrees per datacenter: %s",
             plan->best.why, gain);
    plan->best.why = lhi_arena_strdup(mem, why);
    return plan->best.why ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_plan_search_site_tensors(const lh_plan_options *options,
                                       lhi_arena *mem, lh_plan *plan,
                                       lh_error *err)
{
    tensor_search s = {.job = plan->job};
    if (!lhi_site_tensors_are_searched(plan->job, options))
        return LH_OK;
    LHI_TRY(list_best(&s, mem, err));
    lh_job *jobs = LHI_NEW(mem, lh_job, LHI_MAX_FIXED_LAYOUTS);
    if (!jobs)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s.n; i++) {
        jobs[i] = *plan->job;
        LHI_TRY(fix_pipeline(&s.best[i], mem, &jobs[i], err));
    }
    const int64_t before_ns = plan->best.iteration_ns;
    LHI_TRY(lhi_plan_search_fixed(options, jobs, s.n, mem, plan, err));
    return state_gain(before_ns, mem, plan, err);
}
