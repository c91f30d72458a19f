/* SPDX-License-Identifier: Apache-2.0 */
/* Presets, Hugging Face files, and parameter counts compared with published
 * ones. */
#include <longhaul/experimental/model.h>

#include "test.h"

#include "format/document/tree.h"
#include "format/job/model_size.h"
#include "format/job/parse.h"

#define SOURCE_ROOT TEST_DATA "/../.."

static void presets_have_published_counts(void)
{
    /* The first four and Mixtral: the counts shown on huggingface.co for the
     * weights. GPT-3: 174,600 million, table D.1 in arXiv:2005.14165.
     * DeepSeek-V3 and Kimi K2 without the 256 and 384 expert balance biases per
     * layer, which are not trained. */
    static const struct {
        const char *name;
        uint64_t params, active;
    } known[] = {
        {"llama3-8b", 8030261248, 8030261248},
        {"llama3-70b", 70553706496, 70553706496},
        {"llama3-405b", 405853388800, 405853388800},
        {"qwen2.5-32b", 32763876352, 32763876352},
        {"mixtral-8x7b", 46702792704, 12879925248},
        {"gpt3-175b", 174604259328, 174604259328},
        {"deepseek-v3", 671026404352, 37552282624},
        {"qwen2.5-72b", 72706203648, 72706203648},
        {"qwen3-30b-a3b", 30532122624, 3353032704},
        {"qwen3-235b-a22b", 235093634560, 22190763520},
        {"gpt-oss-120b", 116829156672, 5711982912},
        {"kimi-k2", 1026408209408, 32861477888},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const lh_model *m = lh_model_preset(known[i].name);
        CHECK(m != NULL);
        CHECK_INT(lh_model_params(m), known[i].params);
        CHECK_INT(lh_model_active_params(m), known[i].active);
    }
    /* DeepSeek's README_WEIGHTS: 11.5 B for the MTP module itself; the
     * projection adds 2 x 7168^2. */
    const lh_model *v3 = lh_model_preset("deepseek-v3");
    CHECK_NEAR((double)lhi_model_mtp_params(v3) - 2 * 7168.0 * 7168.0, 11.5e9,
               0.01e9);
    CHECK(lh_model_preset("llama4") == NULL);
}

static void presets_are_listed_and_sound(void)
{
    size_t n = 0;
    for (const char *const *name = lh_model_presets(); *name; name++, n++) {
        const lh_model *m = lh_model_preset(*name);
        CHECK(m && strcmp(m->name, *name) == 0);
        lhi_doc doc = {.file = *name};
        lhi_node root = {.kind = LHI_MAP, .line = 1};
        lh_error err = {0};
        CHECK_OK(lhi_model_check(&doc, &root, m, &err), err);
    }
    CHECK_INT(n, 16);
    const lh_model *m = lh_model_preset("llama3.3-70b");
    CHECK(m && m == lh_model_preset("llama3.1-70b"));
    CHECK(lh_model_preset("llama3.1-405b") == lh_model_preset("llama3-405b"));
}

static void crosspipe_models_are_short_llamas(void)
{
    const lh_model *m70 = lh_model_preset("crosspipe-m70");
    const lh_model *llama = lh_model_preset("llama3-70b");
    CHECK_INT(m70->layers, 62);
    CHECK_INT(lhi_model_layer_params(m70, 0).total,
              lhi_model_layer_params(llama, 0).total);
    CHECK_INT(lh_model_preset("crosspipe-m8")->layers, 30);
}

static void parts_add_up(void)
{
    for (const char *const *name = lh_model_presets(); *name; name++) {
        const lh_model *m = lh_model_preset(*name);
        lh_layer_params sum = {0},
                        all = lhi_model_range_params(m, 0, m->layers);
        for (uint32_t i = 0; i < m->layers; i++) {
            lh_layer_params p = lhi_model_layer_params(m, i);
            CHECK_INT(p.total,
                      p.attention + p.norms + p.mlp + p.router + p.experts);
            CHECK(p.active <= p.total);
            CHECK(lh_model_layer_is_moe(m, i) || p.experts == 0);
            sum.total += p.total;
            sum.active += p.active;
        }
        CHECK_INT(all.total, sum.total);
        CHECK_INT(all.active, sum.active);
        uint64_t shared =
            m->tied_embeddings ? (uint64_t)m->hidden * m->vocab : 0;
        CHECK_INT(lh_model_params(m), sum.total +
                                          lhi_model_embedding_params(m) +
                                          lhi_model_head_params(m) - shared);
    }
    const lh_model *v3 = lh_model_preset("deepseek-v3");
    CHECK_INT(lhi_model_moe_layers(v3, 0, 61), 58);
    CHECK_INT(lhi_model_moe_layers(v3, 2, 2), 1);
    CHECK(!lh_model_layer_is_moe(v3, 2));
    CHECK(lh_model_layer_is_moe(v3, 3));
}

/* Files of public models; counts as on huggingface.co for the weights (the
 * language model alone, if multimodal; DeepSeek-V3 without its multi-token
 * prediction). */
static void public_configs_are_read_as_they_are(void)
{
    static const struct {
        const char *name;
        uint64_t params;
        uint32_t head_dim, window;
    } known[] = {
        {"DeepSeek-V2", 235741434880, 192, 0},
        {"DeepSeek-V2-Lite", 15706484224, 192, 0},
        {"DeepSeek-V3", 671026404352, 192, 0},
        {"Llama-2-7b-hf", 6738415616, 128, 0},
        {"Llama-3.1-8B", 8030261248, 128, 0},
        {"Llama-3.2-1B", 1235814400, 64, 0},
        {"Mistral-7B-v0.1", 7241732096, 128, 4096},
        {"Mistral-Nemo-Base-2407", 12247782400, 128, 0},
        {"Mixtral-8x7B-v0.1", 46702792704, 128, 0},
        {"Qwen1.5-MoE-A2.7B", 14315784192, 128, 0},
        {"Qwen2.5-0.5B", 494032768, 64, 0},
        {"Qwen2.5-32B", 32763876352, 128, 0},
        {"Qwen2.5-VL-7B-Instruct", 7615616512, 128, 0},
        {"Qwen3-30B-A3B", 30532122624, 128, 0},
        {"Qwen3-8B", 8190735360, 128, 0},
        {"gpt-oss-120b", 116829156672, 64, 128},
        {"llava-1.5-7b-hf", 6738939904, 128, 0},
        /* Parameters of transformers' models on its meta device. */
        {"DeepSeek-V3.2-Exp", 671877929216, 192, 0},
        {"Qwen3-Next-80B-A3B-Instruct", 79674391296, 256, 0},
        {"Llama-4-Maverick-17B-128E", 400711848960, 128, 8192},
        {"Llama-4-Scout-17B-16E", 107769861120, 128, 8192},
        {"MiniMax-M2", 228689748992, 128, 0},
        {"Minitron-4B-Base", 4190509056, 128, 0},
        {"OLMo-2-0325-32B", 32234279936, 128, 0},
        {"OLMo-2-1124-7B", 7298617344, 128, 0},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31577937344, 128, 0},
        {"Nemotron-H-8B-Base-8K", 8100852736, 128, 0},
        {"c4ai-command-a-03-2025", 111057580032, 128, 4096},
        {"gemma-3-27b-it", 27009346304, 128, 1024},
        {"phi-4", 14659507200, 128, 0},
        /* In no class of transformers: 8 experts of three matrices, queries and
         * outputs of 48 heads, keys and values of 8, four norms. */
        {"grok-1", 315684820992, 128, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char path[512];
        lh_model *m = NULL;
        lh_error err = {0};
        snprintf(path, sizeof path,
                 SOURCE_ROOT "/tests/data/configs/%s/config.json",
                 known[i].name);
        CHECK_OK(lh_model_read(path, &m, &err), err);
        if (!m)
            continue;
        CHECK_STR(m->name, known[i].name);
        CHECK_INT(lh_model_params(m), known[i].params);
        CHECK_INT(m->head_dim, known[i].head_dim);
        CHECK_INT(m->sliding_window, known[i].window);
        lh_model_free(m);
    }
}

static void check_alike(const char *file, const char *preset)
{
    char path[512];
    const lh_model *want = lh_model_preset(preset);
    lh_model *got = NULL;
    lh_error err = {0};
    snprintf(path, sizeof path, SOURCE_ROOT "/tests/data/configs/%s", file);
    CHECK_OK(lh_model_read(path, &got, &err), err);
    if (!got)
        return;
    lh_model same = *got;
    same.name = want->name;
    json_t *a = lhi_model_to_json(&same), *b = lhi_model_to_json(want);
    CHECK(a && b && json_equal(a, b));
    json_decref(a);
    json_decref(b);
    lh_model_free(got);
}

static void configs_equal_the_presets_of_the_same_models(void)
{
    check_alike("Llama-3.1-8B/config.json", "llama3.1-8b");
    check_alike("Qwen2.5-32B/config.json", "qwen2.5-32b");
    check_alike("Qwen3-30B-A3B/config.json", "qwen3-30b-a3b");
    check_alike("gpt-oss-120b/config.json", "gpt-oss-120b");
    check_alike("Mixtral-8x7B-v0.1/config.json", "mixtral-8x7b");
    check_alike("DeepSeek-V3/config.json", "deepseek-v3");
}

/* gpt-oss: the first layer sees 128 tokens, the second all. */
static void some_layers_see_all_tokens(void)
{
    const lh_model *oss = lh_model_preset("gpt-oss-120b");
    const lh_model *llama = lh_model_preset("llama3-8b");
    lh_model m = *oss;
    for (uint32_t i = 0; i < oss->layers; i++) {
        CHECK_INT(lh_model_layer_window(oss, i), i % 2 ? 0 : 128);
        CHECK_INT(lh_model_layer_window(llama, i % llama->layers), 0);
    }
    m.window_first_layer = 3;
    m.full_interval = 0;
    CHECK_INT(lh_model_layer_window(&m, 2), 0);
    CHECK_INT(lh_model_layer_window(&m, 3), 128);
    m.full_interval = 6; /* Gemma 3: five, and one that sees all */
    CHECK_INT(lh_model_layer_window(&m, 5), 0);
    CHECK_INT(lh_model_layer_window(&m, 6), 128);
    CHECK_INT(lh_model_layer_window(&m, 11), 0);
}

/* Checks runs of same-kind layers, and sums over layer ranges, against every
 * layer. */
static void check_runs(const lh_model *m)
{
    for (uint32_t first = 0; first < m->layers; first++) {
        const uint32_t kind = lhi_find_layer_kind(m, first);
        uint32_t equal = 0, moe = 0;
        lh_layer_params sum = {0};
        bool ended = false;
        for (uint32_t n = 1; first + n <= m->layers; n++) {
            const uint32_t layer = first + n - 1;
            const lh_layer_params p = lhi_model_layer_params(m, layer);
            ended = ended || lhi_find_layer_kind(m, layer) != kind;
            equal += !ended;
            moe += lh_model_layer_is_moe(m, layer);
            sum.attention += p.attention;
            sum.norms += p.norms;
            sum.mlp += p.mlp;
            sum.router += p.router;
            sum.experts += p.experts;
            sum.total += p.total;
            sum.active += p.active;
            const lh_layer_params range = lhi_model_range_params(m, first, n);
            CHECK_INT(lhi_count_equal_layers(m, first, n), equal);
            CHECK_INT(lhi_model_moe_layers(m, first, n), moe);
            CHECK(memcmp(&range, &sum, sizeof sum) == 0);
        }
    }
    CHECK_INT(lhi_count_equal_layers(m, 0, 0), 0);
}

/* Runs of every preset, and of DeepSeek-V3 with experts in other layers. */
static void runs_have_one_kind(void)
{
    static const uint32_t dense[] = {3, 4, 17, 60};
    for (const char *const *name = lh_model_presets(); *name; name++)
        check_runs(lh_model_preset(*name));
    lh_model m = *lh_model_preset("deepseek-v3");
    m.n_dense_list = 4;
    m.dense_list = dense;
    check_runs(&m);
    m.n_dense_list = 0;
    m.moe_interval = 3;
    m.moe_phase = 1;
    check_runs(&m);
    m.moe_interval = 1; /* no layer has this phase */
    check_runs(&m);
}

int main(void)
{
    RUN(runs_have_one_kind);
    RUN(presets_have_published_counts);
    RUN(presets_are_listed_and_sound);
    RUN(crosspipe_models_are_short_llamas);
    RUN(parts_add_up);
    RUN(public_configs_are_read_as_they_are);
    RUN(some_layers_see_all_tokens);
    RUN(configs_equal_the_presets_of_the_same_models);
    return test_summary();
}
