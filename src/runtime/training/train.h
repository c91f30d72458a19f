/* SPDX-License-Identifier: Apache-2.0 */
/* Training outside the passes: AdamW (arXiv:1711.05101), its state sharded over
 * replicas (ZeRO stage 1, arXiv:1910.02054), clipping, the learning-rate
 * schedule, checkpoints. An lhi_train is one rank's part. It does not
 * communicate: it provides arrays, and the caller (src/runtime/engine) sends
 * them.
 *
 * A step, on every rank:
 *
 *     for each of its chunks, before the chunk's first F:
 *         lhi_train_parameters()
 *         all-gather of the array
 *         lhi_train_gathered()
 *     passes
 *     for each of its chunks, after the chunk's last W or B:
 *         lhi_train_gradients()
 *         reduce-scatter of the array
 *     lhi_train_get_tied_pair(), and its exchange if the other copy of the
 *         tied embedding is on another rank
 *     lhi_train_tally()
 *     sum of the arrays of all ranks, in any order
 *     lhi_train_update()
 *
 * A run's first all-gather may be skipped: initial values are equal everywhere
 * (also after lhi_train_load()). With one replica the arrays are empty (n = 0)
 * and no messages are sent, but the calls are still required.
 *
 * Files:
 *
 *     train.c                ownership of values; the arrays above
 *     shard_parts.c          arrays for parts of sharded chunks
 *     state_export.c         tensor states for migration; owned state
 *     update.c               the optimizer step
 *     save.c, load.c         checkpoints, by all ranks at once
 *     folder.c, state.c      folders and descriptions of checkpoints
 *     folder_lock.c          exclusive write access to checkpoints
 *     folder_claim.c         folders belong to one run
 *     recipe.h               data and options that a checkpoint stores
 *     gather_slices.c        gathers sliced tensors for checkpoints
 *     safetensors.c          reads safetensors files
 *     safetensors_layout.c   tensor offsets in a safetensors file
 *     checkpoint_tensors.c   names and shapes of the stored tensors
 *     config_json.c          config.json for transformers
 *
 * All numbers are computed from the same operands in the same order whatever
 * the pipeline's degree, so weights are equal to the last bit. */
#ifndef LHI_RUNTIME_TRAINING_TRAIN_H
#define LHI_RUNTIME_TRAINING_TRAIN_H

#include "runtime/device/device.h"
#include "runtime/training/recipe.h"

#include <longhaul/experimental/model.h>

typedef struct lhi_train lhi_train;

/* Buckets: a chunk's tensors by the ranks that exchange them: all replicas; or,
 * for experts in disjoint groups, the replicas with the same experts. */
typedef enum lhi_train_bucket_kind {
    LHI_BUCKET_DEFAULT,
    LHI_BUCKET_EXPERTS,
    LHI_N_TRAIN_BUCKETS
} lhi_train_bucket_kind;

/* Options for one rank's training. */
typedef struct lhi_train_options {
    const lh_model *model; /* borrowed */
    uint32_t n_chunks, n_mine;
    const uint32_t *mine; /* this rank's chunks; copied */
    uint32_t replica, n_replicas;
    /* Owned values are divided among n_shards replicas; `shard` is this one's
     * index. Further replicas are divided in the same way. 0: among all. */
    uint32_t shard, n_shards;
    bool is_follower; /* another replica contributes the same shard */
    /* Shard of each replica, UINT32_MAX for followers; borrowed. NULL: the
     * first replicas, in order. */
    const uint32_t *shard_of;
    /* The expert group, if it differs from the group for other tensors: its
     * size and this rank's index; size 0: it does not differ. Experts are
     * divided into n_expert_shards, a divisor of n_shards * n_tensor.
     * is_expert_follower and expert_shard_of correspond to `is_follower` and
     * `shard_of`. */
    uint32_t n_expert_replicas, expert_replica, n_expert_shards, expert_shard;
    bool is_expert_follower;
    const uint32_t *expert_shard_of;
    /* Ranks with slices of the same experts, and this one's index; 0, 0:
     * experts are not sliced. */
    uint32_t n_expert_tensor, expert_tensor;
    /* Ranks with slices of the same tensors, and this one's index; 0, 0:
     * tensors are not sliced. */
    uint32_t n_tensor, tensor;
    /* The greatest n_tensor of all stages, for the layout of tallies; 0:
     * n_tensor. */
    uint32_t most_tensor;
    /* Gathers slices; required if tensors are sliced. The first rank that holds
     * a tensor in the bucket, counted replica by replica, gets the arrays of
     * all holders, concatenated. gets[0] is its own size; gets is NULL on other
     * ranks. All call it in the same order. */
    lh_status (*gather_slices)(void *context, lhi_train_bucket_kind bucket,
                               const float *mine, size_t n, float *all,
                               const size_t *gets, lh_error *err);
    uint64_t steps;       /* entire run, for the learning-rate schedule */
    double rate;          /* peak learning rate */
    double min_rate;      /* at the decay's end */
    uint64_t warmup;      /* steps of linear growth to `rate` */
    uint32_t rate_decay;  /* lh_rate_decay */
    uint64_t decay_steps; /* last steps, with decay; 0: all after the warm-up */
    double beta1, beta2, epsilon, weight_decay;
    double clip; /* global norm; 0: none */
    /* Delayed update: a step applies the previous step's gradients, clipped by
     * their own norm, and keeps its own for the next; the first step updates
     * nothing. Models gradients that are sent while the next step computes. */
    bool delayed;
    double balance_bias; /* per-step change of balancing biases */
    bool staged;         /* exchanged in parts */
    /* For staged training: gathers a chunk's tensor before its values are
     * written; LH_NONE: releases them. Called on all replicas in the same
     * order. */
    lh_status (*gather_tensor)(void *context, uint32_t chunk, uint32_t tensor,
                               lh_error *err);
    void *context; /* argument for both callbacks */
} lhi_train_options;

/* Returns the default optimizer options for a run of `steps` steps: rate 3e-4,
 * betas 0.9 and 0.95, epsilon 1e-8, decay 0.1, clip 1, min_rate a tenth of the
 * rate, warmup a hundredth of the steps. The caller sets sizes and chunks. */
lhi_train_options lhi_train_defaults(uint64_t steps);

/* Predicts the trainer's memory and adds it to bytes[] by kind. n_values:
 * parameters; n_tied: those of a tied embedding whose other copy is on another
 * rank, or 0; n_sharded: those with sharded parameters. `staged` (collectives
 * inside passes) needs no exchange arrays; n_shards and `delayed` as in
 * lhi_train_options. */
void lhi_train_predict_memory(double n_values, double n_tied, double n_sharded,
                              uint32_t n_replicas, uint32_t n_shards,
                              bool staged, bool delayed,
                              double bytes[LH_N_MEMORY_KINDS]);
/* Returns the bytes of the trainer's tables for n_tensors tensors in n_chunks
 * chunks, which count as scratch memory. */
double lhi_train_bookkeeping_bytes(uint32_t n_chunks, uint32_t n_tensors);
/* Adds the trainer's allocated memory by kind, in bytes, to bytes[]. */
void lhi_train_add_memory(const lhi_train *train,
                          int64_t bytes[LH_N_MEMORY_KINDS]);

/* Creates a rank's trainer, which has optimizer state and gradient sums for the
 * tensors of `device` (borrowed, must have tensors). */
lh_status lhi_train_make(lhi_device *device, const lhi_train_options *options,
                         lhi_train **out, lh_error *err);
/* Frees the trainer; NULL is allowed. */
void lhi_train_free(lhi_train *train);

/* Replaces the trainer's steps, learning rates, decay and clipping by those of
 * `recipe`, the training options that a resumed run adopts. */
void lhi_train_apply_recipe(lhi_train *train, const lhi_recipe *recipe);

/* Returns the number of completed steps, which is also the number of the next
 * step; after a resume it starts at the checkpoint's. */
uint64_t lhi_train_step(const lhi_train *train);

/* Returns a chunk's exchange array for one bucket (experts or others): n values
 * in *values, of which this rank has updated shard `shard` of n_shards equal
 * ones. An all-gather then fills the others. n is 0 with one shard. */
void lhi_train_parameters(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, float **values,
                          size_t *n);
/* Copies a chunk's parameters from the exchange array to its tensors, after the
 * all-gather of lhi_train_parameters()'s array. */
void lhi_train_gathered(lhi_train *train, uint32_t chunk);

/* Returns the exchange array with a chunk's gradients of one bucket (experts or
 * others), n values. A reduce-scatter must store the sums over the replicas of
 * this rank's shard, n / n_shards values, in *out. n is 0 with one replica. */
void lhi_train_gradients(lhi_train *train, uint32_t chunk,
                         lhi_train_bucket_kind bucket, const float **values,
                         size_t *n, float **out);
/* Returns this rank's gradient sums over the replicas of a chunk's bucket
 * (experts or others); *n: their number. */
float *lhi_train_get_sums(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, size_t *n);

/* A range in every replica's piece. Parts serve chunks that are sharded
 * (lhi_device_ops). Per bucket a part is [from, to) in every piece; its array
 * concatenates these ranges in the caller's memory. `room` holds the sharded
 * values or gradients of all buckets; NULL if the part has none. A piece starts
 * with its sharded tensors. */
typedef struct lhi_train_range {
    size_t from, to;
} lhi_train_range;
/* A chunk part. */
typedef struct lhi_train_part {
    uint32_t chunk;
    size_t base; /* chunk value at which `room` starts */
    lhi_train_range of[LHI_N_TRAIN_BUCKETS];
} lhi_train_part;

/* Returns, for each bucket (experts and others), the range of this rank's piece
 * (its shards of the bucket's tensors) that belongs to tensors `first` to first
 * + n_tensors - 1 of the chunk. */
lhi_train_part lhi_train_find_part(const lhi_train *train, uint32_t chunk,
                                   uint32_t first, uint32_t n_tensors);

/* Piece sizes in a bucket. */
typedef struct lhi_train_piece_sizes {
    size_t all, values, gradients; /* of these sharded */
} lhi_train_piece_sizes;
/* Returns the sizes, in values, of this rank's piece of a chunk's bucket (its
 * shards of all expert tensors, or of all others): of all tensors, and of the
 * leading ones with sharded parameters and with sharded gradients. */
lhi_train_piece_sizes lhi_train_find_piece_sizes(const lhi_train *train,
                                                 uint32_t chunk,
                                                 lhi_train_bucket_kind bucket);
/* Copies this rank's shards of the parameters in `part` (a range of a chunk's
 * tensors) to its place in the exchange array, before an all-gather. */
void lhi_train_pack_values(const lhi_train *train, const lhi_train_part *part,
                           lhi_train_bucket_kind bucket, float *array);
/* Copies the gathered parameters of all shards of `part` (a range of a chunk's
 * tensors) from the exchange array to the tensors; sharded ones go to `room`.
 * */
void lhi_train_unpack_values(const lhi_train *train, const lhi_train_part *part,
                             lhi_train_bucket_kind bucket, const float *array,
                             float *room);
/* Copies all gradients of `part` (a range of a chunk's tensors) to the exchange
 * array, shard by shard, before a reduce-scatter; `room` has the gradients of
 * sharded tensors. */
void lhi_train_pack_gradients(const lhi_train *train,
                              const lhi_train_part *part,
                              lhi_train_bucket_kind bucket, const float *room,
                              float *array);
/* Stores `sums`, a reduce-scatter's result, as `range` of this rank's gradient
 * sums of a bucket; `adds`: adds them to the sums of earlier microbatch
 * groups. */
void lhi_train_store_sums(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, lhi_train_range range,
                          const float *sums, bool adds);
/* Copies this rank's shards of sharded parameters, which are now initialised or
 * loaded, to the trainer's memory, and lets the device free the full ones. */
lh_status lhi_train_finalise(lhi_train *train, lh_error *err);

/* Training state of a tensor for migration, after the update and every chunk's
 * all-gather: its values and this replica's piece of the moments. Ranks in one
 * replica have the same piece wherever the tensor is. The arrays are
 * borrowed. */
enum { LHI_MAX_MOMENTS = 3 }; /* mean, square, and delayed gradients */
/* Training state of one tensor; borrowed arrays. */
typedef struct lhi_train_tensor_state {
    uint32_t chunk, index; /* index: in the model's order */
    uint32_t n;            /* moments: 2, or 3 with delayed gradients */
    float *values, *moments[LHI_MAX_MOMENTS];
    size_t n_values, n_moments; /* values in each array */
} lhi_train_tensor_state;
/* Returns the number of parameter tensors of which this rank has training
 * state, over all its chunks. */
uint32_t lhi_train_count_tensor_states(const lhi_train *train);
/* Returns the addresses and lengths of the values and moments of this rank's
 * tensor number `i`, over all its chunks in order. */
lhi_train_tensor_state lhi_train_get_tensor_state(lhi_train *train, uint32_t i);
/* State that this rank's optimizer owns: its shard of the parameters and
 * moments of all tensors. lhi_train_owned_bytes() returns its size,
 * lhi_train_owned_digest() a number below 2^52 that is equal on ranks that own
 * the same part of the same tensors. */
size_t lhi_train_owned_bytes(const lhi_train *train);
double lhi_train_owned_digest(const lhi_train *train);
/* Copies the owned state to `bytes`. */
void lhi_train_copy_owned(const lhi_train *train, void *bytes);
/* Sets the owned state, which must have the digest of this rank's, and the
 * completed step count. The caller then gathers the values of the other
 * ranks. */
void lhi_train_set_owned(lhi_train *train, const void *bytes, uint64_t step);

/* Sets the number of completed steps, after training state has migrated from
 * another rank. */
void lhi_train_set_step(lhi_train *train, uint64_t step);

/* A tied embedding whose other copy is on other ranks: send `mine` (n values,
 * also with one replica) to the ranks with chunk `other_chunk` that own the
 * same values, and receive into `theirs`, after chunk `my_chunk`'s
 * reduce-scatter. n = 0: nothing to exchange. */
typedef struct lhi_train_tied_pair {
    uint32_t my_chunk, other_chunk;
    const float *mine;
    float *theirs;
    size_t n;
} lhi_train_tied_pair;
/* Returns the gradient of this rank's copy of a tied embedding, the buffer for
 * the other copy's gradient, and the chunks of both; n is 0 if this rank has no
 * copy or both. */
lhi_train_tied_pair lhi_train_get_tied_pair(lhi_train *train);

/* Returns a tally's size: numbers to sum over all ranks. Each entry is filled
 * by one rank and 0 (or absent) on the others, so that any addition order gives
 * the same result. The size is equal on all ranks. */
size_t lhi_train_tally_size(const lhi_train *train);
/* Fills in the tally (array that ranks sum after a step): squared gradients and
 * loss, for which it asks the device. To be called after all reduce-scatters
 * and the exchange of tied embeddings' gradients. */
lh_status lhi_train_tally(lhi_train *train, double *tally, lh_error *err);

/* Result of a step. */
typedef struct lhi_train_report {
    uint64_t step;       /* completed step, from 0 */
    double loss;         /* nats per token, over the global batch */
    double modules_loss; /* same, mean over MTP modules; NAN: none */
    double norm;         /* gradient norm before clipping */
    double rate;
    uint64_t tokens; /* in the step, all replicas */
} lhi_train_report;

/* Clips the gradients by the norm in `tally`, which is summed over all ranks,
 * updates this rank's shards of the parameters and counts the step. *report:
 * loss, norm and rate. LH_EINPUT: loss or norm is not finite; nothing changes.
 * */
lh_status lhi_train_update(lhi_train *train, const double *tally,
                           lhi_train_report *report, lh_error *err);
/* Fills in the tally (array that ranks sum after a step) of a validation step:
 * the loss only. Size and summation are those of training steps. */
lh_status lhi_train_validation_tally(lhi_train *train, double *tally,
                                     lh_error *err);
/* Computes the mean validation loss per token from a tally that is summed over
 * all ranks. */
lh_status lhi_train_reduce_validation(lhi_train *train, const double *tally,
                                      double *loss, lh_error *err);

/* Receiver for remarks that are not errors. */
typedef struct lhi_remarks {
    void (*print)(void *context, const char *text); /* may be NULL */
    void *context;
} lhi_remarks;

/* Exclusive right to write checkpoints into a folder, which is created if
 * missing. One rank takes it for its run. LH_EIO: another run holds it; `err`
 * names it. A dead run's lock is taken over with a remark. */
typedef struct lhi_folder_lock lhi_folder_lock;
/* Acquires the lock of checkpoint folder `folder`, so that no other run writes
 * there; `remarks`: callback for messages to the user. LH_EIO: another run has
 * it. */
lh_status lhi_folder_lock_take(const char *folder, const lhi_remarks *remarks,
                               lhi_folder_lock **out, lh_error *err);
/* Checks that this run still has the lock; acquires it again if its file was
 * removed. LH_EIO: another run has it. */
lh_status lhi_folder_lock_check(lhi_folder_lock *lock, lh_error *err);
/* Releases the lock: removes its file, and the folder if the lock created it
 * and it is empty. NULL is allowed. */
void lhi_folder_lock_release(lhi_folder_lock *lock);
/* Removes files that killed runs have left in folder `path`, whose lock the
 * caller holds. A checkpoint that was about to be replaced gets its name back.
 * */
lh_status lhi_checkpoint_remove_stale(const char *path, lh_error *err);

/* Creates an empty file with `number` (below 2^52) in its name in checkpoint
 * folder `folder`, by which other hosts detect that they share the folder. The
 * name is new for each run, because network file systems cache lookups. */
lh_status lhi_folder_marker_create(const char *folder, uint64_t number,
                                   lh_error *err);
/* Checks that `folder` has the file that rank 0 has created with `number`, and
 * that this process can write there. LH_EIO: not. */
lh_status lhi_folder_marker_check(const char *folder, uint64_t number,
                                  lh_error *err);
/* Removes the file with `number`, if it exists. */
void lhi_folder_marker_remove(const char *folder, uint64_t number);

/* A run that wants to write into a checkpoint folder. */
typedef struct lhi_folder_claim {
    const char *folder;
    const lhi_run_identity *run; /* of the resumed checkpoint; NULL: new run */
    uint64_t begin;              /* the run's first step */
    const char *resume; /* path of the resumed checkpoint, or of its folder */
    bool fresh;         /* checkpoints of other runs may be discarded */
} lhi_folder_claim;

/* Checks that the folder has only checkpoints of this run, up to its first
 * step, except damaged ones that the run skipped; otherwise LH_EINPUT or, if
 * `fresh`, lists the others' steps in *discarded, for lhi_checkpoint_discard().
 * Release with free(). */
lh_status lhi_folder_claim_check(const lhi_folder_claim *claim,
                                 uint64_t **discarded, size_t *n,
                                 lh_error *err);
/* Removes the checkpoints of the n `steps` in `folder`; an interruption leaves
 * no partly removed one that counts as a checkpoint. */
lh_status lhi_checkpoint_discard(const char *folder, const uint64_t *steps,
                                 size_t n, lh_error *err);

/* Checkpoints: docs/formats/checkpoint.md. Save between steps: after the update
 * and the all-gather (lhi_train_gathered) of every chunk. `folder` is a shared
 * folder, the same for all ranks.
 *
 *     one rank (say 0): lhi_train_save_begin(); barrier
 *     every rank:       lhi_train_save_part(), which fills `sums` like a tally
 *                       (lhi_train_count_checksums() numbers); add the arrays
 *     the one rank:     lhi_train_save_end() with the sum; others may continue
 *
 * If any call fails on a rank: lhi_train_save_cancel() on the one rank; older
 * checkpoints are unchanged. */
typedef struct lhi_checkpoint_options {
    const char *folder; /* created if missing; one subfolder each */
    uint32_t keep;      /* checkpoints to keep; 0: all */
    /* Stored; loading compares it and adopts the checkpoint's options. May be
     * NULL. */
    lhi_recipe *recipe;
    double norm_epsilon, rope_theta; /* for config.json; 0: the defaults */
    double dropout, balance;         /* for config.json */
    uint32_t sequence;               /* for config.json; 0: 2048 */
    const char *tokenizer; /* copied beside the weights; may be NULL */
    /* The folder's lock, verified before writing; NULL: the caller excludes
     * other writers. */
    lhi_folder_lock *lock;
} lhi_checkpoint_options;

/* Returns the checksum count in a checkpoint: for each model tensor one for the
 * weights, and one per moment and replica. */
size_t lhi_train_count_checksums(const lhi_train *train);
/* Begins a checkpoint of the current step, on one rank: creates its temporary
 * folder with all files at full size. All ranks then fill them by
 * lhi_train_save_part(). */
lh_status lhi_train_save_begin(lhi_train *train,
                               const lhi_checkpoint_options *options,
                               lh_error *err);
/* Writes this rank's tensors, or shards of them, to the checkpoint begun by
 * lhi_train_save_begin(), and stores their checksums in `sums`:
 * lhi_train_count_checksums() entries, 0 for other ranks' values. */
lh_status lhi_train_save_part(lhi_train *train,
                              const lhi_checkpoint_options *options,
                              double *sums, lh_error *err);
/* Completes the checkpoint on one rank: writes its description with `sums`, the
 * checksums of all ranks together, gives its folder the final name, and removes
 * old checkpoints. */
lh_status lhi_train_save_end(lhi_train *train,
                             const lhi_checkpoint_options *options,
                             const double *sums, lh_error *err);
/* Removes the temporary folder of a checkpoint that is not completed, after a
 * failure. */
void lhi_train_save_cancel(lhi_train *train,
                           const lhi_checkpoint_options *options);

/* Loads this rank's part of a checkpoint: `path` is a checkpoint's folder, or a
 * folder of several, of which the newest is used. Pipeline degree, schedule and
 * replica count may differ from the writer's. Takes no lock. LH_EINPUT:
 * damaged, or another model or data; `err` names the file. After a failure the
 * values are undefined. */
lh_status lhi_train_load(lhi_train *train, const char *path,
                         const lhi_checkpoint_options *options, lh_error *err);
/* Lists the checkpoints' steps in folder `path`, ascending, so that ranks can
 * agree on one. *n = 0, *steps NULL: `path` is itself a checkpoint. Release
 * with free(). LH_EINPUT: none exists. */
lh_status lhi_train_find(const char *path, uint64_t **steps, size_t *n,
                         lh_error *err);
/* Result of lhi_train_load_one(). */
typedef struct lhi_load_result {
    /* Files are damaged or missing; false on success, or if the checkpoint is
     * intact but has another model or data. Always set. */
    bool is_damaged;
    /* After a success, the checksum of state.json, which has the checksums of
     * all tensors; an integer. */
    double check;
} lhi_load_result;

/* Loads one checkpoint: `path` itself (step NULL), or that of *step in folder
 * `path`. */
lh_status lhi_train_load_one(lhi_train *train, const char *path,
                             const uint64_t *step,
                             const lhi_checkpoint_options *options,
                             const lhi_remarks *remarks, lhi_load_result *out,
                             lh_error *err);
/* Loads only weights, without moments and step, for fine-tuning from step 0:
 * from a safetensors file, the index of several, or a folder with one of both
 * (model.safetensors, model.safetensors.index.json), under Hugging Face's
 * tensor names. */
lh_status lhi_train_load_weights(lhi_train *train, const char *path,
                                 lh_error *err);
/* Computes a checksum, an integer, of the first values of each of the model's
 * tensors in the weights at `path`, by which ranks compare their files. */
lh_status lhi_train_hash_weights(const lh_model *model, const char *path,
                                 double *out, lh_error *err);

#endif
