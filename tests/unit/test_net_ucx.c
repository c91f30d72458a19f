/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite over UCX: processes that connect over tcp or, started
 * by mpirun with --mpi, over MPI. Exit status 77 without UCX. */
#define _GNU_SOURCE
#include "base/realtime.h"
#include "net_conform.h"
#include "net_processes.h"
#include "runtime/transport/handshake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

static lh_status join(void *how, uint32_t rank, uint32_t n, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    lhi_tcp_options o = {.rank = rank,
                         .n_ranks = n,
                         .port = *(uint16_t *)how,
                         .job = "test",
                         .secret = secret,
                         .secret_size = sizeof secret,
                         .n_links = n_links,
                         .links = links};
    return lhi_net_ucx(&o, out, err);
}

static lh_status run_ucx(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results, lh_error *err)
{
    uint16_t port = free_port();
    return run_processes(n, n_links, links, join, &port, rank_main, context,
                         results, err);
}

static void conforms(void)
{
    processes_conform("ucx", run_ucx);
}

static lh_status wait_for_next(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    (void)result, (void)size;
    static char bytes[100000];
    lhi_net_op op = {0};
    count_rank(context);
    uint32_t peer = (lhi_net_rank(net) + 1) % lhi_net_n_ranks(net);
    LHI_TRY(lhi_net_receive(net, peer, 99, bytes, sizeof bytes, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

static void killed(void)
{
    uint16_t port = free_port();
    rank_process p[3] = {{0}};
    uint32_t *joined = count_of_ranks();
    for (uint32_t i = 0; i < 3; i++)
        rank_process_start(&p[i], i, 3, 0, NULL, join, &port, wait_for_next,
                           joined);
    await_ranks(joined, 3);
    kill(p[2].pid, SIGKILL);
    for (int i = 0; i < 3; i++)
        rank_process_end(&p[i]);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(strncmp(p[i].text, "rank 2: ", 8) == 0, "rank %d: %s", i,
                  p[i].text);
}

/* ---- under mpirun: cases with matching rank counts ----------------------- */

static lh_status run_mpi_case(lhi_mpi *mpi, const net_case *c, lh_error *err)
{
    char word[] = "hello";
    lhi_net *net = NULL;
    lhi_rank_result result;
    const lhi_mpi_setup work = {.transport = getenv("TEST_NET_TRANSPORT"),
                                .n_links = c->n_links,
                                .links = c->links,
                                .insecure = getenv("TEST_NET_MBIT") != NULL};
    LHI_TRY(lhi_mpi_exchange(mpi, &work, err));
    LHI_TRY(lhi_net_mpi(mpi, &work, &net, err));
    lh_status status = lhi_rank_run(net, c->rank_main, word, &result, err);
    free(result.text);
    return status;
}

/* A stream over a network limited to TEST_NET_MBIT Mbit/s: it takes at least
 * the time for its bytes. */
static lh_status stream(lhi_net *net, void *context, char **result,
                        size_t *size, lh_error *err)
{
    (void)context, (void)result, (void)size;
    enum { N = 5000000 };
    double mbit = atof(getenv("TEST_NET_MBIT"));
    char *bytes = calloc(1, N);
    lhi_net_op op = {0}, back = {0};
    EXPECT(bytes);
    int64_t start_ns = lhi_now_ns();
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(lhi_net_send(net, 1, 1, bytes, N, LHI_NET_NO_LINK, start_ns,
                             LHI_NET_NO_TURN, &op, err));
        LHI_TRY(lhi_net_receive(net, 1, 2, NULL, 0, &back, err));
    } else {
        LHI_TRY(lhi_net_receive(net, 0, 1, bytes, N, &op, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
        LHI_TRY(lhi_net_send(net, 0, 2, NULL, 0, LHI_NET_NO_LINK, start_ns,
                             LHI_NET_NO_TURN, &back, err));
    }
    LHI_TRY(lhi_net_wait(net, &op, 0, err));
    LHI_TRY(lhi_net_wait(net, &back, 0, err));
    free(bytes);
    double seconds = (double)(lhi_now_ns() - start_ns) * 1e-9;
    if (lhi_net_rank(net) == 0)
        printf("%.1f Mbit/s through %.1f\n", N * 8e-6 / seconds, mbit);
    /* At least the link's time; additional delays depend on the machine. */
    EXPECT(seconds > 0.9 * N * 8e-6 / mbit);
    return LH_OK;
}

static const net_case stream_case = {"stream", 2, stream, 0, {{0}}, NULL};

static int under_mpi(void)
{
    lhi_mpi *mpi = NULL;
    lh_error err = {0};
    unsigned n_run = 0;
    if (lhi_mpi_start(&mpi, &err) != LH_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (unsigned i = 0; i < n_net_cases; i++) {
        const net_case *c = &net_cases[i];
        bool elsewhere = getenv("TEST_NET_MBIT") != NULL;
        if (c->n_ranks != lhi_mpi_n_ranks(mpi) || c->fails ||
            (elsewhere && c->n_links))
            continue;
        n_run++;
        CHECK_MSG(run_mpi_case(mpi, c, &err) == LH_OK, "rank %u, %s: %s",
                  lhi_mpi_rank(mpi), c->name, err.text);
    }
    if (getenv("TEST_NET_MBIT"))
        CHECK_MSG(run_mpi_case(mpi, &stream_case, &err) == LH_OK,
                  "rank %u, stream: %s", lhi_mpi_rank(mpi), err.text);
    if (lhi_mpi_rank(mpi) == 0)
        printf("%u cases\n", n_run);
    bool bad = test_state.bad || n_run == 0;
    lhi_mpi_finalise(mpi, bad);
    return bad;
}

/* ---- one of two ranks on separate hosts, until the other is lost --------- */

static int apart(char **of)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    lhi_net *net = NULL;
    lh_error err = {0};
    lhi_tcp_options o = {.rank = (uint32_t)atoi(of[0]),
                         .n_ranks = 2,
                         .host = of[1],
                         .port = (uint16_t)atoi(of[2]),
                         .job = "apart",
                         .secret = secret,
                         .secret_size = sizeof secret,
                         .insecure = true};
    bool ucx = strcmp(of[3], "ucx") == 0;
    if ((ucx ? lhi_net_ucx(&o, &net, &err) : lhi_net_tcp(&o, &net, &err))) {
        printf("cannot join: %s\n", err.text);
        return 2;
    }
    printf("joined\n");
    fflush(stdout);
    lh_status status = wait_for_next(net, NULL, NULL, NULL, &err);
    lhi_net_close(net);
    printf("%s\n", err.text);
    return status == LH_EIO ? 0 : 2;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--probe") == 0) {
#if defined LHI_HAVE_UCX && defined LHI_HAVE_MPI && defined LHI_HAVE_OPENSSL
        return 0;
#else
        printf("SKIPPED: built without UCX, MPI or OpenSSL\n");
        return 77;
#endif
    }
    if (argc == 6 && strcmp(argv[1], "--apart") == 0)
        return apart(argv + 2);
    /* UCX's memory hooks conflict with the sanitizers'. */
    setenv("UCX_MEM_EVENTS", "n", 0);
    if (argc > 1 && strcmp(argv[1], "--mpi") == 0)
        return under_mpi();
    lhi_net *net = NULL;
    lh_error err = {0};
    uint16_t port = free_port();
    lh_status status = join(&port, 0, 1, 0, NULL, &net, &err);
    if (status == LH_EUNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    CHECK_OK(status, err);
    lhi_net_close(net);
    RUN(conforms);
    RUN(killed);
    return test_summary();
}
