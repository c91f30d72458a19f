/* SPDX-License-Identifier: Apache-2.0 */
/* Enforced memory limits: a run predicted to exceed its limit does not start,
 * and one that exceeds it ends with a checkpoint. */
#define _GNU_SOURCE
#include "test.h"
#include "tiny_model.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAYERS = 4, STEPS = 4 };

static char folder[64], text_path[80], checkpoint[80];

static lh_pipeline *pipeline_with(int64_t limit, const char *unit)
{
    char text[512], limits[128] = "";
    lh_error err;
    lh_pipeline *p = NULL;
    if (limit)
        snprintf(limits, sizeof limits, "memory_limit: %lld\n%s%s%s",
                 (long long)limit, unit ? "memory_unit: " : "",
                 unit ? unit : "", unit ? "\n" : "");
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 8\n"
             "devices: 2\nuniform: {placement: ud, chunks_per_device: 1, "
             "F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\n%s",
             limits);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "test", &p, &err), err);
    return p;
}

/* A schedule switch and its outcome. */
typedef struct change {
    const lh_pipeline *pipeline;
    const char *method; /* from the second step on; NULL: none */
    lh_schedule *made;
    lh_reschedule given;
    bool is_refused;
    char why[512];
} change;

static lh_schedule *schedule_by(const char *method, const lh_pipeline *p)
{
    lh_error err;
    lh_schedule *out = NULL;
    lh_method_options o = {.size = sizeof o};
    CHECK_OK(lh_method_run(method, p, &o, &out, NULL, &err), err);
    return out;
}

static const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    change *c = of;
    if (step != 1 || !c->method)
        return NULL;
    c->made = schedule_by(c->method, c->pipeline);
    c->given = (lh_reschedule){
        .size = sizeof c->given, .schedule = c->made, .name = c->method};
    return &c->given;
}

static void told(void *of, const lh_switch *what)
{
    change *c = of;
    c->is_refused = what->refused != NULL;
    snprintf(c->why, sizeof c->why, "%s", what->refused ? what->refused : "");
}

static lh_status train(const lh_pipeline *p, bool enforces, change *c,
                       lh_train_result **out, lh_error *err)
{
    lh_model model = tiny_model(LAYERS);
    const uint32_t first_layers[] = {0, 2, LAYERS};
    lh_schedule *schedule = schedule_by("1f1b", p);
    lh_exec *x = NULL;
    CHECK_OK(lh_exec_make(p, schedule, NULL, &x, err), *err);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 24;
    m.data = text_path;
    m.checkpoint = checkpoint;
    m.fresh = true; /* names are used again */
    const lh_train_options o = {.size = sizeof o,
                                .steps = STEPS,
                                .enforces_memory = enforces,
                                .context = c,
                                .reschedule = next_schedule,
                                .switched = told};
    c->pipeline = p;
    lh_status status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_schedule_free(c->made);
    lh_exec_free(x);
    lh_schedule_free(schedule);
    return status;
}

static bool saved(unsigned step)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/step-%08u", checkpoint, step);
    return stat(path, &st) == 0;
}

/* Returns the highest predicted memory of any rank; 0: cannot train here. */
static int64_t most_predicted(void)
{
    lh_error err;
    lh_train_result *r = NULL;
    change none = {0};
    uint32_t n;
    int64_t most = 0;
    lh_pipeline *p = pipeline_with(0, NULL);
    lh_status status = train(p, false, &none, &r, &err);
    if (status == LH_EUNSUPPORTED) {
        fprintf(stderr, "SKIPPED: %s\n", err.text);
        exit(77);
    }
    CHECK_OK(status, err);
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    CHECK_INT(n, 2);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(all[i].limit_bytes == LH_NO_LIMIT);
        int64_t sum = 0;
        for (uint32_t k = 0; k < LH_N_MEMORY_KINDS; k++)
            sum += all[i].measured[k];
        CHECK_INT(sum, all[i].measured_bytes);
        if (all[i].predicted_bytes > most)
            most = all[i].predicted_bytes;
    }
    lh_train_result_free(r);
    lh_pipeline_free(p);
    return most;
}

static int64_t most;

static lh_status under(int64_t limit, change *c, lh_error *err)
{
    lh_train_result *r = NULL;
    lh_pipeline *p = pipeline_with(limit, "bytes");
    lh_status status = train(p, true, c, &r, err);
    lh_train_result_free(r);
    lh_pipeline_free(p);
    return status;
}

/* One byte below the prediction, the run does not start. Late messages may need
 * more buffers than predicted. */
static void runs_above_the_limit_do_not_start(void)
{
    lh_error err;
    change none = {0};
    CHECK_OK(under(most + 4000000, &none, &err), err);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", checkpoint);
    CHECK_INT(system(command), 0);
    CHECK_INT(under(most - 1, &none, &err), LH_ENOMEM);
    CHECK_HAS(err.text, "would use");
    CHECK_HAS(err.text, "activations");
    CHECK(!saved(1));
}

/* GPipe stores all microbatches at once. */
static void schedules_above_the_limit_are_rejected(void)
{
    lh_error err;
    change more = {.method = "gpipe"};
    CHECK_OK(under(most + 200000, &more, &err), err);
    CHECK(more.is_refused);
    CHECK_HAS(more.why, "would use");
    CHECK(saved(STEPS));
}

/* During a schedule switch, both schedules have their buffers. */
static void exceeded_limits_end_the_run_after_the_step(void)
{
    lh_error err;
    char command[128];
    change same = {.method = "1f1b"};
    snprintf(command, sizeof command, "rm -rf '%s'", checkpoint);
    CHECK_INT(system(command), 0);
    CHECK_INT(under(most + 2000, &same, &err), LH_ENOMEM);
    CHECK_HAS(err.text, "its limit is");
    CHECK(saved(1) || saved(2));
    CHECK(!saved(STEPS));
}

static void limits_in_bytes_alone(void)
{
    lh_error err;
    lh_train_result *r = NULL;
    static const char *const units[] = {NULL, "activations"};
    for (int i = 0; i < 3; i++) {
        change none = {0};
        lh_pipeline *p =
            i < 2 ? pipeline_with(100, units[i]) : pipeline_with(0, NULL);
        CHECK_INT(train(p, true, &none, &r, &err), LH_EINVAL);
        CHECK_HAS(err.text, "the pipeline has none in bytes");
        lh_pipeline_free(p);
    }
}

static void timed_devices_use_no_memory(void)
{
    lh_error err;
    lh_train_result *r = NULL;
    lh_exec *x = NULL;
    lh_pipeline *p = pipeline_with(100, "bytes");
    lh_schedule *s = schedule_by("1f1b", p);
    const lh_train_options o = {.size = sizeof o, .enforces_memory = true};
    CHECK_OK(lh_exec_make(p, s, NULL, &x, &err), err);
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EUNSUPPORTED);
    CHECK_OK(lh_train_timed(p, x, NULL, &r, &err), err);
    uint32_t n = 1;
    CHECK(!lh_train_peak_memory(r, &n) && n == 0);
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    char command[128];
    snprintf(folder, sizeof folder, "/tmp/longhaul-memory-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(text_path, sizeof text_path, "%s/text", folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/saved", folder);
    FILE *file = fopen(text_path, "w");
    for (int i = 0; file && i < 600; i++)
        fprintf(file, "%d sheep. ", i * i % 97);
    if (file)
        fclose(file);
    most = most_predicted();
    RUN_VIRTUAL(runs_above_the_limit_do_not_start);
    RUN_VIRTUAL(schedules_above_the_limit_are_rejected);
    RUN_VIRTUAL(exceeded_limits_end_the_run_after_the_step);
    RUN_VIRTUAL(limits_in_bytes_alone);
    RUN_VIRTUAL(timed_devices_use_no_memory);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
    return test_summary();
}
