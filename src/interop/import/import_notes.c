/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/import_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lhi_import_ignore(lhi_imported_job *in, const char *name)
{
    lhi_text_add(&in->ignored, name, strlen(name) + 1);
    in->n_ignored++;
}

void lhi_import_note(lhi_imported_job *in, const char *format, ...)
{
    lhi_text *noted = &in->noted;
    va_list list;
    va_start(list, format);
    const int len = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *note = len < 0 ? NULL : LHI_NEW(in->mem, char, (size_t)len + 1);
    if (!note) {
        noted->failed = true;
        return;
    }
    va_start(list, format);
    vsnprintf(note, (size_t)len + 1, format, list);
    va_end(list);
    lhi_text_add(noted, note, (size_t)len + 1);
    in->n_noted++;
}

lh_status lhi_import_add_origin(lhi_imported_job *in, const char *path,
                                lhi_input_key key, lh_error *err)
{
    char where[256];
    uint32_t i = 0;
    while (i < in->n_origins && strcmp(in->origins[i].path, path) != 0)
        i++;
    if (i < in->n_origins && (in->origin_is_given[i] || !key.value->is_given))
        return LH_OK;
    assert(i < LHI_MOST_IMPORT_ORIGINS);
    if (key.value->is_given && key.value->line)
        snprintf(where, sizeof where, "%s:%u: %s", key.file, key.value->line,
                 key.name);
    else
        snprintf(where, sizeof where, "%s: %s", key.file, key.name);
    const char *copy = lhi_arena_strdup(in->mem, where);
    if (!copy)
        return lhi_fail_nomem(err);
    in->origins[i] = (lhi_doc_origin){path, copy};
    in->origin_is_given[i] = key.value->is_given;
    in->n_origins += i == in->n_origins;
    return LH_OK;
}

uint64_t lhi_import_count_gpus(const lh_import_options *options)
{
    const lh_draft_options *m = options->machines;
    uint64_t gpus = 0;
    if (options->cluster)
        return options->cluster->n_gpus;
    for (uint32_t i = 0; m && i < m->n_sites; i++) {
        if (!m->sites[i].nodes)
            return 0;
        gpus += (uint64_t)m->sites[i].nodes * lhi_draft_node_gpus(&m->sites[i]);
    }
    return gpus;
}
