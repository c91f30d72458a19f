/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/data.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/random.h"
#include "runtime/device/token_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Samples after which a mixture's order of sequences repeats; weights are
 * rounded to shares of it. A sample's place follows from a table, so a run can
 * resume at any sample. */
enum { MIX_PERIOD = 4096, MOST_FILES = 65536 };

/* Files whose tokens are one sequence. */
typedef struct sequence {
    lhi_token_file **files;
    uint32_t n_files;
    uint64_t n_tokens, n_train;
    double weight;
    uint32_t share; /* samples of a period */
} sequence;

/* An open data set. */
struct lhi_data {
    lhi_arena *mem;
    sequence *sequences;
    uint32_t n_sequences;
    bool is_mixture;
    sequence *validation;          /* files for validation; NULL: none */
    uint32_t vocab, length, ahead; /* length: tokens of a window */
    uint64_t seed;
    /* Mixture: each sample's sequence in a period, and its number among the
     * samples of that sequence. */
    uint16_t *mix_sequence, *mix_number;
};

/* Counts the windows in n_tokens. Windows overlap by one token, since the last
 * target is the next window's first token, and by the look-ahead tokens. */
static uint64_t count_windows(const lhi_data *data, uint64_t n_tokens)
{
    uint64_t over = 1 + (uint64_t)data->ahead;
    return n_tokens >= over ? (n_tokens - over) / data->length : 0;
}

/* Returns the position of number i out of n in the permutation that `key`
 * defines: a Feistel network on the next even number of bits, iterated until
 * the result is below n (cycle walking). */
static uint64_t shuffle(uint64_t i, uint64_t n, uint64_t key)
{
    uint32_t half = 1;
    while (half < 31 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next =
                left ^ (lhi_mix64(right + lhi_mix64(key + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

/* --- files ---------------------------------------------------------------- */

/* Parses WEIGHT= at the start of `item` into *weight; returns the rest. NULL:
 * the item has no weight. */
static const char *parse_weight(const char *item, double *weight)
{
    char *end;
    *weight = strtod(item, &end);
    return end > item && *end == '=' ? end + 1 : NULL;
}

/* Opens the token file at `path` as the next file of token sequence `s` (files
 * that are read as one). */
static lh_status add_file(lhi_data *data, sequence *s, const char *path,
                          const lhi_data_options *o, lh_error *err)
{
    lhi_token_file **next = &s->files[s->n_files];
    LHI_TRY(lhi_token_file_open(data->mem, path, o, next, err));
    s->n_files++;
    s->n_tokens += lhi_token_file_count(*next);
    return LH_OK;
}

/* Adds a token sequence (files that are read as one) to the data set, with room
 * for n files and the given mixture weight. */
static lh_status add_sequence(lhi_data *data, uint32_t n, double weight,
                              lh_error *err)
{
    sequence *s = &data->sequences[data->n_sequences];
    s->weight = weight;
    if (!(s->files = LHI_NEW(data->mem, lhi_token_file *, n)))
        return lhi_fail_nomem(err);
    data->n_sequences++;
    return LH_OK;
}

/* Opens one of the `n` items of --data: the next file of the only token
 * sequence or, if it has a weight (WEIGHT=FILE), its own sequence. LH_EINVAL:
 * some items have a weight and others none. */
static lh_status open_item(lhi_data *data, const char *item, uint32_t n,
                           const lhi_data_options *o, lh_error *err)
{
    double weight;
    const char *path = parse_weight(item, &weight);
    const bool is_first = data->n_sequences == 0;
    if (!is_first && (path != NULL) != data->is_mixture)
        return lhi_fail(err, LH_EINVAL,
                        "data '%s': give all files a weight (WEIGHT=FILE), or "
                        "none",
                        item);
    if (path && !(weight > 0 && isfinite(weight)))
        return lhi_fail(err, LH_EINVAL,
                        "data '%s': the weight must be a number above 0", item);
    data->is_mixture = path != NULL;
    if (is_first || path)
        LHI_TRY(add_sequence(data, path ? 1 : n, path ? weight : 1, err));
    return add_file(data, &data->sequences[data->n_sequences - 1],
                    path ? path : item, o, err);
}

/* Splits a list at its semicolons in place; returns the item count, which
 * are NUL-terminated and follow one another. */
static uint32_t split_items(char *list)
{
    uint32_t n = 1;
    for (; *list; list++)
        if (*list == ';') {
            *list = '\0';
            n++;
        }
    return n;
}

/* Copies `list`, file names separated by semicolons, and splits it: *n items,
 * NUL-terminated one after the other at *out. LH_EINVAL: too many. */
static lh_status parse_list(lhi_data *data, const char *list, const char **out,
                            uint32_t *n, lh_error *err)
{
    char *items = lhi_arena_strdup(data->mem, list);
    if (!items)
        return lhi_fail_nomem(err);
    *n = split_items(items);
    *out = items;
    return *n <= MOST_FILES ? LH_OK
                            : lhi_fail(err, LH_EINVAL,
                                       "%" PRIu32 " data files are more than "
                                       "%d",
                                       *n, MOST_FILES);
}

/* Opens the files of the separate validation data, which the options name.
 * LH_EINPUT: they have too few tokens for one window. */
static lh_status open_validation(lhi_data *data, const lhi_data_options *o,
                                 lh_error *err)
{
    const char *item;
    uint32_t n = 0;
    LHI_TRY(parse_list(data, o->validation_path, &item, &n, err));
    sequence *s = LHI_NEW(data->mem, sequence, 1);
    if (!s || !(s->files = LHI_NEW(data->mem, lhi_token_file *, n)))
        return lhi_fail_nomem(err);
    data->validation = s;
    for (uint32_t i = 0; i < n; i++, item += strlen(item) + 1)
        LHI_TRY(add_file(data, s, item, o, err));
    if (count_windows(data, s->n_tokens) == 0)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %" PRIu64 " tokens are too few for a window of "
                        "%u; give a longer file or a shorter sequence",
                        lhi_token_file_path(s->files[0]), s->n_tokens,
                        o->sequence);
    return LH_OK;
}

/* Divides each token sequence into a training part and the validation share at
 * its end. LH_EINPUT: a part is too short for one window. */
static lh_status divide(lhi_data *data, const lhi_data_options *o,
                        lh_error *err)
{
    for (uint32_t i = 0; i < data->n_sequences; i++) {
        sequence *s = &data->sequences[i];
        s->n_train =
            s->n_tokens - (uint64_t)((double)s->n_tokens * o->validation);
        if (count_windows(data, s->n_train) == 0 ||
            (o->validation > 0 &&
             count_windows(data, s->n_tokens - s->n_train) == 0))
            return lhi_fail(
                err, LH_EINPUT,
                "%s: %" PRIu64 " tokens are too few for windows of %u in each "
                "split; give a longer file or a shorter sequence",
                lhi_token_file_path(s->files[0]), s->n_tokens, o->sequence);
    }
    return LH_OK;
}

/* --- mixtures ------------------------------------------------------------- */

/* Sets the number of samples that each sequence of a mixture has in a period of
 * MIX_PERIOD samples: proportional to its weight, at least one. The largest
 * remainders are rounded up. */
static void set_shares(lhi_data *data)
{
    double all = 0;
    uint32_t left = MIX_PERIOD;
    for (uint32_t i = 0; i < data->n_sequences; i++)
        all += data->sequences[i].weight;
    for (uint32_t i = 0; i < data->n_sequences; i++) {
        sequence *s = &data->sequences[i];
        s->weight = s->weight / all * MIX_PERIOD;
        s->share = s->weight < 1 ? 1 : (uint32_t)s->weight;
        left -= s->share;
    }
    /* Negative (as unsigned) if many sequences have less than one sample. */
    for (; left != 0; left += left > MIX_PERIOD ? 1 : UINT32_MAX) {
        sequence *best = NULL;
        for (uint32_t i = 0; i < data->n_sequences; i++) {
            sequence *s = &data->sequences[i];
            const double more = s->weight - s->share;
            const double most = best ? best->weight - best->share : 0;
            if (left > MIX_PERIOD ? s->share > 1 && (!best || more < most)
                                  : !best || more > most)
                best = s;
        }
        best->share += left > MIX_PERIOD ? UINT32_MAX : 1;
    }
}

/* Fills a mixture's tables: each sample is of the sequence whose number of
 * samples is furthest below its share, as in Megatron-LM's blended datasets. */
static lh_status fill_mixture(lhi_data *data, lh_error *err)
{
    if (data->n_sequences > MIX_PERIOD)
        return lhi_fail(err, LH_EINVAL,
                        "a mixture of %" PRIu32 " files: at most %d are "
                        "possible",
                        data->n_sequences, MIX_PERIOD);
    data->mix_sequence = LHI_NEW(data->mem, uint16_t, MIX_PERIOD);
    data->mix_number = LHI_NEW(data->mem, uint16_t, MIX_PERIOD);
    uint16_t *counts = LHI_NEW(data->mem, uint16_t, data->n_sequences);
    if (!data->mix_sequence || !data->mix_number || !counts)
        return lhi_fail_nomem(err);
    set_shares(data);
    for (int64_t k = 0; k < MIX_PERIOD; k++) {
        uint32_t best = UINT32_MAX;
        int64_t most = 0;
        for (uint32_t i = 0; i < data->n_sequences; i++) {
            const int64_t share = data->sequences[i].share;
            const int64_t missing =
                share * (k > 0 ? k : 1) - (int64_t)counts[i] * MIX_PERIOD;
            if (counts[i] < share && (best == UINT32_MAX || missing > most)) {
                best = i;
                most = missing;
            }
        }
        data->mix_sequence[k] = (uint16_t)best;
        data->mix_number[k] = counts[best]++;
    }
    return LH_OK;
}

/* --- data set ------------------------------------------------------------- */

/* Opens all files that the options name, for training and validation, as token
 * sequences. */
static lh_status open_all(lhi_data *data, const lhi_data_options *o,
                          lh_error *err)
{
    const char *item;
    uint32_t n = 0;
    LHI_TRY(parse_list(data, o->path, &item, &n, err));
    if (!(data->sequences = LHI_NEW(data->mem, sequence, n)))
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++, item += strlen(item) + 1)
        LHI_TRY(open_item(data, item, n, o, err));
    LHI_TRY(divide(data, o, err));
    if (o->validation_path)
        LHI_TRY(open_validation(data, o, err));
    return data->is_mixture ? fill_mixture(data, err) : LH_OK;
}

lh_status lhi_data_open(const lhi_data_options *options, lhi_data **out,
                        lh_error *err)
{
    if (!options->path || options->sequence == 0 || options->vocab == 0 ||
        !(options->validation >= 0 && options->validation < 1) ||
        (options->validation > 0 && options->validation_path))
        return lhi_fail(err, LH_EINVAL,
                        "the data need a file, a sequence, a vocabulary and a "
                        "validation share of 0 <= share < 1, or a validation "
                        "file");
    lhi_arena *mem = lhi_arena_make(0);
    lhi_data *data = mem ? LHI_NEW(mem, lhi_data, 1) : NULL;
    if (!data) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    *data = (lhi_data){.mem = mem,
                       .vocab = options->vocab,
                       .length = options->sequence,
                       .ahead = options->look_ahead,
                       .seed = options->seed};
    lh_status status = open_all(data, options, err);
    if (status != LH_OK) {
        lhi_data_close(data);
        return status;
    }
    *out = data;
    return LH_OK;
}

/* Closes the token files of a sequence (files that are read as one). */
static void close_files(const sequence *s)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        lhi_token_file_close(s->files[i]);
}

void lhi_data_close(lhi_data *data)
{
    if (!data)
        return;
    for (uint32_t i = 0; i < data->n_sequences; i++)
        close_files(&data->sequences[i]);
    if (data->validation)
        close_files(data->validation);
    lhi_arena_free(data->mem);
}

uint64_t lhi_data_n_tokens(const lhi_data *data)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < data->n_sequences; i++)
        n += data->sequences[i].n_tokens;
    return n;
}

/* Returns the number of windows (training sequences) of a token sequence in its
 * training part or, with `validation` 1, its validation part. */
static uint64_t count_part(const lhi_data *data, const sequence *s,
                           int validation)
{
    return count_windows(data,
                         validation ? s->n_tokens - s->n_train : s->n_train);
}

uint64_t lhi_data_n_windows(const lhi_data *data, int validation)
{
    uint64_t n = 0;
    if (validation && data->validation)
        return count_windows(data, data->validation->n_tokens);
    for (uint32_t i = 0; i < data->n_sequences; i++)
        n += count_part(data, &data->sequences[i], validation);
    return n;
}

/* Reads `count` tokens from position `at` of a token sequence. LH_EINPUT: a
 * token is not below `vocab` (0: unchecked). */
static lh_status read_tokens(const sequence *s, uint64_t at, size_t count,
                             uint32_t vocab, int32_t *tokens, lh_error *err)
{
    for (uint32_t i = 0; i < s->n_files && count > 0; i++) {
        const uint64_t n = lhi_token_file_count(s->files[i]);
        if (at >= n) {
            at -= n;
            continue;
        }
        const size_t here = n - at < count ? (size_t)(n - at) : count;
        LHI_TRY(lhi_token_file_read(s->files[i], at, here, vocab, tokens, err));
        tokens += here;
        count -= here;
        at = 0;
    }
    return LH_OK;
}

/* Reads `count` tokens from position `at` in the concatenation of the token
 * sequences list[0..n-1]. */
static lh_status read_across(const sequence *list, uint32_t n, uint64_t at,
                             size_t count, int32_t *tokens, lh_error *err)
{
    for (uint32_t i = 0; i < n && count > 0; i++) {
        const sequence *s = &list[i];
        if (at >= s->n_tokens) {
            at -= s->n_tokens;
            continue;
        }
        const size_t here =
            s->n_tokens - at < count ? (size_t)(s->n_tokens - at) : count;
        LHI_TRY(read_tokens(s, at, here, 0, tokens, err));
        tokens += here;
        count -= here;
        at = 0;
    }
    return LH_OK;
}

/* Tokens per read and per sampled block; sampled blocks. A data set of up to
 * ONE_BY_ONE tokens has the same fingerprint in all versions of the format.
 * MOST_HASHED bounds the time at the start: 2^32 tokens have up to 16 GiB. */
enum { BLOCK = 4096, SAMPLED_BLOCKS = 4096, ONE_BY_ONE = 1 << 24 };
#define MOST_HASHED (UINT64_C(1) << 32)

/* Extends the fingerprint `sum` by `count` tokens: by each of them or, with
 * `pairs`, by two at once, which takes half the time. */
static uint64_t hash_block(uint64_t sum, const int32_t *tokens, size_t count,
                           bool pairs)
{
    for (size_t k = 0; k < count; k++) {
        uint64_t value = (uint32_t)tokens[k];
        if (pairs && k + 1 < count)
            value |= (uint64_t)(uint32_t)tokens[++k] << 32;
        sum = lhi_mix64(sum ^ value);
    }
    return sum;
}

/* Computes the fingerprint of the tokens of list[0..n_list-1], n together: of
 * all of them or, with `samples`, of at most SAMPLED_BLOCKS evenly spaced
 * blocks, token by token. */
static lh_status hash_tokens(const sequence *list, uint32_t n_list, uint64_t n,
                             bool samples, uint64_t *out, lh_error *err)
{
    const uint64_t all = n / BLOCK + (n % BLOCK != 0);
    const uint64_t blocks =
        samples && all > SAMPLED_BLOCKS ? SAMPLED_BLOCKS : all;
    const bool pairs = !samples && n > ONE_BY_ONE;
    uint64_t sum = lhi_mix64(n);
    int32_t *tokens = calloc(BLOCK, sizeof *tokens);
    lh_status status = tokens ? LH_OK : lhi_fail_nomem(err);
    for (uint64_t i = 0; status == LH_OK && i < blocks; i++) {
        /* The first and the last block are always among them. */
        uint64_t block = blocks == all ? i : i * (all - 1) / (blocks - 1);
        uint64_t at = block * BLOCK, left = n - at;
        size_t count = left < BLOCK ? (size_t)left : BLOCK;
        status = read_across(list, n_list, at, count, tokens, err);
        if (status == LH_OK)
            sum = hash_block(sum, tokens, count, pairs);
    }
    free(tokens);
    *out = sum;
    return status;
}

/* Computes the fingerprint of the training data; `samples` as in
 * hash_tokens(). */
static lh_status hash_training(const lhi_data *data, bool samples,
                               uint64_t *out, lh_error *err)
{
    uint64_t sum = 0;
    LHI_TRY(hash_tokens(data->sequences, data->n_sequences,
                        lhi_data_n_tokens(data), samples, &sum, err));
    for (uint32_t i = 0; data->is_mixture && i < data->n_sequences; i++)
        sum = lhi_mix64(lhi_mix64(sum ^ data->sequences[i].share) ^
                        data->sequences[i].n_tokens);
    *out = sum;
    return LH_OK;
}

lh_status lhi_data_compute_fingerprint(const lhi_data *data,
                                       lhi_data_fingerprint *out, lh_error *err)
{
    const uint64_t n = lhi_data_n_tokens(data);
    LHI_TRY(hash_training(data, n > MOST_HASHED, &out->value, err));
    out->sampled = out->value;
    return n > ONE_BY_ONE && n <= MOST_HASHED
               ? hash_training(data, true, &out->sampled, err)
               : LH_OK;
}

lh_status lhi_data_hash_validation(const lhi_data *data, uint64_t *out,
                                   lh_error *err)
{
    const sequence *s = data->validation;
    *out = 0;
    return s ? hash_tokens(s, 1, s->n_tokens, s->n_tokens > MOST_HASHED, out,
                           err)
             : LH_OK;
}

/* Reads window number `sample` of the validation part into `tokens`: all
 * sequences' windows, in order and repeatedly. */
static lh_status read_validation(const lhi_data *data, uint64_t sample,
                                 int32_t *tokens, lh_error *err)
{
    const size_t count = (size_t)data->length + 1 + data->ahead;
    const uint64_t n = lhi_data_n_windows(data, 1);
    if (n == 0)
        return lhi_fail(err, LH_EINVAL, "the run has no validation data");
    uint64_t window = sample % n, base = 0;
    const sequence *s = data->validation;
    for (uint32_t i = 0; !s; i++) {
        const sequence *one = &data->sequences[i];
        const uint64_t has = count_part(data, one, 1);
        if (window < has) {
            s = one;
            base = one->n_train;
        } else {
            window -= has;
        }
    }
    return read_tokens(s, base + window * data->length, count, data->vocab,
                       tokens, err);
}

lh_status lhi_data_read_window(const lhi_data *data, int validation,
                               uint64_t sample, int32_t *tokens, lh_error *err)
{
    const size_t count = (size_t)data->length + 1 + data->ahead;
    const sequence *s = &data->sequences[0];
    if (validation)
        return read_validation(data, sample, tokens, err);
    if (data->is_mixture) {
        const uint64_t k = sample % MIX_PERIOD;
        s = &data->sequences[data->mix_sequence[k]];
        sample = sample / MIX_PERIOD * s->share + data->mix_number[k];
    }
    const uint64_t n = count_part(data, s, 0), epoch = sample / n;
    const uint64_t window =
        shuffle(sample % n, n, lhi_mix64(data->seed + lhi_mix64(epoch + 1)));
    return read_tokens(s, window * data->length, count, data->vocab, tokens,
                       err);
}
