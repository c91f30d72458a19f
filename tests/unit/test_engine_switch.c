/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule switches during a run: weights are unaffected, all ranks reject a
 * schedule that cannot run, and nothing hangs. */
#define _GNU_SOURCE
#include "scripted_switches.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include <stdlib.h>

enum { STEPS = 21, LAYERS = 4, ALL_MICROBATCHES = 4 };

/* --- stopping ------------------------------------------------------------- */

static int stop_in_time(void *of)
{
    const script *s = of;
    if (!s->stop_after || s->n_told < s->stop_after)
        return LH_STOP_NO;
    return s->stops_now ? LH_STOP_NOW : LH_STOP_AFTER;
}

/* --- training ------------------------------------------------------------- */

static lh_status train(const lh_pipeline *p, uint32_t replicas,
                       const char *transport, lh_receives receives,
                       const char *name, script *s, lh_train_result **out,
                       lh_error *err)
{
    char path[160];
    uint32_t first_layers[LAYERS + 1], n = lh_pipeline_n_chunks(p);
    const lh_model model = tiny_model(LAYERS);
    lh_schedule *begin = schedule_by(p, "steady");
    const lh_delegation copies = {.size = sizeof copies, .staging_ns = 15000};
    /* Also rendezvous receives with blocking sends, with a queue long enough to
     * avoid deadlock. */
    const lh_exec_options how = {.size = sizeof how,
                                 .receives = receives,
                                 .coupled_queue =
                                     receives == LH_RECEIVES_LATE ? 16 : 0,
                                 .delegation = &copies};
    lh_exec *x = NULL;
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 12;
    m.replicas = replicas;
    m.data = text_path;
    m.rate = 1e-2;
    m.checkpoint = path;
    m.validation = 0.1;
    m.validate_every = 7;
    m.emulate_links = true;
    const lh_train_options o = {.size = sizeof o,
                                .transport = transport,
                                .steps = STEPS,
                                .context = s,
                                .reschedule = s ? next_schedule : NULL,
                                .switched = s ? told : NULL};
    lh_status status = lh_exec_make(p, begin, &how, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(begin);
    return status;
}

/* Checks that the i-th schedule was in use from its step on. */
static void check_switches(const lh_train_result *r, const schedules *s,
                           bool paths)
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    CHECK_INT(n, STEPS);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(rows[i].step, i);
        CHECK_MSG(!rows[i].refused, "%s: %s", rows[i].to, rows[i].refused);
        CHECK_STR(rows[i].to, s->names[i % s->n]);
        CHECK_STR(rows[i].why, "test");
        CHECK_INT(rows[i].path, paths ? i * 5 % 7 % 3 : 0);
        CHECK(rows[i].predicted_ns > 0);
    }
    CHECK_INT(r->unshared_ns, rows[n - 1].predicted_ns);
    CHECK_INT(lh_train_path(r, NULL), rows[n - 1].path);
    CHECK_INT(r->n_iterations, STEPS);
    CHECK_INT(r->median_ns, r->iterations[STEPS - 1].ns);
    /* The recording is from the last one. */
    uint32_t n_runs = 0, of_device;
    const lh_schedule *last = s->all[(STEPS - 1) % s->n];
    for (uint32_t d = 0; d < lh_schedule_n_devices(last); d++) {
        lh_schedule_order(last, d, &of_device);
        n_runs += of_device;
    }
    CHECK(r->trace && r->trace->n_runs == n_runs);
}

static void weights_are_unaffected(void)
{
    static const char *const placements[] = {"ud", "loop", "wave"};
    static const char *const transports[] = {"inproc", "local"};
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        lh_error err;
        char name[64];
        lh_train_result *r = NULL;
        size_t size = 0, other_size = 0;
        lh_pipeline *p = pipeline_to_train("ud", ALL_MICROBATCHES / replicas);
        snprintf(name, sizeof name, "without-%u", (unsigned)replicas);
        CHECK_OK(train(p, replicas, "inproc", LH_RECEIVES_EARLY, name, NULL, &r,
                       &err),
                 err);
        lh_train_result_free(r);
        lh_pipeline_free(p);
        char *want = saved_weights(name, STEPS, &size);
        CHECK(want && size > 10000);
        for (uint32_t i = 0; i < 6; i++) {
            script s = {.every = 1, .paths = i > 0};
            const lh_receives receives =
                i == 1 || i == 4 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY;
            r = NULL;
            p = pipeline_to_train(placements[i / 2],
                                  ALL_MICROBATCHES / replicas);
            s.own = all_schedules(p, receives);
            CHECK(s.own.n >= 4 && s.own.n_ordered > 0 &&
                  s.own.n_ordered < s.own.n);
            snprintf(name, sizeof name, "%s-%s-%u", placements[i / 2],
                     transports[i % 2], (unsigned)replicas);
            CHECK_OK(train(p, replicas, transports[i % 2], receives, name, &s,
                           &r, &err),
                     err);
            if (r)
                check_switches(r, &s.own, s.paths);
            char *got = saved_weights(name, STEPS, &other_size);
            CHECK_MSG(got && want && other_size == size &&
                          memcmp(got, want, size) == 0,
                      "%s: other weights", name);
            free(got);
            lh_train_result_free(r);
            free_schedules(&s.own);
            lh_pipeline_free(p);
        }
        free(want);
    }
}

/* --- rejected schedules --------------------------------------------------- */

/* Device 0 needs the gradient of microbatch 0 before it produces the input of
 * microbatch 1, which device 1 runs first. */
static const char deadlock[] = "0F0,0I0,0W0,0F1,0I1,0W1\n"
                               "1F1,1F0,1I0,1W0,1I1,1W1\n";

static lh_schedule *schedule_from(const char *text)
{
    lh_error err;
    lh_schedule *s = NULL;
    CHECK_OK(lh_schedule_parse(text, strlen(text), "test", &s, &err), err);
    return s;
}

static lh_status play(const lh_pipeline *p, const char *transport, script *s,
                      uint64_t steps, lh_train_result **out, lh_error *err)
{
    lh_schedule *begin = schedule_by(p, "1f1b");
    lh_exec *x = NULL;
    const lh_train_options o = {.size = sizeof o,
                                .transport = transport,
                                .steps = steps,
                                .message_bytes = 100,
                                .context = s,
                                .stop = stop_in_time,
                                .reschedule = next_schedule,
                                .switched = told};
    lh_status status = lh_exec_make(p, begin, s->exec, &x, err);
    if (status == LH_OK)
        status = lh_train_timed(p, x, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(begin);
    return status;
}

static void rejected_schedules_change_nothing(void)
{
    static const char *const transports[] = {"inproc", "local"};
    lh_pipeline *p = two_devices(2), *other = two_devices(3);
    lh_schedule *bad[] = {schedule_from(deadlock), schedule_by(other, "1f1b")};
    static const char *const why[] = {"deadlock", "microbatch"};
    for (int i = 0; i < 4; i++) {
        lh_error err;
        lh_train_result *r = NULL;
        script s = {.every = 2, .bad = bad[i / 2], .bad_step = 3};
        s.own = all_schedules(p, LH_RECEIVES_EARLY);
        CHECK_OK(play(p, transports[i % 2], &s, 6, &r, &err), err);
        if (r) {
            uint32_t n;
            const lh_switch *rows = lh_train_switches(r, &n);
            CHECK_INT(n, 4); /* 0, 2, the invalid one, 4 */
            CHECK_INT(rows[2].step, 3);
            CHECK_STR(rows[2].to, "bad");
            CHECK_HAS(rows[2].refused, why[i / 2]);
            CHECK_INT(rows[2].predicted_ns, 0);
            CHECK(!rows[1].refused && !rows[3].refused);
            CHECK_INT(r->predicted_ns, rows[3].predicted_ns);
            CHECK_INT(r->n_iterations, 6);
        }
        CHECK(i % 2 || (s.n_told == 4 && s.n_asked == 6));
        lh_train_result_free(r);
        free_schedules(&s.own);
    }
    lh_schedule_free(bad[0]);
    lh_schedule_free(bad[1]);
    lh_pipeline_free(other);
    lh_pipeline_free(p);
}

/* Ranks with separate threads for rendezvous receives that block on their
 * sends. */
static void coupled_ranks(void)
{
    lh_pipeline *p = two_devices(4);
    const lh_exec_options how = {.size = sizeof how,
                                 .receives = LH_RECEIVES_LATE,
                                 .override_receives = true,
                                 .coupled_queue = 1};
    schedules all = all_schedules(p, LH_RECEIVES_LATE);
    script s = {.every = 1, .exec = &how};
    for (uint32_t i = 0; i < all.n; i++) {
        lh_exec *x = NULL;
        if (lh_exec_make(p, all.all[i], &how, &x, NULL) == LH_OK) {
            s.own.names[s.own.n] = all.names[i];
            s.own.all[s.own.n++] = all.all[i];
        }
        lh_exec_free(x);
    }
    CHECK(s.own.n >= 3);
    static const char *const transports[] = {"inproc", "local"};
    for (int i = 0; i < 2; i++) {
        lh_error err;
        lh_train_result *r = NULL;
        uint32_t n = 0;
        s.n_asked = 0;
        CHECK_OK(play(p, transports[i], &s, 12, &r, &err), err);
        const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
        CHECK_INT(n, 12);
        for (uint32_t k = 0; k < n; k++)
            CHECK(!rows[k].refused);
        lh_train_result_free(r);
    }
    free_schedules(&all);
    lh_pipeline_free(p);
}

/* During the vote on a schedule. */
static void stopped_and_killed(void)
{
    lh_pipeline *p = two_devices(2);
    lh_error err;
    lh_train_result *r = NULL;
    script s = {.every = 1, .stop_after = 3};
    s.own = all_schedules(p, LH_RECEIVES_EARLY);
    CHECK_OK(play(p, "inproc", &s, 1000, &r, &err), err);
    CHECK(r && r->interrupted && r->n_iterations == 3 && r->trace);
    lh_train_result_free(r);
    r = NULL;
    /* Also while messages use the delegated path, or switch to it. */
    const lh_exec_options delegated = {.size = sizeof delegated,
                                       .path = LH_DATA_PATH_DELEGATED};
    for (int i = 0; i < 3; i++) {
        s.stop_after = s.n_asked = 0;
        s.kills = true;
        s.exec = i > 0 ? &delegated : NULL;
        s.paths = i == 2;
        CHECK_INT(play(p, "local", &s, 1000, &r, &err), LH_EIO);
        CHECK_HAS(err.text, "rank 1");
        CHECK(!r);
    }
    free_schedules(&s.own);
    lh_pipeline_free(p);
}

/* Within the first iteration of a schedule, before anything about it is known.
 */
static void stopped_as_it_begins(void)
{
    lh_pipeline *p = two_devices(2);
    lh_error err;
    lh_train_result *r = NULL;
    uint32_t n = 0;
    script s = {.every = 1, .stop_after = 3, .stops_now = true};
    s.own = all_schedules(p, LH_RECEIVES_EARLY);
    CHECK_OK(play(p, "inproc", &s, 1000, &r, &err), err);
    CHECK(r && r->interrupted && r->n_iterations == 2 && !r->trace);
    const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
    CHECK_INT(n, 3);
    if (r && n == 3) {
        CHECK(!rows[2].refused);
        CHECK_INT(r->predicted_ns, rows[1].predicted_ns);
        CHECK_INT(r->median_ns, r->iterations[1].ns);
        CHECK(r->error > -0.5);
    }
    lh_train_result_free(r);
    free_schedules(&s.own);
    lh_pipeline_free(p);
}

static const lh_reschedule *nothing(void *of, uint64_t step)
{
    static const lh_reschedule none = {.size = sizeof none};
    (void)of, (void)step;
    return &none;
}

static void wrong_calls(void)
{
    lh_pipeline *p = two_devices(2);
    lh_schedule *begin = schedule_by(p, "1f1b");
    lh_exec *x = NULL;
    lh_error err;
    lh_train_result *r = NULL;
    lh_train_options o = {.size = sizeof o, .reschedule = nothing, .steps = 2};
    CHECK_OK(lh_exec_make(p, begin, NULL, &x, &err), err);
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "returned none");
    o.profiles = true;
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "a profile covers one schedule");
    lh_exec_free(x);
    lh_schedule_free(begin);
    lh_pipeline_free(p);
}

int main(void)
{
    if (!folder_begin("switch", 4000))
        return 1;
    RUN_VIRTUAL(weights_are_unaffected);
    RUN_VIRTUAL(rejected_schedules_change_nothing);
    RUN_VIRTUAL(coupled_ranks);
    RUN_VIRTUAL(stopped_and_killed);
    RUN_VIRTUAL(stopped_as_it_begins);
    RUN_VIRTUAL(wrong_calls);
    folder_end();
    return test_summary();
}
