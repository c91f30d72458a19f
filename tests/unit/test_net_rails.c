/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with several connections to each other: the conformance suite,
 * authentication of rails, and the end of runs. Faults on rails are in
 * test_net_faults.c, on interfaces in tests/net/rails.sh. */
#define _GNU_SOURCE
#include "base/realtime.h"
#include "net_conform.h"
#include "net_processes.h"
#include "runtime/transport/frame_mac.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/rails.h"
#include "runtime/transport/sockets.h"
#include "runtime/transport/wire_format.h"
#include "virtual_time.h"

#include <arpa/inet.h>
#include <limits.h>
#include <longhaul/experimental/transport.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t ms_ns = 1000000;
static const char secret[] = "0123456789abcdef0123456789abcdef";

/* Join options of the ranks. */
typedef struct joining {
    uint16_t port;
    int64_t join_ns, silence_ns;
    const char *rails[2][3]; /* for even ranks, for odd ones */
} joining;

static joining usual(void)
{
    return (joining){
        .port = free_port(),
        .rails = {{"127.0.0.1", "127.0.0.2"}, {"127.0.0.1", "127.0.0.2"}}};
}

static lh_status join(void *how, uint32_t rank, uint32_t n, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    const joining *j = how;
    lhi_tcp_options o = {.rank = rank,
                         .n_ranks = n,
                         .port = j->port,
                         .job = "test",
                         .secret = secret,
                         .secret_size = strlen(secret),
                         .n_links = n_links,
                         .links = links,
                         .join_ns = j->join_ns,
                         .silence_ns = j->silence_ns,
                         .rails = j->rails[rank % 2]};
    while (o.n_rails < 3 && o.rails[o.n_rails])
        o.n_rails++;
    return lhi_net_tcp(&o, out, err);
}

static lh_status run_rails(uint32_t n, uint32_t n_links,
                           const lhi_net_link *links, lhi_rank_main *rank_main,
                           void *context, lhi_rank_result *results,
                           lh_error *err)
{
    joining j = usual();
    return run_processes(n, n_links, links, join, &j, rank_main, context,
                         results, err);
}

static void conforms(void)
{
    processes_conform("rails", run_rails);
}

/* ---- joining ---- */

static lh_status nothing(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    (void)net, (void)context, (void)result, (void)size, (void)err;
    return LH_OK;
}

/* Checks that two ranks fail to connect; `text` is the reason. */
static void refused(const joining *j, const char *text)
{
    joining how = *j;
    lh_error err = {0};
    how.port = free_port();
    how.join_ns = 1000 * ms_ns;
    CHECK(run_processes(2, 0, NULL, join, &how, nothing, NULL, NULL, &err) !=
          LH_OK);
    CHECK_HAS(err.text, text);
}

static void which_addresses(void)
{
    joining j = usual();
    lh_error err = {0};
    j.rails[0][0] = j.rails[1][0] = "lo";
    j.rails[0][1] = j.rails[1][1] = "127.0.0.2";
    CHECK_OK(run_processes(2, 0, NULL, join, &j, nothing, NULL, NULL, &err),
             err);
    j.port = free_port();
    j.rails[0][0] = j.rails[1][0] = "127.0.0.0/8"; /* 127.0.0.1 */
    CHECK_OK(run_processes(2, 0, NULL, join, &j, nothing, NULL, NULL, &err),
             err);
    j.rails[0][0] = j.rails[1][0] = "no such thing";
    refused(&j,
            ", rail 0: 'no such thing' is neither an interface of this host");
    j.rails[0][0] = "lo"; /* rank 1's alone: rank 0 gets its reason */
    j.port = free_port();
    rank_process p[2] = {{0}};
    for (uint32_t i = 0; i < 2; i++)
        rank_process_start(&p[i], i, 2, 0, NULL, join, &j, nothing, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        rank_process_end(&p[i]);
        CHECK_HAS(p[i].text, "rank 1, rail 0: 'no such thing' is neither");
        free(p[i].result);
    }
    j.rails[0][0] = j.rails[1][0] = "203.0.113.0/24";
    refused(&j, ", rail 0: this host has no address in 203.0.113.0/24");
    j.rails[0][0] = j.rails[1][0] = "127.0.0.2";
    refused(&j, ": rails 0 and 1 have the same address");
    static const char *const of_no_host[] = {"0.0.0.0", "::", "224.0.0.1",
                                             "255.255.255.255", "ff02::1"};
    for (size_t i = 0; i < sizeof of_no_host / sizeof *of_no_host; i++) {
        j.rails[0][0] = j.rails[1][0] = of_no_host[i];
        refused(&j, "is not a unicast address");
    }
}

static void other_counts(void)
{
    joining j = usual();
    j.rails[1][1] = NULL;
    refused(&j, "rank 0 has 2 rails, rank 1 has 1");
    j = usual();
    j.rails[1][0] = NULL;
    refused(&j, "rank 0 has 2 rails, rank 1 has 0");
}

/* ---- later connections ---- */

static lh_status swap(lhi_net *net, uint64_t tag, lh_error *err)
{
    enum { N = 300000 };
    static unsigned char out[N], in[N];
    uint32_t peer = 1 - lhi_net_rank(net);
    lhi_net_op send = {0}, receive = {0};
    for (int i = 0; i < N; i++)
        out[i] = (unsigned char)(i * 31 + (int)tag);
    LHI_TRY(lhi_net_receive(net, peer, tag, in, N, &receive, err));
    LHI_TRY(lhi_net_send(net, peer, tag, out, N, LHI_NET_NO_LINK, lhi_now_ns(),
                         LHI_NET_NO_TURN, &send, err));
    LHI_TRY(lhi_net_wait(net, &receive, 0, err));
    LHI_TRY(lhi_net_wait(net, &send, 0, err));
    EXPECT(memcmp(in, out, N) == 0);
    return LH_OK;
}

static int knock(const struct sockaddr_in *door)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval most = {20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(fd, (const struct sockaddr *)door, sizeof *door))
        abort();
    return fd;
}

static lhi_handshake_message greeting(lhi_handshake_kind kind)
{
    lhi_handshake_message h = {.kind = kind, .rank = 1, .n_ranks = 2};
    lhi_compute_job_digest("test", h.job);
    return h;
}

/* Connects as rank 1 with a proof from the label and the job's secret, but
 * without having joined; returns whether it is rejected. */
static bool is_refused(const struct sockaddr_in *door, const char *label)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_message h = greeting(LHI_HANDSHAKE_RAIL), answer;
    lhi_handshake shake = {.client = 1, .n_ranks = 2};
    lh_error err;
    int fd = knock(door);
    memset(h.nonce, 7, sizeof h.nonce);
    lhi_handshake_write(&h, bytes);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes ||
        recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
        lhi_handshake_read(bytes, &answer, &err) != LH_OK ||
        answer.kind != LHI_HANDSHAKE_CHALLENGE)
        abort();
    memcpy(shake.client_nonce, h.nonce, sizeof h.nonce);
    memcpy(shake.server_nonce, answer.nonce, sizeof answer.nonce);
    memcpy(shake.job, h.job, sizeof h.job);
    h = greeting(LHI_HANDSHAKE_PROOF);
    lhi_handshake_compute_mac(secret, strlen(secret), label, &shake, NULL, 0,
                              h.mac);
    lhi_handshake_write(&h, bytes);
    bool told = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes;
    bool closed = recv(fd, bytes, sizeof bytes, MSG_WAITALL) <= 0;
    close(fd);
    return told && closed;
}

/* Rank 0 finds its own listening ports and floods them. */
static lh_status besieged(lhi_net *net, void *context, char **result,
                          size_t *size, lh_error *err)
{
    enum { MANY = 100 };
    int doors = 0, strangers[MANY], n_strangers = 0;
    (void)context, (void)result, (void)size;
    LHI_TRY(swap(net, 1, err));
    for (int fd = 3; fd < 64 && lhi_net_rank(net) == 0; fd++) {
        struct sockaddr_in a;
        socklen_t a_size = sizeof a;
        int listens = 0;
        socklen_t l_size = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &l_size) ||
            !listens || getsockname(fd, (struct sockaddr *)&a, &a_size) ||
            a.sin_family != AF_INET)
            continue;
        doors++;
        EXPECT(is_refused(&a, "rail client"));
        EXPECT(is_refused(&a, "client"));
        for (int i = 0; i < MANY / 2; i++) {
            static const char noise[200] = "GET / HTTP/1.1";
            strangers[n_strangers] = knock(&a);
            EXPECT(send(strangers[n_strangers++], noise, (size_t)(i % 3) * 60,
                        MSG_NOSIGNAL) >= 0);
        }
    }
    EXPECT(lhi_net_rank(net) != 0 || doors == 2);
    LHI_TRY(swap(net, 2, err));
    while (n_strangers > 0)
        close(strangers[--n_strangers]);
    return swap(net, 3, err);
}

static void strangers(void)
{
    joining j = usual();
    lh_error err = {0};
    CHECK_OK(run_processes(2, 0, NULL, join, &j, besieged, NULL, NULL, &err),
             err);
}

/* ---- end of runs ---- */

/* `context`: counts the joined ranks. */
static lh_status wait_for_next(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    (void)result, (void)size;
    char byte;
    lhi_net_op op = {0};
    count_rank(context);
    uint32_t peer = (lhi_net_rank(net) + 1) % lhi_net_n_ranks(net);
    LHI_TRY(lhi_net_receive(net, peer, 99, &byte, 1, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

/* Sends a signal to one of three waiting ranks; checks the others' errors. */
static void one_gets(uint32_t odd, int number, const char *text, bool waits)
{
    joining j = usual();
    rank_process p[3] = {{0}};
    uint32_t *joined = count_of_ranks();
    j.silence_ns = 2500 * ms_ns;
    for (uint32_t i = 0; i < 3; i++)
        rank_process_start(&p[i], i, 3, 0, NULL, join, &j, wait_for_next,
                           joined);
    await_ranks(joined, 3);
    int64_t begin_ns = lhi_now_ns();
    kill(p[odd].pid, number);
    for (uint32_t i = 0; i < 3; i++)
        if (i != odd)
            rank_process_end(&p[i]);
    int64_t took_ns = lhi_now_ns() - begin_ns;
    kill(p[odd].pid, SIGKILL);
    rank_process_end(&p[odd]);
    char said[100];
    snprintf(said, sizeof said, "rank %u: %s", odd, text);
    for (uint32_t i = 0; i < 3; i++)
        if (i != odd)
            CHECK_MSG(strstr(p[i].text, said), "rank %u: '%s', without '%s'", i,
                      p[i].text, said);
    CHECK_MSG(!waits || took_ns > 2400 * ms_ns, "after %.3f s",
              (double)took_ns * 1e-9);
}

/* Ranks that dial it are refused, and report that to the others. */
static void killed(void)
{
    one_gets(0, SIGKILL,
             "it has ended without a shutdown: it refuses the rails of rank",
             false);
}

static void silent(void)
{
    one_gets(1, SIGSTOP, "rank ", true);
}

/* The last rank only dials: the others check whether it still listens. */
static void killed_last(void)
{
    one_gets(2, SIGKILL,
             "it has ended without a shutdown: it refuses the rails of rank",
             false);
}

/* A rank repeatedly closes all its rails: they reconnect, and nothing is lost.
 */
static lh_status cuts(lhi_net *net, void *context, char **result, size_t *size,
                      lh_error *err)
{
    (void)context, (void)result, (void)size;
    for (uint64_t tag = 1; tag <= 5; tag++) {
        for (int fd = 3; fd < 64 && lhi_net_rank(net) == tag % 2; fd++) {
            struct sockaddr_storage a;
            socklen_t a_size = sizeof a;
            if (getpeername(fd, (struct sockaddr *)&a, &a_size) == 0 &&
                a.ss_family == AF_INET)
                shutdown(fd, SHUT_RDWR);
        }
        LHI_TRY(swap(net, tag, err));
    }
    return LH_OK;
}

static void come_back(void)
{
    joining j = usual();
    lh_error err = {0};
    CHECK_OK(run_processes(2, 0, NULL, join, &j, cuts, NULL, NULL, &err), err);
}

/* ---- segments ---- */

/* A fake rank 1 that sends arbitrary segments over an authenticated rail. */
typedef struct speaker {
    struct sockaddr_in door;
    unsigned char key[LHI_MAC_BYTES];
    lhi_frame_mac *seals;
    int fd;
} speaker;

static void say_hello(int fd, const lhi_handshake_message *h)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_write(h, bytes);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes)
        abort();
}

static lhi_handshake_message hear_hello(int fd)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_message h;
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
        lhi_handshake_read(bytes, &h, NULL) != LH_OK)
        abort();
    return h;
}

static void introduce(speaker *s)
{
    lhi_handshake_message h = greeting(LHI_HANDSHAKE_RAIL);
    lhi_handshake shake = {.client = 1, .n_ranks = 2};
    unsigned char key[LHI_FRAME_MAC_KEY_BYTES];
    s->fd = knock(&s->door);
    memset(h.nonce, 9, sizeof h.nonce);
    say_hello(s->fd, &h);
    memcpy(shake.client_nonce, h.nonce, sizeof h.nonce);
    memcpy(shake.server_nonce, hear_hello(s->fd).nonce, sizeof h.nonce);
    memcpy(shake.job, h.job, sizeof h.job);
    h = greeting(LHI_HANDSHAKE_PROOF);
    lhi_handshake_compute_mac(s->key, sizeof s->key, "rail client", &shake,
                              NULL, 0, h.mac);
    say_hello(s->fd, &h);
    if (hear_hello(s->fd).kind != LHI_HANDSHAKE_WELCOME)
        abort();
    lhi_handshake_compute_mac(s->key, sizeof s->key, "rail frames", &shake,
                              NULL, 0, key);
    if (lhi_frame_mac_make(key, false, &s->seals, NULL) != LH_OK)
        abort();
}

static void say_segment(speaker *s, uint64_t number, const void *bytes,
                        uint32_t size)
{
    unsigned char head[LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES],
        tail[LHI_FRAME_MAC_BYTES];
    const lhi_rail_head h = {
        .kind = LHI_RAIL_SEGMENT, .size = size, .number = number};
    lhi_rail_head_write(&h, head);
    lhi_frame_mac_begin(s->seals, LHI_FRAME_MAC_HEADER);
    lhi_frame_mac_add(s->seals, head, LHI_RAIL_HEAD);
    lhi_frame_mac_end(s->seals, head + LHI_RAIL_HEAD);
    send(s->fd, head, sizeof head, MSG_NOSIGNAL);
    if (!size)
        return;
    lhi_frame_mac_begin(s->seals, LHI_FRAME_MAC_PAYLOAD);
    lhi_frame_mac_add(s->seals, bytes, size);
    lhi_frame_mac_end(s->seals, tail);
    send(s->fd, bytes, size, MSG_NOSIGNAL);
    send(s->fd, tail, sizeof tail, MSG_NOSIGNAL);
}

/* Waits until the other end has everything before that number. */
static void await(const speaker *s, uint64_t number)
{
    unsigned char bytes[LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES];
    lhi_rail_head h = {0};
    while (h.acknowledged < number)
        if (recv(s->fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
            lhi_rail_head_read(bytes, &h, NULL) != LH_OK)
            abort();
}

enum { N_LATER = 2 * LHI_RAIL_WINDOW };

static void *speak(void *of)
{
    speaker *s = of;
    introduce(s);
    say_segment(s, 2, "gh", 2); /* before its turn */
    say_segment(s, 0, "abc", 3);
    say_segment(s, 0, "xxx", 3); /* duplicate, delivered or not */
    say_segment(s, 2, "xx", 2);
    say_segment(s, 1, "def", 3);
    say_segment(s, 1, "xxx", 3);
    for (uint64_t i = 0; i < N_LATER; i++) { /* wraps around, with duplicates */
        say_segment(s, 3 + i, ".", 1);
        if (i % 500 == 0)
            await(s, 3 + i);
        if (i % 100 == 50)
            say_segment(s, 3 + i / 2, "x", 1);
    }
    say_segment(s, 3 + N_LATER, NULL, 0);
    return NULL;
}

/* Opens the test's end of a rail to the speaker, which runs in its own thread;
 * the stream is fds[1]. */
static lhi_rails *open_to(speaker *s, void *(*speaks)(void *),
                          pthread_t *thread, lhi_failure *failure, int fds[2])
{
    socklen_t size = sizeof s->door;
    int listener =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->door = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&s->door, size) ||
        listen(listener, 4) ||
        getsockname(listener, (struct sockaddr *)&s->door, &size))
        abort();
    unsigned char addresses[2 * LHI_ADDRESS_BYTES], keys[2 * LHI_MAC_BYTES];
    memset(keys, 3, sizeof keys);
    memcpy(s->key, keys, sizeof s->key);
    lhi_address_write((struct sockaddr *)&s->door, addresses);
    lhi_address_write((struct sockaddr *)&s->door,
                      addresses + LHI_ADDRESS_BYTES);
    lhi_rails_options o = {.n_ranks = 2,
                           .n_rails = 1,
                           .listeners = &listener,
                           .addresses = addresses,
                           .keys = keys,
                           .failure = failure};
    lhi_compute_job_digest("test", o.job);
    lhi_rails *rails = NULL;
    lh_error err = {0};
    if (pthread_create(thread, NULL, speaks, s))
        abort();
    CHECK_OK(lhi_rails_open(&o, &rails, fds, &err), err);
    return rails;
}

/* Each segment is delivered once and in order, for any arrival order. */
static void segments(void)
{
    speaker s = {0};
    lhi_failure failure = {0};
    int fds[2];
    pthread_t thread;
    lhi_rails *rails = open_to(&s, speak, &thread, &failure, fds);
    static char got[N_LATER + 100], want[N_LATER + 8];
    memset(want, '.', sizeof want);
    memcpy(want, "abcdefgh", 8);
    ssize_t n = recv(fds[1], got, sizeof got, MSG_WAITALL); /* up to its end */
    CHECK_INT(n, sizeof want);
    CHECK(memcmp(got, want, sizeof want) == 0);
    pthread_join(thread, NULL);
    lhi_rails_statistics seen;
    lhi_rails_read_statistics(rails, &seen);
    CHECK_INT(seen.n_duplicates, 3 + (N_LATER + 49) / 100);
    close(fds[1]);
    close(s.fd);
    lhi_rails_close(rails);
    lhi_frame_mac_free(s.seals);
}

/* Sends keep-alives and reads nothing until the rail is closed. */
static void *say_alive(void *of)
{
    speaker *s = of;
    unsigned char bytes[LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES];
    const lhi_rail_head h = {.kind = LHI_RAIL_ALIVE};
    introduce(s);
    do {
        lhi_rail_head_write(&h, bytes);
        lhi_frame_mac_begin(s->seals, LHI_FRAME_MAC_HEADER);
        lhi_frame_mac_add(s->seals, bytes, LHI_RAIL_HEAD);
        lhi_frame_mac_end(s->seals, bytes + LHI_RAIL_HEAD);
        lhi_sleep_for(20 * ms_ns);
    } while (send(s->fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0);
    return NULL;
}

/* Leaves a failed run while the peer reads nothing and a rail has written part
 * of a segment: everything is freed exactly once. */
static void leaves_in_the_middle(void)
{
    static const char much[LHI_RAIL_SEGMENT_BYTES];
    speaker s = {0};
    lhi_failure failure = {0};
    int fds[2];
    pthread_t thread;
    lhi_rails *rails = open_to(&s, say_alive, &thread, &failure, fds);
    struct pollfd room = {.fd = fds[1], .events = POLLOUT};
    while (poll(&room, 1, 300) > 0)
        send(fds[1], much, sizeof much, MSG_DONTWAIT | MSG_NOSIGNAL);
    lhi_failure_set(&failure, 1, "it takes nothing");
    close(fds[1]);
    lhi_rails_close(rails);
    pthread_join(thread, NULL);
    close(s.fd);
    lhi_frame_mac_free(s.seals);
}

static void heads(void)
{
    static const unsigned char want[LHI_RAIL_HEAD] = {
        'L', 'R', LHI_WIRE_VERSION, 1, 0x10, 0x27, 0, 0, 5, 4, 3, 2, 1, 0, 0,
        0,   7};
    const lhi_rail_head h = {.kind = LHI_RAIL_SEGMENT,
                             .size = 10000,
                             .number = 0x0102030405,
                             .acknowledged = 7};
    unsigned char bytes[LHI_RAIL_HEAD];
    lhi_rail_head got;
    lh_error err = {0};
    lhi_rail_head_write(&h, bytes);
    CHECK(memcmp(bytes, want, sizeof bytes) == 0);
    CHECK_OK(lhi_rail_head_read(bytes, &got, &err), err);
    CHECK(memcmp(&got, &h, sizeof got) == 0);
    /* Position, byte: another first letter, version, kind; too large; a
     * keep-alive with a number, or with bytes. */
    static const unsigned char wrong[][4] = {{0, 'X', 1, 'R'}, {2, 1, 1, 'R'},
                                             {3, 3, 1, 'R'},   {3, 0, 1, 'R'},
                                             {6, 1, 7, 0},     {3, 2, 1, 'R'}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(bytes, want, sizeof bytes);
        bytes[wrong[i][0]] = wrong[i][1];
        bytes[wrong[i][2]] = wrong[i][3];
        CHECK_INT(lhi_rail_head_read(bytes, &got, &err), LH_EIO);
    }
}

/* ---- the public interface ---- */

static lh_transport_options public_options(uint16_t port, uint32_t rank)
{
    static const char *const rails[] = {"127.0.0.1", "127.0.0.2"};
    return (lh_transport_options){.size = sizeof(lh_transport_options),
                                  .rank = rank,
                                  .n_ranks = 2,
                                  .port = port,
                                  .job = "public",
                                  .secret = secret,
                                  .secret_bytes = strlen(secret),
                                  .n_rails = 2,
                                  .rails = rails};
}

/* Rank 1: returns a large and a small message, then waits for one that rank 0
 * never sends. */
static void *echo(void *of)
{
    lh_transport_options o = public_options(*(uint16_t *)of, 1);
    lh_transport *t = NULL;
    lh_error err = {0};
    static unsigned char bytes[300000];
    CHECK_OK(lh_transport_join(&o, &t, &err), err);
    for (size_t n = sizeof bytes; t && n; n = n > 8 ? 8 : 0) {
        CHECK_OK(lh_transport_receive(t, 0, n, n, bytes, &err), err);
        CHECK_OK(lh_transport_send(t, 0, n, bytes, n, &err), err);
    }
    CHECK_INT(lh_transport_receive(t, 0, 5, 1, bytes, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 0: a pass has failed");
    lh_transport_free(t);
    return NULL;
}

/* Returns a socket that listens at a free port of 127.0.0.1, and the port. */
static int make_listener(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 8) == 0 &&
          getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void public_messages(void)
{
    uint16_t port;
    const int listener = make_listener(&port);
    lh_transport_options o = public_options(port, 0);
    lh_transport *t = NULL;
    lh_error err = {0};
    pthread_t other;
    o.listener = listener; /* at the port, where no other can listen */
    pthread_create(&other, NULL, echo, &port);
    CHECK_OK(lh_transport_join(&o, &t, &err), err);
    CHECK(close(listener) == 0);
    static unsigned char bytes[300000], got[sizeof bytes];
    for (size_t n = sizeof bytes; t && n; n = n > 8 ? 8 : 0) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)(i * 7 + n);
        CHECK_OK(lh_transport_send(t, 1, n, bytes, n, &err), err);
        CHECK_OK(lh_transport_receive(t, 1, n, n, got, &err), err);
        CHECK(memcmp(bytes, got, n) == 0);
    }
    char text[200] = "unchanged";
    CHECK(!lh_transport_read_notice(t, sizeof text, text));
    CHECK_INT(lh_transport_send(t, 2, 1, bytes, 1, &err), LH_EINVAL);
    CHECK_INT(lh_transport_receive(t, 0, 1, 1, got, &err), LH_EINVAL);
    lh_transport_abort(t, "a pass has failed");
    pthread_join(other, NULL);
    lh_transport_free(t);
}

/* A rank that waits for a message that no rank sends. */
typedef struct waiting_rank {
    lh_transport_options options;
    lh_status status; /* of the wait */
    lh_error err;
    bool is_waiting;
} waiting_rank;

static void *wait_in_vain(void *of)
{
    waiting_rank *w = of;
    lh_transport *t = NULL;
    unsigned char byte;
    CHECK_OK(lh_transport_join(&w->options, &t, &w->err), w->err);
    w->is_waiting = true;
    w->status = lh_transport_receive(t, !w->options.rank, 5, 1, &byte, &w->err);
    lh_transport_free(t);
    return NULL;
}

/* A stop condition: the rank waits for its message. */
static bool is_waiting(void *of)
{
    return ((waiting_rank *)of)->is_waiting;
}

/* Lets both ranks wait in vain. */
static void wait_on_both(waiting_rank ranks[2])
{
    uint16_t port;
    const int listener = make_listener(&port);
    pthread_t other;
    for (uint32_t i = 0; i < 2; i++)
        ranks[i].options = public_options(port, i);
    ranks[0].options.listener = listener;
    ranks[1].options.wait_ns = ranks[1].is_waiting ? 0 : 1;
    ranks[1].options.stop = ranks[1].is_waiting ? is_waiting : NULL;
    ranks[1].options.context = &ranks[1];
    ranks[1].is_waiting = false;
    pthread_create(&other, NULL, wait_in_vain, &ranks[1]);
    wait_in_vain(&ranks[0]);
    pthread_join(other, NULL);
    close(listener);
}

static void public_waits(void)
{
    waiting_rank late[2] = {0}, stopped[2] = {0}, alone = {0};
    lh_transport *t = NULL;
    wait_on_both(late);
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(late[i].status, LH_EIO);
        CHECK_HAS(late[i].err.text, "rank 1: rank 0 has not sent the message "
                                    "with tag 5 within 1e-09 s");
    }
    stopped[1].is_waiting = true;
    wait_on_both(stopped);
    CHECK_INT(stopped[1].status, LH_ECANCELED);
    CHECK_INT(stopped[0].status, LH_EIO);
    CHECK_HAS(stopped[0].err.text, "rank 1: interrupted");
    alone.options = public_options(free_port(), 0);
    alone.options.stop = is_waiting;
    alone.options.context = &alone;
    alone.is_waiting = true;
    CHECK_INT(lh_transport_join(&alone.options, &t, &alone.err), LH_ECANCELED);
}

static void public_errors(void)
{
    static const char *const texts[] = {"rank 2 of 2",
                                        "secret: must have",
                                        "port: missing",
                                        "job: missing",
                                        "rails: at most 8",
                                        "no such thing",
                                        "join_ns, silence_ns, wait_ns: must be",
                                        "join_ns, silence_ns, wait_ns: must be",
                                        "rails: missing",
                                        "wait_ns: must be from 0",
                                        "listener: only rank 0",
                                        "rank 0 cannot use its listener"};
    static const char *const unknown[] = {"no such thing"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lh_transport_options o = public_options(free_port(), 0);
        lh_transport *t = (lh_transport *)&o;
        lh_error err = {0};
        o.n_ranks = i == 5 ? 1 : 2;
        o.rank = i == 0 ? 2 : 0;
        o.secret_bytes = i == 1 ? 15 : o.secret_bytes;
        o.port = i == 2 ? 0 : o.port;
        o.job = i == 3 ? NULL : o.job;
        o.n_rails = i == 4 ? 9 : i == 5 ? 1 : 2;
        o.rails = i == 5 ? unknown : o.rails;
        o.join_ns = i == 6 ? -1 : o.join_ns;
        o.silence_ns = i == 7 ? INT64_MAX : o.silence_ns;
        if (i == 8)
            o.rails = NULL;
        o.wait_ns = i == 9 ? -1 : 0;
        o.rank = i == 10 ? 1 : o.rank;
        o.listener = i >= 10 ? INT_MAX : 0;
        CHECK(lh_transport_join(&o, &t, &err) != LH_OK);
        CHECK_HAS(err.text, texts[i]);
        CHECK(t == (lh_transport *)&o);
    }
}

int main(void)
{
    RUN_VIRTUAL(heads);
    if (!lhi_handshake_can_authenticate()) {
        printf("SKIPPED: this build has no OpenSSL, so no tcp transport\n");
        return 77;
    }
    RUN_VIRTUAL(conforms);
    RUN_VIRTUAL(which_addresses);
    RUN_VIRTUAL(other_counts);
    RUN_VIRTUAL(strangers);
    RUN_VIRTUAL(killed);
    RUN_VIRTUAL(killed_last);
    RUN_VIRTUAL(silent);
    RUN_VIRTUAL(come_back);
    RUN_VIRTUAL(segments);
    RUN_VIRTUAL(leaves_in_the_middle);
    RUN(public_messages);
    RUN(public_waits);
    RUN(public_errors);
    return test_summary();
}
