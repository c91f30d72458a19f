/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of a model's layers: attention, its window or its substitute, MLP
 * or experts. */
#include "format/job/model_size.h"
#include "format/job/parse.h"

#include <string.h>

/* Returns a layer's letter in a hybrid model's pattern. The layers of a
 * multi-token prediction module follow after '/'. */
static char find_symbol(const lh_model *model, uint32_t layer)
{
    return model->layer_pattern[layer + (layer >= model->layers)];
}

uint32_t lh_model_layer_window(const lh_model *model, uint32_t layer)
{
    const uint32_t n = model->full_interval;
    if (layer < model->window_first_layer || (n && layer % n == n - 1))
        return 0;
    return model->sliding_window;
}

bool lh_model_layer_is_linear(const lh_model *model, uint32_t layer)
{
    const uint32_t n = model->full_interval;
    if (model->layer_pattern)
        return find_symbol(model, layer) == 'G';
    return model->linear_value_heads && !(n && layer % n == n - 1);
}

bool lh_model_layer_is_moe(const lh_model *model, uint32_t layer)
{
    if (model->layer_pattern)
        return find_symbol(model, layer) == 'E';
    if (model->experts == 0 || layer < model->dense_layers ||
        layer % model->moe_interval != model->moe_phase)
        return false;
    for (uint32_t i = 0; i < model->n_dense_list; i++)
        if (model->dense_list[i] == layer)
            return false;
    return true;
}

uint32_t lhi_find_layer_kind(const lh_model *model, uint32_t layer)
{
    const uint32_t mixer = lh_model_layer_window(model, layer)
                               ? LHI_MIXER_MAMBA + 1u
                               : (uint32_t)lhi_model_layer_mixer(model, layer);
    const uint32_t mlp = lh_model_layer_is_moe(model, layer)     ? 2
                         : lhi_model_layer_has_mlp(model, layer) ? 1
                                                                 : 0;
    return 3 * mixer + mlp;
}

uint32_t lhi_count_equal_layers(const lh_model *model, uint32_t layer,
                                uint32_t n_layers)
{
    const bool mixers_are_equal = !model->layer_pattern &&
                                  !model->sliding_window &&
                                  !model->linear_value_heads;
    if (n_layers < 2)
        return n_layers;
    if (mixers_are_equal && model->experts == 0)
        return n_layers;
    if (mixers_are_equal && model->moe_interval == 1 && model->moe_phase == 0 &&
        model->n_dense_list == 0) {
        const uint32_t dense = model->dense_layers;
        return layer < dense && dense - layer < n_layers ? dense - layer
                                                         : n_layers;
    }
    const uint32_t kind = lhi_find_layer_kind(model, layer);
    uint32_t n = 1;
    while (n < n_layers && lhi_find_layer_kind(model, layer + n) == kind)
        n++;
    return n;
}

uint32_t lhi_model_moe_layers(const lh_model *model, uint32_t first,
                              uint32_t n_layers)
{
    uint32_t n = 0, equal;
    for (uint32_t i = 0; i < n_layers; i += equal) {
        equal = lhi_count_equal_layers(model, first + i, n_layers - i);
        n += lh_model_layer_is_moe(model, first + i) ? equal : 0;
    }
    return n;
}

lhi_mixer lhi_model_layer_mixer(const lh_model *model, uint32_t layer)
{
    if (!model->layer_pattern)
        return lh_model_layer_is_linear(model, layer) ? LHI_MIXER_LINEAR
                                                      : LHI_MIXER_ATTENTION;
    switch (find_symbol(model, layer)) {
    case 'M':
        return LHI_MIXER_MAMBA;
    case 'G':
        return LHI_MIXER_LINEAR;
    case '*':
        return LHI_MIXER_ATTENTION;
    default:
        return LHI_MIXER_NONE;
    }
}

bool lhi_model_layer_has_mlp(const lh_model *model, uint32_t layer)
{
    return !model->layer_pattern ||
           lhi_model_layer_mixer(model, layer) == LHI_MIXER_NONE;
}

uint32_t lhi_model_mtp_layers(const lh_model *model, uint32_t *first)
{
    *first = model->layers - !model->layer_pattern;
    return model->layer_pattern
               ? (uint32_t)strlen(model->layer_pattern) - model->layers - 1
               : 1;
}

uint32_t lhi_model_expert_input(const lh_model *model)
{
    return model->expert_latent ? model->expert_latent : model->hidden;
}

const char *lhi_layer_pattern_check(const lh_model *m)
{
    const char *p = m->layer_pattern;
    const size_t n = strcspn(p, "/");
    const size_t modules = p[n] ? strlen(p + n + 1) : 0;
    if (strspn(p, "MG*-E") != n ||
        strspn(p + n + (p[n] == '/'), "MG*-E") != modules)
        return "layer_pattern has a letter other than M, G, *, - and E, and "
               "one / before the layers of a prediction module";
    if (n != m->layers)
        return "layer_pattern has another number of letters than layers";
    if ((m->mtp_layers > 0) != (modules > 0))
        return "layer_pattern has the layers of a prediction module after / "
               "exactly if mtp_layers is above 0";
    if (strchr(p, 'M') &&
        (!m->mamba_heads || !m->mamba_head_dim || !m->mamba_groups ||
         !m->mamba_state_dim || m->mamba_heads % m->mamba_groups != 0))
        return "layers M require mamba_heads, which are a multiple of "
               "mamba_groups, mamba_head_dim and mamba_state_dim";
    if (strchr(p, 'G') && !m->linear_value_heads)
        return "layers G require linear_value_heads";
    if (!strchr(p, 'G') && m->linear_value_heads)
        return "linear_value_heads has no effect without layers G in "
               "layer_pattern";
    if (strchr(p, 'E') && !m->experts)
        return "layers E require experts";
    if (!strchr(p, 'E') && m->experts)
        return "experts have no effect without layers E in layer_pattern";
    if (strchr(p, '-') && !m->ffn)
        return "layers - require ffn";
    if (m->sliding_window || m->parallel_block || m->kv_lora_rank ||
        m->norm_placement != LH_NORM_PLACEMENT_PRE)
        return "layer_pattern cannot be combined with sliding windows, latent "
               "attention, a parallel_block or another norm_placement";
    if (m->dense_layers || m->moe_interval != 1 || m->n_dense_list ||
        m->full_interval)
        return "layer_pattern lists the layers with experts and attention; "
               "remove dense_layers, moe_interval, dense_list and "
               "full_interval";
    return NULL;
}
