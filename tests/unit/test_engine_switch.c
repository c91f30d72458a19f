/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules that are switched while a run goes on: weights do not notice, what
 * cannot be followed is refused by all, and nothing waits for ever. */
#define _GNU_SOURCE
#include "base/text.h"
#include "engine/messages.h"
#include "engine/steps.h"
#include "scheduled.h"
#include "test.h"
#include "tiny_model.h"

#include <longhaul/methods.h>
#include <longhaul/trace.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_METHODS = 24, STEPS = 21, LAYERS = 4, ALL_MICROBATCHES = 4 };

static char folder[64], data_path[80];

/* --- schedules to go through -------------------------------------------------
 */

typedef struct schedules {
    uint32_t n, n_ordered; /* of these, with orders on links */
    const char *names[MOST_METHODS];
    lh_schedule *all[MOST_METHODS];
} schedules;

/* FIFO orders of the links as the simulator has them, said explicitly. */
static lh_schedule *with_orders(const lh_pipeline *p, const lh_schedule *s,
                                lh_receives receives)
{
    lh_error err;
    lh_timeline *t = NULL;
    lh_schedule *out = NULL;
    const lh_sim_options sim = {
        .size = sizeof sim, .receives = receives, .own_receives = true};
    lh_link_order orders[8] = {{0}};
    lh_pass passes[8][64];
    const lh_pass *rows[8];
    uint32_t counts[8], n_orders = 0, n_messages;
    CHECK_OK(lh_simulate(p, s, &sim, &t, &err), err);
    const lh_message *m = lh_timeline_messages(t, &n_messages);
    /* By the time at which they leave; there are few. */
    for (int64_t last = -1;;) {
        int64_t next = INT64_MAX;
        for (uint32_t i = 0; i < n_messages; i++)
            if (m[i].depart_ns > last && m[i].depart_ns < next)
                next = m[i].depart_ns;
        if (next == INT64_MAX)
            break;
        for (uint32_t i = 0; i < n_messages; i++) {
            if (m[i].depart_ns != next || m[i].resource == LH_NONE)
                continue;
            const char *name = lh_timeline_resource_name(t, m[i].resource);
            uint32_t k = 0;
            while (k < n_orders && strcmp(orders[k].link, name) != 0)
                k++;
            if (k == n_orders)
                orders[n_orders++].link = name;
            orders[k].passes = passes[k];
            passes[k][orders[k].n_passes++] = m[i].producer;
        }
        last = next;
    }
    uint32_t n = lh_schedule_n_devices(s);
    for (uint32_t d = 0; d < n; d++)
        rows[d] = lh_schedule_order(s, d, &counts[d]);
    CHECK_OK(lh_schedule_make(n, rows, counts, n_orders, orders, &out, &err),
             err);
    lh_timeline_free(t);
    return out;
}

/* By each method that makes one for the pipeline; every third one with orders
 * on its links. */
static schedules all_schedules(const lh_pipeline *p, lh_receives receives)
{
    schedules s = {0};
    for (uint32_t i = 0; i < lh_n_methods() && s.n < MOST_METHODS; i++) {
        const char *name = lh_method_name(i);
        const lh_method_options how = {.size = sizeof how, .sub_blocks = 2};
        lh_schedule *made = NULL;
        if (lh_method_is_choice(name) ||
            lh_method_run(name, p, strcmp(name, "greedy") == 0 ? &how : NULL,
                          &made, NULL, NULL) != LH_OK)
            continue;
        if (s.n % 3 == 1) {
            lh_schedule *ordered = with_orders(p, made, receives);
            s.n_ordered += ordered && lh_schedule_n_link_orders(ordered) > 0;
            lh_schedule_free(made);
            made = ordered;
        }
        s.names[s.n] = name;
        s.all[s.n++] = made;
    }
    return s;
}

static void free_schedules(schedules *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        lh_schedule_free(s->all[i]);
}

/* --- what a run is asked and says --------------------------------------------
 */

typedef struct script {
    schedules own;
    uint32_t every; /* steps; 0: never */
    const lh_schedule *bad;
    uint64_t bad_step;
    uint32_t n_asked, n_told, stop_after;
    uint64_t last;
    bool kills, stops_now;
    const lh_exec_options *exec; /* NULL: defaults */
    lh_reschedule given;
} script;

/* Ends a rank that is not this one: both are children of the same process. */
static void kill_sibling(void)
{
    char path[80];
    int pid, parent = (int)getppid();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1)
        if (pid != getpid()) {
            kill(pid, SIGKILL);
            break;
        }
    if (file)
        fclose(file);
}

static const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    script *s = of;
    CHECK(s->n_asked == 0 || step == s->last + 1);
    s->n_asked++;
    s->last = step;
    if (s->kills && step == 2)
        kill_sibling();
    if (s->bad && step == s->bad_step) {
        s->given = (lh_reschedule){sizeof s->given, s->bad, "bad", "to see"};
        return &s->given;
    }
    if (!s->every || step % s->every)
        return NULL;
    uint32_t i = (uint32_t)(step / s->every) % s->own.n;
    s->given = (lh_reschedule){sizeof s->given, s->own.all[i], s->own.names[i],
                               "test"};
    return &s->given;
}

static void told(void *of, const lh_switch *what)
{
    script *s = of;
    CHECK(what->to && what->why);
    s->n_told++;
}

static int stop_in_time(void *of)
{
    const script *s = of;
    if (!s->stop_after || s->n_told < s->stop_after)
        return LH_STOP_NO;
    return s->stops_now ? LH_STOP_NOW : LH_STOP_AFTER;
}

/* --- training ----------------------------------------------------------------
 */

static lh_pipeline *pipeline_to_train(const char *placement, uint32_t replicas)
{
    char text[512];
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: 2\nuniform: {placement: %s, chunks_per_device: %d, "
             "F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\nlinks:\n"
             "  - {from: 0, to: 1, latency: 300, transfer: 40}\n"
             "  - {from: 1, to: 0, latency: 200, transfer: 60}\n",
             (int)(ALL_MICROBATCHES / replicas), placement,
             strcmp(placement, "ud") == 0 ? 1 : 2);
    return pipeline_of(text);
}

static lh_status train(const lh_pipeline *p, uint32_t replicas,
                       const char *transport, lh_receives receives,
                       const char *name, script *s, lh_train_result **out,
                       lh_error *err)
{
    char path[160];
    uint32_t first_layers[LAYERS + 1], n = lh_pipeline_n_chunks(p);
    const lh_model model = tiny_model(LAYERS);
    lh_schedule *begin = schedule_by(p, "steady");
    /* Late ones coupled, too, by a queue in which none of them stops. */
    const lh_exec_options how = {.size = sizeof how,
                                 .receives = receives,
                                 .coupled_queue =
                                     receives == LH_RECEIVES_LATE ? 16 : 0};
    lh_exec *x = NULL;
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 12;
    m.replicas = replicas;
    m.data = data_path;
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

static char *weights_of(const char *name, size_t *size)
{
    char path[200], *text = NULL;
    lh_error err;
    snprintf(path, sizeof path, "%s/%s/step-%08d/model.safetensors", folder,
             name, STEPS);
    CHECK_OK(lhi_file_read(path, 1 << 24, &text, size, &err), err);
    return text;
}

/* The i-th schedule was followed from its step on. */
static void check_switches(const lh_train_result *r, const schedules *s)
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    CHECK_INT(n, STEPS);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(rows[i].step, i);
        CHECK_MSG(!rows[i].refused, "%s: %s", rows[i].to, rows[i].refused);
        CHECK_STR(rows[i].to, s->names[i % s->n]);
        CHECK_STR(rows[i].why, "test");
        CHECK(rows[i].predicted_ns > 0);
    }
    CHECK_INT(r->unshared_ns, rows[n - 1].predicted_ns);
    CHECK_INT(r->n_iterations, STEPS);
    CHECK_INT(r->median_ns, r->iterations[STEPS - 1].ns);
    /* What was recorded is of the last one. */
    uint32_t n_runs = 0, of_device;
    const lh_schedule *last = s->all[(STEPS - 1) % s->n];
    for (uint32_t d = 0; d < lh_schedule_n_devices(last); d++) {
        lh_schedule_order(last, d, &of_device);
        n_runs += of_device;
    }
    CHECK(r->trace && r->trace->n_runs == n_runs);
}

static void weights_do_not_notice(void)
{
    static const char *const placements[] = {"ud", "loop", "wave"};
    static const char *const transports[] = {"inproc", "local"};
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        lh_error err;
        char name[64];
        lh_train_result *r = NULL;
        size_t size = 0, other_size = 0;
        lh_pipeline *p = pipeline_to_train("ud", replicas);
        snprintf(name, sizeof name, "without-%u", (unsigned)replicas);
        CHECK_OK(train(p, replicas, "inproc", LH_RECEIVES_EARLY, name, NULL, &r,
                       &err),
                 err);
        lh_train_result_free(r);
        lh_pipeline_free(p);
        char *want = weights_of(name, &size);
        CHECK(want && size > 10000);
        for (uint32_t i = 0; i < 6; i++) {
            script s = {.every = 1};
            const lh_receives receives =
                i == 1 || i == 4 ? LH_RECEIVES_LATE : LH_RECEIVES_EARLY;
            r = NULL;
            p = pipeline_to_train(placements[i / 2], replicas);
            s.own = all_schedules(p, receives);
            CHECK(s.own.n >= 4 && s.own.n_ordered > 0 &&
                  s.own.n_ordered < s.own.n);
            snprintf(name, sizeof name, "%s-%s-%u", placements[i / 2],
                     transports[i % 2], (unsigned)replicas);
            CHECK_OK(train(p, replicas, transports[i % 2], receives, name, &s,
                           &r, &err),
                     err);
            if (r)
                check_switches(r, &s.own);
            char *got = weights_of(name, &other_size);
            CHECK_MSG(got && want && other_size == size &&
                          memcmp(got, want, size) == 0,
                      "%s: other weights", name);
            lh_text_free(got);
            lh_train_result_free(r);
            free_schedules(&s.own);
            lh_pipeline_free(p);
        }
        lh_text_free(want);
    }
}

/* --- what cannot be followed -------------------------------------------------
 */

static const char two[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\ndevices: 2\n"
    "uniform: {placement: ud, F: 100, D: 100, W: 100}\n"
    "datacenters: {count: 2, latency: 50, transfer: 20}\n";

static lh_pipeline *two_devices(int microbatches)
{
    char text[512];
    snprintf(text, sizeof text, two, microbatches);
    return pipeline_of(text);
}

/* Device 0 wants the gradient of microbatch 0 before it makes the input of
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

static void all_stay_with_what_is(void)
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
            CHECK_INT(n, 4); /* 0, 2, the bad one, 4 */
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

/* Ranks that have threads of their own for late receives, and stop behind
 * their sends. */
static void coupled_ranks(void)
{
    lh_pipeline *p = two_devices(4);
    const lh_exec_options how = {.size = sizeof how,
                                 .receives = LH_RECEIVES_LATE,
                                 .own_receives = true,
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

/* While a schedule is voted on. */
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
    s.stop_after = 0;
    s.n_asked = 0;
    s.kills = true;
    CHECK_INT(play(p, "local", &s, 1000, &r, &err), LH_EIO);
    CHECK_HAS(err.text, "rank 1");
    CHECK(!r);
    free_schedules(&s.own);
    lh_pipeline_free(p);
}

/* Within the first iteration of a schedule, of which nothing is known then. */
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
    CHECK_HAS(err.text, "gives none");
    o.profiles = true;
    CHECK_INT(lh_train_timed(p, x, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "a profile is of one schedule");
    lh_exec_free(x);
    lh_schedule_free(begin);
    lh_pipeline_free(p);
}

/* --- a rank that is played by the test ---------------------------------------
 */

enum { BYTES = 100 };

typedef struct duel {
    lh_pipeline *pipeline;
    lh_exec *exec;
    lhi_job job;
    lhi_net *nets[2];
    uint32_t real; /* the rank that the engine is */
    pthread_t thread;
    lh_status status;
    lh_error err;
    script script;
} duel;

static void *real_rank(void *of)
{
    duel *d = of;
    lhi_rank_result result = {0};
    d->status =
        lhi_rank_run(d->nets[d->real], lhi_job_rank, &d->job, &result, &d->err);
    free(result.text);
    return NULL;
}

static void await_all(duel *d)
{
    lh_error err;
    const lhi_net_group all = {2, 1 - d->real, NULL, LHI_NET_NO_LINK, NULL};
    CHECK_OK(lhi_net_barrier(d->nets[1 - d->real], &all,
                             lhi_tag(LHI_TAG_BARRIER, 0, 0), NULL, &err),
             err);
}

static void begin_duel(duel *d, uint32_t real)
{
    lh_error err;
    *d = (duel){.real = real, .script = {.every = 1}};
    d->pipeline = two_devices(1);
    lh_schedule *s = schedule_by(d->pipeline, "1f1b");
    CHECK_OK(lh_exec_make(d->pipeline, s, NULL, &d->exec, &err), err);
    lh_schedule_free(s);
    d->script.own = all_schedules(d->pipeline, LH_RECEIVES_EARLY);
    d->job = (lhi_job){.pipeline = d->pipeline,
                       .exec = d->exec,
                       .n_replicas = 1,
                       .o = {.size = sizeof d->job.o,
                             .steps = 3,
                             .message_bytes = BYTES,
                             .slip_ns = 1000000000,
                             .real_links = true,
                             .context = &d->script,
                             .reschedule = real ? NULL : next_schedule,
                             .switched = real ? NULL : told}};
    CHECK_OK(lhi_proposals_make(d->pipeline, &d->exec->options,
                                &d->job.proposals, &err),
             err);
    CHECK_OK(lhi_net_inproc(2, 0, NULL, d->nets, &err), err);
    CHECK_INT(pthread_create(&d->thread, NULL, real_rank, d), 0);
    await_all(d);
}

static void end_duel(duel *d)
{
    lhi_net_close(d->nets[1 - d->real]);
    pthread_join(d->thread, NULL);
    lhi_proposals_free(d->job.proposals);
    free_schedules(&d->script.own);
    lh_exec_free(d->exec);
    lh_pipeline_free(d->pipeline);
}

static lh_status send_bytes(duel *d, unsigned class, uint64_t step,
                            uint32_t number, const void *bytes, size_t size)
{
    lhi_net_op op = {0};
    lhi_net *net = d->nets[1 - d->real];
    LHI_TRY(lhi_net_send(net, d->real, lhi_tag(class, step, number), bytes,
                         size, LHI_NET_NO_LINK, 1, LHI_NET_NO_TURN, &op, NULL));
    return lhi_net_wait(net, &op, 0, NULL);
}

static lh_status hear_bytes(duel *d, unsigned class, uint64_t step,
                            uint32_t number, void *bytes, size_t size)
{
    lhi_net_op op = {0};
    lhi_net *net = d->nets[1 - d->real];
    LHI_TRY(lhi_net_receive(net, d->real, lhi_tag(class, step, number), bytes,
                            size, &op, NULL));
    return lhi_net_wait(net, &op, 0, NULL);
}

static lhi_command hear_command(duel *d, uint64_t turn)
{
    unsigned char bytes[LHI_COMMAND_BYTES] = {0};
    lhi_command c = {.what = LHI_COMMAND_END};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_COMMAND, turn, 0, bytes, sizeof bytes),
              LH_OK);
    CHECK_OK(lhi_command_read(bytes, sizeof bytes, &c, &err), err);
    return c;
}

static void tell_done(duel *d, uint64_t turn)
{
    unsigned char bytes[LHI_DONE_BYTES];
    lhi_done_write(&(lhi_done){.loss = NAN}, bytes);
    send_bytes(d, LHI_TAG_DONE, turn, 0, bytes, sizeof bytes);
}

/* What rank 1 does in a step. */
static void pass_along(duel *d, uint64_t step)
{
    unsigned char input[BYTES], output[BYTES] = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_MESSAGE, 2 * step, 1, input, sizeof input),
              LH_OK);
    CHECK_INT(
        send_bytes(d, LHI_TAG_MESSAGE, 2 * step, 2, output, sizeof output),
        LH_OK);
}

/* Gets the proposal of that round, as rank 1. */
static lhi_proposal hear_proposal(duel *d, uint64_t round)
{
    unsigned char head[LHI_PROPOSAL_BYTES] = {0};
    lhi_proposal p = {0};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_SCHEDULE, round, 0, head, sizeof head),
              LH_OK);
    CHECK_OK(lhi_proposal_read(head, sizeof head, &p, &err), err);
    char *text = malloc((size_t)p.n_rows + p.n_links + 1);
    CHECK_INT(hear_bytes(d, LHI_TAG_SCHEDULE, round, 1, text,
                         (size_t)p.n_rows + p.n_links),
              LH_OK);
    free(text);
    return p;
}

static void vote(duel *d, uint64_t round, const lhi_vote *v)
{
    unsigned char bytes[LHI_VOTE_BYTES];
    lhi_vote_write(v, bytes);
    CHECK_INT(send_bytes(d, LHI_TAG_VOTE, round, 0, bytes, sizeof bytes),
              LH_OK);
}

/* Against the first, for the second, against the third. */
static void one_vote_against(void)
{
    duel d;
    begin_duel(&d, 0);
    lhi_command c = hear_command(&d, 0);
    CHECK(c.what == LHI_COMMAND_SCHEDULE && c.proposes && c.step == 0);
    tell_done(&d, 0);
    for (uint32_t k = 0; k < 3; k++) {
        lhi_proposal p = hear_proposal(&d, k + 1);
        CHECK_INT(p.step, k);
        vote(&d, k + 1, &(lhi_vote){k % 2 == 0, k, "not this one"});
        c = hear_command(&d, 4 * (k + 1));
        CHECK(c.what == LHI_COMMAND_STEP && c.proposes == (k < 2));
        CHECK_INT(c.verdict, k % 2 ? LHI_VERDICT_GO : LHI_VERDICT_DROP);
        pass_along(&d, k);
        tell_done(&d, 4 * (k + 1));
    }
    c = hear_command(&d, 16);
    CHECK(c.what == LHI_COMMAND_END && c.verdict == LHI_VERDICT_NONE);
    unsigned char bytes[LHI_COUNTS_BYTES + 3 * LHI_RECORD_BYTES] = {0};
    lhi_counts counts = {0};
    lh_schedule_order(d.script.own.all[1], 1, &counts.n_passes);
    lhi_counts_write(&counts, bytes);
    send_bytes(&d, LHI_TAG_RECORD, 17, 0, bytes, LHI_COUNTS_BYTES);
    send_bytes(&d, LHI_TAG_RECORD, 18, 0, bytes + LHI_COUNTS_BYTES,
               counts.n_passes * LHI_RECORD_BYTES);
    end_duel(&d);
    CHECK_OK(d.status, d.err);
    CHECK_INT(d.script.n_told, 3);
}

static void rank_1_breaks_off(void)
{
    static const char *const why[] = {"a vote whose refusal is 7",
                                      "a vote on step 9, not 0", "rank 1"};
    for (int i = 0; i < 3; i++) {
        duel d;
        unsigned char bytes[LHI_VOTE_BYTES];
        begin_duel(&d, 0);
        hear_command(&d, 0);
        hear_proposal(&d, 1);
        lhi_vote_write(&(lhi_vote){.step = i == 1 ? 9 : 0}, bytes);
        bytes[4] = i == 0 ? 7 : 0;
        if (i < 2)
            send_bytes(&d, LHI_TAG_VOTE, 1, 0, bytes, sizeof bytes);
        tell_done(&d, 0);
        end_duel(&d); /* leaves */
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, why[i]);
    }
}

static void tell_command(duel *d, uint64_t turn, const lhi_command *c)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    lhi_command_write(c, bytes);
    send_bytes(d, LHI_TAG_COMMAND, turn, 0, bytes, sizeof bytes);
}

static void propose(duel *d, uint64_t round, uint64_t step, const char *text)
{
    unsigned char head[LHI_PROPOSAL_BYTES];
    uint32_t size = (uint32_t)strlen(text);
    lhi_proposal_write(&(lhi_proposal){step, size, 0}, head);
    send_bytes(d, LHI_TAG_SCHEDULE, round, 0, head, sizeof head);
    if (size)
        send_bytes(d, LHI_TAG_SCHEDULE, round, 1, text, size);
}

static lhi_vote hear_vote(duel *d, uint64_t round)
{
    unsigned char bytes[LHI_VOTE_BYTES] = {0};
    lhi_vote v = {0};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_VOTE, round, 0, bytes, sizeof bytes),
              LH_OK);
    CHECK_OK(lhi_vote_read(bytes, sizeof bytes, &v, &err), err);
    return v;
}

/* Rank 1 says what is wrong with it, and lives on. */
static void bad_schedules_from_rank_0(void)
{
    static const struct {
        const char *text, *why;
    } all[] = {
        {"0F0,0I0,0W0\n1F0,oops\n", "the proposed schedule:2"},
        {"0F0,0I0,0W0\n", "device"},
        {"0I0,0F0,0W0\n1F0,1I0,1W0\n", ""},
        {"", "rank 0 could not send"},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", NULL},
    };
    enum { N = sizeof all / sizeof *all };
    duel d;
    begin_duel(&d, 1);
    for (uint32_t k = 0; k < N; k++) {
        lhi_command c = {.what = LHI_COMMAND_STEP, .step = k, .proposes = true};
        unsigned char bytes[BYTES] = {0}, done[LHI_DONE_BYTES];
        c.verdict = k ? LHI_VERDICT_DROP : LHI_VERDICT_NONE;
        tell_command(&d, 4 * k, &c);
        propose(&d, k + 1, k + 1, all[k].text);
        lhi_vote v = hear_vote(&d, k + 1);
        CHECK_INT(v.step, k + 1);
        CHECK_MSG(v.refuses == (all[k].why != NULL), "%s: %s", all[k].text,
                  v.why);
        CHECK(!all[k].why || v.why[0]);
        CHECK_HAS(v.why, all[k].why ? all[k].why : "");
        send_bytes(&d, LHI_TAG_MESSAGE, 2 * k, 1, bytes, sizeof bytes);
        CHECK_INT(
            hear_bytes(&d, LHI_TAG_MESSAGE, 2 * k, 2, bytes, sizeof bytes),
            LH_OK);
        CHECK_INT(hear_bytes(&d, LHI_TAG_DONE, 4 * k, 0, done, sizeof done),
                  LH_OK);
    }
    tell_command(
        &d, 4 * N,
        &(lhi_command){.what = LHI_COMMAND_END, .verdict = LHI_VERDICT_DROP});
    unsigned char rest[LHI_COUNTS_BYTES + 2 * LHI_RECORD_BYTES];
    hear_bytes(&d, LHI_TAG_RECORD, 4 * N + 1, 0, rest, LHI_COUNTS_BYTES);
    hear_bytes(&d, LHI_TAG_RECORD, 4 * N + 2, 0, rest, 2 * LHI_RECORD_BYTES);
    end_duel(&d);
    CHECK_OK(d.status, d.err);
}

/* What rank 0 may not say when. */
static void commands_out_of_order(void)
{
    static const struct {
        lhi_command first, second;
        const char *text, *why;
    } all[] = {
        {{.verdict = LHI_VERDICT_GO}, {0}, NULL, "sends a verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.proposes = true},
         "",
         "sends no verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.verdict = LHI_VERDICT_GO},
         "",
         "that this rank has refused"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.what = LHI_COMMAND_END, .verdict = LHI_VERDICT_GO},
         "",
         "sends a verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         "",
         "sends a schedule"},
        {{.what = LHI_COMMAND_END, .proposes = true},
         {0},
         NULL,
         "sends a schedule"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        duel d;
        unsigned char done[LHI_DONE_BYTES];
        begin_duel(&d, 1);
        tell_command(&d, 0, &all[i].first);
        if (all[i].text) {
            propose(&d, 1, 0, all[i].text);
            hear_vote(&d, 1);
            CHECK_INT(hear_bytes(&d, LHI_TAG_DONE, 0, 0, done, sizeof done),
                      LH_OK);
            tell_command(&d, 4, &all[i].second);
        }
        unsigned char never[4];
        CHECK_INT(hear_bytes(&d, LHI_TAG_PING, 0, 0, never, 4), LH_EIO);
        end_duel(&d);
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, all[i].why);
    }
    /* A proposal for another step, and none at all. */
    for (int i = 0; i < 2; i++) {
        duel d;
        unsigned char head[LHI_PROPOSAL_BYTES];
        begin_duel(&d, 1);
        tell_command(&d, 0, &all[1].first);
        lhi_proposal_write(&(lhi_proposal){.step = 5}, head);
        head[0] = i ? 'X' : 'L';
        send_bytes(&d, LHI_TAG_SCHEDULE, 1, 0, head, sizeof head);
        unsigned char never[4];
        CHECK_INT(hear_bytes(&d, LHI_TAG_PING, 0, 0, never, 4), LH_EIO);
        end_duel(&d);
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, i ? "bytes that are not a proposal"
                                : "a schedule for step 5, not 0");
    }
}

static void write_data(void)
{
    FILE *file = fopen(data_path, "w");
    CHECK(file != NULL);
    for (unsigned i = 0; file && i < 4000; i++)
        fputc("etaoin shrdlu\n"[i * i % 97 % 14], file);
    if (file)
        fclose(file);
}

int main(void)
{
    char remove[100];
    snprintf(folder, sizeof folder, "/tmp/longhaul-switch-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(data_path, sizeof data_path, "%s/data", folder);
    write_data();
    RUN(weights_do_not_notice);
    RUN(all_stay_with_what_is);
    RUN(coupled_ranks);
    RUN(stopped_and_killed);
    RUN(stopped_as_it_begins);
    RUN(wrong_calls);
    RUN(one_vote_against);
    RUN(rank_1_breaks_off);
    RUN(bad_schedules_from_rank_0);
    RUN(commands_out_of_order);
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    return system(remove) != 0 || test_summary();
}
