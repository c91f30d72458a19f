/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbourhood of a layout, and its bounds, are the same with and without
 * bounds cached from other neighbourhoods. */
#include "jobs.h"

#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/search/neighbourhood.h"

#include <longhaul/experimental/plan.h>

enum { MOST = 4000 };

/* The neighbourhood's layouts and bounds. */
typedef struct list {
    lhi_config configs[MOST];
    int64_t ns[MOST];
    uint32_t n;
} list;

static lh_status add(void *context, const lhi_config *config,
                     const lhi_lower_bound *floor, lh_error *err)
{
    list *l = context;
    (void)err;
    if (l->n < MOST) {
        l->configs[l->n] = *config;
        l->ns[l->n++] = floor->ns;
    }
    return LH_OK;
}

/* Collects layouts at most this many steps away, with any value. */
static void collect_within(const lhi_space *space, lhi_bound_inputs *floors,
                           lhi_bound_cache *bounded, const lhi_config *from,
                           uint32_t changes, list *out)
{
    lhi_neighbourhood around = {.space = space,
                                .floors = floors,
                                .bounded = bounded,
                                .from = *from,
                                .most_changes = changes,
                                .dimension = LHI_N_DIMENSIONS,
                                .limit_ns = INT64_MAX,
                                .visit = add,
                                .context = out};
    lh_error err = {0};
    out->n = 0;
    CHECK_OK(lhi_neighbourhood_visit(&around, &err), err);
}

static void collect(const lhi_space *space, lhi_bound_inputs *floors,
                    lhi_bound_cache *bounded, const lhi_config *from, list *out)
{
    collect_within(space, floors, bounded, from, 2, out);
}

/* Compares cached bounds with freshly computed ones. */
static void compare(const lh_job *job, const lhi_space *space,
                    const lhi_config *first)
{
    static list all, known, fresh;
    lhi_bound_inputs *floors = NULL;
    lhi_bound_cache *bounded = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_bound_inputs_make(job, 3, &floors, &err), err);
    CHECK_OK(lhi_bound_cache_make(&bounded, &err), err);
    collect(space, floors, bounded, first, &all);
    CHECK(all.n > 100);
    for (uint32_t i = 0; i < all.n; i += all.n / 8 + 1) {
        lhi_bound_cache *none = NULL;
        CHECK_OK(lhi_bound_cache_make(&none, &err), err);
        collect(space, floors, bounded, &all.configs[i], &known);
        collect(space, floors, none, &all.configs[i], &fresh);
        CHECK_INT(known.n, fresh.n);
        for (uint32_t k = 0; k < known.n && k < fresh.n; k++)
            CHECK(known.ns[k] == fresh.ns[k] &&
                  lhi_configs_are_equal(&known.configs[k], &fresh.configs[k]));
        lhi_bound_cache_free(none);
    }
    lhi_bound_cache_free(bounded);
    lhi_bound_inputs_free(floors);
}

static void bounds_are_the_same_the_second_time(void)
{
    static const char *const models[] = {
        "", "model: {layers: 16, hidden: 2048, ffn: 5504, heads: 16, vocab: "
            "32000, experts: 8, experts_per_token: 2, expert_ffn: 1024}\n"};
    for (int i = 0; i < 2; i++) {
        lh_job *job = job_with(JOB_TWO_SITES, "%s", models[i]);
        lhi_arena *mem = lhi_arena_make(0);
        lh_plan_options o = {.size = sizeof o,
                             .no_optimal = true,
                             .partition = LH_PARTITION_EVEN,
                             .layout_effort = 20000};
        lh_plan *plan = NULL;
        lhi_space space;
        lh_error err = {0};
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
        CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
        if (plan) {
            lhi_config first = lhi_config_from_choice(&plan->best);
            compare(job, &space, &first);
        }
        lhi_space_fini(&space);
        lh_plan_free(plan);
        lhi_arena_free(mem);
        lh_job_free(job);
    }
}

/* Twice the GPUs for twice the sequences are one step away, with as many
 * microbatches; four times the sequences are two. */
static void batches_follow_the_gpus_of_a_stage(void)
{
    static list near;
    lh_job *job = job_with(JOB_TWO_SITES, "%s", "");
    lhi_arena *mem = lhi_arena_make(0);
    lhi_space space;
    lhi_bound_inputs *floors = NULL;
    lhi_bound_cache *bounded = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
    CHECK_OK(lhi_bound_inputs_make(job, 3, &floors, &err), err);
    CHECK_OK(lhi_bound_cache_make(&bounded, &err), err);
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .layout_effort = 20000};
    lh_plan *plan = NULL;
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan) {
        lhi_config from = lhi_config_from_choice(&plan->best);
        const lh_layout *f = &from.layout;
        uint32_t followed = 0;
        collect_within(&space, floors, bounded, &from, 1, &near);
        for (uint32_t i = 0; i < near.n; i++) {
            const lh_layout *l = &near.configs[i].layout;
            if (l->tensor == f->tensor || l->micro_batch == f->micro_batch)
                continue;
            followed++;
            CHECK_INT(l->micro_batch * f->tensor, f->micro_batch * l->tensor);
            /* These GPUs come from replicas, or from all other stages. */
            CHECK(l->context == f->context);
            CHECK(l->pipeline == f->pipeline ||
                  l->pipeline * l->tensor == f->pipeline * f->tensor);
        }
        CHECK(followed > 0);
    }
    lh_plan_free(plan);
    lhi_bound_cache_free(bounded);
    lhi_bound_inputs_free(floors);
    lhi_space_fini(&space);
    lhi_arena_free(mem);
    lh_job_free(job);
}

int main(void)
{
    RUN(batches_follow_the_gpus_of_a_stage);
    RUN(bounds_are_the_same_the_second_time);
    return test_summary();
}
