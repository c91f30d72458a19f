/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a plan with single options of its training program changed: builds
 * the plan's layout again by the cost model and simulates the plan's schedule
 * on it. Does the same with the best other layouts; if one of them becomes the
 * fastest, plans the job with its options again. Also plans the job with an
 * open option that needs less memory, for layouts that fit only with it. */
#include "planner/explain/flag_advice.h"

#include "base/fail.h"
#include "format/job/parse.h"
#include "planner/explain/whatif.h"
#include "planner/layout/target_flags.h"
#include "planner/search/candidate.h"
#include "planner/search/memory_needs.h"
#include "planner/search/refine.h"
#include "planner/search/search_budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for a key or a list of options, in bytes. */
enum { FLAG_TEXT = 200, MOST_FLAGS = 16 };
/* Other layouts to evaluate with changed options: one for each tensor degree,
 * expert degree and recomputation, on which the options act. */
enum { MOST_FINALISTS = 3 };

/* A plan with changed options: its job, recomputation, and its times. */
typedef struct changed_plan {
    lh_job job;
    lh_choice choice;
} changed_plan;

/* Options of which a plan has one at a time. */
typedef enum flag_kind { SINGLE, DISPATCHER, EXPERT_OVERLAP } flag_kind;

/* A change of the list with the plan that it leads to. */
typedef struct flag_change {
    lh_flag_advice advice;
    flag_kind kind;
    changed_plan plan;
} flag_change;

/* The list under construction. */
typedef struct flag_list {
    const lh_plan *plan; /* its job, best and schedule */
    lhi_arena *mem;
    flag_change *changes;
    uint32_t n;
    flag_kind kind;   /* of the changes that are being listed */
    changed_plan all; /* the plan with all advised changes */
    /* The change without which the layout does not fit; plan->job has it, and
     * plan->best does not; NULL: the layout fits. */
    const lhi_option_change *required;
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
 * keys, `flag`: options of the training program, `fixed`: the job sets the
 * option. */
static lh_status append_flag(flag_list *l, const changed_plan *c, bool fixed,
                             const char *key, const char *flag, lh_error *err)
{
    const double now = (double)l->plan->best.iteration_ns;
    flag_change *f = &l->changes[l->n];
    if (l->n == MOST_FLAGS)
        return LH_OK;
    f->advice =
        (lh_flag_advice){.key = lhi_arena_strdup(l->mem, key),
                         .flag = lhi_arena_strdup(l->mem, flag),
                         .iteration_ns = c->choice.iteration_ns,
                         .gain = 1 - (double)c->choice.iteration_ns / now,
                         .peak_memory_bytes = c->choice.peak_memory_bytes,
                         .fixed = fixed,
                         .certainty = "modelled"};
    f->plan = *c;
    f->kind = l->kind;
    if (!f->advice.key || !f->advice.flag)
        return lhi_fail_nomem(err);
    l->n++;
    return LH_OK;
}

/* Appends a changed option to the list, as append_flag() does, if it changes
 * the iteration time. */
static lh_status add_flag(flag_list *l, const changed_plan *c, bool fixed,
                          const char *key, const char *flag, lh_error *err)
{
    return c->choice.iteration_ns == l->plan->best.iteration_ns
               ? LH_OK
               : append_flag(l, c, fixed, key, flag, err);
}

/* Evaluates the plan with a changed option and appends it to the list if it is
 * possible; `fixed`, `key` and `flag` as for add_flag(). */
static lh_status try_flag(flag_list *l, changed_plan *c, bool fixed,
                          const char *key, const char *flag, lh_error *err)
{
    bool fits;
    LHI_TRY(evaluate_change(l, c, &fits, err));
    return fits ? add_flag(l, c, fixed, key, flag, err) : LH_OK;
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
        LHI_TRY(try_flag(l, &c, l->plan->job->training.dispatcher_given, key,
                         flag, err));
    }
    return LH_OK;
}

/* Evaluates the plan with the experts' all-to-alls overlapped with another
 * microbatch's passes, and with the shared experts; lists those that change the
 * iteration time. */
static lh_status try_expert_overlaps(flag_list *l, lh_error *err)
{
    const lh_framework *f = &l->plan->job->framework;
    const bool fixed = f->overlap_expert_given;
    if (!(f->overlap_expert > 0)) {
        changed_plan c = start_change(l);
        c.job.framework.overlap_expert = 1;
        c.job.framework.overlap_shared_experts = 0;
        LHI_TRY(try_flag(l, &c, fixed, "framework.overlap.expert: 1",
                         LHI_FLAG_EXPERT_OVERLAP, err));
    }
    if (l->plan->job->model->shared_expert_ffn &&
        !(f->overlap_shared_experts > 0)) {
        changed_plan c = start_change(l);
        c.job.framework.overlap_expert = 0;
        c.job.framework.overlap_shared_experts = 1;
        LHI_TRY(try_flag(l, &c, fixed, "framework.overlap.shared_experts: 1",
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
    return try_flag(l, &c, c.job.framework.overlap_tensor_given, key,
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
    return try_flag(l, &c, true,
                    full ? "layout.sharding: hybrid" : "layout.sharding: full",
                    flag, err);
}

/* Evaluates the plan with the option that needs less memory (bf16 gradients, or
 * compiled layers), if it is not used, and lists it if the iteration time
 * changes. */
static lh_status try_memory_option(flag_list *l, lh_error *err)
{
    changed_plan c = start_change(l);
    lhi_option_change o;
    return lhi_reduce_memory_by_option(&c.job, &o)
               ? try_flag(l, &c, o.fixed, o.key, o.flag, err)
               : LH_OK;
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

/* Evaluates the plan with recomputation of single modules replacing its own:
 * begins with the plan's modules, or the whole model, and removes one at a
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
    return add_flag(l, &c, l->plan->job->training.recompute_given, key, flag,
                    err);
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

/* Marks change i as advised in place of other changes of its kind. */
static void replace_advised(flag_list *l, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (l->changes[k].kind == l->changes[i].kind &&
            l->changes[i].kind != SINGLE)
            l->changes[k].advice.advised = false;
    l->changes[i].advice.advised = true;
}

/* Combines the changes from `first` on greedily in l->all, which is the plan
 * with the required change, if any: takes each one that the job leaves open, in
 * the list's order, that makes the plan with the earlier ones faster, and marks
 * it as advised. */
static lh_status combine_changes(flag_list *l, uint32_t first, lh_error *err)
{
    for (uint32_t i = first; i < l->n && l->changes[i].advice.gain > 0; i++) {
        changed_plan next = l->all;
        bool fits;
        if (l->changes[i].advice.fixed)
            continue;
        adopt_options(l, &l->changes[i].plan, &next);
        LHI_TRY(evaluate_change(l, &next, &fits, err));
        if (!fits || next.choice.iteration_ns >= l->all.choice.iteration_ns)
            continue;
        l->all = next;
        replace_advised(l, i);
    }
    return LH_OK;
}

/* Evaluates every change of a training-program option (TorchTitan or
 * Megatron-LM) alone, and lists those that change the plan's iteration time in
 * l->changes. */
static lh_status list_changes(flag_list *l, lh_error *err)
{
    LHI_TRY(try_tensor_overlap(l, err));
    LHI_TRY(try_memory_option(l, err));
    if (l->plan->job->target == LH_TARGET_TORCHTITAN)
        return LH_OK;
    LHI_TRY(try_modules(l, err));
    LHI_TRY(try_sharding(l, err));
    if (l->plan->best.layout.expert == 1)
        return LH_OK;
    l->kind = DISPATCHER;
    LHI_TRY(try_dispatchers(l, err));
    l->kind = EXPERT_OVERLAP;
    return try_expert_overlaps(l, err);
}

/* Lists the change that the layout requires to fit into memory, as advised.
 * *fits: the layout fits with it. */
static lh_status add_required(flag_list *l, bool *fits, lh_error *err)
{
    l->all = start_change(l);
    LHI_TRY(evaluate_change(l, &l->all, fits, err));
    if (!*fits)
        return LH_OK;
    LHI_TRY(append_flag(l, &l->all, false, l->required->key, l->required->flag,
                        err));
    l->changes[0].advice.advised = true;
    return LH_OK;
}

/* Lists every change of an option of l->plan's training program by iteration
 * time, the required one first, and combines those to advise. */
static lh_status fill_list(flag_list *l, lh_error *err)
{
    bool fits = true;
    l->all = start_change(l);
    l->changes = LHI_NEW(l->mem, flag_change, MOST_FLAGS);
    if (!l->changes)
        return lhi_fail_nomem(err);
    if (l->required)
        LHI_TRY(add_required(l, &fits, err));
    const uint32_t first = l->n;
    if (fits)
        LHI_TRY(list_changes(l, err));
    qsort(l->changes + first, l->n - first, sizeof *l->changes,
          compare_changes);
    return combine_changes(l, first, err);
}

/* Copies the advice of the list, all of it or only the advised changes, to a
 * new array *out of *n entries. */
static lh_status copy_advice(const flag_list *l, bool advised_only,
                             const lh_flag_advice **out, uint32_t *n,
                             lh_error *err)
{
    lh_flag_advice *flags = LHI_NEW(l->mem, lh_flag_advice, MOST_FLAGS);
    *n = 0;
    if (!flags)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < l->n; i++)
        if (l->changes[i].advice.advised || !advised_only)
            flags[(*n)++] = l->changes[i].advice;
    *out = flags;
    return LH_OK;
}

/* Checks whether the options act alike on both layouts: the tensor degree, the
 * expert degree and the recomputation are equal. */
static bool is_of_one_kind(const lh_choice *a, const lh_choice *b)
{
    return a->layout.tensor == b->layout.tensor &&
           a->layout.expert == b->layout.expert && a->recompute == b->recompute;
}

/* Checks whether a plan candidate can be evaluated again by its schedule
 * method alone. */
static bool is_evaluable(const lh_choice *c)
{
    return c->status == LH_CHOICE_OK && !c->elastic &&
           !c->layout.group_micro_batches && !c->layout.site_tensors &&
           strcmp(c->layout.schedule, LH_OPTIMAL) != 0;
}

/* Inserts a plan candidate into finalists[0..*n-1], ordered by iteration time
 * with one candidate of a kind; drops the slowest beyond MOST_FINALISTS. */
static void add_finalist(const lh_plan *plan, const lh_choice *c,
                         const lh_choice **finalists, uint32_t *n)
{
    uint32_t k = 0;
    if (!is_evaluable(c) || is_of_one_kind(c, &plan->best))
        return;
    while (k < *n && finalists[k]->iteration_ns <= c->iteration_ns)
        if (is_of_one_kind(finalists[k++], c))
            return;
    uint32_t last = k;
    while (last < *n && !is_of_one_kind(finalists[last], c))
        last++;
    if (last == MOST_FINALISTS)
        last--;
    else if (last == *n)
        ++*n;
    if (k >= MOST_FINALISTS)
        return;
    for (; last > k; last--)
        finalists[last] = finalists[last - 1];
    finalists[k] = c;
}

/* Changes there->job to a copy with the option that needs less memory, if the
 * job leaves one open, and sets l->required to it. */
static lh_status require_option(flag_list *l, lh_plan *there, lh_error *err)
{
    lh_job *job = LHI_NEW(l->mem, lh_job, 1);
    lhi_option_change *o = LHI_NEW(l->mem, lhi_option_change, 1);
    if (!job || !o)
        return lhi_fail_nomem(err);
    *job = *there->job;
    if (!lhi_reduce_memory_by_option(job, o) || o->fixed)
        return LH_OK;
    there->job = job;
    l->required = o;
    return LH_OK;
}

/* Evaluates another layout, there->best with its schedule, for the plan's job:
 * with the option changes that make this layout faster, or that it requires to
 * fit into memory. If the layout with these changes is faster than *fastest,
 * stores the changes in *list and the layout's time in *fastest. */
static lh_status evaluate_layout(const flag_list *own, lh_plan *there,
                                 flag_list *list, int64_t *fastest,
                                 lh_error *err)
{
    flag_list l = {.plan = there, .mem = own->mem};
    bool fits;
    there->job = own->plan->job;
    changed_plan now = start_change(&l);
    LHI_TRY(evaluate_change(&l, &now, &fits, err));
    if (!fits)
        LHI_TRY(require_option(&l, there, err));
    if (!fits && !l.required)
        return LH_OK;
    there->best = now.choice;
    LHI_TRY(fill_list(&l, err));
    const int64_t ns = l.all.choice.iteration_ns,
                  before_ns = there->best.iteration_ns;
    if (l.n == 0 || ns >= *fastest || (fits ? ns >= before_ns : ns > before_ns))
        return LH_OK;
    *fastest = ns;
    *list = l;
    return LH_OK;
}

/* Schedules a finalist by its own method and evaluates it with changed options
 * like evaluate_layout(). `there` holds its plan, which *list refers to. */
static lh_status evaluate_finalist(const flag_list *own,
                                   const lh_plan_options *options,
                                   const lh_choice *c, lh_plan *there,
                                   flag_list *list, int64_t *fastest,
                                   lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(c);
    lhi_built_layout built;
    lh_schedule *schedule = NULL;
    *there = (lh_plan){.best = *c};
    LHI_TRY(lhi_layout_build(own->plan->job, &config, &built, err));
    lh_status status =
        lhi_method_evaluate(own->plan->job, options, &built, NULL, own->mem,
                            &there->best, &schedule, err);
    lh_pipeline_free(built.pipeline);
    there->schedule = schedule;
    if (status == LH_OK && schedule)
        status = evaluate_layout(own, there, list, fastest, err);
    lh_schedule_free(schedule);
    there->schedule = NULL;
    return status;
}

/* Searches the plan's job again with the options of `job`, except its
 * recomputed modules, and evaluates the layout found like evaluate_layout().
 * `there` holds its plan. */
static lh_status plan_again(const flag_list *own,
                            const lh_plan_options *options, lh_job job,
                            lh_plan *there, flag_list *list, int64_t *fastest,
                            lh_error *err)
{
    const lh_plan_options shared = lhi_options_for_questions(options);
    lh_error why = {0};
    job.training.recompute = own->plan->job->training.recompute;
    job.training.recompute_modules = own->plan->job->training.recompute_modules;
    LHI_TRY(lhi_plan_search_possible(&job, &shared, 1, *fastest, own->mem,
                                     there, &why, err));
    lh_pipeline_free((lh_pipeline *)there->pipeline);
    lh_status status = LH_OK;
    if (there->schedule && !there->best.elastic)
        status = evaluate_layout(own, there, list, fastest, err);
    lh_schedule_free((lh_schedule *)there->schedule);
    return status;
}

/* Stores the layout of the list with its advised changes in plan->flag_plan. */
static lh_status set_flag_plan(const flag_list *l, lh_plan *plan, lh_error *err)
{
    lh_flag_plan *out = LHI_NEW(l->mem, lh_flag_plan, 1);
    lh_choice *best = LHI_NEW(l->mem, lh_choice, 1);
    if (!out || !best)
        return lhi_fail_nomem(err);
    *best = l->all.choice;
    best->recompute = l->plan->best.recompute; /* `flags` has the modules */
    best->why = "";
    best->cost = NULL;
    best->lower_bound_ns = 0; /* that of the job's options */
    LHI_TRY(lhi_choice_compute_rates(plan->job, l->mem, best, err));
    *out = (lh_flag_plan){.before_ns = l->plan->best.iteration_ns,
                          .exceeds_memory = l->required != NULL,
                          .best = best};
    plan->flag_plan = out;
    return copy_advice(l, true, &out->flags, &out->n_flags, err);
}

/* Searches the job with the option that needs less memory, if the job leaves it
 * open and the memory excluded layouts, and evaluates the layout found like
 * evaluate_layout(). `there` holds its plan. */
static lh_status plan_with_less_memory(const flag_list *own,
                                       const lh_plan_options *options,
                                       lh_plan *there, flag_list *list,
                                       int64_t *fastest, lh_error *err)
{
    lh_job job = *own->plan->job;
    lhi_option_change o;
    if (!own->plan->n_memory || !lhi_reduce_memory_by_option(&job, &o) ||
        o.fixed)
        return LH_OK;
    return plan_again(own, options, job, there, list, fastest, err);
}

/* Evaluates the best layouts of other kinds than the plan's with changed
 * options, and the best one with an option that needs less memory. If one is
 * faster than the plan's layout with its own changes, searches the job with
 * these options again, and stores the fastest layout. */
static lh_status try_layouts(const flag_list *own,
                             const lh_plan_options *options, lh_plan *plan,
                             lh_error *err)
{
    const lh_choice *finalists[MOST_FINALISTS] = {NULL};
    uint32_t n = 0;
    lh_plan there[MOST_FINALISTS], smaller = {0}, again = {0};
    flag_list list = {0};
    int64_t fastest = own->all.choice.iteration_ns;
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        add_finalist(plan, &plan->alternatives[i], finalists, &n);
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
        add_finalist(plan, &plan->dimension_alternatives[i].choice, finalists,
                     &n);
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(evaluate_finalist(own, options, finalists[i], &there[i], &list,
                                  &fastest, err));
    LHI_TRY(
        plan_with_less_memory(own, options, &smaller, &list, &fastest, err));
    if (!list.plan)
        return LH_OK;
    LHI_TRY(
        plan_again(own, options, list.all.job, &again, &list, &fastest, err));
    return set_flag_plan(&list, plan, err);
}

lh_status lhi_plan_advise_flags(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    flag_list l = {.plan = plan, .mem = mem};
    const lh_target target = plan->job->target;
    plan->flags_ns = -1;
    if ((target != LH_TARGET_MEGATRON && target != LH_TARGET_TORCHTITAN) ||
        plan->best.elastic)
        return LH_OK;
    LHI_TRY(fill_list(&l, err));
    LHI_TRY(copy_advice(&l, false, &plan->flags, &plan->n_flags, err));
    if (l.all.choice.iteration_ns < plan->best.iteration_ns)
        plan->flags_ns = l.all.choice.iteration_ns;
    if (options->jitter || options->objective != LH_PLAN_FASTEST)
        return LH_OK; /* the plan is not the fastest anyway */
    return try_layouts(&l, options, plan, err);
}
