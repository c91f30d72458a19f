/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite over transports without external dependencies, and each
 * one's particulars. */
#define _GNU_SOURCE
#include "net_conform.h"
#include "virtual_time.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/emulated_links.h"
#include "runtime/transport/transport_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void free_results(lhi_rank_result *results, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(results[i].text);
}

static void conforms(void)
{
    net_conform(&(net_transport){"inproc", lhi_inproc_run});
    net_conform(&(net_transport){"local", lhi_local_run});
}

static lh_status lacks_something(lhi_net *net, void *context, char **result,
                                 size_t *size, lh_error *err)
{
    (void)net, (void)context, (void)result, (void)size;
    return lhi_fail(err, LH_EUNSUPPORTED, "no such thing here");
}

/* Where every rank is its own program, the caller gets the rank's own error. */
static void keeps_what_failed(void)
{
    lh_error err = {0};
    lhi_net *net;
    lhi_rank_result result;
    CHECK_OK(lhi_net_inproc(1, 0, NULL, &net, &err), err);
    CHECK_INT(lhi_rank_run(net, lacks_something, NULL, &result, &err),
              LH_EUNSUPPORTED);
    CHECK_INT(err.code, LH_EUNSUPPORTED);
    CHECK_STR(err.text, "rank 0: no such thing here");
}

static void *writes_why(void *of)
{
    lhi_failure *failure = of;
    lhi_sleep_for(20000000);
    snprintf(failure->text, sizeof failure->text, "rank 2: the roof fell in");
    __atomic_store_n(&failure->state, LHI_FAILURE_SET, __ATOMIC_RELEASE);
    return NULL;
}

/* Waits for a reason that is being written, but not for one whose writer died.
 */
static void waits_for_the_reason(void)
{
    lhi_failure slow = {.state = LHI_FAILURE_WRITING}, dead = slow;
    pthread_t writer;
    CHECK(!pthread_create(&writer, NULL, writes_why, &slow));
    CHECK_STR(lhi_failure_text(&slow), "rank 2: the roof fell in");
    pthread_join(writer, NULL);
    CHECK_STR(lhi_failure_text(&dead), "a rank has failed");
    CHECK_INT(dead.state, LHI_FAILURE_INCOMPLETE);
    lhi_failure_set(&dead, 1, "late");
    CHECK_STR(lhi_failure_text(&dead), "a rank has failed");
}

static void refuses(void)
{
    lh_error err = {0};
    lhi_net *nets[2];
    const lhi_net_link bad[] = {{0, 0, 0, LHI_LINK_UNSHARED},
                                {-1, 0, 0, LHI_LINK_UNSHARED}};
    CHECK_INT(lhi_net_inproc(0, 0, NULL, nets, &err), LH_EINVAL);
    CHECK_HAS(err.text, "0 ranks");
    CHECK_INT(lhi_net_inproc(2, 2, bad, nets, &err), LH_EINVAL);
    CHECK_HAS(err.text, "emulated link 1");
    const lhi_net_link nan_rate = {0, 0, NAN, LHI_LINK_UNSHARED};
    CHECK_INT(lhi_net_inproc(2, 1, &nan_rate, nets, &err), LH_EINVAL);
}

/* Number of clock reads. */
static atomic_int n_looks;

int64_t __real_lhi_now_ns(void);
int64_t __wrap_lhi_now_ns(void);
int64_t __wrap_lhi_now_ns(void)
{
    atomic_fetch_add(&n_looks, 1);
    return __real_lhi_now_ns();
}

/* A wait uses no processor time: the thread sleeps until there is work or a
 * periodic check is due. Busy waiting would read the clock millions of times.
 */
static void sleeps(void)
{
    lhi_net *nets[2];
    lh_error err = {0};
    const lhi_net_link slow = {300000000, 0, 0, LHI_LINK_UNSHARED};
    CHECK_OK(lhi_net_inproc(2, 1, &slow, nets, &err), err);
    lhi_net_op send = {0}, receive = {0};
    n_looks = 0;
    int64_t start_ns = lhi_now_ns();
    CHECK_OK(lhi_net_send(nets[0], 1, 0, NULL, 0, 0, start_ns, LHI_NET_NO_TURN,
                          &send, &err),
             err);
    CHECK_OK(lhi_net_receive(nets[1], 0, 0, NULL, 0, &receive, &err), err);
    CHECK_OK(lhi_net_wait(nets[1], &receive, 0, &err), err);
    int64_t waited_ns = lhi_now_ns() - start_ns;
    CHECK(waited_ns >= 300000000);
    /* A periodic check reads it twice at most, and so do sending, receiving and
     * this test. */
    CHECK_MSG(n_looks <= 2 * (waited_ns / LHI_NET_POLL_NS + 4),
              "%d looks at the clock in %" PRId64 " ns", n_looks, waited_ns);
    lhi_net_close(nets[0]);
    lhi_net_close(nets[1]);
}

/* ---- link table, without a transport ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static lhi_links *make_table(const lhi_net_link *link, size_t *bytes)
{
    lh_error err = {0};
    *bytes = lhi_links_bytes(1);
    lhi_links *table = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        abort();
    CHECK_OK(lhi_links_init(table, 1, link, &err), err);
    return table;
}

/* One message, according to the model. */
typedef struct entry {
    int64_t entered_ns, begins_ns, arrives_ns;
    uint64_t turn;
    uint32_t sender, slot;
    size_t bytes;
    lhi_net_link rule; /* the link's parameters at entry */
} entry;

static int by_entry(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    if (x->entered_ns != y->entered_ns)
        return x->entered_ns < y->entered_ns ? -1 : 1;
    return x->sender < y->sender ? -1 : x->sender > y->sender;
}

static lhi_net_link random_rule(uint64_t *seed)
{
    lhi_net_link rule = {(int64_t)(next_random(seed) % 5000),
                         (int64_t)(next_random(seed) % 90), 0,
                         LHI_LINK_UNSHARED};
    rule.ns_per_byte = (double)(next_random(seed) % 8) * 0.25;
    return rule;
}

/* Messages submitted in any order that enter in an hour: their times equal the
 * model's with all of them known. `changes`: the link's parameters change for
 * each. */
static void random_link(uint64_t seed, bool in_turns, bool changes)
{
    enum { N = 300 };
    const lhi_net_link rule = random_rule(&seed);
    entry all[N];
    size_t bytes;
    lh_error err = {0};
    lhi_links *table = make_table(&rule, &bytes);
    int64_t base_ns = lhi_now_ns() + INT64_C(3600000000000);
    for (uint32_t i = 0; i < N; i++)
        all[i] = (entry){.entered_ns =
                             base_ns + (int64_t)(next_random(&seed) % 20000),
                         .turn = in_turns ? i : LHI_NET_NO_TURN,
                         .sender = i, /* all different */
                         .bytes = next_random(&seed) % 100,
                         .rule = changes ? random_rule(&seed) : rule};
    for (uint32_t i = N; i > 1; i--) { /* in any order */
        uint32_t k = (uint32_t)(next_random(&seed) % i);
        entry swap = all[i - 1];
        all[i - 1] = all[k];
        all[k] = swap;
    }
    for (uint32_t i = 0; i < N; i++) {
        if (changes)
            CHECK_OK(lhi_links_set(table, 0, &all[i].rule, &err), err);
        CHECK_OK(lhi_links_enter(table, 0, all[i].sender, all[i].bytes,
                                 all[i].entered_ns, all[i].turn, &all[i].slot,
                                 &err),
                 err);
    }
    qsort(all, N, sizeof all[0], by_entry);
    int64_t free_ns = 0, before_ns = 0;
    for (uint32_t i = 0; i < N; i++) {
        int64_t start_ns =
            all[i].entered_ns > free_ns ? all[i].entered_ns : free_ns;
        const lhi_net_link *r = &all[i].rule;
        free_ns = start_ns + r->transfer_ns +
                  (int64_t)((double)all[i].bytes * r->ns_per_byte + 0.5);
        all[i].begins_ns = start_ns;
        all[i].arrives_ns = free_ns + r->latency_ns;
        if (all[i].arrives_ns < before_ns) /* no overtaking */
            all[i].arrives_ns = before_ns;
        before_ns = all[i].arrives_ns;
    }
    for (uint32_t k = 0; k < N; k++) {
        const entry *e = &all[(k * 7 + 3) % N]; /* received in any order */
        bool taken = false;
        int64_t began_ns = 0, arrived_ns = 0;
        CHECK_OK(lhi_links_take(table, 0, e->slot, e->arrives_ns - 1, &taken,
                                &began_ns, &arrived_ns, &err),
                 err);
        CHECK(!taken && arrived_ns == e->arrives_ns);
        CHECK_OK(lhi_links_take(table, 0, e->slot, e->arrives_ns, &taken,
                                &began_ns, &arrived_ns, &err),
                 err);
        CHECK(taken && arrived_ns == e->arrives_ns);
        CHECK(began_ns == e->begins_ns);
    }
    lhi_links_fini(table);
    munmap(table, bytes);
}

static void links_follow_the_model(void)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_link(seed, false, false);
        random_link(seed, true, false);
        random_link(seed, false, true);
        random_link(seed, true, true);
    }
}

/* Unreceived messages fill a link; receiving them frees its capacity. */
static void links_fill_up(void)
{
    const lhi_net_link rule = {0, 0, 0, LHI_LINK_UNSHARED};
    size_t bytes;
    uint32_t slot = 0, first = 0;
    lh_error err = {0};
    lhi_links *table = make_table(&rule, &bytes);
    for (uint32_t i = 0; i < LHI_LINKS_MAX_MESSAGES; i++)
        CHECK_OK(lhi_links_enter(table, 0, 0, 0, i, LHI_NET_NO_TURN,
                                 i ? &slot : &first, &err),
                 err);
    CHECK_INT(lhi_links_enter(table, 0, 0, 0, 9, LHI_NET_NO_TURN, &slot, &err),
              LH_EIO);
    CHECK_HAS(err.text, "messages that are not received");
    bool taken = false;
    int64_t began_ns, arrived_ns;
    CHECK_OK(lhi_links_take(table, 0, first, lhi_now_ns(), &taken, &began_ns,
                            &arrived_ns, &err),
             err);
    CHECK(taken);
    CHECK_INT(lhi_links_take(table, 0, first, lhi_now_ns(), &taken, &began_ns,
                             &arrived_ns, &err),
              LH_EIO);
    CHECK_OK(lhi_links_enter(table, 0, 0, 0, 9, LHI_NET_NO_TURN, &slot, &err),
             err);
    CHECK_INT(slot, first);
    CHECK_INT(lhi_links_enter(table, 1, 0, 0, 9, LHI_NET_NO_TURN, &slot, &err),
              LH_EINVAL);
    lhi_links_fini(table);
    munmap(table, bytes);
}

/* ---- killed processes ---- */

static lh_status wait_for_ever(lhi_net *net, lh_error *err)
{
    char byte;
    lhi_net_op op = {0};
    uint32_t peer = (lhi_net_rank(net) + 1) % lhi_net_n_ranks(net);
    LHI_TRY(lhi_net_receive(net, peer, 99, &byte, 1, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

static lh_status is_killed(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    if (lhi_net_rank(net) == 2)
        raise(SIGKILL);
    return wait_for_ever(net, err);
}

static lh_status ends_itself(lhi_net *net, void *context, char **result,
                             size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    if (lhi_net_rank(net) == 1)
        _exit(3);
    return wait_for_ever(net, err);
}

/* One rank fails, and another never checks for it. */
static lh_status one_is_stuck(lhi_net *net, void *context, char **result,
                              size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    if (lhi_net_rank(net) == 1)
        return lhi_fail(err, LH_EINPUT, "no more paper");
    for (;;)
        pause();
}

/* Every rank sends small and large messages to every other over an emulated
 * link, until one rank is killed. */
static lh_status dies_in_traffic(lhi_net *net, void *context, char **result,
                                 size_t *size, lh_error *err)
{
    (void)result, (void)size;
    enum { N = 60000, MOST = 4 };
    static char out[N], in[MOST][N];
    uint32_t seed = *(uint32_t *)context, me = lhi_net_rank(net);
    uint32_t n = lhi_net_n_ranks(net), dies = seed % n;
    for (uint32_t round = 0;; round++) {
        lhi_net_op sends[MOST] = {{0}}, receives[MOST] = {{0}};
        size_t bytes = (round * 7919 + seed) % 3 ? 100 : N;
        for (uint32_t i = 0; i < n; i++) {
            if (i == me)
                continue;
            if (me == dies && round == seed * 37 % 101 && i == seed % 3)
                raise(SIGKILL);
            LHI_TRY(lhi_net_receive(net, i, round, in[i], bytes, &receives[i],
                                    err));
            LHI_TRY(lhi_net_send(net, i, round, out, bytes, 0, lhi_now_ns(),
                                 LHI_NET_NO_TURN, &sends[i], err));
        }
        for (uint32_t i = 0; i < n; i++) {
            if (i == me)
                continue;
            if (me == dies && round == seed * 37 % 101 && i >= seed % 3)
                raise(SIGKILL);
            LHI_TRY(lhi_net_wait(net, &receives[i], 0, err));
            LHI_TRY(lhi_net_wait(net, &sends[i], 0, err));
        }
    }
}

static unsigned open_files(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void ends_by_itself(uint32_t n, lhi_rank_main *rank_main, void *context,
                           lh_status status, const char *text)
{
    const lhi_net_link link = {1000, 0, 0, LHI_LINK_UNSHARED};
    lhi_rank_result results[8] = {{0}};
    lh_error err = {0};
    unsigned files = open_files();
    CHECK_INT(lhi_local_run(n, 1, &link, rank_main, context, results, &err),
              status);
    CHECK_STR(err.text, text);
    CHECK_MSG(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD,
              "a process is left");
    CHECK_INT(open_files(), files);
    free_results(results, 8);
}

static void survives_deaths(void)
{
    ends_by_itself(5, is_killed, NULL, LH_EIO,
                   "rank 2: killed by signal 9 (Killed)");
    ends_by_itself(2, ends_itself, NULL, LH_EIO,
                   "rank 1: exited before finishing (exit status 3)");
    ends_by_itself(3, one_is_stuck, NULL, LH_EINPUT, "rank 1: no more paper");
}

static void dies_anywhere(void)
{
    for (uint32_t seed = 1; seed <= 12; seed++) {
        char text[60];
        snprintf(text, sizeof text, "rank %u: killed by signal 9 (Killed)",
                 seed % 4);
        ends_by_itself(4, dies_in_traffic, &seed, LH_EIO, text);
    }
}

/* Reports its process id to the test that kills the launcher. */
static lh_status tells_pid(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    (void)result, (void)size;
    pid_t pid = getpid();
    if (write(*(int *)context, &pid, sizeof pid) != sizeof pid)
        return lhi_fail(err, LH_EIO, "no pipe");
    return wait_for_ever(net, err);
}

static void dies_with_launcher(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t launcher = fork();
    if (launcher == 0) {
        lhi_local_run(3, 0, NULL, tells_pid, &ends[1], NULL, NULL);
        _exit(0);
    }
    pid_t pids[3] = {0};
    for (int i = 0; i < 3; i++)
        CHECK(read(ends[0], &pids[i], sizeof pids[i]) == sizeof pids[i]);
    kill(launcher, SIGKILL);
    CHECK(waitpid(launcher, NULL, 0) == launcher);
    for (int i = 0; i < 3; i++) {
        int how = 0;
        CHECK(waitpid(pids[i], &how, 0) == pids[i]);
        CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    }
    close(ends[0]);
    close(ends[1]);
}

/* ---- stop requests to a launcher ---- */

static bool says_so(void *of)
{
    atomic_uint *n_asked = of;
    return atomic_fetch_add(n_asked, 1) > 0;
}

static lh_status takes_no_notice(lhi_net *net, void *context, char **result,
                                 size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size, (void)err;
    while (lhi_net_n_ranks(net) > 0)
        pause();
    return LH_OK;
}

static void kills_who_takes_no_notice(void)
{
    atomic_uint n_asked = 0;
    const lhi_net_stop stop = {says_so, &n_asked};
    const lhi_local_options options = {.stop = &stop};
    lh_error err = {0};
    CHECK_INT(lhi_local_run_or_stop(2, 0, NULL, takes_no_notice, NULL, &options,
                                    NULL, &err),
              LH_EIO);
    CHECK_STR(err.text,
              "rank 0: it did not end after a failure or a stop request");
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* ---- a stopped rank ---- */

static lh_status one_is_stopped(lhi_net *net, void *context, char **result,
                                size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    if (lhi_net_rank(net) == 1)
        raise(SIGSTOP);
    return wait_for_ever(net, err);
}

/* It keeps its connections, but sends nothing; the other does not wait for it
 * for ever. With two ranks, load cannot make another one seem silent; the limit
 * of more ranks is tested in virtual time (test_net_stream.c). */
static void a_stopped_rank_ends_the_run(void)
{
    uint32_t lost_rank = 0;
    const lhi_local_options options = {.silence_ns = 1000000000,
                                       .lost_rank = &lost_rank};
    lh_error err = {0};
    CHECK_INT(lhi_local_run_or_stop(2, 0, NULL, one_is_stopped, NULL, &options,
                                    NULL, &err),
              LH_EIO);
    CHECK_INT(lost_rank, 1);
    CHECK_HAS(err.text, "rank 1: silent for ");
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

int main(void)
{
    RUN_VIRTUAL(conforms);
    RUN(a_stopped_rank_ends_the_run);
    RUN_VIRTUAL(keeps_what_failed);
    RUN_VIRTUAL(waits_for_the_reason);
    RUN_VIRTUAL(refuses);
    RUN_VIRTUAL(sleeps);
    RUN_VIRTUAL(links_follow_the_model);
    RUN_VIRTUAL(links_fill_up);
    RUN_VIRTUAL(survives_deaths);
    RUN_VIRTUAL(dies_anywhere);
    RUN_VIRTUAL(dies_with_launcher);
    RUN_VIRTUAL(kills_who_takes_no_notice);
    return test_summary();
}
