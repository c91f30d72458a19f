/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour of a rank over stream connections, seen from the other end: the
 * test plays the peers, frame by frame. */
#define _GNU_SOURCE
#include "test.h"
#include "virtual_time.h"

#include "base/realtime.h"
#include "runtime/transport/outgoing_frame.h"
#include "runtime/transport/protocol.h"
#include "runtime/transport/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t ms_ns = 1000000;

/* Opens rank 0 of `n`; fds[i]: rank i's end of the connection. */
static lhi_net *rank_zero(uint32_t n, int64_t silence_ns, int fds[])
{
    int ends[4] = {-1, -1, -1, -1};
    lhi_net *net = NULL;
    lh_error err = {0};
    for (uint32_t i = 1; i < n; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            abort();
        ends[i] = pair[0];
        fds[i] = pair[1];
    }
    lhi_stream_options o = {
        .name = "test", .n_ranks = n, .fds = ends, .silence_ns = silence_ns};
    CHECK_OK(lhi_net_stream(&o, &net, &err), err);
    return net;
}

static void send_frame(int fd, const lhi_frame *f, const void *payload)
{
    unsigned char bytes[LHI_FRAME_BYTES];
    lhi_frame_write(f, bytes);
    CHECK(write(fd, bytes, sizeof bytes) == sizeof bytes);
    if (payload)
        CHECK(write(fd, payload, f->size) == (ssize_t)f->size);
}

/* Reads the next frame, its payload into `payload`; false: end of stream. */
static bool read_frame(int fd, lhi_frame *f, unsigned char *payload)
{
    unsigned char bytes[LHI_FRAME_BYTES];
    lh_error err = {0};
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes)
        return false;
    CHECK_OK(lhi_frame_read(bytes, f, &err), err);
    size_t n = (size_t)lhi_frame_payload(f);
    return n == 0 || recv(fd, payload, n, MSG_WAITALL) == (ssize_t)n;
}

/* A receive posted between a message's header and its bytes gets the bytes. */
static void gets_what_is_coming(void)
{
    int fds[2];
    lhi_net *net = rank_zero(2, 0, fds);
    lhi_frame f = {
        .kind = LHI_FRAME_SMALL, .link = LHI_NET_NO_LINK, .tag = 7, .size = 4};
    char bytes[4] = "", first = 0;
    lh_error err = {0};
    lhi_net_op op = {0}, before = {0};
    /* Once this one has arrived, the next header is read very soon. */
    f.size = 1;
    send_frame(fds[1], &f, "x");
    f.size = 4;
    f.tag = 8;
    send_frame(fds[1], &f, NULL);
    CHECK_OK(lhi_net_receive(net, 1, 7, &first, 1, &before, &err), err);
    CHECK_OK(lhi_net_wait(net, &before, 0, &err), err);
    lhi_sleep_for(50 * ms_ns);
    CHECK_OK(lhi_net_receive(net, 1, 8, bytes, 4, &op, &err), err);
    CHECK(write(fds[1], "abc", 4) == 4);
    CHECK_OK(lhi_net_wait(net, &op, lhi_now_ns() + 20000 * ms_ns, &err), err);
    CHECK_STR(bytes, "abc");
    /* Also if its size differs from the message's. */
    f.tag = 9;
    send_frame(fds[1], &f, NULL);
    lhi_sleep_for(50 * ms_ns);
    CHECK_OK(lhi_net_receive(net, 1, 9, bytes, 3, &op, &err), err);
    CHECK(write(fds[1], "abc", 4) == 4);
    CHECK_INT(lhi_net_wait(net, &op, lhi_now_ns() + 20000 * ms_ns, &err),
              LH_EIO);
    CHECK_HAS(err.text, "has 4 bytes, its receive 3");
    lhi_net_close(net);
    close(fds[1]);
}

static void *close_net(void *net)
{
    lhi_net_close(net);
    return NULL;
}

/* A shutdown frame is the last one, however slowly the peer reads it. */
static void nothing_after_goodbye(void)
{
    int fds[2];
    unsigned char payload[LHI_NET_EAGER_BYTES];
    lhi_net *net = rank_zero(2, 1200 * ms_ns, fds);
    pthread_t closing;
    lhi_frame f = {0};
    unsigned n_byes = 0, n_later = 0;
    CHECK(pthread_create(&closing, NULL, close_net, net) == 0);
    for (int i = 0; i < 20; i++) { /* connected, but does not read */
        const lhi_frame ping = {.kind = LHI_FRAME_PING};
        send_frame(fds[1], &ping, NULL);
        lhi_sleep_for(50 * ms_ns);
    }
    while (read_frame(fds[1], &f, payload)) {
        n_later += n_byes > 0;
        n_byes += f.kind == LHI_FRAME_BYE;
    }
    CHECK_INT(n_byes, 1);
    CHECK_INT(n_later, 0);
    pthread_join(closing, NULL);
    close(fds[1]);
}

/* A rank that leaves a failed run reports the reason and its cause, even if
 * another rank reported it first: that report may be late. */
static void passes_on(lhi_failure_cause cause)
{
    int fds[3];
    unsigned char payload[LHI_NET_EAGER_BYTES];
    char byte;
    lhi_net *net = rank_zero(3, 0, fds);
    static const char why[] = "the roof fell in";
    lhi_frame f = {
        .kind = LHI_FRAME_ABORT, .tag = 2, .size = strlen(why), .id = cause};
    lhi_net_op op = {0};
    lh_error err = {0};
    CHECK_OK(lhi_net_receive(net, 1, 7, &byte, 1, &op, &err), err);
    send_frame(fds[2], &f, why);
    CHECK_INT(lhi_net_wait(net, &op, 0, &err), LH_EIO);
    CHECK_STR(err.text, why);
    CHECK_INT(lhi_net_lost_rank(net),
              cause == LHI_CAUSE_ERROR ? LHI_NET_NO_RANK : 2);
    CHECK_INT(lhi_net_failure_cause(net), cause);
    lhi_net_close(net);
    f = (lhi_frame){0};
    CHECK(read_frame(fds[1], &f, payload));
    CHECK_INT(f.kind, LHI_FRAME_ABORT);
    CHECK_INT(f.tag, 2);
    CHECK_INT(f.id, cause);
    CHECK(f.size == strlen(why) && memcmp(payload, why, f.size) == 0);
    CHECK(!read_frame(fds[1], &f, payload));
    close(fds[1]);
    close(fds[2]);
}

static void passes_the_reason_on(void)
{
    passes_on(LHI_CAUSE_ERROR);
    passes_on(LHI_CAUSE_LOSS);
    passes_on(LHI_CAUSE_RETURN);
}

/* If bytes of a message are lost, the sender's PINGs must not be taken for its
 * missing bytes. */
static void is_not_fed_by_pings(void)
{
    int fds[2];
    char bytes[4000];
    const lhi_frame ping = {.kind = LHI_FRAME_PING};
    lhi_net *net = rank_zero(2, 1600 * ms_ns, fds);
    lhi_frame f = {.kind = LHI_FRAME_SMALL,
                   .link = LHI_NET_NO_LINK,
                   .tag = 7,
                   .size = sizeof bytes};
    lhi_net_op op = {0};
    lh_error err = {0};
    CHECK_OK(lhi_net_receive(net, 1, 7, bytes, sizeof bytes, &op, &err), err);
    send_frame(fds[1], &f, NULL);
    /* The 84th would complete it. */
    unsigned n_pings = 0;
    lh_status status = LH_ECANCELED;
    while (status == LH_ECANCELED && n_pings++ < 80) {
        unsigned char head[LHI_FRAME_BYTES];
        lhi_frame_write(&ping, head);
        if (send(fds[1], head, sizeof head, MSG_NOSIGNAL) < 0)
            break;
        status = lhi_net_wait(net, &op, lhi_now_ns() + 100 * ms_ns, &err);
    }
    CHECK_INT(lhi_net_wait(net, &op, lhi_now_ns() + 100 * ms_ns, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 1: it sent only");
    CHECK_HAS(err.text, "some were lost");
    lhi_net_close(net);
    close(fds[1]);
}

/* A job whose ranks are all suspended, as by a batch system, continues: the
 * pause does not count as silence. */
static void survives_a_suspension(void)
{
    const lhi_frame ping = {.kind = LHI_FRAME_PING};
    const int64_t limit_ns = 2500 * ms_ns;
    int fds[2];
    char byte;
    lhi_net *net = rank_zero(2, limit_ns, fds);
    lhi_net_op op = {0};
    lh_error err = {0};
    CHECK_OK(lhi_net_receive(net, 1, 7, &byte, 1, &op, &err), err);
    for (int i = 0; i < 3; i++) {
        send_frame(fds[1], &ping, NULL);
        CHECK_INT(lhi_net_wait(net, &op, lhi_now_ns() + 100 * ms_ns, &err),
                  LH_ECANCELED);
        virtual_time_suspend(limit_ns + 1000 * ms_ns);
        CHECK_INT(lhi_net_wait(net, &op, lhi_now_ns() + 100 * ms_ns, &err),
                  LH_ECANCELED);
    }
    close(fds[1]);
    CHECK_INT(lhi_net_wait(net, &op, 0, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 1: its connection to rank 0 was");
    lhi_net_close(net);
}

/* A rank that sends nothing ends the run after the default limit, not before;
 * another rank, which sends PINGs, gets the reason. */
static void names_the_silent_rank(void)
{
    const int64_t limit_ns = LHI_LOCAL_SILENCE_NS;
    const lhi_frame ping = {.kind = LHI_FRAME_PING};
    int fds[3];
    unsigned char payload[LHI_NET_EAGER_BYTES] = "";
    char byte;
    const int64_t begin_ns = lhi_now_ns();
    lhi_net *net = rank_zero(3, limit_ns, fds);
    lhi_frame f = {0};
    lhi_net_op op = {0};
    lh_error err = {0};
    CHECK_OK(lhi_net_receive(net, 2, 7, &byte, 1, &op, &err), err);
    lh_status status = LH_ECANCELED;
    while (status == LH_ECANCELED && lhi_now_ns() - begin_ns < 2 * limit_ns) {
        send_frame(fds[1], &ping, NULL);
        status = lhi_net_wait(net, &op, lhi_now_ns() + 100 * ms_ns, &err);
    }
    const int64_t took_ns = lhi_now_ns() - begin_ns;
    CHECK_INT(status, LH_EIO);
    CHECK_HAS(err.text, "rank 2: silent for 10.");
    CHECK_HAS(err.text, "as measured by rank 0");
    CHECK(took_ns > limit_ns && took_ns < limit_ns + limit_ns / 8 + ms_ns);
    while (f.kind != LHI_FRAME_ABORT && read_frame(fds[1], &f, payload))
        ;
    CHECK_INT(f.kind, LHI_FRAME_ABORT);
    CHECK_INT(f.tag, 2);
    CHECK_HAS((const char *)payload, "rank 2: silent for 10.");
    lhi_net_close(net);
    close(fds[1]);
    close(fds[2]);
}

/* Receiver of an aborted message. */
static void *receives_large(void *of)
{
    lhi_net *net = of;
    enum { N = 20 << 20 };
    static char text[512];
    unsigned char *bytes = malloc(N);
    lh_error err = {0};
    lhi_net_op op = {0};
    CHECK(bytes != NULL);
    lh_status status = lhi_net_receive(net, 0, 1, bytes, N, &op, &err);
    if (status == LH_OK)
        status = lhi_net_wait(net, &op, 0, &err);
    snprintf(text, sizeof text, "%s", status == LH_OK ? "" : err.text);
    lhi_net_close(net);
    free(bytes);
    return text;
}

/* A rank fails in the middle of a message: the peer gets the reason, not a
 * missing seal. */
static void breaks_off(void)
{
    enum { N = 20 << 20 };
    static const unsigned char keys[2 * LHI_FRAME_MAC_KEY_BYTES];
    unsigned char *bytes = calloc(1, N);
    CHECK(bytes != NULL);
    for (int sealed = 0; sealed < 2; sealed++) {
        lhi_net *nets[2] = {NULL, NULL};
        lh_error err = {0};
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            abort();
        for (uint32_t i = 0; i < 2; i++) {
            const int ends[] = {i ? pair[1] : -1, i ? -1 : pair[0]};
            lhi_stream_options o = {.name = "test",
                                    .rank = i,
                                    .n_ranks = 2,
                                    .fds = ends,
                                    .keys = sealed ? keys : NULL};
            lh_status status = lhi_net_stream(&o, &nets[i], &err);
            if (status == LH_EUNSUPPORTED) {
                printf("SKIPPED: %s\n", err.text);
                close(pair[0]);
                close(pair[1]);
                free(bytes);
                return;
            }
            CHECK_OK(status, err);
        }
        pthread_t other;
        lhi_net_op op = {0};
        CHECK_OK(lhi_net_send(nets[0], 1, 1, bytes, N, LHI_NET_NO_LINK, 0,
                              LHI_NET_NO_TURN, &op, &err),
                 err);
        CHECK(pthread_create(&other, NULL, receives_large, nets[1]) == 0);
        lhi_sleep_for(2 * ms_ns);
        lhi_net_abort(nets[0], "the roof fell in");
        lhi_net_wait(nets[0], &op, 0, &err);
        memset(bytes, 1, N); /* no longer read */
        lhi_net_close(nets[0]);
        void *text = NULL;
        pthread_join(other, &text);
        /* Or it arrived before. */
        CHECK_MSG(strcmp(text, "") == 0 ||
                      strcmp(text, "rank 0: the roof fell in") == 0,
                  "sealed %d: '%s'", sealed, (char *)text);
    }
    free(bytes);
}

/* An empty message is withdrawn while it waits behind a half-sealed one, which
 * still gets its seal. */
static void withdraws_what_is_empty(void)
{
    static const unsigned char key[LHI_FRAME_MAC_KEY_BYTES], payload[6000];
    unsigned char
        came[LHI_FRAME_BYTES + sizeof payload + 2 * LHI_FRAME_MAC_BYTES];
    lhi_frame_mac *out = NULL, *in = NULL;
    lh_error err = {0};
    int pair[2];
    lh_status status = lhi_frame_mac_make(key, true, &out, &err);
    if (status == LH_EUNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return;
    }
    CHECK_OK(status, err);
    CHECK_OK(lhi_frame_mac_make(key, true, &in, &err), err);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        abort();
    lhi_outgoing_frame first = {.payload = payload,
                                .payload_size = sizeof payload,
                                .size = sizeof came};
    lhi_outgoing_frame empty = {.payload = payload,
                                .size = lhi_frame_head_bytes(out)};
    while (first.sent < first.size) {
        ssize_t n = lhi_outgoing_frame_write(&first, pair[0], out, 4000);
        CHECK(n > 0);
        first.sent += n > 0 ? (size_t)n : first.size;
        lhi_outgoing_frame_cancel(&empty, out);
    }
    CHECK(recv(pair[1], came, sizeof came, MSG_WAITALL) == sizeof came);
    lhi_frame_mac_begin(in, LHI_FRAME_MAC_HEADER);
    lhi_frame_mac_add(in, came, LHI_FRAME_BYTES);
    CHECK(lhi_frame_mac_verify(in, came + LHI_FRAME_BYTES));
    lhi_frame_mac_begin(in, LHI_FRAME_MAC_PAYLOAD);
    lhi_frame_mac_add(in, payload, sizeof payload);
    CHECK(lhi_frame_mac_verify(in, came + sizeof came - LHI_FRAME_MAC_BYTES));
    lhi_frame_mac_free(out);
    lhi_frame_mac_free(in);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    RUN_VIRTUAL(gets_what_is_coming);
    RUN_VIRTUAL(nothing_after_goodbye);
    RUN_VIRTUAL(passes_the_reason_on);
    RUN_VIRTUAL(is_not_fed_by_pings);
    RUN_VIRTUAL(survives_a_suspension);
    RUN_VIRTUAL(names_the_silent_rank);
    RUN_VIRTUAL(breaks_off);
    RUN_VIRTUAL(withdraws_what_is_empty);
    return test_summary();
}
