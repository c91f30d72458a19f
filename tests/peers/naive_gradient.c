/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the naive reference's loss and gradients in double precision, with
 * weights from a file:
 *
 *     naive-gradient WEIGHTS TOKENS(int32) OUT LAYERS HIDDEN FFN VOCAB HEADS
 *                    KV_HEADS HEAD_DIM TIED
 *
 * Writes the summed loss to OUT, then every tensor's gradient in the model's
 * order. */
#include "naive_llama.h"

#include "runtime/training/safetensors.h"
#include "runtime/training/train_internal.h"

#include <stdio.h>
#include <stdlib.h>

static void must(lh_status status, const lh_error *err)
{
    if (status != LH_OK) {
        fprintf(stderr, "naive-gradient: %s\n", err->text);
        exit(1);
    }
}

static void read_weights(naive_llama *n, const char *path)
{
    lh_error err;
    lhi_safetensors *file;
    must(lhi_st_open(path, &file, &err), &err);
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        lhi_checkpoint_tensor kept;
        const lhi_st_tensor *t;
        if (!lhi_checkpoint_get_tensor(n->model, i, &kept))
            continue;
        float *values = calloc(kept.n, sizeof *values);
        if (!values)
            exit(1);
        must(lhi_st_find(file, kept.name, kept.rows, kept.columns, &t, &err),
             &err);
        must(lhi_st_read(file, t, 0, kept.n, values, &err), &err);
        for (size_t j = 0; j < kept.n; j++)
            n->w[i][j] = (double)values[j];
        free(values);
    }
    lhi_st_close(file);
}

int main(int argc, char **argv)
{
    uint32_t v[8];
    static int32_t tokens[4096];
    if (argc != 12)
        return 2;
    for (int i = 0; i < 8; i++)
        v[i] = (uint32_t)strtoul(argv[4 + i], NULL, 10);
    lh_model model = {.layers = v[0],
                      .hidden = v[1],
                      .ffn = v[2],
                      .vocab = v[3],
                      .heads = v[4],
                      .kv_heads = v[5],
                      .head_dim = v[6],
                      .gated = true,
                      .tied_embeddings = v[7] != 0,
                      .moe_interval = 1};
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (!in || !out)
        return 1;
    size_t n = fread(tokens, sizeof tokens[0], 4096, in);
    naive_llama *naive = naive_make(&model);
    read_weights(naive, argv[1]);
    double loss = naive_sequence(naive, tokens, (uint32_t)n - 1, 1);
    fwrite(&loss, sizeof loss, 1, out);
    for (uint32_t i = 0; i < naive->n_tensors; i++)
        if (i + 1 < naive->n_tensors || !model.tied_embeddings)
            fwrite(naive->g[i], sizeof(double), naive->sizes[i], out);
    naive_free(naive);
    fclose(in);
    return fclose(out) != 0;
}
