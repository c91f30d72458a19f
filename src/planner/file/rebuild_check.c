/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a plan's pipeline matches its choice by building it again. If the
 * plan's values do not reproduce it, this looks for other values that do, to
 * report a likely edit. */
#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "planner/elastic/pipeline.h"
#include "planner/file/plan_file.h"
#include "planner/layout/choice.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Checks that the plan's peak memory and memory limit match its pipeline and
 * schedule. The limit may also be that of `built`, the pipeline rebuilt from
 * the job. */
static lh_status check_peak(const lhi_doc *doc, const lh_plan *p,
                            const lh_pipeline *built, lh_error *err)
{
    const lh_choice *has = &p->best;
    lh_choice want = *has;
    lhi_choice_memory(&want, p->pipeline, p->schedule);
    if (built && (has->peak_memory_bytes != want.peak_memory_bytes ||
                  has->memory_limit_bytes != want.memory_limit_bytes))
        lhi_choice_memory_within(&want, p->pipeline, p->schedule, built);
    if (has->memory_limit_bytes != want.memory_limit_bytes)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "memory_limit_bytes"),
                            err, LH_EINPUT,
                            "is %" PRId64 ", but the limit of the device with "
                            "the least free memory is %" PRId64,
                            has->memory_limit_bytes, want.memory_limit_bytes);
    if (has->peak_memory_bytes != want.peak_memory_bytes)
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "peak_memory_bytes"),
                            err, LH_EINPUT,
                            "is %" PRId64 ", but the device with the least "
                            "free memory needs %" PRId64 " at most",
                            has->peak_memory_bytes, want.peak_memory_bytes);
    return LH_OK;
}

/* Largest size tried for a replica group, in sequences. Searched plans have at
 * most 8; every try builds a pipeline. */
enum { MOST_SIZE = 64 };

/* --- similarity of two pipelines ------------------------------------------ */

/* How well two pipelines match. */
typedef enum similarity {
    DIFFERENT,
    SAME_MEMORY,
    SAME, /* times as well */
} similarity;

/* Checks whether two pipelines have equal data-parallel operations: chunks,
 * buckets and transfer times. */
static bool have_same_ops(const lh_pipeline *a, const lh_pipeline *b)
{
    if (a->n_dp_ops != b->n_dp_ops)
        return false;
    for (uint32_t i = 0; i < a->n_dp_ops; i++) {
        const lh_dp_op *x = &a->dp_ops[i], *y = &b->dp_ops[i];
        if (x->chunk != y->chunk || x->bucket != y->bucket ||
            x->n_buckets != y->n_buckets || x->transfer_ns != y->transfer_ns)
            return false;
    }
    return true;
}

/* Compares the memory and times of two pipelines: SAME, SAME_MEMORY (only
 * memory is equal) or DIFFERENT. D and W (backward for inputs and for weights)
 * count as a sum, because joined passes have no separate values. */
static similarity compare_pipelines(const lh_pipeline *a, const lh_pipeline *b)
{
    if (a->n_chunks != b->n_chunks)
        return DIFFERENT;
    bool times = have_same_ops(a, b);
    for (uint32_t c = 0; c < a->n_chunks; c++) {
        const lh_chunk *x = &a->chunks[c], *y = &b->chunks[c];
        if (x->mem_static != y->mem_static || x->mem_f != y->mem_f ||
            x->mem_d + x->mem_w != y->mem_d + y->mem_w)
            return DIFFERENT;
        times = times && x->f_ns == y->f_ns &&
                x->d_ns + x->w_ns == y->d_ns + y->w_ns &&
                x->all_gather_ns == y->all_gather_ns &&
                x->reduce_scatter_ns == y->reduce_scatter_ns;
    }
    return times ? SAME : SAME_MEMORY;
}

/* Searches for a configuration that matches better than `like`. */
typedef struct edit_search {
    const lhi_doc *doc;
    const lh_plan *plan;
    lhi_config has, best;
    similarity like; /* match of the best configuration */
    lhi_arena *mem;
} edit_search;

/* Builds a configuration's pipeline for the plan's job. */
static lh_status build_pipeline(const lh_plan *p, const lhi_config *config,
                                lhi_built_layout *out, lh_error *err)
{
    return config->elastic ? lhi_elastic_rebuild(p->job, config, out, err)
                           : lhi_layout_build(p->job, config, out, err);
}

/* Builds the configuration's pipeline; stores the configuration as the best
 * match if its pipeline is more similar to the plan's than all before. Ignores
 * configurations that cannot be built. */
static lh_status try_config(edit_search *f, const lhi_config *config,
                            lh_error *err)
{
    lhi_built_layout built;
    lh_error why = {0};
    lh_status status = build_pipeline(f->plan, config, &built, &why);
    if (status == LH_OK) {
        similarity now = compare_pipelines(f->plan->pipeline, built.pipeline);
        lh_pipeline_free(built.pipeline);
        if (now > f->like) {
            f->like = now;
            f->best = *config;
        }
        return LH_OK;
    }
    if (lhi_layout_is_infeasible(status))
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

/* --- possible original values --------------------------------------------- */

/* Builds the pipelines of the plan's layout with every other recomputation,
 * ZeRO stage and sharding that the job supports, and keeps the configuration
 * that best matches the plan's pipeline. */
static lh_status try_states(edit_search *f, lh_error *err)
{
    const lh_training *t = &f->plan->job->training;
    bool given = f->has.layout.sharding != LH_SHARDING_ANY;
    uint32_t last = given ? LH_SHARDING_HYBRID_LEADERS : LH_SHARDING_ANY;
    /* elastic plans have shares instead */
    uint32_t most_zero = f->has.elastic ? 0 : 3;
    for (uint32_t r = LH_RECOMPUTE_NONE; r <= LH_RECOMPUTE_MODULES; r++)
        for (uint32_t zero = 0; zero <= most_zero; zero++)
            for (uint32_t k = given; k <= last; k++) {
                lhi_config config = f->has;
                if (r == LH_RECOMPUTE_MODULES &&
                    t->recompute != LH_RECOMPUTE_MODULES)
                    continue;
                config.recompute = (lh_recompute)r;
                config.zero = zero;
                config.layout.sharding = (lh_sharding)k;
                LHI_TRY(try_config(f, &config, err));
            }
    return LH_OK;
}

/* Checks whether a value of a degree is possible in the job: the job leaves the
 * degree open (`asked` is 0) or fixes it to `value`. */
static bool is_allowed(uint32_t asked, uint32_t value)
{
    return !asked || asked == value;
}

/* Builds the pipelines of the plan's layout with other tensor, context and data
 * degrees and microbatch sizes (same GPU and microbatch counts), and keeps the
 * configuration that best matches the plan's pipeline. */
static lh_status try_degrees(edit_search *f, lh_error *err)
{
    const lh_layout *l = &f->has.layout, *asked = &f->plan->job->layout;
    const uint64_t group = (uint64_t)l->tensor * l->context * l->data;
    const uint64_t together = (uint64_t)l->data * l->micro_batch;
    if (l->group_micro_batches || l->site_tensors)
        return LH_OK; /* see try_group_sizes() */
    for (uint32_t data = 1; data <= together && data <= group; data++) {
        if (together % data != 0 || group % data != 0)
            continue;
        uint64_t rest = group / data;
        for (uint32_t tensor = 1; tensor <= rest; tensor++) {
            lhi_config config = f->has;
            if (rest % tensor != 0)
                continue;
            config.layout.data = data;
            config.layout.micro_batch = (uint32_t)(together / data);
            config.layout.tensor = tensor;
            config.layout.context = (uint32_t)(rest / tensor);
            if (is_allowed(asked->data, config.layout.data) &&
                is_allowed(asked->micro_batch, config.layout.micro_batch) &&
                is_allowed(asked->tensor, config.layout.tensor) &&
                is_allowed(asked->context, config.layout.context))
                LHI_TRY(try_config(f, &config, err));
        }
    }
    return LH_OK;
}

/* Builds the pipelines of the plan's layout with other microbatch sizes of
 * replica groups `g` and `h` (same total of sequences), and keeps the
 * configuration that best matches the plan's pipeline. */
static lh_status try_two_sizes(edit_search *f, uint32_t g, uint32_t h,
                               lh_error *err)
{
    const lh_layout *l = &f->has.layout;
    const lh_sites *sites = l->sites;
    const uint64_t r = sites->groups[g].replicas, q = sites->groups[h].replicas;
    const uint64_t together = r * lhi_layout_group_micro_batch(l, g) +
                              q * lhi_layout_group_micro_batch(l, h);
    for (uint64_t size = 1; size <= MOST_SIZE && size * r < together; size++) {
        lhi_config config = f->has;
        bool unequal = false;
        if ((together - size * r) % q != 0)
            continue;
        uint32_t *sizes = LHI_NEW(f->mem, uint32_t, sites->n_groups);
        if (!sizes)
            return lhi_fail_nomem(err);
        config.layout.micro_batch = 0;
        for (uint32_t i = 0; i < sites->n_groups; i++) {
            sizes[i] = i == g   ? (uint32_t)size
                       : i == h ? (uint32_t)((together - size * r) / q)
                                : lhi_layout_group_micro_batch(l, i);
            unequal = unequal || sizes[i] != sizes[0];
            if (sizes[i] > config.layout.micro_batch)
                config.layout.micro_batch = sizes[i];
        }
        config.layout.group_micro_batches = unequal ? sizes : NULL;
        if (is_allowed(f->plan->job->layout.micro_batch,
                       config.layout.micro_batch))
            LHI_TRY(try_config(f, &config, err));
    }
    return LH_OK;
}

/* Builds the pipelines of the plan's layout with other microbatch sizes of
 * every two replica groups in different datacenters, and keeps the
 * configuration that best matches the plan's pipeline. */
static lh_status try_group_sizes(edit_search *f, lh_error *err)
{
    const lh_sites *sites = f->has.layout.sites;
    if (!sites || f->has.elastic ||
        f->has.layout.outermost != LH_OUTERMOST_DATA)
        return LH_OK;
    for (uint32_t g = 0; g < sites->n_groups; g++)
        for (uint32_t h = g + 1; h < sites->n_groups; h++)
            if (sites->groups[g].parts[0].datacenter !=
                sites->groups[h].parts[0].datacenter)
                LHI_TRY(try_two_sizes(f, g, h, err));
    return LH_OK;
}

/* Builds the pipelines of the plan's layout with every other expert degree that
 * the job allows, and keeps the configuration that best matches the plan's
 * pipeline. */
static lh_status try_experts(edit_search *f, lh_error *err)
{
    uint32_t experts = f->plan->job->model->experts;
    for (uint32_t n = 1; n <= experts; n++) {
        lhi_config config = f->has;
        config.layout.expert = n;
        if (experts % n == 0 && is_allowed(f->plan->job->layout.expert, n))
            LHI_TRY(try_config(f, &config, err));
    }
    return LH_OK;
}

/* Guesses each chunk's layers from its forward time in the plan's pipeline,
 * relative to the rebuilt one. A layer counts with the average time in the
 * middle chunk. Returns false if the guess equals the plan's layers or does not
 * add up. */
static bool guess_layers(const edit_search *f, const lh_pipeline *built,
                         uint32_t *layers)
{
    uint32_t first, n, all = f->plan->job->model->layers, sum = 0;
    uint32_t middle = built->n_chunks / 2;
    bool other = false;
    lhi_config_layers(all, &f->has, middle, &first, &n);
    double one = n ? (double)built->chunks[middle].f_ns / n : 0;
    for (uint32_t c = 0; c < built->n_chunks && one > 0; c++) {
        const double more = (double)f->plan->pipeline->chunks[c].f_ns -
                            (double)built->chunks[c].f_ns;
        lhi_config_layers(all, &f->has, c, &first, &n);
        double now = n + round(more / one);
        if (!(now >= 0 && now <= all))
            return false;
        layers[c] = (uint32_t)now;
        sum += layers[c];
        other = other || layers[c] != n;
    }
    return other && sum == all;
}

/* Builds the pipeline of the plan's layout with the layers that guess_layers()
 * derives from the forward times, and keeps the configuration if it matches the
 * plan's pipeline best. */
static lh_status try_layers(edit_search *f, lh_error *err)
{
    uint32_t *layers =
        LHI_NEW(f->mem, uint32_t, lh_pipeline_n_chunks(f->plan->pipeline));
    lhi_config config = f->has;
    lhi_built_layout built;
    lh_error why = {0};
    if (!layers)
        return lhi_fail_nomem(err);
    lh_status status = build_pipeline(f->plan, &config, &built, &why);
    if (lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    bool other = built.pipeline->n_chunks == f->plan->pipeline->n_chunks &&
                 guess_layers(f, built.pipeline, layers);
    lh_pipeline_free(built.pipeline);
    config.layers = layers;
    return other ? try_config(f, &config, err) : LH_OK;
}

/* --- error messages ------------------------------------------------------- */

/* Fails with LH_EINPUT at node `at`: its value `stored` does not match the
 * plan's pipeline, but value `fit` does. `of`: name of the job key that sets
 * the value. */
static lh_status report_word(const edit_search *f, const lhi_node *at,
                             const char *stored, const char *fit,
                             const char *of, lh_error *err)
{
    return lhi_doc_fail(f->doc, at ? at : f->doc->root, err, LH_EINPUT,
                        "is '%s', but the plan's pipeline was built with '%s'; "
                        "to change it, set %s in the job and plan again",
                        stored, fit, of);
}

/* Fails like report_word(), with the numbers `stored` in the file and `fit`,
 * which matches the plan's pipeline, as values. */
static lh_status report_number(const edit_search *f, const lhi_node *at,
                               uint32_t stored, uint32_t fit, const char *of,
                               lh_error *err)
{
    char is[16], was[16];
    snprintf(is, sizeof is, "%" PRIu32, stored);
    snprintf(was, sizeof was, "%" PRIu32, fit);
    return report_word(f, at, is, was, of, err);
}

/* Reports whichever of recomputation, sharding and ZeRO stage differs between
 * the plan and the configuration that matches its pipeline. */
static lh_status report_state(const edit_search *f, lh_error *err)
{
    const lhi_config *has = &f->has, *fits = &f->best;
    const lhi_node *root = f->doc->root;
    if (has->recompute != fits->recompute)
        return report_word(f, lhi_node_find(root, "recompute"),
                           lh_recompute_name(has->recompute),
                           lh_recompute_name(fits->recompute),
                           "training.recompute", err);
    if (has->layout.sharding != fits->layout.sharding)
        return report_word(
            f, lhi_node_find(lhi_node_find(root, "layout"), "sharding"),
            lh_sharding_name(has->layout.sharding),
            lh_sharding_name(fits->layout.sharding), "layout.sharding", err);
    return report_number(f, lhi_node_find(root, "zero"), has->zero, fits->zero,
                         "training.zero", err);
}

/* Fails with LH_EINPUT at the first replica group whose microbatch size differs
 * between the plan and the configuration that matches its pipeline. *refused:
 * there is one; else returns LH_OK. */
static lh_status report_group_size(const edit_search *f, bool *refused,
                                   lh_error *err)
{
    const lh_layout *has = &f->has.layout, *fits = &f->best.layout;
    const lhi_node *list =
        lhi_node_find(lhi_node_find(f->doc->root, "layout"), "sites");
    const lhi_node *map = list ? list->first : NULL;
    *refused = false;
    if (!has->group_micro_batches && !fits->group_micro_batches)
        return LH_OK;
    for (uint32_t g = 0; map; g++, map = map->next) {
        const uint32_t size = lhi_layout_group_micro_batch(has, g);
        const uint32_t fit = lhi_layout_group_micro_batch(fits, g);
        const lhi_node *at = lhi_node_find(map, "micro_batch");
        if (size == fit)
            continue;
        *refused = true;
        return report_number(f, at ? at : map, size, fit,
                             "micro_batch in layout.sites", err);
    }
    return LH_OK;
}

/* Fails with LH_EINPUT at the first degree that differs between the plan and
 * the configuration that matches its pipeline. *refused: there is one; else
 * returns LH_OK. */
static lh_status report_degree(const edit_search *f, bool *refused,
                               lh_error *err)
{
    const lh_layout *has = &f->has.layout, *fits = &f->best.layout;
    const struct {
        const char *key, *of;
        uint32_t has, fits;
    } rows[] = {
        {"tensor", "layout.tensor", has->tensor, fits->tensor},
        {"context", "layout.context", has->context, fits->context},
        {"expert", "layout.expert", has->expert, fits->expert},
        {"data", "layout.data", has->data, fits->data},
        {"micro_batch", "layout.micro_batch", has->micro_batch,
         fits->micro_batch},
    };
    const lhi_node *map = lhi_node_find(f->doc->root, "layout");
    *refused = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].has == rows[i].fits)
            continue;
        *refused = true;
        return report_number(f, lhi_node_find(map, rows[i].key), rows[i].has,
                             rows[i].fits, rows[i].of, err);
    }
    return LH_OK;
}

/* Reports the first chunk whose layers differ between the plan and the
 * configuration that matches its pipeline. */
static lh_status report_layers(const edit_search *f, lh_error *err)
{
    uint32_t first, has = 0, fits = 0, c = 0;
    uint32_t all = f->plan->job->model->layers;
    const lhi_node *at = lhi_node_find(f->doc->root, "chunk_layers");
    for (; c < f->plan->pipeline->n_chunks && has == fits; c++) {
        lhi_config_layers(all, &f->has, c, &first, &has);
        lhi_config_layers(all, &f->best, c, &first, &fits);
    }
    return lhi_doc_fail(f->doc, at ? at : lhi_node_find(f->doc->root, "layout"),
                        err, LH_EINPUT,
                        "chunk %" PRIu32 " has %" PRIu32 " layers%s, but "
                        "%" PRIu32 " in the plan's pipeline; to change them, "
                        "set layout.chunk_layers in the job and "
                        "plan again",
                        c - 1, has, at ? "" : " by default", fits);
}

/* Reports the first value that differs between the plan and the configuration
 * that matches its pipeline. */
static lh_status report_edit(const edit_search *f, lh_error *err)
{
    bool refused;
    LHI_TRY(report_group_size(f, &refused, err));
    LHI_TRY(report_degree(f, &refused, err));
    if (f->has.layers != f->best.layers)
        return report_layers(f, err);
    return report_state(f, err);
}

/* Searches for degrees, microbatch sizes of replica groups, layers,
 * recomputation, ZeRO stage or sharding that match the plan's pipeline better
 * than the plan's own: evidence that the file was edited, which is reported. If
 * there are none, as for plans of versions with other costs, accepts the file.
 */
static lh_status find_edit(edit_search *f, lh_error *err)
{
    similarity before = f->like;
    LHI_TRY(try_states(f, err));
    if (f->like == before)
        LHI_TRY(try_degrees(f, err));
    if (f->like == before)
        LHI_TRY(try_group_sizes(f, err));
    if (f->like == before)
        LHI_TRY(try_experts(f, err));
    if (f->like == before)
        LHI_TRY(try_layers(f, err));
    return f->like == before ? LH_OK : report_edit(f, err);
}

/* Rejects an elastic plan whose pipeline differs from the rebuilt one. If its
 * forward times differ, another version computed the costs, and the plan is
 * accepted. */
static lh_status check_elastic(const lhi_doc *doc, const lh_plan *p,
                               const lh_pipeline *built, lh_error *err)
{
    bool recomputed = false;
    for (uint32_t c = 0; c < built->n_chunks; c++) {
        const lh_chunk *x = &p->pipeline->chunks[c], *y = &built->chunks[c];
        if (x->f_ns != y->f_ns)
            return LH_OK;
        recomputed = recomputed || x->mem_f != y->mem_f ||
                     x->d_ns + x->w_ns != y->d_ns + y->w_ns;
    }
    const char *key = recomputed ? "recomputed" : "gradients";
    return lhi_doc_fail(doc,
                        lhi_node_find(lhi_node_find(doc->root, "elastic"), key),
                        err, LH_EINPUT,
                        "is%s not the value that the plan's pipeline was built "
                        "with: the file was edited, or written by another "
                        "version; plan again",
                        recomputed ? "" : ", or 'parameters' is,");
}

/* Checks that `cost_source` names the source of the rebuilt pipeline's times,
 * `want`. */
static lh_status check_source(const lhi_doc *doc, const lh_plan *p,
                              const char *want, lh_error *err)
{
    if (strcmp(p->cost_source, want) == 0)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(doc->root, "cost_source"), err,
                        LH_EINPUT,
                        "is '%.60s', but the times of the plan's pipeline are "
                        "from '%s'",
                        p->cost_source, want);
}

/* Checks that the rebuilt pipeline has the memory and times of the plan's
 * pipeline. If not, searches for the edit in the file that explains the
 * difference. */
static lh_status check_similarity(const lhi_doc *doc, const lh_plan *p,
                                  const lhi_config *config,
                                  const lhi_built_layout *built, lh_error *err)
{
    edit_search f = {.doc = doc, .plan = p, .has = *config, .best = *config};
    if (built->pipeline)
        f.like = compare_pipelines(p->pipeline, built->pipeline);
    if (f.like == SAME)
        return check_source(doc, p, lh_cost_source_name(built->source), err);
    f.mem = lhi_arena_make(0);
    lh_status status = f.mem ? find_edit(&f, err) : lhi_fail_nomem(err);
    lhi_arena_free(f.mem);
    LHI_TRY(status);
    return config->elastic && built->pipeline
               ? check_elastic(doc, p, built->pipeline, err)
               : LH_OK;
}

/* Fails with LH_EINPUT if the pipeline could not be rebuilt (result `status`,
 * `why`) because the plan file recomputes operations that the model does not
 * have. */
static lh_status check_operations(const lhi_doc *doc, lh_status status,
                                  const lh_error *why, lh_error *err)
{
    if (status != LH_EINPUT)
        return LH_OK;
    return lhi_doc_fail(
        doc, lhi_node_find(lhi_node_find(doc->root, "elastic"), "recomputed"),
        err, LH_EINPUT, "%s", why->text);
}

lh_status lhi_check_rebuilt_pipeline(const lhi_doc *doc, const lh_plan *p,
                                     lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(&p->best);
    lhi_built_layout built = {0};
    lh_error why = {0};
    lh_status status = build_pipeline(p, &config, &built, &why);
    if (status != LH_OK)
        built.pipeline = NULL;
    if (status != LH_OK && !lhi_layout_is_infeasible(status)) {
        if (err)
            *err = why;
        return status;
    }
    if (config.elastic)
        LHI_TRY(check_operations(doc, status, &why, err));
    status = check_peak(doc, p, built.pipeline, err);
    if (status == LH_OK)
        status = check_similarity(doc, p, &config, &built, err);
    lh_pipeline_free(built.pipeline);
    return status;
}
