/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic sharding: data-parallel communication launched by a rank's passes.
 * Sharded parameters and gradients are gathered and scattered around the passes
 * that need them. */
#ifndef LHI_RUNTIME_ENGINE_ELASTIC_SHARDING_H
#define LHI_RUNTIME_ENGINE_ELASTIC_SHARDING_H

#include "runtime/engine/control_messages.h"
#include "runtime/engine/execution_plan.h"
#include "runtime/training/train.h"
#include "runtime/transport/transport.h"
#include "schedule/pipeline/accessors.h"

#include <pthread.h>

typedef struct lhi_elastic_sharding lhi_elastic_sharding;

/* Checks whether passes launch the replicas' communication. */
static inline bool lhi_has_pass_collectives(const lh_pipeline *pipeline,
                                            const lh_train_model *model)
{
    return lhi_pipeline_n_dp_ops(pipeline) > 0 || model->sharded_gradients > 0;
}

/* Options for sharding, also used by FSDP. */
typedef struct lhi_sharding_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    uint32_t stage, n_mine;
    const uint32_t *mine;  /* chunks; borrowed */
    bool emulates;         /* collectives take the pipeline's times */
    const lh_chunk *times; /* current collective times per chunk; borrowed */
    const lh_train_collective_links *parts[LHI_N_TRAIN_BUCKETS]; /* borrowed */
    bool shared_clock; /* else other ranks' times are unusable */
    lhi_net *net;
    const lhi_net_group *group;   /* shard group of this stage; borrowed */
    const lhi_net_group *experts; /* same experts; NULL: same as `group` */
    const lhi_net_group *across;  /* same shard elsewhere; NULL: none */
    const lhi_net_group *expert_across; /* same for experts */
    bool leaders;                       /* as in lhi_site_sums */
    const lhi_net_stop *stop;
    lhi_train *train; /* staged and finalised */
    lhi_device *device;
} lhi_sharding_options;

/* Creates the elastic sharding (parameters or gradients gathered and reduced
 * by collectives of the schedule) and starts its communication thread. */
lh_status lhi_elastic_sharding_make(const lhi_sharding_options *options,
                                    lhi_elastic_sharding **out, lh_error *err);
/* Ends the communication thread of elastic sharding; after a failure, call it
 * once all ranks are notified. */
void lhi_elastic_sharding_stop(lhi_elastic_sharding *s);
/* Frees the elastic sharding; NULL is allowed. */
void lhi_elastic_sharding_free(lhi_elastic_sharding *s);

/* Starts a step of elastic sharding (parameters and gradients in shards,
 * gathered and reduced during passes): removes the device's buffer pointers and
 * sets the step's collective counts to 0. */
void lhi_elastic_sharding_begin_step(lhi_elastic_sharding *s, uint64_t step);
/* Prepares pass `i`: launches the collectives that start with it, waits for
 * those it needs, and sets its buffers. In validation steps it only gathers
 * the parameters. */
lh_status lhi_elastic_sharding_prepare_pass(lhi_elastic_sharding *s, uint32_t i,
                                            lhi_step_kind kind, lh_error *err);
/* Waits until all parameter gathers and gradient reductions of the step are
 * complete. */
lh_status lhi_elastic_sharding_end_step(lhi_elastic_sharding *s, lh_error *err);
/* Returns the last step's collective records, *n of them; borrowed. */
const lhi_collective_record *
lhi_elastic_sharding_collectives(const lhi_elastic_sharding *s, uint32_t *n);

/* Switches to the execution plan `exec` between steps and plans the buffers
 * again. Its shard plan must exist (checked by lhi_job_predict_memory()). Out
 * of memory fails the next step. */
void lhi_elastic_sharding_set_plan(lhi_elastic_sharding *s,
                                   const lh_exec *exec);

/* All-gathers the parameters that are not sharded, before validation steps and
 * checkpoints. All replicas call it between steps, with a new `turn` each
 * time. */
lh_status lhi_elastic_sharding_gather_values(lhi_elastic_sharding *s,
                                             uint64_t turn, lh_error *err);
/* All-gathers a whole chunk's parameters (`whole` true), for example to save a
 * checkpoint; they stay in memory until the call with false. All replicas must
 * call it. */
lh_status lhi_elastic_sharding_gather_chunk(lhi_elastic_sharding *s,
                                            uint32_t chunk, bool whole,
                                            lh_error *err);

/* Adds the bytes of elastic sharding's parameter, gradient and exchange buffers
 * to bytes[], by memory kind. */
void lhi_elastic_sharding_add_memory(const lhi_elastic_sharding *s,
                                     int64_t bytes[LH_N_MEMORY_KINDS]);

/* Checks the run's state. LH_EIO: another rank failed; LH_ECANCELED: `stop` was
 * requested. */
lh_status lhi_check_run_end(lhi_net *net, const lhi_net_stop *stop,
                            lh_error *err);
/* Sleeps until the emulated time `until_ns`; returns early with an error when
 * the run ends. */
lh_status lhi_sleep_emulated(lhi_net *net, const lhi_net_stop *stop,
                             int64_t until_ns, lh_error *err);

#endif
