/* SPDX-License-Identifier: Apache-2.0 */
/* Computes Adaptra's figure 19 and equation 1 on random profiles: optimality
 * gaps of its schedules, and the delays that they absorb. */
#include "adaptra.h"

#include <math.h>

enum { PROFILES = 25 };

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Draws whole milliseconds, in ns. */
static int64_t draw_ns(uint64_t *state, uint64_t least_ms, uint64_t most_ms)
{
    return (int64_t)((least_ms + draw(state) % (most_ms - least_ms + 1)) *
                     1000000);
}

/* Passes of the stages and delays of the links between them. */
typedef struct profile {
    unsigned stages, microbatches;
    lh_chunk chunks[ADAPTRA_MOST_STAGES];
    int64_t delays_ns[ADAPTRA_MOST_STAGES];
} profile;

/* Draws F, B and W between 5 and 15 ms and delays up to `most_delay_ms`. */
static profile draw_profile(unsigned stages, unsigned microbatches,
                            unsigned most_delay_ms, uint64_t seed)
{
    profile r = {.stages = stages, .microbatches = microbatches};

    for (unsigned d = 0; d < stages; d++)
        r.chunks[d] = (lh_chunk){.device = d,
                                 .f_ns = draw_ns(&seed, 5, 15),
                                 .d_ns = draw_ns(&seed, 5, 15),
                                 .w_ns = draw_ns(&seed, 5, 15),
                                 .mem_f = 1,
                                 .mem_w = -1};
    for (unsigned d = 0; d + 1 < stages; d++)
        r.delays_ns[d] = draw_ns(&seed, 0, most_delay_ms);
    return r;
}

static lh_pipeline *build_profile(const profile *r)
{
    lh_link links[2 * ADAPTRA_MOST_STAGES] = {{0}};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = r->stages,
                             .n_microbatches = r->microbatches,
                             .n_chunks = r->stages,
                             .chunks = r->chunks,
                             .links = links};
    lh_pipeline *p = NULL;
    lh_error err = {0};

    for (unsigned d = 0; d + 1 < r->stages; d++)
        for (unsigned back = 0; back < 2; back++)
            links[desc.n_links++] = (lh_link){.from = d + back,
                                              .to = d + 1 - back,
                                              .latency_ns = r->delays_ns[d]};
    paper_check_status(lh_pipeline_make(&desc, &p, &err), &err);
    return p;
}

/* Sum and maximum over the optimality gaps. */
typedef struct gaps {
    double sum, worst; /* percent */
    unsigned within, proven;
} gaps;

static void add_gap(gaps *g, const lh_pipeline *p)
{
    paper_best best = paper_solve(p, 2000000);
    double gap =
        100 *
        (paper_run_on(p, &adaptra_runs[ADAPTRA_FULL]).ms / best.bound_ms - 1);

    g->sum += gap;
    g->worst = fmax(g->worst, gap);
    g->within += gap < 1;
    g->proven += best.proven;
}

static gaps find_gaps(unsigned stages, unsigned microbatches,
                      unsigned most_delay_ms)
{
    gaps g = {0};

    for (uint64_t seed = 0; seed < PROFILES; seed++) {
        const profile r =
            draw_profile(stages, microbatches, most_delay_ms, seed);
        lh_pipeline *p = build_profile(&r);

        add_gap(&g, p);
        lh_pipeline_free(p);
    }
    return g;
}

static void print_gaps(FILE *to, unsigned stages, unsigned microbatches,
                       unsigned most_delay_ms)
{
    gaps g = find_gaps(stages, microbatches, most_delay_ms);

    fprintf(to, "| %u, %u | 0 to %u | %.2f %% | %.2f %% | %u of %d | %u |\n",
            stages, microbatches, most_delay_ms, g.sum / PROFILES, g.worst,
            g.within, PROFILES, g.proven);
}

void adaptra_optima(FILE *to, const page_options *how)
{
    static const unsigned sizes[][2] = {{3, 6}, {4, 12}, {6, 24}, {8, 32}};
    static const unsigned delays_ms[] = {0, 10, 40};

    fputs("| stages, microbatches | delays, ms | mean gap | worst | below 1 % "
          "| optimum proven |\n| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i < (how->quick ? 1 : 4); i++)
        for (int k = 0; k < 3; k++)
            print_gaps(to, sizes[i][0], sizes[i][1], delays_ms[k]);
}

/* --- equation 1 --------------------------------------------------------- */

enum { UNEQUAL_STAGES = 4, UNEQUAL_MICROBATCHES = 30, SLACKNESS = 3 };

/* Returns the makespan of a schedule built without delay, with a delay of the
 * last link. */
static double delayed_ms(profile r, const char *method, double delay_ms)
{
    uint32_t warmup[UNEQUAL_STAGES];
    const paper_run how = {.method = method, .warmup = warmup};
    lh_pipeline *quiet = build_profile(&r);

    for (unsigned i = 0; i < UNEQUAL_STAGES; i++)
        warmup[i] = 1 + (UNEQUAL_STAGES - 1 - i) * SLACKNESS;
    r.delays_ns[UNEQUAL_STAGES - 2] = (int64_t)(delay_ms * 1e6);
    lh_pipeline *slow = build_profile(&r);
    const double ms = paper_replay_on(quiet, slow, &how).ms;

    lh_pipeline_free(quiet);
    lh_pipeline_free(slow);
    return ms;
}

/* Returns the longest delay of the last link that equation 1 absorbs. */
static double absorbed_ms(const profile *r)
{
    const lh_chunk *of = &r->chunks[UNEQUAL_STAGES - 2], *next = of + 1;

    return (double)(SLACKNESS * (next->f_ns + next->d_ns) - of->f_ns -
                    of->d_ns) /
           2e6;
}

/* Checks whether equation 1 divides the delays that add at most themselves from
 * those beyond, which add more. */
static bool is_divided(const profile *r, const char *method)
{
    enum { BEYOND_MS = 10 };
    const double limit_ms = absorbed_ms(r);
    const double quiet = delayed_ms(*r, method, 0);
    const double at_limit = delayed_ms(*r, method, limit_ms);
    const double beyond = delayed_ms(*r, method, limit_ms + BEYOND_MS);

    return at_limit - quiet <= limit_ms && beyond - at_limit > BEYOND_MS;
}

/* Adds equation 1, theorem 1 for unequal passes: a delay causes no cascading
 * bubbles "if and only if" it is within the equation. */
static void claim_unequal(score *s, FILE *to, const char *method,
                          const char *run, score_class as, const char *why)
{
    unsigned divided = 0;

    for (uint64_t seed = 0; seed < PROFILES; seed++) {
        const profile r =
            draw_profile(UNEQUAL_STAGES, UNEQUAL_MICROBATCHES, 0, seed);

        divided += is_divided(&r, method);
    }
    const score_line l = {
        "equation 1",
        "unequal passes: profiles of 25 in which the longest delay that it "
        "absorbs adds at most itself, and 10 ms more add more than 10 ms",
        run,
        score_number(divided, PROFILES),
        .digits = 0,
        .unit = "",
        .as = as,
        .why = why};

    score_print_line(s, &l, to);
}

void adaptra_claim_unequal(score *s, FILE *to)
{
    claim_unequal(s, to, "slack", "algorithms 1, 3 and 4", SCORE_INFORMATIVE,
                  "\"if and only if\"; 4 stages, 30 microbatches, slackness 3, "
                  "passes of 5 to 15 ms");
    claim_unequal(s, to, "steady-slack", "`steady-slack`", SCORE_VARIANT,
                  "keeps its slackness, which the theorem's proof assumes");
}

void adaptra_claim_gaps(score *s, FILE *to)
{
    gaps g = find_gaps(3, 6, 40);
    score_line l = {"figure 19",
                    "gap to the optimum, worst of 25 profiles, 3 stages, 6 "
                    "microbatches",
                    "`slack`, optimum proven",
                    {.value = g.worst, .high = 1, .has_high = true},
                    .digits = 2,
                    .unit = " %",
                    .as = SCORE_INFORMATIVE,
                    .why = "the paper's profiles are not described; delays of "
                           "0 to 40 ms here"};

    score_print_line(s, &l, to);
    l.claimed = "the same, mean";
    l.row.value = g.sum / PROFILES;
    l.as = SCORE_VARIANT;
    l.why = "the claim is of all settings";
    score_print_line(s, &l, to);
}
