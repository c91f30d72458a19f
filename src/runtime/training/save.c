/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a checkpoint. All ranks write their ranges of the same files in a
 * temporary folder that readers ignore. Once everything is on disk, the folder
 * gets its final name. */
#define _GNU_SOURCE /* posix_fallocate, pwrite */
#include "base/fail.h"
#include "base/input_limits.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <longhaul/experimental/status.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Formats the paths of the checkpoint's temporary and final folder (LHI_PATH
 * bytes each); `final` may be NULL. */
static lh_status format_folder_names(const lhi_train *train,
                                     const lhi_checkpoint_options *options,
                                     char *temporary, char *final,
                                     lh_error *err)
{
    LHI_TRY(lhi_folder_path(temporary, err, "%s/.new-" LHI_STEP_FOLDER,
                            options->folder, train->step));
    return final ? lhi_folder_path(final, err, "%s/" LHI_STEP_FOLDER,
                                   options->folder, train->step)
                 : LH_OK;
}

/* Returns a remedy for the errno value `why` of a failed write; "": none. */
static const char *find_remedy(int why)
{
    switch (why) {
    case ENOSPC:
        return ": free space on its disk, then resume from the newest one";
    case EDQUOT:
        return ": free space in the quota, then resume from the newest one";
    case EFBIG:
        return ": raise the limit on file sizes (ulimit -f), then resume from "
               "the newest one";
    default:
        return "";
    }
}

/* Fails with LH_EIO: the checkpoint file `path` cannot be written; `why`: errno
 * value. */
static lh_status fail_write(const char *path, int why, lh_error *err)
{
    return lhi_fail(
        err, LH_EIO,
        "%s: %s; no checkpoint was written, older ones are unchanged%s", path,
        strerror(why), find_remedy(why));
}

/* Writes exactly `size` bytes at byte offset `at` of the file `fd`; `path` is
 * for messages. */
static lh_status write_at(int fd, const char *path, const void *data,
                          size_t size, uint64_t at, lh_error *err)
{
    const char *from = data;
    while (size > 0) {
        ssize_t put = pwrite(fd, from, size, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return fail_write(path, put < 0 ? errno : ENOSPC, err);
        from += put;
        at += (uint64_t)put;
        size -= (size_t)put;
    }
    return LH_OK;
}

/* Syncs the file to disk if `status` is LH_OK, and closes it in any case. */
static lh_status sync_and_close(int fd, const char *path, lh_status status,
                                lh_error *err)
{
    if (status == LH_OK && fsync(fd) != 0)
        status = fail_write(path, errno, err);
    if (close(fd) != 0 && status == LH_OK)
        status = fail_write(path, errno, err);
    return status;
}

/* Creates the tensor file `path`: writes its header and reserves disk space for
 * the entire file, so that a full disk is detected at once. */
static lh_status make_file(const char *path, const lh_model *model,
                           const char *const *suffixes, lh_error *err)
{
    lhi_safetensors_layout layout;
    LHI_TRY(lhi_safetensors_layout_make(model, suffixes, &layout, err));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    lh_status status = fd < 0 ? fail_write(path, errno, err) : LH_OK;
    if (fd >= 0) {
        int why = posix_fallocate(fd, 0, (off_t)layout.bytes);
        if (why != 0)
            status = fail_write(path, why, err);
        else
            status = write_at(fd, path, layout.header, layout.len, 0, err);
        status = sync_and_close(fd, path, status, err);
    }
    lhi_safetensors_layout_fini(&layout);
    return status;
}

/* Copies the tokenizer's file `from` into the checkpoint folder `folder`. */
static lh_status copy_tokenizer(const char *from, const char *folder,
                                lh_error *err)
{
    char path[LHI_PATH], *text;
    size_t len;
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_TOKENIZER_FILE, folder));
    LHI_TRY(lhi_input_read(from, LHI_INPUT_TOKENIZER, &text, &len, err));
    lh_status status = lh_file_write(path, text, len, err);
    lh_text_free(text);
    return status;
}

/* Creates the checkpoint's temporary folder `folder`: weights and moments files
 * at full size, without values, config.json and the tokenizer. */
static lh_status begin_folder(const lhi_train *train,
                              const lhi_checkpoint_options *options,
                              const char *folder, lh_error *err)
{
    char path[LHI_PATH];
    LHI_TRY(lhi_make_folder(options->folder, err));
    lhi_checkpoint_remove(folder); /* left by a killed run */
    LHI_TRY(lhi_make_private_folder(folder, err));
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_WEIGHTS_FILE, folder));
    LHI_TRY(make_file(path, train->o.model, lhi_weight_suffixes, err));
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_MOMENTS_FILE, folder));
    LHI_TRY(
        make_file(path, train->o.model, lhi_moment_suffixes_of(train), err));
    LHI_TRY(lhi_write_config(train->o.model, options, folder, err));
    return options->tokenizer ? copy_tokenizer(options->tokenizer, folder, err)
                              : LH_OK;
}

lh_status lhi_train_save_begin(lhi_train *train,
                               const lhi_checkpoint_options *options,
                               lh_error *err)
{
    char folder[LHI_PATH];
    LHI_TRY(format_folder_names(train, options, folder, NULL, err));
    if (options->lock)
        LHI_TRY(lhi_folder_lock_check(options->lock, err));
    lh_status status = begin_folder(train, options, folder, err);
    if (status != LH_OK)
        lhi_checkpoint_remove(folder);
    return status;
}

void lhi_train_save_cancel(lhi_train *train,
                           const lhi_checkpoint_options *options)
{
    char folder[LHI_PATH];
    if (format_folder_names(train, options, folder, NULL, NULL) == LH_OK)
        lhi_checkpoint_remove(folder);
}

/* An open checkpoint file. */
typedef struct writer {
    int fd;
    char path[LHI_PATH];
    lhi_safetensors_layout layout;
} writer;

/* Writes values `first` to first + n - 1 of the stored tensor for model tensor
 * `index` with suffix number `suffix` (weights: 0; moments: which one); *sum:
 * their checksum. */
static lh_status write_values(const writer *w, uint32_t index, uint32_t suffix,
                              size_t first, const float *values, size_t n,
                              double *sum, lh_error *err)
{
    uint64_t at = w->layout.at[(size_t)index * w->layout.n_suffixes + suffix] +
                  first * sizeof *values;
    *sum = lhi_checksum(values, n * sizeof *values);
    return write_at(w->fd, w->path, values, n * sizeof *values, at, err);
}

/* Checks whether several ranks have slices of the tensor (tensor or expert
 * parallelism), which one rank collects for checkpoints. */
static bool is_gathered(const lhi_train *train, const lhi_tensor *t)
{
    return lhi_bucket_count_slices(train, lhi_bucket_of(train, t)) > 1;
}

/* Writes a tensor of which several ranks have slices, on the first of these
 * ranks, in the format of an unsliced one; stores its checksums in `sum`.
 * `whole`: buffer for the full tensor. */
static lh_status write_slices(const lhi_train *train,
                              const lhi_owned_tensor *own, float *whole,
                              const writer *weights, const writer *moments,
                              double *sum, lh_error *err)
{
    const lhi_tensor *t = own->tensor;
    bool experts = lhi_bucket_of(train, t) == LHI_BUCKET_EXPERTS;
    uint32_t shards = lhi_bucket_count_shards(train, lhi_bucket_of(train, t));
    uint32_t pieces = lhi_count_checkpoint_pieces(train);
    bool leads =
        experts ? train->o.expert_replica == 0 && train->o.expert_tensor == 0
                : train->o.replica == 0 && train->o.tensor == 0;
    size_t n = lhi_count_full_values(t), share = n / pieces + (n % pieces != 0);
    LHI_TRY(lhi_gather_slices(train, t, 1, t->value, t->n, whole, err));
    if (leads)
        LHI_TRY(write_values(weights, t->index, 0, 0, whole, n, &sum[0], err));
    for (uint32_t s = 0; s < lhi_count_moments(train); s++) {
        LHI_TRY(lhi_gather_slices(train, t, shards, own->moments[s], own->n,
                                  whole, err));
        for (uint32_t r = 0; leads && r < pieces; r++) {
            size_t first = share * r < n ? share * r : n;
            size_t count = n - first < share ? n - first : share;
            LHI_TRY(write_values(moments, t->index, s, first, whole + first,
                                 count, &sum[1 + s * pieces + r], err));
        }
    }
    return LH_OK;
}

/* Writes this rank's shard `values` of moment number `which` of a tensor, in
 * `pieces` equal pieces with one checksum each in `sums`, as the checkpoint
 * format requires. */
static lh_status write_pieces(const lhi_owned_tensor *own, uint32_t pieces,
                              const writer *moments, uint32_t which,
                              const float *values, double *sums, lh_error *err)
{
    size_t share = own->share / pieces;
    for (uint32_t p = 0; p < pieces; p++) {
        size_t at = share * p < own->n ? share * p : own->n;
        size_t n = own->n - at < share ? own->n - at : share;
        LHI_TRY(write_values(moments, own->tensor->index, which,
                             own->first + at, values + at, n, &sums[p], err));
    }
    return LH_OK;
}

/* Writes a tensor without slices: its weights on the first replica, and this
 * rank's shard of its moments. Stores their checksums in `sum`. */
static lh_status write_owned(const lhi_train *train,
                             const lhi_owned_tensor *own, const writer *weights,
                             const writer *moments, double *sum, lh_error *err)
{
    const lhi_tensor *t = own->tensor;
    lhi_train_bucket_kind bucket = lhi_bucket_of(train, t);
    bool experts = bucket == LHI_BUCKET_EXPERTS;
    uint32_t all = lhi_count_checkpoint_pieces(train),
             pieces = lhi_pieces_per_shard(train, bucket);
    if (lhi_bucket_is_follower(train, bucket))
        return LH_OK;
    if ((experts ? train->o.expert_replica : train->o.replica) == 0)
        LHI_TRY(write_values(weights, t->index, 0, 0, t->value, t->n, &sum[0],
                             err));
    sum += 1 + pieces * lhi_bucket_shard(train, bucket);
    for (uint32_t k = 0; k < lhi_count_moments(train); k++)
        LHI_TRY(write_pieces(own, pieces, moments, k, own->moments[k],
                             sum + k * all, err));
    return LH_OK;
}

/* Returns the value count of the chunk's largest tensor that one rank collects
 * from slices; 0: none is sliced. */
static size_t find_largest_gathered(const lhi_train *train,
                                    const lhi_train_chunk *c)
{
    size_t most = 0;
    for (uint32_t j = 0; j < c->n_tensors; j++) {
        const lhi_tensor *t = c->owned[j].tensor;
        if (is_gathered(train, t) && lhi_count_full_values(t) > most)
            most = lhi_count_full_values(t);
    }
    return most;
}

/* Writes the tensors of chunk `c`, one after the other in the order in which
 * sharded ones are gathered, and stores their checksums in `sums`. */
static lh_status write_chunk(const lhi_train *train, const lhi_train_chunk *c,
                             const writer *weights, const writer *moments,
                             double *sums, lh_error *err)
{
    lh_status status = LH_OK;
    float *whole =
        malloc((find_largest_gathered(train, c) + 1) * sizeof *whole);
    if (!whole)
        return lhi_fail_nomem(err);
    for (uint32_t j = 0; status == LH_OK && j < c->n_tensors; j++) {
        const lhi_owned_tensor *own = &c->owned[j];
        double *sum =
            sums + lhi_checksum_index(own->tensor->index,
                                      lhi_count_checkpoint_pieces(train),
                                      lhi_count_moments(train));
        if (own == train->head)
            continue;
        if (train->o.gather_tensor)
            status = train->o.gather_tensor(train->o.context, c->chunk, j, err);
        if (status != LH_OK)
            break;
        status =
            is_gathered(train, own->tensor)
                ? write_slices(train, own, whole, weights, moments, sum, err)
                : write_owned(train, own, weights, moments, sum, err);
    }
    free(whole);
    if (status == LH_OK && train->o.gather_tensor)
        status =
            train->o.gather_tensor(train->o.context, c->chunk, LH_NONE, err);
    return status;
}

/* Opens the checkpoint's tensor file `name` in `folder` for writing, and
 * computes its tensors' offsets; release with close_writer(). */
static lh_status open_writer(const lhi_train *train, const char *folder,
                             const char *name, const char *const *suffixes,
                             writer *w, lh_error *err)
{
    LHI_TRY(lhi_folder_path(w->path, err, "%s/%s", folder, name));
    LHI_TRY(
        lhi_safetensors_layout_make(train->o.model, suffixes, &w->layout, err));
    w->fd = open(w->path, O_WRONLY | O_CLOEXEC);
    if (w->fd >= 0)
        return LH_OK;
    if (errno == ENOENT)
        return lhi_fail(err, LH_EIO,
                        "%s: rank 0 has created this file, but it is not on "
                        "this host: all hosts need the same folder on a shared "
                        "file system; no checkpoint was written, older ones "
                        "are unchanged",
                        w->path);
    return fail_write(w->path, errno, err);
}

/* Syncs and closes a tensor file. Returns `status` if it is an error, else the
 * result of closing. */
static lh_status close_writer(writer *w, lh_status status, lh_error *err)
{
    lhi_safetensors_layout_fini(&w->layout);
    return w->fd < 0 ? status : sync_and_close(w->fd, w->path, status, err);
}

lh_status lhi_train_save_part(lhi_train *train,
                              const lhi_checkpoint_options *options,
                              double *sums, lh_error *err)
{
    char folder[LHI_PATH];
    writer weights = {.fd = -1}, moments = {.fd = -1};
    memset(sums, 0, lhi_train_count_checksums(train) * sizeof *sums);
    LHI_TRY(format_folder_names(train, options, folder, NULL, err));
    lh_status status = open_writer(train, folder, LHI_WEIGHTS_FILE,
                                   lhi_weight_suffixes, &weights, err);
    if (status == LH_OK)
        status = open_writer(train, folder, LHI_MOMENTS_FILE,
                             lhi_moment_suffixes_of(train), &moments, err);
    for (uint32_t i = 0; status == LH_OK && i < train->o.n_mine; i++)
        status = write_chunk(train, &train->chunks[i], &weights, &moments, sums,
                             err);
    status = close_writer(&weights, status, err);
    return close_writer(&moments, status, err);
}

/* Removes the oldest checkpoints in the folder beyond the number to keep, but
 * never the one just written, even if later ones exist. */
static lh_status prune(const lhi_train *train,
                       const lhi_checkpoint_options *options, lh_error *err)
{
    uint64_t *steps;
    size_t n;
    lh_status status;
    if (options->keep == 0)
        return LH_OK;
    LHI_TRY(lhi_list_steps(options->folder, &steps, &n, err));
    size_t n_old = n > options->keep ? n - options->keep : 0, n_gone = 0;
    for (size_t i = 0; i < n_old; i++)
        if (steps[i] != train->step)
            steps[n_gone++] = steps[i];
    status = lhi_checkpoint_discard(options->folder, steps, n_gone, err);
    free(steps);
    return status;
}

/* Writes the checkpoint's description file with the checksums `sums` of all
 * tensors, and syncs `folder`. */
static lh_status write_state(lhi_train *train,
                             const lhi_checkpoint_options *options,
                             const double *sums, const char *folder,
                             lh_error *err)
{
    char path[LHI_PATH], *text;
    double sides[LHI_N_AUXILIARY_FILES];
    for (int i = 0; i < LHI_N_AUXILIARY_FILES; i++)
        LHI_TRY(lhi_auxiliary_checksum(folder, i, &sides[i], err));
    LHI_TRY(lhi_folder_path(path, err, "%s/" LHI_STATE_FILE, folder));
    LHI_TRY(
        lhi_checkpoint_state_format(train, options, sums, sides, &text, err));
    lh_status status = lh_file_write(path, text, strlen(text), err);
    free(text);
    return status == LH_OK ? lhi_sync_folder(folder, err) : status;
}

lh_status lhi_train_save_end(lhi_train *train,
                             const lhi_checkpoint_options *options,
                             const double *sums, lh_error *err)
{
    char temporary[LHI_PATH], final[LHI_PATH], gone[LHI_PATH];
    LHI_TRY(format_folder_names(train, options, temporary, final, err));
    lh_status status = write_state(train, options, sums, temporary, err);
    if (status == LH_OK)
        status = lhi_replace_folder(temporary, final, gone, err);
    if (status != LH_OK) {
        lhi_checkpoint_remove(temporary);
        return status;
    }
    LHI_TRY(lhi_sync_folder(options->folder, err));
    if (gone[0])
        lhi_checkpoint_remove(gone);
    return prune(train, options, err);
}
