/* SPDX-License-Identifier: Apache-2.0 */
/* Values with their own files; each is allocated in the arena that it owns. */
#include "format/job/parse.h"

#include <stddef.h>

/* Precedes the value, so that lhi_value_free() can find the arena. */
typedef union owner {
    lhi_arena *mem;
    max_align_t aligned;
} owner;

/* Allocates a struct of `size` bytes with its own arena, fills it from a parsed
 * document by `fill`, and frees the document. Release *out with
 * lhi_value_free(). */
static lh_status read_value(lhi_doc *doc, size_t size, lhi_fill_fn *fill,
                            void **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    size_t n = 1 + (size + sizeof(owner) - 1) / sizeof(owner);
    owner *held = mem ? LHI_NEW(mem, owner, n) : NULL;
    lh_status status =
        held ? fill(doc, mem, held + 1, err) : lhi_fail_nomem(err);
    lhi_doc_free(doc);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    held->mem = mem;
    *out = held + 1;
    return LH_OK;
}

lh_status lhi_value_parse(const char *text, size_t len, const char *name,
                          lhi_input_kind kind, size_t size, lhi_fill_fn *fill,
                          void **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, kind, &doc, err));
    return read_value(doc, size, fill, out, err);
}

lh_status lhi_value_read(const char *path, lhi_input_kind kind, size_t size,
                         lhi_fill_fn *fill, void **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, kind, &doc, err));
    return read_value(doc, size, fill, out, err);
}

void lhi_value_free(void *value)
{
    if (value)
        lhi_arena_free(((owner *)value - 1)->mem);
}
