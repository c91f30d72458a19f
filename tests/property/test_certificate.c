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
static uint32_t n_derived[2]; /* no, yes */

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
 * number, duration or name of a term. */
static void check_terms(const lh_pipeline *p, const lh_certificate *c)
{
    lh_certificate lie = *c;
    lh_bound_term terms[LH_BOUND_TERMS];
    lie.n_terms--;
    CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
    lie.n_terms++;
    lie.terms = terms;
    for (uint32_t i = 0; i < c->n_terms; i++) {
        memcpy(terms, c->terms, c->n_terms * sizeof *terms);
        terms[i].ns++;
        CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
        terms[i] = c->terms[i];
        terms[i].times++;
        CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
        terms[i] = c->terms[i];
        terms[i].name = "";
        CHECK_INT(check_proof(p, &lie), LH_CLAIM_WRONG);
    }
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

/* Memory for two activations on device 1: it ends all F and D after all but two
 * W. Then the gradient travels for 100 ms, and D on device 0 takes 1 ms, which
 * is longer than two W. */
static void closed_form_counts_w_that_memory_requires(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 5\ndevices: 2\n"
        "memory_limit: 2\nchunks:\n"
        "  - {device: 0, F: 1, D: 1, W: 1}\n"
        "  - {device: 1, F: 10, D: 10, W: 10, memory: {F: 1, D: 0, W: -1}}\n"
        "links:\n  - {from: 0, to: 1, latency: 100}\n"
        "  - {from: 1, to: 0, latency: 100}\n";
    const lh_solve_options o = {.size = sizeof o, .effort = 100000};
    lh_pipeline *p = NULL;
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
    CHECK_INT(c->kind, LH_PROOF_CLOSED_FORM);
    CHECK_INT(c->n_terms, 4);
    /* 0F0 and its message, 5 F and D, 3 W, the last message, 0D4, 0W4. */
    CHECK_INT(c->bound_ns, INT64_C(1000000) * (101 + 100 + 30 + 102));
    CHECK_STR(c->terms[2].name, "W that memory asks for");
    CHECK_INT(check_proof(p, c), LH_CLAIM_VERIFIED);
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
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

/* Checks clauses with the verifier for schedules that end by `ms`. *refuted:
 * there are none. Returns the first clause that does not follow, or LH_NONE. */
static uint32_t find_bad_clause(const lh_pipeline *p, int64_t ms, uint32_t n,
                                const lh_proof_clause *clauses, bool *refuted)
{
    const lh_certificate c = {.n_clauses = n, .clauses = clauses};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_verify_model *model = NULL;
    const char *why = NULL;
    uint32_t bad = LH_NONE;
    lh_error err = {0};
    CHECK_OK(lhi_verify_model_make(p, 1, 1000000, mem, &model, &why, &err),
             err);
    CHECK(model != NULL);
    const int64_t deadline = lhi_verify_get_deadline(model, ms * 1000000);
    CHECK_OK(lhi_verify_check_clauses(model, deadline, &c, &bad, refuted, &err),
             err);
    lhi_verify_model_fini(model);
    lhi_arena_free(mem);
    return bad;
}

/* Draws an order of two passes of different kinds on a device. */
static lh_proof_order draw_order(rng *r, uint32_t device, uint32_t n)
{
    const uint32_t kind = rng_below(r, KINDS);
    const uint32_t other = (kind + 1 + rng_below(r, KINDS - 1)) % KINDS;
    return (lh_proof_order){.first = {.chunk = device,
                                      .microbatch = rng_below(r, n),
                                      .n_parts = 1,
                                      .kind = (uint8_t)kind},
                            .second = {.chunk = device,
                                       .microbatch = rng_below(r, n),
                                       .n_parts = 1,
                                       .kind = (uint8_t)other}};
}

/* Random clauses of one to three orders: the verifier derives none, also not
 * from those derived before, that is false for some order within the memory
 * limit. All orders keep the device busy until the deadline. */
static void false_clauses_are_not_derived(void)
{
    static device_orders x;
    uint32_t n_true = 0, n_false = 0;
    for (uint32_t seed = 0; seed < OF_CASES(150) && !test_state.bad; seed++) {
        rng r = {seed};
        draw_device(&r, &x);
        if (x.n == 0)
            continue;
        lh_pipeline *p = make_device(&x);
        lh_proof_order orders[CLAUSES_EACH][3];
        lh_proof_clause kept[CLAUSES_EACH];
        uint32_t n = 0;
        for (uint32_t i = 0; i < CLAUSES_EACH; i++) {
            bool refuted = false;
            kept[n] = (lh_proof_clause){1 + rng_below(&r, 3), orders[i]};
            for (uint32_t k = 0; k < kept[n].n_orders; k++)
                orders[i][k] = draw_order(&r, 0, PASSES);
            const bool truth = is_true(&x, &kept[n]);
            const uint32_t bad = find_bad_clause(p, (int64_t)KINDS * PASSES,
                                                 n + 1, kept, &refuted);
            CHECK(!refuted && (bad == LH_NONE || bad == n));
            CHECK(truth || bad == n);
            n_true += bad == LH_NONE;
            n += bad == LH_NONE;
            n_false += !truth;
        }
        if (test_state.bad)
            fprintf(stderr, "device %u: memory %d %d %d, limit %d\n", seed,
                    x.memory[0], x.memory[1], x.memory[2], x.limit);
        lh_pipeline_free(p);
    }
    printf("%u clauses derived, %u false\n", n_true, n_false);
    CHECK(n_true > 100 && n_false > 100);
}

/* --- clauses on two devices, by naive propagation ------------------------ */

/* Two devices with a chunk each, and DRAWN clauses for the pipeline. */
enum {
    DEVICES = 2,
    MICROBATCHES = 4,
    ROWS = DEVICES * KINDS,
    ALL = ROWS * MICROBATCHES,
    DRAWN = 16,
    LONGEST = 8
};

typedef struct two_devices {
    int time[ROWS], memory[ROWS], latency, limit, deadline;
} two_devices;

/* Facts about all passes, row by row: known orders and times. */
typedef struct facts {
    const two_devices *x;
    bool before[ALL][ALL], changed, contradiction;
    int start[ALL], end[ALL];
} facts;

static uint32_t get_op(const lh_pass *pass)
{
    return (pass->chunk * KINDS + pass->kind) * MICROBATCHES + pass->microbatch;
}

/* Adds the order of two passes of one device. */
static void add_order(facts *f, uint32_t a, uint32_t b)
{
    f->changed = f->changed || !f->before[a][b];
    f->before[a][b] = true;
    f->contradiction = f->contradiction || f->before[b][a];
}

static void order_transitively(facts *f)
{
    for (uint32_t b = 0; b < ALL; b++)
        for (uint32_t a = 0; a < ALL; a++)
            for (uint32_t c = 0; f->before[a][b] && c < ALL; c++)
                if (f->before[b][c])
                    add_order(f, a, c);
}

/* Pass b starts `lag` after the end of a or later. */
static void separate(facts *f, uint32_t a, uint32_t b, int lag)
{
    const int *time = f->x->time;
    const int start = f->start[a] + time[a / MICROBATCHES] + lag;
    const int end = f->end[b] - time[b / MICROBATCHES] - lag;
    f->changed = f->changed || start > f->start[b] || end < f->end[a];
    f->start[b] = start > f->start[b] ? start : f->start[b];
    f->end[a] = end < f->end[a] ? end : f->end[a];
}

/* Earliest starts and latest ends by known orders, and orders by these. */
static void order_by_times(facts *f)
{
    const int *time = f->x->time;
    for (uint32_t j = 0; j < MICROBATCHES; j++) {
        separate(f, j, KINDS * MICROBATCHES + j, f->x->latency); /* F */
        separate(f, (KINDS + 1) * MICROBATCHES + j, MICROBATCHES + j,
                 f->x->latency); /* D */
    }
    for (uint32_t a = 0; a < ALL; a++) {
        f->contradiction = f->contradiction ||
                           f->start[a] + time[a / MICROBATCHES] > f->end[a];
        for (uint32_t b = 0; b < ALL; b++) {
            const bool one_device =
                a / MICROBATCHES / KINDS == b / MICROBATCHES / KINDS;
            if (f->before[a][b])
                separate(f, a, b, 0);
            if (a != b && one_device &&
                f->start[a] + time[a / MICROBATCHES] + time[b / MICROBATCHES] >
                    f->end[b])
                add_order(f, b, a);
        }
    }
}

/* Least memory while pass o runs, if p also is before it, or if `after` after
 * it. p = o: neither. */
static int get_memory(const facts *f, uint32_t o, uint32_t p, bool after)
{
    const uint32_t own = o / MICROBATCHES, first = own / KINDS * KINDS;
    int held = f->x->memory[own] * (int)(o % MICROBATCHES + 1);
    for (uint32_t row = first; row < first + KINDS; row++)
        for (uint32_t j = 0; row != own && j < MICROBATCHES; j++) {
            const uint32_t u = row * MICROBATCHES + j;
            const bool both = p != o && p / MICROBATCHES == row;
            const bool is_before =
                f->before[u][o] || (both && !after && u <= p);
            const bool is_after = f->before[o][u] || (both && after && u >= p);
            if (f->x->memory[row] > 0 ? is_before : !is_after)
                held += f->x->memory[row];
        }
    return held;
}

static void order_by_memory(facts *f)
{
    for (uint32_t o = 0; o < ALL; o++) {
        const uint32_t first = o / MICROBATCHES / KINDS * KINDS * MICROBATCHES;
        if (f->x->memory[o / MICROBATCHES] <= 0)
            continue;
        f->contradiction =
            f->contradiction || get_memory(f, o, o, false) > f->x->limit;
        for (uint32_t p = first; p < first + KINDS * MICROBATCHES; p++) {
            if (p / MICROBATCHES == o / MICROBATCHES)
                continue;
            if (get_memory(f, o, p, false) > f->x->limit)
                add_order(f, o, p);
            if (get_memory(f, o, p, true) > f->x->limit)
                add_order(f, p, o);
        }
    }
}

/* The last order of a clause that is not known to be false must be true. */
static void order_by_clause(facts *f, const lh_proof_clause *clause)
{
    uint32_t n_open = 0, last = 0;
    for (uint32_t k = 0; k < clause->n_orders; k++) {
        const lh_proof_order *o = &clause->orders[k];
        if (!f->before[get_op(&o->second)][get_op(&o->first)]) {
            n_open++;
            last = k;
        }
    }
    f->contradiction = f->contradiction || n_open == 0;
    if (n_open == 1)
        add_order(f, get_op(&clause->orders[last].first),
                  get_op(&clause->orders[last].second));
}

/* Propagates the orders that the clauses and the negated last one, if any,
 * force. f->contradiction: they exclude each other. */
static void propagate(facts *f, const two_devices *x, uint32_t n,
                      const lh_proof_clause *clauses,
                      const lh_proof_clause *negated)
{
    *f = (facts){.x = x};
    for (uint32_t o = 0; o < ALL; o++) {
        f->end[o] = x->deadline;
        if (o % MICROBATCHES > 0)
            add_order(f, o - 1, o);
        if (o / MICROBATCHES % KINDS > 0)
            add_order(f, o - MICROBATCHES, o);
    }
    for (uint32_t k = 0; negated && k < negated->n_orders; k++)
        add_order(f, get_op(&negated->orders[k].second),
                  get_op(&negated->orders[k].first));
    do {
        f->changed = false;
        order_transitively(f);
        order_by_times(f);
        order_by_memory(f);
        for (uint32_t k = 0; k < n; k++)
            order_by_clause(f, &clauses[k]);
    } while (f->changed && !f->contradiction);
}

/* Draws two devices, and the shortest deadline or a little more that the
 * verifier does not refute without clauses. */
static lh_pipeline *draw_two_devices(rng *r, two_devices *x)
{
    char text[400];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    bool refuted = true;
    for (uint32_t d = 0; d < ROWS; d += KINDS) {
        for (uint32_t k = 0; k < KINDS; k++)
            x->time[d + k] = 1 + (int)rng_below(r, 4);
        x->memory[d] = 1 + (int)rng_below(r, 3);
        x->memory[d + 1] = 1 - (int)rng_below(r, (uint32_t)x->memory[d] + 2);
        x->memory[d + 2] = -x->memory[d] - x->memory[d + 1];
    }
    x->latency = (int)rng_below(r, 4);
    x->limit = 4 + (int)rng_below(r, 6);
    int n = snprintf(text, sizeof text,
                     "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: %d\n"
                     "devices: %d\nmemory_limit: %d\nchunks:\n",
                     MICROBATCHES, DEVICES, x->limit);
    for (int d = 0; d < DEVICES; d++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "  - {device: %d, F: %d, D: %d, W: %d, "
                      "memory: {F: %d, D: %d, W: %d}}\n",
                      d, x->time[d * KINDS], x->time[d * KINDS + 1],
                      x->time[d * KINDS + 2], x->memory[d * KINDS],
                      x->memory[d * KINDS + 1], x->memory[d * KINDS + 2]);
    snprintf(text + n, sizeof text - (size_t)n,
             "links:\n  - {from: 0, to: 1, latency: %d}\n"
             "  - {from: 1, to: 0, latency: %d}\n",
             x->latency, x->latency);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    for (x->deadline = 0; p && refuted; x->deadline++)
        find_bad_clause(p, x->deadline, 0, NULL, &refuted);
    x->deadline += (int)rng_below(r, 4) - 1;
    return p;
}

/* Removes the orders without which the clause follows, too. */
static void shorten_clause(const two_devices *x, uint32_t n,
                           const lh_proof_clause *kept, lh_proof_clause *clause,
                           lh_proof_order *orders)
{
    facts f;
    for (uint32_t k = clause->n_orders; k-- > 0;) {
        const lh_proof_order dropped = orders[k];
        orders[k] = orders[--clause->n_orders];
        propagate(&f, x, n, kept, clause);
        if (!f.contradiction) {
            orders[clause->n_orders++] = orders[k];
            orders[k] = dropped;
        }
    }
}

/* Draws a clause of orders that the kept clauses leave open, until it follows
 * from them. Returns whether it does. */
static bool draw_clause(rng *r, const two_devices *x, uint32_t n,
                        const lh_proof_clause *kept, lh_proof_clause *clause,
                        lh_proof_order *orders)
{
    facts root, f;
    propagate(&root, x, n, kept, NULL);
    *clause = (lh_proof_clause){0, orders};
    for (uint32_t tries = 0; tries < 60 && clause->n_orders < LONGEST;
         tries++) {
        lh_proof_order o = draw_order(r, rng_below(r, DEVICES), MICROBATCHES);
        const uint32_t a = get_op(&o.first), b = get_op(&o.second);
        if (root.before[a][b] || root.before[b][a])
            continue;
        orders[clause->n_orders++] = o;
        propagate(&f, x, n, kept, clause);
        if (f.contradiction) {
            shorten_clause(x, n, kept, clause, orders);
            return true;
        }
    }
    return false;
}

/* Draws clauses until the verifier refutes the deadline. It derives each that
 * follows by naive propagation from those derived before. */
static bool check_derivations(rng *r, const lh_pipeline *p,
                              const two_devices *x)
{
    lh_proof_order orders[DRAWN][LONGEST];
    lh_proof_clause kept[DRAWN];
    facts f;
    uint32_t n = 0;
    bool refuted = false;
    for (uint32_t i = 0; i < DRAWN && !refuted && !test_state.bad; i++) {
        bool follows = draw_clause(r, x, n, kept, &kept[n], orders[i]);
        if (kept[n].n_orders == 0)
            break;
        if (kept[n].n_orders > 1 && rng_chance(r, 20)) {
            kept[n].n_orders--;
            kept[n].orders++;
            propagate(&f, x, n, kept, &kept[n]);
            follows = f.contradiction;
        }
        const uint32_t bad =
            find_bad_clause(p, x->deadline, n + 1, kept, &refuted);
        CHECK(bad == LH_NONE || bad == n);
        CHECK(!follows || bad == LH_NONE);
        n_derived[bad == LH_NONE]++;
        n += bad == LH_NONE;
        propagate(&f, x, n, kept, NULL);
        CHECK(refuted || !f.contradiction);
    }
    return refuted;
}

static void implied_clauses_are_derived(void)
{
    uint32_t n_refuted = 0, n_feasible = 0;
    for (uint32_t seed = 0; seed < OF_CASES(400) && !test_state.bad; seed++) {
        rng r = {seed};
        two_devices x;
        lh_pipeline *p = draw_two_devices(&r, &x);
        brute_options o = {.below_ns = (x.deadline + 1) * INT64_C(1000000),
                           .parts = 1,
                           .most = 20000};
        const bool refuted = check_derivations(&r, p, &x);
        const bool feasible = brute_force(p, &o) == BRUTE_FASTER;
        CHECK(!refuted || !feasible);
        n_refuted += refuted;
        n_feasible += feasible;
        if (test_state.bad)
            fprintf(stderr, "pipeline %u\n", seed);
        lh_pipeline_free(p);
    }
    printf("%u clauses derived, %u rejected; %u deadlines refuted, %u "
           "feasible\n",
           n_derived[1], n_derived[0], n_refuted, n_feasible);
    CHECK(n_derived[0] > 100 && n_derived[1] > 100);
    CHECK(n_feasible > 10);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(proofs_are_checked);
    RUN(closed_form_counts_w_that_memory_requires);
    RUN(bound_below_the_makespan_is_checked);
    RUN(false_clauses_are_not_derived);
    RUN(implied_clauses_are_derived);
    return test_summary();
}
