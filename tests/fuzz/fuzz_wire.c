/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a peer sends: greetings if they begin so, otherwise frames to an
 * endpoint that has sent and received a little. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "net/hello.h"
#include "net/proto.h"
#include "net/wire.h"

#include <sys/mman.h>

enum { N_OPS = 6, LARGE_BYTES = LHI_NET_EAGER_BYTES + 1000 };

static void greetings(const uint8_t *data, size_t size)
{
    while (size >= LHI_HELLO_BYTES) {
        lhi_hello h;
        lh_error err = {0};
        unsigned char again[LHI_HELLO_BYTES];
        lh_status status = lhi_hello_read(data, &h, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, NULL);
            return;
        }
        lhi_hello_write(&h, again);
        REQUIRE(memcmp(again, data, sizeof again) == 0, "another greeting");
        data += LHI_HELLO_BYTES;
        size -= LHI_HELLO_BYTES;
        if (h.more > size)
            return;
        char text[64];
        lhi_wire_text(data, h.more, text, sizeof text);
        REQUIRE(strlen(text) < sizeof text, "too long");
        data += h.more;
        size -= h.more;
    }
}

/* A carrier that sends into nothing. */
static lh_status nowhere(lhi_proto *p, uint32_t to, const lhi_frame *f,
                         const void *payload, lhi_net_op *op, lh_error *err)
{
    unsigned char bytes[LHI_FRAME_BYTES];
    lhi_frame again;
    (void)to, (void)payload;
    lhi_frame_write(f, bytes);
    MUST(lhi_frame_read(bytes, &again, err), *err);
    REQUIRE(again.kind == f->kind && again.size == f->size, "another frame");
    if (op)
        lhi_proto_sent(p, op, LH_OK);
    return LH_OK;
}

static lh_status expect(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    (void)p, (void)op, (void)err;
    return LH_OK;
}

static bool withdraw(lhi_proto *p, lhi_net_op *op)
{
    (void)p, (void)op;
    return false;
}

static void note(lhi_net *net, const char *reason)
{
    lhi_failure_set(net->failure, net->rank, reason);
}

/* One frame and its payload; false: the connection would be closed. */
static bool take_frame(lhi_proto *p, const uint8_t **data, size_t *size)
{
    lhi_frame f;
    lh_error err = {0};
    unsigned char again[LHI_FRAME_BYTES];
    if (*size < LHI_FRAME_BYTES)
        return false;
    lh_status status = lhi_frame_read(*data, &f, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return false;
    }
    lhi_frame_write(&f, again);
    REQUIRE(memcmp(again, *data, sizeof again) == 0, "another frame");
    *data += LHI_FRAME_BYTES;
    *size -= LHI_FRAME_BYTES;
    void *into = NULL;
    lhi_net_op *op = NULL;
    lhi_kept *kept = NULL;
    status = lhi_proto_frame(p, 1, &f, &into, &op, &kept, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return false;
    }
    uint64_t payload = lhi_frame_payload(&f);
    if (payload > *size) { /* cut off within the frame */
        free(kept);
        return false;
    }
    if (into)
        memcpy(into, *data, payload);
    *data += payload;
    *size -= payload;
    return lhi_proto_filled(p, op, kept, &err) == LH_OK;
}

static void frames(const uint8_t *data, size_t size)
{
    static unsigned char bytes[N_OPS][LARGE_BYTES];
    static const lhi_carrier carrier = {nowhere, expect, withdraw};
    static const lhi_net_ops ops = {
        "fuzz", lhi_proto_send, lhi_proto_receive, lhi_proto_withdraw, note,
        NULL};
    lhi_failure failure = {0};
    lh_error err = {0};
    const lhi_net_link link = {10, 10, 1};
    size_t links_bytes = lhi_links_bytes(1);
    lhi_links *links = mmap(NULL, links_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(links != MAP_FAILED, "no memory");
    MUST(lhi_links_init(links, 1, &link, &err), err);
    lhi_proto p = {
        .net = {.ops = &ops, .n_ranks = 2, .links = links, .failure = &failure},
        .carrier = &carrier};
    MUST(lhi_proto_init(&p, &err), err);
    lhi_net_op op[N_OPS] = {{0}};
    /* Receives with tags 0 to 3, two of each size; sends with tags 4 and 5. */
    for (uint32_t i = 0; i < N_OPS; i++) {
        size_t n = i % 2 ? LARGE_BYTES : 8;
        if (i < 4)
            MUST(lhi_net_receive(&p.net, 1, i, bytes[i], n, &op[i], &err), err);
        else
            MUST(lhi_net_send(&p.net, 1, i, bytes[i], LARGE_BYTES,
                              LHI_NET_NO_LINK, 0, LHI_NET_NO_TURN, &op[i],
                              &err),
                 err);
    }
    pthread_mutex_lock(&p.lock);
    while (take_frame(&p, &data, &size))
        ;
    pthread_mutex_unlock(&p.lock);
    note(&p.net, "over");
    for (uint32_t i = 0; i < N_OPS; i++)
        lhi_net_wait(&p.net, &op[i], 1, &err);
    lhi_proto_drain(&p);
    lhi_proto_fini(&p);
    lhi_links_fini(links);
    munmap(links, links_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 8 && memcmp(data, "longhaul", 8) == 0)
        greetings(data, size);
    else
        frames(data, size);
    return 0;
}
