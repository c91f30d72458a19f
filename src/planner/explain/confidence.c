/* SPDX-License-Identifier: Apache-2.0 */
/* Link advice confidence. The rates have a closed form
 * (longhaul/experimental/network_model.h). Published packet simulations are
 * compared with it: [SX]  ScaleAcross Explorer: Exploring Communication
 * Optimization for Scale-Across AI Model Training, 2026
 * docs/theory/network-advice.md has the table, and
 * docs/papers/scaleacross-figures.md the closed forms at the paper's points. */
#include "planner/explain/confidence.h"

#include "base/fail.h"

#include <stdio.h>

/* A published packet simulation. */
typedef struct published_simulation {
    lh_advice_published found;
    double from_ms, to_ms; /* latency range of the links it covers */
} published_simulation;

static const published_simulation table[LH_N_ADVICE_TOPICS] = {
    /* 0.10 % to 11.44 % slower than ECMP with up to 4 queue pairs at 1 ms;
     * faster at 0.05 ms [SX section 5.3, figure 20] */
    [LH_ADVICE_BALANCING] =
        {{0.0010, 0.1144, "spraying with 1 to 4 queue pairs, 1 ms"}, 0.5, 1},
    [LH_ADVICE_QUEUE_PAIRS] =
        {{0.0010, 0.1144, "spraying with 1 to 4 queue pairs, 1 ms"}, 0.5, 1},
    /* none at four times the usual oversubscription; at eight times none at
     * 0.05 ms, 0.89 % at 0.1, 1.52 % at 1 [SX section 5.4, figure 21] */
    [LH_ADVICE_CONGESTION] = {{0, 0.0152, "0.05 to 1 ms"}, 0, 1},
    /* 1.30 and 1.93 times with loss, from 50 to 1000 us, 1.07 and 1.10 without:
     * the quotients [SX section 5.2, figures 12 and 18] */
    [LH_ADVICE_RECOVERY] = {{0.215, 0.755, "go-back-n, 0.02 % lost, 1 ms"},
                            0.5,
                            1},
};

/* Formats a share with significant digits only: "0.9 %", "12 %", "490 %". */
static void format_share(double share, char *text, size_t room)
{
    double percent = 100 * share;
    snprintf(text, room, percent < 10 ? "%.1f" : "%.0f", percent);
}

/* Returns a text that rates the confidence in a predicted relative difference
 * `differs`, by the range that published packet simulation `p` measured. A link
 * latency outside the simulated latencies is unsure. Static storage. */
static const char *rate_confidence(const published_simulation *p,
                                   double differs, double latency_ms)
{
    if (latency_ms > p->to_ms)
        return "none at this latency: unsure";
    if (latency_ms < p->from_ms)
        return "which is longer than this link: unsure";
    if (differs > 2 * p->found.high)
        return "far more here: trust the direction, not the number";
    if (differs < p->found.low / 2)
        return "far less here: the cost may be underestimated";
    return "as here";
}

lh_status lhi_advice_fill_confidence(lh_advice_question *q, double latency_ms,
                                     double loss, lhi_arena *mem, lh_error *err)
{
    const published_simulation *p = &table[q->topic];
    char text[240], differs[24], low[24], high[24];
    format_share(q->spread, differs, sizeof differs);
    if (q->topic == LH_ADVICE_RECOVERY && loss <= 0) {
        snprintf(text, sizeof text,
                 "no packets are lost, so none are "
                 "retransmitted");
    } else if (!p->found.where) {
        snprintf(text, sizeof text,
                 "closed form: up to %s %%; no published packet simulation: "
                 "unsure",
                 differs);
    } else {
        if (latency_ms >= p->from_ms && latency_ms <= p->to_ms)
            q->published = &p->found;
        format_share(p->found.low, low, sizeof low);
        format_share(p->found.high, high, sizeof high);
        snprintf(text, sizeof text,
                 "closed form: up to %s %%; packet simulations (%s): %s to %s "
                 "%%, %s",
                 differs, p->found.where, low, high,
                 rate_confidence(p, q->spread, latency_ms));
    }
    q->confidence = lhi_arena_strdup(mem, text);
    return q->confidence ? LH_OK : lhi_fail_nomem(err);
}
