/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses one link's settings. Rates have a closed form
 * (longhaul/experimental/network_model.h), so every combination is rated by its
 * sending time per GPU. Only the options in the report are simulated with the
 * plan.
 *
 * Questions are answered one by one without loss: the rate is a product with
 * one factor per setting. Only the retransmission rate depends on the other
 * settings, and there a higher rate never prefers an option that a lower rate
 * rejects. A change is recommended only if it gains enough over the current
 * setting. */
#include "planner/explain/link_advice_internal.h"

#include "planner/explain/advice_text.h"
#include "planner/explain/confidence.h"

#include "planner/layout/link_override.h"

#include "model/link_settings.h"
#include "model/paths.h"
#include "model/shape.h"

#include <longhaul/experimental/simulate.h>
#include <math.h>
#include <string.h>

enum {
    MAX_QUEUE_PAIRS = 64, /* 1, 2, 4, ... */
    FEC_DATA = 32,        /* packets per block */
    FEC_PARITY = 8,       /* parity packets per block */
    MAX_OPTIONS = 10,     /* per question */
};

static const double CLOSE_RATIO = 1.01;    /* a simpler setting within 1 % is
                                            * preferred */
static const double same = 1.0005;         /* up to 0.05 %: no difference */
static const double MIN_GAIN_RATIO = 1.01; /* iteration gain from which a change
                                            * is advised */
static const double longest_ns = 0x1p53; /* largest time that files can hold */

/* --- rates ---------------------------------------------------------------- */

void lhi_link_advisor_fill_loads(lhi_link_advisor *a)
{
    const lhi_traffic *t = a->traffic;
    lh_link_load use =
        lhi_link_load(a->job, t->from, t->to, lhi_find_cost_constants(a->job));
    const lh_layout hop = lhi_layout_on_hop(&a->config.layout, t->from, t->to);
    a->messages = a->data = use;
    a->messages.senders = (double)t->message_flows;
    a->messages.message_bytes = (double)t->message_bytes / lhi_group_size(&hop);
    a->data.senders = (double)t->data_flows;
    a->data.message_bytes = (double)t->data_step_bytes;
}

/* Computes by formula the message time and the bandwidths for pipeline messages
 * and for data parallelism that option `o`'s setting gives on the advisor's
 * current link. */
static lh_status fill_rates(const lhi_link_advisor *a, lh_advice_option *o,
                            lh_error *err)
{
    lh_link_effect e;
    o->message_ns = o->iteration_ns = -1;
    if (a->traffic->message_flows) {
        LHI_TRY(lhi_cost_link_setting(&a->messages, &o->setting, &e, err));
        o->message_bytes_per_s = e.bytes_per_s;
        o->message_ns = llround(fmin(e.message_ns, longest_ns));
    }
    if (a->traffic->data_flows) {
        LHI_TRY(lhi_cost_link_setting(&a->data, &o->setting, &e, err));
        o->data_bytes_per_s = e.bytes_per_s;
    }
    return LH_OK;
}

/* Computes a GPU's time for sending its messages and collectives over the link
 * per iteration, in seconds, from option `o`'s rates. */
static double compute_sending_s(const lhi_link_advisor *a,
                                const lh_advice_option *o)
{
    const lhi_traffic *t = a->traffic;
    double s = 0;
    if (o->message_bytes_per_s > 0)
        s += (double)t->messages * (double)t->message_bytes /
             (double)t->message_flows / o->message_bytes_per_s;
    if (o->data_bytes_per_s > 0)
        s +=
            (double)t->data_bytes / (double)t->data_flows / o->data_bytes_per_s;
    return s;
}

/* Computes a GPU's sending time per iteration under link setting `setting`,
 * into *s, in seconds. */
static lh_status compute_sending_s_with(const lhi_link_advisor *a,
                                        const lh_link_setting *setting,
                                        double *s, lh_error *err)
{
    lh_advice_option o = {.setting = *setting};
    LHI_TRY(fill_rates(a, &o, err));
    *s = compute_sending_s(a, &o);
    return LH_OK;
}

/* --- best settings -------------------------------------------------------- */

/* Returns a copy of link setting `from` with another load balancing: `pairs`
 * queue pairs, sprayed over the link's `paths` parallel paths if `spray`, else
 * hashed to them (ECMP). */
static lh_link_setting set_balancing(const lh_link_setting *from, bool spray,
                                     uint32_t pairs, uint32_t paths)
{
    lh_link_setting s = *from;
    s.balancing = spray ? LH_BALANCING_SPRAY : LH_BALANCING_ECMP;
    s.queue_pairs = pairs;
    s.paths = spray ? 0 : paths;
    return s;
}

/* Finds the fewest queue pairs whose sending time is within 1 % of the best,
 * with spraying over `paths` parallel paths (`spray`) or ECMP. *out: setting
 * `from` with these queue pairs; *with: its sending time in seconds. */
static lh_status find_pairs(const lhi_link_advisor *a, bool spray,
                            uint32_t paths, const lh_link_setting *from,
                            lh_link_setting *out, double *with, lh_error *err)
{
    double best = INFINITY, now;
    for (uint32_t q = 1; q <= MAX_QUEUE_PAIRS; q *= 2) {
        lh_link_setting try = set_balancing(from, spray, q, paths);
        LHI_TRY(compute_sending_s_with(a, &try, &now, err));
        best = fmin(best, now);
    }
    for (uint32_t q = 1; q <= MAX_QUEUE_PAIRS; q *= 2) {
        *out = set_balancing(from, spray, q, paths);
        LHI_TRY(compute_sending_s_with(a, out, with, err));
        if (*with <= best * CLOSE_RATIO)
            break;
    }
    return LH_OK;
}

/* Chooses ECMP or spraying over the link's `paths` parallel paths for *s, each
 * with its best queue pairs. Prefers ECMP if its sending time is within 1 % of
 * spraying's. */
static lh_status choose_balancing(const lhi_link_advisor *a, uint32_t paths,
                                  lh_link_setting *s, lh_error *err)
{
    lh_link_setting ecmp, spray;
    double with_ecmp, with_spray;
    LHI_TRY(find_pairs(a, false, paths, s, &ecmp, &with_ecmp, err));
    LHI_TRY(find_pairs(a, true, paths, s, &spray, &with_spray, err));
    *s = with_spray * CLOSE_RATIO < with_ecmp ? spray : ecmp;
    return LH_OK;
}

/* Switches congestion control of setting `s` on or off. Sets the switch queue:
 * the advisor's queue_bytes with it, 0 without. */
static void set_congestion_control(const lhi_link_advisor *a, bool on,
                                   lh_link_setting *s)
{
    s->congestion = on ? LH_CONGESTION_ON : LH_CONGESTION_OFF;
    s->queue_bytes = on ? a->queue_bytes : 0;
}

/* Chooses congestion control for *s by sending time. On a link shared with
 * other traffic the value in *s stays. */
static lh_status choose_congestion(const lhi_link_advisor *a,
                                   lh_link_setting *s, lh_error *err)
{
    double on, off;
    bool is_on = s->congestion == LH_CONGESTION_ON;
    set_congestion_control(a, false, s);
    LHI_TRY(compute_sending_s_with(a, s, &off, err));
    set_congestion_control(a, true, s);
    LHI_TRY(compute_sending_s_with(a, s, &on, err));
    if (a->messages.oversubscription > 1)
        set_congestion_control(a, is_on, s);
    else if (on > off * same)
        set_congestion_control(a, false, s);
    return LH_OK;
}

/* Finds the error correction code with the fewest parity packets whose sending
 * time is within 1 % of the best. *with: that time in seconds. */
static lh_status choose_code(const lhi_link_advisor *a, lh_link_setting *s,
                             double *with, lh_error *err)
{
    double best = INFINITY, now;
    s->fec_data = FEC_DATA;
    for (s->fec_parity = 1; s->fec_parity <= FEC_PARITY; s->fec_parity++) {
        LHI_TRY(compute_sending_s_with(a, s, &now, err));
        best = fmin(best, now);
    }
    for (s->fec_parity = 1; s->fec_parity <= FEC_PARITY; s->fec_parity++) {
        LHI_TRY(compute_sending_s_with(a, s, with, err));
        if (*with <= best * CLOSE_RATIO)
            break;
    }
    return LH_OK;
}

/* Chooses loss recovery and error correction for *s by sending time. */
static lh_status choose_recovery(const lhi_link_advisor *a, lh_link_setting *s,
                                 lh_error *err)
{
    lh_link_setting best = *s;
    double least = INFINITY, now;
    for (int i = 0; i < 4; i++) { /* the simplest first */
        lh_link_setting try = *s;
        try.recovery =
            i % 2 ? LH_RECOVERY_SELECTIVE_REPEAT : LH_RECOVERY_GO_BACK_N;
        try.fec_data = try.fec_parity = 0;
        if (i < 2)
            LHI_TRY(compute_sending_s_with(a, &try, &now, err));
        else
            LHI_TRY(choose_code(a, &try, &now, err));
        if (now * same < least) {
            least = now;
            best = try;
        }
    }
    *s = best;
    return LH_OK;
}

/* --- simulation of the plan ----------------------------------------------- */

/* Simulates the plan with the links `wans`; *ns is the iteration time, -1 if
 * the links are too slow for a pipeline's time range. */
static lh_status simulate_links(const lhi_link_advisor *a, const lh_wan *wans,
                                int64_t *ns, lh_error *err)
{
    lh_job job = *a->job;
    lh_pipeline *pipeline;
    lh_evaluator *evaluator;
    lh_error why = {0};
    int64_t after_ns;
    job.wans = wans;
    *ns = -1;
    lh_status status = lhi_pipeline_override_links(a->job, &job, &a->plan->best,
                                                   a->plan->pipeline, a->mem,
                                                   &pipeline, &after_ns, &why);
    if (status == LH_EUNSUPPORTED)
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    status = lh_evaluator_make(pipeline, NULL, &evaluator, err);
    if (status == LH_OK) {
        status = lh_evaluator_run(evaluator, a->plan->schedule, ns, err);
        *ns += after_ns;
        lh_evaluator_free(evaluator);
    }
    lh_pipeline_free(pipeline);
    return status;
}

/* Copies the job's matrix of links between datacenters to the arena. */
static lh_status copy_wans(const lhi_link_advisor *a, lh_wan **out,
                           lh_error *err)
{
    size_t n = (size_t)a->job->n_datacenters * a->job->n_datacenters;
    lh_wan *wans = LHI_NEW(a->mem, lh_wan, n);
    if (!wans)
        return lhi_fail_nomem(err);
    memcpy(wans, a->job->wans, n * sizeof *wans);
    *out = wans;
    return LH_OK;
}

/* Applies a setting to all zone pairs of two datacenters: they share the link.
 */
static void set_link(const lh_job *job, const lhi_traffic *t,
                     const lh_link_setting *setting, lh_wan *wans)
{
    uint32_t n = job->n_datacenters;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (a != b && lhi_uses_same_link(job, t->from, t->to, a, b))
                wans[(size_t)a * n + b].setting = *setting;
}

/* Simulates the iteration with option `o` on the advisor's current link; all
 * other links stay as in the job. The time goes to the option. */
static lh_status simulate_option(const lhi_link_advisor *a, lh_advice_option *o,
                                 lh_error *err)
{
    const lhi_traffic *t = a->traffic;
    lhi_mark mark = lhi_arena_mark(a->mem);
    lh_wan *wans;
    LHI_TRY(copy_wans(a, &wans, err));
    set_link(a->job, t, &o->setting, wans);
    lh_status status = simulate_links(a, wans, &o->iteration_ns, err);
    lhi_arena_rewind(a->mem, mark);
    return status;
}

lh_status lhi_link_advisor_fill_option(const lhi_link_advisor *a,
                                       lh_advice_option *o, lh_error *err)
{
    LHI_TRY(fill_rates(a, o, err));
    return simulate_option(a, o, err);
}

/* Returns the iteration time with option `o` divided by that with option
 * `than`; divides sending times if the iteration is not simulated. */
static double compare_options(const lhi_link_advisor *a,
                              const lh_advice_option *o,
                              const lh_advice_option *than)
{
    if (o->iteration_ns > 0 && than->iteration_ns > 0)
        return (double)o->iteration_ns / (double)than->iteration_ns;
    return compute_sending_s(a, o) / compute_sending_s(a, than);
}

/* --- simplest settings ---------------------------------------------------- */

/* Replaces *s by the simpler setting `other` if that is slower than option
 * `best` by at most 0.05 %. */
static lh_status prefer_if_equal(const lhi_link_advisor *a,
                                 const lh_link_setting *other,
                                 const lh_advice_option *best,
                                 lh_link_setting *s, lh_error *err)
{
    lh_advice_option o = {.setting = *other};
    LHI_TRY(lhi_link_advisor_fill_option(a, &o, err));
    if (compare_options(a, &o, best) <= same)
        *s = *other;
    return LH_OK;
}

/* Simplifies setting *s as far as the iteration becomes at most 0.05 % slower:
 * no error correction, go-back-n, congestion control on, ECMP, fewer queue
 * pairs. `paths`: the link's parallel paths. */
static lh_status simplify_setting(const lhi_link_advisor *a, uint32_t paths,
                                  lh_link_setting *s, lh_error *err)
{
    lh_advice_option best = {.setting = *s};
    LHI_TRY(lhi_link_advisor_fill_option(a, &best, err));
    lh_link_setting other = *s;
    other.fec_data = other.fec_parity = 0;
    LHI_TRY(prefer_if_equal(a, &other, &best, s, err));
    other = *s;
    other.recovery = LH_RECOVERY_GO_BACK_N;
    LHI_TRY(prefer_if_equal(a, &other, &best, s, err));
    other = *s;
    set_congestion_control(a, true, &other);
    LHI_TRY(prefer_if_equal(a, &other, &best, s, err));
    other = set_balancing(s, false, s->queue_pairs, paths);
    LHI_TRY(prefer_if_equal(a, &other, &best, s, err));
    for (uint32_t q = s->queue_pairs / 2; q > 0; q /= 2) {
        uint32_t before = s->queue_pairs;
        other = *s;
        other.queue_pairs = q;
        LHI_TRY(prefer_if_equal(a, &other, &best, s, err));
        if (s->queue_pairs == before)
            break;
    }
    return LH_OK;
}

/* --- questions ------------------------------------------------------------ */

/* Checks whether two link settings are equal at the endpoints; ignores queues
 * and paths, which belong to the network. */
static bool have_same_endpoints(const lh_link_setting *x,
                                const lh_link_setting *y)
{
    return x->balancing == y->balancing && x->congestion == y->congestion &&
           x->recovery == y->recovery && x->queue_pairs == y->queue_pairs &&
           x->fec_data == y->fec_data && x->fec_parity == y->fec_parity;
}

/* One question's options. */
typedef struct options {
    uint32_t n;
    lh_advice_option *all;
} options;

/* Returns the option whose endpoint settings equal those of `s`; appends one if
 * there is none. */
static lh_advice_option *add_option(options *o, const lh_link_setting *s)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (have_same_endpoints(&o->all[i].setting, s))
            return &o->all[i];
    o->all[o->n] = (lh_advice_option){.setting = *s};
    return &o->all[o->n++];
}

/* Adds the options of error correction to `o`: none and the best code, each
 * with `s`'s loss recovery and with go-back-n. */
static lh_status list_codes(const lhi_link_advisor *a, const lh_link_setting *s,
                            options *o, lh_error *err)
{
    double unused;
    for (int i = 0; i < 4; i++) {
        lh_link_setting other = *s;
        other.recovery = i < 2 ? s->recovery : LH_RECOVERY_GO_BACK_N;
        other.fec_data = other.fec_parity = 0;
        if (i % 2)
            LHI_TRY(choose_code(a, &other, &unused, err));
        add_option(o, &other);
    }
    return LH_OK;
}

/* Lists in `o` the options for one topic (such as balancing), with all other
 * settings as advised in `s`. `paths`: the link's parallel paths. */
static lh_status list_options(const lhi_link_advisor *a, lh_advice_topic topic,
                              const lh_link_setting *s, uint32_t paths,
                              options *o, lh_error *err)
{
    lh_link_setting other = *s;
    double unused;
    switch (topic) {
    case LH_ADVICE_BALANCING:
        for (int spray = 0; spray < 2; spray++) {
            other = set_balancing(s, spray, 1, paths);
            add_option(o, &other);
            other = set_balancing(s, spray, s->queue_pairs, paths);
            add_option(o, &other);
            LHI_TRY(find_pairs(a, spray, paths, s, &other, &unused, err));
            add_option(o, &other);
        }
        break;
    case LH_ADVICE_QUEUE_PAIRS:
        for (uint32_t q = 1; q <= 16; q *= 4) {
            other.queue_pairs = q;
            add_option(o, &other);
        }
        break;
    case LH_ADVICE_CONGESTION:
        set_congestion_control(a, false, &other);
        add_option(o, &other);
        set_congestion_control(a, true, &other);
        add_option(o, &other);
        break;
    case LH_ADVICE_RECOVERY:
        other.recovery = LH_RECOVERY_GO_BACK_N;
        add_option(o, &other);
        other.recovery = LH_RECOVERY_SELECTIVE_REPEAT;
        add_option(o, &other);
        break;
    default:
        LHI_TRY(list_codes(a, s, o, err));
        break;
    }
    add_option(o, s);
    return LH_OK;
}

/* Returns the link setting in use: `job`, with the simplest value for every
 * topic that the job leaves open. `paths`: the link's parallel paths. */
static lh_link_setting make_current_setting(const lhi_link_advisor *a,
                                            const lh_link_setting *job,
                                            uint32_t paths)
{
    lh_link_setting s = *job;
    uint32_t pairs = s.queue_pairs ? s.queue_pairs : 1;
    if (s.balancing == LH_BALANCING_ANY)
        s = set_balancing(&s, false, pairs, paths);
    s.queue_pairs = pairs;
    if (s.congestion == LH_CONGESTION_ANY)
        set_congestion_control(a, false, &s);
    if (s.recovery == LH_RECOVERY_ANY)
        s.recovery = LH_RECOVERY_GO_BACK_N;
    return s;
}

/* Returns link setting `s` with the value of one topic (such as balancing or
 * recovery) taken from setting `of`. */
static lh_link_setting replace_answer(const lh_link_setting *s,
                                      lh_advice_topic topic,
                                      const lh_link_setting *of)
{
    lh_link_setting with = *s;
    switch (topic) {
    case LH_ADVICE_BALANCING:
        with.balancing = of->balancing;
        with.paths = of->paths;
        with.queue_pairs = of->queue_pairs;
        break;
    case LH_ADVICE_QUEUE_PAIRS:
        with.queue_pairs = of->queue_pairs;
        break;
    case LH_ADVICE_CONGESTION:
        with.congestion = of->congestion;
        with.queue_bytes = of->queue_bytes;
        break;
    case LH_ADVICE_RECOVERY:
        with.recovery = of->recovery;
        break;
    default:
        with.fec_data = of->fec_data;
        with.fec_parity = of->fec_parity;
        break;
    }
    return with;
}

/* Checks whether setting `to` may take a topic's value from `from`.
 * Queue-pair counts apply to one balancing method only; on a shared link,
 * congestion control depends on other traffic. */
static bool is_applicable(const lhi_link_advisor *a, lh_advice_topic topic,
                          const lh_link_setting *to,
                          const lh_link_setting *from)
{
    if (topic == LH_ADVICE_QUEUE_PAIRS)
        return to->balancing == from->balancing;
    return topic != LH_ADVICE_CONGESTION || a->messages.oversubscription <= 1;
}

/* Compares setting `s` with and without one topic's value taken from
 * `other`. *times: iteration time with it, divided by that without. */
static lh_status compare_setting(const lhi_link_advisor *a,
                                 const lh_link_setting *s,
                                 lh_advice_topic topic,
                                 const lh_link_setting *other, double *times,
                                 lh_error *err)
{
    lh_advice_option as_is = {.setting = *s};
    lh_advice_option changed = {.setting = replace_answer(s, topic, other)};
    *times = 1;
    if (have_same_endpoints(&as_is.setting, &changed.setting))
        return LH_OK;
    LHI_TRY(lhi_link_advisor_fill_option(a, &as_is, err));
    LHI_TRY(lhi_link_advisor_fill_option(a, &changed, err));
    *times = compare_options(a, &changed, &as_is);
    return LH_OK;
}

/* Improves the current setting *s: takes those values of the fastest setting
 * that save at least 1 % of the iteration, the largest saving first. */
static lh_status apply_gains(const lhi_link_advisor *a,
                             const lh_link_setting *fastest, lh_link_setting *s,
                             lh_error *err)
{
    for (int round = 0; round < LH_N_ADVICE_TOPICS; round++) {
        double least = 1 / MIN_GAIN_RATIO, times;
        int best = -1;
        for (int i = 0; i < LH_N_ADVICE_TOPICS; i++) {
            if (!is_applicable(a, (lh_advice_topic)i, s, fastest))
                continue;
            LHI_TRY(compare_setting(a, s, (lh_advice_topic)i, fastest, &times,
                                    err));
            if (times <= least) {
                least = times;
                best = i;
            }
        }
        if (best < 0)
            return LH_OK;
        *s = replace_answer(s, (lh_advice_topic)best, fastest);
    }
    return LH_OK;
}

/* Reverts those values of *s to the current setting `now` that save less than 1
 * % of the iteration after later changes. */
static lh_status revert_useless(const lhi_link_advisor *a,
                                const lh_link_setting *now, lh_link_setting *s,
                                lh_error *err)
{
    double times;
    for (int i = 0; i < LH_N_ADVICE_TOPICS; i++) {
        LHI_TRY(compare_setting(a, s, (lh_advice_topic)i, now, &times, err));
        if (times < MIN_GAIN_RATIO)
            *s = replace_answer(s, (lh_advice_topic)i, now);
    }
    return LH_OK;
}

/* Returns the largest relative time difference between the advised option and
 * any other, in either direction (0.1: 10 %). */
static double compute_max_difference(const lhi_link_advisor *a,
                                     const options *all,
                                     const lh_advice_option *advised)
{
    double most = 1;
    for (uint32_t i = 0; i < all->n; i++) {
        double more = compare_options(a, &all->all[i], advised);
        most = fmax(most, fmax(more, 1 / more));
    }
    return fmin(most, 1e12) - 1;
}

/* The three settings that a question compares. */
typedef struct settings {
    lh_link_setting now, fastest, advised;
} settings;

/* Answers one question on a link: fills *q with the options for `topic`, the
 * advised option, and its gain over the current setting. `s`: current and
 * advised settings; `paths`: the link's parallel paths. */
static lh_status answer_question(const lhi_link_advisor *a,
                                 lh_advice_topic topic, const settings *s,
                                 uint32_t paths, lh_advice_question *q,
                                 lh_error *err)
{
    options o = {.all = LHI_NEW(a->mem, lh_advice_option, MAX_OPTIONS)};
    lh_link_setting now = replace_answer(&s->advised, topic, &s->now);
    lh_link_setting fastest = replace_answer(&s->advised, topic, &s->fastest);
    lh_advice_option *advised, *others[2];
    if (!o.all)
        return lhi_fail_nomem(err);
    LHI_TRY(list_options(a, topic, &s->advised, paths, &o, err));
    advised = add_option(&o, &s->advised);
    others[0] = add_option(&o, &now);
    others[1] = add_option(&o, &fastest);
    for (uint32_t i = 0; i < o.n; i++)
        LHI_TRY(lhi_link_advisor_fill_option(a, &o.all[i], err));
    advised->advised = true;
    *q = (lh_advice_question){
        .topic = topic,
        .change_advised = others[0] != advised,
        .gain = others[0] != advised
                    ? compare_options(a, others[0], advised) - 1
                    : compare_options(a, advised, others[1]) - 1,
        .spread = compute_max_difference(a, &o, advised),
        .n_options = o.n,
        .options = o.all};
    q->gain = fmin(fmax(q->gain, 0), 1e12);
    LHI_TRY(lhi_advice_format_reason(q, a->messages.oversubscription > 1,
                                     a->mem, err));
    return lhi_advice_fill_confidence(q, a->messages.latency_ns / 1e6,
                                      a->messages.loss, a->mem, err);
}

/* --- one link, all links -------------------------------------------------- */

/* Finds the link setting *s (loss recovery, load balancing and congestion
 * control) with the least sending time. Then replaces its parts by simpler ones
 * (see simplify_setting()). `paths`: number of the link's parallel paths. */
static lh_status find_fastest(const lhi_link_advisor *a, uint32_t paths,
                              lh_link_setting *s, lh_error *err)
{
    LHI_TRY(choose_recovery(a, s, err));
    LHI_TRY(choose_balancing(a, paths, s, err));
    LHI_TRY(choose_congestion(a, s, err));
    LHI_TRY(choose_recovery(a, s, err)); /* at the remaining loss rate */
    return simplify_setting(a, paths, s, err);
}

lh_status lhi_link_advisor_answer_questions(const lhi_link_advisor *a,
                                            lh_link_advice *out, lh_error *err)
{
    settings s = {
        .now = make_current_setting(a, &out->planned.setting, out->paths),
        .fastest = out->planned.setting};
    lh_advice_question *q =
        LHI_NEW(a->mem, lh_advice_question, LH_N_ADVICE_TOPICS);
    if (!q)
        return lhi_fail_nomem(err);
    LHI_TRY(find_fastest(a, out->paths, &s.fastest, err));
    s.advised = s.now;
    LHI_TRY(apply_gains(a, &s.fastest, &s.advised, err));
    LHI_TRY(revert_useless(a, &s.now, &s.advised, err));
    out->advised.setting = s.advised;
    out->advised.advised = true;
    LHI_TRY(lhi_link_advisor_fill_option(a, &out->advised, err));
    for (int i = 0; i < LH_N_ADVICE_TOPICS; i++)
        LHI_TRY(
            answer_question(a, (lh_advice_topic)i, &s, out->paths, &q[i], err));
    out->questions = q;
    out->n_questions = LH_N_ADVICE_TOPICS;
    return LH_OK;
}

lh_status lhi_link_advisor_simulate_links(const lhi_link_advisor *a,
                                          const lhi_traffic *traffic,
                                          const lh_link_advice *links,
                                          uint32_t n, bool advised, int64_t *ns,
                                          lh_error *err)
{
    lh_wan *wans;
    LHI_TRY(copy_wans(a, &wans, err));
    for (uint32_t i = 0; i < n; i++) {
        lh_link_setting now =
            make_current_setting(a, &links[i].planned.setting, links[i].paths);
        bool settled = links[i].n_questions > 0;
        if (settled)
            set_link(a->job, &traffic[i],
                     advised ? &links[i].advised.setting : &now, wans);
    }
    return simulate_links(a, wans, ns, err);
}
