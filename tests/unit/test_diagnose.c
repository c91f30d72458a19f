/* SPDX-License-Identifier: Apache-2.0 */
/* Compares three recordings of production jobs with their authors' analysis,
 * and with the performance model alone. */
#include "report/diagnosis/replica_pipeline.h"
#include "test.h"

#include <jansson.h>
#include <longhaul/experimental/diagnose.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

#define RECORDINGS TEST_DATA "/recordings/"

/* A recording and its diagnosis. */
typedef struct job {
    lh_recording *recording;
    lh_diagnosis *diagnosis;
    json_t *expected;
} job;

static void job_open(job *j, const char *name)
{
    char path[512], result[512];
    const char *paths[] = {path};
    lh_error err = {0};
    memset(j, 0, sizeof *j);
    snprintf(path, sizeof path, "%s%s.csv.gz", RECORDINGS, name);
    snprintf(result, sizeof result, "%s%s.expected.json", RECORDINGS, name);
    CHECK_OK(lhi_recording_read(paths, 1, &j->recording, &err), err);
    CHECK_OK(lh_diagnose(j->recording, NULL, &j->diagnosis, &err), err);
    j->expected = json_load_file(result, 0, NULL);
    CHECK(j->expected != NULL);
}

static void job_close(job *j)
{
    lh_diagnosis_free(j->diagnosis);
    lh_recording_free(j->recording);
    json_decref(j->expected);
}

/* Tolerance: recorded times are rounded to microseconds, far below the required
 * half per cent. */
enum { PER_MILLION = 5 };

static void check_close(const char *what, double got, double want)
{
    CHECK_MSG(fabs(got - want) <= 1e-6 * PER_MILLION * fmax(1, fabs(want)),
              "%s is %.9f, not %.9f", what, got, want);
}

static double number(const json_t *map, const char *key)
{
    CHECK_MSG(json_is_number(json_object_get(map, key)), "no number %s", key);
    return json_number_value(json_object_get(map, key));
}

static void compare_steps(const job *j)
{
    const lh_diagnosis *d = j->diagnosis;
    const json_t *measured = json_object_get(j->expected, "step_t_base");
    const json_t *t = json_object_get(j->expected, "step_t_nodelay");
    const json_t *ideal = json_object_get(j->expected, "step_t_noblk");
    const json_t *slowdown =
        json_object_get(j->expected, "blocking_step_slowdown");
    CHECK_INT(d->n_steps, json_object_size(t));
    for (uint32_t i = 0; i < d->n_steps; i++) {
        const lh_diagnosed_step *s = &d->steps[i];
        char key[24];
        snprintf(key, sizeof key, "%" PRIu64, s->step);
        check_close("measured", (double)s->measured_ns / 1e9,
                    number(measured, key));
        check_close("t", (double)s->t_ns / 1e9, number(t, key));
        check_close("ideal", (double)s->ideal_ns / 1e9, number(ideal, key));
        check_close("a step's slowdown", (double)s->t_ns / (double)s->ideal_ns,
                    number(slowdown, key));
    }
}

static void compare_parts(const job *j)
{
    const lh_diagnosis *d = j->diagnosis;
    const json_t *stages =
        json_object_get(j->expected, "blocking_decompose_by_stage");
    const json_t *replicas =
        json_object_get(j->expected, "blocking_decompose_by_dp_rank");
    json_t *kinds =
        json_object_get(j->expected, "blocking_decompose_by_optype");
    char key[24];
    CHECK_INT(d->n_stages, json_object_size(stages));
    CHECK_INT(d->n_replicas, json_object_size(replicas));
    for (uint32_t i = 0; i < d->n_stages; i++) {
        snprintf(key, sizeof key, "%" PRIu32, i);
        check_close("a stage", d->by_stage[i], number(stages, key));
    }
    for (uint32_t i = 0; i < d->n_replicas; i++) {
        snprintf(key, sizeof key, "%" PRIu32, d->replicas[i]);
        check_close("a replica", d->by_replica[i], number(replicas, key));
        for (uint32_t s = 0; s < d->n_stages; s++)
            check_close("a worker", d->by_worker[s * d->n_replicas + i],
                        fmin(d->by_stage[s], d->by_replica[i]));
    }
    size_t seen = 0;
    for (uint32_t i = 0; i < LH_N_OPERATIONS; i++) {
        const char *name = lh_operation_name((lh_operation)i);
        if (d->by_operation[i] <= 0) {
            CHECK(json_object_get(kinds, name) == NULL);
            continue;
        }
        seen++;
        check_close(name, d->by_operation[i], number(kinds, name));
    }
    CHECK_INT(seen, json_object_size(kinds));
}

static void compare_shares(const job *j)
{
    const lh_diagnosis *d = j->diagnosis;
    const json_t *last = json_object_get(j->expected, "ms");
    const json_t *workers = json_object_get(j->expected, "mw");
    check_close("launch", d->measured_ns / d->t_ns,
                number(j->expected, "launch_slowdown"));
    check_close("slowdown", d->slowdown,
                number(j->expected, "blocking_slowdown"));
    check_close("t", d->t_ns / 1e9, number(last, "tori"));
    check_close("ideal", d->ideal_ns / 1e9, number(last, "tideal"));
    CHECK_NEAR(d->worker_share, number(workers, "Mw"), 1e-5);
    CHECK_NEAR(d->last_stage_share, number(last, "Ms"), 1e-5);
}

static void compare_with_authors(const char *name)
{
    job j;
    job_open(&j, name);
    compare_steps(&j);
    compare_parts(&j);
    compare_shares(&j);
    CHECK_INT(j.diagnosis->n_defects, 0);
    job_close(&j);
}

static void a_slow_worker_is_as_its_authors_found(void)
{
    compare_with_authors("AR");
}

static void a_long_last_stage_is_as_its_authors_found(void)
{
    compare_with_authors("ST");
}

/* Uneven sequences first, then the last stage, and no worker. */
static void uneven_sequences_are_as_their_authors_found(void)
{
    static const lh_slow_kind found[] = {LH_SLOW_MICROBATCHES, LH_SLOW_STAGE};
    job j;
    compare_with_authors("SE");
    job_open(&j, "SE");
    const lh_diagnosis *d = j.diagnosis;
    CHECK_INT(d->n_slow_components, 2);
    for (uint32_t i = 0; i < 2 && i < d->n_slow_components; i++)
        CHECK_INT(d->slow_components[i].kind, found[i]);
    CHECK_INT(d->slow_components[1].stage, 1);
    job_close(&j);
}

/* As published: steps, T, T_ideal; measured / T; S; M_W, M_S. */
static void the_published_table_comes_out(void)
{
    static const struct {
        const char *name;
        uint32_t steps, stage, replica;
        double t, ideal, launch, s, by_stage, by_replica, backward, forward;
        double mw, ms;
    } rows[] = {{"AR", 44, 0, 0, 46.3364, 23.4847, 1.00675, 1.97305, 1.97919,
                 1.97304, 1.58051, 1.36889, 1.0017, -0.0012},
                {"ST", 32, 3, 1, 2.1727, 1.8433, 1.01922, 1.17870, 1.23226,
                 1.17787, 1.07416, 1.08750, 0.0314, 1.2194}};
    for (uint32_t i = 0; i < 2; i++) {
        job j;
        job_open(&j, rows[i].name);
        const lh_diagnosis *d = j.diagnosis;
        CHECK_INT(d->n_steps, rows[i].steps);
        CHECK_NEAR(d->t_ns / 1e9, rows[i].t, 1e-4);
        CHECK_NEAR(d->ideal_ns / 1e9, rows[i].ideal, 1e-4);
        CHECK_NEAR(d->measured_ns / d->t_ns, rows[i].launch, 1e-5);
        CHECK_NEAR(d->slowdown, rows[i].s, 1e-5);
        CHECK_NEAR(d->by_stage[rows[i].stage], rows[i].by_stage, 1e-5);
        CHECK_NEAR(d->by_replica[rows[i].replica], rows[i].by_replica, 1e-5);
        CHECK_NEAR(d->by_operation[LH_OPERATION_BACKWARD_COMPUTE],
                   rows[i].backward, 1e-5);
        CHECK_NEAR(d->by_operation[LH_OPERATION_FORWARD_COMPUTE],
                   rows[i].forward, 1e-5);
        CHECK_NEAR(d->worker_share, rows[i].mw, 1e-4);
        CHECK_NEAR(d->last_stage_share, rows[i].ms, 1e-4);
        job_close(&j);
    }
}

/* The performance model gets only a replica's mean durations and order, without
 * transfer times. */
static void hold_model(const job *j, uint32_t replica, double simulated,
                       double measured, double within)
{
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_recording_pipeline(j->recording, replica, &p, &s, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    double predicted = (double)lh_timeline_makespan(t) / 1e9;
    double passes = (double)lh_recording_passes_ns(j->recording, replica) / 1e9;
    CHECK_NEAR(predicted, simulated, 0.005);
    CHECK_NEAR(passes, measured, 0.005);
    CHECK_MSG(fabs(predicted / passes - 1) < within, "differ by %.3f %%",
              100 * (predicted / passes - 1));
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void the_model_alone_predicts_the_spans_of_passes(void)
{
    job j;
    job_open(&j, "AR");
    hold_model(&j, 0, 45.48, 45.60, 0.003);
    hold_model(&j, 1, 21.95, 21.99, 0.002);
    job_close(&j);
    job_open(&j, "ST");
    hold_model(&j, 0, 2.001, 2.003, 0.001);
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_INT(lhi_recording_pipeline(j.recording, 2, &p, NULL, &err),
              LH_EINVAL);
    CHECK(p == NULL);
    job_close(&j);
}

static void results_do_not_depend_on_threads(void)
{
    job j;
    lh_error err = {0};
    job_open(&j, "ST");
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        lh_diagnose_options with = {.size = sizeof with, .threads = threads};
        lh_diagnosis *d = NULL;
        CHECK_OK(lh_diagnose(j.recording, &with, &d, &err), err);
        for (uint32_t i = 0; i < d->n_steps; i++)
            CHECK(memcmp(&d->steps[i], &j.diagnosis->steps[i],
                         sizeof *d->steps) == 0);
        for (uint32_t i = 0; i < d->n_stages * d->n_replicas; i++)
            CHECK_NEAR(d->by_worker[i], j.diagnosis->by_worker[i], 0);
        for (uint32_t i = 0; i < LH_N_OPERATIONS; i++)
            CHECK_NEAR(d->by_operation[i], j.diagnosis->by_operation[i], 0);
        CHECK_NEAR(d->worker_share, j.diagnosis->worker_share, 0);
        lh_diagnosis_free(d);
    }
    job_close(&j);
}

int main(void)
{
    RUN(a_slow_worker_is_as_its_authors_found);
    RUN(a_long_last_stage_is_as_its_authors_found);
    RUN(uneven_sequences_are_as_their_authors_found);
    RUN(the_published_table_comes_out);
    RUN(the_model_alone_predicts_the_spans_of_passes);
    RUN(results_do_not_depend_on_threads);
    return test_summary();
}
