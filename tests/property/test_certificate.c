/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tiny pipelines: every claim of optimality can be verified,
 * and the verifier accepts no false claim.
 *
 *     test_certificate [CASES [FIRST]] */
#include "brute.h"
#include "cases.h"
#include "random_pipeline.h"
#include "schedule/certificate/certificate.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/verifier/model.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/pipeline.h>
#include <stdlib.h>

static uint32_t n_cases = 400, first_case;
static uint32_t kinds[5], verified[5], n_clauses, n_lies, n_enumerated;

/* Statements in the verifier's order, if no second schedule is given. */
enum { PIPELINE, SCHEDULE, PROOF };

/* Verifies the proof alone: a false bound is also above the makespan, which
 * another statement rejects. */
static lh_claim_status check_proof(const lh_pipeline *p,
                                   const lh_certificate *c)
{
    lh_claims *claims = NULL;
    lh_error err = {0};
    CHECK_OK(lh_check_certificate(p, NULL, c, &claims, &err), err);
    CHECK(claims && lh_n_claims(claims) > PROOF);
    lh_claim_status status = claims && lh_n_claims(claims) > PROOF
                                 ? lh_claims_status(claims, PROOF)
                                 : LH_CLAIM_VERIFIED;
    lh_claims_free(claims);
    return status;
}

/* Verifies all statements; prints them if `show`. */
static lh_claim_status check(const lh_pipeline *p, const lh_certificate *c,
                             bool show)
{
    lh_claims *claims = NULL;
    lh_error err = {0};
    CHECK_OK(lh_check_certificate(p, NULL, c, &claims, &err), err);
    if (!claims)
        return LH_CLAIM_WRONG;
    lh_claim_status status = lh_claims_verdict(claims);
    for (uint32_t i = 0; show && i < lh_n_claims(claims); i++)
        fprintf(stderr, "  %s: %s\n",
                lh_claim_status_name(lh_claims_status(claims, i)),
                lh_claims_text(claims, i));
    lh_claims_free(claims);
    return status;
}

/* Checks that the certificate is unchanged after a round trip through its file
 * format. */
static void check_text(const lh_certificate *c)
{
    char *a = NULL, *b = NULL;
    size_t n, m;
    lh_certificate *again = NULL;
    lh_error err = {0};
    CHECK_OK(lh_certificate_format(c, &a, &n, &err), err);
    CHECK_OK(lhi_certificate_parse(a, n, "c.json", &again, &err), err);
    if (again) {
        CHECK_OK(lh_certificate_format(again, &b, &m, &err), err);
        CHECK_STR(b, a);
    }
    lh_certificate_free(again);
    lh_text_free(a);
    lh_text_free(b);
}

/* Checks that a closed form is refuted without its last term, and with another
 * first one. */
static void check_terms(const lh_pipeline *p, const lh_certificate *c)
{
    lh_certificate lie = *c;
    lh_bound_term first = c->terms[0];
    lie.n_terms--;
    CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
    first.ns++;
    lie.n_terms = 1;
    lie.terms = &first;
    CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
}

/* Claims falsely that the schedule's own makespan is unreachable. Neither
 * windows nor clauses may refute it, even if clauses are valid for a shorter
 * deadline or invented. */
static void check_lies(const lh_pipeline *p, const lh_certificate *c, rng *r)
{
    lh_certificate lie = *c;
    lie.bound_ns = lie.makespan_ns + 1;
    lie.refuted_ns = lie.makespan_ns;
    if (c->kind == LH_PROOF_CLOSED_FORM) {
        CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
        check_terms(p, c);
        lie.kind = LH_PROOF_SEARCH;
        lie.n_clauses = 0;
    }
    lie.n_rows = 0;
    CHECK(check_proof(p, &lie) != LH_CLAIM_VERIFIED);
    CHECK(check(p, &lie, false) != LH_CLAIM_VERIFIED);
    /* Raises the claimed makespan to the false bound: the certificate must
     * still not be verified. */
    lie.makespan_ns++;
    CHECK(check(p, &lie, false) != LH_CLAIM_VERIFIED);
    lie.makespan_ns--;
    lie.kind = LH_PROOF_PASS_KINDS;
    for (uint32_t d = 0; d <= lh_pipeline_n_devices(p); d++) {
        lie.device = d;
        CHECK(check_proof(p, &lie) != LH_CLAIM_VERIFIED);
    }
    lie.device = c->device;
    lie.kind = LH_PROOF_WINDOWS;
    CHECK(check_proof(p, &lie) != LH_CLAIM_VERIFIED);
    enum { CLAUSES = 12, ORDERS = 3 };
    lh_proof_order orders[CLAUSES * ORDERS];
    lh_proof_clause clauses[CLAUSES];
    uint32_t n = lh_pipeline_n_microbatches(p);
    bool joint = lhi_pipeline_is_joint(p);
    for (uint32_t i = 0; i < CLAUSES * ORDERS; i++) {
        lh_proof_order *o = &orders[i];
        static const uint8_t split[] = {LH_F, LH_D, LH_W};
        static const uint8_t whole[] = {LH_F, LH_B, LH_B};
        lh_pass *both[2] = {&o->first, &o->second};
        o->messages = rng_chance(r, 10);
        for (int k = 0; k < 2; k++)
            *both[k] =
                (lh_pass){.chunk = rng_below(r, lh_pipeline_n_chunks(p)),
                          .microbatch = rng_below(r, n),
                          .n_parts = 1,
                          .kind = (joint ? whole : split)[rng_below(r, 3)]};
        o->second.chunk = rng_chance(r, 80) ? o->first.chunk : o->second.chunk;
    }
    for (uint32_t i = 0; i < CLAUSES; i++)
        clauses[i] =
            (lh_proof_clause){1 + rng_below(r, ORDERS), &orders[i * ORDERS]};
    lie.kind = LH_PROOF_SEARCH;
    lie.clauses = clauses;
    lie.n_clauses = CLAUSES;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(check_proof(p, &lie) != LH_CLAIM_VERIFIED);
        CHECK(check(p, &lie, false) == LH_CLAIM_WRONG);
        lie.clauses++;
        lie.n_clauses--;
    }
    n_lies += 6;
}

/* Compares a verified bound with brute force: no schedule is faster. */
static void check_bound(const lh_pipeline *p, const lh_certificate *c)
{
    brute_options o = {.below_ns = c->bound_ns, .parts = 1, .most = 20000};
    brute_answer answer = brute_force(p, &o);
    CHECK(answer != BRUTE_FASTER);
    n_enumerated += answer == BRUTE_NONE;
}

static void certify(uint32_t number)
{
    rng r = {number};
    random_shape shape = {.max_devices = 4, .max_chunks = 2};
    shape.max_microbatches = 2 + rng_below(&r, 5);
    shape.no_zero_times = rng_chance(&r, 80);
    if (rng_chance(&r, 40))
        shape.links = LINKS_SHARED;
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_solve_options o = {.size = sizeof o, .effort = 3000000};
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    if (s.schedule)
        CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
    if (c) {
        lh_claim_status status = check(p, c, false);
        kinds[c->kind]++;
        verified[c->kind] += status == LH_CLAIM_VERIFIED;
        n_clauses += c->n_clauses;
        CHECK(status != LH_CLAIM_WRONG);
        CHECK(s.status == LH_SOLVE_OPTIMAL || status != LH_CLAIM_VERIFIED);
        CHECK((c->kind == LH_PROOF_NONE) == (s.status != LH_SOLVE_OPTIMAL));
        if (status == LH_CLAIM_VERIFIED)
            check_bound(p, c);
        check_text(c);
        check_lies(p, c, &r);
        if (test_state.bad) {
            fprintf(stderr, "case %u, %s\n", number,
                    lh_proof_kind_name(c->kind));
            check(p, c, true);
            print_case(p, s.schedule);
        }
    }
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void proofs_are_checked(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        certify(first_case + i);
    for (int k = 0; k < 5; k++)
        printf("%s: %u, %u verified\n", lh_proof_kind_name((lh_proof_kind)k),
               kinds[k], verified[k]);
    printf("%u clauses, %u lies, %u bounds enumerated\n", n_clauses, n_lies,
           n_enumerated);
    CHECK(n_cases < 100 || n_enumerated > n_cases / 4);
    CHECK_INT(verified[LH_PROOF_CLOSED_FORM], kinds[LH_PROOF_CLOSED_FORM]);
    CHECK_INT(verified[LH_PROOF_PASS_KINDS], kinds[LH_PROOF_PASS_KINDS]);
    CHECK_INT(verified[LH_PROOF_WINDOWS], kinds[LH_PROOF_WINDOWS]);
}

/* A schedule that is not optimal: the certificate records the bound, which the
 * verifier proves again. It refuses the next larger bound. */
static void bound_below_the_makespan_is_checked(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "loop",
                                            .devices = 4,
                                            .microbatches = 8,
                                            .f = 38,
                                            .d = 48,
                                            .w = 20,
                                            .datacenters = 2,
                                            .latency = 9.5,
                                            .transfer = 9.5,
                                            .memory = 8});
    /* Without these engines the best schedule remains above the optimum. */
    lh_solve_options o = {.size = sizeof o,
                          .effort = 20000,
                          .disabled_engines =
                              "lattice,live,search,beams,dispatching,tuning,"
                              "annealing,justification,neighbourhoods"};
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(s.status, LH_SOLVE_FEASIBLE);
    CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
    CHECK_INT(c->kind, LH_PROOF_PASS_KINDS);
    CHECK_INT(check_proof(p, c), LH_CLAIM_VERIFIED);
    CHECK_INT(check(p, c, false), LH_CLAIM_UNVERIFIED);
    check_text(c);
    lh_certificate lie = *c;
    lie.bound_ns += 500000; /* all times are multiples of half a ms */
    lie.refuted_ns += 500000;
    CHECK_INT(check_proof(p, &lie), LH_CLAIM_UNVERIFIED);
    lie.refuted_ns = c->refuted_ns;
    CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

/* --- clauses on one device, by enumeration ------------------------------- */

/* A device with one chunk and PASSES passes of each kind: F, D, W. */
enum { KINDS = 3, PASSES = 5, MOST_ORDERS = 6006, CLAUSES_EACH = 40 };

/* Memory of a pass by kind, and all orders that the limit permits. */
typedef struct device_orders {
    int memory[KINDS], limit;
    uint32_t n;
    uint8_t at[MOST_ORDERS][KINDS][PASSES]; /* positions of the passes */
} device_orders;

/* Adds all orders that begin with the first done[kind] passes of each kind,
 * which hold `held`. D and W follow their microbatch's F and D. An increase
 * counts from the pass's start, a decrease from its end. */
static void enumerate(device_orders *x, uint32_t *done, int held,
                      uint8_t at[KINDS][PASSES])
{
    const uint32_t n = done[0] + done[1] + done[2];
    if (n == KINDS * PASSES)
        memcpy(x->at[x->n++], at, sizeof x->at[0]);
    for (uint32_t k = 0; k < KINDS; k++) {
        const int peak = held + (x->memory[k] > 0 ? x->memory[k] : 0);
        if (done[k] == (k == 0 ? PASSES : done[k - 1]) || peak > x->limit)
            continue;
        at[k][done[k]++] = (uint8_t)n;
        enumerate(x, done, held + x->memory[k], at);
        done[k]--;
    }
}

/* Draws memory amounts that add up to 0 over a microbatch. D often releases a
 * part; a limit of one microbatch to all. */
static void draw_device(rng *r, device_orders *x)
{
    uint32_t done[KINDS] = {0};
    uint8_t at[KINDS][PASSES];
    x->memory[0] = 1 + (int)rng_below(r, 5);
    x->memory[1] = 1 - (int)rng_below(r, (uint32_t)x->memory[0] + 2);
    x->memory[2] = -x->memory[0] - x->memory[1];
    x->limit =
        x->memory[0] * (1 + (int)rng_below(r, PASSES)) + (int)rng_below(r, 3);
    x->n = 0;
    enumerate(x, done, 0, at);
}

/* Passes of one millisecond each: every order ends at the same time. */
static lh_pipeline *make_device(const device_orders *x)
{
    char text[300];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %d\n"
             "devices: 1\nmemory_limit: %d\nchunks:\n"
             "  - {device: 0, F: 1, D: 1, W: 1, "
             "memory: {F: %d, D: %d, W: %d}}\n",
             PASSES, x->limit, x->memory[0], x->memory[1], x->memory[2]);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    return p;
}

/* Checks whether each order has one of the clause's orders of two passes. */
static bool is_true(const device_orders *x, const lh_proof_clause *clause)
{
    for (uint32_t i = 0; i < x->n; i++) {
        bool holds = false;
        for (uint32_t k = 0; k < clause->n_orders; k++) {
            const lh_pass a = clause->orders[k].first;
            const lh_pass b = clause->orders[k].second;
            holds = holds || x->at[i][a.kind][a.microbatch] <
                                 x->at[i][b.kind][b.microbatch];
        }
        if (!holds)
            return false;
    }
    return true;
}

/* Checks whether the verifier derives a clause for a device that all orders
 * keep busy until the deadline. */
static bool is_derived(const lh_pipeline *p, const lh_proof_clause *clause)
{
    const lh_certificate c = {.n_clauses = 1, .clauses = clause};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_verify_model *model = NULL;
    const char *why = NULL;
    bool refuted = false;
    uint32_t bad = LH_NONE;
    lh_error err = {0};
    CHECK_OK(lhi_verify_model_make(p, 1, 1000000, mem, &model, &why, &err),
             err);
    CHECK(model != NULL);
    const int64_t deadline =
        lhi_verify_get_deadline(model, KINDS * PASSES * INT64_C(1000000));
    CHECK_OK(
        lhi_verify_check_clauses(model, deadline, &c, &bad, &refuted, &err),
        err);
    CHECK(!refuted);
    lhi_verify_model_fini(model);
    lhi_arena_free(mem);
    return bad == LH_NONE;
}

/* Random clauses of one to three orders: the verifier derives none that is
 * false for some order within the memory limit. */
static void false_clauses_are_not_derived(void)
{
    static device_orders x;
    uint32_t n_derived = 0, n_false = 0;
    for (uint32_t seed = 0; seed < OF_CASES(150) && !test_state.bad; seed++) {
        rng r = {seed};
        draw_device(&r, &x);
        if (x.n == 0)
            continue;
        lh_pipeline *p = make_device(&x);
        for (uint32_t i = 0; i < CLAUSES_EACH; i++) {
            lh_proof_order orders[3] = {{{0}, {0}, false}};
            const lh_proof_clause clause = {1 + rng_below(&r, 3), orders};
            for (uint32_t k = 0; k < clause.n_orders; k++) {
                const uint32_t kind = rng_below(&r, KINDS);
                orders[k].first.kind = (uint8_t)kind;
                orders[k].second.kind =
                    (uint8_t)((kind + 1 + rng_below(&r, KINDS - 1)) % KINDS);
                orders[k].first.microbatch = rng_below(&r, PASSES);
                orders[k].second.microbatch = rng_below(&r, PASSES);
                orders[k].first.n_parts = orders[k].second.n_parts = 1;
            }
            const bool truth = is_true(&x, &clause);
            const bool derived = is_derived(p, &clause);
            CHECK(truth || !derived);
            n_derived += derived;
            n_false += !truth;
        }
        if (test_state.bad)
            fprintf(stderr, "device %u: memory %d %d %d, limit %d\n", seed,
                    x.memory[0], x.memory[1], x.memory[2], x.limit);
        lh_pipeline_free(p);
    }
    printf("%u clauses derived, %u false\n", n_derived, n_false);
    CHECK(n_derived > 100 && n_false > 100);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(proofs_are_checked);
    RUN(bound_below_the_makespan_is_checked);
    RUN(false_clauses_are_not_derived);
    return test_summary();
}
