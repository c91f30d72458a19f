/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an imported job as text. */
#include "interop/import/import_internal.h"

#include "base/escape.h"
#include "format/job/job_values.h"

#include <longhaul/experimental/pipeline.h>
#include <math.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The writer's state. */
typedef struct writer {
    lhi_imported_job *in;
    const lh_import_options *o;
    lh_draft_site sites[LH_MAX_DATACENTERS]; /* with all their nodes */
    uint32_t n_sites;
    lhi_text before, cluster, behind;
} writer;

/* --- datacenters ---------------------------------------------------------- */

/* Returns datacenter `i`'s GPU count in the imported cluster. */
static uint64_t count_site_gpus(const writer *w, uint32_t i)
{
    if (w->o->cluster)
        return w->o->cluster->datacenters[i].gpus;
    return (uint64_t)w->sites[i].nodes * lhi_draft_node_gpus(&w->sites[i]);
}

/* Adds datacenter `i`'s name as a YAML string. Names from jobs are quoted;
 * they contain no quotes, but may contain anything else. */
static void add_site_name(lhi_text *text, const writer *w, uint32_t i)
{
    char own[16];
    if (w->o->cluster)
        lhi_text_printf(text, "'%s'", w->o->cluster->datacenters[i].name);
    else
        lhi_text_puts(text, lhi_draft_site_name(&w->sites[i], i, own));
}

/* Sets each datacenter's node count to the number of nodes that the ranks
 * placed there need, at least one. */
static void set_nodes_for_ranks(writer *w)
{
    uint64_t ranks[LH_MAX_DATACENTERS] = {0}, first = 0;
    for (uint32_t i = 0; i < w->in->n_rank_ranges; i++) {
        const lhi_rank_range *run = &w->in->rank_ranges[i];
        ranks[run->datacenter] += run->end - first;
        first = run->end;
    }
    for (uint32_t i = 0; i < w->n_sites; i++) {
        const uint32_t per_node = lhi_draft_node_gpus(&w->sites[i]);
        const uint64_t nodes = (ranks[i] + per_node - 1) / per_node;
        w->sites[i].nodes = nodes ? (uint32_t)nodes : 1;
    }
}

/* Determines each datacenter's node count: as given, or as the
 * rank placement needs, or the same number in each.
 * LH_EINPUT: the GPUs cannot be divided in this way. */
static lh_status determine_nodes(writer *w, const char *name, lh_error *err)
{
    const lh_draft_options *m = w->o->machines;
    uint64_t per_node = 0;
    w->n_sites = w->o->cluster ? w->o->cluster->n_datacenters : m->n_sites;
    if (w->o->cluster)
        return LH_OK;
    memcpy(w->sites, m->sites, m->n_sites * sizeof *m->sites);
    if (lhi_import_count_gpus(w->o))
        return LH_OK;
    if (w->in->n_rank_ranges) {
        set_nodes_for_ranks(w);
        return LH_OK;
    }
    for (uint32_t i = 0; i < m->n_sites; i++)
        per_node += lhi_draft_node_gpus(&m->sites[i]);
    if (w->in->gpus % per_node != 0)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %u GPUs are not divisible over the nodes of %u "
                        "site%s; give the number of nodes of each",
                        name, w->in->gpus, m->n_sites,
                        m->n_sites > 1 ? "s" : "");
    for (uint32_t i = 0; i < m->n_sites; i++)
        w->sites[i].nodes = (uint32_t)(w->in->gpus / per_node);
    return LH_OK;
}

/* Returns a rank's datacenter: by the export's comments, else with datacenters
 * filled in order. */
static uint32_t find_site_of_rank(const writer *w, uint64_t rank)
{
    const lhi_imported_job *in = w->in;
    uint32_t i = 0;
    if (in->n_rank_ranges) {
        while (i + 1 < in->n_rank_ranges && rank >= in->rank_ranges[i].end)
            i++;
        return in->rank_ranges[i].datacenter;
    }
    for (; i + 1 < w->n_sites && rank >= count_site_gpus(w, i); i++)
        rank -= count_site_gpus(w, i);
    return i;
}

/* Returns the first rank of a replica's stage; a stage's ranks are consecutive.
 */
static uint64_t find_first_rank(const lh_layout *l, uint32_t replica,
                                uint32_t stage)
{
    const uint64_t block = (uint64_t)l->tensor * l->context;
    return block * (l->outermost == LH_OUTERMOST_DATA
                        ? (uint64_t)replica * l->pipeline + stage
                        : (uint64_t)stage * l->data + replica);
}

/* Checks whether two replicas `a` and `b` have every stage in the same
 * datacenter. */
static bool have_same_sites(const writer *w, uint32_t a, uint32_t b)
{
    const lh_layout *l = &w->in->layout;
    for (uint32_t s = 0; s < l->pipeline; s++)
        if (find_site_of_rank(w, find_first_rank(l, a, s)) !=
            find_site_of_rank(w, find_first_rank(l, b, s)))
            return false;
    return true;
}

/* Checks whether a replica's stages are in several datacenters. */
static bool spans_datacenters(const writer *w, uint32_t replica)
{
    const lh_layout *l = &w->in->layout;
    const uint32_t first = find_site_of_rank(w, find_first_rank(l, replica, 0));
    for (uint32_t s = 1; s < l->pipeline; s++)
        if (find_site_of_rank(w, find_first_rank(l, replica, s)) != first)
            return true;
    return false;
}

/* Adds a group of `replicas` replicas from `first` on, as YAML with the stage
 * count in each datacenter. */
static void add_replica_group(writer *w, uint32_t first, uint32_t replicas)
{
    const lh_layout *l = &w->in->layout;
    lhi_text_printf(&w->behind, "    - {replicas: %" PRIu32 ", pipeline: [",
                    replicas);
    for (uint32_t s = 0, from = 0; s < l->pipeline; from = s) {
        const uint32_t site =
            find_site_of_rank(w, find_first_rank(l, first, from));
        while (s < l->pipeline &&
               find_site_of_rank(w, find_first_rank(l, first, s)) == site)
            s++;
        lhi_text_puts(&w->behind, from ? ", {datacenter: " : "{datacenter: ");
        add_site_name(&w->behind, w, site);
        lhi_text_printf(&w->behind, ", stages: %" PRIu32 "}", s - from);
    }
    lhi_text_puts(&w->behind, "]}\n");
}

/* Checks whether the optimizer instances (replica groups that shard optimizer
 * state) are one per datacenter: equally large, consecutive replicas, each
 * group in one datacenter. */
static bool has_instance_per_site(const writer *w)
{
    const uint32_t n = w->in->instances, data = w->in->layout.data;
    if (n < 2 || data % n != 0)
        return false;
    for (uint32_t i = 0; i + 1 < data; i++)
        if (have_same_sites(w, i, i + 1) == ((i + 1) % (data / n) == 0))
            return false;
    return true;
}

/* Adds a note that optimizer state is modelled as sharded over all replicas, if
 * the optimizer instances (replica groups that shard it) do not match the
 * datacenters. */
static void note_instances(writer *w)
{
    if (w->in->training.zero > 0 && w->in->instances > 1 &&
        !has_instance_per_site(w))
        lhi_import_note(w->in,
                        "%s: optimizer state is modelled as sharded over all "
                        "replicas; instances are supported only if each has "
                        "exactly the replicas of one datacenter",
                        w->in->instances_key);
}

/* Checks that no stage of a replica is divided between datacenters.
 * LH_EUNSUPPORTED: one is. */
static lh_status check_stage_boundaries(const writer *w, const char *name,
                                        lh_error *err)
{
    const lh_layout *l = &w->in->layout;
    const uint64_t block = (uint64_t)l->tensor * l->context;
    const uint32_t n = w->in->n_rank_ranges ? w->in->n_rank_ranges : w->n_sites;
    uint64_t end = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        end = w->in->n_rank_ranges ? w->in->rank_ranges[i].end
                                   : end + count_site_gpus(w, i);
        if (end % block != 0)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "%s: ranks %" PRIu64 " to %" PRIu64
                            " belong to one stage but span two datacenters, "
                            "which longhaul does not support",
                            name, end / block * block,
                            end / block * block + block - 1);
    }
    return LH_OK;
}

/* Adds the placement of replicas and stages in datacenters, the rank order and
 * the sharding, as YAML.
 * LH_EUNSUPPORTED: a job cannot express the placement. */
static lh_status add_placement(writer *w, const char *name, lh_error *err)
{
    const lh_layout *l = &w->in->layout;
    uint32_t groups = 0;
    bool crosses = false;
    LHI_TRY(check_stage_boundaries(w, name, err));
    lhi_draft_add_line(
        &w->behind, "  sites:",
        w->in->n_rank_ranges
            ? "placement of ranks, from the comments of the export"
            : "placement of ranks: they fill the datacenters in the order of "
              "the job");
    for (uint32_t first = 0, end = 0; first < l->data; first = end) {
        while (end < l->data && have_same_sites(w, first, end))
            end++;
        if (++groups > LHI_MAX_PIPELINE_SEGMENTS)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "%s: replicas have more different placements than "
                            "a job supports",
                            name);
        add_replica_group(w, first, end - first);
        crosses = crosses || spans_datacenters(w, first);
    }
    bool usual =
        (l->outermost == LH_OUTERMOST_DATA) == (groups > 1 && !crosses);
    if (!usual && l->pipeline > 1 && l->data > 1)
        lhi_draft_add_value(&w->behind,
                            l->outermost == LH_OUTERMOST_DATA
                                ? "a replica's ranks are consecutive"
                                : "a stage's ranks are consecutive",
                            "  rank_order: %s",
                            lh_outermost_name(l->outermost));
    if (w->in->training.zero > 0 && groups > 1)
        lhi_draft_add_value(
            &w->behind, "replicas over which optimizer state is sharded",
            "  sharding: %s", has_instance_per_site(w) ? "hybrid" : "full");
    return LH_OK;
}

/* --- sections ------------------------------------------------------------- */

/* Adds the model as a YAML map of its keys. Returns false if memory runs out.
 */
static bool add_model_map(lhi_text *text, const lh_model *model)
{
    json_t *map = lhi_model_to_json(model), *value;
    const char *key;
    lhi_draft_add_line(text, "model:", "");
    json_object_foreach(map, key, value)
    {
        char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                             JSON_REAL_PRECISION(15));
        lhi_text_printf(text, "  %s: %s\n", key, dumped ? dumped : "");
        text->failed = text->failed || !dumped;
        free(dumped);
    }
    const bool ok = map != NULL;
    json_decref(map);
    return ok && !text->failed;
}

/* Adds the model with a comment on its size: its preset's name, else a map of
 * its keys. Returns false if memory runs out. */
static bool add_model(writer *w)
{
    const lhi_imported_job *in = w->in;
    char size[160];
    snprintf(size, sizeof size,
             "The model (docs/models.md): %u layers, %.2f billion parameters, "
             "%.2f of which a token passes.",
             in->model.layers, (double)lh_model_params(&in->model) / 1e9,
             (double)lh_model_active_params(&in->model) / 1e9);
    lhi_draft_add_comment(&w->before, 0, size);
    if (!in->model_name)
        return add_model_map(&w->before, &in->model);
    lhi_text_printf(&w->before, "model: %s\n", in->model_name);
    return true;
}

/* Adds the kind of recomputation, or the recomputed module list, as YAML. */
static void add_recompute(lhi_text *text, const lh_training *t)
{
    const char *const remark = "recomputation of activations";
    char names[160] = "";
    if (t->recompute != LH_RECOMPUTE_MODULES) {
        lhi_draft_add_value(text, remark, "  recompute: %s",
                            lh_recompute_name(t->recompute));
        return;
    }
    for (uint32_t i = 0; i < LH_N_MODULES; i++) {
        const size_t len = strlen(names);
        if (t->recompute_modules >> i & 1)
            snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "",
                     lh_module_name((lh_module)i));
    }
    lhi_draft_add_value(text, remark, "  recompute: [%s]", names);
}

/* Adds the section `training` with the settings that the input gives. */
static void add_training(writer *w)
{
    const lh_training *t = &w->in->training;
    lhi_text *text = &w->before;
    lhi_text_puts(text, "\n");
    lhi_draft_add_comment(text, 0,
                          "Training settings: docs/formats/job.md#training");
    lhi_text_puts(text, "training:\n");
    lhi_draft_add_value(text, "sequences per iteration, over all replicas",
                        "  global_batch: %" PRIu32, t->global_batch);
    lhi_draft_add_value(text, "tokens per sequence", "  sequence: %" PRIu32,
                        t->sequence);
    lhi_draft_add_value(text, "compute precision", "  precision: %s",
                        lh_precision_name(t->precision));
    lhi_draft_add_value(text, "", "  optimizer: %s",
                        lhi_optimizer_name(t->optimizer));
    if (t->zero_given)
        lhi_draft_add_value(text, "ZeRO stage of the replicas",
                            "  zero: %" PRIu32, t->zero);
    if (t->recompute_given)
        add_recompute(text, t);
    if (t->dropout_given && t->dropout_rate > 0)
        lhi_draft_add_value(text, "dropout probability", "  dropout: %.12g",
                            t->dropout_rate);
    else if (t->dropout_given &&
             t->dropout != lhi_model_uses_dropout(&w->in->model))
        lhi_draft_add_value(text, "whether layers use dropout", "  dropout: %s",
                            t->dropout ? "true" : "false");
    if (t->balance_loss_given)
        lhi_draft_add_value(text, "coefficient of the load-balancing loss",
                            "  balance_loss: %.15g", t->balance_loss);
    if (t->balance_bias_given)
        lhi_draft_add_value(text, "update of an expert's bias per step",
                            "  balance_bias: %.15g", t->balance_bias);
    if (t->dispatcher != LH_DISPATCHER_ALL_TO_ALL)
        lhi_draft_add_value(text, "how tokens are sent to experts",
                            "  dispatcher: %s",
                            lhi_dispatcher_names[t->dispatcher]);
}

/* Adds the section `framework` with the preset and the settings that differ
 * from it. */
static void add_framework(writer *w)
{
    const lh_framework *f = &w->in->framework;
    lhi_text *text = &w->before;
    lhi_text_puts(text, "\n");
    lhi_draft_add_comment(text, 0,
                          "Training framework: docs/formats/job.md#framework");
    lhi_text_puts(text, "framework:\n");
    lhi_draft_add_value(text, "", "  preset: %s",
                        lhi_framework_preset_name(f->preset));
    if (f->attention != LH_ATTENTION_FUSED)
        lhi_draft_add_value(text, "", "  attention: %s",
                            lhi_attention_name(f->attention));
    if (f->kernels != LH_KERNELS_FUSED)
        lhi_draft_add_value(text, "element-wise operations", "  kernels: %s",
                            lhi_kernels_name(f->kernels));
    if (f->loss != LH_LOSS_FUSED)
        lhi_draft_add_value(text, "cross entropy", "  loss: %s",
                            lhi_loss_name(f->loss));
    if (f->no_sequence_parallel)
        lhi_draft_add_value(text, "", "  sequence_parallel: false");
    if (f->gradients_given)
        lhi_draft_add_value(text, "in memory", "  gradients: %s",
                            lhi_gradient_name(f->gradients));
    if (f->reduce_given)
        lhi_draft_add_value(text, "for the reduction", "  reduce: %s",
                            lhi_gradient_name(f->reduce));
    if (f->receives_given)
        lhi_draft_add_value(text, "when receives are posted", "  receives: %s",
                            lh_receives_name(f->receives));
    if (f->overlap_tensor > 0 || f->overlap_expert > 0 ||
        f->overlap_shared_experts > 0)
        lhi_draft_add_value(text,
                            "fraction of communication that overlaps "
                            "compute",
                            f->overlap_shared_experts > 0
                                ? "  overlap: {tensor: %.15g, "
                                  "shared_experts: %.15g}"
                                : "  overlap: {tensor: %.15g, expert: %.15g}",
                            f->overlap_tensor,
                            fmax(f->overlap_expert, f->overlap_shared_experts));
    if (f->fp8 != LH_FP8_NONE)
        lhi_draft_add_value(text, "", "  fp8: %s", lhi_fp8_name(f->fp8));
    lhi_text_puts(text, "\n");
}

/* Adds the section `cluster` of the given job, if any, as JSON, which is valid
 * YAML. Returns false if memory runs out. */
static bool add_cluster(writer *w)
{
    if (!w->o->cluster)
        return true;
    json_t *job = lhi_job_to_json(w->o->cluster);
    char *text = job ? json_dumps(json_object_get(job, "cluster"), 0) : NULL;
    const bool ok = text != NULL;
    lhi_draft_add_comment(&w->cluster, 0,
                          "Cluster: docs/formats/job.md#cluster");
    if (text)
        lhi_text_printf(&w->cluster, "cluster:\n  %s\n", text);
    json_decref(job);
    free(text);
    return ok;
}

/* Adds the list of each stage's layers, as YAML with 20 numbers per line. */
static void add_layers(lhi_text *text, const lh_layout *l)
{
    lhi_text_puts(text, "  layers: [");
    for (uint32_t i = 0, column = 0; i < l->n_chunk_layers; i++) {
        lhi_text_printf(text, "%s%" PRIu32, i ? ", " : "", l->chunk_layers[i]);
        if (++column == 20 && i + 1 < l->n_chunk_layers) {
            lhi_text_puts(text, ",\n    ");
            lhi_text_printf(text, "%" PRIu32, l->chunk_layers[++i]);
            column = 1;
        }
    }
    lhi_text_puts(text, "] # per stage, in model order\n");
}

/* Adds the section `layout`: degrees, schedule, layers of each stage, and
 * placement or rank order. */
static lh_status add_layout(writer *w, const char *name, lh_error *err)
{
    const lh_layout *l = &w->in->layout;
    lhi_text *text = &w->behind;
    const struct {
        const char *key;
        uint32_t value;
    } degrees[] = {{"tensor", l->tensor},
                   {"context", l->context},
                   {"expert", w->in->model.experts ? l->expert : 0},
                   {"expert_tensor", l->expert_tensor},
                   {"pipeline", l->pipeline},
                   {"data", l->data},
                   {"micro_batch", l->micro_batch},
                   {"chunks_per_device", l->chunks_per_device}};
    lhi_text_puts(text, "\n");
    lhi_draft_add_comment(text, 0,
                          "Current layout; a removed line is searched: "
                          "docs/formats/job.md#layout");
    lhi_text_puts(text, "layout:\n");
    lhi_draft_add_value(text, "the framework that runs the plan",
                        "  framework: %s", lhi_target_name(w->in->target));
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (degrees[i].value)
            lhi_draft_add_value(text, "", "  %s: %" PRIu32, degrees[i].key,
                                degrees[i].value);
    if (l->schedule)
        lhi_draft_add_value(text, "", "  schedule: %s", l->schedule);
    if (l->n_chunk_layers)
        add_layers(text, l);
    if (l->mtp_chunk)
        lhi_draft_add_value(text,
                            "multi-token prediction, separate from the "
                            "head",
                            "  mtp_chunk: %" PRIu32, l->mtp_chunk);
    if (w->n_sites > 1)
        return add_placement(w, name, err);
    lhi_draft_add_value(text, "", "  outermost: %s",
                        lh_outermost_name(l->outermost));
    return LH_OK;
}

/* Adds a comment with the text `before` and the `n` names in `list`, separated
 * by commas; nothing if n is 0. */
static void add_name_list(lhi_text *text, const char *before,
                          const lhi_text *list, uint32_t n)
{
    lhi_text all = {0};
    const char *at = list->data;
    lhi_text_puts(&all, before);
    for (uint32_t i = 0; i < n; i++, at += strlen(at) + 1) {
        lhi_text_puts(&all, i ? ", " : "");
        lhi_text_add_escaped(&all, at, SIZE_MAX);
    }
    if (n && !all.failed)
        lhi_draft_add_comment(text, 0, all.data);
    text->failed = text->failed || all.failed;
    lhi_text_fini(&all);
}

/* Adds the job's beginning: comments on its source, notes and ignored
 * keys, and the format's version. */
static void add_head(writer *w)
{
    const lhi_imported_job *in = w->in;
    lhi_text head = {0};
    lhi_text_printf(&head,
                    "A training job, imported from %s. All keys: "
                    "docs/formats/job.md.",
                    in->source_name);
    if (!head.failed)
        lhi_draft_add_comment(&w->before, 0, head.data);
    w->before.failed = w->before.failed || head.failed;
    lhi_text_fini(&head);
    const char *at = in->noted.data;
    for (uint32_t i = 0; i < in->n_noted; i++, at += strlen(at) + 1) {
        lhi_text note = {0};
        lhi_text_add_escaped(&note, at, SIZE_MAX);
        if (!note.failed)
            lhi_draft_add_comment(&w->before, 0, note.data);
        w->before.failed = w->before.failed || note.failed;
        lhi_text_fini(&note);
    }
    add_name_list(&w->before,
                  "Ignored, no effect on time and memory: ", &in->ignored,
                  in->n_ignored);
    lhi_text_puts(&w->before, "longhaul: job/1\n\n");
}

/* Writes the whole job file's text. The caller frees *text.
 * LH_EINPUT or LH_EUNSUPPORTED: no valid job is possible. */
static lh_status write_job_file(writer *w, const char *name, char **text,
                                size_t *len, lh_error *err)
{
    LHI_TRY(determine_nodes(w, name, err));
    note_instances(w);
    if (w->in->noted.failed)
        return lhi_fail_nomem(err);
    add_head(w);
    if (!add_model(w))
        return lhi_fail_nomem(err);
    add_training(w);
    add_framework(w);
    if (!add_cluster(w))
        return lhi_fail_nomem(err);
    LHI_TRY(add_layout(w, name, err));
    if (w->before.failed || w->behind.failed || w->cluster.failed)
        return lhi_fail_nomem(err);
    const lhi_draft_sections given = {
        .name = name,
        .origins = w->in->origins,
        .model = &w->in->model,
        .before = w->before.data,
        .cluster = w->o->cluster ? w->cluster.data : NULL,
        .after = w->behind.data,
    };
    lh_draft_options machines = *w->o->machines;
    machines.n_sites = w->o->cluster ? 1 : w->n_sites;
    machines.sites = w->o->cluster ? w->o->machines->sites : w->sites;
    return lhi_job_draft_with_sections(&machines, &given, text, len, err);
}

lh_status lhi_import_write(lhi_imported_job *in, const char *name,
                           const lh_import_options *options, char **text,
                           size_t *len, lh_error *err)
{
    writer w = {.in = in, .o = options};
    lh_status status = write_job_file(&w, name, text, len, err);
    lhi_text_fini(&w.before);
    lhi_text_fini(&w.cluster);
    lhi_text_fini(&w.behind);
    return status;
}
