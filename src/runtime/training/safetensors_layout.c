/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of tensors in a checkpoint's files: in the model's order, independent
 * of the pipeline's degree, so that equal weights give equal files. */
#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "runtime/training/train_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the header's length, and alignment of the header. */
enum { LENGTH = 8 };

const char *const lhi_weight_suffixes[] = {"", NULL};
const char *const lhi_moment_suffixes[] = {".exp_avg", ".exp_avg_sq", NULL};
const char *const lhi_delayed_suffixes[] = {".exp_avg", ".exp_avg_sq",
                                            ".late_grad", NULL};

/* Appends a float32 tensor's header entry, named with `suffix` and with its
 * values at byte offset `at` of the file's data, to the JSON text. */
static void add_tensor(lhi_text *text, const lhi_checkpoint_tensor *t,
                       const char *suffix, uint64_t at)
{
    lhi_text_printf(text, ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%u", t->name,
                    suffix, t->rows);
    if (t->columns)
        lhi_text_printf(text, ",%u", t->columns);
    lhi_text_printf(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                    at + t->n * sizeof(float));
}

lh_status lhi_safetensors_layout_make(const lh_model *model,
                                      const char *const *suffixes,
                                      lhi_safetensors_layout *out,
                                      lh_error *err)
{
    lhi_safetensors_layout made = {0};
    lhi_text text = {0};
    uint32_t n = lhi_checkpoint_count_tensors(model);
    uint64_t at = 0;
    while (suffixes[made.n_suffixes])
        made.n_suffixes++;
    if (!(made.at = calloc((size_t)n * made.n_suffixes, sizeof *made.at)))
        return lhi_fail_nomem(err);
    lhi_text_add(&text, "\0\0\0\0\0\0\0\0", LENGTH);
    lhi_text_puts(&text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t s = 0; s < made.n_suffixes; s++) {
            lhi_checkpoint_tensor t;
            made.at[(size_t)i * made.n_suffixes + s] = at;
            if (!lhi_checkpoint_get_tensor(model, i, &t))
                continue;
            add_tensor(&text, &t, suffixes[s], at);
            at += t.n * sizeof(float);
        }
    lhi_text_puts(&text, "}");
    while (!text.failed && text.len % LENGTH)
        lhi_text_puts(&text, " ");
    lh_status status = lhi_text_take(&text, &made.header, &made.len, err);
    if (status != LH_OK) {
        free(made.at);
        return status;
    }
    lhi_store_little_endian((unsigned char *)made.header, LENGTH,
                            made.len - LENGTH);
    for (size_t i = 0; i < (size_t)n * made.n_suffixes; i++)
        made.at[i] += made.len;
    made.bytes = made.len + at;
    *out = made;
    return LH_OK;
}

void lhi_safetensors_layout_fini(lhi_safetensors_layout *layout)
{
    free(layout->at);
    lh_text_free(layout->header);
    *layout = (lhi_safetensors_layout){0};
}
