/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options of training programs that both the exporters and the
 * advice on a plan's flags name. */
#ifndef LHI_PLANNER_LAYOUT_TARGET_FLAGS_H
#define LHI_PLANNER_LAYOUT_TARGET_FLAGS_H

#include "planner/layout/target.h"

/* Megatron-LM (core 0.16). */
#define LHI_FLAG_DISPATCHER "--moe-token-dispatcher-type "
#define LHI_FLAG_FLEX_BACKEND "--moe-flex-dispatcher-backend "
#define LHI_FLAG_REDUCE_BF16 "--grad-reduce-in-bf16"
#define LHI_FLAG_TENSOR_OVERLAP "--tp-comm-overlap"
#define LHI_FLAG_EXPERT_OVERLAP "--overlap-moe-expert-parallel-comm"
#define LHI_FLAG_SHARED_OVERLAP "--moe-shared-expert-overlap"
#define LHI_FLAG_RECOMPUTE_MODULES "--recompute-modules"
#define LHI_FLAG_OPTIMIZER_INSTANCES "--num-distributed-optimizer-instances"
/* torchtitan */
#define LHI_FLAG_COMPILE "--compile.enable"
#define LHI_FLAG_ASYNC_TENSOR "--compile.enable-async-tensor-parallel"

/* Fractions of tensor parallelism's communication that the programs hide, as
 * fitted to published runs (docs/validation.md). */
#define LHI_MEGATRON_TENSOR_OVERLAP 0.82
#define LHI_TORCHTITAN_TENSOR_OVERLAP 0.1

#endif
