/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing a job's text into lh_job. */
#include "format/job/job_internal.h"

#include "base/text.h"
#include "format/job/job_values.h"
#include "format/job/model_size.h"

#include <string.h>

static const char *const ring_names[] = {"lockstep", "pipelined", NULL};

uint32_t lhi_precision_bytes(lh_precision precision)
{
    return precision == LH_PRECISION_FP32 ? 4 : 2;
}

/* A job and the arena that contains it and its data. */
typedef struct owned_job {
    lh_job job; /* first member, so lh_job_free() can find the arena */
    lhi_arena *mem;
    const char *files[2]; /* files of the model and the profile */
} owned_job;

/* Resolves the path of a file named in the job, relative to the job's folder.
 */
static lh_status resolve_path(lhi_job_reader *r, const lhi_node *node,
                              const char *name, const char **out, lh_error *err)
{
    if (!r->folder)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "names a file, which is only possible in a job "
                            "that is read from a file; include the contents of "
                            "'%.60s'",
                            name);
    lhi_text path = {0};
    if (name[0] != '/' && r->folder[0] != '\0') {
        lhi_text_puts(&path, r->folder);
        if (path.failed || path.data[path.len - 1] != '/')
            lhi_text_puts(&path, "/");
    }
    lhi_text_puts(&path, name);
    *out = path.failed ? NULL : lhi_arena_strdup(r->mem, path.data);
    lhi_text_fini(&path);
    if (!*out)
        return lhi_fail_nomem(err);
    r->files[r->job->n_files++] = *out;
    return LH_OK;
}

/* Prepends "file:line: key: " to the error message about another file that the
 * job names at `node`. Returns `status`. */
static lh_status add_context(lhi_job_reader *r, const lhi_node *node,
                             lh_status status, lh_error *err)
{
    if (status != LH_OK && status != LH_ENOMEM)
        lhi_fail_add_context(err, "%s:%u: %s", r->doc->file, node->line,
                             node->key);
    return status;
}

/* Checks whether a model's name is a path: it contains a slash or ends with
 * .json. */
static bool is_path(const char *name)
{
    size_t len = strlen(name);
    return strchr(name, '/') ||
           (len > 5 && strcmp(name + len - 5, ".json") == 0);
}

/* Fails with LH_EINPUT: the model `name` is unknown; the message lists the
 * known ones. */
static lh_status fail_no_model(lhi_job_reader *r, const lhi_node *node,
                               const char *name, lh_error *err)
{
    lhi_text known = {0};
    for (const char *const *preset = lh_model_presets(); *preset; preset++)
        lhi_text_printf(&known, "%s%s", known.len ? ", " : "", *preset);
    if (known.failed) {
        lhi_text_fini(&known);
        return lhi_fail_nomem(err);
    }
    lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                 "unknown model '%.60s'; known: %s; or give a config.json or a "
                 "map",
                 name, known.data);
    lhi_text_fini(&known);
    return LH_EINPUT;
}

/* Reads `model`: a preset's name, the path of a config.json, or a map. */
static lh_status read_model(lhi_job_reader *r, lh_error *err)
{
    const lhi_node *node;
    const char *name, *path;
    LHI_TRY(lhi_node_require(r->doc, r->map, "model", &node, err));
    if (node->kind == LHI_SCALAR) {
        LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
        r->job->model = lh_model_preset(name);
        if (r->job->model)
            return LH_OK;
        if (!is_path(name))
            return fail_no_model(r, node, name, err);
    }
    lh_model *model = LHI_NEW(r->mem, lh_model, 1);
    if (!model)
        return lhi_fail_nomem(err);
    r->job->model = model;
    if (node->kind == LHI_MAP)
        return lhi_model_from_map(r->doc, node, r->mem, model, err);
    if (node->kind == LHI_LIST)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be a preset's name, a config.json's path or "
                            "a map");
    LHI_TRY(resolve_path(r, node, name, &path, err));
    return add_context(r, node, lhi_model_load(path, r->mem, model, err), err);
}

/* Returns the name of the model component that recomputation of `module` (an
 * lh_module) needs and the model lacks; NULL: none. */
static const char *find_missing_component(const lh_model *m, uint32_t module)
{
    switch ((lh_module)module) {
    case LH_MODULE_MOE_ACT:
    case LH_MODULE_MOE:
        return m->experts ? NULL : "experts";
    case LH_MODULE_SHARED_EXPERTS:
        return m->shared_expert_ffn ? NULL : "shared experts";
    case LH_MODULE_MLA_UP_PROJ:
        return m->kv_lora_rank ? NULL : "multi-head latent attention";
    case LH_MODULE_MLP:
        return lhi_model_moe_layers(m, 0, m->layers) < m->layers
                   ? NULL
                   : "layers without experts";
    default:
        return NULL;
    }
}

/* Reads `recompute`: one word, or a module list. */
static lh_status read_recompute(lhi_job_reader *r, const lhi_node *map,
                                lh_error *err)
{
    lh_training *t = &r->job->training;
    const lhi_node *node = lhi_node_find(map, "recompute");
    uint32_t word = LH_RECOMPUTE_NONE;
    t->recompute_given = node != NULL;
    if (node && node->kind != LHI_LIST)
        LHI_TRY(
            lhi_node_get_choice(r->doc, node, lhi_recompute_names, &word, err));
    t->recompute = (lh_recompute)word;
    if (!node || node->kind != LHI_LIST)
        return LH_OK;
    t->recompute = LH_RECOMPUTE_MODULES;
    for (const lhi_node *one = node->first; one; one = one->next) {
        uint32_t module;
        LHI_TRY(
            lhi_node_get_choice(r->doc, one, lhi_module_names, &module, err));
        const char *what = find_missing_component(r->job->model, module);
        if (what)
            return lhi_doc_fail(r->doc, one, err, LH_EINPUT, "%s has no %s",
                                r->job->model->name, what);
        if (t->recompute_modules >> module & 1)
            return lhi_doc_fail(r->doc, one, err, LH_EINPUT,
                                "'%s' appears twice", lhi_module_names[module]);
        t->recompute_modules |= 1u << module;
    }
    return t->recompute_modules
               ? LH_OK
               : lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                              "must list at least one module, or be 'none'");
}

/* Reads `dropout`: a boolean, or the rate. */
static lh_status read_dropout(lhi_job_reader *r, const lhi_node *map,
                              lh_error *err)
{
    lh_training *t = &r->job->training;
    const lhi_node *node = lhi_node_find(map, "dropout");
    lh_error unused;
    t->dropout_given = node != NULL;
    if (!node || lhi_node_get_bool(r->doc, node, &t->dropout, &unused) == LH_OK)
        return LH_OK;
    if (lhi_node_get_rounded_number(r->doc, node, 0, 0.999, &t->dropout_rate,
                                    err) != LH_OK)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be true, false, or a share from 0 to 0.999");
    t->dropout = t->dropout_rate > 0;
    return LH_OK;
}

/* Reads the optional number `key`, from `least` to `most`, into *out. Fails
 * with the reason why_not, if that is not NULL, because only models with
 * certain experts have the key. *given: the key is present. */
static lh_status read_expert_number(lhi_job_reader *r, const lhi_node *map,
                                    const char *key, double least, double most,
                                    const char *why_not, bool *given,
                                    double *out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    *given = node != NULL;
    if (node && why_not)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%s %s",
                            r->job->model->name, why_not);
    return node ? lhi_node_get_rounded_number(r->doc, node, least, most, out,
                                              err)
                : LH_OK;
}

/* Reads the settings that balance the load of experts. LH_EINPUT: the model
 * lacks the component they need. */
static lh_status read_balance(lhi_job_reader *r, const lhi_node *map,
                              lh_error *err)
{
    lh_training *t = &r->job->training;
    const lh_model *m = r->job->model;
    const char *lacks = m->experts ? NULL : "has no experts";
    bool given;
    LHI_TRY(read_expert_number(r, map, "balance_loss", 0, 1e6, lacks,
                               &t->balance_loss_given, &t->balance_loss, err));
    LHI_TRY(read_expert_number(r, map, "expert_capacity", 1, 1e6, lacks, &given,
                               &t->expert_capacity, err));
    t->imbalance = 1;
    LHI_TRY(read_expert_number(r, map, "imbalance", 1, 1e6, lacks, &given,
                               &t->imbalance, err));
    if (!lacks && m->router != LH_ROUTER_SIGMOID)
        lacks = "has no router bias that could balance its experts; this "
                "requires router: sigmoid";
    return read_expert_number(r, map, "balance_bias", 0, 1, lacks,
                              &t->balance_bias_given, &t->balance_bias, err);
}

/* Reads `offload`: a fraction of the layers, or a map with that and the
 * storage's bandwidth in GB/s. */
static lh_status read_offload(lhi_job_reader *r, const lhi_node *map,
                              lh_error *err)
{
    lh_training *t = &r->job->training;
    const lhi_node *node = lhi_node_find(map, "offload"), *share = node, *rate;
    double gbps;
    if (!node)
        return LH_OK;
    if (node->kind == LHI_MAP) {
        LHI_TRY(lhi_node_check_keys(r->doc, node, lhi_offload_keys, err));
        LHI_TRY(lhi_node_require(r->doc, node, "layers", &share, err));
        if ((rate = lhi_node_find(node, "storage_gbps"))) {
            LHI_TRY(lhi_node_get_rounded_number(r->doc, rate, 1e-6, 1e6, &gbps,
                                                err));
            t->offload_bytes_per_s = gbps * 1e9;
        }
    }
    LHI_TRY(lhi_node_get_rounded_number(r->doc, share, 0, 1, &t->offload_share,
                                        err));
    if (t->offload_share == 0)
        t->offload_bytes_per_s = 0;
    if (t->offload_share > 0 && t->recompute == LH_RECOMPUTE_FULL)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "cannot be combined with recompute: full, which "
                            "keeps only the inputs of layers; remove one of "
                            "the two");
    return LH_OK;
}

/* Reads the `training` map, with defaults for absent keys. */
static lh_status read_training(lhi_job_reader *r, lh_error *err)
{
    lh_training *t = &r->job->training;
    const lhi_node *map, *node;
    uint32_t precision = LH_PRECISION_BF16, optimizer = LH_OPTIMIZER_ADAMW;
    uint32_t rings = LH_RING_LOCKSTEP;
    uint32_t dispatcher = LH_DISPATCHER_ALL_TO_ALL;
    bool given;
    LHI_TRY(lhi_node_require(r->doc, r->map, "training", &map, err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, lhi_training_keys, err));
    LHI_TRY(lhi_node_require(r->doc, map, "global_batch", &node, err));
    LHI_TRY(lhi_node_get_u32(r->doc, node, 1, 1u << 30, &t->global_batch, err));
    LHI_TRY(lhi_node_require(r->doc, map, "sequence", &node, err));
    LHI_TRY(
        lhi_node_get_u32(r->doc, node, 1, LHI_MAX_VOCAB, &t->sequence, err));
    if (r->job->model->positions && t->sequence > r->job->model->positions)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "%s has learned %u positions; a sequence cannot "
                            "be longer",
                            r->job->model->name, r->job->model->positions);
    LHI_TRY(lhi_job_read_choice(r, map, "precision", lhi_precision_names,
                                &precision, &given, err));
    LHI_TRY(lhi_job_read_choice(r, map, "optimizer", lhi_optimizer_names,
                                &optimizer, &given, err));
    LHI_TRY(read_recompute(r, map, err));
    LHI_TRY(read_offload(r, map, err));
    LHI_TRY(
        lhi_job_read_choice(r, map, "rings", ring_names, &rings, &given, err));
    t->rings = (lh_ring)rings;
    LHI_TRY(lhi_job_read_choice(r, map, "dispatcher", lhi_dispatcher_names,
                                &dispatcher, &t->dispatcher_given, err));
    if (dispatcher != LH_DISPATCHER_ALL_TO_ALL && !r->job->model->experts)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "dispatcher"), err,
                            LH_EINPUT, "%s has no experts",
                            r->job->model->name);
    t->dispatcher = (lh_dispatcher)dispatcher;
    t->precision = (lh_precision)precision;
    t->optimizer = (lh_optimizer)optimizer;
    LHI_TRY(read_dropout(r, map, err));
    LHI_TRY(read_balance(r, map, err));
    t->zero = 1;
    if (!(node = lhi_node_find(map, "zero")))
        return LH_OK;
    t->zero_given = true;
    return lhi_node_get_u32(r->doc, node, 0, 3, &t->zero, err);
}

/* Reads a profile from the file that the job names at `node`. */
static lh_status load_profile(lhi_job_reader *r, const lhi_node *node,
                              lh_profile *profile, lh_error *err)
{
    const char *name, *path;
    lhi_doc *doc;
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    LHI_TRY(resolve_path(r, node, name, &path, err));
    LHI_TRY(add_context(r, node,
                        lhi_doc_load(path, LHI_INPUT_PROFILE, &doc, err), err));
    lh_status status =
        lhi_profile_from_node(doc, doc->root, r->mem, profile, err);
    lhi_doc_free(doc);
    return add_context(r, node, status, err);
}

/* Checks whether the job has a datacenter of that name. */
static bool has_site(const lh_job *job, const char *name)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (strcmp(job->datacenters[i].name, name) == 0)
            return true;
    return false;
}

/* Checks that some entry of a profile applies to the job's model; a profile
 * without entries passes. */
static lh_status check_models(lhi_job_reader *r, const lhi_node *node,
                              const lh_profile *p, lh_error *err)
{
    const char *own = r->job->model->name ? r->job->model->name : "custom";
    char known[256] = "", *end = known;
    const char *last = "";
    for (uint32_t i = 0; i < p->n_entries; i++) {
        const char *model = p->entries[i].model;
        if (!model || strcmp(model, own) == 0)
            return LH_OK;
        if (strcmp(model, last) != 0 && !strstr(known, model) &&
            (size_t)(end - known) + strlen(model) + 3 < sizeof known)
            end += sprintf(end, "%s%s", *known ? ", " : "", model);
        last = model;
    }
    if (p->n_entries == 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "has entries for %s, but the job's model is %s", known,
                        own);
}

/* Checks that a profile (measured times) applies to this job. LH_EINPUT:
 * another model, unknown datacenters in its links, slices, or head times that
 * contradict layout.mtp_chunk. */
static lh_status check_profile(lhi_job_reader *r, const lhi_node *node,
                               const lh_profile *p, lh_error *err)
{
    if (p->model && lh_model_preset(p->model) &&
        strcmp(p->model, r->job->model->name) != 0 &&
        lh_model_preset(r->job->model->name))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "is for model %s, but the job's model is %s",
                            p->model, r->job->model->name);
    LHI_TRY(check_models(r, node, p, err));
    if (r->job->layout.slices)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "has no times of slices; remove profile or "
                            "layout.slices");
    for (uint32_t i = 0; r->job->model->layer_pattern && i < p->n_entries; i++)
        if (p->entries[i].kind == LH_PROFILE_LAYER ||
            p->entries[i].kind == LH_PROFILE_MOE_LAYER)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "has times of layers with attention and an "
                                "MLP, but the layers of %s are one or the "
                                "other; use times of chunks",
                                r->job->model->name);
    for (uint32_t i = 0; i < p->n_links; i++) {
        const char *names[] = {p->links[i].site, p->links[i].from,
                               p->links[i].to};
        for (size_t k = 0; k < 3; k++)
            if (names[k] && !has_site(r->job, names[k]))
                return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                    "link %u of the profile names datacenter "
                                    "'%.60s', which the job does not have",
                                    i, names[k]);
    }
    for (uint32_t i = 0; r->job->layout.mtp_chunk && i < p->n_entries; i++)
        if (p->entries[i].kind == LH_PROFILE_HEAD)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "has head times that include multi-token "
                                "prediction, which layout.mtp_chunk places "
                                "elsewhere; remove profile or mtp_chunk");
    return LH_OK;
}

/* Adopts the layers per chunk from the profile's chunk measurements, if the
 * layout has as many chunks and does not specify its layers. */
static lh_status use_measured_layers(lhi_job_reader *r, lh_error *err)
{
    lh_layout *l = &r->job->layout;
    const lh_profile *p = r->job->profile;
    const uint64_t chunks = (uint64_t)l->pipeline * l->chunks_per_device;
    uint64_t sum = 0;
    uint32_t n = 0;
    if (l->chunk_layers || chunks == 0 || chunks > p->n_entries)
        return LH_OK;
    uint32_t *layers = LHI_NEW(r->mem, uint32_t, chunks);
    if (!layers)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_entries; i++) {
        const lh_profile_entry *e = &p->entries[i];
        if (e->kind != LH_PROFILE_CHUNK || e->n_chunks != chunks ||
            !e->layers || layers[e->chunk])
            continue;
        layers[e->chunk] = e->layers;
        sum += e->layers;
        n++;
    }
    if (n < chunks || sum != r->job->model->layers)
        return LH_OK;
    l->chunk_layers = layers;
    l->n_chunk_layers = n;
    return LH_OK;
}

/* Reads the optional `profile`, a map or a file's path, and checks that it
 * applies to the job. */
static lh_status read_profile(lhi_job_reader *r, lh_error *err)
{
    const lhi_node *node = lhi_node_find(r->map, "profile");
    if (!node)
        return LH_OK;
    lh_profile *profile = LHI_NEW(r->mem, lh_profile, 1);
    if (!profile)
        return lhi_fail_nomem(err);
    if (node->kind == LHI_MAP)
        LHI_TRY(lhi_profile_from_node(r->doc, node, r->mem, profile, err));
    else
        LHI_TRY(load_profile(r, node, profile, err));
    LHI_TRY(check_profile(r, node, profile, err));
    r->job->profile = profile;
    LHI_TRY(use_measured_layers(r, err));
    return LH_OK;
}

/* Reads all sections of a job in dependency order. */
static lh_status read_sections(lhi_job_reader *r, lh_error *err)
{
    static const char *const keys[] = {"longhaul",  "model",   "training",
                                       "framework", "cluster", "layout",
                                       "profile",   NULL};
    const lhi_node *node;
    LHI_TRY(lhi_node_check_keys(r->doc, r->map, keys, err));
    LHI_TRY(lhi_node_check_format(r->doc, r->map, "job", 1, err));
    LHI_TRY(read_model(r, err));
    LHI_TRY(read_training(r, err));
    LHI_TRY(lhi_node_require(r->doc, r->map, "cluster", &node, err));
    LHI_TRY(lhi_cluster_from_node(r->doc, node, r->mem, r->job, err));
    LHI_TRY(lhi_job_read_layout(r, err));
    if ((node = lhi_node_find(r->map, "framework")))
        LHI_TRY(lhi_framework_from_node(r->doc, node, r->mem, r->job, err));
    else
        lhi_framework_apply_target(r->job);
    if (!r->target_given) {
        r->job->target = lhi_framework_find_target(&r->job->framework);
        r->job->target_implied = r->job->target != LH_TARGET_ANY;
    }
    return read_profile(r, err);
}

double lhi_job_dropout(const lh_job *job)
{
    const lh_training *t = &job->training;
    if (!lhi_job_uses_dropout(job))
        return 0;
    return t->dropout_rate > 0 ? t->dropout_rate : 0.1; /* GPT-2's */
}

double lhi_job_balance_loss(const lh_job *job)
{
    if (job->training.balance_loss_given || !job->model->experts)
        return job->training.balance_loss;
    if (job->model->aux_loss_given)
        return job->model->aux_loss;
    return job->model->router == LH_ROUTER_SIGMOID ? 0.0001 : 0.01;
}

double lhi_job_balance_bias(const lh_job *job)
{
    if (job->training.balance_bias_given || !job->model->experts ||
        job->model->router != LH_ROUTER_SIGMOID)
        return job->training.balance_bias;
    return 0.001;
}

bool lhi_job_uses_dropout(const lh_job *job)
{
    return job->training.dropout_given ? job->training.dropout
                                       : lhi_model_uses_dropout(job->model);
}

lh_status lhi_job_from_node(const lhi_doc *doc, const lhi_node *map,
                            const char *folder, lh_job **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    owned_job *held = mem ? LHI_NEW(mem, owned_job, 1) : NULL;
    lh_status status = LH_OK;
    if (!held || !(held->job.name = lhi_arena_strdup(mem, doc->file)))
        status = lhi_fail_nomem(err);
    if (status == LH_OK) {
        lhi_job_reader r = {.doc = doc,
                            .map = map,
                            .folder = folder,
                            .mem = mem,
                            .job = &held->job,
                            .files = held->files};
        held->job.files = held->files;
        status = read_sections(&r, err);
    }
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    held->mem = mem;
    *out = &held->job;
    return LH_OK;
}

lh_status lh_job_parse(const char *text, size_t len, const char *name,
                       const char *folder, lh_job **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_JOB, &doc, err));
    lh_status status = lhi_job_from_node(doc, doc->root, folder, out, err);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_job_read(const char *path, lh_job **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_JOB, &doc, err));
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    char *folder = lhi_arena_strndup(doc->mem, path, len);
    lh_status status = folder
                           ? lhi_job_from_node(doc, doc->root, folder, out, err)
                           : lhi_fail_nomem(err);
    lhi_doc_free(doc);
    return status;
}

void lh_job_free(lh_job *job)
{
    if (job)
        lhi_arena_free(((owned_job *)(void *)job)->mem);
}
