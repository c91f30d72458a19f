/* SPDX-License-Identifier: Apache-2.0 */
/* Computes CrossPipe's tables 5 and 6: M70 on 8 stages. */
#include "crosspipe.h"
#include "paper_pipeline.h"
#include "paper_score.h"

#include <longhaul/experimental/pipeline.h>

#include <math.h>
#include <string.h>

static const double delays[5][2] = {
    {0, 0}, {.25, .25}, {.25, 2}, {2, .25}, {2, 2}};

enum { N_STATICS = 3, UDSUB = N_STATICS, UD, WAVE, N_COLUMNS };

/* Published seconds per microbatch, [delay][case][column]; columns 1F1B, ZB-H1,
 * ZB-V, CrossUDSub, CrossUD, CrossWave; 0: not published. */
static const double table5[5][3][N_COLUMNS] = {
    {{.151, .133, .118, .137, .137, .119},
     {.174, .168, .161, 0, .165, .157},
     {0, 0, 0, .121, .118, .108}},
    {{.168, .150, .148, .149, .142, .127},
     {.193, .187, .177, 0, .170, .159},
     {0, 0, 0, .123, .123, .112}},
    {{.241, .230, .315, .181, .177, .250},
     {.262, .259, .330, 0, .185, .274},
     {0, 0, 0, .144, .150, .235}},
    {{.242, .229, .314, .160, .153, .148},
     {.262, .258, .329, 0, .173, .163},
     {0, 0, 0, .127, .124, .115}},
    {{.321, .309, .473, .198, .196, .256},
     {.333, .331, .476, 0, .196, .291},
     {0, 0, 0, .145, .147, .245}},
};
static const double table6[5][3][N_COLUMNS] = {
    {{.149, .133, .119, .138, .138, .122},
     {.173, .168, .160, 0, .167, .157},
     {0, 0, 0, .123, .119, .115}},
    {{.177, .158, .161, .155, .148, .141},
     {.198, .190, .181, 0, .173, .163},
     {0, 0, 0, .126, .123, .115}},
    {{.269, .249, .339, .216, .217, .286},
     {.274, .269, .331, 0, .198, .290},
     {0, 0, 0, .158, .162, .262}},
    {{.268, .248, .337, .200, .197, .214},
     {.274, .269, .330, 0, .184, .177},
     {0, 0, 0, .138, .138, .139}},
    {{.359, .338, .512, .268, .271, .339},
     {.349, .346, .479, 0, .213, .295},
     {0, 0, 0, .178, .178, .264}},
};

static double published(unsigned datacenters, int delay, int which, int k)
{
    return (datacenters == 4 ? table6 : table5)[delay][which][k];
}

/* A table column: placement and method. */
typedef struct column {
    const char *title, *placement;
    paper_run how;
} column;

/* The columns without a solver. */
static const column columns[UD] = {
    {"1F1B, late", "ud", {.method = "1f1b", .receives = LH_RECEIVES_LATE}},
    {"ZB-H1, late", "ud", {.method = "zb-h1", .receives = LH_RECEIVES_LATE}},
    {"ZB-V, late-fd",
     "wave",
     {.method = "zb-v", .receives = LH_RECEIVES_LATE_FD}},
    {"UDSub (greedy, 8)", "ud", {.method = "greedy", .sub_blocks = 8}},
};

/* Builds a table cell. The durations were fitted to the six zero-delay static
 * cells. */
static paper_pipeline case_setting(int which, int delay, unsigned datacenters,
                                   const char *placement)
{
    paper_pipeline q = {.placement = placement,
                        .devices = 8,
                        .microbatches = which == 0 ? 16 : 32,
                        .f_ms = 38,
                        .d_ms = which == 1 ? 38 + 48 : 48, /* recomputation */
                        .w_ms = 20,
                        .datacenters = datacenters,
                        .latency_ms = 38 * delays[delay][0],
                        .transfer_ms = 38 * delays[delay][1],
                        .memory = which == 2 ? 16 : 8};
    return q;
}

/* A column's error sums. */
typedef struct sums {
    double square, worst;
    int n;
} sums;

static void add_error(sums *sum, double error)
{
    sum->square += error * error;
    sum->n++;
    if (fabs(error) > fabs(sum->worst))
        sum->worst = error;
}

static double rms_percent(const sums *sum)
{
    return 100 * sqrt(sum->square / sum->n);
}

static void print_cell(FILE *to, double predicted, double paper, sums *sum)
{
    double error = predicted / paper - 1;

    add_error(sum, error);
    fprintf(to, " %.3f / %.3f (%+.1f %%) |", predicted, paper, 100 * error);
}

/* Returns the predicted seconds per microbatch of a column without a solver. */
static double predict(int which, int delay, unsigned datacenters, int k,
                      const paper_run *how)
{
    paper_pipeline q =
        case_setting(which, delay, datacenters, columns[k].placement);

    return paper_pipeline_makespan_ms(&q, how) / 1e3 / q.microbatches;
}

static void print_row(FILE *to, int which, int delay, unsigned datacenters,
                      sums total[UD], score *s)
{
    fprintf(to, "| %g, %g | %d |", delays[delay][0], delays[delay][1],
            which + 1);
    for (int k = 0; k < UD; k++) {
        double paper = published(datacenters, delay, which, k);

        if (paper == 0) {
            fputs(" |", to);
            continue;
        }
        const paper_run *how = &columns[k].how;
        double seconds = predict(which, delay, datacenters, k, how);
        score_row r = score_effect(seconds, paper,
                                   predict(which, 0, datacenters, k, how));

        print_cell(to, seconds, paper, &total[k]);
        /* F, D and W are fitted to the static cells without delay, and the
         * receive mode of a static column to all of its cells. */
        score_add(s, &r, k < N_STATICS ? SCORE_FITTED : SCORE_INFORMATIVE);
    }
    fputc('\n', to);
}

static void print_table(FILE *to, const char *title, unsigned datacenters,
                        sums total[UD], score *s)
{
    fprintf(to,
            "### %s: M70 over %u datacenters\n\n"
            "Seconds per microbatch, predicted / published.\n\n"
            "| latency, transfer | case |",
            title, datacenters);
    for (int k = 0; k < UD; k++)
        fprintf(to, " %s |", columns[k].title);
    fputs("\n| --- | --- | --- | --- | --- | --- |\n", to);
    for (int delay = 0; delay < 5; delay++)
        for (int which = 0; which < 3; which++)
            print_row(to, which, delay, datacenters, total, s);
    fputc('\n', to);
}

/* Returns a static column's rms error, in percent; negative: deadlock. */
static double static_rms(int k, const paper_run *how)
{
    sums sum = {0};

    for (int i = 0; i < 20; i++) {
        unsigned datacenters = i < 10 ? 2 : 4;
        int delay = i % 10 / 2, which = i % 2;

        double seconds = predict(which, delay, datacenters, k, how);

        if (seconds < 0)
            return -1;
        add_error(&sum, seconds / published(datacenters, delay, which, k) - 1);
    }
    return rms_percent(&sum);
}

/* Prints each static column's rms error for every time at which receives
 * may be posted; the column's mode was chosen from them. */
static void print_modes(FILE *to)
{
    static const lh_receives modes[] = {LH_RECEIVES_EARLY, LH_RECEIVES_LATE_FD,
                                        LH_RECEIVES_LATE};

    fputs("\n| receives, rms error | early | late-fd | late | chosen | "
          "early, one send at a time | chosen, one send at a time |\n"
          "| --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int k = 0; k < N_STATICS; k++) {
        paper_run how = columns[k].how;

        fprintf(to, "| %.*s |", (int)strcspn(columns[k].title, ","),
                columns[k].title);
        for (int m = 0; m < 3; m++) {
            how.receives = modes[m];
            fprintf(to, " %.1f %% |", static_rms(k, &how));
        }
        const lh_receives single[] = {LH_RECEIVES_EARLY,
                                      columns[k].how.receives};

        fprintf(to, " %s |", lh_receives_name(columns[k].how.receives));
        how.send_queue = 1;
        how.until_sent = true;
        for (int m = 0; m < 2; m++) {
            how.receives = single[m];
            const double rms = static_rms(k, &how);

            if (rms < 0)
                fputs(" deadlock |", to);
            else
                fprintf(to, " %.1f %% |", rms);
        }
        fputc('\n', to);
    }
}

void crosspipe_tables(FILE *to, const page_options *how)
{
    sums total[UD] = {{0}};
    score s = {.numbers = {0}};

    (void)how; /* --quick has no effect: this part is fast */
    print_table(to, "Table 5", 2, total, &s);
    print_table(to, "Table 6", 4, total, &s);
    fputs("| column | cells | rms error | worst |\n"
          "| --- | --- | --- | --- |\n",
          to);
    for (int k = 0; k < UD; k++)
        fprintf(to, "| %s | %d | %.1f %% | %+.1f %% |\n", columns[k].title,
                total[k].n, rms_percent(&total[k]), 100 * total[k].worst);
    print_modes(to);
    score_print(&s, "cells", to);
}

/* --- transfers of 2 F ---------------------------------------------------- */

/* The first two have columns; the others were tried, too. */
enum { FREE, BLOCKED, N_SHOWN, N_SENDS = 4, SOLVER_EFFORT = 1500000 };

/* Sends that never block, and sends of which a device has one at a time, until
 * its transfer ends; two at a time; one at a time, until it arrives. */
static const paper_run sends[N_SENDS] = {
    {.method = "greedy", .sub_blocks = 8},
    {.method = "greedy", .sub_blocks = 8, .send_queue = 1, .until_sent = true},
    {.method = "greedy", .sub_blocks = 8, .send_queue = 2, .until_sent = true},
    {.method = "greedy", .sub_blocks = 8, .send_queue = 1}};
static const char *const send_names[N_SENDS] = {
    "never block", "one at a time", "two at a time",
    "one at a time, until it arrives"};

static const char *const dynamics[] = {"CrossUDSub", "CrossUD", "CrossWave"};

/* Simulates one dynamic schedule with both kinds of sends. */
static void run_sends(const paper_pipeline *q, int schedule,
                      paper_result out[N_SENDS])
{
    if (schedule != UDSUB) {
        paper_pipeline_solve_and_run(q, SOLVER_EFFORT, sends, N_SENDS, out);
        return;
    }
    for (int k = 0; k < N_SENDS; k++)
        out[k] = paper_pipeline_run(q, &sends[k]);
}

/* A schedule's error sums, at transfers of 2 F and at the others, and its
 * seconds per microbatch without delay by case, as last computed. */
typedef struct send_errors {
    sums long_transfer[N_SENDS], other[N_SENDS];
    double quiet[3][N_SENDS];
} send_errors;

static void print_sends(FILE *to, unsigned datacenters, int delay, int which,
                        int schedule, send_errors *errors, score *s)
{
    paper_pipeline q = case_setting(which, delay, datacenters,
                                    schedule == WAVE ? "wave" : "ud");
    double paper = published(datacenters, delay, which, schedule);
    bool is_long = delays[delay][1] == 2;
    paper_result r[N_SENDS];

    run_sends(&q, schedule, r);
    fprintf(to, "| %u | %g, %g | %d | %s | %.3f |", datacenters,
            delays[delay][0], delays[delay][1], which + 1,
            dynamics[schedule - UDSUB], paper);
    for (int k = 0; k < N_SENDS; k++) {
        double seconds = r[k].ms / 1e3 / q.microbatches;

        if (delay == 0)
            errors->quiet[which][k] = seconds;

        score_row row = score_effect(seconds, paper, errors->quiet[which][k]);

        add_error(is_long ? &errors->long_transfer[k] : &errors->other[k],
                  score_error(&row));
        if (k >= N_SHOWN)
            continue;
        fprintf(to, " %.4f (%+.1f %%) |", seconds, 100 * score_error(&row));
        /* Blocking was chosen for the cells with transfers of 2 F. */
        if (k == FREE && schedule == UDSUB)
            continue; /* counted in tables 5 and 6 */
        if (k != FREE && !is_long)
            continue; /* equals the cell with sends that never block */
        score_add(s, &row, k == FREE ? SCORE_INFORMATIVE : SCORE_FITTED);
    }
    fputc('\n', to);
}

static void print_send_errors(FILE *to, const send_errors errors[3])
{
    fputs(
        "\n| sends, rms error | 2 F: CrossUDSub | CrossUD | CrossWave | all | "
        "other delays: CrossUDSub | CrossUD | CrossWave |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
        to);
    for (int k = 0; k < N_SENDS; k++) {
        sums all = {0};

        fprintf(to, "| %s |", send_names[k]);
        for (int i = 0; i < 3; i++) {
            const sums *sum = &errors[i].long_transfer[k];

            fprintf(to, " %.1f %% |", rms_percent(sum));
            all.square += sum->square;
            all.n += sum->n;
        }
        fprintf(to, " %.1f %% |", rms_percent(&all));
        for (int i = 0; i < 3; i++)
            fprintf(to, " %.1f %% |", rms_percent(&errors[i].other[k]));
        fputc('\n', to);
    }
}

void crosspipe_sends(FILE *to, const page_options *how)
{
    send_errors errors[3] = {0};
    score s = {.numbers = {0}};

    fputs("| datacenters | latency, transfer | case | schedule | measured | "
          "sends never block | one at a time |\n"
          "| --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (unsigned datacenters = 2; datacenters <= 4; datacenters += 2)
        for (int delay = 0; delay < 5; delay++)
            for (int which = 0; which < 3; which += 2)
                for (int k = UDSUB; k <= (how->quick ? UD : WAVE); k++)
                    print_sends(to, datacenters, delay, which, k,
                                &errors[k - UDSUB], &s);
    if (how->quick)
        return;
    print_send_errors(to, errors);
    score_print(&s, "cells", to);
}

/* --- claims of sections 7.2 and 7.3 --------------------------------------- */

/* Returns a solved schedule's seconds per microbatch, with sends that never
 * block or one at a time. */
static double solved_seconds(int which, int delay, unsigned datacenters,
                             int schedule, int sent)
{
    paper_pipeline q = case_setting(which, delay, datacenters,
                                    schedule == WAVE ? "wave" : "ud");
    paper_result r[N_SENDS];

    run_sends(&q, schedule, r);
    return r[sent].ms / 1e3 / q.microbatches;
}

void crosspipe_claim_cases(score *s, FILE *to)
{
    enum { CASE_1 = 0, CASE_3 = 2, LATENCY_2F = 3, BOTH_2F = 4 };

    for (int sent = FREE; sent <= BLOCKED; sent++) {
        const score_class as = sent == FREE ? SCORE_VARIANT : SCORE_FITTED;
        double small = solved_seconds(CASE_1, BOTH_2F, 2, UD, sent);
        double large = solved_seconds(CASE_3, BOTH_2F, 2, UD, sent);
        double four = solved_seconds(CASE_3, BOTH_2F, 4, UD, sent);
        char why[256] = "one send at a time, which was chosen for cells with "
                        "transfers of 2 F";

        if (sent == FREE)
            snprintf(why, sizeof why,
                     "\"up to\"; CrossUDSub's published cells give 1.37; sends "
                     "that never block; both cells are counted below, with "
                     "errors of %+.1f and %+.1f %%, which cancel",
                     100 * (small / published(2, BOTH_2F, CASE_1, UD) - 1),
                     100 * (large / published(2, BOTH_2F, CASE_3, UD) - 1));
        const score_line lines[] = {
            {"section 7.2", "CrossUD, 2 F and 2 F: case 1 over case 3",
             "M70, solved", score_ratio(small / large, 1.33), .digits = 2,
             .unit = "", .as = as, .why = why},
            {"section 7.3", "CrossUD, the same, case 3: four datacenters more",
             "M70, solved", score_number(100 * (four / large - 1), 22.8),
             .digits = 1, .unit = " %", .as = as,
             .why = sent == FREE ? "from counted cells, as above; the paper "
                                   "divides 0.178 by CrossUDSub's 0.145; with "
                                   "CrossUD's 0.147 it is 21.1 %"
                                 : "as above"},
        };

        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            score_print_line(s, &lines[i], to);
    }
    const double wave = solved_seconds(CASE_3, LATENCY_2F, 2, WAVE, FREE);
    const score_line l = {
        "section 7.2",
        "CrossWave, latency 2 F, case 3, over ZB-V, no delay",
        "M70, solved",
        score_ratio(wave / predict(CASE_1, 0, 2, 2, &columns[2].how),
                    table5[LATENCY_2F][CASE_3][WAVE] / table5[0][CASE_1][2]),
        .digits = 3,
        .unit = "",
        .as = SCORE_VARIANT,
        .why = "0.115 and 0.118 s per microbatch, both counted below; ZB-V's "
               "cell is fitted"};
    score_print_line(s, &l, to);
}

/* CLOSEST: the memory with the smallest error without blocking. */
enum { RECOMPUTED = 1, N_MEMORIES = 4, CLOSEST = 12 };

/* --- directions of sections 7.2 and 7.3 ----------------------------------- */

enum { N_DELAYS = 5, N_CASES = 3 };

/* Seconds per microbatch: solved schedules with sends that never block, in 2
 * and 4 datacenters; NAN: not solved. */
typedef struct solved_cells {
    double ud[2][N_CASES][N_DELAYS], wave[2][N_CASES][N_DELAYS];
    double more_memory[N_DELAYS]; /* CrossUD, 4 datacenters, case 2, CLOSEST */
} solved_cells;

static solved_cells solve_cells(void)
{
    solved_cells c;

    for (int d = 0; d < 2; d++)
        for (int which = 0; which < N_CASES; which++)
            for (int delay = 0; delay < N_DELAYS; delay++) {
                bool needed =
                    which != 2 || (d == 0 && (delay == 2 || delay == 3));
                unsigned datacenters = d ? 4 : 2;

                c.ud[d][which][delay] =
                    needed ? solved_seconds(which, delay, datacenters, UD, FREE)
                           : NAN;
                c.wave[d][which][delay] =
                    needed
                        ? solved_seconds(which, delay, datacenters, WAVE, FREE)
                        : NAN;
            }
    for (int delay = 0; delay < N_DELAYS; delay++) {
        paper_pipeline q = case_setting(RECOMPUTED, delay, 4, "ud");
        paper_result r[N_SENDS];

        q.memory = CLOSEST;
        run_sends(&q, UD, r);
        c.more_memory[delay] = r[FREE].ms / 1e3 / q.microbatches;
    }
    return c;
}

/* Returns the k-th smallest ratio over the delays, counted from 0. */
static double ranked_ratio(const double *a, const double *b, int k)
{
    double r[N_DELAYS];

    for (int i = 0; i < N_DELAYS; i++) {
        int at = i;

        for (; at > 0 && r[at - 1] > a[i] / b[i]; at--)
            r[at] = r[at - 1];
        r[at] = a[i] / b[i];
    }
    return r[k];
}

/* Returns the smallest time at a transfer of 2 F over the time at a latency of
 * 2 F: both placements, cases 1 and 3, 2 datacenters. */
static double transfer_over_latency(const solved_cells *c)
{
    double least = INFINITY;

    for (int which = 0; which < N_CASES; which += 2) {
        least = fmin(least, c->ud[0][which][2] / c->ud[0][which][3]);
        least = fmin(least, c->wave[0][which][2] / c->wave[0][which][3]);
    }
    return least;
}

/* Returns CrossUDSub's time in case 1, 2 datacenters, with memory for 16
 * activations over that with 8: the largest of the delays from `first` on. */
static double greedy_over_memory(int first, int last)
{
    double most = 0;

    for (int delay = first; delay <= last; delay++) {
        paper_pipeline q = case_setting(0, delay, 2, "ud");
        const double less = paper_pipeline_run(&q, &sends[FREE]).ms;

        q.memory = 2 * q.memory;
        most = fmax(most, paper_pipeline_run(&q, &sends[FREE]).ms / less);
    }
    return most;
}

/* Returns case 2's time over case 1's with 4 datacenters, by that with 2: the
 * largest of the delays but none. */
static double recomputation_over_two(double t[2][N_CASES][N_DELAYS])
{
    double most = 0;

    for (int i = 1; i < N_DELAYS; i++)
        most = fmax(most, t[1][1][i] / t[1][0][i] / (t[0][1][i] / t[0][0][i]));
    return most;
}

/* Returns the time of the faster of CrossUD and CrossWave over the fastest
 * static schedule's: case 1, 4 datacenters, no delay. */
static double dynamic_over_static(const solved_cells *c)
{
    double least = INFINITY;

    for (int k = 0; k < N_STATICS; k++)
        least = fmin(least, predict(0, 0, 4, k, &columns[k].how));
    return fmin(c->ud[1][0][0], c->wave[1][0][0]) / least;
}

/* Returns the smallest time of the fastest static schedule over CrossUD's: case
 * 1, 4 datacenters, the delays but none. */
static double static_over_dynamic(const solved_cells *c)
{
    double least = INFINITY;

    for (int delay = 1; delay < N_DELAYS; delay++)
        for (int k = 0; k < N_STATICS; k++)
            least = fmin(least, predict(0, delay, 4, k, &columns[k].how) /
                                    c->ud[1][0][delay]);
    return least;
}

void crosspipe_directions(FILE *to, const page_options *how)
{
    static const char solved[] = "M70, solved";
    static const score_row no_worse = {
        .high = 1.05, .has_high = true, .is_ratio = true};
    score s = {.numbers = {0}};

    if (how->quick)
        return;
    solved_cells c = solve_cells();
    const double zb_h1 = predict(0, 0, 2, 1, &columns[1].how);
    const double zb_v = predict(0, 0, 2, 2, &columns[2].how);
    const double wave = c.wave[0][1][0] / c.wave[0][0][0];
    const double placements = c.wave[1][0][0] / c.ud[1][0][0];
    const struct {
        const char *where, *claimed;
        double value, none; /* `none`: without delay; 0: nothing to compare */
        const score_row *row;
        score_class as;
        const char *why;
    } lines[] = {
        {"section 7.2", "case 1, no delay: CrossUD over ZB-H1",
         c.ud[0][0][0] / zb_h1, 0, &crosspipe_equal, SCORE_VARIANT,
         "\"comparable\"; both cells are counted below"},
        {"section 4.2.4", "case 1, no delay: CrossUDSub over ZB-H1",
         predict(0, 0, 2, UDSUB, &columns[UDSUB].how) / zb_h1, 0,
         &crosspipe_equal, SCORE_VARIANT,
         "\"equivalent\"; both cells are counted below"},
        {"section 4.2.4",
         "case 1: CrossUDSub, memory for 16 over 8 activations, largest of "
         "four delays",
         greedy_over_memory(1, N_DELAYS - 1), greedy_over_memory(0, 0),
         &crosspipe_below, SCORE_INFORMATIVE,
         "\"further improvements when memory constraints are relaxed\"; it is "
         "below 1 without delay, too"},
        {"section 7.2", "case 1, no delay: CrossWave over ZB-V",
         c.wave[0][0][0] / zb_v, 0, &crosspipe_equal, SCORE_VARIANT,
         "\"comparable\"; both cells are counted below"},
        {"section 7.2",
         "transfer 2 F over latency 2 F, CrossUD and CrossWave, cases 1 and "
         "3, least of four",
         transfer_over_latency(&c), 0, &crosspipe_above, SCORE_VARIANT,
         "with sends that never block CrossUD hides both alike; the cells are "
         "counted below"},
        {"section 7.2",
         "two datacenters: recomputation (case 2) over case 1, CrossUD, least "
         "of five",
         ranked_ratio(c.ud[0][1], c.ud[0][0], 0), c.ud[0][1][0] / c.ud[0][0][0],
         &crosspipe_above, SCORE_VARIANT,
         "the cells are counted below; it is above 1 without delay, too"},
        {"section 7.2", "the same, CrossWave, least of five",
         ranked_ratio(c.wave[0][1], c.wave[0][0], 0), wave, &crosspipe_above,
         SCORE_VARIANT,
         "\"generally\"; see the median; the cells are counted below"},
        {"section 7.2", "the same, CrossWave, median of five",
         ranked_ratio(c.wave[0][1], c.wave[0][0], 2), wave, &crosspipe_above,
         SCORE_VARIANT, "the reading \"in most settings\" of the row above"},
        {"section 7.3",
         "four datacenters, case 1, latency and transfer 0.25 F: CrossWave "
         "over CrossUD",
         c.wave[1][0][1] / c.ud[1][0][1], placements, &crosspipe_below,
         SCORE_VARIANT,
         "the cells are counted below; it is below 1 without delay, too"},
        {"section 7.3", "the same, 2 F and 2 F",
         c.wave[1][0][4] / c.ud[1][0][4], placements, &crosspipe_above,
         SCORE_VARIANT, "both cells are counted below"},
        {"section 7.3",
         "four datacenters, case 1, no delay: faster of CrossUD and CrossWave "
         "over the fastest static schedule",
         dynamic_over_static(&c), 0, &crosspipe_equal, SCORE_VARIANT,
         "\"competitive\"; the cells are counted below"},
        {"section 7.3",
         "four datacenters, case 1: fastest static schedule over CrossUD, "
         "least of four delays",
         static_over_dynamic(&c), 0, &crosspipe_above, SCORE_FITTED,
         "the receive modes of static schedules were chosen for their cells"},
        {"section 7.3",
         "four datacenters: recomputation (case 2) over case 1, CrossUD, "
         "median of five",
         ranked_ratio(c.ud[1][1], c.ud[1][0], 2), 0, &no_worse, SCORE_VARIANT,
         "\"comparable to or outperforms\" in most settings; memory for 8 "
         "activations, the paper's budget; the cells are counted below"},
        {"section 7.3", "the same, CrossWave, median of five",
         ranked_ratio(c.wave[1][1], c.wave[1][0], 2), 0, &no_worse,
         SCORE_VARIANT, "as above"},
        {"section 7.3", "the same, CrossUD, memory for 12 activations",
         ranked_ratio(c.more_memory, c.ud[1][0], 2), 0, &no_worse, SCORE_FITTED,
         "memory for 12 was chosen for case 2's cells"},
        {"section 7.3",
         "recomputation (case 2) over case 1, four over two datacenters, "
         "CrossUD and CrossWave, largest of four delays",
         fmax(recomputation_over_two(c.ud), recomputation_over_two(c.wave)), 0,
         &crosspipe_below, SCORE_VARIANT,
         "\"more effective here\"; the cells are counted below"},
    };

    score_print_head(to);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        score_line l = {lines[i].where,    lines[i].claimed,   solved,
                        *lines[i].row,     .digits = 3,        .unit = "",
                        .as = lines[i].as, .why = lines[i].why};

        l.row.value = lines[i].value;
        l.row.has_none = lines[i].none > 0;
        l.row.none = lines[i].none;
        score_print_line(&s, &l, to);
    }
    crosspipe_claim_strides(&s, to);
    score_print(&s, "rows", to);
}

/* --- case 2: memory ----------------------------------------------------- */

static const unsigned memories[N_MEMORIES] = {8, 10, 12, 16};

/* Counts a cell: the paper's budget is 8; CLOSEST was chosen for the cells.
 * `quiet_s`: the time without delay, 0 if it was not computed. */
static void count_memory(score *counts, unsigned memory, double seconds,
                         double paper, double quiet_s)
{
    const score_row row = score_effect(seconds, paper, quiet_s);

    score_add(counts, &row,
              memory == memories[0] ? SCORE_INFORMATIVE
              : memory == CLOSEST   ? SCORE_FITTED
                                    : SCORE_VARIANT);
}

/* Prints CrossWave's cells, whose schedules end at the solver's limit. */
static void print_wave_memories(FILE *to, score *counts)
{
    static const unsigned tried[] = {8, CLOSEST};
    sums total[2] = {{0}};
    double quiet_s[2] = {0};

    fputs(
        "\n| datacenters | latency, transfer | CrossWave, measured | memory 8 "
        "| memory 12 |\n"
        "| --- | --- | --- | --- | --- |\n",
        to);
    for (unsigned datacenters = 2; datacenters <= 4; datacenters += 2)
        for (int delay = 0; delay < 5; delay++) {
            const double paper =
                published(datacenters, delay, RECOMPUTED, WAVE);

            double s = INFINITY;

            fprintf(to, "| %u | %g, %g | %.3f |", datacenters, delays[delay][0],
                    delays[delay][1], paper);
            for (int m = 0; m < 2; m++) {
                paper_pipeline q =
                    case_setting(RECOMPUTED, delay, datacenters, "wave");
                paper_result r[N_SENDS];

                q.memory = tried[m];
                run_sends(&q, WAVE, r);
                /* A schedule for less memory fits, too. */
                s = fmin(s, r[FREE].ms / 1e3 / q.microbatches);
                fprintf(to, " %.4f (%+.1f %%) |", s, 100 * (s / paper - 1));
                add_error(&total[m], s / paper - 1);
                if (delay == 0)
                    quiet_s[m] = s;
                count_memory(counts, tried[m], s, paper, quiet_s[m]);
            }
            fputc('\n', to);
        }
    fprintf(to, "| rms of the ten | | | %.1f %% | %.1f %% |\n",
            rms_percent(&total[0]), rms_percent(&total[1]));
}

/* Prints a row. Returns whether memory 8 deviates from the measurement by more
 * than 3 %. `quiet_s` has the times of the row without delay, which comes first
 * of its datacenters. */
static bool print_memories(FILE *to, unsigned datacenters, int delay,
                           sums total[N_MEMORIES + 1], score *counts,
                           double quiet_s[N_MEMORIES])
{
    const double paper = published(datacenters, delay, RECOMPUTED, UD);
    bool contradicted = false, proven = true;

    fprintf(to, "| %u | %g, %g | %.3f |", datacenters, delays[delay][0],
            delays[delay][1], paper);
    for (int m = 0; m < N_MEMORIES; m++) {
        paper_pipeline q = case_setting(RECOMPUTED, delay, datacenters, "ud");

        q.memory = memories[m];
        paper_result blocked;
        paper_best best = paper_pipeline_solve_and_run(
            &q, 3000000, &sends[BLOCKED], 1, &blocked);
        double s = best.ms / 1e3 / q.microbatches;
        double bound_s = best.bound_ms / 1e3 / q.microbatches;

        fprintf(to, " %.4f (%+.1f %%) |", s, 100 * (s / paper - 1));
        proven &= best.proven;
        if (m == 0)
            contradicted = bound_s > 1.03 * paper;
        add_error(&total[m], s / paper - 1);
        if (delay == 0)
            quiet_s[m] = s;
        count_memory(counts, memories[m], s, paper, quiet_s[m]);
        if (memories[m] != CLOSEST)
            continue;
        s = blocked.ms / 1e3 / q.microbatches;
        if (delays[delay][1] == 2) /* else it equals the cell before */
            count_memory(counts, CLOSEST, s, paper, 0);
        fprintf(to, " %.4f (%+.1f %%) |", s, 100 * (s / paper - 1));
        add_error(&total[N_MEMORIES], s / paper - 1);
    }
    fprintf(to, " %s | %s |\n", proven ? "proven" : "not all proven",
            contradicted ? "cannot be" : "can be");
    return contradicted;
}

void crosspipe_memory(FILE *to, const page_options *how)
{
    sums total[N_MEMORIES + 1] = {{0}};
    score counts = {.numbers = {0}};
    double quiet_s[N_MEMORIES] = {0};
    int n_contradicted = 0;

    fputs("| datacenters | latency, transfer | CrossUD, measured |", to);
    for (int m = 0; m < N_MEMORIES; m++) {
        fprintf(to, " memory %u |", memories[m]);
        if (memories[m] == CLOSEST)
            fprintf(to, " memory %u, one send at a time |", memories[m]);
    }
    fputs(" optimum | with memory 8 |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (unsigned datacenters = 2; datacenters <= 4; datacenters += 2)
        for (int delay = 0; delay < 5; delay++)
            if (!how->quick || (datacenters == 4 && delay == 4))
                n_contradicted += print_memories(to, datacenters, delay, total,
                                                 &counts, quiet_s);
    if (how->quick)
        return;
    fputs("| rms of the ten | | |", to);
    for (int m = 0; m < N_MEMORIES; m++) {
        fprintf(to, " %.1f %% |", rms_percent(&total[m]));
        if (memories[m] == CLOSEST)
            fprintf(to, " %.1f %% |", rms_percent(&total[N_MEMORIES]));
    }
    fprintf(to, " | %d cannot be |\n", n_contradicted);
    print_wave_memories(to, &counts);
    score_print(&counts, "cells", to);
}
