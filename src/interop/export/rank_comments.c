/* SPDX-License-Identifier: Apache-2.0 */
/* Output common to torchtitan and Megatron-LM. */
#include "interop/export/export_internal.h"

#include "format/job/job_values.h"
#include "planner/layout/target.h"

#include <inttypes.h>
#include <string.h>

/* Returns a check's result `status`; on failure formats its reason `why` and
 * the planner option that avoids it into `err`. */
static lh_status add_remedy(lh_status status, const lh_error *why,
                            lh_target target, lh_error *err)
{
    if (status == LH_OK)
        return LH_OK;
    return lhi_fail(err, status,
                    "%s; use longhaul plan --for %s to search only supported "
                    "plans",
                    why->text, lhi_target_name(target));
}

lh_status lhi_export_check(const lh_plan *plan, lh_target target, lh_error *err)
{
    lh_error why = {0};
    return add_remedy(
        lhi_target_check_choice(target, plan->job, &plan->best, &why), &why,
        target, err);
}

lh_status lhi_export_check_settings(const lh_plan *plan, lh_target target,
                                    lh_error *err)
{
    lh_error why = {0};
    return add_remedy(
        lhi_target_check_settings(target, plan->job, &plan->best, &why), &why,
        target, err);
}

void lhi_export_add_option(lhi_text *out, const char *name, uint64_t value)
{
    lhi_text_printf(out, "--%s %" PRIu64 "\n", name, value);
}

void lhi_export_add_origin(lhi_text *out, const lh_plan *plan)
{
    lhi_text_puts(out, "# Made by longhaul ");
    lhi_text_add_escaped(out, plan->version, SIZE_MAX);
    lhi_text_puts(out, " from ");
    lhi_text_add_escaped(out, plan->name, SIZE_MAX);
    lhi_text_puts(out, "\n");
}

void lhi_export_copy_comments(lhi_text *out, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        len += text[len] == '\n';
        if (text[0] == '#')
            lhi_text_add(out, text, len);
        text += len;
    }
}

/* Consecutive ranks in one datacenter. Ranks of one stage of one replica are
 * consecutive; then follow replicas and stages, or stages and replicas. */
typedef struct rank_run {
    lhi_text *out;
    const lh_job *job;
    uint64_t first, next;
    uint32_t datacenter;
} rank_run;

/* Adds the comment "# Ranks A to B: DATACENTER" for the run `r` of consecutive
 * ranks, unless it is empty. */
static void put_rank_range(const rank_run *r)
{
    if (r->next == r->first)
        return;
    lhi_text_printf(r->out, "# Ranks %" PRIu64 " to %" PRIu64 ": ", r->first,
                    r->next - 1);
    lhi_text_add_escaped(r->out, r->job->datacenters[r->datacenter].name,
                         SIZE_MAX);
    lhi_text_puts(r->out, "\n");
}

/* Appends the next `n` ranks, which are in datacenter `datacenter`, to the run
 * `r`. If the run is in another one, first writes it as a comment and begins a
 * new one. */
static void add_ranks(rank_run *r, uint32_t datacenter, uint64_t n)
{
    if (datacenter != r->datacenter) {
        put_rank_range(r);
        r->first = r->next;
        r->datacenter = datacenter;
    }
    r->next += n;
}

/* Returns the index of the datacenter in which a group of replicas runs stage
 * `stage`. */
static uint32_t find_datacenter(const lh_site_group *group, uint32_t stage)
{
    uint32_t i = 0;
    for (; stage >= group->parts[i].stages; i++)
        stage -= group->parts[i].stages;
    return group->parts[i].datacenter;
}

/* Appends the ranks of a group of replicas to the run, one replica after
 * another, by each stage's datacenter; `gpus`: ranks per stage. */
static void add_group_ranks(rank_run *r, const lh_site_group *group,
                            uint64_t gpus)
{
    for (uint32_t k = 0; k < group->replicas; k++)
        for (uint32_t i = 0; i < group->n_parts; i++)
            add_ranks(r, group->parts[i].datacenter,
                      gpus * group->parts[i].stages);
}

void lhi_export_add_ranks(lhi_text *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint64_t gpus = (uint64_t)l->tensor * l->context;
    const uint64_t all = gpus * l->pipeline * l->data;
    rank_run r = {.out = out, .job = plan->job};
    if (plan->job->n_datacenters == 1) {
        if (all < plan->job->n_gpus) {
            add_ranks(&r, 0, all);
            put_rank_range(&r);
        }
        return;
    }
    if (!l->sites)
        return;
    if (lh_layout_rank_order(l) == LH_OUTERMOST_DATA) {
        for (uint32_t g = 0; g < l->sites->n_groups; g++)
            add_group_ranks(&r, &l->sites->groups[g], gpus);
    } else {
        for (uint32_t s = 0; s < l->pipeline; s++)
            for (uint32_t g = 0; g < l->sites->n_groups; g++)
                add_ranks(&r, find_datacenter(&l->sites->groups[g], s),
                          gpus * l->sites->groups[g].replicas);
    }
    put_rank_range(&r);
}
