/* SPDX-License-Identifier: Apache-2.0 */
/* What training needs beside passes: AdamW (arXiv:1711.05101), its state in
 * shards over the replicas (ZeRO stage 1, arXiv:1910.02054), clipping, the
 * rate's course, checkpoints. An lhi_train is one rank's part of it and talks
 * to nobody: it hands out arrays, the caller (src/engine) sends them.
 *
 * A step, on every rank:
 *
 *   for each of its chunks, before the chunk's first F:
 *       lhi_train_parameters()  -> all-gather the array -> lhi_train_gathered()
 *   ... passes ...
 *   for each chunk, after its last W or B:
 *       lhi_train_gradients()   -> reduce-scatter the array
 *   lhi_train_tied()            -> exchange, if this rank has one end of a tied
 *                                  pair and the other end is on another rank
 *   lhi_train_tally()           -> add the arrays of all ranks, any order
 *   lhi_train_update()
 *
 * The first all-gather of a run may be left out: values start alike everywhere
 * (also after lhi_train_load()). With one replica no array has any values
 * (n = 0) and nothing is to be sent, but the calls are made all the same.
 *
 * Where each idea is:
 *
 *   train.c             who owns which values; the arrays above
 *   parts.c             ... a part at a time, of what is sharded
 *   carry.c             ... which go elsewhere
 *   update.c            the step itself
 *   save.c, load.c      checkpoints, by all ranks at once
 *   folder.c, state.c   ... their folders, and what each is of
 *   folder_lock.c       ... who may write into one
 *   slices_whole.c      ... of tensors that ranks have slices of
 *   safetensors.c       ... the files' format, and
 *   shard_layout.c      ... where tensors lie in them (names.c: which there are)
 *   config_json.c       ... what transformers is told of the model
 *
 * Every number is made of the same operands in the same order whatever the
 * pipeline's degree is, so weights come out alike to the last bit. */
#ifndef LHI_TRAIN_H
#define LHI_TRAIN_H

#include "dev/dev.h"

#include <longhaul/model.h>

typedef struct lhi_train lhi_train;

/* A chunk's tensors, by who exchanges them: all replicas; or, of experts that
 * other ranks have not, those replicas that have the same ones. */
typedef enum lhi_train_lot_kind {
    LHI_LOT_MOST,
    LHI_LOT_EXPERTS,
    LHI_N_TRAIN_LOTS
} lhi_train_lot_kind;

typedef struct lhi_train_options {
    const lh_model *model; /* borrowed */
    uint32_t n_chunks, n_mine;
    const uint32_t *mine; /* the chunks of this rank; copied */
    uint32_t replica, n_replicas;
    /* What is owned is divided among so many replicas, of which this is one;
     * others, if there are any, are divided alike. 0: among all. */
    uint32_t shard, n_shards;
    bool follows; /* another replica with these says what all have to know */
    /* Which shard each replica has, UINT32_MAX those that follow; borrowed.
     * NULL: the first ones have them, in their order. */
    const uint32_t *shard_of;
    /* Ranks that have the same experts, and which of them this is, where these
     * are others than those that have the same of all else; 0: they are not.
     * They are divided among so many of these, a divisor of n_shards *
     * n_tensor, of which this is one; whether another one has its share and
     * speaks for it; and which shard each has, as shard_of. */
    uint32_t n_expert_replicas, expert_replica, n_expert_shards, expert_shard;
    bool expert_follows;
    const uint32_t *expert_shard_of;
    /* Of these experts, ranks that have slices of the same ones; 0, 0: this one
     * has its experts whole. */
    uint32_t n_expert_tensor, expert_tensor;
    /* Ranks that have slices of the same tensors; 0, 0: this one has them
     * whole. */
    uint32_t n_tensor, tensor;
    /* Needed where there are slices: the first of the ranks that have a tensor
     * of the lot, counted replica by replica, gets what each of these has, one
     * after the other; gets[0] is its own, gets is NULL at the others. All call
     * it in the same order. */
    lh_status (*collect)(void *context, lhi_train_lot_kind lot,
                         const float *mine, size_t n, float *all,
                         const size_t *gets, lh_error *err);
    uint64_t steps;  /* of the whole run: the rate's course */
    double rate;     /* the highest */
    double min_rate; /* at the end of the cosine */
    uint64_t warmup; /* steps of linear growth to `rate` */
    double beta1, beta2, epsilon, weight_decay;
    double clip; /* of the global norm; 0: none */
    /* A step updates with the gradients of the step before, clipped by their
     * own norm, and keeps its own for the next; the first updates nothing. As
     * where gradients are sent while the next step computes. */
    bool delayed;
    double balance_bias; /* by which tensors that balance move in a step */
    bool staged; /* exchanges go by lhi_train_pack() and the like */
    /* Of staged ones, before the values of a tensor of the chunk are written:
     * they are to be whole; LH_NONE: no longer any of it. On all replicas, in
     * the same order. */
    lh_status (*show)(void *context, uint32_t chunk, uint32_t tensor,
                      lh_error *err);
    void *context; /* of show and collect */
} lhi_train_options;

/* Sensible values: rate 3e-4, betas 0.9 and 0.95, epsilon 1e-8, decay 0.1, clip
 * 1, min_rate a tenth, warmup a hundredth; sizes and chunks are the
 * caller's. */
lhi_train_options lhi_train_defaults(uint64_t steps);

/* Bytes that an lhi_train holds for chunks of so many values: both moments and,
 * with several replicas, the arrays that they exchange. */
double lhi_train_bytes(double n_values, uint32_t n_replicas);
/* By kind, added to bytes[]; n_tied: values of a tied embedding whose other
 * copy is on another rank, or 0; n_sharded: values that are sharded. Staged
 * ones exchange no arrays of their own. n_shards and delayed as in
 * lhi_train_options. */
void lhi_train_predict(double n_values, double n_tied, double n_sharded,
                       uint32_t n_replicas, uint32_t n_shards, bool staged,
                       bool delayed, double bytes[LH_N_MEMORY_KINDS]);
/* What it notes of so many tensors in so many chunks, which is scratch. */
double lhi_train_notes(uint32_t n_chunks, uint32_t n_tensors);
/* What it does hold. */
void lhi_train_held(const lhi_train *train, int64_t bytes[LH_N_MEMORY_KINDS]);

/* `device` is borrowed and must have tensors. */
lh_status lhi_train_make(lhi_device *device, const lhi_train_options *options,
                         lhi_train **out, lh_error *err);
void lhi_train_free(lhi_train *train); /* NULL is fine */

/* Steps done so far: 0, or what a checkpoint said. The next step to `begin`. */
uint64_t lhi_train_step(const lhi_train *train);

/* The chunk's updated values of a lot: this replica's piece, values [n * shard /
 * n_shards, n * (shard + 1) / n_shards), is in place; the all-gather fills the
 * others; n is a multiple of n_shards, and 0 where that is 1. Experts of a lot
 * of their own have n_expert_shards shards, this one's is expert_shard. */
void lhi_train_parameters(lhi_train *train, uint32_t chunk,
                          lhi_train_lot_kind lot, float **values, size_t *n);
/* The arrays are whole: the tensors take their values from them. */
void lhi_train_gathered(lhi_train *train, uint32_t chunk);

/* The chunk's gradients, n values in pieces as above; the reduce-scatter puts
 * the sum of the replicas' pieces into `out`, n / n_shards values. Where others
 * are divided alike, their sums are to be added. With one replica n is 0. */
void lhi_train_gradients(lhi_train *train, uint32_t chunk,
                         lhi_train_lot_kind lot, const float **values,
                         size_t *n, float **out);
/* The sums that there are of a chunk's lot so far, and how many. */
float *lhi_train_sums(lhi_train *train, uint32_t chunk, lhi_train_lot_kind lot,
                      size_t *n);

/* The same a part at a time, for chunks that are sharded (lhi_device_ops): a
 * part is, of each lot, [from, to) of every replica's piece, its array these one
 * after the other, in room of the caller's. `room` is where sharded values, or
 * gradients, of all lots are, or are to be; NULL where none is in the part. A
 * piece begins with those that are sharded. */
typedef struct lhi_train_range {
    size_t from, to;
} lhi_train_range;
typedef struct lhi_train_part {
    uint32_t chunk;
    size_t base; /* the room begins with this value of the chunk */
    lhi_train_range of[LHI_N_TRAIN_LOTS];
} lhi_train_part;

/* The part that tensors from `first` on are. */
lhi_train_part lhi_train_part_of(const lhi_train *train, uint32_t chunk,
                                 uint32_t first, uint32_t n_tensors);

typedef struct lhi_train_pieces {
    size_t all, values, gradients; /* that are sharded */
} lhi_train_pieces;
lhi_train_pieces lhi_train_pieces_of(const lhi_train *train, uint32_t chunk,
                                     lhi_train_lot_kind lot);
/* Of one lot: this replica's values into its place in the array; all replicas'
 * out of it. */
void lhi_train_pack_values(const lhi_train *train, const lhi_train_part *part,
                           lhi_train_lot_kind lot, float *array);
void lhi_train_unpack_values(const lhi_train *train, const lhi_train_part *part,
                             lhi_train_lot_kind lot, const float *array,
                             float *room);
/* All gradients into the array; the sums that the reduce-scatter gives, of a
 * range of the piece, where `adds` upon those of earlier groups. */
void lhi_train_pack_gradients(const lhi_train *train,
                              const lhi_train_part *part,
                              lhi_train_lot_kind lot, const float *room,
                              float *array);
void lhi_train_take_sums(lhi_train *train, uint32_t chunk,
                         lhi_train_lot_kind lot, lhi_train_range range,
                         const float *sums, bool adds);
/* After values were made or loaded: the replica's pieces of what is sharded are
 * kept, and the device settles. */
lh_status lhi_train_settle(lhi_train *train, lh_error *err);

/* Where parts of the job change their places, after the update and the
 * all-gather of every chunk: a tensor with what the next step needs of it, its
 * values and this replica's piece of its moments. Ranks of one replica have
 * the same piece of a tensor wherever it is. The arrays are the train's. */
enum { LHI_MOST_MOMENTS = 3 }; /* of gradients: mean, square, and late ones */
typedef struct lhi_train_carried {
    uint32_t chunk, index; /* index: of the model's order */
    uint32_t n;            /* moments: 2, or with late gradients 3 */
    float *values, *moments[LHI_MOST_MOMENTS];
    size_t n_values, n_moments; /* values of each */
} lhi_train_carried;
/* Of all chunks of the rank. */
uint32_t lhi_train_n_carried(const lhi_train *train);
lhi_train_carried lhi_train_carry(lhi_train *train, uint32_t i);
/* All are there: as after so many steps. */
void lhi_train_go_on(lhi_train *train, uint64_t step);

/* A tied embedding whose other copy is on another rank of the same replica:
 * send `mine` (n values, also with one replica) to the rank that has chunk
 * `other_chunk`, and put what it sends into `theirs`. After the reduce-scatter
 * of chunk `my_chunk`. n = 0: nothing to do. */
typedef struct lhi_train_pair {
    uint32_t my_chunk, other_chunk;
    const float *mine;
    float *theirs;
    size_t n;
} lhi_train_pair;
lhi_train_pair lhi_train_tied(lhi_train *train);

/* Numbers that all ranks need the sum of; each place is filled by one rank and
 * zero (or absent) on all others, so that any order of adding gives the same.
 * Fill `tally` (lhi_train_tally_size() numbers, the same count on all ranks),
 * after every reduce-scatter and the exchange of tied pairs; asks the device
 * for its loss. */
size_t lhi_train_tally_size(const lhi_train *train);
lh_status lhi_train_tally(lhi_train *train, double *tally, lh_error *err);

typedef struct lhi_train_report {
    uint64_t step; /* that was done, from 0 */
    double loss;   /* nats per token, over the global batch */
    double modules_loss; /* likewise, the mean of modules that predict further
                            tokens; NAN: there are none */
    double norm;   /* of the gradients, before clipping */
    double rate;
    uint64_t tokens; /* of the step, all replicas */
} lhi_train_report;

/* With the added tally: clips, updates this replica's pieces, and counts the
 * step. LH_EINPUT: the loss or the norm is not finite; nothing was changed. */
lh_status lhi_train_update(lhi_train *train, const double *tally,
                           lhi_train_report *report, lh_error *err);
/* Of a validation step: a tally with the loss alone, of the same size and to be
 * added alike, and what it says. */
lh_status lhi_train_validation_tally(lhi_train *train, double *tally,
                                     lh_error *err);
lh_status lhi_train_validated(lhi_train *train, const double *tally,
                              double *loss, lh_error *err);

/* What there is to say that is no error. */
typedef struct lhi_remarks {
    void (*say)(void *context, const char *text); /* may be NULL */
    void *context;
} lhi_remarks;

/* The right to write checkpoints into a folder (made if need be), which one run
 * has at a time: one of its ranks takes it for all. LH_EIO: another run has it;
 * `err` says which. What a run that is gone has left is taken over, with a
 * remark. */
typedef struct lhi_folder_lock lhi_folder_lock;
lh_status lhi_folder_lock_take(const char *folder, const lhi_remarks *remarks,
                               lhi_folder_lock **out, lh_error *err);
/* That it still is ours; takes it again if somebody has removed it. */
lh_status lhi_folder_lock_check(lhi_folder_lock *lock, lh_error *err);
void lhi_folder_lock_release(lhi_folder_lock *lock); /* NULL is fine */
/* Removes what killed runs have left in the folder, whose lock the caller has.
 * A checkpoint that was about to be replaced gets its name back. */
lh_status lhi_tidy_folder(const char *path, lh_error *err);

/* Checkpoints: docs/formats/checkpoint.md. Call between steps: after the update
 * and the all-gather (lhi_train_gathered) of every chunk. `folder` is the same
 * for all ranks, and is seen by all of them.
 *
 *   one rank (say 0): lhi_train_save_begin(); barrier
 *   every rank: lhi_train_save_part(), which fills `sums` like a tally
 *               (lhi_train_sums_size() numbers); add the arrays
 *   the one rank: lhi_train_save_end() with the sum; others may go on
 *
 * If any of it fails on a rank: lhi_train_save_cancel() on the one rank; older
 * checkpoints are as they were. */
typedef struct lhi_checkpoint_options {
    const char *folder; /* made if need be; a folder per checkpoint in it */
    uint32_t keep;      /* this many of the last stay; 0: all */
    /* Written along and compared on loading: what else the run's numbers depend
     * on, one line ("sequence 128, microbatch 2, ..."); may be NULL. */
    const char *recipe;
    double norm_epsilon, rope_theta; /* for config.json; 0: the defaults */
    double dropout, balance;         /* for config.json */
    uint32_t sequence;               /* for config.json; 0: 2048 */
    const char *tokenizer; /* copied beside the weights; may be NULL */
    /* Of the folder, checked before anything is written; NULL: the caller sees
     * to it that nobody else writes there. */
    lhi_folder_lock *lock;
} lhi_checkpoint_options;

size_t lhi_train_sums_size(const lhi_train *train);
lh_status lhi_train_save_begin(lhi_train *train,
                               const lhi_checkpoint_options *options,
                               lh_error *err);
lh_status lhi_train_save_part(lhi_train *train,
                              const lhi_checkpoint_options *options,
                              double *sums, lh_error *err);
lh_status lhi_train_save_end(lhi_train *train,
                             const lhi_checkpoint_options *options,
                             const double *sums, lh_error *err);
void lhi_train_save_cancel(lhi_train *train,
                           const lhi_checkpoint_options *options);

/* Reads this rank's part of a checkpoint: `path` is one checkpoint's folder, or
 * the folder of several, of which the newest is taken. The pipeline's degree
 * and the schedule may be others than those that wrote it, and so may the
 * number of replicas. LH_EINPUT: it is damaged, or of another model or recipe;
 * `err` says which file and what. On failure the values are any, and so until
 * another checkpoint was loaded. Takes no lock: reading does not disturb a run
 * that writes there, which may remove what is being read. */
lh_status lhi_train_load(lhi_train *train, const char *path,
                         const lhi_checkpoint_options *options, lh_error *err);
/* The same in parts, for ranks that have to agree on one. The checkpoints that
 * `path` leads to: those in it, by their steps, ascending; *n = 0, *steps NULL:
 * it is one itself. Release with free(). LH_EINPUT: there is none. */
lh_status lhi_train_find(const char *path, uint64_t **steps, size_t *n,
                         lh_error *err);
/* One: `path` itself (step NULL), or one in it. *is_damaged: why it failed, and
 * not that it does not fit; set in any case. */
lh_status lhi_train_load_one(lhi_train *train, const char *path,
                             const uint64_t *step,
                             const lhi_checkpoint_options *options,
                             const lhi_remarks *remarks, bool *is_damaged,
                             lh_error *err);
/* Weights alone, from a safetensors file or a folder with one
 * (model.safetensors) under Hugging Face's names: fine-tuning starts at step
 * 0. */
lh_status lhi_train_load_weights(lhi_train *train, const char *path,
                                 lh_error *err);

#endif
