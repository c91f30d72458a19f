/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/import_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lhi_import_ignore(lhi_imported_job *in, const char *name)
{
    char renamed[200];
    lhi_import_rename(in, name, renamed, sizeof renamed);
    lhi_text_add(&in->ignored, renamed, strlen(renamed) + 1);
    in->n_ignored++;
}

/* --- names ---------------------------------------------------------------- */

const char *lhi_import_find_name(const lhi_imported_job *in,
                                 const char *argument)
{
    for (uint32_t i = in->n_names; i-- > 0;)
        if (strcmp(in->names[i].argument, argument) == 0)
            return in->names[i].key;
    return NULL;
}

lh_status lhi_import_add_name(lhi_imported_job *in, const char *argument,
                              const char *key, lh_error *err)
{
    if (in->n_names == in->most_names) {
        const uint32_t most = in->most_names ? 2 * in->most_names : 64;
        lhi_argument_name *names = LHI_NEW(in->mem, lhi_argument_name, most);
        if (!names)
            return lhi_fail_nomem(err);
        if (in->n_names)
            memcpy(names, in->names, in->n_names * sizeof *names);
        in->names = names;
        in->most_names = most;
    }
    const char *copy = lhi_arena_strdup(in->mem, key);
    const char *of = lhi_arena_strdup(in->mem, argument);
    if (!copy || !of)
        return lhi_fail_nomem(err);
    in->names[in->n_names++] = (lhi_argument_name){of, copy};
    return LH_OK;
}

/* Writes the input key from which Megatron-LM's `argument` was derived to
 * `out`: the recorded one, else the argument's name in the input's default
 * section. */
static void print_name(const lhi_imported_job *in, const char *argument,
                       char *out, size_t size)
{
    const char *key = lhi_import_find_name(in, argument);
    if (key) {
        snprintf(out, size, "%s", key);
        return;
    }
    snprintf(out, size, "%s%s", in->names[0].key, argument);
    for (char *at = out; *at; at++)
        *at = *at == '-' ? '_' : *at;
}

/* Returns the argument name's length at the beginning of `text`: small letters,
 * digits and '-'. */
static size_t name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
}

void lhi_import_rename(const lhi_imported_job *in, const char *text, char *out,
                       size_t size)
{
    char argument[100], key[200];
    size_t len = 0;
    const char *at = text;
    while (*at && len + 1 < size) {
        const size_t n =
            strncmp(at, "--", 2) == 0 && (at == text || at[-1] == ' ')
                ? name_length(at + 2)
                : 0;
        if (!in->n_names || n == 0 || n >= sizeof argument) {
            out[len++] = *at++;
            continue;
        }
        snprintf(argument, sizeof argument, "%.*s", (int)n, at + 2);
        print_name(in, argument, key, sizeof key);
        const size_t room = size - len;
        const int wrote = snprintf(out + len, room, "%s", key);
        len += (size_t)wrote < room ? (size_t)wrote : room - 1;
        at += 2 + n;
    }
    out[len] = '\0';
}

/* --- notes ---------------------------------------------------------------- */

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
    const size_t size = in->n_names ? 4 * (size_t)len + 256 : (size_t)len + 1;
    char *renamed = LHI_NEW(in->mem, char, size);
    if (!renamed) {
        noted->failed = true;
        return;
    }
    lhi_import_rename(in, note, renamed, size);
    lhi_text_add(noted, renamed, strlen(renamed) + 1);
    in->n_noted++;
}

lh_status lhi_import_add_origin(lhi_imported_job *in, const char *path,
                                lhi_input_key key, lh_error *err)
{
    char where[256], renamed[256];
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
    lhi_import_rename(in, where, renamed, sizeof renamed);
    const char *copy = lhi_arena_strdup(in->mem, renamed);
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
