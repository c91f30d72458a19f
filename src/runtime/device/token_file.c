/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC */
#include "runtime/device/token_file.h"

#include "base/fail.h"
#include "base/input_limits.h"
#include "base/text.h"
#include "runtime/device/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An open file. */
struct lhi_token_file {
    const char *path;
    int fd;            /* -1: all tokens are in `encoded` */
    uint32_t *encoded; /* free with lhi_tokens_free() */
    uint32_t size;     /* bytes per token in the file */
    uint64_t n_tokens;
    /* Size in bytes and modification time when it was opened. */
    off_t bytes;
    struct timespec changed;
};

/* Encodes a text file with the options' tokenizer into file->tokens. */
static lh_status encode(lhi_token_file *file, const lhi_data_options *o,
                        lh_error *err)
{
    lhi_tokenizer *bpe = NULL;
    char *text = NULL;
    size_t len = 0, n = 0;
    struct stat info;
    if (stat(file->path, &info) == 0 && !S_ISREG(info.st_mode))
        return lhi_fail(err, LH_EINPUT, "%s: is not a file", file->path);
    LHI_TRY(lhi_tokenizer_read(o->tokenizer, &bpe, err));
    lh_status status =
        lhi_tokenizer_size(bpe) <= o->vocab
            ? LH_OK
            : lhi_fail(err, LH_EINPUT,
                       "%s: has %u tokens, but the model's vocabulary only %u",
                       o->tokenizer, lhi_tokenizer_size(bpe), o->vocab);
    if (status == LH_OK)
        status = lhi_file_read(file->path, lhi_input_max_bytes(LHI_INPUT_TEXT),
                               &text, &len, err);
    if (status == LH_OK)
        status = lhi_tokenizer_encode(bpe, text, len, &file->encoded, &n, err);
    if (status == LH_EINPUT && text)
        lhi_fail_add_context(err, "%s", file->path);
    file->n_tokens = n;
    lh_text_free(text);
    lhi_tokenizer_free(bpe);
    return status;
}

/* Opens a regular file for reading: *fd its descriptor, *info its size and
 * times. LH_EINPUT: it is no regular file. */
static lh_status open_regular(const char *path, int *fd, struct stat *info,
                              lh_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, info) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info->st_mode))
        return lhi_fail(err, LH_EINPUT, "%s: is not a file", path);
    return LH_OK;
}

/* Checks that no program has written to the file since it was opened. LH_EIO:
 * one has. */
static lh_status check_unchanged(const lhi_token_file *file, lh_error *err)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", file->path, strerror(errno));
    if (info.st_size == file->bytes &&
        info.st_mtim.tv_sec == file->changed.tv_sec &&
        info.st_mtim.tv_nsec == file->changed.tv_nsec)
        return LH_OK;
    return lhi_fail(err, LH_EIO,
                    "%s: was changed while in use (its size or modification "
                    "time); restore it and continue from the last checkpoint, "
                    "or begin a new run",
                    file->path);
}

/* Opens a file of tokens of file->size bytes and counts them. */
static lh_status open_tokens(lhi_token_file *file, lh_error *err)
{
    struct stat info;
    LHI_TRY(open_regular(file->path, &file->fd, &info, err));
    const uint64_t bytes = (uint64_t)info.st_size;
    file->bytes = info.st_size;
    file->changed = info.st_mtim;
    if (bytes % file->size)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %" PRIu64
                        " bytes are not a multiple of %u-byte tokens",
                        file->path, bytes, file->size);
    file->n_tokens = bytes / file->size;
    return LH_OK;
}

/* Reads exactly `size` bytes of the file `fd` at byte offset `at` into `to`. */
static lh_status read_bytes(int fd, const char *path, uint64_t at, void *to,
                            size_t size, lh_error *err)
{
    char *next = to;
    while (size > 0) {
        ssize_t got = pread(fd, next, size, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lhi_fail(err, LH_EIO, "%s: %s", path,
                            got < 0 ? strerror(errno)
                                    : "was truncated while in use; restore it "
                                      "and continue from the last checkpoint, "
                                      "or begin a new run");
        next += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return LH_OK;
}

/* --- Megatron-LM's indexed datasets --------------------------------------- */

/* PREFIX.idx: the magic bytes, a version, a number format, the counts of
 * sequences and of documents; then per sequence its length (4 bytes) and its
 * offset in PREFIX.bin (8 bytes), and per document its first sequence (8
 * bytes). Little-endian. */
enum { INDEX_HEADER = 34, INDEX_BLOCK = 4096 };
static const char index_magic[] = "MMIDIDX\0"; /* and the string's own NUL */

/* Returns a little-endian number of `size` bytes. */
static uint64_t get_number(const unsigned char *from, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* Returns a token's bytes in Megatron-LM's number format; 0: not a format of
 * tokens. */
static uint32_t find_token_size(unsigned format)
{
    return format == 1 ? 1 : format == 8 ? 2 : format == 4 ? 4 : 0;
}

/* Checks that the n sequences in an indexed dataset's index `fd` follow each
 * other in the token file and cover it, so that it can be read as one sequence.
 * */
static lh_status check_sequences(const lhi_token_file *file, int fd,
                                 const char *path, uint64_t n, lh_error *err)
{
    unsigned char lengths[4 * INDEX_BLOCK], offsets[8 * INDEX_BLOCK];
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i += INDEX_BLOCK) {
        const size_t count =
            n - i < INDEX_BLOCK ? (size_t)(n - i) : INDEX_BLOCK;
        LHI_TRY(read_bytes(fd, path, INDEX_HEADER + 4 * i, lengths, 4 * count,
                           err));
        LHI_TRY(read_bytes(fd, path, INDEX_HEADER + 4 * n + 8 * i, offsets,
                           8 * count, err));
        for (size_t k = 0; k < count; k++) {
            if (get_number(offsets + 8 * k, 8) != at)
                return lhi_fail(err, LH_EINPUT,
                                "%s: sequence %" PRIu64
                                " does not follow the one before it in %s; "
                                "write the dataset again with Megatron-LM's "
                                "IndexedDatasetBuilder",
                                path, i + k, file->path);
            at += get_number(lengths + 4 * k, 4) * file->size;
        }
    }
    if (at != file->n_tokens * file->size)
        return lhi_fail(err, LH_EINPUT,
                        "%s: its sequences have %" PRIu64 " bytes, but %s has "
                        "%" PRIu64 "; the files do not belong together",
                        path, at, file->path, file->n_tokens * file->size);
    return LH_OK;
}

/* Reads the open index `fd` of `bytes` bytes, and opens its token file. */
static lh_status read_index(lhi_token_file *file, int fd, const char *path,
                            uint64_t bytes, lh_error *err)
{
    unsigned char head[INDEX_HEADER];
    if (bytes < INDEX_HEADER)
        return lhi_fail(err, LH_EINPUT, "%s: too short for an index", path);
    LHI_TRY(read_bytes(fd, path, 0, head, sizeof head, err));
    if (memcmp(head, index_magic, sizeof index_magic) != 0 ||
        get_number(head + 9, 8) != 1)
        return lhi_fail(err, LH_EINPUT,
                        "%s: not an index of Megatron-LM's IndexedDataset "
                        "(version 1)",
                        path);
    file->size = find_token_size(head[17]);
    if (!file->size)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s: number format %u is not supported; write the "
                        "dataset with uint8 (1), int32 (4) or uint16 (8)",
                        path, head[17]);
    const uint64_t n = get_number(head + 18, 8), m = get_number(head + 26, 8);
    if (n > bytes / 12 || m > bytes / 8 ||
        bytes != INDEX_HEADER + 12 * n + 8 * m)
        return lhi_fail(err, LH_EINPUT,
                        "%s: %" PRIu64 " bytes are not those of %" PRIu64
                        " sequences in %" PRIu64 " documents",
                        path, bytes, n, m);
    LHI_TRY(open_tokens(file, err));
    return check_sequences(file, fd, path, n, err);
}

/* Opens an indexed dataset: `path` is its prefix, or one of its files. */
static lh_status open_indexed(lhi_arena *mem, lhi_token_file *file,
                              const char *path, lh_error *err)
{
    size_t n = strlen(path);
    const bool has_end = n > 4 && (strcmp(path + n - 4, ".bin") == 0 ||
                                   strcmp(path + n - 4, ".idx") == 0);
    n = has_end ? n - 4 : n;
    char *names[2];
    for (int i = 0; i < 2; i++) {
        names[i] = LHI_NEW(mem, char, n + 5);
        if (!names[i])
            return lhi_fail_nomem(err);
        memcpy(names[i], path, n);
        memcpy(names[i] + n, i ? ".idx" : ".bin", 5);
    }
    file->path = names[0];
    int fd;
    struct stat info;
    lh_status status = open_regular(names[1], &fd, &info, err);
    if (status == LH_OK)
        status = read_index(file, fd, names[1], (uint64_t)info.st_size, err);
    if (fd >= 0)
        close(fd);
    return status;
}

/* --- all kinds ------------------------------------------------------------ */

lh_status lhi_token_file_open(lhi_arena *mem, const char *path,
                              const lhi_data_options *options,
                              lhi_token_file **out, lh_error *err)
{
    static const uint32_t sizes[] = {
        [LHI_DATA_BYTES] = 1, [LHI_DATA_U16] = 2, [LHI_DATA_U32] = 4};
    lhi_token_file *file = LHI_NEW(mem, lhi_token_file, 1);
    if (!file || !(file->path = lhi_arena_strdup(mem, path)))
        return lhi_fail_nomem(err);
    file->fd = -1;
    lh_status status;
    if (options->kind == LHI_DATA_INDEXED) {
        status = open_indexed(mem, file, path, err);
    } else if (options->tokenizer && options->kind == LHI_DATA_BYTES) {
        status = encode(file, options, err);
    } else {
        file->size = sizes[options->kind];
        status = open_tokens(file, err);
    }
    if (status != LH_OK) {
        lhi_token_file_close(file);
        return status;
    }
    *out = file;
    return LH_OK;
}

void lhi_token_file_close(lhi_token_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    lhi_tokens_free(file->encoded);
}

uint64_t lhi_token_file_count(const lhi_token_file *file)
{
    return file->n_tokens;
}

const char *lhi_token_file_path(const lhi_token_file *file)
{
    return file->path;
}

/* Widens `n` tokens of `size` bytes each to int32 in the array `tokens`; the
 * unconverted bytes `from` are at the array's end. */
static void widen_tokens(int32_t *tokens, size_t n, uint32_t size,
                         const char *from)
{
    const unsigned char *bytes = (const unsigned char *)from;
    for (size_t i = 0; i < n; i++, bytes += size) {
        uint32_t token = (uint32_t)get_number(bytes, size);
        /* large ones become negative */
        memcpy(&tokens[i], &token, sizeof token);
    }
}

lh_status lhi_token_file_read(const lhi_token_file *file, uint64_t at,
                              size_t count, uint32_t vocab, int32_t *tokens,
                              lh_error *err)
{
    if (file->encoded) {
        for (size_t i = 0; i < count; i++)
            tokens[i] = (int32_t)file->encoded[at + i];
    } else {
        char *end = (char *)tokens + count * (sizeof *tokens - file->size);
        LHI_TRY(read_bytes(file->fd, file->path, at * file->size, end,
                           count * file->size, err));
        LHI_TRY(check_unchanged(file, err));
        widen_tokens(tokens, count, file->size, end);
    }
    for (size_t i = 0; vocab > 0 && i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)
            return lhi_fail(err, LH_EINPUT,
                            "%s: token %" PRIu64 " is %" PRIu32
                            ", but the model's vocabulary has %" PRIu32,
                            file->path, at + i, (uint32_t)tokens[i], vocab);
    return LH_OK;
}
