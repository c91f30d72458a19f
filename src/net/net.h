/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks exchange messages: one interface, several transports, one
 * conformance suite (tests/unit/test_net.c).
 *
 * A transport moves bytes and nothing else. Which messages there are, in what
 * order they leave, and when a pass may start is the engine's business. Every
 * call may be made from any thread of the rank that owns the endpoint.
 *
 * Messages between two ranks are matched by tag: a receive takes the oldest
 * message from that rank with that tag. Small messages (LHI_NET_EAGER_BYTES)
 * that arrive before their receive are kept, up to LHI_NET_KEPT_BYTES per
 * rank; of a larger one the bytes move once its receive is posted, so sends of
 * large messages may not be done before that.
 *
 * What goes in is bytes for a rank, under a tag; what comes out is the same
 * bytes there, with the times of their journey. Where each idea is:
 *
 *   net.c, futex.c      beginning, awaiting, ending operations; a rank's life
 *   match.c             messages that have come meet receives
 *   inproc.c            ranks as threads: one copies from the other
 *   wire.c, proto.c     ranks that share no memory: frames, and when they go;
 *   stream.c, ucx.c     what carries these: sockets, or UCX (ucx_calls.c)
 *   outgoing.c, seal.c  ... frame by frame, so that nobody changes one unseen
 *   hello.c, cards.c    what ranks that start apart tell each other first
 *   guests.c, sockets.c who knocks before it has proven anything
 *   tcp.c, apart.c      how ranks find each other so, and get an endpoint
 *   rails.c             several connections to a peer, of which some may fail;
 *   rail_carry.c, ...   what goes over one; rail_door.c, rail_join.c: how it
 *                       comes to be
 *   threads.c, local.c  launchers: of threads, of processes
 *   mpi.c               ... and of the rank in a process that mpirun started
 *   slurm.c             who is who where srun did
 *   emulated_links.c    when a message arrives over a slower link;
 *   shared.c            ... for processes that were not forked together
 *   net_collective.c    barrier, reduce-scatter, all-gather
 *   group.c             ... of groups that last; all-to-all, rings
 *   net_round.c         what both are made of
 *
 * Times are nanoseconds of lhi_now_ns() (base/realtime.h). */
#ifndef LHI_NET_H
#define LHI_NET_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_net lhi_net; /* one rank's end of a transport */

enum {
    LHI_NET_EAGER_BYTES = 16 << 10,
    LHI_NET_KEPT_BYTES = 64 << 20,
    LHI_NET_MOST_RANKS = 4096
};

/* One send or receive under way. The caller owns it, zeroed, at a fixed
 * address until it is done, a wait for it has failed, or the endpoint is
 * closed; so it is with the data. */
typedef struct lhi_net_op {
    lhi_net *net;
    uint32_t peer;
    uint32_t state; /* the transport's; look with lhi_net_wait */
    uint64_t tag;
    void *data;
    size_t size;
    /* Of a receive, once done: when the sender's message entered its link,
     * and when it arrived, both as the link's emulation has them; without
     * emulation, when it was sent and when it was there. Between them, when the
     * link was free for it and its transfer began; without emulation
     * entered_ns. */
    int64_t entered_ns, began_ns, arrived_ns;
    lh_status status;        /* once done */
    bool is_done;            /* set by the wait that found it done */
    bool receives, was_kept; /* the transport's */
    bool rings;              /* the caller's: the bell rings once it is done */
    struct lhi_net_op *next; /* in the transport's queues */
    void *own;               /* the transport's */
    uint32_t link, slot;     /* the transport's: where its link keeps it */
    uint64_t id;
    uint32_t flags;
} lhi_net_op;

/* A link whose latency and bandwidth are emulated. A message that enters at t
 * leaves at s = max(t, the end of the transfer before it), occupies the link
 * for transfer_ns + bytes * ns_per_byte, and has arrived latency_ns later.
 * Messages leave by their time of entry, at equal times the lower sender's
 * first: one that is handed over late, but before those behind it have
 * arrived, still takes its place before them. */
typedef struct lhi_net_link {
    int64_t latency_ns;
    int64_t transfer_ns; /* of one message, whatever its size */
    double ns_per_byte;  /* 0: the size does not matter */
} lhi_net_link;

#define LHI_NET_NO_LINK UINT32_MAX
#define LHI_NET_NO_TURN UINT64_MAX

/* Starts sending `size` bytes. `link`: index of the emulated link that the
 * message takes, or LHI_NET_NO_LINK. `entered_ns`: when it enters that link:
 * the moment at which the pass that made it ended, at most now. `turn`: where
 * the link's messages leave in a given order, the message's place in it (0, 1,
 * ...; each place once over the whole run, messages without one counted as they
 * leave; all messages that are on the link together have one, or none has);
 * LHI_NET_NO_TURN: first in, first out. Never blocks. */
lh_status lhi_net_send(lhi_net *net, uint32_t to, uint64_t tag,
                       const void *data, size_t size, uint32_t link,
                       int64_t entered_ns, uint64_t turn, lhi_net_op *op,
                       lh_error *err);

/* Gives an emulated link other times, for all ranks: messages that are handed
 * over from now on take it so. Those under way keep the times that they entered
 * with, and none of them is overtaken. May be called by any rank, at any time.
 * LH_EINVAL: there is no such link, or no such times. */
lh_status lhi_net_set_link(lhi_net *net, uint32_t link,
                           const lhi_net_link *rule, lh_error *err);

/* An emulated link takes no message before that, for all ranks: what enters it
 * sooner leaves then. LH_EINVAL: there is no such link. */
lh_status lhi_net_hold_link(lhi_net *net, uint32_t link, int64_t until_ns,
                            lh_error *err);

/* Posts a receive of exactly `size` bytes (another size is an error that names
 * both, and ends the run). Never blocks. */
lh_status lhi_net_receive(lhi_net *net, uint32_t from, uint64_t tag, void *data,
                          size_t size, lhi_net_op *op, lh_error *err);

/* Waits until the operation is done; a receive is done when its bytes are
 * there and the clock has reached op->arrived_ns. Sleeps, never spins. One
 * thread waits for an operation at a time.
 * LH_EIO: this or another rank has failed; `err` names the rank and says why,
 * and the transport has let go of the operation.
 * LH_ECANCELED: `until_ns` (0: no limit; 1: only look) has passed, the
 * operation goes on. */
lh_status lhi_net_wait(lhi_net *net, lhi_net_op *op, int64_t until_ns,
                       lh_error *err);

/* For a thread that awaits several receives at once: each time one whose
 * `rings` was set as it began has its bytes, the endpoint's bell rings. A
 * thread reads what the bell says, looks at its receives, and sleeps until the
 * bell says otherwise, `until_ns`, or it is time to look whether the run has
 * failed. */
uint32_t lhi_net_bell(const lhi_net *net);
void lhi_net_await_bell(lhi_net *net, uint32_t said, int64_t until_ns);
void lhi_net_ring(lhi_net *net);
/* Whether an operation is done: as lhi_net_wait(), without waiting.
 * LH_ECANCELED: not yet; *again_ns is when to look again, INT64_MAX: after the
 * bell. */
lh_status lhi_net_look(lhi_net *net, lhi_net_op *op, int64_t *again_ns,
                       lh_error *err);

/* What may end a run from outside: asked now and then by whom it was given to;
 * once it says true, the run is over. */
typedef struct lhi_net_stop {
    bool (*says)(void *context);
    void *context;
} lhi_net_stop;
bool lhi_net_stopped(const lhi_net_stop *stop); /* NULL: never */

/* Waits without a limit, but for `stop` (NULL: nothing stops it): LH_ECANCELED,
 * the run is ended on every rank, and the transport has let go of the
 * operation. */
lh_status lhi_net_wait_unless(lhi_net *net, lhi_net_op *op,
                              const lhi_net_stop *stop, lh_error *err);

/* Has the run fail on every rank, with this rank named as the cause: each
 * wait, send and receive anywhere returns LH_EIO within a second. The first
 * reason counts. Safe to call twice. */
void lhi_net_abort(lhi_net *net, const char *reason);
/* NULL while nothing has failed; else why, with the rank ("rank 3: ..."). */
const char *lhi_net_failure(const lhi_net *net);

/* Of a failed run: this rank is the one to tell people why, the one that failed
 * or, where that was lost, the first of the others. */
bool lhi_net_speaks(const lhi_net *net);

/* What the transport has to tell people that does not end the run, as a
 * sentence; false: nothing that was not told before. */
bool lhi_net_tell(lhi_net *net, char *text, size_t room);

uint32_t lhi_net_rank(const lhi_net *net);
uint32_t lhi_net_n_ranks(const lhi_net *net);

/* Has lhi_net_close call release(of) once nothing of the endpoint touches its
 * rank's memory any more. One per endpoint. */
void lhi_net_when_closed(lhi_net *net, void (*release)(void *of), void *of);

/* Leaves the transport: waits until what was sent is out (or cannot get there
 * any more), then releases everything. Receives still posted are dropped. A
 * peer that waits for a message from a rank that has left without sending it
 * gets LH_EIO. NULL is fine. */
void lhi_net_close(lhi_net *net);

/* Collectives over `n_ranks` ranks listed in `ranks` (the caller among them,
 * all with the same list), in src/net/net_collective.c on sends and receives
 * alone, so every transport has them and sums come out alike on all: values are
 * added in the order of `ranks`. Blocking; each takes tags [tag, tag +
 * LHI_NET_TAGS).
 */
#define LHI_NET_TAGS 16u
typedef struct lhi_net_group {
    uint32_t n_ranks, mine; /* ranks[mine] is the caller */
    const uint32_t *ranks;  /* NULL: all ranks, in order */
    uint32_t link; /* emulated link of these messages, or LHI_NET_NO_LINK */
    /* NULL, or raised to when the last message that came was sent, by its
     * sender's clock: how long a collective waited for whom it needs. */
    int64_t *latest_ns;
} lhi_net_group;
/* Returns once all members have called it. `stop` as in lhi_net_wait_unless. */
lh_status lhi_net_barrier(lhi_net *net, const lhi_net_group *group,
                          uint64_t tag, const lhi_net_stop *stop,
                          lh_error *err);
/* Member i gets, in out, the sum of everyone's values [first(i), first(i+1)),
 * first(i) = floor(n * i / n_ranks). `out` may be values + first(i), and may
 * not overlap the rest of `values`. */
lh_status lhi_net_reduce_scatter(lhi_net *net, const lhi_net_group *group,
                                 uint64_t tag, const float *values, size_t n,
                                 float *out, lh_error *err);
/* The inverse: member i gives values [first(i), first(i+1)) of the same array,
 * all get the whole. */
lh_status lhi_net_all_gather(lhi_net *net, const lhi_net_group *group,
                             uint64_t tag, void *values, size_t n,
                             size_t value_size, lh_error *err);

/* inproc: `n` endpoints for threads of this process; endpoints[i] is rank i's.
 * `links` are emulated by all of them together. Each is closed by its rank. */
lh_status lhi_net_inproc(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_net **endpoints,
                         lh_error *err);

/* What a rank of a run does, in a thread or process of its own. It may hand
 * back text made with malloc in *result (its size in *size; NULL: nothing),
 * also when it fails. When it returns, the endpoint is closed for it
 * (lhi_net_when_closed: and then what it has left); a failure ends the run
 * everywhere. */
typedef lh_status lhi_rank_main(lhi_net *net, void *context, char **result,
                                size_t *size, lh_error *err);

/* What a rank handed back; release it with free. */
typedef struct lhi_rank_result {
    char *text; /* NULL: nothing */
    size_t size;
} lhi_rank_result;

/* The life of a rank that has its endpoint, however it was started: runs
 * `rank_main`, has the run fail where that fails, closes the endpoint. `err`
 * then says why the run has failed; *result is set in any case. */
lh_status lhi_rank_run(lhi_net *net, lhi_rank_main *rank_main, void *context,
                       lhi_rank_result *result, lh_error *err);

/* inproc: a thread per rank that runs `rank_main`; returns when all have ended.
 * Otherwise like lhi_local_run. */
lh_status lhi_inproc_run(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results,
                         lh_error *err);

/* local: forks `n` processes that each run `rank_main`, watches them, and
 * returns when all have ended; they share what the caller had in memory, but
 * see no change after. The caller must have no other threads.
 * `results` (n of them, zeroed) may be NULL; a failed run has those of the
 * ranks that came to their end. Any rank that fails or dies ends all of them
 * within seconds: LH_EIO or the rank's own status, with the first rank to fail
 * and the cause. If the caller dies, so do they. Where the caller is process 1
 * of a container, it also waits for orphans meanwhile. */
lh_status lhi_local_run(uint32_t n, uint32_t n_links, const lhi_net_link *links,
                        lhi_rank_main *rank_main, void *context,
                        lhi_rank_result *results, lh_error *err);
/* The same with `stop`, which the caller's process asks after each signal that
 * it gets and several times a second (NULL: nobody). Telling the ranks is its
 * own business; those that have not ended 3 s after it said true are killed. */
lh_status lhi_local_run_unless(uint32_t n, uint32_t n_links,
                               const lhi_net_link *links,
                               lhi_rank_main *rank_main, void *context,
                               const lhi_net_stop *stop,
                               lhi_rank_result *results, lh_error *err);

/* tcp: ranks that were started apart from each other, on one host or several.
 */
enum { LHI_SECRET_LEAST = 16 };
typedef struct lhi_tcp_options {
    uint32_t rank, n_ranks;
    const char *host;   /* of rank 0; NULL: 127.0.0.1. Ranks listen where they
                           reach it, so on loopback if that is loopback */
    uint16_t port;      /* of rank 0 */
    const char *job;    /* its name: ranks of other jobs are refused */
    const void *secret; /* what all ranks of the job hold, and nobody else */
    size_t secret_size; /* at least LHI_SECRET_LEAST */
    int64_t join_ns;    /* until all have to be there; 0: 4 s */
    int64_t silence_ns; /* a rank that is silent for so long has failed;
                           0: 3.5 s, with rails 10 s */
    uint32_t n_links; /* emulated, where all ranks are on one host; the same */
    const lhi_net_link *links; /* at every rank */
    bool insecure; /* ucx: may take messages from beyond this host */
    /* tcp: messages take several ways to each peer (rails.h), each from one of
     * these to that of the same number there: an address of this rank, the name
     * of an interface that has one, or a network that has one ("10.1.0.0/24").
     * As many at each rank, at most LHI_MOST_RAILS of net/hello.h. 0: the
     * connections that the ranks join by are all. */
    uint32_t n_rails;
    const char *const *rails;
} lhi_tcp_options;

/* Joins the job: returns once all ranks are connected. LH_EIO: one does not
 * come, is refused or refuses this one; every rank then gets an error. */
lh_status lhi_net_tcp(const lhi_tcp_options *options, lhi_net **out,
                      lh_error *err);

/* ucx: messages over UCX (openucx.org), with the same options as tcp, by which
 * the ranks find each other, prove that they hold the secret, tell each other
 * where UCX is to find them, and see who is lost. What the environment says
 * (UCX_TLS, UCX_NET_DEVICES, ...) stands; where rank 0's host is loopback, UCX
 * keeps to this host. UCX itself takes connections from anyone who reaches it
 * and reads what they send: what they cannot do is in docs/formats/wire.md.
 * LH_EINVAL: UCX would listen beyond this host, and options->insecure does not
 * allow it. LH_EUNSUPPORTED: not built in, or not installed. */
lh_status lhi_net_ucx(const lhi_tcp_options *options, lhi_net **out,
                      lh_error *err);

/* MPI, to be started by mpirun or the like: says who is who, and carries what
 * ranks need to find each other (also a secret that is made for the run).
 * Messages take one of the transports above. Calls are made by one thread. */
typedef struct lhi_mpi lhi_mpi;
/* Whether this process was started by mpirun or the like. */
bool lhi_mpi_launched(void);
/* Once per process. LH_EUNSUPPORTED: not built in, or not installed. */
lh_status lhi_mpi_start(lhi_mpi **out, lh_error *err);
uint32_t lhi_mpi_rank(const lhi_mpi *mpi);
uint32_t lhi_mpi_n_ranks(const lhi_mpi *mpi);
/* What the ranks of a run do together. */
typedef struct lhi_mpi_work {
    const char *transport; /* "ucx" or "tcp" */
    /* Digest of all that has to be the same on every rank: that of another
     * run is another job. */
    unsigned char digest[32];
    bool insecure;    /* as in lhi_tcp_options; so are the rails */
    uint32_t n_rails;
    const char *const *rails;
    uint32_t n_links; /* emulated: only with all ranks on one host */
    const lhi_net_link *links;
} lhi_mpi_work;
/* Before each run: the ranks tell each other what they are to do, and where.
 * What is wrong with it, as ranks with different work, all of them find. */
lh_status lhi_mpi_meet(lhi_mpi *mpi, const lhi_mpi_work *work, lh_error *err);
/* Then this process's endpoint, for one run. */
lh_status lhi_net_mpi(lhi_mpi *mpi, const lhi_mpi_work *work, lhi_net **out,
                      lh_error *err);
/* Or runs its rank over it; *result: what it handed back, also of a failed
 * run. */
lh_status lhi_mpi_run(lhi_mpi *mpi, const lhi_mpi_work *work,
                      lhi_rank_main *rank_main, void *context,
                      lhi_rank_result *result, lh_error *err);
/* `failed`: without waiting for ranks that may be gone; the process should end
 * with a status other than 0 then. NULL is fine. */
void lhi_mpi_end(lhi_mpi *mpi, bool failed);

#endif
