/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates, trade-offs and the best schedule with each allocation failing
 * in turn. */
#include "fail_alloc.h"
#include "schedule/certificate/certificate.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/tradeoff.h>
#include <longhaul/scheduler.h>

static void each_certificate(uniform u, lh_proof_kind kind)
{
    lh_pipeline *p = uniform_make(u);
    lh_solve_options o = {.size = sizeof o, .effort = 300000};
    lh_solution s = {0};
    lh_certificate *c = NULL;
    lh_error err = {0};
    char *text = NULL;
    size_t len;
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_OK(lh_certify(p, &o, &s, &c, &err), err);
    CHECK_INT(c->kind, kind);
    FAIL_EACH_ALLOC({
        lh_certificate *again = NULL;
        status = lh_certify(p, &o, &s, &again, &err);
        lh_certificate_free(again);
    });
    CHECK_OK(lh_certificate_format(c, &text, &len, &err), err);
    FAIL_EACH_ALLOC({
        char *again = NULL;
        status = lh_certificate_format(c, &again, NULL, &err);
        lh_text_free(again);
    });
    FAIL_EACH_ALLOC({
        lh_certificate *again = NULL;
        status = lhi_certificate_parse(text, len, "c", &again, &err);
        lh_certificate_free(again);
    });
    FAIL_EACH_ALLOC({
        lh_claims *claims = NULL;
        status = lh_check_certificate(p, s.schedule, c, &claims, &err);
        CHECK(status != LH_OK ||
              lh_claims_verdict(claims) == LH_CLAIM_VERIFIED);
        lh_claims_free(claims);
    });
    lh_text_free(text);
    lh_certificate_free(c);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void certificates(void)
{
    each_certificate((uniform){"ud", 2, 4, 2, 3, 1, 2, 1, 3, 2, NULL},
                     LH_PROOF_CLOSED_FORM);
    each_certificate((uniform){"loop", 4, 8, 38, 48, 20, 2, 9.5, 9.5, 8, NULL},
                     LH_PROOF_PASS_KINDS);
    each_certificate((uniform){"wave", 2, 4, 14, 20, 8, 2, 10, 57, 3, NULL},
                     LH_PROOF_WINDOWS);
    each_certificate((uniform){"wave", 2, 4, 14, 20, 8, 2, 10, 57, 2, NULL},
                     LH_PROOF_SEARCH);
}

static void tradeoffs(void)
{
    lh_pipeline *p =
        uniform_make((uniform){"ud", 2, 3, 2, 3, 1, 2, 1, 3, 2, NULL});
    lh_solve_options each = {.size = sizeof each, .effort = 20000};
    lh_tradeoff_options o = {.size = sizeof o, .solve_options = &each};
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        lh_memory_point point = {0};
        status = lh_minimise_memory(p, &o, &point, &err);
        lh_memory_point_fini(&point);
    });
    FAIL_EACH_ALLOC({
        lh_memory_curve curve = {0};
        status = lh_memory_curve_make(p, &o, &curve, &err);
        lh_memory_curve_fini(&curve);
    });
    lh_pipeline_free(p);
}

static void best(void)
{
    lh_pipeline *p =
        uniform_make((uniform){"wave", 2, 4, 14, 20, 8, 2, 10, 57, 3, NULL});
    lh_scheduler_options o = {.size = sizeof o, .effort = 20000};
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        lh_scheduler_result found = {0};
        status = lh_scheduler_run("auto", p, &o, &found, &err);
        CHECK(status == LH_OK || !found.schedule);
        lh_scheduler_result_fini(&found);
    });
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(certificates);
    RUN(tradeoffs);
    RUN(best);
    return test_summary();
}
