/* SPDX-License-Identifier: Apache-2.0 */
/* Prints Adaptra's published numbers beside the computed ones. */
#include "adaptra.h"

/* No row of the claims depends on a machine's speed. */
static const score_missing missing[] = {
    {"abstract", "least improvement of the iteration", "1.2",
     "the paper names neither the setting nor the baseline"},
    {"section 5.1", "backward beside a send by NCCL over backward alone",
     "61.9 / 31 ms", "contention inside a GPU is not modelled"},
    {"section 5.1", "GEMM beside a send by NCCL over GEMM alone", "2 / 0.11 ms",
     "as above"},
    {"section 7.4", "time to generate a schedule", "below 100 ms",
     "a measured time, which depends on the machine"},
    {"section 7.4", "time to solve the MILP", "hours", "as above"},
    {"section 7.4, figure 19", "gap with smaller time steps", "smaller",
     "longhaul simulates events, not time steps"},
    {"section 5.1",
     "communication beside passes by NCCL over one after another", "no better",
     "contention inside a GPU is not modelled"},
    {"figure 8", "bubble rates by slackness and delay", "curves",
     "the text gives no number or direction"},
    {"conclusion", "restart time after a failure of a network card", "zero",
     "the trace below has 0.25 s until detection; no number to compare"}};

void adaptra_claim_above(score *s, FILE *to, const char *where,
                         const char *claimed, const char *run, double ratio,
                         score_class as, const char *why)
{
    const score_line l = {
        where,
        claimed,
        run,
        {.value = ratio, .low = 1, .has_low = true, .is_ratio = true},
        .digits = 3,
        .unit = "",
        .as = as,
        .why = why};

    score_print_line(s, &l, to);
}

void adaptra_claim_quiet(score *s, FILE *to, const char *where,
                         const char *claimed, const char *run, double ratio,
                         score_class as, const char *why)
{
    const score_line l = {where,
                          claimed,
                          run,
                          {.value = ratio,
                           .low = 1,
                           .has_low = true,
                           .is_ratio = true,
                           .has_none = true,
                           .none = ratio},
                          .digits = 3,
                          .unit = "",
                          .as = as,
                          .why = why};

    score_print_line(s, &l, to);
}

void adaptra_claim_peak(score *s, FILE *to, const char *claimed,
                        const char *run, double ratio)
{
    const score_line l = {"figure 16",
                          claimed,
                          run,
                          {.value = ratio,
                           .low = 1,
                           .high = 1,
                           .has_low = true,
                           .has_high = true,
                           .is_ratio = true,
                           .is_word = true},
                          .digits = 3,
                          .unit = "",
                          .as = SCORE_INFORMATIVE,
                          .why = "\"up to\": the paper's largest is this one"};

    score_print_line(s, &l, to);
}

void adaptra_claim_causes(score *s, FILE *to, const char *run,
                          const adaptra_causes_60 *c, score_class as,
                          const char *why)
{
    double bubbles[2], blocking[2];

    for (int k = ADAPTRA_1F1B; k <= ADAPTRA_ZB; k++) {
        bubbles[k] = c->free_slow_ms[k] - c->free_quiet_ms[k];
        blocking[k] = c->slow_ms[k] - c->quiet_ms[k] - bubbles[k];
    }
    adaptra_claim_above(
        s, to, "figure 1", "14B, 60 ms: slowdown of ZB over that of 1F1B", run,
        c->slow_ms[ADAPTRA_ZB] / c->quiet_ms[ADAPTRA_ZB] /
            (c->slow_ms[ADAPTRA_1F1B] / c->quiet_ms[ADAPTRA_1F1B]),
        as == SCORE_VARIANT ? as : SCORE_FITTED, why);
    const score_line l = {
        "figure 1, section 7.2",
        "ZB: time added by blocking over time added by dependencies",
        run,
        {.value = blocking[ADAPTRA_ZB] / bubbles[ADAPTRA_ZB],
         .high = 1,
         .has_high = true,
         .is_ratio = true},
        .digits = 3,
        .unit = "",
        .as = as,
        .why = "the paper: dependencies 39 %, blocking 23 %"};

    score_print_line(s, &l, to);
    const score_line both = {
        "figure 1",
        "1F1B: time added by blocking, of the iteration without delay",
        run,
        {.value = 100 * blocking[ADAPTRA_1F1B] / c->quiet_ms[ADAPTRA_1F1B],
         .low = 0,
         .has_low = true},
        .digits = 1,
        .unit = " %",
        .as = as,
        .why = "both causes in both schedules; dependencies add more here"};

    score_print_line(s, &both, to);
}

void adaptra_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_orders(&s, to);
    adaptra_claim_delays(&s, to);
    adaptra_claim_placement(&s, to);
    adaptra_claim_gaps(&s, to);
    adaptra_claim_trace(&s, to, how->folder);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        score_print_missing(&s, &missing[i], to);
    score_print(&s, "rows", to);
}

void adaptra_job_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_jobs(&s, to, how->folder);
    score_print(&s, "rows", to);
}
