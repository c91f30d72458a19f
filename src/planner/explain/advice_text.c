/* SPDX-License-Identifier: Apache-2.0 */
/* Formats link advice as text. */
#include "planner/explain/advice_text.h"

#include "planner/explain/link_advice.h"

#include "base/fail.h"
#include "base/format_units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const lhi_advice_topics[] = {
    "load_balancing", "queue_pairs", "congestion_control",
    "recovery",       "fec",         NULL};

const char *lh_advice_topic_name(lh_advice_topic topic)
{
    return (unsigned)topic < LH_N_ADVICE_TOPICS ? lhi_advice_topics[topic]
                                                : "unknown";
}

void lh_advice_option_text(const lh_advice_option *option,
                           lh_advice_topic topic, char *text, size_t room)
{
    const lh_link_setting *s = &option->setting;
    uint32_t pairs = s->queue_pairs ? s->queue_pairs : 1;
    switch (topic) {
    case LH_ADVICE_BALANCING:
        snprintf(text, room, "%s, %" PRIu32 " queue pair%s",
                 s->balancing == LH_BALANCING_SPRAY ? "spray" : "ecmp", pairs,
                 pairs > 1 ? "s" : "");
        break;
    case LH_ADVICE_QUEUE_PAIRS:
        snprintf(text, room, "%" PRIu32 " queue pair%s", pairs,
                 pairs > 1 ? "s" : "");
        break;
    case LH_ADVICE_CONGESTION:
        snprintf(text, room, "%s",
                 s->congestion == LH_CONGESTION_ON ? "on" : "off");
        break;
    default:
        snprintf(text, room, "%s",
                 s->recovery == LH_RECOVERY_GO_BACK_N ? "go-back-n"
                                                      : "selective-repeat");
        if (topic == LH_ADVICE_FEC && s->fec_data)
            snprintf(text + strlen(text), room - strlen(text),
                     " with %" PRIu32 "+%" PRIu32, s->fec_data, s->fec_parity);
        else if (topic == LH_ADVICE_FEC)
            snprintf(text + strlen(text), room - strlen(text), " alone");
        break;
    }
}

/* Returns the rate in bytes/s that a GPU gets with a link setting: for pipeline
 * messages or, on a link without messages, for collectives. */
static double get_rate(const lh_advice_option *o)
{
    return o->message_bytes_per_s > 0 ? o->message_bytes_per_s
                                      : o->data_bytes_per_s;
}

/* Formats one option of a link-setting topic with its rate and times, relative
 * to option `advised`: "ecmp: 12.5 Gb/s a flow, 84.2 ms a message, iteration
 * 14.1 s (+3.10 %)". Returns the length, as snprintf() does. */
static int describe_option(lh_advice_topic topic, const lh_advice_option *o,
                           const lh_advice_option *advised, char *text,
                           size_t room)
{
    char name[80];
    lh_advice_option_text(o, topic, name, sizeof name);
    int n = snprintf(text, room, "%s: %.4g Gb/s a flow", name,
                     get_rate(o) * 8 / 1e9);
    if (o->message_ns >= 0)
        n += snprintf(text + n, room - (size_t)n, ", %.4g ms a message",
                      (double)o->message_ns / 1e6);
    if (o->iteration_ns > 0)
        n += snprintf(text + n, room - (size_t)n, ", iteration %.4g s",
                      (double)o->iteration_ns / 1e9);
    if (o != advised && o->iteration_ns > 0 && advised->iteration_ns > 0)
        n += snprintf(
            text + n, room - (size_t)n, " (%+.2f %%)",
            lhi_drop_negative_zero(
                100 * ((double)o->iteration_ns / (double)advised->iteration_ns -
                       1),
                2));
    return n;
}

/* Formats by how much the slowest option of a question lengthens the iteration
 * with option `advised`; nothing if its time is unknown, or if no option is
 * slower. Returns the length, as snprintf() does. */
static int describe_slowest(const lh_advice_question *q,
                            const lh_advice_option *advised, char *text,
                            size_t room)
{
    double slowest = 0, most = 0; /* differences to it, in per cent */
    uint32_t n = 0;               /* other options with a time */
    for (uint32_t i = 0; advised->iteration_ns > 0 && i < q->n_options; i++) {
        const int64_t ns = q->options[i].iteration_ns;
        if (ns <= 0 || &q->options[i] == advised)
            continue;
        const double percent =
            100 * ((double)ns / (double)advised->iteration_ns - 1);
        slowest = fmax(slowest, percent);
        most = fmax(most, fabs(percent));
        n++;
    }
    if (n > 0 && most < 0.005)
        return snprintf(text, room, "; the iteration time is equal");
    return slowest >= 0.005
               ? snprintf(text, room,
                          "; the slowest lengthens the iteration by %.2f %%",
                          slowest)
               : 0;
}

/* Formats a question on link settings whose best option is not worth a change,
 * with each option's rate, `advised` first: "nothing to gain: ecmp 47.04 Gb/s a
 * flow, spray 26.84". Returns the length, as snprintf() does. */
static int describe_shortly(const lh_advice_question *q,
                            const lh_advice_option *advised, char *text,
                            size_t room)
{
    char name[80];
    lh_advice_option_text(advised, q->topic, name, sizeof name);
    int n = 0;
    if (q->gain >= 0.0005)
        n = snprintf(text, room, "%.2f %% to gain, not advised", 100 * q->gain);
    else
        n = snprintf(text, room, "nothing to gain");
    n += snprintf(text + n, room - (size_t)n, ": %s %.4g Gb/s a flow", name,
                  get_rate(advised) * 8 / 1e9);
    for (uint32_t i = 0; i < q->n_options; i++) {
        const lh_advice_option *o = &q->options[i];
        if (o == advised)
            continue;
        lh_advice_option_text(o, q->topic, name, sizeof name);
        n += snprintf(text + n, room - (size_t)n, ", %s %.4g", name,
                      get_rate(o) * 8 / 1e9);
    }
    return n + describe_slowest(q, advised, text + n, room - (size_t)n);
}

/* Formats all options of a question on one topic of link settings into `text`:
 * first option `advised`, then the others, each compared with it. Returns the
 * length, as snprintf() does. */
static int describe_options(const lh_advice_question *q,
                            const lh_advice_option *advised, char *text,
                            size_t room)
{
    int n = describe_option(q->topic, advised, advised, text, room);
    for (uint32_t i = 0; i < q->n_options; i++) {
        if (&q->options[i] == advised)
            continue;
        n += snprintf(text + n, room - (size_t)n, "; ");
        n += describe_option(q->topic, &q->options[i], advised, text + n,
                             room - (size_t)n);
    }
    return n;
}

lh_status lhi_advice_format_reason(lh_advice_question *q, bool shared,
                                   lhi_arena *mem, lh_error *err)
{
    char text[1600];
    const lh_advice_option *advised = &q->options[0];
    int n;
    for (uint32_t i = 0; i < q->n_options; i++)
        if (q->options[i].advised)
            advised = &q->options[i];
    n = q->change_advised ? describe_options(q, advised, text, sizeof text)
                          : describe_shortly(q, advised, text, sizeof text);
    if (q->topic == LH_ADVICE_CONGESTION && q->change_advised)
        snprintf(text + n, sizeof text - (size_t)n,
                 "; off while no other traffic shares the link");
    else if (q->topic == LH_ADVICE_CONGESTION && shared)
        snprintf(text + n, sizeof text - (size_t)n,
                 "; other traffic shares the link and is not included in these "
                 "times");
    q->why = lhi_arena_strdup(mem, text);
    return q->why ? LH_OK : lhi_fail_nomem(err);
}
