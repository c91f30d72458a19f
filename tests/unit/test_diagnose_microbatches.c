/* SPDX-License-Identifier: Apache-2.0 */
/* Distinguishes uneven microbatches from slow workers. */
#include "base/random.h"
#include "report/diagnosis/recording.h"
#include "small_recording.h"
#include "test.h"

#include <longhaul/experimental/diagnose.h>
#include <stdlib.h>

enum { STEPS = 6, STAGES = 3, REPLICAS = 4, MICROBATCHES = 8 };
#define PASSES (STEPS * REPLICAS * MICROBATCHES)

static double works[PASSES], others[PASSES], means[PASSES];

/* Draws work from 0.5 to 1.5, mean 1. */
static void draw(uint64_t seed, double *to)
{
    lhi_random of = {seed};
    for (uint32_t i = 0; i < PASSES; i++)
        to[i] = 0.5 + (double)(lhi_random_next(&of) >> 11) * 0x1p-53;
}

static double mean_work(void)
{
    double sum = 0;
    for (uint32_t i = 0; i < PASSES; i++)
        sum += works[i];
    return sum / PASSES;
}

static const small_job usual = {.steps = STEPS,
                                .stages = STAGES,
                                .replicas = REPLICAS,
                                .microbatches = MICROBATCHES};

static lh_diagnosis *diagnosed(const small_job *j)
{
    lh_recording *r = NULL;
    lh_diagnosis *d = NULL;
    lh_error err = {0};
    small_recording(j);
    CHECK_OK(lhi_recording_parse(small_text, small_len, "small.csv", &r, &err),
             err);
    if (r)
        CHECK_OK(lh_diagnose(r, NULL, &d, &err), err);
    lh_recording_free(r);
    if (!d)
        exit(1); /* later checks need the diagnosis */
    return d;
}

static const lh_slow_component *find(const lh_diagnosis *d, lh_slow_kind what)
{
    for (uint32_t i = 0; i < d->n_slow_components; i++)
        if (d->slow_components[i].kind == what)
            return &d->slow_components[i];
    return NULL;
}

/* Returns a rank's longest microbatch over the mean, for the median replica. */
static double expected_ratio(void)
{
    double sum = 0, weight = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        double ratios[REPLICAS], sums[REPLICAS];
        for (uint32_t r = 0; r < REPLICAS; r++) {
            const double *of = &works[(step * REPLICAS + r) * MICROBATCHES];
            double longest = 0;
            sums[r] = 0;
            for (uint32_t m = 0; m < MICROBATCHES; m++) {
                sums[r] += of[m];
                longest = of[m] > longest ? of[m] : longest;
            }
            ratios[r] = longest * MICROBATCHES / sums[r];
        }
        for (uint32_t i = 1; i < REPLICAS; i++) /* sorts both */
            for (uint32_t k = i; k > 0; k--) {
                if (ratios[k] < ratios[k - 1]) {
                    double x = ratios[k];
                    ratios[k] = ratios[k - 1], ratios[k - 1] = x;
                }
                if (sums[k] < sums[k - 1]) {
                    double x = sums[k];
                    sums[k] = sums[k - 1], sums[k - 1] = x;
                }
            }
        sum += ratios[(REPLICAS - 1) / 2] * sums[(REPLICAS - 1) / 2];
        weight += sums[(REPLICAS - 1) / 2];
    }
    return sum / weight;
}

/* No worker is blamed for its assigned work, in any step. The suggested gain
 * equals the job's time with even microbatches. */
static void uneven_microbatches_are_named_and_no_worker(void)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        small_job j = usual, even = usual;
        draw(seed, works);
        for (uint32_t i = 0; i < PASSES; i++)
            means[i] = mean_work();
        j.work = works;
        even.work = means;
        lh_diagnosis *d = diagnosed(&j), *e = diagnosed(&even);
        const lh_slow_component *t = &d->slow_components[0];
        CHECK_INT(d->n_slow_components, 1);
        CHECK_INT(e->n_slow_components, 0);
        if (d->n_slow_components) {
            CHECK_INT(t->kind, LH_SLOW_MICROBATCHES);
            CHECK_INT(t->stage, LH_NONE);
            CHECK_INT(t->replica, LH_NONE);
            CHECK_INT(t->n_steps, STEPS);
            CHECK_INT(t->first_step, 10);
            CHECK(t->is_ongoing);
            /* Rows have microsecond resolution. */
            CHECK_NEAR(t->ratio, expected_ratio(), 2e-5);
            CHECK_NEAR((d->t_ns - (double)t->cost_ns) / e->t_ns, 1, 1e-4);
        }
        CHECK(d->n_remedies > 0 &&
              strstr(d->remedies[0].action, "distribute sequences"));
        lh_diagnosis_free(d);
        lh_diagnosis_free(e);
    }
}

/* With both causes, each is named, and the worker's slowdown is correct. */
static void a_slow_worker_is_named_beside_them(void)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        small_job j = usual;
        draw(seed, works);
        j.work = works;
        j.slower = 1.8;
        lh_diagnosis *d = diagnosed(&j);
        const lh_slow_component *w = find(d, LH_SLOW_WORKER);
        CHECK_INT(d->n_slow_components, 2);
        CHECK(find(d, LH_SLOW_MICROBATCHES) != NULL);
        CHECK(w != NULL);
        if (w) {
            CHECK_INT(w->stage, 0);
            CHECK_INT(w->replica, 0);
            CHECK_INT(w->n_steps, STEPS);
            CHECK_NEAR(w->ratio, 1.8, 1e-4);
        }
        lh_diagnosis_free(d);
    }
}

/* Long only in the forward: not caused by the microbatch. */
static void passes_that_scatter_are_no_uneven_microbatches(void)
{
    small_job j = usual;
    draw(3, works);
    draw(4, others);
    j.work = works;
    j.backward_work = others;
    lh_diagnosis *d = diagnosed(&j);
    CHECK(find(d, LH_SLOW_MICROBATCHES) == NULL);
    lh_diagnosis_free(d);
}

/* Long on one stage only: not caused by the microbatch. */
static void ranks_that_scatter_are_no_uneven_microbatches(void)
{
    small_job j = usual;
    draw(6, works);
    j.work = works;
    j.work_shift = 3;
    lh_diagnosis *d = diagnosed(&j);
    CHECK(find(d, LH_SLOW_MICROBATCHES) == NULL);
    lh_diagnosis_free(d);
}

/* Four per cent up and down, the scatter of even microbatches. */
static void even_microbatches_are_not_named(void)
{
    small_job j = usual;
    draw(5, works);
    for (uint32_t i = 0; i < PASSES; i++)
        works[i] = 1 + 0.08 * (works[i] - 1);
    j.work = works;
    lh_diagnosis *d = diagnosed(&j);
    CHECK_INT(d->n_slow_components, 0);
    lh_diagnosis_free(d);
}

/* With one stage, only other long microbatches in the same replica indicate its
 * work. */
static void one_stage_has_no_slow_workers_by_chance(void)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        small_job j = usual;
        draw(seed, works);
        j.stages = 1;
        j.work = works;
        lh_diagnosis *d = diagnosed(&j);
        CHECK(find(d, LH_SLOW_WORKER) == NULL);
        CHECK(find(d, LH_SLOW_MICROBATCHES) != NULL);
        lh_diagnosis_free(d);
    }
}

int main(void)
{
    RUN(uneven_microbatches_are_named_and_no_worker);
    RUN(a_slow_worker_is_named_beside_them);
    RUN(passes_that_scatter_are_no_uneven_microbatches);
    RUN(ranks_that_scatter_are_no_uneven_microbatches);
    RUN(even_microbatches_are_not_named);
    RUN(one_stage_has_no_slow_workers_by_chance);
    return test_summary();
}
