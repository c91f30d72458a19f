/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/train: an lhi_train's parts.
 *
 * Pieces: of a tensor of n values, shard r owns those from r * c on, c the
 * number of shards' share of n rounded up. A chunk's array is, shard by shard,
 * its pieces of all tensors, each filled up to c with zeros. */
#ifndef LHI_TRAIN_OWN_H
#define LHI_TRAIN_OWN_H

#include "base/arena.h"
#include "dev/cpu_kernels.h"
#include "dev/families.h"
#include "train/train.h"

/* This rank's part of one tensor. */
typedef struct lhi_owned {
    lhi_tensor *tensor;
    size_t share;    /* c, of experts lhi_pieces_in() times that */
    size_t at;       /* in a replica's part of the array */
    size_t offset;   /* of the tensor, in the chunk's values */
    size_t first, n; /* values that are owned */
    float *value;    /* n of these, wherever they are */
    float *gradient; /* n, summed over the replicas */
    /* n each: both means of AdamW; and the gradients that the next step updates
     * with, clipped. NULL: it has its own. */
    float *moments[LHI_MOST_MOMENTS];
} lhi_owned;

/* Tensors whose pieces are exchanged together. */
typedef struct lhi_train_lot {
    size_t piece; /* values of a shard's part of the array */
    float *array; /* shards * piece; NULL with one shard, or staged */
    float *sums;  /* piece: what reduce-scatter gives; NULL: own gradients */
} lhi_train_lot;

typedef struct lhi_train_chunk {
    uint32_t chunk, n_tensors;
    lhi_owned *owned;
    lhi_train_lot lots[LHI_N_TRAIN_LOTS];
} lhi_train_chunk;

struct lhi_train {
    lhi_arena *mem, *moments, *gradients, *buffers, *parameters;
    lhi_device *device;
    const lhi_kernels *k;
    lhi_train_options o;
    uint64_t step;
    uint32_t n_tensors;          /* of the model, the head of a tied pair too */
    lhi_train_chunk *chunks;     /* o.n_mine */
    lhi_owned *embedding, *head; /* of a tied pair; NULL: not here */
    uint32_t embedding_chunk, head_chunk;
    float *theirs; /* the other end's gradient */
};

/* Values of the whole tensor, of which this rank may have a slice. */
static inline size_t lhi_whole_values(const lhi_tensor *t)
{
    return (size_t)t->rows * (t->columns ? t->columns : 1);
}

/* Which lot a tensor is in; of how many shards. */
static inline lhi_train_lot_kind lhi_lot_of(const lhi_train *train,
                                            const lhi_tensor *t)
{
    return t->is_expert && train->o.n_expert_replicas ? LHI_LOT_EXPERTS
                                                      : LHI_LOT_MOST;
}
static inline uint32_t lhi_shards_of(const lhi_train *train,
                                     lhi_train_lot_kind lot)
{
    return lot == LHI_LOT_EXPERTS ? train->o.n_expert_shards
                                  : train->o.n_shards;
}
/* Ranks that have slices of the same tensors of a lot. */
static inline uint32_t lhi_slicers_of(const lhi_train *train,
                                      lhi_train_lot_kind lot)
{
    return lot == LHI_LOT_EXPERTS ? train->o.n_expert_tensor
                                  : train->o.n_tensor;
}
/* Which of them this rank is. */
static inline uint32_t lhi_shard_of(const lhi_train *train,
                                    lhi_train_lot_kind lot)
{
    return lot == LHI_LOT_EXPERTS ? train->o.expert_shard : train->o.shard;
}
/* Whether another rank with the same ones says what all have to know. */
static inline bool lhi_follows(const lhi_train *train, lhi_train_lot_kind lot)
{
    return lot == LHI_LOT_EXPERTS ? train->o.expert_follows
                                  : train->o.follows;
}

/* Pieces of a tensor in a checkpoint, each with a checksum; how many of them lie
 * one after the other in what a shard has: of experts of a lot of their own
 * several, since fewer ranks have the same ones. */
static inline uint32_t lhi_n_pieces(const lhi_train *train)
{
    return train->o.n_expert_replicas ? train->o.n_shards * train->o.n_tensor
                                      : train->o.n_shards;
}
static inline uint32_t lhi_pieces_in(const lhi_train *train,
                                     lhi_train_lot_kind lot)
{
    return lhi_n_pieces(train) / lhi_shards_of(train, lot);
}

/* Of each tensor. */
static inline uint32_t lhi_n_moments(const lhi_train *train)
{
    return train->o.delayed ? LHI_MOST_MOMENTS : LHI_MOST_MOMENTS - 1;
}

/* Whether this rank has no more than a slice of it. */
static inline bool lhi_is_cut(const lhi_tensor *t)
{
    return t->slice.cut != LHI_CUT_NOT && t->slice.ranks > 1;
}

/* Values of a slice of n that each of its shards has, but for the last. */
size_t lhi_share_of(const lhi_train *train, lhi_train_lot_kind lot, size_t n);

/* Of a tensor's values, or one of its moments, of which each rank has a part
 * (`mine`, `n`; `shards` of each slice, as lhi_owned has them): the first rank gets
 * all in `whole`; at the others it is not looked at. */
lh_status lhi_collect_slices(const lhi_train *train, const lhi_tensor *tensor,
                             uint32_t shards, const float *mine, size_t n,
                             float *whole, lh_error *err);

/* NULL: it is another rank's. */
lhi_train_chunk *lhi_train_find_chunk(const lhi_train *train, uint32_t chunk);

/* Folders: src/train/folder.c. Names are made in `buffer`. */
enum { LHI_PATH = 4096 };
lh_status lhi_folder_path(char *buffer, lh_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A checkpoint's; files that are not of it stay, and the folder with them.
 * Errors don't matter. */
void lhi_remove_folder(const char *path);
lh_status lhi_make_folder(const char *path, lh_error *err); /* with parents */
/* Of this user alone: a link that somebody left there is not followed. */
lh_status lhi_make_own_folder(const char *path, lh_error *err);
lh_status lhi_sync_folder(const char *path, lh_error *err);
/* `from` becomes `to`, whether or not that is there. *gone (room for a path)
 * names what `to` was, "" nothing: to be removed once the folder that has both
 * is synced. */
lh_status lhi_replace_folder(const char *from, const char *to, char *gone,
                             lh_error *err);
/* The steps of the checkpoints in a folder, ascending; release with free(). */
lh_status lhi_list_steps(const char *folder, uint64_t **steps, size_t *n,
                         lh_error *err);

/* What a checkpoint holds of a tensor of the model: name and shape. */
typedef lhi_model_tensor lhi_kept_tensor;
/* Tensor `index` in the model's order; false: the second of a tied pair, which
 * is kept as the embedding. */
bool lhi_kept_tensor_of(const lh_model *model, uint32_t index,
                        lhi_kept_tensor *out);
uint32_t lhi_n_kept_tensors(const lh_model *model);

/* config.json, for transformers. */
lh_status lhi_write_config(const lh_model *model,
                           const lhi_checkpoint_options *options,
                           const char *folder, lh_error *err);

#define LHI_STEP_FOLDER "step-%08" PRIu64

/* A checksum as docs/formats/checkpoint.md defines it: a whole number below
 * 2^52, so that a double holds it. */
double lhi_checksum(const void *data, size_t bytes);

/* A safetensors file as it is written: header, and where each tensor of the
 * model lies; `suffixes` of its name make several of each. */
typedef struct lhi_shard_layout {
    char *header; /* with its length before it */
    size_t len;
    uint64_t bytes; /* of the file */
    uint64_t *at;   /* [tensor of the model][suffix] */
    uint32_t n_suffixes;
} lhi_shard_layout;
extern const char *const lhi_weight_suffixes[]; /* NULL-terminated */
extern const char *const lhi_moment_suffixes[]; /* without late ones */
extern const char *const lhi_late_suffixes[];   /* with them */
static inline const char *const *lhi_suffixes_of(const lhi_train *train)
{
    return train->o.delayed ? lhi_late_suffixes : lhi_moment_suffixes;
}
lh_status lhi_shard_layout_make(const lh_model *model,
                                const char *const *suffixes,
                                lhi_shard_layout *out, lh_error *err);
void lhi_shard_layout_fini(lhi_shard_layout *layout);

#define LHI_WEIGHTS_FILE "model.safetensors"
#define LHI_MOMENTS_FILE "optimizer.safetensors"
#define LHI_STATE_FILE "state.json"
#define LHI_LOCK_FILE ".longhaul-lock"
#define LHI_LOCK_GONE ".gone-" /* ends the name of one that is replaced */
#define LHI_CONFIG_FILE "config.json"
#define LHI_TOKENIZER_FILE "tokenizer.json"
#define LHI_CHECKPOINT_FORMAT "checkpoint/1"

/* Files of a checkpoint that no run reads: for other programs. */
enum { LHI_SIDE_CONFIG, LHI_SIDE_TOKENIZER, LHI_N_SIDES };
extern const char *const lhi_side_files[LHI_N_SIDES];
enum { LHI_MAX_SIDE = 1 << 27 }; /* bytes */
/* The checksum of a checkpoint's file; -1: there is none. */
lh_status lhi_side_sum(const char *folder, int side, double *sum,
                       lh_error *err);

/* What a checkpoint says of itself: src/train/state.c. `sums` is of
 * lhi_train_sums_size() numbers for `replicas`. */
typedef struct lhi_state {
    uint64_t step;
    uint32_t replicas, n_moments;
    double *sums;              /* release with free() */
    double sides[LHI_N_SIDES]; /* checksums; negative: none */
} lhi_state;
/* `sides` as in lhi_state. */
lh_status lhi_state_format(const lhi_train *train,
                           const lhi_checkpoint_options *options,
                           const double *sums, const double *sides, char **text,
                           lh_error *err);
/* `n_moments`: what the run keeps of each tensor.
 * *differs (may be NULL): it is whole, and of another model, recipe or format
 * than this run's; false: it is damaged. */
lh_status lhi_state_parse(const char *text, size_t len, const char *name,
                          const lh_model *model, uint32_t n_moments,
                          const lhi_checkpoint_options *options, lhi_state *out,
                          bool *differs, lh_error *err);
/* Where in the sums tensor `index` has its weights', and behind them, moment
 * by moment, one per replica. */
size_t lhi_sums_at(uint32_t index, uint32_t replicas, uint32_t n_moments);

#endif
