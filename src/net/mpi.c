/* SPDX-License-Identifier: Apache-2.0 */
/* MPI for starting alone: who is who, and the exchange of what ranks need to
 * find each other. It is loaded when a run asks for it. Nothing of a run waits
 * in MPI: it would spin, and for ever where a rank is lost. */
#define _GNU_SOURCE
#include "net/net.h"

#include "base/fail.h"
#include "base/symbol.h"
#include "net/hello.h"
#include "net/shared.h"
#include "net/tcp.h"
#include "net/ucx.h"

#include <stdlib.h>
#include <string.h>

bool lhi_mpi_launched(void)
{
    /* Open MPI, MPICH (and Slurm's PMI2), PMIx. */
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") ||
           getenv("PMIX_RANK");
}

#ifndef LHI_HAVE_MPI

lh_status lhi_mpi_start(lhi_mpi **out, lh_error *err)
{
    (void)out;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "this build cannot be started by mpirun: it was made "
                    "without MPI (libopenmpi-dev)");
}

uint32_t lhi_mpi_rank(const lhi_mpi *mpi)
{
    (void)mpi;
    return 0;
}

uint32_t lhi_mpi_n_ranks(const lhi_mpi *mpi)
{
    (void)mpi;
    return 0;
}

lh_status lhi_net_mpi(lhi_mpi *mpi, const char *transport, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    (void)mpi, (void)transport, (void)n_links, (void)links, (void)out;
    return lhi_mpi_start(NULL, err);
}

void lhi_mpi_end(lhi_mpi *mpi, bool failed)
{
    (void)mpi, (void)failed;
}

#else

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* X(name): the functions used, without their prefix. */
#define MPI_LIST(X)                                                            \
    X(Init_thread)                                                             \
    X(Comm_rank)                                                               \
    X(Comm_size)                                                               \
    X(Allgather)                                                               \
    X(Finalize)

typedef struct mpi_calls {
#define MPI_MEMBER(name) __typeof__(MPI_##name) *name;
    MPI_LIST(MPI_MEMBER)
#undef MPI_MEMBER
} mpi_calls;

struct lhi_mpi {
    mpi_calls call;
    MPI_Comm world;
    MPI_Datatype byte;
    uint32_t rank, n_ranks;
};

static lh_status load(lhi_mpi *m, lh_error *err)
{
    /* Its own plug-ins look for symbols among the global ones. */
    int how = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
#ifdef OMPI_MAJOR_VERSION
    void *library = dlopen("libmpi.so.40", how);
    bool all = library &&
               lhi_find_symbol(library, "ompi_mpi_comm_world", &m->world) &&
               lhi_find_symbol(library, "ompi_mpi_byte", &m->byte);
#else
    void *library = dlopen("libmpi.so.12", how);
    bool all = library != NULL;
    m->world = MPI_COMM_WORLD;
    m->byte = MPI_BYTE;
#endif
#define MPI_FIND(name)                                                         \
    all = all && lhi_find_symbol(library, "MPI_" #name, &m->call.name);
    MPI_LIST(MPI_FIND)
#undef MPI_FIND
    if (!all)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the MPI that this build was made with cannot be "
                        "loaded: %s",
                        dlerror());
    return LH_OK;
}

lh_status lhi_mpi_start(lhi_mpi **out, lh_error *err)
{
    lhi_mpi *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
#ifdef OMPI_MAJOR_VERSION
    /* Its segments in /dev/shm would stay where mpirun kills the ranks, and
     * nothing but addresses goes by MPI. What the user has set stands. */
    setenv("OMPI_MCA_btl", "^vader,sm", 0);
#endif
    lh_status status = load(m, err);
    int rank = 0, n = 0, provided = 0;
    if (status == LH_OK &&
        (m->call.Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) ||
         m->call.Comm_rank(m->world, &rank) || m->call.Comm_size(m->world, &n)))
        status = lhi_fail(err, LH_EIO, "MPI does not start");
    if (status != LH_OK) {
        free(m);
        return status;
    }
    m->rank = (uint32_t)rank;
    m->n_ranks = (uint32_t)n;
    *out = m;
    return LH_OK;
}

uint32_t lhi_mpi_rank(const lhi_mpi *m)
{
    return m->rank;
}

uint32_t lhi_mpi_n_ranks(const lhi_mpi *m)
{
    return m->n_ranks;
}

static lh_status exchange(void *context, void *cards, size_t size,
                          lh_error *err)
{
    lhi_mpi *m = context;
    if (m->call.Allgather(MPI_IN_PLACE, 0, m->byte, cards, (int)size, m->byte,
                          m->world))
        return lhi_fail(err, LH_EIO, "MPI cannot exchange addresses");
    return LH_OK;
}

/* A port that is free now: listened at again in a moment. */
static uint32_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool got = fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0 &&
               getsockname(fd, (struct sockaddr *)&a, &size) == 0;
    if (fd >= 0)
        close(fd);
    return got ? ntohs(a.sin_port) : 0;
}

/* An address that other hosts can reach this one at: of the interface named by
 * LONGHAUL_INTERFACE, or else of the first that is up and not loopback. */
static void own_address(char *out, socklen_t room)
{
    const char *wanted = getenv("LONGHAUL_INTERFACE");
    struct ifaddrs *all = NULL;
    getifaddrs(&all);
    for (const struct ifaddrs *i = all; i && !*out; i = i->ifa_next) {
        struct sockaddr_in a;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
            !(i->ifa_flags & IFF_UP) ||
            (wanted ? strcmp(wanted, i->ifa_name) != 0
                    : (i->ifa_flags & IFF_LOOPBACK) != 0))
            continue;
        memcpy(&a, i->ifa_addr, sizeof a);
        inet_ntop(AF_INET, &a.sin_addr, out, room);
    }
    freeifaddrs(all);
}

/* Everyone learns what is on everyone's card. */
static lh_status exchange_cards(lhi_mpi *m, lhi_start_card *cards,
                                lh_error *err)
{
    unsigned char *bytes = calloc(m->n_ranks, LHI_START_CARD_BYTES);
    if (!bytes)
        return lhi_fail_nomem(err);
    lhi_start_card_write(&cards[m->rank],
                         bytes + (size_t)m->rank * LHI_START_CARD_BYTES);
    lh_status status = exchange(m, bytes, LHI_START_CARD_BYTES, err);
    for (uint32_t i = 0; i < m->n_ranks && status == LH_OK; i++) {
        status = lhi_start_card_read(bytes + (size_t)i * LHI_START_CARD_BYTES,
                                     &cards[i], err);
        if (status != LH_OK)
            lhi_wrap(err, "rank %u", i);
    }
    free(bytes);
    return status;
}

static lh_status get_cards(lhi_mpi *m, lhi_start_card *cards, uint32_t n_links,
                           const lhi_net_link *links, lhi_shared **shared,
                           lh_error *err)
{
    lhi_start_card *mine = &cards[m->rank];
    lh_error e = {0};
    lh_status status = LH_OK;
    gethostname(mine->host, sizeof mine->host - 1);
    own_address(mine->address, sizeof mine->address);
    if (!lhi_random_bytes(mine->secret, sizeof mine->secret))
        status = lhi_fail(&e, LH_EIO, "no random numbers");
    mine->port = m->rank == 0 ? free_port() : 0;
    if (status == LH_OK && m->rank == 0)
        status = lhi_shared_make(n_links, links, mine->share, shared, &e);
    mine->failed = status != LH_OK;
    LHI_TRY(exchange_cards(m, cards, err));
    if (status == LH_OK && m->rank > 0 && !cards[0].failed)
        status = lhi_shared_find(n_links, links, cards[0].share, shared, &e);
    /* All go on or none: a rank alone would wait for the others. */
    mine->failed = status != LH_OK;
    LHI_TRY(exchange_cards(m, cards, err));
    for (uint32_t i = 0; i < m->n_ranks && status == LH_OK; i++)
        if (cards[i].failed)
            status =
                lhi_fail(&e, LH_EIO, "rank %u cannot start; it says why", i);
    return status == LH_OK
               ? LH_OK
               : lhi_fail(err, status, "rank %u: %s", m->rank, e.text);
}

static bool one_host(const lhi_start_card *cards, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (strncmp(cards[i].host, cards[0].host, sizeof cards[0].host) != 0)
            return false;
    return true;
}

static void free_shared(void *of)
{
    lhi_shared_free(of);
}

static lh_status over_ucx(lhi_mpi *m, const lhi_start_card *cards,
                          lhi_shared *shared, lhi_net **out, lh_error *err)
{
    lhi_ucx_options o = {.rank = m->rank,
                         .n_ranks = m->n_ranks,
                         .exchange = exchange,
                         .context = m,
                         .loopback = one_host(cards, m->n_ranks),
                         .links = lhi_shared_table(shared),
                         .silence_ns = LHI_SILENCE_NS,
                         .closed = free_shared,
                         .closed_context = shared};
    return lhi_ucx_open(&o, out, err);
}

static lh_status over_tcp(lhi_mpi *m, const lhi_start_card *cards,
                          uint32_t n_links, const lhi_net_link *links,
                          lhi_net **out, lh_error *err)
{
    const char *host = "127.0.0.1";
    if (!one_host(cards, m->n_ranks))
        host = cards[0].address;
    if (!*host)
        return lhi_fail(err, LH_EIO,
                        "rank 0 has no address that other hosts can reach; "
                        "name an interface in LONGHAUL_INTERFACE");
    lhi_tcp_options o = {.rank = m->rank,
                         .n_ranks = m->n_ranks,
                         .host = host,
                         .port = (uint16_t)cards[0].port,
                         .job = "mpi",
                         .secret = cards[0].secret,
                         .secret_size = sizeof cards[0].secret,
                         .n_links = n_links,
                         .links = links};
    return lhi_net_tcp(&o, out, err);
}

lh_status lhi_net_mpi(lhi_mpi *m, const char *transport, uint32_t n_links,
                      const lhi_net_link *links, lhi_net **out, lh_error *err)
{
    bool ucx = strcmp(transport, "ucx") == 0;
    if (!ucx && strcmp(transport, "tcp") != 0)
        return lhi_fail(err, LH_EINVAL,
                        "ranks that mpirun started use ucx or tcp, not %s",
                        transport);
    LHI_TRY(lhi_links_check(n_links, links, err));
    lhi_start_card *cards = calloc(m->n_ranks, sizeof *cards);
    if (!cards)
        return lhi_fail_nomem(err);
    lhi_shared *shared = NULL;
    lh_status status =
        get_cards(m, cards, ucx ? n_links : 0, links, &shared, err);
    if (status == LH_OK && ucx)
        status = over_ucx(m, cards, shared, out, err);
    else if (status == LH_OK)
        status = over_tcp(m, cards, n_links, links, out, err);
    if (status != LH_OK || !ucx) /* of ucx, it is the endpoint's now */
        lhi_shared_free(shared);
    free(cards);
    return status;
}

void lhi_mpi_end(lhi_mpi *m, bool failed)
{
    if (m && !failed)
        m->call.Finalize();
    free(m);
}

#endif

lh_status lhi_mpi_run(lhi_mpi *mpi, const char *transport, uint32_t n_links,
                      const lhi_net_link *links, lhi_rank_main *rank_main,
                      void *context, lhi_rank_result *result, lh_error *err)
{
    lhi_net *net;
    *result = (lhi_rank_result){NULL, 0};
    LHI_TRY(lhi_net_mpi(mpi, transport, n_links, links, &net, err));
    return lhi_rank_run(net, rank_main, context, result, err);
}
