/* SPDX-License-Identifier: Apache-2.0 */
/* Migration during a run: layers move to other chunks, and ranks are
 * reassigned. Weights and optimizer state move with them, unchanged. */
#define _GNU_SOURCE
#include "scripted_switches.h"
#include "test.h"
#include "tiny_model.h"
#include "training_folder.h"
#include "virtual_time.h"

#include <stdlib.h>

enum { STEPS = 10, LAYERS = 7, ALL_MICROBATCHES = 4, MOST_PLACES = 4 };

/* --- proposals ------------------------------------------------------------ */

/* Scripted migrations and their outcomes. */
typedef struct moves {
    schedules own;
    uint64_t seed, from;
    uint32_t n_chunks, n_places;
    bool moves_layers, moves_ranks, passes_on;
    uint32_t layers[8], hosts[MOST_PLACES], vias[MOST_PLACES];
    uint64_t bad_step; /* 0: none; has too many layers */
    bool bad_hosts, bad_vias, kills;
    uint32_t n_told, n_moved, n_passed;
    uint64_t bytes;
    lh_reschedule given;
} moves;

static uint32_t draw(moves *s, uint32_t n)
{
    s->seed =
        s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(s->seed >> 33) % n;
}

static void draw_seats(moves *s)
{
    uint32_t left = LAYERS - s->n_chunks;
    for (uint32_t c = 0; c < s->n_chunks; c++)
        s->layers[c] = 1;
    for (; left > 0; left--)
        s->layers[draw(s, s->n_chunks)]++;
    for (uint32_t p = 0; p < s->n_places; p++)
        s->hosts[p] = p;
    for (uint32_t p = s->n_places; p > 1; p--) {
        uint32_t other = draw(s, p), host = s->hosts[other];
        s->hosts[other] = s->hosts[p - 1];
        s->hosts[p - 1] = host;
    }
    for (uint32_t p = 0; p < s->n_places; p++) {
        bool other = s->passes_on && (p + s->layers[0]) % 3 > 0;
        uint32_t on = 1 + p % (s->n_places - 1);
        s->vias[p] = other ? (s->hosts[p] + on) % s->n_places : LH_NONE;
    }
}

/* Proposes layers, ranks, both, or a schedule alone. */
static const lh_reschedule *next_move(void *of, uint64_t step)
{
    moves *s = of;
    if (step < s->from)
        return NULL;
    uint32_t what = draw(s, 4), i = draw(s, s->own.n);
    draw_seats(s);
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->own.all[i],
                               .name = s->own.names[i],
                               .why = "test",
                               .move_ns = 1000};
    if (s->moves_layers && what != 1)
        s->given.layers = s->layers;
    if (s->moves_ranks && what != 2)
        s->given.hosts = s->hosts;
    if (s->passes_on)
        s->given.relay_ranks = s->vias;
    if (s->bad_vias && step == s->bad_step) {
        s->given.hosts = s->hosts;
        s->given.relay_ranks = s->hosts;
    } else if (s->bad_step && step == s->bad_step && s->bad_hosts)
        s->hosts[0] = s->hosts[1];
    else if (s->bad_step && step == s->bad_step)
        s->layers[0]++;
    return &s->given;
}

static void told_of(void *of, const lh_switch *what)
{
    moves *s = of;
    CHECK(what->to != NULL);
    s->n_told++;
}

static void told_moved(void *of, const lh_migration *what)
{
    moves *s = of;
    s->n_moved++;
    s->bytes += what->bytes;
    CHECK(what->ns > 0);
    CHECK(what->n_chunks == 0 || what->n_chunks == s->n_chunks);
    CHECK(what->n_places == 0 || what->n_places == s->n_places);
    for (uint32_t p = 0; what->relay_ranks && p < what->n_places; p++) {
        CHECK(what->relay_ranks[p] == s->vias[p]);
        s->n_passed += what->relay_ranks[p] != LH_NONE;
    }
}

/* Just before the boundary at which data are in flight. */
static void kill_before(void *of, const lh_iteration *it)
{
    moves *s = of;
    if (s->kills && it->step == 2)
        kill_sibling();
}

/* --- training ------------------------------------------------------------- */

/* Configuration of a run. */
typedef struct setting {
    const char *placement, *transport, *name, *resume;
    uint32_t replicas;
    uint64_t steps, of; /* steps run; planned total */
    lh_receives receives;
    bool emulates, tied, enforces;
} setting;

static lh_status train(const setting *t, moves *s, lh_train_result **out,
                       lh_error *err)
{
    char path[160], resume[160];
    uint32_t first_layers[LAYERS + 1];
    lh_pipeline *p =
        pipeline_to_train(t->placement, ALL_MICROBATCHES / t->replicas);
    uint32_t n = lh_pipeline_n_chunks(p);
    const lh_model model = t->tied ? tiny_gpt2(LAYERS) : tiny_model(LAYERS);
    lh_schedule *begin = schedule_by(p, "steady");
    const lh_exec_options how = {.size = sizeof how, .receives = t->receives};
    lh_exec *x = NULL;
    for (uint32_t c = 0; c <= n; c++)
        first_layers[c] = LAYERS * c / n;
    snprintf(path, sizeof path, "%s/%s", folder, t->name);
    lh_train_model m = lh_train_model_defaults();
    m.model = &model;
    m.first_layers = first_layers;
    m.sequence = 12;
    m.replicas = t->replicas;
    m.data = text_path;
    m.rate = m.min_rate = 1e-2;
    m.warmup = 0;
    m.checkpoint = path;
    m.fresh = true; /* names are used again */
    m.validation = 0.1;
    m.validate_every = 3;
    m.emulate_links = t->emulates;
    if (t->resume) {
        snprintf(resume, sizeof resume, "%s/%s", folder, t->resume);
        m.resume = resume;
    }
    if (s) {
        s->n_chunks = n;
        s->n_places = 2 * t->replicas;
        s->own = all_schedules(p, t->receives);
    }
    const lh_train_options o = {.size = sizeof o,
                                .transport = t->transport,
                                .steps = t->steps,
                                .context = s,
                                .enforces_memory = t->enforces,
                                .progress = s ? kill_before : NULL,
                                .reschedule = s ? next_move : NULL,
                                .migrated = s ? told_moved : NULL,
                                .switched = s ? told_of : NULL};
    lh_status status = lh_exec_make(p, begin, &how, &x, err);
    if (status == LH_OK)
        status = lh_train_cpu(p, x, &m, &o, out, err);
    lh_exec_free(x);
    lh_schedule_free(begin);
    lh_pipeline_free(p);
    if (s)
        free_schedules(&s->own);
    return status;
}

/* Contents of the checkpoint's files. */
typedef struct files {
    char *weights, *moments;
    size_t n_weights, n_moments;
} files;

static files files_of(const char *name, unsigned step)
{
    files f;
    f.weights = saved_weights(name, step, &f.n_weights);
    f.moments = saved_file(name, step, "optimizer.safetensors", &f.n_moments);
    return f;
}

static void free_files(files *f)
{
    free(f->weights);
    free(f->moments);
}

static void check_alike(const char *name, unsigned step, const files *want)
{
    files got = files_of(name, step);
    CHECK_MSG(got.n_weights == want->n_weights && want->n_weights > 10000 &&
                  memcmp(got.weights, want->weights, got.n_weights) == 0,
              "%s: other weights", name);
    CHECK_MSG(got.n_moments == want->n_moments &&
                  memcmp(got.moments, want->moments, got.n_moments) == 0,
              "%s: other moments", name);
    free_files(&got);
}

static files quiet_files(uint32_t replicas, bool tied)
{
    char name[64];
    lh_error err;
    lh_train_result *r = NULL;
    snprintf(name, sizeof name, "quiet-%u-%d", (unsigned)replicas, tied);
    const setting t = {.placement = "ud",
                       .transport = "inproc",
                       .name = name,
                       .replicas = replicas,
                       .tied = tied,
                       .steps = STEPS};
    CHECK_OK(train(&t, NULL, &r, &err), err);
    lh_train_result_free(r);
    return files_of(name, STEPS);
}

static void weights_are_unaffected(void)
{
    static const char *const placements[] = {"ud", "loop", "wave"};
    static const char *const transports[] = {"inproc", "local"};
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t replicas = 1 + k % 2;
        files want = quiet_files(replicas, k / 2);
        for (uint32_t i = 0; i < 6; i++) {
            char name[64];
            lh_error err;
            lh_train_result *r = NULL;
            moves s = {.seed = 31 * i + k,
                       .moves_layers = i != 1,
                       .moves_ranks = i != 2,
                       .passes_on = i % 2 == 1 || i == 4};
            snprintf(name, sizeof name, "moves-%u-%u", (unsigned)k,
                     (unsigned)i);
            const setting t = {.placement = placements[i / 2],
                               .transport = transports[(i + k / 2) % 2],
                               .name = name,
                               .replicas = replicas,
                               .tied = k / 2,
                               .emulates = i % 3 == 0,
                               .receives = i == 3 ? LH_RECEIVES_LATE
                                                  : LH_RECEIVES_EARLY,
                               .steps = STEPS};
            CHECK_OK(train(&t, &s, &r, &err), err);
            uint32_t n = 0, n_moved = 0;
            const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
            CHECK_INT(n, STEPS);
            for (uint32_t x = 0; x < n; x++) {
                const lh_migration *moved = lh_train_migration(r, x);
                CHECK_MSG(!rows[x].refused, "%s", rows[x].refused);
                n_moved += moved != NULL;
                CHECK(!moved || moved->predicted_ns == 1000);
            }
            CHECK_MSG(n_moved > STEPS / 3, "%u moves", (unsigned)n_moved);
            if (t.transport == transports[0]) {
                CHECK(s.n_moved == n_moved && s.bytes > 10000);
                CHECK(s.n_passed > 0 || !s.passes_on);
            }
            CHECK(r && r->trace && r->n_iterations == STEPS);
            lh_train_result_free(r);
            check_alike(name, STEPS, &want);
        }
        free_files(&want);
    }
}

/* A checkpoint contains the model, independent of its distribution. */
static void checkpoints_are_unaffected(void)
{
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        lh_error err;
        lh_train_result *r = NULL;
        files want = quiet_files(replicas, false);
        moves s = {.seed = 7, .moves_layers = true, .moves_ranks = true};
        setting t = {.placement = "loop",
                     .transport = "inproc",
                     .name = replicas == 1 ? "half-1" : "half-2",
                     .replicas = replicas,
                     .steps = STEPS / 2};
        CHECK_OK(train(&t, &s, &r, &err), err);
        lh_train_result_free(r);
        CHECK(s.n_moved > 0);
        for (uint32_t i = 0; i < 2; i++) {
            moves again = {
                .seed = 8, .moves_layers = true, .moves_ranks = true};
            r = NULL;
            t.resume = replicas == 1 ? "half-1" : "half-2";
            t.name = i == 0 ? "whole-0" : "whole-1";
            t.steps = STEPS;
            CHECK_OK(train(&t, i ? &again : NULL, &r, &err), err);
            lh_train_result_free(r);
            check_alike(t.name, STEPS, &want);
        }
        free_files(&want);
    }
}

/* --- rejected migrations -------------------------------------------------- */

static void one_rank_rejects_the_migration(void)
{
    static const char *const transports[] = {"inproc", "local"};
    static const char *const why[] = {"but the job has 7",
                                      "already has another place",
                                      "would relay the state for place 0"};
    files want = quiet_files(2, false);
    for (uint32_t i = 0; i < 6; i++) {
        lh_error err;
        lh_train_result *r = NULL;
        uint32_t n = 0, n_refused = 0;
        moves s = {.seed = 3,
                   .moves_layers = true,
                   .moves_ranks = true,
                   .bad_step = 4,
                   .bad_hosts = i / 2 == 1,
                   .bad_vias = i / 2 == 2};
        const setting t = {.placement = "ud",
                           .transport = transports[i % 2],
                           .name = "refused",
                           .replicas = 2,
                           .steps = STEPS};
        CHECK_OK(train(&t, &s, &r, &err), err);
        const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
        CHECK_INT(n, STEPS);
        for (uint32_t k = 0; k < n; k++)
            if (rows[k].refused) {
                n_refused++;
                CHECK_INT(rows[k].step, 4);
                CHECK_HAS(rows[k].refused, why[i / 2]);
                CHECK(!lh_train_migration(r, k));
            }
        CHECK_INT(n_refused, 1);
        lh_train_result_free(r);
        check_alike("refused", STEPS, &want);
    }
    free_files(&want);
}

/* Rejected before the run starts, with the reason. */
static void invalid_migrations_are_rejected(void)
{
    static const struct {
        uint32_t tensor, context;
        double gradients, parameters;
        bool launches, enforces;
        const char *why;
    } all[] = {
        {.tensor = 2, .why = "together (tensor 2, context 1); plan with"},
        {.context = 2, .why = "together (tensor 1, context 2); plan with"},
        {.gradients = 1, .why = "replicas (ZeRO 2); plan with zero: 1"},
        {.gradients = 1, .parameters = 1, .why = "(ZeRO 3); plan with zero: 1"},
        {.launches = true, .why = "passes launch data-parallel operations"},
        {.enforces = true, .why = "memory limits are enforced"},
    };
    static const char *const what[] = {"layers cannot migrate in this run: ",
                                       "ranks cannot migrate in this run: "};
    for (uint32_t i = 0; i < 2 * sizeof all / sizeof *all; i++) {
        char text[600];
        lh_error err;
        lh_exec *x = NULL;
        lh_train_result *r = NULL;
        const uint32_t k = i / 2, first_layers[] = {0, 1, 2, 3, 4};
        lh_model model = tiny_model(4);
        model.kv_heads = model.heads;
        snprintf(text, sizeof text,
                 "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 4\n"
                 "devices: 2\nuniform: {placement: loop, chunks_per_device: 2, "
                 "F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\n%s%s",
                 all[k].launches
                     ? "data_parallel:\n  elastic: {enqueue: [2, 2], "
                       "dequeue: [2, 2], transfer: 10, gradients: 1, "
                       "parameters: 0, buckets: {scatter: 1, forward: 1, "
                       "backward: 1}}\n"
                     : "",
                 all[k].enforces ? "memory_unit: bytes\n"
                                   "memory_limit: 100000000\n"
                                 : "");
        lh_pipeline *p = pipeline_of(text);
        lh_schedule *begin =
            schedule_by(p, all[k].launches ? "elastic" : "gpipe");
        lh_train_model m = lh_train_model_defaults();
        m.model = &model;
        m.first_layers = first_layers;
        m.sequence = 12;
        m.replicas = 2;
        m.data = text_path;
        m.tensor = all[k].tensor;
        m.context = all[k].context;
        m.sharded_gradients = all[k].launches ? 1 : all[k].gradients;
        m.sharded_parameters = all[k].parameters;
        m.per_layer_sharding = all[k].gradients > 0;
        const lh_train_options o = {.size = sizeof o,
                                    .steps = 1,
                                    .enforces_memory = all[k].enforces,
                                    .moves_layers = i % 2 == 0,
                                    .moves_places = i % 2 == 1};
        CHECK_OK(lh_exec_make(p, begin, NULL, &x, &err), err);
        CHECK_INT(lh_train_cpu(p, x, &m, &o, &r, &err), LH_EUNSUPPORTED);
        CHECK_HAS(err.text, what[i % 2]);
        CHECK_HAS(err.text, all[k].why);
        CHECK(!r);
        lh_train_result_free(r);
        lh_exec_free(x);
        lh_schedule_free(begin);
        lh_pipeline_free(p);
    }
}

static void ranks_are_killed_during_a_migration(void)
{
    lh_error err;
    lh_train_result *r = NULL;
    moves s = {
        .seed = 5, .moves_layers = true, .moves_ranks = true, .kills = true};
    const setting t = {.placement = "ud",
                       .transport = "local",
                       .name = "killed",
                       .replicas = 2,
                       .steps = STEPS};
    CHECK_INT(train(&t, &s, &r, &err), LH_EIO);
    CHECK_HAS(err.text, "rank");
    CHECK(!r);
}

/* --- timed device --------------------------------------------------------- */

static const lh_reschedule *shift_layers(void *of, uint64_t step)
{
    moves *s = of;
    static const uint32_t layers[] = {6, 2, 4, 4};
    if (step != 2)
        return NULL;
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->own.all[0],
                               .name = "as before",
                               .why = "test",
                               .layers = layers,
                               .move_ns = 30000000};
    return &s->given;
}

/* Passes take the time for their new number of layers, plus the migration time.
 */
static void timed_layers(void)
{
    static const uint32_t layers[] = {4, 4, 4, 4};
    lh_error err;
    lh_train_result *r = NULL;
    uint32_t n = 0;
    lh_pipeline *p = pipeline_of(
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 4\ndevices: 4\n"
        "uniform: {placement: ud, F: 4, D: 4, W: 4}\nlinks:\n"
        "  - {from: 0, to: 1, latency: 1}\n  - {from: 1, to: 0, latency: 1}\n"
        "  - {from: 1, to: 2, latency: 1}\n  - {from: 2, to: 1, latency: 1}\n"
        "  - {from: 2, to: 3, latency: 1}\n"
        "  - {from: 3, to: 2, latency: 1}\n");
    lh_schedule *begin = schedule_by(p, "1f1b");
    lh_exec *x = NULL;
    moves s = {.n_chunks = 4, .own = {.n = 1, .all = {begin}}};
    const lh_train_options o = {.size = sizeof o,
                                .steps = 5,
                                .message_bytes = 100,
                                .context = &s,
                                .layers = layers,
                                .reschedule = shift_layers,
                                .migrated = told_moved};
    CHECK_OK(lh_exec_make(p, begin, NULL, &x, &err), err);
    CHECK_OK(lh_train_timed(p, x, &o, &r, &err), err);
    const lh_switch *rows = r ? lh_train_switches(r, &n) : NULL;
    const lh_migration *moved = r ? lh_train_migration(r, 0) : NULL;
    CHECK_INT(n, 1);
    CHECK(moved && moved->ns >= 30000000 && moved->bytes == 0);
    CHECK_INT(s.n_moved, 1);
    if (rows && moved) {
        lh_layers *rules = NULL;
        lh_pipeline *then = NULL;
        lh_timeline *line = NULL;
        CHECK_OK(lh_layers_make(p, layers, &rules, &err), err);
        CHECK_OK(lh_layers_pipeline(rules, p, moved->layers, &then, &err), err);
        CHECK_OK(lh_simulate(then, begin, NULL, &line, &err), err);
        CHECK(!rows[0].refused);
        CHECK_INT(rows[0].predicted_ns, lh_timeline_makespan(line));
        CHECK_INT(r->predicted_ns, lh_timeline_makespan(line));
        /* Deadlines: they wait at least this long. */
        CHECK(r->iterations[2].ns >= lh_timeline_makespan(line) + 30000000);
        CHECK(r->iterations[3].ns >= lh_timeline_makespan(line));
        CHECK(lh_timeline_makespan(line) != lh_exec_predicted_ns(x));
        lh_timeline_free(line);
        lh_pipeline_free(then);
        lh_layers_free(rules);
    }
    lh_train_result_free(r);
    /* In a run without layer information, migrations are rejected when
     * proposed, or before the run if announced. */
    lh_train_options untold = o;
    untold.layers = NULL;
    r = NULL;
    CHECK_OK(lh_train_timed(p, x, &untold, &r, &err), err);
    rows = r ? lh_train_switches(r, &n) : NULL;
    CHECK(n == 1 && rows && rows[0].refused);
    CHECK_HAS(rows && rows[0].refused ? rows[0].refused : "",
              "layers cannot migrate in this run: the layer count of each");
    lh_train_result_free(r);
    untold.moves_layers = true;
    CHECK_INT(lh_train_timed(p, x, &untold, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "the layer count of each chunk is unknown");
    untold.moves_layers = false;
    untold.moves_places = true;
    CHECK_INT(lh_train_timed(p, x, &untold, &r, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "ranks cannot migrate in this run: timed devices "
                        "need an event timeline with hosts");
    lh_exec_free(x);
    lh_schedule_free(begin);
    lh_pipeline_free(p);
}

int main(void)
{
    if (!folder_begin("moves", 4000))
        return 1;
    RUN_VIRTUAL(weights_are_unaffected);
    RUN_VIRTUAL(checkpoints_are_unaffected);
    RUN_VIRTUAL(one_rank_rejects_the_migration);
    RUN_VIRTUAL(invalid_migrations_are_rejected);
    RUN_VIRTUAL(ranks_are_killed_during_a_migration);
    RUN_VIRTUAL(timed_layers);
    folder_end();
    return test_summary();
}
