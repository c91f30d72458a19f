/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the makespan of every schedule. It is not below the bounds, and
 * a longer delay does not shorten it if the message order on each link is
 * fixed, by a single sender or an explicit order.
 *
 * On FIFO links shared by several devices, the second property is false. A
 * delay can let another device's message go first, and that message can be on
 * the critical path (one of Graham's anomalies). shared_links_can_speed_up()
 * has an example.
 *
 *     test_makespan [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "schedule/solver/bound/closed_forms.h"
#include "test.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

static uint32_t n_cases = 20000, first_case;

static int64_t makespan(const lh_pipeline *p, const lh_schedule *s,
                        const lh_sim_options *o)
{
    lh_timeline *t = NULL;
    lh_error err = {0};
    lh_status status = lh_simulate(p, s, o, &t, &err);
    int64_t ns = status == LH_OK ? lh_timeline_makespan(t) : -1;
    lh_timeline_free(t);
    return ns;
}

/* --- bounds --------------------------------------------------------------- */

static int64_t hop_ns(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    uint32_t a = lh_pipeline_chunk(p, from)->device;
    uint32_t b = lh_pipeline_chunk(p, to)->device;
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *link = lh_pipeline_link(p, i);
        if (link->from == a && link->to == b)
            return link->transfer_ns + link->latency_ns;
    }
    return 0;
}

/* Returns the least time from the start to the input of F(c). */
static int64_t way_in(const lh_pipeline *p, uint32_t c)
{
    int64_t ns = 0;
    for (uint32_t i = 0; i < c; i++)
        ns += lh_pipeline_chunk(p, i)->f_ns + hop_ns(p, i, i + 1);
    return ns;
}

/* Returns the least time from the end of D(c) to the end of D(0). */
static int64_t way_out(const lh_pipeline *p, uint32_t c)
{
    int64_t ns = 0;
    for (; c > 0; c--)
        ns += hop_ns(p, c, c - 1) + lh_pipeline_chunk(p, c - 1)->d_ns;
    return ns;
}

/* Returns the least time from the start of F(c) to the end of D(c). */
static int64_t round_trip(const lh_pipeline *p, uint32_t c)
{
    uint32_t last = lh_pipeline_n_chunks(p) - 1;
    int64_t ns = lh_pipeline_chunk(p, c)->f_ns;
    for (uint32_t i = c; i < last; i++)
        ns += hop_ns(p, i, i + 1) + lh_pipeline_chunk(p, i + 1)->f_ns;
    for (uint32_t i = last; i > c; i--)
        ns += lh_pipeline_chunk(p, i)->d_ns + hop_ns(p, i, i - 1);
    return ns + lh_pipeline_chunk(p, c)->d_ns;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bound: one microbatch's round trip and its last W. */
static int64_t path_bound(const lh_pipeline *p)
{
    return round_trip(p, 0) + lh_pipeline_chunk(p, 0)->w_ns;
}

/* Bound: all work on one device, after its first input can arrive. */
static int64_t device_bound(const lh_pipeline *p, uint32_t d)
{
    int64_t work = 0, first = INT64_MAX;
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        if (k->device != d)
            continue;
        work += (k->f_ns + k->d_ns + k->w_ns) * lh_pipeline_n_microbatches(p);
        if (way_in(p, c) < first)
            first = way_in(p, c);
    }
    return work ? first + work : 0;
}

/* Bound: if chunk c retains at most K = `held` microbatches, the microbatches
 * make the round trip in at least ceil(n / K) consecutive turns. */
static int64_t turns_bound(const lh_pipeline *p, uint32_t c, uint32_t held)
{
    uint32_t n = lh_pipeline_n_microbatches(p);
    int64_t turns = (n + held - 1) / held;
    return way_in(p, c) + turns * round_trip(p, c) + way_out(p, c);
}

/* Bound: all messages on an unshared link between two chunks. */
static int64_t link_bound(const lh_pipeline *p, uint32_t c, bool forward)
{
    uint32_t a = forward ? c : c + 1, b = forward ? c + 1 : c;
    uint32_t from = lh_pipeline_chunk(p, a)->device;
    uint32_t to = lh_pipeline_chunk(p, b)->device;
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *link = lh_pipeline_link(p, i);
        if (link->from != from || link->to != to)
            continue;
        int64_t all = link->transfer_ns * lh_pipeline_n_microbatches(p) +
                      link->latency_ns;
        if (forward)
            return way_in(p, a) + lh_pipeline_chunk(p, a)->f_ns + all +
                   round_trip(p, b) + way_out(p, b);
        return way_in(p, b) + round_trip(p, b) - lh_pipeline_chunk(p, b)->d_ns -
               hop_ns(p, a, b) + all + lh_pipeline_chunk(p, b)->d_ns +
               way_out(p, b);
    }
    return 0;
}

/* Returns the peak number of microbatches whose activations the device retains
 * for one chunk in this schedule, from F to the end of D. */
static uint32_t most_held(const lh_schedule *s, uint32_t device, uint32_t chunk)
{
    uint32_t count, now = 0, peak = 1;
    const lh_pass *order = lh_schedule_order(s, device, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (order[i].chunk != chunk)
            continue;
        if (order[i].kind == LH_F && ++now > peak)
            peak = now;
        if (order[i].kind == LH_D || order[i].kind == LH_B)
            now--;
    }
    return peak;
}

static int64_t all_bounds(const lh_pipeline *p, const lh_schedule *s)
{
    int64_t bound = path_bound(p);
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        bound = most(bound, device_bound(p, d));
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++) {
        uint32_t d = lh_pipeline_chunk(p, c)->device;
        bound = most(bound, turns_bound(p, c, most_held(s, d, c)));
        if (c + 1 == lh_pipeline_n_chunks(p))
            break;
        bound = most(bound, link_bound(p, c, true));
        bound = most(bound, link_bound(p, c, false));
    }
    return bound;
}

static lh_sim_options any_options(rng *r)
{
    lh_sim_options o = {.size = sizeof o};
    if (rng_chance(r, 40)) {
        o.receives = (lh_receives)rng_below(r, 3);
        o.coupled_queue = rng_below(r, 3);
    }
    return o;
}

/* Sets the memory limits to the schedule's peaks, for tight bounds. */
static lh_pipeline *just_enough(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *t = NULL;
    lh_error err = {0};
    int64_t peaks[64];
    if (lh_simulate(p, s, NULL, &t, &err) != LH_OK)
        return NULL;
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        peaks[d] = most(lh_timeline_peak_memory(t, d), 0);
    lh_timeline_free(t);
    return limited_pipeline(p, peaks);
}

static void bounds_hold(void)
{
    uint32_t n_tight = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *wide = random_pipeline(&r, NULL);
        lh_schedule *s =
            random_schedule(&r, wide, rng_chance(&r, 50), rng_chance(&r, 30));
        lh_pipeline *p = just_enough(wide, s);
        lh_sim_options o = any_options(&r);
        int64_t ns = p ? makespan(p, s, &o) : -1;
        lh_bound bound;
        lh_error err = {0};
        if (ns >= 0) {
            CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
            int64_t ours = all_bounds(p, s);
            n_tight += bound.ns == ns;
            if (bound.ns > ns || ours > ns) {
                CHECK_MSG(false,
                          "case %" PRIu32 ": makespan %" PRId64
                          ", bounds %" PRId64 " (%s) and %" PRId64,
                          i, ns, bound.ns, bound.text, ours);
                print_case(p, s);
            }
        }
        lh_schedule_free(s);
        lh_pipeline_free(p);
        lh_pipeline_free(wide);
    }
    CHECK_MSG(n_tight * 50 > n_cases, "only %" PRIu32 " bounds are reached",
              n_tight);
}

/* The library's bound on pipelines with two directions and overlapped pairs. */
static void two_way_bounds_hold(void)
{
    uint32_t n_tight = 0, n = n_cases / 4;
    for (uint32_t i = first_case; i < first_case + n; i++) {
        rng r = {UINT64_C(5000000000) + i};
        lh_pipeline *one = random_pipeline(&r, NULL);
        lh_pipeline *wide = two_way_pipeline(&r, one);
        lh_schedule *walked =
            random_schedule(&r, wide, rng_chance(&r, 50), rng_chance(&r, 30));
        lh_schedule *s = overlapping_schedule(&r, wide, walked, true);
        lh_pipeline *p = just_enough(wide, s);
        lh_bound bound;
        lh_error err = {0};
        int64_t ns = p ? makespan(p, s, NULL) : -1;
        if (ns >= 0) {
            CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
            n_tight += bound.ns == ns;
            if (bound.ns > ns) {
                CHECK_MSG(false,
                          "case %" PRIu32 ": makespan %" PRId64
                          ", bound %" PRId64 " (%s)",
                          i, ns, bound.ns, bound.text);
                print_case(p, s);
            }
        }
        lh_schedule_free(s);
        lh_schedule_free(walked);
        lh_pipeline_free(p);
        lh_pipeline_free(wide);
        lh_pipeline_free(one);
    }
    CHECK_MSG(n_tight * 50 > n, "only %" PRIu32 " bounds are reached", n_tight);
}

/* --- delays -------------------------------------------------------------- */

static void grow(rng *r, const lh_pipeline *p, const lh_schedule *s,
                 const lh_sim_options *o, uint32_t seed)
{
    uint32_t n_links = lh_pipeline_n_links(p);
    if (n_links == 0)
        return;
    uint32_t link = rng_below(r, n_links);
    lh_pipeline *slower =
        slower_pipeline(p, link, rng_below(r, 20), rng_below(r, 3));
    int64_t before = makespan(p, s, o), after = makespan(slower, s, o);
    if (after < before) {
        CHECK_MSG(false,
                  "case %" PRIu32 ": link %" PRIu32
                  " is slower, the makespan falls from %" PRId64 " to %" PRId64,
                  seed, link, before, after);
        print_case(p, s);
    }
    lh_pipeline_free(slower);
}

/* Every link has one sender and one receiver. The sender determines the message
 * order, with rendezvous receives the receiver, even if a full queue blocks the
 * sender. */
static void private_links_never_speed_up(void)
{
    static const random_shape shape = {.links = LINKS_PRIVATE};
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_schedule *s = random_schedule(&r, p, true, false);
        lh_sim_options o = any_options(&r);
        grow(&r, p, s, &o, i);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* Checks whether the schedule gives an explicit order for every link. */
static bool all_ordered(const lh_pipeline *p, const lh_schedule *s)
{
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        bool found = false;
        for (uint32_t k = 0; k < lh_schedule_n_link_orders(s); k++)
            found |= strcmp(lh_schedule_link_order(s, k)->link,
                            lh_pipeline_link(p, i)->name) == 0;
        if (!found)
            return false;
    }
    return true;
}

/* Explicit orders on every link, with any simulation options. */
static void ordered_links_never_speed_up(void)
{
    static const random_shape shape = {.links = LINKS_SHARED, .max_devices = 3};
    uint32_t n_tried = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_schedule *s = random_schedule(&r, p, true, true);
        lh_sim_options o = any_options(&r);
        if (all_ordered(p, s)) {
            grow(&r, p, s, &o, i);
            n_tried++;
        }
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_tried * 10 > n_cases, "only %" PRIu32 " tried", n_tried);
}

static void shared_links_can_speed_up(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\ndevices: 3\n"
        "backward: joint\n"
        "chunks:\n"
        "  - {device: 0, F: 1, D: 2, W: 0}\n"
        "  - {device: 1, F: 0, D: 0, W: 1}\n"
        "  - {device: 2, F: 1, D: 0, W: 1}\n"
        "links:\n"
        "  - {from: 0, to: 1, latency: 1, transfer: 0}\n"
        "  - {from: 1, to: 2, latency: 2, transfer: 1, name: shared}\n"
        "  - {from: 1, to: 0, latency: 2, transfer: 2, name: shared}\n"
        "  - {from: 2, to: 1, latency: 0, transfer: 1, name: shared}\n";
    static const char csv[] = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
                              "2F0,2B0,2F1,2B1\n";
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &s, &err), err);
    /* At time 9, the messages of 1B0 and 2B1 compete for the link, and the
     * lower device's long message goes first. If 2B0's message is delayed, so
     * is 1B0's. Then 2B1's message goes first at no cost, because 0B0 is not on
     * the critical path. */
    lh_pipeline *slower = slower_pipeline(p, 3, 1, 0);
    CHECK_INT(makespan(p, s, NULL), 19);
    CHECK_INT(makespan(slower, s, NULL), 18);
    lh_pipeline_free(slower);
    lh_pipeline_free(p);
    lh_schedule_free(s);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(bounds_hold);
    RUN(two_way_bounds_hold);
    RUN(private_links_never_speed_up);
    RUN(ordered_links_never_speed_up);
    RUN(shared_links_can_speed_up);
    return test_summary();
}
