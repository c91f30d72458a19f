/* SPDX-License-Identifier: Apache-2.0 */
/* Seals of frames: their computation, and that each is valid in one position
 * only. */
#define _GNU_SOURCE
#include "test.h"

#include "runtime/transport/stream.h"
#include "runtime/transport/wire_format.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char key[2 * LHI_FRAME_MAC_KEY_BYTES] = {1, 2, 3};

/* AES-256-GMAC with the key 00 01 .. 1f and the nonces from
 * docs/formats/wire.md, from
 *
 *     openssl mac -cipher AES-256-GCM -macopt hexkey:.. \
 *                 -macopt hexiv:NONCE GMAC */
static const struct {
    bool upwards;
    uint32_t frame;
    lhi_frame_mac_part part;
    const char *bytes; /* NULL: 00 01 .. 2f */
    const char *seal;
} known[] = {
    {true, 1, LHI_FRAME_MAC_HEADER, NULL, "e6dd49be44e84490eae2df992c33c8af"},
    {true, 1, LHI_FRAME_MAC_PAYLOAD, "abc", "de70edb5d39fc28c3f2005e9b24ed45c"},
    {true, 1, LHI_FRAME_MAC_VOID, "", "20b2d3ae3cf9e87764d0099f26de949f"},
    {true, 2, LHI_FRAME_MAC_HEADER, NULL, "e1209ee776bb37ba5fc32324e8fe6e23"},
    {false, 1, LHI_FRAME_MAC_HEADER, NULL, "ea3c0d87e12431ce51fd51f79511f7bd"},
    {false, 258, LHI_FRAME_MAC_PAYLOAD, "abc",
     "f818f8e1e9ecce109dbba464d5415776"},
};

static void are_those_of_the_format(void)
{
    unsigned char count[48], seal[LHI_FRAME_MAC_BYTES];
    char text[2 * LHI_FRAME_MAC_BYTES + 1];
    lh_error err = {0};
    for (unsigned i = 0; i < sizeof count; i++)
        count[i] = (unsigned char)i;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        const char *bytes = known[k].bytes;
        lhi_frame_mac *seals = NULL;
        CHECK_OK(lhi_frame_mac_make(count, known[k].upwards, &seals, &err),
                 err);
        for (uint32_t f = 0; f < known[k].frame; f++)
            lhi_frame_mac_begin(seals, LHI_FRAME_MAC_HEADER);
        if (known[k].part != LHI_FRAME_MAC_HEADER)
            lhi_frame_mac_begin(seals, known[k].part);
        lhi_frame_mac_add(seals, bytes ? (const void *)bytes : count,
                          bytes ? strlen(bytes) : sizeof count);
        lhi_frame_mac_end(seals, seal);
        for (size_t i = 0; i < sizeof seal; i++)
            snprintf(text + 2 * i, 3, "%02x", seal[i]);
        CHECK_STR(text, known[k].seal);
        lhi_frame_mac_free(seals);
    }
}

/* ---- misplaced frames ---- */

enum {
    HEAD = LHI_FRAME_BYTES + LHI_FRAME_MAC_BYTES,
    WHOLE = HEAD + 1 + LHI_FRAME_MAC_BYTES /* a message with one byte */
};

/* Opens rank 0, and the peer end of its connection to rank 1. */
static lhi_net *rank_zero(int *fd)
{
    int pair[2];
    lhi_net *net = NULL;
    lh_error err = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        abort();
    const int ends[] = {-1, pair[0]};
    lhi_stream_options o = {
        .name = "test", .n_ranks = 2, .fds = ends, .keys = key};
    CHECK_OK(lhi_net_stream(&o, &net, &err), err);
    *fd = pair[1];
    return net;
}

/* Writes rank 1's frame: a message with one byte. */
static void write_small(lhi_frame_mac *seals, uint64_t tag, char byte,
                        unsigned char out[WHOLE])
{
    const lhi_frame f = {.kind = LHI_FRAME_SMALL,
                         .link = LHI_NET_NO_LINK,
                         .tag = tag,
                         .size = 1};
    lhi_frame_write(&f, out);
    lhi_frame_mac_begin(seals, LHI_FRAME_MAC_HEADER);
    lhi_frame_mac_add(seals, out, LHI_FRAME_BYTES);
    lhi_frame_mac_end(seals, out + LHI_FRAME_BYTES);
    out[HEAD] = (unsigned char)byte;
    lhi_frame_mac_begin(seals, LHI_FRAME_MAC_PAYLOAD);
    lhi_frame_mac_add(seals, out + HEAD, 1);
    lhi_frame_mac_end(seals, out + HEAD + 1);
}

/* Rank 0 waits for a message with tag 7: an error that contains `want`, or this
 * byte. */
static void receive_one(lhi_net *net, char expected, const char *want)
{
    lh_error err = {0};
    char byte = 0;
    lhi_net_op op = {0};
    lh_status status = lhi_net_receive(net, 1, 7, &byte, 1, &op, &err);
    if (status == LH_OK)
        status = lhi_net_wait(net, &op, 0, &err);
    if (want) {
        CHECK(status == LH_EIO && strstr(err.text, want));
        return;
    }
    CHECK_OK(status, err);
    CHECK(byte == expected);
}

static const char changed[] = "it was changed in transit";

/* Manipulation by the attacker. */
typedef enum trick { NONE, TWICE, SWAPPED, LEFT_OUT, BACK, MOVED } trick;

/* Sends two messages from rank 1, manipulated by an attacker in between. */
static void play(trick what)
{
    unsigned char one[WHOLE], two[WHOLE], mine[WHOLE];
    int fd;
    char byte = 'a';
    lhi_net_op op = {0};
    lh_error err = {0};
    lhi_frame_mac *seals = NULL;
    lhi_net *net = rank_zero(&fd);
    CHECK_OK(
        lhi_frame_mac_make(key + LHI_FRAME_MAC_KEY_BYTES, false, &seals, &err),
        err);
    write_small(seals, 7, 'a', one);
    write_small(seals, 7, 'b', two);
    const unsigned char *first = one, *second = two;
    switch (what) {
    case TWICE:
        second = one;
        break;
    case SWAPPED:
        first = two;
        second = one;
        break;
    case LEFT_OUT:
        first = two;
        break;
    case BACK: /* rank 0's own frame */
        CHECK_OK(lhi_net_send(net, 1, 7, &byte, 1, LHI_NET_NO_LINK, 0,
                              LHI_NET_NO_TURN, &op, &err),
                 err);
        CHECK(recv(fd, mine, WHOLE, MSG_WAITALL) == WHOLE);
        first = mine;
        break;
    case MOVED: /* a payload with its seal, in another frame */
        memcpy(two + HEAD, one + HEAD, WHOLE - HEAD);
        break;
    case NONE:
        break;
    }
    CHECK(send(fd, first, WHOLE, MSG_NOSIGNAL) == WHOLE);
    bool at_once = what == SWAPPED || what == LEFT_OUT || what == BACK;
    if (!at_once) /* before the second, which may end all */
        receive_one(net, 'a', NULL);
    ssize_t sent = send(fd, second, WHOLE, MSG_NOSIGNAL);
    (void)sent; /* the receiver may have left already */
    receive_one(net, 'b', what == NONE ? NULL : changed);
    close(fd);
    lhi_net_close(net);
    lhi_frame_mac_free(seals);
}

static void come_as_they_were_sent(void)
{
    play(NONE);
}

static void are_good_once(void)
{
    play(TWICE);
}

static void are_good_in_order(void)
{
    play(SWAPPED);
    play(LEFT_OUT);
    play(MOVED);
}

static void are_good_one_way(void)
{
    play(BACK);
}

int main(void)
{
    lhi_frame_mac *seals = NULL;
    lh_error err = {0};
    if (lhi_frame_mac_make(key, true, &seals, &err) == LH_EUNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    lhi_frame_mac_free(seals);
    RUN(are_those_of_the_format);
    RUN(come_as_they_were_sent);
    RUN(are_good_once);
    RUN(are_good_in_order);
    RUN(are_good_one_way);
    return test_summary();
}
