/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the work for certificates. The methods of proof share the effort of
 * one that is to be made. A proof that needs more work than the verifier's
 * limit remains unverified, with a message.
 *
 *     test_certificate_work [LIMIT]
 *
 * LIMIT: steps for the hostile certificate (default 10^6); with it, the largest
 * documented bound is proven as well. */
#include "schedule/certificate/certificate.h"
#include "schedule/verifier/verifier.h"
#include "test.h"
#include "uniform.h"

#include <inttypes.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/scheduler.h>
#include <stdlib.h>

static uint64_t hostile_limit = 1000000;

/* Statement about the proof, if no second schedule is given. */
enum { PROOF = 2 };

/* Verifies the proof with a limit of `limit` steps. *told: the statement names
 * that limit. */
static lh_claim_status check_proof(const lh_pipeline *p,
                                   const lh_certificate *c, uint64_t limit,
                                   bool *told)
{
    lh_claims *claims = NULL;
    lh_error err = {0};
    char text[120];
    CHECK_OK(lhi_verify_check_certificate(p, NULL, c, limit, &claims, &err),
             err);
    CHECK(claims && lh_n_claims(claims) > PROOF);
    lh_claim_status status = lh_claims_status(claims, PROOF);
    snprintf(text, sizeof text,
             "the certificate needs more work than %" PRIu64
             " steps, the verifier's limit",
             limit);
    *told = strcmp(lh_claims_text(claims, PROOF), text) == 0;
    lh_claims_free(claims);
    return status;
}

/* A clause whose negation, F1 and D0 in the opposite order on devices 0 and 1,
 * is a cycle: D0 and F1 on device 0, F1 and D0 on device 1. Each turn delays
 * these passes by 4 ns. F1 may be as late as after the long W of microbatch 0
 * on device 2, and D0 later. The cycle thus contradicts the deadline after
 * 2.5 * 10^11 turns only. */
static void slow_contradictions_are_refused(void)
{
    static const char pipeline[] =
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\ndevices: 3\n"
        "chunks:\n  - {device: 0, F: 1, D: 1, W: 10}\n"
        "  - {device: 1, F: 1, D: 1, W: 10}\n"
        "  - {device: 2, F: 1, D: 1, W: 1000000000000}\n";
    static const char order[] = "0F0,0I0,0W0,0F1,0I1,0W1\n"
                                "1F0,1I0,1W0,1F1,1I1,1W1\n"
                                "2F0,2I0,2F1,2I1,2W0,2W1\n";
    /* Microbatch 0 through all F and D and W on device 0, microbatch 1 through
     * all F and D on device 2, both W there: 10 ns more than the optimum. */
    const int64_t makespan_ns = 6 + 10 + 4 + 2 * INT64_C(1000000000000);
    const lh_proof_order orders[] = {
        {.first = {.chunk = 0, .microbatch = 1, .n_parts = 1, .kind = LH_F},
         .second = {.chunk = 0, .microbatch = 0, .n_parts = 1, .kind = LH_D}},
        {.first = {.chunk = 1, .microbatch = 0, .n_parts = 1, .kind = LH_D},
         .second = {.chunk = 1, .microbatch = 1, .n_parts = 1, .kind = LH_F}}};
    const lh_proof_clause clause = {2, orders};
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_certificate *c = NULL;
    lh_solution found = {0};
    const lh_solve_options o = {.size = sizeof o, .effort = 100000};
    bool told = false;
    CHECK_OK(lh_pipeline_parse(pipeline, strlen(pipeline), "p", &p, &err), err);
    CHECK_OK(lh_schedule_parse(order, strlen(order), "s", &s, &err), err);
    CHECK_OK(lh_solve(p, &o, &found, &err), err);
    CHECK_OK(lh_certify(p, &o, &found, &c, &err), err);
    lh_certificate hostile = *c;
    hostile.schedule = s;
    hostile.makespan_ns = hostile.bound_ns = makespan_ns;
    hostile.refuted_ns = makespan_ns - 1;
    hostile.kind = LH_PROOF_SEARCH;
    hostile.n_clauses = 1;
    hostile.clauses = &clause;
    CHECK_INT(check_proof(p, &hostile, hostile_limit, &told),
              LH_CLAIM_UNVERIFIED);
    CHECK(told);
    lh_certificate_free(c);
    lh_solution_fini(&found);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Below some number of steps a valid proof of this kind is unverified, with the
 * message; above, it is verified. */
static void check_limits(uniform u, lh_proof_kind kind)
{
    lh_pipeline *p = uniform_make(u);
    const lh_solve_options o = {.size = sizeof o, .effort = 300000};
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_error err = {0};
    lh_claim_status status = LH_CLAIM_UNVERIFIED;
    bool told = false;
    uint32_t n_refused = 0;
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
    CHECK_INT(c->kind, kind);
    for (uint64_t limit = 1; status != LH_CLAIM_VERIFIED && !test_state.bad;
         limit += limit / 4 + 1) {
        status = check_proof(p, c, limit, &told);
        CHECK(told == (status == LH_CLAIM_UNVERIFIED));
        CHECK(limit < UINT64_C(100000000));
        n_refused += told;
    }
    CHECK_INT(status, LH_CLAIM_VERIFIED);
    CHECK(n_refused > 10);
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void proofs_beyond_the_limit_are_unverified(void)
{
    check_limits((uniform){"loop", 4, 8, 38, 48, 20, 2, 9.5, 9.5, 8, NULL},
                 LH_PROOF_PASS_KINDS);
    check_limits((uniform){"wave", 2, 4, 14, 20, 8, 2, 10, 57, 3, NULL},
                 LH_PROOF_WINDOWS);
    check_limits((uniform){"wave", 2, 4, 14, 20, 8, 2, 10, 57, 2, NULL},
                 LH_PROOF_SEARCH);
}

/* Pass kinds come first. Their heads and tails take more effort here than is
 * given: all rounds over 512 passes in four streams, one round for nearly every
 * microbatch. Memory for 6 activations leaves few states by chunk, so the other
 * methods need little. Equal effort gives equal certificates. */
static void methods_share_the_effort(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "loop",
                                            .devices = 2,
                                            .microbatches = 64,
                                            .f = 6,
                                            .d = 34,
                                            .w = 28,
                                            .datacenters = 2,
                                            .transfer = 10,
                                            .memory = 6,
                                            .more = "backward: joint\n"});
    lh_solve_options o = {.size = sizeof o, .effort = 100000};
    lh_solution s = {0};
    lh_error err = {0};
    char *text[2] = {NULL, NULL};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
    o.effort = 6000;
    for (int i = 0; i < 2; i++) {
        lh_certificate *c = NULL;
        o.threads = i == 0 ? 1 : 5;
        CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
        CHECK(c->kind != LH_PROOF_NONE && c->kind != LH_PROOF_CLOSED_FORM);
        CHECK_OK(lh_certificate_format(c, &text[i], NULL, &err), err);
        lh_certificate_free(c);
    }
    CHECK_STR(text[1], text[0]);
    lh_text_free(text[0]);
    lh_text_free(text[1]);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

/* Checks that the last statement about a certificate without a proof, whose
 * bound is `excess` ns below the makespan, does not take the bound as
 * proven. */
static void check_last_statement(const lh_pipeline *p, const lh_certificate *c,
                                 int64_t excess)
{
    lh_claims *claims = NULL;
    lh_error err = {0};
    char text[160];
    snprintf(
        text, sizeof text,
        "the makespan exceeds the bound, which is not verified, by %" PRId64
        " ns: the schedule is not proven optimal",
        excess);
    CHECK_OK(lh_check_certificate(p, NULL, c, &claims, &err), err);
    CHECK_INT(lh_n_claims(claims), PROOF + 1 + (excess > 0));
    if (excess > 0)
        CHECK_STR(lh_claims_text(claims, PROOF + 1), text);
    lh_claims_free(claims);
}

/* A certificate without a proof states the bound, how the solver has proven it,
 * and why that is not recorded. */
static void missing_proofs_are_explained(void)
{
    static const struct {
        uniform pipeline;
        lh_solve_options options;
        uint64_t effort; /* for the certificate; 0: no limit */
        lh_solve_status status;
        const char *reason;
    } cases[] = {
        {{"loop", 4, 8, 38, 48, 20, 2, 9.5, 9.5, 8, NULL},
         {.effort = 300000},
         1,
         LH_SOLVE_OPTIMAL,
         "its repetition was stopped; give it more time"},
        /* A third of 20 ms is no whole number of ns. */
        {{"wave", 4, 8, 38, 48, 20, 2, 38, 0, 8, NULL},
         {.effort = 100000, .sub_blocks = 3},
         0,
         LH_SOLVE_FEASIBLE,
         "for weight-gradient passes in unequal parts only closed forms are "
         "recorded"},
        {{"loop", 2, 6, 14, 20, 8, 2, 10, 57, 4, NULL},
         {.effort = 5000},
         0,
         LH_SOLVE_FEASIBLE,
         "for a schedule that is not optimal only closed forms and pass kinds "
         "are recorded"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_pipeline *p = uniform_make(cases[i].pipeline);
        lh_solve_options o = cases[i].options;
        lh_solution s = {0};
        lh_certificate *c = NULL;
        lh_error err = {0};
        char why[300];
        o.size = sizeof o;
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        CHECK_INT(s.status, cases[i].status);
        snprintf(why, sizeof why,
                 "the solver has proven the bound of %" PRId64
                 " ns (by %s), but not recorded the proof: %s",
                 s.bound_ns, s.proven_by, cases[i].reason);
        o.effort = cases[i].effort;
        CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
        CHECK_INT(c->kind, LH_PROOF_NONE);
        CHECK_STR(c->why, why);
        check_last_statement(p, c, s.makespan_ns - s.bound_ns);
        lh_certificate_free(c);
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
}

/* The largest pipeline of bench/README.md, "Two chunks per device". */
static void the_largest_documented_bound_is_verified(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "loop",
                                            .devices = 64,
                                            .microbatches = 128,
                                            .f = 38,
                                            .d = 48,
                                            .w = 20,
                                            .datacenters = 2,
                                            .latency = 9.5,
                                            .transfer = 9.5,
                                            .memory = 128});
    const lh_scheduler_options o = {.size = sizeof o};
    const lh_solve_options unlimited = {.size = sizeof unlimited};
    lh_scheduler_result found = {0};
    lh_certificate *c = NULL;
    lh_claims *claims = NULL;
    lh_error err = {0};
    CHECK_OK(lh_scheduler_run("greedy", p, &o, &found, &err), err);
    const lh_solution s = {.status = LH_SOLVE_FEASIBLE,
                           .schedule = found.schedule,
                           .bound_ns = INT64_C(15505000000),
                           .proven_by = "windows"};
    CHECK_OK(lh_certify(p, &unlimited, &s, &c, &err), err);
    CHECK_INT(c->kind, LH_PROOF_PASS_KINDS);
    CHECK_OK(lh_check_certificate(p, NULL, c, &claims, &err), err);
    CHECK_INT(lh_claims_status(claims, PROOF), LH_CLAIM_VERIFIED);
    lh_claims_free(claims);
    lh_certificate_free(c);
    lh_scheduler_result_fini(&found);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        hostile_limit = strtoull(argv[1], NULL, 10);
    RUN(methods_share_the_effort);
    RUN(missing_proofs_are_explained);
    RUN(slow_contradictions_are_refused);
    RUN(proofs_beyond_the_limit_are_unverified);
    if (argc > 1)
        RUN(the_largest_documented_bound_is_verified);
    return test_summary();
}
