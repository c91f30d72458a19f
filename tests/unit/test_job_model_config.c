/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face files of models: families, absent keys, and refused files. */
#include <longhaul/experimental/model.h>

#include "test.h"

#include "format/job/model_size.h"
#include "format/job/parse.h"

static lh_model *parse(const char *text, lh_error *err)
{
    lh_model *m = NULL;
    *err = (lh_error){0};
    return lhi_model_parse(text, strlen(text), "c.json", &m, err) == LH_OK
               ? m
               : NULL;
}

#define SIZES                                                                  \
    "\"vocab_size\": 100, \"hidden_size\": 64, \"num_hidden_layers\": 6,"      \
    "\"num_attention_heads\": 4, \"intermediate_size\": 256"

static lh_model *parse_of(const char *type, const char *more, lh_error *err)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"model_type\": \"%s\", " SIZES "%s}", type,
             more);
    return parse(text, err);
}

/* The features of families other than Llama-like ones. */
static void layers_of_other_families_are_known(void)
{
    lh_error err;
    lh_model *m = parse_of("llama4_text",
                           ", \"intermediate_size_mlp\": 512, "
                           "\"num_local_experts\": 4, \"head_dim\": 16, "
                           "\"num_experts_per_tok\": 1, "
                           "\"no_rope_layer_interval\": 3, "
                           "\"interleave_moe_layer_step\": 2, "
                           "\"attention_chunk_size\": 32",
                           &err);
    CHECK_MSG(m, "%s", err.text);
    CHECK(m && m->chunked_attention && m->full_interval == 3 &&
          m->no_rope_interval == 3 && m->qk_l2_norm && !m->qk_norm);
    CHECK(m && m->ffn == 512 && m->expert_ffn == 256 &&
          m->shared_expert_ffn == 256 && m->unnormalised_scores);
    CHECK(m && !lh_model_layer_is_moe(m, 0) && lh_model_layer_is_moe(m, 1));
    CHECK(m && lh_model_layer_window(m, 1) == 32 &&
          lh_model_layer_window(m, 2) == 0);
    lh_model_free(m);
    m = parse_of("gemma3_text", ", \"sliding_window\": 32", &err);
    CHECK(m && m->norm_placement == LH_NORM_PLACEMENT_BOTH && m->qk_norm &&
          m->norm_zero_centered && m->tied_embeddings && m->head_dim == 256 &&
          m->full_interval == 6 && m->rope_theta == 1000000);
    CHECK(m && lhi_model_layer_params(m, 0).norms == 4 * 64);
    lh_model_free(m);
    m = parse_of("cohere2", "", &err);
    CHECK(m && m->norm == LH_NORM_LAYER_UNBIASED && m->parallel_block &&
          m->no_rope_interval == 4 && m->full_interval == 4);
    CHECK(m && lhi_model_layer_params(m, 0).norms == 64);
    lh_model_free(m);
    m = parse_of("nemotron", "", &err);
    CHECK(m && m->activation == LH_ACTIVATION_RELU2 && !m->gated &&
          m->partial_rotary_factor == 0.5 && !lhi_model_uses_dropout(m));
    CHECK(m && lhi_model_layer_params(m, 0).norms == 4 * 64);
    lh_model_free(m);
    m = parse_of("olmo2", "", &err);
    CHECK(m && m->norm_placement == LH_NORM_PLACEMENT_POST);
    CHECK(m && lhi_model_layer_params(m, 0).attention ==
                   4 * 64 * 64 + 2 * 64); /* norms of all heads together */
    lh_model_free(m);
    m = parse_of("minimax_m2",
                 ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                 "\"rotary_dim\": 8",
                 &err);
    CHECK(m && m->router == LH_ROUTER_SIGMOID && m->ffn == 0 &&
          m->partial_rotary_factor == 0.5);
    lh_model_free(m);
    m = parse_of("qwen3_next",
                 ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                 "\"moe_intermediate_size\": 32, "
                 "\"shared_expert_intermediate_size\": 32, "
                 "\"full_attention_interval\": 3",
                 &err);
    CHECK_MSG(m, "%s", err.text);
    CHECK(m && m->attention_gate && m->norm_zero_centered && m->qk_norm &&
          m->shared_expert_gate && m->partial_rotary_factor == 0.25);
    CHECK(m && lh_model_layer_is_linear(m, 0) &&
          !lh_model_layer_is_linear(m, 2) && lh_model_layer_is_linear(m, 3));
    lh_model_free(m);
}

#define HYBRID                                                                 \
    ", \"mamba_num_heads\": 8, \"mamba_head_dim\": 16, \"n_groups\": 2, "      \
    "\"ssm_state_size\": 32, \"num_key_value_heads\": 2"

static void hybrid_layers_are_read(void)
{
    lh_error err;
    lh_model *m = parse_of(
        "nemotron_h", HYBRID ", \"hybrid_override_pattern\": \"M-M*-M\"", &err);
    CHECK_MSG(m, "%s", err.text);
    CHECK(m && strcmp(m->layer_pattern, "M-M*-M") == 0 && !m->gated &&
          m->activation == LH_ACTIVATION_RELU2 && m->no_rope_interval == 1);
    const uint64_t h = 64, values = 8 * 16, states = 2 * 2 * 32;
    CHECK(m && lhi_model_layer_params(m, 0).total ==
                   h * (2 * values + states + 8) + 5 * (values + states) +
                       3 * 8 + values + values * h + h);
    CHECK(m && lhi_model_layer_params(m, 1).total == 2 * h * 256 + h);
    CHECK(m && lhi_model_layer_params(m, 3).attention ==
                   2 * h * 128 * (4 + m->kv_heads));
    lh_model_free(m);
    m = parse_of("nemotron_h",
                 HYBRID ", \"layers_block_type\": [\"mamba\", \"moe\", "
                        "\"attention\", \"moe\", \"linear_attention\", "
                        "\"mlp\"], \"n_routed_experts\": 4, "
                        "\"num_experts_per_tok\": 2, "
                        "\"moe_intermediate_size\": 24, "
                        "\"moe_shared_expert_intermediate_size\": 48, "
                        "\"moe_latent_size\": 16, "
                        "\"num_nextn_predict_layers\": 2",
                 &err);
    CHECK_MSG(m, "%s", err.text);
    CHECK(m && strcmp(m->layer_pattern, "ME*EM-/*E") == 0 &&
          m->mtp_layers == 2 && m->expert_latent == 16);
    CHECK(m && lhi_model_moe_layers(m, 0, 6) == 2);
    CHECK(m && lhi_model_layer_params(m, 1).experts == 4 * 2 * 16 * 24);
    CHECK(m && lhi_model_mtp_params(m) ==
                   2 * (3 * h + 2 * h * h + lhi_model_layer_params(m, 2).total +
                        lhi_model_layer_params(m, 1).total));
    lh_model_free(m);
    CHECK(!parse_of("nemotron_h", HYBRID, &err));
    CHECK_HAS(err.text, "the kinds of the layers, is missing");
    CHECK(!parse_of("nemotron_h",
                    HYBRID ", \"hybrid_override_pattern\": \"M-\"", &err));
    CHECK_HAS(err.text, "is not the number of layers, 2");
    CHECK(!parse("{\"model_type\": \"nemotron_h\", "
                 "\"layers_block_type\": []}",
                 &err));
    CHECK_HAS(err.text, "has 0 layers, not 1 to 16384");
    CHECK(!parse_of("nemotron_h",
                    HYBRID ", \"hybrid_override_pattern\": \"M-M+-M\"", &err));
    CHECK_HAS(err.text, "has a letter other than M");
    CHECK(!parse_of("nemotron_h",
                    HYBRID ", \"hybrid_override_pattern\": \"M-M*-M\", "
                           "\"mamba_proj_bias\": true",
                    &err));
    CHECK_HAS(err.text, "biases are not supported");
}

static void unknown_families_get_a_map_or_a_reason(void)
{
    lh_error err;
    CHECK(!parse_of("foo", ", \"head_dim\": 8, \"n_routed_experts\": 3", &err));
    CHECK_HAS(err.text, "unknown family 'foo'");
    CHECK_HAS(err.text, "model: {layers: 6, hidden: 64, ffn: 256, heads: 4, "
                        "head_dim: 8, vocab: 100, experts: 3}");
    CHECK(!parse_of("bamba", "", &err));
    CHECK_HAS(err.text, "have Mamba layers");
    CHECK(!parse_of("kimi_linear", "", &err));
    CHECK_HAS(err.text, "have linear attention");
}

#define OSS                                                                    \
    "{\"model_type\": \"gpt_oss\", \"num_local_experts\": 4, "                 \
    "\"num_experts_per_tok\": 2, " SIZES
#define SEES "\"full_attention\""
#define SLIDES "\"sliding_attention\""

static void layer_types_are_read(void)
{
    lh_error err;
    lh_model *m = parse(OSS "}", &err);
    CHECK(m && m->full_interval == 2 && m->sliding_window == 128);
    CHECK(m && m->qkv_bias && m->output_bias && m->mlp_bias);
    CHECK(m && m->router_bias && m->attention_sinks && m->head_dim == 64);
    lh_model_free(m);
    m = parse(OSS ", \"layer_types\": [" SLIDES ", " SLIDES ", " SEES
                  ", " SLIDES ", " SLIDES ", " SEES "]}",
              &err);
    CHECK(m && m->full_interval == 3);
    lh_model_free(m);
    m = parse(OSS ", \"layer_types\": [" SLIDES ", " SLIDES ", " SLIDES
                  ", " SLIDES ", " SLIDES ", " SLIDES "]}",
              &err);
    CHECK(m && m->full_interval == 0);
    lh_model_free(m);
    CHECK(!parse(OSS ", \"layer_types\": [" SEES ", " SLIDES ", " SEES
                     ", " SLIDES ", " SEES ", " SLIDES "]}",
                 &err));
    CHECK(strstr(err.text, "equal intervals"));
    CHECK(!parse(OSS ", \"layer_types\": [" SEES "]}", &err));
    CHECK(strstr(err.text, "has 1 entries for 6 layers"));
    CHECK(!parse(OSS ", \"layer_types\": [" SEES ", " SEES ", " SEES ", " SEES
                     ", " SEES ", \"linear_attention\"]}",
                 &err));
    CHECK(strstr(err.text, "'linear_attention' is neither"));
}

static void absent_keys_mean_what_the_family_says(void)
{
    lh_error err;
    lh_model *m = parse("{\"model_type\": \"llama\", " SIZES "}", &err);
    CHECK(m != NULL);
    if (m) {
        CHECK_STR(m->name, "c");
        CHECK_INT(m->kv_heads, 4);
        CHECK_INT(m->head_dim, 16);
        CHECK(m->gated && !m->tied_embeddings && !m->qkv_bias);
        CHECK(m->norm == LH_NORM_RMS);
    }
    lh_model_free(m);
    m = parse("{\"model_type\": \"llama\", \"attention_bias\": true, "
              "\"mlp_bias\": true, " SIZES "}",
              &err);
    CHECK(m && m->qkv_bias && m->output_bias && m->mlp_bias);
    lh_model_free(m);
    m = parse("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, "
              "\"sliding_window\": 8, \"max_window_layers\": 2, " SIZES "}",
              &err);
    CHECK(m && m->qkv_bias && !m->output_bias);
    CHECK(m && m->sliding_window == 8 && m->window_first_layer == 2);
    lh_model_free(m);
    m = parse("{\"model_type\": \"qwen3\", " SIZES "}", &err);
    CHECK(m && m->qk_norm && m->head_dim == 128);
    lh_model_free(m);
    m = parse("{\"model_type\": \"mistral\", " SIZES "}", &err);
    CHECK(m && m->sliding_window == 4096);
    lh_model_free(m);
}

static void expert_patterns(void)
{
    lh_error err;
    lh_model *m =
        parse("{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 8, "
              "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
              "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [3, 1, 3], "
              "\"head_dim\": 16, " SIZES "}",
              &err);
    CHECK(m != NULL);
    if (m) {
        /* Every second layer (1, 3, 5), but not 1 and 3. */
        CHECK_INT(m->experts, 8);
        CHECK_INT(m->n_dense_list, 2);
        CHECK_INT(lhi_model_moe_layers(m, 0, 6), 1);
        CHECK(lh_model_layer_is_moe(m, 5));
    }
    lh_model_free(m);
    m = parse("{\"model_type\": \"deepseek_v2\", \"q_lora_rank\": null, "
              "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4, "
              "\"qk_rope_head_dim\": 2, \"v_head_dim\": 4, "
              "\"n_routed_experts\": null, " SIZES "}",
              &err);
    CHECK(m && m->experts == 0 && m->q_lora_rank == 0 && m->head_dim == 6);
    lh_model_free(m);
}

static void bases_of_rotary_positions_are_read(void)
{
    static const struct {
        const char *text;
        uint32_t base;
        double used;
    } said[] = {{"", 0, 10000},
                {", \"rope_theta\": 500000.0", 500000, 500000},
                {", \"rope_theta\": null", 0, 10000},
                {", \"rope_parameters\": {\"rope_theta\": 1e6}", 1000000, 1e6}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        char text[1024];
        lh_error err = {0};
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", " SIZES "%s}",
                 said[i].text);
        lh_model *m = parse(text, &err);
        CHECK_MSG(m, "%s", err.text);
        if (m) {
            CHECK_INT(m->rope_theta, said[i].base);
            CHECK_NEAR(lh_model_rope_theta(m), said[i].used, 0);
        }
        lh_model_free(m);
    }
}

#define GPT                                                                    \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, "         \
    "\"n_layer\": 2, \"n_head\": 4, \"n_positions\": 32"

static void epsilons_of_norms_are_read(void)
{
    static const struct {
        const char *type, *more;
        double said, used;
    } all[] = {
        {"llama", ", \"rms_norm_eps\": 1e-6", 1e-6, 1e-6},
        {"llama", ", \"rms_norm_eps\": 1e-05", 0, 1e-5},
        {"llama", ", \"rms_norm_eps\": 0.25", 0.25, 0.25},
        {"llama", ", \"layer_norm_epsilon\": 0.25", 1e-6, 1e-6},
        {"llama", "", 1e-6, 1e-6},
        {"qwen3", ", \"rms_norm_eps\": null", 1e-6, 1e-6},
        {"mixtral", ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1", 0,
         1e-5},
        {"falcon", "", 0, 1e-5},
        {"falcon", ", \"layer_norm_epsilon\": 1e-12", 1e-12, 1e-12},
    };
    lh_error err;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lh_model *m = parse_of(all[i].type, all[i].more, &err);
        CHECK_MSG(m, "%s", err.text);
        if (m) {
            CHECK_NEAR(m->norm_epsilon, all[i].said, 0);
            CHECK_NEAR(lh_model_norm_epsilon(m), all[i].used, 0);
        }
        lh_model_free(m);
    }
    lh_model *m = parse(GPT ", \"layer_norm_epsilon\": 1e-6}", &err);
    CHECK(m && m->norm_epsilon == 1e-6);
    lh_model_free(m);
    CHECK_NEAR(lh_model_preset("qwen3-30b-a3b")->norm_epsilon, 1e-6, 0);
}

/* Features without an lh_model member are reported by their keys. */
static void what_is_not_computed_is_known(void)
{
    static const struct {
        const char *type, *more, *keys; /* NULL: none */
    } all[] = {
        {"llama", "", NULL},
        {"llama",
         ", \"hidden_act\": \"silu\", \"rope_scaling\": null, "
         "\"partial_rotary_factor\": 1.0",
         NULL},
        {"llama", ", \"hidden_act\": \"swish\"", NULL},
        {"llama", ", \"hidden_act\": \"gelu\"", NULL},
        {"llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}",
         NULL},
        {"llama",
         ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 8.0}, "
         "\"hidden_act\": \"relu\", \"attention_dropout\": 0.1",
         "hidden_act, rope_scaling, attention_dropout"},
        {"llama", ", \"rope_scaling\": {\"rope_type\": \"default\"}", NULL},
        {"llama", ", \"rope_scaling\": {\"factor\": 4.0}", "rope_scaling"},
        {"llama",
         ", \"rope_parameters\": {\"rope_theta\": 1e4, "
         "\"rope_type\": \"default\"}",
         NULL},
        {"llama", ", \"rope_parameters\": {\"rope_type\": \"longrope\"}",
         "rope_parameters"},
        {"llama",
         ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}",
         "rope_parameters"},
        {"mixtral",
         ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1, "
         "\"router_jitter_noise\": 0.1",
         "router_jitter_noise"},
        {"falcon", "", NULL},
        {"llama", ", \"partial_rotary_factor\": 0.5", "partial_rotary_factor"},
        {"falcon", ", \"activation\": \"gelu_pytorch_tanh\"", NULL},
        {"falcon",
         ", \"activation\": \"gelu_new\", "
         "\"apply_residual_connection_post_layernorm\": true",
         "apply_residual_connection_post_layernorm"},
    };
    lh_error err;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char want[128] = "none";
        lh_model *m = parse_of(all[i].type, all[i].more, &err);
        CHECK_MSG(m, "%s", err.text);
        if (all[i].keys)
            snprintf(want, sizeof want, "c.json: %s", all[i].keys);
        if (m)
            CHECK_STR(m->unsupported_keys ? m->unsupported_keys : "none", want);
        lh_model_free(m);
    }
    lh_model *m = parse(GPT ", \"scale_attn_by_inverse_layer_idx\": true, "
                            "\"scale_attn_weights\": false, "
                            "\"attn_pdrop\": 0.0}",
                        &err);
    CHECK_MSG(m, "%s", err.text);
    if (m)
        CHECK_STR(m->unsupported_keys ? m->unsupported_keys : "none",
                  "c.json: attn_pdrop, scale_attn_weights, "
                  "scale_attn_by_inverse_layer_idx");
    lh_model_free(m);
}

/* Constants without an effect on time; every field of the scaling. */
static void constants_are_read(void)
{
    static const struct {
        const char *type, *more, *json;
    } all[] = {
        {"llama", ", \"initializer_range\": 0.02, \"hidden_act\": \"swish\"",
         ""},
        {"llama", ", \"initializer_range\": 0.006",
         ", \"initializer_range\": 0.006"},
        {"llama", ", \"hidden_act\": \"gelu\"", ", \"activation\": \"gelu\""},
        {"falcon", "", ", \"activation\": \"gelu\""},
        {"glm4_moe", ", \"n_routed_experts\": 0",
         ", \"partial_rotary_factor\": 0.5"},
        {"llama", ", \"partial_rotary_factor\": 1.0", ""},
        {"glm4_moe",
         ", \"rope_parameters\": {\"partial_rotary_factor\": 0.25}, "
         "\"n_routed_experts\": 0",
         ", \"partial_rotary_factor\": 0.25"},
        {"llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}",
         ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4}"},
        {"llama",
         ", \"rope_parameters\": {\"rope_theta\": 1e4, \"factor\": 8, "
         "\"rope_type\": \"llama3\", \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, "
         "\"original_max_position_embeddings\": 8192}",
         ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"original_max_position_embeddings\": 8192, "
         "\"low_freq_factor\": 1, \"high_freq_factor\": 4}"},
        {"llama",
         ", \"max_position_embeddings\": 99, \"rope_scaling\": {\"factor\": "
         "2.5, \"rope_type\": \"yarn\", \"mscale\": 0.7, \"beta_slow\": 2, "
         "\"mscale_all_dim\": 0.6, \"attention_factor\": 1.5, "
         "\"truncate\": false}",
         ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.5, "
         "\"original_max_position_embeddings\": 99, \"beta_fast\": 32, "
         "\"beta_slow\": 2, \"mscale\": 0.7, \"mscale_all_dim\": 0.6, "
         "\"attention_factor\": 1.5, \"fractional_range\": true}"},
        {"gpt_oss",
         ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1, "
         "\"swiglu_limit\": 5, \"router_aux_loss_coef\": 0",
         ", \"activation\": \"quick_gelu\", \"glu_linear_offset\": 1, "
         "\"swiglu_limit\": 5, \"router_aux_loss_coef\": 0"},
    };
    static const char *const keys[] = {
        "activation",          "glu_linear_offset",     "swiglu_limit",
        "rope_scaling",        "partial_rotary_factor", "initializer_range",
        "router_aux_loss_coef"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[1024];
        lh_error err;
        lh_model *m = parse_of(all[i].type, all[i].more, &err);
        CHECK_MSG(m, "%s", err.text);
        if (!m)
            continue;
        json_t *json = lhi_model_to_json(m), *got = json_object(), *want;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            json_object_set(got, keys[k], json_object_get(json, keys[k]));
        snprintf(text, sizeof text, "{%s}",
                 all[i].json + (*all[i].json ? 2 : 0));
        want = json_loads(text, 0, NULL);
        char *printed = json_dumps(got, 0);
        CHECK_MSG(want && json_equal(got, want), "%zu: %s", i, printed);
        free(printed);
        json_decref(json);
        json_decref(got);
        json_decref(want);
        lh_model_free(m);
    }
}

static void scaling_has_the_keys_of_its_type(void)
{
    static const char *const wrong[][2] = {
        {"\"rope_type\": \"llama3\", \"factor\": 8",
         "require original_max_position_embeddings"},
        {"\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"original_max_position_embeddings\": 9",
         "low_freq_factor and high_freq_factor belong"},
        {"\"rope_type\": \"llama3\", \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 9",
         "must be below"},
        {"\"rope_type\": \"yarn\", \"factor\": 0.5", "factor: "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[512];
        lh_error err;
        snprintf(text, sizeof text, ", \"rope_scaling\": {%s}", wrong[i][0]);
        CHECK(!parse_of("llama", text, &err));
        CHECK_MSG(strstr(err.text, wrong[i][1]), "%s", err.text);
    }
}

static void bases_of_two_classes_are_others(void)
{
    static const char experts[] =
        ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1";
    lh_error err;
    lh_model *m = parse_of("mixtral", experts, &err);
    CHECK(m && m->rope_theta == 1000000);
    lh_model_free(m);
    m = parse_of("gpt_oss", experts, &err);
    CHECK(m && m->rope_theta == 150000);
    lh_model_free(m);
}

/* GPT-2 small: 124,439,808 parameters. */
static void gpt2_config(void)
{
    static const char text[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_embd\": 768, "
        "\"n_layer\": 12, \"n_head\": 12, \"n_positions\": 1024, "
        "\"activation_function\": \"gelu_new\"}";
    lh_model *m = NULL;
    lh_error err;
    CHECK_OK(lhi_model_parse(text, strlen(text), "gpt2.json", &m, &err), err);
    CHECK_INT(lh_model_params(m), 124439808);
    CHECK(m->tied_embeddings && m->norm == LH_NORM_LAYER && !m->gated);
    lh_model_free(m);
}

#define FALCON                                                                 \
    "{\"model_type\": \"falcon\", \"vocab_size\": 65024, "                     \
    "\"hidden_size\": 4544, \"num_hidden_layers\": 32, "                       \
    "\"num_attention_heads\": 71"

/* Falcon 7B: 6,921,720,704 parameters, computed from the report's shape
 * (arXiv:2311.16867): embedding 65024 x 4544, tied; per layer one norm of 2 x
 * 4544, 4544 x (4544 + 2 x 64) + 4544^2 + 2 x 4544 x 18176; a last norm. */
static void falcon_config(void)
{
    lh_error err;
    lh_model *m = parse(FALCON "}", &err);
    CHECK_MSG(m, "%s", err.text);
    if (!m)
        return;
    CHECK_INT(lh_model_params(m), 6921720704);
    CHECK(m->parallel_block && m->tied_embeddings && !m->gated &&
          m->norm == LH_NORM_LAYER && m->kv_heads == 1 && m->head_dim == 64);
    lh_model_free(m);
    m = parse(FALCON ", \"parallel_attn\": false, \"multi_query\": false, "
                     "\"bias\": true}",
              &err);
    CHECK_MSG(m, "%s", err.text);
    if (m)
        CHECK(!m->parallel_block && m->kv_heads == 71 && m->mlp_bias &&
              lhi_model_layer_params(m, 0).norms == 4 * 4544);
    lh_model_free(m);
}

static void bad_configs_are_refused(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{}", "c.json:1: key 'model_type' is missing"},
        {"{\"model_type\": \"opt\"}", "unknown family 'opt'"},
        {"{\"model_type\": 3.5}", "unknown family '3.5'"},
        {"{\"model_type\": []}", "model_type: must be a string, not a list"},
        {"{\"model_type\": \"llama\"}", "key 'vocab_size' is missing"},
        {"{\"model_type\": \"llama\", \"rope_theta\": 0.5, " SIZES "}",
         "rope_theta: 0.5 is out of range"},
        {"{\"model_type\": \"llama\", \"rope_theta\": 1000.5, " SIZES "}",
         "rope_theta: must be a whole number"},
        {"{\"model_type\": \"llama\", \"rms_norm_eps\": 0, " SIZES "}",
         "rms_norm_eps: 0 is out of range"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": 2, " SIZES "}",
         "rope_scaling: must be a map"},
        {"{\"model_type\": \"llama\", \"partial_rotary_factor\": 2, " SIZES "}",
         "partial_rotary_factor: 2 is out of range"},
        {"{\"model_type\": \"deepseek_v2\", \"rope_interleave\": 1, "
         "\"q_lora_rank\": null, \"kv_lora_rank\": 8, "
         "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, "
         "\"v_head_dim\": 4, " SIZES "}",
         "rope_interleave: must be true or false"},
        {"{\"model_type\": \"llama\",\n\"vocab_size\": null}",
         "c.json:2: vocab_size: must be a whole number, not null"},
        {"{\"model_type\": \"llama\", \"vocab_size\": \"100\"}", "in quotes"},
        {"{\"model_type\": \"llama\", \"vocab_size\": 0}",
         "vocab_size: must not be 0"},
        {"{\"model_type\": \"llama\", \"vocab_size\": -1}", "out of range"},
        {"{\"model_type\": \"llama\", \"vocab_size\": 1e400}", "too large"},
        {"{\"model_type\": \"llama\", \"vocab_size\": NaN}", "not 'NaN'"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 3, " SIZES "}",
         "4 heads are not divisible by 3 key-value heads"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 0, " SIZES "}",
         "4 heads are not divisible by 0"},
        {"{\"model_type\": \"llama\", \"attention_bias\": 1, " SIZES "}",
         "attention_bias: must be true or false"},
        {"{\"model_type\": \"mixtral\", " SIZES "}", "'num_local_experts'"},
        {"{\"model_type\": \"mixtral\", \"num_local_experts\": 2, "
         "\"num_experts_per_tok\": 3, " SIZES "}",
         "3 experts per token are out of range for 2 experts"},
        {"{\"model_type\": \"qwen2_moe\", \"num_experts\": 4, "
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
         "\"shared_expert_intermediate_size\": 32, "
         "\"decoder_sparse_step\": 0, " SIZES "}",
         "decoder_sparse_step: must not be 0"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 4, "
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
         "\"mlp_only_layers\": [6], " SIZES "}",
         "mlp_only_layers[0]: 6 is out of range"},
        {"{\"model_type\": \"deepseek_v3\", " SIZES "}", "'q_lora_rank'"},
        {"{\"model_type\": \"llava\", \"text_config\": 3}", "must be a map"},
        {"{\"model_type\": \"gpt2\", \"activation_function\": \"relu\"}",
         "unknown gelu variant 'relu'"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 9, \"n_embd\": 5, "
         "\"n_layer\": 1, \"n_head\": 2, \"n_positions\": 9}",
         "n_embd 5 is not a multiple of n_head 2"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": "
         "\"llama\", \"num_attention_heads\": 7}}",
         "hidden_size 4096 is not a multiple"},
        {FALCON ", \"new_decoder_architecture\": true}",
         "new_decoder_architecture: is not supported"},
        {FALCON ", \"alibi\": true}", "alibi: is not supported"},
        {FALCON ", \"activation\": \"relu\"}", "unknown gelu variant 'relu'"},
        {"[1]", "c.json:1:"},
        {"", "c.json"},
        {"{\"model_type\": ", "c.json:2: not valid YAML or JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lh_error err;
        lh_model *m = parse(bad[i].text, &err);
        CHECK_MSG(!m, "accepted: %s", bad[i].text);
        CHECK_HAS(err.text, bad[i].says);
        lh_model_free(m);
    }
}

static void huge_models_are_refused(void)
{
    lh_error err;
    lh_model *m =
        parse("{\"model_type\": \"mixtral\", \"vocab_size\": 1000000, "
              "\"hidden_size\": 4194304, \"num_hidden_layers\": 16384, "
              "\"num_attention_heads\": 4194304, \"intermediate_size\": "
              "67108864, \"num_local_experts\": 4194304, "
              "\"num_experts_per_tok\": 1, \"head_dim\": 4194304}",
              &err);
    CHECK(!m);
    CHECK_HAS(err.text, "the number of parameters exceeds the limit");
}

int main(void)
{
    RUN(layer_types_are_read);
    RUN(absent_keys_mean_what_the_family_says);
    RUN(expert_patterns);
    RUN(bases_of_rotary_positions_are_read);
    RUN(epsilons_of_norms_are_read);
    RUN(layers_of_other_families_are_known);
    RUN(hybrid_layers_are_read);
    RUN(unknown_families_get_a_map_or_a_reason);
    RUN(constants_are_read);
    RUN(scaling_has_the_keys_of_its_type);
    RUN(what_is_not_computed_is_known);
    RUN(bases_of_two_classes_are_others);
    RUN(gpt2_config);
    RUN(falcon_config);
    RUN(bad_configs_are_refused);
    RUN(huge_models_are_refused);
    return test_summary();
}
