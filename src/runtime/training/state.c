/* SPDX-License-Identifier: Apache-2.0 */
/* state.json: describes a checkpoint and holds the checksums of all its
 * content. */
#include "base/fail.h"
#include "base/json_input.h"
#include "runtime/training/train_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

size_t lhi_checksum_index(uint32_t index, uint32_t replicas, uint32_t n_moments)
{
    return (size_t)index * (1 + n_moments * (size_t)replicas);
}

size_t lhi_train_count_checksums(const lhi_train *train)
{
    return lhi_checksum_index(train->n_tensors,
                              lhi_count_checkpoint_pieces(train),
                              lhi_count_moments(train));
}

/* Converts an integral double, such as a checksum, to a JSON integer. */
static json_t *make_json_integer(double x)
{
    return json_integer((json_int_t)x);
}

/* Formats `n` checksums as a JSON list of integers; NULL: out of memory. */
static json_t *format_list(const double *sums, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, make_json_integer(sums[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Formats the checksums of all tensors in `sums` as a JSON object by tensor
 * name; NULL: out of memory. */
static json_t *format_sums(const lhi_train *train, const double *sums)
{
    const lh_model *model = train->o.model;
    uint32_t replicas = lhi_count_checkpoint_pieces(train),
             n = lhi_count_moments(train);
    json_t *all = json_object();
    lhi_checkpoint_tensor t;
    for (uint32_t i = 0; all && i < lhi_checkpoint_count_tensors(model); i++) {
        const double *at = sums + lhi_checksum_index(i, replicas, n);
        if (!lhi_checkpoint_get_tensor(model, i, &t))
            continue;
        json_t *item = json_pack("[o]", make_json_integer(at[0]));
        for (uint32_t k = 0; item && k < n; k++)
            if (json_array_append_new(
                    item, format_list(at + 1 + k * replicas, replicas)) != 0) {
                json_decref(item);
                item = NULL;
            }
        if (json_object_set_new(all, t.name, item) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* Releases a partly built JSON object `shape`; always returns NULL, for callers
 * that fail. */
static json_t *free_shape(json_t *shape)
{
    json_decref(shape);
    return NULL;
}

/* Adds the model dimensions that only some families have to the JSON object
 * `shape`; a field that Llama's value equals is left out. NULL: out of memory,
 * `shape` is released. */
static json_t *add_family_fields(json_t *shape, const lh_model *m)
{
    const struct {
        const char *key;
        uint32_t value;
    } more[] = {
        {"layer_norm", m->norm == LH_NORM_LAYER},
        {"no_gate", !m->gated},
        {"qkv_bias", m->qkv_bias},
        {"output_bias", m->output_bias},
        {"mlp_bias", m->mlp_bias},
        {"positions", m->positions},
        {"experts", m->experts},
        {"experts_per_token", m->experts ? m->experts_per_token : 0},
        {"expert_ffn", m->experts ? m->expert_ffn : 0},
        {"parallel_block", m->parallel_block},
        {"qk_norm", m->qk_norm},
        {"q_lora_rank", m->kv_lora_rank ? m->q_lora_rank : 0},
        {"kv_lora_rank", m->kv_lora_rank},
        {"qk_rope_head_dim", m->kv_lora_rank ? m->qk_rope_head_dim : 0},
        {"v_head_dim", m->kv_lora_rank ? m->v_head_dim : 0},
        {"shared_expert_ffn", m->experts ? m->shared_expert_ffn : 0},
        {"shared_expert_gate", m->experts && m->shared_expert_gate},
        {"sigmoid_router", m->experts && m->router == LH_ROUTER_SIGMOID},
        {"raw_shares", m->experts && m->unnormalised_scores},
        {"expert_groups", m->experts ? m->expert_groups : 0},
        {"groups_per_token", m->experts ? m->groups_per_token : 0},
        {"mtp_layers", m->mtp_layers},
    };
    for (size_t i = 0; shape && i < sizeof more / sizeof *more; i++)
        if (more[i].value &&
            json_object_set_new(shape, more[i].key,
                                json_integer(more[i].value)) != 0)
            return free_shape(shape);
    if (shape && m->experts && m->routed_scale > 0 &&
        json_object_set_new(shape, "routed_scale",
                            json_real(m->routed_scale)) != 0)
        return free_shape(shape);
    return shape;
}

/* Formats the model's dimensions as a JSON object; a checkpoint can be loaded
 * only if they are equal. NULL: out of memory. */
static json_t *format_model(const lh_model *model,
                            const lhi_checkpoint_options *options)
{
    json_t *shape = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:f}", "layers",
        (int)model->layers, "hidden", (int)model->hidden, "ffn",
        (int)model->ffn, "vocab", (int)model->vocab, "heads", (int)model->heads,
        "kv_heads", (int)model->kv_heads, "head_dim", (int)model->head_dim,
        "tied_embeddings", (int)model->tied_embeddings, "norm_epsilon",
        options->norm_epsilon > 0 ? options->norm_epsilon : 1e-5, "rope_theta",
        options->rope_theta > 0 ? options->rope_theta : 10000.0);
    return add_family_fields(shape, model);
}

/* Returns the checksum over all fields of a checkpoint description except
 * "check", which stores it; negative: out of memory. */
static double compute_check(json_t *root)
{
    double sum = -1;
    json_t *copy = json_copy(root);
    char *text = NULL;
    if (copy) {
        json_object_del(copy, "check");
        text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
        json_decref(copy);
    }
    if (text)
        sum = lhi_checksum(text, strlen(text));
    free(text);
    return sum;
}

const char *const lhi_auxiliary_files[] = {LHI_CONFIG_FILE, LHI_TOKENIZER_FILE};

/* Formats the checksums of the auxiliary files (config.json, tokenizer) in
 * `sides` as a JSON object by file name; NULL: out of memory. */
static json_t *format_auxiliary(const double *sides)
{
    json_t *all = json_object();
    for (int i = 0; all && i < LHI_N_AUXILIARY_FILES; i++)
        if (sides[i] >= 0 &&
            json_object_set_new(all, lhi_auxiliary_files[i],
                                make_json_integer(sides[i])) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

lh_status lhi_checkpoint_state_format(const lhi_train *train,
                                      const lhi_checkpoint_options *options,
                                      const double *sums, const double *sides,
                                      char **text, lh_error *err)
{
    const lh_model *model = train->o.model;
    json_t *root =
        json_pack("{s:s, s:I, s:i, s:o, s:o, s:o}", "longhaul",
                  LHI_CHECKPOINT_FORMAT, "step", (json_int_t)train->step,
                  "replicas", (int)lhi_count_checkpoint_pieces(train), "model",
                  format_model(model, options), "sums",
                  format_sums(train, sums), "files", format_auxiliary(sides));
    bool complete =
        root && (!options->recipe || lhi_recipe_format(options->recipe, root));
    double check = complete ? compute_check(root) : -1;
    char *made = NULL;
    if (check >= 0 &&
        json_object_set_new(root, "check", make_json_integer(check)) == 0)
        made = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(root);
    if (!made)
        return lhi_fail_nomem(err);
    *text = made;
    return LH_OK;
}

/* Fails with LH_EINPUT: the checkpoint description in file `name` is damaged.
 * */
static lh_status fail_damaged(const char *name, lh_error *err)
{
    return lhi_fail(err, LH_EINPUT,
                    "%s: damaged; resume from another checkpoint", name);
}

/* Reads a JSON list of exactly `n` checksums into `out`. LH_EINPUT: another
 * length or type; `name`: the file, for messages. */
static lh_status read_list(const json_t *list, uint32_t n, const char *name,
                           double *out, lh_error *err)
{
    if (json_array_size(list) != n)
        return fail_damaged(name, err);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)json_integer_value(json_array_get(list, i));
    return LH_OK;
}

/* Reads the checksums of all model tensors from the JSON object `all` into
 * state->sums. LH_EINPUT: one is missing or invalid. */
static lh_status read_sums(const json_t *all, const char *name,
                           const lh_model *model,
                           const lhi_checkpoint_state *state, lh_error *err)
{
    uint32_t replicas = state->replicas, n = state->n_moments;
    for (uint32_t i = 0; i < lhi_checkpoint_count_tensors(model); i++) {
        lhi_checkpoint_tensor t;
        double *to = state->sums + lhi_checksum_index(i, replicas, n);
        if (!lhi_checkpoint_get_tensor(model, i, &t))
            continue;
        const json_t *item = json_object_get(all, t.name);
        to[0] = (double)json_integer_value(json_array_get(item, 0));
        if (json_array_size(item) != 1 + (size_t)n)
            return fail_damaged(name, err);
        for (uint32_t k = 0; k < n; k++)
            LHI_TRY(read_list(json_array_get(item, 1 + k), replicas, name,
                              to + 1 + k * replicas, err));
    }
    return LH_OK;
}

/* Checks that the checkpoint description `root` has this run's model and data
 * settings; adopts its training options. LH_EINPUT: they differ. */
static lh_status check_match(const json_t *root, const char *name,
                             const lh_model *model,
                             const lhi_checkpoint_options *options,
                             lh_error *err)
{
    json_t *shape = format_model(model, options);
    bool same = json_equal(shape, json_object_get(root, "model"));
    json_decref(shape);
    if (!same)
        return lhi_fail(err, LH_EINPUT,
                        "%s: belongs to another model than this run's", name);
    return options->recipe ? lhi_recipe_adopt(options->recipe, root, name, err)
                           : LH_OK;
}

/* Reads a parsed checkpoint description into *out, and checks its format,
 * checksum, model and data. *differs: it is intact, but has another format,
 * model or data than this run. */
static lh_status read_state(json_t *root, const char *name,
                            const lh_model *model, uint32_t n_moments,
                            const lhi_checkpoint_options *options,
                            lhi_checkpoint_state *out, bool *differs,
                            lh_error *err)
{
    const char *format = json_string_value(json_object_get(root, "longhaul"));
    json_int_t step = json_integer_value(json_object_get(root, "step"));
    json_int_t replicas = json_integer_value(json_object_get(root, "replicas"));
    double check = (double)json_integer_value(json_object_get(root, "check"));
    const json_t *files = json_object_get(root, "files");
    if (!format)
        return lhi_fail(err, LH_EINPUT,
                        "%s: does not belong to a longhaul checkpoint", name);
    *differs = true;
    if (strcmp(format, LHI_CHECKPOINT_FORMAT) != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s: has format %.40s, this version reads %s", name,
                        format, LHI_CHECKPOINT_FORMAT);
    *differs = false;
    if (compute_check(root) != check || step < 0 || replicas < 1 ||
        replicas > UINT16_MAX)
        return fail_damaged(name, err);
    *differs = true;
    LHI_TRY(check_match(root, name, model, options, err));
    *differs = false;
    lhi_checkpoint_state state = {.step = (uint64_t)step,
                                  .replicas = (uint32_t)replicas,
                                  .n_moments = n_moments,
                                  .check = check};
    size_t n = lhi_checksum_index(lhi_checkpoint_count_tensors(model),
                                  state.replicas, n_moments);
    for (int i = 0; i < LHI_N_AUXILIARY_FILES; i++) {
        const json_t *sum = json_object_get(files, lhi_auxiliary_files[i]);
        state.auxiliary[i] = sum ? (double)json_integer_value(sum) : -1;
    }
    if (!(state.sums = calloc(n, sizeof *state.sums)))
        return lhi_fail_nomem(err);
    lh_status status =
        read_sums(json_object_get(root, "sums"), name, model, &state, err);
    if (status != LH_OK) {
        free(state.sums);
        return status;
    }
    *out = state;
    return LH_OK;
}

lh_status lhi_checkpoint_state_parse(const char *text, size_t len,
                                     const char *name, const lh_model *model,
                                     uint32_t n_moments,
                                     const lhi_checkpoint_options *options,
                                     lhi_checkpoint_state *out, bool *differs,
                                     lh_error *err)
{
    json_error_t why;
    bool is_other = false;
    json_t *root = lhi_json_load(text, len, JSON_REJECT_DUPLICATES, &why);
    if (differs)
        *differs = false;
    if (!root)
        return lhi_fail(err, LH_EINPUT, "%s:%d: damaged: %s", name, why.line,
                        why.text);
    lh_status status =
        read_state(root, name, model, n_moments, options, out, &is_other, err);
    json_decref(root);
    if (differs)
        *differs = is_other;
    return status;
}
