/* SPDX-License-Identifier: Apache-2.0 */
/* Training settings and ranks from torchtitan's configuration: trainer.py,
 * config/configs.py, distributed/parallel_dims.py, fsdp.py and
 * activation_checkpoint.py of torchtitan 0.3.0, job_config.py of 0.2.2. */
#include "interop/import/torchtitan_internal.h"

#include <string.h>

/* Returns the prefix before key names in messages: "--" for command-line
 * options, "" for TOML keys. */
static const char *find_key_prefix(const lhi_titan *t)
{
    return t->form == LHI_TITAN_TOML ? "" : "--";
}

/* --- ranks ---------------------------------------------------------------- */

/* Data-parallel degrees: the replica group count, and the GPUs that shard each
 * group's state; 0: unknown. */
typedef struct data_degrees {
    uint32_t replicate, shard;
} data_degrees;

/* Computes the data-parallel degrees from the GPU count and the other
 * degrees. A shard degree of 0 (torchtitan's -1) becomes the one that uses all
 * remaining GPUs.
 * LH_EINPUT: the number is unknown or does not match. */
static lh_status find_data_degrees(const lhi_titan *t, lhi_imported_job *in,
                                   const lh_import_options *options,
                                   data_degrees *d, lh_error *err)
{
    lh_layout *l = &in->layout;
    const uint64_t replica = (uint64_t)l->tensor * l->context * l->pipeline;
    const uint64_t given = replica * d->replicate * d->shard;
    uint64_t gpus = 0;
    LHI_TRY(lhi_import_find_gpus(t->file, t->gpus, options, in, &gpus, err));
    if (!gpus && !d->shard)
        return lhi_fail(err, LH_EINPUT,
                        "%s: does not give the number of GPUs; give the number "
                        "of nodes, data_parallel_shard_degree, or the complete "
                        "command line that begins with torchrun --nnodes N "
                        "--nproc-per-node N",
                        t->file);
    gpus = gpus ? gpus : given;
    if (gpus > LH_MAX_GPUS || gpus % (replica * d->replicate) != 0 ||
        (d->shard && gpus != given))
        return lhi_fail(
            err, LH_EINPUT,
            "%s: %llu GPUs do not match the degrees: replicate %u x shard %s x "
            "context %u x tensor %u x pipeline %u = %llu",
            t->file, (unsigned long long)gpus, d->replicate,
            d->shard ? "as given" : "-1", l->context, l->tensor, l->pipeline,
            (unsigned long long)(d->shard ? given : replica * d->replicate));
    in->gpus = (uint32_t)gpus;
    l->data = (uint32_t)(gpus / replica);
    d->shard = l->data / d->replicate;
    return LH_OK;
}

/* Reads the expert and expert tensor parallel degrees; `sharers` GPUs share a
 * layer's parameters.
 * LH_EINPUT: the degrees do not divide the experts or `sharers`. */
static lh_status read_expert_degrees(const lhi_titan *t, lhi_imported_job *in,
                                     uint64_t sharers, lh_error *err)
{
    lh_layout *l = &in->layout;
    uint32_t expert = 1, cut = 1;
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_EXPERT, 1, LHI_MAX_DEGREE,
                                  &expert, err));
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_EXPERT_TENSOR, 1, LHI_MAX_DEGREE,
                                  &cut, err));
    l->expert = 1;
    if (!in->model.experts)
        return LH_OK;
    if (in->model.experts % expert != 0)
        return lhi_titan_fail(t, LHI_TITAN_EXPERT, LH_EINPUT, err,
                              "the %u experts are not divisible by %u",
                              in->model.experts, expert);
    if (expert > 1 && cut != 1 && cut != l->tensor)
        return lhi_titan_fail(t, LHI_TITAN_EXPERT_TENSOR, LH_EINPUT, err,
                              "must be 1 or tensor_parallel_degree, %u",
                              l->tensor);
    l->expert = expert;
    l->expert_tensor = expert > 1 ? cut : l->tensor;
    if (sharers % ((uint64_t)expert * l->expert_tensor) != 0)
        return lhi_titan_fail(t, LHI_TITAN_EXPERT, LH_EINPUT, err,
                              "does not divide the %llu GPUs that share a "
                              "layer's parameters (shard x context x tensor)",
                              (unsigned long long)sharers);
    return LH_OK;
}

/* Reads all parallel degrees, sets the rank order, and computes the
 * data-parallel degrees. */
static lh_status read_degrees(const lhi_titan *t, lhi_imported_job *in,
                              const lh_import_options *options, data_degrees *d,
                              lh_error *err)
{
    lh_layout *l = &in->layout;
    l->tensor = l->context = l->pipeline = 1;
    *d = (data_degrees){.replicate = 1};
    const struct {
        lhi_titan_key key;
        uint32_t *to;
    } degrees[] = {{LHI_TITAN_TENSOR, &l->tensor},
                   {LHI_TITAN_CONTEXT, &l->context},
                   {LHI_TITAN_PIPELINE, &l->pipeline},
                   {LHI_TITAN_REPLICATE, &d->replicate}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        LHI_TRY(lhi_titan_get_integer(t, degrees[i].key, 1, LHI_MAX_DEGREE,
                                      degrees[i].to, err));
    LHI_TRY(lhi_titan_get_optional_integer(t, LHI_TITAN_SHARD, &d->shard, err));
    if (d->shard > LHI_MAX_DEGREE)
        return lhi_titan_fail(t, LHI_TITAN_SHARD, LH_EINPUT, err,
                              "is above the limit of %u", LHI_MAX_DEGREE);
    if (in->model.heads % l->tensor != 0)
        return lhi_titan_fail(t, LHI_TITAN_TENSOR, LH_EINPUT, err,
                              "the %u heads are not divisible by %u",
                              in->model.heads, l->tensor);
    l->outermost = l->pipeline == 1 ? LH_OUTERMOST_DATA : LH_OUTERMOST_PIPELINE;
    LHI_TRY(find_data_degrees(t, in, options, d, err));
    return read_expert_degrees(
        t, in, (uint64_t)d->shard * l->context * l->tensor, err);
}

/* --- training ------------------------------------------------------------- */

/* Sets the ZeRO stage: 0 without sharding, 3 if parameters are resharded after
 * forward, else 2. Takes the number of optimizer instances (replica groups)
 * from the degrees `d`. */
static lh_status read_zero(const lhi_titan *t, lhi_imported_job *in,
                           const data_degrees *d, lh_error *err)
{
    static const char *const policies[] = {"default", "always", "never", NULL};
    const lh_layout *l = &in->layout;
    uint32_t policy = 0;
    LHI_TRY(lhi_titan_get_choice(t, LHI_TITAN_RESHARD, policies, &policy, err));
    const bool reshards = policy == 1 || (policy == 0 && l->pipeline == 1);
    in->training.zero_given = true;
    in->training.zero = d->shard == 1 && l->context == 1 ? 0 : reshards ? 3 : 2;
    /* ZeRO 2 and 3 communicate layer by layer, with one chunk as with several.
     */
    if (l->pipeline == 1 && in->training.zero >= 2) {
        in->layout.chunks_per_device = 1;
        in->layout.schedule = "1f1b";
    }
    in->instances = d->replicate;
    in->instances_key = t->form == LHI_TITAN_TOML
                            ? "parallelism.data_parallel_replicate_degree"
                            : "--parallelism.data_parallel_replicate_degree";
    return LH_OK;
}

/* Reads the activation checkpoint mode, with a note that selective modes are
 * modelled differently. */
static lh_status read_recompute(const lhi_titan *t, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const kinds[] = {
        "none", "full", "selective", "memory_budget", "memory-budget", NULL};
    const char *const key = t->form == LHI_TITAN_TOML
                                ? "activation_checkpoint.mode"
                                : "activation-checkpoint";
    const char *nth = lhi_titan_get_string(t, LHI_TITAN_AC_OPTION);
    uint32_t kind = 2;
    LHI_TRY(lhi_titan_get_choice(t, LHI_TITAN_AC_MODE, kinds, &kind, err));
    if (t->form == LHI_TITAN_TOML && !nth)
        nth = "2";
    if (kind == 2 && nth && strcmp(nth, "1") == 0)
        kind = 1;
    in->training.recompute_given = true;
    in->training.recompute = kind == 0   ? LH_RECOMPUTE_NONE
                             : kind == 1 ? LH_RECOMPUTE_FULL
                                         : LH_RECOMPUTE_SELECTIVE;
    if (kind < 2)
        return LH_OK;
    in->target = LH_TARGET_ANY;
    const char *const as =
        in->model.kv_lora_rank
            ? "is modelled as recomputation of norms and activation functions"
            : "is modelled as recomputation of every second product";
    if (kind > 2)
        lhi_import_note(in, "%s: %s, for any budget", key, as);
    else if (nth && strcmp(nth, "op") != 0)
        lhi_import_note(in, "%s: %s, not of every %.20s. layer as a whole", key,
                        as, nth);
    else if (in->model.kv_lora_rank)
        lhi_import_note(in,
                        "%s: %s; torchtitan also recomputes about half of the "
                        "matrix products, which takes longer and needs less "
                        "memory",
                        key, as);
    return LH_OK;
}

/* Checks whether PyTorch's interleaved schedules accept n microbatches on
 * `ranks` ranks: they divide into n / ranks equal rounds, or one round if there
 * are fewer. */
static bool has_equal_rounds(uint32_t n, uint32_t ranks)
{
    return n % (n < ranks ? 1 : n / ranks) == 0;
}

/* Checks that a named interleaved schedule has rounds of equal size, which
 * PyTorch's ScheduleInterleaved1F1B requires.
 * LH_EINPUT: it does not; `err` suggests other microbatch counts. */
static lh_status check_rounds(const lhi_titan *t, const lhi_imported_job *in,
                              uint32_t n, lh_error *err)
{
    const lh_layout *l = &in->layout;
    const char *csv = lhi_titan_get_string(t, LHI_TITAN_SCHEDULE_CSV);
    uint32_t less = n, more = n;
    if (l->pipeline == 1 || (csv && *csv) ||
        strcmp(l->schedule, "interleaved-1f1b") != 0 ||
        has_equal_rounds(n, l->pipeline))
        return LH_OK;
    while (!has_equal_rounds(less, l->pipeline))
        less--;
    while (!has_equal_rounds(more, l->pipeline))
        more++;
    return lhi_titan_fail(t, LHI_TITAN_LOCAL_BATCH, LH_EINPUT, err,
                          "gives %u microbatches, which PyTorch's interleaved "
                          "schedules cannot divide over %u ranks into %u equal "
                          "rounds; use %u or %u",
                          n, l->pipeline, n / l->pipeline, less, more);
}

/* Reads the sequence length and the batch sizes. Notes that the pipeline is
 * modelled as filled once, not once per local batch.
 * LH_EINPUT: one batch size does not divide another. */
static lh_status read_batch(const lhi_titan *t, lhi_imported_job *in,
                            lh_error *err)
{
    lh_layout *l = &in->layout;
    uint32_t local = 8, global = 0, at_a_time = 1;
    in->training.sequence = 2048;
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_SEQUENCE, 1, LHI_MAX_VOCAB,
                                  &in->training.sequence, err));
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_LOCAL_BATCH, 1, 1u << 20, &local,
                                  err));
    LHI_TRY(lhi_titan_get_optional_integer(t, LHI_TITAN_GLOBAL_BATCH, &global,
                                           err));
    LHI_TRY(lhi_titan_get_integer(t, LHI_TITAN_MICROBATCH, 1, LHI_MAX_DEGREE,
                                  &at_a_time, err));
    const uint64_t share = (uint64_t)local * l->data;
    if (!global && share <= 1u << 30)
        global = (uint32_t)share;
    if (!global || global % share != 0)
        return lhi_titan_fail(t, LHI_TITAN_GLOBAL_BATCH, LH_EINPUT, err,
                              "%u is not a multiple of local_batch_size %u x "
                              "data parallelism %u",
                              global, local, l->data);
    if (l->pipeline > 1 && local % at_a_time != 0)
        return lhi_titan_fail(t, LHI_TITAN_MICROBATCH, LH_EINPUT, err,
                              "%u does not divide local_batch_size %u",
                              at_a_time, local);
    LHI_TRY(check_rounds(t, in, local / at_a_time, err));
    l->micro_batch = l->pipeline > 1 ? at_a_time : local;
    if (l->micro_batch > LHI_MAX_DEGREE)
        return lhi_titan_fail(t, LHI_TITAN_LOCAL_BATCH, LH_EUNSUPPORTED, err,
                              "%u sequences at a time exceed the limit of %u",
                              local, LHI_MAX_DEGREE);
    in->training.global_batch = global;
    if (l->pipeline > 1 && global / share > 1)
        lhi_import_note(in,
                        "%straining.global_batch_size: modelled as one "
                        "pipeline of all microbatches; torchtitan fills and "
                        "drains it %u times",
                        find_key_prefix(t), (uint32_t)(global / share));
    return LH_OK;
}

/* Reads the training settings: precision, optimizer, ZeRO stage, recomputation
 * and batch. */
static lh_status read_training(const lhi_titan *t, lhi_imported_job *in,
                               const data_degrees *d, lh_error *err)
{
    static const char *const precisions[] = {"bfloat16", "float32", NULL};
    static const char *const optimizers[] = {"AdamW", "Adam", NULL};
    uint32_t precision = 0, optimizer = 0;
    LHI_TRY(lhi_titan_get_choice(t, LHI_TITAN_PRECISION, precisions, &precision,
                                 err));
    LHI_TRY(lhi_titan_get_choice(t, LHI_TITAN_OPTIMIZER, optimizers, &optimizer,
                                 err));
    in->training.precision = precision ? LH_PRECISION_FP32 : LH_PRECISION_BF16;
    in->training.optimizer = LH_OPTIMIZER_ADAMW;
    in->training.dropout_given = true;
    LHI_TRY(read_zero(t, in, d, err));
    LHI_TRY(read_recompute(t, in, err));
    return read_batch(t, in, err);
}

/* --- framework ------------------------------------------------------------ */

/* Reads from the model converters whether matrix products use FP8, and notes or
 * ignores the given keys that depend on it. With FP8 plans are not limited to
 * torchtitan. */
static lh_status read_converters(lhi_titan *t, lhi_imported_job *in,
                                 lh_error *err)
{
    const lhi_input_value *given = &t->keys[LHI_TITAN_CONVERTERS];
    static const char *const known[] = {
        "float8", "quantize.linear.float8", "quantize.grouped_mm.float8",
        "mx",     "quantize.linear.mx",     "quantize.grouped_mm.mx",
        NULL};
    for (uint32_t i = 0; i < given->n; i++) {
        uint32_t k = 0;
        while (known[k] && strcmp(known[k], given->values[i].text) != 0)
            k++;
        if (!known[k])
            return lhi_titan_fail(t, LHI_TITAN_CONVERTERS, LH_EUNSUPPORTED, err,
                                  "'%.60s' is not supported; use "
                                  "quantize.linear.float8, or remove it",
                                  given->values[i].text);
        t->uses_fp8 = true;
    }
    for (uint32_t i = 0; i < t->n_fp8_notes; i++) {
        if (t->uses_fp8)
            lhi_import_note(in, "%s: %s", t->fp8_notes[i]->name,
                            t->fp8_notes[i]->why);
        else
            lhi_import_ignore(in, t->fp8_notes[i]->name);
    }
    if (!t->uses_fp8)
        return LH_OK;
    in->framework.fp8 = LH_FP8_MATMUL;
    in->target = in->plan_for = LH_TARGET_ANY;
    lhi_import_note(in,
                    "%s: all matrix products are modelled in 8 bits; "
                    "longhaul's torchtitan plans do not support this, so the "
                    "plan is not limited to torchtitan",
                    t->form == LHI_TITAN_TOML ? "model.converters"
                                              : "--config");
    return LH_OK;
}

/* Checks whether a component of the program, "model" or "loss", is compiled. */
static bool is_compiled(const lhi_titan *t, const char *component)
{
    const lhi_input_value *parts = &t->keys[LHI_TITAN_COMPONENTS];
    bool listed = !parts->is_given;
    for (uint32_t i = 0; i < parts->n; i++)
        listed = listed || strstr(parts->values[i].text, component);
    return listed && lhi_titan_get_bool(t, LHI_TITAN_COMPILE, false);
}

/* Reads which parts are compiled and the attention kernel into `f`; without a
 * named configuration, unknown settings keep their defaults. Configurations of
 * torchtitan 0.3 split the loss into chunks and prefer cuDNN's attention; those
 * of 0.2 do neither. */
static void read_kernels(const lhi_titan *t, lh_framework *f)
{
    const bool toml = t->form == LHI_TITAN_TOML;
    const bool named =
        !lhi_titan_is_exported(t) &&
        lhi_titan_is_given(t, toml ? LHI_TITAN_FLAVOR : LHI_TITAN_CONFIG);
    if ((named || lhi_titan_is_given(t, LHI_TITAN_COMPILE)) &&
        !is_compiled(t, "model"))
        f->kernels = LH_KERNELS_EAGER;
    if (!named)
        return;
    if (!toml)
        f->loss = LH_LOSS_CHUNKED;
    else if (!is_compiled(t, "loss"))
        f->loss = LH_LOSS_EAGER;
    if (toml)
        f->attention = LH_ATTENTION_FLASH_2;
}

/* Reads the experts' token dispatcher. With DeepEP plans are not limited to
 * torchtitan, with a note. */
static lh_status read_dispatcher(lhi_titan *t, lhi_imported_job *in,
                                 lh_error *err)
{
    static const char *const backends[] = {"standard", "deepep", NULL};
    uint32_t backend = 0;
    LHI_TRY(lhi_titan_get_choice(t, LHI_TITAN_EXPERT_BACKEND, backends,
                                 &backend, err));
    if (!in->model.experts || in->layout.expert == 1 ||
        !(backend == 1 || t->deepep))
        return LH_OK;
    in->training.dispatcher = LH_DISPATCHER_DEEPEP;
    in->target = in->plan_for = LH_TARGET_ANY;
    lhi_import_note(in,
                    "%s: longhaul's torchtitan plans do not support DeepEP, so "
                    "the plan is not limited to torchtitan",
                    t->form == LHI_TITAN_TOML
                        ? "parallelism.expert_parallel_comm_backend"
                        : "--config");
    return LH_OK;
}

/* Hidden fraction of tensor-parallel communication, beyond the copies that
 * asynchronous tensor parallelism saves: docs/validation.md. */
static const double ASYNC_OVERLAP = 0.1;

/* Reads the framework settings: sequence parallelism, asynchronous tensor
 * parallelism, compilation, dispatcher and converters. */
static lh_status read_framework(lhi_titan *t, lhi_imported_job *in,
                                lh_error *err)
{
    lh_framework *f = &in->framework;
    const bool asynchronous =
        lhi_titan_get_bool(t, LHI_TITAN_ASYNC_TENSOR, false) ||
        lhi_titan_get_bool(t, LHI_TITAN_ASYNC_TENSOR_TOML, false);
    f->given = true;
    f->preset = LH_FRAMEWORK_TORCHTITAN;
    f->no_sequence_parallel =
        in->layout.tensor > 1 &&
        !lhi_titan_get_bool(t, LHI_TITAN_SEQUENCE_PARALLEL, true);
    f->overlap_tensor =
        asynchronous && in->layout.tensor > 1 ? ASYNC_OVERLAP : 0;
    if (f->overlap_tensor > 0)
        lhi_import_note(in,
                        "%s%s.enable_async_tensor_parallel: modelled as in "
                        "published runs, with little overlap; raise "
                        "framework.overlap.tensor if more is hidden",
                        find_key_prefix(t),
                        t->form == LHI_TITAN_TOML ? "parallelism" : "compile");
    read_kernels(t, f);
    LHI_TRY(read_dispatcher(t, in, err));
    return read_converters(t, in, err);
}

/* Reads torchtitan's TOML file or command line into an imported job: model,
 * degrees, stages, training and framework. */
lh_status lhi_import_torchtitan_text(const char *text, size_t len,
                                     const char *name,
                                     const lh_import_options *options,
                                     lhi_imported_job *in, lh_error *err)
{
    data_degrees d;
    lhi_titan *t = LHI_NEW(in->mem, lhi_titan, 1);
    if (!t)
        return lhi_fail_nomem(err);
    in->target = in->plan_for = LH_TARGET_TORCHTITAN;
    LHI_TRY(lhi_titan_read(text, len, name, in, t, err));
    in->source_name = t->form == LHI_TITAN_TOML ? "torchtitan TOML (0.2)"
                                                : "torchtitan options (0.3)";
    LHI_TRY(lhi_titan_add_origins(t, in, err));
    LHI_TRY(lhi_titan_build_model(t, in, options, err));
    LHI_TRY(read_degrees(t, in, options, &d, err));
    LHI_TRY(lhi_titan_build_stages(t, in, options, err));
    LHI_TRY(read_training(t, in, &d, err));
    if (in->model.mtp_layers)
        in->target = in->plan_for = LH_TARGET_ANY;
    return read_framework(t, in, err);
}
