/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC */
#include "runtime/device/data.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/input_limits.h"
#include "base/random.h"
#include "base/text.h"
#include "runtime/device/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An open data set. */
struct lhi_data {
    lhi_arena *mem;
    const char *path;
    int fd;            /* -1: all tokens are in `encoded` */
    uint32_t *encoded; /* allocated by the tokenizer; free with
                        * lhi_tokens_free() */
    uint32_t size;     /* bytes per token in the file */
    uint32_t vocab, sequence, ahead;
    uint64_t n_tokens, n_train; /* tokens */
    uint64_t seed;
};

/* Counts the training sequences (windows) in n_tokens. Windows overlap by one
 * token, since the last target is the next window's first token, and by the
 * look-ahead tokens. */
static uint64_t count_windows(uint64_t n_tokens, const lhi_data_options *o)
{
    uint64_t over = 1 + (uint64_t)o->look_ahead;
    return n_tokens >= over ? (n_tokens - over) / o->sequence : 0;
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

/* Encodes the text file with the tokenizer into data->encoded. */
static lh_status encode(lhi_data *data, const char *tokenizer, lh_error *err)
{
    lhi_tokenizer *bpe = NULL;
    char *text = NULL;
    size_t len = 0, n = 0;
    struct stat info;
    if (stat(data->path, &info) == 0 && !S_ISREG(info.st_mode))
        return lhi_fail(err, LH_EINPUT, "%s: is not a file", data->path);
    LHI_TRY(lhi_tokenizer_read(tokenizer, &bpe, err));
    lh_status status =
        lhi_tokenizer_size(bpe) <= data->vocab
            ? LH_OK
            : lhi_fail(err, LH_EINPUT,
                       "%s: has %u tokens, but the model's vocabulary only %u",
                       tokenizer, lhi_tokenizer_size(bpe), data->vocab);
    if (status == LH_OK)
        status = lhi_file_read(data->path, lhi_input_max_bytes(LHI_INPUT_TEXT),
                               &text, &len, err);
    if (status == LH_OK)
        status = lhi_tokenizer_encode(bpe, text, len, &data->encoded, &n, err);
    if (status == LH_EINPUT && text)
        lhi_fail_add_context(err, "%s", data->path);
    data->n_tokens = n;
    lh_text_free(text);
    lhi_tokenizer_free(bpe);
    return status;
}

/* Opens a file of fixed-size tokens and counts them. LH_EINPUT: not a regular
 * file, or its size is no multiple of the token size. */
static lh_status open_file(lhi_data *data, lh_error *err)
{
    struct stat info;
    data->fd = open(data->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (data->fd < 0 || fstat(data->fd, &info) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", data->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lhi_fail(err, LH_EINPUT, "%s: is not a file", data->path);
    if (info.st_size % data->size)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %" PRIu64
                        " bytes are not a multiple of %u-byte tokens",
                        data->path, (uint64_t)info.st_size, data->size);
    data->n_tokens = (uint64_t)info.st_size / data->size;
    return LH_OK;
}

/* Opens the token file or the encoded text and splits the tokens into training
 * and validation. LH_EINPUT: one of the two is too short for a training
 * sequence. */
static lh_status open_tokens(lhi_data *data, const lhi_data_options *o,
                             lh_error *err)
{
    static const uint32_t sizes[] = {1, 2, 4};
    if (!(data->path = lhi_arena_strdup(data->mem, o->path)))
        return lhi_fail_nomem(err);
    data->size = sizes[o->kind];
    data->vocab = o->vocab;
    data->sequence = o->sequence;
    data->ahead = o->look_ahead;
    data->seed = o->seed;
    if (o->tokenizer && o->kind == LHI_DATA_BYTES)
        LHI_TRY(encode(data, o->tokenizer, err));
    else
        LHI_TRY(open_file(data, err));
    data->n_train =
        data->n_tokens - (uint64_t)((double)data->n_tokens * o->validation);
    if (count_windows(data->n_train, o) == 0 ||
        (o->validation > 0 &&
         count_windows(data->n_tokens - data->n_train, o) == 0))
        return lhi_fail(err, LH_EINPUT,
                        "%s: %" PRIu64 " tokens are too few for windows of %u "
                        "in each split; give a longer file or a "
                        "shorter sequence",
                        data->path, data->n_tokens, o->sequence);
    return LH_OK;
}

lh_status lhi_data_open(const lhi_data_options *options, lhi_data **out,
                        lh_error *err)
{
    if (!options->path || options->sequence == 0 || options->vocab == 0 ||
        !(options->validation >= 0 && options->validation < 1))
        return lhi_fail(err, LH_EINVAL,
                        "the data need a file, a sequence, a vocabulary and a "
                        "validation share of 0 <= share < 1");
    lhi_arena *mem = lhi_arena_make(0);
    lhi_data *data = mem ? LHI_NEW(mem, lhi_data, 1) : NULL;
    if (!data) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    data->mem = mem;
    data->fd = -1;
    lh_status status = open_tokens(data, options, err);
    if (status != LH_OK) {
        lhi_data_close(data);
        return status;
    }
    *out = data;
    return LH_OK;
}

void lhi_data_close(lhi_data *data)
{
    if (!data)
        return;
    if (data->fd >= 0)
        close(data->fd);
    lhi_tokens_free(data->encoded);
    lhi_arena_free(data->mem);
}

uint64_t lhi_data_n_tokens(const lhi_data *data)
{
    return data->n_tokens;
}

uint64_t lhi_data_n_windows(const lhi_data *data, int validation)
{
    const lhi_data_options o = {.sequence = data->sequence,
                                .look_ahead = data->ahead};
    return count_windows(
        validation ? data->n_tokens - data->n_train : data->n_train, &o);
}

/* Reads exactly `size` bytes of the token file at byte offset `at` into
 * `to`. */
static lh_status read_bytes(const lhi_data *data, uint64_t at, char *to,
                            size_t size, lh_error *err)
{
    while (size > 0) {
        ssize_t got = pread(data->fd, to, size, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lhi_fail(err, LH_EIO, "%s: %s", data->path,
                            got < 0 ? strerror(errno)
                                    : "was truncated while in use");
        to += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return LH_OK;
}

/* Widens `n` tokens of `size` bytes each to int32 in the array `tokens`; the
 * unconverted bytes `from` are at the array's end. */
static void widen_tokens(int32_t *tokens, size_t n, uint32_t size,
                         const char *from)
{
    const unsigned char *bytes = (const unsigned char *)from;
    for (size_t i = 0; i < n; i++, bytes += size) {
        uint32_t token = 0;
        for (uint32_t b = 0; b < size; b++)
            token |= (uint32_t)bytes[b] << (8 * b);
        /* large ones become negative */
        memcpy(&tokens[i], &token, sizeof token);
    }
}

/* Reads `count` tokens from token position `at` of the data set. */
static lh_status read_tokens(const lhi_data *data, uint64_t at, size_t count,
                             int32_t *tokens, lh_error *err)
{
    if (data->encoded) {
        for (size_t i = 0; i < count; i++)
            tokens[i] = (int32_t)data->encoded[at + i];
        return LH_OK;
    }
    char *end = (char *)tokens + count * (sizeof *tokens - data->size);
    LHI_TRY(read_bytes(data, at * data->size, end, count * data->size, err));
    widen_tokens(tokens, count, data->size, end);
    return LH_OK;
}

lh_status lhi_data_compute_fingerprint(const lhi_data *data, uint64_t *out,
                                       lh_error *err)
{
    enum { BLOCK = 4096, MOST_BLOCKS = 4096 };
    const uint64_t n = data->n_tokens, all = n / BLOCK + (n % BLOCK != 0);
    const uint64_t blocks = all < MOST_BLOCKS ? all : MOST_BLOCKS;
    uint64_t sum = lhi_mix64(n);
    int32_t *tokens = calloc(BLOCK, sizeof *tokens);
    lh_status status = tokens ? LH_OK : lhi_fail_nomem(err);
    for (uint64_t i = 0; status == LH_OK && i < blocks; i++) {
        /* The first and the last block are always among them. */
        uint64_t block = blocks == all ? i : i * (all - 1) / (blocks - 1);
        uint64_t at = block * BLOCK, left = n - at;
        size_t count = left < BLOCK ? (size_t)left : BLOCK;
        status = read_tokens(data, at, count, tokens, err);
        for (size_t k = 0; status == LH_OK && k < count; k++)
            sum = lhi_mix64(sum ^ (uint32_t)tokens[k]);
    }
    free(tokens);
    *out = sum;
    return status;
}

lh_status lhi_data_read_window(const lhi_data *data, int validation,
                               uint64_t sample, int32_t *tokens, lh_error *err)
{
    uint64_t n = lhi_data_n_windows(data, validation);
    size_t count = (size_t)data->sequence + 1 + data->ahead;
    if (n == 0)
        return lhi_fail(err, LH_EINVAL, "the run has no validation data");
    uint64_t epoch = sample / n, window = sample % n;
    if (!validation)
        window =
            shuffle(window, n, lhi_mix64(data->seed + lhi_mix64(epoch + 1)));
    uint64_t at = (validation ? data->n_train : 0) + window * data->sequence;
    LHI_TRY(read_tokens(data, at, count, tokens, err));
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= data->vocab)
            return lhi_fail(err, LH_EINPUT,
                            "%s: token %" PRIu64 " is %" PRIu32
                            ", but the model's vocabulary has %" PRIu32,
                            data->path, at + i, (uint32_t)tokens[i],
                            data->vocab);
    return LH_OK;
}
