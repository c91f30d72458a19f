/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a plan with single options of its training program changed: builds
 * the plan's layout again by the cost model and simulates the plan's schedule
 * on it. */
#include "planner/explain/flag_advice.h"

#include "base/fail.h"
#include "format/job/parse.h"
#include "planner/layout/choice.h"
#include "planner/layout/target_flags.h"
#include "planner/search/refine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a key or a list of options, in bytes. */
enum { FLAG_TEXT = 200, MOST_FLAGS = 16 };

/* A plan with changed options: its job, recomputation, and its times. */
typedef struct changed_plan {
    lh_job job;
    lh_choice choice;
} changed_plan;

/* A change of the list with the plan that it leads to. */
typedef struct flag_change {
    lh_flag_advice advice;
    changed_plan plan;
} flag_change;

/* The list under construction. */
typedef struct flag_list {
    const lh_plan *plan;
    lhi_arena *mem;
    flag_change *changes;
    uint32_t n;
} flag_list;

/* Returns a copy of the plan's job and layout, in which options of the training
 * program can be changed. */
static changed_plan start_change(const flag_list *l)
{
    return (changed_plan){.job = *l->plan->job, .choice = l->plan->best};
}

/* Computes the iteration time of the plan's layout and schedule with the
 * options of c->job, into c->choice. *fits: the training program supports the
 * options and the layout fits into memory. */
static lh_status evaluate_change(const flag_list *l, changed_plan *c,
                                 bool *fits, lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&c->choice);
    lhi_built_layout built;
    lh_error why = {0};
    lh_status status = lhi_target_check_job(c->job.target, &c->job, &why);
    *fits = false;
    if (status == LH_OK)
        status =
            lhi_target_check_choice(c->job.target, &c->job, &c->choice, &why);
    if (status == LH_OK)
        status = lhi_layout_build(&c->job, &config, &built, &why);
    if (status != LH_OK) {
        if (lhi_layout_is_infeasible(status))
            return LH_OK;
        if (err)
            *err = why;
        return status;
    }
    c->choice.optimizer_ns = built.optimizer_ns;
    c->choice.overhead_ns = built.overhead_ns;
    status =
        lhi_choice_measure(built.pipeline, l->plan->schedule, &c->choice, err);
    lh_pipeline_free(built.pipeline);
    *fits = status == LH_OK &&
            c->choice.peak_memory_bytes <= c->choice.memory_limit_bytes;
    return status;
}

/* Appends a changed option to the list with its iteration time; `key`: job
 * keys, `flag`: options of the training program. Does nothing if the iteration
 * time stays the same. */
static lh_status add_flag(flag_list *l, const changed_plan *c, const char *key,
                          const char *flag, lh_error *err)
{
    const double now = (double)l->plan->best.iteration_ns;
    flag_change *f = &l->changes[l->n];
    if (c->choice.iteration_ns == l->plan->best.iteration_ns ||
        l->n == MOST_FLAGS)
        return LH_OK;
    f->advice =
        (lh_flag_advice){.key = lhi_arena_strdup(l->mem, key),
                         .flag = lhi_arena_strdup(l->mem, flag),
                         .iteration_ns = c->choice.iteration_ns,
                         .gain = 1 - (double)c->choice.iteration_ns / now,
                         .peak_memory_bytes = c->choice.peak_memory_bytes,
                         .certainty = "modelled"};
    f->plan = *c;
    if (!f->advice.key || !f->advice.flag)
        return lhi_fail_nomem(err);
    l->n++;
    return LH_OK;
}

/* Evaluates the plan with a changed option and appends it to the list if it is
 * possible; `key`: job keys, `flag`: options of the training program. */
static lh_status try_flag(flag_list *l, changed_plan *c, const char *key,
                          const char *flag, lh_error *err)
{
    bool fits;
    LHI_TRY(evaluate_change(l, c, &fits, err));
    return fits ? add_flag(l, c, key, flag, err) : LH_OK;
}

/* Evaluates the plan with every other token dispatcher (all-to-all
 * implementation) and lists those that change the iteration time. */
static lh_status try_dispatchers(flag_list *l, lh_error *err)
{
    const lh_dispatcher now = l->plan->job->training.dispatcher;
    for (uint32_t i = 0; lhi_dispatcher_names[i]; i++) {
        const lh_dispatcher other = (lh_dispatcher)i;
        const char *name = lhi_dispatcher_names[i];
        char key[FLAG_TEXT], flag[FLAG_TEXT];
        changed_plan c = start_change(l);
        if (other == now)
            continue;
        c.job.training.dispatcher = other;
        snprintf(key, sizeof key, "training.dispatcher: %s", name);
        if (lhi_dispatches_once_per_node(other))
            snprintf(flag, sizeof flag,
                     LHI_FLAG_DISPATCHER "flex " LHI_FLAG_FLEX_BACKEND "%s",
                     name);
        else
            snprintf(flag, sizeof flag, LHI_FLAG_DISPATCHER "%s", name);
        LHI_TRY(try_flag(l, &c, key, flag, err));
    }
    return LH_OK;
}

/* Evaluates the plan with the experts' all-to-alls overlapped with another
 * microbatch's passes, and with the shared experts; lists those that change the
 * iteration time. */
static lh_status try_expert_overlaps(flag_list *l, lh_error *err)
{
    const lh_framework *f = &l->plan->job->framework;
    if (!(f->overlap_expert > 0)) {
        changed_plan c = start_change(l);
        c.job.framework.overlap_expert = 1;
        c.job.framework.overlap_shared_experts = 0;
        LHI_TRY(try_flag(l, &c, "framework.overlap.expert: 1",
                         LHI_FLAG_EXPERT_OVERLAP, err));
    }
    if (l->plan->job->model->shared_expert_ffn &&
        !(f->overlap_shared_experts > 0)) {
        changed_plan c = start_change(l);
        c.job.framework.overlap_expert = 0;
        c.job.framework.overlap_shared_experts = 1;
        LHI_TRY(try_flag(l, &c, "framework.overlap.shared_experts: 1",
                         LHI_FLAG_SHARED_OVERLAP, err));
    }
    return LH_OK;
}

/* Evaluates the plan with overlapped tensor-parallel communication, unless it
 * is used, and lists it if the iteration time changes. */
static lh_status try_tensor_overlap(flag_list *l, lh_error *err)
{
    const bool megatron = l->plan->job->target == LH_TARGET_MEGATRON;
    changed_plan c = start_change(l);
    char key[FLAG_TEXT];
    if (l->plan->best.layout.tensor == 1 ||
        l->plan->job->framework.overlap_tensor > 0)
        return LH_OK;
    c.job.framework.overlap_tensor =
        megatron ? LHI_MEGATRON_TENSOR_OVERLAP : LHI_TORCHTITAN_TENSOR_OVERLAP;
    snprintf(key, sizeof key, "framework.overlap.tensor: %.15g",
             c.job.framework.overlap_tensor);
    return try_flag(l, &c, key,
                    megatron ? LHI_FLAG_TENSOR_OVERLAP
                             : LHI_FLAG_COMPILE " " LHI_FLAG_ASYNC_TENSOR,
                    err);
}

/* Evaluates the plan with the other sharding that the job could fix, hybrid
 * (within each datacenter) or full (over all replicas), and lists it if the
 * iteration time changes. */
static lh_status try_sharding(flag_list *l, lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&l->plan->best);
    const bool full = l->plan->best.layout.sharding == LH_SHARDING_FULL;
    changed_plan c = start_change(l);
    char flag[FLAG_TEXT];
    if (l->plan->job->layout.sharding == LH_SHARDING_ANY ||
        !lhi_sharding_matters(l->plan->job, &config))
        return LH_OK;
    c.choice.layout.sharding = c.job.layout.sharding =
        full ? LH_SHARDING_HYBRID : LH_SHARDING_FULL;
    snprintf(flag, sizeof flag, LHI_FLAG_OPTIMIZER_INSTANCES " %" PRIu32,
             lhi_state_groups(&c.job, &c.choice.layout, c.choice.zero));
    return try_flag(l, &c,
                    full ? "layout.sharding: hybrid" : "layout.sharding: full",
                    flag, err);
}

/* Evaluates the plan with gradients in bf16, if the job trains in bf16 with
 * fp32 gradients, and lists it if the iteration time changes. */
static lh_status try_gradients(flag_list *l, lh_error *err)
{
    const lh_job *job = l->plan->job;
    changed_plan c = start_change(l);
    if (job->training.precision != LH_PRECISION_BF16 ||
        job->framework.gradients == LH_GRADIENT_BF16)
        return LH_OK;
    c.job.framework.gradients = c.job.framework.reduce = LH_GRADIENT_BF16;
    return try_flag(l, &c, "framework.gradients: bf16, framework.reduce: bf16",
                    LHI_FLAG_REDUCE_BF16, err);
}

/* Evaluates the plan with compiled layers, whose element-wise operations are
 * fused, if layers are not compiled, and lists it if the iteration time
 * changes. */
static lh_status try_compilation(flag_list *l, lh_error *err)
{
    changed_plan c = start_change(l);
    if (l->plan->job->framework.kernels != LH_KERNELS_EAGER)
        return LH_OK;
    c.job.framework.kernels = LH_KERNELS_FUSED;
    return try_flag(l, &c, "framework.kernels: fused", LHI_FLAG_COMPILE, err);
}

/* The modules that recomputing `moe` includes. */
static const uint32_t WITHIN_MOE =
    1u << LH_MODULE_MOE_ACT | 1u << LH_MODULE_SHARED_EXPERTS;

/* Returns the bit set of the modules (attention core, MLP and others) that the
 * model has and that Megatron-LM can recompute one by one. */
static uint32_t find_modules(const lh_model *m)
{
    uint32_t all = 1u << LH_MODULE_CORE_ATTN | 1u << LH_MODULE_LAYERNORM;
    if (m->kv_lora_rank)
        all |= 1u << LH_MODULE_MLA_UP_PROJ;
    if (m->experts)
        all |= 1u << LH_MODULE_MOE | 1u << LH_MODULE_MOE_ACT;
    if (m->shared_expert_ffn)
        all |= 1u << LH_MODULE_SHARED_EXPERTS;
    if (m->ffn)
        all |= 1u << LH_MODULE_MLP;
    return all;
}

/* Formats a bit set of modules into `text`: `start`, their names separated by
 * `between`, then `end`. */
static void format_modules(uint32_t modules, const char *start,
                           const char *between, const char *end, char *text,
                           size_t room)
{
    size_t len = (size_t)snprintf(text, room, "%s", start);
    bool any = false;
    for (uint32_t i = 0; i < LH_N_MODULES && len < room; i++)
        if (modules >> i & 1) {
            len += (size_t)snprintf(text + len, room - len, "%s%s",
                                    any ? between : "",
                                    lh_module_name((lh_module)i));
            any = true;
        }
    if (len < room)
        snprintf(text + len, room - len, "%s", end);
}

/* Sets the modules that the changed plan recomputes, as a bit set; 0: no
 * recomputation. */
static void set_modules(changed_plan *c, uint32_t modules)
{
    c->job.training.recompute =
        modules ? LH_RECOMPUTE_MODULES : LH_RECOMPUTE_NONE;
    c->job.training.recompute_modules = modules;
    c->choice.recompute = c->job.training.recompute;
}

/* Removes from the recomputed modules of *c the one without which the iteration
 * is shortest, if the rest fits into memory and is faster; *removed: it did. */
static lh_status remove_module(const flag_list *l, uint32_t *modules,
                               changed_plan *c, bool *removed, lh_error *err)
{
    const uint32_t from = *modules;
    *removed = false;
    for (uint32_t i = 0; i < LH_N_MODULES; i++) {
        changed_plan other = start_change(l);
        bool fits;
        if (!(from >> i & 1))
            continue;
        set_modules(&other, from & ~(1u << i));
        LHI_TRY(evaluate_change(l, &other, &fits, err));
        if (!fits || other.choice.iteration_ns >= c->choice.iteration_ns)
            continue;
        *c = other;
        *modules = from & ~(1u << i);
        *removed = true;
    }
    return LH_OK;
}

/* Evaluates the plan with recomputation of single modules in place of its own:
 * begins with the plan's modules, or all of the model, and removes one at a
 * time, greedily by iteration time, while the plan fits into memory. */
static lh_status try_modules(flag_list *l, lh_error *err)
{
    const lh_choice *best = &l->plan->best;
    changed_plan c = start_change(l);
    uint32_t modules = best->recompute == LH_RECOMPUTE_MODULES
                           ? c.job.training.recompute_modules
                           : find_modules(c.job.model);
    bool fits = true, removed = true;
    char key[FLAG_TEXT], flag[FLAG_TEXT];
    if (best->recompute == LH_RECOMPUTE_NONE)
        return LH_OK;
    if (best->recompute != LH_RECOMPUTE_MODULES) {
        set_modules(&c, modules);
        LHI_TRY(evaluate_change(l, &c, &fits, err));
    }
    if (!fits)
        return LH_OK;
    while (removed && modules)
        LHI_TRY(remove_module(l, &modules, &c, &removed, err));
    if (modules >> LH_MODULE_MOE & 1 && modules & WITHIN_MOE) {
        modules &= ~WITHIN_MOE;
        c = start_change(l);
        set_modules(&c, modules);
        LHI_TRY(evaluate_change(l, &c, &fits, err));
    }
    format_modules(modules, modules ? "training.recompute: [" : "", ", ",
                   modules ? "]" : "training.recompute: none", key, sizeof key);
    format_modules(modules, modules ? LHI_FLAG_RECOMPUTE_MODULES " " : "", " ",
                   modules ? "" : "no --recompute-granularity", flag,
                   sizeof flag);
    return add_flag(l, &c, key, flag, err);
}

/* Orders changes by iteration time, for qsort(); equal times by key. */
static int compare_changes(const void *x, const void *y)
{
    const lh_flag_advice *a = &((const flag_change *)x)->advice;
    const lh_flag_advice *b = &((const flag_change *)y)->advice;
    if (a->iteration_ns != b->iteration_ns)
        return a->iteration_ns < b->iteration_ns ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* Copies into *to those training-program options in which *from differs from
 * the plan. */
static void adopt_options(const flag_list *l, const changed_plan *from,
                          changed_plan *to)
{
    const lh_job *now = l->plan->job, *job = &from->job;
    const lh_framework *was = &now->framework, *f = &job->framework;
    lh_framework *out = &to->job.framework;
    if (job->training.dispatcher != now->training.dispatcher)
        to->job.training.dispatcher = job->training.dispatcher;
    if (f->overlap_expert > was->overlap_expert ||
        f->overlap_shared_experts > was->overlap_shared_experts) {
        out->overlap_expert = f->overlap_expert;
        out->overlap_shared_experts = f->overlap_shared_experts;
    }
    if (f->overlap_tensor > was->overlap_tensor)
        out->overlap_tensor = f->overlap_tensor;
    if (f->gradients != was->gradients) {
        out->gradients = f->gradients;
        out->reduce = f->reduce;
    }
    if (f->kernels != was->kernels)
        out->kernels = f->kernels;
    if (job->training.recompute != now->training.recompute ||
        job->training.recompute_modules != now->training.recompute_modules) {
        to->job.training.recompute = job->training.recompute;
        to->job.training.recompute_modules = job->training.recompute_modules;
        to->choice.recompute = from->choice.recompute;
    }
    if (from->choice.layout.sharding != l->plan->best.layout.sharding)
        to->choice.layout.sharding = to->job.layout.sharding =
            from->choice.layout.sharding;
}

/* Combines the listed changes greedily: takes each one, in the list's order,
 * that makes the plan with the earlier ones faster, and marks it as advised.
 * *all_ns: iteration time with all advised changes; -1: none. */
static lh_status combine_changes(flag_list *l, int64_t *all_ns, lh_error *err)
{
    changed_plan all = start_change(l);
    *all_ns = -1;
    for (uint32_t i = 0; i < l->n && l->changes[i].advice.gain > 0; i++) {
        changed_plan next = all;
        bool fits;
        adopt_options(l, &l->changes[i].plan, &next);
        LHI_TRY(evaluate_change(l, &next, &fits, err));
        if (!fits || next.choice.iteration_ns >= all.choice.iteration_ns)
            continue;
        all = next;
        l->changes[i].advice.advised = true;
        *all_ns = all.choice.iteration_ns;
    }
    return LH_OK;
}

/* Evaluates every change of a training-program option (TorchTitan or
 * Megatron-LM) alone, and lists those that change the plan's iteration time in
 * l->changes. */
static lh_status list_changes(flag_list *l, lh_error *err)
{
    LHI_TRY(try_tensor_overlap(l, err));
    if (l->plan->job->target == LH_TARGET_TORCHTITAN)
        return try_compilation(l, err);
    LHI_TRY(try_gradients(l, err));
    LHI_TRY(try_modules(l, err));
    LHI_TRY(try_sharding(l, err));
    if (l->plan->best.layout.expert == 1)
        return LH_OK;
    LHI_TRY(try_dispatchers(l, err));
    return try_expert_overlaps(l, err);
}

lh_status lhi_plan_advise_flags(lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    flag_list l = {.plan = plan, .mem = mem};
    const lh_target target = plan->job->target;
    lh_flag_advice *flags;
    plan->flags_ns = -1;
    if ((target != LH_TARGET_MEGATRON && target != LH_TARGET_TORCHTITAN) ||
        plan->best.elastic)
        return LH_OK;
    l.changes = LHI_NEW(mem, flag_change, MOST_FLAGS);
    flags = LHI_NEW(mem, lh_flag_advice, MOST_FLAGS);
    if (!l.changes || !flags)
        return lhi_fail_nomem(err);
    LHI_TRY(list_changes(&l, err));
    qsort(l.changes, l.n, sizeof *l.changes, compare_changes);
    LHI_TRY(combine_changes(&l, &plan->flags_ns, err));
    for (uint32_t i = 0; i < l.n; i++)
        flags[i] = l.changes[i].advice;
    plan->flags = flags;
    plan->n_flags = l.n;
    return LH_OK;
}
