/* SPDX-License-Identifier: Apache-2.0 */
/* Message transport between ranks: one interface, several transports, one
 * conformance suite (tests/unit/test_net.c).
 *
 * A transport only moves bytes. The engine decides which messages exist, in
 * which order they are sent, and when a pass may start. Any thread of the rank
 * that owns an endpoint may call it.
 *
 * Messages between two ranks are matched by tag: a receive takes the oldest
 * message from that rank with that tag. Small messages (up to
 * LHI_NET_EAGER_BYTES) that arrive before their receive are stored (unexpected
 * messages), up to LHI_NET_UNEXPECTED_BYTES per rank. Larger ones use
 * rendezvous: their bytes move once the receive is posted, so their sends may
 * not complete before that.
 *
 * Input: bytes for a rank under a tag. Output: the same bytes there, with their
 * transfer times. Files:
 *
 *     transport.c, futex.c      start, wait for and end operations
 *     matching.c                matches messages with receives
 *     inproc.c                  ranks as threads; copies directly
 *     wire_format.c             frames between ranks without shared memory
 *     protocol.c                eager and rendezvous protocol over frames
 *     stream.c                  frames over sockets
 *     ucx.c, ucx_calls.c        frames over UCX
 *     ucx_incoming_frames.c     frames that arrive over UCX
 *     outgoing_frame.c          sends a frame; frame_mac.c: authenticates it
 *     handshake.c               authentication at startup
 *     address_exchange.c        address records at startup
 *     pending_connections.c     connections before authentication
 *     sockets.c                 TCP sockets and addresses
 *     tcp_join.c                connects separately started ranks
 *     tcp_acceptor.c            authenticates connections of higher ranks
 *     remote_endpoints.c        their endpoints
 *     joined_transport.c        the transport of the public interface
 *     rails.c                   several connections per peer, with failover
 *     rail_io.c                 segments over one connection
 *     rail_acceptor.c           setup and re-establishment of a rail
 *     rail_setup.c              exchange of rail addresses
 *     thread_launcher.c         launches ranks as threads
 *     process_launcher.c        launches ranks as local processes
 *     mpi.c                     startup under mpirun
 *     slurm.c                   startup under srun
 *     emulated_links.c          arrival times over slower links
 *     link_sharing.c            links shared with data-parallel pieces
 *     shared_links.c            links shared by separately started processes
 *     collective.c              barrier, reduce-scatter, all-gather
 *     group.c                   persistent groups; all-to-all, ring shifts
 *     round.c                   message rounds used by both
 *
 * Times are nanoseconds on the lhi_now_ns() clock (base/realtime.h). */
#ifndef LHI_RUNTIME_TRANSPORT_TRANSPORT_H
#define LHI_RUNTIME_TRANSPORT_TRANSPORT_H

#include "runtime/transport/handshake.h"

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_net lhi_net; /* one rank's endpoint */

enum {
    LHI_NET_EAGER_BYTES = 16 << 10,
    LHI_NET_UNEXPECTED_BYTES = 64 << 20,
    LHI_NET_MAX_RANKS = 4096
};

/* A pending send or receive. The caller owns it, zeroed at the start, and its
 * data. Both must stay at their address until the operation is done, a wait for
 * it has failed, or the endpoint is closed. */
typedef struct lhi_net_op {
    lhi_net *net;
    uint32_t peer;
    uint32_t state; /* transport's; test with lhi_net_wait() */
    uint64_t tag;
    void *data;
    size_t size;
    /* For a completed receive: when the message entered its link, when its
     * transfer began and when it arrived, by the link's emulation. Without
     * emulation: when it was sent (entered_ns and began_ns) and received. */
    int64_t entered_ns, began_ns, arrived_ns;
    lh_status status;              /* once done */
    bool is_done;                  /* set by the successful wait */
    bool receives, was_unexpected; /* transport's */
    bool signals_event;      /* caller's: signal the event on completion */
    struct lhi_net_op *next; /* transport's queues */
    void *transport_data;    /* transport's */
    uint32_t link, slot;     /* transport's: position on the emulated link */
    uint64_t id;
    uint32_t flags;
} lhi_net_op;

/* Whether data-parallel collectives use a link beside messages, and by which
 * rule (docs/formats/pipeline.md, "Shared links"). */
typedef enum lhi_link_sharing {
    LHI_LINK_UNSHARED,
    LHI_LINK_FIFO,
    LHI_LINK_MESSAGES_FIRST,
    LHI_LINK_FAIR, /* a message and a piece have half of the rate each */
} lhi_link_sharing;

/* A link with emulated latency and bandwidth. A message that enters at t
 * departs at s = max(t, end of the previous transfer), occupies the link for
 * transfer_ns + bytes * ns_per_byte, and arrives latency_ns later. Messages
 * depart by entry time (ties: lower sender first). A message that is handed
 * over late, but before later ones have arrived, is still scheduled before
 * them. */
typedef struct lhi_net_link {
    int64_t latency_ns;
    int64_t transfer_ns;      /* per message, independent of its size */
    double ns_per_byte;       /* 0: size has no effect */
    lhi_link_sharing sharing; /* equal on all links but unshared ones */
} lhi_net_link;

/* A data-parallel collective on shared emulated links: it occupies all its
 * links at once, in equal pieces. */
typedef struct lhi_net_collective {
    uint32_t n_links;
    const uint32_t *links; /* shared; the same in all of a rank's collectives */
    int64_t ready_ns; /* launch; not before that of the rank's previous one */
    int64_t transfer_ns; /* of all pieces, alone on its links */
    int64_t latency_ns;
    uint32_t n_pieces; /* at least 1 */
} lhi_net_collective;

/* Times of a message or collective: its first transfer begins, its last one
 * ends, it arrives. */
typedef struct lhi_net_transfer {
    int64_t depart_ns, sent_ns, arrive_ns;
} lhi_net_transfer;

/* As a link: a message within a device. As a turn: a message that does not use
 * turns. */
#define LHI_NET_NO_LINK UINT32_MAX
/* In place of a rank: none, or unknown. */
#define LHI_NET_NO_RANK UINT32_MAX
#define LHI_NET_NO_TURN UINT64_MAX

/* Starts sending `size` bytes; never blocks.
 *
 * - `link`: index of the emulated link, or LHI_NET_NO_LINK.
 * - `entered_ns`: time of entry into that link, at most now: the end of the
 *   pass that produced the message.
 * - `turn`: position in the link's departure order (0, 1, ...; each position
 *   once per run, messages without a turn count as they depart). Either all
 *   messages on the link at one time have a turn, or none. LHI_NET_NO_TURN:
 *   first in, first out. */
lh_status lhi_net_send(lhi_net *net, uint32_t to, uint64_t tag,
                       const void *data, size_t size, uint32_t link,
                       int64_t entered_ns, uint64_t turn, lhi_net_op *op,
                       lh_error *err);

/* Sets an emulated link's parameters for all ranks, for messages handed over
 * from now on. Messages in transit keep theirs and are not overtaken. Any rank
 * may call it at any time. LH_EINVAL: invalid link or parameters. */
lh_status lhi_net_set_link(lhi_net *net, uint32_t link,
                           const lhi_net_link *rule, lh_error *err);

/* Suspends an emulated link until `until_ns`, for all ranks: messages that
 * enter earlier depart then. LH_EINVAL: invalid link. */
lh_status lhi_net_suspend_link(lhi_net *net, uint32_t link, int64_t until_ns,
                               lh_error *err);

/* Adds a collective to this rank's stream, which sends one at a time; never
 * blocks. *slot identifies it until lhi_net_await_collective(). */
lh_status lhi_net_add_collective(lhi_net *net, const lhi_net_collective *what,
                                 uint32_t *slot, lh_error *err);
/* Sleeps until a collective has arrived in emulated time. LH_EIO: this or
 * another rank has failed. */
lh_status lhi_net_await_collective(lhi_net *net, uint32_t slot,
                                   lhi_net_transfer *out, lh_error *err);

/* Posts a receive of exactly `size` bytes from rank `from` with tag `tag` into
 * `data`; never blocks. `op` is pending until the message arrives. A message of
 * another size is an error that ends the run. */
lh_status lhi_net_receive(lhi_net *net, uint32_t from, uint64_t tag, void *data,
                          size_t size, lhi_net_op *op, lh_error *err);

/* Waits until the operation is done. A receive is done when its bytes are
 * present and the clock has reached op->arrived_ns. Sleeps, never spins. One
 * thread at a time may wait for an operation.
 *
 * LH_EIO: this or another rank has failed; `err` has the rank and the reason,
 * and the transport has released the operation. LH_ECANCELED: `until_ns` (0: no
 * limit; 1: test only) has passed and the operation is still pending. */
lh_status lhi_net_wait(lhi_net *net, lhi_net_op *op, int64_t until_ns,
                       lh_error *err);

/* Returns the endpoint's event count. It lets a thread wait for several
 * receives: completion of a receive started with `signals_event` increments the
 * count. The thread reads the count, tests its receives, and sleeps until the
 * count changes, until `until_ns`, or until the next check for a failed run. */
uint32_t lhi_net_event_count(const lhi_net *net);
/* Sleeps until the event count differs from `count`, or until `until_ns`. */
void lhi_net_wait_event(lhi_net *net, uint32_t count, int64_t until_ns);
/* Increments the endpoint's event count and wakes the thread that waits in
 * lhi_net_wait_event(). */
void lhi_net_signal_event(lhi_net *net);
/* Tests whether an operation is done, like lhi_net_wait() without waiting.
 * LH_ECANCELED: pending; *again_ns is the time for the next test, INT64_MAX:
 * after the next event. */
lh_status lhi_net_test(lhi_net *net, lhi_net_op *op, int64_t *again_ns,
                       lh_error *err);

/* External stop condition for a run, polled by the functions that receive it.
 * Once requested() returns true, the run ends. */
typedef struct lhi_net_stop {
    bool (*requested)(void *context);
    void *context;
} lhi_net_stop;
/* Checks whether the caller's stop condition `stop` requests a stop; NULL:
 * false. */
bool lhi_net_is_stop_requested(const lhi_net_stop *stop);

/* Waits without a time limit, but until `stop` (may be NULL). LH_ECANCELED:
 * stopped; the run is ended on every rank and the transport has released the
 * operation. */
lh_status lhi_net_wait_or_stop(lhi_net *net, lhi_net_op *op,
                               const lhi_net_stop *stop, lh_error *err);

/* Causes of a run's failure; the numbers in ABORT frames. */
typedef enum lhi_failure_cause {
    LHI_CAUSE_ERROR, /* a rank reported an error */
    LHI_CAUSE_LOSS,  /* a rank ended, or was silent, without an error */
    LHI_CAUSE_RETURN /* the host of a replaced rank is back */
} lhi_failure_cause;

/* Fails the run on every rank, with this rank as the cause: every wait, send
 * and receive returns LH_EIO within a second. The first reason is reported. May
 * be called twice. */
void lhi_net_abort(lhi_net *net, const char *reason);
/* Fails the run like lhi_net_abort(), but as the loss of rank `rank`, after
 * which a run may restart. A rank that reports its own loss does not print it,
 * because it may not be able to end. */
void lhi_net_abort_loss(lhi_net *net, uint32_t rank, const char *reason);
/* Fails the run as if rank `rank` was lost, so that all ranks restart with its
 * returned host. */
void lhi_net_abort_return(lhi_net *net, uint32_t rank);

/* Marks the begin, at now_ns, of work `what` (the caller's number) of the
 * rank's thread on which no other rank has an influence, until
 * lhi_net_end_work(). */
void lhi_net_begin_work(lhi_net *net, uint64_t what, int64_t now_ns);
/* Marks the end of the work at now_ns. */
void lhi_net_end_work(lhi_net *net, int64_t now_ns);
/* Interrupts the work while its thread waits for other ranks; false: it was not
 * at work. */
bool lhi_net_pause_work(lhi_net *net);
/* Continues the work if it was interrupted (`was_working`). */
void lhi_net_resume_work(lhi_net *net, bool was_working);
/* Returns when the present work began or was continued, and its number in
 * *what; 0: none is in progress. Any thread. */
int64_t lhi_net_read_work(const lhi_net *net, uint64_t *what);
/* Returns the duration in ns of the longest ended work without interruptions.
 * Any thread. */
int64_t lhi_net_longest_work_ns(const lhi_net *net);
/* Returns the total duration of all work in ns, without interruptions. Only the
 * rank's thread. */
int64_t lhi_net_total_work_ns(const lhi_net *net);
/* Returns the reason of the run's failure, with the failed rank ("rank 3:
 * ..."); NULL: the run has not failed. */
const char *lhi_net_failure(const lhi_net *net);

/* Declares that the messages for the user of `n` ranks from rank `first` on,
 * those of a host, reach the same output as this rank's, and others do not; n
 * 0: those of all ranks do, as by default. */
void lhi_net_set_output(lhi_net *net, uint32_t first, uint32_t n);
/* Checks whether this rank is the first of an output that rank 0 does not
 * share. */
bool lhi_net_is_first_of_output(const lhi_net *net);
/* Checks, after a failure, whether this rank prints the reason: the failed rank
 * does, or, if it was lost or has another output, the first of the others of
 * this rank's output. */
bool lhi_net_is_reporter(const lhi_net *net);
/* Returns, after a failure, the rank that was lost: killed, silent or
 * disconnected, without its own error, or whose host is back. LHI_NET_NO_RANK:
 * none was. All other ranks agree. */
uint32_t lhi_net_lost_rank(const lhi_net *net);
/* Returns the cause of a failure; LHI_CAUSE_ERROR without one. */
lhi_failure_cause lhi_net_failure_cause(const lhi_net *net);

/* Returns the transport's next notice for the user, a sentence about an event
 * that does not end the run; false: no new notice. */
bool lhi_net_read_notice(lhi_net *net, char *text, size_t room);

/* Returns this endpoint's own rank. */
uint32_t lhi_net_rank(const lhi_net *net);
/* Returns the rank count in the run. */
uint32_t lhi_net_n_ranks(const lhi_net *net);

/* Sets a function that lhi_net_close() calls as release(of) once the endpoint
 * no longer accesses the rank's memory. One per endpoint. */
void lhi_net_set_release(lhi_net *net, void (*release)(void *of), void *of);

/* Closes the endpoint: waits until sent messages are delivered (or cannot be),
 * then releases everything. Posted receives are dropped. A peer that waits for
 * a message that this rank never sent gets LH_EIO. NULL is allowed. */
void lhi_net_close(lhi_net *net);

/* Collectives over the `n_ranks` ranks in `ranks` (the caller among them, the
 * same list on all). src/runtime/transport/collective.c builds them only on
 * sends and receives, so all transports support them. Sums are in the order of
 * `ranks` and equal on all members. Blocking; each call uses tags [tag, tag +
 * LHI_NET_TAGS). */
#define LHI_NET_TAGS 16u
/* Messages received from one member of a group: their number, and the sums of
 * their times to arrival, from sending, by the sender's clock, and from posting
 * the receive. */
typedef struct lhi_net_hop {
    uint32_t n;
    int64_t since_sent_ns, since_posted_ns;
} lhi_net_hop;
/* Members of a collective. */
typedef struct lhi_net_group {
    uint32_t n_ranks, mine; /* ranks[mine] is the caller */
    const uint32_t *ranks;  /* NULL: all ranks, in order */
    uint32_t link; /* emulated link for the messages, or LHI_NET_NO_LINK */
    /* NULL, or raised to the send time, by the sender's clock, of the last
     * message received. Shows how long a collective waited for its slowest
     * member. */
    int64_t *latest_ns;
    lhi_net_hop *hops; /* NULL, or per member; increased by each message */
} lhi_net_group;
/* Returns once all members have called it. `stop` as in lhi_net_wait_or_stop().
 */
lh_status lhi_net_barrier(lhi_net *net, const lhi_net_group *group,
                          uint64_t tag, const lhi_net_stop *stop,
                          lh_error *err);
/* Reduce-scatter over the members of `g`: sums all members' arrays `values` of
 * n values; member i receives values first(i) to first(i + 1) - 1 of the sum in
 * `out`, with first(i) = floor(n * i / n_ranks). `out` may be values +
 * first(i), and may not overlap other values. */
lh_status lhi_net_reduce_scatter(lhi_net *net, const lhi_net_group *group,
                                 uint64_t tag, const float *values, size_t n,
                                 float *out, lh_error *err);
/* All-gather over the members of `g`, the inverse of lhi_net_reduce_scatter():
 * member i contributes values first(i) to first(i + 1) - 1 of the array of n
 * values with value_size bytes each; all receive the whole array. */
lh_status lhi_net_all_gather(lhi_net *net, const lhi_net_group *group,
                             uint64_t tag, void *values, size_t n,
                             size_t value_size, lh_error *err);

/* Creates `n` in-process endpoints for threads of this process; endpoints[i]
 * is rank i's. They share the emulated `links`. Each rank closes its own. */
lh_status lhi_net_inproc(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_net **endpoints,
                         lh_error *err);

/* A rank's main function, in its own thread or process. It may return
 * malloc()ed text in *result (size in *size; NULL: none), also on failure. When
 * it returns, the endpoint is closed, with lhi_net_set_release()'s release
 * function; a failure ends the run everywhere. */
typedef lh_status lhi_rank_main(lhi_net *net, void *context, char **result,
                                size_t *size, lh_error *err);

/* A rank's result; release `text` with free(). */
typedef struct lhi_rank_result {
    char *text; /* NULL: none */
    size_t size;
} lhi_rank_result;

/* Runs `rank_main` on an endpoint, however it was created: aborts the run if it
 * fails, and closes the endpoint. `err` then has the run's failure; *result is
 * set in any case. */
lh_status lhi_rank_run(lhi_net *net, lhi_rank_main *rank_main, void *context,
                       lhi_rank_result *result, lh_error *err);

/* Runs `rank_main` in one thread per rank, with in-process endpoints and the
 * emulated `links`; returns when all have ended. Results and failures as in
 * lhi_local_run(). */
lh_status lhi_inproc_run(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results,
                         lh_error *err);

/* Forks `n` processes that each run `rank_main`, supervises them, and returns
 * when all have ended. They inherit the caller's memory but share no later
 * changes. The caller may have no other threads.
 *
 * `results` (n entries, zeroed) may be NULL; after a failure it has those of
 * the ranks that finished. If a rank fails or dies, all end within seconds:
 * LH_EIO or the rank's own status, with the first failed rank and the cause. If
 * the caller dies, they die too. If the caller is process 1 of a container, it
 * also reaps orphans. */
lh_status lhi_local_run(uint32_t n, uint32_t n_links, const lhi_net_link *links,
                        lhi_rank_main *rank_main, void *context,
                        lhi_rank_result *results, lh_error *err);
/* Default silence after which a rank has failed; of local ranks, which compete
 * for processors, and of others. */
#define LHI_LOCAL_SILENCE_NS INT64_C(10000000000)
#define LHI_SILENCE_TIMEOUT_NS INT64_C(3500000000)

/* Options of lhi_local_run_or_stop(). */
typedef struct lhi_local_options {
    /* Polled by the caller's process after each signal and several times a
     * second; NULL: none. The caller must notify the ranks itself; those that
     * still run 3 s after the request are killed. */
    const lhi_net_stop *stop;
    /* A rank that sends nothing for this time, for example because it is
     * stopped, has failed. 0: LHI_LOCAL_SILENCE_NS. */
    int64_t silence_ns;
    /* Receives the rank whose loss is the run's failure: it was killed, was
     * silent, or ended without its own error; LHI_NET_NO_RANK: none. May be
     * NULL. */
    uint32_t *lost_rank;
    /* Numbers of the ranks in messages and *lost_rank; NULL: from 0. */
    const uint32_t *numbers;
    /* The ranks have peers elsewhere: a rank whose process is stopped for the
     * silence is killed and counts as lost, since its peers here, which would
     * report it, do not exist. */
    bool has_remote_peers;
} lhi_local_options;

/* Runs ranks in processes like lhi_local_run(), with `options`, such as a stop
 * request. */
lh_status lhi_local_run_or_stop(uint32_t n, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_main *rank_main, void *context,
                                const lhi_local_options *options,
                                lhi_rank_result *results, lh_error *err);

/* tcp: ranks that are started separately, on one host or several. */
enum { LHI_SECRET_MIN_BYTES = 16 };
/* Options for the tcp and ucx transports. */
typedef struct lhi_tcp_options {
    uint32_t rank, n_ranks;
    /* rank 0's host; NULL: 127.0.0.1. Ranks listen on the address by which they
     * reach it, so on loopback if it is loopback */
    const char *host;
    uint16_t port;   /* rank 0's */
    int listener;    /* rank 0: listening there; the caller's. 0: none */
    const char *job; /* job name; ranks of other jobs are rejected */
    /* LHI_SETUP_BYTES; an authenticated rank with another one ends the joining
     * of all, with the part that differs. NULL: not compared. */
    const unsigned char *setup;
    const void *secret; /* shared by the job's ranks only */
    size_t secret_size; /* at least LHI_SECRET_MIN_BYTES */
    int64_t join_ns;    /* timeout for all ranks to join; 0: 4 s */
    /* Wrong secrets never end the joining before its timeout: for ranks that
     * have joined before or got the secret over MPI, because then only other
     * programs send wrong ones. */
    bool outlasts_wrong_secrets;
    /* Ends the joining with LH_ECANCELED once it returns true; polled every 100
     * ms. NULL: nothing stops it. */
    bool (*is_stopped)(void *stop_context);
    void *stop_context;
    /* Receives whether the last attempt to connect to rank 0 failed; may be
     * NULL. */
    bool *misses_first;
    /* Per rank, zeroed: receives whether lhi_tcp_send_reason() must still send
     * it the reason for which the joining has ended for good. Rank 0 informs
     * the others; another rank that is stopped informs rank 0. For
     * lhi_tcp_send_reason() NULL means all ranks; otherwise NULL: not needed.
     */
    bool *needs_reason;
    int64_t silence_ns; /* a rank silent for this time has failed; 0: 3.5 s,
                         * with rails 10 s */
    uint32_t n_links;   /* emulated, with all ranks on one host; the same */
    const lhi_net_link *links; /* on every rank */
    bool insecure;             /* ucx: may accept messages from other hosts */
    /* tcp: several connections to each peer (rails.h), each between rails with
     * the same number. A rail is an address of this rank, an interface's name,
     * or a network in which this rank has an address ("10.1.0.0/24"). All ranks
     * have equally many, at most LHI_MAX_RAILS in
     * runtime/transport/handshake.h. 0: only the connections from joining. */
    uint32_t n_rails;
    const char *const *rails;
} lhi_tcp_options;

/* Joins the job; returns once all ranks are connected. LH_EIO: a rank is
 * missing, is rejected or rejects this one; every rank then gets an error. */
lh_status lhi_net_tcp(const lhi_tcp_options *options, lhi_net **out,
                      lh_error *err);

/* Joins the job over UCX (openucx.org), with tcp's options. The ranks use tcp
 * to connect, to authenticate with the secret, to exchange UCX addresses and to
 * detect lost ranks. Environment settings (UCX_TLS, UCX_NET_DEVICES, ...) have
 * precedence; if rank 0's host is loopback, UCX is restricted to
 * this host.
 *
 * UCX itself accepts connections from anyone and reads their messages;
 * docs/formats/wire.md has the limits of such an attack. LH_EINVAL: UCX would
 * listen beyond this host, and options->insecure does not permit it.
 * LH_EUNSUPPORTED: not built in, or not installed. */
lh_status lhi_net_ucx(const lhi_tcp_options *options, lhi_net **out,
                      lh_error *err);

/* MPI startup under mpirun and similar launchers: provides rank numbers and the
 * address exchange (including a secret created for the run). Messages use one
 * of the transports above. One thread makes all calls. */
typedef struct lhi_mpi lhi_mpi;
/* Checks whether an MPI launcher, such as mpirun, started this process. */
bool lhi_mpi_is_launched(void);
/* Initialises MPI, once per process. LH_EUNSUPPORTED: not built in, or not
 * installed. */
lh_status lhi_mpi_start(lhi_mpi **out, lh_error *err);
/* Returns this process's MPI rank. */
uint32_t lhi_mpi_rank(const lhi_mpi *mpi);
/* Returns the number of MPI ranks. */
uint32_t lhi_mpi_n_ranks(const lhi_mpi *mpi);
/* The run's setup, on which all ranks must agree. */
typedef struct lhi_mpi_setup {
    const char *transport; /* "ucx" or "tcp" */
    unsigned char digest[LHI_SETUP_BYTES];
    bool insecure; /* as in lhi_tcp_options, like the rails */
    uint32_t n_rails;
    const char *const *rails;
    uint32_t n_links; /* emulated; requires all ranks on one host */
    const lhi_net_link *links;
    int64_t silence_ns; /* as in lhi_tcp_options */
} lhi_mpi_setup;
/* Exchanges setup digests and addresses among all ranks before each run. All
 * ranks detect the same errors, such as differing setups. */
lh_status lhi_mpi_exchange(lhi_mpi *mpi, const lhi_mpi_setup *work,
                           lh_error *err);
/* Creates this process's endpoint for one run, after lhi_mpi_exchange(). */
lh_status lhi_net_mpi(lhi_mpi *mpi, const lhi_mpi_setup *work, lhi_net **out,
                      lh_error *err);
/* Finalises MPI. `failed`: does not wait for ranks that may be lost; the
 * process should then exit with a non-zero status. NULL is allowed. */
void lhi_mpi_finalise(lhi_mpi *mpi, bool failed);

#endif
