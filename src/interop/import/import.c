/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/import_internal.h"

#include "base/options.h"

#include <string.h>

static const struct {
    const char *name;
    lhi_import_fn *read;
} sources[] = {{"megatron", lhi_import_megatron_text},
               {"torchtitan", lhi_import_torchtitan_text},
               {"deepspeed", lhi_import_deepspeed_text},
               {"nemo", lhi_import_nemo_text}};

uint32_t lhi_n_import_sources(void)
{
    return sizeof sources / sizeof *sources;
}

const char *lh_import_source_name(lh_import_source source)
{
    return (uint32_t)source < lhi_n_import_sources() ? sources[source].name
                                                     : NULL;
}

/* --- results ------------------------------------------------------- */

/* An lh_import and the arena that contains it and its data. */
typedef struct owned_import {
    lh_import import; /* first member, so lh_import_free() can find the arena */
    lhi_arena *mem;
} owned_import;

/* Copies the `n` NUL-terminated strings that are stored one after the other in
 * `text` into `mem`, and returns an array of them; NULL if memory runs out. */
static const char *const *split_texts(lhi_arena *mem, const lhi_text *text,
                                      uint32_t n)
{
    const char **list = LHI_NEW(mem, const char *, n + (size_t)1);
    char *all = list && n ? LHI_NEW(mem, char, text->len) : NULL;
    if (!list || (n && !all))
        return NULL;
    if (n)
        memcpy(all, text->data, text->len);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = all;
        all += strlen(all) + 1;
    }
    return list;
}

/* Copies the job's text, the ignored keys and the notes into a new lh_import,
 * which owns them. */
static lh_status build_import(const lhi_imported_job *in, const char *job,
                              size_t len, lh_import **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    owned_import *held = mem ? LHI_NEW(mem, owned_import, 1) : NULL;
    lh_import *import = held ? &held->import : NULL;
    if (import) {
        held->mem = mem;
        import->job = lhi_arena_strndup(mem, job, len);
        import->job_len = len;
        import->n_ignored = in->n_ignored;
        import->ignored = split_texts(mem, &in->ignored, in->n_ignored);
        import->n_notes = in->n_noted;
        import->notes = split_texts(mem, &in->noted, in->n_noted);
        import->plan_target = in->plan_for;
    }
    if (!import || !import->job || !import->ignored || !import->notes) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    *out = import;
    return LH_OK;
}

void lh_import_free(lh_import *import)
{
    if (import)
        lhi_arena_free(((owned_import *)import)->mem);
}

/* Reads another program's configuration, writes a job from it, and builds the
 * import. The caller frees *out. */
static lh_status import_text(lh_import_source source, const char *text,
                             size_t len, const char *name,
                             const lh_import_options *options,
                             lhi_imported_job *in, lh_import **out,
                             lh_error *err)
{
    char *job = NULL;
    size_t job_len;
    LHI_TRY(lhi_import_read_placement(text, len, options, in, err));
    LHI_TRY(sources[source].read(text, len, name, options, in, err));
    if (in->ignored.failed || in->noted.failed)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_import_write(in, name, options, &job, &job_len, err));
    lh_status status = build_import(in, job, job_len, out, err);
    lh_text_free(job);
    return status;
}

lh_status lh_import_parse(lh_import_source source, const char *text, size_t len,
                          const char *name, const lh_import_options *options,
                          lh_import **out, lh_error *err)
{
    lh_import_options o;
    lh_draft_options machines;
    const lh_draft_site usual = {.gpu = "h100-sxm"};
    if ((uint32_t)source >= lhi_n_import_sources())
        return lhi_fail(err, LH_EINVAL, "unknown import source");
    LHI_TRY(LHI_OPTIONS_COPY(lh_import_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_draft_options, &machines, o.machines, err));
    if (source == LH_IMPORT_MEGATRON && o.model)
        return lhi_fail(err, LH_EINVAL,
                        "Megatron-LM arguments define the model; remove the "
                        "other one");
    if (source != LH_IMPORT_TORCHTITAN && o.schedule)
        return lhi_fail(err, LH_EINVAL,
                        "only torchtitan's configuration may name a schedule "
                        "in another file; remove the schedule");
    LHI_TRY(lhi_input_check_size(len, name, LHI_INPUT_ARGUMENTS, err));
    if (machines.n_sites == 0) {
        machines.n_sites = 1;
        machines.sites = &usual;
    }
    LHI_TRY(lhi_draft_check_sites(&machines, err));
    o.machines = &machines;
    lhi_imported_job in = {.mem = lhi_arena_make(0)};
    if (!in.mem)
        return lhi_fail_nomem(err);
    lh_status status = import_text(source, text, len, name, &o, &in, out, err);
    if (status != LH_OK && err) {
        const lh_error failed = *err;
        lhi_import_rename(&in, failed.text, err->text, sizeof err->text);
    }
    lhi_text_fini(&in.ignored);
    lhi_text_fini(&in.noted);
    lhi_arena_free(in.mem);
    return status;
}
