/* SPDX-License-Identifier: Apache-2.0 */
/* Digests a run's configuration, so that separately started ranks can check
 * that they run the same job. */
#include "runtime/engine/job.h"

#include "base/bytes.h"
#include "runtime/transport/handshake.h"
#include "schedule/pipeline/accessors.h"

#include <stdlib.h>

/* Bytes in an encoded instruction, and in a SHA-256 digest. */
enum { INSTRUCTION_BYTES = 64, DIGEST_BYTES = 32 };

/* Extends the digest `sum` by `n` numbers, 8 bytes each. */
static void digest_numbers(unsigned char sum[DIGEST_BYTES],
                           const uint64_t *numbers, size_t n)
{
    unsigned char bytes[DIGEST_BYTES + 32 * 8];
    memcpy(bytes, sum, DIGEST_BYTES);
    for (size_t i = 0; i < n; i++)
        lhi_store_little_endian(bytes + DIGEST_BYTES + 8 * i, 8, numbers[i]);
    lhi_compute_sha256(bytes, DIGEST_BYTES + 8 * n, sum);
}

/* Encodes an instruction (an entry of a rank's program) as INSTRUCTION_BYTES
 * bytes at `out`, for the digest that ranks compare. */
static void write_instruction(const lh_instruction *in, unsigned char *out)
{
    lhi_store_little_endian(out, 4, (uint64_t)in->stream);
    lhi_store_little_endian(out + 4, 4,
                            in->pass.kind | (uint64_t)in->pass.part << 8);
    lhi_store_little_endian(out + 8, 4, in->pass.chunk);
    lhi_store_little_endian(out + 12, 4, in->pass.microbatch);
    lhi_store_little_endian(out + 16, 4, in->passes_before);
    lhi_store_little_endian(out + 20, 4, in->peer);
    lhi_store_little_endian(out + 24, 4, in->link);
    lhi_store_little_endian(out + 28, 4, in->slot);
    lhi_store_little_endian(out + 32, 8, in->link_position);
    lhi_store_little_endian(out + 40, 8, (uint64_t)in->predicted_ns);
    lhi_store_little_endian(out + 48, 8, in->queue);
    lhi_store_little_endian(out + 56, 4, in->op);
    lhi_store_little_endian(out + 60, 4, in->needed_by_pass);
}

/* Extends the digest `sum` by a rank's instructions. */
static lh_status digest_rank(unsigned char sum[DIGEST_BYTES],
                             const lh_exec *exec, uint32_t rank, lh_error *err)
{
    uint32_t n;
    const lh_instruction *all = lh_exec_instructions(exec, rank, &n);
    size_t size = DIGEST_BYTES + (size_t)n * INSTRUCTION_BYTES;
    unsigned char *bytes = malloc(size);
    if (!bytes)
        return lhi_fail_nomem(err);
    memcpy(bytes, sum, DIGEST_BYTES);
    for (uint32_t i = 0; i < n; i++)
        write_instruction(&all[i],
                          bytes + DIGEST_BYTES + (size_t)i * INSTRUCTION_BYTES);
    lhi_compute_sha256(bytes, size, sum);
    free(bytes);
    return LH_OK;
}

/* Extends the digest `sum` by the program's training options. */
static void digest_training_options(unsigned char sum[DIGEST_BYTES],
                                    const lh_train_model *t)
{
    uint32_t overridden;
    lhi_recipe_parse_names(t->overrides, &overridden, NULL); /* valid */
    const uint64_t numbers[] = {t->seed,
                                t->token_bytes,
                                t->validate_every,
                                t->warmup,
                                t->checkpoint_every,
                                t->keep,
                                lhi_double_to_bits(t->validation),
                                lhi_double_to_bits(t->rate),
                                lhi_double_to_bits(t->min_rate),
                                lhi_double_to_bits(t->weight_decay),
                                lhi_double_to_bits(t->clip),
                                t->delayed_update,
                                t->checkpoint != NULL,
                                t->resume != NULL,
                                t->weights != NULL,
                                t->fresh,
                                overridden};
    digest_numbers(sum, numbers, sizeof numbers / sizeof *numbers);
    const lh_train_optimizer *how = t->optimizer;
    const uint64_t more[] = {how ? lhi_double_to_bits(how->beta1) : 0,
                             how ? lhi_double_to_bits(how->beta2) : 0,
                             how ? lhi_double_to_bits(how->epsilon) : 0,
                             how ? how->rate_decay : 0,
                             how ? how->decay_steps : 0,
                             t->validation_data != NULL};
    digest_numbers(sum, more, sizeof more / sizeof *more);
}

/* Extends the digest `sum` by the plan's model, its sharding and the layers of
 * its n_chunks chunks. */
static void digest_model(unsigned char sum[DIGEST_BYTES],
                         const lh_train_model *t, uint32_t n_chunks)
{
    const lh_model *m = t->model;
    const uint64_t numbers[] = {m->layers,
                                m->hidden,
                                m->ffn,
                                m->vocab,
                                m->heads,
                                m->kv_heads,
                                m->head_dim,
                                m->rope_theta,
                                m->tied_embeddings,
                                t->micro_batch,
                                t->sequence,
                                lhi_double_to_bits(t->sharded_gradients),
                                lhi_double_to_bits(t->sharded_parameters),
                                t->per_layer_sharding,
                                t->sites != NULL,
                                t->unsharded_optimizer,
                                t->reduce_by_leaders};
    digest_numbers(sum, numbers, sizeof numbers / sizeof *numbers);
    const uint64_t family[] = {m->gated,
                               m->qkv_bias,
                               m->output_bias,
                               m->mlp_bias,
                               (uint64_t)m->norm,
                               m->positions,
                               m->experts,
                               m->experts_per_token,
                               m->expert_ffn,
                               m->parallel_block,
                               m->qk_norm,
                               m->q_lora_rank,
                               m->kv_lora_rank,
                               m->qk_rope_head_dim,
                               m->v_head_dim,
                               m->ffn,
                               m->shared_expert_ffn,
                               m->shared_expert_gate,
                               (uint64_t)m->router,
                               m->unnormalised_scores,
                               lhi_double_to_bits(m->routed_scale),
                               lhi_double_to_bits(lh_model_norm_epsilon(m)),
                               m->expert_groups,
                               m->groups_per_token,
                               m->mtp_layers,
                               lhi_double_to_bits(t->dropout),
                               lhi_double_to_bits(t->balance_loss),
                               lhi_double_to_bits(t->balance_bias),
                               lhi_double_to_bits(t->expert_capacity),
                               t->bf16};
    digest_numbers(sum, family, sizeof family / sizeof *family);
    for (uint32_t c = 0; c <= n_chunks; c++)
        digest_numbers(sum, &(uint64_t){t->first_layers[c]}, 1);
    for (uint32_t i = 0; i < m->layers; i++)
        digest_numbers(sum,
                       (uint64_t[]){t->recompute ? t->recompute[i] : 0,
                                    t->offload && t->offload[i],
                                    lh_model_layer_is_moe(m, i)},
                       3);
    for (uint32_t i = 0; i < m->mtp_layers; i++)
        digest_numbers(
            sum, &(uint64_t){t->recompute ? t->recompute[m->layers + i] : 0},
            1);
}

/* Extends the digest `sum` by the memory limits per device if the run enforces
 * them. */
static void digest_limits(unsigned char sum[DIGEST_BYTES], const lhi_job *job)
{
    digest_numbers(sum, &(uint64_t){job->o.enforces_memory}, 1);
    for (uint32_t i = 0; job->o.enforces_memory && i < job->exec->n_ranks; i++)
        digest_numbers(
            sum,
            &(uint64_t){(uint64_t)lh_pipeline_memory_limit(job->pipeline, i)},
            1);
}

/* Extends the digest `sum` by the properties of the pipeline's data-parallel
 * operations that instructions lack. */
static void digest_operations(unsigned char sum[DIGEST_BYTES],
                              const lh_pipeline *p)
{
    for (uint32_t i = 0; i < p->n_dp_ops; i++) {
        const lh_dp_op *op = &p->dp_ops[i];
        digest_numbers(
            sum,
            (const uint64_t[]){(uint64_t)op->kind, op->bucket, op->n_buckets},
            3);
    }
    for (uint32_t i = 0; i < p->n_enqueue; i++)
        digest_numbers(sum, &(uint64_t){p->enqueue[i]}, 1);
    for (uint32_t i = 0; i < p->n_dequeue; i++)
        digest_numbers(sum, &(uint64_t){p->dequeue[i]}, 1);
}

/* Extends the digest `sum` by the durations of the copies to and from host
 * memory of delegated messages. */
static void digest_copies(unsigned char sum[DIGEST_BYTES], const lhi_job *job)
{
    const lh_delegation *d = job->proposal_options.delegation;
    digest_numbers(sum,
                   (const uint64_t[]){(uint64_t)d->staging_ns,
                                      (uint64_t)d->host_memory,
                                      (uint64_t)d->host_copy_ns},
                   3);
    for (uint32_t i = 0; d->link_staging_ns && i < job->pipeline->n_links; i++)
        digest_numbers(sum, &(uint64_t){(uint64_t)d->link_staging_ns[i]}, 1);
}

/* Extends the digest `sum` by the plan without its schedule: grid, model. */
static void digest_plan(unsigned char sum[DIGEST_BYTES], const lhi_job *job)
{
    const uint64_t numbers[] = {
        job->exec->n_ranks,      job->exec->n_chunks,
        job->grid.replicas,      job->grid.context,
        job->grid.tensor,        job->grid.expert,
        job->grid.expert_tensor, job->model && job->model->no_sequence_parallel,
        job->model != NULL,      job->pipeline->n_microbatches};
    digest_numbers(sum, numbers, sizeof numbers / sizeof *numbers);
    for (uint32_t r = 0; job->grid.tensors && r < job->exec->n_ranks; r++)
        digest_numbers(sum, &(uint64_t){job->grid.tensors[r]}, 1);
    if (job->model)
        digest_model(sum, job->model,
                     lhi_pipeline_count_model_chunks(job->pipeline));
    for (uint32_t i = 0; job->model && job->model->sites &&
                         i < job->exec->n_ranks * job->grid.replicas;
         i++)
        digest_numbers(sum, &(uint64_t){job->model->sites[i]}, 1);
    for (uint32_t i = 0;
         job->model && job->model->micro_batches && i < job->grid.replicas; i++)
        digest_numbers(sum, &(uint64_t){job->model->micro_batches[i]}, 1);
    for (uint32_t i = 0; job->model && job->model->nodes &&
                         i < lhi_grid_count_ranks(&job->grid);
         i++)
        digest_numbers(sum, &(uint64_t){job->model->nodes[i]}, 1);
    digest_operations(sum, job->pipeline);
}

/* Extends the digest `sum` by the instructions of all ranks. */
static lh_status digest_schedule(unsigned char sum[DIGEST_BYTES],
                                 const lhi_job *job, lh_error *err)
{
    for (uint32_t r = 0; r < job->exec->n_ranks; r++)
        LHI_TRY(digest_rank(sum, job->exec, r, err));
    return LH_OK;
}

/* Extends the digest `sum` by the run's options. */
static lh_status digest_options(unsigned char sum[DIGEST_BYTES],
                                const lhi_job *job, lh_error *err)
{
    const lh_exec_options *exec = &job->exec->options;
    const uint64_t numbers[] = {LHI_MESSAGE_VERSION,
                                (uint64_t)exec->receives,
                                exec->coupled_queue,
                                (uint64_t)exec->path,
                                (uint64_t)exec->host_copy_ns,
                                job->emulates,
                                job->o.steps,
                                job->o.message_bytes,
                                job->o.profiles,
                                job->o.adapt != NULL,
                                (uint64_t)job->o.silence_ns,
                                job->o.max_restarts};
    digest_numbers(sum, numbers, sizeof numbers / sizeof *numbers);
    if (job->model)
        digest_training_options(sum, job->model);
    digest_limits(sum, job);
    digest_copies(sum, job);
    return lhi_job_digest_events(job, sum, err);
}

/* Writes one byte of each option that an error names. */
static lh_status digest_named_options(unsigned char out[LHI_SETUP_NAMED],
                                      const lhi_job *job, lh_error *err)
{
    static const lh_train_model untrained;
    static const lh_train_optimizer no_optimizer;
    const lh_train_model *m = job->model ? job->model : &untrained;
    const lh_train_optimizer *how = m->optimizer ? m->optimizer : &no_optimizer;
    unsigned char events[DIGEST_BYTES] = {0};
    uint32_t overridden;
    lhi_recipe_parse_names(m->overrides, &overridden, NULL); /* valid */
    LHI_TRY(lhi_job_digest_events(job, events, err));
    const uint64_t values[LHI_SETUP_NAMED] = {
        [LHI_SETUP_DEVICE] = job->model != NULL,
        [LHI_SETUP_STEPS] = job->o.steps,
        [LHI_SETUP_RATE] = lhi_double_to_bits(m->rate),
        [LHI_SETUP_SILENCE] = (uint64_t)job->o.silence_ns,
        [LHI_SETUP_MAX_RESTARTS] = job->o.max_restarts,
        [LHI_SETUP_CLIP] = lhi_double_to_bits(m->clip),
        [LHI_SETUP_SEED] = m->seed,
        [LHI_SETUP_WEIGHT_DECAY] = lhi_double_to_bits(m->weight_decay),
        [LHI_SETUP_WARMUP] = m->warmup,
        [LHI_SETUP_VALIDATION] = lhi_double_to_bits(m->validation),
        [LHI_SETUP_VALIDATION_DATA] = m->validation_data != NULL,
        [LHI_SETUP_VALIDATE_EVERY] = m->validate_every,
        [LHI_SETUP_CHECKPOINT] = m->checkpoint != NULL,
        [LHI_SETUP_CHECKPOINT_EVERY] = m->checkpoint_every,
        [LHI_SETUP_KEEP] = m->keep,
        [LHI_SETUP_RESUME] = m->resume != NULL,
        [LHI_SETUP_WEIGHTS] = m->weights != NULL,
        [LHI_SETUP_OVERRIDE] = overridden,
        [LHI_SETUP_FRESH] = m->fresh,
        [LHI_SETUP_ADAPT] = job->o.adapt != NULL,
        [LHI_SETUP_DELAYED_UPDATE] = m->delayed_update,
        [LHI_SETUP_MIN_RATE] = lhi_double_to_bits(m->min_rate),
        [LHI_SETUP_RATE_DECAY] = how->rate_decay,
        [LHI_SETUP_DECAY_STEPS] = how->decay_steps,
        [LHI_SETUP_BETA1] = lhi_double_to_bits(how->beta1),
        [LHI_SETUP_BETA2] = lhi_double_to_bits(how->beta2),
        [LHI_SETUP_EPSILON] = lhi_double_to_bits(how->epsilon),
        [LHI_SETUP_FORMAT] = m->token_bytes,
        [LHI_SETUP_RECEIVES] = (uint64_t)job->exec->options.receives,
        [LHI_SETUP_COUPLED] = job->exec->options.coupled_queue,
        [LHI_SETUP_MESSAGE_BYTES] = job->o.message_bytes,
        [LHI_SETUP_EMULATE_LINKS] = job->emulates,
        [LHI_SETUP_PROFILE_OUT] = job->o.profiles,
        [LHI_SETUP_MEMORY] = job->o.enforces_memory,
        [LHI_SETUP_EVENTS] = lhi_load_little_endian(events, 8)};
    for (uint32_t i = 0; i < LHI_SETUP_NAMED; i++) {
        unsigned char sum[DIGEST_BYTES] = {0};
        digest_numbers(sum, &values[i], 1);
        out[i] = sum[0];
    }
    return LH_OK;
}

lh_status lhi_job_compute_digest(const lhi_job *job,
                                 unsigned char out[LHI_SETUP_BYTES],
                                 lh_error *err)
{
    unsigned char plan[DIGEST_BYTES] = {0}, schedule[DIGEST_BYTES] = {0},
                  options[DIGEST_BYTES] = {0}, data[DIGEST_BYTES] = {0},
                  named[LHI_SETUP_NAMED];
    digest_plan(plan, job);
    LHI_TRY(digest_schedule(schedule, job, err));
    LHI_TRY(digest_options(options, job, err));
    LHI_TRY(digest_named_options(named, job, err));
    digest_numbers(
        data,
        (uint64_t[]){job->data_fingerprint.value, job->validation_fingerprint},
        2);
    memset(out, 0, LHI_SETUP_BYTES);
    memcpy(out, plan, LHI_SETUP_PART_BYTES);
    memcpy(out + LHI_SETUP_SCHEDULE_AT, schedule, LHI_SETUP_PART_BYTES);
    memcpy(out + LHI_SETUP_OPTIONS_AT, options, LHI_SETUP_PART_BYTES);
    memcpy(out + LHI_SETUP_DATA_AT, data, LHI_SETUP_PART_BYTES);
    memcpy(out + LHI_SETUP_NAMED_AT, named, LHI_SETUP_NAMED);
    lhi_store_little_endian(out + LHI_SETUP_HOSTS_AT, LHI_SETUP_HOSTS_BYTES,
                            job->host_layout);
    return LH_OK;
}
