/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership of values, and the arrays that ranks exchange. */
#include "runtime/training/train.h"

#include "base/fail.h"
#include "runtime/device/cpu_kernels.h"
#include "runtime/training/train_internal.h"

#include <string.h>

lhi_train_options lhi_train_defaults(uint64_t steps)
{
    return (lhi_train_options){
        .steps = steps,
        .rate = 3e-4,
        .min_rate = 3e-5,
        .warmup = steps / 100,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .weight_decay = 0.1,
        .clip = 1,
    };
}

/* Checks the ranges of rates and betas, and that the indices of replica and
 * shard are below their counts. LH_EINVAL: they are not. */
static lh_status check_options(const lhi_train_options *o, lh_error *err)
{
    bool rates = o->rate >= 0 && o->min_rate >= 0 && o->rate < 1e9;
    bool betas = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1;
    if (!rates || !betas || !(o->epsilon > 0) || !(o->weight_decay >= 0) ||
        !(o->clip >= 0) || !(o->balance_bias >= 0) ||
        o->rate_decay >= LH_N_RATE_DECAYS)
        return lhi_fail(
            err, LH_EINVAL,
            "rates must be 0 to 1e9, decay, clipping and the bias update at "
            "least 0, betas 0 <= beta < 1, epsilon above 0, the decay cosine, "
            "linear or constant");
    if (o->n_replicas == 0 || o->replica >= o->n_replicas || o->steps == 0)
        return lhi_fail(
            err, LH_EINVAL,
            "replica %u of %u does not exist, or there are no steps",
            o->replica, o->n_replicas);
    if (o->n_shards && (o->shard >= o->n_shards || o->n_shards > o->n_replicas))
        return lhi_fail(err, LH_EINVAL,
                        "shard %u of %u does not exist, or there are more "
                        "shards than replicas",
                        o->shard, o->n_shards);
    uint32_t copies = o->n_replicas * (o->n_tensor ? o->n_tensor : 1);
    uint32_t cuts = o->n_expert_tensor ? o->n_expert_tensor : 1;
    uint32_t pieces =
        o->n_shards ? copies / o->n_replicas * o->n_shards : copies;
    if (o->n_expert_replicas &&
        (o->expert_replica >= o->n_expert_replicas ||
         o->expert_tensor >= cuts ||
         copies % (o->n_expert_replicas * cuts) != 0 ||
         o->expert_shard >= o->n_expert_shards ||
         o->n_expert_replicas % o->n_expert_shards != 0 ||
         pieces % o->n_expert_shards != 0))
        return lhi_fail(
            err, LH_EINVAL,
            "rank %u of %u with the same experts or its shard %u of %u does "
            "not exist, or the numbers do not divide %u pieces",
            o->expert_replica, o->n_expert_replicas, o->expert_shard,
            o->n_expert_shards, pieces);
    return LH_OK;
}

void lhi_train_predict_memory(double n_values, double n_tied, double n_sharded,
                              uint32_t n_replicas, uint32_t n_shards,
                              bool staged, bool delayed,
                              double bytes[LH_N_MEMORY_KINDS])
{
    double share = n_values / n_shards;
    bool arrays = n_shards > 1 && !staged;
    bytes[LH_MEMORY_PARAMETERS] += sizeof(float) * n_sharded / n_shards;
    bytes[LH_MEMORY_MOMENTS] += sizeof(float) * (delayed ? 3.0 : 2.0) * share;
    if (n_replicas > 1 || staged)
        bytes[LH_MEMORY_GRADIENTS] += sizeof(float) * share;
    bytes[LH_MEMORY_BUFFERS] += arrays ? sizeof(float) * n_values : 0;
    bytes[LH_MEMORY_BUFFERS] += sizeof(float) * n_tied / n_shards;
}

double lhi_train_bookkeeping_bytes(uint32_t n_chunks, uint32_t n_tensors)
{
    return (double)sizeof(lhi_train) +
           n_chunks * (double)(sizeof(uint32_t) + sizeof(lhi_train_chunk)) +
           n_tensors * (double)sizeof(lhi_owned_tensor);
}

void lhi_train_add_memory(const lhi_train *train,
                          int64_t bytes[LH_N_MEMORY_KINDS])
{
    bytes[LH_MEMORY_MOMENTS] += (int64_t)lhi_arena_used(train->moments);
    bytes[LH_MEMORY_GRADIENTS] += (int64_t)lhi_arena_used(train->gradients);
    bytes[LH_MEMORY_BUFFERS] += (int64_t)lhi_arena_used(train->buffers);
    bytes[LH_MEMORY_PARAMETERS] += (int64_t)lhi_arena_used(train->parameters);
    bytes[LH_MEMORY_SCRATCH] += (int64_t)lhi_arena_used(train->mem);
}

/* Allocates a chunk's exchange array and gradient sums for one bucket (experts
 * or others), and assigns the ranges of moments and gradient sums to its
 * tensors. */
static lh_status make_buffers(lhi_train *train, lhi_train_chunk *chunk,
                              lhi_train_bucket_kind kind, lh_error *err)
{
    uint32_t shards = lhi_bucket_count_shards(train, kind);
    uint32_t replicas = kind == LHI_BUCKET_EXPERTS ? train->o.n_expert_replicas
                                                   : train->o.n_replicas;
    lhi_train_bucket *bucket = &chunk->buckets[kind];
    size_t n = bucket->piece;
    float *moments[LHI_MAX_MOMENTS] = {NULL};
    bool made = true;
    bool arrays = shards > 1 && !train->o.staged && n > 0;
    bool sums = (replicas > 1 || train->o.staged) && n > 0;
    if (arrays)
        bucket->array = LHI_NEW(train->buffers, float, n *shards);
    if (sums)
        bucket->sums = LHI_NEW(train->gradients, float, n);
    for (uint32_t k = 0; k < lhi_count_moments(train); k++)
        made = (moments[k] = LHI_NEW(train->moments, float, n)) && made;
    if (!made || (arrays && !bucket->array) || (sums && !bucket->sums))
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < chunk->n_tensors; i++) {
        lhi_owned_tensor *own = &chunk->owned[i];
        if (lhi_bucket_of(train, own->tensor) != kind)
            continue;
        for (uint32_t k = 0; k < lhi_count_moments(train); k++)
            own->moments[k] = moments[k] + own->offset_in_piece;
        own->gradient =
            sums ? bucket->sums + own->offset_in_piece : own->tensor->gradient;
    }
    return LH_OK;
}

/* Returns the number of tally entries (sums of squared gradients over part of a
 * tensor) per slice of a tensor in the bucket (experts or others). */
static uint32_t count_tally_entries(const lhi_train *train,
                                    lhi_train_bucket_kind bucket)
{
    const lhi_train_options *o = &train->o;
    return o->n_replicas * o->n_tensor / lhi_bucket_count_slices(train, bucket);
}

/* Returns the value count in one shard of a tensor slice with n values; the
 * last shard may have fewer. Shards of experts consist of whole checkpoint
 * pieces or, if experts are sliced, whole tally entries. */
size_t lhi_values_per_shard(const lhi_train *train,
                            lhi_train_bucket_kind bucket, size_t n)
{
    uint32_t shards = lhi_bucket_count_shards(train, bucket), pieces = shards;
    if (bucket == LHI_BUCKET_EXPERTS)
        pieces = lhi_bucket_count_slices(train, bucket) > 1
                     ? count_tally_entries(train, bucket)
                     : lhi_count_checkpoint_pieces(train);
    return (n / pieces + (n % pieces != 0)) * (pieces / shards);
}

/* Fills in chunk->owned, the chunk's tensor table: this rank's shard of each
 * tensor, and its offset in the rank's piece (its shards of all tensors of a
 * bucket). */
static lh_status make_chunk(lhi_train *train, lhi_train_chunk *chunk,
                            lh_error *err)
{
    lhi_device *device = train->device;
    uint32_t c = chunk->chunk;
    chunk->n_tensors = device->ops->n_tensors(device, c);
    chunk->owned = LHI_NEW(train->mem, lhi_owned_tensor, chunk->n_tensors);
    if (!chunk->owned)
        return lhi_fail_nomem(err);
    size_t offset = 0;
    for (uint32_t i = 0; i < chunk->n_tensors; i++) {
        lhi_owned_tensor *own = &chunk->owned[i];
        lhi_tensor *tensor = device->ops->tensor(device, c, i);
        own->tensor = tensor;
        own->offset = offset;
        offset += tensor->n;
        lhi_train_bucket_kind kind = lhi_bucket_of(train, tensor);
        own->share = lhi_values_per_shard(train, kind, tensor->n);
        own->offset_in_piece = chunk->buckets[kind].piece;
        chunk->buckets[kind].piece += own->share;
        own->first = own->share * lhi_bucket_shard(train, kind);
        if (own->first > tensor->n)
            own->first = tensor->n;
        own->n = tensor->n - own->first < own->share ? tensor->n - own->first
                                                     : own->share;
        own->value = tensor->value + own->first;
        if (tensor->tied_chunk != LH_NONE && tensor->is_head) {
            train->head = own;
            train->head_chunk = c;
            train->embedding_chunk = tensor->tied_chunk;
        } else if (tensor->tied_chunk != LH_NONE) {
            train->embedding = own;
            train->embedding_chunk = c;
            train->head_chunk = tensor->tied_chunk;
        }
    }
    LHI_TRY(make_buffers(train, chunk, LHI_BUCKET_DEFAULT, err));
    return train->o.n_expert_replicas
               ? make_buffers(train, chunk, LHI_BUCKET_EXPERTS, err)
               : LH_OK;
}

/* Makes the trainer's state of all chunks of this rank, and the buffer for the
 * gradient of a tied embedding's other copy. */
static lh_status make_chunks(lhi_train *train, lh_error *err)
{
    uint32_t n = train->o.n_mine;
    uint32_t *mine = LHI_NEW(train->mem, uint32_t, n);
    train->chunks = LHI_NEW(train->mem, lhi_train_chunk, n);
    if (!mine || !train->chunks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        mine[i] = train->o.mine[i];
    train->o.mine = mine;
    train->k = lhi_kernels_find_fastest();
    train->n_tensors = lhi_checkpoint_count_tensors(train->o.model);
    for (uint32_t i = 0; i < n; i++) {
        train->chunks[i].chunk = mine[i];
        LHI_TRY(make_chunk(train, &train->chunks[i], err));
    }
    const lhi_owned_tensor *end =
        train->embedding ? train->embedding : train->head;
    if (end && !(train->embedding && train->head)) {
        train->peer_gradient = LHI_NEW(train->buffers, float, end->n);
        if (!train->peer_gradient)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

lh_status lhi_train_make(lhi_device *device, const lhi_train_options *options,
                         lhi_train **out, lh_error *err)
{
    LHI_TRY(check_options(options, err));
    lhi_arena *mem = lhi_arena_make(0);
    lhi_train *train = mem ? LHI_NEW(mem, lhi_train, 1) : NULL;
    if (!train) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    train->mem = mem;
    train->device = device;
    train->o = *options;
    if (!train->o.n_tensor)
        train->o.n_tensor = 1;
    if (!train->o.most_tensor)
        train->o.most_tensor = train->o.n_tensor;
    if (!train->o.n_expert_tensor)
        train->o.n_expert_tensor = 1;
    if (train->o.n_shards == 0) {
        train->o.n_shards = options->n_replicas;
        train->o.shard = options->replica;
    }
    lh_status status = (train->moments = lhi_arena_make(0)) &&
                               (train->gradients = lhi_arena_make(0)) &&
                               (train->buffers = lhi_arena_make(0)) &&
                               (train->parameters = lhi_arena_make(0))
                           ? make_chunks(train, err)
                           : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_train_free(train);
        return status;
    }
    *out = train;
    return LH_OK;
}

void lhi_train_free(lhi_train *train)
{
    if (!train)
        return;
    lhi_arena_free(train->moments);
    lhi_arena_free(train->gradients);
    lhi_arena_free(train->buffers);
    lhi_arena_free(train->parameters);
    lhi_arena_free(train->mem);
}

uint64_t lhi_train_step(const lhi_train *train)
{
    return train->step;
}

lhi_train_chunk *lhi_train_find_chunk(const lhi_train *train, uint32_t chunk)
{
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        if (train->chunks[i].chunk == chunk)
            return &train->chunks[i];
    return NULL;
}

/* Copies a tensor's values to the exchange array, which has all tensors' first
 * shards, then all second ones and so on; with `back` copies from the array. */
static void copy_array(const lhi_train *train, const lhi_train_chunk *chunk,
                       const lhi_owned_tensor *own, float *values, bool back)
{
    lhi_train_bucket_kind kind = lhi_bucket_of(train, own->tensor);
    const lhi_train_bucket *bucket = &chunk->buckets[kind];
    for (uint32_t r = 0; r < lhi_bucket_count_shards(train, kind); r++) {
        size_t first = own->share * r, n = own->share;
        float *at = bucket->array + r * bucket->piece + own->offset_in_piece;
        if (first > own->tensor->n)
            first = own->tensor->n;
        if (n > own->tensor->n - first)
            n = own->tensor->n - first;
        if (back) {
            memcpy(values + first, at, n * sizeof *at);
        } else {
            memcpy(at, values + first, n * sizeof *at);
            memset(at + n, 0, (own->share - n) * sizeof *at);
        }
    }
}

void lhi_train_parameters(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, float **values,
                          size_t *n)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    *values = NULL;
    *n = 0;
    if (!c || !c->buckets[bucket].array)
        return;
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (lhi_bucket_of(train, c->owned[i].tensor) == bucket)
            copy_array(train, c, &c->owned[i], c->owned[i].tensor->value,
                       false);
    *values = c->buckets[bucket].array;
    *n = c->buckets[bucket].piece * lhi_bucket_count_shards(train, bucket);
}

void lhi_train_gathered(lhi_train *train, uint32_t chunk)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    for (uint32_t i = 0; c && i < c->n_tensors; i++)
        if (c->buckets[lhi_bucket_of(train, c->owned[i].tensor)].array)
            copy_array(train, c, &c->owned[i], c->owned[i].tensor->value, true);
}

/* Copies a chunk's gradients of one bucket (experts or others) to the gradient
 * sums, for a bucket that is not sharded. */
static void copy_gradients(const lhi_train *train, const lhi_train_chunk *c,
                           lhi_train_bucket_kind bucket)
{
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (lhi_bucket_of(train, c->owned[i].tensor) == bucket)
            memcpy(c->owned[i].gradient, c->owned[i].tensor->gradient,
                   c->owned[i].n * sizeof(float));
}

float *lhi_train_get_sums(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, size_t *n)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    *n = c && c->buckets[bucket].sums ? c->buckets[bucket].piece : 0;
    return c ? c->buckets[bucket].sums : NULL;
}

void lhi_train_gradients(lhi_train *train, uint32_t chunk,
                         lhi_train_bucket_kind bucket, const float **values,
                         size_t *n, float **out)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    *values = NULL;
    *out = NULL;
    *n = 0;
    if (!c || !c->buckets[bucket].sums)
        return;
    if (!c->buckets[bucket].array) { /* all values are owned here */
        copy_gradients(train, c, bucket);
        return;
    }
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (lhi_bucket_of(train, c->owned[i].tensor) == bucket)
            copy_array(train, c, &c->owned[i], c->owned[i].tensor->gradient,
                       false);
    *values = c->buckets[bucket].array;
    *out = c->buckets[bucket].sums;
    *n = c->buckets[bucket].piece * lhi_bucket_count_shards(train, bucket);
}

lhi_train_tied_pair lhi_train_get_tied_pair(lhi_train *train)
{
    const lhi_owned_tensor *end =
        train->embedding ? train->embedding : train->head;
    bool has_head = end && end == train->head;
    if (!train->peer_gradient)
        return (lhi_train_tied_pair){.n = 0};
    return (lhi_train_tied_pair){
        .my_chunk = has_head ? train->head_chunk : train->embedding_chunk,
        .other_chunk = has_head ? train->embedding_chunk : train->head_chunk,
        .mine = end->gradient,
        .theirs = train->peer_gradient,
        .n = end->n,
    };
}

/* Adds the gradients of a tied embedding's two copies (or of this rank's copy
 * and the partner's received one). Both ranks get the same sum, because
 * addition is commutative. */
static void add_tied(lhi_train *train)
{
    lhi_owned_tensor *a = train->embedding, *b = train->head;
    if (a && b) {
        train->k->add(a->gradient, b->gradient, a->n);
        memcpy(b->gradient, a->gradient, a->n * sizeof *a->gradient);
    } else if (a || b) {
        a = a ? a : b;
        train->k->add(a->gradient, train->peer_gradient, a->n);
    }
}

/* Returns the size of a tally, the array that ranks sum after a step: for each
 * model tensor, tensor-parallel rank and replica the sum of squared gradients;
 * then for each replica the loss, its tokens, and the loss of multi-token
 * prediction. */
size_t lhi_train_tally_size(const lhi_train *train)
{
    const lhi_train_options *o = &train->o;
    return ((size_t)train->n_tensors * o->most_tensor + 3) * o->n_replicas;
}

/* Returns the losses' address in a tally (sums over ranks after a step); they
 * follow the sums of squared gradients. */
static double *get_losses(const lhi_train *train, double *tally)
{
    const lhi_train_options *o = &train->o;
    return tally + (size_t)train->n_tensors * o->most_tensor * o->n_replicas;
}

/* Returns how many values of this rank's slice of a tensor count towards the
 * gradient norm; another rank counts the others, which it also has. */
static size_t count_contributed(const lhi_train *train,
                                const lhi_owned_tensor *own)
{
    lhi_train_bucket_kind bucket = lhi_bucket_of(train, own->tensor);
    if (own == train->head || own->tensor->balances ||
        lhi_bucket_is_follower(train, bucket))
        return 0;
    if (bucket == LHI_BUCKET_EXPERTS)
        return own->tensor->n;
    return lhi_slice_count_own_values(&own->tensor->slice, train->o.tensor);
}

lh_status lhi_train_validation_tally(lhi_train *train, double *tally,
                                     lh_error *err)
{
    double sum, *losses = get_losses(train, tally);
    uint64_t tokens;
    bool has;
    memset(tally, 0, lhi_train_tally_size(train) * sizeof *tally);
    lhi_device *device = train->device;
    uint32_t replica = train->o.replica, n = train->o.n_replicas;
    LHI_TRY(device->ops->loss(device, &sum, &tokens, &has, err));
    if (has) {
        losses[replica] = sum;
        losses[n + replica] = (double)tokens;
        losses[2 * n + replica] = device->ops->modules_loss(device);
    }
    return LH_OK;
}

/* Adds the sums of squared gradients of this rank's shard of a tensor to its
 * entries of `tally`. Unsharded values are summed shard by shard, so that the
 * norm is bitwise equal with and without sharding. */
static void tally_squares(const lhi_train *train, const lhi_owned_tensor *own,
                          double *tally)
{
    size_t n_contributed = count_contributed(train, own);
    size_t end = n_contributed > own->first ? n_contributed - own->first : 0;
    if (end == 0)
        return;
    uint32_t replicas = train->o.n_replicas;
    size_t n = own->n, share = n / replicas + (n % replicas != 0);
    if (lhi_bucket_of(train, own->tensor) == LHI_BUCKET_EXPERTS) {
        /* As many entries of the slice as belong to each shard. */
        uint32_t all = count_tally_entries(train, LHI_BUCKET_EXPERTS);
        share = own->tensor->n / all + (own->tensor->n % all != 0);
        replicas = all / train->o.n_expert_shards;
        tally +=
            train->o.expert_tensor * all + train->o.expert_shard * replicas;
    } else {
        tally += train->o.tensor * replicas;
        if (train->o.n_shards > 1) {
            share = own->share;
            tally += train->o.shard;
            replicas = 1;
        }
    }
    for (uint32_t r = 0; r < replicas; r++) {
        size_t first = share * r < n ? share * r : n;
        size_t here = n - first < share ? n - first : share;
        if (here > end - (first < end ? first : end))
            here = end - (first < end ? first : end);
        tally[r] = train->k->squares(own->gradient + first, here);
    }
}

lh_status lhi_train_tally(lhi_train *train, double *tally, lh_error *err)
{
    LHI_TRY(lhi_train_validation_tally(train, tally, err));
    add_tied(train);
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++) {
            const lhi_owned_tensor *own = &train->chunks[i].owned[j];
            size_t at = (size_t)own->tensor->index * train->o.most_tensor *
                        train->o.n_replicas;
            tally_squares(train, own, tally + at);
        }
    return LH_OK;
}

void lhi_train_apply_recipe(lhi_train *train, const lhi_recipe *recipe)
{
    const double *from = recipe->options;
    train->o.steps = (uint64_t)from[LHI_RECIPE_STEPS];
    train->o.rate = from[LHI_RECIPE_RATE];
    train->o.min_rate = from[LHI_RECIPE_MIN_RATE];
    train->o.warmup = (uint64_t)from[LHI_RECIPE_WARMUP];
    train->o.weight_decay = from[LHI_RECIPE_WEIGHT_DECAY];
    train->o.clip = from[LHI_RECIPE_CLIP];
    train->o.beta1 = from[LHI_RECIPE_BETA1];
    train->o.beta2 = from[LHI_RECIPE_BETA2];
    train->o.epsilon = from[LHI_RECIPE_EPSILON];
    train->o.rate_decay = (uint32_t)from[LHI_RECIPE_RATE_DECAY];
    train->o.decay_steps = (uint64_t)from[LHI_RECIPE_DECAY_STEPS];
    train->o.balance_bias = from[LHI_RECIPE_BALANCE_BIAS];
}
