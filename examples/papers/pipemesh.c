/* SPDX-License-Identifier: Apache-2.0 */
/* Reproduces PipeMesh (Li et al., IEEE TPDS 2025) from the published settings:
 * table IV cell by cell, tables V and VI with Figs. 11 and 12, and Figs. 13 to
 * 15.
 *
 *     pipemesh [report.html] > pipemesh.md
 *
 * Prints Markdown; with an argument it also writes the curves as a report. */
#include "pipemesh_cells.h"
#include "pipemesh_models.h"
#include "pipemesh_more.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/report.h>
#include <longhaul/experimental/status.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- table IV ----------------------------------------------------------- */

/* Prints " derived / published (error)" and counts the cell, unless `s` is
 * NULL. `r`: one published number. */
static void print_row(int digits, const score_row *r, score *s, score_class as)
{
    if (s)
        score_add(s, r, as);
    printf(" %.*f / %.1f (%+.1f %%) |", digits, r->value, r->low,
           100 * (r->value / r->low - 1));
}

/* Prints the cell of a derived and a published number. */
static void print_cell(int digits, double got, double want, score *s,
                       score_class as)
{
    const score_row r = score_number(got, want);

    print_row(digits, &r, s, as);
}

/* Returns the DP time of a row without any overlap, 2 M C_DP, in ms. */
static double unhidden_ms(const pipemesh_model *m,
                          const pipemesh_published *row)
{
    return 2 * row->M * pipemesh_chunk_comm_ns(m, row->M) / MS;
}

/* Prints the cells' reference: no overlap at all. */
static void print_unhidden(void)
{
    double error[4];

    for (int i = 0; i < 4; i++) {
        const pipemesh_model *m = &pipemesh_models[i];
        const pipemesh_published *megatron = &m->rows[1];

        error[i] = 100 * (unhidden_ms(m, megatron) / megatron->dp - 1);
    }
    printf("\nWithout any overlap Megatron's critical DP times would be 2 M "
           "C_DP. These times differ from the\npublished ones by %+.1f %% "
           "(GPT-3 on A100), %+.1f %% (GPT-3 on V100), %+.1f %% (Llama2) and "
           "%+.1f %%\n(Falcon). Megatron's Llama2 has M = 1 chunk and no "
           "window. Its cell is 2 C_DP, and *trivial*. One of\nthe three "
           "cells with windows agrees with the paper, on A100. On V100 the "
           "time without any overlap\nis about as close to GPT-3's published "
           "time as the derived one, and closer to Falcon's.\n",
           error[0], error[1], error[2], error[3]);
}

static void print_table4(void)
{
    printf(
        "## Table IV\n\nEach cell in the tables for table IV has the derived "
        "value / the published value (error).\n\n- In table IV forward times, "
        "backward times and critical (exposed) PP times are inputs: the "
        "paper's\n  measurements.\n- In table IV the bubble time is derived "
        "from the row's compute times: an identity (*given*).\n- In table IV "
        "critical (exposed) DP time is the sum of 2 C_DP and the time that the "
        "schedule's\n  windows do not hide. The time C_DP to communicate a "
        "chunk is computed from its parameters, the\n  replica count D and "
        "%.2f of the device's share of its node's link. The share 0.68 of the "
        "link was\n  chosen once for all rows in table IV, by the rows of "
        "PipeMesh and Fold3D (*fitted*). MegaScale has\n  Megatron's "
        "schedule, so that its critical DP time is a *variant* of "
        "Megatron's.\n- The memory columns M_a (activations), M_g (gradients) "
        "and M_p (parameters) are those of the first\n  stage. The activation "
        "memory M_a of PipeMesh on A100 is *fitted*. The other cells of "
        "memory are\n  *given*: they evaluate the paper's formulas for the "
        "shapes of table III, and test no simulation.\n- A memory cell that "
        "repeats "
        "another cell of its table is not counted: MegaScale has Megatron's\n "
        " memory, Fold3D has PipeMesh's M_g, and M_p equals M_g in all rows "
        "but PipeMesh's.\n- Throughput is model FLOPs over the sum of the five "
        "published time columns, without embedding,\n  optimiser and loading "
        "(*given*); MFU is throughput divided by the peak rate.\n- The caption "
        "of table IV names microseconds as the unit of times; its throughputs "
        "need\n  milliseconds. The paper's GB and MB are GiB and MiB: 79.5 for "
        "a layer of Falcon are 83.4 x 10^6\n  bytes.\n",
        LINK_EFFICIENCY);
    score s = {.numbers = {0}}, memory = {.numbers = {0}};
    for (uint32_t i = 0; i < 4; i++) {
        const pipemesh_model *m = &pipemesh_models[i];
        printf(
            "\n### %s\n\nThe paper's plan has P = %u stages, D = %u "
            "replicas, B = %u microbatches per pipeline and a queue\nof q = "
            "%u (recomputed: %s).\n\n| system | M | bubble, ms | critical DP, "
            "ms | M_a, GiB | M_g, GiB | M_p, GiB | TFLOPS | MFU, %% |\n| "
            "--- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            m->name, m->P, m->D, pipemesh_microbatches(m), m->q, m->dropped);
        for (uint32_t k = 0; k < 4; k++) {
            const pipemesh_published *row = &m->rows[k];
            pipemesh_columns d = pipemesh_derive(m, k);
            bool elastic = k == 0;
            /* Nothing of 2 C_DP is hidden: the link's share is fitted to it.
             * MegaScale's schedule is Megatron's. */
            score_class dp = elastic || k == 3 ? SCORE_FITTED
                             : k == 1          ? SCORE_INFORMATIVE
                                               : SCORE_VARIANT;
            printf("| %s | %u |", row->system, row->M);
            print_cell(1, pipemesh_bubble_ms(m, row), row->bubble, &s,
                       SCORE_GIVEN);
            const score_row hidden =
                score_effect(d.dp_ms, row->dp, unhidden_ms(m, row));
            print_row(1, &hidden, &s, dp);
            /* MegaScale repeats Megatron's memory, Fold3D PipeMesh's M_g, and
             * both depth- and breadth-first M_p the same row's M_g. */
            score *once = k < 2 ? &memory : NULL;
            if (k < 3)
                print_cell(2, d.a, row->a, once,
                           elastic && i == 0 ? SCORE_FITTED : SCORE_GIVEN);
            else
                printf(" - / %.1f |", row->a);
            print_cell(2, d.g, row->g, once, SCORE_GIVEN);
            print_cell(2, d.p, row->p, elastic ? &memory : NULL, SCORE_GIVEN);
            print_cell(1, d.tflops, row->tflops, &s, SCORE_GIVEN);
            print_cell(1, 100 * d.tflops / m->peak_tflops, row->mfu, &s,
                       SCORE_GIVEN);
            printf("\n");
        }
    }
    score_print(&s, "cells of times and throughput", stdout);
    score_print(&memory, "cells of memory", stdout);
    print_unhidden();
    pipemesh_claim_text();
}

/* --- consistency of the columns ----------------------------------------- */

static void print_columns(void)
{
    printf("\n## Queue, shares and messages\n\n- The column \"least q\" has "
           "the shortest queue (first enqueue group) whose forwards hide a "
           "chunk's\n  collective, with half the published critical DP time as "
           "its time C_DP.\n- The ZeRO-3 columns have the share of parameters "
           "at ZeRO-3: by the paper's rules with the same\n  C_DP, with one "
           "scatter bucket more, and with the two conditions on psi_p in\n  "
           "docs/theory/elastic.md.\n- The column C_PP / Cf has the message "
           "time C_PP, in forward times Cf, at which 2(P - 1) C_PP equals\n  "
           "the published critical PP time on P stages. By the paper's "
           "condition the ratio C_PP / Cf of\n  message time to forward time "
           "is at most one.\n\n| | least q | published | ZeRO-3 by the rules | "
           "one bucket more | published | with conditions | C_PP / Cf |\n| --- "
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    static const char *const shares[] = {"-", "84.4 %", "90.9 %", "86.9 %"};
    static const double published_shares[] = {0, 84.4, 90.9, 86.9};
    for (uint32_t i = 0; i < 4; i++) {
        const pipemesh_model *m = &pipemesh_models[i];
        lh_elastic_case g = pipemesh_case_of(m, &m->rows[0]);
        g.dp_ns = llround(m->rows[0].dp / 2 * MS);
        uint32_t least = (uint32_t)((g.dp_ns + g.f_ns - 1) / g.f_ns);
        g.as_published = true;
        lh_elastic_plan *plan = pipemesh_plan_for(&g, m->q);
        double share = 100.0 * (double)plan->params_p / (double)g.params;
        double fewer = 100.0 * (plan->backward_buckets - 1.0) * (double)g.b_ns /
                       (double)g.dp_ns;
        lh_elastic_plan_free(plan);
        g.as_published = false;
        plan = pipemesh_plan_for(&g, m->q);
        double strict = 100.0 * (double)plan->params_p / (double)g.params;
        lh_elastic_plan_free(plan);
        double hop = m->rows[0].pp / (2 * (m->P - 1));
        printf("| %s | %u | %u | %.1f %% | %.1f %% | %s | %.1f %% | %.2f |\n",
               m->name, least, m->q, share, fewer, shares[i], strict,
               hop * MS / (double)g.f_ns);
        pipemesh_claim("section VI", m->name, "queue q", least, m->q, 0, "",
                       SCORE_GIVEN,
                       "arithmetic on published numbers of the row: critical "
                       "DP time over forward time");
        if (i > 0)
            pipemesh_claim("section VI", m->name, "share at ZeRO-3", share,
                           published_shares[i], 1, " %", SCORE_INFORMATIVE,
                           "the paper's rule with its times");
    }
}

/* --- planning ----------------------------------------------------------- */

enum { MOST_OPS = LH_COST_MAX_OPS * 32 };

/* A planning problem and its storage. */
typedef struct problem {
    lh_elastic_case given;
    lh_elastic_op ops[MOST_OPS];
    const char *names[MOST_OPS];
    uint32_t n_ops;
    int64_t budget;
} problem;

/* Fills in the published pipeline with `M` chunks. Pass durations are the
 * PipeMesh row's minus its recomputation (its fraction of the forward by
 * FLOPs); the budget is the depth-first row's memory by the same formulas. */
static void fill_problem(const pipemesh_model *m, uint32_t M, problem *p)
{
    lh_published_op ops[LH_COST_MAX_OPS];
    const pipemesh_published *row = &m->rows[0], *depth = &m->rows[1];
    uint32_t n =
        lh_cost_published_ops(m->family, m->sequence, 1, HIDDEN, TENSOR, ops);
    double B = pipemesh_microbatches(m), layers = (double)m->layers / m->P / M;
    double f_ns = depth->fwd * MS / (M * B), flops = pipemesh_layer_flops(m);
    *p = (problem){.given = pipemesh_case_of(m, row)};
    p->given.chunks = M;
    p->given.f_ns = llround(f_ns);
    p->given.b_ns = llround(depth->bwd * MS / (M * B));
    p->given.dp_ns = llround(pipemesh_chunk_comm_ns(m, M));
    p->given.pp_ns = llround(pipemesh_hop_ns(m));
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t l = 0; l < (uint32_t)layers && ops[k].bytes > 0; l++) {
            p->names[p->n_ops] = ops[k].name;
            p->ops[p->n_ops++] =
                (lh_elastic_op){llround(ops[k].bytes),
                                llround(f_ns / layers * ops[k].flops / flops)};
        }
    lh_elastic_case d = p->given;
    d.chunks = depth->M;
    double held = (double)lh_elastic_depth_first_resident_passes(&d) *
                  m->layers / m->P / depth->M * pipemesh_whole_layer(m) *
                  pipemesh_sbh(m);
    p->budget = llround(held + pipemesh_params(m) * (12.0 / m->D + 4)) + 1;
}

/* Prints the number of layers per chunk that recompute each tensor: "gelu 3,
 * query 1". */
static void print_recomputed(const problem *p, const bool *recomputed)
{
    const char *last = "";
    bool any = false;
    for (uint32_t k = 0; k < p->n_ops; k++) {
        uint32_t n = 0;
        if (k > 0 && p->names[k] == p->names[k - 1])
            continue;
        for (uint32_t j = k; j < p->n_ops && p->names[j] == p->names[k]; j++)
            n += recomputed[j];
        if (n == 0)
            continue;
        printf("%s%s %u", any ? ", " : "", p->names[k], n);
        any = true;
        last = p->names[k];
    }
    if (!*last)
        printf("nothing");
}

static double event_ms(const lh_elastic_case *g, const lh_elastic_plan *plan,
                       int64_t again)
{
    int64_t ns;
    lh_error err;
    if (lh_elastic_event_time(g, plan, again, &ns, &err) != LH_OK)
        pipemesh_die(&err);
    return (double)ns / MS;
}

static void print_planner(void)
{
    static const char by_flops[] =
        "time by FLOPs, of which the recomputed operations have few: too short";
    double gpt3 = 0, share = 0, other = 0;
    printf(
        "\n## The planner\n\n- For the planner, compute times are those of "
        "table IV's Megatron rows (nothing recomputed, little\n  contention). "
        "An operation's time is proportional to its share of the forward's "
        "FLOPs.\n- For the planner, messages take the time C_PP at the full "
        "link rate. The memory budget of all\n  planners is the memory that "
        "the depth-first plan needs by the paper's formulas.\n- The columns "
        "\"model\" and \"events\" have the time of one iteration in ms, "
        "computed by equation 1\n  and by event simulation.\n- The planner "
        "`joint` searches chunks (every divisor of the stage's layers), queue, "
        "sharding and\n  recomputation together, by simulated time.\n\n| | "
        "planner | M | groups | ZeRO-3 | recomputed per chunk | model | events "
        "|\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (uint32_t i = 0; i < 4; i++) {
        const pipemesh_model *m = &pipemesh_models[i];
        static problem p[32];
        lh_elastic_setting settings[32];
        uint32_t n = 0, layers = m->layers / m->P, by_rule = 1;
        lh_error err;
        double again = 0;
        fill_problem(m, m->rows[0].M, &p[0]);
        for (int k = 0; k < 2; k++) {
            lh_elastic_choice *c;
            p[0].given.as_published = k == 0;
            if (lh_elastic_choose(&p[0].given, p[0].n_ops, p[0].ops,
                                  p[0].budget, LH_ELASTIC_LARGEST, &c,
                                  &err) != LH_OK)
                pipemesh_die(&err);
            printf("| %s | %s | %u | %u of at most %u | %.0f %% | ",
                   k ? "" : m->name, k ? "with corrections" : "as published",
                   m->rows[0].M, c->plan->n_enqueue, c->plan->enqueue[0],
                   100.0 * (double)c->plan->params_p /
                       (double)p[0].given.params);
            print_recomputed(&p[0], c->recomputed);
            double ms = event_ms(&p[0].given, c->plan, c->recompute_ns);
            printf(" | %.0f | %.0f |\n", (double)c->time_ns / MS, ms);
            if (k == 0) {
                pipemesh_claim("table IV", m->name, "planner's queue q",
                               c->plan->enqueue[0], m->q, 0, "",
                               SCORE_INFORMATIVE,
                               "the planner's optimum with the derived C_DP");
                pipemesh_claim("section VI", m->name,
                               "planner's enqueue groups", c->plan->n_enqueue,
                               2, 0, "", SCORE_VARIANT,
                               "microbatches over the queue of the row above");
                again = (double)c->recompute_ns;
                share = fmax(share, again * m->rows[0].M *
                                        pipemesh_microbatches(m) / (ms * MS));
                again /= (double)p[0].given.f_ns;
            }
            lh_elastic_choice_free(c);
        }
        for (uint32_t M = 1; M <= layers; M++) {
            if (layers % M != 0 || M > 24)
                continue;
            fill_problem(m, M, &p[n]);
            settings[n] = (lh_elastic_setting){
                .given = p[n].given, .n_ops = p[n].n_ops, .ops = p[n].ops};
            if (p[n].given.pp_ns <= p[n].given.f_ns)
                by_rule = M;
            n++;
        }
        pipemesh_claim("table IV", m->name, "planner's chunks M", by_rule,
                       m->rows[0].M, 0, "", SCORE_INFORMATIVE,
                       "the paper's rule with C_PP at the full link rate; "
                       "C_PP is not published");
        lh_elastic_search_result *best;
        if (lh_elastic_search_events(n, settings, p[0].budget, &best, &err) !=
            LH_OK)
            pipemesh_die(&err);
        printf("| | joint | %u | %u of at most %u | %.0f %% | ",
               settings[best->setting].given.chunks, best->plan->n_enqueue,
               best->plan->enqueue[0],
               100.0 * (double)best->plan->params_p /
                   (double)settings[best->setting].given.params);
        print_recomputed(&p[best->setting], best->recomputed);
        printf(" | %.0f | %.0f |\n", (double)best->model_ns / MS,
               (double)best->time_ns / MS);
        lh_elastic_search_result_free(best);
        if (i == 1)
            gpt3 = again;
        if (i == 1)
            pipemesh_claim_below("section VI", m->name,
                                 "forward with recomputation over without",
                                 1 + again, 1.026, by_flops);
        if (i > 1)
            other = fmax(other, again / gpt3);
    }
    pipemesh_claim_below("section VI", "96 V100",
                         "share of recomputation over GPT-3's, larger of two "
                         "models",
                         other, 1, by_flops);
    pipemesh_claim_below("abstract", "largest of four models",
                         "iteration with recomputation over without",
                         1 / (1 - share), 1 / (1 - .019), by_flops);
}

/* --- Figs. 13 to 15 ----------------------------------------------------- */

static double tflops_of(const pipemesh_model *m, double ms)
{
    return 3 * pipemesh_layer_flops(m) * m->layers * m->batch / m->devices /
           (ms * MS) * 1e-3;
}

/* Returns the time of the best feasible plan with one queue; negative: none. */
static double best_ms(const problem *p, uint32_t q, lh_elastic_sharding how,
                      problem *scratch, lh_elastic_choice **out)
{
    lh_elastic_plan *plan;
    lh_error err;
    *scratch = *p;
    scratch->given.sharding = how;
    plan = pipemesh_plan_for(&scratch->given, q);
    /* All bytes that this queue leaves free, minus one. */
    lh_elastic_memory states = lh_elastic_peak_memory(&scratch->given, plan, 0);
    int64_t room = (p->budget - 1 - states.sum) /
                   lh_elastic_resident_passes(&scratch->given, plan, 1);
    /* The planner's sums, with a queue of zero cost. */
    lh_elastic_case one = scratch->given;
    one.stages = one.microbatches = one.chunks = one.replicas = 1;
    one.params = one.dp_ns = one.pp_ns = 0;
    one.sharding = LH_ELASTIC_ZERO1;
    lh_status status = lh_elastic_choose(&one, p->n_ops, p->ops, room + 1,
                                         LH_ELASTIC_LARGEST, out, &err);
    double ms = -1;
    if (status == LH_OK)
        ms = event_ms(&scratch->given, plan, (*out)->recompute_ns);
    else
        *out = NULL;
    lh_elastic_plan_free(plan);
    return ms;
}

/* Returns the implied C_PP, which is not published. The planner chooses eight
 * chunks only if C_PP is above a forward of 12 chunks and not above one of 8;
 * this is the maximum. */
static double implied_hop_ns(const pipemesh_model *m)
{
    return m->rows[1].fwd * MS / pipemesh_microbatches(m) / 8;
}

static uint32_t index_of_least(uint32_t n, const int64_t *ns)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < n; i++)
        if (ns[i] >= 0 && (ns[least] < 0 || ns[i] < ns[least]))
            least = i;
    return least;
}

static void print_fig13(lh_report *report)
{
    static const uint32_t chunks[] = {3, 4, 6, 8, 12, 24};
    const pipemesh_model *m = &pipemesh_models[3];
    double xs[6];
    int64_t ns[6];
    static problem p, scratch;
    printf("\n## Fig. 13: chunks\n\nThe table for figure 13 is for Falcon with "
           "a queue (first enqueue group) of 12 microbatches. The\nmessage "
           "time C_PP is set to the duration of a forward with 8 chunks per "
           "stage, the longest C_PP with\nwhich the planner chooses 8 chunks. "
           "The message time C_PP is not published; at the full link rate "
           "it\nwould be %.1f ms, and more chunks would always shorten the "
           "iteration. The memory limit determines\nwhich operations are "
           "recomputed; the times in the table are simulated.\n\n| M | Cf, ms "
           "| iteration, ms | TFLOPS |\n| --- | --- | --- | --- |\n",
           pipemesh_hop_ns(m) / MS);
    for (int i = 0; i < 6; i++) {
        lh_elastic_choice *c;
        fill_problem(m, chunks[i], &p);
        p.given.pp_ns = llround(implied_hop_ns(m));
        double ms = best_ms(&p, 12, LH_ELASTIC_MIXED, &scratch, &c);
        xs[i] = chunks[i];
        ns[i] = ms < 0 ? -1 : llround(ms * MS);
        printf("| %u | %.1f | %.0f | %.1f |\n", chunks[i],
               (double)p.given.f_ns / MS, ms, ms < 0 ? 0 : tflops_of(m, ms));
        lh_elastic_choice_free(c);
    }
    pipemesh_add_sweep(report, "Fig. 13: Falcon 66B, q = 12",
                       "chunks per stage", 6, xs, ns);
    pipemesh_claim("figure 13", m->name, "chunks of the shortest iteration",
                   xs[index_of_least(6, ns)], 8, 0, "", SCORE_FITTED,
                   "C_PP was chosen: the longest with which the planner "
                   "chooses 8");
}

static void print_fig14(lh_report *report)
{
    static const uint32_t queues[] = {4, 6, 8, 11, 12, 24};
    const pipemesh_model *m = &pipemesh_models[3];
    double xs[6];
    int64_t ns[6];
    double compute_ns[6] = {0};
    static problem p, scratch;
    fill_problem(m, 8, &p);
    printf("\n## Fig. 14: the queue\n\nThe table for figure 14 is for Falcon "
           "with M = 8 chunks per stage and messages at the full link\nrate, "
           "with as much recomputation as the memory requires, by event "
           "simulation.\n\n| q | recomputed per chunk | iteration, ms | TFLOPS "
           "|\n| --- | --- | --- | --- |\n");
    for (int i = 0; i < 6; i++) {
        lh_elastic_choice *c;
        double ms = best_ms(&p, queues[i], LH_ELASTIC_MIXED, &scratch, &c);
        xs[i] = queues[i];
        ns[i] = ms < 0 ? -1 : llround(ms * MS);
        printf("| %u | ", queues[i]);
        if (c) {
            print_recomputed(&p, c->recomputed);
            compute_ns[i] =
                (double)(p.given.f_ns + p.given.b_ns + c->recompute_ns);
        }
        printf(" | %.0f | %.1f |\n", ms, ms < 0 ? 0 : tflops_of(m, ms));
        lh_elastic_choice_free(c);
    }
    pipemesh_add_sweep(report, "Fig. 14: Falcon 66B, M = 8",
                       "queue (microbatches)", 6, xs, ns);
    pipemesh_claim("figure 14", m->name, "queue of the shortest iteration",
                   xs[index_of_least(6, ns)], 12, 0, "", SCORE_INFORMATIVE,
                   "24 microbatches make three groups of at most 11, or two of "
                   "12; 11, the planner's queue, is added to the paper's five, "
                   "of which 12 is the best here");
    pipemesh_claim("figure 14", m->name, "q = 24 over 12: more computation",
                   100 * (compute_ns[5] / compute_ns[4] - 1), 12, 1, " %",
                   SCORE_INFORMATIVE,
                   "recomputes other operations than the paper's");
}

static void print_fig15(lh_report *report)
{
    static const struct {
        const char *name;
        uint32_t q;
        lh_elastic_sharding sharding;
        double published; /* throughput relative to PipeMesh, % */
        score_class as;
        const char *why;
    } rows[] = {
        {"mixed", 12, LH_ELASTIC_MIXED, 0, SCORE_GIVEN, ""},
        {"all ZeRO-3", 12, LH_ELASTIC_ZERO3, -2.7, SCORE_INFORMATIVE,
         "the paper: more DP communication, all of which is hidden here"},
        {"all ZeRO-2", 12, LH_ELASTIC_ZERO2, -4.2, SCORE_INFORMATIVE,
         "the paper recomputes other operations (two queries in three layers)"},
        {"all ZeRO-1", 12, LH_ELASTIC_ZERO1, -6.0, SCORE_INFORMATIVE,
         "the paper recomputes other operations (a query, an up projection)"},
        {"depth-first, all ZeRO-3", 4, LH_ELASTIC_ZERO3, -9.7,
         SCORE_INFORMATIVE,
         "the paper: depth-first, and ZeRO-3 enabled; its gathers are exposed "
         "here, those of the next row are not"},
        {"depth-first, as much as hides", 4, LH_ELASTIC_MIXED, -9.7,
         SCORE_VARIANT,
         "the planner chooses the share at ZeRO-3; less is recomputed than in "
         "the mixed plan, in the paper more"},
        {"depth-first, ZeRO-1", 4, LH_ELASTIC_ZERO1, NAN, SCORE_VARIANT, ""}};
    const pipemesh_model *m = &pipemesh_models[3];
    static problem p, scratch;
    double mixed = 0, xs[7];
    int64_t ns[7];
    fill_problem(m, 8, &p);
    printf("\n## Fig. 15: the parts\n\nThe table for figure 15 is for Falcon "
           "with M = 8 chunks per stage and the memory budget of "
           "the\ndepth-first plan, which uses groups of P microbatches on P "
           "stages. In the paper the plan without "
           "the\nelastic schedule is depth-first and enables ZeRO-3; rows with "
           "other shares of ZeRO-3 are variants of\nit. The throughput column "
           "has the difference from the mixed plan, derived / published.\n\n| "
           "| recomputed per chunk | "
           "iteration, ms | throughput |\n| --- | --- | --- | --- |\n");
    for (int i = 0; i < 7; i++) {
        lh_elastic_choice *c;
        double ms = best_ms(&p, rows[i].q, rows[i].sharding, &scratch, &c);
        if (i == 0)
            mixed = ms;
        xs[i] = i;
        ns[i] = ms < 0 ? -1 : llround(ms * MS);
        printf("| %s | ", rows[i].name);
        if (c)
            print_recomputed(&p, c->recomputed);
        printf(" | %.0f | ", ms);
        if (ms < 0)
            printf("does not fit");
        else
            printf("%+.1f %%", 100 * (mixed / ms - 1));
        if (!isnan(rows[i].published))
            printf(" / %+.1f %%", rows[i].published);
        printf(" |\n");
        if (i > 0 && !isnan(rows[i].published) && ms >= 0)
            pipemesh_claim("figure 15", rows[i].name, "throughput over mixed",
                           mixed / ms, 1 + rows[i].published / 100, 3, RATIO,
                           rows[i].as, rows[i].why);
        lh_elastic_choice_free(c);
    }
    pipemesh_add_sweep(report,
                       "Fig. 15: mixed, ZeRO-3, -2, -1, depth-first ZeRO-3, "
                       "mixed, ZeRO-1",
                       "variant", 7, xs, ns);
}

/* --- order, and underivable quantities ---------------------------------- */

/* Prints the order. Breadth-first stores activations as far as they fit and
 * offloads the rest over a node's PCIe, as Fold3D does: its published compute
 * times include the slowdown. */
static void print_order(void)
{
    printf(
        "\n## Order at equal memory\n\nThe table of orders has iteration times "
        "in ms. Elastic and depth-first plans are made by event\nsimulation "
        "with depth-first's memory budget and the published chunk counts. The "
        "time of\nbreadth-first with offloading is from the published columns, "
        "since the offloading cost cannot be\nderived.\n\n| | elastic | "
        "depth-first | breadth-first | published: elastic | depth-first | "
        "breadth-first |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    double ratios[4];
    for (uint32_t i = 0; i < 4; i++) {
        const pipemesh_model *m = &pipemesh_models[i];
        static problem p;
        lh_elastic_choice *c;
        lh_error err;
        double sums[4];
        fill_problem(m, m->rows[0].M, &p);
        if (lh_elastic_choose(&p.given, p.n_ops, p.ops, p.budget,
                              LH_ELASTIC_ANY, &c, &err) != LH_OK)
            pipemesh_die(&err);
        double elastic = event_ms(&p.given, c->plan, c->recompute_ns);
        lh_elastic_choice_free(c);
        const pipemesh_published *row = &m->rows[1];
        pipemesh_columns d = pipemesh_derive(m, 1);
        double depth = row->fwd + row->bwd + pipemesh_bubble_ms(m, row) +
                       d.dp_ms +
                       2 * (m->P - 1) * row->M * pipemesh_hop_ns(m) / MS;
        for (int s = 0; s < 4; s++)
            sums[s] = pipemesh_iteration_ms(&m->rows[s]);
        const pipemesh_published *wide = &m->rows[3];
        double breadth = wide->fwd + wide->bwd + pipemesh_bubble_ms(m, wide) +
                         pipemesh_derive(m, 3).dp_ms +
                         2 * (m->P - 1) * pipemesh_hop_ns(m) / MS;
        printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", m->name,
               elastic, depth, breadth, sums[0], sums[1], sums[3]);
        ratios[i] = depth / elastic;
        pipemesh_claim("table IV", m->name, "elastic over depth-first",
                       ratios[i], sums[1] / sums[0], 3, RATIO, SCORE_VARIANT,
                       "forward and backward times are Megatron's published "
                       "ones, 0.68 of the link is fitted; Megatron's critical "
                       "DP, which makes the difference, is counted in table "
                       "IV");
    }
    for (int k = 0; k < PIPEMESH_GAINS; k++)
        pipemesh_claim("abstract, section I", pipemesh_gains[k].subject,
                       "elastic over depth-first, throughput",
                       pipemesh_find_gain(k, ratios),
                       pipemesh_gains[k].published, 3, RATIO, SCORE_VARIANT,
                       "the rows of table IV above against the gains in the "
                       "paper's text");
}

/* Returns Megatron's row of table IV. */
static pipemesh_row megatron_row(const pipemesh_model *m)
{
    const pipemesh_published *r = &m->rows[1];
    return (pipemesh_row){m->name,   m->batch, r->fwd, r->bwd,
                          r->bubble, r->dp,    r->pp,  r->tflops};
}

static void print_more(void)
{
    const pipemesh_row a100 = megatron_row(&pipemesh_models[0]);
    const pipemesh_row v100 = megatron_row(&pipemesh_models[1]);
    const pipemesh_model *m = &pipemesh_models[1];
    /* For a device's layers, over all microbatches. */
    double flops = pipemesh_layer_flops(m) / TENSOR * m->layers / m->P *
                   pipemesh_microbatches(m);
    pipemesh_print_table5(&a100, &v100);
    pipemesh_print_table6(flops / v100.fwd, v100.bwd / v100.fwd,
                          LINK_EFFICIENCY);
}

int main(int argc, char **argv)
{
    lh_report *report = NULL;
    lh_error err;
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fprintf(stderr, "usage: pipemesh [report.html]\n");
        return 2;
    }
    if (argc == 2 &&
        lh_report_make("PipeMesh Figs. 13 to 15", &report, &err) != LH_OK)
        pipemesh_die(&err);
    pipemesh_print_start();
    print_table4();
    print_columns();
    print_planner();
    print_fig13(report);
    print_fig14(report);
    print_fig15(report);
    print_order();
    print_more();
    pipemesh_print_jobs();
    pipemesh_print_claims();
    pipemesh_print_missing(LINK_EFFICIENCY);
    if (report)
        pipemesh_write_report(report, argv[1]);
    lh_report_free(report);
    return 0;
}
