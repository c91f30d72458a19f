/* SPDX-License-Identifier: Apache-2.0 */
/* Checks redundant values of a plan's file outside its choices. */
#include "planner/file/plan_file.h"

#include "format/job/job_values.h"
#include "planner/layout/layout.h"
#include "planner/plan_internal.h"
#include "planner/search/pareto_front.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <string.h>

/* Checks that the numbers of pruned, simulated and unexplored layouts add up to
 * the layout count. Older files without the key `left` (unexplored) may have a
 * smaller sum. */
static lh_status check_counts(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    const lhi_node *map = lhi_node_find(doc->root, "search");
    uint64_t sum =
        (uint64_t)p->n_memory + p->n_bounded + p->n_simulated + p->n_unexplored;
    bool whole = lhi_node_find(map, "left") != NULL;
    if (p->n_layouts == UINT32_MAX || /* at least that many */
        (whole ? sum == p->n_layouts : sum <= p->n_layouts))
        return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(map, "layouts"), err, LH_EINPUT,
                        "is %" PRIu32 ", but memory, bounded, simulated and "
                        "left are %" PRIu64 " together",
                        p->n_layouts, sum);
}

/* Checks that each pipeline device is in the datacenter where the layout places
 * its rank. `mem` is scratch. */
static lh_status check_datacenters(const lhi_doc *doc, const lh_plan *p,
                                   lhi_arena *mem, lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    lhi_mark mark = lhi_arena_mark(mem);
    lhi_layout_placement places;
    lh_error why = {0};
    lh_status status = lhi_layout_place(p->job, l, mem, &places, &why);
    if (status == LH_EUNSUPPORTED)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "layout"), err,
                            LH_EINPUT, "%s", why.text);
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    for (uint32_t d = 0; d < l->pipeline && status == LH_OK; d++) {
        uint32_t site = lh_pipeline_device_site(p->pipeline, d);
        const char *want = p->job->datacenters[places.ranks[d].datacenter].name;
        const char *has =
            site == LH_NONE ? NULL : lhi_pipeline_site_name(p->pipeline, site);
        if (has && strcmp(has, want) != 0)
            status = lhi_doc_fail(doc, lhi_node_find(doc->root, "pipeline"),
                                  err, LH_EINPUT,
                                  "device %" PRIu32 " is in '%s', but the "
                                  "layout places that rank "
                                  "in '%s'",
                                  d, has, want);
    }
    lhi_arena_rewind(mem, mark);
    return status;
}

/* Checks that a plan candidate has jitter samples only if the plan has jitter
 * settings, and not more samples than they allow. */
static lh_status check_jitter(const lhi_doc *doc, const lhi_node *map,
                              const lh_plan *p, const lh_choice *c,
                              lh_error *err)
{
    if (c->jitter && !p->robust)
        return lhi_doc_fail(doc, lhi_node_find(map, "jitter"), err, LH_EINPUT,
                            "requires 'robust' in the plan");
    if (c->jitter && c->jitter->samples > p->robust->jitter.samples)
        return lhi_doc_fail(
            doc, lhi_node_find(lhi_node_find(map, "jitter"), "samples"), err,
            LH_EINPUT, "is %" PRIu32 "; robust.samples is %" PRIu32,
            c->jitter->samples, p->robust->jitter.samples);
    return LH_OK;
}

/* Checks the jitter results of the n plan candidates `all`, which a plan file
 * lists under `key`; see check_jitter(). */
static lh_status check_list_jitter(const lhi_doc *doc, const char *key,
                                   const lh_plan *p, uint32_t n,
                                   const lh_choice *all, lh_error *err)
{
    const lhi_node *list = lhi_node_find(doc->root, key);
    const lhi_node *map = list ? list->first : NULL;
    for (uint32_t i = 0; i < n && map; i++, map = map->next)
        LHI_TRY(check_jitter(doc, map, p, &all[i], err));
    return LH_OK;
}

/* Checks the iteration times sampled with jitter (random link delays and device
 * speeds) of the plan, and of each entry of its `methods` and `alternatives`.
 * Fails with LH_EINPUT if `robust` (the jitter's distribution) is present
 * without the plan's `jitter` (the sampled times), if an entry has `jitter`
 * without `robust`, or if an entry has more samples than `robust` requests. */
static lh_status check_robust(const lhi_doc *doc, const lh_plan *p,
                              lh_error *err)
{
    if (p->robust && !p->best.jitter)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "robust"), err,
                            LH_EINPUT, "requires 'jitter' in the plan");
    LHI_TRY(check_jitter(doc, doc->root, p, &p->best, err));
    LHI_TRY(
        check_list_jitter(doc, "methods", p, p->n_methods, p->methods, err));
    return check_list_jitter(doc, "alternatives", p, p->n_alternatives,
                             p->alternatives, err);
}

/* Checks that layout, pipeline and schedule have equal device, chunk and
 * microbatch counts. */
static lh_status check_sizes(const lhi_doc *doc, const lh_plan *p,
                             lh_error *err)
{
    const lh_layout *l = &p->best.layout;
    const lhi_node *root = doc->root;
    /* With two directions each chunk has two copies. */
    const uint32_t copies = p->best.placement == LH_PLACEMENT_BD ? 2 : 1;
    const uint64_t chunks =
        (uint64_t)l->pipeline * l->chunks_per_device * copies;
    if (lh_pipeline_n_devices(p->pipeline) != l->pipeline)
        return lhi_doc_fail(doc, lhi_node_find(root, "layout"), err, LH_EINPUT,
                            "pipeline is %" PRIu32 ", but the plan's pipeline "
                            "has %" PRIu32 " devices",
                            l->pipeline, lh_pipeline_n_devices(p->pipeline));
    if (lh_pipeline_n_chunks(p->pipeline) != chunks)
        return lhi_doc_fail(doc, lhi_node_find(root, "layout"), err, LH_EINPUT,
                            "pipeline x chunks_per_device%s is %" PRIu64
                            ", but the plan's pipeline has %" PRIu32 " chunks",
                            copies > 1 ? " x 2 directions" : "", chunks,
                            lh_pipeline_n_chunks(p->pipeline));
    if ((uint64_t)lh_pipeline_n_microbatches(p->pipeline) * copies !=
        p->best.microbatches)
        return lhi_doc_fail(
            doc, lhi_node_find(root, "microbatches"), err, LH_EINPUT,
            "is %" PRIu32 ", but the plan's pipeline has "
            "%" PRIu32,
            p->best.microbatches, lh_pipeline_n_microbatches(p->pipeline));
    if (lh_schedule_n_devices(p->schedule) != l->pipeline)
        return lhi_doc_fail(doc, lhi_node_find(root, "schedule"), err,
                            LH_EINPUT,
                            "has %" PRIu32 " rows for %" PRIu32 " devices",
                            lh_schedule_n_devices(p->schedule), l->pipeline);
    return LH_OK;
}

/* Fails with LH_EINPUT if a plan file has the iteration time with advised or
 * present network settings, but no advice for any link in `network`. */
static lh_status check_network(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lhi_node *with = lhi_node_find(doc->root, "network_iteration_s");
    if (!with)
        with = lhi_node_find(doc->root, "network_now_iteration_s");
    if (!with || p->n_network)
        return LH_OK;
    return lhi_doc_fail(doc, with, err, LH_EINPUT,
                        "requires a link in 'network'");
}

/* Checks that `has`, a Pareto-front entry's index in the plan file under `key`,
 * equals the computed index `want`. Accepts an absent key: older files have
 * none. */
static lh_status check_entry(const lhi_doc *doc, const char *key, uint32_t has,
                             uint32_t want, lh_error *err)
{
    const lhi_node *node = lhi_node_find(doc->root, key);
    if (!node || has == want)
        return LH_OK;
    return lhi_doc_fail(doc, node, err, LH_EINPUT,
                        "is %u, but the front's is %u", has, want);
}

/* Checks that no plan candidate on a plan file's Pareto front dominates
 * another, and that the front's knee is the computed one. */
static lh_status check_front(const lhi_doc *doc, const lh_plan *p,
                             lh_error *err)
{
    const lhi_node *list = lhi_node_find(doc->root, "front"), *whole;
    for (uint32_t i = 0; i < p->n_pareto; i++)
        for (uint32_t k = 0; k < p->n_pareto; k++) {
            lhi_pareto_point a = lhi_pareto_point_of(&p->pareto_front[i]),
                             b = lhi_pareto_point_of(&p->pareto_front[k]);
            if (i != k && lhi_pareto_point_covers(&a, &b))
                return lhi_doc_fail(doc, list, err, LH_EINPUT,
                                    "entry %u is at least as good as entry %u "
                                    "in time, memory and cost",
                                    i, k);
        }
    uint32_t knee, near;
    lhi_pareto_front_find_knee(p, &knee, &near);
    LHI_TRY(check_entry(doc, "front_knee", p->pareto_knee, knee, err));
    LHI_TRY(check_entry(doc, "front_near", p->pareto_near, near, err));
    return list ? lhi_node_require(doc, doc->root, "front_whole", &whole, err)
                : LH_OK;
}

/* Checks that the plan's layout, the file's `map`, has the tensor degrees that
 * the job fixes in each datacenter: one for all, or different ones in its
 * sites. */
static lh_status check_site_tensors(const lhi_doc *doc, const lh_plan *p,
                                    const lhi_node *map, lh_error *err)
{
    const lh_layout *has = &p->best.layout, *want = &p->job->layout;
    const lh_layout *differs = want->site_tensors  ? want
                               : has->site_tensors ? has
                                                   : NULL;
    const lh_site_group *group = differs ? &differs->sites->groups[0] : NULL;
    const lhi_node *sites = lhi_node_find(map, "sites");
    for (uint32_t i = 0; group && i < group->n_parts; i++) {
        const uint32_t dc = group->parts[i].datacenter;
        const uint32_t degree = lh_layout_site_tensor(want, dc); /* 0: open */
        if (degree && lh_layout_site_tensor(has, dc) != degree)
            return lhi_doc_fail(doc, sites ? sites : map, err, LH_EINPUT,
                                "the job's layout has tensor %" PRIu32
                                " in datacenter %s",
                                degree, p->job->datacenters[dc].name);
    }
    return LH_OK;
}

/* Checks that the plan's layout has the degrees that the job fixes. */
static lh_status check_degrees(const lhi_doc *doc, const lh_plan *p,
                               lh_error *err)
{
    const lh_layout *has = &p->best.layout, *want = &p->job->layout;
    const struct {
        const char *key;
        uint32_t has, want; /* 0: open */
    } rows[] = {
        {"tensor", has->tensor, want->tensor},
        {"context", has->context, want->context},
        {"expert", has->expert, want->expert},
        {"pipeline", has->pipeline, want->pipeline},
        {"data", has->data, want->data},
        {"micro_batch", has->micro_batch, want->micro_batch},
        {"chunks_per_device", has->chunks_per_device, want->chunks_per_device},
    };
    const lhi_node *map = lhi_node_find(doc->root, "layout");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].want && rows[i].has != rows[i].want)
            return lhi_doc_fail(doc, lhi_node_find(map, rows[i].key), err,
                                LH_EINPUT,
                                "is %" PRIu32 ", but the job's layout.%s is "
                                "%" PRIu32,
                                rows[i].has, rows[i].key, rows[i].want);
    return check_site_tensors(doc, p, map, err);
}

/* Checks that the plan's replica groups have the microbatch sizes that the job
 * fixes for each. */
static lh_status check_group_sizes(const lhi_doc *doc, const lh_plan *p,
                                   lh_error *err)
{
    const lh_layout *has = &p->best.layout, *want = &p->job->layout;
    const lhi_node *layout = lhi_node_find(doc->root, "layout");
    const lhi_node *list = lhi_node_find(layout, "sites");
    const lhi_node *map = list ? list->first : NULL;
    for (uint32_t g = 0; want->group_micro_batches && g < want->sites->n_groups;
         g++, map = map->next)
        if (!map || lhi_layout_group_micro_batch(has, g) !=
                        want->group_micro_batches[g])
            return lhi_doc_fail(doc, map ? map : layout, err, LH_EINPUT,
                                "the job's layout.sites has micro_batch "
                                "%" PRIu32 " in group %" PRIu32,
                                want->group_micro_batches[g], g);
    return LH_OK;
}

/* Checks that the plan has the ZeRO stage and recomputation that the job fixes;
 * elastic plans may mix them. */
static lh_status check_training(const lhi_doc *doc, const lh_plan *p,
                                lh_error *err)
{
    const lh_training *t = &p->job->training;
    if (p->best.elastic)
        return LH_OK;
    if (t->zero_given && p->best.zero != t->zero)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "zero"), err,
                            LH_EINPUT,
                            "is %" PRIu32 ", but the job's training.zero is "
                            "%" PRIu32,
                            p->best.zero, t->zero);
    if (t->recompute_given && p->best.recompute != t->recompute)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "recompute"), err,
                            LH_EINPUT,
                            "is '%s', but the job's training.recompute is '%s'",
                            lh_recompute_name(p->best.recompute),
                            lh_recompute_name(t->recompute));
    return LH_OK;
}

/* Checks whether a text has the hash in the plan's input_hash. Frees the text.
 */
static bool has_named_hash(const lh_plan *p, char *text, size_t len)
{
    char hash[LHI_HASH_TEXT];
    lhi_plan_hash(text, len, hash);
    lh_text_free(text);
    return strcmp(hash, p->input_hash) == 0;
}

/* Checks that input_hash is the hash of the plan's job: as written in the file,
 * or as this version writes it. So plans of other versions and programs can be
 * read. */
static lh_status check_job(const lhi_doc *doc, const lh_plan *p, lh_error *err)
{
    const lhi_node *job = lhi_node_find(doc->root, "job");
    char *text;
    size_t len;
    LHI_TRY(lhi_json_format(lhi_json_from_node(doc, job), &text, &len, err));
    if (has_named_hash(p, text, len))
        return LH_OK;
    LHI_TRY(lh_job_format(p->job, &text, &len, err));
    if (has_named_hash(p, text, len))
        return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(doc->root, "input_hash"), err,
                        LH_EINPUT,
                        "does not match the plan's job, which was changed "
                        "after planning; plan the changed job again");
}

lh_status lhi_plan_check(const lhi_read_context *r, const lhi_node *map,
                         void *it, lh_error *err)
{
    const lh_plan *p = it;
    LHI_TRY(check_network(r->doc, p, err));
    LHI_TRY(check_front(r->doc, p, err));
    LHI_TRY(check_sizes(r->doc, p, err));
    LHI_TRY(lhi_memory_check(r->doc, p, err));
    LHI_TRY(lhi_idle_check(r->doc, p, err));
    if (p->best.status != LH_CHOICE_OK)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "status"), err,
                            LH_EINPUT, "must be 'ok' in a plan");
    LHI_TRY(check_counts(r->doc, p, err));
    LHI_TRY(check_robust(r->doc, p, err));
    LHI_TRY(check_datacenters(r->doc, p, r->mem, err));
    LHI_TRY(check_degrees(r->doc, p, err));
    LHI_TRY(check_group_sizes(r->doc, p, err));
    LHI_TRY(check_training(r->doc, p, err));
    LHI_TRY(check_job(r->doc, p, err));
    return lhi_check_choice_pipeline(r->doc, p, err);
}
