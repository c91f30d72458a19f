/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that connect over TCP: the conformance suite, and failures before and
 * after connecting. */
#define _GNU_SOURCE
#include "base/realtime.h"
#include "net_conform.h"
#include "net_processes.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/tcp_join.h"
#include "runtime/transport/tcp_returns.h"
#include "runtime/transport/wire_format.h"
#include "virtual_time.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const int64_t second_ns = 1000000000;

/* Join options of a run; rank `odd` has different ones. */
typedef struct joining {
    uint16_t port;
    const char *job, *secret;
    uint32_t odd; /* UINT32_MAX: none */
    const char *odd_job, *odd_secret;
    uint32_t odd_n, odd_n_rails;
    unsigned char odd_setup[LHI_SETUP_BYTES]; /* added to that of the others */
    int64_t join_ns;
    bool outlasts_wrong_secrets; /* of lhi_tcp_options */
    bool *misses_first;          /* of lhi_tcp_options; may be NULL */
    uint32_t n_rails;
    uint32_t stopped; /* rank that stops at stop_ns; UINT32_MAX: none */
    int64_t stop_ns;
} joining;

static const char secret[] = "0123456789abcdef0123456789abcdef";
static const unsigned char setup[LHI_SETUP_BYTES] = {1};

/* Checks whether the time of the joining's stop has come. */
static bool is_stop_due(void *of)
{
    const joining *j = of;
    return lhi_now_ns() >= j->stop_ns;
}

static lh_status join(void *how, uint32_t rank, uint32_t n, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    joining *j = how;
    bool odd = rank == j->odd;
    unsigned char with[LHI_SETUP_BYTES];
    for (size_t i = 0; i < sizeof with; i++)
        with[i] = (unsigned char)(setup[i] + (odd ? j->odd_setup[i] : 0));
    lhi_tcp_options o = {
        .rank = rank,
        .n_ranks = odd && j->odd_n ? j->odd_n : n,
        .port = j->port,
        .job = odd && j->odd_job ? j->odd_job : j->job,
        .secret = odd && j->odd_secret ? j->odd_secret : j->secret,
        .setup = with,
        .n_links = n_links,
        .links = links,
        .join_ns = j->join_ns,
        .outlasts_wrong_secrets = j->outlasts_wrong_secrets,
        .misses_first = j->misses_first,
        .n_rails = odd && j->odd_n_rails ? j->odd_n_rails : j->n_rails,
        .rails = (const char *const[]){"127.0.0.1", "127.0.0.2"},
        .is_stopped = rank == j->stopped ? is_stop_due : NULL,
        .stop_context = j};
    o.secret_size = strlen(o.secret);
    return lhi_net_tcp(&o, out, err);
}

static joining usual(void)
{
    return (joining){.port = free_port(),
                     .job = "test",
                     .secret = secret,
                     .odd = UINT32_MAX,
                     .stopped = UINT32_MAX};
}

static lh_status run_tcp(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results, lh_error *err)
{
    joining j = usual();
    return run_processes(n, n_links, links, join, &j, rank_main, context,
                         results, err);
}

static void conforms(void)
{
    processes_conform("tcp", run_tcp);
}

/* ---- joining ---- */

static lh_status nothing(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    (void)net, (void)context, (void)result, (void)size, (void)err;
    return LH_OK;
}

/* After all have joined, rank 0's port refuses other connections. */
static lh_status nobody_listens(lhi_net *net, void *context, char **result,
                                size_t *size, lh_error *err)
{
    const joining *j = context;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(j->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)net, (void)result, (void)size;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_refused = connect(fd, (struct sockaddr *)&a, sizeof a) != 0 &&
                      errno == ECONNREFUSED;
    close(fd);
    return is_refused ? LH_OK : lhi_fail(err, LH_EIO, "the port is still open");
}

/* `context`: counts the joined ranks; NULL: no counter. */
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

/* Checks that every rank ends with an error that contains `text`, rank `odd`
 * with `odd_text`. */
static void all_end(joining *j, uint32_t n, lhi_rank_main *rank_main,
                    const char *text, const char *odd_text)
{
    rank_process p[8] = {{0}};
    for (uint32_t i = 0; i < n; i++)
        rank_process_start(&p[i], i, n, 0, NULL, join, j, rank_main, NULL);
    for (uint32_t i = 0; i < n; i++) {
        const char *want = i == j->odd && odd_text ? odd_text : text;
        rank_process_end(&p[i]);
        CHECK_MSG(p[i].status != LH_OK && strstr(p[i].text, want),
                  "rank %u: '%s', without '%s'", i, p[i].text, want);
        free(p[i].result);
    }
}

/* A rank that joins in a thread. */
typedef struct joining_rank {
    pthread_t thread;
    joining *how;
    lhi_rank_main *rank_main;
    uint32_t rank, n;
    bool was_stopped; /* why it does not join, of leave_in_thread() */
    lh_status status;
    lh_error err;
} joining_rank;

static void *join_in_thread(void *of)
{
    joining_rank *r = of;
    lhi_rank_result none;
    lhi_net *net = NULL;
    r->status = join(r->how, r->rank, r->n, 0, NULL, &net, &r->err);
    if (r->status == LH_OK)
        r->status = lhi_rank_run(net, r->rank_main, NULL, &none, &r->err);
    return NULL;
}

/* Starts rank `rank` of n in a thread, in virtual time. */
static void start_joining(joining_rank *r, joining *j, uint32_t rank,
                          uint32_t n, lhi_rank_main *rank_main)
{
    *r = (joining_rank){.how = j, .rank_main = rank_main, .rank = rank, .n = n};
    CHECK_INT(pthread_create(&r->thread, NULL, join_in_thread, r), 0);
}

/* A rank that has failed before it could join, or that was stopped. */
static void *leave_in_thread(void *of)
{
    const joining_rank *r = of;
    const lhi_tcp_options o = {.rank = r->rank,
                               .n_ranks = r->n,
                               .host = "127.0.0.1",
                               .port = r->how->port,
                               .job = r->how->job,
                               .secret = secret,
                               .secret_size = strlen(secret),
                               .join_ns = 10 * second_ns};
    if (r->was_stopped)
        lhi_tcp_send_reason(&o, "rank 2 was stopped");
    else
        lhi_tcp_send_failure(&o, "text: no such file");
    return NULL;
}

/* Checks that no rank joins: each gets an error that contains `text`, rank
 * `odd` one with `odd_text`. */
static void none_joins(joining *j, uint32_t n, const char *text,
                       const char *odd_text)
{
    joining_rank ranks[8];
    for (uint32_t i = 0; i < n; i++)
        start_joining(&ranks[i], j, i, n, nothing);
    for (uint32_t i = 0; i < n; i++) {
        const char *want = i == j->odd ? odd_text : text;
        pthread_join(ranks[i].thread, NULL);
        CHECK_MSG(ranks[i].status != LH_OK && strstr(ranks[i].err.text, want),
                  "rank %u: '%s', without '%s'", i, ranks[i].err.text, want);
    }
}

/* All ranks end within 2 s; at a restart they wait until the timeout. */
static void wrong_secret(void)
{
    for (int i = 0; i < 2; i++) {
        joining j = usual();
        const int64_t begin_ns = lhi_now_ns();
        j.odd = 1;
        j.join_ns = (i ? 20 : 3600) * second_ns;
        j.outlasts_wrong_secrets = i == 1;
        j.odd_secret = "another secret of good length";
        none_joins(&j, 3, "rank 1: wrong secret", "rank 1: wrong secret");
        const int64_t took_ns = lhi_now_ns() - begin_ns;
        CHECK(i ? took_ns >= j.join_ns : took_ns < 2 * second_ns);
    }
}

static void wrong_secret_of_rank_0(void)
{
    joining j = usual();
    j.odd = 0;
    j.join_ns = 3 * second_ns;
    j.odd_secret = "another secret of good length";
    none_joins(&j, 2, "wrong secret", "wrong secret");
}

static void another_job(void)
{
    joining j = usual();
    j.odd = 2;
    j.join_ns = 3 * second_ns;
    j.odd_job = "another";
    none_joins(&j, 3, "(rank 2 of another job)",
               "runs another job at this port");
}

/* All ranks end within 2 s. */
static void another_setup(void)
{
    static const char *const parts[] = {
        "another plan",
        ("another schedule or other times (--schedule, --speed, --inject, or "
         "the plan)"),
        "other options",
        "other data",
        "another --steps",
        "another --events"};
    static const size_t at[] = {0,
                                LHI_SETUP_SCHEDULE_AT,
                                LHI_SETUP_OPTIONS_AT,
                                LHI_SETUP_DATA_AT,
                                LHI_SETUP_NAMED_AT + LHI_SETUP_STEPS,
                                LHI_SETUP_NAMED_AT + LHI_SETUP_EVENTS};
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t odd = 0; odd < 3; odd += 2) {
            joining j = usual();
            char text[120];
            const int64_t begin_ns = lhi_now_ns();
            j.odd = odd;
            j.join_ns = 3600 * second_ns;
            j.odd_setup[at[i]] = 1;
            snprintf(text, sizeof text, " has %s than rank 0: ", parts[i]);
            none_joins(&j, 3, text, text);
            CHECK(lhi_now_ns() - begin_ns < 2 * second_ns);
        }
}

/* A rank that is stopped ends all within 2 s: rank 0, which waits for rank 3;
 * rank 2, which waits for rank 0's table, or connects to rank 0; rank 1, while
 * nobody listens. */
static void stopped_while_joining(void)
{
    static const struct {
        uint32_t who;
        int after_s;
    } cases[] = {{0, 5}, {2, 5}, {2, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const uint32_t who = cases[c].who;
        joining j = usual();
        joining_rank ranks[3];
        char text[64];
        const int64_t begin_ns = lhi_now_ns();
        j.join_ns = 3600 * second_ns;
        j.stopped = who;
        j.stop_ns = begin_ns + cases[c].after_s * second_ns;
        snprintf(text, sizeof text,
                 "rank %u was stopped before all ranks had joined", who);
        for (uint32_t i = 0; i < 3; i++)
            start_joining(&ranks[i], &j, i, 4, nothing);
        for (uint32_t i = 0; i < 3; i++) {
            pthread_join(ranks[i].thread, NULL);
            CHECK_INT(ranks[i].status, i == who ? LH_ECANCELED : LH_EINVAL);
            CHECK_STR(ranks[i].err.text, text);
        }
        CHECK(lhi_now_ns() - j.stop_ns < 2 * second_ns);
    }
    joining alone = usual();
    lhi_net *net = NULL;
    lh_error err = {0};
    alone.join_ns = 3600 * second_ns;
    alone.stopped = 1;
    CHECK_INT(join(&alone, 1, 2, 0, NULL, &net, &err), LH_ECANCELED);
}

/* Rank `who` of 4 has failed, and the others begin to join `late_s` later or
 * earlier: all end within 2 s, with its reason. At a restart they wait, unless
 * it was stopped. A failed rank does not know the number of rails. */
static void failed_before_joining(void)
{
    static const struct {
        uint32_t who;
        int late_s;
        bool restarts, was_stopped;
    } cases[] = {{0, 3, false, false}, {0, 3, false, false},
                 {2, 3, false, false}, {2, -3, false, false},
                 {2, 3, true, false},  {2, 3, true, true},
                 {2, -3, true, true}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        joining j = usual();
        joining_rank ranks[4];
        char text[80];
        const bool waits = cases[c].restarts && !cases[c].was_stopped;
        j.join_ns = (waits ? 20 : 3600) * second_ns;
        j.outlasts_wrong_secrets = cases[c].restarts;
        j.n_rails = c % 2 * 2;
        const uint32_t who = cases[c].who;
        ranks[who] = (joining_rank){.how = &j, .rank = who, .n = 4};
        ranks[who].was_stopped = cases[c].was_stopped;
        if (cases[c].late_s > 0) {
            pthread_create(&ranks[who].thread, NULL, leave_in_thread,
                           &ranks[who]);
            lhi_sleep_for(cases[c].late_s * second_ns);
        }
        int64_t begin_ns = lhi_now_ns();
        for (uint32_t i = 0; i < 4; i++)
            if (i != who)
                start_joining(&ranks[i], &j, i, 4, nothing);
        if (cases[c].late_s < 0) {
            lhi_sleep_for(-cases[c].late_s * second_ns);
            begin_ns = lhi_now_ns();
            pthread_create(&ranks[who].thread, NULL, leave_in_thread,
                           &ranks[who]);
        }
        snprintf(text, sizeof text,
                 waits ? "rank %u has not joined rank 0 in time"
                 : cases[c].was_stopped
                     ? "rank %u was stopped"
                     : "rank %u failed before it joined: text: no such file",
                 who);
        for (uint32_t i = 0; i < 4; i++) {
            pthread_join(ranks[i].thread, NULL);
            if (i == who)
                continue;
            CHECK_INT(ranks[i].status, waits ? LH_EIO : LH_EINVAL);
            CHECK_STR(ranks[i].err.text, text);
        }
        const int64_t took_ns = lhi_now_ns() - begin_ns;
        CHECK(waits ? took_ns >= j.join_ns : took_ns < 2 * second_ns);
    }
}

/* All ranks end within 2 s. */
static void another_count(void)
{
    joining j = usual();
    int64_t begin_ns = lhi_now_ns();
    j.odd = 2;
    j.join_ns = 3600 * second_ns;
    j.odd_n = 5;
    none_joins(&j, 3, "rank 0 has 3 ranks in its job, rank 2 has 5: ",
               "rank 0 has 3 ranks in its job, rank 2 has 5: ");
    CHECK(lhi_now_ns() - begin_ns < 2 * second_ns);
    j.odd_n = 0;
    j.odd_n_rails = 2;
    begin_ns = lhi_now_ns();
    none_joins(&j, 3, "rank 0 has 0 rails, rank 2 has 2: ",
               "rank 0 has 0 rails, rank 2 has 2: ");
    CHECK(lhi_now_ns() - begin_ns < 2 * second_ns);
}

/* A rank whose number does not exist in the job of the others: it ends them
 * within 2 s, but not with another secret. */
static void another_number(void)
{
    static const struct {
        const char *secret, *text, *odd_text;
        int least_s, most_s;
    } cases[] = {
        {secret, "has 3 ranks in its job, rank 7 has 9", "rank 7 has 9", 0, 2},
        {"another secret of good length",
         "rank 2 has not joined rank 0 in time", "rank 7: wrong secret", 20,
         22}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        joining j = usual(), other = j;
        joining_rank ranks[3];
        const int64_t begin_ns = lhi_now_ns();
        j.join_ns = other.join_ns = 20 * second_ns;
        other.secret = cases[c].secret;
        start_joining(&ranks[0], &j, 0, 3, nothing);
        start_joining(&ranks[1], &j, 1, 3, nothing);
        start_joining(&ranks[2], &other, 7, 9, nothing);
        for (int i = 0; i < 3; i++) {
            pthread_join(ranks[i].thread, NULL);
            CHECK(ranks[i].status != LH_OK);
            CHECK_HAS(ranks[i].err.text,
                      i < 2 ? cases[c].text : cases[c].odd_text);
        }
        const int64_t took_ns = lhi_now_ns() - begin_ns;
        CHECK(took_ns >= cases[c].least_s * second_ns &&
              took_ns < cases[c].most_s * second_ns);
    }
}

static void nobody_there(void)
{
    joining j = usual();
    lhi_net *net = NULL;
    lh_error err = {0};
    bool misses_first = false;
    j.join_ns = second_ns / 2;
    j.misses_first = &misses_first;
    CHECK_INT(join(&j, 1, 2, 0, NULL, &net, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 0 cannot be reached at 127.0.0.1");
    CHECK(misses_first);
    CHECK_INT(join(&j, 0, 3, 0, NULL, &net, &err), LH_EIO);
    CHECK_STR(err.text, "rank 1 and 1 more have not joined rank 0 in time");
    j.secret = "short";
    CHECK_INT(join(&j, 0, 3, 0, NULL, &net, &err), LH_EINVAL);
    CHECK_HAS(err.text, "at least 16");
}

/* Rank 1 of 3 runs on another host; its own process comes back and waits for an
 * hour, while rank 0 polls. A process with rank 2, which runs, one with another
 * secret, one with another plan and one that has failed are rejected. */
static void a_rank_comes_back(void)
{
    static const bool is_replaced[] = {false, true, false};
    joining j = usual();
    joining_rank ranks[4], failed = {.how = &j, .rank = 1, .n = 3};
    joining_rank stopped = {.how = &j, .rank = 1, .n = 3, .was_stopped = true};
    lhi_tcp_returns *returns = NULL;
    lh_error err;
    j.join_ns = 3600 * second_ns;
    joining other_secret = j, other_setup = j;
    other_secret.secret = "another secret of good length";
    other_setup.odd = 1;
    other_setup.odd_setup[0] = 1;
    const lhi_tcp_options o = {.n_ranks = 3,
                               .port = j.port,
                               .job = j.job,
                               .setup = setup,
                               .secret = secret,
                               .secret_size = strlen(secret)};
    CHECK_OK(lhi_tcp_returns_open(&o, is_replaced, &returns, &err), err);
    start_joining(&ranks[0], &j, 2, 3, nothing);
    start_joining(&ranks[1], &other_secret, 1, 3, nothing);
    start_joining(&ranks[2], &other_setup, 1, 3, nothing);
    pthread_create(&failed.thread, NULL, leave_in_thread, &failed);
    pthread_create(&stopped.thread, NULL, leave_in_thread, &stopped);
    for (int i = 0; i < 20; i++) { /* iterations of 1 s */
        CHECK_INT(lhi_tcp_returns_poll(returns), UINT32_MAX);
        lhi_sleep_for(second_ns);
    }
    pthread_join(failed.thread, NULL);
    pthread_join(stopped.thread, NULL);
    static const char *const texts[] = {"rank 2 is already connected",
                                        "wrong secret", "has another plan"};
    for (int i = 0; i < 3; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK_HAS(ranks[i].err.text, texts[i]);
    }
    start_joining(&ranks[3], &j, 1, 3, nothing);
    const int64_t begin_ns = lhi_now_ns();
    while (lhi_tcp_returns_poll(returns) == UINT32_MAX &&
           lhi_now_ns() - begin_ns < 60 * second_ns)
        lhi_sleep_for(second_ns);
    CHECK_INT(lhi_tcp_returns_poll(returns), 1);
    CHECK(lhi_now_ns() - begin_ns < 10 * second_ns);
    lhi_tcp_returns_close(returns);
    /* All ranks join again, with the process that has come back. */
    start_joining(&ranks[0], &j, 0, 3, nothing);
    start_joining(&ranks[2], &j, 2, 3, nothing);
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            continue;
        pthread_join(ranks[i].thread, NULL);
        CHECK_MSG(ranks[i].status == LH_OK, "%d: %s", i, ranks[i].err.text);
    }
}

/* Rank 1 reports its own loss, for example because it hangs, and does not end;
 * rank 0 prints it, and the run may restart. */
static lh_status lose_rank_1(lhi_net *net, void *context, char **result,
                             size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    const uint32_t me = lhi_net_rank(net);
    char byte = 0;
    lhi_net_op op = {0};
    if (me == 1)
        lhi_net_abort_loss(net, 1, "hangs");
    else if (lhi_net_receive(net, 1, 99, &byte, 1, &op, err) == LH_OK)
        lhi_net_wait(net, &op, 0, err);
    CHECK_INT(lhi_net_lost_rank(net), 1);
    CHECK_STR(lhi_net_failure(net), "rank 1: hangs");
    CHECK(me == 1 || lhi_net_is_reporter(net) == (me == 0));
    return lhi_fail(err, LH_EIO, "lost");
}

static void a_rank_reports_its_own_loss(void)
{
    joining j = usual();
    joining_rank ranks[3];
    for (uint32_t i = 0; i < 3; i++)
        start_joining(&ranks[i], &j, i, 3, lose_rank_1);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK_HAS(ranks[i].err.text, "rank 1: hangs");
    }
}

static int connect_loopback(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int tries = 0; tries < 6000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        close(fd);
        lhi_sleep_for(10000000);
    }
    return -1;
}

/* Strangers connect first: some silent, some with garbage, some that
 * disconnect. The job's ranks still find each other. */
static void strangers(void)
{
    joining j = usual();
    rank_process p[2] = {{0}};
    rank_process_start(&p[0], 0, 2, 0, NULL, join, &j, nothing, NULL);
    int fds[6];
    for (int i = 0; i < 6; i++) {
        char noise[300];
        memset(noise, 'A' + i, sizeof noise);
        fds[i] = connect_loopback(j.port);
        CHECK(fds[i] >= 0);
        if (i % 3 == 1)
            CHECK(write(fds[i], noise, sizeof noise) > 0);
        if (i % 3 == 2)
            close(fds[i]);
    }
    rank_process_start(&p[1], 1, 2, 0, NULL, join, &j, nothing, NULL);
    for (int i = 0; i < 2; i++) {
        rank_process_end(&p[i]);
        CHECK_MSG(p[i].status == LH_OK, "rank %d: %s", i, p[i].text);
    }
    for (int i = 0; i < 6; i++)
        if (i % 3 != 2)
            close(fds[i]);
}

/* The ranks join without strangers, and the port is closed afterwards. */
static void late_strangers(void)
{
    joining j = usual();
    rank_process p[2] = {{0}};
    for (uint32_t i = 0; i < 2; i++)
        rank_process_start(&p[i], i, 2, 0, NULL, join, &j, nobody_listens, &j);
    for (int i = 0; i < 2; i++) {
        rank_process_end(&p[i]);
        CHECK_MSG(p[i].status == LH_OK, "rank %d: %s", i, p[i].text);
    }
}

static void only_strangers(void)
{
    joining j = usual();
    j.join_ns = 3 * second_ns;
    joining_rank r;
    start_joining(&r, &j, 0, 2, nothing);
    int fd = connect_loopback(j.port);
    char noise[LHI_HANDSHAKE_BYTES] = "GET / HTTP/1.1\r\n";
    CHECK(write(fd, noise, sizeof noise) == sizeof noise);
    pthread_join(r.thread, NULL);
    CHECK_INT(r.status, LH_EIO);
    CHECK_HAS(r.err.text,
              "rank 1 has not joined rank 0 in time; refused: 127.0.0.1");
    CHECK_HAS(r.err.text, "it does not use longhaul's protocol");
    close(fd);
}

/* Imitates rank 0 without the secret. */
static void false_server(void)
{
    joining j = usual();
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(j.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 &&
          listen(listener, 4) == 0);
    rank_process p = {0};
    rank_process_start(&p, 1, 2, 0, NULL, join, &j, nothing, NULL);
    int fd = accept(listener, NULL, NULL);
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_message h = {.kind = LHI_HANDSHAKE_CHALLENGE, .n_ranks = 2};
    CHECK(pipe_all(fd, bytes, sizeof bytes, false));
    lhi_handshake_write(&h, bytes);
    CHECK(pipe_all(fd, bytes, sizeof bytes, true));
    CHECK(pipe_all(fd, bytes, sizeof bytes, false));
    h.kind = LHI_HANDSHAKE_WELCOME;
    lhi_handshake_write(&h, bytes);
    CHECK(pipe_all(fd, bytes, sizeof bytes, true));
    rank_process_end(&p);
    CHECK_INT(p.status, LH_EIO);
    CHECK_HAS(p.text, "rank 0 does not have the job's secret");
    close(fd);
    close(listener);
}

static void two_jobs_at_one_port(void)
{
    joining a = usual(), b = a;
    rank_process p[4] = {{0}};
    uint32_t *joined = count_of_ranks();
    b.job = "second";
    for (uint32_t i = 0; i < 2; i++)
        rank_process_start(&p[i], i, 2, 0, NULL, join, &a, wait_for_next,
                           joined);
    await_ranks(joined, 2);
    for (uint32_t i = 0; i < 2; i++)
        rank_process_start(&p[2 + i], i, 2, 0, NULL, join, &b, nothing, NULL);
    rank_process_end(&p[2]);
    rank_process_end(&p[3]);
    /* The first job is complete and no longer listens; otherwise it rejects. */
    CHECK_MSG(p[2].status == LH_OK || strstr(p[2].text, "another job"), "%s",
              p[2].text);
    kill(p[1].pid, SIGKILL);
    rank_process_end(&p[1]);
    rank_process_end(&p[0]);
    CHECK_HAS(p[0].text, "rank 1: ");
}

/* Two jobs that both still wait for their ranks. */
static void port_taken(void)
{
    joining a = usual(), b = a;
    joining_rank r[3];
    b.job = "second";
    a.join_ns = 4 * second_ns;
    start_joining(&r[0], &a, 0, 2, nothing);
    int fd = connect_loopback(a.port); /* it listens */
    start_joining(&r[1], &b, 0, 2, nothing);
    start_joining(&r[2], &b, 1, 2, nothing);
    for (int i = 0; i < 3; i++)
        pthread_join(r[i].thread, NULL);
    CHECK_HAS(r[0].err.text, "rank 1 has not joined rank 0 in time");
    CHECK_HAS(r[1].err.text, "another program or job uses the port");
    CHECK_HAS(r[2].err.text, "runs another job at this port");
    close(fd);
}

/* ---- after joining ---- */

static void killed(void)
{
    joining j = usual();
    rank_process p[4] = {{0}};
    uint32_t *joined = count_of_ranks();
    for (uint32_t i = 0; i < 4; i++)
        rank_process_start(&p[i], i, 4, 0, NULL, join, &j, wait_for_next,
                           joined);
    await_ranks(joined, 4);
    kill(p[2].pid, SIGKILL);
    for (int i = 0; i < 4; i++)
        rank_process_end(&p[i]);
    for (int i = 0; i < 4; i++)
        if (i != 2)
            CHECK_MSG(strstr(p[i].text, "rank 2: its connection to rank"),
                      "rank %d: %s", i, p[i].text);
}

/* A stopped rank keeps its connections, but sends nothing. */
static void silent(void)
{
    joining j = usual();
    rank_process p[3] = {{0}};
    uint32_t *joined = count_of_ranks();
    for (uint32_t i = 0; i < 3; i++)
        rank_process_start(&p[i], i, 3, 0, NULL, join, &j, wait_for_next,
                           joined);
    await_ranks(joined, 3);
    kill(p[1].pid, SIGSTOP);
    rank_process_end(&p[0]);
    rank_process_end(&p[2]);
    CHECK_HAS(p[0].text, "rank 1: silent for");
    CHECK_HAS(p[2].text, "rank 1: silent for");
    kill(p[1].pid, SIGKILL);
    rank_process_end(&p[1]);
}

/* A rank of the job that sends garbage instead of frames. */
static lh_status sends_garbage(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    if (lhi_net_rank(net) != 1)
        return wait_for_next(net, context, result, size, err);
    for (int fd = 3; fd < 64; fd++) {
        struct sockaddr_storage a;
        socklen_t a_size = sizeof a;
        char noise[100];
        memset(noise, 'x', sizeof noise);
        if (getpeername(fd, (struct sockaddr *)&a, &a_size) == 0 &&
            send(fd, noise, sizeof noise, MSG_NOSIGNAL) < 0)
            return lhi_fail(err, LH_EIO, "cannot send");
    }
    return wait_for_next(net, context, result, size, err);
}

static void garbage(void)
{
    joining j = usual();
    all_end(&j, 3, sends_garbage,
            "a frame failed authentication: it was changed in transit", NULL);
}

/* Cuts all connections of a rank, one after the other. */
static lh_status cuts(lhi_net *net, void *context, char **result, size_t *size,
                      lh_error *err)
{
    for (int fd = 3; fd < 64 && lhi_net_rank(net) == 1; fd++) {
        struct sockaddr_storage a;
        socklen_t a_size = sizeof a;
        if (getpeername(fd, (struct sockaddr *)&a, &a_size) == 0 &&
            a.ss_family == AF_INET)
            shutdown(fd, SHUT_RDWR);
    }
    return wait_for_next(net, context, result, size, err);
}

static void cut(void)
{
    joining j = usual();
    all_end(&j, 4, cuts, "its connection to rank", NULL);
}

int main(void)
{
    if (!lhi_handshake_can_authenticate()) {
        printf("SKIPPED: this build has no OpenSSL, so no tcp transport\n");
        return 77;
    }
    RUN(conforms);
    RUN_VIRTUAL(wrong_secret);
    RUN_VIRTUAL(wrong_secret_of_rank_0);
    RUN_VIRTUAL(a_rank_comes_back);
    RUN_VIRTUAL(a_rank_reports_its_own_loss);
    RUN_VIRTUAL(another_job);
    RUN_VIRTUAL(another_setup);
    RUN_VIRTUAL(stopped_while_joining);
    RUN_VIRTUAL(failed_before_joining);
    RUN_VIRTUAL(another_count);
    RUN_VIRTUAL(another_number);
    RUN_VIRTUAL(nobody_there);
    RUN(strangers);
    RUN(late_strangers);
    RUN_VIRTUAL(only_strangers);
    RUN(false_server);
    RUN(two_jobs_at_one_port);
    RUN_VIRTUAL(port_taken);
    RUN(killed);
    RUN(silent);
    RUN(garbage);
    RUN(cut);
    return test_summary();
}
