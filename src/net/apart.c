/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport: the job's secret, joining, and a table of emulated links
 * that processes which were not forked together can share. */
#define _GNU_SOURCE
#include "net/net.h"

#include "base/fail.h"
#include "base/text.h"
#include "net/hello.h"
#include "net/stream.h"
#include "net/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the secret ---- */

static lh_status check_secret(char *text, size_t *size, const char *from,
                              lh_error *err)
{
    if (*size > 0 && text[*size - 1] == '\n')
        text[--*size] = '\0';
    if (*size < LHI_SECRET_LEAST)
        return lhi_fail(err, LH_EINPUT,
                        "%s: the secret has %zu bytes; it needs at least %d, "
                        "such as from `openssl rand -hex 32`",
                        from, *size, LHI_SECRET_LEAST);
    return LH_OK;
}

lh_status lhi_net_secret(char **out, size_t *size, lh_error *err)
{
    const char *path = getenv("LONGHAUL_SECRET_FILE");
    const char *value = getenv("LONGHAUL_SECRET");
    char *text = NULL;
    if (path && *path) {
        struct stat st;
        if (stat(path, &st) == 0 && (st.st_mode & 077))
            return lhi_fail(err, LH_EINPUT,
                            "%s: others may read the secret; chmod 600 it",
                            path);
        LHI_TRY(lhi_file_read(path, LHI_SECRET_MOST, &text, size, err));
    } else if (value && *value) {
        path = "LONGHAUL_SECRET";
        *size = strlen(value);
        text = strdup(value);
        if (!text)
            return lhi_fail_nomem(err);
    } else {
        return lhi_fail(err, LH_EINPUT,
                        "the job has no secret: name a file that holds it in "
                        "LONGHAUL_SECRET_FILE");
    }
    lh_status status = check_secret(text, size, path, err);
    if (status == LH_OK)
        *out = text;
    else
        lh_text_free(text);
    return status;
}

/* ---- shared links ---- */

/* What rank 0 tells: in which file of which process the table lies, and how to
 * know that it is the one (another host has other processes). */
typedef struct share {
    uint32_t pid, fd, n_links, reserved;
    unsigned char cookie[32];
} share;

_Static_assert(sizeof(share) <= sizeof(lhi_tcp_extra), "fits");

/* The start of the file; the table is a page further. */
typedef struct share_head {
    unsigned char cookie[32];
    lhi_net_link links[];
} share_head;

typedef struct shared_links {
    int fd;
    void *map;
    size_t bytes, offset;
} shared_links;

static size_t head_bytes(uint32_t n_links)
{
    size_t size = sizeof(share_head) + n_links * sizeof(lhi_net_link);
    return (size + 4095) / 4096 * 4096;
}

static lh_status map_shared(shared_links *s, uint32_t n_links, lh_error *err)
{
    s->offset = head_bytes(n_links);
    s->bytes = s->offset + lhi_links_bytes(n_links);
    s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (s->map != MAP_FAILED)
        return LH_OK;
    s->map = NULL;
    return lhi_fail(err, LH_EIO, "no memory for emulated links: %s",
                    strerror(errno));
}

static lhi_links *table_of(const shared_links *s)
{
    return s->map ? (lhi_links *)(void *)((char *)s->map + s->offset) : NULL;
}

static lh_status make_shared(const lhi_tcp_options *o, shared_links *s,
                             lhi_tcp_extra *extra, lh_error *err)
{
    share what = {.pid = (uint32_t)getpid(), .n_links = o->n_links};
    /* Has no name, so nothing stays behind whatever happens. */
    s->fd = memfd_create("longhaul-links", MFD_CLOEXEC);
    if (s->fd < 0 ||
        ftruncate(s->fd, (off_t)(head_bytes(o->n_links) +
                                 lhi_links_bytes(o->n_links))) ||
        !lhi_random(what.cookie, sizeof what.cookie))
        return lhi_fail(err, LH_EIO, "no memory for emulated links: %s",
                        strerror(errno));
    LHI_TRY(map_shared(s, o->n_links, err));
    share_head *head = s->map;
    memcpy(head->cookie, what.cookie, sizeof head->cookie);
    memcpy(head->links, o->links, o->n_links * sizeof *o->links);
    what.fd = (uint32_t)s->fd;
    memcpy(extra->bytes, &what, sizeof what);
    return lhi_links_init(table_of(s), o->n_links, o->links, err);
}

static lh_status find_shared(void *context, const lhi_tcp_options *o,
                             const lhi_tcp_extra *extra, lh_error *err)
{
    shared_links *s = context;
    share what;
    memcpy(&what, extra->bytes, sizeof what);
    if (what.n_links != o->n_links)
        return lhi_fail(err, LH_EINVAL, "rank 0 emulates %u links, rank %u %u",
                        what.n_links, o->rank, o->n_links);
    if (o->n_links == 0)
        return LH_OK;
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%u/fd/%u", what.pid, what.fd);
    s->fd = open(path, O_RDWR | O_CLOEXEC);
    size_t bytes = head_bytes(o->n_links) + lhi_links_bytes(o->n_links);
    bool same =
        s->fd >= 0 && fstat(s->fd, &st) == 0 && st.st_size == (off_t)bytes;
    if (same) {
        LHI_TRY(map_shared(s, o->n_links, err));
        same = memcmp(((share_head *)s->map)->cookie, what.cookie,
                      sizeof what.cookie) == 0;
    }
    if (!same)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "rank %u: links can be emulated only where all ranks "
                        "run on one host as one user",
                        o->rank);
    share_head *head = s->map;
    for (uint32_t i = 0; i < o->n_links; i++)
        if (head->links[i].latency_ns != o->links[i].latency_ns ||
            head->links[i].transfer_ns != o->links[i].transfer_ns ||
            head->links[i].ns_per_byte < o->links[i].ns_per_byte ||
            head->links[i].ns_per_byte > o->links[i].ns_per_byte)
            return lhi_fail(err, LH_EINVAL,
                            "rank 0 emulates another link %u than rank %u", i,
                            o->rank);
    return LH_OK;
}

static void free_shared(void *of)
{
    shared_links *s = of;
    if (s->map)
        munmap(s->map, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

/* ---- the transport ---- */

static lh_status start(const lhi_tcp_options *o, const int *fds,
                       shared_links *shared, lhi_net **out, lh_error *err)
{
    lhi_stream_options options = {
        .name = "tcp",
        .rank = o->rank,
        .n_ranks = o->n_ranks,
        .fds = fds,
        .links = table_of(shared),
        .silence_ns = o->silence_ns ? o->silence_ns : INT64_C(3500000000),
        .closed = free_shared,
        .context = shared};
    return lhi_net_stream(&options, out, err);
}

lh_status lhi_net_tcp(const lhi_tcp_options *o, lhi_net **out, lh_error *err)
{
    LHI_TRY(lhi_links_check(o->n_links, o->links, err));
    lhi_tcp_extra extra = {{0}};
    int *fds = malloc((o->n_ranks ? o->n_ranks : 1) * sizeof *fds);
    shared_links *shared = calloc(1, sizeof *shared);
    lh_status status = fds && shared ? LH_OK : lhi_fail_nomem(err);
    if (shared)
        shared->fd = -1;
    bool joined = false;
    if (status == LH_OK && o->rank == 0 && o->n_links > 0)
        status = make_shared(o, shared, &extra, err);
    if (status == LH_OK) {
        status = lhi_tcp_join(o, &extra, find_shared, shared, fds, err);
        joined = status == LH_OK;
    }
    if (status == LH_OK)
        status = start(o, fds, shared, out, err);
    if (status != LH_OK) {
        for (uint32_t i = 0; joined && i < o->n_ranks; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        if (shared)
            free_shared(shared);
    }
    free(fds);
    return status;
}
