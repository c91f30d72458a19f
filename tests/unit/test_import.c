/* SPDX-License-Identifier: Apache-2.0 */
/* Imports: the list of sources, complete results or none when memory runs out,
 * and clusters from options or another job. tests/cli/test_import.py and
 * test_import_torchtitan.py check the imported values. */
#include "fail_alloc.h"
#include "format/job/model_size.h"
#include "interop/import/import_internal.h"
#include "test.h"

#include <longhaul/experimental/import.h>

#include <string.h>

/* A model with every supported feature. */
static const char arguments[] =
    "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py \\\n"
    "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --swiglu \\\n"
    "--disable-bias-linear --normalization RMSNorm --vocab-size 32000 \\\n"
    "--position-embedding-type rope --seq-length 2048 \\\n"
    "--max-position-embeddings 2048 --window-size 127,0 \\\n"
    "--window-attn-skip-freq '([1]*3+[0])*2' --num-experts 16 \\\n"
    "--moe-layer-freq ([0]*2+[1,1,0]*2) --moe-router-topk 2 \\\n"
    "--tensor-model-parallel-size 2 --sequence-parallel \\\n"
    "--pipeline-model-parallel-size 4 \\\n"
    "--pipeline-model-parallel-layout=Et|(t|)*5tt|L --micro-batch-size 1 \\\n"
    "--use-distributed-optimizer --recompute-granularity selective \\\n"
    "--recompute-modules moe_act layernorm --bf16 --seed 7 --qk-clip \\\n"
    "--no-overlap-p2p-communication --hidden-dropout 0 \\\n"
    "--global-batch-size 16\n";

static const char toml[] =
    "[model]\nname = 'deepseek_v3'\nflavor = '16B'\n"
    "converters = ['quantize.linear.float8']\n[training]\n"
    "local_batch_size = 8\nseq_len = 4096\n[parallelism]\n"
    "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
    "pipeline_parallel_degree = 2\nexpert_parallel_degree = 2\n"
    "module_fqns_per_model_part = [['tok_embeddings', 'layers.0'], [\n"
    "'layers.1', 'layers.2', 'layers.3', 'layers.4', 'layers.5', 'layers.6',\n"
    "'layers.7', 'layers.8', 'layers.9', 'layers.10', 'layers.11',\n"
    "'layers.12', 'layers.13', 'layers.14', 'layers.15', 'layers.16',\n"
    "'layers.17', 'layers.18', 'layers.19', 'layers.20', 'layers.21',\n"
    "'layers.22', 'layers.23', 'layers.24', 'layers.25', 'layers.26',\n"
    "'norm', 'output']]\n[quantize.linear.float8]\nfilter_fqns = ['output']\n"
    "[debug]\nseed = 7\n";
static const char options[] =
    "# Ranks 0 to 15: west\n"
    "torchrun --nnodes 2 --nproc_per_node=8 -m torchtitan.train --module "
    "llama3 --config llama3_405b --parallelism.pipeline_parallel_degree 2 "
    "--training.steps 7 activation-checkpoint:selective\n";

static const char deepspeed[] =
    "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 4,\n"
    " \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8},\n"
    " \"bf16\": {\"enabled\": true, \"loss_scale\": 0},\n"
    " \"unknown\": {\"key\": \"auto\"}}\n";
static const char nemo[] =
    "trainer: {devices: 8, num_nodes: 2, precision: bf16-mixed}\n"
    "model:\n"
    "  num_layers: 8\n  hidden_size: 512\n  num_attention_heads: 8\n"
    "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n"
    "  encoder_seq_length: 1024\n"
    "  max_position_embeddings: ${model.encoder_seq_length}\n"
    "  activation: fast-swiglu\n  bias: False\n  num_query_groups: 4\n"
    "  window_size: [127, 0]\n  micro_batch_size: 1\n"
    "  global_batch_size: 16\n  tensor_model_parallel_size: 2\n"
    "  sequence_parallel: True\n  seed: 7\n  own_key: [1]\n"
    "  optim: {name: mcore_distributed_optim, overlap_grad_sync: true}\n";

static lh_status import_yaml(lh_import_source source, const char *text,
                             lh_import **out, lh_error *err)
{
    static const lh_draft_site site = {.gpu = "h100", .nodes = 2};
    const lh_draft_options machines = {.size = sizeof machines,
                                       .n_sites = 1,
                                       .sites = &site,
                                       .sequence = 2048};
    const lh_import_options how = {.size = sizeof how,
                                   .machines = &machines,
                                   .model = source == LH_IMPORT_DEEPSPEED
                                                ? lh_model_preset("llama3-8b")
                                                : NULL};
    return lh_import_parse(source, text, strlen(text), "conf", &how, out, err);
}

static lh_status import_titan(const char *text, lh_import **out, lh_error *err)
{
    return lh_import_parse(LH_IMPORT_TORCHTITAN, text, strlen(text), "conf",
                           NULL, out, err);
}

static lh_status import_on(const lh_job *cluster, uint32_t n_sites,
                           lh_import **out, lh_error *err)
{
    static const lh_draft_site sites[] = {{.gpu = "h100"}, {.gpu = "h200"}};
    const lh_draft_options machines = {
        .size = sizeof machines, .n_sites = n_sites, .sites = sites};
    const lh_import_options how = {
        .size = sizeof how, .machines = &machines, .cluster = cluster};
    return lh_import_parse(LH_IMPORT_MEGATRON, arguments, strlen(arguments),
                           "args", &how, out, err);
}

static lh_job *job_of(const lh_import *in)
{
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_parse(in->job, in->job_len, "job", NULL, &job, &err), err);
    return job;
}

static void names(void)
{
    CHECK_STR(lh_import_source_name(LH_IMPORT_MEGATRON), "megatron");
    CHECK_STR(lh_import_source_name(LH_IMPORT_TORCHTITAN), "torchtitan");
    CHECK_STR(lh_import_source_name(LH_IMPORT_DEEPSPEED), "deepspeed");
    CHECK_STR(lh_import_source_name(LH_IMPORT_NEMO), "nemo");
    CHECK(!lh_import_source_name((lh_import_source)lhi_n_import_sources()));
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_INT(lh_import_parse((lh_import_source)lhi_n_import_sources(), "", 0,
                              "args", NULL, &in, &err),
              LH_EINVAL);
    CHECK(!in);
    lh_import_free(NULL);
}

static void all_is_there(void)
{
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_OK(import_on(NULL, 2, &in, &err), err);
    lh_job *job = job_of(in);
    CHECK_INT(job->n_gpus, 32);
    CHECK_INT(job->n_datacenters, 2);
    CHECK_INT(job->layout.data, 4);
    CHECK_INT(job->layout.chunks_per_device, 2);
    CHECK_INT(job->training.global_batch, 16);
    CHECK_INT(job->model->sliding_window, 128);
    CHECK_INT(job->model->full_interval, 4);
    CHECK_INT(lhi_model_moe_layers(job->model, 0, 8), 4);
    CHECK_INT(job->layout.sites->n_groups, 1);
    CHECK_INT(in->n_ignored, 2);
    CHECK_STR(in->ignored[1], "seed");
    CHECK(in->n_notes > 0);
    lh_job_free(job);
    lh_import_free(in);
}

/* Takes only the cluster from another job. */
static void clusters_are_taken_over(void)
{
    lh_import *in = NULL, *again = NULL;
    lh_error err = {0};
    CHECK_OK(import_on(NULL, 2, &in, &err), err);
    lh_job *cluster = job_of(in);
    CHECK_OK(import_on(cluster, 1, &again, &err), err);
    lh_job *job = job_of(again);
    CHECK_INT(job->n_datacenters, 2);
    CHECK_INT(job->n_gpus, cluster->n_gpus);
    CHECK_STR(job->datacenters[1].gpu.name, "h200");
    CHECK_INT(job->wans[1].latency_ns, LH_DRAFT_LATENCY_NS);
    lh_job_free(job);
    lh_job_free(cluster);
    lh_import_free(again);
    lh_import_free(in);
}

static void memory_runs_out(void)
{
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_OK(import_on(NULL, 2, &in, &err), err);
    lh_job *cluster = job_of(in);
    lh_import_free(in);
    FAIL_EACH_ALLOC({
        in = NULL;
        status = import_on(cluster, 1, &in, &err);
        CHECK((status == LH_OK) == (in != NULL));
        lh_import_free(in);
    });
    lh_job_free(cluster);
    FAIL_EACH_ALLOC({
        in = NULL;
        status = import_on(NULL, 2, &in, &err);
        CHECK((status == LH_OK) == (in != NULL));
        lh_import_free(in);
    });
}

/* A remark that cannot be compared must not be attributed to another
 * datacenter. */
static void memory_runs_out_for_places(void)
{
    static const lh_draft_site sites[] = {{.gpu = "h200", .nodes = 1},
                                          {.gpu = "h200", .nodes = 1}};
    const lh_draft_options machines = {
        .size = sizeof machines, .n_sites = 2, .sites = sites};
    const lh_import_options how = {.size = sizeof how, .machines = &machines};
    lh_error err = {0};
    lh_import *in = NULL;
    char text[512];
    CHECK_OK(lh_import_parse(LH_IMPORT_TORCHTITAN, options, strlen(options),
                             "conf", &how, &in, &err),
             err);
    lh_job *job = job_of(in);
    snprintf(text, sizeof text, "# Ranks 0 to 7: %s\n# Ranks 8 to 15: %s\n%s",
             job->datacenters[1].name, job->datacenters[0].name,
             strchr(options, '\n') + 1);
    lh_job_free(job);
    lh_import_free(in);
    fail_alloc_once = true;
    FAIL_EACH_ALLOC({
        in = NULL;
        status = lh_import_parse(LH_IMPORT_TORCHTITAN, text, strlen(text),
                                 "conf", &how, &in, &err);
        lh_import_free(in);
    });
    fail_alloc_once = false;
}

static void torchtitan_in_both_forms(void)
{
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_OK(import_titan(toml, &in, &err), err);
    lh_job *job = job_of(in);
    CHECK_INT(job->n_gpus, 16);
    CHECK_INT(job->layout.data, 8);
    CHECK_INT(job->layout.chunk_layers[0], 1);
    CHECK_INT(job->layout.chunk_layers[1], 26);
    CHECK_INT(job->model->experts, 64);
    CHECK_INT(in->plan_target, LH_TARGET_ANY);
    CHECK_INT(in->n_ignored, 1);
    lh_job_free(job);
    lh_import_free(in);
    CHECK_OK(import_titan(options, &in, &err), err);
    job = job_of(in);
    CHECK_INT(job->n_gpus, 16);
    CHECK_INT(job->layout.tensor, 8);
    CHECK_INT(job->framework.fp8, LH_FP8_MATMUL);
    lh_job_free(job);
    lh_import_free(in);
}

/* Megatron-LM's arguments contain both. */
static void model_and_schedule_are_for_torchtitan(void)
{
    const lh_import_options how = {.size = sizeof how, .schedule = "1f1b"};
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_INT(lh_import_parse(LH_IMPORT_MEGATRON, arguments, strlen(arguments),
                              "args", &how, &in, &err),
              LH_EINVAL);
    CHECK(!in);
}

static void memory_runs_out_for_torchtitan(void)
{
    const char *const texts[] = {toml, options};
    lh_error err = {0};
    for (int i = 0; i < 2; i++)
        FAIL_EACH_ALLOC({
            lh_import *in = NULL;
            status = import_titan(texts[i], &in, &err);
            CHECK((status == LH_OK) == (in != NULL));
            lh_import_free(in);
        });
}

static void yaml_of_deepspeed_and_nemo(void)
{
    lh_import *in = NULL;
    lh_error err = {0};
    CHECK_OK(import_yaml(LH_IMPORT_DEEPSPEED, deepspeed, &in, &err), err);
    lh_job *job = job_of(in);
    CHECK_INT(job->n_gpus, 16);
    CHECK_INT(job->layout.micro_batch, 1);
    CHECK_INT(job->training.zero, 3);
    CHECK_INT(job->training.sequence, 2048);
    CHECK_INT(job->framework.preset, LH_FRAMEWORK_DEEPSPEED);
    lh_job_free(job);
    lh_import_free(in);
    CHECK_OK(import_yaml(LH_IMPORT_NEMO, nemo, &in, &err), err);
    job = job_of(in);
    CHECK_INT(job->model->ffn, 2048);
    CHECK_INT(job->model->kv_heads, 4);
    CHECK_INT(job->model->sliding_window, 128);
    CHECK_INT(job->layout.data, 8);
    CHECK_INT(in->plan_target, LH_TARGET_MEGATRON);
    lh_job_free(job);
    lh_import_free(in);
}

static void memory_runs_out_for_yaml(void)
{
    lh_error err = {0};
    for (int i = 0; i < 2; i++)
        FAIL_EACH_ALLOC({
            lh_import *in = NULL;
            status = import_yaml(i ? LH_IMPORT_NEMO : LH_IMPORT_DEEPSPEED,
                                 i ? nemo : deepspeed, &in, &err);
            CHECK((status == LH_OK) == (in != NULL));
            lh_import_free(in);
        });
}

int main(void)
{
    RUN(names);
    RUN(all_is_there);
    RUN(clusters_are_taken_over);
    RUN(memory_runs_out);
    RUN(memory_runs_out_for_places);
    RUN(torchtitan_in_both_forms);
    RUN(model_and_schedule_are_for_torchtitan);
    RUN(memory_runs_out_for_torchtitan);
    RUN(yaml_of_deepspeed_and_nemo);
    RUN(memory_runs_out_for_yaml);
    return test_summary();
}
