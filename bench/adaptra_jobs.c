/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts Adaptra's figures 14 to 17, 20 and 21 from job files: the models and
 * degrees of its table 2 on H800 GPUs, with the cost model's pass times. */
#include "adaptra.h"

#include <longhaul/experimental/plan.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Not published: the sequence length (GPT-2's models with learned positions
 * have 1024, Megatron's GPT recipes 2048), one sequence per microbatch, and
 * twice as many microbatches as stages. */
enum { SEQUENCE = 2048, MICROBATCHES_PER_STAGE = 2 };
/* Copies between a GPU and pinned host memory: PCIe 5.0 x16 has 64 GB/s, and
 * large copies reach about 50 (bytes per ns). */
static const double copy_rate = 50;

/* A model in table 2. Layers and width are ours: the usual shapes, 128 values
 * per head, with layers that all stages can share equally. */
typedef struct job_model {
    const char *name;
    unsigned layers, hidden;
    unsigned tensor, data, pipeline; /* table 2 */
    unsigned gpus_per_node;          /* one for 7B and 14B: figures 1 and 3 */
} job_model;

enum { B7, B14, B30, B60, B140, N_MODELS, N_COMPARED = B140 };

static const job_model models[N_MODELS] = {
    {"7B", 32, 4096, 1, 1, 4, 1},    {"14B", 40, 5376, 1, 1, 8, 1},
    {"30B", 48, 7168, 2, 4, 8, 8},   {"60B", 64, 8704, 4, 2, 8, 8},
    {"140B", 80, 12288, 8, 2, 8, 8},
};

/* How messages travel. */
typedef enum path { DIRECT, DELEGATED } path;

/* A model's pipeline as its job gives it. */
typedef struct predicted {
    lh_pipeline *pipeline;
    int64_t optimizer_ns;
    double copy_ns; /* of a message between a GPU and its host */
} predicted;

static unsigned microbatches(const job_model *m)
{
    return MICROBATCHES_PER_STAGE * m->pipeline;
}

static predicted predict(const job_model *m)
{
    char text[1024];
    unsigned gpus = m->tensor * m->data * m->pipeline;
    predicted p = {.copy_ns =
                       2.0 * SEQUENCE * m->hidden / m->tensor / copy_rate};
    lh_job *job = NULL;
    lh_error err = {0};
    int n = snprintf(
        text, sizeof text,
        "longhaul: job/1\n"
        "model: {layers: %u, hidden: %u, ffn: %u, heads: %u, vocab: 50304, "
        "gated: false, tied_embeddings: true, norm: layer, positions: %d}\n"
        "training: {global_batch: %u, sequence: %d, zero: 1}\n"
        "framework: {preset: megatron}\n"
        "cluster:\n"
        "  gpu: h800\n"
        "  gpus_per_node: %u\n"
        "  node_link: {gbps: 1600, latency_us: 3}\n"
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  datacenters: [{name: one, nodes: %u}]\n"
        "layout: {tensor: %u, context: 1, pipeline: %u, data: %u, micro_batch: "
        "1, chunks_per_device: 1, outermost: data, sharding: full}\n",
        m->layers, m->hidden, 4 * m->hidden, m->hidden / 128, (int)SEQUENCE,
        microbatches(m) * m->data, (int)SEQUENCE, m->gpus_per_node,
        gpus / m->gpus_per_node, m->tensor, m->pipeline, m->data);

    paper_check_status(lh_job_parse(text, (size_t)n, m->name, NULL, &job, &err),
                       &err);
    lh_layout layout = job->layout;

    layout.expert = 1;
    paper_check_status(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD,
                                        LH_RECOMPUTE_NONE, &p.pipeline,
                                        &p.optimizer_ns, &err),
                       &err);
    lh_job_free(job);
    return p;
}

/* Returns the iteration in ms with a delay on a set of links: bit i is the link
 * between stages i and i + 1. On the delegated path each F and D is longer by
 * its message's copy to the host and its input's copy from the host, which the
 * paper puts into the stream of the passes (section 5). */
static double iteration_ms(const predicted *p, unsigned links, double delay_ms,
                           const paper_run *how, bool joint, path by)
{
    lh_pipeline_desc d = {.size = sizeof d};
    lh_pipeline *made = NULL;
    lh_error err = {0};

    paper_check_status(lh_pipeline_describe(p->pipeline, &d, &err), &err);
    lh_chunk *chunks = malloc(d.n_chunks * sizeof *chunks);
    lh_link *changed = malloc((d.n_links + 1) * sizeof *changed);

    if (!chunks || !changed)
        exit(1);
    memcpy(chunks, d.chunks, d.n_chunks * sizeof *chunks);
    memcpy(changed, d.links, d.n_links * sizeof *changed);
    for (uint32_t i = 0; by == DELEGATED && i < d.n_chunks; i++) {
        int copies = (i > 0) + (i + 1 < d.n_chunks);

        chunks[i].f_ns += (int64_t)(copies * p->copy_ns);
        chunks[i].d_ns += (int64_t)(copies * p->copy_ns);
    }
    for (uint32_t i = 0; i < d.n_links; i++) {
        uint32_t low =
            changed[i].from < changed[i].to ? changed[i].from : changed[i].to;

        if (links >> low & 1)
            changed[i].latency_ns += (int64_t)(delay_ms * 1e6);
    }
    d.chunks = chunks;
    d.links = changed;
    d.memory_limits = NULL;
    d.joint = joint;
    d.receives = LH_RECEIVES_EARLY;
    paper_check_status(lh_pipeline_make(&d, &made, &err), &err);
    double ms = paper_run_on(made, how).ms + (double)p->optimizer_ns / 1e6;

    lh_pipeline_free(made);
    free(chunks);
    free(changed);
    return ms;
}

/* Adaptra and Adaptra-CPU leave ZB's schedule and the direct path only for slow
 * links (sections 5.2 and 6 of the paper). */
static double system_ms(const predicted *p, unsigned links, double delay_ms,
                        adaptra_system system)
{
    const bool delegated = links && system >= ADAPTRA_CPU;
    const adaptra_system as =
        system >= ADAPTRA_CPU && !links ? ADAPTRA_ZB : system;

    return iteration_ms(p, links, delay_ms, &adaptra_runs[as],
                        system == ADAPTRA_1F1B, delegated ? DELEGATED : DIRECT);
}

static unsigned last_link(const job_model *m)
{
    return 1u << (m->pipeline - 2);
}

/* --- table -------------------------------------------------------------- */

void adaptra_jobs(FILE *to, const page_options *how)
{
    (void)how; /* --quick has no effect: this part is fast */
    fputs("| model | GPUs | F, D, W of stage 1, ms | copy, ms | system | quiet "
          "| first, 30 ms | 60 ms | last, 30 ms | 60 ms |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i < N_MODELS; i++) {
        const job_model *m = &models[i];
        predicted p = predict(m);
        const lh_chunk *c = lh_pipeline_chunk(p.pipeline, 1);

        for (int k = 0; k < ADAPTRA_SYSTEMS; k++) {
            adaptra_system system = (adaptra_system)k;

            fprintf(to, "| %s | %u | %.1f, %.1f, %.1f | %.2f | %s |", m->name,
                    m->tensor * m->data * m->pipeline, (double)c->f_ns / 1e6,
                    (double)c->d_ns / 1e6, (double)c->w_ns / 1e6,
                    p.copy_ns / 1e6, adaptra_names[k]);
            fprintf(to, " %.0f | %.0f | %.0f | %.0f | %.0f |\n",
                    system_ms(&p, 0, 0, system), system_ms(&p, 1, 30, system),
                    system_ms(&p, 1, 60, system),
                    system_ms(&p, last_link(m), 30, system),
                    system_ms(&p, last_link(m), 60, system));
        }
        lh_pipeline_free(p.pipeline);
    }
}

/* --- claims ------------------------------------------------------------- */

static void claim(score *s, FILE *to, const char *where, const char *claimed,
                  score_row row, int digits, const char *unit, const char *why)
{
    const score_line l = {.where = where,
                          .claimed = claimed,
                          .run = "jobs of table 2",
                          .row = row,
                          .digits = digits,
                          .unit = unit,
                          .as = SCORE_INFORMATIVE,
                          .why = why};

    score_print_line(s, &l, to);
}

/* Computes figure 1's causes for the 14B model, if receives are posted so. */
static adaptra_causes_60 compute_causes(const predicted *p,
                                        lh_receives receives)
{
    static const paper_run nonblocking[] = {{.method = "1f1b"},
                                            {.method = "zb-h2"}};
    const unsigned link = last_link(&models[B14]);
    adaptra_causes_60 c;

    for (int k = ADAPTRA_1F1B; k <= ADAPTRA_ZB; k++) {
        const bool joint = k == ADAPTRA_1F1B;
        paper_run direct = adaptra_runs[k];

        direct.receives = receives;
        c.quiet_ms[k] = iteration_ms(p, 0, 0, &direct, joint, DIRECT);
        c.slow_ms[k] = iteration_ms(p, link, 60, &direct, joint, DIRECT);
        c.free_quiet_ms[k] =
            iteration_ms(p, 0, 0, &nonblocking[k], joint, DIRECT);
        c.free_slow_ms[k] =
            iteration_ms(p, link, 60, &nonblocking[k], joint, DIRECT);
    }
    return c;
}

/* Figure 1's causes with the chosen receive mode and with the other one. */
static void claim_1(score *s, FILE *to, const predicted *p)
{
    const adaptra_causes_60 late = compute_causes(p, LH_RECEIVES_LATE);
    const adaptra_causes_60 early = compute_causes(p, LH_RECEIVES_EARLY);

    adaptra_claim_causes(s, to, "jobs of table 2", &late, SCORE_INFORMATIVE,
                         ADAPTRA_LATE);
    adaptra_claim_causes(s, to, "the same, receives posted early", &early,
                         SCORE_VARIANT, "the other receive mode");
}

static void claim_14_and_15(score *s, FILE *to, const predicted p[N_MODELS])
{
    static const double ms[ADAPTRA_SYSTEMS] = {0, 703, 579, 398};
    static const double growth[ADAPTRA_SYSTEMS] = {2.70, 4.24, 2.15, 1.13};
    char text[64];

    claim(s, to, "figure 14", "7B: ZB, quiet",
          score_number(system_ms(&p[B7], 0, 0, ADAPTRA_ZB), 370), 0, " ms",
          "sequence length, n and shapes are guesses, none fitted");
    for (int k = ADAPTRA_ZB; k < ADAPTRA_SYSTEMS; k++) {
        snprintf(text, sizeof text, "7B: %s, 30 ms", adaptra_names[k]);
        claim(s, to, "figure 14", text,
              score_number(system_ms(&p[B7], last_link(&models[B7]), 30,
                                     (adaptra_system)k),
                           ms[k]),
              0, " ms",
              k == ADAPTRA_CPU ? "two errors cancel: passes too long, and too "
                                 "little time added by the delay"
                               : "as for ZB, quiet");
    }
    for (int k = 0; k < ADAPTRA_SYSTEMS; k++) {
        snprintf(text, sizeof text, "14B: %s, 60 ms over quiet",
                 adaptra_names[k]);
        claim(s, to, "figure 15", text,
              score_ratio(system_ms(&p[B14], last_link(&models[B14]), 60,
                                    (adaptra_system)k) /
                              system_ms(&p[B14], 0, 0, (adaptra_system)k),
                          growth[k]),
              2, "", "as above");
    }
}

/* Figure 15's directions: ZB without delay, and Adaptra at 10 to 60 ms. */
static void claim_15_directions(score *s, FILE *to, const predicted *p)
{
    double lead = INFINITY;

    for (int ms = 10; ms <= 60; ms += 10) {
        const unsigned link = last_link(&models[B14]);
        const double full = system_ms(p, link, ms, ADAPTRA_FULL);

        for (int k = 0; k < ADAPTRA_FULL; k++)
            lead = fmin(lead, system_ms(p, link, ms, (adaptra_system)k) / full);
    }
    adaptra_claim_quiet(
        s, to, "figure 15", "14B: 1F1B over ZB, quiet", "jobs of table 2",
        system_ms(p, 0, 0, ADAPTRA_1F1B) / system_ms(p, 0, 0, ADAPTRA_ZB),
        SCORE_INFORMATIVE,
        "the bubbles of 1F1B, in a model without a network, too");
    adaptra_claim_above(s, to, "figure 15",
                        "14B: fastest other system over Adaptra, least of 10 "
                        "to 60 ms",
                        "jobs of table 2", lead, SCORE_INFORMATIVE,
                        "\"consistently outperforms\"; at 10 ms Adaptra-CPU "
                        "is as fast");
}

/* A system's sums over the four models of figure 16: [60 ms?][last?]. */
typedef struct sums {
    double ms[2][2];
} sums;

static sums sum_models(const predicted p[N_MODELS], adaptra_system system)
{
    sums r = {{{0}}};

    for (int i = 0; i < N_COMPARED; i++)
        for (int far = 0; far < 2; far++)
            for (int last = 0; last < 2; last++)
                r.ms[far][last] +=
                    system_ms(&p[i], last ? last_link(&models[i]) : 1,
                              far ? 60 : 30, system);
    return r;
}

static void claim_16(score *s, FILE *to, const predicted p[N_MODELS])
{
    static const double growth[ADAPTRA_SYSTEMS] = {1.49, 1.69, 1.30, 1.07};
    sums of[ADAPTRA_SYSTEMS];
    char text[64];

    for (int k = 0; k < ADAPTRA_SYSTEMS; k++) {
        of[k] = sum_models(p, (adaptra_system)k);
        snprintf(text, sizeof text, "7B to 60B: %s, 60 over 30 ms",
                 adaptra_names[k]);
        claim(s, to, "figure 16", text,
              score_ratio((of[k].ms[1][0] + of[k].ms[1][1]) /
                              (of[k].ms[0][0] + of[k].ms[0][1]),
                          growth[k]),
              2, "", "all four models, the average weighted by time");
    }
    claim(s, to, "figure 16", "7B: Adaptra over 1F1B, 60 ms, last link",
          score_ratio(
              system_ms(&p[B7], last_link(&models[B7]), 60, ADAPTRA_1F1B) /
                  system_ms(&p[B7], last_link(&models[B7]), 60, ADAPTRA_FULL),
              3.71),
          2, "", "as for figure 14");
    claim(s, to, "figure 16", "14B: Adaptra over ZB, 60 ms, last link",
          score_ratio(
              system_ms(&p[B14], last_link(&models[B14]), 60, ADAPTRA_ZB) /
                  system_ms(&p[B14], last_link(&models[B14]), 60, ADAPTRA_FULL),
              3.49),
          2, "", "as above");
    for (int last = 0; last < 2; last++)
        claim(s, to, "figure 16",
              last ? "Adaptra less than Adaptra-CPU, 60 ms, last link"
                   : "Adaptra less than Adaptra-CPU, 60 ms, first link",
              score_number(100 * (1 - of[ADAPTRA_FULL].ms[1][last] /
                                          of[ADAPTRA_CPU].ms[1][last]),
                           last ? 38.4 : 19.3),
              1, " %", "as above");
}

/* Figure 16's directions over the four models, both links and both delays. */
static void claim_16_directions(score *s, FILE *to, const predicted p[N_MODELS])
{
    double lead = INFINITY, location = INFINITY;
    double most[ADAPTRA_FULL] = {0}, at_last[N_COMPARED][ADAPTRA_FULL];

    for (int i = 0; i < N_COMPARED; i++)
        for (int far = 0; far < 2; far++) {
            const double delay_ms = far ? 60 : 30;
            double ms[2][ADAPTRA_SYSTEMS]; /* [last?] */

            for (int last = 0; last < 2; last++)
                for (int k = 0; k < ADAPTRA_SYSTEMS; k++)
                    ms[last][k] =
                        system_ms(&p[i], last ? last_link(&models[i]) : 1,
                                  delay_ms, (adaptra_system)k);
            for (int last = 0; last < 2; last++)
                for (int k = 0; k < ADAPTRA_FULL; k++) {
                    const double speedup = ms[last][k] / ms[last][ADAPTRA_FULL];

                    lead = fmin(lead, speedup);
                    most[k] = fmax(most[k], speedup);
                    at_last[i][k] = speedup; /* ends with 60 ms, last link */
                }
            location = fmin(location, ms[1][ADAPTRA_ZB] / ms[0][ADAPTRA_ZB]);
        }
    adaptra_claim_above(s, to, "figure 16",
                        "fastest other system over Adaptra, least of 16 "
                        "settings",
                        "jobs of table 2", lead, SCORE_INFORMATIVE,
                        "\"consistently outperforms\"; with the first link "
                        "slow Adaptra-CPU is as fast");
    adaptra_claim_peak(s, to,
                       "7B, 60 ms, last link: over 1F1B, by the largest of 16 "
                       "settings",
                       "jobs of table 2",
                       at_last[B7][ADAPTRA_1F1B] / most[ADAPTRA_1F1B]);
    adaptra_claim_peak(s, to,
                       "14B, 60 ms, last link: over ZB, by the largest of 16 "
                       "settings",
                       "jobs of table 2",
                       at_last[B14][ADAPTRA_ZB] / most[ADAPTRA_ZB]);
    adaptra_claim_above(s, to, "figure 16",
                        "ZB: last over first link, least of eight settings",
                        "jobs of table 2", location, SCORE_INFORMATIVE,
                        "\"difficult to hide\"; the 60B model at 30 ms; "
                        "receives as in figure 1");
}

static void claim_17(score *s, FILE *to, const predicted p[N_MODELS])
{
    static const unsigned sets[] = {1 | 1 << 1, 1 | 1 << 2, 1 | 1 << 6,
                                    1 | 1 << 3 | 1 << 6};
    static const double less[ADAPTRA_FULL] = {51.6, 57.5, 23.1};
    char text[64];

    for (int k = 0; k < ADAPTRA_FULL; k++) {
        double left = 0; /* sum of Adaptra's shares of the system's time */

        for (int i = 0; i < 4; i++)
            left += system_ms(&p[B14], sets[i], 30, ADAPTRA_FULL) /
                    system_ms(&p[B14], sets[i], 30, (adaptra_system)k);
        snprintf(text, sizeof text, "14B: Adaptra less than %s, mean",
                 adaptra_names[k]);
        claim(s, to, "figure 17", text,
              score_number(100 * (1 - left / 4), less[k]), 1, " %", "as above");
    }
}

/* All messages over the hosts, without slow links. */
static void claim_20(score *s, FILE *to, const predicted p[N_MODELS])
{
    double over_1f1b = 0;

    for (int i = 0; i < N_COMPARED; i++) {
        const paper_run *zb = &adaptra_runs[ADAPTRA_ZB];
        double direct = iteration_ms(&p[i], 0, 0, zb, false, DIRECT);
        double copied = iteration_ms(&p[i], 0, 0, &adaptra_runs[ADAPTRA_CPU],
                                     false, DELEGATED);
        char text[64];

        snprintf(text, sizeof text, "%s: all messages by the host, %s ZB",
                 models[i].name, i == B60 ? "more than" : "over");
        if (i == B60)
            claim(s, to, "figure 20", text,
                  score_number(100 * (copied / direct - 1), 17), 1, " %",
                  "copies at 50 GB/s; the direct path blocks sends");
        else /* a ratio, which a model without any effect has as 1 */
            claim(s, to, "figure 20", text,
                  (score_row){.value = copied / direct,
                              .high = 1.05,
                              .has_high = true,
                              .is_ratio = true},
                  3, "", "copies at 50 GB/s; the direct path blocks sends");
        over_1f1b = i == B60
                        ? over_1f1b
                        : fmax(over_1f1b,
                               copied / system_ms(&p[i], 0, 0, ADAPTRA_1F1B));
    }
    claim(s, to, "figure 20",
          "7B to 30B: all messages by the host, over 1F1B, largest",
          (score_row){.value = over_1f1b,
                      .high = 1.05,
                      .has_high = true,
                      .is_ratio = true},
          3, "", "as above");
}

enum { STEPS = 1200 };

/* Sets ms[step] to a system's iteration times over the trace. */
static void run_trace(const predicted *p, const lh_events *events,
                      adaptra_system system, double ms[STEPS])
{
    double quiet = system_ms(p, 0, 0, system);

    for (int step = 0; step < STEPS; step++)
        ms[step] = quiet;
    for (uint32_t i = 0; i < events->n_events; i++) {
        const lh_event *e = &events->events[i];
        unsigned links = 0;

        for (uint32_t j = 0; j < e->n_links; j++)
            links |= 1u << atoi(e->links[j]);
        double slow = system_ms(p, links, (double)e->latency_ns / 1e6, system);

        for (int64_t step = e->first_step; step < e->end_step; step++)
            ms[step] = slow;
    }
}

static double sum_trace(const double ms[STEPS])
{
    double sum = 0;

    for (int step = 0; step < STEPS; step++)
        sum += ms[step];
    return sum;
}

/* Finds the first iteration of the slowest event. */
static int find_slowest(const double ms[STEPS])
{
    int slowest = 0;

    for (int step = 0; step < STEPS; step++)
        if (ms[step] > ms[slowest])
            slowest = step;
    return slowest;
}

static void claim_21(score *s, FILE *to, const predicted *p, const char *folder)
{
    static const double minutes[ADAPTRA_SYSTEMS] = {45.4, 46.9, 0, 33.2};
    static double ms[ADAPTRA_SYSTEMS][STEPS];
    lh_events *events = adaptra_events(folder);
    adaptra_rates r;
    char text[64];

    for (int k = 0; k < ADAPTRA_SYSTEMS; k++) {
        run_trace(p, events, (adaptra_system)k, ms[k]);
        r.quiet_s[k] = system_ms(p, 0, 0, (adaptra_system)k) / 1e3;
        if (minutes[k] == 0)
            continue;
        snprintf(text, sizeof text, "140B: %s, 1,200 iterations",
                 adaptra_names[k]);
        claim(s, to, "figure 21", text,
              score_number(sum_trace(ms[k]) / 60e3, minutes[k]), 1, " min",
              k == ADAPTRA_FULL
                  ? "128 GPUs"
                  : "128 GPUs; without the restart, which is in the paper");
    }
    int slowest = find_slowest(ms[ADAPTRA_ZB]);

    for (int k = 0; k < ADAPTRA_SYSTEMS; k++)
        r.slowest_s[k] = ms[k][slowest] / 1e3;
    r.median_s = adaptra_median(ms[ADAPTRA_FULL], STEPS) / 1e3;
    adaptra_claim_rates(s, to, "jobs of table 2", &r, false);
    lh_events_free(events);
}

void adaptra_claim_jobs(score *s, FILE *to, const char *folder)
{
    predicted p[N_MODELS];

    for (int i = 0; i < N_MODELS; i++)
        p[i] = predict(&models[i]);
    claim_1(s, to, &p[B14]);
    claim_14_and_15(s, to, p);
    claim_15_directions(s, to, &p[B14]);
    claim_16(s, to, p);
    claim_16_directions(s, to, p);
    claim_17(s, to, p);
    claim_20(s, to, p);
    claim_21(s, to, &p[B140], folder);
    for (int i = 0; i < N_MODELS; i++)
        lh_pipeline_free(p[i].pipeline);
}
