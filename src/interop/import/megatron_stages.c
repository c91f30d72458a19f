/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of each pipeline stage in Megatron-LM: arguments.py,
 * transformer_config.py, transformer_block.py (get_num_layers_to_build) and
 * pipeline_parallel_layer_layout.py (core 0.16.1). Stage k is on rank k mod PP.
 */
#include "interop/import/megatron_internal.h"

#include <string.h>

/* --- layout string -------------------------------------------------------- */

/* The parsed layout string: "Et*3|(tt|)*29,m|L". */
typedef struct stages {
    uint32_t *layers; /* per stage */
    uint32_t n, most, mtp;
    uint32_t mtp_stage; /* stage of the first m, 1-based */
    uint32_t decoders;
    bool embedding, loss;
    const char *wrong; /* error, or NULL */
} stages;

/* Adds the layout letter `kind` of --pipeline-model-parallel-layout to the
 * stages: | next stage, E embedding, t decoder layer, m prediction layer, L
 * loss. Sets s->wrong on an error. */
static void add_letter(stages *s, char kind)
{
    switch (kind) {
    case '|':
        if (s->n == s->most)
            s->wrong = "has more stages than layers";
        else
            s->layers[s->n++] = 0;
        break;
    case 'E':
        if (s->embedding || s->decoders || s->n > 1)
            s->wrong = "has E after its beginning";
        s->embedding = true;
        break;
    case 't':
        if (s->mtp || s->loss)
            s->wrong = "has t after m or L";
        s->layers[s->n - 1]++;
        s->decoders++;
        break;
    case 'm':
        if (s->loss)
            s->wrong = "has m after L";
        else if (s->mtp && s->mtp_stage != s->n)
            s->wrong = "has m in more than one stage";
        s->mtp_stage = s->n;
        s->mtp++;
        break;
    case 'L':
        if (s->loss)
            s->wrong = "has L twice";
        s->loss = true;
        break;
    default:
        s->wrong = "has letters other than E, t, m and L";
        break;
    }
}

/* Reads a repeat count such as "*3" and advances *at past it; returns 1 if
 * there is none. */
static uint32_t read_repeat_count(const char **at)
{
    uint32_t n = 0;
    if (**at != '*')
        return 1;
    for (++*at; **at >= '0' && **at <= '9'; ++*at)
        n = n > LHI_MAX_LAYERS ? n : 10 * n + (uint32_t)(**at - '0');
    return n;
}

/* Adds to `s` a layout string's letters from `at` up to `end` (NULL: up to the
 * string's end), each as often as its repeat count gives: "t*3" adds
 * three decoder layers. Stops at the first error and stores it in s->wrong. */
static void add_letters(stages *s, const char *at, const char *end)
{
    while (!s->wrong && at != end && *at) {
        char kind = *at++;
        if (kind == ',')
            continue;
        for (uint32_t n = read_repeat_count(&at); n > 0 && !s->wrong; n--)
            add_letter(s, kind);
        if (s->decoders > LHI_MAX_LAYERS || s->mtp > LHI_MAX_LAYERS)
            s->wrong = "has more layers than longhaul supports";
    }
}

/* Reads a whole layout such as "Et|(tt|)*4mL" into stages. Errors are in
 * s->wrong. */
static void read_layout_string(stages *s, const char *at)
{
    s->layers[s->n++] = 0;
    while (*at && !s->wrong) {
        const size_t plain = strcspn(at, "(");
        add_letters(s, at, at + plain);
        at += plain;
        if (*at != '(' || s->wrong)
            continue;
        const char *first = at + 1, *end = strchr(first, ')');
        if (!end) {
            s->wrong = "has a ( without )";
            return;
        }
        at = end + 1;
        if (*at != '*') {
            s->wrong = "has a ) without a following *N";
            return;
        }
        for (uint32_t n = read_repeat_count(&at); n > 0 && !s->wrong; n--)
            add_letters(s, first, end);
    }
    if (!s->wrong && (!s->embedding || !s->loss))
        s->wrong =
            s->embedding ? "has no L at its end" : "does not begin with E";
}

/* Reads the layers of each stage and the prediction layers' stage from
 * --pipeline-model-parallel-layout.
 * LH_EINPUT: the layout does not match the model or the ranks. */
static lh_status read_layout_stages(const lhi_megatron *m, lhi_imported_job *in,
                                    stages *s, lh_error *err)
{
    const lhi_megatron_key key = LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT;
    const lh_model *model = &in->model;
    read_layout_string(s, m->args[key].values[0].text);
    if (s->wrong)
        return lhi_arg_fail(m, key, LH_EINPUT, err, "'%.60s' %s",
                            m->args[key].values[0].text, s->wrong);
    if (s->decoders != model->layers || s->mtp != model->mtp_layers)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "has %u t and %u m; the model has %u layers and %u "
                            "multi-token prediction layers",
                            s->decoders, s->mtp, model->layers,
                            model->mtp_layers);
    if (s->n % in->layout.pipeline != 0)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "has %u stages, not a multiple of "
                            "--pipeline-model-parallel-size %u",
                            s->n, in->layout.pipeline);
    in->layout.chunks_per_device = s->n / in->layout.pipeline;
    if (!s->mtp || s->mtp_stage == s->n)
        return LH_OK;
    if (s->mtp_stage + in->layout.pipeline <= s->n)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "has m in stage %u of %u; Megatron-LM allows it "
                            "only in the last %u stages, the last one of each "
                            "rank",
                            s->mtp_stage - 1, s->n, in->layout.pipeline);
    in->layout.mtp_chunk = s->mtp_stage - 1;
    return LH_OK;
}

/* --- hybrid models --- */

/* Reads each stage's layers from the '|' in a hybrid model's pattern.
 * LH_EINPUT: their number is not a multiple of the ranks. */
static lh_status read_pattern_stages(const lhi_megatron *m,
                                     lhi_imported_job *in, stages *s,
                                     lh_error *err)
{
    const lhi_megatron_key key = lhi_megatron_pattern_key(m);
    const char *at = m->args[key].values[0].text;
    s->layers[s->n++] = 0;
    for (; *at && *at != '/'; at++) {
        if (*at != '|')
            s->layers[s->n - 1]++;
        else if (s->n == s->most)
            return lhi_arg_fail(m, key, LH_EINPUT, err,
                                "has more stages than layers");
        else
            s->layers[s->n++] = 0;
    }
    if (s->n % in->layout.pipeline != 0)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "has %u stages, not a multiple of "
                            "--pipeline-model-parallel-size %u",
                            s->n, in->layout.pipeline);
    in->layout.chunks_per_device = s->n / in->layout.pipeline;
    return LH_OK;
}

/* Checks whether a hybrid model's pattern divides the layers into stages. */
static bool has_pattern_stages(const lhi_megatron *m)
{
    const lhi_megatron_key key = lhi_megatron_pattern_key(m);
    return lhi_arg_is_given(m, key) &&
           strchr(m->args[key].values[0].text, '|') != NULL;
}

/* --- layer counts --------------------------------------------------------- */

/* The layers' division by counts. */
typedef struct split {
    uint32_t pipeline, virtual_stages;
    uint32_t first, last; /* layers of the first and last rank; 0: like the
                           * others */
    bool embedding, loss; /* count as a layer */
} split;

/* Reads the arguments that divide the layers over ranks and virtual stages into
 * `s`: layers of the first and last rank, stages per rank, layers per stage,
 * and whether embedding and loss count as layers. */
static lh_status read_split(const lhi_megatron *m, const lhi_imported_job *in,
                            split *s, lh_error *err)
{
    const uint32_t most = in->model.layers;
    *s = (split){.pipeline = in->layout.pipeline,
                 .virtual_stages = 1,
                 .embedding = lhi_arg_is_given(
                     m, LHI_ARG_ACCOUNT_FOR_EMBEDDING_IN_PIPELINE_SPLIT),
                 .loss = lhi_arg_is_given(
                     m, LHI_ARG_ACCOUNT_FOR_LOSS_IN_PIPELINE_SPLIT)};
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_DECODER_FIRST_PIPELINE_NUM_LAYERS, 1,
                                most, &s->first, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_DECODER_LAST_PIPELINE_NUM_LAYERS, 1,
                                most, &s->last, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK,
                                1, most + 2, &s->virtual_stages, err));
    if ((s->first || s->last) && (s->embedding || s->loss))
        return lhi_fail(err, LH_EINPUT,
                        "%s: --decoder-first- and "
                        "--decoder-last-pipeline-num-layers cannot be combined "
                        "with --account-for-...-in-pipeline-split",
                        m->file);
    uint32_t of_each = 0;
    const lhi_megatron_key key = LHI_ARG_NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE;
    LHI_TRY(lhi_arg_get_integer(m, key, 1, most, &of_each, err));
    if (of_each == 0)
        return LH_OK;
    const uint32_t layers = most + s->embedding + s->loss;
    if (s->first || s->last)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "cannot be combined with uneven ranks; use "
                            "--num-virtual-stages-per-pipeline-rank");
    if (layers % s->pipeline || layers / s->pipeline % of_each)
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "%u layers on %u ranks are not divisible into "
                            "stages of %u",
                            layers, s->pipeline, of_each);
    s->virtual_stages = layers / s->pipeline / of_each;
    return LH_OK;
}

/* Fails because layers cannot be divided evenly over ranks and virtual stages.
 */
static lh_status fail_unequal_split(const lhi_megatron *m,
                                    const lhi_imported_job *in, const split *s,
                                    lh_error *err)
{
    return lhi_arg_fail(
        m, LHI_ARG_PIPELINE_MODEL_PARALLEL_SIZE, LH_EINPUT, err,
        "%u layers are not divisible into %u ranks of %u stages%s",
        in->model.layers, s->pipeline, s->virtual_stages,
        s->first || s->last       ? ", with the first and last as given"
        : s->embedding || s->loss ? ", with embedding or loss counted"
                                  : "");
}

/* Computes each stage's layers from the rank and virtual stage counts, and
 * from the layers of the first and last rank. LH_EINPUT: the division is
 * uneven. */
static lh_status compute_stages(const lhi_megatron *m, lhi_imported_job *in,
                                const split *s, uint32_t *layers, lh_error *err)
{
    const uint32_t v = s->virtual_stages;
    uint32_t ranks = s->pipeline - (s->first > 0) - (s->last > 0);
    uint32_t left = in->model.layers + s->embedding + s->loss;
    if ((uint64_t)s->first + s->last > left || s->first % v || s->last % v)
        return fail_unequal_split(m, in, s, err);
    left -= s->first + s->last;
    if ((ranks == 0) != (left == 0) ||
        (ranks && (left % ranks || left / ranks % v)))
        return fail_unequal_split(m, in, s, err);
    const uint32_t each = ranks ? left / ranks / v : 0;
    for (uint32_t i = 0; i < s->pipeline * v; i++) {
        uint32_t rank = i % s->pipeline;
        layers[i] = rank == 0 && s->first                ? s->first / v
                    : rank + 1 == s->pipeline && s->last ? s->last / v
                                                         : each;
    }
    layers[0] -= s->embedding;
    layers[s->pipeline * v - 1] -= s->loss;
    in->layout.chunks_per_device = v;
    return LH_OK;
}

/* --- several ranks -------------------------------------------------------- */

/* Counts the given arguments among the three that define virtual stages; more
 * than one is an error. */
static uint32_t count_virtual_stage_arguments(const lhi_megatron *m)
{
    return (uint32_t)lhi_arg_is_given(
               m, LHI_ARG_NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE) +
           lhi_arg_is_given(m, LHI_ARG_NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK) +
           lhi_arg_is_given(m, LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT);
}

/* --- one rank ------------------------------------------------------------- */

/* Checks that no argument is given that requires several pipeline ranks, for a
 * job with one rank. */
static lh_status check_one_rank(const lhi_megatron *m, lh_error *err)
{
    static const lhi_megatron_key several[] = {
        LHI_ARG_NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE,
        LHI_ARG_NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK,
        LHI_ARG_DECODER_FIRST_PIPELINE_NUM_LAYERS,
        LHI_ARG_DECODER_LAST_PIPELINE_NUM_LAYERS,
        LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT};
    for (size_t i = 0; i < sizeof several / sizeof *several; i++)
        if (lhi_arg_is_given(m, several[i]))
            return lhi_arg_fail(m, several[i], LH_EINPUT, err,
                                "requires --pipeline-model-parallel-size above "
                                "1");
    return LH_OK;
}

/* Adds a note for each given argument about gradient buckets (number or size):
 * buckets are modelled differently, in the way that the text `costed`
 * describes. */
static void note_buckets(const lhi_megatron *m, lhi_imported_job *in,
                         const char *costed)
{
    static const lhi_megatron_key keys[] = {LHI_ARG_DDP_NUM_BUCKETS,
                                            LHI_ARG_DDP_BUCKET_SIZE};
    static const char *const names[] = {"num-buckets", "bucket-size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (lhi_arg_is_given(m, keys[i]))
            lhi_import_note(in, "--ddp-%s: %s", names[i], costed);
}

/* Estimates the gradient bucket count from their size. The default size is the
 * larger of 40 million parameters and one million per replica, where
 * context-parallel ranks count as replicas. */
static lh_status estimate_bucket_count(const lhi_megatron *m,
                                       lhi_imported_job *in, lh_error *err)
{
    lh_layout *l = &in->layout;
    const double replicas = (double)l->data * l->context;
    const uint32_t layers = in->model.layers;
    double size = replicas > 40 ? 1e6 * replicas : 40e6, given = 0;
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_DDP_BUCKET_SIZE, 0, 1e18, &given, err));
    if (given >= 1)
        size = given;
    const double n = lhi_layout_count_all_params(&in->model, l) / size;
    l->chunks_per_device = n <= 1 ? 1 : n >= layers ? layers : (uint32_t)n;
    if (replicas > 1)
        lhi_import_note(in,
                        "--overlap-grad-reduce: gradients are modelled in %u "
                        "bucket%s, estimated from parameters and bucket size; "
                        "set the number with --ddp-num-buckets",
                        l->chunks_per_device,
                        l->chunks_per_device > 1 ? "s of layers" : "");
    return LH_OK;
}

/* Reads the number of gradient buckets for a job with a single stage: the model
 * is then cut into as many chunks, whose reductions overlap with passes; 1 if
 * nothing overlaps. */
static lh_status read_buckets(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    lh_layout *l = &in->layout;
    l->chunks_per_device = 1;
    if (!lhi_arg_is_given(m, LHI_ARG_OVERLAP_GRAD_REDUCE))
        return LH_OK;
    if (in->training.zero == 3 &&
        !lhi_arg_is_given(m, LHI_ARG_DDP_NUM_BUCKETS)) {
        note_buckets(m, in,
                     "parameters and gradients are modelled layer by layer");
        return LH_OK;
    }
    if (!lhi_arg_is_given(m, LHI_ARG_DDP_NUM_BUCKETS))
        return estimate_bucket_count(m, in, err);
    if (lhi_arg_is_given(m, LHI_ARG_DDP_BUCKET_SIZE))
        return lhi_arg_fail(m, LHI_ARG_DDP_BUCKET_SIZE, LH_EINPUT, err,
                            "cannot be combined with --ddp-num-buckets");
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_DDP_NUM_BUCKETS, 1, 1u << 20,
                                &l->chunks_per_device, err));
    if (l->chunks_per_device > in->model.layers) {
        l->chunks_per_device = in->model.layers;
        lhi_import_note(in, "--ddp-num-buckets: gradients are modelled in "
                            "whole-layer buckets, one per layer");
    }
    return LH_OK;
}

/* --- pipeline ------------------------------------------------------------- */

/* Reads the stage count per rank and each stage's layers, for several ranks. */
static lh_status read_pipeline_stages(const lhi_megatron *m,
                                      lhi_imported_job *in, lh_error *err)
{
    lh_layout *l = &in->layout;
    split s;
    LHI_TRY(read_split(m, in, &s, err));
    const uint64_t most = in->model.layers + UINT64_C(2);
    const uint64_t wanted = (uint64_t)s.pipeline * s.virtual_stages;
    stages text = {.most = (uint32_t)most};
    text.layers = LHI_NEW(in->mem, uint32_t, most);
    if (!text.layers)
        return lhi_fail_nomem(err);
    if (lhi_arg_is_given(m, LHI_ARG_PIPELINE_MODEL_PARALLEL_LAYOUT))
        LHI_TRY(read_layout_stages(m, in, &text, err));
    else if (has_pattern_stages(m))
        LHI_TRY(read_pattern_stages(m, in, &text, err));
    else if (wanted > most)
        return fail_unequal_split(m, in, &s, err);
    else
        LHI_TRY(compute_stages(m, in, &s, text.layers, err));
    l->n_chunk_layers = l->pipeline * l->chunks_per_device;
    l->chunk_layers = text.layers;
    return LH_OK;
}

lh_status lhi_megatron_build_stages(const lhi_megatron *m, lhi_imported_job *in,
                                    lh_error *err)
{
    lh_layout *l = &in->layout;
    if (count_virtual_stage_arguments(m) > 1)
        return lhi_fail(err, LH_EINPUT,
                        "%s: --num-layers-per-virtual-pipeline-stage, "
                        "--num-virtual-stages-per-pipeline-rank and "
                        "--pipeline-model-parallel-layout cannot be combined",
                        m->file);
    if (has_pattern_stages(m) &&
        (count_virtual_stage_arguments(m) ||
         lhi_arg_is_given(m, LHI_ARG_DECODER_FIRST_PIPELINE_NUM_LAYERS) ||
         lhi_arg_is_given(m, LHI_ARG_DECODER_LAST_PIPELINE_NUM_LAYERS)))
        return lhi_arg_fail(m, lhi_megatron_pattern_key(m), LH_EINPUT, err,
                            "its stages cannot be combined with other "
                            "arguments that divide layers into stages");
    if (l->pipeline == 1) {
        LHI_TRY(check_one_rank(m, err));
        LHI_TRY(read_buckets(m, in, err));
    } else {
        LHI_TRY(read_pipeline_stages(m, in, err));
        note_buckets(m, in,
                     "in a pipeline, each stage's gradients are modelled as "
                     "one bucket");
    }
    l->schedule = l->chunks_per_device > 1 ? "interleaved-1f1b" : "1f1b";
    return LH_OK;
}
