/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a link between two sites. */
#include "network/packet/link.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "model/link_settings.h"
#include "network/packet/other_jobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SENDERS = 4096,
    MOST_PAIRS = 1 << 20,
    MOST_MESSAGES = 1 << 20,
    SITE_LATENCY_NS = 1000,  /* between a GPU's interface and the switch */
    DELAY_TARGET_NS = 50000, /* of queues, for delay-based control */
};

/* Packets of a queue pair, over all its messages: their numbers are 32 bits. */
static const double MOST_PACKETS = 0x1p31;

const char *lh_packet_control_name(lh_packet_control control)
{
    static const char *const names[] = {"none", "dcqcn", "delay"};
    return control < LH_N_CONTROLS ? names[control] : NULL;
}

/* A simulated link: its options and the arrays built from them. */
typedef struct link_run {
    const lh_packet_link *link;
    uint32_t senders, queue_pairs, messages, others;
    lhi_arena *mem;
    lhi_fabric fabric;
    lhi_packet_options options;
    lhi_message_times *times;
} link_run;

/* Fails with LH_EINVAL unless `value` is from `least` to `most`; `what` names
 * the value in the error message. */
static lh_status check_range(double value, double least, double most,
                             const char *what, lh_error *err)
{
    if (!(value >= least && value <= most))
        return lhi_fail(err, LH_EINVAL, "%s: %g is not in %g to %g", what,
                        value, least, most);
    return LH_OK;
}

/* Fails with LH_EINVAL if shared memory or pauses cannot be simulated with the
 * link's other settings. */
static lh_status check_switches(const lh_packet_link *link, lh_error *err)
{
    LHI_TRY(check_range(link->switch_bytes, 0, 1e15, "switch_bytes", err));
    LHI_TRY(check_range(link->switch_share, 0, 1e6, "switch_share", err));
    if (link->switch_share > 0 && link->switch_bytes <= 0)
        return lhi_fail(err, LH_EINVAL, "switch_share needs switch_bytes");
    if (link->switch_bytes > 0 && link->switch_bytes < 2 * LH_PACKET_BYTES)
        return lhi_fail(err, LH_EINVAL,
                        "switch_bytes: %g is less than two packets of %g bytes",
                        link->switch_bytes, LH_PACKET_BYTES);
    if (!link->pauses)
        return LH_OK;
    if (link->switch_bytes <= 0)
        return lhi_fail(err, LH_EINVAL,
                        "pauses need switch_bytes, the memory of a switch");
    if (link->buffer_bytes > 0)
        return lhi_fail(err, LH_EINVAL,
                        "buffer_bytes: a path's own limit would drop packets "
                        "in spite of pauses; give only switch_bytes");
    if (link->variation_ns > 0)
        return lhi_fail(err, LH_EINVAL,
                        "variation_ns: the headroom of pauses has no limit "
                        "where latency varies; give a fixed latency");
    return LH_OK;
}

/* Checks whether the link's traffic is an all-reduce. */
static bool is_all_reduce(const lh_packet_link *link)
{
    return link->traffic == LH_TRAFFIC_RING ||
           link->traffic == LH_TRAFFIC_HIERARCHICAL;
}

/* Fails with LH_EINVAL if the failure of paths cannot be simulated. */
static lh_status check_failure(const lh_packet_link *link, lh_error *err)
{
    uint32_t paths = link->setting.paths > 0 ? link->setting.paths : 1;
    LHI_TRY(check_range((double)link->failure_ns, 0, 1e13, "failure_ns", err));
    LHI_TRY(check_range((double)link->reroute_ns, 0, 1e13, "reroute_ns", err));
    if (link->failed_paths >= paths && link->failed_paths > 0)
        return lhi_fail(err, LH_EINVAL,
                        "failed_paths: %u is not less than the %u paths",
                        link->failed_paths, paths);
    if (!link->failed_paths && (link->failure_ns || link->reroute_ns))
        return lhi_fail(err, LH_EINVAL,
                        "failure_ns, reroute_ns: need failed_paths");
    if (link->failed_paths > 0 && link->pauses)
        return lhi_fail(err, LH_EINVAL,
                        "failed_paths: pauses of a failed path would have no "
                        "end; give one of both");
    return LH_OK;
}

/* Returns the rate of a GPU's network interface in bytes/s. */
static double get_interface_rate(const lh_link_load *l)
{
    return l->interface_bytes_per_s > 0 ? l->interface_bytes_per_s
                                        : l->line_bytes_per_s;
}

/* Returns the link's capacity in bytes/s. */
static double get_capacity(const lh_packet_link *link)
{
    return link->load.line_bytes_per_s / link->load.oversubscription;
}

/* Range of the mean time between two messages of another job's GPU, in ns:
 * times are whole ns, and 40 times the mean must fit 64 bits of ps. */
static const double LEAST_INTERVAL_NS = 100, MOST_INTERVAL_NS = 1e14;

/* Returns the mean time between two messages of another job's GPU, in ns. */
static double compute_interval(const lh_packet_link *link)
{
    const double bytes =
        link->other_bytes > 0 ? link->other_bytes : link->load.message_bytes;
    return bytes * link->other_gpus * 1e9 /
           (link->other_load * get_capacity(link));
}

/* Fails with LH_EINVAL if other jobs cannot be simulated. */
static lh_status check_other_jobs(const lh_packet_link *link, lh_error *err)
{
    double interface = get_interface_rate(&link->load);
    double offered = link->other_load * get_capacity(link);
    LHI_TRY(check_range(link->other_gpus, 0, MOST_SENDERS, "other_gpus", err));
    LHI_TRY(check_range(link->other_load, 0, 1, "other_load", err));
    LHI_TRY(check_range(link->other_bytes, 0, 1e12, "other_bytes", err));
    if (link->other_load > 0 && link->other_gpus == 0)
        return lhi_fail(err, LH_EINVAL, "other_load needs other_gpus");
    if (link->other_bytes > 0 && link->other_load <= 0)
        return lhi_fail(err, LH_EINVAL, "other_bytes needs other_load");
    if (offered > interface * link->other_gpus)
        return lhi_fail(err, LH_EINVAL,
                        "other_load: %u GPUs with %g bytes/s cannot offer %g "
                        "bytes/s",
                        link->other_gpus, interface, offered);
    const double every_ns = compute_interval(link);
    if (link->other_load > 0 &&
        !(every_ns >= LEAST_INTERVAL_NS && every_ns <= MOST_INTERVAL_NS))
        return lhi_fail(err, LH_EINVAL,
                        "other_bytes, other_load: a GPU would send a message "
                        "every %g ns; it must be %g to %g ns",
                        every_ns, LEAST_INTERVAL_NS, MOST_INTERVAL_NS);
    return check_range(link->load.senders + (double)link->other_gpus, 1,
                       MOST_SENDERS, "senders and other_gpus together", err);
}

/* Fails with LH_EINVAL if the queue's buffer is smaller than a packet, or if a
 * queue pair has too many packets for 32-bit packet numbers. */
static lh_status check_packets(const lh_packet_link *link, lh_error *err)
{
    const lh_link_setting *s = &link->setting;
    double pairs = s->queue_pairs > 0 ? s->queue_pairs : 1;
    double bytes = link->load.message_bytes;
    if (link->traffic == LH_TRAFFIC_ALL_TO_ALL)
        bytes /= 2 * link->load.senders;
    double data = ceil(bytes / pairs / LH_PACKET_BYTES);
    double parity =
        s->fec_parity > 0 ? ceil(data / s->fec_data) * s->fec_parity : 0;
    double messages = link->messages > 0 ? link->messages : 1;
    /* In a ring a queue pair sends up to twice the bytes of the all-reduce. */
    if (is_all_reduce(link))
        messages = 2;
    if (link->buffer_bytes > 0 && link->buffer_bytes < LH_PACKET_BYTES)
        return lhi_fail(err, LH_EINVAL,
                        "buffer_bytes: %g is less than a packet of %g bytes",
                        link->buffer_bytes, LH_PACKET_BYTES);
    if ((data + parity) * messages > MOST_PACKETS)
        return lhi_fail(err, LH_EINVAL,
                        "message_bytes, messages: %g packets of a queue pair "
                        "are more than %g",
                        (data + parity) * messages, MOST_PACKETS);
    return LH_OK;
}

lh_status lhi_packet_link_check(const lh_packet_link *link, lh_error *err)
{
    const lh_link_load *l = &link->load;
    const lh_link_setting *s = &link->setting;
    LHI_TRY(check_range(l->line_bytes_per_s, 1, 1e15, "line_bytes_per_s", err));
    LHI_TRY(check_range(l->latency_ns, 0, 1e12, "latency_ns", err));
    LHI_TRY(check_range(l->return_ns, 0, 1e12, "return_ns", err));
    LHI_TRY(check_range(l->loss, 0, 0.5, "loss", err));
    LHI_TRY(check_range(l->oversubscription, 1, 1e6, "oversubscription", err));
    LHI_TRY(check_range(l->senders, 1, MOST_SENDERS, "senders", err));
    if (link->site_oversubscription != 0)
        LHI_TRY(check_range(link->site_oversubscription, 1, 1e6,
                            "site_oversubscription", err));
    LHI_TRY(check_range(l->interface_bytes_per_s, 0, 1e15,
                        "interface_bytes_per_s", err));
    LHI_TRY(check_range(l->message_bytes, 1, 1e12, "message_bytes", err));
    LHI_TRY(check_range(s->queue_pairs, 0, 65536, "queue_pairs", err));
    LHI_TRY(check_range(s->paths, 0, 4096, "paths", err));
    LHI_TRY(check_range(s->window_bytes, 0, 1e15, "window_bytes", err));
    LHI_TRY(check_range(s->queue_bytes, 0, 1e15, "queue_bytes", err));
    LHI_TRY(check_range(s->fec_data, s->fec_parity > 0, 256, "fec_data", err));
    LHI_TRY(check_range(s->fec_parity, 0, 64, "fec_parity", err));
    LHI_TRY(check_range(link->burst, 0, 1e6, "burst", err));
    LHI_TRY(check_range(link->buffer_bytes, 0, 1e15, "buffer_bytes", err));
    LHI_TRY(
        check_range((double)link->variation_ns, 0, 1e12, "variation_ns", err));
    LHI_TRY(check_range((double)link->timeout_ns, 0, 1e13, "timeout_ns", err));
    LHI_TRY(check_range(link->messages, 0, MOST_MESSAGES, "messages", err));
    if (link->control >= LH_N_CONTROLS)
        return lhi_fail(err, LH_EINVAL, "control: %d is none of its values",
                        (int)link->control);
    if (link->traffic >= LH_N_TRAFFICS)
        return lhi_fail(err, LH_EINVAL, "traffic: %d is none of its values",
                        (int)link->traffic);
    if (link->is_adaptive && s->balancing != LH_BALANCING_SPRAY)
        return lhi_fail(err, LH_EINVAL,
                        "is_adaptive needs balancing LH_BALANCING_SPRAY");
    if (is_all_reduce(link) && link->messages > 1)
        return lhi_fail(err, LH_EINVAL,
                        "messages: an all-reduce is simulated once, not %u "
                        "times",
                        link->messages);
    if (s->fec_parity > 0 && s->window_bytes > 0 &&
        s->window_bytes < (s->fec_data + s->fec_parity) * LH_PACKET_BYTES)
        return lhi_fail(err, LH_EINVAL,
                        "window_bytes: %g is less than a block of the "
                        "redundancy code",
                        s->window_bytes);
    if (link->burst > 0 && link->burst * (1 - l->loss) < 1)
        return lhi_fail(err, LH_EINVAL,
                        "burst: %g is below 1 / (1 - loss), the mean of "
                        "independent losses",
                        link->burst);
    LHI_TRY(check_switches(link, err));
    LHI_TRY(check_failure(link, err));
    LHI_TRY(check_other_jobs(link, err));
    return check_packets(link, err);
}

/* Returns the latency inside both sites, one way, in ns. */
static double get_sites_latency(const lh_packet_link *link)
{
    return (link->site_oversubscription > 0 ? 4 : 2) * SITE_LATENCY_NS;
}

/* Returns the link's mean round-trip time in ns without queues: latency and
 * variation in both directions, and the fixed latency inside both sites. */
static double compute_round_trip(const lh_packet_link *link)
{
    const lh_link_load *l = &link->load;
    double back = l->return_ns > 0 ? l->return_ns : l->latency_ns;
    return l->latency_ns + back + 2 * (double)link->variation_ns +
           2 * get_sites_latency(link);
}

/* Returns the rate of a path in bytes/s. */
static double get_path_rate(const lh_packet_link *link)
{
    uint32_t paths = link->setting.paths > 0 ? link->setting.paths : 1;
    return get_capacity(link) / paths;
}

/* Returns the length of a path's queue beyond which packets are dropped; 0:
 * only the switch's memory limits it. */
static double get_buffer_bytes(const lh_packet_link *link)
{
    if (link->buffer_bytes > 0 || link->switch_bytes > 0)
        return link->buffer_bytes;
    return ceil(get_path_rate(link) * compute_round_trip(link) * 1e-9) +
           64 * LH_PACKET_BYTES;
}

/* Returns the queue length from which DCQCN marks every packet: by default at
 * most half of the queue, because a full queue drops packets instead. */
static double get_mark_bytes(const lh_packet_link *link)
{
    double buffer = get_buffer_bytes(link);
    if (link->setting.queue_bytes > 0)
        return link->setting.queue_bytes;
    return buffer > 0 ? fmin(LH_QUEUE_BYTES, buffer / 2) : LH_QUEUE_BYTES;
}

/* Builds the network that the link describes (hosts, interfaces, parallel paths
 * with their queues) into *out. */
static lh_status build_fabric(const lh_packet_link *link, uint32_t senders,
                              lhi_arena *mem, lhi_fabric *out, lh_error *err)
{
    const lh_link_load *l = &link->load;
    uint32_t paths = link->setting.paths > 0 ? link->setting.paths : 1;
    double buffer = get_buffer_bytes(link), mark = get_mark_bytes(link);
    lhi_site_link site = {
        .senders = senders,
        .others = link->other_gpus,
        .paths = paths,
        .path = {.bytes_per_s = get_path_rate(link),
                 .latency_ns = (int64_t)llround(l->latency_ns),
                 .variation_ns = link->variation_ns,
                 .loss = l->loss,
                 .burst = link->burst,
                 .buffer_bytes = (uint64_t)buffer,
                 .fails_ns = link->failure_ns,
                 .avoided_ns = link->failure_ns + link->reroute_ns},
        .failed_paths = link->failed_paths,
        .interface_bytes_per_s = get_interface_rate(l),
        .interface_latency_ns = SITE_LATENCY_NS,
        .return_latency_ns =
            (int64_t)llround(l->return_ns > 0 ? l->return_ns : l->latency_ns),
        .return_loss = l->loss};
    if (link->site_oversubscription > 0) {
        uint32_t hosts = senders + link->other_gpus;
        double uplinks = ceil(hosts / link->site_oversubscription);
        site.uplinks = (uint32_t)uplinks;
        site.uplink = (lhi_port_spec){.bytes_per_s =
                                          hosts * get_interface_rate(l) /
                                          link->site_oversubscription / uplinks,
                                      .latency_ns = SITE_LATENCY_NS,
                                      .buffer_bytes = (uint64_t)buffer};
    }
    if (link->control == LH_CONTROL_DCQCN) {
        /* Marks from a quarter of the queue on, as in [Zhu, table 14]. */
        site.path.mark_from_bytes = (uint64_t)(mark / 4);
        site.path.mark_to_bytes = (uint64_t)mark;
        site.path.mark_probability = 0.01;
        site.uplink.mark_from_bytes = site.path.mark_from_bytes;
        site.uplink.mark_to_bytes = site.path.mark_to_bytes;
        site.uplink.mark_probability = site.path.mark_probability;
    }
    LHI_TRY(lhi_fabric_build_site_link(&site, mem, out, err));
    out->buffer = (lhi_switch_memory){
        .bytes = (uint64_t)link->switch_bytes,
        .share = link->switch_share > 0 ? link->switch_share : 1,
        .pauses = link->pauses};
    return LH_OK;
}

/* Builds the queue pairs and messages of senders: every sender sends
 * r->messages messages to its receiver, each after the arrival of the one
 * before. */
static lh_status build_messages(link_run *r, lhi_message_set *out,
                                lh_error *err)
{
    uint32_t n_pairs = r->senders * r->queue_pairs;
    uint32_t n = r->senders * r->messages;
    lhi_queue_pair *pairs = LHI_NEW(r->mem, lhi_queue_pair, n_pairs);
    lhi_packet_message *messages = LHI_NEW(r->mem, lhi_packet_message, n);
    uint32_t *next = LHI_NEW(r->mem, uint32_t, n);
    if (!pairs || !messages || !next)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_pairs; i++)
        pairs[i] = (lhi_queue_pair){i / r->queue_pairs,
                                    r->senders + i / r->queue_pairs};
    for (uint32_t i = 0; i < n; i++) {
        bool is_last = i % r->messages == r->messages - 1;
        next[i] = i + 1;
        messages[i] = (lhi_packet_message){
            .bytes = (uint64_t)llround(r->link->load.message_bytes),
            .first_pair = i / r->messages * r->queue_pairs,
            .queue_pairs = r->queue_pairs,
            .successors = &next[i],
            .n_successors = !is_last,
            .n_required = i % r->messages > 0};
    }
    *out = (lhi_message_set){messages, pairs, n, n_pairs};
    return LH_OK;
}

/* Returns the collective of the simulation. */
static lhi_packet_collective make_collective(const link_run *r)
{
    return (lhi_packet_collective){r->link->traffic, r->senders, r->queue_pairs,
                                   r->messages, r->link->load.message_bytes};
}

/* Returns the traffic of other jobs. An endless message has as many packets as
 * their numbers allow. */
static lhi_other_jobs make_other_jobs(const link_run *r)
{
    const lh_packet_link *link = r->link;
    const lh_link_setting *s = &link->setting;
    double bytes =
        link->other_bytes > 0 ? link->other_bytes : link->load.message_bytes;
    double all =
        1 + (s->fec_parity > 0 ? (double)s->fec_parity / s->fec_data : 0);
    double every_ns = 0;
    if (link->other_load > 0)
        every_ns = compute_interval(link);
    else
        bytes = MOST_PACKETS / 2 / all * LH_PACKET_BYTES * r->queue_pairs;
    return (lhi_other_jobs){.gpus = r->others,
                            .queue_pairs = r->queue_pairs,
                            .first_host = 2 * r->senders,
                            .bytes = (uint64_t)bytes,
                            .every_ns = llround(every_ns)};
}

/* Builds the queue pairs and messages of the simulation. */
static lh_status build_traffic(link_run *r, lh_error *err)
{
    lhi_message_set set;
    const lhi_packet_collective collective = make_collective(r);
    if (r->link->traffic == LH_TRAFFIC_MESSAGES)
        LHI_TRY(build_messages(r, &set, err));
    else
        LHI_TRY(lhi_collective_build(&collective, r->mem, &set, err));
    r->times = LHI_NEW(r->mem, lhi_message_times, set.n_messages);
    if (!r->times)
        return lhi_fail_nomem(err);
    const lhi_other_jobs others = make_other_jobs(r);
    if (r->others > 0)
        LHI_TRY(lhi_other_jobs_append(&others, r->mem, &set, err));
    r->options.n_other = r->others;
    r->options.pairs = set.pairs;
    r->options.messages = set.messages;
    r->options.n_pairs = set.n_pairs;
    r->options.n_messages = set.n_messages;
    return LH_OK;
}

/* Derives the transport of the simulation (window, recovery, redundancy,
 * timeout, congestion control) from the link's setting. */
static lhi_transport make_transport(const lh_packet_link *link,
                                    uint32_t queue_pairs)
{
    const lh_link_setting *s = &link->setting;
    double round_trip = compute_round_trip(link);
    double line = get_interface_rate(&link->load);
    double window = s->window_bytes > 0                  ? s->window_bytes
                    : s->balancing == LH_BALANCING_SPRAY ? LH_WINDOW_BYTES
                                                         : 0;
    if (s->channels > 0) {
        double ends = lh_nccl_window_bytes(s) / queue_pairs;
        window = window > 0 && window < ends ? window : ends;
    }
    double packets = ceil(window / LH_PACKET_BYTES);
    return (lhi_transport){
        .packet_bytes = (uint32_t)LH_PACKET_BYTES,
        .balancing = s->balancing,
        .is_adaptive = link->is_adaptive,
        .recovery = s->recovery,
        .control = link->control,
        .window_packets = (uint64_t)packets,
        .fec_data = s->fec_data,
        .fec_parity = s->fec_parity,
        .timeout_ns = link->timeout_ns > 0 ? link->timeout_ns
                                           : (int64_t)(4 * round_trip) + 1,
        .reorder_ns =
            s->balancing == LH_BALANCING_SPRAY ? (int64_t)(round_trip / 4) : 0,
        .line_bytes_per_s = line,
        .target_ns = (int64_t)round_trip + DELAY_TARGET_NS};
}

lh_status lhi_packet_link_build(const lh_packet_link *link, uint32_t senders,
                                lhi_arena *mem, lhi_fabric *fabric,
                                lhi_transport *transport, lh_error *err)
{
    uint32_t queue_pairs =
        link->setting.queue_pairs ? link->setting.queue_pairs : 1;
    LHI_TRY(build_fabric(link, senders, mem, fabric, err));
    *transport = make_transport(link, queue_pairs);
    return LH_OK;
}

/* Simulates all messages on the link with the random seed r->options.seed;
 * stores their times in r->times and the packet counters in *out. */
static lh_status simulate(link_run *r, lh_packet_counters *out, lh_error *err)
{
    LHI_TRY(lhi_packet_link_build(r->link, r->senders, r->mem, &r->fabric,
                                  &r->options.transport, err));
    LHI_TRY(build_traffic(r, err));
    r->options.fabric = &r->fabric;
    LHI_TRY(lhi_packets_simulate(&r->options, r->times, out, err));
    /* Collectives end with their last message. */
    if (r->link->traffic != LH_TRAFFIC_MESSAGES) {
        for (uint32_t i = 1; i < r->options.n_messages - r->others; i++)
            r->times[0].end_ns = fmax(r->times[0].end_ns, r->times[i].end_ns);
        r->times[0].start_ns = 0;
    }
    return LH_OK;
}

/* --- seeds --- */

/* A link's runs with several seeds, in parallel. */
typedef struct seed_runs {
    const lh_packet_run *run;
    link_run base;
    uint32_t n_seeds, n_messages; /* messages of a seed */
    double *end_ns, *start_ns;    /* [seed * n_messages + message] */
    lh_packet_counters *counters; /* [seed] */
    lh_status *statuses;
    lh_error *errors;
    uint32_t done, total;     /* simulations: a link with a seed */
    uint32_t n_done;          /* of this link, last reported */
    lh_packet_record *record; /* of this link; NULL: none */
    atomic_bool stops;
} seed_runs;

/* Calls the caller's progress callback with the number of finished simulations,
 * of which n_done are of this link; requests a stop of all threads if it
 * returns true. */
static void report_progress(void *context, uint32_t n_done)
{
    seed_runs *s = context;
    s->n_done = n_done;
    if (s->run->progress &&
        s->run->progress(s->run->context, s->done + n_done, s->total))
        atomic_store(&s->stops, true);
}

/* Calls the caller's progress callback; returns true if the simulation must
 * stop. For the simulation on the calling thread. */
static bool report_and_check(void *context, uint64_t events)
{
    seed_runs *s = context;
    (void)events;
    report_progress(s, s->n_done);
    return atomic_load(&s->stops);
}

/* Returns true if the progress callback has asked all simulations to stop. For
 * simulations on worker threads, which must not call it. */
static bool must_stop(void *context, uint64_t events)
{
    seed_runs *s = context;
    (void)events;
    return atomic_load(&s->stops);
}

/* Simulates the link with seed number `i` on worker `thread`; stores status,
 * counters and message times in the shared arrays of `context` (seed_runs). */
static void run_seed(void *context, uint32_t i, uint32_t thread)
{
    seed_runs *s = context;
    link_run r = s->base;
    lh_error *err = &s->errors[i];
    r.options.seed = s->run->seed + i;
    r.options.progress = thread == 0 ? report_and_check : must_stop;
    r.options.context = s;
    r.options.record = i == 0 ? s->record : NULL;
    r.mem = lhi_arena_make(0);
    s->statuses[i] =
        r.mem ? simulate(&r, &s->counters[i], err) : lhi_fail_nomem(err);
    for (uint32_t k = 0; s->statuses[i] == LH_OK && k < s->n_messages; k++) {
        s->start_ns[(size_t)i * s->n_messages + k] = r.times[k].start_ns;
        s->end_ns[(size_t)i * s->n_messages + k] = r.times[k].end_ns;
    }
    lhi_arena_free(r.mem);
}

/* --- results --- */

/* Compares two doubles for sorting. */
static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void lhi_packet_add_counters(lh_packet_counters *sum,
                             const lh_packet_counters *c)
{
    sum->sent += c->sent;
    sum->delivered += c->delivered;
    sum->lost += c->lost;
    sum->dropped += c->dropped;
    sum->retransmitted += c->retransmitted;
    sum->unneeded += c->unneeded;
    sum->acks += c->acks;
    sum->lost_acks += c->lost_acks;
    sum->marked += c->marked;
    sum->timeouts += c->timeouts;
    sum->pauses += c->pauses;
    sum->paused_ns += c->paused_ns;
    sum->events += c->events;
    if (c->max_queue_bytes > sum->max_queue_bytes)
        sum->max_queue_bytes = c->max_queue_bytes;
    if (c->max_switch_bytes > sum->max_switch_bytes)
        sum->max_switch_bytes = c->max_switch_bytes;
}

/* Adds seed `i` to *out: its last message's end and its counters. The caller
 * divides the sum of the ends by the seed count. */
static void add_seed(const seed_runs *s, uint32_t i, lh_packet_result *out)
{
    const double *end_ns = &s->end_ns[(size_t)i * s->n_messages];
    bool is_single = s->base.link->traffic != LH_TRAFFIC_MESSAGES;
    uint32_t each = is_single ? 1 : s->base.messages;
    double last_ns = 0;
    for (uint32_t k = each - 1; k < s->n_messages; k += each)
        if (end_ns[k] > last_ns)
            last_ns = end_ns[k];
    out->end_ns += last_ns;
    if (i == 0 || last_ns < out->least_end_ns)
        out->least_end_ns = last_ns;
    if (last_ns > out->greatest_end_ns)
        out->greatest_end_ns = last_ns;
    lhi_packet_add_counters(&out->counters, &s->counters[i]);
}

/* Returns the time of all collectives by the plans' closed form, in ns, with
 * the rate of a flow on the link, without loss: pipelined rings, or all-to-alls
 * whose transfers through a GPU's interface are sequential. */
static double compute_collectives(const lh_packet_link *link, uint32_t rounds,
                                  const lh_link_effect *effect)
{
    const lh_link_load *l = &link->load;
    double bytes = l->message_bytes, inside_ns = 2.0 * SITE_LATENCY_NS;
    uint32_t n = 2 * (uint32_t)llround(l->senders);
    if (link->traffic == LH_TRAFFIC_ALL_TO_ALL)
        return rounds * (l->latency_ns + inside_ns +
                         bytes / n * 1e9 *
                             ((l->senders - 1) / get_interface_rate(l) +
                              l->senders / effect->bytes_per_s));
    const lh_flow inside = {get_interface_rate(l), inside_ns, 0};
    const lh_flow across = {effect->bytes_per_s, l->latency_ns + inside_ns, 0};
    if (link->traffic == LH_TRAFFIC_RING)
        /* Every n / 2-th of a part's 2 (n - 1) steps crosses the link, and two
         * collectives alone have min(2, n - 1) such steps each. */
        return 2 * lh_ring_ns(LH_RING_PIPELINED, n, bytes, &across, inside_ns) -
               (2 * fmin(2, n - 1) - ceil(4.0 * (n - 1) / n)) * l->latency_ns;
    const lh_hybrid h =
        lh_hybrid_ns(LH_RING_PIPELINED, n, bytes, &inside, &across, true);
    return h.all_gather_ns + h.reduce_ns;
}

/* Computes the link's result over all seeds into *out: mean end and rate; mean,
 * median, 99th percentile and maximum of message times; the closed form's time.
 * Overwrites the times in `s`. */
static lh_status summarise(seed_runs *s, lh_packet_result *out, lh_error *err)
{
    lh_link_effect effect;
    lh_link_setting setting = s->base.link->setting;
    size_t n = (size_t)s->n_seeds * s->n_messages;
    *out = (lh_packet_result){0};
    for (uint32_t i = 0; i < s->n_seeds; i++)
        add_seed(s, i, out);
    out->end_ns /= s->n_seeds;
    out->bytes_per_s = s->base.link->load.message_bytes * s->base.messages /
                       (out->end_ns * 1e-9);
    for (size_t k = 0; k < n; k++)
        s->end_ns[k] -= s->start_ns[k];
    qsort(s->end_ns, n, sizeof *s->end_ns, compare_doubles);
    for (size_t k = 0; k < n; k++)
        out->mean_ns += s->end_ns[k] / (double)n;
    out->median_ns = (s->end_ns[(n - 1) / 2] + s->end_ns[n / 2]) / 2;
    out->p99_ns = s->end_ns[(size_t)ceil(0.99 * (double)n) - 1];
    out->max_ns = s->end_ns[n - 1];
    setting.congestion = s->base.link->control == LH_CONTROL_NONE
                             ? LH_CONGESTION_OFF
                             : LH_CONGESTION_ON;
    setting.queue_bytes = get_mark_bytes(s->base.link);
    if (setting.balancing == LH_BALANCING_ANY)
        setting.balancing = LH_BALANCING_ECMP;
    lh_link_load load = s->base.link->load;
    if (s->base.link->traffic == LH_TRAFFIC_MESSAGES) {
        /* The network of the simulation; collectives count it themselves. */
        load.latency_ns += get_sites_latency(s->base.link);
        if (load.return_ns > 0)
            load.return_ns += get_sites_latency(s->base.link);
    }
    if (s->base.link->traffic == LH_TRAFFIC_RING)
        load.senders = 1; /* one GPU of each site sends over the link */
    if (s->base.link->traffic == LH_TRAFFIC_ALL_TO_ALL)
        /* A GPU sends to all GPUs at the other site at once. */
        setting.queue_pairs = s->base.queue_pairs * s->base.senders;
    LHI_TRY(lhi_cost_link_setting(&load, &setting, &effect, err));
    out->closed_form_ns =
        s->base.link->traffic == LH_TRAFFIC_MESSAGES
            ? effect.message_ns
            : compute_collectives(s->base.link, s->base.messages, &effect);
    return LH_OK;
}

/* Simulates one link with all seeds in parallel and computes *out; its arrays
 * are allocated in `mem`. Returns the first failed seed's error, and names the
 * seed if the simulation cannot continue. */
static lh_status run_seeds(seed_runs *s, lhi_arena *mem, lh_packet_result *out,
                           lh_error *err)
{
    size_t n = (size_t)s->n_seeds * s->n_messages;
    s->end_ns = LHI_NEW(mem, double, n);
    s->start_ns = LHI_NEW(mem, double, n);
    s->counters = LHI_NEW(mem, lh_packet_counters, s->n_seeds);
    s->statuses = LHI_NEW(mem, lh_status, s->n_seeds);
    s->errors = LHI_NEW(mem, lh_error, s->n_seeds);
    if (!s->end_ns || !s->start_ns || !s->counters || !s->statuses ||
        !s->errors)
        return lhi_fail_nomem(err);
    const lhi_parallel_job job = {s, run_seed, report_progress};
    lhi_run_parallel(&job, s->n_seeds,
                     s->run->threads ? s->run->threads
                                     : lhi_count_processors());
    for (uint32_t i = 0; i < s->n_seeds; i++)
        if (s->statuses[i] == LH_EINPUT)
            return lhi_fail(err, s->statuses[i], "seed %" PRIu64 ": %s",
                            s->run->seed + i, s->errors[i].text);
        else if (s->statuses[i] != LH_OK)
            return lhi_fail(err, s->statuses[i], "%s", s->errors[i].text);
    return summarise(s, out, err);
}

/* Fills in a link's number of senders, queue pairs and messages. LH_EINVAL: too
 * many. */
static lh_status begin_run(const lh_packet_link *link, link_run *out,
                           lh_error *err)
{
    *out = (link_run){.link = link,
                      .senders = (uint32_t)llround(link->load.senders),
                      .queue_pairs = link->setting.queue_pairs
                                         ? link->setting.queue_pairs
                                         : 1,
                      .messages = link->messages ? link->messages : 1,
                      .others = link->other_gpus};
    uint64_t n_pairs = (uint64_t)out->senders * out->queue_pairs;
    uint64_t n_messages = (uint64_t)out->senders * out->messages;
    const lhi_packet_collective collective = make_collective(out);
    if (link->traffic != LH_TRAFFIC_MESSAGES)
        lhi_collective_count(&collective, &n_messages, &n_pairs);
    n_pairs += (uint64_t)out->others * out->queue_pairs;
    n_messages += out->others;
    if (n_pairs > MOST_PAIRS || n_messages > MOST_MESSAGES)
        return lhi_fail(err, LH_EINVAL,
                        "senders, queue_pairs, messages: at most %d queue "
                        "pairs and messages are simulated",
                        (int)MOST_PAIRS);
    return LH_OK;
}

lh_status
lhi_packet_link_sample(const lh_packet_link *link, uint64_t seed,
                       bool (*progress)(void *context, uint64_t events),
                       void *context, lh_packet_record *record, lhi_arena *mem,
                       const lhi_message_times **times, uint32_t *n,
                       lh_packet_counters *counters, lh_error *err)
{
    link_run r;
    LHI_TRY(begin_run(link, &r, err));
    r.mem = mem;
    r.options.seed = seed;
    r.options.progress = progress;
    r.options.context = context;
    r.options.record = record;
    LHI_TRY(simulate(&r, counters, err));
    *times = r.times;
    *n = r.senders * r.messages;
    return LH_OK;
}

/* Simulates one valid link with all seeds. LH_EINVAL: too many messages or
 * queue pairs. */
static lh_status simulate_link(const lh_packet_link *link, seed_runs *s,
                               lh_packet_result *out, lh_error *err)
{
    LHI_TRY(begin_run(link, &s->base, err));
    s->n_messages = link->traffic == LH_TRAFFIC_MESSAGES
                        ? s->base.senders * s->base.messages
                        : 1;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = run_seeds(s, mem, out, err);
    lhi_arena_free(mem);
    return status;
}

lh_status lh_packets_simulate_links(const lh_packet_link *links, uint32_t n,
                                    const lh_packet_run *run,
                                    lh_packet_result *out, lh_error *err)
{
    lh_packet_run mine;
    LHI_TRY(LHI_OPTIONS_COPY(lh_packet_run, &mine, run, err));
    if (mine.n_seeds > LHI_MAX_PARALLEL_TASKS)
        return lhi_fail(err, LH_EINVAL, "n_seeds: %u is above %d", mine.n_seeds,
                        (int)LHI_MAX_PARALLEL_TASKS);
    seed_runs s = {.run = &mine, .n_seeds = mine.n_seeds ? mine.n_seeds : 1};
    s.total = n * s.n_seeds;
    atomic_init(&s.stops, false);
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(lhi_packet_link_check(&links[i], err));
    for (uint32_t i = 0; i < n; i++) {
        s.done = i * s.n_seeds;
        s.n_done = 0;
        s.record = mine.records ? &mine.records[i] : NULL;
        if (s.record)
            *s.record = (lh_packet_record){0};
        LHI_TRY(simulate_link(&links[i], &s, &out[i], err));
    }
    return LH_OK;
}
