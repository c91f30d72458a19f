/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's keys without a counterpart, from 0.3.0 (config/configs.py,
 * trainer.py and their Config classes) and 0.2.2 (config/job_config.py): all
 * keys that are not in LHI_TITAN_LIST. */
#include "interop/import/torchtitan_internal.h"

#include <string.h>

#define FREE(name, form, type)                                                 \
    {                                                                          \
        name, LHI_TITAN_##form, LHI_TITAN_##type, LHI_TITAN_IGNORED, NULL,     \
            NULL                                                               \
    }
#define NOTED(name, form, type, unless, why)                                   \
    {                                                                          \
        name, LHI_TITAN_##form, LHI_TITAN_##type, LHI_TITAN_NOTED, unless, why \
    }
#define QUANTUM(name, type, why)                                               \
    {                                                                          \
        name, LHI_TITAN_TOML, LHI_TITAN_##type, LHI_TITAN_FP8_NOTED, NULL, why \
    }
#define REFUSED(name, form, type, unless, why)                                 \
    {                                                                          \
        name, LHI_TITAN_##form, LHI_TITAN_##type, LHI_TITAN_REFUSED, unless,   \
            why                                                                \
    }

#define ALIKE                                                                  \
    "all matrix products are modelled in 8 bits, with weights stored "         \
    "in 8 bits"

static const lhi_titan_unmapped unread[] = {
    /* activation_checkpoint */
    FREE("activation_checkpoint.debug", BOTH, TRUTH),
    FREE("activation_checkpoint.determinism_check", BOTH, WORD),
    FREE("activation_checkpoint.early_stop", TOML, TRUTH),
    FREE("activation_checkpoint.force_recompute_mm_shapes_by_fqns", OPTIONS,
         WORDS),
    FREE("activation_checkpoint.memory_budget", BOTH, NUMBER),
    FREE("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
         TOML, WORDS),
    FREE("activation_checkpoint.preserve_rng_state", BOTH, TRUTH),
    FREE("activation_checkpoint.visualize_memory_budget_pareto", BOTH, TRUTH),
    /* checkpoint */
    FREE("checkpoint.async_mode", BOTH, WORD),
    REFUSED("checkpoint.create_seed_checkpoint", BOTH, TRUTH, "false",
            "trains nothing"),
    FREE("checkpoint.enable", BOTH, TRUTH),
    FREE("checkpoint.enable_first_step_checkpoint", BOTH, TRUTH),
    FREE("checkpoint.enable_ft_dataloader_checkpoints", TOML, TRUTH),
    FREE("checkpoint.exclude_from_loading", BOTH, WORDS),
    FREE("checkpoint.export_dtype", BOTH, WORD),
    FREE("checkpoint.folder", BOTH, WORD),
    FREE("checkpoint.initial_load_in_hf", BOTH, TRUTH),
    FREE("checkpoint.initial_load_in_hf_quantized", BOTH, TRUTH),
    FREE("checkpoint.initial_load_model_only", BOTH, TRUTH),
    FREE("checkpoint.initial_load_path", BOTH, WORD),
    FREE("checkpoint.interval", BOTH, NUMBER),
    FREE("checkpoint.keep_latest_k", BOTH, NUMBER),
    FREE("checkpoint.last_save_in_hf", BOTH, TRUTH),
    FREE("checkpoint.last_save_model_only", BOTH, TRUTH),
    FREE("checkpoint.load_only", BOTH, TRUTH),
    FREE("checkpoint.load_step", BOTH, NUMBER),
    /* comm */
    FREE("comm.init_timeout_seconds", BOTH, NUMBER),
    REFUSED("comm.mode", BOTH, WORD, "default",
            "tests a configuration without training, or uses communication "
            "that longhaul does not model; remove it"),
    FREE("comm.save_traces_file_prefix", BOTH, WORD),
    FREE("comm.save_traces_folder", BOTH, WORD),
    FREE("comm.trace_buf_size", BOTH, NUMBER),
    FREE("comm.train_timeout_seconds", BOTH, NUMBER),
    /* compile */
    FREE("compile.backend", BOTH, WORD),
    /* data */
    FREE("dataloader.dataset", OPTIONS, WORD),
    FREE("dataloader.dataset_path", OPTIONS, WORD),
    FREE("dataloader.infinite", OPTIONS, TRUTH),
    FREE("dataloader.load_dataset_kwargs", OPTIONS, ANY),
    FREE("dataloader.num_workers", OPTIONS, NUMBER),
    FREE("dataloader.persistent_workers", OPTIONS, TRUTH),
    FREE("dataloader.pin_memory", OPTIONS, TRUTH),
    FREE("dataloader.prefetch_factor", OPTIONS, NUMBER),
    /* debug */
    REFUSED("debug.batch_invariant", OPTIONS, TRUTH, "false",
            "is not a pre-training mode; remove it"),
    NOTED("debug.detect_anomaly", OPTIONS, TRUTH, "false",
          "its checks are not modelled"),
    NOTED("debug.deterministic", BOTH, TRUTH, "false",
          "kernels are modelled as without it"),
    FREE("debug.deterministic_warn_only", BOTH, TRUTH),
    FREE("debug.enable_structured_logging", OPTIONS, TRUTH),
    FREE("debug.moe_force_load_balance", BOTH, TRUTH),
    FREE("debug.print_config", OPTIONS, TRUTH),
    FREE("debug.save_config_file", OPTIONS, WORD),
    FREE("debug.seed", BOTH, NUMBER),
    NOTED("debug.spmd_typechecking", OPTIONS, TRUTH, "false",
          "its checks are not modelled"),
    FREE("dump_folder", OPTIONS, WORD),
    /* experimental */
    REFUSED("experimental.custom_args_module", TOML, WORD, "",
            "names code that adds keys; remove it"),
    REFUSED("experimental.custom_import", TOML, WORD, "",
            "names code that adds models; remove it"),
    /* fault_tolerance */
    REFUSED("fault_tolerance.enable", TOML, TRUTH, "false",
            "trains with a varying number of replica groups, which longhaul "
            "does not model"),
    FREE("fault_tolerance.group_size", TOML, NUMBER),
    FREE("fault_tolerance.min_replica_size", TOML, NUMBER),
    FREE("fault_tolerance.process_group", TOML, WORD),
    FREE("fault_tolerance.process_group_timeout_ms", TOML, NUMBER),
    FREE("fault_tolerance.replica_id", TOML, NUMBER),
    FREE("fault_tolerance.semi_sync_method", TOML, WORD),
    FREE("hf_assets_path", OPTIONS, WORD),
    /* job */
    REFUSED("job.config_file", BOTH, WORD, NULL,
            "names a torchtitan 0.2 configuration file; import that file "
            "instead"),
    REFUSED("job.custom_config_module", TOML, WORD, "",
            "names code that adds keys; remove it"),
    FREE("job.description", TOML, WORD),
    FREE("job.dump_folder", TOML, WORD),
    FREE("job.print_config", TOML, TRUTH),
    FREE("job.save_config_file", TOML, WORD),
    /* loss */
    FREE("loss.global_vocab_size", OPTIONS, NUMBER),
    FREE("loss.loss_fn.global_vocab_size", OPTIONS, NUMBER),
    NOTED("loss.num_chunks", OPTIONS, NUMBER, NULL,
          "the head's output is modelled for all tokens at once"),
    /* lr_scheduler */
    FREE("loss.mtp_scale", OPTIONS, NUMBER),
    FREE("lr_scheduler.decay_ratio", BOTH, NUMBER),
    FREE("lr_scheduler.decay_type", BOTH, WORD),
    FREE("lr_scheduler.min_lr_factor", BOTH, NUMBER),
    FREE("lr_scheduler.total_steps", BOTH, NUMBER),
    FREE("lr_scheduler.warmup_steps", BOTH, NUMBER),
    /* memory_estimation */
    FREE("memory_estimation.disable_fake_mode", TOML, TRUTH),
    REFUSED("memory_estimation.enable", TOML, TRUTH, "false", "trains nothing"),
    /* metrics */
    FREE("metrics.disable_color_printing", BOTH, TRUTH),
    FREE("metrics.enable_tensorboard", BOTH, TRUTH),
    FREE("metrics.enable_wandb", BOTH, TRUTH),
    FREE("metrics.log_freq", BOTH, NUMBER),
    FREE("metrics.save_for_all_ranks", BOTH, TRUTH),
    FREE("metrics.save_tb_folder", BOTH, WORD),
    /* model */
    FREE("model.hf_assets_path", TOML, WORD),
    FREE("model.print_after_conversion", TOML, TRUTH),
    FREE("model.tokenizer_path", TOML, WORD),
    /* optimizer */
    FREE("optimizer.beta1", TOML, NUMBER),
    FREE("optimizer.beta2", TOML, NUMBER),
    NOTED("optimizer.early_step_in_backward", TOML, TRUTH, "false",
          "the optimizer step is modelled after all gradients are complete"),
    FREE("optimizer.eps", TOML, NUMBER),
    NOTED("optimizer.implementation", BOTH, WORD, "fused",
          "the optimizer step is modelled as fused, with fp32 state"),
    FREE("optimizer.lr", TOML, NUMBER),
    FREE("optimizer.param_groups.*.optimizer_kwargs.*", OPTIONS, ANY),
    FREE("optimizer.param_groups.*.pattern", OPTIONS, WORD),
    FREE("optimizer.weight_decay", TOML, NUMBER),
    /* override */
    NOTED("override.imports", OPTIONS, LISTS, "",
          "replaced model parts are modelled as torchtitan's own"),
    /* parallelism */
    NOTED("parallelism.context_parallel_load_balancer", BOTH, WORD, "headtail",
          "work is modelled as balanced over context-parallel GPUs"),
    FREE("parallelism.context_parallel_ptrr_mask_key", OPTIONS, WORD),
    NOTED("parallelism.context_parallel_rotate_method", TOML, WORD, "allgather",
          "keys and values are modelled as gathered by allgather"),
    NOTED("parallelism.disable_loss_parallel", TOML, TRUTH, "false",
          "the head and its loss are modelled as sharded over tensor-parallel "
          "GPUs"),
    NOTED("parallelism.enable_fsdp_symm_mem", OPTIONS, TRUTH, "false",
          "gathers and reductions are modelled as NCCL rings"),
    NOTED("parallelism.pipeline_parallel_expert_parallel_overlap", TOML, TRUTH,
          "false",
          "expert communication is modelled between passes; only DualPipeV "
          "overlaps it"),
    FREE("parallelism.spmd_backend", OPTIONS, WORD),
    /* profiler, of 0.2 profiling */
    FREE("profiler.enable_memory_snapshot", OPTIONS, TRUTH),
    FREE("profiler.enable_profiling", OPTIONS, TRUTH),
    FREE("profiler.memory_snapshot_freq", OPTIONS, NUMBER),
    FREE("profiler.memory_snapshot_max_entries", OPTIONS, NUMBER),
    FREE("profiler.profile_freq", OPTIONS, NUMBER),
    FREE("profiler.profiler_active", OPTIONS, NUMBER),
    FREE("profiler.profiler_repeat", OPTIONS, NUMBER),
    FREE("profiler.profiler_skip_first", OPTIONS, NUMBER),
    FREE("profiler.profiler_skip_first_wait", OPTIONS, NUMBER),
    FREE("profiler.profiler_warmup", OPTIONS, NUMBER),
    FREE("profiler.save_memory_snapshot_folder", OPTIONS, WORD),
    FREE("profiler.save_traces_folder", OPTIONS, WORD),
    FREE("profiling.enable_memory_snapshot", TOML, TRUTH),
    FREE("profiling.enable_profiling", TOML, TRUTH),
    FREE("profiling.profile_freq", TOML, NUMBER),
    FREE("profiling.profiler_active", TOML, NUMBER),
    FREE("profiling.profiler_warmup", TOML, NUMBER),
    FREE("profiling.save_memory_snapshot_folder", TOML, WORD),
    FREE("profiling.save_traces_folder", TOML, WORD),
    /* quantize */
    QUANTUM("quantize.grouped_mm.float8.fqns", ANY, ALIKE),
    QUANTUM("quantize.grouped_mm.mx.fqns", ANY, ALIKE),
    QUANTUM("quantize.grouped_mm.mx.recipe_name", WORD, ALIKE),
    QUANTUM("quantize.linear.float8.emulate", TRUTH, ALIKE),
    QUANTUM("quantize.linear.float8.enable_fsdp_float8_all_gather", TRUTH,
            ALIKE),
    QUANTUM("quantize.linear.float8.filter_fqns", ANY, ALIKE),
    QUANTUM("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
            TRUTH, ALIKE),
    QUANTUM("quantize.linear.float8.recipe_name", WORD, ALIKE),
    QUANTUM("quantize.linear.mx.filter_fqns", ANY, ALIKE),
    QUANTUM("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", WORD, ALIKE),
    QUANTUM("quantize.linear.mx.recipe_name", WORD, ALIKE),
    /* training */
    FREE("training.dataloader.num_workers", TOML, NUMBER),
    FREE("training.dataloader.persistent_workers", TOML, TRUTH),
    FREE("training.dataloader.pin_memory", TOML, TRUTH),
    FREE("training.dataloader.prefetch_factor", TOML, NUMBER),
    FREE("training.dataset", TOML, WORD),
    FREE("training.dataset_path", TOML, WORD),
    FREE("training.disable_cuda_graphs", OPTIONS, TRUTH),
    NOTED("training.dtype", BOTH, WORD, "float32",
          "weights, gradients and optimizer state are modelled as stored in "
          "fp32"),
    NOTED("training.enable_cpu_offload", BOTH, TRUTH, "false",
          "weights and optimizer state are modelled on the GPU"),
    FREE("training.gc_debug", BOTH, TRUTH),
    FREE("training.gc_freq", BOTH, NUMBER),
    FREE("training.max_norm", BOTH, NUMBER),
    REFUSED("training.mixed_precision_reduce", BOTH, WORD, "float32",
            "only float32 is supported; set it to float32, or remove it"),
    FREE("training.steps", BOTH, NUMBER),
    /* validation, of 0.3 validator */
    FREE("validation.dataloader.num_workers", TOML, NUMBER),
    FREE("validation.dataloader.persistent_workers", TOML, TRUTH),
    FREE("validation.dataloader.pin_memory", TOML, TRUTH),
    FREE("validation.dataloader.prefetch_factor", TOML, NUMBER),
    FREE("validation.dataset", TOML, WORD),
    FREE("validation.dataset_path", TOML, WORD),
    FREE("validation.enable", TOML, TRUTH),
    FREE("validation.freq", TOML, NUMBER),
    FREE("validation.local_batch_size", TOML, NUMBER),
    FREE("validation.seq_len", TOML, NUMBER),
    FREE("validation.steps", TOML, NUMBER),
    FREE("validator.dataloader.dataset", OPTIONS, WORD),
    FREE("validator.dataloader.dataset_path", OPTIONS, WORD),
    FREE("validator.dataloader.infinite", OPTIONS, TRUTH),
    FREE("validator.dataloader.num_workers", OPTIONS, NUMBER),
    FREE("validator.dataloader.persistent_workers", OPTIONS, TRUTH),
    FREE("validator.dataloader.pin_memory", OPTIONS, TRUTH),
    FREE("validator.dataloader.prefetch_factor", OPTIONS, NUMBER),
    FREE("validator.enable", OPTIONS, TRUTH),
    FREE("validator.freq", OPTIONS, NUMBER),
    FREE("validator.steps", OPTIONS, NUMBER),
};

bool lhi_titan_matches(const char *pattern, const char *name)
{
    while (*pattern && *name) {
        if (*pattern == '*') {
            const size_t n = strcspn(name, ".");
            if (n == 0)
                return false;
            name += n;
            pattern++;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return !*pattern && !*name;
}

const lhi_titan_unmapped *lhi_titan_find_unmapped(const char *name,
                                                  lhi_titan_form form)
{
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if ((unread[i].form & form) && lhi_titan_matches(unread[i].name, name))
            return &unread[i];
    return NULL;
}
