/* SPDX-License-Identifier: Apache-2.0 */
/* Computes Adaptra's figures 4, 5, 8 and 14 (schedules of 4 stages) and
 * simulates the compared systems. */
#include "adaptra.h"

#include <math.h>

const char *const adaptra_names[ADAPTRA_SYSTEMS] = {"1F1B", "ZB", "Adaptra-CPU",
                                                    "Adaptra"};

const paper_run adaptra_runs[ADAPTRA_SYSTEMS] = {
    {.method = "1f1b", .receives = LH_RECEIVES_LATE, .send_queue = 1},
    {.method = "zb-h2", .receives = LH_RECEIVES_LATE, .send_queue = 1},
    {.method = "zb-h2"},
    {.method = "slack"},
};

paper_pipeline adaptra_pipe(const adaptra_setting *s, unsigned links,
                            double delay_ms, double delays[ADAPTRA_MOST_STAGES])
{
    for (unsigned i = 0; i + 1 < s->stages; i++)
        delays[i] = links >> i & 1 ? delay_ms : 0;
    return (paper_pipeline){.placement = "ud",
                            .devices = s->stages,
                            .microbatches = s->microbatches,
                            .f_ms = s->t_ms,
                            .d_ms = s->t_ms,
                            .w_ms = s->t_ms,
                            .released_at_d = true,
                            .delays_ms = delays};
}

paper_result adaptra_result(const adaptra_setting *s, unsigned links,
                            double delay_ms, adaptra_system system)
{
    double delays[ADAPTRA_MOST_STAGES];
    paper_pipeline q = adaptra_pipe(s, links, delay_ms, delays);

    q.joint = system == ADAPTRA_1F1B;
    return paper_pipeline_run(&q, &adaptra_runs[system]);
}

double adaptra_ms(const adaptra_setting *s, unsigned links, double delay_ms,
                  adaptra_system system)
{
    return adaptra_result(s, links, delay_ms, system).ms;
}

/* --- figures 4 and 5 ---------------------------------------------------- */

static const adaptra_setting small = {4, 12, 10};
static const double delays_ms[] = {0, 10, 20};
enum { N_DELAYS = 3, FIRST_LINK = 1 };

/* Algorithm 1 with memory for 7 activations. */
static const uint32_t initial[] = {7, 5, 3, 1};

/* A printed schedule: its setting and method. */
typedef struct order {
    const char *title;
    paper_run how;
    bool replayed; /* schedule built without the delay */
    const char *paper, *sure;
} order;

/* Prints the activations that each stage keeps at most. */
static void print_activations(FILE *to, const paper_result *r)
{
    fprintf(to, " %d, %d, %d, %d |", (int)r->peak[0], (int)r->peak[1],
            (int)r->peak[2], (int)r->peak[3]);
}

static void print_order(FILE *to, const order *o)
{
    double none[ADAPTRA_MOST_STAGES], delays[ADAPTRA_MOST_STAGES];
    paper_pipeline quiet = adaptra_pipe(&small, 0, 0, none);
    paper_result r[N_DELAYS];

    fprintf(to, "| %s |", o->title);
    for (int i = 0; i < N_DELAYS; i++) {
        paper_pipeline q =
            adaptra_pipe(&small, FIRST_LINK, delays_ms[i], delays);

        r[i] = paper_pipeline_replay(o->replayed ? &quiet : &q, &q, &o->how);
        fprintf(to, " %g |", r[i].ms);
    }
    print_activations(to, &r[0]);
    print_activations(to, &r[N_DELAYS - 1]);
    fprintf(to, " %s | %s |\n", o->paper, o->sure);
}

static void print_fastest(FILE *to)
{
    double delays[ADAPTRA_MOST_STAGES];
    bool proven = true;

    fputs("| the fastest there is |", to);
    for (int i = 0; i < N_DELAYS; i++) {
        paper_pipeline q =
            adaptra_pipe(&small, FIRST_LINK, delays_ms[i], delays);
        paper_best best = paper_pipeline_solve(&q, 20000000);

        fprintf(to, " %g |", best.ms);
        proven &= best.proven;
    }
    fprintf(to, " | | | %s |\n", proven ? "proven" : "not proven");
}

void adaptra_orders(FILE *to, const page_options *how)
{
    static const order orders[] = {
        {"algorithms 1, 3 and 4 without delay, replayed",
         {.method = "slack", .warmup = initial},
         true,
         "390, 400, 440",
         "exact; chosen for the 440"},
        {"the same, made anew for each delay",
         {.method = "slack", .warmup = initial},
         false,
         "",
         "exact"},
        {"algorithms 2, 3 and 4 (`slack`)",
         {.method = "slack"},
         false,
         "",
         "exact"},
        {"`steady-slack` with algorithm 1's warm-ups",
         {.method = "steady-slack", .warmup = initial},
         true,
         "",
         "exact"},
        {"`zb-h2`", {.method = "zb-h2"}, false, "", "exact"},
        {"`zb-h1`", {.method = "zb-h1"}, false, "", "exact"},
    };
    double none[ADAPTRA_MOST_STAGES], delays[ADAPTRA_MOST_STAGES];
    paper_pipeline quiet = adaptra_pipe(&small, 0, 0, none);
    paper_pipeline slow = adaptra_pipe(&small, FIRST_LINK, 20, delays);

    (void)how; /* --quick has no effect: this part is fast */
    fputs("| order | c = 0 | 10 ms | 20 ms | activations, c = 0 | 20 ms | "
          "paper | how sure |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        print_order(to, &orders[i]);
    print_fastest(to);
    fprintf(
        to,
        "\nWith a delay of 20 ms, stage 0's first backward pass begins at %g "
        "ms\nin the order of Adaptra; the paper has 110 ms.\n",
        paper_pipeline_replay(&quiet, &slow, &orders[0].how).first_backward_ms);
}

/* --- figure 8 ----------------------------------------------------------- */

static const adaptra_setting longer = {4, 30, 10};
enum { LAST_OF_4 = 1 << 2, LEAST_SLACKNESS = 2, MOST_SLACKNESS = 4 };

/* Returns the makespan of a schedule built without delay and run with a delay
 * on the last link. */
static double slackness_ms(unsigned slackness, const char *method,
                           double delay_ms)
{
    double none[ADAPTRA_MOST_STAGES], delays[ADAPTRA_MOST_STAGES];
    uint32_t warmup[4];
    paper_pipeline quiet = adaptra_pipe(&longer, 0, 0, none);
    paper_pipeline slow = adaptra_pipe(&longer, LAST_OF_4, delay_ms, delays);
    paper_run how = {.method = method, .warmup = warmup};

    for (unsigned i = 0; i < 4; i++)
        warmup[i] = 1 + (3 - i) * slackness;
    return paper_pipeline_replay(&quiet, &slow, &how).ms;
}

void adaptra_slackness(FILE *to, const page_options *how)
{
    (void)how; /* --quick has no effect: this part is fast */
    fputs("| delay, ms |", to);
    for (unsigned k = LEAST_SLACKNESS; k <= MOST_SLACKNESS; k++)
        fprintf(to, " slackness %u, absorbs %u ms | algorithm 3 |", k,
                (k - 1) * 10);
    fputs("\n| --- | --- | --- | --- | --- | --- | --- |\n", to);
    for (int ms = 0; ms <= 60; ms += 10) {
        fprintf(to, "| %d |", ms);
        for (unsigned k = LEAST_SLACKNESS; k <= MOST_SLACKNESS; k++)
            fprintf(to, " %g | %g |", slackness_ms(k, "steady-slack", ms),
                    slackness_ms(k, "slack", ms));
        fputc('\n', to);
    }
}

/* --- figure 14 ---------------------------------------------------------- */

/* Busy time per device: 42.6 % of 703 ms, 51.2 % of 579, 74.7 % of 398: about
 * 298 ms each, which equals 3 n t. */
static const adaptra_setting examples[] = {{4, 8, 12.4}, {4, 4, 24.8}};

void adaptra_example(FILE *to, const page_options *how)
{
    static const char *const papers[ADAPTRA_SYSTEMS] = {
        "", "703 ms, 57.4 %", "579 ms, 48.8 %", "398 ms, 25.3 %"};

    (void)how; /* --quick has no effect: this part is fast */
    fputs("| system |", to);
    for (int i = 0; i < 2; i++)
        fprintf(to, " n = %u, t = %g: quiet | 30 ms, bubbles |",
                examples[i].microbatches, examples[i].t_ms);
    fputs(" paper (quiet 703 / 1.9) |\n| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int k = 0; k < ADAPTRA_SYSTEMS; k++) {
        adaptra_system system = (adaptra_system)k;

        fprintf(to, "| %s |", adaptra_names[k]);
        for (int i = 0; i < 2; i++) {
            paper_result r =
                adaptra_result(&examples[i], LAST_OF_4, 30, system);

            fprintf(to, " %.1f | %.1f, %.1f %% |",
                    adaptra_ms(&examples[i], 0, 0, system), r.ms,
                    100 * r.bubbles);
        }
        fprintf(to, " %s |\n", papers[k]);
    }
}

/* --- claims ------------------------------------------------------------- */

/* Adds figure 5. The paper names no order but ZeroBubble: zb-h2 is ZB elsewhere
 * on the page, the other order was chosen because it takes 440 ms. */
static void claim_orders(score *s, FILE *to)
{
    static const double papers_ms[N_DELAYS] = {390, 400, 440};
    double none[ADAPTRA_MOST_STAGES], delays[ADAPTRA_MOST_STAGES];
    paper_pipeline quiet = adaptra_pipe(&small, 0, 0, none);
    const paper_run how = {.method = "slack", .warmup = initial};
    const paper_run zb = {.method = "zb-h2"};
    score_line l = {.where = "figure 5",
                    .run = "algorithms 1, 3 and 4",
                    .unit = " ms",
                    .as = SCORE_FITTED,
                    .why = "the order was chosen for the 440 ms: the caption "
                           "has \"ZeroBubble\"; warm-ups 7, 5, 3, 1 from \"B1 "
                           "and subsequent F8\""};
    char claimed[64];
    double quiet_ms = 0;

    l.claimed = claimed;
    for (int i = 0; i < N_DELAYS; i++) {
        paper_pipeline q =
            adaptra_pipe(&small, FIRST_LINK, delays_ms[i], delays);
        paper_result r = paper_pipeline_replay(&quiet, &q, &how);

        snprintf(claimed, sizeof claimed, "iteration, delay %g ms",
                 delays_ms[i]);
        if (i == 0)
            quiet_ms = r.ms;
        l.row = score_effect(r.ms, papers_ms[i], quiet_ms);
        score_print_line(s, &l, to);
        if (i + 1 < N_DELAYS)
            continue;
        const double added = paper_pipeline_replay(&quiet, &q, &zb).ms -
                             paper_pipeline_replay(&quiet, &quiet, &zb).ms;

        score_print_line(s,
                         &(score_line){.where = "figure 5",
                                       .claimed = "time added by 20 ms",
                                       .run = "`zb-h2`",
                                       .row = score_number(added, 50),
                                       .unit = " ms",
                                       .as = SCORE_INFORMATIVE,
                                       .why = "ZB in all other rows; all "
                                              "inputs are published"},
                         to);
        snprintf(claimed, sizeof claimed, "first backward of stage 0, 20 ms");
        l.row = score_number(r.first_backward_ms, 110);
        l.as = SCORE_GIVEN;
        l.why = "one microbatch: four F, three B and two delays";
        score_print_line(s, &l, to);
    }
}

/* Returns the time that a delay adds to a schedule built without delay. */
static double added_ms(unsigned slackness, const char *method, double delay_ms)
{
    return slackness_ms(slackness, method, delay_ms) -
           slackness_ms(slackness, method, 0);
}

/* Adds theorem 1 for one method: up to (slackness - 1) t a delay adds about
 * itself; beyond it the added time is in proportion to N / (slackness + 1). */
static void claim_slackness(score *s, FILE *to, const char *method,
                            const char *run, score_class as, const char *why)
{
    enum { FAR_MS = 60 };
    double within = 0, sharper = INFINITY, least = INFINITY, most = 0;

    for (unsigned k = LEAST_SLACKNESS; k <= MOST_SLACKNESS; k++) {
        const double t = longer.t_ms, limit = (k - 1) * t;
        const double at_limit = added_ms(k, method, limit);
        const double before = at_limit - added_ms(k, method, limit - t);
        const double after = added_ms(k, method, limit + t) - at_limit;
        const double slope =
            (added_ms(k, method, FAR_MS) - at_limit) / (FAR_MS - limit);

        within = fmax(within, at_limit / limit);
        sharper = fmin(sharper, after / before);
        least = fmin(least, slope * (k + 1));
        most = fmax(most, slope * (k + 1));
    }
    const score_line limit = {
        "figure 8",
        "theorem 1: time added by a delay of (slackness - 1) t, over the "
        "delay, largest of three",
        run,
        {.value = within,
         .low = 0,
         .high = 1,
         .has_low = true,
         .has_high = true,
         .is_ratio = true,
         .is_word = true},
        .digits = 3,
        .unit = "",
        .as = as,
        .why = why};
    const score_line in_proportion = {
        "figure 8",
        "theorem 1: time added per ms beyond it times (slackness + 1), largest "
        "of three over least",
        run,
        score_ratio(most / least, 1),
        .digits = 2,
        .unit = "",
        .as = as,
        .why = "of the order of N / (slackness + 1)"};

    score_print_line(s, &limit, to);
    adaptra_claim_above(s, to, "figure 8",
                        "time added by t more than the threshold over that by "
                        "the last t below it, least of three",
                        run, sharper, as, "\"sharply increases\"");
    score_print_line(s, &in_proportion, to);
}

/* Adds "the accumulated delay is simply the summation" of several links. */
static void claim_sum(score *s, FILE *to)
{
    enum { SLOW_MS = 20 };
    double none[ADAPTRA_MOST_STAGES], delays[ADAPTRA_MOST_STAGES];
    const paper_run how = {.method = "slack", .warmup = initial};
    paper_pipeline quiet = adaptra_pipe(&longer, 0, 0, none);
    double added[4] = {0}; /* by set of slow links: the first, the last */

    for (unsigned set = 0; set < 4; set++) {
        const unsigned links =
            (set & 1 ? FIRST_LINK : 0) | (set & 2 ? LAST_OF_4 : 0);
        paper_pipeline q = adaptra_pipe(&longer, links, SLOW_MS, delays);

        added[set] = paper_pipeline_replay(&quiet, &q, &how).ms;
    }
    const score_line l = {
        "section 4.1",
        "time added by slow first and last links of 20 ms, over the sum",
        "algorithms 1, 3 and 4",
        score_ratio(
            (added[3] - added[0]) / (added[1] + added[2] - 2 * added[0]), 1),
        .digits = 2,
        .unit = "",
        .as = SCORE_INFORMATIVE,
        .why = "30 microbatches, slackness 2"};

    score_print_line(s, &l, to);
}

static void claim_example(score *s, FILE *to)
{
    static const char guess[] =
        "n, t from the busy time of 298 ms; n = 8 is nearest to ZB's time";
    const adaptra_setting *n8 = &examples[0], *n4 = &examples[1];
    const struct {
        const char *claimed;
        const adaptra_setting *of;
        double delay_ms, paper_ms;
        adaptra_system system;
        score_class as;
        const char *why;
    } lines[] = {
        {"ZB, n = 8, quiet", n8, 0, 370, ADAPTRA_ZB, SCORE_FITTED,
         "703 ms are \"1.9x longer than the normal execution\"; n, t were "
         "chosen for ZB's times at 30 ms"},
        {"ZB, n = 8, 30 ms", n8, 30, 703, ADAPTRA_ZB, SCORE_FITTED, guess},
        {"Adaptra-CPU, n = 8, 30 ms", n8, 30, 579, ADAPTRA_CPU,
         SCORE_INFORMATIVE, "the cause is unknown: see figure 14 below"},
        {"Adaptra, n = 8, 30 ms", n8, 30, 398, ADAPTRA_FULL, SCORE_INFORMATIVE,
         "as above"},
        {"ZB, n = 4, quiet", n4, 0, 370, ADAPTRA_ZB, SCORE_VARIANT,
         "the other n that the busy time allows"},
        {"ZB, n = 4, 30 ms", n4, 30, 703, ADAPTRA_ZB, SCORE_VARIANT,
         "as above"},
        {"Adaptra-CPU, n = 4, 30 ms", n4, 30, 579, ADAPTRA_CPU, SCORE_VARIANT,
         "as above"},
        {"Adaptra, n = 4, 30 ms", n4, 30, 398, ADAPTRA_FULL, SCORE_VARIANT,
         "as above"},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        double ms =
            adaptra_ms(lines[i].of, lines[i].delay_ms > 0 ? LAST_OF_4 : 0,
                       lines[i].delay_ms, lines[i].system);
        score_line l = {"figure 14",       lines[i].claimed,
                        "equal stages",    score_number(ms, lines[i].paper_ms),
                        .digits = 1,       .unit = " ms",
                        .as = lines[i].as, .why = lines[i].why};

        score_print_line(s, &l, to);
    }
}

/* Prints figure 14's bubbles and the quotients of its times. */
static void claim_bubbles(score *s, FILE *to)
{
    static const double percent[ADAPTRA_SYSTEMS] = {0, 57.4, 48.8, 25.3};
    const adaptra_setting *n8 = &examples[0];
    double ms[ADAPTRA_SYSTEMS];
    char claimed[64];
    score_line l = {.where = "figure 14", .run = "equal stages", .digits = 1};

    l.claimed = claimed;
    for (int k = ADAPTRA_ZB; k < ADAPTRA_SYSTEMS; k++) {
        paper_result r = adaptra_result(n8, LAST_OF_4, 30, (adaptra_system)k);

        ms[k] = r.ms;
        snprintf(claimed, sizeof claimed, "%s, n = 8, 30 ms: bubble rate",
                 adaptra_names[k]);
        l.row = score_number(100 * r.bubbles, percent[k]);
        l.unit = " %";
        l.as = k == ADAPTRA_ZB ? SCORE_FITTED : SCORE_VARIANT;
        l.why = "1 - 298 ms / iteration: from the busy time and the iteration "
                "above";
        score_print_line(s, &l, to);
    }
    snprintf(claimed, sizeof claimed, "ZB over Adaptra, n = 8, 30 ms");
    l.row = score_ratio(ms[ADAPTRA_ZB] / ms[ADAPTRA_FULL], 1.76);
    l.unit = "";
    l.digits = 2;
    l.as = SCORE_VARIANT;
    l.why = "from the rows above";
    score_print_line(s, &l, to);
    snprintf(claimed, sizeof claimed,
             "Adaptra, n = 8, 30 ms, longer than ZB quiet");
    l.row =
        score_number(ms[ADAPTRA_FULL] - adaptra_ms(n8, 0, 0, ADAPTRA_ZB), 30);
    l.unit = " ms";
    l.digits = 1;
    l.why = "as above; Adaptra without delay is faster than ZB";
    score_print_line(s, &l, to);
}

void adaptra_claim_orders(score *s, FILE *to)
{
    claim_orders(s, to);
    claim_slackness(s, to, "slack", "algorithms 1, 3 and 4", SCORE_INFORMATIVE,
                    "the paper's algorithm does not keep its slackness");
    claim_slackness(s, to, "steady-slack", "`steady-slack`", SCORE_VARIANT,
                    "keeps its slackness, which the theorem's proof assumes");
    claim_sum(s, to);
    adaptra_claim_unequal(s, to);
    claim_example(s, to);
    claim_bubbles(s, to);
}
