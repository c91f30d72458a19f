/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "runtime/device/storage.h"

#include "base/realtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A copy between device buffers and a storage block. */
typedef struct copy {
    lhi_storage_block *block;
    lhi_storage_piece *pieces;
    uint32_t n_pieces, room;
    bool is_back;
    int64_t least_ns;
    lhi_storage_times when;
} copy;

/* A mapped range of the file. */
typedef struct mapping {
    struct mapping *next;
    lhi_storage_block block;
} mapping;

/* Storage file, its mappings, and the copy thread's queue. */
struct lhi_storage {
    char *folder;
    int fd;
    size_t size;
    mapping *mappings;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock; /* for the members below */
    pthread_cond_t changed;
    copy **copies; /* this step's, then unused records */
    uint32_t n_begun, n_done, n_room;
    int64_t free_ns; /* end of the last copy */
};

/* Fails because of the storage folder, with errno's text; `what` names the
 * operation that failed. */
static lh_status fail_folder(const char *folder, const char *what,
                             lh_error *err)
{
    return lhi_fail(err, LH_EIO,
                    "offload: %s '%.300s': %s; give a folder with free space "
                    "with --offload-to",
                    what, folder, strerror(errno));
}

/* Copies all pieces (offloaded buffers) of copy `c` to their storage block or,
 * if is_back, from it. Stops early when the storage closes. */
static void copy_pieces(lhi_storage *s, const copy *c)
{
    unsigned char *at = c->block->at;
    for (uint32_t i = 0; i < c->n_pieces && !atomic_load(&s->stop); i++) {
        const lhi_storage_piece *piece = &c->pieces[i];
        if (c->is_back)
            memcpy(piece->at, at, piece->size);
        else
            memcpy(at, piece->at, piece->size);
        at += piece->size;
    }
}

/* Runs copy `c` for at least its minimum duration; releases the lock
 * meanwhile. Its start is when the previous copy ended and it was ready, so
 * that a late wake-up does not delay later copies. */
static void run_copy(lhi_storage *s, copy *c)
{
    lhi_storage_times *when = &c->when;
    when->depart_ns = when->ready_ns > s->free_ns ? when->ready_ns : s->free_ns;
    pthread_mutex_unlock(&s->lock);
    copy_pieces(s, c);
    int64_t moved_ns = lhi_now_ns();
    pthread_mutex_lock(&s->lock);
    when->end_ns = when->depart_ns + c->least_ns;
    if (moved_ns > when->end_ns)
        when->end_ns = moved_ns;
    const struct timespec until = lhi_timespec(when->end_ns);
    while (!atomic_load(&s->stop) && lhi_now_ns() < when->end_ns)
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    s->free_ns = when->end_ns;
}

/* Main function for the copy thread: runs copies in order until the storage
 * closes. */
static void *thread_main(void *of)
{
    lhi_storage *s = of;
    pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->stop)) {
        if (s->n_done == s->n_begun) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        run_copy(s, s->copies[s->n_done]);
        s->n_done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Creates the storage file in the folder and unlinks it at once, so that it
 * disappears with the process. */
static lh_status make_file(lhi_storage *s, lh_error *err)
{
    size_t room = strlen(s->folder) + 32;
    char *path = malloc(room);
    if (!path)
        return lhi_fail_nomem(err);
    snprintf(path, room, "%s/longhaul-offload-XXXXXX", s->folder);
    s->fd = mkstemp(path);
    lh_status status = LH_OK;
    if (s->fd < 0 || unlink(path) != 0 ||
        fcntl(s->fd, F_SETFD, FD_CLOEXEC) != 0)
        status = fail_folder(s->folder, "cannot create a file in", err);
    free(path);
    return status;
}

/* Unmaps the storage file, and releases the block and copy records. */
static void free_storage(lhi_storage *s)
{
    for (mapping *m = s->mappings, *next; m; m = next) {
        next = m->next;
        munmap(m->block.at, m->block.size);
        free(m);
    }
    for (uint32_t i = 0; i < s->n_room; i++) {
        free(s->copies[i]->pieces);
        free(s->copies[i]);
    }
    if (s->fd >= 0)
        close(s->fd);
    free(s->copies);
    free(s->folder);
    free(s);
}

lh_status lhi_storage_open(const char *folder, lhi_storage **out, lh_error *err)
{
    lhi_storage *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->fd = -1;
    s->folder = strdup(folder);
    lh_status status = s->folder ? make_file(s, err) : lhi_fail_nomem(err);
    if (status != LH_OK) {
        free_storage(s);
        return status;
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&s->lock, NULL);
    status = lhi_start_normal_thread(&s->thread, thread_main, s, err);
    if (status != LH_OK) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        free_storage(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_storage_close(lhi_storage *s)
{
    if (!s)
        return;
    atomic_store(&s->stop, true);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free_storage(s);
}

size_t lhi_storage_block_bytes(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

/* Reserves disk space for `size` more bytes of the file: writing a mapped page
 * without disk space would kill the process. */
static lh_status allocate_disk_space(lhi_storage *s, size_t size, lh_error *err)
{
    int failed;
    do
        failed = posix_fallocate(s->fd, (off_t)s->size, (off_t)size);
    while (failed == EINTR);
    if (failed == 0)
        return LH_OK;
    return lhi_fail(err, LH_EIO,
                    "offload: no space for %.1f MiB more in '%.300s', which "
                    "has %.1f MiB in use: %s; give a folder with free space "
                    "with --offload-to, or plan with a smaller share",
                    (double)size / (1 << 20), s->folder,
                    (double)s->size / (1 << 20), strerror(failed));
}

lh_status lhi_storage_add_block(lhi_storage *s, size_t size,
                                lhi_storage_block **out, lh_error *err)
{
    size_t room = lhi_storage_block_bytes(size ? size : 1);
    mapping *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
    lh_status status = allocate_disk_space(s, room, err);
    void *at = MAP_FAILED;
    if (status == LH_OK) {
        at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd,
                  (off_t)s->size);
        if (at == MAP_FAILED)
            status = fail_folder(s->folder, "cannot map memory to", err);
    }
    if (status != LH_OK) {
        free(m);
        return status;
    }
    s->size += room;
    m->block = (lhi_storage_block){.at = at, .size = room};
    m->next = s->mappings;
    s->mappings = m;
    *out = &m->block;
    return LH_OK;
}

size_t lhi_storage_file_bytes(const lhi_storage *s)
{
    return s->size;
}

void lhi_storage_begin_step(lhi_storage *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_done < s->n_begun)
        pthread_cond_wait(&s->changed, &s->lock);
    s->n_begun = s->n_done = 0;
    s->free_ns = 0;
    pthread_mutex_unlock(&s->lock);
}

/* Returns the record for the step's next copy, allocating one if needed.
 * Records have stable addresses. */
static copy *get_next_copy(lhi_storage *s)
{
    if (s->n_begun < s->n_room)
        return s->copies[s->n_begun];
    copy **more = realloc(s->copies, (s->n_room + 1u) * sizeof(copy *));
    if (!more)
        return NULL;
    s->copies = more;
    if (!(more[s->n_room] = calloc(1, sizeof(copy))))
        return NULL;
    return more[s->n_room++];
}

/* Copies the list of `n` pieces (address and size of a buffer) into the copy
 * record; false: out of memory. */
static bool store_pieces(copy *c, const lhi_storage_piece *pieces, uint32_t n)
{
    if (n > c->room) {
        lhi_storage_piece *more = realloc(c->pieces, n * sizeof *more);
        if (!more)
            return false;
        c->pieces = more;
        c->room = n;
    }
    if (n > 0)
        memcpy(c->pieces, pieces, n * sizeof *pieces);
    c->n_pieces = n;
    return true;
}

lh_status lhi_storage_copy(lhi_storage *s, lhi_storage_block *block,
                           const lhi_storage_piece *pieces, uint32_t n,
                           bool is_back, int64_t least_ns, lh_error *err)
{
    pthread_mutex_lock(&s->lock);
    copy *c = get_next_copy(s);
    bool ok = c && store_pieces(c, pieces, n);
    if (ok) {
        c->block = block;
        c->is_back = is_back;
        c->least_ns = least_ns;
        c->when = (lhi_storage_times){.ready_ns = lhi_now_ns()};
        s->n_begun++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return ok ? LH_OK : lhi_fail_nomem(err);
}

bool lhi_storage_wait(lhi_storage *s, uint32_t n, int64_t until_ns)
{
    const struct timespec until = lhi_timespec(until_ns);
    pthread_mutex_lock(&s->lock);
    if (n > s->n_begun)
        n = s->n_begun;
    while (s->n_done < n && lhi_now_ns() < until_ns)
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    bool done = s->n_done >= n;
    pthread_mutex_unlock(&s->lock);
    return done;
}

lhi_storage_times lhi_storage_copy_times(lhi_storage *s, uint32_t i)
{
    pthread_mutex_lock(&s->lock);
    lhi_storage_times when = s->copies[i]->when;
    pthread_mutex_unlock(&s->lock);
    return when;
}
