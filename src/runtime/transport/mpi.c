/* SPDX-License-Identifier: Apache-2.0 */
/* MPI, used only for startup: rank numbers and the address exchange. The
 * library is loaded when a run needs it. Ranks never wait inside MPI during a
 * run, because it would spin, and forever if a rank is lost. */
#define _GNU_SOURCE
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "base/symbol.h"
#include "runtime/transport/address_exchange.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/ucx.h"

#include <stdlib.h>
#include <string.h>

bool lhi_mpi_is_launched(void)
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
                    "this build cannot be started by mpirun: it was built "
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

lh_status lhi_mpi_exchange(lhi_mpi *mpi, const lhi_mpi_setup *work,
                           lh_error *err)
{
    (void)work;
    return lhi_mpi_start(&mpi, err);
}

lh_status lhi_net_mpi(lhi_mpi *mpi, const lhi_mpi_setup *work, lhi_net **out,
                      lh_error *err)
{
    (void)work, (void)out;
    return lhi_mpi_start(&mpi, err);
}

void lhi_mpi_finalise(lhi_mpi *mpi, bool failed)
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

/* X(name): the MPI functions used, without prefix. */
#define MPI_LIST(X)                                                            \
    X(Init_thread)                                                             \
    X(Comm_rank)                                                               \
    X(Comm_size)                                                               \
    X(Allgather)                                                               \
    X(Finalize)

/* Addresses of the MPI functions. */
typedef struct mpi_calls {
#define MPI_MEMBER(name) __typeof__(MPI_##name) *name;
    MPI_LIST(MPI_MEMBER)
#undef MPI_MEMBER
} mpi_calls;

/* An initialised MPI library. */
struct lhi_mpi {
    mpi_calls call;
    MPI_Comm world;
    MPI_Datatype byte;
    uint32_t rank, n_ranks;
    lhi_start_record *records; /* all ranks', after the exchange */
};

/* Loads the MPI library at run time and resolves its functions;
 * LH_EUNSUPPORTED: not installed. */
static lh_status load_library(lhi_mpi *m, lh_error *err)
{
    /* Open MPI's plug-ins resolve symbols globally. */
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
                        "cannot load the MPI library of this build: %s",
                        dlerror());
    return LH_OK;
}

lh_status lhi_mpi_start(lhi_mpi **out, lh_error *err)
{
    lhi_mpi *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
#ifdef OMPI_MAJOR_VERSION
    /* Disables Open MPI's shared-memory transport: its segments in /dev/shm
     * would remain if mpirun kills the ranks, and MPI carries only addresses. A
     * user's setting has precedence. */
    setenv("OMPI_MCA_btl", "^vader,sm", 0);
#endif
    lh_status status = load_library(m, err);
    int rank = 0, n = 0, provided = 0;
    if (status == LH_OK &&
        (m->call.Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) ||
         m->call.Comm_rank(m->world, &rank) || m->call.Comm_size(m->world, &n)))
        status = lhi_fail(err, LH_EIO, "MPI cannot be initialized");
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

/* Returns a port that is free now; the caller listens on it soon after. */
static uint32_t find_free_port(void)
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

/* Finds an address under which other hosts reach this one: that of the
 * interface named by LONGHAUL_INTERFACE, else of the first interface that is up
 * and not loopback. */
static void find_own_address(char *out, socklen_t room)
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

/* All-gathers the start records (address, secret and setup digest) of all
 * ranks. */
static lh_status exchange_records(lhi_mpi *m, const lhi_start_record *mine,
                                  lh_error *err)
{
    unsigned char *bytes = calloc(m->n_ranks, LHI_START_RECORD_BYTES);
    if (!m->records)
        m->records = calloc(m->n_ranks, sizeof *m->records);
    lh_status status = bytes && m->records ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        lhi_start_record_write(mine, bytes + (size_t)m->rank *
                                                 LHI_START_RECORD_BYTES);
    if (status == LH_OK &&
        m->call.Allgather(MPI_IN_PLACE, 0, m->byte, bytes,
                          LHI_START_RECORD_BYTES, m->byte, m->world))
        status = lhi_fail(err, LH_EIO, "MPI cannot exchange addresses");
    for (uint32_t i = 0; i < m->n_ranks && status == LH_OK; i++) {
        status = lhi_start_record_read(
            bytes + (size_t)i * LHI_START_RECORD_BYTES, &m->records[i], err);
        if (status != LH_OK)
            lhi_fail_add_context(err, "rank %u", i);
    }
    free(bytes);
    return status;
}

/* Checks whether all ranks are on one host. */
static bool is_single_host(const lhi_mpi *m)
{
    const lhi_start_record *c = m->records;
    for (uint32_t i = 1; i < m->n_ranks; i++)
        if (strncmp(c[i].host, c[0].host, sizeof c[0].host) != 0)
            return false;
    return true;
}

/* Checks that the start records of all ranks belong together: same setup, same
 * hosts; every rank reaches the same result. */
static lh_status check_records(const lhi_mpi *m, const lhi_mpi_setup *work,
                               lh_error *err)
{
    for (uint32_t i = 0; i < m->n_ranks; i++)
        if (m->records[i].failed)
            return lhi_fail(err, LH_EIO,
                            "rank %u cannot generate random numbers", i);
    for (uint32_t i = 1; i < m->n_ranks; i++) {
        const char *what = lhi_setup_find_difference(
            m->records[i].setup_digest, m->records[0].setup_digest);
        if (what)
            return lhi_fail(err, LH_EINVAL,
                            "rank %u has %s than rank 0: give all ranks "
                            "the same plan, options and data",
                            i, what);
    }
    if (!is_single_host(m) && !*m->records[0].address)
        return lhi_fail(err, LH_EIO,
                        "rank 0 has no address that other hosts can reach; "
                        "name an interface in LONGHAUL_INTERFACE");
    if (strcmp(work->transport, "ucx") == 0)
        return lhi_ucx_may_listen(is_single_host(m), work->insecure, err);
    return LH_OK;
}

lh_status lhi_mpi_exchange(lhi_mpi *m, const lhi_mpi_setup *work, lh_error *err)
{
    lhi_start_record mine = {.port = m->rank == 0 ? find_free_port() : 0};
    if (strcmp(work->transport, "ucx") != 0 &&
        strcmp(work->transport, "tcp") != 0)
        return lhi_fail(err, LH_EINVAL,
                        "ranks started by mpirun require transport ucx or tcp, "
                        "not %s",
                        work->transport);
    LHI_TRY(lhi_links_check(work->n_links, work->links, err));
    gethostname(mine.host, sizeof mine.host - 1);
    find_own_address(mine.address, sizeof mine.address);
    memcpy(mine.setup_digest, work->digest, sizeof mine.setup_digest);
    mine.failed = !lhi_random_bytes(mine.secret, sizeof mine.secret);
    LHI_TRY(exchange_records(m, &mine, err));
    return check_records(m, work, err);
}

/* Computes a job name unique to this run from rank 0's secret and port, the
 * rank count and the setup. Two jobs therefore never join each other,
 * even if their random secrets coincide. */
static void make_job_name(const lhi_mpi *m, char out[2 * LHI_MAC_BYTES + 1])
{
    unsigned char mac[LHI_MAC_BYTES];
    const lhi_start_record *c = &m->records[0];
    const lhi_handshake none = {.n_ranks = m->n_ranks, .port = c->port};
    lhi_handshake_compute_mac(c->secret, sizeof c->secret, "job", &none,
                              c->setup_digest, sizeof c->setup_digest, mac);
    for (size_t i = 0; i < sizeof mac; i++)
        snprintf(out + 2 * i, 3, "%02x", mac[i]);
}

lh_status lhi_net_mpi(lhi_mpi *m, const lhi_mpi_setup *work, lhi_net **out,
                      lh_error *err)
{
    char job[2 * LHI_MAC_BYTES + 1];
    make_job_name(m, job);
    const lhi_start_record *first = &m->records[0];
    lhi_tcp_options o = {.rank = m->rank,
                         .n_ranks = m->n_ranks,
                         .host =
                             is_single_host(m) ? "127.0.0.1" : first->address,
                         .port = (uint16_t)first->port,
                         .job = job,
                         .secret = first->secret,
                         .secret_size = sizeof first->secret,
                         .outlasts_wrong_secrets = true, /* MPI has sent it */
                         .n_links = work->n_links,
                         .links = work->links,
                         .silence_ns = work->silence_ns,
                         .insecure = work->insecure,
                         .n_rails = work->n_rails,
                         .rails = work->rails};
    return strcmp(work->transport, "ucx") == 0 ? lhi_net_ucx(&o, out, err)
                                               : lhi_net_tcp(&o, out, err);
}

void lhi_mpi_finalise(lhi_mpi *m, bool failed)
{
    if (m && !failed)
        m->call.Finalize();
    if (m)
        free(m->records);
    free(m);
}

#endif
