/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC */
#include "runtime/training/safetensors.h"

#include "base/arena.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/json_input.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_HEADER = 100000000, /* limit in the format */
    MAX_TENSORS = 1 << 20,
    LENGTH = 8,
    CHUNK = 4096,
};

/* An open safetensors file. */
struct lhi_safetensors {
    lhi_arena *mem;
    const char *name;
    int fd;
    uint32_t n;
    lhi_st_tensor *tensors;   /* sorted by name */
    lhi_safetensors **shards; /* files of an index; NULL: this file */
    uint32_t n_shards;
};

/* Fails with LH_EINPUT: the header entry of tensor `tensor` in safetensors file
 * `f` is invalid; `what` names the defect. */
static lh_status fail_tensor(const lhi_safetensors *f, const char *tensor,
                             const char *what, lh_error *err)
{
    return lhi_fail(err, LH_EINPUT, "%s: damaged: tensor %.200s %s", f->name,
                    tensor, what);
}

static const struct {
    const char *name;
    uint64_t bytes;
    int dtype; /* -1: unsupported; only its size is checked */
} dtypes[] = {{"F32", 4, LHI_F32}, {"F16", 2, LHI_F16}, {"BF16", 2, LHI_BF16},
              {"F64", 8, -1},      {"I64", 8, -1},      {"I32", 4, -1},
              {"I16", 2, -1},      {"I8", 1, -1},       {"U8", 1, -1},
              {"BOOL", 1, -1}};

/* Reads tensor `key`'s dimensions from the JSON list `shape` into `t`, and
 * counts its values. LH_EINPUT: not one or two dimensions, or too large. */
static lh_status read_shape(const lhi_safetensors *f, const char *key,
                            const json_t *shape, lhi_st_tensor *t,
                            lh_error *err)
{
    t->n = 1;
    if (!json_is_array(shape) ||
        json_array_size(shape) > sizeof t->dims / sizeof t->dims[0])
        return fail_tensor(f, key, "has no shape of at most four dimensions",
                           err);
    t->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        json_int_t size = json_integer_value(json_array_get(shape, i));
        if (!json_is_integer(json_array_get(shape, i)) || size < 0 ||
            (size > 0 && t->n > (UINT64_C(1) << 52) / (uint64_t)size))
            return fail_tensor(f, key, "has an invalid shape", err);
        t->dims[i] = (uint64_t)size;
        t->n *= t->dims[i];
    }
    return LH_OK;
}

/* Parses tensor `key`'s header entry `node` into `t`: type, shape and byte
 * range. Ranges count from file offset values_at. *known: its type is
 * supported. LH_EINPUT: the entry is inconsistent or beyond file_bytes. */
static lh_status read_tensor(const lhi_safetensors *f, const char *key,
                             const json_t *node, uint64_t values_at,
                             uint64_t file_bytes, lhi_st_tensor *t, bool *known,
                             lh_error *err)
{
    const json_t *ends = json_object_get(node, "data_offsets");
    const char *type = json_string_value(json_object_get(node, "dtype"));
    json_int_t from = json_integer_value(json_array_get(ends, 0));
    json_int_t to = json_integer_value(json_array_get(ends, 1));
    size_t i = 0, n_types = sizeof dtypes / sizeof dtypes[0];
    LHI_TRY(read_shape(f, key, json_object_get(node, "shape"), t, err));
    while (type && i < n_types && strcmp(type, dtypes[i].name) != 0)
        i++;
    if (!type || i == n_types)
        return fail_tensor(f, key, "has an unknown type", err);
    if (json_array_size(ends) != 2 || from < 0 || to < from ||
        (uint64_t)to > file_bytes - values_at ||
        (uint64_t)(to - from) != t->n * dtypes[i].bytes)
        return fail_tensor(f, key, "has offsets that do not match its shape",
                           err);
    t->at = values_at + (uint64_t)from;
    *known = dtypes[i].dtype >= 0;
    t->dtype = *known ? (lhi_dtype)dtypes[i].dtype : LHI_F32;
    return LH_OK;
}

/* Compares tensor names for qsort() and bsearch(). */
static int compare_names(const void *a, const void *b)
{
    const lhi_st_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Reads all tensors from a safetensors file's parsed header `root` (`len` bytes
 * of text) into `f`, sorted by name. */
static lh_status read_header(lhi_safetensors *f, const json_t *root, size_t len,
                             uint64_t file_bytes, lh_error *err)
{
    const char *key;
    json_t *node;
    size_t n = json_object_size(root);
    if (!json_is_object(root) || n > MAX_TENSORS)
        return lhi_fail(err, LH_EINPUT, "%s: damaged: its header is not a map",
                        f->name);
    f->tensors = LHI_NEW(f->mem, lhi_st_tensor, n);
    if (!f->tensors)
        return lhi_fail_nomem(err);
    json_object_foreach((json_t *)(uintptr_t)root, key, node)
    {
        lhi_st_tensor *t = &f->tensors[f->n];
        bool known;
        if (strcmp(key, "__metadata__") == 0)
            continue;
        LHI_TRY(read_tensor(f, key, node, LENGTH + len, file_bytes, t, &known,
                            err));
        if (!known)
            continue;
        if (!(t->name = lhi_arena_strdup(f->mem, key)))
            return lhi_fail_nomem(err);
        f->n++;
    }
    qsort(f->tensors, f->n, sizeof *f->tensors, compare_names);
    return LH_OK;
}

lh_status lhi_st_parse(const char *header, size_t len, uint64_t file_bytes,
                       const char *name, lhi_safetensors **out, lh_error *err)
{
    json_error_t why;
    if (len > MAX_HEADER || file_bytes < LENGTH || len > file_bytes - LENGTH)
        return lhi_fail(err, LH_EINPUT,
                        "%s: damaged: invalid header size of %zu bytes", name,
                        len);
    json_t *root = lhi_json_load(header, len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return lhi_fail(err, LH_EINPUT, "%s: damaged: its header: %s", name,
                        why.text);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_safetensors *f = mem ? LHI_NEW(mem, lhi_safetensors, 1) : NULL;
    lh_status status = LH_OK;
    if (!f || !(f->name = lhi_arena_strdup(mem, name))) {
        status = lhi_fail_nomem(err);
    } else {
        f->mem = mem;
        f->fd = -1;
        status = read_header(f, root, len, file_bytes, err);
    }
    json_decref(root);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = f;
    return LH_OK;
}

/* Reads exactly `size` bytes at byte offset `at` of the file `fd` into `to`;
 * `name` is for messages. LH_EINPUT: the file is shorter, or its disk blocks
 * are unreadable. */
static lh_status read_at(int fd, const char *name, void *to, size_t size,
                         uint64_t at, lh_error *err)
{
    char *out = to;
    while (size > 0) {
        ssize_t got = pread(fd, out, size, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) /* EIO: unreadable disk blocks */
            return lhi_fail(err, errno == EIO ? LH_EINPUT : LH_EIO, "%s: %s",
                            name, strerror(errno));
        if (got == 0)
            return lhi_fail(err, LH_EINPUT, "%s: damaged: it is truncated",
                            name);
        out += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return LH_OK;
}

/* Reads and parses the header of the safetensors file with descriptor `fd` into
 * *out, which does not take over the descriptor. */
static lh_status open_at(int fd, const char *path, lhi_safetensors **out,
                         lh_error *err)
{
    struct stat info;
    unsigned char bytes[LENGTH];
    uint64_t len = 0;
    if (fstat(fd, &info) != 0)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lhi_fail(err, LH_EINPUT, "%s: is not a file", path);
    LHI_TRY(read_at(fd, path, bytes, sizeof bytes, 0, err));
    len = lhi_load_little_endian(bytes, LENGTH);
    if (len > MAX_HEADER || len > (uint64_t)info.st_size)
        return lhi_fail(err, LH_EINPUT,
                        "%s: damaged, or not a safetensors file: its header "
                        "would have %" PRIu64 " bytes",
                        path, len);
    char *header = malloc(len + 1);
    if (!header)
        return lhi_fail_nomem(err);
    lh_status status = read_at(fd, path, header, len, LENGTH, err);
    if (status == LH_OK)
        status =
            lhi_st_parse(header, len, (uint64_t)info.st_size, path, out, err);
    free(header);
    return status;
}

lh_status lhi_st_open(const char *path, lhi_safetensors **out, lh_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lhi_fail(err, LH_EIO, "%s: %s", path, strerror(errno));
    lh_status status = open_at(fd, path, out, err);
    if (status != LH_OK) {
        close(fd);
        return status;
    }
    (*out)->fd = fd;
    return LH_OK;
}

/* --- files of an index ---------------------------------------------------- */

/* Sets *shard to the number of the index's file `name` (without folder), which
 * is opened if it is not yet. */
static lh_status open_shard(lhi_safetensors *f, const char *name,
                            uint32_t *shard, lh_error *err)
{
    const char *slash = strrchr(f->name, '/');
    const int folder = slash ? (int)(slash - f->name) + 1 : 0;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%.*s%s", folder, f->name, name);
    if (strchr(name, '/') || n < 0 || (size_t)n >= sizeof path)
        return lhi_fail(err, LH_EINPUT,
                        "%s: weight_map: '%.100s' is not the name of a file in "
                        "the same folder",
                        f->name, name);
    for (*shard = 0; *shard < f->n_shards; ++*shard)
        if (strcmp(f->shards[*shard]->name, path) == 0)
            return LH_OK;
    LHI_TRY(lhi_st_open(path, &f->shards[f->n_shards], err));
    f->n_shards++;
    return LH_OK;
}

/* Adds tensor `tensor` from the file that the index assigns to it to the
 * index's list. Omits a tensor of an unsupported type. LH_EINPUT: the file
 * lacks it. */
static lh_status add_tensor(lhi_safetensors *f, const char *tensor,
                            const json_t *file, lh_error *err)
{
    const lhi_st_tensor key = {.name = tensor};
    uint32_t shard;
    if (!json_is_string(file))
        return lhi_fail(err, LH_EINPUT,
                        "%s: weight_map: %.200s: is not the name of a file",
                        f->name, tensor);
    LHI_TRY(open_shard(f, json_string_value(file), &shard, err));
    const lhi_safetensors *in = f->shards[shard];
    const lhi_st_tensor *t =
        bsearch(&key, in->tensors, in->n, sizeof *in->tensors, compare_names);
    if (!t)
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no tensor %.200s in float32, float16 or "
                        "bfloat16, which %s assigns to it",
                        in->name, tensor, f->name);
    f->tensors[f->n] = *t;
    f->tensors[f->n++].shard = shard;
    return LH_OK;
}

/* Reads the parsed index `root` of a weights folder: opens the files that it
 * lists, and lists their tensors. */
static lh_status read_index(lhi_safetensors *f, const json_t *root,
                            lh_error *err)
{
    const json_t *map = json_object_get(root, "weight_map");
    const char *key;
    json_t *file;
    const size_t n = json_object_size(map);
    if (!json_is_object(map) || n > MAX_TENSORS)
        return lhi_fail(err, LH_EINPUT,
                        "%s: weight_map: expected a map from tensors to files",
                        f->name);
    f->tensors = LHI_NEW(f->mem, lhi_st_tensor, n);
    f->shards = LHI_NEW(f->mem, lhi_safetensors *, n);
    if (!f->tensors || !f->shards)
        return lhi_fail_nomem(err);
    json_object_foreach((json_t *)(uintptr_t)map, key, file)
        LHI_TRY(add_tensor(f, key, file, err));
    qsort(f->tensors, f->n, sizeof *f->tensors, compare_names);
    return LH_OK;
}

lh_status lhi_st_open_index(const char *path, lhi_safetensors **out,
                            lh_error *err)
{
    char *text;
    size_t len;
    json_error_t why;
    LHI_TRY(lhi_file_read(path, MAX_HEADER, &text, &len, err));
    json_t *root = lhi_json_load(text, len, JSON_REJECT_DUPLICATES, &why);
    lh_text_free(text);
    if (!root)
        return lhi_fail(err, LH_EINPUT, "%s:%d: not valid JSON: %s", path,
                        why.line, why.text);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_safetensors *f = mem ? LHI_NEW(mem, lhi_safetensors, 1) : NULL;
    lh_status status;
    if (!f || !(f->name = lhi_arena_strdup(mem, path))) {
        lhi_arena_free(mem);
        f = NULL;
        status = lhi_fail_nomem(err);
    } else {
        f->mem = mem;
        f->fd = -1;
        status = read_index(f, root, err);
    }
    json_decref(root);
    if (status == LH_OK)
        *out = f;
    else
        lhi_st_close(f);
    return status;
}

void lhi_st_close(lhi_safetensors *file)
{
    if (!file)
        return;
    for (uint32_t i = 0; i < file->n_shards; i++)
        lhi_st_close(file->shards[i]);
    if (file->fd >= 0)
        close(file->fd);
    lhi_arena_free(file->mem);
}

lh_status lhi_st_find(const lhi_safetensors *file, const char *name,
                      uint32_t rows, uint32_t columns,
                      const lhi_st_tensor **out, lh_error *err)
{
    lhi_st_tensor key = {.name = name};
    const lhi_st_tensor *t = bsearch(&key, file->tensors, file->n,
                                     sizeof *file->tensors, compare_names);
    if (!t)
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no tensor %s in float32, float16 or bfloat16",
                        file->name, name);
    if (t->n_dims != (columns ? 2 : 1) || t->dims[0] != rows ||
        (columns && t->dims[1] != columns))
        return lhi_fail(err, LH_EINPUT,
                        "%s: tensor %s has another shape than the model's "
                        "%u x %u",
                        file->name, name, rows, columns ? columns : 1);
    *out = t;
    return LH_OK;
}

/* Returns the float with the given IEEE 754 bits. */
static float convert_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Converts an IEEE 754 half-precision number to float. */
static float convert_half(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 31)
        return convert_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0)
        return convert_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

lh_status lhi_st_read(const lhi_safetensors *file, const lhi_st_tensor *tensor,
                      uint64_t first, size_t n, float *out, lh_error *err)
{
    unsigned char bytes[CHUNK * 2];
    if (file->shards)
        file = file->shards[tensor->shard];
    if (tensor->dtype == LHI_F32)
        return read_at(file->fd, file->name, out, n * sizeof *out,
                       tensor->at + first * sizeof *out, err);
    for (size_t done = 0; done < n; done += CHUNK) {
        size_t count = n - done < CHUNK ? n - done : CHUNK;
        LHI_TRY(read_at(file->fd, file->name, bytes, count * 2,
                        tensor->at + (first + done) * 2, err));
        for (size_t i = 0; i < count; i++) {
            uint32_t v = bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8;
            out[done + i] = tensor->dtype == LHI_BF16 ? convert_bits(v << 16)
                                                      : convert_half(v);
        }
    }
    return LH_OK;
}
