/* SPDX-License-Identifier: Apache-2.0 */
/* `idle` of a plan: docs/formats/plan.md. */
#include "planner/file/plan_file.h"
#include "planner/idle.h"

#include <inttypes.h>

/* Reads the name of an idle-GPU entry's datacenter, `owner`, from a plan file,
 * and stores its index. */
static lh_status read_datacenter(const lhi_read_context *r,
                                 const lhi_node *node, void *owner,
                                 lh_error *err)
{
    return lhi_plan_read_datacenter(r, node,
                                    &((lh_plan_idle *)owner)->datacenter, err);
}

/* Returns the JSON name of an idle-GPU entry's datacenter, `owner`. */
static json_t *write_datacenter(const void *owner, const void *context)
{
    const lh_job *job = ((const lh_plan *)context)->job;
    return json_string(
        job->datacenters[((const lh_plan_idle *)owner)->datacenter].name);
}

static const lhi_schema_field idle_rows[] = {
    {"datacenter", LHI_CUSTOM(lh_plan_idle), .read = read_datacenter,
     .write = write_datacenter},
    {"gpus", LHI_INTEGER(lh_plan_idle, gpus), .least = 1, .most = UINT32_MAX},
    {"why", LHI_STRING(lh_plan_idle, why)},
    {"lower_bound_s", LHI_SECONDS(lh_plan_idle, bound_ns), .high = 9e9,
     .when = LHI_OPTIONAL, .absent = -1},
    {"best", LHI_STRUCT_POINTER(lh_plan_idle, best), .table = &lhi_choice_table,
     .when = LHI_OPTIONAL},
};
const lhi_schema lhi_idle_table = {
    LHI_ROWS("idle GPUs of a datacenter", lh_plan_idle, idle_rows)};

lh_status lhi_idle_check(const lhi_doc *doc, const lh_plan *p, lh_error *err)
{
    const lhi_node *list = lhi_node_find(doc->root, "idle");
    const lhi_node *map = list ? list->first : NULL;
    for (uint32_t i = 0; i < p->n_idle && map; i++, map = map->next) {
        const lh_plan_idle *it = &p->idle[i];
        const uint32_t idle = lhi_plan_count_idle(p, it->datacenter);
        if (i > 0 && it->datacenter <= p->idle[i - 1].datacenter)
            return lhi_doc_fail(doc, lhi_node_find(map, "datacenter"), err,
                                LH_EINPUT,
                                "must follow the previous entry's in the "
                                "order of the job");
        if (it->gpus != idle)
            return lhi_doc_fail(doc, lhi_node_find(map, "gpus"), err, LH_EINPUT,
                                "is %" PRIu32 ", but the layout leaves %" PRIu32
                                " GPUs idle there",
                                it->gpus, idle);
    }
    return LH_OK;
}
