/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a plan's links: rates compared with closed forms, and advice for
 * different loss, latency and paths. */
#include "jobs.h"
#include "plans.h"

#include "base/random.h"
#include "model/link_settings.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/plan.h>

#include <stdlib.h>

/* Two GPUs in two datacenters, a pipeline of two: one sender, and messages with
 * 4096 x 5120 x 2 = 41943040 bytes, as in ScaleAcross Explorer's 17 B model.
 * The cost model derives the link's rate from `gbps`. */
static bool make_or_not(double gbps, const char *link, lh_job **job,
                        lh_plan **plan, lh_error *err)
{
    lh_plan_options o = {.size = sizeof o, .no_optimal = true};
    *job = job_with(
        JOB_SMALL,
        "  fabric: {gbps: 100000, latency_us: 8}\n"
        "  links: [{between: [west, east], gbps: %.17g, %s}]\n"
        "model: {layers: 4, hidden: 5120, ffn: 16384, heads: 40, "
        "kv_heads: 40, head_dim: 128, vocab: 1024, gated: true, "
        "tied_embeddings: false}\n"
        "training: {global_batch: 8, sequence: 4096, recompute: none}\n"
        "layout: {tensor: 1, pipeline: 2, data: 1, micro_batch: 1, "
        "chunks_per_device: 1, outermost: pipeline}\n",
        gbps / lh_cost_defaults()->wan_efficiency, link);
    return *job && lh_plan_make(*job, &o, plan, err) == LH_OK;
}

static lh_plan *make(double gbps, const char *link, lh_job **job)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_MSG(make_or_not(gbps, link, job, &plan, &err), "%s", err.text);
    return plan;
}

static const lh_advice_question *find(const lh_plan *p, lh_advice_topic topic)
{
    CHECK(p->n_network == 2 && p->network[0].n_questions == LH_N_ADVICE_TOPICS);
    CHECK_STR(p->network[0].from, "west");
    CHECK_STR(p->network[0].to, "east");
    return &p->network[0].questions[topic];
}

/* A GPU has the link's 100 Gb/s; NCCL's defaults, 90 channels' worth of an
 * interface but at most 64, hold 256 MiB. The limit is found where a round trip
 * holds more, and is part of the plan where the job states it. */
static void ends_that_limit(void)
{
    static const struct {
        const char *link;
        bool limits, planned;
        double bytes_per_s;
    } cases[] = {
        {"latency_ms: 70", true, false, 64 * 4194304 / 0.14},
        {"latency_ms: 5", false, false, 0},
        {"latency_ms: 70, nccl: {channels: 2}", true, true, 2 * 4194304 / 0.14},
        {"latency_ms: 70, window_kib: 1024", true, true, 1048576 / 0.14},
        {"latency_ms: 70, nccl: {channels: 64, buffer_kib: 65536}", false, true,
         0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_job *job = NULL;
        lh_plan *plan = make(100, cases[i].link, &job);
        lh_ends_limit limit;

        if (!plan)
            continue;
        CHECK_MSG(lh_plan_find_ends_limit(plan, &limit) == cases[i].limits,
                  "%s", cases[i].link);
        if (cases[i].limits) {
            CHECK(limit.planned == cases[i].planned);
            CHECK_NEAR(limit.link_bytes_per_s, 12.5e9, 1e6);
            CHECK_NEAR(limit.ends_bytes_per_s, cases[i].bytes_per_s, 1e6);
            CHECK_NEAR(limit.round_trip_ns, 140e6, 1);
        }
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Returns the option with this many queue pairs, or NULL. */
static const lh_advice_option *
with_pairs(const lh_advice_question *q, lh_balancing balancing, uint32_t pairs)
{
    for (uint32_t i = 0; i < q->n_options; i++)
        if (q->options[i].setting.balancing == balancing &&
            q->options[i].setting.queue_pairs == pairs)
            return &q->options[i];
    CHECK_MSG(false, "no option with %" PRIu32 " queue pairs", pairs);
    return NULL;
}

/* Returns the rate without the cost of congestion control, which is advised
 * where it overlaps. One flow on a path with `path` bytes per second. */
static double gbps_at(const lh_advice_option *o, double path, double latency_ns)
{
    double share =
        o && o->setting.congestion == LH_CONGESTION_ON &&
                o->setting.balancing == LH_BALANCING_ECMP
            ? lhi_congestion_share(path, latency_ns, LH_QUEUE_BYTES, 1)
            : 1;
    return o ? o->message_bytes_per_s * 8 / 1e9 / share : -1;
}

static double gbps(const lh_advice_option *o)
{
    return o ? o->message_bytes_per_s * 8 / 1e9 : -1;
}

/* Checks that a question without gain has the iteration time that its slowest
 * option adds to the advised one's. */
static void check_slowest(const lh_advice_question *q)
{
    const lh_advice_option *advised = NULL;
    char text[80];
    int64_t slowest = 0;
    for (uint32_t i = 0; i < q->n_options; i++) {
        if (q->options[i].advised)
            advised = &q->options[i];
        if (q->options[i].iteration_ns > slowest)
            slowest = q->options[i].iteration_ns;
    }
    if (!advised || advised->iteration_ns <= 0 || !strstr(q->why, " to gain"))
        return;
    const double percent =
        100 * ((double)slowest / (double)advised->iteration_ns - 1);
    snprintf(text, sizeof text, "; the slowest lengthens the iteration by %.2f",
             percent);
    if (percent >= 0.005)
        CHECK_HAS(q->why, text);
    else
        CHECK_MSG(!strstr(q->why, "slowest"), "%.6f: %s", percent, q->why);
}

/* Checks that no advice is slower than the current setting or gains less than 1
 * %; each number comes with its confidence. */
static void check_advice(const lh_plan *p)
{
    CHECK(p->network_now_ns < 0 || p->network_ns <= p->network_now_ns);
    for (uint32_t i = 0; i < p->n_network; i++)
        for (uint32_t k = 0; k < p->network[i].n_questions; k++) {
            const lh_advice_question *q = &p->network[i].questions[k];
            uint32_t advised = 0;
            for (uint32_t n = 0; n < q->n_options; n++)
                advised += q->options[n].advised;
            CHECK_INT(advised, 1);
            CHECK(q->gain >= 0 && q->spread >= 0);
            CHECK(!q->change_advised || q->gain >= 0.01);
            CHECK(q->confidence && strlen(q->confidence) > 10);
            check_slowest(q);
        }
}

static void check_text(const lh_plan *p)
{
    lh_plan *again = plan_again(p, NULL);
    check_advice(p);
    if (again) {
        CHECK_INT(again->n_network, p->n_network);
        /* seconds with fifteen digits */
        CHECK_NEAR((double)again->network_ns, (double)p->network_ns,
                   (double)p->network_ns / 2e14);
    }
    lh_plan_free(again);
}

static void traffic(void)
{
    lh_job *job = NULL;
    lh_plan *p = make(400, "latency_ms: 0.05", &job);
    const lh_link_advice *a = &p->network[0];
    CHECK_INT(p->n_network, 2);
    CHECK_INT(a->messages, 8);
    CHECK_INT(a->message_bytes, 41943040);
    CHECK_INT(a->message_flows, 1);
    CHECK_INT(a->data_bytes, 0);
    CHECK(!a->paths_from_job);
    CHECK_INT(a->paths, ceil(1 / lh_cost_defaults()->wan_efficiency));
    CHECK_INT(a->planned.iteration_ns, p->best.iteration_ns);
    check_text(p);
    lh_plan_free(p);
    lh_job_free(job);
}

/* Windows of sprayed packets, 512 x 4096 bytes on each queue pair: 8.39 Gb/s at
 * 1 ms, 33.55 with four; 167.8 at 50 us. Against 100 Gb/s on one of four paths,
 * spraying is slower than ECMP at 1 ms with few queue pairs, but not at 50 us.
 */
static void spraying(void)
{
    lh_job *job = NULL;
    char link[120];
    snprintf(link, sizeof link,
             "latency_ms: 1, load_balancing: ecmp, paths: 4");
    lh_plan *p = make(400, link, &job);
    const lh_advice_question *q = find(p, LH_ADVICE_BALANCING);
    const lh_advice_option *spray = with_pairs(q, LH_BALANCING_SPRAY, 1);
    const lh_advice_option *ecmp = with_pairs(q, LH_BALANCING_ECMP, 1);
    CHECK(p->network[0].paths == 4 && p->network[0].paths_from_job);
    CHECK_NEAR(gbps(spray), 8.388608, 1e-6);
    CHECK_NEAR(gbps_at(ecmp, 12.5e9, 1e6), 100, 1e-6);
    /* The current setting is as fast as the fastest, and stays. */
    CHECK(!q->change_advised && q->gain < 0.02 && q->spread > 0.3 && spray &&
          ecmp && ecmp->advised && spray->iteration_ns > ecmp->iteration_ns);
    CHECK_HAS(q->why, "spray, 1 queue pair 8.389");
    CHECK_HAS(q->confidence,
              "far more here: trust the direction, not the number");
    /* With enough queue pairs it reaches the line rate minus congestion
     * control. */
    CHECK(gbps(with_pairs(q, LH_BALANCING_SPRAY, 64)) > 300);
    lh_plan_free(p);
    lh_job_free(job);

    p = make(400, "latency_ms: 0.05, load_balancing: ecmp, paths: 4", &job);
    q = find(p, LH_ADVICE_BALANCING);
    CHECK_NEAR(gbps(with_pairs(q, LH_BALANCING_SPRAY, 1)), 167.77216, 1e-5);
    CHECK_NEAR(gbps_at(with_pairs(q, LH_BALANCING_ECMP, 1), 12.5e9, 5e4), 100,
               1e-6);
    lh_plan_free(p);
    lh_job_free(job);
}

/* 41943040 bytes at 100 Gb/s, 2e-4 lost, 1 ms: 8.4529 ms with go-back-N, 45 %
 * of the rate; 3.6110 ms at 50 us. A lost last packet adds 2e-4 of at most five
 * round trips. */
static void repeating(void)
{
    lh_job *job = NULL;
    lh_plan *p = make(100, "latency_ms: 1, loss: 0.0002", &job);
    const lh_advice_question *q = find(p, LH_ADVICE_RECOVERY);
    const lh_advice_option *o = &q->options[0];
    CHECK(p->network[0].paths == 1);
    CHECK(o->setting.recovery == LH_RECOVERY_GO_BACK_N && !o->advised);
    CHECK_INT(o->setting.queue_pairs, 1);
    CHECK_NEAR((double)o->message_ns / 1e6, 8.4529, 2e-4 * 10);
    CHECK_NEAR(gbps(o), 45.02, 0.01);
    o = &q->options[1];
    CHECK(o->setting.recovery == LH_RECOVERY_SELECTIVE_REPEAT && o->advised);
    CHECK_NEAR(gbps(o), 99.98, 1e-6);
    CHECK(q->change_advised && q->options[0].iteration_ns > o->iteration_ns);
    CHECK(p->network[0].advised.setting.recovery ==
          LH_RECOVERY_SELECTIVE_REPEAT);
    /* An erasure code compensates for go-back-N: 2 on 32 leave 1e-8 of the
     * packets to resend. */
    q = find(p, LH_ADVICE_FEC);
    o = NULL;
    for (uint32_t i = 0; i < q->n_options; i++)
        if (q->options[i].setting.recovery == LH_RECOVERY_GO_BACK_N &&
            q->options[i].setting.fec_parity)
            o = &q->options[i];
    CHECK(o && o->setting.fec_data == 32 && gbps(o) > 90 && gbps(o) < 97);
    CHECK(!p->network[0].advised.setting.fec_data);
    check_text(p);
    lh_plan_free(p);
    lh_job_free(job);

    p = make(100, "latency_ms: 0.05, loss: 0.0002", &job);
    q = find(p, LH_ADVICE_RECOVERY);
    CHECK_NEAR((double)q->options[0].message_ns / 1e6, 3.6110, 2e-4 * 0.5);
    lh_plan_free(p);
    lh_job_free(job);
}

/* No loss, short: all answers are equivalent. */
static void nothing_to_gain(void)
{
    lh_job *job = NULL;
    lh_plan *p =
        make(400, "latency_ms: 0.005, load_balancing: ecmp, paths: 1", &job);
    for (uint32_t k = 0; k < LH_N_ADVICE_TOPICS; k++) {
        const lh_advice_question *q = find(p, (lh_advice_topic)k);
        bool code = q->topic == LH_ADVICE_FEC;
        CHECK_MSG(code || !q->change_advised, "%s matters: %s",
                  lh_advice_topic_name(q->topic), q->why);
        if (!q->change_advised) {
            CHECK_HAS(q->why, " to gain");
            CHECK_HAS(q->why, "400 Gb/s");
        }
    }
    const lh_link_setting *s = &p->network[0].advised.setting;
    CHECK(s->balancing == LH_BALANCING_ECMP && s->queue_pairs == 1 &&
          s->recovery == LH_RECOVERY_GO_BACK_N && !s->fec_data &&
          s->congestion == LH_CONGESTION_OFF);
    CHECK_INT(p->network[0].advised.iteration_ns, p->best.iteration_ns);
    CHECK_INT(p->network_ns, p->best.iteration_ns);
    lh_plan_free(p);
    lh_job_free(job);
}

/* Many queue pairs give four times the rate, which the plan does not need. */
static void simpler_is_as_good(void)
{
    lh_job *job = NULL;
    lh_plan *p =
        make(40000, "latency_ms: 0.005, load_balancing: ecmp, paths: 4", &job);
    const lh_link_advice *a = &p->network[0];
    const lh_advice_question *q = find(p, LH_ADVICE_BALANCING);
    double most = 0;
    for (uint32_t i = 0; i < q->n_options; i++)
        most = fmax(most, gbps(&q->options[i]));
    CHECK(most > 2 * gbps(&a->advised));
    CHECK_INT(a->advised.setting.balancing, LH_BALANCING_ECMP);
    CHECK_INT(a->advised.setting.queue_pairs, 1);
    CHECK(!q->change_advised);
    lh_plan_free(p);
    lh_job_free(job);
}

/* It has a cost here, and stays where others share the link. */
static void control(void)
{
    for (int shared = 0; shared < 2; shared++) {
        lh_job *job = NULL;
        lh_plan *p = make(4,
                          shared ? "latency_ms: 50, oversubscription: 2, "
                                   "congestion_control: on, queue_kib: 64"
                                 : "latency_ms: 50, congestion_control: on, "
                                   "queue_kib: 64",
                          &job);
        const lh_advice_question *q = find(p, LH_ADVICE_CONGESTION);
        CHECK(shared || q->gain > 0.01);
        CHECK_INT(p->network[0].advised.setting.congestion,
                  shared ? LH_CONGESTION_ON : LH_CONGESTION_OFF);
        CHECK_INT(q->change_advised, !shared);
        CHECK_HAS(q->why, shared ? "other traffic shares the link"
                                 : "off while no other traffic shares");
        lh_plan_free(p);
        lh_job_free(job);
    }
}

/* The queue length for congestion signals comes from the job wherever control
 * is on: also if control was first rejected for its cost and then overlaps
 * after all. */
static void queues_stay(void)
{
    static const struct {
        double gbps;
        const char *link;
        lh_congestion advised;
    } cases[] = {
        {4, "latency_ms: 50", LH_CONGESTION_OFF},
        {4000, "latency_ms: 0.05", LH_CONGESTION_ON},
        {100, "latency_ms: 50, oversubscription: 2", LH_CONGESTION_ON}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char link[160];
        lh_job *job = NULL;
        snprintf(link, sizeof link, "%s, congestion_control: on, queue_kib: 64",
                 cases[i].link);
        lh_plan *p = make(cases[i].gbps, link, &job);
        const lh_link_setting *advised = &p->network[0].advised.setting;
        CHECK_INT(advised->congestion, cases[i].advised);
        CHECK_NEAR(advised->queue_bytes,
                   advised->congestion == LH_CONGESTION_ON ? 65536 : 0, 0);
        uint32_t on = 0;
        for (uint32_t t = 0; t < LH_N_ADVICE_TOPICS; t++) {
            const lh_advice_question *q = find(p, (lh_advice_topic)t);
            for (uint32_t k = 0; k < q->n_options; k++) {
                const lh_link_setting *s = &q->options[k].setting;
                bool is_on = s->congestion == LH_CONGESTION_ON;
                CHECK_NEAR(s->queue_bytes, is_on ? 65536 : 0, 0);
                on += is_on;
            }
        }
        CHECK(on > 0);
        check_text(p);
        lh_plan_free(p);
        lh_job_free(job);
    }
}

/* The simulated time equals planning with that setting. */
static void as_if_planned(void)
{
    lh_job *job = NULL, *other = NULL;
    lh_plan *p = make(100, "latency_ms: 1, loss: 0.0002", &job);
    lh_plan *q = make(100,
                      "latency_ms: 1, loss: 0.0002, load_balancing: ecmp, "
                      "recovery: go-back-n",
                      &other);
    const lh_advice_option *o = &find(p, LH_ADVICE_RECOVERY)->options[0];
    CHECK_INT(o->message_bytes_per_s,
              find(q, LH_ADVICE_RECOVERY)->options[0].message_bytes_per_s);
    /* the option sets one direction of the link, the job both */
    CHECK(o->iteration_ns > p->best.iteration_ns &&
          o->iteration_ns <= q->best.iteration_ns);
    CHECK_INT(q->network[0].planned.iteration_ns, q->best.iteration_ns);
    CHECK(q->network_ns < q->best.iteration_ns);
    lh_plan_free(p);
    lh_plan_free(q);
    lh_job_free(job);
    lh_job_free(other);
}

/* For any link setting, check_advice() holds: no slower advice, and none that
 * gains less than 1 %. */
static void any_ends(void)
{
    static const char *const balancing[] = {
        "", ", load_balancing: ecmp, paths: 4, queue_pairs: 2",
        ", load_balancing: spray, queue_pairs: 1", ", load_balancing: spray"};
    static const char *const control[] = {
        "", ", congestion_control: on",
        ", congestion_control: on, queue_kib: 64"};
    static const char *const recovery[] = {"", ", recovery: go-back-n",
                                           ", recovery: selective-repeat"};
    static const char *const loss[] = {
        "", ", loss: 0.0002", ", loss: 0.01, fec: {data: 32, parity: 2}"};
    static const double rates[] = {1, 10, 100, 1000};
    static const double latencies[] = {0.05, 1, 20};
    lhi_random random = {7};
    uint32_t mattered = 0;
    for (int i = 0; i < 60; i++) {
        static const uint32_t most[] = {3, 4, 3, 3, 3, 2, 4};
        uint32_t drawn[7];
        char link[240];
        lh_job *job = NULL;
        for (int k = 0; k < 7; k++)
            drawn[k] = lhi_random_below(&random, most[k]);
        snprintf(link, sizeof link, "latency_ms: %g%s%s%s%s%s",
                 latencies[drawn[0]], balancing[drawn[1]], control[drawn[2]],
                 recovery[drawn[3]], loss[drawn[4]],
                 drawn[5] ? ", oversubscription: 2" : "");
        lh_plan *p = make(rates[drawn[6]], link, &job);
        CHECK_MSG(p != NULL, "no plan with %s", link);
        if (p) {
            check_text(p);
            for (int k = 0; k < LH_N_ADVICE_TOPICS; k++)
                mattered += find(p, (lh_advice_topic)k)->change_advised;
        }
        lh_plan_free(p);
        lh_job_free(job);
    }
    CHECK(mattered >= 20);
}

/* Confidence in a number: compared with packet simulations up to 1 ms, and none
 * beyond. */
static void sureness(void)
{
    static const struct {
        const char *link;
        lh_advice_topic topic;
        const char *says;
        bool published;
    } cases[] = {
        {"latency_ms: 1, load_balancing: spray", LH_ADVICE_BALANCING,
         "0.1 to 11 %, as here", true},
        {"latency_ms: 1, loss: 0.0002", LH_ADVICE_RECOVERY,
         "(go-back-n, 0.02 % lost, 1 ms): 22 to 76 %", true},
        {"latency_ms: 1", LH_ADVICE_RECOVERY, "no packets are lost", false},
        {"latency_ms: 1, congestion_control: on", LH_ADVICE_CONGESTION,
         "0.0 to 1.5 %", true},
        {"latency_ms: 20, congestion_control: on", LH_ADVICE_CONGESTION,
         "none at this latency: unsure", false},
        {"latency_ms: 1, loss: 0.0002", LH_ADVICE_FEC,
         "no published packet simulation: unsure", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_job *job = NULL;
        lh_plan *p = make(100, cases[i].link, &job);
        const lh_advice_question *q = find(p, cases[i].topic);
        CHECK_HAS(q->confidence, cases[i].says);
        CHECK_INT(q->published != NULL, cases[i].published);
        check_text(p);
        lh_plan_free(p);
        lh_job_free(job);
    }
}

/* A pipeline through two buildings with two zones each: one link, whose setting
 * applies to all four pairs of zones. */
static void zones_share_a_link(void)
{
    lh_plan_options o = {.size = sizeof o, .no_optimal = true};
    lh_plan *p = NULL;
    lh_error err = {0};
    lh_job *job = job_with(
        JOB_SMALL,
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  zone_link: {gbps: 400, latency_us: 20}\n"
        "  datacenters:\n"
        "    - {name: west, zones: [{name: a, nodes: 1}, {name: b, nodes: "
        "1}]}\n"
        "    - {name: east, zones: [{name: a, nodes: 1}, {name: b, nodes: "
        "1}]}\n"
        "  links: [{between: [west, east], gbps: 20, latency_ms: 1, loss: "
        "0.0002, recovery: go-back-n}]\n"
        "model: {layers: 4, hidden: 5120, ffn: 16384, heads: 40, vocab: 1024}\n"
        "training: {global_batch: 8, sequence: 4096, recompute: none}\n"
        "layout: {tensor: 1, pipeline: 2, data: 2, micro_batch: 1, "
        "chunks_per_device: 1, sites: ["
        "{replicas: 1, pipeline: [{datacenter: west/a, stages: 1}, "
        "{datacenter: east/a, stages: 1}]}, "
        "{replicas: 1, pipeline: [{datacenter: west/b, stages: 1}, "
        "{datacenter: east/b, stages: 1}]}]}\n");
    CHECK(job != NULL);
    CHECK_MSG(job && lh_plan_make(job, &o, &p, &err) == LH_OK, "%s", err.text);
    if (p) {
        CHECK_INT(p->n_network, 2);
        CHECK_STR(p->network[0].from, "west");
        CHECK_STR(p->network[0].to, "east");
        CHECK_INT(p->network[0].messages, 8);
        CHECK_INT(p->network[0].message_flows, 2);
        CHECK_INT(p->network[0].n_questions, LH_N_ADVICE_TOPICS);
        CHECK_INT(p->network[0].planned.iteration_ns, p->best.iteration_ns);
        CHECK_INT(p->network[0].advised.setting.recovery,
                  LH_RECOVERY_SELECTIVE_REPEAT);
        CHECK(p->network_ns < p->best.iteration_ns);
        check_text(p);
    }
    lh_plan_free(p);
    lh_job_free(job);
}

/* Answers too slow for a pipeline do not prevent a plan, and the written plan
 * can be read. */
static void extremes(void)
{
    lh_job *job = NULL;
    lh_plan *p = make(100, "latency_ms: 1000000, loss: 0.5", &job);
    CHECK(p != NULL);
    if (p) {
        const lh_advice_question *q = find(p, LH_ADVICE_RECOVERY);
        CHECK(q->options[0].setting.recovery == LH_RECOVERY_GO_BACK_N);
        CHECK_INT(q->options[0].iteration_ns, -1);
        CHECK(q->options[1].advised && q->options[1].iteration_ns > 0);
        CHECK(q->change_advised && p->network_ns > 0);
        check_text(p);
    }
    lh_plan_free(p);
    lh_job_free(job);

    /* More nanoseconds than fifteen digits can express. */
    p = make(3e-6, "latency_ms: 1", &job);
    CHECK(p && p->best.iteration_ns > INT64_C(1000000000000000));
    if (p)
        check_text(p);
    lh_plan_free(p);
    lh_job_free(job);

    p = make(5e8, "latency_ms: 1", &job);
    CHECK(p && p->network[0].paths == 65536);
    if (p)
        check_text(p);
    lh_plan_free(p);
    lh_job_free(job);
}

static void too_slow(void)
{
    lh_job *job = NULL;
    lh_plan *p = NULL;
    lh_pipeline *pipeline = NULL;
    lh_error err = {0};
    CHECK(!make_or_not(1e-5, "latency_ms: 1, loss: 0.99", &job, &p, &err));
    CHECK_INT(err.code, LH_EINFEASIBLE);
    CHECK_HAS(err.text, "no layout works");
    lh_layout layout = job->layout;
    layout.context = layout.expert = 1;
    CHECK_INT(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                               &pipeline, NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_INT(err.code, LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "the times add up to more than");
    lh_plan_free(p);
    lh_job_free(job);
}

int main(void)
{
    RUN(ends_that_limit);
    RUN(extremes);
    RUN(too_slow);
    RUN(traffic);
    RUN(spraying);
    RUN(repeating);
    RUN(nothing_to_gain);
    RUN(simpler_is_as_good);
    RUN(control);
    RUN(queues_stay);
    RUN(as_if_planned);
    RUN(any_ends);
    RUN(sureness);
    RUN(zones_share_a_link);
    return test_summary();
}
