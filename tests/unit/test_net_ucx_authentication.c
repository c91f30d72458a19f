/* SPDX-License-Identifier: Apache-2.0 */
/* Rejected from a run over UCX: ranks without the job's secret, ranks of
 * another job, and senders to a rank's worker that have not joined. */
#define _GNU_SOURCE
#include "net_processes.h"
#include "runtime/transport/address_exchange.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/ucx.h"
#include "runtime/transport/ucx_calls.h"
#include "runtime/transport/wire_format.h"
#include "test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t ms_ns = 1000000;
static const char secret[] = "0123456789abcdef0123456789abcdef";

/* ---- joining: rank `odd` differs ---- */

/* Join options of the ranks. */
typedef struct joining {
    uint16_t port;
    uint32_t odd;
    const char *odd_secret, *odd_job, *host;
} joining;

static lh_status join(void *how, uint32_t rank, uint32_t n, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    const joining *j = how;
    bool odd = rank == j->odd;
    lhi_tcp_options o = {.rank = rank,
                         .n_ranks = n,
                         .host = j->host,
                         .port = j->port,
                         .job = odd && j->odd_job ? j->odd_job : "job",
                         .secret =
                             odd && j->odd_secret ? j->odd_secret : secret,
                         .n_links = n_links,
                         .links = links,
                         .join_ns = 1500 * ms_ns};
    o.secret_size = strlen(o.secret);
    return lhi_net_ucx(&o, out, err);
}

static lh_status nothing(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    (void)net, (void)context, (void)result, (void)size, (void)err;
    return LH_OK;
}

/* Checks that all three end with an error, and rank 2, the odd one, with its
 * own. */
static void all_end(joining *j, const char *text, const char *odd_text)
{
    rank_process p[3] = {{0}};
    j->odd = 2;
    j->port = free_port();
    for (uint32_t i = 0; i < 3; i++)
        rank_process_start(&p[i], i, 3, 0, NULL, join, j, nothing, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        const char *want = i == 2 ? odd_text : text;
        rank_process_end(&p[i]);
        CHECK_MSG(p[i].status != LH_OK && strstr(p[i].text, want),
                  "rank %u: '%s', without '%s'", i, p[i].text, want);
        free(p[i].result);
    }
}

static void wrong_secret(void)
{
    joining j = {.odd_secret = "another secret of good length"};
    all_end(&j, "(rank 2: wrong secret", "rank 2: wrong secret");
}

static void no_secret(void)
{
    joining j = {.odd_secret = ""};
    all_end(&j, "rank 2 has not joined rank 0 in time",
            "the job's secret has 0 bytes; it needs at least 16");
}

static void another_job(void)
{
    joining j = {.odd_job = "another"};
    all_end(&j, "(rank 2 of another job)", "runs another job at this port");
}

/* UCX listens beyond this host only if configured. */
static void not_beyond_this_host(void)
{
    lh_error err = {0};
    lhi_net *net = NULL;
    joining j = {.port = free_port(), .odd = 9, .host = "0.0.0.0"};
    CHECK_INT(join(&j, 0, 1, 0, NULL, &net, &err), LH_EINVAL);
    CHECK_HAS(err.text, "would listen beyond this host");
    CHECK_HAS(err.text, "--insecure");
    CHECK_INT(lhi_ucx_may_listen(false, true, &err), LH_OK);
    CHECK_INT(lhi_ucx_may_listen(true, false, &err), LH_OK);
    setenv("UCX_NET_DEVICES", "lo", 1);
    CHECK_INT(lhi_ucx_may_listen(true, false, &err), LH_OK);
    CHECK_INT(lhi_ucx_may_listen(false, false, &err), LH_EINVAL);
    setenv("UCX_NET_DEVICES", "eth0", 1);
    CHECK_INT(lhi_ucx_may_listen(true, true, &err), LH_OK);
    CHECK_INT(lhi_ucx_may_listen(true, false, &err), LH_EINVAL);
    CHECK_HAS(err.text, "would listen at devices eth0");
    unsetenv("UCX_NET_DEVICES");
}

#ifdef LHI_HAVE_UCX

/* ---- a stranger at the worker ---- */

/* Two ranks in threads of this process, whose addresses are visible. */
typedef struct largest_two {
    pthread_barrier_t barrier;
    unsigned char cards[2 * LHI_UCX_RECORD_BYTES];
    lhi_net *nets[2];
    lh_status status[2];
    lh_error err[2];
} two;

/* One rank's endpoint and addresses. */
typedef struct one_of_two {
    two *of;
    uint32_t rank;
} one_of_two;

static lh_status exchange(void *context, void *cards, size_t size,
                          lh_error *err)
{
    const one_of_two *me = context;
    (void)err;
    memcpy(me->of->cards + me->rank * size,
           (unsigned char *)cards + me->rank * size, size);
    pthread_barrier_wait(&me->of->barrier);
    memcpy(cards, me->of->cards, 2 * size);
    return LH_OK;
}

static void *open_one(void *context)
{
    one_of_two *me = context;
    lhi_ucx_options o = {.rank = me->rank,
                         .n_ranks = 2,
                         .exchange = exchange,
                         .context = me,
                         .loopback = true,
                         .silence_ns = INT64_C(60000000000)};
    me->of->status[me->rank] =
        lhi_ucx_open(&o, &me->of->nets[me->rank], &me->of->err[me->rank]);
    return NULL;
}

static void *close_one(void *context)
{
    const one_of_two *me = context;
    lhi_net_close(me->of->nets[me->rank]);
    return NULL;
}

static void in_two_threads(two *t, void *(*what)(void *))
{
    one_of_two ranks[2] = {{t, 0}, {t, 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, what, &ranks[i]))
            abort();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* A UCX context that sends to a worker without joining. */
typedef struct stranger {
    lhi_ucx_calls call;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
} stranger;

static void come_near(stranger *s, const lhi_ucx_record *card)
{
    lh_error err = {0};
    int efd;
    CHECK_OK(lhi_ucx_load(&s->call, &err), err);
    CHECK_OK(lhi_ucx_make_worker(&s->call, true, 1, &s->context, &s->worker,
                                 &efd, &err),
             err);
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                         .address =
                             (const ucp_address_t *)(const void *)card->address,
                         .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    CHECK_INT(s->call.ep_create(s->worker, &p, &s->ep), UCS_OK);
}

static void throw_at(stranger *s, const void *bytes, size_t n, uint64_t tag)
{
    const ucp_request_param_t p = {0};
    ucs_status_ptr_t r = s->call.tag_send_nbx(s->ep, bytes, n, tag, &p);
    CHECK(!UCS_PTR_IS_ERR(r));
    while (UCS_PTR_IS_PTR(r) &&
           s->call.request_check_status(r) == UCS_INPROGRESS)
        if (!s->call.worker_progress(s->worker))
            lhi_sleep_for(20000);
    if (UCS_PTR_IS_PTR(r))
        s->call.request_free(r);
}

static void go_away(stranger *s)
{
    const ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                   .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t r = s->call.ep_close_nbx(s->ep, &p);
    while (UCS_PTR_IS_PTR(r) &&
           s->call.request_check_status(r) == UCS_INPROGRESS)
        s->call.worker_progress(s->worker);
    if (UCS_PTR_IS_PTR(r))
        s->call.request_free(r);
    s->call.worker_destroy(s->worker);
    s->call.cleanup(s->context);
}

static size_t resident_bytes(void)
{
    size_t pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu %zu", &pages, &resident) != 2)
        abort();
    fclose(f);
    return resident * 4096;
}

static bool is_mine(unsigned long inode)
{
    for (int fd = 0; fd < 1000; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == inode)
            return true;
    }
    return false;
}

/* Counts this process's listening sockets; *elsewhere: beyond 127.0.0.1. */
static unsigned count_listeners(unsigned *elsewhere)
{
    unsigned n = 0;
    for (int v6 = 0; v6 < 2; v6++) {
        char line[400], address[40];
        unsigned port, state;
        unsigned long inode;
        FILE *f = fopen(v6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line,
                       " %*[0-9]: %39[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s "
                       "%lu",
                       address, &port, &state, &inode) == 4 &&
                state == 0x0a && is_mine(inode)) {
                n++;
                *elsewhere += strcmp(address, "0100007F") != 0;
            }
        if (f)
            fclose(f);
    }
    return n;
}

/* Sends a message from rank 0 to rank 1 and checks its bytes. */
static void send_one(two *t, uint64_t tag, size_t n)
{
    unsigned char *out = malloc(n), *in = calloc(1, n);
    lhi_net_op sent = {0}, received = {0};
    lh_error err = {0};
    memset(out, (int)tag, n);
    CHECK_OK(lhi_net_receive(t->nets[0], 1, tag, in, n, &received, &err), err);
    CHECK_OK(lhi_net_send(t->nets[1], 0, tag, out, n, LHI_NET_NO_LINK,
                          lhi_now_ns(), LHI_NET_NO_TURN, &sent, &err),
             err);
    CHECK_OK(lhi_net_wait(t->nets[0], &received, 0, &err), err);
    CHECK_OK(lhi_net_wait(t->nets[1], &sent, 0, &err), err);
    CHECK(memcmp(in, out, n) == 0);
    free(in);
    free(out);
}

/* A stranger who can reach a rank's worker lacks only the job's tags: with one
 * wrong bit out of 51, a frame is ignored, and not stored. */
static void strangers_are_not_heard(void)
{
    static two t;
    static lhi_ucx_record card;
    enum { N_LARGE = 20000, LARGE = 8000 };
    static unsigned char noise[LARGE];
    stranger s = {0};
    lh_error err = {0};
    pthread_barrier_init(&t.barrier, NULL, 2);
    in_two_threads(&t, open_one);
    CHECK_OK(t.status[0], t.err[0]);
    CHECK_OK(t.status[1], t.err[1]);
    if (t.status[0] != LH_OK || t.status[1] != LH_OK)
        return;
    unsigned elsewhere = 0;
    CHECK(count_listeners(&elsewhere) > 0);
    CHECK_INT(elsewhere, 0);
    CHECK_OK(lhi_ucx_record_read(t.cards, &card, &err), err);
    come_near(&s, &card);
    send_one(&t, 1, 100);
    size_t before = resident_bytes();
    unsigned char frame[LHI_FRAME_BYTES + 4] = {0};
    lhi_frame_write(&(lhi_frame){.kind = LHI_FRAME_ABORT, .size = 4}, frame);
    memcpy(frame + LHI_FRAME_BYTES, "evil", 4);
    uint64_t right = card.frame_tag << 12 & UINT64_MAX >> 1;
    for (int bit = 12; bit < 64; bit++)
        throw_at(&s, frame, sizeof frame, (right ^ UINT64_C(1) << bit) | 1);
    for (int bit = 0; bit < 63; bit++)
        throw_at(&s, noise, 100,
                 UINT64_C(1) << 63 | (card.data_tag ^ UINT64_C(1) << bit ^ 1));
    for (int i = 0; i < N_LARGE; i++)
        throw_at(&s, noise, LARGE, (uint64_t)i);
    send_one(&t, 2, 100);
    send_one(&t, 3, 300000);
    size_t more = resident_bytes() - before;
    CHECK_MSG(more < N_LARGE * (size_t)LARGE / 4, "%zu bytes are kept", more);
    CHECK(!lhi_net_failure(t.nets[0]) && !lhi_net_failure(t.nets[1]));
    /* With its tag the frame is accepted: a stranger would need this. */
    throw_at(&s, frame, sizeof frame, right | 1);
    lhi_net_op op = {0};
    char byte;
    lh_status status = lhi_net_receive(t.nets[0], 1, 4, &byte, 1, &op, &err);
    if (status == LH_OK)
        status = lhi_net_wait(t.nets[0], &op, 0, &err);
    CHECK_INT(status, LH_EIO);
    CHECK_HAS(err.text, "evil");
    go_away(&s);
    in_two_threads(&t, close_one);
    pthread_barrier_destroy(&t.barrier);
}

#endif

int main(void)
{
    /* UCX's memory hooks conflict with the sanitizers'. */
    setenv("UCX_MEM_EVENTS", "n", 0);
    unsetenv("UCX_NET_DEVICES");
    lhi_net *net = NULL;
    lh_error err = {0};
    joining alone = {.port = free_port(), .odd = 9};
    lh_status status = join(&alone, 0, 1, 0, NULL, &net, &err);
    if (status == LH_EUNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    CHECK_OK(status, err);
    lhi_net_close(net);
    RUN(wrong_secret);
    RUN(no_secret);
    RUN(another_job);
    RUN(not_beyond_this_host);
#ifdef LHI_HAVE_UCX
    RUN(strangers_are_not_heard);
#endif
    return test_summary();
}
