/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of src/runtime/training: the parts of an lhi_train.
 *
 * Pieces: for a tensor with n values, shard r owns the values from r * c on; c
 * is n divided by the shard count, rounded up. A chunk's array is, shard by
 * shard, its pieces of all tensors, each padded to c with zeros. */
#ifndef LHI_RUNTIME_TRAINING_TRAIN_INTERNAL_H
#define LHI_RUNTIME_TRAINING_TRAIN_INTERNAL_H

#include "base/arena.h"
#include "runtime/device/cpu_kernels.h"
#include "runtime/device/families.h"
#include "runtime/training/train.h"

/* This rank's part of one tensor. */
typedef struct lhi_owned_tensor {
    lhi_tensor *tensor;
    size_t share;           /* c; for experts times lhi_pieces_per_shard() */
    size_t offset_in_piece; /* offset in a replica's part of the array */
    size_t offset;          /* tensor offset in the chunk's values */
    size_t first, n;        /* owned values */
    float *value;           /* n values, wherever stored */
    float *gradient;        /* n, summed over the replicas */
    /* n each: both AdamW means; and the clipped gradients for the next step.
     * NULL: the next step uses its own. */
    float *moments[LHI_MAX_MOMENTS];
} lhi_owned_tensor;

/* A bucket: tensors whose pieces are exchanged together. */
typedef struct lhi_train_bucket {
    size_t piece; /* size of a shard's part of the array */
    float *array; /* shards * piece; NULL: one shard, or staged */
    float *sums;  /* piece: reduced; NULL: own gradients */
} lhi_train_bucket;

/* A chunk's part. */
typedef struct lhi_train_chunk {
    uint32_t chunk, n_tensors;
    lhi_owned_tensor *owned;
    lhi_train_bucket buckets[LHI_N_TRAIN_BUCKETS];
} lhi_train_chunk;

/* One rank's training. */
struct lhi_train {
    lhi_arena *mem, *moments, *gradients, *buffers, *parameters;
    lhi_device *device;
    const lhi_kernels *k;
    lhi_train_options o;
    uint64_t step;
    uint32_t n_tensors;      /* in the model, with a tied pair's head */
    lhi_train_chunk *chunks; /* o.n_mine */
    lhi_owned_tensor *embedding, *head; /* tied pair; NULL: on another rank */
    uint32_t embedding_chunk, head_chunk;
    float *peer_gradient; /* the other end's gradient */
};

/* Returns the full tensor's size, of which this rank may hold a slice. */
static inline size_t lhi_count_full_values(const lhi_tensor *t)
{
    return (size_t)t->rows * (t->columns ? t->columns : 1);
}

/* Returns a tensor's bucket. */
static inline lhi_train_bucket_kind lhi_bucket_of(const lhi_train *train,
                                                  const lhi_tensor *t)
{
    return t->is_expert && train->o.n_expert_replicas ? LHI_BUCKET_EXPERTS
                                                      : LHI_BUCKET_DEFAULT;
}
/* Returns a bucket's shard count. */
static inline uint32_t lhi_bucket_count_shards(const lhi_train *train,
                                               lhi_train_bucket_kind bucket)
{
    return bucket == LHI_BUCKET_EXPERTS ? train->o.n_expert_shards
                                        : train->o.n_shards;
}
/* Returns the number of ranks with slices of the same tensors. */
static inline uint32_t lhi_bucket_count_slices(const lhi_train *train,
                                               lhi_train_bucket_kind bucket)
{
    return bucket == LHI_BUCKET_EXPERTS ? train->o.n_expert_tensor
                                        : train->o.n_tensor;
}
/* Returns the index of this rank's shard in a bucket. */
static inline uint32_t lhi_bucket_shard(const lhi_train *train,
                                        lhi_train_bucket_kind bucket)
{
    return bucket == LHI_BUCKET_EXPERTS ? train->o.expert_shard
                                        : train->o.shard;
}
/* Checks whether another rank contributes this rank's shard to collective
 * results. */
static inline bool lhi_bucket_is_follower(const lhi_train *train,
                                          lhi_train_bucket_kind bucket)
{
    return bucket == LHI_BUCKET_EXPERTS ? train->o.is_expert_follower
                                        : train->o.is_follower;
}

/* Returns the piece count per tensor in a checkpoint, each with a checksum. */
static inline uint32_t lhi_count_checkpoint_pieces(const lhi_train *train)
{
    return train->o.n_expert_replicas ? train->o.n_shards * train->o.n_tensor
                                      : train->o.n_shards;
}
/* Returns the number of consecutive pieces in a shard: several for experts in
 * their own bucket, since fewer ranks hold the same ones. */
static inline uint32_t lhi_pieces_per_shard(const lhi_train *train,
                                            lhi_train_bucket_kind bucket)
{
    return lhi_count_checkpoint_pieces(train) /
           lhi_bucket_count_shards(train, bucket);
}

/* Returns the moment count per tensor. */
static inline uint32_t lhi_count_moments(const lhi_train *train)
{
    return train->o.delayed ? LHI_MAX_MOMENTS : LHI_MAX_MOMENTS - 1;
}

/* Checks whether this rank holds only a slice of the tensor. */
static inline bool lhi_is_sliced(const lhi_tensor *t)
{
    return t->slice.cut != LHI_CUT_NOT && t->slice.ranks > 1;
}

/* Returns the values per shard for a slice with n values; the last shard may
 * have fewer. */
size_t lhi_values_per_shard(const lhi_train *train,
                            lhi_train_bucket_kind bucket, size_t n);

/* Assembles the full tensor `whole` (values or a moment) on the first of the
 * ranks that have it, for a checkpoint. Each rank gives its values `mine`, n of
 * them, from one of `shards` shards of its slice. Other ranks ignore `whole`.
 * */
lh_status lhi_gather_slices(const lhi_train *train, const lhi_tensor *tensor,
                            uint32_t shards, const float *mine, size_t n,
                            float *whole, lh_error *err);

/* Returns the trainer's state for model chunk `chunk`; NULL: the chunk is on
 * another rank. */
lhi_train_chunk *lhi_train_find_chunk(const lhi_train *train, uint32_t chunk);

/* Folders: src/runtime/training/folder.c. Paths are formatted into `buffer`. */
enum { LHI_PATH = 4096 };
/* Formats a path into `buffer` (LHI_PATH bytes); LH_EIO: it is too long. */
lh_status lhi_folder_path(char *buffer, lh_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Removes a checkpoint's known files and then its folder `path`, which remains
 * if it has other files. Ignores errors. */
void lhi_checkpoint_remove(const char *path);
/* Creates a folder and its missing parents. An existing folder is no error. */
lh_status lhi_make_folder(const char *path, lh_error *err);
/* Creates the folder `path`, or accepts an existing one that belongs to this
 * user. LH_EIO: `path` is anything else, such as a symbolic link or another
 * user's folder. */
lh_status lhi_make_private_folder(const char *path, lh_error *err);
/* Syncs a folder to disk. */
lh_status lhi_sync_folder(const char *path, lh_error *err);
/* Renames folder `from` to `to`; if `to` exists, exchanges the two, so that one
 * of them always exists. *gone (LHI_PATH bytes): path of the replaced folder,
 * "" if none, for the caller to remove once the parent folder is synced. */
lh_status lhi_replace_folder(const char *from, const char *to, char *gone,
                             lh_error *err);
/* Lists the checkpoints' steps in folder `path`, ascending, in (*steps)[*n];
 * release with free(). */
lh_status lhi_list_steps(const char *folder, uint64_t **steps, size_t *n,
                         lh_error *err);

/* A stored tensor: name and shape. */
typedef lhi_model_tensor lhi_checkpoint_tensor;
/* Returns model tensor `index` in the model's order in *out; false: it is the
 * second of a tied pair, which is stored only as the embedding. */
bool lhi_checkpoint_get_tensor(const lh_model *model, uint32_t index,
                               lhi_checkpoint_tensor *out);
/* Returns the number of the model's tensors, in the order in which checkpoints
 * list them. */
uint32_t lhi_checkpoint_count_tensors(const lh_model *model);

/* Writes the model's config.json, which Hugging Face transformers needs to load
 * the weights, into `folder`. */
lh_status lhi_write_config(const lh_model *model,
                           const lhi_checkpoint_options *options,
                           const char *folder, lh_error *err);

/* Format of a checkpoint folder's name: its step. */
#define LHI_STEP_FOLDER "step-%08" PRIu64

/* Computes the checksum defined in docs/formats/checkpoint.md: an integer below
 * 2^52, exact in a double. */
double lhi_checksum(const void *data, size_t bytes);

/* Layout of a safetensors file: its header and tensor offsets; `suffixes` make
 * several stored tensors per model tensor. */
typedef struct lhi_safetensors_layout {
    char *header; /* preceded by its length */
    size_t len;
    uint64_t bytes; /* in the file */
    uint64_t *at;   /* [model tensor][suffix] */
    uint32_t n_suffixes;
} lhi_safetensors_layout;
extern const char *const lhi_weight_suffixes[];  /* NULL-terminated */
extern const char *const lhi_moment_suffixes[];  /* without delayed gradients */
extern const char *const lhi_delayed_suffixes[]; /* with delayed gradients */
static inline const char *const *lhi_moment_suffixes_of(const lhi_train *train)
{
    return train->o.delayed ? lhi_delayed_suffixes : lhi_moment_suffixes;
}
/* Computes the layout of a safetensors file with one tensor per model tensor
 * and name suffix in the NULL-terminated `suffixes`: header text, and out->at,
 * the byte offset of each tensor's values. */
lh_status lhi_safetensors_layout_make(const lh_model *model,
                                      const char *const *suffixes,
                                      lhi_safetensors_layout *out,
                                      lh_error *err);
/* Frees a safetensors file's layout. */
void lhi_safetensors_layout_fini(lhi_safetensors_layout *layout);

/* Files of a checkpoint folder, and its format. */
#define LHI_WEIGHTS_FILE "model.safetensors"
#define LHI_MOMENTS_FILE "optimizer.safetensors"
#define LHI_STATE_FILE "state.json"
#define LHI_LOCK_FILE ".longhaul-lock"
#define LHI_LOCK_TAKEOVER_SUFFIX                                               \
    ".gone-" /* suffix of a lock that is being replaced */
#define LHI_CONFIG_FILE "config.json"
#define LHI_TOKENIZER_FILE "tokenizer.json"
#define LHI_CHECKPOINT_FORMAT "checkpoint/2"

/* Auxiliary files in a checkpoint, for other programs only. */
enum { LHI_AUXILIARY_CONFIG, LHI_AUXILIARY_TOKENIZER, LHI_N_AUXILIARY_FILES };
extern const char *const lhi_auxiliary_files[LHI_N_AUXILIARY_FILES];
enum { LHI_AUXILIARY_MAX_BYTES = 1 << 27 }; /* bytes */
/* Computes the checksum of auxiliary file number `side` (config.json,
 * tokenizer) in a checkpoint's folder into *sum; -1: the file does not exist.
 * */
lh_status lhi_auxiliary_checksum(const char *folder, int side, double *sum,
                                 lh_error *err);

/* A checkpoint's description: src/runtime/training/state.c. `sums` has
 * lhi_train_count_checksums() numbers for `replicas`. */
typedef struct lhi_checkpoint_state {
    uint64_t step;
    uint32_t replicas, n_moments;
    double *sums;                            /* release with free() */
    double check;                            /* checksum of the description */
    double auxiliary[LHI_N_AUXILIARY_FILES]; /* checksums; negative: none */
} lhi_checkpoint_state;
/* Formats a checkpoint's description as JSON: step, model, recipe and
 * checksums; *text is the caller's. `sums`: of all tensors; `sides`: of the
 * auxiliary files (config.json, tokenizer), negative: no such file. */
lh_status lhi_checkpoint_state_format(const lhi_train *train,
                                      const lhi_checkpoint_options *options,
                                      const double *sums, const double *sides,
                                      char **text, lh_error *err);
/* Parses a checkpoint's description into *out; n_moments: moments per tensor in
 * this run. On LH_EINPUT *differs (may be NULL) is true for an intact
 * description with another model, data or format, false for a damaged one. */
lh_status lhi_checkpoint_state_parse(const char *text, size_t len,
                                     const char *name, const lh_model *model,
                                     uint32_t n_moments,
                                     const lhi_checkpoint_options *options,
                                     lhi_checkpoint_state *out, bool *differs,
                                     lh_error *err);
/* Returns the index of model tensor `index`'s first checksum (of its weights)
 * in the checksum array; those of its n_moments moments follow, `replicas`
 * each. */
size_t lhi_checksum_index(uint32_t index, uint32_t replicas,
                          uint32_t n_moments);

#endif
