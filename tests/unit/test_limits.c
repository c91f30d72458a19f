/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines at the size limits: each takes seconds, and would take minutes with
 * any quadratic cost. */
#include "test.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <stdlib.h>

enum { MOST = 65536 };

static lh_pipeline *parse(const char *text)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p.yaml", &p, &err), err);
    return p;
}

static void analyse(const lh_pipeline *p, const lh_schedule *s)
{
    lh_timeline *t = NULL;
    lh_analysis *a = NULL;
    lh_error err = {0};
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_analysis_make(p, s, t, &a, &err), err);
    lh_analysis_free(a);
    lh_timeline_free(t);
}

/* The maximum numbers of devices, datacenters, links and link orders. */
static void everything_apart(void)
{
    lh_pipeline *p = parse("longhaul: pipeline/1\ntime_unit: us\n"
                           "microbatches: 1\ndevices: 65536\n"
                           "backward: joint\nuniform: {F: 1, D: 1, W: 1}\n"
                           "datacenters: {count: 65536, latency: 1}\n");
    lh_schedule *s = NULL, *with = NULL;
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    CHECK_OK(lh_pipeline_format(p, &text, &len, &err), err);
    lh_text_free(text);
    CHECK_OK(lh_method_run("1f1b", p, NULL, &s, NULL, &err), err);
    const lh_pass **rows = calloc(MOST, sizeof *rows);
    uint32_t *counts = calloc(MOST, sizeof *counts);
    lh_link_order *orders = calloc(MOST, sizeof *orders);
    for (uint32_t d = 0; d < MOST; d++) {
        rows[d] = lh_schedule_order(s, d, &counts[d]);
        if (d + 1 < MOST) /* forward d to d + 1 */
            orders[d] =
                (lh_link_order){lh_pipeline_link(p, 2 * d)->name, 1, rows[d]};
    }
    CHECK_OK(
        lh_schedule_make(MOST, rows, counts, MOST - 1, orders, &with, &err),
        err);
    analyse(p, with);
    free(rows);
    free(counts);
    free(orders);
    lh_schedule_free(with);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* One device is the neighbour of all others. */
static void one_in_the_middle(void)
{
    size_t room = (size_t)MOST * 64 + 256, n = 0;
    char *text = malloc(room);
    n += (size_t)snprintf(text, room,
                          "longhaul: pipeline/1\ntime_unit: us\n"
                          "microbatches: 1\ndevices: %d\nbackward: joint\n"
                          "chunks:\n",
                          MOST / 2 + 1);
    for (uint32_t c = 0; c < MOST; c++)
        n += (size_t)snprintf(text + n, room - n,
                              " - {device: %u, F: 1, D: 1, W: 1}\n",
                              c % 2 ? c / 2 + 1 : 0);
    snprintf(text + n, room - n, "datacenters: {count: %d, latency: 1}\n",
             MOST / 2 + 1);
    lh_pipeline *p = parse(text);
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("greedy", p, NULL, &s, NULL, &err), err);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    free(text);
}

int main(void)
{
    RUN(everything_apart);
    RUN(one_in_the_middle);
    return test_summary();
}
