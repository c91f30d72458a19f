/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form bounds: values for CrossPipe's settings, computed by hand. */
#include "schedule/solver/bound/closed_forms.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/bounds.h>

/* A setting and its expected bound. */
typedef struct row {
    unsigned datacenters, n, k;
    double d, latency, transfer, want;
} row;

/* F = 38, W = 20, 8 devices; delays in units of 38 ms. */
static void crosspipe(void)
{
    static const row rows[] = {
        {2, 16, 8, 48, 0, 0, 2158},      {2, 16, 8, 48, .25, .25, 2234},
        {2, 16, 8, 48, .25, 2, 2500},    {2, 16, 8, 48, 2, .25, 2500},
        {2, 16, 8, 48, 2, 2, 2766},      {4, 16, 8, 48, .25, .25, 2386},
        {4, 16, 8, 48, .25, 2, 3184},    {4, 16, 8, 48, 2, .25, 3184},
        {4, 16, 8, 48, 2, 2, 3982},      {2, 32, 16, 48, 0, 0, 3694},
        {2, 32, 16, 48, .25, .25, 3732}, {2, 32, 16, 48, .25, 2, 3865},
        {2, 32, 16, 48, 2, 2, 3998},     {4, 32, 16, 48, .25, .25, 3808},
        {4, 32, 16, 48, .25, 2, 4207},   {4, 32, 16, 48, 2, 2, 4830},
        {2, 32, 8, 86, 0, 0, 5336},      {2, 32, 8, 86, .25, .25, 5412},
        {4, 32, 8, 86, .25, .25, 5564},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        lh_pipeline *p = uniform_make((uniform){"ud", 8, r->n, 38, r->d, 20,
                                                r->datacenters, 38 * r->latency,
                                                38 * r->transfer, r->k, NULL});
        lh_bound bound;
        lh_error err;
        CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
        CHECK_NEAR((double)bound.ns / 1e6, r->want, 0);
        lh_pipeline_free(p);
    }
}

static void says_what_limits(void)
{
    lh_pipeline *p =
        uniform_make((uniform){"ud", 8, 16, 38, 48, 20, 4, 76, 76, 8, NULL});
    lh_bound bound;
    lh_error err;
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK_STR(bound.text,
              "memory on device 0: two round trips and 8 full cycles");
    CHECK_INT(bound.kind, LH_BOUND_MEMORY);
    CHECK_INT(bound.device, 0);
    lh_pipeline_free(p);
}

static void link_limits(void)
{
    /* 2 devices, one activation message every 100 ms: first ready at 1, ten
     * transfers, then latency 5, F, D, the return path 105, D, W. */
    lh_pipeline *p =
        uniform_make((uniform){"ud", 2, 10, 1, 1, 1, 2, 5, 100, 0, NULL});
    lh_bound bound;
    lh_error err;
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK_INT(bound.kind, LH_BOUND_LINK);
    CHECK_NEAR((double)bound.ns / 1e6, 1 + 10 * 100 + 5 + 1 + 1 + 105 + 1 + 1,
               0);
    CHECK_STR(bound.text, "all messages of link dc0>dc1");
    lh_pipeline_free(p);
}

static void collectives_count(void)
{
    lh_pipeline *p = uniform_make(
        (uniform){"ud", 1, 1, 10, 10, 10, 0, 0, 0, 0,
                  "data_parallel:\n"
                  " - {chunk: 0, all_gather: 7, reduce_scatter: 8, "
                  "latency: 1}\n"});
    lh_bound bound;
    lh_error err;
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK_NEAR((double)bound.ns / 1e6, 8 + 30 + 9, 0);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(crosspipe);
    RUN(says_what_limits);
    RUN(link_limits);
    RUN(collectives_count);
    return test_summary();
}
