/* SPDX-License-Identifier: Apache-2.0 */
/* Computes CrossPipe's tables 5 and 6: M70 on 8 stages. */
#include "crosspipe.h"
#include "paper_pipeline.h"

#include <math.h>
#include <string.h>

static const double delays[5][2] = {
    {0, 0}, {.25, .25}, {.25, 2}, {2, .25}, {2, 2}};

/* Published seconds per microbatch, [delay][case][column]; columns 1F1B, ZB-H1,
 * ZB-V, CrossUDSub; 0: not published. Case 3 has no static rows. */
static const double table5[5][3][4] = {
    {{.151, .133, .118, .137}, {.174, .168, .161, 0}, {0, 0, 0, .121}},
    {{.168, .150, .148, .149}, {.193, .187, .177, 0}, {0, 0, 0, .123}},
    {{.241, .230, .315, .181}, {.262, .259, .330, 0}, {0, 0, 0, .144}},
    {{.242, .229, .314, .160}, {.262, .258, .329, 0}, {0, 0, 0, .127}},
    {{.321, .309, .473, .198}, {.333, .331, .476, 0}, {0, 0, 0, .145}},
};
static const double table6[5][3][4] = {
    {{.149, .133, .119, .138}, {.173, .168, .160, 0}, {0, 0, 0, .123}},
    {{.177, .158, .161, .155}, {.198, .190, .181, 0}, {0, 0, 0, .126}},
    {{.269, .249, .339, .216}, {.274, .269, .331, 0}, {0, 0, 0, .158}},
    {{.268, .248, .337, .200}, {.274, .269, .330, 0}, {0, 0, 0, .138}},
    {{.359, .338, .512, .268}, {.349, .346, .479, 0}, {0, 0, 0, .178}},
};

/* A table column: placement and method. */
typedef struct column {
    const char *title, *placement;
    paper_run how;
} column;

static const column columns[4] = {
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

/* Error sums of a column. */
typedef struct sums {
    double square, worst;
    int n;
} sums;

static void print_cell(FILE *to, double predicted, double published, sums *sum)
{
    double error = predicted / published - 1;

    sum->square += error * error;
    sum->n++;
    if (fabs(error) > fabs(sum->worst))
        sum->worst = error;
    fprintf(to, " %.3f / %.3f (%+.1f %%) |", predicted, published, 100 * error);
}

static void print_row(FILE *to, int which, int delay, unsigned datacenters,
                      const double published[4], sums total[4])
{
    fprintf(to, "| %g, %g | %d |", delays[delay][0], delays[delay][1],
            which + 1);
    for (int k = 0; k < 4; k++) {
        if (published[k] == 0) {
            fputs(" |", to);
            continue;
        }
        paper_pipeline q =
            case_setting(which, delay, datacenters, columns[k].placement);
        double ms = paper_pipeline_makespan_ms(&q, &columns[k].how);

        print_cell(to, ms / 1e3 / q.microbatches, published[k], &total[k]);
    }
    fputc('\n', to);
}

static void print_table(FILE *to, const char *title, unsigned datacenters,
                        const double published[5][3][4], sums total[4])
{
    fprintf(to,
            "### %s: M70 over %u datacenters\n\n"
            "Seconds per microbatch, predicted / published.\n\n"
            "| latency, transfer | case |",
            title, datacenters);
    for (int k = 0; k < 4; k++)
        fprintf(to, " %s |", columns[k].title);
    fputs("\n| --- | --- | --- | --- | --- | --- |\n", to);
    for (int delay = 0; delay < 5; delay++)
        for (int which = 0; which < 3; which++)
            print_row(to, which, delay, datacenters, published[delay][which],
                      total);
    fputc('\n', to);
}

void crosspipe_tables(FILE *to, const page_options *how)
{
    sums total[4] = {{0}};

    (void)how; /* --quick has no effect: this part is fast */
    print_table(to, "Table 5", 2, table5, total);
    print_table(to, "Table 6", 4, table6, total);
    fputs("| column | cells | rms error | worst |\n"
          "| --- | --- | --- | --- |\n",
          to);
    for (int k = 0; k < 4; k++)
        fprintf(to, "| %s | %d | %.1f %% | %+.1f %% |\n", columns[k].title,
                total[k].n, 100 * sqrt(total[k].square / total[k].n),
                100 * total[k].worst);
}

/* --- case 2: memory ----------------------------------------------------- */

enum { RECOMPUTED = 1, N_MEMORIES = 4 };

static const unsigned memories[N_MEMORIES] = {8, 10, 12, 16};

/* Measured seconds per microbatch of CrossUD, [datacenters][delay]. */
static const double measured[2][5] = {{.165, .170, .185, .173, .196},
                                      {.167, .173, .198, .184, .213}};

/* Prints a row. Returns whether memory 8 deviates from the measurement by more
 * than 3 %. */
static bool print_memories(FILE *to, unsigned datacenters, int delay,
                           sums total[N_MEMORIES])
{
    const double paper = measured[datacenters == 4][delay];
    bool contradicted = false, proven = true;

    fprintf(to, "| %u | %g, %g | %.3f |", datacenters, delays[delay][0],
            delays[delay][1], paper);
    for (int m = 0; m < N_MEMORIES; m++) {
        paper_pipeline q = case_setting(RECOMPUTED, delay, datacenters, "ud");

        q.memory = memories[m];
        paper_best best = paper_pipeline_solve(&q, 3000000);
        double s = best.ms / 1e3 / q.microbatches;
        double bound_s = best.bound_ms / 1e3 / q.microbatches;

        fprintf(to, " %.4f (%+.1f %%) |", s, 100 * (s / paper - 1));
        proven &= best.proven;
        if (m == 0)
            contradicted = bound_s > 1.03 * paper;
        total[m].square += (s / paper - 1) * (s / paper - 1);
        total[m].n++;
    }
    fprintf(to, " %s | %s |\n", proven ? "proven" : "not all proven",
            contradicted ? "cannot be" : "can be");
    return contradicted;
}

void crosspipe_memory(FILE *to, const page_options *how)
{
    sums total[N_MEMORIES] = {{0}};
    int n_contradicted = 0;

    fputs("| datacenters | latency, transfer | CrossUD, measured |", to);
    for (int m = 0; m < N_MEMORIES; m++)
        fprintf(to, " memory %u |", memories[m]);
    fputs(" optimum | with memory 8 |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (unsigned datacenters = 2; datacenters <= 4; datacenters += 2)
        for (int delay = 0; delay < 5; delay++)
            if (!how->quick || (datacenters == 4 && delay == 4))
                n_contradicted += print_memories(to, datacenters, delay, total);
    if (how->quick)
        return;
    fputs("| rms of the ten | | |", to);
    for (int m = 0; m < N_MEMORIES; m++)
        fprintf(to, " %.1f %% |", 100 * sqrt(total[m].square / total[m].n));
    fprintf(to, " | %d cannot be |\n", n_contradicted);
}
