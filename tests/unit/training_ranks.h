/* SPDX-License-Identifier: Apache-2.0 */
/* Training ranks in one thread, which takes the engine's role; their
 * checkpoints. */
#ifndef TRAINING_RANKS_H
#define TRAINING_RANKS_H

#include "small_llama.h"

#include "runtime/training/train.h"

/* Replicas of a pipeline. */
typedef struct team {
    uint32_t n_replicas, n_devices;
    small s[4];
    lhi_train *t[4][8];
    lhi_train_report report;
} team;

static uint32_t team_layers = 5;

/* Returns the ranks' options in one step. */
static inline lhi_train_options team_options(void)
{
    lhi_train_options o = lhi_train_defaults(10);
    o.rate = 1e-2, o.warmup = 3, o.clip = 0.5;
    return o;
}

/* Returns the recipe of a team's checkpoints. */
static inline lhi_recipe *team_recipe(void)
{
    static lhi_recipe recipe;
    const lhi_train_options o = team_options();
    recipe =
        (lhi_recipe){.seed = 3,
                     .options = {[LHI_RECIPE_STEPS] = (double)o.steps,
                                 [LHI_RECIPE_RATE] = o.rate,
                                 [LHI_RECIPE_MIN_RATE] = o.min_rate,
                                 [LHI_RECIPE_WARMUP] = (double)o.warmup,
                                 [LHI_RECIPE_WEIGHT_DECAY] = o.weight_decay,
                                 [LHI_RECIPE_CLIP] = o.clip,
                                 [LHI_RECIPE_BETA1] = o.beta1,
                                 [LHI_RECIPE_BETA2] = o.beta2,
                                 [LHI_RECIPE_EPSILON] = o.epsilon},
                     .run = {.name = "team"}};
    return &recipe;
}

/* Opens the ranks of all replicas. */
static inline team open_team(uint32_t replicas, uint32_t chunks,
                             uint32_t devices, bool tied)
{
    team m = {.n_replicas = replicas, .n_devices = devices};
    lh_error err;
    static lh_model models[2]; /* outlive the team's copies */
    models[tied] = small_model();
    models[tied].layers = team_layers;
    models[tied].tied_embeddings = tied;
    for (uint32_t r = 0; r < replicas; r++) {
        m.s[r] = small_sizes();
        small *s = &m.s[r];
        s->model.tied_embeddings = tied;
        s->model.layers = team_layers;
        s->n_microbatches = 4 / replicas;
        s->n_chunks = chunks, s->n_devices = devices;
        s->replica = r, s->n_replicas = replicas;
        small_open(s);
        for (uint32_t d = 0; d < devices; d++) {
            lhi_train_options o = team_options();
            uint32_t mine[16], n = 0;
            for (uint32_t c = d; c < chunks; c += devices)
                mine[n++] = c;
            o.model = &models[tied], o.n_chunks = chunks;
            o.mine = mine, o.n_mine = n;
            o.replica = r, o.n_replicas = replicas;
            CHECK_OK(lhi_train_make(s->devices[d], &o, &m.t[r][d], &err), err);
        }
    }
    return m;
}

/* Frees the ranks and their devices. */
static inline void close_team(team *m)
{
    for (uint32_t r = 0; r < m->n_replicas; r++) {
        for (uint32_t d = 0; d < m->n_devices; d++)
            lhi_train_free(m->t[r][d]);
        small_close(&m->s[r]);
    }
}

/* Sums a chunk's gradients over the replicas. */
static inline void reduce(team *m, uint32_t chunk)
{
    const float *values[4];
    float *out[4];
    size_t n = 0;
    for (uint32_t r = 0; r < m->n_replicas; r++)
        lhi_train_gradients(m->t[r][chunk % m->n_devices], chunk,
                            LHI_BUCKET_DEFAULT, &values[r], &n, &out[r]);
    CHECK_INT(n % m->n_replicas, 0);
    size_t piece = n / m->n_replicas;
    for (uint32_t r = 0; r < m->n_replicas; r++)
        for (size_t i = 0; i < piece; i++) {
            float sum = values[0][r * piece + i];
            for (uint32_t from = 1; from < m->n_replicas; from++)
                sum += values[from][r * piece + i];
            out[r][i] = sum;
        }
}

/* Gathers a chunk's weights from the replicas' shards. */
static inline void gather(team *m, uint32_t chunk)
{
    float *values[4];
    size_t n = 0;
    for (uint32_t r = 0; r < m->n_replicas; r++)
        lhi_train_parameters(m->t[r][chunk % m->n_devices], chunk,
                             LHI_BUCKET_DEFAULT, &values[r], &n);
    size_t piece = n / m->n_replicas;
    for (uint32_t r = 0; r < m->n_replicas; r++)
        for (uint32_t to = 0; n > 0 && to < m->n_replicas; to++)
            if (to != r)
                memcpy(values[to] + r * piece, values[r] + r * piece,
                       piece * sizeof(float));
    for (uint32_t r = 0; r < m->n_replicas; r++)
        lhi_train_gathered(m->t[r][chunk % m->n_devices], chunk);
}

/* Exchanges the gradients of a tied embedding between both ends. */
static inline void exchange_tied(team *m)
{
    for (uint32_t r = 0; r < m->n_replicas; r++) {
        lhi_train_tied_pair ends[2];
        int n = 0;
        for (uint32_t d = 0; d < m->n_devices; d++) {
            lhi_train_tied_pair pair = lhi_train_get_tied_pair(m->t[r][d]);
            if (pair.n > 0)
                ends[n++] = pair;
        }
        CHECK(n == 0 || n == 2);
        for (int i = 0; i < n; i++)
            memcpy(ends[i].theirs, ends[1 - i].mine, ends[i].n * sizeof(float));
    }
}

typedef lh_status (*tally_call)(lhi_train *, double *, lh_error *);

/* Sums the tallies over all ranks; the caller frees the sums. */
static inline double *add_tallies(team *m, tally_call call)
{
    lh_error err;
    size_t n = lhi_train_tally_size(m->t[0][0]);
    double *all = calloc(n, sizeof *all), *one = calloc(n, sizeof *one);
    for (uint32_t r = m->n_replicas; r-- > 0;)
        for (uint32_t d = 0; d < m->n_devices; d++) {
            CHECK_OK(call(m->t[r][d], one, &err), err);
            for (size_t i = 0; i < n; i++)
                all[i] += one[i];
        }
    free(one);
    return all;
}

/* Runs one training step; returns the loss. */
static inline double team_step(team *m)
{
    lh_error err;
    uint32_t chunks = m->s[0].n_chunks;
    for (uint32_t c = 0; c < chunks; c++)
        gather(m, c);
    for (uint32_t r = 0; r < m->n_replicas; r++)
        small_step(&m->s[r], lhi_train_step(m->t[r][0]), LHI_STEP_TRAIN,
                   (small_order)(r % 4));
    for (uint32_t c = 0; c < chunks; c++)
        reduce(m, c);
    exchange_tied(m);
    double *tally = add_tallies(m, lhi_train_tally);
    for (uint32_t r = 0; r < m->n_replicas; r++)
        for (uint32_t d = 0; d < m->n_devices; d++)
            CHECK_OK(lhi_train_update(m->t[r][d], tally, &m->report, &err),
                     err);
    free(tally);
    return m->report.loss;
}

/* Gathers all chunks' weights. */
static inline void settle(team *m)
{
    for (uint32_t c = 0; c < m->s[0].n_chunks; c++)
        gather(m, c);
}

/* Checks for bitwise equal weights. */
static inline void check_same(team *a, team *b)
{
    settle(a);
    settle(b);
    for (uint32_t i = 0; small_tensor(&a->s[0], i); i++) {
        const lhi_tensor *x = small_tensor(&a->s[0], i);
        const lhi_tensor *y = small_tensor(&b->s[b->n_replicas - 1], i);
        CHECK_MSG(memcmp(x->value, y->value, x->n * sizeof(float)) == 0,
                  "%s differs", x->name);
    }
}

/* Saves a checkpoint with all ranks. */
static inline void save_all(team *m, const lhi_checkpoint_options *o)
{
    lh_error err;
    size_t n = lhi_train_count_checksums(m->t[0][0]);
    double *all = calloc(n, sizeof *all), *one = calloc(n, sizeof *one);
    settle(m);
    CHECK_OK(lhi_train_save_begin(m->t[0][0], o, &err), err);
    for (uint32_t r = 0; r < m->n_replicas; r++)
        for (uint32_t d = 0; d < m->n_devices; d++) {
            CHECK_OK(lhi_train_save_part(m->t[r][d], o, one, &err), err);
            for (size_t i = 0; i < n; i++)
                all[i] += one[i];
        }
    CHECK_OK(lhi_train_save_end(m->t[0][0], o, all, &err), err);
    free(all);
    free(one);
}

/* Loads a checkpoint into all ranks. */
static inline void load_all(team *m, const char *path,
                            const lhi_checkpoint_options *o)
{
    lh_error err;
    for (uint32_t r = 0; r < m->n_replicas; r++)
        for (uint32_t d = 0; d < m->n_devices; d++)
            CHECK_OK(lhi_train_load(m->t[r][d], path, o, &err), err);
}

/* Removes a folder and its contents. */
static inline void remove_all(const char *folder)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
}

/* Checks whether the folder has a file with that name. */
static inline bool is_there(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

#endif
