/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer compared with doubles; equal bits over pipeline degrees, saving
 * and resuming; errors in checkpoints. */
#define _GNU_SOURCE /* mkdtemp, setrlimit */
#include "naive_llama.h"
#include "training_ranks.h"

#include "runtime/training/safetensors.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* One AdamW step in doubles, as in its paper, on the naive model. */
static void naive_adamw(naive_llama *n, double **m, double **v, uint64_t step,
                        double rate)
{
    double squares = 0, scale;
    for (uint32_t i = 0; i < n->n_tensors; i++)
        for (size_t j = 0; j < n->sizes[i]; j++)
            squares += n->g[i][j] * n->g[i][j];
    scale = sqrt(squares) > 0.5 ? 0.5 / (sqrt(squares) + 1e-6) : 1;
    for (uint32_t i = 0; i < n->n_tensors; i++)
        for (size_t j = 0; j < n->sizes[i]; j++) {
            double g = n->g[i][j] * scale, t = (double)step + 1;
            bool norm = n->sizes[i] == n->model->hidden;
            m[i][j] = 0.9 * m[i][j] + 0.1 * g;
            v[i][j] = 0.95 * v[i][j] + 0.05 * g * g;
            n->w[i][j] *= 1 - rate * (norm ? 0 : 0.1);
            n->w[i][j] -= rate * (m[i][j] / (1 - pow(0.9, t))) /
                          (sqrt(v[i][j] / (1 - pow(0.95, t))) + 1e-8);
            n->g[i][j] = 0;
        }
}

static double naive_loss(naive_llama *n, small *s, uint64_t step)
{
    lh_error err;
    int32_t window[64];
    double loss = 0, scale = 1 / (8.0 * s->sequence);
    for (uint64_t i = 0; i < 8; i++) {
        CHECK_OK(lhi_data_read_window(s->data, 0, step * 8 + i, window, &err),
                 err);
        loss += naive_sequence(n, window, s->sequence, scale);
    }
    return loss * scale;
}

static void learns_as_doubles_do(void)
{
    team m = open_team(1, 1, 1, false);
    naive_llama *n = naive_make(&m.s[0].model);
    double **first = calloc(n->n_tensors, sizeof *first);
    double **second = calloc(n->n_tensors, sizeof *second);
    double begin = 0, loss = 0;
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        const lhi_tensor *t = small_tensor(&m.s[0], i);
        for (size_t j = 0; j < t->n; j++)
            n->w[i][j] = (double)t->value[j];
        first[i] = calloc(t->n, sizeof(double));
        second[i] = calloc(t->n, sizeof(double));
    }
    for (uint64_t step = 0; step < 8; step++) {
        double want = naive_loss(n, &m.s[0], step);
        loss = team_step(&m);
        begin = step == 0 ? loss : begin;
        CHECK_NEAR(loss, want, 1e-5 * want);
        CHECK_INT(m.report.step, step);
        CHECK_INT(m.report.tokens, 8 * m.s[0].sequence);
        naive_adamw(n, first, second, step, m.report.rate);
    }
    CHECK_MSG(loss < 0.8 * begin, "the loss went from %g to %g", begin, loss);
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        free(first[i]);
        free(second[i]);
    }
    free(first);
    free(second);
    naive_free(n);
    close_team(&m);
}

static void rates(void)
{
    team m = open_team(1, 1, 1, false);
    const double want[] = {1. / 3, 2. / 3, 1};
    for (int i = 0; i < 3; i++) {
        team_step(&m);
        CHECK_NEAR(m.report.rate, 1e-2 * want[i], 1e-12);
    }
    for (int i = 3; i < 10; i++)
        team_step(&m);
    /* Half a cosine from 1e-2 to 3e-5 over 7 steps; the last is number 6. */
    CHECK_NEAR(m.report.rate,
               3e-5 + (1e-2 - 3e-5) * (1 + cos(acos(-1) * 6 / 7)) / 2, 1e-12);
    team_step(&m);
    CHECK_NEAR(m.report.rate, 3e-5, 1e-15);
    close_team(&m);
}

static void any_degree(void)
{
    static const struct {
        uint32_t chunks, devices;
    } ways[] = {{2, 2}, {4, 4}, {8, 8}, {4, 2}, {3, 1}};
    for (int tied = 0; tied < 2; tied++)
        for (uint32_t replicas = 1; replicas <= 2; replicas++) {
            team one = open_team(replicas, 1, 1, tied);
            for (int step = 0; step < 4; step++)
                team_step(&one);
            double loss = one.report.loss, norm = one.report.norm;
            for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
                team other =
                    open_team(replicas, ways[i].chunks, ways[i].devices, tied);
                for (int step = 0; step < 4; step++)
                    team_step(&other);
                CHECK(memcmp(&loss, &other.report.loss, sizeof loss) == 0);
                CHECK(memcmp(&norm, &other.report.norm, sizeof norm) == 0);
                check_same(&one, &other);
                close_team(&other);
            }
            close_team(&one);
        }
}

static void replicas_agree(void)
{
    team one = open_team(1, 1, 1, true), four = open_team(4, 2, 2, true);
    for (int step = 0; step < 4; step++)
        CHECK_NEAR(team_step(&four), team_step(&one), 2e-6 * 6);
    settle(&four);
    for (uint32_t i = 0; small_tensor(&one.s[0], i); i++) {
        const lhi_tensor *x = small_tensor(&one.s[0], i);
        const lhi_tensor *y = small_tensor(&four.s[3], i);
        double error = 0, size = 0;
        for (size_t j = 0; j < x->n; j++) {
            double d = (double)x->value[j] - (double)y->value[j];
            error += d * d;
            size += (double)x->value[j] * (double)x->value[j];
        }
        CHECK_MSG(error <= 1e-6 * size, "%s: %g of %g", x->name, error, size);
    }
    close_team(&one);
    close_team(&four);
}

static void resumes(void)
{
    static const struct {
        uint32_t replicas, chunks, devices;
    } ways[] = {{2, 1, 1}, {2, 4, 2}, {2, 8, 8}};
    char folder[] = "/tmp/lh-train-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    lhi_checkpoint_options o = {
        .folder = folder, .keep = 2, .recipe = team_recipe(), .sequence = 21};
    for (int tied = 0; tied < 2; tied++) {
        team whole = open_team(2, 2, 2, tied);
        for (int step = 0; step < 3; step++) {
            team_step(&whole);
            save_all(&whole, &o);
        }
        CHECK(!is_there(folder, "step-00000001"));
        CHECK(is_there(folder, "step-00000002"));
        CHECK(is_there(folder, "step-00000003/config.json"));
        for (int step = 3; step < 6; step++)
            team_step(&whole);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            team again = open_team(ways[i].replicas, ways[i].chunks,
                                   ways[i].devices, tied);
            load_all(&again, folder, &o);
            CHECK_INT(lhi_train_step(again.t[0][0]), 3);
            for (int step = 3; step < 6; step++)
                team_step(&again);
            check_same(&whole, &again);
            close_team(&again);
        }
        /* With another number of replicas: the same start, but other sums. */
        team four = open_team(4, 2, 1, tied);
        load_all(&four, folder, &o);
        CHECK_INT(lhi_train_step(four.t[3][0]), 3);
        close_team(&four);
        close_team(&whole);
        remove_all(folder);
        CHECK_INT(mkdir(folder, 0777), 0);
    }
    remove_all(folder);
}

/* Flips one byte of a file, at `at` from its start (or end, if negative). */
static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    char byte;
    off_t size = lseek(fd, 0, SEEK_END);
    if (at < 0)
        at += size;
    CHECK(at >= 0 && at < size);
    CHECK_INT(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    CHECK_INT(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void damage_is_found(void)
{
    static const char *const files[] = {"model.safetensors",
                                        "optimizer.safetensors", "state.json"};
    char folder[] = "/tmp/lh-train-XXXXXX", path[128];
    lh_error err;
    CHECK(mkdtemp(folder) != NULL);
    lhi_checkpoint_options o = {.folder = folder, .recipe = team_recipe()};
    team m = open_team(1, 1, 1, false);
    team_step(&m);
    save_all(&m, &o);
    for (size_t i = 0; i < 3; i++) {
        struct stat info;
        snprintf(path, sizeof path, "%s/step-00000001/%s", folder, files[i]);
        CHECK_INT(stat(path, &info), 0);
        for (int k = 0; k < 60; k++) {
            off_t at = info.st_size * k / 60;
            flip(path, at);
            lh_status status = lhi_train_load(m.t[0][0], folder, &o, &err);
            CHECK_MSG(status == LH_EINPUT || status == LH_EUNSUPPORTED ||
                          (status == LH_OK && i == 2 && at < 5000),
                      "%s, byte %ld: status %d", files[i], (long)at, status);
            if (status != LH_OK)
                CHECK_HAS(err.text, files[i]);
            flip(path, at);
        }
        CHECK_INT(truncate(path, info.st_size / 2), 0);
        CHECK_INT(lhi_train_load(m.t[0][0], folder, &o, &err), LH_EINPUT);
        CHECK_HAS(err.text, "damaged");
        save_all(&m, &o); /* replaces the damaged one */
        CHECK_OK(lhi_train_load(m.t[0][0], folder, &o, &err), err);
    }
    o.recipe->seed = 4;
    CHECK_INT(lhi_train_load(m.t[0][0], folder, &o, &err), LH_EINPUT);
    CHECK_HAS(err.text, "data.seed: the checkpoint's run has 3, this run 4");
    o.recipe = NULL;
    o.rope_theta = 500000;
    CHECK_INT(lhi_train_load(m.t[0][0], folder, &o, &err), LH_EINPUT);
    CHECK_HAS(err.text, "another model");
    CHECK_INT(lhi_train_load(m.t[0][0], "/tmp", &o, &err), LH_EINPUT);
    CHECK_HAS(err.text, "no checkpoint");
    close_team(&m);
    remove_all(folder);
}

/* Options outside their range would overflow when they become whole numbers. */
static void adopts_valid_options_only(void)
{
    lhi_recipe recipe = *team_recipe();
    json_t *root = json_object();
    lh_error err;
    snprintf(recipe.run.id, sizeof recipe.run.id, "%s", "1");
    CHECK(lhi_recipe_format(&recipe, root));
    CHECK_OK(lhi_recipe_adopt(&recipe, root, "state.json", &err), err);
    json_t *options = json_object_get(root, "options");
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            json_object_set_new(options, "steps", json_real(i ? 1e300 : -1));
        else
            json_object_del(options, "steps");
        CHECK_INT(lhi_recipe_adopt(&recipe, root, "state.json", &err),
                  LH_EINPUT);
        CHECK_HAS(err.text, "state.json: options.steps: expected a number");
    }
    recipe.overridden = 1u << LHI_RECIPE_STEPS;
    CHECK_OK(lhi_recipe_adopt(&recipe, root, "state.json", &err), err);
    json_decref(root);
}

/* Checks that a checkpoint of an older version, whose fingerprint of large data
 * covers samples, is accepted on data with these samples only, and that the
 * next checkpoint has the fingerprint of all data. */
static void adopts_older_fingerprints(void)
{
    static const struct {
        uint64_t written;
        lh_status status;
    } cases[] = {{2, LH_OK}, {1, LH_OK}, {3, LH_EINPUT}};
    lh_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lhi_recipe older = *team_recipe();
        snprintf(older.run.id, sizeof older.run.id, "%s", "1");
        lhi_recipe recipe = older;
        json_t *root = json_object(), *next = json_object();
        older.data = older.sampled_data = cases[i].written;
        recipe.data = 1, recipe.sampled_data = 2;
        CHECK(lhi_recipe_format(&older, root));
        CHECK_INT(lhi_recipe_adopt(&recipe, root, "state.json", &err),
                  cases[i].status);
        if (cases[i].status != LH_OK)
            CHECK_HAS(err.text, "has 0000000000000003, this run "
                                "0000000000000001: give the same --data");
        CHECK(lhi_recipe_format(&recipe, next));
        CHECK_STR(json_string_value(json_object_get(
                      json_object_get(next, "data"), "fingerprint")),
                  "0000000000000001");
        json_decref(root);
        json_decref(next);
    }
}

static void full_disk(void)
{
    char folder[] = "/tmp/lh-train-XXXXXX";
    lh_error err;
    struct rlimit was, small_limit;
    CHECK(mkdtemp(folder) != NULL);
    lhi_checkpoint_options o = {.folder = folder};
    team m = open_team(1, 1, 1, false);
    save_all(&m, &o);
    team_step(&m);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small_limit = was;
    small_limit.rlim_cur = 50000;
    setrlimit(RLIMIT_FSIZE, &small_limit);
    lh_status status = lhi_train_save_begin(m.t[0][0], &o, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    CHECK_INT(status, LH_EIO);
    CHECK_HAS(err.text, "older ones are unchanged: raise the limit on file "
                        "sizes (ulimit -f), then resume from the newest one");
    CHECK(is_there(folder, "step-00000000/state.json"));
    CHECK(!is_there(folder, ".new-step-00000001"));
    CHECK_OK(lhi_train_load(m.t[0][0], folder, &o, &err), err);
    /* Cancelled midway. */
    CHECK_OK(lhi_train_save_begin(m.t[0][0], &o, &err), err);
    lhi_train_save_cancel(m.t[0][0], &o);
    CHECK(!is_there(folder, ".new-step-00000000"));
    CHECK_OK(lhi_train_load(m.t[0][0], folder, &o, &err), err);
    close_team(&m);
    remove_all(folder);
}

static void weights_alone(void)
{
    static const struct {
        const char *text, *says;
    } indices[] = {
        {"{", "x.index.json:1: not valid JSON"},
        {"{\"weight_map\": []}", "weight_map: expected a map from tensors"},
        {"{\"weight_map\": {\"a\": 1}}", "a: is not the name of a file"},
        {"{\"weight_map\": {\"a\": \"../b\"}}", "'../b' is not the name of"},
        {"{\"weight_map\": {\"a\": \"b\"}}", "/b: No such file"},
        {"{\"weight_map\": {\"a\": \"model.safetensors\"}}",
         "model.safetensors: has no tensor a in float32, float16 or bfloat16, "
         "which"},
        {"{\"weight_map\": {\"model.norm.weight\": \"model.safetensors\"}}",
         "x.index.json: has no tensor model.embed_tokens.weight"},
    };
    char folder[] = "/tmp/lh-train-XXXXXX", path[128];
    lh_error err;
    CHECK(mkdtemp(folder) != NULL);
    lhi_checkpoint_options o = {.folder = folder};
    team m = open_team(1, 1, 1, true), other = open_team(1, 3, 3, true);
    team_step(&m);
    save_all(&m, &o);
    snprintf(path, sizeof path, "%s/step-00000001", folder);
    for (uint32_t d = 0; d < 3; d++)
        CHECK_OK(lhi_train_load_weights(other.t[0][d], path, &err), err);
    CHECK_INT(lhi_train_step(other.t[0][0]), 0);
    check_same(&m, &other);
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        snprintf(path, sizeof path, "%s/step-00000001/x.index.json", folder);
        FILE *f = fopen(path, "w");
        fputs(indices[i].text, f);
        fclose(f);
        CHECK(lhi_train_load_weights(other.t[0][0], path, &err) != LH_OK);
        CHECK_HAS(err.text, indices[i].says);
    }
    close_team(&m);
    close_team(&other);
    remove_all(folder);
}

/* 16-bit floats and their values, by IEEE 754 and bfloat16's definition. */
static void reads_halves(void)
{
    static const struct {
        uint16_t bits;
        float value;
    } halves[] = {{0x3c00, 1},        {0xc248, -3.140625f}, {0x7bff, 65504},
                  {0x0400, 0x1p-14f}, {0x03ff, 0x3ffp-24f}, {0x8001, -0x1p-24f},
                  {0x7c00, INFINITY}, {0xfc00, -INFINITY},  {0x8000, -0.0f}},
      brains[] = {
          {0x3f80, 1},         {0xc049, -3.140625f}, {0x7f7f, 0x1.fep127f},
          {0x0080, 0x1p-126f}, {0x007f, 0x7fp-133f}, {0x8001, -0x1p-133f},
          {0x7f80, INFINITY},  {0xff80, -INFINITY},  {0x8000, -0.0f}};
    enum { N = sizeof halves / sizeof *halves };
    static const char header[] =
        "{\"half\":{\"dtype\":\"F16\",\"shape\":[9],\"data_offsets\":[0,18]},"
        "\"brain\":{\"dtype\":\"BF16\",\"shape\":[9],\"data_offsets\":[18,36]}"
        "}";
    char path[] = "/tmp/lh-train-XXXXXX";
    const uint64_t len = sizeof header - 1;
    lhi_safetensors *file = NULL;
    lh_error err = {0};
    FILE *f = fdopen(mkstemp(path), "wb");
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> 8 * i & 255), f);
    fputs(header, f);
    for (uint32_t i = 0; i < 2 * N; i++) {
        const uint16_t bits = i < N ? halves[i].bits : brains[i - N].bits;
        fputc(bits & 255, f);
        fputc(bits >> 8, f);
    }
    fclose(f);
    CHECK_OK(lhi_st_open(path, &file, &err), err);
    for (int kind = 0; file && kind < 2; kind++) {
        const lhi_st_tensor *t = NULL;
        float got[N];
        CHECK_OK(lhi_st_find(file, kind ? "brain" : "half", N, 0, &t, &err),
                 err);
        CHECK_OK(lhi_st_read(file, t, 0, N, got, &err), err);
        for (uint32_t i = 0; i < N; i++) {
            const float want = kind ? brains[i].value : halves[i].value;
            CHECK_MSG(memcmp(&got[i], &want, sizeof want) == 0,
                      "number %u is %g, not %g", i, (double)got[i],
                      (double)want);
        }
        /* A part of the tensor. */
        CHECK_OK(lhi_st_read(file, t, 4, 1, got, &err), err);
        CHECK(got[0] == (kind ? brains[4].value : halves[4].value));
    }
    lhi_st_close(file);
    unlink(path);
}

static void no_numbers(void)
{
    team m = open_team(1, 1, 1, false);
    lh_error err;
    size_t n = lhi_train_tally_size(m.t[0][0]);
    double *tally = calloc(n, sizeof *tally), loss;
    float before = small_tensor(&m.s[0], 3)->value[0];
    tally[4] = NAN;
    CHECK_INT(lhi_train_update(m.t[0][0], tally, &m.report, &err), LH_EINPUT);
    CHECK_HAS(err.text, "step 0: the gradient is not finite");
    CHECK(before == small_tensor(&m.s[0], 3)->value[0]);
    CHECK_INT(lhi_train_step(m.t[0][0]), 0);
    small_step(&m.s[0], 0, LHI_STEP_VALIDATE, SMALL_JOINT);
    double *sum = add_tallies(&m, lhi_train_validation_tally);
    CHECK_OK(lhi_train_reduce_validation(m.t[0][0], sum, &loss, &err), err);
    CHECK_NEAR(loss, log(256), 0.1);
    free(sum);
    free(tally);
    close_team(&m);
}

int main(void)
{
    RUN(learns_as_doubles_do);
    RUN(rates);
    RUN(any_degree);
    RUN(replicas_agree);
    RUN(resumes);
    RUN(damage_is_found);
    RUN(adopts_valid_options_only);
    RUN(adopts_older_fingerprints);
    RUN(full_disk);
    RUN(weights_alone);
    RUN(reads_halves);
    RUN(no_numbers);
    return test_summary();
}
