/* SPDX-License-Identifier: Apache-2.0 */
/* Reads this rank's part of a checkpoint. */
#define _POSIX_C_SOURCE 200809L /* stat */
#include "base/fail.h"
#include "base/input_limits.h"
#include "base/text.h"
#include "runtime/training/safetensors.h"
#include "runtime/training/train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Checks whether `path` exists and is a regular file. */
static bool is_regular_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Checks whether `path` exists and is a folder. */
static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

lh_status lhi_train_find(const char *path, uint64_t **steps, size_t *n,
                         lh_error *err)
{
    char file[LHI_PATH];
    LHI_TRY(lhi_folder_path(file, err, "%s/" LHI_STATE_FILE, path));
    if (is_regular_file(file)) {
        *steps = NULL;
        *n = 0;
        return LH_OK;
    }
    uint64_t *found;
    size_t n_found;
    LHI_TRY(lhi_list_steps(path, &found, &n_found, err));
    if (n_found == 0) {
        free(found);
        return lhi_fail(err, LH_EINPUT,
                        "%s: has no checkpoint (a folder step-...) to resume "
                        "from",
                        path);
    }
    *steps = found;
    *n = n_found;
    return LH_OK;
}

/* An open checkpoint. */
typedef struct reader {
    lhi_safetensors *weights, *moments;
    lhi_checkpoint_state state;
    float *piece; /* fits the largest tensor */
    bool differs; /* intact, but another model or other data */
    char weights_path[LHI_PATH], moments_path[LHI_PATH];
} reader;

/* Fails with LH_EINPUT: the checksum of `tensor` in file `path` differs from
 * the checkpoint's. */
static lh_status fail_checksum(const char *path, const char *tensor,
                               lh_error *err)
{
    return lhi_fail(err, LH_EINPUT,
                    "%s: damaged: tensor %s does not match its checksum; "
                    "resume from another checkpoint",
                    path, tensor);
}

/* Returns a tensor's index in the model's order, under which the checkpoint
 * stores it: 0, the embedding, for a tied head. */
static uint32_t get_checkpoint_index(const lhi_tensor *tensor)
{
    return tensor->is_head && tensor->tied_chunk != LH_NONE ? 0 : tensor->index;
}

/* Reads this rank's values of a tensor from the file. If it has a slice, reads
 * the full tensor into the buffer `whole` first; otherwise reads in place. */
static lh_status read_weights(const lhi_safetensors *file,
                              const lhi_tensor *tensor, float *whole,
                              lh_error *err)
{
    const lhi_st_tensor *found;
    float *to = lhi_is_sliced(tensor) ? whole : tensor->value;
    LHI_TRY(lhi_st_find(file, tensor->name, tensor->rows, tensor->columns,
                        &found, err));
    LHI_TRY(
        lhi_st_read(file, found, 0, lhi_count_full_values(tensor), to, err));
    if (lhi_is_sliced(tensor))
        lhi_slice_read(&tensor->slice, whole, 0, tensor->n, tensor->value);
    return LH_OK;
}

/* Reads a moment of a sliced tensor: the full tensor `found`, in pieces whose
 * checksums are in `sums`. Copies this rank's shard of its slice to `out`;
 * `name` is for messages. */
static lh_status read_sliced_moments(const reader *r,
                                     const lhi_owned_tensor *own,
                                     const lhi_st_tensor *found,
                                     const double *sums, float *out,
                                     const char *name, lh_error *err)
{
    size_t all = lhi_count_full_values(own->tensor);
    size_t share = all / r->state.replicas + (all % r->state.replicas != 0);
    for (uint32_t p = 0; p < r->state.replicas; p++) {
        size_t first = share * p < all ? share * p : all;
        size_t n = all - first < share ? all - first : share;
        float *to = r->piece + first;
        LHI_TRY(lhi_st_read(r->moments, found, first, n, to, err));
        if (lhi_checksum(to, n * sizeof *to) != sums[p])
            return fail_checksum(r->moments_path, name, err);
    }
    lhi_slice_read(&own->tensor->slice, r->piece, own->first, own->n, out);
    return LH_OK;
}

/* Reads this rank's shard of a tensor's moment, the stored tensor with name
 * suffix `suffix`, into `out`. Checks all pieces that overlap it against
 * `sums`; a moment has one piece per replica of the run that wrote it. */
static lh_status read_moments(const reader *r, const lhi_owned_tensor *own,
                              const char *suffix, const double *sums,
                              float *out, lh_error *err)
{
    const lhi_tensor *t = own->tensor;
    const lhi_st_tensor *found;
    char name[160];
    size_t share = t->n / r->state.replicas + (t->n % r->state.replicas != 0);
    snprintf(name, sizeof name, "%s%s", t->name, suffix);
    LHI_TRY(lhi_st_find(r->moments, name, t->rows, t->columns, &found, err));
    if (lhi_is_sliced(t))
        return read_sliced_moments(r, own, found, sums, out, name, err);
    for (uint32_t p = 0; p < r->state.replicas; p++) {
        size_t first = share * p < t->n ? share * p : t->n;
        size_t n = t->n - first < share ? t->n - first : share;
        size_t from = first > own->first ? first : own->first;
        size_t to =
            first + n < own->first + own->n ? first + n : own->first + own->n;
        if (from >= to)
            continue;
        LHI_TRY(lhi_st_read(r->moments, found, first, n, r->piece, err));
        if (lhi_checksum(r->piece, n * sizeof *r->piece) != sums[p])
            return fail_checksum(r->moments_path, name, err);
        memcpy(out + (from - own->first), r->piece + (from - first),
               (to - from) * sizeof *out);
    }
    return LH_OK;
}

/* Reads one tensor's weights and this rank's shard of its moments, and checks
 * their checksums. LH_EINPUT: damaged. */
static lh_status read_owned(const lhi_train *train, const reader *r,
                            const lhi_owned_tensor *own, lh_error *err)
{
    const lhi_tensor *t = own->tensor;
    const double *sums =
        r->state.sums + lhi_checksum_index(get_checkpoint_index(t),
                                           r->state.replicas,
                                           r->state.n_moments);
    LHI_TRY(read_weights(r->weights, t, r->piece, err));
    if (lhi_checksum(lhi_is_sliced(t) ? r->piece : t->value,
                     lhi_count_full_values(t) * sizeof *t->value) != sums[0])
        return fail_checksum(r->weights_path, t->name, err);
    for (uint32_t k = 0; k < r->state.n_moments; k++)
        LHI_TRY(read_moments(r, own, lhi_moment_suffixes_of(train)[k],
                             sums + 1 + k * r->state.replicas, own->moments[k],
                             err));
    return LH_OK;
}

/* Checks that the file at `path` has exactly the header and size that follow
 * from the model and the name suffixes, since checksums cover only values.
 * LH_EINPUT: it has not. */
static lh_status check_header(const char *path, const lh_model *model,
                              const char *const *suffixes, lh_error *err)
{
    lhi_safetensors_layout layout;
    struct stat info;
    LHI_TRY(lhi_safetensors_layout_make(model, suffixes, &layout, err));
    char *header = malloc(layout.len);
    FILE *file = fopen(path, "rb");
    lh_status status = LH_OK;
    if (!header)
        status = lhi_fail_nomem(err);
    else if (!file)
        status =
            lhi_fail(err, LH_EINPUT,
                     "%s: is missing; resume from another checkpoint", path);
    else if (fstat(fileno(file), &info) != 0 ||
             fread(header, 1, layout.len, file) != layout.len ||
             memcmp(header, layout.header, layout.len) != 0)
        status = lhi_fail(err, LH_EINPUT,
                          "%s: damaged: its header differs from the expected "
                          "one; resume from another checkpoint",
                          path);
    else if ((uint64_t)info.st_size != layout.bytes)
        status = lhi_fail(err, LH_EINPUT,
                          "%s: damaged: has %" PRId64 " bytes, not %" PRIu64
                          "; resume from another checkpoint",
                          path, (int64_t)info.st_size, layout.bytes);
    if (file)
        fclose(file);
    free(header);
    lhi_safetensors_layout_fini(&layout);
    return status;
}

/* Returns the value count in the largest full tensor (all slices together)
 * among this rank's chunks. */
static size_t find_largest_tensor(const lhi_train *train)
{
    size_t most = 0;
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++)
            if (lhi_count_full_values(train->chunks[i].owned[j].tensor) > most)
                most = lhi_count_full_values(train->chunks[i].owned[j].tensor);
    return most;
}

/* Opens a checkpoint's description, weights and moments files in `folder`, and
 * checks that they belong to this run's model and data. */
static lh_status open_files(lhi_train *train, reader *r, const char *folder,
                            const lhi_checkpoint_options *options,
                            lh_error *err)
{
    char path[LHI_PATH], *text;
    size_t len;
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_STATE_FILE, folder));
    LHI_TRY(
        lhi_folder_path(r->weights_path, err, "%s/" LHI_WEIGHTS_FILE, folder));
    LHI_TRY(
        lhi_folder_path(r->moments_path, err, "%s/" LHI_MOMENTS_FILE, folder));
    LHI_TRY(lhi_input_read(path, LHI_INPUT_STATE, &text, &len, err));
    lh_status status = lhi_checkpoint_state_parse(
        text, len, path, train->o.model, lhi_count_moments(train), options,
        &r->state, &r->differs, err);
    lh_text_free(text);
    if (status != LH_OK)
        return status;
    LHI_TRY(lhi_st_open(r->weights_path, &r->weights, err));
    LHI_TRY(lhi_st_open(r->moments_path, &r->moments, err));
    LHI_TRY(check_header(r->weights_path, train->o.model, lhi_weight_suffixes,
                         err));
    LHI_TRY(check_header(r->moments_path, train->o.model,
                         lhi_moment_suffixes_of(train), err));
    r->piece = malloc((find_largest_tensor(train) + 1) * sizeof *r->piece);
    return r->piece ? LH_OK : lhi_fail_nomem(err);
}

/* Loads all tensors of this rank's chunks, and the step number, from the
 * checkpoint in `folder`, whose files `r` has open. */
static lh_status load_folder(lhi_train *train, reader *r, const char *folder,
                             const lhi_checkpoint_options *options,
                             lh_error *err)
{
    LHI_TRY(open_files(train, r, folder, options, err));
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++)
            LHI_TRY(read_owned(train, r, &train->chunks[i].owned[j], err));
    train->step = r->state.step;
    return LH_OK;
}

/* Checks whether `folder` lacks one of the files that every checkpoint has:
 * description, weights and moments. */
static bool is_missing_files(const char *folder)
{
    static const char *const files[] = {LHI_STATE_FILE, LHI_WEIGHTS_FILE,
                                        LHI_MOMENTS_FILE};
    char path[LHI_PATH];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (lhi_folder_path(path, NULL, "%s/%s", folder, files[i]) == LH_OK &&
            access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
            return true;
    return false;
}

/* Prints a remark for each auxiliary file (config.json, tokenizer) that differs
 * from its checksum in `state`. This is no error, since training reads none. */
static void check_auxiliary_files(const char *folder,
                                  const lhi_checkpoint_state *state,
                                  const lhi_remarks *remarks)
{
    char text[600];
    double sum;
    for (int i = 0; i < LHI_N_AUXILIARY_FILES && remarks && remarks->print;
         i++) {
        if (state->auxiliary[i] < 0 ||
            (lhi_auxiliary_checksum(folder, i, &sum, NULL) == LH_OK &&
             sum == state->auxiliary[i]))
            continue;
        snprintf(text, sizeof text,
                 "%.400s/%s: has changed since it was written; training does "
                 "not read it, other programs do",
                 folder, lhi_auxiliary_files[i]);
        remarks->print(remarks->context, text);
    }
}

lh_status lhi_train_load_one(lhi_train *train, const char *path,
                             const uint64_t *step,
                             const lhi_checkpoint_options *options,
                             const lhi_remarks *remarks, lhi_load_result *out,
                             lh_error *err)
{
    reader r = {.piece = NULL};
    char folder[LHI_PATH];
    *out = (lhi_load_result){.is_damaged = false};
    if (step)
        LHI_TRY(
            lhi_folder_path(folder, err, "%s/" LHI_STEP_FOLDER, path, *step));
    else
        LHI_TRY(lhi_folder_path(folder, err, "%s", path));
    lh_status status = load_folder(train, &r, folder, options, err);
    if (status == LH_OK && options->recipe)
        lhi_train_apply_recipe(train, options->recipe);
    if (status == LH_OK)
        check_auxiliary_files(folder, &r.state, remarks);
    out->check = r.state.check;
    out->is_damaged =
        !r.differs &&
        (status == LH_EINPUT || (status == LH_EIO && is_missing_files(folder)));
    lhi_st_close(r.weights);
    lhi_st_close(r.moments);
    free(r.state.sums);
    free(r.piece);
    return status;
}

lh_status lhi_train_load(lhi_train *train, const char *path,
                         const lhi_checkpoint_options *options, lh_error *err)
{
    uint64_t *steps;
    size_t n;
    lhi_load_result ignored;
    LHI_TRY(lhi_train_find(path, &steps, &n, err));
    lh_status status =
        lhi_train_load_one(train, path, n > 0 ? &steps[n - 1] : NULL, options,
                           NULL, &ignored, err);
    free(steps);
    return status;
}

/* Opens the weights at `path` as one file: a safetensors file, the index of
 * several, or a folder with a file or an index. */
static lh_status open_weights(const char *path, lhi_safetensors **out,
                              lh_error *err)
{
    static const char ends[] = ".index.json";
    char file[LHI_PATH];
    struct stat info;
    LHI_TRY(lhi_folder_path(
        file, err, is_folder(path) ? "%s/" LHI_WEIGHTS_FILE : "%s", path));
    if (is_folder(path) && stat(file, &info) != 0) {
        char index[LHI_PATH];
        LHI_TRY(lhi_folder_path(index, err, "%s%s", file, ends));
        if (stat(index, &info) == 0)
            return lhi_st_open_index(index, out, err);
    }
    const size_t n = strlen(file), m = sizeof ends - 1;
    return n > m && strcmp(file + n - m, ends) == 0
               ? lhi_st_open_index(file, out, err)
               : lhi_st_open(file, out, err);
}

lh_status lhi_train_load_weights(lhi_train *train, const char *path,
                                 lh_error *err)
{
    lhi_safetensors *weights;
    float *whole = malloc((find_largest_tensor(train) + 1) * sizeof *whole);
    if (!whole)
        return lhi_fail_nomem(err);
    lh_status status = open_weights(path, &weights, err);
    if (status != LH_OK) {
        free(whole);
        return status;
    }
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; status == LH_OK && j < train->chunks[i].n_tensors;
             j++)
            status = read_weights(weights, train->chunks[i].owned[j].tensor,
                                  whole, err);
    lhi_st_close(weights);
    free(whole);
    return status;
}

lh_status lhi_train_hash_weights(const lh_model *model, const char *path,
                                 double *out, lh_error *err)
{
    enum { SAMPLE = 256 }; /* values of each tensor; few are equal by chance */
    float values[SAMPLE];
    lhi_safetensors *weights;
    LHI_TRY(open_weights(path, &weights, err));
    lh_status status = LH_OK;
    *out = 0;
    for (uint32_t i = 0;
         status == LH_OK && i < lhi_checkpoint_count_tensors(model); i++) {
        lhi_checkpoint_tensor tensor;
        const lhi_st_tensor *found;
        if (!lhi_checkpoint_get_tensor(model, i, &tensor))
            continue;
        status = lhi_st_find(weights, tensor.name, tensor.rows, tensor.columns,
                             &found, err);
        if (status != LH_OK)
            break;
        const size_t n = found->n < SAMPLE ? (size_t)found->n : SAMPLE;
        status = lhi_st_read(weights, found, 0, n, values, err);
        const double sums[] = {*out, lhi_checksum(values, n * sizeof *values)};
        *out = lhi_checksum(sums, sizeof sums);
    }
    lhi_st_close(weights);
    return status;
}
