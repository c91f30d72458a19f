/* SPDX-License-Identifier: Apache-2.0 */
/* Exports the model as a Python module for torchtitan 0.3.0, whose --module and
 * --config name a function that builds it. Classes and their fields:
 * torchtitan/models/{llama3,qwen3,deepseek_v3,gpt_oss}/ and models/common/.
 * inexact.c lists the settings that these classes lack. */
#include "format/job/parse.h"
#include "interop/export/export_internal.h"

#include <inttypes.h>

/* Python names of a class's parts. */
typedef struct class_names {
    const char *module, *model, *block, *parallelize, *adapter, *rope;
    const char *imports; /* further lines */
} class_names;

static const class_names classes[] = {
    [LHI_TORCHTITAN_LLAMA3] = {"llama3", "Llama3Model",
                               "Llama3TransformerBlock", "parallelize_llama",
                               "Llama3StateDictAdapter", "ComplexRoPE", ""},
    [LHI_TORCHTITAN_QWEN3] = {"qwen3", "Qwen3Model", "Qwen3TransformerBlock",
                              "parallelize_qwen3", "Qwen3StateDictAdapter",
                              "CosSinRoPE", ""},
    [LHI_TORCHTITAN_DEEPSEEK_V3] =
        {"deepseek_v3", "DeepSeekV3Model", "DeepSeekV3TransformerBlock",
         "parallelize_deepseekv3", "DeepSeekV3StateDictAdapter", "ComplexRoPE",
         "from torchtitan.models.deepseek_v3.model import Attention\n"},
    [LHI_TORCHTITAN_GPT_OSS] =
        {"gpt_oss", "GptOssModel", "GptOssTransformerBlock",
         "parallelize_gptoss", "GptOssStateDictAdapter", "CosSinRoPE",
         "from torchtitan.models.common.attention import FusedQKVLinear\n"
         "from torchtitan.models.common.linear import "
         "ScaledBiasRowwiseLinear\n"
         "from torchtitan.models.common.moe import RoutedExperts\n"
         "from torchtitan.models.gpt_oss.model import Attention\n"
         "from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts, "
         "GptOssMoE\n"},
};

/* --- constants --- */

/* Adds the line "NAME = VALUE" with an integer to the exported Python module.
 * */
static void put_count(lhi_text *out, const char *name, uint64_t value)
{
    lhi_text_printf(out, "%s = %" PRIu64 "\n", name, value);
}

/* Adds the line "NAME = [...]" to the Python module: the layers of model `m`
 * for which is_one() is true, as ranges. */
static void put_layers(lhi_text *out, const char *name, const lh_model *m,
                       bool is_one(const lh_model *m, uint32_t layer))
{
    const char *comma = "";
    lhi_text_printf(out, "%s = [", name);
    for (uint32_t i = 0; i < m->layers; i++) {
        const uint32_t first = i;
        while (i < m->layers && is_one(m, i))
            i++;
        if (i == first)
            continue;
        lhi_text_printf(out, "%s*range(%" PRIu32 ", %" PRIu32 ")", comma, first,
                        i);
        comma = ", ";
    }
    lhi_text_puts(out, "]\n");
}

/* Checks whether a layer attends only to a window of tokens. */
static bool has_window(const lh_model *m, uint32_t layer)
{
    return lh_model_layer_window(m, layer) > 0;
}

/* Adds the rotary positions' Python configuration for torchtitan's model class:
 * sizes, base and scaling. */
static void put_rope(lhi_text *out, const lh_job *job,
                     lhi_torchtitan_class class)
{
    const lh_model *m = job->model;
    const lh_rope_scaling *s = m->rope_scaling;
    lhi_text_printf(out,
                    "ROPE = %s.Config(\n"
                    "    dim=%" PRIu32 ", max_seq_len=%" PRIu32 ", theta=%.12g",
                    classes[class].rope,
                    m->kv_lora_rank ? m->qk_rope_head_dim : m->head_dim,
                    job->training.sequence, lh_model_rope_theta(m));
    if (s && s->type == LH_ROPE_LLAMA3 && class == LHI_TORCHTITAN_LLAMA3)
        lhi_text_printf(out,
                        ", scaling=\"llama\",\n"
                        "    scaling_factor=%.12g, low_freq_factor=%.12g, "
                        "high_freq_factor=%.12g,\n"
                        "    original_max_position_embeddings=%" PRIu32,
                        s->factor, s->low_freq_factor, s->high_freq_factor,
                        s->original_positions);
    if (s && s->type == LH_ROPE_YARN &&
        (class == LHI_TORCHTITAN_DEEPSEEK_V3 ||
         class == LHI_TORCHTITAN_GPT_OSS))
        lhi_text_printf(out,
                        ", scaling=\"yarn\",\n"
                        "    rope_factor=%.12g, beta_fast=%.12g, "
                        "beta_slow=%.12g,\n"
                        "    original_seq_len=%" PRIu32 ", truncate=%s",
                        s->factor, s->beta_fast, s->beta_slow,
                        s->original_positions,
                        s->fractional_range ? "False" : "True");
    lhi_text_puts(out, ",\n)\n");
}

/* Adds the Python constants with the sizes of attention for torchtitan's model
 * class. */
static void put_attention(lhi_text *out, const lh_job *job,
                          lhi_torchtitan_class class)
{
    const lh_model *m = job->model;
    put_count(out, "HEADS", m->heads);
    if (class == LHI_TORCHTITAN_DEEPSEEK_V3) {
        const lh_rope_scaling *s = m->rope_scaling;
        put_count(out, "Q_RANK", m->q_lora_rank);
        put_count(out, "KV_RANK", m->kv_lora_rank);
        put_count(out, "NOPE_DIM", m->qk_nope_head_dim);
        put_count(out, "ROPE_DIM", m->qk_rope_head_dim);
        put_count(out, "VALUE_DIM", m->v_head_dim);
        lhi_text_printf(out, "MSCALE = %.12g\n",
                        s && s->mscale_all_dim > 0 ? s->mscale_all_dim : 1);
    } else {
        put_count(out, "KV_HEADS", m->kv_heads);
        put_count(out, "HEAD_DIM", m->head_dim);
    }
    if (class == LHI_TORCHTITAN_GPT_OSS) {
        put_count(out, "WINDOW", m->sliding_window);
        put_layers(out, "WINDOW_LAYERS", m, has_window);
    }
    put_rope(out, job, class);
}

/* Adds the Python constants for the experts' sizes and routing. Experts are
 * balanced by biases alone; with softmax scores only if the job sets a rate. */
static void put_experts(lhi_text *out, const lh_job *job,
                        lhi_torchtitan_class class)
{
    const lh_model *m = job->model;
    const bool groups = m->expert_groups && class == LHI_TORCHTITAN_DEEPSEEK_V3;
    const double rate = lhi_job_balance_bias(job);
    put_layers(out, "EXPERT_LAYERS", m, lh_model_layer_is_moe);
    put_count(out, "EXPERTS", m->experts);
    put_count(out, "EXPERT_FFN", m->expert_ffn);
    put_count(out, "SHARED_FFN", m->shared_expert_ffn);
    lhi_text_printf(out,
                    "ROUTING = {\n"
                    "    \"top_k\": %" PRIu32 ", \"score_func\": \"%s\", "
                    "\"route_norm\": %s,\n"
                    "    \"route_scale\": %.12g",
                    m->experts_per_token,
                    m->router == LH_ROUTER_SIGMOID ? "sigmoid" : "softmax",
                    m->unnormalised_scores ? "False" : "True",
                    m->routed_scale > 0 ? m->routed_scale : 1);
    if (groups)
        lhi_text_printf(out,
                        ", \"num_expert_groups\": %" PRIu32
                        ", \"num_limited_groups\": %" PRIu32,
                        m->expert_groups, m->groups_per_token);
    lhi_text_puts(out, ",\n}\n");
    if (rate > 0)
        lhi_text_printf(out, "BALANCE_RATE = %.12g\n", rate);
    else
        lhi_text_puts(out, "BALANCE_RATE = None\n");
    /* The class always has a limit; 1e6 is above any activation. */
    if (class == LHI_TORCHTITAN_GPT_OSS)
        lhi_text_printf(out, "SWIGLU_LIMIT = %.12g\n",
                        m->swiglu_limit > 0 ? m->swiglu_limit : 1e6);
}

/* Adds all constants of the Python module: the model's sizes for torchtitan's
 * model class. */
static void put_constants(lhi_text *out, const lh_job *job,
                          lhi_torchtitan_class class)
{
    const lh_model *m = job->model;
    put_count(out, "DIM", m->hidden);
    put_count(out, "LAYERS", m->layers);
    put_count(out, "VOCABULARY", m->vocab);
    put_count(out, "FFN", m->ffn);
    lhi_text_printf(out,
                    "EPSILON = %.12g\n"
                    "TIED = %s\n"
                    "WEIGHT = partial(nn.init.normal_, std=%.12g)\n"
                    "INIT = {\"weight\": WEIGHT, \"bias\": nn.init.zeros_}\n",
                    lh_model_norm_epsilon(m),
                    m->tied_embeddings ? "True" : "False",
                    m->initializer_range > 0 ? m->initializer_range : 0.02);
    put_attention(out, job, class);
    if (m->experts)
        put_experts(out, job, class);
    else
        lhi_text_puts(out, "EXPERT_LAYERS = []\n");
}

/* --- functions --- */

static const char common_functions[] =
    "\n\n"
    "def norm(size, eps=EPSILON):\n"
    "    return RMSNorm.Config(normalized_shape=size, eps=eps,\n"
    "                          param_init={\"weight\": nn.init.ones_})\n"
    "\n\n"
    "def linear(inputs, outputs, bias=False, kind=Linear):\n"
    "    return kind.Config(in_features=inputs, out_features=outputs,\n"
    "                       bias=bias, param_init=INIT)\n"
    "\n\n"
    "def mlp(width):\n"
    "    return make_ffn_config(dim=DIM, hidden_dim=width,\n"
    "                           w1_param_init=INIT, w2w3_param_init=INIT)\n";

/* Attention of Llama 3 and Qwen3; the query and key norm comes last. */
static const char grouped_attention[] =
    "\n\n"
    "def attention(_):\n"
    "    return make_gqa_config(\n"
    "        dim=DIM, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=HEAD_DIM,\n"
    "        wqkv_param_init=INIT, wo_param_init=INIT, fuse_qkv=True,\n"
    "        inner_attention=get_attention_config(\"flex\"), rope=ROPE,\n"
    "        qk_norm=%s)\n";

/* The norms of latents have 1e-6, as in transformers. */
static const char latent_attention[] =
    "\n\n"
    "def attention(_):\n"
    "    size = HEADS * (NOPE_DIM + ROPE_DIM)\n"
    "    queries = ({\"wq_a\": linear(DIM, Q_RANK), "
    "\"wq_b\": linear(Q_RANK, size),\n"
    "                \"q_norm\": norm(Q_RANK, 1e-6)} if Q_RANK else\n"
    "               {\"wq\": linear(DIM, size), \"q_norm\": norm(1)})\n"
    "    return Attention.Config(\n"
    "        dim=DIM, n_heads=HEADS, q_lora_rank=Q_RANK, "
    "kv_lora_rank=KV_RANK,\n"
    "        qk_nope_head_dim=NOPE_DIM, qk_rope_head_dim=ROPE_DIM,\n"
    "        v_head_dim=VALUE_DIM, mscale=MSCALE, **queries,\n"
    "        wkv_a=linear(DIM, KV_RANK + ROPE_DIM), kv_norm=norm(KV_RANK, "
    "1e-6),\n"
    "        wkv_b=linear(KV_RANK, HEADS * (NOPE_DIM + VALUE_DIM)),\n"
    "        wo=linear(HEADS * VALUE_DIM, DIM),\n"
    "        inner_attention=get_attention_config(\"flex\"),\n"
    "        rope=replace(ROPE))\n";

static const char gpt_oss_attention[] =
    "\n\n"
    "def attention(layer):\n"
    "    outputs = (HEADS + 2 * KV_HEADS) * HEAD_DIM\n"
    "    return Attention.Config(\n"
    "        dim=DIM, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=HEAD_DIM,\n"
    "        qkv_linear=FusedQKVLinear.Config(\n"
    "            head_dim=HEAD_DIM, n_heads=HEADS, n_kv_heads=KV_HEADS,\n"
    "            wqkv=linear(DIM, outputs, True)),\n"
    "        wo=linear(HEADS * HEAD_DIM, DIM, True, "
    "ScaledBiasRowwiseLinear),\n"
    "        sliding_window_size=WINDOW if layer in WINDOW_LAYERS else None,\n"
    "        inner_attention=get_attention_config(\"flex\"),\n"
    "        param_init={\"sinks\": WEIGHT}, rope=replace(ROPE))\n";

static const char experts_function[] =
    "\n\n"
    "def experts():\n"
    "    return make_moe_config(\n"
    "        num_experts=EXPERTS, load_balance_coeff=BALANCE_RATE,\n"
    "        router=make_router_config(dim=DIM, num_experts=EXPERTS,\n"
    "                                  gate_param_init=INIT, **ROUTING),\n"
    "        routed_experts=make_routed_experts_config(\n"
    "            dim=DIM, hidden_dim=EXPERT_FFN, num_experts=EXPERTS,\n"
    "            top_k=ROUTING[\"top_k\"], comm_backend=\"standard\",\n"
    "            param_init=dict.fromkeys((\"w1_EFD\", \"w2_EDF\", "
    "\"w3_EFD\"), WEIGHT)),\n"
    "        shared_experts=mlp(SHARED_FFN) if SHARED_FFN else None)\n";

static const char gpt_oss_experts[] =
    "\n\n"
    "def experts():\n"
    "    return GptOssMoE.Config(\n"
    "        num_experts=EXPERTS, load_balance_coeff=BALANCE_RATE,\n"
    "        router=make_router_config(dim=DIM, num_experts=EXPERTS, "
    "bias=True,\n"
    "                                  gate_param_init=INIT, **ROUTING),\n"
    "        routed_experts=RoutedExperts.Config(\n"
    "            inner_experts=GptOssGroupedExperts.Config(\n"
    "                dim=DIM, hidden_dim=EXPERT_FFN, num_experts=EXPERTS,\n"
    "                swiglu_limit=SWIGLU_LIMIT, param_init={\n"
    "                    \"mlp1_weight_EGD\": WEIGHT, "
    "\"mlp2_weight_EDF\": WEIGHT,\n"
    "                    \"mlp1_bias_EG\": nn.init.zeros_,\n"
    "                    \"mlp2_bias_ED\": nn.init.zeros_}),\n"
    "            token_dispatcher=make_token_dispatcher_config(\n"
    "                num_experts=EXPERTS, top_k=ROUTING[\"top_k\"],\n"
    "                comm_backend=\"standard\", hidden_dim=DIM)))\n";

static const char no_experts[] = "\n\n"
                                 "def experts():\n"
                                 "    return None\n";

static const char model_functions[] =
    "\n\n"
    "def block(layer):\n"
    "    sparse = layer in EXPERT_LAYERS\n"
    "    return Block.Config(\n"
    "        attention_norm=norm(DIM), ffn_norm=norm(DIM),\n"
    "        attention=attention(layer),\n"
    "        feed_forward=None if sparse else mlp(FFN),\n"
    "        moe=experts() if sparse else None)\n"
    "\n\n"
    "def model_spec():\n"
    "    \"\"\"For configurations of your own.\"\"\"\n"
    "    embedding = {\"weight\": skip_param_init if TIED else WEIGHT}\n"
    "    return ModelSpec(\n"
    "        name=NAME, flavor=\"longhaul\", parallelize_fn=parallelize,\n"
    "        pipelining_fn=pipeline_llm, state_dict_adapter=Adapter,\n"
    "        post_optimizer_build_fn=(register_moe_load_balancing_hook\n"
    "                                 if EXPERT_LAYERS else None),\n"
    "        model=Model.Config(\n"
    "            dim=DIM, vocab_size=VOCABULARY, enable_weight_tying=TIED,\n"
    "            tok_embeddings=Embedding.Config(\n"
    "                num_embeddings=VOCABULARY, embedding_dim=DIM,\n"
    "                param_init=embedding),\n"
    "            norm=norm(DIM), lm_head=linear(DIM, VOCABULARY),\n"
    "            layers=[block(layer) for layer in range(LAYERS)]))\n"
    "\n\n"
    "def longhaul_model():\n"
    "    \"\"\"Data, optimizer and tokenizer are not of the plan.\"\"\"\n"
    "    return Trainer.Config(\n"
    "        model_spec=model_spec(), optimizer=default_adamw(lr=3e-4),\n"
    "        dataloader=HuggingFaceTextDataLoader.Config(dataset=\"c4\"),\n"
    "        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(\n"
    "            global_vocab_size=VOCABULARY)))\n";

/* Adds the Python module's imports: torchtitan's packages for the names in `c`.
 */
static void put_imports(lhi_text *out, const class_names *c)
{
    lhi_text_printf(
        out,
        "from dataclasses import replace\n"
        "from functools import partial\n"
        "\n"
        "from torch import nn\n"
        "from torchtitan.components.loss import ChunkedLossWrapper, "
        "CrossEntropyLoss\n"
        "from torchtitan.components.optimizer import (\n"
        "    default_adamw, register_moe_load_balancing_hook)\n"
        "from torchtitan.distributed.pipeline_parallel import pipeline_llm\n"
        "from torchtitan.hf_datasets.text_datasets import "
        "HuggingFaceTextDataLoader\n"
        "from torchtitan.models.common import (\n"
        "    ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm)\n"
        "from torchtitan.models.common.config_utils import (\n"
        "    get_attention_config, make_ffn_config, make_gqa_config, "
        "make_moe_config,\n"
        "    make_routed_experts_config, make_router_config,\n"
        "    make_token_dispatcher_config)\n"
        "from torchtitan.models.common.param_init import skip_param_init\n"
        "from torchtitan.models.%s.model import (\n"
        "    %s as Model, %s as Block)\n"
        "from torchtitan.models.%s.parallelize import %s as parallelize\n"
        "from torchtitan.models.%s.state_dict_adapter import (\n"
        "    %s as Adapter)\n"
        "%s"
        "from torchtitan.protocols.model_spec import ModelSpec\n"
        "from torchtitan.trainer import Trainer\n"
        "\n"
        "NAME = \"%s\"\n",
        c->module, c->model, c->block, c->module, c->parallelize, c->module,
        c->adapter, c->imports, c->module);
}

lh_status lhi_export_write_torchtitan_model(const lh_plan *plan, char **text,
                                            size_t *len, lh_error *err)
{
    const lh_model *m = plan->job->model;
    const lhi_torchtitan_class class = lhi_export_torchtitan_class(m);
    lhi_text out = {0};
    lhi_export_add_origin(&out, plan);
    lhi_export_put_inexact(&out, plan, LH_EXPORT_TORCHTITAN_MODEL);
    lhi_text_puts(&out, "\"\"\"The plan's model for torchtitan 0.3.0: --module "
                        "longhaul_model --config longhaul_model.\"\"\"\n");
    put_imports(&out, &classes[class]);
    put_constants(&out, plan->job, class);
    lhi_text_puts(&out, common_functions);
    if (class == LHI_TORCHTITAN_DEEPSEEK_V3)
        lhi_text_puts(&out, latent_attention);
    else if (class == LHI_TORCHTITAN_GPT_OSS)
        lhi_text_puts(&out, gpt_oss_attention);
    else
        lhi_text_printf(&out, grouped_attention,
                        m->qk_norm ? "norm(HEAD_DIM)" : "None");
    lhi_text_puts(&out, !m->experts                       ? no_experts
                        : class == LHI_TORCHTITAN_GPT_OSS ? gpt_oss_experts
                                                          : experts_function);
    lhi_text_puts(&out, model_functions);
    return lhi_text_take(&out, text, len, err);
}
