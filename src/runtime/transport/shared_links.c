/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/shared_links.h"

#include "base/fail.h"
#include "runtime/transport/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Header of the shared file; the table follows on the next page. */
typedef struct share_head {
    unsigned char cookie[LHI_COOKIE_BYTES];
    lhi_net_link links[];
} share_head;

/* A mapped table. */
struct lhi_shared_links {
    int fd;
    void *map;
    size_t bytes, offset;
};

/* Returns the size in bytes of the shared file's header (for a table of n_links
 * emulated links), in whole 4 KiB pages. */
static size_t get_header_bytes(uint32_t n_links)
{
    size_t size = sizeof(share_head) + n_links * sizeof(lhi_net_link);
    return (size + 4095) / 4096 * 4096;
}

/* Maps the shared file of emulated links, header and table of n_links links,
 * into memory. */
static lh_status map_shared(lhi_shared_links *s, uint32_t n_links,
                            lh_error *err)
{
    s->offset = get_header_bytes(n_links);
    s->bytes = s->offset + lhi_links_bytes(n_links);
    s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (s->map != MAP_FAILED)
        return LH_OK;
    s->map = NULL;
    return lhi_fail(err, LH_EIO, "no memory for emulated links: %s",
                    strerror(errno));
}

lhi_links *lhi_shared_links_table(const lhi_shared_links *s)
{
    return s && s->map ? (lhi_links *)(void *)((char *)s->map + s->offset)
                       : NULL;
}

/* Creates and initialises the shared file of emulated links on rank 0; `extra`
 * receives its location. */
static lh_status
share_links(lhi_shared_links *s, uint32_t n_links, const lhi_net_link *links,
            unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES], lh_error *err)
{
    lhi_shared_links_location what = {.pid = (uint32_t)getpid(),
                                      .n_links = n_links};
    /* An unnamed file, so nothing remains in any case. */
    s->fd = memfd_create("longhaul-links", MFD_CLOEXEC);
    off_t bytes = (off_t)(get_header_bytes(n_links) + lhi_links_bytes(n_links));
    if (s->fd < 0 || ftruncate(s->fd, bytes) ||
        !lhi_random_bytes(what.cookie, sizeof what.cookie))
        return lhi_fail(err, LH_EIO, "no memory for emulated links: %s",
                        strerror(errno));
    LHI_TRY(map_shared(s, n_links, err));
    share_head *head = s->map;
    memcpy(head->cookie, what.cookie, sizeof head->cookie);
    memcpy(head->links, links, n_links * sizeof *links);
    what.fd = (uint32_t)s->fd;
    lhi_shared_links_location_write(&what, extra);
    return lhi_links_init(lhi_shared_links_table(s), n_links, links, err);
}

/* Checks whether two emulated links have equal latency and transfer time. */
static bool are_equal(const lhi_net_link *a, const lhi_net_link *b)
{
    return a->latency_ns == b->latency_ns && a->transfer_ns == b->transfer_ns &&
           a->sharing == b->sharing &&
           memcmp(&a->ns_per_byte, &b->ns_per_byte, sizeof(double)) == 0;
}

/* Maps rank 0's shared file of emulated links; checks its cookie and that its
 * links equal this rank's. */
static lh_status
find_shared(lhi_shared_links *s, uint32_t n_links, const lhi_net_link *links,
            const unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES],
            lh_error *err)
{
    lhi_shared_links_location what;
    LHI_TRY(lhi_shared_links_location_read(extra, &what, err));
    if (what.n_links != n_links)
        return lhi_fail(err, LH_EINVAL,
                        "rank 0 emulates %u links, this rank %u", what.n_links,
                        n_links);
    if (n_links == 0)
        return LH_OK;
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%u/fd/%u", what.pid, what.fd);
    s->fd = open(path, O_RDWR | O_CLOEXEC);
    size_t bytes = get_header_bytes(n_links) + lhi_links_bytes(n_links);
    bool same =
        s->fd >= 0 && fstat(s->fd, &st) == 0 && st.st_size == (off_t)bytes;
    if (same) {
        LHI_TRY(map_shared(s, n_links, err));
        same = memcmp(((share_head *)s->map)->cookie, what.cookie,
                      sizeof what.cookie) == 0;
    }
    if (!same)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "links can be emulated only where all ranks run on one "
                        "host as one user");
    share_head *head = s->map;
    for (uint32_t i = 0; i < n_links; i++)
        if (!are_equal(&head->links[i], &links[i]))
            return lhi_fail(err, LH_EINVAL,
                            "rank 0 has other parameters for emulated link %u "
                            "than this rank",
                            i);
    return LH_OK;
}

void lhi_shared_links_free(lhi_shared_links *s)
{
    if (!s)
        return;
    if (s->map)
        munmap(s->map, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

/* Allocates the record of a shared table that is not mapped yet; NULL: out of
 * memory. */
static lhi_shared_links *alloc_empty(lh_error *err)
{
    lhi_shared_links *s = calloc(1, sizeof *s);
    if (!s)
        lhi_fail_nomem(err);
    else
        s->fd = -1;
    return s;
}

lh_status
lhi_shared_links_make(uint32_t n_links, const lhi_net_link *links,
                      unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES],
                      lhi_shared_links **out, lh_error *err)
{
    memset(extra, 0, LHI_SHARED_LINKS_LOCATION_BYTES);
    lhi_shared_links *s = alloc_empty(err);
    if (!s)
        return LH_ENOMEM;
    lh_status status =
        n_links ? share_links(s, n_links, links, extra, err) : LH_OK;
    if (status == LH_OK)
        *out = s;
    else
        lhi_shared_links_free(s);
    return status;
}

lh_status
lhi_shared_links_map(uint32_t n_links, const lhi_net_link *links,
                     const unsigned char extra[LHI_SHARED_LINKS_LOCATION_BYTES],
                     lhi_shared_links **out, lh_error *err)
{
    lhi_shared_links *s = alloc_empty(err);
    if (!s)
        return LH_ENOMEM;
    lh_status status = find_shared(s, n_links, links, extra, err);
    if (status == LH_OK)
        *out = s;
    else
        lhi_shared_links_free(s);
    return status;
}
