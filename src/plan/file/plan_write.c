/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as JSON: docs/formats/plan.md. */
#include "plan/plan_own.h"

#include "base/text.h"
#include "pipe/file/pipe_file.h"
#include "spec/spec.h"

#include <string.h>

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

static json_t *integer(int64_t value)
{
    return json_integer(value);
}

static json_t *layout_to_json(const lh_job *job, const lh_choice *c)
{
    const lh_layout *l = &c->layout;
    json_t *map = json_object();
    bool ok =
        map && set(map, "tensor", integer(l->tensor)) &&
        set(map, "context", integer(l->context)) &&
        set(map, "expert", integer(l->expert)) &&
        set(map, "pipeline", integer(l->pipeline)) &&
        set(map, "data", integer(l->data)) &&
        set(map, "micro_batch", integer(l->micro_batch)) &&
        set(map, "chunks_per_device", integer(l->chunks_per_device)) &&
        set(map, "outermost", json_string(lh_outermost_name(l->outermost)));
    if (ok && l->sharding != LH_SHARDING_ANY)
        ok = set(map, "sharding", json_string(lh_sharding_name(l->sharding)));
    if (ok && l->sites)
        ok = set(map, "sites", lhi_sites_to_json(job, l->sites));
    if (ok && l->schedule)
        ok = set(map, "schedule", json_string(l->schedule));
    if (!ok) {
        json_decref(map);
        return NULL;
    }
    return map;
}

static json_t *groups_to_json(const uint32_t *groups, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, integer(groups[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *elastic_to_json(const lh_plan_elastic *e)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < e->n_recomputed; i++)
        if (json_array_append_new(list,
                                  json_pack("{s:s, s:f, s:f}", "operation",
                                            e->recomputed[i].operation, "first",
                                            e->recomputed[i].first, "last",
                                            e->recomputed[i].last)) != 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:o, s:o, s:f, s:f, s:{s:I, s:I, s:I}, s:o}", "enqueue",
                     groups_to_json(e->enqueue, e->n_enqueue), "dequeue",
                     groups_to_json(e->dequeue, e->n_dequeue), "gradients",
                     e->gradients, "parameters", e->parameters, "buckets",
                     "scatter", (json_int_t)e->scatter_buckets, "forward",
                     (json_int_t)e->forward_buckets, "backward",
                     (json_int_t)e->backward_buckets, "recomputed", list);
}

static json_t *layers_to_json(const lh_choice *c)
{
    uint32_t n = c->layout.pipeline * c->layout.chunks_per_device;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, integer(c->chunk_layers[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Fills in what every choice has; the best one stands at the top level. */
static bool set_choice(json_t *map, const lh_job *job, const lh_choice *c)
{
    return set(map, "status", json_string(lh_choice_status_name(c->status))) &&
           set(map, "iteration_s",
               c->iteration_ns < 0
                   ? json_null()
                   : json_real((double)c->iteration_ns / 1e9)) &&
           set(map, "layout", layout_to_json(job, c)) &&
           set(map, "placement",
               json_string(lh_placement_name(c->placement))) &&
           set(map, "recompute",
               json_string(lh_recompute_name(c->recompute))) &&
           set(map, "zero", integer(c->zero)) &&
           set(map, "microbatches", integer(c->microbatches)) &&
           set(map, "iteration_ns", integer(c->iteration_ns)) &&
           set(map, "makespan_ns", integer(c->makespan_ns)) &&
           set(map, "optimizer_ns", integer(c->optimizer_ns)) &&
           set(map, "overhead_ns", integer(c->overhead_ns)) &&
           set(map, "lower_bound_ns", integer(c->lower_bound_ns)) &&
           set(map, "bubble_ratio", json_real(c->bubble_ratio)) &&
           set(map, "peak_memory_bytes", integer(c->peak_memory_bytes)) &&
           set(map, "memory_limit_bytes", integer(c->memory_limit_bytes)) &&
           set(map, "tokens_per_s", json_real(c->tokens_per_s)) &&
           set(map, "mfu", json_real(c->mfu)) &&
           set(map, "why", json_string(c->why)) &&
           (!c->elastic || set(map, "elastic", elastic_to_json(c->elastic))) &&
           (!c->cost || set(map, "cost", lhi_cost_to_json(c->cost))) &&
           (!c->jitter || set(map, "jitter", lhi_jitter_to_json(c->jitter))) &&
           (!c->chunk_layers || set(map, "chunk_layers", layers_to_json(c)));
}

json_t *lhi_choice_to_json(const lh_job *job, const lh_choice *choice)
{
    json_t *map = json_object();
    if (map && set_choice(map, job, choice))
        return map;
    json_decref(map);
    return NULL;
}

static json_t *choices_to_json(const lh_job *job, const lh_choice *choices,
                               uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        json_t *map = lhi_choice_to_json(job, &choices[i]);
        if (json_array_append_new(list, map) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The CSV's rows as a list of strings. */
static json_t *rows_to_json(const char *text)
{
    json_t *list = json_array();
    while (list && *text) {
        size_t len = strcspn(text, "\n");
        if (json_array_append_new(list, json_stringn(text, len)) != 0) {
            json_decref(list);
            return NULL;
        }
        text += len + (text[len] == '\n');
    }
    return list;
}

static lh_status schedule_to_json(const lh_plan *plan, json_t **out,
                                  lh_error *err)
{
    char *rows, *links;
    LHI_TRY(lh_schedule_format(plan->schedule, &rows, NULL, err));
    lh_status status =
        lh_schedule_format_links(plan->schedule, &links, NULL, err);
    if (status != LH_OK) {
        lh_text_free(rows);
        return status;
    }
    json_t *map = json_object();
    bool ok = map &&
              set(map, "method", json_string(plan->best.layout.schedule)) &&
              set(map, "status",
                  json_string(lhi_choice_gap(&plan->best) > 0 ? "feasible"
                                                              : "optimal")) &&
              set(map, "gap", json_real(lhi_choice_gap(&plan->best))) &&
              set(map, "rows", rows_to_json(rows)) &&
              (!links || set(map, "link_orders", rows_to_json(links)));
    lh_text_free(rows);
    lh_text_free(links);
    if (!ok) {
        json_decref(map);
        return lhi_fail_nomem(err);
    }
    *out = map;
    return LH_OK;
}

static json_t *pruned_to_json(const lh_plan *plan)
{
    json_t *map = json_object();
    for (uint32_t i = 0; map && i < plan->n_pruned; i++)
        if (!set(map, plan->pruned[i].bound,
                 integer((int64_t)plan->pruned[i].n))) {
            json_decref(map);
            return NULL;
        }
    return map;
}

static json_t *search_to_json(const lh_plan *plan)
{
    json_t *map = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "layouts",
                            (json_int_t)plan->n_layouts, "memory",
                            (json_int_t)plan->n_memory, "bounded",
                            (json_int_t)plan->n_bounded, "simulated",
                            (json_int_t)plan->n_simulated, "unsupported",
                            (json_int_t)plan->n_unsupported, "dropped",
                            (json_int_t)plan->n_dropped);
    if (!map || plan->search_bound_ns <= 0)
        return map;
    bool ok = set(map, "lower_bound_s",
                  json_real((double)plan->search_bound_ns / 1e9)) &&
              set(map, "lower_bound_ns", integer(plan->search_bound_ns)) &&
              set(map, "gap", json_real(lh_plan_gap(plan))) &&
              set(map, "left", integer(plan->n_left)) &&
              set(map, "gpus_used", integer(lh_plan_gpus(plan))) &&
              set(map, "pruned", pruned_to_json(plan));
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

/* Takes over `schedule` and `pipeline`. */
static bool fill(const lh_plan *plan, json_t *schedule, json_t *pipeline,
                 json_t *map)
{
    bool ok = set(map, "longhaul", json_string("plan/1")) &&
              set(map, "name", json_string(plan->name)) &&
              set(map, "version", json_string(plan->version)) &&
              set(map, "input_hash", json_string(plan->input_hash)) &&
              set(map, "cost_source", json_string(plan->cost_source)) &&
              set_choice(map, plan->job, &plan->best);
    ok = set(map, "schedule", schedule) && ok;
    ok = set(map, "pipeline", pipeline) && ok;
    return ok && set(map, "search", search_to_json(plan)) &&
           lhi_account_to_json(plan, map) &&
           (!plan->n_curves || set(map, "curves", lhi_curves_to_json(plan))) &&
           (!plan->n_network ||
            set(map, "network", lhi_network_to_json(plan))) &&
           (plan->network_ns < 0 ||
            set(map, "network_iteration_s",
                json_real((double)plan->network_ns / 1e9))) &&
           (!plan->robust ||
            set(map, "robust", lhi_robust_to_json(plan->robust))) &&
           set(map, "methods",
               choices_to_json(plan->job, plan->methods, plan->n_methods)) &&
           set(map, "alternatives",
               choices_to_json(plan->job, plan->alternatives,
                               plan->n_alternatives)) &&
           lhi_front_to_json(plan, map) && lhi_links_to_json(plan, map) &&
           set(map, "job", lhi_job_to_json(plan->job));
}

static int add_to_text(const char *bytes, size_t len, void *text)
{
    lhi_text_add(text, bytes, len);
    return ((lhi_text *)text)->failed ? -1 : 0;
}

lh_status lh_plan_format(const lh_plan *plan, char **text, size_t *len,
                         lh_error *err)
{
    json_t *schedule = NULL, *pipeline = NULL;
    LHI_TRY(schedule_to_json(plan, &schedule, err));
    lh_status status = lhi_pipeline_to_json(plan->pipeline, &pipeline, err);
    if (status != LH_OK) {
        json_decref(schedule);
        return status;
    }
    json_t *map = json_object();
    if (!map) {
        json_decref(schedule);
        json_decref(pipeline);
        return lhi_fail_nomem(err);
    }
    lhi_text out = {0};
    size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(15);
    if (!fill(plan, schedule, pipeline, map) ||
        json_dump_callback(map, add_to_text, &out, flags) != 0)
        out.failed = true;
    json_decref(map);
    lhi_text_puts(&out, "\n");
    return lhi_text_take(&out, text, len, err);
}
