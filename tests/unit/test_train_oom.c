/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation in the cpu device, its data and training fails in turn. */
#define _GNU_SOURCE /* mkstemp, mkdtemp */
#include "small_llama.h"

#include "fail_alloc.h"
#include "runtime/device/tokenizer.h"
#include "runtime/training/train.h"

static char text_path[64], folder[] = "/tmp/lh-oom-XXXXXX";
static lh_model model;

/* The objects under test. */
typedef struct layer_bytes {
    lhi_data *data;
    lhi_device *device;
    lhi_train *train;
    lhi_train_report report;
} parts;

static void release(parts *p)
{
    lhi_train_free(p->train);
    if (p->device)
        p->device->ops->close(p->device);
    lhi_data_close(p->data);
}

static lh_status open_all(parts *p, lh_error *err)
{
    static const uint32_t mine = 0;
    static uint32_t firsts[2];
    lhi_train_options o = lhi_train_defaults(10);
    firsts[1] = model.layers;
    LHI_TRY(lhi_data_open(
        &(lhi_data_options){.path = text_path, .vocab = 256, .sequence = 5},
        &p->data, err));
    LHI_TRY(lhi_device_cpu(&(lhi_cpu_options){.model = &model,
                                              .n_chunks = 1,
                                              .first_layers = firsts,
                                              .n_mine = 1,
                                              .mine = &mine,
                                              .microbatch = 1,
                                              .sequence = 5,
                                              .n_microbatches = 1,
                                              .n_replicas = 1,
                                              .data = p->data},
                           &p->device, err));
    o.model = &model, o.n_chunks = 1, o.n_mine = 1, o.mine = &mine;
    o.n_replicas = 1;
    return lhi_train_make(p->device, &o, &p->train, err);
}

static lh_status step(parts *p, lh_error *err)
{
    static double tally[512];
    const lhi_device_ops *ops = p->device->ops;
    lh_pass f = {.kind = LH_F, .n_parts = 1}, b = {.kind = LH_B, .n_parts = 1};
    CHECK(lhi_train_tally_size(p->train) <= 512);
    LHI_TRY(ops->begin(p->device, 0, LHI_STEP_TRAIN, err));
    LHI_TRY(ops->run(p->device, &f, NULL, NULL, 0, NULL, err));
    LHI_TRY(ops->run(p->device, &b, NULL, NULL, 0, NULL, err));
    LHI_TRY(lhi_train_tally(p->train, tally, err));
    return lhi_train_update(p->train, tally, &p->report, err);
}

static lh_status train(void)
{
    lh_error err;
    parts p = {.data = NULL};
    lh_status status = open_all(&p, &err);
    if (status == LH_OK)
        status = step(&p, &err);
    release(&p);
    return status;
}

static lh_status save(lhi_train *t, lhi_checkpoint_options *o, lh_error *err)
{
    static double sums[2048];
    CHECK(lhi_train_count_checksums(t) <= 2048);
    LHI_TRY(lhi_folder_lock_take(folder, NULL, &o->lock, err));
    lh_status status = lhi_checkpoint_remove_stale(folder, err);
    if (status == LH_OK)
        status = lhi_train_save_begin(t, o, err);
    if (status == LH_OK)
        status = lhi_train_save_part(t, o, sums, err);
    if (status == LH_OK)
        status = lhi_train_save_end(t, o, sums, err);
    if (status != LH_OK)
        lhi_train_save_cancel(t, o);
    lhi_folder_lock_release(o->lock);
    return status;
}

static void trains(void)
{
    FAIL_EACH_ALLOC(status = train());
}

static void saves_and_loads(void)
{
    lh_error err;
    parts p = {.data = NULL};
    lhi_checkpoint_options o = {.folder = folder, .keep = 2};
    CHECK_OK(open_all(&p, &err), err);
    CHECK_OK(save(p.train, &o, &err), err);
    CHECK_OK(step(&p, &err), err);
    FAIL_EACH_ALLOC(status = save(p.train, &o, &err));
    FAIL_EACH_ALLOC(status = lhi_train_load(p.train, folder, &o, &err));
    CHECK_INT(lhi_train_step(p.train), 1);
    char weights[64];
    snprintf(weights, sizeof weights, "%s/step-00000001", folder);
    FAIL_EACH_ALLOC(status = lhi_train_load_weights(p.train, weights, &err));
    release(&p);
}

static const char bpe[] =
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\":"
    "{\"a\": 0, \"b\": 1, \"ab\": 2, \"aba\": 3}, \"merges\": [\"a b\","
    "\"ab a\"]}}";

static lh_status tokenize(void)
{
    lh_error err;
    lhi_tokenizer *t;
    uint32_t *tokens = NULL;
    size_t n;
    LHI_TRY(lhi_tokenizer_parse(bpe, strlen(bpe), "t", &t, &err));
    lh_status status =
        lhi_tokenizer_encode(t, "abababab", 8, &tokens, &n, &err);
    lhi_tokens_free(tokens);
    lhi_tokenizer_free(t);
    return status;
}

static void tokenizes(void)
{
    FAIL_EACH_ALLOC(status = tokenize());
}

int main(void)
{
    lh_error err;
    parts p = {.data = NULL};
    char command[128];
    model = small_model();
    model.layers = 1, model.hidden = 8, model.ffn = 8;
    model.tied_embeddings = true;
    small_text(text_path, sizeof text_path);
    if (open_all(&p, &err) == LH_EUNSUPPORTED) {
        fprintf(stderr, "SKIPPED: %s\n", err.text);
        return 77;
    }
    release(&p);
    if (!mkdtemp(folder))
        return 1;
    RUN(trains);
    RUN(saves_and_loads);
    RUN(tokenizes);
    unlink(text_path);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || test_summary();
}
