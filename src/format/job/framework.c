/* SPDX-License-Identifier: Apache-2.0 */
/* `framework` in a job: the training program's behaviour. docs/formats/job.md
 * lists the presets' sources. */
#include "format/job/job_values.h"
#include "format/job/parse.h"

static const char *const preset_names[] = {"none", "megatron", "torchtitan",
                                           "deepspeed", NULL};
static const char *const attention_names[] = {
    "fused", "unfused", "flash-attention-2", "cudnn", "cudnn-fp8", NULL};
static const char *const kernel_names[] = {"fused", "eager", NULL};
static const char *const loss_names[] = {"fused", "eager", "chunked", NULL};
static const char *const gradient_names[] = {"fp32", "bf16", "fp16", NULL};
static const char *const fp8_names[] = {"none", "matmul", "dispatch", "head",
                                        NULL};
static const char *const expert_names[] = {"grouped", "fused", NULL};
/* Indexed by lh_receives. */
static const char *const receive_names[] = {"early", "late", "late-fd", NULL};

const char *lhi_framework_preset_name(lh_framework_preset preset)
{
    return preset_names[preset];
}

const char *lhi_gradient_name(lh_gradient gradient)
{
    return gradient_names[gradient];
}

const char *lhi_attention_name(lh_attention attention)
{
    return attention_names[attention];
}

const char *lhi_kernels_name(lh_kernels kernels)
{
    return kernel_names[kernels];
}

const char *lhi_loss_name(lh_loss loss)
{
    return loss_names[loss];
}

const char *lhi_fp8_name(lh_fp8 fp8)
{
    return fp8_names[fp8];
}

uint32_t lhi_gradient_bytes(lh_gradient gradient)
{
    return gradient == LH_GRADIENT_FP32 ? 4 : 2;
}

lh_receives lhi_framework_receives(const lh_framework *framework,
                                   uint32_t chunks_per_device)
{
    if (framework->receives_given)
        return framework->receives;
    switch (framework->preset) {
    case LH_FRAMEWORK_MEGATRON: /* overlaps them with interleaved chunks */
        return chunks_per_device > 1 ? LH_RECEIVES_EARLY : LH_RECEIVES_LATE;
    case LH_FRAMEWORK_DEEPSPEED:
        return LH_RECEIVES_LATE;
    case LH_FRAMEWORK_NONE:
    case LH_FRAMEWORK_TORCHTITAN:
        break;
    }
    return LH_RECEIVES_EARLY;
}

/* Returns the number format of the gradients that passes with this training
 * precision produce. */
static lh_gradient find_gradient(lh_precision precision)
{
    switch (precision) {
    case LH_PRECISION_BF16:
        return LH_GRADIENT_BF16;
    case LH_PRECISION_FP16:
        return LH_GRADIENT_FP16;
    case LH_PRECISION_FP32:
        break;
    }
    return LH_GRADIENT_FP32;
}

/* The read context besides the map: the preset, which is read first, and the
 * job. */
typedef struct framework_context {
    uint32_t preset;
    const lh_job *job;
} framework_context;

/* Sets a framework preset and its defaults for a training precision. */
static void set_preset(lh_framework *f, lh_framework_preset preset,
                       lh_precision precision)
{
    f->given = true;
    f->preset = preset;
    switch (preset) {
    case LH_FRAMEWORK_MEGATRON:
        /* Transformer Engine's choice on Hopper and Blackwell */
        f->attention = LH_ATTENTION_CUDNN;
        if (precision == LH_PRECISION_FP16)
            f->gradients = f->reduce = LH_GRADIENT_FP16;
        break;
    case LH_FRAMEWORK_DEEPSPEED:
        f->no_sequence_parallel = true;
        f->gradients = f->reduce = find_gradient(precision);
        break;
    case LH_FRAMEWORK_NONE:
    case LH_FRAMEWORK_TORCHTITAN:
        break;
    }
}

/* Sets a framework's defaults by the preset in the read context, before its
 * keys are read. */
static void start_framework(const lhi_read_context *r, void *it)
{
    const framework_context *a = r->context;
    set_preset(it, (lh_framework_preset)a->preset, a->job->training.precision);
}

/* Returns the framework preset of an export target (the program that will train
 * a plan); LH_FRAMEWORK_NONE: it has none. */
static lh_framework_preset get_target_preset(lh_target target)
{
    switch (target) {
    case LH_TARGET_MEGATRON:
        return LH_FRAMEWORK_MEGATRON;
    case LH_TARGET_TORCHTITAN:
        return LH_FRAMEWORK_TORCHTITAN;
    case LH_TARGET_ANY:
    case LH_TARGET_LONGHAUL:
    case LH_TARGET_PYTORCH:
        break;
    }
    return LH_FRAMEWORK_NONE;
}

lh_target lhi_framework_find_target(const lh_framework *framework)
{
    if (!framework->preset_given)
        return LH_TARGET_ANY;
    switch (framework->preset) {
    case LH_FRAMEWORK_MEGATRON:
        return LH_TARGET_MEGATRON;
    case LH_FRAMEWORK_TORCHTITAN:
        return LH_TARGET_TORCHTITAN;
    case LH_FRAMEWORK_NONE:
    case LH_FRAMEWORK_DEEPSPEED: /* no target */
        break;
    }
    return LH_TARGET_ANY;
}

void lhi_framework_apply_target(lh_job *job)
{
    lh_framework *f = &job->framework, usual = {0};
    if (f->preset_given)
        return;
    set_preset(&usual, get_target_preset(job->target), job->training.precision);
    f->given = f->given || usual.preset != LH_FRAMEWORK_NONE;
    f->preset = usual.preset;
    if (!f->attention_given)
        f->attention = usual.attention;
    if (!f->gradients_given)
        f->gradients = usual.gradients;
    if (!f->reduce_given)
        f->reduce = usual.reduce;
}

/* Reads the key `sequence_parallel`, which the struct stores as its negation
 * (schema callback). */
static lh_status read_sequence_parallel(const lhi_read_context *r,
                                        const lhi_node *node, void *owner,
                                        lh_error *err)
{
    bool is;
    LHI_TRY(lhi_node_get_bool(r->doc, node, &is, err));
    ((lh_framework *)owner)->no_sequence_parallel = !is;
    return LH_OK;
}

/* Writes the key `sequence_parallel`, which the struct stores as its negation
 * (schema callback). */
static json_t *write_sequence_parallel(const void *owner, const void *context)
{
    (void)context;
    return json_boolean(!((const lh_framework *)owner)->no_sequence_parallel);
}

static const lhi_schema_field overlap_rows[] = {
    {"tensor", LHI_NUMBER(lh_framework, overlap_tensor), .high = 1,
     .when = LHI_DEFAULTED},
    {"expert", LHI_NUMBER(lh_framework, overlap_expert), .high = 1,
     .when = LHI_DEFAULTED},
    {"shared_experts", LHI_NUMBER(lh_framework, overlap_shared_experts),
     .high = 1, .when = LHI_DEFAULTED},
    {"F+B", LHI_NUMBER(lh_framework, overlap_f_b), .high = 1,
     LHI_OMIT_IF(lh_framework, overlap_f_b, 0)},
};
static const lhi_schema overlap_table = {
    LHI_ROWS("overlap", lh_framework, overlap_rows)};

static const lhi_schema_field framework_rows[] = {
    {"preset", LHI_ENUM(lh_framework, preset), .names = preset_names,
     .when = LHI_DEFAULTED},
    {"attention", LHI_ENUM(lh_framework, attention), .names = attention_names,
     .when = LHI_DEFAULTED},
    {"kernels", LHI_ENUM(lh_framework, kernels), .names = kernel_names,
     .when = LHI_DEFAULTED},
    {"loss", LHI_ENUM(lh_framework, loss), .names = loss_names,
     .when = LHI_DEFAULTED},
    {"sequence_parallel", LHI_CUSTOM(lh_framework),
     .read = read_sequence_parallel, .write = write_sequence_parallel,
     .when = LHI_DEFAULTED},
    {"gradients", LHI_ENUM(lh_framework, gradients), .names = gradient_names,
     .when = LHI_DEFAULTED},
    {"reduce", LHI_ENUM(lh_framework, reduce), .names = gradient_names,
     .when = LHI_DEFAULTED},
    {"receives", LHI_ENUM(lh_framework, receives), .names = receive_names,
     LHI_OMIT_IF(lh_framework, receives_given, false)},
    {"overlap", LHI_NESTED_MAP(lh_framework), .table = &overlap_table,
     .when = LHI_DEFAULTED},
    {"fp8", LHI_ENUM(lh_framework, fp8), .names = fp8_names,
     .when = LHI_DEFAULTED},
    {"experts", LHI_ENUM(lh_framework, fused_experts), .names = expert_names,
     .when = LHI_DEFAULTED},
};

/* Fails with LH_EINPUT unless gradients are FP32 or of the training precision.
 */
static lh_status check_gradients(const lhi_read_context *r, const lhi_node *map,
                                 const lh_framework *f, const lh_job *job,
                                 lh_error *err)
{
    if (f->gradients == LH_GRADIENT_FP32 ||
        f->gradients == find_gradient(job->training.precision))
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "gradients"), err, LH_EINPUT,
                        "must be fp32, or the training precision, %s",
                        lh_precision_name(job->training.precision));
}

/* Rejects framework settings that have no effect on this job. */
static lh_status check_effects(const lhi_read_context *r, const lhi_node *map,
                               const lh_framework *f, const lh_job *job,
                               lh_error *err)
{
    const lhi_node *overlap = lhi_node_find(map, "overlap");
    if (f->overlap_expert > 0 && !job->model->experts)
        return lhi_doc_fail(r->doc, lhi_node_find(overlap, "expert"), err,
                            LH_EINPUT, "%s has no experts", job->model->name);
    if (f->overlap_shared_experts > 0 && !job->model->shared_expert_ffn)
        return lhi_doc_fail(r->doc, lhi_node_find(overlap, "shared_experts"),
                            err, LH_EINPUT, "%s has no shared experts",
                            job->model->name);
    if (f->overlap_shared_experts > 0 && f->overlap_expert > 0)
        return lhi_doc_fail(
            r->doc, lhi_node_find(overlap, "shared_experts"), err, LH_EINPUT,
            "excludes overlap.expert, which computes the shared experts before "
            "the all-to-alls; remove one of the two");
    if (f->fused_experts && !job->model->experts)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "experts"), err,
                            LH_EINPUT, "%s has none", job->model->name);
    const lhi_node *pairs = overlap ? lhi_node_find(overlap, "F+B") : NULL;
    if (pairs && !(f->overlap_f_b > 0))
        return lhi_doc_fail(r->doc, pairs, err, LH_EINPUT,
                            "must be above 0; remove this key to run F and B "
                            "one after the other");
    if (pairs && (job->training.offload_share > 0 || job->layout.slices))
        return lhi_doc_fail(
            r->doc, pairs, err, LH_EINPUT, "cannot be combined with %s",
            job->layout.slices ? "layout.slices" : "training.offload");
    if (f->overlap_tensor > 0 && job->layout.tensor == 1 &&
        !job->layout.site_tensors)
        return lhi_doc_fail(r->doc, lhi_node_find(overlap, "tensor"), err,
                            LH_EINPUT, "requires layout.tensor above 1");
    return LH_OK;
}

/* Peak of B200, the slowest GPU on which NVIDIA published FP8 attention's
 * rates, in 16 bits. */
enum { FP8_ATTENTION_TFLOPS = 2250 };

/* Fails with LH_EINPUT if attention is in FP8 while products are not, for a
 * kind of attention or on a GPU without known rates. */
static lh_status check_fp8_attention(const lhi_read_context *r,
                                     const lhi_node *map, const lh_framework *f,
                                     const lh_job *job, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, "attention");

    if (f->attention != LH_ATTENTION_CUDNN_FP8)
        return LH_OK;
    if (f->fp8 == LH_FP8_NONE)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires framework.fp8; use cudnn");
    if (job->model->index_topk || job->model->chunked_attention)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "its rates are unknown for the sparse or chunked "
                            "attention of %s; use cudnn",
                            job->model->name);
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (job->datacenters[i].gpu.tflops < FP8_ATTENTION_TFLOPS)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "its rates are known from B200 on, not on %s; "
                                "use cudnn",
                                job->datacenters[i].gpu.name);
    return LH_OK;
}

/* Fails with LH_EINPUT if FP8 has no effect on the model, or some GPU has no
 * known FP8 rate. */
static lh_status check_fp8(const lhi_read_context *r, const lhi_node *map,
                           const lh_framework *f, const lh_job *job,
                           lh_error *err)
{
    if (f->fp8 == LH_FP8_DISPATCH && !job->model->experts)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "fp8"), err, LH_EINPUT,
                            "%s has no experts; use matmul", job->model->name);
    for (uint32_t i = 0; f->fp8 && i < job->n_datacenters; i++)
        if (!(job->datacenters[i].gpu.fp8_tflops > 0))
            return lhi_doc_fail(r->doc, lhi_node_find(map, "fp8"), err,
                                LH_EINPUT,
                                "the FP8 rate of %s is unknown; set its "
                                "fp8_tflops, or remove this key",
                                job->datacenters[i].gpu.name);
    return LH_OK;
}

/* Keys that leave a value open unless the file has them, with the member of
 * lh_framework that records it. `map`: the nested map; NULL: `framework`. */
static const struct {
    const char *map, *key;
    size_t given;
} open_keys[] = {
    {NULL, "preset", offsetof(lh_framework, preset_given)},
    {NULL, "attention", offsetof(lh_framework, attention_given)},
    {NULL, "kernels", offsetof(lh_framework, kernels_given)},
    {NULL, "gradients", offsetof(lh_framework, gradients_given)},
    {NULL, "reduce", offsetof(lh_framework, reduce_given)},
    {NULL, "receives", offsetof(lh_framework, receives_given)},
    {"overlap", "tensor", offsetof(lh_framework, overlap_tensor_given)},
    {"overlap", "expert", offsetof(lh_framework, overlap_expert_given)},
    {"overlap", "shared_experts", offsetof(lh_framework, overlap_expert_given)},
};
enum { N_OPEN_KEYS = sizeof open_keys / sizeof *open_keys };

/* Records in *f which of the open keys the file's `map` has. */
static void find_given_keys(const lhi_node *map, lh_framework *f)
{
    for (size_t i = 0; i < N_OPEN_KEYS; i++) {
        const lhi_node *in =
            open_keys[i].map ? lhi_node_find(map, open_keys[i].map) : map;
        if (in && lhi_node_find(in, open_keys[i].key))
            *(bool *)((char *)f + open_keys[i].given) = true;
    }
}

/* Checks gradients, FP8 and settings without effect, after recording the keys
 * that `map` has; check function for the framework schema. */
static lh_status check_framework(const lhi_read_context *r, const lhi_node *map,
                                 void *it, lh_error *err)
{
    lh_framework *f = it;
    const framework_context *a = r->context;
    find_given_keys(map, f);
    LHI_TRY(check_gradients(r, map, f, a->job, err));
    LHI_TRY(check_fp8(r, map, f, a->job, err));
    LHI_TRY(check_fp8_attention(r, map, f, a->job, err));
    return check_effects(r, map, f, a->job, err);
}

const lhi_schema lhi_framework_schema = {
    LHI_ROWS("framework", lh_framework, framework_rows),
    .start = start_framework, .check = check_framework};

/* Removes from `map` the keys that `usual` has with equal values, in nested
 * maps too, and nested maps that become empty. */
static void remove_usual(json_t *map, const json_t *usual)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(map, next, key, value)
    {
        const json_t *other = json_object_get(usual, key);
        if (other && json_is_object(value))
            remove_usual(value, other);
        if (other && (json_is_object(value) ? json_object_size(value) == 0
                                            : json_equal(value, other)))
            json_object_del(map, key);
    }
}

json_t *lhi_framework_to_json(const lh_job *job)
{
    const lh_framework *f = &job->framework;
    lh_framework usual = {0};
    set_preset(&usual, f->preset, job->training.precision);
    usual.preset = get_target_preset(job->target);
    json_t *map = lhi_schema_write(&lhi_framework_schema, f, NULL);
    json_t *omitted = lhi_schema_write(&lhi_framework_schema, &usual, NULL);
    for (size_t i = 0; omitted && i < N_OPEN_KEYS; i++) {
        json_t *in = open_keys[i].map
                         ? json_object_get(omitted, open_keys[i].map)
                         : omitted;
        if (*(const bool *)((const char *)f + open_keys[i].given))
            json_object_del(in, open_keys[i].key);
    }
    if (map && omitted)
        remove_usual(map, omitted);
    const bool ok = omitted != NULL;
    json_decref(omitted);
    return lhi_json_finish(map, ok);
}

lh_status lhi_framework_from_node(const lhi_doc *doc, const lhi_node *map,
                                  lhi_arena *mem, lh_job *job, lh_error *err)
{
    framework_context a = {.job = job};
    const lhi_read_context reading = {.doc = doc, .mem = mem, .context = &a};
    const lhi_node *preset;
    a.preset = get_target_preset(job->target);
    LHI_TRY(lhi_node_check_map(doc, map, err));
    if ((preset = lhi_node_find(map, "preset")))
        LHI_TRY(lhi_node_get_choice(doc, preset, preset_names, &a.preset, err));
    lh_framework f = {0};
    LHI_TRY(lhi_schema_read(&reading, map, &lhi_framework_schema, &f, err));
    job->framework = f;
    return LH_OK;
}
