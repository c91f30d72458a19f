/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/host_localiser.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/sort.h"
#include "resilience/monitor/drift_detector.h"

#include <math.h>
#include <string.h>

enum {
    WARM_UP = 8,          /* iterations that define normal times */
    NORMAL_TIMES = 3,     /* that end a slowdown */
    LINE_ITERATIONS = 64, /* over which times and work are averaged */
    SKIPPED_STEPS = 2,    /* after a reset: caches and connections are cold */
    SETTLING_STEPS = 2,   /* iterations without another change */
    MIN_PEERS = 2         /* of an interface, to tell it from a link */
};
/* Least change of a hop or host, relative to its level. An exchange of hosts
 * costs more than smaller changes. */
static const double min_change = 0.1;
/* Relative deviation beyond which a time is not learned as normal. */
static const double outlier = 0.5;
/* Standard deviations of the work beyond which times are skipped. */
static const double max_work_deviations = 2.5;

/* A monitored time. */
typedef struct monitored_time {
    lhi_drift_detector detector;
    /* Means of the work and the time, their covariance and the work's variance,
     * over n iterations without a slowdown. */
    double mean_work, normal_ns, covariance, variance, n;
    uint32_t n_normal; /* last times that are nearer to the normal level */
    bool is_measured, is_slow;
} monitored_time;

struct lhi_host_localiser {
    lhi_arena *mem;
    uint32_t n_replicas, n_devices, n_hosts, n_hops;
    lhi_hop *hops;
    monitored_time *hop_times, *host_times;
    double *ratios; /* scratch: per device */
    double *work;   /* scratch: per replica */
    uint64_t n_iterations, changed_at;
    uint32_t n_skipped; /* iterations to skip */
    bool *explained;    /* scratch: per hop */
    uint32_t n_slow;
    lhi_slow_element *slow; /* capacity: hops and hosts */
};

lh_status lhi_host_localiser_make(uint32_t n_replicas, uint32_t n_devices,
                                  uint32_t n_hops, const lhi_hop *hops,
                                  lhi_host_localiser **out, lh_error *err)
{
    const uint32_t n_hosts = n_replicas * n_devices;
    lhi_arena *mem = lhi_arena_make(0);
    lhi_host_localiser *l = mem ? LHI_NEW(mem, lhi_host_localiser, 1) : NULL;
    if (l) {
        *l = (lhi_host_localiser){
            .mem = mem,
            .n_replicas = n_replicas,
            .n_devices = n_devices,
            .n_hosts = n_hosts,
            .n_hops = n_hops,
            .hops = LHI_NEW(mem, lhi_hop, n_hops + 1),
            .hop_times = LHI_NEW(mem, monitored_time, n_hops + 1),
            .host_times = LHI_NEW(mem, monitored_time, n_hosts),
            .ratios = LHI_NEW(mem, double, n_hosts),
            .work = LHI_NEW(mem, double, n_replicas),
            .explained = LHI_NEW(mem, bool, n_hops + 1),
            .slow = LHI_NEW(mem, lhi_slow_element, n_hops + n_hosts)};
    }
    if (!l || !l->hops || !l->hop_times || !l->host_times || !l->ratios ||
        !l->work || !l->explained || !l->slow) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    if (n_hops > 0)
        memcpy(l->hops, hops, n_hops * sizeof *hops);
    *out = l;
    return LH_OK;
}

/* Frees the localiser; ignores NULL. */
void lhi_host_localiser_free(lhi_host_localiser *l)
{
    if (l)
        lhi_arena_free(l->mem);
}

/* --- work per replica ----------------------------------------------------- */

/* Compares two doubles in ascending order, for qsort(). */
static int compare_ratios(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes each replica's work in this iteration: the lower median over its
 * devices of pass time / normal pass time, which ignores slow hosts. With one
 * device per replica, all replicas count as having equal work. */
static void compute_work(lhi_host_localiser *l, const double *pass_ns)
{
    const bool alone = l->n_devices == 1;
    for (uint32_t r = 0; r < l->n_replicas; r++) {
        uint32_t n = 0;
        for (uint32_t h = 0; h < l->n_hosts; h++) {
            const double normal = l->host_times[h].normal_ns;
            if ((alone || h / l->n_devices == r) && pass_ns[h] > 0)
                l->ratios[n++] = normal > 0 ? pass_ns[h] / normal : 1;
        }
        lhi_sort(l->ratios, n, sizeof *l->ratios, compare_ratios);
        l->work[r] = n > 0 ? l->ratios[(n - 1) / 2] : 1;
    }
}

/* --- changes -------------------------------------------------------------- */

/* Returns the normal time for `work` (1: an average iteration), by the
 * regression line over past iterations, whose slope is at most that of a time
 * proportional to work. */
static double predict_normal(const monitored_time *t, double work)
{
    const double slope = t->variance > 0 ? t->covariance / t->variance : 0;
    const double most = t->mean_work > 0 ? t->normal_ns / t->mean_work : 0;
    return t->normal_ns +
           fmin(fmax(slope, 0), fmax(most, 0)) * (work - t->mean_work);
}

/* Updates the regression line, which predicts a host's or hop's normal time
 * from its work, with one iteration's time `ns` and `work`. After the warm-up,
 * the line's own prediction replaces `ns` if `is_normal` is false, the drift
 * detector reports a slowdown, or `ns` is an outlier (perhaps a slowdown's
 * first iteration). The mean work is updated in all cases, to follow work that
 * grows during a slowdown. */
static void update_line(monitored_time *t, double ns, double work,
                        bool is_normal)
{
    const double on_line = predict_normal(t, work);
    if (t->n >= WARM_UP && (!is_normal || t->detector.has_left ||
                            fabs(ns - on_line) > outlier * t->detector.normal))
        ns = on_line;
    t->n = fmin(t->n + 1, LINE_ITERATIONS);
    const double off_ns = ns - t->normal_ns, off_work = work - t->mean_work,
                 share = 1 / t->n;
    t->normal_ns += share * off_ns;
    t->mean_work += share * off_work;
    t->covariance += share * ((1 - share) * off_ns * off_work - t->covariance);
    t->variance += share * ((1 - share) * off_work * off_work - t->variance);
}

/* Checks whether `work` is so far from its mean that the regression line cannot
 * predict the normal time. */
static bool is_far_from_mean(const monitored_time *t, double work)
{
    const double off = work - t->mean_work;
    return off * off > max_work_deviations * max_work_deviations * t->variance;
}

/* Ends a slowdown after NORMAL_TIMES consecutive times `ns` that are nearer to
 * the normal level than to the slow one; the detector alone takes longer,
 * because slow times scatter more. */
static void reset_if_normal(monitored_time *t, double ns)
{
    const lhi_drift_detector *g = &t->detector;
    const bool is_near = fabs(ns - g->normal) < fabs(ns - g->level);
    t->n_normal = g->has_left && is_near ? t->n_normal + 1 : 0;
    if (t->n_normal < NORMAL_TIMES)
        return;
    lhi_drift_detector_reset(&t->detector);
    t->n_normal = 0;
}

/* Adds a measured time (NAN: not measured), scaled to its replica's normal
 * `work`, to the drift detector. Returns true if the host or hop changed
 * from normal to slow, or back. */
static bool add_time(monitored_time *t, double ns, double work)
{
    uint32_t ago;
    const bool was_slow = t->is_slow;
    if (isnan(ns))
        return false;
    t->is_measured = true;
    if (t->n >= WARM_UP && is_far_from_mean(t, work)) {
        update_line(t, ns, work, false);
        return false;
    }
    /* Scaled to work 1. Emulated links may normally take no time. */
    const double normal_ns = predict_normal(t, work);
    const double scaled_ns =
        normal_ns > 0 ? ns * predict_normal(t, 1) / normal_ns : ns;
    update_line(t, ns, work, true);
    lhi_drift_detector_add(&t->detector, (lhi_drift_reading){scaled_ns, 0, 1},
                           t->detector.n_samples < WARM_UP,
                           min_change * t->detector.normal, &ago);
    reset_if_normal(t, scaled_ns);
    t->is_slow = t->detector.has_left && t->detector.level > t->detector.normal;
    return t->is_slow != was_slow;
}

/* Returns current / normal duration of a host's passes or a hop's messages; 1
 * if the normal duration is 0. */
static double compute_factor(const monitored_time *t)
{
    return t->detector.normal > 0 ? t->detector.level / t->detector.normal : 1;
}

/* --- slow elements -------------------------------------------------------- */

/* Returns the host at a hop's sending end (`sends`) or receiving end. */
static uint32_t get_end(const lhi_hop *hop, bool sends)
{
    return sends ? hop->from : hop->to;
}

/* Counts the slow hops that a slow interface of host h (`sends`: outgoing, else
 * incoming) would explain and that no other one explains yet. 0: a measured hop
 * over it is normal, or its hops have fewer than MIN_PEERS peers. */
static uint32_t count_explained(const lhi_host_localiser *l, uint32_t h,
                                bool sends)
{
    uint32_t n = 0, n_peers = 0, peer = UINT32_MAX;
    for (uint32_t i = 0; i < l->n_hops; i++) {
        const uint32_t other = get_end(&l->hops[i], !sends);
        if (get_end(&l->hops[i], sends) != h || !l->hop_times[i].is_measured)
            continue;
        if (!l->hop_times[i].is_slow)
            return 0;
        n += !l->explained[i];
        n_peers += other != peer && n_peers < MIN_PEERS;
        peer = other;
    }
    return n_peers >= MIN_PEERS ? n : 0;
}

/* Appends host h's interface (`sends`: outgoing, else incoming) to the slow
 * elements with its slowest hop's factor, and marks its slow hops as explained.
 * */
static void add_interface(lhi_host_localiser *l, uint32_t h, bool sends)
{
    lhi_slow_element *e = &l->slow[l->n_slow++];
    *e = (lhi_slow_element){
        .kind = LHI_SLOW_INTERFACE, .a = h, .b = h, .sends = sends};
    for (uint32_t i = 0; i < l->n_hops; i++) {
        const monitored_time *t = &l->hop_times[i];
        if (get_end(&l->hops[i], sends) != h || !t->is_slow)
            continue;
        l->explained[i] = true;
        if (compute_factor(t) > e->factor) {
            e->factor = compute_factor(t);
            e->extra_ns = t->detector.level - t->detector.normal;
            e->hop = i;
        }
    }
}

/* Adds the slow interfaces: repeatedly the one that explains the most slow
 * hops, at least MIN_PEERS; ties: the lowest host. */
static void find_interfaces(lhi_host_localiser *l)
{
    for (;;) {
        uint32_t most = MIN_PEERS - 1, found = 0;
        for (uint32_t k = 0; k < 2 * l->n_hosts; k++) {
            const uint32_t n = count_explained(l, k / 2, k % 2 == 0);
            if (n > most) {
                most = n;
                found = k;
            }
        }
        if (most < MIN_PEERS)
            return;
        add_interface(l, found / 2, found % 2 == 0);
    }
}

/* Rebuilds the list of slow elements: interfaces that explain several slow
 * hops, links of the other slow hops, then slow hosts. */
static void list_slow(lhi_host_localiser *l)
{
    l->n_slow = 0;
    memset(l->explained, 0, l->n_hops * sizeof *l->explained);
    for (uint32_t i = 0; i < l->n_hops; i++)
        l->explained[i] = !l->hop_times[i].is_slow;
    find_interfaces(l);
    for (uint32_t i = 0; i < l->n_hops; i++) {
        const monitored_time *t = &l->hop_times[i];
        if (!l->explained[i])
            l->slow[l->n_slow++] = (lhi_slow_element){
                .kind = LHI_SLOW_LINK,
                .a = l->hops[i].from,
                .b = l->hops[i].to,
                .hop = i,
                .factor = compute_factor(t),
                .extra_ns = t->detector.level - t->detector.normal};
    }
    for (uint32_t h = 0; h < l->n_hosts; h++) {
        const monitored_time *t = &l->host_times[h];
        if (t->is_slow)
            l->slow[l->n_slow++] = (lhi_slow_element){
                .kind = LHI_SLOW_HOST,
                .a = h,
                .b = h,
                .factor = compute_factor(t),
                .extra_ns = t->detector.level - t->detector.normal};
    }
}

bool lhi_host_localiser_add(lhi_host_localiser *l, const double *pass_ns,
                            const double *hop_ns)
{
    bool changed = false;
    if (l->n_skipped > 0) {
        l->n_skipped--;
        return false;
    }
    l->n_iterations++;
    compute_work(l, pass_ns);
    for (uint32_t h = 0; h < l->n_hosts; h++)
        changed |= add_time(&l->host_times[h],
                            pass_ns[h] / l->work[h / l->n_devices], 1);
    for (uint32_t i = 0; i < l->n_hops; i++) {
        const lhi_hop *hop = &l->hops[i];
        const double work =
            hop->is_collective ? 1 : l->work[hop->from / l->n_devices];
        changed |= add_time(&l->hop_times[i], hop_ns[i], work);
    }
    if (changed)
        l->changed_at = l->n_iterations;
    const bool settles = l->n_iterations == l->changed_at + SETTLING_STEPS;
    if (settles)
        list_slow(l);
    return settles;
}

/* Sets a monitored time back to its normal level, as not slow, and discards the
 * newest readings. */
static void reset_time(monitored_time *t)
{
    if (t->detector.has_left)
        lhi_drift_detector_reset(&t->detector);
    t->detector.n_last = 0;
    t->n_normal = 0;
    t->is_slow = false;
}

void lhi_host_localiser_reset(lhi_host_localiser *l)
{
    for (uint32_t h = 0; h < l->n_hosts; h++)
        reset_time(&l->host_times[h]);
    for (uint32_t i = 0; i < l->n_hops; i++)
        reset_time(&l->hop_times[i]);
    l->n_slow = 0;
    l->n_skipped = SKIPPED_STEPS;
}

/* Returns the fewest slow hosts, interfaces and links that explain all slow
 * hops, stable for two iterations, and their number; borrowed. */
const lhi_slow_element *lhi_host_localiser_slow(const lhi_host_localiser *l,
                                                uint32_t *n)
{
    *n = l->n_slow;
    return l->slow;
}
