/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules in tests/data/optima have their proven makespans, according to
 * the simulator and the verifier, and no bound exceeds them. */
#include "optima.h"
#include "schedule/solver/bound/closed_forms.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/simulate.h>

static void reaches(const char *name, int64_t want_ns)
{
    char path[512];
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_bound bound = {0};
    snprintf(path, sizeof path, "%s/optima/%s.json", TEST_DATA, name);
    CHECK_OK(lh_pipeline_read(path, &p, &err), err);
    snprintf(path, sizeof path, "%s/optima/%s.csv", TEST_DATA, name);
    CHECK_OK(lh_schedule_read(path, false, &s, &err), err);
    if (p && s) {
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        CHECK_OK(lh_check(p, s, &v, &err), err);
        CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    }
    if (t && v) {
        CHECK_INT(lh_timeline_makespan(t), want_ns);
        CHECK_INT(lh_verdict_makespan(v), want_ns);
        CHECK(lh_timeline_fits(t, NULL));
        CHECK(lh_verdict_valid(v));
        CHECK(bound.ns > 0 && bound.ns <= want_ns);
    }
    lh_verdict_free(v);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void proven_optima_are_reached(void)
{
    for (size_t i = 0; i < N_OPTIMA; i++)
        reaches(optima[i].name, optima[i].ms * 1000000);
}

int main(void)
{
    RUN(proven_optima_are_reached);
    return test_summary();
}
