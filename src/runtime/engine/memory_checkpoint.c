/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/engine/memory_checkpoint.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/kept_states.h"
#include "runtime/engine/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tag rounds below that of restarting ranks: see docs/formats/wire.md. */
enum { RESTORE_TURN = (1 << 23) - 2, NEWEST_TURN = (1 << 23) - 5 };

enum { N_SLOTS = 2 };

/* Start of a memory file, which N_SLOTS states follow. */
typedef struct file_header {
    uint64_t bytes; /* of a state */
    double digest;  /* lhi_train_owned_digest() */
    /* Number of steps before each state, plus one; 0: incomplete. */
    uint64_t steps[N_SLOTS];
} file_header;

struct lhi_memory_checkpoint {
    int file;
    file_header *map; /* NULL: the file is empty */
    size_t map_bytes;
};

/* A rank's part of the agreement on restored states, as numbers that are summed
 * over all ranks. */
typedef struct rank_entry {
    double needed, kept; /* digests; kept 0: no state after that step */
} rank_entry;

/* Fails because a memory file cannot be used. */
static lh_status fail_io(lh_error *err)
{
    return lhi_fail(err, errno == ENOMEM ? LH_ENOMEM : LH_EIO,
                    "the in-memory checkpoint: %s", strerror(errno));
}

lh_status lhi_memory_files_make(uint32_t n, int **out, lh_error *err)
{
    int *files = malloc((n + 1u) * sizeof *files);
    if (!files)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        files[i] = memfd_create("longhaul-state", MFD_CLOEXEC);
        if (files[i] < 0) {
            const lh_status status = fail_io(err);
            lhi_memory_files_free(i, files);
            return status;
        }
    }
    *out = files;
    return LH_OK;
}

void lhi_memory_files_free(uint32_t n, int *files)
{
    for (uint32_t i = 0; files && i < n; i++)
        close(files[i]);
    free(files);
}

/* Maps the file's first `size` bytes. */
static lh_status map_file(lhi_memory_checkpoint *checkpoint, size_t size,
                          lh_error *err)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                     checkpoint->file, 0);
    if (map == MAP_FAILED)
        return fail_io(err);
    if (checkpoint->map)
        munmap(checkpoint->map, checkpoint->map_bytes);
    checkpoint->map = map;
    checkpoint->map_bytes = size;
    return LH_OK;
}

lh_status lhi_memory_checkpoint_open(const lhi_job *job, uint32_t rank,
                                     lhi_memory_checkpoint **out, lh_error *err)
{
    struct stat info;
    *out = NULL;
    if (!job->memory_files)
        return LH_OK;
    lhi_memory_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return lhi_fail_nomem(err);
    checkpoint->file = job->memory_files[rank - job->first_memory_file];
    lh_status status =
        fstat(checkpoint->file, &info) == 0 ? LH_OK : fail_io(err);
    if (status == LH_OK && info.st_size > 0)
        status = map_file(checkpoint, (size_t)info.st_size, err);
    if (status != LH_OK) {
        free(checkpoint);
        return status;
    }
    *out = checkpoint;
    return LH_OK;
}

void lhi_memory_checkpoint_close(lhi_memory_checkpoint *checkpoint)
{
    if (checkpoint && checkpoint->map)
        munmap(checkpoint->map, checkpoint->map_bytes);
    free(checkpoint);
}

/* Returns the address of state number `i`. */
static unsigned char *get_slot(const lhi_memory_checkpoint *checkpoint,
                               uint32_t i)
{
    return (unsigned char *)(checkpoint->map + 1) + i * checkpoint->map->bytes;
}

/* Makes the file fit the owned state of `train`, and drops states of another
 * part of the model, which the rank had before a migration. */
static lh_status fit_file(lhi_memory_checkpoint *checkpoint,
                          const lhi_train *train, lh_error *err)
{
    const size_t bytes = lhi_train_owned_bytes(train);
    const size_t size = sizeof(file_header) + N_SLOTS * bytes;
    const double digest = lhi_train_owned_digest(train);
    if (checkpoint->map && checkpoint->map->digest == digest &&
        checkpoint->map->bytes == bytes)
        return LH_OK;
    if (checkpoint->map)
        memset(checkpoint->map->steps, 0, sizeof checkpoint->map->steps);
    do /* SIGSTOP and SIGCONT interrupt it, too */
        errno = posix_fallocate(checkpoint->file, 0, (off_t)size);
    while (errno == EINTR);
    if (errno != 0)
        return fail_io(err);
    LHI_TRY(map_file(checkpoint, size, err));
    checkpoint->map->bytes = bytes;
    checkpoint->map->digest = digest;
    return LH_OK;
}

/* Sets the step number of state `i`, after the writes to it and before later
 * ones. This process may be killed at any time: only the compiler's order
 * matters, since others read the file after its end. */
static void set_step(const lhi_memory_checkpoint *checkpoint, uint32_t i,
                     uint64_t number)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&checkpoint->map->steps[i], number, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

lh_status lhi_memory_checkpoint_store(lhi_memory_checkpoint *checkpoint,
                                      const lhi_train *train, lh_error *err)
{
    const uint64_t step = lhi_train_step(train);
    const uint32_t slot = (uint32_t)(step % N_SLOTS);
    LHI_TRY(fit_file(checkpoint, train, err));
    set_step(checkpoint, slot, 0);
    lhi_train_copy_owned(train, get_slot(checkpoint, slot));
    set_step(checkpoint, slot, step + 1);
    return LH_OK;
}

/* Sends this rank's state after `step` steps to ranks that lost theirs, or
 * receives `size` bytes of it in `received`. */
static lh_status exchange(const lhi_memory_checkpoint *checkpoint, lhi_net *net,
                          const lh_kept_states *ranks, uint64_t step,
                          unsigned char *received, size_t size, lh_error *err)
{
    const uint32_t slot = (uint32_t)(step % N_SLOTS);
    const uint32_t n = lhi_net_n_ranks(net), me = lhi_net_rank(net);
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t donor = lhi_kept_states_find_donor(ranks, n, step, r);
        const uint64_t tag = lhi_tag(LHI_TAG_STATE, RESTORE_TURN, r);
        lhi_net_op op = {0};
        if (donor == r || (me != r && me != donor))
            continue;
        if (me == r)
            LHI_TRY(lhi_net_receive(net, donor, tag, received, size, &op, err));
        else
            LHI_TRY(lhi_net_send(net, r, tag, get_slot(checkpoint, slot),
                                 checkpoint->map->bytes, LHI_NET_NO_LINK,
                                 lhi_now_ns(), LHI_NET_NO_TURN, &op, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
    }
    return LH_OK;
}

/* Restores the state after `step` steps in `train`, if each rank has it or a
 * donor; `ranks`: space for each rank. */
static lh_status restore(lhi_memory_checkpoint *checkpoint, lhi_net *net,
                         uint64_t step, lh_kept_states *ranks, lhi_train *train,
                         bool *is_restored, lh_error *err)
{
    const uint32_t n = lhi_net_n_ranks(net), me = lhi_net_rank(net);
    const uint32_t slot = (uint32_t)(step % N_SLOTS);
    const size_t size = lhi_train_owned_bytes(train);
    rank_entry *entries = calloc(n, sizeof *entries);
    if (!entries)
        return lhi_fail_nomem(err);
    entries[me].needed = lhi_train_owned_digest(train);
    if (checkpoint->map && checkpoint->map->steps[slot] == step + 1)
        entries[me].kept = checkpoint->map->digest;
    lh_status status = lhi_all_reduce_sum(
        net, RESTORE_TURN - 1, (double *)entries, 2 * (size_t)n, NULL, err);
    for (uint32_t r = 0; r < n; r++)
        ranks[r] = (lh_kept_states){.needed = (uint64_t)entries[r].needed,
                                    .kept = (uint64_t)entries[r].kept,
                                    .steps = {step + 1}};
    free(entries);
    LHI_TRY(status);
    for (uint32_t r = 0; r < n; r++)
        if (lhi_kept_states_find_donor(ranks, n, step, r) == LH_NONE)
            return LH_OK;
    const bool has_own = lhi_kept_states_find_donor(ranks, n, step, me) == me;
    unsigned char *received = has_own ? NULL : malloc(size + 1);
    if (!has_own && !received)
        return lhi_fail_nomem(err);
    status = exchange(checkpoint, net, ranks, step, received, size, err);
    if (status == LH_OK) {
        lhi_train_set_owned(
            train, has_own ? get_slot(checkpoint, slot) : received, step);
        *is_restored = true;
    }
    free(received);
    return status == LH_OK && !has_own
               ? lhi_memory_checkpoint_store(checkpoint, train, err)
               : status;
}

/* Finds the number of steps that each rank with a checkpoint has completed; 0:
 * none has one. `ranks`: space for each rank. */
static lh_status find_common_step(const lhi_memory_checkpoint *checkpoint,
                                  lhi_net *net, lh_kept_states *ranks,
                                  uint64_t *step, lh_error *err)
{
    const uint32_t n = lhi_net_n_ranks(net);
    double *newest = calloc(n, sizeof *newest);
    if (!newest)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; checkpoint->map && i < N_SLOTS; i++)
        newest[lhi_net_rank(net)] =
            fmax(newest[lhi_net_rank(net)], (double)checkpoint->map->steps[i]);
    const lh_status status =
        lhi_all_reduce_sum(net, NEWEST_TURN, newest, n, NULL, err);
    for (uint32_t r = 0; r < n; r++)
        ranks[r] = (lh_kept_states){.kept = 1, .steps = {(uint64_t)newest[r]}};
    free(newest);
    const uint64_t number = lhi_kept_states_find_step(ranks, n);
    *step = number > 0 ? number - 1 : 0;
    return status;
}

lh_status lhi_memory_checkpoint_restore(lhi_memory_checkpoint *checkpoint,
                                        lhi_net *net, uint64_t step,
                                        lhi_train *train, bool *is_restored,
                                        lh_error *err)
{
    const uint32_t n = lhi_net_n_ranks(net), me = lhi_net_rank(net);
    const bool is_unknown = step == LHI_NEWEST_COMMON_STEP;
    double number = me > 0 ? 0 : is_unknown ? -1 : (double)step;
    *is_restored = false;
    LHI_TRY(lhi_all_reduce_sum(net, RESTORE_TURN, &number, 1, NULL, err));
    lh_kept_states *ranks = calloc(n, sizeof *ranks);
    if (!ranks)
        return lhi_fail_nomem(err);
    step = (uint64_t)fmax(number, 0);
    lh_status status = LH_OK;
    if (number < 0)
        status = find_common_step(checkpoint, net, ranks, &step, err);
    if (status == LH_OK && step > lhi_train_step(train))
        status = restore(checkpoint, net, step, ranks, train, is_restored, err);
    free(ranks);
    return status;
}

double lhi_memory_checkpoint_predict_bytes(double moment_bytes,
                                           uint32_t n_moments)
{
    return N_SLOTS * (moment_bytes + moment_bytes / n_moments);
}
