/* SPDX-License-Identifier: Apache-2.0 */
/* `sites` of a layout: the datacenters of its replicas and stages. */
#include "format/job/parse.h"

#include <string.h>

/* The reader's state. */
typedef struct reader {
    const lhi_doc *doc;
    const lh_job *job;
    lhi_arena *mem;
    bool complete; /* no number may be missing */
    uint32_t n_parts;
    uint32_t *tensors; /* per datacenter; 0: not given */
    lh_layout *layout;
} reader;

/* Reads a datacenter's name and returns its index in the job in *out.
 * LH_EINPUT: there is none of this name. */
static lh_status find_datacenter(const reader *r, const lhi_node *node,
                                 uint32_t *out, lh_error *err)
{
    const char *name;
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    for (uint32_t i = 0; i < r->job->n_datacenters; i++)
        if (strcmp(r->job->datacenters[i].name, name) == 0) {
            *out = i;
            return LH_OK;
        }
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "unknown datacenter '%.60s'", name);
}

/* Reads a number of replicas or stages under `key` into *out. 0 if it is
 * missing; LH_EINPUT if the layout must be complete. */
static lh_status read_count(const reader *r, const lhi_node *map,
                            const char *key, uint32_t *out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node && !r->complete)
        return LH_OK;
    LHI_TRY(lhi_node_require(r->doc, map, key, &node, err));
    return lhi_node_get_u32(r->doc, node, 1, LHI_MAX_DEGREE, out, err);
}

/* Reads one part of a pipeline, consecutive stages in one datacenter: the
 * datacenter's name, or a map with the name and the stage count. */
static lh_status read_part(const reader *r, const lhi_node *node,
                           lh_site_stages *out, lh_error *err)
{
    static const char *const keys[] = {"datacenter", "stages", "tensor", NULL};
    const lhi_node *name = node, *tensor = NULL;
    if (node->kind == LHI_MAP || r->complete) {
        LHI_TRY(lhi_node_check_keys(r->doc, node, keys, err));
        LHI_TRY(lhi_node_require(r->doc, node, "datacenter", &name, err));
        LHI_TRY(read_count(r, node, "stages", &out->stages, err));
        tensor = lhi_node_find(node, "tensor");
    }
    LHI_TRY(find_datacenter(r, name, &out->datacenter, err));
    return tensor ? lhi_node_get_u32(r->doc, tensor, 1, LHI_MAX_DEGREE,
                                     &r->tensors[out->datacenter], err)
                  : LH_OK;
}

/* Reads a replica group: the replica count, and the datacenters of their
 * pipeline. */
static lh_status read_group(reader *r, const lhi_node *map, lh_site_group *out,
                            lh_error *err)
{
    static const char *const keys[] = {"replicas", "micro_batch", "pipeline",
                                       NULL};
    const lhi_node *list;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, err));
    LHI_TRY(read_count(r, map, "replicas", &out->replicas, err));
    LHI_TRY(lhi_node_require(r->doc, map, "pipeline", &list, err));
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (!list->n_items)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must name at least one datacenter");
    if (list->n_items > LHI_MAX_PIPELINE_SEGMENTS - r->n_parts)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "more than %d datacenters over all groups",
                            LHI_MAX_PIPELINE_SEGMENTS);
    r->n_parts += list->n_items;
    lh_site_stages *parts = LHI_NEW(r->mem, lh_site_stages, list->n_items);
    if (!parts)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        LHI_TRY(read_part(r, node, &parts[node->index], err));
        for (uint32_t i = 0; i < node->index; i++)
            if (parts[i].datacenter == parts[node->index].datacenter)
                return lhi_doc_fail(
                    r->doc, node, err, LH_EINPUT,
                    "datacenter '%s' appears twice; a pipeline uses each "
                    "datacenter once",
                    r->job->datacenters[parts[i].datacenter].name);
    }
    out->n_parts = list->n_items;
    out->parts = parts;
    return LH_OK;
}

/* ---- consistency of the numbers ---- */

/* Checks the `sum` of the given replica or stage counts against the layout's
 * total *all (0: unspecified). The sum must equal the total or, with `open`
 * missing counts, leave at least 1 for each. Sets an unspecified *all if no
 * count is missing. `what`, `key`: names in messages. */
static lh_status check_total(const reader *r, const lhi_node *node,
                             const char *what, uint64_t sum, uint32_t open,
                             const char *key, uint32_t *all, lh_error *err)
{
    if (sum + open > LHI_MAX_DEGREE)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "more than %d %s",
                            LHI_MAX_DEGREE, what);
    if (!*all && !open)
        *all = (uint32_t)sum;
    if (!*all || (open ? sum + open <= *all : sum == *all))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%llu %s%s, but %s is %u",
                        (unsigned long long)(sum + open), what,
                        open ? " at least" : " in all", key, *all);
}

/* Checks for each replica group that its stage counts add up to the layout's
 * pipeline degree, as check_total() does. */
static lh_status check_stages(reader *r, const lhi_node *list,
                              const lh_sites *sites, lh_error *err)
{
    for (const lhi_node *map = list->first; map; map = map->next) {
        const lh_site_group *group = &sites->groups[map->index];
        uint64_t sum = 0;
        uint32_t open = 0;
        for (uint32_t i = 0; i < group->n_parts; i++) {
            sum += group->parts[i].stages;
            open += !group->parts[i].stages;
        }
        LHI_TRY(check_total(r, lhi_node_find(map, "pipeline"), "stages", sum,
                            open, "pipeline", &r->layout->pipeline, err));
    }
    return LH_OK;
}

/* Checks that the replica groups' replica counts add up to the layout's data
 * degree, as check_total() does. */
static lh_status check_replicas(reader *r, const lhi_node *list,
                                const lh_sites *sites, lh_error *err)
{
    uint64_t sum = 0;
    uint32_t open = 0;
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        sum += sites->groups[g].replicas;
        open += !sites->groups[g].replicas;
    }
    return check_total(r, list, "replicas", sum, open, "data", &r->layout->data,
                       err);
}

/* Checks whether some number of replicas or stages is missing. */
static bool has_missing_counts(const lh_sites *sites)
{
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        const lh_site_group *group = &sites->groups[g];
        if (!group->replicas)
            return true;
        for (uint32_t i = 0; i < group->n_parts; i++)
            if (!group->parts[i].stages)
                return true;
    }
    return false;
}

/* Rejects missing replica or stage counts if groups share a datacenter:
 * the search does not divide it between groups. */
static lh_status check_shared_datacenters(const reader *r, const lhi_node *list,
                                          const lh_sites *sites, lh_error *err)
{
    bool used[LH_MAX_DATACENTERS] = {false};
    for (uint32_t g = 0; g < sites->n_groups; g++)
        for (uint32_t i = 0; i < sites->groups[g].n_parts; i++) {
            uint32_t dc = sites->groups[g].parts[i].datacenter;
            if (used[dc] && has_missing_counts(sites))
                return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                                    "datacenter '%s' is in two groups; this "
                                    "requires 'replicas' and 'stages' for all",
                                    r->job->datacenters[dc].name);
            used[dc] = true;
        }
    return LH_OK;
}

/* Checks the layout's outermost parallelism against the replica groups, or
 * derives it from them if it is not given. */
static lh_status check_outermost(reader *r, const lhi_node *list,
                                 const lh_sites *sites, lh_error *err)
{
    bool crosses = false, fits;
    for (uint32_t g = 0; g < sites->n_groups; g++)
        crosses = crosses || sites->groups[g].n_parts > 1;
    switch (r->layout->outermost) {
    case LH_OUTERMOST_PIPELINE:
        fits = sites->n_groups == 1;
        break;
    case LH_OUTERMOST_DATA:
        fits = !crosses;
        break;
    case LH_OUTERMOST_MIXED:
        fits = sites->n_groups > 1 && crosses;
        break;
    default:
        fits = true;
        r->layout->outermost = sites->n_groups == 1 ? LH_OUTERMOST_PIPELINE
                               : crosses            ? LH_OUTERMOST_MIXED
                                                    : LH_OUTERMOST_DATA;
        break;
    }
    if (fits)
        return LH_OK;
    return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                        "outermost is %s, but there %s %u group%s, %s",
                        lh_outermost_name(r->layout->outermost),
                        sites->n_groups == 1 ? "is" : "are", sites->n_groups,
                        sites->n_groups == 1 ? "" : "s",
                        crosses ? "with pipelines across datacenters"
                                : "each within one datacenter");
}

/* ---- unequal microbatches ---- */

/* Checks a group that gives its own `micro_batch`: it has a replica count and
 * is alone in one datacenter. */
static lh_status check_unequal_group(const reader *r, const lhi_node *map,
                                     const lh_sites *sites, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, "micro_batch");
    const lh_site_group *group = &sites->groups[map->index];
    if (!group->replicas)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires 'replicas' beside it");
    if (group->n_parts > 1)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires a pipeline in one datacenter, not %u",
                            group->n_parts);
    for (uint32_t g = 0; g < map->index; g++)
        if (sites->groups[g].parts[0].datacenter == group->parts[0].datacenter)
            return lhi_doc_fail(
                r->doc, node, err, LH_EINPUT,
                "datacenter '%s' is in an earlier group; join both groups",
                r->job->datacenters[group->parts[0].datacenter].name);
    return LH_OK;
}

/* Reads the groups' own `micro_batch`, which all or none have, into the layout;
 * its micro_batch becomes the largest. */
static lh_status read_unequal(const reader *r, const lhi_node *list,
                              const lh_sites *sites, lh_error *err)
{
    lh_layout *l = r->layout;
    uint32_t n = 0, most = 0;
    const lhi_node *last = NULL;
    for (const lhi_node *map = list->first; map; map = map->next)
        n += lhi_node_find(map, "micro_batch") != NULL;
    if (n == 0)
        return LH_OK;
    uint32_t *sizes = LHI_NEW(r->mem, uint32_t, sites->n_groups);
    if (!sizes)
        return lhi_fail_nomem(err);
    for (const lhi_node *map = list->first; map; map = map->next) {
        LHI_TRY(lhi_node_require(r->doc, map, "micro_batch", &last, err));
        LHI_TRY(lhi_node_get_u32(r->doc, last, 1, LHI_MAX_DEGREE,
                                 &sizes[map->index], err));
        LHI_TRY(check_unequal_group(r, map, sites, err));
        most = sizes[map->index] > most ? sizes[map->index] : most;
    }
    if (l->micro_batch && l->micro_batch != most)
        return lhi_doc_fail(r->doc, last, err, LH_EINPUT,
                            "the largest of all groups is %u, but the layout's "
                            "micro_batch is %u",
                            most, l->micro_batch);
    l->micro_batch = most;
    for (uint32_t g = 0; g < sites->n_groups; g++)
        if (sizes[g] != most)
            l->group_micro_batches = sizes;
    return LH_OK;
}

/* ---- different tensor degrees ---- */

/* Checks the parts' own `tensor`, which all or none have, and stores them in
 * the layout if they differ; its tensor becomes the least. */
static lh_status read_tensors(const reader *r, const lhi_node *list,
                              const lh_sites *sites, lh_error *err)
{
    lh_layout *l = r->layout;
    uint32_t least = UINT32_MAX, most = 0;
    const lhi_node *parts = lhi_node_find(list->first, "pipeline");
    for (uint32_t i = 0; i < r->job->n_datacenters; i++)
        most = r->tensors[i] > most ? r->tensors[i] : most;
    if (!most)
        return LH_OK;
    if (sites->n_groups > 1 || has_missing_counts(sites))
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "tensor of a datacenter requires one group, with "
                            "'replicas', and with 'stages' of every "
                            "datacenter");
    for (const lhi_node *part = parts->first; part; part = part->next) {
        const lhi_node *node;
        LHI_TRY(lhi_node_require(r->doc, part, "tensor", &node, err));
        const uint32_t degree =
            r->tensors[sites->groups[0].parts[part->index].datacenter];
        least = degree < least ? degree : least;
        if (r->job->model->heads % degree != 0)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "the %u heads of %s are not divisible by %u",
                                r->job->model->heads, r->job->model->name,
                                degree);
    }
    if (l->tensor && l->tensor != least)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "the least tensor of all datacenters is %u, but "
                            "the layout's tensor is %u",
                            least, l->tensor);
    l->tensor = least;
    if (least == most)
        return LH_OK;
    if (r->job->model->experts)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "different tensor degrees require a model without "
                            "experts");
    for (uint32_t i = 0; i < r->job->n_datacenters; i++)
        r->tensors[i] = r->tensors[i] ? r->tensors[i] : least;
    l->site_tensors = r->tensors;
    return LH_OK;
}

lh_status lhi_sites_from_node(const lhi_doc *doc, const lhi_node *list,
                              const lh_job *job, bool complete, lhi_arena *mem,
                              lh_layout *layout, lh_error *err)
{
    reader r = {.doc = doc,
                .job = job,
                .mem = mem,
                .complete = complete,
                .layout = layout};
    LHI_TRY(lhi_node_check_list(doc, list, err));
    if (!list->n_items)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "must have at least one group");
    lh_sites *sites = LHI_NEW(mem, lh_sites, 1);
    lh_site_group *groups = LHI_NEW(mem, lh_site_group, list->n_items);
    r.tensors = LHI_NEW(mem, uint32_t, job->n_datacenters);
    if (!sites || !groups || !r.tensors)
        return lhi_fail_nomem(err);
    for (const lhi_node *map = list->first; map; map = map->next)
        LHI_TRY(read_group(&r, map, &groups[map->index], err));
    *sites = (lh_sites){list->n_items, groups};
    LHI_TRY(check_stages(&r, list, sites, err));
    LHI_TRY(check_replicas(&r, list, sites, err));
    LHI_TRY(check_shared_datacenters(&r, list, sites, err));
    LHI_TRY(check_outermost(&r, list, sites, err));
    LHI_TRY(read_unequal(&r, list, sites, err));
    LHI_TRY(read_tensors(&r, list, sites, err));
    layout->sites = sites;
    return LH_OK;
}

/* ---- writing ---- */

/* Converts a pipeline part (consecutive stages in one datacenter) to the
 * datacenter's name, or to a map with its stage count. */
static json_t *part_to_json(const lh_job *job, const lh_layout *layout,
                            const lh_site_stages *part)
{
    const char *name = job->datacenters[part->datacenter].name;
    if (!part->stages)
        return json_string(name);
    if (layout->site_tensors)
        return json_pack("{s:s, s:I, s:I}", "datacenter", name, "stages",
                         (json_int_t)part->stages, "tensor",
                         (json_int_t)layout->site_tensors[part->datacenter]);
    return json_pack("{s:s, s:I}", "datacenter", name, "stages",
                     (json_int_t)part->stages);
}

/* Converts a layout's group of replicas to JSON. */
static json_t *group_to_json(const lh_job *job, const lh_layout *layout,
                             uint32_t g)
{
    const lh_site_group *group = &layout->sites->groups[g];
    json_t *map = json_object(), *list = json_array();
    bool ok = map && list;
    if (ok && group->replicas)
        ok = lhi_json_set(map, "replicas", json_integer(group->replicas));
    if (ok && layout->group_micro_batches)
        ok = lhi_json_set(map, "micro_batch",
                          json_integer(layout->group_micro_batches[g]));
    for (uint32_t i = 0; ok && i < group->n_parts; i++)
        ok = json_array_append_new(
                 list, part_to_json(job, layout, &group->parts[i])) == 0;
    ok = ok && json_object_set(map, "pipeline", list) == 0;
    json_decref(list);
    return lhi_json_finish(map, ok);
}

json_t *lhi_sites_to_json(const lh_job *job, const lh_layout *layout)
{
    json_t *list = json_array();
    for (uint32_t g = 0; list && g < layout->sites->n_groups; g++)
        if (json_array_append_new(list, group_to_json(job, layout, g)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}
